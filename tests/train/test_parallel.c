/* Trainers among others: the same run on any number of ranks. */
#define _XOPEN_SOURCE 700
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "../data/texts.h"
#include "base/files.h"
#include "tiny.h"
#include "train/trainer.h"
#include "world.h"

/* Sums of other shapes round otherwise, and an update divides by the size of a gradient. */
#define CLOSE 1e-5

#define GLOBAL_BATCH 4
#define STEPS 64

static char rows[512];

static void start(void)
{
    snprintf(rows, sizeof rows, "%s", put_rows(scratch_directory(), "rows.jsonl", 23, 12, 1));
}

/* What the ranks of a run do, and what came of it. */
typedef struct plan {
    tiny_options options; /* of one rank alone */
    const char *resume;   /* NULL: from the beginning */
    int64_t stop_at;      /* a step after which rank `stopper` asks to stop; 0: nobody does */
    int32_t stopper;
    bool whole_validation; /* each rank measures all of it */
    bool own_weights;      /* each rank begins with others */
    bool own_output;       /* rank N > 0 has the output directory "…-N" */
    /* What rank N > 0 has of its own where it must not. */
    enum { OWN_NOTHING, OWN_RATE, OWN_VALIDATION, OWN_INTERVAL, OWN_LENGTH, OWN_TARGETS } own;
    mm_policy_training policy; /* of a run that learns from rewards; user is each rank's ear */
    mm_status expected[WORLD_MOST];
    double losses[STEPS];   /* by step, of rank 0 */
    mm_train_progress last; /* of rank 0 */
    int64_t ended;          /* the step that it stands at */
    double metrics[16];     /* … and its stage's readings, those of the validation behind those of the last step */
    double tokens[WORLD_MOST], squares[WORLD_MOST]; /* of each rank's answers */
    float *weights[WORLD_MOST];
    size_t count;
    char story[WORLD_MOST][512];
} plan;

typedef struct ear {
    plan *p;
    int32_t rank;
    int64_t answers; /* rewarded so far */
    int64_t told;    /* the last step */
} ear;

static int32_t hear(void *user, const mm_train_progress *progress)
{
    ear *e = user;
    ck_assert_int_ge(progress->step, e->told); /* a validation may tell of it a second time */
    e->told = progress->step;
    if (e->rank == 0 && progress->step < STEPS)
        e->p->losses[progress->step] = progress->loss;
    if (e->rank == 0)
        e->p->last = *progress;
    for (int64_t i = 0; e->rank == 0 && i < progress->metric_count; i++) {
        e->p->metrics[i] = progress->metrics[i].value;
        e->p->metrics[8 + i] = progress->validation_metrics ? progress->validation_metrics[i].value : 0;
    }
    return e->rank == e->p->stopper && progress->step == e->p->stop_at;
}

static tiny_options options_of(const tiny_options *alone, const mm_comm *comm)
{
    tiny_options o = *alone;
    o.loader.rank = comm->rank;
    o.loader.world = comm->size;
    o.loader.batch = alone->loader.batch / comm->size;
    o.trainer.comm = comm;
    return o;
}

static void train_one(const world_rank *self)
{
    plan *p = self->shared;
    ear e = { p, self->rank, 0, 1 };
    mm_policy_training policy = p->policy;
    tiny_run run;
    tiny_options o = options_of(&p->options, self->comm);
    o.trainer.on_step = hear;
    o.trainer.user = &e;
    policy.user = &e;
    o.trainer.policy = policy.reward ? &policy : NULL;
    char output[600];
    snprintf(output, sizeof output, "%s-%d", o.trainer.output ? o.trainer.output : "", self->rank);
    if (p->own_output && self->rank > 0)
        o.trainer.output = output;
    if (p->own_weights)
        o.weights += (uint64_t)self->rank;
    if (p->own == OWN_RATE)
        o.trainer.learning_rate *= 1 + self->rank;
    if (p->own == OWN_VALIDATION && self->rank > 0)
        o.validation = NULL;
    if (p->own == OWN_INTERVAL)
        o.trainer.eval_interval += self->rank;
    if (p->own == OWN_LENGTH)
        o.validation_length = o.loader.max_length - self->rank;
    if (p->own == OWN_TARGETS && self->rank > 0)
        o.targets = "q_proj,o_proj";
    o.validation_whole = p->whole_validation;
    tiny_start(&run, &o);
    if (p->resume)
        ck_ok(mm_trainer_resume(run.trainer, p->resume));
    mm_status status = mm_trainer_run(run.trainer);
    snprintf(p->story[self->rank], sizeof p->story[0], "%s", status == MM_OK ? "" : mm_last_error());
    ck_assert_msg(status == p->expected[self->rank], "rank %d: %s: %s", self->rank, mm_status_name(status),
                  p->story[self->rank]);
    if (status != MM_OK && o.trainer.output)
        ck_ok(mm_trainer_save(run.trainer)); /* what was learnt is kept */
    if (self->rank == 0)
        p->ended = tiny_steps(&run);
    size_t count;
    p->weights[self->rank] = run.adapter ? tiny_adapter_weights(run.adapter, &count) : tiny_weights(run.model, &count);
    if (self->rank == 0)
        p->count = count;
    tiny_end(&run);
}

/* The run on so many ranks; all end with the same bits. */
static void train(plan *p, int32_t size)
{
    world_run(WORLD_LOCAL, size, train_one, p);
    for (int32_t r = 1; r < size; r++)
        ck_assert_msg(memcmp(p->weights[r], p->weights[0], p->count * sizeof(float)) == 0,
                      "rank %d differs from rank 0 by %g", r, relative_error(p->weights[r], p->weights[0], p->count));
}

static void forget(plan *p)
{
    for (int r = 0; r < WORLD_MOST; r++) {
        free(p->weights[r]);
        p->weights[r] = NULL;
    }
}

