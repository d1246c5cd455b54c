#include "nn/norm.h"

#include <string.h>

/* Rows are cut into at most so many pieces; each adds up its share of the weights' gradient by itself, and the shares
 * are then added in order. */
#define MOST_PIECES 64
#define LEAST_ROWS 16
#define QUANTIZING 2 /* norms that it takes as long as */

typedef struct job {
    const mmi_exec *x;
    float *y, *mean, *rstd; /* forward's outputs; backward's din is y */
    const float *dy, *in, *mean_in, *rstd_in;
    int64_t ldy, ldin, N, C, heads, step;
    mmi_norm_params p;
    const mmi_norm_beside *beside;
    float *partials;
} job;

static int64_t rows_per_piece(int64_t N, int64_t width)
{
    int64_t step = (N + MOST_PIECES - 1) / MOST_PIECES, worth = mmi_rows_worth(LEAST_ROWS, width);
    return step < worth ? worth : step;
}

int64_t mmi_norm_partials(int64_t C)
{
    return 2 * MOST_PIECES * C;
}

static void forward_rows(void *arg, int64_t piece, int worker)
{
    (void)worker;
    const job *j = arg;
    int64_t first, last, C = j->C;
    mmi_piece_rows(piece, j->step, j->N, &first, &last);
    float *y = j->y + first * C, *rstd = j->rstd ? j->rstd + first : NULL;
    const float *in = j->in + first * C, *w = j->p.weight.w.data, *b = j->p.bias.w.data;
    const mmi_norm_beside *beside = j->beside;
    if (beside && beside->delta)
        j->x->k.add(beside->stream + first * C, beside->delta + first * C, (last - first) * C);
    if (b)
        j->x->k.layernorm_forward(y, C, j->mean ? j->mean + first : NULL, rstd, in, C, w, b, last - first, C, j->p.eps);
    else
        j->x->k.rmsnorm_forward(y, C, rstd, in, C, w, last - first, C, j->p.eps);
    for (; beside && first < last; first++)
        mmi_quantize(&beside->q, first, j->y + first * C, 0, C);
}

void mmi_norm_forward(const mmi_exec *x, float *y, float *mean, float *rstd, const float *in, mmi_norm_params p,
                      int64_t N, int64_t C, const mmi_norm_beside *beside)
{
    const int64_t work = C * (1 + (beside && beside->delta) + (beside && beside->q.rows ? QUANTIZING : 0));

    job j = { .x = x,
              .y = y,
              .mean = mean,
              .rstd = rstd,
              .in = in,
              .N = N,
              .C = C,
              .p = p,
              .beside = beside,
              .step = mmi_rows_worth(1, work) };
    mmi_pool_run_neighbours(x->pool, mmi_pieces(N, j.step), forward_rows, &j);
}

static void backward_rows(void *arg, int64_t piece, int worker)
{
    (void)worker;
    const job *j = arg;
    int64_t first, last, C = j->C, n;
    mmi_piece_rows(piece, j->step, j->N, &first, &last);
    n = last - first;
    float *share = j->partials + 2 * piece * C;
    float *dw = j->p.weight.grad ? share : NULL, *db = j->p.bias.grad ? share + C : NULL;
    const float *w = j->p.weight.w.data;
    memset(share, 0, (size_t)(2 * C) * sizeof(float));
    if (j->p.bias.w.data)
        j->x->k.layernorm_backward(j->y + first * C, C, dw, db, j->dy + first * C, C, j->in + first * C, C, w,
                                   j->mean_in + first, j->rstd_in + first, n, C);
    else
        j->x->k.rmsnorm_backward(j->y + first * C, C, dw, j->dy + first * C, C, j->in + first * C, C, w,
                                 j->rstd_in + first, n, C);
}

static void add_partials(const mmi_exec *x, mmi_norm_params p, const float *partials, int64_t pieces, int64_t C)
{
    for (int64_t i = 0; i < pieces; i++) {
        if (p.weight.grad)
            x->k.add(p.weight.grad, partials + 2 * i * C, C);
        if (p.bias.grad)
            x->k.add(p.bias.grad, partials + (2 * i + 1) * C, C);
    }
}

void mmi_norm_backward(const mmi_exec *x, float *din, const float *dy, const float *in, const float *mean,
                       const float *rstd, mmi_norm_params p, int64_t N, int64_t C, float *partials)
{
    job j = { .x = x,
              .y = din,
              .dy = dy,
              .in = in,
              .mean_in = mean,
              .rstd_in = rstd,
              .N = N,
              .C = C,
              .p = p,
              .partials = partials,
              .step = rows_per_piece(N, C) };
    int64_t pieces = mmi_pieces(N, j.step);
    mmi_pool_run(x->pool, pieces, backward_rows, &j);
    add_partials(x, p, partials, pieces, C);
}

static void forward_heads(void *arg, int64_t piece, int worker)
{
    (void)worker;
    const job *j = arg;
    int64_t first, last;
    mmi_piece_rows(piece, j->step, j->N, &first, &last);
    for (int64_t i = first; i < last; i++)
        j->x->k.rmsnorm_forward(j->y + i * j->ldy, j->C, j->rstd ? j->rstd + i * j->heads : NULL, j->in + i * j->ldin,
                                j->C, j->p.weight.w.data, j->heads, j->C, j->p.eps);
}

void mmi_head_norm_forward(const mmi_exec *x, float *y, int64_t ldy, float *rstd, const float *in, int64_t ldin,
                           mmi_norm_params p, int64_t N, int64_t heads, int64_t D)
{
    job j = { .x = x,
              .y = y,
              .ldy = ldy,
              .rstd = rstd,
              .in = in,
              .ldin = ldin,
              .N = N,
              .C = D,
              .heads = heads,
              .p = p,
              .step = rows_per_piece(N, heads * D) };
    mmi_pool_run(x->pool, mmi_pieces(N, j.step), forward_heads, &j);
}

static void backward_heads(void *arg, int64_t piece, int worker)
{
    const job *j = arg;
    int64_t first, last, D = j->C, width = j->heads * D;
    mmi_piece_rows(piece, j->step, j->N, &first, &last);
    float *share = j->partials + 2 * piece * D, *dx = mmi_exec_scratch(j->x, worker);
    float *dw = j->p.weight.grad ? share : NULL;
    memset(share, 0, (size_t)(2 * D) * sizeof(float));
    for (int64_t i = first; i < last; i++) {
        float *d = j->y + i * j->ldy;
        memset(dx, 0, (size_t)width * sizeof(float));
        j->x->k.rmsnorm_backward(dx, D, dw, d, D, j->in + i * j->ldin, D, j->p.weight.w.data, j->rstd_in + i * j->heads,
                                 j->heads, D);
        memcpy(d, dx, (size_t)width * sizeof(float));
    }
}

void mmi_head_norm_backward(const mmi_exec *x, float *d, int64_t ldd, const float *in, int64_t ldin, const float *rstd,
                            mmi_norm_params p, int64_t N, int64_t heads, int64_t D, float *partials)
{
    job j = { .x = x,
              .y = d,
              .ldy = ldd,
              .in = in,
              .ldin = ldin,
              .rstd_in = rstd,
              .N = N,
              .C = D,
              .heads = heads,
              .p = p,
              .partials = partials,
              .step = rows_per_piece(N, heads * D) };
    int64_t pieces = mmi_pieces(N, j.step);
    mmi_pool_run(x->pool, pieces, backward_heads, &j);
    add_partials(x, p, partials, pieces, D);
}
