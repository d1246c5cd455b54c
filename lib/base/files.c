#define _POSIX_C_SOURCE 200809L
#define _XOPEN_SOURCE 700
#define _DEFAULT_SOURCE

#include "base/files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/memory.h"

#define BUFFER_SIZE ((size_t)1 << 16)

/* Files of BUFFER_SIZE and more are written in multiples of so many bytes: a file system that has large folios keeps
 * them in as large pages, and weights that are mapped from these are there sooner (measured where this runs as a guest:
 * 103 MB in 4 ms instead of 27). */
#define LARGE_BUFFER_SIZE ((size_t)2 << 20)

/* Whether `ending` is the ".PID-SERIAL.tmp" of a temporary name, which may have one of its own. */
static bool ends_temporary(const char *ending)
{
    static const char marks[] = ".-";
    for (int i = 0; i < 2; i++) {
        size_t digits = *ending == marks[i] ? strspn(ending + 1, "0123456789") : 0;
        if (digits == 0)
            return false;
        ending += 1 + digits;
    }
    return strncmp(ending, ".tmp", 4) == 0 && (ending[4] == '\0' || ends_temporary(ending + 4));
}

/* How much of `path` is the name that was asked for: the rest is what a file of this process waits under. */
static int asked_length(const char *path)
{
    char mark[32];
    snprintf(mark, sizeof mark, ".%ld-", (long)getpid());
    const char *slash = strrchr(path, '/'), *ending = strstr(slash ? slash : path, mark);
    return (int)(ending && ends_temporary(ending) ? (size_t)(ending - path) : strlen(path));
}

mm_status mmi_fail_errno(const char *path, const char *verb)
{
    int error = errno;
    char text[128];
    /* XSI strerror_r: the message lands in `text` */
    if (strerror_r(error, text, sizeof text) != 0)
        snprintf(text, sizeof text, "error %d", error);
    return mmi_fail(error == ENOMEM ? MM_ERR_MEMORY : MM_ERR_IO, "%.*s: can't %s: %s", asked_length(path), path, verb,
                    text);
}

char *mmi_path_join(const char *directory, const char *name)
{
    size_t a = strlen(directory), b = strlen(name);
    char *path = mmi_alloc(a + b + 2, 1);
    if (!path)
        return NULL;
    memcpy(path, directory, a);
    if (a > 0 && directory[a - 1] != '/')
        path[a++] = '/';
    memcpy(path + a, name, b + 1);
    return path;
}

char *mmi_path_resolve(const char *path)
{
    char whole[PATH_MAX];
    return mmi_strdup(realpath(path, whole) ? whole : path);
}

