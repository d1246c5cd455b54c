#include "run/mlp.h"

#include "run/block.h"

static float *next_input(const mm_context *ctx, int64_t l)
{
    return l + 1 < ctx->arch->L ? ctx->plan.layers[l + 1].x : ctx->plan.x_final;
}

/* --- Dense --- */

static mmi_ffn dense_network(const mm_context *ctx, const mmi_pass *pass, int64_t l)
{
    return (mmi_ffn){ .gate = mmi_context_param(ctx, MMI_GATE, l),
                      .gate_bias = mmi_context_param(ctx, MMI_GATE_BIAS, l),
                      .up = mmi_context_param(ctx, MMI_UP, l),
                      .up_bias = mmi_context_param(ctx, MMI_UP_BIAS, l),
                      .down = mmi_context_param(ctx, MMI_DOWN, l),
                      .down_bias = mmi_context_param(ctx, MMI_DOWN_BIAS, l),
                      .act = (int32_t)ctx->arch->act,
                      .dropout = mmi_context_dropout(ctx, pass, MMI_SITE_MID, l, 0) };
}

/* plan.h is the second norm of what attention left. */
static void norm_forward(mm_context *ctx, const mmi_pass *pass, int64_t l, mmi_quantizing q)
{
    const mmi_kept *kept = &ctx->plan.layers[l];
    mmi_norm_beside beside = mmi_block_beside(ctx, kept->x_mid, q);
    mmi_norm_forward(&ctx->exec, ctx->plan.h, kept->mean2, kept->rstd2, kept->x_mid,
                     mmi_context_norm(ctx, MMI_POST_NORM, MMI_POST_NORM_BIAS, l), pass->N, ctx->arch->C, &beside);
}

static void dense_forward(mm_context *ctx, const mmi_pass *pass, int64_t l)
{
    mmi_plan *p = &ctx->plan;
    const mmi_kept *kept = &p->layers[l];
    int64_t n = pass->N * ctx->arch->C;
    mmi_ffn network = dense_network(ctx, pass, l);
    mmi_quantizing q = mmi_ffn_quantizing(&ctx->exec, &network, pass->N, p->panel);
    norm_forward(ctx, pass, l, q);
    mmi_operand h = { p->h, ctx->arch->C, q.rows };
    mmi_dropout dropout = mmi_context_dropout(ctx, pass, MMI_SITE_MLP, l, 0);
    float *to = next_input(ctx, l);
    if (dropout.p > 0) {
        mmi_ffn_forward(&ctx->exec, p->branch, NULL, kept->inner, p->mid, h, &network, pass->N, p->panel, p->delta,
                        false);
        mmi_vector_copy(&ctx->exec, to, kept->x_mid, n);
        mmi_block_add(ctx, to, p->branch, n, dropout);
    } else {
        ctx->owed = mmi_ffn_forward(&ctx->exec, to, kept->x_mid, kept->inner, p->mid, h, &network, pass->N, p->panel,
                                    p->delta, pass->mode == MM_EVAL);
    }
}

/* --- Experts --- */

/* The layer's networks into plan.experts: E routed, then S shared. */
static void find_experts(mm_context *ctx, const mmi_pass *pass, int64_t l)
{
    const mmi_arch *a = ctx->arch;
    for (int64_t i = 0; i < a->E + a->shared_experts; i++) {
        bool shared = i >= a->E;
        int64_t e = shared ? i - a->E : i;
        ctx->plan.experts[i] = (mmi_ffn){
            .gate = mmi_context_expert(ctx, shared ? MMI_SHARED_GATE : MMI_EXPERT_GATE, l, e),
            .up = mmi_context_expert(ctx, shared ? MMI_SHARED_UP : MMI_EXPERT_UP, l, e),
            .down = mmi_context_expert(ctx, shared ? MMI_SHARED_DOWN : MMI_EXPERT_DOWN, l, e),
            .act = (int32_t)a->act,
            .dropout = mmi_context_dropout(ctx, pass, MMI_SITE_MID, l, i),
        };
    }
}

static mmi_router router_of(const mm_context *ctx, const mmi_pass *pass, int64_t l)
{
    mmi_dropout noise = mmi_context_dropout(ctx, pass, MMI_SITE_ROUTER, l, 0);
    return (mmi_router){ .weight = mmi_context_param(ctx, MMI_ROUTER, l),
                         .E = ctx->arch->E,
                         .k = ctx->arch->top_k,
                         .renormalize = ctx->arch->renormalize,
                         .noise = pass->mode == MM_TRAIN ? ctx->limits.router_noise : 0,
                         .seed = noise.seed,
                         .stream = noise.stream };
}

