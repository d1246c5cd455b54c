#include "backend/simd/table.h"

void SIMD(add)(float *y, const float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i += VL)
        vf_put(y + i, n - i, vf_add(vf_get(y + i, n - i), vf_get(x + i, n - i)));
}

void SIMD(axpy)(float *y, float a, const float *x, int64_t n)
{
    vf factor = vf_set(a);
    for (int64_t i = 0; i < n; i += VL)
        vf_put(y + i, n - i, vf_fma(factor, vf_get(x + i, n - i), vf_get(y + i, n - i)));
}

void SIMD(scale)(float *y, float a, int64_t n)
{
    vf factor = vf_set(a);
    for (int64_t i = 0; i < n; i += VL)
        vf_put(y + i, n - i, vf_mul(factor, vf_get(y + i, n - i)));
}

double SIMD(sum_squares)(const float *x, int64_t n)
{
    vd even = vd_zero(), odd = vd_zero();
    int64_t i = 0;
    for (; i + 2 * VL <= n; i += 2 * VL) {
        even = vd_add_square(even, vf_load(x + i));
        odd = vd_add_square(odd, vf_load(x + i + VL));
    }
    for (; i < n; i += VL)
        even = vd_add_square(even, vf_get(x + i, n - i));
    return vd_sum(even) + vd_sum(odd);
}

float SIMD(dot)(const float *a, const float *b, int64_t n)
{
    vf s0 = vf_zero(), s1 = vf_zero(), s2 = vf_zero(), s3 = vf_zero();
    int64_t i = 0;
    for (; i + 4 * VL <= n; i += 4 * VL) {
        s0 = vf_fma(vf_load(a + i), vf_load(b + i), s0);
        s1 = vf_fma(vf_load(a + i + VL), vf_load(b + i + VL), s1);
        s2 = vf_fma(vf_load(a + i + 2 * VL), vf_load(b + i + 2 * VL), s2);
        s3 = vf_fma(vf_load(a + i + 3 * VL), vf_load(b + i + 3 * VL), s3);
    }
    for (; i < n; i += VL)
        s0 = vf_fma(vf_get(a + i, n - i), vf_get(b + i, n - i), s0);
    return vf_sum(vf_add(vf_add(s0, s1), vf_add(s2, s3)));
}

/* One VL × VL block, or what there is of it. */
static void transpose_block(float *y, int64_t ldy, const float *x, int64_t ldx, int64_t rows, int64_t cols)
{
    vf r[VL];
    UNROLL
    for (int i = 0; i < VL; i++)
        r[i] = i < rows ? vf_get(x + i * ldx, cols) : vf_zero();
    vf_transpose(r);
    UNROLL
    for (int i = 0; i < VL; i++)
        if (i < cols)
            vf_put(y + i * ldy, rows, r[i]);
}

void SIMD(transpose)(float *y, int64_t ldy, const float *x, int64_t ldx, int64_t rows, int64_t cols)
{
    for (int64_t j = 0; j < cols; j += VL)
        for (int64_t i = 0; i < rows; i += VL)
            transpose_block(y + j * ldy + i, ldy, x + i * ldx + j, ldx, rows - i, cols - j);
}
