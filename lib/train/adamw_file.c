/* AdamW's moments as safetensors: exp_avg.NAME and exp_avg_sq.NAME for every parameter, the steps as metadata. */
#include <stdio.h>
#include <stdlib.h>

#include "model/model.h"
#include "train/optimizer.h"
#include "train/tensors.h"

static float *get_m(void *owner, int64_t index)
{
    return mmi_adamw_m(owner, index);
}

static float *get_v(void *owner, int64_t index)
{
    return mmi_adamw_v(owner, index);
}

#define MOMENTS(optimizer) { { "exp_avg.", get_m, (void *)(optimizer) }, { "exp_avg_sq.", get_v, (void *)(optimizer) } }

mm_status mm_optimizer_save(const mm_optimizer *optimizer, const char *path)
{
    if (!optimizer || !path)
        return mmi_fail(MM_ERR_ARG, "mm_optimizer_save: %s is NULL", optimizer ? "path" : "optimizer");
    const mmi_tensor_set moments[2] = MOMENTS(optimizer);
    char steps[24];
    snprintf(steps, sizeof steps, "%lld", (long long)optimizer->steps);
    const char *const metadata[] = { "step", steps, NULL };
    return mmi_tensors_write(path, mmi_model_layout(optimizer->model), moments, 2, metadata);
}

static mm_status read_steps(int64_t *steps, const mmi_st_file *file, const char *path)
{
    char text[24];
    mm_status status = mmi_tensors_metadata(file, path, "step", text, sizeof text);
    if (status != MM_OK)
        return status;
    char *end = text;
    long long value = *text >= '0' && *text <= '9' ? strtoll(text, &end, 10) : -1;
    if (value < 0 || *end != '\0' || value > INT64_MAX / 2)
        return mmi_fail(MM_ERR_FORMAT, "%s: the metadata \"step\" is \"%s\", not a count of steps", path, text);
    *steps = value;
    return MM_OK;
}

mm_status mmi_adamw_open(mmi_st_file *file, int64_t *steps, const mm_optimizer *optimizer, const char *path)
{
    const mmi_tensor_set moments[2] = MOMENTS(optimizer);
    mm_status status = mmi_tensors_open(file, path, mmi_model_layout(optimizer->model), moments, 2);
    if (status != MM_OK)
        return status;
    status = read_steps(steps, file, path);
    if (status != MM_OK)
        mmi_st_close(file);
    return status;
}

void mmi_adamw_take(mm_optimizer *optimizer, const mmi_st_file *file, int64_t steps)
{
    const mmi_tensor_set moments[2] = MOMENTS(optimizer);
    mmi_tensors_take(file, mmi_model_layout(optimizer->model), moments, 2);
    optimizer->steps = steps;
}

mm_status mm_optimizer_load(mm_optimizer *optimizer, const char *path)
{
    if (!optimizer || !path)
        return mmi_fail(MM_ERR_ARG, "mm_optimizer_load: %s is NULL", optimizer ? "path" : "optimizer");
    mmi_st_file file;
    int64_t steps;
    mm_status status = mmi_adamw_open(&file, &steps, optimizer, path);
    if (status != MM_OK)
        return status;
    mmi_adamw_take(optimizer, &file, steps);
    mmi_st_close(&file);
    return MM_OK;
}
