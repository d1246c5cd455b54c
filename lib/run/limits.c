#include "run/limits.h"

#include <stdio.h>

#include "base/options.h"
#include "base/processor.h"

#define MOST_THREADS 1024
#define ALL_OUTPUTS (MM_OUT_LOSS | MM_OUT_LOGPROBS | MM_OUT_LAST_LOGITS | MM_OUT_LOGITS | MM_OUT_HIDDEN)

static mm_status check_between(const char *name, int64_t value, int64_t low, int64_t high)
{
    if (value < low || value > high)
        return mmi_fail(MM_ERR_ARG, "%s is %lld, must be from %lld to %lld", name, (long long)value, (long long)low,
                        (long long)high);
    return MM_OK;
}

static mm_status check_sizes(const mm_context_options *o, const mmi_arch *arch)
{
    mm_status status;
    if ((status = check_between("mode", o->mode, MM_EVAL, MM_TRAIN)) != MM_OK ||
        (status = check_between("max_batch", o->max_batch, 1, 1 << 20)) != MM_OK ||
        (status = check_between("max_length", o->max_length, 1, arch->max_positions)) != MM_OK ||
        (status = check_between("threads", o->threads, 0, MOST_THREADS)) != MM_OK)
        return status;
    if (o->max_context != 0 &&
        (status = check_between("max_context", o->max_context, o->max_length, arch->max_positions)) != MM_OK)
        return status;
    if ((int64_t)o->max_batch * o->max_length > INT32_MAX)
        return mmi_fail(MM_ERR_ARG, "max_batch x max_length is %lld, must be at most %d",
                        (long long)o->max_batch * o->max_length, INT32_MAX);
    return MM_OK;
}

static mm_status check_choices(const mm_context_options *o)
{
    if (o->outputs & ~ALL_OUTPUTS)
        return mmi_fail(MM_ERR_ARG, "outputs is %d, must be a sum of MM_OUT_ values", o->outputs);
    mm_status status = check_between("checkpointing", o->checkpointing, 0, 1);
    if (status != MM_OK)
        return status;
    if (!(o->router_noise >= 0 && o->router_noise <= 1))
        return mmi_fail(MM_ERR_ARG, "router_noise is %g, must be from 0 to 1", o->router_noise);
    if (o->compute != MM_F32 && o->compute != MM_BF16 && o->compute != MM_F16)
        return mmi_fail(MM_ERR_ARG, "compute is %d (%s), must be f32, bf16 or f16", o->compute,
                        mm_dtype_name(o->compute));
    if (o->reserved != 0)
        return mmi_fail(MM_ERR_ARG, "reserved is %d, must be 0", o->reserved);
    if (o->parallel_for && o->threads == 0)
        return mmi_fail(MM_ERR_ARG, "threads is 0: with a parallel_for it must say how many workers that has");
    return MM_OK;
}

mm_status mmi_limits_read(mmi_limits *out, const mmi_arch *arch, const mm_context_options *options,
                          mmi_weight_kinds weights)
{
    mm_context_options o = MM_CONTEXT_OPTIONS_INIT;
    mm_status status = mmi_options_read(&o, sizeof o, options, "mm_context_options");
    if (status == MM_OK)
        status = check_sizes(&o, arch);
    if (status == MM_OK)
        status = check_choices(&o);
    if (status != MM_OK)
        return status;
    const mmi_path *path = mmi_path_find(o.kernels);
    if (!path) {
        char what[256];
        snprintf(what, sizeof what, "kernels is \"%.200s\", must be ", o.kernels);
        return mmi_fail_choice(MM_ERR_ARG, what, mm_kernels_name);
    }
    *out = (mmi_limits){
        .mode = o.mode,
        .max_batch = o.max_batch,
        .max_length = o.max_length,
        .max_context = o.max_context ? o.max_context : o.max_length,
        .outputs = o.outputs          ? o.outputs :
                   o.mode == MM_TRAIN ? MM_OUT_LOSS :
                                        MM_OUT_LAST_LOGITS,
        .threads = o.threads ? o.threads : mmi_processor_count(),
        .checkpointing = o.mode == MM_TRAIN && o.checkpointing,
        .router_noise = o.router_noise,
        .compute = o.compute,
        .path = path,
        .weights = weights,
        .parallel_for = o.parallel_for,
        .parallel_for_user = o.parallel_for_user,
    };
    return MM_OK;
}
