/* A file system that fails on demand, for the calls that this process makes by itself. What the C library calls within
 * itself, as fopen() and opendir() do, is not seen. One thread at a time. */
#ifndef MM_TESTS_MANNERS_FILES_H
#define MM_TESTS_MANNERS_FILES_H

typedef enum files_manner {
    FILES_AS_THEY_ARE,
    FILES_FAIL_ONCE, /* the n-th request */
    FILES_FAIL_ON,   /* the n-th and all behind it */
    FILES_SHORT,     /* reads and writes do a part of what they are asked */
    FILES_INTERRUPT  /* every second request that a signal can interrupt is */
} files_manner;

/* From here on requests are counted, and fail with `error`, an errno, as `how` says. With ENOSPC only those that may
 * take room on a disk are, and a write that is the n-th does a half before the next one fails. */
void files_begin(files_manner how, long n, int error);

typedef struct files_seen {
    long requests;
    long descriptors, mappings; /* left open */
    const char *failed;         /* the call that failed first */
} files_seen;
files_seen files_end(void);

#endif
