/* Continuing sequences: each as if alone, in any company, chunk or cache. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "others.h"
#include "run/models.h"

#define NEW 12

typedef struct made {
    int32_t lengths[4], finish[4], stops[4], ids[4][64];
    float stop_logprobs[4], logprobs[4][64];
} made;

/* Up to four prompts over the vocabulary. */
typedef struct prompts {
    const int32_t *ids[4];
    int32_t lengths[4];
} prompts;

static prompts random_prompts(const mm_model *model, const int32_t *lengths, int32_t n, test_rng *rng)
{
    prompts p = { 0 };
    for (int32_t i = 0; i < n; i++) {
        p.ids[i] = take_ints(rng, lengths[i], 0, vocab_of(model) - 1);
        p.lengths[i] = lengths[i];
    }
    return p;
}

static const int32_t nothing[1]; /* with stop_count 0: nothing stops */

static mm_generate_options options_for(const prompts *p, int32_t n, const mm_sampling *sampling)
{
    mm_generate_options o = MM_GENERATE_OPTIONS_INIT;
    o.prompts = p->ids;
    o.prompt_lengths = p->lengths;
    o.sequences = n;
    o.sampling = sampling;
    o.stop_ids = nothing;
    o.max_new_tokens = NEW;
    return o;
}

static made generate(mm_context *context, const mm_generate_options *o)
{
    made m = { 0 };
    mm_generate_result r = MM_GENERATE_RESULT_INIT;
    ck_ok(mm_generate(context, o, &r));
    for (int32_t i = 0; i < o->sequences; i++) {
        m.lengths[i] = r.lengths[i];
        m.finish[i] = r.finish[i];
        m.stops[i] = r.stops[i];
        m.stop_logprobs[i] = r.stop_logprobs[i];
        ck_assert(m.lengths[i] >= 0 && m.lengths[i] <= o->max_new_tokens && m.lengths[i] <= 64);
        memcpy(m.ids[i], r.ids + i * o->max_new_tokens, (size_t)m.lengths[i] * sizeof(int32_t));
        memcpy(m.logprobs[i], r.logprobs + i * o->max_new_tokens, (size_t)m.lengths[i] * sizeof(float));
    }
    return m;
}

static void ck_same_sequence(const made *a, int32_t i, const made *b, int32_t j, const char *what)
{
    ck_assert_msg(a->lengths[i] == b->lengths[j] && a->finish[i] == b->finish[j], "%s: lengths %d and %d", what, a->lengths[i],
                  b->lengths[j]);
    for (int32_t t = 0; t < a->lengths[i]; t++) {
        ck_assert_msg(a->ids[i][t] == b->ids[j][t], "%s: token %d is %d, not %d", what, t, a->ids[i][t], b->ids[j][t]);
        ck_assert_float_eq_tol(a->logprobs[i][t], b->logprobs[j][t], 1e-4f);
    }
}

static mm_sampling greedy(void)
{
    mm_sampling s = MM_SAMPLING_INIT;
    s.temperature = 0;
    return s;
}

static const int32_t ragged[4] = { 5, 1, 17, 9 };

START_TEST(each_of_several_prompts_goes_on_as_if_it_were_alone)
{
    test_rng rng = { 800 };
    mm_model *model = nth_model(_i, 11);
    prompts p = random_prompts(model, ragged, 4, &rng);
    mm_sampling s = greedy();
    for (int32_t length = 4; length <= 24; length += 20) { /* prompts in chunks of 4, and whole */
        mm_context *context = context_of(model, MM_EVAL, 4, length, MM_OUT_LAST_LOGITS);
        mm_generate_options o = options_for(&p, 4, &s);
        made together = generate(context, &o);
        for (int32_t i = 0; i < 4; i++) {
            prompts one = { { p.ids[i] }, { p.lengths[i] } };
            o = options_for(&one, 1, &s);
            made alone = generate(context, &o);
            ck_assert_int_eq(alone.lengths[0], NEW);
            ck_same_sequence(&together, i, &alone, 0, tiny_models[_i].name);
        }
        mm_context_free(context);
    }
    mm_model_free(model);
}
END_TEST

START_TEST(greedy_tokens_are_the_likeliest_of_a_forward_pass)
{
    test_rng rng = { 801 };
    mm_model *model = nth_model(_i, 11);
    int32_t length = 6, V = vocab_of(model), ids[64];
    prompts p = random_prompts(model, &length, 1, &rng);
    mm_sampling s = greedy();
    mm_context *context = context_of(model, MM_EVAL, 1, 30, MM_OUT_LAST_LOGITS | MM_OUT_LOGPROBS);
    mm_generate_options o = options_for(&p, 1, &s);
    made m = generate(context, &o);
    memcpy(ids, p.ids[0], 6 * sizeof *ids);
    for (int32_t t = 0; t < NEW; t++) {
        mm_batch b = MM_BATCH_INIT;
        mm_output out = MM_OUTPUT_INIT;
        b.ids = ids;
        b.batch = 1;
        b.length = 6 + t;
        ck_ok(mm_forward(context, &b, &out));
        const float *logits = out.last_logits.data;
        int32_t best = 0;
        double sum = 0;
        for (int32_t v = 0; v < V; v++) {
            best = logits[v] > logits[best] ? v : best;
            sum += exp(logits[v]);
        }
        ck_assert_int_eq(m.ids[0][t], best);
        ck_assert_float_eq_tol(m.logprobs[0][t], (float)(logits[best] - log(sum)), 1e-4f);
        ids[6 + t] = m.ids[0][t];
    }
    mm_context_free(context);
    mm_model_free(model);
}
END_TEST

