#include "configs.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

mm_status load_quoted(const char *text, mm_config **out)
{
    size_t length = strlen(text);
    char *json = malloc(length + 1);
    ck_assert_ptr_nonnull(json);
    for (size_t i = 0; i <= length; i++)
        json[i] = text[i] == '\'' ? '"' : text[i];
    mm_status status = mm_config_load_memory(json, length, out);
    free(json);
    return status;
}

mm_config *config_of(const char *text)
{
    mm_config *config = NULL;
    mm_status status = load_quoted(text, &config);
    ck_assert_msg(status == MM_OK, "%s: %s", text, mm_last_error());
    return config;
}

static int64_t type_of(const char *name)
{
    for (int32_t i = 0; i < mm_config_key_count(); i++) {
        mm_config_key key = MM_CONFIG_KEY_INIT;
        ck_each(mm_config_key_get(i, &key) == MM_OK, "key %d: %s", i, mm_last_error());
        if (strcmp(key.name, name) == 0)
            return key.type;
    }
    ck_abort_msg("no key %s", name);
    return -1;
}

const char *value_text(const mm_config *config, const char *key)
{
    static char texts[4][64];
    static unsigned turn;
    char *text = texts[turn++ % 4];
    int64_t whole = 0;
    double number = 0;
    int32_t truth = 0;
    mm_status status = MM_OK;
    switch (type_of(key)) {
    case MM_TYPE_INT:
        status = mm_config_get_int(config, key, &whole);
        snprintf(text, sizeof texts[0], "%lld", (long long)whole);
        break;
    case MM_TYPE_FLOAT:
        status = mm_config_get_float(config, key, &number);
        snprintf(text, sizeof texts[0], "%.17g", number);
        if (strtod(text, NULL) == number)
            for (int digits = 1; strtod(text, NULL) != number || digits == 1; digits++)
                snprintf(text, sizeof texts[0], "%.*g", digits, number);
        break;
    case MM_TYPE_BOOL:
        status = mm_config_get_bool(config, key, &truth);
        snprintf(text, sizeof texts[0], "%s", truth ? "true" : "false");
        break;
    default:
        status = mm_config_get_string(config, key, text, sizeof texts[0], NULL);
        break;
    }
    if (status == MM_OK)
        return text;
    ck_status(status, MM_ERR_STATE);
    if (strstr(mm_last_error(), "not a key of this"))
        return "foreign";
    return strstr(mm_last_error(), "model_type is not set") ? "unset" : "none";
}

void check_equal_configs(const mm_config *a, const mm_config *b)
{
    for (int32_t i = 0; i < mm_config_key_count(); i++) {
        mm_config_key key = MM_CONFIG_KEY_INIT;
        ck_ok(mm_config_key_get(i, &key));
        const char *left = value_text(a, key.name);
        const char *right = value_text(b, key.name);
        ck_assert_msg(strcmp(left, right) == 0, "%s is %s in one config and %s in the other", key.name, left, right);
    }
}

typedef struct text {
    char data[2048];
    size_t used;
} text;

static void add(text *t, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    t->used += (size_t)vsnprintf(t->data + t->used, sizeof t->data - t->used, format, args);
    va_end(args);
    ck_assert_uint_lt(t->used, sizeof t->data);
}

static bool coin(test_rng *rng)
{
    return rng_between(rng, 0, 1) == 1;
}

static const char *truth(test_rng *rng)
{
    return coin(rng) ? "true" : "false";
}

static const char *pick(test_rng *rng, const char *const *words, int count)
{
    return words[rng_between(rng, 0, count - 1)];
}

