/* Loading models: what is accepted, what is refused and in which words, whatever the file. */
#define _GNU_SOURCE /* madvise, syscall */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/json.h"
#include "base/memory.h"
#include "checkpoint.h"
#include "model/model.h"
#include "support.h"

static const mm_load_options copied = { sizeof copied, 0, 0 };
static const mm_load_options kept = { sizeof kept, 0, 1 };
static const mm_load_options mapped = { sizeof mapped, 1, 0 };

static mm_model *load(const char *directory, const mm_load_options *options)
{
    mm_model *model = NULL;
    ck_ok(mm_model_load(directory, options, &model));
    return model;
}

/* Refused both ways, in these words, and nothing is left behind. */
static void refuses(const char *directory, mm_status expected, const char *words)
{
    const mm_load_options *const ways[] = { NULL, &mapped };
    uint64_t before = bytes_held();
    for (size_t i = 0; i < 2; i++) {
        mm_model *model = NULL;
        ck_status(mm_model_load(directory, ways[i], &model), expected);
        ck_error_mentions(words);
        ck_assert_ptr_null(model);
        ck_assert_uint_eq(bytes_held(), before);
    }
}

static void loads_as(const char *directory, const mm_model *expected)
{
    mm_model *model = load(directory, NULL);
    same_weights(model, expected);
    mm_model_free(model);
}

/* --- What is accepted --- */

START_TEST(a_model_loads_the_same_copied_kept_mapped_or_from_memory)
{
    mm_model *model = sample_model(1), *from_memory = NULL;
    rows r;
    rows_of(&r, model);
    const char *directory = directory_of(model, &r);
    mm_model *a = load(directory, NULL), *b = load(directory, &copied), *c = load(directory, &kept);
    mm_model *d = load(directory, &mapped);
    char *data = NULL;
    size_t size = 0;
    ck_ok(mmi_read_file(in(directory, "model.safetensors"), &data, &size));
    ck_ok(mm_model_load_memory(mm_model_config(model), data, size, &from_memory));
    mmi_free(data);
    mm_model *const all[] = { a, b, c, d, from_memory };
    for (size_t i = 0; i < 5; i++) {
        same_weights(all[i], model);
        ck_assert_int_eq(mmi_model_can_train(all[i]), all[i] != d);
        mm_model_free(all[i]);
    }
    mm_model_free(model);
    ck_assert_uint_eq(bytes_held(), 0);
}
END_TEST

enum { LARGE_PAGE = 2 << 20 };

static struct {
    int calls;
    uintptr_t from, to;
} large_pages; /* that were asked for */

/* Stands before the C library's. */
int madvise(void *from, size_t size, int advice)
{
    if (advice == MADV_HUGEPAGE) {
        large_pages.calls++;
        large_pages.from = (uintptr_t)from;
        large_pages.to = (uintptr_t)from + size;
    }
    return (int)syscall(SYS_madvise, from, size, advice);
}

START_TEST(mapped_weights_ask_for_the_large_pages_that_lie_within_them)
{
    mm_config *config = NULL;
    mm_model *model = NULL;
    ck_ok(mm_config_create("minillm-tiny", &config)); /* 11 MB */
    ck_ok(mm_model_create(config, 1, &model));
    mm_config_free(config);
    const char *directory = scratch_directory();
    ck_ok(mm_model_save(model, directory));
    mm_model_free(model);
    large_pages.calls = 0;
    model = load(directory, &mapped);
    mm_view first, last;
    ck_ok(mm_model_tensor(model, 0, &first));
    ck_ok(mm_model_tensor(model, mm_model_tensor_count(model) - 1, &last));
    const uintptr_t a = (uintptr_t)first.data, b = (uintptr_t)last.data;
    ck_assert_int_eq(large_pages.calls, 1);
    ck_assert_uint_eq(large_pages.from % LARGE_PAGE, 0);
    ck_assert_uint_eq(large_pages.to % LARGE_PAGE, 0);
    ck_assert_uint_lt(large_pages.from - LARGE_PAGE, a < b ? a : b);
    ck_assert_uint_gt(large_pages.to + LARGE_PAGE, a < b ? b : a);
    ck_assert_uint_ge(large_pages.to - large_pages.from, 8 << 20);
    mm_model_free(model);

    large_pages.calls = 0;
    mmi_ask_for_large_pages(NULL, 0);
    mmi_ask_for_large_pages((const char *)(uintptr_t)(LARGE_PAGE + 1), 2 * LARGE_PAGE - 2); /* no whole one */
    ck_assert_int_eq(large_pages.calls, 0);
}
END_TEST

START_TEST(mapped_weights_cannot_be_written_but_a_copy_can)
{
    mm_model *model = sample_model(1), *copy = NULL;
    rows r;
    rows_of(&r, model);
    mm_model *map = load(directory_of(model, &r), &mapped);
    mm_view view;
    ck_status(mm_model_write(map, 0, &view), MM_ERR_STATE);
    ck_error_mentions("mapped");
    ck_assert_ptr_null(mmi_model_trainable(map, 0));
    ck_ok(mm_model_copy(map, &copy));
    mm_model_free(map);
    ck_ok(mm_model_write(copy, 0, &view));
    ck_assert(mmi_model_can_train(copy));
    same_weights(copy, model);
    mm_model_free(copy);
    mm_model_free(model);
    ck_assert_uint_eq(bytes_held(), 0);
}
END_TEST

