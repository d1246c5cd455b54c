/* Models whose matrices are in blocks: what they hold, that they run, how near they stay, what they refuse. */
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "backend/kernels.h"
#include "base/memory.h"
#include "others.h"
#include "run/models.h"

#define SHAPE                                                                                                          \
    "\"hidden_size\":64,\"num_hidden_layers\":2,\"num_attention_heads\":4,\"num_key_value_heads\":2,\"vocab_size\":"   \
    "97,"                                                                                                              \
    "\"intermediate_size\":96,\"max_position_embeddings\":256"

static const char *const models[] = {
    "{\"model_type\":\"minimind\",\"minimind_version\":2," SHAPE "}", /* tied */
    "{\"model_type\":\"llama\",\"attention_bias\":true,\"mlp_bias\":true," SHAPE "}",
    "{\"model_type\":\"minimind\",\"minimind_version\":3,\"use_moe\":true,\"num_experts\":5,\"num_experts_per_tok\":2,"
    "\"moe_intermediate_size\":32," SHAPE "}",
    "{\"model_type\":\"minimind\",\"minimind_version\":2," /* keys and values of 8 rows, half a strip */
    "\"hidden_size\":64,\"num_hidden_layers\":2,\"num_attention_heads\":8,\"num_key_value_heads\":1,"
    "\"vocab_size\":97,\"intermediate_size\":96,\"max_position_embeddings\":256}",
};
enum { MODELS = sizeof models / sizeof *models, WHOLE_STRIPS = MODELS - 1 };
static const int32_t dtypes[] = { MM_Q8_0, MM_Q4_0 };

/* Weights as training leaves them: of the size that keeps activations level. */
static mm_model *model_at(int i, unsigned seed)
{
    mm_config *config = NULL;
    mm_model *model = NULL;
    test_rng rng = { seed };
    ck_ok(mm_config_load_memory(models[i], strlen(models[i]), &config));
    ck_ok(mm_model_create(config, seed, &model));
    for (int64_t t = 0; t < mm_model_tensor_count(model); t++) {
        mm_view view;
        ck_ok(mm_model_write(model, t, &view));
        if (view.rank == 2)
            rng_fill(&rng, view.data, (size_t)(view.shape[0] * view.shape[1]), sqrtf(3.0f / (float)view.shape[1]));
    }
    mm_model_written(model);
    mm_config_free(config);
    return model;
}

static mm_model *quantized(const mm_model *model, int32_t dtype)
{
    mm_model *q = NULL;
    ck_ok(mm_model_quantize(model, dtype, &q));
    return q;
}

START_TEST(matrices_are_in_blocks_and_vectors_and_routers_are_not)
{
    mm_model *model = model_at(_i % MODELS, 1), *q = quantized(model, dtypes[_i / MODELS]);
    for (int64_t t = 0; t < mm_model_tensor_count(q); t++) {
        mm_tensor_info info = MM_TENSOR_INFO_INIT;
        mm_view view;
        ck_ok(mm_layout_get(mm_model_config(q), t, &info));
        ck_ok(mm_model_tensor(q, t, &view));
        ck_assert_int_eq(view.shape[0], info.shape[0]);
        if (view.rank == 1 || info.module == MM_MODULE_MOE_ROUTER) {
            ck_assert_int_eq(view.dtype, MM_F32);
            continue;
        }
        ck_assert_int_eq(view.dtype, dtypes[_i / MODELS]);
        ck_assert_int_eq(view.strides[0], view.shape[1] / 32);
        ck_assert_int_eq(view.strides[1], 0);
    }
    mm_model_free(q);
    mm_model_free(model);
    ck_assert_uint_eq(bytes_held(), 0);
}
END_TEST

