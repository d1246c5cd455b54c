#include <float.h>
#include <math.h>

#include <minimind/optim.h>

#include "base/status.h"

#define PI 3.14159265358979323846

/* 1 + cos(π · part of the way): 2 at the start, 0 at the end. */
static double half_wave(double part)
{
    return 1 + cos(PI * part);
}

/* A line from 0 to lr over the first `warmup` steps. */
static double warm_up(int64_t step, int64_t warmup, double lr)
{
    return step < warmup ? lr * (double)step / (double)warmup : lr;
}

/* A line from lr at `from` to 0 at `total`, also where that comes first. */
static double cool_down(int64_t step, double from, int64_t total, double lr)
{
    if ((double)step <= from && (step < total || total == 0))
        return lr;
    return step < total ? lr * (double)(total - step) / ((double)total - from) : 0;
}

static double warm_up_then_cosine(int64_t step, int64_t total, int64_t warmup, double lr)
{
    if (step < warmup)
        return warm_up(step, warmup, lr);
    int64_t way = total > warmup ? total - warmup : 1;
    return lr * fmax(0.1, half_wave((double)(step - warmup) / (double)way) / 2);
}

static mm_status check(int64_t step, int64_t total, int64_t warmup, double lr, const double *out)
{
    if (!out)
        return mmi_fail(MM_ERR_ARG, "the schedule: out is NULL");
    if (step < 0 || total < 0 || warmup < 0)
        return mmi_fail(MM_ERR_ARG, "the schedule: step %lld, total %lld and warmup %lld can't be negative",
                        (long long)step, (long long)total, (long long)warmup);
    if (!(lr >= 0) || lr > DBL_MAX / 2) /* a rule may begin above it */
        return mmi_fail(MM_ERR_ARG, "the schedule: lr is %g, it must be from 0 up, and at most %g", lr, DBL_MAX / 2);
    return MM_OK;
}

mm_status mm_schedule_wsd(int64_t step, int64_t total, int64_t warmup, double decay_part, double lr, double *out)
{
    mm_status status = check(step, total, warmup, lr, out);
    if (status == MM_OK && !(decay_part > 0 && decay_part <= 1))
        status = mmi_fail(MM_ERR_ARG, "the schedule: decay_part is %g, it must be above 0 and at most 1", decay_part);
    if (status == MM_OK)
        *out = fmin(warm_up(step, warmup, lr), cool_down(step, (double)total * (1 - decay_part), total, lr));
    return status;
}

mm_status mm_schedule_lr(int32_t rule, int64_t step, int64_t total, int64_t warmup, double lr, double *out)
{
    mm_status status = check(step, total, warmup, lr, out);
    if (status != MM_OK)
        return status;
    double part = (double)step / (double)(total > 0 ? total : 1);
    switch (rule) {
    case MM_SCHEDULE_CONSTANT:
        *out = lr;
        return MM_OK;
    case MM_SCHEDULE_MINIMIND2:
        *out = lr / 10 + lr / 2 * half_wave(part);
        return MM_OK;
    case MM_SCHEDULE_MINIMIND3:
        *out = lr * (0.1 + 0.45 * half_wave(part));
        return MM_OK;
    case MM_SCHEDULE_COSINE:
        *out = warm_up_then_cosine(step, total, warmup, lr);
        return MM_OK;
    case MM_SCHEDULE_LINEAR:
        *out = fmin(warm_up(step, warmup, lr), cool_down(step, (double)warmup, total, lr));
        return MM_OK;
    case MM_SCHEDULE_WSD:
        return mm_schedule_wsd(step, total, warmup, 0.2, lr, out);
    default:
        return mmi_fail(MM_ERR_ARG, "mm_schedule_lr: %d is no MM_SCHEDULE_…, they are 0 to 5", rule);
    }
}
