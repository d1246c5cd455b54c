/* The layout: one ordered list of tensors, and every question about it answered alike. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "configs.h"
#include "model/layout.h"

static mm_config *prepare(const char *json, mmi_arch *arch, mmi_layout *layout)
{
    mm_config *config = config_of(json);
    ck_ok(mmi_config_resolve(config, arch));
    mmi_layout_create(layout, arch);
    return config;
}

/* name, shape and initialisation of every tensor, as one text */
static char *listing(const char *json)
{
    static char text[8192];
    mmi_arch arch;
    mmi_layout layout;
    size_t used = 0;
    mm_config *config = prepare(json, &arch, &layout);
    for (int64_t i = 0; i < layout.count; i++) {
        char name[128];
        mmi_tensor t;
        mmi_layout_tensor(&layout, i, &t);
        mmi_layout_name(&layout, i, name, sizeof name);
        used += (size_t)snprintf(text + used, sizeof text - used, "%s %lld", name, (long long)t.shape[0]);
        if (t.rank == 2)
            used += (size_t)snprintf(text + used, sizeof text - used, "x%lld", (long long)t.shape[1]);
        used += (size_t)snprintf(text + used, sizeof text - used, "%c\n", "n10"[t.init]);
        ck_assert_uint_lt(used, sizeof text);
    }
    mm_config_free(config);
    return text;
}

#define ATTENTION(layer)                                                                                                \
    "model.layers." layer ".input_layernorm.weight 61\n"                                                               \
    "model.layers." layer ".self_attn.q_proj.weight 8x6n\n"                                                            \
    "model.layers." layer ".self_attn.k_proj.weight 4x6n\n"                                                            \
    "model.layers." layer ".self_attn.v_proj.weight 4x6n\n"                                                            \
    "model.layers." layer ".self_attn.o_proj.weight 6x8n\n"

START_TEST(a_dense_layer_has_its_tensors_in_order)
{
    ck_assert_str_eq(listing("{'model_type':'minimind','minimind_version':3,'hidden_size':6,'num_hidden_layers':2,"
                             "'num_attention_heads':2,'num_key_value_heads':1,'head_dim':4,'intermediate_size':10,"
                             "'vocab_size':9,'tie_word_embeddings':false}"),
                     "model.embed_tokens.weight 9x6n\n"
                     ATTENTION("0")
                     "model.layers.0.self_attn.q_norm.weight 41\n"
                     "model.layers.0.self_attn.k_norm.weight 41\n"
                     "model.layers.0.post_attention_layernorm.weight 61\n"
                     "model.layers.0.mlp.gate_proj.weight 10x6n\n"
                     "model.layers.0.mlp.up_proj.weight 10x6n\n"
                     "model.layers.0.mlp.down_proj.weight 6x10n\n"
                     ATTENTION("1")
                     "model.layers.1.self_attn.q_norm.weight 41\n"
                     "model.layers.1.self_attn.k_norm.weight 41\n"
                     "model.layers.1.post_attention_layernorm.weight 61\n"
                     "model.layers.1.mlp.gate_proj.weight 10x6n\n"
                     "model.layers.1.mlp.up_proj.weight 10x6n\n"
                     "model.layers.1.mlp.down_proj.weight 6x10n\n"
                     "model.norm.weight 61\n"
                     "lm_head.weight 9x6n\n");
}
END_TEST

