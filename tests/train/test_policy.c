/* Learning from rewards: answers, what is learnt from them, and runs that go on where they stopped. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../data/texts.h"
#include "data/loader.h"
#include "tiny.h"
#include "train/rollout.h"

/* Prompts of several lengths; the reference of row i is i + 1 letters a. */
static const char *put_prompts(int rows)
{
    char *text = calloc(1, 200 * (size_t)rows);
    ck_assert_ptr_nonnull(text);
    for (int i = 0; i < rows; i++)
        sprintf(text + strlen(text),
                "{\"conversations\": [{\"role\": \"user\", \"content\": \"%.*s%d\"}, {\"role\": \"assistant\", "
                "\"content\": "
                "\"%.*s\"}]}\n",
                i % 5, "hello", i, i + 1, "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaa");
    const char *path = put_file(scratch_directory(), "prompts.jsonl", text, strlen(text));
    free(text);
    return path;
}

/* The share of ids that are even: something a model can learn in a few steps. */
static double even_share(const mm_answer *a)
{
    double even = 0;
    for (int64_t i = 0; i < a->count; i++)
        even += a->ids[i] % 2 == 0;
    return a->count > 0 ? even / (double)a->count : 0;
}

static int32_t reward_even(void *user, const mm_answer *a, double *reward)
{
    (void)user;
    *reward = even_share(a);
    return 0;
}

static mm_policy_training training_of(int32_t variant)
{
    mm_policy_training p = MM_POLICY_TRAINING_INIT;
    p.reward = reward_even;
    p.variant = variant;
    p.group = 4;
    p.max_new_tokens = 6;
    return p;
}

/* 7 prompts in batches of 3: 3 steps an epoch. */
static tiny_options options_for(const mm_policy_training *policy, const char *rows)
{
    tiny_options o = tiny_defaults(rows);
    o.loader.kind = MM_ROW_PROMPT;
    o.loader.template_name = "minillm";
    o.trainer.stage = MM_STAGE_POLICY;
    o.trainer.policy = policy;
    o.trainer.accumulation_steps = 1;
    o.trainer.epochs = 2;
    return o;
}

static double metric(const mm_train_progress *p, const char *name)
{
    for (int64_t i = 0; i < p->metric_count; i++)
        if (strcmp(p->metrics[i].name, name) == 0)
            return p->metrics[i].value;
    ck_abort_msg("no metric %s", name);
    return NAN;
}

/* --- Answers --- */

/* A rollout of 2 prompts by 8 answers, drawn with filters, and the context that wrote it. */
typedef struct written {
    mm_model *model;
    mm_context *context;
    mmi_rollout rollout;
    int32_t prompts[2][9], lengths[2];
} written;

static void write_rollout(written *w, float temperature)
{
    mm_context_options c = MM_CONTEXT_OPTIONS_INIT;
    mm_prompts prompts = MM_PROMPTS_INIT;
    mm_sampling sampling = MM_SAMPLING_INIT;
    test_rng rng = { 5 };
    const int32_t *ids[2] = { w->prompts[0], w->prompts[1] };
    w->model = tiny_model(3);
    c.max_batch = 16, c.max_length = 60, c.outputs = MM_OUT_LAST_LOGITS | MM_OUT_LOGPROBS, c.threads = 1;
    ck_ok(mm_context_create(w->model, &c, &w->context));
    for (int i = 0; i < 18; i++)
        w->prompts[i / 9][i % 9] = rng_between(&rng, 3, 258);
    w->lengths[0] = 9, w->lengths[1] = 2;
    prompts.ids = ids, prompts.lengths = w->lengths, prompts.count = 2;
    sampling.temperature = temperature, sampling.top_p = 0.95f, sampling.seed = 4;
    ck_ok(mmi_rollout_make(&w->rollout, 16, 48));
    ck_ok(mmi_rollout_write(&w->rollout, w->context, &prompts, 8, &sampling, 40, 2, 0));
}

