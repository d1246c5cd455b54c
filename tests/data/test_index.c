#define _POSIX_C_SOURCE 200809L
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/memory.h"
#include "data/dataset.h"
#include "data/index.h"
#include "texts.h"

static char directory[512], path[600], cache[620];

static void start(void)
{
    snprintf(directory, sizeof directory, "%s", scratch_directory());
    snprintf(path, sizeof path, "%s", put_rows(directory, "rows.jsonl", 300, 6, 3));
    snprintf(cache, sizeof cache, "%s.mmidx", path);
}

static mm_status open_kept(mm_dataset **dataset, int64_t cache_from)
{
    const char *paths[1] = { path };
    mm_dataset_options o = MM_DATASET_OPTIONS_INIT;
    o.paths = paths;
    o.count = 1;
    o.cache_from = cache_from;
    return mm_dataset_create(&o, dataset);
}

/* All lines and where they stand, as one number. */
static uint64_t print_of(mm_dataset *dataset)
{
    mmi_hash hash;
    mmi_hash_begin(&hash);
    for (int64_t row = 0; row < mm_dataset_rows(dataset); row++) {
        char line[4096];
        size_t size;
        int64_t number;
        ck_ok(mm_dataset_line(dataset, row, line, sizeof line, &size));
        ck_ok(mm_dataset_where(dataset, row, NULL, &number));
        mmi_hash_add(&hash, line, size);
        mmi_hash_add(&hash, &number, sizeof number);
    }
    return mmi_hash_end(&hash);
}

static uint64_t open_and_print(int64_t cache_from)
{
    mm_dataset *dataset = NULL;
    ck_ok(open_kept(&dataset, cache_from));
    uint64_t print = print_of(dataset);
    mm_dataset_free(dataset);
    return print;
}

static ino_t inode_of(const char *file)
{
    struct stat info;
    return stat(file, &info) == 0 ? info.st_ino : 0;
}

START_TEST(an_index_is_kept_beside_its_file_and_used_again)
{
    mm_dataset *dataset = NULL;
    mm_memory_usage before = MM_MEMORY_USAGE_INIT, after = MM_MEMORY_USAGE_INIT;
    uint64_t print = open_and_print(-1);
    ck_assert_int_ne(access(cache, F_OK), 0);
    ck_assert(open_and_print(0) == print);
    ino_t kept = inode_of(cache);
    ck_assert(kept != 0);
    mm_memory_get_usage(&before);
    ck_ok(open_kept(&dataset, 0));
    mm_memory_get_usage(&after);
    ck_assert_uint_le(after.current - before.current, 2048); /* however many rows */
    ck_assert(print_of(dataset) == print);
    ck_assert_int_eq(mm_dataset_rows(dataset), 300);
    ck_assert(inode_of(cache) == kept);
    mm_dataset_free(dataset);
}
END_TEST

START_TEST(small_files_have_no_index_beside_them)
{
    mm_dataset *dataset = NULL;
    ck_ok(mm_dataset_open(path, &dataset));
    ck_assert_int_ne(access(cache, F_OK), 0);
    mm_dataset_free(dataset);
}
END_TEST

START_TEST(an_index_knows_the_hash_that_the_file_had)
{
    mm_dataset *scanned = NULL, *built = NULL, *kept = NULL;
    ck_ok(open_kept(&scanned, -1));
    ck_ok(open_kept(&built, 0));
    ck_ok(open_kept(&kept, 0));
    ck_assert(mmi_dataset_hash(scanned) == mmi_dataset_hash(built));
    ck_assert(mmi_dataset_hash(scanned) == mmi_dataset_hash(kept));
    ck_assert_int_eq(mmi_dataset_bytes(scanned), mmi_dataset_bytes(kept));
    mm_dataset_free(scanned);
    mm_dataset_free(built);
    mm_dataset_free(kept);
}
END_TEST

