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

static char rows[512];

static void start(void)
{
    snprintf(rows, sizeof rows, "%s", put_rows(scratch_directory(), "rows.jsonl", 23, 12, 1));
}

/* Stops a run once so many micro-steps are done; 0: never. Keeps what it was told. */
typedef struct watcher {
    int64_t stop_at;
    int calls;
    mm_train_progress last;
    double losses[64];
} watcher;

static int32_t watch(void *user, const mm_train_progress *progress)
{
    watcher *w = user;
    if (w->calls < 64)
        w->losses[w->calls] = progress->loss;
    w->calls++;
    w->last = *progress;
    return progress->step == w->stop_at;
}

START_TEST(a_run_goes_through_all_epochs_and_the_loss_falls)
{
    tiny_run run;
    watcher w = { 0 };
    tiny_options o = tiny_defaults(rows);
    o.trainer.on_step = watch;
    o.trainer.user = &w;
    o.trainer.epochs = 4;
    tiny_start(&run, &o);
    ck_ok(mm_trainer_run(run.trainer));
    ck_assert_int_eq(w.calls, 32);
    ck_assert_int_eq(w.last.step, 32);
    ck_assert_int_eq(w.last.total_steps, 32);
    ck_assert_int_eq(w.last.epoch, 3);
    ck_assert_int_eq(w.last.epoch_step, 8);
    ck_assert_int_eq(w.last.epoch_steps, 8);
    ck_assert_int_eq(w.last.updates, 12); /* at steps 3, 6, 8 of each epoch */
    ck_assert_int_eq(w.last.tokens, 4 * 23 * 23);
    ck_assert(w.last.tokens_per_s > 0);
    ck_assert(w.last.seconds_left == 0);
    ck_assert(w.last.grad_norm > 0);
    ck_assert_double_eq_tol(w.losses[0], log(260), 0.3);
    ck_assert_double_lt(w.losses[31], 0.9 * w.losses[0]);
    size_t n, m;
    float *a = tiny_weights(run.model, &n);
    ck_ok(mm_trainer_run(run.trainer)); /* there is nothing left to do */
    float *b = tiny_weights(run.model, &m);
    ck_assert_mem_eq(a, b, n * sizeof *a);
    ck_assert_int_eq(tiny_steps(&run), 32);
    free(a);
    free(b);
    tiny_end(&run);
}
END_TEST

/* Nor where somebody moves it to before the run. */
START_TEST(a_run_begins_at_the_beginning_wherever_its_loader_stood)
{
    tiny_run run, again;
    mm_batch batch = MM_BATCH_INIT;
    tiny_options o = tiny_defaults(rows);
    o.loader.form = _i / 2 ? MM_ROWS_PACK : MM_ROWS_PAD;
    o.loader.workers = _i % 2 * 2;
    tiny_start(&run, &o);
    ck_ok(mm_trainer_run(run.trainer)); /* which leaves the loader at the end */
    mm_train_progress p = MM_TRAIN_PROGRESS_INIT;
    for (int peeks = 0; peeks < 2; peeks++) {
        tiny_start(&again, &o);
        mm_trainer_free(again.trainer);
        for (int i = 0; i < 3; i++)
            ck_ok(mm_loader_next(again.loader, &batch));
        ck_ok(mm_trainer_create(again.model, peeks ? again.loader : run.loader, NULL, &o.trainer, &again.trainer));
        for (int i = 0; i < peeks; i++)
            ck_ok(mm_loader_next(again.loader, &batch));
        ck_ok(mm_trainer_run(again.trainer));
        ck_ok(mm_trainer_progress(again.trainer, &p));
        ck_assert_int_eq(p.step, p.total_steps);
        tiny_check_same(&again, &run);
        tiny_end(&again);
    }
    tiny_end(&run);
}
END_TEST

START_TEST(the_rate_follows_the_schedule_from_the_step_that_upstream_counts_from)
{
    static const int32_t rules[] = { MM_SCHEDULE_CONSTANT, MM_SCHEDULE_MINIMIND2, MM_SCHEDULE_MINIMIND3,
                                     MM_SCHEDULE_COSINE,   MM_SCHEDULE_LINEAR,    MM_SCHEDULE_WSD };
    for (int i = 0; i < 6; i++) {
        tiny_run run;
        watcher w = { .stop_at = 1 };
        tiny_options o = tiny_defaults(rows);
        o.trainer.schedule = rules[i];
        o.trainer.warmup_steps = 4;
        o.trainer.on_step = watch;
        o.trainer.user = &w;
        tiny_start(&run, &o);
        double expected;
        ck_ok(mm_trainer_run(run.trainer));
        ck_ok(mm_schedule_lr(rules[i], rules[i] == MM_SCHEDULE_MINIMIND3, 16, 4, 3e-3, &expected));
        ck_assert(w.last.learning_rate == expected);
        tiny_end(&run);
    }
}
END_TEST

