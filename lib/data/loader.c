/* A loader from outside: its options, its batches, its place. How rows come into a batch is fill.c's affair. */
#include "data/loader.h"

#include "base/files.h"
#include "base/memory.h"
#include "base/options.h"
#include "data/fill.h"
#include "text/tokenizer.h"

MMI_OPTIONS_INIT(mm_loader_options, MM_LOADER_OPTIONS_INIT)
MMI_OPTIONS_INIT(mm_loader_position, MM_LOADER_POSITION_INIT)
MMI_OPTIONS_INIT(mm_loader_stats, MM_LOADER_STATS_INIT)
MMI_OPTIONS_INIT(mm_row_report, MM_ROW_REPORT_INIT)
MMI_OPTIONS_INIT(mm_prompts, MM_PROMPTS_INIT)

#define MOST_WORKERS 256
#define MOST_RANKS (1 << 20)

/* --- Options --- */

static mm_status check_between(const char *name, int32_t value, int32_t low, int32_t high)
{
    if (value >= low && value <= high)
        return MM_OK;
    return mmi_fail(MM_ERR_ARG, "loader: %s is %d, it must be %d to %d", name, value, low, high);
}

static mm_status check_id(const char *name, int32_t id, int32_t lowest, int32_t vocabulary)
{
    if (id >= lowest && id < vocabulary)
        return MM_OK;
    return mmi_fail(MM_ERR_ARG, "loader: %s is %d, it must be in [%d, %d)", name, id, lowest, vocabulary);
}

static mm_status check_kind(const mm_loader_options *o)
{
    mm_status status = check_between("form", o->form, MM_ROWS_PAD, MM_ROWS_PACK);
    if (status == MM_OK)
        status = check_between("kind", o->kind, MM_ROW_TEXT, MM_ROW_PROMPT);
    if (status == MM_OK && o->kind == MM_ROW_PREFERENCE && o->form != MM_ROWS_PAD)
        status = mmi_fail(MM_ERR_ARG, "loader: form is %d, preference rows take MM_ROWS_PAD, %d, alone", o->form,
                          MM_ROWS_PAD);
    if (status == MM_OK && o->kind == MM_ROW_PROMPT && o->form != MM_ROWS_PAD)
        status = mmi_fail(MM_ERR_ARG, "loader: form is %d, prompts have none (leave it at %d)", o->form, MM_ROWS_PAD);
    if (status == MM_OK)
        status = check_between("thinking", o->thinking, MM_THINK_DEFAULT, MM_THINK_OFF);
    if (status == MM_OK)
        status = check_between("mixed_prompts", o->mixed_prompts, 0, 1);
    if (status == MM_OK)
        status = check_between("trim", o->trim, 0, 1);
    return status == MM_OK ? check_between("strip_empty_think", o->strip_empty_think, 0, 1) : status;
}

static mm_status check_options(const mm_loader_options *o, const mm_tokenizer *tokenizer)
{
    int32_t vocabulary = mm_tokenizer_vocab_size(tokenizer);
    mm_status status = check_between("batch", o->batch, 1, 1 << 24);
    if (status == MM_OK)
        status = check_between("max_length", o->max_length, 2, 1 << 28);
    if (status == MM_OK)
        status = check_kind(o);
    if (status == MM_OK)
        status = check_between("shuffle", o->shuffle, 0, 1);
    if (status == MM_OK)
        status = check_between("skip_bad_lines", o->skip_bad_lines, 0, 1);
    if (status == MM_OK)
        status = check_between("world", o->world, 1, MOST_RANKS);
    if (status == MM_OK)
        status = check_between("rank", o->rank, 0, o->world - 1);
    if (status == MM_OK)
        status = check_between("workers", o->workers, 0, MOST_WORKERS);
    if (status == MM_OK)
        status = check_id("bos_id", o->bos_id, -1, vocabulary);
    if (status == MM_OK)
        status = check_id("eos_id", o->eos_id, -1, vocabulary);
    return status == MM_OK ? check_id("pad_id", o->pad_id, 0, vocabulary) : status;
}

/* --- Life --- */

