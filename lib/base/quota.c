#define _POSIX_C_SOURCE 200809L /* strtok_r */

#include "base/quota.h"

#ifdef __linux__

#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* --- Lines of a file that has no size, as those in /proc --- */

typedef struct lines {
    int fd;
    size_t from, to; /* of what has been read */
    char text[PATH_MAX];
} lines;

/* Of `directory`/`name`. That there is none is no error here, and leaves no message. */
static bool open_lines(lines *l, const char *root, const char *directory, const char *name)
{
    char full[PATH_MAX];
    const int length = snprintf(full, sizeof full, "%s%s/%s", root, directory, name);
    l->fd = length >= 0 && (size_t)length < sizeof full ? open(full, O_RDONLY | O_CLOEXEC | O_NONBLOCK) : -1;
    l->from = l->to = 0;
    return l->fd >= 0;
}

/* Move what is left to the beginning and read on behind it; false at the end, and where there is no room. */
static bool read_more(lines *l)
{
    memmove(l->text, l->text + l->from, l->to - l->from);
    l->to -= l->from;
    l->from = 0;
    const size_t room = sizeof l->text - 1 - l->to;
    const ssize_t got = room > 0 ? read(l->fd, l->text + l->to, room) : 0;
    l->to += got > 0 ? (size_t)got : 0;
    return got > 0;
}

/* The next line, or NULL. Of one that is too long there are several: that is another file system's, whose options come
 * last and have no spaces, so that none of them looks like a mount. */
static char *next_line(lines *l)
{
    char *end;
    while (!(end = memchr(l->text + l->from, '\n', l->to - l->from)) && read_more(l)) {}
    char *line = l->text + l->from;
    if (!end && l->from == l->to)
        return NULL;
    if (!end)
        end = l->text + l->to;
    l->from = (size_t)(end - l->text) + (end < l->text + l->to);
    *end = '\0'; /* there is room for one behind all that is read */
    return line;
}

/* --- The process's groups --- */

static bool is_among(const char *names, const char *name)
{
    const size_t length = strlen(name);
    for (; names; names = strchr(names, ','), names = names ? names + 1 : NULL)
        if (strncmp(names, name, length) == 0 && (names[length] == ',' || names[length] == '\0'))
            return true;
    return false;
}

/* Of either version; empty: none. */
typedef struct groups {
    char v1[PATH_MAX], v2[PATH_MAX];
} groups;

/* Lines are "0::PATH" and "NUMBER:CONTROLLER,…:PATH". */
static void find_groups(groups *g, const char *root)
{
    lines l;
    g->v1[0] = g->v2[0] = '\0';
    if (!open_lines(&l, root, "/proc/self", "cgroup"))
        return;
    for (char *line; (line = next_line(&l));) {
        char *controllers = strchr(line, ':'), *path = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!path)
            continue;
        *controllers++ = *path++ = '\0';
        if (strcmp(line, "0") == 0)
            snprintf(g->v2, sizeof g->v2, "%s", path);
        else if (is_among(controllers, "cpu"))
            snprintf(g->v1, sizeof g->v1, "%s", path);
    }
    close(l.fd);
}

/* --- What they are allowed --- */

static int64_t read_number(const char *text)
{
    char *end = NULL;
    const long long n = text ? strtoll(text, &end, 10) : -1;
    return end && end != text && *end == '\0' ? n : -1;
}

static int processors(int64_t quota, int64_t period)
{
    if (quota <= 0 || period <= 0)
        return 0;
    const int64_t whole = quota / period + (quota % period != 0);
    return whole < INT_MAX ? (int)whole : INT_MAX;
}

/* The first line of a file in a directory, as words; how many of two. */
static int read_words(lines *l, const char *root, const char *directory, const char *name, char *words[2])
{
    if (!open_lines(l, root, directory, name))
        return 0;
    char *rest = NULL, *line = next_line(l);
    int count = 0;
    for (char *word = line ? strtok_r(line, " ", &rest) : NULL; word && count < 2; word = strtok_r(NULL, " ", &rest))
        words[count++] = word;
    close(l->fd);
    return count;
}

