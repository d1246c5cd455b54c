#include "model/match.h"

#include <stdlib.h>
#include <string.h>

#include "base/dtype.h"
#include "base/memory.h"
#include "model/names.h"

#define COMPARE_BYTES ((size_t)4096)
#define HEAD "lm_head.weight"

/* A tensor that the files hold, under our name. */
typedef struct found {
    const char *name;
    mmi_source source;
    bool used;
} found;

typedef struct table {
    found *rows; /* [count], sorted by name */
    size_t count;
    char *names; /* those that were translated */
} table;

static void close_table(table *t)
{
    mmi_free(t->rows);
    mmi_free(t->names);
}

static mm_status make_room(table *t, const mmi_match_input *in)
{
    size_t bytes = 0, count = 0;
    for (size_t f = 0; f < in->count; f++) {
        count += in->files[f].count;
        for (size_t e = 0; e < in->files[f].count; e++)
            bytes += strlen(in->files[f].entries[e].name) + MMI_NAME_GROWTH;
    }
    t->rows = mmi_alloc(count, sizeof *t->rows);
    t->names = mmi_alloc(bytes, 1);
    if (!t->rows || !t->names)
        return mmi_fail_memory(bytes + count * sizeof *t->rows, in->weights);
    return MM_OK;
}

static int by_name(const void *a, const void *b)
{
    const found *x = a, *y = b;
    return strcmp(x->name, y->name);
}

/* All entries of all files, translated and sorted; no name may be there twice. */
static mm_status fill_table(table *t, const mmi_match_input *in)
{
    char *room = t->names;
    for (size_t f = 0; f < in->count; f++)
        for (size_t e = 0; e < in->files[f].count; e++) {
            const mmi_st_entry *entry = &in->files[f].entries[e];
            size_t size = strlen(entry->name) + MMI_NAME_GROWTH;
            found *row = &t->rows[t->count++];
            *row = (found){ entry->name, { &in->files[f], entry, MM_F32 }, false };
            if (mmi_name_translate(room, size, entry->name)) {
                row->name = room;
                room += size;
            }
        }
    qsort(t->rows, t->count, sizeof *t->rows, by_name);
    for (size_t i = 1; i < t->count; i++)
        if (strcmp(t->rows[i - 1].name, t->rows[i].name) == 0)
            return mmi_fail(MM_ERR_FORMAT, "%s: %s is there twice, also as %s in %s", t->rows[i].source.file->what,
                            t->rows[i].source.entry->name, t->rows[i - 1].source.entry->name,
                            t->rows[i - 1].source.file->what);
    return MM_OK;
}

static found *look_up(const table *t, const char *name)
{
    found key = { name, { NULL, NULL, MM_F32 }, false };
    return bsearch(&key, t->rows, t->count, sizeof *t->rows, by_name);
}

/* Blocks are bytes to the file; how many a row has tells of which kind. */
static int32_t dtype_of(const mmi_st_entry *e, const mmi_tensor *tensor)
{
    static const int32_t in_blocks[] = { MM_Q8_0, MM_Q4_0 };
    bool whole = e->dtype == MMI_ST_BYTES && e->rank == 2 && tensor->rank == 2 && e->shape[0] == tensor->shape[0] &&
                 tensor->shape[1] % MMI_BLOCK == 0;
    for (size_t i = 0; whole && i < sizeof in_blocks / sizeof *in_blocks; i++)
        if ((uint64_t)e->shape[1] == mmi_dtype_bytes(in_blocks[i], tensor->shape[1]))
            return in_blocks[i];
    return e->dtype;
}

/* Whether an entry can be this tensor, and what its weights are. */
static mm_status check_tensor(mmi_source *s, const mmi_tensor *tensor, const mmi_match_input *in)
{
    const mmi_st_entry *e = s->entry;
    s->dtype = dtype_of(e, tensor);
    if (mmi_block_bytes(s->dtype) > 0)
        return MM_OK;
    if (e->rank != tensor->rank || e->shape[0] != tensor->shape[0] || e->shape[1] != tensor->shape[1]) {
        char has[MMI_ST_SHAPE_TEXT], wants[MMI_ST_SHAPE_TEXT];
        mmi_st_shape_text(has, e->shape, e->rank);
        mmi_st_shape_text(wants, tensor->shape, tensor->rank);
        return mmi_fail(MM_ERR_FORMAT, "%s: %s is %s%s, %s implies %s", s->file->what, e->name,
                        e->dtype == MMI_ST_BYTES ? "U8 " : "", has, in->config, wants);
    }
    if (e->dtype != MM_F32 && e->dtype != MM_BF16 && e->dtype != MM_F16)
        return mmi_fail(MM_ERR_UNSUPPORTED, "%s: %s is %s, weights may be F32, BF16 or F16", s->file->what, e->name,
                        e->dtype_name);
    return MM_OK;
}

/* A weight that is tied to a second name safetensors' save_model() writes once, under the name that sorts first. */
static found *find(const table *t, const char *name, bool tied)
{
    found *row = look_up(t, name);
    return !row && tied && strcmp(name, "model.embed_tokens.weight") == 0 ? look_up(t, HEAD) : row;
}

