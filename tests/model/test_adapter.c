/* Making adapters and looking at them. */
#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "checkpoint.h"
#include "configs.h"
#include "model/adapter.h"
#include "model/model.h"
#include "model/patterns.h"
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

static mm_adapter *adapter_of(mm_model *of, const char *targets, int32_t rank)
{
    mm_adapter_options o = MM_ADAPTER_OPTIONS_INIT;
    mm_adapter *adapter = NULL;
    o.targets = targets;
    o.rank = rank;
    o.seed = 7;
    ck_ok(mm_adapter_create(of, &o, &adapter));
    return adapter;
}

static mm_view tensor_of(const mm_adapter *adapter, int64_t index)
{
    mm_view view;
    ck_ok(mm_adapter_tensor(adapter, index, &view));
    return view;
}

/* --- Patterns --- */

START_TEST(patterns_mean_names_and_their_ends)
{
    static const struct {
        const char *list, *name;
        int means;
    } cases[] = {
        { "q_proj", "model.layers.0.self_attn.q_proj", 1 },
        { "q_proj", "model.layers.0.self_attn.aq_proj", 0 },
        { "proj", "model.layers.0.self_attn.q_proj", 0 },
        { "*proj", "model.layers.0.self_attn.q_proj", 1 },
        { "self_attn.q_proj", "a.self_attn.q_proj", 1 },
        { "self_attn", "a.self_attn.q_proj", 0 },
        { "self_attn.*", "a.self_attn.q_proj", 1 },
        { "layers.1.*", "model.layers.1.x", 1 },
        { "layers.1.*", "model.layers.11.x", 0 },
        { "model.layers.*.mlp.*", "model.layers.3.mlp.up_proj", 1 },
        { "a, b ,c", "x.b", 1 },
        { "a,b", "ab", 0 },
        { "", "a", 0 },
        { ",", "", 0 },
        { "*", "anything.at.all", 1 },
        { "a*b*c", "a1b2b3c", 1 },
        { "a*b*c", "a1b2b3", 0 },
        { "**", "x", 1 },
        { "model.layers.0.self_attn.q_proj", "model.layers.0.self_attn.q_proj", 1 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        ck_assert_msg(mmi_patterns_mean(cases[i].list, cases[i].name) == (cases[i].means != 0), "\"%s\" and \"%s\"",
                      cases[i].list, cases[i].name);
}
END_TEST

/* --- Making one --- */

START_TEST(targets_choose_the_matrices)
{
    static const struct {
        const char *type, *targets;
        int matrices;
    } cases[] = {
        { "minimind", NULL, 8 },         { "minimind", "q_proj,v_proj", 4 },
        { "minimind", "*", 14 },         { "minimind", "all-linear", 14 },
        { "minimind", "layers.0.*", 7 }, { "minimind", "minimind", 4 },
        { "minimind", "mlp.*", 6 },      { "minimind", "q_proj,model.layers.0.self_attn.q_proj", 2 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        mm_adapter *adapter = adapter_of(model, cases[i].targets, 2);
        ck_assert_msg(mm_adapter_tensor_count(adapter) == 2 * cases[i].matrices, "%s: %d tensors", cases[i].targets,
                      (int)mm_adapter_tensor_count(adapter));
        mm_adapter_free(adapter);
    }
}
END_TEST

START_TEST(tensors_have_the_names_and_shapes_of_their_matrices)
{
    mm_adapter *adapter = adapter_of(model, "*", 3);
    int64_t numbers = 0;
    for (int64_t i = 0; i < mm_adapter_tensor_count(adapter); i++) {
        char name[200], full[200];
        size_t needed = 0;
        mm_view view = tensor_of(adapter, i), base, found;
        ck_ok(mm_adapter_name(adapter, i, NULL, 0, &needed));
        ck_status(mm_adapter_name(adapter, i, name, needed - 1, NULL), MM_ERR_ARG);
        ck_ok(mm_adapter_name(adapter, i, name, needed, NULL));
        ck_assert_uint_eq(strlen(name) + 1, needed);
        ck_ok(mm_adapter_find(adapter, name, &found));
        ck_assert_ptr_eq(found.data, view.data);
        char *end_of_module = strstr(strcpy(full, name), ".lora_");
        ck_assert_str_eq(end_of_module, i % 2 ? ".lora_B.weight" : ".lora_A.weight");
        strcpy(end_of_module, ".weight");
        ck_ok(mm_model_find(model, full, &base));
        ck_assert_int_eq(view.shape[i % 2], 3);
        ck_assert_int_eq(view.shape[1 - i % 2], base.shape[1 - i % 2]);
        ck_assert_uint_eq((uintptr_t)view.data % MMI_ALIGN, 0);
        numbers += view.shape[0] * view.shape[1];
    }
    ck_assert_int_eq(mm_adapter_count_params(adapter), numbers);
    mm_adapter_free(adapter);
}
END_TEST

START_TEST(b_begins_as_zero_and_a_depends_on_seed_and_matrix_alone)
{
    mm_adapter *all = adapter_of(model, "*", 4), *few = adapter_of(model, "v_proj", 4), *other = NULL;
    mm_adapter_options o = MM_ADAPTER_OPTIONS_INIT;
    o.targets = "v_proj";
    o.rank = 4;
    o.seed = 8;
    ck_ok(mm_adapter_create(model, &o, &other));
    for (int64_t i = 0; i < mm_adapter_tensor_count(few); i++) {
        char name[200];
        mm_view a = tensor_of(few, i), same, b = tensor_of(other, i);
        size_t size = (size_t)(a.shape[0] * a.shape[1]) * sizeof(float);
        ck_ok(mm_adapter_name(few, i, name, sizeof name, NULL));
        ck_ok(mm_adapter_find(all, name, &same));
        ck_assert_int_eq(memcmp(a.data, same.data, size), 0);
        ck_assert((memcmp(a.data, b.data, size) == 0) == (i % 2 == 1));
        for (size_t j = 0; j < size / sizeof(float); j++)
            ck_assert(i % 2 ? ((float *)a.data)[j] == 0 : fabs(((float *)a.data)[j]) <= 1 / sqrt((double)a.shape[1]));
    }
    mm_adapter_free(all);
    mm_adapter_free(few);
    mm_adapter_free(other);
}
END_TEST

/* 256 numbers and more: their deviation is within a fifth of what it should be. */
START_TEST(a_is_spread_as_the_rule_says)
{
    for (int rule = 0; rule < 2; rule++) {
        mm_adapter *adapter = adapter_of(model, rule ? "minimind" : "q_proj", 64);
        mm_view a = tensor_of(adapter, 0);
        int64_t n = a.shape[0] * a.shape[1];
        double sum = 0, wanted = rule ? 0.02 : 1 / sqrt(3.0 * (double)a.shape[1]);
        for (int64_t i = 0; i < n; i++)
            sum += ((float *)a.data)[i] * ((float *)a.data)[i];
        ck_assert_int_ge(n, 256);
        ck_assert(fabs(sqrt(sum / (double)n) - wanted) < 0.2 * wanted);
        mm_adapter_free(adapter);
    }
}
END_TEST

START_TEST(it_tells_what_it_was_made_with)
{
    mm_adapter_options o = MM_ADAPTER_OPTIONS_INIT, got = MM_ADAPTER_OPTIONS_INIT;
    mm_adapter *adapter = NULL;
    char targets[] = "q_proj, down_proj";
    o.targets = targets;
    o.rank = 5;
    o.alpha = 12.5;
    o.dropout = 0.25;
    ck_ok(mm_adapter_create(model, &o, &adapter));
    memset(targets, 'x', sizeof targets - 1);
    ck_ok(mm_adapter_describe(adapter, &got));
    ck_assert_str_eq(got.targets, "q_proj, down_proj");
    ck_assert_int_eq(got.rank, 5);
    ck_assert(got.alpha == 12.5 && got.dropout == 0.25);
    ck_assert_ptr_eq(mm_adapter_model(adapter), model);
    mm_adapter_free(adapter);
    adapter = adapter_of(model, "minimind", 6);
    ck_ok(mm_adapter_describe(adapter, &got));
    ck_assert(got.alpha == 6); /* so that the factor is 1 */
    mm_adapter_free(adapter);
}
END_TEST

START_TEST(options_that_make_no_adapter_are_refused)
{
    static const struct {
        const char *targets;
        int32_t rank;
        double alpha, dropout;
        const char *words;
    } wrong[] = {
        { NULL, 0, 1, 0, "rank" },         { NULL, -1, 1, 0, "rank" },
        { NULL, 70000, 1, 0, "rank" },     { NULL, 1, 0, 0, "alpha" },
        { NULL, 1, NAN, 0, "alpha" },      { NULL, 1, INFINITY, 0, "alpha" },
        { NULL, 2, 1e39, 0, "float32" },   { NULL, 1, -1, 0, "alpha" },
        { NULL, 1, 1, 1, "dropout" },      { NULL, 1, 1, -0.1, "dropout" },
        { NULL, 1, 1, NAN, "dropout" },    { "", 1, 1, 0, "targets" },
        { "q_proj,", 1, 1, 0, "targets" }, { "q_proj,x_proj", 1, 1, 0, "x_proj" },
        { "lm_head", 1, 1, 0, "lm_head" }, { "embed_tokens", 1, 1, 0, "embed_tokens" },
        { "norm", 1, 1, 0, "norm" },       { "model.layers.2.*", 1, 1, 0, "layers.2" },
    };
    mm_adapter *adapter = NULL;
    uint64_t before = bytes_held();
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        mm_adapter_options o = MM_ADAPTER_OPTIONS_INIT;
        o.targets = wrong[i].targets;
        o.rank = wrong[i].rank;
        o.alpha = wrong[i].alpha;
        o.dropout = wrong[i].dropout;
        ck_status(mm_adapter_create(model, &o, &adapter), MM_ERR_ARG);
        ck_error_mentions(wrong[i].words);
    }
    ck_status(mm_adapter_create(NULL, NULL, &adapter), MM_ERR_ARG);
    ck_status(mm_adapter_create(model, NULL, NULL), MM_ERR_ARG);
    ck_assert_ptr_null(adapter);
    ck_assert_uint_eq(bytes_held(), before);
}
END_TEST

/* [rank, 64] and [16320, rank] in float32 are 2³² bytes together: 0 where 32 bits count them. */
START_TEST(an_adapter_beyond_the_machine_is_refused)
{
    mm_config *config = config_of("{'model_type':'minimind','minimind_version':2,'vocab_size':64,'hidden_size':64,"
                                  "'num_hidden_layers':1,'num_attention_heads':8,'intermediate_size':16320}");
    mm_model *wide = NULL;
    mmi_adapter_cost cost;
    mm_adapter_options o = MM_ADAPTER_OPTIONS_INIT;
    o.rank = MMI_MOST_RANK;
    o.targets = "gate_proj";
    ck_ok(mm_model_create(config, 1, &wide));
    if (SIZE_MAX > UINT32_MAX) {
        ck_ok(mmi_adapter_measure(&cost, mmi_model_layout(wide), &o));
        ck_assert_uint_eq(cost.arena, (uint64_t)1 << 32);
    } else {
        mm_adapter *adapter = NULL;
        ck_status(mmi_adapter_measure(&cost, mmi_model_layout(wide), &o), MM_ERR_ARG);
        ck_status(mm_adapter_create(wide, &o, &adapter), MM_ERR_ARG);
        ck_error_mentions("rank 65536");
    }
    mm_model_free(wide);
    mm_config_free(config);
}
END_TEST

START_TEST(a_router_of_experts_has_no_adapter)
{
    mm_config *config = family_config("minimind");
    mm_model *moe = NULL;
    mm_adapter *adapter = NULL;
    mm_adapter_options o = MM_ADAPTER_OPTIONS_INIT;
    mm_view view;
    ck_ok(mm_config_set_bool(config, "use_moe", 1));
    ck_ok(mm_model_create(config, 1, &moe));
    o.targets = "mlp.gate";
    ck_status(mm_adapter_create(moe, &o, &adapter), MM_ERR_ARG);
    o.targets = "experts.1.*";
    ck_ok(mm_adapter_create(moe, &o, &adapter));
    ck_ok(mm_adapter_find(adapter, "model.layers.1.mlp.experts.1.down_proj.lora_B.weight", &view));
    ck_status(mm_adapter_find(adapter, "model.layers.1.mlp.experts.0.down_proj.lora_B.weight", &view), MM_ERR_ARG);
    mm_adapter_free(adapter);
    mm_model_free(moe);
    mm_config_free(config);
}
END_TEST

START_TEST(asking_wrongly_is_refused)
{
    mm_adapter *adapter = adapter_of(model, NULL, 2);
    mm_adapter_options o = MM_ADAPTER_OPTIONS_INIT;
    mm_view view;
    char name[8];
    int64_t count = mm_adapter_tensor_count(adapter);
    ck_status(mm_adapter_tensor(adapter, -1, &view), MM_ERR_ARG);
    ck_status(mm_adapter_tensor(adapter, count, &view), MM_ERR_ARG);
    ck_status(mm_adapter_write(adapter, count, &view), MM_ERR_ARG);
    ck_status(mm_adapter_write(adapter, 0, NULL), MM_ERR_ARG);
    ck_status(mm_adapter_tensor(NULL, 0, &view), MM_ERR_ARG);
    ck_status(mm_adapter_find(adapter, "model.norm.weight", &view), MM_ERR_ARG);
    ck_error_mentions("model.norm.weight");
    ck_status(mm_adapter_find(NULL, "x", &view), MM_ERR_ARG);
    ck_status(mm_adapter_find(adapter, NULL, &view), MM_ERR_ARG);
    ck_status(mm_adapter_name(adapter, count, name, sizeof name, NULL), MM_ERR_ARG);
    ck_status(mm_adapter_name(adapter, 0, NULL, 8, NULL), MM_ERR_ARG);
    ck_status(mm_adapter_describe(NULL, &o), MM_ERR_ARG);
    ck_status(mm_adapter_describe(adapter, NULL), MM_ERR_ARG);
    ck_assert_int_eq(mm_adapter_tensor_count(NULL), 0);
    ck_assert_int_eq(mm_adapter_count_params(NULL), 0);
    ck_assert_ptr_null(mm_adapter_model(NULL));
    mm_adapter_written(NULL);
    mm_adapter_free(NULL);
    mm_adapter_free(adapter);
}
END_TEST

START_TEST(out_of_memory_is_told_and_leaves_nothing)
{
    uint64_t before = bytes_held();
    mm_adapter *adapter = NULL;
    for (uint64_t n = 1; n <= 2; n++) {
        mmi_memory_fail_at(n, false);
        mm_status status = mm_adapter_create(model, NULL, &adapter);
        mmi_memory_fail_at(0, false);
        ck_assert_int_eq(status, MM_ERR_MEMORY);
        ck_assert_ptr_null(adapter);
        ck_assert_uint_eq(bytes_held(), before);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("model/adapter");
    TCase *tests = tcase_create("adapters");
    tcase_add_checked_fixture(tests, start, end);
    tcase_add_test(tests, patterns_mean_names_and_their_ends);
    tcase_add_test(tests, targets_choose_the_matrices);
    tcase_add_test(tests, tensors_have_the_names_and_shapes_of_their_matrices);
    tcase_add_test(tests, b_begins_as_zero_and_a_depends_on_seed_and_matrix_alone);
    tcase_add_test(tests, a_is_spread_as_the_rule_says);
    tcase_add_test(tests, it_tells_what_it_was_made_with);
    tcase_add_test(tests, options_that_make_no_adapter_are_refused);
    tcase_add_test(tests, an_adapter_beyond_the_machine_is_refused);
    tcase_add_test(tests, a_router_of_experts_has_no_adapter);
    tcase_add_test(tests, asking_wrongly_is_refused);
    tcase_add_test(tests, out_of_memory_is_told_and_leaves_nothing);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
