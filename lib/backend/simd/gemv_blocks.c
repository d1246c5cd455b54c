/* A few rows against weights in blocks as they lie: the same block of W_ROWS rows of W at a time, whose sums end up in
 * the lanes of one vector. */
#include <stddef.h>

#include "backend/simd/blocks.h"
#include "backend/simd/table.h"

/*     sums, floats                  a vector of W_ROWS numbers
 *     exact_sums(rows, n, …)        lane i < n is the exact sum of the products of rows[i]'s block
 *     add_block(sum, …)             sum + scales · scale · (exact - offset · total), rounded as gemv_blocks has it */
#if ISA_IS_X86

#define W_ROWS 8
typedef __m256i sums;
typedef __m256 floats;

static ALWAYS_INLINE floats floats_zero(void)
{
    return _mm256_setzero_ps();
}
static ALWAYS_INLINE void floats_store(float *p, floats v)
{
    _mm256_storeu_ps(p, v);
}

static ALWAYS_INLINE sums sums_of_bytes(const unsigned char *const rows[W_ROWS], int n, const unsigned char *numbers)
{
    __m256i x = _mm256_loadu_si256((const void *)numbers), r[W_ROWS], two[4], four[2];
    UNROLL
    for (int j = 0; j < W_ROWS; j++) {
        __m256i w = j < n ? block_weights(rows[j], MM_Q8_0) : _mm256_setzero_si256();
#if ISA_IS(vnni)
        r[j] = _mm256_dpbusd_epi32(_mm256_setzero_si256(), w, x);
#else /* vi.h tells why these are exact */
        __m256i pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(x, w));
        r[j] = _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
#endif
    }
    UNROLL
    for (int i = 0; i < 4; i++)
        two[i] = _mm256_add_epi32(_mm256_unpacklo_epi32(r[2 * i], r[2 * i + 1]),
                                  _mm256_unpackhi_epi32(r[2 * i], r[2 * i + 1]));
    UNROLL
    for (int i = 0; i < 2; i++)
        four[i] = _mm256_add_epi32(_mm256_unpacklo_epi64(two[2 * i], two[2 * i + 1]),
                                   _mm256_unpackhi_epi64(two[2 * i], two[2 * i + 1]));
    return _mm256_add_epi32(_mm256_permute2x128_si256(four[0], four[1], 0x20),
                            _mm256_permute2x128_si256(four[0], four[1], 0x31));
}

/* Rows j and j + 4 share a vector, as their 16 bytes of two numbers each lie: half as many sums to add up as above. */
static ALWAYS_INLINE sums sums_of_nibbles(const unsigned char *const rows[W_ROWS], int n, const unsigned char *numbers)
{
    const __m256i four_bits = _mm256_set1_epi8(15);
    const __m256i low = _mm256_broadcastsi128_si256(_mm_loadu_si128((const void *)numbers));
    const __m256i high = _mm256_broadcastsi128_si256(_mm_loadu_si128((const void *)(numbers + MMI_BLOCK / 2)));
    __m256i r[4], two[2];
    UNROLL
    for (int j = 0; j < 4; j++) {
        __m128i a = j < n ? _mm_loadu_si128((const void *)(rows[j] + 2)) : _mm_setzero_si128();
        __m128i b = j + 4 < n ? _mm_loadu_si128((const void *)(rows[j + 4] + 2)) : _mm_setzero_si128();
        __m256i w = _mm256_inserti128_si256(_mm256_castsi128_si256(a), b, 1);
        __m256i first = _mm256_and_si256(w, four_bits), second = _mm256_and_si256(_mm256_srli_epi16(w, 4), four_bits);
#if ISA_IS(vnni)
        r[j] = _mm256_dpbusd_epi32(_mm256_dpbusd_epi32(_mm256_setzero_si256(), first, low), second, high);
#else
        r[j] = _mm256_add_epi16(_mm256_maddubs_epi16(first, low), _mm256_maddubs_epi16(second, high));
#endif
    }
#if ISA_IS(vnni)
    UNROLL
    for (int i = 0; i < 2; i++)
        two[i] = _mm256_add_epi32(_mm256_unpacklo_epi32(r[2 * i], r[2 * i + 1]),
                                  _mm256_unpackhi_epi32(r[2 * i], r[2 * i + 1]));
    return _mm256_add_epi32(_mm256_unpacklo_epi64(two[0], two[1]), _mm256_unpackhi_epi64(two[0], two[1]));
#else /* all but the last addition stay within 16 bits: 16 · 15 · 127 < 2^15 */
    UNROLL
    for (int i = 0; i < 2; i++)
        two[i] = _mm256_add_epi16(_mm256_unpacklo_epi16(r[2 * i], r[2 * i + 1]),
                                  _mm256_unpackhi_epi16(r[2 * i], r[2 * i + 1]));
    __m256i four = _mm256_add_epi16(_mm256_unpacklo_epi32(two[0], two[1]), _mm256_unpackhi_epi32(two[0], two[1]));
    const __m128i together = _mm_setr_epi8(0, 1, 8, 9, 2, 3, 10, 11, 4, 5, 12, 13, 6, 7, 14, 15); /* of a row */
    four = _mm256_shuffle_epi8(four, _mm256_broadcastsi128_si256(together));
    return _mm256_madd_epi16(four, _mm256_set1_epi16(1));
#endif
}

