/* Models: making them, looking at them, copying and casting them, and who keeps them alive. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "base/pool.h"
#include "checkpoint.h"
#include "configs.h"
#include "model/model.h"
#include "model/names.h"
#include "support.h"

static mm_view view_of(const mm_model *model, const char *name)
{
    mm_view view;
    ck_ok(mm_model_find(model, name, &view));
    return view;
}

START_TEST(the_same_seed_gives_the_same_weights)
{
    mm_model *a = sample_model(7), *b = sample_model(7), *c = sample_model(8);
    same_weights(a, b);
    ck_assert(!weights_equal(a, c));
    mm_model_free(a);
    mm_model_free(b);
    mm_model_free(c);
    ck_assert_uint_eq(bytes_held(), 0);
}
END_TEST

START_TEST(a_weight_depends_on_seed_tensor_and_place_alone)
{
    mm_config *config = family_config("minimind");
    mm_model *small = NULL, *large = NULL;
    ck_ok(mm_model_create(config, 7, &small));
    ck_ok(mm_config_set_int(config, "vocab_size", 33));
    ck_ok(mm_config_set_int(config, "num_hidden_layers", 3));
    ck_ok(mm_model_create(config, 7, &large));
    for (int64_t i = 0; i < mm_model_tensor_count(small) - 1; i++) {
        mm_view x, y;
        ck_ok(mm_model_tensor(small, i, &x));
        ck_ok(mm_model_tensor(large, i, &y));
        ck_assert_int_eq(memcmp(x.data, y.data, (size_t)(x.shape[0] * x.shape[1]) * sizeof(float)), 0);
    }
    mm_config_free(config);
    mm_model_free(small);
    mm_model_free(large);
}
END_TEST

START_TEST(matrices_are_normal_norms_one_and_biases_zero)
{
    mm_config *config = family_config("llama");
    mm_model *model = NULL;
    ck_ok(mm_config_set_int(config, "vocab_size", 3000));
    ck_ok(mm_config_set_bool(config, "attention_bias", 1));
    ck_ok(mm_config_set_string(config, "norm_type", "layernorm"));
    ck_ok(mm_model_create(config, 3, &model));
    mm_view embedding = view_of(model, "model.embed_tokens.weight");
    const float *w = embedding.data;
    double sum = 0, squares = 0;
    const int n = 3000 * 16;
    for (int i = 0; i < n; i++) {
        sum += w[i];
        squares += (double)w[i] * w[i];
    }
    ck_assert_double_eq_tol(sum / n, 0, 4 * 0.02 / sqrt(n));
    ck_assert_double_eq_tol(sqrt(squares / n), 0.02, 4 * 0.02 / sqrt(2.0 * n));
    ck_assert(w[0] != w[1]);
    ck_assert(memcmp(w, view_of(model, "lm_head.weight").data, 64) != 0);
    const float *norm = view_of(model, "model.layers.1.input_layernorm.weight").data;
    const float *norm_bias = view_of(model, "model.norm.bias").data;
    const float *bias = view_of(model, "model.layers.0.self_attn.q_proj.bias").data;
    for (int i = 0; i < 16; i++) {
        ck_assert_float_eq(norm[i], 1);
        ck_assert_float_eq(norm_bias[i], 0);
        ck_assert_float_eq(bias[i], 0);
    }
    mm_config_free(config);
    mm_model_free(model);
}
END_TEST

static mm_config *config_number(int i)
{
    static const char *const families[] = { "minimind", "minigpt", "llama", "minimind" };
    mm_config *config = family_config(families[i]);
    if (i == 2)
        ck_ok(mm_config_set_bool(config, "attention_bias", 1));
    if (i == 3)
        ck_ok(mm_config_set_int(config, "minimind_version", 3));
    ck_ok(mm_config_set_int(config, "hidden_size", 18 + 2 * i));
    return config;
}

START_TEST(a_model_takes_the_bytes_that_were_estimated)
{
    mm_config *config = config_number(_i);
    uint64_t before = bytes_held();
    mmi_model_cost cost = { 0, 0 };
    ck_ok(mmi_model_estimate(config, MM_F32, false, &cost));
    ck_assert_uint_eq(bytes_held(), before);
    mm_memory_reset_peak();
    mm_model *model = NULL, *copy = NULL, *mapped = NULL;
    ck_ok(mm_model_create(config, 1, &model));
    mm_memory_usage usage = MM_MEMORY_USAGE_INIT;
    ck_ok(mm_memory_get_usage(&usage));
    ck_assert_uint_eq(usage.current - before, cost.weights + cost.handle);
    ck_assert_uint_eq(usage.peak, usage.current);
    ck_ok(mm_model_copy(model, &copy));
    ck_assert_uint_eq(bytes_held() - before, 2 * (cost.weights + cost.handle));
    mm_model_free(copy);

    const char *directory = scratch_directory();
    mm_load_options options = MM_LOAD_OPTIONS_INIT;
    options.map = 1;
    ck_ok(mm_model_save(model, directory));
    uint64_t without = bytes_held();
    ck_ok(mm_model_load(directory, &options, &mapped));
    ck_ok(mmi_model_estimate(mm_model_config(mapped), MM_F32, true, &cost));
    ck_assert_uint_eq(cost.weights, 0);
    ck_assert_uint_eq(bytes_held() - without, cost.handle);
    mm_model_free(mapped);
    mm_model_free(model);
    mm_config_free(config);
    ck_assert_uint_eq(bytes_held(), 0);
}
END_TEST

START_TEST(every_tensor_is_found_by_index_and_by_name)
{
    mm_config *config = config_number(_i);
    mm_model *model = NULL;
    ck_ok(mm_model_create(config, 1, &model));
    int64_t count = 0;
    ck_ok(mm_layout_count(config, &count));
    ck_assert_int_eq(mm_model_tensor_count(model), count);
    const unsigned char *end = NULL;
    for (int64_t i = 0; i < count; i++) {
        mm_tensor_info info = MM_TENSOR_INFO_INIT;
        mm_view view, same;
        ck_ok(mm_layout_get(config, i, &info));
        ck_ok(mm_model_tensor(model, i, &view));
        ck_ok(mm_model_find(model, info.name, &same));
        ck_assert_int_eq(memcmp(&view, &same, sizeof view), 0);
        ck_assert_int_eq(mmi_name_find(mmi_model_layout(model), info.name), i);
        ck_assert_int_eq(view.rank, info.rank);
        ck_assert_int_eq(memcmp(view.shape, info.shape, sizeof view.shape), 0);
        ck_assert_int_eq(view.dtype, MM_F32);
        ck_assert_int_eq(view.strides[view.rank - 1], 1);
        ck_assert_int_eq(view.strides[0], view.rank == 2 ? view.shape[1] : 1);
        ck_assert_int_eq(view.strides[2] + view.strides[3], 0);
        ck_assert_int_eq(view.rank == 1 ? view.strides[1] : 0, 0);
        ck_assert_uint_eq((uintptr_t)view.data % 64, 0);
        ck_assert((const unsigned char *)view.data >= end || !end);
        end = (const unsigned char *)view.data + info.elements * 4;
        mmi_weight weight = mmi_model_weight(model, i);
        ck_assert_ptr_eq(weight.data, view.data);
        ck_assert_int_eq(weight.rows * weight.cols, info.elements);
        ck_assert_int_eq(weight.rows, info.rank == 2 ? info.shape[0] : 1);
    }
    mm_config_free(config);
    mm_model_free(model);
}
END_TEST

START_TEST(tensors_lie_where_the_layout_places_them)
{
    mm_model *model = sample_model(1);
    const mmi_layout *layout = mmi_model_layout(model);
    size_t offsets[ROWS_MAX];
    size_t total = mmi_layout_place(layout, sizeof(float), offsets);
    const unsigned char *first = mmi_model_weight(model, 0).data;
    for (int64_t i = 0; i < layout->count; i++)
        ck_assert_ptr_eq(mmi_model_weight(model, i).data, first + offsets[i]);
    ck_assert_uint_ge(total, offsets[layout->count - 1] + 16 * sizeof(float));
    for (int64_t i = 0; i + 1 < layout->count; i++) { /* nobody reads what lies between, but it is set */
        mmi_weight w = mmi_model_weight(model, i);
        for (size_t at = offsets[i] + (size_t)(w.rows * w.cols) * sizeof(float); at < offsets[i + 1]; at++)
            ck_assert_uint_eq(first[at], 0);
    }
    mm_model_free(model);
}
END_TEST

