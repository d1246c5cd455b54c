#include "data/dataset.h"

#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "base/options.h"
#include "base/random.h"
#include "data/hash.h"

MMI_OPTIONS_INIT(mm_dataset_options, MM_DATASET_OPTIONS_INIT)

#define MOST_FILES 65536
#define HIGHEST_WEIGHT 1e6
#define HASHES ((uint64_t)1 << 32)

typedef struct part {
    mmi_source source;
    int64_t first_row;   /* of the data set */
    int64_t first_place; /* of an epoch without shuffle */
    int64_t places;      /* rows that an epoch takes from it */
} part;

struct mm_dataset {
    atomic_int holds;
    part *parts; /* [count] */
    int32_t count;
    int64_t rows, places, bytes;
    uint64_t hash;
};

/* --- Opening --- */

static mm_status check_file(const mm_dataset_options *o, int32_t i)
{
    if (!o->paths[i])
        return mmi_fail(MM_ERR_ARG, "data set: paths[%d] is NULL", i);
    double weight = o->weights ? o->weights[i] : 1;
    if (!(weight > 0 && weight <= HIGHEST_WEIGHT))
        return mmi_fail(MM_ERR_ARG, "data set: weights[%d] is %g, it must be above 0 and at most %g", i, weight,
                        HIGHEST_WEIGHT);
    if (o->max_rows && o->max_rows[i] < 0)
        return mmi_fail(MM_ERR_ARG, "data set: max_rows[%d] is %lld, it must be at least 0", i,
                        (long long)o->max_rows[i]);
    return MM_OK;
}

static mm_status check_options(const mm_dataset_options *o)
{
    if (!o->paths || o->count < 1 || o->count > MOST_FILES)
        return mmi_fail(MM_ERR_ARG, "data set: paths is %s, count %d of 1 to %d", o->paths ? "given" : "NULL", o->count,
                        MOST_FILES);
    if (!(o->validation >= 0 && o->validation < 1))
        return mmi_fail(MM_ERR_ARG, "data set: validation is %g, it must be at least 0 and below 1", o->validation);
    if (o->side < MM_SIDE_ALL || o->side > MM_SIDE_VALIDATION)
        return mmi_fail(MM_ERR_ARG, "data set: side is %d, it must be one of MM_SIDE_…, 0 to 2", o->side);
    if (o->max_line < 1 || o->max_line > INT64_MAX / 4)
        return mmi_fail(MM_ERR_ARG, "data set: max_line is %lld, it must be 1 to %lld", (long long)o->max_line,
                        (long long)(INT64_MAX / 4));
    mm_status status = MM_OK;
    for (int32_t i = 0; i < o->count && status == MM_OK; i++)
        status = check_file(o, i);
    return status;
}

/* The hash of where a file is; false when memory ran out. */
static bool hash_place(char text[MMI_HASH_TEXT], const char *path)
{
    char *whole = mmi_path_resolve(path);
    if (!whole)
        return false;
    mmi_hash hash;
    mmi_hash_begin(&hash);
    mmi_hash_add(&hash, whole, strlen(whole));
    mmi_hash_text(text, mmi_hash_end(&hash));
    mmi_free(whole);
    return true;
}

/* "file.mmidx" beside the file, or "file.HASH.mmidx" in the directory given, which may have those of other files of
 * that name; mmi_free it. */
static char *make_cache_path(const char *path, const char *directory)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    char hash[MMI_HASH_TEXT] = "";
    if (directory && !hash_place(hash, path))
        return NULL;
    char *stem = directory ? mmi_path_join(directory, name) : mmi_strdup(path);
    size_t length = stem ? strlen(stem) : 0, room = length + sizeof hash + sizeof ".mmidx";
    char *longer = stem ? mmi_realloc(stem, room, 1) : NULL;
    if (longer)
        snprintf(longer + length, room - length, "%s%s.mmidx", directory ? "." : "", hash);
    else
        mmi_free(stem);
    return longer;
}

