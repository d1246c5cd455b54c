#define _POSIX_C_SOURCE 200809L
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../data/texts.h"
#include "base/files.h"
#include "base/memory.h"
#include "tiny.h"
#include "train/trainer.h"

static char directory[512], output[600], others[512];

static void start(void)
{
    snprintf(directory, sizeof directory, "%s", scratch_directory());
    snprintf(output, sizeof output, "%s/run", directory);
    snprintf(others, sizeof others, "%s", put_rows(directory, "others.jsonl", 7, 12, 8));
}

static tiny_options defaults(void)
{
    tiny_options o = tiny_options_of(TINY_TEXT, directory);
    o.trainer.accumulation_steps = 1;
    o.validation = others;
    o.trainer.eval_interval = 4;
    return o;
}

static mm_train_progress progress_of(const tiny_run *run)
{
    mm_train_progress p = MM_TRAIN_PROGRESS_INIT;
    ck_ok(mm_trainer_progress(run->trainer, &p));
    return p;
}

static bool there(const char *name)
{
    char path[700];
    snprintf(path, sizeof path, "%s/%s", output, name);
    return mmi_file_exists(path);
}

/* The line that `latest` or `best` holds. */
static const char *named_by(const char *name)
{
    static char line[64];
    char path[700], *text = NULL;
    size_t size = 0;
    snprintf(path, sizeof path, "%s/%s", output, name);
    ck_ok(mmi_read_file(path, &text, &size));
    snprintf(line, sizeof line, "%.*s", (int)strcspn(text, "\n"), text);
    mmi_free(text);
    return line;
}

/* --- Validation --- */

/* The mean over the rows' counted targets, computed as a program would. */
static double loss_by_hand(tiny_run *run, int64_t batches)
{
    mm_context_options c = MM_CONTEXT_OPTIONS_INIT;
    mm_context *context = NULL;
    double sum = 0, count = 0;
    c.max_batch = 3, c.max_length = 24, c.threads = 1, c.outputs = MM_OUT_LOSS;
    ck_ok(mm_context_create(run->model, &c, &context));
    const mm_loader_position begin = MM_LOADER_POSITION_INIT;
    ck_ok(mm_loader_seek(run->validation, &begin));
    for (int64_t i = 0; i < batches; i++) {
        mm_batch b = MM_BATCH_INIT;
        mm_output out = MM_OUTPUT_INIT;
        ck_ok(mm_loader_next(run->validation, &b));
        if (b.batch == 0)
            break;
        b.mode = MM_EVAL;
        ck_ok(mm_forward(context, &b, &out));
        sum += out.loss_sum;
        count += (double)out.loss_count;
    }
    mm_context_free(context);
    return sum / count;
}

START_TEST(a_validation_is_the_mean_over_its_rows)
{
    for (int64_t batches = 0; batches < 3; batches++) {
        tiny_run run;
        tiny_options o = defaults();
        o.dropout = 0.3; /* which it knows nothing of */
        o.trainer.eval_batches = batches;
        tiny_start(&run, &o);
        ck_ok(mm_trainer_run(run.trainer));
        mm_train_progress p = progress_of(&run);
        ck_assert_int_eq(p.evaluations, 4);
        ck_assert_double_eq_tol(p.validation_loss, loss_by_hand(&run, batches ? batches : 100), 1e-6);
        tiny_end(&run);
    }
}
END_TEST

START_TEST(a_validation_changes_nothing_of_the_training)
{
    tiny_run with, without;
    tiny_options o = defaults();
    o.trainer.accumulation_steps = 3;
    o.dropout = 0.1;
    tiny_start(&with, &o);
    o.validation = NULL;
    o.trainer.eval_interval = 0;
    tiny_start(&without, &o);
    ck_ok(mm_trainer_run(with.trainer));
    ck_ok(mm_trainer_run(without.trainer));
    size_t n, m;
    float *a = tiny_weights(with.model, &n), *b = tiny_weights(without.model, &m);
    ck_assert_mem_eq(a, b, n * sizeof *a);
    ck_assert_int_eq(progress_of(&without).evaluations, 0);
    free(a);
    free(b);
    tiny_end(&with);
    tiny_end(&without);
}
END_TEST

