#include "train/parallel.h"

#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/options.h"
#include "data/hash.h"
#include "data/loader.h"
#include "model/model.h"
#include "run/context.h"
#include "train/checkpoint.h"
#include "train/identity.h"
#include "train/reducer.h"
#include "train/stage.h"

/* Floats that are worth a call of their own. Spans are cut by the tensors' shapes alone, so all ranks cut alike. */
#define BUCKET ((int64_t)1 << 18)

#define VALUES 16

struct mmi_parallel {
    mm_comm comm; /* the program's, copied */
    mmi_reducer *reducer;
    const mm_trainer *trainer;
    float *begin, *end; /* gradients that are final and not posted yet */
    bool reduced;       /* the backward pass at hand has posted all */
    bool stops;         /* a rank wants to stop, and all know */
    bool read;          /* some rank has read a row of this epoch */
};

/* --- Life --- */

/* A loader's rows must be the rank's. */
static mm_status check_share(const mm_comm *c, const mm_loader *loader, const char *whose)
{
    const mm_loader_options *o = mmi_loader_options(loader);
    if (c->rank == o->rank && c->size == o->world)
        return MM_OK;
    return mmi_fail(MM_ERR_ARG, "trainer: the communicator is rank %d of %d, %s rows are for rank %d of %d", c->rank,
                    c->size, whose, o->rank, o->world);
}

static mm_status check_comm(const mm_comm *c, const mm_trainer *t)
{
    const mm_loader *validation = t->options.validation;
    if (c->size < 1 || c->rank < 0 || c->rank >= c->size)
        return mmi_fail(MM_ERR_ARG, "trainer: the communicator says that it is rank %d of %d", c->rank, c->size);
    if (c->size > 1 && (!c->all_reduce || !c->all_reduce_f64 || !c->broadcast || !c->barrier || !c->abort))
        return mmi_fail(MM_ERR_ARG, "trainer: the communicator lacks a function");
    mm_status status = check_share(c, t->loader, "the loader's");
    if (status == MM_OK && validation && mmi_loader_options(validation)->world > 1) /* else each measures all */
        status = check_share(c, validation, "the validation's");
    return status;
}

mm_status mmi_parallel_create(mm_trainer *t)
{
    mm_comm comm = MM_COMM_INIT;
    mm_status status = mmi_options_read(&comm, sizeof comm, t->options.comm, "mm_comm");
    if (status == MM_OK)
        status = check_comm(&comm, t);
    if (status != MM_OK || comm.size == 1)
        return status;
    mmi_parallel *p = t->parallel = mmi_calloc(1, sizeof *p);
    if (!p)
        return mmi_fail_memory(sizeof *p, "a trainer among others");
    p->comm = comm;
    p->trainer = t;
    const mmi_trained trained = mmi_context_trained(t->context);
    return mmi_reducer_create(&p->reducer, &p->comm, mmi_trained_count(&trained) + 2);
}

void mmi_parallel_free(mm_trainer *t)
{
    if (!t->parallel)
        return;
    mmi_reducer_free(t->parallel->reducer);
    mmi_free(t->parallel);
    t->parallel = NULL;
}

int32_t mmi_parallel_rank(const mm_trainer *t)
{
    return t->parallel ? t->parallel->comm.rank : 0;
}

/* --- Stopping --- */

bool mmi_parallel_can_save(const mm_trainer *t)
{
    return !t->parallel || (mmi_trainer_accumulated(t) == 0 && !mmi_stage_in_midst(t));
}

bool mmi_parallel_stops(const mm_trainer *t)
{
    return t->parallel ? t->parallel->stops && mmi_parallel_can_save(t) : atomic_load(&t->stop) != 0;
}

bool mmi_parallel_unread(mm_trainer *t)
{
    if (!t->parallel || !mmi_loader_at_end(t->loader) || mmi_stage_in_midst(t))
        return false;
    bool unread = !t->parallel->read;
    t->parallel->read = false;
    return unread;
}

