/* Adapters on disk: saved, read back, made by others, damaged. */
#define _POSIX_C_SOURCE 200809L
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/files.h"
#include "base/json.h"
#include "base/memory.h"
#include "checkpoint.h"
#include "support.h"

static mm_model *model;

static void start(void)
{
    model = sample_model(1);
}

static void end(void)
{
    mm_model_free(model);
}

static mm_adapter *adapter_of(const char *targets, int32_t rank)
{
    mm_adapter_options o = MM_ADAPTER_OPTIONS_INIT;
    mm_adapter *adapter = NULL;
    test_rng rng = { 5 };
    o.targets = targets;
    o.rank = rank;
    o.alpha = 6.5;
    o.dropout = 0.125;
    ck_ok(mm_adapter_create(model, &o, &adapter));
    for (int64_t i = 0; i < mm_adapter_tensor_count(adapter); i++) {
        mm_view view;
        ck_ok(mm_adapter_write(adapter, i, &view));
        rng_fill(&rng, view.data, (size_t)(view.shape[0] * view.shape[1]), 1);
    }
    return adapter;
}

static void same_adapters(const mm_adapter *a, const mm_adapter *b)
{
    ck_assert_int_eq(mm_adapter_tensor_count(a), mm_adapter_tensor_count(b));
    for (int64_t i = 0; i < mm_adapter_tensor_count(a); i++) {
        char x_name[200], y_name[200];
        mm_view x, y;
        ck_ok(mm_adapter_name(a, i, x_name, sizeof x_name, NULL));
        ck_ok(mm_adapter_name(b, i, y_name, sizeof y_name, NULL));
        ck_assert_str_eq(x_name, y_name);
        ck_ok(mm_adapter_tensor(a, i, &x));
        ck_ok(mm_adapter_tensor(b, i, &y));
        ck_assert_int_eq(memcmp(x.data, y.data, (size_t)(x.shape[0] * x.shape[1]) * sizeof(float)), 0);
    }
}

static const char *saved(const mm_adapter *adapter)
{
    static char directory[600];
    snprintf(directory, sizeof directory, "%s/adapter", scratch_directory());
    ck_ok(mm_adapter_save(adapter, directory));
    return directory;
}

static const char *const choices[] = { NULL, "*", "minimind", "q_proj", "model.layers.1.self_attn.q_proj,down_proj",
                                       "layers.0.*" };
enum { CHOICES = sizeof choices / sizeof *choices };

START_TEST(what_was_saved_is_read_back)
{
    mm_adapter *adapter = adapter_of(choices[_i], 3), *again = NULL;
    mm_adapter_options before = MM_ADAPTER_OPTIONS_INIT, after = MM_ADAPTER_OPTIONS_INIT;
    const char *directory = saved(adapter);
    ck_ok(mm_adapter_load(model, directory, &again));
    same_adapters(adapter, again);
    ck_ok(mm_adapter_describe(adapter, &before));
    ck_ok(mm_adapter_describe(again, &after));
    ck_assert_int_eq(before.rank, after.rank);
    ck_assert(before.alpha == after.alpha && before.dropout == after.dropout);
    ck_assert_int_eq(files_in(directory), 2);
    mm_adapter_free(again);
    mm_adapter_free(adapter);
}
END_TEST

/* --- The layout --- */

START_TEST(the_config_says_what_peft_asks_for)
{
    mm_adapter *adapter = adapter_of("model.layers.1.self_attn.q_proj,down_proj", 3);
    mmi_json *json = NULL;
    ck_ok(mmi_json_read_file(in(saved(adapter), "adapter_config.json"), &json));
    static const char *const texts[][2] = { { "peft_type", "LORA" }, { "bias", "none" }, { "task_type", "CAUSAL_LM" } };
    for (size_t i = 0; i < 3; i++)
        ck_assert_str_eq(mmi_json_string(mmi_json_get(json, texts[i][0]), NULL), texts[i][1]);
    ck_assert_int_eq(mmi_json_int(mmi_json_get(json, "r"), 0), 3);
    ck_assert(mmi_json_number(mmi_json_get(json, "lora_alpha"), 0) == 6.5);
    ck_assert(mmi_json_number(mmi_json_get(json, "lora_dropout"), 0) == 0.125);
    ck_assert_int_eq(mmi_json_what(mmi_json_get(json, "base_model_name_or_path")), MMI_JSON_NULL);
    const mmi_json *targets = mmi_json_get(json, "target_modules");
    ck_assert_uint_eq(mmi_json_size(targets), 2); /* all down projections by their last part, one q by its whole name */
    ck_assert_str_eq(mmi_json_string(mmi_json_at(targets, 0), NULL), "down_proj");
    ck_assert_str_eq(mmi_json_string(mmi_json_at(targets, 1), NULL), "model.layers.1.self_attn.q_proj");
    mmi_json_free(json);
    mm_adapter_free(adapter);
}
END_TEST

