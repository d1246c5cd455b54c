/* AVX-512 on a processor without it, for tests: SIMDe's emulation, and what it lacks. -Demulate=true builds with it. */
#ifndef MMI_BACKEND_SIMD_EMULATE_H
#define MMI_BACKEND_SIMD_EMULATE_H

#include <math.h>
#include <string.h>

#define SIMDE_ENABLE_NATIVE_ALIASES
#include <simde/x86/avx512.h>

/* Each lane of `type` by itself: `to`, `n` of them, from what `expression` says of lane i of v. */
#define EMULATE(result, to, from, v, expression)                                                                       \
    to lanes[sizeof(result) / sizeof(to)];                                                                             \
    from in[sizeof(v) / (sizeof(from))];                                                                               \
    memcpy(in, &v, sizeof v);                                                                                          \
    for (size_t i = 0; i < sizeof lanes / sizeof lanes[0]; i++)                                                        \
        lanes[i] = (to)(expression);                                                                                   \
    result all;                                                                                                        \
    memcpy(&all, lanes, sizeof all);                                                                                   \
    return all

#define _mm512_cvtepi32_epi16 emulate_cvtepi32_epi16
static inline __m256i emulate_cvtepi32_epi16(__m512i v)
{
    EMULATE(__m256i, int16_t, int32_t, v, in[i]);
}
#define _mm512_cvtepu16_epi32 emulate_cvtepu16_epi32
static inline __m512i emulate_cvtepu16_epi32(__m256i v)
{
    EMULATE(__m512i, int32_t, uint16_t, v, in[i]);
}
#define _mm512_cvtepi8_epi32 emulate_cvtepi8_epi32
static inline __m512i emulate_cvtepi8_epi32(__m128i v)
{
    EMULATE(__m512i, int32_t, int8_t, v, in[i]);
}
#define _mm512_cvtepi32_ps emulate_cvtepi32_ps
static inline __m512 emulate_cvtepi32_ps(__m512i v)
{
    EMULATE(__m512, float, int32_t, v, in[i]);
}
#define _mm512_srai_epi32 emulate_srai_epi32
static inline __m512i emulate_srai_epi32(__m512i v, unsigned int count)
{
    EMULATE(__m512i, int32_t, int32_t, v, in[i] >> count);
}
#define _mm512_cvtps_pd emulate_cvtps_pd
static inline __m512d emulate_cvtps_pd(__m256 v)
{
    EMULATE(__m512d, double, float, v, in[i]);
}

/* a · 2^floor(b), rounded once: SIMDe's goes by way of 2^b, which may be infinite or subnormal by itself. */
#undef _mm512_scalef_ps
#define _mm512_scalef_ps emulate_scalef_ps
static inline __m512 emulate_scalef_ps(__m512 a, __m512 b)
{
    float x[16], power[16];
    memcpy(x, &a, sizeof x);
    memcpy(power, &b, sizeof power);
    for (int i = 0; i < 16; i++)
        x[i] = power[i] != power[i] ? power[i] : ldexpf(x[i], (int)fmaxf(-1000, fminf(1000, floorf(power[i]))));
    return _mm512_loadu_ps(x);
}

