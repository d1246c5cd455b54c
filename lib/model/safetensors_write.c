#include <string.h>

#include "backend/strips.h"
#include "base/json.h"
#include "base/memory.h"
#include "model/safetensors.h"

/* The data begin at a multiple of this, so that a mapping's tensors lie as well aligned as an arena's; the format asks
 * for 8 at least. */
#define DATA_ALIGN ((size_t)64)

static mm_status count_bytes(size_t *bytes, const mmi_st_entry *e, const char *path)
{
    size_t total = e->dtype == MMI_ST_BYTES ? 1 : mm_dtype_size(e->dtype);
    if (total == 0 || !mmi_st_dtype_name(e->dtype))
        return mmi_fail(MM_ERR_ARG, "%s: %s: dtype %d can't be written", path, e->name, (int)e->dtype);
    if (e->rank < 0 || e->rank > 4)
        return mmi_fail(MM_ERR_ARG, "%s: %s: %d dimensions, allowed are 0 to 4", path, e->name, (int)e->rank);
    for (int32_t i = 0; i < e->rank; i++) {
        int64_t n = e->shape[i];
        if (n < 0 || (n > 0 && total > (size_t)INT64_MAX / (uint64_t)n))
            return mmi_fail(MM_ERR_ARG, "%s: %s: dimension %d is %lld: negative, or more than can be written", path,
                            e->name, (int)i, (long long)n);
        total *= (size_t)n;
    }
    if (total > 0 && !e->data)
        return mmi_fail(MM_ERR_ARG, "%s: %s has no data", path, e->name);
    *bytes = total;
    return MM_OK;
}

static mmi_json *describe(const mmi_st_entry *e, size_t begin, size_t end)
{
    const char *dtype = mmi_st_dtype_name(e->dtype);
    mmi_json *info = mmi_json_new_object(), *shape = mmi_json_new_array(), *offsets = mmi_json_new_array();
    bool good = info && shape && offsets;
    for (int32_t i = 0; good && i < e->rank; i++)
        good = mmi_json_append(shape, mmi_json_new_int(e->shape[i]));
    good = good && mmi_json_append(offsets, mmi_json_new_int((int64_t)begin)) &&
           mmi_json_append(offsets, mmi_json_new_int((int64_t)end)) && mmi_json_set_text(info, "dtype", dtype) &&
           mmi_json_set(info, "shape", mmi_json_share(shape)) &&
           mmi_json_set(info, "data_offsets", mmi_json_share(offsets));
    mmi_json_free(shape);
    mmi_json_free(offsets);
    if (good)
        return info;
    mmi_json_free(info);
    return NULL;
}

static bool add_metadata(mmi_json *header, const char *const *metadata)
{
    if (!metadata)
        return true;
    mmi_json *pairs = mmi_json_new_object();
    bool good = pairs != NULL;
    for (size_t i = 0; good && metadata[i] && metadata[i + 1]; i += 2)
        good = mmi_json_set_text(pairs, metadata[i], metadata[i + 1]);
    if (good)
        return mmi_json_set(header, "__metadata__", pairs);
    mmi_json_free(pairs);
    return false;
}

/* The header as JSON: tensors lie one after another in the order given. */
static mm_status make_header(mmi_json *header, const char *path, const mmi_st_entry *entries, size_t count,
                             const char *const *metadata)
{
    if (!add_metadata(header, metadata))
        return mmi_fail(MM_ERR_MEMORY, "%s: out of memory for the header", path);
    size_t place = 0;
    for (size_t i = 0; i < count; i++) {
        size_t bytes = 0;
        mm_status status = count_bytes(&bytes, &entries[i], path);
        if (status != MM_OK)
            return status;
        if (place > (size_t)INT64_MAX - bytes)
            return mmi_fail(MM_ERR_ARG, "%s: more bytes than can be written", path);
        const char *name = entries[i].name;
        if (mmi_json_get(header, name) || strcmp(name, "__metadata__") == 0 || strlen(name) > MMI_ST_NAME_MAX)
            return mmi_fail(MM_ERR_ARG, "%s: %.64s is there twice, or no name for a tensor", path, name);
        if (!mmi_json_set(header, name, describe(&entries[i], place, place + bytes)))
            return mmi_fail(MM_ERR_MEMORY, "%s: out of memory for the header", path);
        place += bytes;
    }
    return MM_OK;
}

/* Header length, header, spaces: together a multiple of DATA_ALIGN. */
static void put_header(mmi_writer *w, const char *text, size_t length)
{
    static const char spaces[] = "                                                                ";
    size_t padding = (DATA_ALIGN - (8 + length) % DATA_ALIGN) % DATA_ALIGN;
    uint64_t total = length + padding;
    unsigned char first[8];
    for (int i = 0; i < 8; i++)
        first[i] = (unsigned char)(total >> (8 * i));
    mmi_writer_put(w, first, sizeof first);
    mmi_writer_put(w, text, length);
    mmi_writer_put(w, spaces, padding);
}

/* Row by row, some blocks at a time. */
static void put_blocks(mmi_writer *w, const mmi_st_entry *e)
{
    enum { MOST = 64 };
    unsigned char some[MOST * MMI_MOST_BLOCK_BYTES];
    const int64_t bytes = (int64_t)mmi_block_bytes(e->blocks), blocks = e->shape[1] / bytes;
    for (int64_t row = 0; row < e->shape[0]; row++)
        for (int64_t b = 0; b < blocks; b += MOST) {
            const int64_t now = blocks - b < MOST ? blocks - b : MOST;
            mmi_strips_get(some, e->data, e->blocks, blocks * MMI_BLOCK, row, b, now);
            mmi_writer_put(w, some, (size_t)(now * bytes));
        }
}

static mm_status write_all(const char *path, const mmi_st_entry *entries, size_t count, const char *header,
                           size_t length)
{
    mmi_writer w;
    mm_status status = mmi_writer_open(&w, path);
    if (status != MM_OK)
        return status;
    put_header(&w, header, length);
    for (size_t i = 0; i < count; i++) {
        size_t bytes = 0;
        count_bytes(&bytes, &entries[i], path); /* passed once already */
        if (entries[i].blocks)
            put_blocks(&w, &entries[i]);
        else if (bytes > 0)
            mmi_writer_put(&w, entries[i].data, bytes);
    }
    return mmi_writer_commit(&w);
}

mm_status mmi_st_write(const char *path, const mmi_st_entry *entries, size_t count, const char *const *metadata)
{
    mmi_json *header = mmi_json_new_object();
    if (!header)
        return mmi_fail(MM_ERR_MEMORY, "%s: out of memory for the header", path);
    char *text = NULL;
    size_t length = 0;
    mm_status status = make_header(header, path, entries, count, metadata);
    if (status == MM_OK)
        status = mmi_json_write(header, 0, &text, &length);
    mmi_json_free(header);
    if (status == MM_OK)
        status = write_all(path, entries, count, text, length);
    mmi_free(text);
    return status;
}