START_TEST(half_precision_is_widened_unless_it_is_kept_or_mapped)
{
    mm_model *model = sample_model(1), *half = NULL, *wide = NULL;
    ck_ok(mm_model_cast(model, _i ? MM_F16 : MM_BF16, &half));
    ck_ok(mm_model_cast(half, MM_F32, &wide));
    rows r;
    rows_of(&r, half);
    const char *directory = directory_of(half, &r);
    loads_as(directory, wide);
    mm_model *keep = load(directory, &kept), *map = load(directory, &mapped);
    same_weights(keep, half);
    same_weights(map, half);
    ck_assert(!mmi_model_can_train(keep));
    mm_model_free(keep);
    mm_model_free(map);
    mm_model_free(wide);
    mm_model_free(half);
    mm_model_free(model);
}
END_TEST

START_TEST(tensors_of_one_file_may_differ_in_dtype)
{
    mm_model *model = sample_model(1), *half = NULL;
    rows r, h;
    ck_ok(mm_model_cast(model, MM_BF16, &half));
    rows_of(&r, model);
    rows_of(&h, half);
    for (size_t i = 0; i < r.count; i += 2) {
        r.entries[i].dtype = MM_BF16;
        r.entries[i].data = h.entries[i].data;
    }
    const char *directory = directory_of(model, &r);
    mm_model *keep = load(directory, &kept), *map = load(directory, &mapped), *wide = load(directory, NULL), *cast = NULL;
    same_weights(keep, map);
    ck_assert(!mmi_model_can_train(keep));
    ck_assert_int_eq(mmi_model_weight(keep, 0).dtype, MM_BF16);
    ck_assert_int_eq(mmi_model_weight(keep, 1).dtype, MM_F32);
    ck_ok(mm_model_cast(keep, MM_F32, &cast));
    same_weights(cast, wide);
    mm_model *const all[] = { model, half, keep, map, wide, cast };
    for (size_t i = 0; i < 6; i++)
        mm_model_free(all[i]);
    ck_assert_uint_eq(bytes_held(), 0);
}
END_TEST

START_TEST(loading_takes_no_second_copy_of_the_weights)
{
    mm_config *config = family_config("minimind");
    mm_model *model = NULL;
    ck_ok(mm_config_set_int(config, "vocab_size", 60000));
    ck_ok(mm_model_create(config, 1, &model));
    mm_config_free(config);
    const char *directory = scratch_directory();
    ck_ok(mm_model_save(model, directory));
    uint64_t one = bytes_held();
    mm_memory_reset_peak();
    mm_model *again = load(directory, NULL);
    mm_memory_usage usage = MM_MEMORY_USAGE_INIT;
    ck_ok(mm_memory_get_usage(&usage));
    ck_assert_uint_lt(usage.peak, 2 * one + 65536);
    mm_model_free(again);
    mm_model_free(model);
}
END_TEST

START_TEST(tables_of_other_programs_are_passed_over)
{
    static const float values[4] = { 1, 2, 3, 4 };
    static const int64_t whole[1] = { 5 };
    mm_model *model = sample_model(1);
    rows r;
    rows_of(&r, model);
    add_row(&r, "model.freqs_cos", MM_F32, 2, 2, 2, values);
    add_row(&r, "model.freqs_sin", MM_BF16, 1, 4, 1, values);
    add_row(&r, "positional_encoding.pe", MM_F32, 2, 1, 4, values);
    add_row(&r, "model.layers.0.self_attn.rotary_emb.inv_freq", MM_F32, 1, 4, 1, values);
    add_row(&r, "model.rotary_emb.inv_freq", MM_I64, 1, 1, 1, whole);
    const char *directory = directory_of(model, &r);
    patch_file(in(directory, "model.safetensors"), "\"dtype\":\"I64\"", "\"dtype\":\"F64\"");
    loads_as(directory, model);
    add_row(&r, "rotary_emb.inv_freq", MM_F32, 1, 4, 1, values);
    refuses(directory_of(model, &r), MM_ERR_FORMAT, "rotary_emb.inv_freq is no tensor of the model that config.json");
    mm_model_free(model);
}
END_TEST

