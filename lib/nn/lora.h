/* Low-rank adapters beside products that stay as they are (Hu et al., 2021): y += scale · B(A(dropout(x))). */
#ifndef MMI_NN_LORA_H
#define MMI_NN_LORA_H

#include "nn/dropout.h"

typedef struct mmi_lora {
    const float *a, *b; /* [rank, in], [out, rank] */
    float *da, *db;     /* where their gradients are added up; NULL: not trained */
    int64_t rank;
    float scale;
    float dropout; /* of what A reads, in training */
    uint64_t stream;
} mmi_lora;

/* What all of a context's adapters work with, one product at a time; R rows at most. */
typedef struct mmi_lora_room {
    float *down, *d_down; /* [R, rank] */
    float *in, *d_in;     /* [R, in] with dropout */
    uint64_t seed;        /* of dropout */
    bool training;
} mmi_lora_room;

/* The adapters of one product. */
typedef struct mmi_loras {
    const mmi_lora *of; /* [count] */
    int64_t count;
    const mmi_lora_room *room;
} mmi_loras;

/* y [N, out] += …, from in [N, cols]; rows ldy and ldin apart. */
void mmi_loras_forward(const mmi_exec *x, float *y, int64_t ldy, const float *in, int64_t ldin, const mmi_loras *l,
                       int64_t N, int64_t out, int64_t cols);

/* din [N, cols] += … unless it is NULL; the adapters' gradients += … unless `in` is NULL. */
void mmi_loras_backward(const mmi_exec *x, float *din, int64_t lddin, const float *dy, int64_t lddy, const float *in,
                        int64_t ldin, const mmi_loras *l, int64_t N, int64_t out, int64_t cols);

#endif
