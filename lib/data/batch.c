#include "data/batch.h"

#include <string.h>

#include "base/memory.h"
#include "base/target.h"

static mm_status make_prompts(mmi_batch_room *room)
{
    size_t n = (size_t)room->rows;
    room->starts = mmi_alloc(n, sizeof *room->starts);
    room->lengths = mmi_alloc(n, sizeof *room->lengths);
    room->answers = mmi_alloc(n, sizeof *room->answers);
    room->answer_lengths = mmi_alloc(n, sizeof *room->answer_lengths);
    room->answer_places = mmi_alloc(n, sizeof *room->answer_places);
    room->numbers = mmi_alloc(n, sizeof *room->numbers);
    if (room->starts && room->lengths && room->answers && room->answer_lengths && room->answer_places && room->numbers)
        return MM_OK;
    return mmi_fail_memory(n * sizeof *room->starts, "a batch of prompts");
}

mm_status mmi_batch_room_make(mmi_batch_room *room, const mmi_recipe *r)
{
    const mm_loader_options *o = &r->options;
    bool prompts = o->kind == MM_ROW_PROMPT;
    room->width = o->form == MM_ROWS_PAD && !prompts ? o->max_length - 1 : o->max_length;
    room->rows = o->batch;
    size_t parts = prompts ? 1 : o->form == MM_ROWS_PACK ? 3 : 2;
    /* At most 2²⁵ and 2²⁸: with 32 bits only their product has to be checked. */
    size_t rows = (size_t)o->batch * (size_t)mmi_recipe_sides(r), width = (size_t)room->width;
    room->ids = mmi_alloc(rows, parts * width * sizeof *room->ids);
    room->spare = mmi_alloc(width, 3 * sizeof *room->spare);
    if (!room->ids || !room->spare)
        return mmi_fail(MM_ERR_MEMORY, "out of memory: a batch of %d rows of %d ids", o->batch, room->width);
    room->targets = parts > 1 ? room->ids + rows * width : NULL;
    room->documents = parts > 2 ? room->targets + rows * width : NULL;
    return prompts ? make_prompts(room) : MM_OK;
}

void mmi_batch_room_free(mmi_batch_room *room)
{
    mmi_free(room->ids);
    mmi_free(room->spare);
    mmi_free(room->starts);
    mmi_free(room->lengths);
    mmi_free(room->answers);
    mmi_free(room->answer_lengths);
    mmi_free(room->answer_places);
    mmi_free(room->numbers);
    mmi_free(room->text);
    memset(room, 0, sizeof *room);
}

void mmi_batch_clear(mmi_batch_room *room)
{
    room->filled = 0;
    room->text_size = 0;
}

static void lay_out(int32_t *ids, int32_t *targets, int32_t width, const mmi_recipe *r, const mmi_sequence *s)
{
    const mm_loader_options *o = &r->options;
    if (o->kind != MM_ROW_TEXT)
        mmi_row_marked(ids, targets, width, s->ids, s->marks, s->count);
    else if (o->form == MM_ROWS_PAD)
        mmi_row_shifted(ids, targets, width, s->ids, s->count, o->pad_id);
    else
        mmi_row_framed(ids, targets, width, s->ids, s->count, o->bos_id, o->eos_id, o->pad_id);
}

static mm_status add_prompt(mmi_batch_room *room, const mmi_sample *sample, int64_t row)
{
    const mmi_sequence *s = &sample->side[0];
    int32_t i = room->filled;
    int32_t *ids = room->ids + (size_t)i * (size_t)room->width;
    room->answer_places[i] = 0;
    room->answer_lengths[i] = 0;
    if (sample->has_answer) {
        size_t size = sample->answer_length + 1;
        if (!mmi_grow(&room->text, &room->text_room, room->text_size + size, 1))
            return mmi_fail_memory(size, "an answer");
        memcpy(room->text + room->text_size, sample->answer, size);
        room->answer_places[i] = room->text_size + 1;
        room->answer_lengths[i] = sample->answer_length;
        room->text_size += size;
    }
    memcpy(ids, s->ids, s->count * sizeof *ids);
    room->starts[i] = ids;
    room->lengths[i] = (int32_t)s->count;
    room->numbers[i] = row;
    room->filled++;
    return MM_OK;
}

mm_status mmi_batch_add(mmi_batch_room *room, const mmi_recipe *r, const mmi_sample *sample, int64_t row)
{
    if (r->options.kind == MM_ROW_PROMPT)
        return add_prompt(room, sample, row);
    for (int side = 0; side < mmi_recipe_sides(r); side++) {
        size_t start = ((size_t)side * (size_t)room->rows + (size_t)room->filled) * (size_t)room->width;
        lay_out(room->ids + start, room->targets + start, room->width, r, &sample->side[side]);
    }
    room->filled++;
    return MM_OK;
}

