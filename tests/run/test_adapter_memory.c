/* What adapters and frozen tensors cost: to the byte what was estimated, and nothing for what is not trained. */
#include <stdio.h>
#include <string.h>

#include "model/configs.h"
#include "run/models.h"

#define LENGTH 9

static mm_context *train(mm_model *model, const char *trainable)
{
    mm_context_options o = MM_CONTEXT_OPTIONS_INIT;
    mm_context *context = NULL;
    o.mode = MM_TRAIN;
    o.max_batch = 2;
    o.max_length = LENGTH;
    o.threads = 1;
    o.trainable = trainable;
    ck_ok(mm_context_create(model, &o, &context));
    return context;
}

/* --- Estimates --- */

static const char *const targets[] = { NULL, "*", "down_proj", "q_proj,layers.0.*" };

static mm_workload random_workload(test_rng *rng, mm_adapter_options *adapter)
{
    mm_workload w = MM_WORKLOAD_INIT;
    w.mode = rng_between(rng, MM_EVAL, MM_TRAIN);
    w.max_batch = rng_between(rng, 1, 3);
    w.max_length = rng_between(rng, 1, 30);
    w.threads = rng_between(rng, 1, 2);
    w.optimizer = w.mode == MM_TRAIN && rng_between(rng, 0, 1);
    w.kernels = mm_kernels_name(rng_between(rng, 0, mm_kernels_count() - 1));
    adapter->targets = targets[rng_between(rng, 0, 3)];
    adapter->rank = rng_between(rng, 1, 9);
    adapter->dropout = rng_between(rng, 0, 1) ? 0.1 : 0;
    if (rng_between(rng, 0, 3) > 0)
        w.adapter = adapter;
    else if (w.mode == MM_TRAIN)
        w.trainable = rng_between(rng, 0, 1) ? "q_proj,o_proj" : "model.norm,layers.0.*";
    return w;
}

START_TEST(estimates_with_adapters_and_frozen_tensors_are_exact)
{
    test_rng rng = { 4100 + (unsigned)_i };
    for (int round = 0; round < 60; round++) {
        mm_config *config = random_config(&rng);
        mm_adapter_options options = MM_ADAPTER_OPTIONS_INIT;
        mm_workload w = random_workload(&rng, &options);
        mm_memory m = MM_MEMORY_INIT;
        mm_adamw_options adamw = MM_ADAMW_OPTIONS_INIT;
        mm_model *model = NULL;
        mm_adapter *adapter = NULL;
        mm_optimizer *optimizer = NULL;
        uint64_t counted = allocations();
        ck_ok(mm_estimate_memory(config, &w, &m));
        ck_assert_uint_eq(allocations(), counted);
        uint64_t start = bytes_held();
        ck_ok(mm_model_create(config, 1, &model));
        if (w.adapter) {
            ck_ok(mm_adapter_create(model, w.adapter, &adapter));
            ck_assert_int_le(4 * mm_adapter_count_params(adapter), m.adapter);
        }
        mm_context *context = context_for_workload(model, &w, adapter);
        adamw.trainable = w.trainable;
        if (w.optimizer && adapter)
            ck_ok(mm_adamw_create_adapter(adapter, &adamw, &optimizer));
        else if (w.optimizer)
            ck_ok(mm_adamw_create(model, &adamw, &optimizer));
        ck_assert_msg(bytes_held() - start == (uint64_t)m.total,
                      "round %d of run %d: %llu bytes are taken, the estimate says %lld", round, _i,
                      (unsigned long long)(bytes_held() - start), (long long)m.total);
        mm_optimizer_free(optimizer);
        mm_context_free(context);
        mm_adapter_free(adapter);
        mm_model_free(model);
        ck_assert_uint_eq(bytes_held(), start);
        mm_config_free(config);
    }
}
END_TEST

