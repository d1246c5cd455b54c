/* Data sets of several files: weights, limits, splits. */
#define _POSIX_C_SOURCE 200809L
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/dataset.h"
#include "texts.h"

enum { FILES = 3, ROWS = 200 };
static const char *paths[FILES];
static char names[FILES][600];

static void start(void)
{
    char directory[512];
    snprintf(directory, sizeof directory, "%s", scratch_directory());
    for (int i = 0; i < FILES; i++) {
        char name[32];
        snprintf(name, sizeof name, "rows%d.jsonl", i);
        snprintf(names[i], sizeof names[i], "%s", put_rows(directory, name, ROWS, 5, (unsigned)i + 1));
        paths[i] = names[i];
    }
}

static mm_dataset_options options_of(int count)
{
    mm_dataset_options o = MM_DATASET_OPTIONS_INIT;
    o.paths = paths;
    o.count = count;
    return o;
}

static mm_dataset *create(const mm_dataset_options *o)
{
    mm_dataset *dataset = NULL;
    ck_ok(mm_dataset_create(o, &dataset));
    return dataset;
}

START_TEST(files_follow_each_other)
{
    mm_dataset_options o = options_of(FILES);
    mm_dataset *all = create(&o);
    ck_assert_int_eq(mm_dataset_rows(all), FILES * ROWS);
    ck_assert_int_eq(mmi_dataset_epoch_rows(all), FILES * ROWS);
    for (int64_t row = 0; row < FILES * ROWS; row += 67) {
        mm_dataset *one = NULL;
        const char *path;
        int64_t line;
        char a[256], b[256];
        size_t size_a, size_b;
        ck_ok(mm_dataset_open(paths[row / ROWS], &one));
        ck_ok(mm_dataset_line(all, row, a, sizeof a, &size_a));
        ck_ok(mm_dataset_line(one, row % ROWS, b, sizeof b, &size_b));
        ck_assert_uint_eq(size_a, size_b);
        ck_assert_mem_eq(a, b, size_a);
        ck_ok(mm_dataset_where(all, row, &path, &line));
        ck_assert_str_eq(path, paths[row / ROWS]);
        ck_assert_int_eq(line, row % ROWS + 1);
        mm_dataset_free(one);
    }
    mm_dataset_free(all);
}
END_TEST

START_TEST(limits_take_the_first_rows_of_a_file)
{
    const int64_t limits[FILES] = { 10, 0, 1000 };
    mm_dataset_options o = options_of(FILES);
    o.max_rows = limits;
    mm_dataset *dataset = create(&o);
    ck_assert_int_eq(mm_dataset_rows(dataset), 10 + ROWS + ROWS);
    const char *path;
    int64_t line;
    ck_ok(mm_dataset_where(dataset, 9, &path, &line));
    ck_assert_str_eq(path, paths[0]);
    ck_ok(mm_dataset_where(dataset, 10, &path, &line));
    ck_assert_str_eq(path, paths[1]);
    ck_assert_int_eq(line, 1);
    mm_dataset_free(dataset);
}
END_TEST

/* How often each row comes in epochs [first, first + n). */
static void count_rows(int *times, const mm_dataset *d, int64_t first, int64_t n, bool shuffle)
{
    memset(times, 0, FILES * ROWS * sizeof *times);
    for (int64_t epoch = first; epoch < first + n; epoch++)
        for (int64_t place = 0; place < mmi_dataset_epoch_rows(d); place++) {
            int64_t row = mmi_dataset_row_at(d, place, epoch, 7, shuffle);
            ck_assert_int_ge(row, 0);
            ck_assert_int_lt(row, mm_dataset_rows(d));
            times[row]++;
        }
}