static mm_status build(mm_loader *l)
{
    const mm_loader_options *o = &l->recipe.options;
    mm_status status = mmi_batch_room_make(&l->room, &l->recipe);
    int64_t depth = 2 * (int64_t)o->batch + 2; /* the batch after the next one can be ready */
    if (depth < 16)
        depth = 16;
    if (depth > 4096)
        depth = 4096;
    if (o->workers == 0) /* none is made ahead */
        depth = 2;
    if (status == MM_OK)
        status = mmi_stream_create(&l->stream, &l->recipe, l->dataset, mmi_fill_places(l), o->workers, depth);
    return status;
}

mm_status mm_loader_create(mm_dataset *dataset, mm_tokenizer *tokenizer, const mm_loader_options *options,
                           mm_loader **out)
{
    if (!dataset || !tokenizer || !out)
        return mmi_fail(MM_ERR_ARG, "mm_loader_create: %s is NULL",
                        !dataset ? "dataset" : (!tokenizer ? "tokenizer" : "out"));
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
    l->dataset = mmi_dataset_hold(dataset);
    l->tokenizer = mmi_tokenizer_hold(tokenizer);
    l->places = mmi_dataset_epoch_rows(dataset);
    l->astray = true;
    mm_loader_position_init(&l->at, sizeof l->at);
    mm_loader_stats_init(&l->stats, sizeof l->stats);
    status = mmi_recipe_make(&l->recipe, tokenizer, &o);
    if (status == MM_OK)
        status = build(l);
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
    mmi_stream_free(l->stream);
    mmi_batch_room_free(&l->room);
    mmi_sample_free(&l->sample);
    mmi_desk_free(&l->desk);
    mm_dataset_free(l->dataset);
    mm_tokenizer_free(l->tokenizer);
    mmi_free(l);
}

/* --- Questions --- */

int32_t mm_loader_length(const mm_loader *l)
{
    return l ? l->room.width : 0;
}

const mm_loader_options *mmi_loader_options(const mm_loader *l)
{
    return &l->recipe.options;
}

const mm_dataset *mmi_loader_dataset(const mm_loader *l)
{
    return l->dataset;
}

const mm_tokenizer *mmi_loader_tokenizer(const mm_loader *l)
{
    return l->tokenizer;
}

int32_t mmi_loader_batch_rows(const mm_loader *l)
{
    return l->recipe.options.batch * mmi_recipe_sides(&l->recipe);
}

bool mmi_loader_gave_none(const mm_loader *l)
{
    return l->room.filled == 0;
}

bool mmi_loader_at_end(const mm_loader *l)
{
    return l->at.row == l->places && l->at.offset == 0;
}

mm_status mm_loader_get_stats(const mm_loader *l, mm_loader_stats *out)
{
    if (!l)
        return mmi_fail(MM_ERR_ARG, "mm_loader_get_stats: loader is NULL");
    mm_loader_stats stats = l->stats;
    stats.wait_seconds = mmi_stream_waited(l->stream);
    stats.elapsed_seconds = l->started > 0 ? mmi_now() - l->started : 0;
    return mmi_result_write(out, &stats, sizeof stats, "mm_loader_stats");
}

/* --- Batches --- */

static double begin_call(mm_loader *l)
{
    double now = mmi_now();
    if (l->started == 0)
        l->started = now;
    return now;
}

static mm_status check_call(const char *who, const mm_loader *l, const void *out, bool prompts)
{
    if (!l || !out)
        return mmi_fail(MM_ERR_ARG, "%s: %s is NULL", who, l ? "the result" : "loader");
    if ((l->recipe.options.kind == MM_ROW_PROMPT) != prompts)
        return mmi_fail(MM_ERR_STATE, "%s: this loader gives %s", who, prompts ? "batches, not prompts" : "prompts");
    if (mmi_stream_lost(l->stream))
        return mmi_fail(MM_ERR_STATE,
                        "%s: the loader's workers are threads of another process, which was forked; make a loader here",
                        who);
    return MM_OK;
}