START_TEST(gradients_and_moments_of_an_adapter_take_less_than_a_fiftieth)
{
    mm_config *config = NULL;
    mm_adapter_options adapter = MM_ADAPTER_OPTIONS_INIT;
    mm_memory full = MM_MEMORY_INIT, lora = MM_MEMORY_INIT;
    mm_workload w = MM_WORKLOAD_INIT;
    ck_ok(mm_config_create("minimind2-small", &config));
    w.mode = MM_TRAIN;
    w.optimizer = 1;
    ck_ok(mm_estimate_memory(config, &w, &full));
    adapter.targets = "minimind";
    w.adapter = &adapter;
    ck_ok(mm_estimate_memory(config, &w, &lora));
    ck_assert_int_eq(full.weights, lora.weights);
    ck_assert_int_eq(lora.adapter, lora.gradients);
    ck_assert_int_eq(lora.optimizer, 2 * lora.gradients);
    ck_assert_int_lt(50 * lora.gradients, full.gradients);
    mm_config_free(config);
}
END_TEST

START_TEST(arithmetic_counts_the_adapter_and_frozen_matrices_once_on_the_way_back)
{
    mm_config *config = nth_config(_i);
    mm_workload w = MM_WORKLOAD_INIT;
    mm_flops full = MM_FLOPS_INIT, frozen = MM_FLOPS_INIT, lora = MM_FLOPS_INIT;
    mm_adapter_options options = MM_ADAPTER_OPTIONS_INIT;
    mm_model *model = nth_model(_i, 1);
    mm_adapter *adapter = NULL;
    w.mode = MM_TRAIN;
    w.max_length = 16;
    ck_ok(mm_estimate_flops(config, &w, &full));
    w.trainable = "model.norm";
    ck_ok(mm_estimate_flops(config, &w, &frozen));
    ck_assert(frozen.forward == full.forward);
    double matrices = full.forward - full.attention / 3;
    ck_assert(frozen.backward == full.backward - matrices);
    w.trainable = NULL;
    w.adapter = &options;
    ck_ok(mm_estimate_flops(config, &w, &lora));
    ck_ok(mm_adapter_create(model, &options, &adapter));
    double numbers = (double)mm_adapter_count_params(adapter);
    ck_assert(lora.forward == full.forward + 2 * numbers);
    ck_assert(lora.backward == frozen.backward + 4 * numbers);
    /* of a program that knew no more of these options than their size */
    size_t *first = take(1, sizeof *first);
    *first = sizeof *first;
    w.adapter = (const mm_adapter_options *)(const void *)first;
    mm_flops older = MM_FLOPS_INIT;
    ck_ok(mm_estimate_flops(config, &w, &older));
    ck_assert(older.total == lora.total);
    mm_adapter_free(adapter);
    mm_model_free(model);
    mm_config_free(config);
}
END_TEST

/* --- Frozen tensors --- */

START_TEST(gradients_of_some_tensors_are_those_of_all)
{
    static const char *const choices[] = { "model.norm", "layers.1.*,embed_tokens", "k_proj", "embed_tokens",
                                           "model.layers.*.mlp.*,model.layers.0.input_layernorm" };
    const char *choice = choices[_i % 5];
    test_rng rng = { 50 + (unsigned)_i };
    mm_model *model = nth_model(_i / 5 == 0 ? 0 : _i / 5 == 1 ? 8 : 10, 5); /* dense and with experts */
    mm_context *all = train(model, NULL), *some = train(model, choice);
    mm_batch batch = random_batch(model, 2, LENGTH, MM_TRAIN, &rng);
    ck_assert(forward_backward(all, &batch, NULL) == forward_backward(some, &batch, NULL));
    int64_t trained = 0;
    for (int64_t i = 0; i < mm_model_tensor_count(model); i++) {
        mm_view wanted, got;
        mm_tensor_info info = MM_TENSOR_INFO_INIT;
        ck_ok(mm_layout_get(mm_model_config(model), i, &info));
        ck_ok(mm_grad(all, i, &wanted));
        if (mm_grad(some, i, &got) != MM_OK) {
            ck_status(mm_grad(some, i, &got), MM_ERR_STATE);
            ck_error_mentions("frozen");
            continue;
        }
        trained++;
        ck_close(got.data, take_doubles(wanted.data, info.elements), info.elements, 1e-5, info.name);
    }
    ck_assert_int_gt(trained, 0);
    ck_assert_int_lt(trained, mm_model_tensor_count(model));
    mm_context_free(all);
    mm_context_free(some);
    mm_model_free(model);
}
END_TEST

