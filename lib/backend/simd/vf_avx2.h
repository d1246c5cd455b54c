/* A vector of floats on x86 with AVX2, FMA and F16C. vf.h says what each of these means. */
#include <immintrin.h>

#define VL 8
#define TILE_ROWS 6
#define TILE_VECS 2

typedef __m256 vf;
typedef __m256i vtail;
typedef __m256 vmask;
typedef struct vd {
    __m256d low, high;
} vd;

static inline vf vf_load(const float *p) { return _mm256_loadu_ps(p); }
static inline void vf_store(float *p, vf v) { _mm256_storeu_ps(p, v); }
static inline vf vf_set(float x) { return _mm256_set1_ps(x); }
static inline vf vf_zero(void) { return _mm256_setzero_ps(); }
static inline vf vf_add(vf a, vf b) { return _mm256_add_ps(a, b); }
static inline vf vf_sub(vf a, vf b) { return _mm256_sub_ps(a, b); }
static inline vf vf_mul(vf a, vf b) { return _mm256_mul_ps(a, b); }
static inline vf vf_div(vf a, vf b) { return _mm256_div_ps(a, b); }
static inline vf vf_fma(vf a, vf b, vf c) { return _mm256_fmadd_ps(a, b, c); }
static inline vf vf_fnma(vf a, vf b, vf c) { return _mm256_fnmadd_ps(a, b, c); }
static inline vf vf_sqrt(vf a) { return _mm256_sqrt_ps(a); }
static inline vf vf_abs(vf a) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), a); }
static inline vf vf_max(vf m, vf x) { return _mm256_max_ps(x, m); }
static inline vf vf_clamp(vf x, vf low, vf high) { return _mm256_max_ps(low, _mm256_min_ps(high, x)); }
static inline vf vf_round(vf a) { return _mm256_round_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }

static inline vmask vf_below(vf a, vf b) { return _mm256_cmp_ps(a, b, _CMP_LT_OQ); }
static inline vf vf_select(vmask m, vf yes, vf no) { return _mm256_blendv_ps(no, yes, m); }

static inline vtail vf_tail(int64_t n)
{
    static const int32_t ones[2 * VL] = { -1, -1, -1, -1, -1, -1, -1, -1 };
    return _mm256_loadu_si256((const __m256i *)(ones + VL - (n < VL ? n : VL)));
}
static inline vf vf_load_tail(const float *p, vtail t) { return _mm256_maskload_ps(p, t); }
static inline void vf_store_tail(float *p, vtail t, vf v) { _mm256_maskstore_ps(p, t, v); }
static inline vf vf_fill_tail(vf v, vtail t, vf fill) { return _mm256_blendv_ps(fill, v, _mm256_castsi256_ps(t)); }

static inline float vf_sum(vf v)
{
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
}
static inline float vf_largest(vf v)
{
    __m128 s = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    s = _mm_max_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_max_ss(s, _mm_movehdup_ps(s)));
}

/* In two steps, since 2^n alone may be beyond a float's exponent where v · 2^n is not. */
static inline vf vf_ldexp(vf v, vf n)
{
    __m256i whole = _mm256_cvtps_epi32(n), half = _mm256_srai_epi32(whole, 1), bias = _mm256_set1_epi32(127);
    __m256i rest = _mm256_sub_epi32(whole, half);
    v = _mm256_mul_ps(v, _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(half, bias), 23)));
    return _mm256_mul_ps(v, _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(rest, bias), 23)));
}

static inline vd vd_zero(void) { return (vd){ _mm256_setzero_pd(), _mm256_setzero_pd() }; }
static inline vd vd_of(vf v)
{
    return (vd){ _mm256_cvtps_pd(_mm256_castps256_ps128(v)), _mm256_cvtps_pd(_mm256_extractf128_ps(v, 1)) };
}
static inline vd vd_add_square(vd s, vf v)
{
    const vd w = vd_of(v);
    return (vd){ _mm256_fmadd_pd(w.low, w.low, s.low), _mm256_fmadd_pd(w.high, w.high, s.high) };
}
static inline vd vd_add(vd s, vf v)
{
    const vd w = vd_of(v);
    return (vd){ _mm256_add_pd(s.low, w.low), _mm256_add_pd(s.high, w.high) };
}
static inline double vd_sum(vd s)
{
    double parts[4];
    _mm256_storeu_pd(parts, _mm256_add_pd(s.low, s.high));
    return parts[0] + parts[1] + (parts[2] + parts[3]);
}