START_TEST(tensors_that_do_not_exist_are_refused)
{
    static const char *const names[] = {
        "", "model", "model.layers.", "model.layers.0", "model.layers.0.", "model.layers.2.input_layernorm.weight",
        "model.layers.00.input_layernorm.weight", "model.layers.-1.input_layernorm.weight",
        "model.layers.99999999999999999999.input_layernorm.weight", "model.layers.0.input_layernorm.weight ",
        "model.layers.0.self_attn.q_proj.bias", "lm_head.weight", "model.embed_tokens.weigh",
    };
    mm_model *model = sample_model(1);
    mm_view view, untouched;
    memset(&view, 0x5A, sizeof view);
    untouched = view;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        ck_status(mm_model_find(model, names[i], &view), MM_ERR_ARG);
    ck_error_mentions("model.embed_tokens.weigh");
    ck_status(mm_model_tensor(model, -1, &view), MM_ERR_ARG);
    ck_status(mm_model_tensor(model, mm_model_tensor_count(model), &view), MM_ERR_ARG);
    ck_error_mentions("the model has 20");
    ck_status(mm_model_write(model, INT64_MIN, &view), MM_ERR_ARG);
    ck_status(mm_model_find(model, NULL, &view), MM_ERR_ARG);
    ck_status(mm_model_find(NULL, "x", &view), MM_ERR_ARG);
    ck_status(mm_model_find(model, "x", NULL), MM_ERR_ARG);
    ck_status(mm_model_tensor(NULL, 0, &view), MM_ERR_ARG);
    ck_status(mm_model_tensor(model, 0, NULL), MM_ERR_ARG);
    ck_status(mm_model_write(NULL, 0, &view), MM_ERR_ARG);
    ck_assert_int_eq(memcmp(&view, &untouched, sizeof view), 0);
    ck_assert_ptr_null(mmi_model_weight(model, -1).data);
    ck_assert_ptr_null(mmi_model_trainable(model, -1));
    mm_model_free(model);
}
END_TEST

