/* AdamW over an adapter's tensors, over some of a model's, and with decay for matrices alone. */
#include <stdio.h>
#include <string.h>

#include "run/models.h"

#define LENGTH 9

static mm_context *context_for(mm_model *model, mm_adapter *adapter)
{
    mm_context_options o = MM_CONTEXT_OPTIONS_INIT;
    mm_context *context = NULL;
    o.mode = MM_TRAIN;
    o.max_batch = 2;
    o.max_length = LENGTH;
    o.threads = 1;
    o.adapter = adapter;
    ck_ok(mm_context_create(model, &o, &context));
    return context;
}

static mm_adapter *new_adapter(mm_model *model, uint64_t seed)
{
    mm_adapter_options o = MM_ADAPTER_OPTIONS_INIT;
    mm_adapter *adapter = NULL;
    o.rank = 3;
    o.seed = seed;
    ck_ok(mm_adapter_create(model, &o, &adapter));
    return adapter;
}

static void train(mm_optimizer *optimizer, mm_context *context, const mm_batch *batch, int steps)
{
    mm_step step = MM_STEP_INIT;
    step.learning_rate = 0.02;
    for (int i = 0; i < steps; i++) {
        ck_ok(mm_zero_grad(context));
        forward_backward(context, batch, NULL);
        ck_ok(mm_optimizer_step(optimizer, context, &step));
    }
}

static bool same_adapters(const mm_adapter *a, const mm_adapter *b)
{
    bool same = true;
    for (int64_t i = 0; i < mm_adapter_tensor_count(a); i++) {
        mm_view x, y;
        ck_ok(mm_adapter_tensor(a, i, &x));
        ck_ok(mm_adapter_tensor(b, i, &y));
        same = same && same_bits(x.data, y.data, x.shape[0] * x.shape[1]);
    }
    return same;
}

START_TEST(an_adapter_learns_and_its_model_stays)
{
    test_rng rng = { 3 };
    mm_model *model = nth_model(_i, 5), *before = NULL;
    mm_adapter *adapter = new_adapter(model, 1);
    mm_context *context = context_for(model, adapter);
    mm_batch batch = random_batch(model, 2, LENGTH, MM_TRAIN, &rng);
    mm_optimizer *optimizer = NULL;
    ck_ok(mm_model_copy(model, &before));
    ck_ok(mm_adamw_create_adapter(adapter, NULL, &optimizer));
    double first = forward_backward(context, &batch, NULL);
    train(optimizer, context, &batch, 25);
    double last = forward_backward(context, &batch, NULL);
    ck_assert_msg(last < 0.8 * first, "%s: from %g to %g", tiny_models[_i].name, first, last);
    for (int64_t i = 0; i < mm_model_tensor_count(model); i++) {
        mm_view a, b;
        ck_ok(mm_model_tensor(model, i, &a));
        ck_ok(mm_model_tensor(before, i, &b));
        ck_assert(same_bits(a.data, b.data, a.shape[0] * a.shape[1]));
    }
    mm_optimizer_free(optimizer);
    mm_context_free(context);
    mm_adapter_free(adapter);
    mm_model_free(model);
    mm_model_free(before);
}
END_TEST

START_TEST(saved_moments_of_an_adapter_go_on_to_the_same_bits)
{
    test_rng rng = { 4 };
    char path[512];
    snprintf(path, sizeof path, "%s/optimizer.safetensors", scratch_directory());
    mm_model *model = nth_model(0, 5);
    mm_adapter *straight = new_adapter(model, 1), *resumed = new_adapter(model, 1);
    mm_context *one = context_for(model, straight), *two = context_for(model, resumed);
    mm_batch batch = random_batch(model, 2, LENGTH, MM_TRAIN, &rng);
    mm_optimizer *a = NULL, *b = NULL, *c = NULL;
    ck_ok(mm_adamw_create_adapter(straight, NULL, &a));
    ck_ok(mm_adamw_create_adapter(resumed, NULL, &b));
    ck_ok(mm_adamw_create_adapter(resumed, NULL, &c));
    train(a, one, &batch, 5);
    train(b, two, &batch, 3);
    ck_ok(mm_optimizer_save(b, path));
    ck_ok(mm_optimizer_load(c, path));
    ck_assert_int_eq(mm_optimizer_steps(c), 3);
    train(c, two, &batch, 2);
    ck_assert(same_adapters(straight, resumed));
    mm_optimizer *whole = NULL;
    ck_ok(mm_adamw_create(model, NULL, &whole));
    ck_status(mm_optimizer_load(whole, path), MM_ERR_FORMAT);
    mm_optimizer *all[] = { a, b, c, whole };
    for (size_t i = 0; i < 4; i++)
        mm_optimizer_free(all[i]);
    mm_context_free(one);
    mm_context_free(two);
    mm_adapter_free(straight);
    mm_adapter_free(resumed);
    mm_model_free(model);
}
END_TEST

