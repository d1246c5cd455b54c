#include "ppo64.h"

#include <math.h>
#include <string.h>

/* Central differences on float32 inputs: the step is a power of two, so x ± step is exact; the loss is computed in
 * double. */
#define STEP 0x1p-9
#define SLOPE_TOLERANCE 2e-5

enum { ROWS = 5, T = 7, N = ROWS * T };

typedef struct inputs {
    float logprobs[N], old[N], ref[N], values[N], old_values[N];
    double rewards[N], advantages[N], returns[N];
    int32_t mask[N];
} inputs;

static inputs make_inputs(void)
{
    test_rng rng = { 21 };
    inputs in;
    for (int i = 0; i < N; i++) {
        in.logprobs[i] = -2 * (float)rng_uniform(&rng);
        in.old[i] = in.logprobs[i] + 0.6f * (float)(rng_uniform(&rng) - 0.5);
        in.ref[i] = in.logprobs[i] + 0.8f * (float)(rng_uniform(&rng) - 0.5);
        in.values[i] = (float)rng_uniform(&rng);
        in.old_values[i] = in.values[i] + (float)(rng_uniform(&rng) - 0.5);
        in.rewards[i] = rng_uniform(&rng) - 0.3;
        in.mask[i] = i / T == 2 ? 0 : rng_between(&rng, 0, 3) > 0; /* row 2 counts nothing */
        if (!in.mask[i])
            in.rewards[i] = in.values[i] = in.logprobs[i] = NAN; /* not looked at */
    }
    mm_gae_options o = MM_GAE_OPTIONS_INIT;
    ck_ok(mm_gae(&o, ROWS, T, in.rewards, in.values, in.mask, in.advantages, in.returns));
    return in;
}

/* --- Advantages --- */

/* From the definition, forwards: A_t = Σ_k (γλ)^k δ_{t+k} over the tokens that count. */
static double advantage_of(const inputs *in, int row, int from, const mm_gae_options *o)
{
    double sum = 0, weight = 1;
    for (int t = from; t < T; t++) {
        if (!in->mask[row * T + t])
            continue;
        int next = t + 1;
        while (next < T && !in->mask[row * T + next])
            next++;
        double after = next < T ? in->values[row * T + next] : 0;
        sum += weight * (in->rewards[row * T + t] + o->gamma * after - in->values[row * T + t]);
        weight *= o->gamma * o->lambda;
    }
    return sum;
}

START_TEST(advantages_are_sums_of_surprises_over_the_tokens_that_count)
{
    inputs in = make_inputs();
    mm_gae_options o = MM_GAE_OPTIONS_INIT;
    o.gamma = 0.9;
    o.lambda = 0.7;
    o.normalize = 0;
    ck_ok(mm_gae(&o, ROWS, T, in.rewards, in.values, in.mask, in.advantages, in.returns));
    for (int i = 0; i < N; i++) {
        double want = in.mask[i] ? advantage_of(&in, i / T, i % T, &o) : 0;
        ck_assert_double_eq_tol(in.advantages[i], want, 1e-12);
        ck_assert_double_eq_tol(in.returns[i], in.mask[i] ? want + in.values[i] : 0, 1e-12);
    }
}
END_TEST

START_TEST(with_lambda_one_and_no_discount_a_return_is_the_reward_to_come)
{
    double rewards[4] = { 0, 0, 0, 3 }, advantages[4], returns[4];
    float values[4] = { 1, 7, -2, 5 };
    int32_t mask[4] = { 1, 1, 1, 1 };
    mm_gae_options o = MM_GAE_OPTIONS_INIT;
    o.lambda = 1;
    ck_ok(mm_gae(&o, 1, 4, rewards, values, mask, advantages, returns));
    for (int t = 0; t < 4; t++)
        ck_assert_double_eq_tol(returns[t], 3, 1e-12);
}
END_TEST

START_TEST(normalised_advantages_have_mean_zero_and_variance_one_over_all_rows)
{
    inputs in = make_inputs();
    double n = 0, mean = 0, square = 0;
    for (int i = 0; i < N; i++) {
        n += in.mask[i];
        mean += in.advantages[i];
        square += in.advantages[i] * in.advantages[i];
        ck_assert(in.mask[i] || in.advantages[i] == 0);
    }
    ck_assert_double_eq_tol(mean / n, 0, 1e-12);
    ck_assert_double_eq_tol(square / n, 1, 1e-6);
}
END_TEST

/* --- The loss --- */

/* NaN where nothing counts: the reference must not meet it either. */
static double reference_loss(const inputs *in, const mm_ppo_options *o)
{
    double logprobs[N], values[N];
    for (int i = 0; i < N; i++) {
        logprobs[i] = in->logprobs[i];
        values[i] = in->values[i];
    }
    ppo64 p = { *o, N, in->old, in->ref, in->old_values, in->mask, in->advantages, in->returns };
    return ppo64_loss(&p, logprobs, values);
}

