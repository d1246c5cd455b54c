/* A cache as a safetensors file: of each sequence its keys and its values, [L, G, length, D], without the room behind
 * them, and its ids, int32 [length]. Numbers in blocks, for which the format has no dtype, are bytes: [L, G, length,
 * bytes of D]. Files of the first format have no ids. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/strips.h"
#include "base/memory.h"
#include "model/safetensors.h"
#include "nn/rope.h"
#include "run/cache.h"

#define FORMAT "minimind cache 2"
#define WITHOUT_IDS "minimind cache 1"
#define NAME_SIZE 32
#define NUMBER_SIZE 24
#define SAMPLE_BLOCKS 4
#define SAMPLE 64 /* bytes of each tensor that tell one model's weights from another's */

enum { KEYS, VALUES, IDS, PARTS }; /* the first two as mmi_cache_at() counts them */
static const char *const parts[PARTS] = { "keys", "values", "ids" };

static void name_of(char name[NAME_SIZE], int64_t sequence, int part)
{
    snprintf(name, NAME_SIZE, "sequences.%lld.%s", (long long)sequence, parts[part]);
}

/* FNV-1a. */
static uint64_t hash_on(uint64_t hash, const void *data, size_t size)
{
    for (size_t i = 0; i < size; i++)
        hash = (hash ^ ((const unsigned char *)data)[i]) * UINT64_C(1099511628211);
    return hash;
}

/* What the config has to say about keys and values, beyond their shapes. */
static uint64_t hash_arch(uint64_t hash, const mmi_arch *a)
{
    const double numbers[] = {
        (double)a->C,
        (double)(a->moe ? a->expert_F : a->F),
        (double)a->H,
        a->eps,
        a->act,
        a->norm,
        a->positions,
        a->theta,
        mmi_rope_stretches(a) ? a->yarn : MMI_YARN_NONE,
        a->yarn_factor,
        a->yarn_beta_fast,
        a->yarn_beta_slow,
        a->yarn_attention_factor,
        (double)a->yarn_original,
        (double)a->E,
        (double)a->top_k,
        a->renormalize,
    };
    return hash_on(hash, numbers, sizeof numbers);
}

/* Keys and values mean something to the model that made them only: to its config, and its weights, of which the
 * beginning of every tensor is taken: any step of training changes all of them. */
static void model_mark(char mark[NUMBER_SIZE], const mm_model *model)
{
    uint64_t hash = hash_arch(UINT64_C(14695981039346656037), mmi_model_arch(model));
    for (int64_t i = 0; i < mmi_model_layout(model)->count; i++) {
        mmi_weight w = mmi_model_weight(model, i);
        const unsigned char *bytes = w.data;
        unsigned char blocks[SAMPLE_BLOCKS * MMI_MOST_BLOCK_BYTES]; /* scales and numbers of the first row */
        size_t size = mmi_dtype_bytes(w.dtype, w.cols * w.rows);
        if (mmi_block_bytes(w.dtype) > 0) {
            int64_t count = w.cols / MMI_BLOCK < SAMPLE_BLOCKS ? w.cols / MMI_BLOCK : SAMPLE_BLOCKS;
            mmi_strips_get(blocks, w.data, w.dtype, w.cols, 0, 0, count);
            size = mmi_dtype_bytes(w.dtype, count * MMI_BLOCK);
            bytes = blocks;
        }
        hash = hash_on(hash, bytes, size < SAMPLE ? size : SAMPLE);
    }
    snprintf(mark, NUMBER_SIZE, "%016" PRIx64, hash);
}

/* What the tensor of `length` tokens must look like. */
static mmi_st_entry entry_of(const mm_cache *cache, int part, int64_t length)
{
    if (part == IDS)
        return (mmi_st_entry){ .dtype = MM_I32, .rank = 1, .shape = { length, 1, 1, 1 } };
    bool blocks = mmi_block_bytes(cache->dtype) > 0;
    int64_t row = blocks ? (int64_t)mmi_dtype_bytes(cache->dtype, cache->D) : cache->D;
    return (mmi_st_entry){ .dtype = blocks ? MMI_ST_BYTES : cache->dtype,
                           .rank = 4,
                           .shape = { mmi_model_arch(cache->model)->L, cache->G, length, row } };
}

