/* Passes that are left to the caller's thread: what is tried, how often, and what comes of it, by times that are made
 * up; and that it changes no number. */
#include "run/alone.h"
#include "run/context.h"
#include "run/models.h"

/* What passes would take. */
typedef struct world {
    double together, alone;
    int threads;
    bool crowded;
} world;

typedef struct count {
    int alone, together;
} count;

static count live(mmi_trial *t, const world *w, int passes)
{
    count c = { 0 };
    for (int i = 0; i < passes; i++) {
        const bool alone = mmi_trial_alone(t);
        alone ? c.alone++ : c.together++;
        mmi_trial_took(t, alone ? w->alone : w->together, w->threads, w->crowded);
    }
    return c;
}

static mmi_trial *first_trial(mmi_trial trials[MMI_TRIALS])
{
    memset(trials, 0, MMI_TRIALS * sizeof *trials);
    return mmi_trial_of(trials, 1);
}

START_TEST(the_better_is_kept)
{
    static const struct {
        world w;
        bool alone;
    } cases[] = {
        { { 100e-6, 90e-6, 2, false }, true },   { { 100e-6, 110e-6, 2, false }, false },
        { { 100e-6, 108e-6, 2, true }, true },   { { 100e-6, 115e-6, 2, true }, false },
        { { 100e-6, 300e-6, 4, false }, false }, { { 90e-6, 5e-6, 8, false }, true },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        mmi_trial trials[MMI_TRIALS], *t = first_trial(trials);
        ck_assert(!mmi_trial_alone(t)); /* until it is known */
        live(t, &cases[i].w, 40);
        ck_assert(mmi_trial_alone(t) == cases[i].alone);
        count c = live(t, &cases[i].w, 10000);
        ck_assert_int_le(cases[i].alone ? c.together : c.alone, 100); /* what trying costs */
        ck_assert_int_gt(cases[i].alone ? c.together : c.alone, 0);
    }
}
END_TEST

START_TEST(what_changes_is_seen)
{
    mmi_trial trials[MMI_TRIALS], *t = first_trial(trials);
    const world near = { 60e-6, 100e-6, 2, false }, far = { 130e-6, 100e-6, 2, false };
    for (int i = 0; i < 6; i++) {
        const world *w = i % 2 == 0 ? &near : &far;
        live(t, w, 20000); /* the longest wait is over several times */
        ck_assert(mmi_trial_alone(t) == (i % 2 == 1));
    }
}
END_TEST

/* Without the others it might take as many times as long as there are threads. */
START_TEST(long_passes_and_many_rows_are_not_tried)
{
    mmi_trial trials[MMI_TRIALS], *t = first_trial(trials);
    const world longer = { 501e-6, 1e-6, 2, false }, many = { 70e-6, 1e-6, 16, false };
    ck_assert_int_eq(live(t, &longer, 10000).alone, 0);
    t = first_trial(trials);
    ck_assert_int_eq(live(t, &many, 10000).alone, 0);
    ck_assert_ptr_nonnull(mmi_trial_of(trials, 63));
    ck_assert_ptr_null(mmi_trial_of(trials, 64));
}
END_TEST

/* Hopeless: one pass of each trial, and those ever rarer. */
START_TEST(a_trial_ends_where_it_is_hopeless)
{
    mmi_trial trials[MMI_TRIALS], *t = first_trial(trials);
    const world w = { 50e-6, 300e-6, 8, false };
    ck_assert_int_le(live(t, &w, 1000).alone, 2);
    ck_assert_int_le(live(t, &w, 100000).alone, 25);
}
END_TEST

START_TEST(each_number_of_rows_has_its_own)
{
    mmi_trial trials[MMI_TRIALS], *one = first_trial(trials), *four = mmi_trial_of(trials, 4);
    ck_assert_ptr_ne(one, four);
    live(one, &(world){ 100e-6, 50e-6, 2, false }, 100);
    live(four, &(world){ 50e-6, 100e-6, 2, false }, 100);
    ck_assert(mmi_trial_alone(mmi_trial_of(trials, 1)));
    ck_assert(!mmi_trial_alone(mmi_trial_of(trials, 4)));
    ck_assert(!mmi_trial_alone(mmi_trial_of(trials, 1 + MMI_TRIALS))); /* has taken its place */
    ck_assert(!mmi_trial_alone(mmi_trial_of(trials, 1)));
}
END_TEST

static const char model_json[] =
    "{\"model_type\":\"minimind\",\"minimind_version\":2,\"hidden_size\":512,\"num_attention_heads\":4,"
    "\"num_key_value_heads\":2,\"max_position_embeddings\":256,\"num_hidden_layers\":2,\"intermediate_size\":96,"
    "\"vocab_size\":3000}";

/* With passes of both kinds among them. */
START_TEST(no_number_depends_on_it)
{
    enum { PASSES = 200, VOCAB = 3000 };
    mm_model *model = model_of(model_json, 1);
    mm_context *contexts[2];
    mm_cache *caches[2];
    int alone = 0;
    for (int i = 0; i < 2; i++) {
        contexts[i] = context_on(model, MM_EVAL, 1, PASSES, MM_OUT_LAST_LOGITS, 1 + i, NULL);
        ck_ok(mm_cache_create(model, 1, PASSES, MM_F32, &caches[i]));
    }
    mmi_trial *t = mmi_trial_of(contexts[1]->trials, 1);
    for (int pass = 0; pass < PASSES; pass++) {
        const int32_t id = 7 * pass % VOCAB;
        mm_output out[2] = { MM_OUTPUT_INIT, MM_OUTPUT_INIT };
        if (pass == PASSES / 2) /* whatever has come out so far */
            *t = (mmi_trial){ .rows = 1, .left = PASSES, .wait = 1, .alone = true };
        alone += mmi_trial_alone(t);
        for (int i = 0; i < 2; i++) {
            mm_batch batch = MM_BATCH_INIT;
            batch.ids = &id;
            batch.batch = batch.length = 1;
            batch.cache = caches[i];
            batch.mode = MM_EVAL;
            ck_ok(mm_forward(contexts[i], &batch, &out[i]));
        }
        ck_assert_mem_eq(out[0].last_logits.data, out[1].last_logits.data, VOCAB * sizeof(float));
    }
    ck_assert_int_ge(alone, PASSES / 2);
    ck_assert_int_eq(contexts[0]->trials[1].rows, 0); /* there is nothing to try */
    ck_assert_int_eq(t->left, PASSES - PASSES / 2);
    for (int i = 0; i < 2; i++) {
        mm_cache_free(caches[i]);
        mm_context_free(contexts[i]);
    }
    mm_model_free(model);
}
END_TEST

int main(void)
{
    TCase *tests;
    Suite *suite = plain_suite("run/alone", &tests);
    tcase_set_timeout(tests, 60);
    tcase_add_test(tests, the_better_is_kept);
    tcase_add_test(tests, what_changes_is_seen);
    tcase_add_test(tests, long_passes_and_many_rows_are_not_tried);
    tcase_add_test(tests, a_trial_ends_where_it_is_hopeless);
    tcase_add_test(tests, each_number_of_rows_has_its_own);
    tcase_add_test(tests, no_number_depends_on_it);
    return run_suite(suite);
}