static void ck_same(const mm_model *a, const mm_model *b)
{
    for (int64_t t = 0; t < mm_model_tensor_count(a); t++) {
        mm_view x, y;
        ck_ok(mm_model_tensor(a, t, &x));
        ck_ok(mm_model_tensor(b, t, &y));
        ck_assert_int_eq(x.dtype, y.dtype);
        int64_t n = x.shape[0] * x.shape[1];
        int64_t number = (int64_t)mm_dtype_size(x.dtype);
        int64_t bytes = x.dtype == MM_Q8_0 ? n / 32 * 34 : x.dtype == MM_Q4_0 ? n / 32 * 18 : n * number;
        ck_assert_mem_eq(x.data, y.data, (size_t)bytes);
    }
}

START_TEST(copies_are_equal_and_what_was_cast_back_is_near)
{
    int32_t dtype = dtypes[_i];
    mm_model *model = model_at(2, 2), *q = quantized(model, dtype), *copy = NULL, *back = NULL, *half = NULL, *two = NULL;
    ck_ok(mm_model_copy(q, &copy));
    ck_same(q, copy);
    ck_ok(mm_model_cast(q, MM_F32, &back));
    ck_ok(mm_model_cast(q, MM_BF16, &half));
    ck_ok(mm_model_cast(back, MM_BF16, &two)); /* in two steps */
    ck_same(half, two);
    for (int64_t t = 0; t < mm_model_tensor_count(model); t++) {
        mm_view a, b;
        double off = 0, size = 0;
        ck_ok(mm_model_tensor(model, t, &a));
        ck_ok(mm_model_tensor(back, t, &b));
        ck_assert_int_eq(b.dtype, MM_F32);
        for (int64_t i = 0; i < a.shape[0] * a.shape[1]; i++) {
            double x = ((float *)a.data)[i], y = ((float *)b.data)[i];
            off += (x - y) * (x - y);
            size += x * x;
        }
        ck_assert_msg(sqrt(off) <= (dtype == MM_Q8_0 ? 0.006 : 0.1) * sqrt(size), "tensor %lld is off by %g of %g",
                      (long long)t, sqrt(off), sqrt(size));
    }
    mm_model *const all[] = { model, q, copy, back, half, two };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        mm_model_free(all[i]);
}
END_TEST

/* Logits of all rows, in take()'s memory. */
static float *logits_of(mm_model *model, int32_t B, int32_t T, const int32_t *ids, int32_t threads, const char *kernels)
{
    mm_context *context = context_on(model, MM_EVAL, B, T, MM_OUT_LOGITS, threads, kernels);
    mm_batch batch = MM_BATCH_INIT;
    mm_output out = MM_OUTPUT_INIT;
    batch.ids = ids;
    batch.batch = B;
    batch.length = T;
    ck_ok(mm_forward(context, &batch, &out));
    float *logits = copy_view(&out.logits);
    mm_context_free(context);
    return logits;
}

/* Kernels read blocks in an order of their own; what a view shows, and takes, is GGUF's all the same. */
START_TEST(blocks_that_are_written_are_what_a_model_runs_with)
{
    const int32_t dtype = dtypes[_i / MODELS], ids[] = { 3, 1, 4, 1, 5, 9, 2, 6 };
    mm_model *first = model_at(_i % MODELS, 1), *second = model_at(_i % MODELS, 2), *written = quantized(first, dtype);
    mm_model *want = quantized(second, dtype), *copy = NULL;
    for (int64_t t = 0; t < mm_model_tensor_count(written); t++) {
        mm_view from, to, again;
        ck_ok(mm_model_tensor(want, t, &from));
        ck_ok(mm_model_write(written, t, &to));
        const int64_t n = to.shape[0] * to.shape[1];
        memcpy(to.data, from.data, (size_t)(dtype == to.dtype ? n / 32 * (dtype == MM_Q8_0 ? 34 : 18) : n * 4));
        ck_ok(mm_model_tensor(written, t, &again));
        ck_assert_ptr_eq(again.data, to.data);
    }
    mm_model_written(written);
    ck_same(written, want);
    ck_ok(mm_model_copy(written, &copy));
    ck_same(copy, want);
    enum { V = 97 };
    float *a = logits_of(written, 1, 8, ids, 2, NULL), *b = logits_of(want, 1, 8, ids, 1, NULL);
    ck_assert_mem_eq(a, b, sizeof(float) * 8 * V);
    mm_model *const all[] = { first, second, written, want, copy };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        mm_model_free(all[i]);
    ck_assert_uint_eq(bytes_held(), 0);
}
END_TEST

