#include "model/safetensors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/memory.h"

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "safetensors holds little-endian numbers, which are used here as they lie in the file"
#endif

#define LENGTH_BYTES 8 /* of the header length in front */

/* Every dtype of the format, so that "not done here" and "damaged" can be told apart. */
static const struct dtype_row {
    const char *name;
    int32_t dtype;
    unsigned bits;
} dtypes[] = {
    { "F32", MM_F32, 32 },           { "BF16", MM_BF16, 16 },         { "F16", MM_F16, 16 },
    { "I32", MM_I32, 32 },           { "I64", MM_I64, 64 },           { "F64", MMI_ST_OTHER, 64 },
    { "C64", MMI_ST_OTHER, 64 },     { "U64", MMI_ST_OTHER, 64 },     { "U32", MMI_ST_OTHER, 32 },
    { "I16", MMI_ST_OTHER, 16 },     { "U16", MMI_ST_OTHER, 16 },     { "I8", MMI_ST_OTHER, 8 },
    { "U8", MMI_ST_BYTES, 8 },       { "BOOL", MMI_ST_OTHER, 8 },     { "F8_E5M2", MMI_ST_OTHER, 8 },
    { "F8_E4M3", MMI_ST_OTHER, 8 },  { "F8_E8M0", MMI_ST_OTHER, 8 },  { "F6_E2M3", MMI_ST_OTHER, 6 },
    { "F6_E3M2", MMI_ST_OTHER, 6 },  { "F4", MMI_ST_OTHER, 4 },
};
#define DTYPES (sizeof dtypes / sizeof *dtypes)

/* What the header is checked against. */
typedef struct image {
    const char *what;
    size_t start;              /* of the data: LENGTH_BYTES and the header lie before it */
    size_t size;               /* of the data */
    const unsigned char *data; /* NULL when it is not in memory */
} image;

static const struct dtype_row *find_dtype(const char *name)
{
    for (size_t i = 0; name && i < DTYPES; i++)
        if (strcmp(dtypes[i].name, name) == 0)
            return &dtypes[i];
    return NULL;
}

const char *mmi_st_dtype_name(int32_t dtype)
{
    for (size_t i = 0; dtype != MMI_ST_OTHER && i < DTYPES; i++)
        if (dtypes[i].dtype == dtype)
            return dtypes[i].name;
    return NULL;
}

void mmi_st_shape_text(char text[MMI_ST_SHAPE_TEXT], const int64_t *shape, int32_t rank)
{
    size_t used = (size_t)snprintf(text, MMI_ST_SHAPE_TEXT, "[");
    for (int32_t i = 0; i < rank && i < 4; i++)
        used += (size_t)snprintf(text + used, MMI_ST_SHAPE_TEXT - used, i ? ", %lld" : "%lld", (long long)shape[i]);
    snprintf(text + used, MMI_ST_SHAPE_TEXT - used, "]");
}

/* Names go into messages of one line and into other headers. */
static mm_status check_name(const char *name, const char *what)
{
    size_t length = strlen(name);
    if (length > MMI_ST_NAME_MAX)
        return mmi_fail(MM_ERR_FORMAT, "%s: a tensor's name has %zu bytes, at most %zu are allowed", what, length,
                        MMI_ST_NAME_MAX);
    for (size_t i = 0; i < length; i++)
        if ((unsigned char)name[i] < ' ' || name[i] == 0x7F)
            return mmi_fail(MM_ERR_FORMAT, "%s: a tensor's name has a control character (byte %d) at place %zu", what,
                            name[i], i);
    return MM_OK;
}