START_TEST(the_same_seed_gives_the_same_tokens_and_another_others)
{
    test_rng rng = { 802 };
    mm_model *model = nth_model(0, 11);
    prompts p = random_prompts(model, ragged, 4, &rng);
    mm_sampling s = MM_SAMPLING_INIT;
    s.temperature = 2;
    s.seed = 99;
    mm_context *context = context_of(model, MM_EVAL, 4, 24, MM_OUT_LAST_LOGITS);
    mm_context *other = context_on(model, MM_EVAL, 4, 7, MM_OUT_LAST_LOGITS | MM_OUT_LOGITS, 3, NULL);
    mm_generate_options o = options_for(&p, 4, &s);
    made first = generate(context, &o), again = generate(context, &o), elsewhere = generate(other, &o);
    for (int32_t i = 0; i < 4; i++) {
        ck_same_sequence(&again, i, &first, i, "again");
        ck_same_sequence(&elsewhere, i, &first, i, "in another context");
    }
    s.seed = 100;
    made different = generate(context, &o);
    ck_assert(memcmp(different.ids, first.ids, sizeof first.ids) != 0);
    mm_context_free(context);
    mm_context_free(other);
    mm_model_free(model);
}
END_TEST

START_TEST(plain_sampling_draws_tokens_as_often_as_they_are_likely)
{
    test_rng rng = { 803 };
    mm_model *model = nth_model(3, 11);
    int32_t V = vocab_of(model), length = 3, counts[64] = { 0 };
    prompts p = random_prompts(model, &length, 1, &rng);
    mm_sampling s = MM_SAMPLING_INIT;
    s.temperature = s.top_p = 1;
    mm_context *context = context_of(model, MM_EVAL, 1, 8, MM_OUT_LAST_LOGITS);
    mm_generate_options o = options_for(&p, 1, &s);
    o.max_new_tokens = 1;
    enum { DRAWS = 4000 };
    for (s.seed = 0; s.seed < DRAWS; s.seed++)
        counts[generate(context, &o).ids[0][0]]++;
    mm_batch b = MM_BATCH_INIT;
    mm_output out = MM_OUTPUT_INIT;
    b.ids = p.ids[0];
    b.batch = 1;
    b.length = 3;
    ck_ok(mm_forward(context, &b, &out));
    double sum = 0, chi = 0;
    for (int32_t v = 0; v < V; v++)
        sum += exp(((float *)out.last_logits.data)[v]);
    for (int32_t v = 0; v < V; v++) {
        double wanted = DRAWS * exp(((float *)out.last_logits.data)[v]) / sum;
        chi += (counts[v] - wanted) * (counts[v] - wanted) / wanted;
    }
    ck_assert_double_lt(chi, V - 1 + 5 * sqrt(2.0 * (V - 1))); /* five deviations */
    mm_context_free(context);
    mm_model_free(model);
}
END_TEST

START_TEST(a_stop_id_ends_its_sequence_and_is_not_part_of_it)
{
    test_rng rng = { 804 };
    mm_model *model = nth_model(0, 11);
    prompts p = random_prompts(model, ragged, 4, &rng);
    mm_sampling s = greedy();
    mm_context *context = context_of(model, MM_EVAL, 4, 24, MM_OUT_LAST_LOGITS);
    mm_generate_options o = options_for(&p, 4, &s);
    made all = generate(context, &o);
    int32_t stops[2] = { all.ids[0][3], all.ids[2][5] };
    o.stop_ids = stops;
    o.stop_count = 2;
    mm_cache *cache = NULL;
    ck_ok(mm_cache_create(model, 4, 40, MM_F32, &cache));
    o.cache = cache;
    made stopped = generate(context, &o);
    for (int32_t i = 0; i < 4; i++) {
        int32_t end = 0;
        while (end < NEW && all.ids[i][end] != stops[0] && all.ids[i][end] != stops[1])
            end++;
        ck_assert_int_eq(stopped.lengths[i], end);
        ck_assert_int_eq(stopped.finish[i], end < NEW ? MM_FINISH_STOP : MM_FINISH_LENGTH);
        ck_assert_int_eq(stopped.stops[i], end < NEW ? all.ids[i][end] : -1);
        ck_assert_float_eq_tol(stopped.stop_logprobs[i], end < NEW ? all.logprobs[i][end] : 0, 1e-5);
        ck_assert(memcmp(stopped.ids[i], all.ids[i], (size_t)end * sizeof(int32_t)) == 0);
        /* what was drawn last was not fed: the stop id, or the last one made */
        ck_assert_int_eq(mm_cache_length(cache, i), p.lengths[i] + end - (end == NEW));
    }
    ck_assert_int_eq(stopped.finish[0], MM_FINISH_STOP);
    mm_cache_free(cache);
    mm_context_free(context);
    mm_model_free(model);
}
END_TEST

START_TEST(without_stop_ids_the_configs_end_token_stops)
{
    char json[512];
    test_rng rng = { 805 };
    mm_model *model = nth_model(0, 11);
    int32_t length = 4;
    prompts p = random_prompts(model, &length, 1, &rng);
    mm_sampling s = greedy();
    mm_context *context = context_of(model, MM_EVAL, 1, 8, MM_OUT_LAST_LOGITS);
    mm_generate_options o = options_for(&p, 1, &s);
    made all = generate(context, &o);
    mm_context_free(context);
    mm_model_free(model);

    int32_t end = 0; /* the first place of the token that comes sixth */
    while (all.ids[0][end] != all.ids[0][5])
        end++;
    size_t open = strlen(tiny_models[0].json) - 1;
    snprintf(json, sizeof json, "%.*s,\"eos_token_id\":%d}", (int)open, tiny_models[0].json, all.ids[0][5]);
    model = model_of(json, 11);
    context = context_of(model, MM_EVAL, 1, 8, MM_OUT_LAST_LOGITS);
    o.stop_ids = NULL;
    made stopped = generate(context, &o);
    ck_assert_int_eq(stopped.lengths[0], end);
    ck_assert_int_eq(stopped.finish[0], MM_FINISH_STOP);
    mm_context_free(context);
    mm_model_free(model);
}
END_TEST

