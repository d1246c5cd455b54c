#include "support.h"

#include <math.h>
#include <string.h>

#include <minimind/objective.h>

/* Central differences on float32 inputs: the step is a power of two, so x ± step is exact; the loss is computed in
 * double. */
#define STEP 0x1p-9
#define SLOPE_TOLERANCE 2e-5

enum { PAIRS = 3, ROWS = 2 * PAIRS, T = 5, V = 7, WIDE = 9, GROUP = 3 };

typedef struct inputs {
    float logprobs[ROWS * T], old[ROWS * T], ref[ROWS * T];
    int32_t mask[ROWS * T];
    double ref_scores[ROWS], rewards[ROWS], advantages[ROWS];
    float student[ROWS * V], teacher[ROWS * WIDE];
    int32_t targets[ROWS];
} inputs;

static inputs make_inputs(void)
{
    test_rng rng = { 11 };
    inputs in;
    for (int i = 0; i < ROWS * T; i++) {
        in.logprobs[i] = -2 * (float)rng_uniform(&rng);
        in.old[i] = in.logprobs[i] + 0.6f * (float)(rng_uniform(&rng) - 0.5);
        in.ref[i] = in.logprobs[i] + 0.8f * (float)(rng_uniform(&rng) - 0.5);
        in.mask[i] = i / T == 4 ? 0 : rng_between(&rng, 0, 3) > 0; /* row 4 counts nothing */
        if (!in.mask[i])
            in.logprobs[i] = in.old[i] = in.ref[i] = NAN; /* not looked at */
    }
    for (int i = 0; i < ROWS; i++) {
        in.ref_scores[i] = -4 * rng_uniform(&rng);
        in.rewards[i] = rng_uniform(&rng);
        in.targets[i] = i == 2 ? -100 : rng_between(&rng, 0, V - 1);
    }
    rng_fill(&rng, in.student, ROWS * V, 2);
    rng_fill(&rng, in.teacher, ROWS * WIDE, 2);
    ck_ok(mm_group_advantages(in.advantages, in.rewards, ROWS, GROUP));
    return in;
}

static void check_slope(double up, double down, float got, const char *what, int i)
{
    double want = (up - down) / (2 * STEP);
    ck_assert_msg(fabs(got - want) <= SLOPE_TOLERANCE, "%s[%d] is %g, central differences give %g", what, i, got, want);
}

static double dpo_loss(const inputs *in, int32_t reduction, float *d)
{
    mm_dpo_options o = MM_DPO_OPTIONS_INIT;
    mm_dpo_result r = MM_DPO_RESULT_INIT;
    o.beta = 0.7;
    o.reduction = reduction;
    ck_ok(mm_dpo(&o, PAIRS, T, in->logprobs, in->ref_scores, in->mask, d, &r));
    return r.loss;
}

START_TEST(the_gradient_of_dpo_is_that_of_central_differences)
{
    inputs in = make_inputs();
    float d[ROWS * T];
    dpo_loss(&in, _i, d);
    for (int i = 0; i < ROWS * T; i++) {
        float kept = in.logprobs[i];
        in.logprobs[i] = kept + (float)STEP;
        double up = dpo_loss(&in, _i, NULL);
        in.logprobs[i] = kept - (float)STEP;
        double down = dpo_loss(&in, _i, NULL);
        in.logprobs[i] = kept;
        check_slope(up, down, d[i], "d_logprobs", i);
    }
}
END_TEST

static mm_status try_dpo(const inputs *in, int32_t reduction, float *d, mm_dpo_result *r)
{
    mm_dpo_options o = MM_DPO_OPTIONS_INIT;
    o.reduction = reduction;
    return mm_dpo(&o, PAIRS, T, in->logprobs, in->ref_scores, in->mask, d, r);
}

/* 0: of the chosen answer of the first pair, by the policy; 1: of the rejected one; 2 and 3: the same by the reference.
 * A pair that is infinitely far on the right side costs nothing, and there is nothing to learn from it. */
