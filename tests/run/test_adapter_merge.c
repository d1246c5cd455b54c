/* Adapters beside weights of every kind, in decoding, and taken into the weights. */
#include <stdio.h>
#include <string.h>

#include "run/models.h"

#define BATCH 2
#define LENGTH 12

/* Sums in another order, in float32, through at most three layers: as far apart as two kernel paths are. */
#define MERGED 2e-5

static mm_adapter *adapter_with(mm_model *model, int32_t rank, unsigned seed)
{
    mm_adapter_options o = MM_ADAPTER_OPTIONS_INIT;
    mm_adapter *adapter = NULL;
    test_rng rng = { seed };
    o.targets = "*";
    o.rank = rank;
    o.alpha = rank;
    ck_ok(mm_adapter_create(model, &o, &adapter));
    for (int64_t i = 0; i < mm_adapter_tensor_count(adapter); i++) {
        mm_view view;
        ck_ok(mm_adapter_write(adapter, i, &view));
        rng_fill(&rng, view.data, (size_t)(view.shape[0] * view.shape[1]), 0.4f);
    }
    mm_adapter_written(adapter);
    return adapter;
}

static mm_context *evaluating(mm_model *model, mm_adapter *const *adapters, const float *weights, int32_t count)
{
    mm_context *context = context_of(model, MM_EVAL, BATCH, LENGTH, MM_OUT_LOGITS | MM_OUT_LAST_LOGITS);
    ck_ok(mm_context_set_adapters(context, adapters, weights, count));
    return context;
}

static float *logits_of(mm_model *model, mm_adapter *const *adapters, const float *weights, int32_t count,
                        const mm_batch *batch)
{
    mm_context *context = evaluating(model, adapters, weights, count);
    mm_output out = MM_OUTPUT_INIT;
    ck_ok(mm_forward(context, batch, &out));
    float *logits = copy_view(&out.logits);
    mm_context_free(context);
    return logits;
}

static bool same_weights(const mm_model *a, const mm_model *b)
{
    bool same = true;
    for (int64_t i = 0; i < mm_model_tensor_count(a); i++) {
        mm_view x, y;
        ck_ok(mm_model_tensor(a, i, &x));
        ck_ok(mm_model_tensor(b, i, &y));
        same = same && same_bits(x.data, y.data, x.shape[0] * x.shape[1]);
    }
    return same;
}

START_TEST(merged_and_unmerged_give_the_same_logits_and_the_model_stays)
{
    test_rng rng = { 41 };
    mm_model *model = nth_model(_i, 5), *before = NULL, *merged = NULL, *plain = NULL;
    mm_adapter *both[2] = { adapter_with(model, 3, 3), adapter_with(model, 8, 4) };
    const float weights[2] = { 1, -0.5f };
    mm_batch batch = random_batch(model, BATCH, LENGTH, MM_EVAL, &rng);
    int64_t n = (int64_t)BATCH * LENGTH * vocab_of(model);
    ck_ok(mm_model_copy(model, &before));
    ck_ok(mm_adapter_merge(model, both, weights, 2, &merged));
    ck_ok(mm_adapter_merge(model, NULL, NULL, 0, &plain));
    float *apart = logits_of(model, both, weights, 2, &batch);
    ck_close(logits_of(merged, NULL, NULL, 0, &batch), take_doubles(apart, n), n, MERGED, tiny_models[_i].name);
    ck_assert(!same_bits(apart, logits_of(model, NULL, NULL, 0, &batch), n));
    ck_assert(same_weights(model, before));
    ck_assert(same_weights(plain, before));
    ck_assert(!same_weights(merged, before));
    mm_model *all[] = { model, before, merged, plain };
    for (int i = 0; i < 4; i++)
        mm_model_free(all[i]);
    mm_adapter_free(both[0]);
    mm_adapter_free(both[1]);
}
END_TEST

/* Of rank 1 beside one matrix, whose product is `value` everywhere. */
static mm_adapter *constant_adapter(mm_model *model, float value)
{
    mm_adapter_options o = MM_ADAPTER_OPTIONS_INIT;
    mm_adapter *adapter = NULL;
    o.targets = "layers.0.self_attn.q_proj";
    o.rank = 1;
    o.alpha = 1;
    ck_ok(mm_adapter_create(model, &o, &adapter));
    for (int64_t i = 0; i < 2; i++) {
        mm_view view;
        ck_ok(mm_adapter_write(adapter, i, &view));
        for (int64_t j = 0; j < view.shape[0] * view.shape[1]; j++)
            ((float *)view.data)[j] = i ? value : 1;
    }
    mm_adapter_written(adapter);
    return adapter;
}