/* --- Saving --- */

typedef struct table {
    mmi_st_entry *entries; /* [sequences, PARTS] */
    char (*names)[NAME_SIZE];
    unsigned char *data;
} table;

static void *carve_table(mmi_carve *carve, table *t, const mm_cache *cache)
{
    int64_t tokens = 0;
    for (int64_t i = 0; i < cache->sequences; i++)
        tokens += cache->lengths[i];
    t->entries = mmi_carve_take(carve, PARTS * cache->sequences, sizeof *t->entries);
    t->names = mmi_carve_take(carve, PARTS * cache->sequences, sizeof *t->names);
    t->data = mmi_carve_take(carve, tokens * 2 * mmi_model_arch(cache->model)->L * cache->G,
                             mmi_dtype_bytes(cache->dtype, cache->D));
    return carve->base;
}

/* One sequence's keys or values: every head's tokens one behind the other. */
static unsigned char *pack(unsigned char *to, const mm_cache *cache, int64_t sequence, int side)
{
    size_t bytes = mmi_dtype_bytes(cache->dtype, cache->lengths[sequence] * cache->D);
    for (int64_t l = 0; l < mmi_model_arch(cache->model)->L; l++)
        for (int64_t g = 0; g < cache->G; g++, to += bytes)
            memcpy(to, mmi_cache_at(cache, l, side, sequence, g, 0), bytes);
    return to;
}

static void fill_table(table *t, const mm_cache *cache)
{
    unsigned char *to = t->data;
    for (int64_t e = 0; e < PARTS * cache->sequences; e++) {
        const int64_t sequence = e / PARTS;
        const int part = (int)(e % PARTS);
        t->entries[e] = entry_of(cache, part, cache->lengths[sequence]);
        t->entries[e].name = t->names[e];
        t->entries[e].data = part == IDS ? (unsigned char *)mmi_cache_ids(cache, sequence) : to;
        name_of(t->names[e], sequence, part);
        if (part != IDS)
            to = pack(to, cache, sequence, part);
    }
}

mm_status mm_cache_save(const mm_cache *cache, const char *path)
{
    if (!cache || !path)
        return mmi_fail(MM_ERR_ARG, "mm_cache_save: %s is NULL", cache ? "path" : "cache");
    table t;
    mmi_carve carve = { 0 };
    carve_table(&carve, &t, cache);
    if (!carve.overflow)
        carve.base = mmi_calloc(carve.used, 1);
    if (!carve.base)
        return mmi_fail_memory(carve.used, "saving a cache");
    carve.used = 0;
    void *block = carve_table(&carve, &t, cache);
    fill_table(&t, cache);
    char sequences[NUMBER_SIZE], capacity[NUMBER_SIZE], mark[NUMBER_SIZE];
    snprintf(sequences, sizeof sequences, "%lld", (long long)cache->sequences);
    snprintf(capacity, sizeof capacity, "%lld", (long long)cache->capacity);
    model_mark(mark, cache->model);
    const char *const metadata[] = { "format",    FORMAT,    "dtype",    mm_dtype_name(cache->dtype),
                                     "sequences", sequences, "capacity", capacity,
                                     "weights",   mark,      NULL };
    mm_status status = mmi_st_write(path, t.entries, PARTS * (size_t)cache->sequences, metadata);
    mmi_free(block);
    return status;
}

/* --- Loading --- */