START_TEST(biases_follow_their_weights)
{
    ck_assert_str_eq(listing("{'model_type':'llama','hidden_size':8,'num_hidden_layers':1,'num_attention_heads':2,"
                             "'num_key_value_heads':1,'intermediate_size':10,'vocab_size':9,'tie_word_embeddings':true,"
                             "'norm_type':'layernorm','attention_bias':true,'mlp_bias':true,'mlp_type':'plain'}"),
                     "model.embed_tokens.weight 9x8n\n"
                     "model.layers.0.input_layernorm.weight 81\n"
                     "model.layers.0.input_layernorm.bias 80\n"
                     "model.layers.0.self_attn.q_proj.weight 8x8n\n"
                     "model.layers.0.self_attn.q_proj.bias 80\n"
                     "model.layers.0.self_attn.k_proj.weight 4x8n\n"
                     "model.layers.0.self_attn.k_proj.bias 40\n"
                     "model.layers.0.self_attn.v_proj.weight 4x8n\n"
                     "model.layers.0.self_attn.v_proj.bias 40\n"
                     "model.layers.0.self_attn.o_proj.weight 8x8n\n"
                     "model.layers.0.self_attn.o_proj.bias 80\n"
                     "model.layers.0.post_attention_layernorm.weight 81\n"
                     "model.layers.0.post_attention_layernorm.bias 80\n"
                     "model.layers.0.mlp.up_proj.weight 10x8n\n"
                     "model.layers.0.mlp.up_proj.bias 100\n"
                     "model.layers.0.mlp.down_proj.weight 8x10n\n"
                     "model.layers.0.mlp.down_proj.bias 80\n"
                     "model.norm.weight 81\n"
                     "model.norm.bias 80\n");
}
END_TEST

START_TEST(experts_follow_their_router)
{
    ck_assert_str_eq(listing("{'model_type':'minigpt','hidden_size':6,'num_hidden_layers':1,'num_attention_heads':2,"
                             "'num_key_value_heads':1,'head_dim':4,'intermediate_size':5,'vocab_size':9,'use_moe':true,"
                             "'n_routed_experts':4,'n_shared_experts':2,'num_experts_per_tok':1,'mlp_bias':true}"),
                     "model.embed_tokens.weight 9x6n\n"
                     ATTENTION("0")
                     "model.layers.0.post_attention_layernorm.weight 61\n"
                     "model.layers.0.mlp.gate.weight 2x6n\n"
                     "model.layers.0.mlp.experts.0.gate_proj.weight 5x6n\n"
                     "model.layers.0.mlp.experts.0.up_proj.weight 5x6n\n"
                     "model.layers.0.mlp.experts.0.down_proj.weight 6x5n\n"
                     "model.layers.0.mlp.experts.1.gate_proj.weight 5x6n\n"
                     "model.layers.0.mlp.experts.1.up_proj.weight 5x6n\n"
                     "model.layers.0.mlp.experts.1.down_proj.weight 6x5n\n"
                     "model.layers.0.mlp.shared_experts.0.gate_proj.weight 5x6n\n"
                     "model.layers.0.mlp.shared_experts.0.up_proj.weight 5x6n\n"
                     "model.layers.0.mlp.shared_experts.0.down_proj.weight 6x5n\n"
                     "model.layers.0.mlp.shared_experts.1.gate_proj.weight 5x6n\n"
                     "model.layers.0.mlp.shared_experts.1.up_proj.weight 5x6n\n"
                     "model.layers.0.mlp.shared_experts.1.down_proj.weight 6x5n\n"
                     "model.layers.0.mlp.shared_weight 11\n"
                     "model.layers.0.mlp.routed_weight 11\n"
                     "model.norm.weight 61\n");
    /* silu is not swiglu: plain experts */
    ck_assert_str_eq(listing("{'model_type':'minigpt','hidden_size':6,'num_hidden_layers':1,'num_attention_heads':2,"
                             "'num_key_value_heads':1,'head_dim':4,'intermediate_size':5,'vocab_size':9,'use_moe':true,"
                             "'n_routed_experts':2,'n_shared_experts':0,'hidden_act':'silu'}"),
                     "model.embed_tokens.weight 9x6n\n"
                     ATTENTION("0")
                     "model.layers.0.post_attention_layernorm.weight 61\n"
                     "model.layers.0.mlp.gate.weight 2x6n\n"
                     "model.layers.0.mlp.experts.0.up_proj.weight 5x6n\n"
                     "model.layers.0.mlp.experts.0.down_proj.weight 6x5n\n"
                     "model.layers.0.mlp.experts.1.up_proj.weight 5x6n\n"
                     "model.layers.0.mlp.experts.1.down_proj.weight 6x5n\n"
                     "model.norm.weight 61\n");
}
END_TEST