/* What a weight of `dtype` becomes, as float32. */
static float merged_weight(int32_t dtype, float weight, const float deltas[2])
{
    static const char name[] = "model.layers.0.self_attn.q_proj.weight";
    mm_model *model = nth_model(0, 5), *narrow = NULL, *merged = NULL, *wide = NULL;
    mm_view view, found;
    for (int64_t i = 0; i < mm_model_tensor_count(model); i++) {
        ck_ok(mm_model_find(model, name, &found));
        ck_ok(mm_model_write(model, i, &view));
        for (int64_t j = 0; view.data == found.data && j < view.shape[0] * view.shape[1]; j++)
            ((float *)view.data)[j] = weight;
    }
    mm_model_written(model);
    ck_ok(mm_model_cast(model, dtype, &narrow));
    mm_adapter *both[2] = { constant_adapter(narrow, deltas[0]), constant_adapter(narrow, deltas[1]) };
    ck_ok(mm_adapter_merge(narrow, both, NULL, 2, &merged));
    ck_ok(mm_model_cast(merged, MM_F32, &wide));
    ck_ok(mm_model_find(wide, name, &view));
    float result = ((const float *)view.data)[0];
    mm_model *all[] = { model, narrow, merged, wide };
    for (int i = 0; i < 4; i++)
        mm_model_free(all[i]);
    mm_adapter_free(both[0]);
    mm_adapter_free(both[1]);
    return result;
}

