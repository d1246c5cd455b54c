#include "model/fields.h"

#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SIZE_MOST 2147483647.0 /* matrix sides are handed to 32-bit interfaces */
#define COUNT_MOST 65536.0
#define ANY_MOST 1e9
#define PI 3.14159265358979323846

#define FOREIGN { MMI_FOREIGN, 0 }
#define REQUIRED { MMI_REQUIRED, 0 }
#define NOTHING { MMI_NOTHING, 0 }
#define RULE { MMI_RULE, 0 }
#define IS(number) { MMI_CONSTANT, number }
/* Columns: minimind2, minimind3, minigpt, llama, qwen3, qwen3_moe. */
#define EACH(a, b, c, d, e, f) { a, b, c, d, e, f }
#define ALL(a) { a, a, a, a, a, a }
#define MINIMIND(a) { a, a, FOREIGN, FOREIGN, FOREIGN, FOREIGN }
#define MINIGPT(a) { FOREIGN, FOREIGN, a, FOREIGN, FOREIGN, FOREIGN }
#define INT(key, low, high) key, MM_TYPE_INT, low, high, NULL
#define FLOAT(key, low, high) key, MM_TYPE_FLOAT, low, high, NULL
#define BOOL(key) key, MM_TYPE_BOOL, 0, 0, NULL
#define WORD(key, words) key, MM_TYPE_STRING, 0, 0, words

static const char *const model_types[] = { "minimind", "minigpt", "llama", "qwen3", "qwen3_moe", NULL };
static const char *const activations[] = { "silu",      "swish",    "swiglu",            "gelu",
                                           "gelu_tanh", "gelu_new", "gelu_pytorch_tanh", "relu", NULL };
static const char *const mlp_types[] = { "gated", "plain", NULL };
static const char *const norm_types[] = { "rmsnorm", "layernorm", NULL };
static const char *const position_types[] = { "rope", "sinusoidal", "none", NULL };
static const char *const scaling_types[] = { "yarn", "default", NULL };
static const char *const yarn_variants[] = { "minimind2", "standard", NULL };
static const char *const scoring_functions[] = { "softmax", "sigmoid", NULL };

