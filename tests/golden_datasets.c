#define _POSIX_C_SOURCE 200809L

#include "golden_datasets.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/files.h"
#include "base/memory.h"
#include "data/sample.h"

typedef struct story {
    char *text;
    size_t size;
} story;

static bool differs(const story *s, const char *format, ...) __attribute__((format(printf, 2, 3)));
static bool differs(const story *s, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(s->text, s->size, format, args);
    va_end(args);
    return false;
}

/* The tokenizer of a generation, loaded once. */
static mm_tokenizer *tokenizer_of(golden_datasets *g, const char *generation)
{
    const size_t most = sizeof g->loaded / sizeof *g->loaded;
    size_t i = 0;
    while (i < most && g->loaded[i] && strcmp(g->names[i], generation) != 0)
        i++;
    if (i == most || g->loaded[i])
        return i == most ? NULL : g->loaded[i];
    char *path = mmi_path_join(g->tokenizers, generation);
    if (path && mm_tokenizer_load(path, &g->loaded[i]) == MM_OK)
        snprintf(g->names[i], sizeof g->names[i], "%s", generation);
    mmi_free(path);
    return g->loaded[i];
}

/* --- The case's own form, from what the library gives --- */

/* Shifted by upstream: x, y and the mask of y. */
static bool check_shifted(const story *s, const mmi_json *expected, const char *side, const int32_t *ids,
                          const int32_t *targets, int32_t length)
{
    static const char *const fields[] = { "x", "y", "mask" };
    const mmi_json *wanted[3];
    char name[64];
    for (int i = 0; i < 3; i++) {
        snprintf(name, sizeof name, "%s%s", fields[i], side);
        wanted[i] = mmi_json_get(expected, name);
        if (mmi_json_what(wanted[i]) != MMI_JSON_ARRAY || mmi_json_size(wanted[i]) != (size_t)length)
            return differs(s, "%s: %zu numbers are expected, the loader gives %d", name, mmi_json_size(wanted[i]), length);
    }
    for (int32_t t = 0; t < length; t++) {
        size_t i = (size_t)t;
        int64_t x = mmi_json_int(mmi_json_at(wanted[0], i), -1), y = mmi_json_int(mmi_json_at(wanted[1], i), -1);
        int64_t target = mmi_json_int(mmi_json_at(wanted[2], i), 0) == 1 ? y : -100;
        if (ids[t] != x)
            return differs(s, "x%s[%d] is %d instead of %lld", side, t, ids[t], (long long)x);
        if (targets[t] != target)
            return differs(s, "the target%s of %d is %d instead of %lld", side, t, targets[t], (long long)target);
    }
    return true;
}

/* Not shifted: labels[t] is about input_ids[t], and the library's target one place before it. */
static bool check_labels(const story *s, const mmi_json *expected, const mm_batch *b)
{
    const mmi_json *ids = mmi_json_get(expected, "input_ids"), *labels = mmi_json_get(expected, "labels");
    size_t length = (size_t)b->length;
    if (mmi_json_size(ids) != length || mmi_json_size(labels) != length)
        return differs(s, "%zu ids and %zu labels are expected, the loader gives %zu", mmi_json_size(ids),
                       mmi_json_size(labels), length);
    for (size_t t = 0; t < length; t++) {
        int64_t id = mmi_json_int(mmi_json_at(ids, t), -1);
        int64_t target = t + 1 < length ? mmi_json_int(mmi_json_at(labels, t + 1), -1) : -100;
        if (b->ids[t] != id)
            return differs(s, "input_ids[%zu] is %d instead of %lld", t, b->ids[t], (long long)id);
        if (b->targets[t] != target)
            return differs(s, "labels[%zu] is %d instead of %lld", t + 1, b->targets[t], (long long)target);
    }
    return true;
}

static bool check_batch(const story *s, const mmi_json *expected, const mm_batch *b, int32_t kind)
{
    if (b->batch != (kind == MM_ROW_PREFERENCE ? 2 : 1))
        return differs(s, "the loader gives %d rows", b->batch);
    if (mmi_json_get(expected, "input_ids"))
        return check_labels(s, expected, b);
    if (kind != MM_ROW_PREFERENCE)
        return check_shifted(s, expected, "", b->ids, b->targets, b->length);
    return check_shifted(s, expected, "_chosen", b->ids, b->targets, b->length) &&
           check_shifted(s, expected, "_rejected", b->ids + b->length, b->targets + b->length, b->length);
}

/* --- The rendered text: no public function tells, so this looks inside --- */

static bool check_prompt(const story *s, const mmi_recipe *recipe, const mmi_json *item, const char *field,
                         const char *key)
{
    size_t wanted_size = 0, size, at = 0;
    const char *wanted = mmi_json_string(mmi_json_get(mmi_json_get(item, "expected"), field), &wanted_size);
    if (!wanted)
        return true;
    mmi_desk desk;
    memset(&desk, 0, sizeof desk);
    mmi_json *row = mmi_json_copy(mmi_json_get(item, "row"));
    const bool rendered = row && mmi_recipe_render(&desk, recipe, row, key) == MM_OK;
    size = desk.text.length;
    while (at < size && at < wanted_size && desk.text.bytes[at] == wanted[at])
        at++;
    mmi_json_free(row);
    mmi_desk_free(&desk);
    if (!rendered)
        return differs(s, "%s: %s", field, mm_last_error());
    return at == size && at == wanted_size
               ? true
               : differs(s, "%s: it differs from byte %zu on (%zu bytes, %zu expected)", field, at, size, wanted_size);
}