START_TEST(several_adapters_are_summed_before_anything_is_rounded)
{
    static const struct {
        int32_t dtype;
        float weight, deltas[2], wanted;
    } cases[] = {
        { MM_F32, 1, { 1e9f, -1e9f }, 1 },
        { MM_BF16, 1, { 0.003f, 0.003f }, 1.0078125f }, /* either alone is lost */
        { MM_BF16, -1, { -0.003f, -0.003f }, -1.0078125f },
        /* a hair beyond half a step of bf16, which rounded to float32 on the way would be just half */
        { MM_BF16, 1, { 0.00390625f, 1e-9f }, 1.0078125f },
        { MM_BF16, 1, { 0.00390625f, -1e-9f }, 1 },
        { MM_BF16, 1, { 0.00390625f, 0 }, 1 },
        { MM_BF16, 1, { 3e38f, 3e38f }, INFINITY },
        { MM_BF16, 1, { 0, 0 }, 1 },
        { MM_F16, 1, { 0x1p-11f, 1e-9f }, 1.0009765625f }, /* the same about half a step of float16 */
        { MM_F16, 1, { 0x1p-11f, -1e-9f }, 1 },
        { MM_F16, 1, { 0x1p-11f, 0 }, 1 },
        { MM_F16, 0, { 0x1p-25f, 0x1p-60f }, 0x1p-24f }, /* and about half of its least number */
        { MM_F16, 0, { 0x1p-25f, 0 }, 0 },
        { MM_F16, 1, { 65504, 14.5f }, 65504 }, /* and about where it ends */
        { MM_F16, 1, { 65504, 15 }, INFINITY },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        ck_assert_float_eq(merged_weight(cases[i].dtype, cases[i].weight, cases[i].deltas), cases[i].wanted);
}
END_TEST

START_TEST(a_merged_model_keeps_its_dtype_and_blocks_are_refused)
{
    mm_model *model = nth_model(0, 5), *half = NULL, *merged = NULL, *blocks = NULL;
    mm_adapter *adapter = adapter_with(model, 3, 3);
    mm_view a;
    ck_ok(mm_model_cast(model, MM_BF16, &half));
    ck_ok(mm_adapter_merge(half, &adapter, NULL, 1, &merged));
    ck_ok(mm_model_find(merged, "model.layers.0.self_attn.q_proj.weight", &a));
    ck_assert_int_eq(a.dtype, MM_BF16);
    mm_model_free(merged);
    merged = NULL;
    mm_model *wide = model_of("{\"model_type\":\"minimind\",\"minimind_version\":2,\"hidden_size\":64,"
                              "\"num_hidden_layers\":1,\"num_attention_heads\":2,\"vocab_size\":64,"
                              "\"intermediate_size\":96}", 3);
    mm_adapter *fitting = adapter_with(wide, 2, 3);
    ck_ok(mm_model_quantize(wide, MM_Q8_0, &blocks));
    ck_status(mm_adapter_merge(blocks, &fitting, NULL, 1, &merged), MM_ERR_UNSUPPORTED);
    ck_status(mm_adapter_merge(wide, &adapter, NULL, 1, &merged), MM_ERR_ARG);
    ck_status(mm_adapter_merge(NULL, &adapter, NULL, 1, &merged), MM_ERR_ARG);
    ck_status(mm_adapter_merge(model, &adapter, NULL, 1, NULL), MM_ERR_ARG);
    ck_status(mm_adapter_merge(model, NULL, NULL, 1, &merged), MM_ERR_ARG);
    ck_assert_ptr_null(merged);
    mm_model *all[] = { model, half, blocks, wide };
    for (int i = 0; i < 4; i++)
        mm_model_free(all[i]);
    mm_adapter_free(adapter);
    mm_adapter_free(fitting);
}
END_TEST

/* The adapter of the float32 model beside its copies in bf16, and in blocks. */
START_TEST(an_adapter_runs_beside_weights_of_any_dtype)
{
    test_rng rng = { 42 };
    mm_model *model = model_of("{\"model_type\":\"minimind\",\"minimind_version\":2,\"hidden_size\":64,"
                               "\"num_hidden_layers\":2,\"num_attention_heads\":4,\"num_key_value_heads\":2,"
                               "\"vocab_size\":64,\"intermediate_size\":96}", 3);
    mm_adapter *adapter = adapter_with(model, 4, 3);
    mm_batch batch = random_batch(model, BATCH, LENGTH, MM_EVAL, &rng);
    int64_t n = (int64_t)BATCH * LENGTH * vocab_of(model);
    const int32_t dtypes[] = { MM_BF16, MM_Q8_0 };
    for (int i = 0; i < 2; i++) {
        mm_model *other = NULL, *widened = NULL;
        ck_ok(i ? mm_model_quantize(model, dtypes[i], &other) : mm_model_cast(model, dtypes[i], &other));
        ck_ok(mm_model_cast(other, MM_F32, &widened));
        float *wanted = logits_of(widened, &adapter, NULL, 1, &batch);
        /* rows in blocks meet activations that are quantized too: half a step in 127 of the largest */
        ck_close(logits_of(other, &adapter, NULL, 1, &batch), take_doubles(wanted, n), n, i ? 3e-2 : MERGED,
                 mm_dtype_name(dtypes[i]));
        mm_model_free(widened);
        mm_model_free(other);
    }
    mm_adapter_free(adapter);
    mm_model_free(model);
}
END_TEST

START_TEST(decoding_token_by_token_gives_the_logits_of_the_whole)
{
    test_rng rng = { 43 };
    mm_model *model = nth_model(_i, 5);
    mm_adapter *adapter = adapter_with(model, 4, 3);
    mm_batch whole = random_batch(model, BATCH, LENGTH, MM_EVAL, &rng), one = whole;
    int64_t V = vocab_of(model);
    float *wanted = logits_of(model, &adapter, NULL, 1, &whole);
    mm_context *context = evaluating(model, &adapter, NULL, 1);
    mm_cache *cache = NULL;
    ck_ok(mm_cache_create(model, BATCH, LENGTH, MM_F32, &cache));
    one.cache = cache;
    one.targets = NULL;
    one.length = 1;
    for (int32_t t = 0; t < LENGTH; t++) {
        int32_t ids[BATCH];
        mm_output out = MM_OUTPUT_INIT;
        uint64_t counted = allocations();
        for (int32_t b = 0; b < BATCH; b++)
            ids[b] = whole.ids[b * LENGTH + t];
        one.ids = ids;
        ck_ok(mm_forward(context, &one, &out));
        ck_assert_uint_eq(allocations(), counted);
        for (int32_t b = 0; b < BATCH; b++)
            ck_close((float *)out.last_logits.data + b * V, take_doubles(wanted + (b * LENGTH + t) * V, V), V, MERGED,
                     tiny_models[_i].name);
    }
    mm_cache_free(cache);
    mm_context_free(context);
    mm_adapter_free(adapter);
    mm_model_free(model);
}
END_TEST

START_TEST(what_is_generated_with_it_is_what_the_merged_model_generates)
{
    test_rng rng = { 44 };
    mm_model *model = nth_model(_i, 5), *merged = NULL;
    mm_adapter *adapter = adapter_with(model, 4, 3);
    int32_t length = 5, *prompt = take_ints(&rng, length, 0, vocab_of(model) - 1);
    ck_ok(mm_adapter_merge(model, &adapter, NULL, 1, &merged));
    mm_context *contexts[2] = { evaluating(model, &adapter, NULL, 1), evaluating(merged, NULL, NULL, 0) };
    int32_t ids[2][LENGTH];
    static const int32_t nothing[1]; /* stops */
    for (int i = 0; i < 2; i++) {
        mm_sampling sampling = MM_SAMPLING_INIT;
        mm_generate_options o = MM_GENERATE_OPTIONS_INIT;
        mm_generate_result result = MM_GENERATE_RESULT_INIT;
        sampling.temperature = 0;
        o.prompts = &(const int32_t *){ prompt };
        o.prompt_lengths = &length;
        o.sampling = &sampling;
        o.max_new_tokens = LENGTH;
        o.stop_ids = nothing;
        ck_ok(mm_generate(contexts[i], &o, &result));
        ck_assert_int_eq(result.lengths[0], LENGTH);
        memcpy(ids[i], result.ids, sizeof ids[i]);
        mm_context_free(contexts[i]);
    }
    ck_assert_int_eq(memcmp(ids[0], ids[1], sizeof ids[0]), 0);
    mm_adapter_free(adapter);
    mm_model_free(merged);
    mm_model_free(model);
}
END_TEST

START_TEST(an_adapter_learns_beside_mapped_weights)
{
    test_rng rng = { 45 };
    char directory[512];
    snprintf(directory, sizeof directory, "%s/model", scratch_directory());
    mm_model *model = nth_model(0, 5), *mapped = NULL;
    mm_load_options load = MM_LOAD_OPTIONS_INIT;
    load.map = 1;
    ck_ok(mm_model_save(model, directory));
    ck_ok(mm_model_load(directory, &load, &mapped));
    mm_batch batch = random_batch(model, BATCH, LENGTH, MM_TRAIN, &rng);
    double losses[2];
    mm_model *models[2] = { model, mapped };
    for (int i = 0; i < 2; i++) {
        mm_adapter *adapter = adapter_with(models[i], 4, 3);
        mm_context_options o = MM_CONTEXT_OPTIONS_INIT;
        mm_context *context = NULL;
        mm_optimizer *optimizer = NULL;
        mm_step step = MM_STEP_INIT;
        o.mode = MM_TRAIN;
        o.max_batch = BATCH;
        o.max_length = LENGTH;
        o.adapter = adapter;
        step.learning_rate = 0.01;
        ck_ok(mm_context_create(models[i], &o, &context));
        ck_ok(mm_adamw_create_adapter(adapter, NULL, &optimizer));
        for (int s = 0; s < 3; s++) {
            ck_ok(mm_zero_grad(context));
            losses[i] = forward_backward(context, &batch, NULL);
            ck_ok(mm_optimizer_step(optimizer, context, &step));
        }
        mm_optimizer_free(optimizer);
        mm_context_free(context);
        mm_adapter_free(adapter);
    }
    ck_assert_double_eq_tol(losses[0], losses[1], 1e-5); /* in the file q, k and v lie in another order */
    mm_model_free(mapped);
    mm_model_free(model);
}
END_TEST

int main(void)
{
    TCase *tests;
    Suite *suite = plain_suite("run/adapter_merge", &tests);
    tcase_add_loop_test(tests, merged_and_unmerged_give_the_same_logits_and_the_model_stays, 0, all_count);
    tcase_add_test(tests, several_adapters_are_summed_before_anything_is_rounded);
    tcase_add_test(tests, a_merged_model_keeps_its_dtype_and_blocks_are_refused);
    tcase_add_test(tests, an_adapter_runs_beside_weights_of_any_dtype);
    tcase_add_loop_test(tests, decoding_token_by_token_gives_the_logits_of_the_whole, 0, all_count);
    tcase_add_loop_test(tests, what_is_generated_with_it_is_what_the_merged_model_generates, 0, all_count);
    tcase_add_test(tests, an_adapter_learns_beside_mapped_weights);
    return run_suite(suite);
}