/* Where tensor 0 is shown, after a look at all. */
static void *look(void *model)
{
    mm_view view = { 0 };
    for (int64_t t = mm_model_tensor_count(model) - 1; t >= 0; t--)
        if (mm_model_tensor(model, t, &view) != MM_OK)
            return NULL;
    return view.data;
}

START_TEST(any_number_of_threads_may_look_at_blocks)
{
    enum { THREADS = 6 };
    mm_model *model = model_at(0, 3), *q = quantized(model, MM_Q4_0);
    pthread_t threads[THREADS];
    void *seen[THREADS];
    for (int i = 0; i < THREADS; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, look, q), 0);
    for (int i = 0; i < THREADS; i++)
        ck_assert_int_eq(pthread_join(threads[i], &seen[i]), 0);
    for (int i = 0; i < THREADS; i++) {
        ck_assert_ptr_nonnull(seen[i]);
        ck_assert_ptr_eq(seen[i], seen[0]);
    }
    mm_model_free(q);
    mm_model_free(model);
    ck_assert_uint_eq(bytes_held(), 0);
}
END_TEST

/* Rows that are further apart than `most`. */
static int far_rows(const float *a, const float *b, int rows, int width, double most)
{
    int count = 0;
    for (int i = 0; i < rows; i++)
        count += relative_error(a + i * width, b + i * width, (size_t)width) > most;
    return count;
}

/* A model with random weights is the hardest case: nothing was trained to stand apart. Rounding to 8 bits costs about
 * 0.006 of a matrix, and as much of the rows that it meets: in each of three layers, one behind the other. */
START_TEST(logits_stay_near_those_of_float32)
{
    test_rng rng = { 500 + (unsigned)_i };
    mm_model *model = model_at(_i, 3);
    for (int d = 0; d < 2; d++) {
        mm_model *q = quantized(model, dtypes[d]), *back = NULL;
        ck_ok(mm_model_cast(q, MM_F32, &back));
        for (int32_t T = 5; T <= 15; T += 10) {
            int32_t B = T == 5 ? 1 : 3;
            const int32_t *ids = take_ints(&rng, B * T, 0, 96);
            int64_t n = (int64_t)B * T * 97;
            float *exact = logits_of(model, B, T, ids, 1, NULL), *held = logits_of(back, B, T, ids, 1, NULL);
            EACH_KERNELS (k) {
                float *got = logits_of(q, B, T, ids, 1, mm_kernels_name(k));
                double off = relative_error(got, exact, (size_t)n);
                /* experts may be chosen otherwise, so only what the weights hold is compared there, but for a row or
                 * two */
                int far = far_rows(got, held, B * T, 97, 0.05);
                ck_assert_msg(_i == 2 || off < (d == 0 ? 0.025 : 0.35), "%s, %s: logits are off by %g",
                              mm_kernels_name(k), mm_dtype_name(dtypes[d]), off);
                ck_assert_msg(far <= (_i == 2 ? B * T / 20 : 0), "%s, %s: %d rows are off those of the weights held",
                              mm_kernels_name(k), mm_dtype_name(dtypes[d]), far);
                float *two = logits_of(q, B, T, ids, 3, mm_kernels_name(k));
                ck_assert_mem_eq(got, two, (size_t)n * sizeof(float));
            }
        }
        mm_model_free(back);
        mm_model_free(q);
    }
    mm_model_free(model);
}
END_TEST

