/* Version 3, and 2, which is the same, is a list of keys, a list of tensors and their numbers, all little-endian:
 *
 *     "GGUF" u32 version  u64 tensors  u64 keys
 *     each key:     text name  u32 type  value              a text is u64 bytes and these; an array u32 type, u64 count
 *     each tensor:  text name  u32 axes  u64 lengths[axes], the fastest first  u32 type  u64 offset
 *     numbers, each tensor's from a multiple of 32 bytes, or of general.alignment, on
 *
 * See ggml's docs/gguf.md. Names of keys and tensors are those of the architectures there. */
#include "gguf_file.h"

#include "options.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const gguf_kind kinds[] = { { MM_F32, 0, 1, 4, "F32" },
                                   { MM_F16, 1, 1, 2, "F16" },
                                   { MM_Q4_0, 2, 32, 18, "Q4_0" },
                                   { MM_Q8_0, 8, 32, 34, "Q8_0" },
                                   { MM_BF16, 30, 1, 2, "BF16" } };
enum { KINDS = sizeof kinds / sizeof *kinds };

const gguf_kind *gguf_kind_of(int32_t dtype)
{
    for (size_t i = 0; i < KINDS; i++)
        if (kinds[i].dtype == dtype)
            return &kinds[i];
    return NULL;
}

bool gguf_name(char *name, size_t size, const mm_tensor_info *info)
{
    static const char *const names[][2] = {
        { "model.embed_tokens.weight", "token_embd.weight" },
        { "model.norm.weight", "output_norm.weight" },
        { "lm_head.weight", "output.weight" },
        { "input_layernorm.weight", "attn_norm.weight" },
        { "self_attn.q_proj.weight", "attn_q.weight" },
        { "self_attn.k_proj.weight", "attn_k.weight" },
        { "self_attn.v_proj.weight", "attn_v.weight" },
        { "self_attn.o_proj.weight", "attn_output.weight" },
        { "self_attn.q_norm.weight", "attn_q_norm.weight" },
        { "self_attn.k_norm.weight", "attn_k_norm.weight" },
        { "post_attention_layernorm.weight", "ffn_norm.weight" },
        { "mlp.gate_proj.weight", "ffn_gate.weight" },
        { "mlp.up_proj.weight", "ffn_up.weight" },
        { "mlp.down_proj.weight", "ffn_down.weight" },
        { "mlp.gate.weight", "ffn_gate_inp.weight" },
        { "gate_proj.weight", "ffn_gate_exps.weight" }, /* these three behind an expert's prefix */
        { "up_proj.weight", "ffn_up_exps.weight" },
        { "down_proj.weight", "ffn_down_exps.weight" },
    };
    char prefix[80] = "", block[40] = "";
    int length = 0;
    if (info->layer >= 0) {
        length = snprintf(prefix, sizeof prefix, "model.layers.%d.", info->layer);
        snprintf(block, sizeof block, "blk.%d.", info->layer);
    }
    if (info->expert >= 0)
        length += snprintf(prefix + length, sizeof prefix - (size_t)length, "mlp.experts.%d.", info->expert);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strncmp(info->name, prefix, (size_t)length) == 0 && strcmp(info->name + length, names[i][0]) == 0) {
            snprintf(name, size, "%s%s", block, names[i][1]);
            return true;
        }
    return false;
}

bool gguf_is_wide(gguf_text name, uint32_t axes)
{
    static const char router[] = "ffn_gate_inp.weight";
    const size_t length = sizeof router - 1;
    return axes == 1 || (name.length > length && memcmp(name.at + name.length - length, router, length) == 0);
}

int64_t gguf_source_row(int64_t row, int64_t D)
{
    const int64_t in_head = row % D;
    return row - in_head + in_head % 2 * (D / 2) + in_head / 2;
}

