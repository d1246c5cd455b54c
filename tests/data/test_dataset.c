#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/memory.h"
#include "data/dataset.h"
#include "data/hash.h"
#include "texts.h"

static mm_dataset *open_bytes(const char *bytes, size_t size)
{
    mm_dataset *dataset = NULL;
    ck_ok(mm_dataset_open(put_file(scratch_directory(), "rows.jsonl", bytes, size), &dataset));
    return dataset;
}

static void check_text(mm_dataset *dataset, int64_t row, const char *expected, size_t length)
{
    char text[4096];
    size_t needed = 99;
    ck_ok(mm_dataset_text(dataset, row, NULL, 0, &needed));
    ck_assert_uint_eq(needed, length);
    ck_ok(mm_dataset_text(dataset, row, text, sizeof text, &needed));
    ck_assert_uint_eq(needed, length);
    ck_assert_mem_eq(text, expected, length);
}
#define CHECK_TEXT(dataset, row, literal) check_text(dataset, row, literal, sizeof literal - 1)

START_TEST(rows_are_the_lines_of_a_file)
{
    static const char bytes[] = "{\"text\": \"one\"}\n{\"id\": 2, \"text\": \"zwei\"}\n{\"text\": \"\"}\n";
    mm_dataset *dataset = open_bytes(bytes, sizeof bytes - 1);
    ck_assert_int_eq(mm_dataset_rows(dataset), 3);
    CHECK_TEXT(dataset, 0, "one");
    CHECK_TEXT(dataset, 1, "zwei");
    CHECK_TEXT(dataset, 2, "");
    CHECK_TEXT(dataset, 0, "one");
    mm_dataset_free(dataset);
    mm_dataset_free(NULL);
    ck_assert_int_eq(mm_dataset_rows(NULL), 0);
}
END_TEST

START_TEST(empty_lines_carriage_returns_and_a_missing_end_are_fine)
{
    static const char bytes[] = "\r\n \t\n{\"text\": \"a\"}\r\n\n\r\n\n  {\"text\": \"b\"}  \n\n{\"text\": \"c\"}";
    mm_dataset *dataset = open_bytes(bytes, sizeof bytes - 1);
    ck_assert_int_eq(mm_dataset_rows(dataset), 3);
    CHECK_TEXT(dataset, 0, "a");
    CHECK_TEXT(dataset, 1, "b");
    CHECK_TEXT(dataset, 2, "c");
    mm_dataset_free(dataset);
}
END_TEST

START_TEST(only_byte_0a_ends_a_line_and_nul_is_text)
{
    static const char bytes[] = "\xEF\xBB\xBF{\"text\": \"a\\u0000b\"}\n{\"text\": \"x\xE2\x80\xA8y\xC2\x85z\xEF\xBB\xBF\"}\n";
    mm_dataset *dataset = open_bytes(bytes, sizeof bytes - 1);
    ck_assert_int_eq(mm_dataset_rows(dataset), 2);
    CHECK_TEXT(dataset, 0, "a\0b");
    CHECK_TEXT(dataset, 1, "x\xE2\x80\xA8y\xC2\x85z\xEF\xBB\xBF");
    mm_dataset_free(dataset);
}
END_TEST

START_TEST(lines_longer_than_any_buffer_are_read_whole)
{
    enum { LONG = 300000 };
    static char bytes[2 * LONG + 100], text[LONG];
    size_t size = (size_t)sprintf(bytes, "{\"text\": \"");
    memset(bytes + size, 'x', LONG);
    size += LONG;
    size += (size_t)sprintf(bytes + size, "\"}\n\n{\"text\": \"end\"}\n");
    mm_dataset *dataset = open_bytes(bytes, size);
    size_t needed = 0;
    ck_assert_int_eq(mm_dataset_rows(dataset), 2);
    ck_ok(mm_dataset_text(dataset, 0, text, LONG, &needed));
    ck_assert_uint_eq(needed, LONG);
    ck_assert_int_eq(text[0], 'x');
    ck_assert_int_eq(text[LONG - 1], 'x');
    CHECK_TEXT(dataset, 1, "end");
    mm_dataset_free(dataset);
}
END_TEST

START_TEST(a_bad_row_is_told_by_file_and_line)
{
    static const char bytes[] = "\n{\"text\": \"a\"}\n\n{\"text\": \n[1]\n{\"text\": 5}\n{\"txt\": \"a\"}\n{\"text\": \"\xFF\"}\n"
                                "{\"text\": \"\\ud800\"}\n7 8\n";
    static const char *const words[] = { ":4: not JSON: column", ":5: the row is an array", ":6: \"text\" is an integer",
                                         ":7: \"text\" is absent", ":8: not JSON", ":9: not JSON", ":10: not JSON" };
    mm_dataset *dataset = open_bytes(bytes, sizeof bytes - 1);
    ck_assert_int_eq(mm_dataset_rows(dataset), 8);
    CHECK_TEXT(dataset, 0, "a");
    for (int row = 1; row < 8; row++) {
        size_t needed = 77;
        ck_status(mm_dataset_text(dataset, row, NULL, 0, &needed), MM_ERR_FORMAT);
        ck_error_mentions(words[row - 1]);
        ck_error_mentions("rows.jsonl");
        ck_assert_uint_eq(needed, 77);
    }
    mm_dataset_free(dataset);
}
END_TEST

