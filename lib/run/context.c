#include "run/context.h"

#include <string.h>

#include "base/dtype.h"
#include "base/options.h"
#include "base/random.h"

MMI_OPTIONS_INIT(mm_context_options, MM_CONTEXT_OPTIONS_INIT)

_Static_assert((int)MMI_SILU == MMI_ACT_SILU && (int)MMI_GELU == MMI_ACT_GELU &&
                   (int)MMI_GELU_TANH == MMI_ACT_GELU_TANH && (int)MMI_RELU == MMI_ACT_RELU,
               "the architecture's activations are the kernels'");

static mmi_weight_kinds kinds_of(const mm_model *model, int64_t count)
{
    mmi_weight_kinds kinds = { false, false };
    for (int64_t i = 0; i < count; i++) {
        int32_t dtype = mmi_model_weight(model, i).dtype;
        bool blocks = mmi_block_bytes(dtype) > 0;
        kinds.blocks = kinds.blocks || blocks;
        kinds.wide = kinds.wide || (dtype != MM_F32 && !blocks);
    }
    return kinds;
}

mmi_trained mmi_context_trained(const mm_context *ctx)
{
    return (mmi_trained){ .layout = ctx->layout, .adapter = ctx->adapter };
}

size_t mmi_context_handle_bytes(const mmi_layout *layout)
{
    return sizeof(mm_context) + (size_t)layout->count * sizeof(size_t);
}

/* Where each vector goes in plan.vectors: after one another in layout order. */
static void place_vectors(mm_context *ctx)
{
    size_t next = 0;
    for (int64_t i = 0; i < ctx->layout->count; i++) {
        mmi_tensor t;
        mmi_layout_tensor(ctx->layout, i, &t);
        ctx->offsets[i] = next * sizeof(float);
        if (t.rank == 1)
            next += (size_t)t.elements;
    }
}

static void fill_tables(mm_context *ctx)
{
    if (ctx->plan.cos)
        mmi_rope_tables(ctx->plan.cos, ctx->plan.sin, ctx->arch, ctx->limits.max_context);
    if (ctx->plan.sinusoid)
        mmi_sinusoid_table(ctx->plan.sinusoid, ctx->limits.max_context, ctx->arch->C);
}

/* Where gradients lie, and how far down they reach. */
static void place_gradients(mm_context *ctx, const char *trainable)
{
    mmi_trained trained = { .layout = ctx->layout, .adapter = ctx->adapter, .patterns = trainable };
    ctx->grads_size = mmi_trained_place(&trained, ctx->adapter ? NULL : ctx->offsets);
    ctx->limits.head_learns = mmi_trained_head(&trained);
    ctx->lowest = ctx->arch->L;
    for (int64_t i = mmi_trained_count(&trained); i-- > 0;) {
        mmi_tensor t;
        mmi_trained_tensor(&trained, i, &t);
        if (!ctx->adapter && ctx->offsets[i] == MMI_FROZEN)
            continue;
        int64_t layer = t.role == MMI_EMBED ? 0 : t.layer;
        if (layer >= 0 && layer < ctx->lowest)
            ctx->lowest = layer;
    }
}

static mm_status allocate(mm_context *ctx, const char *trainable)
{
    mmi_carve carve = { .guarded = true };
    if (ctx->limits.mode == MM_TRAIN)
        place_gradients(ctx, trainable);
    if (!mmi_plan_place(&ctx->plan, &carve, ctx->arch, ctx->layout, &ctx->limits))
        return mmi_fail(MM_ERR_ARG, "a context for %d sequences of %d tokens is beyond this machine",
                        ctx->limits.max_batch, ctx->limits.max_length);
    ctx->arena = mmi_alloc(1, carve.used);
    if (!ctx->arena)
        return mmi_fail_memory(carve.used, "a context's buffers");
    carve = (mmi_carve){ .base = ctx->arena, .guarded = true };
    mmi_plan_place(&ctx->plan, &carve, ctx->arch, ctx->layout, &ctx->limits);
    if (ctx->limits.mode == MM_TRAIN) {
        ctx->grads = mmi_calloc(1, ctx->grads_size);
        if (!ctx->grads)
            return mmi_fail_memory(ctx->grads_size, "gradients");
    } else if (ctx->limits.weights.wide) {
        place_vectors(ctx);
    }
    const mmi_limits *l = &ctx->limits;
    return l->parallel_for ? mmi_pool_create_on(l->parallel_for, l->parallel_for_user, l->threads, &ctx->exec.pool) :
                             mmi_pool_create(l->threads, &ctx->exec.pool);
}

