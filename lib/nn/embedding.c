#include "nn/embedding.h"

#include <math.h>

#include "backend/strips.h"

#define ROWS 64    /* tokens per piece at least */
#define COLUMNS 64 /* of the gradient table, per piece */

typedef struct job {
    const mmi_exec *x;
    float *out;
    const float *in;
    mmi_weight table;
    const int32_t *ids;
    int64_t N, C, step;
} job;

#define BLOCKS_AT_ONCE 32

static void widen_strips(const job *j, float *out, int64_t row)
{
    unsigned char blocks[BLOCKS_AT_ONCE * MMI_MOST_BLOCK_BYTES];
    const int64_t all = j->C / MMI_BLOCK;
    for (int64_t b = 0; b < all; b += BLOCKS_AT_ONCE) {
        int64_t count = all - b < BLOCKS_AT_ONCE ? all - b : BLOCKS_AT_ONCE;
        mmi_strips_get(blocks, j->table.data, j->table.dtype, j->C, row, b, count);
        j->x->k.widen(out + b * MMI_BLOCK, blocks, j->table.dtype, count * MMI_BLOCK);
    }
}

static void gather(void *arg, int64_t piece, int worker)
{
    (void)worker;
    const job *j = arg;
    int64_t first, last;
    mmi_piece_rows(piece, j->step, j->N, &first, &last);
    const int32_t dtype = j->table.dtype;
    for (int64_t i = first; i < last; i++) {
        float *out = j->out + i * j->C;
        if (mmi_block_bytes(dtype) > 0)
            widen_strips(j, out, j->ids[i]);
        else
            j->x->k.widen(out, (const char *)j->table.data + mmi_dtype_bytes(dtype, j->ids[i] * j->C), dtype, j->C);
    }
}

void mmi_embedding_forward(const mmi_exec *x, float *y, mmi_weight table, const int32_t *ids, int64_t N)
{
    int64_t C = table.cols;
    job j = { .x = x, .out = y, .table = table, .ids = ids, .N = N, .C = C, .step = mmi_rows_worth(ROWS, C) };
    mmi_pool_run(x->pool, mmi_pieces(N, j.step), gather, &j);
}

/* One stripe of columns for all tokens: two tokens of the same id meet in the same piece, in order. */
static void scatter(void *arg, int64_t piece, int worker)
{
    (void)worker;
    const job *j = arg;
    int64_t first, last;
    mmi_piece_rows(piece, COLUMNS, j->C, &first, &last);
    for (int64_t i = 0; i < j->N; i++)
        j->x->k.add(j->out + j->ids[i] * j->C + first, j->in + i * j->C + first, last - first);
}

void mmi_embedding_backward(const mmi_exec *x, float *dtable, const float *dy, const int32_t *ids, int64_t N, int64_t C)
{
    job j = { .x = x, .out = dtable, .in = dy, .ids = ids, .N = N, .C = C };
    mmi_pool_run(x->pool, mmi_pieces(C, COLUMNS), scatter, &j);
}

void mmi_sinusoid_table(float *table, int64_t P, int64_t C)
{
    for (int64_t t = 0; t < P; t++)
        for (int64_t c = 0; c < C; c++) {
            double angle = (double)t * pow(10000.0, -(double)(c - c % 2) / (double)C);
            table[t * C + c] = (float)(c % 2 == 0 ? sin(angle) : cos(angle));
        }
}

static void add_positions(void *arg, int64_t piece, int worker)
{
    (void)worker;
    const job *j = arg;
    int64_t first, last;
    mmi_piece_rows(piece, ROWS, j->N, &first, &last);
    for (int64_t i = first; i < last; i++)
        j->x->k.add(j->out + i * j->C, j->in + j->ids[i] * j->C, j->C);
}

void mmi_sinusoid_add(const mmi_exec *x, float *y, const float *table, const int32_t *positions, int64_t N, int64_t C)
{
    job j = { .x = x, .out = y, .in = table, .ids = positions, .N = N, .C = C };
    mmi_pool_run(x->pool, mmi_pieces(N, ROWS), add_positions, &j);
}