static ALWAYS_INLINE sums exact_sums(const unsigned char *const rows[W_ROWS], int n, const unsigned char *numbers,
                                     int32_t dtype)
{
    return dtype == MM_Q8_0 ? sums_of_bytes(rows, n, numbers) : sums_of_nibbles(rows, n, numbers);
}

static ALWAYS_INLINE floats add_block(floats sum, sums exact, const uint16_t scales[W_ROWS], float scale, int32_t total,
                                      int32_t dtype)
{
    if (WEIGHT_OFFSET(dtype) != 0)
        exact = _mm256_sub_epi32(exact, _mm256_set1_epi32(WEIGHT_OFFSET(dtype) * total));
    uint64_t four[2] = { 0, 0 }; /* put together outside the vector registers, which have enough to do */
    UNROLL
    for (int j = 0; j < W_ROWS; j++)
        four[j / 4] |= (uint64_t)scales[j] << 16 * (j % 4);
    __m256 factor =
        _mm256_mul_ps(_mm256_cvtph_ps(_mm_set_epi64x((int64_t)four[1], (int64_t)four[0])), _mm256_set1_ps(scale));
    return _mm256_fmadd_ps(factor, _mm256_cvtepi32_ps(exact), sum);
}

#else /* Arm */

#define W_ROWS 4
typedef vs sums;
typedef vf floats;

static ALWAYS_INLINE floats floats_zero(void)
{
    return vf_zero();
}
static ALWAYS_INLINE void floats_store(float *p, floats v)
{
    vf_store(p, v);
}

static ALWAYS_INLINE sums exact_sums(const unsigned char *const rows[W_ROWS], int n, const unsigned char *numbers,
                                     int32_t dtype)
{
    vs r[W_ROWS];
    UNROLL
    for (int j = 0; j < W_ROWS; j++) {
        r[j] = vdupq_n_s32(0);
        if (j < n) {
            vb w[2];
            block_weights(w, rows[j], dtype);
            r[j] = vs_dot(r[j], w[0], vb_load(numbers), dtype);
            r[j] = vs_dot(r[j], w[1], vb_load(numbers + MMI_BLOCK / 2), dtype);
        }
    }
    return vpaddq_s32(vpaddq_s32(r[0], r[1]), vpaddq_s32(r[2], r[3]));
}

static ALWAYS_INLINE floats add_block(floats sum, sums exact, const uint16_t scales[W_ROWS], float scale, int32_t total,
                                      int32_t dtype)
{
    return vf_fma(vf_mul(vf_load_f16(scales), vf_set(scale)), vs_end(exact, total, dtype), sum);
}

#endif

/* Row j of W_ROWS: every third has a pointer, the two after it are reached by the addressing mode. */
static ALWAYS_INLINE const unsigned char *row_of(const unsigned char *const third[], int64_t distance, int j)
{
    return third[j / 3] + j % 3 * distance;
}

/* Dot products of a row of x and n of W, n at most W_ROWS, which are `distance` bytes apart. `ahead` is what will be
 * read next, to be asked for meanwhile, or NULL. */
