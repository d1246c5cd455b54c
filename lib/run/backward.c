#include <math.h>

#include "base/options.h"
#include "base/target.h"
#include "run/block.h"
#include "run/context.h"
#include "run/mlp.h"

MMI_OPTIONS_INIT(mm_backward_options, MM_BACKWARD_OPTIONS_INIT)

static mm_status check_options(const mm_context *ctx, const mm_backward_options *o)
{
    if (!ctx->can_go_back)
        return mmi_fail(MM_ERR_STATE, "there is no forward pass in MM_TRAIN mode to go back over");
    if (o->d_logits && o->d_logprobs)
        return mmi_fail(MM_ERR_ARG, "d_logits and d_logprobs can't be given together");
    if (!isfinite(o->loss_scale) || !isfinite(o->aux_scale))
        return mmi_fail(MM_ERR_ARG, "loss_scale is %g and aux_scale %g, both must be finite", o->loss_scale,
                        o->aux_scale);
    if (!(o->normalizer >= 0 && isfinite(o->normalizer)))
        return mmi_fail(MM_ERR_ARG, "normalizer is %g, must be finite and not negative", o->normalizer);
    if (!ctx->pass.has_targets && o->d_logprobs)
        return mmi_fail(MM_ERR_ARG, "d_logprobs needs a forward pass with targets");
    if (!ctx->pass.has_targets && !o->d_logits && !o->d_hidden)
        return mmi_fail(MM_ERR_STATE, "the forward pass had no targets, so there is no loss to go back from");
    return MM_OK;
}

static int64_t counted_targets(const mm_context *ctx)
{
    return ctx->pass.has_targets ? mmi_targets_counted(ctx->plan.targets, ctx->pass.N) : 0;
}

static bool from_loss(const mm_backward_options *o)
{
    return !o->d_logits && !o->d_logprobs && !o->d_hidden;
}

/* What the gradient of loss_sum is to be multiplied by. */
static float loss_weight(const mm_context *ctx, const mm_backward_options *o)
{
    int64_t count = o->normalizer > 0 ? 0 : counted_targets(ctx);
    return (float)(o->loss_scale / (o->normalizer > 0 ? o->normalizer : count > 0 ? (double)count : 1));
}

/* weights[i] = -d(loss)/d(logprob of row i). */
static void weigh_rows(mm_context *ctx, const mm_backward_options *o)
{
    float weight = loss_weight(ctx, o);
    for (int64_t i = 0; i < ctx->pass.N; i++)
        ctx->plan.weights[i] = o->d_logprobs ? (float)(-o->loss_scale * o->d_logprobs[i]) : weight;
}

/* The forward pass went back through the head already: all that is left is to divide. */
static void divide(mm_context *ctx, const mm_backward_options *o)
{
    mmi_plan *p = &ctx->plan;
    mmi_param head = mmi_block_head(ctx);
    float weight = loss_weight(ctx, o);
    mmi_vector_scale(&ctx->exec, p->dh, weight, ctx->pass.N * ctx->arch->C);
    if (head.grad)
        mmi_vector_axpy(&ctx->exec, head.grad, weight, p->head_grad, head.w.rows * head.w.cols);
}

/* plan.dh = gradient by the hidden states. */
static void start(mm_context *ctx, const mm_backward_options *o)
{
    mmi_plan *p = &ctx->plan;
    int64_t N = ctx->pass.N, C = ctx->arch->C;
    mmi_param head = mmi_block_head(ctx);
    if (ctx->head_is_back && from_loss(o)) {
        divide(ctx, o);
        return;
    }
    mmi_vector_zero(&ctx->exec, p->dh, N * C);
    if (o->d_logits) {
        mmi_head_backward_logits(&ctx->exec, p->dh, o->d_logits, (float)o->loss_scale, p->hidden, head, N, &p->head);
    } else if (o->d_logprobs || !o->d_hidden) {
        weigh_rows(ctx, o);
        mmi_head_backward(&ctx->exec, p->dh, p->weights, p->hidden, p->targets, head, N, &p->head);
    }
    if (o->d_hidden)
        mmi_vector_axpy(&ctx->exec, p->dh, (float)o->loss_scale, o->d_hidden, N * C);
}

