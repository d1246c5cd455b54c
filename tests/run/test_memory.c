/* What the estimates say is what is taken, to the byte. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "run/models.h"

#define ALL (MM_OUT_LOSS | MM_OUT_LOGPROBS | MM_OUT_LAST_LOGITS | MM_OUT_LOGITS | MM_OUT_HIDDEN)

static mm_workload workload(int32_t mode, int32_t batch, int32_t length)
{
    mm_workload w = MM_WORKLOAD_INIT;
    w.mode = mode;
    w.max_batch = batch;
    w.max_length = length;
    w.threads = 1;
    return w;
}

static mm_memory estimate(const mm_config *config, const mm_workload *w)
{
    mm_memory m = MM_MEMORY_INIT;
    ck_ok(mm_estimate_memory(config, w, &m));
    return m;
}

/* Make all that the workload names, and compare every part with the estimate. */
static void ck_exact(const mm_config *config, const mm_workload *w, const char *what)
{
    uint64_t counted = allocations();
    mm_memory m = estimate(config, w);
    ck_assert_uint_eq(allocations(), counted);
    mm_model *model = NULL;
    mm_optimizer *optimizer = NULL;
    mm_cache *cache = NULL;
    uint64_t start = bytes_held();
    ck_ok(mm_model_create(config, 1, &model));
    mm_context *context = context_for_workload(model, w, NULL);
    if (w->optimizer)
        ck_ok(mm_adamw_create(model, NULL, &optimizer));
    if (w->cache_sequences)
        ck_ok(mm_cache_create(model, w->cache_sequences, w->cache_capacity, w->cache_dtype, &cache));
    ck_assert_msg(bytes_held() - start == (uint64_t)m.total, "%s: %llu bytes are taken, the estimate says %lld", what,
                  (unsigned long long)(bytes_held() - start), (long long)m.total);
    ck_assert_int_eq(m.total, m.weights + m.gradients + m.optimizer + m.activations + m.cache + m.handles);
    mm_cache_free(cache);
    mm_optimizer_free(optimizer);
    mm_context_free(context);
    mm_model_free(model);
    ck_assert_uint_eq(bytes_held(), start);
}

START_TEST(the_estimate_is_what_is_taken_for_every_kind_of_work)
{
    mm_config *config = nth_config(_i);
    char what[256];
    for (int32_t mode = MM_EVAL; mode <= MM_TRAIN; mode++)
        for (int32_t outputs = 0; outputs <= ALL; outputs++) {
            mm_workload w = workload(mode, 1 + outputs % 3, 1 + outputs * 7 % 40);
            snprintf(what, sizeof what, "%s, mode %d, outputs %d", tiny_models[_i].name, mode, outputs);
            w.outputs = outputs;
            w.max_context = outputs % 2 ? 0 : 77;
            w.optimizer = mode == MM_TRAIN && outputs % 4 == 1;
            w.checkpointing = outputs % 5 == 2;
            w.cache_sequences = outputs % 3;
            w.cache_capacity = 1 + outputs;
            w.threads = 1 + outputs % 2;
            w.kernels = mm_kernels_name(outputs % mm_kernels_count());
            ck_exact(config, &w, what);
        }
    mm_config_free(config);
}
END_TEST

START_TEST(the_estimate_is_what_is_taken_for_presets)
{
    mm_config *config = NULL;
    ck_ok(mm_config_create("minimind2-small", &config));
    mm_workload w = workload(MM_TRAIN, 2, 64);
    ck_exact(config, &w, "minimind2-small");
    w = workload(MM_EVAL, 1, 512);
    w.threads = 0;
    w.cache_sequences = 1;
    w.cache_capacity = 2048;
    ck_exact(config, &w, "minimind2-small, decoding");
    mm_config_free(config);
}
END_TEST

START_TEST(an_unknown_key_in_the_config_is_counted_too)
{
    static const char json[] =
        "{\"model_type\":\"llama\",\"hidden_size\":8,\"num_hidden_layers\":1,\"num_attention_heads\":2,\"vocab_size\":9,"
        "\"intermediate_size\":12,\"transformers_version\":\"4.44.0\",\"auto_map\":{\"AutoConfig\":\"x\"}}";
    mm_config *config = NULL;
    ck_ok(mm_config_load_memory(json, strlen(json), &config));
    mm_workload w = workload(MM_EVAL, 1, 8);
    ck_exact(config, &w, "unknown keys");
    mm_config_free(config);
}
END_TEST