START_TEST(the_tensors_have_pefts_names_and_shapes)
{
    mm_adapter *adapter = adapter_of("k_proj", 3);
    mmi_st_file file;
    ck_ok(mmi_st_open(in(saved(adapter), "adapter_model.safetensors"), &file));
    ck_assert_uint_eq(file.count, 4);
    const mmi_st_entry *a = mmi_st_find(&file, "base_model.model.model.layers.1.self_attn.k_proj.lora_A.weight");
    const mmi_st_entry *b = mmi_st_find(&file, "base_model.model.model.layers.1.self_attn.k_proj.lora_B.weight");
    ck_assert(a && a->shape[0] == 3 && a->shape[1] == 16);
    ck_assert(b && b->shape[0] == 8 && b->shape[1] == 3);
    mmi_st_close(&file);
    mm_adapter_free(adapter);
}
END_TEST

/* --- Others' files --- */

/* The adapter's tensors as rows, their names made by `form` from "layers.N.….q_proj" and 'A' or 'B'. */
static void rows_in_form(rows *r, const mm_adapter *adapter, const char *form)
{
    r->count = 0;
    for (int64_t i = 0; i < mm_adapter_tensor_count(adapter); i++) {
        char name[200], full[300];
        mm_view view;
        ck_ok(mm_adapter_name(adapter, i, name, sizeof name, NULL));
        ck_ok(mm_adapter_tensor(adapter, i, &view));
        *strstr(name, ".lora_") = '\0';
        snprintf(full, sizeof full, form, name + strlen("model."), i % 2 ? 'B' : 'A');
        add_row(r, full, view.dtype, 2, view.shape[0], view.shape[1], view.data);
    }
}

START_TEST(a_file_alone_is_read_under_all_names)
{
    static const char *const forms[] = { "model.%s.lora.%c.weight", "%s.lora.%c.weight", "model.%s.lora_%c.weight",
                                         "base_model.model.model.%s.lora_%c.weight" };
    mm_adapter *adapter = adapter_of("minimind", 5), *again = NULL;
    mm_adapter_options o = MM_ADAPTER_OPTIONS_INIT;
    rows r;
    const char *path = in(scratch_directory(), "lora.safetensors");
    rows_in_form(&r, adapter, forms[_i]);
    ck_ok(mmi_st_write(path, r.entries, r.count, NULL));
    ck_ok(mm_adapter_load(model, path, &again));
    same_adapters(adapter, again);
    ck_ok(mm_adapter_describe(again, &o));
    ck_assert_int_eq(o.rank, 5);
    ck_assert(o.alpha == 5);
    mm_adapter_free(again);
    mm_adapter_free(adapter);
}
END_TEST

/* Alone, a file lists as many names as there are matrices; beside its config it has seven patterns. */
START_TEST(a_file_alone_with_hundreds_of_matrices_is_the_same_adapter)
{
    static const char json[] =
        "{\"model_type\":\"minimind\",\"hidden_size\":8,\"num_hidden_layers\":12,\"num_attention_heads\":1,"
        "\"num_key_value_heads\":1,\"head_dim\":8,\"vocab_size\":20,\"use_moe\":true,\"num_experts\":12,"
        "\"num_experts_per_tok\":2,\"moe_intermediate_size\":8}";
    mm_config *config = NULL;
    mm_model *many = NULL;
    mm_adapter *adapter = NULL, *together = NULL, *alone = NULL;
    mm_adapter_options o = MM_ADAPTER_OPTIONS_INIT;
    ck_ok(mm_config_load_memory(json, strlen(json), &config));
    ck_ok(mm_model_create(config, 1, &many));
    o.targets = "all-linear";
    o.rank = 1;
    ck_ok(mm_adapter_create(many, &o, &adapter));
    const char *path = scratch_directory();
    ck_ok(mm_adapter_save(adapter, path));
    ck_ok(mm_adapter_load(many, path, &together));
    ck_ok(mm_adapter_load(many, in(path, "adapter_model.safetensors"), &alone));
    ck_assert_int_gt(mm_adapter_tensor_count(alone), 800);
    same_adapters(adapter, together);
    same_adapters(adapter, alone);
    mm_adapter_free(together);
    mm_adapter_free(alone);
    mm_adapter_free(adapter);
    mm_model_free(many);
    mm_config_free(config);
}
END_TEST

