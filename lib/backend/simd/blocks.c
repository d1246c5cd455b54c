/* To blocks of whole numbers, and back to floats. */

#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "backend/c/portable.h"
#include "backend/simd/table.h"
#include "base/dtype.h"

#if ISA_IS_X86

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

static ALWAYS_INLINE __m256i sums_of_fours(__m256i bytes)
{
    return _mm256_madd_epi16(_mm256_maddubs_epi16(_mm256_set1_epi8(1), bytes), _mm256_set1_epi16(1));
}

static ALWAYS_INLINE int32_t total_of(__m256i bytes)
{
    __m256i fours = sums_of_fours(bytes);
    __m128i four = _mm_add_epi32(_mm256_castsi256_si128(fours), _mm256_extracti128_si256(fours, 1));
    __m128i two = _mm_add_epi32(four, _mm_unpackhi_epi64(four, four));
    return _mm_cvtsi128_si32(_mm_add_epi32(two, _mm_shuffle_epi32(two, 1)));
}

/* Where block after block of a row goes, as kernels.h has it. */
typedef struct quantized {
    unsigned char *numbers;
    float *scales;
    int32_t *times_8, *times_128;
} quantized;

static ALWAYS_INLINE void quantize_block(quantized to, const float *x)
{
    __m256 v[4], most = _mm256_setzero_ps();
    for (int i = 0; i < 4; i++) {
        v[i] = _mm256_loadu_ps(x + 8 * i);
        most = _mm256_max_ps(most, _mm256_andnot_ps(_mm256_set1_ps(-0.0f), v[i]));
    }
    float scale = largest_of(most) / 127.0f, factor = scale >= FLT_MIN ? 1.0f / scale : 0.0f;
    __m256i bytes = bytes_of(v, _mm256_set1_ps(factor));
    if (not_finite(v)) {
        scale = NAN;
        bytes = _mm256_setzero_si256();
    }
    const int32_t total = total_of(bytes);
    _mm256_storeu_si256((void *)to.numbers, bytes);
    *to.scales = scale;
    *to.times_8 = -8 * total;
    *to.times_128 = -128 * total;
}

#define TOGETHER 4

/* Four numbers across: lane j of what comes out is the largest, or the sum, of v[j]'s eight. */
static ALWAYS_INLINE __m128i largest_across(const __m256i v[TOGETHER])
{
    __m256i a = _mm256_max_epi32(_mm256_unpacklo_epi32(v[0], v[1]), _mm256_unpackhi_epi32(v[0], v[1]));
    __m256i b = _mm256_max_epi32(_mm256_unpacklo_epi32(v[2], v[3]), _mm256_unpackhi_epi32(v[2], v[3]));
    __m256i both = _mm256_max_epi32(_mm256_unpacklo_epi64(a, b), _mm256_unpackhi_epi64(a, b));
    return _mm_max_epi32(_mm256_castsi256_si128(both), _mm256_extracti128_si256(both, 1));
}

static ALWAYS_INLINE __m128i sums_across(const __m256i v[TOGETHER])
{
    __m256i both = _mm256_hadd_epi32(_mm256_hadd_epi32(v[0], v[1]), _mm256_hadd_epi32(v[2], v[3]));
    return _mm_add_epi32(_mm256_castsi256_si128(both), _mm256_extracti128_si256(both, 1));
}

