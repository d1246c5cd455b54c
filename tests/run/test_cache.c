/* Keys and values kept in fewer bits, copied from sequence to sequence, and written to files. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/safetensors.h"
#include "run/cache.h"
#include "run/models.h"

#define B 3
#define T 21
#define ROOM 40

static const char wide_heads[] = "{\"model_type\":\"minimind\",\"minimind_version\":3,\"hidden_size\":64,\"num_hidden_"
                                 "layers\":2,\"num_attention_heads\":4,"
                                 "\"num_key_value_heads\":2,\"head_dim\":32,\"vocab_size\":67,\"intermediate_size\":96,"
                                 "\"max_position_embeddings\":64}";

static const int32_t dtypes[] = { MM_F32, MM_BF16, MM_Q8_0 };
enum { DTYPES = 3 };

typedef struct setting {
    mm_model *model;
    mm_context *context;
    mm_cache *cache;
    mm_batch batch; /* B x T */
} setting;

static setting begin(int32_t dtype)
{
    test_rng rng = { 900 };
    setting s = { .model = model_of(wide_heads, 3) };
    s.context = context_of(s.model, MM_EVAL, B, T, MM_OUT_LAST_LOGITS | MM_OUT_LOGITS);
    s.batch = random_batch(s.model, B, T, MM_EVAL, &rng);
    s.batch.targets = NULL;
    ck_ok(mm_cache_create(s.model, B, ROOM, dtype, &s.cache));
    return s;
}

static void end(setting *s)
{
    mm_cache_free(s->cache);
    mm_context_free(s->context);
    mm_model_free(s->model);
}

static void feed(setting *s, mm_cache *cache, const int32_t *ids, int32_t batch, int32_t length, mm_output *out)
{
    mm_batch b = MM_BATCH_INIT;
    *out = (mm_output)MM_OUTPUT_INIT;
    b.ids = ids;
    b.batch = batch;
    b.length = length;
    b.cache = cache;
    ck_ok(mm_forward(s->context, &b, out));
}

/* The logits behind one more token of the first sequence. */
static float *next_logits(setting *s, mm_cache *cache)
{
    static const int32_t token = 5;
    mm_output out;
    feed(s, cache, &token, 1, 1, &out);
    return copy_view(&out.last_logits);
}

START_TEST(fewer_bits_cost_little_and_take_less_memory)
{
    /* a key is off by 2^-9 of itself in bf16, by 2^-8 of its block's largest in q8_0; two layers and a softmax make
     * more of it */
    static const double most[DTYPES] = { 1e-6, 2e-2, 2e-2 };
    static const uint64_t bytes[DTYPES] = { 4, 2, 0 };
    setting s = begin(dtypes[_i]);
    mm_output out, plain;
    feed(&s, NULL, s.batch.ids, B, T, &plain);
    float *expected = copy_view(&plain.logits);
    int64_t n = (int64_t)B * T * vocab_of(s.model);
    feed(&s, s.cache, s.batch.ids, B, T, &out);
    double error = relative_error(out.logits.data, expected, (size_t)n);
    ck_assert_msg(error < most[_i], "%s: %g", mm_dtype_name(dtypes[_i]), error);
    if (_i > 0)
        ck_assert_msg(error > 0, "%s gives the bits of f32", mm_dtype_name(dtypes[_i]));
    ck_assert_int_eq(mm_cache_dtype(s.cache), dtypes[_i]);
    ck_assert_int_eq(mm_cache_sequences(s.cache), B);
    ck_assert_int_eq(mm_cache_capacity(s.cache), ROOM);

    mm_workload w = MM_WORKLOAD_INIT;
    mm_memory m = MM_MEMORY_INIT;
    w.max_length = T;
    w.cache_sequences = B;
    w.cache_capacity = ROOM;
    w.cache_dtype = dtypes[_i];
    uint64_t held = bytes_held();
    mm_cache *again = NULL;
    ck_ok(mm_estimate_memory(mm_model_config(s.model), &w, &m));
    ck_ok(mm_cache_create(s.model, B, ROOM, dtypes[_i], &again));
    ck_assert_int_eq(m.cache_per_token,
                     2 * 2 * 2 * (bytes[_i] ? 32 * (int64_t)bytes[_i] : 34)); /* L, sides, G, a row */
    ck_assert_int_eq(m.cache, B * ROOM * m.cache_per_token);
    ck_assert_uint_ge(bytes_held() - held, (uint64_t)m.cache);
    ck_assert_uint_le(bytes_held() - held, (uint64_t)m.cache + B * ROOM * sizeof(int32_t) + 256); /* and ids */
    mm_cache_free(again);
    end(&s);
}
END_TEST

/* One row and many rows are summed in different orders, by float32's 6e-8 each time: 1.0e-6 was seen with Neon. */
#define ORDER_OF_SUMS 3e-6

START_TEST(a_token_at_a_time_or_all_at_once_any_cache_holds_the_same)
{
    setting s = begin(dtypes[_i]);
    mm_output out;
    feed(&s, s.cache, s.batch.ids, 1, T, &out);
    float *at_once = copy_view(&out.last_logits);
    ck_ok(mm_cache_truncate(s.cache, -1, 0));
    for (int32_t t = 0; t < T; t++)
        feed(&s, s.cache, s.batch.ids + t, 1, 1, &out);
    ck_assert_double_lt(relative_error(out.last_logits.data, at_once, (size_t)vocab_of(s.model)),
                        _i ? 2e-2 : ORDER_OF_SUMS);
    end(&s);
}
END_TEST