static int32_t meddle(void *user, const mm_train_progress *progress)
{
    mm_trainer *trainer = *(mm_trainer **)user;
    mm_train_progress now = MM_TRAIN_PROGRESS_INIT;
    ck_status(mm_trainer_run(trainer), MM_ERR_STATE);
    ck_error_mentions("mm_trainer_run: the trainer is running");
    ck_status(mm_trainer_resume(trainer, scratch_directory()), MM_ERR_STATE);
    ck_error_mentions("mm_trainer_resume: the trainer is running");
    ck_ok(mm_trainer_progress(trainer, &now));
    ck_assert_int_eq(now.step, progress->step);
    ck_status(mm_trainer_save(trainer), MM_ERR_STATE);
    ck_error_mentions("no output directory"); /* within the run it is looked at */
    return 0;
}

START_TEST(a_run_is_moved_by_one_call_at_a_time)
{
    tiny_run run, quiet;
    tiny_options o = tiny_defaults(rows);
    tiny_start(&quiet, &o);
    ck_ok(mm_trainer_run(quiet.trainer));
    o.trainer.on_step = meddle;
    o.trainer.user = &run.trainer;
    tiny_start(&run, &o);
    ck_ok(mm_trainer_run(run.trainer));
    tiny_check_same(&run, &quiet);
    ck_status(mm_trainer_resume(run.trainer, "/no/such/place"), MM_ERR_IO);
    ck_ok(mm_trainer_run(run.trainer)); /* once it is over all may be called again */
    tiny_end(&run);
    tiny_end(&quiet);
}
END_TEST

START_TEST(a_run_that_stops_anywhere_goes_on_to_the_same_bits)
{
    for (int32_t form = MM_ROWS_PAD; form <= MM_ROWS_PACK; form++) {
        tiny_run whole;
        tiny_options o = tiny_defaults(rows);
        o.loader.form = form;
        o.dropout = form == MM_ROWS_PACK ? 0.1 : 0; /* its masks must come again, too */
        tiny_start(&whole, &o);
        ck_ok(mm_trainer_run(whole.trainer));
        int64_t steps = tiny_steps(&whole);
        ck_assert_int_gt(steps, 10);
        /* between them the first and the last form have all that a place in the data may be */
        for (int64_t stop = 0; stop < steps; stop += form == MM_ROWS_PAD3 ? 5 : 1) {
            tiny_run first, second;
            watcher w = { .stop_at = stop };
            tiny_options part = o;
            char output[512];
            snprintf(output, sizeof output, "%s", scratch_directory());
            part.trainer.output = output;
            part.trainer.on_step = watch;
            part.trainer.user = &w;
            tiny_start(&first, &part);
            if (stop == 0)
                mm_trainer_stop(first.trainer); /* before the first step */
            ck_ok(mm_trainer_run(first.trainer));
            ck_assert_int_eq(tiny_steps(&first), stop);
            /* with other weights to begin with, a data set moved elsewhere, more threads */
            part.weights = 99;
            part.path = put_rows(scratch_directory(), "moved.jsonl", 23, 12, 1);
            part.trainer.threads = stop % 2 == 0 ? 1 : 3;
            w.stop_at = -1;
            part.trainer.output = NULL; /* saving again would only take time */
            tiny_start(&second, &part);
            ck_ok(mm_trainer_resume(second.trainer, output));
            tiny_check_same(&second, &first);
            ck_ok(mm_trainer_run(second.trainer));
            tiny_check_same(&second, &whole);
            if (stop % 4 == 1) { /* and a stopped trainer itself just goes on */
                ck_ok(mm_trainer_run(first.trainer));
                tiny_check_same(&first, &whole);
            }
            tiny_end(&first);
            tiny_end(&second);
        }
        tiny_end(&whole);
    }
}
END_TEST

