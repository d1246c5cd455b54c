/* Products with weights in blocks. */
#include "backend/gemm.h"
#include "backend/product.h"
#include "backend/strips.h"

/* Up to so many rows are made whole numbers by the caller. */
#define FEW_BLOCK_ROWS 3

/* From so many on W meets them slice by slice; fewer read it in runs of neighbouring pieces, a thread its own. */
#define MANY_BLOCK_ROWS 64

/* Rows of a slice, which a part of W meets while it is in a cache, and its columns: at most so many, and fewer when
 * there would be too few slices. Many rows hide that the first columns of a slice are not asked for ahead, so their
 * slices are narrow. */
#define BLOCK_SLICE_ROWS 512
#define BLOCK_SLICE_COLS 256
#define BLOCK_STEP_ROWS 16
#define BLOCK_STEP_COLS (2 * MMI_STRIP)
#define MANY_SLICES (4 * WANTED_SLICES)
#define QUANTIZED_PER_PIECE 8192

/* Some rows of X against all of W. */
typedef struct blocks {
    const mmi_exec *x;
    const float *X;
    unsigned char *quantized; /* [rows, K] */
    const unsigned char *W;   /* strips */
    float *Y;
    int64_t rows, N, K, ldx, ldy;
    int64_t quantize_rows, run_cols; /* per piece */
    cut cut;
    int32_t dtype;
} blocks;

int64_t mmi_gemm_blocks_scratch(int64_t K)
{
    return FEW_BLOCK_ROWS * mmi_quantized_row(K) / (int64_t)sizeof(float);
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

/* Rows [i, i_end) of X against rows [j, j_end) of W, from the beginning of a strip. */
static void multiply_blocks(const blocks *b, int64_t i, int64_t i_end, int64_t j, int64_t j_end)
{
    const unsigned char *w = b->W + mmi_dtype_bytes(b->dtype, j * b->K);
    b->x->k.gemm_blocks(b->Y + i * b->ldy + j, b->ldy, b->quantized + i * mmi_quantized_row(b->K), w, b->dtype,
                        i_end - i, j_end - j, b->K);
}

static void multiply_columns(void *arg, int64_t piece, int worker)
{
    const blocks *b = arg;
    int64_t j, j_end;
    (void)worker;
    mmi_piece_rows(piece, b->run_cols, b->N, &j, &j_end);
    multiply_blocks(b, 0, b->rows, j, j_end);
}

static void multiply_slice(void *arg, int64_t piece, int worker)
{
    const blocks *b = arg;
    int64_t i, i_end, j, j_end;
    (void)worker;
    if (cut_piece(&b->cut, piece, &i, &i_end, &j, &j_end))
        multiply_blocks(b, i, i_end, j, j_end);
}

/* With some rows a small matrix is worth more than one thread, too. */
static void multiply_by_runs(blocks *b)
{
    int64_t cols = mmi_rows_per_piece(b->N, b->K, b->dtype);
    if (b->rows > FEW_BLOCK_ROWS)
        cols = least(cols, mmi_pieces(b->N, WANTED_SLICES));
    b->run_cols = round_up(cols, MMI_STRIP);
    mmi_pool_run_neighbours(b->x->pool, mmi_pieces(b->N, b->run_cols), multiply_columns, b);
}

static void multiply_by_slices(blocks *b)
{
    int64_t down = mmi_pieces(b->rows, BLOCK_SLICE_ROWS), wanted = mmi_pieces(MANY_SLICES, down);
    int64_t cols = round_up(mmi_pieces(b->N, wanted), BLOCK_STEP_COLS);
    b->cut = (cut){
        .M = b->rows, .N = b->N, .rows = part(b->rows, down, BLOCK_STEP_ROWS), .cols = least(cols, BLOCK_SLICE_COLS)
    };
    cut_finish(&b->cut, b->K, BLOCK_STEP_ROWS, BLOCK_STEP_COLS);
    mmi_pool_run(b->x->pool, cut_pieces(&b->cut), multiply_slice, b);
}

/* The caller is worker 0, and nothing here uses scratch otherwise: its own holds what all read. */
static void quantize_few(blocks *b)
{
    b->quantized = (unsigned char *)mmi_exec_scratch(b->x, 0);
    for (int64_t i = 0; i < b->rows; i++)
        b->x->k.quantize(b->quantized + i * mmi_quantized_row(b->K), b->X + i * b->ldx, b->K);
}

/* `panel` holds them then. */
static void quantize_many(blocks *b, float *panel)
{
    b->quantized = (unsigned char *)panel;
    b->quantize_rows = mmi_pieces(QUANTIZED_PER_PIECE, b->K > 0 ? b->K : 1);
    mmi_pool_run(b->x->pool, mmi_pieces(b->rows, b->quantize_rows), quantize_rows, b);
}

/* As numbers in bf16, and X rounded to it. */
static void multiply_rounded(const mmi_exec *x, int64_t M, int64_t N, int64_t K, const float *X, int64_t ldx,
                             const void *W, int32_t dtype, float *Y, int64_t ldy)
{
    mmi_exec rounding = *x;
    rounding.compute = MM_BF16;
    product p = product_of_weight(&rounding, M, N, K, X, ldx, W, dtype, Y, ldy);
    mmi_product_by_panels(&p, false);
}

void mmi_product_of_blocks(const mmi_exec *x, int64_t M, int64_t N, int64_t K, const float *X, int64_t ldx,
                           const void *W, int32_t dtype, float *panel, float *Y, int64_t ldy)
{
    if (mmi_rounds_blocks(&x->k, M) && N > 0 && K > 0) {
        multiply_rounded(x, M, N, K, X, ldx, W, dtype, Y, ldy);
        return;
    }
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
            quantize_few(&b);
        else
            quantize_many(&b, panel);
        if (count < MANY_BLOCK_ROWS)
            multiply_by_runs(&b);
        else
            multiply_by_slices(&b);
    }
}