/* Of passes with many tokens, which tiles take as bf16 numbers: nearer to what the weights hold than whole numbers are,
 * and the same for any number of threads. */
START_TEST(long_passes_stay_near_what_the_weights_hold)
{
    enum { B = 3, T = 30, N = B * T * 97 };
    test_rng rng = { 520 + (unsigned)_i };
    mm_model *model = model_at(_i % WHOLE_STRIPS, 3), *q = quantized(model, dtypes[_i / WHOLE_STRIPS]), *back = NULL;
    const int32_t *ids = take_ints(&rng, B * T, 0, 96);
    bool experts = _i % WHOLE_STRIPS == 2; /* which may be chosen otherwise */
    ck_ok(mm_model_cast(q, MM_F32, &back));
    float *held = logits_of(back, B, T, ids, 1, NULL);
    double whole = relative_error(logits_of(q, B, T, ids, 1, "c"), held, N);
    ck_assert_msg(experts || (whole > 0.01 && whole < 0.05), "whole numbers are off by %g", whole);
    EACH_KERNELS (p) {
        const mmi_path *path = mmi_path_get(p);
        mmi_kernels k;
        mmi_kernels_init(&k, path->cpu);
        float *one = logits_of(q, B, T, ids, 1, path->name), *three = logits_of(q, B, T, ids, 3, path->name);
        double off = relative_error(one, held, N), most = k.round_blocks > 0 ? whole / 1.5 : whole * 1.01;
        ck_assert_msg(experts || off <= most, "%s is off by %g, whole numbers by %g", path->name, off, whole);
        ck_assert_mem_eq(one, three, N * sizeof(float));
    }
    mm_model_free(back);
    mm_model_free(q);
    mm_model_free(model);
}
END_TEST

/* So wide that several threads share gate and up for 34 rows and more. Heads of 32 numbers, so that a cache may be in
 * blocks as well: with norms of heads, with biases, with one query for each key, and plain. */
#define WIDE                                                                                                           \
    "\"hidden_size\":128,\"num_hidden_layers\":2,\"num_attention_heads\":4,\"vocab_size\":97,"                         \
    "\"intermediate_size\":256,\"max_position_embeddings\":64"
static const char *const company[] = {
    "{\"model_type\":\"minimind\",\"minimind_version\":3,\"num_key_value_heads\":2," WIDE "}",
    "{\"model_type\":\"llama\",\"attention_bias\":true,\"mlp_bias\":true,\"num_key_value_heads\":1," WIDE "}",
    "{\"model_type\":\"minimind\",\"minimind_version\":2,\"num_key_value_heads\":4," WIDE "}",
    "{\"model_type\":\"minimind\",\"minimind_version\":2,\"num_key_value_heads\":2," WIDE "}",
};
enum { COMPANIES = sizeof company / sizeof *company, STEPS = 3, TOKENS = 6, VOCAB = 97 };

/* Logits [B, TOKENS, VOCAB] of B sequences, some tokens of each at a time. */
static void run_steps(float *logits, mm_context *context, mm_cache *cache, int32_t B, const int32_t *ids)
{
    static const int32_t lengths[STEPS] = { 3, 1, 2 };
    int32_t part[17 * 3], at = 0;
    for (int32_t b = 0; b < B; b++)
        ck_ok(mm_cache_truncate(cache, b, 0));
    for (int s = 0; s < STEPS; at += lengths[s++]) {
        for (int32_t b = 0; b < B; b++)
            memcpy(part + b * lengths[s], ids + b * TOKENS + at, (size_t)lengths[s] * sizeof *part);
        mm_batch batch = MM_BATCH_INIT;
        mm_output out = MM_OUTPUT_INIT;
        batch.ids = part;
        batch.batch = B;
        batch.length = lengths[s];
        batch.cache = cache;
        ck_ok(mm_forward(context, &batch, &out));
        const size_t bytes = (size_t)(lengths[s] * VOCAB) * sizeof(float);
        for (int32_t b = 0; b < B; b++)
            memcpy(logits + (b * TOKENS + at) * VOCAB, (const float *)out.logits.data + b * lengths[s] * VOCAB, bytes);
    }
}

