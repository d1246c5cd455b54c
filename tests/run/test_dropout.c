/* Dropout in whole networks: in training only, by the batch's seed alone, and with the gradients of just that mask. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "run/models.h"

/* Families that drop in different places: index of a tiny model, the key, the rate. */
static const struct {
    int index;
    const char *key;
    double rate;
} cases[] = { { 0, "dropout", 0.2 }, { 1, "dropout", 0.25 }, { 2, "attention_dropout", 0.4 }, { 4, "dropout", 0.15 },
              { 3, "attention_dropout", 0.3 }, { 0, "attention_dropout", 0.5 } };
enum { CASES = sizeof cases / sizeof *cases };

/* The tiny model's weights under a config with dropout. */
static mm_model *model_with_dropout(int number, unsigned seed)
{
    mm_model *model = NULL, *plain = nth_model(cases[number].index, seed);
    mm_config *config = nth_config(cases[number].index);
    ck_ok(mm_config_set_float(config, cases[number].key, cases[number].rate));
    ck_ok(mm_model_create(config, 0, &model));
    for (int64_t i = 0; i < mm_model_tensor_count(model); i++) {
        mm_view from, to;
        ck_ok(mm_model_tensor(plain, i, &from));
        ck_ok(mm_model_write(model, i, &to));
        memcpy(to.data, from.data, (size_t)(to.shape[0] * to.shape[1]) * sizeof(float));
    }
    mm_model_written(model);
    mm_config_free(config);
    mm_model_free(plain);
    return model;
}

static double loss_of(mm_context *context, const mm_batch *batch)
{
    mm_output out = MM_OUTPUT_INIT;
    ck_ok(mm_forward(context, batch, &out));
    return out.loss_sum;
}

START_TEST(the_seed_of_the_batch_alone_says_what_is_dropped)
{
    test_rng rng = { 1000 };
    mm_model *model = model_with_dropout(_i, 3), *plain = nth_model(cases[_i].index, 3);
    mm_batch batch = random_batch(model, 2, 17, MM_TRAIN, &rng), other = random_batch(model, 2, 17, MM_TRAIN, &rng);
    int64_t n;
    batch.seed = 8;
    mm_context *a = context_of(model, MM_TRAIN, 2, 17, MM_OUT_LOSS);
    mm_context *b = context_on(model, MM_TRAIN, 3, 20, MM_OUT_LOSS, 3, NULL);
    mm_context *c = context_of(plain, MM_TRAIN, 2, 17, MM_OUT_LOSS);
    forward_backward(b, &other, NULL);
    ck_ok(mm_zero_grad(b));
    double first = forward_backward(a, &batch, NULL);
    ck_assert(forward_backward(b, &batch, NULL) == first);
    float *gradients = all_gradients(a, &n);
    ck_assert(same_bits(all_gradients(b, &n), gradients, n));
    batch.seed = 9;
    ck_assert(forward_backward(a, &batch, NULL) != first);
    batch.mode = MM_EVAL; /* nothing is dropped in evaluation */
    ck_assert(loss_of(a, &batch) == loss_of(c, &batch));
    mm_context_free(a);
    mm_context_free(b);
    mm_context_free(c);
    mm_model_free(model);
    mm_model_free(plain);
}
END_TEST

/* Move a tensor along a direction of ± 1/sqrt(n); the gradient's share in it. */
static double move(mm_model *model, const float *before, const float *gradient, int64_t index, int64_t n, double step)
{
    mm_view view;
    double dot = 0;
    test_rng rng = { 77 };
    ck_ok(mm_model_write(model, index, &view));
    for (int64_t i = 0; i < n; i++) {
        double u = (rng_next(&rng) & 1 ? 1 : -1) / sqrt((double)n);
        ((float *)view.data)[i] = before[i] + (float)(step * u);
        dot += u * gradient[i];
    }
    mm_model_written(model);
    return dot;
}

START_TEST(gradients_are_those_of_the_loss_with_just_that_mask)
{
    test_rng rng = { 1001 };
    mm_model *model = model_with_dropout(_i, 3);
    mm_batch batch = random_batch(model, 2, 17, MM_TRAIN, &rng);
    mm_context *context = context_of(model, MM_TRAIN, 2, 17, MM_OUT_LOSS);
    mm_backward_options options = MM_BACKWARD_OPTIONS_INIT;
    options.normalizer = 1;
    batch.seed = 12;
    forward_backward(context, &batch, &options);
    double norm = 0;
    ck_ok(mm_grad_norm(context, &norm));
    for (int64_t i = 0; i < mm_model_tensor_count(model); i++) {
        mm_view view, grad;
        mm_tensor_info info = MM_TENSOR_INFO_INIT;
        ck_ok(mm_layout_get(mm_model_config(model), i, &info));
        ck_ok(mm_model_tensor(model, i, &view));
        ck_ok(mm_grad(context, i, &grad));
        float *before = copy_view(&view), *gradient = copy_view(&grad);
        double step = 0.02, dot = move(model, before, gradient, i, info.elements, step);
        double difference = loss_of(context, &batch);
        move(model, before, gradient, i, info.elements, -step);
        difference -= loss_of(context, &batch);
        move(model, before, gradient, i, info.elements, 0);
        ck_assert_msg(fabs(difference / (2 * step) - dot) <= 2e-2 * fabs(dot) + 2e-4 * norm,
                      "%s, %s: along a direction the gradient is %g, differences say %g", tiny_models[cases[_i].index].name,
                      info.name, dot, difference / (2 * step));
    }
    mm_context_free(context);
    mm_model_free(model);
}
END_TEST

START_TEST(the_mean_over_many_masks_is_near_the_loss_without)
{
    test_rng rng = { 1002 };
    mm_model *model = model_with_dropout(_i, 3);
    mm_batch batch = random_batch(model, 2, 17, MM_TRAIN, &rng);
    mm_context *context = context_of(model, MM_TRAIN, 2, 17, MM_OUT_LOSS);
    double mean = 0;
    for (batch.seed = 0; batch.seed < 200; batch.seed++)
        mean += loss_of(context, &batch) / 200;
    batch.mode = MM_EVAL;
    double without = loss_of(context, &batch);
    ck_assert_msg(fabs(mean - without) < 0.25 * without, "%g on average, %g without", mean, without);
    mm_context_free(context);
    mm_model_free(model);
}
END_TEST

int main(void)
{
    TCase *tests;
    Suite *suite = plain_suite("run/dropout", &tests);
    tcase_add_loop_test(tests, the_seed_of_the_batch_alone_says_what_is_dropped, 0, CASES);
    tcase_add_loop_test(tests, gradients_are_those_of_the_loss_with_just_that_mask, 0, CASES);
    tcase_add_loop_test(tests, the_mean_over_many_masks_is_near_the_loss_without, 0, CASES);
    return run_suite(suite);
}
