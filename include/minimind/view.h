/**
 * @file view.h
 * How tensors are shown: a pointer, a dtype, a shape. Nothing is copied.
 */
#ifndef MINIMIND_VIEW_H
#define MINIMIND_VIEW_H

#include <minimind/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/** What one element is. The numbers never change. */
enum {
    MM_F32 = 0,  /**< IEEE single */
    MM_BF16 = 1, /**< the upper half of a single */
    MM_F16 = 2,  /**< IEEE half */
    MM_I32 = 3,
    MM_I64 = 4,
    MM_Q8_0 = 5, /**< blocks of 32 numbers in 34 bytes: a half `scale`, then 32 signed bytes q; number i is q[i]·scale */
    MM_Q4_0 = 6  /**< blocks of 32 numbers in 18 bytes: a half `scale`, then 16 bytes whose low halves q hold numbers 0 to
                      15 and whose high halves 16 to 31; number i is (q[i] - 8)·scale. Both as GGUF lays them out,
                      little-endian, at any address. */
};

/**
 * A tensor that belongs to somebody else. This struct is frozen: it never grows.
 *
 * Element (i, j) of a matrix is at data + (i * strides[0] + j * strides[1]) elements. Axes beyond `rank` have
 * shape 1 and stride 0. A view that was not asked for has data NULL and rank 0.
 *
 * Numbers in blocks (MM_Q8_0, MM_Q4_0) have no address of their own: there strides[0] is the blocks of a row, shape[1] / 32,
 * strides[1] is 0, and row i begins strides[0] * i blocks behind data.
 */
typedef struct mm_view {
    void *data;         /**< the first element; NULL: not asked for */
    int32_t dtype;      /**< MM_F32, … */
    int32_t rank;       /**< axes, 0 to 4 */
    int64_t shape[4];   /**< elements along each axis */
    int64_t strides[4]; /**< in elements; of numbers in blocks, in blocks */
    uint64_t reserved[2]; /**< 0 */
} mm_view;

/** Bytes of one element of `dtype`; 0 for numbers in blocks and for what is no dtype. Threads: any. Since: 0.1 */
MM_API size_t mm_dtype_size(int32_t dtype);

/** "f32", "bf16", …; "unknown" for a number that is no dtype. Static. Threads: any. Since: 0.1 */
MM_API const char *mm_dtype_name(int32_t dtype);

#ifdef __cplusplus
}
#endif

#endif
