/* Quantized models in files: what is written, that it comes back bit for bit, what is refused. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/dtype.h"
#include "base/memory.h"
#include "checkpoint.h"
#include "model/model.h"
#include "support.h"

/* Rows of two and three blocks, matrices with rows that no strip is full of. */
#define SHAPE                                                                                                          \
    "\"hidden_size\":64,\"num_hidden_layers\":2,\"num_attention_heads\":4,\"num_key_value_heads\":1,"                  \
    "\"vocab_size\":21,\"intermediate_size\":96,\"torch_dtype\":\"bfloat16\""

static const char *const configs[] = {
    "{\"model_type\":\"minimind\",\"minimind_version\":2," SHAPE "}", /* tied */
    "{\"model_type\":\"llama\",\"attention_bias\":true,\"tie_word_embeddings\":false," SHAPE "}",
    "{\"model_type\":\"minimind\",\"minimind_version\":3,\"use_moe\":true,\"num_experts\":3,\"num_experts_per_tok\":2,"
    "\"moe_intermediate_size\":32," SHAPE "}",
};
enum { CONFIGS = sizeof configs / sizeof *configs, TIED = 0, UNTIED = 1, EXPERTS = 2 };
static const int32_t dtypes[] = { MM_Q8_0, MM_Q4_0 };

static const mm_load_options kept = { sizeof kept, 0, 1 };
static const mm_load_options mapped = { sizeof mapped, 1, 0 };

static mm_model *quantized(int config, uint64_t seed, int32_t dtype)
{
    mm_config *c = NULL;
    mm_model *model = NULL, *q = NULL;
    ck_ok(mm_config_load_memory(configs[config], strlen(configs[config]), &c));
    ck_ok(mm_model_create(c, seed, &model));
    ck_ok(mm_model_quantize(model, dtype, &q));
    mm_model_free(model);
    mm_config_free(c);
    return q;
}

static void loads_as(const char *directory, const mm_model *expected)
{
    const mm_load_options *const ways[] = { NULL, &kept, &mapped };
    char *image = NULL;
    size_t size = 0;
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        mm_model *model = NULL;
        ck_ok(mm_model_load(directory, ways[i], &model));
        same_weights(model, expected);
        mm_model_free(model);
    }
    mm_model *from_memory = NULL;
    ck_ok(mmi_read_file(in(directory, "model.safetensors"), &image, &size));
    ck_ok(mm_model_load_memory(mm_model_config(expected), image, size, &from_memory));
    same_weights(from_memory, expected);
    mm_model_free(from_memory);
    mmi_free(image);
}

static void refuses(const char *directory, mm_status expected, const char *words)
{
    const mm_load_options *const ways[] = { NULL, &mapped };
    uint64_t before = bytes_held();
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        mm_model *model = NULL;
        ck_status(mm_model_load(directory, ways[i], &model), expected);
        ck_error_mentions(words);
        ck_assert_ptr_null(model);
        ck_assert_uint_eq(bytes_held(), before);
    }
}

START_TEST(what_was_saved_loads_bit_for_bit_whichever_way)
{
    mm_model *q = quantized(_i % CONFIGS, 1, dtypes[_i / CONFIGS]), *again = NULL;
    const char *directory = in(scratch_directory(), "saved"), *second = in(scratch_directory(), "second");
    ck_ok(mm_model_save(q, directory));
    loads_as(directory, q);
    ck_ok(mm_model_load(directory, &mapped, &again));
    ck_ok(mm_model_save(again, second));
    char *a = NULL, *b = NULL;
    size_t size_a = 0, size_b = 0;
    ck_ok(mmi_read_file(in(directory, "model.safetensors"), &a, &size_a));
    ck_ok(mmi_read_file(in(second, "model.safetensors"), &b, &size_b));
    ck_assert_uint_eq(size_a, size_b);
    ck_assert_mem_eq(a, b, size_a);
    mmi_free(a);
    mmi_free(b);
    mm_model_free(again);
    mm_model_free(q);
    ck_assert_uint_eq(bytes_held(), 0);
}
END_TEST

