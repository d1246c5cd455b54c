#include "model/shards.h"

#include <string.h>

#include "base/json.h"
#include "base/memory.h"

#define SINGLE "model.safetensors"
#define INDEX "model.safetensors.index.json"

/* The distinct file names of a weight_map, lent by it. */
typedef struct names {
    const char **list;
    size_t count, capacity;
} names;

static mm_status open_one(mmi_st_file *out, const char *directory, const char *name, bool map)
{
    char *path = mmi_path_join(directory, name);
    if (!path)
        return mmi_fail_memory(strlen(directory) + strlen(name) + 2, "a path");
    mm_status status = map ? mmi_st_open(path, out) : mmi_st_open_unmapped(path, out);
    if (status == MM_OK && map)
        mmi_ask_for_large_pages(out->mapping.data, out->mapping.size);
    mmi_free(path);
    return status;
}

void mmi_shards_close(mmi_shards *shards)
{
    for (size_t i = 0; i < shards->count; i++)
        mmi_st_close(&shards->files[i]);
    mmi_free(shards->files);
    mmi_free(shards->what);
    memset(shards, 0, sizeof *shards);
}

static size_t place_of(const names *n, const char *name)
{
    for (size_t i = n->count; i-- > 0;) /* an index goes file by file: mostly it is the last */
        if (strcmp(n->list[i], name) == 0)
            return i;
    return n->count;
}

/* A file of the directory itself: an index from elsewhere must not lead outside. */
static bool is_plain_name(const char *name, size_t length)
{
    return length > 0 && strlen(name) == length && !strchr(name, '/') && !strchr(name, '\\') &&
           strcmp(name, ".") != 0 && strcmp(name, "..") != 0;
}

static mm_status collect_names(names *out, mmi_json *map, const char *index)
{
    for (void *i = mmi_json_first(map); i; i = mmi_json_next(map, i)) {
        size_t length = 0;
        const char *name = mmi_json_string(mmi_json_value(i), &length);
        if (!name)
            return mmi_fail(MM_ERR_FORMAT, "%s: weight_map: %.200s is %s, not a file name", index, mmi_json_key(i),
                            mmi_json_kind_name(mmi_json_what(mmi_json_value(i))));
        if (!is_plain_name(name, length))
            return mmi_fail(MM_ERR_FORMAT, "%s: weight_map: %.200s is in \"%.200s\", which is not a plain name of a "
                                           "file beside the index",
                            index, mmi_json_key(i), name);
        if (place_of(out, name) < out->count)
            continue;
        if (!mmi_grow(&out->list, &out->capacity, out->count + 1, sizeof *out->list))
            return mmi_fail_memory((out->count + 1) * sizeof *out->list, index);
        out->list[out->count++] = name;
    }
    if (out->count == 0)
        return mmi_fail(MM_ERR_FORMAT, "%s: weight_map names no tensor", index);
    return MM_OK;
}

/* What the index promises is there, and nothing is there that it does not promise. */
static mm_status check_index(const mmi_shards *shards, const names *n, mmi_json *map)
{
    for (void *i = mmi_json_first(map); i; i = mmi_json_next(map, i)) {
        const mmi_st_file *file = &shards->files[place_of(n, mmi_json_string(mmi_json_value(i), NULL))];
        if (!mmi_st_find(file, mmi_json_key(i)))
            return mmi_fail(MM_ERR_FORMAT, "%s: %.200s is missing, though %s says it is there", file->what,
                            mmi_json_key(i), shards->what);
    }
    for (size_t f = 0; f < shards->count; f++)
        for (size_t e = 0; e < shards->files[f].count; e++) {
            const char *name = shards->files[f].entries[e].name;
            const char *said = mmi_json_string(mmi_json_get(map, name), NULL);
            if (!said)
                return mmi_fail(MM_ERR_FORMAT, "%s: %s is not in the weight_map of %s", shards->files[f].what, name,
                                shards->what);
            if (strcmp(said, n->list[f]) != 0)
                return mmi_fail(MM_ERR_FORMAT, "%s: %s is here too, though %s says it is in %s", shards->files[f].what,
                                name, shards->what, said);
        }
    return MM_OK;
}

static mm_status open_named(mmi_shards *shards, const names *n, const char *directory, bool map)
{
    shards->files = mmi_calloc(n->count, sizeof *shards->files);
    if (!shards->files)
        return mmi_fail_memory(n->count * sizeof *shards->files, shards->what);
    for (size_t i = 0; i < n->count; i++) {
        mm_status status = open_one(&shards->files[i], directory, n->list[i], map);
        if (status != MM_OK)
            return status;
        shards->count++;
    }
    return MM_OK;
}

static mm_status open_indexed(mmi_shards *shards, const char *directory, bool map)
{
    mmi_json *index = NULL;
    names n = { NULL, 0, 0 };
    mm_status status = mmi_json_read_file(shards->what, &index);
    if (status != MM_OK)
        return status;
    mmi_json *weight_map = mmi_json_get(index, "weight_map");
    if (mmi_json_what(weight_map) != MMI_JSON_OBJECT)
        status = mmi_fail(MM_ERR_FORMAT, "%s: weight_map is %s, not an object", shards->what,
                          mmi_json_kind_name(mmi_json_what(weight_map)));
    if (status == MM_OK)
        status = collect_names(&n, weight_map, shards->what);
    if (status == MM_OK)
        status = open_named(shards, &n, directory, map);
    if (status == MM_OK)
        status = check_index(shards, &n, weight_map);
    mmi_free(n.list);
    mmi_json_free(index);
    return status;
}

static mm_status open_single(mmi_shards *shards, const char *directory, bool map)
{
    shards->files = mmi_calloc(1, sizeof *shards->files);
    if (!shards->files)
        return mmi_fail_memory(sizeof *shards->files, shards->what);
    mm_status status = open_one(shards->files, directory, SINGLE, map);
    shards->count = status == MM_OK ? 1 : 0;
    return status;
}

/* "directory/name" if there is such a file. */
static mm_status look_for(char **path, const char *directory, const char *name)
{
    *path = mmi_path_join(directory, name);
    if (!*path)
        return mmi_fail_memory(strlen(directory) + strlen(name) + 2, "a path");
    if (!mmi_file_exists(*path)) {
        mmi_free(*path);
        *path = NULL;
    }
    return MM_OK;
}

mm_status mmi_shards_open(mmi_shards *out, const char *directory, bool map)
{
    mmi_shards shards = { NULL, 0, NULL };
    mm_status status = look_for(&shards.what, directory, SINGLE);
    bool single = shards.what != NULL;
    if (status == MM_OK && !single)
        status = look_for(&shards.what, directory, INDEX);
    if (status != MM_OK)
        return status;
    if (!shards.what)
        return mmi_fail(MM_ERR_IO, "%s: has neither " SINGLE " nor " INDEX, directory);
    status = single ? open_single(&shards, directory, map) : open_indexed(&shards, directory, map);
    if (status == MM_OK)
        *out = shards;
    else
        mmi_shards_close(&shards);
    return status;
}
