/* config.json: what is accepted, what is refused and how, and that saving loses nothing. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/files.h"
#include "base/json.h"
#include "base/memory.h"
#include "configs.h"
#include "model/fields.h"

typedef struct refusal {
    const char *json;
    mm_status status;
    const char *words;
} refusal;

static void check_refusals(const refusal *cases, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        mm_config *config = NULL;
        mm_status status = load_quoted(cases[i].json, &config);
        ck_assert_msg(status == cases[i].status, "%s: %s (%s)", cases[i].json, mm_status_name(status), mm_last_error());
        ck_error_mentions(cases[i].words);
        ck_assert_ptr_null(config);
    }
}
#define CHECK_REFUSALS(cases) check_refusals(cases, sizeof cases / sizeof *cases)

START_TEST(what_is_not_a_config_is_refused)
{
    static const refusal cases[] = {
        { "", MM_ERR_FORMAT, "config: line" },
        { "{", MM_ERR_FORMAT, "config: line" },
        { "{'model_type':'llama'", MM_ERR_FORMAT, "line 1" },
        { "{'model_type':'llama'} x", MM_ERR_FORMAT, "line 1" },
        { "{'hidden_size':1,\n'hidden_size':2}", MM_ERR_FORMAT, "line 2" },
        { "[1]", MM_ERR_FORMAT, "a config must be an object, this is an array" },
        { "null", MM_ERR_FORMAT, "a config must be an object, this is null" },
        { "7", MM_ERR_FORMAT, "this is 7" },
        { "{'hidden_size':NaN}", MM_ERR_FORMAT, "line 1" },
    };
    CHECK_REFUSALS(cases);
}
END_TEST

START_TEST(other_architectures_are_refused_by_name)
{
    static const refusal cases[] = {
        { "{}", MM_ERR_UNSUPPORTED, "model_type is missing" },
        { "{'model_type':null," SHAPE "}", MM_ERR_UNSUPPORTED, "model_type is missing" },
        { "{'model_type':'gpt2'," SHAPE "}", MM_ERR_UNSUPPORTED, "model_type is \"gpt2\", which is not run; known is one of: "
                                                                 "minimind, minigpt, llama, qwen3, qwen3_moe" },
        { "{'model_type':'LLAMA'," SHAPE "}", MM_ERR_UNSUPPORTED, "\"LLAMA\"" },
        { "{'model_type':'minimind3'," SHAPE "}", MM_ERR_UNSUPPORTED, "\"minimind3\"" },
        { "{'model_type':'llama\\u0000'," SHAPE "}", MM_ERR_UNSUPPORTED, "model_type" },
        { "{'model_type':2," SHAPE "}", MM_ERR_FORMAT, "model_type is 2; it must be a string" },
        { "{'model_type':'minimind','minimind_version':4," SHAPE "}", MM_ERR_UNSUPPORTED, "minimind_version is 4" },
        { "{'model_type':'minimind','minimind_version':1," SHAPE "}", MM_ERR_UNSUPPORTED, "known is 2 to 3" },
        { "{'model_type':'minimind','minimind_version':'3'," SHAPE "}", MM_ERR_FORMAT, "minimind_version is \"3\"" },
        { "{'hidden_act':'tanh'," LLAMA "}", MM_ERR_UNSUPPORTED, "hidden_act is \"tanh\"" },
        { "{'hidden_act':'tanh'," MINIGPT "}", MM_ERR_UNSUPPORTED, "hidden_act is \"tanh\"" },
        { "{'norm_type':'batchnorm'," LLAMA "}", MM_ERR_UNSUPPORTED, "norm_type is \"batchnorm\"" },
        { "{'position_embedding_type':'alibi'," LLAMA "}", MM_ERR_UNSUPPORTED, "\"alibi\"" },
        { "{'scoring_func':'tanh'," MINIMIND2 "}", MM_ERR_UNSUPPORTED, "scoring_func is \"tanh\"" },
        { "{'rope_scaling':{'type':'linear','factor':2}," MINIMIND2 "}", MM_ERR_UNSUPPORTED,
          "rope_scaling.type is \"linear\"" },
        { "{'rope_scaling':{'rope_type':'llama3','factor':8}," LLAMA "}", MM_ERR_UNSUPPORTED,
          "rope_scaling.rope_type is \"llama3\"" },
        { "{'rope_parameters':{'rope_type':'dynamic'}," LLAMA "}", MM_ERR_UNSUPPORTED,
          "rope_parameters.rope_type is \"dynamic\"" },
        { "{'rope_scaling':{'type':'yarn','variant':'paper'}," LLAMA "}", MM_ERR_UNSUPPORTED, "\"paper\"" },
        { "{'rope_parameters':{'rope_type':'yarn','attention_factor':1,'truncate':false}," LLAMA "}", MM_ERR_UNSUPPORTED,
          "rope_parameters.truncate is false" },
        { "{'rope_scaling':{'type':'yarn','attention_factor':1,'truncate':null}," QWEN3 "}", MM_ERR_UNSUPPORTED,
          "rope_scaling.truncate is null" },
        { "{'rope_scaling':{'type':'yarn','attention_factor':1,'truncate':0}," QWEN3_MOE "}", MM_ERR_UNSUPPORTED,
          "rope_scaling.truncate is 0" },
    };
    CHECK_REFUSALS(cases);
}
END_TEST

START_TEST(wrong_types_and_values_are_refused_by_key)
{
    static const refusal cases[] = {
        { "{'intermediate_size':512.5," MINIMIND2 "}", MM_ERR_FORMAT,
          "config: intermediate_size is 512.5; it must be an integer" },
        { "{'intermediate_size':512.0," MINIMIND2 "}", MM_ERR_FORMAT, "intermediate_size is 512.0; it must be an integer" },
        { "{'intermediate_size':'512'," MINIMIND2 "}", MM_ERR_FORMAT, "intermediate_size is \"512\"" },
        { "{'intermediate_size':[512]," MINIMIND2 "}", MM_ERR_FORMAT, "intermediate_size is an array" },
        { "{'intermediate_size':true," MINIMIND2 "}", MM_ERR_FORMAT, "intermediate_size is true" },
        { "{'intermediate_size':0," MINIMIND2 "}", MM_ERR_FORMAT, "intermediate_size is 0; allowed is 1 to 2147483647" },
        { "{'intermediate_size':-9223372036854775808," MINIMIND2 "}", MM_ERR_FORMAT, "allowed is 1" },
        { "{'intermediate_size':9223372036854775807," MINIMIND2 "}", MM_ERR_FORMAT, "allowed is 1" },
        { "{'intermediate_size':99999999999999999999," MINIMIND2 "}", MM_ERR_FORMAT, "line 1" },
        { "{'model_type':'llama','hidden_size':8,'num_hidden_layers':1,'num_attention_heads':1,'intermediate_size':1,"
          "'vocab_size':2147483648}", MM_ERR_FORMAT, "vocab_size is 2147483648; allowed is 1 to 2147483647" },
        { "{'use_moe':0," MINIMIND2 "}", MM_ERR_FORMAT, "use_moe is 0; it must be true or false" },
        { "{'use_moe':'yes'," LLAMA "}", MM_ERR_FORMAT, "use_moe is \"yes\"" },
        { "{'dropout':'0'," LLAMA "}", MM_ERR_FORMAT, "dropout is \"0\"; it must be a number" },
        { "{'dropout':1.0," MINIMIND2 "}", MM_ERR_FORMAT, "dropout is 1.0; allowed is 0 to 0.999" },
        { "{'hidden_act':3," MINIMIND2 "}", MM_ERR_FORMAT, "hidden_act is 3; it must be a string" },
        { "{'eos_token_id':[1,2]," LLAMA "}", MM_ERR_FORMAT, "eos_token_id is an array" },
        { "{'rope_scaling':'yarn'," MINIMIND2 "}", MM_ERR_FORMAT, "rope_scaling is \"yarn\"; it must be an object" },
        { "{'rope_parameters':[]," MINIMIND2 "}", MM_ERR_FORMAT, "rope_parameters is an array" },
        { "{'rope_scaling':{'factor':0}," MINIMIND2 "}", MM_ERR_FORMAT, "rope_scaling.factor is 0" },
        { "{'rope_scaling':{'original_max_position_embeddings':2048.5}," MINIMIND2 "}", MM_ERR_FORMAT,
          "rope_scaling.original_max_position_embeddings is 2048.5" },
        { "{'rope_parameters':{'rope_theta':'big'}," LLAMA "}", MM_ERR_FORMAT, "rope_parameters.rope_theta is \"big\"" },
    };
    CHECK_REFUSALS(cases);
}
END_TEST

START_TEST(places_and_spellings_that_contradict_each_other_are_refused)
{
    static const refusal cases[] = {
        { "{'rope_theta':10000,'rope_parameters':{'rope_theta':1000000.0,'rope_type':'default'}," QWEN3 "}", MM_ERR_FORMAT,
          "rope_theta is 10000, but rope_parameters.rope_theta is 1000000" },
        { "{'rope_scaling':{'type':'yarn','factor':4},'rope_parameters':{'rope_type':'yarn','factor':8}," MINIMIND3 "}",
          MM_ERR_FORMAT, "rope_scaling and rope_parameters" },
        { "{'rope_scaling':{'type':'yarn'},'rope_parameters':{'rope_type':'default'}," MINIMIND3 "}", MM_ERR_FORMAT,
          "rope_scaling and rope_parameters" },
        { "{'rope_parameters':{'rope_type':'yarn','variant':'minimind2'},'rope_scaling':{'type':'yarn'}," QWEN3 "}",
          MM_ERR_FORMAT, "rope_scaling and rope_parameters" },
        { "{'rope_scaling':{'type':'yarn','rope_type':'default'}," MINIMIND3 "}", MM_ERR_FORMAT,
          "rope_scaling.rope_type is \"default\", but under another spelling of this key the file says \"yarn\"" },
        { "{'num_experts':4,'num_local_experts':8," MINIMIND3 "}", MM_ERR_FORMAT, "num_local_experts is 8" },
        { "{'rope_theta':1e4,'rope_scaling':{'rope_type':'default','rope_theta':5e5}," LLAMA "}", MM_ERR_FORMAT,
          "rope_scaling.rope_theta is 500000.0, but under another spelling of this key the file says 10000.0" },
    };
    static const char *const fine[] = {
        "{'rope_theta':10000,'rope_parameters':{'rope_theta':1e4,'rope_type':'default'}," QWEN3 "}",
        "{'rope_scaling':{'type':'yarn','factor':16},'rope_parameters':{'rope_type':'yarn'}," MINIMIND3 "}",
        "{'rope_scaling':{'type':'yarn','factor':4},'rope_parameters':{'rope_theta':5}," MINIMIND3 "}",
        "{'rope_scaling':null,'rope_parameters':{'rope_type':'yarn'}," MINIMIND3 "}",
        "{'rope_scaling':{'type':'default'},'rope_parameters':{'rope_type':'default'}," LLAMA "}",
        "{'rope_scaling':{'type':'yarn','rope_type':'yarn'}," MINIMIND3 "}",
        "{'rope_scaling':{'type':'yarn','rope_type':null}," MINIMIND3 "}",
        "{'rope_scaling':{'type':'yarn','attention_factor':1,'truncate':true}," LLAMA "}",
        "{'rope_scaling':{'type':'default','truncate':false}," QWEN3 "}",
        "{'rope_scaling':{'type':'yarn','truncate':false}," MINIMIND3 "}",
        "{'num_experts':4,'num_local_experts':4," MINIMIND3 "}",
        "{'num_experts':null,'num_local_experts':4," MINIMIND3 "}",
    };
    CHECK_REFUSALS(cases);
    for (size_t i = 0; i < sizeof fine / sizeof *fine; i++)
        mm_config_free(config_of(fine[i]));
}
END_TEST

/* transformers 5 takes a file's rope_scaling for its rope_parameters. */
START_TEST(theta_counts_in_either_group)
{
    static const char *const cases[] = { "{'rope_scaling':{'rope_type':'default','rope_theta':5e5}," LLAMA "}",
                                         "{'rope_parameters':{'rope_type':'default','rope_theta':5e5}," LLAMA "}" };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        double theta = 0;
        mm_config *config = config_of(cases[i]);
        ck_ok(mm_config_get_float(config, "rope_theta", &theta));
        ck_assert_double_eq(theta, 5e5);
        mm_config_free(config);
    }
}
END_TEST