START_TEST(null_pointers_are_refused_or_harmless)
{
    mm_model *model = sample_model(1), *other = NULL;
    ck_status(mm_model_create(NULL, 0, &other), MM_ERR_ARG);
    ck_status(mm_model_create(mm_model_config(model), 0, NULL), MM_ERR_ARG);
    ck_status(mm_model_copy(NULL, &other), MM_ERR_ARG);
    ck_status(mm_model_copy(model, NULL), MM_ERR_ARG);
    ck_status(mm_model_cast(NULL, MM_F32, &other), MM_ERR_ARG);
    ck_status(mm_model_cast(model, MM_F32, NULL), MM_ERR_ARG);
    mm_model_free(NULL);
    mm_model_written(NULL);
    ck_assert_ptr_null(mm_model_config(NULL));
    ck_assert_int_eq(mm_model_tensor_count(NULL), 0);
    ck_assert_ptr_null(other);
    mm_model_free(model);
}
END_TEST

START_TEST(an_impossible_config_makes_no_model)
{
    mm_config *config = family_config("minimind");
    mm_model *model = NULL;
    mmi_model_cost cost = { 0, 0 };
    ck_ok(mm_config_set_int(config, "num_attention_heads", 3));
    ck_ok(mm_config_set_int(config, "num_key_value_heads", 2));
    ck_status(mm_model_create(config, 0, &model), MM_ERR_ARG);
    ck_status(mmi_model_estimate(config, MM_F32, false, &cost), MM_ERR_ARG);
    ck_assert_ptr_null(model);
    mm_config_free(config);
    ck_assert_uint_eq(bytes_held(), 0);
}
END_TEST

START_TEST(writing_shows_in_the_version_and_not_in_copies)
{
    mm_model *model = sample_model(1), *copy = NULL;
    ck_ok(mm_model_copy(model, &copy));
    same_weights(model, copy);
    mm_view view;
    uint64_t version = mmi_model_version(model);
    ck_ok(mm_model_write(model, 3, &view));
    ((float *)view.data)[0] = 42;
    mm_model_written(model);
    ck_assert_uint_gt(mmi_model_version(model), version);
    ck_assert(!weights_equal(model, copy));
    ck_assert_ptr_eq(mmi_model_trainable(model, 3), view.data);
    ck_assert(mmi_model_can_train(copy));
    mm_model_free(model);
    ck_ok(mm_model_tensor(copy, 3, &view));
    mm_model_free(copy);
    ck_assert_uint_eq(bytes_held(), 0);
}
END_TEST

