#define _POSIX_C_SOURCE 200809L

#include "data/dataset.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/files.h"
#include "base/memory.h"
#include "data/hash.h"
#include "data/index.h"

struct mm_dataset {
    atomic_int holds;
    int fd;
    char *path;
    mmi_index index;
    struct stat seen; /* as the file was when it was indexed */
};

static mm_status fail_errno(const char *path, const char *verb)
{
    char text[128];
    int error = errno;
    if (strerror_r(error, text, sizeof text) != 0)
        text[0] = '\0';
    return mmi_fail(MM_ERR_IO, "%s: can't %s: %s", path, verb, text);
}

/* Rows may be read long after the file was indexed: say so when it is no longer that file. */
static mm_status check_unchanged(const mm_dataset *d)
{
    struct stat now;
    if (fstat(d->fd, &now) != 0)
        return fail_errno(d->path, "look at");
    if (now.st_size < d->seen.st_size)
        return mmi_fail(MM_ERR_IO, "%s: became shorter while in use: %lld bytes of %lld are left", d->path,
                        (long long)now.st_size, (long long)d->seen.st_size);
    if (now.st_size != d->seen.st_size || now.st_mtim.tv_sec != d->seen.st_mtim.tv_sec ||
        now.st_mtim.tv_nsec != d->seen.st_mtim.tv_nsec)
        return mmi_fail(MM_ERR_IO, "%s: was changed while in use", d->path);
    return MM_OK;
}

