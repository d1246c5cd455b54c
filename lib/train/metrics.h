/* metrics.jsonl from the reading side. */
#ifndef MMI_TRAIN_METRICS_H
#define MMI_TRAIN_METRICS_H

#include "train/tracks.h"

/* Feed `tracks` with the lines up to `last_step`. The file is then written anew without what lies beyond, nor a last
 * line that is torn; that it is missing is fine. MM_ERR_FORMAT: another line can't be read, nothing was changed. */
mm_status mmi_metrics_take_back(mmi_tracks *tracks, const char *path, int64_t last_step);

#endif