START_TEST(a_score_that_is_no_number_makes_no_loss)
{
    static const float values[] = { NAN, INFINITY, -INFINITY };
    for (int v = 0; v < 3; v++)
        for (int32_t reduction = MM_REDUCE_SUM; reduction <= MM_REDUCE_MEAN; reduction++) {
            inputs in = make_inputs();
            mm_dpo_result r = MM_DPO_RESULT_INIT;
            float d[ROWS * T];
            int row = _i % 2 ? PAIRS : 0;
            double sign = _i == 0 || _i == 3 ? 1 : -1;
            in.mask[row * T] = 1;
            in.logprobs[row * T] = -1;
            if (_i < 2)
                in.logprobs[row * T] = values[v];
            else
                in.ref_scores[row] = values[v];
            if (sign * values[v] == INFINITY) {
                ck_ok(try_dpo(&in, reduction, d, &r));
                ck_assert(isfinite(r.loss) && r.margin == INFINITY);
                for (int t = 0; t < T; t++)
                    ck_assert(d[t] == 0 && d[PAIRS * T + t] == 0 && isfinite(d[T + t]));
                continue;
            }
            ck_status(try_dpo(&in, reduction, d, &r), MM_ERR_NUMERIC);
            ck_error_mentions("the loss is");
            ck_assert_double_eq(r.loss, 0); /* as it was */
        }
}
END_TEST

static double distill_loss(const inputs *in, float *d)
{
    mm_distill_options o = MM_DISTILL_OPTIONS_INIT;
    mm_distill_result r = MM_DISTILL_RESULT_INIT;
    o.alpha = 0.3;
    o.temperature = 1.7;
    ck_ok(mm_distill(&o, ROWS, V, WIDE, in->student, in->teacher, in->targets, d, &r));
    ck_assert_int_eq(r.count, ROWS - 1);
    return r.total;
}

START_TEST(the_gradient_of_distillation_is_that_of_central_differences)
{
    inputs in = make_inputs();
    float d[ROWS * V];
    distill_loss(&in, d);
    for (int i = 0; i < ROWS * V; i++) {
        float kept = in.student[i];
        in.student[i] = kept + (float)STEP;
        double up = distill_loss(&in, NULL);
        in.student[i] = kept - (float)STEP;
        double down = distill_loss(&in, NULL);
        in.student[i] = kept;
        check_slope(up, down, d[i], "d_student", i);
    }
}
END_TEST

static double policy_loss(const inputs *in, const mm_policy_options *o, float *d)
{
    mm_policy_result r = MM_POLICY_RESULT_INIT;
    ck_ok(mm_policy_loss(o, ROWS, T, in->logprobs, in->old, in->ref, in->mask, in->advantages, d, &r));
    return r.loss;
}

START_TEST(the_gradient_of_grpo_is_that_of_central_differences)
{
    inputs in = make_inputs();
    mm_policy_options o = MM_POLICY_OPTIONS_INIT;
    o.beta = 0.3;
    float d[ROWS * T];
    policy_loss(&in, &o, d);
    for (int i = 0; i < ROWS * T; i++) {
        double ratio = exp((double)in.logprobs[i] - in.old[i]);
        if (fabs(ratio - (1 + o.epsilon)) < 0.01 || fabs(ratio - (1 - o.epsilon)) < 0.01)
            continue; /* the loss has a corner there */
        float kept = in.logprobs[i];
        in.logprobs[i] = kept + (float)STEP;
        double up = policy_loss(&in, &o, NULL);
        in.logprobs[i] = kept - (float)STEP;
        double down = policy_loss(&in, &o, NULL);
        in.logprobs[i] = kept;
        check_slope(up, down, d[i], "d_logprobs", i);
    }
}
END_TEST

START_TEST(a_ratio_beyond_its_bound_is_held_back_in_cispo)
{
    float now = 0, old = -3, d;
    int32_t mask = 1;
    double advantage = 2;
    mm_policy_options o = MM_POLICY_OPTIONS_INIT;
    mm_policy_result r = MM_POLICY_RESULT_INIT;
    o.variant = MM_POLICY_CISPO;
    ck_ok(mm_policy_loss(&o, 1, 1, &now, &old, NULL, &mask, &advantage, &d, &r));
    ck_assert_float_eq(d, (float)(-o.epsilon_high * advantage));
    ck_assert_double_eq(r.clipped, 1);
}
END_TEST

START_TEST(nothing_counted_costs_nothing)
{
    inputs in = make_inputs();
    float d[ROWS * V], none[ROWS * V] = { 0 };
    mm_distill_result r = MM_DISTILL_RESULT_INIT;
    mm_policy_result p = MM_POLICY_RESULT_INIT;
    for (int i = 0; i < ROWS; i++)
        in.targets[i] = -100;
    memset(in.mask, 0, sizeof in.mask);
    ck_ok(mm_distill(NULL, ROWS, V, WIDE, in.student, in.teacher, in.targets, d, &r));
    ck_assert_double_eq(r.total, 0);
    ck_assert_mem_eq(d, none, sizeof d);
    ck_ok(mm_policy_loss(NULL, ROWS, T, in.logprobs, in.old, in.ref, in.mask, in.advantages, d, &p));
    ck_assert_double_eq(p.loss, 0);
    ck_assert_mem_eq(d, none, ROWS * T * sizeof(float));
}
END_TEST