bool mmi_is_directory(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

bool mmi_file_exists(const char *path)
{
    /* What can't be looked at may well be there: who opens it will hear why it can't be. */
    return access(path, F_OK) == 0 || (errno != ENOENT && errno != ENOTDIR);
}

mm_status mmi_make_directory(const char *path)
{
    if (path[0] == '\0')
        return mmi_fail(MM_ERR_IO, "a directory without a name can't be made");
    if (mmi_is_directory(path))
        return MM_OK;
    char *part = mmi_strdup(path);
    if (!part)
        return mmi_fail_memory(strlen(path) + 1, "a path");
    mm_status status = MM_OK;
    for (char *end = part + 1; status == MM_OK; end++) {
        if (*end != '/' && *end != '\0')
            continue;
        char kept = *end;
        *end = '\0';
        if (mkdir(part, 0777) != 0 && !(errno == EEXIST && mmi_is_directory(part)))
            status = mmi_fail_errno(part, "make the directory");
        *end = kept;
        if (kept == '\0')
            break;
    }
    mmi_free(part);
    return status;
}

static int remove_entry(const char *path, const struct stat *info, int kind, struct FTW *walk)
{
    (void)info;
    (void)kind;
    (void)walk;
    return remove(path);
}

mm_status mmi_remove_tree(const char *path)
{
    struct stat info;
    if (lstat(path, &info) != 0 && errno == ENOENT)
        return MM_OK;
    if (nftw(path, remove_entry, 8, FTW_DEPTH | FTW_PHYS) != 0)
        return mmi_fail_errno(path, "remove");
    return MM_OK;
}

/* open() that a signal does not end. */
static int open_descriptor(const char *path, int flags)
{
    int fd;
    do
        fd = open(path, flags | O_CLOEXEC, 0666);
    while (fd < 0 && errno == EINTR);
    return fd;
}

int mmi_lock_file(const char *path, double seconds)
{
    int lock = open_descriptor(path, O_RDWR | O_CREAT);
    double end = mmi_now() + seconds;
    while (lock >= 0 && flock(lock, LOCK_EX | LOCK_NB) != 0) {
        bool held = errno == EWOULDBLOCK;
        if (!held || mmi_now() >= end) {
            close(lock);
            return held ? MMI_LOCK_HELD : -1;
        }
        nanosleep(&(struct timespec){ .tv_nsec = 20 * 1000 * 1000 }, NULL);
    }
    return lock;
}

void mmi_unlock_file(int lock)
{
    if (lock < 0)
        return;
    flock(lock, LOCK_UN); /* a child that was forked meanwhile has it open for longer */
    close(lock);
}

mm_status mmi_look_at(mmi_look *out, int fd, const char *path)
{
    struct stat info;
    if (fstat(fd, &info) != 0)
        return mmi_fail_errno(path, "look at");
    if (!S_ISREG(info.st_mode))
        return mmi_fail(MM_ERR_IO, "%s: is not a regular file", path);
    *out = (mmi_look){ info.st_size, info.st_mtim.tv_sec, info.st_mtim.tv_nsec };
    return MM_OK;
}

mm_status mmi_open_file(const char *path, int *out, mmi_look *seen)
{
    int fd = open_descriptor(path, O_RDONLY | O_NONBLOCK); /* a pipe must be refused, not waited for */
    if (fd < 0)
        return mmi_fail_errno(path, "open");
    mm_status status = mmi_look_at(seen, fd, path);
    if (status == MM_OK)
        *out = fd;
    else
        close(fd);
    return status;
}

/* One whose size is a size in memory. */
static mm_status open_for_reading(const char *path, int *fd, size_t *size)
{
    mmi_look seen;
    mm_status status = mmi_open_file(path, fd, &seen);
    if (status != MM_OK)
        return status;
    if ((uint64_t)seen.size > SIZE_MAX / 2) {
        close(*fd);
        return mmi_fail(MM_ERR_IO, "%s: is too large for this machine", path);
    }
    *size = (size_t)seen.size;
    return MM_OK;
}

mm_status mmi_read_some(int fd, void *out, size_t size, uint64_t offset, size_t *got, const char *path)
{
    size_t done = 0;
    while (done < size) {
        ssize_t n = pread(fd, (unsigned char *)out + done, size - done, (off_t)(offset + done));
        if (n < 0 && errno != EINTR)
            return mmi_fail_errno(path, "read");
        if (n == 0)
            break;
        done += n > 0 ? (size_t)n : 0;
    }
    *got = done;
    return MM_OK;
}

mm_status mmi_read_at(int fd, void *out, size_t size, uint64_t offset, const char *path)
{
    size_t got = 0;
    mm_status status = mmi_read_some(fd, out, size, offset, &got, path);
    if (status == MM_OK && got < size)
        status = mmi_fail(MM_ERR_IO, "%s: became shorter while it was read", path);
    return status;
}

mm_status mmi_read_file(const char *path, char **data, size_t *size)
{
    int fd = -1;
    size_t length = 0;
    mm_status status = open_for_reading(path, &fd, &length);
    if (status != MM_OK)
        return status;
    char *text = mmi_alloc(length + 1, 1);
    if (!text) {
        close(fd);
        return mmi_fail_memory(length + 1, path);
    }
    status = mmi_read_at(fd, text, length, 0, path);
    close(fd);
    if (status != MM_OK) {
        mmi_free(text);
        return status;
    }
    text[length] = '\0';
    *data = text;
    *size = length;
    return MM_OK;
}

mm_status mmi_reader_open(mmi_reader *r, const char *path)
{
    mmi_reader fresh = { -1, 0, true };
    mm_status status = open_for_reading(path, &fresh.fd, &fresh.size);
    if (status == MM_OK)
        *r = fresh;
    return status;
}

mm_status mmi_reader_get(const mmi_reader *r, void *out, size_t size, uint64_t offset, const char *path)
{
    return mmi_read_at(r->fd, out, size, offset, path);
}

void mmi_reader_close(mmi_reader *r)
{
    if (r->open)
        close(r->fd);
    r->open = false;
}

mm_status mmi_map_file(const char *path, mmi_mapping *out)
{
    int fd = -1;
    size_t size = 0;
    mm_status status = open_for_reading(path, &fd, &size);
    if (status != MM_OK)
        return status;
    void *data = NULL;
    if (size > 0) {
        data = mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0);
        if (data == MAP_FAILED) {
            status = mmi_fail_errno(path, "map");
            data = NULL;
        }
    }
    close(fd);
    if (status == MM_OK) {
        out->data = data;
        out->size = size;
    }
    return status;
}

