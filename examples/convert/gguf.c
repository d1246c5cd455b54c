/* What a GGUF file is: gguf_file.c. A model of this family without norms on its queries and keys is a `llama` there, with
 * them a `qwen3`, and with experts a `qwen3moe`. */
#include "gguf.h"

#include "gguf_file.h"
#include "grown.h"
#include "json.h"
#include "options.h"
#include "whole.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- What may be said --- */

/* Everything before the numbers; it is small. */
typedef struct head {
    grown bytes;
    uint64_t keys;
} head;

static void put_u32(head *h, uint32_t value)
{
    put_little(&h->bytes, value, 4);
}

static void put_u64(head *h, uint64_t value)
{
    put_little(&h->bytes, value, 8);
}

static void put_text(head *h, const char *text)
{
    put_u64(h, strlen(text));
    put_words(&h->bytes, text);
}

static void begin_key(head *h, const char *name, gguf_type type)
{
    put_text(h, name);
    put_u32(h, type);
    h->keys++;
}

static void key_u32(head *h, const char *name, int64_t value)
{
    begin_key(h, name, GGUF_U32);
    put_u32(h, (uint32_t)value);
}

static void key_text(head *h, const char *name, const char *value)
{
    begin_key(h, name, GGUF_STRING);
    put_text(h, value);
}

static void key_array(head *h, const char *name, gguf_type type, uint64_t count)
{
    begin_key(h, name, GGUF_ARRAY);
    put_u32(h, type);
    put_u64(h, count);
}

/* --- The config --- */

static int64_t count_of(const mm_config *c, const char *key)
{
    int64_t value = 0;
    mm_status status = mm_config_get_int(c, key, &value);
    if (status != MM_ERR_STATE) /* a key that this family of models lacks */
        check(status);
    return value;
}

static double real_of(const mm_config *c, const char *key)
{
    double value = 0;
    check(mm_config_get_float(c, key, &value));
    return value;
}

static int is_so(const mm_config *c, const char *key)
{
    int32_t value = 0;
    mm_status status = mm_config_get_bool(c, key, &value);
    if (status != MM_ERR_STATE)
        check(status);
    return value != 0;
}

/* One of those, which stand with ", " between them; "" where there is none. */
static void expect_text(const mm_config *c, const char *key, const char *those)
{
    char value[64] = "", message[200];
    size_t length;
    mm_status status = mm_config_get_string(c, key, value, sizeof value, &length);
    if (status != MM_ERR_STATE)
        check(status);
    snprintf(message, sizeof message, "no architecture of GGUF is this model's: %s is \"%s\"", key, value);
    const char *at = those;
    while (strncmp(at, value, strlen(value)) != 0 || (at[strlen(value)] != ',' && at[strlen(value)] != '\0')) {
        if (!(at = strstr(at, ", ")))
            fail(message, "");
        at += 2;
    }
}

static void expect(int condition, const char *what)
{
    if (!condition)
        fail("no architecture of GGUF is this model's: ", what);
}

static const char *architecture_of(const mm_config *c)
{
    expect_text(c, "model_type", "minimind, llama, qwen3, qwen3_moe");
    expect_text(c, "mlp_type", "gated");
    expect_text(c, "hidden_act", "silu, swish");
    expect_text(c, "norm_type", "rmsnorm");
    expect_text(c, "position_embedding_type", "rope");
    expect_text(c, "rope_scaling.type", ", default");
    expect(!is_so(c, "inference_rope_scaling"), "inference_rope_scaling is true");
    expect(!is_so(c, "attention_bias"), "attention_bias is true");
    expect(!is_so(c, "mlp_bias"), "mlp_bias is true");
    if (!is_so(c, "use_moe"))
        return is_so(c, "qk_norm") ? "qwen3" : "llama";
    expect(is_so(c, "qk_norm"), "it has experts, and no norms on its queries and keys");
    expect(count_of(c, "num_experts") > 0, "its experts are MiniMind2's");
    expect(is_so(c, "norm_topk_prob"), "norm_topk_prob is false");
    return "qwen3moe";
}