static void end_rollout(written *w)
{
    mmi_rollout_free(&w->rollout);
    mm_context_free(w->context);
    mm_model_free(w->model);
}

START_TEST(a_row_is_its_prompt_and_answer_and_learns_the_answer_with_its_stop_id)
{
    written w;
    write_rollout(&w, 1);
    const mmi_rollout *r = &w.rollout;
    int stopped = 0;
    ck_assert_int_eq(r->rows, 16);
    for (int64_t i = 0; i < r->rows; i++) {
        const int32_t *ids = r->ids + i * r->length, *targets = r->targets + i * r->length,
                      *mask = r->mask + i * r->length;
        int64_t P = w.lengths[i / 8], end = P - 1 + r->answer_lengths[i];
        ck_assert(end <= r->length);
        ck_assert_mem_eq(ids, w.prompts[i / 8], (size_t)P * sizeof *ids);
        for (int64_t t = 0; t < r->length; t++) {
            ck_assert_int_eq(mask[t], t >= P - 1 && t < end);
            ck_assert_int_eq(targets[t] != -100, mask[t]);
            if (t + 1 < end && mask[t])
                ck_assert_int_eq(ids[t + 1], targets[t]);
            ck_assert(t < end || ids[t] == 0);
            ck_assert(mask[t] || r->old_logprobs[i * r->length + t] == 0);
        }
        stopped += r->finish[i] == MM_FINISH_STOP;
        ck_assert_int_eq(targets[end - 1] == 2, r->finish[i] == MM_FINISH_STOP);
    }
    ck_assert_int_gt(stopped, 0);
    end_rollout(&w);
}
END_TEST

START_TEST(the_logprobs_kept_are_the_policy_s_own_at_temperature_one)
{
    written w;
    write_rollout(&w, 0.7f);
    const mmi_rollout *r = &w.rollout;
    mm_batch b = MM_BATCH_INIT;
    mm_output out = MM_OUTPUT_INIT;
    b.ids = r->ids, b.targets = r->targets, b.batch = (int32_t)r->rows, b.length = (int32_t)r->length;
    b.outputs = MM_OUT_LOGPROBS;
    ck_ok(mm_forward(w.context, &b, &out));
    for (int64_t i = 0; i < r->rows * r->length; i++)
        if (r->mask[i])
            ck_assert_float_eq_tol(r->old_logprobs[i], ((float *)out.logprobs.data)[i], 2e-5f);
    end_rollout(&w);
}
END_TEST

/* What the callback was told. */
typedef struct told {
    int64_t calls, stop_at, nan_at; /* -1: never */
    int32_t sample;                 /* of the last answer */
} told;

static int32_t look(void *user, const mm_answer *a, double *reward)
{
    told *t = user;
    int64_t call = t->calls++;
    ck_assert_uint_eq(a->struct_size, sizeof *a);
    ck_assert_uint_eq(strlen(a->prompt), a->prompt_length);
    ck_assert_uint_eq(a->text[a->text_length], 0);
    ck_assert_uint_eq(a->reference_length, (size_t)a->row + 1);
    ck_assert_int_eq(a->reference[a->row + 1], 0);
    ck_assert_ptr_nonnull(strstr(a->prompt, "user"));
    ck_assert(a->sample == 0 || a->sample == t->sample + 1); /* from 0 again when a step is tried again */
    t->sample = a->sample;
    ck_assert(a->finish == MM_FINISH_STOP ? a->count < 6 : a->count == 6);
    *reward = call == t->nan_at ? NAN : even_share(a);
    return call == t->stop_at;
}

