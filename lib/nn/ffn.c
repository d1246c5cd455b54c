#include "nn/ffn.h"

#include "base/dtype.h"
#include "base/memory.h"

#define ACTIVATION 4 /* simple operations that one takes as long as */

typedef struct job {
    const mmi_exec *x;
    mmi_quantizing q; /* of mid */
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

/* Columns [from, to) of rows [first, last). A row of inner is the gate's F numbers, then the up projection's; without a
 * gate, the latter alone. */
static void activate(const job *j, int64_t first, int64_t last, int64_t from, int64_t to)
{
    for (int64_t i = first; i < last; i++) {
        const float *row = j->inner + i * j->ld + from;
        float *mid = j->mid + i * j->F + from;
        j->x->k.activate(mid, j->gated ? row : NULL, j->gated ? row + j->F : row, j->act, to - from);
        mmi_quantize(&j->q, i, mid, from, to - from);
    }
}

static void activate_rows(void *arg, int64_t piece, int worker)
{
    (void)worker;
    const job *j = arg;
    int64_t first, last;
    mmi_piece_rows(piece, j->step, j->N, &first, &last);
    activate(j, first, last, 0, j->F);
}

static void activate_columns(void *arg, int64_t first, int64_t last)
{
    const job *j = arg;
    activate(j, 0, j->N, first, last);
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

mmi_quantizing mmi_ffn_quantizing(const mmi_exec *x, const mmi_ffn *f, int64_t N, float *panel)
{
    mmi_param w[2], b[2];
    return mmi_linear_quantizing(x, w, readers(w, b, f), N, panel, 0);
}

/* Whether the activation may follow each part of gate and up at once: nothing is added to them. */
static bool can_pair(const mmi_ffn *f, mmi_operand h, int64_t N)
{
    const mmi_param *gate = &f->gate, *up = &f->up;
    bool alike = gate->w.data && gate->w.dtype == up->w.dtype && up->w.rows % MMI_BLOCK == 0;
    return alike && h.quantized && mmi_gemm_pairs(N) && !gate->loras && !up->loras && !f->gate_bias.w.data &&
           !f->up_bias.w.data;
}

/* inner and mid of h. */
static void inner_forward(const job *j, const mmi_ffn *f, float *inner, mmi_operand h, float *panel)
{
    if (can_pair(f, h, j->N)) {
        const void *const both[] = { f->gate.w.data, f->up.w.data };
        float *const to[] = { inner, inner + j->F };
        mmi_gemm_pair(j->x, j->N, j->F, f->up.w.cols, h.quantized, both, f->up.w.dtype, to, j->ld, activate_columns,
                      (void *)(uintptr_t)j);
        return;
    }
    mmi_param w[2], b[2];
    int count = readers(w, b, f);
    mmi_linear_group_forward(j->x, inner, j->ld, h, w, b, count, j->N, panel);
    mmi_pool_run(j->x->pool, mmi_pieces(j->N, j->step), activate_rows, (void *)(uintptr_t)j);
}

bool mmi_ffn_forward(const mmi_exec *x, float *y, const float *from, float *inner, float *mid, mmi_operand h,
                     const mmi_ffn *f, int64_t N, float *panel, float *delta, bool later)
{
    int64_t F = f->up.w.rows;
    job j = job_for(x, f, inner, mid, N);
    if (f->dropout.p <= 0) { /* h is read while mid is made */
        int64_t taken = h.quantized ? (int64_t)mmi_align_up((size_t)(N * mmi_quantized_row(f->up.w.cols))) : 0;
        j.q = mmi_linear_quantizing(x, &f->down, 1, N, panel, taken);
    }
    inner_forward(&j, f, inner, h, panel);
    mmi_dropout_apply(x, mid, N * F, f->dropout);
    return mmi_linear_add(x, y, from, (mmi_operand){ mid, F, j.q.rows }, f->down, f->down_bias, N, panel, delta, later);
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
