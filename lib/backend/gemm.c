#include "backend/gemm.h"

#include <stddef.h>
#include <string.h>

#include "backend/blas.h"
#include "backend/product.h"
#include "base/dtype.h"

/* Few rows: everything is in reading the other matrix, so that is what is cut. A piece is read as several streams, each
 * of which should be long enough for the hardware to see where it goes. */
#define ONE_PIECE (1 << 16) /* fewer numbers are not cut */
#define BYTES_PER_PIECE (1 << 18)
#define PIECES_AT_ONCE 8

/* A slice is large enough to keep a thread busy, and there are enough of them for several threads. */
#define SLICE_ROWS 512
#define SLICE_COLS 256
#define SMALLEST_SLICE 128

void mmi_product_cut(product *p, int64_t step_rows, int64_t step_cols)
{
    int64_t down = mmi_pieces(p->M, SLICE_ROWS), across = mmi_pieces(p->N, SLICE_COLS);
    while (down * across < WANTED_SLICES) {
        bool can_down = p->M >= 2 * down * SMALLEST_SLICE, can_across = p->N >= 2 * across * SMALLEST_SLICE;
        int64_t height = p->M * across, width = p->N * down; /* in proportion to a slice's rows and columns */
        if (can_down && (height >= width || !can_across))
            down *= 2;
        else if (can_across)
            across *= 2;
        else
            break;
    }
    p->cut = (cut){ .M = p->M, .N = p->N, .rows = part(p->M, down, step_rows), .cols = part(p->N, across, step_cols) };
    cut_finish(&p->cut, p->K, step_rows, step_cols, 1); /* OpenBLAS's bits may depend on where slices end */
}

/* Slices begin at multiples of what OpenBLAS's kernels keep in registers. */
#define STEP_ROWS 12
#define STEP_COLS 16
#define COLUMN_ROWS 8 /* so many rows read B once, which OpenBLAS takes longer for */

/* OpenBLAS and gemm_tile() add to C alone: what it begins with is copied there, a slice right before it is used. */
static void begin_slice(const product *p, int64_t i, int64_t i_end, int64_t j, int64_t j_end)
{
    if (p->from && p->from != p->c)
        for (; i < i_end; i++)
            memcpy(p->c + i * p->ldc + j, product_from(p, i, j), (size_t)(j_end - j) * sizeof *p->c);
}

static void multiply_blas(void *arg, int64_t piece, int worker)
{
    const product *p = arg;
    int64_t i, i_end, j, j_end;
    (void)worker;
    if (!cut_piece(&p->cut, piece, &i, &i_end, &j, &j_end))
        return;
    bool ta = p->acs != 1, tb = p->bcs != 1;
    begin_slice(p, i, i_end, j, j_end);
    mmi_blas_product(p->c + i * p->ldc + j, p->ldc, ta, tb, p->a + i * p->ars, ta ? p->acs : p->ars, product_b(p, 0, j),
                     tb ? p->bcs : p->brs, i_end - i, j_end - j, p->K, p->from != NULL);
}

/* Columns [j, j_end) of a product of few rows, B's rows contiguous. */
static void multiply_columns(void *arg, int64_t piece, int worker)
{
    const product *p = arg;
    int64_t j, j_end;
    (void)worker;
    mmi_piece_rows(piece, p->cut.cols, p->N, &j, &j_end);
    begin_slice(p, 0, p->M, j, j_end);
    p->x->k.gemm_tile(p->c + j, p->ldc, p->a, p->ars, p->acs, product_b(p, 0, j), p->brs, p->M, j_end - j, p->K,
                      p->from != NULL);
}

/* Few rows of X against all of W. */
typedef struct rows {
    const mmi_exec *x;
    const float *X;
    const unsigned char *W;
    float *Y, *panel;
    int64_t M, N, K, ldx, ldw, ldy, step;
    int32_t dtype;
} rows;

/* Measured: so many rows meet W as it lies in any case; more of them only where a row's sum is long beside the adding
 * up of a vector's lanes. */
#define ALWAYS_FEW 8
#define LENGTH_PER_ROW 8

/* Rows that are rounded lie in x->panels meanwhile. */
int64_t mmi_few_rows(const mmi_exec *x, int64_t K)
{
    const int64_t most = at_least(ALWAYS_FEW, K / LENGTH_PER_ROW);
    if (x->compute == MM_F32)
        return least(most, x->k.few_rows);
    return least(least(most, x->k.few_rounded), mmi_gemm_panels() / at_least(K, 1));
}

