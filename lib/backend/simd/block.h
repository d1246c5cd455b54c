/* The heart of every product: a block of C, TILE_ROWS × (TILE_VECS · VL) at most, stays in registers all along K. */
#ifndef MMI_BACKEND_SIMD_BLOCK_H
#define MMI_BACKEND_SIMD_BLOCK_H

#include <stdbool.h>

#include "backend/simd/vf.h"

#define TILE_COLS (TILE_VECS * VL)

/* Measured: a load for what comes next, with each step, is to be had with AVX-512, but not beside the eight that a step
 * of AVX2's takes. */
#define ASKS_AHEAD (VL == 16)

/* A at (i, p): a + i * ars + p * acs. B's rows contiguous, ldb apart. K counts steps: numbers, or words of two. */
typedef struct block {
    float *c;
    const float *a, *b;
    const float *from; /* what C begins with, its rows ldc apart; NULL: 0 */
    int64_t ldc, ars, acs, ldb, K;
    const float *ahead; /* for block_asking(): asked for with the first step, */
    int64_t ahead_step; /* and what lies so many floats further with the next one; */
    int64_t ahead_row;  /* the steps are shared among C's rows: with each share it begins anew so many floats further;
                         * 0: it goes on */
} block;

/* A row of C, to be written, and what it begins with. */
static ALWAYS_INLINE void fetch_row_of_c(const block *t, int row)
{
    const int64_t at = row * t->ldc;
    UNROLL
    for (int j = 0; j < TILE_COLS; j += 16)
        fetch_to_write(t->c + at + j);
    if (t->from && t->from != t->c) {
        UNROLL
        for (int j = 0; j < TILE_COLS; j += 16)
            __builtin_prefetch(t->from + at + j);
    }
}

/* C[rows, vecs * VL] = from + A · B; with `masked` the last vector has only the lanes of `tail`; with `asks` C's rows
 * are asked for; with ASKS_AHEAD the second level is, too, for what comes next, a line with each step, and the rows
 * come one by one while there are steps, since a core waits for few lines at a time. rows, vecs, masked and asks are
 * constants wherever this is used, so that all of `sum` are registers. */
static ALWAYS_INLINE void block_asking(const block *t, const int rows, const int vecs, const bool masked, vtail tail,
                                       const bool asks)
{
    vf sum[TILE_ROWS][TILE_VECS];
    UNROLL
    for (int i = 0; i < rows; i++)
        UNROLL
    for (int j = 0; j < vecs; j++)
        sum[i][j] = vf_zero();

    /* A pointer to every third row: the two rows after it are reached by the addressing mode. */
    const float *a[(TILE_ROWS + 2) / 3], *b = t->b, *ahead = t->ahead;
    const int64_t ars = t->ars, acs = t->acs, ldb = t->ldb, ahead_step = t->ahead_step;
    UNROLL
    for (int i = 0; i < rows; i += 3)
        a[i / 3] = t->a + i * ars;
    const bool ahead_too = asks && ASKS_AHEAD;
    UNROLL
    for (int i = 0; i < rows; i++)
        if (asks && !ahead_too)
            fetch_row_of_c(t, i);
    const int64_t share = t->K / rows > 1 ? t->K / rows : 1; /* of the steps, for each row of C */
    int64_t left = t->K;
    for (int i = 0; ahead_too ? left > 0 : i == 0; i++) {
        int64_t p = ahead_too && i < rows - 1 ? share : left;
        left -= p;
        if (ahead_too) {
            fetch_row_of_c(t, i);
            ahead = t->ahead_row ? t->ahead + i * t->ahead_row : ahead;
        }
        for (; p > 0; p--) {
            vf row[TILE_VECS];
            UNROLL
            for (int j = 0; j < vecs; j++)
                row[j] = masked && j == vecs - 1 ? vf_load_tail(b + j * VL, tail) : vf_load(b + j * VL);
            UNROLL
            for (int m = 0; m < rows; m++) {
                vf factor = vf_set(a[m / 3][m % 3 * ars]);
                UNROLL
                for (int j = 0; j < vecs; j++)
                    sum[m][j] = vf_step(factor, row[j], sum[m][j]);
            }
            UNROLL
            for (int m = 0; m < rows; m += 3)
                a[m / 3] += acs;
            b += ldb;
            if (ahead_too) {
                __builtin_prefetch(ahead, 0, 2);
                ahead += ahead_step;
            }
        }
    }

    UNROLL
    for (int i = 0; i < rows; i++) {
        UNROLL
        for (int j = 0; j < vecs; j++) {
            int64_t at = i * t->ldc + j * VL;
            if (masked && j == vecs - 1) {
                vf before = t->from ? vf_load_tail(t->from + at, tail) : vf_zero();
                vf_store_tail(t->c + at, tail, vf_add(before, sum[i][j]));
            } else {
                vf_store(t->c + at, t->from ? vf_add(vf_load(t->from + at), sum[i][j]) : sum[i][j]);
            }
        }
    }
}

/* Without asking. */
static ALWAYS_INLINE void block_multiply(const block *t, const int rows, const int vecs, const bool masked, vtail tail)
{
    block_asking(t, rows, vecs, masked, tail, false);
}

/* Any number of rows and columns up to the block's. */
void SIMD(block)(const block *t, int64_t rows, int64_t cols);

#endif