static plan plan_of(int32_t form)
{
    plan p = { .options = tiny_defaults(rows) };
    p.options.loader.form = form;
    p.options.loader.batch = GLOBAL_BATCH;
    p.options.trainer.epochs = 3;
    p.options.trainer.learning_rate = 1e-3;
    return p;
}

static void ck_same_run(const plan *a, const plan *b, int64_t from)
{
    ck_assert_int_eq(a->last.step, b->last.step);
    ck_assert_int_eq(a->last.updates, b->last.updates);
    ck_assert_int_eq(a->last.epoch, b->last.epoch);
    for (int64_t s = from; s <= a->last.step && s < STEPS; s++)
        ck_assert_msg(fabs(a->losses[s] - b->losses[s]) <= CLOSE, "step %d: %.9g and %.9g", (int)s, a->losses[s],
                      b->losses[s]);
    ck_assert_double_le(relative_error(a->weights[0], b->weights[0], a->count), CLOSE);
}

START_TEST(losses_are_those_of_one_rank_with_the_same_global_batch)
{
    plan alone = plan_of(_i);
    train(&alone, 1);
    ck_assert_int_gt(alone.last.step, 9);
    for (int32_t size = 2; size <= 4; size *= 2) {
        plan p = plan_of(_i);
        train(&p, size);
        ck_same_run(&p, &alone, 1);
        plan again = plan_of(_i);
        again.options.trainer.threads = 3;
        train(&again, size);
        ck_assert(memcmp(again.weights[0], p.weights[0], p.count * sizeof(float)) == 0);
        ck_assert(memcmp(again.losses, p.losses, sizeof p.losses) == 0);
        forget(&p);
        forget(&again);
    }
    forget(&alone);
}
END_TEST

/* From a stop at `stop_at` of a run on `before` ranks, on with `after`. */
static void change_ranks(const plan *whole, int32_t form, int32_t before, int32_t after, int64_t stop_at)
{
    char output[512];
    snprintf(output, sizeof output, "%s", scratch_directory());
    plan first = plan_of(form), second = plan_of(form);
    first.options.trainer.output = output;
    first.stop_at = stop_at;
    first.stopper = before - 1;
    train(&first, before);
    ck_assert_int_ge(first.last.step, stop_at);
    ck_assert_int_le(first.last.step, stop_at + 4); /* with its update, if there are others */
    second.resume = output;
    second.options.weights = 99;
    train(&second, after);
    ck_same_run(&second, whole, first.last.step + 1);
    if (before == after)
        ck_assert(memcmp(second.weights[0], whole->weights[0], whole->count * sizeof(float)) == 0);
    forget(&first);
    forget(&second);
}

START_TEST(a_run_goes_on_with_another_number_of_ranks_anywhere)
{
    test_rng rng = { (unsigned)time(NULL) };
    int32_t form = _i;
    plan alone = plan_of(form), pair = plan_of(form);
    train(&alone, 1);
    train(&pair, 2);
    for (int k = 0; k < 4; k++) {
        int64_t stop = rng_between(&rng, 1, (int)alone.last.step - 5);
        fprintf(stderr, "# form %d: stopped after step %d of %d\n", (int)form, (int)stop, (int)alone.last.step);
        change_ranks(&alone, form, 2, 1, stop);
        change_ranks(&alone, form, 1, 2, stop);
        change_ranks(&alone, form, 4, 2, stop);
        change_ranks(&pair, form, 2, 2, stop);
    }
    forget(&alone);
    forget(&pair);
}
END_TEST

START_TEST(an_adapter_and_muon_learn_as_on_one_rank)
{
    plan alone = plan_of(MM_ROWS_PAD), p = plan_of(MM_ROWS_PAD);
    alone.options.rank = p.options.rank = _i ? 3 : 0;
    alone.options.trainer.optimizer = p.options.trainer.optimizer = _i ? MM_OPTIMIZER_ADAMW : MM_OPTIMIZER_MUON;
    train(&alone, 1);
    train(&p, 2);
    ck_same_run(&p, &alone, 1);
    forget(&alone);
    forget(&p);
}
END_TEST

/* Conversations, pairs, a teacher: 13 rows in batches of 4, so that in the end three of four ranks are left without. */
START_TEST(every_stage_learns_as_on_one_rank)
{
    static const tiny_kind kinds[] = { TINY_CHAT, TINY_DPO, TINY_LORA_DPO, TINY_DISTILL, TINY_CACHED };
    plan alone = { .options = tiny_options_of(kinds[_i], scratch_directory()) };
    alone.options.loader.batch = GLOBAL_BATCH;
    alone.options.validation = alone.options.path;
    alone.options.trainer.eval_interval = 4;
    alone.options.trainer.epochs = 3;
    alone.options.trainer.learning_rate = 1e-3;
    plan again = alone;
    train(&alone, 1);
    ck_assert_int_gt(alone.last.step, 9);
    ck_assert_int_gt(alone.last.evaluations, 2);
    for (int32_t size = 2; size <= 4; size *= 2) {
        plan p = again;
        train(&p, size);
        ck_same_run(&p, &alone, 1);
        ck_assert_double_eq_tol(p.last.validation_loss, alone.last.validation_loss, CLOSE);
        ck_assert_int_eq(p.last.best_step, alone.last.best_step);
        for (int i = 0; i < 16; i++)
            ck_assert_double_eq_tol(p.metrics[i], alone.metrics[i], CLOSE);
        forget(&p);
    }
    forget(&alone);
}
END_TEST