START_TEST(mapped_weights_cost_nothing)
{
    mm_config *config = nth_config(0);
    mm_model *model = nth_model(0, 3), *mapped = NULL;
    const char *directory = scratch_directory();
    mm_load_options load = MM_LOAD_OPTIONS_INIT;
    ck_ok(mm_model_save(model, directory));
    mm_workload w = workload(MM_EVAL, 2, 9);
    w.weights_mapped = 1;
    mm_memory m = estimate(config, &w);
    ck_assert_int_eq(m.weights, 0);
    load.map = 1;
    uint64_t start = bytes_held();
    ck_ok(mm_model_load(directory, &load, &mapped));
    mm_context *context = context_for_workload(mapped, &w, NULL);
    int64_t taken = (int64_t)(bytes_held() - start);
    w.weights_mapped = 0;
    ck_assert_int_lt(taken, estimate(config, &w).total);
    /* the saved config spells out every key, and so may take a little more or less */
    ck_assert_int_le(taken, m.total + 1024);
    mm_context_free(context);
    mm_model_free(mapped);
    mm_model_free(model);
    mm_config_free(config);
}
END_TEST

START_TEST(each_part_is_what_it_says)
{
    mm_config *config = nth_config(0);
    mm_workload w = workload(MM_TRAIN, 2, 16);
    mm_param_count count = MM_PARAM_COUNT_INIT;
    ck_ok(mm_count_params(config, &count));
    mm_memory train = estimate(config, &w);
    ck_assert_int_ge(train.weights, 4 * count.total);
    ck_assert_int_lt(train.weights, 4 * count.total + 64 * 64);
    ck_assert_int_eq(train.gradients, train.weights);
    ck_assert_int_eq(train.optimizer, 0);
    ck_assert_int_eq(train.cache, 0);
    ck_assert_int_eq(train.cache_per_token, 2 * 2 * 2 * 6 * 4);
    w.optimizer = 1;
    w.cache_sequences = 3;
    w.cache_capacity = 50;
    mm_memory more = estimate(config, &w);
    ck_assert_int_eq(more.optimizer, 2 * train.weights);
    ck_assert_int_eq(more.cache, 150 * more.cache_per_token);
    ck_assert_int_eq(more.activations, train.activations);
    w.mode = MM_EVAL;
    w.optimizer = 0;
    mm_memory eval = estimate(config, &w);
    ck_assert_int_eq(eval.gradients, 0);
    ck_assert_int_lt(eval.activations, train.activations);
    mm_config_free(config);
}
END_TEST

START_TEST(memory_grows_with_the_length_and_not_with_its_square)
{
    mm_config *config = NULL;
    ck_ok(mm_config_create("minimind2-small", &config));
    for (int32_t mode = MM_EVAL; mode <= MM_TRAIN; mode++) {
        int64_t at[5];
        for (int i = 0; i < 5; i++) {
            mm_workload w = workload(mode, 1, 512 << i);
            at[i] = estimate(config, &w).activations;
        }
        double slope = (double)(at[1] - at[0]) / 512;
        for (int i = 1; i < 4; i++)
            ck_assert_double_eq_tol((double)(at[i + 1] - at[i]) / (512 << i), slope, 0.01 * slope);
    }
    mm_config_free(config);
}
END_TEST

START_TEST(checkpointing_takes_less)
{
    mm_config *config = NULL;
    ck_ok(mm_config_create("minimind2-small", &config));
    mm_workload w = workload(MM_TRAIN, 4, 256);
    int64_t all = estimate(config, &w).activations;
    w.checkpointing = 1;
    ck_assert_int_lt(estimate(config, &w).activations, all / 2);
    mm_config_free(config);
}
END_TEST

