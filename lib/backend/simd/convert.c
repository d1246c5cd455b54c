#include "backend/c/portable.h"
#include "backend/simd/table.h"
#include "backend/simd/words.h"

static ALWAYS_INLINE void store_words(void *p, vf v, int32_t dtype)
{
    if (dtype == MM_BF16)
        vf_store_bf16(p, v);
    else
        vf_store_f16(p, v);
}

static ALWAYS_INLINE void widen_words(float *y, const uint16_t *x, int32_t dtype, int64_t n)
{
    int64_t i = 0;
    for (; i + VL <= n; i += VL)
        vf_store(y + i, load_words(x + i, dtype));
    if (i < n)
        vf_store_tail(y + i, vf_tail(n - i), load_words_tail(x + i, n - i, dtype));
}

static ALWAYS_INLINE void narrow_words(uint16_t *y, const float *x, int32_t dtype, int64_t n)
{
    int64_t i = 0;
    for (; i + VL <= n; i += VL)
        store_words(y + i, vf_load(x + i), dtype);
    if (i < n) {
        uint16_t rest[VL];
        store_words(rest, vf_load_tail(x + i, vf_tail(n - i)), dtype);
        memcpy(y + i, rest, (size_t)(n - i) * sizeof *y);
    }
}

void SIMD(widen)(float *y, const void *x, int32_t dtype, int64_t n)
{
    if (dtype == MM_BF16)
        widen_words(y, x, MM_BF16, n);
    else if (dtype == MM_F16)
        widen_words(y, x, MM_F16, n);
    else if (dtype != MM_F32)
        SIMD(widen_blocks)(y, x, dtype, n);
    else if (n > 0)
        memcpy(y, x, (size_t)n * sizeof *y);
}

void SIMD(narrow)(void *y, const float *x, int32_t dtype, int64_t n)
{
    if (dtype == MM_BF16)
        narrow_words(y, x, MM_BF16, n);
    else if (dtype == MM_F16)
        narrow_words(y, x, MM_F16, n);
    else if (dtype != MM_F32)
        mmi_c_narrow_blocks(y, x, dtype, n);
    else if (n > 0)
        memcpy(y, x, (size_t)n * sizeof *x);
}