START_TEST(line_numbers_count_empty_lines_far_into_a_file)
{
    enum { ROWS = 400 };
    static char bytes[1 << 16];
    size_t size = 0;
    int line = 1, lines[ROWS];
    test_rng rng = { 7 };
    for (int row = 0; row < ROWS; row++) {
        for (int empty = rng_between(&rng, 0, 2); empty > 0; empty--, line++)
            bytes[size++] = '\n';
        lines[row] = line++;
        size += (size_t)sprintf(bytes + size, row % 3 == 0 ? "{\"text\": \"%d\"}\n" : "bad %d\n", row);
    }
    mm_dataset *dataset = open_bytes(bytes, size);
    ck_assert_int_eq(mm_dataset_rows(dataset), ROWS);
    for (int row = 0; row < ROWS; row++) {
        char expected[32];
        if (row % 3 == 0) {
            snprintf(expected, sizeof expected, "%d", row);
            check_text(dataset, row, expected, strlen(expected));
        } else {
            snprintf(expected, sizeof expected, "jsonl:%d: ", lines[row]);
            ck_status(mm_dataset_text(dataset, row, NULL, 0, NULL), MM_ERR_FORMAT);
            ck_error_mentions(expected);
        }
    }
    mm_dataset_free(dataset);
}
END_TEST

START_TEST(what_is_no_data_set_is_refused)
{
    mm_dataset *dataset = NULL;
    const char *directory = scratch_directory();
    ck_status(mm_dataset_open(put_file(directory, "empty", "", 0), &dataset), MM_ERR_FORMAT);
    ck_error_mentions("no row");
    ck_status(mm_dataset_open(put_file(directory, "blank", "\n\r\n \n", 5), &dataset), MM_ERR_FORMAT);
    ck_status(mm_dataset_open(put_file(directory, "bom", "\xEF\xBB\xBF", 3), &dataset), MM_ERR_FORMAT);
    ck_status(mm_dataset_open(directory, &dataset), MM_ERR_IO);
    ck_error_mentions("not a regular file");
    ck_status(mm_dataset_open("/no/such/file", &dataset), MM_ERR_IO);
    ck_error_mentions("/no/such/file");
    ck_status(mm_dataset_open(NULL, &dataset), MM_ERR_ARG);
    ck_status(mm_dataset_open("x", NULL), MM_ERR_ARG);
    ck_assert_ptr_null(dataset);
}
END_TEST

START_TEST(a_named_pipe_is_refused_without_waiting)
{
    char path[512];
    mm_dataset *dataset = NULL;
    snprintf(path, sizeof path, "%s/pipe", scratch_directory());
    ck_assert_int_eq(mkfifo(path, 0600), 0);
    ck_status(mm_dataset_open(path, &dataset), MM_ERR_IO);
}
END_TEST

START_TEST(bad_arguments_of_text_are_refused)
{
    char text[8] = "-------";
    size_t needed = 0;
    mm_dataset *dataset = open_bytes("{\"text\": \"abcd\"}\n", 17);
    ck_status(mm_dataset_text(dataset, -1, NULL, 0, NULL), MM_ERR_ARG);
    ck_status(mm_dataset_text(dataset, 1, NULL, 0, NULL), MM_ERR_ARG);
    ck_status(mm_dataset_text(NULL, 0, NULL, 0, NULL), MM_ERR_ARG);
    ck_status(mm_dataset_text(dataset, 0, NULL, 5, NULL), MM_ERR_ARG);
    ck_status(mm_dataset_text(dataset, 0, text, 3, &needed), MM_ERR_ARG);
    ck_assert_uint_eq(needed, 4);
    ck_assert_str_eq(text, "-------");
    mm_dataset_free(dataset);
}
END_TEST

START_TEST(a_file_that_shrinks_or_changes_is_noticed)
{
    static const char bytes[] = "{\"text\": \"one\"}\n{\"text\": \"two\"}\n";
    char path[512];
    snprintf(path, sizeof path, "%s", put_file(scratch_directory(), "rows.jsonl", bytes, sizeof bytes - 1));
    mm_dataset *dataset = NULL;
    ck_ok(mm_dataset_open(path, &dataset));
    ck_assert_int_eq(truncate(path, 20), 0);
    ck_status(mm_dataset_text(dataset, 1, NULL, 0, NULL), MM_ERR_IO);
    ck_error_mentions("became shorter");
    ck_status(mm_dataset_text(dataset, 0, NULL, 0, NULL), MM_ERR_IO);
    mm_dataset_free(dataset);

    ck_ok(mm_dataset_open(path, &dataset));
    FILE *file = fopen(path, "ab");
    fputs("more", file);
    fclose(file);
    ck_status(mm_dataset_text(dataset, 0, NULL, 0, NULL), MM_ERR_IO);
    ck_error_mentions("was changed");
    mm_dataset_free(dataset);
}
END_TEST