START_TEST(arithmetic_is_counted_by_its_formula)
{
    mm_config *config = NULL;
    mm_workload w = workload(MM_TRAIN, 8, 512);
    mm_flops f = MM_FLOPS_INIT;
    ck_ok(mm_config_create("minimind2-small", &config));
    ck_ok(mm_estimate_flops(config, &w, &f));
    /* 8 layers, 512 wide, 8 heads of 64, 2 key heads, 1408 in the network, 6400 tokens */
    double matrices = 8.0 * (512 * 512 * 2 + 2 * 128 * 512 + 3 * 512 * 1408) + 6400.0 * 512;
    double attention = 2.0 * 8 * 512 * 513;
    ck_assert_double_eq_tol(f.forward, 2 * matrices + attention, 1);
    ck_assert_double_eq_tol(f.backward, 2 * f.forward, 1);
    ck_assert_double_eq_tol(f.total, 3 * f.forward, 1);
    ck_assert_double_eq_tol(f.attention, 3 * attention, 1);
    ck_ok(mm_config_set_bool(config, "tie_word_embeddings", 0));
    ck_ok(mm_estimate_flops(config, &w, &f));
    ck_assert_double_eq_tol(f.forward, 2 * matrices + attention, 1); /* the embedding is no product */
    mm_config_free(config);
}
END_TEST

START_TEST(a_workload_that_does_not_fit_is_refused)
{
    mm_config *config = nth_config(0);
    mm_memory m = MM_MEMORY_INIT;
    mm_flops f = MM_FLOPS_INIT;
    mm_workload good = workload(MM_EVAL, 1, 8), w = good;
    ck_status(mm_estimate_memory(NULL, &w, &m), MM_ERR_ARG);
    ck_status(mm_estimate_memory(config, NULL, &m), MM_ERR_ARG);
    ck_status(mm_estimate_memory(config, &w, NULL), MM_ERR_ARG);
    ck_status(mm_estimate_flops(NULL, &w, &f), MM_ERR_ARG);
    ck_status(mm_estimate_flops(config, NULL, &f), MM_ERR_ARG);
    ck_status(mm_estimate_flops(config, &w, NULL), MM_ERR_ARG);
    m.struct_size = 3;
    ck_status(mm_estimate_memory(config, &w, &m), MM_ERR_ARG);
    m.struct_size = sizeof m;
    w.struct_size = 0;
    ck_status(mm_estimate_memory(config, &w, &m), MM_ERR_ARG);
    struct {
        int32_t value, *field;
        const char *word;
    } bad[] = { { -1, &w.mode, "mode" },
                { 2, &w.mode, "mode" },
                { 0, &w.max_batch, "max_batch" },
                { -5, &w.max_batch, "max_batch" },
                { INT32_MAX, &w.max_batch, "max_batch" },
                { 0, &w.max_length, "max_length" },
                { 513, &w.max_length, "max_length" },
                { 7, &w.max_context, "max_context" },
                { 513, &w.max_context, "max_context" },
                { -1, &w.max_context, "max_context" },
                { 64, &w.outputs, "outputs" },
                { -1, &w.outputs, "outputs" },
                { -1, &w.threads, "threads" },
                { 1 << 20, &w.threads, "threads" },
                { 2, &w.checkpointing, "checkpointing" },
                { -1, &w.weights_mapped, "weights_mapped" },
                { 2, &w.weights_mapped, "weights_mapped" },
                { -1, &w.optimizer, "optimizer" },
                { 3, &w.optimizer, "optimizer" },
                { -1, &w.cache_sequences, "cache_sequences" },
                { 2, &w.cache_sequences, "cache_capacity" }, /* of none */
                { 2000000, &w.cache_sequences, "cache_sequences is 2000000, must be from 1 to 1048576" } };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        w = good;
        *bad[i].field = bad[i].value;
        ck_status(mm_estimate_memory(config, &w, &m), MM_ERR_ARG);
        ck_error_mentions(bad[i].word);
    }
    w = good;
    w.kernels = "abacus";
    ck_status(mm_estimate_memory(config, &w, &m), MM_ERR_ARG);
    ck_error_mentions("abacus");
    w = good;
    w.cache_sequences = 1;
    w.cache_capacity = 513;
    ck_status(mm_estimate_memory(config, &w, &m), MM_ERR_ARG);
    ck_error_mentions("cache_capacity is 513");
    w = workload(MM_EVAL, 1, 8);
    w.trainable = "q_proj";
    ck_status(mm_estimate_memory(config, &w, &m), MM_ERR_ARG);
    ck_error_mentions("trainable is for MM_TRAIN");
    w.mode = MM_TRAIN;
    w.trainable = "q_proj,nothing";
    ck_status(mm_estimate_memory(config, &w, &m), MM_ERR_ARG);
    ck_error_mentions("\"nothing\"");
    mm_adapter_options options = MM_ADAPTER_OPTIONS_INIT;
    w.adapter = &options;
    ck_status(mm_estimate_memory(config, &w, &m), MM_ERR_ARG);
    ck_error_mentions("without an adapter");
    w.trainable = NULL;
    w.optimizer = 2; /* Muon, which is for a model's matrices */
    ck_status(mm_estimate_memory(config, &w, &m), MM_ERR_ARG);
    ck_error_mentions("optimizer is 2");
    for (int optimizer = 0; optimizer < 2; optimizer++) { /* what is mapped is not trained */
        w = workload(optimizer ? MM_EVAL : MM_TRAIN, 1, 8);
        w.optimizer = optimizer;
        w.weights_mapped = 1;
        ck_status(mm_estimate_memory(config, &w, &m), MM_ERR_ARG);
        ck_error_mentions("mapped");
        w.adapter = &options;
        ck_ok(mm_estimate_memory(config, &w, &m));
    }
    ck_ok(mm_config_set_int(config, "num_attention_heads", 5)); /* 24 is no multiple */
    ck_status(mm_estimate_memory(config, &good, &m), MM_ERR_ARG);
    ck_error_mentions("num_attention_heads is 5");
    ck_status(mm_estimate_flops(config, &good, &f), MM_ERR_ARG);
    ck_error_mentions("num_attention_heads is 5");
    mm_config_free(config);
}
END_TEST