/* A whole number from 1 to `most` among the metadata. */
static mm_status read_number(int32_t *out, const mmi_st_file *file, const char *key, int64_t most)
{
    char text[NUMBER_SIZE], *end = text;
    mm_status status = mmi_st_metadata(file, key, text, sizeof text);
    if (status != MM_OK)
        return status;
    long long value = *text >= '0' && *text <= '9' ? strtoll(text, &end, 10) : 0;
    if (value < 1 || value > most || *end != '\0')
        return mmi_fail(MM_ERR_FORMAT, "%s: the metadata \"%s\" is \"%s\", must be from 1 to %lld", file->what, key,
                        text, (long long)most);
    *out = (int32_t)value;
    return MM_OK;
}

static mm_status read_dtype(int32_t *out, const mmi_st_file *file)
{
    static const int32_t known[] = { MM_F32, MM_BF16, MM_Q8_0 };
    char text[NUMBER_SIZE];
    mm_status status = mmi_st_metadata(file, "dtype", text, sizeof text);
    if (status != MM_OK)
        return status;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(text, mm_dtype_name(known[i])) == 0) {
            *out = known[i];
            return MM_OK;
        }
    return mmi_fail(MM_ERR_FORMAT, "%s: the metadata \"dtype\" is \"%s\", a cache may be f32, bf16 or q8_0", file->what,
                    text);
}

/* The cache that the file tells of, empty. */
static mm_status create_for(mm_cache **out, mm_model *model, const mmi_st_file *file)
{
    char text[NUMBER_SIZE] = "", mark[NUMBER_SIZE];
    int32_t sequences = 0, capacity = 0, dtype = MM_F32;
    mm_status status = mmi_st_metadata(file, "format", text, sizeof text);
    const int64_t each = strcmp(text, WITHOUT_IDS) == 0 ? IDS : PARTS;
    if (status == MM_OK && each == PARTS && strcmp(text, FORMAT) != 0)
        status = mmi_fail(MM_ERR_FORMAT, "%s: the metadata \"format\" is \"%s\", not \"" FORMAT "\"", file->what, text);
    if (status == MM_OK)
        status = mmi_st_metadata(file, "weights", text, sizeof text);
    model_mark(mark, model);
    if (status == MM_OK && strcmp(text, mark) != 0)
        status =
            mmi_fail(MM_ERR_ARG, "%s: was made by other weights than this model's, or by another config", file->what);
    if (status == MM_OK)
        status = read_dtype(&dtype, file);
    if (status == MM_OK)
        status = read_number(&sequences, file, "sequences", (int64_t)file->count / each);
    if (status == MM_OK)
        status = read_number(&capacity, file, "capacity", mmi_model_arch(model)->max_positions);
    if (status == MM_OK && (int64_t)file->count != each * sequences)
        status = mmi_fail(MM_ERR_FORMAT, "%s: holds %zu tensors, %d sequences have %lld", file->what, file->count,
                          sequences, (long long)each * sequences);
    if (status != MM_OK)
        return status;
    status = mm_cache_create(model, sequences, capacity, dtype, out);
    return status == MM_ERR_ARG ? mmi_fail_within(MM_ERR_FORMAT, "%s", file->what) : status;
}

/* One part of a sequence, of `length` tokens; -1: of as many as it has. */
static mm_status find(const mmi_st_entry **out, const mmi_st_file *file, const mm_cache *cache, int64_t sequence,
                      int part, int64_t length)
{
    char name[NAME_SIZE], found[MMI_ST_SHAPE_TEXT], wanted[MMI_ST_SHAPE_TEXT];
    name_of(name, sequence, part);
    const mmi_st_entry *e = *out = mmi_st_find(file, name);
    if (!e)
        return mmi_fail(MM_ERR_FORMAT, "%s: %s is missing", file->what, name);
    bool any = length < 0;
    if (any)
        length = e->rank == 4 && e->shape[2] <= cache->capacity ? e->shape[2] : cache->capacity;
    mmi_st_entry must = entry_of(cache, part, length);
    if (e->dtype != must.dtype)
        return mmi_fail(MM_ERR_FORMAT, "%s: %s is %s, must be %s", file->what, name, e->dtype_name,
                        mmi_st_dtype_name(must.dtype));
    if (e->rank == must.rank && memcmp(e->shape, must.shape, sizeof e->shape) == 0)
        return MM_OK;
    mmi_st_shape_text(found, e->shape, e->rank);
    mmi_st_shape_text(wanted, must.shape, must.rank);
    return mmi_fail(MM_ERR_FORMAT,
                    any ? "%s: %s has the shape %s, this cache has %s at most" :
                          "%s: %s has the shape %s, must have %s",
                    file->what, name, found, wanted);
}

