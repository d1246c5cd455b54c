/* How evenly routers spread their tokens: asked of a context, told by a trainer, drawn by a report. */
#include <stdio.h>
#include <string.h>

#include <minimind/watch.h>

#include "../data/texts.h"
#include "base/files.h"
#include "base/memory.h"
#include "tiny.h"

static char rows[512];

static void start(void)
{
    snprintf(rows, sizeof rows, "%s", put_rows(scratch_directory(), "rows.jsonl", 23, 12, 1));
}

static mm_context *context_with_experts(mm_model **model, int64_t chosen)
{
    mm_context_options c = MM_CONTEXT_OPTIONS_INIT;
    mm_context *context = NULL;
    mm_config *config = tiny_config();
    ck_ok(mm_config_set_bool(config, "use_moe", 1));
    ck_ok(mm_config_set_int(config, "num_experts_per_tok", chosen));
    ck_ok(mm_model_create(config, 3, model));
    mm_config_free(config);
    c.max_length = 8;
    c.threads = 1;
    ck_ok(mm_context_create(*model, &c, &context));
    return context;
}

START_TEST(the_load_of_experts_is_their_share_of_all_choices)
{
    static const int32_t ids[8] = { 1, 50, 100, 150, 200, 3, 77, 9 };
    mm_model *model = NULL, *dense = tiny_model(1);
    mm_context *all = context_with_experts(&model, 4), *one = NULL, *none = NULL;
    mm_batch b = MM_BATCH_INIT;
    mm_output out = MM_OUTPUT_INIT;
    double load[4];
    size_t needed = 0;
    ck_ok(mm_expert_load(all, 1, NULL, 0, &needed));
    ck_assert_uint_eq(needed, 4);
    ck_status(mm_expert_load(all, 1, load, 4, NULL), MM_ERR_STATE);
    b.ids = ids;
    b.batch = 1;
    b.length = 8;
    ck_ok(mm_forward(all, &b, &out));
    for (int64_t layer = 0; layer < 2; layer++) { /* every token goes to every one */
        ck_ok(mm_expert_load(all, layer, load, 4, NULL));
        for (int e = 0; e < 4; e++)
            ck_assert_double_eq(load[e], 0.25);
    }
    ck_status(mm_expert_load(all, 2, load, 4, NULL), MM_ERR_ARG);
    ck_error_mentions("layer 2");
    ck_status(mm_expert_load(all, -1, load, 4, NULL), MM_ERR_ARG);
    ck_status(mm_expert_load(all, 0, load, 3, &needed), MM_ERR_ARG);
    ck_status(mm_expert_load(all, 0, NULL, 3, NULL), MM_ERR_ARG);
    ck_status(mm_expert_load(NULL, 0, load, 4, NULL), MM_ERR_ARG);
    mm_context_free(all);
    mm_model_free(model);
    one = context_with_experts(&model, 2);
    b.length = 1;
    ck_ok(mm_forward(one, &b, &out));
    ck_ok(mm_expert_load(one, 0, load, 4, NULL));
    int halves = 0;
    for (int e = 0; e < 4; e++)
        halves += load[e] == 0.5;
    ck_assert_int_eq(halves, 2); /* one token, of two experts each has a half */
    mm_context_options small = MM_CONTEXT_OPTIONS_INIT;
    small.max_length = 8;
    ck_ok(mm_context_create(dense, &small, &none));
    ck_ok(mm_expert_load(none, 0, load, 4, &needed));
    ck_assert_uint_eq(needed, 0);
    mm_context_free(none);
    mm_context_free(one);
    mm_model_free(model);
    mm_model_free(dense);
}
END_TEST

/* Tells a report of each step, and looks at what it tells. */
static int32_t tell(void *user, const mm_train_progress *p)
{
    ck_assert_int_eq(p->expert_layers, 2);
    ck_assert_int_eq(p->experts, 4);
    for (int l = 0; l < 2; l++) {
        double sum = 0;
        for (int e = 0; e < 4; e++)
            sum += p->expert_load[4 * l + e];
        ck_assert_double_eq_tol(sum, 1, 1e-12);
    }
    ck_ok(mm_report_progress(user, p));
    return 0;
}