/* Whether gradients of what is to be trained can be had at all. */
static mm_status check_trained(const mm_model *model, const mm_context_options *o, mmi_weight_kinds kinds)
{
    const mmi_trained trained = { .layout = mmi_model_layout(model), .patterns = o->trainable };
    if (o->mode != MM_TRAIN)
        return o->trainable ? mmi_fail(MM_ERR_ARG, "trainable is for MM_TRAIN: in MM_EVAL nothing is trained") : MM_OK;
    if (kinds.wide || kinds.blocks)
        return mmi_fail(MM_ERR_STATE, "the model can't be trained, nor an adapter beside it: its weights are not "
                                      "float32; mm_model_cast() gives some that are");
    if (o->adapter)
        return o->trainable ? mmi_fail(MM_ERR_ARG, "trainable and adapter exclude each other: beside an adapter the "
                                                   "whole model is frozen") :
                              MM_OK;
    if (!mmi_model_can_train(model))
        return mmi_fail(MM_ERR_STATE, "the model can't be trained: its weights are mapped from a file");
    return mmi_trained_check(&trained);
}

static mm_status read_options(mm_context_options *o, mmi_limits *limits, const mm_model *model,
                              const mm_context_options *given)
{
    *o = (mm_context_options)MM_CONTEXT_OPTIONS_INIT;
    mmi_weight_kinds kinds = kinds_of(model, mmi_model_layout(model)->count);
    mm_status status = mmi_options_read(o, sizeof *o, given, "mm_context_options");
    if (status == MM_OK)
        status = mmi_limits_read(limits, mmi_model_arch(model), o, kinds);
    return status == MM_OK ? check_trained(model, o, kinds) : status;
}

mm_status mm_context_create(mm_model *model, const mm_context_options *options, mm_context **out)
{
    if (!model || !out)
        return mmi_fail(MM_ERR_ARG, "mm_context_create: model or out is NULL");
    const mmi_layout *layout = mmi_model_layout(model);
    mm_context_options o;
    mmi_limits limits;
    mm_status status = read_options(&o, &limits, model, options);
    if (status != MM_OK)
        return status;
    mm_context *ctx = mmi_calloc(1, mmi_context_handle_bytes(layout));
    if (!ctx)
        return mmi_fail_memory(mmi_context_handle_bytes(layout), "a context");
    ctx->model = mmi_model_hold(model);
    ctx->arch = mmi_model_arch(model);
    ctx->layout = layout;
    ctx->limits = limits;
    ctx->widened = UINT64_MAX;
    if (o.adapter && limits.mode == MM_TRAIN)
        ctx->adapter = mmi_adapter_hold(o.adapter);
    status = allocate(ctx, o.trainable);
    if (status == MM_OK && o.adapter)
        status = mm_context_set_adapters(ctx, &o.adapter, NULL, 1);
    if (status != MM_OK) {
        mm_context_free(ctx);
        return status;
    }
    mmi_kernels_init(&ctx->exec.k, limits.path->cpu);
    ctx->exec.blas = limits.path->blas && !ctx->exec.k.beats_blas;
    ctx->exec.compute = limits.compute;
    ctx->exec.scratch = ctx->plan.scratch;
    ctx->exec.scratch_stride = ctx->plan.scratch_stride;
    ctx->exec.panels = ctx->plan.panels;
    fill_tables(ctx);
    if (ctx->plan.expert_load)
        memset(ctx->plan.expert_load, 0, (size_t)(ctx->arch->L * ctx->arch->E) * sizeof *ctx->plan.expert_load);
    *out = ctx;
    return MM_OK;
}

void mm_context_free(mm_context *ctx)
{
    if (!ctx)
        return;
    mm_cache_free(ctx->generation.cache);
    mmi_free(ctx->generation.block);
    mmi_pool_free(ctx->exec.pool);
    mmi_adapters_close(&ctx->adapters);
    mm_adapter_free(ctx->adapter);
    mmi_free(ctx->grads);
    mmi_free(ctx->arena);
    mm_model_free(ctx->model);
    mmi_free(ctx);
}

mm_model *mm_context_model(const mm_context *ctx)
{
    return ctx ? ctx->model : NULL;
}

const char *mm_context_kernels(const mm_context *ctx)
{
    return ctx ? ctx->limits.path->name : NULL;
}

