/* Products of whole numbers for weights in blocks: a vector meets four numbers of each of VL rows of W with the same
 * four of a row of x, one 32-bit sum per row of W. vf.h has the floats.
 *
 *     vb                        4 · VL bytes of a strip's line (strips.h), or vb_set(): four of x, VL times
 *     vb_bytes(w)               a line of q8_0 as weights, for which it is changed if UNSIGNED_BYTES; vb_low(w),
 *                               vb_high(w): one of q4_0, from either half of its bytes
 *     vs_begin(offset)          the sums of a block before its first numbers
 *     vs_dot(s, w, x)           add four products to each
 *     vs_end(s, offset)         the exact sums as floats
 *
 * not with AVX2:
 *
 *     vb_upper(w)               as vb_high(w), or that times 16, which takes fewer instructions
 *     vs_join(s, upper)         both sums, the latter of those numbers where they are q4_0's
 *
 * if SPLITS_BYTES, for a line of q8_0 that many rows of x meet:
 *
 *     vb_size(w), vb_negative(w)   its numbers' sizes, and all bits of those below 0
 *     vs_dot_split(s, size, negative, x)   add four products, but for each w below 0 less its size; what that comes to
 *                               for a block is the same for all rows of x
 *
 * Weights that have been made larger, to be unsigned, give Σ (w + 8) x = Σ w x + 8 · Σ x, or 128 for 8. `offset` is
 * where the quantized row has what that is too much, with a minus. `dtype` is a constant wherever these are used. */
#ifndef MMI_BACKEND_SIMD_VI_H
#define MMI_BACKEND_SIMD_VI_H

#include <string.h>

#include <minimind/view.h>

#include "backend/simd/vf.h"

static ALWAYS_INLINE int32_t four_bytes(const void *p)
{
    int32_t bytes;
    memcpy(&bytes, p, sizeof bytes);
    return bytes;
}

#if ISA_IS_X86

#if ISA_IS_AVX512
typedef __m512i vb, vs;
static ALWAYS_INLINE vb vb_load(const void *p)
{
    return _mm512_loadu_si512(p);
}
static ALWAYS_INLINE void vb_store(void *p, vb v)
{
    _mm512_storeu_si512(p, v);
}
static ALWAYS_INLINE vb vb_set(const void *p)
{
    return _mm512_set1_epi32(four_bytes(p));
}
static ALWAYS_INLINE vb vb_low(vb w)
{
    return _mm512_and_si512(w, _mm512_set1_epi8(15));
}
static ALWAYS_INLINE vb vb_high(vb w)
{
    return vb_low(_mm512_srli_epi16(w, 4));
}
static ALWAYS_INLINE vs vs_set(int32_t x)
{
    return _mm512_set1_epi32(x);
}
static ALWAYS_INLINE vf vs_float(vs s)
{
    return _mm512_cvtepi32_ps(s);
}
#else
typedef __m256i vb, vs;
static ALWAYS_INLINE vb vb_load(const void *p)
{
    return _mm256_loadu_si256(p);
}
static ALWAYS_INLINE void vb_store(void *p, vb v)
{
    _mm256_storeu_si256(p, v);
}
static ALWAYS_INLINE vb vb_set(const void *p)
{
    return _mm256_set1_epi32(four_bytes(p));
}
static ALWAYS_INLINE vb vb_low(vb w)
{
    return _mm256_and_si256(w, _mm256_set1_epi8(15));
}
static ALWAYS_INLINE vb vb_high(vb w)
{
    return vb_low(_mm256_srli_epi16(w, 4));
}
static ALWAYS_INLINE vs vs_set(int32_t x)
{
    return _mm256_set1_epi32(x);
}
static ALWAYS_INLINE vf vs_float(vs s)
{
    return _mm256_cvtepi32_ps(s);
}
#endif

#if ISA_IS(vnni) || ISA_IS(avxvnni)