/* The weights without their config: what they are scaled by they say themselves, or it is nothing that could be run. */
START_TEST(a_file_alone_may_say_its_alpha)
{
    static const struct {
        const char *alpha, *words;
    } cases[] = { { "6.5", NULL },
                  { "16", NULL },
                  { "0", "lora_alpha is missing or not above 0" },
                  { "\"16\"", "lora_alpha is missing or not above 0" },
                  { "1e300", "lora_alpha is 1e+300" },
                  { "six", "lora.safetensors" },
                  { "1, 2", "lora_alpha is missing or not above 0" },
                  { "1, 2]", "lora.safetensors" } };
    mm_adapter *adapter = adapter_of("q_proj", 3);
    rows r;
    const char *path = in(scratch_directory(), "lora.safetensors");
    rows_in_form(&r, adapter, "base_model.model.model.%s.lora_%c.weight");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *const metadata[] = { "format", "pt", "lora_alpha", cases[i].alpha, NULL };
        mm_adapter *again = NULL;
        mm_adapter_options o = MM_ADAPTER_OPTIONS_INIT;
        ck_ok(mmi_st_write(path, r.entries, r.count, metadata));
        if (cases[i].words) {
            ck_status(mm_adapter_load(model, path, &again), MM_ERR_FORMAT);
            ck_error_mentions(cases[i].words);
            ck_assert_ptr_null(again);
            continue;
        }
        ck_ok(mm_adapter_load(model, path, &again));
        ck_ok(mm_adapter_describe(again, &o));
        ck_assert(o.alpha == strtod(cases[i].alpha, NULL));
        mm_adapter_free(again);
    }
    mm_adapter_free(adapter);
}
END_TEST

START_TEST(half_precision_is_widened)
{
    mm_adapter *adapter = adapter_of("q_proj", 2), *again = NULL;
    rows r;
    uint16_t halves[2][64];
    mm_view view;
    const char *path = in(scratch_directory(), "lora.safetensors");
    rows_in_form(&r, adapter, "model.%s.lora.%c.weight");
    for (size_t i = 0; i < 64; i++) {
        halves[0][i] = 0x3F80;                /* 1 in bf16 */
        halves[1][i] = (uint16_t)(0x4000 + i); /* from 2 up in f16 */
    }
    r.entries[0].dtype = MM_BF16;
    r.entries[0].data = halves[0];
    r.entries[1].dtype = MM_F16;
    r.entries[1].data = halves[1];
    ck_ok(mmi_st_write(path, r.entries, r.count, NULL));
    ck_ok(mm_adapter_load(model, path, &again));
    ck_ok(mm_adapter_tensor(again, 0, &view));
    ck_assert(((float *)view.data)[31] == 1);
    ck_ok(mm_adapter_tensor(again, 1, &view));
    ck_assert(((float *)view.data)[1] == 2.001953125f);
    mm_adapter_free(again);
    mm_adapter_free(adapter);
}
END_TEST

static void write_config(const char *directory, const char *json)
{
    char text[1024];
    snprintf(text, sizeof text, "%s", json);
    for (char *c = text; *c; c++)
        if (*c == '\'')
            *c = '"';
    write_text(in(directory, "adapter_config.json"), text);
}

#define GOOD "'peft_type':'LORA','r':3,'lora_alpha':6.5,'target_modules':['q_proj']"

