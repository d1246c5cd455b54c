/* Rank 0 of two beside a partner that has nothing of its own and says yes to everything, until a call fails. What goes
 * wrong between ranks needs no second one then. */
#define _POSIX_C_SOURCE 200809L
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../data/texts.h"
#include "base/files.h"
#include "base/memory.h"
#include "tiny.h"

typedef struct partner {
    int64_t reduced, fails_at; /* calls of all_reduce; 0: none fails */
    int aborted;
    char heard[8192]; /* the longest that was broadcast of what fits, the text of what rank 0 trains */
    size_t size;
} partner;

static mm_status reduce(void *user, float *data, int64_t count)
{
    partner *p = user;
    (void)data, (void)count;
    return ++p->reduced == p->fails_at ? mm_set_last_error(MM_ERR_IO, "the link is gone") : MM_OK;
}
static mm_status reduce_f64(void *user, double *data, int64_t count)
{
    (void)user, (void)data, (void)count;
    return MM_OK;
}
static mm_status broadcast(void *user, void *data, size_t size, int32_t root)
{
    partner *p = user;
    (void)root;
    if (size > p->size && size < sizeof p->heard) {
        memcpy(p->heard, data, size);
        p->size = size;
    }
    return MM_OK;
}
static mm_status meet(void *user)
{
    (void)user;
    return MM_OK;
}
static mm_status leave(void *user, const char *reason)
{
    (void)reason;
    ((partner *)user)->aborted++;
    return MM_OK;
}

static char rows[512], output[512];

static mm_comm comm_with(partner *p)
{
    mm_comm c = MM_COMM_INIT;
    c.user = p;
    c.size = 2;
    c.all_reduce = reduce;
    c.all_reduce_f64 = reduce_f64;
    c.broadcast = broadcast;
    c.barrier = meet;
    c.abort = leave;
    return c;
}

/* Text in batches of one, `form` MM_ROWS_…, three of them to an update. */
static tiny_options text_options(const mm_comm *comm, int32_t form)
{
    snprintf(rows, sizeof rows, "%s", put_rows(scratch_directory(), "rows.jsonl", 40, 12, 1));
    tiny_options o = tiny_defaults(rows);
    o.loader.batch = 1;
    o.loader.form = form;
    o.loader.world = 2;
    o.trainer.comm = comm;
    o.trainer.accumulation_steps = 3;
    o.trainer.log_interval = 1;
    return o;
}

typedef struct judge {
    int64_t asked, stops_from; /* 0: never */
} judge;
static int32_t reward_length(void *user, const mm_answer *a, double *reward)
{
    judge *j = user;
    *reward = (double)(a->count % 3);
    return ++j->asked >= j->stops_from && j->stops_from > 0;
}

/* A run that learns from rewards, `updates` times from the same answers, and all that it stands on. */
typedef struct rewarded {
    partner partner;
    judge judge;
    mm_comm comm;
    mm_policy_training policy;
    tiny_options options;
} rewarded;

static void reward(rewarded *r, int32_t updates)
{
    char text[2048] = "";
    for (int i = 0; i < 24; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text), "{\"question\": \"%d\", \"answer\": \"%d\"}\n", i, i);
    *r = (rewarded){ .comm = comm_with(&r->partner), .policy = MM_POLICY_TRAINING_INIT };
    r->options = text_options(&r->comm, MM_ROWS_PAD);
    snprintf(rows, sizeof rows, "%s", put_file(scratch_directory(), "prompts.jsonl", text, strlen(text)));
    snprintf(output, sizeof output, "%s/out", scratch_directory());
    r->policy.reward = reward_length;
    r->policy.user = &r->judge;
    r->policy.group = 2;
    r->policy.max_new_tokens = 4;
    r->policy.updates = updates;
    tiny_options *o = &r->options;
    o->path = rows;
    o->loader.kind = MM_ROW_PROMPT;
    o->loader.template_name = "minillm";
    o->trainer.stage = MM_STAGE_POLICY;
    o->trainer.policy = &r->policy;
    o->trainer.accumulation_steps = 1;
    o->trainer.output = output;
}