static mm_ppo_result loss_of(const inputs *in, const mm_ppo_options *o, float *d_logprobs, float *d_values)
{
    mm_ppo_result r = MM_PPO_RESULT_INIT;
    ck_ok(mm_ppo_loss(o, ROWS, T, in->logprobs, in->old, in->ref, in->values, in->old_values, in->mask, in->advantages,
                      in->returns, d_logprobs, d_values, &r));
    return r;
}

static mm_ppo_options options_of(int kind)
{
    mm_ppo_options o = MM_PPO_OPTIONS_INIT;
    o.beta = 0.3;
    o.value_clip = kind == 0 ? 0.2 : 0;
    o.epsilon = kind == 0 ? 0.2 : 0.1;
    return o;
}

START_TEST(the_loss_is_the_sum_of_its_terms)
{
    inputs in = make_inputs();
    mm_ppo_options o = options_of(_i);
    mm_ppo_result r = loss_of(&in, &o, NULL, NULL);
    ck_assert_double_eq_tol(r.loss, reference_loss(&in, &o), 1e-12);
    ck_assert_double_eq_tol(r.loss, r.policy_loss + o.beta * r.mean_kl + o.value_weight * r.value_loss, 1e-12);
    ck_assert(r.clipped > 0 && r.clipped < 1 && r.mean_kl > 0 && r.step_kl > 0);
    ck_assert(_i == 0 ? r.value_clipped > 0 : r.value_clipped == 0);
}
END_TEST

/* Corners of the loss, where a difference across says nothing. */
static bool at_a_corner(const inputs *in, const mm_ppo_options *o, int i)
{
    double ratio = exp((double)in->logprobs[i] - in->old[i]), moved = fabs((double)in->values[i] - in->old_values[i]);
    double held = in->old_values[i] + copysign(o->value_clip, in->values[i] - in->old_values[i]);
    return fabs(ratio - (1 + o->epsilon)) < 0.01 || fabs(ratio - (1 - o->epsilon)) < 0.01 ||
           fabs(moved - o->value_clip) < 0.01 ||
           fabs(fabs(held - in->returns[i]) - fabs(in->values[i] - in->returns[i])) < 0.01;
}

static void check_slopes(inputs *in, const mm_ppo_options *o, float *x, const float *d, const char *what)
{
    for (int i = 0; i < N; i++) {
        if (!in->mask[i]) {
            ck_assert_float_eq(d[i], 0);
            continue;
        }
        if (at_a_corner(in, o, i))
            continue;
        float kept = x[i];
        x[i] = kept + (float)STEP;
        double up = loss_of(in, o, NULL, NULL).loss;
        x[i] = kept - (float)STEP;
        double want = (up - loss_of(in, o, NULL, NULL).loss) / (2 * STEP);
        x[i] = kept;
        ck_assert_msg(fabs(d[i] - want) <= SLOPE_TOLERANCE, "%s[%d] is %g, central differences give %g", what, i, d[i],
                      want);
    }
}

START_TEST(the_gradients_of_ppo_are_those_of_central_differences)
{
    inputs in = make_inputs();
    mm_ppo_options o = options_of(_i);
    float d_logprobs[N], d_values[N];
    loss_of(&in, &o, d_logprobs, d_values);
    check_slopes(&in, &o, in.logprobs, d_logprobs, "d_logprobs");
    check_slopes(&in, &o, in.values, d_values, "d_values");
}
END_TEST

START_TEST(a_value_that_went_too_far_from_the_old_one_has_no_gradient)
{
    float zero = 0, value = 0.5f, old = 0, d_value;
    double advantage = 1, wanted = 0.4;
    int32_t mask = 1;
    mm_ppo_result r = MM_PPO_RESULT_INIT;
    ck_ok(mm_ppo_loss(NULL, 1, 1, &zero, &zero, NULL, &value, &old, &mask, &advantage, &wanted, NULL, &d_value, &r));
    ck_assert_double_eq_tol(r.value_loss, 0.02, 1e-7); /* ½ (0.2 - 0.4)², more than ½ (0.5 - 0.4)² */
    ck_assert_float_eq(d_value, 0);
    ck_assert_double_eq(r.value_clipped, 1);
}
END_TEST

START_TEST(nothing_counted_costs_nothing)
{
    inputs in = make_inputs();
    mm_ppo_options o = MM_PPO_OPTIONS_INIT;
    float d[N], none[N] = { 0 };
    double nothing[N] = { 0 };
    memset(in.mask, 0, sizeof in.mask);
    ck_ok(mm_gae(NULL, ROWS, T, in.rewards, in.values, in.mask, in.advantages, in.returns));
    ck_assert_mem_eq(in.advantages, nothing, sizeof nothing);
    ck_assert_mem_eq(in.returns, nothing, sizeof nothing);
    ck_assert_double_eq(loss_of(&in, &o, d, d).loss, 0);
    ck_assert_mem_eq(d, none, sizeof d);
}
END_TEST

