/* What a layer runs with: a pool, a kernel table, per-worker scratch, whether products go to OpenBLAS, and how precise
 * they are. */
#ifndef MMI_BACKEND_EXEC_H
#define MMI_BACKEND_EXEC_H

#include <stdbool.h>
#include <stdint.h>

#include "backend/kernels.h"
#include "base/pool.h"

typedef struct mmi_exec {
    mmi_kernels k;
    mmi_pool *pool; /* borrowed */
    bool blas;              /* large products go to OpenBLAS */
    int32_t compute;        /* what the operands of large products are rounded to; MM_F32: not at all */
    float *panels;          /* mmi_gemm_panels() floats, read by all workers of a product; free between products */
    float *scratch;         /* [threads, scratch_stride] */
    int64_t scratch_stride; /* floats per worker */
} mmi_exec;

/* Worker `worker`'s own scratch. */
static inline float *mmi_exec_scratch(const mmi_exec *x, int worker)
{
    return x->scratch + worker * x->scratch_stride;
}

/* The same for products that are not to be rounded. */
static inline mmi_exec mmi_exec_exact(const mmi_exec *x)
{
    mmi_exec exact = *x;
    exact.compute = MM_F32;
    return exact;
}

/* Rows [*first, *last) of piece `piece` when `rows` are cut into pieces of `step`. */
static inline void mmi_piece_rows(int64_t piece, int64_t step, int64_t rows, int64_t *first, int64_t *last)
{
    *first = piece * step;
    *last = *first + step < rows ? *first + step : rows;
}
static inline int64_t mmi_pieces(int64_t rows, int64_t step)
{
    return (rows + step - 1) / step;
}

/* Rows of `width` floats, `least` or more, whose simple work takes some microseconds: less is done before another
 * thread has woken, and models with narrow rows would be slower with two threads than with one. */
#define MMI_WORTHWHILE 16384
static inline int64_t mmi_rows_worth(int64_t least, int64_t width)
{
    int64_t rows = MMI_WORTHWHILE / (width > 0 ? width : 1);
    return rows > least ? rows : least;
}

/* Hold OpenBLAS at one thread from enter to leave, and give the host its setting back. Contexts on several threads may
 * overlap: the first in saves, the last out restores. Without BLAS in the build, nothing. */
void mmi_blas_enter(void);
void mmi_blas_leave(void);

/* Around a pass: OpenBLAS, where products go to it, is held once for all of them, and workers stay awake. */
static inline void mmi_exec_enter(const mmi_exec *x)
{
    if (x->blas)
        mmi_blas_enter();
    mmi_pool_enter_pass(x->pool);
}
static inline void mmi_exec_leave(const mmi_exec *x)
{
    mmi_pool_leave_pass(x->pool);
    if (x->blas)
        mmi_blas_leave();
}

#endif
