/* Files: read whole, mapped or in parts; written so that a reader sees the old or the new one; a full disk. */
#define _GNU_SOURCE /* syscall */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/files.h"
#include "base/memory.h"
#include "support.h"

static char path[640], directory[320];

enum { LARGE = 2 << 20, MOST_WRITES = 100 };

static struct {
    bool watched;
    int count;
    struct {
        off_t from;
        size_t size;
    } at[MOST_WRITES];
} writes;

/* Stands before the C library's. */
ssize_t write(int fd, const void *data, size_t size)
{
    if (writes.watched && writes.count < MOST_WRITES) {
        writes.at[writes.count].from = lseek(fd, 0, SEEK_CUR);
        writes.at[writes.count++].size = size;
    }
    return syscall(SYS_write, fd, data, size);
}

static void in_scratch(const char *name)
{
    snprintf(directory, sizeof directory, "%s", scratch_directory());
    snprintf(path, sizeof path, "%s/%s", directory, name);
}

static int count_entries(const char *where)
{
    DIR *d = opendir(where);
    ck_assert_ptr_nonnull(d);
    int n = 0;
    for (struct dirent *e; (e = readdir(d)) != NULL;)
        n += strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0;
    closedir(d);
    return n;
}

static void assert_holds(const char *name, const void *data, size_t size)
{
    char *text = NULL;
    size_t length = 0;
    ck_ok(mmi_read_file(name, &text, &length));
    ck_assert_uint_eq(length, size);
    ck_assert(memcmp(text, data, size) == 0);
    ck_assert_int_eq(text[length], '\0');
    mmi_free(text);
}

START_TEST(paths_join_with_one_slash)
{
    static const char *const joins[][3] = {
        { "a", "b", "a/b" }, { "a/", "b", "a/b" }, { "", "b", "b" }, { "/", "b", "/b" }, { "a/b", "", "a/b/" },
    };
    for (size_t i = 0; i < sizeof joins / sizeof *joins; i++) {
        char *joined = mmi_path_join(joins[i][0], joins[i][1]);
        ck_assert_str_eq(joined, joins[i][2]);
        mmi_free(joined);
    }
}
END_TEST

START_TEST(a_path_is_resolved_where_something_is)
{
    char other[700];
    in_scratch("file");
    ck_ok(mmi_write_file(path, "x", 1));
    char *first = mmi_path_resolve(path);
    ck_assert_int_eq(first[0], '/');
    snprintf(other, sizeof other, "%s/link", directory);
    ck_assert_int_eq(symlink(path, other), 0);
    char *second = mmi_path_resolve(other), *third = mmi_path_resolve("no/such/file");
    ck_assert_str_eq(first, second);
    ck_assert_str_eq(third, "no/such/file");
    mmi_free(first);
    mmi_free(second);
    mmi_free(third);
}
END_TEST

START_TEST(what_was_written_is_read_back_whatever_its_size)
{
    static const size_t sizes[] = { 0, 1, 100, 65535, 65536, 65537, 300000, LARGE - 1, LARGE, LARGE + 1 };
    in_scratch("data");
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        unsigned char *data = mmi_alloc(sizes[i], 1);
        for (size_t j = 0; j < sizes[i]; j++)
            data[j] = (unsigned char)(j * 7 + i);
        ck_ok(mmi_write_file(path, data, sizes[i]));
        assert_holds(path, data, sizes[i]);
        ck_assert_int_eq(count_entries(directory), 1);
        mmi_free(data);
    }
    ck_ok(mmi_write_file(path, NULL, 0)); /* nothing may come from nowhere */
}
END_TEST

