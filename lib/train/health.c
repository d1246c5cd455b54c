#include "train/health.h"

#include <math.h>
#include <string.h>

#include "base/log.h"
#include "data/loader.h"
#include "nn/vector.h"
#include "run/context.h"
#include "train/parallel.h"
#include "train/stage.h"

/* --- Outliers --- */

/* So many values tell what is usual. */
#define ENOUGH 16

/* Deviations below this part of the mean count as this: rows differ, and early windows are narrow by chance. */
#define LEAST_DEVIATION 0.01

void mmi_window_add(mmi_window *w, double value)
{
    w->values[w->count % MMI_WINDOW] = value;
    w->count++;
}

/* From the oldest value to the newest, wherever it lies: a resumed run adds up in the same order. */
static void describe(const mmi_window *w, double *mean, double *deviation)
{
    int64_t n = w->count < MMI_WINDOW ? w->count : MMI_WINDOW;
    double sum = 0, squares = 0;
    for (int64_t i = w->count - n; i < w->count; i++)
        sum += w->values[i % MMI_WINDOW];
    *mean = sum / (double)n;
    for (int64_t i = w->count - n; i < w->count; i++)
        squares += (w->values[i % MMI_WINDOW] - *mean) * (w->values[i % MMI_WINDOW] - *mean);
    *deviation = sqrt(squares / (double)n);
}

static bool is_good(const mm_trainer *t, const mmi_window *w, double value)
{
    if (!isfinite(value))
        return false;
    if (t->options.spike_factor <= 0 || w->count < ENOUGH)
        return true;
    double mean, deviation;
    describe(w, &mean, &deviation);
    return value <= mean + t->options.spike_factor * fmax(deviation, LEAST_DEVIATION * fabs(mean));
}

bool mmi_health_good_loss(const mm_trainer *t, double loss)
{
    return is_good(t, &t->health.losses, loss);
}

bool mmi_health_good_norm(const mm_trainer *t, double norm)
{
    return is_good(t, &t->health.norms, norm);
}

/* Bad steps right before this one, or up to its update. */
static int64_t bad_steps_before(const mmi_health *h, int64_t step)
{
    return step - h->bad_step > 1 ? 0 : h->in_a_row;
}

/* `before`: how many bad ones there are in a row without it. */
static mm_status skip(mm_trainer *t, int64_t step, int64_t before, const char *what, double value)
{
    mmi_health *h = &t->health;
    if (before >= t->options.max_skips)
        return mmi_fail(MM_ERR_NUMERIC, "step %lld: the %s is %g", (long long)step, what, value);
    h->in_a_row = bad_steps_before(h, step) + 1;
    h->bad_step = step;
    h->skipped++;
    mmi_log(MM_LOG_WARNING, "step %lld is passed over: the %s is %g", (long long)step, what, value);
    return MM_OK;
}

mm_status mmi_health_skip_loss(mm_trainer *t, int64_t step, double loss)
{
    return skip(t, step, bad_steps_before(&t->health, step), "loss", loss);
}

/* Steps whose loss was good may stand between two updates. */
mm_status mmi_health_skip_norm(mm_trainer *t, int64_t step, double norm)
{
    int64_t steps = bad_steps_before(&t->health, step), updates = t->health.bad_norms;
    mm_status status = skip(t, step, steps > updates ? steps : updates, "norm of the gradients", norm);
    t->health.bad_norms += status == MM_OK;
    return status;
}

/* --- The scale of the loss --- */

void mmi_health_unscale(mm_trainer *t)
{
    const mmi_trained trained = mmi_context_trained(t->context);
    if (t->health.loss_scale == 1)
        return;
    for (int64_t i = 0; i < mmi_trained_count(&trained); i++) {
        mmi_tensor tensor;
        mmi_trained_tensor(&trained, i, &tensor);
        float *gradients = mmi_context_grads(t->context, i);
        if (gradients)
            mmi_vector_scale(mmi_context_exec(t->context), gradients, (float)(1 / t->health.loss_scale),
                             tensor.elements);
    }
}