static const mmi_field table[MMI_KEYS] = {
    [MMI_KEY_MODEL_TYPE] = { WORD("model_type", model_types), "the family", ALL(REQUIRED) },
    [MMI_KEY_MINIMIND_VERSION] = { INT("minimind_version", 2, 3),
        "2 or 3; absent: 3 if a key of MiniMind-3's experts is there, else 2", MINIMIND(RULE) },
    [MMI_KEY_VOCAB_SIZE] = { INT("vocab_size", 1, SIZE_MOST),
        "tokens in the vocabulary", ALL(REQUIRED) },
    [MMI_KEY_HIDDEN_SIZE] = { INT("hidden_size", 1, SIZE_MOST),
        "width of the stream between the layers", ALL(REQUIRED) },
    [MMI_KEY_NUM_HIDDEN_LAYERS] = { INT("num_hidden_layers", 1, COUNT_MOST),
        "layers", ALL(REQUIRED) },
    [MMI_KEY_NUM_ATTENTION_HEADS] = { INT("num_attention_heads", 1, SIZE_MOST),
        "query heads", ALL(REQUIRED) },
    [MMI_KEY_NUM_KEY_VALUE_HEADS] = { INT("num_key_value_heads", 1, SIZE_MOST),
        "key and value heads, a divisor of num_attention_heads",
        EACH(IS(2), IS(4), RULE, RULE, REQUIRED, REQUIRED) },
    [MMI_KEY_HEAD_DIM] = { INT("head_dim", 1, SIZE_MOST),
        "width of a head; even with rotary positions",
        EACH(RULE, RULE, RULE, RULE, IS(128), RULE) },
    [MMI_KEY_INTERMEDIATE_SIZE] = { INT("intermediate_size", 1, SIZE_MOST),
        "width of the feed-forward network; follows hidden_size in minimind and minigpt",
        EACH(RULE, RULE, RULE, REQUIRED, REQUIRED, REQUIRED) },
    [MMI_KEY_HIDDEN_ACT] = { WORD("hidden_act", activations), "activation of the feed-forward network",
        EACH(IS(MMI_WORD_SILU), IS(MMI_WORD_SILU), IS(MMI_WORD_SWIGLU), IS(MMI_WORD_SILU), IS(MMI_WORD_SILU),
                       IS(MMI_WORD_SILU)) },
    [MMI_KEY_MLP_TYPE] = { WORD("mlp_type", mlp_types),
        "gated: down(act(gate(x)) * up(x)); plain: down(act(up(x)))", ALL(IS(MMI_WORD_GATED)) },
    [MMI_KEY_MLP_BIAS] = { BOOL("mlp_bias"),
        "biases in the dense feed-forward network", ALL(IS(false)) },
    [MMI_KEY_NORM_TYPE] = { WORD("norm_type", norm_types),
        "layernorm has a mean and a bias", ALL(IS(MMI_RMSNORM)) },
    [MMI_KEY_RMS_NORM_EPS] = { FLOAT("rms_norm_eps", 0, 1), "epsilon of every norm",
        EACH(IS(1e-5), IS(1e-6), IS(1e-6), IS(1e-6), IS(1e-6), IS(1e-6)) },
    [MMI_KEY_QK_NORM] = { BOOL("qk_norm"), "RMSNorm on every head of q and k, before rotation",
        EACH(IS(false), IS(true), IS(false), IS(false), IS(true), IS(true)) },
    [MMI_KEY_ATTENTION_BIAS] = { BOOL("attention_bias"),
        "biases on q, k, v and o", ALL(IS(false)) },
    [MMI_KEY_TIE_WORD_EMBEDDINGS] = { BOOL("tie_word_embeddings"),
        "the head is the embedding's own matrix",
        EACH(IS(true), IS(true), IS(true), IS(false), IS(false), IS(false)) },
    [MMI_KEY_MAX_POSITION_EMBEDDINGS] = { INT("max_position_embeddings", 1, SIZE_MOST),
        "the longest position a context may be planned for",
        EACH(IS(32768), IS(32768), IS(1024), IS(2048), IS(32768), IS(32768)) },
    [MMI_KEY_POSITION_EMBEDDING_TYPE] = { WORD("position_embedding_type", position_types),
        "how positions enter; absent: rope, or sinusoidal if use_rope is false", ALL(RULE) },
    [MMI_KEY_USE_ROPE] = { BOOL("use_rope"),
        "read only without a position_embedding_type", ALL(IS(true)) },
    [MMI_KEY_ROPE_THETA] = { FLOAT("rope_theta", 1, 1e30), "base of the rotary frequencies",
        EACH(IS(1e6), IS(1e6), IS(1e4), IS(1e4), IS(1e4), IS(1e4)) },
    [MMI_KEY_ROPE_TYPE] = { WORD("rope_scaling.type", scaling_types),
        "yarn stretches the rotary positions; default does not", ALL(RULE) },
    [MMI_KEY_ROPE_VARIANT] = { WORD("rope_scaling.variant", yarn_variants),
        "which YaRN; absent: standard in minimind3 or with an attention_factor, else minimind2",
        ALL(RULE) },
    [MMI_KEY_ROPE_FACTOR] = { FLOAT("rope_scaling.factor", 1e-6, 1e6),
        "how far positions are stretched; absent: 4 in the minimind2 variant, else 16",
        ALL(RULE) },
    [MMI_KEY_ROPE_ORIGINAL] = { INT("rope_scaling.original_max_position_embeddings", 1, SIZE_MOST),
        "the length before stretching; nothing is stretched up to there; absent: 2048",
        ALL(RULE) },
    [MMI_KEY_ROPE_BETA_FAST] = { FLOAT("rope_scaling.beta_fast", 1e-6, 1e6),
        "one end of the ramp from kept to stretched frequencies; absent: 4 in the minimind2 variant, else 32", ALL(RULE) },
    [MMI_KEY_ROPE_BETA_SLOW] = { FLOAT("rope_scaling.beta_slow", 1e-6, 1e6),
        "the other end of that ramp; absent: 1", ALL(RULE) },
    [MMI_KEY_ROPE_ATTENTION_FACTOR] = { FLOAT("rope_scaling.attention_factor", 1e-6, 1e6),
        "multiplies cos and sin, of the standard variant only; absent: 1", ALL(RULE) },
    [MMI_KEY_INFERENCE_ROPE_SCALING] = { BOOL("inference_rope_scaling"),
        "true: the family's own YaRN, where no rope_scaling is given", MINIMIND(IS(false)) },
    [MMI_KEY_DROPOUT] = { FLOAT("dropout", 0, 0.999), "probability, in training only",
        EACH(IS(0), IS(0), IS(0.1), FOREIGN, FOREIGN, FOREIGN) },
    [MMI_KEY_ATTENTION_DROPOUT] = { FLOAT("attention_dropout", 0, 0.999),
        "dropout of the attention weights; absent: as dropout",
        EACH(RULE, RULE, RULE, IS(0), IS(0), IS(0)) },
    [MMI_KEY_USE_MOE] = { BOOL("use_moe"), "experts in every layer",
        EACH(IS(false), IS(false), IS(false), FOREIGN, FOREIGN, IS(true)) },
    [MMI_KEY_NUM_EXPERTS_PER_TOK] = { INT("num_experts_per_tok", 0, COUNT_MOST),
        "routed experts that a token uses",
        EACH(IS(2), IS(1), IS(2), FOREIGN, FOREIGN, REQUIRED) },
    [MMI_KEY_N_ROUTED_EXPERTS] = { INT("n_routed_experts", 0, COUNT_MOST),
        "routed experts; in minigpt the shared ones are taken from them",
        EACH(IS(4), FOREIGN, IS(4), FOREIGN, FOREIGN, FOREIGN) },
    [MMI_KEY_N_SHARED_EXPERTS] = { INT("n_shared_experts", 0, COUNT_MOST),
        "experts that every token uses",
        EACH(IS(1), FOREIGN, IS(1), FOREIGN, FOREIGN, FOREIGN) },
    [MMI_KEY_NUM_EXPERTS] = { INT("num_experts", 0, COUNT_MOST),
        "routed experts; num_local_experts is another spelling",
        EACH(FOREIGN, IS(4), FOREIGN, FOREIGN, FOREIGN, REQUIRED) },
    [MMI_KEY_MOE_INTERMEDIATE_SIZE] = { INT("moe_intermediate_size", 0, SIZE_MOST),
        "width of an expert; follows intermediate_size in minimind3",
        EACH(FOREIGN, RULE, FOREIGN, FOREIGN, FOREIGN, REQUIRED) },
    [MMI_KEY_SCORING_FUNC] = { WORD("scoring_func", scoring_functions),
        "of the router; minimind2 runs softmax only",
        EACH(IS(MMI_WORD_SOFTMAX), FOREIGN, IS(MMI_WORD_SOFTMAX), FOREIGN, FOREIGN, FOREIGN) },
    [MMI_KEY_NORM_TOPK_PROB] = { BOOL("norm_topk_prob"),
        "the chosen experts' weights are made to sum to 1",
        EACH(IS(true), IS(true), IS(true), FOREIGN, FOREIGN, IS(false)) },
    [MMI_KEY_SEQ_AUX] = { BOOL("seq_aux"), "auxiliary loss per sequence instead of per batch",
        EACH(IS(true), FOREIGN, IS(true), FOREIGN, FOREIGN, FOREIGN) },
    [MMI_KEY_AUX_LOSS_ALPHA] = { FLOAT("aux_loss_alpha", -1e6, 1e6),
        "weight of the auxiliary loss; none at 0 and below",
        EACH(IS(0.1), FOREIGN, IS(0.1), FOREIGN, FOREIGN, FOREIGN) },
    [MMI_KEY_ROUTER_AUX_LOSS_COEF] = { FLOAT("router_aux_loss_coef", -1e6, 1e6),
        "weight of the auxiliary loss; none at 0 and below",
        EACH(FOREIGN, IS(5e-4), FOREIGN, FOREIGN, FOREIGN, IS(1e-3)) },
    [MMI_KEY_DECODER_SPARSE_STEP] = { INT("decoder_sparse_step", 0, SIZE_MOST),
        "1: experts in every layer; nothing else is run",
        EACH(FOREIGN, FOREIGN, FOREIGN, FOREIGN, FOREIGN, IS(1)) },
    [MMI_KEY_USE_GQA] = { BOOL("use_gqa"),
        "true; false is another attention, which is not run", MINIGPT(IS(true)) },
    [MMI_KEY_USE_SLIDING_WINDOW] = { BOOL("use_sliding_window"), "false; true is not run",
        EACH(FOREIGN, FOREIGN, FOREIGN, FOREIGN, IS(false), IS(false)) },
    [MMI_KEY_BOS_TOKEN_ID] = { INT("bos_token_id", -1, SIZE_MOST), "begins a text; -1: none",
        EACH(IS(1), IS(1), IS(1), IS(1), NOTHING, NOTHING) },
    [MMI_KEY_EOS_TOKEN_ID] = { INT("eos_token_id", -1, SIZE_MOST), "ends a text; -1: none",
        EACH(IS(2), IS(2), IS(2), IS(2), NOTHING, NOTHING) },
    [MMI_KEY_PAD_TOKEN_ID] = { INT("pad_token_id", -1, SIZE_MOST), "fills up rows; -1: none",
        EACH(NOTHING, NOTHING, IS(0), NOTHING, NOTHING, NOTHING) },
    [MMI_KEY_FLASH_ATTN] = { BOOL("flash_attn"), "accepted, has no effect",
        EACH(IS(true), IS(true), IS(false), FOREIGN, FOREIGN, FOREIGN) },
    [MMI_KEY_GRADIENT_CHECKPOINTING] = { BOOL("gradient_checkpointing"), "accepted, has no effect",
        MINIGPT(IS(false)) },
    [MMI_KEY_MAX_GENERATE_LENGTH] = { INT("max_generate_length", -ANY_MOST, ANY_MOST),
        "accepted, has no effect", MINIGPT(NOTHING) },
    [MMI_KEY_TEMPERATURE] = { FLOAT("temperature", -ANY_MOST, ANY_MOST),
        "accepted, has no effect", MINIGPT(NOTHING) },
    [MMI_KEY_TOP_K] = { INT("top_k", -ANY_MOST, ANY_MOST),
        "accepted, has no effect", MINIGPT(NOTHING) },
    [MMI_KEY_TOP_P] = { FLOAT("top_p", -ANY_MOST, ANY_MOST),
        "accepted, has no effect", MINIGPT(NOTHING) },
};