START_TEST(a_tied_head_must_equal_the_embedding)
{
    mm_model *model = sample_model(1), *half = NULL;
    mm_view embedding;
    rows r;
    ck_ok(mm_model_cast(model, MM_F16, &half));
    ck_ok(mm_model_tensor(model, 0, &embedding));
    rows_of(&r, model);
    add_row(&r, "lm_head.weight", MM_F32, 2, 20, 16, embedding.data);
    loads_as(directory_of(model, &r), model);

    float other[20 * 16];
    memcpy(other, embedding.data, sizeof other);
    other[319] = 3;
    mmi_st_entry *head = row_named(&r, "lm_head.weight");
    head->data = other;
    refuses(directory_of(model, &r), MM_ERR_FORMAT,
            "lm_head.weight differs from model.embed_tokens.weight, to which config.json ties it");
    head->data = embedding.data;
    head->shape[0] = 16;
    head->shape[1] = 20;
    refuses(directory_of(model, &r), MM_ERR_FORMAT, "lm_head.weight is [16, 20], config.json implies [20, 16]");
    head->shape[0] = 20;
    head->shape[1] = 16;
    head->dtype = MM_F16;
    ck_ok(mm_model_tensor(half, 0, &embedding));
    head->data = embedding.data;
    refuses(directory_of(model, &r), MM_ERR_FORMAT, "lm_head.weight differs");
    mm_model_free(half);
    mm_model_free(model);
}
END_TEST

/* safetensors' save_model() writes each memory once, under the name that sorts first. */
START_TEST(a_tied_head_alone_is_the_embedding)
{
    mm_model *model = sample_model(1);
    rows r;
    rows_of(&r, model);
    mmi_st_entry *embedding = row_named(&r, "model.embed_tokens.weight");
    snprintf(r.names[embedding - r.entries], sizeof r.names[0], "lm_head.weight");
    loads_as(directory_of(model, &r), model);

    embedding->shape[0] = 10;
    embedding->shape[1] = 32;
    refuses(directory_of(model, &r), MM_ERR_FORMAT, "lm_head.weight is [10, 32], config.json implies [20, 16]");
    drop_row(&r, "lm_head.weight");
    refuses(directory_of(model, &r), MM_ERR_FORMAT, "model.embed_tokens.weight is missing, which config.json implies");
    mm_model_free(model);

    mm_config *config = family_config("minimind");
    ck_ok(mm_config_set_bool(config, "tie_word_embeddings", 0));
    ck_ok(mm_model_create(config, 1, &model));
    mm_config_free(config);
    rows_of(&r, model);
    ck_assert_ptr_nonnull(row_named(&r, "lm_head.weight"));
    drop_row(&r, "model.embed_tokens.weight");
    refuses(directory_of(model, &r), MM_ERR_FORMAT, "model.embed_tokens.weight is missing, which config.json implies");
    mm_model_free(model);
}
END_TEST

START_TEST(a_checkpoint_of_mini_llm_is_translated)
{
    mm_config *config = family_config("minigpt");
    mm_model *model = NULL;
    mm_view embedding;
    rows r;
    ck_ok(mm_model_create(config, 1, &model));
    mm_config_free(config);
    rows_of(&r, model);
    for (size_t i = 0; i < r.count; i++) {
        char name[160];
        mini_llm_name(name, sizeof name, r.entries[i].name);
        snprintf(r.names[i], sizeof r.names[i], "%s", name);
    }
    ck_ok(mm_model_tensor(model, 0, &embedding));
    add_row(&r, "lm_head.weight", MM_F32, 2, 20, 16, embedding.data);
    add_row(&r, "transformer_blocks.0.attention.rotary_emb.inv_freq", MM_F32, 1, 4, 1, embedding.data);
    loads_as(directory_of(model, &r), model);

    add_row(&r, "model.norm.weight", MM_F32, 1, 16, 1, embedding.data);
    refuses(directory_of(model, &r), MM_ERR_FORMAT, "is there twice, also as");
    ck_error_mentions("layer_norm.weight");
    drop_row(&r, "model.norm.weight");
    row_named(&r, "token_embedding.weight")->shape[0] = 10;
    row_named(&r, "token_embedding.weight")->shape[1] = 32;
    refuses(directory_of(model, &r), MM_ERR_FORMAT, "token_embedding.weight is [10, 32], config.json implies [20, 16]");
    mm_model_free(model);
}
END_TEST