START_TEST(keys_of_other_families_are_ignored_whatever_they_say)
{
    static const char *const cases[] = {
        "{'num_experts':'many','n_routed_experts':-3,'scoring_func':7,'use_gqa':false,'use_sliding_window':true," LLAMA "}",
        "{'use_moe':false,'dropout':0,'inference_rope_scaling':false,'minimind_version':9," LLAMA "}",
        "{'use_sliding_window':true,'use_gqa':false,'decoder_sparse_step':2,'mlp_only_layers':[0]," MINIMIND2 "}",
        "{'num_experts':[1],'num_local_experts':{},'moe_intermediate_size':0.5," MINIMIND2 "}",
        "{'num_experts':4,'num_local_experts':5," MINIMIND2 "}",
        "{'minimind_version':'x','n_routed_experts':0," QWEN3_MOE "}",
        "{'scoring_func':'sigmoid'," MINIGPT "}",
        "{'mlp_only_layers':[],'decoder_sparse_step':1," QWEN3_MOE "}",
        "{'mlp_only_layers':null," QWEN3_MOE "}",
        "{'num_experts_per_tok':0,'num_experts':0," MINIMIND3 "}",
        "{'head_dim':25,'position_embedding_type':'none'," MINIMIND3 "}",
        "{'bos_token_id':-1,'eos_token_id':null,'pad_token_id':999999," LLAMA "}",
        "{'temperature':0.7,'top_k':-1,'top_p':1,'max_generate_length':9," MINIGPT "}",
    };
    ck_assert_str_eq(mm_last_error(), "");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        mm_config_free(config_of(cases[i]));
    ck_assert_str_eq(mm_last_error(), ""); /* success does not touch it */
}
END_TEST

