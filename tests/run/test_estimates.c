/* What is counted and estimated for random configs is what models, contexts, optimizers and caches then take, to the byte; and how
 * it grows with the length. */
#include <stdio.h>
#include <string.h>

#include "model/configs.h"
#include "run/models.h"

#define ALL (MM_OUT_LOSS | MM_OUT_LOGPROBS | MM_OUT_LAST_LOGITS | MM_OUT_LOGITS | MM_OUT_HIDDEN)

static mm_memory estimate(const mm_config *config, const mm_workload *w)
{
    mm_memory m = MM_MEMORY_INIT;
    uint64_t counted = allocations();
    ck_ok(mm_estimate_memory(config, w, &m));
    ck_assert_uint_eq(allocations(), counted);
    return m;
}

static mm_workload random_workload(test_rng *rng)
{
    mm_workload w = MM_WORKLOAD_INIT;
    w.mode = rng_between(rng, MM_EVAL, MM_TRAIN);
    w.max_batch = rng_between(rng, 1, 4);
    w.max_length = rng_between(rng, 1, 40);
    w.max_context = rng_between(rng, 0, 1) ? w.max_length + rng_between(rng, 0, 30) : 0;
    w.outputs = rng_between(rng, 0, ALL);
    w.threads = rng_between(rng, 1, 2);
    w.checkpointing = rng_between(rng, 0, 1);
    w.optimizer = w.mode == MM_TRAIN && rng_between(rng, 0, 1);
    w.cache_sequences = rng_between(rng, 0, 2);
    w.cache_capacity = rng_between(rng, 1, 50);
    w.kernels = mm_kernels_name(rng_between(rng, 0, mm_kernels_count() - 1));
    return w;
}

/* The tensors that are there, module by module, against the count. */
static void ck_counted(const mm_config *config, const mm_model *model, const char *what)
{
    mm_param_count count = MM_PARAM_COUNT_INIT;
    mm_tensor_info info = MM_TENSOR_INFO_INIT;
    int64_t by_module[MM_MODULE_LM_HEAD + 1] = { 0 }, total = 0;
    ck_ok(mm_count_params(config, &count));
    for (int64_t i = 0; i < mm_model_tensor_count(model); i++) {
        mm_view view;
        ck_ok(mm_model_tensor(model, i, &view));
        ck_ok(mm_layout_get(config, i, &info));
        int64_t elements = view.shape[0] * view.shape[1] * view.shape[2] * view.shape[3];
        ck_assert_int_eq(elements, info.elements);
        by_module[info.module] += elements;
        total += elements;
    }
    const int64_t counted[] = { count.embedding,   count.attention,          count.mlp_dense,   count.moe_router,
                                count.moe_experts, count.moe_shared_experts, count.moe_scalars, count.layer_norms,
                                count.final_norm,  count.lm_head };
    ck_assert_msg(total == count.total, "%s: %lld elements, counted are %lld", what, (long long)total, (long long)count.total);
    for (int m = 0; m <= MM_MODULE_LM_HEAD; m++)
        ck_assert_msg(by_module[m] == counted[m], "%s: module %d has %lld elements, counted are %lld", what, m,
                      (long long)by_module[m], (long long)counted[m]);
}

static void ck_taken(const mm_config *config, const mm_workload *w, const char *what)
{
    mm_memory m = estimate(config, w);
    mm_model *model = NULL;
    mm_optimizer *optimizer = NULL;
    mm_cache *cache = NULL;
    uint64_t start = bytes_held();
    ck_ok(mm_model_create(config, 1, &model));
    ck_counted(config, model, what);
    mm_context *context = context_for_workload(model, w, NULL);
    if (w->optimizer)
        ck_ok(mm_adamw_create(model, NULL, &optimizer));
    if (w->cache_sequences)
        ck_ok(mm_cache_create(model, w->cache_sequences, w->cache_capacity, w->cache_dtype, &cache));
    ck_assert_msg(bytes_held() - start == (uint64_t)m.total, "%s: %llu bytes are taken, the estimate says %lld", what,
                  (unsigned long long)(bytes_held() - start), (long long)m.total);
    mm_cache_free(cache);
    mm_optimizer_free(optimizer);
    mm_context_free(context);
    mm_model_free(model);
    ck_assert_uint_eq(bytes_held(), start);
}

START_TEST(counts_and_estimates_are_exact_for_random_configs)
{
    test_rng rng = { 1300 + (unsigned)_i };
    int families[6] = { 0 };
    for (int round = 0; round < 100; round++) {
        char what[128], type[32];
        int64_t version = 0;
        mm_config *config = random_config(&rng);
        mm_workload w = random_workload(&rng);
        snprintf(what, sizeof what, "config %d of run %d", round, _i);
        ck_ok(mm_config_get_string(config, "model_type", type, sizeof type, NULL));
        bool newer = mm_config_get_int(config, "minimind_version", &version) == MM_OK && version == 3;
        static const char *const types[] = { "minimind", "minigpt", "llama", "qwen3", "qwen3_moe" };
        for (int t = 0; t < 5; t++)
            if (strcmp(type, types[t]) == 0)
                families[t == 0 && newer ? 5 : t]++;
        ck_taken(config, &w, what);
        mm_config_free(config);
    }
    for (int f = 0; f < 6; f++)
        ck_assert_int_ge(families[f], 3);
}
END_TEST

