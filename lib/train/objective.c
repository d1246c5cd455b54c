#include <minimind/objective.h>

#include <math.h>
#include <stdbool.h>

#include "base/options.h"

#define IGNORE (-100)

MMI_OPTIONS_INIT(mm_dpo_options, MM_DPO_OPTIONS_INIT)
MMI_OPTIONS_INIT(mm_dpo_result, MM_DPO_RESULT_INIT)
MMI_OPTIONS_INIT(mm_distill_options, MM_DISTILL_OPTIONS_INIT)
MMI_OPTIONS_INIT(mm_distill_result, MM_DISTILL_RESULT_INIT)
MMI_OPTIONS_INIT(mm_policy_options, MM_POLICY_OPTIONS_INIT)
MMI_OPTIONS_INIT(mm_policy_result, MM_POLICY_RESULT_INIT)

static mm_status check_shape(const char *what, int64_t rows, int64_t length)
{
    int64_t n;
    if (rows < 1 || length < 1 || __builtin_mul_overflow(rows, length, &n) || n > INT64_MAX / 16)
        return mmi_fail(MM_ERR_ARG, "%s: the shape is [%lld, %lld], both must be at least 1", what, (long long)rows,
                        (long long)length);
    return MM_OK;
}

static mm_status check_mask(const char *what, const int32_t *mask, int64_t rows, int64_t length)
{
    for (int64_t i = 0; i < rows * length; i++)
        if (mask[i] != 0 && mask[i] != 1)
            return mmi_fail(MM_ERR_ARG, "%s: mask[%lld][%lld] is %d, must be 0 or 1", what, (long long)(i / length),
                            (long long)(i % length), mask[i]);
    return MM_OK;
}

static int64_t counted(const int32_t *mask, int64_t length)
{
    int64_t n = 0;
    for (int64_t t = 0; t < length; t++)
        n += mask[t];
    return n;
}

/* What one token weighs in its sequence's score. */
static double token_weight(const int32_t *mask, int64_t length, int32_t reduction)
{
    int64_t n = counted(mask, length);
    return reduction == MM_REDUCE_MEAN ? 1.0 / (double)(n > 0 ? n : 1) : 1.0;
}

static double score(const float *logprobs, const int32_t *mask, int64_t length, int32_t reduction)
{
    double sum = 0;
    for (int64_t t = 0; t < length; t++)
        if (mask[t])
            sum += logprobs[t];
    return sum * token_weight(mask, length, reduction);
}

static mm_status check_reduction(const char *what, int32_t reduction)
{
    if (reduction != MM_REDUCE_SUM && reduction != MM_REDUCE_MEAN)
        return mmi_fail(MM_ERR_ARG, "%s: reduction is %d, must be MM_REDUCE_SUM or MM_REDUCE_MEAN", what, reduction);
    return MM_OK;
}

mm_status mm_sequence_scores(double *scores, const float *logprobs, const int32_t *mask, int64_t rows, int64_t length,
                             int32_t reduction)
{
    static const char what[] = "mm_sequence_scores";
    if (!scores || !logprobs || !mask)
        return mmi_fail(MM_ERR_ARG, "%s: scores, logprobs or mask is NULL", what);
    mm_status status = check_shape(what, rows, length);
    if (status == MM_OK)
        status = check_mask(what, mask, rows, length);
    if (status == MM_OK)
        status = check_reduction(what, reduction);
    for (int64_t i = 0; i < rows && status == MM_OK; i++)
        scores[i] = score(logprobs + i * length, mask + i * length, length, reduction);
    return status;
}

/* --- DPO --- */

/* log(1 + exp(x)) without overflow. */
static double softplus(double x)
{
    return x > 0 ? x + log1p(exp(-x)) : log1p(exp(x));
}

static double sigmoid(double x)
{
    return x >= 0 ? 1 / (1 + exp(-x)) : exp(x) / (1 + exp(x));
}

/* Every counted token of a row gets the score's derivative times its weight. */
static void spread(float *d, const int32_t *mask, int64_t length, double d_score, int32_t reduction)
{
    double w = d_score * token_weight(mask, length, reduction);
    for (int64_t t = 0; t < length; t++)
        d[t] = mask[t] ? (float)w : 0;
}