static char *path_in(const char *directory, const char *name)
{
    static char path[512];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    return path;
}

static char *file_text(const char *path)
{
    char *text = NULL;
    size_t size = 0;
    ck_ok(mmi_read_file(path, &text, &size));
    return text;
}

/* A config that was loaded is saved as the very file it came from. */
static void check_saving_twice(const mm_config *config, const char *path)
{
    char *first = file_text(path);
    ck_ok(mm_config_save(config, path));
    char *second = file_text(path);
    ck_assert_str_eq(first, second);
    mmi_free(first);
    mmi_free(second);
}

START_TEST(what_is_saved_loads_as_an_equal_config)
{
    const char *path = path_in(scratch_directory(), "config.json");
    test_rng rng = { 11 };
    for (int i = 0; i < 500; i++) {
        mm_config *config = random_config(&rng), *again = NULL;
        ck_ok(mm_config_save(config, path));
        ck_ok(mm_config_load(path, &again));
        check_equal_configs(config, again);
        mm_config_free(config);
        if (i % 25 == 0)
            check_saving_twice(again, path);
        mm_config_free(again);
    }
}
END_TEST

static mmi_json *saved(const mm_config *config)
{
    const char *path = path_in(scratch_directory(), "config.json");
    mmi_json *json = NULL;
    ck_ok(mm_config_save(config, path));
    ck_ok(mmi_json_read_file(path, &json));
    return json;
}