START_TEST(every_answer_is_shown_with_its_prompt_and_reference)
{
    told t = { .stop_at = -1, .nan_at = -1 };
    mm_policy_training policy = training_of(MM_POLICY_GRPO);
    policy.reward = look;
    policy.user = &t;
    tiny_options o = options_for(&policy, put_prompts(7));
    tiny_run run;
    mm_train_progress p = MM_TRAIN_PROGRESS_INIT;
    tiny_start(&run, &o);
    ck_ok(mm_trainer_progress(run.trainer, &p));
    ck_assert_int_eq(p.total_steps, 6);
    ck_ok(mm_trainer_run(run.trainer));
    ck_assert_int_eq(t.calls, 2 * 7 * 4);
    ck_ok(mm_trainer_progress(run.trainer, &p));
    ck_assert_int_eq(p.step, 6);
    ck_assert(metric(&p, "answer_length") > 0 && metric(&p, "answer_length") <= 6);
    ck_assert(metric(&p, "kl") > 0 && metric(&p, "reward") > 0 && metric(&p, "reward_deviation") > 0);
    tiny_end(&run);
}
END_TEST

static int32_t count_ends(void *user, const mm_answer *a, double *reward)
{
    *(int *)user += a->finish == MM_FINISH_STOP;
    *reward = even_share(a);
    return 0;
}

/* As of the models that MiniMind-3's own script exports, whose tokenizer alone knows what ends a turn. */
START_TEST(answers_end_with_their_turn_where_the_config_names_no_eos)
{
    int ended = 0;
    mm_policy_training policy = training_of(MM_POLICY_GRPO);
    policy.reward = count_ends;
    policy.user = &ended;
    policy.max_new_tokens = 60;
    tiny_options o = options_for(&policy, put_prompts(7));
    tiny_run run;
    o.endless = true;
    tiny_start(&run, &o);
    ck_ok(mm_trainer_run(run.trainer));
    ck_assert_int_gt(ended, 0);
    tiny_end(&run);
}
END_TEST

static int32_t reward_one(void *user, const mm_answer *a, double *reward)
{
    (void)user;
    (void)a;
    *reward = 1;
    return 0;
}

START_TEST(equal_rewards_have_themselves_as_mean_and_do_not_deviate)
{
    mm_policy_training policy = training_of(MM_POLICY_GRPO);
    policy.reward = reward_one;
    policy.group = 3; /* a third is no float */
    tiny_options o = options_for(&policy, put_prompts(7));
    tiny_run run;
    mm_train_progress p = MM_TRAIN_PROGRESS_INIT;
    tiny_start(&run, &o);
    ck_ok(mm_trainer_run(run.trainer));
    ck_ok(mm_trainer_progress(run.trainer, &p));
    ck_assert_double_eq_tol(metric(&p, "reward"), 1, 1e-12);
    ck_assert_double_eq_tol(metric(&p, "reward_deviation"), 0, 1e-12);
    tiny_end(&run);
}
END_TEST

/* --- Learning --- */

typedef struct curve {
    double rewards[200];
    int n;
} curve;

static int32_t keep_reward(void *user, const mm_train_progress *p)
{
    curve *c = user;
    c->rewards[c->n++] = metric(p, "reward");
    return 0;
}

static double mean(const double *x, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += x[i] / n;
    return sum;
}

START_TEST(what_is_rewarded_is_said_more_often)
{
    curve c = { .n = 0 };
    mm_policy_training policy = training_of(_i);
    policy.updates = _i == MM_POLICY_PPO ? 2 : 1;
    policy.group = 8;
    tiny_options o = options_for(&policy, put_prompts(7));
    o.trainer.learning_rate = 2e-3;
    o.trainer.schedule = MM_SCHEDULE_CONSTANT;
    o.trainer.epochs = _i == MM_POLICY_PPO ? 10 : 20;
    o.trainer.on_step = keep_reward;
    o.trainer.user = &c;
    tiny_run run;
    tiny_start(&run, &o);
    ck_ok(mm_trainer_run(run.trainer));
    ck_assert_int_eq(c.n, 60);
    double first = mean(c.rewards, 10), last = mean(c.rewards + 50, 10);
    ck_assert_msg(last > first + 0.2, "%g after %g", last, first);
    tiny_end(&run);
}
END_TEST

