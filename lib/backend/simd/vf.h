/* One vector of floats, whatever the instruction set. The kernels in this folder are written against these few
 * functions and compiled once for each set, with MMI_ISA naming it (avx2, avx512, neon); the
 * products with weights in blocks for extensions of them too (vnni, dot).
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
 *     vd_add_square(s, v)     s + v², in double precision     vd_sum(s)           across the lanes
 *     vf_load_bf16, …_f16     VL numbers of two bytes each, and back, to nearest even, NaN kept
 *     vf_round_bf16, …_f16    to the nearest such number, as those do
 *     vf_transpose(r)         r[i][j] to r[j][i], VL × VL */
#ifndef MMI_BACKEND_SIMD_VF_H
#define MMI_BACKEND_SIMD_VF_H

#include <stdint.h>

#define ISA_avx2 1
#define ISA_avx512 2
#define ISA_vnni 2
#define ISA_neon 3
#define ISA_dot 3
#define ISA_JOIN(a, b) a##b
#define ISA_NUMBER(isa) ISA_JOIN(ISA_, isa)
#if ISA_NUMBER(MMI_ISA) == ISA_avx2
#include "backend/simd/vf_avx2.h"
#elif ISA_NUMBER(MMI_ISA) == ISA_avx512
#include "backend/simd/vf_avx512.h"
#elif ISA_NUMBER(MMI_ISA) == ISA_neon
#include "backend/simd/vf_neon.h"
#else
#error "MMI_ISA names no known instruction set"
#endif

/* SIMD(dot) is mmi_dot_avx2 and so on. */
#define SIMD_NAME(name, isa) mmi_##name##_##isa
#define SIMD_EXPAND(name, isa) SIMD_NAME(name, isa)
#define SIMD(name) SIMD_EXPAND(name, MMI_ISA)

#define ALWAYS_INLINE inline __attribute__((always_inline))
#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

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
