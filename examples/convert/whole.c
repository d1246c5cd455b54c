#define _POSIX_C_SOURCE 200809L

#include "whole.h"

#include "options.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static FILE *file;
static const char *final;
static char temporary[4200]; /* what it's called until it is whole; "" while there is none */

void whole_fail(const char *message)
{
    if (temporary[0])
        unlink(temporary);
    fail(message, "");
}

static _Noreturn void give_up(void)
{
    char message[4400];
    snprintf(message, sizeof message, "can't write %s: %s", final, strerror(errno));
    whole_fail(message);
}

bool begins_with(const char *path, const char bytes[4])
{
    char begin[4] = "";
    FILE *opened = fopen(path, "rb");
    const size_t got = opened ? fread(begin, 1, 4, opened) : 0;
    if (opened)
        fclose(opened);
    return got == 4 && memcmp(begin, bytes, 4) == 0;
}

void whole_begin(const char *path, const char bytes[4], const char *kind)
{
    char message[64];
    struct stat there;
    final = path;
    snprintf(message, sizeof message, "what is there is no %s, and stays: ", kind);
    if (stat(path, &there) == 0) {
        if (S_ISREG(there.st_mode) && access(path, R_OK) != 0)
            give_up();
        if (!S_ISREG(there.st_mode) || !begins_with(path, bytes))
            fail(message, path);
    } else if (errno != ENOENT) {
        give_up();
    }
    char name[sizeof temporary];
    snprintf(name, sizeof name, "%s.%ld.tmp", path, (long)getpid());
    int descriptor = open(name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (descriptor < 0)
        give_up();
    snprintf(temporary, sizeof temporary, "%s", name);
    if (!(file = fdopen(descriptor, "wb")))
        give_up();
}

void whole_write(const void *bytes, size_t count)
{
    if (fwrite(bytes, 1, count, file) != count)
        give_up();
}

void whole_end(void)
{
    if (fflush(file) != 0 || fsync(fileno(file)) != 0 || fclose(file) != 0 || rename(temporary, final) != 0)
        give_up();
}