START_TEST(an_index_is_made_again_when_its_file_changes)
{
    open_and_print(0);
    ino_t kept = inode_of(cache);
    FILE *file = fopen(path, "ab");
    fputs("{\"text\": \"more\"}\n", file);
    fclose(file);
    uint64_t print = open_and_print(-1);
    ck_assert(open_and_print(0) == print);
    ck_assert(inode_of(cache) != kept);

    /* the same length and the same time, but other bytes at the end */
    struct stat info;
    ck_assert_int_eq(stat(path, &info), 0);
    kept = inode_of(cache);
    int fd = open(path, O_WRONLY);
    ck_assert_int_eq(pwrite(fd, "ERO", 3, info.st_size - 6), 3);
    ck_assert_int_eq(futimens(fd, (struct timespec[2]){ info.st_atim, info.st_mtim }), 0);
    close(fd);
    print = open_and_print(-1);
    ck_assert(open_and_print(0) == print);
    ck_assert(inode_of(cache) != kept);
}
END_TEST

static void check_made_again(uint64_t print, const char *whole, size_t size)
{
    char *again = NULL;
    size_t again_size;
    ck_assert(open_and_print(0) == print);
    ck_ok(mmi_read_file(cache, &again, &again_size));
    ck_assert_uint_eq(again_size, size);
    ck_assert_mem_eq(again, whole, size);
    mmi_free(again);
}

START_TEST(a_damaged_index_is_noticed_and_made_again)
{
    uint64_t print = open_and_print(0);
    struct stat info;
    char *whole = NULL;
    size_t size;
    ck_ok(mmi_read_file(cache, &whole, &size));
    ck_assert_int_eq(stat(cache, &info), 0);
    for (off_t at = 0; at <= info.st_size; at += 37) {
        int fd = open(cache, O_RDWR);
        if (at % 2 == 0) { /* a bit turned, or a part of it gone */
            char byte;
            ck_assert_int_ge(pread(fd, &byte, 1, at % info.st_size), 0);
            byte ^= 4;
            ck_assert_int_eq(pwrite(fd, &byte, 1, at % info.st_size), 1);
        } else {
            ck_assert_int_eq(ftruncate(fd, at), 0);
        }
        close(fd);
        check_made_again(print, whole, size);
    }
    put_file(directory, "rows.jsonl.mmidx", "", 0);
    check_made_again(print, whole, size);
    mmi_free(whole);
}
END_TEST

START_TEST(an_index_that_cannot_be_kept_is_done_without)
{
    uint64_t print = open_and_print(-1);
    ck_assert_int_eq(mkdir(cache, 0700), 0); /* its name is taken */
    ck_assert(open_and_print(0) == print);
    ck_assert_int_eq(rmdir(cache), 0);
    if (geteuid() != 0) {
        ck_assert_int_eq(chmod(directory, 0500), 0);
        ck_assert(open_and_print(0) == print);
        ck_assert_int_eq(chmod(directory, 0700), 0);
        ck_assert_int_ne(access(cache, F_OK), 0);
    }
}
END_TEST

/* How many names in a directory begin so. */
static int count_files(const char *in, const char *begin)
{
    int count = 0;
    DIR *d = opendir(in);
    ck_assert_ptr_nonnull(d);
    for (struct dirent *e; (e = readdir(d));)
        count += strncmp(e->d_name, begin, strlen(begin)) == 0;
    closedir(d);
    return count;
}

START_TEST(indices_can_be_kept_elsewhere)
{
    char elsewhere[600];
    snprintf(elsewhere, sizeof elsewhere, "%s/indices", directory);
    ck_assert_int_eq(mkdir(elsewhere, 0700), 0);
    const char *paths[1] = { path };
    mm_dataset_options o = MM_DATASET_OPTIONS_INIT;
    mm_dataset *dataset = NULL;
    o.paths = paths;
    o.count = 1;
    o.cache_from = 0;
    o.index_directory = elsewhere;
    ck_ok(mm_dataset_create(&o, &dataset));
    ck_assert_int_eq(count_files(elsewhere, "rows.jsonl."), 1);
    ck_assert_int_ne(access(cache, F_OK), 0);
    mm_dataset_free(dataset);
    o.index_directory = "/no/such/directory";
    ck_ok(mm_dataset_create(&o, &dataset));
    ck_assert_int_eq(mm_dataset_rows(dataset), 300);
    mm_dataset_free(dataset);
}
END_TEST

