/* Long vectors, on the pool. */
#ifndef MMI_NN_VECTOR_H
#define MMI_NN_VECTOR_H

#include "backend/exec.h"

/* y = in; the same vector is fine. */
void mmi_vector_copy(const mmi_exec *x, float *y, const float *in, int64_t n);

/* y = 0. */
void mmi_vector_zero(const mmi_exec *x, float *y, int64_t n);

/* y += a · in. */
void mmi_vector_axpy(const mmi_exec *x, float *y, float a, const float *in, int64_t n);

/* y *= a. */
void mmi_vector_scale(const mmi_exec *x, float *y, float a, int64_t n);

#endif