static mm_status read_shape(mmi_st_entry *e, const mmi_json *info, const char *what)
{
    const mmi_json *shape = mmi_json_get(info, "shape");
    if (mmi_json_what(shape) != MMI_JSON_ARRAY)
        return mmi_fail(MM_ERR_FORMAT, "%s: %s: \"shape\" is %s, not an array", what, e->name,
                        mmi_json_kind_name(mmi_json_what(shape)));
    size_t rank = mmi_json_size(shape);
    if (rank > 4)
        return mmi_fail(MM_ERR_UNSUPPORTED, "%s: %s has %zu dimensions, at most 4 are supported", what, e->name, rank);
    e->rank = (int32_t)rank;
    e->elements = 1;
    for (size_t i = 0; i < 4; i++) {
        const mmi_json *size = i < rank ? mmi_json_at(shape, i) : NULL;
        int64_t n = size ? mmi_json_int(size, -1) : 1;
        if (n < 0)
            return mmi_fail(MM_ERR_FORMAT, "%s: %s: dimension %zu of \"shape\" is not a whole number from 0 on", what,
                            e->name, i);
        if (n > 0 && e->elements > INT64_MAX / n)
            return mmi_fail(MM_ERR_FORMAT, "%s: %s: \"shape\" has more elements than can be counted", what, e->name);
        e->shape[i] = n;
        e->elements *= n;
    }
    return MM_OK;
}

/* Elements and dtype say how many bytes there must be. */
static mm_status read_dtype(mmi_st_entry *e, const mmi_json *info, const char *what)
{
    const mmi_json *value = mmi_json_get(info, "dtype");
    const char *name = mmi_json_string(value, NULL);
    const struct dtype_row *row = find_dtype(name);
    if (!name)
        return mmi_fail(MM_ERR_FORMAT, "%s: %s: \"dtype\" is %s, not a string", what, e->name,
                        mmi_json_kind_name(mmi_json_what(value)));
    if (!row)
        return mmi_fail(MM_ERR_FORMAT, "%s: %s: \"dtype\" is \"%.32s\", which safetensors does not have", what,
                        e->name, name);
    uint64_t bits = (uint64_t)e->elements * row->bits;
    if ((uint64_t)e->elements > UINT64_MAX / row->bits || bits / 8 > SIZE_MAX)
        return mmi_fail(MM_ERR_FORMAT, "%s: %s: \"shape\" has more bytes than can be counted", what, e->name);
    if (bits % 8 != 0)
        return mmi_fail(MM_ERR_FORMAT, "%s: %s: %lld elements of %s do not fill whole bytes", what, e->name,
                        (long long)e->elements, row->name);
    e->dtype = row->dtype;
    e->dtype_name = row->name;
    e->bytes = (size_t)(bits / 8);
    return MM_OK;
}

static mm_status read_range(mmi_st_entry *e, const mmi_json *info, const image *in)
{
    const mmi_json *offsets = mmi_json_get(info, "data_offsets");
    int64_t begin = -1, end = -1;
    if (mmi_json_what(offsets) == MMI_JSON_ARRAY && mmi_json_size(offsets) == 2) {
        begin = mmi_json_int(mmi_json_at(offsets, 0), -1);
        end = mmi_json_int(mmi_json_at(offsets, 1), -1);
    }
    if (begin < 0 || end < 0)
        return mmi_fail(MM_ERR_FORMAT, "%s: %s: \"data_offsets\" is not a pair of whole numbers from 0 on", in->what,
                        e->name);
    if (begin > end || (uint64_t)end > in->size)
        return mmi_fail(MM_ERR_FORMAT, "%s: %s: data_offsets [%lld, %lld] do not lie within the %zu bytes of data",
                        in->what, e->name, (long long)begin, (long long)end, in->size);
    if ((uint64_t)(end - begin) != e->bytes) {
        char shape[MMI_ST_SHAPE_TEXT];
        mmi_st_shape_text(shape, e->shape, e->rank);
        return mmi_fail(MM_ERR_FORMAT, "%s: %s: shape %s of %s takes %zu bytes, data_offsets [%lld, %lld] have %lld",
                        in->what, e->name, shape, e->dtype_name, e->bytes, (long long)begin, (long long)end,
                        (long long)(end - begin));
    }
    e->offset = in->start + (size_t)begin;
    e->data = in->data ? in->data + begin : NULL;
    return MM_OK;
}

