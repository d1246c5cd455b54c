/* Where checkpoints lie, and what is in them. */
#ifndef MMI_TRAIN_CHECKPOINT_H
#define MMI_TRAIN_CHECKPOINT_H

#include "train/tensors.h"
#include "train/trainer.h"

/* The directory that `path` means: itself, or what its `latest` names. mmi_free it. */
mm_status mmi_checkpoint_find(char **out, const char *path);

/* gradients.safetensors: what was accumulated since the last update. */
mm_status mmi_checkpoint_gradients(mmi_tensor_list *list, const mm_trainer *trainer);

/* All other tensors: weights, the optimizer's, the stage's. */
mm_status mmi_checkpoint_tensors(mmi_tensor_list *list, const mm_trainer *trainer);

#endif