START_TEST(the_number_of_threads_changes_nothing)
{
    mm_policy_training policy = training_of(MM_POLICY_PPO);
    tiny_options o = options_for(&policy, put_prompts(7));
    tiny_run one, three;
    tiny_start(&one, &o);
    ck_ok(mm_trainer_run(one.trainer));
    o.trainer.threads = 3;
    tiny_start(&three, &o);
    ck_ok(mm_trainer_run(three.trainer));
    tiny_check_same(&three, &one);
    tiny_end(&one);
    tiny_end(&three);
}
END_TEST

/* Spoils the model once the answers of step 3 are there, until they have been learnt from the first time. */
typedef struct spoiler {
    tiny_run *run;
    int64_t answers;
    float kept;
    double losses[7], value_losses[7]; /* by step */
} spoiler;

static void swap_weight(spoiler *s, float *x)
{
    mm_view view;
    ck_ok(mm_model_write(s->run->model, mm_model_tensor_count(s->run->model) - 1, &view));
    float before = *(float *)view.data;
    *(float *)view.data = *x;
    *x = before;
    mm_model_written(s->run->model);
}

static int32_t reward_and_spoil(void *user, const mm_answer *a, double *reward)
{
    spoiler *s = user;
    *reward = even_share(a);
    if (++s->answers == 2 * 3 * 4)
        swap_weight(s, &s->kept);
    return 0;
}

static int32_t mend(void *user, const mm_train_progress *p)
{
    spoiler *s = user;
    s->losses[p->step] = p->loss;
    s->value_losses[p->step] = metric(p, "value_loss");
    if (p->step == 3)
        swap_weight(s, &s->kept);
    return p->step == 6;
}

/* Then nothing can be said of how good they were, not even when the model is well again. */
START_TEST(values_that_are_no_numbers_are_passed_over_and_nothing_is_made_of_them)
{
    tiny_run run;
    spoiler s = { .run = &run, .kept = NAN };
    mm_policy_training policy = training_of(MM_POLICY_PPO);
    policy.reward = reward_and_spoil;
    policy.user = &s;
    policy.updates = 2;
    tiny_options o = options_for(&policy, put_prompts(9));
    o.trainer.max_skips = 2;
    o.trainer.on_step = mend;
    o.trainer.user = &s;
    tiny_start(&run, &o);
    ck_ok(mm_trainer_run(run.trainer));
    for (int step = 1; step <= 6; step++) {
        bool odd = step == 3 || step == 4;
        ck_assert_msg(isfinite(s.losses[step]) == !odd, "step %d: %g", step, s.losses[step]);
        ck_assert_msg(odd ? isnan(s.value_losses[step]) : s.value_losses[step] > 0, "step %d: %g", step, s.value_losses[step]);
    }
    mm_train_progress p = MM_TRAIN_PROGRESS_INIT;
    ck_ok(mm_trainer_progress(run.trainer, &p));
    ck_assert_int_eq(p.updates, 4);
    tiny_end(&run);
}
END_TEST

/* --- Going on --- */

static int32_t stop_at(void *user, const mm_train_progress *p)
{
    return p->step == *(const int64_t *)user;
}

/* A run that was never stopped, and one that is stopped at `step`, thrown away and resumed. */
static void check_resume(const tiny_options *options, int64_t step)
{
    tiny_options o = *options;
    tiny_run whole, part;
    char output[600];
    snprintf(output, sizeof output, "%s/run", scratch_directory());
    tiny_start(&whole, &o);
    ck_ok(mm_trainer_run(whole.trainer));
    o.trainer.output = output;
    o.trainer.on_step = stop_at;
    o.trainer.user = &step;
    tiny_start(&part, &o);
    ck_ok(mm_trainer_run(part.trainer));
    ck_assert_int_eq(tiny_steps(&part), step);
    tiny_end(&part);
    o.trainer.on_step = NULL;
    tiny_start(&part, &o);
    ck_ok(mm_trainer_resume(part.trainer, output));
    ck_ok(mm_trainer_run(part.trainer));
    tiny_check_same(&part, &whole);
    tiny_end(&part);
    tiny_end(&whole);
}