mm_status mm_expert_load(const mm_context *ctx, int64_t layer, double *out, size_t capacity, size_t *needed)
{
    if (!ctx || (!out && capacity > 0))
        return mmi_fail(MM_ERR_ARG, "mm_expert_load: %s is NULL", ctx ? "out" : "context");
    if (layer < 0 || layer >= ctx->arch->L)
        return mmi_fail(MM_ERR_ARG, "mm_expert_load: there is no layer %lld, the model has %lld", (long long)layer,
                        (long long)ctx->arch->L);
    size_t E = ctx->arch->moe ? (size_t)ctx->arch->E : 0;
    if (needed)
        *needed = E;
    if (!out || E == 0)
        return MM_OK;
    if (capacity < E)
        return mmi_fail(MM_ERR_ARG, "mm_expert_load: there are %zu experts, there is room for %zu", E, capacity);
    const int64_t *load = ctx->plan.expert_load + layer * ctx->arch->E;
    int64_t choices = 0;
    for (size_t e = 0; e < E; e++)
        choices += load[e];
    if (choices == 0)
        return mmi_fail(MM_ERR_STATE, "mm_expert_load: nothing has been run yet");
    for (size_t e = 0; e < E; e++)
        out[e] = (double)load[e] / (double)choices;
    return MM_OK;
}

void mm_cancel(mm_context *ctx)
{
    if (ctx)
        atomic_store(&ctx->cancelled, 1);
}

mm_status mmi_context_enter(mm_context *ctx, const char *function)
{
    if (atomic_exchange(&ctx->busy, 1) == 0)
        return MM_OK;
    return mmi_fail(MM_ERR_STATE, "%s: the context is in use: it takes one call at a time, none from within that call",
                    function);
}

void mmi_context_leave(mm_context *ctx)
{
    atomic_store(&ctx->busy, 0);
}

bool mmi_context_take_cancel(mm_context *ctx)
{
    return atomic_load_explicit(&ctx->cancelled, memory_order_relaxed) && atomic_exchange(&ctx->cancelled, 0);
}

mmi_param mmi_context_param(const mm_context *ctx, mmi_role role, int64_t layer)
{
    return mmi_context_expert(ctx, role, layer, 0);
}

mmi_param mmi_context_expert(const mm_context *ctx, mmi_role role, int64_t layer, int64_t expert)
{
    int64_t index = mmi_layout_index(ctx->layout, role, layer, expert);
    mmi_param p = { 0 };
    if (index < 0)
        return p;
    p.w = mmi_model_weight(ctx->model, index);
    p.loras = mmi_adapters_beside(&ctx->adapters, index);
    if (ctx->grads)
        p.grad = ctx->adapter ? NULL : mmi_context_grads(ctx, index);
    else if (p.w.dtype != MM_F32 && p.w.rows == 1) {
        mmi_tensor t;
        mmi_layout_tensor(ctx->layout, index, &t);
        if (t.rank == 1) {
            p.w.data = ctx->plan.vectors + ctx->offsets[index] / sizeof(float);
            p.w.dtype = MM_F32;
        }
    }
    return p;
}

mmi_norm_params mmi_context_norm(const mm_context *ctx, mmi_role weight, mmi_role bias, int64_t layer)
{
    return (mmi_norm_params){ .weight = mmi_context_param(ctx, weight, layer),
                              .bias = mmi_context_param(ctx, bias, layer),
                              .eps = (float)ctx->arch->eps };
}

static float rate_at(const mmi_arch *a, mmi_site site)
{
    bool minimind = a->family == MMI_MINIMIND2 || a->family == MMI_MINIMIND3, minigpt = a->family == MMI_MINIGPT;
    switch (site) {
    case MMI_SITE_ATTENTION:
        return (float)a->attention_dropout;
    case MMI_SITE_EMBEDDING:
    case MMI_SITE_O:
        return minimind || minigpt ? (float)a->dropout : 0;
    case MMI_SITE_MID:
        return minigpt ? (float)a->dropout : 0;
    case MMI_SITE_EXPERT:
        return a->family == MMI_MINIMIND2 ? (float)a->dropout : 0;
    case MMI_SITE_MLP:
        return minigpt || (a->family == MMI_MINIMIND2 && !a->moe) ? (float)a->dropout : 0;
    default:
        return 0;
    }
}

mmi_dropout mmi_context_dropout(const mm_context *ctx, const mmi_pass *pass, mmi_site site, int64_t layer,
                                int64_t expert)
{
    uint32_t place = MMI_STREAM_DROPOUT | (uint32_t)site << 8 | (uint32_t)layer << 12; /* the upper half of a stream */
    return (mmi_dropout){ .p = pass->mode == MM_TRAIN ? rate_at(ctx->arch, site) : 0,
                          .seed = pass->seed,
                          .stream = MMI_STREAM(place, expert) };
}

const mmi_exec *mmi_context_exec(const mm_context *ctx)
{
    return &ctx->exec;
}

bool mmi_context_has_grads(const mm_context *ctx)
{
    return ctx->grads != NULL;
}

float *mmi_context_grads(const mm_context *ctx, int64_t index)
{
    size_t offset = ctx->adapter ? ctx->adapter->offsets[index] : ctx->offsets[index];
    return ctx->grads && offset != MMI_FROZEN ? ctx->grads + offset / sizeof(float) : NULL;
}