const mmi_field *mmi_field_get(mmi_key key)
{
    return &table[key];
}

static mmi_key find_exactly(const char *name)
{
    for (int key = 0; key < MMI_KEYS; key++)
        if (strcmp(table[key].name, name) == 0)
            return (mmi_key)key;
    return MMI_KEYS;
}

mmi_key mmi_field_find(const char *name)
{
    static const struct {
        const char *other, *name;
    } spellings[] = {
        { "num_local_experts", "num_experts" },
        { "rope_scaling.rope_type", "rope_scaling.type" },
        { "rope_parameters.rope_type", "rope_scaling.type" },
        { "rope_parameters.rope_theta", "rope_theta" },
        { "rope_scaling.rope_theta", "rope_theta" }, /* newer readers take the one group for the other */
    };
    static const char newer[] = "rope_parameters.", older[] = "rope_scaling.";
    for (size_t i = 0; i < sizeof spellings / sizeof *spellings; i++)
        if (strcmp(spellings[i].other, name) == 0)
            return find_exactly(spellings[i].name);
    if (strncmp(name, newer, sizeof newer - 1) != 0)
        return find_exactly(name);
    for (int key = MMI_KEY_SCALING_FIRST; key <= MMI_KEY_SCALING_LAST; key++)
        if (strcmp(table[key].name + sizeof older - 1, name + sizeof newer - 1) == 0)
            return (mmi_key)key;
    return MMI_KEYS;
}