START_TEST(configs_are_taken_or_refused_by_key)
{
    static const struct {
        const char *json;
        mm_status status;
        const char *words;
    } cases[] = {
        { "{" GOOD "}", MM_OK, NULL },
        { "{" GOOD ",'bias':'none','use_dora':false,'rank_pattern':{},'modules_to_save':null,'megatron_core':'x'}", MM_OK, NULL },
        { "{" GOOD ",'bias':'all'}", MM_ERR_UNSUPPORTED, "bias" },
        { "{" GOOD ",'init_lora_weights':true}", MM_OK, NULL },
        { "{" GOOD ",'init_lora_weights':false}", MM_OK, NULL },
        { "{" GOOD ",'init_lora_weights':'gaussian'}", MM_OK, NULL },
        { "{" GOOD ",'init_lora_weights':'orthogonal'}", MM_OK, NULL },
        { "{" GOOD ",'init_lora_weights':'pissa_niter_16'}", MM_ERR_UNSUPPORTED, "init_lora_weights is \"pissa_niter_16\"" },
        { "{" GOOD ",'init_lora_weights':'olora'}", MM_ERR_UNSUPPORTED, "changes the model's weights, too" },
        { "{" GOOD ",'init_lora_weights':'something'}", MM_ERR_UNSUPPORTED, "init_lora_weights" },
        { "{" GOOD ",'use_dora':true}", MM_ERR_UNSUPPORTED, "use_dora" },
        { "{" GOOD ",'use_rslora':true}", MM_ERR_UNSUPPORTED, "use_rslora" },
        { "{" GOOD ",'fan_in_fan_out':true}", MM_ERR_UNSUPPORTED, "fan_in_fan_out" },
        { "{" GOOD ",'rank_pattern':{'q_proj':4}}", MM_ERR_UNSUPPORTED, "rank_pattern" },
        { "{" GOOD ",'alpha_pattern':{'q_proj':4}}", MM_ERR_UNSUPPORTED, "alpha_pattern" },
        { "{" GOOD ",'layers_to_transform':[1]}", MM_ERR_UNSUPPORTED, "layers_to_transform" },
        { "{" GOOD ",'modules_to_save':['lm_head']}", MM_ERR_UNSUPPORTED, "modules_to_save" },
        { "{" GOOD ",'lora_bias':true}", MM_ERR_UNSUPPORTED, "lora_bias" },
        { "{" GOOD ",'use_qalora':true}", MM_ERR_UNSUPPORTED, "use_qalora" },
        { "{" GOOD ",'layers_pattern':'layers'}", MM_ERR_UNSUPPORTED, "layers_pattern" },
        { "{" GOOD ",'layer_replication':[[0,2],[1,2]]}", MM_ERR_UNSUPPORTED, "layer_replication" },
        { "{" GOOD ",'exclude_modules':'lm_head'}", MM_ERR_UNSUPPORTED, "exclude_modules" },
        { "{" GOOD ",'trainable_token_indices':[5]}", MM_ERR_UNSUPPORTED, "trainable_token_indices" },
        { "{" GOOD ",'target_parameters':['mlp.experts.gate_up_proj']}", MM_ERR_UNSUPPORTED, "target_parameters" },
        { "{" GOOD ",'alora_invocation_tokens':[7]}", MM_ERR_UNSUPPORTED, "alora_invocation_tokens" },
        { "{" GOOD ",'use_bdlora':{'nblocks':2}}", MM_ERR_UNSUPPORTED, "use_bdlora" },
        { "{" GOOD ",'arrow_config':{'top_k':3}}", MM_ERR_UNSUPPORTED, "arrow_config" },
        { "{" GOOD ",'monteclora_config':{'num_samples':2}}", MM_ERR_UNSUPPORTED, "monteclora_config" },
        { "{" GOOD ",'kasa_config':{'beta':0.1}}", MM_ERR_UNSUPPORTED, "kasa_config" },
        { "{'peft_type':'IA3','r':3}", MM_ERR_UNSUPPORTED, "peft_type" },
        { "{'r':3,'lora_alpha':6.5,'target_modules':['q_proj']}", MM_ERR_FORMAT, "peft_type" },
        { "{'peft_type':'LORA','r':0,'lora_alpha':6.5,'target_modules':['q_proj']}", MM_ERR_FORMAT, "r is" },
        { "{'peft_type':'LORA','lora_alpha':6.5,'target_modules':['q_proj']}", MM_ERR_FORMAT, "r is" },
        { "{'peft_type':'LORA','r':3,'lora_alpha':0,'target_modules':['q_proj']}", MM_ERR_FORMAT, "lora_alpha" },
        { "{'peft_type':'LORA','r':3,'lora_alpha':1e300,'target_modules':['q_proj']}", MM_ERR_FORMAT, "lora_alpha" },
        { "{" GOOD ",'lora_dropout':1}", MM_ERR_FORMAT, "lora_dropout" },
        { "{'peft_type':'LORA','r':3,'lora_alpha':6.5}", MM_ERR_FORMAT, "target_modules" },
        { "{'peft_type':'LORA','r':3,'lora_alpha':6.5,'target_modules':[]}", MM_ERR_FORMAT, "target_modules" },
        { "{'peft_type':'LORA','r':3,'lora_alpha':6.5,'target_modules':[7]}", MM_ERR_FORMAT, "target_modules" },
        { "{'peft_type':'LORA','r':3,'lora_alpha':6.5,'target_modules':'.*q_proj'}", MM_ERR_UNSUPPORTED, "target_modules" },
        { "{'peft_type':'LORA','r':3,'lora_alpha':6.5,'target_modules':['q_*']}", MM_ERR_UNSUPPORTED, "target_modules" },
        { "{'peft_type':'LORA','r':3,'lora_alpha':6.5,'target_modules':['c_attn']}", MM_ERR_FORMAT, "c_attn" },
        { "{'peft_type':'LORA','r':3,'lora_alpha':6.5,'target_modules':['q_proj','v_proj']}", MM_ERR_FORMAT, "v_proj" },
        { "{'peft_type':'LORA','r':4,'lora_alpha':6.5,'target_modules':['q_proj']}", MM_ERR_FORMAT, "lora_" },
        /* of a list, these are names like others */
        { "{'peft_type':'LORA','r':3,'lora_alpha':6.5,'target_modules':['minimind']}", MM_ERR_FORMAT, "\"minimind\"" },
        { "{'peft_type':'LORA','r':3,'lora_alpha':6.5,'target_modules':['all-linear']}", MM_ERR_FORMAT, "\"all-linear\"" },
        { "[1]", MM_ERR_FORMAT, "object" },
        { "{'peft_type':", MM_ERR_FORMAT, "adapter_config.json" },
    };
    mm_adapter *adapter = adapter_of("q_proj", 3), *got = NULL;
    char directory[600];
    snprintf(directory, sizeof directory, "%s", saved(adapter));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint64_t before = bytes_held();
        write_config(directory, cases[i].json);
        mm_status status = mm_adapter_load(model, directory, &got);
        ck_assert_msg(status == cases[i].status, "%s: %s (%s)", cases[i].json, mm_status_name(status), mm_last_error());
        if (status == MM_OK)
            mm_adapter_free(got);
        else
            ck_error_mentions(cases[i].words);
        ck_assert_uint_eq(bytes_held(), before);
    }
    mm_adapter_free(adapter);
}
END_TEST

