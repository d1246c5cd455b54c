/* What forward and backward both need to know of a layer: its parameters, and where its q, k, v lie. */
#ifndef MMI_RUN_BLOCK_H
#define MMI_RUN_BLOCK_H

#include "nn/ffn.h"
#include "run/context.h"

mmi_ffn mmi_block_ffn(const mm_context *ctx, int64_t layer);

/* The head's matrix: the embedding's when tied. */
mmi_param mmi_block_head(const mm_context *ctx);

/* q, k, v of a layer as attention reads them: from its rows, or keys and values from the pass's cache. */
mmi_attention mmi_block_attention(const mm_context *ctx, const mmi_pass *pass, int64_t layer);

/* plan.h → q, k, v with head norms and rotation, in the layer's rows and in the cache. */
void mmi_block_qkv(mm_context *ctx, const mmi_pass *pass, int64_t layer);

/* plan.dqkv → plan.dh, the gradient by plan.h; the parameters' gradients += …. */
void mmi_block_qkv_backward(mm_context *ctx, const mmi_pass *pass, int64_t layer);

#endif
