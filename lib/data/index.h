/* Where the rows of a JSON-lines file begin. */
#ifndef MMI_DATA_INDEX_H
#define MMI_DATA_INDEX_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* A row is a line that holds more than white space. */
typedef struct mmi_index {
    int64_t *starts; /* [rows]: offset of each row's line */
    int64_t *lines;  /* [rows / MMI_INDEX_STRIDE, rounded up]: line number, from 1, of every so many-th row */
    int64_t rows;
    int64_t bytes;   /* of the file */
    uint64_t hash;   /* of all of them */
} mmi_index;

/* Empty lines make a row's number differ from its line's; one mark for so many rows keeps the index small. */
#define MMI_INDEX_STRIDE 64

/* Read the file once, piece by piece. On failure there is nothing to free. */
mm_status mmi_index_build(mmi_index *index, int fd, const char *path);
void mmi_index_free(mmi_index *index);

/* Line number of a row, from 1, counted from the last mark before it. */
int64_t mmi_index_line(const mmi_index *index, int fd, int64_t row);

#endif
