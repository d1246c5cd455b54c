#include <math.h>

#include <minimind/optim.h>

#include "base/status.h"

#define PI 3.14159265358979323846

/* 1 + cos(π · part of the way): 2 at the start, 0 at the end. */
static double half_wave(double part)
{
    return 1 + cos(PI * part);
}

static double warm_up_then_cosine(int64_t step, int64_t total, int64_t warmup, double lr)
{
    if (step < warmup)
        return lr * (double)step / (double)warmup;
    int64_t way = total > warmup ? total - warmup : 1;
    return lr * fmax(0.1, half_wave((double)(step - warmup) / (double)way) / 2);
}

mm_status mm_schedule_lr(int32_t rule, int64_t step, int64_t total, int64_t warmup, double lr, double *out)
{
    if (!out)
        return mmi_fail(MM_ERR_ARG, "mm_schedule_lr: out is NULL");
    if (step < 0 || total < 0 || warmup < 0)
        return mmi_fail(MM_ERR_ARG, "mm_schedule_lr: step %lld, total %lld and warmup %lld can't be negative",
                        (long long)step, (long long)total, (long long)warmup);
    if (!(lr >= 0) || !isfinite(lr))
        return mmi_fail(MM_ERR_ARG, "mm_schedule_lr: lr is %g, it must be a number from 0 up", lr);
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
    default:
        return mmi_fail(MM_ERR_ARG, "mm_schedule_lr: %d is no MM_SCHEDULE_…, they are 0 to 3", rule);
    }
}