START_TEST(a_sequence_is_the_same_in_any_company)
{
    static const int32_t caches[] = { MM_F32, MM_BF16, MM_Q8_0 }, sizes[] = { 2, 5, 17 };
    enum { MOST = 17 };
    test_rng rng = { 560 + (unsigned)_i };
    mm_model *model = model_of(company[_i / 2], 5), *q = quantized(model, dtypes[_i % 2]);
    const int32_t *ids = take_ints(&rng, MOST * TOKENS, 0, VOCAB - 1);
    float *alone = take_floats(MOST * TOKENS * VOCAB, NAN), *together = take_floats(MOST * TOKENS * VOCAB, NAN);
    EACH_KERNELS (p)
        for (int c = 0; c < 3; c++)
            for (int32_t threads = 1; threads <= 3; threads++) {
                const char *name = mm_kernels_name(p);
                mm_context *context = context_on(q, MM_EVAL, MOST, 3, MM_OUT_LOGITS, threads, name);
                mm_cache *cache = NULL;
                ck_ok(mm_cache_create(q, MOST, 32, caches[c], &cache));
                for (int32_t b = 0; b < MOST; b++)
                    run_steps(alone + b * TOKENS * VOCAB, context, cache, 1, ids + b * TOKENS);
                for (int n = 0; n < 3; n++) {
                    run_steps(together, context, cache, sizes[n], ids);
                    ck_assert_msg(memcmp(together, alone, (size_t)(sizes[n] * TOKENS * VOCAB) * sizeof *alone) == 0,
                                  "%s, a cache in %s, %d sequences on %d threads", name, mm_dtype_name(caches[c]),
                                  sizes[n], threads);
                }
                mm_cache_free(cache);
                mm_context_free(context);
            }
    mm_model_free(q);
    mm_model_free(model);
}
END_TEST

START_TEST(running_with_blocks_allocates_nothing)
{
    test_rng rng = { 510 };
    mm_model *model = model_at(_i, 4), *q = quantized(model, MM_Q4_0);
    mm_context *context = context_on(q, MM_EVAL, 2, 40, MM_OUT_LOSS | MM_OUT_LAST_LOGITS, 2, NULL);
    mm_batch batch = random_batch(q, 2, 40, MM_EVAL, &rng);
    mm_output out = MM_OUTPUT_INIT;
    uint64_t before = allocations();
    ck_ok(mm_forward(context, &batch, &out));
    batch.length = 1;
    ck_ok(mm_forward(context, &batch, &out));
    ck_assert_uint_eq(allocations(), before);
    ck_assert(isfinite(out.loss));
    mm_context_free(context);
    mm_model_free(q);
    mm_model_free(model);
}
END_TEST

START_TEST(estimates_of_blocks_are_exact)
{
    for (int32_t dtype = MM_F32; dtype <= MM_Q4_0; dtype++) {
        if (dtype == MM_I32 || dtype == MM_I64)
            continue;
        mm_model *exact = model_at(_i, 5), *model = NULL;
        mm_workload w = MM_WORKLOAD_INIT;
        mm_memory m = MM_MEMORY_INIT;
        w.max_batch = 2;
        w.max_length = 9;
        w.max_context = 64; /* as context_on() has it */
        w.threads = 2;
        w.dtype = dtype;
        w.outputs = MM_OUT_LAST_LOGITS;
        ck_ok(mm_estimate_memory(mm_model_config(exact), &w, &m));
        uint64_t before = bytes_held();
        ck_ok(dtype < MM_Q8_0 ? mm_model_cast(exact, dtype, &model) : mm_model_quantize(exact, dtype, &model));
        mm_context *context = context_on(model, MM_EVAL, 2, 9, MM_OUT_LAST_LOGITS, 2, NULL);
        ck_assert_msg(bytes_held() - before == (uint64_t)m.total, "%s: %llu bytes are taken, the estimate says %lld",
                      mm_dtype_name(dtype), (unsigned long long)(bytes_held() - before), (long long)m.total);
        mm_context_free(context);
        mm_model_free(model);
        mm_model_free(exact);
    }
}
END_TEST

