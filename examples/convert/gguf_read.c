/* Keys become a config; tensors, by the names that its layout asks for, an image of safetensors. */
#include "gguf_read.h"

#include "image.h"
#include "options.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- The config --- */

static int64_t count_of(const gguf_file *file, const char *name, int64_t otherwise)
{
    const int64_t count = gguf_int(file, name, otherwise);
    if (count < 0)
        gguf_refuse(file, "its %s is missing, or negative", name + 1);
    return count;
}

static void put_count(grown *json, const char *name, int64_t value)
{
    put_format(json, ",\"%s\":%" PRId64, name, value);
}

/* As it was before it was a float: of its digits the fewest that tell it from others. */
static void put_real(grown *json, const char *name, double value)
{
    char text[40];
    int digits = 1;
    do
        snprintf(text, sizeof text, "%.*g", digits, value);
    while (strtof(text, NULL) != (float)value && ++digits < 10);
    put_format(json, ",\"%s\":%s", name, text);
}

/* YaRN is the one way of stretching positions that the library and llama.cpp share. */
static void put_scaling(grown *json, const gguf_file *file)
{
    gguf_text type = gguf_string(file, ".rope.scaling.type");
    const double factor = gguf_real(file, ".rope.scaling.factor", 1);
    const int64_t original =
        gguf_int(file, ".rope.scaling.original_context_length", gguf_int(file, ".context_length", 0));
    if (!type.at) /* as llama.cpp has it */
        type = factor == 0 || factor == 1 ? (gguf_text){ "none", 4 } : (gguf_text){ "linear", 6 };
    if (gguf_text_is(type, "none"))
        return;
    if (!gguf_text_is(type, "yarn") || !(factor >= 1))
        gguf_refuse(file, "its rope.scaling.type is %.*s, of %g: only yarn is run, of 1 and more", GGUF_SHOWN(type),
                    factor);
    put_words(json, ",\"rope_scaling\":{\"type\":\"yarn\",\"variant\":\"standard\"");
    put_real(json, "factor", factor);
    put_real(json, "attention_factor", 1 + 0.1 * log(factor));
    put_count(json, "original_max_position_embeddings", original);
    put_words(json, "}");
}

static void put_experts(grown *json, const gguf_file *file, bool wanted)
{
    const int64_t experts = gguf_int(file, ".expert_count", 0), chosen = gguf_int(file, ".expert_used_count", 0);
    if (wanted != (experts != 0))
        gguf_refuse(file, "its expert_count is %" PRId64 ", which a %.*s has not", experts,
                    GGUF_SHOWN(file->architecture));
    if (!wanted)
        return;
    put_count(json, "num_experts", experts);
    put_count(json, "num_experts_per_tok", chosen);
    put_count(json, "moe_intermediate_size", count_of(file, ".expert_feed_forward_length", -1));
    put_words(json, ",\"norm_topk_prob\":true");
}

/* What is said of the architecture and has not been asked for might change what the model says. These two do not. */
static void expect_no_more(const gguf_file *file)
{
    const gguf_text prefix = file->architecture;
    gguf_find(file, ".rope.scaling.finetuned");
    gguf_find(file, ".tensor_data_layout");
    for (uint64_t i = 0; i < file->key_count; i++) {
        const gguf_text name = file->keys[i].name;
        const bool own = name.length > prefix.length && name.at[prefix.length] == '.' &&
                         memcmp(name.at, prefix.at, prefix.length) == 0;
        if (own && !file->keys[i].asked)
            gguf_refuse(file, "it has the key %.*s, which is not known here", GGUF_SHOWN(name));
    }
}

static bool is_same(const gguf_tensor *a, const gguf_tensor *b)
{
    return a->kind == b->kind && a->size == b->size && memcmp(a->data, b->data, (size_t)a->size) == 0;
}

