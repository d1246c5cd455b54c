/* Direct preference optimisation: a batch's first half are chosen answers, its second half the rejected ones.
 *
 * The reference scores every pair by itself, in a pass of two rows. So a score depends on nothing but the pair, and it
 * makes no difference whether it was computed now or kept from an earlier epoch, before or after a run was resumed. */
#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "base/options.h"
#include "base/target.h"
#include "data/loader.h"
#include "data/rows.h"
#include "train/health.h"
#include "train/objective.h"
#include "train/parallel.h"
#include "train/scores.h"
#include "train/stage.h"

typedef struct dpo {
    mm_dpo_options options;
    mmi_frozen reference; /* of two rows */
    mmi_scores scores;    /* by the hash of a pair */
    int32_t *pair;        /* [3, 2, T]: ids, targets and mask of a pair */
    int32_t *mask;        /* [2N, T] */
    float *d_logprobs;    /* [2N, T] */
    double *ref;          /* [2N] */
} dpo;

static mm_status make_room(dpo *d, const mm_trainer *t)
{
    int64_t rows = mmi_trainer_rows(t), N = rows * mmi_trainer_length(t);
    d->mask = mmi_alloc((size_t)N, sizeof *d->mask);
    d->d_logprobs = mmi_alloc((size_t)N, sizeof *d->d_logprobs);
    d->ref = mmi_alloc((size_t)rows, sizeof *d->ref);
    d->pair = mmi_alloc(6 * (size_t)mmi_trainer_length(t), sizeof *d->pair);
    if (!d->mask || !d->d_logprobs || !d->ref || !d->pair)
        return mmi_fail_memory((size_t)N * (sizeof *d->mask + sizeof *d->d_logprobs), "the gradients of pairs");
    int64_t again = t->options.epochs > 1 ? mm_dataset_rows(mmi_loader_dataset(t->loader)) : 0;
    if (t->options.validation)
        again += mm_dataset_rows(mmi_loader_dataset(t->options.validation));
    return again > 0 ? mmi_scores_make(&d->scores, again) : MM_OK;
}

static mm_status create(mm_trainer *t)
{
    dpo *d = t->stage_data = mmi_calloc(1, sizeof *d);
    if (!d)
        return mmi_fail_memory(sizeof *d, "a stage");
    mm_dpo_options_init(&d->options, sizeof d->options);
    mm_status status = mmi_options_read(&d->options, sizeof d->options, t->options.dpo, "mm_dpo_options");
    if (status == MM_OK)
        status = mmi_dpo_check(&d->options);
    if (status == MM_OK)
        status = mmi_stage_reference(&d->reference, t, t->options.reference, 2, mmi_trainer_length(t));
    return status == MM_OK ? make_room(d, t) : status;
}

static void destroy(mm_trainer *t)
{
    dpo *d = t->stage_data;
    if (!d)
        return;
    mmi_scores_free(&d->scores);
    mm_context_free(d->reference.context);
    mmi_free(d->mask);
    mmi_free(d->d_logprobs);
    mmi_free(d->ref);
    mmi_free(d->pair);
    mmi_free(d);
}

/* --- Pairs --- */

static uint64_t key_of(const mm_batch *b, const int64_t rows[2])
{
    mmi_hash hash;
    mmi_hash_begin(&hash);
    mmi_stage_hash_row(&hash, b, rows[0]);
    mmi_stage_hash_row(&hash, b, rows[1]);
    return mmi_hash_end(&hash);
}

/* How much better the reference likes the chosen answer. The pair is run as far as it counts: how far its batch is
 * padded must not be seen in its score. */
static mm_status score_pair(dpo *d, double *score, const mm_batch *b, const int64_t rows[2])
{
    int64_t width = b->length;
    const int32_t *first = b->targets + rows[0] * width;
    size_t T = (size_t)mmi_rows_reach(first, 2, (rows[1] - rows[0]) * width, b->length);
    double scores[2];
    mm_output out = MM_OUTPUT_INIT;
    mm_batch pair = MM_BATCH_INIT;
    int32_t *ids = d->pair, *targets = ids + 2 * T, *mask = targets + 2 * T;
    for (size_t side = 0; side < 2; side++) {
        int64_t start = rows[side] * width;
        memcpy(ids + side * T, b->ids + start, T * sizeof *ids);
        memcpy(targets + side * T, b->targets + start, T * sizeof *targets);
        memcpy(mask + side * T, d->mask + start, T * sizeof *mask);
    }
    pair.ids = ids;
    pair.targets = targets;
    pair.batch = 2;
    pair.length = (int32_t)T;
    mm_status status = mm_forward(d->reference.context, &pair, &out);
    if (status == MM_OK)
        status = mm_sequence_scores(scores, out.logprobs.data, mask, 2, pair.length, d->options.reduction);
    if (status != MM_OK)
        return mmi_fail_within(status, "the reference");
    *score = scores[0] - scores[1];
    return MM_OK;
}

