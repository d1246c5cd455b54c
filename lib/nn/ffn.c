#include "nn/ffn.h"

#define ACTIVATION 4 /* simple operations that one takes as long as */

typedef struct job {
    const mmi_exec *x;
    float *mid, *d_inner;
    const float *inner;
    int64_t ld, N, F, step;
    int32_t act;
    bool gated;
} job;

int64_t mmi_ffn_inner(const mmi_ffn *f)
{
    return f->up.w.rows * (f->gate.w.data ? 2 : 1);
}

/* A row of inner is the gate's F numbers, then the up projection's; without a gate, the latter alone. */
static void activate_rows(void *arg, int64_t piece, int worker)
{
    (void)worker;
    const job *j = arg;
    int64_t first, last;
    mmi_piece_rows(piece, j->step, j->N, &first, &last);
    for (int64_t i = first; i < last; i++) {
        const float *row = j->inner + i * j->ld;
        j->x->k.activate(j->mid + i * j->F, j->gated ? row : NULL, j->gated ? row + j->F : row, j->act, j->F);
    }
}

static void activate_rows_backward(void *arg, int64_t piece, int worker)
{
    (void)worker;
    const job *j = arg;
    int64_t first, last;
    mmi_piece_rows(piece, j->step, j->N, &first, &last);
    for (int64_t i = first; i < last; i++) {
        const float *row = j->inner + i * j->ld;
        float *d = j->d_inner + i * j->ld, *mid = j->mid + i * j->F;
        if (j->gated)
            j->x->k.activate_backward(d, d + j->F, mid, mid, row, row + j->F, j->act, j->F);
        else
            j->x->k.activate_backward(NULL, d, mid, mid, NULL, row, j->act, j->F);
    }
}

static job job_for(const mmi_exec *x, const mmi_ffn *f, const float *inner, float *mid, int64_t N)
{
    return (job){ .x = x,
                  .mid = mid,
                  .inner = inner,
                  .ld = mmi_ffn_inner(f),
                  .N = N,
                  .F = f->up.w.rows,
                  .step = mmi_rows_worth(1, ACTIVATION * f->up.w.rows),
                  .act = f->act,
                  .gated = f->gate.w.data != NULL };
}

/* What reads the network's input: the gate and the up projection, or the latter alone. */
static int readers(mmi_param w[2], mmi_param b[2], const mmi_ffn *f)
{
    int count = 0;
    if (f->gate.w.data) {
        w[count] = f->gate;
        b[count++] = f->gate_bias;
    }
    w[count] = f->up;
    b[count++] = f->up_bias;
    return count;
}

void mmi_ffn_forward(const mmi_exec *x, float *y, const float *from, float *inner, float *mid, const float *h,
                     const mmi_ffn *f, int64_t N, float *panel, float *delta)
{
    int64_t C = f->up.w.cols, F = f->up.w.rows, ld = mmi_ffn_inner(f);
    mmi_param w[2], b[2];
    int count = readers(w, b, f);
    mmi_linear_group_forward(x, inner, ld, h, C, w, b, count, N, panel);
    job j = job_for(x, f, inner, mid, N);
    mmi_pool_run(x->pool, mmi_pieces(N, j.step), activate_rows, &j);
    mmi_dropout_apply(x, mid, N * F, f->dropout);
    mmi_linear_add(x, y, from, mid, f->down, f->down_bias, N, panel, delta);
}

void mmi_ffn_backward(const mmi_exec *x, float *dh, float *d_inner, float *mid, const float *dy, const float *h,
                      const float *inner, const mmi_ffn *f, int64_t N)
{
    int64_t C = f->up.w.cols, F = f->up.w.rows, ld = mmi_ffn_inner(f);
    mmi_param down = f->down, none = { 0 }, w[2], b[2];
    int count = readers(w, b, f);
    down.grad = NULL; /* it needs mid, which only the activation's backward pass makes again */
    mmi_linear_backward(x, mid, F, dy, C, NULL, 0, down, none, N, false);
    mmi_dropout_apply(x, mid, N * F, f->dropout);
    job j = job_for(x, f, inner, mid, N);
    j.d_inner = d_inner;
    mmi_pool_run(x->pool, mmi_pieces(N, j.step), activate_rows_backward, &j);
    mmi_dropout_apply(x, mid, N * F, f->dropout);
    mmi_linear_backward(x, NULL, 0, dy, C, mid, F, f->down, f->down_bias, N, false);
    mmi_linear_group_backward(x, dh, C, d_inner, ld, h, C, w, b, count, N);
}
