/* The feed-forward network: down(act(gate(x)) * up(x)), or down(act(up(x))) where there is no gate (Shazeer, 2020). */
#ifndef MMI_NN_FFN_H
#define MMI_NN_FFN_H

#include "nn/dropout.h"
#include "nn/linear.h"

typedef struct mmi_ffn {
    mmi_param gate, gate_bias, up, up_bias, down, down_bias; /* gate.w.data NULL: plain */
    int32_t act;                                             /* MMI_ACT_… */
    mmi_dropout dropout;                                     /* on what the down projection reads */
} mmi_ffn;

/* Floats per row of `inner`: what the gate and up products gave. */
int64_t mmi_ffn_inner(const mmi_ffn *f);

/* For N rows that the network will read next: see mmi_linear_quantizing(). */
mmi_quantizing mmi_ffn_quantizing(const mmi_exec *x, const mmi_ffn *f, int64_t N, float *panel);

/* y [N, C] = from + the network of h [N, C], without gaps; `from` may be y, or NULL: 0. `later` is that of
 * mmi_linear_add(), and so are `delta` and what it returns. inner [N, mmi_ffn_inner] is kept for the backward pass; mid
 * [N, F] is scratch. */
bool mmi_ffn_forward(const mmi_exec *x, float *y, const float *from, float *inner, float *mid, mmi_operand h,
                     const mmi_ffn *f, int64_t N, float *panel, float *delta, bool later);

/* dh [N, C] = gradient by h, and the weights' gradients += …. inner as forward left it; d_inner [N, mmi_ffn_inner] and
 * mid [N, F] are scratch. dh may be dy. */
void mmi_ffn_backward(const mmi_exec *x, float *dh, float *d_inner, float *mid, const float *dy, const float *h,
                      const float *inner, const mmi_ffn *f, int64_t N);

#endif
