/* Checks the text side of the library against a directory of fixtures:
 *
 *     golden_text ROOT [--tokenizers DIR]
 *
 * ROOT is laid out as the fixtures' README describes: encode/<tokenizer>/…, chat/<tokenizer>/…, datasets/…,
 * bpe_training/…; a folder that is absent is passed over, none at all is a failure. The tokenizers are ROOT/tokenizers/<tokenizer> unless
 * --tokenizers says where. Prints a line for each case that fails and what differed, at the end "N passed, N failed";
 * status 1 on any failure. */
#include <dirent.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <minimind.h>

#include "base/files.h"
#include "base/json.h"
#include "base/memory.h"
#include "golden_chat.h"
#include "golden_datasets.h"
#include "text/bpe.h"
#include "text/tokenizer.h"

typedef struct report {
    long passed, failed;
} report;

/* One case: the first thing that differs is told, the case counted once. */
typedef struct verdict {
    const char *folder, *name;
    bool bad;
} verdict;

static void differs(verdict *v, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void differs(verdict *v, const char *format, ...)
{
    if (!v->bad) {
        va_list args;
        va_start(args, format);
        printf("FAIL %s %s: ", v->folder, v->name);
        vprintf(format, args);
        printf("\n");
        va_end(args);
    }
    v->bad = true;
}

static void count(report *r, const verdict *v)
{
    if (v->bad)
        r->failed++;
    else
        r->passed++;
}

static void fail(report *r, const char *folder, const char *name, const char *story)
{
    verdict v = { folder, name, false };
    differs(&v, "%s", story);
    count(r, &v);
}

static void *need(void *memory)
{
    if (!memory) {
        fprintf(stderr, "golden_text: out of memory\n");
        exit(EXIT_FAILURE);
    }
    return memory;
}

static char *join(const char *directory, const char *name)
{
    return need(mmi_path_join(directory, name));
}

/* ---- JSON lines ---- */

typedef void (*case_fn)(report *r, const char *folder, const mm_tokenizer *t, mmi_json *item);

/* Lines end at byte 0x0A and nothing else. */
static void each_line(report *r, const char *folder, const char *file, const mm_tokenizer *t, case_fn check)
{
    char *data = NULL;
    size_t size = 0;
    if (mmi_read_file(file, &data, &size) != MM_OK) {
        fail(r, folder, file, mm_last_error());
        return;
    }
    long number = 1, before = r->passed + r->failed;
    for (size_t at = 0; at < size; number++) {
        const char *end = memchr(data + at, '\n', size - at);
        size_t length = end ? (size_t)(end - data) - at : size - at;
        char name[64];
        snprintf(name, sizeof name, "line %ld", number);
        mmi_json *item = NULL;
        if (length > 0 && mmi_json_parse(data + at, length, file, &item) != MM_OK)
            fail(r, folder, name, mm_last_error());
        else if (length > 0)
            check(r, folder, t, item);
        mmi_json_free(item);
        at += length + 1;
    }
    if (r->passed + r->failed == before)
        fail(r, folder, file, "it holds no case");
    mmi_free(data);
}

static const char *name_of(const mmi_json *item)
{
    const char *name = mmi_json_string(mmi_json_get(item, "name"), NULL);
    return name ? name : "(unnamed)";
}

/* ---- Comparing ---- */

typedef struct id_list {
    int32_t *ids;
    size_t count;
} id_list;

/* False, with the verdict told, if `value` is no array of integers. */
static bool read_ids(verdict *v, id_list *out, const mmi_json *value, const char *field)
{
    *out = (id_list){ NULL, 0 };
    if (mmi_json_what(value) != MMI_JSON_ARRAY) {
        differs(v, "the case has no array \"%s\"", field);
        return false;
    }
    out->count = mmi_json_size(value);
    out->ids = need(mmi_alloc(out->count, sizeof *out->ids));
    for (size_t i = 0; i < out->count; i++)
        out->ids[i] = (int32_t)mmi_json_int(mmi_json_at(value, i), -1);
    return true;
}

static void check_text(verdict *v, const char *field, const char *got, size_t size, const mmi_json *expected)
{
    size_t wanted_size = 0, at = 0;
    const char *wanted = mmi_json_string(expected, &wanted_size);
    if (!wanted) {
        differs(v, "the case has no string \"%s\"", field);
        return;
    }
    while (at < size && at < wanted_size && got[at] == wanted[at])
        at++;
    if (at < size || at < wanted_size)
        differs(v, "%s: it differs from byte %zu on (%zu bytes, %zu expected)", field, at, size, wanted_size);
}

static void check_ids(verdict *v, const char *field, const int32_t *got, size_t got_count, const id_list *wanted)
{
    size_t at = 0;
    while (at < got_count && at < wanted->count && got[at] == wanted->ids[at])
        at++;
    if (at < got_count && at < wanted->count)
        differs(v, "%s: [%zu] is %d instead of %d", field, at, (int)got[at], (int)wanted->ids[at]);
    else if (got_count != wanted->count)
        differs(v, "%s: %zu ids instead of %zu", field, got_count, wanted->count);
}

/* ---- encode/<tokenizer>/encode_cases.jsonl ---- */

static void check_encode(verdict *v, const mm_tokenizer *t, const mmi_json *item, int32_t split, const char *field,
                         const mmi_json *expected)
{
    size_t length = 0, counted = 0, n = 0;
    const char *text = mmi_json_string(mmi_json_get(item, "text"), &length);
    id_list wanted;
    if (!text)
        differs(v, "the case has no string \"text\"");
    if (!text || !read_ids(v, &wanted, expected, field))
        return;
    int32_t *ids = need(mmi_alloc(length + 1, sizeof *ids));
    if (mm_encode(t, text, length, split, NULL, 0, &counted) != MM_OK ||
        mm_encode(t, text, length, split, ids, length + 1, &n) != MM_OK)
        differs(v, "%s: %s", field, mm_last_error());
    else if (counted != n)
        differs(v, "%s: counting gives %zu ids, encoding %zu", field, counted, n);
    else
        check_ids(v, field, ids, n, &wanted);
    mmi_free(ids);
    mmi_free(wanted.ids);
}

static void check_decode(verdict *v, const mm_tokenizer *t, const id_list *list, int32_t skip_special,
                         const char *field, const mmi_json *expected)
{
    size_t size = 0;
    if (mm_decode(t, list->ids, list->count, skip_special, NULL, 0, &size) != MM_OK) {
        differs(v, "%s: %s", field, mm_last_error());
        return;
    }
    char *text = need(mmi_alloc(size + 1, 1));
    if (mm_decode(t, list->ids, list->count, skip_special, text, size + 1, &size) != MM_OK)
        differs(v, "%s: %s", field, mm_last_error());
    else
        check_text(v, field, text, size, expected);
    mmi_free(text);
}

static void encode_case(report *r, const char *folder, const mm_tokenizer *t, mmi_json *item)
{
    verdict v = { folder, name_of(item), false };
    const mmi_json *all = mmi_json_get(item, "ids");
    const mmi_json *no_special = mmi_json_get(item, "ids_no_special_split");
    const mmi_json *no_added = mmi_json_get(item, "ids_no_added_split");
    no_special = no_special ? no_special : all;
    no_added = no_added ? no_added : no_special;
    check_encode(&v, t, item, MM_SPLIT_ALL, "ids", all);
    check_encode(&v, t, item, MM_SPLIT_NO_SPECIAL, "ids_no_special_split", no_special);
    check_encode(&v, t, item, MM_SPLIT_NONE, "ids_no_added_split", no_added);
    id_list list;
    if (read_ids(&v, &list, all, "ids")) {
        check_decode(&v, t, &list, 0, "decoded", mmi_json_get(item, "decoded"));
        check_decode(&v, t, &list, 1, "decoded_skip_special", mmi_json_get(item, "decoded_skip_special"));
        mmi_free(list.ids);
    }
    count(r, &v);
}

/* ---- encode/<tokenizer>/incremental_decode_cases.jsonl ---- */

static void check_stream(verdict *v, mm_decoder *decoder, const id_list *list, const mmi_json *item)
{
    const mmi_json *pieces = mmi_json_get(item, "pieces");
    const char *text = NULL;
    size_t length = 0;
    if (mmi_json_size(pieces) != list->count)
        differs(v, "the case has %zu pieces for %zu ids", mmi_json_size(pieces), list->count);
    for (size_t i = 0; i < list->count && !v->bad; i++) {
        char field[48];
        snprintf(field, sizeof field, "pieces[%zu]", i);
        if (mm_decoder_push(decoder, list->ids[i], &text, &length) != MM_OK)
            differs(v, "%s: %s", field, mm_last_error());
        else
            check_text(v, field, text, length, mmi_json_at(pieces, i));
    }
    if (mm_decoder_flush(decoder, &text, &length) != MM_OK)
        differs(v, "flush: %s", mm_last_error());
    else
        check_text(v, "flush", text, length, mmi_json_get(item, "flush"));
}

static void stream_case(report *r, const char *folder, const mm_tokenizer *t, mmi_json *item)
{
    verdict v = { folder, name_of(item), false };
    id_list list = { NULL, 0 };
    int32_t skip = mmi_json_bool(mmi_json_get(item, "skip_special"), false);
    mm_decoder *decoder = NULL;
    if (read_ids(&v, &list, mmi_json_get(item, "ids"), "ids")) {
        if (mm_decoder_create((mm_tokenizer *)t, skip, &decoder) != MM_OK)
            differs(&v, "%s", mm_last_error());
        else
            check_stream(&v, decoder, &list, item);
        check_decode(&v, t, &list, skip, "decoded", mmi_json_get(item, "decoded"));
    }
    mm_decoder_free(decoder);
    mmi_free(list.ids);
    count(r, &v);
}

/* ---- encode/ ---- */

static bool walk_tokenizer(report *r, const char *folder, const char *name, const char *directory,
                           const char *tokenizers)
{
    char *cases = join(directory, "encode_cases.jsonl");
    char *streams = join(directory, "incremental_decode_cases.jsonl");
    char *path = join(tokenizers, name);
    mm_tokenizer *t = NULL;
    bool has_cases = mmi_file_exists(cases), has_streams = mmi_file_exists(streams);
    if (has_cases || has_streams) {
        if (mm_tokenizer_load(path, &t) != MM_OK)
            fail(r, folder, name, mm_last_error());
        if (t && has_cases)
            each_line(r, folder, cases, t, encode_case);
        if (t && has_streams)
            each_line(r, folder, streams, t, stream_case);
    }
    mm_tokenizer_free(t);
    mmi_free(path);
    mmi_free(streams);
    mmi_free(cases);
    return has_cases || has_streams;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* The names in a directory, sorted; those that start with a dot are left out. */
static char **list_directory(const char *path, size_t *n)
{
    char **names = NULL;
    size_t room = 0;
    *n = 0;
    DIR *directory = opendir(path);
    for (struct dirent *entry; directory && (entry = readdir(directory)) != NULL;) {
        if (entry->d_name[0] == '.')
            continue;
        if (!mmi_grow(&names, &room, *n + 1, sizeof *names))
            need(NULL);
        names[(*n)++] = need(mmi_strdup(entry->d_name));
    }
    if (directory)
        closedir(directory);
    if (*n > 1)
        qsort(names, *n, sizeof *names, by_name);
    return names;
}

typedef bool (*folder_fn)(report *r, const char *folder, const char *name, const char *directory,
                          const char *tokenizers);

/* Each <section>/<tokenizer>/. */
static bool each_tokenizer(report *r, const char *section, const char *folder, const char *tokenizers, folder_fn walk)
{
    size_t n;
    bool found = false;
    char **names = list_directory(folder, &n);
    for (size_t i = 0; i < n; i++) {
        char *directory = join(folder, names[i]);
        char label[320];
        snprintf(label, sizeof label, "%s/%s", section, names[i]);
        if (mmi_is_directory(directory))
            found = walk(r, label, names[i], directory, tokenizers) || found;
        mmi_free(directory);
        mmi_free(names[i]);
    }
    mmi_free(names);
    return found;
}

static bool walk_encode(report *r, const char *folder, const char *tokenizers)
{
    return each_tokenizer(r, "encode", folder, tokenizers, walk_tokenizer);
}

/* ---- chat/ ---- */

static void chat_case(report *r, const char *folder, const mm_tokenizer *t, mmi_json *item)
{
    verdict v = { folder, name_of(item), false };
    char story[512];
    if (!golden_chat_case(story, sizeof story, t, item))
        differs(&v, "%s", story);
    count(r, &v);
}

static bool walk_chat_tokenizer(report *r, const char *folder, const char *name, const char *directory,
                                const char *tokenizers)
{
    char *cases = join(directory, "chat_cases.jsonl");
    char *path = join(tokenizers, name);
    mm_tokenizer *t = NULL;
    bool found = mmi_file_exists(cases);
    if (found && mm_tokenizer_load(path, &t) != MM_OK)
        fail(r, folder, name, mm_last_error());
    if (t)
        each_line(r, folder, cases, t, chat_case);
    mm_tokenizer_free(t);
    mmi_free(path);
    mmi_free(cases);
    return found;
}

static bool walk_chat(report *r, const char *folder, const char *tokenizers)
{
    return each_tokenizer(r, "chat", folder, tokenizers, walk_chat_tokenizer);
}

/* ---- datasets/ ---- */

static golden_datasets datasets;

static void dataset_case(report *r, const char *folder, const mm_tokenizer *t, mmi_json *item)
{
    (void)t; /* each case names its own */
    verdict v = { folder, name_of(item), false };
    char story[512];
    if (!golden_datasets_case(&datasets, story, sizeof story, item))
        differs(&v, "%s", story);
    count(r, &v);
}

static bool walk_datasets(report *r, const char *folder, const char *tokenizers)
{
    char *cases = join(folder, "dataset_cases.jsonl");
    bool found = mmi_file_exists(cases);
    datasets.tokenizers = tokenizers;
    if (found)
        each_line(r, "datasets", cases, NULL, dataset_case);
    golden_datasets_end(&datasets);
    mmi_free(cases);
    return found;
}

/* ---- bpe_training/ ---- */

typedef struct corpus {
    char *text;
    size_t size;
    bool given;
} corpus;

static int32_t give_text(void *user, const char **text, size_t *length)
{
    corpus *c = user;
    if (c->given)
        return 0;
    *text = c->text;
    *length = c->size;
    return c->given = true;
}

static bool read_corpus(verdict *v, corpus *c, const char *folder, const mmi_json *name)
{
    *c = (corpus){ NULL, 0, false };
    const char *file = mmi_json_string(name, NULL);
    if (!file) {
        differs(v, "it names no file");
        return false;
    }
    char *path = join(folder, file);
    if (mmi_read_file(path, &c->text, &c->size) != MM_OK)
        differs(v, "%s", mm_last_error());
    mmi_free(path);
    return c->text != NULL;
}

static void check_number(verdict *v, const char *field, int64_t got, const mmi_json *expected)
{
    if (expected && mmi_json_int(expected, -1) != got)
        differs(v, "%s is %lld instead of %lld", field, (long long)got, (long long)mmi_json_int(expected, -1));
}

static void check_merges(verdict *v, const mm_tokenizer *t, const mmi_json *expected, bool all)
{
    if (all && mmi_json_size(expected) != t->merges.count)
        differs(v, "%zu merges instead of %zu", t->merges.count, mmi_json_size(expected));
    else if (mmi_json_size(expected) < t->merges.count)
        differs(v, "%zu merges, only %zu are expected", t->merges.count, mmi_json_size(expected));
    for (size_t i = 0; i < t->merges.count && !v->bad; i++) {
        const int32_t ids[2] = { t->merges.items[i].left, t->merges.items[i].right };
        for (size_t side = 0; side < 2 && !v->bad; side++) {
            size_t size, wanted_size = 0;
            const char *text = mmi_token_string(t, ids[side], &size);
            const char *wanted = mmi_json_string(mmi_json_at(mmi_json_at(expected, i), side), &wanted_size);
            if (!wanted || wanted_size != size || memcmp(text, wanted, size) != 0)
                differs(v, "merges[%zu][%zu] is \"%.*s\" instead of \"%s\"", i, side, (int)size, text,
                        wanted ? wanted : "");
        }
    }
}

static void check_token_count(verdict *v, const mm_tokenizer *t, const corpus *c, const char *field,
                              const mmi_json *expected)
{
    size_t n = 0;
    if (expected && mm_encode(t, c->text, c->size, MM_SPLIT_ALL, NULL, 0, &n) != MM_OK)
        differs(v, "%s: %s", field, mm_last_error());
    else
        check_number(v, field, (int64_t)n, expected);
}

static mm_tokenizer *train(verdict *v, corpus *c, const mmi_json *item)
{
    const mmi_json *tokens = mmi_json_get(item, "special_tokens");
    size_t special_count = mmi_json_size(tokens);
    const char **special = need(mmi_calloc(special_count + 1, sizeof *special));
    for (size_t i = 0; i < special_count; i++)
        special[i] = mmi_json_string(mmi_json_at(tokens, i), NULL);
    mm_tokenizer_train_options options = MM_TOKENIZER_TRAIN_OPTIONS_INIT;
    options.next_text = give_text;
    options.user = c;
    options.special_tokens = special;
    options.special_count = (int32_t)special_count;
    options.vocab_size = (int32_t)mmi_json_int(mmi_json_get(item, "vocab_size"), 0);
    int64_t least = mmi_json_int(mmi_json_get(item, "min_frequency"), 1);
    options.min_frequency = least < 1 ? 1 : least;
    mm_tokenizer *t = NULL;
    if (mm_tokenizer_train(&options, &t) != MM_OK)
        differs(v, "%s", mm_last_error());
    mmi_free(special);
    return t;
}

static void training_case(report *r, const char *folder, const char *name, mmi_json *root, mmi_json *item)
{
    verdict v = { "bpe_training", name, false };
    corpus c;
    mm_tokenizer *t = NULL;
    if (read_corpus(&v, &c, folder, mmi_json_get(item, "corpus")))
        t = train(&v, &c, item);
    if (t) {
        const mmi_json *own = mmi_json_get(item, "merges");
        check_number(&v, "reached", mm_tokenizer_vocab_size(t), mmi_json_get(item, "reached"));
        check_number(&v, "merge_count", (int64_t)t->merges.count, mmi_json_get(item, "merge_count"));
        check_merges(&v, t, own ? own : mmi_json_get(root, "merges"), own != NULL);
        check_token_count(&v, t, &c, "corpus_tokens", mmi_json_get(item, "corpus_tokens"));
        corpus sample;
        if (mmi_json_get(item, "sample_tokens") &&
            read_corpus(&v, &sample, folder, mmi_json_get(mmi_json_get(root, "sample"), "file"))) {
            check_token_count(&v, t, &sample, "sample_tokens", mmi_json_get(item, "sample_tokens"));
            mmi_free(sample.text);
        }
    }
    mm_tokenizer_free(t);
    mmi_free(c.text);
    count(r, &v);
}

/* The ids of the sample under the tokenizer of "main", and back. */
static void sample_case(report *r, const char *folder, mmi_json *root, mmi_json *sample)
{
    verdict v = { "bpe_training", "sample", false };
    mmi_json *main_case = mmi_json_get(root, "main");
    corpus c, text;
    mm_tokenizer *t = NULL;
    if (read_corpus(&v, &c, folder, mmi_json_get(main_case, "corpus")))
        t = train(&v, &c, main_case);
    if (t && read_corpus(&v, &text, folder, mmi_json_get(sample, "file"))) {
        mmi_json *item = mmi_json_new_object();
        id_list list;
        mmi_json_set(item, "text", mmi_json_new_string(text.text, text.size));
        check_encode(&v, t, item, MM_SPLIT_ALL, "ids", mmi_json_get(sample, "ids"));
        check_number(&v, "bytes", (int64_t)text.size, mmi_json_get(sample, "bytes"));
        check_token_count(&v, t, &text, "tokens", mmi_json_get(sample, "tokens"));
        if (mmi_json_bool(mmi_json_get(sample, "roundtrip"), false) &&
            read_ids(&v, &list, mmi_json_get(sample, "ids"), "ids")) {
            check_decode(&v, t, &list, 0, "roundtrip", mmi_json_get(item, "text"));
            mmi_free(list.ids);
        }
        mmi_json_free(item);
        mmi_free(text.text);
    }
    mm_tokenizer_free(t);
    mmi_free(c.text);
    count(r, &v);
}

static bool count_words(mmi_words *words, const corpus *c)
{
    mmi_splitter *splitter = NULL;
    mmi_pieces pieces = { 0 };
    const char *piece;
    size_t size;
    bool ok = mmi_splitter_create(&splitter) == MM_OK && mmi_pieces_open(&pieces, splitter) == MM_OK;
    if (ok)
        mmi_pieces_start(&pieces, c->text, c->size);
    while ((ok = ok && mmi_pieces_next(&pieces, &piece, &size) == MM_OK) && size > 0)
        ok = mmi_words_add(words, piece, size);
    mmi_pieces_close(&pieces);
    mmi_splitter_free(splitter);
    return ok;
}

/* How often each pair of "main" occurred when it was merged. No public function tells, so this looks inside. */
static void counts_case(report *r, const char *folder, mmi_json *root, mmi_json *expected)
{
    verdict v = { "bpe_training", "merge_counts", false };
    mmi_json *item = mmi_json_get(root, "main");
    corpus c;
    mmi_words words = { 0 };
    mmi_bpe bpe = { 0 };
    int64_t vocab_size = mmi_json_int(mmi_json_get(item, "vocab_size"), 0);
    /* The pairs don't depend on what the special tokens are, only on how many merges there is room for. */
    int64_t room = vocab_size - (int64_t)mmi_json_size(mmi_json_get(item, "special_tokens"));
    if (read_corpus(&v, &c, folder, mmi_json_get(item, "corpus"))) {
        if (!count_words(&words, &c) || mmi_bpe_begin(&bpe, NULL, 0) != MM_OK || room < 0 ||
            mmi_bpe_learn(&bpe, &words, (size_t)room, 1, NULL, NULL) != MM_OK)
            differs(&v, "%s", mm_last_error());
        else if (bpe.merge_count != mmi_json_size(expected))
            differs(&v, "%zu merges instead of %zu", bpe.merge_count, mmi_json_size(expected));
        for (size_t i = 0; i < bpe.merge_count && !v.bad; i++)
            if (bpe.merge_counts[i] != mmi_json_int(mmi_json_at(expected, i), -1))
                differs(&v, "[%zu] is %lld instead of %lld", i, (long long)bpe.merge_counts[i],
                        (long long)mmi_json_int(mmi_json_at(expected, i), -1));
    }
    mmi_bpe_free(&bpe);
    mmi_words_free(&words);
    mmi_free(c.text);
    count(r, &v);
}

static bool walk_training(report *r, const char *folder, const char *tokenizers)
{
    (void)tokenizers;
    char *file = join(folder, "expected.json");
    mmi_json *root = NULL;
    bool found = mmi_file_exists(file);
    if (found && mmi_json_read_file(file, &root) != MM_OK)
        fail(r, "bpe_training", "expected.json", mm_last_error());
    for (void *i = root ? mmi_json_first(root) : NULL; i; i = mmi_json_next(root, i)) {
        const char *key = mmi_json_key(i);
        mmi_json *value = mmi_json_value(i);
        if (mmi_json_get(value, "corpus"))
            training_case(r, folder, key, root, value);
        else if (strcmp(key, "sample") == 0)
            sample_case(r, folder, root, value);
        else if (strcmp(key, "merge_counts") == 0)
            counts_case(r, folder, root, value);
    }
    mmi_json_free(root);
    mmi_free(file);
    return found;
}

/* ---- The walk ---- */

/* Each folder of ROOT that this program knows. False: nothing to check in it. */
static const struct section {
    const char *name;
    bool (*walk)(report *r, const char *folder, const char *tokenizers);
} sections[] = {
    { "encode", walk_encode },
    { "chat", walk_chat },
    { "datasets", walk_datasets },
    { "bpe_training", walk_training },
};

static bool walk(report *r, const char *root, const char *tokenizers)
{
    bool found = false;
    for (size_t i = 0; i < sizeof sections / sizeof *sections; i++) {
        char *folder = join(root, sections[i].name);
        if (mmi_is_directory(folder))
            found = sections[i].walk(r, folder, tokenizers) || found;
        mmi_free(folder);
    }
    return found;
}

static bool read_arguments(const char **root, const char **tokenizers, int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--tokenizers") == 0 && i + 1 < argc)
            *tokenizers = argv[++i];
        else if (strncmp(argv[i], "--tokenizers=", 13) == 0)
            *tokenizers = argv[i] + 13;
        else if (!*root && argv[i][0] != '-')
            *root = argv[i];
        else
            return false;
    }
    return *root != NULL;
}

int main(int argc, char **argv)
{
    const char *root = NULL, *tokenizers = NULL;
    if (!read_arguments(&root, &tokenizers, argc, argv)) {
        fprintf(stderr, "usage: golden_text ROOT [--tokenizers DIR]\n");
        return EXIT_FAILURE;
    }
    report r = { 0, 0 };
    char *beside = join(root, "tokenizers");
    if (!walk(&r, root, tokenizers ? tokenizers : beside))
        fail(&r, root, "is empty", "no folder here holds cases that this program knows");
    mmi_free(beside);
    printf("%ld passed, %ld failed\n", r.passed, r.failed);
    return r.failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