static void put_config(head *h, const mm_config *c, const char *architecture)
{
    const int64_t experts = is_so(c, "use_moe") ? count_of(c, "num_experts") : 0;
    const struct {
        const char *name;
        int64_t value;
    } counts[] = {
        { "vocab_size", count_of(c, "vocab_size") },
        { "context_length", count_of(c, "max_position_embeddings") },
        { "embedding_length", count_of(c, "hidden_size") },
        { "block_count", count_of(c, "num_hidden_layers") },
        { "feed_forward_length", count_of(c, "intermediate_size") },
        { "attention.head_count", count_of(c, "num_attention_heads") },
        { "attention.head_count_kv", count_of(c, "num_key_value_heads") },
        { "attention.key_length", count_of(c, "head_dim") },
        { "attention.value_length", count_of(c, "head_dim") },
        { "rope.dimension_count", count_of(c, "head_dim") },
        { "expert_count", experts }, /* these three only where there are any */
        { "expert_used_count", count_of(c, "num_experts_per_tok") },
        { "expert_feed_forward_length", count_of(c, "moe_intermediate_size") },
    };
    const struct {
        const char *name;
        double value;
    } reals[] = {
        { "attention.layer_norm_rms_epsilon", real_of(c, "rms_norm_eps") },
        { "rope.freq_base", real_of(c, "rope_theta") },
    };
    char name[80];
    key_text(h, "general.architecture", architecture);
    key_u32(h, "general.quantization_version", 2); /* of blocks */
    for (size_t i = 0; i < sizeof counts / sizeof *counts - (experts > 0 ? 0 : 3); i++) {
        snprintf(name, sizeof name, "%s.%s", architecture, counts[i].name);
        key_u32(h, name, counts[i].value);
    }
    for (size_t i = 0; i < sizeof reals / sizeof *reals; i++) {
        float value = (float)reals[i].value;
        snprintf(name, sizeof name, "%s.%s", architecture, reals[i].name);
        begin_key(h, name, GGUF_F32);
        put(&h->bytes, &value, sizeof value);
    }
}

/* --- The tokenizer --- */


typedef struct tokens {
    char **texts; /* [count], NULL: none has this id */
    int32_t *types, count;
} tokens;

static char *read_beside(const char *directory, const char *name, char *path, size_t size, size_t *length)
{
    snprintf(path, size, "%s/%s", directory, name);
    FILE *file = fopen(path, "rb");
    if (!file && errno == ENOENT)
        return NULL;
    return read_all(file, path, length);
}

static _Noreturn void refuse_tokenizer(const char *path, const char *what)
{
    char message[4300];
    snprintf(message, sizeof message, "%s: %s", path, what);
    fail(message, "");
}

static void add_token(tokens *t, const char *path, const char *id, const char *text, int32_t type)
{
    int32_t number = id ? (int32_t)strtol(id, NULL, 10) : -1;
    if (number < 0 || number >= t->count || !text || *text != '"')
        refuse_tokenizer(path, "a token has no text, or an id that the model lacks");
    free(t->texts[number]); /* added tokens are in the vocabulary, too, where they are written byte by byte */
    t->texts[number] = json_text(text);
    t->types[number] = type;
}

static void put_tokens(head *h, const tokens *t)
{
    char unused[32];
    key_array(h, "tokenizer.ggml.tokens", GGUF_STRING, (uint64_t)t->count);
    for (int32_t i = 0; i < t->count; i++) {
        snprintf(unused, sizeof unused, "[PAD%d]", i);
        put_text(h, t->texts[i] ? t->texts[i] : unused);
    }
    key_array(h, "tokenizer.ggml.token_type", GGUF_I32, (uint64_t)t->count);
    for (int32_t i = 0; i < t->count; i++)
        put_u32(h, (uint32_t)(t->texts[i] ? t->types[i] : GGUF_UNUSED));
}

/* Either "left right", or [left, right]. */
static void put_merges(head *h, const char *merges, const char *path)
{
    uint64_t count = 0;
    for (const char *at = json_first(merges); at; at = json_next(at))
        count++;
    key_array(h, "tokenizer.ggml.merges", GGUF_STRING, count);
    for (const char *at = json_first(merges); at; at = json_next(at)) {
        const char *left = *at == '[' ? json_first(at) : at, *right = left != at && left ? json_next(left) : NULL;
        if (!left || *left != '"' || (left != at && (!right || *right != '"')))
            refuse_tokenizer(path, "a merge is no pair of texts");
        char *first = json_text(left), *second = right ? json_text(right) : NULL;
        put_u64(h, strlen(first) + (second ? 1 + strlen(second) : 0));
        put_words(&h->bytes, first);
        if (second) {
            put_words(&h->bytes, " ");
            put_words(&h->bytes, second);
        }
        free(first);
        free(second);
    }
}