/* Every other one's prompt is too long, so that none of its answers' targets is left: all of rank 1's. */
static plan plan_of_cut_rows(int32_t stage)
{
    char text[8192] = "";
    for (int i = 0; i < 6; i++) {
        char question[130], turns[256];
        size_t used = strlen(text);
        memset(question, 'a' + i, sizeof question);
        question[i % 2 ? 120 : 3] = '\0';
        snprintf(turns, sizeof turns,
                 "[{\"role\": \"user\", \"content\": \"%s\"}, {\"role\": \"assistant\", "
                 "\"content\": ",
                 question);
        if (stage == MM_STAGE_DPO)
            snprintf(text + used, sizeof text - used, "{\"chosen\": %s\"XY%c\"}], \"rejected\": %s\"no\"}]}\n", turns,
                     'A' + i, turns);
        else
            snprintf(text + used, sizeof text - used, "{\"conversations\": %s\"XY%c\"}]}\n", turns, 'A' + i);
    }
    snprintf(rows, sizeof rows, "%s", put_file(scratch_directory(), "cut.jsonl", text, strlen(text)));
    plan p = plan_of(MM_ROWS_PAD);
    p.options.loader.kind = stage == MM_STAGE_DPO ? MM_ROW_PREFERENCE : MM_ROW_CHAT;
    p.options.loader.template_name = "minimind2";
    p.options.loader.max_length = 96;
    p.options.loader.batch = 2;
    p.options.loader.shuffle = 0;
    p.options.trainer.stage = stage;
    p.options.trainer.eps = 1e-6;
    p.options.teacher = stage == MM_STAGE_DISTILL ? 77 : 0;
    return p;
}

/* 0 to 2: a dense model in each stage that has targets; then one of experts, whose balance has no need of them. */
START_TEST(rows_without_a_target_count_wherever_they_stand)
{
    static const int32_t stages[] = { MM_STAGE_PLAIN, MM_STAGE_DPO, MM_STAGE_DISTILL };
    plan alone = plan_of_cut_rows(stages[_i % 3]), p;
    alone.options.moe = _i > 2;
    p = alone;
    train(&alone, 1);
    train(&p, 2);
    ck_same_run(&p, &alone, 1);
    for (int i = 0; i < 8; i++)
        ck_assert_double_eq_tol(p.metrics[i], alone.metrics[i], CLOSE);
    forget(&alone);
    forget(&p);
}
END_TEST

/* The share of an answer's ids that are even. Rank 1 may stop, or have no number to give. */
static int32_t reward_even(void *user, const mm_answer *a, double *reward)
{
    ear *e = user;
    double even = 0;
    for (int64_t i = 0; i < a->count; i++)
        even += a->ids[i] % 2 == 0;
    *reward = a->count > 0 ? even / (double)a->count : 0;
    e->answers++;
    if (e->rank == 1 && e->answers == -e->p->stop_at)
        *reward = NAN;
    return e->rank == 1 && e->answers == e->p->stop_at;
}

/* 7 prompts in batches of 4: of four ranks the last one is left without in every other step. */
static plan plan_of_rewards(void)
{
    char text[1024] = "";
    for (int i = 0; i < 7; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text), "{\"question\": \"%d\", \"answer\": \"%d\"}\n", i, i);
    snprintf(rows, sizeof rows, "%s", put_file(scratch_directory(), "prompts.jsonl", text, strlen(text)));
    plan p = plan_of(MM_ROWS_PAD);
    p.policy = (mm_policy_training)MM_POLICY_TRAINING_INIT;
    p.policy.reward = reward_even;
    p.policy.group = 4;
    p.policy.max_new_tokens = 5;
    p.options.loader.kind = MM_ROW_PROMPT;
    p.options.loader.template_name = "minillm";
    p.options.trainer.stage = MM_STAGE_POLICY;
    p.options.trainer.accumulation_steps = 2;
    p.stopper = -1;
    return p;
}

START_TEST(prompts_are_shared_out_and_all_learn_from_all_answers)
{
    plan alone = plan_of_rewards(), p = plan_of_rewards(), again = plan_of_rewards();
    train(&alone, 1);
    train(&p, 4); /* which sees to it that all ranks end with the same bits */
    train(&again, 4);
    ck_assert_int_eq(p.last.step, alone.last.step);
    ck_assert_int_eq(p.last.updates, alone.last.updates);
    ck_assert(memcmp(p.weights[0], alone.weights[0], p.count * sizeof(float)) != 0); /* answers are drawn by rank */
    ck_assert(memcmp(p.weights[0], again.weights[0], p.count * sizeof(float)) == 0);
    ck_assert_double_gt(p.metrics[0], 0); /* rewards */
    forget(&alone);
    forget(&p);
    forget(&again);
}
END_TEST

/* In the midst of the first update, which is taken back, behind it, and in the midst of the second one. */
START_TEST(a_rank_that_wants_no_more_answers_stops_all)
{
    static const struct {
        int64_t stop_at, ended;
    } cases[] = { { 9, 0 }, { 15, 2 }, { 21, 2 } };
    plan p = plan_of_rewards();
    p.stop_at = cases[_i].stop_at;
    train(&p, 2);
    ck_assert_int_eq(p.ended, cases[_i].ended);
    forget(&p);
}
END_TEST

START_TEST(a_reward_that_is_not_finite_stops_all)
{
    plan p = plan_of_rewards();
    p.stop_at = -6;
    p.expected[0] = MM_ERR_CANCELLED;
    p.expected[1] = MM_ERR_NUMERIC;
    train(&p, 2);
    ck_assert_ptr_nonnull(strstr(p.story[1], "the reward of answer"));
    ck_assert_ptr_nonnull(strstr(p.story[0], "rank 1 gave up: "));
    forget(&p);
}
END_TEST

/* What a prompt's answers get differs from prompt to prompt, even if they are the same. */
static int32_t reward_by_row(void *user, const mm_answer *a, double *reward)
{
    (void)user;
    *reward = (double)(a->row * 3 % 7) + (double)(a->count > 0 ? a->ids[0] % 2 : 0);
    return 0;
}

/* PPO with so many updates from the same answers, which at this temperature are the likeliest ones on every rank. */
static plan plan_of_values(int32_t updates)
{
    plan p = plan_of_rewards();
    p.policy.variant = MM_POLICY_PPO;
    p.policy.reward = reward_by_row;
    p.policy.group = 1;
    p.policy.temperature = 1e-3F;
    p.policy.updates = updates;
    p.options.trainer.accumulation_steps = updates > 1 ? 1 : 2;
    p.options.trainer.epochs = 4;
    p.options.trainer.eps = 1e-6; /* an update does not depend on the sign of what is but rounding */
    return p;
}

