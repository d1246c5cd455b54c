/* Which processors are one core, from files as Linux has them, and as it should not have them. */
#define _POSIX_C_SOURCE 200809L /* mkfifo */
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/cores.h"
#include "base/files.h"
#include "support.h"

#ifdef __linux__

enum { MOST = 8 };

static void path_of(char path[512], const char *root, int processor)
{
    snprintf(path, 512, "%s/sys/devices/system/cpu/cpu%d/topology", root, processor);
    ck_ok(mmi_make_directory(path));
    strcat(path, "/thread_siblings_list");
}

/* lists[i] is processor i's; NULL: it has no file. */
static int cores_with(const char *const lists[MOST], const int *processors, int count)
{
    char root[320], path[512];
    snprintf(root, sizeof root, "%s", scratch_directory());
    for (int i = 0; i < MOST; i++) {
        if (!lists[i])
            continue;
        path_of(path, root, i);
        FILE *f = fopen(path, "w");
        ck_assert_ptr_nonnull(f);
        ck_assert(fputs(lists[i], f) >= 0);
        ck_assert_int_eq(fclose(f), 0);
    }
    return mmi_core_count(root, processors, count);
}

typedef struct situation {
    const char *what;
    int cores, count;
    int processors[MOST];
    const char *lists[MOST];
} situation;

static const situation situations[] = {
    { "nobody knows", 4, 4, { 0, 1, 2, 3 }, { NULL } },
    { "one thread a core", 3, 3, { 0, 1, 2 }, { "0\n", "1\n", "2\n" } },
    { "siblings beside each other", 2, 4, { 0, 1, 2, 3 }, { "0-1\n", "0-1\n", "2-3\n", "2-3\n" } },
    { "siblings far apart", 2, 4, { 0, 1, 2, 3 }, { "0,2\n", "1,3\n", "0,2\n", "1,3\n" } },
    { "four threads a core", 2, 8, { 0, 1, 2, 3, 4, 5, 6, 7 },
      { "0-3\n", "0-3\n", "0-3\n", "0-3\n", "4-7\n", "4-7\n", "4-7\n", "4-7\n" } },
    { "ranges and numbers", 1, 4, { 0, 1, 4, 5 },
      { "0-1,4-5\n", "0-1,4-5\n", NULL, NULL, "0-1,4-5\n", "0-1,4-5\n" } },
    { "cores with two threads and cores with one", 4, 6, { 0, 1, 2, 3, 4, 5 },
      { "0-1\n", "0-1\n", "2-3\n", "2-3\n", "4\n", "5\n" } },
    { "of each core one may be used", 2, 2, { 1, 2 }, { "0-1\n", "0-1\n", "2-3\n", "2-3\n" } },
    { "of one core both, of another one", 2, 3, { 1, 2, 3 }, { "0-1\n", "0-1\n", "2-3\n", "2-3\n" } },
    { "one processor", 1, 1, { 3 }, { NULL, NULL, NULL, "2-3\n" } },
    { "some files are missing", 3, 4, { 0, 1, 2, 3 }, { "0-1\n", "0-1\n" } },
    { "empty files", 2, 2, { 0, 1 }, { "", "" } },
    { "words", 2, 2, { 0, 1 }, { "none\n", "none\n" } },
    { "half a range", 2, 2, { 0, 1 }, { "0-\n", "0-\n" } },
    { "an end without a range", 1, 2, { 0, 1 }, { "0,1", "0,1" } },
    { "a range that runs backwards", 2, 2, { 0, 1 }, { "1-0\n", "1-0\n" } },
    { "numbers beyond all processors", 2, 2, { 0, 1 },
      { "99999999999999999999999\n", "7-99999999999999999999999\n" } },
    { "numbers below", 1, 2, { 0, 1 }, { "-5-9\n", "-5-9\n" } },
    { "none", 0, 0, { 0 }, { NULL } },
};

START_TEST(hardware_threads_of_a_core_count_once)
{
    const situation *s = &situations[_i];
    const int got = cores_with(s->lists, s->processors, s->count);
    ck_assert_msg(got == s->cores, "%s: %d for %d", s->what, got, s->cores);
}
END_TEST

START_TEST(a_pipe_a_directory_or_a_long_line_is_no_harm)
{
    char root[320], path[512];
    const int processors[] = { 0, 1, 2 };
    snprintf(root, sizeof root, "%s", scratch_directory());
    path_of(path, root, 0);
    ck_assert_int_eq(mkfifo(path, 0600), 0); /* that nobody writes to */
    path_of(path, root, 1);
    ck_ok(mmi_make_directory(path));
    path_of(path, root, 2);
    FILE *f = fopen(path, "w");
    ck_assert_ptr_nonnull(f);
    for (int i = 0; i < 3000; i++)
        fprintf(f, "%s9%d", i > 0 ? "," : "", i);
    ck_assert_int_eq(fclose(f), 0);
    ck_assert_int_eq(mmi_core_count(root, processors, 3), 3);
    char far[2 * PATH_MAX];
    memset(far, 'a', sizeof far - 1);
    far[sizeof far - 1] = '\0';
    ck_assert_int_eq(mmi_core_count(far, processors, 3), 3);
}
END_TEST

#endif

START_TEST(a_processor_is_a_core_at_most)
{
    const int processors[] = { 0, 1, 2, 3 };
    ck_assert_int_eq(mmi_core_count("", processors, 0), 0);
    ck_assert_int_eq(mmi_core_count("", processors, 1), 1);
    ck_assert_int_le(mmi_core_count("", processors, 4), 4);
    ck_assert_int_eq(mmi_core_count("/nowhere", processors, 4), 4);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("base/cores");
    TCase *tests = tcase_create("all");
    tcase_add_test(tests, a_processor_is_a_core_at_most);
#ifdef __linux__
    tcase_add_loop_test(tests, hardware_threads_of_a_core_count_once, 0,
                        (int)(sizeof situations / sizeof *situations));
    tcase_add_test(tests, a_pipe_a_directory_or_a_long_line_is_no_harm);
#endif
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