START_TEST(tensors_that_do_not_fit_are_refused)
{
    mm_adapter *adapter = adapter_of("q_proj", 3), *got = NULL;
    char directory[600], path[700];
    rows r;
    snprintf(directory, sizeof directory, "%s", saved(adapter));
    snprintf(path, sizeof path, "%s/adapter_model.safetensors", directory);
    const char *form = "base_model.model.model.%s.lora_%c.weight";
    static const char *const words[] = { "layers.1.self_attn.q_proj.lora_B.weight is missing",
                                         "k_proj.lora_A.weight is no adapter",
                                         "layers.9.self_attn.q_proj.lora_A.weight is no adapter",
                                         "q_proj.lora_A.weight is [2, 16], rank and model imply [3, 16]",
                                         "is there twice under two names",
                                         "q_proj.lora_A.weight is I32",
                                         "q_proj.lora_A.weight is [3, 16, 1], rank" };
    for (int wrong = 0; wrong < 7; wrong++) {
        rows_in_form(&r, adapter, form);
        if (wrong == 0)
            r.count--;
        if (wrong == 1)
            strcpy(r.entries[0].name, "base_model.model.model.layers.0.self_attn.k_proj.lora_A.weight");
        if (wrong == 2)
            strcpy(r.entries[0].name, "base_model.model.model.layers.9.self_attn.q_proj.lora_A.weight");
        if (wrong == 3)
            r.entries[0].shape[0] = 2;
        if (wrong == 4) {
            r.entries[1] = r.entries[0];
            r.entries[1].name = r.names[1];
            strcpy(r.names[1], "layers.0.self_attn.q_proj.lora.A.weight");
        }
        if (wrong == 5)
            r.entries[0].dtype = MM_I32;
        if (wrong == 6)
            r.entries[0].rank = 3;
        ck_ok(mmi_st_write(path, r.entries, r.count, NULL));
        ck_status(mm_adapter_load(model, directory, &got), wrong == 5 ? MM_ERR_UNSUPPORTED : MM_ERR_FORMAT);
        ck_error_mentions(words[wrong]);
        ck_error_mentions("adapter_model.safetensors");
        ck_assert_ptr_null(got);
    }
    mm_adapter_free(adapter);
}
END_TEST

