#include "train/topk.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/target.h"
#include "data/loader.h"
#include "model/model.h"
#include "train/stage.h"

#define FORMAT "minimind-distill-2"

/* --- Reading --- */

static mm_status find_tensor(const void **data, mmi_topk *t, const char *name, int32_t dtype, int32_t rank,
                             const int64_t *shape)
{
    const mmi_st_entry *e = mmi_st_find(&t->file, name);
    if (!e || e->dtype != dtype || e->rank != rank)
        return mmi_fail(MM_ERR_FORMAT, "%s: holds no tensor %s of a teacher's tokens", t->path, name);
    for (int32_t i = 0; i < rank; i++)
        if (e->shape[i] != shape[i])
            return mmi_fail(MM_ERR_FORMAT, "%s: dimension %d of %s is %lld, %lld was expected", t->path, i, name,
                            (long long)e->shape[i], (long long)shape[i]);
    if ((uintptr_t)e->data % mm_dtype_size(dtype) != 0)
        return mmi_fail(MM_ERR_FORMAT, "%s: %s does not lie at a multiple of its elements' size", t->path, name);
    *data = e->data;
    return MM_OK;
}

static uint64_t hash_contents(const int64_t *keys, const int64_t *starts, const int32_t *ids, const float *logits,
                              int64_t rows, int64_t numbers)
{
    mmi_hash hash;
    mmi_hash_begin(&hash);
    mmi_hash_add(&hash, keys, (size_t)rows * sizeof *keys);
    mmi_hash_add(&hash, starts, (size_t)(rows + 1) * sizeof *starts);
    mmi_hash_add(&hash, ids, (size_t)numbers * sizeof *ids);
    mmi_hash_add(&hash, logits, (size_t)numbers * sizeof *logits);
    return mmi_hash_end(&hash);
}

static mm_status read_metadata(mmi_topk *t)
{
    char format[64], hash[MMI_HASH_TEXT], vocab[24];
    mm_status status = mmi_st_metadata(&t->file, "format", format, sizeof format);
    if (status == MM_OK && strcmp(format, FORMAT) != 0)
        status = mmi_fail(MM_ERR_FORMAT, "%s: its format is \"%s\", not \"%s\"", t->path, format, FORMAT);
    if (status == MM_OK)
        status = mmi_st_metadata(&t->file, "hash", hash, sizeof hash);
    if (status == MM_OK)
        status = mmi_st_metadata(&t->file, "vocab_size", vocab, sizeof vocab);
    if (status != MM_OK)
        return status;
    t->hash = strtoull(hash, NULL, 16);
    t->vocab_size = strtoll(vocab, NULL, 10);
    return MM_OK;
}

/* What the hash can't know: that the numbers make sense together. */
static mm_status check_contents(const mmi_topk *t)
{
    if (hash_contents(t->keys, t->starts, t->ids, t->logits, t->rows, t->positions * t->k) != t->hash)
        return mmi_fail(MM_ERR_FORMAT, "%s: damaged: its hash is not that of what it holds", t->path);
    bool good = t->starts[0] == 0 && t->starts[t->rows] == t->positions && t->vocab_size > 0;
    for (int64_t i = 0; i < t->rows && good; i++)
        good = t->starts[i] <= t->starts[i + 1] && (i == 0 || t->keys[i - 1] < t->keys[i]);
    for (int64_t i = 0; i < t->positions * t->k && good; i++)
        good = t->ids[i] >= 0 && t->ids[i] < t->vocab_size && isfinite(t->logits[i]);
    return good ? MM_OK : mmi_fail(MM_ERR_FORMAT, "%s: its rows contradict each other", t->path);
}