START_TEST(a_fork_goes_on_as_its_origin_does)
{
    setting s = begin(dtypes[_i]);
    size_t V = (size_t)vocab_of(s.model);
    mm_output out;
    mm_cache *other = NULL;
    ck_ok(mm_cache_create(s.model, 2, ROOM / 2, dtypes[_i], &other));
    feed(&s, s.cache, s.batch.ids, B, T, &out);
    ck_ok(mm_cache_fork(other, 0, s.cache, 2, 11));
    ck_ok(mm_cache_fork(s.cache, -1, s.cache, 2, -1)); /* into 0 and 1 */
    for (int32_t i = 0; i < B; i++)
        ck_assert_int_eq(mm_cache_length(s.cache, i), T);
    ck_assert_int_eq(mm_cache_length(other, 0), 11);
    ck_assert_int_eq(mm_cache_length(other, 1), 0);

    mm_cache *alone = NULL;
    ck_ok(mm_cache_create(s.model, 1, ROOM, dtypes[_i], &alone));
    ck_ok(mm_cache_fork(alone, 0, s.cache, 2, -1));
    float *expected = next_logits(&s, alone), *forked = next_logits(&s, s.cache);
    ck_assert(same_bits(forked, expected, (int64_t)V));
    ck_ok(mm_cache_truncate(alone, 0, 11));
    ck_assert(same_bits(next_logits(&s, other), next_logits(&s, alone), (int64_t)V));
    mm_cache_free(alone);
    mm_cache_free(other);
    end(&s);
}
END_TEST

START_TEST(a_fork_held_wrong_is_refused_and_nothing_changes)
{
    setting s = begin(MM_F32);
    mm_output out;
    mm_model *stranger = model_of(wide_heads, 4);
    mm_cache *small = NULL, *narrow = NULL, *foreign = NULL;
    ck_ok(mm_cache_create(s.model, 1, 8, MM_F32, &small));
    ck_ok(mm_cache_create(s.model, 1, ROOM, MM_BF16, &narrow));
    ck_ok(mm_cache_create(stranger, 1, ROOM, MM_F32, &foreign));
    feed(&s, s.cache, s.batch.ids, 1, T, &out);
    ck_status(mm_cache_fork(NULL, 0, s.cache, 0, 1), MM_ERR_ARG);
    ck_status(mm_cache_fork(s.cache, 0, NULL, 0, 1), MM_ERR_ARG);
    ck_status(mm_cache_fork(s.cache, B, s.cache, 0, 1), MM_ERR_ARG);
    ck_status(mm_cache_fork(s.cache, -2, s.cache, 0, 1), MM_ERR_ARG);
    ck_status(mm_cache_fork(s.cache, 1, s.cache, -1, 1), MM_ERR_ARG);
    ck_status(mm_cache_fork(s.cache, 1, s.cache, B, 1), MM_ERR_ARG);
    ck_status(mm_cache_fork(s.cache, 1, s.cache, 0, T + 1), MM_ERR_ARG);
    ck_error_mentions("21 tokens");
    ck_status(mm_cache_fork(s.cache, 1, s.cache, 0, -2), MM_ERR_ARG);
    ck_status(mm_cache_fork(small, 0, s.cache, 0, -1), MM_ERR_ARG);
    ck_error_mentions("8 tokens");
    ck_status(mm_cache_fork(narrow, 0, s.cache, 0, -1), MM_ERR_ARG);
    ck_error_mentions("bf16");
    ck_status(mm_cache_fork(foreign, 0, s.cache, 0, -1), MM_ERR_ARG);
    ck_assert_int_eq(mm_cache_length(s.cache, 0), T);
    ck_assert_int_eq(mm_cache_length(s.cache, 1), 0);
    ck_ok(mm_cache_fork(s.cache, 0, s.cache, 0, 3)); /* onto itself: nothing to do */
    ck_assert_int_eq(mm_cache_length(s.cache, 0), T);
    mm_cache_free(small);
    mm_cache_free(narrow);
    mm_cache_free(foreign);
    mm_model_free(stranger);
    end(&s);
}
END_TEST

START_TEST(heads_that_are_no_whole_blocks_can_not_be_kept_in_blocks)
{
    mm_model *model = nth_model(0, 1);
    mm_cache *cache = NULL;
    ck_status(mm_cache_create(model, 1, 8, MM_Q8_0, &cache), MM_ERR_ARG);
    ck_error_mentions("multiple of 32");
    ck_status(mm_cache_create(model, 1, 8, MM_Q4_0, &cache), MM_ERR_ARG);
    ck_error_mentions("f32, bf16 or q8_0");
    ck_status(mm_cache_create(model, 1, 8, -1, &cache), MM_ERR_ARG);
    ck_assert_ptr_null(cache);
    ck_assert_int_eq(mm_cache_dtype(NULL), -1);
    ck_assert_int_eq(mm_cache_sequences(NULL), 0);
    ck_assert_int_eq(mm_cache_capacity(NULL), 0);
    mm_workload w = MM_WORKLOAD_INIT;
    mm_memory m = MM_MEMORY_INIT;
    w.max_length = 8;
    w.cache_dtype = MM_Q8_0;
    ck_status(mm_estimate_memory(mm_model_config(model), &w, &m), MM_ERR_ARG);
    ck_error_mentions("cache_dtype");
    mm_model_free(model);
}
END_TEST

/* --- Files --- */

static const char *file_in_scratch(void)
{
    static char path[512];
    snprintf(path, sizeof path, "%s/cache.safetensors", scratch_directory());
    return path;
}

START_TEST(a_saved_cache_goes_on_where_it_stood)
{
    setting s = begin(dtypes[_i]);
    const char *path = file_in_scratch();
    mm_output out;
    mm_cache *loaded = NULL;
    feed(&s, s.cache, s.batch.ids, 2, T, &out); /* the third sequence stays empty */
    ck_ok(mm_cache_truncate(s.cache, 1, 4));
    ck_ok(mm_cache_save(s.cache, path));
    ck_ok(mm_cache_load(s.model, path, &loaded));
    ck_assert_int_eq(mm_cache_sequences(loaded), B);
    ck_assert_int_eq(mm_cache_capacity(loaded), ROOM);
    ck_assert_int_eq(mm_cache_dtype(loaded), dtypes[_i]);
    ck_assert_int_eq(mm_cache_length(loaded, 0), T);
    ck_assert_int_eq(mm_cache_length(loaded, 1), 4);
    ck_assert_int_eq(mm_cache_length(loaded, 2), 0);
    ck_assert(same_bits(next_logits(&s, loaded), next_logits(&s, s.cache), vocab_of(s.model)));
    mm_cache_free(loaded);
    end(&s);
}
END_TEST

