#define _POSIX_C_SOURCE 200809L

#include "data/source.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"

/* Rows may be read long after the file was indexed: say so when it is no longer that file. */
static mm_status check_unchanged(const mmi_source *s)
{
    mmi_look now;
    mm_status status = mmi_look_at(&now, s->fd, s->path);
    if (status != MM_OK)
        return status;
    if (now.size < s->seen.size)
        return mmi_fail(MM_ERR_IO, "%s: became shorter while in use: %lld bytes of %lld are left", s->path,
                        (long long)now.size, (long long)s->seen.size);
    if (now.size != s->seen.size || now.seconds != s->seen.seconds || now.nanoseconds != s->seen.nanoseconds)
        return mmi_fail(MM_ERR_IO, "%s: was changed while in use", s->path);
    return MM_OK;
}

/* --- Which rows --- */

/* Count the selected rows block by block, so that finding one reads a single block. */
static mm_status count_selected(mmi_source *s)
{
    mmi_selection *x = &s->selection;
    size_t blocks = (size_t)((x->rows + MMI_SELECTION_BLOCK - 1) / MMI_SELECTION_BLOCK);
    mmi_index_row rows[MMI_SELECTION_BLOCK];
    x->before = mmi_alloc(blocks, sizeof *x->before);
    if (!x->before)
        return mmi_fail_memory(blocks * sizeof *x->before, "the split of a data set");
    x->count = 0;
    for (int64_t row = 0; row < x->rows; row += MMI_SELECTION_BLOCK) {
        int64_t n = x->rows - row < MMI_SELECTION_BLOCK ? x->rows - row : MMI_SELECTION_BLOCK;
        mm_status status = mmi_index_get(rows, &s->index, row, n);
        if (status != MM_OK)
            return status;
        x->before[row / MMI_SELECTION_BLOCK] = x->count;
        for (int64_t i = 0; i < n; i++)
            x->count += rows[i].hash >= x->from && rows[i].hash < x->until;
    }
    return MM_OK;
}

static mm_status select_rows(mmi_source *s, const mmi_source_plan *plan)
{
    mmi_selection *x = &s->selection;
    x->rows = plan->max_rows > 0 && plan->max_rows < s->index.rows ? plan->max_rows : s->index.rows;
    x->count = x->rows;
    x->from = plan->from;
    x->until = plan->until;
    if (x->from == 0 && x->until > UINT32_MAX)
        return MM_OK;
    return count_selected(s);
}

mm_status mmi_source_select(int64_t *row, const mmi_source *s, int64_t n)
{
    const mmi_selection *x = &s->selection;
    *row = n;
    if (!x->before)
        return MM_OK;
    int64_t low = 0, high = (x->rows - 1) / MMI_SELECTION_BLOCK; /* the last block with before[] <= n */
    while (low < high) {
        int64_t middle = (low + high + 1) / 2;
        if (x->before[middle] <= n)
            low = middle;
        else
            high = middle - 1;
    }
    mmi_index_row rows[MMI_SELECTION_BLOCK];
    int64_t first = low * MMI_SELECTION_BLOCK, left = n - x->before[low];
    int64_t size = x->rows - first < MMI_SELECTION_BLOCK ? x->rows - first : MMI_SELECTION_BLOCK;
    mm_status status = mmi_index_get(rows, &s->index, first, size);
    if (status != MM_OK)
        return status;
    for (int64_t i = 0; i < size; i++)
        if (rows[i].hash >= x->from && rows[i].hash < x->until && left-- == 0) {
            *row = first + i;
            return MM_OK;
        }
    return mmi_fail(MM_ERR_IO, "%s: was changed while in use", s->index.cache_path ? s->index.cache_path : s->path);
}

/* --- Opening --- */

static mm_status open_index(mmi_source *s, const mmi_source_plan *plan)
{
    const char *cache = plan->cache_path && s->seen.size >= plan->cache_from ? plan->cache_path : NULL;
    mm_status status = mmi_index_open(&s->index, s->fd, &s->seen, s->path, cache);
    if (status == MM_OK)
        status = check_unchanged(s);
    if (status == MM_OK && s->index.bytes != s->seen.size)
        status = mmi_fail(MM_ERR_IO, "%s: was changed while it was read", s->path);
    if (status == MM_OK && s->index.rows == 0 && !plan->may_be_empty)
        status = mmi_fail(MM_ERR_FORMAT, "%s: there is no row in it", s->path);
    return status;
}

