#include "data/stream.h"

#include <stdio.h>

#include "base/files.h"
#include "base/memory.h"
#include "base/thread.h"

#define MOST_IDS ((size_t)1 << 24) /* ready at one time, 64 MiB of them; one more row is always allowed */

typedef struct slot {
    mmi_sample sample;
    int64_t row;
    mm_status status;
    char story[1024]; /* mm_last_error() belongs to a thread: it is carried over by hand */
    bool ready;
} slot;

struct mmi_stream {
    const mmi_recipe *recipe;
    const mm_dataset *dataset;
    mmi_places places;
    mmi_desk desk;        /* of the thread that takes */
    mmi_monitor *monitor; /* guards all that follows */
    mmi_thread **threads; /* [started] */
    int workers, started;
    slot *slots; /* [depth] row number n, counted from the last seek, is in slot n % depth */
    int64_t depth;
    int64_t claimed;      /* rows given to a thread */
    int64_t taken;        /* rows taken; the last one is still lent */
    int64_t epoch, place; /* of the next row to be claimed */
    size_t ids;           /* in rows that are ready or lent */
    int busy;             /* threads at work on a row */
    bool paused, quit, tried;
    double waited;
};

static size_t ids_of(const slot *s)
{
    return s->sample.side[0].count + s->sample.side[1].count;
}

/* Make the slot's row, outside of the lock: nobody else touches the slot. */
static void prepare(const mmi_stream *s, slot *to, mmi_desk *desk)
{
    to->status = mmi_sample_read(&to->sample, desk, s->recipe, s->dataset, to->row);
    if (to->status == MM_OK)
        return;
    snprintf(to->story, sizeof to->story, "%s", mm_last_error());
    to->sample.side[0].count = to->sample.side[1].count = 0;
}

static void prepare_at(const mmi_stream *s, slot *to, mmi_desk *desk, int64_t epoch, int64_t place)
{
    const mm_loader_options *o = &s->recipe->options;
    to->row = mmi_dataset_row_at(s->dataset, place, epoch, o->seed, o->shuffle != 0);
    prepare(s, to, desk);
}

/* The next place in the order of things; epochs follow each other without a pause. */
static slot *claim(mmi_stream *s, int64_t *epoch, int64_t *place)
{
    if (s->place >= mmi_dataset_epoch_rows(s->dataset)) {
        s->epoch++;
        s->place = s->places.first;
    }
    *epoch = s->epoch;
    *place = s->place;
    s->place += s->places.stride;
    slot *to = &s->slots[s->claimed++ % s->depth];
    to->ready = false;
    return to;
}

/* --- Threads --- */

static bool may_claim(const mmi_stream *s)
{
    /* the slot that is lent, number taken - 1, must not be claimed again */
    int64_t lent = s->taken > 0 ? s->taken - 1 : 0;
    return !s->paused && s->places.first < mmi_dataset_epoch_rows(s->dataset) && s->claimed - lent < s->depth &&
           (s->ids < MOST_IDS || s->claimed == s->taken);
}

static void work(void *arg)
{
    mmi_stream *s = arg;
    mmi_desk desk = { { NULL, 0, 0 }, { 0 } };
    mmi_monitor_enter(s->monitor);
    while (!s->quit) {
        if (!may_claim(s)) {
            mmi_monitor_wait(s->monitor);
            continue;
        }
        int64_t epoch, place;
        slot *to = claim(s, &epoch, &place);
        s->busy++;
        mmi_monitor_leave(s->monitor);
        prepare_at(s, to, &desk, epoch, place);
        mmi_monitor_enter(s->monitor);
        s->busy--;
        to->ready = true;
        s->ids += ids_of(to);
        mmi_monitor_wake(s->monitor);
    }
    mmi_monitor_leave(s->monitor);
    mmi_desk_free(&desk);
}

/* Once; where threads can't be had, rows are made by the one who takes them. */
static void start_threads(mmi_stream *s)
{
    s->tried = true;
    while (s->started < s->workers && mmi_thread_start(&s->threads[s->started], work, s) == MM_OK)
        s->started++;
}

/* --- The stream --- */