START_TEST(a_weight_says_how_often_an_epoch_takes_each_row)
{
    const double weights[FILES] = { 1, 3, 0.3 };
    int times[FILES * ROWS];
    mm_dataset_options o = options_of(FILES);
    o.weights = weights;
    mm_dataset *dataset = create(&o);
    ck_assert_int_eq(mm_dataset_rows(dataset), FILES * ROWS);
    ck_assert_int_eq(mmi_dataset_epoch_rows(dataset), ROWS + 3 * ROWS + 3 * ROWS / 10);
    for (int shuffle = 0; shuffle < 2; shuffle++) {
        for (int64_t epoch = 0; epoch < 5; epoch++) {
            int third = 0;
            count_rows(times, dataset, epoch, 1, shuffle);
            for (int row = 0; row < ROWS; row++) {
                ck_assert_int_eq(times[row], 1);
                ck_assert_int_eq(times[ROWS + row], 3);
                third += times[2 * ROWS + row];
            }
            ck_assert_int_eq(third, 3 * ROWS / 10);
        }
        count_rows(times, dataset, 0, 10, shuffle); /* 3 passes over all of its rows */
        for (int row = 0; row < ROWS; row++)
            ck_assert_int_eq(times[2 * ROWS + row], 3);
    }
    mm_dataset_free(dataset);
}
END_TEST

START_TEST(both_sides_of_a_split_are_all_rows_once)
{
    mm_dataset_options o = options_of(FILES);
    char line[256];
    size_t size;
    o.validation = 0.2;
    mm_dataset *all = create(&o);
    o.side = MM_SIDE_TRAIN;
    mm_dataset *train = create(&o);
    o.side = MM_SIDE_VALIDATION;
    mm_dataset *validation = create(&o);
    ck_assert_int_eq(mm_dataset_rows(train) + mm_dataset_rows(validation), FILES * ROWS);
    ck_assert_int_ge(mm_dataset_rows(validation), FILES * ROWS / 5 - 50);
    ck_assert_int_le(mm_dataset_rows(validation), FILES * ROWS / 5 + 50);
    int64_t t = 0, v = 0;
    for (int64_t row = 0; row < FILES * ROWS; row++) { /* both in the files' order: a merge of the two is the whole */
        const char *path, *other;
        int64_t number, at;
        ck_ok(mm_dataset_where(all, row, &path, &number));
        mm_dataset *side = train;
        if (v < mm_dataset_rows(validation)) {
            ck_ok(mm_dataset_where(validation, v, &other, &at));
            if (at == number && strcmp(path, other) == 0)
                side = validation;
        }
        int64_t at_row = side == train ? t++ : v++;
        ck_assert_int_lt(at_row, mm_dataset_rows(side));
        ck_ok(mm_dataset_where(side, at_row, &other, &at));
        ck_assert_int_eq(at, number);
        ck_assert_str_eq(path, other);
        ck_ok(mm_dataset_line(side, at_row, line, sizeof line, &size));
    }
    mm_dataset_free(all);
    mm_dataset_free(train);
    mm_dataset_free(validation);
}
END_TEST

static int on_side(const char *directory, const char *name, const char *lines, double validation)
{
    const char *one[1] = { put_file(directory, name, lines, strlen(lines)) };
    mm_dataset_options o = MM_DATASET_OPTIONS_INIT;
    mm_dataset *dataset = NULL;
    o.paths = one;
    o.count = 1;
    o.validation = validation;
    o.side = MM_SIDE_VALIDATION;
    mm_status status = mm_dataset_create(&o, &dataset);
    int rows = status == MM_OK ? (int)mm_dataset_rows(dataset) : 0;
    mm_dataset_free(dataset);
    return rows;
}

START_TEST(a_row_stays_on_its_side_wherever_it_stands)
{
    char directory[512], line[64], many[512];
    snprintf(directory, sizeof directory, "%s", scratch_directory());
    for (int i = 0; i < 40; i++) {
        snprintf(line, sizeof line, "{\"text\": \"row %d\"}\n", i);
        snprintf(many, sizeof many, "\n  %s\n%s%.17s", line, line, line);
        int alone = on_side(directory, "one.jsonl", line, 0.4);
        ck_assert_int_eq(on_side(directory, "many.jsonl", many, 0.4) >= 2, alone);
        ck_assert_int_ge(on_side(directory, "one.jsonl", line, 0.7), alone); /* a larger part keeps what was in it */
    }
}
END_TEST