/* The sign, then 5 bits of exponent and 10 of the fraction, which 2^112 brings to its place. */
float gguf_half(uint16_t half)
{
    const bool infinite = (half & 0x7c00u) == 0x7c00u;
    const uint32_t bits = (half & 0x7fffu) << 13 | (infinite ? 0x7f800000u : 0);
    float value;
    memcpy(&value, &bits, sizeof value);
    value = infinite ? value : value * 0x1p112f;
    return half & 0x8000u ? -value : value;
}

/* --- What is read --- */

bool gguf_text_is(gguf_text text, const char *words)
{
    return text.length == strlen(words) && memcmp(text.at, words, text.length) == 0;
}

void gguf_refuse(const gguf_file *file, const char *format, ...)
{
    char message[1200];
    va_list arguments;
    int length = snprintf(message, sizeof message, "%.300s: ", file->path);
    va_start(arguments, format);
    vsnprintf(message + length, sizeof message - (size_t)length, format, arguments);
    va_end(arguments);
    fail_plainly(message);
}

typedef struct reader {
    const gguf_file *file;
    const unsigned char *at, *end;
} reader;

static const unsigned char *take(reader *r, uint64_t count)
{
    if ((uint64_t)(r->end - r->at) < count)
        gguf_refuse(r->file, "it is cut short, or damaged");
    r->at += count;
    return r->at - count;
}

uint64_t gguf_number(const unsigned char *at, size_t bytes)
{
    uint64_t number = 0;
    for (size_t i = bytes; i-- > 0;)
        number = number << 8 | at[i];
    return number;
}

static uint64_t take_number(reader *r, size_t bytes)
{
    return gguf_number(take(r, bytes), bytes);
}

static gguf_text take_text(reader *r)
{
    const uint64_t length = take_number(r, 8);
    return (gguf_text){ (const char *)take(r, length), (size_t)length };
}

gguf_text gguf_next_text(const unsigned char **at)
{
    gguf_text text = { (const char *)*at + 8, (size_t)gguf_number(*at, 8) };
    *at += 8 + text.length;
    return text;
}

/* How many there may be, of at least so many bytes each. */
static uint64_t take_count(reader *r, uint64_t least)
{
    const uint64_t count = take_number(r, 8);
    if (count > (uint64_t)(r->end - r->at) / least)
        gguf_refuse(r->file, "it is cut short, or damaged");
    return count;
}

static const size_t type_bytes[] = { 1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8 };

static gguf_key take_key(reader *r)
{
    gguf_key k = { .name = take_text(r), .count = 1 };
    uint32_t type = (uint32_t)take_number(r, 4);
    if ((k.array = type == GGUF_ARRAY)) {
        type = (uint32_t)take_number(r, 4);
        k.count = take_count(r, 1);
    }
    if (type > GGUF_F64 || type == GGUF_ARRAY)
        gguf_refuse(r->file, "%.*s is of a type that is not known here", GGUF_SHOWN(k.name));
    k.type = (gguf_type)type;
    k.values = r->at;
    for (uint64_t i = 0; type == GGUF_STRING && i < k.count; i++)
        take_text(r);
    if (type != GGUF_STRING && k.count > (uint64_t)(r->end - r->at) / type_bytes[type])
        gguf_refuse(r->file, "it is cut short, or damaged");
    take(r, k.count * type_bytes[type]);
    return k;
}