/* With no config beside it the file has to say all: what is adapted, and the rank. */
START_TEST(a_file_alone_that_names_no_rank_or_no_adapter_is_refused)
{
    static const char *const words[] = { "holds no adapter",
                                         "holds no adapter",
                                         "layers.0.self_attn.q_proj.lora_A.weight has no rank from 1 to 65536",
                                         "layers.0.self_attn.q_proj.lora_A.weight has no rank from 1 to 65536",
                                         "layers.0.self_attn.q_proj.weight is no adapter",
                                         "rank and model imply" };
    mm_adapter *adapter = adapter_of("q_proj", 3), *got = NULL;
    const char *path = in(scratch_directory(), "lora.safetensors");
    rows r;
    for (int wrong = 0; wrong < 6; wrong++) {
        rows_in_form(&r, adapter, "model.%s.lora_%c.weight");
        if (wrong == 0)
            r.count = 0;
        if (wrong == 1) { /* B alone */
            strcpy(r.names[0], r.names[1]);
            r.entries[0] = r.entries[1];
            r.entries[0].name = r.names[0];
            r.count = 1;
        }
        if (wrong == 2)
            r.entries[0].shape[0] = 0;
        if (wrong == 3)
            r.entries[0].rank = 1;
        if (wrong == 4)
            strcpy(r.names[0], "model.layers.0.self_attn.q_proj.weight");
        if (wrong == 5) /* two ranks */
            r.entries[2].shape[0] = 2;
        uint64_t before = bytes_held();
        ck_ok(mmi_st_write(path, r.entries, r.count, NULL));
        ck_status(mm_adapter_load(model, path, &got), MM_ERR_FORMAT);
        ck_error_mentions(words[wrong]);
        ck_error_mentions(path);
        ck_assert_ptr_null(got);
        ck_assert_uint_eq(bytes_held(), before);
    }
    mm_adapter_free(adapter);
}
END_TEST

START_TEST(all_linear_in_a_config_is_every_projection)
{
    mm_adapter *adapter = adapter_of("*", 3), *again = NULL;
    char directory[600];
    snprintf(directory, sizeof directory, "%s", saved(adapter));
    write_config(directory, "{'peft_type':'LORA','r':3,'lora_alpha':6.5,'target_modules':'all-linear'}");
    ck_ok(mm_adapter_load(model, directory, &again));
    same_adapters(adapter, again);
    mm_adapter_free(again);
    mm_adapter_free(adapter);
}
END_TEST

