#include <math.h>

#include "backend/simd/table.h"
#include "backend/simd/vmath.h"

float SIMD(logsumexp)(const float *x, int64_t n)
{
    float m = SIMD(largest)(x, n);
    float base = isinf(m) ? 0 : m; /* inf - inf would be NaN */
    vf shift = vf_set(base), nothing = vf_set(-INFINITY), even = vf_zero(), odd = vf_zero();
    int64_t i = 0;
    for (; i + 2 * VL <= n; i += 2 * VL) {
        even = vf_add(even, vf_exp(vf_sub(vf_load(x + i), shift)));
        odd = vf_add(odd, vf_exp(vf_sub(vf_load(x + i + VL), shift)));
    }
    for (; i < n; i += VL)
        even = vf_add(even, vf_exp(vf_sub(vf_get_or(x + i, n - i, nothing), shift)));
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
    if (row > *m)
        *m = row;
    float base = *m == -INFINITY ? 0 : *m;
    vf shift = vf_set(base), nothing = vf_set(-INFINITY), sum = vf_zero();
    for (int64_t i = 0; i < n; i += VL) {
        vf e = vf_exp(vf_sub(vf_get_or(s + i, n - i, nothing), shift));
        vf_put(s + i, n - i, e);
        sum = vf_add(sum, e);
    }
    return vf_sum(sum);
}
