#define _POSIX_C_SOURCE 200809L
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backend/kernels.h"
#include "base/json.h"
#include "base/memory.h"
#include "model/model.h"
#include "model/safetensors.h"
#include "tiny.h"
#include "train/optimizer.h"

static mm_model *model;
static mm_context *context;

static mm_context *make_context(mm_model *of, int32_t threads)
{
    mm_context_options options = MM_CONTEXT_OPTIONS_INIT;
    mm_context *made = NULL;
    options.mode = MM_TRAIN;
    options.max_length = 8;
    options.threads = threads;
    ck_ok(mm_context_create(of, &options, &made));
    return made;
}

static void start(void)
{
    model = tiny_model(1);
    context = make_context(model, 1);
}

static void end(void)
{
    mm_context_free(context);
    mm_model_free(model);
}

static mm_optimizer *make_optimizer(mm_model *of)
{
    mm_adamw_options options = MM_ADAMW_OPTIONS_INIT;
    mm_optimizer *optimizer = NULL;
    options.weight_decay = 0.1;
    options.beta2 = 0.95;
    ck_ok(mm_adamw_create(of, &options, &optimizer));
    return optimizer;
}

static void fill_gradients(mm_context *ctx, unsigned seed, float scale)
{
    test_rng rng = { seed };
    for (int64_t i = 0; i < mm_model_tensor_count(mm_context_model(ctx)); i++) {
        mm_view view;
        ck_ok(mm_grad(ctx, i, &view));
        rng_fill(&rng, view.data, (size_t)(view.shape[0] * view.shape[1]), scale);
    }
}

/* --- The shared fixtures: parameters of any shape, so the kernel is called as the optimizer calls it --- */

static void run_fixture(const char *name, const mmi_kernels *k)
{
    char path[512];
    mmi_json *c = NULL;
    mmi_st_file file;
    snprintf(path, sizeof path, MM_TEST_DATA "/losses/%s.json", name);
    ck_ok(mmi_json_read_file(path, &c));
    snprintf(path, sizeof path, MM_TEST_DATA "/losses/%s.safetensors", name);
    ck_ok(mmi_st_open(path, &file));
    double beta1 = mmi_json_number(mmi_json_get(c, "beta1"), -1), beta2 = mmi_json_number(mmi_json_get(c, "beta2"), -1);
    double clip = mmi_json_number(mmi_json_get(c, "clip_grad_norm"), 0);
    double tolerance = mmi_json_number(mmi_json_get(mmi_json_get(c, "tolerances"), "param_rel"), -1);
    const mmi_json *rates = mmi_json_get(c, "lr");
    enum { MOST = 16 };
    const mmi_st_entry *grads[MOST], *expected[MOST];
    float *w[MOST], *m[MOST], *v[MOST];
    int count = 0;
    for (;; count++) {
        char key[64];
        snprintf(key, sizeof key, "param.%d", count);
        const mmi_st_entry *p = mmi_st_find(&file, key);
        if (!p)
            break;
        ck_assert_int_lt(count, MOST);
        w[count] = malloc(p->bytes);
        memcpy(w[count], p->data, p->bytes);
        m[count] = calloc(1, p->bytes);
        v[count] = calloc(1, p->bytes);
        snprintf(key, sizeof key, "grad.%d", count);
        grads[count] = mmi_st_find(&file, key);
        snprintf(key, sizeof key, "expected.param.%d", count);
        expected[count] = mmi_st_find(&file, key);
        ck_assert(grads[count] && expected[count]);
    }
    ck_assert_int_gt(count, 0);
    const mmi_st_entry *norms = mmi_st_find(&file, "expected.grad_norm");
    int64_t steps = (int64_t)mmi_json_size(rates);
    for (int64_t t = 0; t < steps; t++) {
        double squares = 0;
        for (int i = 0; i < count; i++) {
            int64_t n = grads[i]->elements / steps;
            squares += k->sum_squares((const float *)grads[i]->data + t * n, n);
        }
        float norm = (float)sqrt(squares);
        if (norms)
            ck_assert(relative_error(&norm, (const float *)norms->data + t, 1) <= tolerance);
        double scale = clip > 0 ? fmin(1, clip / (sqrt(squares) + 1e-6)) : 1;
        for (int i = 0; i < count; i++) {
            int64_t n = grads[i]->elements / steps;
            k->adamw(w[i], m[i], v[i], (const float *)grads[i]->data + t * n, n, scale,
                     mmi_json_number(mmi_json_at(rates, (size_t)t), -1), beta1, beta2,
                     mmi_json_number(mmi_json_get(c, "eps"), -1), mmi_json_number(mmi_json_get(c, "weight_decay"), -1),
                     1 - pow(beta1, (double)t + 1), 1 - pow(beta2, (double)t + 1));
            double error = relative_error(w[i], (const float *)expected[i]->data + t * n, (size_t)n);
            ck_assert_msg(error <= tolerance, "%s, %s: parameter %d after step %d is off by %g", name, k->name, i,
                          (int)t + 1, error);
        }
    }
    for (int i = 0; i < count; i++) {
        free(w[i]);
        free(m[i]);
        free(v[i]);
    }
    mmi_st_close(&file);
    mmi_json_free(c);
}

