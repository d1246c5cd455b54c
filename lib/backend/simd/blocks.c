/* To blocks of whole numbers, and back to floats. */
#include "backend/simd/blocks.h"
#include "backend/simd/table.h"

#if ISA_IS_X86

#include <float.h>
#include <math.h>

static ALWAYS_INLINE float largest_of(__m256 v)
{
    __m128 four = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}

/* True if some lane is NaN or infinite: those times 0 are NaN. */
static ALWAYS_INLINE int not_finite(const __m256 v[4])
{
    __m256 zero = _mm256_setzero_ps(), sum = _mm256_mul_ps(v[0], zero);
    for (int i = 1; i < 4; i++)
        sum = _mm256_add_ps(sum, _mm256_mul_ps(v[i], zero));
    return _mm256_movemask_ps(_mm256_cmp_ps(sum, sum, _CMP_UNORD_Q)) != 0;
}

/* Four vectors of whole numbers as bytes, in order. */
static ALWAYS_INLINE __m256i bytes_of(const __m256 v[4], __m256 factor)
{
    __m256i n[4];
    for (int i = 0; i < 4; i++)
        n[i] = _mm256_cvtps_epi32(_mm256_mul_ps(v[i], factor));
    __m256i words = _mm256_packs_epi16(_mm256_packs_epi32(n[0], n[1]), _mm256_packs_epi32(n[2], n[3]));
    return _mm256_permutevar8x32_epi32(words, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

static ALWAYS_INLINE int32_t total_of(__m256i bytes)
{
    __m256i pairs = _mm256_maddubs_epi16(_mm256_set1_epi8(1), bytes),
            fours = _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
    __m128i four = _mm_add_epi32(_mm256_castsi256_si128(fours), _mm256_extracti128_si256(fours, 1));
    __m128i two = _mm_add_epi32(four, _mm_unpackhi_epi64(four, four));
    return _mm_cvtsi128_si32(_mm_add_epi32(two, _mm_shuffle_epi32(two, 1)));
}

void SIMD(quantize)(void *q, const float *x, int64_t K)
{
    unsigned char *numbers = q;
    float *scales = (float *)(void *)(numbers + K);
    int32_t *totals = (int32_t *)(void *)(scales + K / MMI_BLOCK);
    for (int64_t b = 0; b < K / MMI_BLOCK; b++) {
        __m256 v[4], most = _mm256_setzero_ps();
        for (int i = 0; i < 4; i++) {
            v[i] = _mm256_loadu_ps(x + b * MMI_BLOCK + 8 * i);
            most = _mm256_max_ps(most, _mm256_andnot_ps(_mm256_set1_ps(-0.0f), v[i]));
        }
        float scale = largest_of(most) / 127.0f, factor = scale >= FLT_MIN ? 1.0f / scale : 0.0f;
        __m256i bytes = bytes_of(v, _mm256_set1_ps(factor));
        if (not_finite(v)) {
            scale = NAN;
            bytes = _mm256_setzero_si256();
        }
        _mm256_storeu_si256((void *)(numbers + b * MMI_BLOCK), bytes);
        scales[b] = scale;
        totals[b] = total_of(bytes);
    }
}

void SIMD(quantize_rows)(void *q, const float *x, int64_t ldx, int64_t M, int64_t K)
{
    for (int64_t i = 0; i < M; i++)
        SIMD(quantize)((unsigned char *)q + i * mmi_quantized_row(K), x + i * ldx, K);
}

static ALWAYS_INLINE __m256 scale_of(const unsigned char *block)
{
    int16_t bits;
    memcpy(&bits, block, sizeof bits);
    return _mm256_cvtph_ps(_mm_set1_epi16(bits));
}

static ALWAYS_INLINE void widen(float *y, const unsigned char *block, int32_t dtype, int64_t n)
{
    for (int64_t b = 0; b < n / MMI_BLOCK; b++, block += BLOCK_BYTES(dtype), y += MMI_BLOCK) {
        __m256i numbers = block_numbers(block, dtype);
        if (dtype == MM_Q4_0)
            numbers = _mm256_sub_epi8(numbers, _mm256_set1_epi8(8));
        __m256 scale = scale_of(block);
        __m128i half[2] = { _mm256_castsi256_si128(numbers), _mm256_extracti128_si256(numbers, 1) };
        for (int i = 0; i < 4; i++) {
            __m128i eight = i % 2 ? _mm_srli_si128(half[i / 2], 8) : half[i / 2];
            _mm256_storeu_ps(y + 8 * i, _mm256_mul_ps(_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(eight)), scale));
        }
    }
}

void SIMD(widen_blocks)(float *y, const void *x, int32_t dtype, int64_t n)
{
    if (dtype == MM_Q8_0)
        widen(y, x, MM_Q8_0, n);
    else
        widen(y, x, MM_Q4_0, n);
}

#else /* portable C serves the other instruction sets */

#include "backend/c/portable.h"

void SIMD(widen_blocks)(float *y, const void *x, int32_t dtype, int64_t n)
{
    mmi_c_widen_blocks(y, x, dtype, n);
}

#endif
