#include "backend/strips.h"

#include <string.h>

/* Where a row's part of a block is: four bytes in each line, and its scale. */
typedef struct place {
    unsigned char *numbers, *scale;
} place;

static place place_of(const void *strips, int32_t dtype, int64_t cols, int64_t row, int64_t block)
{
    unsigned char *strip =
        (unsigned char *)(uintptr_t)strips + mmi_dtype_bytes(dtype, row / MMI_STRIP * MMI_STRIP * cols);
    const int64_t r = row % MMI_STRIP;
    return (place){ strip + mmi_strip_numbers_at(dtype, cols / MMI_BLOCK, block) + 4 * r,
                    strip + mmi_strip_scales_at(dtype, block) + 2 * r };
}

void mmi_strips_put(void *strips, int32_t dtype, int64_t cols, int64_t row, int64_t first, int64_t count,
                    const void *blocks)
{
    const unsigned char *from = blocks;
    for (int64_t b = first; b < first + count; b++, from += mmi_block_bytes(dtype)) {
        place to = place_of(strips, dtype, cols, row, b);
        memcpy(to.scale, from, 2);
        for (int64_t s = 0; s < mmi_strip_lines(dtype); s++)
            memcpy(to.numbers + s * MMI_STRIP_LINE, from + 2 + 4 * s, 4);
    }
}

void mmi_strips_get(void *blocks, const void *strips, int32_t dtype, int64_t cols, int64_t row, int64_t first,
                    int64_t count)
{
    unsigned char *to = blocks;
    for (int64_t b = first; b < first + count; b++, to += mmi_block_bytes(dtype)) {
        place from = place_of(strips, dtype, cols, row, b);
        memcpy(to, from.scale, 2);
        for (int64_t s = 0; s < mmi_strip_lines(dtype); s++)
            memcpy(to + 2 + 4 * s, from.numbers + s * MMI_STRIP_LINE, 4);
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