mm_status mm_dpo(const mm_dpo_options *options, int64_t pairs, int64_t length, const float *logprobs,
                 const double *ref_scores, const int32_t *mask, float *d_logprobs, mm_dpo_result *out)
{
    mm_dpo_options o = MM_DPO_OPTIONS_INIT;
    mm_dpo_result r = MM_DPO_RESULT_INIT;
    if (!logprobs || !ref_scores || !mask)
        return mmi_fail(MM_ERR_ARG, "mm_dpo: logprobs, ref_scores or mask is NULL");
    mm_status status = mmi_options_read(&o, sizeof o, options, "mm_dpo_options");
    if (status == MM_OK)
        status = mmi_result_write(out, &r, sizeof r, "mm_dpo_result");
    if (status == MM_OK)
        status = check_reduction("mm_dpo", o.reduction);
    if (status == MM_OK && !(o.beta >= 0 && isfinite(o.beta)))
        status = mmi_fail(MM_ERR_ARG, "mm_dpo: beta is %g, must be finite and not negative", o.beta);
    if (status == MM_OK)
        status = check_shape("mm_dpo", pairs, length);
    if (status == MM_OK)
        status = check_mask("mm_dpo", mask, 2 * pairs, length);
    if (status != MM_OK)
        return status;
    for (int64_t i = 0; i < pairs; i++) {
        int64_t c = i * length, j = (pairs + i) * length;
        double policy =
            score(logprobs + c, mask + c, length, o.reduction) - score(logprobs + j, mask + j, length, o.reduction);
        double margin = o.beta * (policy - (ref_scores[i] - ref_scores[pairs + i]));
        double d_policy = -o.beta * sigmoid(-margin) / (double)pairs;
        r.loss += softplus(-margin) / (double)pairs;
        r.margin += margin / (double)pairs;
        r.accuracy += (margin > 0) / (double)pairs;
        if (d_logprobs) {
            spread(d_logprobs + c, mask + c, length, d_policy, o.reduction);
            spread(d_logprobs + j, mask + j, length, -d_policy, o.reduction);
        }
    }
    if (!isfinite(r.loss))
        return mmi_fail(MM_ERR_NUMERIC, "mm_dpo: the loss is %g", r.loss);
    return mmi_result_write(out, &r, sizeof r, "mm_dpo_result");
}

/* --- Distillation --- */

static double log_sum_exp(const float *x, int64_t n, double temperature)
{
    double top = -INFINITY, sum = 0;
    for (int64_t i = 0; i < n; i++)
        top = fmax(top, x[i] / temperature);
    for (int64_t i = 0; i < n; i++)
        sum += exp(x[i] / temperature - top);
    return top + log(sum);
}

/* One row's cross-entropy and divergence; its gradient into d. */
static void distill_row(const mm_distill_options *o, int64_t V, const float *s, const float *t, int32_t target,
                        double share, float *d, mm_distill_result *r)
{
    double tau = o->temperature;
    double s1 = log_sum_exp(s, V, 1), st = log_sum_exp(s, V, tau), tt = log_sum_exp(t, V, tau), kl = 0;
    for (int64_t v = 0; v < V; v++) {
        double log_student = s[v] / tau - st, log_teacher = t[v] / tau - tt, p = exp(log_teacher);
        if (p > 0)
            kl += p * (log_teacher - log_student);
        if (d) /* d(τ² KL)/ds = τ (student - teacher) */
            d[v] = (float)(share * (o->alpha * (exp(s[v] - s1) - (v == target)) +
                                    (1 - o->alpha) * tau * (exp(log_student) - p)));
    }
    r->cross_entropy += share * (s1 - s[target]);
    r->kl += share * tau * tau * kl;
}

static mm_status check_distill(const mm_distill_options *o, int64_t rows, int64_t vocab, int64_t teacher_vocab,
                               const int32_t *targets)
{
    if (!(o->alpha >= 0 && o->alpha <= 1))
        return mmi_fail(MM_ERR_ARG, "mm_distill: alpha is %g, must be from 0 to 1", o->alpha);
    if (!(o->temperature > 0 && isfinite(o->temperature)))
        return mmi_fail(MM_ERR_ARG, "mm_distill: temperature is %g, must be finite and above 0", o->temperature);
    mm_status status = check_shape("mm_distill", rows, teacher_vocab);
    if (status != MM_OK)
        return status;
    if (vocab < 1 || teacher_vocab < vocab)
        return mmi_fail(MM_ERR_ARG, "mm_distill: the teacher's vocabulary of %lld is smaller than the student's %lld",
                        (long long)teacher_vocab, (long long)vocab);
    for (int64_t i = 0; i < rows; i++)
        if (targets[i] != IGNORE && (targets[i] < 0 || targets[i] >= vocab))
            return mmi_fail(MM_ERR_ARG, "mm_distill: targets[%lld] is %d, must be -100 or from 0 to %lld", (long long)i,
                            targets[i], (long long)(vocab - 1));
    return MM_OK;
}