static bool check_prompts(const story *s, const mm_tokenizer *t, const mm_loader_options *o, const mmi_json *item)
{
    mmi_recipe recipe;
    if (o->kind == MM_ROW_TEXT)
        return true;
    if (mmi_recipe_make(&recipe, t, o) != MM_OK)
        return differs(s, "%s", mm_last_error());
    return check_prompt(s, &recipe, item, "prompt", "conversations") &&
           check_prompt(s, &recipe, item, "prompt_chosen", "chosen") &&
           check_prompt(s, &recipe, item, "prompt_rejected", "rejected");
}

/* --- A case --- */

static bool read_options(const story *s, mm_loader_options *o, const mmi_json *item, const char *generation)
{
    const char *reader = mmi_json_string(mmi_json_get(item, "reader"), NULL);
    bool third = strcmp(generation, "minimind3") == 0;
    o->batch = 1;
    o->workers = 0;
    o->max_length = (int32_t)mmi_json_int(mmi_json_get(item, "max_length"), 0);
    o->strip_empty_think = mmi_json_bool(mmi_json_get(mmi_json_get(item, "options"), "strip_empty_think"), false);
    if (reader && strcmp(reader, "pretrain") == 0)
        o->kind = MM_ROW_TEXT;
    else if (reader && strcmp(reader, "sft") == 0)
        o->kind = MM_ROW_CHAT;
    else if (reader && strcmp(reader, "dpo") == 0)
        o->kind = MM_ROW_PREFERENCE;
    else
        return differs(s, "there is no reader \"%s\"", reader ? reader : "");
    o->form = third && o->kind != MM_ROW_PREFERENCE ? MM_ROWS_PAD3 : MM_ROWS_PAD;
    return true;
}

static bool put_row(const story *s, golden_datasets *g, const mmi_json *row)
{
    char *text = NULL;
    size_t length = 0;
    if (!g->row_path[0]) {
        const char *tmp = getenv("TMPDIR");
        snprintf(g->row_path, sizeof g->row_path, "%s/golden-row-XXXXXX", tmp ? tmp : "/tmp");
        int fd = mkstemp(g->row_path);
        if (fd < 0)
            return differs(s, "%s: can't be made", g->row_path);
        close(fd);
    }
    bool ok = mmi_json_write(row, 0, &text, &length) == MM_OK && mmi_write_file(g->row_path, text, length) == MM_OK;
    mmi_free(text);
    return ok ? true : differs(s, "%s", mm_last_error());
}

/* Through the public door: a file, a data set, a loader, a batch. */
static bool load_row(const story *s, golden_datasets *g, mm_tokenizer *t, const mm_loader_options *o,
                     const mmi_json *item)
{
    const mmi_json *expected = mmi_json_get(item, "expected");
    bool refused = mmi_json_what(expected) != MMI_JSON_OBJECT || mmi_json_bool(mmi_json_get(item, "error"), false) ||
                   mmi_json_get(expected, "error");
    mm_dataset *dataset = NULL;
    mm_loader *loader = NULL;
    mm_batch batch = MM_BATCH_INIT;
    mm_status status = mm_dataset_open(g->row_path, &dataset);
    if (status == MM_OK)
        status = mm_loader_create(dataset, t, o, &loader);
    if (status == MM_OK)
        status = mm_loader_next(loader, &batch);
    bool ok;
    if (refused)
        ok = status != MM_OK ? true : differs(s, "it is read, a status was expected");
    else
        ok = status == MM_OK ? check_batch(s, expected, &batch, o->kind) : differs(s, "%s", mm_last_error());
    mm_loader_free(loader);
    mm_dataset_free(dataset);
    return ok && !refused ? check_prompts(s, t, o, item) : ok;
}

bool golden_datasets_case(golden_datasets *g, char *text, size_t size, const mmi_json *item)
{
    const story s = { text, size };
    const char *generation = mmi_json_string(mmi_json_get(item, "generation"), NULL);
    mm_tokenizer *t = generation ? tokenizer_of(g, generation) : NULL;
    mm_loader_options o = MM_LOADER_OPTIONS_INIT;
    o.mixed_prompts = 1; /* upstream takes such pairs */
    if (!t)
        return differs(&s, "no tokenizer of generation \"%s\": %s", generation ? generation : "", mm_last_error());
    return read_options(&s, &o, item, generation) && put_row(&s, g, mmi_json_get(item, "row")) &&
           load_row(&s, g, t, &o, item);
}

void golden_datasets_end(golden_datasets *g)
{
    for (size_t i = 0; i < sizeof g->loaded / sizeof *g->loaded; i++)
        mm_tokenizer_free(g->loaded[i]);
    if (g->row_path[0])
        unlink(g->row_path);
}