START_TEST(the_fixtures_agree_on_every_kernel_path)
{
    for (int32_t i = 0; i < mmi_path_count(); i++) {
        mmi_kernels k;
        mmi_kernels_init(&k, mmi_path_get(i)->cpu);
        run_fixture("adamw", &k);
        run_fixture("adamw_clipped", &k);
    }
}
END_TEST

/* --- The optimizer --- */

/* In the fixture's place, one whose embedding is stepped in more pieces than one, by three threads. */
static void take_wider(void)
{
    mm_config *config = tiny_config();
    end();
    ck_ok(mm_config_set_int(config, "vocab_size", 1100)); /* 1100 x 32 is more than two pieces of 2^14 */
    ck_ok(mm_model_create(config, 1, &model));
    context = make_context(model, 3);
    mm_config_free(config);
}

START_TEST(steps_follow_the_rule_in_double_precision)
{
    if (_i == 1)
        take_wider();
    mm_optimizer *optimizer = make_optimizer(model);
    size_t count;
    float *weights = tiny_weights(model, &count);
    double *w = malloc(count * sizeof *w), *m = calloc(count, sizeof *m), *v = calloc(count, sizeof *v);
    for (size_t i = 0; i < count; i++)
        w[i] = weights[i];
    free(weights);
    for (int t = 1; t <= 4; t++) {
        fill_gradients(context, (unsigned)t, 0.1f);
        mm_step step = MM_STEP_INIT;
        step.learning_rate = 0.01 * t;
        step.max_grad_norm = t == 3 ? 0 : 1.0;
        double squares = 0;
        for (int64_t i = 0; i < mm_model_tensor_count(model); i++) {
            mm_view g;
            ck_ok(mm_grad(context, i, &g));
            for (int64_t j = 0; j < g.shape[0] * g.shape[1]; j++)
                squares += (double)((float *)g.data)[j] * ((float *)g.data)[j];
        }
        double scale = t == 3 ? 1 : fmin(1, 1.0 / (sqrt(squares) + 1e-6));
        size_t at = 0;
        for (int64_t i = 0; i < mm_model_tensor_count(model); i++) {
            mm_view g;
            ck_ok(mm_grad(context, i, &g));
            for (int64_t j = 0; j < g.shape[0] * g.shape[1]; j++, at++) {
                double d = scale * ((float *)g.data)[j];
                w[at] *= 1 - step.learning_rate * 0.1;
                m[at] = 0.9 * m[at] + 0.1 * d;
                v[at] = 0.95 * v[at] + 0.05 * d * d;
                w[at] -= step.learning_rate * (m[at] / (1 - pow(0.9, t))) / (sqrt(v[at] / (1 - pow(0.95, t))) + 1e-8);
            }
        }
        ck_ok(mm_optimizer_step(optimizer, context, &step));
        ck_assert_double_eq_tol(step.grad_norm, sqrt(squares), 1e-9 * sqrt(squares));
        ck_assert_int_eq(mm_optimizer_steps(optimizer), t);
        float *found = tiny_weights(model, &count), *expected = malloc(count * sizeof *expected);
        for (size_t i = 0; i < count; i++)
            expected[i] = (float)w[i];
        ck_assert_double_lt(relative_error(found, expected, count), 2e-6); /* as the fixtures allow */
        free(found);
        free(expected);
    }
    free(w);
    free(m);
    free(v);
    mm_optimizer_free(optimizer);
}
END_TEST

