#include "backend/c/portable.h"

#include <math.h>

void mmi_c_adamw(float *w, float *m, float *v, const float *g, int64_t n, double grad_scale, double lr, double beta1,
                 double beta2, double eps, double decay, double correction1, double correction2)
{
    for (int64_t i = 0; i < n; i++) {
        double gradient = g[i] * grad_scale;
        double first = beta1 * m[i] + (1 - beta1) * gradient;
        double second = beta2 * v[i] + (1 - beta2) * gradient * gradient;
        double decayed = w[i] * (1 - lr * decay);
        m[i] = (float)first;
        v[i] = (float)second;
        w[i] = (float)(decayed - lr * (first / correction1) / (sqrt(second / correction2) + eps));
    }
}