/* What a callback was told. */
typedef struct told {
    int32_t calls, sequences[256], ids[256];
    float logprobs[256];
    int32_t stop_sequence, stop_after; /* -1: none */
    mm_context *cancel_after;          /* cancelled at call `cancel_at` */
    int32_t cancel_at;
} told;

static int32_t listen(void *user, int32_t sequence, int32_t id, float logprob)
{
    told *t = user;
    int32_t n = 0;
    t->sequences[t->calls] = sequence;
    t->ids[t->calls] = id;
    t->logprobs[t->calls++] = logprob;
    for (int32_t i = 0; i < t->calls; i++)
        n += t->sequences[i] == sequence;
    if (t->cancel_after && t->calls == t->cancel_at)
        mm_cancel(t->cancel_after);
    return sequence == t->stop_sequence && n == t->stop_after;
}

START_TEST(a_callback_hears_every_token_and_can_end_its_sequence)
{
    test_rng rng = { 806 };
    mm_model *model = nth_model(1, 11);
    prompts p = random_prompts(model, ragged, 3, &rng);
    mm_sampling s = greedy();
    mm_context *context = context_of(model, MM_EVAL, 3, 6, MM_OUT_LAST_LOGITS);
    mm_generate_options o = options_for(&p, 3, &s);
    made all = generate(context, &o);
    told t = { .stop_sequence = 1, .stop_after = 4 };
    o.on_token = listen;
    o.user = &t;
    made m = generate(context, &o);
    ck_assert_int_eq(m.lengths[1], 4);
    ck_assert_int_eq(m.finish[1], MM_FINISH_CALLBACK);
    ck_assert_int_eq(t.calls, 2 * NEW + 4);
    int32_t next[3] = { 0 };
    for (int32_t i = 0; i < t.calls; i++) {
        int32_t sequence = t.sequences[i], at = next[sequence]++;
        ck_assert_int_eq(t.ids[i], all.ids[sequence][at]);
        ck_assert(t.logprobs[i] == m.logprobs[sequence][at]);
    }
    for (int32_t i = 0; i < 3; i += 2) {
        ck_same_sequence(&m, i, &all, i, "the others");
        ck_assert_int_eq(m.finish[i], MM_FINISH_LENGTH);
    }
    mm_context_free(context);
    mm_model_free(model);
}
END_TEST

/* Tries, with each token, all that a callback must not do. */
typedef struct meddler {
    mm_context *context;
    mm_generate_options options;
    int32_t calls;
} meddler;

static int32_t meddle(void *user, int32_t sequence, int32_t id, float logprob)
{
    meddler *m = user;
    mm_generate_result result = MM_GENERATE_RESULT_INIT;
    mm_batch batch = MM_BATCH_INIT;
    mm_output output = MM_OUTPUT_INIT;
    (void)sequence;
    (void)logprob;
    m->calls++;
    ck_status(mm_generate(m->context, &m->options, &result), MM_ERR_STATE);
    ck_error_mentions("mm_generate: the context is in use");
    batch.ids = &id, batch.batch = batch.length = 1;
    ck_status(mm_forward(m->context, &batch, &output), MM_ERR_STATE);
    ck_error_mentions("mm_forward: the context is in use");
    ck_status(mm_backward(m->context, NULL), MM_ERR_STATE);
    ck_status(mm_context_set_adapters(m->context, NULL, NULL, 0), MM_ERR_STATE);
    return 0;
}

START_TEST(a_callback_may_not_call_its_context)
{
    test_rng rng = { 811 };
    mm_model *model = nth_model(1, 11);
    prompts p = random_prompts(model, ragged, 3, &rng);
    mm_sampling s = greedy();
    mm_context *context = context_of(model, MM_EVAL, 3, 6, MM_OUT_LAST_LOGITS);
    mm_generate_options o = options_for(&p, 3, &s);
    made all = generate(context, &o);
    meddler m = { context, o, 0 };
    o.on_token = meddle;
    o.user = &m;
    made meddled = generate(context, &o);
    ck_assert_int_eq(m.calls, 3 * NEW);
    for (int32_t i = 0; i < 3; i++)
        ck_same_sequence(&meddled, i, &all, i, "meddled with");
    o.prompt_lengths = NULL; /* a call that fails is over, too */
    mm_generate_result result = MM_GENERATE_RESULT_INIT;
    ck_status(mm_generate(context, &o, &result), MM_ERR_ARG);
    made again = generate(context, &m.options);
    ck_same_sequence(&again, 0, &all, 0, "behind it");
    mm_context_free(context);
    mm_model_free(model);
}
END_TEST

/* Tries to change the cache that is being continued. */
typedef struct cache_meddler {
    mm_cache *cache, *other;
    mm_context *context; /* another one of the same model */
    mm_generate_options options;
    int32_t calls;
} cache_meddler;

static int32_t meddle_with_cache(void *user, int32_t sequence, int32_t id, float logprob)
{
    cache_meddler *m = user;
    mm_generate_result result = MM_GENERATE_RESULT_INIT;
    mm_batch batch = MM_BATCH_INIT;
    mm_output output = MM_OUTPUT_INIT;
    (void)sequence;
    (void)logprob;
    m->calls++;
    ck_status(mm_cache_truncate(m->cache, -1, 0), MM_ERR_STATE);
    ck_error_mentions("the cache is in use");
    ck_status(mm_cache_fork(m->cache, 1, m->cache, 0, 1), MM_ERR_STATE);
    ck_ok(mm_cache_fork(m->other, 0, m->cache, 0, -1)); /* only looks at it */
    ck_status(mm_generate(m->context, &m->options, &result), MM_ERR_STATE);
    batch.ids = &id, batch.batch = batch.length = 1, batch.cache = m->cache;
    ck_status(mm_forward(m->context, &batch, &output), MM_ERR_STATE);
    batch.cache = m->other; /* which is free */
    ck_ok(mm_forward(m->context, &batch, &output));
    return 0;
}

