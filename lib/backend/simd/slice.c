#include "backend/simd/block.h"
#include "backend/simd/table.h"

/* A slice of a large product, in blocks that stay in the caches: a panel of B (BLOCK_K × TILE_COLS) in the first level, a
 * block of A (BLOCK_M × BLOCK_K) in the second, a block of B (BLOCK_K × BLOCK_N) in the last. Both operands are copied into
 * panels first, in the order in which block_multiply() reads them. */
#define BLOCK_K 384
#define BLOCK_M (16 * TILE_ROWS)
#define BLOCK_N 512

/* Copying a panel of A writes whole vectors, so the last of them reaches past its end. */
#define SLACK VL
#define A_FLOATS (BLOCK_M * BLOCK_K + SLACK)
#define B_FLOATS ((BLOCK_N + TILE_COLS) * BLOCK_K)

int64_t SIMD(gemm_scratch)(void)
{
    return A_FLOATS + B_FLOATS;
}

/* to[p * step + i] = from[i * distance + p] for i < count (at most VL) and p < K, 0 for count ≤ i < VL. Writes VL numbers for
 * each p, in the order of p. */
static ALWAYS_INLINE void turn_rows(float *to, int64_t step, const float *from, int64_t distance, int64_t count, int64_t K)
{
    for (int64_t p = 0; p < K; p += VL) {
        vf r[VL];
        UNROLL
        for (int i = 0; i < VL; i++)
            r[i] = i < count ? vf_get(from + i * distance + p, K - p) : vf_zero();
        vf_transpose(r);
        int64_t left = K - p < VL ? K - p : VL;
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

/* to[p * step + i] = from[p * distance + i] for i < count, 0 for count ≤ i < VL. */
static ALWAYS_INLINE void copy_rows(float *to, int64_t step, const float *from, int64_t distance, int64_t count, int64_t K)
{
    if (count >= VL) {
        for (int64_t p = 0; p < K; p++)
            vf_store(to + p * step, vf_load(from + p * distance));
    } else {
        vtail t = vf_tail(count > 0 ? count : 0);
        for (int64_t p = 0; p < K; p++)
            vf_store(to + p * step, vf_load_tail(from + p * distance, t));
    }
}

/* Up to VL of the panel's rows (columns of B), `across` apart, each K numbers `along` apart. */
static void pack_group(float *to, int64_t step, const float *from, int64_t across, int64_t along, int64_t count, int64_t K)
{
    if (along == 1) {
        turn_rows(to, step, from, across, count, K);
    } else if (across == 1) {
        copy_rows(to, step, from, along, count, K);
    } else {
        for (int64_t p = 0; p < K; p++)
            for (int64_t i = 0; i < VL; i++)
                to[p * step + i] = i < count ? from[i * across + p * along] : 0;
    }
}

/* Panels of `width` rows (or columns): panel[p * width + i]. */
static void pack(float *to, int64_t width, const float *from, int64_t across, int64_t along, int64_t count, int64_t K)
{
    for (int64_t i = 0; i < count; i += width, to += width * K) {
        int64_t here = count - i < width ? count - i : width;
        for (int64_t g = 0; g < width; g += VL)
            pack_group(to + g, width, from + (i + g) * across, across, along, here - g < VL ? here - g : VL, K);
    }
}

/* A full block on packed panels: the distances are constants too. */
static void multiply_packed(const block *t)
{
    block packed = *t;
    packed.ars = 1;
    packed.acs = TILE_ROWS;
    packed.ldb = TILE_COLS;
    block_multiply(&packed, TILE_ROWS, TILE_VECS, false, vf_tail(VL));
}

static void multiply_panels(float *c, int64_t ldc, const float *a, const float *b, int64_t M, int64_t N, int64_t K,
                            bool accumulate)
{
    block t = { .ldc = ldc, .ars = 1, .acs = TILE_ROWS, .ldb = TILE_COLS, .K = K, .accumulate = accumulate };
    for (int64_t j = 0; j < N; j += TILE_COLS) {
        int64_t cols = N - j < TILE_COLS ? N - j : TILE_COLS;
        t.b = b + j * K;
        for (int64_t i = 0; i < M; i += TILE_ROWS) {
            int64_t rows = M - i < TILE_ROWS ? M - i : TILE_ROWS;
            t.a = a + i * K;
            t.c = c + i * ldc + j;
            if (rows == TILE_ROWS && cols == TILE_COLS)
                multiply_packed(&t);
            else
                SIMD(block)(&t, rows, cols);
        }
    }
}

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

void SIMD(gemm_slice)(float *c, int64_t ldc, const float *a, int64_t ars, int64_t acs, const float *b, int64_t brs,
                      int64_t bcs, int64_t M, int64_t N, int64_t K, int32_t accumulate, float *scratch)
{
    float *packed_a = scratch, *packed_b = scratch + A_FLOATS;
    if (K <= 0)
        SIMD(gemm_tile)(c, ldc, a, ars, acs, b, 0, M, N, 0, accumulate);
    for (int64_t j = 0; j < N; j += BLOCK_N)
        for (int64_t p = 0; p < K; p += BLOCK_K) {
            int64_t n = least(N - j, BLOCK_N), k = least(K - p, BLOCK_K);
            pack(packed_b, TILE_COLS, b + p * brs + j * bcs, bcs, brs, n, k);
            for (int64_t i = 0; i < M; i += BLOCK_M) {
                int64_t m = least(M - i, BLOCK_M);
                pack(packed_a, TILE_ROWS, a + i * ars + p * acs, ars, acs, m, k);
                multiply_panels(c + i * ldc + j, ldc, packed_a, packed_b, m, n, k, accumulate || p > 0);
            }
        }
}
