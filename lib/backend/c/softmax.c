#include "backend/c/portable.h"

#include <math.h>

#include "backend/kernels.h"

void mmi_c_softmax_scaled(float *x, float lse, float a, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        x[i] = a * expf(x[i] - lse);
}

double mmi_c_softmax_weights(float *p, const float *x, float most, float a, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) {
        const float e = expf(a * (x[i] - most));
        if (p)
            p[i] = e;
        sum += (double)e;
    }
    return sum;
}

float mmi_c_softmax_tile(float *s, float *m, int64_t n)
{
    float row = mmi_c_largest(s, n);
    if (row > *m + MMI_SOFTMAX_SLACK)
        *m = row;
    float base = *m == -INFINITY ? 0 : *m;
    float sum = 0;
    for (int64_t i = 0; i < n; i++) {
        s[i] = expf(s[i] - base);
        sum += s[i];
    }
    return sum;
}