/* What the architecture says where families differ. */
START_TEST(each_family_resolves_by_its_own_rules)
{
    mmi_arch a;
    mm_config *config = config_of("{'hidden_act':'relu','mlp_type':'plain'," MINIGPT "}");
    ck_ok(mmi_config_resolve(config, &a));
    ck_assert(a.act == MMI_SILU && a.gated && !a.moe && a.dropout == 0.1 && a.G == 2);
    mm_config_free(config);
    config = config_of("{'hidden_act':'relu','mlp_type':'gated','use_moe':true,'norm_topk_prob':false," MINIGPT "}");
    ck_ok(mmi_config_resolve(config, &a));
    ck_assert(a.act == MMI_RELU && !a.expert_gated && a.renormalize && !a.aux_per_sequence && a.aux_coefficient == 0.1);
    ck_assert(a.E == 3 && a.shared_experts == 1 && a.top_k == 2 && a.expert_F == 768);
    mm_config_free(config);
    config = config_of("{'use_moe':true,'num_experts_per_tok':1," MINIMIND2 "}");
    ck_ok(mmi_config_resolve(config, &a));
    ck_assert(!a.renormalize && a.aux_per_sequence && a.E == 4 && a.shared_experts == 1 && a.expert_gated);
    mm_config_free(config);
    config = config_of("{'use_moe':true," MINIMIND2 "}");
    ck_ok(mmi_config_resolve(config, &a));
    ck_assert(a.renormalize && a.top_k == 2 && a.expert_F == 512);
    mm_config_free(config);
    config = config_of("{'use_moe':true," MINIMIND3 "}");
    ck_ok(mmi_config_resolve(config, &a));
    ck_assert(a.renormalize && a.top_k == 1 && a.E == 4 && a.shared_experts == 0 && !a.aux_per_sequence);
    ck_assert(a.expert_F == 640 && a.aux_coefficient == 5e-4 && a.qk_norm && a.eos_id == 2);
    mm_config_free(config);
    config = config_of("{" QWEN3_MOE "}");
    ck_ok(mmi_config_resolve(config, &a));
    ck_assert(a.moe && !a.renormalize && a.expert_F == 32 && a.aux_coefficient == 1e-3 && a.eos_id == -1 && !a.tied);
    mm_config_free(config);
    config = config_of("{'hidden_act':'gelu_new','use_rope':false,'attention_dropout':0.5," LLAMA "}");
    ck_ok(mmi_config_resolve(config, &a));
    ck_assert(a.act == MMI_GELU_TANH && a.positions == MMI_SINUSOIDAL && a.dropout == 0 && a.attention_dropout == 0.5);
    ck_assert(a.yarn == MMI_YARN_NONE && a.G == 8 && a.gated);
    mm_config_free(config);
}
END_TEST

static int compare_names(const void *a, const void *b)
{
    return strcmp(a, b);
}

static void check_names_are_unique(const mmi_layout *layout)
{
    char (*names)[128] = calloc((size_t)layout->count, sizeof *names);
    ck_assert_ptr_nonnull(names);
    for (int64_t i = 0; i < layout->count; i++)
        mmi_layout_name(layout, i, names[i], sizeof names[i]);
    qsort(names, (size_t)layout->count, sizeof *names, compare_names);
    for (int64_t i = 1; i < layout->count; i++)
        ck_assert_str_ne(names[i - 1], names[i]);
    free(names);
}

