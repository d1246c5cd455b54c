/* Whatever a file holds, reading it ends: in rows, or in a status that names file and line. */
#define _POSIX_C_SOURCE 200809L
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "data/loader.h"
#include "texts.h"

static mm_tokenizer *tokenizer;

static void start(void)
{
    tokenizer = byte_tokenizer();
}

static void end(void)
{
    mm_tokenizer_free(tokenizer);
}

/* Rows that an epoch gives when bad ones are passed over, and how many those were. */
static int64_t read_all(mm_dataset *dataset, int32_t kind, int64_t *bad)
{
    mm_loader_options o = MM_LOADER_OPTIONS_INIT;
    mm_loader *loader = NULL;
    mm_batch b = MM_BATCH_INIT;
    mm_loader_stats stats = MM_LOADER_STATS_INIT;
    o.kind = kind;
    o.max_length = 16;
    o.batch = 3;
    o.shuffle = 0;
    o.skip_bad_lines = 1;
    ck_ok(mm_loader_create(dataset, tokenizer, &o, &loader));
    do
        ck_ok(mm_loader_next(loader, &b));
    while (b.batch > 0);
    ck_ok(mm_loader_get_stats(loader, &stats));
    mm_loader_free(loader);
    *bad = stats.bad_lines;
    return stats.rows;
}

START_TEST(a_line_of_a_hundred_megabytes_is_a_bad_row)
{
    char path[512];
    mm_dataset *dataset = NULL;
    mm_memory_usage before = MM_MEMORY_USAGE_INIT, after = MM_MEMORY_USAGE_INIT;
    int64_t bad;
    snprintf(path, sizeof path, "%s", put_file(scratch_directory(), "rows.jsonl", "{\"text\": \"a\"}\n", 14));
    int fd = open(path, O_WRONLY);
    ck_assert_int_eq(pwrite(fd, "\n{\"text\": \"b\"}\n", 15, 100 << 20), 15); /* a hole before it */
    close(fd);
    mm_memory_get_usage(&before);
    ck_ok(mm_dataset_open(path, &dataset));
    ck_assert_int_eq(mm_dataset_rows(dataset), 3);
    ck_status(mm_dataset_text(dataset, 1, NULL, 0, NULL), MM_ERR_FORMAT);
    ck_error_mentions("rows.jsonl:2: the line has more than 67108864 bytes");
    ck_assert_int_eq(read_all(dataset, MM_ROW_TEXT, &bad), 2);
    ck_assert_int_eq(bad, 1);
    mm_memory_get_usage(&after);
    ck_assert_uint_le(after.current - before.current, 1 << 16); /* its memory has been given back */
    mm_dataset_free(dataset);
}
END_TEST

START_TEST(the_longest_line_is_an_option)
{
    enum { LONG = 1 << 20 };
    char *bytes = malloc(LONG + 64), *text = malloc(LONG);
    const char *paths[1];
    mm_dataset_options o = MM_DATASET_OPTIONS_INIT;
    o.paths = paths;
    o.count = 1;
    o.max_line = LONG;
    for (int over = 0; over < 3; over++)
        for (int ended = 0; ended < 2; ended++) {
            mm_dataset *dataset = NULL;
            size_t size = (size_t)(LONG + over - 1), needed;
            memset(bytes, 'x', size);
            memcpy(bytes, "{\"text\": \"", 10);
            memcpy(bytes + size - 2, "\"}\n\n\n", 5);
            paths[0] = put_file(scratch_directory(), "rows.jsonl", bytes, size + (ended ? 3 : 0));
            ck_ok(mm_dataset_create(&o, &dataset));
            mm_status status = mm_dataset_text(dataset, 0, text, LONG, &needed);
            ck_status(status, over < 2 ? MM_OK : MM_ERR_FORMAT);
            if (over < 2)
                ck_assert_uint_eq(needed, size - 12);
            mm_dataset_free(dataset);
        }
    free(bytes);
    free(text);
}
END_TEST

