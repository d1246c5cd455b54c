/* Distillation: the next token, and a teacher's whole distribution over it. The teacher runs beside the student, or
 * speaks through a file of its likeliest tokens; the others then have no probability at all. */
#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "base/options.h"
#include "base/target.h"
#include "data/loader.h"
#include "model/model.h"
#include "run/context.h"
#include "train/health.h"
#include "train/objective.h"
#include "train/parallel.h"
#include "train/stage.h"
#include "train/topk.h"

/* Tokens of one piece of work. */
#define PIECE ((int64_t)16)

typedef struct distill {
    mm_distill_options options;
    mmi_frozen teacher;         /* no context: the cached one, whose hash it has then */
    mmi_topk topk;
    float *d_logits;            /* [B, T, V] */
    float *spread;              /* [threads, V] of a cached teacher */
    int64_t *places;            /* [B, T] where its tokens are */
    mm_distill_result *results; /* [pieces] */
    mm_status *statuses;        /* [pieces] */
} distill;

/* --- The teacher --- */

static mm_status hire(distill *d, const mm_trainer *t)
{
    int64_t V = mmi_model_arch(t->model)->V, theirs = mmi_model_arch(t->options.teacher)->V;
    if (theirs < V)
        return mmi_fail(MM_ERR_ARG, "trainer: the teacher's vocab_size is %lld, it must be at least the model's %lld",
                        (long long)theirs, (long long)V);
    return mmi_stage_freeze(&d->teacher, t, t->options.teacher, "teacher", MM_OUT_LOGITS, mmi_trainer_rows(t),
                            mmi_trainer_length(t));
}

static mm_status open_cache(distill *d, const mm_trainer *t)
{
    int64_t V = mmi_model_arch(t->model)->V;
    mm_status status = mmi_topk_open(&d->topk, t->options.teacher_cache);
    if (status == MM_OK && d->topk.vocab_size > V)
        status = mmi_fail(MM_ERR_ARG, "%s: holds ids up to %lld, the model's vocab_size is %lld", d->topk.path,
                          (long long)d->topk.vocab_size, (long long)V);
    d->teacher.hash = d->topk.hash;
    if (status != MM_OK)
        return status;
    size_t threads = (size_t)mmi_pool_threads(mmi_context_exec(t->context)->pool);
    d->spread = mmi_alloc(threads, (size_t)V * sizeof *d->spread);
    return d->spread ? MM_OK : mmi_fail_memory(threads * (size_t)V * sizeof *d->spread, "a teacher's logits");
}

static mm_status make_room(distill *d, const mm_trainer *t)
{
    int64_t N = (int64_t)mmi_trainer_rows(t) * mmi_trainer_length(t), V = mmi_model_arch(t->model)->V;
    size_t pieces = (size_t)mmi_pieces(N, PIECE);
    d->d_logits = mmi_alloc((size_t)N, (size_t)V * sizeof *d->d_logits);
    d->places = mmi_alloc((size_t)N, sizeof *d->places);
    d->results = mmi_alloc(pieces, sizeof *d->results);
    d->statuses = mmi_alloc(pieces, sizeof *d->statuses);
    if (!d->d_logits || !d->places || !d->results || !d->statuses)
        return mmi_fail_memory((size_t)(N * V) * sizeof *d->d_logits, "the gradients of logits");
    return MM_OK;
}

static mm_status create(mm_trainer *t)
{
    const mm_trainer_options *o = &t->options;
    distill *d = t->stage_data = mmi_calloc(1, sizeof *d);
    if (!d)
        return mmi_fail_memory(sizeof *d, "a stage");
    if (!o->teacher == !o->teacher_cache)
        return mmi_fail(MM_ERR_ARG, "trainer: distillation needs either a teacher or a teacher_cache");
    mm_distill_options_init(&d->options, sizeof d->options);
    mm_status status = mmi_options_read(&d->options, sizeof d->options, o->distill, "mm_distill_options");
    if (status == MM_OK)
        status = mmi_distill_check(&d->options);
    if (status == MM_OK)
        status = o->teacher ? hire(d, t) : open_cache(d, t);
    return status == MM_OK ? make_room(d, t) : status;
}

