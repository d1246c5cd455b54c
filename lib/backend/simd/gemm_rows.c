/* More rows of x than a few against W as it lies: too many to wait for memory alone, too few to lay W out anew. */
#include <stdbool.h>

#include "backend/simd/table.h"
#include "backend/simd/words.h"

#define LANES (STEP == 2 ? MM_BF16 : MM_F32) /* what both operands are when they meet */

/* Numbers of K at a time: four rows of W are then half of a first level of cache while all of x meets them. (Eight rows
 * of 512 numbers at a time, as many bytes, are slower by a fifth: measured on Emerald Rapids.) */
#define PART 1024

#define LINE 64            /* bytes */
#define ROUNDED_AHEAD 4096 /* bytes: how far ahead W is asked for where it is rounded */

#if STEP == 2
#define WIDEN BASE(widen)
#else
#define WIDEN SIMD(widen)
#endif

/* Four rows of W, with the first in place of those that are missing, against some of x. */
typedef struct tile {
    float *y;
    int64_t ldy;
    const float *x; /* as prepared */
    int64_t ldx;
    const void *w[W_ROWS];
    int64_t n, K;      /* rows of W that are wanted, and numbers of each row */
    vf *sums;          /* of the parts of K before this one, and for the next */
    bool first, last;  /* parts of K */
    const char *ahead; /* what is read next */
    int64_t ahead_step;
} tile;

static ALWAYS_INLINE void add_step(vf sum[X_ROWS][W_ROWS], const tile *t, const int m, int64_t p, int64_t left)
{
    vf weights[W_ROWS];
    UNROLL
    for (int j = 0; j < W_ROWS; j++)
        weights[j] = get_weights(t->w[j], p, left, LANES, LANES);
    UNROLL
    for (int i = 0; i < m; i++) {
        vf xs = get_weights(t->x + i * t->ldx, p, left, LANES, LANES);
        UNROLL
        for (int j = 0; j < W_ROWS; j++)
            sum[i][j] = vf_step(xs, weights[j], sum[i][j]);
    }
}

static int64_t tiles_of(int64_t M)
{
    return M < X_ROWS - 1 ? M : (M + X_ROWS - 1) / X_ROWS;
}

static NOINLINE void put(const tile *t, float (*sums)[W_ROWS], int m)
{
    for (int i = 0; i < m; i++)
        memcpy(t->y + i * t->ldy, sums[i], (size_t)t->n * sizeof(float));
}

static ALWAYS_INLINE void multiply(const tile *t, const int m)
{
    vf sum[X_ROWS][W_ROWS];
    UNROLL
    for (int i = 0; i < m; i++) {
        UNROLL
        for (int j = 0; j < W_ROWS; j++)
            sum[i][j] = t->first ? vf_zero() : t->sums[i * W_ROWS + j];
    }
    int64_t p = 0;
    const char *ahead = t->ahead;
    for (; p + NUMBERS <= t->K; p += NUMBERS, ahead += t->ahead_step) {
        for (int64_t line = 0; line < t->ahead_step; line += LINE)
            __builtin_prefetch(ahead + line, 0, 2);
        add_step(sum, t, m, p, NUMBERS);
    }
    if (p < t->K)
        add_step(sum, t, m, p, t->K - p);
    if (!t->last) {
        UNROLL
        for (int i = 0; i < m * W_ROWS; i++)
            t->sums[i] = sum[i / W_ROWS][i % W_ROWS];
        return;
    }
    float all[X_ROWS][W_ROWS];
    UNROLL
    for (int i = 0; i < m; i++)
        vf_sums(all[i], sum[i]);
    put(t, all, m);
}

static NOINLINE void multiply_most(const tile *t)
{
    multiply(t, X_ROWS);
}

static NOINLINE void multiply_fewer(const tile *t)
{
    multiply(t, X_ROWS - 1);
}

static NOINLINE void multiply_one(const tile *t)
{
    multiply(t, 1);
}

/* Every row of x: as many at a time as a tile takes, or one less, so that none is left over; of five by four, the
 * second three begin with one that was there already. Fewer come one by one. */
