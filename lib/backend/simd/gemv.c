#include "backend/simd/table.h"
#include "backend/simd/words.h"

/* Rows of W read side by side, and rows of x that meet them while they are in registers. */
#define W_ROWS 4
#define X_ROWS 3

/* Once for each line: what lies `ahead` of number p of a row, in those numbers that a step reads. Nothing ahead is the
 * line that is read, which costs nothing where W comes from memory. AVX2 leaves it all to the hardware: no processor
 * that has no more was measured to gain by asking. */
#define LINE 64
static ALWAYS_INLINE void ask_ahead(const unsigned char *row, int64_t p, int32_t dtype, int64_t ahead)
{
    const int64_t size = dtype == MM_F32 ? 4 : 2, at = p * size, step = NUMBERS * size;
    if (ISA_IS_AVX512 && at % LINE < step)
        for (int64_t line = 0; line < step; line += LINE)
            __builtin_prefetch(row + at + line + ahead);
}

/* y[i * ldy + j * apart] for m rows i of x and n rows j of W, `distance` bytes apart; m, n, dtype and round are
 * constants wherever this is used. */
static ALWAYS_INLINE void dots(float *y, int64_t ldy, int64_t apart, const float *x, int64_t ldx,
                               const unsigned char *w, int64_t distance, int32_t dtype, int32_t round, const int m,
                               const int n, int64_t K, int64_t ahead)
{
    vf sum[X_ROWS][W_ROWS];
    UNROLL
    for (int i = 0; i < m; i++) {
        UNROLL
        for (int j = 0; j < n; j++)
            sum[i][j] = vf_zero();
    }
    for (int64_t p = 0; p < K; p += NUMBERS) {
        vf weights[W_ROWS];
        UNROLL
        for (int j = 0; j < n; j++)
            ask_ahead(w + j * distance, p, dtype, ahead);
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
            y[i * ldy + j * apart] = vf_sum(sum[i][j]);
    }
}

/* All rows of x against n rows of W, which come from memory once and then lie in the first-level cache. */
static ALWAYS_INLINE void all_rows(float *y, int64_t ldy, int64_t apart, const float *x, int64_t ldx,
                                   const unsigned char *w, int64_t distance, int32_t dtype, int32_t round, int64_t M,
                                   const int n, int64_t K, int64_t ahead)
{
    /* What is rounded on the way is slow enough for one row at a time, and the last rows of W are few: a third of the
     * code. */
    const int rows = (STEP == 1 && round != MM_F32) || n < W_ROWS ? 1 : X_ROWS;
    int64_t i = 0;
    for (; i + rows <= M; i += rows)
        dots(y + i * ldy, ldy, apart, x + i * ldx, ldx, w, distance, dtype, round, rows, n, K, ahead);
    if (rows > 1 && M - i == 2)
        dots(y + i * ldy, ldy, apart, x + i * ldx, ldx, w, distance, dtype, round, 2, n, K, ahead);
    else if (rows > 1 && M - i == 1)
        dots(y + i * ldy, ldy, apart, x + i * ldx, ldx, w, distance, dtype, round, 1, n, K, ahead);
}

/* Rows that are read together lie far apart, each followed by the next of its own: memory answers several streams at
 * once faster than one. Measured on Zen 3, decoding with rows of 1 to 5.6 KB: 1.3 times as fast as side by side. */
static ALWAYS_INLINE void rows_of(float *y, int64_t ldy, const float *x, int64_t ldx, const unsigned char *w,
                                  int64_t distance, int32_t dtype, int32_t round, int64_t M, int64_t N, int64_t K,
                                  int64_t ahead)
{
    const int64_t run = N / W_ROWS;
    for (int64_t j = 0; j < run; j++)
        all_rows(y + j, ldy, run, x, ldx, w + j * distance, run * distance, dtype, round, M, W_ROWS, K, ahead);
    for (int64_t j = run * W_ROWS; j < N; j++)
        all_rows(y + j, ldy, 1, x, ldx, w + j * distance, distance, dtype, round, M, 1, K, ahead);
}

