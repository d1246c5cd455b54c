/* PPO's loss once more, term by term, on logprobs and values in double precision. */
#ifndef MM_TESTS_TRAIN_PPO64_H
#define MM_TESTS_TRAIN_PPO64_H

#include "support.h"

/* What the loss reads beside logprobs and values, for n tokens. */
typedef struct ppo64 {
    mm_ppo_options options;
    int64_t n;
    const float *old_logprobs, *ref_logprobs, *old_values;
    const int32_t *mask;
    const double *advantages, *returns;
} ppo64;

double ppo64_loss(const ppo64 *p, const double *logprobs, const double *values);

#endif
