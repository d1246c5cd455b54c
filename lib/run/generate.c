#include <string.h>

#include "base/options.h"
#include "base/random.h"
#include "run/context.h"
#include "run/sampling.h"

MMI_OPTIONS_INIT(mm_generate_options, MM_GENERATE_OPTIONS_INIT)
MMI_OPTIONS_INIT(mm_generate_result, MM_GENERATE_RESULT_INIT)

/* One sequence on its way. */
typedef struct sequence {
    int64_t read;  /* prompt tokens fed */
    int64_t start; /* tokens in the cache before this call */
    bool done;
    int64_t row;   /* of this step's last token, among the rows whose logits are wanted; -1: none */
    int32_t drawn; /* this step's token; -1: its logits are not finite */
    float logprob;
    int64_t twin; /* an earlier sequence with the same prompt, which reads it for both; -1: none, or it has been read */
} sequence;

typedef struct run {
    mm_context *ctx;
    mm_generate_options o;
    mm_sampling sampling;
    int32_t eos; /* stands in for stop_ids when they are NULL */
    mm_cache *cache;
    sequence *sequences;       /* [S] */
    int32_t *ids;              /* [S, max_new_tokens] */
    float *logprobs;           /* [S, max_new_tokens] */
    int32_t *lengths, *finish; /* [S] */
    int32_t *stops;            /* [S] */
    float *stop_logprobs;      /* [S] */
    unsigned char *seen;       /* [S, V] */
    float *changed;            /* [V] logits as on_logits leaves them */
    float *work;               /* [threads, 2, V] */
    mmi_candidate *candidates; /* [threads, mmi_candidates(V)] */
} run;

/* Whether an array of the caller's is part of the last result, which this call overwrites. */
static bool is_lent(const run *r, const void *array)
{
    const mmi_generation *g = &r->ctx->generation;
    const uintptr_t at = (uintptr_t)array, block = (uintptr_t)g->block;
    return g->block && at >= block && at - block < g->size;
}

static mm_status check_prompts(const run *r)
{
    const mm_generate_options *o = &r->o;
    const mmi_arch *a = r->ctx->arch;
    for (int32_t i = 0; i < o->sequences; i++) {
        int64_t length = o->prompt_lengths[i], past = o->cache ? o->cache->lengths[i] : 0;
        int64_t most = r->ctx->limits.max_context;
        if (o->cache && o->cache->capacity < most)
            most = o->cache->capacity;
        if (!o->prompts[i] || length < 1)
            return mmi_fail(MM_ERR_ARG, "prompt %d is empty", i);
        if (is_lent(r, o->prompts[i]))
            return mmi_fail(MM_ERR_ARG, "prompt %d lies in the last result, which this call overwrites: copy it", i);
        if (past + length > most)
            return mmi_fail(MM_ERR_ARG, "prompt %d has %lld tokens with those before it, there is room for %lld", i,
                            (long long)(past + length), (long long)most);
        for (int64_t t = 0; t < length; t++)
            if (o->prompts[i][t] < 0 || o->prompts[i][t] >= a->V)
                return mmi_fail(MM_ERR_ARG, "prompts[%d][%lld] is %d, must be from 0 to vocab_size - 1, %lld", i,
                                (long long)t, o->prompts[i][t], (long long)(a->V - 1));
    }
    return MM_OK;
}

static mm_status check(const run *r)
{
    const mm_generate_options *o = &r->o;
    const mm_context *ctx = r->ctx;
    if (!(ctx->limits.outputs & MM_OUT_LAST_LOGITS))
        return mmi_fail(MM_ERR_STATE, "the context was planned without MM_OUT_LAST_LOGITS");
    if (o->sequences < 1 || o->sequences > ctx->limits.max_batch)
        return mmi_fail(MM_ERR_ARG, "sequences is %d, the context was planned for 1 to %d", o->sequences,
                        ctx->limits.max_batch);
    if (!o->prompts || !o->prompt_lengths)
        return mmi_fail(MM_ERR_ARG, "prompts or prompt_lengths is NULL");
    if (is_lent(r, o->prompt_lengths) || is_lent(r, o->stop_ids))
        return mmi_fail(MM_ERR_ARG,
                        "prompt_lengths or stop_ids lies in the last result, which this call overwrites: copy it");
    if (o->max_new_tokens < 1)
        return mmi_fail(MM_ERR_ARG, "max_new_tokens is %d, must be at least 1", o->max_new_tokens);
    if (o->stop_count < 0)
        return mmi_fail(MM_ERR_ARG, "stop_count is %d, must not be negative", o->stop_count);
    if (o->cache && (o->cache->model != ctx->model || o->cache->sequences < o->sequences))
        return mmi_fail(MM_ERR_ARG, "the cache was made for another model, or for %lld sequences only",
                        (long long)o->cache->sequences);
    mm_status status = mmi_cache_check_dtype(ctx->arch, o->cache_dtype, "cache_dtype");
    if (status == MM_OK)
        status = mmi_sampling_check(&r->sampling);
    return status == MM_OK ? check_prompts(r) : status;
}