START_TEST(any_number_of_threads_gives_the_same_bits)
{
    tiny_run one, three;
    tiny_options o = tiny_defaults(rows);
    o.loader.form = MM_ROWS_PACK;
    tiny_start(&one, &o);
    o.trainer.threads = 3;
    tiny_start(&three, &o);
    ck_ok(mm_trainer_run(one.trainer));
    ck_ok(mm_trainer_run(three.trainer));
    tiny_check_same(&three, &one);
    tiny_end(&one);
    tiny_end(&three);
}
END_TEST

START_TEST(accumulated_batches_equal_a_larger_one)
{
    /* rows of one length: the mean of means is then the mean */
    char bytes[2048];
    size_t size = 0;
    for (int i = 0; i < 24; i++)
        size += (size_t)snprintf(bytes + size, sizeof bytes - size, "{\"text\": \"%c%c text\"}\n", 'a' + i, 'z' - i);
    tiny_run large, small;
    tiny_options o = tiny_defaults(put_file(scratch_directory(), "even.jsonl", bytes, size));
    o.loader.shuffle = 0;
    o.loader.max_length = 8;
    o.loader.batch = 6;
    o.trainer.accumulation_steps = 1;
    o.trainer.schedule = MM_SCHEDULE_CONSTANT;
    tiny_start(&large, &o);
    o.loader.batch = 2;
    o.trainer.accumulation_steps = 3;
    tiny_start(&small, &o);
    ck_ok(mm_trainer_run(large.trainer));
    ck_ok(mm_trainer_run(small.trainer));
    ck_assert_int_eq(tiny_steps(&large), 8);
    ck_assert_int_eq(tiny_steps(&small), 24);
    size_t n, m;
    float *a = tiny_weights(large.model, &n), *b = tiny_weights(small.model, &m);
    mm_model *untrained = tiny_model(1);
    float *c = tiny_weights(untrained, &m);
    for (size_t i = 0; i < n; i++) {
        a[i] -= c[i];
        b[i] -= c[i];
    }
    /* Adam turns the rounding of a gradient near zero into a whole step, hence no tighter bound */
    ck_assert_double_lt(relative_error(b, a, n), 1e-2);
    free(a);
    free(b);
    free(c);
    mm_model_free(untrained);
    tiny_end(&large);
    tiny_end(&small);
}
END_TEST

START_TEST(max_steps_and_intervals_are_kept)
{
    tiny_run run;
    watcher w = { 0 };
    tiny_options o = tiny_defaults(rows);
    o.trainer.max_steps = 7;
    o.trainer.log_interval = 3;
    o.trainer.on_step = watch;
    o.trainer.user = &w;
    tiny_start(&run, &o);
    ck_ok(mm_trainer_run(run.trainer));
    ck_assert_int_eq(w.calls, 3); /* 3, 6 and the last */
    ck_assert_int_eq(w.last.step, 7);
    ck_assert_int_eq(w.last.total_steps, 7);
    ck_assert_int_eq(w.last.updates, 3); /* what was accumulated at the end is not lost */
    tiny_end(&run);
    o.loader.form = MM_ROWS_PACK;
    tiny_start(&run, &o);
    ck_ok(mm_trainer_run(run.trainer));
    ck_assert_int_eq(w.last.step, 7);
    ck_assert_int_eq(w.last.epoch_steps, 0); /* not counted: max_steps says how long it is */
    tiny_end(&run);
}
END_TEST

START_TEST(a_packed_epoch_is_counted_exactly)
{
    for (int32_t batch = 1; batch < 5; batch++) {
        tiny_run run;
        watcher w = { 0 };
        tiny_options o = tiny_defaults(rows);
        o.loader.form = MM_ROWS_PACK;
        o.loader.batch = batch;
        o.trainer.on_step = watch;
        o.trainer.user = &w;
        tiny_start(&run, &o);
        ck_ok(mm_trainer_run(run.trainer));
        ck_assert_int_eq(w.last.step, w.last.total_steps);
        ck_assert_int_eq(w.last.epoch_step, w.last.epoch_steps);
        tiny_end(&run);
    }
}
END_TEST

