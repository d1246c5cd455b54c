#include "data/loader.h"

#include <stdatomic.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/options.h"
#include "base/random.h"
#include "data/dataset.h"
#include "data/rows.h"
#include "text/tokenizer.h"

struct mm_loader {
    atomic_int holds;
    mm_dataset *dataset;     /* held */
    mm_tokenizer *tokenizer; /* held */
    mm_loader_options options;
    int32_t width;           /* T */
    int64_t rows;
    mm_loader_position at;
    int32_t *ids, *targets, *documents; /* [B, T] of the last batch */
    mmi_line line;
    int32_t *text;           /* ids of the row at hand; when packing with bos and eos */
    size_t text_count, text_room;
    int64_t text_row;        /* of the data set; -1: none */
};

MMI_OPTIONS_INIT(mm_loader_options, MM_LOADER_OPTIONS_INIT)
MMI_OPTIONS_INIT(mm_loader_position, MM_LOADER_POSITION_INIT)

static mm_status check_id(const char *name, int32_t id, int32_t lowest, int32_t vocabulary)
{
    if (id >= lowest && id < vocabulary)
        return MM_OK;
    return mmi_fail(MM_ERR_ARG, "loader: %s is %d, it must be in [%d, %d)", name, id, lowest, vocabulary);
}

static mm_status check_options(const mm_loader_options *o, const mm_tokenizer *tokenizer)
{
    int32_t vocabulary = mm_tokenizer_vocab_size(tokenizer);
    if (o->batch < 1)
        return mmi_fail(MM_ERR_ARG, "loader: batch is %d, it must be at least 1", o->batch);
    if (o->max_length < 2)
        return mmi_fail(MM_ERR_ARG, "loader: max_length is %d, it must be at least 2", o->max_length);
    if (o->form < MM_ROWS_PAD || o->form > MM_ROWS_PACK)
        return mmi_fail(MM_ERR_ARG, "loader: form is %d, it must be one of MM_ROWS_…, 0 to 2", o->form);
    if ((o->shuffle | 1) != 1 || (o->skip_bad_lines | 1) != 1)
        return mmi_fail(MM_ERR_ARG, "loader: shuffle and skip_bad_lines are 0 or 1, not %d and %d", o->shuffle,
                        o->skip_bad_lines);
    mm_status status = check_id("bos_id", o->bos_id, -1, vocabulary);
    if (status == MM_OK)
        status = check_id("eos_id", o->eos_id, -1, vocabulary);
    return status == MM_OK ? check_id("pad_id", o->pad_id, 0, vocabulary) : status;
}

static mm_status allocate_batch(mm_loader *l)
{
    int parts = l->options.form == MM_ROWS_PACK ? 3 : 2;
    size_t each = (size_t)l->options.batch * (size_t)l->width; /* both below 2³¹ */
    l->ids = mmi_alloc(each, (size_t)parts * sizeof *l->ids);
    if (!l->ids)
        return mmi_fail(MM_ERR_MEMORY, "out of memory: a batch of %d rows of %d ids", l->options.batch, l->width);
    l->targets = l->ids + each;
    l->documents = parts == 3 ? l->targets + each : NULL;
    return MM_OK;
}

mm_status mm_loader_create(mm_dataset *dataset, mm_tokenizer *tokenizer, const mm_loader_options *options,
                           mm_loader **out)
{
    if (!dataset || !tokenizer || !out)
        return mmi_fail(MM_ERR_ARG, "mm_loader_create: %s is NULL",
                        !dataset ? "dataset" : !tokenizer ? "tokenizer" : "out");
    mm_loader_options o = MM_LOADER_OPTIONS_INIT;
    mm_status status = mmi_options_read(&o, sizeof o, options, "mm_loader_options");
    if (status == MM_OK)
        status = check_options(&o, tokenizer);
    if (status != MM_OK)
        return status;
    mm_loader *l = mmi_calloc(1, sizeof *l);
    if (!l)
        return mmi_fail_memory(sizeof *l, "a loader");
    atomic_init(&l->holds, 1);
    l->options = o;
    l->width = o.form == MM_ROWS_PAD ? o.max_length - 1 : o.max_length;
    l->rows = mm_dataset_rows(dataset);
    mm_loader_position_init(&l->at, sizeof l->at);
    l->text_row = -1;
    l->dataset = mmi_dataset_hold(dataset);
    l->tokenizer = mmi_tokenizer_hold(tokenizer);
    status = allocate_batch(l);
    if (status != MM_OK) {
        mm_loader_free(l);
        return status;
    }
    *out = l;
    return MM_OK;
}

mm_loader *mmi_loader_hold(mm_loader *l)
{
    atomic_fetch_add(&l->holds, 1);
    return l;
}