/* What a float becomes: bits in, bits out. */
static const struct rounding {
    float in;
    uint16_t bf16, f16;
} roundings[] = {
    { 0.0f, 0x0000, 0x0000 },
    { -0.0f, 0x8000, 0x8000 },
    { 1.0f, 0x3F80, 0x3C00 },
    { 0x1.01p0f, 0x3F80, 0x3C04 },      /* a tie in bf16: to the even 1.0 */
    { 0x1.03p0f, 0x3F82, 0x3C0C },      /* a tie: up to the even one */
    { 0x1.010002p0f, 0x3F81, 0x3C04 },  /* above the tie */
    { 0x1.002p0f, 0x3F80, 0x3C00 },     /* a tie in f16 */
    { 0x1.006p0f, 0x3F80, 0x3C02 },     /* a tie: up to the even one */
    { 65504.0f, 0x4780, 0x7BFF },       /* the largest f16 */
    { 65519.996f, 0x4780, 0x7BFF },
    { 65520.0f, 0x4780, 0x7C00 },       /* rounds to infinity */
    { -1e30f, 0xF14A, 0xFC00 },
    { 0x1p-24f, 0x3380, 0x0001 },       /* the smallest f16 */
    { 0x1p-25f, 0x3300, 0x0000 },       /* a tie with 0 */
    { 0x1.8p-24f, 0x33C0, 0x0002 },     /* a tie between subnormals */
    { 0x1.fffffep127f, 0x7F80, 0x7C00 },
    { INFINITY, 0x7F80, 0x7C00 },
    { -INFINITY, 0xFF80, 0xFC00 },
};
#define ROUNDINGS (sizeof roundings / sizeof *roundings)

START_TEST(casts_round_to_nearest_even)
{
    mm_model *model = sample_model(1), *bf16 = NULL, *f16 = NULL, *back = NULL;
    mm_view view, b, h, f;
    ck_ok(mm_model_write(model, 0, &view));
    for (size_t i = 0; i < ROUNDINGS; i++)
        ((float *)view.data)[i] = roundings[i].in;
    ((float *)view.data)[ROUNDINGS] = NAN;
    mm_model_written(model);
    ck_ok(mm_model_cast(model, MM_BF16, &bf16));
    ck_ok(mm_model_cast(model, MM_F16, &f16));
    ck_ok(mm_model_tensor(bf16, 0, &b));
    ck_ok(mm_model_tensor(f16, 0, &h));
    ck_assert_int_eq(b.dtype, MM_BF16);
    ck_assert_int_eq(h.dtype, MM_F16);
    for (size_t i = 0; i < ROUNDINGS; i++) {
        ck_assert_msg(((uint16_t *)b.data)[i] == roundings[i].bf16, "%a became bf16 %04x", (double)roundings[i].in,
                      ((uint16_t *)b.data)[i]);
        ck_assert_msg(((uint16_t *)h.data)[i] == roundings[i].f16, "%a became f16 %04x", (double)roundings[i].in,
                      ((uint16_t *)h.data)[i]);
    }
    ck_assert_uint_gt(((uint16_t *)b.data)[ROUNDINGS] & 0x7FFF, 0x7F80);
    ck_assert_uint_gt(((uint16_t *)h.data)[ROUNDINGS] & 0x7FFF, 0x7C00);
    ck_assert(!mmi_model_can_train(bf16));
    ck_assert_ptr_null(mmi_model_trainable(f16, 0));
    ck_ok(mm_model_cast(f16, MM_F32, &back));
    ck_assert(mmi_model_can_train(back));
    ck_ok(mm_model_tensor(back, 0, &f));
    ck_assert_float_eq(((float *)f.data)[3], 0x1.01p0f);
    ck_assert_float_eq(((float *)f.data)[12], 0x1p-24f);
    ck_assert(isnan(((float *)f.data)[ROUNDINGS]));
    mm_model_free(model);
    mm_model_free(bf16);
    mm_model_free(f16);
    mm_model_free(back);
    ck_assert_uint_eq(bytes_held(), 0);
}
END_TEST

START_TEST(casts_between_half_precisions_and_back_are_exact_where_they_can_be)
{
    mm_model *model = sample_model(1), *bf16 = NULL, *wide = NULL, *again = NULL, *f16 = NULL, *direct = NULL;
    ck_ok(mm_model_cast(model, MM_BF16, &bf16));
    ck_ok(mm_model_cast(bf16, MM_F32, &wide));
    ck_ok(mm_model_cast(wide, MM_BF16, &again));
    same_weights(bf16, again);
    ck_ok(mm_model_cast(bf16, MM_F16, &f16));
    ck_ok(mm_model_cast(wide, MM_F16, &direct));
    same_weights(f16, direct);
    mm_model *const all[] = { model, bf16, wide, again, f16, direct };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        mm_model_free(all[i]);
}
END_TEST