START_TEST(without_an_interval_the_end_is_measured_alone)
{
    tiny_run run;
    tiny_options o = defaults();
    o.trainer.eval_interval = 0;
    tiny_start(&run, &o);
    ck_ok(mm_trainer_run(run.trainer));
    ck_assert_int_eq(progress_of(&run).evaluations, 1);
    ck_assert_int_eq(progress_of(&run).best_step, 16);
    ck_ok(mm_trainer_run(run.trainer)); /* at its end, it is not measured again */
    ck_assert_int_eq(progress_of(&run).evaluations, 1);
    tiny_end(&run);
}
END_TEST

static int32_t keep_last_word(void *user, const mm_train_progress *progress)
{
    *(mm_train_progress *)user = *progress;
    return 0;
}

/* Bad lines are only met when the last step has been told and saved. */
START_TEST(a_validation_at_an_end_of_bad_lines_is_told_and_saved)
{
    static const char bytes[] = "{\"text\": \"aa\"}\n{\"text\": \"bb\"}\nbroken\n";
    tiny_run run, again;
    mm_train_progress last = MM_TRAIN_PROGRESS_INIT;
    tiny_options o = defaults();
    o.path = put_file(directory, "bad.jsonl", bytes, sizeof bytes - 1);
    o.loader.shuffle = 0;
    o.loader.batch = 1;
    o.loader.skip_bad_lines = 1;
    o.trainer.epochs = 1;
    o.trainer.output = output;
    o.trainer.keep_best = 1;
    o.trainer.save_interval = 1;
    o.trainer.log_interval = 1;
    o.trainer.on_step = keep_last_word;
    o.trainer.user = &last;
    tiny_start(&run, &o);
    ck_ok(mm_trainer_run(run.trainer));
    ck_assert_int_eq(last.step, 2);
    ck_assert_int_eq(last.evaluated_step, 2);
    ck_assert_str_eq(named_by("best"), "step-2");
    tiny_start(&again, &o);
    ck_ok(mm_trainer_resume(again.trainer, output));
    ck_assert(progress_of(&again).validation_loss == last.validation_loss && last.validation_loss > 0);
    tiny_end(&again);
    tiny_end(&run);
}
END_TEST

/* At the end of a run, or where one is due. */
START_TEST(a_validation_that_fails_costs_no_checkpoint)
{
    tiny_run run, again;
    tiny_options o = defaults();
    static const char bad[] = "{\"text\": \"abc\"}\n{\"text\": 3}\n";
    o.validation = put_file(scratch_directory(), "bad.jsonl", bad, strlen(bad));
    o.trainer.output = output;
    o.trainer.save_interval = o.trainer.eval_interval = 4 * _i;
    tiny_start(&run, &o);
    ck_status(mm_trainer_run(run.trainer), MM_ERR_FORMAT);
    ck_error_mentions(_i > 0 ? "the validation at step 4: " : "the validation at step 16: ");
    ck_assert_int_eq(progress_of(&run).step, _i > 0 ? 4 : 16);
    tiny_start(&again, &o);
    ck_ok(mm_trainer_resume(again.trainer, output));
    tiny_check_same(&again, &run);
    tiny_end(&again);
    tiny_end(&run);
}
END_TEST

START_TEST(preferences_are_measured_by_their_accuracy)
{
    tiny_run run;
    tiny_options o = tiny_options_of(TINY_DPO, directory);
    o.validation = o.path;
    o.trainer.eval_interval = 10;
    tiny_start(&run, &o);
    ck_ok(mm_trainer_run(run.trainer));
    mm_train_progress p = progress_of(&run);
    ck_assert_int_eq(p.metric_count, 2);
    ck_assert_str_eq(p.validation_metrics[0].name, "accuracy");
    ck_assert_double_eq(p.validation_metrics[0].value, 1);
    ck_assert_double_gt(p.validation_metrics[1].value, 0);
    ck_assert_double_lt(p.validation_loss, log(2));
    tiny_end(&run);
}
END_TEST