static mm_status next_batch(mm_loader *l, mm_batch *batch)
{
    mm_batch result = MM_BATCH_INIT;
    bool ended = false;
    mm_loader_position before = l->at;
    mm_loader_stats counted = l->stats;
    mm_status status = mmi_fill(l, &ended);
    if (status != MM_OK)
        return status;
    result.mode = MM_TRAIN;
    if (!ended)
        mmi_batch_finish(&result, &l->room, &l->recipe);
    status = mmi_result_write(batch, &result, sizeof result, "mm_batch");
    if (status != MM_OK) {
        mmi_fill_take_back(l, &before, &counted);
        return status;
    }
    l->stats.batches += !ended;
    l->stats.tokens += (int64_t)result.batch * result.length;
    return MM_OK;
}

mm_status mm_loader_next(mm_loader *l, mm_batch *batch)
{
    mm_status status = check_call("mm_loader_next", l, batch, false);
    if (status != MM_OK)
        return status;
    double start = begin_call(l);
    status = next_batch(l, batch);
    l->stats.call_seconds += mmi_now() - start;
    return status;
}

static mm_status next_prompts(mm_loader *l, mm_prompts *prompts)
{
    mm_prompts result = MM_PROMPTS_INIT;
    bool ended = false;
    mm_loader_position before = l->at;
    mm_loader_stats counted = l->stats;
    mm_status status = mmi_fill(l, &ended);
    if (status != MM_OK)
        return status;
    mmi_batch_prompts(&result, &l->room);
    result.at_end = ended;
    status = mmi_result_write(prompts, &result, sizeof result, "mm_prompts");
    if (status != MM_OK) {
        mmi_fill_take_back(l, &before, &counted);
        return status;
    }
    l->stats.batches += !ended;
    for (int32_t i = 0; i < result.count; i++)
        l->stats.tokens += result.lengths[i];
    return MM_OK;
}

mm_status mm_loader_next_prompts(mm_loader *l, mm_prompts *prompts)
{
    mm_status status = check_call("mm_loader_next_prompts", l, prompts, true);
    if (status != MM_OK)
        return status;
    double start = begin_call(l);
    status = next_prompts(l, prompts);
    l->stats.call_seconds += mmi_now() - start;
    return status;
}

/* --- Out of turn --- */

mm_status mmi_loader_fail_unreadable(const mm_loader *l)
{
    return mmi_fail(MM_ERR_FORMAT, "%s: not one row of it can be read", mmi_dataset_path(l->dataset));
}

/* The ids of a row that is packed; none of a bad one that is passed over. `known` [rows of the data set], or NULL,
 * keeps them plus one, a text having less than a billion; 0: it is not read yet. */
static mm_status count_ids(int64_t *ids, mm_loader *l, int64_t row, uint32_t *known)
{
    if (known && known[row] > 0) {
        *ids = (int64_t)known[row] - 1;
        return MM_OK;
    }
    mm_status status = mmi_sample_read(&l->sample, &l->desk, &l->recipe, l->dataset, row);
    *ids = status == MM_OK ? (int64_t)l->sample.side[0].count : 0;
    if (known)
        known[row] = (uint32_t)*ids + 1;
    return status == MM_ERR_FORMAT && l->recipe.options.skip_bad_lines ? MM_OK : status;
}

/* Rows of an epoch when packed. Where all take the same ones, `known` is NULL, and they are read in their order. */
static mm_status count_packed(int64_t *rows, mm_loader *l, int64_t epoch, uint32_t *known)
{
    const mm_loader_options *o = &l->recipe.options;
    int64_t tokens = 0, ids;
    for (int64_t i = 0; i < l->places; i++) {
        int64_t row = mmi_dataset_row_at(l->dataset, i, epoch, o->seed, known && o->shuffle);
        mm_status status = count_ids(&ids, l, row, known);
        if (status != MM_OK)
            return status;
        tokens += ids;
    }
    *rows = (tokens + l->room.width - 1) / l->room.width;
    return tokens > 0 ? MM_OK : mmi_loader_fail_unreadable(l);
}

