/* The attention half of a layer: x_mid = x + attention(norm(x)), and back. */
#ifndef MMI_RUN_BLOCK_H
#define MMI_RUN_BLOCK_H

#include "run/context.h"

/* The head's matrix: the embedding's when tied. */
mmi_param mmi_block_head(const mm_context *ctx);

/* x → x_mid of the layer. */
void mmi_block_forward(mm_context *ctx, const mmi_pass *pass, int64_t layer);

/* plan.dx, the gradient by x_mid, becomes the gradient by x; the parameters' gradients += …. */
void mmi_block_backward(mm_context *ctx, const mmi_pass *pass, int64_t layer);

/* For the norm of `stream` [N, C], quantized as `q` says: whatever that is still owed is added. */
mmi_norm_beside mmi_block_beside(mm_context *ctx, float *stream, mmi_quantizing q);

/* to += branch through dropout, N * C numbers; branch is changed. */
void mmi_block_add(const mm_context *ctx, float *to, float *branch, int64_t n, mmi_dropout dropout);

/* The gradient by a branch from that by the sum: plan.dx itself, or through dropout in plan.dbranch. */
const float *mmi_block_branch_gradient(const mm_context *ctx, int64_t n, mmi_dropout dropout);

#endif