/* A single row for which the processor has products of rounded numbers. */
static bool rounded_alone(const rows *r)
{
    return r->M == 1 && r->x->k.gemv_row_rounded && r->x->compute == MM_BF16 && r->dtype != MM_F16;
}

/* Measured: from so many rows on gemm_rows() is faster with weights that are not rounded. Only there are words met. */
#define TILED_ROWS 8
static bool in_tiles(const rows *r)
{
    const int32_t round = r->x->compute;
    const bool as_it_is = round == MM_F32 || (round == r->dtype && !(round == MM_BF16 && r->x->k.rounds_to_words));
    return r->M >= (as_it_is ? TILED_ROWS : 1);
}

static void multiply_rows(void *arg, int64_t piece, int worker)
{
    const rows *r = arg;
    const mmi_kernels *k = &r->x->k;
    int64_t j, j_end;
    (void)worker;
    mmi_piece_rows(piece, r->step, r->N, &j, &j_end);
    float *y = r->Y + j;
    const unsigned char *w = r->W + mmi_dtype_bytes(r->dtype, j * r->ldw);
    if (rounded_alone(r))
        k->gemv_row_rounded(y, r->X, w, r->dtype, r->ldw, j_end - j, r->K, k->gemv_ahead);
    else if (in_tiles(r))
        k->gemm_rows(y, r->ldy, r->X, r->ldx, w, r->dtype, r->ldw, r->M, j_end - j, r->K, r->x->compute);
    else
        k->gemv_rows(y, r->ldy, r->X, r->ldx, w, r->dtype, r->ldw, r->M, j_end - j, r->K, k->gemv_ahead);
}

static void round_some(void *arg, int64_t piece, int worker)
{
    const rows *r = arg;
    int64_t i, i_end;
    (void)worker;
    mmi_piece_rows(piece, r->step, r->M, &i, &i_end);
    r->x->k.round_rows(r->x->panels + i * r->K, r->X + i * r->ldx, r->ldx, i_end - i, r->K, r->x->compute);
}

/* Rows of W, or columns of B, per piece. A product of more than one piece has a multiple of PIECES_AT_ONCE of them, so
 * that no thread is left with one more than the others. */
int64_t mmi_rows_per_piece(int64_t N, int64_t K, int32_t dtype)
{
    int64_t pieces = 1;
    if (N * K >= ONE_PIECE)
        pieces = round_up(1 + (int64_t)mmi_dtype_bytes(dtype, N * K) / BYTES_PER_PIECE, PIECES_AT_ONCE);
    int64_t each = mmi_pieces(N, pieces);
    return round_up(each > 1 ? each : 1, 8);
}

/* What a single row reads side by side comes faster in long stretches: two pieces for each thread, of at least so many
 * rows or columns. */
#define ROW_RUN 2
#define ROW_COLS 64

int64_t mmi_rows_per_run(const mmi_exec *x, int64_t N, int64_t K, int32_t dtype)
{
    const int64_t run = mmi_pieces(N, ROW_RUN * mmi_pool_threads(x->pool));
    return at_least(mmi_rows_per_piece(N, K, dtype), at_least(run, ROW_COLS));
}

static void gemv(const mmi_exec *x, int64_t M, int64_t N, int64_t K, const float *X, int64_t ldx, const void *W,
                 int32_t dtype, int64_t ldw, float *Y, int64_t ldy)
{
    if (N < 1)
        return;
    rows r = { x, X, W, Y, NULL, M, N, K, ldx, ldw, ldy, mmi_rows_per_piece(N, K, dtype), dtype };
    if (M == 1)
        r.step = round_up(mmi_rows_per_run(x, N, K, dtype), 8);
    if (N * K <= READ_ALONE && M * N * K <= ALWAYS_FEW * READ_ALONE)
        r.step = N;
    else if (M > ALWAYS_FEW && r.step >= N)
        r.step = round_up(mmi_pieces(N, PIECES_AT_ONCE), 8);
    if (x->compute != MM_F32 && !rounded_alone(&r)) {
        rows all = r;
        all.step = mmi_rows_worth(1, K);
        mmi_pool_run(x->pool, mmi_pieces(M, all.step), round_some, &all);
        r.X = x->panels;
        r.ldx = K;
    }
    mmi_pool_run(x->pool, mmi_pieces(N, r.step), multiply_rows, &r);
}

