#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/memory.h"
#include "data/batch.h"
#include "data/dataset.h"
#include "data/loader.h"
#include "texts.h"

#define IGNORED (-100)

static mm_tokenizer *tokenizer;
static mm_dataset *dataset;

static void start(void)
{
    tokenizer = byte_tokenizer();
    dataset = NULL;
}

static void end(void)
{
    mm_dataset_free(dataset);
    mm_tokenizer_free(tokenizer);
}

static void use_file(const char *path)
{
    mm_dataset_free(dataset);
    ck_ok(mm_dataset_open(path, &dataset));
}

static void use_text(const char *bytes)
{
    use_file(put_file(scratch_directory(), "rows.jsonl", bytes, strlen(bytes)));
}

static mm_loader *make_loader(int32_t form, int32_t batch, int32_t max_length, int32_t shuffle)
{
    mm_loader_options options = MM_LOADER_OPTIONS_INIT;
    options.seed = 5;
    options.form = form;
    options.batch = batch;
    options.max_length = max_length;
    options.shuffle = shuffle;
    mm_loader *loader = NULL;
    ck_ok(mm_loader_create(dataset, tokenizer, &options, &loader));
    return loader;
}

/* The number that a row of put_rows() starts with. */
static int number_of(const int32_t *ids)
{
    int number = 0;
    while (*ids >= id_of('0') && *ids <= id_of('9'))
        number = 10 * number + *ids++ - id_of('0');
    return number;
}

static void check_epoch(mm_loader *loader, int rows, int batch, int *order)
{
    int seen[64] = { 0 }, given = 0;
    mm_batch b = MM_BATCH_INIT;
    for (;;) {
        ck_ok(mm_loader_next(loader, &b));
        if (b.batch == 0)
            break;
        ck_assert_int_eq(b.batch, rows - given < batch ? rows - given : batch);
        ck_assert_int_eq(b.length, mm_loader_length(loader));
        ck_assert_int_eq(b.mode, MM_TRAIN);
        ck_assert_ptr_null(b.document_ids);
        for (int i = 0; i < b.batch; i++) {
            int row = number_of(b.ids + i * b.length);
            ck_assert_int_lt(row, rows);
            ck_assert_int_eq(seen[row]++, 0);
            order[given++] = row;
        }
    }
    ck_assert_int_eq(given, rows);
}

START_TEST(every_row_comes_once_an_epoch_in_any_batch_size)
{
    static const int sizes[] = { 1, 2, 7, 16, 33 }, batches[] = { 1, 2, 3, 8, 40 };
    for (size_t r = 0; r < 5; r++) {
        use_file(put_rows(scratch_directory(), "rows.jsonl", sizes[r], 4, 1));
        int64_t count, all;
        for (size_t b = 0; b < 5; b++)
            for (int shuffle = 0; shuffle < 2; shuffle++) {
                mm_loader *loader = make_loader(MM_ROWS_PAD, batches[b], 24, shuffle);
                int first[64], second[64], plain = 1;
                check_epoch(loader, sizes[r], batches[b], first);
                check_epoch(loader, sizes[r], batches[b], second);
                for (int i = 0; i < sizes[r]; i++)
                    plain &= first[i] == i && second[i] == i;
                if (!shuffle)
                    ck_assert_int_eq(plain, 1);
                if (shuffle && sizes[r] >= 7) {
                    ck_assert_int_eq(plain, 0);
                    ck_assert(memcmp(first, second, sizeof(int) * (size_t)sizes[r]) != 0);
                }
                ck_ok(mmi_loader_count(&count, &all, loader, 7));
                ck_assert_int_eq(count, (sizes[r] + batches[b] - 1) / batches[b]);
                ck_assert_int_eq(all, 7 * count);
                ck_status(mmi_loader_count(&count, &all, loader, INT64_MAX), count > 1 ? MM_ERR_ARG : MM_OK);
                mm_loader_free(loader);
            }
    }
}
END_TEST