START_TEST(a_callback_may_not_change_the_cache_that_is_continued)
{
    test_rng rng = { 813 };
    mm_model *model = nth_model(1, 11);
    prompts p = random_prompts(model, ragged, 3, &rng);
    mm_sampling s = greedy();
    mm_context *context = context_of(model, MM_EVAL, 3, 24, MM_OUT_LAST_LOGITS);
    mm_generate_options o = options_for(&p, 3, &s);
    made all = generate(context, &o);
    cache_meddler m = { .context = context_of(model, MM_EVAL, 3, 24, MM_OUT_LAST_LOGITS) };
    ck_ok(mm_cache_create(model, 3, 40, MM_F32, &m.cache));
    ck_ok(mm_cache_create(model, 1, 40, MM_F32, &m.other));
    o.cache = m.cache;
    m.options = o;
    o.on_token = meddle_with_cache;
    o.user = &m;
    made meddled = generate(context, &o);
    ck_assert_int_eq(m.calls, 3 * NEW);
    for (int32_t i = 0; i < 3; i++)
        ck_same_sequence(&meddled, i, &all, i, "meddled with");
    ck_ok(mm_cache_truncate(m.cache, -1, 0)); /* free again */
    made again = generate(m.context, &m.options);
    ck_same_sequence(&again, 0, &all, 0, "behind it");
    const int32_t *const same[3] = { o.prompts[0], o.prompts[0], o.prompts[0] }; /* read once, and copied */
    const int32_t lengths[3] = { o.prompt_lengths[0], o.prompt_lengths[0], o.prompt_lengths[0] };
    m.options.prompts = same;
    m.options.prompt_lengths = lengths;
    ck_ok(mm_cache_truncate(m.cache, -1, 0));
    again = generate(m.context, &m.options);
    for (int32_t i = 0; i < 3; i++)
        ck_same_sequence(&again, i, &all, 0, "of one prompt");
    mm_cache_free(m.cache);
    mm_cache_free(m.other);
    mm_context_free(m.context);
    mm_context_free(context);
    mm_model_free(model);
}
END_TEST

/* What to do with logits, and what was told with them. */
typedef struct changes {
    enum { LEAVE, FORCE, END, CUT_OFF, SPOIL, CANCEL, MEDDLE } what;
    int32_t only;  /* sequence; -1: all */
    int32_t at, V; /* from which of its tokens on */
    int32_t calls[4];
    float with; /* SPOIL */
    mm_context *context;
    const made *so_far; /* what each has made, as far as it goes; NULL: not known */
} changes;

static int32_t wanted_id(int32_t sequence, int32_t n, int32_t V)
{
    return (7 * sequence + 13 * n + 3) % V;
}

static int32_t change(void *user, int32_t sequence, const int32_t *ids, int32_t count, float *logits,
                      int32_t vocab_size)
{
    changes *c = user;
    ck_assert_int_eq(vocab_size, c->V);
    ck_assert_int_eq(count, c->calls[sequence]++);
    if (c->so_far)
        ck_assert(memcmp(ids, c->so_far->ids[sequence], (size_t)count * sizeof *ids) == 0);
    if ((c->only >= 0 && sequence != c->only) || count < c->at)
        return 0;
    for (int32_t i = 0; i < vocab_size && (c->what == FORCE || c->what == CUT_OFF); i++)
        if (c->what == CUT_OFF || i != wanted_id(sequence, count, vocab_size))
            logits[i] = -INFINITY;
    if (c->what == SPOIL)
        logits[vocab_size / 2] = c->with;
    if (c->what == CANCEL)
        mm_cancel(c->context);
    if (c->what == MEDDLE) {
        mm_generate_result result = MM_GENERATE_RESULT_INIT;
        mm_generate_options o = MM_GENERATE_OPTIONS_INIT;
        ck_status(mm_generate(c->context, &o, &result), MM_ERR_STATE);
        ck_status(mm_context_set_adapters(c->context, NULL, NULL, 0), MM_ERR_STATE);
    }
    return c->what == END;
}

static changes changes_of(const mm_model *model, int what, int32_t only, int32_t at)
{
    return (changes){ .what = what, .only = only, .at = at, .V = vocab_of(model) };
}

static const mm_sampling drawn[] = {
    { sizeof(mm_sampling), 5, 0, 1, 0, 1, 0 },          { sizeof(mm_sampling), 5, 1, 1, 0, 1, 0 },
    { sizeof(mm_sampling), 5, 0.7f, 0.9f, 0, 1, 0 },    { sizeof(mm_sampling), 5, 1.5f, 1, 0.05f, 1.3f, 0 },
    { sizeof(mm_sampling), 5, 0.9f, 0.8f, 0, 0.5f, 5 }, { sizeof(mm_sampling), 5, 1e-30f, 1, 1, 1, 2 },
};
enum { DRAWN = sizeof drawn / sizeof *drawn };

START_TEST(only_what_on_logits_leaves_is_drawn)
{
    test_rng rng = { 812 };
    mm_model *model = nth_model(1, 11);
    prompts p = random_prompts(model, ragged, 4, &rng);
    EACH_KERNELS (k) {
        mm_context *context = context_on(model, MM_EVAL, 4, 24, MM_OUT_LAST_LOGITS, 2, mm_kernels_name(k));
        for (int n = 0; n < DRAWN; n++) {
            changes c = changes_of(model, FORCE, -1, 0);
            mm_generate_options o = options_for(&p, 4, &drawn[n]);
            o.on_logits = change;
            o.user = &c;
            made m = generate(context, &o);
            for (int32_t i = 0; i < 4; i++) {
                ck_assert_int_eq(c.calls[i], NEW);
                for (int32_t t = 0; t < NEW; t++) {
                    ck_assert_int_eq(m.ids[i][t], wanted_id(i, t, c.V));
                    ck_assert(m.logprobs[i][t] == 0); /* it was certain */
                }
            }
        }
        mm_context_free(context);
    }
    mm_model_free(model);
}
END_TEST

