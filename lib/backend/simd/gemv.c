#include <stdbool.h>
#include <stddef.h>

#include "backend/simd/table.h"
#include "backend/simd/words.h"

/* Rows of W read side by side, and rows of x that meet them while they are in registers. */
#define W_ROWS 4
#define X_ROWS 3

/* Bytes below which the next rows are asked for ahead of time: the hardware is slow to see that short ones are followed
 * by others. Measured on Zen 3, from memory: rows of 1 and 2 KB 1.8 and 1.1 times faster, of 2.8 KB 1.3 times, of 5.6
 * KB 0.9 times. */
#define SHORT_ROW 4096

/* y[m, n] for m rows of x and n rows of W; m, n, dtype and round are constants wherever this is used. `ahead` is what
 * will be read next, to be asked for meanwhile, or NULL. */
static ALWAYS_INLINE void dots(float *y, int64_t ldy, const float *x, int64_t ldx, const unsigned char *w,
                               int64_t distance, const unsigned char *ahead, int32_t dtype, int32_t round, const int m,
                               const int n, int64_t K)
{
    const int64_t step = n * NUMBERS * (dtype == MM_F32 ? 4 : 2); /* bytes of W for a vector of each row */
    vf sum[X_ROWS][W_ROWS];
    UNROLL
    for (int i = 0; i < m; i++) {
        UNROLL
        for (int j = 0; j < n; j++)
            sum[i][j] = vf_zero();
    }
    for (int64_t p = 0; p < K; p += NUMBERS) {
        for (int64_t line = 0; ahead && line < step; line += 64)
            __builtin_prefetch(ahead + p / NUMBERS * step + line);
        vf weights[W_ROWS];
        UNROLL
        for (int j = 0; j < n; j++)
            weights[j] = get_weights(w + j * distance, p, K - p, dtype, round);
        UNROLL
        for (int i = 0; i < m; i++) {
            vf xs = get_rounded(x + i * ldx + p, K - p, round);
            UNROLL
            for (int j = 0; j < n; j++)
                sum[i][j] = vf_step(xs, weights[j], sum[i][j]);
        }
    }
    UNROLL
    for (int i = 0; i < m; i++) {
        UNROLL
        for (int j = 0; j < n; j++)
            y[i * ldy + j] = vf_sum(sum[i][j]);
    }
}

/* All rows of x against n rows of W, which come from memory once and then lie in the first-level cache. */
static ALWAYS_INLINE void all_rows(float *y, int64_t ldy, const float *x, int64_t ldx, const unsigned char *w,
                                   int64_t distance, const unsigned char *ahead, int32_t dtype, int32_t round,
                                   int64_t M, const int n, int64_t K)
{
    /* What is rounded on the way is slow enough for one row at a time, which is a third of the code. */
    const int rows = STEP == 1 && round != MM_F32 ? 1 : X_ROWS;
    int64_t i = 0;
    for (; i + rows <= M; i += rows)
        dots(y + i * ldy, ldy, x + i * ldx, ldx, w, distance, ahead, dtype, round, rows, n, K);
    if (rows > 1 && M - i == 2)
        dots(y + i * ldy, ldy, x + i * ldx, ldx, w, distance, ahead, dtype, round, 2, n, K);
    else if (rows > 1 && M - i == 1)
        dots(y + i * ldy, ldy, x + i * ldx, ldx, w, distance, ahead, dtype, round, 1, n, K);
}

static ALWAYS_INLINE void rows_of(float *y, int64_t ldy, const float *x, int64_t ldx, const unsigned char *w,
                                  int64_t distance, int32_t dtype, int32_t round, int64_t M, int64_t N, int64_t K)
{
    int64_t j = 0;
    for (; j + W_ROWS <= N; j += W_ROWS) {
        bool more = distance < SHORT_ROW && j + 2 * W_ROWS <= N;
        all_rows(y + j, ldy, x, ldx, w + j * distance, distance, more ? w + (j + W_ROWS) * distance : NULL, dtype,
                 round, M, W_ROWS, K);
    }
    for (; j < N; j++)
        all_rows(y + j, ldy, x, ldx, w + j * distance, distance, NULL, dtype, round, M, 1, K);
}

#if STEP == 2

void SIMD(gemv_rows_rounded)(float *y, int64_t ldy, const float *x, int64_t ldx, const void *w, int32_t dtype,
                             int64_t ldw, int64_t M, int64_t N, int64_t K, int32_t round)
{
    if (round == MM_BF16 && dtype == MM_BF16)
        rows_of(y, ldy, x, ldx, w, 2 * ldw, MM_BF16, MM_BF16, M, N, K);
    else if (round == MM_BF16 && dtype == MM_F32)
        rows_of(y, ldy, x, ldx, w, 4 * ldw, MM_F32, MM_BF16, M, N, K);
    else
        BASE(gemv_rows_rounded)(y, ldy, x, ldx, w, dtype, ldw, M, N, K, round);
}

#else

static ALWAYS_INLINE void rows_rounded(float *y, int64_t ldy, const float *x, int64_t ldx, const unsigned char *w,
                                       int32_t dtype, int64_t ldw, int32_t round, int64_t M, int64_t N, int64_t K)
{
    if (dtype == MM_BF16)
        rows_of(y, ldy, x, ldx, w, 2 * ldw, MM_BF16, round, M, N, K);
    else if (dtype == MM_F16)
        rows_of(y, ldy, x, ldx, w, 2 * ldw, MM_F16, round, M, N, K);
    else
        rows_of(y, ldy, x, ldx, w, 4 * ldw, MM_F32, round, M, N, K);
}

void SIMD(gemv_rows)(float *y, int64_t ldy, const float *x, int64_t ldx, const void *w, int32_t dtype, int64_t ldw,
                     int64_t M, int64_t N, int64_t K)
{
    rows_rounded(y, ldy, x, ldx, w, dtype, ldw, MM_F32, M, N, K);
}

void SIMD(gemv_rows_rounded)(float *y, int64_t ldy, const float *x, int64_t ldx, const void *w, int32_t dtype,
                             int64_t ldw, int64_t M, int64_t N, int64_t K, int32_t round)
{
    if (round == MM_BF16)
        rows_rounded(y, ldy, x, ldx, w, dtype, ldw, MM_BF16, M, N, K);
    else
        rows_rounded(y, ldy, x, ldx, w, dtype, ldw, MM_F16, M, N, K);
}

#endif