static void check_places(const mmi_layout *layout, size_t size)
{
    size_t *offsets = calloc((size_t)layout->count, sizeof *offsets);
    ck_assert_ptr_nonnull(offsets);
    size_t bytes = mmi_layout_place(layout, size, offsets), end = 0;
    ck_assert_uint_eq(bytes, mmi_layout_place(layout, size, NULL));
    for (int64_t i = 0; i < layout->count; i++) {
        mmi_tensor t;
        mmi_layout_tensor(layout, i, &t);
        ck_assert_uint_eq(offsets[i] % 64, 0);
        ck_assert_uint_eq(offsets[i], end);
        end = mmi_align_up(offsets[i] + (size_t)t.elements * size);
    }
    ck_assert_uint_eq(bytes, end);
    free(offsets);
}

START_TEST(every_answer_agrees_in_500_random_configs)
{
    test_rng rng = { 23 };
    for (int round = 0; round < 500; round++) {
        mmi_arch arch;
        mmi_layout layout;
        mm_config *config = random_config(&rng);
        mm_param_count count = MM_PARAM_COUNT_INIT;
        int64_t tensors = 0, total = 0;
        ck_ok(mmi_config_resolve(config, &arch));
        mmi_layout_create(&layout, &arch);
        ck_ok(mm_layout_count(config, &tensors));
        ck_ok(mm_count_params(config, &count));
        ck_assert_int_eq(tensors, layout.count);
        for (int64_t i = 0; i < tensors; i++) {
            mmi_tensor t;
            mm_tensor_info info = MM_TENSOR_INFO_INIT;
            char name[128];
            mmi_layout_tensor(&layout, i, &t);
            mmi_layout_name(&layout, i, name, sizeof name);
            ck_assert_int_eq(mmi_layout_index(&layout, t.role, t.layer, t.expert), i);
            ck_assert_int_ge(t.elements, 1);
            ck_assert_int_eq(t.elements, t.shape[0] * t.shape[1]);
            if (i % 7 == 0) {
                ck_ok(mm_layout_get(config, i, &info));
                ck_assert_str_eq(info.name, name);
                ck_assert_int_eq(info.elements, t.elements);
                ck_assert_int_eq(info.module, t.module);
                ck_assert(info.layer == t.layer && info.expert == t.expert && info.rank == t.rank);
                ck_assert(info.shape[0] == t.shape[0] && info.shape[1] == t.shape[1] && info.shape[2] == 1);
            }
            total += t.elements;
        }
        ck_assert_int_eq(total, count.total);
        ck_assert_int_le(count.active, count.total);
        check_names_are_unique(&layout);
        check_places(&layout, 4);
        check_places(&layout, 2);
        mm_config_free(config);
    }
}
END_TEST

START_TEST(projections_that_are_multiplied_together_lie_together)
{
    mmi_arch arch;
    mmi_layout layout;
    size_t offsets[128];
    mm_config *config = NULL;
    ck_ok(mm_config_create(NULL, &config));
    ck_ok(mmi_config_resolve(config, &arch));
    mmi_layout_create(&layout, &arch);
    ck_assert_int_le(layout.count, 128);
    mmi_layout_place(&layout, 4, offsets);
    for (int64_t layer = 0; layer < arch.L; layer++) {
        int64_t q = mmi_layout_index(&layout, MMI_Q, layer, 0), k = mmi_layout_index(&layout, MMI_K, layer, 0);
        int64_t v = mmi_layout_index(&layout, MMI_V, layer, 0);
        ck_assert_uint_eq(offsets[k] - offsets[q], 512 * 512 * 4);
        ck_assert_uint_eq(offsets[v] - offsets[k], 128 * 512 * 4);
        int64_t gate = mmi_layout_index(&layout, MMI_GATE, layer, 0), up = mmi_layout_index(&layout, MMI_UP, layer, 0);
        ck_assert_uint_eq(offsets[up] - offsets[gate], 1408 * 512 * 4);
    }
    ck_assert_int_eq(mmi_layout_index(&layout, MMI_HEAD, 0, 0), -1);
    ck_assert_int_eq(mmi_layout_index(&layout, MMI_Q_BIAS, 0, 0), -1);
    ck_assert_int_eq(mmi_layout_index(&layout, MMI_EMBED, 5, 0), 0);
    mm_config_free(config);
}
END_TEST