/* Also of several sequences that begin with one prompt, which is read once. */
START_TEST(logits_that_are_left_alone_change_nothing_and_one_sequences_are_not_anothers)
{
    test_rng rng = { 813 };
    mm_model *model = nth_model(1, 11);
    prompts p = random_prompts(model, ragged, 4, &rng);
    p.ids[1] = p.ids[2] = p.ids[0];
    p.lengths[1] = p.lengths[2] = p.lengths[0];
    mm_context *context = context_of(model, MM_EVAL, 4, 24, MM_OUT_LAST_LOGITS);
    for (int n = 0; n < DRAWN; n++) {
        mm_generate_options o = options_for(&p, 4, &drawn[n]);
        made all = generate(context, &o);
        o.on_logits = change;
        for (int32_t only = -1; only < 4; only++) {
            changes c = changes_of(model, only < 0 ? LEAVE : FORCE, only, 0);
            c.so_far = only < 0 ? &all : NULL;
            o.user = &c;
            made m = generate(context, &o);
            for (int32_t i = 0; i < 4; i++)
                if (i != only)
                    ck_same_sequence(&m, i, &all, i, "left alone");
                else
                    ck_assert_int_eq(m.ids[i][3], wanted_id(i, 3, c.V));
        }
    }
    mm_context_free(context);
    mm_model_free(model);
}
END_TEST

START_TEST(on_logits_ends_a_sequence_whose_tokens_then_are_all_in_the_cache)
{
    test_rng rng = { 814 };
    mm_model *model = nth_model(1, 11);
    prompts p = random_prompts(model, ragged, 2, &rng);
    mm_sampling s = greedy();
    mm_context *context = context_of(model, MM_EVAL, 2, 24, MM_OUT_LAST_LOGITS);
    mm_cache *cache = NULL;
    ck_ok(mm_cache_create(model, 2, 60, MM_F32, &cache));
    mm_generate_options o = options_for(&p, 2, &s);
    made all = generate(context, &o);
    for (int32_t at = 0; at < NEW; at += 5) {
        ck_ok(mm_cache_truncate(cache, -1, 0));
        changes c = changes_of(model, END, 0, at);
        o = options_for(&p, 2, &s);
        o.cache = cache;
        o.on_logits = change;
        o.user = &c;
        made m = generate(context, &o);
        ck_assert_int_eq(m.lengths[0], at);
        ck_assert_int_eq(m.finish[0], MM_FINISH_CALLBACK);
        ck_assert_int_eq(m.stops[0], -1);
        ck_assert_int_eq(mm_cache_length(cache, 0), p.lengths[0] + at);
        ck_assert(memcmp(m.ids[0], all.ids[0], (size_t)at * sizeof(int32_t)) == 0);
        ck_same_sequence(&m, 1, &all, 1, "the other");
        ck_assert_int_eq(mm_cache_length(cache, 1), p.lengths[1] + NEW - 1);

        prompts next = { { &all.ids[0][at] }, { 1 } }; /* what it would have drawn */
        o = options_for(&next, 1, &s);
        o.cache = cache;
        o.max_new_tokens = NEW - at > 1 ? NEW - at - 1 : 1;
        made rest = generate(context, &o);
        ck_assert(memcmp(rest.ids[0], all.ids[0] + at + 1, (size_t)(NEW - at - 1) * sizeof(int32_t)) == 0);
    }
    mm_cache_free(cache);
    mm_context_free(context);
    mm_model_free(model);
}
END_TEST

START_TEST(what_on_logits_must_not_do_ends_in_a_status_and_loses_nothing)
{
    static const struct {
        int what;
        float with;
        mm_status status;
        const char *words;
    } wrong[] = {
        { CUT_OFF, 0, MM_ERR_NUMERIC, "on_logits has left no token" },
        { SPOIL, NAN, MM_ERR_NUMERIC, "of sequence 1 at position 8 are not finite, or on_logits has left" },
        { SPOIL, INFINITY, MM_ERR_NUMERIC, "or the penalty made them so" },
        { CANCEL, 0, MM_ERR_CANCELLED, "cancelled" },
    };
    test_rng rng = { 815 };
    mm_model *model = nth_model(1, 11);
    static const int32_t lengths[2] = { 5, 4 };
    prompts p = random_prompts(model, lengths, 2, &rng);
    mm_context *context = context_of(model, MM_EVAL, 2, 24, MM_OUT_LAST_LOGITS);
    mm_cache *cache = NULL;
    ck_ok(mm_cache_create(model, 2, 60, MM_F32, &cache));
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        for (int greedily = 0; greedily < 2; greedily++) {
            mm_sampling s = drawn[greedily ? 0 : 1];
            s.repetition_penalty = i == 2 ? 1.2f : 1;
            mm_generate_options o = options_for(&p, 2, &s);
            mm_generate_result r = MM_GENERATE_RESULT_INIT;
            changes c = changes_of(model, wrong[i].what, 1, 4);
            c.context = context;
            c.with = wrong[i].with;
            o.cache = cache;
            o.on_logits = change;
            o.user = &c;
            ck_status(mm_generate(context, &o, &r), wrong[i].status);
            ck_error_mentions(wrong[i].words);
            ck_assert_int_eq(mm_cache_length(cache, 0), 0);
            ck_assert_int_eq(mm_cache_length(cache, 1), 0);
        }
    mm_sampling s = greedy();
    mm_generate_options o = options_for(&p, 2, &s);
    made all = generate(context, &o);
    changes c = changes_of(model, MEDDLE, -1, 0);
    c.context = context;
    o.on_logits = change;
    o.user = &c;
    made m = generate(context, &o);
    for (int32_t i = 0; i < 2; i++)
        ck_same_sequence(&m, i, &all, i, "meddled with");
    uint64_t before = allocations();
    c = changes_of(model, FORCE, -1, 0);
    generate(context, &o);
    ck_assert_uint_eq(allocations(), before);
    mm_cache_free(cache);
    mm_context_free(context);
    mm_model_free(model);
}
END_TEST