/* Half of the rows are short, half are long: what an epoch takes of them makes more steps or fewer. */
START_TEST(a_packed_run_takes_all_that_each_epoch_has_of_a_file)
{
    char bytes[4096];
    size_t size = 0;
    for (int i = 0; i < 20; i++)
        size += (size_t)sprintf(bytes + size, "{\"text\": \"%0*d\"}\n", i < 10 ? 2 : 200, i);
    for (int32_t shuffle = 0; shuffle < 2; shuffle++) {
        tiny_run run;
        watcher w = { 0 };
        tiny_options o = tiny_defaults(put_file(scratch_directory(), "uneven.jsonl", bytes, size));
        o.weight = 0.5;
        o.loader.form = MM_ROWS_PACK;
        o.loader.shuffle = shuffle;
        o.trainer.on_step = watch;
        o.trainer.user = &w;
        tiny_start(&run, &o);
        ck_ok(mm_trainer_run(run.trainer));
        ck_assert_int_eq(w.last.epoch, 1);
        ck_assert_int_eq(w.last.step, w.last.total_steps);
        mm_loader_position at = MM_LOADER_POSITION_INIT;
        ck_ok(mm_loader_tell(run.loader, &at));
        ck_assert_int_eq(at.row, 10);
        ck_assert_int_eq(at.offset, 0);
        if (!shuffle) {
            ck_assert_int_eq(w.last.epoch_steps, 0);      /* no one number */
            ck_assert_int_eq(w.last.total_steps, 1 + 29); /* 10 * 4 ids, then 10 * 202, by 24 * 3 */
        }
        tiny_end(&run);
    }
}
END_TEST

START_TEST(max_seconds_ends_a_run_after_its_step)
{
    tiny_run run;
    tiny_options o = tiny_defaults(rows);
    o.trainer.max_seconds = 1e-9;
    o.trainer.output = scratch_directory();
    tiny_start(&run, &o);
    ck_ok(mm_trainer_run(run.trainer));
    ck_assert_int_eq(tiny_steps(&run), 1);
    ck_ok(mm_trainer_run(run.trainer));
    ck_assert_int_eq(tiny_steps(&run), 2);
    tiny_end(&run);
}
END_TEST

/* --- Numbers that are not finite --- */

START_TEST(a_loss_that_is_not_finite_leaves_the_weights)
{
    tiny_run run;
    tiny_options o = tiny_defaults(rows);
    mm_view view;
    tiny_start(&run, &o);
    ck_ok(mm_model_write(run.model, 4, &view));
    ((float *)view.data)[0] = INFINITY;
    mm_model_written(run.model);
    size_t n, m;
    float *before = tiny_weights(run.model, &n);
    for (int i = 0; i < 2; i++) {
        ck_status(mm_trainer_run(run.trainer), MM_ERR_NUMERIC);
        ck_error_mentions("step 1: the loss");
        float *after = tiny_weights(run.model, &m);
        ck_assert_mem_eq(before, after, n * sizeof *before);
        ck_assert_int_eq(tiny_steps(&run), 0);
        free(after);
    }
    free(before);
    tiny_end(&run);
}
END_TEST

/* At step 5 of a group that began with 4, spoil the gradients. */
static int32_t spoil(void *user, const mm_train_progress *progress)
{
    mm_trainer **trainer = user;
    if (progress->step == 5 && *trainer) {
        mm_view view;
        ck_ok(mm_grad((*trainer)->context, 2, &view));
        ((float *)view.data)[1] = NAN;
        *trainer = NULL; /* once */
    }
    return 0;
}

START_TEST(gradients_that_are_not_finite_lead_back_to_the_last_update)
{
    tiny_run run, whole;
    mm_trainer *trainer = NULL;
    tiny_options o = tiny_defaults(rows);
    tiny_start(&whole, &o);
    ck_ok(mm_trainer_run(whole.trainer));
    o.trainer.on_step = spoil;
    o.trainer.user = &trainer;
    tiny_start(&run, &o);
    trainer = run.trainer;
    ck_status(mm_trainer_run(run.trainer), MM_ERR_NUMERIC);
    ck_error_mentions("step 6");
    ck_assert_int_eq(tiny_steps(&run), 3);
    ck_ok(mm_trainer_run(run.trainer)); /* the accident does not happen again */
    tiny_check_same(&run, &whole);
    tiny_end(&run);
    tiny_end(&whole);
}
END_TEST

/* --- Data that is not as it should be --- */

