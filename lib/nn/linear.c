#include "nn/linear.h"

#include "base/dtype.h"
#include "nn/vector.h"

#define COLUMNS 64 /* per piece, where a bias's gradient is summed */

/* Matrices that read the same rows as one, when they lie one behind the other, as the layout puts q, k, v and gate, up.
 * Adapters are left out, and `joined` has the first one's gradient. False: they don't, run them one by one. */
static bool join_weights(mmi_param *joined, const mmi_param *parts, int count)
{
    *joined = parts[0];
    joined->loras = NULL;
    for (int i = 1; i < count; i++) {
        const mmi_param *p = &parts[i];
        int64_t taken = joined->w.rows * joined->w.cols;
        if (!p->w.data || p->w.dtype != joined->w.dtype || p->w.cols != joined->w.cols)
            return false;
        /* A last strip of blocks that has been filled up takes more than its rows, and ends it here. */
        if ((const char *)p->w.data != (const char *)joined->w.data + mmi_dtype_bytes(p->w.dtype, taken))
            return false;
        joined->w.rows += p->w.rows;
    }
    return true;
}

/* Whether their gradients do, or none has any. */
static bool join_gradients(const mmi_param *parts, int count)
{
    float *next = parts[0].grad;
    for (int i = 0; i < count; i++) {
        if (parts[i].grad != next)
            return false;
        next = next ? next + parts[i].w.rows * parts[i].w.cols : NULL;
    }
    return true;
}

static void bias_rows(const mmi_exec *x, float *y, int64_t ldy, mmi_param b, int64_t N, int64_t C)
{
    if (b.w.data)
        mmi_rows_add(x, y, ldy, b.w.data, 0, N, C);
}

static void adapt(const mmi_exec *x, float *y, int64_t ldy, mmi_operand in, mmi_param w, int64_t N)
{
    if (w.loras)
        mmi_loras_forward(x, y, ldy, in.data, in.ld, w.loras, N, w.w.rows, w.w.cols);
}

void mmi_linear_forward(const mmi_exec *x, float *y, int64_t ldy, mmi_operand in, mmi_param w, mmi_param b, int64_t N,
                        float *panel)
{
    mmi_gemm_weight(x, N, w.w.rows, w.w.cols, in, w.w.data, w.w.dtype, panel, y, ldy);
    bias_rows(x, y, ldy, b, N, w.w.rows);
    adapt(x, y, ldy, in, w, N);
}

static bool has_bias(const mmi_param *b, int count)
{
    bool any = false;
    for (int i = 0; i < count; i++)
        any |= b[i].w.data != NULL;
    return any;
}

void mmi_linear_group_forward(const mmi_exec *x, float *y, int64_t ldy, mmi_operand in, const mmi_param *w,
                              const mmi_param *b, int count, int64_t N, float *panel)
{
    mmi_param joined, none = { 0 };
    bool together = !has_bias(b, count) && join_weights(&joined, w, count);
    if (together)
        mmi_linear_forward(x, y, ldy, in, joined, none, N, panel);
    for (int i = 0; i < count; y += w[i].w.rows, i++)
        if (together)
            adapt(x, y, ldy, in, w[i], N);
        else
            mmi_linear_forward(x, y, ldy, in, w[i], b[i], N, panel);
}

mmi_quantizing mmi_linear_quantizing(const mmi_exec *x, const mmi_param *w, int count, int64_t N, float *panel,
                                     int64_t taken)
{
    mmi_quantizing q = { 0 };
    for (int i = 0; i < count && (i == 0 || q.rows); i++)
        q = mmi_quantizing_of(x, N, w[i].w.rows, w[i].w.cols, w[i].w.dtype, panel, taken);
    return q;
}

bool mmi_linear_add(const mmi_exec *x, float *y, const float *from, mmi_operand in, mmi_param w, mmi_param b, int64_t N,
                    float *panel, float *delta, bool later)
{
    int64_t C = w.w.rows;
    if (!from) {
        mmi_linear_forward(x, y, C, in, w, b, N, panel);
        return false;
    }
    if (w.w.dtype == MM_F32 && N > mmi_few_rows(x, w.w.cols)) {
        mmi_gemm(x, false, true, N, C, w.w.cols, in.data, in.ld, w.w.data, w.w.cols, from, y, C);
    } else { /* the products for few rows, and those through a panel, can't add */
        mmi_vector_copy(x, y, from, N * C);
        mmi_gemm_weight(x, N, C, w.w.cols, in, w.w.data, w.w.dtype, panel, delta, C);
        if (later && y == from && !b.w.data && !w.loras)
            return true;
        mmi_vector_axpy(x, y, 1, delta, N * C);
    }
    bias_rows(x, y, C, b, N, C);
    adapt(x, y, C, in, w, N);
    return false;
}

typedef struct bias_job {
    const mmi_exec *x;
    float *grad;
    const float *dy;
    int64_t lddy, N, C;
} bias_job;

static void sum_columns(void *arg, int64_t piece, int worker)
{
    (void)worker;
    const bias_job *j = arg;
    int64_t first, last;
    mmi_piece_rows(piece, COLUMNS, j->C, &first, &last);
    for (int64_t i = 0; i < j->N; i++)
        j->x->k.add(j->grad + first, j->dy + i * j->lddy + first, last - first);
}

void mmi_linear_backward(const mmi_exec *x, float *din, int64_t lddin, const float *dy, int64_t lddy, const float *in,
                         int64_t ldin, mmi_param w, mmi_param b, int64_t N, bool accumulate)
{
    int64_t rows = w.w.rows, cols = w.w.cols;
    if (din)
        mmi_gemm(x, false, false, N, cols, rows, dy, lddy, w.w.data, cols, accumulate ? din : NULL, din, lddin);
    if (w.grad)
        mmi_gemm(x, true, false, rows, cols, N, dy, lddy, in, ldin, w.grad, w.grad, cols);
    if (b.grad) {
        bias_job j = { x, b.grad, dy, lddy, N, rows };
        mmi_pool_run(x->pool, mmi_pieces(rows, COLUMNS), sum_columns, &j);
    }
    if (w.loras)
        mmi_loras_backward(x, din, lddin, dy, lddy, in, ldin, w.loras, N, rows, cols);
}

void mmi_linear_group_backward(const mmi_exec *x, float *din, int64_t lddin, const float *dy, int64_t lddy,
                               const float *in, int64_t ldin, const mmi_param *w, const mmi_param *b, int count,
                               int64_t N)
{
    mmi_param joined, none = { 0 };
    bool together = !has_bias(b, count) && join_weights(&joined, w, count);
    bool gradients = together && join_gradients(w, count);
    if (together) {
        if (!gradients)
            joined.grad = NULL;
        mmi_linear_backward(x, din, lddin, dy, lddy, in, ldin, joined, none, N, false);
    }
    for (int i = 0; i < count; dy += w[i].w.rows, i++) {
        if (!together) {
            mmi_linear_backward(x, din, lddin, dy, lddy, in, ldin, w[i], b[i], N, i > 0);
            continue;
        }
        mmi_param alone = w[i];
        alone.loras = NULL;
        if (!gradients)
            mmi_linear_backward(x, NULL, 0, dy, lddy, in, ldin, alone, none, N, false);
        if (w[i].loras)
            mmi_loras_backward(x, din, lddin, dy, lddy, in, ldin, w[i].loras, N, w[i].w.rows, w[i].w.cols);
    }
}