START_TEST(damaged_and_missing_files_are_refused)
{
    mm_adapter *adapter = adapter_of("q_proj", 3), *got = NULL;
    char directory[600];
    snprintf(directory, sizeof directory, "%s", saved(adapter));
    const char *weights = in(directory, "adapter_model.safetensors");
    uint64_t before = bytes_held();
    resize_file(weights, file_size(weights) - 1);
    ck_status(mm_adapter_load(model, directory, &got), MM_ERR_FORMAT);
    resize_file(weights, 5);
    ck_status(mm_adapter_load(model, weights, &got), MM_ERR_FORMAT);
    ck_assert_int_eq(unlink(weights), 0);
    ck_status(mm_adapter_load(model, directory, &got), MM_ERR_IO);
    ck_assert_int_eq(unlink(in(directory, "adapter_config.json")), 0);
    ck_status(mm_adapter_load(model, directory, &got), MM_ERR_IO);
    ck_status(mm_adapter_load(model, in(directory, "nothing"), &got), MM_ERR_IO);
    ck_assert_uint_eq(bytes_held(), before);
    mm_adapter_free(adapter);
}
END_TEST

START_TEST(an_adapter_for_another_model_is_refused)
{
    mm_config *config = family_config("minimind");
    mm_model *other = NULL;
    mm_adapter *adapter = adapter_of("q_proj", 3), *got = NULL;
    ck_ok(mm_config_set_int(config, "hidden_size", 24));
    ck_ok(mm_model_create(config, 1, &other));
    ck_status(mm_adapter_load(other, saved(adapter), &got), MM_ERR_FORMAT);
    ck_error_mentions("[3, 16]");
    ck_error_mentions("[3, 24]");
    mm_adapter_free(adapter);
    mm_model_free(other);
    mm_config_free(config);
}
END_TEST

START_TEST(out_of_memory_at_any_point_leaves_nothing)
{
    mm_adapter *adapter = adapter_of("q_proj", 3), *got = NULL;
    char directory[600];
    snprintf(directory, sizeof directory, "%s", saved(adapter));
    uint64_t before = bytes_held(), n = 1;
    mm_status status = MM_ERR_MEMORY;
    for (; status == MM_ERR_MEMORY && n < 3000; n++) {
        mmi_memory_fail_at(n, false);
        status = mm_adapter_load(model, directory, &got);
        mmi_memory_fail_at(0, false);
        ck_assert_uint_eq(bytes_held() != before, status == MM_OK);
    }
    ck_assert_int_eq(status, MM_OK);
    ck_assert_uint_gt(n, 5);
    mm_adapter_free(got);
    for (n = 1, status = MM_ERR_MEMORY; status == MM_ERR_MEMORY && n < 3000; n++) {
        mmi_memory_fail_at(n, false);
        status = mm_adapter_save(adapter, directory);
        mmi_memory_fail_at(0, false);
        ck_assert_uint_eq(bytes_held(), before);
        ck_assert_int_eq(files_in(directory), 2);
    }
    ck_assert_int_eq(status, MM_OK);
    mm_adapter_free(adapter);
}
END_TEST

START_TEST(a_rank_that_the_tensors_do_not_have_takes_no_memory)
{
    mm_adapter *adapter = adapter_of("q_proj", 3), *got = NULL;
    char directory[600];
    snprintf(directory, sizeof directory, "%s", saved(adapter));
    write_config(directory, "{'peft_type':'LORA','r':65536,'lora_alpha':6.5,'target_modules':'all-linear'}");
    mm_memory_usage usage = MM_MEMORY_USAGE_INIT;
    mm_memory_reset_peak();
    uint64_t before = bytes_held();
    ck_status(mm_adapter_load(model, directory, &got), MM_ERR_FORMAT);
    ck_error_mentions("is [3, 16], rank and model imply [65536, 16]");
    ck_ok(mm_memory_get_usage(&usage));
    ck_assert_uint_lt(usage.peak - before, 1 << 16); /* B of one matrix alone would be 4 MB */
    mm_adapter_free(adapter);
}
END_TEST

/* As a process leaves them that dies between the two. What other programs save says nothing of it, and is taken. */
START_TEST(weights_beside_the_config_of_another_saving_are_refused)
{
    static const char *const plain[] = { "format", "pt", NULL };
    mm_adapter *adapter = adapter_of("q_proj", 3), *got = NULL;
    char directory[600], weights[700];
    mmi_st_file file;
    snprintf(directory, sizeof directory, "%s", saved(adapter));
    snprintf(weights, sizeof weights, "%s", in(directory, "adapter_model.safetensors"));
    write_config(directory, "{'peft_type':'LORA','r':3,'lora_alpha':16,'target_modules':['q_proj']}");
    ck_status(mm_adapter_load(model, directory, &got), MM_ERR_FORMAT);
    ck_error_mentions(weights);
    ck_error_mentions("adapter_config.json: lora_alpha is 16");
    ck_error_mentions("saved with 6.5");
    ck_ok(mmi_st_open(weights, &file));
    ck_ok(mmi_st_write(weights, file.entries, file.count, plain));
    mmi_st_close(&file);
    ck_ok(mm_adapter_load(model, directory, &got));
    mm_adapter_free(got);
    mm_adapter_free(adapter);
}
END_TEST

