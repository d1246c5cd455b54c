/* Training with products of fewer bits: as good as with float32, resumable, and its scale of the loss. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tiny.h"

static const int32_t types[] = { MM_BF16, MM_F16 };
#define TYPES 2

static char directory[512];

static void start(void)
{
    snprintf(directory, sizeof directory, "%s", scratch_directory());
}

static mm_train_progress progress_of(const tiny_run *run)
{
    mm_train_progress p = MM_TRAIN_PROGRESS_INIT;
    ck_ok(mm_trainer_progress(run->trainer, &p));
    return p;
}

/* How a run ends. */
static mm_train_progress end_of(const tiny_options *o)
{
    tiny_run run;
    tiny_start(&run, o);
    ck_ok(mm_trainer_run(run.trainer));
    mm_train_progress p = progress_of(&run);
    p.metrics = p.validation_metrics = NULL;
    tiny_end(&run);
    return p;
}

/* Long enough to learn by heart a good part of what there is. */
static tiny_options long_run(void)
{
    tiny_options o = tiny_options_of(TINY_TEXT, directory);
    o.validation = o.path;
    o.trainer.accumulation_steps = 1;
    o.trainer.epochs = 15;
    return o;
}

START_TEST(fewer_bits_reach_the_loss_of_float32)
{
    tiny_options o = long_run();
    mm_train_progress exact = end_of(&o);
    ck_assert_double_lt(exact.validation_loss, 3.2); /* from ln 260 = 5.6 */
    for (int t = 0; t < TYPES; t++) {
        o.trainer.compute = types[t];
        mm_train_progress p = end_of(&o);
        double off = fabs(p.validation_loss / exact.validation_loss - 1);
        ck_assert_msg(off > 0 && off < 0.01, "%s ends at %g, float32 at %g", mm_dtype_name(types[t]), p.validation_loss,
                      exact.validation_loss);
    }
}
END_TEST

START_TEST(float16_begins_with_a_loss_scale_that_others_do_without)
{
    for (int32_t compute = MM_F32; compute <= MM_F16; compute++) {
        tiny_run run;
        tiny_options o = long_run();
        o.trainer.compute = compute;
        tiny_start(&run, &o);
        ck_assert_double_eq(progress_of(&run).loss_scale, compute == MM_F16 ? 65536 : 1);
        tiny_end(&run);
        o.trainer.loss_scale = 256;
        tiny_start(&run, &o);
        ck_assert_double_eq(progress_of(&run).loss_scale, 256);
        tiny_end(&run);
    }
}
END_TEST

START_TEST(a_scale_beyond_float16_is_halved_until_the_gradients_fit)
{
    tiny_options o = long_run();
    mm_train_progress exact = end_of(&o);
    o.trainer.compute = MM_F16;
    o.trainer.loss_scale = 0x1p30;
    mm_train_progress p = end_of(&o); /* though max_skips is 0 */
    ck_assert_int_gt(p.skipped_steps, 0);
    ck_assert_double_eq(p.loss_scale, ldexp(1, 30 - (int)p.skipped_steps));
    ck_assert_int_eq(p.updates, exact.updates - p.skipped_steps);
    ck_assert_double_eq_tol(p.validation_loss, exact.validation_loss, 0.1 * exact.validation_loss); /* updates fewer */
    o.trainer.loss_scale = 0x1p30;
    o.trainer.compute = MM_BF16; /* as wide as float32 */
    p = end_of(&o);
    ck_assert_int_eq(p.skipped_steps, 0);
}
END_TEST

/* What one update of so many batches that each one's part of the gradients is small makes of a matrix. */
static float *matrix_after(const tiny_options *o, bool trained)
{
    tiny_run run;
    mm_view view;
    tiny_start(&run, o);
    if (trained) {
        ck_ok(mm_trainer_run(run.trainer));
        ck_assert_int_eq(progress_of(&run).updates, 1);
    }
    ck_ok(mm_model_find(run.model, "model.layers.0.self_attn.q_proj.weight", &view));
    float *copy = malloc(32 * 32 * sizeof *copy);
    ck_assert_ptr_nonnull(copy);
    memcpy(copy, view.data, 32 * 32 * sizeof *copy);
    tiny_end(&run);
    return copy;
}

START_TEST(without_a_scale_float16_loses_small_gradients)
{
    tiny_options o = long_run();
    o.trainer.epochs = 1;
    o.trainer.accumulation_steps = 1 << 20; /* the epoch's end makes the update */
    o.trainer.weight_decay = 0;
    o.trainer.eps = 1e-30; /* the gradients' size is of no matter to the update */
    float *before = matrix_after(&o, false), *exact = matrix_after(&o, true);
    o.trainer.compute = MM_F16;
    o.trainer.loss_scale = 0x1p28;
    float *scaled = matrix_after(&o, true);
    o.trainer.loss_scale = 1;
    o.trainer.loss_scale_interval = -1;
    float *lost = matrix_after(&o, true);
    ck_assert_mem_eq(lost, before, 32 * 32 * sizeof *lost);
    double moved = relative_error(exact, before, 32 * 32), off = relative_error(scaled, exact, 32 * 32);
    ck_assert_msg(moved > 0 && off < 0.2 * moved, "float32 moves it by %g, float16 is off by %g", moved, off);
    free(before);
    free(exact);
    free(scaled);
    free(lost);
}
END_TEST

