/* Rewards compared with what a value head expected: advantages and PPO's loss. */
#include <math.h>

#include "base/options.h"
#include "train/objective.h"

MMI_OPTIONS_INIT(mm_gae_options, MM_GAE_OPTIONS_INIT)
MMI_OPTIONS_INIT(mm_ppo_options, MM_PPO_OPTIONS_INIT)
MMI_OPTIONS_INIT(mm_ppo_result, MM_PPO_RESULT_INIT)

/* --- Advantages --- */

static mm_status check_gae(const mm_gae_options *o, int64_t rows, int64_t length, const double *rewards,
                           const float *values, const int32_t *mask)
{
    static const char what[] = "mm_gae";
    if (!(o->gamma >= 0 && o->gamma <= 1) || !(o->lambda >= 0 && o->lambda <= 1))
        return mmi_fail(MM_ERR_ARG, "%s: gamma is %g and lambda %g, both must be from 0 to 1", what, o->gamma,
                        o->lambda);
    if ((o->normalize != 0 && o->normalize != 1) || o->reserved != 0)
        return mmi_fail(MM_ERR_ARG, "%s: normalize is %d and reserved %d, must be 0 or 1, and 0", what, o->normalize,
                        o->reserved);
    mm_status status = mmi_objective_shape(what, rows, length);
    if (status == MM_OK)
        status = mmi_objective_mask(what, mask, rows, length);
    for (int64_t i = 0; status == MM_OK && i < rows * length; i++)
        if (mask[i] && !(isfinite(rewards[i]) && isfinite(values[i])))
            status = mmi_fail(MM_ERR_NUMERIC, "%s: at [%lld][%lld] the reward is %g, the value %g", what,
                              (long long)(i / length), (long long)(i % length), rewards[i], (double)values[i]);
    return status;
}

static void gae_row(const mm_gae_options *o, int64_t length, const double *rewards, const float *values,
                    const int32_t *mask, double *advantages, double *returns)
{
    double next_value = 0, next_advantage = 0;
    for (int64_t t = length; t-- > 0;) {
        advantages[t] = returns[t] = 0;
        if (!mask[t])
            continue;
        double surprise = rewards[t] + o->gamma * next_value - values[t];
        advantages[t] = next_advantage = surprise + o->gamma * o->lambda * next_advantage;
        returns[t] = advantages[t] + values[t];
        next_value = values[t];
    }
}

double mmi_advantages_sum(const double *advantages, const int32_t *mask, int64_t count)
{
    double sum = 0;
    for (int64_t i = 0; i < count; i++)
        sum += mask[i] ? advantages[i] : 0;
    return sum;
}

double mmi_advantages_squares(const double *advantages, const int32_t *mask, int64_t count, double mean)
{
    double sum = 0;
    for (int64_t i = 0; i < count; i++)
        sum += mask[i] ? (advantages[i] - mean) * (advantages[i] - mean) : 0;
    return sum;
}

void mmi_advantages_scale(double *advantages, const int32_t *mask, int64_t count, double mean, double variance)
{
    for (int64_t i = 0; i < count; i++)
        advantages[i] = mask[i] ? (advantages[i] - mean) / sqrt(variance + 1e-8) : 0;
}

static void normalize(double *advantages, const int32_t *mask, int64_t count)
{
    double n = fmax((double)mmi_objective_counted(mask, count), 1);
    double mean = mmi_advantages_sum(advantages, mask, count) / n;
    double variance = mmi_advantages_squares(advantages, mask, count, mean) / n;
    mmi_advantages_scale(advantages, mask, count, mean, variance);
}

mm_status mm_gae(const mm_gae_options *options, int64_t rows, int64_t length, const double *rewards,
                 const float *values, const int32_t *mask, double *advantages, double *returns)
{
    mm_gae_options o = MM_GAE_OPTIONS_INIT;
    if (!rewards || !values || !mask || !advantages || !returns)
        return mmi_fail(MM_ERR_ARG, "mm_gae: rewards, values, mask, advantages or returns is NULL");
    mm_status status = mmi_options_read(&o, sizeof o, options, "mm_gae_options");
    if (status == MM_OK)
        status = check_gae(&o, rows, length, rewards, values, mask);
    if (status != MM_OK)
        return status;
    for (int64_t i = 0; i < rows * length; i += length)
        gae_row(&o, length, rewards + i, values + i, mask + i, advantages + i, returns + i);
    if (o.normalize)
        normalize(advantages, mask, rows * length);
    for (int64_t i = 0; i < rows * length; i++)
        if (!isfinite(advantages[i]) || !isfinite(returns[i]))
            return mmi_fail(MM_ERR_NUMERIC, "mm_gae: rewards are too large to be added up");
    return MM_OK;
}

