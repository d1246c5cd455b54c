/* What all ranks of a run must have in common before they begin: the library, the model, the options, the data, the
 * place. */
#ifndef MMI_TRAIN_IDENTITY_H
#define MMI_TRAIN_IDENTITY_H

#include "base/json.h"
#include "train/trainer.h"

/* A value for each name; mmi_json_free it. */
mm_status mmi_identity_make(mmi_json **out, const mm_trainer *trainer);

/* MM_ERR_STATE says what differs first. */
mm_status mmi_identity_compare(mmi_json *theirs, const char *them, mmi_json *own, const char *us);

#endif