static const gguf_kind *kind_of_type(const gguf_file *file, gguf_text name, uint32_t type)
{
    static const char others[][5] = { "",     "", "",     "Q4_1", "",     "",     "Q5_0", "Q5_1",
                                      "", "Q8_1", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K" };
    for (size_t i = 0; i < KINDS; i++)
        if ((uint32_t)kinds[i].type == type)
            return &kinds[i];
    const char *what = type < sizeof others / sizeof *others && *others[type] ? others[type] : "something else";
    gguf_refuse(file, "%.*s is %s (type %u): F32, F16, BF16, Q8_0 and Q4_0 are read, so take the model in another "
                      "quantization", GGUF_SHOWN(name), what, type);
}

static gguf_tensor take_tensor(reader *r, uint64_t *offset)
{
    gguf_tensor t = { .name = take_text(r), .lengths = { 1, 1, 1, 1 } };
    uint64_t numbers = 1;
    t.axes = (uint32_t)take_number(r, 4);
    if (t.axes < 1 || t.axes > 4)
        gguf_refuse(r->file, "%.*s has no number of axes from 1 to 4", GGUF_SHOWN(t.name));
    for (uint32_t i = 0; i < t.axes; i++) {
        t.lengths[i] = take_number(r, 8);
        if (t.lengths[i] < 1 || t.lengths[i] > INT64_MAX / 8 / numbers)
            gguf_refuse(r->file, "%.*s is cut short, or damaged", GGUF_SHOWN(t.name));
        numbers *= t.lengths[i];
    }
    t.kind = kind_of_type(r->file, t.name, (uint32_t)take_number(r, 4));
    *offset = take_number(r, 8);
    if (t.lengths[0] % (uint64_t)t.kind->numbers != 0)
        gguf_refuse(r->file, "%.*s has rows that are not of whole blocks", GGUF_SHOWN(t.name));
    t.size = numbers / (uint64_t)t.kind->numbers * t.kind->bytes;
    return t;
}

/* --- Looking things up; a name is the first member of both kinds of rows --- */

static int by_name(const void *a, const void *b)
{
    const gguf_text *x = a, *y = b;
    const int order = memcmp(x->at, y->at, x->length < y->length ? x->length : y->length);
    return order != 0 ? order : (x->length > y->length) - (x->length < y->length);
}

static void sort(const gguf_file *file, void *rows, uint64_t count, size_t size)
{
    qsort(rows, (size_t)count, size, by_name);
    for (uint64_t i = 1; i < count; i++) {
        const gguf_text *name = (const void *)((const char *)rows + i * size);
        if (by_name((const char *)rows + (i - 1) * size, name) == 0)
            gguf_refuse(file, "%.*s is there twice", GGUF_SHOWN(*name));
    }
}

static void *look_up(const char *name, void *rows, uint64_t count, size_t size)
{
    const gguf_text text = { name, strlen(name) };
    return bsearch(&text, rows, (size_t)count, size, by_name);
}

gguf_tensor *gguf_find_tensor(const gguf_file *file, const char *name)
{
    return look_up(name, file->tensors, file->tensor_count, sizeof *file->tensors);
}

gguf_key *gguf_find(const gguf_file *file, const char *name)
{
    char full[300];
    const gguf_text prefix = *name == '.' ? file->architecture : (gguf_text){ "", 0 };
    snprintf(full, sizeof full, "%.*s%s", GGUF_SHOWN(prefix), name);
    gguf_key *key = look_up(full, file->keys, file->key_count, sizeof *file->keys);
    if (key)
        key->asked = true;
    return key;
}

int64_t gguf_int(const gguf_file *file, const char *name, int64_t otherwise)
{
    const gguf_key *key = gguf_find(file, name);
    if (!key)
        return otherwise;
    const bool is_signed = key->type == GGUF_I8 || key->type == GGUF_I16 || key->type == GGUF_I32;
    const size_t bytes = type_bytes[key->type];
    uint64_t number = key->array ? 0 : gguf_number(key->values, bytes);
    if (is_signed && number >> (8 * bytes - 1) != 0)
        number |= UINT64_MAX << 8 * bytes;
    if (key->array || key->type == GGUF_STRING || key->type == GGUF_F32 || key->type == GGUF_F64 ||
        (key->type == GGUF_U64 && number > INT64_MAX))
        gguf_refuse(file, "%s is no whole number", name + (*name == '.'));
    return (int64_t)number;
}

double gguf_real(const gguf_file *file, const char *name, double otherwise)
{
    const gguf_key *key = gguf_find(file, name);
    float real;
    if (!key)
        return otherwise;
    if (key->array || key->type != GGUF_F32)
        gguf_refuse(file, "%s is no float32", name + (*name == '.'));
    memcpy(&real, key->values, sizeof real);
    return (double)real;
}

gguf_text gguf_string(const gguf_file *file, const char *name)
{
    const gguf_key *key = gguf_find(file, name);
    const unsigned char *at = key ? key->values : NULL;
    if (key && (key->array || key->type != GGUF_STRING))
        gguf_refuse(file, "%s is no text", name + (*name == '.'));
    return key ? gguf_next_text(&at) : (gguf_text){ NULL, 0 };
}

const gguf_key *gguf_array(const gguf_file *file, const char *name, gguf_type type)
{
    gguf_key *key = gguf_find(file, name);
    if (!key || !key->array || key->type != type)
        gguf_refuse(file, "%s is no list of %s", name, type == GGUF_STRING ? "texts" : "whole numbers");
    return key;
}

/* --- The file --- */

static void place_tensors(gguf_file *file, const uint64_t *offsets, reader *r)
{
    const int64_t alignment = gguf_int(file, "general.alignment", GGUF_ALIGNMENT);
    if (alignment < 1 || alignment > 65536 || (alignment & (alignment - 1)) != 0)
        gguf_refuse(file, "general.alignment is no power of two");
    const uint64_t step = (uint64_t)alignment, head = (uint64_t)(r->at - file->bytes);
    if (file->tensor_count > 0)
        take(r, (step - head % step) % step);
    uint64_t left = (uint64_t)(r->end - r->at), unused = left;
    for (uint64_t i = 0; i < file->tensor_count; i++) {
        gguf_tensor *t = &file->tensors[i];
        if (offsets[i] % step != 0)
            gguf_refuse(file, "%.*s does not begin at a multiple of general.alignment", GGUF_SHOWN(t->name));
        if (offsets[i] > left || t->size > left - offsets[i])
            gguf_refuse(file, "%.*s has numbers beyond the end of the file", GGUF_SHOWN(t->name));
        if (t->size > unused)
            gguf_refuse(file, "%.*s and those before it have more numbers than the file", GGUF_SHOWN(t->name));
        unused -= t->size;
        t->data = r->at + offsets[i];
    }
}

void gguf_open(gguf_file *file, const char *path)
{
    size_t size = 0;
    *file = (gguf_file){ .path = path };
    FILE *opened = fopen(path, "rb");
    if (!opened)
        gguf_refuse(file, "can't be read: %s", strerror(errno));
    file->bytes = (unsigned char *)read_all(opened, path, &size);
    reader r = { file, file->bytes, file->bytes + size };
    take(&r, 4);
    const uint64_t version = take_number(&r, 4);
    if (version != 2 && version != GGUF_VERSION)
        gguf_refuse(file, "it is GGUF of another version than 2 and 3, or big-endian");
    file->tensor_count = take_count(&r, 24);
    file->key_count = take_count(&r, 13);
    file->keys = need(calloc((size_t)file->key_count + 1, sizeof *file->keys));
    file->tensors = need(calloc((size_t)file->tensor_count + 1, sizeof *file->tensors));
    uint64_t *offsets = need(calloc((size_t)file->tensor_count + 1, sizeof *offsets));
    for (uint64_t i = 0; i < file->key_count; i++)
        file->keys[i] = take_key(&r);
    for (uint64_t i = 0; i < file->tensor_count; i++)
        file->tensors[i] = take_tensor(&r, &offsets[i]);
    sort(file, file->keys, file->key_count, sizeof *file->keys);
    file->architecture = gguf_string(file, "general.architecture");
    place_tensors(file, offsets, &r);
    sort(file, file->tensors, file->tensor_count, sizeof *file->tensors);
    free(offsets);
}

void gguf_close(gguf_file *file)
{
    free(file->bytes);
    free(file->keys);
    free(file->tensors);
}
