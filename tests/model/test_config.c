/* The config handle: values by name, rules, ranges. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "configs.h"
#include "model/fields.h"

static const char *const bases[] = { "{" MINIMIND2 "}", "{" MINIMIND3 "}", "{" MINIGPT "}",
                                     "{" LLAMA "}",     "{" QWEN3 "}",     "{" QWEN3_MOE "}" };

/* hidden_size 192, 8 heads; required keys have the values of the bases above. "foreign": not a key of the family. */
static const struct {
    const char *key, *by_family[6];
} defaults[] = {
    { "hidden_size", { "192", "192", "192", "192", "192", "192" } },
    { "num_hidden_layers", { "2", "2", "2", "2", "2", "2" } },
    { "num_attention_heads", { "8", "8", "8", "8", "8", "8" } },
    { "vocab_size", { "100", "100", "100", "100", "100", "100" } },
    { "model_type", { "minimind", "minimind", "minigpt", "llama", "qwen3", "qwen3_moe" } },
    { "minimind_version", { "2", "3", "foreign", "foreign", "foreign", "foreign" } },
    { "num_key_value_heads", { "2", "4", "2", "8", "4", "4" } },
    { "head_dim", { "24", "24", "24", "24", "128", "24" } },
    { "intermediate_size", { "512", "640", "768", "512", "512", "512" } },
    { "hidden_act", { "silu", "silu", "swiglu", "silu", "silu", "silu" } },
    { "rms_norm_eps", { "1e-05", "1e-06", "1e-06", "1e-06", "1e-06", "1e-06" } },
    { "rope_theta", { "1e+06", "1e+06", "1e+04", "1e+04", "1e+04", "1e+04" } },
    { "max_position_embeddings", { "32768", "32768", "1024", "2048", "32768", "32768" } },
    { "tie_word_embeddings", { "true", "true", "true", "false", "false", "false" } },
    { "qk_norm", { "false", "true", "false", "false", "true", "true" } },
    { "norm_type", { "rmsnorm", "rmsnorm", "rmsnorm", "rmsnorm", "rmsnorm", "rmsnorm" } },
    { "mlp_type", { "gated", "gated", "gated", "gated", "gated", "gated" } },
    { "attention_bias", { "false", "false", "false", "false", "false", "false" } },
    { "mlp_bias", { "false", "false", "false", "false", "false", "false" } },
    { "use_rope", { "true", "true", "true", "true", "true", "true" } },
    { "position_embedding_type", { "rope", "rope", "rope", "rope", "rope", "rope" } },
    { "rope_scaling.type", { "none", "none", "none", "none", "none", "none" } },
    { "rope_scaling.factor", { "none", "none", "none", "none", "none", "none" } },
    { "inference_rope_scaling", { "false", "false", "foreign", "foreign", "foreign", "foreign" } },
    { "dropout", { "0", "0", "0.1", "foreign", "foreign", "foreign" } },
    { "attention_dropout", { "0", "0", "0.1", "0", "0", "0" } },
    { "bos_token_id", { "1", "1", "1", "1", "none", "none" } },
    { "eos_token_id", { "2", "2", "2", "2", "none", "none" } },
    { "pad_token_id", { "none", "none", "0", "none", "none", "none" } },
    { "flash_attn", { "true", "true", "false", "foreign", "foreign", "foreign" } },
    { "gradient_checkpointing", { "foreign", "foreign", "false", "foreign", "foreign", "foreign" } },
    { "use_gqa", { "foreign", "foreign", "true", "foreign", "foreign", "foreign" } },
    { "use_sliding_window", { "foreign", "foreign", "foreign", "foreign", "false", "false" } },
    { "use_moe", { "false", "false", "false", "foreign", "foreign", "true" } },
    { "num_experts_per_tok", { "2", "1", "2", "foreign", "foreign", "2" } },
    { "n_routed_experts", { "4", "foreign", "4", "foreign", "foreign", "foreign" } },
    { "n_shared_experts", { "1", "foreign", "1", "foreign", "foreign", "foreign" } },
    { "num_experts", { "foreign", "4", "foreign", "foreign", "foreign", "4" } },
    { "moe_intermediate_size", { "foreign", "640", "foreign", "foreign", "foreign", "32" } },
    { "scoring_func", { "softmax", "foreign", "softmax", "foreign", "foreign", "foreign" } },
    { "norm_topk_prob", { "true", "true", "true", "foreign", "foreign", "false" } },
    { "seq_aux", { "true", "foreign", "true", "foreign", "foreign", "foreign" } },
    { "aux_loss_alpha", { "0.1", "foreign", "0.1", "foreign", "foreign", "foreign" } },
    { "router_aux_loss_coef", { "foreign", "0.0005", "foreign", "foreign", "foreign", "0.001" } },
    { "decoder_sparse_step", { "foreign", "foreign", "foreign", "foreign", "foreign", "1" } },
    { "max_generate_length", { "foreign", "foreign", "none", "foreign", "foreign", "foreign" } },
    { "temperature", { "foreign", "foreign", "none", "foreign", "foreign", "foreign" } },
    { "top_k", { "foreign", "foreign", "none", "foreign", "foreign", "foreign" } },
    { "top_p", { "foreign", "foreign", "none", "foreign", "foreign", "foreign" } },
};