static mm_status open_part(part *p, const mm_dataset_options *o, int32_t i)
{
    uint64_t border = (uint64_t)llround(o->validation * (double)HASHES);
    mmi_source_plan plan = { .path = o->paths[i],
                             .max_rows = o->max_rows ? o->max_rows[i] : 0,
                             .max_line = o->max_line,
                             .cache_from = o->cache_from,
                             .from = 0,
                             .until = HASHES };
    if (o->side == MM_SIDE_TRAIN)
        plan.from = border;
    if (o->side == MM_SIDE_VALIDATION)
        plan.until = border;
    char *cache = o->cache_from < 0 ? NULL : make_cache_path(o->paths[i], o->index_directory);
    if (o->cache_from >= 0 && !cache)
        return mmi_fail_memory(strlen(o->paths[i]), "a path");
    plan.cache_path = cache;
    mm_status status = mmi_source_open(&p->source, &plan);
    mmi_free(cache);
    if (status != MM_OK)
        return status;
    int64_t rows = p->source.selection.count;
    p->places = rows > 0 ? llround((o->weights ? o->weights[i] : 1) * (double)rows) : 0;
    if (rows > 0 && p->places < 1)
        p->places = 1;
    return MM_OK;
}

/* Data read in another way is other data. A whole file is known by its own hash alone. */
static uint64_t hash_of(const mm_dataset *d)
{
    const mmi_source *first = &d->parts[0].source;
    if (d->count == 1 && d->places == first->index.rows && first->selection.count == first->index.rows)
        return first->index.hash;
    mmi_hash hash;
    mmi_hash_begin(&hash);
    for (int32_t i = 0; i < d->count; i++) {
        const mmi_source *s = &d->parts[i].source;
        uint64_t facts[5] = { s->index.hash, (uint64_t)s->selection.rows, s->selection.from, s->selection.until,
                              (uint64_t)d->parts[i].places };
        mmi_hash_add(&hash, facts, sizeof facts);
        if (s->selection.before && s->index.returns) /* older checkpoints have such lines split with their '\r' */
            mmi_hash_add(&hash, "\r\n", 2);
    }
    return mmi_hash_end(&hash);
}

static mm_status open_parts(mm_dataset *d, const mm_dataset_options *o)
{
    d->parts = mmi_calloc((size_t)o->count, sizeof *d->parts);
    if (!d->parts)
        return mmi_fail_memory((size_t)o->count * sizeof *d->parts, "a data set");
    d->count = o->count;
    for (int32_t i = 0; i < o->count; i++) {
        part *p = &d->parts[i];
        mm_status status = open_part(p, o, i);
        if (status != MM_OK)
            return status;
        p->first_row = d->rows;
        p->first_place = d->places;
        d->rows += p->source.selection.count;
        d->places += p->places;
        d->bytes += p->source.index.bytes;
    }
    if (d->rows == 0)
        return mmi_fail(MM_ERR_FORMAT, "%s: no row of it is on the side asked for (validation %g)",
                        d->parts[0].source.path, o->validation);
    d->hash = hash_of(d);
    return MM_OK;
}

mm_status mm_dataset_create(const mm_dataset_options *options, mm_dataset **out)
{
    if (!options || !out)
        return mmi_fail(MM_ERR_ARG, "mm_dataset_create: %s is NULL", options ? "out" : "options");
    mm_dataset_options o = MM_DATASET_OPTIONS_INIT;
    mm_status status = mmi_options_read(&o, sizeof o, options, "mm_dataset_options");
    if (status == MM_OK)
        status = check_options(&o);
    if (status != MM_OK)
        return status;
    mm_dataset *d = mmi_calloc(1, sizeof *d);
    if (!d)
        return mmi_fail_memory(sizeof *d, "a data set");
    atomic_init(&d->holds, 1);
    status = open_parts(d, &o);
    if (status != MM_OK) {
        mm_dataset_free(d);
        return status;
    }
    *out = d;
    return MM_OK;
}