/* The indices of files of one name, which are known by where the files are, however that is written. */
START_TEST(files_of_one_name_have_indices_of_their_own)
{
    char elsewhere[600], other[600], link[620];
    snprintf(elsewhere, sizeof elsewhere, "%s/indices", directory);
    snprintf(other, sizeof other, "%s/other", directory);
    snprintf(link, sizeof link, "%s/link", directory);
    ck_assert_int_eq(mkdir(elsewhere, 0700), 0);
    ck_assert_int_eq(mkdir(other, 0700), 0);
    ck_assert_int_eq(symlink(other, link), 0);
    ck_assert_int_eq(chdir(directory), 0);
    put_rows(other, "rows.jsonl", 200, 6, 4);
    const char *const given[] = { path, "other/rows.jsonl", "rows.jsonl", "./other/../other/rows.jsonl",
                                  "link/rows.jsonl" };
    for (int i = 0; i < 5; i++) {
        mm_dataset_options o = MM_DATASET_OPTIONS_INIT;
        mm_dataset *dataset = NULL;
        o.paths = &given[i];
        o.count = 1;
        o.cache_from = 0;
        o.index_directory = elsewhere;
        ck_ok(mm_dataset_create(&o, &dataset));
        ck_assert_int_eq(mm_dataset_rows(dataset), i % 2 == 0 && i < 4 ? 300 : 200);
        ck_assert_int_eq(count_files(elsewhere, "rows.jsonl."), i == 0 ? 1 : 2);
        mm_dataset_free(dataset);
    }
    ck_assert_int_eq(chdir("/"), 0);
}
END_TEST

START_TEST(an_index_that_shrinks_while_in_use_is_noticed)
{
    mm_dataset *dataset = NULL;
    ck_ok(open_kept(&dataset, 0));
    ck_assert_int_eq(truncate(cache, 100), 0);
    ck_ok(mm_dataset_text(dataset, 0, NULL, 0, NULL));
    ck_status(mm_dataset_text(dataset, 200, NULL, 0, NULL), MM_ERR_IO);
    ck_error_mentions(".mmidx");
    int64_t line = 7;
    const char *file = NULL;
    ck_ok(mm_dataset_where(dataset, 0, NULL, &line));
    ck_assert_int_eq(line, 1);
    ck_status(mm_dataset_where(dataset, 200, &file, &line), MM_ERR_IO);
    ck_error_mentions(".mmidx");
    ck_assert_int_eq(line, 1);
    ck_assert_ptr_null(file);
    ck_ok(mm_dataset_where(dataset, 200, &file, NULL)); /* which needs no index */
    ck_assert_str_eq(file, path);
    ck_assert_int_eq(mmi_fail(MM_ERR_FORMAT, "a story"), MM_ERR_FORMAT);
    ck_assert_int_eq(mmi_dataset_fail_within(MM_ERR_FORMAT, dataset, 200), MM_ERR_FORMAT);
    ck_error_mentions("rows.jsonl:201: a story"); /* the nearest guess */
    mm_dataset_free(dataset);
    const char *paths[1] = { path };
    mm_dataset_options o = MM_DATASET_OPTIONS_INIT;
    o.paths = paths;
    o.count = 1;
    o.cache_from = 0;
    o.validation = 0.1;
    o.side = MM_SIDE_TRAIN;
    ck_ok(mm_dataset_create(&o, &dataset));
    ck_assert_int_eq(truncate(cache, 100), 0);
    ck_assert_int_eq(mmi_dataset_fail_within(MM_ERR_FORMAT, dataset, 200), MM_ERR_IO); /* which row it was is lost */
    ck_error_mentions(".mmidx");
    mm_dataset_free(dataset);
}
END_TEST

