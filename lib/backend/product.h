/* How a product is cut, for the files that compute them. */
#ifndef MMI_BACKEND_PRODUCT_H
#define MMI_BACKEND_PRODUCT_H

#include <minimind/view.h>

#include "backend/exec.h"

/* One large product and how it is cut: C into slices of at most rows × cols, `across` of them side by side. */
typedef struct product {
    const mmi_exec *x;
    const float *a;
    const void *b; /* float32; for our own kernels, where brs is 1, also bf16 */
    float *c;
    int32_t b_dtype;
    int64_t M, N, K, ldc;
    int64_t ars, acs, brs, bcs; /* op(A) at (i, p): a + i * ars + p * acs; op(B) at (p, j): b + p * brs + j * bcs */
    bool accumulate;
    int64_t rows, cols, across;
} product;

/* op(B) at (p, j). */
static inline const void *product_b(const product *t, int64_t p, int64_t j)
{
    return (const unsigned char *)t->b + (p * t->brs + j * t->bcs) * (t->b_dtype == MM_F32 ? 4 : 2);
}

/* Slices of C: shape and steps alone decide, so any number of threads computes the same ones, WANTED_SLICES or more
 * where they would not become too small. They begin at multiples of the steps. */
#define WANTED_SLICES 8
void mmi_product_cut(product *p, int64_t step_rows, int64_t step_cols);

static inline int64_t product_slices(const product *p)
{
    return mmi_pieces(p->M, p->rows) * p->across;
}

/* Rows [*i, *i_end) and columns [*j, *j_end). */
static inline void product_slice(const product *p, int64_t piece, int64_t *i, int64_t *i_end, int64_t *j,
                                 int64_t *j_end)
{
    mmi_piece_rows(piece / p->across, p->rows, p->M, i, i_end);
    mmi_piece_rows(piece % p->across, p->cols, p->N, j, j_end);
}

/* By our own kernels; `in_place`: acs is 1, and A is not rounded. */
void mmi_product_by_panels(const product *p, bool in_place);

/* Y = X · Wᵀ with W in blocks: see mmi_gemm_weight(). */
void mmi_product_of_blocks(const mmi_exec *x, int64_t M, int64_t N, int64_t K, const float *X, int64_t ldx,
                           const void *W, int32_t dtype, float *panel, float *Y, int64_t ldy);

/* Rows of W, or columns of B, that are read as one piece where few rows meet them. */
int64_t mmi_rows_per_piece(int64_t N, int64_t K);

static inline int64_t round_up(int64_t n, int64_t step)
{
    return (n + step - 1) / step * step;
}

/* The size of `count` nearly equal parts of n. */
static inline int64_t part(int64_t n, int64_t count, int64_t step)
{
    int64_t size = round_up((n + count - 1) / count, step);
    return size < n ? size : n;
}

static inline int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

#endif