/* Whole numbers are the same in a matrix and in twice that matrix: the scales tell one from the other. */
START_TEST(a_cache_of_blocks_is_of_use_to_their_scales_only)
{
    mm_model *model = model_of(wide_heads, 4), *twice = NULL, *small = NULL, *large = NULL;
    const char *path = file_in_scratch();
    mm_cache *cache = NULL, *loaded = NULL;
    ck_ok(mm_model_copy(model, &twice));
    for (int64_t t = 0; t < mm_model_tensor_count(twice); t++) {
        mm_view view;
        ck_ok(mm_model_write(twice, t, &view));
        for (int64_t i = 0; view.rank == 2 && i < view.shape[0] * view.shape[1]; i++)
            ((float *)view.data)[i] *= 2;
    }
    mm_model_written(twice);
    ck_ok(mm_model_quantize(model, MM_Q8_0, &small));
    ck_ok(mm_model_quantize(twice, MM_Q8_0, &large));
    ck_ok(mm_cache_create(small, 1, 8, MM_F32, &cache));
    ck_ok(mm_cache_save(cache, path));
    ck_ok(mm_cache_load(small, path, &loaded));
    mm_cache_free(loaded);
    ck_status(mm_cache_load(large, path, &loaded), MM_ERR_ARG);
    ck_error_mentions("other weights");
    mm_cache_free(cache);
    mm_model *const all[] = { model, twice, small, large };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        mm_model_free(all[i]);
}
END_TEST

START_TEST(a_cache_is_of_use_to_the_weights_that_made_it_only)
{
    setting s = begin(MM_F32);
    const char *path = file_in_scratch();
    mm_model *other = model_of(wide_heads, 4), *wide = NULL;
    mm_cache *loaded = NULL;
    ck_ok(mm_cache_save(s.cache, path));
    ck_status(mm_cache_load(other, path, &loaded), MM_ERR_ARG);
    ck_error_mentions("other weights");
    ck_ok(mm_model_cast(s.model, MM_BF16, &wide));
    ck_status(mm_cache_load(wide, path, &loaded), MM_ERR_ARG);
    ck_status(mm_cache_load(NULL, path, &loaded), MM_ERR_ARG);
    ck_status(mm_cache_load(s.model, NULL, &loaded), MM_ERR_ARG);
    ck_status(mm_cache_load(s.model, path, NULL), MM_ERR_ARG);
    ck_status(mm_cache_load(s.model, "/nowhere/cache", &loaded), MM_ERR_IO);
    ck_error_mentions("/nowhere/cache");
    ck_status(mm_cache_save(NULL, path), MM_ERR_ARG);
    ck_status(mm_cache_save(s.cache, NULL), MM_ERR_ARG);
    ck_status(mm_cache_save(s.cache, "/nowhere/cache"), MM_ERR_IO);
    ck_assert_ptr_null(loaded);
    mm_model_free(other);
    mm_model_free(wide);
    end(&s);
}
END_TEST

/* Whatever type the key has. */
static void set(mm_config *config, const char *key, const char *value)
{
    ck_assert_msg(mm_config_set_string(config, key, value) == MM_OK ||
                      mm_config_set_int(config, key, atoi(value)) == MM_OK ||
                      mm_config_set_bool(config, key, atoi(value)) == MM_OK,
                  "%s: %s", key, mm_last_error());
}

/* A model of drawn weights, whose first numbers no value here changes: wide_heads with the keys of `ground`, and then
 * `key`. */
static mm_model *drawn(const char *const ground[][2], const char *key, const char *value)
{
    mm_config *config = NULL;
    mm_model *model = NULL;
    ck_ok(mm_config_load_memory(wide_heads, sizeof wide_heads - 1, &config));
    for (; ground[0][0]; ground++)
        set(config, ground[0][0], ground[0][1]);
    set(config, key, value);
    ck_ok(mm_model_create(config, 3, &model));
    mm_config_free(config);
    return model;
}

/* Each of them leaves the beginning of every tensor as it is, and the shapes of keys and values. */
START_TEST(a_cache_is_of_use_to_a_config_that_makes_the_same_keys_only)
{
    static const char *const plain[][2] = { { NULL } };
    static const char *const yarn[][2] = { { "max_position_embeddings", "4096" },
                                           { "rope_scaling.type", "yarn" },
                                           { "rope_scaling.variant", "standard" },
                                           { "rope_scaling.factor", "16" },
                                           { "rope_scaling.beta_fast", "32" },
                                           { "rope_scaling.beta_slow", "1" },
                                           { "rope_scaling.attention_factor", "1" },
                                           { NULL } };
    static const char *const experts[][2] = { { "use_moe", "1" }, { "num_experts_per_tok", "2" }, { NULL } };
    static const char *const shared[][2] = { { "model_type", "minigpt" },
                                             { "use_moe", "1" },
                                             { "n_routed_experts", "6" }, /* the shared ones among them */
                                             { NULL } };
    static const struct {
        const char *const (*ground)[2];
        const char *key, *values[2];
    } cases[] = {
        { plain, "hidden_size", { "64", "96" } },
        { plain, "intermediate_size", { "96", "128" } },
        { plain, "num_attention_heads", { "4", "2" } },
        { plain, "rms_norm_eps", { "0", "1" } },
        { plain, "hidden_act", { "silu", "gelu" } },
        { plain, "position_embedding_type", { "rope", "none" } },
        { plain, "rope_theta", { "1000000", "100" } },
        { yarn, "rope_scaling.variant", { "standard", "minimind2" } },
        { yarn, "rope_scaling.factor", { "16", "4" } },
        { yarn, "rope_scaling.beta_fast", { "32", "16" } },
        { yarn, "rope_scaling.beta_slow", { "1", "2" } },
        { yarn, "rope_scaling.attention_factor", { "1", "2" } },
        { yarn, "rope_scaling.original_max_position_embeddings", { "2048", "1024" } },
        { experts, "moe_intermediate_size", { "96", "64" } },
        { experts, "num_experts_per_tok", { "2", "1" } },
        { experts, "norm_topk_prob", { "1", "0" } },
        { shared, "n_shared_experts", { "1", "2" } },
    };
    const char *path = file_in_scratch();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        mm_cache *cache = NULL, *loaded = NULL;
        mm_model *models[3];
        for (int m = 0; m < 3; m++)
            models[m] = drawn(cases[i].ground, cases[i].key, cases[i].values[m / 2]);
        ck_ok(mm_cache_create(models[0], 1, 8, MM_F32, &cache));
        ck_ok(mm_cache_save(cache, path));
        ck_ok(mm_cache_load(models[1], path, &loaded));
        mm_cache_free(loaded);
        mm_status status = mm_cache_load(models[2], path, &loaded);
        ck_assert_msg(status == MM_ERR_ARG, "%s: %s", cases[i].key, mm_status_name(status));
        ck_error_mentions("another config");
        mm_cache_free(cache);
        for (int m = 0; m < 3; m++)
            mm_model_free(models[m]);
    }
}
END_TEST