/* tokenizer.json was read by the library before, which knows that it makes sense. */
static void put_vocabulary(head *h, const mm_config *c, const char *json, const char *path)
{
    const int32_t count = (int32_t)count_of(c, "vocab_size");
    tokens t = { need(calloc((size_t)count, sizeof *t.texts)), need(calloc((size_t)count, sizeof *t.types)), count };
    const char *model = json_member(json, "\"model\""), *added = json_member(json, "\"added_tokens\"");
    const char *vocabulary = model ? json_member(model, "\"vocab\"") : NULL;
    const char *merges = model ? json_member(model, "\"merges\"") : NULL;
    if (!vocabulary || *vocabulary != '{' || !merges || *merges != '[')
        refuse_tokenizer(path, "it has no model with a vocab and merges");
    for (const char *at = json_first(vocabulary); at; at = json_next(json_value(at)))
        add_token(&t, path, json_value(at), at, GGUF_NORMAL);
    for (const char *at = added && *added == '[' ? json_first(added) : NULL; at; at = json_next(at)) {
        const char *special = json_member(at, "\"special\"");
        add_token(&t, path, json_member(at, "\"id\""), json_member(at, "\"content\""),
                  special && json_is(special, "true") ? GGUF_CONTROL : GGUF_USER_DEFINED);
    }
    put_tokens(h, &t);
    put_merges(h, merges, path);
    for (int32_t i = 0; i < count; i++)
        free(t.texts[i]);
    free(t.texts);
    free(t.types);
}

/* A template, or a list of named ones, of which "default" is the one that is taken. */
static const char *template_of(const char *value)
{
    for (const char *at = value && *value == '[' ? json_first(value) : NULL; at; at = json_next(at)) {
        const char *name = json_member(at, "\"name\"");
        if (name && json_is(name, "\"default\""))
            return json_member(at, "\"template\"");
    }
    return value;
}

/* As it is written in a file of its own, or else in tokenizer_config.json. */
static void put_template(head *h, const char *directory)
{
    char path[4200];
    size_t length;
    char *text = read_beside(directory, "chat_template.jinja", path, sizeof path, &length);
    char *config = text ? NULL : read_beside(directory, "tokenizer_config.json", path, sizeof path, &length);
    if (config) {
        char *json = json_read(config, length, path);
        const char *found = template_of(json_member(json, "\"chat_template\""));
        text = found && *found == '"' ? json_text(found) : NULL;
        free(json);
        free(config);
    }
    if (text)
        key_text(h, "tokenizer.chat_template", text);
    free(text);
}

static void put_tokenizer(head *h, const mm_config *c, const char *directory, int32_t eos_id)
{
    char path[4200];
    size_t length;
    char *text = read_beside(directory, "tokenizer.json", path, sizeof path, &length);
    key_text(h, "tokenizer.ggml.model", text ? "gpt2" : "no_vocab");
    if (!text)
        return;
    char *json = json_read(text, length, path);
    key_text(h, "tokenizer.ggml.pre", "gpt-2"); /* which words there are, before merges */
    put_vocabulary(h, c, json, path);
    if (count_of(c, "bos_token_id") >= 0)
        key_u32(h, "tokenizer.ggml.bos_token_id", count_of(c, "bos_token_id"));
    if (eos_id >= 0)
        key_u32(h, "tokenizer.ggml.eos_token_id", eos_id);
    begin_key(h, "tokenizer.ggml.add_bos_token", GGUF_BOOL);
    put(&h->bytes, &(char){ 0 }, 1); /* templates write it */
    put_template(h, directory);
    free(json);
    free(text);
}

/* --- Tensors --- */

/* One of the file's; of the model it is one, or each expert's. */
typedef struct tensor {
    char name[160];
    mm_view view;
    int32_t first, parts, step; /* the model's tensors first, first + step, … */
    int32_t heads;              /* whose rows are written in another order; 0: as they are */
    int32_t type;               /* GGUF's */
} tensor;

static const gguf_kind *kind_of(int32_t dtype)
{
    const gguf_kind *kind = gguf_kind_of(dtype);
    if (!kind)
        fail("GGUF has no such numbers: ", mm_dtype_name(dtype));
    return kind;
}

/* What is read a number at a time there has to be in float32: vectors, and what chooses experts. */
static int is_wide(const tensor *t)
{
    return gguf_is_wide((gguf_text){ t->name, strlen(t->name) }, (uint32_t)t->view.rank);
}

static tensor *list_tensors(const mm_model *model, const char *architecture, int32_t *count)
{
    const mm_config *c = mm_model_config(model);
    const int32_t all = (int32_t)mm_model_tensor_count(model), experts = (int32_t)count_of(c, "num_experts");
    tensor *list = need(calloc((size_t)all, sizeof *list));
    *count = 0;
    for (int32_t i = 0; i < all; i++) {
        mm_tensor_info info = MM_TENSOR_INFO_INIT;
        check(mm_layout_get(c, i, &info));
        if (info.expert > 0)
            continue;
        tensor *t = &list[(*count)++];
        check(mm_model_tensor(model, i, &t->view));
        if (!gguf_name(t->name, sizeof t->name, &info))
            fail("GGUF has no place for the tensor ", info.name);
        t->first = i;
        t->parts = info.expert == 0 ? experts : 1;
        t->step = 3; /* an expert has three matrices */
        if (strcmp(architecture, "llama") == 0 && strstr(t->name, ".attn_q."))
            t->heads = (int32_t)count_of(c, "num_attention_heads");
        if (strcmp(architecture, "llama") == 0 && strstr(t->name, ".attn_k."))
            t->heads = (int32_t)count_of(c, "num_key_value_heads");
        t->type = is_wide(t) ? 0 : kind_of(t->view.dtype)->type;
    }
    return list;
}

