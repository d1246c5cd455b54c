#include "backend/c/portable.h"

#include <string.h>

#include <minimind/view.h>

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

static float element(const void *w, int32_t dtype, int64_t i)
{
    if (dtype == MM_F32) {
        float x;
        memcpy(&x, (const unsigned char *)w + 4 * i, sizeof x);
        return x;
    }
    uint16_t bits;
    memcpy(&bits, (const unsigned char *)w + 2 * i, sizeof bits);
    return dtype == MM_BF16 ? mmi_c_from_bf16(bits) : mmi_c_from_f16(bits);
}

void mmi_c_gemv_rows_rounded(float *y, int64_t ldy, const float *x, int64_t ldx, const void *w, int32_t dtype,
                             int64_t ldw, int64_t M, int64_t N, int64_t K, int32_t round)
{
    for (int64_t j = 0; j < N; j++)
        for (int64_t i = 0; i < M; i++) {
            float sum = 0;
            for (int64_t p = 0; p < K; p++)
                sum += mmi_c_round(x[i * ldx + p], round) * mmi_c_round(element(w, dtype, j * ldw + p), round);
            y[i * ldy + j] = sum;
        }
}

void mmi_c_gemv_rows(float *y, int64_t ldy, const float *x, int64_t ldx, const void *w, int32_t dtype, int64_t ldw,
                     int64_t M, int64_t N, int64_t K)
{
    mmi_c_gemv_rows_rounded(y, ldy, x, ldx, w, dtype, ldw, M, N, K, MM_F32);
}

/* Blocks of A and B that lie in a first-level cache, their rows made contiguous. */
#define BLOCK_M 64
#define BLOCK_K 64
#define BLOCK_N 64

int64_t mmi_c_gemm_scratch(void)
{
    return BLOCK_K * BLOCK_N + BLOCK_M * BLOCK_K;
}

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* to [rows, cols], `ld` apart, = what lies at from + r * rs + s * cs, rounded */
static void copy_block(float *to, int64_t ld, const float *from, int64_t rs, int64_t cs, int64_t rows, int64_t cols,
                       int32_t round)
{
    for (int64_t r = 0; r < rows; r++)
        for (int64_t s = 0; s < cols; s++)
            to[r * ld + s] = mmi_c_round(from[r * rs + s * cs], round);
}

void mmi_c_gemm_slice_rounded(float *c, int64_t ldc, const float *a, int64_t ars, int64_t acs, const float *b,
                              int64_t brs, int64_t bcs, int64_t M, int64_t N, int64_t K, int32_t accumulate,
                              float *scratch, int32_t round)
{
    float *block_a = scratch + BLOCK_K * BLOCK_N;
    if (K == 0)
        mmi_c_gemm_tile(c, ldc, a, ars, acs, b, 0, M, N, 0, accumulate);
    for (int64_t j = 0; j < N; j += BLOCK_N)
        for (int64_t p = 0; p < K; p += BLOCK_K) {
            int64_t n = least(N - j, BLOCK_N), k = least(K - p, BLOCK_K);
            copy_block(scratch, BLOCK_N, b + p * brs + j * bcs, brs, bcs, k, n, round);
            for (int64_t i = 0; i < M; i += BLOCK_M) {
                int64_t m = least(M - i, BLOCK_M);
                copy_block(block_a, BLOCK_K, a + i * ars + p * acs, ars, acs, m, k, round);
                mmi_c_gemm_tile(c + i * ldc + j, ldc, block_a, BLOCK_K, 1, scratch, BLOCK_N, m, n, k,
                                accumulate || p > 0);
            }
        }
}

void mmi_c_gemm_slice(float *c, int64_t ldc, const float *a, int64_t ars, int64_t acs, const float *b, int64_t brs,
                      int64_t bcs, int64_t M, int64_t N, int64_t K, int32_t accumulate, float *scratch)
{
    mmi_c_gemm_slice_rounded(c, ldc, a, ars, acs, b, brs, bcs, M, N, K, accumulate, scratch, MM_F32);
}