#if STEP == 2

void SIMD(gemv_rows_rounded)(float *y, int64_t ldy, const float *x, int64_t ldx, const void *w, int32_t dtype,
                             int64_t ldw, int64_t M, int64_t N, int64_t K, int64_t ahead, int32_t round)
{
    if (round == MM_BF16 && dtype == MM_BF16)
        rows_of(y, ldy, x, ldx, w, 2 * ldw, MM_BF16, MM_BF16, M, N, K, ahead);
    else if (round == MM_BF16 && dtype == MM_F32)
        rows_of(y, ldy, x, ldx, w, 4 * ldw, MM_F32, MM_BF16, M, N, K, ahead);
    else
        BASE(gemv_rows_rounded)(y, ldy, x, ldx, w, dtype, ldw, M, N, K, ahead, round);
}

void SIMD(gemv_row_rounded)(float *y, int64_t ldy, const float *x, int64_t ldx, const void *w, int32_t dtype,
                            int64_t ldw, int64_t M, int64_t N, int64_t K, int64_t ahead, int32_t round)
{
    (M == 1 ? SIMD(gemv_rows_rounded) : BASE(gemv_rows_rounded))(y, ldy, x, ldx, w, dtype, ldw, M, N, K, ahead, round);
}

#else

static ALWAYS_INLINE void rows_rounded(float *y, int64_t ldy, const float *x, int64_t ldx, const unsigned char *w,
                                       int32_t dtype, int64_t ldw, int32_t round, int64_t M, int64_t N, int64_t K,
                                       int64_t ahead)
{
    if (dtype == MM_BF16)
        rows_of(y, ldy, x, ldx, w, 2 * ldw, MM_BF16, round, M, N, K, ahead);
    else if (dtype == MM_F16)
        rows_of(y, ldy, x, ldx, w, 2 * ldw, MM_F16, round, M, N, K, ahead);
    else
        rows_of(y, ldy, x, ldx, w, 4 * ldw, MM_F32, round, M, N, K, ahead);
}

void SIMD(gemv_rows)(float *y, int64_t ldy, const float *x, int64_t ldx, const void *w, int32_t dtype, int64_t ldw,
                     int64_t M, int64_t N, int64_t K, int64_t ahead)
{
    rows_rounded(y, ldy, x, ldx, w, dtype, ldw, MM_F32, M, N, K, ahead);
}

/* So many numbers of x are rounded before they meet W, not anew with each of its rows: some 16 KiB of them, which
 * leaves longer rows than a layer has to the slow way. Where W has no more bits itself, products are then those of
 * float32. */
#define ROUNDED_BEFORE 4096

static void round_rows(float *to, const float *x, int64_t ldx, int64_t M, int64_t K, int32_t round)
{
    for (int64_t i = 0; i < M; i++, to += K, x += ldx)
        for (int64_t p = 0; p < K; p += VL)
            vf_put(to + p, K - p, get_rounded(x + p, K - p, round));
}

void SIMD(gemv_rows_rounded)(float *y, int64_t ldy, const float *x, int64_t ldx, const void *w, int32_t dtype,
                             int64_t ldw, int64_t M, int64_t N, int64_t K, int64_t ahead, int32_t round)
{
    if (dtype != round || K < 1 || K > ROUNDED_BEFORE) {
        if (round != MM_F32) /* one piece of code for both ways of rounding */
            rows_rounded(y, ldy, x, ldx, w, dtype, ldw, round, M, N, K, ahead);
        return;
    }
    float rounded[ROUNDED_BEFORE];
    const int64_t most = ROUNDED_BEFORE / K;
    for (int64_t i = 0; i < M; i += most) {
        const int64_t rows = M - i < most ? M - i : most;
        round_rows(rounded, x + i * ldx, ldx, rows, K, round);
        SIMD(gemv_rows)(y + i * ldy, ldy, rounded, K, w, dtype, ldw, rows, N, K, ahead);
    }
}

#endif