void mm_loader_free(mm_loader *l)
{
    if (!l || atomic_fetch_sub(&l->holds, 1) != 1)
        return;
    mm_dataset_free(l->dataset);
    mm_tokenizer_free(l->tokenizer);
    mmi_line_free(&l->line);
    mmi_free(l->ids);
    mmi_free(l->text);
    mmi_free(l);
}

int32_t mm_loader_length(const mm_loader *l)
{
    return l ? l->width : 0;
}

const mm_loader_options *mmi_loader_options(const mm_loader *l)
{
    return &l->options;
}

const mm_dataset *mmi_loader_dataset(const mm_loader *l)
{
    return l->dataset;
}

const mm_tokenizer *mmi_loader_tokenizer(const mm_loader *l)
{
    return l->tokenizer;
}

bool mmi_loader_at_end(const mm_loader *l)
{
    return l->at.row == l->rows && l->at.offset == 0;
}

/* Which row of the data set comes at `place` of this epoch. */
static int64_t row_at(const mm_loader *l, int64_t place)
{
    if (!l->options.shuffle)
        return place;
    return (int64_t)mmi_random_permute((uint64_t)place, (uint64_t)l->rows, l->options.seed,
                                       MMI_STREAM(MMI_STREAM_SHUFFLE, l->at.epoch));
}

/* The ids of a text into l->text, in the frame that packing wants. A token has at least one byte, so there are no more of
 * them than bytes, and one call does. */
static mm_status encode(mm_loader *l, const char *text, size_t length)
{
    bool framed = l->options.form == MM_ROWS_PACK;
    if (!mmi_grow(&l->text, &l->text_room, length + 2, sizeof *l->text))
        return mmi_fail_memory(length * sizeof *l->text, "the ids of a row");
    size_t at = 0, count = 0;
    if (framed && l->options.bos_id >= 0)
        l->text[at++] = l->options.bos_id;
    if (length > 0) {
        mm_status status = mm_encode(l->tokenizer, text, length, MM_SPLIT_ALL, l->text + at, length, &count);
        if (status != MM_OK)
            return status == MM_ERR_ARG ? MM_ERR_FORMAT : status; /* it is the file's fault, not the caller's */
    }
    at += count;
    if (framed && l->options.eos_id >= 0)
        l->text[at++] = l->options.eos_id;
    l->text_count = at;
    return MM_OK;
}

/* Row `row` of the data set into l->text, unless it is there. */
static mm_status load_text(mm_loader *l, int64_t row)
{
    if (l->text_row == row)
        return MM_OK;
    l->text_row = -1;
    mmi_json *object = NULL;
    const char *text = NULL;
    size_t length = 0;
    mm_status status = mmi_dataset_row(&object, l->dataset, row, &l->line);
    if (status == MM_OK)
        status = mmi_dataset_row_text(&text, &length, l->dataset, row, object);
    if (status == MM_OK) {
        status = encode(l, text, length);
        if (status == MM_ERR_FORMAT)
            mmi_dataset_fail_within(status, l->dataset, row);
    }
    mmi_json_free(object);
    if (status == MM_OK)
        l->text_row = row;
    return status;
}

/* Load the text of the epoch's next place, passing over bad lines when asked to. */
static mm_status next_text(mm_loader *l, bool *found)
{
    *found = false;
    while (l->at.row < l->rows && !*found) {
        mm_status status = load_text(l, row_at(l, l->at.row));
        if (status == MM_ERR_FORMAT && l->options.skip_bad_lines) {
            mmi_log(MM_LOG_WARNING, "%s; passed over", mm_last_error());
            l->at.skipped++;
        } else if (status != MM_OK) {
            return status;
        } else {
            *found = true;
        }
        l->at.row++;
    }
    return MM_OK;
}

static mm_status fill_padded(mm_loader *l, int32_t *filled)
{
    const mm_loader_options *o = &l->options;
    for (*filled = 0; *filled < o->batch; ++*filled) {
        bool found;
        mm_status status = next_text(l, &found);
        if (status != MM_OK || !found)
            return status;
        int32_t *ids = l->ids + (size_t)*filled * (size_t)l->width;
        int32_t *targets = l->targets + (size_t)*filled * (size_t)l->width;
        if (o->form == MM_ROWS_PAD)
            mmi_row_shifted(ids, targets, l->width, l->text, l->text_count, o->pad_id);
        else
            mmi_row_framed(ids, targets, l->width, l->text, l->text_count, o->bos_id, o->eos_id, o->pad_id);
    }
    return MM_OK;
}

