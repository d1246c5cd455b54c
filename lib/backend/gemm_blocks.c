/* Products with weights in blocks. */
#include "backend/gemm.h"
#include "backend/product.h"
#include "backend/strips.h"

/* Up to so many rows are made whole numbers by the caller. */
#define FEW_BLOCK_ROWS 3

/* From so many on W meets them slice by slice; fewer read it in runs of neighbouring pieces, a thread its own. */
#define MANY_BLOCK_ROWS 64

/* Rows of a slice, which a part of W meets while it is in a cache, and its columns: at most so many, and fewer when
 * there would be too few slices, or where rows shall take fewer bytes. Many rows hide that the first columns of a slice
 * are not asked for ahead, so their slices are narrow. */
#define BLOCK_SLICE_ROWS 512
#define BLOCK_SLICE_COLS 256
#define BLOCK_STEP_ROWS 16
#define BLOCK_STEP_COLS (2 * MMI_STRIP)
#define MANY_SLICES (4 * WANTED_SLICES)
#define QUANTIZED_PER_PIECE 8192
#define WANTED_RUN 4 /* pieces of a pair of products, per thread */

/* Some rows of X against all of W. */
typedef struct blocks {
    const mmi_exec *x;
    const float *X;
    unsigned char *room;            /* where X becomes what is read */
    const unsigned char *quantized; /* [rows, K] */
    const unsigned char *W;         /* strips */
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

/* Rows of K quantized numbers that `panel` has room for, which is as large as W [N, K] in float32. */
static int64_t rows_in_panel(int64_t N, int64_t K, int64_t taken)
{
    return (N * K * (int64_t)sizeof(float) - taken) / mmi_quantized_row(K > 0 ? K : MMI_BLOCK);
}

mmi_quantizing mmi_quantizing_of(const mmi_exec *x, int64_t M, int64_t N, int64_t K, int32_t dtype, float *panel,
                                 int64_t taken)
{
    bool wanted =
        mmi_block_bytes(dtype) > 0 && K > 0 && !mmi_rounds_blocks(&x->k, M) && M <= rows_in_panel(N, K, taken);
    return (mmi_quantizing){ &x->k, wanted ? (unsigned char *)panel + taken : NULL, K };
}

static void quantize_rows(void *arg, int64_t piece, int worker)
{
    const blocks *b = arg;
    int64_t i, i_end;
    (void)worker;
    mmi_piece_rows(piece, b->quantize_rows, b->rows, &i, &i_end);
    for (; i < i_end; i++)
        b->x->k.quantize(b->room + i * mmi_quantized_row(b->K), b->K, b->X + i * b->ldx, 0, b->K);
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

/* Whether one thread is done with so few products before another has fetched what it needs and handed back what it
 * made. */
static bool worth_one_thread(const mmi_exec *x, int64_t rows, int64_t N, int64_t K)
{
    return N * K <= READ_ALONE && rows * N * K <= x->k.blocks_worth;
}

/* With some rows a small matrix is worth more than one thread, too. */
static void multiply_by_runs(blocks *b)
{
    int64_t cols = mmi_rows_per_piece(b->N, b->K, b->dtype);
    if (b->rows > FEW_BLOCK_ROWS)
        cols = least(cols, mmi_pieces(b->N, WANTED_SLICES));
    else if (b->rows == 1)
        cols = mmi_rows_per_run(b->x, b->N, b->K, b->dtype);
    b->run_cols = round_up(cols, MMI_STRIP);
    mmi_pool_run_neighbours(b->x->pool, mmi_pieces(b->N, b->run_cols), multiply_columns, b);
}

static void multiply_by_slices(blocks *b)
{
    const int64_t bytes = b->rows * mmi_quantized_row(b->K), together = b->x->k.slice_blocks;
    int64_t down = mmi_pieces(b->rows, BLOCK_SLICE_ROWS);
    if (together > 0)
        down = at_least(down, least(mmi_pieces(bytes, together), b->rows / MANY_BLOCK_ROWS));
    int64_t wanted = mmi_pieces(MANY_SLICES, down);
    int64_t cols = round_up(mmi_pieces(b->N, wanted), BLOCK_STEP_COLS);
    b->cut = (cut){
        .M = b->rows, .N = b->N, .rows = part(b->rows, down, BLOCK_STEP_ROWS), .cols = least(cols, BLOCK_SLICE_COLS)
    };
    cut_finish(&b->cut, b->K, BLOCK_STEP_ROWS, BLOCK_STEP_COLS, mmi_pool_threads(b->x->pool));
    mmi_pool_run(b->x->pool, cut_pieces(&b->cut), multiply_slice, b);
}

/* The caller is worker 0, and nothing here uses scratch otherwise: its own holds what few rows become, and `panel` what
 * many do. */
static void quantize(blocks *b, float *panel, bool alone)
{
    const bool few = b->rows <= FEW_BLOCK_ROWS;
    b->room = (unsigned char *)(few ? mmi_exec_scratch(b->x, 0) : panel);
    b->quantized = b->room;
    b->quantize_rows = few || alone ? b->rows : mmi_pieces(QUANTIZED_PER_PIECE, b->K > 0 ? b->K : 1);
    mmi_pool_run(b->x->pool, mmi_pieces(b->rows, b->quantize_rows), quantize_rows, b);
}

/* Two products side by side. */
typedef struct pair {
    blocks b[2];
    mmi_columns_fn then;
    void *arg;
} pair;

static void multiply_pair(void *arg, int64_t piece, int worker)
{
    const pair *p = arg;
    int64_t j, j_end;
    mmi_piece_rows(piece, p->b[0].run_cols, p->b[0].N, &j, &j_end);
    for (int i = 0; i < 2; i++)
        multiply_columns((void *)(uintptr_t)&p->b[i], piece, worker);
    p->then(p->arg, j, j_end);
}

/* Columns in so many pieces, blocks of 32 each, that threads have as much to do; else in more than enough. No number
 * depends on where they are cut. */
static int64_t even_columns(int64_t N, int threads)
{
    const int64_t whole = mmi_pieces(N, MMI_BLOCK);
    int64_t pieces = (int64_t)WANTED_RUN * threads;
    for (int64_t fewer = pieces; fewer >= threads; fewer -= threads)
        if (whole % fewer == 0) {
            pieces = fewer;
            break;
        }
    return mmi_pieces(whole, pieces) * MMI_BLOCK;
}

bool mmi_gemm_pairs(int64_t M)
{
    return M > FEW_BLOCK_ROWS && M < MANY_BLOCK_ROWS;
}

void mmi_gemm_pair(const mmi_exec *x, int64_t M, int64_t N, int64_t K, const unsigned char *X, const void *const W[2],
                   int32_t dtype, float *const Y[2], int64_t ldy, mmi_columns_fn then, void *arg)
{
    if (N <= 0)
        return;
    const bool alone = worth_one_thread(x, M, 2 * N, K);
    pair p = { .then = then, .arg = arg };
    for (int i = 0; i < 2; i++)
        p.b[i] = (blocks){ .x = x,
                           .quantized = X,
                           .W = W[i],
                           .Y = Y[i],
                           .rows = M,
                           .N = N,
                           .K = K,
                           .run_cols = alone ? N : even_columns(N, mmi_pool_threads(x->pool)),
                           .ldy = ldy,
                           .dtype = dtype };
    mmi_pool_run_neighbours(x->pool, mmi_pieces(N, p.b[0].run_cols), multiply_pair, &p);
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

void mmi_product_of_blocks(const mmi_exec *x, int64_t M, int64_t N, int64_t K, mmi_operand X, const void *W,
                           int32_t dtype, float *panel, float *Y, int64_t ldy)
{
    if (mmi_rounds_blocks(&x->k, M) && N > 0 && K > 0) {
        multiply_rounded(x, M, N, K, X.data, X.ld, W, dtype, Y, ldy);
        return;
    }
    int64_t room = X.quantized ? M : rows_in_panel(N, K, 0);
    int64_t most = room > FEW_BLOCK_ROWS ? room : FEW_BLOCK_ROWS;
    for (int64_t i = 0; i < M && N > 0; i += most) {
        int64_t count = M - i < most ? M - i : most;
        blocks b = { .x = x,
                     .X = X.data + i * X.ld,
                     .quantized = X.quantized,
                     .W = W,
                     .Y = Y + i * ldy,
                     .rows = count,
                     .N = N,
                     .K = K,
                     .ldx = X.ld,
                     .ldy = ldy,
                     .dtype = dtype };
        const bool alone = worth_one_thread(x, count, N, K);
        if (!X.quantized)
            quantize(&b, panel, alone);
        if (alone)
            multiply_blocks(&b, 0, count, 0, N);
        else if (count < MANY_BLOCK_ROWS)
            multiply_by_runs(&b);
        else
            multiply_by_slices(&b);
    }
}