START_TEST(a_config_without_a_version_takes_it_from_the_weights)
{
    mm_config *config = family_config("minimind"), *bare = family_config("minimind");
    mm_model *model = NULL;
    rows r;
    ck_ok(mm_config_set_int(config, "minimind_version", 3));
    ck_ok(mm_model_create(config, 1, &model));
    rows_of(&r, model);
    const char *directory = directory_of(model, &r);
    ck_assert_ptr_nonnull(row_named(&r, "model.layers.0.self_attn.q_norm.weight"));
    write_text(in(directory, "config.json"),
               "{\"model_type\":\"minimind\",\"hidden_size\":16,\"num_hidden_layers\":2,\"num_attention_heads\":2,"
               "\"num_key_value_heads\":1,\"head_dim\":8,\"intermediate_size\":24,\"vocab_size\":20}");
    mm_model *loaded = load(directory, NULL), *from_memory = NULL;
    int64_t version = 0;
    same_weights(loaded, model);
    ck_ok(mm_config_get_int(mm_model_config(loaded), "minimind_version", &version));
    ck_assert_int_eq(version, 3);
    mm_model_free(loaded);

    char *data = NULL;
    size_t size = 0;
    ck_ok(mmi_read_file(in(directory, "model.safetensors"), &data, &size));
    ck_ok(mm_model_load_memory(bare, data, size, &from_memory));
    same_weights(from_memory, model);
    ck_ok(mm_config_get_int(bare, "minimind_version", &version));
    ck_assert_int_eq(version, 2);
    mm_model_free(from_memory);
    mmi_free(data);

    /* As version 3 it may be no config at all; as version 2, it is one. */
    write_text(in(directory, "config.json"),
               "{\"model_type\":\"minimind\",\"hidden_size\":16,\"num_hidden_layers\":2,\"num_attention_heads\":2,"
               "\"num_key_value_heads\":1,\"head_dim\":8,\"intermediate_size\":24,\"vocab_size\":20,\"use_moe\":true,"
               "\"n_routed_experts\":8,\"num_experts_per_tok\":6}");
    refuses(directory, MM_ERR_FORMAT, "config.json: num_experts_per_tok is 6");

    /* Who says 2 means 2. */
    write_text(in(directory, "config.json"),
               "{\"model_type\":\"minimind\",\"minimind_version\":2,\"hidden_size\":16,\"num_hidden_layers\":2,"
               "\"num_attention_heads\":2,\"num_key_value_heads\":1,\"head_dim\":8,\"intermediate_size\":24,"
               "\"vocab_size\":20}");
    refuses(directory, MM_ERR_FORMAT, "_norm.weight is no tensor of the model that config.json implies");
    mm_model_free(model);
    mm_config_free(config);
    mm_config_free(bare);
}
END_TEST

/* --- Shards --- */

/* The model in two files with an index, every third tensor in the second. Names are in `first` and `second`. */
static const char *sharded(const mm_model *model, rows *first, rows *second)
{
    static const char *const files[] = { "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors" };
    const char *directory = directory_of(model, NULL);
    rows all;
    rows_of(&all, model);
    first->count = second->count = 0;
    mmi_json *index = mmi_json_new_object(), *map = mmi_json_new_object();
    for (size_t i = 0; i < all.count; i++) {
        const mmi_st_entry *e = &all.entries[i];
        int which = i % 3 == 1;
        add_row(which ? second : first, e->name, e->dtype, e->rank, e->shape[0], e->shape[1], e->data);
        ck_assert(mmi_json_set(map, e->name, mmi_json_new_string(files[which], strlen(files[which]))));
    }
    ck_assert(mmi_json_set(index, "weight_map", map));
    ck_ok(mmi_json_write_file(index, 2, in(directory, "model.safetensors.index.json")));
    mmi_json_free(index);
    ck_ok(mmi_st_write(in(directory, files[0]), first->entries, first->count, NULL));
    ck_ok(mmi_st_write(in(directory, files[1]), second->entries, second->count, NULL));
    return directory;
}

START_TEST(shards_load_like_one_file)
{
    mm_model *model = sample_model(1);
    rows first, second;
    const char *directory = sharded(model, &first, &second);
    loads_as(directory, model);
    mm_model *map = load(directory, &mapped);
    same_weights(map, model);
    mm_model_free(map);

    /* The one file goes before the index. */
    mm_model *other = sample_model(2);
    rows r;
    rows_of(&r, other);
    ck_ok(mmi_st_write(in(directory, "model.safetensors"), r.entries, r.count, NULL));
    loads_as(directory, other);
    mm_model_free(other);
    mm_model_free(model);
    ck_assert_uint_eq(bytes_held(), 0);
}
END_TEST

START_TEST(shards_that_do_not_match_their_index_are_refused)
{
    mm_model *model = sample_model(1);
    rows first, second;
    const char *directory = sharded(model, &first, &second);
    const char *two = in(directory, "model-00002-of-00002.safetensors");
    const mmi_st_entry *embedding = row_named(&first, "model.embed_tokens.weight");

    add_row(&second, embedding->name, MM_F32, 2, 20, 16, embedding->data);
    ck_ok(mmi_st_write(two, second.entries, second.count, NULL));
    refuses(directory, MM_ERR_FORMAT, "model.embed_tokens.weight is here too");
    ck_error_mentions("model-00002-of-00002.safetensors: ");

    drop_row(&second, embedding->name);
    add_row(&second, "model.freqs_cos", MM_F32, 2, 20, 16, embedding->data);
    ck_ok(mmi_st_write(two, second.entries, second.count, NULL));
    refuses(directory, MM_ERR_FORMAT, "model.freqs_cos is not in the weight_map of");

    drop_row(&second, "model.freqs_cos");
    second.count--;
    ck_ok(mmi_st_write(two, second.entries, second.count, NULL));
    refuses(directory, MM_ERR_FORMAT, "is missing, though");

    ck_assert_int_eq(remove(two), 0);
    refuses(directory, MM_ERR_IO, "model-00002-of-00002.safetensors");
    mm_model_free(model);
}
END_TEST

