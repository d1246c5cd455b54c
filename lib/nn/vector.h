/* Long vectors, and rows that lie apart, on the pool. */
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

/* The same for N rows of C numbers that lie ldy and ldin apart, ldin 0: one row for all. y = in; y += in. */
void mmi_rows_copy(const mmi_exec *x, float *y, int64_t ldy, const float *in, int64_t ldin, int64_t N, int64_t C);
void mmi_rows_add(const mmi_exec *x, float *y, int64_t ldy, const float *in, int64_t ldin, int64_t N, int64_t C);

/* y [N, C] = rows of `in`: row i is in's row rows[i]. */
void mmi_rows_gather(const mmi_exec *x, float *y, const float *in, const int32_t *rows, int64_t N, int64_t C);

#endif