/* The same weights with room for `positions` tokens, and as a config has it that `yarn` is given: made for 2048. */
static mm_model *with_positions(int64_t positions, bool yarn)
{
    mm_model *model = model_of(wide_heads, 3), *out = NULL;
    mm_config *config = NULL;
    ck_ok(mm_config_copy(mm_model_config(model), &config));
    ck_ok(mm_config_set_int(config, "max_position_embeddings", positions));
    if (yarn)
        ck_ok(mm_config_set_string(config, "rope_scaling.type", "yarn"));
    ck_ok(mm_model_create(config, 3, &out));
    mm_config_free(config);
    mm_model_free(model);
    return out;
}

/* YaRN stretches positions only where there are more than it was told of: keys of either side are no use to the other.
 * Without it their number says nothing about keys. */
START_TEST(a_cache_is_of_use_to_positions_stretched_alike_only)
{
    const char *path = file_in_scratch();
    for (int yarn = 0; yarn < 2; yarn++) {
        mm_model *few = with_positions(64, yarn), *more = with_positions(128, yarn), *many = with_positions(4096, yarn);
        mm_cache *cache = NULL, *loaded = NULL;
        ck_ok(mm_cache_create(few, 1, 8, MM_F32, &cache));
        ck_ok(mm_cache_save(cache, path));
        ck_ok(mm_cache_load(more, path, &loaded));
        mm_cache_free(loaded);
        loaded = NULL;
        ck_status(mm_cache_load(many, path, &loaded), yarn ? MM_ERR_ARG : MM_OK);
        if (yarn)
            ck_error_mentions("another config");
        mm_cache_free(loaded);
        mm_cache_free(cache);
        mm_model_free(few);
        mm_model_free(more);
        mm_model_free(many);
    }
}
END_TEST

static size_t read_all(const char *path, char *bytes, size_t size)
{
    FILE *f = fopen(path, "rb");
    ck_assert_ptr_nonnull(f);
    size_t n = fread(bytes, 1, size, f);
    ck_assert(n > 0 && n < size);
    fclose(f);
    return n;
}

static void write_all(const char *path, const char *bytes, size_t n)
{
    FILE *f = fopen(path, "wb");
    ck_assert_ptr_nonnull(f);
    ck_assert_uint_eq(fwrite(bytes, 1, n, f), n);
    ck_assert_int_eq(fclose(f), 0);
}

/* Load the file with `from` in its header turned into `to`, of the same length. */
static void ck_header(const mm_model *model, const char *bytes, size_t n, const char *from, const char *to,
                      mm_status expected, const char *words)
{
    char path[512];
    char *changed = malloc(n);
    memcpy(changed, bytes, n);
    ck_assert_uint_eq(strlen(from), strlen(to));
    bool found = false;
    for (size_t i = 8; i + strlen(from) <= n && !found; i++)
        if ((found = memcmp(changed + i, from, strlen(from)) == 0))
            memcpy(changed + i, to, strlen(to));
    ck_assert_msg(found, "%s is not in the file", from);
    snprintf(path, sizeof path, "%s/damaged", scratch_directory());
    write_all(path, changed, n);
    mm_cache *loaded = NULL;
    uint64_t held = bytes_held();
    ck_status(mm_cache_load((mm_model *)model, path, &loaded), expected);
    ck_error_mentions(words);
    ck_error_mentions("damaged");
    ck_assert_ptr_null(loaded);
    ck_assert_uint_eq(bytes_held(), held);
    free(changed);
}

START_TEST(a_damaged_file_is_told_from_a_cache)
{
    setting s = begin(MM_Q8_0);
    const char *path = file_in_scratch();
    static char bytes[1 << 18];
    mm_output out;
    feed(&s, s.cache, s.batch.ids, B, T, &out);
    ck_ok(mm_cache_save(s.cache, path));
    size_t n = read_all(path, bytes, sizeof bytes);
    mm_cache *loaded = NULL;
    for (size_t cut = 0; cut < n; cut += n / 97 + 1) {
        write_all(path, bytes, cut);
        uint64_t held = bytes_held();
        ck_status(mm_cache_load(s.model, path, &loaded), MM_ERR_FORMAT);
        ck_assert_ptr_null(loaded);
        ck_assert_uint_eq(bytes_held(), held);
    }
    ck_header(s.model, bytes, n, "minimind cache 2", "minimind cache 9", MM_ERR_FORMAT, "minimind cache 9");
    ck_header(s.model, bytes, n, "\"capacity\"", "\"kapacity\"", MM_ERR_FORMAT, "\"capacity\" is missing");
    ck_header(s.model, bytes, n, "\"capacity\":\"40\"", "\"capacity\":\"99\"", MM_ERR_FORMAT, "from 1 to 64");
    ck_header(s.model, bytes, n, "\"capacity\":\"40\"", "\"capacity\":\"-1\"", MM_ERR_FORMAT, "capacity");
    ck_header(s.model, bytes, n, "\"capacity\":\"40\"", "\"capacity\":\"20\"", MM_ERR_FORMAT, "shape");
    ck_header(s.model, bytes, n, "\"sequences\":\"3\"", "\"sequences\":\"2\"", MM_ERR_FORMAT, "9 tensors");
    ck_header(s.model, bytes, n, "\"sequences\":\"3\"", "\"sequences\":\"x\"", MM_ERR_FORMAT, "sequences");
    ck_header(s.model, bytes, n, "\"dtype\":\"q8_0\"", "\"dtype\":\"q9_0\"", MM_ERR_FORMAT, "q9_0");
    ck_header(s.model, bytes, n, "sequences.1.keys", "sequences.9.keys", MM_ERR_FORMAT, "sequences.1.keys is missing");
    ck_header(s.model, bytes, n, "sequences.1.ids", "sequences.9.ids", MM_ERR_FORMAT, "sequences.1.ids is missing");
    ck_header(s.model, bytes, n, "\"I32\"", "\"F32\"", MM_ERR_FORMAT, "sequences.0.ids is F32, must be I32");
    ck_header(s.model, bytes, n, "\"shape\":[21]", "\"shape\":[42]", MM_ERR_FORMAT, "sequences.0.ids");
    ck_header(s.model, bytes, n, "minimind cache 2", "minimind cache 1", MM_ERR_FORMAT, "9 tensors");
    ck_header(s.model, bytes, n, "\"U8\"", "\"I8\"", MM_ERR_FORMAT, "I8");
    ck_header(s.model, bytes, n, "[2,2,21,34]", "[2,2,34,21]", MM_ERR_FORMAT, "[2, 2, 34, 21]");
    ck_header(s.model, bytes, n, "[2,2,21,34]", "[2,2,3,7,1]", MM_ERR_FORMAT, "5 dimensions");
    end(&s);
}
END_TEST