static const struct bad_index {
    const char *text;
    const char *words;
} bad_indices[] = {
    { "", "index.json: line" },
    { "[]", "weight_map is absent" },
    { "{\"weight_map\":[]}", "weight_map is an array" },
    { "{\"weight_map\":{}}", "weight_map names no tensor" },
    { "{\"weight_map\":{\"a\\nb\":3}}", "a b is an integer, not a file name" },
    { "{\"weight_map\":{\"a\":3}}", "a is an integer, not a file name" },
    { "{\"weight_map\":{\"a\":\"../model.safetensors\"}}", "\"../model.safetensors\", which is not a plain name" },
    { "{\"weight_map\":{\"a\":\"/etc/passwd\"}}", "not a plain name" },
    { "{\"weight_map\":{\"a\":\"b/c.safetensors\"}}", "not a plain name" },
    { "{\"weight_map\":{\"a\":\"..\\\\c.safetensors\"}}", "not a plain name" },
    { "{\"weight_map\":{\"a\":\"\"}}", "not a plain name" },
    { "{\"weight_map\":{\"a\":\".\"}}", "not a plain name" },
    { "{\"weight_map\":{\"a\":\"..\"}}", "not a plain name" },
    { "{\"weight_map\":{\"a\":\"c\\u0000d\"}}", "not a plain name" },
};

START_TEST(an_index_that_is_damaged_or_leads_outside_is_refused)
{
    mm_model *model = sample_model(1);
    const char *directory = directory_of(model, NULL);
    write_text(in(directory, "model.safetensors.index.json"), bad_indices[_i].text);
    refuses(directory, MM_ERR_FORMAT, bad_indices[_i].words);
    ck_error_mentions("model.safetensors.index.json");
    mm_model_free(model);
}
END_TEST

/* --- What is refused --- */

START_TEST(arguments_are_checked)
{
    mm_model *model = sample_model(1), *out = NULL;
    mm_load_options options = MM_LOAD_OPTIONS_INIT;
    rows r;
    rows_of(&r, model);
    const char *directory = directory_of(model, &r);
    ck_status(mm_model_load(NULL, NULL, &out), MM_ERR_ARG);
    ck_status(mm_model_load(directory, NULL, NULL), MM_ERR_ARG);
    ck_status(mm_model_load_memory(NULL, "x", 1, &out), MM_ERR_ARG);
    ck_status(mm_model_load_memory(mm_model_config(model), NULL, 1, &out), MM_ERR_ARG);
    ck_status(mm_model_load_memory(mm_model_config(model), "x", 1, NULL), MM_ERR_ARG);
    ck_status(mm_model_load_memory(mm_model_config(model), "x", 1, &out), MM_ERR_FORMAT);
    ck_error_mentions("1 bytes are too few");
    options.map = 2;
    ck_status(mm_model_load(directory, &options, &out), MM_ERR_ARG);
    options.map = 0;
    options.keep_dtype = -1;
    ck_status(mm_model_load(directory, &options, &out), MM_ERR_ARG);
    options.struct_size = 3;
    ck_status(mm_model_load(directory, &options, &out), MM_ERR_ARG);
    struct {
        mm_load_options known;
        int32_t later[2];
    } newer = { { sizeof newer, 0, 0 }, { 0, 1 } };
    ck_status(mm_model_load(directory, &newer.known, &out), MM_ERR_UNSUPPORTED);
    newer.later[1] = 0;
    ck_ok(mm_model_load(directory, &newer.known, &out));
    mm_model_free(out);
    mm_model_free(model);

    mm_load_options filled;
    mm_load_options_init(&filled, sizeof filled);
    options = (mm_load_options)MM_LOAD_OPTIONS_INIT;
    ck_assert_int_eq(memcmp(&filled, &options, sizeof filled), 0);
}
END_TEST

START_TEST(a_directory_that_is_no_model_is_an_io_error)
{
    mm_model *model = sample_model(1);
    const char *directory = scratch_directory();
    refuses(in(directory, "none"), MM_ERR_IO, "no such directory");
    refuses("", MM_ERR_IO, "no such directory");
    refuses(directory, MM_ERR_IO, "config.json");
    ck_ok(mm_config_save(mm_model_config(model), directory));
    refuses(directory, MM_ERR_IO, "has neither model.safetensors nor model.safetensors.index.json");
    refuses(in(directory, "config.json"), MM_ERR_IO, "is not a directory");
    write_text(in(directory, "config.json"), "{");
    refuses(directory, MM_ERR_FORMAT, "config.json");
    mm_model_free(model);
}
END_TEST

START_TEST(missing_extra_and_misshapen_tensors_are_refused_by_name)
{
    static const float zeros[64];
    mm_model *model = sample_model(1);
    rows r;
    rows_of(&r, model);
    drop_row(&r, "model.layers.1.mlp.up_proj.weight");
    const char *directory = directory_of(model, &r);
    refuses(directory, MM_ERR_FORMAT,
            "model.safetensors: model.layers.1.mlp.up_proj.weight is missing, which config.json implies");

    rows_of(&r, model);
    add_row(&r, "model.layers.2.input_layernorm.weight", MM_F32, 1, 16, 1, zeros);
    refuses(directory_of(model, &r), MM_ERR_FORMAT, "model.layers.2.input_layernorm.weight is no tensor of the model");

    rows_of(&r, model);
    row_named(&r, "model.embed_tokens.weight")->shape[0] = 10;
    directory = directory_of(model, &r);
    refuses(directory, MM_ERR_FORMAT, "model.embed_tokens.weight is [10, 16], config.json implies [20, 16]");
    ck_error_mentions(in(directory, "model.safetensors: "));

    rows_of(&r, model);
    row_named(&r, "model.norm.weight")->rank = 2;
    refuses(directory_of(model, &r), MM_ERR_FORMAT, "model.norm.weight is [16, 1], config.json implies [16]");
    mm_model_free(model);
}
END_TEST