static void carve_run(run *r, mmi_carve *c)
{
    int64_t S = r->o.sequences, V = r->ctx->arch->V, n = S * r->o.max_new_tokens, threads = r->ctx->limits.threads;
    r->sequences = mmi_carve_take(c, S, sizeof *r->sequences);
    r->ids = mmi_carve_take(c, n, sizeof *r->ids);
    r->logprobs = mmi_carve_take(c, n, sizeof *r->logprobs);
    r->lengths = mmi_carve_take(c, S, sizeof *r->lengths);
    r->finish = mmi_carve_take(c, S, sizeof *r->finish);
    r->stops = mmi_carve_take(c, S, sizeof *r->stops);
    r->stop_logprobs = mmi_carve_take(c, S, sizeof *r->stop_logprobs);
    r->seen = mmi_carve_take(c, S * V, 1);
    r->changed = mmi_carve_take(c, r->o.on_logits ? V : 0, sizeof *r->changed);
    r->work = mmi_carve_take(c, threads * 2 * V, sizeof *r->work);
    r->candidates = mmi_carve_take(c, threads * mmi_candidates(V), sizeof *r->candidates);
}

static mm_status allocate(run *r)
{
    mm_context *ctx = r->ctx;
    mmi_generation *g = &ctx->generation;
    mmi_carve carve = { 0 };
    carve_run(r, &carve);
    if (carve.overflow)
        return mmi_fail(MM_ERR_ARG, "%d sequences of %d new tokens are beyond this machine", r->o.sequences,
                        r->o.max_new_tokens);
    if (carve.used > g->size) {
        void *block = mmi_alloc(1, carve.used);
        if (!block)
            return mmi_fail_memory(carve.used, "generated tokens");
        mmi_free(g->block);
        g->block = block;
        g->size = carve.used;
    }
    carve = (mmi_carve){ .base = g->block };
    carve_run(r, &carve);
    r->cache = r->o.cache;
    if (r->cache)
        return MM_OK;
    if (!g->cache || g->cache->dtype != r->o.cache_dtype) {
        mm_cache *cache = NULL;
        mm_status status =
            mm_cache_create(ctx->model, ctx->limits.max_batch, ctx->limits.max_context, r->o.cache_dtype, &cache);
        if (status != MM_OK)
            return status;
        mm_cache_free(g->cache);
        g->cache = cache;
    }
    r->cache = g->cache;
    return mm_cache_truncate(r->cache, -1, 0);
}

/* Many samples of one prompt: it is read once. */
static int64_t find_twin(const run *r, int64_t i)
{
    int32_t length = r->o.prompt_lengths[i];
    for (int64_t j = 0; j < i; j++)
        if (r->sequences[j].twin < 0 && r->sequences[i].start + r->sequences[j].start == 0 &&
            r->o.prompt_lengths[j] == length &&
            memcmp(r->o.prompts[j], r->o.prompts[i], (size_t)length * sizeof(int32_t)) == 0)
            return j;
    return -1;
}

static void mark_seen(unsigned char *seen, const int32_t *ids, int64_t count)
{
    for (int64_t t = 0; t < count; t++)
        if (ids[t] >= 0)
            seen[ids[t]] = 1;
}

static void begin(run *r)
{
    int64_t S = r->o.sequences, V = r->ctx->arch->V;
    memset(r->seen, 0, (size_t)(S * V));
    for (int64_t i = 0; i < S; i++) {
        r->sequences[i] = (sequence){ .start = r->cache->lengths[i], .twin = -1 };
        r->sequences[i].twin = find_twin(r, i);
        r->lengths[i] = 0;
        r->finish[i] = MM_FINISH_LENGTH;
        r->stops[i] = -1;
        r->stop_logprobs[i] = 0;
        mark_seen(r->seen + i * V, mmi_cache_ids(r->cache, i), r->sequences[i].start);
        mark_seen(r->seen + i * V, r->o.prompts[i], r->o.prompt_lengths[i]);
    }
}