START_TEST(only_float_dtypes_can_be_cast_to)
{
    static const int32_t dtypes[] = { MM_I32, MM_I64, -1, 99 };
    mm_model *model = sample_model(1), *other = NULL;
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++)
        ck_status(mm_model_cast(model, dtypes[i], &other), MM_ERR_ARG);
    ck_error_mentions("99");
    ck_assert_ptr_null(other);
    mm_model_free(model);
}
END_TEST

START_TEST(a_model_lives_as_long_as_anybody_holds_it)
{
    mm_model *model = sample_model(1);
    ck_assert_ptr_eq(mmi_model_hold(model), model);
    mm_model_free(model);
    mm_view view;
    ck_ok(mm_model_tensor(model, 0, &view));
    ck_assert_float_ne(((float *)view.data)[0], 0);
    mm_model_free(model);
    ck_assert_uint_eq(bytes_held(), 0);
}
END_TEST

static void hold_and_free(void *arg, int64_t piece, int worker)
{
    (void)worker;
    mm_model *model = mmi_model_hold(arg);
    if (piece % 2)
        mm_model_written(model);
    mm_model_free(model);
}

START_TEST(holds_are_counted_across_threads)
{
    mm_model *model = sample_model(1);
    mmi_pool *pool = NULL;
    ck_ok(mmi_pool_create(4, &pool));
    mmi_pool_run(pool, 20000, hold_and_free, model);
    mmi_pool_free(pool);
    ck_assert_uint_eq(mmi_model_version(model), 10000);
    mm_view view;
    ck_ok(mm_model_tensor(model, 0, &view));
    mm_model_free(model);
    ck_assert_uint_eq(bytes_held(), 0);
}
END_TEST

/* 0: create, 1: copy, 2: cast */
static mm_status make(int what, const mm_model *model, mm_model **out)
{
    if (what == 0)
        return mm_model_create(mm_model_config(model), 5, out);
    return what == 1 ? mm_model_copy(model, out) : mm_model_cast(model, MM_BF16, out);
}

START_TEST(every_failing_allocation_is_survived)
{
    mm_model *model = sample_model(5), *made = NULL;
    uint64_t before = bytes_held(), n = 1;
    for (;; n++) {
        mmi_memory_fail_at(n, false);
        mm_status status = make(_i, model, &made);
        mmi_memory_fail_at(0, false);
        if (status == MM_OK)
            break;
        ck_assert_int_eq(status, MM_ERR_MEMORY);
        ck_assert_ptr_null(made);
        ck_assert_uint_eq(bytes_held(), before);
    }
    ck_assert_uint_ge(n, 4);
    mm_model_free(made);
    mm_model_free(model);
    ck_assert_uint_eq(bytes_held(), 0);
}
END_TEST