START_TEST(the_best_checkpoint_is_named_and_stays)
{
    tiny_run run, again;
    tiny_options o = defaults();
    o.trainer.output = output;
    o.trainer.keep_best = 1;
    o.trainer.keep_last = 1;
    o.trainer.save_interval = 2;
    o.trainer.background_save = _i;
    o.trainer.min_delta = 0.05; /* soon, nothing is better by so much */
    o.trainer.learning_rate = 1e-3;
    tiny_start(&run, &o);
    ck_ok(mm_trainer_run(run.trainer));
    mm_train_progress p = progress_of(&run);
    ck_assert_int_gt(p.best_step, 0);
    ck_assert_int_lt(p.best_step, 16);
    char best[32];
    snprintf(best, sizeof best, "step-%d", (int)p.best_step);
    ck_assert_str_eq(named_by("best"), best);
    ck_assert_str_eq(named_by("latest"), "step-16");
    ck_assert(there(best) && there("step-16") && !there("step-14"));
    o.trainer.output = NULL;
    o.trainer.keep_best = 0;
    tiny_start(&again, &o);
    char path[700];
    snprintf(path, sizeof path, "%s/%s", output, best);
    ck_ok(mm_trainer_resume(again.trainer, path));
    ck_assert(progress_of(&again).validation_loss == p.best_loss);
    ck_assert(p.best_loss == progress_of(&again).best_loss);
    tiny_end(&run);
    tiny_end(&again);
}
END_TEST

/* One that begins anew in the same directory measures nothing, and has other weights at the same step. */
START_TEST(best_never_names_what_another_run_has_put_in_its_place)
{
    tiny_run run;
    tiny_options o = defaults();
    o.trainer.output = output;
    o.trainer.keep_best = 1;
    o.trainer.learning_rate = 0; /* the first is the best */
    tiny_start(&run, &o);
    ck_ok(mm_trainer_run(run.trainer));
    char best[32], path[700];
    const int64_t step = progress_of(&run).best_step;
    ck_assert_int_gt(step, 1);
    snprintf(best, sizeof best, "step-%d", (int)step);
    ck_assert_str_eq(named_by("best"), best);
    snprintf(path, sizeof path, "%s/%s", output, best);
    ck_ok(mm_trainer_resume(run.trainer, path));
    ck_ok(mm_trainer_save(run.trainer));
    ck_assert_str_eq(named_by("best"), best); /* the same one again */
    tiny_end(&run);
    o.trainer.keep_best = 0;
    o.validation = NULL;
    o.trainer.eval_interval = 0;
    o.trainer.learning_rate = 1e-3;
    o.trainer.save_interval = step - 1;
    o.trainer.max_steps = step - 1;
    tiny_start(&run, &o);
    ck_ok(mm_trainer_run(run.trainer));
    ck_assert_str_eq(named_by("best"), best); /* the earlier run's is still there */
    ck_assert(there(best));
    tiny_end(&run);
    o.trainer.max_steps = step;
    tiny_start(&run, &o);
    ck_ok(mm_trainer_run(run.trainer));
    ck_assert(there(best) && !there("best"));
    tiny_end(&run);
}
END_TEST

START_TEST(a_run_that_gets_no_better_ends_early)
{
    tiny_run run, again;
    tiny_options o = defaults();
    o.trainer.learning_rate = 0;
    o.trainer.patience = 2;
    o.trainer.output = output;
    tiny_start(&run, &o);
    ck_ok(mm_trainer_run(run.trainer));
    ck_assert_int_eq(tiny_steps(&run), 12); /* measured at 4, 8 and 12 */
    ck_assert_int_eq(progress_of(&run).best_step, 4);
    tiny_start(&again, &o);
    ck_ok(mm_trainer_resume(again.trainer, output));
    ck_ok(mm_trainer_run(again.trainer)); /* it stays ended */
    tiny_check_same(&again, &run);
    tiny_end(&run);
    tiny_end(&again);
}
END_TEST

