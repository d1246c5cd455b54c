#include <string.h>

#include "base/options.h"
#include "run/block.h"
#include "run/context.h"

static mm_status check_options(const mm_context *ctx, const mm_backward_options *o)
{
    if (!ctx->can_go_back)
        return mmi_fail(MM_ERR_STATE, "there is no forward pass in MM_TRAIN mode to go back over");
    if (o->d_logits && o->d_logprobs)
        return mmi_fail(MM_ERR_ARG, "d_logits and d_logprobs can't be given together");
    if (o->normalizer < 0)
        return mmi_fail(MM_ERR_ARG, "normalizer is %g, must not be negative", o->normalizer);
    if (!ctx->pass.has_targets && o->d_logprobs)
        return mmi_fail(MM_ERR_ARG, "d_logprobs needs a forward pass with targets");
    if (!ctx->pass.has_targets && !o->d_logits && !o->d_hidden)
        return mmi_fail(MM_ERR_STATE, "the forward pass had no targets, so there is no loss to go back from");
    return MM_OK;
}

/* weights[i] = -d(loss)/d(logprob of row i). */
static void weigh_rows(mm_context *ctx, const mm_backward_options *o)
{
    const int32_t *targets = ctx->plan.targets;
    int64_t N = ctx->pass.N, count = 0;
    for (int64_t i = 0; i < N; i++)
        count += targets[i] != MMI_IGNORE;
    double divisor = o->normalizer > 0 ? o->normalizer : (double)(count > 0 ? count : 1);
    for (int64_t i = 0; i < N; i++)
        ctx->plan.weights[i] = o->d_logprobs ? (float)(-o->loss_scale * o->d_logprobs[i]) : (float)(o->loss_scale / divisor);
}

/* plan.dh = gradient by the hidden states. */
static void start(mm_context *ctx, const mm_backward_options *o)
{
    mmi_plan *p = &ctx->plan;
    int64_t N = ctx->pass.N, C = ctx->arch->C;
    mmi_param head = mmi_block_head(ctx);
    memset(p->dh, 0, (size_t)(N * C) * sizeof(float));
    if (o->d_logits) {
        mmi_head_backward_logits(&ctx->exec, p->dh, o->d_logits, (float)o->loss_scale, p->hidden, head, N, &p->head);
    } else if (o->d_logprobs || !o->d_hidden) {
        weigh_rows(ctx, o);
        mmi_head_backward(&ctx->exec, p->dh, p->weights, p->lse, p->hidden, p->targets, head, N, &p->head);
    }
    if (o->d_hidden)
        ctx->exec.k.axpy(p->dh, (float)o->loss_scale, o->d_hidden, N * C);
}

/* plan.dx, the gradient by what the layer gave, becomes the gradient by what it read. What forward's norms gave is
 * computed again: it costs less than keeping it. */
static void back_over_feed_forward(mm_context *ctx, int64_t l)
{
    const mmi_exec *x = &ctx->exec;
    mmi_plan *p = &ctx->plan;
    const mmi_kept *kept = &p->layers[l];
    int64_t N = ctx->pass.N, C = ctx->arch->C;
    mmi_norm_params norm = mmi_context_norm(ctx, MMI_POST_NORM, MMI_POST_NORM_BIAS, l);
    mmi_ffn ffn = mmi_block_ffn(ctx, l);
    mmi_norm_forward(x, p->h, NULL, NULL, kept->x_mid, norm, N, C);
    mmi_ffn_backward(x, p->dh, p->dinner, p->mid, p->dx, p->h, kept->inner, &ffn, N);
    mmi_norm_backward(x, p->dx, p->dh, kept->x_mid, kept->mean2, kept->rstd2, norm, N, C, p->partials);
}

static void back_over_attention(mm_context *ctx, int64_t l)
{
    const mmi_exec *x = &ctx->exec;
    const mmi_arch *a = ctx->arch;
    mmi_plan *p = &ctx->plan;
    const mmi_kept *kept = &p->layers[l];
    int64_t N = ctx->pass.N, width = a->H * a->D;
    mmi_norm_params norm = mmi_context_norm(ctx, MMI_INPUT_NORM, MMI_INPUT_NORM_BIAS, l);
    mmi_linear_backward(x, p->dattn, width, p->dx, a->C, kept->attn, width, mmi_context_param(ctx, MMI_O, l),
                        mmi_context_param(ctx, MMI_O_BIAS, l), N, false);
    mmi_attention attention = mmi_block_attention(ctx, &ctx->pass, l);
    mmi_attention_backward(x, p->dqkv, p->dqkv + width, p->dqkv + width + a->G * a->D, p->dattn, kept->attn, kept->lse,
                           &attention);
    mmi_norm_forward(x, p->h, NULL, NULL, kept->x, norm, N, a->C);
    mmi_block_qkv_backward(ctx, &ctx->pass, l);
    mmi_norm_backward(x, p->dx, p->dh, kept->x, kept->mean1, kept->rstd1, norm, N, a->C, p->partials);
}

static mm_status go_back(mm_context *ctx, const mm_backward_options *o)
{
    mmi_plan *p = &ctx->plan;
    int64_t N = ctx->pass.N, C = ctx->arch->C;
    start(ctx, o);
    memset(p->dx, 0, (size_t)(N * C) * sizeof(float));
    mmi_norm_backward(&ctx->exec, p->dx, p->dh, p->x_final, p->mean_final, p->rstd_final,
                      mmi_context_norm(ctx, MMI_FINAL_NORM, MMI_FINAL_NORM_BIAS, 0), N, C, p->partials);
    for (int64_t l = ctx->arch->L; l-- > 0;) {
        if (mmi_context_take_cancel(ctx))
            return mmi_fail(MM_ERR_CANCELLED, "cancelled before the backward pass of layer %lld", (long long)l);
        back_over_feed_forward(ctx, l);
        back_over_attention(ctx, l);
    }
    float *embedding = mmi_context_param(ctx, MMI_EMBED, 0).grad;
    mmi_embedding_backward(&ctx->exec, embedding, p->dx, p->ids, N, C);
    return MM_OK;
}

mm_status mm_backward(mm_context *ctx, const mm_backward_options *options)
{
    if (!ctx)
        return mmi_fail(MM_ERR_ARG, "mm_backward: context is NULL");
    mm_backward_options o = MM_BACKWARD_OPTIONS_INIT;
    mm_status status = mmi_options_read(&o, sizeof o, options, "mm_backward_options");
    if (status == MM_OK)
        status = check_options(ctx, &o);
    if (status != MM_OK)
        return status;
    ctx->can_go_back = false;
    if (ctx->exec.blas)
        mmi_blas_enter();
    status = go_back(ctx, &o);
    if (ctx->exec.blas)
        mmi_blas_leave();
    return status;
}