mm_status mm_dataset_open(const char *path, mm_dataset **out)
{
    if (!path || !out)
        return mmi_fail(MM_ERR_ARG, "mm_dataset_open: %s is NULL", path ? "out" : "path");
    mm_dataset_options o = MM_DATASET_OPTIONS_INIT;
    o.paths = &path;
    o.count = 1;
    return mm_dataset_create(&o, out);
}

mm_dataset *mmi_dataset_hold(mm_dataset *d)
{
    atomic_fetch_add(&d->holds, 1);
    return d;
}

void mm_dataset_free(mm_dataset *d)
{
    if (!d || atomic_fetch_sub(&d->holds, 1) != 1)
        return;
    for (int32_t i = 0; i < d->count; i++)
        mmi_source_close(&d->parts[i].source);
    mmi_free(d->parts);
    mmi_free(d);
}

/* --- Questions --- */

int64_t mm_dataset_rows(const mm_dataset *d)
{
    return d ? d->rows : 0;
}

int64_t mmi_dataset_epoch_rows(const mm_dataset *d)
{
    return d->places;
}

int64_t mmi_dataset_bytes(const mm_dataset *d)
{
    return d->bytes;
}

uint64_t mmi_dataset_hash(const mm_dataset *d)
{
    return d->hash;
}

const char *mmi_dataset_path(const mm_dataset *d)
{
    return d->parts[0].source.path;
}

/* --- Order --- */

/* An epoch takes each of its rows equally often. */
static bool is_even(const part *p)
{
    return p->source.selection.count == 0 || p->places % p->source.selection.count == 0;
}

bool mmi_dataset_varies(const mm_dataset *d)
{
    for (int32_t i = 0; i < d->count; i++)
        if (!is_even(&d->parts[i]))
            return true;
    return false;
}