void mmi_unmap_file(mmi_mapping *mapping)
{
    if (mapping->data)
        munmap(mapping->data, mapping->size);
    mapping->data = NULL;
    mapping->size = 0;
}

static int sync_descriptor(int fd)
{
    int result;
    do
        result = fsync(fd);
    while (result != 0 && errno == EINTR);
    return result;
}

static mm_status sync_parent(const char *path)
{
    char parent[PATH_MAX]; /* no allocation: the rename is done, and running out of memory must not hide that */
    size_t length = strlen(path);
    if (length >= sizeof parent)
        return MM_OK; /* no system call took such a path */
    memcpy(parent, path, length + 1);
    char *slash = strrchr(parent, '/');
    if (slash)
        slash[slash == parent] = '\0';
    const char *directory = slash ? parent : ".";
    int fd = open_descriptor(directory, O_RDONLY | O_DIRECTORY);
    mm_status status = MM_OK;
    if (fd < 0)
        status = errno == EACCES ? MM_OK : mmi_fail_errno(directory, "open"); /* may be written to, not looked at */
    else if (sync_descriptor(fd) != 0 && errno != EINVAL &&
             errno != EROFS) /* some file systems can't sync a directory */
        status = mmi_fail_errno(directory, "sync");
    if (fd >= 0)
        close(fd);
    return status;
}

mm_status mmi_rename(const char *from, const char *to)
{
    return rename(from, to) == 0 ? MM_OK : mmi_fail_errno(to, "rename into place");
}

mm_status mmi_rename_synced(const char *from, const char *to)
{
    mm_status status = mmi_rename(from, to);
    return status == MM_OK ? sync_parent(to) : status;
}

mm_status mmi_check_replaceable(const char *path)
{
    struct stat info;
    if (stat(path, &info) != 0) /* what can't be looked at may be made all the same, but not under too long a name */
        return errno == ENAMETOOLONG ? mmi_fail_errno(path, "create") : MM_OK;
    return S_ISREG(info.st_mode) ? MM_OK : mmi_fail(MM_ERR_IO, "%s: is not a regular file", path);
}

static void writer_release(mmi_writer *w)
{
    mmi_free(w->path);
    mmi_free(w->temporary);
    mmi_free(w->buffer);
    w->path = w->temporary = NULL;
    w->buffer = NULL;
    w->open = false;
}

/* Bytes of a file's name that its temporary name begins with. With all that is put behind them it is no longer than any
 * file system's names, the shortest in use having 143. */
#define KEPT 96

/* How much of `path` comes before ".PID-SERIAL.tmp": its directory, and its name up to KEPT bytes, characters whole. */
static int kept_length(const char *path)
{
    const char *slash = strrchr(path, '/');
    size_t start = slash ? (size_t)(slash + 1 - path) : 0, length = strlen(path);
    if (length - start <= KEPT)
        return (int)length;
    length = start + KEPT;
    while (length > start && ((unsigned char)path[length] & 0xC0) == 0x80) /* UTF-8 goes on here */
        length--;
    return (int)length;
}

