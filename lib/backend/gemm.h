/* Large products, cut by shape and run on the pool: by OpenBLAS on slices, or by our own kernels. */
#ifndef MMI_BACKEND_GEMM_H
#define MMI_BACKEND_GEMM_H

#include "backend/exec.h"

/* Floats of x->panels, whatever the shape. */
int64_t mmi_gemm_panels(void);

/* Up to so many rows of K numbers meet W as it lies: to lay it out anew takes longer than that saves. */
int64_t mmi_few_rows(const mmi_exec *x, int64_t K);

/* C[M, N] = op(A) · op(B), or `from` + it: C itself, or rows ldc apart that C does not touch. op(A) is [M, K]: A is [M,
 * K] row-major with rows lda apart, or with `ta` [K, M]. Likewise op(B) [K, N], with `tb` B is [N, K]. The same bits
 * for any number of threads.
 *
 * With x->blas the slices go to OpenBLAS, except for few rows, where our own kernels are faster everywhere; but those
 * that read B as it lies, with `tb`, can't add to `from`, which is left to the slices. It holds OpenBLAS at one thread
 * meanwhile, as mmi_blas_enter() does; a caller with many products enters once around all of them.
 *
 * With x->compute bf16 or f16 both operands are rounded to that type on their way into the kernel, which is then always
 * our own; sums are float32. */
void mmi_gemm(const mmi_exec *x, bool ta, bool tb, int64_t M, int64_t N, int64_t K, const float *A, int64_t lda,
              const float *B, int64_t ldb, const float *from, float *C, int64_t ldc);

/* Floats of scratch per worker that any product needs, of so many workers. */
int64_t mmi_gemm_own_scratch(const mmi_kernels *k, int threads);

/* Floats of scratch per worker that mmi_gemm_weight needs for weights in blocks whose rows have up to K numbers. */
int64_t mmi_gemm_blocks_scratch(int64_t K);

/* Rows that a product reads, `ld` apart. */
typedef struct mmi_operand {
    const float *data;
    int64_t ld;
    const unsigned char *quantized; /* the same rows, by mmi_quantize(); NULL: the product sees to that itself */
} mmi_operand;

static inline mmi_operand mmi_operand_of(const float *data, int64_t ld)
{
    return (mmi_operand){ data, ld, NULL };
}

/* Rows that weights in blocks will meet may be quantized by whoever makes them, part by part, while they lie in a
 * core's cache. */
typedef struct mmi_quantizing {
    const mmi_kernels *k;
    unsigned char *rows; /* NULL: nothing is wanted */
    int64_t K;
} mmi_quantizing;

/* For M rows of K numbers that W [N, K] will meet, in `panel` behind its first `taken` bytes: mmi_gemm_weight()'s,
 * which no other product may use until then. Nothing is wanted where W is not in blocks, or meets them in another way,
 * or where the room does not do. */
mmi_quantizing mmi_quantizing_of(const mmi_exec *x, int64_t M, int64_t N, int64_t K, int32_t dtype, float *panel,
                                 int64_t taken);

/* Numbers [first, first + count) of row i, which are at `from`. */
static inline void mmi_quantize(const mmi_quantizing *q, int64_t i, const float *from, int64_t first, int64_t count)
{
    if (q->rows)
        q->k->quantize(q->rows + i * mmi_quantized_row(q->K), q->K, from, first, count);
}

/* Y[M, N] = X[M, K] · W[N, K]ᵀ with W of any dtype. `panel` has room for N * K floats (NULL when W is float32): of W in
 * f16, and in bf16 where it goes to OpenBLAS or is rounded to f16. With W in blocks (q8_0, q4_0; K a multiple of 32) W
 * lies in strips (strips.h), and `panel` holds X, which is quantized too, block by block, and multiplied as whole
 * numbers: see gemm_blocks. A row of Y then depends on its row of X alone, not on M, nor on x->compute; but where the
 * table has `round_blocks`, so many rows and more are rounded to bf16, as the numbers of W are. */
void mmi_gemm_weight(const mmi_exec *x, int64_t M, int64_t N, int64_t K, mmi_operand X, const void *W, int32_t dtype,
                     float *panel, float *Y, int64_t ldy);

/* Called for columns [first, last) of a product, multiples of 32 but for its end. */
typedef void (*mmi_columns_fn)(void *arg, int64_t first, int64_t last);

/* Y[i][M, N] = X[M, K] · W[i][N, K]ᵀ for two matrices in blocks, rows of both Y ldy apart, X quantized; then(arg, …)
 * for columns that both have, on the thread that made them, in whose caches they lie. */
void mmi_gemm_pair(const mmi_exec *x, int64_t M, int64_t N, int64_t K, const unsigned char *X, const void *const W[2],
                   int32_t dtype, float *const Y[2], int64_t ldy, mmi_columns_fn then, void *arg);

/* Whether M rows are worth that: single ones had rather have one long matrix, and many meet slices. */
bool mmi_gemm_pairs(int64_t M);

#endif