START_TEST(weights_that_are_not_floats_are_unsupported)
{
    static const int64_t numbers[16];
    mm_model *model = sample_model(1);
    rows r;
    rows_of(&r, model);
    mmi_st_entry *norm = row_named(&r, "model.norm.weight");
    norm->dtype = MM_I64;
    norm->data = numbers;
    const char *directory = directory_of(model, &r);
    refuses(directory, MM_ERR_UNSUPPORTED, "model.norm.weight is I64, weights may be F32, BF16 or F16");
    patch_file(in(directory, "model.safetensors"), "\"I64\"", "\"F64\"");
    refuses(directory, MM_ERR_UNSUPPORTED, "model.norm.weight is F64");
    patch_file(in(directory, "model.safetensors"), "\"F64\"", "\"X64\"");
    refuses(directory, MM_ERR_FORMAT, "model.norm.weight: \"dtype\" is \"X64\", which safetensors does not have");
    mm_model_free(model);
}
END_TEST

/* Each changes the header of a good file in place; "model.norm.weight" is the file's last tensor. */
static const struct damage {
    const char *from, *to;
    mm_status status;
    const char *words;
} damages[] = {
    { "\"dtype\":\"F32\"", "\"dtypf\":\"F32\"", MM_ERR_FORMAT, "model.embed_tokens.weight: \"dtype\" is absent" },
    { "\"dtype\":\"F32\"", "\"dtype\":\"F64\"", MM_ERR_FORMAT,
      "shape [20, 16] of F64 takes 2560 bytes, data_offsets [0, 1280] have 1280" },
    { "\"shape\":[20,16]", "\"shape\":[20,17]", MM_ERR_FORMAT, "shape [20, 17] of F32 takes 1360 bytes" },
    { "\"shape\":[20,16]", "\"shape\":[16,20]", MM_ERR_FORMAT,
      "model.embed_tokens.weight is [16, 20], config.json implies [20, 16]" },
    { "\"shape\":[20,16]", "\"shape\":[-2,16]", MM_ERR_FORMAT, "dimension 0 of \"shape\"" },
    { "\"shape\":[20,16]", "\"shape\":[2e1,1]", MM_ERR_FORMAT, "dimension 0 of \"shape\"" },
    { "[0,1280]", "[0,9999]", MM_ERR_FORMAT, "data_offsets [0, 9999] have 9999" },
    { "[0,1280]", "[1,1281]", MM_ERR_FORMAT, "1 bytes before the data of model.embed_tokens.weight belong to no tensor" },
    { "[1280,1344]", "[1279,1343]", MM_ERR_FORMAT,
      "the data of model.layers.0.input_layernorm.weight overlap those of model.embed_tokens.weight" },
    { "[0,1280]", "[-1,128]", MM_ERR_FORMAT, "data_offsets" },
    { "model.norm.weight", "model.norm.weighs", MM_ERR_FORMAT, "model.norm.weight is missing" },
    { "model.layers.1.input_layernorm.weight", "model.layers.0.input_layernorm.weight", MM_ERR_FORMAT,
      "duplicate" },
    { "model.norm.weight\":{", "model.norm.weight\":[", MM_ERR_FORMAT, "header: line 1" },
    { "{\"model.emb", "[\"model.emb", MM_ERR_FORMAT, "does not begin with {" },
};

START_TEST(a_damaged_header_is_refused_by_name)
{
    const struct damage *d = &damages[_i];
    mm_model *model = sample_model(1);
    rows r;
    rows_of(&r, model);
    const char *directory = directory_of(model, &r);
    patch_file(in(directory, "model.safetensors"), d->from, d->to);
    refuses(directory, d->status, d->words);
    ck_error_mentions(in(directory, "model.safetensors: "));
    mm_model_free(model);
}
END_TEST

START_TEST(a_file_too_short_or_too_long_is_refused)
{
    mm_model *model = sample_model(1);
    rows r;
    rows_of(&r, model);
    const char *directory = directory_of(model, &r), *path = in(directory, "model.safetensors");
    long size = file_size(path);
    resize_file(path, size + 1);
    refuses(directory, MM_ERR_FORMAT, "the last 1 bytes belong to no tensor");
    resize_file(path, size - 1);
    refuses(directory, MM_ERR_FORMAT, "do not lie within the");
    ck_error_mentions("model.norm.weight");
    resize_file(path, 100);
    refuses(directory, MM_ERR_FORMAT, "does not fit in the file, which has 100");
    resize_file(path, 7);
    refuses(directory, MM_ERR_FORMAT, "7 bytes are too few");
    resize_file(path, 0);
    refuses(directory, MM_ERR_FORMAT, "0 bytes are too few");
    mm_model_free(model);
}
END_TEST