START_TEST(every_kind_of_bad_line_is_counted)
{
    static const char bytes[] = "{\"text\": \"good\"}\n"
                                "{\"text\": \"broken\n"
                                "{\"text\": 7}\n"
                                "{\"txt\": \"missing\"}\n"
                                "\n"
                                "[\"text\"]\n"
                                "\"text\"\n"
                                "{\"text\": \"\xC0\x80\"}\n"
                                "{\"text\": \"\xED\xA0\x80\"}\n"
                                "{\"text\": \"\xE4\xB8\"}\n"
                                "{\"text\": \"\\ud800\"}\n"
                                "{\"text\": \"a\", \"text\": \"b\"}\n"
                                "{\"text\": \"a\"} x\n"
                                "\0\0\0\n"
                                "{\"text\": \"no end\"}";
    mm_dataset *dataset = NULL;
    int64_t bad;
    ck_ok(mm_dataset_open(put_file(scratch_directory(), "rows.jsonl", bytes, sizeof bytes - 1), &dataset));
    ck_assert_int_eq(mm_dataset_rows(dataset), 14);
    ck_assert_int_eq(read_all(dataset, MM_ROW_TEXT, &bad), 2);
    ck_assert_int_eq(bad, 12);
    ck_assert_int_eq(read_all(dataset, MM_ROW_CHAT, &bad), 0);
    ck_assert_int_eq(bad, 14);
    mm_dataset_free(dataset);
}
END_TEST

START_TEST(deep_nesting_is_a_bad_row)
{
    enum { DEEP = 100000 };
    static const char head[] = "{\"conversations\": ";
    static char bytes[sizeof head + 2 * DEEP + 2];
    int64_t bad;
    mm_dataset *dataset = NULL;
    size_t size = sizeof head - 1;
    memcpy(bytes, head, size);
    memset(bytes + size, '[', DEEP);
    memset(bytes + size + DEEP, ']', DEEP);
    size += 2 * DEEP;
    bytes[size++] = '}';
    ck_ok(mm_dataset_open(put_file(scratch_directory(), "rows.jsonl", bytes, size), &dataset));
    ck_assert_int_eq(read_all(dataset, MM_ROW_CHAT, &bad), 0);
    ck_assert_int_eq(bad, 1);
    mm_dataset_free(dataset);
}
END_TEST

START_TEST(random_bytes_end_in_rows_or_in_a_status)
{
    static const char *const pieces[] = { "{\"conversations\": [", "{\"role\": \"user\", \"content\": ", "\"a\"", "}", "]",
                                          ", ", "\n", "{\"text\": ", "{\"chosen\": [", "\"rejected\": ", "null", "3", "\xFF",
                                          "{\"role\": \"assistant\", \"content\": \"b\"}", "]}\n", "\\u0000", "\"tool_calls\": " };
    test_rng rng = { 5 };
    char bytes[2000];
    for (int i = 0; i < 300; i++) {
        size_t size = 1;
        bytes[0] = '{';
        for (int n = rng_between(&rng, 1, 30); n > 0; n--)
            size += (size_t)sprintf(bytes + size, "%s", pieces[rng_between(&rng, 0, sizeof pieces / sizeof *pieces - 1)]);
        mm_dataset *dataset = NULL;
        int64_t bad, rows;
        ck_ok(mm_dataset_open(put_file(scratch_directory(), "rows.jsonl", bytes, size), &dataset));
        for (int32_t kind = MM_ROW_TEXT; kind <= MM_ROW_PREFERENCE; kind++) {
            rows = read_all(dataset, kind, &bad);
            ck_assert_int_eq(rows + bad, mm_dataset_rows(dataset));
        }
        mm_dataset_free(dataset);
    }
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("data/bad_lines");
    TCase *tc = tcase_create("bad_lines");
    tcase_add_checked_fixture(tc, start, end);
    tcase_add_test(tc, a_line_of_a_hundred_megabytes_is_a_bad_row);
    tcase_add_test(tc, the_longest_line_is_an_option);
    tcase_add_test(tc, every_kind_of_bad_line_is_counted);
    tcase_add_test(tc, deep_nesting_is_a_bad_row);
    tcase_add_test(tc, random_bytes_end_in_rows_or_in_a_status);
    tcase_set_timeout(tc, 60);
    suite_add_tcase(suite, tc);
    return suite;
}

int main(void)
{
    return run_suite(make_suite());
}
