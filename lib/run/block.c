#include "run/block.h"

#include <string.h>

mmi_ffn mmi_block_ffn(const mm_context *ctx, int64_t l)
{
    return (mmi_ffn){ .gate = mmi_context_param(ctx, MMI_GATE, l),
                      .gate_bias = mmi_context_param(ctx, MMI_GATE_BIAS, l),
                      .up = mmi_context_param(ctx, MMI_UP, l),
                      .up_bias = mmi_context_param(ctx, MMI_UP_BIAS, l),
                      .down = mmi_context_param(ctx, MMI_DOWN, l),
                      .down_bias = mmi_context_param(ctx, MMI_DOWN_BIAS, l),
                      .act = (int32_t)ctx->arch->act };
}

mmi_param mmi_block_head(const mm_context *ctx)
{
    return mmi_context_param(ctx, ctx->arch->tied ? MMI_EMBED : MMI_HEAD, 0);
}

/* Floats per row of q, k, v together. */
static int64_t row_width(const mmi_arch *a)
{
    return (a->H + 2 * a->G) * a->D;
}

mmi_attention mmi_block_attention(const mm_context *ctx, const mmi_pass *pass, int64_t l)
{
    const mmi_arch *a = ctx->arch;
    float *qkv = ctx->plan.layers[l].qkv;
    mmi_attention attention = { .q = qkv,
                                .k = qkv + a->H * a->D,
                                .v = qkv + (a->H + a->G) * a->D,
                                .ldq = row_width(a),
                                .ldk = row_width(a),
                                .H = a->H,
                                .G = a->G,
                                .D = a->D,
                                .segments = ctx->plan.segments,
                                .segment_count = pass->segments,
                                .piece_first = ctx->plan.piece_first };
    if (pass->cache) {
        attention.k = mmi_cache_side(pass->cache, l, 0);
        attention.v = mmi_cache_side(pass->cache, l, 1);
        attention.ldk = pass->cache->width;
        attention.sequence_stride = pass->cache->capacity * pass->cache->width;
    }
    return attention;
}

/* The three matrices, and as one where they lie side by side. Biases lie between them: joined means none. */
typedef struct qkv_params {
    mmi_param w[3], b[3], joined;
    bool is_joined;
} qkv_params;

static qkv_params params_of(const mm_context *ctx, int64_t l)
{
    qkv_params p = { .w = { mmi_context_param(ctx, MMI_Q, l), mmi_context_param(ctx, MMI_K, l),
                            mmi_context_param(ctx, MMI_V, l) },
                     .b = { mmi_context_param(ctx, MMI_Q_BIAS, l), mmi_context_param(ctx, MMI_K_BIAS, l),
                            mmi_context_param(ctx, MMI_V_BIAS, l) } };
    p.is_joined = !p.b[0].w.data && mmi_param_join(&p.joined, p.w, 3);
    return p;
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
    mmi_head_norm_forward(&ctx->exec, kept->qkv, ld, q_rstd, in, ldin, head_norm(ctx, MMI_Q_NORM, l),
                          pass->N, a->H, a->D);
    mmi_head_norm_forward(&ctx->exec, kept->qkv + q, ld, k_rstd, in + q, ldin,
                          head_norm(ctx, MMI_K_NORM, l), pass->N, a->G, a->D);
}

static void store_in_cache(const mm_context *ctx, const mmi_pass *pass, int64_t l)
{
    const mmi_arch *a = ctx->arch;
    const mm_cache *cache = pass->cache;
    int64_t ld = row_width(a);
    const float *qkv = ctx->plan.layers[l].qkv;
    for (int64_t s = 0; s < pass->segments; s++) {
        const mmi_segment *segment = &ctx->plan.segments[s];
        int64_t at = (segment->sequence * cache->capacity + segment->past) * cache->width;
        for (int64_t i = 0; i < segment->count; i++, at += cache->width)
            for (int side = 0; side < 2; side++)
                memcpy(mmi_cache_side(cache, l, side) + at,
                       qkv + (segment->row + i) * ld + (a->H + side * a->G) * a->D, (size_t)cache->width * sizeof(float));
    }
}

void mmi_block_qkv(mm_context *ctx, const mmi_pass *pass, int64_t l)
{
    const mmi_exec *x = &ctx->exec;
    const mmi_arch *a = ctx->arch;
    float *qkv = ctx->plan.layers[l].qkv;
    int64_t ld = row_width(a), N = pass->N;
    qkv_params p = params_of(ctx, l);
    if (p.is_joined)
        mmi_linear_forward(x, qkv, ld, ctx->plan.h, a->C, p.joined, (mmi_param){ 0 }, N, ctx->plan.panel);
    else
        for (int64_t i = 0, at = 0; i < 3; at += p.w[i].w.rows, i++)
            mmi_linear_forward(x, qkv + at, ld, ctx->plan.h, a->C, p.w[i], p.b[i], N, ctx->plan.panel);
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
    mmi_head_norm_backward(&ctx->exec, d, ld, kept->qk_raw, width, kept->qk_rstd,
                           head_norm(ctx, MMI_Q_NORM, l), pass->N, a->H, a->D, partials);
    mmi_head_norm_backward(&ctx->exec, d + q, ld, kept->qk_raw + q, width, kept->qk_rstd + pass->N * a->H,
                           head_norm(ctx, MMI_K_NORM, l), pass->N, a->G, a->D, partials);
}

void mmi_block_qkv_backward(mm_context *ctx, const mmi_pass *pass, int64_t l)
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
    if (p.is_joined)
        mmi_linear_backward(x, dh, a->C, d, ld, h, a->C, p.joined, (mmi_param){ 0 }, N, false);
    else
        for (int64_t i = 0, at = 0; i < 3; at += p.w[i].w.rows, i++)
            mmi_linear_backward(x, dh, a->C, d + at, ld, h, a->C, p.w[i], p.b[i], N, i > 0);
}