/* Of another vocabulary, or written over. */
START_TEST(ids_that_are_none_of_the_vocabulary_are_a_damaged_file)
{
    static const int32_t wrong[] = { 67, -2, INT32_MAX, INT32_MIN };
    setting s = begin(MM_F32);
    char path[512], damaged[512];
    mm_cache *loaded = NULL;
    mm_output out;
    feed(&s, s.cache, s.batch.ids, B, T, &out);
    snprintf(path, sizeof path, "%s", file_in_scratch());
    snprintf(damaged, sizeof damaged, "%s/damaged", scratch_directory());
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        mmi_cache_ids(s.cache, 1)[T - 1] = wrong[i];
        ck_ok(mm_cache_save(s.cache, damaged));
        ck_status(mm_cache_load(s.model, damaged, &loaded), MM_ERR_FORMAT);
        ck_error_mentions("sequences.1.ids[20] is ");
        ck_assert_ptr_null(loaded);
    }
    end(&s);
}
END_TEST

/* As files were before there were ids: all there is but these, which nothing is known of. */
START_TEST(a_file_without_ids_is_taken_as_it_was)
{
    static const char *const kept[] = { "dtype", "sequences", "capacity", "weights" };
    char values[4][32], old[512];
    const char *metadata[11] = { "format", "minimind cache 1" };
    mmi_st_entry entries[2 * B];
    mmi_st_file file;
    mm_output out;
    size_t count = 0;
    setting s = begin(dtypes[_i]);
    const char *path = file_in_scratch();
    feed(&s, s.cache, s.batch.ids, B, T, &out);
    ck_ok(mm_cache_save(s.cache, path));
    ck_ok(mmi_st_open(path, &file));
    for (size_t i = 0; i < file.count; i++)
        if (!strstr(file.entries[i].name, ".ids"))
            entries[count++] = file.entries[i];
    for (int i = 0; i < 4; i++) {
        ck_ok(mmi_st_metadata(&file, kept[i], values[i], sizeof values[i]));
        metadata[2 + 2 * i] = kept[i];
        metadata[3 + 2 * i] = values[i];
    }
    snprintf(old, sizeof old, "%s/old", scratch_directory());
    ck_ok(mmi_st_write(old, entries, count, metadata));
    mmi_st_close(&file);
    mm_cache *loaded = NULL;
    ck_ok(mm_cache_load(s.model, old, &loaded));
    for (int32_t i = 0; i < B; i++)
        ck_assert_int_eq(mm_cache_length(loaded, i), T);
    ck_assert_int_eq(mmi_cache_ids(loaded, B - 1)[T - 1], -1);
    mm_generate_options o = MM_GENERATE_OPTIONS_INIT; /* which counts none of them */
    mm_generate_result result = MM_GENERATE_RESULT_INIT;
    mm_sampling sampling = MM_SAMPLING_INIT;
    const int32_t id = 5, one = 1, *prompt = &id;
    sampling.repetition_penalty = 2;
    o.sampling = &sampling;
    o.prompts = &prompt;
    o.prompt_lengths = &one;
    o.max_new_tokens = 4;
    o.cache = loaded;
    ck_ok(mm_generate(s.context, &o, &result));
    mm_cache_free(loaded);
    end(&s);
}
END_TEST

/* Two sequences of different lengths whose values have one another's names. */
START_TEST(keys_without_their_values_are_a_damaged_file)
{
    static const char names[3][19] = { "sequences.0.values", "sequences.1.values", "sequences.x.values" };
    static const int turns[3][2] = { { 0, 2 }, { 1, 0 }, { 2, 1 } }; /* from, to */
    static char bytes[1 << 18];
    setting s = begin(MM_F32);
    const char *path = file_in_scratch();
    mm_cache *loaded = NULL;
    mm_output out;
    feed(&s, s.cache, s.batch.ids, 2, T, &out);
    ck_ok(mm_cache_truncate(s.cache, _i, 4));
    ck_ok(mm_cache_save(s.cache, path));
    size_t n = read_all(path, bytes, sizeof bytes);
    for (int turn = 0; turn < 3; turn++)
        for (size_t i = 8; i + 18 <= n; i++)
            if (memcmp(bytes + i, names[turns[turn][0]], 18) == 0)
                memcpy(bytes + i, names[turns[turn][1]], 18);
    write_all(path, bytes, n);
    ck_status(mm_cache_load(s.model, path, &loaded), MM_ERR_FORMAT);
    ck_error_mentions(_i == 0 ? "sequence 0 has 4 keys and 21 values" : "sequence 0 has 21 keys and 4 values");
    ck_assert_ptr_null(loaded);
    end(&s);
}
END_TEST