static ALWAYS_INLINE floats dots(const unsigned char *x, const unsigned char *w, int64_t distance,
                                 const unsigned char *ahead, int n, int32_t dtype, int64_t K)
{
    const int64_t blocks = K / MMI_BLOCK, step = W_ROWS * BLOCK_BYTES(dtype);
    const unsigned char *scales = x + K, *totals = scales + 4 * blocks;
    const unsigned char *third[3] = { w, w + 3 * distance, w + 6 * distance };
    floats sum = floats_zero();
    for (int64_t b = 0; b < blocks; b++) {
        for (int64_t line = 0; ahead && line < step; line += 64)
            __builtin_prefetch(ahead + b * step + line);
        const unsigned char *rows[W_ROWS];
        uint16_t halves[W_ROWS] = { 0 };
        UNROLL
        for (int j = 0; j < W_ROWS; j++) {
            rows[j] = row_of(third, distance, j < n ? j : 0);
            if (j < n)
                memcpy(&halves[j], rows[j], sizeof halves[j]);
        }
        float scale;
        memcpy(&scale, scales + 4 * b, sizeof scale);
        sums exact = exact_sums(rows, n, x + b * MMI_BLOCK, dtype);
        sum = add_block(sum, exact, halves, scale, four_bytes(totals + 4 * b), dtype);
        UNROLL
        for (int j = 0; j < 3; j++)
            third[j] += BLOCK_BYTES(dtype);
    }
    return sum;
}

/* Number j of v to y[j * apart]. */
static ALWAYS_INLINE void spread(float *y, int64_t apart, floats v)
{
    float each[W_ROWS];
    floats_store(each, v);
    UNROLL
    for (int j = 0; j < W_ROWS; j++)
        y[j * apart] = each[j];
}

/* q8_0: rows that are read together lie far apart, as in gemv.c, which makes decoding 1.2 times as fast on Zen 3. Those
 * of q4_0 are too short for that: side by side, with the next ones asked for, was a tenth faster. */
static ALWAYS_INLINE void multiply(float *y, int64_t ldy, const unsigned char *x, const unsigned char *w, int32_t dtype,
                                   int64_t M, int64_t N, int64_t K)
{
    const int64_t size = K / MMI_BLOCK * BLOCK_BYTES(dtype), step = mmi_quantized_row(K), run = N / W_ROWS;
    const int64_t apart = dtype == MM_Q8_0 ? run : 1, next = dtype == MM_Q8_0 ? 1 : W_ROWS;
    for (int64_t j = 0; j < run; j++) {
        const unsigned char *from = w + j * next * size;
        const unsigned char *ahead = dtype == MM_Q8_0 ? NULL : j + 1 < run ? from + W_ROWS * size : from;
        for (int64_t i = 0; i < M; i++)
            spread(y + i * ldy + j * next, apart, dots(x + i * step, from, apart * size, ahead, W_ROWS, dtype, K));
    }
    for (int64_t i = 0, j = run * W_ROWS; i < M && j < N; i++) {
        float last[W_ROWS];
        floats_store(last, dots(x + i * step, w + j * size, size, NULL, (int)(N - j), dtype, K));
        memcpy(y + i * ldy + j, last, (size_t)(N - j) * sizeof *y);
    }
}

#if ISA_IS(vnni)

/* q4_0 in vectors of 64 bytes: rows j, j + 4, j + 8 and j + 12 of WIDE_ROWS share one, so that a block's sums cost half
 * as much as above. With AVX2's instructions they would not fit into its registers. */
#define WIDE_ROWS 16

/* What row_of() is to W_ROWS. */
static ALWAYS_INLINE const unsigned char *wide_row(const unsigned char *const third[], int64_t distance, int j)
{
    return third[j / 3] + j % 3 * distance;
}

/* Lane j is the exact sum of the products of row j's block and `numbers`, with the offset. */
static ALWAYS_INLINE __m512i wide_sums(const unsigned char *const third[], int64_t distance,
                                       const unsigned char *numbers)
{
    const __m512i four_bits = _mm512_set1_epi8(15);
    const __m512i low = _mm512_broadcast_i32x4(_mm_loadu_si128((const void *)numbers));
    const __m512i high = _mm512_broadcast_i32x4(_mm_loadu_si128((const void *)(numbers + MMI_BLOCK / 2)));
    __m512i r[4], two[2];
    UNROLL
    for (int j = 0; j < 4; j++) {
        __m512i w = _mm512_castsi128_si512(_mm_loadu_si128((const void *)(wide_row(third, distance, j) + 2)));
        w = _mm512_inserti32x4(w, _mm_loadu_si128((const void *)(wide_row(third, distance, j + 4) + 2)), 1);
        w = _mm512_inserti32x4(w, _mm_loadu_si128((const void *)(wide_row(third, distance, j + 8) + 2)), 2);
        w = _mm512_inserti32x4(w, _mm_loadu_si128((const void *)(wide_row(third, distance, j + 12) + 2)), 3);
        __m512i first = _mm512_and_si512(w, four_bits), second = _mm512_and_si512(_mm512_srli_epi16(w, 4), four_bits);
        r[j] = _mm512_dpbusd_epi32(_mm512_dpbusd_epi32(_mm512_setzero_si512(), first, low), second, high);
    }
    UNROLL
    for (int i = 0; i < 2; i++)
        two[i] = _mm512_add_epi32(_mm512_unpacklo_epi32(r[2 * i], r[2 * i + 1]),
                                  _mm512_unpackhi_epi32(r[2 * i], r[2 * i + 1]));
    return _mm512_add_epi32(_mm512_unpacklo_epi64(two[0], two[1]), _mm512_unpackhi_epi64(two[0], two[1]));
}