/* Halves, by the processor's own F16C. */
#undef _mm512_cvtph_ps
#define _mm512_cvtph_ps emulate_cvtph_ps
static inline __m512 emulate_cvtph_ps(__m256i v)
{
    __m256 low = _mm256_cvtph_ps(_mm256_castsi256_si128(v)), high = _mm256_cvtph_ps(_mm256_extracti128_si256(v, 1));
    return _mm512_insertf32x8(_mm512_castps256_ps512(low), high, 1);
}
#undef _mm512_cvtps_ph
#define _mm512_cvtps_ph(v, rounding) emulate_cvtps_ph(v)
static inline __m256i emulate_cvtps_ph(__m512 v)
{
    __m256 half[2];
    memcpy(half, &v, sizeof half);
    return _mm256_setr_m128i(_mm256_cvtps_ph(half[0], _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC),
                             _mm256_cvtps_ph(half[1], _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

#undef _mm512_extractf32x8_ps
#define _mm512_extractf32x8_ps emulate_extractf32x8_ps
static inline __m256 emulate_extractf32x8_ps(__m512 v, int half)
{
    __m256 halves[2];
    memcpy(halves, &v, sizeof halves);
    return halves[half];
}

/* There, but under its own name only, or under a wrong one. */
#undef _mm512_madd_epi16
#define _mm512_madd_epi16 simde_mm512_madd_epi16
#undef _mm512_shuffle_f32x4
#define _mm512_shuffle_f32x4 simde_mm512_shuffle_f32x4

/* Only lanes of the mask are touched. */
#undef _mm512_maskz_loadu_ps
#define _mm512_maskz_loadu_ps emulate_maskz_loadu_ps
static inline __m512 emulate_maskz_loadu_ps(__mmask16 mask, const void *p)
{
    float lanes[16] = { 0 };
    for (int i = 0; i < 16; i++)
        if (mask >> i & 1)
            memcpy(&lanes[i], (const float *)p + i, sizeof lanes[i]);
    return _mm512_loadu_ps(lanes);
}
#undef _mm512_mask_storeu_ps
#define _mm512_mask_storeu_ps emulate_mask_storeu_ps
static inline void emulate_mask_storeu_ps(void *p, __mmask16 mask, __m512 v)
{
    float lanes[16];
    memcpy(lanes, &v, sizeof lanes);
    for (int i = 0; i < 16; i++)
        if (mask >> i & 1)
            memcpy((float *)p + i, &lanes[i], sizeof lanes[i]);
}

/* Across the lanes, in the order in which compilers do it: halves onto each other. `with` is a lane of the other half.
 */
#define EMULATE_REDUCE(name, vector, number, expression)                                                               \
    static inline number name(vector v)                                                                                \
    {                                                                                                                  \
        number lane[sizeof(vector) / sizeof(number)];                                                                  \
        memcpy(lane, &v, sizeof lane);                                                                                 \
        for (size_t half = sizeof lane / sizeof lane[0] / 2; half > 0; half /= 2)                                      \
            for (size_t i = 0; i < half; i++) {                                                                        \
                number with = lane[i + half];                                                                          \
                lane[i] = expression;                                                                                  \
            }                                                                                                          \
        return lane[0];                                                                                                \
    }
EMULATE_REDUCE(emulate_reduce_add_ps, __m512, float, lane[i] + with)
EMULATE_REDUCE(emulate_reduce_add_pd, __m512d, double, lane[i] + with)
EMULATE_REDUCE(emulate_reduce_max_ps, __m512, float, lane[i] > with ? lane[i] : with)
#undef _mm512_reduce_add_ps
#undef _mm512_reduce_add_pd
#undef _mm512_reduce_max_ps
#define _mm512_reduce_add_ps emulate_reduce_add_ps
#define _mm512_reduce_add_pd emulate_reduce_add_pd
#define _mm512_reduce_max_ps emulate_reduce_max_ps

/* bf16, as the manual has it: to nearest even, NaN kept, subnormals taken for 0; the product with the upper numbers is
 * added before that with the lower ones, each sum rounded once and taken for 0 where it is subnormal. */
#define __m512bh __m512i
static inline float emulate_flush(float x)
{
    return fabsf(x) < 0x1p-126f ? copysignf(0, x) : x;
}
static inline uint16_t emulate_to_bf16(float x)
{
    uint32_t bits;
    x = emulate_flush(x);
    memcpy(&bits, &x, sizeof bits);
    return (uint16_t)(x != x ? bits >> 16 | 0x40 : (bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}
static inline float emulate_from_bf16(uint16_t number)
{
    uint32_t bits = (uint32_t)number << 16;
    float x;
    memcpy(&x, &bits, sizeof x);
    return emulate_flush(x);
}
#undef _mm512_cvtneps_pbh
#define _mm512_cvtneps_pbh emulate_cvtneps_pbh
static inline __m256i emulate_cvtneps_pbh(__m512 v)
{
    EMULATE(__m256i, uint16_t, float, v, emulate_to_bf16(in[i]));
}
#undef _mm512_cvtne2ps_pbh
#define _mm512_cvtne2ps_pbh emulate_cvtne2ps_pbh
static inline __m512i emulate_cvtne2ps_pbh(__m512 high, __m512 low)
{
    __m512 v[2] = { low, high };
    EMULATE(__m512i, uint16_t, float, v, emulate_to_bf16(in[i]));
}
/* AVX-VNNI, for which SIMDe has the name of AVX-512's. */
#define _mm256_dpbusd_avx_epi32 simde_mm256_dpbusd_epi32
#undef _mm512_dpbf16_ps
#define _mm512_dpbf16_ps emulate_dpbf16_ps
static inline __m512 emulate_dpbf16_ps(__m512 sum, __m512i a, __m512i b)
{
    float sums[16];
    uint16_t x[32], y[32];
    memcpy(sums, &sum, sizeof sums);
    memcpy(x, &a, sizeof x);
    memcpy(y, &b, sizeof y);
    for (int i = 0; i < 16; i++)
        for (int half = 1; half >= 0; half--) {
            int at = 2 * i + half;
            sums[i] = emulate_flush(fmaf(emulate_from_bf16(x[at]), emulate_from_bf16(y[at]), emulate_flush(sums[i])));
        }
    return _mm512_loadu_ps(sums);
}

/* Tiles, each thread's own: 16 rows of 64 bytes at most, as they were configured. */
typedef struct emulate_tiles {
    unsigned char config[64], rows[8][16][64];
} emulate_tiles;
static _Thread_local emulate_tiles emulated;

static inline int emulate_tile_rows(int t)
{
    return emulated.config[48 + t];
}
static inline size_t emulate_tile_bytes(int t)
{
    uint16_t bytes;
    memcpy(&bytes, emulated.config + 16 + 2 * t, sizeof bytes);
    return bytes;
}
static inline void emulate_tile_zero(int t)
{
    memset(emulated.rows[t], 0, sizeof emulated.rows[t]);
}
static inline void emulate_tile_load(int t, const void *from, long stride)
{
    emulate_tile_zero(t);
    for (int i = 0; i < emulate_tile_rows(t); i++)
        memcpy(emulated.rows[t][i], (const unsigned char *)from + i * stride, emulate_tile_bytes(t));
}
static inline void emulate_tile_store(int t, void *to, long stride)
{
    for (int i = 0; i < emulate_tile_rows(t); i++)
        memcpy((unsigned char *)to + i * stride, emulated.rows[t][i], emulate_tile_bytes(t));
}

/* Products with the lower and with the upper numbers add up apart, and to the sum last; subnormals are 0 throughout. */
static inline void emulate_tile_dot_bf16(int c, int a, int b)
{
    for (int i = 0; i < emulate_tile_rows(c); i++)
        for (size_t j = 0; j < emulate_tile_bytes(c) / 4; j++) {
            float sum, halves[2] = { 0, 0 };
            for (size_t k = 0; k < emulate_tile_bytes(a) / 4; k++)
                for (size_t half = 0; half < 2; half++) {
                    uint16_t x, y;
                    memcpy(&x, emulated.rows[a][i] + 4 * k + 2 * half, sizeof x);
                    memcpy(&y, emulated.rows[b][k] + 4 * j + 2 * half, sizeof y);
                    halves[half] = emulate_flush(fmaf(emulate_from_bf16(x), emulate_from_bf16(y), halves[half]));
                }
            memcpy(&sum, emulated.rows[c][i] + 4 * j, sizeof sum);
            sum = emulate_flush(emulate_flush(sum) + emulate_flush(halves[0] + halves[1]));
            memcpy(emulated.rows[c][i] + 4 * j, &sum, sizeof sum);
        }
}
static inline void emulate_tile_dot_bytes(int c, int a, int b)
{
    for (int i = 0; i < emulate_tile_rows(c); i++)
        for (size_t j = 0; j < emulate_tile_bytes(c) / 4; j++) {
            int32_t sum;
            memcpy(&sum, emulated.rows[c][i] + 4 * j, sizeof sum);
            for (size_t k = 0; k < emulate_tile_bytes(a); k++)
                sum += (signed char)emulated.rows[a][i][k] * (signed char)emulated.rows[b][k / 4][4 * j + k % 4];
            memcpy(emulated.rows[c][i] + 4 * j, &sum, sizeof sum);
        }
}
#undef _tile_loadconfig
#undef _tile_release
#undef _tile_zero
#undef _tile_loadd
#undef _tile_stored
#undef _tile_dpbf16ps
#undef _tile_dpbssd
#define _tile_loadconfig(from) memcpy(emulated.config, from, sizeof emulated.config)
#define _tile_release() memset(&emulated, 0, sizeof emulated)
#define _tile_zero emulate_tile_zero
#define _tile_loadd emulate_tile_load
#define _tile_stored emulate_tile_store
#define _tile_dpbf16ps emulate_tile_dot_bf16
#define _tile_dpbssd emulate_tile_dot_bytes

#endif