/* --- Bad steps --- */

/* What is done to the trainer at some steps. */
typedef struct saboteur {
    mm_trainer *trainer;
    int64_t from, to; /* steps after which the next one is spoilt */
    bool weights;     /* spoil what is fed, not the gradients */
    float value;
    float kept[32], others[32]; /* weights at step `from`, of those that are spoilt and of those that aren't */
    bool moved;                 /* the others are not what they were, while these are spoilt */
    int64_t save_at;
    double loss; /* at step `from` */
} saboteur;

static void watch_others(saboteur *s, int64_t step)
{
    mm_view view;
    ck_ok(mm_model_tensor(s->trainer->model, 2, &view));
    if (step == s->from)
        memcpy(s->others, view.data, sizeof s->others);
    else if (step > s->from && step <= s->to)
        s->moved = s->moved || memcmp(s->others, view.data, sizeof s->others) != 0;
}

static int32_t sabotage(void *user, const mm_train_progress *p)
{
    saboteur *s = user;
    mm_view view;
    if (!s->weights) {
        if (p->step >= s->from && p->step < s->to) {
            ck_ok(mm_grad(s->trainer->context, 2, &view));
            ((float *)view.data)[1] = s->value;
        }
        return 0;
    }
    watch_others(s, p->step);
    s->loss = p->step == s->from ? p->loss : s->loss;
    ck_ok(mm_model_write(s->trainer->model, mm_model_tensor_count(s->trainer->model) - 1, &view));
    float *w = view.data; /* the last norm: what the head reads */
    for (int i = 0; i < 32; i++) {
        if (p->step == s->from)
            s->kept[i] = w[i];
        if (p->step >= s->from && p->step < s->to)
            w[i] = s->value * (float)(i % 2 ? 1 : -1);
        else if (p->step == s->to)
            w[i] = s->kept[i];
    }
    mm_model_written(s->trainer->model);
    if (s->save_at > 0 && p->step == s->save_at)
        ck_ok(mm_trainer_save(s->trainer));
    return 0;
}

static mm_status run_sabotaged(tiny_run *run, tiny_options o, saboteur *s)
{
    o.trainer.on_step = sabotage;
    o.trainer.user = s;
    tiny_start(run, &o);
    s->trainer = run->trainer;
    return mm_trainer_run(run->trainer);
}

START_TEST(a_step_whose_gradients_are_not_finite_is_passed_over)
{
    tiny_run run;
    tiny_options o = defaults();
    saboteur s = { .from = 3, .to = 5, .value = NAN };
    o.trainer.max_skips = 2;
    ck_ok(run_sabotaged(&run, o, &s));
    mm_train_progress p = progress_of(&run);
    ck_assert_int_eq(p.step, 16);
    ck_assert_int_eq(p.skipped_steps, 2);
    ck_assert_int_eq(p.updates, 14);
    tiny_end(&run);
    s = (saboteur){ .from = 3, .to = 6, .value = NAN };
    ck_status(run_sabotaged(&run, o, &s), MM_ERR_NUMERIC);
    ck_error_mentions("step 6: the norm of the gradients is nan");
    tiny_end(&run);
}
END_TEST