START_TEST(frozen_tensors_do_not_move_and_have_no_moments)
{
    test_rng rng = { 61 };
    mm_model *model = nth_model(0, 5), *before = NULL;
    mm_context *context = train(model, "q_proj,model.norm");
    mm_adamw_options o = MM_ADAMW_OPTIONS_INIT;
    mm_optimizer *optimizer = NULL, *narrow = NULL;
    mm_step step = MM_STEP_INIT;
    mm_batch batch = random_batch(model, 2, LENGTH, MM_TRAIN, &rng);
    ck_ok(mm_model_copy(model, &before));
    uint64_t start = bytes_held();
    ck_ok(mm_adamw_create(model, NULL, &optimizer));
    uint64_t whole = bytes_held() - start;
    mm_optimizer_free(optimizer);
    o.trainable = "q_proj,model.norm";
    ck_ok(mm_adamw_create(model, &o, &optimizer));
    ck_assert_uint_lt(4 * (bytes_held() - start), whole);
    o.trainable = "q_proj";
    ck_ok(mm_adamw_create(model, &o, &narrow));
    step.learning_rate = 0.01;
    forward_backward(context, &batch, NULL);
    ck_status(mm_optimizer_step(narrow, context, &step), MM_ERR_ARG);
    ck_error_mentions("model.norm.weight");
    ck_ok(mm_optimizer_step(optimizer, context, &step));
    for (int64_t i = 0; i < mm_model_tensor_count(model); i++) {
        mm_view a, b;
        mm_tensor_info info = MM_TENSOR_INFO_INIT;
        ck_ok(mm_layout_get(mm_model_config(model), i, &info));
        ck_ok(mm_model_tensor(model, i, &a));
        ck_ok(mm_model_tensor(before, i, &b));
        bool moves = strstr(info.name, "q_proj") || strcmp(info.name, "model.norm.weight") == 0;
        ck_assert_msg((memcmp(a.data, b.data, (size_t)info.elements * sizeof(float)) != 0) == moves, "%s", info.name);
    }
    mm_optimizer_free(optimizer);
    mm_optimizer_free(narrow);
    mm_context_free(context);
    mm_model_free(model);
    mm_model_free(before);
}
END_TEST

START_TEST(patterns_that_mean_nothing_are_refused)
{
    mm_model *model = nth_model(0, 5);
    mm_context_options o = MM_CONTEXT_OPTIONS_INIT;
    mm_adamw_options a = MM_ADAMW_OPTIONS_INIT;
    mm_context *context = NULL;
    mm_optimizer *optimizer = NULL;
    static const char *const wrong[] = { "", "q_proj,", "qproj", "q_proj,nothing", "layers.9.*", "proj" };
    o.mode = MM_TRAIN;
    o.max_length = LENGTH;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        o.trainable = a.trainable = wrong[i];
        ck_status(mm_context_create(model, &o, &context), MM_ERR_ARG);
        ck_error_mentions("trainable");
        ck_status(mm_adamw_create(model, &a, &optimizer), MM_ERR_ARG);
    }
    o.mode = MM_EVAL;
    o.trainable = "q_proj";
    ck_status(mm_context_create(model, &o, &context), MM_ERR_ARG);
    mm_model_free(model);
}
END_TEST

int main(void)
{
    TCase *tests;
    Suite *suite = plain_suite("run/adapter_memory", &tests);
    tcase_add_loop_test(tests, estimates_with_adapters_and_frozen_tensors_are_exact, 0, 2);
    tcase_add_test(tests, gradients_and_moments_of_an_adapter_take_less_than_a_fiftieth);
    tcase_add_loop_test(tests, arithmetic_counts_the_adapter_and_frozen_matrices_once_on_the_way_back, 0, tiny_count);
    tcase_add_loop_test(tests, gradients_of_some_tensors_are_those_of_all, 0, 15);
    tcase_add_test(tests, frozen_tensors_do_not_move_and_have_no_moments);
    tcase_add_test(tests, patterns_that_mean_nothing_are_refused);
    return run_suite(suite);
}