START_TEST(values_are_learnt_as_on_one_rank)
{
    plan alone = plan_of_values(_i);
    train(&alone, 1);
    ck_assert_int_ge(alone.last.step, 8);
    ck_assert_double_gt(fabs(alone.losses[1]), 0.1); /* there is something to learn */
    for (int32_t size = 2; size <= 4; size *= 2) {
        plan p = plan_of_values(_i);
        train(&p, size);
        ck_same_run(&p, &alone, 1);
        for (int i = 0; i < 8; i++)
            ck_assert_double_eq_tol(p.metrics[i], alone.metrics[i], CLOSE);
        forget(&p);
    }
    forget(&alone);
}
END_TEST

/* An answer gets what it is long; each rank keeps how many tokens it had, and half the squares of what they got. */
static int32_t reward_length(void *user, const mm_answer *a, double *reward)
{
    ear *e = user;
    double tokens = (double)a->count + (a->finish == MM_FINISH_STOP);
    *reward = tokens / 16;
    e->p->tokens[e->rank] += tokens;
    e->p->squares[e->rank] += tokens * *reward * *reward / 2;
    return 0;
}

/* As long as the head expects nothing, what it misses of a token is all that its answer gets. */
START_TEST(readings_of_tokens_are_means_over_those_of_all_ranks)
{
    plan p = plan_of_rewards();
    int32_t size = 1 << _i;
    double tokens = 0, squares = 0;
    p.policy.variant = MM_POLICY_PPO;
    p.policy.reward = reward_length;
    p.policy.max_new_tokens = 60;
    p.policy.gamma = p.policy.lambda = 1;
    p.options.trainer.max_steps = 1;
    train(&p, size);
    for (int32_t r = 0; r < size; r++) {
        tokens += p.tokens[r];
        squares += p.squares[r];
    }
    ck_assert(p.metrics[5] > 0 && p.metrics[5] < 1); /* some stopped before the end, so they are not of one length */
    ck_assert_double_eq_tol(p.metrics[4], tokens / 16, CLOSE);
    ck_assert_double_eq_tol(p.metrics[6], squares / tokens, CLOSE);
    forget(&p);
}
END_TEST

START_TEST(learning_from_answers_again_goes_on_with_another_number_of_ranks)
{
    for (int32_t before = 1; before <= 2; before++) {
        char output[512];
        snprintf(output, sizeof output, "%s", scratch_directory());
        plan whole = plan_of_values(3), first = plan_of_values(3);
        train(&whole, before);
        first.options.trainer.output = output;
        first.stop_at = before == 1 ? 6 : 4; /* of several ranks none stops before the third update */
        first.stopper = before - 1;
        train(&first, before);
        ck_assert_int_eq(first.last.step, 6);
        for (int32_t after = 1; after <= 2; after++) {
            plan second = plan_of_values(3);
            second.resume = output;
            train(&second, after);
            ck_same_run(&second, &whole, 7);
            if (before == after)
                ck_assert(memcmp(second.weights[0], whole.weights[0], whole.count * sizeof(float)) == 0);
            forget(&second);
        }
        forget(&first);
        forget(&whole);
    }
}
END_TEST

static void resume_among_answers(const world_rank *self)
{
    plan *p = self->shared;
    tiny_run run;
    tiny_options o = options_of(&p->options, self->comm);
    mm_policy_training policy = p->policy;
    o.trainer.policy = &policy;
    tiny_start(&run, &o);
    ck_status(mm_trainer_resume(run.trainer, p->resume), MM_ERR_FORMAT);
    ck_error_mentions("in the midst of its updates from 3 answers");
    tiny_end(&run);
}

START_TEST(answers_of_one_rank_are_not_for_several)
{
    char output[512];
    snprintf(output, sizeof output, "%s", scratch_directory());
    plan first = plan_of_values(3), second = plan_of_values(3);
    first.options.trainer.output = second.resume = output;
    first.stop_at = 4;
    first.stopper = 0;
    train(&first, 1);
    ck_assert_int_eq(first.last.step, 4);
    world_run(WORLD_LOCAL, 2, resume_among_answers, &second);
    forget(&first);
}
END_TEST

START_TEST(experts_balance_as_on_one_rank)
{
    plan alone = plan_of(MM_ROWS_PAD), p = plan_of(MM_ROWS_PAD);
    alone.options.moe = p.options.moe = true;
    /* one update: in the next steps a token may go to another expert for a digit's sake */
    alone.options.trainer.max_steps = p.options.trainer.max_steps = 3;
    train(&alone, 1);
    train(&p, 4);
    ck_same_run(&p, &alone, 1);
    ck_assert_double_eq_tol(p.last.grad_norm, alone.last.grad_norm, CLOSE * alone.last.grad_norm);
    forget(&alone);
    forget(&p);
}
END_TEST

START_TEST(ranks_that_begin_with_other_weights_take_those_of_rank_0)
{
    plan p = plan_of(MM_ROWS_PAD), q = plan_of(MM_ROWS_PAD);
    p.own_weights = true;
    train(&p, 2);
    train(&q, 2);
    ck_assert(memcmp(p.weights[0], q.weights[0], p.count * sizeof(float)) == 0);
    forget(&p);
    forget(&q);
}
END_TEST