/* Lines and empty lines of every length round the size of a piece that is read at once. */
START_TEST(rows_are_found_wherever_pieces_end)
{
    enum { CHUNK = 1 << 16 };
    char *bytes = malloc(2 * CHUNK + 64);
    for (int shift = -5; shift <= 5; shift++) {
        size_t size = 0, first = (size_t)(CHUNK - 16 + shift);
        size += (size_t)sprintf(bytes, "\n \r\n{\"text\": \"");
        memset(bytes + size, 'a', first - size);
        size = first + (size_t)sprintf(bytes + first, "\"}\r\n \n\t\n{\"text\": \"b\"}\n\n{\"text\": \"c\"}");
        put_file(directory, "rows.jsonl", bytes, size);
        for (int64_t from = -1; from <= 0; from++) {
            mm_dataset *dataset = NULL;
            char text[4] = "";
            size_t needed;
            int64_t line;
            ck_ok(open_kept(&dataset, from));
            ck_assert_int_eq(mm_dataset_rows(dataset), 3);
            ck_ok(mm_dataset_text(dataset, 0, NULL, 0, &needed));
            ck_assert_uint_eq(needed, first - 14);
            ck_ok(mm_dataset_text(dataset, 1, text, sizeof text, NULL));
            ck_assert_int_eq(text[0], 'b');
            ck_ok(mm_dataset_where(dataset, 1, NULL, &line));
            ck_assert_int_eq(line, 6);
            ck_ok(mm_dataset_text(dataset, 2, text, sizeof text, NULL));
            ck_assert_int_eq(text[0], 'c');
            ck_ok(mm_dataset_where(dataset, 2, NULL, &line));
            ck_assert_int_eq(line, 8);
            mm_dataset_free(dataset);
        }
    }
    free(bytes);
}
END_TEST

static void hashes_of(uint32_t *hashes, int64_t rows, const char *bytes, size_t size)
{
    int fd;
    mmi_look seen;
    mmi_index index;
    mmi_index_row row;
    ck_ok(mmi_open_file(put_file(directory, "ends.jsonl", bytes, size), &fd, &seen));
    ck_ok(mmi_index_open(&index, fd, &seen, "ends.jsonl", NULL));
    ck_assert_int_eq(index.rows, rows);
    for (int64_t i = 0; i < rows; i++) {
        ck_ok(mmi_index_get(&row, &index, i, 1));
        hashes[i] = row.hash;
    }
    mmi_index_close(&index);
    close(fd);
}

/* Which side of a split a row is on must not change with it, also where a piece that is read at once ends within it. */
START_TEST(the_end_of_a_line_is_no_part_of_its_hash)
{
    enum { CHUNK = 1 << 16 };
    static const char *const ends[] = { "\n", "\r\n", "", "\r" };
    static char bytes[CHUNK + 64];
    for (int shift = -5; shift <= 5; shift++) {
        size_t size = (size_t)(CHUNK - 2 + shift);
        uint32_t first[2] = { 0 }, hashes[2];
        memset(bytes, 'a', size);
        for (size_t e = 0; e < 4; e++) {
            const char *between = e < 2 ? ends[e] : "\n";
            size_t whole = size + (size_t)sprintf(bytes + size, "%sa\rb%s", between, ends[e]);
            hashes_of(hashes, 2, bytes, whole);
            if (e == 0)
                memcpy(first, hashes, sizeof first);
            ck_assert_mem_eq(hashes, first, sizeof first);
        }
        sprintf(bytes + size, "\r\r\na\rb \r\n"); /* but one before the end, and white space before that, are */
        hashes_of(hashes, 2, bytes, size + 9);
        ck_assert_uint_ne(hashes[0], first[0]);
        ck_assert_uint_ne(hashes[1], first[1]);
    }
}
END_TEST

