#include "backend/simd/block.h"
#include "backend/simd/table.h"
#include "backend/simd/words.h"

/* Large products in panels. A block of C stays in registers along K; a panel of B (BLOCK_K × TILE_COLS) in the first
 * level, a block of A (BLOCK_M × BLOCK_K) in the second. Panels hold what block_multiply() reads in the order in which
 * it does. A is read in place where its rows are contiguous and not rounded, which is as fast. */
#define BLOCK_K 512
#define BLOCK_M (16 * TILE_ROWS)

#define LINE 64 /* bytes */

void SIMD(gemm_shape)(int64_t *depth, int64_t *a_rows, int64_t *b_cols)
{
    *depth = BLOCK_K;
    *a_rows = TILE_ROWS;
    *b_cols = TILE_COLS;
}

/* Of K numbers. */
static int64_t steps_of(int64_t K)
{
    return (K + STEP - 1) / STEP;
}

/* A float, or a word of two numbers, for each step, and a step to spare. */
static int64_t panel_floats(int64_t count, int64_t K)
{
    return count * (steps_of(K) + 1);
}

/* Rows of `from` that are copied into all their panels before the next ones: enough to use a cache line of every panel
 * well, few enough for the lines to stay. */
#define ROWS_AT_ONCE 8

/* How far ahead of what is laid out the next is asked for: in rows that are turned, and in rows that are copied. */
#define BYTES_AHEAD (4 * LINE)
#define ROWS_AHEAD (2 * ROWS_AT_ONCE)

/* Ask for so many bytes of each row ahead of time: the stretches are too short for the hardware to see them coming, and
 * a core waits for a few lines only, so they are asked for a few at a time. */
static ALWAYS_INLINE void fetch(const void *from, int64_t distance, int64_t rows, int64_t bytes)
{
    for (int64_t i = 0; i < rows; i++)
        for (int64_t at = 0; at < bytes; at += LINE)
            __builtin_prefetch((const unsigned char *)from + i * distance + at);
}

/* to[p * step + i] = number i * distance + p of `from` for i < count (at most VL) and p < K, 0 for count ≤ i < VL,
 * rounded to `round`; in words, p counts pairs of them. Writes VL lanes for each p, in the order of p. Near the end it
 * asks for the beginning of `next_count` rows at `then`, which will be turned next. */
static ALWAYS_INLINE void turn_rows(float *to, int64_t step, const void *from, int32_t dtype, int64_t distance,
                                    int64_t count, int64_t K, int32_t round, const void *then, int64_t next_count)
{
    const int64_t size = dtype == MM_F32 ? 4 : 2, numbers = STEP * VL;
    const int64_t stretch = numbers * size > LINE ? numbers * size : LINE;
    for (int64_t p = 0, steps = steps_of(K); p < steps; p += VL) {
        vf r[VL];
        const int64_t next = STEP * p * size + BYTES_AHEAD / stretch * stretch;
        const bool beyond = next >= K * size;
        if (next % stretch == 0)
            fetch((const unsigned char *)(beyond ? then : from) + next - (beyond ? K * size : 0), distance * size,
                  least(VL, beyond ? next_count : count), stretch);
        UNROLL
        for (int i = 0; i < VL; i++)
            r[i] = i < count ? get_weights(from, i * distance + STEP * p, K - STEP * p, dtype, round) : vf_zero();
        vf_transpose(r);
        int64_t left = least(VL, steps - p);
        if (left == VL) {
            UNROLL
            for (int i = 0; i < VL; i++)
                vf_store(to + (p + i) * step, r[i]);
        } else {
            UNROLL
            for (int i = 0; i < VL; i++)
                if (i < left)
                    vf_store(to + (p + i) * step, r[i]);
        }
    }
}

/* The lanes of one step from rows of which `left` remain, `along` apart; all lanes, or those of the tail. */
static ALWAYS_INLINE vf load_step(const float *from, int64_t along, int64_t left, const bool all, vtail tail,
                                  int32_t round)
{
    vf first = all ? vf_load(from) : vf_load_tail(from, tail);
#if STEP == 2
    (void)round;
    const float *next = from + along;
    return vf_pairs(first, left < 2 ? vf_zero() : all ? vf_load(next) : vf_load_tail(next, tail));
#else
    (void)along, (void)left;
    return round_words(first, round);
#endif
}

/* to[p * step + i] = from[p * distance + i], likewise. */
static ALWAYS_INLINE void copy_rows(float *to, int64_t step, const float *from, int64_t distance, int64_t count,
                                    int64_t K, int32_t round)
{
    if (count >= VL) {
        for (int64_t p = 0; p < K; p += STEP)
            vf_store(to + p / STEP * step, load_step(from + p * distance, distance, K - p, true, vf_tail(VL), round));
    } else {
        vtail t = vf_tail(count > 0 ? count : 0);
        for (int64_t p = 0; p < K; p += STEP)
            vf_store(to + p / STEP * step, load_step(from + p * distance, distance, K - p, false, t, round));
    }
}

