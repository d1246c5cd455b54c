/* Memory that runs out at any moment, and handles freed in any order. */
#include <pthread.h>
#include <string.h>

#include "base/memory.h"
#include "run/models.h"

/* Everything a program makes one after another; what it got to is freed. */
typedef struct work {
    mm_config *config;
    mm_model *model;
    mm_context *context;
    mm_cache *cache;
    mm_batch batch;
    const int32_t *prompts[2];
    int32_t lengths[2];
    bool own_cache;
    int32_t mode;
} work;

static work work_of(int index, int32_t mode, bool own_cache)
{
    test_rng rng = { 950 };
    work w = { .config = nth_config(index), .mode = mode, .own_cache = own_cache, .lengths = { 3, 2 } };
    mm_model *model = nth_model(index, 1);
    w.batch = random_batch(model, 2, 6, mode, &rng);
    w.prompts[0] = w.batch.ids;
    w.prompts[1] = w.batch.ids + 6;
    mm_model_free(model);
    return w;
}

static mm_status make_context(work *w)
{
    mm_context_options o = MM_CONTEXT_OPTIONS_INIT;
    o.mode = w->mode;
    o.max_batch = 2;
    o.max_length = 6;
    o.max_context = 20;
    o.outputs = MM_OUT_LOSS | MM_OUT_LAST_LOGITS;
    o.threads = 2;
    return mm_context_create(w->model, &o, &w->context);
}

static mm_status generate(work *w, int32_t new_tokens)
{
    mm_generate_options o = MM_GENERATE_OPTIONS_INIT;
    mm_generate_result r = MM_GENERATE_RESULT_INIT;
    o.prompts = w->prompts;
    o.prompt_lengths = w->lengths;
    o.sequences = 2;
    o.cache = w->own_cache ? w->cache : NULL;
    o.max_new_tokens = new_tokens;
    return mm_generate(w->context, &o, &r);
}

static mm_status run(work *w)
{
    mm_output out = MM_OUTPUT_INIT;
    mm_status status = mm_model_create(w->config, 7, &w->model);
    if (status == MM_OK)
        status = make_context(w);
    if (status == MM_OK)
        status = mm_cache_create(w->model, 2, 20, MM_F32, &w->cache);
    if (status == MM_OK)
        status = mm_forward(w->context, &w->batch, &out);
    if (status == MM_OK && w->mode == MM_TRAIN)
        status = mm_backward(w->context, NULL);
    if (status == MM_OK)
        status = generate(w, 2);
    if (status == MM_OK)
        status = generate(w, 9); /* takes more than the first */
    return status;
}

static void free_handles(work *w)
{
    mm_cache_free(w->cache);
    mm_context_free(w->context);
    mm_model_free(w->model);
    w->cache = NULL;
    w->context = NULL;
    w->model = NULL;
}

START_TEST(any_allocation_may_fail_and_nothing_leaks)
{
    work w = work_of(_i / 4, _i % 2 ? MM_TRAIN : MM_EVAL, _i / 2 % 2);
    uint64_t start = bytes_held(), n = 0;
    mm_status status;
    do {
        n++;
        mmi_memory_fail_at(n, n % 2);
        status = run(&w);
        mmi_memory_fail_at(0, false);
        ck_assert_msg(status == MM_OK || status == MM_ERR_MEMORY, "allocation %d: %s (%s)", (int)n, mm_status_name(status),
                      mm_last_error());
        free_handles(&w);
        ck_assert_msg(bytes_held() == start, "allocation %d: %llu bytes are left", (int)n,
                      (unsigned long long)(bytes_held() - start));
    } while (status != MM_OK);
    ck_assert_uint_gt(n, 8);
    mm_config_free(w.config);
}
END_TEST

START_TEST(running_needs_no_memory_at_all)
{
    work w = work_of(_i, MM_TRAIN, false);
    mm_output out = MM_OUTPUT_INIT;
    double norm;
    ck_ok(mm_model_create(w.config, 7, &w.model));
    ck_ok(make_context(&w));
    mmi_memory_fail_at(1, true);
    ck_ok(mm_forward(w.context, &w.batch, &out));
    ck_ok(mm_backward(w.context, NULL));
    ck_ok(mm_grad_norm(w.context, &norm));
    ck_ok(mm_zero_grad(w.context));
    mmi_memory_fail_at(0, false);
    free_handles(&w);
    mm_config_free(w.config);
}
END_TEST