START_TEST(any_number_of_threads_gives_the_same_bits)
{
    float *weights[2];
    size_t count = 0;
    for (int i = 0; i < 2; i++) {
        mm_model *own = tiny_model(1);
        mm_context *ctx = make_context(own, i == 0 ? 1 : 3);
        mm_optimizer *optimizer = make_optimizer(own);
        for (unsigned t = 0; t < 3; t++) {
            mm_step step = MM_STEP_INIT;
            step.learning_rate = 0.01;
            step.max_grad_norm = 1;
            fill_gradients(ctx, t, 1);
            ck_ok(mm_optimizer_step(optimizer, ctx, &step));
        }
        weights[i] = tiny_weights(own, &count);
        mm_optimizer_free(optimizer);
        mm_context_free(ctx);
        mm_model_free(own);
    }
    ck_assert_mem_eq(weights[0], weights[1], count * sizeof(float));
    free(weights[0]);
    free(weights[1]);
}
END_TEST

START_TEST(gradients_that_are_not_finite_change_nothing)
{
    static const float bad[] = { NAN, INFINITY, -INFINITY };
    mm_optimizer *optimizer = make_optimizer(model);
    size_t count;
    float *before = tiny_weights(model, &count);
    for (int i = 0; i < 3; i++) {
        mm_view view;
        fill_gradients(context, 1, 1);
        ck_ok(mm_grad(context, 3, &view));
        ((float *)view.data)[5] = bad[i];
        mm_step step = MM_STEP_INIT;
        step.learning_rate = 0.1;
        ck_status(mm_optimizer_step(optimizer, context, &step), MM_ERR_NUMERIC);
        ck_error_mentions("norm of the gradients");
        float *after = tiny_weights(model, &count);
        ck_assert_mem_eq(before, after, count * sizeof(float));
        free(after);
        for (int64_t t = 0; t < mm_model_tensor_count(model); t++) {
            ck_assert(mmi_optimizer_first(optimizer, t)[0] == 0);
            ck_assert(mmi_optimizer_second(optimizer, t)[0] == 0);
        }
        ck_assert_int_eq(mm_optimizer_steps(optimizer), 0);
    }
    free(before);
    mm_optimizer_free(optimizer);
}
END_TEST

START_TEST(bad_arguments_are_refused)
{
    mm_optimizer *optimizer = NULL;
    mm_adamw_options wrong[8];
    for (int i = 0; i < 8; i++)
        wrong[i] = (mm_adamw_options)MM_ADAMW_OPTIONS_INIT;
    wrong[0].beta1 = 1;
    wrong[1].beta1 = -0.1;
    wrong[2].beta2 = NAN;
    wrong[3].eps = 0;
    wrong[4].eps = INFINITY;
    wrong[5].weight_decay = -1;
    wrong[6].weight_decay = INFINITY;
    wrong[7].struct_size = 3;
    for (int i = 0; i < 8; i++)
        ck_status(mm_adamw_create(model, &wrong[i], &optimizer), MM_ERR_ARG);
    ck_status(mm_adamw_create(NULL, NULL, &optimizer), MM_ERR_ARG);
    ck_status(mm_adamw_create(model, NULL, NULL), MM_ERR_ARG);
    ck_assert_ptr_null(optimizer);

    ck_ok(mm_adamw_create(model, NULL, &optimizer));
    mm_step step = MM_STEP_INIT;
    step.learning_rate = -1;
    ck_status(mm_optimizer_step(optimizer, context, &step), MM_ERR_ARG);
    step.learning_rate = NAN;
    ck_status(mm_optimizer_step(optimizer, context, &step), MM_ERR_ARG);
    step.learning_rate = 1;
    step.max_grad_norm = -1;
    ck_status(mm_optimizer_step(optimizer, context, &step), MM_ERR_ARG);
    ck_status(mm_optimizer_step(NULL, context, &step), MM_ERR_ARG);
    ck_status(mm_optimizer_step(optimizer, NULL, &step), MM_ERR_ARG);
    ck_status(mm_optimizer_step(optimizer, context, NULL), MM_ERR_ARG);

    mm_model *other = tiny_model(2);
    mm_context *others = make_context(other, 1);
    step.max_grad_norm = 1;
    ck_status(mm_optimizer_step(optimizer, others, &step), MM_ERR_ARG);
    ck_error_mentions("another model");
    mm_context_free(others);
    mm_model_free(other);

    mm_context_options evaluate = MM_CONTEXT_OPTIONS_INIT;
    evaluate.max_length = 8;
    evaluate.threads = 1;
    ck_ok(mm_context_create(model, &evaluate, &others));
    ck_status(mm_optimizer_step(optimizer, others, &step), MM_ERR_STATE);
    mm_context_free(others);
    ck_assert_int_eq(mm_optimizer_steps(optimizer), 0);
    mm_optimizer_free(optimizer);
    mm_optimizer_free(NULL);
    ck_assert_int_eq(mm_optimizer_steps(NULL), 0);
}
END_TEST