/* All tensors' names, each with `star` in front of it. */
static char *names_of(const mm_config *config, const char *star)
{
    int64_t count = 0;
    ck_ok(mm_layout_count(config, &count));
    char *list = malloc((size_t)count * 130), *to = list;
    ck_assert_ptr_nonnull(list);
    for (int64_t i = 0; i < count; i++) {
        mm_tensor_info info = MM_TENSOR_INFO_INIT;
        ck_ok(mm_layout_get(config, i, &info));
        to += sprintf(to, "%s%s%s", i > 0 ? "," : "", star, info.name);
    }
    return list;
}

static mm_memory estimate_with(const mm_config *config, const char *star)
{
    mm_workload w = workload(MM_TRAIN, 1, 8);
    char *list = names_of(config, star);
    w.trainable = list;
    mm_memory out = estimate(config, &w);
    free(list);
    return out;
}

/* Whole names are looked up, patterns searched. */
START_TEST(hundreds_of_whole_names_mean_what_as_many_patterns_do)
{
    static const char json[] =
        "{\"model_type\":\"minimind\",\"hidden_size\":8,\"num_hidden_layers\":6,\"num_attention_heads\":1,"
        "\"num_key_value_heads\":1,\"head_dim\":8,\"vocab_size\":20,\"use_moe\":true,\"num_experts\":8,"
        "\"num_experts_per_tok\":2,\"moe_intermediate_size\":8}";
    mm_config *config = NULL;
    ck_ok(mm_config_load_memory(json, strlen(json), &config));
    mm_memory whole = estimate_with(config, ""), starred = estimate_with(config, "*");
    ck_assert_int_gt(whole.gradients, 0);
    ck_assert_int_eq(whole.gradients, starred.gradients);
    mm_workload w = workload(MM_TRAIN, 1, 8);
    w.trainable = "model.layers.5.mlp.experts.7.down_proj,model.layers.5.mlp.experts.8.down_proj";
    ck_status(mm_estimate_memory(config, &w, &whole), MM_ERR_ARG);
    ck_error_mentions("experts.8.down_proj\", which means no tensor");
    mm_config_free(config);
}
END_TEST

int main(void)
{
    TCase *tests;
    Suite *suite = plain_suite("run/memory", &tests);
    tcase_add_loop_test(tests, the_estimate_is_what_is_taken_for_every_kind_of_work, 0, all_count);
    tcase_add_test(tests, the_estimate_is_what_is_taken_for_presets);
    tcase_add_test(tests, an_unknown_key_in_the_config_is_counted_too);
    tcase_add_test(tests, mapped_weights_cost_nothing);
    tcase_add_test(tests, each_part_is_what_it_says);
    tcase_add_test(tests, memory_grows_with_the_length_and_not_with_its_square);
    tcase_add_test(tests, checkpointing_takes_less);
    tcase_add_test(tests, arithmetic_is_counted_by_its_formula);
    tcase_add_test(tests, a_workload_that_does_not_fit_is_refused);
    tcase_add_test(tests, hundreds_of_whole_names_mean_what_as_many_patterns_do);
    return run_suite(suite);
}
