/* Weights in blocks as products read them. GGUF's order, row by row, would make a kernel collect a vector from as many
 * places as it has rows; here the rows of a matrix [rows, cols] lie in strips of MMI_STRIP, whose blocks are side by
 * side, so that a vector of a strip's rows is one load and a strip is read from end to end. The bytes are GGUF's, and
 * as many.
 *
 * A strip is its blocks along the row, two by two: the scales of both, 16 halves for each, and then the numbers of one
 * and of the other, so that a kernel meets all bytes in the order of their addresses, which is how the hardware reads
 * ahead. Of an odd number of blocks the last one stands alone. A block's numbers are lines of 64 bytes: in line s byte
 * 4 r + c is byte 4 s + c of row r's numbers, so q8_0 has 8 lines with the numbers 4 s to 4 s + 3 of each row, and q4_0
 * has 4 with the numbers 4 s to 4 s + 3 in the low halves and 16 more than that in the high ones. Rows that the last
 * strip lacks are 0. */
#ifndef MMI_BACKEND_STRIPS_H
#define MMI_BACKEND_STRIPS_H

#include "base/dtype.h"

#define MMI_STRIP 16        /* rows */
#define MMI_STRIP_LINE 64   /* bytes: four numbers, or pairs of them, of each row */
#define MMI_STRIP_SCALES 32 /* bytes: a block's scales */

/* A strip's lines of a block. */
static inline int64_t mmi_strip_lines(int32_t dtype)
{
    return dtype == MM_Q8_0 ? MMI_BLOCK / 4 : MMI_BLOCK / 8;
}

/* Bytes from the beginning of a strip of so many blocks to the numbers, and to the scales, of one of them. */
static inline int64_t mmi_strip_numbers_at(int32_t dtype, int64_t blocks, int64_t block)
{
    const int64_t scales = (block | 1) + 1; /* of both of each two so far */
    return block * mmi_strip_lines(dtype) * MMI_STRIP_LINE + (scales < blocks ? scales : blocks) * MMI_STRIP_SCALES;
}

static inline int64_t mmi_strip_scales_at(int32_t dtype, int64_t block)
{
    return block / 2 * 2 * mmi_strip_lines(dtype) * MMI_STRIP_LINE + block * MMI_STRIP_SCALES;
}

/* Bytes of a matrix. */
static inline size_t mmi_strips_bytes(int32_t dtype, int64_t rows, int64_t cols)
{
    return mmi_dtype_bytes(dtype, (rows + MMI_STRIP - 1) / MMI_STRIP * MMI_STRIP * cols);
}

/* Bytes of a matrix of any dtype: in strips if it is in blocks. */
static inline size_t mmi_matrix_bytes(int32_t dtype, int64_t rows, int64_t cols)
{
    return mmi_block_bytes(dtype) > 0 ? mmi_strips_bytes(dtype, rows, cols) : mmi_dtype_bytes(dtype, rows * cols);
}

/* Fill up the last strip, before rows are put. */
void mmi_strips_begin(void *strips, int32_t dtype, int64_t rows, int64_t cols);

/* Blocks [first, first + count) of a row, between a matrix in strips and GGUF's order. */
void mmi_strips_put(void *strips, int32_t dtype, int64_t cols, int64_t row, int64_t first, int64_t count,
                    const void *blocks);
void mmi_strips_get(void *blocks, const void *strips, int32_t dtype, int64_t cols, int64_t row, int64_t first,
                    int64_t count);

/* All rows. */
void mmi_strips_pack(void *strips, const void *blocks, int32_t dtype, int64_t rows, int64_t cols);
void mmi_strips_unpack(void *blocks, const void *strips, int32_t dtype, int64_t rows, int64_t cols);

#endif
