#include "train/tensors.h"

#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/memory.h"

#define NAME_SIZE 160

static void full_name(char name[NAME_SIZE], const char *prefix, const mmi_layout *layout, int64_t index)
{
    size_t used = strlen(prefix);
    memcpy(name, prefix, used);
    mmi_layout_name(layout, index, name + used, NAME_SIZE - used);
}

mm_status mmi_tensors_write(const char *path, const mmi_layout *layout, const mmi_tensor_set *sets, size_t count,
                            const char *const *metadata)
{
    size_t total = count * (size_t)layout->count;
    mmi_st_entry *entries = mmi_calloc(total, sizeof *entries);
    char(*names)[NAME_SIZE] = mmi_alloc(total, sizeof *names);
    if (!entries || !names) {
        mmi_free(entries);
        mmi_free(names);
        return mmi_fail_memory(total * (sizeof *entries + sizeof *names), "a list of tensors");
    }
    for (size_t e = 0; e < total; e++) {
        const mmi_tensor_set *set = &sets[e % count];
        int64_t index = (int64_t)(e / count);
        mmi_tensor tensor;
        mmi_layout_tensor(layout, index, &tensor);
        full_name(names[e], set->prefix, layout, index);
        entries[e] = (mmi_st_entry){ .name = names[e], .dtype = MM_F32, .rank = tensor.rank,
                                     .shape = { tensor.shape[0], tensor.shape[1], 1, 1 },
                                     .elements = tensor.elements, .data = set->get(set->owner, index),
                                     .bytes = (size_t)tensor.elements * sizeof(float) };
    }
    mm_status status = mmi_st_write(path, entries, total, metadata);
    mmi_free(entries);
    mmi_free(names);
    return status;
}

static mm_status check_tensor(const mmi_st_file *file, const char *path, const mmi_layout *layout, int64_t index,
                              const char *prefix)
{
    char name[NAME_SIZE];
    mmi_tensor tensor;
    full_name(name, prefix, layout, index);
    mmi_layout_tensor(layout, index, &tensor);
    const mmi_st_entry *entry = mmi_st_find(file, name);
    if (!entry)
        return mmi_fail(MM_ERR_FORMAT, "%s: %s is missing", path, name);
    if (entry->dtype != MM_F32)
        return mmi_fail(MM_ERR_FORMAT, "%s: %s is %s, not f32", path, name, mm_dtype_name(entry->dtype));
    if (entry->rank != tensor.rank || entry->shape[0] != tensor.shape[0] || entry->shape[1] != tensor.shape[1])
        return mmi_fail(MM_ERR_FORMAT, "%s: %s has the shape [%lld, %lld] of rank %d, not [%lld, %lld] of rank %d",
                        path, name, (long long)entry->shape[0], (long long)entry->shape[1], entry->rank,
                        (long long)tensor.shape[0], (long long)tensor.shape[1], tensor.rank);
    return MM_OK;
}

mm_status mmi_tensors_open(mmi_st_file *out, const char *path, const mmi_layout *layout, const mmi_tensor_set *sets,
                           size_t count)
{
    mmi_st_file file;
    mm_status status = mmi_st_open(path, &file);
    if (status != MM_OK)
        return status;
    size_t total = count * (size_t)layout->count;
    for (size_t e = 0; e < total && status == MM_OK; e++)
        status = check_tensor(&file, path, layout, (int64_t)(e / count), sets[e % count].prefix);
    if (status == MM_OK && file.count != total)
        status = mmi_fail(MM_ERR_FORMAT, "%s: holds %zu tensors where this model has %zu", path, file.count, total);
    if (status == MM_OK)
        *out = file;
    else
        mmi_st_close(&file);
    return status;
}

void mmi_tensors_take(const mmi_st_file *file, const mmi_layout *layout, const mmi_tensor_set *sets, size_t count)
{
    size_t total = count * (size_t)layout->count;
    for (size_t e = 0; e < total; e++) {
        const mmi_tensor_set *set = &sets[e % count];
        char name[NAME_SIZE];
        full_name(name, set->prefix, layout, (int64_t)(e / count));
        const mmi_st_entry *entry = mmi_st_find(file, name);
        memcpy(set->get(set->owner, (int64_t)(e / count)), entry->data, entry->bytes);
    }
}

/* The header was checked when the file was opened: 8 bytes of length, then so many of JSON. */
mm_status mmi_tensors_metadata(const mmi_st_file *file, const char *path, const char *key, char *text, size_t size)
{
    const unsigned char *image = file->mapping.data;
    uint64_t length = 0;
    for (unsigned i = 0; i < 8; i++)
        length |= (uint64_t)image[i] << 8 * i;
    mmi_json *header = NULL;
    mm_status status = mmi_json_parse((const char *)image + 8, (size_t)length, path, &header);
    if (status != MM_OK)
        return status;
    size_t used = 0;
    const char *value = mmi_json_string(mmi_json_get(mmi_json_get(header, "__metadata__"), key), &used);
    if (value && used < size)
        memcpy(text, value, used + 1);
    else
        status = mmi_fail(MM_ERR_FORMAT, "%s: the metadata \"%s\" is %s", path, key, value ? "too long" : "missing");
    mmi_json_free(header);
    return status;
}