START_TEST(a_full_context_ends_a_sequence)
{
    test_rng rng = { 807 };
    mm_model *model = nth_model(0, 11);
    int32_t lengths[3] = { 60, 64, 20 }; /* of a context of 64 */
    prompts p = random_prompts(model, lengths, 3, &rng);
    mm_sampling s = greedy();
    mm_context *context = context_of(model, MM_EVAL, 3, 16, MM_OUT_LAST_LOGITS);
    mm_generate_options o = options_for(&p, 3, &s);
    o.max_new_tokens = 60;
    made m = generate(context, &o);
    /* the last token drawn needs no room: it is not fed */
    ck_assert_int_eq(m.lengths[0], 5);
    ck_assert_int_eq(m.lengths[1], 1);
    ck_assert_int_eq(m.lengths[2], 45);
    for (int i = 0; i < 3; i++)
        ck_assert_int_eq(m.finish[i], MM_FINISH_LENGTH);
    mm_cache *cache = NULL;
    ck_ok(mm_cache_create(model, 1, 24, MM_F32, &cache));
    prompts one = { { p.ids[2] }, { 20 } };
    o = options_for(&one, 1, &s);
    o.cache = cache;
    o.max_new_tokens = 60;
    ck_assert_int_eq(generate(context, &o).lengths[0], 5);
    ck_assert_int_eq(mm_cache_length(cache, 0), 24);
    mm_cache_free(cache);
    mm_context_free(context);
    mm_model_free(model);
}
END_TEST

/* As many as the context holds: a prompt of one token leaves the room of a row for the most that can be made. */
START_TEST(until_it_stops_takes_no_more_room_than_the_context_holds)
{
    test_rng rng = { 813 };
    mm_model *model = nth_model(0, 11);
    int32_t lengths[2] = { 1, 3 };
    prompts p = random_prompts(model, lengths, 2, &rng);
    mm_sampling s = greedy();
    mm_context *context = context_of(model, MM_EVAL, 2, 16, MM_OUT_LAST_LOGITS); /* of 64 */
    mm_generate_options o = options_for(&p, 2, &s);
    mm_generate_result r = MM_GENERATE_RESULT_INIT;
    made begun = generate(context, &o);
    o.max_new_tokens = INT32_MAX;
    uint64_t held = bytes_held();
    ck_ok(mm_generate(context, &o, &r));
    ck_assert_uint_lt(bytes_held() - held, 1 << 12);
    ck_assert_int_eq(r.stride, 64);
    for (int32_t i = 0; i < 2; i++) {
        ck_assert_int_eq(r.lengths[i], 65 - lengths[i]);
        ck_assert_int_eq(r.finish[i], MM_FINISH_LENGTH);
        ck_assert(memcmp(r.ids + i * r.stride, begun.ids[i], NEW * sizeof *r.ids) == 0);
    }
    mm_context_free(context);
    mm_model_free(model);
}
END_TEST

START_TEST(sampling_that_is_not_given_has_its_defaults)
{
    test_rng rng = { 814 };
    mm_model *model = nth_model(0, 11);
    prompts p = random_prompts(model, ragged, 4, &rng);
    mm_sampling s = MM_SAMPLING_INIT;
    mm_context *context = context_of(model, MM_EVAL, 4, 24, MM_OUT_LAST_LOGITS);
    mm_generate_options o = options_for(&p, 4, NULL);
    made without = generate(context, &o);
    o.sampling = &s;
    made with = generate(context, &o);
    for (int32_t i = 0; i < 4; i++)
        ck_same_sequence(&without, i, &with, i, "by default");
    s = greedy();
    made likeliest = generate(context, &o);
    ck_assert(memcmp(without.ids, likeliest.ids, sizeof without.ids) != 0);
    mm_context_free(context);
    mm_model_free(model);
}
END_TEST

START_TEST(a_callers_cache_continues_where_it_stood)
{
    test_rng rng = { 808 };
    mm_model *model = nth_model(_i, 11);
    prompts p = random_prompts(model, ragged, 3, &rng);
    mm_sampling s = MM_SAMPLING_INIT;
    s.seed = 5; /* drawn, not greedy: a place has its random number however it was come to */
    s.temperature = 1.5f;
    mm_context *context = context_of(model, MM_EVAL, 3, 6, MM_OUT_LAST_LOGITS);
    mm_generate_options o = options_for(&p, 3, &s);
    made all = generate(context, &o);
    mm_cache *cache = NULL;
    ck_ok(mm_cache_create(model, 4, 40, MM_F32, &cache));
    o.cache = cache;
    o.max_new_tokens = 5;
    made first = generate(context, &o);
    prompts rest = { 0 };
    for (int32_t i = 0; i < 3; i++) {
        ck_assert_int_eq(mm_cache_length(cache, i), p.lengths[i] + 4); /* all but the last, which was not fed */
        rest.ids[i] = &first.ids[i][4];
        rest.lengths[i] = 1;
    }
    ck_assert_int_eq(mm_cache_length(cache, 3), 0);
    o.prompts = rest.ids;
    o.prompt_lengths = rest.lengths;
    o.max_new_tokens = NEW - 5;
    made second = generate(context, &o);
    for (int32_t i = 0; i < 3; i++)
        for (int32_t t = 0; t < NEW; t++)
            ck_assert_msg((t < 5 ? first.ids[i][t] : second.ids[i][t - 5]) == all.ids[i][t], "%s: sequence %d, token %d",
                          tiny_models[_i].name, i, t);
    mm_cache_free(cache);
    mm_context_free(context);
    mm_model_free(model);
}
END_TEST