START_TEST(a_step_with_the_wrong_context_is_refused)
{
    mm_model *model = nth_model(0, 5);
    mm_adapter *adapter = new_adapter(model, 1), *other = new_adapter(model, 2);
    mm_context *of_model = context_for(model, NULL), *of_other = context_for(model, other);
    mm_context *evaluating = context_of(model, MM_EVAL, 1, LENGTH, 0);
    mm_optimizer *mine = NULL, *whole = NULL, *none = NULL;
    mm_adamw_options o = MM_ADAMW_OPTIONS_INIT;
    mm_step step = MM_STEP_INIT;
    ck_ok(mm_adamw_create_adapter(adapter, NULL, &mine));
    ck_ok(mm_adamw_create(model, NULL, &whole));
    ck_status(mm_optimizer_step(mine, of_model, &step), MM_ERR_ARG);
    ck_error_mentions("adapter");
    ck_status(mm_optimizer_step(mine, of_other, &step), MM_ERR_ARG);
    ck_status(mm_optimizer_step(whole, of_other, &step), MM_ERR_ARG);
    ck_status(mm_optimizer_step(mine, evaluating, &step), MM_ERR_STATE);
    ck_assert_int_eq(mm_optimizer_steps(mine) + mm_optimizer_steps(whole), 0);
    ck_status(mm_adamw_create_adapter(NULL, NULL, &none), MM_ERR_ARG);
    ck_status(mm_adamw_create_adapter(adapter, NULL, NULL), MM_ERR_ARG);
    o.trainable = "q_proj";
    ck_status(mm_adamw_create_adapter(adapter, &o, &none), MM_ERR_ARG);
    ck_status(mm_grad_add(of_model, of_other, 1), MM_ERR_ARG);
    mm_optimizer_free(mine);
    mm_optimizer_free(whole);
    mm_context_free(of_model);
    mm_context_free(of_other);
    mm_context_free(evaluating);
    mm_adapter_free(adapter);
    mm_adapter_free(other);
    mm_model_free(model);
}
END_TEST

/* Without a gradient a step is decay alone. */
START_TEST(decay_for_matrices_spares_vectors_and_the_embedding)
{
    mm_model *model = nth_model(_i ? 2 : 0, 5), *before = NULL;
    mm_context *context = context_for(model, NULL);
    mm_adamw_options o = MM_ADAMW_OPTIONS_INIT;
    mm_optimizer *optimizer = NULL;
    mm_step step = MM_STEP_INIT;
    ck_ok(mm_model_copy(model, &before));
    o.weight_decay = 0.5;
    o.decay = MM_DECAY_MATRICES;
    ck_ok(mm_adamw_create(model, &o, &optimizer));
    step.learning_rate = 0.1;
    ck_ok(mm_optimizer_step(optimizer, context, &step));
    for (int64_t i = 0; i < mm_model_tensor_count(model); i++) {
        mm_view a, b;
        mm_tensor_info info = MM_TENSOR_INFO_INIT;
        ck_ok(mm_layout_get(mm_model_config(model), i, &info));
        ck_ok(mm_model_tensor(model, i, &a));
        ck_ok(mm_model_tensor(before, i, &b));
        float factor = info.rank == 2 && info.module != MM_MODULE_EMBEDDING ? 0.95f : 1;
        for (int64_t j = 0; j < info.elements; j++)
            ck_assert_float_eq_tol(((float *)a.data)[j], factor * ((float *)b.data)[j], 1e-7);
    }
    o.decay = 2;
    ck_status(mm_adamw_create(model, &o, &optimizer), MM_ERR_ARG);
    ck_error_mentions("decay");
    mm_optimizer_free(optimizer);
    mm_context_free(context);
    mm_model_free(model);
    mm_model_free(before);
}
END_TEST

int main(void)
{
    TCase *tests;
    Suite *suite = plain_suite("train/adapter", &tests);
    tcase_add_loop_test(tests, an_adapter_learns_and_its_model_stays, 0, all_count);
    tcase_add_test(tests, saved_moments_of_an_adapter_go_on_to_the_same_bits);
    tcase_add_test(tests, a_step_with_the_wrong_context_is_refused);
    tcase_add_loop_test(tests, decay_for_matrices_spares_vectors_and_the_embedding, 0, 2);
    return run_suite(suite);
}
