#include "backend/simd/block.h"
#include "backend/simd/table.h"

/* One function for each number of rows, so that every block runs with constants. */
static ALWAYS_INLINE void by_rows(const block *t, int64_t rows, const int vecs, const bool masked, vtail tail)
{
#define ROWS(n)                                                                                                        \
    case n:                                                                                                            \
        if (n <= TILE_ROWS)                                                                                            \
            block_multiply(t, n <= TILE_ROWS ? n : 1, vecs, masked, tail);                                             \
        break
    switch (rows) {
        ROWS(1);
        ROWS(2);
        ROWS(3);
        ROWS(4);
        ROWS(5);
        ROWS(6);
        ROWS(7);
        ROWS(8);
        ROWS(9);
        ROWS(10);
        ROWS(11);
        ROWS(12);
    default:
        break;
    }
#undef ROWS
}

void SIMD(block)(const block *t, int64_t rows, int64_t cols)
{
    vtail all = vf_tail(VL);
    if (cols == TILE_COLS)
        by_rows(t, rows, TILE_VECS, false, all);
    else if (cols <= VL)
        by_rows(t, rows, 1, true, vf_tail(cols));
    else if (cols <= 2 * VL)
        by_rows(t, rows, 2, true, vf_tail(cols - VL));
#if TILE_VECS > 2
    else
        by_rows(t, rows, 3, true, vf_tail(cols - 2 * VL));
#endif
}

/* The rows are dealt out evenly: 8 rows as 4 and 4 keep the arithmetic units busier than 6 and 2. */
void SIMD(gemm_tile)(float *c, int64_t ldc, const float *a, int64_t ars, int64_t acs, const float *b, int64_t ldb,
                     int64_t M, int64_t N, int64_t K, int32_t accumulate)
{
    int64_t blocks = (M + TILE_ROWS - 1) / TILE_ROWS;
    block t = { .ldc = ldc, .ars = ars, .acs = acs, .ldb = ldb, .K = K, .accumulate = accumulate != 0 };
    for (int64_t j = 0; j < N; j += TILE_COLS) {
        int64_t cols = N - j < TILE_COLS ? N - j : TILE_COLS;
        t.b = b + j;
        for (int64_t i = 0, left = blocks; left > 0; left--) {
            int64_t rows = (M - i + left - 1) / left;
            t.c = c + i * ldc + j;
            t.a = a + i * ars;
            SIMD(block)(&t, rows, cols);
            i += rows;
        }
    }
}