int64_t mmi_field_word(const mmi_field *field, const char *text, size_t length)
{
    for (int64_t i = 0; field->words[i]; i++)
        if (strlen(field->words[i]) == length && memcmp(field->words[i], text, length) == 0)
            return i;
    return -1;
}

const char *mmi_type_name(int64_t type)
{
    static const char *const names[] = { "an integer", "a number", "true or false", "a string" };
    return names[type];
}

bool mmi_field_in_range(const mmi_field *field, double number)
{
    return number >= field->minimum && number <= field->maximum;
}

bool mmi_field_is_ignored(mmi_key key, mmi_family family)
{
    bool counts = key == MMI_KEY_USE_MOE || key == MMI_KEY_INFERENCE_ROPE_SCALING || key == MMI_KEY_DROPOUT;
    return table[key].family[family].kind == MMI_FOREIGN && !counts;
}

bool mmi_field_means_minimind3(mmi_key key)
{
    const mmi_default *family = table[key].family;
    return family[MMI_MINIMIND2].kind == MMI_FOREIGN && family[MMI_MINIMIND3].kind != MMI_FOREIGN;
}

const char *mmi_field_allowed(const mmi_field *field, char *text, size_t size)
{
    char low[40], high[40];
    if (field->type == MM_TYPE_BOOL) {
        snprintf(text, size, "true or false");
    } else if (field->type != MM_TYPE_STRING) {
        snprintf(text, size, "%s to %s", mmi_number_print(field->minimum, low, sizeof low),
                 mmi_number_print(field->maximum, high, sizeof high));
    } else {
        size_t used = 0;
        for (size_t i = 0; field->words[i] && used < size; i++)
            used += (size_t)snprintf(text + used, size - used, "%s%s", i == 0 ? "one of: " : ", ", field->words[i]);
    }
    return text;
}

