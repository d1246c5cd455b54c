/* Distillation. */
#include <math.h>

#include "base/options.h"
#include "base/target.h"
#include "train/objective.h"

MMI_OPTIONS_INIT(mm_distill_options, MM_DISTILL_OPTIONS_INIT)
MMI_OPTIONS_INIT(mm_distill_result, MM_DISTILL_RESULT_INIT)

static double log_sum_exp(const float *x, int64_t n, double temperature)
{
    double top = -INFINITY, sum = 0;
    for (int64_t i = 0; i < n; i++) {
        double scaled = x[i] / temperature;
        if (scaled > top) /* GCC 12 for Arm breaks down over fmax() here */
            top = scaled;
    }
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

mm_status mmi_distill_check(const mm_distill_options *o)
{
    if (!(o->alpha >= 0 && o->alpha <= 1))
        return mmi_fail(MM_ERR_ARG, "mm_distill: alpha is %g, must be from 0 to 1", o->alpha);
    if (!(o->temperature > 0 && isfinite(o->temperature)))
        return mmi_fail(MM_ERR_ARG, "mm_distill: temperature is %g, must be finite and above 0", o->temperature);
    return MM_OK;
}

static mm_status check_distill(const mm_distill_options *o, int64_t rows, int64_t vocab, int64_t teacher_vocab,
                               const int32_t *targets)
{
    mm_status status = mmi_distill_check(o);
    if (status == MM_OK)
        status = mmi_objective_shape("mm_distill", rows, teacher_vocab);
    if (status != MM_OK)
        return status;
    if (vocab < 1 || teacher_vocab < vocab)
        return mmi_fail(MM_ERR_ARG, "mm_distill: the teacher's vocabulary of %lld is smaller than the student's %lld",
                        (long long)teacher_vocab, (long long)vocab);
    for (int64_t i = 0; i < rows; i++)
        if (targets[i] != MMI_IGNORE && (targets[i] < 0 || targets[i] >= vocab))
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
        status = mmi_result_check(out, "mm_distill_result");
    if (status == MM_OK)
        status = check_distill(&o, rows, vocab, teacher_vocab, targets);
    if (status != MM_OK)
        return status;
    r.count = mmi_targets_counted(targets, rows);
    for (int64_t i = 0; i < rows; i++) {
        float *d = d_student ? d_student + i * vocab : NULL;
        if (targets[i] != MMI_IGNORE)
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