static mm_status match_layout(mmi_source *sources, table *t, const mmi_match_input *in)
{
    for (int64_t i = 0; i < in->layout->count; i++) {
        char name[MMI_NAME_SIZE];
        mmi_tensor tensor;
        mmi_layout_name(in->layout, i, name, sizeof name);
        mmi_layout_tensor(in->layout, i, &tensor);
        found *row = find(t, name, in->layout->arch->tied);
        if (!row)
            return mmi_fail(MM_ERR_FORMAT, "%s: %s is missing, which %s implies", in->weights, name, in->config);
        mm_status status = check_tensor(&row->source, &tensor, in);
        if (status != MM_OK)
            return status;
        row->used = true;
        sources[i] = row->source;
    }
    return MM_OK;
}

static mm_status compare(bool *equal, const mmi_source *a, const mmi_source *b)
{
    unsigned char x[COMPARE_BYTES], y[COMPARE_BYTES];
    *equal = a->entry->dtype == b->entry->dtype && a->entry->bytes == b->entry->bytes;
    for (size_t at = 0; *equal && at < a->entry->bytes;) {
        size_t now = a->entry->bytes - at < COMPARE_BYTES ? a->entry->bytes - at : COMPARE_BYTES;
        mm_status status = mmi_st_read(x, a->file, a->entry, at, now);
        if (status == MM_OK)
            status = mmi_st_read(y, b->file, b->entry, at, now);
        if (status != MM_OK)
            return status;
        *equal = memcmp(x, y, now) == 0;
        at += now;
    }
    return MM_OK;
}

/* A tied head beside the embedding: the same bytes, or nobody knows which of the two is meant. */
static mm_status check_tied_head(mmi_source *head, const mmi_source *embedding, const mmi_layout *layout,
                                 const mmi_match_input *in)
{
    mmi_tensor tensor;
    mmi_layout_tensor(layout, mmi_layout_index(layout, MMI_EMBED, 0, 0), &tensor);
    mm_status status = check_tensor(head, &tensor, in);
    if (status != MM_OK)
        return status;
    bool equal = false;
    status = compare(&equal, head, embedding);
    if (status != MM_OK || equal)
        return status;
    return mmi_fail(MM_ERR_FORMAT, "%s: %s differs from %s, to which %s ties it", head->file->what, head->entry->name,
                    embedding->entry->name, in->config);
}

static mm_status check_extras(const mmi_source *sources, table *t, const mmi_match_input *in)
{
    int64_t embedding = mmi_layout_index(in->layout, MMI_EMBED, 0, 0);
    for (size_t i = 0; i < t->count; i++) {
        found *row = &t->rows[i];
        if (row->used || mmi_name_is_table(row->name))
            continue;
        mm_status status;
        if (in->layout->arch->tied && strcmp(row->name, HEAD) == 0)
            status = check_tied_head(&row->source, &sources[embedding], in->layout, in);
        else
            status = mmi_fail(MM_ERR_FORMAT, "%s: %s is no tensor of the model that %s implies", row->source.file->what,
                              row->source.entry->name, in->config);
        if (status != MM_OK)
            return status;
    }
    return MM_OK;
}

/* A model in blocks is one throughout, as mm_model_quantize() makes it. */
static mm_status check_one_kind(const mmi_source *sources, const mmi_match_input *in)
{
    for (int64_t i = 0; i < in->layout->count; i++) {
        mmi_tensor tensor;
        mmi_layout_tensor(in->layout, i, &tensor);
        const int32_t is = sources[i].dtype, wanted = mmi_tensor_dtype(&tensor, sources[0].dtype);
        if (is != wanted && (mmi_block_bytes(is) > 0 || mmi_block_bytes(wanted) > 0))
            return mmi_fail(MM_ERR_UNSUPPORTED,
                            "%s: %s is %s beside %s, which is %s: of a quantized model all matrices but routers are in "
                            "the same blocks",
                            sources[i].file->what, sources[i].entry->name, mm_dtype_name(is), sources[0].entry->name,
                            mm_dtype_name(sources[0].dtype));
    }
    return MM_OK;
}

mm_status mmi_match(mmi_source *sources, const mmi_match_input *in)
{
    table t = { NULL, 0, NULL };
    mm_status status = make_room(&t, in);
    if (status == MM_OK)
        status = fill_table(&t, in);
    if (status == MM_OK)
        status = match_layout(sources, &t, in);
    if (status == MM_OK)
        status = check_one_kind(sources, in);
    if (status == MM_OK)
        status = check_extras(sources, &t, in);
    close_table(&t);
    return status;
}

bool mmi_match_has_q_norm(const mmi_st_file *files, size_t count)
{
    for (size_t f = 0; f < count; f++)
        for (size_t e = 0; e < files[f].count; e++)
            if (strstr(files[f].entries[e].name, ".self_attn.q_norm."))
                return true;
    return false;
}
