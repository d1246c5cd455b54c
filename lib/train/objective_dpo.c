/* Scores of sequences and direct preference optimisation. */
#include <math.h>

#include "base/options.h"
#include "train/objective.h"

MMI_OPTIONS_INIT(mm_dpo_options, MM_DPO_OPTIONS_INIT)
MMI_OPTIONS_INIT(mm_dpo_result, MM_DPO_RESULT_INIT)

/* What one token weighs in its sequence's score. */
static double token_weight(const int32_t *mask, int64_t length, int32_t reduction)
{
    int64_t n = mmi_objective_counted(mask, length);
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
    mm_status status = mmi_objective_shape(what, rows, length);
    if (status == MM_OK)
        status = mmi_objective_mask(what, mask, rows, length);
    if (status == MM_OK)
        status = check_reduction(what, reduction);
    for (int64_t i = 0; i < rows && status == MM_OK; i++)
        scores[i] = score(logprobs + i * length, mask + i * length, length, reduction);
    return status;
}

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

mm_status mmi_dpo_check(const mm_dpo_options *o)
{
    mm_status status = check_reduction("mm_dpo", o->reduction);
    if (status == MM_OK && o->reserved != 0)
        status = mmi_fail(MM_ERR_ARG, "mm_dpo: reserved is %d, must be 0", o->reserved);
    return status == MM_OK ? mmi_objective_weight("mm_dpo", "beta", o->beta) : status;
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
        status = mmi_result_check(out, "mm_dpo_result");
    if (status == MM_OK)
        status = mmi_dpo_check(&o);
    if (status == MM_OK)
        status = mmi_objective_shape("mm_dpo", pairs, length);
    if (status == MM_OK)
        status = mmi_objective_mask("mm_dpo", mask, 2 * pairs, length);
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
