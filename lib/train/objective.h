/* What the objectives share: checks of their arguments, and terms of a token's loss that more than one has. */
#ifndef MMI_TRAIN_OBJECTIVE_H
#define MMI_TRAIN_OBJECTIVE_H

#include <stdbool.h>

#include <minimind/objective.h>

#include "base/status.h"

/* MM_ERR_ARG in the name of `what`: a shape that is empty or too large, a mask of other than 0 and 1, a number that is
 * negative or not finite, an ε outside [0, 1). */
mm_status mmi_objective_shape(const char *what, int64_t rows, int64_t length);
mm_status mmi_objective_mask(const char *what, const int32_t *mask, int64_t rows, int64_t length);
mm_status mmi_objective_weight(const char *what, const char *name, double value);
mm_status mmi_objective_epsilon(const char *what, double epsilon);

/* Are the options such as the objective takes? For whoever wants to know before a run begins. */
mm_status mmi_dpo_check(const mm_dpo_options *options);
mm_status mmi_distill_check(const mm_distill_options *options);

/* Tokens that count. */
int64_t mmi_objective_counted(const int32_t *mask, int64_t length);

/* Advantages [count] brought to mean 0 and variance 1 in three steps, so that ranks can add up the sums of the first
 * two: Σ a, then Σ (a - mean)², over those that count. */
double mmi_advantages_sum(const double *advantages, const int32_t *mask, int64_t count);
double mmi_advantages_squares(const double *advantages, const int32_t *mask, int64_t count, double mean);
void mmi_advantages_scale(double *advantages, const int32_t *mask, int64_t count, double mean, double variance);

/* A token's term and its derivative by the policy's logprob. */
typedef struct mmi_term {
    double value, slope;
    bool clipped;
} mmi_term;

/* min(ρA, clamp(ρ, 1 - ε, 1 + ε)A). */
mmi_term mmi_clipped_gain(double ratio, double advantage, double epsilon);

/* exp(δ) - δ - 1 with δ = ref - now: an estimate of the divergence from the reference that is never negative. */
mmi_term mmi_reference_kl(double now, double ref);

#endif