void mmi_parallel_abort(mm_trainer *t)
{
    char story[1024];
    if (!t->parallel)
        return;
    snprintf(story, sizeof story, "%s", mm_last_error());
    (*t->parallel->comm.abort)(t->parallel->comm.user, story);
    mm_set_last_error(MM_OK, story);
}

void mmi_parallel_give_up(mm_trainer *t, mm_status status)
{
    if (status != MM_OK && status != MM_ERR_NUMERIC)
        mmi_parallel_abort(t);
}

/* --- Sums of a few values --- */

static mm_status sum(const mmi_parallel *p, double *values, int64_t count)
{
    mm_set_last_error(MM_OK, "");
    return mmi_comm_told(p->comm.all_reduce_f64(p->comm.user, values, count), "all_reduce_f64");
}

static mm_status broadcast(const mmi_parallel *p, void *data, size_t size)
{
    mm_set_last_error(MM_OK, "");
    return mmi_comm_told(p->comm.broadcast(p->comm.user, data, size, 0), "broadcast");
}

mm_status mmi_parallel_sum(const mm_trainer *t, double *values, int64_t count)
{
    mmi_parallel *p = t->parallel;
    double all[VALUES] = { 0 };
    if (!p)
        return MM_OK;
    memcpy(all, values, (size_t)count * sizeof *all);
    all[count] = atomic_load(&t->stop);
    mm_status status = sum(p, all, count + 1);
    if (status != MM_OK)
        return status;
    memcpy(values, all, (size_t)count * sizeof *all);
    p->stops = all[count] > 0;
    return MM_OK;
}

mm_status mmi_parallel_join(mmi_share *share, const mm_trainer *t, mmi_reading *r, mmi_weights own,
                            const mmi_work *work)
{
    enum { WEIGHT, LOSS, ROWS, AUX, TOKENS, METRICS_WEIGHT, METRICS, COUNT = METRICS + MMI_METRICS_MAX };
    double weight = own.loss, aux_loss = t->context->aux_loss; /* also of rows that count no target */
    _Static_assert(COUNT < VALUES, "one sum takes them all");
    *share = (mmi_share){ .loss = 1, .aux = weight > 0 };
    if (!t->parallel) {
        r->loss += weight > 0 ? aux_loss : 0;
        return MM_OK;
    }
    double rows = work->filler ? 0 : work->batch.batch, v[COUNT] = { weight };
    v[LOSS] = weight > 0 ? weight * r->loss : 0;
    v[ROWS] = rows;
    v[AUX] = rows > 0 ? rows * aux_loss : 0;
    v[TOKENS] = (double)r->tokens;
    v[METRICS_WEIGHT] = own.metrics;
    for (int i = 0; i < MMI_METRICS_MAX; i++)
        v[METRICS + i] = own.metrics > 0 ? own.metrics * r->metrics[i] : 0;
    mm_status status = mmi_parallel_sum(t, v, COUNT);
    if (status != MM_OK)
        return status;
    t->parallel->read = t->parallel->read || v[ROWS] > 0;
    bool any = v[WEIGHT] > 0;
    double all = any ? v[WEIGHT] : 1;
    *share = (mmi_share){ .loss = weight / all, .aux = any ? rows / v[ROWS] : 0 };
    r->loss = v[LOSS] / all + (any ? v[AUX] / v[ROWS] : 0);
    r->tokens = (int64_t)v[TOKENS];
    for (int i = 0; i < MMI_METRICS_MAX; i++)
        r->metrics[i] = v[METRICS + i] / (v[METRICS_WEIGHT] > 0 ? v[METRICS_WEIGHT] : 1);
    return MM_OK;
}

/* --- Gradients --- */

static void post(mmi_parallel *p)
{
    if (p->end > p->begin)
        mmi_reducer_post(p->reducer, p->begin, p->end - p->begin);
    p->begin = p->end = NULL;
}