START_TEST(blocks_that_a_models_heads_do_not_fill_are_a_damaged_file)
{
    static char bytes[1 << 18];
    const char *path = file_in_scratch();
    mm_model *model = nth_model(0, 5);
    mm_cache *cache = NULL;
    ck_ok(mm_cache_create(model, 1, 8, MM_BF16, &cache));
    ck_ok(mm_cache_save(cache, path));
    size_t n = read_all(path, bytes, sizeof bytes);
    ck_header(model, bytes, n, "\"dtype\":\"bf16\"", "\"dtype\":\"q8_0\"", MM_ERR_FORMAT, "q8_0");
    mm_cache_free(cache);
    mm_model_free(model);
}
END_TEST

/* --- Generating --- */

START_TEST(many_samples_of_one_prompt_are_each_what_they_are_alone)
{
    test_rng rng = { 901 };
    mm_model *model = model_of(wide_heads, 3);
    mm_context *context = context_of(model, MM_EVAL, 5, 6, MM_OUT_LAST_LOGITS);
    int32_t *shared = take_ints(&rng, 14, 0, 66), *copy = take_ints(&rng, 14, 0, 66), *own = take_ints(&rng, 9, 0, 66);
    memcpy(copy, shared, 14 * sizeof *copy);
    const int32_t *prompts[5] = { shared, own, copy, shared, shared };
    int32_t lengths[5] = { 14, 9, 14, 14, 13 };
    mm_cache *cache = NULL;
    ck_ok(mm_cache_create(model, 5, ROOM, dtypes[_i], &cache));
    mm_generate_options o = MM_GENERATE_OPTIONS_INIT;
    mm_generate_result r = MM_GENERATE_RESULT_INIT;
    mm_sampling sampling = MM_SAMPLING_INIT;
    sampling.temperature = 0;
    o.sampling = &sampling;
    o.prompts = prompts;
    o.prompt_lengths = lengths;
    o.sequences = 5;
    o.max_new_tokens = 8;
    o.stop_ids = shared;
    o.cache_dtype = dtypes[_i];
    ck_ok(mm_generate(context, &o, &r));
    int32_t ids[5][8];
    memcpy(ids, r.ids, sizeof ids);
    ck_assert(memcmp(ids[0], ids[2], sizeof ids[0]) == 0 && memcmp(ids[0], ids[3], sizeof ids[0]) == 0);
    for (int i = 0; i < 5; i++) {
        o.prompts = &prompts[i];
        o.prompt_lengths = &lengths[i];
        o.sequences = 1;
        ck_ok(mm_generate(context, &o, &r));
        ck_assert_msg(memcmp(r.ids, ids[i], sizeof ids[i]) == 0, "sequence %d", i);
    }
    o.prompts = prompts; /* with the caller's cache, which then holds all of each */
    o.prompt_lengths = lengths;
    o.sequences = 5;
    o.cache = cache;
    ck_ok(mm_generate(context, &o, &r));
    ck_assert(memcmp(r.ids, ids, sizeof ids) == 0);
    for (int32_t i = 0; i < 5; i++)
        ck_assert_int_eq(mm_cache_length(cache, i), lengths[i] + 7);
    sampling.temperature = 3; /* one prompt, samples of their own */
    o.cache = NULL;
    ck_ok(mm_generate(context, &o, &r));
    ck_assert(memcmp(r.ids, r.ids + 3 * r.stride, sizeof ids[0]) != 0);
    mm_cache_free(cache);
    mm_context_free(context);
    mm_model_free(model);
}
END_TEST

START_TEST(sequences_draw_the_same_tokens_with_any_number_of_threads)
{
    test_rng rng = { 902 };
    mm_model *model = model_of(wide_heads, 3);
    int32_t lengths[9];
    const int32_t *prompts[9];
    for (int32_t i = 0; i < 9; i++)
        prompts[i] = take_ints(&rng, lengths[i] = 1 + i % 4, 0, 66);
    mm_generate_options o = MM_GENERATE_OPTIONS_INIT;
    mm_sampling sampling = MM_SAMPLING_INIT;
    sampling.temperature = 1.5f;
    sampling.repetition_penalty = 1.2f;
    sampling.top_k = _i * 20;
    o.sampling = &sampling;
    o.prompts = prompts;
    o.prompt_lengths = lengths;
    o.sequences = 9;
    o.max_new_tokens = 10;
    int32_t *ids = NULL;
    float *logprobs = NULL;
    for (int32_t threads = 1; threads <= 4; threads++) {
        mm_context *context = context_on(model, MM_EVAL, 9, 8, MM_OUT_LAST_LOGITS, threads, NULL);
        mm_generate_result r = MM_GENERATE_RESULT_INIT;
        ck_ok(mm_generate(context, &o, &r));
        for (int32_t i = 0; ids && i < 9; i++)
            for (int32_t t = 0; t < r.lengths[i]; t++)
                ck_assert(r.ids[i * r.stride + t] == ids[i * r.stride + t] &&
                          r.logprobs[i * r.stride + t] == logprobs[i * r.stride + t]);
        if (!ids) {
            ids = take(9 * r.stride, sizeof *ids);
            logprobs = take_copy(r.logprobs, 9 * r.stride);
            memcpy(ids, r.ids, 9 * (size_t)r.stride * sizeof *ids);
        }
        mm_context_free(context);
    }
    mm_model_free(model);
}
END_TEST

/* The logits behind a long text and some more tokens, one by one, of the first of so many sequences: [AFTER, V]. The
 * others go on from most of it. */
enum { LONG = 1100, AT_ONCE = 550, AFTER = 3, MOST_BESIDE = 8 };
static float *behind_a_long_text(mm_model *model, int32_t dtype, int32_t sequences, int32_t threads, const int32_t *ids)
{
    const int32_t V = vocab_of(model);
    mm_context_options how = MM_CONTEXT_OPTIONS_INIT;
    how.max_batch = sequences;
    how.max_length = AT_ONCE;
    how.max_context = LONG + AFTER;
    how.threads = threads;
    setting s = { .model = model };
    mm_output out;
    ck_ok(mm_context_create(model, &how, &s.context));
    ck_ok(mm_cache_create(model, sequences, LONG + AFTER, dtype, &s.cache));
    for (int32_t at = 0; at < LONG; at += AT_ONCE)
        feed(&s, s.cache, ids + at, 1, AT_ONCE, &out);
    for (int32_t i = 1; i < sequences; i++)
        ck_ok(mm_cache_fork(s.cache, i, s.cache, 0, LONG - 7 * i));
    float *logits = take_floats((int64_t)AFTER * V, 0);
    for (int32_t at = 0; at < AFTER; at++) {
        int32_t now[MOST_BESIDE];
        for (int32_t i = 0; i < sequences; i++)
            now[i] = ids[at + i];
        feed(&s, s.cache, now, sequences, 1, &out);
        memcpy(logits + (size_t)at * (size_t)V, out.last_logits.data, (size_t)V * sizeof *logits);
    }
    mm_cache_free(s.cache);
    mm_context_free(s.context);
    return logits;
}

