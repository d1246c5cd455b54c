#include "backend/simd/block.h"
#include "backend/simd/table.h"
#include "backend/simd/words.h"

/* A slice of a large product, in blocks that stay in the caches: a panel of B (BLOCK_K × TILE_COLS) in the first level,
 * a block of A (BLOCK_M × BLOCK_K) in the second, a block of B (BLOCK_K × BLOCK_N) in the last. B is copied into panels
 * first, in the order in which block_multiply() reads it. So is A where its rows are not contiguous; where they are,
 * reading them in place is as fast. Numbers that are to be rounded are so on the way into the panels. */
#define BLOCK_K 512
#define BLOCK_M (16 * TILE_ROWS)
#define BLOCK_N 512

/* A panel of A is one step longer than K: it is filled with whole vectors, and the last one reaches past its end. */
#define A_STEPS(K) ((K) + 1)
#define A_FLOATS (BLOCK_M * A_STEPS(BLOCK_K) + VL)
#define B_FLOATS ((BLOCK_N + TILE_COLS) * BLOCK_K)

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Of K numbers. */
static int64_t steps_of(int64_t K)
{
    return (K + STEP - 1) / STEP;
}

/* to[p * step + i] = from[i * distance + p] for i < count (at most VL) and p < K, 0 for count ≤ i < VL, rounded to
 * `round`; in words, p counts pairs of them. Writes VL lanes for each p, in the order of p. */