START_TEST(a_step_whose_loss_is_not_finite_is_passed_over)
{
    tiny_run run;
    tiny_options o = defaults();
    saboteur s = { .from = 3, .to = 5, .weights = true, .value = NAN };
    o.trainer.max_skips = 2;
    ck_ok(run_sabotaged(&run, o, &s));
    mm_train_progress p = progress_of(&run);
    ck_assert_int_eq(p.step, 16);
    ck_assert_int_eq(p.skipped_steps, 2);
    ck_assert_int_eq(p.updates, 14);
    ck_assert(isfinite(p.loss));
    tiny_end(&run);
    s.to = 6;
    ck_status(run_sabotaged(&run, o, &s), MM_ERR_NUMERIC);
    ck_error_mentions("step 6: the loss is nan");
    ck_assert_int_eq(progress_of(&run).updates, 3);
    tiny_end(&run);
}
END_TEST

/* Nothing that counts is a number: that is no better than any other loss, and no lack of targets. Nor does a resumed run
 * take it for one. */
START_TEST(a_validation_of_a_student_that_is_no_number_is_infinite)
{
    tiny_run run, again;
    tiny_options o = tiny_options_of((tiny_kind)_i, directory);
    saboteur s = { .from = 3, .to = 5, .weights = true, .value = NAN };
    o.validation = o.path;
    o.trainer.eval_interval = 4;
    o.trainer.max_steps = 4;
    o.trainer.max_skips = 1;
    o.trainer.output = output;
    ck_ok(run_sabotaged(&run, o, &s));
    tiny_start(&again, &o);
    ck_ok(mm_trainer_resume(again.trainer, output));
    mm_train_progress p = progress_of(&run), q = progress_of(&again);
    ck_assert_int_eq(p.evaluations, 1);
    ck_assert(p.validation_loss == INFINITY && q.validation_loss == INFINITY);
    ck_assert_int_eq(p.best_step, 0);
    for (int32_t i = 0; i < p.metric_count; i++) {
        const mm_train_metric readings[] = { p.metrics[i], p.validation_metrics[i], q.metrics[i],
                                             q.validation_metrics[i] };
        for (int k = 0; k < 4; k++)
            ck_assert_msg(isnan(readings[k].value), "reading %d of %s is %g", k, readings[k].name, readings[k].value);
    }
    tiny_end(&again);
    tiny_end(&run);
}
END_TEST

/* An update in whose steps there was nothing to learn is none, whatever momentum and weight decay would make of it. */
START_TEST(where_every_step_is_passed_over_no_weight_moves)
{
    tiny_run run;
    tiny_options o = defaults();
    saboteur s = { .from = 6, .to = 12, .weights = true, .value = NAN };
    o.trainer.accumulation_steps = _i;
    o.trainer.max_skips = 6;
    o.trainer.weight_decay = 0.1;
    ck_ok(run_sabotaged(&run, o, &s));
    ck_assert(!s.moved);
    ck_assert_int_eq(progress_of(&run).updates, 1 + 9 / _i);
    tiny_end(&run);
    o.trainer.max_skips = 5; /* updates between them or not */
    ck_status(run_sabotaged(&run, o, &s), MM_ERR_NUMERIC);
    ck_error_mentions("step 12: the loss is nan");
    ck_assert(!s.moved);
    tiny_end(&run);
}
END_TEST

/* Every second one is odd: a good one stands between them, so there are no two in a row. */
static const char *put_odd_rows(void)
{
    static char text[2048];
    text[0] = '\0';
    for (int i = 0; i < 40; i++)
        sprintf(text + strlen(text), "{\"text\": \"%s\"}\n", i < 32 || i % 2 == 1 ? "aaaaaaaaaaaaaaa" : "QZ#9!x7@Kp%Jw2^");
    return put_file(scratch_directory(), "odd.jsonl", text, strlen(text));
}

START_TEST(bad_steps_are_in_a_row_where_no_good_one_is_between_them)
{
    tiny_run run;
    tiny_options o = tiny_defaults(put_odd_rows());
    o.loader.batch = 1;
    o.loader.shuffle = 0;
    o.trainer.epochs = 1;
    o.trainer.accumulation_steps = 4;
    o.trainer.learning_rate = 1e-2;
    o.trainer.spike_factor = 1.5;
    o.trainer.max_skips = 1;
    tiny_start(&run, &o);
    ck_ok(mm_trainer_run(run.trainer));
    ck_assert_int_eq(progress_of(&run).skipped_steps, 4);
    ck_assert_int_eq(progress_of(&run).updates, 10);
    tiny_end(&run);
}
END_TEST