START_TEST(a_run_may_end_in_the_midst_of_the_updates_from_its_answers)
{
    rewarded r;
    tiny_run run;
    reward(&r, 2);
    r.options.trainer.max_steps = 3;
    tiny_start(&run, &r.options);
    ck_ok(mm_trainer_run(run.trainer));
    ck_assert_int_eq(tiny_steps(&run), 3);
    tiny_end(&run);
    tiny_start(&run, &r.options); /* its checkpoint is whole */
    ck_ok(mm_trainer_resume(run.trainer, output));
    ck_assert_int_eq(tiny_steps(&run), 3);
    ck_ok(mm_trainer_run(run.trainer));
    tiny_end(&run);
}
END_TEST

START_TEST(a_reward_that_wants_no_more_is_asked_no_more)
{
    rewarded r;
    tiny_run run;
    reward(&r, 1);
    r.judge.stops_from = 3;
    r.options.trainer.accumulation_steps = 4;
    tiny_start(&run, &r.options);
    ck_ok(mm_trainer_run(run.trainer));
    ck_assert_int_eq(r.judge.asked, 3);
    ck_assert_int_eq(tiny_steps(&run), 0); /* the last update, where all ranks can stop */
    tiny_end(&run);
}
END_TEST

START_TEST(between_updates_from_the_same_answers_saving_says_what_is_missing)
{
    rewarded r;
    tiny_run run;
    reward(&r, 3);
    r.options.trainer.max_steps = 1;
    tiny_start(&run, &r.options);
    ck_ok(mm_trainer_run(run.trainer)); /* that the run ends there is something else */
    tiny_end(&run);
    const int64_t calls = r.partner.reduced; /* of one update */
    ck_assert_int_gt(calls, 0);
    r.partner = (partner){ .fails_at = calls + 1 };
    r.options.trainer.max_steps = 0;
    tiny_start(&run, &r.options);
    ck_status(mm_trainer_run(run.trainer), MM_ERR_IO);
    ck_assert_int_eq(r.partner.aborted, 1);
    ck_status(mm_trainer_save(run.trainer), MM_ERR_STATE);
    ck_error_mentions("no rank has all answers that they learn from");
    tiny_end(&run);
}
END_TEST

/* What a run came to. */
typedef struct outcome {
    float *weights;
    size_t count;
    int64_t steps, skipped;
} outcome;

static outcome outcome_of(const tiny_run *run)
{
    outcome o = { 0 };
    mm_train_progress progress = MM_TRAIN_PROGRESS_INIT;
    ck_ok(mm_trainer_progress(run->trainer, &progress));
    o.weights = tiny_weights(run->model, &o.count);
    o.steps = progress.step;
    o.skipped = progress.skipped_steps;
    return o;
}

static void ck_same_outcome(outcome *a, outcome *b)
{
    ck_assert_int_eq(a->steps, b->steps);
    ck_assert_int_eq(a->skipped, b->skipped);
    ck_assert(memcmp(a->weights, b->weights, a->count * sizeof(float)) == 0);
    free(a->weights);
    free(b->weights);
}

START_TEST(a_run_that_failed_and_runs_again_learns_what_it_would_have)
{
    outcome made[2];
    for (int fails = 0; fails < 2; fails++) {
        partner p = { 0 };
        mm_comm comm = comm_with(&p);
        tiny_options o = text_options(&comm, MM_ROWS_PAD);
        tiny_run run;
        o.trainer.spike_factor = 0.4; /* most losses are too high, by windows of those before */
        o.trainer.max_skips = 1000;
        o.trainer.epochs = 3;
        tiny_start(&run, &o);
        for (p.fails_at = fails ? 9 : 0; p.fails_at > 0 && p.fails_at < 20; p.fails_at = p.reduced + 3)
            ck_status(mm_trainer_run(run.trainer), MM_ERR_IO);
        p.fails_at = 0;
        ck_ok(mm_trainer_run(run.trainer));
        made[fails] = outcome_of(&run);
        tiny_end(&run);
    }
    ck_assert_int_gt(made[0].skipped, 0);
    ck_same_outcome(&made[0], &made[1]);
}
END_TEST

