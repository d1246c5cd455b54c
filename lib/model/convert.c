#include "model/convert.h"

#include <string.h>

#include "backend/kernels.h"

#define CHUNK 2048 /* floats on the stack between two 16-bit dtypes */

/* Every float16 and bfloat16 is a float32, so going through it rounds only once. */
static void through_float(const mmi_kernels *k, unsigned char *out, int32_t to, const unsigned char *in, int32_t from,
                          int64_t n)
{
    float middle[CHUNK];
    size_t to_size = mm_dtype_size(to), from_size = mm_dtype_size(from);
    while (n > 0) {
        int64_t now = n < CHUNK ? n : CHUNK;
        k->widen(middle, in, from, now);
        k->narrow(out, middle, to, now);
        in += (size_t)now * from_size;
        out += (size_t)now * to_size;
        n -= now;
    }
}

void mmi_convert(void *out, int32_t to, const void *in, int32_t from, int64_t n)
{
    if (n == 0)
        return;
    if (to == from) {
        memcpy(out, in, (size_t)n * mm_dtype_size(to));
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