static atomic_uint serial;

mm_status mmi_writer_open(mmi_writer *w, const char *path)
{
    memset(w, 0, sizeof *w);
    w->fd = -1;
    if ((w->status = mmi_check_replaceable(path)) != MM_OK)
        return w->status;
    w->path = mmi_strdup(path);
    size_t room = strlen(path) + 48;
    w->temporary = mmi_alloc(room, 1);
    w->buffer = mmi_alloc(BUFFER_SIZE, 1);
    w->room = BUFFER_SIZE;
    if (!w->path || !w->temporary || !w->buffer) {
        writer_release(w);
        return w->status = mmi_fail_memory(BUFFER_SIZE, path);
    }
    do { /* several threads, or processes, may write side by side; a killed one may have left its file */
        snprintf(w->temporary, room, "%.*s.%ld-%u.tmp", kept_length(path), path, (long)getpid(),
                 atomic_fetch_add(&serial, 1));
        w->fd = open_descriptor(w->temporary, O_WRONLY | O_CREAT | O_EXCL);
    } while (w->fd < 0 && errno == EEXIST);
    if (w->fd < 0) {
        w->status = mmi_fail_errno(path, "create");
        writer_release(w);
        return w->status;
    }
    flock(w->fd, LOCK_EX | LOCK_NB); /* for mmi_writer_clear(), where there are locks */
    w->open = true;
    return MM_OK;
}

static mm_status write_all(int fd, const char *path, const unsigned char *data, size_t size)
{
    while (size > 0) {
        ssize_t n = write(fd, data, size);
        if (n > 0) {
            data += n;
            size -= (size_t)n;
        } else if (n == 0 || errno != EINTR) {
            errno = n == 0 ? ENOSPC : errno; /* no progress and no reason */
            return mmi_fail_errno(path, "write");
        }
    }
    return MM_OK;
}

static void writer_flush(mmi_writer *w, const unsigned char *data, size_t size)
{
    if (w->status == MM_OK)
        w->status = write_all(w->fd, w->path, data, size);
}

/* Before anything is written. Without memory for it the file is written in smaller pieces. */
static void writer_grow(mmi_writer *w)
{
    unsigned char *larger = mmi_realloc(w->buffer, LARGE_BUFFER_SIZE, 1);
    if (!larger)
        return;
    w->buffer = larger;
    w->room = LARGE_BUFFER_SIZE;
}

mm_status mmi_writer_put(mmi_writer *w, const void *data, size_t size)
{
    if (!w->open)
        return w->status;
    if (size >= w->room - w->filled && w->room < LARGE_BUFFER_SIZE && w->written == w->filled)
        writer_grow(w);
    w->written += size;
    const unsigned char *from = data; /* may be NULL for nothing */
    while (size > 0) {
        size_t whole = size - size % w->room, part = w->room - w->filled;
        if (w->filled == 0 && whole > 0) {
            part = whole;
            writer_flush(w, from, part);
        } else {
            part = part < size ? part : size;
            memcpy(w->buffer + w->filled, from, part);
            w->filled += part;
        }
        if (w->filled == w->room) {
            writer_flush(w, w->buffer, w->filled);
            w->filled = 0;
        }
        from += part;
        size -= part;
    }
    return w->status;
}

mm_status mmi_writer_commit(mmi_writer *w)
{
    if (!w->open)
        return w->status;
    writer_flush(w, w->buffer, w->filled);
    w->filled = 0;
    if (w->status == MM_OK && sync_descriptor(w->fd) != 0)
        w->status = mmi_fail_errno(w->path, "sync");
    if (close(w->fd) != 0 && errno != EINTR && w->status == MM_OK) /* interrupted or not, it is closed */
        w->status = mmi_fail_errno(w->path, "close");
    w->fd = -1;
    if (w->status == MM_OK)
        w->status = mmi_rename(w->temporary, w->path);
    if (w->status != MM_OK)
        unlink(w->temporary);
    else
        w->status = sync_parent(w->path);
    writer_release(w);
    return w->status;
}