/* The host's locale may write a comma for the point. */
static void use_point(char *text)
{
    const char *point = localeconv()->decimal_point;
    char *at = strcmp(point, ".") == 0 ? NULL : strstr(text, point);
    if (!at)
        return;
    *at = '.';
    memmove(at + 1, at + strlen(point), strlen(at + strlen(point)) + 1);
}

const char *mmi_number_print(double number, char *text, size_t size)
{
    if (fabs(number) < 1e15 && number == floor(number)) {
        snprintf(text, size, "%.0f", number);
        return text;
    }
    for (int digits = 1; digits <= 17; digits++) {
        snprintf(text, size, "%.*g", digits, number);
        if (strtod(text, NULL) == number)
            break;
    }
    use_point(text);
    return text;
}

const char *mmi_real_print(double number, char *text, size_t size)
{
    mmi_number_print(number, text, size);
    size_t used = strlen(text);
    if (strcspn(text, ".e") == used)
        snprintf(text + used, size - used, ".0");
    return text;
}

const char *mmi_field_print(const mmi_field *field, mmi_value value, char *text, size_t size)
{
    if (field->type == MM_TYPE_FLOAT)
        return mmi_real_print(value.f, text, size);
    if (field->type == MM_TYPE_STRING)
        snprintf(text, size, "\"%s\"", field->words[value.i]);
    else if (field->type == MM_TYPE_BOOL)
        snprintf(text, size, "%s", value.i ? "true" : "false");
    else
        snprintf(text, size, "%lld", (long long)value.i);
    return text;
}

const char *mmi_quote(const char *text, char quoted[MMI_QUOTE_SIZE])
{
    size_t used = 1, most = MMI_QUOTE_SIZE - 6; /* quotes, "...", NUL */
    quoted[0] = '"';
    for (; *text && used < most; text++)
        quoted[used++] = (unsigned char)*text < ' ' || *text == 127 ? '?' : *text;
    while (*text && used > 1 && ((unsigned char)*text & 0xC0) == 0x80) { /* no half of a UTF-8 character */
        text--;
        used--;
    }
    snprintf(quoted + used, MMI_QUOTE_SIZE - used, "%s\"", *text ? "..." : "");
    return quoted;
}

bool mmi_fields_is_set(const mmi_fields *fields, mmi_key key)
{
    return fields->slots[key].state == MMI_SET;
}

static int64_t version_in_force(const mmi_fields *fields)
{
    if (mmi_fields_is_set(fields, MMI_KEY_MINIMIND_VERSION))
        return fields->slots[MMI_KEY_MINIMIND_VERSION].value.i;
    for (int key = 0; key < MMI_KEYS; key++)
        if (mmi_fields_is_set(fields, (mmi_key)key) && mmi_field_means_minimind3((mmi_key)key))
            return 3;
    return 2;
}

