/* Directories of every model_type: saved, loaded, run; Mini-LLM's own names; and what is not supported, refused by key. */
#include <stdio.h>
#include <string.h>

#include "model/checkpoint.h"
#include "model/configs.h"

#define TINY "'hidden_size':16,'num_hidden_layers':2,'num_attention_heads':4,'vocab_size':20,'max_position_embeddings':64"
#define EXPERTS "'num_experts':4,'num_experts_per_tok':2,'moe_intermediate_size':12"
#define TINY_LLAMA "'model_type':'llama','intermediate_size':24," TINY
#define TINY_QWEN3 "'model_type':'qwen3','intermediate_size':24,'num_key_value_heads':2,'head_dim':6," TINY
#define TINY_QWEN3_MOE "'model_type':'qwen3_moe','intermediate_size':24,'num_key_value_heads':2," TINY
#define TINY_MINIGPT "'model_type':'minigpt'," TINY
#define MIXED "'use_moe':true,'n_routed_experts':4,'n_shared_experts':1"

static const char *const kinds[] = {
    "{" TINY_LLAMA "}",
    "{" TINY_LLAMA ",'tie_word_embeddings':true,'attention_bias':true,'mlp_bias':true,'norm_type':'layernorm',"
                   "'mlp_type':'plain','hidden_act':'gelu','rope_parameters':{'rope_theta':5000.0,'rope_type':'default'}}",
    "{" TINY_QWEN3 "}",
    "{" TINY_QWEN3_MOE "," EXPERTS "}",
    "{" TINY_QWEN3_MOE ",'num_local_experts':3,'num_experts_per_tok':1,'moe_intermediate_size':10,'norm_topk_prob':true}",
    "{" TINY_MINIGPT "}",
    "{" TINY_MINIGPT ",'use_rope':false,'tie_word_embeddings':false}",
    "{" TINY_MINIGPT "," MIXED "}",
    "{" TINY_MINIGPT ",'use_moe':true,'n_routed_experts':3,'n_shared_experts':0,'hidden_act':'silu'}",
    "{'model_type':'minimind'," TINY "," MIXED "}",
    "{'model_type':'minimind'," TINY ",'use_moe':true," EXPERTS "}",
};
enum { KINDS = sizeof kinds / sizeof *kinds };

static mm_model *model_from(const char *text)
{
    mm_config *config = config_of(text);
    mm_model *model = NULL;
    ck_ok(mm_model_create(config, 31, &model));
    mm_config_free(config);
    return model;
}

static mm_model *load(const char *directory)
{
    mm_model *model = NULL;
    ck_ok(mm_model_load(directory, NULL, &model));
    return model;
}

#define TOKENS 9

static void logits_of(float *logits, mm_model *model)
{
    static const int32_t ids[TOKENS] = { 3, 1, 4, 1, 5, 9, 2, 6, 19 };
    mm_context_options o = MM_CONTEXT_OPTIONS_INIT;
    mm_context *context = NULL;
    mm_batch batch = MM_BATCH_INIT;
    mm_output out = MM_OUTPUT_INIT;
    o.max_length = TOKENS;
    o.outputs = MM_OUT_LOGITS;
    o.threads = 1;
    ck_ok(mm_context_create(model, &o, &context));
    batch.ids = ids;
    batch.batch = 1;
    batch.length = TOKENS;
    ck_ok(mm_forward(context, &batch, &out));
    memcpy(logits, out.logits.data, TOKENS * 20 * sizeof *logits);
    mm_context_free(context);
}

static void ck_runs_as(const char *directory, mm_model *model)
{
    float expected[TOKENS * 20], got[TOKENS * 20];
    mm_model *loaded = load(directory);
    logits_of(expected, model);
    logits_of(got, loaded);
    ck_assert_int_eq(memcmp(got, expected, sizeof got), 0);
    check_equal_configs(mm_model_config(loaded), mm_model_config(model));
    mm_model_free(loaded);
}

START_TEST(what_was_saved_is_loaded_and_gives_the_same_logits)
{
    mm_model *model = model_from(kinds[_i]);
    const char *directory = scratch_directory();
    ck_ok(mm_model_save(model, directory));
    ck_runs_as(directory, model);
    mm_model_free(model);
    ck_assert_uint_eq(bytes_held(), 0);
}
END_TEST

/* A config as another program wrote it, beside weights as they are. */
static const char *directory_with(const char *text, const mm_model *model)
{
    char json[1024];
    rows r;
    rows_of(&r, model);
    const char *directory = directory_of(model, &r);
    ck_assert_uint_lt(strlen(text), sizeof json);
    for (size_t i = 0; i <= strlen(text); i++)
        json[i] = text[i] == '\'' ? '"' : text[i];
    write_text(in(directory, "config.json"), json);
    return directory;
}

START_TEST(a_config_that_says_only_what_it_must_loads_beside_its_weights)
{
    mm_model *model = model_from(kinds[_i]);
    ck_runs_as(directory_with(kinds[_i], model), model);
    mm_model_free(model);
    ck_assert_uint_eq(bytes_held(), 0);
}
END_TEST