/* Gradients of tensors lie one after another, from the first to the last, with a gap below a cache line between them
 * that holds zeros. Frozen ones have none. */
static void add(mmi_parallel *p, float *data, int64_t count)
{
    const ptrdiff_t gap = MMI_ALIGN / (ptrdiff_t)sizeof(float);
    if (p->end == p->begin) {
        p->begin = data;
        p->end = data + count;
    } else if (data >= p->end && data - p->end < gap) {
        p->end = data + count;
    } else if (data + count <= p->begin && p->begin - (data + count) < gap) {
        p->begin = data;
    } else {
        post(p);
        p->begin = data;
        p->end = data + count;
    }
}

static void on_gradients(void *user, int64_t first, int64_t count)
{
    mmi_parallel *p = user;
    const mmi_trained trained = mmi_context_trained(p->trainer->context);
    for (int64_t i = first; i < first + count; i++) {
        mmi_tensor tensor;
        float *data = mmi_context_grads(p->trainer->context, i);
        mmi_trained_tensor(&trained, i, &tensor);
        if (data)
            add(p, data, tensor.elements);
    }
    if (p->end - p->begin >= BUCKET)
        post(p);
    if (first == 0) { /* the embedding, or all of an adapter: that was the last */
        post(p);
        p->reduced = true;
    }
}

void mmi_parallel_overlap(mm_backward_options *back, mm_trainer *t)
{
    if (!t->parallel || !mmi_trainer_update_follows(t))
        return;
    back->on_gradients = on_gradients;
    back->user = t->parallel;
}

void mmi_parallel_settle(mm_trainer *t)
{
    if (!t->parallel)
        return;
    mmi_reducer_wait(t->parallel->reducer);
    t->parallel->begin = t->parallel->end = NULL;
    t->parallel->reduced = false;
}

mm_status mmi_parallel_reduce(mm_trainer *t)
{
    mmi_parallel *p = t->parallel;
    if (!p)
        return MM_OK;
    const mmi_trained trained = mmi_context_trained(t->context);
    if (!p->reduced)
        on_gradients(p, 0, mmi_trained_count(&trained));
    p->reduced = false;
    if (t->stage->gradients) {
        int64_t count = 0;
        float *own = t->stage->gradients(t, &count);
        if (count > 0)
            mmi_reducer_post(p->reducer, own, count);
    }
    return mmi_reducer_wait(p->reducer);
}

/* --- Beginning --- */

/* Rank 0's text of what the run is, for everybody; mmi_free it. */
static mm_status share_text(char **out, size_t *length, const mmi_parallel *p, mmi_json *own)
{
    char *text = NULL;
    mm_status status = p->comm.rank == 0 ? mmi_json_write(own, 0, &text, length) : MM_OK;
    uint64_t size = *length;
    if (status == MM_OK) /* else the run ends, and the others hear why */
        status = broadcast(p, &size, sizeof size);
    if (status == MM_OK && (size == 0 || size > 1 << 20))
        status = mmi_fail(MM_ERR_STATE, "rank 0 can't say what it trains");
    if (status == MM_OK && p->comm.rank != 0 && !(text = mmi_alloc((size_t)size + 1, 1)))
        status = mmi_fail_memory((size_t)size, "rank 0's options");
    if (status == MM_OK)
        status = broadcast(p, text, (size_t)size);
    if (status != MM_OK) {
        mmi_free(text);
        return status;
    }
    text[size] = '\0';
    *length = (size_t)size;
    *out = text;
    return MM_OK;
}

static mm_status compare_text(const mm_trainer *t, mmi_json *own, const char *text, size_t length)
{
    char here[32];
    mmi_json *theirs = NULL;
    mm_status status = mmi_json_parse(text, length, "rank 0's options", &theirs);
    snprintf(here, sizeof here, "rank %d", mmi_parallel_rank(t));
    if (status == MM_OK)
        status = mmi_identity_compare(theirs, "rank 0", own, here);
    mmi_json_free(theirs);
    return status;
}

