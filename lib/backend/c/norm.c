#include "backend/c/portable.h"

#include <math.h>

void mmi_c_rmsnorm_forward(float *y, int64_t ldy, float *rstd, const float *x, int64_t ldx, const float *w, int64_t N,
                           int64_t C, float eps)
{
    for (int64_t i = 0; i < N; i++, x += ldx, y += ldy) {
        float sum = 0;
        for (int64_t c = 0; c < C; c++)
            sum += x[c] * x[c];
        float r = 1.0f / sqrtf(sum / (float)C + eps);
        if (rstd)
            rstd[i] = r;
        for (int64_t c = 0; c < C; c++)
            y[c] = w[c] * (x[c] * r);
    }
}

/* With n = x · rstd and g = dy · w: dn = g, and dx = rstd · (g - n · mean(g n)). */
void mmi_c_rmsnorm_backward(float *dx, int64_t lddx, float *dw, const float *dy, int64_t lddy, const float *x,
                            int64_t ldx, const float *w, const float *rstd, int64_t N, int64_t C)
{
    for (int64_t i = 0; i < N; i++, x += ldx, dy += lddy, dx += lddx) {
        float r = rstd[i], sum = 0;
        for (int64_t c = 0; c < C; c++)
            sum += dy[c] * w[c] * x[c];
        float slope = sum * r * r / (float)C;
        for (int64_t c = 0; c < C; c++)
            dx[c] += r * (dy[c] * w[c] - x[c] * slope);
        if (dw)
            for (int64_t c = 0; c < C; c++)
                dw[c] += dy[c] * (x[c] * r);
    }
}

void mmi_c_layernorm_forward(float *y, int64_t ldy, float *mean, float *rstd, const float *x, int64_t ldx,
                             const float *w, const float *b, int64_t N, int64_t C, float eps)
{
    for (int64_t i = 0; i < N; i++, x += ldx, y += ldy) {
        float sum = 0, squares = 0;
        for (int64_t c = 0; c < C; c++)
            sum += x[c];
        float middle = sum / (float)C;
        for (int64_t c = 0; c < C; c++)
            squares += (x[c] - middle) * (x[c] - middle);
        float r = 1.0f / sqrtf(squares / (float)C + eps);
        if (mean)
            mean[i] = middle;
        if (rstd)
            rstd[i] = r;
        for (int64_t c = 0; c < C; c++)
            y[c] = w[c] * ((x[c] - middle) * r) + b[c];
    }
}

/* With n = (x - mean) · rstd and g = dy · w: dx = rstd · (g - mean(g) - n · mean(g n)). */
void mmi_c_layernorm_backward(float *dx, int64_t lddx, float *dw, float *db, const float *dy, int64_t lddy,
                              const float *x, int64_t ldx, const float *w, const float *mean, const float *rstd,
                              int64_t N, int64_t C)
{
    for (int64_t i = 0; i < N; i++, x += ldx, dy += lddy, dx += lddx) {
        float middle = mean[i], r = rstd[i], sum = 0, product = 0;
        for (int64_t c = 0; c < C; c++) {
            sum += dy[c] * w[c];
            product += dy[c] * w[c] * (x[c] - middle);
        }
        float level = sum / (float)C, slope = product * r * r / (float)C;
        for (int64_t c = 0; c < C; c++)
            dx[c] += r * (dy[c] * w[c] - level - (x[c] - middle) * slope);
        if (dw)
            for (int64_t c = 0; c < C; c++)
                dw[c] += dy[c] * ((x[c] - middle) * r);
        if (db)
            for (int64_t c = 0; c < C; c++)
                db[c] += dy[c];
    }
}
