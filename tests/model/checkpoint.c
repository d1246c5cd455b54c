#define _POSIX_C_SOURCE 200809L
#include "checkpoint.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/dtype.h"
#include "base/memory.h"
#include "support.h"

mm_config *family_config(const char *model_type)
{
    char json[512];
    mm_config *config = NULL;
    snprintf(json, sizeof json,
             "{\"model_type\":\"%s\",\"hidden_size\":16,\"num_hidden_layers\":2,\"num_attention_heads\":2,"
             "\"num_key_value_heads\":1,\"head_dim\":8,\"intermediate_size\":24,\"vocab_size\":20,\"note\":\"kept\"}",
             model_type);
    ck_ok(mm_config_load_memory(json, strlen(json), &config));
    return config;
}

mm_model *sample_model(uint64_t seed)
{
    mm_config *config = family_config("minimind");
    mm_model *model = NULL;
    ck_ok(mm_model_create(config, seed, &model));
    mm_config_free(config);
    return model;
}

void add_row(rows *r, const char *name, int32_t dtype, int32_t rank, int64_t d0, int64_t d1, const void *data)
{
    ck_assert_uint_lt(r->count, ROWS_MAX);
    mmi_st_entry *e = &r->entries[r->count];
    memset(e, 0, sizeof *e);
    e->name = r->names[r->count++];
    snprintf(e->name, MMI_ST_NAME_MAX, "%s", name);
    e->dtype = dtype;
    e->rank = rank;
    e->shape[0] = d0;
    e->shape[1] = d1;
    e->shape[2] = e->shape[3] = 1;
    e->data = data;
}

void rows_of(rows *out, const mm_model *model)
{
    out->count = 0;
    for (int64_t i = 0; i < mm_model_tensor_count(model); i++) {
        mm_tensor_info info = MM_TENSOR_INFO_INIT;
        mm_view view;
        ck_ok(mm_layout_get(mm_model_config(model), i, &info));
        ck_ok(mm_model_tensor(model, i, &view));
        add_row(out, info.name, view.dtype, view.rank, view.shape[0], view.shape[1], view.data);
        if (mmi_block_bytes(view.dtype) == 0)
            continue;
        mmi_st_entry *e = &out->entries[out->count - 1];
        e->dtype = MMI_ST_BYTES;
        e->shape[1] = (int64_t)mmi_dtype_bytes(view.dtype, view.shape[1]);
    }
}

mmi_st_entry *row_named(rows *r, const char *name)
{
    for (size_t i = 0; i < r->count; i++)
        if (strcmp(r->entries[i].name, name) == 0)
            return &r->entries[i];
    ck_abort_msg("there is no row %s", name);
    return NULL;
}

void drop_row(rows *r, const char *name)
{
    mmi_st_entry *e = row_named(r, name);
    *e = r->entries[--r->count];
}

const char *in(const char *directory, const char *name)
{
    static char paths[8][800];
    static int next;
    char *path = paths[next++ % 8];
    snprintf(path, sizeof *paths, "%s/%s", directory, name);
    return path;
}

const char *directory_of(const mm_model *model, const rows *r)
{
    static char paths[8][400];
    static int next;
    char *directory = paths[next++ % 8];
    snprintf(directory, sizeof *paths, "%s", scratch_directory());
    ck_ok(mm_config_save(mm_model_config(model), directory));
    if (r)
        ck_ok(mmi_st_write(in(directory, "model.safetensors"), r->entries, r->count, NULL));
    return directory;
}

void write_text(const char *path, const char *text)
{
    ck_ok(mmi_write_file(path, text, strlen(text)));
}

void patch_file(const char *path, const char *from, const char *to)
{
    char *data = NULL;
    size_t size = 0, length = strlen(from);
    ck_assert_uint_eq(length, strlen(to));
    ck_ok(mmi_read_file(path, &data, &size));
    size_t at = 0;
    while (at + length <= size && memcmp(data + at, from, length) != 0)
        at++;
    ck_assert_msg(at + length <= size, "%s does not hold %s", path, from);
    memcpy(data + at, to, length);
    ck_ok(mmi_write_file(path, data, size));
    mmi_free(data);
}

void resize_file(const char *path, long size)
{
    ck_assert_int_eq(truncate(path, size), 0);
}

long file_size(const char *path)
{
    struct stat info;
    ck_assert_int_eq(stat(path, &info), 0);
    return (long)info.st_size;
}

int files_in(const char *directory)
{
    int count = 0;
    DIR *d = opendir(directory);
    ck_assert_ptr_nonnull(d);
    for (struct dirent *e = readdir(d); e; e = readdir(d))
        count += strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0;
    closedir(d);
    return count;
}