static ALWAYS_INLINE void turn_rows(float *to, int64_t step, const float *from, int64_t distance, int64_t count,
                                    int64_t K, int32_t round)
{
    for (int64_t p = 0, steps = steps_of(K); p < steps; p += VL) {
        vf r[VL];
        UNROLL
        for (int i = 0; i < VL; i++)
            r[i] = i < count ? get_rounded(from + i * distance + STEP * p, K - STEP * p, round) : vf_zero();
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
static ALWAYS_INLINE void gather_rows(float *to, int64_t step, const float *from, int64_t across, int64_t along,
                                      int64_t count, int64_t K, int32_t round)
{
    for (int64_t p = 0; p < K; p += STEP) {
        float rows[STEP * VL] = { 0 };
        for (int64_t n = 0; n < least(STEP, K - p); n++)
            for (int64_t i = 0; i < least(VL, count); i++)
                rows[n * VL + i] = from[i * across + (p + n) * along];
        vf_store(to + p / STEP * step, load_step(rows, VL, STEP, true, vf_tail(VL), round));
    }
}

/* Rows of `from` that are copied into all their panels before the next ones: enough to use a cache line of every panel
 * well, few enough for the lines to stay. */
#define ROWS_AT_ONCE 16

/* Ask for rows of `count` numbers ahead of time: the stretches are too short for the hardware to see them coming. */
static void fetch_rows(const float *from, int64_t distance, int64_t count, int64_t rows)
{
    for (int64_t p = 0; p < rows; p++)
        for (int64_t i = 0; i < count; i += 16)
            __builtin_prefetch(from + p * distance + i);
}

/* Panels of `width` rows of A (or columns of B), `steps` long: panel[p * width + i]. Those rows are `across` apart, and
 * their K numbers `along`. K is whole steps, or what is left of the last one. */
static ALWAYS_INLINE void pack_rounded(float *to, int64_t width, int64_t steps, const float *from, int64_t across,
                                       int64_t along, int64_t count, int64_t K, const int32_t round)
{
    int64_t step = along == 1 ? K : ROWS_AT_ONCE;
    for (int64_t p = 0; p < K; p += step) {
        int64_t n = least(step, K - p), next = least(step, K - p - n);
        if (across == 1)
            fetch_rows(from + (p + n) * along, along, count, next);
        for (int64_t i = 0; i < count; i += width)
            for (int64_t g = 0; g < width; g += VL) {
                float *panel = to + i * steps + p / STEP * width + g;
                const float *first = from + (i + g) * across + p * along;
                if (along == 1)
                    turn_rows(panel, width, first, across, count - i - g, n, round);
                else if (across == 1)
                    copy_rows(panel, width, first, along, count - i - g, n, round);
                else
                    gather_rows(panel, width, first, across, along, count - i - g, n, round);
            }
    }
}

static void pack(float *to, int64_t width, int64_t steps, const float *from, int64_t across, int64_t along,
                 int64_t count, int64_t K, int32_t round)
{
    if (STEP == 2 || round == MM_BF16)
        pack_rounded(to, width, steps, from, across, along, count, K, MM_BF16);
    else if (round == MM_F16)
        pack_rounded(to, width, steps, from, across, along, count, K, MM_F16);
    else
        pack_rounded(to, width, steps, from, across, along, count, K, MM_F32);
}

#if STEP == 1
/* A full block, with B's distance a constant. */
static void multiply_in_place(const block *t)
{
    block constants = *t;
    constants.acs = 1;
    constants.ldb = TILE_COLS;
    block_multiply(&constants, TILE_ROWS, TILE_VECS, false, vf_tail(VL));
}
#endif

/* A full block with both operands in panels. */
static void multiply_packed(const block *t)
{
    block constants = *t;
    constants.ars = 1;
    constants.acs = TILE_ROWS;
    constants.ldb = TILE_COLS;
    block_multiply(&constants, TILE_ROWS, TILE_VECS, false, vf_tail(VL));
}

/* C[M, N] of one block of A, at a + i * panel_step for row i that begins a panel, and one of B. */
static void multiply_panels(block t, int64_t panel_step, int64_t M, int64_t N)
{
    float *c = t.c;
    const float *a = t.a, *b = t.b;
    for (int64_t j = 0; j < N; j += TILE_COLS) {
        int64_t cols = least(TILE_COLS, N - j);
        t.b = b + j * t.K;
        for (int64_t i = 0; i < M; i += TILE_ROWS) {
            int64_t rows = least(TILE_ROWS, M - i);
            t.a = a + i * panel_step;
            t.c = c + i * t.ldc + j;
            if (rows < TILE_ROWS || cols < TILE_COLS)
                SIMD(block)(&t, rows, cols);
#if STEP == 1
            else if (t.acs == 1)
                multiply_in_place(&t);
#endif
            else
                multiply_packed(&t);
        }
    }
}

static void multiply_slice(float *c, int64_t ldc, const float *a, int64_t ars, int64_t acs, const float *b, int64_t brs,
                           int64_t bcs, int64_t M, int64_t N, int64_t K, int32_t accumulate, float *scratch,
                           int32_t round)
{
    float *packed_a = scratch, *packed_b = scratch + A_FLOATS;
    bool in_place = acs == 1 && round == MM_F32;
    for (int64_t j = 0; j < N; j += BLOCK_N)
        for (int64_t p = 0; p < K; p += STEP * BLOCK_K) {
            int64_t n = least(N - j, BLOCK_N), k = least(K - p, STEP * BLOCK_K), steps = steps_of(k);
            pack(packed_b, TILE_COLS, steps, b + p * brs + j * bcs, bcs, brs, n, k, round);
            block t = { .b = packed_b, .ldc = ldc, .ldb = TILE_COLS, .K = steps, .accumulate = accumulate || p > 0 };
            for (int64_t i = 0; i < M; i += BLOCK_M) {
                int64_t m = least(M - i, BLOCK_M);
                t.c = c + i * ldc + j;
                t.a = in_place ? a + i * ars + p : packed_a;
                t.ars = in_place ? ars : 1;
                t.acs = in_place ? 1 : TILE_ROWS;
                if (!in_place)
                    pack(packed_a, TILE_ROWS, A_STEPS(steps), a + i * ars + p * acs, ars, acs, m, k, round);
                multiply_panels(t, in_place ? ars : A_STEPS(steps), m, n);
            }
        }
}

#if STEP == 2

void SIMD(gemm_slice_rounded)(float *c, int64_t ldc, const float *a, int64_t ars, int64_t acs, const float *b,
                              int64_t brs, int64_t bcs, int64_t M, int64_t N, int64_t K, int32_t accumulate,
                              float *scratch, int32_t round)
{
    if (round == MM_BF16 && K > 0)
        multiply_slice(c, ldc, a, ars, acs, b, brs, bcs, M, N, K, accumulate, scratch, round);
    else
        BASE(gemm_slice_rounded)(c, ldc, a, ars, acs, b, brs, bcs, M, N, K, accumulate, scratch, round);
}

#else

int64_t SIMD(gemm_scratch)(void)
{
    return A_FLOATS + B_FLOATS;
}

void SIMD(gemm_slice_rounded)(float *c, int64_t ldc, const float *a, int64_t ars, int64_t acs, const float *b,
                              int64_t brs, int64_t bcs, int64_t M, int64_t N, int64_t K, int32_t accumulate,
                              float *scratch, int32_t round)
{
    if (K <= 0)
        SIMD(gemm_tile)(c, ldc, a, ars, acs, b, 0, M, N, 0, accumulate);
    multiply_slice(c, ldc, a, ars, acs, b, brs, bcs, M, N, K, accumulate, scratch, round);
}

void SIMD(gemm_slice)(float *c, int64_t ldc, const float *a, int64_t ars, int64_t acs, const float *b, int64_t brs,
                      int64_t bcs, int64_t M, int64_t N, int64_t K, int32_t accumulate, float *scratch)
{
    SIMD(gemm_slice_rounded)(c, ldc, a, ars, acs, b, brs, bcs, M, N, K, accumulate, scratch, MM_F32);
}

#endif
