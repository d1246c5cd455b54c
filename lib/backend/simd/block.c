#include "backend/simd/block.h"

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
