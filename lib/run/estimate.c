#include <minimind/count.h>

#include "base/dtype.h"
#include "base/options.h"
#include "base/pool.h"
#include "model/optimizer_layout.h"
#include "run/cache.h"
#include "run/context.h"

MMI_OPTIONS_INIT(mm_workload, MM_WORKLOAD_INIT)
MMI_OPTIONS_INIT(mm_memory, MM_MEMORY_INIT)
MMI_OPTIONS_INIT(mm_flops, MM_FLOPS_INIT)

static mm_status read_workload(mm_workload *out, mmi_arch *arch, mmi_limits *limits, const mm_config *config,
                               const mm_workload *workload)
{
    if (!config || !workload)
        return mmi_fail(MM_ERR_ARG, "an estimate needs a config and a workload");
    *out = (mm_workload)MM_WORKLOAD_INIT;
    mm_status status = mmi_options_read(out, sizeof *out, workload, "mm_workload");
    if (status == MM_OK && out->reserved != 0)
        status = mmi_fail(MM_ERR_ARG, "mm_workload: reserved is %d, must be 0", out->reserved);
    if (status == MM_OK)
        status = mmi_config_resolve(config, arch);
    if (status != MM_OK)
        return status;
    mm_context_options o = { .struct_size = sizeof o,
                             .mode = out->mode,
                             .max_batch = out->max_batch,
                             .max_length = out->max_length,
                             .max_context = out->max_context,
                             .outputs = out->outputs,
                             .threads = out->threads,
                             .checkpointing = out->checkpointing,
                             .kernels = out->kernels };
    mmi_weight_kinds kinds = { out->dtype == MM_BF16 || out->dtype == MM_F16, mmi_block_bytes(out->dtype) > 0 };
    if (out->dtype != MM_F32 && !kinds.wide && !kinds.blocks)
        return mmi_fail(MM_ERR_ARG, "dtype is %d (%s), weights may be f32, bf16, f16, q8_0 or q4_0", out->dtype,
                        mm_dtype_name(out->dtype));
    if (out->weights_mapped != 0 && out->weights_mapped != 1)
        return mmi_fail(MM_ERR_ARG, "weights_mapped is %d, allowed are 0 and 1", out->weights_mapped);
    if (out->weights_mapped && kinds.blocks)
        return mmi_fail(MM_ERR_ARG, "weights_mapped is 1, but weights in %s are read into memory",
                        mm_dtype_name(out->dtype));
    status = mmi_limits_read(limits, arch, &o, kinds);
    bool trains = out->mode == MM_TRAIN || out->optimizer;
    if (status == MM_OK && out->dtype != MM_F32 && trains)
        status = mmi_fail(MM_ERR_ARG, "dtype is %s, a model in training has f32", mm_dtype_name(out->dtype));
    if (status == MM_OK && out->weights_mapped && trains && !out->adapter)
        status = mmi_fail(MM_ERR_ARG, "weights_mapped is 1: without an adapter, mapped weights can't be trained");
    if (status == MM_OK && out->trainable && (out->mode != MM_TRAIN || out->adapter))
        status = mmi_fail(MM_ERR_ARG, "trainable is for MM_TRAIN without an adapter");
    return status;
}

/* An adapter, what a context needs to run with it, and its share of gradients and moments; or the model's own of these.
 */
static mm_status add_trained(mm_memory *m, const mmi_arch *arch, const mmi_layout *layout, const mmi_limits *limits,
                             const mm_workload *w)
{
    const mmi_trained trained = { .layout = layout, .patterns = w->trainable };
    mm_status status = mmi_trained_check(&trained);
    if (status == MM_OK && (w->optimizer < 0 || w->optimizer > 2 || (w->optimizer == 2 && w->adapter)))
        status = mmi_fail(MM_ERR_ARG, "optimizer is %d, must be 0, 1 or, without an adapter, 2", w->optimizer);
    int64_t tensors = layout->count;
    size_t arena = 0, state, handle;
    mmi_adapter_cost cost;
    if (status == MM_OK && w->adapter)
        status = mmi_adapter_measure(&cost, layout, w->adapter);
    if (status != MM_OK)
        return status;
    if (w->adapter) {
        size_t room = mmi_adapters_bytes(arch, layout, limits, &cost, 1);
        if (room == SIZE_MAX)
            return mmi_fail(MM_ERR_ARG, "an adapter of rank %lld is beyond this machine here", (long long)cost.rank);
        tensors = 2 * cost.pairs;
        arena = cost.arena;
        m->adapter = (int64_t)cost.arena;
        m->activations += (int64_t)room;
        m->handles += (int64_t)cost.handle;
    } else if (limits->mode == MM_TRAIN || w->optimizer) {
        arena = mmi_trained_place(&trained, NULL);
    }
    if (limits->mode == MM_TRAIN)
        m->gradients = (int64_t)arena;
    if (w->optimizer) {
        mmi_moments at = w->optimizer == 2 ? mmi_muon_place(&trained, NULL) : (mmi_moments){ arena, arena, 0, 0 };
        mmi_optimizer_bytes(tensors, &at, &state, &handle);
        if (state == SIZE_MAX)
            return mmi_fail(MM_ERR_ARG, "an optimizer for so many parameters is beyond this machine");
        m->optimizer = (int64_t)state;
        m->handles += (int64_t)handle;
    }
    return MM_OK;
}