/* to[p * step + i] = from[i * across + p * along], likewise. */
static void gather_rows(float *to, int64_t step, const float *from, int64_t across, int64_t along, int64_t count,
                        int64_t K, int32_t round)
{
    for (int64_t p = 0; p < K; p += STEP) {
        float rows[STEP * VL] = { 0 };
        for (int64_t n = 0; n < least(STEP, K - p); n++)
            for (int64_t i = 0; i < least(VL, count); i++)
                rows[n * VL + i] = from[i * across + (p + n) * along];
        vf_store(to + p / STEP * step, load_step(rows, VL, STEP, true, vf_tail(VL), round));
    }
}

/* Panels of `width` rows of A (or columns of B), each in panel_floats() floats: panel[p * width + i]. Those rows are
 * `across` apart, and their K numbers `along`. What vectors write past the end of a panel's last step lies in its
 * spare one. */
static ALWAYS_INLINE void pack_rounded(float *to, int64_t width, const float *from, int64_t across, int64_t along,
                                       int64_t count, int64_t K, int32_t round)
{
    int64_t step = along == 1 ? K : ROWS_AT_ONCE;
    for (int64_t p = 0; p < K; p += step) {
        int64_t n = least(step, K - p), ahead = p + ROWS_AHEAD;
        for (int64_t i = 0; i < count; i += width) {
            if (across == 1 && ahead < K)
                fetch(from + i + ahead * along, along * (int64_t)sizeof(float), least(step, K - ahead),
                      least(width, count - i) * (int64_t)sizeof(float));
            for (int64_t g = 0; g < width; g += VL) {
                float *panel = to + panel_floats(i, K) + p / STEP * width + g;
                const float *first = from + (i + g) * across + p * along;
                if (along == 1) {
                    int64_t then = g + VL < width ? i + g + VL : i + width;
                    turn_rows(panel, width, first, MM_F32, across, least(width - g, count - i - g), n, round,
                              from + (then < count ? then : 0) * across, count - then);
                } else if (across == 1) {
                    copy_rows(panel, width, first, along, count - i - g, n, round);
                } else {
                    gather_rows(panel, width, first, across, along, count - i - g, n, round);
                }
            }
        }
    }
}

static void pack(float *to, int64_t width, const float *from, int64_t across, int64_t along, int64_t count, int64_t K,
                 int32_t round)
{
    if (STEP == 2 || round != MM_F32)
        pack_rounded(to, width, from, across, along, count, K, STEP == 2 ? MM_BF16 : round);
    else
        pack_rounded(to, width, from, across, along, count, K, MM_F32);
}

#if STEP == 1
/* A full block, with B's distance a constant. */
static void multiply_in_place(const block *t)
{
    block constants = *t;
    constants.acs = 1;
    constants.ldb = TILE_COLS;
    block_asking(&constants, TILE_ROWS, TILE_VECS, false, vf_tail(VL), true);
}
#endif

/* The first rows of a block with both operands in panels. */
static ALWAYS_INLINE void multiply_packed_rows(const block *t, const int rows)
{
    block constants = *t;
    constants.ars = 1;
    constants.acs = TILE_ROWS;
    constants.ldb = TILE_COLS;
    block_asking(&constants, rows, TILE_VECS, false, vf_tail(VL), true);
}

static void multiply_packed(const block *t)
{
    multiply_packed_rows(t, TILE_ROWS);
}

/* Less than a full block. */
static void multiply_edge(const block *t, int64_t rows, int64_t cols)
{
#if STEP == 2 /* both are in panels, filled up */
    /* So powers of two end; of attention's products it is an eighth. */
    if (cols == TILE_COLS && rows == 4) {
        multiply_packed_rows(t, 4);
        return;
    }
    if (cols == TILE_COLS && rows == 8) {
        multiply_packed_rows(t, 8);
        return;
    }
    float whole[TILE_ROWS * TILE_COLS]; /* all of it, and then what is wanted */
    block edge = *t;
    edge.c = whole;
    edge.ldc = TILE_COLS;
    edge.from = NULL;
    multiply_packed(&edge);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < cols; j++)
            t->c[i * t->ldc + j] = (t->from ? t->from[i * t->ldc + j] : 0) + whole[i * TILE_COLS + j];
#else
    SIMD(block)(t, rows, cols);
#endif
}

/* The lines from `next` on, one with each step of a block; NULL: none. */
static void ask_for(block *t, const float *next)
{
    t->ahead = next ? next : t->a;
    t->ahead_step = next ? LINE / (int64_t)sizeof(float) : 0;
    t->ahead_row = 0;
}

