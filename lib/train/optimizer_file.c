/* An optimizer's moments as safetensors: exp_avg.NAME for every tensor that is trained, exp_avg_sq.NAME for those that
 * are not Muon's; the steps as metadata. */
#include <stdio.h>
#include <stdlib.h>

#include "model/model.h"
#include "train/optimizer.h"

static float *get_m(void *owner, int64_t index)
{
    return mmi_optimizer_first(owner, index);
}

static float *get_v(void *owner, int64_t index)
{
    return mmi_optimizer_second(owner, index);
}

mm_status mmi_optimizer_note_steps(mmi_tensor_list *list, int64_t steps)
{
    char text[24];
    snprintf(text, sizeof text, "%lld", (long long)steps);
    return mmi_tensors_note(list, "step", text);
}

mm_status mmi_optimizer_tensors(mmi_tensor_list *list, mm_optimizer *optimizer)
{
    mmi_trained trained = mmi_optimizer_trained(optimizer);
    mm_status status = mmi_tensors_add_all(list, &trained, "exp_avg.", get_m, optimizer);
    if (status == MM_OK)
        status = mmi_tensors_add_all(list, &trained, "exp_avg_sq.", get_v, optimizer);
    return status == MM_OK ? mmi_optimizer_note_steps(list, optimizer->steps) : status;
}

mm_status mm_optimizer_save(const mm_optimizer *optimizer, const char *path)
{
    if (!optimizer || !path)
        return mmi_fail(MM_ERR_ARG, "mm_optimizer_save: %s is NULL", optimizer ? "path" : "optimizer");
    mmi_tensor_list list = { 0 };
    mm_status status = mmi_optimizer_tensors(&list, (mm_optimizer *)optimizer);
    if (status == MM_OK)
        status = mmi_tensors_write(path, &list);
    mmi_tensors_free(&list);
    return status;
}

mm_status mmi_optimizer_read_steps(int64_t *steps, const mmi_st_file *file, const char *path)
{
    char text[24];
    mm_status status = mmi_st_metadata(file, "step", text, sizeof text);
    if (status != MM_OK)
        return status;
    char *end = text;
    long long value = *text >= '0' && *text <= '9' ? strtoll(text, &end, 10) : -1;
    if (value < 0 || *end != '\0' || value > INT64_MAX / 2)
        return mmi_fail(MM_ERR_FORMAT, "%s: the metadata \"step\" is \"%s\", not a count of steps", path, text);
    *steps = value;
    return MM_OK;
}

mm_status mmi_optimizer_read_file(const char *path, const mmi_tensor_list *list, int64_t *steps)
{
    mmi_st_file file = { 0 };
    mm_status status = mmi_tensors_open(&file, path, list);
    if (status == MM_OK)
        status = mmi_optimizer_read_steps(steps, &file, path);
    if (status == MM_OK)
        mmi_tensors_take(&file, list);
    mmi_st_close(&file);
    return status;
}

void mmi_optimizer_set_steps(mm_optimizer *optimizer, int64_t steps)
{
    optimizer->steps = steps;
}

mm_status mm_optimizer_load(mm_optimizer *optimizer, const char *path)
{
    if (!optimizer || !path)
        return mmi_fail(MM_ERR_ARG, "mm_optimizer_load: %s is NULL", optimizer ? "path" : "optimizer");
    mmi_tensor_list list = { 0 };
    int64_t steps = 0;
    mm_status status = mmi_optimizer_tensors(&list, optimizer);
    if (status == MM_OK)
        status = mmi_optimizer_read_file(path, &list, &steps);
    if (status == MM_OK)
        mmi_optimizer_set_steps(optimizer, steps);
    mmi_tensors_free(&list);
    return status;
}