START_TEST(forms_are_exact)
{
    use_text("{\"text\": \"ab\"}\n{\"text\": \"x<|endoftext|>y\"}\n{\"text\": \"\"}\n");
    mm_batch b = MM_BATCH_INIT;
    int32_t A = id_of('a'), B = id_of('b'), X = id_of('x'), Y = id_of('y');
    mm_loader *loader = make_loader(MM_ROWS_PAD, 3, 4, 0);
    ck_assert_int_eq(mm_loader_length(loader), 3);
    ck_ok(mm_loader_next(loader, &b));
    ck_assert_mem_eq(b.ids, ((int32_t[]){ A, B, 0, X, 0, Y, 0, 0, 0 }), 36);
    ck_assert_mem_eq(b.targets, ((int32_t[]){ B, IGNORED, IGNORED, IGNORED, Y, IGNORED, IGNORED, IGNORED, IGNORED }), 36);
    mm_loader_free(loader);

    loader = make_loader(MM_ROWS_PAD3, 3, 4, 0);
    ck_assert_int_eq(mm_loader_length(loader), 4);
    ck_ok(mm_loader_next(loader, &b));
    ck_assert_mem_eq(b.ids, ((int32_t[]){ 1, A, B, 2, 1, X, 0, 2, 1, 2, 0, 0 }), 48);
    ck_assert_mem_eq(b.targets,
                     ((int32_t[]){ A, B, 2, IGNORED, X, IGNORED, 2, IGNORED, 2, IGNORED, IGNORED, IGNORED }), 48);
    mm_loader_free(loader);

    loader = make_loader(MM_ROWS_PACK, 3, 5, 0); /* 1 a b 2 | 1 x 0 y 2 | 1 2 */
    ck_assert_int_eq(mm_loader_length(loader), 5);
    ck_ok(mm_loader_next(loader, &b));
    ck_assert_int_eq(b.batch, 3);
    ck_assert_mem_eq(b.ids, ((int32_t[]){ 1, A, B, 2, 1, X, 0, Y, 2, 1, 2, 0, 0, 0, 0 }), 60);
    ck_assert_mem_eq(b.targets, ((int32_t[]){ A, B, 2, IGNORED, IGNORED, IGNORED, Y, 2, IGNORED, IGNORED, IGNORED,
                                              IGNORED, IGNORED, IGNORED, IGNORED }), 60);
    ck_assert_mem_eq(b.document_ids, ((int32_t[]){ 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 1, 1, 1, 1 }), 60);
    ck_ok(mm_loader_next(loader, &b));
    ck_assert_int_eq(b.batch, 0);
    ck_ok(mm_loader_next(loader, &b));
    ck_assert_int_eq(b.batch, 3);
    mm_loader_free(loader);
}
END_TEST

/* One epoch's rows as they come, [*rows, T]. */
static int32_t *gather(mm_loader *loader, int *rows, int32_t **targets, int32_t **documents)
{
    size_t row = (size_t)mm_loader_length(loader) * sizeof(int32_t), size = 0;
    int32_t *ids = NULL;
    *targets = *documents = NULL;
    mm_batch b = MM_BATCH_INIT;
    for (*rows = 0;; *rows += b.batch) {
        ck_ok(mm_loader_next(loader, &b));
        if (b.batch == 0)
            return ids;
        size_t more = row * (size_t)b.batch;
        ids = realloc(ids, size + more);
        *targets = realloc(*targets, size + more);
        *documents = realloc(*documents, size + more);
        memcpy((char *)ids + size, b.ids, more);
        memcpy((char *)*targets + size, b.targets, more);
        memcpy((char *)*documents + size, b.document_ids, more);
        size += more;
    }
}

