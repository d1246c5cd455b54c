/* Resuming anywhere, every kind of run. With a number as argument, so many stops of each instead of a few. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "../data/texts.h"
#include "tiny.h"

static int stops = 1;

static int32_t stop_there(void *user, const mm_train_progress *progress)
{
    return progress->step == *(const int64_t *)user;
}

/* All that may decide how a run goes on is on: validation, early stopping that does not come, scaling, the guard. */
static tiny_options careful(tiny_kind kind, const char *directory)
{
    tiny_options o = tiny_options_of(kind, directory);
    o.validation = o.path;
    o.dropout = 0.1;
    o.loader.trim = kind != TINY_TEXT;
    o.trainer.eval_interval = 4;
    o.trainer.eval_batches = 2;
    o.trainer.patience = 1000;
    o.trainer.keep_best = 1;
    o.trainer.loss_scale = 1024;
    o.trainer.loss_scale_interval = 3;
    o.trainer.max_skips = 3;
    o.trainer.spike_factor = 4;
    o.trainer.schedule = MM_SCHEDULE_WSD;
    o.trainer.warmup_steps = 3;
    return o;
}

START_TEST(a_run_that_stops_anywhere_goes_on_to_the_same_bits)
{
    char directory[512], output[512];
    snprintf(directory, sizeof directory, "%s", scratch_directory());
    tiny_run whole;
    tiny_options o = careful((tiny_kind)_i, directory);
    tiny_start(&whole, &o);
    ck_ok(mm_trainer_run(whole.trainer));
    test_rng rng = { (unsigned long long)time(NULL) };
    int64_t steps = tiny_steps(&whole), stop;
    for (int n = 0; n < stops; n++) {
        tiny_run first, second;
        tiny_options part = o;
        stop = rng_between(&rng, 1, (int)steps - 1);
        fprintf(stderr, "# %s: stopped after step %d of %d\n", tiny_kind_names[_i], (int)stop, (int)steps);
        snprintf(output, sizeof output, "%s", scratch_directory());
        part.trainer.output = output;
        part.trainer.on_step = stop_there;
        part.trainer.user = &stop;
        part.trainer.background_save = (n + _i) % 2;
        part.trainer.save_interval = (n + _i) % 2 ? 3 : 0;
        tiny_start(&first, &part);
        ck_ok(mm_trainer_run(first.trainer));
        ck_assert_int_eq(tiny_steps(&first), stop);
        tiny_end(&first);
        part.trainer.on_step = NULL;
        part.trainer.threads = n % 3 + 1;
        tiny_start(&second, &part);
        ck_ok(mm_trainer_resume(second.trainer, output));
        ck_ok(mm_trainer_run(second.trainer));
        tiny_check_same(&second, &whole);
        tiny_end(&second);
    }
    tiny_end(&whole);
}
END_TEST

/* Of one epoch, or of so many steps, then of all. */
static void run_in_two(tiny_run *second, const tiny_options *whole, bool epochs, int64_t steps, const char *output)
{
    tiny_run first;
    tiny_options part = *whole;
    part.trainer.output = output;
    part.trainer.epochs = epochs ? 1 : whole->trainer.epochs;
    part.trainer.max_steps = epochs ? 0 : steps;
    tiny_start(&first, &part);
    ck_ok(mm_trainer_run(first.trainer));
    ck_assert_int_eq(tiny_steps(&first), steps);
    tiny_end(&first);
    part.trainer.epochs = whole->trainer.epochs;
    part.trainer.max_steps = whole->trainer.max_steps;
    tiny_start(second, &part);
    ck_ok(mm_trainer_resume(second->trainer, output));
    ck_assert_int_eq(tiny_steps(second), steps);
    ck_ok(mm_trainer_run(second->trainer));
}

/* Where the learning rate does not ask for a run's length, nothing tells that it was shorter. */
START_TEST(a_run_that_has_ended_goes_on_when_it_becomes_longer)
{
    char directory[512];
    snprintf(directory, sizeof directory, "%s", scratch_directory());
    tiny_options o = tiny_options_of((tiny_kind)_i, directory); /* without validations, which runs end with, too */
    o.dropout = 0.1;
    o.trainer.schedule = MM_SCHEDULE_CONSTANT;
    tiny_run whole, two;
    tiny_start(&whole, &o);
    mm_train_progress p = MM_TRAIN_PROGRESS_INIT;
    ck_ok(mm_trainer_progress(whole.trainer, &p));
    ck_assert(p.epoch_steps > 0 && p.total_steps > p.epoch_steps);
    ck_ok(mm_trainer_run(whole.trainer));
    run_in_two(&two, &o, true, p.epoch_steps, scratch_directory());
    tiny_check_same(&two, &whole);
    tiny_end(&two);
    const int64_t steps = p.epoch_steps + o.trainer.accumulation_steps; /* an update's end */
    ck_assert_int_lt(steps, p.total_steps);
    run_in_two(&two, &o, false, steps, scratch_directory());
    tiny_check_same(&two, &whole);
    tiny_end(&two);
    o.trainer.max_steps = p.total_steps;
    run_in_two(&two, &o, false, steps, scratch_directory());
    tiny_check_same(&two, &whole);
    tiny_end(&two);
    tiny_end(&whole);
}
END_TEST

