#include "run/block.h"

#include <string.h>

mmi_param mmi_block_head(const mm_context *ctx)
{
    return mmi_context_param(ctx, ctx->arch->tied ? MMI_EMBED : MMI_HEAD, 0);
}

/* Floats per row of q, k, v together. */
static int64_t row_width(const mmi_arch *a)
{
    return (a->H + 2 * a->G) * a->D;
}

/* Attention rounds what it multiplies where the products around it do, and where that is faster. */
static bool attention_rounds(const mm_context *ctx, const mmi_pass *pass)
{
    const mmi_kernels *k = &ctx->exec.k;
    bool blocks = ctx->limits.weights.blocks && mmi_rounds_blocks(k, pass->N);
    return k->round_attention && (ctx->exec.compute == MM_BF16 || blocks);
}

/* q, k, v of a layer as attention reads them: from its rows, or keys and values from the pass's cache. */
static mmi_attention attention_of(const mm_context *ctx, const mmi_pass *pass, int64_t l)
{
    const mmi_arch *a = ctx->arch;
    float *qkv = ctx->plan.layers[l].qkv;
    mmi_attention attention = { .q = qkv,
                                .k = qkv + a->H * a->D,
                                .v = qkv + (a->H + a->G) * a->D,
                                .ldq = row_width(a),
                                .ldk = row_width(a),
                                .head_stride = a->D,
                                .H = a->H,
                                .G = a->G,
                                .D = a->D,
                                .segments = ctx->plan.segments,
                                .segment_count = pass->segments,
                                .piece_first = ctx->plan.piece_first,
                                .dropout = mmi_context_dropout(ctx, pass, MMI_SITE_ATTENTION, l, 0),
                                .rounded = attention_rounds(ctx, pass) };
    if (pass->cache) {
        attention.k = mmi_cache_at(pass->cache, l, 0, 0, 0, 0);
        attention.v = mmi_cache_at(pass->cache, l, 1, 0, 0, 0);
        attention.kv_dtype = pass->cache->dtype;
        attention.ldk = a->D;
        attention.head_stride = pass->cache->capacity * a->D;
        attention.sequence_stride = a->G * attention.head_stride;
    }
    return attention;
}

/* The three matrices that read the norm's output. */
typedef struct qkv_params {
    mmi_param w[3], b[3];
} qkv_params;

static qkv_params params_of(const mm_context *ctx, int64_t l)
{
    return (qkv_params){ .w = { mmi_context_param(ctx, MMI_Q, l), mmi_context_param(ctx, MMI_K, l),
                                mmi_context_param(ctx, MMI_V, l) },
                         .b = { mmi_context_param(ctx, MMI_Q_BIAS, l), mmi_context_param(ctx, MMI_K_BIAS, l),
                                mmi_context_param(ctx, MMI_V_BIAS, l) } };
}

static mmi_norm_params head_norm(const mm_context *ctx, mmi_role role, int64_t l)
{
    return (mmi_norm_params){ .weight = mmi_context_param(ctx, role, l), .eps = (float)ctx->arch->eps };
}

static void head_norms(mm_context *ctx, const mmi_pass *pass, int64_t l)
{
    const mmi_arch *a = ctx->arch;
    const mmi_kept *kept = &ctx->plan.layers[l];
    int64_t ld = row_width(a), q = a->H * a->D, width = (a->H + a->G) * a->D;
    const float *in = kept->qkv;
    int64_t ldin = ld;
    if (kept->qk_raw) {
        for (int64_t i = 0; i < pass->N; i++)
            memcpy(kept->qk_raw + i * width, kept->qkv + i * ld, (size_t)width * sizeof(float));
        in = kept->qk_raw;
        ldin = width;
    }
    float *q_rstd = kept->qk_rstd, *k_rstd = q_rstd ? q_rstd + pass->N * a->H : NULL;
    mmi_head_norm_forward(&ctx->exec, kept->qkv, ld, q_rstd, in, ldin, head_norm(ctx, MMI_Q_NORM, l), pass->N, a->H,
                          a->D);
    mmi_head_norm_forward(&ctx->exec, kept->qkv + q, ld, k_rstd, in + q, ldin, head_norm(ctx, MMI_K_NORM, l), pass->N,
                          a->G, a->D);
}

static void store_in_cache(const mm_context *ctx, const mmi_pass *pass, int64_t l)
{
    const mmi_arch *a = ctx->arch;
    int64_t ld = row_width(a);
    for (int64_t s = 0; s < pass->segments; s++) {
        const mmi_segment *segment = &ctx->plan.segments[s];
        for (int64_t g = 0; g < 2 * a->G; g++) { /* the heads of the keys, then those of the values */
            const float *from = ctx->plan.layers[l].qkv + segment->row * ld + (a->H + g) * a->D;
            mmi_cache_store(&ctx->exec.k, pass->cache, l, (int)(g / a->G), segment->sequence, g % a->G, segment->past,
                            segment->count, from, ld);
        }
    }
}

/* plan.h → q, k, v with head norms and rotation, in the layer's rows and in the cache. */
static void project(mm_context *ctx, const mmi_pass *pass, int64_t l)
{
    const mmi_exec *x = &ctx->exec;
    const mmi_arch *a = ctx->arch;
    float *qkv = ctx->plan.layers[l].qkv;
    int64_t ld = row_width(a), N = pass->N;
    qkv_params p = params_of(ctx, l);
    mmi_linear_group_forward(x, qkv, ld, ctx->plan.h, a->C, p.w, p.b, 3, N, ctx->plan.panel);
    if (a->qk_norm)
        head_norms(ctx, pass, l);
    if (ctx->plan.cos)
        mmi_rope_apply(x, qkv, ld, ctx->plan.cos, ctx->plan.sin, ctx->plan.positions, N, a->H + a->G, a->D, false);
    if (pass->cache)
        store_in_cache(ctx, pass, l);
}