START_TEST(packing_adds_loses_and_repeats_no_token)
{
    for (int width = 2; width < 40; width += 3)
        for (int batch = 1; batch <= 5; batch += 2) {
            use_file(put_rows(scratch_directory(), "rows.jsonl", 30, 9, (unsigned)width));
            mm_loader *loader = make_loader(MM_ROWS_PACK, batch, width, 1);
            int rows, tokens = 0;
            int32_t *targets, *documents;
            int32_t *ids = gather(loader, &rows, &targets, &documents);
            int64_t count, all;
            ck_ok(mmi_loader_count(&count, &all, loader, 1));
            ck_assert_int_eq(count, (rows + batch - 1) / batch);
            ck_assert_int_eq(all, count);
            char expected[64], found[64];
            int32_t text[64];
            int in_document = 0, seen = 0;
            for (int at = 0; at < rows * width; at++) {
                int last_in_row = at % width == width - 1;
                int same = !last_in_row && documents[at + 1] == documents[at];
                ck_assert_int_eq(targets[at], same && ids[at + 1] != 0 ? ids[at + 1] : IGNORED);
                ck_assert_int_eq(at % width == 0 ? documents[at] : documents[at] - documents[at - 1],
                                 at % width != 0 && (ids[at] == 1 || (ids[at] == 0 && ids[at - 1] != 0)));
                if (ids[at] == 0)
                    continue; /* padding: no text here has id 0 */
                tokens++;
                ck_assert_int_eq(ids[at] == 1, in_document == 0);
                if (ids[at] == 1) {
                    in_document = 1;
                } else if (ids[at] != 2) {
                    text[in_document++ - 1] = ids[at];
                } else { /* a document is complete: it is the row it claims to be */
                    size_t a, b;
                    ck_ok(mm_decode(tokenizer, text, (size_t)in_document - 1, 0, found, sizeof found - 1, &a));
                    found[a] = '\0';
                    ck_ok(mm_dataset_text(dataset, atoi(found), expected, sizeof expected, &b));
                    ck_assert_uint_eq(a, b);
                    ck_assert_mem_eq(expected, found, a);
                    in_document = 0;
                    seen++;
                }
            }
            ck_assert_int_eq(seen, 30);
            ck_assert_int_eq(rows, (tokens + width - 1) / width);
            free(ids);
            free(targets);
            free(documents);
            mm_loader_free(loader);
        }
}
END_TEST

/* A copy of a batch and of the place before it. */
typedef struct record {
    mm_loader_position place;
    int32_t batch;
    int32_t arrays[3][256];
} record;

static void take(mm_loader *loader, record *r)
{
    mm_batch b = MM_BATCH_INIT;
    memset(r, 0, sizeof *r);
    mm_loader_position_init(&r->place, sizeof r->place);
    ck_ok(mm_loader_tell(loader, &r->place));
    ck_ok(mm_loader_next(loader, &b));
    size_t size = (size_t)b.batch * (size_t)b.length * sizeof(int32_t);
    ck_assert_uint_le(size, sizeof r->arrays[0]);
    r->batch = b.batch;
    if (b.batch == 0)
        return;
    memcpy(r->arrays[0], b.ids, size);
    memcpy(r->arrays[1], b.targets, size);
    if (b.document_ids)
        memcpy(r->arrays[2], b.document_ids, size);
}

START_TEST(seeking_to_a_place_gives_what_would_have_followed)
{
    enum { BATCHES = 60 };
    static record records[BATCHES], again;
    use_file(put_rows(scratch_directory(), "rows.jsonl", 23, 12, 2));
    for (int32_t form = MM_ROWS_PAD; form <= MM_ROWS_PACK; form++) {
        mm_loader *loader = make_loader(form, 3, 17, 1), *other = make_loader(form, 3, 17, 1);
        for (int i = 0; i < BATCHES; i++)
            take(loader, &records[i]);
        ck_assert_int_ge(records[BATCHES - 1].place.epoch, 2);
        for (int i = 0; i < BATCHES; i++) {
            int from = (7 * i) % BATCHES; /* back and forth */
            ck_ok(mm_loader_seek(other, &records[from].place));
            for (int j = from; j < BATCHES && j < from + 4; j++) {
                take(other, &again);
                ck_assert_mem_eq(&again, &records[j], sizeof again);
            }
        }
        mm_loader_free(loader);
        mm_loader_free(other);
    }
}
END_TEST

