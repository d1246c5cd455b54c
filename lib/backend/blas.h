/* The only door to OpenBLAS. */
#ifndef MMI_BACKEND_BLAS_H
#define MMI_BACKEND_BLAS_H

#include <stdbool.h>
#include <stdint.h>

/* Whether OpenBLAS is in the build, and the sizes are not beyond its integers. */
bool mmi_blas_takes(int64_t M, int64_t N, int64_t K, int64_t lda, int64_t ldb, int64_t ldc);

/* C[M, N] = or += op(A) · op(B), as mmi_gemm has it, on this thread; M, N, K > 0. */
void mmi_blas_product(float *c, int64_t ldc, bool ta, bool tb, const float *a, int64_t lda, const float *b, int64_t ldb,
                      int64_t M, int64_t N, int64_t K, bool accumulate);

/* The kind of processor that OpenBLAS has chosen its kernels for; NULL without it. */
const char *mmi_blas_core(void);

#endif