static void head_norms_backward(mm_context *ctx, const mmi_pass *pass, int64_t l)
{
    const mmi_arch *a = ctx->arch;
    const mmi_kept *kept = &ctx->plan.layers[l];
    int64_t ld = row_width(a), q = a->H * a->D, width = (a->H + a->G) * a->D;
    float *d = ctx->plan.dqkv, *partials = ctx->plan.partials;
    mmi_head_norm_backward(&ctx->exec, d, ld, kept->qk_raw, width, kept->qk_rstd, head_norm(ctx, MMI_Q_NORM, l),
                           pass->N, a->H, a->D, partials);
    mmi_head_norm_backward(&ctx->exec, d + q, ld, kept->qk_raw + q, width, kept->qk_rstd + pass->N * a->H,
                           head_norm(ctx, MMI_K_NORM, l), pass->N, a->G, a->D, partials);
}

/* plan.dqkv → plan.dh, the gradient by plan.h. */
static void project_backward(mm_context *ctx, const mmi_pass *pass, int64_t l)
{
    const mmi_exec *x = &ctx->exec;
    const mmi_arch *a = ctx->arch;
    float *d = ctx->plan.dqkv, *dh = ctx->plan.dh;
    const float *h = ctx->plan.h;
    int64_t ld = row_width(a), N = pass->N;
    if (ctx->plan.cos)
        mmi_rope_apply(x, d, ld, ctx->plan.cos, ctx->plan.sin, ctx->plan.positions, N, a->H + a->G, a->D, true);
    if (a->qk_norm)
        head_norms_backward(ctx, pass, l);
    qkv_params p = params_of(ctx, l);
    mmi_linear_group_backward(x, dh, a->C, d, ld, h, a->C, p.w, p.b, 3, N);
}

void mmi_block_add(const mm_context *ctx, float *to, float *branch, int64_t n, mmi_dropout dropout)
{
    mmi_dropout_apply(&ctx->exec, branch, n, dropout);
    mmi_vector_axpy(&ctx->exec, to, 1, branch, n);
}

const float *mmi_block_branch_gradient(const mm_context *ctx, int64_t n, mmi_dropout dropout)
{
    if (dropout.p <= 0)
        return ctx->plan.dx;
    mmi_vector_copy(&ctx->exec, ctx->plan.dbranch, ctx->plan.dx, n);
    mmi_dropout_apply(&ctx->exec, ctx->plan.dbranch, n, dropout);
    return ctx->plan.dbranch;
}

void mmi_block_forward(mm_context *ctx, const mmi_pass *pass, int64_t l)
{
    const mmi_exec *x = &ctx->exec;
    mmi_plan *p = &ctx->plan;
    const mmi_kept *kept = &p->layers[l];
    int64_t N = pass->N, C = ctx->arch->C;
    mmi_norm_forward(x, p->h, kept->mean1, kept->rstd1, kept->x,
                     mmi_context_norm(ctx, MMI_INPUT_NORM, MMI_INPUT_NORM_BIAS, l), N, C);
    project(ctx, pass, l);
    mmi_attention attention = attention_of(ctx, pass, l);
    mmi_attention_forward(x, kept->attn, kept->lse, &attention);
    mmi_param o = mmi_context_param(ctx, MMI_O, l), bias = mmi_context_param(ctx, MMI_O_BIAS, l);
    mmi_dropout dropout = mmi_context_dropout(ctx, pass, MMI_SITE_O, l, 0);
    if (dropout.p > 0) {
        mmi_linear_forward(x, p->branch, C, kept->attn, o.w.cols, o, bias, N, p->panel);
        mmi_vector_copy(x, kept->x_mid, kept->x, N * C);
        mmi_block_add(ctx, kept->x_mid, p->branch, N * C, dropout);
    } else {
        mmi_linear_add(x, kept->x_mid, kept->x, kept->attn, o, bias, N, p->panel, p->delta);
    }
}

void mmi_block_backward(mm_context *ctx, const mmi_pass *pass, int64_t l)
{
    const mmi_exec *x = &ctx->exec;
    const mmi_arch *a = ctx->arch;
    mmi_plan *p = &ctx->plan;
    const mmi_kept *kept = &p->layers[l];
    int64_t N = pass->N, width = a->H * a->D;
    mmi_norm_params norm = mmi_context_norm(ctx, MMI_INPUT_NORM, MMI_INPUT_NORM_BIAS, l);
    const float *d = mmi_block_branch_gradient(ctx, N * a->C, mmi_context_dropout(ctx, pass, MMI_SITE_O, l, 0));
    mmi_linear_backward(x, p->dattn, width, d, a->C, kept->attn, width, mmi_context_param(ctx, MMI_O, l),
                        mmi_context_param(ctx, MMI_O_BIAS, l), N, false);
    mmi_attention attention = attention_of(ctx, pass, l);
    mmi_attention_backward(x, p->dqkv, p->dqkv + width, p->dqkv + width + a->G * a->D, p->dattn, kept->attn, kept->lse,
                           &attention);
    mmi_norm_forward(x, p->h, NULL, NULL, kept->x, norm, N, a->C); /* costs less than keeping it */
    project_backward(ctx, pass, l);
    mmi_norm_backward(x, p->dx, p->dh, kept->x, kept->mean1, kept->rstd1, norm, N, a->C, p->partials);
}
