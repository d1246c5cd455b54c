#include "backend/simd/block.h"
#include "backend/simd/table.h"

/* The rows are dealt out evenly: 8 rows as 4 and 4 keep the arithmetic units busier than 6 and 2. */
void SIMD(gemm_tile)(float *c, int64_t ldc, const float *a, int64_t ars, int64_t acs, const float *b, int64_t ldb,
                     int64_t M, int64_t N, int64_t K, int32_t accumulate)
{
    int64_t blocks = (M + TILE_ROWS - 1) / TILE_ROWS;
    block t = { .ldc = ldc, .ars = ars, .acs = acs, .ldb = ldb, .K = K };
    for (int64_t j = 0; j < N; j += TILE_COLS) {
        int64_t cols = N - j < TILE_COLS ? N - j : TILE_COLS;
        t.b = b + j;
        for (int64_t i = 0, left = blocks; left > 0; left--) {
            int64_t rows = (M - i + left - 1) / left;
            t.c = c + i * ldc + j;
            t.from = accumulate ? t.c : NULL;
            t.a = a + i * ars;
            SIMD(block)(&t, rows, cols);
            i += rows;
        }
    }
}