START_TEST(absent_keys_have_their_familys_defaults)
{
    mm_config *config = config_of(bases[_i]);
    for (size_t i = 0; i < sizeof defaults / sizeof *defaults; i++) {
        const char *value = value_text(config, defaults[i].key);
        ck_assert_msg(strcmp(value, defaults[i].by_family[_i]) == 0, "family %d: %s is %s, not %s", _i, defaults[i].key,
                      value, defaults[i].by_family[_i]);
    }
    mm_config_free(config);
}
END_TEST

START_TEST(every_key_is_in_the_table_of_defaults_or_of_scaling)
{
    for (int32_t i = 0; i < mm_config_key_count(); i++) {
        mm_config_key key = MM_CONFIG_KEY_INIT;
        ck_ok(mm_config_key_get(i, &key));
        ck_assert_ptr_nonnull(key.name);
        ck_assert_uint_gt(strlen(key.description), 0);
        bool number = key.type == MM_TYPE_INT || key.type == MM_TYPE_FLOAT;
        ck_assert(number ? key.minimum < key.maximum : key.minimum == 0 && key.maximum == 0);
        bool found = strncmp(key.name, "rope_scaling.", 13) == 0;
        for (size_t j = 0; j < sizeof defaults / sizeof *defaults; j++)
            found = found || strcmp(defaults[j].key, key.name) == 0;
        ck_assert_msg(found, "%s is untested", key.name);
    }
    mm_config_key key = MM_CONFIG_KEY_INIT;
    ck_status(mm_config_key_get(-1, &key), MM_ERR_ARG);
    ck_status(mm_config_key_get(mm_config_key_count(), &key), MM_ERR_ARG);
    ck_status(mm_config_key_get(0, NULL), MM_ERR_ARG);
    mm_config_key other;
    mm_config_key_init(&other, sizeof other);
    ck_assert_uint_eq(other.struct_size, sizeof other);
}
END_TEST

START_TEST(a_key_that_was_never_set_follows_its_rule)
{
    mm_config *config = NULL;
    ck_ok(mm_config_create(NULL, &config));
    ck_assert_str_eq(value_text(config, "intermediate_size"), "1408");
    ck_ok(mm_config_set_int(config, "hidden_size", 640));
    ck_assert_str_eq(value_text(config, "intermediate_size"), "1728");
    ck_assert_str_eq(value_text(config, "head_dim"), "80");
    ck_ok(mm_config_set_int(config, "intermediate_size", 99));
    ck_ok(mm_config_set_int(config, "hidden_size", 512));
    ck_assert_str_eq(value_text(config, "intermediate_size"), "99");
    ck_ok(mm_config_unset(config, "intermediate_size"));
    ck_assert_str_eq(value_text(config, "intermediate_size"), "1408");
    ck_ok(mm_config_set_int(config, "minimind_version", 3));
    ck_assert_str_eq(value_text(config, "intermediate_size"), "1664");
    ck_assert_str_eq(value_text(config, "moe_intermediate_size"), "1664");
    ck_ok(mm_config_set_float(config, "dropout", 0.25));
    ck_assert_str_eq(value_text(config, "attention_dropout"), "0.25");
    ck_ok(mm_config_set_bool(config, "use_rope", 0));
    ck_assert_str_eq(value_text(config, "position_embedding_type"), "sinusoidal");
    ck_ok(mm_config_set_string(config, "position_embedding_type", "none"));
    ck_assert_str_eq(value_text(config, "position_embedding_type"), "none");
    mm_config_free(config);
}
END_TEST