static mm_status find_tensors(mmi_topk *t)
{
    const mmi_st_entry *ids = mmi_st_find(&t->file, "ids"), *keys = mmi_st_find(&t->file, "keys");
    if (!ids || ids->rank != 2 || ids->shape[1] < 1 || !keys || keys->rank != 1)
        return mmi_fail(MM_ERR_FORMAT, "%s: holds no teacher's tokens", t->path);
    t->rows = keys->shape[0];
    t->positions = ids->shape[0];
    t->k = ids->shape[1];
    const int64_t ends[1] = { t->rows + 1 };
    const void *data[4] = { NULL };
    mm_status status = find_tensor(&data[0], t, "keys", MM_I64, 1, keys->shape);
    if (status == MM_OK)
        status = find_tensor(&data[1], t, "starts", MM_I64, 1, ends);
    if (status == MM_OK)
        status = find_tensor(&data[2], t, "ids", MM_I32, 2, ids->shape);
    if (status == MM_OK)
        status = find_tensor(&data[3], t, "logits", MM_F32, 2, ids->shape);
    t->keys = data[0];
    t->starts = data[1];
    t->ids = data[2];
    t->logits = data[3];
    return status;
}

mm_status mmi_topk_open(mmi_topk *out, const char *path)
{
    mmi_topk t = { .path = mmi_strdup(path) };
    if (!t.path)
        return mmi_fail_memory(strlen(path), "a path");
    mm_status status = mmi_st_open(path, &t.file);
    if (status == MM_OK)
        status = read_metadata(&t);
    if (status == MM_OK)
        status = find_tensors(&t);
    if (status == MM_OK)
        status = check_contents(&t);
    if (status == MM_OK)
        *out = t;
    else
        mmi_topk_close(&t);
    return status;
}

void mmi_topk_close(mmi_topk *t)
{
    mmi_st_close(&t->file);
    mmi_free(t->path);
    *t = (mmi_topk){ 0 };
}

/* As a positive number: JSON and safetensors know no unsigned ones. */
static int64_t key_of(const mm_batch *b, int64_t row)
{
    mmi_hash hash;
    mmi_hash_begin(&hash);
    mmi_stage_hash_row(&hash, b, row);
    return (int64_t)(mmi_hash_end(&hash) >> 1);
}

static int64_t count_targets(const mm_batch *b, int64_t row)
{
    return mmi_targets_counted(b->targets + row * b->length, b->length);
}

mm_status mmi_topk_find(const mmi_topk *t, int64_t *first, const mm_batch *b, int64_t row)
{
    int64_t key = key_of(b, row), low = 0, high = t->rows, count = count_targets(b, row);
    if (count == 0) /* of such rows nothing is written */
        return MM_OK;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if (t->keys[middle] < key)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == t->rows || t->keys[low] != key || t->starts[low + 1] - t->starts[low] != count)
        return mmi_fail(MM_ERR_FORMAT,
                        "%s: has no tokens for a row of the data: it was made of other rows, or of a "
                        "loader with other options",
                        t->path);
    *first = t->starts[low];
    return MM_OK;
}

void mmi_topk_spread(float *logits, const mmi_topk *t, int64_t position, int64_t V)
{
    for (int64_t v = 0; v < V; v++)
        logits[v] = -INFINITY;
    for (int64_t i = position * t->k; i < (position + 1) * t->k; i++)
        logits[t->ids[i]] = t->logits[i];
}

/* --- Writing --- */

/* Rows in the order in which they came; the file has them by their keys. */
typedef struct found {
    int64_t key, first, count;
} found;

typedef struct writer {
    mm_context *context; /* of the teacher */
    mm_loader *loader;
    int64_t V, k; /* V: ids that the tokenizer has */
    found *rows;
    int32_t *ids;
    float *logits;
    size_t row_count, row_room, positions, id_room, logit_room;
} writer;

/* The k largest of V logits, largest first; ties go to the lower id. */
static void choose(int32_t *ids, float *best, const float *logits, int64_t V, int64_t k)
{
    int64_t held = 0;
    for (int64_t v = 0; v < V; v++) {
        if (held == k && !(logits[v] > best[k - 1]))
            continue;
        int64_t at = held < k ? held++ : k - 1;
        for (; at > 0 && logits[v] > best[at - 1]; at--) {
            best[at] = best[at - 1];
            ids[at] = ids[at - 1];
        }
        best[at] = logits[v];
        ids[at] = (int32_t)v;
    }
}