static mm_status read_entry(mmi_st_entry *e, const mmi_json *info, const image *in)
{
    if (mmi_json_what(info) != MMI_JSON_OBJECT)
        return mmi_fail(MM_ERR_FORMAT, "%s: %s is %s, not an object", in->what, e->name,
                        mmi_json_kind_name(mmi_json_what(info)));
    mm_status status = read_shape(e, info, in->what);
    if (status == MM_OK)
        status = read_dtype(e, info, in->what);
    if (status == MM_OK)
        status = read_range(e, info, in);
    return status;
}

static mm_status check_metadata(mmi_json *metadata, const char *what)
{
    if (mmi_json_what(metadata) != MMI_JSON_OBJECT)
        return mmi_fail(MM_ERR_FORMAT, "%s: __metadata__ is %s, not an object", what,
                        mmi_json_kind_name(mmi_json_what(metadata)));
    for (void *i = mmi_json_first(metadata); i; i = mmi_json_next(metadata, i))
        if (mmi_json_what(mmi_json_value(i)) != MMI_JSON_STRING)
            return mmi_fail(MM_ERR_FORMAT, "%s: __metadata__ has a value that is %s, not a string", what,
                            mmi_json_kind_name(mmi_json_what(mmi_json_value(i))));
    return MM_OK;
}

static bool is_metadata(const char *name)
{
    return strcmp(name, "__metadata__") == 0;
}

/* Check the names, and one block for the entries, the names and `what`. */
static mm_status make_room(mmi_st_file *file, char **names, mmi_json *header, const char *what)
{
    size_t bytes = strlen(what) + 1;
    for (void *i = mmi_json_first(header); i; i = mmi_json_next(header, i)) {
        const char *name = mmi_json_key(i);
        mm_status status = is_metadata(name) ? check_metadata(mmi_json_value(i), what) : check_name(name, what);
        if (status != MM_OK)
            return status;
        if (is_metadata(name))
            continue;
        file->count++;
        bytes += strlen(name) + 1;
    }
    bytes += file->count * sizeof *file->entries;
    file->entries = mmi_calloc(bytes, 1);
    if (!file->entries)
        return mmi_fail_memory(bytes, what);
    *names = (char *)(file->entries + file->count);
    return MM_OK;
}

static const char *keep(char **room, const char *text)
{
    size_t size = strlen(text) + 1;
    char *kept = memcpy(*room, text, size);
    *room += size;
    return kept;
}

static int by_place(const void *a, const void *b)
{
    const mmi_st_entry *x = a, *y = b;
    if (x->offset != y->offset)
        return x->offset < y->offset ? -1 : 1;
    return (x->bytes > y->bytes) - (x->bytes < y->bytes); /* empty ones come before the data they stand at */
}

static int by_name(const void *a, const void *b)
{
    const mmi_st_entry *x = a, *y = b;
    return strcmp(x->name, y->name);
}

/* The ranges, put in order, must tile the data. Leaves the entries sorted by name. */
static mm_status check_tiling(mmi_st_file *file, const image *in)
{
    size_t end = in->start;
    qsort(file->entries, file->count, sizeof *file->entries, by_place);
    for (size_t i = 0; i < file->count; i++) {
        const mmi_st_entry *e = &file->entries[i];
        if (e->offset < end)
            return mmi_fail(MM_ERR_FORMAT, "%s: the data of %s overlap those of %s", in->what, e->name,
                            e[-1].name);
        if (e->offset > end)
            return mmi_fail(MM_ERR_FORMAT, "%s: %zu bytes before the data of %s belong to no tensor", in->what,
                            e->offset - end, e->name);
        end += e->bytes;
    }
    if (end != in->start + in->size)
        return mmi_fail(MM_ERR_FORMAT, "%s: the last %zu bytes belong to no tensor", in->what,
                        in->start + in->size - end);
    qsort(file->entries, file->count, sizeof *file->entries, by_name);
    return MM_OK;
}