START_TEST(many_small_pieces_make_the_same_file)
{
    in_scratch("pieces");
    static unsigned char data[200000];
    for (size_t i = 0; i < sizeof data; i++)
        data[i] = (unsigned char)(i ^ i >> 8);
    mmi_writer w;
    ck_ok(mmi_writer_open(&w, path));
    size_t at = 0;
    for (size_t piece = 0; at < sizeof data; piece = (piece * 5 + 3) % 9001) {
        size_t n = piece < sizeof data - at ? piece : sizeof data - at;
        ck_ok(mmi_writer_put(&w, data + at, n));
        at += n;
    }
    ck_assert_uint_eq(w.written, sizeof data);
    ck_assert(!mmi_file_exists(path));
    ck_ok(mmi_writer_commit(&w));
    assert_holds(path, data, sizeof data);
}
END_TEST

/* As file systems keep in large pages what is written so. */
START_TEST(a_large_file_is_written_in_large_pieces_from_multiples_of_them)
{
    static unsigned char data[9 * LARGE / 2 + 123];
    static const size_t pieces[] = { 8, 65528, 1, 70000, LARGE / 2, 5 * LARGE / 2, 12345, 1 };
    in_scratch("large");
    for (size_t i = 0; i < sizeof data; i++)
        data[i] = (unsigned char)(i ^ i >> 8 ^ i >> 16);
    for (int poor = 0; poor < 3; poor++) { /* without memory for them in smaller ones: for ever, or only at first */
        mmi_writer w;
        ck_ok(mmi_writer_open(&w, path));
        writes.count = 0;
        writes.watched = true;
        mmi_memory_fail_at(poor > 0, poor == 1);
        size_t at = 0;
        for (size_t i = 0; at < sizeof data; i++) {
            size_t n = pieces[i % (sizeof pieces / sizeof *pieces)];
            n = n < sizeof data - at ? n : sizeof data - at;
            ck_ok(mmi_writer_put(&w, data + at, n));
            at += n;
        }
        mmi_memory_fail_at(0, false);
        ck_ok(mmi_writer_commit(&w));
        writes.watched = false;
        assert_holds(path, data, sizeof data);
        ck_assert_uint_eq(writes.at[0].size, poor ? 65536 : LARGE);
        for (int i = 0; i < writes.count; i++) {
            ck_assert_int_eq(writes.at[i].from % writes.at[0].size, 0);
            ck_assert(writes.at[i].size % writes.at[0].size == 0 || i == writes.count - 1);
        }
    }
}
END_TEST

START_TEST(a_small_file_takes_little_memory)
{
    in_scratch("small");
    mm_memory_usage before = MM_MEMORY_USAGE_INIT, after = MM_MEMORY_USAGE_INIT;
    mm_memory_reset_peak();
    ck_ok(mm_memory_get_usage(&before));
    ck_ok(mmi_write_file(path, "small", 5));
    ck_ok(mm_memory_get_usage(&after));
    ck_assert_uint_lt(after.peak - before.current, 70000);
}
END_TEST

START_TEST(an_abandoned_file_leaves_the_old_one)
{
    in_scratch("kept");
    ck_ok(mmi_write_file(path, "old", 3));
    mmi_writer w;
    ck_ok(mmi_writer_open(&w, path));
    ck_ok(mmi_writer_put(&w, "new and longer", 14));
    ck_assert_int_eq(count_entries(directory), 2);
    mmi_writer_abandon(&w);
    mmi_writer_abandon(&w);
    ck_assert_int_eq(count_entries(directory), 1);
    assert_holds(path, "old", 3);
    mmi_writer zero = { 0 };
    mmi_writer_abandon(&zero);
}
END_TEST

START_TEST(two_writers_of_one_file_do_not_meet)
{
    in_scratch("twice");
    mmi_writer a, b;
    ck_ok(mmi_writer_open(&a, path));
    ck_ok(mmi_writer_open(&b, path));
    ck_ok(mmi_writer_put(&a, "aaaa", 4));
    ck_ok(mmi_writer_put(&b, "bb", 2));
    ck_ok(mmi_writer_commit(&a));
    assert_holds(path, "aaaa", 4);
    ck_ok(mmi_writer_commit(&b));
    assert_holds(path, "bb", 2);
    ck_assert_int_eq(count_entries(directory), 1);
}
END_TEST