/* Row by row, in GGUF's order, as the model's views are. */
START_TEST(the_file_holds_rows_of_blocks_and_says_so)
{
    mm_model *q = quantized(EXPERTS, 2, dtypes[_i]);
    rows r;
    rows_of(&r, q);
    const char *directory = in(scratch_directory(), "saved");
    ck_ok(mm_model_save(q, directory));
    mmi_st_file file;
    ck_ok(mmi_st_open(in(directory, "model.safetensors"), &file));
    ck_assert_uint_eq(file.count, r.count);
    for (size_t i = 0; i < r.count; i++) {
        const mmi_st_entry *e = mmi_st_find(&file, r.entries[i].name), *wanted = &r.entries[i];
        ck_assert_ptr_nonnull(e);
        ck_assert_int_eq(e->dtype, wanted->dtype);
        ck_assert_int_eq(e->rank, wanted->rank);
        ck_assert_mem_eq(e->shape, wanted->shape, sizeof e->shape);
        ck_assert_mem_eq(e->data, wanted->data, e->bytes);
    }
    const mmi_st_entry *embedding = mmi_st_find(&file, "model.embed_tokens.weight");
    const mmi_st_entry *router = mmi_st_find(&file, "model.layers.1.mlp.gate.weight");
    const mmi_st_entry *norm = mmi_st_find(&file, "model.norm.weight");
    ck_assert_int_eq(embedding->dtype, MMI_ST_BYTES);
    ck_assert_int_eq(embedding->shape[0], 21);
    ck_assert_int_eq(embedding->shape[1], dtypes[_i] == MM_Q8_0 ? 2 * 34 : 2 * 18);
    ck_assert_int_eq(router->dtype, MM_F32);
    ck_assert_int_eq(norm->dtype, MM_F32);
    char text[32];
    ck_ok(mmi_st_metadata(&file, "dtype", text, sizeof text));
    ck_assert_str_eq(text, mm_dtype_name(dtypes[_i]));
    ck_ok(mmi_st_metadata(&file, "format", text, sizeof text)); /* not "pt": PyTorch has no such tensors */
    ck_assert_str_eq(text, "minimind");
    mmi_st_close(&file);
    char line[64], *config = NULL;
    size_t size = 0;
    ck_ok(mmi_read_file(in(directory, "config.json"), &config, &size));
    snprintf(line, sizeof line, "\"torch_dtype\": \"%s\"", mm_dtype_name(dtypes[_i]));
    ck_assert_ptr_nonnull(strstr(config, line));
    mmi_free(config);
    mm_model_free(q);
}
END_TEST

START_TEST(half_vectors_beside_blocks_become_float32)
{
    mm_model *q = quantized(TIED, 3, MM_Q8_0), *half = NULL;
    mm_view norm;
    rows r;
    ck_ok(mm_model_cast(q, MM_BF16, &half));
    ck_ok(mm_model_find(half, "model.norm.weight", &norm));
    rows_of(&r, q);
    row_named(&r, "model.norm.weight")->dtype = MM_BF16;
    row_named(&r, "model.norm.weight")->data = norm.data; /* ones, which bf16 holds */
    loads_as(directory_of(q, &r), q);
    mm_model_free(half);
    mm_model_free(q);
}
END_TEST

/* Blocks that an embedding of float32 stands beside, blocks of another kind, a router in blocks, a matrix without. */
START_TEST(matrices_of_more_than_one_kind_are_refused_by_name)
{
    static const unsigned char zeros[21 * 64 * 4];
    mm_model *q = quantized(EXPERTS, 4, MM_Q8_0);
    rows whole, r;
    rows_of(&whole, q);

    r = whole;
    mmi_st_entry *e = row_named(&r, "model.embed_tokens.weight");
    e->dtype = MM_F32, e->shape[1] = 64, e->data = zeros;
    refuses(directory_of(q, &r), MM_ERR_UNSUPPORTED,
            "is q8_0 beside model.embed_tokens.weight, which is f32: of a quantized model all matrices");

    r = whole;
    e = row_named(&r, "model.layers.1.self_attn.k_proj.weight");
    e->shape[1] = 2 * 18;
    refuses(directory_of(q, &r), MM_ERR_UNSUPPORTED,
            "model.layers.1.self_attn.k_proj.weight is q4_0 beside model.embed_tokens.weight, which is q8_0");

    r = whole;
    e = row_named(&r, "model.layers.0.self_attn.k_proj.weight");
    e->dtype = MM_BF16, e->shape[1] = 64, e->data = zeros;
    refuses(directory_of(q, &r), MM_ERR_UNSUPPORTED, "model.layers.0.self_attn.k_proj.weight is bf16 beside");

    r = whole;
    e = row_named(&r, "model.layers.0.mlp.gate.weight");
    e->dtype = MMI_ST_BYTES, e->shape[1] = 2 * 34;
    refuses(directory_of(q, &r), MM_ERR_UNSUPPORTED, "model.layers.0.mlp.gate.weight is q8_0 beside");
    mm_model_free(q);
}
END_TEST