mmi_packed mmi_batch_packed(mmi_batch_room *room, const mmi_recipe *r, bool own)
{
    size_t start = (size_t)room->filled * (size_t)room->width, width = (size_t)room->width;
    mmi_packed packed = { .width = room->width, .pad = r->options.pad_id };
    packed.ids = own ? room->ids + start : room->spare;
    packed.targets = own ? room->targets + start : room->spare + width;
    packed.documents = own ? room->documents + start : room->spare + 2 * width;
    return packed;
}

size_t mmi_batch_lay(mmi_packed *packed, const mmi_recipe *r, const mmi_sequence *s, size_t from)
{
    if (r->options.kind == MM_ROW_TEXT)
        return mmi_packed_add(packed, s->ids + from, s->count - from);
    return mmi_packed_add_marked(packed, s->ids + from, s->marks + from, s->count - from);
}

/* Put the rejected rows right behind the chosen ones. */
static void close_gap(int32_t *rows, const mmi_batch_room *room)
{
    size_t width = (size_t)room->width;
    memmove(rows + (size_t)room->filled * width, rows + (size_t)room->rows * width,
            (size_t)room->filled * width * sizeof *rows);
}

/* Move `count` rows closer together, as only the first `reach` of each are wanted. */
static void narrow(int32_t *rows, int32_t count, size_t width, size_t reach)
{
    for (size_t row = 1; row < (size_t)count; row++)
        memmove(rows + row * reach, rows + row * width, reach * sizeof *rows);
}

static void trim(mm_batch *batch, mmi_batch_room *room)
{
    int32_t reach = mmi_rows_reach(room->targets, batch->batch, room->width, room->width);
    narrow(room->ids, batch->batch, (size_t)room->width, (size_t)reach);
    narrow(room->targets, batch->batch, (size_t)room->width, (size_t)reach);
    batch->length = reach;
}

void mmi_batch_finish(mm_batch *batch, mmi_batch_room *room, const mmi_recipe *r)
{
    int sides = mmi_recipe_sides(r);
    batch->batch = room->filled * sides;
    if (room->filled == 0) {
        for (int side = 0; side < sides; side++)
            mmi_row_empty(room->ids + (size_t)side * (size_t)room->width,
                          room->targets + (size_t)side * (size_t)room->width, room->documents, room->width,
                          r->options.pad_id);
        batch->batch = sides;
    } else if (sides == 2 && room->filled < room->rows) {
        close_gap(room->ids, room);
        close_gap(room->targets, room);
    }
    batch->ids = room->ids;
    batch->targets = room->targets;
    batch->document_ids = room->documents;
    batch->length = room->width;
    if (r->options.trim && r->options.form != MM_ROWS_PACK)
        trim(batch, room);
}

void mmi_batch_prompts(mm_prompts *prompts, mmi_batch_room *room)
{
    for (int32_t i = 0; i < room->filled; i++)
        room->answers[i] = room->answer_places[i] > 0 ? room->text + room->answer_places[i] - 1 : NULL;
    prompts->ids = room->starts;
    prompts->lengths = room->lengths;
    prompts->answers = room->answers;
    prompts->answer_lengths = room->answer_lengths;
    prompts->rows = room->numbers;
    prompts->count = room->filled;
}

/* --- Telling about a row --- */

/* A document by itself: where it will be broken depends on those before it. */
static int64_t count_document(const mmi_recipe *r, const mmi_sequence *s)
{
    int64_t n = 0;
    for (size_t t = 1; t < s->count; t++)
        n += r->options.kind == MM_ROW_TEXT ? s->ids[t] != r->options.pad_id : s->marks[t];
    return n;
}

static int64_t count_learnt(mmi_batch_room *room, const mmi_recipe *r, const mmi_sequence *s)
{
    if (r->options.form == MM_ROWS_PACK)
        return count_document(r, s);
    lay_out(room->spare, room->spare + room->width, room->width, r, s);
    return mmi_targets_counted(room->spare + room->width, room->width);
}

void mmi_batch_report(mm_row_report *report, mmi_batch_room *room, const mmi_recipe *r, const mmi_sample *sample)
{
    bool prompt = r->options.kind == MM_ROW_PROMPT;
    report->tokens = 0;
    report->learnt = prompt ? 0 : INT64_MAX;
    for (int side = 0; side < mmi_recipe_sides(r); side++) {
        const mmi_sequence *s = &sample->side[side];
        if ((int64_t)s->total > report->tokens)
            report->tokens = (int64_t)s->total;
        int64_t learnt = prompt ? 0 : count_learnt(room, r, s);
        if (learnt < report->learnt)
            report->learnt = learnt;
    }
    report->remarks = sample->uneven ? MM_REMARK_ROLES : 0;
    if (r->options.form != MM_ROWS_PACK && report->tokens > r->options.max_length)
        report->remarks |= MM_REMARK_CUT;
    if (prompt ? !sample->has_answer : report->learnt == 0)
        report->remarks |= MM_REMARK_UNLEARNT;
}