static const char *const long_models[] = {
    "{\"model_type\":\"minimind\",\"minimind_version\":2,\"hidden_size\":16,\"num_hidden_layers\":1,\"num_attention_heads\":2,"
    "\"num_key_value_heads\":1,\"vocab_size\":50,\"intermediate_size\":24,\"max_position_embeddings\":8192}",
    "{\"model_type\":\"minigpt\",\"hidden_size\":16,\"num_hidden_layers\":1,\"num_attention_heads\":1,\"vocab_size\":50,"
    "\"intermediate_size\":24,\"max_position_embeddings\":8192,\"use_moe\":true,\"n_routed_experts\":4,\"n_shared_experts\":1,"
    "\"use_rope\":false,\"attention_dropout\":0}",
};
enum { LONG_MODELS = sizeof long_models / sizeof *long_models };

static mm_workload workload_of(int32_t mode, int32_t length, int32_t checkpointing)
{
    mm_workload w = MM_WORKLOAD_INIT;
    w.mode = mode;
    w.max_length = length;
    w.outputs = mode == MM_TRAIN ? MM_OUT_LOSS : ALL;
    w.threads = 2;
    w.checkpointing = checkpointing;
    return w;
}

START_TEST(arithmetic_of_the_longest_rows_is_counted)
{
    mm_config *config = NULL;
    mm_workload w = MM_WORKLOAD_INIT;
    mm_flops longest = MM_FLOPS_INIT, half = MM_FLOPS_INIT;
    ck_ok(mm_config_create(NULL, &config));
    ck_ok(mm_config_set_int(config, "max_position_embeddings", INT32_MAX));
    w.max_length = INT32_MAX / 2;
    ck_ok(mm_estimate_flops(config, &w, &half));
    w.max_length = INT32_MAX;
    ck_ok(mm_estimate_flops(config, &w, &longest));
    ck_assert_msg(longest.attention == 2 * half.attention, "%g, and %g", longest.attention, half.attention);
    mm_config_free(config);
}
END_TEST

/* Role by role: of tensors there are 13 billion. */
START_TEST(the_largest_config_is_answered_at_once)
{
    mm_config *config = config_of("{'model_type':'minimind','minimind_version':3,'hidden_size':32,"
                                  "'num_attention_heads':1,'num_key_value_heads':1,"
                                  "'num_hidden_layers':65536,'vocab_size':1000000,"
                                  "'qk_norm':false,'use_moe':true,'num_experts':65536,'moe_intermediate_size':32}");
    mm_param_count count = MM_PARAM_COUNT_INIT;
    mm_workload w = MM_WORKLOAD_INIT;
    mm_flops f = MM_FLOPS_INIT;
    ck_ok(mm_count_params(config, &count));
    ck_ok(mm_estimate_flops(config, &w, &f));
    double matrices = (double)(count.active - count.layer_norms - count.final_norm);
    double attention = 2.0 * 65536 * 32 * (w.max_length + 1);
    ck_assert_double_eq_tol(f.forward, 2 * matrices + attention, 1e-12 * matrices);
    ck_assert_double_eq_tol(f.backward, 2 * f.forward, 1e-12 * matrices);
    static const int32_t dtypes[] = { MM_F32, MM_BF16, MM_Q8_0 };
    w.max_length = 8;
    for (int i = 0; i < 3; i++) {
        mm_memory m = MM_MEMORY_INIT;
        w.dtype = dtypes[i];
        ck_status(mm_estimate_memory(config, &w, &m), SIZE_MAX > UINT32_MAX ? MM_OK : MM_ERR_ARG);
    }
    mm_config_free(config);
}
END_TEST

/* What is OK is a sum of parts of which none is negative. */
static mm_status checked_estimate(const mm_config *config, const mm_workload *w)
{
    mm_memory m = MM_MEMORY_INIT;
    mm_status status = mm_estimate_memory(config, w, &m);
    if (status != MM_OK) {
        ck_status(status, MM_ERR_ARG);
        return status;
    }
    const int64_t parts[] = { m.weights,     m.adapter, m.gradients, m.optimizer,
                              m.activations, m.cache,   m.handles,   m.cache_per_token };
    int64_t total = 0;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        ck_assert_msg(parts[i] >= 0, "part %zu is %lld", i, (long long)parts[i]);
        total += i < 7 ? parts[i] : 0;
    }
    ck_assert_int_eq(m.total, total);
    return status;
}

/* Each size from what is nothing to what no machine has, past where bytes no longer fit an int64_t and past where they
 * no longer fit a size_t. */
