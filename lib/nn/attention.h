/* Causal grouped-query attention, tiled, with a running softmax (Milakov & Gimelshein, 2018; Dao et al., 2022): memory
 * grows with the length, never with its square. */
#ifndef MMI_NN_ATTENTION_H
#define MMI_NN_ATTENTION_H

#include "nn/dropout.h"

/* A run of tokens that see each other: one sequence, or one document of a packed row. */
typedef struct mmi_segment {
    int64_t row;             /* of its first new token among the N rows at hand */
    int64_t count;           /* new tokens */
    int64_t past;            /* tokens before them in the cache */
    int64_t sequence;        /* of the cache */
    const int32_t *key_mask; /* [past + count]: 0 hides a key; NULL: all are seen */
} mmi_segment;

/* Where q, k, v lie, in elements. Without a cache, head g of row i of k is at k + i * ldk + g * head_stride (and v
 * alike). With one, sequence s, key t is at k + s * sequence_stride + t * ldk + g * head_stride. Query head h reads
 * key/value head h / (H / G). Keys and values that are not float32 are widened tile by tile, but a few rows read
 * them as they are; the backward pass takes float32 only. */
typedef struct mmi_attention {
    const float *q;
    const void *k, *v;
    int32_t kv_dtype; /* MM_F32; of a cache whose ldk is D also MM_BF16, or MM_Q8_0, D a multiple of 32 */
    int64_t ldq, ldk, head_stride;
    int64_t sequence_stride; /* 0: no cache */
    int64_t H, G, D;
    const mmi_segment *segments;
    int64_t segment_count;
    int64_t *piece_first; /* [segment_count + 1]: scratch for the numbering of pieces */
    mmi_dropout dropout;  /* on the weights, after the softmax */
    bool rounded;         /* products of more than a few rows are of operands rounded to bf16 */
    /* Forward, where mmi_attention_is_short(): called for each segment and key head before its queries, keys and values
     * are read, and after its part of out is there, on a thread that does it or, before, on the caller's. NULL: nothing
     * to do. */
    void (*before)(void *arg, const mmi_segment *segment, int64_t g);
    void (*after)(void *arg, const mmi_segment *segment, int64_t g);
    void *arg;
} mmi_attention;

/* Whether a segment's queries of a key head are always done together. */
bool mmi_attention_is_short(const mmi_attention *a);

/* Floats of scratch per worker; with `rounded` when that may be wanted. INT64_MAX / 2, which no memory holds, where
 * they can't be addressed. */
int64_t mmi_attention_scratch(const mmi_kernels *k, int64_t H, int64_t G, int64_t D, bool rounded);

/* out [N, H * D] = softmax(q · kᵀ / sqrt(D)) · v; lse [N, H], the scores' log Σ exp, is kept for the backward pass or
 * NULL. A row that sees masked keys only gets 0, and gives them no gradient. */
void mmi_attention_forward(const mmi_exec *x, float *out, float *lse, const mmi_attention *a);

/* dq, dk, dv, laid out as q, k, v without a cache, but not in their place: overwritten. */
void mmi_attention_backward(const mmi_exec *x, float *dq, float *dk, float *dv, const float *dout, const float *out,
                            const float *lse, const mmi_attention *a);

#endif
