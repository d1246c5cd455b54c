#include "model/adapter.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "base/options.h"
#include "base/random.h"
#include "model/model.h"
#include "model/patterns.h"

#define DEFAULT_TARGETS "q_proj,k_proj,v_proj,o_proj"
#define MINIMIND "minimind"
#define MINIMIND_DEVIATION 0.02f
#define WEIGHT ".weight"

MMI_OPTIONS_INIT(mm_adapter_options, MM_ADAPTER_OPTIONS_INIT)

/* --- Which matrices --- */

static bool is_minimind(const char *targets)
{
    return strcmp(targets, MINIMIND) == 0;
}

bool mmi_adapter_is_rule(const char *targets)
{
    return is_minimind(targets) || strcmp(targets, "all-linear") == 0;
}

void mmi_adapter_module(const mmi_layout *layout, int64_t index, char name[MMI_NAME_SIZE])
{
    mmi_layout_name(layout, index, name, MMI_NAME_SIZE);
    name[strlen(name) - strlen(WEIGHT)] = '\0';
}

static bool is_target(const mmi_layout *layout, int64_t index, const mmi_tensor *tensor, const char *targets)
{
    if (!mmi_layout_is_projection(tensor))
        return false;
    if (is_minimind(targets))
        return tensor->shape[0] == tensor->shape[1];
    char name[MMI_NAME_SIZE];
    mmi_adapter_module(layout, index, name);
    return strcmp(targets, "all-linear") == 0 || mmi_patterns_mean(targets, name);
}

/* The next adapted matrix from `index` on, or the number of tensors. */
static int64_t next_target(const mmi_layout *layout, int64_t index, const char *targets, mmi_tensor *tensor)
{
    for (; index < layout->count; index++) {
        mmi_layout_tensor(layout, index, tensor);
        if (is_target(layout, index, tensor, targets))
            break;
    }
    return index;
}

/* Whether a pattern is a projection's whole name. A file alone lists thousands, so only the layer named is searched. */
static bool is_projection_name(const mmi_layout *layout, mmi_pattern pattern)
{
    mmi_tensor tensor;
    int64_t index = mmi_name_find_joined(layout, pattern.text, pattern.length, WEIGHT);
    if (index >= 0)
        mmi_layout_tensor(layout, index, &tensor);
    return index >= 0 && mmi_layout_is_projection(&tensor);
}

/* Every pattern is to mean something, or it was a slip. */
static mm_status check_targets(const mmi_layout *layout, const char *targets)
{
    mmi_tensor tensor;
    if (mmi_adapter_is_rule(targets)) {
        if (next_target(layout, 0, targets, &tensor) == layout->count)
            return mmi_fail(MM_ERR_ARG, "targets is \"%s\", which means no matrix of this model", targets);
        return MM_OK;
    }
    const char *list = targets;
    for (mmi_pattern p; mmi_pattern_next(&p, &list);) {
        bool means = is_projection_name(layout, p);
        for (int64_t i = 0; i < layout->count && !means; i++) {
            char name[MMI_NAME_SIZE];
            mmi_layout_tensor(layout, i, &tensor);
            if (!mmi_layout_is_projection(&tensor))
                continue;
            mmi_adapter_module(layout, i, name);
            means = mmi_pattern_means(p, name);
        }
        if (!means)
            return mmi_fail(MM_ERR_ARG, "targets has \"%.*s\", which means no projection of this model's layers",
                            (int)(p.length < 200 ? p.length : 200), p.text);
    }
    return MM_OK;
}

/* --- What it takes --- */

static mm_status read_options(mm_adapter_options *o, const mm_adapter_options *given)
{
    *o = (mm_adapter_options)MM_ADAPTER_OPTIONS_INIT;
    mm_status status = mmi_options_read(o, sizeof *o, given, "mm_adapter_options");
    if (status != MM_OK)
        return status;
    if (o->rank < 1 || o->rank > MMI_MOST_RANK)
        return mmi_fail(MM_ERR_ARG, "rank is %d, must be from 1 to %d", (int)o->rank, MMI_MOST_RANK);
    if (!(o->alpha > 0) || !isfinite(o->alpha))
        return mmi_fail(MM_ERR_ARG, "alpha is %g, must be finite and above 0", o->alpha);
    if (!isfinite((float)(o->alpha / o->rank)))
        return mmi_fail(MM_ERR_ARG, "alpha is %g, over the rank it must be a float32", o->alpha);
    if (!(o->dropout >= 0 && o->dropout < 1))
        return mmi_fail(MM_ERR_ARG, "dropout is %g, must be from 0 up and below 1", o->dropout);
    if (o->reserved != 0)
        return mmi_fail(MM_ERR_ARG, "reserved is %d, must be 0", (int)o->reserved);
    if (!o->targets)
        o->targets = DEFAULT_TARGETS;
    if (is_minimind(o->targets))
        o->alpha = o->rank;
    return MM_OK;
}