mm_status mmi_stream_create(mmi_stream **out, const mmi_recipe *recipe, const mm_dataset *dataset, mmi_places places,
                            int workers, int64_t depth)
{
    mmi_stream *s = mmi_calloc(1, sizeof *s);
    if (!s)
        return mmi_fail_memory(sizeof *s, "a stream of rows");
    s->recipe = recipe;
    s->dataset = dataset;
    s->places = places;
    s->workers = workers;
    s->depth = depth < 2 ? 2 : depth; /* one is lent while the next is made */
    s->place = places.first;
    mm_status status = mmi_monitor_create(&s->monitor);
    s->slots = mmi_calloc((size_t)s->depth, sizeof *s->slots);
    s->threads = mmi_calloc((size_t)workers, sizeof *s->threads);
    if (status == MM_OK && (!s->slots || !s->threads))
        status = mmi_fail_memory((size_t)s->depth * sizeof *s->slots, "a stream of rows");
    if (status != MM_OK) {
        mmi_stream_free(s);
        return status;
    }
    *out = s;
    return MM_OK;
}

void mmi_stream_free(mmi_stream *s)
{
    if (!s)
        return;
    if (s->started > 0) {
        mmi_monitor_enter(s->monitor);
        s->quit = true;
        mmi_monitor_wake(s->monitor);
        mmi_monitor_leave(s->monitor);
    }
    for (int i = 0; i < s->started; i++)
        mmi_thread_join(s->threads[i]);
    for (int64_t i = 0; s->slots && i < s->depth; i++)
        mmi_sample_free(&s->slots[i].sample);
    mmi_desk_free(&s->desk);
    mmi_monitor_free(s->monitor);
    mmi_free(s->threads);
    mmi_free(s->slots);
    mmi_free(s);
}

bool mmi_stream_lost(const mmi_stream *s)
{
    return s->started > 0 && mmi_thread_lost(s->threads[0]);
}

void mmi_stream_seek(mmi_stream *s, int64_t epoch, int64_t place)
{
    mmi_monitor_enter(s->monitor);
    s->paused = true;
    while (s->busy > 0)
        mmi_monitor_wait(s->monitor);
    s->claimed = s->taken = 0;
    s->ids = 0;
    s->epoch = epoch;
    s->place = place;
    s->paused = false;
    mmi_monitor_wake(s->monitor);
    mmi_monitor_leave(s->monitor);
}

/* Long rows leave no room behind: each slot would have one, beside the rows that are ready. */
static void give_back(mmi_stream *s, slot *lent)
{
    s->ids -= ids_of(lent);
    if (lent->sample.side[0].id_room + lent->sample.side[1].id_room > MOST_IDS / (size_t)s->depth)
        mmi_sample_free(&lent->sample);
}

/* Inside the lock: give the lent row back, and wait until the next one is ready. */
static slot *wait_for_next(mmi_stream *s)
{
    if (s->taken > 0)
        give_back(s, &s->slots[(s->taken - 1) % s->depth]);
    slot *next = &s->slots[s->taken++ % s->depth];
    mmi_monitor_wake(s->monitor);
    while (s->claimed < s->taken || !next->ready)
        mmi_monitor_wait(s->monitor);
    return next;
}

/* What kept a thread from making the row, memory that was short for one, may have passed since then. */
static void prepare_again(mmi_stream *s, slot *to)
{
    prepare(s, to, &s->desk);
    mmi_monitor_enter(s->monitor);
    s->ids += ids_of(to); /* none until now */
    mmi_monitor_leave(s->monitor);
}

mm_status mmi_stream_take(const mmi_sample **sample, int64_t *row, mmi_stream *s)
{
    slot *next;
    double start = mmi_now();
    if (!s->tried)
        start_threads(s);
    if (s->started > 0) {
        mmi_monitor_enter(s->monitor);
        next = wait_for_next(s);
        mmi_monitor_leave(s->monitor);
        if (next->status != MM_OK && next->status != MM_ERR_FORMAT)
            prepare_again(s, next);
    } else {
        int64_t epoch, place;
        next = claim(s, &epoch, &place);
        prepare_at(s, next, &s->desk, epoch, place);
    }
    s->waited += mmi_now() - start;
    *sample = &next->sample;
    *row = next->row;
    return next->status == MM_OK ? MM_OK : mmi_fail(next->status, "%s", next->story);
}

double mmi_stream_waited(const mmi_stream *s)
{
    return s->waited;
}
