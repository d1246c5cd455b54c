/* RMSNorm and LayerNorm over rows, and RMSNorm over the heads of q and k. */
#ifndef MMI_NN_NORM_H
#define MMI_NN_NORM_H

#include "nn/linear.h"

/* A norm's parameters; bias.w.data NULL: RMSNorm. Weights must be float32. */
typedef struct mmi_norm_params {
    mmi_param weight, bias;
    float eps;
} mmi_norm_params;

/* Floats of `partials` that a backward pass over rows of width C needs. */
int64_t mmi_norm_partials(int64_t C);

/* What becomes of a row beside its norm, while it lies in a core's cache. */
typedef struct mmi_norm_beside {
    float *stream;      /* the same rows as the norm's `in`, writable, */
    const float *delta; /* [N, C] and what is added to those first; NULL: nothing */
    mmi_quantizing q;   /* of the norm */
} mmi_norm_beside;

/* y = norm(in) over N rows of C, without gaps. mean, rstd [N] are kept for the backward pass or NULL; mean is not
 * touched by RMSNorm. y may be in. `beside` may be NULL: nothing else. */
void mmi_norm_forward(const mmi_exec *x, float *y, float *mean, float *rstd, const float *in, mmi_norm_params p,
                      int64_t N, int64_t C, const mmi_norm_beside *beside);

/* din += …; the parameters' gradients += …, the same bits for any number of threads. */
void mmi_norm_backward(const mmi_exec *x, float *din, const float *dy, const float *in, const float *mean,
                       const float *rstd, mmi_norm_params p, int64_t N, int64_t C, float *partials);

/* RMSNorm of each of `heads` heads of D at every one of N rows, ld apart. rstd [N, heads] or NULL. */
void mmi_head_norm_forward(const mmi_exec *x, float *y, int64_t ldy, float *rstd, const float *in, int64_t ldin,
                           mmi_norm_params p, int64_t N, int64_t heads, int64_t D);

/* In place on d, which holds dy and then dx. */
void mmi_head_norm_backward(const mmi_exec *x, float *d, int64_t ldd, const float *in, int64_t ldin, const float *rstd,
                            mmi_norm_params p, int64_t N, int64_t heads, int64_t D, float *partials);

#endif