START_TEST(a_resumed_run_ends_with_the_same_bits)
{
    test_rng rng = { 70 + (unsigned)_i };
    mm_policy_training policy = training_of(_i % 3);
    policy.updates = _i % 2 ? 3 : 1;
    tiny_options o = options_for(&policy, put_prompts(7));
    o.trainer.accumulation_steps = _i % 2 ? 1 : 2;
    o.rank = _i % 4 < 2 ? 0 : 3; /* an adapter, whose reference is the model */
    check_resume(&o, rng_between(&rng, 1, _i % 2 ? 17 : 5));
}
END_TEST

/* Three updates from each set of answers, which are kept as long as the run needs them. */
START_TEST(a_run_becomes_longer_behind_its_last_update_from_a_set_of_answers)
{
    mm_policy_training policy = training_of(MM_POLICY_GRPO);
    policy.updates = 3;
    tiny_options o = options_for(&policy, put_prompts(7));
    o.trainer.accumulation_steps = 1;
    o.trainer.schedule = MM_SCHEDULE_CONSTANT;
    tiny_run whole, part;
    tiny_start(&whole, &o);
    ck_ok(mm_trainer_run(whole.trainer));
    ck_assert_int_eq(tiny_steps(&whole), 18);
    for (int64_t steps = 8; steps <= 9; steps++) {
        o.trainer.output = scratch_directory();
        o.trainer.max_steps = steps;
        tiny_start(&part, &o);
        ck_ok(mm_trainer_run(part.trainer));
        tiny_end(&part);
        o.trainer.max_steps = 0;
        tiny_start(&part, &o);
        if (steps == 9) {
            ck_ok(mm_trainer_resume(part.trainer, o.trainer.output));
            ck_ok(mm_trainer_run(part.trainer));
            tiny_check_same(&part, &whole);
        } else {
            ck_status(mm_trainer_resume(part.trainer, o.trainer.output), MM_ERR_FORMAT);
            ck_error_mentions("it can't become longer");
            ck_assert_int_eq(tiny_steps(&part), 0);
        }
        tiny_end(&part);
    }
    tiny_end(&whole);
}
END_TEST

START_TEST(beside_an_adapter_the_reference_is_the_model_itself)
{
    mm_policy_training policy = training_of(_i);
    tiny_options o = options_for(&policy, put_prompts(7));
    tiny_run shared, copied;
    size_t count;
    o.rank = 3;
    tiny_start(&shared, &o);
    float *before = tiny_weights(shared.model, &count);
    ck_ok(mm_trainer_run(shared.trainer));
    float *after = tiny_weights(shared.model, &count);
    ck_assert(memcmp(before, after, count * sizeof *before) == 0);
    policy.reference = tiny_model(o.weights); /* the same weights once more */
    tiny_start(&copied, &o);
    ck_ok(mm_trainer_run(copied.trainer));
    tiny_check_same(&copied, &shared);
    mm_model_free(policy.reference);
    free(before);
    free(after);
    tiny_end(&shared);
    tiny_end(&copied);
}
END_TEST

START_TEST(the_model_that_learns_is_no_reference)
{
    mm_policy_training policy = training_of(MM_POLICY_GRPO);
    tiny_options o = options_for(&policy, put_prompts(7));
    tiny_run run;
    mm_trainer *made = NULL;
    tiny_start(&run, &o);
    policy.reference = run.model;
    ck_status(mm_trainer_create(run.model, run.loader, run.tokenizer, &o.trainer, &made), MM_ERR_ARG);
    ck_error_mentions("the reference is the model that is trained");
    tiny_end(&run);
}
END_TEST