START_TEST(places_that_are_not_there_are_refused)
{
    use_text("{\"text\": \"abc\"}\n{\"text\": \"d\"}\n");
    mm_loader *padded = make_loader(MM_ROWS_PAD, 1, 8, 0), *packed = make_loader(MM_ROWS_PACK, 1, 8, 0);
    static const int64_t wrong[][4] = { { -1, 0, 0, 0 }, { 1LL << 33, 0, 0, 0 }, { 0, -1, 0, 0 }, { 0, 3, 0, 0 },
                                        { 0, 1, -1, 0 }, { 0, 0, 0, -1 },        { 0, 0, 1, 0 },  { 0, 0, 0, INT64_MAX } };
    mm_loader_position p = MM_LOADER_POSITION_INIT;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        p.epoch = wrong[i][0];
        p.row = wrong[i][1];
        p.offset = wrong[i][2];
        p.skipped = wrong[i][3];
        ck_status(mm_loader_seek(padded, &p), MM_ERR_ARG);
        ck_status(mm_loader_seek(packed, &p), MM_ERR_ARG);
    }
    p = (mm_loader_position){ sizeof p, 0, 1, 4, 0 };
    ck_ok(mm_loader_seek(packed, &p));
    ck_status(mm_loader_seek(padded, &p), MM_ERR_ARG);
    p.offset = 5;
    ck_status(mm_loader_seek(packed, &p), MM_ERR_ARG);
    ck_error_mentions("5 tokens");
    ck_ok(mm_loader_tell(packed, &p));
    ck_assert_int_eq(p.offset, 4);
    ck_status(mm_loader_seek(packed, NULL), MM_ERR_ARG);
    ck_status(mm_loader_seek(NULL, &p), MM_ERR_ARG);
    ck_status(mm_loader_tell(packed, NULL), MM_ERR_ARG);
    ck_status(mm_loader_tell(NULL, &p), MM_ERR_ARG);
    mm_loader_free(padded);
    mm_loader_free(packed);
}
END_TEST

static const char with_bad_lines[] = "{\"text\": \"a\"}\n{\"text\": \"b\"}\nnonsense\n{\"text\": 3}\n{\"text\": \"c\"}\n[]\n";

START_TEST(a_bad_line_is_reported_and_the_place_kept)
{
    use_text(with_bad_lines);
    for (int32_t form = MM_ROWS_PAD; form <= MM_ROWS_PACK; form++) {
        mm_loader *loader = make_loader(form, 1, 3, 0);
        mm_loader_position before = MM_LOADER_POSITION_INIT, after = MM_LOADER_POSITION_INIT;
        mm_batch b = MM_BATCH_INIT;
        ck_ok(mm_loader_next(loader, &b));
        ck_ok(mm_loader_next(loader, &b));
        ck_ok(mm_loader_tell(loader, &before));
        for (int i = 0; i < 2; i++) {
            ck_status(mm_loader_next(loader, &b), MM_ERR_FORMAT);
            ck_error_mentions("rows.jsonl:3: not JSON");
            ck_ok(mm_loader_tell(loader, &after));
            ck_assert_mem_eq(&before, &after, sizeof before);
        }
        if (form == MM_ROWS_PACK) {
            int64_t count, all;
            ck_status(mmi_loader_count(&count, &all, loader, 1), MM_ERR_FORMAT);
        }
        mm_loader_free(loader);
    }
}
END_TEST