/* d->mask and d->ref of a batch, whose scores are kept if it comes `again`. Only differences count, so a pair's stands
 * with its chosen answer. */
static mm_status prepare(dpo *d, const mm_batch *b, bool again)
{
    int64_t pairs = b->batch / 2;
    mm_status status = MM_OK;
    for (int64_t i = 0; i < (int64_t)b->batch * b->length; i++)
        d->mask[i] = b->targets[i] != MMI_IGNORE;
    for (int64_t i = 0; i < pairs && status == MM_OK; i++) {
        const int64_t rows[2] = { i, pairs + i };
        uint64_t key = d->scores.room > 0 ? key_of(b, rows) : 0;
        d->ref[pairs + i] = 0;
        if (mmi_scores_find(&d->scores, &d->ref[i], key))
            continue;
        status = score_pair(d, &d->ref[i], b, rows);
        if (status == MM_OK && isfinite(d->ref[i]) && again)
            mmi_scores_keep(&d->scores, key, d->ref[i]);
    }
    return status;
}

/* --- The stage --- */

enum { ACCURACY, MARGIN };
static const char *const metrics[] = { "accuracy", "margin", NULL };

/* Pairs of a batch, also those that were cut before an answer: they count as even ones, wherever they stand. */
static int64_t pairs_of(const mmi_work *work)
{
    return work->filler ? 0 : work->batch.batch / 2;
}

/* One forward pass of the policy and what it is worth, without the auxiliary loss; `d_logprobs` NULL: no gradient. */
static mm_status compare(mm_trainer *t, mmi_work *work, float *d_logprobs, mmi_reading *reading)
{
    dpo *d = t->stage_data;
    mm_output out = MM_OUTPUT_INIT;
    mm_dpo_result r = MM_DPO_RESULT_INIT;
    mm_status status = prepare(d, &work->batch, !d_logprobs || t->options.epochs > 1);
    if (status == MM_OK)
        status = mm_forward(t->context, &work->batch, &out);
    if (status == MM_OK)
        status = mm_dpo(&d->options, work->batch.batch / 2, work->batch.length, out.logprobs.data, d->ref, d->mask,
                        d_logprobs, &r);
    bool finite = status != MM_ERR_NUMERIC;
    reading->loss = finite ? r.loss : NAN;
    reading->metrics[ACCURACY] = finite ? r.accuracy : NAN;
    reading->metrics[MARGIN] = finite ? r.margin : NAN;
    reading->tokens = mmi_work_tokens(work);
    return finite ? status : MM_OK;
}

static mm_status learn(mm_trainer *t, mmi_work *work, double scale, mmi_reading *reading)
{
    dpo *d = t->stage_data;
    mmi_share share;
    mm_status status = compare(t, work, d->d_logprobs, reading);
    double pairs = (double)pairs_of(work);
    mmi_weights counted = { pairs, pairs };
    if (status == MM_OK)
        status = mmi_parallel_join(&share, t, reading, counted, work);
    if (status != MM_OK || !mmi_health_good_loss(t, reading->loss))
        return status;
    mm_backward_options back = MM_BACKWARD_OPTIONS_INIT;
    back.loss_scale = scale * share.loss;
    back.aux_scale = scale * share.aux;
    back.d_logprobs = d->d_logprobs;
    mmi_parallel_overlap(&back, t);
    work->touched = true;
    return mm_backward(t->context, &back);
}

static mm_status measure(mm_trainer *t, mmi_work *work, double *weight, mmi_reading *reading)
{
    *weight = (double)pairs_of(work);
    return compare(t, work, NULL, reading);
}

static bool add_options(mmi_json *to, const mm_trainer *t)
{
    const dpo *d = t->stage_data;
    return mmi_json_set_real(to, "dpo_beta", d->options.beta) &&
           mmi_json_set_int(to, "dpo_reduction", d->options.reduction) &&
           mmi_hash_set(to, "reference_hash", d->reference.hash);
}

const mmi_stage mmi_stage_dpo = {
    .name = "dpo",
    .kinds = 1 << MM_ROW_PREFERENCE,
    .outputs = MM_OUT_LOSS | MM_OUT_LOGPROBS,
    .metrics = metrics,
    .create = create,
    .free = destroy,
    .learn = learn,
    .measure = measure,
    .options = add_options,
};
