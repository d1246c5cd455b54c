/* A trainer among others: what ranks must agree on before they begin, how a batch is weighed among those of all, and
 * how gradients become the sum of all while the backward pass goes on.
 *
 * A trainer without a communicator, or with one of size 1, has no mmi_parallel; every function here then does what is
 * right for one that is alone. */
#ifndef MMI_TRAIN_PARALLEL_H
#define MMI_TRAIN_PARALLEL_H

#include "train/stage.h"

/* t->parallel from t->options.comm; context and loader are there. */
mm_status mmi_parallel_create(mm_trainer *t);
void mmi_parallel_free(mm_trainer *t);

/* Collective, before the first step of a run: are all ranks in the same place of the same run? Weights and moments that
 * differ become rank 0's. MM_ERR_STATE says what does not fit. */
mm_status mmi_parallel_begin(mm_trainer *t);

/* A failure of this rank: the others must not wait for it. Failures that come out alike on all ranks need no telling.
 */
void mmi_parallel_give_up(mm_trainer *t, mm_status status);

/* The same for one that comes out on this rank alone, whatever its status. The message stands. */
void mmi_parallel_abort(mm_trainer *t);

/* 0 when alone: this one writes the checkpoints. */
int32_t mmi_parallel_rank(const mm_trainer *t);

/* Should the run stop here? Alone: when told to. Among others: when all know of it, and between two updates. */
bool mmi_parallel_stops(const mm_trainer *t);

/* May a checkpoint be written here? Among others the gradients of one rank are not all there are, nor is the data that
 * it learns from more than once. */
bool mmi_parallel_can_save(const mm_trainer *t);

/* The step that was just made ends an epoch of which no rank could read a row. */
bool mmi_parallel_unread(mm_trainer *t);

/* Sum `count` ≤ 15 values over all ranks. Carries the wish to stop along. */
mm_status mmi_parallel_sum(const mm_trainer *t, double *values, int64_t count);

/* What the loss and the auxiliary loss of one's own batch weigh among those of all: factors of their gradients. Alone
 * 1, but for an auxiliary loss of a batch in which nothing counts, which is left out as mm_backward() leaves it out. */
typedef struct mmi_share {
    double loss, aux;
} mmi_share;

/* What the means in a reading are taken over: the targets, pairs or answers that count. */
typedef struct mmi_weights {
    double loss, metrics;
} mmi_weights;

/* Collective, behind the forward pass of a step that is learnt from. A reading of one's own batch becomes that of all
 * batches: loss and metrics by their weights; tokens are added up. The auxiliary loss of the pass, a mean over
 * sequences, joins the loss by rows, whether or not they count a target, where any of all ranks does. */
mm_status mmi_parallel_join(mmi_share *share, const mm_trainer *t, mmi_reading *reading, mmi_weights weights,
                            const mmi_work *work);

/* If the step at hand is the last before an update, its backward pass will send gradients as they become final. */
void mmi_parallel_overlap(mm_backward_options *back, mm_trainer *t);

/* Collective, before an update: the gradients of all ranks are added up, or still are to be. */
mm_status mmi_parallel_reduce(mm_trainer *t);

/* What was sent is waited for, and forgotten: after a failure. */
void mmi_parallel_settle(mm_trainer *t);

#endif
