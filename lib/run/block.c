#include "run/block.h"

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

/* All rows, where training keeps what they were. */
static void head_norms(mm_context *ctx, const mmi_pass *pass, int64_t l)
{
    const mmi_arch *a = ctx->arch;
    const mmi_kept *kept = &ctx->plan.layers[l];
    int64_t ld = row_width(a), q = a->H * a->D, width = (a->H + a->G) * a->D;
    const float *in = kept->qkv;
    int64_t ldin = ld;
    if (kept->qk_raw) {
        mmi_rows_copy(&ctx->exec, kept->qk_raw, width, kept->qkv, ld, pass->N, width);
        in = kept->qk_raw;
        ldin = width;
    }
    float *q_rstd = kept->qk_rstd, *k_rstd = q_rstd ? q_rstd + pass->N * a->H : NULL;
    mmi_head_norm_forward(&ctx->exec, kept->qkv, ld, q_rstd, in, ldin, head_norm(ctx, MMI_Q_NORM, l), pass->N, a->H,
                          a->D);
    mmi_head_norm_forward(&ctx->exec, kept->qkv + q, ld, k_rstd, in + q, ldin, head_norm(ctx, MMI_K_NORM, l), pass->N,
                          a->G, a->D);
}

/* Keys and values of head g of rows [first, last), which are a segment's. */
static void store_in_cache(const mm_context *ctx, const mmi_pass *pass, int64_t l, const mmi_segment *segment,
                           int64_t g, int64_t first, int64_t last)
{
    const mmi_arch *a = ctx->arch;
    const int64_t ld = row_width(a);
    const float *keys = ctx->plan.layers[l].qkv + first * ld + (a->H + g) * a->D;
    for (int side = 0; side < 2; side++)
        mmi_cache_store(&ctx->exec.k, pass->cache, l, side, segment->sequence, g, segment->past + first - segment->row,
                        last - first, keys + side * a->G * a->D, ld);
}

typedef struct rows_job {
    const mm_context *ctx;
    const mmi_pass *pass;
    int64_t l, step;
} rows_job;

static void store_rows(void *arg, int64_t piece, int worker)
{
    const rows_job *j = arg;
    int64_t first, last;
    (void)worker;
    mmi_piece_rows(piece, j->step, j->pass->N, &first, &last);
    for (int64_t i = 0; i < j->pass->segments; i++) {
        const mmi_segment *s = &j->ctx->plan.segments[i];
        const int64_t from = s->row > first ? s->row : first, end = s->row + s->count, to = end < last ? end : last;
        for (int64_t g = 0; g < j->ctx->arch->G && from < to; g++)
            store_in_cache(j->ctx, j->pass, j->l, s, g, from, to);
    }
}

/* Head norms and rotation of what the product left in the layer's rows, and keys and values in the cache. */
static void finish_heads(mm_context *ctx, const mmi_pass *pass, int64_t l)
{
    const mmi_arch *a = ctx->arch;
    const mmi_plan *p = &ctx->plan;
    if (a->qk_norm)
        head_norms(ctx, pass, l);
    if (p->cos)
        mmi_rope_apply(&ctx->exec, p->layers[l].qkv, row_width(a), p->cos, p->sin, p->positions, pass->N, a->H + a->G,
                       a->D, false);
    if (pass->cache) {
        rows_job j = { ctx, pass, l, mmi_rows_worth(1, 2 * a->G * a->D) };
        mmi_pool_run(ctx->exec.pool, mmi_pieces(pass->N, j.step), store_rows, &j);
    }
}

/* The same for one segment and key head, with the queries that meet it: short segments are finished by whoever does
 * their attention. What attention gives is quantized there, too. */
typedef struct short_job {
    const mm_context *ctx;
    const mmi_pass *pass;
    int64_t l;
    mmi_quantizing q;
} short_job;

/* `heads` heads of one row from head `first` on. */
static void finish_row(const mm_context *ctx, int64_t l, int64_t row, int64_t first, int64_t heads, mmi_role norm)
{
    const mmi_arch *a = ctx->arch;
    const mmi_kernels *k = &ctx->exec.k;
    const mmi_plan *p = &ctx->plan;
    float *at = p->layers[l].qkv + row * row_width(a) + first * a->D;
    if (a->qk_norm) {
        mmi_norm_params params = head_norm(ctx, norm, l);
        k->rmsnorm_forward(at, a->D, NULL, at, a->D, params.weight.w.data, heads, a->D, params.eps);
    }
    if (p->cos) {
        const int64_t turn = p->positions[row] * (a->D / 2);
        k->rope(at, p->cos + turn, p->sin + turn, heads, a->D, false);
    }
}

