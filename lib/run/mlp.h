/* The feed-forward half of a layer, dense or of experts: x' = x_mid + mlp(norm(x_mid)), and back. */
#ifndef MMI_RUN_MLP_H
#define MMI_RUN_MLP_H

#include "run/context.h"

/* x_mid of the layer → what the next layer reads. Returns the layer's auxiliary loss, 0 in evaluation. */
double mmi_mlp_forward(mm_context *ctx, const mmi_pass *pass, int64_t layer);

/* plan.dx, the gradient by what the layer gave, becomes the gradient by x_mid; the parameters' gradients += …. */
void mmi_mlp_backward(mm_context *ctx, const mmi_pass *pass, int64_t layer, double aux_scale);

#endif