START_TEST(bad_lines_are_passed_over_and_counted_when_asked)
{
    use_text(with_bad_lines);
    for (int32_t form = MM_ROWS_PAD; form <= MM_ROWS_PACK; form++) {
        mm_loader_options options = MM_LOADER_OPTIONS_INIT;
        options.skip_bad_lines = 1;
        options.form = form;
        options.batch = 2;
        options.max_length = 3;
        mm_loader *loader = NULL;
        ck_ok(mm_loader_create(dataset, tokenizer, &options, &loader));
        mm_loader_position p = MM_LOADER_POSITION_INIT;
        mm_batch b = MM_BATCH_INIT;
        mm_batch unset = { 0 };
        for (int i = 0; i < 5; i++)
            ck_status(mm_loader_next(loader, &unset), MM_ERR_ARG); /* which counts nothing */
        for (int epoch = 1; epoch <= 3; epoch++) {
            int rows = 0;
            do {
                ck_ok(mm_loader_next(loader, &b));
                rows += b.batch;
            } while (b.batch > 0);
            ck_assert_int_eq(rows, 3);
            ck_ok(mm_loader_tell(loader, &p));
            ck_assert_int_eq(p.skipped, 3 * epoch);
            ck_assert_int_eq(p.epoch, epoch);
            ck_assert_int_eq(p.row, 0);
        }
        mm_loader_stats stats = MM_LOADER_STATS_INIT;
        ck_ok(mm_loader_get_stats(loader, &stats));
        ck_assert_int_eq(stats.bad_lines, p.skipped);
        ck_assert_int_eq(stats.rows, 9);
        mm_loader_free(loader);
    }
}
END_TEST

/* Of three files: all of one, half of the next, whose second half is long, and more than all of the last. */
START_TEST(packed_epochs_that_take_other_rows_are_counted_one_by_one)
{
    enum { EPOCHS = 5 };
    static const double weights[] = { 1, 0.5, 1.3 };
    char paths[3][512];
    const char *const files[] = { paths[0], paths[1], paths[2] };
    char bytes[8192], directory[400];
    size_t size = 0;
    for (int i = 0; i < 40; i++)
        size += (size_t)sprintf(bytes + size, i == 7 ? "{\"text\": %*d}\n" : "{\"text\": \"%0*d\"}\n",
                                i < 20 ? 2 : 200, i);
    snprintf(directory, sizeof directory, "%s", scratch_directory());
    snprintf(paths[0], sizeof paths[0], "%s", put_rows(directory, "rows.jsonl", 5, 9, 1));
    snprintf(paths[1], sizeof paths[1], "%s", put_file(directory, "uneven.jsonl", bytes, size));
    snprintf(paths[2], sizeof paths[2], "%s", put_rows(directory, "more.jsonl", 11, 30, 2));
    mm_dataset_options d = MM_DATASET_OPTIONS_INIT;
    d.paths = files;
    d.weights = weights;
    d.count = 3;
    mm_dataset_free(dataset);
    ck_ok(mm_dataset_create(&d, &dataset));
    ck_assert(mmi_dataset_varies(dataset));
    for (int32_t world = 1; world <= 3; world += 2)
        for (int32_t shuffle = 0; shuffle < 2; shuffle++) {
            mm_loader_options o = MM_LOADER_OPTIONS_INIT;
            o.form = MM_ROWS_PACK;
            o.batch = 2;
            o.max_length = 24;
            o.shuffle = shuffle;
            o.world = world;
            o.rank = world - 1;
            o.skip_bad_lines = 1;
            mm_loader *loader = NULL;
            mm_batch b = MM_BATCH_INIT;
            int64_t taken = 0, each, all;
            ck_ok(mm_loader_create(dataset, tokenizer, &o, &loader));
            for (int epoch = 0; epoch < EPOCHS; epoch++) {
                do {
                    ck_ok(mm_loader_next(loader, &b));
                    taken += b.batch > 0;
                } while (b.batch > 0);
                ck_ok(mmi_loader_count(&each, &all, loader, epoch + 1));
                ck_assert_int_eq(all, taken);
                ck_assert(each == 0 ? epoch > 0 : each * (epoch + 1) == all);
            }
            mm_loader_position at = MM_LOADER_POSITION_INIT;
            ck_ok(mm_loader_tell(loader, &at));
            ck_assert_int_eq(at.epoch, EPOCHS);
            ck_assert_int_eq(at.row, 0);
            mmi_memory_fail_at(1, false);
            ck_status(mmi_loader_count(&each, &all, loader, 1), MM_ERR_MEMORY);
            mmi_memory_fail_at(0, false);
            mm_loader_free(loader);
            o.skip_bad_lines = 0;
            ck_ok(mm_loader_create(dataset, tokenizer, &o, &loader));
            ck_status(mmi_loader_count(&each, &all, loader, 2), MM_ERR_FORMAT);
            ck_error_mentions("uneven.jsonl:8: ");
            mm_loader_free(loader);
        }
}
END_TEST

