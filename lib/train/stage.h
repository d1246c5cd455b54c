/* Stages of training: what a micro-step takes from the data, and what it learns from it. The loop round it
 * (accumulation, schedule, updates, reports, checkpoints) is the same for all; a stage is a row of functions. Those
 * that a stage has no use for are NULL. */
#ifndef MMI_TRAIN_STAGE_H
#define MMI_TRAIN_STAGE_H

#include "base/json.h"
#include "data/hash.h"
#include "train/tensors.h"
#include "train/trainer.h"

/* The data of one micro-step, lent until the stage's next. */
typedef struct mmi_work {
    mm_batch batch;     /* rows; its seed is the step's */
    mm_prompts prompts; /* or prompts, where the stage asks for them */
    bool filler;        /* its rows are none of the data: other ranks have all that are left */
    bool end;           /* there is none: the epoch is over */
    bool stop;          /* there is none: the program wants the run to stop here */
    bool touched;       /* set by learn: the gradients may hold a part of this step, should it fail */
} mmi_work;

struct mmi_stage {
    const char *name;
    int32_t kinds;              /* of rows that it learns from: 1 << MM_ROW_… added together */
    int32_t outputs;            /* MM_OUT_… that it needs of the trainer's context */
    const char *const *metrics; /* what it reads beside the loss, mmi_reading.metrics in their order; ends with NULL */

    /* Before there is a context: read and check the stage's options, and say how large a context it needs. */
    mm_status (*plan)(mm_trainer *t, mm_context_options *context);

    /* The context is there, the optimizer isn't. What was made goes to t->stage_data; free() is called after a failure
     * too. */
    mm_status (*create)(mm_trainer *t);
    void (*free)(mm_trainer *t);

    /* Micro-steps that learn from the same data, one after the other, so that now.step % uses tells which of them it
     * is. NULL: 1. */
    int64_t (*uses)(const mm_trainer *t);

    /* The step's data. NULL: the loader's next batch. After a failure the loader stands where it stood. */
    mm_status (*next)(mm_trainer *t, mmi_work *work);

    /* Add `scale` times the gradients of this step's loss to the context's; say what it was like: loss, metrics,
     * tokens, of all ranks together (mmi_parallel_join). The gradients stay as they are for a loss that
     * mmi_health_good_loss() refuses: the loop deals with it. */
    mm_status (*learn)(mm_trainer *t, mmi_work *work, double scale, mmi_reading *reading);

    /* Gradients of parameters of its own, which ranks add up with the model's before an update. */
    float *(*gradients)(const mm_trainer *t, int64_t *count);

    /* Parameters of its own go along with the optimizer's step, which has succeeded: this can't fail. And their
     * gradients are dropped with the others. */
    void (*update)(mm_trainer *t, double learning_rate);
    void (*drop)(mm_trainer *t);

    /* The loss and the metrics of rows that are not learnt from, and what they weigh in the mean of all; 0: nothing.
     * Without it there is no validation. */
    mm_status (*measure)(mm_trainer *t, mmi_work *work, double *weight, mmi_reading *reading);

    /* Those of its options that decide how a run goes on: a checkpoint with others is refused. False: no memory. */
    bool (*options)(mmi_json *to, const mm_trainer *t);

    /* Its own state in state.json, and back: open() checks all of it, for a checkpoint of `step`, and keeps it aside;
     * once every other part of the checkpoint has been found in order, take(), which can't fail, makes it the stage's.
     */
    bool (*save)(mmi_json *to, const mm_trainer *t);
    mm_status (*open)(mm_trainer *t, const mmi_json *from, int64_t step, const char *directory);
    void (*take)(mm_trainer *t);

    /* Tensors of its own: stage.safetensors of a checkpoint; and whether those of such a file, which is open, can be
     * what a run has left there. */
    mm_status (*tensors)(mmi_tensor_list *list, const mm_trainer *t);
    mm_status (*check)(const mm_trainer *t, const mmi_st_file *file, const char *path);
};

extern const mmi_stage mmi_stage_plain, mmi_stage_policy, mmi_stage_dpo, mmi_stage_distill;

/* stage->uses, at least 1. */
int64_t mmi_stage_uses(const mm_trainer *t);

/* After `step` more steps from the same data are to come; as of now. */
bool mmi_stage_in_midst_of(const mm_trainer *t, int64_t step);
bool mmi_stage_in_midst(const mm_trainer *t);

/* The stage of an MM_STAGE_…, or NULL. */
const mmi_stage *mmi_stage_of(int32_t stage);

/* What tells a row of a batch from other rows: all that is fed and counted, whatever is padded. */
void mmi_stage_hash_row(mmi_hash *hash, const mm_batch *batch, int64_t row);

/* What tells a frozen model from another one: all its weights, and all of its config. */
uint64_t mmi_stage_hash_model(const mm_model *model);

/* A model that stands by, and stays as it is. */
typedef struct mmi_frozen {
    mm_context *context; /* holds it, and runs without an adapter; NULL: there is none. Free it, also after a failure */
    uint64_t hash;
} mmi_frozen;

/* `model` in a `role` such as "teacher", for passes of so many rows of such length, which give `outputs`. MM_ERR_ARG if
 * it is the one that is trained. */
mm_status mmi_stage_freeze(mmi_frozen *out, const mm_trainer *t, mm_model *model, const char *role, int32_t outputs,
                           int64_t rows, int64_t length);

/* The reference, for logprobs: the model given, or beside an adapter the model itself, else a copy of it as it is now.
 * MM_ERR_ARG also if its vocabulary is another one. */
mm_status mmi_stage_reference(mmi_frozen *out, const mm_trainer *t, mm_model *given, int64_t rows, int64_t length);

/* MM_ERR_UNSUPPORTED if it does not learn from such rows. */
mm_status mmi_stage_check_rows(const mmi_stage *stage, const mm_loader *loader);

/* What a step is like that learnt from work->batch: its tokens. */
static inline int64_t mmi_work_tokens(const mmi_work *work)
{
    return (int64_t)work->batch.batch * work->batch.length;
}

#endif
