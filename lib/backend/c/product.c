#include "backend/c/portable.h"

#include <string.h>

#include <minimind/view.h>

#include "base/dtype.h"

void mmi_c_gemm_tile(float *c, int64_t ldc, const float *a, int64_t ars, int64_t acs, const float *b, int64_t ldb,
                     int64_t M, int64_t N, int64_t K, int32_t accumulate)
{
    for (int64_t i = 0; i < M; i++) {
        float *row = c + i * ldc;
        if (!accumulate)
            for (int64_t j = 0; j < N; j++)
                row[j] = 0;
        for (int64_t p = 0; p < K; p++) {
            float factor = a[i * ars + p * acs];
            for (int64_t j = 0; j < N; j++)
                row[j] += factor * b[p * ldb + j];
        }
    }
}

float mmi_c_number(const void *w, int32_t dtype, int64_t i)
{
    if (dtype == MM_F32) {
        float x;
        memcpy(&x, (const unsigned char *)w + 4 * i, sizeof x);
        return x;
    }
    uint16_t bits;
    if (dtype == MM_Q8_0) {
        const unsigned char *block = (const unsigned char *)w + i / MMI_BLOCK * (2 + MMI_BLOCK);
        memcpy(&bits, block, sizeof bits);
        return (float)(int8_t)block[2 + i % MMI_BLOCK] * mmi_c_from_f16(bits);
    }
    memcpy(&bits, (const unsigned char *)w + 2 * i, sizeof bits);
    return dtype == MM_BF16 ? mmi_c_from_bf16(bits) : mmi_c_from_f16(bits);
}

void mmi_c_gemv_rows(float *y, int64_t ldy, const float *x, int64_t ldx, const void *w, int32_t dtype, int64_t ldw,
                     int64_t M, int64_t N, int64_t K, int64_t ahead)
{
    (void)ahead;
    mmi_c_gemm_rows(y, ldy, x, ldx, w, dtype, ldw, M, N, K, MM_F32);
}

void mmi_c_round_rows(float *to, const float *x, int64_t ldx, int64_t M, int64_t K, int32_t round)
{
    for (int64_t i = 0; i < M; i++)
        for (int64_t p = 0; p < K; p++)
            to[i * K + p] = mmi_c_round(x[i * ldx + p], round);
}

void mmi_c_gemm_rows(float *y, int64_t ldy, const float *x, int64_t ldx, const void *w, int32_t dtype, int64_t ldw,
                     int64_t M, int64_t N, int64_t K, int32_t round)
{
    for (int64_t j = 0; j < N; j++)
        for (int64_t i = 0; i < M; i++) {
            float sum = 0;
            for (int64_t p = 0; p < K; p++)
                sum += x[i * ldx + p] * mmi_c_round(mmi_c_number(w, dtype, j * ldw + p), round);
            y[i * ldy + j] = sum;
        }
}

void mmi_c_few_scores(float *s, int64_t lds, const float *q, const void *k, int32_t dtype, int64_t ldk, int64_t M,
                      int64_t N, int64_t D, const void *ahead)
{
    (void)ahead;
    mmi_c_gemv_rows(s, lds, q, D, k, dtype, ldk, M, N, D, 0);
}

void mmi_c_few_values(float *out, const float *s, int64_t lds, const void *v, int32_t dtype, int64_t ldv, int64_t M,
                      int64_t N, int64_t D, const void *ahead)
{
    (void)ahead;
    for (int64_t n = 0; n < N; n++)
        for (int64_t d = 0; d < D; d++) {
            float value = mmi_c_number(v, dtype, n * ldv + d);
            for (int64_t i = 0; i < M; i++)
                out[i * D + d] += s[i * lds + n] * value;
        }
}

/* Panels that lie in a first-level cache: A's rows one behind the other, B's columns side by side. */
#define DEPTH 64
#define WIDTH 64

void mmi_c_gemm_shape(int64_t *depth, int64_t *a_rows, int64_t *b_cols)
{
    *depth = DEPTH;
    *a_rows = *b_cols = WIDTH;
}

/* Floats of panels of float32, whatever is rounded: K numbers for each row or column, and one to spare. */
static int64_t panel(int64_t count, int64_t K)
{
    return count * (K + 1);
}

int64_t mmi_c_gemm_panel(int64_t count, int64_t K, int32_t round)
{
    (void)round;
    return panel(count, K);
}

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

void mmi_c_gemm_pack_a(float *to, const float *a, int64_t across, int64_t along, int64_t count, int64_t K,
                       int32_t round)
{
    for (int64_t i = 0; i < count; i++) {
        float *row = to + panel(i / WIDTH * WIDTH, K) + i % WIDTH * K;
        for (int64_t p = 0; p < K; p++)
            row[p] = mmi_c_round(a[i * across + p * along], round);
    }
}

/* Number p of column j is number j * across + p * along of b. */
static void pack_b(float *to, const void *b, int32_t dtype, int64_t across, int64_t along, int64_t count, int64_t K,
                   int32_t round)
{
    for (int64_t j = 0; j < count; j++) {
        float *column = to + panel(j / WIDTH * WIDTH, K) + j % WIDTH;
        for (int64_t p = 0; p < K; p++)
            column[p * WIDTH] = mmi_c_round(mmi_c_number(b, dtype, j * across + p * along), round);
    }
}

void mmi_c_gemm_pack_b(float *to, const float *b, int64_t across, int64_t along, int64_t count, int64_t K,
                       int32_t round)
{
    pack_b(to, b, MM_F32, across, along, count, K, round);
}

void mmi_c_gemm_pack_bf16(float *to, const void *w, int64_t across, int64_t count, int64_t K, int32_t round)
{
    pack_b(to, w, MM_BF16, across, 1, count, K, round);
}

void mmi_c_gemm_multiply(float *c, int64_t ldc, const float *a, int64_t ars, const float *b, int64_t M, int64_t N,
                         int64_t K, const float *from, int32_t round)
{
    (void)round;
    if (from && from != c)
        for (int64_t i = 0; i < M; i++)
            memcpy(c + i * ldc, from + i * ldc, (size_t)N * sizeof *c);
    for (int64_t j = 0; j < N; j += WIDTH)
        for (int64_t i = 0; i < M; i += WIDTH) {
            const float *rows = ars > 0 ? a + i * ars : a + panel(i, K);
            mmi_c_gemm_tile(c + i * ldc + j, ldc, rows, ars > 0 ? ars : K, 1, b + panel(j, K), WIDTH,
                            least(M - i, WIDTH), least(N - j, WIDTH), K, from != NULL);
        }
}