START_TEST(bad_options_are_refused)
{
    use_text("{\"text\": \"a\"}\n");
    static const mm_loader_options good = MM_LOADER_OPTIONS_INIT;
    mm_loader_options wrong[12];
    for (int i = 0; i < 12; i++)
        wrong[i] = good;
    wrong[0].batch = 0;
    wrong[1].max_length = 1;
    wrong[2].form = 3;
    wrong[3].form = -1;
    wrong[4].shuffle = 2;
    wrong[5].skip_bad_lines = -1;
    wrong[6].bos_id = 259;
    wrong[7].eos_id = -2;
    wrong[8].pad_id = -1;
    wrong[9].struct_size = 0;
    wrong[10].trim = 2;
    wrong[11].trim = -1;
    mm_loader *loader = NULL;
    for (int i = 0; i < 12; i++)
        ck_status(mm_loader_create(dataset, tokenizer, &wrong[i], &loader), MM_ERR_ARG);
    ck_status(mm_loader_create(NULL, tokenizer, &good, &loader), MM_ERR_ARG);
    ck_status(mm_loader_create(dataset, NULL, &good, &loader), MM_ERR_ARG);
    ck_status(mm_loader_create(dataset, tokenizer, &good, NULL), MM_ERR_ARG);
    ck_assert_ptr_null(loader);
    mm_batch b = MM_BATCH_INIT;
    ck_status(mm_loader_next(NULL, &b), MM_ERR_ARG);
    loader = make_loader(MM_ROWS_PAD, 1, 4, 0);
    ck_status(mm_loader_next(loader, NULL), MM_ERR_ARG);
    ck_ok(mm_loader_next(loader, &b));
    ck_assert_int_eq(b.batch, 1); /* the failed call took nothing */
    mm_loader_free(loader);
    mm_loader_free(NULL);
    ck_assert_int_eq(mm_loader_length(NULL), 0);
}
END_TEST

START_TEST(a_loader_keeps_its_data_set_and_tokenizer_alive)
{
    use_text("{\"text\": \"a\"}\n");
    mm_loader *loader = make_loader(MM_ROWS_PAD, 1, 4, 0);
    mm_dataset_free(dataset);
    mm_tokenizer_free(tokenizer);
    mm_batch b = MM_BATCH_INIT;
    ck_ok(mm_loader_next(loader, &b));
    ck_assert_int_eq(b.ids[0], id_of('a'));
    mm_loader_free(loader);
    dataset = NULL;
    tokenizer = NULL;
}
END_TEST

/* Also where the string says nothing, as for rows of plain text. */
START_TEST(a_loader_keeps_no_string_of_its_caller)
{
    use_text("{\"text\": \"a\"}\n");
    for (int32_t kind = MM_ROW_TEXT; kind <= MM_ROW_CHAT; kind++) {
        char name[] = "minimind2";
        mm_loader_options options = MM_LOADER_OPTIONS_INIT;
        options.kind = kind;
        options.max_length = 16;
        options.template_name = name;
        mm_loader *loader;
        ck_ok(mm_loader_create(dataset, tokenizer, &options, &loader));
        memset(name, 'x', sizeof name - 1);
        const char *kept = mmi_loader_options(loader)->template_name;
        ck_assert(kept == NULL || strcmp(kept, "minimind2") == 0);
        mm_loader_free(loader);
    }
}
END_TEST