static void destroy(mm_trainer *t)
{
    distill *d = t->stage_data;
    if (!d)
        return;
    mm_context_free(d->teacher.context);
    mmi_topk_close(&d->topk);
    mmi_free(d->d_logits);
    mmi_free(d->spread);
    mmi_free(d->places);
    mmi_free(d->results);
    mmi_free(d->statuses);
    mmi_free(d);
}

/* Have the teacher's logits of a batch at hand: in its context, or as places in the file. */
static mm_status ask_teacher(distill *d, const float **logits, const mm_batch *batch)
{
    if (d->teacher.context) {
        mm_output out = MM_OUTPUT_INIT;
        mm_batch b = *batch;
        b.mode = MM_EVAL;
        b.outputs = MM_OUT_LOGITS;
        mm_status status = mm_forward(d->teacher.context, &b, &out);
        *logits = out.logits.data;
        return status == MM_OK ? MM_OK : mmi_fail_within(status, "the teacher");
    }
    mm_status status = MM_OK;
    for (int64_t row = 0; row < batch->batch && status == MM_OK; row++) {
        int64_t next = 0, T = batch->length;
        status = mmi_topk_find(&d->topk, &next, batch, row);
        for (int64_t i = row * T; i < (row + 1) * T && status == MM_OK; i++)
            d->places[i] = batch->targets[i] == MMI_IGNORE ? 0 : next++;
    }
    return status;
}

/* --- The loss, in pieces of tokens --- */

typedef struct job {
    distill *d;
    const float *student, *teacher; /* [N, V], [N, V'] */
    const int32_t *targets;
    int64_t N, V, teacher_V;
    bool wants_gradient;
} job;

/* A token of a cached teacher by itself. */
static mm_status spread_token(const job *j, int64_t i, float *spread, mm_distill_result *sum)
{
    distill *d = j->d;
    float *to = j->wants_gradient ? d->d_logits + i * j->V : NULL;
    mm_distill_result r = MM_DISTILL_RESULT_INIT;
    if (j->targets[i] != MMI_IGNORE)
        mmi_topk_spread(spread, &d->topk, d->places[i], j->V);
    mm_status status = mm_distill(&d->options, 1, j->V, j->V, j->student + i * j->V, spread, j->targets + i, to, &r);
    sum->cross_entropy += r.cross_entropy;
    sum->kl += r.kl;
    sum->count += r.count;
    return status;
}

/* Sums, not means: over the counted tokens of the piece. The gradient is that of the sum too. */
static mm_status add_piece(const job *j, int64_t first, int64_t last, float *spread, mm_distill_result *r)
{
    distill *d = j->d;
    mm_status status = MM_OK;
    if (!j->teacher) {
        for (int64_t i = first; i < last && status == MM_OK; i++)
            status = spread_token(j, i, spread, r);
        return status;
    }
    float *to = j->wants_gradient ? d->d_logits + first * j->V : NULL;
    status = mm_distill(&d->options, last - first, j->V, j->teacher_V, j->student + first * j->V,
                        j->teacher + first * j->teacher_V, j->targets + first, to, r);
    r->cross_entropy *= (double)r->count;
    r->kl *= (double)r->count;
    for (int64_t i = 0; to && r->count > 1 && i < (last - first) * j->V; i++)
        to[i] *= (float)r->count;
    return status;
}

static void run_piece(void *arg, int64_t piece, int worker)
{
    const job *j = arg;
    distill *d = j->d;
    int64_t first, last;
    mmi_piece_rows(piece, PIECE, j->N, &first, &last);
    mm_distill_result_init(&d->results[piece], sizeof d->results[piece]);
    d->statuses[piece] = add_piece(j, first, last, d->spread ? d->spread + worker * j->V : NULL, &d->results[piece]);
}

enum { CROSS_ENTROPY, KL };
static const char *const metrics[] = { "cross_entropy", "kl", NULL };