START_TEST(data_chosen_in_another_way_has_another_hash)
{
    const double weights[2] = { 1, 2 };
    const int64_t limits[2] = { 0, 5 };
    mm_dataset_options o[5];
    uint64_t hashes[5];
    for (int i = 0; i < 5; i++)
        o[i] = options_of(2);
    o[1].weights = weights;
    o[2].max_rows = limits;
    o[3].validation = 0.5;
    o[3].side = MM_SIDE_TRAIN;
    o[4].validation = 0.5;
    o[4].side = MM_SIDE_VALIDATION;
    for (int i = 0; i < 5; i++) {
        mm_dataset *dataset = create(&o[i]);
        hashes[i] = mmi_dataset_hash(dataset);
        for (int j = 0; j < i; j++)
            ck_assert(hashes[i] != hashes[j]);
        mm_dataset_free(dataset);
    }
}
END_TEST

START_TEST(bad_options_are_refused)
{
    const double weights[][FILES] = { { 1, 0, 1 }, { 1, -1, 1 }, { 1, NAN, 1 }, { 1, INFINITY, 1 } };
    const int64_t limits[FILES] = { 0, -1, 0 };
    const char *missing[2] = { paths[0], NULL };
    mm_dataset_options wrong[18];
    int n = 0;
    for (int i = 0; i < 18; i++)
        wrong[i] = options_of(FILES);
    for (int i = 0; i < 4; i++)
        wrong[n++].weights = weights[i];
    wrong[n++].max_rows = limits;
    wrong[n++].paths = NULL;
    wrong[n++].count = 0;
    wrong[n++].count = -3;
    wrong[n++].count = 65537;
    wrong[n].count = 2;
    wrong[n++].paths = missing;
    wrong[n++].validation = 1;
    wrong[n++].validation = -0.1;
    wrong[n++].validation = NAN;
    wrong[n++].side = 3;
    wrong[n++].max_line = 0;
    wrong[n++].max_line = INT64_MAX;
    wrong[n++].struct_size = 0;
    mm_dataset *dataset = NULL;
    for (int i = 0; i < n; i++)
        ck_status(mm_dataset_create(&wrong[i], &dataset), MM_ERR_ARG);
    ck_status(mm_dataset_create(NULL, &dataset), MM_ERR_ARG);
    ck_status(mm_dataset_create(&wrong[17], NULL), MM_ERR_ARG);
    wrong[17].side = MM_SIDE_VALIDATION; /* of a part that is nothing */
    ck_status(mm_dataset_create(&wrong[17], &dataset), MM_ERR_FORMAT);
    ck_error_mentions("side");
    ck_assert_ptr_null(dataset);
    mm_dataset_options o = options_of(1);
    dataset = create(&o);
    ck_status(mm_dataset_where(dataset, ROWS, NULL, NULL), MM_ERR_ARG);
    ck_status(mm_dataset_where(NULL, 0, NULL, NULL), MM_ERR_ARG);
    ck_ok(mm_dataset_where(dataset, 0, NULL, NULL));
    ck_status(mm_dataset_line(dataset, -1, NULL, 0, NULL), MM_ERR_ARG);
    ck_status(mm_dataset_line(dataset, 0, NULL, 1, NULL), MM_ERR_ARG);
    mm_dataset_free(dataset);
}
END_TEST

START_TEST(one_bad_file_among_several_is_named)
{
    const char *some[3] = { paths[0], "/no/such/file.jsonl", paths[2] };
    mm_dataset_options o = options_of(3);
    mm_dataset *dataset = NULL;
    o.paths = some;
    ck_status(mm_dataset_create(&o, &dataset), MM_ERR_IO);
    ck_error_mentions("/no/such/file.jsonl");
    ck_assert_ptr_null(dataset);
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("data/files");
    TCase *tc = tcase_create("files");
    tcase_add_checked_fixture(tc, start, NULL);
    tcase_add_test(tc, files_follow_each_other);
    tcase_add_test(tc, limits_take_the_first_rows_of_a_file);
    tcase_add_test(tc, a_weight_says_how_often_an_epoch_takes_each_row);
    tcase_add_test(tc, both_sides_of_a_split_are_all_rows_once);
    tcase_add_test(tc, a_row_stays_on_its_side_wherever_it_stands);
    tcase_add_test(tc, data_chosen_in_another_way_has_another_hash);
    tcase_add_test(tc, bad_options_are_refused);
    tcase_add_test(tc, one_bad_file_among_several_is_named);
    suite_add_tcase(suite, tc);
    return suite;
}

int main(void)
{
    return run_suite(make_suite());
}