START_TEST(estimates_refuse_dtypes_that_weights_cannot_have)
{
    mm_model *model = model_at(0, 5);
    mm_workload w = MM_WORKLOAD_INIT;
    mm_memory m = MM_MEMORY_INIT;
    w.max_length = 9;
    w.dtype = MM_I32;
    ck_status(mm_estimate_memory(mm_model_config(model), &w, &m), MM_ERR_ARG);
    w.dtype = -1;
    ck_status(mm_estimate_memory(mm_model_config(model), &w, &m), MM_ERR_ARG);
    w.dtype = MM_Q8_0;
    w.weights_mapped = 1;
    ck_status(mm_estimate_memory(mm_model_config(model), &w, &m), MM_ERR_ARG);
    ck_error_mentions("weights_mapped is 1, but weights in q8_0 are read into memory");
    w.weights_mapped = 0;
    w.mode = MM_TRAIN;
    ck_status(mm_estimate_memory(mm_model_config(model), &w, &m), MM_ERR_ARG);
    ck_error_mentions("q8_0");
    mm_model_free(model);
}
END_TEST

START_TEST(generation_continues_as_float32_does_where_one_choice_stands_out)
{
    mm_model *model = model_at(0, 6), *q = quantized(model, MM_Q8_0);
    const int32_t prompt[] = { 5, 17, 40, 3, 88 }, *prompts[] = { prompt }, length = 5, nothing[1] = { 0 };
    mm_sampling greedy = MM_SAMPLING_INIT;
    greedy.temperature = 0;
    mm_generate_options o = MM_GENERATE_OPTIONS_INIT;
    o.prompts = prompts;
    o.prompt_lengths = &length;
    o.sampling = &greedy;
    o.stop_ids = nothing;
    o.max_new_tokens = 12;
    int32_t made[2][12];
    for (int i = 0; i < 2; i++) {
        mm_context *context = context_of(i ? q : model, MM_EVAL, 1, 32, MM_OUT_LAST_LOGITS);
        mm_generate_result r = MM_GENERATE_RESULT_INIT;
        ck_ok(mm_generate(context, &o, &r));
        ck_assert_int_eq(r.lengths[0], 12);
        memcpy(made[i], r.ids, sizeof made[i]);
        mm_context_free(context);
    }
    int same = 0;
    while (same < 12 && made[0][same] == made[1][same])
        same++;
    ck_assert_int_ge(same, 6);
    mm_model_free(q);
    mm_model_free(model);
}
END_TEST

START_TEST(only_dtypes_in_blocks_can_be_quantized_to)
{
    mm_model *model = model_at(0, 7), *q = NULL;
    for (int32_t dtype = -1; dtype < 9; dtype++)
        if (dtype != MM_Q8_0 && dtype != MM_Q4_0)
            ck_status(mm_model_quantize(model, dtype, &q), MM_ERR_ARG);
    ck_error_mentions("8");
    ck_status(mm_model_quantize(NULL, MM_Q8_0, &q), MM_ERR_ARG);
    ck_status(mm_model_quantize(model, MM_Q8_0, NULL), MM_ERR_ARG);
    ck_status(mm_model_cast(model, MM_Q8_0, &q), MM_ERR_ARG);
    ck_assert_ptr_null(q);
    mm_model_free(model);
}
END_TEST