/* What sequence i feeds in this step: the next chunk of its prompt, or the token it drew last. */
static int64_t feed(run *r, int64_t i, int32_t *ids)
{
    sequence *s = &r->sequences[i];
    int64_t left = r->o.prompt_lengths[i] - s->read;
    if (left <= 0) {
        ids[0] = r->ids[i * r->o.max_new_tokens + r->lengths[i] - 1];
        return 1;
    }
    int64_t n = left < r->ctx->limits.max_length ? left : r->ctx->limits.max_length;
    memcpy(ids, r->o.prompts[i] + s->read, (size_t)n * sizeof(int32_t));
    s->read += n;
    return n;
}

/* The rows of one step, ragged: every sequence that is not done gives as many as it has. */
static mmi_pass next_pass(run *r)
{
    mmi_plan *p = &r->ctx->plan;
    mmi_pass pass = { .B = r->o.sequences, .mode = MM_EVAL, .outputs = MM_OUT_LAST_LOGITS, .cache = r->cache };
    for (int64_t i = 0; i < r->o.sequences; i++) {
        sequence *s = &r->sequences[i];
        s->row = -1;
        if (s->done || s->twin >= 0)
            continue;
        int64_t n = feed(r, i, p->ids + pass.N), past = r->cache->lengths[i];
        p->segments[pass.segments++] = (mmi_segment){ .row = pass.N, .count = n, .past = past, .sequence = i };
        for (int64_t t = 0; t < n; t++)
            p->positions[pass.N + t] = (int32_t)(past + t);
        pass.N += n;
        if (s->read >= r->o.prompt_lengths[i]) {
            s->row = pass.last;
            p->last_rows[pass.last++] = (int32_t)(pass.N - 1);
        }
    }
    return pass;
}

static bool stops(const run *r, int32_t id)
{
    if (!r->o.stop_ids)
        return id == r->eos;
    for (int32_t i = 0; i < r->o.stop_count; i++)
        if (r->o.stop_ids[i] == id)
            return true;
    return false;
}

/* Draw sequence i's next token from logits [V]. */
static void draw_from(run *r, int64_t i, const float *logits, int worker)
{
    sequence *s = &r->sequences[i];
    const int64_t V = r->ctx->arch->V;
    double uniform =
        mmi_random_uniform(r->sampling.seed, MMI_STREAM(MMI_STREAM_SAMPLE, i), (uint64_t)r->cache->lengths[i]);
    s->drawn = mmi_sample(&r->ctx->exec.k, logits, V, &r->sampling, r->seen + i * V, uniform, r->work + worker * 2 * V,
                          r->candidates + worker * mmi_candidates(V), &s->logprob);
}

static const float *logits_of(const run *r, int64_t i)
{
    return r->ctx->plan.last_logits + r->sequences[i].row * r->ctx->arch->V;
}

/* A piece. */
static void draw(void *arg, int64_t i, int worker)
{
    run *r = arg;
    if (r->sequences[i].row >= 0)
        draw_from(r, i, logits_of(r, i), worker);
}

/* One after another, each from what on_logits leaves of a copy: sequences of one prompt begin with the same row. */
static void draw_changed(run *r)
{
    const int64_t V = r->ctx->arch->V;
    for (int64_t i = 0; i < r->o.sequences; i++) {
        sequence *s = &r->sequences[i];
        if (s->row < 0)
            continue;
        memcpy(r->changed, logits_of(r, i), (size_t)V * sizeof *r->changed);
        if (r->o.on_logits(r->o.user, (int32_t)i, r->ids + i * r->o.max_new_tokens, r->lengths[i], r->changed,
                           (int32_t)V) == 0) {
            draw_from(r, i, r->changed, 0);
        } else {
            s->row = -1;
            s->done = true;
            r->finish[i] = MM_FINISH_CALLBACK;
        }
    }
}

/* Let sequence i go on with the token it drew. */
static mm_status go_on(run *r, int64_t i)
{
    sequence *s = &r->sequences[i];
    const mm_context *ctx = r->ctx;
    int64_t V = ctx->arch->V, position = r->cache->lengths[i];
    int32_t id = s->drawn;
    float logprob = s->logprob;
    if (id < 0)
        return mmi_fail(MM_ERR_NUMERIC, "the logits of sequence %lld at position %lld are not finite%s%s", (long long)i,
                        (long long)position,
                        r->o.on_logits ? ", or on_logits has left no token, a NaN or +INFINITY" : "",
                        r->sampling.repetition_penalty != 1 ? ", or the penalty made them so" : "");
    if (stops(r, id)) {
        s->done = true;
        r->finish[i] = MM_FINISH_STOP;
        r->stops[i] = id;
        r->stop_logprobs[i] = logprob;
        return MM_OK;
    }
    int64_t at = i * r->o.max_new_tokens + r->lengths[i]++;
    r->ids[at] = id;
    r->logprobs[at] = logprob;
    r->seen[i * V + id] = 1;
    if (r->o.on_token && r->o.on_token(r->o.user, (int32_t)i, id, logprob) != 0) {
        s->done = true;
        r->finish[i] = MM_FINISH_CALLBACK;
    } else if (r->lengths[i] == r->o.max_new_tokens || position >= ctx->limits.max_context ||
               position >= r->cache->capacity) {
        s->done = true;
    }
    return MM_OK;
}