/* C[M, N] of one block of A, at a + i * distance for row i that begins a panel, and K numbers of panels of B. Both may
 * come from where another core has left them: A's next rows are asked for while they are new, and then, part by part,
 * B's next panel. */
static void multiply_panels(block t, int64_t distance, int64_t M, int64_t N, int64_t K)
{
    float *c = t.c;
    const float *a = t.a, *b = t.b, *from = t.from;
    for (int64_t j = 0; j < N; j += TILE_COLS) {
        int64_t cols = least(TILE_COLS, N - j);
        t.b = b + panel_floats(j, K);
        const float *next_b = t.b + panel_floats(TILE_COLS, K);
        const float *end_b = next_b + (j + TILE_COLS < N ? panel_floats(TILE_COLS, K) : 0);
        for (int64_t i = 0; i < M; i += TILE_ROWS) {
            int64_t rows = least(TILE_ROWS, M - i);
            t.a = a + i * distance;
            t.c = c + i * t.ldc + j;
            t.from = from ? from + i * t.ldc + j : NULL;
            const bool in_place = t.acs == 1; /* all of the next rows are to be there, then */
            const bool next_a = j == 0 && (in_place ? i + 2 * TILE_ROWS <= M : i + TILE_ROWS < M);
            if (ASKS_AHEAD && next_a) {
                ask_for(&t, t.a + TILE_ROWS * distance);
                t.ahead_row = in_place ? t.ars : 0;
            } else if (ASKS_AHEAD) {
                ask_for(&t, next_b < end_b ? next_b : NULL);
                next_b += t.K * LINE / (int64_t)sizeof(float);
            }
            if (rows < TILE_ROWS || cols < TILE_COLS)
                multiply_edge(&t, rows, cols);
#if STEP == 1
            else if (t.acs == 1)
                multiply_in_place(&t);
#endif
            else
                multiply_packed(&t);
        }
    }
}

static void multiply(float *c, int64_t ldc, const float *a, int64_t ars, const float *b, int64_t M, int64_t N,
                     int64_t K, const float *from)
{
    bool in_place = ars > 0;
    int64_t distance = in_place ? ars : panel_floats(1, K);
    block t = { .b = b,
                .ldc = ldc,
                .ldb = TILE_COLS,
                .K = steps_of(K),
                .ars = in_place ? ars : 1,
                .acs = in_place ? 1 : TILE_ROWS };
    for (int64_t i = 0; i < M; i += BLOCK_M) {
        t.a = a + i * distance;
        t.c = c + i * ldc;
        t.from = from ? from + i * ldc : NULL;
        multiply_panels(t, distance, least(M - i, BLOCK_M), N, K);
    }
}

int64_t SIMD(gemm_panel)(int64_t count, int64_t K, int32_t round)
{
#if STEP == 2
    if (round != MM_BF16)
        return BASE(gemm_panel)(count, K, round);
#endif
    (void)round;
    return panel_floats(count, K);
}

void SIMD(gemm_pack_a)(float *to, const float *a, int64_t across, int64_t along, int64_t count, int64_t K,
                       int32_t round)
{
    OTHERWISE(gemm_pack_a, to, a, across, along, count, K, round)
    pack(to, TILE_ROWS, a, across, along, count, K, round);
}

void SIMD(gemm_pack_b)(float *to, const float *b, int64_t across, int64_t along, int64_t count, int64_t K,
                       int32_t round)
{
    OTHERWISE(gemm_pack_b, to, b, across, along, count, K, round)
    pack(to, TILE_COLS, b, across, along, count, K, round);
}

void SIMD(gemm_pack_bf16)(float *to, const void *w, int64_t across, int64_t count, int64_t K, int32_t round)
{
    OTHERWISE(gemm_pack_bf16, to, w, across, count, K, round)
    for (int64_t j = 0; j < (count + TILE_COLS - 1) / TILE_COLS * TILE_COLS; j += VL) {
        float *panel = to + panel_floats(j / TILE_COLS * TILE_COLS, K) + j % TILE_COLS;
        const uint16_t *rows = (const uint16_t *)w + j * across;
        const uint16_t *then = j + VL < count ? rows + VL * across : rows;
        turn_rows(panel, TILE_COLS, rows, MM_BF16, across, count - j, K, MM_F32, then, count - j - VL);
    }
}

void SIMD(gemm_multiply)(float *c, int64_t ldc, const float *a, int64_t ars, const float *b, int64_t M, int64_t N,
                         int64_t K, const float *from, int32_t round)
{
    OTHERWISE(gemm_multiply, c, ldc, a, ars, b, M, N, K, from, round)
    multiply(c, ldc, a, ars, b, M, N, K, from);
}
