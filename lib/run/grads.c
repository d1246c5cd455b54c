#include <math.h>
#include <string.h>

#include "run/context.h"

#define PIECE (1 << 16) /* floats */

static mm_status check_has_grads(const mm_context *ctx, const char *what)
{
    if (!ctx)
        return mmi_fail(MM_ERR_ARG, "%s: context is NULL", what);
    if (!ctx->grads)
        return mmi_fail(MM_ERR_STATE, "%s: a context planned for MM_EVAL holds no gradients", what);
    return MM_OK;
}

/* What writes them or takes the scratch memory has the context to itself: mmi_context_leave() it. */
static mm_status enter(mm_context *ctx, const char *what)
{
    mm_status status = check_has_grads(ctx, what);
    return status == MM_OK ? mmi_context_enter(ctx, what) : status;
}

mm_status mm_zero_grad(mm_context *ctx)
{
    mm_status status = enter(ctx, "mm_zero_grad");
    if (status != MM_OK)
        return status;
    mmi_vector_zero(&ctx->exec, ctx->grads, (int64_t)(ctx->grads_size / sizeof(float)));
    mmi_context_leave(ctx);
    return MM_OK;
}

mm_status mm_grad(mm_context *ctx, int64_t index, mm_view *out)
{
    mm_status status = check_has_grads(ctx, "mm_grad");
    if (status != MM_OK)
        return status;
    if (!out)
        return mmi_fail(MM_ERR_ARG, "mm_grad: out is NULL");
    const int64_t count = ctx->adapter ? mm_adapter_tensor_count(ctx->adapter) : mm_model_tensor_count(ctx->model);
    if (index < 0 || index >= count)
        return mmi_fail(MM_ERR_ARG, "mm_grad: there is no tensor %lld, the %s has %lld", (long long)index,
                        ctx->adapter ? "adapter" : "model", (long long)count);
    mm_view view;
    status = ctx->adapter ? mm_adapter_tensor(ctx->adapter, index, &view) : mm_model_tensor(ctx->model, index, &view);
    if (status != MM_OK)
        return status;
    view.data = mmi_context_grads(ctx, index);
    view.dtype = MM_F32;
    if (!view.data)
        return mmi_fail(MM_ERR_STATE, "mm_grad: tensor %lld is frozen: the context's trainable leaves it out",
                        (long long)index);
    *out = view;
    return MM_OK;
}

typedef struct job {
    const mmi_exec *x;
    const float *from;
    int64_t n;
    double *sums;
} job;

/* The same tensors at the same places. */
static bool train_alike(const mm_context *a, const mm_context *b)
{
    mmi_trained x = mmi_context_trained(a), y = mmi_context_trained(b);
    if (!x.adapter != !y.adapter || !mmi_trained_alike(&x, &y))
        return false;
    return x.adapter || memcmp(a->offsets, b->offsets, (size_t)x.layout->count * sizeof *a->offsets) == 0;
}

mm_status mm_grad_add(mm_context *dst, mm_context *src, double scale)
{
    mm_status status = check_has_grads(src, "mm_grad_add");
    if (status == MM_OK)
        status = enter(dst, "mm_grad_add");
    if (status != MM_OK)
        return status;
    if (train_alike(dst, src))
        mmi_vector_axpy(&dst->exec, dst->grads, (float)scale, src->grads, (int64_t)(dst->grads_size / sizeof(float)));
    else
        status =
            mmi_fail(MM_ERR_ARG, "mm_grad_add: the two contexts train different tensors, or run different configs");
    mmi_context_leave(dst);
    return status;
}

/* Each piece's sum goes to a place of its own and they are added in order, so threads don't show. The places are the
 * scratch memory's: 4 GB of gradients are 16384 pieces, taken in rounds of what fits. */
static void sum_piece(void *arg, int64_t piece, int worker)
{
    (void)worker;
    const job *j = arg;
    int64_t first, last;
    mmi_piece_rows(piece, PIECE, j->n, &first, &last);
    j->sums[piece] = j->x->k.sum_squares(j->from + first, last - first);
}

mm_status mm_grad_norm(mm_context *ctx, double *out)
{
    if (!out)
        return mmi_fail(MM_ERR_ARG, "mm_grad_norm: out is NULL");
    mm_status status = enter(ctx, "mm_grad_norm");
    if (status != MM_OK)
        return status;
    int64_t n = (int64_t)(ctx->grads_size / sizeof(float)), round = (int64_t)PIECE * (ctx->plan.scratch_stride / 2);
    double total = 0;
    for (int64_t first = 0; first < n; first += round) {
        job j = { .x = &ctx->exec,
                  .from = ctx->grads + first,
                  .n = n - first < round ? n - first : round,
                  .sums = (double *)ctx->plan.scratch };
        int64_t pieces = mmi_pieces(j.n, PIECE);
        mmi_pool_run(ctx->exec.pool, pieces, sum_piece, &j);
        for (int64_t i = 0; i < pieces; i++)
            total += j.sums[i];
    }
    *out = sqrt(total);
    mmi_context_leave(ctx);
    return MM_OK;
}
