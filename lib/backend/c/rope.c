#include "backend/c/portable.h"

void mmi_c_rope(float *x, const float *cos, const float *sin, int64_t n_heads, int64_t D, int32_t inverse)
{
    int64_t half = D / 2;
    float sign = inverse ? -1.0f : 1.0f;
    for (int64_t h = 0; h < n_heads; h++, x += D)
        for (int64_t j = 0; j < half; j++) {
            float a = x[j], b = x[j + half], s = sign * sin[j];
            x[j] = a * cos[j] - b * s;
            x[j + half] = b * cos[j] + a * s;
        }
}