START_TEST(overflowing_shapes_are_refused)
{
    mm_model *model = sample_model(1);
    const char *directory = directory_of(model, NULL);
    const char *header = "{\"model.embed_tokens.weight\":{\"dtype\":\"F32\",\"shape\":[4294967296,4294967297],"
                         "\"data_offsets\":[0,0]}}";
    char file[256] = { 0 };
    file[0] = (char)strlen(header);
    memcpy(file + 8, header, strlen(header));
    ck_ok(mmi_write_file(in(directory, "model.safetensors"), file, 8 + strlen(header)));
    refuses(directory, MM_ERR_FORMAT, "model.embed_tokens.weight: \"shape\" has more elements than can be counted");
    mm_model_free(model);
}
END_TEST

START_TEST(misaligned_data_load_but_do_not_map)
{
    mm_model *model = sample_model(1), *out = NULL;
    rows r;
    rows_of(&r, model);
    const char *directory = directory_of(model, &r), *path = in(directory, "model.safetensors");
    char *data = NULL;
    size_t size = 0;
    ck_ok(mmi_read_file(path, &data, &size));
    size_t length = (size_t)(unsigned char)data[0] + 256 * (size_t)(unsigned char)data[1];
    char *longer = malloc(size + 1); /* one space more behind the header */
    memcpy(longer, data, 8 + length);
    longer[8 + length] = ' ';
    memcpy(longer + 9 + length, data + 8 + length, size - 8 - length);
    longer[0] = (char)((length + 1) & 255);
    longer[1] = (char)((length + 1) >> 8);
    ck_ok(mmi_write_file(path, longer, size + 1));
    loads_as(directory, model);
    ck_status(mm_model_load(directory, &mapped, &out), MM_ERR_UNSUPPORTED);
    ck_error_mentions("not at a multiple of 4");
    ck_assert_ptr_null(out);
    free(longer);
    mmi_free(data);
    mm_model_free(model);
    ck_assert_uint_eq(bytes_held(), 0);
}
END_TEST

/* --- Everything at once --- */

START_TEST(no_mutation_of_an_image_does_harm)
{
    mm_model *model = sample_model(1);
    rows r;
    rows_of(&r, model);
    mutated_images_do_no_harm(mm_model_config(model), in(directory_of(model, &r), "model.safetensors"), 5, 4000);
    mm_model_free(model);
}
END_TEST

START_TEST(no_mutation_of_a_file_does_harm)
{
    const mm_load_options *const ways[] = { NULL, &kept, &mapped };
    mm_model *model = sample_model(1), *half = NULL;
    rows r;
    ck_ok(mm_model_cast(model, MM_BF16, &half));
    rows_of(&r, half);
    const char *directory = directory_of(half, &r), *path = in(directory, "model.safetensors");
    char file[800];
    snprintf(file, sizeof file, "%s", path);
    char *data = NULL;
    size_t size = 0;
    ck_ok(mmi_read_file(file, &data, &size));
    size_t header = 8 + (size_t)(unsigned char)data[0] + 256 * (size_t)(unsigned char)data[1];
    uint64_t before = bytes_held();
    test_rng rng = { 6 };
    for (int round = 0; round < 600; round++) {
        size_t length = round % 4 == 0 ? (size_t)rng_between(&rng, 0, (int)size) : size;
        unsigned char *image = malloc(length + (length == 0));
        memcpy(image, data, length);
        mutate(image, length, header, &rng);
        FILE *f = fopen(file, "wb");
        ck_assert_ptr_nonnull(f);
        ck_assert_uint_eq(fwrite(image, 1, length, f), length);
        fclose(f);
        free(image);
        mm_model *out = NULL;
        mm_status status = mm_model_load(directory, ways[round % 3], &out);
        ck_assert(status == MM_OK || status == MM_ERR_FORMAT || status == MM_ERR_UNSUPPORTED);
        mm_model_free(out);
        ck_assert_uint_eq(bytes_held(), before);
    }
    mmi_free(data);
    mm_model_free(half);
    mm_model_free(model);
}
END_TEST

START_TEST(every_failing_allocation_is_survived)
{
    mm_model *model = sample_model(1), *half = NULL, *out = NULL;
    rows first, second, h;
    const char *directory = sharded(model, &first, &second);
    if (_i < 2) {
        ck_ok(mm_model_cast(model, MM_BF16, &half));
        rows_of(&h, half);
        directory = directory_of(half, &h);
    }
    uint64_t before = bytes_held(), n = 1;
    for (;; n++) {
        mmi_memory_fail_at(n, false);
        mm_status status = mm_model_load(directory, _i % 2 ? &mapped : NULL, &out);
        mmi_memory_fail_at(0, false);
        if (status == MM_OK)
            break;
        ck_assert_int_eq(status, MM_ERR_MEMORY);
        ck_assert_ptr_null(out);
        ck_assert_uint_eq(bytes_held(), before);
    }
    ck_assert_uint_gt(n, 8);
    mm_model_free(out);
    mm_model_free(half);
    mm_model_free(model);
    ck_assert_uint_eq(bytes_held(), 0);
}
END_TEST