/* Other instructions round otherwise, and with OpenBLAS they have a part in all but large products. */
START_TEST(a_rank_tells_its_processor_behind_the_name_of_every_kernel_path)
{
    for (int32_t i = 0; i < mm_kernels_count(); i++) {
        partner p = { 0 };
        mm_comm comm = comm_with(&p);
        tiny_options o = text_options(&comm, MM_ROWS_PAD);
        tiny_run run;
        const char *kernels = mm_kernels_name(i);
        bool blas = strcmp(kernels, "openblas") == 0;
        char expected[64];
        /* it is the last, and comes with all that the one before it has */
        snprintf(expected, sizeof expected, "\"processor\":\"%s\"", blas ? mm_kernels_name(i - 1) : kernels);
        o.trainer.kernels = kernels;
        o.trainer.max_steps = 1;
        tiny_start(&run, &o);
        ck_ok(mm_trainer_run(run.trainer));
        ck_assert_msg(strstr(p.heard, expected) != NULL, "%s is not in %s", expected, p.heard);
        ck_assert_msg(strstr(p.heard, blas ? "\"blas core\":\"" : "\"blas core\":null") != NULL, "%s", p.heard);
        tiny_end(&run);
    }
}
END_TEST

START_TEST(a_rank_without_memory_to_begin_says_so)
{
    mm_status status = MM_ERR_MEMORY;
    for (uint64_t n = 1; status != MM_OK; n++) {
        partner p = { 0 };
        mm_comm comm = comm_with(&p);
        tiny_options o = text_options(&comm, MM_ROWS_PAD);
        tiny_run run;
        o.trainer.max_steps = 1;
        o.loader.workers = 0;
        tiny_start(&run, &o);
        mmi_memory_fail_at(n, false);
        status = mm_trainer_run(run.trainer);
        mmi_memory_fail_at(0, false);
        if (status != MM_OK) {
            ck_assert_int_eq(status, MM_ERR_MEMORY);
            ck_error_mentions("memory");
            ck_assert_int_eq(p.aborted, 1);
        }
        ck_assert(status != MM_OK || n > 50); /* options alone are more */
        tiny_end(&run);
    }
}
END_TEST

/* A file that is cut short while it is read, and mended. */
typedef struct thief {
    char *text;
    size_t size;
    bool stolen;
} thief;
static int32_t steal(void *user, const mm_train_progress *progress)
{
    thief *t = user;
    if (progress->step == 4 && !t->stolen) {
        struct stat before;
        ck_assert_int_eq(stat(rows, &before), 0);
        ck_assert_int_eq(truncate(rows, 10), 0);
        t->stolen = true;
    }
    return 0;
}

START_TEST(a_run_whose_file_is_mended_stands_where_it_stood)
{
    outcome made[2];
    for (int fails = 0; fails < 2; fails++) {
        partner p = { 0 };
        mm_comm comm = comm_with(&p);
        tiny_options o = text_options(&comm, MM_ROWS_PACK);
        tiny_run run;
        thief t = { .stolen = !fails };
        struct stat whole;
        ck_ok(mmi_read_file(rows, &t.text, &t.size));
        ck_assert_int_eq(stat(rows, &whole), 0);
        o.trainer.on_step = steal;
        o.trainer.user = &t;
        o.loader.workers = 0;
        tiny_start(&run, &o);
        if (fails) {
            ck_assert_int_ne(mm_trainer_run(run.trainer), MM_OK);
            ck_assert_int_eq(p.aborted, 1);
            FILE *f = fopen(rows, "r+b");
            ck_assert_ptr_nonnull(f);
            ck_assert_uint_eq(fwrite(t.text, 1, t.size, f), t.size);
            ck_assert_int_eq(fclose(f), 0);
            const struct timespec times[2] = { whole.st_atim, whole.st_mtim };
            ck_assert_int_eq(utimensat(AT_FDCWD, rows, times, 0), 0);
        }
        ck_ok(mm_trainer_run(run.trainer));
        made[fails] = outcome_of(&run);
        mmi_free(t.text);
        tiny_end(&run);
    }
    ck_same_outcome(&made[0], &made[1]);
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("train/partner");
    TCase *tc = tcase_create("partner");
    tcase_add_test(tc, a_run_may_end_in_the_midst_of_the_updates_from_its_answers);
    tcase_add_test(tc, a_reward_that_wants_no_more_is_asked_no_more);
    tcase_add_test(tc, between_updates_from_the_same_answers_saving_says_what_is_missing);
    tcase_add_test(tc, a_run_that_failed_and_runs_again_learns_what_it_would_have);
    tcase_add_test(tc, a_run_whose_file_is_mended_stands_where_it_stood);
    tcase_add_test(tc, a_rank_tells_its_processor_behind_the_name_of_every_kernel_path);
    tcase_add_test(tc, a_rank_without_memory_to_begin_says_so);
    tcase_set_timeout(tc, 60);
    suite_add_tcase(suite, tc);
    return suite;
}

int main(void)
{
    return run_suite(make_suite());
}