START_TEST(every_failing_allocation_is_survived)
{
    use_file(put_rows(scratch_directory(), "rows.jsonl", 6, 30, 2));
    mm_memory_usage before = MM_MEMORY_USAGE_INIT, after = MM_MEMORY_USAGE_INIT;
    mm_memory_get_usage(&before);
    bool done = false;
    for (uint64_t n = 1; !done; n++) {
        mm_loader *loader = NULL;
        mm_batch b = MM_BATCH_INIT;
        mm_loader_options options = MM_LOADER_OPTIONS_INIT;
        options.form = MM_ROWS_PACK;
        ck_assert_uint_lt(n, 1000);
        mmi_memory_fail_at(n, false);
        mm_status status = mm_loader_create(dataset, tokenizer, &options, &loader);
        if (status == MM_OK && (status = mm_loader_next(loader, &b)) == MM_ERR_MEMORY) {
            mm_loader_position p = MM_LOADER_POSITION_INIT;
            ck_ok(mm_loader_tell(loader, &p));
            ck_assert_int_eq(p.row, 0);
            ck_ok(mm_loader_next(loader, &b)); /* it goes on once there is memory again */
            ck_assert_int_gt(b.batch, 0);
        }
        done = mmi_memory_fail_at(0, false) < n;
        if (status != MM_OK)
            ck_assert_int_eq(status, MM_ERR_MEMORY);
        mm_loader_free(loader);
    }
    mm_memory_get_usage(&after);
    ck_assert_uint_eq(before.current, after.current);
}
END_TEST

/* --- The shared fixtures --- */

static void check_numbers(const char *name, const int32_t *found, const mmi_json *expected)
{
    for (size_t i = 0; i < mmi_json_size(expected); i++)
        ck_assert_msg(found[i] == mmi_json_int(mmi_json_at(expected, i), -1), "%s: place %zu is %d", name, i, found[i]);
}

static void check_case(mmi_json *c, mm_tokenizer *with, const char *directory)
{
    const char *name = mmi_json_string(mmi_json_get(c, "name"), NULL);
    const mmi_json *expected = mmi_json_get(c, "expected");
    bool third = mmi_json_get(expected, "input_ids") != NULL;
    char *row = NULL;
    size_t length = 0;
    ck_ok(mmi_json_write(mmi_json_get(c, "row"), 0, &row, &length));
    use_file(put_file(directory, "rows.jsonl", row, length));
    mmi_free(row);
    mm_loader_options options = MM_LOADER_OPTIONS_INIT;
    options.batch = 1;
    options.max_length = (int32_t)mmi_json_int(mmi_json_get(c, "max_length"), 0);
    options.form = third ? MM_ROWS_PAD3 : MM_ROWS_PAD;
    mm_loader *loader = NULL;
    mm_batch b = MM_BATCH_INIT;
    ck_ok(mm_loader_create(dataset, with, &options, &loader));
    ck_ok(mm_loader_next(loader, &b));
    check_numbers(name, b.ids, mmi_json_get(expected, third ? "input_ids" : "x"));
    for (int t = 0; t < b.length; t++) {
        int64_t target = IGNORED;
        if (third && t + 1 < b.length)
            target = mmi_json_int(mmi_json_at(mmi_json_get(expected, "labels"), (size_t)t + 1), 0);
        else if (!third && mmi_json_int(mmi_json_at(mmi_json_get(expected, "mask"), (size_t)t), 0) == 1)
            target = mmi_json_int(mmi_json_at(mmi_json_get(expected, "y"), (size_t)t), 0);
        ck_assert_msg(b.targets[t] == target, "%s: target %d is %d, not %d", name, t, b.targets[t], (int)target);
    }
    mm_loader_free(loader);
}