static mm_status read_side(mm_cache *cache, int64_t sequence, int side, const mmi_st_file *file,
                           const mmi_st_entry *entry)
{
    size_t bytes = mmi_dtype_bytes(cache->dtype, entry->shape[2] * cache->D);
    mm_status status = MM_OK;
    for (int64_t i = 0; i < mmi_model_arch(cache->model)->L * cache->G && status == MM_OK; i++)
        status = mmi_st_read(mmi_cache_at(cache, i / cache->G, side, sequence, i % cache->G, 0), file, entry,
                             (size_t)i * bytes, bytes);
    return status;
}

static mm_status read_ids(int32_t *ids, const mm_cache *cache, int64_t sequence, int64_t length,
                          const mmi_st_file *file)
{
    const int64_t V = mmi_model_arch(cache->model)->V;
    const mmi_st_entry *entry;
    mm_status status = find(&entry, file, cache, sequence, IDS, length);
    if (status == MM_OK)
        status = mmi_st_read(ids, file, entry, 0, (size_t)length * sizeof *ids);
    for (int64_t i = 0; i < length && status == MM_OK; i++)
        if (ids[i] < -1 || ids[i] >= V)
            status = mmi_fail(MM_ERR_FORMAT, "%s: %s[%lld] is %d, must be from -1 to vocab_size - 1, %lld", file->what,
                              entry->name, (long long)i, ids[i], (long long)(V - 1));
    return status;
}

static mm_status read_sequence(mm_cache *cache, int64_t sequence, const mmi_st_file *file)
{
    const mmi_st_entry *keys, *values;
    mm_status status = find(&keys, file, cache, sequence, KEYS, -1);
    if (status == MM_OK)
        status = find(&values, file, cache, sequence, VALUES, -1);
    if (status == MM_OK && keys->shape[2] != values->shape[2])
        status = mmi_fail(MM_ERR_FORMAT, "%s: sequence %lld has %lld keys and %lld values", file->what,
                          (long long)sequence, (long long)keys->shape[2], (long long)values->shape[2]);
    if (status == MM_OK)
        status = read_side(cache, sequence, KEYS, file, keys);
    if (status == MM_OK)
        status = read_side(cache, sequence, VALUES, file, values);
    if (status != MM_OK)
        return status;
    int64_t length = keys->shape[2];
    int32_t *ids = mmi_cache_ids(cache, sequence);
    if ((int64_t)file->count == PARTS * cache->sequences)
        status = read_ids(ids, cache, sequence, length, file);
    else
        memset(ids, 0xFF, (size_t)length * sizeof *ids); /* -1 */
    cache->lengths[sequence] = (int32_t)length;
    return status;
}

mm_status mm_cache_load(mm_model *model, const char *path, mm_cache **out)
{
    if (!model || !path || !out)
        return mmi_fail(MM_ERR_ARG, "mm_cache_load: model, path or out is NULL");
    mmi_st_file file;
    mm_status status = mmi_st_open_unmapped(path, &file);
    if (status != MM_OK)
        return status == MM_ERR_UNSUPPORTED ? MM_ERR_FORMAT : status; /* whatever it is, it is no cache */
    mm_cache *cache = NULL;
    status = create_for(&cache, model, &file);
    for (int64_t i = 0; status == MM_OK && i < cache->sequences; i++)
        status = read_sequence(cache, i, &file);
    mmi_st_close(&file);
    if (status == MM_OK)
        *out = cache;
    else
        mm_cache_free(cache);
    return status;
}
