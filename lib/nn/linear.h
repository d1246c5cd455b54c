/* Products with weight matrices: y = x · Wᵀ (+ b). */
#ifndef MMI_NN_LINEAR_H
#define MMI_NN_LINEAR_H

#include "backend/gemm.h"
#include "model/model.h"
#include "nn/lora.h"

/* A parameter and where its gradient is added up. data NULL: this config has none. */
typedef struct mmi_param {
    mmi_weight w;
    float *grad;            /* NULL: not trained */
    const mmi_loras *loras; /* adapters beside it; NULL: none */
} mmi_param;

/* y [N, out] = in [N, in] · Wᵀ + b, rows of y ldy apart. `panel`: room for W as float32; NULL where it is. */
void mmi_linear_forward(const mmi_exec *x, float *y, int64_t ldy, mmi_operand in, mmi_param w, mmi_param b, int64_t N,
                        float *panel);

/* y [N, out] = from + in · Wᵀ + b, rows without gaps: how a block joins the residual stream. `from` may be y, or
 * NULL: 0, and then delta may be too, which is scratch [N, out]. With `later`, and y for `from`, it may be left to
 * whoever reads y next to add delta to it first; true if it is. */
bool mmi_linear_add(const mmi_exec *x, float *y, const float *from, mmi_operand in, mmi_param w, mmi_param b, int64_t N,
                    float *panel, float *delta, bool later);

/* Up to three matrices that read the same rows, their outputs one beside the other in y: one product where the matrices
 * lie side by side, as they do without biases. b[i].w.data NULL: no bias. */
void mmi_linear_group_forward(const mmi_exec *x, float *y, int64_t ldy, mmi_operand in, const mmi_param *w,
                              const mmi_param *b, int count, int64_t N, float *panel);

/* For N rows that such products will read next: see mmi_quantizing_of(). Nothing is wanted where one of the matrices is
 * not in blocks. */
mmi_quantizing mmi_linear_quantizing(const mmi_exec *x, const mmi_param *w, int count, int64_t N, float *panel,
                                     int64_t taken);

/* Back: din [N, in] = …, and the gradients += …. */
void mmi_linear_group_backward(const mmi_exec *x, float *din, int64_t lddin, const float *dy, int64_t lddy,
                               const float *in, int64_t ldin, const mmi_param *w, const mmi_param *b, int count,
                               int64_t N);

/* din [N, in] = or += dy · W (din NULL: not wanted); dW += dyᵀ · in; db += dy's column sums. in NULL: the
 * adapters' gradients aren't wanted, and neither is dW. */
void mmi_linear_backward(const mmi_exec *x, float *din, int64_t lddin, const float *dy, int64_t lddy, const float *in,
                         int64_t ldin, mmi_param w, mmi_param b, int64_t N, bool accumulate);

#endif
