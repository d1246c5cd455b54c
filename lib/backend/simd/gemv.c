#include "backend/simd/table.h"
#include "backend/simd/words.h"

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

/* What is left of `count` rows, `distance` bytes apart, as many whole vectors with zeros at their ends. */
static NOINLINE void rest_of(unsigned char *to, int64_t width, const unsigned char *from, int64_t distance,
                             int64_t count, int64_t bytes)
{
    for (int64_t i = 0; i < count; i++, to += width, from += distance) {
        memset(to, 0, (size_t)width);
        memcpy(to, from, (size_t)bytes);
    }
}

/* y[i * ldy + j * apart] for m rows i of x and n rows j of W, `distance` bytes apart; m, n and dtype are constants
 * wherever this is used. In words both are rounded to them. */
static ALWAYS_INLINE void dots(float *y, int64_t ldy, int64_t apart, const float *x, int64_t ldx,
                               const unsigned char *w, int64_t distance, int32_t dtype, const int m, const int n,
                               int64_t K, int64_t ahead)
{
    const int64_t size = dtype == MM_F32 ? 4 : 2, rest = K % NUMBERS;
    float x_rest[X_ROWS * NUMBERS];
    unsigned char w_rest[W_ROWS * NUMBERS * sizeof(float)];
    vf sum[X_ROWS][W_ROWS];
    UNROLL
    for (int i = 0; i < m; i++) {
        UNROLL
        for (int j = 0; j < n; j++)
            sum[i][j] = vf_zero();
    }
    for (int64_t left = K - rest;; left = NUMBERS) {
        for (int64_t p = 0; p < left; p += NUMBERS) {
            vf weights[W_ROWS];
            UNROLL
            for (int j = 0; j < n; j++)
                ask_ahead(w + j * distance, p, dtype, ahead);
            UNROLL
            for (int j = 0; j < n; j++)
                weights[j] = get_weights(w + j * distance, p, NUMBERS, dtype, STEP == 2 ? MM_BF16 : MM_F32);
            UNROLL
            for (int i = 0; i < m; i++) {
                vf xs = get_rounded(x + i * ldx + p, NUMBERS, MM_F32);
                UNROLL
                for (int j = 0; j < n; j++)
                    sum[i][j] = vf_step(xs, weights[j], sum[i][j]);
            }
        }
        if (rest == 0 || w == w_rest)
            break;
        rest_of((unsigned char *)x_rest, sizeof x_rest / X_ROWS, (const unsigned char *)(x + left), ldx * 4, m,
                rest * 4);
        rest_of(w_rest, NUMBERS * size, w + left * size, distance, n, rest * size);
        x = x_rest;
        ldx = NUMBERS;
        w = w_rest;
        distance = NUMBERS * size;
        ahead = 0;
    }
    UNROLL
    for (int i = 0; i < m; i++) {
        float all[W_ROWS];
        if (n == W_ROWS)
            vf_sums(all, sum[i]);
        UNROLL
        for (int j = 0; j < n; j++)
            y[i * ldy + j * apart] = n == W_ROWS ? all[j] : vf_sum(sum[i][j]);
    }
}

/* All rows of x against n rows of W, which come from memory once and then lie in the first-level cache. */
static ALWAYS_INLINE void all_rows(float *y, int64_t ldy, int64_t apart, const float *x, int64_t ldx,
                                   const unsigned char *w, int64_t distance, int32_t dtype, int64_t M, const int n,
                                   int64_t K, int64_t ahead)
{
    /* The last rows of W are few, and what rounds x on the way is for a single row: less code. */
    const int rows = STEP == 2 || n < W_ROWS ? 1 : X_ROWS;
    int64_t i = 0;
    for (; i + rows <= M && (rows < 4 || M - i != 5); i += rows) /* five are three and two */
        dots(y + i * ldy, ldy, apart, x + i * ldx, ldx, w, distance, dtype, rows, n, K, ahead);
    if (rows > 3 && M - i >= 3) {
        dots(y + i * ldy, ldy, apart, x + i * ldx, ldx, w, distance, dtype, 3, n, K, ahead);
        i += 3;
    }
    if (rows > 1 && M - i == 2)
        dots(y + i * ldy, ldy, apart, x + i * ldx, ldx, w, distance, dtype, 2, n, K, ahead);
    else if (rows > 1 && M - i == 1)
        dots(y + i * ldy, ldy, apart, x + i * ldx, ldx, w, distance, dtype, 1, n, K, ahead);
}

/* Rows that are read together lie far apart, each followed by the next of its own: memory answers several streams at
 * once faster than one. Measured on Zen 3, decoding with rows of 1 to 5.6 KB: 1.3 times as fast as side by side. */
static ALWAYS_INLINE void rows_of(float *y, int64_t ldy, const float *x, int64_t ldx, const unsigned char *w,
                                  int64_t distance, int32_t dtype, int64_t M, int64_t N, int64_t K, int64_t ahead)
{
    const int64_t run = N / W_ROWS;
    for (int64_t j = 0; j < run; j++)
        all_rows(y + j, ldy, run, x, ldx, w + j * distance, run * distance, dtype, M, W_ROWS, K, ahead);
    for (int64_t j = run * W_ROWS; j < N; j++)
        all_rows(y + j, ldy, 1, x, ldx, w + j * distance, distance, dtype, M, 1, K, ahead);
}

#if STEP == 2

void SIMD(gemv_row_rounded)(float *y, const float *x, const void *w, int32_t dtype, int64_t ldw, int64_t N, int64_t K,
                            int64_t ahead)
{
    if (dtype == MM_BF16)
        rows_of(y, N, x, K, w, 2 * ldw, MM_BF16, 1, N, K, ahead);
    else
        rows_of(y, N, x, K, w, 4 * ldw, MM_F32, 1, N, K, ahead);
}

#else

void SIMD(gemv_rows)(float *y, int64_t ldy, const float *x, int64_t ldx, const void *w, int32_t dtype, int64_t ldw,
                     int64_t M, int64_t N, int64_t K, int64_t ahead)
{
    if (dtype == MM_BF16)
        rows_of(y, ldy, x, ldx, w, 2 * ldw, MM_BF16, M, N, K, ahead);
    else if (dtype == MM_F16)
        rows_of(y, ldy, x, ldx, w, 2 * ldw, MM_F16, M, N, K, ahead);
    else
        rows_of(y, ldy, x, ldx, w, 4 * ldw, MM_F32, M, N, K, ahead);
}

#endif
