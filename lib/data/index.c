#define _POSIX_C_SOURCE 200809L

#include "data/index.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "data/hash.h"

#define CHUNK ((size_t)1 << 16)

/* What is known at one place of the file. */
typedef struct scan {
    mmi_index *index;
    size_t row_room, mark_room;
    int64_t line;  /* number of the line at hand, from 1 */
    int64_t start; /* where it begins */
    bool counted;  /* it is a row already */
} scan;

static bool add_row(scan *s)
{
    mmi_index *x = s->index;
    size_t row = (size_t)x->rows, mark = row / MMI_INDEX_STRIDE;
    if (!mmi_grow(&x->starts, &s->row_room, row + 1, sizeof *x->starts) ||
        !mmi_grow(&x->lines, &s->mark_room, mark + 1, sizeof *x->lines))
        return false;
    x->starts[row] = s->start;
    if (row % MMI_INDEX_STRIDE == 0)
        x->lines[mark] = s->line;
    x->rows++;
    s->counted = true;
    return true;
}

/* Take in the `size` bytes at `offset`. False when memory ran out. */
static bool scan_chunk(scan *s, const char *chunk, size_t size, int64_t offset)
{
    size_t i = 0;
    while (i < size) {
        if (s->counted) { /* nothing but its end matters any more */
            const char *newline = memchr(chunk + i, '\n', size - i);
            if (!newline)
                return true;
            i = (size_t)(newline - chunk);
        }
        char c = chunk[i++];
        if (c == '\n') {
            s->line++;
            s->start = offset + (int64_t)i;
            s->counted = false;
        } else if (c != ' ' && c != '\t' && c != '\r' && !add_row(s)) {
            return false;
        }
    }
    return true;
}

/* A byte order mark is no part of the first line. */
static size_t skip_mark(scan *s, const char *chunk, size_t size)
{
    if (size < 3 || memcmp(chunk, "\xEF\xBB\xBF", 3) != 0)
        return 0;
    s->start = 3;
    return 3;
}

static mm_status scan_file(scan *s, int fd, const char *path, char *chunk)
{
    mmi_hash hash;
    mmi_hash_begin(&hash);
    int64_t offset = 0;
    for (;;) {
        ssize_t n = pread(fd, chunk, CHUNK, (off_t)offset);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return mmi_fail(MM_ERR_IO, "%s: can't read it", path);
        if (n == 0)
            break;
        mmi_hash_add(&hash, chunk, (size_t)n);
        size_t passed = offset == 0 ? skip_mark(s, chunk, (size_t)n) : 0;
        if (!scan_chunk(s, chunk + passed, (size_t)n - passed, offset + (int64_t)passed))
            return mmi_fail_memory((size_t)s->index->rows * sizeof(int64_t), "the index of a data set");
        offset += n;
    }
    s->index->bytes = offset;
    s->index->hash = mmi_hash_end(&hash);
    return MM_OK;
}

/* Growing took up to twice what is needed. A failure here is none: the larger block serves as well. */
static void fit(int64_t **array, size_t count)
{
    int64_t *exact = mmi_realloc(*array, count, sizeof **array);
    if (exact)
        *array = exact;
}

mm_status mmi_index_build(mmi_index *index, int fd, const char *path)
{
    memset(index, 0, sizeof *index);
    char *chunk = mmi_alloc(CHUNK, 1);
    if (!chunk)
        return mmi_fail_memory(CHUNK, path);
    scan s = { .index = index, .line = 1 };
    mm_status status = scan_file(&s, fd, path, chunk);
    mmi_free(chunk);
    if (status != MM_OK) {
        mmi_index_free(index);
        return status;
    }
    if (index->rows > 0) {
        fit(&index->starts, (size_t)index->rows);
        fit(&index->lines, (size_t)((index->rows - 1) / MMI_INDEX_STRIDE + 1));
    }
    return MM_OK;
}

void mmi_index_free(mmi_index *index)
{
    mmi_free(index->starts);
    mmi_free(index->lines);
    memset(index, 0, sizeof *index);
}

int64_t mmi_index_line(const mmi_index *index, int fd, int64_t row)
{
    char chunk[8192];
    int64_t mark = row / MMI_INDEX_STRIDE;
    int64_t number = index->lines[mark];
    int64_t at = index->starts[mark * MMI_INDEX_STRIDE], end = index->starts[row];
    while (at < end) {
        size_t want = end - at < (int64_t)sizeof chunk ? (size_t)(end - at) : sizeof chunk;
        ssize_t n = pread(fd, chunk, want, (off_t)at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            break; /* the file has gone; what is known will do for a message */
        for (const char *p = chunk; (p = memchr(p, '\n', (size_t)(chunk + n - p))) != NULL; p++)
            number++;
        at += n;
    }
    return number;
}