static void add_positions(text *t, test_rng *rng, bool unspecified)
{
    static const char *const types[] = { "rope", "sinusoidal", "none" };
    if (coin(rng))
        add(t, ",'position_embedding_type':'%s'", pick(rng, types, 3));
    if (coin(rng))
        add(t, ",'use_rope':%s", truth(rng));
    if (coin(rng))
        add(t, ",'rope_parameters':{'rope_theta':%d.5}", rng_between(rng, 100, 100000));
    else if (coin(rng))
        add(t, ",'rope_theta':%d", rng_between(rng, 100, 100000));
    if (coin(rng)) {
        add(t, ",'rope_scaling':{'%s':'yarn','factor':%d,'note':{'deep':[1,2.5,null]}",
            coin(rng) ? "type" : "rope_type", rng_between(rng, 1, 40));
        if (coin(rng) || unspecified)
            add(t, ",'variant':'%s'", coin(rng) ? "standard" : "minimind2");
        if (coin(rng))
            add(t, ",'attention_factor':1.25");
        add(t, "}");
    } else if (coin(rng)) {
        add(t, ",'rope_scaling':null");
    }
}

static void add_experts(text *t, test_rng *rng, int family)
{
    bool newer = family == 1 || family == 5;
    int experts = rng_between(rng, 1, 6), shared = rng_between(rng, 0, 3);
    if (family != 5 || coin(rng))
        add(t, ",'use_moe':true");
    add(t, ",'num_experts_per_tok':%d", rng_between(rng, 1, experts));
    if (newer)
        add(t, ",'%s':%d,'moe_intermediate_size':%d,'router_aux_loss_coef':0.0125",
            coin(rng) ? "num_experts" : "num_local_experts", experts, rng_between(rng, 1, 70));
    else
        add(t, ",'n_routed_experts':%d,'n_shared_experts':%d", family == 2 ? experts + shared : experts, shared);
    if (coin(rng))
        add(t, ",'norm_topk_prob':%s,'seq_aux':%s", truth(rng), truth(rng));
}

mm_config *random_config(test_rng *rng)
{
    static const char *const heads[] = { "'model_type':'minimind','minimind_version':2",
                                         "'model_type':'minimind','minimind_version':3",
                                         "'model_type':'minigpt'",
                                         "'model_type':'llama'",
                                         "'model_type':'qwen3'",
                                         "'model_type':'qwen3_moe'" };
    static const char *const acts[] = { "silu", "swish", "swiglu", "gelu", "gelu_tanh", "relu" };
    int family = rng_between(rng, 0, 5);
    int kv = rng_between(rng, 1, 3), n_heads = kv * rng_between(rng, 1, 3), half = rng_between(rng, 1, 20);
    text t = { { 0 }, 0 };
    add(&t, "{%s,'num_attention_heads':%d,'num_key_value_heads':%d,'num_hidden_layers':%d,'vocab_size':%d", heads[family],
        n_heads, kv, rng_between(rng, 1, 4), rng_between(rng, 1, 300));
    if (coin(rng) || family == 4)
        add(&t, ",'hidden_size':%d,'head_dim':%d", n_heads * rng_between(rng, 1, 50), 2 * half);
    else
        add(&t, ",'hidden_size':%d", n_heads * 2 * half);
    if (coin(rng) || family >= 3)
        add(&t, ",'intermediate_size':%d", rng_between(rng, 1, 200));
    if (coin(rng))
        add(&t, ",'norm_type':'%s','qk_norm':%s", coin(rng) ? "layernorm" : "rmsnorm", truth(rng));
    if (coin(rng))
        add(&t, ",'attention_bias':%s,'mlp_bias':%s,'tie_word_embeddings':%s", truth(rng), truth(rng), truth(rng));
    if (coin(rng))
        add(&t, ",'mlp_type':'%s','hidden_act':'%s'", coin(rng) ? "plain" : "gated", pick(rng, acts, 6));
    if (coin(rng))
        add(&t, ",'rms_norm_eps':%.17g,'attention_dropout':%.17g", rng_uniform(rng), rng_uniform(rng) * 0.9);
    add_positions(&t, rng, family >= 3);
    if (family == 5 || (family < 3 && coin(rng)))
        add_experts(&t, rng, family);
    if (coin(rng))
        add(&t, ",'architectures':['A \\u00e9'],'transformers_version':'4.57','own':{'x':[0.1,{'y':null}]}");
    add(&t, "}");
    return config_of(t.data);
}
