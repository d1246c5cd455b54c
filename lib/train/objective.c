#include "train/objective.h"

#include <math.h>

mm_status mmi_objective_shape(const char *what, int64_t rows, int64_t length)
{
    int64_t n;
    if (rows < 1 || length < 1 || __builtin_mul_overflow(rows, length, &n) || n > INT64_MAX / 16)
        return mmi_fail(MM_ERR_ARG,
                        "%s: the shape is [%lld, %lld], both must be at least 1, and their product countable", what,
                        (long long)rows, (long long)length);
    return MM_OK;
}

mm_status mmi_objective_mask(const char *what, const int32_t *mask, int64_t rows, int64_t length)
{
    for (int64_t i = 0; i < rows * length; i++)
        if (mask[i] != 0 && mask[i] != 1)
            return mmi_fail(MM_ERR_ARG, "%s: mask[%lld][%lld] is %d, must be 0 or 1", what, (long long)(i / length),
                            (long long)(i % length), mask[i]);
    return MM_OK;
}

mm_status mmi_objective_weight(const char *what, const char *name, double value)
{
    if (!(value >= 0 && isfinite(value)))
        return mmi_fail(MM_ERR_ARG, "%s: %s is %g, must be finite and not negative", what, name, value);
    return MM_OK;
}

mm_status mmi_objective_epsilon(const char *what, double epsilon)
{
    if (!(epsilon >= 0 && epsilon < 1))
        return mmi_fail(MM_ERR_ARG, "%s: epsilon is %g, must be at least 0 and below 1", what, epsilon);
    return MM_OK;
}

int64_t mmi_objective_counted(const int32_t *mask, int64_t length)
{
    int64_t n = 0;
    for (int64_t t = 0; t < length; t++)
        n += mask[t];
    return n;
}

mmi_term mmi_clipped_gain(double ratio, double advantage, double epsilon)
{
    double held = fmin(fmax(ratio, 1 - epsilon), 1 + epsilon);
    if (held * advantage < ratio * advantage)
        return (mmi_term){ .value = held * advantage, .clipped = true };
    return (mmi_term){ .value = ratio * advantage, .slope = ratio * advantage };
}

mmi_term mmi_reference_kl(double now, double ref)
{
    double delta = ref - now;
    return (mmi_term){ .value = exp(delta) - delta - 1, .slope = 1 - exp(delta) };
}