/* Indices of files with such ends were made with other hashes before. */
START_TEST(a_split_of_lines_that_end_in_carriage_returns_is_known_as_such)
{
    uint64_t hashes[2], facts[5];
    for (int returns = 0; returns < 2; returns++)
        for (int64_t from = -1; from <= 0; from++) {
            const char *paths[1] = { path }, *bytes = returns ? "a\r\nb\r\nc\r\nd\r\n" : "a\nb\nc\nd\n";
            mm_dataset_options o = MM_DATASET_OPTIONS_INIT;
            mm_dataset *dataset = NULL;
            put_file(directory, "rows.jsonl", bytes, strlen(bytes));
            o.paths = paths;
            o.count = 1;
            o.cache_from = from;
            for (int again = 0; again < 2; again++) { /* made, and read again */
                o.side = MM_SIDE_ALL;
                ck_ok(mm_dataset_create(&o, &dataset));
                facts[0] = mmi_dataset_hash(dataset);
                mm_dataset_free(dataset);
                o.validation = 0.5;
                o.side = MM_SIDE_TRAIN;
                ck_ok(mm_dataset_create(&o, &dataset));
                hashes[0] = mmi_dataset_hash(dataset);
                facts[1] = 4;
                facts[2] = (uint64_t)1 << 31;
                facts[3] = (uint64_t)1 << 32;
                facts[4] = (uint64_t)mm_dataset_rows(dataset);
                mm_dataset_free(dataset);
                mmi_hash hash;
                mmi_hash_begin(&hash);
                mmi_hash_add(&hash, facts, sizeof facts);
                hashes[1] = mmi_hash_end(&hash); /* what checkpoints of all others have */
                ck_assert_int_eq(hashes[0] == hashes[1], !returns);
            }
        }
}
END_TEST

START_TEST(every_failing_allocation_is_survived)
{
    mm_memory_usage before = MM_MEMORY_USAGE_INIT, after = MM_MEMORY_USAGE_INIT;
    mm_memory_get_usage(&before);
    bool done = false;
    for (uint64_t n = 1; !done; n++) {
        mm_dataset *dataset = NULL;
        unlink(cache);
        ck_assert_uint_lt(n, 100);
        mmi_memory_fail_at(n, false);
        mm_status status = open_kept(&dataset, 0);
        done = mmi_memory_fail_at(0, false) < n;
        if (status != MM_OK)
            ck_assert_int_eq(status, MM_ERR_MEMORY);
        else
            ck_assert_int_eq(mm_dataset_rows(dataset), 300);
        mm_dataset_free(dataset);
    }
    mm_memory_get_usage(&after);
    ck_assert_uint_eq(before.current, after.current);
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("data/index");
    TCase *tc = tcase_create("index");
    tcase_add_checked_fixture(tc, start, NULL);
    tcase_add_test(tc, an_index_is_kept_beside_its_file_and_used_again);
    tcase_add_test(tc, small_files_have_no_index_beside_them);
    tcase_add_test(tc, an_index_knows_the_hash_that_the_file_had);
    tcase_add_test(tc, an_index_is_made_again_when_its_file_changes);
    tcase_add_test(tc, a_damaged_index_is_noticed_and_made_again);
    tcase_add_test(tc, an_index_that_cannot_be_kept_is_done_without);
    tcase_add_test(tc, indices_can_be_kept_elsewhere);
    tcase_add_test(tc, files_of_one_name_have_indices_of_their_own);
    tcase_add_test(tc, an_index_that_shrinks_while_in_use_is_noticed);
    tcase_add_test(tc, rows_are_found_wherever_pieces_end);
    tcase_add_test(tc, the_end_of_a_line_is_no_part_of_its_hash);
    tcase_add_test(tc, a_split_of_lines_that_end_in_carriage_returns_is_known_as_such);
    tcase_add_test(tc, every_failing_allocation_is_survived);
    tcase_set_timeout(tc, 60);
    suite_add_tcase(suite, tc);
    return suite;
}

int main(void)
{
    return run_suite(make_suite());
}