void mmi_writer_abandon(mmi_writer *w)
{
    if (!w->open)
        return;
    close(w->fd);
    unlink(w->temporary);
    writer_release(w);
}

char *mmi_path_waiting(const char *directory, const char *name)
{
    char waiting[80];
    snprintf(waiting, sizeof waiting, "%.40s.%ld-%u.tmp", name, (long)getpid(), atomic_fetch_add(&serial, 1));
    return mmi_path_join(directory, waiting);
}

/* A process that runs here is at work on its files, though it has not begun with some; one that runs elsewhere holds a
 * lock on the one that it writes. */
static bool is_abandoned(const char *path, long pid)
{
    if (getpgid((pid_t)pid) >= 0 || errno != ESRCH)
        return false;
    int lock = mmi_lock_file(path, 0);
    mmi_unlock_file(lock);
    return lock >= 0;
}

void mmi_writer_clear(const char *directory, const char *name, bool all)
{
    DIR *list = opendir(directory);
    size_t length = strlen(name);
    for (struct dirent *entry; list && (entry = readdir(list)) != NULL;)
        if (strncmp(entry->d_name, name, length) == 0 && ends_temporary(entry->d_name + length)) {
            char *path = mmi_path_join(directory, entry->d_name);
            if (path && (all || is_abandoned(path, atol(entry->d_name + length + 1))))
                unlink(path);
            mmi_free(path);
        }
    if (list)
        closedir(list);
}

mm_status mmi_write_file(const char *path, const void *data, size_t size)
{
    mmi_writer w;
    mm_status status = mmi_writer_open(&w, path);
    if (status != MM_OK)
        return status;
    mmi_writer_put(&w, data, size);
    return mmi_writer_commit(&w);
}

mm_status mmi_appender_open(mmi_appender *a, const char *path)
{
    memset(a, 0, sizeof *a);
    a->path = mmi_strdup(path);
    if (!a->path)
        return mmi_fail_memory(strlen(path) + 1, "a path");
    a->fd = open_descriptor(path, O_WRONLY | O_CREAT | O_APPEND | O_NONBLOCK);
    struct stat info;
    mm_status status = MM_OK;
    if (a->fd < 0)
        status = mmi_fail_errno(path, "open for adding to it");
    else if (fstat(a->fd, &info) != 0)
        status = mmi_fail_errno(path, "look at");
    else if (!S_ISREG(info.st_mode))
        status = mmi_fail(MM_ERR_IO, "%s: is not a regular file", path);
    else
        a->size = (uint64_t)info.st_size;
    a->open = true;
    if (status != MM_OK)
        mmi_appender_close(a);
    return status;
}

mm_status mmi_appender_put(mmi_appender *a, const void *data, size_t size)
{
    if (a->torn)
        mmi_appender_cut(a, a->size);
    if (a->torn)
        return mmi_fail_errno(a->path, "take back what was half written");
    mm_status status = write_all(a->fd, a->path, data, size);
    if (status == MM_OK)
        a->size += size;
    else
        mmi_appender_cut(a, a->size);
    return status;
}

void mmi_appender_cut(mmi_appender *a, uint64_t size)
{
    a->size = size;
    a->torn = ftruncate(a->fd, (off_t)size) != 0; /* what the last call leaves is for the next reader to notice */
}

void mmi_appender_close(mmi_appender *a)
{
    if (a->open && a->fd >= 0)
        close(a->fd);
    mmi_free(a->path);
    memset(a, 0, sizeof *a);
}

double mmi_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

double mmi_wall_time(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

void mmi_host_name(char *out, size_t size)
{
    if (gethostname(out, size) != 0 || out[0] == '\0')
        snprintf(out, size, "localhost");
    out[size - 1] = '\0'; /* a name that is too long need not end */
}