static mm_status add_cache(mm_memory *m, const mmi_arch *a, const mm_workload *w)
{
    mm_status status = mmi_cache_check_dtype(a, w->cache_dtype, "cache_dtype");
    if (status != MM_OK)
        return status;
    m->cache_per_token = (int64_t)mmi_dtype_bytes(w->cache_dtype, 2 * a->L * a->G * a->D);
    if (w->cache_sequences == 0)
        return MM_OK;
    size_t data, handle;
    status = mmi_cache_measure(a, "cache_", w->cache_sequences, w->cache_capacity, w->cache_dtype, &data, &handle);
    if (status != MM_OK)
        return status;
    m->cache = (int64_t)data;
    m->handles += (int64_t)handle;
    return MM_OK;
}

mm_status mm_estimate_memory(const mm_config *config, const mm_workload *workload, mm_memory *out)
{
    mm_workload w;
    mmi_arch arch;
    mmi_limits limits;
    mm_status status = read_workload(&w, &arch, &limits, config, workload);
    if (status != MM_OK)
        return status;
    mmi_layout layout;
    mmi_layout_create(&layout, &arch);
    mmi_carve carve = { .guarded = true };
    mmi_plan plan;
    mmi_model_cost cost;
    const mmi_trained trained = { .layout = &layout, .patterns = w.trainable };
    limits.head_learns = !w.adapter && mmi_trained_head(&trained);
    if ((status = mmi_model_estimate(config, w.dtype, w.weights_mapped, &cost)) != MM_OK)
        return status;
    if (!mmi_plan_place(&plan, &carve, &arch, &layout, &limits))
        return mmi_fail(MM_ERR_ARG, "%d sequences of %d tokens are beyond this machine", w.max_batch, w.max_length);
    mm_memory m = MM_MEMORY_INIT;
    m.weights = (int64_t)cost.weights;
    m.activations = (int64_t)carve.used;
    m.handles = (int64_t)(cost.handle + mmi_context_handle_bytes(&layout) + mmi_pool_bytes(limits.threads));
    if ((status = add_trained(&m, &arch, &layout, &limits, &w)) != MM_OK)
        return status;
    if ((status = add_cache(&m, &arch, &w)) != MM_OK)
        return status;
    m.total = m.weights + m.adapter + m.gradients + m.optimizer + m.activations + m.cache + m.handles;
    return mmi_result_write(out, &m, sizeof m, "mm_memory");
}

/* The share of a tensor's parameters that stand in a product for one token: of matrices, without the embedding unless
 * it is also the head, all; of the routed experts only the top k. */
static double share_of(const mmi_tensor *t, const mmi_arch *a)
{
    if (t->rank != 2 || (t->role == MMI_EMBED && !a->tied))
        return 0;
    return t->module == MM_MODULE_MOE_EXPERTS ? (double)a->top_k / (double)a->E : 1;
}

typedef struct parameters {
    double matrices, learning, adapter; /* per token; learning: matrices that are trained */
} parameters;

/* `adapter` is what w->adapter asks for. */
static mm_status count_parameters(parameters *out, const mmi_layout *layout, const mmi_arch *a, const mm_workload *w,
                                  const mmi_adapter_cost *adapter)
{
    const mmi_trained trained = { .layout = layout, .patterns = w->trainable };
    mm_status status = mmi_trained_check(&trained);
    if (status != MM_OK)
        return status;
    for (int role = 0; role < MMI_ROLES; role++) {
        const int64_t times = mmi_layout_times(layout, (mmi_role)role);
        mmi_tensor t;
        mmi_layout_describe(layout, (mmi_role)role, &t);
        if (times > 0)
            out->matrices += share_of(&t, a) * ((double)t.elements * (double)times);
    }
    if (!w->adapter && !w->trainable) {
        out->learning = out->matrices;
        return MM_OK;
    }
    for (int64_t i = 0; i < layout->count; i++) { /* patterns mean single ones */
        mmi_tensor t;
        mmi_layout_tensor(layout, i, &t);
        if (!w->adapter && mmi_trained_learns(&trained, i))
            out->learning += share_of(&t, a) * (double)t.elements;
        if (w->adapter && mmi_adapter_targets(layout, i, adapter->targets))
            out->adapter += share_of(&t, a) * (double)(t.shape[0] + t.shape[1]) * (double)adapter->rank;
    }
    return MM_OK;
}

mm_status mm_estimate_flops(const mm_config *config, const mm_workload *workload, mm_flops *out)
{
    mm_workload w;
    mmi_arch a;
    mmi_limits limits;
    parameters p = { 0 };
    mmi_adapter_cost cost = { 0 };
    mm_status status = read_workload(&w, &a, &limits, config, workload);
    if (status != MM_OK)
        return status;
    mmi_layout layout;
    mmi_layout_create(&layout, &a);
    if (w.adapter && (status = mmi_adapter_measure(&cost, &layout, w.adapter)) != MM_OK)
        return status;
    if ((status = count_parameters(&p, &layout, &a, &w, &cost)) != MM_OK)
        return status;
    double attention = 2.0 * (double)(a.L * a.H * a.D) * ((double)w.max_length + 1);
    mm_flops f = MM_FLOPS_INIT;
    f.forward = 2 * (p.matrices + p.adapter) + attention;
    f.backward = 2 * (p.matrices + p.learning) + 4 * p.adapter + 2 * attention;
    f.total = f.forward + f.backward;
    f.attention = 3 * attention;
    return mmi_result_write(out, &f, sizeof f, "mm_flops");
}
