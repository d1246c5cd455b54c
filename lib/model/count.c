/* What a config costs in parameters: a walk over its layout. */
#include <minimind/count.h>

#include "base/options.h"
#include "base/status.h"
#include "model/layout.h"

MMI_OPTIONS_INIT(mm_param_count, MM_PARAM_COUNT_INIT)
MMI_OPTIONS_INIT(mm_tensor_info, MM_TENSOR_INFO_INIT)

static int64_t *module_total(mm_param_count *count, int32_t module)
{
    switch (module) {
    case MM_MODULE_EMBEDDING:
        return &count->embedding;
    case MM_MODULE_ATTENTION:
        return &count->attention;
    case MM_MODULE_MLP_DENSE:
        return &count->mlp_dense;
    case MM_MODULE_MOE_ROUTER:
        return &count->moe_router;
    case MM_MODULE_MOE_EXPERTS:
        return &count->moe_experts;
    case MM_MODULE_MOE_SHARED_EXPERTS:
        return &count->moe_shared_experts;
    case MM_MODULE_MOE_SCALARS:
        return &count->moe_scalars;
    case MM_MODULE_LAYER_NORMS:
        return &count->layer_norms;
    case MM_MODULE_FINAL_NORM:
        return &count->final_norm;
    default:
        return &count->lm_head;
    }
}

/* Layers are alike, and so are experts: one of each speaks for all. */
static void count_layout(const mmi_layout *layout, mm_param_count *count)
{
    const mmi_arch *arch = layout->arch;
    for (int role = 0; role < MMI_ROLES; role++) {
        int64_t times = mmi_layout_times(layout, (mmi_role)role);
        if (times == 0)
            continue;
        mmi_tensor tensor;
        mmi_layout_describe(layout, (mmi_role)role, &tensor);
        *module_total(count, tensor.module) += times * tensor.elements;
        count->total += times * tensor.elements;
        if (tensor.module == MM_MODULE_MOE_EXPERTS)
            times = times / arch->E * arch->top_k;
        count->active += times * tensor.elements;
    }
}

static mm_status resolve(const mm_config *config, mmi_arch *arch, mmi_layout *layout, const char *function)
{
    if (!config)
        return mmi_fail(MM_ERR_ARG, "%s: config is NULL", function);
    mm_status status = mmi_config_resolve(config, arch);
    if (status == MM_OK)
        mmi_layout_create(layout, arch);
    return status;
}

mm_status mm_count_params(const mm_config *config, mm_param_count *out)
{
    mmi_arch arch;
    mmi_layout layout;
    mm_status status = resolve(config, &arch, &layout, "mm_count_params");
    if (status != MM_OK)
        return status;
    mm_param_count count = MM_PARAM_COUNT_INIT;
    count_layout(&layout, &count);
    return mmi_result_write(out, &count, sizeof count, "mm_param_count");
}

mm_status mm_layout_count(const mm_config *config, int64_t *out)
{
    mmi_arch arch;
    mmi_layout layout;
    mm_status status = resolve(config, &arch, &layout, "mm_layout_count");
    if (status != MM_OK)
        return status;
    if (!out)
        return mmi_fail(MM_ERR_ARG, "mm_layout_count: out is NULL");
    *out = layout.count;
    return MM_OK;
}

mm_status mm_layout_get(const mm_config *config, int64_t index, mm_tensor_info *out)
{
    mmi_arch arch;
    mmi_layout layout;
    mm_status status = resolve(config, &arch, &layout, "mm_layout_get");
    if (status != MM_OK)
        return status;
    if (index < 0 || index >= layout.count)
        return mmi_fail(MM_ERR_ARG, "mm_layout_get: tensor %lld of %lld", (long long)index, (long long)layout.count);
    mmi_tensor tensor;
    mmi_layout_tensor(&layout, index, &tensor);
    mm_tensor_info info = MM_TENSOR_INFO_INIT;
    mmi_layout_name(&layout, index, info.name, sizeof info.name);
    info.shape[0] = tensor.shape[0];
    info.shape[1] = tensor.shape[1];
    info.shape[2] = info.shape[3] = 1;
    info.elements = tensor.elements;
    info.rank = tensor.rank;
    info.module = tensor.module;
    info.layer = (int32_t)tensor.layer;
    info.expert = (int32_t)tensor.expert;
    return mmi_result_write(out, &info, sizeof info, "mm_tensor_info");
}