static mm_status read_entries(mmi_st_file *out, mmi_json *header, const image *in)
{
    mmi_st_file file;
    memset(&file, 0, sizeof file);
    char *room = NULL;
    mm_status status = make_room(&file, &room, header, in->what);
    size_t n = 0;
    for (void *i = mmi_json_first(header); status == MM_OK && i; i = mmi_json_next(header, i)) {
        if (is_metadata(mmi_json_key(i)))
            continue;
        mmi_st_entry *e = &file.entries[n++];
        e->name = (char *)keep(&room, mmi_json_key(i));
        status = read_entry(e, mmi_json_value(i), in);
    }
    if (status == MM_OK)
        status = check_tiling(&file, in);
    if (status != MM_OK) {
        mmi_free(file.entries);
        return status;
    }
    file.what = keep(&room, in->what);
    *out = file;
    return MM_OK;
}

static mm_status parse_header(mmi_st_file *out, const char *text, size_t length, const image *in)
{
    if (length == 0 || text[0] != '{')
        return mmi_fail(MM_ERR_FORMAT, "%s: the header does not begin with {", in->what);
    mmi_json *header = NULL;
    mm_status status = mmi_json_parse(text, length, "header", &header);
    if (status != MM_OK)
        return mmi_fail_within(status, "%s", in->what);
    status = read_entries(out, header, in);
    mmi_json_free(header);
    return status;
}

/* Where the data begin, from the first bytes of an image of `size` bytes. */
static mm_status find_data(image *in, const unsigned char *first, size_t size)
{
    if (size < LENGTH_BYTES)
        return mmi_fail(MM_ERR_FORMAT, "%s: %zu bytes are too few for a safetensors file", in->what, size);
    uint64_t length = 0;
    for (int i = 0; i < LENGTH_BYTES; i++)
        length |= (uint64_t)first[i] << (8 * i);
    if (length > size - LENGTH_BYTES)
        return mmi_fail(MM_ERR_FORMAT, "%s: a header of %llu bytes does not fit in the file, which has %zu", in->what,
                        (unsigned long long)length, size);
    if (length > MMI_ST_HEADER_MAX)
        return mmi_fail(MM_ERR_FORMAT, "%s: a header of %llu bytes, at most %llu are allowed", in->what,
                        (unsigned long long)length, (unsigned long long)MMI_ST_HEADER_MAX);
    in->start = LENGTH_BYTES + (size_t)length;
    in->size = size - in->start;
    return MM_OK;
}

mm_status mmi_st_parse(const void *data, size_t size, const char *what, mmi_st_file *out)
{
    image in = { what, 0, 0, NULL };
    mm_status status = find_data(&in, data, size);
    if (status != MM_OK)
        return status;
    in.data = (const unsigned char *)data + in.start;
    return parse_header(out, (const char *)data + LENGTH_BYTES, in.start - LENGTH_BYTES, &in);
}

mm_status mmi_st_open(const char *path, mmi_st_file *out)
{
    mmi_mapping mapping = { NULL, 0 };
    mm_status status = mmi_map_file(path, &mapping);
    if (status != MM_OK)
        return status;
    status = mmi_st_parse(mapping.data, mapping.size, path, out);
    if (status == MM_OK)
        out->mapping = mapping;
    else
        mmi_unmap_file(&mapping);
    return status;
}

static mm_status read_header(mmi_st_file *out, const mmi_reader *reader, const char *path)
{
    unsigned char first[LENGTH_BYTES] = { 0 };
    size_t have = reader->size < LENGTH_BYTES ? reader->size : LENGTH_BYTES;
    image in = { path, 0, 0, NULL };
    mm_status status = mmi_reader_get(reader, first, have, 0, path);
    if (status == MM_OK)
        status = find_data(&in, first, reader->size);
    if (status != MM_OK)
        return status;
    size_t length = in.start - LENGTH_BYTES;
    char *text = mmi_alloc(length, 1);
    if (!text)
        return mmi_fail_memory(length, path);
    status = mmi_reader_get(reader, text, length, LENGTH_BYTES, path);
    if (status == MM_OK)
        status = parse_header(out, text, length, &in);
    mmi_free(text);
    return status;
}

