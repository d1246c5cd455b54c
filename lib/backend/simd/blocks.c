/* Products with weights in blocks, for x86: integer sums of 32, then a multiplication by both scales. */
#include "backend/simd/table.h"

#ifdef __AVX2__

#include <float.h>
#include <math.h>
#include <string.h>

#include "backend/kernels.h"
#include "base/dtype.h"

/* Rows of W and of x that meet in registers: a single row of x sees several of W, and several of x share what two rows
 * of W cost to unpack. */
#define W_ROWS 4
#define X_ROWS 4
#define W_PAIR 2

static ALWAYS_INLINE float sum_of(__m256 v)
{
    __m128 four = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

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

void SIMD(quantize)(void *q, const float *x, int64_t K)
{
    unsigned char *numbers = q;
    float *scales = (float *)(void *)(numbers + K);
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
    }
}

/* A block's 32 whole numbers as signed bytes. */
static ALWAYS_INLINE __m256i unpack(const unsigned char *block, int32_t dtype)
{
    if (dtype == MM_Q8_0)
        return _mm256_loadu_si256((const void *)(block + 2));
    __m128i packed = _mm_loadu_si128((const void *)(block + 2));
    __m256i halves = _mm256_inserti128_si256(_mm256_castsi128_si256(packed), _mm_srli_epi16(packed, 4), 1);
    return _mm256_sub_epi8(_mm256_and_si256(halves, _mm256_set1_epi8(15)), _mm256_set1_epi8(8));
}

static ALWAYS_INLINE __m256 scale_of(const unsigned char *block)
{
    int16_t bits;
    memcpy(&bits, block, sizeof bits);
    return _mm256_cvtph_ps(_mm_set1_epi16(bits));
}

static ALWAYS_INLINE void widen(float *y, const unsigned char *block, int32_t dtype, int64_t n)
{
    const int64_t size = dtype == MM_Q8_0 ? 2 + MMI_BLOCK : 2 + MMI_BLOCK / 2;
    for (int64_t b = 0; b < n / MMI_BLOCK; b++, block += size, y += MMI_BLOCK) {
        __m256i numbers = unpack(block, dtype);
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

/* Sums of four products each. |w| is at most 128 and x at most 127 in magnitude, so that a pair stays below 2^15. */
static ALWAYS_INLINE __m256 products(__m256i magnitudes, __m256i w, __m256i x)
{
    __m256i pairs = _mm256_maddubs_epi16(magnitudes, _mm256_sign_epi8(x, w));
    return _mm256_cvtepi32_ps(_mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
}

/* y[m, n] for m rows of x and n rows of W; m, n and dtype are constants wherever this is used. */
static ALWAYS_INLINE void dots(float *y, int64_t ldy, const unsigned char *x, const unsigned char *w, int32_t dtype,
                               const int m, const int n, int64_t K)
{
    const int64_t size = dtype == MM_Q8_0 ? 2 + MMI_BLOCK : 2 + MMI_BLOCK / 2;
    const int64_t blocks = K / MMI_BLOCK, distance = blocks * size, x_distance = mmi_quantized_row(K);
    __m256 sum[X_ROWS][W_ROWS];
    UNROLL
    for (int i = 0; i < m; i++)
        UNROLL
        for (int j = 0; j < n; j++)
            sum[i][j] = _mm256_setzero_ps();
    for (int64_t b = 0; b < blocks; b++)
        UNROLL
        for (int j = 0; j < n; j++) {
            const unsigned char *block = w + j * distance + b * size;
            __m256i numbers = unpack(block, dtype), magnitudes = _mm256_abs_epi8(numbers);
            __m256 scale = scale_of(block);
            UNROLL
            for (int i = 0; i < m; i++) {
                const unsigned char *row = x + i * x_distance;
                __m256i xs = _mm256_loadu_si256((const void *)(row + b * MMI_BLOCK));
                __m256 factor = _mm256_mul_ps(scale, _mm256_broadcast_ss((const float *)(const void *)(row + K) + b));
                sum[i][j] = _mm256_fmadd_ps(factor, products(magnitudes, numbers, xs), sum[i][j]);
            }
        }
    UNROLL
    for (int i = 0; i < m; i++)
        UNROLL
        for (int j = 0; j < n; j++)
            y[i * ldy + j] = sum_of(sum[i][j]);
}

/* All rows of x against n rows of W, which come from memory once and then lie in the first-level cache. */
static ALWAYS_INLINE void all_rows(float *y, int64_t ldy, const unsigned char *x, const unsigned char *w, int32_t dtype,
                                   int64_t M, const int n, int64_t K)
{
    const int64_t size = dtype == MM_Q8_0 ? 2 + MMI_BLOCK : 2 + MMI_BLOCK / 2;
    int64_t i = 0;
    for (; i + X_ROWS <= M; i += X_ROWS)
        for (int j = 0; j < n; j += n < W_PAIR ? 1 : W_PAIR)
            dots(y + i * ldy + j, ldy, x + i * mmi_quantized_row(K), w + j * (K / MMI_BLOCK * size), dtype, X_ROWS,
                 n < W_PAIR ? 1 : W_PAIR, K);
    for (; i < M; i++)
        dots(y + i * ldy, ldy, x + i * mmi_quantized_row(K), w, dtype, 1, n, K);
}

static ALWAYS_INLINE void rows_of(float *y, int64_t ldy, const unsigned char *x, const unsigned char *w, int32_t dtype,
                                  int64_t M, int64_t N, int64_t K)
{
    const int64_t size = dtype == MM_Q8_0 ? 2 + MMI_BLOCK : 2 + MMI_BLOCK / 2, distance = K / MMI_BLOCK * size;
    int64_t j = 0;
    for (; j + W_ROWS <= N; j += W_ROWS)
        all_rows(y + j, ldy, x, w + j * distance, dtype, M, W_ROWS, K);
    for (; j < N; j++)
        all_rows(y + j, ldy, x, w + j * distance, dtype, M, 1, K);
}

void SIMD(gemv_blocks)(float *y, int64_t ldy, const void *x, const void *w, int32_t dtype, int64_t M, int64_t N,
                       int64_t K)
{
    if (dtype == MM_Q8_0)
        rows_of(y, ldy, x, w, MM_Q8_0, M, N, K);
    else
        rows_of(y, ldy, x, w, MM_Q4_0, M, N, K);
}

#else /* portable C serves the other instruction sets */

#include "backend/c/portable.h"

void SIMD(widen_blocks)(float *y, const void *x, int32_t dtype, int64_t n)
{
    mmi_c_widen_blocks(y, x, dtype, n);
}

#endif
