/* Drawing a token from logits. */
#ifndef MMI_RUN_SAMPLING_H
#define MMI_RUN_SAMPLING_H

#include <minimind/generate.h>

#include "backend/kernels.h"

/* Check the numbers. */
mm_status mmi_sampling_check(const mm_sampling *s);

/* A token as one number, greater where it comes first: of the larger logit, then of the lower id. */
typedef uint64_t mmi_candidate;

/* Room for one of each token, and for as many ids behind them. */
static inline int64_t mmi_candidates(int64_t V)
{
    return V + (V + 1) / 2;
}

/* The drawn id, and in *logprob its log-probability before penalty, temperature and filters. `work` [2 V] and
 * `candidates` [mmi_candidates(V)] are scratch. `seen` [V]: 1 for tokens of the sequence so far. `uniform` in [0, 1)
 * decides. -1: the logits hold a NaN, or nothing above -inf, or +inf, also after the penalty. */
int32_t mmi_sample(const mmi_kernels *k, const float *logits, int64_t V, const mm_sampling *s,
                   const unsigned char *seen, double uniform, float *work, mmi_candidate *candidates, float *logprob);

#endif
