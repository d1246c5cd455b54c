#define _POSIX_C_SOURCE 200809L /* O_CLOEXEC */

#include "base/cores.h"

#ifdef __linux__

#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

typedef struct siblings {
    char list[512]; /* "0,4" or "0-1"; empty: nobody knows */
} siblings;

static void read_siblings(siblings *s, const char *root, int processor)
{
    char path[PATH_MAX];
    int length =
        snprintf(path, sizeof path, "%s/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", root, processor);
    int fd = length >= 0 && (size_t)length < sizeof path ? open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK) : -1;
    ssize_t got = fd >= 0 ? read(fd, s->list, sizeof s->list - 1) : 0;
    s->list[got > 0 ? got : 0] = '\0';
    if (fd >= 0)
        close(fd);
}

static bool are_siblings(const siblings *s, int processor)
{
    for (const char *text = s->list;;) {
        char *end;
        long first = strtol(text, &end, 10), last = first;
        if (end == text)
            return false;
        if (*end == '-') {
            text = end + 1;
            last = strtol(text, &end, 10);
            if (end == text)
                return false;
        }
        if (first <= processor && processor <= last)
            return true;
        if (*end != ',')
            return false;
        text = end + 1;
    }
}

int mmi_core_count(const char *root, const int *processors, int count)
{
    int cores = 0;
    for (int i = 0; i < count; i++) {
        siblings s;
        bool known = false;
        read_siblings(&s, root, processors[i]);
        for (int j = 0; j < i && !known; j++)
            known = are_siblings(&s, processors[j]);
        cores += !known;
    }
    return cores;
}

#else

int mmi_core_count(const char *root, const int *processors, int count)
{
    (void)root;
    (void)processors;
    return count;
}

#endif
