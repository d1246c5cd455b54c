#include "train/tensors.h"

#include <math.h>
#include <string.h>

#include "base/memory.h"

#define NAME_SIZE (MMI_TRAINED_NAME_SIZE + 32) /* with a prefix */

void mmi_tensors_free(mmi_tensor_list *list)
{
    for (size_t i = 0; i < list->count; i++)
        mmi_free(list->entries[i].name);
    mmi_free(list->entries);
    for (size_t i = 0; list->notes[i]; i++)
        mmi_free((void *)list->notes[i]);
    *list = (mmi_tensor_list){ 0 };
}

mm_status mmi_tensors_add(mmi_tensor_list *list, const char *name, int32_t rank, const int64_t *shape, float *data)
{
    if (!mmi_grow(&list->entries, &list->room, list->count + 1, sizeof *list->entries))
        return mmi_fail_memory((list->count + 1) * sizeof *list->entries, "a list of tensors");
    mmi_st_entry e = {
        .name = mmi_strdup(name), .dtype = MM_F32, .rank = rank, .shape = { 1, 1, 1, 1 }, .elements = 1, .data = data
    };
    if (!e.name)
        return mmi_fail_memory(strlen(name), "a tensor's name");
    for (int32_t i = 0; i < rank; i++)
        e.elements *= e.shape[i] = shape[i];
    e.bytes = (size_t)e.elements * sizeof(float);
    list->entries[list->count++] = e;
    return MM_OK;
}

mm_status mmi_tensors_add_all(mmi_tensor_list *list, const mmi_trained *trained, const char *prefix,
                              float *(*get)(void *owner, int64_t index), void *owner)
{
    char name[NAME_SIZE];
    size_t used = strlen(prefix);
    memcpy(name, prefix, used);
    mm_status status = MM_OK;
    for (int64_t i = 0; i < mmi_trained_count(trained) && status == MM_OK; i++) {
        float *data = get(owner, i);
        if (!data)
            continue;
        mmi_tensor tensor;
        mmi_trained_tensor(trained, i, &tensor);
        mmi_trained_name(trained, i, name + used);
        status = mmi_tensors_add(list, name, tensor.rank, tensor.shape, data);
    }
    return status;
}

mm_status mmi_tensors_note(mmi_tensor_list *list, const char *key, const char *value)
{
    size_t i = 0;
    while (list->notes[i])
        i += 2;
    list->notes[i] = mmi_strdup(key);
    list->notes[i + 1] = list->notes[i] ? mmi_strdup(value) : NULL;
    return list->notes[i + 1] ? MM_OK : mmi_fail_memory(strlen(key) + strlen(value), "a file's metadata");
}

mm_status mmi_tensors_write(const char *path, const mmi_tensor_list *list)
{
    return mmi_st_write(path, list->entries, list->count, list->notes);
}

/* Moments that no training has made would turn weights into NaN with the next step. Sums of squares may have overflowed. */
static mm_status check_moments(const mmi_st_entry *entry, const char *path)
{
    const bool squares = strncmp(entry->name, "exp_avg_sq.", strlen("exp_avg_sq.")) == 0;
    if (!squares && strncmp(entry->name, "exp_avg.", strlen("exp_avg.")) != 0)
        return MM_OK;
    for (int64_t i = 0; i < entry->elements; i++) {
        float x;
        memcpy(&x, (const unsigned char *)entry->data + (size_t)i * sizeof x, sizeof x);
        if (squares ? !(x >= 0) : !isfinite(x))
            return mmi_fail(MM_ERR_FORMAT, "%s: %s has %g at %lld, must be %s", path, entry->name, x, (long long)i,
                            squares ? "0 or more" : "finite");
    }
    return MM_OK;
}

static mm_status check_tensor(const mmi_st_file *file, const char *path, const mmi_st_entry *wanted)
{
    const mmi_st_entry *entry = mmi_st_find(file, wanted->name);
    if (!entry)
        return mmi_fail(MM_ERR_FORMAT, "%s: %s is missing", path, wanted->name);
    if (entry->dtype != MM_F32)
        return mmi_fail(MM_ERR_FORMAT, "%s: %s is %s, not f32", path, wanted->name, mm_dtype_name(entry->dtype));
    if (entry->rank == wanted->rank && memcmp(entry->shape, wanted->shape, sizeof entry->shape) == 0)
        return check_moments(entry, path);
    char found[MMI_ST_SHAPE_TEXT], expected[MMI_ST_SHAPE_TEXT];
    mmi_st_shape_text(found, entry->shape, entry->rank);
    mmi_st_shape_text(expected, wanted->shape, wanted->rank);
    return mmi_fail(MM_ERR_FORMAT, "%s: %s has the shape %s, not %s", path, wanted->name, found, expected);
}

mm_status mmi_tensors_open(mmi_st_file *out, const char *path, const mmi_tensor_list *list)
{
    mmi_st_file file;
    mm_status status = mmi_st_open(path, &file);
    if (status != MM_OK)
        return status == MM_ERR_UNSUPPORTED ? MM_ERR_FORMAT : status; /* of whatever rank, it is none of these */
    for (size_t i = 0; i < list->count && status == MM_OK; i++)
        status = check_tensor(&file, path, &list->entries[i]);
    if (status == MM_OK && file.count != list->count)
        status =
            mmi_fail(MM_ERR_FORMAT, "%s: holds %zu tensors where this model has %zu", path, file.count, list->count);
    if (status == MM_OK)
        *out = file;
    else
        mmi_st_close(&file);
    return status;
}

void mmi_tensors_take(const mmi_st_file *file, const mmi_tensor_list *list)
{
    for (size_t i = 0; i < list->count; i++) {
        const mmi_st_entry *entry = mmi_st_find(file, list->entries[i].name);
        memcpy((void *)list->entries[i].data, entry->data, entry->bytes);
    }
}
