#include "backend/gemm.h"

#include <stddef.h>

#include "backend/blas.h"
#include "base/dtype.h"

/* One large product and how it is cut: C into `down` by `across` slices of at most rows × cols. */
typedef struct product {
    const mmi_exec *x;
    const float *a, *b;
    float *c;
    int64_t M, N, K, ldc;
    int64_t ars, acs, brs, bcs; /* op(A) at (i, p): a + i * ars + p * acs; op(B) at (p, j): b + p * brs + j * bcs */
    bool accumulate, blas, in_place;
    int64_t rows, cols, across;
} product;

/* Few rows: everything is in reading the other matrix, so that is what is cut. */
#define FEW_ROWS 8
#define ELEMENTS_PER_PIECE 65536
#define PIECES_AT_ONCE 8

/* A slice is large enough to pay for packing its operands, and there are enough of them for several threads. Only the
 * shape decides, so any number of threads computes the same slices. Measured on Zen 3 with [512, 512] results: 8 slices
 * cost 3 to 9 % more than 4, and 16 another 4 to 9 %. Where A is read in place only B is packed, once for each row of
 * slices: they are then the better the taller they are (4 % between 256 × 128 and 128 × 256). */
#define SLICE_ROWS 512
#define SLICE_COLS 256
#define SMALLEST_SLICE 128
#define WANTED_SLICES 8
#define STEP_ROWS 12 /* a multiple of the register blocks' rows, 6 and 12 */
#define STEP_COLS 16

static int64_t round_up(int64_t n, int64_t step)
{
    return (n + step - 1) / step * step;
}

/* The size of `count` nearly equal parts of n. */
static int64_t part(int64_t n, int64_t count, int64_t step)
{
    int64_t size = round_up((n + count - 1) / count, step);
    return size < n ? size : n;
}

static void cut(product *p)
{
    int64_t down = mmi_pieces(p->M, SLICE_ROWS), across = mmi_pieces(p->N, SLICE_COLS);
    while (down * across < WANTED_SLICES) {
        bool can_down = p->M >= 2 * down * SMALLEST_SLICE, can_across = p->N >= 2 * across * SMALLEST_SLICE;
        int64_t height = p->M * across, width = p->N * down; /* in proportion to a slice's rows and columns */
        bool tall = p->in_place ? height > 2 * width : height >= width;
        if (can_down && (tall || !can_across))
            down *= 2;
        else if (can_across)
            across *= 2;
        else
            break;
    }
    p->rows = part(p->M, down, STEP_ROWS);
    p->cols = part(p->N, across, STEP_COLS);
    p->across = mmi_pieces(p->N, p->cols);
}

static void multiply_slice(void *arg, int64_t piece, int worker)
{
    const product *p = arg;
    const mmi_exec *x = p->x;
    int64_t i, i_end, j, j_end;
    mmi_piece_rows(piece / p->across, p->rows, p->M, &i, &i_end);
    mmi_piece_rows(piece % p->across, p->cols, p->N, &j, &j_end);
    const float *a = p->a + i * p->ars, *b = p->b + j * p->bcs;
    float *c = p->c + i * p->ldc + j;
    bool ta = p->acs != 1, tb = p->bcs != 1;
    if (p->blas && mmi_blas_product(c, p->ldc, ta, tb, a, ta ? p->acs : p->ars, b, tb ? p->bcs : p->brs, i_end - i,
                                    j_end - j, p->K, p->accumulate))
        return;
    if (x->compute != MM_F32)
        x->k.gemm_slice_rounded(c, p->ldc, a, p->ars, p->acs, b, p->brs, p->bcs, i_end - i, j_end - j, p->K,
                                p->accumulate, mmi_exec_scratch(x, worker), x->compute);
    else
        x->k.gemm_slice(c, p->ldc, a, p->ars, p->acs, b, p->brs, p->bcs, i_end - i, j_end - j, p->K, p->accumulate,
                        mmi_exec_scratch(x, worker));
}