/* Where a twin's prompt has been read in this step, take over its keys and values and its logits. */
static void join_twin(run *r, sequence *s, int64_t i)
{
    if (s->twin < 0 || r->sequences[s->twin].row < 0)
        return;
    mmi_cache_copy(r->cache, i, r->cache, s->twin, r->cache->lengths[s->twin]);
    s->read = r->o.prompt_lengths[i];
    s->row = r->sequences[s->twin].row;
    s->twin = -1;
}

static mm_status generate(run *r)
{
    for (;;) {
        mmi_pass pass = next_pass(r);
        if (pass.N == 0) /* a callback may have cancelled with the last token of all */
            return mmi_context_take_cancel(r->ctx) ? mmi_fail(MM_ERR_CANCELLED, "cancelled with the last token") :
                                                     MM_OK;
        mm_status status = mmi_run_forward(r->ctx, &pass);
        for (int64_t i = 0; i < r->o.sequences && status == MM_OK; i++)
            join_twin(r, &r->sequences[i], i);
        if (status == MM_OK && r->o.on_logits)
            draw_changed(r);
        else if (status == MM_OK)
            mmi_pool_run(r->ctx->exec.pool, r->o.sequences, draw, r);
        for (int64_t i = 0; i < r->o.sequences && status == MM_OK; i++)
            if (r->sequences[i].row >= 0)
                status = go_on(r, i);
        if (status != MM_OK)
            return status;
    }
}

static mm_status check_and_generate(mm_generate_result *made, run *r)
{
    mm_context *ctx = r->ctx;
    mm_status status = check(r);
    if (r->o.max_new_tokens > ctx->limits.max_context) /* "until it stops" must not ask for the memory of 2^31 tokens */
        r->o.max_new_tokens = ctx->limits.max_context;
    if (status == MM_OK)
        status = allocate(r);
    if (status != MM_OK)
        return status;
    begin(r);
    mmi_pool_enter_pass(ctx->exec.pool);
    status = generate(r);
    mmi_pool_leave_pass(ctx->exec.pool);
    if (status != MM_OK) {
        for (int64_t i = 0; i < r->o.sequences; i++)
            r->cache->lengths[i] = (int32_t)r->sequences[i].start;
        return status;
    }
    made->ids = r->ids;
    made->logprobs = r->logprobs;
    made->lengths = r->lengths;
    made->finish = r->finish;
    made->stride = r->o.max_new_tokens;
    made->stops = r->stops;
    made->stop_logprobs = r->stop_logprobs;
    return MM_OK;
}

mm_status mm_generate(mm_context *ctx, const mm_generate_options *options, mm_generate_result *result)
{
    if (!ctx || !options || !result)
        return mmi_fail(MM_ERR_ARG, "mm_generate: context, options or result is NULL");
    run r = {
        .ctx = ctx, .o = MM_GENERATE_OPTIONS_INIT, .sampling = MM_SAMPLING_INIT, .eos = (int32_t)ctx->arch->eos_id
    };
    mm_generate_result made = MM_GENERATE_RESULT_INIT;
    mm_status status = mmi_options_read(&r.o, sizeof r.o, options, "mm_generate_options");
    if (status == MM_OK)
        status = mmi_options_read(&r.sampling, sizeof r.sampling, r.o.sampling, "mm_sampling");
    if (status == MM_OK)
        status = mmi_result_write(result, &made, sizeof made, "mm_generate_result");
    if (status == MM_OK)
        status = mmi_context_enter(ctx, "mm_generate");
    if (status != MM_OK)
        return status;
    if (r.o.cache && atomic_exchange(&r.o.cache->busy, 1)) {
        status = mmi_cache_check_free(r.o.cache);
    } else {
        status = check_and_generate(&made, &r);
        if (r.o.cache)
            atomic_store(&r.o.cache->busy, 0);
    }
    mmi_context_leave(ctx);
    return status == MM_OK ? mmi_result_write(result, &made, sizeof made, "mm_generate_result") : status;
}