START_TEST(a_saved_file_says_every_key_of_its_family)
{
    static const char *const bases[] = { "{" MINIMIND2 "}", "{" MINIMIND3 "}", "{" MINIGPT "}",
                                         "{" LLAMA "}",     "{" QWEN3 "}",     "{" QWEN3_MOE "}" };
    mm_config *config = config_of(bases[_i]);
    ck_ok(mm_config_set_string(config, "rope_scaling.variant", "standard"));
    mmi_json *json = saved(config);
    for (int32_t i = 0; i < mm_config_key_count(); i++) {
        mm_config_key key = MM_CONFIG_KEY_INIT;
        ck_ok(mm_config_key_get(i, &key));
        const char *value = value_text(config, key.name);
        if (strcmp(value, "foreign") == 0 || strcmp(value, "none") == 0)
            continue;
        const mmi_json *place = json;
        const char *name = key.name;
        if (strncmp(name, "rope_scaling.", 13) == 0) {
            place = mmi_json_get(json, "rope_scaling");
            name += 13;
        }
        ck_assert_msg(mmi_json_get(place, name) != NULL, "%s is not in the file", key.name);
    }
    ck_assert_int_eq(mmi_json_get(json, "minimind_version") != NULL, _i < 2);
    ck_assert_int_eq(mmi_json_get(json, "mlp_only_layers") != NULL, _i == 5);
    mmi_json_free(json);
    mm_config_free(config);
}
END_TEST