/* Cut the handle's block; with base NULL `carve` only measures. */
static mm_adapter *carve_handle(mmi_carve *carve, int64_t pairs, const char *targets)
{
    mm_adapter *adapter = mmi_carve_take(carve, 1, sizeof *adapter);
    int64_t *bases = mmi_carve_take(carve, pairs, sizeof *bases);
    size_t *offsets = mmi_carve_take(carve, 2 * pairs, sizeof *offsets);
    size_t length = strlen(targets) + 1;
    char *text = mmi_carve_take(carve, (int64_t)length, 1);
    if (!carve->base)
        return NULL;
    memcpy(text, targets, length);
    adapter->pairs = pairs;
    adapter->bases = bases;
    adapter->offsets = offsets;
    adapter->options.targets = text;
    return adapter;
}

/* Where B [out, rank] begins in the arena, behind its A [rank, in]: those of the matrix `t` [out, in]. */
static size_t carve_pair(mmi_carve *arena, const mmi_tensor *t, int64_t rank)
{
    mmi_carve_take(arena, rank * t->shape[1], sizeof(float));
    size_t b = arena->used;
    mmi_carve_take(arena, t->shape[0] * rank, sizeof(float));
    return b;
}

mm_status mmi_adapter_measure(mmi_adapter_cost *out, const mmi_layout *layout, const mm_adapter_options *options)
{
    mm_adapter_options o;
    mm_status status = read_options(&o, options);
    if (status == MM_OK)
        status = check_targets(layout, o.targets);
    if (status != MM_OK)
        return status;
    mmi_adapter_cost cost = { .rank = o.rank, .targets = o.targets, .dropout = o.dropout };
    mmi_carve carve = { 0 }, arena = { 0 };
    mmi_tensor t;
    for (int64_t i = 0; (i = next_target(layout, i, o.targets, &t)) < layout->count; i++) {
        cost.pairs++;
        cost.widest = t.shape[1] > cost.widest ? t.shape[1] : cost.widest;
        carve_pair(&arena, &t, o.rank);
    }
    if (arena.overflow)
        return mmi_fail(MM_ERR_ARG, "an adapter of rank %d for these targets is beyond this machine", (int)o.rank);
    carve_handle(&carve, cost.pairs, o.targets);
    cost.handle = carve.used;
    cost.arena = arena.used;
    *out = cost;
    return MM_OK;
}

mmi_adapter_cost mmi_adapter_cost_of(const mm_adapter *adapter)
{
    mmi_adapter_cost cost = { .pairs = adapter->pairs,
                              .rank = adapter->options.rank,
                              .targets = adapter->options.targets,
                              .dropout = adapter->options.dropout };
    mmi_carve carve = { 0 }, arena = { 0 };
    for (int64_t i = 0; i < adapter->pairs; i++) {
        mmi_tensor t;
        mmi_layout_tensor(adapter->layout, adapter->bases[i], &t);
        cost.widest = t.shape[1] > cost.widest ? t.shape[1] : cost.widest;
        carve_pair(&arena, &t, cost.rank);
    }
    carve_handle(&carve, cost.pairs, adapter->options.targets);
    cost.handle = carve.used;
    cost.arena = arena.used;
    return cost;
}

bool mmi_adapter_targets(const mmi_layout *layout, int64_t index, const char *targets)
{
    mmi_tensor t;
    mmi_layout_tensor(layout, index, &t);
    return is_target(layout, index, &t, targets);
}

/* --- Making one --- */