/* A link that breaks in the midst of its so manieth broadcast. */
typedef struct frail {
    mm_comm *comm;
    int left;
} frail;
static mm_status send_half(void *user, void *data, size_t size, int32_t root)
{
    frail *f = user;
    mm_status status = f->comm->broadcast(f->comm->user, data, size, root);
    if (status != MM_OK || --f->left > 0)
        return status;
    memset(data, 0xFF, size); /* anything, as comm.h allows */
    return mm_set_last_error(MM_ERR_IO, "the line is cut");
}
static mm_status reduce_f64(void *user, double *data, int64_t count)
{
    mm_comm *comm = ((frail *)user)->comm;
    return comm->all_reduce_f64(comm->user, data, count);
}
static mm_status leave(void *user, const char *reason)
{
    mm_comm *comm = ((frail *)user)->comm;
    return comm->abort(comm->user, reason);
}

static void level_in_part(const world_rank *self)
{
    plan *p = self->shared;
    frail link = { self->comm, 5 }; /* two for what is trained, one for a hash, one tensor; and another */
    mm_comm comm = *self->comm;
    tiny_run run;
    if (self->rank == 1) {
        comm.user = &link;
        comm.broadcast = send_half;
        comm.all_reduce_f64 = reduce_f64;
        comm.abort = leave;
    }
    tiny_options o = options_of(&p->options, &comm);
    o.weights += (uint64_t)self->rank;
    tiny_start(&run, &o);
    size_t count;
    float *before = tiny_weights(run.model, &count);
    mm_status status = mm_trainer_run(run.trainer);
    p->weights[self->rank] = tiny_weights(run.model, &count);
    if (self->rank == 1) {
        ck_status(status, MM_ERR_IO);
        ck_error_mentions("1 of ");
        ck_error_mentions("tensors are rank 0's now, the others this rank's own: the line is cut");
    } else {
        ck_assert_int_ne(status, MM_OK);
        ck_assert(memcmp(before, p->weights[0], count * sizeof(float)) == 0);
    }
    p->count = count;
    for (size_t i = 0; i < count; i++)
        ck_assert(isfinite(p->weights[self->rank][i]));
    free(before);
    tiny_end(&run);
}

START_TEST(weights_that_came_in_part_are_told_and_none_is_half_of_one)
{
    plan p = plan_of(MM_ROWS_PAD);
    world_run(WORLD_LOCAL, 2, level_in_part, &p);
    ck_assert_float_eq(p.weights[1][0], p.weights[0][0]);
    ck_assert(memcmp(p.weights[1], p.weights[0], p.count * sizeof(float)) != 0);
    forget(&p);
}
END_TEST

START_TEST(only_rank_0_writes_checkpoints_and_between_updates_nobody)
{
    char output[512], second[520], path[600];
    snprintf(output, sizeof output, "%s/out", scratch_directory());
    snprintf(second, sizeof second, "%s-1", output);
    plan p = plan_of(MM_ROWS_PAD);
    p.options.trainer.output = output;
    p.options.trainer.save_interval = 1; /* with an update every third step, and at an epoch's end, the sixth */
    p.options.trainer.keep_last = 0;
    p.own_output = true;
    train(&p, 2);
    ck_assert(mmi_is_directory(output));
    ck_assert(!mmi_file_exists(second));
    for (int step = 1; step <= 18; step++) {
        snprintf(path, sizeof path, "%s/step-%d", output, step);
        ck_assert_msg(mmi_is_directory(path) == (step % 3 == 0), "%s", path);
    }
    plan q = plan_of(MM_ROWS_PAD);
    q.resume = output;
    train(&q, 1);
    ck_assert_int_eq(q.last.step, 0); /* there was nothing left to do */
    ck_assert(memcmp(p.weights[0], q.weights[0], p.count * sizeof(float)) == 0);
    forget(&p);
    forget(&q);
}
END_TEST

START_TEST(a_rank_that_finds_a_bad_line_stops_all_and_the_checkpoint_is_whole)
{
    char output[512];
    plan p = plan_of(MM_ROWS_PAD), q = plan_of(MM_ROWS_PAD);
    FILE *f = fopen(rows, "a");
    fprintf(f, "{\"text\": 7}\n"); /* row 23 of 24, rank 1's */
    fclose(f);
    snprintf(output, sizeof output, "%s", scratch_directory());
    p.options.loader.shuffle = q.options.loader.shuffle = 0;
    p.options.trainer.output = output;
    p.expected[0] = MM_ERR_CANCELLED;
    p.expected[1] = MM_ERR_FORMAT;
    train(&p, 2);
    ck_assert_ptr_nonnull(strstr(p.story[1], "rows.jsonl:24"));
    ck_assert_ptr_nonnull(strstr(p.story[0], "rank 1 gave up: "));
    ck_assert_ptr_nonnull(strstr(p.story[0], "rows.jsonl:24"));
    q.resume = output;
    q.options.loader.skip_bad_lines = 1;
    train(&q, 2);
    ck_assert_int_eq(q.last.step, 18);
    forget(&p);
    forget(&q);
}
END_TEST

START_TEST(rows_that_no_rank_can_read_are_an_error_as_they_are_alone)
{
    plan p = plan_of(MM_ROWS_PAD);
    snprintf(rows, sizeof rows, "%s", put_file(scratch_directory(), "bad.jsonl", "{}\n{}\n{}\n{}\n{}\n", 15));
    p.options.loader.skip_bad_lines = 1;
    for (int32_t r = 0; r < _i; r++)
        p.expected[r] = MM_ERR_FORMAT;
    train(&p, _i);
    for (int32_t r = 0; r < _i; r++)
        ck_assert_msg(strstr(p.story[r], "bad.jsonl: not one row of it can be read") != NULL, "%s", p.story[r]);
    forget(&p);
}
END_TEST

/* In place of the directory there is a file in the end. */
static int32_t lose_output(void *user, const mm_train_progress *progress)
{
    if (progress->step == progress->total_steps) {
        ck_assert_int_eq(rmdir(user), 0);
        ck_assert_int_eq(close(creat(user, 0666)), 0);
    }
    return 0;
}