/* --- Held wrong --- */

static mm_status try_gae(inputs *in, const mm_gae_options *o)
{
    return mm_gae(o, ROWS, T, in->rewards, in->values, in->mask, in->advantages, in->returns);
}

START_TEST(an_advantage_held_wrong_is_named)
{
    inputs in = make_inputs();
    mm_gae_options o = MM_GAE_OPTIONS_INIT;
    ck_status(mm_gae(&o, ROWS, T, NULL, in.values, in.mask, in.advantages, in.returns), MM_ERR_ARG);
    ck_status(mm_gae(&o, 0, T, in.rewards, in.values, in.mask, in.advantages, in.returns), MM_ERR_ARG);
    ck_status(mm_gae(&o, INT64_MIN, T, in.rewards, in.values, in.mask, in.advantages, in.returns), MM_ERR_ARG);
    ck_status(mm_gae(&o, INT64_MAX, T, in.rewards, in.values, in.mask, in.advantages, in.returns), MM_ERR_ARG);
    o.gamma = 1.5;
    ck_status(try_gae(&in, &o), MM_ERR_ARG);
    ck_error_mentions("gamma");
    o.gamma = 1;
    o.lambda = NAN;
    ck_status(try_gae(&in, &o), MM_ERR_ARG);
    ck_error_mentions("lambda");
    o.lambda = 1;
    o.normalize = 2;
    ck_status(try_gae(&in, &o), MM_ERR_ARG);
    o.normalize = 0;
    in.mask[9] = 1;
    in.rewards[9] = INFINITY;
    ck_status(try_gae(&in, &o), MM_ERR_NUMERIC);
    ck_error_mentions("[1][2]");
    for (int i = 0; i < ROWS * T; i++) {
        in.rewards[i] = in.mask[i] ? 1.7e308 : 0; /* what they come to is no number */
        in.values[i] = 0;
    }
    ck_status(try_gae(&in, &o), MM_ERR_NUMERIC);
    ck_error_mentions("too large");
    in.mask[9] = 3;
    ck_status(try_gae(&in, &o), MM_ERR_ARG);
    ck_error_mentions("mask[1][2]");
}
END_TEST

static mm_status try_loss(const inputs *in, const mm_ppo_options *o)
{
    mm_ppo_result r = MM_PPO_RESULT_INIT;
    return mm_ppo_loss(o, ROWS, T, in->logprobs, in->old, in->ref, in->values, in->old_values, in->mask, in->advantages,
                       in->returns, NULL, NULL, &r);
}

START_TEST(a_loss_held_wrong_is_named)
{
    inputs in = make_inputs();
    mm_ppo_options o = MM_PPO_OPTIONS_INIT;
    double *const numbers[] = { &o.epsilon, &o.value_clip, &o.value_weight, &o.beta };
    static const char *const names[] = { "epsilon", "value_clip", "value_weight", "beta" };
    for (int i = 0; i < 4; i++) {
        double kept = *numbers[i];
        *numbers[i] = i % 2 ? NAN : -1;
        ck_status(try_loss(&in, &o), MM_ERR_ARG);
        ck_error_mentions(names[i]);
        *numbers[i] = kept;
    }
    ck_status(mm_ppo_loss(&o, ROWS, T, in.logprobs, in.old, in.ref, in.values, in.old_values, in.mask, in.advantages,
                          in.returns, NULL, NULL, NULL),
              MM_ERR_ARG);
    mm_ppo_result r = MM_PPO_RESULT_INIT;
    ck_status(mm_ppo_loss(&o, ROWS, T, in.logprobs, in.old, in.ref, NULL, in.old_values, in.mask, in.advantages,
                          in.returns, NULL, NULL, &r),
              MM_ERR_ARG);
    in.mask[0] = 1;
    in.logprobs[0] = NAN;
    ck_status(try_loss(&in, &o), MM_ERR_NUMERIC);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("train/ppo");
    TCase *tests = tcase_create("ppo");
    tcase_add_test(tests, advantages_are_sums_of_surprises_over_the_tokens_that_count);
    tcase_add_test(tests, with_lambda_one_and_no_discount_a_return_is_the_reward_to_come);
    tcase_add_test(tests, normalised_advantages_have_mean_zero_and_variance_one_over_all_rows);
    tcase_add_loop_test(tests, the_loss_is_the_sum_of_its_terms, 0, 2);
    tcase_add_loop_test(tests, the_gradients_of_ppo_are_those_of_central_differences, 0, 2);
    tcase_add_test(tests, a_value_that_went_too_far_from_the_old_one_has_no_gradient);
    tcase_add_test(tests, nothing_counted_costs_nothing);
    tcase_add_test(tests, an_advantage_held_wrong_is_named);
    tcase_add_test(tests, a_loss_held_wrong_is_named);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