START_TEST(a_bad_line_stops_the_run_where_it_stands)
{
    static const char bytes[] = "{\"text\": \"aa\"}\n{\"text\": \"bb\"}\nbroken\n{\"text\": \"cc\"}\n";
    char path[512];
    snprintf(path, sizeof path, "%s", put_file(scratch_directory(), "bad.jsonl", bytes, sizeof bytes - 1));
    tiny_run run, skipping;
    tiny_options o = tiny_defaults(path);
    o.loader.shuffle = 0;
    o.loader.batch = 1;
    o.trainer.output = scratch_directory(); /* the last one that this test takes */
    tiny_start(&run, &o);
    ck_status(mm_trainer_run(run.trainer), MM_ERR_FORMAT);
    ck_error_mentions("bad.jsonl:3");
    ck_assert_int_eq(tiny_steps(&run), 2);
    ck_ok(mm_trainer_save(run.trainer));
    /* what was learnt is not lost: the run may go on with the option that passes over such lines */
    o.loader.skip_bad_lines = 1;
    tiny_start(&skipping, &o);
    ck_ok(mm_trainer_resume(skipping.trainer, o.trainer.output));
    ck_assert_int_eq(tiny_steps(&skipping), 2);
    ck_ok(mm_trainer_run(skipping.trainer));
    mm_train_progress p = MM_TRAIN_PROGRESS_INIT;
    ck_ok(mm_trainer_progress(skipping.trainer, &p));
    ck_assert_int_eq(p.step, 6);
    ck_assert_int_eq(p.epoch, 1);
    ck_assert_int_eq(p.epoch_step, 3);
    ck_assert_int_eq(p.skipped_lines, 2);
    ck_ok(mm_trainer_run(skipping.trainer)); /* shorter than was foreseen, but at its end */
    ck_assert_int_eq(tiny_steps(&skipping), 6);
    tiny_end(&skipping);
    tiny_end(&run);
}
END_TEST

START_TEST(a_bad_line_at_an_epochs_end_costs_no_update)
{
    static const char bytes[] = "{\"text\": \"aa\"}\n{\"text\": \"bb\"}\nbroken\n";
    tiny_run run;
    tiny_options o = tiny_defaults(put_file(scratch_directory(), "bad.jsonl", bytes, sizeof bytes - 1));
    o.loader.shuffle = 0;
    o.loader.batch = 1;
    o.loader.skip_bad_lines = 1;
    tiny_start(&run, &o);
    ck_ok(mm_trainer_run(run.trainer));
    mm_train_progress p = MM_TRAIN_PROGRESS_INIT;
    ck_ok(mm_trainer_progress(run.trainer, &p));
    ck_assert_int_eq(p.step, 4);
    ck_assert_int_eq(p.updates, 2);
    ck_assert_int_eq(p.epoch, 1);
    ck_assert_int_eq(p.epoch_step, 2);
    tiny_end(&run);
}
END_TEST

START_TEST(a_data_set_without_a_readable_row_ends_the_run)
{
    tiny_run run;
    tiny_options o = tiny_defaults(put_file(scratch_directory(), "bad.jsonl", "no\nnone\n", 8));
    o.loader.skip_bad_lines = 1;
    tiny_start(&run, &o);
    ck_status(mm_trainer_run(run.trainer), MM_ERR_FORMAT);
    ck_error_mentions("not one row");
    ck_assert_int_eq(tiny_steps(&run), 0);
    tiny_end(&run);
    o.loader.form = MM_ROWS_PACK;
    o.loader.skip_bad_lines = 0;
    ck_status(tiny_try(&run, &o), MM_ERR_FORMAT); /* counting packed rows meets it at once */
    ck_error_mentions("bad.jsonl:1");
    tiny_end(&run);
    o.loader.skip_bad_lines = 1;
    ck_status(tiny_try(&run, &o), MM_ERR_FORMAT);
    ck_error_mentions("bad.jsonl: not one row");
    tiny_end(&run);
}
END_TEST