static int32_t keep_rate(void *user, const mm_train_progress *progress)
{
    double *rates = user;
    rates[progress->step] = progress->learning_rate;
    return 0;
}

START_TEST(the_learning_rate_of_a_longer_run_is_that_of_its_length)
{
    char output[512];
    double rates[40] = { 0 }, of_three[40] = { 0 };
    tiny_run run;
    tiny_options o = careful(TINY_TEXT, scratch_directory());
    snprintf(output, sizeof output, "%s", scratch_directory());
    o.trainer.schedule = MM_SCHEDULE_MINIMIND2;
    o.trainer.warmup_steps = 0;
    o.trainer.log_interval = 1;
    o.trainer.on_step = keep_rate;
    o.trainer.epochs = 3;
    o.trainer.user = of_three;
    tiny_start(&run, &o);
    ck_ok(mm_trainer_run(run.trainer));
    const int64_t steps = tiny_steps(&run), epoch = steps / 3;
    tiny_end(&run);
    o.trainer.output = output;
    o.trainer.user = rates;
    for (int64_t epochs = 1; epochs <= 3; epochs += 2) {
        o.trainer.epochs = epochs;
        tiny_start(&run, &o);
        if (epochs > 1)
            ck_ok(mm_trainer_resume(run.trainer, output));
        ck_ok(mm_trainer_run(run.trainer));
        tiny_end(&run);
    }
    ck_assert(rates[epoch] < of_three[epoch] / 2);
    for (int64_t step = epoch + 1; step <= steps; step++)
        ck_assert(rates[step] > 0 && rates[step] == of_three[step]);
    o.trainer.epochs = 2; /* shorter again: of another run */
    tiny_start(&run, &o);
    ck_status(mm_trainer_resume(run.trainer, output), MM_ERR_FORMAT);
    ck_error_mentions("its epochs is 3, here it is 2");
    tiny_end(&run);
}
END_TEST

/* Bad lines at the end of the data let an epoch end behind its last step. */
START_TEST(a_longer_run_begins_its_next_epoch_behind_bad_lines)
{
    char directory[512], path[600];
    snprintf(directory, sizeof directory, "%s", scratch_directory());
    snprintf(path, sizeof path, "%s", put_rows(directory, "rows.jsonl", 6, 12, 1));
    FILE *file = fopen(path, "a");
    ck_assert_ptr_nonnull(file);
    fputs("[]\n[]\n[]\n[]\n", file);
    fclose(file);
    tiny_run whole, two;
    tiny_options o = tiny_defaults(path);
    o.loader.skip_bad_lines = 1;
    o.loader.shuffle = 0;
    o.trainer.schedule = MM_SCHEDULE_CONSTANT;
    o.trainer.epochs = 2;
    tiny_start(&whole, &o);
    ck_ok(mm_trainer_run(whole.trainer));
    ck_assert_int_eq(tiny_steps(&whole), 4);
    run_in_two(&two, &o, true, 2, scratch_directory());
    tiny_check_same(&two, &whole);
    tiny_end(&two);
    tiny_end(&whole);
}
END_TEST

int main(int argc, char **argv)
{
    if (argc > 1)
        stops = atoi(argv[1]);
    Suite *suite = suite_create("train/resume");
    TCase *tc = tcase_create("resume");
    tcase_add_loop_test(tc, a_run_that_stops_anywhere_goes_on_to_the_same_bits, 0, TINY_KINDS);
    tcase_add_loop_test(tc, a_run_that_has_ended_goes_on_when_it_becomes_longer, 0, TINY_KINDS);
    tcase_add_test(tc, the_learning_rate_of_a_longer_run_is_that_of_its_length);
    tcase_add_test(tc, a_longer_run_begins_its_next_epoch_behind_bad_lines);
    tcase_set_timeout(tc, 600);
    suite_add_tcase(suite, tc);
    return run_suite(suite);
}
