/* Dropout (Srivastava et al., 2014) by counters: whether an element is kept depends on (seed, stream, index) alone, so
 * the backward pass computes the mask again, and threads and resumed runs see the same one. */
#ifndef MMI_NN_DROPOUT_H
#define MMI_NN_DROPOUT_H

#include "backend/exec.h"

typedef struct mmi_dropout {
    float p; /* 0: off, and everything below does nothing */
    uint64_t seed, stream;
} mmi_dropout;

/* y[i] = y[i] / (1 - p) where element i is kept, else 0. Its own backward pass. */
void mmi_dropout_apply(const mmi_exec *x, float *y, int64_t n, mmi_dropout d);

/* The same for n elements whose indices begin at `first`, on the calling thread. */
void mmi_dropout_row(const mmi_kernels *k, float *y, int64_t n, uint64_t first, mmi_dropout d);

#endif