/* TOGETHER blocks: their scales and totals are made side by side. False: one of them is not finite. */
static ALWAYS_INLINE bool quantize_together(quantized to, const float *x)
{
    const __m256i magnitude = _mm256_set1_epi32(0x7FFFFFFF); /* magnitudes are ordered as their bits are */
    __m256i most[TOGETHER], sums[TOGETHER];
    UNROLL
    for (int j = 0; j < TOGETHER; j++) {
        const float *block = x + j * MMI_BLOCK;
        most[j] = _mm256_and_si256(magnitude, _mm256_loadu_si256((const void *)block));
        for (int i = 1; i < 4; i++)
            most[j] = _mm256_max_epi32(most[j],
                                       _mm256_and_si256(magnitude, _mm256_loadu_si256((const void *)(block + 8 * i))));
    }
    __m128i largest = largest_across(most);
    if (_mm_movemask_epi8(_mm_cmpgt_epi32(largest, _mm_set1_epi32(0x7F7FFFFF))) != 0)
        return false;
    __m128 scale = _mm_div_ps(_mm_castsi128_ps(largest), _mm_set1_ps(127.0f));
    __m128 factor = _mm_and_ps(_mm_cmpge_ps(scale, _mm_set1_ps(FLT_MIN)), _mm_div_ps(_mm_set1_ps(1.0f), scale));
    float factors[TOGETHER];
    _mm_storeu_ps(to.scales, scale);
    _mm_storeu_ps(factors, factor);
    UNROLL
    for (int j = 0; j < TOGETHER; j++) {
        __m256 v[4];
        for (int i = 0; i < 4; i++)
            v[i] = _mm256_loadu_ps(x + j * MMI_BLOCK + 8 * i);
        __m256i bytes = bytes_of(v, _mm256_set1_ps(factors[j]));
        _mm256_storeu_si256((void *)(to.numbers + j * MMI_BLOCK), bytes);
        sums[j] = sums_of_fours(bytes);
    }
    const __m128i times_8 = _mm_slli_epi32(_mm_sub_epi32(_mm_setzero_si128(), sums_across(sums)), 3);
    _mm_storeu_si128((void *)to.times_8, times_8);
    _mm_storeu_si128((void *)to.times_128, _mm_slli_epi32(times_8, 4));
    return true;
}

static ALWAYS_INLINE quantized place_of(void *row, int64_t K, int64_t b)
{
    unsigned char *numbers = row;
    float *scales = (float *)(void *)(numbers + K);
    int32_t *times_8 = (int32_t *)(void *)(scales + K / MMI_BLOCK), *times_128 = times_8 + K / MMI_BLOCK;
    return (quantized){ numbers + b * MMI_BLOCK, scales + b, times_8 + b, times_128 + b };
}

void SIMD(quantize)(void *row, int64_t K, const float *x, int64_t first, int64_t count)
{
    for (int64_t b = first / MMI_BLOCK, end = b + count / MMI_BLOCK; b < end;) {
        if (end - b >= TOGETHER && quantize_together(place_of(row, K, b), x)) {
            b += TOGETHER;
            x += TOGETHER * MMI_BLOCK;
            continue;
        }
        for (int64_t few = end - b < TOGETHER ? end : b + TOGETHER; b < few; b++, x += MMI_BLOCK)
            quantize_block(place_of(row, K, b), x);
    }
}

static ALWAYS_INLINE __m256 scale_of(const unsigned char *block)
{
    int16_t bits;
    memcpy(&bits, block, sizeof bits);
    return _mm256_cvtph_ps(_mm_set1_epi16(bits));
}

#define BLOCK_BYTES(dtype) ((dtype) == MM_Q8_0 ? 2 + MMI_BLOCK : 2 + MMI_BLOCK / 2)

/* A block's 32 numbers, q4_0 with its 8 still added; `dtype` is a constant wherever this is used. */
static ALWAYS_INLINE __m256i block_numbers(const unsigned char *block, int32_t dtype)
{
    if (dtype == MM_Q8_0)
        return _mm256_loadu_si256((const void *)(block + 2));
    __m256i twice = _mm256_broadcastsi128_si256(_mm_loadu_si128((const void *)(block + 2)));
    __m256i shifted = _mm256_srlv_epi64(twice, _mm256_setr_epi64x(0, 0, 4, 4));
    return _mm256_and_si256(shifted, _mm256_set1_epi8(15));
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

void SIMD(widen_blocks)(float *y, const void *x, int32_t dtype, int64_t n)
{
    mmi_c_widen_blocks(y, x, dtype, n);
}

#endif