static mm_config *read_config(const gguf_file *file, const char *model_type)
{
    const gguf_tensor *embedding = gguf_find_tensor(file, "token_embd.weight");
    const gguf_tensor *head = gguf_find_tensor(file, "output.weight");
    const int64_t width = count_of(file, ".embedding_length", -1), heads = count_of(file, ".attention.head_count", -1);
    const int64_t size = count_of(file, ".attention.key_length", heads > 0 ? width / heads : 0);
    if (!embedding)
        gguf_refuse(file, "token_embd.weight is missing");
    if (gguf_int(file, ".attention.value_length", size) != size ||
        gguf_int(file, ".rope.dimension_count", size) != size)
        gguf_refuse(file, "its heads have keys of %" PRId64 " numbers, and values or turned ones of others", size);
    grown json = { NULL, 0, 0 };
    put_format(&json, "{\"model_type\":\"%s\"", model_type);
    put_count(&json, "vocab_size", gguf_int(file, ".vocab_size", (int64_t)embedding->lengths[1]));
    put_count(&json, "hidden_size", width);
    put_count(&json, "num_hidden_layers", count_of(file, ".block_count", -1));
    put_count(&json, "intermediate_size", count_of(file, ".feed_forward_length", -1));
    put_count(&json, "num_attention_heads", heads);
    put_count(&json, "num_key_value_heads", gguf_int(file, ".attention.head_count_kv", heads));
    put_count(&json, "head_dim", size);
    put_count(&json, "max_position_embeddings", count_of(file, ".context_length", -1));
    put_count(&json, "bos_token_id", gguf_int(file, "tokenizer.ggml.bos_token_id", -1));
    put_count(&json, "eos_token_id", gguf_int(file, "tokenizer.ggml.eos_token_id", -1));
    put_real(&json, "rms_norm_eps", gguf_real(file, ".attention.layer_norm_rms_epsilon", 1e-6));
    put_real(&json, "rope_theta", gguf_real(file, ".rope.freq_base", 10000));
    put_format(&json, ",\"tie_word_embeddings\":%s", !head || is_same(head, embedding) ? "true" : "false");
    put_scaling(&json, file);
    put_experts(&json, file, strcmp(model_type, "qwen3_moe") == 0);
    put_words(&json, "}");
    expect_no_more(file);
    mm_config *config = NULL;
    if (mm_config_load_memory((const char *)json.at, json.count, &config) != MM_OK ||
        mm_config_validate(config) != MM_OK)
        gguf_refuse(file, "its keys make no model: %s", mm_last_error());
    free(json.at);
    return config;
}

/* --- Weights --- */

static bool is_wide(const gguf_tensor *t)
{
    return gguf_is_wide(t->name, t->axes);
}

/* Is a number of float32 one of fewer bits, too? Not asked are those that float16 has with less precision. */
static bool fits(uint32_t bits, int32_t dtype)
{
    const uint32_t exponent = bits >> 23 & 255;
    if (dtype == MM_BF16)
        return (bits & 0xffff) == 0;
    return (bits & 0x7fffffff) == 0 || ((bits & 0x1fff) == 0 && exponent > 127 - 15 && exponent < 127 + 16);
}

/* What all matrices are in, if the rest is in it without a loss: MM_F32 otherwise. Blocks have the rest in float32. */
static int32_t common_dtype(const gguf_file *file)
{
    int32_t common = -1;
    for (uint64_t i = 0; i < file->tensor_count; i++) {
        const gguf_tensor *t = &file->tensors[i];
        if (!is_wide(t))
            common = common < 0 || common == t->kind->dtype ? t->kind->dtype : MM_F32;
    }
    for (uint64_t i = 0; i < file->tensor_count && (common == MM_BF16 || common == MM_F16); i++) {
        const gguf_tensor *t = &file->tensors[i];
        if (t->kind->dtype != common && t->kind->dtype != MM_F32)
            return MM_F32;
        for (size_t at = 0; t->kind->dtype == MM_F32 && at < t->size; at += 4)
            if (!fits((uint32_t)gguf_number(t->data + at, 4), common))
                return MM_F32;
    }
    return common;
}

/* Blocks of a row as float32: a scale, and 32 numbers in a byte or half a byte each. */
static void widen(unsigned char *to, const unsigned char *from, size_t size, const gguf_kind *kind)
{
    for (const unsigned char *at = from; at < from + size; at += kind->bytes) {
        const float scale = gguf_half((uint16_t)gguf_number(at, 2));
        for (int i = 0; i < 32; i++, to += sizeof scale) {
            const int nibble = (at[2 + i % 16] >> i / 16 * 4 & 15) - 8;
            const float number = scale * (float)(kind->dtype == MM_Q4_0 ? nibble : (signed char)at[2 + i]);
            memcpy(to, &number, sizeof number);
        }
    }
}