static void begin_short(void *arg, const mmi_segment *segment, int64_t g)
{
    const short_job *j = arg;
    const mmi_arch *a = j->ctx->arch;
    const int64_t heads = a->H / a->G;
    for (int64_t i = segment->row; i < segment->row + segment->count; i++) {
        finish_row(j->ctx, j->l, i, g * heads, heads, MMI_Q_NORM);
        finish_row(j->ctx, j->l, i, a->H + g, 1, MMI_K_NORM);
    }
    if (j->pass->cache)
        store_in_cache(j->ctx, j->pass, j->l, segment, g, segment->row, segment->row + segment->count);
}

static void end_short(void *arg, const mmi_segment *segment, int64_t g)
{
    const short_job *j = arg;
    const mmi_arch *a = j->ctx->arch;
    const int64_t width = a->H / a->G * a->D;
    const float *attn = j->ctx->plan.layers[j->l].attn;
    for (int64_t i = segment->row; i < segment->row + segment->count; i++)
        mmi_quantize(&j->q, i, attn + i * a->H * a->D + g * width, g * width, width);
}

/* q, k, v in the layer's rows → kept->attn, quantized where the result says so. */
static mmi_operand attend(mm_context *ctx, const mmi_pass *pass, int64_t l, mmi_param o)
{
    const mmi_arch *a = ctx->arch;
    const mmi_kept *kept = &ctx->plan.layers[l];
    mmi_attention attention = attention_of(ctx, pass, l);
    short_job j = { .ctx = ctx, .pass = pass, .l = l };
    if (pass->mode == MM_EVAL && mmi_attention_is_short(&attention)) {
        if (a->H / a->G * a->D % MMI_BLOCK == 0)
            j.q = mmi_linear_quantizing(&ctx->exec, &o, 1, pass->N, ctx->plan.panel, 0);
        attention.before = begin_short;
        attention.after = end_short;
        attention.arg = &j;
    } else {
        finish_heads(ctx, pass, l);
    }
    mmi_attention_forward(&ctx->exec, kept->attn, kept->lse, &attention);
    return (mmi_operand){ kept->attn, a->H * a->D, j.q.rows };
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

mmi_norm_beside mmi_block_beside(mm_context *ctx, float *stream, mmi_quantizing q)
{
    mmi_norm_beside beside = { .stream = stream, .delta = ctx->owed ? ctx->plan.delta : NULL, .q = q };
    ctx->owed = false;
    return beside;
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
    qkv_params in = params_of(ctx, l);
    mmi_quantizing q = mmi_linear_quantizing(x, in.w, 3, N, p->panel, 0);
    mmi_norm_beside beside = mmi_block_beside(ctx, kept->x, q);
    mmi_norm_forward(x, p->h, kept->mean1, kept->rstd1, kept->x,
                     mmi_context_norm(ctx, MMI_INPUT_NORM, MMI_INPUT_NORM_BIAS, l), N, C, &beside);
    mmi_linear_group_forward(x, kept->qkv, row_width(ctx->arch), (mmi_operand){ p->h, C, q.rows }, in.w, in.b, 3, N,
                             p->panel);
    mmi_param o = mmi_context_param(ctx, MMI_O, l), bias = mmi_context_param(ctx, MMI_O_BIAS, l);
    mmi_operand attn = attend(ctx, pass, l, o);
    mmi_dropout dropout = mmi_context_dropout(ctx, pass, MMI_SITE_O, l, 0);
    if (dropout.p > 0) {
        mmi_linear_forward(x, p->branch, C, attn, o, bias, N, p->panel);
        mmi_vector_copy(x, kept->x_mid, kept->x, N * C);
        mmi_block_add(ctx, kept->x_mid, p->branch, N * C, dropout);
    } else {
        ctx->owed =
            mmi_linear_add(x, kept->x_mid, kept->x, attn, o, bias, N, p->panel, p->delta, pass->mode == MM_EVAL);
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
    mmi_norm_forward(x, p->h, NULL, NULL, kept->x, norm, N, a->C, NULL); /* costs less than keeping it */
    project_backward(ctx, pass, l);
    mmi_norm_backward(x, p->dx, p->dh, kept->x, kept->mean1, kept->rstd1, norm, N, a->C, p->partials);
}
