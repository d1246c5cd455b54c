/* This program's own open, read, write… stand before the C library's, as they do in the programs that preload some. */
#define _GNU_SOURCE      /* RTLD_NEXT */
#undef _FILE_OFFSET_BITS /* with it the C library's headers would rename what is defined here */
#include "files.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

static files_manner manner;
static int error_number;
static long asked, fails_at;       /* requests since the attempt began; the one that fails */
static long descriptors, mappings; /* opened and not closed since then */
static bool watching;
static const char *failed_call;

void files_begin(files_manner how, long n, int error)
{
    manner = how;
    fails_at = n;
    error_number = error;
    asked = descriptors = mappings = 0;
    failed_call = "none";
    watching = true;
}

files_seen files_end(void)
{
    watching = false;
    return (files_seen){ asked, descriptors, mappings, failed_call };
}

enum { READS, WRITES }; /* what takes no room on the disk, and what may */

/* True if this request is to fail; errno is then set. A full disk refuses only what takes room. */
static bool refuse(const char *name, int kind)
{
    if (!watching || (error_number == ENOSPC && kind == READS))
        return false;
    long n = ++asked;
    if ((manner != FILES_FAIL_ONCE || n != fails_at) && (manner != FILES_FAIL_ON || n < fails_at))
        return false;
    if (n == fails_at)
        failed_call = name;
    errno = error_number;
    return true;
}

/* Every second request of a kind that may be interrupted is. */
static bool interrupt(void)
{
    static bool last;
    if (!watching || manner != FILES_INTERRUPT)
        return false;
    last = !last;
    if (last)
        errno = EINTR;
    return last;
}

/* One byte, of long pieces a half; of what stands at the beginning of a file always one. */
static size_t shorten(size_t size, long offset)
{
    return watching && manner == FILES_SHORT && size > 1 ? (size < 4096 || offset == 0 ? 1 : size / 2) : size;
}

/* The C library's own, or a sanitizer's. */
static void *next(const char *name)
{
    void *function = dlsym(RTLD_NEXT, name);
    if (!function)
        abort();
    return function;
}

#define OWN(name, result, ...)                                                                                         \
    static result (*own)(__VA_ARGS__);                                                                                 \
    if (!own)                                                                                                          \
    *(void **)&own = next(name)

/* The library is compiled for large files, for which the C library may have other names; as macros they are the
 * same. */
#ifdef open64
#define EITHER(define) define(, "")
#else
#define EITHER(define) define(, "") define(64, "64")
#endif

#define DEFINE_OPEN(suffix, text)                                                                                      \
    int open##suffix(const char *path, int flags, ...)                                                                 \
    {                                                                                                                  \
        OWN("open" text, int, const char *, int, ...);                                                                 \
        va_list rest;                                                                                                  \
        va_start(rest, flags);                                                                                         \
        int mode = flags & O_CREAT ? va_arg(rest, int) : 0;                                                            \
        va_end(rest);                                                                                                  \
        if (refuse("open", flags & O_CREAT ? WRITES : READS) || interrupt())                                           \
            return -1;                                                                                                 \
        int fd = own(path, flags, mode);                                                                               \
        descriptors += watching && fd >= 0;                                                                            \
        return fd;                                                                                                     \
    }
EITHER(DEFINE_OPEN)

#define DEFINE_PREAD(suffix, text)                                                                                     \
    long pread##suffix(int fd, void *to, size_t size, long offset);                                                    \
    long pread##suffix(int fd, void *to, size_t size, long offset)                                                     \
    {                                                                                                                  \
        OWN("pread" text, long, int, void *, size_t, long);                                                            \
        return refuse("pread", READS) || interrupt() ? -1 : own(fd, to, shorten(size, offset), offset);                \
    }
EITHER(DEFINE_PREAD)

#define DEFINE_MMAP(suffix, text)                                                                                      \
    void *mmap##suffix(void *at, size_t size, int protection, int flags, int fd, long offset);                         \
    void *mmap##suffix(void *at, size_t size, int protection, int flags, int fd, long offset)                          \
    {                                                                                                                  \
        OWN("mmap" text, void *, void *, size_t, int, int, int, long);                                                 \
        if (fd < 0)                                                                                                    \
            return own(at, size, protection, flags, fd, offset);                                                       \
        void *memory = refuse("mmap", READS) ? (void *)-1 : own(at, size, protection, flags, fd, offset);              \
        mappings += watching && memory != (void *)-1;                                                                  \
        return memory;                                                                                                 \
    }
EITHER(DEFINE_MMAP)