/* The last part that begins at or before a row of the data set, or a place of an epoch, and so is not empty. */
static int32_t part_with(const mm_dataset *d, int64_t number, bool is_place)
{
    int32_t low = 0, high = d->count - 1;
    while (low < high) {
        int32_t middle = (low + high + 1) / 2;
        const part *p = &d->parts[middle];
        if ((is_place ? p->first_place : p->first_row) <= number)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

int64_t mmi_dataset_row_at(const mm_dataset *d, int64_t place, int64_t epoch, uint64_t seed, bool shuffle)
{
    if (shuffle)
        place = (int64_t)mmi_random_permute((uint64_t)place, (uint64_t)d->places, seed,
                                            MMI_STREAM(MMI_STREAM_SHUFFLE, epoch));
    const int32_t index = part_with(d, place, true);
    const part *p = &d->parts[index];
    uint64_t rows = (uint64_t)p->source.selection.count, n = (uint64_t)(place - p->first_place);
    if (is_even(p))
        return p->first_row + (int64_t)(n % rows);
    /* A part of the rows in each epoch: go through all of them, in ever new orders, before one comes again. */
    uint64_t drawn = (uint64_t)epoch * (uint64_t)p->places + n;
    n = drawn % rows;
    if (shuffle)
        n = mmi_random_permute(n, rows, seed + ((uint64_t)index << 32 | 1) * UINT64_C(0x9E3779B97F4A7C15),
                               MMI_STREAM(MMI_STREAM_SHUFFLE, drawn / rows));
    return p->first_row + (int64_t)n;
}

/* --- Rows --- */

/* Which part a row is of, and its number among those of the part's file. */
static mm_status find_row(const mmi_source **source, int64_t *number, const mm_dataset *d, int64_t row)
{
    const part *p = &d->parts[part_with(d, row, false)];
    *source = &p->source;
    return mmi_source_select(number, *source, row - p->first_row);
}

mm_status mmi_dataset_row(mmi_json **out, const mm_dataset *d, int64_t row, mmi_line *line)
{
    const mmi_source *source;
    int64_t number;
    mm_status status = find_row(&source, &number, d, row);
    return status == MM_OK ? mmi_source_row(out, source, number, line) : status;
}

mm_status mmi_dataset_fail_within(mm_status status, const mm_dataset *d, int64_t row)
{
    const mmi_source *source;
    int64_t number;
    mm_status found = find_row(&source, &number, d, row);
    return found == MM_OK ? mmi_source_fail_within(status, source, number) : found;
}

mm_status mmi_row_string(const char **text, size_t *length, const mmi_json *object, const char *key)
{
    const mmi_json *value = mmi_json_get(object, key);
    *text = mmi_json_string(value, length);
    if (*text)
        return MM_OK;
    return mmi_fail(MM_ERR_FORMAT, "\"%s\" is %s, not a string", key, mmi_json_kind_name(mmi_json_what(value)));
}

mm_status mmi_row_strings(mmi_json **list, const mmi_json *row, const char *key)
{
    mmi_json *found = mmi_json_get(row, key);
    if (mmi_json_what(found) != MMI_JSON_ARRAY)
        return mmi_fail(MM_ERR_FORMAT, "\"%s\" is %s, it must be an array of strings", key,
                        mmi_json_kind_name(mmi_json_what(found)));
    if (mmi_json_size(found) == 0)
        return mmi_fail(MM_ERR_FORMAT, "\"%s\" is empty", key);
    for (size_t i = 0; i < mmi_json_size(found); i++) {
        size_t length = 0;
        if (!mmi_json_string(mmi_json_at(found, i), &length) || length == 0)
            return mmi_fail(MM_ERR_FORMAT, "\"%s\"[%zu] is %s, it must be a string that is not empty", key, i,
                            length == 0 && mmi_json_string(mmi_json_at(found, i), NULL) ?
                                "empty" :
                                mmi_json_kind_name(mmi_json_what(mmi_json_at(found, i))));
    }
    *list = found;
    return MM_OK;
}

static mm_status check_row(const char *who, const mm_dataset *d, int64_t row, const char *text, size_t capacity)
{
    if (!d || (!text && capacity > 0))
        return mmi_fail(MM_ERR_ARG, "%s: %s is NULL", who, d ? "text" : "dataset");
    if (row < 0 || row >= d->rows)
        return mmi_fail(MM_ERR_ARG, "%s: row %lld of %lld", who, (long long)row, (long long)d->rows);
    return MM_OK;
}

mm_status mm_dataset_text(mm_dataset *d, int64_t row, char *text, size_t capacity, size_t *needed)
{
    mm_status status = check_row("mm_dataset_text", d, row, text, capacity);
    if (status != MM_OK)
        return status;
    mmi_line line = { NULL, 0, 0 };
    mmi_json *object = NULL;
    const char *from = NULL;
    size_t length = 0;
    status = mmi_dataset_row(&object, d, row, &line);
    if (status == MM_OK && (status = mmi_row_string(&from, &length, object, "text")) != MM_OK)
        status = mmi_dataset_fail_within(status, d, row);
    if (status == MM_OK)
        status = mmi_give_bytes(text, capacity, needed, from, length, "mm_dataset_text");
    mmi_json_free(object);
    mmi_line_free(&line);
    return status;
}

mm_status mm_dataset_line(mm_dataset *d, int64_t row, char *text, size_t capacity, size_t *needed)
{
    mm_status status = check_row("mm_dataset_line", d, row, text, capacity);
    if (status != MM_OK)
        return status;
    mmi_line line = { NULL, 0, 0 };
    const mmi_source *source;
    int64_t number;
    status = find_row(&source, &number, d, row);
    if (status == MM_OK)
        status = mmi_source_line(&line, source, number);
    if (status == MM_OK)
        status = mmi_give_bytes(text, capacity, needed, line.data, line.size, "mm_dataset_line");
    mmi_line_free(&line);
    return status;
}

mm_status mm_dataset_where(mm_dataset *d, int64_t row, const char **path, int64_t *line)
{
    mm_status status = check_row("mm_dataset_where", d, row, NULL, 0);
    if (status != MM_OK)
        return status;
    const mmi_source *source;
    int64_t number;
    status = find_row(&source, &number, d, row);
    if (status == MM_OK && line)
        status = mmi_source_number(line, source, number);
    if (status == MM_OK && path)
        *path = source->path;
    return status;
}
