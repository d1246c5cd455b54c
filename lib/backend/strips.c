#include "backend/strips.h"

#include <string.h>

/* The strip that a row lies in. */
static unsigned char *strip_of(const void *strips, int32_t dtype, int64_t cols, int64_t row)
{
    return (unsigned char *)(uintptr_t)strips + mmi_dtype_bytes(dtype, row / MMI_STRIP * MMI_STRIP * cols);
}

/* A block's numbers, four bytes in each of so many lines. */
static inline void put_lines(unsigned char *to, const unsigned char *from, int lines)
{
    for (int s = 0; s < lines; s++)
        memcpy(to + s * MMI_STRIP_LINE, from + 4 * s, 4);
}

static inline void get_lines(unsigned char *to, const unsigned char *from, int lines)
{
    for (int s = 0; s < lines; s++)
        memcpy(to + 4 * s, from + s * MMI_STRIP_LINE, 4);
}

void mmi_strips_put(void *strips, int32_t dtype, int64_t cols, int64_t row, int64_t first, int64_t count,
                    const void *blocks)
{
    const int64_t r = row % MMI_STRIP, bytes = (int64_t)mmi_block_bytes(dtype);
    const unsigned char *from = blocks;
    unsigned char *strip = strip_of(strips, dtype, cols, row);
    for (int64_t b = first; b < first + count; b++, from += bytes) {
        unsigned char *numbers = strip + mmi_strip_numbers_at(dtype, cols / MMI_BLOCK, b) + 4 * r;
        memcpy(strip + mmi_strip_scales_at(dtype, b) + 2 * r, from, 2);
        if (dtype == MM_Q8_0) /* each with a number of lines that the compiler knows */
            put_lines(numbers, from + 2, MMI_BLOCK / 4);
        else
            put_lines(numbers, from + 2, MMI_BLOCK / 8);
    }
}

void mmi_strips_get(void *blocks, const void *strips, int32_t dtype, int64_t cols, int64_t row, int64_t first,
                    int64_t count)
{
    const int64_t r = row % MMI_STRIP, bytes = (int64_t)mmi_block_bytes(dtype);
    unsigned char *to = blocks;
    const unsigned char *strip = strip_of(strips, dtype, cols, row);
    for (int64_t b = first; b < first + count; b++, to += bytes) {
        const unsigned char *numbers = strip + mmi_strip_numbers_at(dtype, cols / MMI_BLOCK, b) + 4 * r;
        memcpy(to, strip + mmi_strip_scales_at(dtype, b) + 2 * r, 2);
        if (dtype == MM_Q8_0)
            get_lines(to + 2, numbers, MMI_BLOCK / 4);
        else
            get_lines(to + 2, numbers, MMI_BLOCK / 8);
    }
}

void mmi_strips_begin(void *strips, int32_t dtype, int64_t rows, int64_t cols)
{
    if (rows % MMI_STRIP == 0)
        return;
    const int64_t blocks = cols / MMI_BLOCK;
    unsigned char *last = (unsigned char *)strips + mmi_dtype_bytes(dtype, rows / MMI_STRIP * MMI_STRIP * cols);
    memset(last, 0, mmi_strips_bytes(dtype, MMI_STRIP, cols));
    for (int64_t b = 0; dtype == MM_Q4_0 && b < blocks; b++) /* 0 as a number, not -0 */
        memset(last + mmi_strip_numbers_at(dtype, blocks, b), 0x88, (size_t)(mmi_strip_lines(dtype) * MMI_STRIP_LINE));
}

void mmi_strips_pack(void *strips, const void *blocks, int32_t dtype, int64_t rows, int64_t cols)
{
    mmi_strips_begin(strips, dtype, rows, cols);
    for (int64_t i = 0; i < rows; i++)
        mmi_strips_put(strips, dtype, cols, i, 0, cols / MMI_BLOCK,
                       (const unsigned char *)blocks + mmi_dtype_bytes(dtype, i * cols));
}

void mmi_strips_unpack(void *blocks, const void *strips, int32_t dtype, int64_t rows, int64_t cols)
{
    for (int64_t i = 0; i < rows; i++)
        mmi_strips_get((unsigned char *)blocks + mmi_dtype_bytes(dtype, i * cols), strips, dtype, cols, i, 0,
                       cols / MMI_BLOCK);
}