START_TEST(a_call_that_found_no_memory_leaves_context_and_cache_as_they_were)
{
    work w = work_of(0, MM_EVAL, true);
    ck_ok(mm_model_create(w.config, 7, &w.model));
    ck_ok(make_context(&w));
    ck_ok(mm_cache_create(w.model, 2, 20, MM_F32, &w.cache));
    ck_ok(generate(&w, 3));
    int32_t before = mm_cache_length(w.cache, 0);
    mmi_memory_fail_at(1, true);
    ck_status(generate(&w, 12), MM_ERR_MEMORY);
    mmi_memory_fail_at(0, false);
    ck_assert_int_eq(mm_cache_length(w.cache, 0), before);
    ck_ok(generate(&w, 3));
    free_handles(&w);
    mm_config_free(w.config);
}
END_TEST

START_TEST(handles_may_be_freed_in_any_order)
{
    static const int orders[6][3] = { { 0, 1, 2 }, { 0, 2, 1 }, { 1, 0, 2 }, { 1, 2, 0 }, { 2, 0, 1 }, { 2, 1, 0 } };
    for (int i = 0; i < 6; i++) {
        work w = work_of(0, MM_EVAL, true);
        mm_config *config = w.config;
        uint64_t start = bytes_held();
        ck_ok(run(&w));
        for (int j = 0; j < 3; j++) {
            mm_output out = MM_OUTPUT_INIT;
            if (orders[i][j] == 0)
                mm_model_free(w.model);
            else if (orders[i][j] == 1)
                mm_context_free(w.context);
            else
                mm_cache_free(w.cache);
            if (j < 2 && (orders[i][0] != 1 && (j == 0 || orders[i][1] != 1)))
                ck_ok(mm_forward(w.context, &w.batch, &out)); /* what it stands on is still there */
        }
        ck_assert_uint_eq(bytes_held(), start);
        mm_config_free(config);
    }
}
END_TEST

typedef struct runner {
    mm_context *context;
    const mm_batch *batch;
    float *gradients;
    bool failed;
} runner;

static void *run_some(void *arg)
{
    runner *r = arg;
    mm_output out = MM_OUTPUT_INIT;
    for (int i = 0; i < 20; i++)
        r->failed |= mm_zero_grad(r->context) != MM_OK || mm_forward(r->context, r->batch, &out) != MM_OK
                  || mm_backward(r->context, NULL) != MM_OK;
    return NULL;
}

START_TEST(contexts_of_one_model_run_side_by_side)
{
    test_rng rng = { 960 };
    mm_model *model = nth_model(1, 1);
    mm_batch batch = random_batch(model, 2, 30, MM_TRAIN, &rng);
    for (int32_t p = 0; p < mm_kernels_count(); p++) {
        pthread_t threads[3];
        runner r[4];
        int64_t n;
        for (int i = 0; i < 4; i++)
            r[i] = (runner){ context_on(model, MM_TRAIN, 2, 30, MM_OUT_LOSS, 1 + i % 2, mm_kernels_name(p)), &batch, NULL, false };
        run_some(&r[3]);
        float *expected = all_gradients(r[3].context, &n);
        for (int i = 0; i < 3; i++)
            ck_assert_int_eq(pthread_create(&threads[i], NULL, run_some, &r[i]), 0);
        for (int i = 0; i < 3; i++)
            pthread_join(threads[i], NULL);
        for (int i = 0; i < 4; i++) {
            ck_assert(!r[i].failed && same_bits(all_gradients(r[i].context, &n), expected, n));
            mm_context_free(r[i].context);
        }
    }
    mm_model_free(model);
}
END_TEST

int main(void)
{
    TCase *tests;
    Suite *suite = plain_suite("run/failure", &tests);
    tcase_add_loop_test(tests, any_allocation_may_fail_and_nothing_leaks, 0, 4 * all_count);
    tcase_add_loop_test(tests, running_needs_no_memory_at_all, 0, all_count);
    tcase_add_test(tests, a_call_that_found_no_memory_leaves_context_and_cache_as_they_were);
    tcase_add_test(tests, handles_may_be_freed_in_any_order);
    tcase_add_test(tests, contexts_of_one_model_run_side_by_side);
    return run_suite(suite);
}