/* The gradients of the model's tensors [first, end) are final. Those of an adapter are told all at the end. */
static void tell(const mm_context *ctx, const mm_backward_options *o, int64_t first, int64_t end)
{
    if (o->on_gradients && end > first && !ctx->adapter)
        o->on_gradients(o->user, first, end - first);
}

static void tell_the_end(const mm_context *ctx, const mm_backward_options *o)
{
    const mmi_trained trained = mmi_context_trained(ctx);
    if (o->on_gradients && ctx->adapter)
        o->on_gradients(o->user, 0, mmi_trained_count(&trained));
    tell(ctx, o, 0, ctx->layout->layer_first + ctx->lowest * ctx->layout->layer_stride);
}

static mm_status go_back(mm_context *ctx, const mm_backward_options *o)
{
    mmi_plan *p = &ctx->plan;
    const mmi_layout *layout = ctx->layout;
    int64_t N = ctx->pass.N, C = ctx->arch->C, L = ctx->arch->L;
    int64_t layers_end = layout->layer_first + L * layout->layer_stride;
    /* A batch that counts no target has no loss of any kind; a caller's own start brings the auxiliary loss along, and
     * so does one who wants it alone, as the targets of a step may all be in other batches. */
    bool wants_loss = from_loss(o) && o->loss_scale != 0;
    double aux_scale = wants_loss && counted_targets(ctx) == 0 ? 0 : o->aux_scale;
    start(ctx, o);
    mmi_vector_zero(&ctx->exec, p->dx, N * C);
    mmi_norm_backward(&ctx->exec, p->dx, p->dh, p->x_final, p->mean_final, p->rstd_final,
                      mmi_context_norm(ctx, MMI_FINAL_NORM, MMI_FINAL_NORM_BIAS, 0), N, C, p->partials);
    tell(ctx, o, layers_end, layout->count);
    for (int64_t l = L; l-- > ctx->lowest;) { /* below that nothing learns */
        if (mmi_context_take_cancel(ctx))
            return mmi_fail(MM_ERR_CANCELLED, "cancelled before the backward pass of layer %lld", (long long)l);
        if (ctx->limits.checkpointing) { /* what it kept was overwritten by the layers after it */
            mmi_block_forward(ctx, &ctx->pass, l);
            mmi_mlp_forward(ctx, &ctx->pass, l);
        }
        mmi_mlp_backward(ctx, &ctx->pass, l, aux_scale);
        mmi_block_backward(ctx, &ctx->pass, l);
        tell(ctx, o, layout->layer_first + l * layout->layer_stride,
             layout->layer_first + (l + 1) * layout->layer_stride);
    }
    float *embedding = mmi_context_param(ctx, MMI_EMBED, 0).grad;
    if (embedding) {
        mmi_dropout_apply(&ctx->exec, p->dx, N * C, mmi_context_dropout(ctx, &ctx->pass, MMI_SITE_EMBEDDING, 0, 0));
        mmi_embedding_backward(&ctx->exec, embedding, p->dx, p->ids, N, C);
    }
    tell_the_end(ctx, o);
    return MM_OK;
}

mm_status mm_backward(mm_context *ctx, const mm_backward_options *options)
{
    if (!ctx)
        return mmi_fail(MM_ERR_ARG, "mm_backward: context is NULL");
    mm_backward_options o = MM_BACKWARD_OPTIONS_INIT;
    mm_status status = mmi_options_read(&o, sizeof o, options, "mm_backward_options");
    if (status == MM_OK)
        status = mmi_context_enter(ctx, "mm_backward");
    if (status != MM_OK)
        return status;
    status = check_options(ctx, &o);
    if (status == MM_OK) {
        ctx->can_go_back = false;
        mmi_exec_enter(&ctx->exec);
        status = go_back(ctx, &o);
        mmi_exec_leave(&ctx->exec);
    }
    mmi_context_leave(ctx);
    return status;
}
