/* A directory with a small file of JSON and the large one of weights that goes with it. */
#ifndef MMI_MODEL_SAVE_H
#define MMI_MODEL_SAVE_H

#include "base/status.h"

typedef struct mmi_saved_pair {
    const char *config, *weights; /* the files' names */
    mm_status (*write_config)(const void *owner, const char *path);
    mm_status (*write_weights)(const void *owner, const char *path);
    const void *owner;
} mmi_saved_pair;

/* Write both into `directory`, which is made if it is missing. Each is replaced in one step, when both are written; on
 * failure the old files stand. Where only the directory's sync fails, at the end, the new ones do; where the second
 * rename fails, or the process ends before it, new weights stand beside the old config. */
mm_status mmi_save_pair(const char *directory, const mmi_saved_pair *pair);

#endif
