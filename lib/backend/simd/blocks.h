/* Reading blocks of 32 numbers with vectors; `dtype` is a constant wherever these are used.
 *
 *     BLOCK_BYTES(dtype)                what a block takes
 *     turn_blocks(to, step, w, …)       the blocks at w of TURNED_ROWS rows, with WEIGHT_OFFSET added: numbers 4 k to 4
 * k + 3 of row j at to + k * step + 4 j; rows from `count` on are 0 */
#ifndef MMI_BACKEND_SIMD_BLOCKS_H
#define MMI_BACKEND_SIMD_BLOCKS_H

#include "backend/c/portable.h"
#include "backend/kernels.h"
#include "backend/simd/vi.h"
#include "base/dtype.h"

#define BLOCK_BYTES(dtype) ((dtype) == MM_Q8_0 ? 2 + MMI_BLOCK : 2 + MMI_BLOCK / 2)

#if ISA_IS_X86

/* A block's 32 numbers, q4_0 with its 8 still added. */
static ALWAYS_INLINE __m256i block_numbers(const unsigned char *block, int32_t dtype)
{
    if (dtype == MM_Q8_0)
        return _mm256_loadu_si256((const void *)(block + 2));
    __m256i twice = _mm256_broadcastsi128_si256(_mm_loadu_si128((const void *)(block + 2)));
    __m256i shifted = _mm256_srlv_epi64(twice, _mm256_setr_epi64x(0, 0, 4, 4));
    return _mm256_and_si256(shifted, _mm256_set1_epi8(15));
}

/* The same, signed. */
static ALWAYS_INLINE __m256i signed_numbers(const unsigned char *block, int32_t dtype)
{
    __m256i numbers = block_numbers(block, dtype);
    return dtype == MM_Q4_0 ? _mm256_sub_epi8(numbers, _mm256_set1_epi8(8)) : numbers;
}

/* With WEIGHT_OFFSET. */
static ALWAYS_INLINE __m256i block_weights(const unsigned char *block, int32_t dtype)
{
    __m256i numbers = block_numbers(block, dtype);
    if (dtype == MM_Q8_0 && WEIGHT_OFFSET(dtype) == 128)
        return _mm256_xor_si256(numbers, _mm256_set1_epi8((char)0x80));
    return numbers;
}

#define TURNED_ROWS 8
static ALWAYS_INLINE void turn_blocks(unsigned char *to, int64_t step, const unsigned char *w, int64_t distance,
                                      int64_t count, int32_t dtype)
{
    __m256i r[8], pair[8], quad[8];
    UNROLL
    for (int i = 0; i < 8; i++)
        r[i] = i < count ? block_weights(w + i * distance, dtype) : _mm256_setzero_si256();
    UNROLL
    for (int i = 0; i < 8; i += 2) {
        pair[i] = _mm256_unpacklo_epi32(r[i], r[i + 1]);
        pair[i + 1] = _mm256_unpackhi_epi32(r[i], r[i + 1]);
    }
    UNROLL
    for (int i = 0; i < 8; i += 4) {
        quad[i] = _mm256_unpacklo_epi64(pair[i], pair[i + 2]);
        quad[i + 1] = _mm256_unpackhi_epi64(pair[i], pair[i + 2]);
        quad[i + 2] = _mm256_unpacklo_epi64(pair[i + 1], pair[i + 3]);
        quad[i + 3] = _mm256_unpackhi_epi64(pair[i + 1], pair[i + 3]);
    }
    UNROLL
    for (int i = 0; i < 4; i++) {
        _mm256_storeu_si256((void *)(to + i * step), _mm256_permute2x128_si256(quad[i], quad[i + 4], 0x20));
        _mm256_storeu_si256((void *)(to + (i + 4) * step), _mm256_permute2x128_si256(quad[i], quad[i + 4], 0x31));
    }
}

#else

/* A block's 32 numbers, signed. */
static ALWAYS_INLINE void block_weights(int8x16_t numbers[2], const unsigned char *block, int32_t dtype)
{
    if (dtype == MM_Q8_0) {
        numbers[0] = vld1q_s8((const int8_t *)block + 2);
        numbers[1] = vld1q_s8((const int8_t *)block + 2 + MMI_BLOCK / 2);
        return;
    }
    uint8x16_t packed = vld1q_u8(block + 2);
    numbers[0] = vsubq_s8(vreinterpretq_s8_u8(vandq_u8(packed, vdupq_n_u8(15))), vdupq_n_s8(8));
    numbers[1] = vsubq_s8(vreinterpretq_s8_u8(vshrq_n_u8(packed, 4)), vdupq_n_s8(8));
}

#define TURNED_ROWS 4
static ALWAYS_INLINE void turn_blocks(unsigned char *to, int64_t step, const unsigned char *w, int64_t distance,
                                      int64_t count, int32_t dtype)
{
    int8x16_t r[4][2];
    UNROLL
    for (int i = 0; i < 4; i++) {
        r[i][0] = r[i][1] = vdupq_n_s8(0);
        if (i < count)
            block_weights(r[i], w + i * distance, dtype);
    }
    UNROLL
    for (int half = 0; half < 2; half++) {
        vf four[4];
        UNROLL
        for (int i = 0; i < 4; i++)
            four[i] = vreinterpretq_f32_s8(r[i][half]);
        vf_transpose(four);
        UNROLL
        for (int k = 0; k < 4; k++)
            vst1q_u8(to + (4 * half + k) * step, vreinterpretq_u8_f32(four[k]));
    }
}

#endif

#endif