bool mmi_health_overflowed(mm_trainer *t)
{
    mmi_health *h = &t->health;
    if (t->options.loss_scale <= 0 || h->loss_scale <= 1)
        return false;
    h->loss_scale = fmax(1, h->loss_scale / 2);
    h->since_overflow = 0;
    h->skipped++;
    mmi_log(MM_LOG_INFO, "step %lld: the gradients overflowed; the loss scale is now %g", (long long)t->now.step,
            h->loss_scale);
    return true;
}

void mmi_health_updated(mm_trainer *t, double norm)
{
    mmi_health *h = &t->health;
    int64_t interval = t->options.loss_scale_interval;
    mmi_window_add(&h->norms, norm);
    h->bad_norms = 0;
    h->since_overflow++;
    if (t->options.loss_scale > 0 && interval > 0 && h->since_overflow % interval == 0 &&
        2 * h->loss_scale <= MMI_LOSS_SCALE_MAX)
        h->loss_scale *= 2;
}

/* --- Validation --- */

/* Sums over the batches of a validation. */
typedef struct sums {
    double weight, loss, metrics[MMI_METRICS_MAX];
} sums;

static mm_status measure_batch(mm_trainer *t, mmi_work *work, sums *s)
{
    mmi_reading reading = { 0 };
    double weight = 0;
    work->batch.mode = MM_EVAL;
    mm_status status = t->stage->measure(t, work, &weight, &reading);
    if (status != MM_OK || weight == 0)
        return status;
    s->weight += weight;
    s->loss += weight * reading.loss;
    for (int i = 0; i < MMI_METRICS_MAX; i++)
        s->metrics[i] += weight * reading.metrics[i];
    return MM_OK;
}

static mm_status measure_all(mm_trainer *t, sums *s)
{
    mm_loader *loader = t->options.validation;
    const mm_loader_position start = MM_LOADER_POSITION_INIT;
    mm_status status = mm_loader_seek(loader, &start);
    for (int64_t i = 0; status == MM_OK && (t->options.eval_batches == 0 || i < t->options.eval_batches); i++) {
        mmi_work work = { .batch = MM_BATCH_INIT, .prompts = MM_PROMPTS_INIT };
        status = mm_loader_next(loader, &work.batch);
        if (status == MM_OK && work.batch.batch == 0)
            break;
        work.filler = mmi_loader_gave_none(loader);
        if (status == MM_OK)
            status = measure_batch(t, &work, s);
    }
    return status;
}

mm_status mmi_health_validate(mm_trainer *t, bool *better)
{
    mmi_health *h = &t->health;
    sums s = { 0 };
    *better = false;
    mm_status status = measure_all(t, &s);
    double all[2 + MMI_METRICS_MAX] = { s.weight, s.loss };
    memcpy(all + 2, s.metrics, sizeof s.metrics);
    if (status == MM_OK) /* so that all ranks come to the same end */
        status = mmi_parallel_sum(t, all, 2 + MMI_METRICS_MAX);
    s = (sums){ .weight = all[0], .loss = all[1] };
    memcpy(s.metrics, all + 2, sizeof s.metrics);
    if (status == MM_OK && s.weight == 0)
        status = mmi_fail(MM_ERR_FORMAT, "not one target counts");
    if (status != MM_OK)
        return mmi_fail_within(status, "the validation at step %lld", (long long)t->now.step);
    double loss = s.loss / s.weight;
    h->validation_loss = isfinite(loss) ? loss : INFINITY;
    for (int i = 0; i < MMI_METRICS_MAX; i++)
        h->validation_metrics[i] = s.metrics[i] / s.weight;
    *better = isfinite(loss) && (h->best_step == 0 || loss < h->best_loss - t->options.min_delta);
    h->worse = *better ? 0 : h->worse + 1;
    if (*better) {
        h->best_loss = loss;
        h->best_step = t->now.step;
    }
    h->evaluations++;
    h->evaluated_step = t->now.step;
    if (mmi_trainer_accumulated(t) == 0) /* it is no part of what a failure takes back */
        t->boundary_health = *h;
    return MM_OK;
}