static double repetition(const int32_t *ids, int64_t count, int64_t n)
{
    double share = NAN;
    ck_ok(mm_reward_repetition(&share, ids, count, n));
    return share;
}

START_TEST(a_pair_of_which_nothing_counts_is_even)
{
    inputs in = make_inputs();
    float d[ROWS * T], none[ROWS * T] = { 0 };
    memset(in.mask, 0, sizeof in.mask);
    memset(in.ref_scores, 0, sizeof in.ref_scores);
    ck_assert_double_eq_tol(dpo_loss(&in, _i, d), log(2), 1e-15);
    ck_assert_mem_eq(d, none, sizeof d);
}
END_TEST

START_TEST(repetition_is_the_share_of_n_grams_said_before)
{
    const int32_t ids[] = { 1, 2, 3, 1, 2, 3, 1, 2 };
    ck_assert_double_eq(repetition(ids, 8, 3), 3.0 / 6);
    ck_assert_double_eq(repetition(ids, 8, 1), 5.0 / 8);
    ck_assert_double_eq(repetition(ids, 5, 3), 0);
    ck_assert_double_eq(repetition(ids, 2, 3), 0);
    ck_assert_double_eq(repetition(NULL, 0, 3), 0);
    ck_status(mm_reward_repetition(NULL, ids, 8, 3), MM_ERR_ARG);
    double share;
    ck_status(mm_reward_repetition(&share, NULL, 8, 3), MM_ERR_ARG);
    ck_status(mm_reward_repetition(&share, ids, -1, 3), MM_ERR_ARG);
    ck_status(mm_reward_repetition(&share, ids, 8, 0), MM_ERR_ARG);
}
END_TEST

START_TEST(an_argument_held_wrong_is_named)
{
    inputs in = make_inputs();
    mm_dpo_result r = MM_DPO_RESULT_INIT;
    mm_dpo_options o = MM_DPO_OPTIONS_INIT;
    double scores[ROWS];
    ck_status(mm_dpo(NULL, PAIRS, T, NULL, in.ref_scores, in.mask, NULL, &r), MM_ERR_ARG);
    ck_status(mm_dpo(NULL, 0, T, in.logprobs, in.ref_scores, in.mask, NULL, &r), MM_ERR_ARG);
    ck_status(mm_dpo(NULL, INT64_MAX / 2, T, in.logprobs, in.ref_scores, in.mask, NULL, &r), MM_ERR_ARG);
    ck_status(mm_dpo(NULL, PAIRS, T, in.logprobs, in.ref_scores, in.mask, NULL, NULL), MM_ERR_ARG);
    o.beta = NAN;
    ck_status(mm_dpo(&o, PAIRS, T, in.logprobs, in.ref_scores, in.mask, NULL, &r), MM_ERR_ARG);
    ck_error_mentions("beta");
    o.beta = 1;
    o.reduction = 9;
    ck_status(mm_dpo(&o, PAIRS, T, in.logprobs, in.ref_scores, in.mask, NULL, &r), MM_ERR_ARG);
    ck_error_mentions("reduction");
    o.reduction = MM_REDUCE_MEAN;
    o.reserved = 1;
    ck_status(mm_dpo(&o, PAIRS, T, in.logprobs, in.ref_scores, in.mask, NULL, &r), MM_ERR_ARG);
    ck_error_mentions("reserved");
    ck_status(mm_sequence_scores(scores, in.logprobs, in.mask, ROWS, T, -1), MM_ERR_ARG);
    ck_error_mentions("reduction");
    ck_status(mm_sequence_scores(scores, in.logprobs, in.mask, ROWS, 0, MM_REDUCE_SUM), MM_ERR_ARG);
    ck_status(mm_sequence_scores(scores, in.logprobs, NULL, ROWS, T, MM_REDUCE_SUM), MM_ERR_ARG);
    in.mask[7] = 2;
    ck_status(mm_sequence_scores(scores, in.logprobs, in.mask, ROWS, T, MM_REDUCE_SUM), MM_ERR_ARG);
    ck_error_mentions("mask[1][2] is 2");
}
END_TEST