START_TEST(weights_that_are_not_float32_are_refused)
{
    mm_model *half = NULL;
    mm_optimizer *optimizer = NULL;
    ck_ok(mm_model_cast(model, MM_BF16, &half));
    ck_status(mm_adamw_create(half, NULL, &optimizer), MM_ERR_STATE);
    mm_model_free(half);
}
END_TEST

START_TEST(moments_beyond_the_machine_are_not_taken_for_few)
{
    size_t state, handle;
    mmi_optimizer_bytes(1, &(mmi_moments){ .first = SIZE_MAX / 2 + 1, .second = SIZE_MAX / 2 + 1 }, &state, &handle);
    ck_assert_uint_eq(state, SIZE_MAX);
    mmi_optimizer_bytes(1, &(mmi_moments){ .first = 64, .second = 64, .elements = INT64_MAX / 4 }, &state, &handle);
    ck_assert_uint_eq(state, SIZE_MAX);
}
END_TEST

START_TEST(its_memory_is_what_the_estimate_says)
{
    size_t state, handle;
    mm_memory_usage before = MM_MEMORY_USAGE_INIT, after = MM_MEMORY_USAGE_INIT;
    const mmi_trained trained = { .layout = mmi_model_layout(model) };
    mmi_moments at = mmi_adamw_place(&trained, NULL);
    mmi_optimizer_bytes(mm_model_tensor_count(model), &at, &state, &handle);
    mm_memory_get_usage(&before);
    mm_optimizer *optimizer = make_optimizer(model);
    mm_memory_get_usage(&after);
    ck_assert_uint_eq(after.current - before.current, state + handle);
    mm_optimizer_free(optimizer);
    mm_memory_get_usage(&after);
    ck_assert_uint_eq(after.current, before.current);
}
END_TEST

static void take_steps(mm_optimizer *optimizer, mm_context *ctx, unsigned first, unsigned last)
{
    for (unsigned t = first; t < last; t++) {
        mm_step step = MM_STEP_INIT;
        step.learning_rate = 0.01;
        fill_gradients(ctx, t, 1);
        ck_ok(mm_optimizer_step(optimizer, ctx, &step));
    }
}

START_TEST(saved_moments_go_on_to_the_same_bits)
{
    char path[512];
    snprintf(path, sizeof path, "%s/optimizer.safetensors", scratch_directory());
    mm_optimizer *first = make_optimizer(model), *second = NULL;
    take_steps(first, context, 0, 3);
    ck_ok(mm_optimizer_save(first, path));
    mm_model *copy = NULL;
    ck_ok(mm_model_copy(model, &copy));
    mm_context *others = make_context(copy, 1);
    second = make_optimizer(copy);
    ck_ok(mm_optimizer_load(second, path));
    ck_assert_int_eq(mm_optimizer_steps(second), 3);
    take_steps(first, context, 3, 5);
    take_steps(second, others, 3, 5);
    size_t count;
    float *a = tiny_weights(model, &count), *b = tiny_weights(copy, &count);
    ck_assert_mem_eq(a, b, count * sizeof(float));
    free(a);
    free(b);
    mm_optimizer_free(first);
    mm_optimizer_free(second);
    mm_context_free(others);
    mm_model_free(copy);
}
END_TEST