START_TEST(bad_arguments_are_refused)
{
    mm_config *config = config_of("{" MINIMIND2 "}");
    mm_tensor_info info = MM_TENSOR_INFO_INIT;
    int64_t count = 0;
    ck_status(mm_layout_count(NULL, &count), MM_ERR_ARG);
    ck_status(mm_layout_count(config, NULL), MM_ERR_ARG);
    ck_ok(mm_layout_count(config, &count));
    ck_status(mm_layout_get(NULL, 0, &info), MM_ERR_ARG);
    ck_status(mm_layout_get(config, 0, NULL), MM_ERR_ARG);
    ck_status(mm_layout_get(config, -1, &info), MM_ERR_ARG);
    ck_status(mm_layout_get(config, count, &info), MM_ERR_ARG);
    ck_error_mentions("tensor 20 of 20");
    ck_status(mm_layout_get(config, INT64_MAX, &info), MM_ERR_ARG);
    info.struct_size = 0;
    ck_status(mm_layout_get(config, 0, &info), MM_ERR_ARG);
    ck_ok(mm_config_set_int(config, "num_key_value_heads", 5));
    mm_tensor_info_init(&info, sizeof info);
    ck_status(mm_layout_get(config, 0, &info), MM_ERR_ARG);
    ck_status(mm_layout_count(config, &count), MM_ERR_ARG);
    ck_assert_int_eq(count, 20);
    mm_config_free(config);
}
END_TEST

/* Counting and placing go by role, so the largest config costs no more than the smallest. */
START_TEST(enormous_configs_are_answered_at_once)
{
    mm_config *config = config_of("{'model_type':'minimind','minimind_version':3,'hidden_size':2,'num_attention_heads':1,"
                                  "'num_key_value_heads':1,'num_hidden_layers':65536,'vocab_size':2147483647,"
                                  "'use_moe':true,'num_experts':65536,'moe_intermediate_size':3}");
    mm_param_count count = MM_PARAM_COUNT_INIT;
    mm_tensor_info info = MM_TENSOR_INFO_INIT;
    int64_t tensors = 0;
    ck_ok(mm_count_params(config, &count));
    ck_assert_int_eq(count.moe_experts, INT64_C(65536) * 65536 * 18);
    ck_ok(mm_layout_count(config, &tensors));
    ck_assert_int_eq(tensors, 2 + INT64_C(65536) * (9 + 3 * INT64_C(65536)));
    ck_ok(mm_layout_get(config, tensors - 2, &info));
    ck_assert_str_eq(info.name, "model.layers.65535.mlp.experts.65535.down_proj.weight");
    mmi_arch arch;
    mmi_layout layout;
    ck_ok(mmi_config_resolve(config, &arch));
    mmi_layout_create(&layout, &arch);
    ck_assert_uint_gt(mmi_layout_place(&layout, 4, NULL), (size_t)count.total * 4);
    mm_config_free(config);
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("model/layout");
    TCase *tests = tcase_create("layout");
    tcase_add_test(tests, a_dense_layer_has_its_tensors_in_order);
    tcase_add_test(tests, biases_follow_their_weights);
    tcase_add_test(tests, experts_follow_their_router);
    tcase_add_test(tests, each_family_resolves_by_its_own_rules);
    tcase_add_test(tests, every_answer_agrees_in_500_random_configs);
    tcase_add_test(tests, projections_that_are_multiplied_together_lie_together);
    tcase_add_test(tests, bad_arguments_are_refused);
    tcase_add_test(tests, enormous_configs_are_answered_at_once);
    tcase_set_timeout(tests, 60);
    suite_add_tcase(suite, tests);
    return suite;
}

int main(void)
{
    return run_suite(make_suite());
}
