/* Many texts at once, and where tokens stand in their text. */
#include <string.h>

#include "base/memory.h"
#include "base/options.h"
#include "base/pool.h"
#include "base/processor.h"
#include "text/tokenizer.h"

#define MOST_THREADS 1024

mm_status mm_token_offsets(const mm_tokenizer *t, const int32_t *ids, size_t count, size_t *offsets)
{
    if (!t || (!ids && count > 0) || !offsets)
        return mmi_fail(MM_ERR_ARG, "mm_token_offsets: tokenizer, ids or offsets is NULL");
    size_t total;
    mm_status status = mmi_tokens_size(&total, "mm_token_offsets", t, ids, count, 0);
    if (status != MM_OK)
        return status; /* every id is looked at before anything is written */
    offsets[0] = 0;
    for (size_t i = 0; i < count; i++)
        offsets[i + 1] = offsets[i] + t->tokens[ids[i]].bytes_size;
    return MM_OK;
}

/* One text's ids, until all texts have theirs. */
typedef struct text_ids {
    int32_t *ids;
    size_t count;
    mm_status status;
} text_ids;

typedef struct job {
    const mm_tokenizer *t;
    const char *const *texts;
    const size_t *lengths;
    int32_t split;
    text_ids *made;
} job;

/* A piece is a text. Its message would stay on the worker's thread, so only the status is kept. */
static void encode_text(void *arg, int64_t piece, int worker)
{
    (void)worker;
    const job *j = arg;
    text_ids *m = &j->made[piece];
    /* A token takes at least a byte; a text of more than can be encoded is refused without any room. */
    size_t length = j->lengths[piece], room = length > MMI_TEXT_LIMIT ? 0 : length;
    m->ids = mmi_alloc(room, sizeof *m->ids);
    m->status = m->ids ? mm_encode(j->t, j->texts[piece], length, j->split, m->ids, room, &m->count) : MM_ERR_MEMORY;
    if (m->status != MM_OK || m->count == length)
        return;
    int32_t *fitted = mmi_realloc(m->ids, m->count, sizeof *m->ids);
    if (fitted)
        m->ids = fitted;
}

/* The first text that failed says why, on the caller's thread. */
static mm_status first_failure(const job *j, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (j->made[i].status == MM_OK)
            continue;
        size_t needed;
        mm_status status = mm_encode(j->t, j->texts[i], j->lengths[i], j->split, NULL, 0, &needed);
        if (status == MM_OK) /* there was no memory then, and there is now */
            status = mmi_fail_memory(j->lengths[i] * sizeof(int32_t), "ids");
        return mmi_fail_within(status, "text %zu", i);
    }
    return MM_OK;
}

static mm_status hand_over(const job *j, size_t count, int32_t *ids, size_t capacity, size_t *starts)
{
    starts[0] = 0;
    for (size_t i = 0; i < count; i++)
        starts[i + 1] = starts[i] + j->made[i].count;
    mm_status status = mmi_check_room(NULL, starts[count], capacity, "mm_encode_batch", "ids");
    if (status != MM_OK || capacity == 0)
        return status;
    for (size_t i = 0; i < count; i++)
        if (j->made[i].count > 0)
            memcpy(ids + starts[i], j->made[i].ids, j->made[i].count * sizeof *ids);
    return MM_OK;
}

static mm_status check(const mm_tokenizer *t, const char *const *texts, const size_t *lengths, size_t count,
                       int32_t split, int32_t threads, const int32_t *ids, size_t capacity, const size_t *starts)
{
    if (!t || !starts || (count > 0 && (!texts || !lengths)) || (capacity > 0 && !ids))
        return mmi_fail(MM_ERR_ARG, "mm_encode_batch: tokenizer, texts, lengths, ids or starts is NULL");
    if (threads < 0 || threads > MOST_THREADS)
        return mmi_fail(MM_ERR_ARG, "mm_encode_batch: threads is %d, must be from 0 to %d", threads, MOST_THREADS);
    if (count > UINT32_MAX - 1)
        return mmi_fail(MM_ERR_ARG, "mm_encode_batch: %zu texts are too many", count);
    for (size_t i = 0; i < count; i++)
        if (!texts[i] && lengths[i] > 0)
            return mmi_fail(MM_ERR_ARG, "mm_encode_batch: text %zu is NULL", i);
    return mmi_check_split(split, "mm_encode_batch: split");
}

mm_status mm_encode_batch(const mm_tokenizer *t, const char *const *texts, const size_t *lengths, size_t count,
                          int32_t split, int32_t threads, int32_t *ids, size_t capacity, size_t *starts)
{
    mm_status status = check(t, texts, lengths, count, split, threads, ids, capacity, starts);
    if (status != MM_OK)
        return status;
    job j = { t, texts, lengths, split, mmi_calloc(count, sizeof(text_ids)) };
    mmi_pool *pool = NULL;
    if (!j.made)
        return mmi_fail_memory(count * sizeof(text_ids), "texts");
    if (count > 1 && threads == 0)
        threads = mmi_processor_count();
    status = mmi_pool_create(count <= 1 ? 1 : (size_t)threads > count ? (int)count : threads, &pool);
    if (status == MM_OK) {
        mmi_pool_run(pool, (int64_t)count, encode_text, &j);
        mmi_pool_free(pool);
        status = first_failure(&j, count);
    }
    if (status == MM_OK)
        status = hand_over(&j, count, ids, capacity, starts);
    for (size_t i = 0; i < count; i++)
        mmi_free(j.made[i].ids);
    mmi_free(j.made);
    return status;
}