/* With good losses between them, which are no updates. */
START_TEST(bad_norms_are_in_a_row_where_no_good_update_is_between_them)
{
    tiny_run run;
    tiny_options o = defaults();
    saboteur s = { .from = 2, .to = 12, .value = NAN };
    o.trainer.accumulation_steps = 4;
    o.trainer.max_skips = 3;
    ck_ok(run_sabotaged(&run, o, &s));
    ck_assert_int_eq(progress_of(&run).skipped_steps, 3);
    tiny_end(&run);
    o.trainer.max_skips = 2;
    ck_status(run_sabotaged(&run, o, &s), MM_ERR_NUMERIC);
    ck_error_mentions("step 12: the norm of the gradients is nan");
    tiny_end(&run);
}
END_TEST

/* Saved between two steps that are passed over, so that an update has nothing to learn from. */
START_TEST(a_checkpoint_knows_that_nothing_was_learnt)
{
    tiny_run whole, again;
    tiny_options o = defaults();
    saboteur s = { .from = 4, .to = 6, .weights = true, .value = NAN, .save_at = _i };
    o.trainer.accumulation_steps = 2;
    o.trainer.max_skips = 2;
    o.trainer.output = output;
    o.trainer.keep_last = 0;
    ck_ok(run_sabotaged(&whole, o, &s));
    s.save_at = 0;
    o.trainer.on_step = sabotage;
    o.trainer.user = &s;
    tiny_start(&again, &o);
    s.trainer = again.trainer;
    char path[700];
    snprintf(path, sizeof path, "%s/step-%d", output, _i);
    ck_ok(mm_trainer_resume(again.trainer, path));
    ck_ok(mm_trainer_run(again.trainer));
    tiny_check_same(&again, &whole);
    ck_assert(!s.moved);
    tiny_end(&whole);
    tiny_end(&again);
}
END_TEST

/* Back there, of what came after it nothing is left: neither what was passed over nor what was seen. */
START_TEST(a_checkpoint_between_two_updates_knows_how_the_last_one_left_the_run)
{
    tiny_run run, again, clean;
    tiny_options o = defaults();
    saboteur s = { .from = 3, .to = 5, .weights = true, .value = NAN, .save_at = 5 };
    mm_view view;
    o.trainer.accumulation_steps = 3;
    o.trainer.max_skips = 2;
    o.trainer.output = output;
    o.trainer.keep_last = 0;
    ck_ok(run_sabotaged(&run, o, &s));
    tiny_end(&run);
    tiny_start(&again, &o);
    char path[700];
    snprintf(path, sizeof path, "%s/step-5", output);
    ck_ok(mm_trainer_resume(again.trainer, path));
    ck_assert_int_eq(progress_of(&again).skipped_steps, 2);
    ck_ok(mm_grad(again.trainer->context, 2, &view));
    ((float *)view.data)[1] = NAN;
    ck_status(mm_trainer_run(again.trainer), MM_ERR_NUMERIC);
    mm_train_progress p = progress_of(&again);
    ck_assert_int_eq(p.step, 3);
    ck_assert_int_eq(p.skipped_steps, 0);
    ck_assert_double_eq(p.loss, s.loss);
    o.trainer.output = NULL;
    tiny_start(&clean, &o);
    ck_ok(mm_trainer_run(again.trainer));
    ck_ok(mm_trainer_run(clean.trainer));
    tiny_check_same(&again, &clean);
    tiny_end(&again);
    tiny_end(&clean);
}
END_TEST