#define DEFINE_STATS(suffix, text)                                                                                     \
    int stat##suffix(const char *path, void *out);                                                                     \
    int stat##suffix(const char *path, void *out)                                                                      \
    {                                                                                                                  \
        OWN("stat" text, int, const char *, void *);                                                                   \
        return refuse("stat", READS) ? -1 : own(path, out);                                                            \
    }                                                                                                                  \
    int fstat##suffix(int fd, void *out);                                                                              \
    int fstat##suffix(int fd, void *out)                                                                               \
    {                                                                                                                  \
        OWN("fstat" text, int, int, void *);                                                                           \
        return refuse("fstat", READS) ? -1 : own(fd, out);                                                             \
    }                                                                                                                  \
    int lstat##suffix(const char *path, void *out);                                                                    \
    int lstat##suffix(const char *path, void *out)                                                                     \
    {                                                                                                                  \
        OWN("lstat" text, int, const char *, void *);                                                                  \
        return refuse("lstat", READS) ? -1 : own(path, out);                                                           \
    }
EITHER(DEFINE_STATS)

#define DEFINE_FTRUNCATE(suffix, text)                                                                                 \
    int ftruncate##suffix(int fd, long size);                                                                          \
    int ftruncate##suffix(int fd, long size)                                                                           \
    {                                                                                                                  \
        OWN("ftruncate" text, int, int, long);                                                                         \
        return refuse("ftruncate", READS) || interrupt() ? -1 : own(fd, size);                                         \
    }
EITHER(DEFINE_FTRUNCATE)

int flock(int fd, int how);
int flock(int fd, int how)
{
    OWN("flock", int, int, int);
    return refuse("flock", READS) ? -1 : own(fd, how);
}

long read(int fd, void *to, size_t size);
long read(int fd, void *to, size_t size)
{
    OWN("read", long, int, void *, size_t);
    return refuse("read", READS) || interrupt() ? -1 : own(fd, to, shorten(size, 1));
}

long write(int fd, const void *from, size_t size);
long write(int fd, const void *from, size_t size)
{
    OWN("write", long, int, const void *, size_t);
    bool refused = refuse("write", WRITES);
    if (refused && error_number == ENOSPC && asked == fails_at && size > 1)
        return own(fd, from, size / 2); /* what a disk had room for before it was full */
    return refused || interrupt() ? -1 : own(fd, from, shorten(size, 1));
}

/* A thousand saves need not wait for the disk. */
int fsync(int fd);
int fsync(int fd)
{
    return fd < 0 || refuse("fsync", WRITES) || interrupt() ? -1 : 0;
}

/* Whatever it says, the descriptor is gone. */
int close(int fd);
int close(int fd)
{
    OWN("close", int, int);
    bool refused = refuse("close", READS) || interrupt();
    int error = errno, result = own(fd);
    descriptors -= watching;
    errno = error;
    return refused ? -1 : result;
}

int munmap(void *memory, size_t size);
int munmap(void *memory, size_t size)
{
    OWN("munmap", int, void *, size_t);
    mappings -= watching;
    return own(memory, size);
}

#define DEFINE_PATH(name)                                                                                              \
    int name(const char *path);                                                                                        \
    int name(const char *path)                                                                                         \
    {                                                                                                                  \
        OWN(#name, int, const char *);                                                                                 \
        return refuse(#name, READS) ? -1 : own(path);                                                                  \
    }
DEFINE_PATH(unlink)
DEFINE_PATH(rmdir)
int remove(const char *path)
{
    OWN("remove", int, const char *);
    return refuse("remove", READS) ? -1 : own(path);
}

void *opendir(const char *path);
void *opendir(const char *path)
{
    OWN("opendir", void *, const char *);
    void *directory = refuse("opendir", READS) ? NULL : own(path);
    descriptors += watching && directory;
    return directory;
}

int closedir(void *directory);
int closedir(void *directory)
{
    OWN("closedir", int, void *);
    descriptors -= watching;
    return own(directory);
}

int access(const char *path, int mode);
int access(const char *path, int mode)
{
    OWN("access", int, const char *, int);
    return refuse("access", READS) ? -1 : own(path, mode);
}

int mkdir(const char *path, unsigned mode);
int mkdir(const char *path, unsigned mode)
{
    OWN("mkdir", int, const char *, unsigned);
    return refuse("mkdir", WRITES) ? -1 : own(path, mode);
}

int rename(const char *from, const char *to)
{
    OWN("rename", int, const char *, const char *);
    return refuse("rename", WRITES) ? -1 : own(from, to);
}
