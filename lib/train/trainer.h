/* A trainer from the inside. */
#ifndef MMI_TRAIN_TRAINER_H
#define MMI_TRAIN_TRAINER_H

#include <stdatomic.h>
#include <stdbool.h>

#include <minimind/train.h>

/* A place in a run, between two micro-steps. */
typedef struct mmi_place {
    int64_t step; /* micro-steps done */
    int64_t epoch, epoch_step;
    int64_t updates;
    int64_t tokens;
    mm_loader_position data; /* where the next batch comes from */
} mmi_place;

#define MMI_METRICS_MAX 8

/* What the last step was like. */
typedef struct mmi_reading {
    double loss, learning_rate, grad_norm;
    double metrics[MMI_METRICS_MAX]; /* of the stage, in its order */
    int64_t tokens;                  /* ids fed by it */
} mmi_reading;

typedef struct mmi_stage mmi_stage;
typedef struct mmi_parallel mmi_parallel;

struct mm_trainer {
    mm_model *model; /* held, as are the next two */
    mm_loader *loader;
    mm_tokenizer *tokenizer; /* or NULL */
    mm_context *context;
    mm_optimizer *optimizer;
    const mmi_stage *stage;
    void *stage_data;       /* the stage's own */
    mmi_parallel *parallel; /* NULL: alone */
    mm_trainer_options options;
    char *output, *kernels; /* what the options' strings point to */
    uint64_t vocabulary;    /* hash of the loader's tokenizer */
    int64_t epoch_steps;    /* 0: not known */
    int64_t total_steps;
    mmi_place now;
    mmi_place boundary; /* after the last update; the gradients hold now.step - boundary.step batches */
    mmi_reading last;
    mm_train_metric metrics[MMI_METRICS_MAX]; /* last.metrics with their names, to be lent */
    int64_t saved_step;                       /* of the last checkpoint written; -1: none */
    double reported_at;                       /* seconds, of the last call of on_step */
    int64_t reported_step, reported_tokens;
    double tokens_per_s, seconds_left; /* as last reported */
    atomic_int stop;                   /* lock-free, so that a signal handler may set it */
};

/* AdamW as the options have it. */
mm_adamw_options mmi_trainer_adamw(const mm_trainer_options *options);

/* What the gradients hold. */
static inline int64_t mmi_trainer_accumulated(const mm_trainer *t)
{
    return t->now.step - t->boundary.step;
}

/* Once the step's data is there: is the step the last one before an update? */
bool mmi_trainer_update_follows(const mm_trainer *trainer);

#endif