START_TEST(a_spike_of_the_loss_is_passed_over_and_a_rule_says_what_is_one)
{
    tiny_run run, calm;
    tiny_options o = defaults();
    saboteur s = { .from = 24, .to = 25, .weights = true, .value = 12 };
    o.trainer.epochs = 6;
    o.trainer.max_skips = 2;
    o.trainer.learning_rate = 1e-3;
    ck_ok(run_sabotaged(&run, o, &s)); /* finite: learnt from as it is */
    ck_assert_int_eq(progress_of(&run).skipped_steps, 0);
    tiny_end(&run);
    o.trainer.spike_factor = 8;
    ck_ok(run_sabotaged(&run, o, &s));
    ck_assert_int_eq(progress_of(&run).skipped_steps, 1);
    ck_assert_int_eq(progress_of(&run).updates, 47);
    tiny_end(&run);
    s.from = 1000; /* never */
    ck_ok(run_sabotaged(&calm, o, &s));
    ck_assert_int_eq(progress_of(&calm).skipped_steps, 0);
    tiny_end(&calm);
}
END_TEST

/* --- The scale of the loss --- */

START_TEST(a_scale_that_is_a_power_of_two_changes_no_bit)
{
    tiny_run scaled, plain;
    tiny_options o = defaults();
    o.vocab_size = _i == 1 ? 2100 : 0; /* whose gradients are divided in two pieces, of 2048 rows and the rest */
    tiny_start(&plain, &o);
    o.trainer.loss_scale = 4096;
    o.trainer.loss_scale_interval = 3;
    tiny_start(&scaled, &o);
    ck_ok(mm_trainer_run(plain.trainer));
    ck_ok(mm_trainer_run(scaled.trainer));
    size_t n, m;
    float *a = tiny_weights(scaled.model, &n), *b = tiny_weights(plain.model, &m);
    ck_assert_mem_eq(a, b, n * sizeof *a);
    ck_assert_double_eq(progress_of(&scaled).loss_scale, 4096 * 32); /* 16 updates: it doubled five times */
    ck_assert_double_eq(progress_of(&plain).loss_scale, 1);
    free(a);
    free(b);
    tiny_end(&scaled);
    tiny_end(&plain);
}
END_TEST

/* Gradients of a loss so large overflow. */
static int32_t overflow(void *user, const mm_train_progress *p)
{
    mm_trainer *t = *(mm_trainer **)user;
    mm_view view;
    if (p->loss_scale > 65536) {
        ck_ok(mm_grad(t->context, 2, &view));
        ((float *)view.data)[1] = INFINITY;
    }
    return 0;
}

START_TEST(an_overflow_halves_the_scale_and_costs_its_update_only)
{
    tiny_run run;
    tiny_options o = defaults();
    mm_trainer *trainer = NULL;
    o.trainer.loss_scale = 65536 * 8;
    o.trainer.loss_scale_interval = -1;
    o.trainer.on_step = overflow;
    o.trainer.user = &trainer;
    tiny_start(&run, &o);
    trainer = run.trainer;
    ck_ok(mm_trainer_run(run.trainer)); /* though max_skips is 0 */
    mm_train_progress p = progress_of(&run);
    ck_assert_double_eq(p.loss_scale, 65536);
    ck_assert_int_eq(p.skipped_steps, 3);
    ck_assert_int_eq(p.updates, 13);
    tiny_end(&run);
}
END_TEST

