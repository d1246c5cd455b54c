/* One vector of floats, whatever the instruction set. The kernels in this folder are written against these few
 * functions and compiled once for each set, with MMI_ISA naming it (avx2, avx512, neon); products with weights in
 * blocks for extensions of them too (avxvnni, vnni, dot), and products of numbers rounded to bf16 (bf16, on top of
 * avx512). The files amx*.c, on top of all of x86's, have sources of their own.
 *
 *     VL                      lanes of a vector
 *     TILE_ROWS, TILE_VECS    the block of C that a product keeps in registers: rows × vectors
 *     vf_fma(a, b, c)         a · b + c, rounded once         vf_fnma(a, b, c)    c - a · b
 *     vf_max(m, x)            the larger; m where x is NaN    vf_clamp(x, l, h)   NaN stays NaN
 *     vf_round(a)             to the nearest whole number     vf_ldexp(v, n)      v · 2^n, n whole, in [-252, 254]
 *     vf_below(a, b)          a mask: a < b                   vf_select(m, y, n)  y where m holds, else n
 *     vf_tail(n)              the first n lanes (n ≥ 0; all from VL on)
 *     vf_load_tail(p, t)      those lanes, 0 in the others; reads no other memory
 *     vf_fill_tail(v, t, f)   v in those lanes, f in the others
 *     vf_sum, vf_largest      across the lanes (no lane may be NaN for vf_largest)
 *     vd_of(v)                v in double precision          vd_sum(s)           across the lanes
 *     vd_add(s, v), vd_add_square(s, v)   s + v or v²
 *     vf_load_bf16, …_f16     VL numbers of two bytes each, and back, to nearest even, NaN kept
 *     vf_round_bf16, …_f16    to the nearest such number, as those do
 *     vf_even_bf16(w), vf_odd_bf16(w)   of 2 · VL such numbers in a vector's bits every second one, from number 0 or 1 on
 *     vf_evens(a, b), vf_odds(a, b)     likewise of a's lanes and, behind them, b's
 *     vf_zip_low(e, o), vf_zip_high(e, o)   those two, given evens and odds: e[0], o[0], e[1], …
 *     vf_sums(to, v)          vf_sum() of four, the same bits
 *     vf_transpose(r)         r[i][j] to r[j][i], VL × VL
 *     STEP                    numbers along K that a lane holds: 1 as a float, or 2 as a word of two bf16 numbers
 *     vf_step(a, b, c)        a · b + c: of words, both products are added
 *     vf_words(a, b)          2 · VL consecutive numbers as VL words; vf_pairs(a, b): lane i has a[i] and b[i] */
#ifndef MMI_BACKEND_SIMD_VF_H
#define MMI_BACKEND_SIMD_VF_H

#include <stdint.h>

#define ISA_avx2 1
#define ISA_avx512 2
#define ISA_vnni 3
#define ISA_bf16 4
#define ISA_neon 5
#define ISA_dot 6
#define ISA_amx 7
#define ISA_avxvnni 8
#define ISA_JOIN(a, b) a##b
#define ISA_NUMBER(isa) ISA_JOIN(ISA_, isa)
#define ISA_IS(isa) (ISA_NUMBER(MMI_ISA) == ISA_##isa)
#define ISA_IS_AVX512 (ISA_IS(avx512) || ISA_IS(vnni) || ISA_IS(bf16) || ISA_IS(amx))
#define ISA_IS_AVX2 (ISA_IS(avx2) || ISA_IS(avxvnni))
#define ISA_IS_X86 (ISA_IS_AVX2 || ISA_IS_AVX512)
#if ISA_IS_AVX2
#include "backend/simd/vf_avx2.h"
#elif ISA_IS_AVX512
#include "backend/simd/vf_avx512.h"
#elif ISA_IS(neon) || ISA_IS(dot)
#include "backend/simd/vf_neon.h"
#else
#error "MMI_ISA names no known instruction set"
#endif

#if ISA_IS(bf16)
#define STEP 2
#define vf_step vf_dot_words
#else
#define STEP 1
#define vf_step vf_fma
#endif

/* SIMD(dot) is mmi_dot_avx2 and so on. */
#define SIMD_NAME(name, isa) mmi_##name##_##isa
#define SIMD_EXPAND(name, isa) SIMD_NAME(name, isa)
#define SIMD(name) SIMD_EXPAND(name, MMI_ISA)
#define BASE(name) SIMD_NAME(name, avx512) /* of the set that bf16 comes on top of */

#define ALWAYS_INLINE inline __attribute__((always_inline))
#define NOINLINE __attribute__((noinline))
#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#define ROLLED _Pragma("clang loop unroll(disable)")
#else
#define ROLLED
#define UNROLL _Pragma("GCC unroll 16")
#endif

#if !ISA_IS_AVX512
static ALWAYS_INLINE void vf_sums(float to[4], const vf v[4])
{
    for (int i = 0; i < 4; i++)
        to[i] = vf_sum(v[i]);
}
#endif

/* Holds a sum of whole numbers as it stands: a compiler that sees all of them adds them up in another order, with more
 * of them on the way at once than there are registers. */
#if ISA_IS_AVX512 && MM_EMULATE_AVX512
#define IN_ORDER(sum) ((void)(sum))
#elif ISA_IS_X86
#define IN_ORDER(sum) __asm__("" : "+v"(sum))
#else
#define IN_ORDER(sum) __asm__("" : "+w"(sum))
#endif

static ALWAYS_INLINE int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Ask for a line that will be written. GCC makes an instruction of __builtin_prefetch(p, 1) only if it is told of one
 * that all processors with AVX2 know, or take for nothing. */
static ALWAYS_INLINE void fetch_to_write(const void *p)
{
#if ISA_IS_X86
    __asm__ volatile("prefetchw %0" : : "m"(*(const char *)p));
#else
    __builtin_prefetch(p, 1);
#endif
}

/* The next VL numbers, or the `left` that remain of an array and zeros behind them. */
static inline vf vf_get(const float *p, int64_t left)
{
    return left >= VL ? vf_load(p) : vf_load_tail(p, vf_tail(left));
}

static inline vf vf_get_or(const float *p, int64_t left, vf fill)
{
    if (left >= VL)
        return vf_load(p);
    vtail t = vf_tail(left);
    return vf_fill_tail(vf_load_tail(p, t), t, fill);
}

static inline void vf_put(float *p, int64_t left, vf v)
{
    if (left >= VL)
        vf_store(p, v);
    else
        vf_store_tail(p, vf_tail(left), v);
}

#endif