START_TEST(bytes_that_are_no_blocks_are_refused_by_name)
{
    static const unsigned char zeros[64 * 96];
    mm_model *q = quantized(TIED, 5, MM_Q4_0), *odd = sample_model(1);
    rows whole, r;
    rows_of(&whole, q);

    r = whole;
    mmi_st_entry *e = row_named(&r, "model.layers.1.mlp.down_proj.weight");
    e->shape[1] = 3 * 18 - 1;
    refuses(directory_of(q, &r), MM_ERR_FORMAT, "mlp.down_proj.weight is U8 [64, 53], config.json implies [64, 96]");

    r = whole;
    e = row_named(&r, "model.layers.1.mlp.down_proj.weight");
    e->shape[0] = 63;
    refuses(directory_of(q, &r), MM_ERR_FORMAT, "mlp.down_proj.weight is U8 [63, 54], config.json implies [64, 96]");

    r = whole;
    e = row_named(&r, "model.layers.1.mlp.down_proj.weight");
    e->shape[1] = 96, e->data = zeros;
    refuses(directory_of(q, &r), MM_ERR_UNSUPPORTED, "mlp.down_proj.weight is U8, weights may be F32, BF16 or F16");

    r = whole;
    e = row_named(&r, "model.norm.weight");
    e->dtype = MMI_ST_BYTES, e->shape[0] = 2 * 18, e->data = zeros;
    refuses(directory_of(q, &r), MM_ERR_FORMAT, "model.norm.weight is U8 [36], config.json implies [64]");

    rows_of(&r, odd); /* rows of 16 are half a block */
    e = row_named(&r, "model.embed_tokens.weight");
    e->dtype = MMI_ST_BYTES, e->shape[1] = 18, e->data = zeros;
    refuses(directory_of(odd, &r), MM_ERR_FORMAT, "model.embed_tokens.weight is U8 [20, 18], config.json implies");
    mm_model_free(odd);
    mm_model_free(q);
}
END_TEST

START_TEST(a_tied_head_must_equal_the_embedding)
{
    mm_model *q = quantized(TIED, 6, MM_Q8_0);
    rows r;
    rows_of(&r, q);
    const mmi_st_entry *embedding = row_named(&r, "model.embed_tokens.weight");
    unsigned char other[21 * 2 * 34];
    memcpy(other, embedding->data, sizeof other);
    add_row(&r, "lm_head.weight", MMI_ST_BYTES, 2, 21, 2 * 34, other);
    loads_as(directory_of(q, &r), q);
    other[sizeof other - 1] ^= 1;
    refuses(directory_of(q, &r), MM_ERR_FORMAT, "lm_head.weight differs from model.embed_tokens.weight");
    mm_model_free(q);
}
END_TEST

START_TEST(a_tied_head_alone_is_the_embedding)
{
    mm_model *q = quantized(TIED, 7, MM_Q4_0);
    rows r;
    rows_of(&r, q);
    mmi_st_entry *embedding = row_named(&r, "model.embed_tokens.weight");
    snprintf(embedding->name, MMI_ST_NAME_MAX, "lm_head.weight");
    loads_as(directory_of(q, &r), q);
    mm_model_free(q);
}
END_TEST

/* A view of blocks is a copy: what is written there is the model's, and a file's, from mm_model_written() on. */
START_TEST(what_is_written_to_a_view_is_saved_once_it_is_said)
{
    mm_model *q = quantized(UNTIED, 11, dtypes[_i]), *before = NULL, *again = NULL;
    const char *directory = in(scratch_directory(), "saved");
    mm_view view;
    ck_ok(mm_model_copy(q, &before));
    ck_ok(mm_model_write(q, 0, &view));
    ((unsigned char *)view.data)[mmi_dtype_bytes(view.dtype, view.shape[0] * view.shape[1]) - 1] ^= 0x55;
    ck_ok(mm_model_save(q, directory));
    loads_as(directory, before);
    mm_model_written(q);
    ck_ok(mm_model_save(q, directory));
    loads_as(directory, q);
    ck_ok(mm_model_load(directory, NULL, &again));
    ck_assert(!weights_equal(again, before));
    mm_model_free(again);
    mm_model_free(before);
    mm_model_free(q);
}
END_TEST

/* Wide enough for rows that are read in parts, and for chunks that end within one. */
START_TEST(rows_of_any_length_are_read)
{
    static const int widths[] = { 32, 1024, 4064, 20000 };
    char json[512];
    mm_config *config = NULL;
    mm_model *model = NULL, *q = NULL;
    snprintf(json, sizeof json,
             "{\"model_type\":\"minimind\",\"hidden_size\":32,\"num_hidden_layers\":1,\"num_attention_heads\":2,"
             "\"num_key_value_heads\":1,\"intermediate_size\":%d,\"vocab_size\":33}",
             widths[_i]);
    ck_ok(mm_config_load_memory(json, strlen(json), &config));
    ck_ok(mm_model_create(config, 8, &model));
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++) {
        ck_ok(mm_model_quantize(model, dtypes[i], &q));
        const char *directory = in(scratch_directory(), "saved");
        ck_ok(mm_model_save(q, directory));
        loads_as(directory, q);
        mm_model_free(q);
    }
    mm_model_free(model);
    mm_config_free(config);
}
END_TEST

