#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "support.h"

/* What the shared tables promise. */
#define TOLERANCE 1e-12

static void check_rate(int32_t rule, int64_t step, int64_t total, int64_t warmup, double lr, double expected)
{
    double found = -1;
    ck_ok(mm_schedule_lr(rule, step, total, warmup, lr, &found));
    ck_assert_msg(fabs(found - expected) <= TOLERANCE * fabs(expected), "rule %d, step %lld of %lld: %.17g, not %.17g",
                  rule, (long long)step, (long long)total, found, expected);
}

START_TEST(rates_are_those_of_the_rules)
{
    check_rate(MM_SCHEDULE_CONSTANT, 7, 100, 3, 5e-4, 5e-4);
    check_rate(MM_SCHEDULE_MINIMIND2, 0, 100, 0, 5e-4, 5.5e-4);
    check_rate(MM_SCHEDULE_MINIMIND2, 5, 100, 0, 5e-4, 0.0005469220851487844);
    check_rate(MM_SCHEDULE_MINIMIND2, 50, 100, 0, 5e-4, 3e-4);
    check_rate(MM_SCHEDULE_MINIMIND2, 100, 100, 0, 5e-4, 5e-5);
    check_rate(MM_SCHEDULE_MINIMIND3, 0, 100, 0, 5e-4, 5e-4);
    check_rate(MM_SCHEDULE_MINIMIND3, 5, 100, 0, 5e-4, 0.0004972298766339061);
    check_rate(MM_SCHEDULE_MINIMIND3, 100, 100, 0, 5e-4, 5e-5);
    check_rate(MM_SCHEDULE_COSINE, 0, 100, 10, 1e-3, 0);
    check_rate(MM_SCHEDULE_COSINE, 5, 100, 10, 1e-3, 5e-4);
    check_rate(MM_SCHEDULE_COSINE, 10, 100, 10, 1e-3, 1e-3);
    check_rate(MM_SCHEDULE_COSINE, 55, 100, 10, 1e-3, 5e-4);
    check_rate(MM_SCHEDULE_COSINE, 95, 100, 10, 1e-3, 1e-4);
    check_rate(MM_SCHEDULE_COSINE, 0, 100, 0, 1e-3, 1e-3);
    check_rate(MM_SCHEDULE_COSINE, 7, 5, 5, 1e-3, 1e-3);
    check_rate(MM_SCHEDULE_LINEAR, 0, 100, 10, 1e-3, 0);
    check_rate(MM_SCHEDULE_LINEAR, 5, 100, 10, 1e-3, 5e-4);
    check_rate(MM_SCHEDULE_LINEAR, 10, 100, 10, 1e-3, 1e-3);
    check_rate(MM_SCHEDULE_LINEAR, 55, 100, 10, 1e-3, 5e-4);
    check_rate(MM_SCHEDULE_LINEAR, 100, 100, 10, 1e-3, 0);
    check_rate(MM_SCHEDULE_LINEAR, 30, 40, 0, 1e-3, 2.5e-4);
    check_rate(MM_SCHEDULE_LINEAR, 99, 100, 100, 1, 0.99); /* which has no way down */
    check_rate(MM_SCHEDULE_LINEAR, 100, 100, 100, 1, 0);
    check_rate(MM_SCHEDULE_LINEAR, 100, 100, 200, 1, 0);
    check_rate(MM_SCHEDULE_WSD, 5, 100, 10, 1e-3, 5e-4);
    check_rate(MM_SCHEDULE_WSD, 10, 100, 10, 1e-3, 1e-3);
    check_rate(MM_SCHEDULE_WSD, 80, 100, 10, 1e-3, 1e-3);
    check_rate(MM_SCHEDULE_WSD, 95, 100, 10, 1e-3, 2.5e-4);
    check_rate(MM_SCHEDULE_WSD, 100, 100, 10, 1e-3, 0);
}
END_TEST

