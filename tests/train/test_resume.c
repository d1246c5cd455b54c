/* Resuming anywhere, every kind of run. With a number as argument, so many stops of each instead of a few. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

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

int main(int argc, char **argv)
{
    if (argc > 1)
        stops = atoi(argv[1]);
    Suite *suite = suite_create("train/resume");
    TCase *tc = tcase_create("resume");
    tcase_add_loop_test(tc, a_run_that_stops_anywhere_goes_on_to_the_same_bits, 0, TINY_KINDS);
    tcase_set_timeout(tc, 600);
    suite_add_tcase(suite, tc);
    return run_suite(suite);
}