static inline vf vf_load_bf16(const void *p)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128(p)), 16));
}
static inline vf vf_even_bf16(vf words)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_castps_si256(words), 16));
}
static inline vf vf_odd_bf16(vf words)
{
    return _mm256_and_ps(words, _mm256_castsi256_ps(_mm256_set1_epi32((int)0xFFFF0000)));
}
static inline vf in_order(vf quarters) /* 0, 2, 1, 3 */
{
    return _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(quarters), 0xD8));
}
static inline vf vf_evens(vf a, vf b) { return in_order(_mm256_shuffle_ps(a, b, 0x88)); }
static inline vf vf_odds(vf a, vf b) { return in_order(_mm256_shuffle_ps(a, b, 0xDD)); }
static inline vf vf_zip_low(vf even, vf odd)
{
    return _mm256_permute2f128_ps(_mm256_unpacklo_ps(even, odd), _mm256_unpackhi_ps(even, odd), 0x20);
}
static inline vf vf_zip_high(vf even, vf odd)
{
    return _mm256_permute2f128_ps(_mm256_unpacklo_ps(even, odd), _mm256_unpackhi_ps(even, odd), 0x31);
}
static inline vf vf_load_bytes(const void *p) { return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(p))); }
static inline vf vf_set_f16(int16_t bits) { return _mm256_cvtph_ps(_mm_set1_epi16(bits)); }
static inline vf vf_load_f16(const void *p) { return _mm256_cvtph_ps(_mm_loadu_si128(p)); }
static inline void vf_store_f16(void *p, vf v)
{
    _mm_storeu_si128(p, _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
static inline vf vf_round_f16(vf v)
{
    return _mm256_cvtph_ps(_mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
static inline vf vf_round_bf16(vf v)
{
    __m256i bits = _mm256_castps_si256(v), odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    __m256i rounded = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7FFF)));
    __m256i nan = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
    __m256 either = _mm256_blendv_ps(_mm256_castsi256_ps(rounded), _mm256_castsi256_ps(nan),
                                     _mm256_cmp_ps(v, v, _CMP_UNORD_Q));
    return _mm256_and_ps(either, _mm256_castsi256_ps(_mm256_set1_epi32((int)0xFFFF0000)));
}
static inline void vf_store_bf16(void *p, vf v)
{
    __m256i words = _mm256_srli_epi32(_mm256_castps_si256(vf_round_bf16(v)), 16);
    words = _mm256_permute4x64_epi64(_mm256_packus_epi32(words, words), 0x08);
    _mm_storeu_si128(p, _mm256_castsi256_si128(words));
}

static inline void vf_transpose(vf r[VL])
{
    vf pair[VL], quad[VL];
    for (int i = 0; i < VL; i += 2) {
        pair[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
        pair[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
    }
    for (int i = 0; i < VL; i += 4) {
        quad[i] = _mm256_shuffle_ps(pair[i], pair[i + 2], 0x44);
        quad[i + 1] = _mm256_shuffle_ps(pair[i], pair[i + 2], 0xEE);
        quad[i + 2] = _mm256_shuffle_ps(pair[i + 1], pair[i + 3], 0x44);
        quad[i + 3] = _mm256_shuffle_ps(pair[i + 1], pair[i + 3], 0xEE);
    }
    for (int i = 0; i < 4; i++) {
        r[i] = _mm256_permute2f128_ps(quad[i], quad[i + 4], 0x20);
        r[i + 4] = _mm256_permute2f128_ps(quad[i], quad[i + 4], 0x31);
    }
}