START_TEST(moments_of_another_model_or_damaged_are_refused)
{
    char path[512];
    snprintf(path, sizeof path, "%s/optimizer.safetensors", scratch_directory());
    mm_config *config = tiny_config();
    ck_ok(mm_config_set_int(config, "intermediate_size", 64));
    mm_model *other = NULL;
    ck_ok(mm_model_create(config, 1, &other));
    mm_config_free(config);
    mm_optimizer *optimizer = make_optimizer(model), *others = make_optimizer(other);
    take_steps(optimizer, context, 0, 1);
    float m = mmi_optimizer_first(optimizer, 0)[0];
    ck_ok(mm_optimizer_save(others, path));
    ck_status(mm_optimizer_load(optimizer, path), MM_ERR_FORMAT);
    ck_error_mentions("exp_avg");
    ck_error_mentions("mlp");
    ck_ok(mm_optimizer_save(optimizer, path));
    ck_assert_int_eq(truncate(path, 5000), 0);
    ck_status(mm_optimizer_load(optimizer, path), MM_ERR_FORMAT);
    static const char five[] = "{\"a\":{\"dtype\":\"F32\",\"shape\":[1,1,1,1,1],\"data_offsets\":[0,4]}}";
    const uint64_t length = sizeof five - 1;
    FILE *f = fopen(path, "wb");
    ck_assert(f && fwrite(&length, 8, 1, f) == 1 && fputs(five, f) >= 0 && fwrite(&length, 4, 1, f) == 1 && fclose(f) == 0);
    ck_status(mm_optimizer_load(optimizer, path), MM_ERR_FORMAT);
    ck_error_mentions("5 dimensions");
    ck_status(mm_optimizer_load(optimizer, "/no/such/file"), MM_ERR_IO);
    ck_status(mm_optimizer_load(optimizer, NULL), MM_ERR_ARG);
    ck_status(mm_optimizer_load(NULL, path), MM_ERR_ARG);
    ck_status(mm_optimizer_save(NULL, path), MM_ERR_ARG);
    ck_status(mm_optimizer_save(optimizer, NULL), MM_ERR_ARG);
    ck_status(mm_optimizer_save(optimizer, "/no/such/directory/file"), MM_ERR_IO);
    ck_assert_int_eq(mm_optimizer_steps(optimizer), 1);
    ck_assert(mmi_optimizer_first(optimizer, 0)[0] == m);
    mm_optimizer_free(optimizer);
    mm_optimizer_free(others);
    mm_model_free(other);
}
END_TEST

START_TEST(moments_that_no_training_made_are_refused)
{
    static const struct {
        const char *tensor;
        float value;
        mm_status status;
    } cases[] = {
        { "exp_avg.", NAN, MM_ERR_FORMAT },     { "exp_avg.", INFINITY, MM_ERR_FORMAT }, { "exp_avg.", -1, MM_OK },
        { "exp_avg_sq.", NAN, MM_ERR_FORMAT },  { "exp_avg_sq.", -1, MM_ERR_FORMAT },
        { "exp_avg_sq.", INFINITY, MM_OK }, /* large gradients have infinite squares */
    };
    char path[512];
    snprintf(path, sizeof path, "%s/optimizer.safetensors", scratch_directory());
    mm_optimizer *optimizer = make_optimizer(model);
    take_steps(optimizer, context, 0, 1);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char name[200];
        mmi_st_file file;
        ck_ok(mm_optimizer_save(optimizer, path));
        ck_ok(mmi_st_open(path, &file));
        snprintf(name, sizeof name, "%smodel.norm.weight", cases[i].tensor);
        const mmi_st_entry *entry = mmi_st_find(&file, name);
        ck_assert_ptr_nonnull(entry);
        long from_end = (long)entry->bytes;
        for (size_t k = 0; k < file.count; k++)
            from_end += (const char *)file.entries[k].data > (const char *)entry->data ? (long)file.entries[k].bytes : 0;
        mmi_st_close(&file);
        FILE *f = fopen(path, "r+b");
        ck_assert(f && fseek(f, -from_end, SEEK_END) == 0 && fwrite(&cases[i].value, 4, 1, f) == 1 && fclose(f) == 0);
        float m = mmi_optimizer_first(optimizer, 0)[0];
        ck_status(mm_optimizer_load(optimizer, path), cases[i].status);
        if (cases[i].status != MM_OK)
            ck_error_mentions(name);
        ck_assert(mmi_optimizer_first(optimizer, 0)[0] == m);
    }
    mm_optimizer_free(optimizer);
}
END_TEST

