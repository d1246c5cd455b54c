/* What control groups leave a process, from files as Linux has them, and as it should not have them. */
#define _POSIX_C_SOURCE 200809L /* mkfifo */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/files.h"
#include "base/quota.h"
#include "support.h"

#ifdef __linux__

/* A file below a directory that stands for "/"; NULL: there is none of them. */
typedef struct entry {
    const char *path, *text;
} entry;

enum { MOST_ENTRIES = 8 };

static void put(const char *root, const entry *e)
{
    char path[512];
    snprintf(path, sizeof path, "%s%s", root, e->path);
    char *slash = strrchr(path, '/');
    *slash = '\0';
    ck_ok(mmi_make_directory(path));
    *slash = '/';
    FILE *f = fopen(path, "w");
    ck_assert_ptr_nonnull(f);
    ck_assert(fputs(e->text, f) >= 0);
    ck_assert_int_eq(fclose(f), 0);
}

static int quota_with(const entry *entries, int count)
{
    char root[320];
    snprintf(root, sizeof root, "%s", scratch_directory());
    for (int i = 0; i < count && entries[i].path; i++)
        put(root, &entries[i]);
    return mmi_processor_quota(root);
}

#define GROUP "/proc/self/cgroup"
#define MOUNTS "/proc/self/mountinfo"
#define ROOT_MOUNT "22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n"
#define V2_MOUNT "35 24 0:30 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n"
#define V1_MOUNT "32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw shared:4 master:2 - cgroup cgroup rw,cpu,cpuacct\n"
#define CPUSET_MOUNT "33 31 0:31 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n"
#define V1_AT "/sys/fs/cgroup/cpu,cpuacct"

typedef struct situation {
    const char *what;
    int quota;
    entry entries[MOST_ENTRIES];
} situation;