/* What one half's sum is multiplied by: shared_weight / S and routed_weight in Mini-LLM's form, else 1. */
static float half_weight(const mm_context *ctx, mmi_role role, int64_t l)
{
    mmi_param scalar = mmi_context_param(ctx, role, l);
    if (!scalar.w.data)
        return 1;
    float weight = *(const float *)scalar.w.data;
    return role == MMI_SHARED_WEIGHT ? weight / (float)ctx->arch->shared_experts : weight;
}

/* The auxiliary loss is this times mmi_moe_balance() over so many groups: E / k per sequence or for the whole batch;
 * MiniMind-3 and its like don't divide by k. */
static double balance_factor(const mmi_arch *a)
{
    bool by_k = a->family == MMI_MINIMIND2 || a->family == MMI_MINIGPT;
    return a->aux_coefficient > 0 ? a->aux_coefficient * (double)a->E / (by_k ? (double)a->top_k : 1) : 0;
}

static int64_t balance_groups(const mmi_arch *a, const mmi_pass *pass)
{
    return a->aux_per_sequence ? pass->B : 1;
}

static void shared_forward(mm_context *ctx, const mmi_pass *pass, int64_t l)
{
    const mmi_arch *a = ctx->arch;
    mmi_plan *p = &ctx->plan;
    const mmi_kept *kept = &p->layers[l];
    int64_t N = pass->N, n = N * a->C;
    mmi_vector_zero(&ctx->exec, kept->shared, n);
    for (int64_t s = 0; s < a->shared_experts; s++) {
        const mmi_ffn *network = &p->experts[a->E + s];
        float *inner = kept->inner + s * N * mmi_ffn_inner(network);
        mmi_dropout dropout = mmi_context_dropout(ctx, pass, MMI_SITE_EXPERT, l, a->E + s);
        float *to = dropout.p > 0 ? p->branch : kept->shared;
        if (dropout.p > 0)
            mmi_vector_zero(&ctx->exec, to, n);
        mmi_ffn_forward(&ctx->exec, to, to, inner, p->mid, mmi_operand_of(p->h, a->C), network, N, p->panel, p->delta,
                        false);
        if (dropout.p > 0)
            mmi_block_add(ctx, kept->shared, to, n, dropout);
    }
}

static double experts_forward(mm_context *ctx, const mmi_pass *pass, int64_t l)
{
    const mmi_arch *a = ctx->arch;
    mmi_plan *p = &ctx->plan;
    mmi_kept *kept = &p->layers[l];
    int64_t N = pass->N, n = N * a->C;
    norm_forward(ctx, pass, l, (mmi_quantizing){ 0 }); /* the router is not in blocks */
    find_experts(ctx, pass, l);
    if (a->shared_experts > 0)
        shared_forward(ctx, pass, l);
    mmi_vector_zero(&ctx->exec, p->branch, n);
    mmi_router router = router_of(ctx, pass, l);
    mmi_moe_route(&ctx->exec, &kept->routing, p->h, &router, N, p->panel);
    for (int64_t e = 0; e < a->E; e++)
        p->expert_load[l * a->E + e] = kept->routing.first[e + 1] - kept->routing.first[e];
    mmi_moe_forward(&ctx->exec, kept->routed, kept->expert_inner, kept->expert_y, p->grouped, p->mid, p->h,
                    p->experts, &router, &kept->routing, mmi_context_dropout(ctx, pass, MMI_SITE_EXPERT, l, 0), N,
                    p->panel);
    mmi_vector_axpy(&ctx->exec, p->branch, half_weight(ctx, MMI_ROUTED_WEIGHT, l), kept->routed, n);
    double balance = 0;
    if (pass->mode == MM_TRAIN)
        balance = balance_factor(a) * mmi_moe_balance(&kept->routing, N, a->E, a->top_k, balance_groups(a, pass));
    if (a->shared_experts > 0)
        mmi_vector_axpy(&ctx->exec, p->branch, half_weight(ctx, MMI_SHARED_WEIGHT, l), kept->shared, n);
    mmi_vector_copy(&ctx->exec, next_input(ctx, l), kept->x_mid, n);
    mmi_block_add(ctx, next_input(ctx, l), p->branch, n, mmi_context_dropout(ctx, pass, MMI_SITE_MLP, l, 0));
    return balance;
}

double mmi_mlp_forward(mm_context *ctx, const mmi_pass *pass, int64_t l)
{
    if (ctx->arch->moe)
        return experts_forward(ctx, pass, l);
    dense_forward(ctx, pass, l);
    return 0;
}

/* --- Backward --- */