START_TEST(a_directory_with_mini_llms_own_names_runs_alike)
{
    static const int which[] = { 5, 6, 7 };
    mm_model *model = model_from(kinds[which[_i]]);
    float table[4] = { 0, 1, 0, 1 };
    rows r;
    rows_of(&r, model);
    for (size_t i = 0; i < r.count; i++) {
        char name[160];
        mini_llm_name(name, sizeof name, r.entries[i].name);
        ck_assert(strcmp(name, r.entries[i].name) != 0 || strcmp(name, "lm_head.weight") == 0);
        ck_assert_uint_lt(strlen(name), sizeof r.names[i]);
        memcpy(r.names[i], name, strlen(name) + 1);
    }
    add_row(&r, "positional_encoding.pe", MM_F32, 2, 2, 2, table);
    ck_runs_as(directory_of(model, &r), model);
    mm_model_free(model);
    ck_assert_uint_eq(bytes_held(), 0);
}
END_TEST

static const struct {
    int kind;
    const char *json, *words;
    mm_status status;
} refused[] = {
    { 0, "{" TINY_LLAMA ",'rope_scaling':{'type':'linear','factor':2}}", "linear", MM_ERR_UNSUPPORTED },
    { 0, "{" TINY_LLAMA ",'rope_scaling':{'rope_type':'llama3','factor':8}}", "llama3", MM_ERR_UNSUPPORTED },
    { 0, "{" TINY_LLAMA ",'rope_scaling':{'type':'yarn','factor':2}}", "rope_scaling.variant", MM_ERR_UNSUPPORTED },
    { 0, "{" TINY_LLAMA ",'rope_theta':1e4,'rope_parameters':{'rope_theta':5e4}}", "rope_theta", MM_ERR_FORMAT },
    { 0, "{" TINY_LLAMA ",'hidden_act':'quick_gelu'}", "hidden_act", MM_ERR_UNSUPPORTED },
    { 2, "{" TINY_QWEN3 ",'use_sliding_window':true}", "use_sliding_window is true", MM_ERR_UNSUPPORTED },
    { 3, "{" TINY_QWEN3_MOE "," EXPERTS ",'decoder_sparse_step':2}", "decoder_sparse_step is 2", MM_ERR_UNSUPPORTED },
    { 3, "{" TINY_QWEN3_MOE "," EXPERTS ",'mlp_only_layers':[1]}", "mlp_only_layers", MM_ERR_UNSUPPORTED },
    { 3, "{" TINY_QWEN3_MOE ",'num_experts':4,'moe_intermediate_size':12}", "num_experts_per_tok is missing", MM_ERR_FORMAT },
    { 5, "{" TINY_MINIGPT ",'use_gqa':false}", "use_gqa is false", MM_ERR_UNSUPPORTED },
    { 7, "{" TINY_MINIGPT "," MIXED ",'num_experts_per_tok':4}", "num_experts_per_tok is 4", MM_ERR_FORMAT },
    { 0, "{'model_type':'gpt2'," TINY "}", "gpt2", MM_ERR_UNSUPPORTED },
    { 0, "{" TINY "}", "model_type", MM_ERR_UNSUPPORTED },
    /* weights of another shape than the config says */
    { 0, "{" TINY_LLAMA ",'num_key_value_heads':2}", "model.layers.0.self_attn.k_proj.weight", MM_ERR_FORMAT },
    { 0, "{" TINY_LLAMA ",'qk_norm':true}", "model.layers.0.self_attn.q_norm.weight", MM_ERR_FORMAT },
    { 7, "{" TINY_MINIGPT ",'use_moe':true,'n_routed_experts':3,'n_shared_experts':1}", "mlp.", MM_ERR_FORMAT },
};

START_TEST(what_is_not_supported_is_refused_by_key_and_leaves_nothing)
{
    mm_model *model = model_from(kinds[refused[_i].kind]), *out = NULL;
    const char *directory = directory_with(refused[_i].json, model);
    uint64_t before = bytes_held();
    ck_status(mm_model_load(directory, NULL, &out), refused[_i].status);
    ck_error_mentions(refused[_i].words);
    ck_assert_ptr_null(out);
    ck_assert_uint_eq(bytes_held(), before);
    mm_model_free(model);
}
END_TEST

#define COUNT(array) ((int)(sizeof(array) / sizeof *(array)))

int main(void)
{
    Suite *suite = suite_create("run/interchange");
    TCase *tests = tcase_create("interchange");
    tcase_add_loop_test(tests, what_was_saved_is_loaded_and_gives_the_same_logits, 0, KINDS);
    tcase_add_loop_test(tests, a_config_that_says_only_what_it_must_loads_beside_its_weights, 0, KINDS);
    tcase_add_loop_test(tests, a_directory_with_mini_llms_own_names_runs_alike, 0, 3);
    tcase_add_loop_test(tests, what_is_not_supported_is_refused_by_key_and_leaves_nothing, 0, COUNT(refused));
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
