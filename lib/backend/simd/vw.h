/* One vector of numbers of 64 bits, for random ones: vf.h has the floats.
 *
 *     WIDE                   lanes
 *     vw_set(x)              x in each lane
 *     vw_count(x)            x + 0, 1, … in the order in which vw_put() stores them
 *     vw_mul(a, b)           the product of the lower halves
 *     vw_xor(a, b)
 *     vw_high(a)             the upper half as the lower one
 *     vw_put(p, a, b, c, d)  the lower halves of a, b, c and d lane by lane: 4 · WIDE numbers of 32 bits */
#ifndef MMI_BACKEND_SIMD_VW_H
#define MMI_BACKEND_SIMD_VW_H

#include "backend/simd/vf.h"

#define WIDE (VL / 2)

#if ISA_IS_X86

/* Joining even lanes, and then odd ones, is one instruction each, so the first half of what is stored is in even lanes.
 */
#if ISA_IS_AVX512
typedef __m512i vw;
static ALWAYS_INLINE vw vw_set(uint64_t x)
{
    return _mm512_set1_epi64((int64_t)x);
}
static ALWAYS_INLINE vw vw_count(uint64_t x)
{
    return _mm512_add_epi64(vw_set(x), _mm512_set_epi64(7, 3, 6, 2, 5, 1, 4, 0));
}
static ALWAYS_INLINE vw vw_mul(vw a, vw b)
{
    return _mm512_mul_epu32(a, b);
}
static ALWAYS_INLINE vw vw_xor(vw a, vw b)
{
    return _mm512_xor_si512(a, b);
}
static ALWAYS_INLINE vw vw_high(vw a)
{
    return _mm512_srli_epi64(a, 32);
}
static ALWAYS_INLINE vw vw_join(vw low, vw high)
{
    return _mm512_or_si512(_mm512_and_si512(low, vw_set(UINT32_MAX)), _mm512_slli_epi64(high, 32));
}
static ALWAYS_INLINE void vw_put(uint32_t *p, vw a, vw b, vw c, vw d)
{
    vw first = vw_join(a, b), second = vw_join(c, d);
    _mm512_storeu_si512(p, _mm512_unpacklo_epi64(first, second));
    _mm512_storeu_si512(p + 2 * WIDE, _mm512_unpackhi_epi64(first, second));
}
#else
typedef __m256i vw;
static ALWAYS_INLINE vw vw_set(uint64_t x)
{
    return _mm256_set1_epi64x((int64_t)x);
}
static ALWAYS_INLINE vw vw_count(uint64_t x)
{
    return _mm256_add_epi64(vw_set(x), _mm256_set_epi64x(3, 1, 2, 0));
}
static ALWAYS_INLINE vw vw_mul(vw a, vw b)
{
    return _mm256_mul_epu32(a, b);
}
static ALWAYS_INLINE vw vw_xor(vw a, vw b)
{
    return _mm256_xor_si256(a, b);
}
static ALWAYS_INLINE vw vw_high(vw a)
{
    return _mm256_srli_epi64(a, 32);
}
static ALWAYS_INLINE vw vw_join(vw low, vw high)
{
    return _mm256_blend_epi32(low, _mm256_slli_epi64(high, 32), 0xAA);
}
static ALWAYS_INLINE void vw_put(uint32_t *p, vw a, vw b, vw c, vw d)
{
    vw first = vw_join(a, b), second = vw_join(c, d);
    _mm256_storeu_si256((void *)p, _mm256_unpacklo_epi64(first, second));
    _mm256_storeu_si256((void *)(p + 2 * WIDE), _mm256_unpackhi_epi64(first, second));
}
#endif

#else /* Arm */

typedef uint64x2_t vw;
static ALWAYS_INLINE vw vw_set(uint64_t x)
{
    return vdupq_n_u64(x);
}
static ALWAYS_INLINE vw vw_count(uint64_t x)
{
    return vcombine_u64(vcreate_u64(x), vcreate_u64(x + 1));
}
static ALWAYS_INLINE vw vw_mul(vw a, vw b)
{
    return vmull_u32(vmovn_u64(a), vmovn_u64(b));
}
static ALWAYS_INLINE vw vw_xor(vw a, vw b)
{
    return veorq_u64(a, b);
}
static ALWAYS_INLINE vw vw_high(vw a)
{
    return vshrq_n_u64(a, 32);
}
static ALWAYS_INLINE void vw_put(uint32_t *p, vw a, vw b, vw c, vw d)
{
    uint32x2x4_t all = { { vmovn_u64(a), vmovn_u64(b), vmovn_u64(c), vmovn_u64(d) } };
    vst4_u32(p, all);
}

#endif

#endif
