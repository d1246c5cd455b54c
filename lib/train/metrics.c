#include "train/metrics.h"

#include "base/files.h"
#include "base/memory.h"
#include "data/source.h"

/* One row. `*keep` false: it lies beyond, or it is the last one and torn. */
static mm_status take_row(bool *keep, mmi_tracks *tracks, const mmi_source *source, int64_t row, mmi_line *line,
                          int64_t last_step)
{
    mmi_json *value = NULL;
    *keep = false;
    mm_status status = mmi_source_row(&value, source, row, line);
    if (status == MM_ERR_FORMAT && row == source->index.rows - 1)
        return MM_OK;
    if (status != MM_OK)
        return status;
    if (mmi_json_int(mmi_json_get(value, "step"), 0) <= last_step) {
        status = mmi_tracks_reserve(tracks, value);
        if (status == MM_OK) {
            mmi_tracks_take(tracks, value);
            *keep = true;
        } else {
            status = mmi_source_fail_within(status == MM_ERR_ARG ? MM_ERR_FORMAT : status, source, row);
        }
    }
    mmi_json_free(value);
    return status;
}

static mm_status take_rows(mmi_tracks *tracks, const mmi_source *source, mmi_writer *copy, int64_t last_step)
{
    mmi_line line = { 0 };
    mm_status status = MM_OK;
    for (int64_t row = 0; row < source->index.rows && status == MM_OK; row++) {
        bool keep;
        status = take_row(&keep, tracks, source, row, &line, last_step);
        if (status == MM_OK && keep) {
            mmi_writer_put(copy, line.data, line.size);
            mmi_writer_put(copy, "\n", 1);
        }
    }
    mmi_line_free(&line);
    return status;
}

/* Does the file end where a line does? Then the copy, which ends every line, is the same or shorter. */
static mm_status ends_whole(bool *whole, const mmi_source *source, const char *path)
{
    char last = '\n';
    int64_t size = source->index.bytes;
    mm_status status = size > 0 ? mmi_read_at(source->fd, &last, 1, (uint64_t)size - 1, path) : MM_OK;
    *whole = last == '\n';
    return status;
}

static mm_status read_back(mmi_tracks *tracks, const char *path, int64_t last_step)
{
    mmi_source_plan plan = {
        .path = path, .cache_from = -1, .max_line = (int64_t)1 << 30, .until = (uint64_t)1 << 32, .may_be_empty = true
    };
    mmi_source source = { 0 };
    mmi_writer copy = { 0 };
    bool whole = false;
    mm_status status = mmi_source_open(&source, &plan);
    if (status == MM_OK)
        status = mmi_writer_open(&copy, path);
    if (status == MM_OK)
        status = take_rows(tracks, &source, &copy, last_step);
    if (status == MM_OK)
        status = ends_whole(&whole, &source, path);
    if (status == MM_OK && (!whole || copy.written != (uint64_t)source.index.bytes))
        status = mmi_writer_commit(&copy);
    mmi_writer_abandon(&copy);
    mmi_source_close(&source);
    return status;
}

mm_status mmi_metrics_take_back(mmi_tracks *tracks, const char *path, int64_t last_step)
{
    mmi_reader file = { 0 };
    if (!mmi_file_exists(path))
        return MM_OK;
    mm_status status = mmi_reader_open(&file, path);
    size_t size = file.size;
    mmi_reader_close(&file);
    if (status != MM_OK || size == 0)
        return status;
    if (last_step < 0)
        return mmi_write_file(path, NULL, 0);
    return read_back(tracks, path, last_step);
}
