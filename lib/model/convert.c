#include "model/convert.h"

#include <string.h>

#include "backend/kernels.h"
#include "base/dtype.h"

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