START_TEST(behind_a_long_text_bits_are_the_same_on_any_threads_and_beside_other_sequences)
{
    static const char long_texts[] = "{\"model_type\":\"minimind\",\"hidden_size\":64,\"num_hidden_layers\":1,"
                                     "\"num_attention_heads\":4,\"num_key_value_heads\":2,\"head_dim\":32,"
                                     "\"vocab_size\":67,\"intermediate_size\":96,\"max_position_embeddings\":2048}";
    test_rng rng = { 910 };
    mm_model *exact = model_of(long_texts, 5), *model;
    ck_ok(mm_model_quantize(exact, MM_Q8_0, &model));
    int32_t ids[LONG];
    for (int i = 0; i < LONG; i++)
        ids[i] = (int32_t)rng_between(&rng, 0, vocab_of(model) - 1);
    static const struct {
        int32_t sequences, threads;
    } ways[] = { { 1, 3 }, { 3, 2 }, { MOST_BESIDE, 1 }, { MOST_BESIDE, 2 } }; /* two, six and sixteen key heads */
    mm_model *models[] = { model, exact };
    for (int m = 0; m < 2; m++) {
        const float *expected = behind_a_long_text(models[m], dtypes[_i], 1, 1, ids);
        for (size_t i = 0; i < sizeof ways / sizeof *ways; i++)
            ck_assert_msg(same_bits(behind_a_long_text(models[m], dtypes[_i], ways[i].sequences, ways[i].threads, ids),
                                    expected, AFTER * vocab_of(model)),
                          "weights in %s, %s, %d sequences on %d threads", m == 0 ? "q8_0" : "f32",
                          mm_dtype_name(dtypes[_i]), (int)ways[i].sequences, (int)ways[i].threads);
    }
    mm_model_free(model);
    mm_model_free(exact);
}
END_TEST

START_TEST(the_contexts_own_cache_is_of_the_dtype_that_was_asked_for)
{
    mm_model *model = model_of(wide_heads, 3), *odd = nth_model(0, 1);
    mm_context *context = context_of(model, MM_EVAL, 1, 8, MM_OUT_LAST_LOGITS);
    mm_context *other = context_of(odd, MM_EVAL, 1, 8, MM_OUT_LAST_LOGITS);
    static const int32_t ids[4] = { 1, 2, 3, 4 }, length = 4;
    const int32_t *prompt = ids;
    mm_generate_options o = MM_GENERATE_OPTIONS_INIT;
    mm_generate_result r = MM_GENERATE_RESULT_INIT;
    o.prompts = &prompt;
    o.prompt_lengths = &length;
    o.max_new_tokens = 2;
    ck_ok(mm_generate(context, &o, &r));
    uint64_t held = bytes_held();
    o.cache_dtype = MM_Q8_0;
    ck_ok(mm_generate(context, &o, &r));
    ck_assert_uint_lt(bytes_held(), held);
    uint64_t least = bytes_held(), made = allocations();
    ck_ok(mm_generate(context, &o, &r));
    ck_assert_uint_eq(allocations(), made);
    o.cache_dtype = MM_F16;
    ck_status(mm_generate(context, &o, &r), MM_ERR_ARG);
    ck_error_mentions("cache_dtype");
    ck_assert_uint_eq(bytes_held(), least);
    o.cache_dtype = MM_Q8_0;
    ck_status(mm_generate(other, &o, &r), MM_ERR_ARG);
    mm_context_free(context);
    mm_context_free(other);
    mm_model_free(model);
    mm_model_free(odd);
}
END_TEST

/* Values of some 10^9, which float32 holds and the half scale of a block does not. */
START_TEST(what_blocks_can_not_hold_is_told_and_not_drawn_from)
{
    mm_model *model = model_of(wide_heads, 3);
    mm_context *context = context_of(model, MM_EVAL, 1, 8, MM_OUT_LAST_LOGITS);
    static const int32_t ids[4] = { 1, 2, 3, 4 }, length = 4;
    const int32_t *prompt = ids;
    mm_generate_options o = MM_GENERATE_OPTIONS_INIT;
    mm_generate_result r = MM_GENERATE_RESULT_INIT;
    o.prompts = &prompt;
    o.prompt_lengths = &length;
    o.max_new_tokens = 2;
    for (int64_t t = 0; t < mm_model_tensor_count(model); t++) {
        mm_view view;
        mm_tensor_info info = MM_TENSOR_INFO_INIT;
        ck_ok(mm_layout_get(mm_model_config(model), t, &info));
        ck_ok(mm_model_write(model, t, &view));
        for (int64_t i = 0; i < info.elements && strstr(info.name, ".0.self_attn.v_proj."); i++)
            ((float *)view.data)[i] *= 1e9f;
    }
    mm_model_written(model);
    for (int i = 0; i < DTYPES; i++) {
        o.cache_dtype = dtypes[i];
        ck_status(mm_generate(context, &o, &r), dtypes[i] == MM_Q8_0 ? MM_ERR_NUMERIC : MM_OK);
    }
    mm_context_free(context);
    mm_model_free(model);
}
END_TEST

/* What a cache should hold: the ids of each sequence. */
typedef struct shadow {
    mm_cache *cache;
    int32_t lengths[B], ids[B][ROOM];
} shadow;

