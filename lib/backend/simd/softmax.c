#include <math.h>

#include "backend/simd/table.h"
#include "backend/simd/vmath.h"

/* exp(x - shift) of the last numbers, fewer than a vector, and 0 in the lanes beyond them. Those are 1 meanwhile: what
 * comes to less than a normal number takes a processor fifty times as long. */
static ALWAYS_INLINE vf exp_of_last(const float *x, int64_t n, vf shift)
{
    return vf_fill_tail(vf_exp(vf_sub(vf_get_or(x, n, shift), shift)), vf_tail(n), vf_zero());
}

float SIMD(logsumexp)(const float *x, int64_t n)
{
    float m = SIMD(largest)(x, n);
    float base = isinf(m) ? 0 : m; /* inf - inf would be NaN */
    vf shift = vf_set(base), even = vf_zero(), odd = vf_zero();
    int64_t i = 0;
    for (; i + 2 * VL <= n; i += 2 * VL) {
        even = vf_add(even, vf_exp(vf_sub(vf_load(x + i), shift)));
        odd = vf_add(odd, vf_exp(vf_sub(vf_load(x + i + VL), shift)));
    }
    for (; i + VL <= n; i += VL)
        even = vf_add(even, vf_exp(vf_sub(vf_load(x + i), shift)));
    if (i < n)
        even = vf_add(even, exp_of_last(x + i, n - i, shift));
    return base + logf(vf_sum(vf_add(even, odd)));
}

void SIMD(softmax_scaled)(float *x, float lse, float a, int64_t n)
{
    vf shift = vf_set(lse), factor = vf_set(a);
    for (int64_t i = 0; i < n; i += VL)
        vf_put(x + i, n - i, vf_mul(factor, vf_exp(vf_sub(vf_get(x + i, n - i), shift))));
}

float SIMD(softmax_tile)(float *s, float *m, int64_t n)
{
    float row = SIMD(largest)(s, n);
    if (row > *m + MMI_SOFTMAX_SLACK)
        *m = row;
    float base = *m == -INFINITY ? 0 : *m;
    vf shift = vf_set(base), sum = vf_zero();
    int64_t i = 0;
    for (; i + VL <= n; i += VL) {
        vf e = vf_exp(vf_sub(vf_load(s + i), shift));
        vf_store(s + i, e);
        sum = vf_add(sum, e);
    }
    if (i < n) {
        vf e = exp_of_last(s + i, n - i, shift);
        vf_put(s + i, n - i, e);
        sum = vf_add(sum, e);
    }
    return vf_sum(sum);
}
