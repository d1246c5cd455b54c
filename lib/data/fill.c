#include "data/fill.h"

#include "base/log.h"

bool mmi_fill_packs(const mm_loader *l)
{
    return l->recipe.options.form == MM_ROWS_PACK;
}

mmi_places mmi_fill_places(const mm_loader *l)
{
    const mm_loader_options *o = &l->recipe.options;
    return mmi_fill_packs(l) ? (mmi_places){ 0, 1 } : (mmi_places){ o->rank, o->world };
}

/* Make the stream go on where the loader stands: with the document it is in the midst of, or with the next row. */
static void find_the_way(mm_loader *l)
{
    if (!l->astray)
        return;
    mmi_places places = mmi_fill_places(l);
    mmi_stream_seek(l->stream, l->at.epoch, l->at.offset > 0 ? l->at.row - 1 : l->at.row + places.first);
    l->astray = false;
}

/* The stream's next row; *sample NULL if it is a bad one that is passed over. */
static mm_status take(mm_loader *l, const mmi_sample **sample, int64_t *row)
{
    mm_status status = mmi_stream_take(sample, row, l->stream);
    if (status == MM_OK) {
        l->stats.rows++;
        return MM_OK;
    }
    if (status != MM_ERR_FORMAT || !l->recipe.options.skip_bad_lines)
        return status;
    mmi_log(MM_LOG_WARNING, "%s; passed over", mm_last_error());
    l->at.skipped++;
    l->stats.bad_lines++;
    *sample = NULL;
    return MM_OK;
}

/* The stream's next row as one of the batch, unless it is a bad one. */
static mm_status take_whole(mm_loader *l)
{
    const mmi_sample *sample;
    int64_t row;
    mm_status status = take(l, &sample, &row);
    return status == MM_OK && sample ? mmi_batch_add(&l->room, &l->recipe, sample, row) : status;
}

/* Alone, a bad row gives its place in the batch to the next one. */
static mm_status fill_alone(mm_loader *l)
{
    while (l->room.filled < l->recipe.options.batch && l->at.row < l->places) {
        mm_status status = take_whole(l);
        if (status != MM_OK)
            return status;
        l->at.row++;
    }
    return MM_OK;
}

/* With other ranks it can't, as they don't know of it: whoever has it gives a smaller batch. */
static mm_status fill_share(mm_loader *l)
{
    const mm_loader_options *o = &l->recipe.options;
    int64_t step = (int64_t)o->batch * o->world;
    int64_t end = l->places - l->at.row < step ? l->places : l->at.row + step;
    for (int64_t place = l->at.row + o->rank; place < end; place += o->world) {
        mm_status status = take_whole(l);
        if (status != MM_OK)
            return status;
    }
    l->at.row = end;
    return MM_OK;
}

/* Lay documents into one row until it is full or the epoch has none left. */
static mm_status fill_packed_row(mm_loader *l, mmi_packed *packed)
{
    const mmi_sample **open = &l->room.open;
    while (packed->filled < packed->width) {
        int64_t row;
        if (!*open && l->at.offset == 0 && l->at.row == l->places)
            return MM_OK;
        if (!*open) {
            mm_status status = take(l, open, &row);
            if (status != MM_OK)
                return status;
            l->at.row += l->at.offset == 0; /* else it was begun before, and counted then */
            if (!*open) {
                l->at.offset = 0;
                continue;
            }
        }
        const mmi_sequence *s = &(*open)->side[0];
        size_t given = (size_t)l->at.offset;
        given += mmi_batch_lay(packed, &l->recipe, s, given);
        l->at.offset = given == s->count ? 0 : (int64_t)given;
        if (l->at.offset == 0)
            *open = NULL;
    }
    return MM_OK;
}

/* The rows of all ranks in turn; one's own go into the batch. */
static mm_status fill_packed(mm_loader *l, bool *any)
{
    const mm_loader_options *o = &l->recipe.options;
    int64_t rows = (int64_t)o->batch * o->world;
    for (int64_t i = 0; i < rows; i++) {
        bool own = i % o->world == o->rank;
        mmi_packed packed = mmi_batch_packed(&l->room, &l->recipe, own);
        mm_status status = fill_packed_row(l, &packed);
        if (status != MM_OK || packed.filled == 0)
            return status;
        mmi_packed_close(&packed);
        l->room.filled += own;
        *any = true;
    }
    return MM_OK;
}

void mmi_fill_take_back(mm_loader *l, const mm_loader_position *at, const mm_loader_stats *stats)
{
    l->at = *at;
    l->stats = *stats;
    l->room.open = NULL;
    l->astray = true;
}

mm_status mmi_fill(mm_loader *l, bool *ended)
{
    mm_loader_position before = l->at;
    mm_loader_stats counted = l->stats;
    bool any = false;
    find_the_way(l);
    mmi_batch_clear(&l->room);
    bool alone = l->recipe.options.world == 1;
    mm_status status = mmi_fill_packs(l) ? fill_packed(l, &any) : alone ? fill_alone(l) : fill_share(l);
    if (status != MM_OK) {
        mmi_fill_take_back(l, &before, &counted);
        return status;
    }
    *ended = mmi_fill_packs(l) ? !any : alone ? l->room.filled == 0 : before.row == l->places;
    if (*ended) { /* the stream has gone on to the next one by itself */
        l->at.epoch++;
        l->at.row = 0;
    }
    return MM_OK;
}