static void save_nothing(const world_rank *self)
{
    plan *p = self->shared;
    tiny_run run;
    tiny_options o = options_of(&p->options, self->comm);
    o.trainer.on_step = self->rank == 0 ? lose_output : NULL;
    o.trainer.user = (char *)o.trainer.output;
    tiny_start(&run, &o);
    ck_status(mm_trainer_run(run.trainer), self->rank == 0 ? MM_ERR_IO : MM_ERR_CANCELLED);
    ck_error_mentions(self->rank == 0 ? o.trainer.output : "rank 0 gave up: ");
    tiny_end(&run);
}

START_TEST(all_ranks_hear_that_the_last_checkpoint_could_not_be_written)
{
    char output[520];
    snprintf(output, sizeof output, "%s/out", scratch_directory());
    plan p = plan_of(MM_ROWS_PAD);
    p.options.trainer.output = output;
    world_run(WORLD_LOCAL, 2, save_nothing, &p);
}
END_TEST

START_TEST(ranks_of_different_runs_are_told_what_differs)
{
    static const char *const stories[] = { [OWN_RATE] = "learning_rate of rank 0 is 0.001, that of rank 1 is 0.002",
                                           [OWN_VALIDATION] = "validation_hash of rank 0 is ",
                                           [OWN_INTERVAL] = "eval_interval of rank 0 is 4, that of rank 1 is 5",
                                           [OWN_LENGTH] = "max_length of rank 0's validation is 24, that of rank 1's "
                                                          "validation is 23",
                                           [OWN_TARGETS] = "targets of rank 0 is \"q_proj,v_proj\", that of rank 1 is "
                                                           "\"q_proj,o_proj\"" };
    plan p = plan_of(MM_ROWS_PAD);
    p.own = _i;
    p.expected[0] = MM_ERR_CANCELLED;
    p.expected[1] = MM_ERR_STATE;
    p.options.validation = _i == OWN_RATE || _i == OWN_TARGETS ? NULL : rows;
    p.options.trainer.eval_interval = _i == OWN_INTERVAL ? 4 : 0;
    p.options.rank = _i == OWN_TARGETS ? 3 : 0;
    p.options.targets = "q_proj,v_proj";
    world_run(WORLD_TCP4, 2, train_one, &p);
    ck_assert_msg(strstr(p.story[1], stories[_i]) != NULL, "%s", p.story[1]);
    ck_assert_msg(strstr(p.story[0], "rank 1 gave up: ranks that do not fit together: ") != NULL, "%s", p.story[0]);
    forget(&p);
}
END_TEST

/* A rank of a run that is not to end: 0 if it ended for the death of rank 1, and what it learnt could be saved. */
static int train_until_it_fails(const char *place, int32_t rank, int32_t size, void *shared)
{
    plan *p = shared;
    mm_comm *comm = NULL;
    tiny_run run;
    if (world_join(WORLD_TCP4, place, rank, size, &comm) != MM_OK)
        return 10;
    tiny_options o = options_of(&p->options, comm);
    tiny_start(&run, &o);
    mm_status status = mm_trainer_run(run.trainer);
    bool named = world_tells_of_death(mm_last_error(), 1);
    if (!named)
        fprintf(stderr, "# rank %d: %s\n", rank, mm_last_error());
    bool saved = mm_trainer_save(run.trainer) == MM_OK;
    tiny_end(&run);
    mm_comm_free(comm);
    return status != MM_ERR_IO ? 11 : !named ? 12 : !saved ? 13 : 0;
}

START_TEST(when_a_rank_is_killed_the_others_stop_and_the_checkpoint_is_whole)
{
    char place[400], output[512], latest[600];
    int process[3];
    plan p = plan_of(MM_ROWS_PACK), q = plan_of(MM_ROWS_PACK);
    if (!world_has(WORLD_TCP4))
        return;
    snprintf(place, sizeof place, "%s", world_place(WORLD_TCP4));
    snprintf(output, sizeof output, "%s", scratch_directory());
    p.options.loader.batch = 3 * GLOBAL_BATCH;
    p.options.trainer.epochs = 1000000;
    p.options.trainer.output = output;
    p.options.trainer.save_interval = 5;
    for (int32_t r = 0; r < 3; r++)
        process[r] = world_process(train_until_it_fails, place, r, 3, &p);
    double patience = mmi_now() + 60;
    snprintf(latest, sizeof latest, "%s/latest", output);
    while (!mmi_file_exists(latest) && mmi_now() < patience)
        nanosleep(&(struct timespec){ 0, 10000000 }, NULL);
    kill(process[1], SIGKILL);
    for (int32_t r = 0; r < 3; r++)
        ck_assert_int_eq(world_wait(process[r]), r == 1 ? -1 : 0);
    tiny_run run;
    q.options.loader.batch = 3 * GLOBAL_BATCH;
    q.options.trainer.epochs = 1000000;
    tiny_start(&run, &q.options);
    ck_ok(mm_trainer_resume(run.trainer, output));
    ck_assert_int_gt(tiny_steps(&run), 0);
    tiny_end(&run);
}
END_TEST

/* From step 2 on no loss is a number. */
static int32_t spoil(void *user, const mm_train_progress *progress)
{
    tiny_run *run = user;
    mm_view view;
    if (progress->step == 1) {
        ck_ok(mm_model_write(run->model, mm_model_tensor_count(run->model) - 1, &view));
        ((float *)view.data)[0] = NAN;
        mm_model_written(run->model);
    }
    return 0;
}

static void learn_nothing(const world_rank *self)
{
    plan *p = self->shared;
    tiny_run run;
    mm_train_progress last = MM_TRAIN_PROGRESS_INIT;
    tiny_options o = options_of(&p->options, self->comm);
    o.trainer.on_step = spoil;
    o.trainer.user = &run;
    o.trainer.max_skips = 6; /* up to step 7: the second update has none to learn from */
    tiny_start(&run, &o);
    ck_status(mm_trainer_run(run.trainer), MM_ERR_NUMERIC);
    ck_error_mentions("step 8: the loss is nan");
    ck_ok(mm_trainer_progress(run.trainer, &last));
    ck_assert_int_eq(last.step, 6);
    ck_assert_int_eq(last.updates, 1);
    tiny_end(&run);
}