START_TEST(a_callback_that_stops_leaves_the_run_before_its_step)
{
    told never = { .stop_at = -1, .nan_at = -1 }, once = { .stop_at = 17, .nan_at = -1 };
    mm_policy_training policy = training_of(MM_POLICY_GRPO);
    policy.reward = look;
    policy.user = &never;
    tiny_options o = options_for(&policy, put_prompts(7));
    tiny_run whole, part;
    tiny_start(&whole, &o);
    ck_ok(mm_trainer_run(whole.trainer));
    policy.user = &once;
    tiny_start(&part, &o);
    ck_ok(mm_trainer_run(part.trainer));
    ck_assert_int_eq(tiny_steps(&part), 1); /* 12 answers in the first step */
    ck_ok(mm_trainer_run(part.trainer));
    tiny_check_same(&part, &whole);
    tiny_end(&whole);
    tiny_end(&part);
}
END_TEST

START_TEST(a_reward_that_is_not_finite_is_named_and_the_step_can_be_tried_again)
{
    told never = { .stop_at = -1, .nan_at = -1 }, once = { .stop_at = -1, .nan_at = 17 };
    mm_policy_training policy = training_of(MM_POLICY_CISPO);
    policy.reward = look;
    policy.user = &never;
    tiny_options o = options_for(&policy, put_prompts(7));
    tiny_run whole, part;
    o.loader.shuffle = 0;
    tiny_start(&whole, &o);
    ck_ok(mm_trainer_run(whole.trainer));
    policy.user = &once;
    tiny_start(&part, &o);
    ck_status(mm_trainer_run(part.trainer), MM_ERR_NUMERIC);
    ck_error_mentions("step 2");
    ck_error_mentions("prompts.jsonl:5"); /* the second prompt of the second batch */
    ck_error_mentions("answer 1");
    ck_ok(mm_trainer_run(part.trainer));
    tiny_check_same(&part, &whole);
    tiny_end(&whole);
    tiny_end(&part);
}
END_TEST

/* --- Held wrong --- */

START_TEST(a_checkpoint_of_other_options_or_another_reference_is_refused)
{
    char output[600];
    int64_t step = 2;
    mm_policy_training policy = training_of(MM_POLICY_GRPO);
    tiny_options o = options_for(&policy, put_prompts(7));
    tiny_run run;
    snprintf(output, sizeof output, "%s/run", scratch_directory());
    o.trainer.output = output;
    o.trainer.on_step = stop_at;
    o.trainer.user = &step;
    tiny_start(&run, &o);
    ck_ok(mm_trainer_run(run.trainer));
    tiny_end(&run);
    policy.group = 5;
    tiny_start(&run, &o);
    ck_status(mm_trainer_resume(run.trainer, output), MM_ERR_FORMAT);
    ck_error_mentions("group");
    tiny_end(&run);
    policy.group = 4;
    o.weights = 9;
    tiny_start(&run, &o);
    ck_status(mm_trainer_resume(run.trainer, output), MM_ERR_FORMAT);
    ck_error_mentions("reference_hash");
    tiny_end(&run);
    policy.reference = tiny_model(1); /* that of the saved run, under its own name */
    tiny_start(&run, &o);
    mm_model_free(policy.reference);
    ck_ok(mm_trainer_resume(run.trainer, output));
    tiny_end(&run);
}
END_TEST

static void refuse(const tiny_options *o, mm_status expected, const char *words)
{
    tiny_run run;
    ck_status(tiny_try(&run, o), expected);
    ck_error_mentions(words);
    tiny_end(&run);
}