mm_status mmi_adapter_new(mm_adapter **out, mm_model *model, const mm_adapter_options *options)
{
    const mmi_layout *layout = mmi_model_layout(model);
    mmi_adapter_cost cost;
    mm_adapter_options o;
    mm_status status = mmi_adapter_measure(&cost, layout, options);
    if (status == MM_OK)
        status = read_options(&o, options);
    if (status != MM_OK)
        return status;
    mmi_carve carve = { .base = mmi_calloc(1, cost.handle) }, places = { 0 };
    if (!carve.base)
        return mmi_fail_memory(cost.handle, "an adapter");
    mm_adapter *adapter = carve_handle(&carve, cost.pairs, o.targets);
    o.targets = adapter->options.targets;
    adapter->options = o;
    atomic_init(&adapter->holds, 1);
    adapter->model = mmi_model_hold(model);
    adapter->layout = layout;
    adapter->scale = (float)(o.alpha / o.rank);
    adapter->arena_size = cost.arena;
    mmi_tensor t;
    int64_t pair = 0;
    for (int64_t i = 0; (i = next_target(layout, i, o.targets, &t)) < layout->count; i++, pair++) {
        adapter->bases[pair] = i;
        adapter->offsets[2 * pair] = places.used;
        adapter->offsets[2 * pair + 1] = carve_pair(&places, &t, o.rank);
    }
    *out = adapter;
    return MM_OK;
}

mm_status mmi_adapter_make_room(mm_adapter *adapter)
{
    adapter->arena = mmi_calloc(1, adapter->arena_size);
    return adapter->arena ? MM_OK : mmi_fail_memory(adapter->arena_size, "an adapter");
}

static void initialise_a(mm_adapter *adapter, int64_t pair)
{
    mmi_tensor t;
    mmi_adapter_shape(adapter, 2 * pair, &t);
    float *a = mmi_adapter_room(adapter, 2 * pair);
    uint64_t seed = adapter->options.seed, stream = MMI_STREAM(MMI_STREAM_ADAPTER, adapter->bases[pair]);
    if (is_minimind(adapter->options.targets)) {
        mmi_random_normal(a, t.elements, MINIMIND_DEVIATION, seed, stream, 0);
        return;
    }
    double bound = 1 / sqrt((double)t.shape[1]);
    for (int64_t i = 0; i < t.elements; i++)
        a[i] = (float)(bound * (2 * mmi_random_uniform(seed, stream, (uint64_t)i) - 1));
}

mm_status mm_adapter_create(mm_model *model, const mm_adapter_options *options, mm_adapter **out)
{
    if (!model || !out)
        return mmi_fail(MM_ERR_ARG, "mm_adapter_create: %s is NULL", model ? "out" : "model");
    mm_adapter *adapter = NULL;
    mm_status status = mmi_adapter_new(&adapter, model, options);
    if (status == MM_OK)
        status = mmi_adapter_make_room(adapter);
    if (status != MM_OK) {
        mm_adapter_free(adapter);
        return status;
    }
    for (int64_t pair = 0; pair < adapter->pairs; pair++)
        initialise_a(adapter, pair);
    *out = adapter;
    return MM_OK;
}

mm_adapter *mmi_adapter_hold(mm_adapter *adapter)
{
    atomic_fetch_add_explicit(&adapter->holds, 1, memory_order_relaxed);
    return adapter;
}

void mm_adapter_free(mm_adapter *adapter)
{
    if (!adapter || atomic_fetch_sub_explicit(&adapter->holds, 1, memory_order_acq_rel) != 1)
        return;
    mm_model_free(adapter->model);
    mmi_free(adapter->arena);
    mmi_free(adapter);
}

/* --- Looking at it --- */

mm_model *mm_adapter_model(const mm_adapter *adapter)
{
    return adapter ? adapter->model : NULL;
}

mm_status mm_adapter_describe(const mm_adapter *adapter, mm_adapter_options *out)
{
    if (!adapter || !out)
        return mmi_fail(MM_ERR_ARG, "mm_adapter_describe: %s is NULL", adapter ? "out" : "adapter");
    return mmi_result_write(out, &adapter->options, sizeof adapter->options, "mm_adapter_options");
}

int64_t mm_adapter_tensor_count(const mm_adapter *adapter)
{
    return adapter ? 2 * adapter->pairs : 0;
}

int64_t mmi_adapter_pair(const mm_adapter *adapter, int64_t base)
{
    for (int64_t i = 0; i < adapter->pairs && adapter->bases[i] <= base; i++)
        if (adapter->bases[i] == base)
            return i;
    return -1;
}