static void stumble(const world_rank *self)
{
    plan *p = self->shared;
    tiny_run run;
    tiny_options o = options_of(&p->options, self->comm);
    o.trainer.on_step = self->rank == p->stopper ? spoil : NULL;
    o.trainer.user = &run;
    tiny_start(&run, &o);
    ck_status(mm_trainer_run(run.trainer), MM_ERR_NUMERIC);
    ck_error_mentions("step 2: the loss is nan");
    tiny_end(&run);
}

START_TEST(a_loss_that_is_no_number_on_one_rank_is_none_on_any)
{
    plan p = { .options = tiny_options_of((tiny_kind)_i, scratch_directory()) };
    p.options.loader.batch = GLOBAL_BATCH;
    for (p.stopper = 0; p.stopper < 2; p.stopper++)
        world_run(WORLD_LOCAL, 2, stumble, &p);
}
END_TEST

START_TEST(an_update_with_nothing_to_learn_from_is_none_on_any_rank)
{
    plan p = plan_of(MM_ROWS_PAD);
    world_run(WORLD_LOCAL, 2, learn_nothing, &p);
}
END_TEST

static int32_t try_to_save(void *user, const mm_train_progress *progress)
{
    if (progress->step == 1)
        ck_status(mm_trainer_save(*(mm_trainer **)user), MM_ERR_STATE);
    return 0;
}

static void save_too_early(const world_rank *self)
{
    plan *p = self->shared;
    tiny_run run;
    tiny_options o = options_of(&p->options, self->comm);
    o.trainer.on_step = try_to_save;
    o.trainer.user = &run.trainer;
    o.trainer.max_steps = 3;
    tiny_start(&run, &o);
    ck_ok(mm_trainer_run(run.trainer));
    tiny_end(&run);
}

START_TEST(a_communicator_that_does_not_fit_is_refused)
{
    tiny_run run;
    plan p = plan_of(MM_ROWS_PAD);
    mm_comm comm = MM_COMM_INIT;
    tiny_options o = p.options;
    o.trainer.comm = &comm;
    ck_ok(tiny_try(&run, &o)); /* of size 1 it needs no functions */
    tiny_end(&run);
    comm.size = 2;
    ck_status(tiny_try(&run, &o), MM_ERR_ARG);
    ck_error_mentions("lacks a function");
    tiny_end(&run);
    comm.rank = 2;
    ck_status(tiny_try(&run, &o), MM_ERR_ARG);
    ck_error_mentions("rank 2 of 2");
    tiny_end(&run);
    comm = (mm_comm)MM_COMM_INIT;
    o.loader.world = 2;
    ck_status(tiny_try(&run, &o), MM_ERR_ARG);
    ck_error_mentions("rank 0 of 1, the loader's rows are for rank 0 of 2");
    tiny_end(&run);
    char output[512];
    snprintf(output, sizeof output, "%s", scratch_directory());
    p.options.trainer.output = output;
    world_run(WORLD_LOCAL, 2, save_too_early, &p);
}
END_TEST

/* A link whose functions all fail with a status that means something else in a run. */
static int aborted;
static mm_status fail_numbers(void *user, float *data, int64_t count)
{
    (void)user, (void)data, (void)count;
    return mm_set_last_error(MM_ERR_NUMERIC, "the link is gone");
}
static mm_status fail_doubles(void *user, double *data, int64_t count)
{
    (void)data;
    return fail_numbers(user, NULL, count);
}
static mm_status fail_bytes(void *user, void *data, size_t size, int32_t root)
{
    (void)data, (void)size, (void)root;
    return fail_numbers(user, NULL, 0);
}
static mm_status fail_meeting(void *user)
{
    return fail_numbers(user, NULL, 0);
}
static mm_status do_nothing(void *user, double *data, int64_t count)
{
    (void)user, (void)data, (void)count;
    return MM_OK;
}
static mm_status send_nothing(void *user, void *data, size_t size, int32_t root)
{
    (void)user, (void)data, (void)size, (void)root;
    return MM_OK;
}
static mm_status count_abort(void *user, const char *story)
{
    (void)user, (void)story;
    aborted++;
    return MM_OK;
}

static mm_comm link_to_nobody(int32_t rank)
{
    mm_comm comm = MM_COMM_INIT;
    comm.rank = rank;
    comm.size = 2;
    comm.all_reduce = fail_numbers;
    comm.all_reduce_f64 = fail_doubles;
    comm.broadcast = fail_bytes;
    comm.barrier = fail_meeting;
    comm.abort = count_abort;
    return comm;
}

/* 0: every function fails; 1: that which sums gradients alone. */
START_TEST(a_communicator_that_fails_in_any_way_is_given_up)
{
    tiny_run run;
    plan p = plan_of(MM_ROWS_PAD);
    mm_comm comm = link_to_nobody(0);
    tiny_options o = p.options;
    aborted = 0;
    if (_i == 1) {
        comm.all_reduce_f64 = do_nothing;
        comm.broadcast = send_nothing;
    }
    o.trainer.comm = &comm;
    o.loader.world = 2;
    ck_ok(tiny_try(&run, &o));
    ck_status(mm_trainer_run(run.trainer), MM_ERR_IO);
    ck_error_mentions("the link is gone");
    ck_assert_int_ge(aborted, 1);
    tiny_end(&run);
}
END_TEST

/* Rank 1 of 2 with a validation that is shared out so. */
static mm_status try_validation(int32_t rank, int32_t world)
{
    mm_trainer *trainer = NULL;
    mm_loader *validation = NULL;
    tiny_run run;
    tiny_options o = plan_of(MM_ROWS_PAD).options;
    mm_comm comm = link_to_nobody(1);
    o.trainer.comm = &comm;
    o.loader.rank = 1;
    o.loader.world = 2;
    tiny_start(&run, &o);
    o.loader.rank = rank;
    o.loader.world = world;
    ck_ok(mm_loader_create(run.dataset, run.tokenizer, &o.loader, &validation));
    o.trainer.validation = validation;
    mm_status status = mm_trainer_create(run.model, run.loader, NULL, &o.trainer, &trainer);
    mm_trainer_free(trainer);
    mm_loader_free(validation);
    tiny_end(&run);
    return status;
}

