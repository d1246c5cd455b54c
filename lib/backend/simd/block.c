#include "backend/simd/block.h"

#include <stddef.h>

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

/* Less than a block's columns: a few rows at a time, enough to keep the arithmetic units busy and a third of the code. */
#define MASKED_ROWS 4
static ALWAYS_INLINE void masked(const block *t, int64_t rows, const int vecs, vtail tail)
{
    block some = *t;
    for (; rows > MASKED_ROWS; rows -= MASKED_ROWS) {
        block_multiply(&some, MASKED_ROWS, vecs, true, tail);
        some.c += MASKED_ROWS * some.ldc;
        some.a += MASKED_ROWS * some.ars;
        some.from = some.from ? some.from + MASKED_ROWS * some.ldc : NULL;
    }
    if (rows == 4)
        block_multiply(&some, 4, vecs, true, tail);
    else if (rows == 3)
        block_multiply(&some, 3, vecs, true, tail);
    else if (rows == 2)
        block_multiply(&some, 2, vecs, true, tail);
    else if (rows == 1)
        block_multiply(&some, 1, vecs, true, tail);
}

void SIMD(block)(const block *t, int64_t rows, int64_t cols)
{
    if (cols == TILE_COLS)
        by_rows(t, rows, TILE_VECS, false, vf_tail(VL));
    else if (cols <= VL)
        masked(t, rows, 1, vf_tail(cols));
    else if (cols <= 2 * VL)
        masked(t, rows, 2, vf_tail(cols - VL));
#if TILE_VECS > 2
    else
        masked(t, rows, 3, vf_tail(cols - 2 * VL));
#endif
}