bool mmi_fields_family(const mmi_fields *fields, mmi_family *out)
{
    static const mmi_family families[] = { MMI_MINIMIND2, MMI_MINIGPT, MMI_LLAMA, MMI_QWEN3, MMI_QWEN3_MOE };
    if (!mmi_fields_is_set(fields, MMI_KEY_MODEL_TYPE))
        return false;
    *out = families[fields->slots[MMI_KEY_MODEL_TYPE].value.i];
    if (*out == MMI_MINIMIND2 && version_in_force(fields) == 3)
        *out = MMI_MINIMIND3;
    return true;
}

/* --- Rules: keys that follow other keys --- */

static bool intermediate_rule(const mmi_fields *fields, mmi_family family, mmi_value *out)
{
    mmi_value width;
    if (!mmi_fields_get(fields, family, MMI_KEY_HIDDEN_SIZE, &width))
        return false;
    if (family == MMI_MINIGPT)
        out->i = 4 * width.i;
    else if (family == MMI_MINIMIND3)
        out->i = 64 * (int64_t)ceil((double)width.i * PI / 64);
    else
        out->i = 64 * ((8 * width.i / 3 + 63) / 64);
    return true;
}

static bool head_dim_rule(const mmi_fields *fields, mmi_family family, mmi_value *out)
{
    mmi_value width, heads;
    if (!mmi_fields_get(fields, family, MMI_KEY_HIDDEN_SIZE, &width) ||
        !mmi_fields_get(fields, family, MMI_KEY_NUM_ATTENTION_HEADS, &heads))
        return false;
    out->i = width.i / heads.i;
    return true;
}

static bool kv_heads_rule(const mmi_fields *fields, mmi_family family, mmi_value *out)
{
    if (!mmi_fields_get(fields, family, MMI_KEY_NUM_ATTENTION_HEADS, out))
        return false;
    if (family == MMI_MINIGPT)
        out->i = out->i >= 4 ? out->i / 4 : 1;
    return true;
}

static bool position_rule(const mmi_fields *fields, mmi_family family, mmi_value *out)
{
    mmi_value use_rope;
    if (!mmi_fields_get(fields, family, MMI_KEY_USE_ROPE, &use_rope))
        return false;
    out->i = use_rope.i ? MMI_ROPE : MMI_SINUSOIDAL;
    return true;
}

static bool scaling_rule(const mmi_fields *fields, mmi_family family, mmi_key key, mmi_value *out)
{
    mmi_scaling scaling;
    if (!mmi_fields_scaling(fields, family, &scaling) || scaling.yarn == MMI_YARN_NONE)
        return false;
    switch (key) {
    case MMI_KEY_ROPE_TYPE:
        out->i = MMI_WORD_YARN;
        return true;
    case MMI_KEY_ROPE_VARIANT:
        out->i = scaling.yarn == MMI_YARN_STANDARD ? MMI_WORD_VARIANT_STANDARD : MMI_WORD_VARIANT_MINIMIND2;
        return true;
    case MMI_KEY_ROPE_FACTOR:
        out->f = scaling.factor;
        return true;
    case MMI_KEY_ROPE_ORIGINAL:
        out->i = scaling.original;
        return true;
    case MMI_KEY_ROPE_BETA_FAST:
        out->f = scaling.beta_fast;
        return true;
    case MMI_KEY_ROPE_BETA_SLOW:
        out->f = scaling.beta_slow;
        return true;
    default: /* the minimind2 variant has no magnitude */
        out->f = scaling.attention_factor;
        return scaling.yarn == MMI_YARN_STANDARD;
    }
}

