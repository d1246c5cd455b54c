/* The head and the cross-entropy behind it, over a few hundred rows at a time, so that the logits of a whole batch
 * never exist at once. */
#ifndef MMI_NN_LOSS_H
#define MMI_NN_LOSS_H

#include "nn/linear.h"

/* What one chunk works with. */
typedef struct mmi_head_scratch {
    float *logits;   /* [chunk, V] */
    float *hidden;   /* [chunk, C] */
    float *d_hidden; /* [chunk, C]; NULL in evaluation */
    int32_t *rows;   /* [chunk] */
    int64_t chunk;
} mmi_head_scratch;

/* Rows per chunk for a vocabulary of V. */
int64_t mmi_head_chunk(int64_t V);

/* For every row i < N with targets[i] ≥ 0: logprobs[i] of the target; others get 0. `all_logits` [N, V] if
 * they were made anyway, else NULL and they are made from hidden [N, C] in chunks. */
void mmi_head_logprobs(const mmi_exec *x, float *logprobs, const float *hidden, const float *all_logits,
                       const int32_t *targets, mmi_param head, int64_t N, float *panel, const mmi_head_scratch *s);

/* The same without `all_logits`, and while a chunk's logits are there the way back through them for weights of 1:
 * d_hidden [N, C] = …, and head.grad += …. What a loss will be divided by is not known yet, so whoever goes back scales
 * both; in exchange no logits are made twice. */
void mmi_head_learn(const mmi_exec *x, float *d_hidden, float *logprobs, const float *hidden, const int32_t *targets,
                    mmi_param head, int64_t N, const mmi_head_scratch *s);

/* Backward from weights[i] = -d(loss)/d(logprob_i): d_hidden [N, C] += … and the head's gradient += …. Rows without a
 * target give nothing. */
void mmi_head_backward(const mmi_exec *x, float *d_hidden, const float *weights, const float *hidden,
                       const int32_t *targets, mmi_param head, int64_t N, const mmi_head_scratch *s);

/* Backward from the caller's d_logits [N, V], times scale. */
void mmi_head_backward_logits(const mmi_exec *x, float *d_hidden, const float *d_logits, float scale,
                              const float *hidden, mmi_param head, int64_t N, const mmi_head_scratch *s);

#endif