START_TEST(a_teacher_or_a_reward_held_wrong_is_named)
{
    inputs in = make_inputs();
    mm_distill_options o = MM_DISTILL_OPTIONS_INIT;
    mm_distill_result r = MM_DISTILL_RESULT_INIT;
    double advantages[ROWS];
    ck_status(mm_distill(&o, ROWS, WIDE, V, in.student, in.teacher, in.targets, NULL, &r), MM_ERR_ARG);
    ck_error_mentions("vocabulary");
    o.temperature = 0;
    ck_status(mm_distill(&o, ROWS, V, WIDE, in.student, in.teacher, in.targets, NULL, &r), MM_ERR_ARG);
    ck_error_mentions("temperature");
    in.targets[0] = V;
    ck_status(mm_distill(NULL, ROWS, V, WIDE, in.student, in.teacher, in.targets, NULL, &r), MM_ERR_ARG);
    ck_error_mentions("targets[0]");
    ck_status(mm_group_advantages(advantages, in.rewards, ROWS, 4), MM_ERR_ARG);
    in.rewards[3] = INFINITY;
    ck_status(mm_group_advantages(advantages, in.rewards, ROWS, GROUP), MM_ERR_NUMERIC);
    ck_error_mentions("rewards[3]");
    in.rewards[3] = -1.7e308; /* what lies between is no number */
    in.rewards[4] = 1.7e308;
    ck_status(mm_group_advantages(advantages, in.rewards, ROWS, ROWS), MM_ERR_NUMERIC);
    ck_error_mentions("apart");
    ck_status(mm_group_advantages(advantages, in.rewards, ROWS, 0), MM_ERR_ARG);
    ck_status(mm_group_advantages(advantages, in.rewards, 0, GROUP), MM_ERR_ARG);
    ck_status(mm_group_advantages(NULL, in.rewards, ROWS, GROUP), MM_ERR_ARG);
    in.student[V] = NAN;
    o = (mm_distill_options)MM_DISTILL_OPTIONS_INIT;
    in.targets[0] = 0;
    ck_status(mm_distill(&o, ROWS, V, WIDE, in.student, in.teacher, in.targets, NULL, &r), MM_ERR_NUMERIC);
}
END_TEST

/* Whether an argument is wrong or the loss is no number. */
START_TEST(after_an_error_a_result_is_as_it_was)
{
    inputs in = make_inputs();
    mm_dpo_result dpo = MM_DPO_RESULT_INIT;
    mm_distill_result distilled = MM_DISTILL_RESULT_INIT;
    mm_policy_result policy = MM_POLICY_RESULT_INIT;
    mm_ppo_result ppo = MM_PPO_RESULT_INIT;
    double advantages[ROWS], returns[ROWS * T] = { 0 };
    const mm_status expected = _i ? MM_ERR_NUMERIC : MM_ERR_ARG;
    dpo.loss = distilled.total = policy.loss = ppo.loss = advantages[0] = 77;
    in.mask[0] = _i ? 1 : 2;
    in.targets[0] = _i ? 0 : V;
    in.logprobs[0] = in.student[0] = _i ? NAN : 0;
    in.rewards[ROWS - 1] = 1.7e308;
    in.rewards[ROWS - 2] = -1.7e308;
    ck_status(mm_dpo(NULL, PAIRS, T, in.logprobs, in.ref_scores, in.mask, NULL, &dpo), expected);
    ck_status(mm_distill(NULL, ROWS, V, WIDE, in.student, in.teacher, in.targets, NULL, &distilled), expected);
    ck_status(mm_policy_loss(NULL, ROWS, T, in.logprobs, in.old, NULL, in.mask, in.advantages, NULL, &policy), expected);
    ck_status(mm_ppo_loss(NULL, ROWS, T, in.logprobs, in.old, NULL, in.old, in.old, in.mask, returns, returns, NULL, NULL,
                          &ppo),
              expected);
    ck_status(mm_group_advantages(advantages, in.rewards, ROWS, GROUP), MM_ERR_NUMERIC);
    ck_assert(dpo.loss == 77 && distilled.total == 77 && policy.loss == 77 && ppo.loss == 77 && advantages[0] == 77);
}
END_TEST