static double dot_all(const mm_context *ctx, const float *a, const float *b, int64_t rows, int64_t C)
{
    double sum = 0;
    for (int64_t i = 0; i < rows; i++)
        sum += ctx->exec.k.dot(a + i * C, b + i * C, C);
    return sum;
}

/* d = gradient by a half's sum from that by the branch, and the scalar's own gradient. */
static const float *half_backward(mm_context *ctx, const mmi_pass *pass, int64_t l, mmi_role role, const float *d,
                                  const float *sum, float *scaled)
{
    int64_t N = pass->N, C = ctx->arch->C;
    mmi_param scalar = mmi_context_param(ctx, role, l);
    if (!scalar.w.data)
        return d;
    double share = role == MMI_SHARED_WEIGHT ? 1.0 / (double)ctx->arch->shared_experts : 1;
    if (scalar.grad)
        *scalar.grad += (float)(share * dot_all(ctx, d, sum, N, C));
    mmi_vector_zero(&ctx->exec, scaled, N * C);
    mmi_vector_axpy(&ctx->exec, scaled, half_weight(ctx, role, l), d, N * C);
    return scaled;
}

/* plan.dh += the gradient by plan.h through the shared experts. plan.branch and plan.delta are scratch. */
static void shared_backward(mm_context *ctx, const mmi_pass *pass, int64_t l, const float *d)
{
    const mmi_arch *a = ctx->arch;
    mmi_plan *p = &ctx->plan;
    const mmi_kept *kept = &p->layers[l];
    int64_t N = pass->N, n = N * a->C;
    d = half_backward(ctx, pass, l, MMI_SHARED_WEIGHT, d, kept->shared, p->branch);
    for (int64_t s = 0; s < a->shared_experts; s++) {
        const mmi_ffn *network = &p->experts[a->E + s];
        const float *inner = kept->inner + s * N * mmi_ffn_inner(network);
        mmi_vector_copy(&ctx->exec, p->delta, d, n);
        mmi_dropout_apply(&ctx->exec, p->delta, n, mmi_context_dropout(ctx, pass, MMI_SITE_EXPERT, l, a->E + s));
        mmi_ffn_backward(&ctx->exec, p->delta, p->dinner, p->mid, p->delta, p->h, inner, network, N);
        mmi_vector_axpy(&ctx->exec, p->dh, 1, p->delta, n);
    }
}

static void experts_backward(mm_context *ctx, const mmi_pass *pass, int64_t l, const float *d, double aux_scale)
{
    const mmi_arch *a = ctx->arch;
    mmi_plan *p = &ctx->plan;
    const mmi_kept *kept = &p->layers[l];
    int64_t N = pass->N;
    find_experts(ctx, pass, l);
    mmi_vector_zero(&ctx->exec, p->dh, N * a->C);
    if (a->shared_experts > 0)
        shared_backward(ctx, pass, l, d);
    mmi_router router = router_of(ctx, pass, l);
    d = half_backward(ctx, pass, l, MMI_ROUTED_WEIGHT, d, kept->routed, p->branch);
    mmi_moe_backward(&ctx->exec, p->dh, p->grouped, p->dgrouped, p->dinner, p->mid, p->dprobs, d, p->h,
                     kept->expert_inner, kept->expert_y, p->experts, &router, &kept->routing,
                     mmi_context_dropout(ctx, pass, MMI_SITE_EXPERT, l, 0), N, aux_scale * balance_factor(a),
                     balance_groups(a, pass));
}

void mmi_mlp_backward(mm_context *ctx, const mmi_pass *pass, int64_t l, double aux_scale)
{
    const mmi_exec *x = &ctx->exec;
    mmi_plan *p = &ctx->plan;
    const mmi_kept *kept = &p->layers[l];
    int64_t N = pass->N, C = ctx->arch->C;
    mmi_norm_params norm = mmi_context_norm(ctx, MMI_POST_NORM, MMI_POST_NORM_BIAS, l);
    mmi_norm_forward(x, p->h, NULL, NULL, kept->x_mid, norm, N, C, NULL); /* costs less than keeping it */
    const float *d = mmi_block_branch_gradient(ctx, N * C, mmi_context_dropout(ctx, pass, MMI_SITE_MLP, l, 0));
    if (ctx->arch->moe) {
        experts_backward(ctx, pass, l, d, aux_scale);
    } else {
        mmi_ffn network = dense_network(ctx, pass, l);
        mmi_ffn_backward(x, p->dh, p->dinner, p->mid, d, p->h, kept->inner, &network, N);
    }
    mmi_norm_backward(x, p->dx, p->dh, kept->x_mid, kept->mean2, kept->rstd2, norm, N, C, p->partials);
}
