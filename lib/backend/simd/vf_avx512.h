/* A vector of floats on x86 with AVX-512 F, VL, DQ and BW. vf.h says what each of these means. */
#ifdef MM_EMULATE_AVX512
#include "backend/simd/emulate.h"
#else
#include <immintrin.h>
#endif

#define VL 16
#define TILE_ROWS 12
#define TILE_VECS 2

typedef __m512 vf;
typedef __mmask16 vtail;
typedef __mmask16 vmask;
typedef struct vd {
    __m512d low, high;
} vd;

static inline vf vf_load(const float *p) { return _mm512_loadu_ps(p); }
static inline void vf_store(float *p, vf v) { _mm512_storeu_ps(p, v); }
static inline vf vf_set(float x) { return _mm512_set1_ps(x); }
static inline vf vf_zero(void) { return _mm512_setzero_ps(); }
static inline vf vf_add(vf a, vf b) { return _mm512_add_ps(a, b); }
static inline vf vf_sub(vf a, vf b) { return _mm512_sub_ps(a, b); }
static inline vf vf_mul(vf a, vf b) { return _mm512_mul_ps(a, b); }
static inline vf vf_div(vf a, vf b) { return _mm512_div_ps(a, b); }
static inline vf vf_fma(vf a, vf b, vf c) { return _mm512_fmadd_ps(a, b, c); }
static inline vf vf_fnma(vf a, vf b, vf c) { return _mm512_fnmadd_ps(a, b, c); }
static inline vf vf_sqrt(vf a) { return _mm512_sqrt_ps(a); }
static inline vf vf_abs(vf a) { return _mm512_abs_ps(a); }
static inline vf vf_max(vf m, vf x) { return _mm512_max_ps(x, m); }
static inline vf vf_clamp(vf x, vf low, vf high) { return _mm512_max_ps(low, _mm512_min_ps(high, x)); }
static inline vf vf_round(vf a) { return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }

static inline vmask vf_below(vf a, vf b) { return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ); }
static inline vf vf_select(vmask m, vf yes, vf no) { return _mm512_mask_blend_ps(m, no, yes); }

static inline vtail vf_tail(int64_t n) { return (vtail)(n < VL ? (1u << n) - 1 : 0xFFFF); }
static inline vf vf_load_tail(const float *p, vtail t) { return _mm512_maskz_loadu_ps(t, p); }
static inline void vf_store_tail(float *p, vtail t, vf v) { _mm512_mask_storeu_ps(p, t, v); }
static inline vf vf_fill_tail(vf v, vtail t, vf fill) { return _mm512_mask_blend_ps(t, fill, v); }

static inline float vf_sum(vf v) { return _mm512_reduce_add_ps(v); }
/* In vf_sum()'s order. */
static inline void vf_sums(float to[4], const vf v[4])
{
    const vf a = _mm512_add_ps(_mm512_shuffle_f32x4(v[0], v[1], 0x44), _mm512_shuffle_f32x4(v[0], v[1], 0xEE));
    const vf b = _mm512_add_ps(_mm512_shuffle_f32x4(v[2], v[3], 0x44), _mm512_shuffle_f32x4(v[2], v[3], 0xEE));
    const vf four = _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x88), _mm512_shuffle_f32x4(a, b, 0xDD));
    const vf two = _mm512_add_ps(four, _mm512_shuffle_ps(four, four, 0x4E));
    const vf one = _mm512_add_ps(two, _mm512_shuffle_ps(two, two, 0xB1));
    const __m512i firsts = _mm512_setr_epi32(0, 4, 8, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);
    _mm_storeu_ps(to, _mm512_castps512_ps128(_mm512_permutexvar_ps(firsts, one)));
}
static inline float vf_largest(vf v) { return _mm512_reduce_max_ps(v); }

static inline vf vf_ldexp(vf v, vf n) { return _mm512_scalef_ps(v, n); }

static inline vd vd_zero(void) { return (vd){ _mm512_setzero_pd(), _mm512_setzero_pd() }; }
static inline vd vd_of(vf v)
{
    return (vd){ _mm512_cvtps_pd(_mm512_castps512_ps256(v)), _mm512_cvtps_pd(_mm512_extractf32x8_ps(v, 1)) };
}
static inline vd vd_add_square(vd s, vf v)
{
    const vd w = vd_of(v);
    return (vd){ _mm512_fmadd_pd(w.low, w.low, s.low), _mm512_fmadd_pd(w.high, w.high, s.high) };
}
static inline vd vd_add(vd s, vf v)
{
    const vd w = vd_of(v);
    return (vd){ _mm512_add_pd(s.low, w.low), _mm512_add_pd(s.high, w.high) };
}
static inline double vd_sum(vd s) { return _mm512_reduce_add_pd(_mm512_add_pd(s.low, s.high)); }