/* One more pass over the first sequences, whose logits are those of each as a whole. */
static void step_both(mm_context *context, shadow *s, test_rng *rng)
{
    const int32_t V = vocab_of(mm_context_model(context)), batch = rng_between(rng, 1, B);
    int32_t length = rng_between(rng, 1, 7), given[B * 7];
    for (int32_t i = 0; i < batch; i++)
        length = length < ROOM - s->lengths[i] ? length : ROOM - s->lengths[i];
    if (length == 0)
        return;
    mm_batch b = MM_BATCH_INIT;
    mm_output out = MM_OUTPUT_INIT;
    for (int32_t i = 0; i < batch * length; i++)
        given[i] = rng_between(rng, 0, V - 1);
    b.ids = given;
    b.batch = batch;
    b.length = length;
    b.cache = s->cache;
    ck_ok(mm_forward(context, &b, &out));
    float *logits = copy_view(&out.logits);
    for (int32_t i = 0; i < batch; i++) {
        memcpy(s->ids[i] + s->lengths[i], given + i * length, (size_t)length * sizeof *given);
        s->lengths[i] += length;
        b.ids = s->ids[i];
        b.batch = 1;
        b.length = s->lengths[i];
        b.cache = NULL;
        ck_ok(mm_forward(context, &b, &out));
        const float *whole = (const float *)out.logits.data + (s->lengths[i] - length) * V;
        double error = relative_error(logits + i * length * V, whole, (size_t)(length * V));
        ck_assert_msg(error < 2 * ORDER_OF_SUMS, "sequence %d of %d, %d tokens behind %d: %g", (int)i, (int)batch,
                      (int)length, (int)(s->lengths[i] - length), error);
    }
}

static void cut_both(shadow *s, test_rng *rng)
{
    int32_t i = rng_between(rng, 0, B - 1), length = rng_between(rng, 0, s->lengths[i]);
    ck_ok(mm_cache_truncate(s->cache, i, length));
    s->lengths[i] = length;
}

static void fork_both(shadow *to, const shadow *from, test_rng *rng)
{
    int32_t t = rng_between(rng, -1, B - 1), f = rng_between(rng, 0, B - 1);
    int32_t length = rng_between(rng, -1, from->lengths[f]);
    ck_ok(mm_cache_fork(to->cache, t, from->cache, f, length));
    for (int32_t i = t < 0 ? 0 : t; i <= (t < 0 ? B - 1 : t); i++)
        if (to != from || i != f) {
            to->lengths[i] = length < 0 ? from->lengths[f] : length;
            memcpy(to->ids[i], from->ids[f], sizeof to->ids[i]);
        }
}

START_TEST(any_order_of_calls_leaves_caches_that_go_on_as_the_whole_does)
{
    test_rng rng = { 930 + (unsigned)_i };
    mm_model *model = nth_model(_i, 6);
    mm_context *context = context_of(model, MM_EVAL, B, ROOM, MM_OUT_LOGITS);
    const char *path = file_in_scratch();
    shadow s[2] = { { 0 } };
    for (int i = 0; i < 2; i++)
        ck_ok(mm_cache_create(model, B, ROOM, MM_F32, &s[i].cache));
    for (int round = 0; round < 60; round++) {
        shadow *one = &s[rng_between(&rng, 0, 1)];
        int what = rng_between(&rng, 0, 9);
        if (what < 6)
            step_both(context, one, &rng);
        else if (what < 7)
            cut_both(one, &rng);
        else if (what < 9)
            fork_both(&s[rng_between(&rng, 0, 1)], one, &rng);
        else {
            ck_ok(mm_cache_save(one->cache, path));
            mm_cache_free(one->cache);
            ck_ok(mm_cache_load(model, path, &one->cache));
        }
        for (int32_t i = 0; i < B; i++)
            ck_assert_int_eq(mm_cache_length(one->cache, i), one->lengths[i]);
    }
    for (int i = 0; i < 2; i++)
        mm_cache_free(s[i].cache);
    mm_context_free(context);
    mm_model_free(model);
}
END_TEST

int main(void)
{
    TCase *tests;
    Suite *suite = plain_suite("run/cache", &tests);
    tcase_add_loop_test(tests, fewer_bits_cost_little_and_take_less_memory, 0, DTYPES);
    tcase_add_loop_test(tests, a_token_at_a_time_or_all_at_once_any_cache_holds_the_same, 0, DTYPES);
    tcase_add_loop_test(tests, a_fork_goes_on_as_its_origin_does, 0, DTYPES);
    tcase_add_test(tests, a_fork_held_wrong_is_refused_and_nothing_changes);
    tcase_add_test(tests, heads_that_are_no_whole_blocks_can_not_be_kept_in_blocks);
    tcase_add_loop_test(tests, a_saved_cache_goes_on_where_it_stood, 0, DTYPES);
    tcase_add_test(tests, a_cache_of_blocks_is_of_use_to_their_scales_only);
    tcase_add_test(tests, a_cache_is_of_use_to_the_weights_that_made_it_only);
    tcase_add_test(tests, a_cache_is_of_use_to_a_config_that_makes_the_same_keys_only);
    tcase_add_test(tests, a_cache_is_of_use_to_positions_stretched_alike_only);
    tcase_add_test(tests, a_damaged_file_is_told_from_a_cache);
    tcase_add_test(tests, ids_that_are_none_of_the_vocabulary_are_a_damaged_file);
    tcase_add_loop_test(tests, a_file_without_ids_is_taken_as_it_was, 0, DTYPES);
    tcase_add_loop_test(tests, keys_without_their_values_are_a_damaged_file, 0, 2);
    tcase_add_test(tests, blocks_that_a_models_heads_do_not_fill_are_a_damaged_file);
    tcase_add_loop_test(tests, many_samples_of_one_prompt_are_each_what_they_are_alone, 0, DTYPES);
    tcase_add_loop_test(tests, sequences_draw_the_same_tokens_with_any_number_of_threads, 0, 2);
    tcase_add_loop_test(tests, behind_a_long_text_bits_are_the_same_on_any_threads_and_beside_other_sequences, 0,
                        DTYPES);
    tcase_add_loop_test(tests, any_order_of_calls_leaves_caches_that_go_on_as_the_whole_does, 0, all_count);
    tcase_add_test(tests, the_contexts_own_cache_is_of_the_dtype_that_was_asked_for);
    tcase_add_test(tests, what_blocks_can_not_hold_is_told_and_not_drawn_from);
    return run_suite(suite);
}