/* Lay documents into one row until it is full or the epoch has none left. */
static mm_status fill_packed_row(mm_loader *l, mmi_packed *row)
{
    while (row->filled < row->width) {
        mm_status status = MM_OK;
        bool found = true;
        if (l->at.offset == 0)
            status = next_text(l, &found);
        else /* a document that the row before could not hold */
            status = load_text(l, row_at(l, l->at.row - 1));
        if (status != MM_OK || !found)
            return status;
        size_t given = (size_t)l->at.offset;
        given += mmi_packed_add(row, l->text + given, l->text_count - given);
        l->at.offset = given == l->text_count ? 0 : (int64_t)given;
    }
    return MM_OK;
}

static mm_status fill_packed(mm_loader *l, int32_t *filled)
{
    for (*filled = 0; *filled < l->options.batch; ++*filled) {
        size_t start = (size_t)*filled * (size_t)l->width;
        mmi_packed row = { l->ids + start, l->targets + start, l->documents + start, l->width, 0, 0,
                           l->options.pad_id };
        mm_status status = fill_packed_row(l, &row);
        if (status != MM_OK || row.filled == 0)
            return status;
        mmi_packed_close(&row);
    }
    return MM_OK;
}

mm_status mm_loader_next(mm_loader *l, mm_batch *batch)
{
    if (!l)
        return mmi_fail(MM_ERR_ARG, "mm_loader_next: loader is NULL");
    mm_loader_position before = l->at;
    int32_t filled = 0;
    mm_status status = l->options.form == MM_ROWS_PACK ? fill_packed(l, &filled) : fill_padded(l, &filled);
    mm_batch result = MM_BATCH_INIT;
    if (status == MM_OK && filled > 0) {
        result.ids = l->ids;
        result.targets = l->targets;
        result.document_ids = l->documents;
        result.batch = filled;
        result.length = l->width;
    } else if (status == MM_OK) { /* the end of the epoch */
        l->at.epoch++;
        l->at.row = 0;
    }
    result.mode = MM_TRAIN;
    if (status == MM_OK)
        status = mmi_result_write(batch, &result, sizeof result, "mm_batch");
    if (status != MM_OK)
        l->at = before;
    return status;
}

mm_status mmi_loader_count(int64_t *batches, mm_loader *l)
{
    int64_t rows = l->rows;
    if (l->options.form == MM_ROWS_PACK) {
        int64_t tokens = 0;
        for (int64_t i = 0; i < l->rows; i++) {
            mm_status status = load_text(l, i);
            if (status != MM_OK && !(status == MM_ERR_FORMAT && l->options.skip_bad_lines))
                return status;
            if (status == MM_OK)
                tokens += (int64_t)l->text_count;
        }
        rows = (tokens + l->width - 1) / l->width;
    }
    *batches = (rows + l->options.batch - 1) / l->options.batch;
    return MM_OK;
}

mm_status mm_loader_tell(const mm_loader *l, mm_loader_position *out)
{
    if (!l)
        return mmi_fail(MM_ERR_ARG, "mm_loader_tell: loader is NULL");
    return mmi_result_write(out, &l->at, sizeof l->at, "mm_loader_position");
}

/* Is `offset` a place inside the document that it belongs to? */
static mm_status check_offset(mm_loader *l, const mm_loader_position *p)
{
    if (l->options.form != MM_ROWS_PACK || p->row == 0)
        return mmi_fail(MM_ERR_ARG, "loader: offset is %lld, but no document is begun there", (long long)p->offset);
    mm_loader_position before = l->at;
    l->at = *p; /* the order of its epoch */
    mm_status status = load_text(l, row_at(l, p->row - 1));
    l->at = before;
    if (status != MM_OK)
        return status;
    if ((uint64_t)p->offset >= l->text_count)
        return mmi_fail(MM_ERR_ARG, "loader: offset is %lld, the document there has %zu tokens", (long long)p->offset,
                        l->text_count);
    return MM_OK;
}

mm_status mm_loader_seek(mm_loader *l, const mm_loader_position *position)
{
    if (!l || !position)
        return mmi_fail(MM_ERR_ARG, "mm_loader_seek: %s is NULL", l ? "position" : "loader");
    mm_loader_position p = MM_LOADER_POSITION_INIT;
    mm_status status = mmi_options_read(&p, sizeof p, position, "mm_loader_position");
    if (status != MM_OK)
        return status;
    if (p.epoch < 0 || p.epoch > UINT32_MAX || p.row < 0 || p.row > l->rows || p.offset < 0 || p.skipped < 0)
        return mmi_fail(MM_ERR_ARG,
                        "loader: no such place: epoch %lld, row %lld of %lld, offset %lld, %lld lines passed over",
                        (long long)p.epoch, (long long)p.row, (long long)l->rows, (long long)p.offset,
                        (long long)p.skipped);
    if (p.offset > 0)
        status = check_offset(l, &p);
    if (status == MM_OK)
        l->at = p;
    return status;
}