/* A name of `length` bytes: letters of one byte, or of three behind `length % 3` of one. */
static void long_name(char *name, size_t length, bool wide)
{
    size_t n = wide ? length % 3 : length;
    memset(name, 'n', n);
    for (; n < length; n += 3)
        memcpy(name + n, "名", 3);
    name[length] = '\0';
}

START_TEST(a_name_of_any_length_that_the_file_system_takes_can_be_written_to)
{
    static const size_t lengths[] = { 255, 254, 240, 219, 97, 96, 1 };
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++)
        for (int wide = 0; wide < 2; wide++) {
            char name[256];
            mmi_writer other;
            long_name(name, lengths[i], wide);
            in_scratch(name);
            ck_ok(mmi_write_file(path, "old", 3));
            ck_ok(mmi_writer_open(&other, path));
            ck_ok(mmi_write_file(path, "new", 3));
            assert_holds(path, "new", 3);
            mmi_writer_abandon(&other);
            ck_assert_int_eq(count_entries(directory), 1);
        }
}
END_TEST

/* Two whose beginnings are the same do not meet either; and one that is too long is refused before anything is written.
 */
START_TEST(long_names_that_differ_at_their_ends_do_not_meet)
{
    char name[300], first[640];
    long_name(name, 254, false);
    strcat(name, "a");
    in_scratch(name);
    strcpy(first, path);
    mmi_writer a, b;
    ck_ok(mmi_writer_open(&a, path));
    path[strlen(path) - 1] = 'b';
    ck_ok(mmi_writer_open(&b, path));
    ck_ok(mmi_writer_put(&a, "aaaa", 4));
    ck_ok(mmi_writer_put(&b, "bb", 2));
    ck_ok(mmi_writer_commit(&b));
    ck_ok(mmi_writer_commit(&a));
    assert_holds(first, "aaaa", 4);
    assert_holds(path, "bb", 2);
    strcat(path, "c");
    ck_status(mmi_writer_open(&a, path), MM_ERR_IO);
    ck_error_mentions("can't create");
    ck_assert_int_eq(count_entries(directory), 2);
}
END_TEST