#if ISA_IS(vnni)
#define vb_xor _mm512_xor_si512
#define vb_all _mm512_set1_epi8
#define vs_add_fours _mm512_dpbusd_epi32
#else
#if MM_EMULATE_AVX512
#include "backend/simd/emulate.h"
#endif
#define vb_xor _mm256_xor_si256
#define vb_all _mm256_set1_epi8
#define vs_add_fours _mm256_dpbusd_avx_epi32
#endif
static ALWAYS_INLINE vb vb_bytes(vb w)
{
    return vb_xor(w, vb_all((char)0x80));
}
#define UNSIGNED_BYTES 1
#define SPLITS_BYTES 0
static ALWAYS_INLINE vs vs_begin(const void *offset)
{
    return vs_set(four_bytes(offset));
}
static ALWAYS_INLINE vs vs_dot(vs s, vb w, vb x, int32_t dtype)
{
    (void)dtype;
    return vs_add_fours(s, w, x);
}
static ALWAYS_INLINE vf vs_end(vs s, const void *offset, int32_t dtype)
{
    (void)offset, (void)dtype;
    return vs_float(s);
}
#if ISA_IS_AVX512
static ALWAYS_INLINE vb vb_upper(vb w)
{
    return _mm512_and_si512(w, _mm512_set1_epi8((char)0xF0));
}
static ALWAYS_INLINE vs vs_join(vs s, vs upper, int32_t dtype)
{
    return _mm512_add_epi32(s, dtype == MM_Q4_0 ? _mm512_srai_epi32(upper, 4) : upper);
}
#endif

#else

/* Without an instruction for it, two unsigned and two signed bytes make one sum of 16 bits. q8_0: with |w| as the
 * unsigned ones, and x taking the sign, two products are below 2^15, and are widened at once. Two of four units take
 * over signs; all of them turn bits over, which makes -x - 1 of x. q4_0: with w + 8, at most 15, all 16 products of a
 * block's lane (16 · 15 · 127 < 2^15) are added up first. */
static ALWAYS_INLINE vb vb_bytes(vb w)
{
    return w;
}
#define UNSIGNED_BYTES 0
#define SPLITS_BYTES ISA_IS_AVX2
static ALWAYS_INLINE vs vs_begin(const void *offset)
{
    (void)offset;
    return vs_set(0);
}
#if ISA_IS_AVX512
static ALWAYS_INLINE vs vs_add(vs a, vs b)
{
    return _mm512_add_epi32(a, b);
}
static ALWAYS_INLINE vs vs_add_halves(vs a, vs b)
{
    return _mm512_add_epi16(a, b);
}
static ALWAYS_INLINE vs vs_pairs(vb w, vb x)
{
    return _mm512_maddubs_epi16(w, x);
}
static ALWAYS_INLINE vs vs_widen(vs pairs)
{
    return _mm512_madd_epi16(pairs, _mm512_set1_epi16(1));
}
static ALWAYS_INLINE vb vb_size(vb w)
{
    return _mm512_abs_epi8(w);
}
static ALWAYS_INLINE vb vb_sign(vb x, vb w)
{
    return _mm512_mask_sub_epi8(x, _mm512_movepi8_mask(w), _mm512_setzero_si512(), x);
}
#else
static ALWAYS_INLINE vs vs_add(vs a, vs b)
{
    return _mm256_add_epi32(a, b);
}
static ALWAYS_INLINE vs vs_add_halves(vs a, vs b)
{
    return _mm256_add_epi16(a, b);
}
static ALWAYS_INLINE vs vs_pairs(vb w, vb x)
{
    return _mm256_maddubs_epi16(w, x);
}
static ALWAYS_INLINE vs vs_widen(vs pairs)
{
    return _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
}
static ALWAYS_INLINE vb vb_size(vb w)
{
    return _mm256_abs_epi8(w);
}
static ALWAYS_INLINE vb vb_sign(vb x, vb w)
{
    return _mm256_sign_epi8(x, w);
}
static ALWAYS_INLINE vb vb_negative(vb w)
{
    return _mm256_cmpgt_epi8(_mm256_setzero_si256(), w);
}
static ALWAYS_INLINE vs vs_sub(vs a, vs b)
{
    return _mm256_sub_epi32(a, b);
}
static ALWAYS_INLINE vs vs_dot_split(vs s, vb size, vb negative, vb x)
{
    return vs_add(s, vs_widen(vs_pairs(size, _mm256_xor_si256(x, negative))));
}
#endif
static ALWAYS_INLINE vs vs_dot(vs s, vb w, vb x, int32_t dtype)
{
    if (dtype == MM_Q8_0)
        return vs_add(s, vs_widen(vs_pairs(vb_size(w), vb_sign(x, w))));
    return vs_add_halves(s, vs_pairs(w, x));
}
#if ISA_IS_AVX512
static ALWAYS_INLINE vb vb_upper(vb w)
{
    return vb_high(w);
}
static ALWAYS_INLINE vs vs_join(vs s, vs upper, int32_t dtype)
{
    return dtype == MM_Q4_0 ? vs_add_halves(s, upper) : vs_add(s, upper);
}
#endif
static ALWAYS_INLINE vf vs_end(vs s, const void *offset, int32_t dtype)
{
    if (dtype == MM_Q8_0)
        return vs_float(s);
    return vs_float(vs_add(vs_widen(s), vs_set(four_bytes(offset))));
}

