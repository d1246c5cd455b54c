/* Every buffer a context will ever need, for its largest batch, in one arena. The same cuts measure it (base NULL) and
 * place it, so mm_estimate_memory() can't disagree with what is allocated. */
#ifndef MMI_RUN_PLAN_H
#define MMI_RUN_PLAN_H

#include "base/memory.h"
#include "model/model.h"
#include "nn/attention.h"
#include "nn/loss.h"
#include "nn/moe.h"
#include "run/limits.h"

/* What forward keeps of one layer. Evaluation keeps nothing: all layers share one set, and x is x_mid is the next
 * layer's x. */
typedef struct mmi_kept {
    float *x;                /* [N, C] what the layer read */
    float *mean1, *rstd1;    /* [N] of the first norm */
    float *qkv;              /* [N, (H + 2G) D] after norm and rotation */
    float *qk_raw, *qk_rstd; /* [N, (H + G) D], [N, H + G] before the head norms; only with qk_norm, in training */
    float *attn;             /* [N, H D] */
    float *lse;              /* [N, H] */
    float *x_mid;            /* [N, C] between attention and feed-forward */
    float *mean2, *rstd2;    /* [N] of the second norm */
    float *inner;            /* [N, 2F] gate and up; of shared experts [S, N, 2F] */
    mmi_routing routing;     /* with experts: see nn/moe.h */
    float *expert_inner, *expert_y; /* [N k, 2F], [N k, C] of the grouped rows */
    float *routed, *shared;         /* [N, C] sums of the routed and of the shared experts */
} mmi_kept;

typedef struct mmi_plan {
    /* the batch at hand, N = B · T rows */
    int32_t *ids, *targets, *positions, *key_mask; /* [N] */
    mmi_segment *segments;                         /* [N] */
    int64_t *piece_first;                          /* [N + 1] */
    int32_t *last_rows;                            /* [B] rows whose last logits are wanted */

    mmi_kept *layers;               /* [L] */
    float *x_final;                 /* [N, C] behind the last layer */
    float *mean_final, *rstd_final; /* [N] */
    float *hidden;                  /* [N, C] behind the final norm */
    float *h, *mid, *delta;         /* [N, C], [R, F], [N, C] scratch of one layer; R = N, or N k with experts */
    float *branch;                  /* [N, C] what a block adds, where that passes through dropout or scalars */
    float *grouped;                 /* [R, C] with experts: rows sorted by expert */
    mmi_ffn *experts;               /* [E + S] the layer's at hand */
    int64_t *expert_load;           /* [L, E] choices of each routed expert in the last pass */
    float *dx, *dh, *dqkv, *dattn, *dinner; /* training: gradients of one layer */
    float *dbranch, *dgrouped, *dprobs;     /* training: [N, C], [R, C], [N, E] */
    float *partials;                        /* training: see nn/norm.h */

    float *logprobs, *weights; /* [N] of the targets */
    mmi_head_scratch head;
    float *head_grad; /* [V, C] the loss's by the head, before it is divided; NULL: the head is frozen */
    float *last_hidden, *last_logits; /* [B, C], [B, V] */
    float *logits;                    /* [N, V] */

    float *cos, *sin; /* [max_context, D/2] */
    float *sinusoid;  /* [max_context, C] */
    float *scratch;   /* [threads, scratch_stride] */
    int64_t scratch_stride;
    float *panels;    /* of large products */
    float *panel;   /* the largest matrix as float32; only where it is not */
    float *vectors; /* every vector as float32; only with wide weights */
} mmi_plan;

/* Rows that a product sees at most: of the largest batch, each token as often as it goes to an expert. */
int64_t mmi_plan_rows(const mmi_arch *arch, const mmi_limits *limits);

/* Lay the plan out. False: its size overflows. */
bool mmi_plan_place(mmi_plan *plan, mmi_carve *carve, const mmi_arch *arch, const mmi_layout *layout,
                    const mmi_limits *limits);

#endif
