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

void mmi_c_gemv_rows(float *y, int64_t ldy, const float *x, int64_t ldx, const void *w, int32_t dtype, int64_t ldw,
                     int64_t M, int64_t N, int64_t K)
{
    for (int64_t j = 0; j < N; j++)
        for (int64_t i = 0; i < M; i++) {
            float sum = 0;
            for (int64_t p = 0; p < K; p++)
                sum += x[i * ldx + p] * element(w, dtype, j * ldw + p);
            y[i * ldy + j] = sum;
        }
}

/* A block of B that lies in a first-level cache, its rows made contiguous. */
#define BLOCK_K 64
#define BLOCK_N 64

int64_t mmi_c_gemm_scratch(void)
{
    return BLOCK_K * BLOCK_N;
}

void mmi_c_gemm_slice(float *c, int64_t ldc, const float *a, int64_t ars, int64_t acs, const float *b, int64_t brs,
                      int64_t bcs, int64_t M, int64_t N, int64_t K, int32_t accumulate, float *scratch)
{
    if (K == 0)
        mmi_c_gemm_tile(c, ldc, a, ars, acs, b, 0, M, N, 0, accumulate);
    for (int64_t j = 0; j < N; j += BLOCK_N) {
        int64_t n = N - j < BLOCK_N ? N - j : BLOCK_N;
        for (int64_t p = 0; p < K; p += BLOCK_K) {
            int64_t k = K - p < BLOCK_K ? K - p : BLOCK_K;
            for (int64_t r = 0; r < k; r++)
                for (int64_t s = 0; s < n; s++)
                    scratch[r * BLOCK_N + s] = b[(p + r) * brs + (j + s) * bcs];
            mmi_c_gemm_tile(c + j, ldc, a + p * acs, ars, acs, scratch, BLOCK_N, M, n, k, accumulate || p > 0);
        }
    }
}