static mm_status make_room(writer *w, size_t positions)
{
    size_t wanted = (w->positions + positions) * (size_t)w->k;
    if (mmi_grow(&w->rows, &w->row_room, w->row_count + 1, sizeof *w->rows) &&
        mmi_grow(&w->ids, &w->id_room, wanted, sizeof *w->ids) &&
        mmi_grow(&w->logits, &w->logit_room, wanted, sizeof *w->logits))
        return MM_OK;
    return mmi_fail_memory(wanted * (sizeof *w->ids + sizeof *w->logits), "a teacher's tokens");
}

static mm_status add_row(writer *w, const mm_batch *b, int64_t row, const mm_view *logits)
{
    int64_t count = count_targets(b, row), T = b->length;
    if (count == 0)
        return MM_OK;
    mm_status status = make_room(w, (size_t)count);
    if (status != MM_OK)
        return status;
    w->rows[w->row_count++] = (found){ key_of(b, row), (int64_t)w->positions, count };
    for (int64_t i = row * T; i < (row + 1) * T; i++) {
        const float *all = (const float *)logits->data + i * logits->shape[2];
        size_t to = w->positions * (size_t)w->k;
        if (b->targets[i] == MMI_IGNORE)
            continue;
        for (int64_t v = 0; v < w->V; v++) /* all of them: none that is no number is among the largest */
            if (!isfinite(all[v]))
                return mmi_fail(MM_ERR_NUMERIC, "the teacher's logits are not finite");
        choose(w->ids + to, w->logits + to, all, w->V, w->k);
        w->positions++;
    }
    return MM_OK;
}

static mm_status run_teacher(writer *w)
{
    for (;;) {
        mm_batch b = MM_BATCH_INIT;
        mm_output out = MM_OUTPUT_INIT;
        mm_status status = mm_loader_next(w->loader, &b);
        if (status != MM_OK || b.batch == 0)
            return status;
        b.mode = MM_EVAL;
        b.outputs = MM_OUT_LOGITS;
        status = mm_forward(w->context, &b, &out);
        for (int64_t row = 0; row < b.batch && status == MM_OK; row++)
            status = add_row(w, &b, row, &out.logits);
        if (status != MM_OK)
            return status;
    }
}

static int by_key(const void *a, const void *b)
{
    const found *x = a, *y = b;
    if (x->key != y->key)
        return x->key < y->key ? -1 : 1;
    return x->first < y->first ? -1 : x->first > y->first;
}

/* The arrays of the file: rows by their keys, each once. */
typedef struct sorted {
    int64_t *keys, *starts;
    int32_t *ids;
    float *logits;
    int64_t rows, positions;
} sorted;

static mm_status sort_rows(sorted *s, const writer *w)
{
    size_t k = (size_t)w->k;
    s->keys = mmi_alloc(w->row_count, sizeof *s->keys);
    s->starts = mmi_alloc(w->row_count + 1, sizeof *s->starts);
    s->ids = mmi_alloc(w->positions * k, sizeof *s->ids);
    s->logits = mmi_alloc(w->positions * k, sizeof *s->logits);
    if (!s->keys || !s->starts || !s->ids || !s->logits)
        return mmi_fail_memory(w->positions * k * (sizeof *s->ids + sizeof *s->logits), "a teacher's tokens");
    qsort(w->rows, w->row_count, sizeof *w->rows, by_key);
    for (size_t i = 0; i < w->row_count; i++) {
        const found *f = &w->rows[i];
        if (i > 0 && f->key == w->rows[i - 1].key)
            continue;
        size_t from = (size_t)f->first * k, to = (size_t)s->positions * k, n = (size_t)f->count * k;
        s->keys[s->rows] = f->key;
        s->starts[s->rows++] = s->positions;
        memcpy(s->ids + to, w->ids + from, n * sizeof *s->ids);
        memcpy(s->logits + to, w->logits + from, n * sizeof *s->logits);
        s->positions += f->count;
    }
    s->starts[s->rows] = s->positions;
    return MM_OK;
}

