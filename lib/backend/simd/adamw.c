#include <math.h>

#include "backend/simd/table.h"

/* What does not change from one parameter to the next is worked out in double precision first. The decay is subtracted
 * as a product of its own: 1 - lr · decay as a float would lose most of lr · decay. */
void SIMD(adamw)(float *w, float *m, float *v, const float *g, int64_t n, double grad_scale, double lr, double beta1,
                 double beta2, double eps, double decay, double correction1, double correction2)
{
    vf scale = vf_set((float)grad_scale), keep1 = vf_set((float)beta1), keep2 = vf_set((float)beta2);
    vf take1 = vf_set((float)(1 - beta1)), take2 = vf_set((float)(1 - beta2));
    vf step = vf_set((float)(lr / correction1)), root = vf_set((float)(1 / sqrt(correction2)));
    vf floor = vf_set((float)eps), shrink = vf_set((float)(lr * decay));
    for (int64_t i = 0; i < n; i += VL) {
        int64_t left = n - i;
        vf gradient = vf_mul(vf_get(g + i, left), scale), old = vf_get(w + i, left);
        vf first = vf_fma(keep1, vf_get(m + i, left), vf_mul(take1, gradient));
        vf second = vf_fma(keep2, vf_get(v + i, left), vf_mul(vf_mul(take2, gradient), gradient));
        vf_put(m + i, left, first);
        vf_put(v + i, left, second);
        vf change = vf_div(vf_mul(step, first), vf_fma(vf_sqrt(second), root, floor));
        vf_put(w + i, left, vf_sub(old, vf_fma(shrink, old, change)));
    }
}