static const situation situations[] = {
    { "no groups", 0, { { MOUNTS, ROOT_MOUNT V2_MOUNT } } },
    { "no mounts", 0, { { GROUP, "0::/\n" }, { "/sys/fs/cgroup/cpu.max", "100000 100000\n" } } },
    { "nothing mounted", 0, { { GROUP, "0::/\n" }, { MOUNTS, ROOT_MOUNT } } },
    { "a container's own view",
      2,
      { { GROUP, "0::/\n" }, { MOUNTS, ROOT_MOUNT V2_MOUNT }, { "/sys/fs/cgroup/cpu.max", "200000 100000\n" } } },
    { "half a processor",
      1,
      { { GROUP, "0::/\n" }, { MOUNTS, V2_MOUNT }, { "/sys/fs/cgroup/cpu.max", "50000 100000\n" } } },
    { "a part of a processor counts",
      4,
      { { GROUP, "0::/\n" }, { MOUNTS, V2_MOUNT }, { "/sys/fs/cgroup/cpu.max", "300001 100000\n" } } },
    { "no limit", 0, { { GROUP, "0::/\n" }, { MOUNTS, V2_MOUNT }, { "/sys/fs/cgroup/cpu.max", "max 100000\n" } } },
    { "the smallest of all above",
      3,
      { { GROUP, "0::/a/b/c\n" },
        { MOUNTS, V2_MOUNT },
        { "/sys/fs/cgroup/a/cpu.max", "300000 100000\n" },
        { "/sys/fs/cgroup/a/b/cpu.max", "max 100000\n" },
        { "/sys/fs/cgroup/a/b/c/cpu.max", "900000 100000\n" },
        { "/sys/fs/cgroup/a/other/cpu.max", "100000 100000\n" },
        { "/sys/fs/cpu.max", "100000 100000\n" } } },
    { "a group outside of what is seen",
      0,
      { { GROUP, "0::/../../x\n" }, { MOUNTS, V2_MOUNT }, { "/sys/fs/cgroup/cpu.max", "500000 100000\n" } } },
    { "version 1",
      2,
      { { GROUP, "11:cpuset:/s\n4:cpu,cpuacct:/g/h\n1:name=systemd:/\n" },
        { MOUNTS, ROOT_MOUNT CPUSET_MOUNT V1_MOUNT },
        { V1_AT "/g/cpu.cfs_quota_us", "150000\n" },
        { V1_AT "/g/cpu.cfs_period_us", "100000\n" },
        { V1_AT "/g/h/cpu.cfs_quota_us", "-1\n" },
        { V1_AT "/g/h/cpu.cfs_period_us", "100000\n" } } },
    { "version 1 without a limit",
      0,
      { { GROUP, "4:cpu,cpuacct:/\n" },
        { MOUNTS, V1_MOUNT },
        { V1_AT "/cpu.cfs_quota_us", "-1\n" },
        { V1_AT "/cpu.cfs_period_us", "100000\n" } } },
    { "a container that sees its host's names",
      6,
      { { GROUP, "4:cpuacct,cpu:/docker/abc/in\n" },
        { MOUNTS, "32 31 0:29 /docker/abc " V1_AT " ro - cgroup cgroup rw,cpuacct,cpu\n" },
        { V1_AT "/cpu.cfs_quota_us", "600000\n" },
        { V1_AT "/cpu.cfs_period_us", "100000\n" },
        { V1_AT "/in/cpu.cfs_quota_us", "70000\n" },
        { V1_AT "/in/cpu.cfs_period_us", "10000\n" },
        { V1_AT "/docker/abc/cpu.cfs_quota_us", "1\n" } } },
    { "a name that begins alike",
      0,
      { { GROUP, "4:cpu:/docker/abcd\n" },
        { MOUNTS, "32 31 0:29 /docker/abc " V1_AT " ro - cgroup cgroup rw,cpu\n" },
        { V1_AT "/cpu.cfs_quota_us", "60\n" },
        { V1_AT "/cpu.cfs_period_us", "10\n" },
        { V1_AT "d/cpu.cfs_quota_us", "1\n" },
        { V1_AT "d/cpu.cfs_period_us", "1\n" } } },
    { "another group's mount",
      4,
      { { GROUP, "0::/user.slice/s.scope\n" },
        { MOUNTS, V2_MOUNT "40 24 0:30 /docker/abc /mnt/abc rw - cgroup2 cgroup2 rw\n" },
        { "/mnt/abc/cpu.max", "100000 100000\n" },
        { "/sys/fs/cgroup/user.slice/cpu.max", "400000 100000\n" } } },
    { "a mount from above what is seen",
      3,
      { { GROUP, "0::/\n" },
        { MOUNTS, "35 24 0:30 /../.. /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n" },
        { "/sys/fs/cgroup/cpu.max", "300000 100000\n" } } },
    { "a name that begins with two dots",
      2,
      { { GROUP, "0::/..foo\n" }, { MOUNTS, V2_MOUNT }, { "/sys/fs/cgroup/..foo/cpu.max", "200000 100000\n" } } },
    { "a mount without a source",
      2,
      { { GROUP, "0::/\n" },
        { MOUNTS, "63 43 0:38 / /sys/fs/cgroup rw,relatime - cgroup2  rw\n" },
        { "/sys/fs/cgroup/cpu.max", "200000 100000\n" } } },
    { "a mount without a source, version 1",
      2,
      { { GROUP, "4:cpu:/\n" },
        { MOUNTS, "63 43 0:38 / " V1_AT " rw,relatime - cgroup  rw,cpu\n" },
        { V1_AT "/cpu.cfs_quota_us", "200000\n" },
        { V1_AT "/cpu.cfs_period_us", "100000\n" } } },
    { "both versions",
      3,
      { { GROUP, "4:cpu,cpuacct:/\n0::/u\n" },
        { MOUNTS, V1_MOUNT V2_MOUNT },
        { V1_AT "/cpu.cfs_quota_us", "800000\n" },
        { V1_AT "/cpu.cfs_period_us", "100000\n" },
        { "/sys/fs/cgroup/u/cpu.max", "250000 100000\n" } } },
    { "a place with a space, and no last newline",
      2,
      { { GROUP, "0::/a b" },
        { MOUNTS, "35 24 0:30 / /my\\040groups rw - cgroup2 none rw" },
        { "/my groups/a b/cpu.max", "200000 100000" } } },
    { "another controller's", 0, { { GROUP, "3:cpuset,cpuacct:/\n" }, { MOUNTS, CPUSET_MOUNT V1_MOUNT } } },
};

START_TEST(the_quota_is_the_smallest_that_holds_for_the_process)
{
    const situation *s = &situations[_i];
    const int got = quota_with(s->entries, MOST_ENTRIES);
    ck_assert_msg(got == s->quota, "%s: %d, not %d", s->what, got, s->quota);
}
END_TEST

START_TEST(what_is_no_quota_limits_nothing)
{
    static const char *const texts[] = { "",
                                         "\n",
                                         " ",
                                         "max",
                                         "100000",
                                         "0 100000",
                                         "-1 100",
                                         "100000 0",
                                         "100 -5",
                                         "x 100000",
                                         "100 y",
                                         "1e5 1e5",
                                         "0x9 1",
                                         "1.5 1.0",
                                         "100 100x",
                                         "18446744073709551616 max",
                                         "\x01\x02 \xff" };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        const entry entries[] = { { GROUP, "0::/\n" }, { MOUNTS, V2_MOUNT }, { "/sys/fs/cgroup/cpu.max", texts[i] } };
        const int got = quota_with(entries, 3);
        ck_assert_msg(got == 0, "\"%s\": %d", texts[i], got);
    }
}
END_TEST

START_TEST(a_quota_beyond_all_processors_is_no_overflow)
{
    static const char *const texts[] = { "9223372036854775807 1", "99999999999999999999999 1", "2147483648 1" };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        const entry entries[] = { { GROUP, "0::/\n" }, { MOUNTS, V2_MOUNT }, { "/sys/fs/cgroup/cpu.max", texts[i] } };
        ck_assert_int_eq(quota_with(entries, 3), INT_MAX);
    }
}
END_TEST