/* Once what was made is in the cache as it is, once as a file left it, once in another sequence's place, and once read again. */
START_TEST(the_penalty_counts_what_a_callers_cache_holds)
{
    test_rng rng = { 811 };
    mm_model *model = nth_model(0, 11);
    prompts p = random_prompts(model, ragged, 1, &rng);
    mm_sampling s = greedy();
    s.repetition_penalty = 1.3f;
    mm_context *context = context_of(model, MM_EVAL, 1, 6, MM_OUT_LAST_LOGITS);
    mm_generate_options o = options_for(&p, 1, &s);
    mm_cache *cache = NULL, *other = NULL;
    made all = generate(context, &o);
    ck_ok(mm_cache_create(model, 1, 40, MM_F32, &cache));
    o.cache = cache;
    o.max_new_tokens = 5;
    made first = generate(context, &o);
    const int32_t *ids = first.ids[0] + 4, again = 3;
    int32_t count = 1;
    if (_i == 1) {
        char path[512];
        snprintf(path, sizeof path, "%s/cache", scratch_directory());
        ck_ok(mm_cache_save(cache, path));
        ck_ok(mm_cache_load(model, path, &other));
    } else if (_i == 2) {
        ck_ok(mm_cache_create(model, 1, 50, MM_F32, &other));
        ck_ok(mm_cache_fork(other, 0, cache, 0, -1));
    } else if (_i == 3) {
        ck_ok(mm_cache_truncate(cache, 0, mm_cache_length(cache, 0) - again));
        ids -= again;
        count += again;
    }
    o.cache = other ? other : cache;
    o.prompts = &ids;
    o.prompt_lengths = &count;
    o.max_new_tokens = NEW - 5;
    made second = generate(context, &o);
    for (int32_t t = 0; t < NEW; t++)
        ck_assert_int_eq(t < 5 ? first.ids[0][t] : second.ids[0][t - 5], all.ids[0][t]);
    mm_cache_free(other);
    mm_cache_free(cache);
    mm_context_free(context);
    mm_model_free(model);
}
END_TEST

/* Which the call overwrites before it is read to its end. */
START_TEST(a_prompt_within_the_last_result_is_refused)
{
    test_rng rng = { 810 };
    mm_model *model = nth_model(0, 11);
    prompts p = random_prompts(model, ragged, 1, &rng);
    mm_sampling s = greedy();
    mm_context *context = context_of(model, MM_EVAL, 1, 24, MM_OUT_LAST_LOGITS);
    mm_generate_options o = options_for(&p, 1, &s);
    mm_generate_result result = MM_GENERATE_RESULT_INIT, other = MM_GENERATE_RESULT_INIT;
    ck_ok(mm_generate(context, &o, &result));
    const int32_t last = result.lengths[0] - 1, one = 1, *own[] = { &result.ids[last] }, id = *own[0];
    o.prompts = own;
    o.prompt_lengths = &one;
    ck_status(mm_generate(context, &o, &other), MM_ERR_ARG);
    ck_error_mentions("prompt 0 lies in the last result");
    ck_assert_int_eq(result.ids[last], id);
    const int32_t *copied[] = { &id };
    o.prompts = copied;
    o.prompt_lengths = result.lengths;
    ck_status(mm_generate(context, &o, &other), MM_ERR_ARG);
    o.prompt_lengths = &one;
    o.stop_ids = result.ids;
    o.stop_count = 1;
    ck_status(mm_generate(context, &o, &other), MM_ERR_ARG);
    ck_error_mentions("stop_ids lies in the last result");
    o.stop_ids = &id;
    ck_ok(mm_generate(context, &o, &other));
    mm_context_free(context);
    mm_model_free(model);
}
END_TEST

START_TEST(a_call_with_more_to_make_follows_one_with_less)
{
    test_rng rng = { 809 };
    mm_model *model = nth_model(0, 11);
    prompts p = random_prompts(model, ragged, 4, &rng);
    mm_sampling s = greedy();
    mm_context *context = context_of(model, MM_EVAL, 4, 24, MM_OUT_LAST_LOGITS);
    mm_generate_options o = options_for(&p, 1, &s);
    o.max_new_tokens = 2;
    made small = generate(context, &o);
    o = options_for(&p, 4, &s);
    o.max_new_tokens = 30;
    made large = generate(context, &o);
    ck_assert_int_eq(large.ids[0][1], small.ids[0][1]);
    uint64_t before = allocations();
    generate(context, &o);
    ck_assert_uint_eq(allocations(), before); /* what was taken once serves again */
    mm_context_free(context);
    mm_model_free(model);
}
END_TEST

START_TEST(a_cancelled_call_leaves_the_cache_where_it_stood)
{
    test_rng rng = { 810 };
    mm_model *model = nth_model(0, 11);
    prompts p = random_prompts(model, ragged, 2, &rng);
    mm_sampling s = greedy();
    mm_context *context = context_of(model, MM_EVAL, 2, 4, MM_OUT_LAST_LOGITS);
    mm_generate_result r = MM_GENERATE_RESULT_INIT;
    mm_cache *cache = NULL;
    ck_ok(mm_cache_create(model, 2, 60, MM_F32, &cache));
    mm_generate_options o = options_for(&p, 2, &s);
    o.cache = cache;
    made first = generate(context, &o);
    int32_t before[2] = { mm_cache_length(cache, 0), mm_cache_length(cache, 1) };
    o.on_token = listen;
    for (int32_t at = 1; at <= 2 * NEW; at += 2 * NEW - 1) { /* within the call, and with the very last token */
        told t = { .stop_sequence = -1, .cancel_after = context, .cancel_at = at };
        o.user = &t;
        ck_status(mm_generate(context, &o, &r), MM_ERR_CANCELLED);
        ck_assert_int_eq(mm_cache_length(cache, 0), before[0]);
        ck_assert_int_eq(mm_cache_length(cache, 1), before[1]);
    }
    o.on_token = NULL;
    mm_cancel(context);
    ck_status(mm_generate(context, &o, &r), MM_ERR_CANCELLED);
    ck_assert_int_eq(mm_cache_length(cache, 0), before[0]);
    ck_ok(mm_cache_truncate(cache, -1, 0));
    made again = generate(context, &o);
    for (int32_t i = 0; i < 2; i++)
        ck_same_sequence(&again, i, &first, i, "after cancelled calls");
    mm_cache_free(cache);
    mm_context_free(context);
    mm_model_free(model);
}
END_TEST

