#include "backend/c/portable.h"

#include <math.h>

float mmi_c_largest(const float *x, int64_t n)
{
    float m = -INFINITY;
    for (int64_t i = 0; i < n; i++)
        m = x[i] > m ? x[i] : m;
    return m;
}

double mmi_c_weigh_from(const float *p, const float *x, float least, int64_t n, int64_t *count)
{
    double sum = 0;
    *count = 0;
    for (int64_t i = 0; i < n; i++) { /* without branches on what can't be foreseen */
        int64_t kept = x[i] >= least;
        sum += kept ? (double)p[i] : 0;
        *count += kept;
    }
    return sum;
}

double mmi_c_keep_from(float *p, const float *x, float least, float least_p, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) {
        p[i] = ((x[i] >= least) & (p[i] >= least_p)) ? p[i] : 0;
        sum += (double)p[i];
    }
    return sum;
}

int64_t mmi_c_find(int32_t *at, const float *x, float low, float high, int64_t n, int64_t most)
{
    int64_t count = 0;
    for (int64_t i = 0; i < n && count <= most; i++) {
        at[count] = (int32_t)i;
        count += (x[i] >= low) & (x[i] <= high);
    }
    return count;
}
