#define _POSIX_C_SOURCE 200809L

#include "data/index.h"

#include <string.h>

#include "base/memory.h"
#include "data/hash.h"

#define CHUNK ((size_t)1 << 16)

/* What is known at one place of the file. */
typedef struct scan {
    mmi_index_sink *sink;
    uint64_t start;    /* where the line at hand begins */
    uint32_t empty;    /* empty lines so far; stops at the largest number */
    bool begun;        /* the line at hand is a row */
    mmi_hash row_hash; /* of what has been seen of it … */
    bool held;         /* … but for a '\r', which belongs to the line's end if that comes next */
} scan;

static bool put_row(scan *s)
{
    mmi_index *x = s->sink->index;
    mmi_index_row row = { s->start, (uint32_t)(mmi_hash_end(&s->row_hash) >> 32), s->empty };
    if (s->sink->writer) {
        if (mmi_writer_put(s->sink->writer, &row, sizeof row) != MM_OK)
            return false;
        mmi_hash_add(&s->sink->hash, &row, sizeof row);
    } else {
        if (!mmi_grow(&x->items, &s->sink->room, (size_t)x->rows + 1, sizeof row))
            return false;
        x->items[x->rows] = row;
    }
    x->rows++;
    x->returns |= s->held;
    return true;
}

static bool end_line(scan *s, uint64_t next)
{
    bool ok = !s->begun || put_row(s);
    if (!s->begun && s->empty < UINT32_MAX)
        s->empty++;
    s->start = next;
    s->begun = false;
    return ok;
}

static void begin_row(scan *s)
{
    s->begun = true;
    s->held = false;
    mmi_hash_begin(&s->row_hash);
}

static void hash_row(scan *s, const char *bytes, size_t size)
{
    if (size == 0)
        return;
    if (s->held)
        mmi_hash_add(&s->row_hash, "\r", 1);
    s->held = bytes[size - 1] == '\r';
    mmi_hash_add(&s->row_hash, bytes, size - s->held);
}

/* Take in the `size` bytes at `offset`. False when the sink failed. */
static bool scan_chunk(scan *s, const char *chunk, size_t size, uint64_t offset)
{
    size_t i = 0;
    while (i < size) {
        if (!s->begun && (chunk[i] == ' ' || chunk[i] == '\t' || chunk[i] == '\r')) {
            i++;
            continue;
        }
        const char *newline = memchr(chunk + i, '\n', size - i);
        size_t end = newline ? (size_t)(newline - chunk) : size;
        if (!s->begun && end > i)
            begin_row(s);
        if (s->begun)
            hash_row(s, chunk + i, end - i);
        if (newline && !end_line(s, offset + end + 1))
            return false;
        i = end + 1;
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

static mm_status scan_file(scan *s, bool *sunk, int fd, const char *path, char *chunk)
{
    mmi_hash hash;
    mmi_hash_begin(&hash);
    uint64_t offset = 0;
    *sunk = true;
    while (*sunk) {
        size_t got = 0;
        mm_status status = mmi_read_some(fd, chunk, CHUNK, offset, &got, path);
        if (status != MM_OK)
            return status;
        if (got == 0)
            break;
        mmi_hash_add(&hash, chunk, got);
        size_t passed = offset == 0 ? skip_mark(s, chunk, got) : 0;
        *sunk = scan_chunk(s, chunk + passed, got - passed, offset + passed);
        offset += got;
    }
    if (*sunk && s->begun) /* the last line may lack its end */
        *sunk = put_row(s);
    s->sink->index->bytes = (int64_t)offset;
    s->sink->index->hash = mmi_hash_end(&hash);
    return MM_OK;
}

mm_status mmi_index_scan(mmi_index_sink *sink, bool *sunk, int fd, const char *path)
{
    *sunk = false;
    char *chunk = mmi_alloc(CHUNK, 1);
    if (!chunk)
        return mmi_fail_memory(CHUNK, path);
    scan s = { .sink = sink };
    mm_status status = scan_file(&s, sunk, fd, path, chunk);
    mmi_free(chunk);
    return status;
}

static mm_status build_in_memory(mmi_index *index, int fd, const char *path)
{
    mmi_index_sink sink = { .index = index };
    bool sunk;
    mm_status status = mmi_index_scan(&sink, &sunk, fd, path);
    if (status == MM_OK && !sunk)
        status = mmi_fail_memory((size_t)index->rows * sizeof *index->items, "the index of a data set");
    if (status != MM_OK || index->rows == 0)
        return status;
    /* Growing took up to twice what is needed. A failure here is none: the larger block serves as well. */
    mmi_index_row *exact = mmi_realloc(index->items, (size_t)index->rows, sizeof *exact);
    if (exact)
        index->items = exact;
    return MM_OK;
}

mm_status mmi_index_open(mmi_index *index, int fd, const mmi_look *seen, const char *path, const char *cache_path)
{
    memset(index, 0, sizeof *index);
    if (cache_path) {
        index->cache_path = mmi_strdup(cache_path); /* for messages */
        if (!index->cache_path)
            return mmi_fail_memory(strlen(cache_path) + 1, "a path");
        if (mmi_index_cache_open(index, fd, seen, cache_path))
            return MM_OK;
        mm_status status = mmi_index_cache_build(index, fd, seen, path, cache_path);
        if (status != MM_OK)
            mmi_index_close(index);
        if (status != MM_OK || index->cache.open)
            return status;
    }
    mm_status status = build_in_memory(index, fd, path);
    if (status != MM_OK)
        mmi_index_close(index);
    return status;
}

void mmi_index_close(mmi_index *index)
{
    mmi_reader_close(&index->cache);
    mmi_free(index->items);
    mmi_free(index->cache_path);
    memset(index, 0, sizeof *index);
}

mm_status mmi_index_get(mmi_index_row *out, const mmi_index *index, int64_t row, int64_t count)
{
    if (index->items) {
        memcpy(out, index->items + row, (size_t)count * sizeof *out);
        return MM_OK;
    }
    mm_status status = mmi_reader_get(&index->cache, out, (size_t)count * sizeof *out,
                                      (uint64_t)(row + 1) * sizeof *out, index->cache_path);
    for (int64_t i = 0; i < count && status == MM_OK; i++)
        if (out[i].start >= (uint64_t)index->bytes || (i > 0 && out[i].start <= out[i - 1].start))
            status = mmi_fail(MM_ERR_IO, "%s: was changed while in use", index->cache_path);
    return status;
}