START_TEST(sizes_beyond_any_machine_are_refused_not_negative)
{
    mm_config *config = NULL;
    mm_workload w = MM_WORKLOAD_INIT;
    ck_ok(mm_config_create(NULL, &config));
    ck_ok(mm_config_set_int(config, "max_position_embeddings", INT32_MAX));
    w.max_batch = 65000;
    w.max_length = 32768;
    w.outputs = MM_OUT_LOGITS;
    for (int64_t vocab_size = 32; vocab_size <= INT32_MAX; vocab_size *= 2) {
        ck_ok(mm_config_set_int(config, "vocab_size", vocab_size));
        checked_estimate(config, &w);
    }
    ck_ok(mm_config_set_int(config, "vocab_size", 1300000000));
    ck_status(checked_estimate(config, &w), MM_ERR_ARG);
    ck_error_mentions("beyond this machine");
    ck_ok(mm_config_set_int(config, "vocab_size", 6400));
    w.max_batch = 65536; /* 2³¹ rows: one more than an int32_t counts */
    ck_status(checked_estimate(config, &w), MM_ERR_ARG);
    ck_error_mentions("max_batch x max_length is 2147483648");
    w = (mm_workload)MM_WORKLOAD_INIT;
    w.cache_sequences = 1 << 20;
    w.cache_dtype = MM_BF16;
    for (int64_t capacity = 64; capacity <= INT32_MAX; capacity *= 2) {
        w.cache_capacity = (int32_t)capacity;
        checked_estimate(config, &w);
    }
    w.cache_capacity = INT32_MAX;
    ck_status(checked_estimate(config, &w), MM_ERR_ARG);
    ck_error_mentions("2147483647 tokens");
    mm_adapter_options adapter = MM_ADAPTER_OPTIONS_INIT;
    w = (mm_workload)MM_WORKLOAD_INIT;
    w.mode = MM_TRAIN;
    w.optimizer = 1;
    for (int rank = 0; rank <= 65536; rank = rank ? 16 * rank : 1)
        for (int64_t layers = 8; layers <= 1 << 16; layers *= 16) {
            adapter.rank = rank;
            w.adapter = rank ? &adapter : NULL;
            ck_ok(mm_config_set_int(config, "num_hidden_layers", layers));
            checked_estimate(config, &w);
        }
    mm_config_free(config);
}
END_TEST

/* Taken, not only estimated: 512, 1024, … 8192 tokens. What each further token takes stays the same but for how large
 * blocks are rounded up. */
START_TEST(memory_taken_is_linear_in_the_length)
{
    mm_model *model = model_of(long_models[_i], 1);
    for (int kind = 0; kind < 3; kind++) {
        double per_token[4];
        uint64_t last = 0;
        for (int i = 0; i < 5; i++) {
            mm_workload w = workload_of(kind > 0, 512 << i, kind == 2);
            uint64_t before = bytes_held();
            mm_context *context = context_for_workload(model, &w, NULL);
            uint64_t taken = bytes_held() - before;
            if (i > 0)
                per_token[i - 1] = (double)(taken - last) / (256 << i);
            last = taken;
            mm_context_free(context);
        }
        for (int i = 1; i < 4; i++)
            ck_assert_double_eq_tol(per_token[i], per_token[0], 0.01 * per_token[0]);
    }
    mm_model_free(model);
}
END_TEST

START_TEST(a_run_over_8192_tokens_stays_within_the_estimate)
{
    test_rng rng = { 1301 };
    mm_model *model = model_of(long_models[_i], 2);
    mm_workload w = workload_of(MM_TRAIN, 8192, 1);
    mm_memory m = estimate(mm_model_config(model), &w);
    uint64_t before = bytes_held();
    mm_context *context = context_for_workload(model, &w, NULL);
    int64_t taken = (int64_t)(bytes_held() - before);
    ck_assert_int_le(taken, m.activations + m.gradients + m.handles);
    mm_batch batch = random_batch(model, 1, 8192, MM_TRAIN, &rng);
    uint64_t counted = allocations();
    double loss = forward_backward(context, &batch, NULL), norm = 0;
    ck_ok(mm_grad_norm(context, &norm));
    ck_assert_uint_eq(allocations(), counted);
    ck_assert_int_eq((int64_t)(bytes_held() - before), taken);
    ck_assert_double_gt(loss, 1);
    ck_assert_double_lt(loss, 20);
    ck_assert(norm > 0 && norm < 1e6);
    mm_context_free(context);
    mm_model_free(model);
}
END_TEST

int main(void)
{
    TCase *tests;
    Suite *suite = plain_suite("run/estimates", &tests);
    tcase_add_loop_test(tests, counts_and_estimates_are_exact_for_random_configs, 0, 5);
    tcase_add_test(tests, arithmetic_of_the_longest_rows_is_counted);
    tcase_add_test(tests, the_largest_config_is_answered_at_once);
    tcase_add_test(tests, sizes_beyond_any_machine_are_refused_not_negative);
    tcase_add_loop_test(tests, memory_taken_is_linear_in_the_length, 0, LONG_MODELS);
    tcase_add_loop_test(tests, a_run_over_8192_tokens_stays_within_the_estimate, 0, LONG_MODELS);
    return run_suite(suite);
}
