#include <math.h>

#include "backend/simd/table.h"

static float sum_of_squares(const float *x, int64_t n)
{
    return SIMD(dot)(x, x, n);
}

void SIMD(rmsnorm_forward)(float *y, int64_t ldy, float *rstd, const float *x, int64_t ldx, const float *w, int64_t N,
                           int64_t C, float eps)
{
    for (int64_t i = 0; i < N; i++, x += ldx, y += ldy) {
        float r = 1.0f / sqrtf(sum_of_squares(x, C) / (float)C + eps);
        if (rstd)
            rstd[i] = r;
        vf factor = vf_set(r);
        for (int64_t c = 0; c < C; c += VL) {
            vf n = vf_mul(vf_get(x + c, C - c), factor);
            vf_put(y + c, C - c, vf_mul(vf_get(w + c, C - c), n));
        }
    }
}

/* Σ a b c */
static float triple(const float *a, const float *b, const float *c, int64_t n)
{
    vf s0 = vf_zero(), s1 = vf_zero();
    int64_t i = 0;
    for (; i + 2 * VL <= n; i += 2 * VL) {
        s0 = vf_fma(vf_mul(vf_load(a + i), vf_load(b + i)), vf_load(c + i), s0);
        s1 = vf_fma(vf_mul(vf_load(a + i + VL), vf_load(b + i + VL)), vf_load(c + i + VL), s1);
    }
    for (; i < n; i += VL)
        s0 = vf_fma(vf_mul(vf_get(a + i, n - i), vf_get(b + i, n - i)), vf_get(c + i, n - i), s0);
    return vf_sum(vf_add(s0, s1));
}

/* One row: dx += r · dy · w - (r · slope) · x, and dw += dy · x · r. */
static ALWAYS_INLINE void rms_row(float *dx, float *dw, const float *dy, const float *x, const float *w, float r,
                                  float slope, int64_t C)
{
    vf factor = vf_set(r), back = vf_set(r * slope);
    for (int64_t c = 0; c < C; c += VL) {
        int64_t left = C - c;
        vf xs = vf_get(x + c, left), g = vf_mul(vf_get(dy + c, left), factor);
        vf d = vf_fma(g, vf_get(w + c, left), vf_get(dx + c, left));
        vf_put(dx + c, left, vf_fnma(xs, back, d));
        if (dw)
            vf_put(dw + c, left, vf_fma(g, xs, vf_get(dw + c, left)));
    }
}

void SIMD(rmsnorm_backward)(float *dx, int64_t lddx, float *dw, const float *dy, int64_t lddy, const float *x,
                            int64_t ldx, const float *w, const float *rstd, int64_t N, int64_t C)
{
    for (int64_t i = 0; i < N; i++, x += ldx, dy += lddy, dx += lddx) {
        float r = rstd[i], slope = triple(dy, w, x, C) * r * r / (float)C;
        if (dw)
            rms_row(dx, dw, dy, x, w, r, slope, C);
        else
            rms_row(dx, NULL, dy, x, w, r, slope, C);
    }
}

static float sum(const float *x, int64_t n)
{
    vf s0 = vf_zero(), s1 = vf_zero();
    int64_t i = 0;
    for (; i + 2 * VL <= n; i += 2 * VL) {
        s0 = vf_add(s0, vf_load(x + i));
        s1 = vf_add(s1, vf_load(x + i + VL));
    }
    for (; i < n; i += VL)
        s0 = vf_add(s0, vf_get(x + i, n - i));
    return vf_sum(vf_add(s0, s1));
}

/* Σ (x - middle)² */
static float spread(const float *x, float middle, int64_t n)
{
    vf m = vf_set(middle), s = vf_zero();
    for (int64_t i = 0; i < n; i += VL) {
        vf d = vf_sub(vf_get_or(x + i, n - i, m), m);
        s = vf_fma(d, d, s);
    }
    return vf_sum(s);
}

void SIMD(layernorm_forward)(float *y, int64_t ldy, float *mean, float *rstd, const float *x, int64_t ldx,
                             const float *w, const float *b, int64_t N, int64_t C, float eps)
{
    for (int64_t i = 0; i < N; i++, x += ldx, y += ldy) {
        float middle = sum(x, C) / (float)C;
        float r = 1.0f / sqrtf(spread(x, middle, C) / (float)C + eps);
        if (mean)
            mean[i] = middle;
        if (rstd)
            rstd[i] = r;
        vf m = vf_set(middle), factor = vf_set(r);
        for (int64_t c = 0; c < C; c += VL) {
            vf n = vf_mul(vf_sub(vf_get(x + c, C - c), m), factor);
            vf_put(y + c, C - c, vf_fma(vf_get(w + c, C - c), n, vf_get(b + c, C - c)));
        }
    }
}

/* dx += r · (dy · w - mean(dy · w) - (x - mean) · slope) */
static void layer_dx(float *dx, const float *dy, const float *x, const float *w, float mean, float r, int64_t C)
{
    vf m = vf_set(mean), s = vf_zero(), product = vf_zero();
    for (int64_t c = 0; c < C; c += VL) {
        vf g = vf_mul(vf_get(dy + c, C - c), vf_get(w + c, C - c));
        s = vf_add(s, g);
        product = vf_fma(g, vf_sub(vf_get_or(x + c, C - c, m), m), product);
    }
    vf level = vf_set(vf_sum(s) / (float)C), slope = vf_set(vf_sum(product) * r * r / (float)C), factor = vf_set(r);
    for (int64_t c = 0; c < C; c += VL) {
        vf g = vf_sub(vf_mul(vf_get(dy + c, C - c), vf_get(w + c, C - c)), level);
        vf d = vf_fnma(vf_sub(vf_get(x + c, C - c), m), slope, g);
        vf_put(dx + c, C - c, vf_fma(factor, d, vf_get(dx + c, C - c)));
    }
}

void SIMD(layernorm_backward)(float *dx, int64_t lddx, float *dw, float *db, const float *dy, int64_t lddy,
                              const float *x, int64_t ldx, const float *w, const float *mean, const float *rstd,
                              int64_t N, int64_t C)
{
    for (int64_t i = 0; i < N; i++, x += ldx, dy += lddy, dx += lddx) {
        layer_dx(dx, dy, x, w, mean[i], rstd[i], C);
        vf m = vf_set(mean[i]), factor = vf_set(rstd[i]);
        for (int64_t c = 0; c < C && dw; c += VL) {
            vf n = vf_mul(vf_sub(vf_get(x + c, C - c), m), factor);
            vf_put(dw + c, C - c, vf_fma(vf_get(dy + c, C - c), n, vf_get(dw + c, C - c)));
        }
        if (db)
            SIMD(add)(db, dy, C);
    }
}