START_TEST(a_report_draws_the_load_of_every_layer)
{
    char place[512], path[600], *page = NULL;
    size_t size = 0;
    mm_report *report = NULL;
    mm_train_progress p = MM_TRAIN_PROGRESS_INIT;
    tiny_run run;
    snprintf(place, sizeof place, "%s/report", scratch_directory());
    ck_ok(mm_report_create(place, NULL, &report));
    tiny_options o = tiny_defaults(rows);
    o.moe = true;
    o.validation = rows; /* whose last pass is not what is told */
    o.trainer.eval_interval = 2;
    o.trainer.max_steps = 4;
    o.trainer.on_step = tell;
    o.trainer.user = report;
    tiny_start(&run, &o);
    ck_ok(mm_trainer_progress(run.trainer, &p));
    ck_assert_ptr_null(p.expert_load); /* there was no step yet */
    ck_ok(mm_trainer_run(run.trainer));
    ck_ok(mm_report_flush(report));
    snprintf(path, sizeof path, "%s/metrics.jsonl", place);
    ck_ok(mmi_read_file(path, &page, &size));
    ck_assert_ptr_nonnull(strstr(page, "\"expert_load/layer 1\":["));
    mmi_free(page);
    snprintf(path, sizeof path, "%s/report.html", place);
    ck_ok(mmi_read_file(path, &page, &size));
    ck_assert_ptr_nonnull(strstr(page, "<h3>Expert load, layer 0</h3>"));
    ck_assert_ptr_nonnull(strstr(page, "<h3>Expert load, layer 1</h3>"));
    mmi_free(page);
    mm_report_free(report);
    tiny_end(&run);
}
END_TEST

START_TEST(the_loss_told_has_the_balance_in_it_and_the_validations_has_not)
{
    mm_train_progress p = MM_TRAIN_PROGRESS_INIT;
    mm_context_options c = MM_CONTEXT_OPTIONS_INIT;
    const mm_loader_position beginning = MM_LOADER_POSITION_INIT;
    mm_batch b = MM_BATCH_INIT;
    mm_output out = MM_OUTPUT_INIT;
    mm_context *context = NULL;
    tiny_run run;
    tiny_options o = tiny_defaults(rows);
    o.moe = true;
    o.validation = rows;
    o.loader.batch = 23; /* all rows at once: what is told is of the same ones as the validation */
    o.trainer.max_steps = 1;
    o.trainer.learning_rate = 0;
    tiny_start(&run, &o);
    ck_ok(mm_trainer_run(run.trainer));
    ck_ok(mm_trainer_progress(run.trainer, &p));
    c.mode = MM_TRAIN;
    c.max_batch = 23;
    c.max_length = 24;
    ck_ok(mm_context_create(run.model, &c, &context));
    ck_ok(mm_loader_seek(run.loader, &beginning));
    ck_ok(mm_loader_next(run.loader, &b));
    ck_ok(mm_forward(context, &b, &out));
    ck_assert_double_gt(out.aux_loss, 0.1);
    ck_assert_double_eq_tol(p.loss, out.loss + out.aux_loss, 1e-5);
    ck_assert_double_eq_tol(p.validation_loss, out.loss, 1e-5);
    mm_context_free(context);
    tiny_end(&run);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("train/expert_load");
    TCase *tc = tcase_create("expert load");
    tcase_add_checked_fixture(tc, start, NULL);
    tcase_add_test(tc, the_load_of_experts_is_their_share_of_all_choices);
    tcase_add_test(tc, a_report_draws_the_load_of_every_layer);
    tcase_add_test(tc, the_loss_told_has_the_balance_in_it_and_the_validations_has_not);
    tcase_set_timeout(tc, 60);
    suite_add_tcase(suite, tc);
    return run_suite(suite);
}