static size_t row_bytes(const tensor *t)
{
    const gguf_kind *k = kind_of(t->view.dtype);
    int64_t columns = t->view.rank == 1 ? t->view.shape[0] : t->view.shape[1];
    return is_wide(t) ? (size_t)columns * sizeof(float) : (size_t)(columns / k->numbers) * k->bytes;
}

static int64_t rows_of(const tensor *t)
{
    return t->view.rank == 1 ? 1 : t->view.shape[0];
}

static uint64_t padded(uint64_t bytes)
{
    return (bytes + GGUF_ALIGNMENT - 1) / GGUF_ALIGNMENT * GGUF_ALIGNMENT;
}

static void put_tensors(head *h, const tensor *list, int32_t count)
{
    uint64_t offset = 0;
    for (int32_t i = 0; i < count; i++) {
        const tensor *t = &list[i];
        put_text(h, t->name);
        put_u32(h, (uint32_t)(t->view.rank + (t->parts > 1)));
        for (int32_t axis = t->view.rank - 1; axis >= 0; axis--)
            put_u64(h, (uint64_t)t->view.shape[axis]);
        if (t->parts > 1)
            put_u64(h, (uint64_t)t->parts);
        put_u32(h, (uint32_t)t->type);
        put_u64(h, offset);
        offset += padded(row_bytes(t) * (size_t)rows_of(t) * (size_t)t->parts);
    }
}

/* --- The file --- */

static void write_padding(uint64_t written)
{
    static const char zeros[GGUF_ALIGNMENT];
    whole_write(zeros, (size_t)(padded(written) - written));
}

static float widened(const void *numbers, int64_t i, int32_t dtype)
{
    uint16_t half;
    float value;
    if (dtype == MM_F32)
        return ((const float *)numbers)[i];
    memcpy(&half, (const char *)numbers + 2 * i, sizeof half);
    if (dtype == MM_F16)
        return gguf_half(half);
    memcpy(&value, &(uint32_t){ (uint32_t)half << 16 }, sizeof value);
    return value;
}

static void write_row(const tensor *t, const mm_view *part, int64_t row)
{
    const int64_t columns = part->rank == 1 ? part->shape[0] : part->shape[1];
    const int64_t source = t->heads > 0 ? gguf_source_row(row, t->view.shape[0] / t->heads) : row;
    const int64_t at = part->rank == 1 ? 0 : source * part->strides[0];
    const char *from = (const char *)part->data + (size_t)at * kind_of(part->dtype)->bytes;
    if (!is_wide(t)) {
        whole_write(from, row_bytes(t));
        return;
    }
    for (int64_t i = 0; i < columns; i++)
        whole_write(&(float){ widened(from, i, part->dtype) }, sizeof(float));
}

static void write_tensor(const mm_model *model, const tensor *t)
{
    for (int32_t p = 0; p < t->parts; p++) {
        mm_view part;
        if (mm_model_tensor(model, t->first + p * t->step, &part) != MM_OK) /* it makes a copy of one in blocks */
            whole_fail(mm_last_error());
        for (int64_t row = 0; row < rows_of(t); row++)
            write_row(t, &part, row);
    }
    write_padding(row_bytes(t) * (size_t)rows_of(t) * (size_t)t->parts);
}

const char *gguf_write(const char *path, const mm_model *model, const char *directory, int32_t eos_id)
{
    const mm_config *c = mm_model_config(model);
    const char *architecture = architecture_of(c);
    int32_t count;
    head keys = { { NULL, 0, 0 }, 0 }, h = keys;
    tensor *list = list_tensors(model, architecture, &count);
    put_config(&keys, c, architecture);
    put_tokenizer(&keys, c, directory, eos_id);
    put_words(&h.bytes, "GGUF");
    put_u32(&h, GGUF_VERSION);
    put_u64(&h, (uint64_t)count);
    put_u64(&h, keys.keys);
    put(&h.bytes, keys.bytes.at, keys.bytes.count);
    put_tensors(&h, list, count);

    whole_begin(path, GGUF_BEGIN, "GGUF");
    whole_write(h.bytes.at, h.bytes.count);
    write_padding(h.bytes.count);
    for (int32_t i = 0; i < count; i++)
        write_tensor(model, &list[i]);
    whole_end();
    free(keys.bytes.at);
    free(h.bytes.at);
    free(list);
    return architecture;
}