START_TEST(unknown_keys_are_written_back)
{
    mm_config *config = config_of("{'torch_dtype':'bfloat16','auto_map':{'AutoConfig':'a.B','n':[1,{'x':null}]},"
                                  "'initializer_range':0.02,'nothing':null,'rope_scaling.factor':77,'own \\\" \\u00e9':true,"
                                  "'scoring_func':['odd'],'rope_scaling':{'type':'yarn','truncate':false,'own':{'a':[2]}},"
                                  "'rope_parameters':{'rope_theta':5000,'sections':[1,2]}," MINIMIND3 "}");
    mmi_json *json = saved(config);
    ck_assert_str_eq(mmi_json_string(mmi_json_get(json, "torch_dtype"), NULL), "bfloat16");
    mmi_json *map = mmi_json_get(json, "auto_map");
    ck_assert_str_eq(mmi_json_string(mmi_json_get(map, "AutoConfig"), NULL), "a.B");
    ck_assert_int_eq(mmi_json_int(mmi_json_at(mmi_json_get(map, "n"), 0), 0), 1);
    ck_assert_int_eq(mmi_json_what(mmi_json_get(mmi_json_at(mmi_json_get(map, "n"), 1), "x")), MMI_JSON_NULL);
    ck_assert(mmi_json_number(mmi_json_get(json, "initializer_range"), 0) == 0.02);
    ck_assert_int_eq(mmi_json_what(mmi_json_get(json, "nothing")), MMI_JSON_NULL);
    ck_assert_int_eq(mmi_json_int(mmi_json_get(json, "rope_scaling.factor"), 0), 77);
    ck_assert(mmi_json_bool(mmi_json_get(json, "own \" \xc3\xa9"), false));
    ck_assert_int_eq(mmi_json_what(mmi_json_get(json, "scoring_func")), MMI_JSON_ARRAY);
    mmi_json *scaling = mmi_json_get(json, "rope_scaling");
    ck_assert(!mmi_json_bool(mmi_json_get(scaling, "truncate"), true));
    ck_assert_int_eq(mmi_json_int(mmi_json_at(mmi_json_get(mmi_json_get(scaling, "own"), "a"), 0), 0), 2);
    ck_assert_str_eq(mmi_json_string(mmi_json_get(scaling, "variant"), NULL), "standard");
    ck_assert(mmi_json_number(mmi_json_get(json, "rope_theta"), 0) == 5000);
    ck_assert_uint_eq(mmi_json_size(mmi_json_get(mmi_json_get(json, "rope_parameters"), "sections")), 2);
    ck_assert_ptr_null(mmi_json_get(mmi_json_get(json, "rope_parameters"), "rope_theta"));
    mmi_json_free(json);

    ck_ok(mm_config_unset(config, "rope_scaling"));
    ck_ok(mm_config_set_string(config, "model_type", "minigpt"));
    ck_ok(mm_config_set_string(config, "scoring_func", "softmax"));
    json = saved(config);
    ck_assert_ptr_null(mmi_json_get(json, "rope_scaling"));
    ck_assert_str_eq(mmi_json_string(mmi_json_get(json, "scoring_func"), NULL), "softmax");
    mmi_json_free(json);
    mm_config_free(config);
}
END_TEST

START_TEST(numbers_are_written_as_a_person_would)
{
    mm_config *config = config_of("{'aux_loss_alpha':0.1,'dropout':0.30000000000000004," MINIMIND2 "}");
    const char *path = path_in(scratch_directory(), "config.json");
    (void)set_decimal_comma(); /* as a host may */
    ck_ok(mm_config_save(config, path));
    char *text = file_text(path);
    ck_assert_ptr_nonnull(strstr(text, "\"rms_norm_eps\": 1e-05,\n"));
    ck_assert_ptr_nonnull(strstr(text, "\"rope_theta\": 1000000.0,\n"));
    ck_assert_ptr_nonnull(strstr(text, "\"aux_loss_alpha\": 0.1,\n"));
    ck_assert_ptr_nonnull(strstr(text, "\"dropout\": 0.30000000000000004,\n"));
    ck_assert_ptr_nonnull(strstr(text, "\"attention_dropout\": 0.30000000000000004,\n"));
    ck_assert_ptr_nonnull(strstr(text, "{\n  \"model_type\": \"minimind\",\n  \"minimind_version\": 2,\n"));
    mmi_free(text);
    mm_config_free(config);
}
END_TEST