START_TEST(the_shared_pretraining_cases_agree)
{
    static const char *const generations[] = { "minimind2", "minimind3", "minillm" };
    REQUIRE_SHARED("text/datasets/dataset_cases.jsonl");
    char path[1024], directory[512];
    snprintf(path, sizeof path, "%s", shared_path("text/datasets/dataset_cases.jsonl"));
    snprintf(directory, sizeof directory, "%s", scratch_directory());
    mm_tokenizer *with[3] = { NULL, NULL, NULL };
    for (int g = 0; g < 3; g++) {
        char name[64];
        snprintf(name, sizeof name, "text/tokenizers/%s", generations[g]);
        ck_ok(mm_tokenizer_load(shared_path(name), &with[g]));
    }
    FILE *file = fopen(path, "rb");
    char *line = NULL;
    size_t room = 0;
    ssize_t length;
    int checked = 0;
    while ((length = getline(&line, &room, file)) > 0) {
        mmi_json *c = NULL;
        ck_ok(mmi_json_parse(line, (size_t)length, "a case", &c));
        if (strcmp(mmi_json_string(mmi_json_get(c, "reader"), NULL), "pretrain") == 0)
            for (int g = 0; g < 3; g++)
                if (strcmp(mmi_json_string(mmi_json_get(c, "generation"), NULL), generations[g]) == 0) {
                    check_case(c, with[g], directory);
                    checked++;
                }
        mmi_json_free(c);
    }
    ck_assert_int_gt(checked, 5);
    free(line);
    fclose(file);
    for (int g = 0; g < 3; g++)
        mm_tokenizer_free(with[g]);
}
END_TEST

static void *at_most_64_mib(void *user, size_t size)
{
    (void)user;
    return size <= (size_t)64 << 20 ? malloc(size) : NULL;
}

static void release(void *user, void *memory)
{
    (void)user;
    free(memory);
}

START_TEST(a_batch_that_no_memory_holds_is_not_made)
{
    mm_allocator small = { sizeof small, NULL, at_most_64_mib, release };
    mmi_recipe recipe = { .options = MM_LOADER_OPTIONS_INIT };
    recipe.options.batch = 1 << 16; /* of as many ids: more than 32 bits count */
    recipe.options.max_length = (1 << 16) + 1;
    ck_ok(mm_set_allocator(&small));
    for (int32_t form = MM_ROWS_PAD; form <= MM_ROWS_PACK; form++) {
        mmi_batch_room room = { 0 };
        recipe.options.form = form;
        ck_status(mmi_batch_room_make(&room, &recipe), MM_ERR_MEMORY);
        mmi_batch_room_free(&room);
    }
    ck_ok(mm_set_allocator(NULL));
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("data/loader");
    TCase *tc = tcase_create("loader");
    tcase_add_checked_fixture(tc, start, end);
    tcase_add_test(tc, every_row_comes_once_an_epoch_in_any_batch_size);
    tcase_add_test(tc, forms_are_exact);
    tcase_add_test(tc, packing_adds_loses_and_repeats_no_token);
    tcase_add_test(tc, seeking_to_a_place_gives_what_would_have_followed);
    tcase_add_test(tc, places_that_are_not_there_are_refused);
    tcase_add_test(tc, a_bad_line_is_reported_and_the_place_kept);
    tcase_add_test(tc, bad_lines_are_passed_over_and_counted_when_asked);
    tcase_add_test(tc, packed_epochs_that_take_other_rows_are_counted_one_by_one);
    tcase_add_test(tc, bad_options_are_refused);
    tcase_add_test(tc, a_loader_keeps_its_data_set_and_tokenizer_alive);
    tcase_add_test(tc, a_loader_keeps_no_string_of_its_caller);
    tcase_add_test(tc, every_failing_allocation_is_survived);
    tcase_add_test(tc, the_shared_pretraining_cases_agree);
    tcase_set_timeout(tc, 60);
    suite_add_tcase(suite, tc);
    TCase *memory = tcase_create("memory"); /* which is changed while none is in use */
    tcase_add_test(memory, a_batch_that_no_memory_holds_is_not_made);
    suite_add_tcase(suite, memory);
    return suite;
}

int main(void)
{
    return run_suite(make_suite());
}