START_TEST(the_decay_of_wsd_takes_the_part_it_is_given)
{
    static const double expected[] = { 0, 5e-4, 1e-3, 1e-3, 1e-3, 1e-3, 8e-4, 6e-4, 4e-4, 2e-4, 0, 0 };
    double found = -1, whole = -1, linear = -2;
    for (int64_t step = 0; step < 12; step++) {
        ck_ok(mm_schedule_wsd(step, 10, 2, 0.5, 1e-3, &found));
        ck_assert_double_eq_tol(found, expected[step], 1e-15);
        ck_ok(mm_schedule_wsd(step, 10, 0, 1, 1e-3, &whole));
        ck_ok(mm_schedule_lr(MM_SCHEDULE_LINEAR, step, 10, 0, 1e-3, &linear));
        ck_assert(whole == linear);
    }
    static const double wrong[] = { 0, -0.1, 1.1, NAN, INFINITY };
    for (int i = 0; i < 5; i++)
        ck_status(mm_schedule_wsd(1, 10, 2, wrong[i], 1e-3, &found), MM_ERR_ARG);
    ck_status(mm_schedule_wsd(1, 10, 2, 0.5, 1e-3, NULL), MM_ERR_ARG);
    ck_status(mm_schedule_wsd(-1, 10, 2, 0.5, 1e-3, &found), MM_ERR_ARG);
}
END_TEST

START_TEST(the_shared_tables_agree)
{
    static const char *const names[] = { "constant", "minimind2", "minimind3", "minillm" };
    REQUIRE_SHARED("golden/lr_schedules.json");
    mmi_json *tables = NULL;
    ck_ok(mmi_json_read_file(shared_path("golden/lr_schedules.json"), &tables));
    int checked = 0;
    for (size_t i = 0; i < mmi_json_size(tables); i++) {
        const mmi_json *t = mmi_json_at(tables, i), *rows = mmi_json_get(t, "table");
        int32_t rule = 0;
        while (strcmp(names[rule], mmi_json_string(mmi_json_get(t, "rule"), NULL)) != 0)
            ck_assert_int_lt(++rule, 4);
        for (size_t r = 0; r < mmi_json_size(rows); r++, checked++)
            check_rate(rule, mmi_json_int(mmi_json_at(mmi_json_at(rows, r), 0), -1),
                       mmi_json_int(mmi_json_get(t, "total"), -1), mmi_json_int(mmi_json_get(t, "warmup"), 0),
                       mmi_json_number(mmi_json_get(t, "lr"), -1),
                       mmi_json_number(mmi_json_at(mmi_json_at(rows, r), 1), -1));
    }
    ck_assert_int_gt(checked, 50);
    mmi_json_free(tables);
}
END_TEST

START_TEST(bad_arguments_are_refused)
{
    double out = 7;
    ck_status(mm_schedule_lr(-1, 0, 1, 0, 1, &out), MM_ERR_ARG);
    ck_status(mm_schedule_lr(6, 0, 1, 0, 1, &out), MM_ERR_ARG);
    ck_status(mm_schedule_lr(1, -1, 1, 0, 1, &out), MM_ERR_ARG);
    ck_status(mm_schedule_lr(1, 0, -1, 0, 1, &out), MM_ERR_ARG);
    ck_status(mm_schedule_lr(1, 0, 1, -1, 1, &out), MM_ERR_ARG);
    ck_status(mm_schedule_lr(1, 0, 1, 0, -1, &out), MM_ERR_ARG);
    ck_status(mm_schedule_lr(1, 0, 1, 0, NAN, &out), MM_ERR_ARG);
    ck_status(mm_schedule_lr(1, 0, 1, 0, INFINITY, &out), MM_ERR_ARG);
    ck_status(mm_schedule_lr(1, 0, 1, 0, 1.79e308, &out), MM_ERR_ARG); /* 1.1 times of it is what the rule begins with */
    ck_status(mm_schedule_lr(1, 0, 1, 0, 1, NULL), MM_ERR_ARG);
    ck_assert(out == 7);
    for (int32_t rule = 0; rule < 6; rule++) {
        ck_ok(mm_schedule_lr(rule, 0, 0, 0, 1, &out));
        ck_assert(isfinite(out));
        ck_ok(mm_schedule_lr(rule, INT64_MAX, INT64_MAX, INT64_MAX, 1, &out));
        ck_assert(isfinite(out));
    }
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("train/schedule");
    TCase *tc = tcase_create("schedule");
    tcase_add_test(tc, rates_are_those_of_the_rules);
    tcase_add_test(tc, the_decay_of_wsd_takes_the_part_it_is_given);
    tcase_add_test(tc, the_shared_tables_agree);
    tcase_add_test(tc, bad_arguments_are_refused);
    suite_add_tcase(suite, tc);
    return suite;
}

int main(void)
{
    return run_suite(make_suite());
}