START_TEST(files_and_directories_are_both_taken)
{
    char directory[256];
    snprintf(directory, sizeof directory, "%s", scratch_directory());
    mm_config *config = config_of("{" QWEN3_MOE "}"), *again = NULL;
    ck_status(mm_config_load(directory, &again), MM_ERR_IO);
    ck_error_mentions("config.json");
    ck_ok(mm_config_save(config, directory));
    ck_ok(mm_config_load(directory, &again));
    check_equal_configs(config, again);
    mm_config_free(again);
    again = NULL;
    ck_ok(mm_config_load(path_in(directory, "config.json"), &again));
    mm_config_free(again);
    again = NULL;
    ck_status(mm_config_load(path_in(directory, "nowhere/config.json"), &again), MM_ERR_IO);
    ck_status(mm_config_save(config, path_in(directory, "nowhere/config.json")), MM_ERR_IO);
    ck_status(mm_config_load("", &again), MM_ERR_IO);
    ck_ok(mmi_write_file(path_in(directory, "bad.json"), "{\"model_type\": \"gpt2\"}", 22));
    ck_status(mm_config_load(path_in(directory, "bad.json"), &again), MM_ERR_UNSUPPORTED);
    ck_error_mentions("bad.json: model_type is \"gpt2\"");
    ck_status(mm_config_load(NULL, &again), MM_ERR_ARG);
    ck_status(mm_config_load(directory, NULL), MM_ERR_ARG);
    ck_status(mm_config_load_memory(NULL, 0, &again), MM_ERR_ARG);
    ck_status(mm_config_load_memory("{}", 2, NULL), MM_ERR_ARG);
    ck_status(mm_config_save(NULL, directory), MM_ERR_ARG);
    ck_status(mm_config_save(config, NULL), MM_ERR_ARG);
    ck_assert_ptr_null(again);
    mm_config_free(config);
}
END_TEST

START_TEST(a_save_that_fails_leaves_the_old_file)
{
    char directory[256];
    snprintf(directory, sizeof directory, "%s", scratch_directory());
    mm_config *config = config_of("{'unknown':{'a':1},'rope_scaling':{'type':'yarn','b':2}," MINIMIND2 "}");
    ck_ok(mm_config_save(config, directory));
    char *before = file_text(path_in(directory, "config.json"));

    mm_memory_usage usage = MM_MEMORY_USAGE_INIT;
    ck_ok(mm_memory_get_usage(&usage));
    uint64_t held = usage.current, n = 1;
    ck_ok(mm_config_set_int(config, "hidden_size", 384));
    for (;; n++) {
        mmi_memory_fail_at(n, false);
        mm_status status = mm_config_save(config, directory);
        mmi_memory_fail_at(0, false);
        if (status == MM_OK)
            break;
        ck_assert_int_eq(status, MM_ERR_MEMORY);
        char *now = file_text(path_in(directory, "config.json"));
        ck_assert_str_eq(now, before);
        mmi_free(now);
        ck_ok(mm_memory_get_usage(&usage));
        ck_assert_uint_eq(usage.current, held);
    }
    ck_assert_uint_gt(n, 5);
    mmi_free(before);

    before = file_text(path_in(directory, "config.json"));
    ck_ok(mm_config_set_int(config, "num_key_value_heads", 3));
    ck_status(mm_config_save(config, directory), MM_ERR_ARG);
    char *now = file_text(path_in(directory, "config.json"));
    ck_assert_str_eq(now, before);
    mmi_free(now);
    mmi_free(before);
    mm_config_free(config);
}
END_TEST

