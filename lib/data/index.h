/* Where the rows of a JSON-lines file begin: built by reading the file once, kept in a file of its own beside it, and
 * read from there row by row, so that it takes no memory however large the file is. */
#ifndef MMI_DATA_INDEX_H
#define MMI_DATA_INDEX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/files.h"
#include "base/status.h"
#include "data/hash.h"

/* A row is a line that holds more than white space. */
typedef struct mmi_index_row {
    uint64_t start; /* offset of its line */
    uint32_t hash;  /* of the line from its first character up to "\n" or "\r\n": on which side of a split it falls */
    uint32_t empty; /* empty lines before it: its line's number is row + 1 + empty */
} mmi_index_row;

typedef struct mmi_index {
    int64_t rows;
    int64_t bytes;        /* of the file */
    uint64_t hash;        /* of all of them */
    bool returns;         /* some row ends in '\r' */
    mmi_index_row *items; /* [rows], or NULL: they are in `cache` */
    mmi_reader cache;
    char *cache_path;
} mmi_index;

/* The index of the file `fd`, which looked like `seen` when it was opened. `cache_path` is where it is kept; NULL: in
 * memory. A cache that is damaged or belongs to other contents is replaced; one that can't be written is done without.
 * MM_ERR_IO, MM_ERR_MEMORY: there is nothing to free. */
mm_status mmi_index_open(mmi_index *index, int fd, const mmi_look *seen, const char *path, const char *cache_path);
void mmi_index_close(mmi_index *index);

/* Rows [row, row + count). MM_ERR_IO: the cache became shorter or makes no sense any more. Thread-safe. */
mm_status mmi_index_get(mmi_index_row *out, const mmi_index *index, int64_t row, int64_t count);

/* --- Between index.c and index_cache.c --- */

/* Where a scan puts its rows: into the cache's writer, or into memory. */
typedef struct mmi_index_sink {
    mmi_index *index;
    size_t room;
    mmi_writer *writer; /* NULL: memory */
    mmi_hash hash;      /* of what the writer was given */
} mmi_index_sink;

/* Read the file piece by piece. False in `*sunk` when the sink failed, which is no failure of the file. */
mm_status mmi_index_scan(mmi_index_sink *sink, bool *sunk, int fd, const char *path);

/* Open the cache if it is whole and belongs to this file. */
bool mmi_index_cache_open(mmi_index *index, int fd, const mmi_look *seen, const char *cache_path);

/* Scan the file into a new cache. MM_OK with index->rows 0 and no cache open: it couldn't be written. */
mm_status mmi_index_cache_build(mmi_index *index, int fd, const mmi_look *seen, const char *path,
                                const char *cache_path);

#endif