/* Whether it is NULL or was not set up. */
START_TEST(a_result_held_wrong_costs_no_gradient)
{
    inputs in = make_inputs();
    mm_dpo_result dpo = { 0 };
    mm_distill_result distilled = { 0 };
    mm_policy_result policy = { 0 };
    mm_ppo_result ppo = { 0 };
    float d[ROWS * V], values[ROWS * T];
    double returns[ROWS * T] = { 0 };
    d[0] = values[0] = 77;
    ck_status(mm_dpo(NULL, PAIRS, T, in.logprobs, in.ref_scores, in.mask, d, _i ? &dpo : NULL), MM_ERR_ARG);
    ck_status(mm_distill(NULL, ROWS, V, WIDE, in.student, in.teacher, in.targets, d, _i ? &distilled : NULL), MM_ERR_ARG);
    ck_status(mm_policy_loss(NULL, ROWS, T, in.logprobs, in.old, NULL, in.mask, in.advantages, d, _i ? &policy : NULL),
              MM_ERR_ARG);
    ck_status(mm_ppo_loss(NULL, ROWS, T, in.logprobs, in.old, NULL, in.old, in.old, in.mask, returns, returns, d, values,
                          _i ? &ppo : NULL),
              MM_ERR_ARG);
    ck_assert(d[0] == 77 && values[0] == 77);
}
END_TEST

static mm_status try_policy(const inputs *in, const mm_policy_options *o)
{
    mm_policy_result r = MM_POLICY_RESULT_INIT;
    return mm_policy_loss(o, ROWS, T, in->logprobs, in->old, NULL, in->mask, in->advantages, NULL, &r);
}

static void refuse_policy(const inputs *in, const mm_policy_options *o, const char *words)
{
    ck_status(try_policy(in, o), MM_ERR_ARG);
    ck_error_mentions(words);
}

START_TEST(a_policy_held_wrong_is_named)
{
    inputs in = make_inputs();
    mm_policy_result r = MM_POLICY_RESULT_INIT;
    mm_policy_options good = MM_POLICY_OPTIONS_INIT, o;
#define WRONG(field, value) o = good, o.field = (value), refuse_policy(&in, &o, #field " is ")
    WRONG(beta, -1);
    WRONG(beta, INFINITY);
    WRONG(epsilon, 1);
    WRONG(epsilon, NAN);
    WRONG(epsilon_high, 0);
    WRONG(epsilon_high, NAN);
    WRONG(variant, -1);
    WRONG(variant, MM_POLICY_PPO); /* which has a loss of its own */
    WRONG(reserved, 1);
    ck_status(mm_policy_loss(NULL, ROWS, T, in.logprobs, NULL, NULL, in.mask, in.advantages, NULL, &r), MM_ERR_ARG);
    ck_status(mm_policy_loss(NULL, ROWS, 0, in.logprobs, in.old, NULL, in.mask, in.advantages, NULL, &r), MM_ERR_ARG);
    ck_status(mm_policy_loss(NULL, ROWS, T, in.logprobs, in.old, NULL, in.mask, in.advantages, NULL, NULL), MM_ERR_ARG);
    in.mask[0] = -1;
    ck_status(try_policy(&in, NULL), MM_ERR_ARG);
    ck_error_mentions("mask[0][0] is -1");
    in.mask[0] = 1;
    in.logprobs[0] = NAN;
    ck_status(try_policy(&in, NULL), MM_ERR_NUMERIC);
    in = make_inputs();
    ck_ok(try_policy(&in, NULL));
    in.advantages[1] = NAN;
    ck_status(try_policy(&in, NULL), MM_ERR_NUMERIC);
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("objective");
    TCase *test = tcase_create("objective");
    tcase_add_loop_test(test, the_gradient_of_dpo_is_that_of_central_differences, MM_REDUCE_SUM, MM_REDUCE_MEAN + 1);
    tcase_add_loop_test(test, a_score_that_is_no_number_makes_no_loss, 0, 4);
    tcase_add_loop_test(test, a_pair_of_which_nothing_counts_is_even, MM_REDUCE_SUM, MM_REDUCE_MEAN + 1);
    tcase_add_test(test, the_gradient_of_distillation_is_that_of_central_differences);
    tcase_add_test(test, the_gradient_of_grpo_is_that_of_central_differences);
    tcase_add_test(test, a_ratio_beyond_its_bound_is_held_back_in_cispo);
    tcase_add_test(test, nothing_counted_costs_nothing);
    tcase_add_test(test, repetition_is_the_share_of_n_grams_said_before);
    tcase_add_test(test, an_argument_held_wrong_is_named);
    tcase_add_test(test, a_teacher_or_a_reward_held_wrong_is_named);
    tcase_add_loop_test(test, after_an_error_a_result_is_as_it_was, 0, 2);
    tcase_add_loop_test(test, a_result_held_wrong_costs_no_gradient, 0, 2);
    tcase_add_test(test, a_policy_held_wrong_is_named);
    suite_add_tcase(suite, test);
    return suite;
}

int main(void)
{
    return run_suite(make_suite());
}