mm_status mmi_source_open(mmi_source *s, const mmi_source_plan *plan)
{
    s->max_line = plan->max_line;
    s->fd = -1;
    s->path = mmi_strdup(plan->path);
    if (!s->path)
        return mmi_fail_memory(strlen(plan->path) + 1, "a path");
    mm_status status = mmi_open_file(s->path, &s->fd, &s->seen);
    if (status == MM_OK)
        status = open_index(s, plan);
    return status == MM_OK ? select_rows(s, plan) : status;
}

void mmi_source_close(mmi_source *s)
{
    if (!s->path)
        return;
    if (s->fd >= 0)
        close(s->fd);
    mmi_index_close(&s->index);
    mmi_free(s->selection.before);
    mmi_free(s->path);
    s->path = NULL;
}

/* --- Lines --- */

void mmi_line_free(mmi_line *line)
{
    mmi_free(line->data);
    memset(line, 0, sizeof *line);
}

static mm_status fail_long(const mmi_source *s, int64_t row)
{
    mmi_fail(MM_ERR_FORMAT, "the line has more than %lld bytes (max_line)", (long long)s->max_line);
    return mmi_source_fail_within(MM_ERR_FORMAT, s, row);
}

/* Where the line of a row begins, and where that of the next one does, or the file ends. */
static mm_status find_line(int64_t *from, int64_t *end, const mmi_source *s, int64_t row)
{
    mmi_index_row rows[2] = { { 0, 0, 0 }, { (uint64_t)s->index.bytes, 0, 0 } };
    mm_status status = check_unchanged(s);
    if (status == MM_OK)
        status = mmi_index_get(rows, &s->index, row, row + 1 < s->index.rows ? 2 : 1);
    *from = (int64_t)rows[0].start;
    *end = (int64_t)rows[1].start;
    return status;
}

/* Empty lines may follow it before the next row, so it is read up to its '\n'. */
mm_status mmi_source_line(mmi_line *line, const mmi_source *s, int64_t row)
{
    int64_t from, end;
    mm_status status = find_line(&from, &end, s, row);
    line->size = 0;
    while (status == MM_OK && from < end) {
        size_t step = line->size < 4096 ? 4096 : line->size;
        if ((int64_t)step > end - from)
            step = (size_t)(end - from);
        if ((int64_t)(line->size + step) > s->max_line + 1)
            step = (size_t)s->max_line + 1 - line->size;
        if (step == 0)
            return fail_long(s, row);
        if (!mmi_grow(&line->data, &line->capacity, line->size + step, 1))
            return mmi_fail_memory(line->size + step, "a line");
        status = mmi_read_at(s->fd, line->data + line->size, step, (uint64_t)from, s->path);
        const char *newline = status == MM_OK ? memchr(line->data + line->size, '\n', step) : NULL;
        line->size = newline ? (size_t)(newline - line->data) : line->size + step;
        if (newline)
            break;
        from += (int64_t)step;
    }
    if (status == MM_OK && (int64_t)line->size > s->max_line)
        return fail_long(s, row);
    return status;
}

mm_status mmi_source_number(int64_t *number, const mmi_source *s, int64_t row)
{
    mmi_index_row at;
    mm_status status = mmi_index_get(&at, &s->index, row, 1);
    if (status == MM_OK)
        *number = row + 1 + (int64_t)at.empty;
    return status;
}

mm_status mmi_source_fail_within(mm_status status, const mmi_source *s, int64_t row)
{
    char story[1024];
    int64_t number = row + 1;
    snprintf(story, sizeof story, "%s", mm_last_error());
    (void)mmi_source_number(&number, s, row); /* may fail, and tell that story instead */
    return mmi_fail(status, "%s:%lld: %s", s->path, (long long)number, story);
}

mm_status mmi_source_row(mmi_json **out, const mmi_source *s, int64_t row, mmi_line *line)
{
    mm_status status = mmi_source_line(line, s, row);
    if (status != MM_OK)
        return status;
    mmi_json *object = NULL;
    status = mmi_json_parse(line->data, line->size, "the row", &object);
    if (status == MM_ERR_FORMAT) {
        /* the parser counts lines within the row, of which there is one */
        const char *column = strstr(mm_last_error(), "column ");
        mmi_fail(status, "not JSON: %s", column ? column : mm_last_error());
        return mmi_source_fail_within(status, s, row);
    }
    if (status != MM_OK)
        return status;
    if (mmi_json_what(object) != MMI_JSON_OBJECT) {
        mmi_fail(MM_ERR_FORMAT, "the row is %s, not an object", mmi_json_kind_name(mmi_json_what(object)));
        mmi_json_free(object);
        return mmi_source_fail_within(MM_ERR_FORMAT, s, row);
    }
    *out = object;
    return MM_OK;
}