static NOINLINE void multiply_rows(const tile *all, int64_t M)
{
    const int64_t count = tiles_of(M), fewer = count * X_ROWS - M;
    tile t = *all;
    for (int64_t g = 0, i = 0; g < count; g++) {
        const int64_t rows = M < X_ROWS - 1 ? 1 : g + fewer < count ? X_ROWS : X_ROWS - 1;
        i = least(i, M - rows);
        t.y = all->y + i * all->ldy;
        t.x = all->x + i * all->ldx;
        t.sums = all->sums + g * X_ROWS * W_ROWS;
        (rows == 1 ? multiply_one : rows == X_ROWS ? multiply_most : multiply_fewer)(&t);
        i += rows;
        t.ahead += t.K / NUMBERS * t.ahead_step;
    }
}

/* Numbers as lanes of what they are rounded to; `to` may be where they are. `round` is a constant. */
static ALWAYS_INLINE void round_to(float *to, const float *x, int64_t K, int32_t round, int64_t ahead)
{
    int64_t p = 0;
    for (; p + NUMBERS <= K; p += NUMBERS) {
        for (int64_t line = 0; line < NUMBERS * (int64_t)sizeof(float); line += LINE)
            __builtin_prefetch((const char *)(x + p) + line + ahead);
        vf_store(to + p / STEP, get_rounded(x + p, NUMBERS, round));
    }
    if (p < K) {
        const vf rest = get_rounded(x + p, K - p, round);
        memcpy(to + p / STEP, &rest, (size_t)(K - p) * sizeof(float) / STEP);
    }
}

static NOINLINE void round_line(float *to, const float *x, int64_t K, int32_t round, int64_t ahead)
{
    if (STEP == 1 && round == MM_F16)
        round_to(to, x, K, MM_F16, ahead);
    else
        round_to(to, x, K, MM_BF16, ahead);
}

/* Whether W's numbers are lanes as they lie. */
static bool as_lanes(int32_t dtype, int32_t round)
{
    return dtype == LANES && (STEP == 2 || round == MM_F32);
}

/* K numbers of a row of W as lanes, made in `room` if they are not. */
static NOINLINE const void *lanes_of(float *room, const void *w, int32_t dtype, int64_t K, int32_t round)
{
    if (as_lanes(dtype, round))
        return w;
    if (dtype != MM_F32)
        WIDEN(room, w, dtype, K);
    if (dtype != round && round != MM_F32)
        round_line(room, dtype == MM_F32 ? w : room, K, round, dtype == MM_F32 ? ROUNDED_AHEAD : 0);
    return room;
}

void SIMD(round_rows)(float *to, const float *x, int64_t ldx, int64_t M, int64_t K, int32_t round)
{
    OTHERWISE(round_rows, to, x, ldx, M, K, round)
    for (int64_t i = 0; i < M; i++)
        round_line(to + i * K, x + i * ldx, K, round, 0);
}

void SIMD(gemm_rows)(float *y, int64_t ldy, const float *x, int64_t ldx, const void *w, int32_t dtype, int64_t ldw,
                     int64_t M, int64_t N, int64_t K, int32_t round)
{
    OTHERWISE(gemm_rows, y, ldy, x, ldx, w, dtype, ldw, M, N, K, round)
    if (M < 1)
        return;
    const int64_t size = dtype == MM_F32 ? 4 : 2;
    const int64_t asked = tiles_of(M) * LINE; /* with each step, so that all of the next rows will have been */
    _Alignas(LINE) float room[W_ROWS][PART];
    vf sums[(MMI_MOST_ROWS + X_ROWS) * W_ROWS];
    for (int64_t j = 0; j < N; j += W_ROWS) {
        const unsigned char *rows = (const unsigned char *)w + j * ldw * size;
        for (int64_t k = 0; k == 0 || k < K; k += PART) {
            tile t = { .y = y + j,
                       .ldy = ldy,
                       .x = x + k / STEP,
                       .ldx = ldx,
                       .n = least(W_ROWS, N - j),
                       .K = least(PART, K - k),
                       .sums = sums,
                       .first = k == 0,
                       .last = k + PART >= K,
                       .ahead = (const char *)rows + W_ROWS * (ldw + k) * size,
                       .ahead_step = (W_ROWS * NUMBERS * size + asked - 1) / asked * LINE };
            for (int64_t i = 0; i < W_ROWS; i++)
                t.w[i] = i < t.n ? lanes_of(room[i], rows + (i * ldw + k) * size, dtype, t.K, round) : t.w[0];
            multiply_rows(&t, M);
        }
    }
}