/* --- Reference checkpoints --- */

static const char *const committed[] = { "v2_dense_gqa", "v2_dense_mha", "v2_untied_gelu", "v3_dense_qknorm_headdim" };

static void loads_case(const char *directory)
{
    mmi_st_file file;
    ck_ok(mmi_st_open(in(directory, "model.safetensors"), &file));
    const mm_load_options *const ways[] = { NULL, &mapped };
    for (size_t w = 0; w < 2; w++) {
        mm_model *model = load(directory, ways[w]);
        ck_assert_int_eq(mm_model_tensor_count(model), (int64_t)file.count);
        for (size_t i = 0; i < file.count; i++) {
            mm_view view;
            ck_ok(mm_model_find(model, file.entries[i].name, &view));
            ck_assert_int_eq(memcmp(view.data, file.entries[i].data, file.entries[i].bytes), 0);
        }
        mm_model_free(model);
    }
    mmi_st_close(&file);
}

START_TEST(reference_checkpoints_load_bit_for_bit)
{
    loads_case(in(MM_TEST_DATA "/golden", committed[_i]));
    ck_assert_uint_eq(bytes_held(), 0);
}
END_TEST

static const char *const others[] = {
    "classic_bias_sinusoidal", "classic_relu_nopos_untied", "llama_classic_bias_layernorm_plain",
    "minigpt_dense_sinusoidal", "minigpt_moe_shared", "minigpt_moe_sparse_plain", "v2_moe_batchaux_top1_noshared",
    "v2_moe_shared_seqaux", "v2_yarn", "v3_moe_top1", "v3_moe_top2_nonorm", "v3_yarn",
};

START_TEST(checkpoints_of_every_family_load_bit_for_bit)
{
    char name[128];
    snprintf(name, sizeof name, "golden/cases/%s", others[_i]);
    REQUIRE_SHARED(name);
    loads_case(shared_path(name));
}
END_TEST

#define COUNT(array) ((int)(sizeof(array) / sizeof *(array)))

static Suite *make_suite(void)
{
    Suite *suite = suite_create("model/load");
    TCase *good = tcase_create("accepted");
    tcase_add_test(good, a_model_loads_the_same_copied_kept_mapped_or_from_memory);
    tcase_add_test(good, mapped_weights_cannot_be_written_but_a_copy_can);
    tcase_add_test(good, mapped_weights_ask_for_the_large_pages_that_lie_within_them);
    tcase_add_loop_test(good, half_precision_is_widened_unless_it_is_kept_or_mapped, 0, 2);
    tcase_add_test(good, tensors_of_one_file_may_differ_in_dtype);
    tcase_add_test(good, loading_takes_no_second_copy_of_the_weights);
    tcase_add_test(good, tables_of_other_programs_are_passed_over);
    tcase_add_test(good, a_tied_head_must_equal_the_embedding);
    tcase_add_test(good, a_tied_head_alone_is_the_embedding);
    tcase_add_test(good, a_checkpoint_of_mini_llm_is_translated);
    tcase_add_test(good, a_config_without_a_version_takes_it_from_the_weights);
    tcase_add_test(good, shards_load_like_one_file);
    tcase_add_loop_test(good, reference_checkpoints_load_bit_for_bit, 0, COUNT(committed));
    tcase_add_loop_test(good, checkpoints_of_every_family_load_bit_for_bit, 0, COUNT(others));
    suite_add_tcase(suite, good);
    TCase *bad = tcase_create("refused");
    tcase_add_test(bad, arguments_are_checked);
    tcase_add_test(bad, a_directory_that_is_no_model_is_an_io_error);
    tcase_add_test(bad, missing_extra_and_misshapen_tensors_are_refused_by_name);
    tcase_add_test(bad, weights_that_are_not_floats_are_unsupported);
    tcase_add_loop_test(bad, a_damaged_header_is_refused_by_name, 0, COUNT(damages));
    tcase_add_test(bad, a_file_too_short_or_too_long_is_refused);
    tcase_add_test(bad, overflowing_shapes_are_refused);
    tcase_add_test(bad, misaligned_data_load_but_do_not_map);
    tcase_add_test(bad, shards_that_do_not_match_their_index_are_refused);
    tcase_add_loop_test(bad, an_index_that_is_damaged_or_leads_outside_is_refused, 0, COUNT(bad_indices));
    tcase_add_test(bad, no_mutation_of_an_image_does_harm);
    tcase_add_test(bad, no_mutation_of_a_file_does_harm);
    tcase_add_loop_test(bad, every_failing_allocation_is_survived, 0, 4);
    tcase_set_timeout(bad, 120);
    suite_add_tcase(suite, bad);
    return suite;
}

int main(void)
{
    return run_suite(make_suite());
}