START_TEST(a_validation_is_shared_out_as_the_ranks_are_or_whole_on_each)
{
    tiny_run run;
    tiny_options o = plan_of(MM_ROWS_PAD).options;
    ck_ok(try_validation(1, 2));
    ck_ok(try_validation(0, 1));
    ck_status(try_validation(0, 2), MM_ERR_ARG);
    ck_error_mentions("rank 1 of 2, the validation's rows are for rank 0 of 2");
    ck_status(try_validation(1, 3), MM_ERR_ARG);
    ck_error_mentions("for rank 1 of 3");
    plan alone = plan_of(MM_ROWS_PAD), p = plan_of(MM_ROWS_PAD);
    alone.options.validation = p.options.validation = rows;
    p.whole_validation = true;
    train(&alone, 1);
    train(&p, 2);
    ck_assert_double_eq_tol(p.last.validation_loss, alone.last.validation_loss, CLOSE);
    forget(&alone);
    forget(&p);
    tiny_start(&run, &o);
    mm_loader *half = NULL;
    mm_trainer *trainer = NULL;
    o.loader.world = 2;
    ck_ok(mm_loader_create(run.dataset, run.tokenizer, &o.loader, &half));
    o.trainer.validation = half;
    ck_status(mm_trainer_create(run.model, run.loader, NULL, &o.trainer, &trainer), MM_ERR_ARG);
    ck_error_mentions("rank 0 of 1, the validation's rows are for rank 0 of 2");
    mm_loader_free(half);
    tiny_end(&run);
}
END_TEST

START_TEST(only_the_rank_that_writes_holds_a_copy_of_what_is_written)
{
    tiny_run run;
    plan p = plan_of(MM_ROWS_PAD);
    mm_comm comm;
    tiny_options o = p.options;
    o.trainer.comm = &comm;
    o.trainer.output = scratch_directory();
    o.trainer.background_save = 1;
    o.loader.world = 2;
    for (int32_t rank = 0; rank < 2; rank++) {
        comm = link_to_nobody(rank);
        o.loader.rank = rank;
        tiny_start(&run, &o);
        ck_assert_int_eq(run.trainer->saver != NULL, rank == 0);
        tiny_end(&run);
    }
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("train/parallel");
    TCase *tc = tcase_create("parallel");
    tcase_add_checked_fixture(tc, start, NULL);
    tcase_add_loop_test(tc, losses_are_those_of_one_rank_with_the_same_global_batch, MM_ROWS_PAD, MM_ROWS_PACK + 1);
    tcase_add_loop_test(tc, a_run_goes_on_with_another_number_of_ranks_anywhere, MM_ROWS_PAD, MM_ROWS_PACK + 1);
    tcase_add_loop_test(tc, an_adapter_and_muon_learn_as_on_one_rank, 0, 2);
    tcase_add_loop_test(tc, every_stage_learns_as_on_one_rank, 0, 5);
    tcase_add_loop_test(tc, rows_without_a_target_count_wherever_they_stand, 0, 6);
    tcase_add_test(tc, prompts_are_shared_out_and_all_learn_from_all_answers);
    tcase_add_loop_test(tc, a_rank_that_wants_no_more_answers_stops_all, 0, 3);
    tcase_add_test(tc, a_reward_that_is_not_finite_stops_all);
    tcase_add_loop_test(tc, values_are_learnt_as_on_one_rank, 1, 3);
    tcase_add_loop_test(tc, readings_of_tokens_are_means_over_those_of_all_ranks, 0, 3);
    tcase_add_test(tc, learning_from_answers_again_goes_on_with_another_number_of_ranks);
    tcase_add_test(tc, answers_of_one_rank_are_not_for_several);
    tcase_add_test(tc, experts_balance_as_on_one_rank);
    tcase_add_test(tc, ranks_that_begin_with_other_weights_take_those_of_rank_0);
    tcase_add_test(tc, weights_that_came_in_part_are_told_and_none_is_half_of_one);
    tcase_add_test(tc, only_rank_0_writes_checkpoints_and_between_updates_nobody);
    tcase_add_test(tc, a_rank_that_finds_a_bad_line_stops_all_and_the_checkpoint_is_whole);
    tcase_add_loop_test(tc, rows_that_no_rank_can_read_are_an_error_as_they_are_alone, 1, 3);
    tcase_add_test(tc, all_ranks_hear_that_the_last_checkpoint_could_not_be_written);
    tcase_add_loop_test(tc, ranks_of_different_runs_are_told_what_differs, OWN_RATE, OWN_TARGETS + 1);
    tcase_add_test(tc, when_a_rank_is_killed_the_others_stop_and_the_checkpoint_is_whole);
    tcase_add_loop_test(tc, a_loss_that_is_no_number_on_one_rank_is_none_on_any, TINY_TEXT, TINY_CACHED + 1);
    tcase_add_test(tc, an_update_with_nothing_to_learn_from_is_none_on_any_rank);
    tcase_add_test(tc, a_communicator_that_does_not_fit_is_refused);
    tcase_add_loop_test(tc, a_communicator_that_fails_in_any_way_is_given_up, 0, 2);
    tcase_add_test(tc, a_validation_is_shared_out_as_the_ranks_are_or_whole_on_each);
    tcase_add_test(tc, only_the_rank_that_writes_holds_a_copy_of_what_is_written);
    tcase_set_timeout(tc, 120);
    suite_add_tcase(suite, tc);
    return suite;
}

int main(void)
{
    return run_suite(make_suite());
}