START_TEST(a_load_that_fails_leaves_nothing)
{
    char directory[256];
    snprintf(directory, sizeof directory, "%s", scratch_directory());
    mm_config *config = config_of("{'unknown':{'a':1}," MINIMIND2 "}"), *out = NULL;
    ck_ok(mm_config_save(config, directory));
    mm_config_free(config);
    uint64_t n = 1;
    for (;; n++) {
        mmi_memory_fail_at(n, false);
        mm_status status = mm_config_load(directory, &out);
        mmi_memory_fail_at(0, false);
        if (status == MM_OK)
            break;
        ck_assert_int_eq(status, MM_ERR_MEMORY);
        ck_assert_ptr_null(out);
        mm_memory_usage usage = MM_MEMORY_USAGE_INIT;
        ck_ok(mm_memory_get_usage(&usage));
        ck_assert_uint_eq(usage.current, 0);
    }
    ck_assert_uint_gt(n, 2);
    mm_config_free(out);
}
END_TEST

/* Any cut, and any flipped bit, ends in a status. */
START_TEST(damaged_files_are_survived)
{
    static const char whole[] =
        "{\"model_type\":\"minimind\",\"minimind_version\":3,\"hidden_size\":64,\"num_hidden_layers\":2,"
        "\"num_attention_heads\":4,\"vocab_size\":99,\"use_moe\":true,\"num_local_experts\":4,\"x\":{\"y\":[1,null]},"
        "\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":4.5},\"rope_parameters\":{\"rope_theta\":1e4}}";
    mm_config *config = NULL;
    ck_ok(mm_config_load_memory(whole, sizeof whole - 1, &config));
    mm_config_free(config);
    for (size_t cut = 0; cut < sizeof whole - 1; cut++) {
        config = NULL;
        ck_status(mm_config_load_memory(whole, cut, &config), MM_ERR_FORMAT);
        ck_assert_ptr_null(config);
    }
    char damaged[sizeof whole];
    for (size_t bit = 0; bit < 8 * (sizeof whole - 1); bit++) {
        memcpy(damaged, whole, sizeof whole);
        damaged[bit / 8] = (char)(damaged[bit / 8] ^ (1 << bit % 8));
        config = NULL;
        if (mm_config_load_memory(damaged, sizeof whole - 1, &config) == MM_OK)
            ck_ok(mm_config_validate(config));
        mm_config_free(config);
    }
}
END_TEST

START_TEST(the_shared_cases_load)
{
    static const char *const cases[] = {
        "classic_bias_sinusoidal", "classic_relu_nopos_untied", "llama_classic_bias_layernorm_plain",
        "minigpt_dense_sinusoidal", "minigpt_moe_shared", "minigpt_moe_sparse_plain", "v2_dense_gqa", "v2_dense_leftpad",
        "v2_dense_mha", "v2_dense_rightpad", "v2_moe_batchaux_top1_noshared", "v2_moe_shared_seqaux", "v2_untied_gelu",
        "v2_yarn", "v3_dense_qknorm_headdim", "v3_moe_top1", "v3_moe_top2", "v3_moe_top2_nonorm", "v3_yarn",
    };
    REQUIRE_SHARED("golden/cases");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char name[128];
        snprintf(name, sizeof name, "golden/cases/%s", cases[i]);
        mm_config *config = NULL;
        ck_ok(mm_config_load(shared_path(name), &config));
        mm_config_free(config);
    }
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("model/config_json");
    TCase *tests = tcase_create("config.json");
    tcase_add_test(tests, what_is_not_a_config_is_refused);
    tcase_add_test(tests, other_architectures_are_refused_by_name);
    tcase_add_test(tests, wrong_types_and_values_are_refused_by_key);
    tcase_add_test(tests, places_and_spellings_that_contradict_each_other_are_refused);
    tcase_add_test(tests, keys_of_other_families_are_ignored_whatever_they_say);
    tcase_add_test(tests, theta_counts_in_either_group);
    tcase_add_test(tests, what_is_saved_loads_as_an_equal_config);
    tcase_add_loop_test(tests, a_saved_file_says_every_key_of_its_family, 0, 6);
    tcase_add_test(tests, unknown_keys_are_written_back);
    tcase_add_test(tests, numbers_are_written_as_a_person_would);
    tcase_add_test(tests, files_and_directories_are_both_taken);
    tcase_add_test(tests, a_save_that_fails_leaves_the_old_file);
    tcase_add_test(tests, a_load_that_fails_leaves_nothing);
    tcase_add_test(tests, damaged_files_are_survived);
    tcase_add_test(tests, the_shared_cases_load);
    tcase_set_timeout(tests, 60);
    suite_add_tcase(suite, tests);
    return suite;
}

int main(void)
{
    return run_suite(make_suite());
}
