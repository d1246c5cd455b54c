/* One JSON-lines file: its index and its lines. */
#ifndef MMI_DATA_SOURCE_H
#define MMI_DATA_SOURCE_H

#include "base/json.h"
#include "data/index.h"

/* Room for a line, used again for the next one; a zeroed struct is ready. */
typedef struct mmi_line {
    char *data;
    size_t size, capacity;
} mmi_line;
void mmi_line_free(mmi_line *line);

/* Part of a file's rows: those before `limit` that fall on one side of a split by hash. */
typedef struct mmi_selection {
    int64_t rows;         /* of the file before the limit */
    int64_t count;        /* selected */
    int64_t *before;      /* [rows / MMI_SELECTION_BLOCK, rounded up]: selected rows before each block; NULL: all are */
    uint64_t from, until; /* hashes in [from, until) are selected */
} mmi_selection;
#define MMI_SELECTION_BLOCK 64

typedef struct mmi_source {
    int fd;
    char *path;
    mmi_look seen; /* as the file was when it was indexed */
    mmi_index index;
    mmi_selection selection;
    int64_t max_line; /* bytes */
} mmi_source;

/* What to take from a file. */
typedef struct mmi_source_plan {
    const char *path, *cache_path; /* cache_path NULL: the index stays in memory */
    int64_t max_rows;              /* 0: no limit */
    int64_t cache_from, max_line;
    uint64_t from, until; /* hashes, of 2³² */
    bool may_be_empty;    /* else a file without a row is MM_ERR_FORMAT */
} mmi_source_plan;

/* A zeroed source is ready for opening and for closing; a failed one is to be closed. */
mm_status mmi_source_open(mmi_source *source, const mmi_source_plan *plan);
void mmi_source_close(mmi_source *source);

/* Row of the file that is the n-th selected one, n < selection.count. */
mm_status mmi_source_select(int64_t *row, const mmi_source *source, int64_t n);

/* The line of a row of the file, without its end. MM_ERR_FORMAT: too long. MM_ERR_IO: the file is no longer what it
 * was. */
mm_status mmi_source_line(mmi_line *line, const mmi_source *source, int64_t row);

/* Row as a JSON object, mmi_json_free it. `line` is room to read into. Messages name file and line. */
mm_status mmi_source_row(mmi_json **out, const mmi_source *source, int64_t row, mmi_line *line);

/* Its line's number, from 1. MM_ERR_IO: the index is no longer what it was. */
mm_status mmi_source_number(int64_t *number, const mmi_source *source, int64_t row);

/* Put "file:line: " before the message at hand; a guess at the line where it can't be had. Returns `status`. */
mm_status mmi_source_fail_within(mm_status status, const mmi_source *source, int64_t row);

#endif
