#include "run/adapters.h"

#include "base/random.h"
#include "model/trained.h"
#include "run/context.h"

/* What the adapters of one context need together. */
typedef struct needs {
    int64_t count, pairs, rank, widest; /* widest: of those with dropout */
} needs;

static needs add_up(const mmi_adapter_cost *costs, int64_t count)
{
    needs n = { .count = count };
    for (int64_t i = 0; i < count; i++) {
        n.pairs += costs[i].pairs;
        n.rank = costs[i].rank > n.rank ? costs[i].rank : n.rank;
        if (costs[i].dropout > 0 && costs[i].widest > n.widest)
            n.widest = costs[i].widest;
    }
    return n;
}

/* Cut the block; with base NULL `c` only measures. Only a context that trains needs room for the way back. */
static void place(mmi_adapters *a, mmi_carve *c, const needs *n, const mmi_arch *arch, const mmi_layout *layout,
                  const mmi_limits *limits)
{
    bool train = limits->mode == MM_TRAIN;
    int64_t rows = mmi_plan_rows(arch, limits);
    a->held = mmi_carve_take(c, n->count, sizeof *a->held);
    a->beside = mmi_carve_take(c, layout->count, sizeof *a->beside);
    a->entries = mmi_carve_take(c, n->pairs, sizeof *a->entries);
    a->room.down = mmi_carve_floats(c, rows, n->rank);
    a->room.d_down = train ? mmi_carve_floats(c, rows, n->rank) : NULL;
    a->room.in = train ? mmi_carve_floats(c, rows, n->widest) : NULL;
    a->room.d_in = train ? mmi_carve_floats(c, rows, n->widest) : NULL;
}

size_t mmi_adapters_bytes(const mmi_arch *arch, const mmi_layout *layout, const mmi_limits *limits,
                          const mmi_adapter_cost *costs, int64_t count)
{
    mmi_adapters a;
    mmi_carve carve = { 0 };
    needs n = add_up(costs, count);
    place(&a, &carve, &n, arch, layout, limits);
    return carve.overflow ? SIZE_MAX : carve.used;
}

void mmi_adapters_close(mmi_adapters *a)
{
    for (int64_t i = 0; i < a->count; i++)
        mm_adapter_free(a->held[i]);
    mmi_free(a->block);
    *a = (mmi_adapters){ 0 };
}

const mmi_loras *mmi_adapters_beside(const mmi_adapters *a, int64_t index)
{
    return a->count > 0 && a->beside[index].count > 0 ? &a->beside[index] : NULL;
}

bool mmi_adapters_have(const mmi_adapters *a, const mm_adapter *adapter)
{
    bool found = false;
    for (int64_t i = 0; i < a->count; i++)
        found |= a->held[i] == adapter;
    return found;
}

/* --- Choosing them --- */

static mmi_lora lora_of(const mm_context *ctx, const mm_adapter *adapter, int64_t pair, float weight)
{
    bool trained = adapter == ctx->adapter;
    return (mmi_lora){ .a = mmi_adapter_room(adapter, 2 * pair),
                       .b = mmi_adapter_room(adapter, 2 * pair + 1),
                       .da = trained ? mmi_context_grads(ctx, 2 * pair) : NULL,
                       .db = trained ? mmi_context_grads(ctx, 2 * pair + 1) : NULL,
                       .rank = adapter->options.rank,
                       .scale = weight * adapter->scale,
                       .dropout = trained ? (float)adapter->options.dropout : 0,
                       .stream = MMI_STREAM(MMI_STREAM_ADAPTER_DROPOUT, adapter->bases[pair]) };
}

/* The entries beside each tensor, in the order of the adapters. */
static void fill(mm_context *ctx, mmi_adapters *a, mm_adapter *const *adapters, const float *weights, int64_t count)
{
    mmi_lora *next = a->entries;
    for (int64_t base = 0; count > 0 && base < ctx->layout->count; base++) {
        a->beside[base] = (mmi_loras){ .of = next, .room = &ctx->adapters.room };
        for (int64_t i = 0; i < count; i++) {
            int64_t pair = mmi_adapter_pair(adapters[i], base);
            if (pair < 0)
                continue;
            *next++ = lora_of(ctx, adapters[i], pair, weights ? weights[i] : 1);
            a->beside[base].count++;
        }
    }
    for (int64_t i = 0; i < count; i++)
        a->held[i] = mmi_adapter_hold(adapters[i]);
    a->count = count;
}

/* A block of the right size, cut for these adapters; the one at hand when it is. */
static mm_status make_room(mm_context *ctx, mm_adapter *const *adapters, int64_t count)
{
    mmi_adapters *a = &ctx->adapters;
    mmi_adapter_cost costs[MMI_MOST_ADAPTERS];
    for (int64_t i = 0; i < count; i++)
        costs[i] = mmi_adapter_cost_of(adapters[i]);
    size_t size = mmi_adapters_bytes(ctx->arch, ctx->layout, &ctx->limits, costs, count);
    if (size != a->size) {
        void *block = size == SIZE_MAX ? NULL : mmi_alloc(1, size);
        if (!block)
            return mmi_fail_memory(size, "a context's adapters");
        mmi_free(a->block);
        a->block = block;
        a->size = size;
    }
    needs n = add_up(costs, count);
    mmi_carve carve = { .base = a->block };
    place(a, &carve, &n, ctx->arch, ctx->layout, &ctx->limits);
    return MM_OK;
}

mm_status mm_context_set_adapters(mm_context *ctx, mm_adapter *const *adapters, const float *weights, int32_t count)
{
    if (!ctx)
        return mmi_fail(MM_ERR_ARG, "mm_context_set_adapters: context is NULL");
    mm_status status = mmi_adapters_check("mm_context_set_adapters", ctx->model, adapters, weights, count);
    if (status == MM_OK)
        status = mmi_context_enter(ctx, "mm_context_set_adapters");
    if (status != MM_OK)
        return status;
    mmi_adapters *a = &ctx->adapters;
    mm_adapter *before[MMI_MOST_ADAPTERS];
    int64_t had = a->count;
    for (int64_t i = 0; i < had; i++)
        before[i] = a->held[i];
    if (count > 0)
        status = make_room(ctx, adapters, count);
    if (status == MM_OK) {
        fill(ctx, a, adapters, weights, count);
        for (int64_t i = 0; i < had; i++)
            mm_adapter_free(before[i]);
        ctx->can_go_back = false;
    }
    mmi_context_leave(ctx);
    return status;
}
