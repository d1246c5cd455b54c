#include "backend/simd/table.h"

void SIMD(rope)(float *x, const float *cos, const float *sin, int64_t n_heads, int64_t D, int32_t inverse)
{
    int64_t half = D / 2;
    vf sign = vf_set(inverse ? -1.0f : 1.0f);
    for (int64_t j = 0; j < half; j += VL) {
        int64_t left = half - j;
        vf c = vf_get(cos + j, left), s = vf_mul(vf_get(sin + j, left), sign);
        for (int64_t h = 0; h < n_heads; h++) {
            float *low = x + h * D + j, *high = low + half;
            vf a = vf_get(low, left), b = vf_get(high, left);
            vf_put(low, left, vf_fnma(b, s, vf_mul(a, c)));
            vf_put(high, left, vf_fma(a, s, vf_mul(b, c)));
        }
    }
}