START_TEST(a_cancelled_pass_leaves_cache_and_context_usable)
{
    test_rng rng = { 811 };
    mm_model *model = nth_model(0, 11);
    mm_context *context = context_of(model, MM_TRAIN, 2, 7, MM_OUT_LOSS | MM_OUT_LAST_LOGITS);
    mm_batch train = random_batch(model, 2, 7, MM_TRAIN, &rng), eval = train;
    mm_output out = MM_OUTPUT_INIT;
    mm_cache *cache = NULL;
    ck_ok(mm_cache_create(model, 2, 20, MM_F32, &cache));
    double loss = forward_backward(context, &train, NULL);
    int64_t n;
    float *gradients = all_gradients(context, &n);

    eval.mode = MM_EVAL;
    eval.cache = cache;
    mm_cancel(context);
    ck_status(mm_forward(context, &eval, &out), MM_ERR_CANCELLED);
    ck_assert_int_eq(mm_cache_length(cache, 0), 0);
    ck_ok(mm_forward(context, &eval, &out)); /* once is once */
    ck_assert_int_eq(mm_cache_length(cache, 0), 7);

    ck_ok(mm_forward(context, &train, &out));
    mm_cancel(context);
    ck_status(mm_backward(context, NULL), MM_ERR_CANCELLED);
    ck_status(mm_backward(context, NULL), MM_ERR_STATE);
    ck_ok(mm_zero_grad(context));
    ck_assert(forward_backward(context, &train, NULL) == loss);
    ck_assert(same_bits(all_gradients(context, &n), gradients, n));
    mm_cancel(NULL);
    mm_cache_free(cache);
    mm_context_free(context);
    mm_model_free(model);
}
END_TEST

START_TEST(logits_that_are_not_finite_end_in_a_status)
{
    test_rng rng = { 812 };
    mm_model *model = nth_model(0, 11);
    prompts p = random_prompts(model, ragged, 2, &rng);
    mm_view view;
    ck_ok(mm_model_write(model, 0, &view));
    ((float *)view.data)[0] = NAN; /* token 0's embedding, which is also the head's */
    mm_model_written(model);
    mm_context *context = context_of(model, MM_EVAL, 2, 24, MM_OUT_LAST_LOGITS);
    mm_cache *cache = NULL;
    ck_ok(mm_cache_create(model, 2, 40, MM_F32, &cache));
    mm_generate_options o = options_for(&p, 2, NULL);
    mm_generate_result r = MM_GENERATE_RESULT_INIT;
    o.cache = cache;
    ck_status(mm_generate(context, &o, &r), MM_ERR_NUMERIC);
    ck_error_mentions("are not finite");
    ck_assert_int_eq(mm_cache_length(cache, 0), 0);
    ((float *)view.data)[0] = 0.125f;
    mm_model_written(model);
    mm_sampling sampling = MM_SAMPLING_INIT; /* what is finite again is divided by next to nothing */
    sampling.repetition_penalty = 1e-45f;
    o.sampling = &sampling;
    ck_status(mm_generate(context, &o, &r), MM_ERR_NUMERIC);
    ck_error_mentions("or the penalty made them so");
    ck_assert_int_eq(mm_cache_length(cache, 0), 0);
    mm_cache_free(cache);
    mm_context_free(context);
    mm_model_free(model);
}
END_TEST

int main(void)
{
    TCase *tests;
    Suite *suite = plain_suite("run/generate", &tests);
    tcase_add_loop_test(tests, each_of_several_prompts_goes_on_as_if_it_were_alone, 0, all_count);
    tcase_add_loop_test(tests, greedy_tokens_are_the_likeliest_of_a_forward_pass, 0, all_count);
    tcase_add_test(tests, the_same_seed_gives_the_same_tokens_and_another_others);
    tcase_add_test(tests, plain_sampling_draws_tokens_as_often_as_they_are_likely);
    tcase_add_test(tests, a_stop_id_ends_its_sequence_and_is_not_part_of_it);
    tcase_add_test(tests, without_stop_ids_the_configs_end_token_stops);
    tcase_add_test(tests, a_callback_hears_every_token_and_can_end_its_sequence);
    tcase_add_test(tests, a_callback_may_not_call_its_context);
    tcase_add_test(tests, a_callback_may_not_change_the_cache_that_is_continued);
    tcase_add_test(tests, only_what_on_logits_leaves_is_drawn);
    tcase_add_test(tests, logits_that_are_left_alone_change_nothing_and_one_sequences_are_not_anothers);
    tcase_add_test(tests, on_logits_ends_a_sequence_whose_tokens_then_are_all_in_the_cache);
    tcase_add_test(tests, what_on_logits_must_not_do_ends_in_a_status_and_loses_nothing);
    tcase_add_test(tests, a_full_context_ends_a_sequence);
    tcase_add_test(tests, until_it_stops_takes_no_more_room_than_the_context_holds);
    tcase_add_test(tests, sampling_that_is_not_given_has_its_defaults);
    tcase_add_loop_test(tests, a_callers_cache_continues_where_it_stood, 0, all_count);
    tcase_add_loop_test(tests, the_penalty_counts_what_a_callers_cache_holds, 0, 4);
    tcase_add_test(tests, a_prompt_within_the_last_result_is_refused);
    tcase_add_test(tests, a_call_with_more_to_make_follows_one_with_less);
    tcase_add_test(tests, a_cancelled_call_leaves_the_cache_where_it_stood);
    tcase_add_test(tests, a_cancelled_pass_leaves_cache_and_context_usable);
    tcase_add_test(tests, logits_that_are_not_finite_end_in_a_status);
    return run_suite(suite);
}