/* The scales of their blocks, put together outside the vector registers: gathering them was no faster. */
static ALWAYS_INLINE __m512 wide_scales(const unsigned char *const third[], int64_t distance)
{
    uint64_t four[4] = { 0, 0, 0, 0 };
    UNROLL
    for (int j = 0; j < WIDE_ROWS; j++) {
        uint16_t half;
        memcpy(&half, wide_row(third, distance, j), sizeof half);
        four[j / 4] |= (uint64_t)half << 16 * (j % 4);
    }
    return _mm512_cvtph_ps(_mm256_set_epi64x((int64_t)four[3], (int64_t)four[2], (int64_t)four[1], (int64_t)four[0]));
}

/* As dots(), of WIDE_ROWS rows of q4_0. */
static ALWAYS_INLINE __m512 wide_dots(const unsigned char *x, const unsigned char *w, int64_t distance,
                                      const unsigned char *ahead, int64_t K)
{
    const int64_t blocks = K / MMI_BLOCK, step = WIDE_ROWS * BLOCK_BYTES(MM_Q4_0);
    const unsigned char *scales = x + K, *totals = scales + 4 * blocks, *third[6];
    for (int j = 0; j < 6; j++)
        third[j] = w + 3 * j * distance;
    __m512 sum = _mm512_setzero_ps();
    for (int64_t b = 0; b < blocks; b++) {
        UNROLL
        for (int64_t line = 0; line < step; line += 64)
            __builtin_prefetch(ahead + b * step + line);
        float scale;
        memcpy(&scale, scales + 4 * b, sizeof scale);
        __m512i exact = wide_sums(third, distance, x + b * MMI_BLOCK);
        exact = _mm512_sub_epi32(exact, _mm512_set1_epi32(WEIGHT_OFFSET(MM_Q4_0) * four_bytes(totals + 4 * b)));
        __m512 factor = _mm512_mul_ps(wide_scales(third, distance), _mm512_set1_ps(scale));
        sum = _mm512_fmadd_ps(factor, _mm512_cvtepi32_ps(exact), sum);
        UNROLL
        for (int j = 0; j < 6; j++)
            third[j] += BLOCK_BYTES(MM_Q4_0);
    }
    return sum;
}

/* Rows lie side by side, as multiply() has them for q4_0: the next ones are asked for, behind the last of them those of
 * what is mostly this thread's next piece. */
static void multiply_nibbles(float *y, int64_t ldy, const unsigned char *x, const unsigned char *w, int64_t M,
                             int64_t N, int64_t K)
{
    const int64_t size = K / MMI_BLOCK * BLOCK_BYTES(MM_Q4_0), step = mmi_quantized_row(K);
    int64_t j = 0;
    for (; j + WIDE_ROWS <= N; j += WIDE_ROWS) {
        const unsigned char *from = w + j * size, *ahead = from + WIDE_ROWS * size;
        for (int64_t i = 0; i < M; i++)
            _mm512_storeu_ps(y + i * ldy + j, wide_dots(x + i * step, from, size, ahead, K));
    }
    if (j < N)
        multiply(y + j, ldy, x, w + j * size, MM_Q4_0, M, N - j, K);
}

#else

static void multiply_nibbles(float *y, int64_t ldy, const unsigned char *x, const unsigned char *w, int64_t M,
                             int64_t N, int64_t K)
{
    multiply(y, ldy, x, w, MM_Q4_0, M, N, K);
}

#endif

void SIMD(gemv_blocks)(float *y, int64_t ldy, const void *x, const void *w, int32_t dtype, int64_t M, int64_t N,
                       int64_t K)
{
    if (dtype == MM_Q8_0)
        multiply(y, ldy, x, w, MM_Q8_0, M, N, K);
    else
        multiply_nibbles(y, ldy, x, w, M, N, K);
}