START_TEST(bad_options_are_refused)
{
    static const char *const names[17] = {
        "learning_rate", "learning_rate", "max_grad_norm", "beta1",     "beta2",              "eps",
        "weight_decay",  "max_seconds",   "epochs",        "max_steps", "accumulation_steps", "warmup_steps",
        "save_interval", "log_interval",  "keep_last",     "schedule",  "abacus"
    };
    tiny_run run;
    tiny_options good = tiny_defaults(rows), wrong[17];
    for (int i = 0; i < 17; i++)
        wrong[i] = good;
    wrong[0].trainer.learning_rate = -1;
    wrong[1].trainer.learning_rate = NAN;
    wrong[2].trainer.max_grad_norm = -1;
    wrong[3].trainer.beta1 = 1;
    wrong[4].trainer.beta2 = -1;
    wrong[5].trainer.eps = 0;
    wrong[6].trainer.weight_decay = INFINITY;
    wrong[7].trainer.max_seconds = -1;
    wrong[8].trainer.epochs = 0;
    wrong[9].trainer.max_steps = -1;
    wrong[10].trainer.accumulation_steps = 0;
    wrong[11].trainer.warmup_steps = -1;
    wrong[12].trainer.save_interval = -1;
    wrong[13].trainer.log_interval = 0;
    wrong[14].trainer.keep_last = -1;
    wrong[15].trainer.schedule = 6;
    wrong[16].trainer.kernels = "abacus";
    for (int i = 0; i < 17; i++) {
        ck_status(tiny_try(&run, &wrong[i]), MM_ERR_ARG);
        ck_error_mentions(names[i]);
        ck_assert_ptr_null(run.trainer);
        tiny_end(&run);
    }
    wrong[0] = good;
    wrong[0].loader.max_length = 200; /* beyond max_position_embeddings */
    ck_status(tiny_try(&run, &wrong[0]), MM_ERR_ARG);
    ck_error_mentions("max_length");
    tiny_end(&run);
    wrong[0] = good;
    wrong[0].trainer.epochs = INT64_MAX;
    ck_status(tiny_try(&run, &wrong[0]), MM_ERR_ARG);
    ck_error_mentions("epochs");
    tiny_end(&run);

    tiny_start(&run, &good);
    mm_trainer *trainer = NULL;
    mm_train_progress p = MM_TRAIN_PROGRESS_INIT;
    ck_status(mm_trainer_create(NULL, run.loader, NULL, NULL, &trainer), MM_ERR_ARG);
    ck_status(mm_trainer_create(run.model, NULL, NULL, NULL, &trainer), MM_ERR_ARG);
    ck_status(mm_trainer_create(run.model, run.loader, NULL, NULL, NULL), MM_ERR_ARG);
    ck_status(mm_trainer_run(NULL), MM_ERR_ARG);
    ck_status(mm_trainer_save(NULL), MM_ERR_ARG);
    ck_status(mm_trainer_save(run.trainer), MM_ERR_STATE);
    ck_status(mm_trainer_resume(NULL, "x"), MM_ERR_ARG);
    ck_status(mm_trainer_resume(run.trainer, NULL), MM_ERR_ARG);
    ck_status(mm_trainer_progress(NULL, &p), MM_ERR_ARG);
    ck_status(mm_trainer_progress(run.trainer, NULL), MM_ERR_ARG);
    mm_trainer_stop(NULL);
    mm_trainer_free(NULL);
    ck_assert_ptr_null(trainer);
    tiny_end(&run);
}
END_TEST

START_TEST(a_tokenizer_with_more_ids_than_the_model_is_refused)
{
    tiny_run run;
    tiny_options o = tiny_defaults(rows);
    tiny_start(&run, &o);
    mm_config *config = tiny_config();
    mm_model *small = NULL;
    mm_trainer *trainer = NULL;
    ck_ok(mm_config_set_int(config, "vocab_size", 258));
    ck_ok(mm_model_create(config, 1, &small));
    ck_status(mm_trainer_create(small, run.loader, NULL, NULL, &trainer), MM_ERR_ARG);
    ck_error_mentions("259 ids");
    mm_model_free(small);
    mm_config_free(config);
    tiny_end(&run);
}
END_TEST

START_TEST(weights_that_are_not_float32_are_refused)
{
    tiny_run run;
    tiny_options o = tiny_defaults(rows);
    mm_model *half = NULL;
    mm_trainer *trainer = NULL;
    tiny_start(&run, &o);
    ck_ok(mm_model_cast(run.model, MM_BF16, &half));
    ck_status(mm_trainer_create(half, run.loader, NULL, NULL, &trainer), MM_ERR_STATE);
    ck_assert_ptr_null(trainer);
    mm_model_free(half);
    tiny_end(&run);
}
END_TEST

