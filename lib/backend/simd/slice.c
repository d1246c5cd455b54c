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

int64_t SIMD(gemm_scratch)(void)
{
    return A_FLOATS + B_FLOATS;
}

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* to[p * step + i] = from[i * distance + p] for i < count (at most VL) and p < K, 0 for count ≤ i < VL, rounded to
 * `round`. Writes VL numbers for each p, in the order of p. */
static ALWAYS_INLINE void turn_rows(float *to, int64_t step, const float *from, int64_t distance, int64_t count,
                                    int64_t K, int32_t round)
{
    for (int64_t p = 0; p < K; p += VL) {
        vf r[VL];
        UNROLL
        for (int i = 0; i < VL; i++)
            r[i] = i < count ? round_words(vf_get(from + i * distance + p, K - p), round) : vf_zero();
        vf_transpose(r);
        int64_t left = least(VL, K - p);
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

/* to[p * step + i] = from[p * distance + i], likewise. */
static ALWAYS_INLINE void copy_rows(float *to, int64_t step, const float *from, int64_t distance, int64_t count,
                                    int64_t K, int32_t round)
{
    if (count >= VL) {
        for (int64_t p = 0; p < K; p++)
            vf_store(to + p * step, round_words(vf_load(from + p * distance), round));
    } else {
        vtail t = vf_tail(count > 0 ? count : 0);
        for (int64_t p = 0; p < K; p++)
            vf_store(to + p * step, round_words(vf_load_tail(from + p * distance, t), round));
    }
}

/* to[p * step + i] = from[i * across + p * along], likewise. */
static ALWAYS_INLINE void gather_rows(float *to, int64_t step, const float *from, int64_t across, int64_t along,
                                      int64_t count, int64_t K, int32_t round)
{
    for (int64_t p = 0; p < K; p++) {
        for (int64_t i = 0; i < VL; i++)
            to[p * step + i] = i < count ? from[i * across + p * along] : 0;
        vf_store(to + p * step, round_words(vf_load(to + p * step), round));
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
 * their K numbers `along`. */
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
                float *panel = to + i * steps + p * width + g;
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
    if (round == MM_BF16)
        pack_rounded(to, width, steps, from, across, along, count, K, MM_BF16);
    else if (round == MM_F16)
        pack_rounded(to, width, steps, from, across, along, count, K, MM_F16);
    else
        pack_rounded(to, width, steps, from, across, along, count, K, MM_F32);
}

/* A full block, with B's distance a constant. */
static void multiply_in_place(const block *t)
{
    block constants = *t;
    constants.acs = 1;
    constants.ldb = TILE_COLS;
    block_multiply(&constants, TILE_ROWS, TILE_VECS, false, vf_tail(VL));
}

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
    bool packed = t.acs == TILE_ROWS;
    for (int64_t j = 0; j < N; j += TILE_COLS) {
        int64_t cols = least(TILE_COLS, N - j);
        t.b = b + j * t.K;
        for (int64_t i = 0; i < M; i += TILE_ROWS) {
            int64_t rows = least(TILE_ROWS, M - i);
            t.a = a + i * panel_step;
            t.c = c + i * t.ldc + j;
            if (rows < TILE_ROWS || cols < TILE_COLS)
                SIMD(block)(&t, rows, cols);
            else if (packed)
                multiply_packed(&t);
            else
                multiply_in_place(&t);
        }
    }
}

void SIMD(gemm_slice_rounded)(float *c, int64_t ldc, const float *a, int64_t ars, int64_t acs, const float *b,
                              int64_t brs, int64_t bcs, int64_t M, int64_t N, int64_t K, int32_t accumulate,
                              float *scratch, int32_t round)
{
    float *packed_a = scratch, *packed_b = scratch + A_FLOATS;
    bool in_place = acs == 1 && round == MM_F32;
    if (K <= 0)
        SIMD(gemm_tile)(c, ldc, a, ars, acs, b, 0, M, N, 0, accumulate);
    for (int64_t j = 0; j < N; j += BLOCK_N)
        for (int64_t p = 0; p < K; p += BLOCK_K) {
            int64_t n = least(N - j, BLOCK_N), k = least(K - p, BLOCK_K);
            pack(packed_b, TILE_COLS, k, b + p * brs + j * bcs, bcs, brs, n, k, round);
            block t = { .b = packed_b, .ldc = ldc, .ldb = TILE_COLS, .K = k, .accumulate = accumulate || p > 0 };
            for (int64_t i = 0; i < M; i += BLOCK_M) {
                int64_t m = least(M - i, BLOCK_M);
                t.c = c + i * ldc + j;
                t.a = in_place ? a + i * ars + p : packed_a;
                t.ars = in_place ? ars : 1;
                t.acs = in_place ? 1 : TILE_ROWS;
                if (!in_place)
                    pack(packed_a, TILE_ROWS, A_STEPS(k), a + i * ars + p * acs, ars, acs, m, k, round);
                multiply_panels(t, in_place ? ars : A_STEPS(k), m, n);
            }
        }
}

void SIMD(gemm_slice)(float *c, int64_t ldc, const float *a, int64_t ars, int64_t acs, const float *b, int64_t brs,
                      int64_t bcs, int64_t M, int64_t N, int64_t K, int32_t accumulate, float *scratch)
{
    SIMD(gemm_slice_rounded)(c, ldc, a, ars, acs, b, brs, bcs, M, N, K, accumulate, scratch, MM_F32);
}