START_TEST(training_held_wrong_is_named)
{
    mm_policy_training policy = training_of(MM_POLICY_GRPO), good = policy;
    tiny_options o = options_for(&policy, put_prompts(7));
#define WRONG(field, value, words) policy = good, policy.field = (value), refuse(&o, MM_ERR_ARG, words)
    WRONG(reward, NULL, "reward");
    WRONG(variant, 3, "variant");
    WRONG(group, 1, "group");
    WRONG(max_new_tokens, 0, "max_new_tokens");
    WRONG(max_new_tokens, INT32_MAX, "beyond this library");
    WRONG(max_new_tokens, 1 << 20, "max_new_tokens 1048576 come to");
    WRONG(updates, 0, "updates");
    WRONG(beta, -1, "beta");
    WRONG(epsilon, 1, "epsilon");
    WRONG(epsilon_high, 0, "epsilon_high");
    WRONG(epsilon_high, INFINITY, "epsilon_high"); /* no checkpoint could hold it */
    WRONG(gamma, 2, "gamma");
    WRONG(lambda, NAN, "lambda");
    WRONG(value_clip, NAN, "value_clip");
    WRONG(value_weight, -1, "value_weight");
    WRONG(value_rate, INFINITY, "value_rate");
    WRONG(temperature, 0, "temperature");
    WRONG(top_p, 0, "top_p");
    policy = good;
    policy.updates = 2;
    o.trainer.accumulation_steps = 2;
    refuse(&o, MM_ERR_ARG, "accumulation_steps");
    policy = good;
    o.trainer.policy = NULL;
    refuse(&o, MM_ERR_ARG, "policy");
    o.trainer.policy = &policy;
    o.trainer.stage = MM_STAGE_PLAIN;
    refuse(&o, MM_ERR_UNSUPPORTED, "prompts");
    o.trainer.stage = MM_STAGE_POLICY;
    o.loader.kind = MM_ROW_CHAT;
    refuse(&o, MM_ERR_UNSUPPORTED, "policy");
    o.loader.kind = MM_ROW_PROMPT;
    o.trainer.accumulation_steps = 1;
    o.validation = o.path;
    refuse(&o, MM_ERR_UNSUPPORTED, "the stage policy has no validation");
}
END_TEST

START_TEST(a_reference_of_another_vocabulary_is_refused)
{
    mm_policy_training policy = training_of(MM_POLICY_GRPO);
    tiny_options o = options_for(&policy, put_prompts(7));
    mm_config *config = tiny_config();
    ck_ok(mm_config_set_int(config, "vocab_size", 300));
    ck_ok(mm_model_create(config, 1, &policy.reference));
    refuse(&o, MM_ERR_ARG, "the reference's vocab_size is 300, the model's is 260");
    mm_model_free(policy.reference);
    mm_config_free(config);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("train/policy");
    TCase *answers = tcase_create("answers"), *runs = tcase_create("runs");
    tcase_add_test(answers, a_row_is_its_prompt_and_answer_and_learns_the_answer_with_its_stop_id);
    tcase_add_test(answers, the_logprobs_kept_are_the_policy_s_own_at_temperature_one);
    tcase_add_test(answers, every_answer_is_shown_with_its_prompt_and_reference);
    tcase_add_test(answers, answers_end_with_their_turn_where_the_config_names_no_eos);
    tcase_add_test(answers, equal_rewards_have_themselves_as_mean_and_do_not_deviate);
    tcase_set_timeout(answers, 60);
    suite_add_tcase(suite, answers);
    tcase_add_loop_test(runs, what_is_rewarded_is_said_more_often, MM_POLICY_GRPO, MM_POLICY_PPO + 1);
    tcase_add_test(runs, the_number_of_threads_changes_nothing);
    tcase_add_test(runs, values_that_are_no_numbers_are_passed_over_and_nothing_is_made_of_them);
    tcase_add_loop_test(runs, a_resumed_run_ends_with_the_same_bits, 0, 20);
    tcase_add_test(runs, a_run_becomes_longer_behind_its_last_update_from_a_set_of_answers);
    tcase_add_loop_test(runs, beside_an_adapter_the_reference_is_the_model_itself, MM_POLICY_GRPO, MM_POLICY_PPO + 1);
    tcase_add_test(runs, the_model_that_learns_is_no_reference);
    tcase_add_test(runs, a_callback_that_stops_leaves_the_run_before_its_step);
    tcase_add_test(runs, a_reward_that_is_not_finite_is_named_and_the_step_can_be_tried_again);
    tcase_add_test(runs, a_checkpoint_of_other_options_or_another_reference_is_refused);
    tcase_add_test(runs, training_held_wrong_is_named);
    tcase_add_test(runs, a_reference_of_another_vocabulary_is_refused);
    tcase_set_timeout(runs, 60);
    suite_add_tcase(suite, runs);
    return run_suite(suite);
}
