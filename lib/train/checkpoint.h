/* Checkpoints: gathered from a trainer, written by whoever has the time, and found again. */
#ifndef MMI_TRAIN_CHECKPOINT_H
#define MMI_TRAIN_CHECKPOINT_H

#include "base/json.h"
#include "train/tensors.h"
#include "train/trainer.h"

/* The files of tensors that a checkpoint may have. */
typedef enum mmi_part {
    MMI_PART_MODEL, /* or the adapter */
    MMI_PART_OPTIMIZER,
    MMI_PART_GRADIENTS, /* what was accumulated since the last update */
    MMI_PART_STAGE,
    MMI_PARTS
} mmi_part;
const char *mmi_part_name(mmi_part part, const mm_trainer *t);

/* What the trainer has now, or would have: where the tensors of a part lie. */
mm_status mmi_part_list(mmi_tensor_list *list, mmi_part part, const mm_trainer *t);

/* All that goes to disk. Beside what is here it needs only what never changes: the config, the tokenizer, the options.
 */
typedef struct mmi_checkpoint {
    int64_t step;
    mmi_json *state;                  /* state.json but for what is said of the files */
    mmi_tensor_list parts[MMI_PARTS]; /* those without an entry are not written */
    bool best;                        /* of this run, so far */
    bool named;                       /* as such, in `best` */
} mmi_checkpoint;

/* The trainer as it stands; the tensors stay where they are. mmi_checkpoint_drop() also after a failure. */
mm_status mmi_checkpoint_gather(mmi_checkpoint *checkpoint, const mm_trainer *t);
void mmi_checkpoint_drop(mmi_checkpoint *checkpoint);

/* Write it, name it in `latest`, let go of older ones. */
mm_status mmi_checkpoint_write(mmi_checkpoint *checkpoint, const mm_trainer *t);

/* Save the trainer as it stands, now or beside what follows. A failure of the one before, which was written beside, is
 * told first. */
mm_status mmi_checkpoint_save(mm_trainer *t, bool beside);

/* Until nothing is being written: how that went. */
mm_status mmi_checkpoint_wait(mm_trainer *t);

/* What writes beside, with room for a copy of all tensors; NULL is fine to free, and freeing waits. */
mm_status mmi_saver_create(mmi_saver **out, const mm_trainer *t);
void mmi_saver_free(mmi_saver *saver);

/* All tensors but the gradients: weights, the optimizer's, the stage's. */
mm_status mmi_checkpoint_tensors(mmi_tensor_list *list, const mm_trainer *t);

/* The directory that `path` means: itself, or what its `latest` names. mmi_free it. */
mm_status mmi_checkpoint_find(char **out, const char *path);

#endif
