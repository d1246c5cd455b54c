/* Counting parameters. */
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/memory.h"
#include "configs.h"

static void check_same(const char *name, const char *part, int64_t found, int64_t expected)
{
    ck_assert_msg(found == expected, "%s: %s is %lld, not %lld", name, part, (long long)found, (long long)expected);
}

START_TEST(the_well_known_models_have_their_well_known_sizes)
{
    static const struct {
        const char *preset;
        int64_t total, active;
    } cases[] = {
        { "minimind2-small", 25829888, 25829888 }, { "minimind2", 104030976, 104030976 },
        { "minimind2-moe", 145029760, 91945600 },  { "minimind-3", 63912192, 63912192 },
        { "minimind-3-moe", 198416640, 63936768 }, { "minillm-moe", 93221784, 71988120 },
        { "classic-tied", 41604096, 41604096 },    { "classic-untied", 57988096, 57988096 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        mm_config *config = NULL;
        mm_param_count count = MM_PARAM_COUNT_INIT;
        ck_ok(mm_config_create(cases[i].preset, &config));
        ck_ok(mm_count_params(config, &count));
        check_same(cases[i].preset, "total", count.total, cases[i].total);
        check_same(cases[i].preset, "active", count.active, cases[i].active);
        mm_config_free(config);
    }
}
END_TEST

static void check_count(const char *name, const mm_param_count *count, const mmi_json *expected)
{
    const mmi_json *parts = mmi_json_get(expected, "breakdown");
    const struct {
        const char *part;
        int64_t found;
    } rows[] = {
        { "embedding", count->embedding },     { "attention", count->attention },
        { "mlp_dense", count->mlp_dense },     { "moe_router", count->moe_router },
        { "moe_experts", count->moe_experts }, { "moe_shared_experts", count->moe_shared_experts },
        { "moe_scalars", count->moe_scalars }, { "layer_norms", count->layer_norms },
        { "final_norm", count->final_norm },   { "lm_head", count->lm_head },
    };
    check_same(name, "total", count->total, mmi_json_int(mmi_json_get(expected, "total"), -1));
    check_same(name, "active", count->active, mmi_json_int(mmi_json_get(expected, "active"), -1));
    check_same(name, "without_final_norm", count->total - count->final_norm,
               mmi_json_int(mmi_json_get(expected, "without_final_norm"), -1));
    ck_assert_uint_eq(mmi_json_size(parts), sizeof rows / sizeof *rows);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        check_same(name, rows[i].part, rows[i].found, mmi_json_int(mmi_json_get(parts, rows[i].part), -1));
}

/* The file's config and the preset of that name are one and the same. */
START_TEST(every_shared_count_is_exact)
{
    mmi_json *file = NULL;
    int32_t seen = 0;
    REQUIRE_SHARED("golden/param_counts.json");
    ck_ok(mmi_json_read_file(shared_path("golden/param_counts.json"), &file));
    for (void *i = mmi_json_first(file); i; i = mmi_json_next(file, i), seen++) {
        mm_config *config = NULL, *preset = NULL;
        mm_param_count count = MM_PARAM_COUNT_INIT;
        const char *name = mmi_json_key(i);
        char *text = NULL;
        size_t length = 0;
        ck_ok(mmi_json_write(mmi_json_get(mmi_json_value(i), "config"), 0, &text, &length));
        ck_ok(mm_config_load_memory(text, length, &config));
        ck_ok(mm_count_params(config, &count));
        check_count(name, &count, mmi_json_value(i));
        ck_ok(mm_config_create(name, &preset));
        check_equal_configs(config, preset);
        mmi_free(text);
        mm_config_free(config);
        mm_config_free(preset);
    }
    ck_assert_int_eq(seen, mm_preset_count());
    mmi_json_free(file);
}
END_TEST

START_TEST(bad_arguments_are_refused)
{
    mm_config *config = config_of("{" MINIMIND2 "}");
    mm_param_count count = MM_PARAM_COUNT_INIT;
    ck_status(mm_count_params(NULL, &count), MM_ERR_ARG);
    ck_status(mm_count_params(config, NULL), MM_ERR_ARG);
    count.struct_size = 3;
    ck_status(mm_count_params(config, &count), MM_ERR_ARG);
    mm_param_count_init(&count, sizeof count);
    ck_assert_uint_eq(count.struct_size, sizeof count);
    ck_ok(mm_config_set_int(config, "num_key_value_heads", 7));
    ck_status(mm_count_params(config, &count), MM_ERR_ARG);
    ck_assert_int_eq(count.total, 0);
    mm_config_free(config);
}
END_TEST

START_TEST(older_programs_get_what_they_have_room_for)
{
    mm_config *config = config_of("{" MINIMIND2 "}");
    mm_param_count count = MM_PARAM_COUNT_INIT;
    count.struct_size = offsetof(mm_param_count, active);
    count.active = 77;
    ck_ok(mm_count_params(config, &count));
    ck_assert_int_gt(count.total, 0);
    ck_assert_int_eq(count.active, 77);
    ck_assert_uint_eq(count.struct_size, offsetof(mm_param_count, active));
    mm_config_free(config);
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("model/count");
    TCase *tests = tcase_create("count");
    tcase_add_test(tests, the_well_known_models_have_their_well_known_sizes);
    tcase_add_test(tests, every_shared_count_is_exact);
    tcase_add_test(tests, bad_arguments_are_refused);
    tcase_add_test(tests, older_programs_get_what_they_have_room_for);
    suite_add_tcase(suite, tests);
    return suite;
}

int main(void)
{
    return run_suite(make_suite());
}