START_TEST(rows_that_are_no_whole_blocks_are_refused_by_name)
{
    mm_model *model = nth_model(0, 1), *q = NULL;
    ck_status(mm_model_quantize(model, MM_Q4_0, &q), MM_ERR_UNSUPPORTED);
    ck_error_mentions("model.embed_tokens.weight");
    ck_error_mentions("24");
    ck_assert_ptr_null(q);
    mm_model_free(model);
}
END_TEST

START_TEST(quantized_models_are_not_trained)
{
    mm_model *model = model_at(0, 8), *q = quantized(model, MM_Q8_0);
    mm_context_options o = MM_CONTEXT_OPTIONS_INIT;
    mm_context *context = NULL;
    o.mode = MM_TRAIN;
    o.max_length = 8;
    ck_status(mm_context_create(q, &o, &context), MM_ERR_STATE);
    ck_error_mentions("its weights are not float32; mm_model_cast() gives some that are");
    mm_model_free(q);
    mm_model_free(model);
}
END_TEST

START_TEST(every_failing_allocation_is_survived)
{
    mm_model *model = model_at(0, 9), *q = NULL;
    uint64_t before = bytes_held(), n = 1;
    for (;; n++) {
        mmi_memory_fail_at(n, false);
        mm_status status = mm_model_quantize(model, MM_Q8_0, &q);
        mmi_memory_fail_at(0, false);
        if (status == MM_OK)
            break;
        ck_assert_int_eq(status, MM_ERR_MEMORY);
        ck_assert_ptr_null(q);
        ck_assert_uint_eq(bytes_held(), before);
    }
    ck_assert_uint_ge(n, 3);
    mm_view view;
    before = bytes_held();
    mmi_memory_fail_at(1, false);
    ck_status(mm_model_tensor(q, 0, &view), MM_ERR_MEMORY);
    mmi_memory_fail_at(1, false);
    ck_status(mm_model_write(q, 0, &view), MM_ERR_MEMORY);
    mmi_memory_fail_at(0, false);
    ck_assert_uint_eq(bytes_held(), before);
    ck_ok(mm_model_tensor(q, 0, &view));
    mm_model_free(q);
    mm_model_free(model);
    ck_assert_uint_eq(bytes_held(), 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("run/quantized");
    TCase *tests = tcase_create("all");
    tcase_set_timeout(tests, 120);
    tcase_add_loop_test(tests, matrices_are_in_blocks_and_vectors_and_routers_are_not, 0, 2 * MODELS);
    tcase_add_loop_test(tests, copies_are_equal_and_what_was_cast_back_is_near, 0, 2);
    tcase_add_loop_test(tests, blocks_that_are_written_are_what_a_model_runs_with, 0, 2 * MODELS);
    tcase_add_test(tests, any_number_of_threads_may_look_at_blocks);
    tcase_add_loop_test(tests, logits_stay_near_those_of_float32, 0, MODELS);
    tcase_add_loop_test(tests, long_passes_stay_near_what_the_weights_hold, 0, 2 * WHOLE_STRIPS);
    tcase_add_loop_test(tests, a_sequence_is_the_same_in_any_company, 0, 2 * COMPANIES);
    tcase_add_loop_test(tests, running_with_blocks_allocates_nothing, 0, MODELS);
    tcase_add_loop_test(tests, estimates_of_blocks_are_exact, 0, MODELS);
    tcase_add_test(tests, estimates_refuse_dtypes_that_weights_cannot_have);
    tcase_add_test(tests, generation_continues_as_float32_does_where_one_choice_stands_out);
    tcase_add_test(tests, only_dtypes_in_blocks_can_be_quantized_to);
    tcase_add_test(tests, rows_that_are_no_whole_blocks_are_refused_by_name);
    tcase_add_test(tests, quantized_models_are_not_trained);
    tcase_add_test(tests, every_failing_allocation_is_survived);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