static inline vf vf_load_bf16(const void *p)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256(p)), 16));
}
static inline vf vf_even_bf16(vf words)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_castps_si512(words), 16));
}
static inline vf vf_odd_bf16(vf words)
{
    return _mm512_castsi512_ps(_mm512_and_si512(_mm512_castps_si512(words), _mm512_set1_epi32((int)0xFFFF0000)));
}
static inline vf vf_evens(vf a, vf b)
{
    const __m512i at = _mm512_set_epi32(30, 28, 26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0);
    return _mm512_permutex2var_ps(a, at, b);
}
static inline vf vf_odds(vf a, vf b)
{
    const __m512i at = _mm512_set_epi32(31, 29, 27, 25, 23, 21, 19, 17, 15, 13, 11, 9, 7, 5, 3, 1);
    return _mm512_permutex2var_ps(a, at, b);
}
static inline vf vf_zip_low(vf even, vf odd)
{
    const __m512i at = _mm512_set_epi32(23, 7, 22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
    return _mm512_permutex2var_ps(even, at, odd);
}
static inline vf vf_zip_high(vf even, vf odd)
{
    const __m512i at = _mm512_set_epi32(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8);
    return _mm512_permutex2var_ps(even, at, odd);
}
static inline vf vf_load_bytes(const void *p) { return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(p))); }
static inline vf vf_set_f16(int16_t bits) { return _mm512_cvtph_ps(_mm256_set1_epi16(bits)); }
static inline vf vf_load_f16(const void *p) { return _mm512_cvtph_ps(_mm256_loadu_si256(p)); }
static inline void vf_store_f16(void *p, vf v)
{
    _mm256_storeu_si256(p, _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
static inline vf vf_round_f16(vf v)
{
    return _mm512_cvtph_ps(_mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
static inline vf vf_round_bf16(vf v)
{
    __m512i bits = _mm512_castps_si512(v), odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    __m512i rounded = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7FFF)));
    __m512i nan = _mm512_or_si512(bits, _mm512_set1_epi32(0x400000));
    __m512i either = _mm512_mask_blend_epi32(_mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q), rounded, nan);
    return _mm512_castsi512_ps(_mm512_and_si512(either, _mm512_set1_epi32((int)0xFFFF0000)));
}
static inline void vf_store_bf16(void *p, vf v)
{
    __m512i words = _mm512_srli_epi32(_mm512_castps_si512(vf_round_bf16(v)), 16);
    _mm256_storeu_si256(p, _mm512_cvtepi32_epi16(words));
}

#if ISA_IS(bf16)
static inline vf vf_dot_words(vf a, vf b, vf sum)
{
    return _mm512_dpbf16_ps(sum, (__m512bh)_mm512_castps_si512(a), (__m512bh)_mm512_castps_si512(b));
}
static inline vf vf_words(vf first, vf second)
{
    return _mm512_castsi512_ps((__m512i)_mm512_cvtne2ps_pbh(second, first));
}
static inline vf vf_pairs(vf low, vf high)
{
    __m512i a = _mm512_cvtepu16_epi32((__m256i)_mm512_cvtneps_pbh(low));
    __m512i b = _mm512_cvtepu16_epi32((__m256i)_mm512_cvtneps_pbh(high));
    return _mm512_castsi512_ps(_mm512_or_si512(a, _mm512_slli_epi32(b, 16)));
}
#endif

/* 4 × 4 within each quarter, then the quarters. */
static inline void vf_transpose(vf r[VL])
{
    vf pair[VL], quad[VL], half[VL];
    for (int i = 0; i < VL; i += 2) {
        pair[i] = _mm512_unpacklo_ps(r[i], r[i + 1]);
        pair[i + 1] = _mm512_unpackhi_ps(r[i], r[i + 1]);
    }
    for (int i = 0; i < VL; i += 4) {
        quad[i] = _mm512_shuffle_ps(pair[i], pair[i + 2], 0x44);
        quad[i + 1] = _mm512_shuffle_ps(pair[i], pair[i + 2], 0xEE);
        quad[i + 2] = _mm512_shuffle_ps(pair[i + 1], pair[i + 3], 0x44);
        quad[i + 3] = _mm512_shuffle_ps(pair[i + 1], pair[i + 3], 0xEE);
    }
    for (int i = 0; i < 4; i++) {
        half[i] = _mm512_shuffle_f32x4(quad[i], quad[i + 4], 0x88);
        half[i + 4] = _mm512_shuffle_f32x4(quad[i], quad[i + 4], 0xDD);
        half[i + 8] = _mm512_shuffle_f32x4(quad[i + 8], quad[i + 12], 0x88);
        half[i + 12] = _mm512_shuffle_f32x4(quad[i + 8], quad[i + 12], 0xDD);
    }
    for (int i = 0; i < 4; i++) {
        r[i] = _mm512_shuffle_f32x4(half[i], half[i + 8], 0x88);
        r[i + 4] = _mm512_shuffle_f32x4(half[i + 4], half[i + 12], 0x88);
        r[i + 8] = _mm512_shuffle_f32x4(half[i], half[i + 8], 0xDD);
        r[i + 12] = _mm512_shuffle_f32x4(half[i + 4], half[i + 12], 0xDD);
    }
}
