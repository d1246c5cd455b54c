#include <string.h>

#include "base/files.h"
#include "run/block.h"
#include "run/context.h"
#include "run/mlp.h"
#include "run/share.h"

/* Logits behind single rows: only these go through the final norm when nothing else is wanted. */
static void run_last_logits(mm_context *ctx, const mmi_pass *pass)
{
    int64_t C = ctx->arch->C;
    mmi_param head = mmi_block_head(ctx);
    for (int64_t i = 0; i < pass->last; i++)
        memcpy(ctx->plan.last_hidden + i * C, ctx->plan.x_final + ctx->plan.last_rows[i] * C,
               (size_t)C * sizeof(float));
    mmi_quantizing q = mmi_linear_quantizing(&ctx->exec, &head, 1, pass->last, ctx->plan.panel, 0);
    mmi_norm_beside beside = { .q = q };
    mmi_norm_forward(&ctx->exec, ctx->plan.last_hidden, NULL, NULL, ctx->plan.last_hidden,
                     mmi_context_norm(ctx, MMI_FINAL_NORM, MMI_FINAL_NORM_BIAS, 0), pass->last, C, &beside);
    mmi_linear_forward(&ctx->exec, ctx->plan.last_logits, ctx->arch->V,
                       (mmi_operand){ ctx->plan.last_hidden, C, q.rows }, head, (mmi_param){ 0 }, pass->last,
                       ctx->plan.panel);
}

/* A pass for the loss alone is all but sure to be gone back over, from that loss, so its head goes back at once. */
static bool head_goes_back(const mmi_pass *pass)
{
    return pass->mode == MM_TRAIN && pass->has_targets && pass->outputs == MM_OUT_LOSS;
}

/* The head with the plan's place for its gradient. */
static mmi_param undivided(mm_context *ctx)
{
    mmi_param head = mmi_block_head(ctx);
    head.grad = ctx->plan.head_grad;
    if (head.grad)
        mmi_vector_zero(&ctx->exec, head.grad, head.w.rows * head.w.cols);
    return head;
}

static void run_head(mm_context *ctx, const mmi_pass *pass)
{
    const mmi_exec *x = &ctx->exec;
    const mmi_arch *a = ctx->arch;
    mmi_plan *p = &ctx->plan;
    if (pass->last > 0)
        run_last_logits(ctx, pass);
    bool probs = pass->outputs & (MM_OUT_LOSS | MM_OUT_LOGPROBS);
    if (!probs && !(pass->outputs & (MM_OUT_LOGITS | MM_OUT_HIDDEN)) && pass->mode == MM_EVAL)
        return;
    mmi_param head = mmi_block_head(ctx);
    mmi_norm_forward(x, p->hidden, p->mean_final, p->rstd_final, p->x_final,
                     mmi_context_norm(ctx, MMI_FINAL_NORM, MMI_FINAL_NORM_BIAS, 0), pass->N, a->C, NULL);
    bool all = pass->outputs & MM_OUT_LOGITS;
    if (all)
        mmi_linear_forward(x, p->logits, a->V, mmi_operand_of(p->hidden, a->C), head, (mmi_param){ 0 }, pass->N,
                           p->panel);
    if (ctx->head_is_back)
        mmi_head_learn(x, p->dh, p->logprobs, p->hidden, p->targets, undivided(ctx), pass->N, &p->head);
    else if (probs || (pass->mode == MM_TRAIN && pass->has_targets))
        mmi_head_logprobs(x, p->logprobs, p->hidden, all ? p->logits : NULL, p->targets, head, pass->N, p->panel,
                          &p->head);
}

static void widen_vectors(mm_context *ctx)
{
    uint64_t version = mmi_model_version(ctx->model);
    if (!ctx->limits.weights.wide || ctx->widened == version)
        return;
    for (int64_t i = 0; i < ctx->layout->count; i++) {
        mmi_tensor t;
        mmi_layout_tensor(ctx->layout, i, &t);
        if (t.rank == 1) {
            mmi_weight w = mmi_model_weight(ctx->model, i);
            ctx->exec.k.widen(ctx->plan.vectors + ctx->offsets[i] / sizeof(float), w.data, w.dtype, t.elements);
        }
    }
    ctx->widened = version;
}

static mm_status run_layers(mm_context *ctx, const mmi_pass *pass)
{
    mmi_plan *p = &ctx->plan;
    float *first = p->layers[0].x;
    mmi_embedding_forward(&ctx->exec, first, mmi_context_param(ctx, MMI_EMBED, 0).w, p->ids, pass->N);
    if (p->sinusoid)
        mmi_sinusoid_add(&ctx->exec, first, p->sinusoid, p->positions, pass->N, ctx->arch->C);
    mmi_dropout_apply(&ctx->exec, first, pass->N * ctx->arch->C,
                      mmi_context_dropout(ctx, pass, MMI_SITE_EMBEDDING, 0, 0));
    ctx->aux_loss = 0;
    ctx->owed = false;
    ctx->head_is_back = head_goes_back(pass);
    for (int64_t l = 0; l < ctx->arch->L; l++) {
        if (mmi_context_take_cancel(ctx))
            return mmi_fail(MM_ERR_CANCELLED, "cancelled before layer %lld", (long long)l);
        mmi_block_forward(ctx, pass, l);
        ctx->aux_loss += mmi_mlp_forward(ctx, pass, l);
    }
    if (ctx->owed)
        mmi_vector_axpy(&ctx->exec, p->x_final, 1, p->delta, pass->N * ctx->arch->C);
    ctx->owed = false;
    mmi_share_weights(ctx, pass); /* here all threads are awake, mostly */
    run_head(ctx, pass);
    return MM_OK;
}

/* With all threads or without the others, as is better here. */
static mm_status run_layers_in_time(mm_context *ctx, const mmi_pass *pass)
{
    mmi_pool *pool = ctx->exec.pool;
    const int threads = mmi_pool_threads(pool);
    mmi_trial *t = threads > 1 && pass->mode == MM_EVAL ? mmi_trial_of(ctx->trials, pass->N) : NULL;
    if (!t)
        return run_layers(ctx, pass);
    mmi_pool_stay_alone(pool, mmi_trial_alone(t));
    const double begun = mmi_now();
    mm_status status = run_layers(ctx, pass);
    if (status == MM_OK)
        mmi_trial_took(t, mmi_now() - begun, threads, mmi_pool_is_crowded(pool));
    mmi_pool_stay_alone(pool, false);
    return status;
}

mm_status mmi_run_forward(mm_context *ctx, const mmi_pass *pass)
{
    ctx->can_go_back = false;
    mmi_share_begin(ctx);
    ctx->adapters.room.seed = pass->seed;
    ctx->adapters.room.training = pass->mode == MM_TRAIN;
    widen_vectors(ctx);
    mmi_exec_enter(&ctx->exec);
    mm_status status = run_layers_in_time(ctx, pass);
    mmi_exec_leave(&ctx->exec);
    mmi_share_end(ctx);
    if (status != MM_OK)
        return status;
    for (int64_t s = 0; pass->cache && s < pass->segments; s++) {
        const mmi_segment *read = &ctx->plan.segments[s];
        memcpy(mmi_cache_ids(pass->cache, read->sequence) + read->past, ctx->plan.ids + read->row,
               (size_t)read->count * sizeof(int32_t));
        pass->cache->lengths[read->sequence] += (int32_t)read->count;
    }
    ctx->pass = *pass;
    ctx->can_go_back = pass->mode == MM_TRAIN;
    return MM_OK;
}
