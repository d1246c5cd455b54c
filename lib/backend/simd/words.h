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

#define NUMBERS (STEP * VL) /* in a vector of words */

/* Rows of W read side by side, and rows of x that meet them while they are in registers: with AVX2 three times four
 * sums, as many rows of x and one of W are in all sixteen. */
#define W_ROWS 4
#if ISA_IS_AVX2
#define X_ROWS 3
#else
#define X_ROWS 4
#endif

/* The next NUMBERS of an array, or the `left` that remain and zeros behind them, rounded. */
static ALWAYS_INLINE vf get_rounded(const float *p, int64_t left, int32_t round)
{
#if STEP == 2
    (void)round;
    return vf_words(vf_get(p, left), left > VL ? vf_get(p + VL, left - VL) : vf_zero());
#else
    return round_words(vf_get(p, left), round);
#endif
}

/* The same of weights in float32, bf16 or f16, from number p on. */
static ALWAYS_INLINE vf get_weights(const void *w, int64_t p, int64_t left, int32_t dtype, int32_t round)
{
    if (dtype == MM_F32)
        return get_rounded((const float *)w + p, left, round);
    uint16_t rest[NUMBERS] = { 0 };
    const uint16_t *words = (const uint16_t *)w + p;
    if (left < NUMBERS)
        words = memcpy(rest, words, (size_t)left * sizeof *words);
#if STEP == 2
    return vf_load((const void *)words); /* bf16, as it lies */
#else
    return dtype == round ? load_words(words, dtype) : round_words(load_words(words, dtype), round);
#endif
}

#endif