static bool follow_rule(const mmi_fields *fields, mmi_family family, mmi_key key, mmi_value *out)
{
    switch (key) {
    case MMI_KEY_MINIMIND_VERSION:
        out->i = family == MMI_MINIMIND3 ? 3 : 2;
        return true;
    case MMI_KEY_NUM_KEY_VALUE_HEADS:
        return kv_heads_rule(fields, family, out);
    case MMI_KEY_HEAD_DIM:
        return head_dim_rule(fields, family, out);
    case MMI_KEY_INTERMEDIATE_SIZE:
        return intermediate_rule(fields, family, out);
    case MMI_KEY_MOE_INTERMEDIATE_SIZE:
        return mmi_fields_get(fields, family, MMI_KEY_INTERMEDIATE_SIZE, out);
    case MMI_KEY_POSITION_EMBEDDING_TYPE:
        return position_rule(fields, family, out);
    case MMI_KEY_ATTENTION_DROPOUT:
        return mmi_fields_get(fields, family, MMI_KEY_DROPOUT, out);
    default:
        return scaling_rule(fields, family, key, out);
    }
}

bool mmi_fields_get(const mmi_fields *fields, mmi_family family, mmi_key key, mmi_value *out)
{
    const mmi_default *otherwise = &table[key].family[family];
    const mmi_slot *slot = &fields->slots[key];
    if (otherwise->kind == MMI_FOREIGN)
        return false;
    if (slot->state == MMI_SET) {
        *out = slot->value;
        return true;
    }
    if (slot->state == MMI_NULL || otherwise->kind == MMI_RULE)
        return follow_rule(fields, family, key, out);
    if (otherwise->kind != MMI_CONSTANT)
        return false;
    if (table[key].type == MM_TYPE_FLOAT)
        out->f = otherwise->number;
    else
        out->i = (int64_t)otherwise->number;
    return true;
}

/* --- YaRN --- */

bool mmi_fields_has_scaling(const mmi_fields *fields)
{
    for (int key = MMI_KEY_SCALING_FIRST; key <= MMI_KEY_SCALING_LAST; key++)
        if (mmi_fields_is_set(fields, (mmi_key)key))
            return true;
    return false;
}

static bool find_variant(const mmi_fields *fields, mmi_family family, mmi_yarn *out)
{
    const mmi_slot *variant = &fields->slots[MMI_KEY_ROPE_VARIANT];
    if (variant->state == MMI_SET) {
        *out = variant->value.i == MMI_WORD_VARIANT_STANDARD ? MMI_YARN_STANDARD : MMI_YARN_MINIMIND2;
        return true;
    }
    if (family == MMI_MINIMIND3 || mmi_fields_is_set(fields, MMI_KEY_ROPE_ATTENTION_FACTOR)) {
        *out = MMI_YARN_STANDARD;
        return true;
    }
    *out = MMI_YARN_MINIMIND2;
    return family == MMI_MINIMIND2 || family == MMI_MINIGPT;
}

bool mmi_fields_scaling(const mmi_fields *fields, mmi_family family, mmi_scaling *out)
{
    const mmi_slot *slots = fields->slots;
    memset(out, 0, sizeof *out);
    out->yarn = MMI_YARN_NONE;
    if (!mmi_fields_has_scaling(fields)) {
        mmi_value wanted;
        if (!mmi_fields_get(fields, family, MMI_KEY_INFERENCE_ROPE_SCALING, &wanted) || !wanted.i)
            return true;
    } else if (slots[MMI_KEY_ROPE_TYPE].state == MMI_SET && slots[MMI_KEY_ROPE_TYPE].value.i == MMI_WORD_DEFAULT) {
        return true;
    }
    if (!find_variant(fields, family, &out->yarn))
        return false;
    bool standard = out->yarn == MMI_YARN_STANDARD;
#define GIVEN(key, member, otherwise) (slots[key].state == MMI_SET ? slots[key].value.member : (otherwise))
    out->factor = GIVEN(MMI_KEY_ROPE_FACTOR, f, standard ? 16 : 4);
    out->beta_fast = GIVEN(MMI_KEY_ROPE_BETA_FAST, f, standard ? 32 : 4);
    out->beta_slow = GIVEN(MMI_KEY_ROPE_BETA_SLOW, f, 1);
    out->original = GIVEN(MMI_KEY_ROPE_ORIGINAL, i, 2048);
    out->attention_factor = standard ? GIVEN(MMI_KEY_ROPE_ATTENTION_FACTOR, f, 1) : 1;
#undef GIVEN
    return true;
}