START_TEST(a_config_that_cannot_be_replaced_leaves_the_weights)
{
    mm_adapter *old = adapter_of("q_proj", 3), *new = adapter_of("q_proj", 4);
    char directory[600], config[700];
    mmi_st_file file;
    snprintf(directory, sizeof directory, "%s", saved(old));
    snprintf(config, sizeof config, "%s/adapter_config.json", directory);
    ck_assert_int_eq(unlink(config), 0);
    ck_assert_int_eq(mkdir(config, 0777), 0);
    ck_status(mm_adapter_save(new, directory), MM_ERR_IO);
    ck_error_mentions("adapter_config.json");
    ck_ok(mmi_st_open(in(directory, "adapter_model.safetensors"), &file));
    ck_assert_int_eq(file.entries[0].shape[0] == 3 || file.entries[0].shape[1] == 3, 1);
    mmi_st_close(&file);
    ck_assert_int_eq(files_in(directory), 2);
    ck_assert_int_eq(rmdir(config), 0);
    mm_adapter_free(old);
    mm_adapter_free(new);
}
END_TEST

START_TEST(a_directory_that_cannot_be_made_is_told)
{
    mm_adapter *adapter = adapter_of("q_proj", 3);
    const char *path = in(scratch_directory(), "file");
    write_text(path, "x");
    ck_status(mm_adapter_save(adapter, in(path, "below")), MM_ERR_IO);
    ck_status(mm_adapter_save(adapter, ""), MM_ERR_ARG);
    ck_status(mm_adapter_save(adapter, NULL), MM_ERR_ARG);
    ck_status(mm_adapter_save(NULL, "x"), MM_ERR_ARG);
    mm_adapter *got = NULL;
    ck_status(mm_adapter_load(NULL, "x", &got), MM_ERR_ARG);
    ck_status(mm_adapter_load(model, NULL, &got), MM_ERR_ARG);
    ck_status(mm_adapter_load(model, "x", NULL), MM_ERR_ARG);
    mm_adapter_free(adapter);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("model/adapter_file");
    TCase *tests = tcase_create("files");
    tcase_add_checked_fixture(tests, start, end);
    tcase_add_loop_test(tests, what_was_saved_is_read_back, 0, CHOICES);
    tcase_add_test(tests, the_config_says_what_peft_asks_for);
    tcase_add_test(tests, the_tensors_have_pefts_names_and_shapes);
    tcase_add_loop_test(tests, a_file_alone_is_read_under_all_names, 0, 4);
    tcase_add_test(tests, a_file_alone_with_hundreds_of_matrices_is_the_same_adapter);
    tcase_add_test(tests, a_file_alone_may_say_its_alpha);
    tcase_add_test(tests, half_precision_is_widened);
    tcase_add_test(tests, configs_are_taken_or_refused_by_key);
    tcase_add_test(tests, tensors_that_do_not_fit_are_refused);
    tcase_add_test(tests, a_file_alone_that_names_no_rank_or_no_adapter_is_refused);
    tcase_add_test(tests, all_linear_in_a_config_is_every_projection);
    tcase_add_test(tests, damaged_and_missing_files_are_refused);
    tcase_add_test(tests, an_adapter_for_another_model_is_refused);
    tcase_add_test(tests, out_of_memory_at_any_point_leaves_nothing);
    tcase_add_test(tests, a_rank_that_the_tensors_do_not_have_takes_no_memory);
    tcase_add_test(tests, weights_beside_the_config_of_another_saving_are_refused);
    tcase_add_test(tests, a_config_that_cannot_be_replaced_leaves_the_weights);
    tcase_add_test(tests, a_directory_that_cannot_be_made_is_told);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