static mm_status agree(const mm_trainer *t)
{
    mmi_json *own = NULL;
    char *text = NULL;
    size_t length = 0;
    mm_status status = mmi_identity_make(&own, t);
    if (status == MM_OK)
        status = share_text(&text, &length, t->parallel, own);
    if (status == MM_OK && t->parallel->comm.rank != 0)
        status = compare_text(t, own, text, length);
    mmi_free(text);
    mmi_json_free(own);
    return status;
}

static uint64_t hash_tensors(const mmi_tensor_list *list)
{
    mmi_hash hash;
    mmi_hash_begin(&hash);
    for (size_t i = 0; i < list->count; i++)
        mmi_hash_add(&hash, list->entries[i].data, (size_t)list->entries[i].elements * sizeof(float));
    return mmi_hash_end(&hash);
}

/* Where a rank's tensors are others than rank 0's, they come from there. Each by way of `room`, which holds the
 * largest: what a communicator that fails leaves behind is no weights. `*taken`: how many there are now. */
static mm_status level_each(const mmi_parallel *p, const mmi_tensor_list *list, void *room, size_t *taken)
{
    for (*taken = 0; *taken < list->count; ++*taken) {
        float *data = (float *)list->entries[*taken].data;
        size_t size = (size_t)list->entries[*taken].elements * sizeof(float);
        if (p->comm.rank == 0)
            memcpy(room, data, size);
        mm_status status = broadcast(p, room, size);
        if (status != MM_OK)
            return status;
        if (p->comm.rank != 0)
            memcpy(data, room, size);
    }
    return MM_OK;
}

static mm_status level(const mmi_parallel *p, const mmi_tensor_list *list)
{
    uint64_t own = hash_tensors(list), theirs = own;
    mm_status status = broadcast(p, &theirs, sizeof theirs);
    double differing = own != theirs;
    if (status == MM_OK)
        status = sum(p, &differing, 1);
    if (status != MM_OK || differing == 0)
        return status;
    if (p->comm.rank == 0)
        mmi_log(MM_LOG_INFO, "the weights of %.0f ranks are not those of rank 0, which sends its own", differing);
    size_t largest = 0, taken = 0;
    for (size_t i = 0; i < list->count; i++)
        largest = (size_t)list->entries[i].elements > largest ? (size_t)list->entries[i].elements : largest;
    void *room = mmi_alloc(largest, sizeof(float));
    status = room ? level_each(p, list, room, &taken) : mmi_fail_memory(largest * sizeof(float), "rank 0's weights");
    mmi_free(room);
    if (status != MM_OK && taken > 0 && p->comm.rank != 0)
        mmi_fail_within(status, "%zu of %zu tensors are rank 0's now, the others this rank's own", taken, list->count);
    return status;
}

static mm_status level_all(mm_trainer *t)
{
    mmi_tensor_list list = { 0 };
    mm_status status = mmi_checkpoint_tensors(&list, t);
    if (status == MM_OK) {
        status = level(t->parallel, &list);
        mmi_trainer_written(t); /* in part, if that failed */
    }
    mmi_tensors_free(&list);
    return status;
}

mm_status mmi_parallel_begin(mm_trainer *t)
{
    if (!t->parallel)
        return MM_OK;
    t->parallel->stops = false;
    t->parallel->read = t->now.data.row > 0; /* in the midst of an epoch nobody knows */
    mm_status status = agree(t);
    if (status == MM_OK)
        status = level_all(t);
    /* a checkpoint of one rank in the midst of an accumulation: its gradients count once */
    if (status == MM_OK && mmi_trainer_accumulated(t) > 0 && mmi_parallel_rank(t) > 0) {
        status = mm_zero_grad(t->context);
        if (t->stage->drop)
            t->stage->drop(t);
    }
    double none = 0;
    return status == MM_OK ? mmi_parallel_sum(t, &none, 1) : status;
}