/* Files may grow to `bytes`; more is an error, as on a full disk. */
static void limit_file_size(rlim_t bytes)
{
    signal(SIGXFSZ, SIG_IGN);
    struct rlimit limit;
    ck_assert_int_eq(getrlimit(RLIMIT_FSIZE, &limit), 0);
    limit.rlim_cur = bytes;
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

START_TEST(a_full_disk_is_a_status_and_the_old_file_stands)
{
    in_scratch("full");
    static char data[200000];
    ck_ok(mmi_write_file(path, "old", 3));
    limit_file_size(100000);
    ck_status(mmi_write_file(path, data, sizeof data), MM_ERR_IO);
    ck_error_mentions("full");
    ck_assert_int_eq(count_entries(directory), 1);
    assert_holds(path, "old", 3);
}
END_TEST

START_TEST(every_piece_added_to_a_file_is_there_whole_or_not_at_all)
{
    in_scratch("added");
    static char data[60000];
    memset(data, 'x', sizeof data);
    mmi_appender a;
    ck_ok(mmi_appender_open(&a, path));
    ck_ok(mmi_appender_put(&a, "one\n", 4));
    assert_holds(path, "one\n", 4); /* at once */
    mmi_appender_close(&a);
    ck_ok(mmi_appender_open(&a, path));
    ck_assert_uint_eq(a.size, 4);
    ck_ok(mmi_appender_put(&a, "two\n", 4));
    limit_file_size(20000);
    ck_status(mmi_appender_put(&a, data, sizeof data), MM_ERR_IO);
    ck_error_mentions("added");
    assert_holds(path, "one\ntwo\n", 8);
    ck_ok(mmi_appender_put(&a, "three\n", 6));
    mmi_appender_cut(&a, 8);
    ck_ok(mmi_appender_put(&a, "3\n", 2));
    assert_holds(path, "one\ntwo\n3\n", 10);
    mmi_appender_close(&a);
    mmi_appender_close(&a);
    ck_status(mmi_appender_open(&a, directory), MM_ERR_IO);
    ck_status(mmi_appender_open(&a, "/no/such/place"), MM_ERR_IO);
    ck_error_mentions("/no/such/place");
}
END_TEST

START_TEST(an_error_sticks_to_its_writer)
{
    in_scratch("sticks");
    static char data[LARGE];
    limit_file_size(LARGE + 30000);
    mmi_writer w;
    ck_ok(mmi_writer_open(&w, path));
    ck_ok(mmi_writer_put(&w, data, sizeof data));
    ck_status(mmi_writer_put(&w, data, sizeof data), MM_ERR_IO);
    ck_status(mmi_writer_put(&w, "x", 1), MM_ERR_IO);
    ck_status(mmi_writer_commit(&w), MM_ERR_IO);
    ck_status(mmi_writer_commit(&w), MM_ERR_IO);
    ck_assert_int_eq(count_entries(directory), 0);
}
END_TEST

START_TEST(a_place_that_cannot_be_written_is_named)
{
    in_scratch("missing/data");
    ck_status(mmi_write_file(path, "x", 1), MM_ERR_IO);
    ck_error_mentions("missing/data");
    in_scratch("directory");
    ck_ok(mmi_make_directory(path));
    char child[700];
    snprintf(child, sizeof child, "%s/child", path);
    ck_ok(mmi_write_file(child, "x", 1));
    ck_status(mmi_write_file(path, "x", 1), MM_ERR_IO); /* a directory that is not empty stands there */
    ck_error_mentions("directory");
    ck_assert_int_eq(count_entries(directory), 1);
}
END_TEST

START_TEST(only_a_regular_file_is_replaced)
{
    in_scratch("pipe");
    ck_assert_int_eq(mkfifo(path, 0600), 0);
    mmi_writer w;
    ck_status(mmi_writer_open(&w, path), MM_ERR_IO);
    ck_error_mentions("pipe: is not a regular file");
    ck_status(mmi_writer_put(&w, "x", 1), MM_ERR_IO);
    ck_error_mentions("is not a regular file");
    ck_status(mmi_write_file(directory, "x", 1), MM_ERR_IO);
    ck_error_mentions("is not a regular file");
    struct stat info;
    ck_assert(lstat(path, &info) == 0 && S_ISFIFO(info.st_mode));
    ck_assert_int_eq(count_entries(directory), 1);
}
END_TEST

/* As root everything may be read, so this asks as somebody else. */
START_TEST(a_directory_that_cannot_be_listed_can_be_written_to)
{
    in_scratch("blind");
    ck_ok(mmi_make_directory(path));
    ck_assert_int_eq(chmod(path, 0333), 0);
    pid_t pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        if (chdir(path) != 0 || (geteuid() == 0 && setuid(65534) != 0))
            _exit(2);
        _exit(mmi_write_file("file", "x", 1) != MM_OK);
    }
    int how;
    ck_assert_int_eq(waitpid(pid, &how, 0), pid);
    ck_assert(WIFEXITED(how));
    ck_assert_int_eq(WEXITSTATUS(how), 0);
    strcat(path, "/file");
    assert_holds(path, "x", 1);
}
END_TEST

START_TEST(writing_without_memory_is_a_status_and_leaves_no_file)
{
    for (uint64_t n = 1; n <= 4; n++) {
        in_scratch("memory");
        mmi_memory_fail_at(n, false);
        mm_status status = mmi_write_file(path, "x", 1);
        mmi_memory_fail_at(0, false);
        ck_assert_msg(status == MM_ERR_MEMORY || n > 3, "allocation %d gave %s", (int)n, mm_status_name(status));
        if (n <= 3)
            ck_assert_int_eq(count_entries(directory), 0);
    }
}
END_TEST