START_TEST(the_family_follows_the_version_and_the_experts_keys)
{
    static const struct {
        const char *json, *version;
    } cases[] = {
        { "{'model_type':'minimind'," SHAPE "}", "2" },
        { "{'model_type':'minimind','num_experts':4," SHAPE "}", "3" },
        { "{'model_type':'minimind','num_local_experts':4," SHAPE "}", "3" },
        { "{'model_type':'minimind','moe_intermediate_size':40," SHAPE "}", "3" },
        { "{'model_type':'minimind','router_aux_loss_coef':0," SHAPE "}", "3" },
        { "{'model_type':'minimind','num_experts':null,'router_aux_loss_coef':null," SHAPE "}", "2" },
        { "{'model_type':'minimind','minimind_version':null,'num_experts':4," SHAPE "}", "3" },
        { "{'model_type':'minimind','minimind_version':2,'num_experts':4," SHAPE "}", "2" },
        { "{'minimind_version':3,'model_type':'minimind','n_routed_experts':8," SHAPE "}", "3" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        mm_config *config = config_of(cases[i].json);
        ck_assert_str_eq(value_text(config, "minimind_version"), cases[i].version);
        ck_assert_int_eq(mmi_config_is_set(config, "minimind_version"),
                         strstr(cases[i].json, "'minimind_version':2") || strstr(cases[i].json, "'minimind_version':3"));
        mm_config_free(config);
    }
}
END_TEST

START_TEST(null_key_value_heads_mean_as_many_as_heads)
{
    static const struct {
        const char *json, *heads;
    } cases[] = {
        { "{'num_key_value_heads':null," MINIMIND2 "}", "8" },
        { "{'num_key_value_heads':null," MINIMIND3 "}", "8" },
        { "{'num_key_value_heads':null," MINIGPT "}", "2" },
        { "{'num_key_value_heads':null," LLAMA "}", "8" },
        { "{'num_key_value_heads':null,'model_type':'qwen3','intermediate_size':5," SHAPE "}", "8" },
        { "{'model_type':'minigpt','hidden_size':6,'num_attention_heads':3,'num_hidden_layers':1,'vocab_size':9}", "1" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        mm_config *config = config_of(cases[i].json);
        ck_assert_str_eq(value_text(config, "num_key_value_heads"), cases[i].heads);
        mm_config_free(config);
    }
}
END_TEST

START_TEST(scaling_has_the_defaults_of_its_variant)
{
    static const struct {
        const char *json, *values[7]; /* type, variant, factor, original, fast, slow, attention */
    } cases[] = {
        { "{'inference_rope_scaling':true," MINIMIND2 "}", { "yarn", "minimind2", "4", "2048", "4", "1", "none" } },
        { "{'inference_rope_scaling':true," MINIMIND3 "}", { "yarn", "standard", "16", "2048", "32", "1", "1" } },
        { "{'rope_scaling':{'type':'yarn'}," MINIMIND2 "}", { "yarn", "minimind2", "4", "2048", "4", "1", "none" } },
        { "{'rope_scaling':{'type':'yarn'}," MINIGPT "}", { "yarn", "minimind2", "4", "2048", "4", "1", "none" } },
        { "{'rope_scaling':{'rope_type':'yarn'}," MINIMIND3 "}", { "yarn", "standard", "16", "2048", "32", "1", "1" } },
        { "{'rope_scaling':{}," MINIMIND3 "}", { "yarn", "standard", "16", "2048", "32", "1", "1" } },
        { "{'rope_scaling':{'type':'yarn','attention_factor':1.5}," LLAMA "}",
          { "yarn", "standard", "16", "2048", "32", "1", "1.5" } },
        { "{'rope_scaling':{'type':'yarn','attention_factor':1.5,'variant':'minimind2'}," QWEN3 "}",
          { "yarn", "minimind2", "4", "2048", "4", "1", "1.5" } },
        { "{'rope_scaling':{'type':'yarn','variant':'standard','factor':8,'beta_fast':3,'beta_slow':0.5,"
          "'original_max_position_embeddings':64}," MINIMIND2 "}", { "yarn", "standard", "8", "64", "3", "0.5", "1" } },
        { "{'rope_scaling':{'type':'yarn','attention_factor':null}," MINIMIND2 "}",
          { "yarn", "minimind2", "4", "2048", "4", "1", "none" } },
        { "{'rope_parameters':{'rope_type':'yarn','rope_theta':5e5,'factor':2,'attention_factor':1}," LLAMA "}",
          { "yarn", "standard", "2", "2048", "32", "1", "1" } },
        { "{'rope_scaling':{'type':'default'},'inference_rope_scaling':true," MINIMIND2 "}",
          { "default", "none", "none", "none", "none", "none", "none" } },
        { "{'rope_parameters':{'rope_type':'default','rope_theta':3e4}," LLAMA "}",
          { "default", "none", "none", "none", "none", "none", "none" } },
        { "{'rope_parameters':{'rope_theta':3e4},'inference_rope_scaling':true," MINIMIND2 "}",
          { "yarn", "minimind2", "4", "2048", "4", "1", "none" } },
    };
    static const char *const keys[] = { "type", "variant", "factor", "original_max_position_embeddings",
                                        "beta_fast", "beta_slow", "attention_factor" };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        mm_config *config = config_of(cases[i].json);
        for (size_t k = 0; k < 7; k++) {
            char key[64];
            snprintf(key, sizeof key, "rope_scaling.%s", keys[k]);
            const char *value = value_text(config, key);
            ck_assert_msg(strcmp(value, cases[i].values[k]) == 0, "%s: %s is %s, not %s", cases[i].json, key, value,
                          cases[i].values[k]);
        }
        mm_config_free(config);
    }
}
END_TEST

START_TEST(both_spellings_set_the_same_key)
{
    mm_config *config = config_of("{" MINIMIND3 "}");
    ck_ok(mm_config_set_int(config, "num_local_experts", 7));
    ck_assert_str_eq(value_text(config, "num_experts"), "7");
    ck_ok(mm_config_set_string(config, "rope_scaling.rope_type", "yarn"));
    ck_ok(mm_config_set_int(config, "rope_parameters.factor", 3));
    ck_ok(mm_config_set_float(config, "rope_parameters.rope_theta", 12345));
    ck_assert_str_eq(value_text(config, "rope_scaling.type"), "yarn");
    ck_assert_str_eq(value_text(config, "rope_scaling.factor"), "3");
    ck_assert_str_eq(value_text(config, "rope_theta"), "12345");
    ck_ok(mm_config_unset(config, "rope_scaling"));
    ck_assert_str_eq(value_text(config, "rope_scaling.type"), "none");
    mm_config_free(config);
}
END_TEST

START_TEST(setters_refuse_what_the_table_does_not_allow)
{
    mm_config *config = config_of("{" MINIMIND2 "}"), *before = NULL;
    char endless[5000];
    memset(endless, 'x', sizeof endless - 1);
    endless[sizeof endless - 1] = '\0';
    ck_ok(mm_config_copy(config, &before));

    ck_status(mm_config_set_int(config, "hiden_size", 64), MM_ERR_ARG);
    ck_error_mentions("hiden_size");
    ck_status(mm_config_set_int(config, endless, 64), MM_ERR_ARG);
    ck_status(mm_config_set_int(config, "", 64), MM_ERR_ARG);
    ck_status(mm_config_set_int(config, "rope_scaling", 1), MM_ERR_ARG);
    ck_status(mm_config_set_int(config, "rope_parameters.nothing", 1), MM_ERR_ARG);
    ck_status(mm_config_set_int(config, "hidden_size", 0), MM_ERR_ARG);
    ck_error_mentions("hidden_size can't be 0; allowed is 1 to 2147483647");
    ck_status(mm_config_set_int(config, "hidden_size", -5), MM_ERR_ARG);
    ck_status(mm_config_set_int(config, "vocab_size", INT64_C(2147483648)), MM_ERR_ARG);
    ck_status(mm_config_set_int(config, "vocab_size", INT64_MAX), MM_ERR_ARG);
    ck_status(mm_config_set_int(config, "minimind_version", 4), MM_ERR_ARG);
    ck_status(mm_config_set_int(config, "hidden_act", 1), MM_ERR_ARG);
    ck_error_mentions("hidden_act is a string");
    ck_status(mm_config_set_int(config, "use_moe", 1), MM_ERR_ARG);
    ck_status(mm_config_set_float(config, "hidden_size", 64), MM_ERR_ARG);
    ck_status(mm_config_set_float(config, "dropout", 1), MM_ERR_ARG);
    ck_status(mm_config_set_float(config, "dropout", -0.1), MM_ERR_ARG);
    ck_error_mentions("dropout can't be -0.1; allowed is 0 to 0.999");
    ck_status(mm_config_set_float(config, "dropout", NAN), MM_ERR_ARG);
    ck_status(mm_config_set_float(config, "rope_theta", INFINITY), MM_ERR_ARG);
    ck_status(mm_config_set_int(config, "rope_theta", 0), MM_ERR_ARG);
    ck_status(mm_config_set_bool(config, "use_moe", 2), MM_ERR_ARG);
    ck_status(mm_config_set_bool(config, "hidden_size", 1), MM_ERR_ARG);
    ck_status(mm_config_set_string(config, "hidden_act", "tanh"), MM_ERR_ARG);
    ck_error_mentions("hidden_act can't be \"tanh\"; allowed is one of: silu, swish");
    ck_status(mm_config_set_string(config, "hidden_act", endless), MM_ERR_ARG);
    ck_error_mentions("...\"");
    ck_status(mm_config_set_string(config, "model_type", "minimind3"), MM_ERR_ARG);
    ck_status(mm_config_set_string(config, "vocab_size", "6400"), MM_ERR_ARG);
    ck_status(mm_config_set_string(config, "hidden_act", NULL), MM_ERR_ARG);
    ck_status(mm_config_unset(config, "nonsense"), MM_ERR_ARG);

    check_equal_configs(config, before);
    mm_config_free(config);
    mm_config_free(before);
}
END_TEST

START_TEST(every_number_is_taken_up_to_both_ends_of_its_range)
{
    mm_config *config = config_of("{" MINIMIND2 "}");
    for (int32_t i = 0; i < mm_config_key_count(); i++) {
        mm_config_key key = MM_CONFIG_KEY_INIT;
        ck_ok(mm_config_key_get(i, &key));
        if (key.type == MM_TYPE_INT) {
            ck_ok(mm_config_set_int(config, key.name, (int64_t)key.minimum));
            ck_ok(mm_config_set_int(config, key.name, (int64_t)key.maximum));
            ck_status(mm_config_set_int(config, key.name, (int64_t)key.minimum - 1), MM_ERR_ARG);
            ck_error_mentions(key.name);
            ck_status(mm_config_set_int(config, key.name, (int64_t)key.maximum + 1), MM_ERR_ARG);
            ck_status(mm_config_set_int(config, key.name, INT64_MIN), MM_ERR_ARG);
        } else if (key.type == MM_TYPE_FLOAT) {
            ck_ok(mm_config_set_float(config, key.name, key.minimum));
            ck_ok(mm_config_set_float(config, key.name, key.maximum));
            ck_status(mm_config_set_float(config, key.name, nextafter(key.minimum, -INFINITY)), MM_ERR_ARG);
            ck_status(mm_config_set_float(config, key.name, nextafter(key.maximum, INFINITY)), MM_ERR_ARG);
            ck_error_mentions(key.name);
        } else if (key.type == MM_TYPE_BOOL) {
            ck_ok(mm_config_set_bool(config, key.name, 0));
            ck_ok(mm_config_set_bool(config, key.name, 1));
        }
    }
    (void)mm_config_validate(config); /* whatever it says of these */
    mm_config_free(config);
}
END_TEST

START_TEST(null_pointers_are_refused)
{
    mm_config *config = config_of("{" MINIMIND2 "}"), *out = NULL;
    int64_t whole = 0;
    double number = 0;
    int32_t truth = 0;
    char text[8];
    ck_status(mm_config_create(NULL, NULL), MM_ERR_ARG);
    ck_status(mm_config_copy(NULL, &out), MM_ERR_ARG);
    ck_status(mm_config_copy(config, NULL), MM_ERR_ARG);
    ck_status(mm_config_validate(NULL), MM_ERR_ARG);
    ck_status(mm_config_set_int(NULL, "hidden_size", 1), MM_ERR_ARG);
    ck_status(mm_config_set_int(config, NULL, 1), MM_ERR_ARG);
    ck_status(mm_config_set_float(NULL, "dropout", 0), MM_ERR_ARG);
    ck_status(mm_config_set_bool(config, NULL, 0), MM_ERR_ARG);
    ck_status(mm_config_set_string(NULL, "hidden_act", "silu"), MM_ERR_ARG);
    ck_status(mm_config_unset(NULL, "rope_scaling"), MM_ERR_ARG);
    ck_status(mm_config_unset(config, NULL), MM_ERR_ARG);
    ck_status(mm_config_get_int(NULL, "hidden_size", &whole), MM_ERR_ARG);
    ck_status(mm_config_get_int(config, NULL, &whole), MM_ERR_ARG);
    ck_status(mm_config_get_int(config, "hidden_size", NULL), MM_ERR_ARG);
    ck_status(mm_config_get_float(config, "dropout", NULL), MM_ERR_ARG);
    ck_status(mm_config_get_float(NULL, "dropout", &number), MM_ERR_ARG);
    ck_status(mm_config_get_bool(config, "use_moe", NULL), MM_ERR_ARG);
    ck_status(mm_config_get_bool(NULL, "use_moe", &truth), MM_ERR_ARG);
    ck_status(mm_config_get_string(config, "hidden_act", NULL, 8, NULL), MM_ERR_ARG);
    ck_status(mm_config_get_string(NULL, "hidden_act", text, 8, NULL), MM_ERR_ARG);
    mm_config_free(NULL);
    mm_config_free(config);
    ck_assert_ptr_null(out);
}
END_TEST

START_TEST(getters_give_the_value_in_force_or_say_why_not)
{
    mm_config *config = config_of("{" MINIMIND2 "}");
    int64_t whole = 77;
    double number = 77;
    char text[16] = "before";
    size_t needed = 0;
    ck_status(mm_config_get_int(config, "nonsense", &whole), MM_ERR_ARG);
    ck_status(mm_config_get_int(config, "dropout", &whole), MM_ERR_ARG);
    ck_status(mm_config_get_int(config, "num_experts", &whole), MM_ERR_STATE);
    ck_status(mm_config_get_int(config, "pad_token_id", &whole), MM_ERR_STATE);
    ck_status(mm_config_get_float(config, "hidden_size", &number), MM_ERR_ARG);
    ck_assert_int_eq(whole, 77);
    ck_assert(number == 77);
    ck_ok(mm_config_get_string(config, "hidden_act", NULL, 0, &needed));
    ck_assert_uint_eq(needed, 5);
    ck_status(mm_config_get_string(config, "hidden_act", text, 4, NULL), MM_ERR_ARG);
    ck_assert_str_eq(text, "before");
    ck_ok(mm_config_get_string(config, "hidden_act", text, 5, NULL));
    ck_assert_str_eq(text, "silu");
    ck_ok(mm_config_set_int(config, "rms_norm_eps", 1));
    ck_ok(mm_config_get_float(config, "rms_norm_eps", &number));
    ck_assert(number == 1);

    ck_ok(mm_config_unset(config, "model_type"));
    ck_assert_str_eq(value_text(config, "hidden_size"), "192");
    ck_assert_str_eq(value_text(config, "head_dim"), "unset");
    ck_status(mm_config_validate(config), MM_ERR_UNSUPPORTED);
    ck_error_mentions("model_type is missing");
    ck_ok(mm_config_set_string(config, "model_type", "llama"));
    ck_status(mm_config_validate(config), MM_ERR_ARG);
    ck_error_mentions("intermediate_size is missing");
    ck_ok(mm_config_unset(config, "hidden_size"));
    ck_assert_str_eq(value_text(config, "head_dim"), "none");
    mm_config_free(config);
}
END_TEST

/* Each is possible field by field. */
START_TEST(combinations_that_make_no_model_are_refused)
{
    static const struct {
        const char *json, *words;
        mm_status status;
    } cases[] = {
        { MINIMIND2 ",'num_key_value_heads':3", "num_attention_heads is 8: it must be a multiple of num_key_value_heads",
          MM_ERR_ARG },
        { "'model_type':'minimind','minimind_version':3,'hidden_size':30,'num_attention_heads':6,'num_hidden_layers':1,"
          "'vocab_size':9", "num_key_value_heads, which is 4", MM_ERR_ARG },
        { "'model_type':'llama','hidden_size':50,'num_attention_heads':4,'num_hidden_layers':1,'vocab_size':9,"
          "'intermediate_size':9", "hidden_size is 50: it must be a multiple of num_attention_heads", MM_ERR_ARG },
        { "'model_type':'llama','hidden_size':50,'num_attention_heads':4,'num_hidden_layers':1,'vocab_size':9,"
          "'intermediate_size':9,'head_dim':12", "unless head_dim is another number than 12", MM_ERR_ARG },
        { "'model_type':'llama','hidden_size':3,'num_attention_heads':4,'num_hidden_layers':1,'vocab_size':9,"
          "'intermediate_size':9", "hidden_size is 3", MM_ERR_ARG },
        { MINIMIND3 ",'head_dim':25", "head_dim is 25: with rotary positions it must be even", MM_ERR_ARG },
        { MINIMIND2 ",'use_moe':true,'num_experts_per_tok':5", "num_experts_per_tok is 5", MM_ERR_ARG },
        { MINIMIND2 ",'use_moe':true,'num_experts_per_tok':0", "num_experts_per_tok is 0", MM_ERR_ARG },
        { MINIMIND2 ",'use_moe':true,'n_routed_experts':0", "n_routed_experts leaves 0", MM_ERR_ARG },
        { MINIGPT ",'use_moe':true,'n_shared_experts':4", "n_routed_experts leaves 0 routed experts beside the shared",
          MM_ERR_ARG },
        { MINIGPT ",'use_moe':true,'n_shared_experts':9", "n_routed_experts leaves 0", MM_ERR_ARG },
        { MINIGPT ",'use_moe':true,'n_shared_experts':3", "num_experts_per_tok is 2", MM_ERR_ARG },
        { MINIMIND3 ",'use_moe':true,'num_experts':0", "num_experts leaves 0", MM_ERR_ARG },
        { MINIMIND3 ",'use_moe':true,'moe_intermediate_size':0", "moe_intermediate_size is 0", MM_ERR_ARG },
        { MINIMIND2 ",'use_moe':true,'scoring_func':'sigmoid'", "scoring_func is \"sigmoid\"", MM_ERR_UNSUPPORTED },
        { MINIGPT ",'use_gqa':false", "use_gqa is false", MM_ERR_UNSUPPORTED },
        { QWEN3 ",'use_sliding_window':true", "use_sliding_window is true", MM_ERR_UNSUPPORTED },
        { QWEN3_MOE ",'use_sliding_window':true", "use_sliding_window is true", MM_ERR_UNSUPPORTED },
        { QWEN3_MOE ",'decoder_sparse_step':2", "decoder_sparse_step is 2", MM_ERR_UNSUPPORTED },
        { QWEN3_MOE ",'mlp_only_layers':[0]", "mlp_only_layers", MM_ERR_UNSUPPORTED },
        { QWEN3_MOE ",'mlp_only_layers':0", "mlp_only_layers", MM_ERR_UNSUPPORTED },
        { LLAMA ",'use_moe':true", "use_moe is true", MM_ERR_UNSUPPORTED },
        { QWEN3 ",'use_moe':true", "use_moe is true", MM_ERR_UNSUPPORTED },
        { LLAMA ",'dropout':0.1", "dropout is 0.1", MM_ERR_UNSUPPORTED },
        { QWEN3_MOE ",'dropout':0.1", "dropout is 0.1", MM_ERR_UNSUPPORTED },
        { LLAMA ",'inference_rope_scaling':true", "inference_rope_scaling is true", MM_ERR_UNSUPPORTED },
        { MINIGPT ",'inference_rope_scaling':true", "inference_rope_scaling is true", MM_ERR_UNSUPPORTED },
        { LLAMA ",'rope_scaling':{'type':'yarn','factor':4}", "rope_scaling.variant", MM_ERR_UNSUPPORTED },
        { QWEN3 ",'rope_parameters':{'rope_type':'yarn','factor':4}", "rope_scaling.variant", MM_ERR_UNSUPPORTED },
        { MINIMIND3 ",'rope_theta':1,'rope_scaling':{'type':'yarn'}", "rope_theta is 1", MM_ERR_ARG },
        { "'model_type':'minimind','hidden_size':2147483647,'num_attention_heads':1,'num_key_value_heads':1,"
          "'num_hidden_layers':1,'vocab_size':9,'position_embedding_type':'none'",
          "intermediate_size is 5726623104, which follows from hidden_size", MM_ERR_ARG },
        { "'model_type':'llama','hidden_size':64,'num_attention_heads':65536,'head_dim':65536,'num_hidden_layers':1,"
          "'vocab_size':9,'intermediate_size':9", "num_attention_heads is 65536 and head_dim 65536", MM_ERR_ARG },
        { "'model_type':'llama','hidden_size':2147483646,'num_attention_heads':1,'num_hidden_layers':65536,"
          "'vocab_size':2147483647,'intermediate_size':2147483647", "too many to be addressed", MM_ERR_ARG },
        { "'model_type':'llama','hidden_size':2097152,'num_attention_heads':1,'num_hidden_layers':65536,"
          "'vocab_size':2,'intermediate_size':2097152", "model.layers.0.self_attn.q_proj.weight [2097152, 2097152], "
          "times 65536", MM_ERR_ARG },
        { "'model_type':'llama','hidden_size':64,'num_attention_heads':4,'num_hidden_layers':1,'vocab_size':9",
          "intermediate_size is missing", MM_ERR_ARG },
        { "'model_type':'qwen3','intermediate_size':9," SHAPE, "num_key_value_heads is missing", MM_ERR_ARG },
        { "'model_type':'qwen3_moe','use_moe':false,'num_key_value_heads':2,'intermediate_size':9," SHAPE,
          "num_experts_per_tok is missing", MM_ERR_ARG },
        { "'model_type':'minimind'", "vocab_size is missing", MM_ERR_ARG },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char json[1024];
        mm_config *config = NULL;
        snprintf(json, sizeof json, "{%s}", cases[i].json);
        /* What is wrong about arguments is, in a file, wrong about the file. */
        mm_status expected = cases[i].status == MM_ERR_ARG ? MM_ERR_FORMAT : cases[i].status;
        ck_assert_msg(load_quoted(json, &config) == expected, "%s: %s", json, mm_last_error());
        ck_error_mentions(cases[i].words);
        ck_assert_ptr_null(config);
    }
}
END_TEST

START_TEST(validation_speaks_of_arguments_and_allocates_nothing)
{
    mm_config *config = config_of("{" MINIMIND2 "}");
    mmi_memory_fail_at(0, false);
    ck_ok(mm_config_validate(config));
    ck_ok(mm_config_set_int(config, "num_key_value_heads", 3));
    ck_status(mm_config_validate(config), MM_ERR_ARG);
    ck_error_mentions("num_key_value_heads, which is 3");
    ck_assert_uint_eq(mmi_memory_fail_at(0, false), 0);
    mm_config_free(config);
}
END_TEST

START_TEST(every_preset_is_a_valid_config)
{
    mm_config *config = NULL;
    for (int32_t i = 0; i < mm_preset_count(); i++) {
        ck_ok(mm_config_create(mm_preset_name(i), &config));
        ck_ok(mm_config_validate(config));
        mm_config_free(config);
    }
    ck_assert_ptr_null(mm_preset_name(-1));
    ck_assert_ptr_null(mm_preset_name(mm_preset_count()));
    config = NULL;
    ck_status(mm_config_create("gpt-5", &config), MM_ERR_ARG);
    ck_error_mentions("no preset \"gpt-5\"");
    for (int32_t i = 0; i < mm_preset_count(); i++)
        ck_error_mentions(mm_preset_name(i));
    ck_assert_ptr_null(config);
    ck_ok(mm_config_create(NULL, &config));
    ck_assert_str_eq(value_text(config, "hidden_size"), "512");
    mm_config_free(config);
}
END_TEST

START_TEST(a_copy_is_equal_and_its_cost_is_known)
{
    test_rng rng = { 5 };
    for (int i = 0; i < 50; i++) {
        mm_config *config = random_config(&rng), *copy = NULL;
        uint64_t before = bytes_held();
        ck_ok(mm_config_copy(config, &copy));
        ck_assert_uint_eq(bytes_held() - before, mmi_config_bytes(config));
        check_equal_configs(config, copy);
        mm_config_free(config);
        ck_ok(mm_config_validate(copy));
        mm_config_free(copy);
    }
    ck_assert_uint_eq(bytes_held(), 0);
}
END_TEST

START_TEST(running_out_of_memory_leaves_nothing_behind)
{
    mm_config *config = config_of("{" MINIMIND2 ",'unknown':[1,2,3]}"), *out = NULL;
    uint64_t before = bytes_held();
    mmi_memory_fail_at(1, false);
    ck_status(mm_config_copy(config, &out), MM_ERR_MEMORY);
    mmi_memory_fail_at(1, false);
    ck_status(mm_config_create(NULL, &out), MM_ERR_MEMORY);
    for (uint64_t n = 1; n <= 2; n++) {
        mmi_memory_fail_at(n, false);
        ck_status(load_quoted("{" MINIMIND2 ",'unknown':[1,2,3]}", &out), MM_ERR_MEMORY);
    }
    mmi_memory_fail_at(0, false);
    ck_assert_uint_eq(bytes_held(), before);
    ck_assert_ptr_null(out);
    mm_config_free(config);
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("model/config");
    TCase *tests = tcase_create("config");
    tcase_add_loop_test(tests, absent_keys_have_their_familys_defaults, 0, 6);
    tcase_add_test(tests, every_key_is_in_the_table_of_defaults_or_of_scaling);
    tcase_add_test(tests, a_key_that_was_never_set_follows_its_rule);
    tcase_add_test(tests, the_family_follows_the_version_and_the_experts_keys);
    tcase_add_test(tests, null_key_value_heads_mean_as_many_as_heads);
    tcase_add_test(tests, scaling_has_the_defaults_of_its_variant);
    tcase_add_test(tests, both_spellings_set_the_same_key);
    tcase_add_test(tests, setters_refuse_what_the_table_does_not_allow);
    tcase_add_test(tests, every_number_is_taken_up_to_both_ends_of_its_range);
    tcase_add_test(tests, null_pointers_are_refused);
    tcase_add_test(tests, getters_give_the_value_in_force_or_say_why_not);
    tcase_add_test(tests, combinations_that_make_no_model_are_refused);
    tcase_add_test(tests, validation_speaks_of_arguments_and_allocates_nothing);
    tcase_add_test(tests, every_preset_is_a_valid_config);
    tcase_add_test(tests, a_copy_is_equal_and_its_cost_is_known);
    tcase_add_test(tests, running_out_of_memory_leaves_nothing_behind);
    suite_add_tcase(suite, tests);
    return suite;
}

int main(void)
{
    return run_suite(make_suite());
}
