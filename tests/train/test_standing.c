/* Where a run stands, asked on other threads than its own. */
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "../data/texts.h"
#include "base/thread.h"
#include "tiny.h"

static char rows[512];

static void start(void)
{
    snprintf(rows, sizeof rows, "%s", put_rows(scratch_directory(), "rows.jsonl", 23, 12, 1));
}

/* Packed: all of an epoch's seven steps but the last are of as many tokens. */
static tiny_options options(void)
{
    tiny_options o = tiny_defaults(rows);
    o.moe = true;
    o.loader.form = MM_ROWS_PACK;
    o.trainer.accumulation_steps = 2;
    return o;
}

enum { STEPS = 6, LEAST = 3 };

typedef struct asker {
    mm_trainer *trainer;
    int64_t tokens; /* of a step */
    atomic_int asked, wrong, done;
    mm_train_progress last;
    double load[8]; /* of the last */
} asker;

/* What is told must be of one step, from its number to the load of its experts, and no step comes twice. */
static bool fits(const mm_train_progress *p, const asker *a)
{
    double sum = 0;
    for (int64_t i = 0; p->expert_load && i < p->experts; i++)
        sum += p->expert_load[i];
    return p->tokens == p->step * a->tokens && p->updates == p->step / 2 && p->step >= a->last.step &&
           (p->expert_load != NULL) == (p->step > 0) && (!p->expert_load || (sum > 0.999 && sum < 1.001)) &&
           (p->evaluations > 0) == (p->best_loss > 0);
}

static void ask(void *arg)
{
    asker *a = arg;
    for (int done = 0; !done;) {
        done = a->done; /* looks once more then */
        mm_train_progress p = MM_TRAIN_PROGRESS_INIT;
        if (mm_trainer_progress(a->trainer, &p) != MM_OK || !fits(&p, a))
            a->wrong++;
        a->last = p;
        if (p.expert_load)
            memcpy(a->load, p.expert_load, sizeof a->load);
        a->asked++;
    }
}

/* The other thread is to have looked now and then. */
static int32_t wait_for_questions(void *user, const mm_train_progress *p)
{
    asker *a = user;
    (void)p;
    for (int before = a->asked; a->asked < before + LEAST;)
        ;
    return 0;
}

START_TEST(another_thread_sees_whole_steps)
{
    tiny_run run;
    asker a = { .last = MM_TRAIN_PROGRESS_INIT };
    tiny_options o = options();
    o.validation = rows;
    o.trainer.eval_interval = 3;
    o.trainer.max_steps = STEPS;
    o.trainer.on_step = wait_for_questions;
    o.trainer.user = &a;
    a.tokens = (int64_t)o.loader.batch * o.loader.max_length;
    tiny_start(&run, &o);
    a.trainer = run.trainer;
    mmi_thread *thread = NULL;
    ck_ok(mmi_thread_start(&thread, ask, &a));
    ck_ok(mm_trainer_run(run.trainer));
    a.done = 1;
    mmi_thread_join(thread);
    ck_assert_int_eq(a.wrong, 0);
    ck_assert_int_ge(a.asked, LEAST * STEPS);
    mm_train_progress p = MM_TRAIN_PROGRESS_INIT;
    ck_ok(mm_trainer_progress(run.trainer, &p));
    ck_assert_int_eq(a.last.step, STEPS);
    ck_assert(a.last.loss == p.loss && a.last.best_loss == p.best_loss && a.last.loss_scale == p.loss_scale);
    ck_assert_int_eq(p.expert_layers * p.experts, 8);
    ck_assert_mem_eq(a.load, p.expert_load, sizeof a.load);
    tiny_end(&run);
}
END_TEST

START_TEST(what_is_told_to_others_follows_a_checkpoint_and_a_failure)
{
    tiny_run run;
    mm_train_progress p = MM_TRAIN_PROGRESS_INIT;
    char output[512], second[600], fourth[600];
    tiny_options o = options();
    snprintf(output, sizeof output, "%s", scratch_directory());
    snprintf(second, sizeof second, "%s/step-2", output);
    snprintf(fourth, sizeof fourth, "%s/step-4", output);
    o.trainer.output = output;
    o.trainer.max_steps = 4;
    o.trainer.save_interval = 2;
    o.trainer.keep_last = 0;
    tiny_start(&run, &o);
    ck_ok(mm_trainer_progress(run.trainer, &p));
    ck_assert_int_eq(p.step, 0);
    ck_assert_int_gt(p.total_steps, 0);
    ck_assert_ptr_null(p.expert_load);
    ck_ok(mm_trainer_run(run.trainer));
    ck_ok(mm_trainer_progress(run.trainer, &p));
    ck_assert_int_eq(p.step, 4);
    ck_ok(mm_trainer_resume(run.trainer, second));
    ck_ok(mm_trainer_progress(run.trainer, &p));
    ck_assert_int_eq(p.step, 2);
    ck_assert_ptr_null(p.expert_load); /* which was step 4's */
    ck_ok(mm_trainer_run(run.trainer));
    ck_ok(mm_trainer_resume(run.trainer, fourth));
    ck_ok(mm_trainer_progress(run.trainer, &p));
    ck_assert_int_eq(p.step, 4);
    ck_assert_ptr_null(p.expert_load);
    ck_ok(mm_trainer_resume(run.trainer, second));
    ck_status(mm_trainer_resume(run.trainer, "/no/such/place"), MM_ERR_IO);
    ck_ok(mm_trainer_progress(run.trainer, &p));
    ck_assert_int_eq(p.step, 2);
    tiny_end(&run);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("train/standing");
    TCase *tc = tcase_create("standing");
    tcase_add_checked_fixture(tc, start, NULL);
    tcase_add_test(tc, another_thread_sees_whole_steps);
    tcase_add_test(tc, what_is_told_to_others_follows_a_checkpoint_and_a_failure);
    tcase_set_timeout(tc, 60);
    suite_add_tcase(suite, tc);
    return run_suite(suite);
}