static int32_t stop_at_5(void *user, const mm_train_progress *p)
{
    (void)user;
    return p->step == 5;
}

START_TEST(a_run_goes_on_to_the_same_bits)
{
    char output[600];
    snprintf(output, sizeof output, "%s/run", directory);
    tiny_options o = tiny_options_of((tiny_kind)(_i / TYPES), directory);
    o.trainer.compute = types[_i % TYPES];
    o.dropout = 0.1;
    tiny_run whole, first, second;
    tiny_start(&whole, &o);
    ck_ok(mm_trainer_run(whole.trainer));
    o.trainer.output = output;
    o.trainer.on_step = stop_at_5;
    tiny_start(&first, &o);
    ck_ok(mm_trainer_run(first.trainer));
    ck_assert_int_eq(tiny_steps(&first), 5);
    tiny_end(&first);
    o.trainer.on_step = NULL;
    o.trainer.threads = 3;
    tiny_start(&second, &o);
    ck_ok(mm_trainer_resume(second.trainer, output));
    ck_ok(mm_trainer_run(second.trainer));
    tiny_check_same(&second, &whole);
    tiny_end(&second);
    tiny_end(&whole);
}
END_TEST

START_TEST(a_run_does_not_go_on_in_another_precision)
{
    char output[600];
    snprintf(output, sizeof output, "%s/run", directory);
    tiny_options o = tiny_options_of(TINY_TEXT, directory);
    o.trainer.output = output;
    o.trainer.on_step = stop_at_5;
    o.trainer.compute = MM_BF16;
    tiny_run first, second;
    tiny_start(&first, &o);
    ck_ok(mm_trainer_run(first.trainer));
    tiny_end(&first);
    o.trainer.compute = MM_F32;
    tiny_start(&second, &o);
    size_t n, m;
    float *before = tiny_weights(second.model, &n);
    ck_status(mm_trainer_resume(second.trainer, output), MM_ERR_FORMAT);
    ck_error_mentions("its compute is \"bf16\", here it is \"f32\"");
    float *after = tiny_weights(second.model, &m);
    ck_assert_mem_eq(before, after, n * sizeof *before);
    ck_assert_int_eq(tiny_steps(&second), 0);
    free(before);
    free(after);
    tiny_end(&second);
}
END_TEST

/* Before the first update policy and reference are the same model: were they computed differently, they would differ.
 */
static int32_t first_loss(void *user, const mm_train_progress *p)
{
    if (p->step == 1)
        *(double *)user = p->loss;
    return 0;
}

START_TEST(a_reference_is_computed_as_the_policy_is)
{
    tiny_options o = tiny_options_of(TINY_DPO, directory);
    double loss = 0;
    o.trainer.compute = types[_i];
    o.trainer.on_step = first_loss;
    o.trainer.user = &loss;
    o.trainer.log_interval = 1;
    mm_train_progress p = end_of(&o);
    ck_assert_double_eq_tol(loss, log(2), 1e-5);
    ck_assert(isfinite(p.loss) && p.skipped_steps == 0);
}
END_TEST

START_TEST(a_run_in_a_dtype_that_is_not_computed_in_is_refused)
{
    static const int32_t others[] = { MM_I32, MM_Q8_0, MM_Q4_0, 99, -1 };
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        tiny_run run;
        tiny_options o = tiny_options_of(TINY_TEXT, directory);
        o.trainer.compute = others[i];
        ck_status(tiny_try(&run, &o), MM_ERR_ARG);
        ck_error_mentions("compute");
        tiny_end(&run);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("train/precision");
    TCase *tc = tcase_create("precision");
    tcase_add_checked_fixture(tc, start, NULL);
    tcase_add_test(tc, fewer_bits_reach_the_loss_of_float32);
    tcase_add_test(tc, float16_begins_with_a_loss_scale_that_others_do_without);
    tcase_add_test(tc, a_scale_beyond_float16_is_halved_until_the_gradients_fit);
    tcase_add_test(tc, without_a_scale_float16_loses_small_gradients);
    tcase_add_loop_test(tc, a_run_goes_on_to_the_same_bits, 0, TINY_KINDS * TYPES);
    tcase_add_test(tc, a_run_does_not_go_on_in_another_precision);
    tcase_add_loop_test(tc, a_reference_is_computed_as_the_policy_is, 0, TYPES);
    tcase_add_test(tc, a_run_in_a_dtype_that_is_not_computed_in_is_refused);
    tcase_set_timeout(tc, 120);
    suite_add_tcase(suite, tc);
    return run_suite(suite);
}