void mmi_gemm(const mmi_exec *x, bool ta, bool tb, int64_t M, int64_t N, int64_t K, const float *A, int64_t lda,
              const float *B, int64_t ldb, const float *from, float *C, int64_t ldc)
{
    if (M <= 0 || N <= 0)
        return;
    bool exact = x->compute == MM_F32;
    if (M <= mmi_few_rows(x, K) && !ta && tb && !from) {
        gemv(x, M, N, K, A, lda, B, MM_F32, ldb, C, ldc);
        return;
    }
    product p = { .x = x,
                  .a = A,
                  .b = B,
                  .c = C,
                  .b_dtype = MM_F32,
                  .M = M,
                  .N = N,
                  .K = K,
                  .ldc = ldc,
                  .ars = ta ? 1 : lda,
                  .acs = ta ? lda : 1,
                  .brs = tb ? 1 : ldb,
                  .bcs = tb ? ldb : 1,
                  .from = from };
    if (K <= 0) {
        begin_slice(&p, 0, M, 0, N);
        x->k.gemm_tile(C, ldc, A, 0, 1, B, 0, M, N, 0, from != NULL);
    } else if (M <= COLUMN_ROWS && !tb && exact) {
        p.cut.cols = round_up(mmi_rows_per_piece(N, K, MM_F32), STEP_COLS);
        mmi_pool_run(x->pool, mmi_pieces(N, p.cut.cols), multiply_columns, &p);
    } else if (exact && x->blas && mmi_blas_takes(M, N, K, lda, ldb, ldc)) {
        mmi_product_cut(&p, STEP_ROWS, STEP_COLS);
        mmi_blas_enter();
        mmi_pool_run(x->pool, cut_pieces(&p.cut), multiply_blas, &p);
        mmi_blas_leave();
    } else {
        mmi_product_by_panels(&p, x->k.gemm_in_place && exact && (!ta || lda == 1));
    }
}

static void widen_rows(void *arg, int64_t piece, int worker)
{
    const rows *r = arg;
    int64_t j, j_end;
    (void)worker;
    mmi_piece_rows(piece, r->step, r->N, &j, &j_end);
    const unsigned char *w = r->W + mmi_dtype_bytes(r->dtype, j * r->K);
    r->x->k.widen(r->panel + j * r->K, w, r->dtype, (j_end - j) * r->K);
}

/* W in bf16 or f16 and many rows of X: our own kernels widen bf16 as they pack it; else it is read widened. */
static void gemm_words(const mmi_exec *x, int64_t M, int64_t N, int64_t K, const float *X, int64_t ldx, const void *W,
                       int32_t dtype, float *panel, float *Y, int64_t ldy)
{
    bool own = x->compute == MM_BF16 || (x->compute == MM_F32 && !x->blas);
    if (K > 0 && dtype == MM_BF16 && own) {
        product p = product_of_weight(x, M, N, K, X, ldx, W, dtype, Y, ldy);
        mmi_product_by_panels(&p, x->k.gemm_in_place && x->compute == MM_F32);
        return;
    }
    rows r = { x, X, W, Y, panel, M, N, K, ldx, K, ldy, mmi_rows_per_piece(N, K, dtype), dtype };
    mmi_pool_run(x->pool, mmi_pieces(N, r.step), widen_rows, &r);
    mmi_gemm(x, false, true, M, N, K, X, ldx, panel, K, NULL, Y, ldy);
}

void mmi_gemm_weight(const mmi_exec *x, int64_t M, int64_t N, int64_t K, mmi_operand X, const void *W, int32_t dtype,
                     float *panel, float *Y, int64_t ldy)
{
    if (dtype == MM_F32)
        mmi_gemm(x, false, true, M, N, K, X.data, X.ld, W, K, NULL, Y, ldy);
    else if (mmi_block_bytes(dtype) > 0)
        mmi_product_of_blocks(x, M, N, K, X, W, dtype, panel, Y, ldy);
    else if (M <= mmi_few_rows(x, K))
        gemv(x, M, N, K, X.data, X.ld, W, dtype, K, Y, ldy);
    else if (N > 0)
        gemm_words(x, M, N, K, X.data, X.ld, W, dtype, panel, Y, ldy);
}