/* Nothing waits for what is no file. */
START_TEST(a_pipe_or_a_directory_is_no_quota)
{
    for (int pipe = 0; pipe < 2; pipe++) {
        const entry entries[] = { { GROUP, "0::/\n" }, { MOUNTS, V2_MOUNT }, { "/sys/fs/cgroup/x", "" } };
        char root[320], path[400];
        snprintf(root, sizeof root, "%s", scratch_directory());
        for (int i = 0; i < 3; i++)
            put(root, &entries[i]);
        snprintf(path, sizeof path, "%s/sys/fs/cgroup/cpu.max", root);
        ck_assert_int_eq(pipe ? mkfifo(path, 0600) : mkdir(path, 0700), 0);
        ck_assert_int_eq(mmi_processor_quota(root), 0);
    }
}
END_TEST

/* Lines that lack fields, or are of another kind, hide none that follow. */
START_TEST(lines_of_another_form_are_passed_over)
{
    static const char *const groups[] = { "\n", ":\n", "::\n", "0\n", "0:\n", "x:y\n", "0:cpu\n", "7:\n", ":::::\n" };
    static const char *const mounts[] = { "\n",
                                          " \n",
                                          "-\n",
                                          "- - -\n",
                                          "1 2 3\n",
                                          "1 2 3 / /x - cgroup2\n",
                                          "1 2 3 / /x - cgroup2 none\n",
                                          "1 2 3 / - cgroup2 none rw\n",
                                          "1 2 3 \\ \\0 rw - cgroup2 none rw\n",
                                          "1 2 3 /q /w rw - cgroup none \n" };
    for (size_t i = 0; i < sizeof groups / sizeof *groups; i++)
        for (size_t j = 0; j < sizeof mounts / sizeof *mounts; j++) {
            char group[64], mount[256];
            snprintf(group, sizeof group, "%s0::/\n", groups[i]);
            snprintf(mount, sizeof mount, "%s%s", mounts[j], V2_MOUNT);
            const entry entries[] = { { GROUP, group }, { MOUNTS, mount }, { "/sys/fs/cgroup/cpu.max", "7 1\n" } };
            const int got = quota_with(entries, 3);
            ck_assert_msg(got == 7, "%s%s: %d", group, mount, got);
        }
}
END_TEST

/* Paths as long as they may be, and longer; and many lines. */
START_TEST(long_lines_are_no_harm)
{
    enum { MOST = 3 * PATH_MAX };
    char *group = calloc(1, MOST + 64), *mount = calloc(1, 64 * MOST);
    ck_assert(group && mount);
    for (int length = PATH_MAX - 64; length < MOST; length += length < PATH_MAX + 64 ? 1 : 499) {
        memset(group, 'a', (size_t)length);
        memcpy(group, "0::/", 4);
        strcpy(group + length, "\n");
        snprintf(mount, MOST, "1 2 3 / /%.*s rw - cgroup2 none rw\n", length - 32, group + 4);
        strcat(mount, V2_MOUNT);
        const entry entries[] = { { GROUP, group }, { MOUNTS, mount }, { "/sys/fs/cgroup/cpu.max", "7 1\n" } };
        const int got = quota_with(entries, 3);
        ck_assert_msg(got == 7, "%d characters: %d", length, got);
    }
    mount[0] = '\0';
    char *end = mount;
    for (int i = 0; i < 1000; i++)
        end += sprintf(end, "%d 2 3 / /mnt/%d rw - tmpfs none rw,size=%d\n", i, i, i);
    strcat(end, V2_MOUNT);
    const entry entries[] = { { GROUP, "0::/\n" }, { MOUNTS, mount }, { "/sys/fs/cgroup/cpu.max", "7 1\n" } };
    ck_assert_int_eq(quota_with(entries, 3), 7);
    free(group);
    free(mount);
}
END_TEST

#endif

START_TEST(this_process_may_have_a_quota)
{
    ck_assert_int_ge(mmi_processor_quota(""), 0);
    ck_assert_int_eq(mmi_processor_quota("/nowhere"), 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("base/quota");
    TCase *tests = tcase_create("all");
    tcase_add_test(tests, this_process_may_have_a_quota);
#ifdef __linux__
    tcase_add_loop_test(tests, the_quota_is_the_smallest_that_holds_for_the_process, 0,
                        (int)(sizeof situations / sizeof *situations));
    tcase_add_test(tests, what_is_no_quota_limits_nothing);
    tcase_add_test(tests, a_quota_beyond_all_processors_is_no_overflow);
    tcase_add_test(tests, a_pipe_or_a_directory_is_no_quota);
    tcase_add_test(tests, lines_of_another_form_are_passed_over);
    tcase_add_test(tests, long_lines_are_no_harm);
#endif
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