START_TEST(names_of_mini_llm_are_translated)
{
    static const char *const pairs[][2] = {
        { "token_embedding.weight", "model.embed_tokens.weight" },
        { "layer_norm.weight", "model.norm.weight" },
        { "transformer_blocks.0.norm1.weight", "model.layers.0.input_layernorm.weight" },
        { "transformer_blocks.11.norm2.weight", "model.layers.11.post_attention_layernorm.weight" },
        { "transformer_blocks.3.attention.q_proj.weight", "model.layers.3.self_attn.q_proj.weight" },
        { "transformer_blocks.3.feed_forward.w_gate.weight", "model.layers.3.mlp.gate_proj.weight" },
        { "transformer_blocks.3.feed_forward.w_up.weight", "model.layers.3.mlp.up_proj.weight" },
        { "transformer_blocks.3.feed_forward.w_down.weight", "model.layers.3.mlp.down_proj.weight" },
        { "transformer_blocks.3.feed_forward.router.gate.weight", "model.layers.3.mlp.gate.weight" },
        { "transformer_blocks.3.feed_forward.routed_moe.router.gate.weight", "model.layers.3.mlp.gate.weight" },
        { "transformer_blocks.3.feed_forward.experts.12.ffn.w_up.weight",
          "model.layers.3.mlp.experts.12.up_proj.weight" },
        { "transformer_blocks.3.feed_forward.routed_moe.experts.0.ffn.linear1.weight",
          "model.layers.3.mlp.experts.0.up_proj.weight" },
        { "transformer_blocks.3.feed_forward.shared_experts.1.ffn.linear2.weight",
          "model.layers.3.mlp.shared_experts.1.down_proj.weight" },
        { "transformer_blocks.3.feed_forward.shared_weight", "model.layers.3.mlp.shared_weight" },
        { "transformer_blocks.3.feed_forward.routed_weight", "model.layers.3.mlp.routed_weight" },
    };
    static const char *const others[] = {
        "", "model.norm.weight", "lm_head.weight", "token_embedding", "transformer_blocks.norm1.weight",
        "transformer_blocks.1", "transformer_blocks.1.norm3.weight", "transformer_blocks..norm1.weight",
        "transformer_blocks.1.feed_forward.linear1.weight", "transformer_blocks.1.feed_forward.experts.ffn.w_up.weight",
        "transformer_blocks.1.feed_forward.routed_moe.shared_experts.0.ffn.w_up.weight",
        "transformer_blocks.1.feed_forward.experts.0.w_up.weight", "transformer_blocks.1.feed_forward.shared_weights",
        "transformer_blocks.1.feed_forward.routed_moe.w_up.weight",
    };
    char out[600];
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        ck_assert(mmi_name_translate(out, sizeof out, pairs[i][0]));
        ck_assert_str_eq(out, pairs[i][1]);
        ck_assert_uint_lt(strlen(out), strlen(pairs[i][0]) + MMI_NAME_GROWTH);
    }
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        ck_assert_msg(!mmi_name_translate(out, sizeof out, others[i]), "%s became %s", others[i], out);
}
END_TEST

/* Its weights alone take all that 32 bits address. */
START_TEST(a_model_beyond_the_machine_is_counted_and_not_made)
{
    mm_config *config = config_of("{'model_type':'minimind','minimind_version':2,'hidden_size':1024,"
                                  "'num_hidden_layers':1,'num_attention_heads':8,'vocab_size':1048576}");
    mm_param_count count = MM_PARAM_COUNT_INIT;
    ck_ok(mm_count_params(config, &count));
    ck_assert_int_gt(count.total, 1 << 30);
    mmi_model_cost cost;
    if (SIZE_MAX > UINT32_MAX) {
        ck_ok(mmi_model_estimate(config, MM_F32, false, &cost));
        ck_assert_uint_ge(cost.weights / sizeof(float), (uint64_t)count.total);
    } else {
        mm_model *model = NULL;
        ck_status(mmi_model_estimate(config, MM_F32, false, &cost), MM_ERR_ARG);
        ck_status(mm_model_create(config, 1, &model), MM_ERR_ARG);
        ck_error_mentions("beyond this machine");
    }
    mm_config_free(config);
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("model/model");
    TCase *c = tcase_create("model");
    tcase_add_test(c, the_same_seed_gives_the_same_weights);
    tcase_add_test(c, a_weight_depends_on_seed_tensor_and_place_alone);
    tcase_add_test(c, matrices_are_normal_norms_one_and_biases_zero);
    tcase_add_loop_test(c, a_model_takes_the_bytes_that_were_estimated, 0, 4);
    tcase_add_loop_test(c, every_tensor_is_found_by_index_and_by_name, 0, 4);
    tcase_add_test(c, tensors_lie_where_the_layout_places_them);
    tcase_add_test(c, tensors_that_do_not_exist_are_refused);
    tcase_add_test(c, null_pointers_are_refused_or_harmless);
    tcase_add_test(c, an_impossible_config_makes_no_model);
    tcase_add_test(c, a_model_beyond_the_machine_is_counted_and_not_made);
    tcase_add_test(c, writing_shows_in_the_version_and_not_in_copies);
    tcase_add_test(c, casts_round_to_nearest_even);
    tcase_add_test(c, casts_between_half_precisions_and_back_are_exact_where_they_can_be);
    tcase_add_test(c, only_float_dtypes_can_be_cast_to);
    tcase_add_test(c, a_model_lives_as_long_as_anybody_holds_it);
    tcase_add_test(c, holds_are_counted_across_threads);
    tcase_add_loop_test(c, every_failing_allocation_is_survived, 0, 3);
    tcase_add_test(c, names_of_mini_llm_are_translated);
    suite_add_tcase(suite, c);
    return suite;
}

int main(void)
{
    return run_suite(make_suite());
}