static mm_status open_file(mm_dataset *d)
{
    d->fd = open(d->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a named pipe must not hold us up */
    if (d->fd < 0)
        return fail_errno(d->path, "open");
    if (fstat(d->fd, &d->seen) != 0)
        return fail_errno(d->path, "look at");
    if (!S_ISREG(d->seen.st_mode))
        return mmi_fail(MM_ERR_IO, "%s: is not a regular file", d->path);
    mm_status status = mmi_index_build(&d->index, d->fd, d->path);
    if (status == MM_OK)
        status = check_unchanged(d);
    if (status == MM_OK && d->index.bytes != d->seen.st_size)
        status = mmi_fail(MM_ERR_IO, "%s: was changed while it was read", d->path);
    if (status == MM_OK && d->index.rows == 0)
        status = mmi_fail(MM_ERR_FORMAT, "%s: there is no row in it", d->path);
    return status;
}

mm_status mm_dataset_open(const char *path, mm_dataset **out)
{
    if (!path || !out)
        return mmi_fail(MM_ERR_ARG, "mm_dataset_open: %s is NULL", path ? "out" : "path");
    mm_dataset *d = mmi_calloc(1, sizeof *d);
    if (!d)
        return mmi_fail_memory(sizeof *d, "a data set");
    atomic_init(&d->holds, 1);
    d->fd = -1;
    d->path = mmi_strdup(path);
    mm_status status = d->path ? open_file(d) : mmi_fail_memory(strlen(path) + 1, "a path");
    if (status != MM_OK) {
        mm_dataset_free(d);
        return status;
    }
    *out = d;
    return MM_OK;
}

mm_dataset *mmi_dataset_hold(mm_dataset *d)
{
    atomic_fetch_add(&d->holds, 1);
    return d;
}

void mm_dataset_free(mm_dataset *d)
{
    if (!d || atomic_fetch_sub(&d->holds, 1) != 1)
        return;
    if (d->fd >= 0)
        close(d->fd);
    mmi_index_free(&d->index);
    mmi_free(d->path);
    mmi_free(d);
}

int64_t mm_dataset_rows(const mm_dataset *d)
{
    return d ? d->index.rows : 0;
}

int64_t mmi_dataset_bytes(const mm_dataset *d)
{
    return d->index.bytes;
}

uint64_t mmi_dataset_hash(const mm_dataset *d)
{
    return d->index.hash;
}

const char *mmi_dataset_path(const mm_dataset *d)
{
    return d->path;
}

void mmi_line_free(mmi_line *line)
{
    mmi_free(line->data);
    memset(line, 0, sizeof *line);
}

/* Bytes [from, from + size) into `data`. */
static mm_status read_range(const mm_dataset *d, char *data, int64_t from, size_t size)
{
    while (size > 0) {
        ssize_t n = pread(d->fd, data, size, (off_t)from);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return fail_errno(d->path, "read");
        if (n == 0)
            return mmi_fail(MM_ERR_IO, "%s: became shorter while in use", d->path);
        data += n;
        from += n;
        size -= (size_t)n;
    }
    return MM_OK;
}

/* The line of a row without its end. Empty lines may follow it before the next row, so it is read up to its '\n'. */
static mm_status read_line(const mm_dataset *d, int64_t row, mmi_line *line)
{
    mm_status status = check_unchanged(d);
    int64_t from = d->index.starts[row];
    int64_t end = row + 1 < d->index.rows ? d->index.starts[row + 1] : d->index.bytes;
    line->size = 0;
    while (status == MM_OK && from < end) {
        size_t step = line->size < 4096 ? 4096 : line->size;
        if ((int64_t)step > end - from)
            step = (size_t)(end - from);
        if (!mmi_grow(&line->data, &line->capacity, line->size + step, 1))
            return mmi_fail_memory(line->size + step, "a line");
        status = read_range(d, line->data + line->size, from, step);
        if (status != MM_OK)
            break;
        const char *newline = memchr(line->data + line->size, '\n', step);
        if (newline) {
            line->size = (size_t)(newline - line->data);
            break;
        }
        line->size += step;
        from += (int64_t)step;
    }
    return status;
}

mm_status mmi_dataset_fail_within(mm_status status, const mm_dataset *d, int64_t row)
{
    int64_t number = mmi_index_line(&d->index, d->fd, row);
    return mmi_fail_within(status, "%s:%lld", d->path, (long long)number);
}

mm_status mmi_dataset_row(mmi_json **out, const mm_dataset *d, int64_t row, mmi_line *line)
{
    mm_status status = read_line(d, row, line);
    if (status != MM_OK)
        return status;
    mmi_json *object = NULL;
    status = mmi_json_parse(line->data, line->size, "the row", &object);
    if (status == MM_ERR_FORMAT) {
        /* the parser counts lines within the row, of which there is one */
        const char *column = strstr(mm_last_error(), "column ");
        mmi_fail(status, "not JSON: %s", column ? column : mm_last_error());
        return mmi_dataset_fail_within(status, d, row);
    }
    if (status != MM_OK)
        return status;
    if (mmi_json_what(object) != MMI_JSON_OBJECT) {
        mmi_fail(MM_ERR_FORMAT, "the row is %s, not an object", mmi_json_kind_name(mmi_json_what(object)));
        mmi_json_free(object);
        return mmi_dataset_fail_within(MM_ERR_FORMAT, d, row);
    }
    *out = object;
    return MM_OK;
}

mm_status mmi_dataset_row_text(const char **text, size_t *length, const mm_dataset *d, int64_t row,
                               const mmi_json *object)
{
    const mmi_json *value = mmi_json_get(object, "text");
    *text = mmi_json_string(value, length);
    if (*text)
        return MM_OK;
    mmi_fail(MM_ERR_FORMAT, "\"text\" is %s, not a string", mmi_json_kind_name(mmi_json_what(value)));
    return mmi_dataset_fail_within(MM_ERR_FORMAT, d, row);
}

static mm_status give_text(const char *from, size_t length, char *text, size_t capacity, size_t *needed)
{
    if (needed)
        *needed = length;
    if (capacity == 0)
        return MM_OK;
    if (capacity < length)
        return mmi_fail(MM_ERR_ARG, "mm_dataset_text: the text has %zu bytes, there is room for %zu", length, capacity);
    memcpy(text, from, length);
    return MM_OK;
}

mm_status mm_dataset_text(mm_dataset *d, int64_t row, char *text, size_t capacity, size_t *needed)
{
    if (!d || (!text && capacity > 0))
        return mmi_fail(MM_ERR_ARG, "mm_dataset_text: %s is NULL", d ? "text" : "dataset");
    if (row < 0 || row >= d->index.rows)
        return mmi_fail(MM_ERR_ARG, "mm_dataset_text: row %lld of %lld", (long long)row, (long long)d->index.rows);
    mmi_line line = { NULL, 0, 0 };
    mmi_json *object = NULL;
    const char *from = NULL;
    size_t length = 0;
    mm_status status = mmi_dataset_row(&object, d, row, &line);
    if (status == MM_OK)
        status = mmi_dataset_row_text(&from, &length, d, row, object);
    if (status == MM_OK)
        status = give_text(from, length, text, capacity, needed);
    mmi_json_free(object);
    mmi_line_free(&line);
    return status;
}