START_TEST(what_cannot_be_read_is_named_and_nothing_is_given)
{
    char *data = NULL;
    size_t size = 77;
    mmi_mapping mapping = { NULL, 0 };
    mmi_reader reader = { -1, 0, false };
    in_scratch("absent");
    ck_status(mmi_read_file(path, &data, &size), MM_ERR_IO);
    ck_error_mentions("absent");
    ck_error_mentions("No such file");
    ck_status(mmi_map_file(path, &mapping), MM_ERR_IO);
    ck_status(mmi_reader_open(&reader, path), MM_ERR_IO);
    ck_status(mmi_read_file(directory, &data, &size), MM_ERR_IO);
    ck_error_mentions("not a regular file");
    ck_status(mmi_read_file("/dev/zero", &data, &size), MM_ERR_IO);
    ck_ok(mmi_write_file(path, "abc", 3));
    mmi_memory_fail_at(1, false);
    ck_status(mmi_read_file(path, &data, &size), MM_ERR_MEMORY);
    mmi_memory_fail_at(0, false);
    ck_assert_ptr_null(data);
    ck_assert_uint_eq(size, 77);
    ck_assert(!reader.open);
}
END_TEST

/* Nothing waits for somebody at the other end of a pipe; the test's time ends where it does. */
START_TEST(a_pipe_is_refused_whichever_way_it_is_opened)
{
    char *data = NULL;
    size_t size = 77;
    int fd = -1;
    mmi_look seen;
    mmi_mapping mapping = { NULL, 0 };
    mmi_reader reader = { -1, 0, false };
    mmi_appender appender;
    in_scratch("pipe");
    ck_assert_int_eq(mkfifo(path, 0600), 0);
    ck_status(mmi_open_file(path, &fd, &seen), MM_ERR_IO);
    ck_error_mentions("pipe: is not a regular file");
    ck_status(mmi_read_file(path, &data, &size), MM_ERR_IO);
    ck_status(mmi_map_file(path, &mapping), MM_ERR_IO);
    ck_status(mmi_reader_open(&reader, path), MM_ERR_IO);
    ck_status(mmi_appender_open(&appender, path), MM_ERR_IO); /* that nobody reads */
    ck_error_mentions("pipe: can't open");
    const int other = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    ck_assert_int_ge(other, 0);
    ck_status(mmi_appender_open(&appender, path), MM_ERR_IO);
    ck_error_mentions("pipe: is not a regular file");
    close(other);
    ck_assert(fd == -1 && !data && size == 77 && !mapping.data && !reader.open);
}
END_TEST

START_TEST(a_mapping_shows_the_file)
{
    in_scratch("mapped");
    ck_ok(mmi_write_file(path, "0123456789", 10));
    mmi_mapping mapping;
    ck_ok(mmi_map_file(path, &mapping));
    ck_assert_uint_eq(mapping.size, 10);
    ck_assert(memcmp(mapping.data, "0123456789", 10) == 0);
    ck_ok(mmi_write_file(path, "changed", 7)); /* a new file takes its name; the mapping keeps the old one */
    ck_assert(memcmp(mapping.data, "0123456789", 10) == 0);
    mmi_unmap_file(&mapping);
    ck_assert_ptr_null(mapping.data);
    mmi_unmap_file(&mapping);
    ck_ok(mmi_write_file(path, "", 0));
    ck_ok(mmi_map_file(path, &mapping));
    ck_assert_ptr_null(mapping.data);
    ck_assert_uint_eq(mapping.size, 0);
}
END_TEST