START_TEST(what_makes_no_sense_together_is_refused)
{
    static const char *const stories[15] = {
        "eval_interval is", "eval_batches", "patience is", "min_delta",  "max_skips",
        "spike_factor",     "decay_part",   "loss_scale",  "loss_scale", "loss_scale_interval",
        "eval_interval needs a validation", "keep_best needs a validation", "patience needs an eval_interval",
        "keep_best is 7, allowed are 0 and 1", "background_save is -1, allowed are 0 and 1"
    };
    tiny_run run;
    tiny_options o = defaults(), wrong[15];
    for (int i = 0; i < 15; i++)
        wrong[i] = o;
    wrong[0].trainer.eval_interval = -1;
    wrong[1].trainer.eval_batches = -1;
    wrong[2].trainer.patience = -1;
    wrong[3].trainer.min_delta = NAN;
    wrong[4].trainer.max_skips = -1;
    wrong[5].trainer.spike_factor = -1;
    wrong[6].trainer.decay_part = 1.5;
    wrong[7].trainer.loss_scale = 0.5;
    wrong[8].trainer.loss_scale = 0x1p127;
    wrong[9].trainer.loss_scale_interval = -2;
    wrong[10].validation = NULL; /* with an eval_interval */
    wrong[11].validation = NULL;
    wrong[11].trainer.eval_interval = 0;
    wrong[11].trainer.keep_best = 1;
    wrong[12].trainer.patience = 3;
    wrong[12].trainer.eval_interval = 0;
    wrong[13].trainer.keep_best = 7;
    wrong[14].trainer.background_save = -1;
    for (int i = 0; i < 15; i++) {
        ck_status(tiny_try(&run, &wrong[i]), MM_ERR_ARG);
        ck_error_mentions(stories[i]);
        tiny_end(&run);
    }
    tiny_start(&run, &o);
    mm_trainer_options same = MM_TRAINER_OPTIONS_INIT;
    mm_trainer *trainer = NULL;
    same.validation = run.loader;
    ck_status(mm_trainer_create(run.model, run.loader, NULL, &same, &trainer), MM_ERR_ARG);
    ck_error_mentions("a loader of its own");
    ck_assert_ptr_null(trainer);
    tiny_end(&run);
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("train/health");
    TCase *tc = tcase_create("health");
    tcase_add_checked_fixture(tc, start, NULL);
    tcase_add_test(tc, a_validation_is_the_mean_over_its_rows);
    tcase_add_test(tc, a_validation_changes_nothing_of_the_training);
    tcase_add_test(tc, without_an_interval_the_end_is_measured_alone);
    tcase_add_test(tc, a_validation_at_an_end_of_bad_lines_is_told_and_saved);
    tcase_add_loop_test(tc, a_validation_that_fails_costs_no_checkpoint, 0, 2);
    tcase_add_test(tc, preferences_are_measured_by_their_accuracy);
    tcase_add_loop_test(tc, the_best_checkpoint_is_named_and_stays, 0, 2);
    tcase_add_test(tc, best_never_names_what_another_run_has_put_in_its_place);
    tcase_add_test(tc, a_run_that_gets_no_better_ends_early);
    tcase_add_test(tc, a_step_whose_gradients_are_not_finite_is_passed_over);
    tcase_add_test(tc, a_step_whose_loss_is_not_finite_is_passed_over);
    tcase_add_loop_test(tc, a_validation_of_a_student_that_is_no_number_is_infinite, TINY_DPO, TINY_CACHED + 1);
    tcase_add_loop_test(tc, where_every_step_is_passed_over_no_weight_moves, 1, 4);
    tcase_add_test(tc, bad_steps_are_in_a_row_where_no_good_one_is_between_them);
    tcase_add_test(tc, bad_norms_are_in_a_row_where_no_good_update_is_between_them);
    tcase_add_loop_test(tc, a_checkpoint_knows_that_nothing_was_learnt, 4, 7);
    tcase_add_test(tc, a_checkpoint_between_two_updates_knows_how_the_last_one_left_the_run);
    tcase_add_test(tc, a_spike_of_the_loss_is_passed_over_and_a_rule_says_what_is_one);
    tcase_add_loop_test(tc, a_scale_that_is_a_power_of_two_changes_no_bit, 0, 2);
    tcase_add_test(tc, an_overflow_halves_the_scale_and_costs_its_update_only);
    tcase_add_test(tc, what_makes_no_sense_together_is_refused);
    tcase_set_timeout(tc, 120);
    suite_add_tcase(suite, tc);
    return suite;
}

int main(void)
{
    return run_suite(make_suite());
}