void mmi_adapter_shape(const mm_adapter *adapter, int64_t index, mmi_tensor *out)
{
    mmi_layout_tensor(adapter->layout, adapter->bases[index / 2], out);
    out->shape[index % 2] = adapter->options.rank; /* A [rank, in], B [out, rank] */
    out->elements = out->shape[0] * out->shape[1];
}

int64_t mm_adapter_count_params(const mm_adapter *adapter)
{
    int64_t sum = 0;
    for (int64_t i = 0; i < mm_adapter_tensor_count(adapter); i++) {
        mmi_tensor t;
        mmi_adapter_shape(adapter, i, &t);
        sum += t.elements;
    }
    return sum;
}

void mmi_adapter_tensor_name(const mm_adapter *adapter, int64_t index, char *name, size_t size)
{
    char module[MMI_NAME_SIZE];
    mmi_adapter_module(adapter->layout, adapter->bases[index / 2], module);
    snprintf(name, size, "%s.lora_%c" WEIGHT, module, index % 2 ? 'B' : 'A');
}

float *mmi_adapter_room(const mm_adapter *adapter, int64_t index)
{
    return adapter->arena + adapter->offsets[index] / sizeof(float);
}

static mm_status check_index(const mm_adapter *adapter, int64_t index, const char *function)
{
    if (!adapter)
        return mmi_fail(MM_ERR_ARG, "%s: adapter is NULL", function);
    if (index < 0 || index >= 2 * adapter->pairs)
        return mmi_fail(MM_ERR_ARG, "%s: there is no tensor %lld, the adapter has %lld", function, (long long)index,
                        (long long)(2 * adapter->pairs));
    return MM_OK;
}

mm_status mm_adapter_name(const mm_adapter *adapter, int64_t index, char *out, size_t capacity, size_t *needed)
{
    mm_status status = check_index(adapter, index, "mm_adapter_name");
    if (status != MM_OK)
        return status;
    if (!out && capacity > 0)
        return mmi_fail(MM_ERR_ARG, "mm_adapter_name: out is NULL");
    char name[MMI_ADAPTER_NAME_SIZE];
    mmi_adapter_tensor_name(adapter, index, name, sizeof name);
    size_t size = strlen(name) + 1;
    if (needed)
        *needed = size;
    if (!out)
        return MM_OK;
    if (capacity < size)
        return mmi_fail(MM_ERR_ARG, "mm_adapter_name: the name takes %zu bytes, there is room for %zu", size, capacity);
    memcpy(out, name, size);
    return MM_OK;
}

static mm_status show(const mm_adapter *adapter, int64_t index, mm_view *out, const char *function)
{
    mm_status status = check_index(adapter, index, function);
    if (status != MM_OK)
        return status;
    if (!out)
        return mmi_fail(MM_ERR_ARG, "%s: out is NULL", function);
    mmi_tensor t;
    mmi_adapter_shape(adapter, index, &t);
    *out = (mm_view){ .data = mmi_adapter_room(adapter, index),
                      .dtype = MM_F32,
                      .rank = 2,
                      .shape = { t.shape[0], t.shape[1], 1, 1 },
                      .strides = { t.shape[1], 1, 0, 0 } };
    return MM_OK;
}

mm_status mm_adapter_tensor(const mm_adapter *adapter, int64_t index, mm_view *out)
{
    return show(adapter, index, out, "mm_adapter_tensor");
}

mm_status mm_adapter_find(const mm_adapter *adapter, const char *name, mm_view *out)
{
    if (!adapter || !name)
        return mmi_fail(MM_ERR_ARG, "mm_adapter_find: %s is NULL", adapter ? "name" : "adapter");
    for (int64_t i = 0; i < 2 * adapter->pairs; i++) {
        char candidate[MMI_ADAPTER_NAME_SIZE];
        mmi_adapter_tensor_name(adapter, i, candidate, sizeof candidate);
        if (strcmp(candidate, name) == 0)
            return show(adapter, i, out, "mm_adapter_find");
    }
    return mmi_fail(MM_ERR_ARG, "mm_adapter_find: the adapter has no tensor \"%.200s\"", name);
}

mm_status mm_adapter_write(mm_adapter *adapter, int64_t index, mm_view *out)
{
    return show(adapter, index, out, "mm_adapter_write");
}

/* Adapters are read where they lie, so there is nothing to make again; the call is there so that a program treats them
 * as it treats models. */
void mm_adapter_written(mm_adapter *adapter)
{
    (void)adapter;
}
