/* Files, read whole or mapped, and written so that a reader sees the old or the new one, never half of it. */
#ifndef MMI_BASE_FILES_H
#define MMI_BASE_FILES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* MM_ERR_IO (MM_ERR_MEMORY for ENOMEM): "path: can't VERB: what errno says", without what mmi_path_waiting() added. */
mm_status mmi_fail_errno(const char *path, const char *verb);

/* "directory/name" in memory of the caller's (mmi_free), or NULL. */
char *mmi_path_join(const char *directory, const char *name);

/* From the root on and without links, or the path as it is where nothing is; in memory of the caller's, or NULL. */
char *mmi_path_resolve(const char *path);

bool mmi_is_directory(const char *path);
/* False only where nothing is: true also for what can't be looked at. */
bool mmi_file_exists(const char *path);

/* Make a directory, its parents too; one that is there is fine. */
mm_status mmi_make_directory(const char *path);

/* Remove a directory and all in it; one that is missing is fine. */
mm_status mmi_remove_tree(const char *path);

/* Of all who lock a file, in this process and others, one at a time goes on; the file is made, and stays. -1: the file
 * system has no locks; MMI_LOCK_HELD: somebody has had it for so many seconds. mmi_unlock_file() either too. */
#define MMI_LOCK_HELD (-2)
int mmi_lock_file(const char *path, double seconds);
void mmi_unlock_file(int lock);

/* By what a file is known again. Not a struct stat: what that looks like depends on each source's feature macros. */
typedef struct mmi_look {
    int64_t size;
    int64_t seconds, nanoseconds; /* of its last change */
} mmi_look;

/* A regular file for reading, of any size, and what it looks like now; close() the descriptor. */
mm_status mmi_open_file(const char *path, int *fd, mmi_look *seen);
/* What it looks like later. `path` is for the message. */
mm_status mmi_look_at(mmi_look *out, int fd, const char *path);

/* `size` bytes from `offset` on, however many calls that takes; `*got` is less only where the file ends. `path` is for
 * the message. May be called from several threads. */
mm_status mmi_read_some(int fd, void *out, size_t size, uint64_t offset, size_t *got, const char *path);
/* The same for bytes that are there, or the file became shorter. */
mm_status mmi_read_at(int fd, void *out, size_t size, uint64_t offset, const char *path);

/* The whole file, NUL-terminated behind its `size` bytes; free with mmi_free. */
mm_status mmi_read_file(const char *path, char **data, size_t *size);

/* A file mapped read-only. An empty file has data NULL. */
typedef struct mmi_mapping {
    void *data;
    size_t size;
} mmi_mapping;
mm_status mmi_map_file(const char *path, mmi_mapping *out);
void mmi_unmap_file(mmi_mapping *mapping);

/* A regular file read in parts. Unlike a mapping it may be shortened meanwhile: that is a status, not a signal. */
typedef struct mmi_reader {
    int fd;
    size_t size; /* when it was opened */
    bool open;
} mmi_reader;
mm_status mmi_reader_open(mmi_reader *r, const char *path);
/* `size` bytes from `offset` on; may be called from several threads. `path` is for the message. */
mm_status mmi_reader_get(const mmi_reader *r, void *out, size_t size, uint64_t offset, const char *path);
/* Fine on one that is zeroed or closed. */
void mmi_reader_close(mmi_reader *r);

/* MM_ERR_IO: something else than a regular file stands at `path`, whose place a file may not take. */
mm_status mmi_check_replaceable(const char *path);

/* Writing a file under a temporary name beside its own, which is short enough wherever the file's own is, to be renamed
 * when all is on disk.
 *
 *     mmi_writer w;
 *     status = mmi_writer_open(&w, path);
 *     … mmi_writer_put(&w, data, size); …          errors stick: only the last call need be looked at
 *     status = mmi_writer_commit(&w);              syncs, renames; or removes what there is. Then
 *                                                  syncs the directory, which may fail when it is in place already
 * mmi_writer_abandon(&w) drops it; after commit, or on a zeroed struct, it does nothing. */
typedef struct mmi_writer {
    int fd;
    char *path, *temporary;
    unsigned char *buffer;
    size_t filled, room; /* of the buffer */
    uint64_t written;    /* bytes so far */
    mm_status status;
    bool open;
} mmi_writer;
mm_status mmi_writer_open(mmi_writer *w, const char *path);
mm_status mmi_writer_put(mmi_writer *w, const void *data, size_t size);
mm_status mmi_writer_commit(mmi_writer *w);
void mmi_writer_abandon(mmi_writer *w);

/* The same with a name that nobody else's file has, for one that waits until others are written, too; mmi_writer_clear()
 * knows it. */
char *mmi_path_waiting(const char *directory, const char *name);

/* Remove what killed writers of directory/name left; `all`, where the caller knows that nobody is writing it, or else of
 * processes that are gone. */
void mmi_writer_clear(const char *directory, const char *name, bool all);

/* The three in one. */
mm_status mmi_write_file(const char *path, const void *data, size_t size);

/* Adding to a file's end: every piece is in the file whole, or not at all. */
typedef struct mmi_appender {
    int fd;
    char *path;
    uint64_t size; /* of the file, but for what could not be taken back */
    bool open, torn;
} mmi_appender;
/* Make the file if it is missing. On failure there is nothing to close. */
mm_status mmi_appender_open(mmi_appender *a, const char *path);
mm_status mmi_appender_put(mmi_appender *a, const void *data, size_t size);
/* Take back what was added after the file had `size` bytes. What can't be, now, is before the next piece is added, or
 * none is. */
void mmi_appender_cut(mmi_appender *a, uint64_t size);
/* Fine on one that is zeroed or closed. */
void mmi_appender_close(mmi_appender *a);

/* Rename what is finished, a file or a directory, into place; and sync its parent then, which may fail when it is there
 * already. */
mm_status mmi_rename(const char *from, const char *to);
mm_status mmi_rename_synced(const char *from, const char *to);

/* Seconds of a clock that only goes forward. */
double mmi_now(void);

/* Seconds since 1970-01-01 00:00 UTC, as far as this machine knows. */
double mmi_wall_time(void);

/* This machine's name, cut to what fits; "localhost" if it has none. */
void mmi_host_name(char *out, size_t size);

#endif
