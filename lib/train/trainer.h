/* A trainer from the inside. */
#ifndef MMI_TRAIN_TRAINER_H
#define MMI_TRAIN_TRAINER_H

#include <stdatomic.h>
#include <stdbool.h>

#include <minimind/train.h>

#include "train/standing.h"

/* A place in a run, between two micro-steps. */
typedef struct mmi_place {
    int64_t step; /* micro-steps done */
    int64_t epoch, epoch_step;
    int64_t updates;
    int64_t tokens;
    mm_loader_position data; /* where the next batch comes from */
} mmi_place;

/* What the last step was like. */
typedef struct mmi_reading {
    double loss, learning_rate, grad_norm;
    double metrics[MMI_METRICS_MAX]; /* of the stage, in its order */
    int64_t tokens;                  /* ids fed by it */
} mmi_reading;

/* The last good values of something, oldest first when read from count % room on. */
#define MMI_WINDOW 64
typedef struct mmi_window {
    double values[MMI_WINDOW];
    int64_t count; /* taken so far */
} mmi_window;

/* What a run knows of its own health. */
typedef struct mmi_health {
    mmi_window losses, norms; /* of good micro-steps and updates */
    int64_t skipped;          /* passed over so far */
    int64_t bad_step;         /* the last of them, or whose update it was; 0: none */
    int64_t in_a_row;         /* bad steps that end with it */
    int64_t bad_norms;        /* updates passed over since the last good one */
    double loss_scale;        /* in force */
    int64_t since_overflow;   /* good updates */
    int64_t evaluations;      /* validations so far */
    int64_t evaluated_step;   /* where the last one was */
    double validation_loss;   /* of the last one; may be infinite */
    double validation_metrics[MMI_METRICS_MAX];
    double best_loss;
    int64_t best_step;
    int64_t worse; /* validations since then */
} mmi_health;

/* A larger scale than this is of no use, and its inverse must be a float. */
#define MMI_LOSS_SCALE_MAX 0x1p120

typedef struct mmi_stage mmi_stage;
typedef struct mmi_parallel mmi_parallel;
typedef struct mmi_saver mmi_saver;

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
    char *output, *kernels, *teacher_cache; /* what the options' strings point to */
    uint64_t vocabulary, cutting;           /* hashes of the loader's tokenizer */
    uint64_t beside;                        /* hash of the model's weights, where an adapter is trained beside them */
    int64_t epoch_steps;                    /* 0: not known, or not the same for all */
    int64_t total_steps;
    mmi_place now;
    mmi_reading last;
    mmi_health health;
    /* What the three were after the last update, or where one had nothing to learn from; the gradients hold what was
     * learnt from now.step - boundary.step batches. */
    mmi_place boundary;
    mmi_reading boundary_last;
    mmi_health boundary_health;
    mmi_saver *saver; /* writes checkpoints beside training; NULL: none does */
    mmi_standings standings;
    int64_t experts;    /* E of routed experts */
    int64_t saved_step; /* of the last checkpoint written; -1: none */
    double reported_at; /* seconds, of the last call of on_step */
    int64_t reported_step, reported_tokens;
    double tokens_per_s, seconds_left; /* as last reported */
    atomic_int stop;                   /* lock-free, so that a signal handler may set it */
    atomic_uintptr_t busy;             /* the thread on which it runs, saves or goes back to a checkpoint; 0: none */
};

/* AdamW as the options have it. */
mm_adamw_options mmi_trainer_adamw(const mm_trainer_options *options);

/* Around what moves the run, or saves it: MM_ERR_STATE where something does already, as from within on_step. */
mm_status mmi_trainer_enter(mm_trainer *t, const char *function);
void mmi_trainer_leave(mm_trainer *t);
bool mmi_trainer_is_mine(mm_trainer *t); /* it is this thread that has entered */

/* The data have come to another epoch: so has the run, unless it has no more of them. */
void mmi_trainer_begin_epoch(mmi_place *at, const mm_trainer *t);

/* All that was learnt is in the weights: a failure goes back to here. */
void mmi_trainer_settle(mm_trainer *t);

/* The model's weights, or the adapter's, have been changed. */
void mmi_trainer_written(mm_trainer *t);

/* The largest batch that it learns from or measures. */
int32_t mmi_trainer_rows(const mm_trainer *t);
int32_t mmi_trainer_length(const mm_trainer *t);

/* What the gradients hold. */
static inline int64_t mmi_trainer_accumulated(const mm_trainer *t)
{
    return t->now.step - t->boundary.step;
}

/* Of these steps, those that were learnt from: the others were passed over. */
static inline int64_t mmi_trainer_learnt(const mm_trainer *t)
{
    return mmi_trainer_accumulated(t) - (t->health.skipped - t->boundary_health.skipped);
}

/* Once the step's data is there: is the step the last one before an update? */
bool mmi_trainer_update_follows(const mm_trainer *trainer);

#endif
