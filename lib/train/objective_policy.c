/* Rewards: what an answer may be given less for, and comparing them within groups, GRPO and CISPO. */
#include <math.h>

#include "base/options.h"
#include "train/objective.h"

MMI_OPTIONS_INIT(mm_policy_options, MM_POLICY_OPTIONS_INIT)
MMI_OPTIONS_INIT(mm_policy_result, MM_POLICY_RESULT_INIT)

static void describe(const double *rewards, int64_t group, double *mean, double *variance)
{
    *mean = *variance = 0;
    for (int64_t i = 0; i < group; i++)
        *mean += rewards[i] / (double)group;
    for (int64_t i = 0; i < group; i++)
        *variance += (rewards[i] - *mean) * (rewards[i] - *mean) / (double)group;
}

mm_status mm_group_advantages(double *advantages, const double *rewards, int64_t rows, int64_t group)
{
    if (!advantages || !rewards)
        return mmi_fail(MM_ERR_ARG, "mm_group_advantages: advantages or rewards is NULL");
    if (group < 1 || rows < 1 || rows % group != 0)
        return mmi_fail(MM_ERR_ARG, "mm_group_advantages: %lld rows can't be cut into groups of %lld", (long long)rows,
                        (long long)group);
    for (int64_t i = 0; i < rows; i++)
        if (!isfinite(rewards[i]))
            return mmi_fail(MM_ERR_NUMERIC, "mm_group_advantages: rewards[%lld] is %g", (long long)i, rewards[i]);
    double mean, variance;
    for (int64_t first = 0; first < rows; first += group) { /* all of them, before any is written */
        describe(rewards + first, group, &mean, &variance);
        if (!isfinite(variance))
            return mmi_fail(MM_ERR_NUMERIC, "mm_group_advantages: rewards[%lld] to [%lld] lie too far apart",
                            (long long)first, (long long)(first + group - 1));
    }
    for (int64_t first = 0; first < rows; first += group) {
        describe(rewards + first, group, &mean, &variance);
        for (int64_t i = first; i < first + group; i++)
            advantages[i] = (rewards[i] - mean) / (sqrt(variance) + 1e-4);
    }
    return MM_OK;
}

/* What a token gains. */
static mmi_term policy_gain(const mm_policy_options *o, double now, double old, double A)
{
    double ratio = exp(now - old);
    if (o->variant == MM_POLICY_GRPO)
        return mmi_clipped_gain(ratio, A, o->epsilon);
    double weight = fmin(ratio, o->epsilon_high) * A; /* no gradient flows through it */
    return (mmi_term){ .value = weight * now, .slope = weight, .clipped = ratio > o->epsilon_high };
}

static mm_status check_policy(const mm_policy_options *o, int64_t rows, int64_t length, const int32_t *mask)
{
    static const char what[] = "mm_policy_loss";
    if (o->variant != MM_POLICY_GRPO && o->variant != MM_POLICY_CISPO)
        return mmi_fail(MM_ERR_ARG, "%s: variant is %d, must be MM_POLICY_GRPO or MM_POLICY_CISPO", what, o->variant);
    if (!(o->epsilon_high > 0))
        return mmi_fail(MM_ERR_ARG, "%s: epsilon_high is %g, must be above 0", what, o->epsilon_high);
    if (o->reserved != 0)
        return mmi_fail(MM_ERR_ARG, "%s: reserved is %d, must be 0", what, o->reserved);
    mm_status status = mmi_objective_weight(what, "beta", o->beta);
    if (status == MM_OK)
        status = mmi_objective_epsilon(what, o->epsilon);
    if (status == MM_OK)
        status = mmi_objective_shape(what, rows, length);
    return status == MM_OK ? mmi_objective_mask(what, mask, rows, length) : status;
}

mm_status mm_policy_loss(const mm_policy_options *options, int64_t rows, int64_t length, const float *logprobs,
                         const float *old_logprobs, const float *ref_logprobs, const int32_t *mask,
                         const double *advantages, float *d_logprobs, mm_policy_result *out)
{
    mm_policy_options o = MM_POLICY_OPTIONS_INIT;
    mm_policy_result r = MM_POLICY_RESULT_INIT;
    if (!logprobs || !old_logprobs || !mask || !advantages)
        return mmi_fail(MM_ERR_ARG, "mm_policy_loss: logprobs, old_logprobs, mask or advantages is NULL");
    mm_status status = mmi_options_read(&o, sizeof o, options, "mm_policy_options");
    if (status == MM_OK)
        status = mmi_result_check(out, "mm_policy_result");
    if (status == MM_OK)
        status = check_policy(&o, rows, length, mask);
    if (status != MM_OK)
        return status;
    double kl = 0, clipped = 0, all = 0;
    for (int64_t i = 0; i < rows; i++) {
        int64_t n = mmi_objective_counted(mask + i * length, length);
        double share = 1.0 / (double)(n > 0 ? n : 1) / (double)rows;
        all += (double)n;
        for (int64_t at = i * length; at < (i + 1) * length; at++) {
            mmi_term gain = { 0 }, away = { 0 };
            if (mask[at])
                gain = policy_gain(&o, logprobs[at], old_logprobs[at], advantages[i]);
            if (mask[at] && ref_logprobs)
                away = mmi_reference_kl(logprobs[at], ref_logprobs[at]);
            r.loss += share * (o.beta * away.value - gain.value);
            kl += away.value;
            clipped += gain.clipped;
            if (d_logprobs)
                d_logprobs[at] = (float)(share * (o.beta * away.slope - gain.slope));
        }
    }
    r.mean_kl = kl / fmax(all, 1);
    r.clipped = clipped / fmax(all, 1);
    if (!isfinite(r.loss))
        return mmi_fail(MM_ERR_NUMERIC, "mm_policy_loss: the loss is %g", r.loss);
    return mmi_result_write(out, &r, sizeof r, "mm_policy_result");
}

/* --- Shaping --- */

static bool said_before(const int32_t *ids, int64_t at, int64_t n)
{
    for (int64_t i = 0; i < at; i++) {
        int64_t same = 0;
        while (same < n && ids[i + same] == ids[at + same])
            same++;
        if (same == n)
            return true;
    }
    return false;
}

mm_status mm_reward_repetition(double *share, const int32_t *ids, int64_t count, int64_t n)
{
    if (!share || (!ids && count > 0))
        return mmi_fail(MM_ERR_ARG, "mm_reward_repetition: %s is NULL", share ? "ids" : "share");
    if (count < 0 || n < 1)
        return mmi_fail(MM_ERR_ARG,
                        "mm_reward_repetition: count is %lld, must not be negative; n is %lld, must be at least 1",
                        (long long)count, (long long)n);
    int64_t repeated = 0;
    for (int64_t at = 0; at <= count - n; at++)
        repeated += said_before(ids, at, n);
    *share = count >= n ? (double)repeated / (double)(count - n + 1) : 0;
    return MM_OK;
}