mm_status mm_distill(const mm_distill_options *options, int64_t rows, int64_t vocab, int64_t teacher_vocab,
                     const float *student, const float *teacher, const int32_t *targets, float *d_student,
                     mm_distill_result *out)
{
    mm_distill_options o = MM_DISTILL_OPTIONS_INIT;
    mm_distill_result r = MM_DISTILL_RESULT_INIT;
    if (!student || !teacher || !targets)
        return mmi_fail(MM_ERR_ARG, "mm_distill: student, teacher or targets is NULL");
    mm_status status = mmi_options_read(&o, sizeof o, options, "mm_distill_options");
    if (status == MM_OK)
        status = mmi_result_write(out, &r, sizeof r, "mm_distill_result");
    if (status == MM_OK)
        status = check_distill(&o, rows, vocab, teacher_vocab, targets);
    if (status != MM_OK)
        return status;
    for (int64_t i = 0; i < rows; i++)
        r.count += targets[i] != IGNORE;
    for (int64_t i = 0; i < rows; i++) {
        float *d = d_student ? d_student + i * vocab : NULL;
        if (targets[i] != IGNORE)
            distill_row(&o, vocab, student + i * vocab, teacher + i * teacher_vocab, targets[i], 1.0 / (double)r.count,
                        d, &r);
        else
            for (int64_t v = 0; v < vocab && d; v++)
                d[v] = 0;
    }
    r.total = o.alpha * r.cross_entropy + (1 - o.alpha) * r.kl;
    if (!isfinite(r.total))
        return mmi_fail(MM_ERR_NUMERIC, "mm_distill: the loss is %g", r.total);
    return mmi_result_write(out, &r, sizeof r, "mm_distill_result");
}

/* --- Rewards --- */

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
    for (int64_t first = 0; first < rows; first += group) {
        double mean = 0, variance = 0;
        for (int64_t i = first; i < first + group; i++)
            mean += rewards[i] / (double)group;
        for (int64_t i = first; i < first + group; i++)
            variance += (rewards[i] - mean) * (rewards[i] - mean) / (double)group;
        for (int64_t i = first; i < first + group; i++)
            advantages[i] = (rewards[i] - mean) / (sqrt(variance) + 1e-4);
    }
    return MM_OK;
}

/* One token's loss and its derivative by the logprob. */
typedef struct token_loss {
    double loss, slope, kl;
    bool clipped;
} token_loss;

static token_loss policy_token(const mm_policy_options *o, double now, double old, const float *ref, double A)
{
    token_loss t = { 0 };
    double ratio = exp(now - old), gain, d_gain;
    if (o->variant == MM_POLICY_CISPO) {
        t.clipped = ratio > o->epsilon_high;
        d_gain = fmin(ratio, o->epsilon_high) * A;
        gain = d_gain * now;
    } else {
        double held = fmin(fmax(ratio, 1 - o->epsilon), 1 + o->epsilon);
        t.clipped = held * A < ratio * A;
        gain = t.clipped ? held * A : ratio * A;
        d_gain = t.clipped ? 0 : ratio * A;
    }
    if (ref) {
        double delta = *ref - now;
        t.kl = exp(delta) - delta - 1;
        t.slope = o->beta * (1 - exp(delta));
    }
    t.loss = o->beta * t.kl - gain;
    t.slope -= d_gain;
    return t;
}

static mm_status check_policy(const mm_policy_options *o, int64_t rows, int64_t length, const int32_t *mask)
{
    static const char what[] = "mm_policy_loss";
    if (o->variant != MM_POLICY_GRPO && o->variant != MM_POLICY_CISPO)
        return mmi_fail(MM_ERR_ARG, "%s: variant is %d, must be MM_POLICY_GRPO or MM_POLICY_CISPO", what, o->variant);
    if (!(o->beta >= 0 && isfinite(o->beta)))
        return mmi_fail(MM_ERR_ARG, "%s: beta is %g, must be finite and not negative", what, o->beta);
    if (!(o->epsilon >= 0 && o->epsilon < 1))
        return mmi_fail(MM_ERR_ARG, "%s: epsilon is %g, must be at least 0 and below 1", what, o->epsilon);
    if (!(o->epsilon_high > 0))
        return mmi_fail(MM_ERR_ARG, "%s: epsilon_high is %g, must be above 0", what, o->epsilon_high);
    mm_status status = check_shape(what, rows, length);
    return status == MM_OK ? check_mask(what, mask, rows, length) : status;
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
        status = mmi_result_write(out, &r, sizeof r, "mm_policy_result");
    if (status == MM_OK)
        status = check_policy(&o, rows, length, mask);
    if (status != MM_OK)
        return status;
    double kl = 0, clipped = 0, all = 0;
    for (int64_t i = 0; i < rows; i++) {
        int64_t n = counted(mask + i * length, length);
        double share = 1.0 / (double)(n > 0 ? n : 1) / (double)rows;
        all += (double)n;
        for (int64_t at = i * length; at < (i + 1) * length; at++) {
            token_loss t = { 0 };
            if (mask[at])
                t = policy_token(&o, logprobs[at], old_logprobs[at], ref_logprobs ? ref_logprobs + at : NULL,
                                 advantages[i]);
            r.loss += share * t.loss;
            kl += t.kl;
            clipped += t.clipped;
            if (d_logprobs)
                d_logprobs[at] = (float)(share * t.slope);
        }
    }
    r.mean_kl = kl / fmax(all, 1);
    r.clipped = clipped / fmax(all, 1);
    if (!isfinite(r.loss))
        return mmi_fail(MM_ERR_NUMERIC, "mm_policy_loss: the loss is %g", r.loss);
    return mmi_result_write(out, &r, sizeof r, "mm_policy_result");
}