START_TEST(the_index_takes_about_sixteen_bytes_a_row)
{
    enum { ROWS = 20000 };
    char *bytes = malloc(ROWS * 3);
    for (int i = 0; i < ROWS; i++)
        memcpy(bytes + 3 * i, "{}\n", 3);
    mm_memory_usage before = MM_MEMORY_USAGE_INIT, after = MM_MEMORY_USAGE_INIT;
    mm_memory_get_usage(&before);
    mm_dataset *dataset = open_bytes(bytes, ROWS * 3);
    mm_memory_get_usage(&after);
    ck_assert_int_eq(mm_dataset_rows(dataset), ROWS);
    ck_assert_uint_le(after.current - before.current, ROWS * 16 + 1024);
    mm_dataset_free(dataset);
    free(bytes);
}
END_TEST

START_TEST(every_failing_allocation_is_survived)
{
    static const char bytes[] = "{\"text\": \"one\"}\n{\"text\": \"two\"}\n";
    char path[512];
    snprintf(path, sizeof path, "%s", put_file(scratch_directory(), "rows.jsonl", bytes, sizeof bytes - 1));
    mm_memory_usage before = MM_MEMORY_USAGE_INIT, after = MM_MEMORY_USAGE_INIT;
    mm_memory_get_usage(&before);
    bool done = false;
    for (uint64_t n = 1; !done; n++) {
        mm_dataset *dataset = NULL;
        ck_assert_uint_lt(n, 100);
        mmi_memory_fail_at(n, false);
        mm_status status = mm_dataset_open(path, &dataset);
        if (status == MM_OK)
            status = mm_dataset_text(dataset, 1, NULL, 0, NULL);
        done = mmi_memory_fail_at(0, false) < n;
        if (status != MM_OK)
            ck_assert_int_eq(status, MM_ERR_MEMORY);
        mm_dataset_free(dataset);
    }
    mm_memory_get_usage(&after);
    ck_assert_uint_eq(before.current, after.current);
}
END_TEST

START_TEST(a_hash_depends_on_every_bit_and_on_no_cut)
{
    unsigned char bytes[61];
    test_rng rng = { 3 };
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (unsigned char)rng_next(&rng);
    mmi_hash whole, cut, flipped;
    mmi_hash_begin(&whole);
    mmi_hash_add(&whole, bytes, sizeof bytes);
    for (size_t a = 0; a < sizeof bytes; a++)
        for (size_t b = a; b < sizeof bytes; b += 5) {
            mmi_hash_begin(&cut);
            mmi_hash_add(&cut, bytes, a);
            mmi_hash_add(&cut, bytes + a, b - a);
            mmi_hash_add(&cut, bytes + b, sizeof bytes - b);
            ck_assert(mmi_hash_end(&cut) == mmi_hash_end(&whole));
        }
    for (size_t bit = 0; bit < 8 * sizeof bytes; bit++) {
        bytes[bit / 8] ^= (unsigned char)(1 << bit % 8);
        mmi_hash_begin(&flipped);
        mmi_hash_add(&flipped, bytes, sizeof bytes);
        ck_assert(mmi_hash_end(&flipped) != mmi_hash_end(&whole));
        bytes[bit / 8] ^= (unsigned char)(1 << bit % 8);
    }
    mmi_hash_begin(&cut); /* a NUL more or less counts too */
    mmi_hash_add(&cut, "\0\0", 1);
    mmi_hash_begin(&flipped);
    mmi_hash_add(&flipped, "\0\0", 2);
    ck_assert(mmi_hash_end(&cut) != mmi_hash_end(&flipped));
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("data/dataset");
    TCase *tc = tcase_create("dataset");
    tcase_add_test(tc, rows_are_the_lines_of_a_file);
    tcase_add_test(tc, empty_lines_carriage_returns_and_a_missing_end_are_fine);
    tcase_add_test(tc, only_byte_0a_ends_a_line_and_nul_is_text);
    tcase_add_test(tc, lines_longer_than_any_buffer_are_read_whole);
    tcase_add_test(tc, a_bad_row_is_told_by_file_and_line);
    tcase_add_test(tc, line_numbers_count_empty_lines_far_into_a_file);
    tcase_add_test(tc, what_is_no_data_set_is_refused);
    tcase_add_test(tc, a_named_pipe_is_refused_without_waiting);
    tcase_add_test(tc, bad_arguments_of_text_are_refused);
    tcase_add_test(tc, a_file_that_shrinks_or_changes_is_noticed);
    tcase_add_test(tc, the_index_takes_about_sixteen_bytes_a_row);
    tcase_add_test(tc, every_failing_allocation_is_survived);
    tcase_add_test(tc, a_hash_depends_on_every_bit_and_on_no_cut);
    suite_add_tcase(suite, tc);
    return suite;
}

int main(void)
{
    return run_suite(make_suite());
}