/* Beyond a writer's buffer, which is 2 MB here. */
START_TEST(saving_and_loading_take_no_second_copy)
{
    mm_config *config = NULL;
    mm_model *model = NULL, *q = NULL, *again = NULL;
    ck_ok(mm_config_create("minimind2-small", &config));
    ck_ok(mm_config_set_int(config, "num_hidden_layers", 4));
    ck_ok(mm_model_create(config, 1, &model));
    ck_ok(mm_model_quantize(model, MM_Q8_0, &q));
    mm_model_free(model);
    const char *directory = in(scratch_directory(), "saved");
    mm_memory_reset_peak();
    uint64_t held = bytes_held();
    ck_ok(mm_model_save(q, directory));
    mm_memory_usage usage = MM_MEMORY_USAGE_INIT;
    ck_ok(mm_memory_get_usage(&usage));
    ck_assert_uint_lt(usage.peak - held, held / 4);
    ck_assert_uint_eq(bytes_held(), held);
    mm_model_free(q);
    mm_memory_reset_peak();
    ck_ok(mm_model_load(directory, NULL, &again));
    ck_ok(mm_memory_get_usage(&usage));
    ck_assert_uint_lt(usage.peak, held + held / 4);
    mm_model_free(again);
    mm_config_free(config);
}
END_TEST

START_TEST(no_mutation_of_an_image_does_harm)
{
    mm_model *q = quantized(UNTIED, 9, dtypes[_i]);
    const char *directory = in(scratch_directory(), "saved");
    ck_ok(mm_model_save(q, directory));
    mutated_images_do_no_harm(mm_model_config(q), in(directory, "model.safetensors"), 9, 4000);
    mm_model_free(q);
}
END_TEST

START_TEST(every_failing_allocation_is_survived)
{
    mm_model *q = quantized(EXPERTS, 10, MM_Q8_0), *out = NULL;
    const char *directory = in(scratch_directory(), "saved");
    uint64_t before = bytes_held(), n;
    for (n = 1;; n++) {
        mmi_memory_fail_at(n, false);
        mm_status status = mm_model_save(q, directory);
        mmi_memory_fail_at(0, false);
        ck_assert_uint_eq(bytes_held(), before);
        if (status == MM_OK)
            break;
        ck_assert_int_eq(status, MM_ERR_MEMORY);
    }
    ck_assert_uint_gt(n, 8);
    for (n = 1;; n++) {
        mmi_memory_fail_at(n, false);
        mm_status status = mm_model_load(directory, _i ? &mapped : NULL, &out);
        mmi_memory_fail_at(0, false);
        if (status == MM_OK)
            break;
        ck_assert_int_eq(status, MM_ERR_MEMORY);
        ck_assert_ptr_null(out);
        ck_assert_uint_eq(bytes_held(), before);
    }
    ck_assert_uint_gt(n, 8);
    same_weights(out, q);
    mm_model_free(out);
    mm_model_free(q);
    ck_assert_uint_eq(bytes_held(), 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("model/quantized");
    TCase *tests = tcase_create("all");
    tcase_set_timeout(tests, 120);
    tcase_add_loop_test(tests, what_was_saved_loads_bit_for_bit_whichever_way, 0, 2 * CONFIGS);
    tcase_add_loop_test(tests, the_file_holds_rows_of_blocks_and_says_so, 0, 2);
    tcase_add_test(tests, half_vectors_beside_blocks_become_float32);
    tcase_add_test(tests, matrices_of_more_than_one_kind_are_refused_by_name);
    tcase_add_test(tests, bytes_that_are_no_blocks_are_refused_by_name);
    tcase_add_test(tests, a_tied_head_must_equal_the_embedding);
    tcase_add_test(tests, a_tied_head_alone_is_the_embedding);
    tcase_add_loop_test(tests, what_is_written_to_a_view_is_saved_once_it_is_said, 0, 2);
    tcase_add_loop_test(tests, rows_of_any_length_are_read, 0, 4);
    tcase_add_test(tests, saving_and_loading_take_no_second_copy);
    tcase_add_loop_test(tests, no_mutation_of_an_image_does_harm, 0, 2);
    tcase_add_loop_test(tests, every_failing_allocation_is_survived, 0, 2);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
