#include "model/convert.h"

#include <string.h>

#include "backend/kernels.h"
#include "backend/strips.h"

#define CHUNK_BYTES ((size_t)16384) /* read at a time where a dtype is turned into another */
#define CHUNK 2048                  /* floats on the stack between two dtypes, whole blocks of them */

void mmi_convert(void *out, int32_t to, const void *in, int32_t from, int64_t n)
{
    if (n == 0)
        return;
    if (to == from) {
        memcpy(out, in, mmi_dtype_bytes(to, n));
        return;
    }
    mmi_kernels k;
    mmi_kernels_init_c(&k);
    if (to == MM_F32) {
        k.widen(out, in, from, n);
        return;
    }
    if (from == MM_F32) {
        k.narrow(out, in, to, n);
        return;
    }
    /* Every float16 and bfloat16 is a float32: going through it rounds only once. */
    float middle[CHUNK];
    for (int64_t at = 0; at < n; at += CHUNK) {
        int64_t now = n - at < CHUNK ? n - at : CHUNK;
        k.widen(middle, (const unsigned char *)in + mmi_dtype_bytes(from, at), from, now);
        k.narrow((unsigned char *)out + mmi_dtype_bytes(to, at), middle, to, now);
    }
}

/* Numbers [first, first + n) of a row, n at most CHUNK. */
static void read_row(const mmi_kernels *k, float *y, const void *in, int32_t from, int64_t cols, int64_t row,
                     int64_t first, int64_t n)
{
    if (mmi_block_bytes(from) == 0) {
        k->widen(y, (const unsigned char *)in + mmi_dtype_bytes(from, row * cols + first), from, n);
        return;
    }
    unsigned char blocks[CHUNK / MMI_BLOCK * MMI_MOST_BLOCK_BYTES];
    mmi_strips_get(blocks, in, from, cols, row, first / MMI_BLOCK, n / MMI_BLOCK);
    k->widen(y, blocks, from, n);
}

static void write_row(const mmi_kernels *k, void *out, int32_t to, const float *x, int64_t cols, int64_t row,
                      int64_t first, int64_t n)
{
    if (mmi_block_bytes(to) == 0) {
        k->narrow((unsigned char *)out + mmi_dtype_bytes(to, row * cols + first), x, to, n);
        return;
    }
    unsigned char blocks[CHUNK / MMI_BLOCK * MMI_MOST_BLOCK_BYTES];
    k->narrow(blocks, x, to, n);
    mmi_strips_put(out, to, cols, row, first / MMI_BLOCK, n / MMI_BLOCK, blocks);
}

void mmi_convert_matrix(void *out, int32_t to, const void *in, int32_t from, int64_t rows, int64_t cols)
{
    if (to == from) {
        memcpy(out, in, mmi_matrix_bytes(to, rows, cols));
        return;
    }
    if (mmi_block_bytes(to) == 0 && mmi_block_bytes(from) == 0) {
        mmi_convert(out, to, in, from, rows * cols);
        return;
    }
    mmi_kernels k;
    mmi_kernels_init_c(&k);
    float middle[CHUNK];
    if (mmi_block_bytes(to) > 0)
        mmi_strips_begin(out, to, rows, cols);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t at = 0; at < cols; at += CHUNK) {
            int64_t now = cols - at < CHUNK ? cols - at : CHUNK;
            read_row(&k, middle, in, from, cols, i, at, now);
            write_row(&k, out, to, middle, cols, i, at, now);
        }
}

mm_status mmi_convert_entry(void *out, int32_t dtype, const mmi_st_file *file, const mmi_st_entry *entry)
{
    if (entry->dtype == dtype)
        return mmi_st_read(out, file, entry, 0, entry->bytes);
    unsigned char chunk[CHUNK_BYTES], *to = out;
    size_t from_size = mm_dtype_size(entry->dtype), to_size = mm_dtype_size(dtype);
    for (size_t at = 0; at < entry->bytes;) {
        size_t now = entry->bytes - at < CHUNK_BYTES ? entry->bytes - at : CHUNK_BYTES;
        mm_status status = mmi_st_read(chunk, file, entry, at, now);
        if (status != MM_OK)
            return status;
        mmi_convert(to, dtype, chunk, entry->dtype, (int64_t)(now / from_size));
        to += now / from_size * to_size;
        at += now;
    }
    return MM_OK;
}

mm_status mmi_convert_blocks(void *strips, int32_t dtype, int64_t rows, int64_t cols, const mmi_st_file *file,
                             const mmi_st_entry *entry)
{
    unsigned char chunk[CHUNK_BYTES];
    const int64_t bytes = (int64_t)mmi_block_bytes(dtype), most = (int64_t)CHUNK_BYTES / bytes;
    const int64_t in_row = cols / MMI_BLOCK, all = rows * in_row;
    mmi_strips_begin(strips, dtype, rows, cols);
    for (int64_t at = 0, now; at < all; at += now) {
        now = all - at < most ? all - at : most;
        mm_status status = mmi_st_read(chunk, file, entry, (size_t)(at * bytes), (size_t)(now * bytes));
        if (status != MM_OK)
            return status;
        for (int64_t b = at, run; b < at + now; b += run) { /* what of a row is in the chunk */
            const int64_t first = b % in_row, left = at + now - b;
            run = in_row - first < left ? in_row - first : left;
            mmi_strips_put(strips, dtype, cols, b / in_row, first, run, chunk + (b - at) * bytes);
        }
    }
    return MM_OK;
}