static mm_status write_sorted(const sorted *s, const writer *w, const char *path)
{
    char hash[MMI_HASH_TEXT], vocab[24];
    mmi_hash_text(hash, hash_contents(s->keys, s->starts, s->ids, s->logits, s->rows, s->positions * w->k));
    snprintf(vocab, sizeof vocab, "%lld", (long long)w->V);
    const char *const metadata[] = { "format", FORMAT, "vocab_size", vocab, "hash", hash, NULL };
    const mmi_st_entry entries[4] = {
        { .name = (char *)"keys", .dtype = MM_I64, .rank = 1, .shape = { s->rows, 1, 1, 1 }, .data = s->keys },
        { .name = (char *)"starts", .dtype = MM_I64, .rank = 1, .shape = { s->rows + 1, 1, 1, 1 }, .data = s->starts },
        { .name = (char *)"ids", .dtype = MM_I32, .rank = 2, .shape = { s->positions, w->k, 1, 1 }, .data = s->ids },
        { .name = (char *)"logits",
          .dtype = MM_F32,
          .rank = 2,
          .shape = { s->positions, w->k, 1, 1 },
          .data = s->logits },
    };
    return mmi_st_write(path, entries, 4, metadata);
}

static mm_status write_file(const writer *w, const char *path)
{
    sorted s = { 0 };
    mm_status status = w->row_count > 0 ? sort_rows(&s, w) : mmi_fail(MM_ERR_FORMAT, "the rows have no counted target");
    if (status == MM_OK)
        status = write_sorted(&s, w, path);
    mmi_free(s.keys);
    mmi_free(s.starts);
    mmi_free(s.ids);
    mmi_free(s.logits);
    return status;
}

static mm_status make_writer(writer *w, mm_model *teacher, int32_t threads)
{
    int64_t ids = mm_tokenizer_vocab_size(mmi_loader_tokenizer(w->loader));
    mm_status status = mmi_stage_check_rows(&mmi_stage_distill, w->loader);
    if (status != MM_OK)
        return status;
    if (ids > mmi_model_arch(teacher)->V)
        return mmi_fail(MM_ERR_ARG,
                        "mm_distill_cache_write: the tokenizer has %lld ids, the teacher's vocab_size is %lld",
                        (long long)ids, (long long)mmi_model_arch(teacher)->V);
    if (w->k < 1 || w->k > ids)
        return mmi_fail(MM_ERR_ARG, "mm_distill_cache_write: k is %lld, it must be 1 to %lld", (long long)w->k,
                        (long long)ids);
    w->V = ids;
    mm_context_options c = MM_CONTEXT_OPTIONS_INIT;
    c.max_batch = mmi_loader_batch_rows(w->loader);
    c.max_length = mm_loader_length(w->loader);
    c.outputs = MM_OUT_LOGITS;
    c.threads = threads;
    return mm_context_create(teacher, &c, &w->context);
}

mm_status mm_distill_cache_write(mm_model *teacher, mm_loader *loader, int32_t k, int32_t threads, const char *path)
{
    if (!teacher || !loader || !path)
        return mmi_fail(MM_ERR_ARG, "mm_distill_cache_write: %s is NULL",
                        !teacher ? "teacher" : (!loader ? "loader" : "path"));
    writer w = { .loader = loader, .k = k };
    mm_loader_position before = MM_LOADER_POSITION_INIT, start = MM_LOADER_POSITION_INIT;
    mm_status status = make_writer(&w, teacher, threads);
    if (status == MM_OK)
        status = mm_loader_tell(loader, &before);
    if (status == MM_OK) {
        status = mm_loader_seek(loader, &start);
        if (status == MM_OK)
            status = run_teacher(&w);
        mmi_loader_return(loader, &before);
    }
    if (status == MM_OK)
        status = write_file(&w, path);
    mm_context_free(w.context);
    mmi_free(w.rows);
    mmi_free(w.ids);
    mmi_free(w.logits);
    return status;
}
