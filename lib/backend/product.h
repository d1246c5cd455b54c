/* How a product is cut, for the files that compute them. */
#ifndef MMI_BACKEND_PRODUCT_H
#define MMI_BACKEND_PRODUCT_H

#include <minimind/view.h>

#include "backend/gemm.h"
#include "base/dtype.h"

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

static inline int64_t at_least(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* How C [M, N] is cut: into slices of at most rows × cols, `across` of them side by side; the last ones into parts, so
 * that threads end at about the same time. */
typedef struct cut {
    int64_t M, N, rows, cols, across;
    int64_t last; /* so many slices are cut into */
    int64_t parts, part_rows, part_cols;
} cut;

/* So many slices or more where they would not become too small, and of them so many last ones, or one for each of more
 * threads, are cut into parts where a slice has so many products. */
#define WANTED_SLICES 8
#define LAST_SLICES 4
#define PARTS 4
#define WORTH_CUTTING (1 << 23)

static inline int64_t cut_slices(const cut *c)
{
    return mmi_pieces(c->M, c->rows) * c->across;
}

static inline int64_t cut_pieces(const cut *c)
{
    return cut_slices(c) + (c->parts - 1) * c->last;
}

/* Rows [*i, *i_end) and columns [*j, *j_end) of a piece; false: it has none. */
static inline bool cut_piece(const cut *c, int64_t piece, int64_t *i, int64_t *i_end, int64_t *j, int64_t *j_end)
{
    int64_t whole = cut_slices(c) - c->last, nth = 0, slice = piece;
    if (piece >= whole) {
        nth = (piece - whole) % c->parts;
        slice = whole + (piece - whole) / c->parts;
    }
    mmi_piece_rows(slice / c->across, c->rows, c->M, i, i_end);
    mmi_piece_rows(slice % c->across, c->cols, c->N, j, j_end);
    if (piece >= whole && c->part_cols < c->cols) {
        *j += nth * c->part_cols;
        *j_end = least(*j_end, *j + c->part_cols);
    } else if (piece >= whole) {
        *i += nth * c->part_rows;
        *i_end = least(*i_end, *i + c->part_rows);
    }
    return *i < *i_end && *j < *j_end;
}

/* The rest of `c`, whose M, N, rows and cols are there, for products of K numbers. Where a slice has all rows, what it
 * has alone are its columns, and its parts shall have their own, too. */
static inline void cut_finish(cut *c, int64_t K, int64_t step_rows, int64_t step_cols, int threads)
{
    bool by_cols = c->rows >= c->M;
    c->across = mmi_pieces(c->N, c->cols);
    c->last = least(cut_slices(c), threads > WANTED_SLICES ? threads : LAST_SLICES);
    c->parts = c->rows * c->cols * K < WORTH_CUTTING ? 1 : PARTS;
    c->part_rows = by_cols ? c->rows : part(c->rows, c->parts, step_rows);
    c->part_cols = by_cols ? part(c->cols, c->parts, step_cols) : c->cols;
}

/* A matrix of up to so many numbers has been read before another thread has woken. */
#define READ_ALONE (1 << 17)

/* One large product. */
typedef struct product {
    const mmi_exec *x;
    const float *a;
    const void *b; /* float32; for our own kernels, where brs is 1, also bf16, or strips that are rounded to it */
    float *c;
    int32_t b_dtype;
    int64_t M, N, K, ldc;
    int64_t ars, acs, brs, bcs; /* op(A) at (i, p): a + i * ars + p * acs; op(B) at (p, j): b + p * brs + j * bcs */
    int64_t b_first;            /* of strips, whose rows are not cut: which of a row's numbers the first one is */
    const float *from;          /* what C begins with: C itself, or rows ldc apart; NULL: 0 */
    cut cut;
} product;

/* Y[M, N] = X[M, K] · W[N, K]ᵀ. */
static inline product product_of_weight(const mmi_exec *x, int64_t M, int64_t N, int64_t K, const float *X, int64_t ldx,
                                        const void *W, int32_t dtype, float *Y, int64_t ldy)
{
    return (product){ .x = x,
                      .a = X,
                      .b = W,
                      .c = Y,
                      .b_dtype = dtype,
                      .M = M,
                      .N = N,
                      .K = K,
                      .ldc = ldy,
                      .ars = ldx,
                      .acs = 1,
                      .brs = 1,
                      .bcs = K };
}

/* What C begins with at (i, j), or NULL. */
static inline const float *product_from(const product *t, int64_t i, int64_t j)
{
    return t->from ? t->from + i * t->ldc + j : NULL;
}

/* op(B) at (p, j); of strips p is 0, and j begins one. */
static inline const void *product_b(const product *t, int64_t p, int64_t j)
{
    return (const unsigned char *)t->b + mmi_dtype_bytes(t->b_dtype, p * t->brs + j * t->bcs);
}

/* C [M, N] from (i, j) on, of the K numbers from number k on. */
static inline product product_part(const product *t, int64_t i, int64_t M, int64_t j, int64_t N, int64_t k, int64_t K)
{
    const bool strips = mmi_block_bytes(t->b_dtype) > 0;
    product p = *t;
    p.a += i * t->ars + k * t->acs;
    p.b = product_b(t, strips ? 0 : k, j);
    p.b_first += strips ? k : 0;
    p.c += i * t->ldc + j;
    p.from = k > 0 ? p.c : product_from(t, i, j);
    p.M = M;
    p.N = N;
    p.K = K;
    return p;
}

/* Rows of op(A), or columns of op(B), from `first` on, `count` of them with K numbers from number k on, in panels. */
static inline void product_pack(const product *p, float *to, bool rows, int64_t first, int64_t count, int64_t k,
                                int64_t K)
{
    const mmi_kernels *kernels = &p->x->k;
    if (rows)
        kernels->gemm_pack_a(to, p->a + first * p->ars + k * p->acs, p->ars, p->acs, count, K, p->x->compute);
    else if (p->b_dtype == MM_F32)
        kernels->gemm_pack_b(to, product_b(p, k, first), p->bcs, p->brs, count, K, p->x->compute);
    else if (mmi_block_bytes(p->b_dtype) > 0)
        kernels->gemm_pack_blocks(to, product_b(p, 0, first), p->b_dtype, p->bcs, p->b_first + k, count, K);
    else
        kernels->gemm_pack_bf16(to, product_b(p, k, first), p->bcs, count, K, p->x->compute);
}

/* Lines [*first, *last) of piece `nth` of `pieces`. All have the same number of panels of `width` lines, or the first
 * ones one more: threads that take them in turn end together. */
static inline void product_lines(int64_t lines, int64_t width, int64_t pieces, int64_t nth, int64_t *first,
                                 int64_t *last)
{
    const int64_t panels = mmi_pieces(lines, width), each = panels / pieces, longer = panels % pieces;
    *first = (nth * each + least(nth, longer)) * width;
    *last = least(lines, *first + (each + (nth < longer)) * width);
}

/* Slices that begin at multiples of the steps. */
void mmi_product_cut(product *p, int64_t step_rows, int64_t step_cols);

/* By our own kernels; `in_place`: acs is 1, and A is not rounded. */
void mmi_product_by_panels(const product *p, bool in_place);

/* Lines that a thread has for itself at most: they fit into a second-level cache of a megabyte. */
#define MMI_OWN_LINES 256

/* Floats of scratch that they take in panels of `width` lines. */
static inline int64_t product_own_floats(const mmi_kernels *k, int64_t width)
{
    return k->gemm_panel(round_up(MMI_OWN_LINES, width), k->gemm_depth, MM_F32);
}

/* More than two threads take so many turns at most. */
#define MMI_MOST_TURNS 4

/* The same where the table says `gemm_own_lines`, and nothing is in place. */
void mmi_product_by_own_panels(const product *p);

/* The same for more threads than so many, which share no panels. */
#define MMI_SHARING_THREADS 8
void mmi_product_apart(const product *p, bool in_place);

/* Y = X · Wᵀ with W in blocks: see mmi_gemm_weight(). */
void mmi_product_of_blocks(const mmi_exec *x, int64_t M, int64_t N, int64_t K, mmi_operand X, const void *W,
                           int32_t dtype, float *panel, float *Y, int64_t ldy);

/* Rows of W, or columns of B, that are read as one piece where few rows meet them. */
int64_t mmi_rows_per_piece(int64_t N, int64_t K, int32_t dtype);

/* The same where a single row meets them: this depends on the number of threads, which no result does, since each of
 * its numbers is made alone. */
int64_t mmi_rows_per_run(const mmi_exec *x, int64_t N, int64_t K, int32_t dtype);

#endif