#endif

#else /* Arm: signed bytes by signed bytes */

typedef int8x16_t vb;
typedef int32x4_t vs;

static ALWAYS_INLINE vb vb_load(const void *p)
{
    return vld1q_s8(p);
}
static ALWAYS_INLINE void vb_store(void *p, vb v)
{
    vst1q_s8(p, v);
}
static ALWAYS_INLINE vb vb_set(const void *p)
{
    return vreinterpretq_s8_s32(vdupq_n_s32(four_bytes(p)));
}
static ALWAYS_INLINE vb vb_bytes(vb w)
{
    return w;
}
static ALWAYS_INLINE vb vb_low(vb w)
{
    return vsubq_s8(vandq_s8(w, vdupq_n_s8(15)), vdupq_n_s8(8));
}
static ALWAYS_INLINE vb vb_high(vb w)
{
    uint8x16_t upper = vshrq_n_u8(vreinterpretq_u8_s8(w), 4);
    return vsubq_s8(vreinterpretq_s8_u8(upper), vdupq_n_s8(8));
}
static ALWAYS_INLINE vs vs_set(int32_t x)
{
    return vdupq_n_s32(x);
}
#define UNSIGNED_BYTES 0
#define SPLITS_BYTES 0
static ALWAYS_INLINE vs vs_begin(const void *offset)
{
    (void)offset;
    return vs_set(0);
}
static ALWAYS_INLINE vs vs_dot(vs s, vb w, vb x, int32_t dtype)
{
    (void)dtype;
#if ISA_IS(dot)
    return vdotq_s32(s, w, x);
#else
    int32x4_t low = vpaddlq_s16(vmull_s8(vget_low_s8(w), vget_low_s8(x)));
    return vaddq_s32(s, vpaddq_s32(low, vpaddlq_s16(vmull_high_s8(w, x))));
#endif
}
static ALWAYS_INLINE vb vb_upper(vb w)
{
    return vb_high(w);
}
static ALWAYS_INLINE vs vs_join(vs s, vs upper, int32_t dtype)
{
    (void)dtype;
    return vaddq_s32(s, upper);
}
static ALWAYS_INLINE vf vs_end(vs s, const void *offset, int32_t dtype)
{
    (void)offset, (void)dtype;
    return vcvtq_f32_s32(s);
}

#endif

#endif
