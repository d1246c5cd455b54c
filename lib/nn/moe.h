/* Mixture of experts: a router picks the k likeliest of E experts for each token, tokens are grouped by expert, and
 * each expert runs one product over its own rows, so the cost follows the parameters in use (Shazeer et al., 2017). */
#ifndef MMI_NN_MOE_H
#define MMI_NN_MOE_H

#include "nn/ffn.h"

/* How tokens are routed. */
typedef struct mmi_router {
    mmi_param weight; /* [E, C] */
    int64_t E, k;
    bool renormalize; /* weights are divided by their sum over the k */
    float noise;      /* deviation of normal noise on the logits, numbered by (seed, stream, token · E + expert) */
    uint64_t seed, stream;
} mmi_router;

/* What routing gave, kept for the backward pass. Grouped rows are the N * k pairs of token and expert, sorted by
 * expert. */
typedef struct mmi_routing {
    float *probs;      /* [N, E] softmax of the router's logits */
    float *weights;    /* [N, k] */
    int32_t *chosen;   /* [N, k] experts, likeliest first; of equal ones the lowest */
    int32_t *row_of;   /* [N, k] grouped row */
    int32_t *token_of; /* [N * k] of a grouped row */
    int64_t *first;    /* [E + 1] first grouped row of each expert */
} mmi_routing;

/* Route the tokens h [N, C]. */
void mmi_moe_route(const mmi_exec *x, mmi_routing *r, const float *h, const mmi_router *router, int64_t N,
                   float *panel);

/* The balance of the load: Σ_e share_e · mean p_e over each of `groups` groups of tokens, averaged over the groups;
 * share_e is the fraction of the group's tokens that chose e. Without its family's factor. */
double mmi_moe_balance(const mmi_routing *r, int64_t N, int64_t E, int64_t k, int64_t groups);

/* out [N, C] = Σ over a token's k experts of weight · expert(h). Kept: inner [N k, inner width], y [N k, C]. Scratch:
 * hg [N k, C], mid [N k, F]. `dropout` acts on each expert's output, before the weights. */
void mmi_moe_forward(const mmi_exec *x, float *out, float *inner, float *y, float *hg, float *mid, const float *h,
                     const mmi_ffn *experts, const mmi_router *router, const mmi_routing *r, mmi_dropout dropout,
                     int64_t N, float *panel);

/* dh [N, C] += …, and gradients of experts and router += …. From dout [N, C]; balance_scale is the factor of the loss
 * on mmi_moe_balance(). hg, dy [N k, C], d_inner [N k, inner width], mid [N k, F], d_probs [N, E] are scratch. */
void mmi_moe_backward(const mmi_exec *x, float *dh, float *hg, float *dy, float *d_inner, float *mid, float *d_probs,
                      const float *dout, const float *h, const float *inner, const float *y, const mmi_ffn *experts,
                      const mmi_router *router, const mmi_routing *r, mmi_dropout dropout, int64_t N,
                      double balance_scale, int64_t groups);

#endif