START_TEST(a_file_without_its_count_of_steps_is_refused)
{
    char path[512];
    static const char *const counts[] = { "-1", "", "3x", "99999999999999999999", "123456789012345678901234567890" };
    snprintf(path, sizeof path, "%s/optimizer.safetensors", scratch_directory());
    mm_optimizer *optimizer = make_optimizer(model);
    ck_ok(mm_optimizer_save(optimizer, path));
    for (size_t i = 0; i <= sizeof counts / sizeof *counts; i++) {
        mmi_st_file file;
        const char *const metadata[] = { i == 0 ? "other" : "step", i == 0 ? "1" : counts[i - 1], NULL };
        char copy[520];
        snprintf(copy, sizeof copy, "%s.2", path);
        ck_ok(mmi_st_open(path, &file));
        ck_ok(mmi_st_write(copy, file.entries, file.count, metadata));
        mmi_st_close(&file);
        ck_status(mm_optimizer_load(optimizer, copy), MM_ERR_FORMAT);
        ck_error_mentions("step");
    }
    mm_optimizer_free(optimizer);
}
END_TEST

START_TEST(every_failing_allocation_is_survived)
{
    char path[512];
    snprintf(path, sizeof path, "%s/optimizer.safetensors", scratch_directory());
    mm_memory_usage before = MM_MEMORY_USAGE_INIT, after = MM_MEMORY_USAGE_INIT;
    mm_memory_get_usage(&before);
    bool done = false;
    for (uint64_t n = 1; !done; n++) {
        mm_optimizer *optimizer = NULL;
        ck_assert_uint_lt(n, 2000);
        mmi_memory_fail_at(n, false);
        mm_status status = mm_adamw_create(model, NULL, &optimizer);
        if (status == MM_OK)
            status = mm_optimizer_save(optimizer, path);
        if (status == MM_OK)
            status = mm_optimizer_load(optimizer, path);
        done = mmi_memory_fail_at(0, false) < n;
        if (status != MM_OK)
            ck_assert_int_eq(status, MM_ERR_MEMORY);
        mm_optimizer_free(optimizer);
    }
    mm_memory_get_usage(&after);
    ck_assert_uint_eq(before.current, after.current);
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("train/adamw");
    TCase *tc = tcase_create("adamw");
    tcase_add_checked_fixture(tc, start, end);
    tcase_add_test(tc, the_fixtures_agree_on_every_kernel_path);
    tcase_add_loop_test(tc, steps_follow_the_rule_in_double_precision, 0, 2);
    tcase_add_test(tc, any_number_of_threads_gives_the_same_bits);
    tcase_add_test(tc, gradients_that_are_not_finite_change_nothing);
    tcase_add_test(tc, bad_arguments_are_refused);
    tcase_add_test(tc, weights_that_are_not_float32_are_refused);
    tcase_add_test(tc, moments_beyond_the_machine_are_not_taken_for_few);
    tcase_add_test(tc, its_memory_is_what_the_estimate_says);
    tcase_add_test(tc, saved_moments_go_on_to_the_same_bits);
    tcase_add_test(tc, moments_of_another_model_or_damaged_are_refused);
    tcase_add_test(tc, moments_that_no_training_made_are_refused);
    tcase_add_test(tc, a_file_without_its_count_of_steps_is_refused);
    tcase_add_test(tc, every_failing_allocation_is_survived);
    tcase_set_timeout(tc, 60);
    suite_add_tcase(suite, tc);
    return suite;
}

int main(void)
{
    return run_suite(make_suite());
}