int weights_equal(const mm_model *a, const mm_model *b)
{
    if (mm_model_tensor_count(a) != mm_model_tensor_count(b))
        return 0;
    for (int64_t i = 0; i < mm_model_tensor_count(a); i++) {
        mm_view x, y;
        ck_ok(mm_model_tensor(a, i, &x));
        ck_ok(mm_model_tensor(b, i, &y));
        size_t bytes = mmi_dtype_bytes(x.dtype, x.shape[0] * x.shape[1]);
        if (x.dtype != y.dtype || memcmp(x.shape, y.shape, sizeof x.shape) != 0 || memcmp(x.data, y.data, bytes) != 0)
            return 0;
    }
    return 1;
}

void same_weights(const mm_model *a, const mm_model *b)
{
    ck_assert_msg(weights_equal(a, b), "the weights differ");
}

void mini_llm_name(char *out, size_t size, const char *name)
{
    static const char *const parts[][2] = { { "gate_proj.", "ffn.w_gate." },
                                            { "up_proj.", "ffn.w_up." },
                                            { "down_proj.", "ffn.w_down." } };
    static const char *const others[][2] = { { "self_attn.", "attention." },
                                             { "input_layernorm.", "norm1." },
                                             { "post_attention_layernorm.", "norm2." },
                                             { "mlp.gate_proj.", "feed_forward.w_gate." },
                                             { "mlp.up_proj.", "feed_forward.w_up." },
                                             { "mlp.down_proj.", "feed_forward.w_down." },
                                             { "mlp.gate.weight", "feed_forward.routed_moe.router.gate.weight" },
                                             { "mlp.shared_weight", "feed_forward.shared_weight" },
                                             { "mlp.routed_weight", "feed_forward.routed_weight" } };
    int layer = 0, number = 0, used = 0;
    snprintf(out, size, "%s",
             strcmp(name, "model.embed_tokens.weight") == 0 ? "token_embedding.weight"
             : strcmp(name, "model.norm.weight") == 0       ? "layer_norm.weight"
                                                            : name);
    if (sscanf(name, "model.layers.%d.%n", &layer, &used) != 1)
        return;
    const char *tail = name + used;
    bool shared = sscanf(tail, "mlp.shared_experts.%d.%n", &number, &used) == 1;
    if (shared || sscanf(tail, "mlp.experts.%d.%n", &number, &used) == 1) {
        for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
            if (strncmp(tail + used, parts[i][0], strlen(parts[i][0])) == 0)
                snprintf(out, size, "transformer_blocks.%d.feed_forward.%s.%d.%s%s", layer,
                         shared ? "shared_experts" : "routed_moe.experts", number, parts[i][1],
                         tail + used + strlen(parts[i][0]));
        return;
    }
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (strncmp(tail, others[i][0], strlen(others[i][0])) == 0)
            snprintf(out, size, "transformer_blocks.%d.%s%s", layer, others[i][1], tail + strlen(others[i][0]));
}

void mutate(unsigned char *image, size_t size, size_t header, test_rng *rng)
{
    for (int flips = rng_between(rng, 1, 3); size > 0 && flips > 0; flips--) {
        size_t range = rng_between(rng, 0, 3) > 0 && header < size ? header : size;
        unsigned char *byte = &image[rng_between(rng, 0, (int)range - 1)];
        *byte = rng_between(rng, 0, 1) ? (unsigned char)(*byte ^ 1 << rng_between(rng, 0, 7))
                                       : (unsigned char)rng_next(rng);
    }
}

void mutated_images_do_no_harm(const mm_config *config, const char *file, uint64_t seed, int rounds)
{
    char *data = NULL;
    size_t size = 0;
    uint64_t before = bytes_held();
    ck_ok(mmi_read_file(file, &data, &size));
    const uint64_t held = bytes_held();
    const size_t header = 8 + (size_t)(unsigned char)data[0] + 256 * (size_t)(unsigned char)data[1];
    test_rng rng = { seed };
    int loaded = 0, refused = 0;
    for (int round = 0; round < rounds; round++) {
        size_t length = round % 4 == 0 ? (size_t)rng_between(&rng, 0, (int)size) : size;
        unsigned char *image = malloc(length + (length == 0)); /* its exact size: a step outside is seen */
        memcpy(image, data, length);
        mutate(image, length, header, &rng);
        mm_model *out = NULL;
        mm_status status = mm_model_load_memory(config, image, length, &out);
        ck_assert(status == MM_OK || status == MM_ERR_FORMAT || status == MM_ERR_UNSUPPORTED);
        ck_assert((status == MM_OK) == (out != NULL));
        loaded += status == MM_OK;
        refused += status != MM_OK;
        mm_model_free(out);
        ck_assert_uint_eq(bytes_held(), held);
        free(image);
    }
    ck_assert_int_gt(loaded, 0);
    ck_assert_int_gt(refused, rounds / 2);
    mmi_free(data);
    ck_assert_uint_eq(bytes_held(), before);
}