/* --- The loss --- */

static mmi_term value_term(double now, double old, double wanted, double clip)
{
    double miss = now - wanted;
    mmi_term t = { .value = miss * miss / 2, .slope = miss };
    if (clip > 0) {
        double held = fmin(fmax(now, old - clip), old + clip) - wanted;
        if (held * held > miss * miss)
            t = (mmi_term){ .value = held * held / 2, .clipped = true };
    }
    return t;
}

static mm_status check_ppo(const mm_ppo_options *o, int64_t rows, int64_t length, const int32_t *mask)
{
    static const char what[] = "mm_ppo_loss";
    mm_status status = mmi_objective_epsilon(what, o->epsilon);
    if (status == MM_OK)
        status = mmi_objective_weight(what, "value_clip", o->value_clip);
    if (status == MM_OK)
        status = mmi_objective_weight(what, "value_weight", o->value_weight);
    if (status == MM_OK)
        status = mmi_objective_weight(what, "beta", o->beta);
    if (status == MM_OK)
        status = mmi_objective_shape(what, rows, length);
    return status == MM_OK ? mmi_objective_mask(what, mask, rows, length) : status;
}

mm_status mm_ppo_loss(const mm_ppo_options *options, int64_t rows, int64_t length, const float *logprobs,
                      const float *old_logprobs, const float *ref_logprobs, const float *values,
                      const float *old_values, const int32_t *mask, const double *advantages, const double *returns,
                      float *d_logprobs, float *d_values, mm_ppo_result *out)
{
    mm_ppo_options o = MM_PPO_OPTIONS_INIT;
    mm_ppo_result r = MM_PPO_RESULT_INIT;
    if (!logprobs || !old_logprobs || !values || !old_values || !mask || !advantages || !returns)
        return mmi_fail(MM_ERR_ARG, "mm_ppo_loss: an array other than ref_logprobs and the gradients is NULL");
    mm_status status = mmi_options_read(&o, sizeof o, options, "mm_ppo_options");
    if (status == MM_OK)
        status = mmi_result_check(out, "mm_ppo_result");
    if (status == MM_OK)
        status = check_ppo(&o, rows, length, mask);
    if (status != MM_OK)
        return status;
    double share = 1 / fmax((double)mmi_objective_counted(mask, rows * length), 1);
    for (int64_t i = 0; i < rows * length; i++) {
        mmi_term gain = { 0 }, value = { 0 }, away = { 0 };
        if (mask[i]) {
            double moved = (double)logprobs[i] - old_logprobs[i];
            gain = mmi_clipped_gain(exp(moved), advantages[i], o.epsilon);
            value = value_term(values[i], old_values[i], returns[i], o.value_clip);
            if (ref_logprobs)
                away = mmi_reference_kl(logprobs[i], ref_logprobs[i]);
            r.step_kl += share * moved * moved / 2;
        }
        r.policy_loss -= share * gain.value;
        r.value_loss += share * value.value;
        r.mean_kl += share * away.value;
        r.clipped += share * gain.clipped;
        r.value_clipped += share * value.clipped;
        if (d_logprobs)
            d_logprobs[i] = (float)(share * (o.beta * away.slope - gain.slope));
        if (d_values)
            d_values[i] = (float)(share * o.value_weight * value.slope);
    }
    r.loss = r.policy_loss + o.beta * r.mean_kl + o.value_weight * r.value_loss;
    if (!isfinite(r.loss))
        return mmi_fail(MM_ERR_NUMERIC, "mm_ppo_loss: the loss is %g", r.loss);
    return mmi_result_write(out, &r, sizeof r, "mm_ppo_result");
}