/* Columns [j, j_end) of a product of few rows, B's rows contiguous. */
static void multiply_columns(void *arg, int64_t piece, int worker)
{
    const product *p = arg;
    int64_t j, j_end;
    (void)worker;
    mmi_piece_rows(piece, p->cols, p->N, &j, &j_end);
    p->x->k.gemm_tile(p->c + j, p->ldc, p->a, p->ars, p->acs, p->b + j, p->brs, p->M, j_end - j, p->K, p->accumulate);
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

static void multiply_rows(void *arg, int64_t piece, int worker)
{
    const rows *r = arg;
    int64_t j, j_end;
    (void)worker;
    mmi_piece_rows(piece, r->step, r->N, &j, &j_end);
    const unsigned char *w = r->W + mmi_dtype_bytes(r->dtype, j * r->ldw);
    if (r->x->compute != MM_F32)
        r->x->k.gemv_rows_rounded(r->Y + j, r->ldy, r->X, r->ldx, w, r->dtype, r->ldw, r->M, j_end - j, r->K,
                                  r->x->compute);
    else
        r->x->k.gemv_rows(r->Y + j, r->ldy, r->X, r->ldx, w, r->dtype, r->ldw, r->M, j_end - j, r->K);
}

/* Rows of W, or columns of B, per piece. A product of more than one piece has a multiple of PIECES_AT_ONCE of them, so
 * that no thread is left with one more than the others. */
static int64_t rows_per_piece(int64_t N, int64_t K)
{
    int64_t pieces = 1 + N * K / ELEMENTS_PER_PIECE;
    if (pieces > 1)
        pieces = round_up(pieces, PIECES_AT_ONCE);
    int64_t each = mmi_pieces(N, pieces);
    return round_up(each > 1 ? each : 1, 8);
}

static void gemv(const mmi_exec *x, int64_t M, int64_t N, int64_t K, const float *X, int64_t ldx, const void *W,
                 int32_t dtype, int64_t ldw, float *Y, int64_t ldy)
{
    rows r = { x, X, W, Y, NULL, M, N, K, ldx, ldw, ldy, rows_per_piece(N, K), dtype };
    if (N > 0 && N * K <= 2 * ELEMENTS_PER_PIECE) /* read before another thread has woken */
        r.step = N;
    mmi_pool_run(x->pool, mmi_pieces(N, r.step), multiply_rows, &r);
}

int64_t mmi_gemm_scratch(const mmi_kernels *k)
{
    return k->gemm_scratch;
}

void mmi_gemm(const mmi_exec *x, bool ta, bool tb, int64_t M, int64_t N, int64_t K, const float *A, int64_t lda,
              const float *B, int64_t ldb, bool accumulate, float *C, int64_t ldc)
{
    if (M <= 0 || N <= 0)
        return;
    if (M <= FEW_ROWS && !ta && tb && !accumulate) {
        gemv(x, M, N, K, A, lda, B, MM_F32, ldb, C, ldc);
        return;
    }
    bool exact = x->compute == MM_F32;
    product p = { .x = x,
                  .a = A,
                  .b = B,
                  .c = C,
                  .M = M,
                  .N = N,
                  .K = K,
                  .ldc = ldc,
                  .ars = ta ? 1 : lda,
                  .acs = ta ? lda : 1,
                  .brs = tb ? 1 : ldb,
                  .bcs = tb ? ldb : 1,
                  .accumulate = accumulate,
                  .in_place = exact && (!ta || lda == 1),
                  .across = 1 };
    if (M <= FEW_ROWS && !tb && exact) {
        p.cols = round_up(rows_per_piece(N, K), STEP_COLS);
        mmi_pool_run(x->pool, mmi_pieces(N, p.cols), multiply_columns, &p);
        return;
    }
    cut(&p);
    p.blas = exact && x->blas && (ta || !x->k.in_place_beats_blas);
    if (p.blas)
        mmi_blas_enter();
    mmi_pool_run(x->pool, mmi_pieces(M, p.rows) * p.across, multiply_slice, &p);
    if (p.blas)
        mmi_blas_leave();
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

/* --- Weights in blocks --- */

/* Up to so many rows meet W as it lies; for more it pays to lay it out anew. Laying out costs as much as multiplying
 * with one or two rows: on Zen 3, 3 rows take as long either way. */
#define FEW_BLOCK_ROWS 3

/* Rows of a slice, for which W is laid out once, and its columns: at most so many, and fewer when there would be too
 * few slices. */
#define BLOCK_SLICE_ROWS 512
#define BLOCK_SLICE_COLS 256
#define BLOCK_STEP_COLS 32
#define QUANTIZED_PER_PIECE 8192

/* Some rows of X against all of W. */
typedef struct blocks {
    const mmi_exec *x;
    const float *X;
    unsigned char *quantized; /* [rows, K] */
    const unsigned char *W;
    float *Y;
    int64_t rows, N, K, ldx, ldy;
    int64_t quantize_rows, slice_rows, slice_cols, across; /* per piece */
    int32_t dtype;
} blocks;

int64_t mmi_gemm_blocks_scratch(const mmi_kernels *k, int64_t K)
{
    int64_t few = FEW_BLOCK_ROWS * mmi_quantized_row(K) / (int64_t)sizeof(float);
    return few > k->gemm_blocks_scratch ? few : k->gemm_blocks_scratch;
}

static void quantize_rows(void *arg, int64_t piece, int worker)
{
    const blocks *b = arg;
    int64_t i, i_end;
    (void)worker;
    mmi_piece_rows(piece, b->quantize_rows, b->rows, &i, &i_end);
    for (; i < i_end; i++)
        b->x->k.quantize(b->quantized + i * mmi_quantized_row(b->K), b->X + i * b->ldx, b->K);
}

static void multiply_few(void *arg, int64_t piece, int worker)
{
    const blocks *b = arg;
    int64_t j, j_end;
    (void)worker;
    mmi_piece_rows(piece, b->slice_cols, b->N, &j, &j_end);
    const unsigned char *w = b->W + mmi_dtype_bytes(b->dtype, j * b->K);
    b->x->k.gemv_blocks(b->Y + j, b->ldy, b->quantized, w, b->dtype, b->rows, j_end - j, b->K);
}

static void multiply_blocks(void *arg, int64_t piece, int worker)
{
    const blocks *b = arg;
    int64_t i, i_end, j, j_end;
    mmi_piece_rows(piece / b->across, b->slice_rows, b->rows, &i, &i_end);
    mmi_piece_rows(piece % b->across, b->slice_cols, b->N, &j, &j_end);
    const unsigned char *w = b->W + mmi_dtype_bytes(b->dtype, j * b->K);
    b->x->k.gemm_blocks(b->Y + i * b->ldy + j, b->ldy, b->quantized + i * mmi_quantized_row(b->K), w, b->dtype,
                        i_end - i, j_end - j, b->K, mmi_exec_scratch(b->x, worker));
}

/* The caller is worker 0, and nothing here uses scratch otherwise: its own holds what all read. */
static void multiply_few_rows(blocks *b)
{
    b->quantized = (unsigned char *)mmi_exec_scratch(b->x, 0);
    b->quantize_rows = b->rows;
    b->slice_cols = rows_per_piece(b->N, b->K);
    quantize_rows(b, 0, 0);
    mmi_pool_run(b->x->pool, mmi_pieces(b->N, b->slice_cols), multiply_few, b);
}

/* `panel` holds them quantized. */
static void multiply_many_rows(blocks *b, float *panel)
{
    b->quantized = (unsigned char *)panel;
    b->quantize_rows = mmi_pieces(QUANTIZED_PER_PIECE, b->K > 0 ? b->K : 1);
    mmi_pool_run(b->x->pool, mmi_pieces(b->rows, b->quantize_rows), quantize_rows, b);
    int64_t down = mmi_pieces(b->rows, BLOCK_SLICE_ROWS), wanted = mmi_pieces(WANTED_SLICES, down);
    int64_t cols = round_up(mmi_pieces(b->N, wanted), BLOCK_STEP_COLS);
    b->slice_rows = part(b->rows, down, 1);
    b->slice_cols = cols < BLOCK_SLICE_COLS ? cols : BLOCK_SLICE_COLS;
    b->across = mmi_pieces(b->N, b->slice_cols);
    mmi_pool_run(b->x->pool, down * b->across, multiply_blocks, b);
}

static void gemm_blocks(const mmi_exec *x, int64_t M, int64_t N, int64_t K, const float *X, int64_t ldx, const void *W,
                        int32_t dtype, float *panel, float *Y, int64_t ldy)
{
    int64_t room = N * K * (int64_t)sizeof(float) / mmi_quantized_row(K > 0 ? K : MMI_BLOCK);
    int64_t most = room > FEW_BLOCK_ROWS ? room : FEW_BLOCK_ROWS;
    for (int64_t i = 0; i < M && N > 0; i += most) {
        int64_t count = M - i < most ? M - i : most;
        blocks b = { .x = x,
                     .X = X + i * ldx,
                     .W = W,
                     .Y = Y + i * ldy,
                     .rows = count,
                     .N = N,
                     .K = K,
                     .ldx = ldx,
                     .ldy = ldy,
                     .dtype = dtype };
        if (count <= FEW_BLOCK_ROWS)
            multiply_few_rows(&b);
        else
            multiply_many_rows(&b, panel);
    }
}

void mmi_gemm_weight(const mmi_exec *x, int64_t M, int64_t N, int64_t K, const float *X, int64_t ldx, const void *W,
                     int32_t dtype, float *panel, float *Y, int64_t ldy)
{
    if (dtype == MM_F32) {
        mmi_gemm(x, false, true, M, N, K, X, ldx, W, K, false, Y, ldy);
    } else if (mmi_block_bytes(dtype) > 0) {
        gemm_blocks(x, M, N, K, X, ldx, W, dtype, panel, Y, ldy);
    } else if (M <= FEW_ROWS) {
        gemv(x, M, N, K, X, ldx, W, dtype, K, Y, ldy);
    } else {
        rows r = { x, X, W, Y, panel, M, N, K, ldx, K, ldy, rows_per_piece(N, K), dtype };
        mmi_pool_run(x->pool, mmi_pieces(N, r.step), widen_rows, &r);
        mmi_gemm(x, false, true, M, N, K, X, ldx, panel, K, false, Y, ldy);
    }
}