START_TEST(preferences_and_prompts_are_not_for_the_plain_loss)
{
    tiny_run run;
    tiny_options o = tiny_defaults(rows);
    o.loader.kind = _i;
    o.loader.template_name = "minimind2";
    ck_status(tiny_try(&run, &o), MM_ERR_UNSUPPORTED);
    ck_error_mentions(_i == MM_ROW_PREFERENCE ? "preferences" : "prompts");
    tiny_end(&run);
}
END_TEST

START_TEST(a_trainer_keeps_what_it_needs_alive)
{
    tiny_run run;
    tiny_options o = tiny_defaults(rows);
    tiny_start(&run, &o);
    mm_loader_free(run.loader);
    mm_dataset_free(run.dataset);
    mm_tokenizer_free(run.tokenizer);
    mm_model_free(run.model);
    ck_ok(mm_trainer_run(run.trainer));
    ck_assert_int_eq(tiny_steps(&run), 16);
    mm_trainer_free(run.trainer);
}
END_TEST

START_TEST(every_failing_allocation_of_create_is_survived)
{
    tiny_run run;
    tiny_options o = tiny_defaults(rows);
    o.loader.form = MM_ROWS_PACK;
    o.trainer.output = "somewhere";
    o.trainer.kernels = "c";
    tiny_start(&run, &o);
    mm_trainer_free(run.trainer);
    mm_memory_usage before = MM_MEMORY_USAGE_INIT, after = MM_MEMORY_USAGE_INIT;
    mm_memory_get_usage(&before);
    bool done = false;
    for (uint64_t n = 1; !done; n++) {
        run.trainer = NULL;
        ck_assert_uint_lt(n, 2000);
        mmi_memory_fail_at(n, false);
        mm_status status = mm_trainer_create(run.model, run.loader, run.tokenizer, &o.trainer, &run.trainer);
        done = mmi_memory_fail_at(0, false) < n;
        ck_assert_int_eq(status, done ? MM_OK : MM_ERR_MEMORY);
        mm_trainer_free(run.trainer);
    }
    run.trainer = NULL;
    mm_memory_get_usage(&after);
    ck_assert_uint_eq(before.current, after.current);
    tiny_end(&run);
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("train/trainer");
    TCase *tc = tcase_create("trainer");
    tcase_add_checked_fixture(tc, start, NULL);
    tcase_add_test(tc, a_run_goes_through_all_epochs_and_the_loss_falls);
    tcase_add_loop_test(tc, a_run_begins_at_the_beginning_wherever_its_loader_stood, 0, 4);
    tcase_add_test(tc, the_rate_follows_the_schedule_from_the_step_that_upstream_counts_from);
    tcase_add_test(tc, a_run_is_moved_by_one_call_at_a_time);
    tcase_add_test(tc, a_run_that_stops_anywhere_goes_on_to_the_same_bits);
    tcase_add_test(tc, any_number_of_threads_gives_the_same_bits);
    tcase_add_test(tc, accumulated_batches_equal_a_larger_one);
    tcase_add_test(tc, max_steps_and_intervals_are_kept);
    tcase_add_test(tc, a_packed_epoch_is_counted_exactly);
    tcase_add_test(tc, a_packed_run_takes_all_that_each_epoch_has_of_a_file);
    tcase_add_test(tc, max_seconds_ends_a_run_after_its_step);
    tcase_add_test(tc, a_loss_that_is_not_finite_leaves_the_weights);
    tcase_add_test(tc, gradients_that_are_not_finite_lead_back_to_the_last_update);
    tcase_add_test(tc, a_bad_line_stops_the_run_where_it_stands);
    tcase_add_test(tc, a_bad_line_at_an_epochs_end_costs_no_update);
    tcase_add_test(tc, a_data_set_without_a_readable_row_ends_the_run);
    tcase_add_test(tc, bad_options_are_refused);
    tcase_add_test(tc, a_tokenizer_with_more_ids_than_the_model_is_refused);
    tcase_add_test(tc, weights_that_are_not_float32_are_refused);
    tcase_add_loop_test(tc, preferences_and_prompts_are_not_for_the_plain_loss, MM_ROW_PREFERENCE, MM_ROW_PROMPT + 1);
    tcase_add_test(tc, a_trainer_keeps_what_it_needs_alive);
    tcase_add_test(tc, every_failing_allocation_of_create_is_survived);
    tcase_set_timeout(tc, 120);
    suite_add_tcase(suite, tc);
    return suite;
}

int main(void)
{
    return run_suite(make_suite());
}
