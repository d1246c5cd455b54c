#include "model/convert.h"

#include <string.h>

#include "backend/kernels.h"
#include "base/dtype.h"

#define CHUNK_BYTES ((size_t)16384) /* read at a time where a dtype is turned into another */
#define CHUNK 2048 /* floats on the stack between two dtypes, whole blocks of them */

/* Every float16 and bfloat16 is a float32, and so is a small whole number times a float16: going through it rounds only
 * once. */
static void through_float(const mmi_kernels *k, unsigned char *out, int32_t to, const unsigned char *in, int32_t from,
                          int64_t n)
{
    float middle[CHUNK];
    while (n > 0) {
        int64_t now = n < CHUNK ? n : CHUNK;
        k->widen(middle, in, from, now);
        k->narrow(out, middle, to, now);
        in += mmi_dtype_bytes(from, now);
        out += mmi_dtype_bytes(to, now);
        n -= now;
    }
}

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
    if (to == MM_F32)
        k.widen(out, in, from, n);
    else if (from == MM_F32)
        k.narrow(out, in, to, n);
    else
        through_float(&k, out, to, in, from, n);
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