static int quota_of(const char *root, const char *directory, bool v2)
{
    lines l;
    char *words[2];
    if (v2) /* "QUOTA PERIOD", or "max PERIOD" */
        return read_words(&l, root, directory, "cpu.max", words) == 2 ?
                   processors(read_number(words[0]), read_number(words[1])) :
                   0;
    int64_t quota = read_words(&l, root, directory, "cpu.cfs_quota_us", words) > 0 ? read_number(words[0]) : -1;
    int64_t period = read_words(&l, root, directory, "cpu.cfs_period_us", words) > 0 ? read_number(words[0]) : -1;
    return processors(quota, period);
}

static int smaller(int a, int b)
{
    return a == 0 || (b > 0 && b < a) ? b : a;
}

/* A path that begins with "/..", the component, is outside of what a namespace shows. */
static bool goes_up(const char *path)
{
    return strncmp(path, "/..", 3) == 0 && (path[3] == '/' || path[3] == '\0');
}

/* The smallest of a group and all above it, up to where the hierarchy is mounted, which may be from a group of its own
 * on: with `top` "/docker/abc" at `mount`, the group "/docker/abc/in" is `mount`/in, and `mount` the last one above it.
 * A mount from another group on says nothing about this one. Only a `top` of nothing but "/.." is above it for sure,
 * and what lies between them has no name here. */
static int quota_up(const char *root, const char *mount, const char *top, const char *group, bool v2)
{
    char directory[PATH_MAX];
    const size_t shared = strcmp(top, "/") == 0 ? 0 : strlen(top);
    const bool below = strncmp(group, top, shared) == 0 && (group[shared] == '/' || group[shared] == '\0');
    const bool above = strspn(top, "/.") == strlen(top);
    if (below ? goes_up(group + shared) : !above)
        return 0;
    const bool deeper = below && strcmp(group + shared, "/") != 0;
    int least = 0;
    /* of a path that is too long for a system call the groups above still count */
    snprintf(directory, sizeof directory, "%s%s", mount, deeper ? group + shared : "");
    for (char *end = directory + strlen(directory); end && end >= directory + strlen(mount);
         end = strrchr(directory, '/')) {
        *end = '\0';
        least = smaller(least, quota_of(root, directory, v2));
    }
    return least;
}

/* "\040" is a space, and so on. */
static void unescape(char *text)
{
    char *to = text;
    for (; *text; to++)
        if (text[0] == '\\' && text[1] >= '0' && text[1] <= '3' && text[2] >= '0' && text[2] <= '7' && text[3] >= '0' &&
            text[3] <= '7') {
            *to = (char)((text[1] - '0') * 64 + (text[2] - '0') * 8 + (text[3] - '0'));
            text += 4;
        } else {
            *to = *text++;
        }
    *to = '\0';
}

/* "ID PARENT DEVICE TOP MOUNT OPTIONS … - TYPE SOURCE OPTIONS"; the source may be empty. (In /proc/self/cgroup names
 * are as they are, here spaces and the like are escaped.) */
static int quota_of_mount(const char *root, const groups *g, char *line)
{
    char *rest = NULL, *word = strtok_r(line, " ", &rest), *fields[5] = { NULL }, *last[3] = { NULL };
    for (int i = 0; word && i < 5; i++, word = strtok_r(NULL, " ", &rest))
        fields[i] = word;
    while (word && strcmp(word, "-") != 0)
        word = strtok_r(NULL, " ", &rest);
    for (int i = 0; word && i < 3; i++)
        last[i] = word = strtok_r(NULL, " ", &rest);
    if (!last[1])
        return 0;
    const char *type = last[0], *options = last[2] ? last[2] : last[1];
    const bool v2 = strcmp(type, "cgroup2") == 0, v1 = strcmp(type, "cgroup") == 0 && is_among(options, "cpu");
    const char *group = v2 ? g->v2 : g->v1;
    if (!(v1 || v2) || *group == '\0')
        return 0;
    unescape(fields[3]);
    unescape(fields[4]);
    return quota_up(root, fields[4], fields[3], group, v2);
}

int mmi_processor_quota(const char *root)
{
    groups g;
    lines mounts;
    int least = 0;
    find_groups(&g, root);
    if ((g.v1[0] == '\0' && g.v2[0] == '\0') || !open_lines(&mounts, root, "/proc/self", "mountinfo"))
        return 0;
    for (char *line; (line = next_line(&mounts));)
        least = smaller(least, quota_of_mount(root, &g, line));
    close(mounts.fd);
    return least;
}

#else

int mmi_processor_quota(const char *root)
{
    (void)root;
    return 0;
}

#endif