START_TEST(a_reader_notices_a_file_that_became_shorter)
{
    in_scratch("read");
    ck_ok(mmi_write_file(path, "0123456789", 10));
    mmi_reader r = { -1, 0, false };
    ck_ok(mmi_reader_open(&r, path));
    ck_assert_uint_eq(r.size, 10);
    char part[8] = "";
    ck_ok(mmi_reader_get(&r, part, 4, 3, path));
    ck_assert_str_eq(part, "3456");
    ck_ok(mmi_reader_get(&r, part, 0, 10, path));
    ck_status(mmi_reader_get(&r, part, 2, 9, path), MM_ERR_IO);
    ck_assert_int_eq(truncate(path, 5), 0);
    ck_status(mmi_reader_get(&r, part, 4, 3, path), MM_ERR_IO);
    ck_error_mentions("shorter");
    mmi_reader_close(&r);
    mmi_reader_close(&r);
}
END_TEST

START_TEST(a_file_of_any_size_is_read_at_any_place)
{
    const int64_t size = ((int64_t)5 << 30) + 4; /* most of it a hole */
    in_scratch("large");
    ck_ok(mmi_write_file(path, "0123456789", 10));
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    ssize_t written = pwrite(fd, "last", 4, (off_t)size - 4);
    close(fd);
    if (written < 0 && (errno == EFBIG || errno == ENOSPC)) { /* no holes, or a limit on what files may be */
        printf("# passed over: %s can't be so large\n", path);
        return;
    }
    ck_assert_int_eq(written, 4);
    mmi_look seen, later;
    ck_ok(mmi_open_file(path, &fd, &seen));
    ck_assert_int_eq(seen.size, size);
    char end[5] = "";
    ck_ok(mmi_read_at(fd, end, 4, (uint64_t)size - 4, path));
    ck_assert_str_eq(end, "last");
    size_t got = 1;
    ck_ok(mmi_read_some(fd, end, 4, (uint64_t)size, &got, path));
    ck_assert_uint_eq(got, 0);
    ck_assert_int_eq(truncate(path, 3), 0);
    ck_ok(mmi_look_at(&later, fd, path));
    ck_assert_int_eq(later.size, 3);
    close(fd);
}
END_TEST

/* In 2038 the seconds since 1970 outgrow 31 bits. (A file system may have an earlier end of its own, and take that.) */
START_TEST(a_file_of_the_year_2100_is_a_file)
{
    in_scratch("future");
    ck_ok(mmi_write_file(path, "x", 1));
    const struct timespec century = { .tv_sec = (time_t)INT64_C(4102444800), .tv_nsec = 5 };
    ck_assert_int_eq(utimensat(AT_FDCWD, path, (const struct timespec[]){ century, century }, 0), 0);
    struct stat info;
    ck_assert_int_eq(stat(path, &info), 0);
    mmi_look seen;
    int fd = -1;
    ck_ok(mmi_open_file(path, &fd, &seen));
    ck_assert_int_ge(seen.seconds, INT32_MAX);
    ck_assert_int_eq(seen.seconds, info.st_mtim.tv_sec);
    ck_assert_int_eq(seen.nanoseconds, info.st_mtim.tv_nsec);
    close(fd);
}
END_TEST

START_TEST(directories_are_made_with_their_parents_and_removed_with_their_children)
{
    in_scratch("a/b/c");
    ck_ok(mmi_make_directory(path));
    ck_ok(mmi_make_directory(path));
    ck_assert(mmi_is_directory(path));
    char file[700];
    snprintf(file, sizeof file, "%s/file", path);
    ck_ok(mmi_write_file(file, "x", 1));
    ck_assert(mmi_file_exists(file));
    ck_assert(!mmi_is_directory(file));
    ck_status(mmi_make_directory(file), MM_ERR_IO);
    ck_status(mmi_make_directory(""), MM_ERR_IO);
    ck_error_mentions("without a name");
    snprintf(path, sizeof path, "%s/a", directory);
    ck_ok(mmi_remove_tree(path));
    ck_assert(!mmi_file_exists(path));
    ck_ok(mmi_remove_tree(path));
}
END_TEST