mm_status mmi_loader_count(int64_t *each, int64_t *all, mm_loader *l, int64_t epochs)
{
    const int64_t step = (int64_t)l->recipe.options.batch * l->recipe.options.world;
    const bool packs = mmi_fill_packs(l), varies = packs && mmi_dataset_varies(l->dataset);
    const size_t size = varies ? (size_t)mm_dataset_rows(l->dataset) : 0;
    uint32_t *known = varies ? mmi_calloc(size, sizeof *known) : NULL;
    mm_status status = varies && !known ? mmi_fail_memory(size * sizeof *known, "counting packed rows") : MM_OK;
    *all = 0;
    for (int64_t epoch = 0; epoch < (varies ? epochs : 1) && status == MM_OK; epoch++) {
        int64_t rows = l->places;
        if (packs)
            status = count_packed(&rows, l, epoch, known);
        rows = (rows + step - 1) / step;
        *each = epoch == 0 || rows == *each ? rows : 0;
        *all += rows;
    }
    mmi_free(known);
    if (status != MM_OK || varies)
        return status;
    if (*each > INT64_MAX / epochs)
        return mmi_fail(MM_ERR_ARG, "loader: %lld epochs are too many", (long long)epochs);
    *all = *each * epochs;
    return MM_OK;
}

mm_status mm_loader_check_row(mm_loader *l, int64_t row, mm_row_report *out)
{
    if (!l || !out)
        return mmi_fail(MM_ERR_ARG, "mm_loader_check_row: %s is NULL", l ? "out" : "loader");
    if (row < 0 || row >= mm_dataset_rows(l->dataset))
        return mmi_fail(MM_ERR_ARG, "mm_loader_check_row: row %lld of %lld", (long long)row,
                        (long long)mm_dataset_rows(l->dataset));
    mm_row_report report = MM_ROW_REPORT_INIT;
    mm_status status = mmi_sample_read(&l->sample, &l->desk, &l->recipe, l->dataset, row);
    if (status != MM_OK)
        return status;
    mmi_batch_report(&report, &l->room, &l->recipe, &l->sample);
    return mmi_result_write(out, &report, sizeof report, "mm_row_report");
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
    const mm_loader_options *o = &l->recipe.options;
    if (!mmi_fill_packs(l) || p->row == 0)
        return mmi_fail(MM_ERR_ARG, "loader: offset is %lld, but no document is begun there", (long long)p->offset);
    int64_t row = mmi_dataset_row_at(l->dataset, p->row - 1, p->epoch, o->seed, o->shuffle != 0);
    mm_status status = mmi_sample_read(&l->sample, &l->desk, &l->recipe, l->dataset, row);
    if (status != MM_OK)
        return status;
    if ((uint64_t)p->offset >= l->sample.side[0].count)
        return mmi_fail(MM_ERR_ARG, "loader: offset is %lld, the document there has %zu tokens", (long long)p->offset,
                        l->sample.side[0].count);
    return MM_OK;
}

void mmi_loader_return(mm_loader *l, const mm_loader_position *position)
{
    bool moved = position->epoch != l->at.epoch || position->row != l->at.row || position->offset != l->at.offset;
    l->at = *position;
    if (moved) {
        l->astray = true;
        l->room.open = NULL;
    }
}

mm_status mm_loader_seek(mm_loader *l, const mm_loader_position *position)
{
    if (!l || !position)
        return mmi_fail(MM_ERR_ARG, "mm_loader_seek: %s is NULL", l ? "position" : "loader");
    mm_loader_position p = MM_LOADER_POSITION_INIT;
    mm_status status = mmi_options_read(&p, sizeof p, position, "mm_loader_position");
    if (status != MM_OK)
        return status;
    if (p.epoch < 0 || p.epoch > UINT32_MAX || p.row < 0 || p.row > l->places || p.offset < 0 || p.skipped < 0 ||
        p.skipped > INT64_MAX / 2) /* it goes on from there */
        return mmi_fail(
            MM_ERR_ARG, "loader: no such place: epoch %lld, row %lld of %lld, offset %lld, %lld lines passed over",
            (long long)p.epoch, (long long)p.row, (long long)l->places, (long long)p.offset, (long long)p.skipped);
    if (p.offset > 0)
        status = check_offset(l, &p);
    if (status != MM_OK)
        return status;
    mmi_loader_return(l, &p);
    return MM_OK;
}