/* A tensor, or of a stack one part; its rows, if it is queries or keys of heads of D rows, in our order. */
static void add_tensor(image *to, const gguf_file *file, const gguf_tensor *t, const mm_tensor_info *info, int64_t D,
                       int32_t dtype)
{
    const int64_t rows = info->rank == 1 ? 1 : info->shape[0], columns = info->shape[info->rank - 1];
    const size_t stored = (size_t)(columns / t->kind->numbers) * t->kind->bytes;
    const bool blocks = t->kind->numbers > 1, kept = blocks && t->kind->dtype == dtype && !is_wide(t);
    const size_t written = blocks && !kept ? (size_t)columns * sizeof(float) : stored;
    const char *name = kept ? "U8" : blocks ? "F32" : t->kind->name;
    if ((uint64_t)written > SIZE_MAX / 4 / (uint64_t)rows)
        gguf_refuse(file, "%s is more than this machine can hold", info->name);
    const int64_t shape[2] = { info->shape[0], kept ? (int64_t)stored : info->shape[1] };
    const unsigned char *from = t->data + (info->expert > 0 ? (size_t)(info->expert * rows) * stored : 0);
    image_describe(to, info->name, name, shape, (size_t)info->rank, (uint64_t)rows * written);
    unsigned char *at = put_room(&to->numbers, (size_t)rows * written);
    for (int64_t row = 0; row < rows; row++, from += stored) {
        unsigned char *place = at + (size_t)(D > 0 ? gguf_source_row(row, D) : row) * written;
        if (written != stored)
            widen(place, from, stored, t->kind);
        else
            memcpy(place, from, stored);
    }
}

static const gguf_tensor *find(const gguf_file *file, const mm_tensor_info *info, int64_t experts)
{
    char name[160] = "";
    gguf_tensor *t = gguf_name(name, sizeof name, info) ? gguf_find_tensor(file, name) : NULL;
    if (!t)
        gguf_refuse(file, "%s is missing, which its keys imply", *name ? name : info->name);
    const int64_t wanted[4] = { info->shape[info->rank - 1], info->rank == 2 ? info->shape[0] : 1,
                                info->expert < 0 ? 1 : experts, 1 };
    for (int i = 0; i < 4; i++)
        if (t->lengths[i] != (uint64_t)wanted[i])
            gguf_refuse(file, "%s has %" PRIu64 " where its keys imply %" PRId64 " (axis %d)", name, t->lengths[i],
                        wanted[i], i);
    t->used = true;
    return t;
}

static void fill_image(image *to, const gguf_file *file, const mm_config *config, int32_t dtype)
{
    const int64_t experts = gguf_int(file, ".expert_count", 0);
    const bool llama = gguf_text_is(file->architecture, "llama");
    int64_t count, size;
    check(mm_layout_count(config, &count));
    check(mm_config_get_int(config, "head_dim", &size));
    for (int64_t i = 0; i < count; i++) {
        mm_tensor_info info = MM_TENSOR_INFO_INIT;
        check(mm_layout_get(config, i, &info));
        const bool turned = llama && (strstr(info.name, ".q_proj.") || strstr(info.name, ".k_proj."));
        add_tensor(to, file, find(file, &info, experts), &info, turned ? size : 0, dtype);
    }
    for (uint64_t i = 0; i < file->tensor_count; i++) /* a head that is the embedding stands for it, too */
        if (!file->tensors[i].used && !gguf_text_is(file->tensors[i].name, "output.weight"))
            gguf_refuse(file, "%.*s is no tensor of the model that its keys imply", GGUF_SHOWN(file->tensors[i].name));
}

mm_model *gguf_read(const gguf_file *file)
{
    static const char *const known[][2] = { { "llama", "llama" }, { "qwen3", "qwen3" }, { "qwen3moe", "qwen3_moe" } };
    const char *model_type = NULL;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (gguf_text_is(file->architecture, known[i][0]))
            model_type = known[i][1];
    if (!model_type)
        gguf_refuse(file, "its architecture is \"%.*s\": llama, qwen3 and qwen3moe are read",
                    GGUF_SHOWN(file->architecture));
    if (gguf_int(file, "split.count", 1) > 1)
        gguf_refuse(file, "it is one of several files: llama-gguf-split --merge makes one of them");
    mm_config *config = read_config(file, model_type);
    const int32_t dtype = common_dtype(file);
    image weights = { { NULL, 0, 0 }, { NULL, 0, 0 } };
    fill_image(&weights, file, config, dtype);
    mm_model *model = image_model(&weights, file->path, config, dtype);
    mm_config_free(config);
    return model;
}