/* The mean over all pieces, in their order, of `count` targets. */
static mm_status add_up(const distill *d, int64_t pieces, int64_t count, mmi_reading *reading)
{
    double entropy = 0, kl = 0, share = count > 0 ? 1.0 / (double)count : 0;
    mm_status status = MM_OK;
    for (int64_t i = 0; i < pieces; i++) {
        status = status == MM_OK ? d->statuses[i] : status;
        entropy += d->results[i].cross_entropy;
        kl += d->results[i].kl;
    }
    reading->metrics[CROSS_ENTROPY] = entropy * share;
    reading->metrics[KL] = kl * share;
    reading->loss = share * (d->options.alpha * entropy + (1 - d->options.alpha) * kl);
    return status;
}

/* Student and teacher over a batch, without the auxiliary loss. With `gradient`, d->d_logits is that of the sum over
 * its `count` targets. */
static mm_status compare(mm_trainer *t, mmi_work *work, bool gradient, mmi_reading *reading, int64_t *count)
{
    distill *d = t->stage_data;
    mm_output out = MM_OUTPUT_INIT;
    const mm_batch *b = &work->batch;
    job j = { .d = d,
              .targets = b->targets,
              .N = (int64_t)b->batch * b->length,
              .V = mmi_model_arch(t->model)->V,
              .wants_gradient = gradient };
    mm_status status = ask_teacher(d, &j.teacher, b);
    if (status == MM_OK)
        status = mm_forward(t->context, b, &out);
    if (status != MM_OK)
        return status;
    j.student = out.logits.data;
    j.teacher_V = d->teacher.context ? d->teacher.context->arch->V : j.V;
    int64_t pieces = mmi_pieces(j.N, PIECE);
    mmi_pool_run(mmi_context_exec(t->context)->pool, pieces, run_piece, &j);
    *count = mmi_targets_counted(b->targets, j.N); /* pieces that came to no number say none */
    status = add_up(d, pieces, *count, reading);
    reading->tokens = mmi_work_tokens(work);
    if (status != MM_ERR_NUMERIC)
        return status;
    reading->loss = reading->metrics[CROSS_ENTROPY] = reading->metrics[KL] = NAN;
    return MM_OK;
}

/* --- The stage --- */

static mm_status learn(mm_trainer *t, mmi_work *work, double scale, mmi_reading *reading)
{
    distill *d = t->stage_data;
    int64_t count = 0;
    mmi_share share;
    mm_status status = compare(t, work, true, reading, &count);
    mmi_weights counted = { (double)count, (double)count };
    if (status == MM_OK)
        status = mmi_parallel_join(&share, t, reading, counted, work);
    if (status != MM_OK || !mmi_health_good_loss(t, reading->loss))
        return status;
    mm_backward_options back = MM_BACKWARD_OPTIONS_INIT;
    back.loss_scale = count > 0 ? scale * share.loss / (double)count : 0;
    back.aux_scale = scale * share.aux;
    back.d_logits = d->d_logits;
    mmi_parallel_overlap(&back, t);
    work->touched = true;
    return mm_backward(t->context, &back);
}

static mm_status measure(mm_trainer *t, mmi_work *work, double *weight, mmi_reading *reading)
{
    int64_t count = 0;
    mm_status status = compare(t, work, false, reading, &count);
    *weight = (double)count;
    return status;
}

static bool add_options(mmi_json *to, const mm_trainer *t)
{
    const distill *d = t->stage_data;
    return mmi_json_set_real(to, "distill_alpha", d->options.alpha) &&
           mmi_json_set_real(to, "distill_temperature", d->options.temperature) &&
           mmi_hash_set(to, "teacher_hash", d->teacher.hash);
}

const mmi_stage mmi_stage_distill = {
    .name = "distill",
    .kinds = 1 << MM_ROW_TEXT | 1 << MM_ROW_CHAT,
    .outputs = MM_OUT_LOSS | MM_OUT_LOGITS,
    .metrics = metrics,
    .create = create,
    .free = destroy,
    .learn = learn,
    .measure = measure,
    .options = add_options,
};