/* To a file, and to a directory, inside of the tree and in its place. */
START_TEST(removing_a_tree_does_not_follow_links)
{
    in_scratch("tree");
    char outside[512], file[600], link[700];
    snprintf(outside, sizeof outside, "%s/outside", directory);
    snprintf(file, sizeof file, "%s/file", outside);
    ck_ok(mmi_make_directory(path));
    ck_ok(mmi_make_directory(outside));
    ck_ok(mmi_write_file(file, "x", 1));
    snprintf(link, sizeof link, "%s/to-a-file", path);
    ck_assert_int_eq(symlink(file, link), 0);
    snprintf(link, sizeof link, "%s/to-a-directory", path);
    ck_assert_int_eq(symlink(outside, link), 0);
    ck_ok(mmi_remove_tree(path));
    ck_assert(!mmi_file_exists(path));
    assert_holds(file, "x", 1);
    ck_assert_int_eq(symlink(outside, path), 0);
    ck_ok(mmi_remove_tree(path));
    ck_assert(!mmi_file_exists(path));
    assert_holds(file, "x", 1);
}
END_TEST

START_TEST(a_finished_directory_is_renamed_into_place)
{
    in_scratch("done");
    char temporary[700];
    snprintf(temporary, sizeof temporary, "%s.tmp", path);
    ck_ok(mmi_make_directory(temporary));
    ck_ok(mmi_rename_synced(temporary, path));
    ck_assert(mmi_is_directory(path) && !mmi_file_exists(temporary));
    ck_status(mmi_rename_synced(temporary, path), MM_ERR_IO);
    ck_error_mentions("done");
}
END_TEST

START_TEST(the_clock_goes_forward)
{
    double before = mmi_now();
    for (int i = 0; i < 1000; i++) {
        double now = mmi_now();
        ck_assert(now >= before);
        before = now;
    }
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("base/files");
    TCase *c = tcase_create("files");
    tcase_add_test(c, paths_join_with_one_slash);
    tcase_add_test(c, a_path_is_resolved_where_something_is);
    tcase_add_test(c, what_was_written_is_read_back_whatever_its_size);
    tcase_add_test(c, many_small_pieces_make_the_same_file);
    tcase_add_test(c, a_large_file_is_written_in_large_pieces_from_multiples_of_them);
    tcase_add_test(c, a_small_file_takes_little_memory);
    tcase_add_test(c, an_abandoned_file_leaves_the_old_one);
    tcase_add_test(c, two_writers_of_one_file_do_not_meet);
    tcase_add_test(c, a_name_of_any_length_that_the_file_system_takes_can_be_written_to);
    tcase_add_test(c, long_names_that_differ_at_their_ends_do_not_meet);
    tcase_add_test(c, a_full_disk_is_a_status_and_the_old_file_stands);
    tcase_add_test(c, every_piece_added_to_a_file_is_there_whole_or_not_at_all);
    tcase_add_test(c, an_error_sticks_to_its_writer);
    tcase_add_test(c, a_place_that_cannot_be_written_is_named);
    tcase_add_test(c, writing_without_memory_is_a_status_and_leaves_no_file);
    tcase_add_test(c, what_cannot_be_read_is_named_and_nothing_is_given);
    tcase_add_test(c, a_pipe_is_refused_whichever_way_it_is_opened);
    tcase_add_test(c, a_mapping_shows_the_file);
    tcase_add_test(c, a_reader_notices_a_file_that_became_shorter);
    tcase_add_test(c, a_file_of_any_size_is_read_at_any_place);
    tcase_add_test(c, a_file_of_the_year_2100_is_a_file);
    tcase_add_test(c, directories_are_made_with_their_parents_and_removed_with_their_children);
    tcase_add_test(c, removing_a_tree_does_not_follow_links);
    tcase_add_test(c, only_a_regular_file_is_replaced);
    tcase_add_test(c, a_directory_that_cannot_be_listed_can_be_written_to);
    tcase_add_test(c, a_finished_directory_is_renamed_into_place);
    tcase_add_test(c, the_clock_goes_forward);
    suite_add_tcase(suite, c);
    return suite;
}

int main(void)
{
    return run_suite(make_suite());
}
