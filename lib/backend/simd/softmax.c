#include <math.h>

#include "backend/simd/table.h"
#include "backend/simd/vmath.h"

/* exp(a (x - shift)) of the last numbers, fewer than a vector, and 0 in the lanes beyond them. Those are 1 meanwhile:
 * what comes to less than a normal number takes a processor fifty times as long. One copy of the code is enough. */
static NOINLINE vf exp_of_last(const float *x, int64_t n, vf shift, vf a)
{
    return vf_fill_tail(vf_exp(vf_mul(a, vf_sub(vf_get_or(x, n, shift), shift))), vf_tail(n), vf_zero());
}

void SIMD(softmax_scaled)(float *x, float lse, float a, int64_t n)
{
    vf shift = vf_set(lse), factor = vf_set(a);
    for (int64_t i = 0; i < n; i += VL)
        vf_put(x + i, n - i, vf_mul(factor, vf_exp(vf_sub(vf_get(x + i, n - i), shift))));
}

double SIMD(softmax_weights)(float *p, const float *x, float most, float a, int64_t n)
{
    enum { TOGETHER = 8 }; /* vectors added up in float32 before they are in double */
    vf shift = vf_set(most), factor = vf_set(a);
    double all = 0;
    for (int64_t i = 0; i < n;) {
        const int64_t end = n - i < TOGETHER * VL ? n : i + TOGETHER * VL;
        vf sum = vf_zero();
        for (; i + VL <= end; i += VL) {
            vf e = vf_exp(vf_mul(factor, vf_sub(vf_load(x + i), shift)));
            if (p)
                vf_store(p + i, e);
            sum = vf_add(sum, e);
        }
        if (i < end) {
            vf e = exp_of_last(x + i, end - i, shift, factor);
            if (p)
                vf_put(p + i, end - i, e);
            sum = vf_add(sum, e);
            i = end;
        }
        all += (double)vf_sum(sum);
    }
    return all;
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
        vf e = exp_of_last(s + i, n - i, shift, vf_set(1));
        vf_put(s + i, n - i, e);
        sum = vf_add(sum, e);
    }
    return vf_sum(sum);
}