mm_status mmi_st_open_unmapped(const char *path, mmi_st_file *out)
{
    mmi_reader reader = { -1, 0, false };
    mm_status status = mmi_reader_open(&reader, path);
    if (status != MM_OK)
        return status;
    status = read_header(out, &reader, path);
    if (status == MM_OK)
        out->reader = reader;
    else
        mmi_reader_close(&reader);
    return status;
}

static mm_status find_metadata(const char *header, size_t length, const char *what, const char *key, char *text,
                               size_t size, bool needed)
{
    mmi_json *json = NULL;
    mm_status status = mmi_json_parse(header, length, what, &json);
    if (status != MM_OK)
        return status;
    size_t used = 0;
    const char *value = mmi_json_string(mmi_json_get(mmi_json_get(json, "__metadata__"), key), &used);
    if (value && used < size)
        memcpy(text, value, used + 1);
    else if (!needed)
        snprintf(text, size, "%s", value ? value : "");
    else
        status = mmi_fail(MM_ERR_FORMAT, "%s: the metadata \"%s\" is %s", what, key, value ? "too long" : "missing");
    mmi_json_free(json);
    return status;
}

static mm_status read_metadata(const mmi_st_file *file, const char *key, char *text, size_t size, bool needed)
{
    const unsigned char *mapped = file->mapping.data;
    unsigned char first[LENGTH_BYTES];
    image in = { file->what, 0, 0, NULL };
    if (mapped) { /* checked when it was opened */
        find_data(&in, mapped, file->mapping.size);
        return find_metadata((const char *)mapped + LENGTH_BYTES, in.start - LENGTH_BYTES, file->what, key, text, size,
                             needed);
    }
    mm_status status = mmi_reader_get(&file->reader, first, sizeof first, 0, file->what);
    if (status == MM_OK)
        status = find_data(&in, first, file->reader.size);
    if (status != MM_OK)
        return status;
    size_t length = in.start - LENGTH_BYTES;
    char *header = mmi_alloc(length, 1);
    if (!header)
        return mmi_fail_memory(length, file->what);
    status = mmi_reader_get(&file->reader, header, length, LENGTH_BYTES, file->what);
    if (status == MM_OK)
        status = find_metadata(header, length, file->what, key, text, size, needed);
    mmi_free(header);
    return status;
}

mm_status mmi_st_metadata(const mmi_st_file *file, const char *key, char *text, size_t size)
{
    return read_metadata(file, key, text, size, true);
}

mm_status mmi_st_hint(const mmi_st_file *file, const char *key, char *text, size_t size)
{
    return read_metadata(file, key, text, size, false);
}

void mmi_st_close(mmi_st_file *file)
{
    mmi_free(file->entries);
    mmi_unmap_file(&file->mapping);
    mmi_reader_close(&file->reader);
    file->entries = NULL;
    file->what = NULL;
    file->count = 0;
}

const mmi_st_entry *mmi_st_find(const mmi_st_file *file, const char *name)
{
    size_t low = 0, high = file->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        int order = strcmp(name, file->entries[middle].name);
        if (order == 0)
            return &file->entries[middle];
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return NULL;
}

mm_status mmi_st_read(void *out, const mmi_st_file *file, const mmi_st_entry *entry, size_t from, size_t size)
{
    if (size == 0)
        return MM_OK;
    if (!entry->data)
        return mmi_reader_get(&file->reader, out, size, entry->offset + from, file->what);
    memcpy(out, (const unsigned char *)entry->data + from, size);
    return MM_OK;
}
