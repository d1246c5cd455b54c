/* Reading numbers of two bytes, and rounding to them; `dtype` is a constant wherever these are used. */
#ifndef MMI_BACKEND_SIMD_WORDS_H
#define MMI_BACKEND_SIMD_WORDS_H

#include <string.h>

#include <minimind/view.h>

#include "backend/simd/vf.h"

static ALWAYS_INLINE vf load_words(const void *p, int32_t dtype)
{
    return dtype == MM_BF16 ? vf_load_bf16(p) : vf_load_f16(p);
}

static ALWAYS_INLINE vf load_words_tail(const void *p, int64_t n, int32_t dtype)
{
    uint16_t rest[VL] = { 0 };
    memcpy(rest, p, (size_t)n * sizeof rest[0]);
    return load_words(rest, dtype);
}

/* Each number as `dtype` has it; float32: as it is. */
static ALWAYS_INLINE vf round_words(vf v, int32_t dtype)
{
    if (dtype == MM_F32)
        return v;
    return dtype == MM_BF16 ? vf_round_bf16(v) : vf_round_f16(v);
}

/* The next STEP · VL numbers, or the `left` that remain of an array and zeros behind them, rounded. */
static ALWAYS_INLINE vf get_rounded(const float *p, int64_t left, int32_t round)
{
#if STEP == 2
    (void)round;
    return vf_words(vf_get(p, left), left > VL ? vf_get(p + VL, left - VL) : vf_zero());
#else
    return round_words(vf_get(p, left), round);
#endif
}

#endif
