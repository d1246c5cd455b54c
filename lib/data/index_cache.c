/* The index as a file:
 *
 *     16 bytes   magic and version
 *     16 · rows  mmi_index_row, in the machine's own order of bytes
 *     footer     what file it belongs to, and a hash of everything before it
 *
 * It is written in one pass under another name, then renamed. It is never trusted: anything that doesn't fit makes a
 * new one. */
#define _POSIX_C_SOURCE 200809L

#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "data/hash.h"
#include "data/index.h"

#define EDGE 4096 /* bytes at both ends of the file that must be the same */

static const char magic[sizeof(mmi_index_row)] = "minimind idx 2\n";

typedef struct footer {
    uint64_t order;               /* 1 in the byte order of the machine that wrote it */
    int64_t bytes;                /* of the file, as are the next ones */
    int64_t seconds, nanoseconds; /* of its last change */
    uint64_t edges;               /* hash of its first and last EDGE bytes */
    uint64_t hash;                /* of all its bytes */
    int64_t rows;
    uint64_t returns;  /* 1: mmi_index.returns */
    uint64_t own_hash; /* of the cache before this field */
} footer;

/* The file's first and last bytes; false if they can't be read. */
static bool hash_edges(uint64_t *out, int fd, int64_t bytes, const char *path)
{
    unsigned char edge[EDGE];
    mmi_hash hash;
    mmi_hash_begin(&hash);
    int64_t starts[2] = { 0, bytes > EDGE ? bytes - EDGE : 0 };
    size_t size = bytes > EDGE ? EDGE : (size_t)bytes;
    for (int i = 0; i < 2; i++) {
        if (mmi_read_at(fd, edge, size, (uint64_t)starts[i], path) != MM_OK)
            return false;
        mmi_hash_add(&hash, edge, size);
    }
    *out = mmi_hash_end(&hash);
    return true;
}

static footer describe(const mmi_index *index, const mmi_look *seen, uint64_t edges)
{
    return (footer){ .order = 1,
                     .bytes = seen->size,
                     .seconds = seen->seconds,
                     .nanoseconds = seen->nanoseconds,
                     .edges = edges,
                     .hash = index->hash,
                     .rows = index->rows,
                     .returns = index->returns };
}

/* The hash of all that stands before own_hash. */
static bool hash_cache(uint64_t *out, const mmi_reader *cache, const char *path)
{
    enum { CHUNK = 1 << 16 };
    size_t left = cache->size - sizeof(uint64_t), at = 0;
    unsigned char *chunk = mmi_alloc(CHUNK, 1);
    bool ok = chunk != NULL;
    mmi_hash hash;
    mmi_hash_begin(&hash);
    while (ok && left > 0) {
        size_t step = left < CHUNK ? left : CHUNK;
        ok = mmi_reader_get(cache, chunk, step, at, path) == MM_OK;
        if (ok)
            mmi_hash_add(&hash, chunk, step);
        at += step;
        left -= step;
    }
    mmi_free(chunk);
    *out = mmi_hash_end(&hash);
    return ok;
}

static bool read_footer(footer *f, const mmi_reader *cache, const char *path)
{
    char start[sizeof magic];
    if (cache->size < sizeof magic + sizeof *f || mmi_reader_get(cache, start, sizeof start, 0, path) != MM_OK ||
        memcmp(start, magic, sizeof magic) != 0 ||
        mmi_reader_get(cache, f, sizeof *f, cache->size - sizeof *f, path) != MM_OK)
        return false;
    size_t rows = cache->size - sizeof magic - sizeof *f;
    return f->order == 1 && rows % sizeof(mmi_index_row) == 0 && (uint64_t)f->rows == rows / sizeof(mmi_index_row);
}

bool mmi_index_cache_open(mmi_index *index, int fd, const mmi_look *seen, const char *path)
{
    footer f;
    uint64_t edges, own_hash;
    if (!mmi_file_exists(path) || mmi_reader_open(&index->cache, path) != MM_OK)
        return false;
    bool whole = read_footer(&f, &index->cache, path);
    bool same = whole && f.bytes == seen->size && f.seconds == seen->seconds && f.nanoseconds == seen->nanoseconds &&
                hash_edges(&edges, fd, f.bytes, path) && edges == f.edges;
    if (same && hash_cache(&own_hash, &index->cache, path) && own_hash == f.own_hash) {
        index->rows = f.rows;
        index->bytes = f.bytes;
        index->hash = f.hash;
        index->returns = f.returns != 0;
        return true;
    }
    if (!whole || same)
        mmi_log(MM_LOG_INFO, "%s: is damaged, it is built again", path);
    mmi_reader_close(&index->cache);
    return false;
}

static bool finish(mmi_index_sink *sink, int fd, const mmi_look *seen, const char *path)
{
    mmi_index *index = sink->index;
    uint64_t edges;
    if (index->rows == 0 || index->bytes != seen->size || !hash_edges(&edges, fd, index->bytes, path))
        return false;
    footer f = describe(index, seen, edges);
    mmi_hash_add(&sink->hash, &f, offsetof(footer, own_hash));
    f.own_hash = mmi_hash_end(&sink->hash);
    mmi_writer_put(sink->writer, &f, sizeof f);
    return mmi_writer_commit(sink->writer) == MM_OK && mmi_reader_open(&index->cache, path) == MM_OK;
}

mm_status mmi_index_cache_build(mmi_index *index, int fd, const mmi_look *seen, const char *path,
                                const char *cache_path)
{
    mmi_writer writer;
    mmi_index_sink sink = { .index = index, .writer = &writer };
    bool sunk, done = false;
    if (mmi_writer_open(&writer, cache_path) != MM_OK)
        return MM_OK; /* a directory that can't be written, most likely */
    mmi_hash_begin(&sink.hash);
    mmi_hash_add(&sink.hash, magic, sizeof magic);
    mmi_writer_put(&writer, magic, sizeof magic);
    mm_status status = mmi_index_scan(&sink, &sunk, fd, path);
    if (status == MM_OK && sunk)
        done = finish(&sink, fd, seen, cache_path);
    mmi_writer_abandon(&writer);
    if (!done)
        index->rows = 0;
    return status;
}
