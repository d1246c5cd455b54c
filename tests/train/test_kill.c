#define _XOPEN_SOURCE 700
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../data/texts.h"
#include "base/files.h"
#include "tiny.h"

/* Checkpoints written in training's way, and beside it. */
static const int kills_wanted[2] = { 10, 20 };
static int beside;

static tiny_options run_options(const char *rows, const char *output)
{
    tiny_options o = tiny_defaults(rows);
    o.trainer.epochs = 100; /* 800 steps */
    o.trainer.output = output;
    o.trainer.save_interval = 2;
    o.trainer.background_save = output != NULL && beside;
    return o;
}

/* One life of a training process: on from the latest checkpoint, if there is one, to the end or the kill. */
static void live(const char *rows, const char *output)
{
    tiny_run run;
    tiny_options o = run_options(rows, output);
    char latest[600];
    snprintf(latest, sizeof latest, "%s/latest", output);
    tiny_start(&run, &o);
    if (mmi_file_exists(latest))
        ck_ok(mm_trainer_resume(run.trainer, output));
    ck_ok(mm_trainer_run(run.trainer));
    tiny_end(&run);
}

/* Start a process that trains, and kill it after `microseconds`. True if it was still at work; else it must have come
 * to its end, and not to a failed check. */
static bool train_and_kill(const char *rows, const char *output, int microseconds)
{
    pid_t child = fork();
    ck_assert_int_ge(child, 0);
    if (child == 0) {
        live(rows, output);
        _exit(0);
    }
    struct timespec pause = { 0, 1000L * microseconds };
    nanosleep(&pause, NULL);
    kill(child, SIGKILL);
    int status = 0;
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_msg(WIFSIGNALED(status) ? WTERMSIG(status) == SIGKILL : WEXITSTATUS(status) == 0, "status %d", status);
    return WIFSIGNALED(status);
}

/* The step of the latest checkpoint, which must be whole; 0 when there is none yet. */
static int64_t check_latest_loads(const char *rows, const char *output)
{
    char latest[600];
    snprintf(latest, sizeof latest, "%s/latest", output);
    if (!mmi_file_exists(latest))
        return 0;
    tiny_run run;
    tiny_options o = run_options(rows, NULL);
    tiny_start(&run, &o);
    ck_ok(mm_trainer_resume(run.trainer, output));
    int64_t step = tiny_steps(&run);
    tiny_end(&run);
    return step;
}

/* Microseconds that a checkpoint takes on this disk. */
static int time_a_save(const char *rows)
{
    tiny_run run;
    tiny_options o = run_options(rows, scratch_directory());
    tiny_start(&run, &o);
    double before = mmi_now();
    ck_ok(mm_trainer_save(run.trainer));
    int taken = (int)(1e6 * (mmi_now() - before));
    tiny_end(&run);
    return taken < 100000 ? taken : 100000;
}

START_TEST(a_run_killed_many_times_ends_with_the_same_bits)
{
    beside = _i;
    char rows[512], output[512];
    snprintf(rows, sizeof rows, "%s", put_rows(scratch_directory(), "rows.jsonl", 23, 12, 1));
    snprintf(output, sizeof output, "%s", scratch_directory());
    test_rng rng = { (unsigned)time(NULL) };
    int kills = 0, longest = 10000 + 6 * time_a_save(rows);
    int64_t reached = 0;
    for (int lives = 0; kills < kills_wanted[_i] && lives < 2 * kills_wanted[_i]; lives++) {
        kills += train_and_kill(rows, output, rng_between(&rng, 1000, longest));
        int64_t step = check_latest_loads(rows, output);
        ck_assert_int_ge(step, reached);
        reached = step;
    }
    fprintf(stderr, "# %d kills, the last one after step %d\n", kills, (int)reached);
    ck_assert_int_eq(kills, kills_wanted[_i]);

    tiny_run resumed, whole;
    tiny_options o = run_options(rows, output);
    o.trainer.save_interval = 100;
    tiny_start(&resumed, &o);
    if (reached > 0)
        ck_ok(mm_trainer_resume(resumed.trainer, output));
    ck_ok(mm_trainer_run(resumed.trainer));
    o.trainer.output = NULL;
    tiny_start(&whole, &o);
    ck_ok(mm_trainer_run(whole.trainer));
    tiny_check_same(&resumed, &whole);
    tiny_end(&resumed);
    tiny_end(&whole);
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("train/kill");
    TCase *tc = tcase_create("kill");
    tcase_add_loop_test(tc, a_run_killed_many_times_ends_with_the_same_bits, 0, 2);
    tcase_set_timeout(tc, 200);
    suite_add_tcase(suite, tc);
    return suite;
}

int main(void)
{
    return run_suite(make_suite());
}
