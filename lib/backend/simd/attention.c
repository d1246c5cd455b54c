/* Attention of a few rows of queries against keys and values as a cache has them. */
#include <string.h>

#include "backend/simd/table.h"
#include "backend/simd/words.h"
#include "base/dtype.h"

#if VL == 4
#define TREES 4 /* of so many vectors' sums are added up at a time */
#else
#define TREES 1
#endif
#define SIDE 4 /* keys that are met together */
#if ISA_IS(avx2)
#define ROWS 2
#else
#define ROWS 4
#endif
_Static_assert(ROWS *SIDE == TREES * VL, "a tree has as many sums as a vector has lanes");

/* Lane i is the sum of the lanes of v[i]. */
static ALWAYS_INLINE vf sums_of(const vf v[VL])
{
#if ISA_IS_AVX512
    vf pair[8], quad[4], half[2];
    UNROLL
    for (int i = 0; i < 8; i++)
        pair[i] = vf_add(_mm512_unpacklo_ps(v[2 * i], v[2 * i + 1]), _mm512_unpackhi_ps(v[2 * i], v[2 * i + 1]));
    UNROLL
    for (int i = 0; i < 4; i++)
        quad[i] = vf_add(_mm512_shuffle_ps(pair[2 * i], pair[2 * i + 1], 0x44),
                         _mm512_shuffle_ps(pair[2 * i], pair[2 * i + 1], 0xEE));
    UNROLL
    for (int i = 0; i < 2; i++)
        half[i] = vf_add(_mm512_shuffle_f32x4(quad[2 * i], quad[2 * i + 1], 0x88),
                         _mm512_shuffle_f32x4(quad[2 * i], quad[2 * i + 1], 0xDD));
    return vf_add(_mm512_shuffle_f32x4(half[0], half[1], 0x88), _mm512_shuffle_f32x4(half[0], half[1], 0xDD));
#elif ISA_IS_X86
    vf pair[4], quad[2];
    UNROLL
    for (int i = 0; i < 4; i++)
        pair[i] = vf_add(_mm256_unpacklo_ps(v[2 * i], v[2 * i + 1]), _mm256_unpackhi_ps(v[2 * i], v[2 * i + 1]));
    UNROLL
    for (int i = 0; i < 2; i++)
        quad[i] = vf_add(_mm256_shuffle_ps(pair[2 * i], pair[2 * i + 1], 0x44),
                         _mm256_shuffle_ps(pair[2 * i], pair[2 * i + 1], 0xEE));
    return vf_add(_mm256_permute2f128_ps(quad[0], quad[1], 0x20), _mm256_permute2f128_ps(quad[0], quad[1], 0x31));
#else
    return vpaddq_f32(vpaddq_f32(v[0], v[1]), vpaddq_f32(v[2], v[3]));
#endif
}

/* What n numbers take, in q8_0 a multiple of 32. */
static ALWAYS_INLINE int64_t bytes_of(int64_t n, int32_t dtype)
{
    return dtype == MM_F32 ? 4 * n : dtype == MM_BF16 ? 2 * n : n / MMI_BLOCK * (2 + MMI_BLOCK);
}

/* Numbers p and on of an array. */
static ALWAYS_INLINE vf numbers(const unsigned char *array, int64_t p, int32_t dtype)
{
    if (dtype == MM_F32)
        return vf_load((const float *)(const void *)array + p);
    if (dtype == MM_BF16)
        return load_words(array + 2 * p, dtype);
    const unsigned char *block = array + bytes_of(p, dtype);
    int16_t scale;
    memcpy(&scale, block, sizeof scale);
    return vf_mul(vf_load_bytes(block + 2 + p % MMI_BLOCK), vf_set_f16(scale));
}

/* Numbers of two bytes come in pairs, as a vector's bits: to take all even ones and then all odd ones is one
 * instruction for a vector of each, half of what it takes to widen them in their order. So queries and sums lie
 * likewise. */
static ALWAYS_INLINE vf half_of(const unsigned char *array, int64_t p, int half, vf pairs, int32_t dtype)
{
    if (dtype == MM_BF16)
        return half == 0 ? vf_even_bf16(pairs) : vf_odd_bf16(pairs);
    return numbers(array, p + half * VL, dtype);
}

static ALWAYS_INLINE vf pairs_at(const unsigned char *array, int64_t p, int32_t dtype)
{
    vf pairs = vf_zero();
    if (dtype == MM_BF16)
        memcpy(&pairs, array + bytes_of(p, dtype), sizeof pairs);
    return pairs;
}

/* n numbers, a multiple of 2 * VL. */
static NOINLINE void split(float *to, const float *from, int64_t n)
{
    for (int64_t i = 0; i < n; i += 2 * VL) {
        vf a = vf_load(from + i), b = vf_load(from + i + VL);
        vf_store(to + i, vf_evens(a, b));
        vf_store(to + i + VL, vf_odds(a, b));
    }
}

/* Scores that are not worth a tree. Not inlined: it would stand in nine places. */
static NOINLINE void scores_by_rows(float *s, int64_t lds, const float *q, const unsigned char *k, int64_t ldk,
                                    int32_t dtype, int64_t M, int64_t N, int64_t D)
{
    if (dtype != MM_Q8_0) {
        SIMD(gemv_rows)(s, lds, q, D, k, dtype, ldk, M, N, D, 0);
        return;
    }
    float room[MMI_FEW_WIDTH];
    for (int64_t j = 0; j < N && M > 0; j++) {
        SIMD(widen_blocks)(room, k + j * bytes_of(ldk, dtype), dtype, D);
        SIMD(gemv_rows)(s + j, lds, q, D, room, MM_F32, D, M, 1, D, 0);
    }
}

/* The products of `rows` rows of q and `side` keys, ROWS * SIDE of them. Lines of `ahead` come from beyond the
 * second-level cache meanwhile, which takes as long; the first level has room for both. */
static ALWAYS_INLINE void scores_of(float *s, int64_t lds, const float *q, const unsigned char *k, int64_t distance,
                                    int32_t dtype, const int rows, const int side, int64_t D,
                                    const unsigned char *ahead)
{
    vf sum[TREES * VL];
    UNROLL
    for (int i = 0; i < ROWS * SIDE; i++)
        sum[i] = vf_zero();
    const int halves = dtype == MM_BF16 ? 2 : 1;
    for (int64_t p = 0; p < D; p += halves * VL) {
        vf pairs[2 * SIDE];
        UNROLL
        for (int j = 0; j < side; j++)
            pairs[j] = pairs_at(k + j * distance, p, dtype);
        UNROLL
        for (int half = 0; half < halves; half++) {
            vf query[ROWS];
            UNROLL
            for (int i = 0; i < rows; i++)
                query[i] = vf_load(q + i * D + p + half * VL);
            UNROLL
            for (int j = 0; j < side; j++) {
                vf key = half_of(k + j * distance, p, half, pairs[j], dtype);
                if (half == 0)
                    __builtin_prefetch(ahead + j * distance + bytes_of(p, dtype), 0, 3);
                UNROLL
                for (int i = 0; i < rows; i++)
                    sum[i * side + j] = vf_fma(query[i], key, sum[i * side + j]);
            }
        }
    }
    float all[TREES * VL];
    UNROLL
    for (int i = 0; i < TREES; i++)
        vf_store(all + i * VL, sums_of(sum + i * VL));
    UNROLL
    for (int i = 0; i < rows; i++)
        memcpy(s + i * lds, all + i * side, (size_t)side * sizeof *s);
}

/* Of `rows` rows of q. */
static ALWAYS_INLINE void scores_of_rows(float *s, int64_t lds, const float *q, const unsigned char *k, int64_t ldk,
                                         int32_t dtype, const int rows, int64_t N, int64_t D,
                                         const unsigned char *ahead)
{
    const int64_t distance = bytes_of(ldk, dtype);
    const int side = ROWS * SIDE / rows;
    float room[ROWS * MMI_FEW_WIDTH];
    const float *arranged = q;
    if (dtype == MM_BF16) {
        split(room, q, rows * D);
        arranged = room;
    }
    int64_t j = 0;
    for (; j + side <= N; j += side)
        scores_of(s + j, lds, arranged, k + j * distance, distance, dtype, rows, side, D, ahead + j * distance);
    if (j < N)
        scores_by_rows(s + j, lds, q, k + j * distance, ldk, dtype, rows, N - j, D);
}

/* ROWS rows of q at a time, and half as many; what is left of them is not worth a tree. */
static ALWAYS_INLINE void scores(float *s, int64_t lds, const float *q, const unsigned char *k, int64_t ldk,
                                 int32_t dtype, int64_t M, int64_t N, int64_t D, const unsigned char *ahead)
{
    int64_t i = 0;
    for (; i + ROWS <= M; i += ROWS)
        scores_of_rows(s + i * lds, lds, q + i * D, k, ldk, dtype, ROWS, N, D, ahead);
    for (; i + ROWS / 2 <= M; i += ROWS / 2)
        scores_of_rows(s + i * lds, lds, q + i * D, k, ldk, dtype, ROWS / 2, N, D, ahead);
    scores_by_rows(s + i * lds, lds, q + i * D, k, ldk, dtype, M - i, N, D);
}

void SIMD(few_scores)(float *s, int64_t lds, const float *q, const void *k, int32_t dtype, int64_t ldk, int64_t M,
                      int64_t N, int64_t D, const void *ahead)
{
    if (!ahead)
        ahead = k; /* which is here already: one loop for both */
    if (dtype == MM_F32)
        scores(s, lds, q, k, ldk, MM_F32, M, N, D, ahead);
    else if (dtype == MM_BF16)
        scores(s, lds, q, k, ldk, MM_BF16, M, N, D, ahead);
    else
        scores(s, lds, q, k, ldk, MM_Q8_0, M, N, D, ahead);
}

/* Vectors of out, of each row: enough sums to wait for none. VECS are 32 numbers at most, of which a head has a
 * multiple; several rows have MOST_VECS where a head has so many. */
#define MOST_VECS 4
#if ISA_IS_AVX512
#define VECS 2
#else
#define VECS 4
#endif

/* `vecs` vectors of each of `rows` rows of out, from column c on, which may lie within a block. */
static ALWAYS_INLINE void values_of(float *out, const float *s, int64_t lds, const unsigned char *v, int64_t distance,
                                    int32_t dtype, const int rows, const int vecs, int64_t c, int64_t N, int64_t D,
                                    const unsigned char *ahead)
{
    vf sum[ROWS * MOST_VECS];
    UNROLL
    for (int i = 0; i < rows; i++) {
        UNROLL
        for (int j = 0; j < vecs; j += 2) {
            vf a = vf_load(out + i * D + c + j * VL), b = vf_load(out + i * D + c + (j + 1) * VL);
            sum[i * vecs + j] = dtype == MM_BF16 ? vf_evens(a, b) : a;
            sum[i * vecs + j + 1] = dtype == MM_BF16 ? vf_odds(a, b) : b;
        }
    }
    for (int64_t n = 0; n < N; n++, v += distance, ahead += distance) {
        vf value[MOST_VECS];
        UNROLL
        for (int j = 0; j < vecs; j++) {
            value[j] = half_of(v, c + j / 2 * 2 * VL, j % 2, pairs_at(v, c + j / 2 * 2 * VL, dtype), dtype);
            if (j % 2 == 0 || dtype != MM_BF16)
                __builtin_prefetch(ahead + bytes_of(c + j * VL, dtype), 0, 3);
        }
        UNROLL
        for (int i = 0; i < rows; i++) {
            vf weight = vf_set(s[i * lds + n]);
            UNROLL
            for (int j = 0; j < vecs; j++)
                sum[i * vecs + j] = vf_fma(weight, value[j], sum[i * vecs + j]);
        }
    }
    UNROLL
    for (int i = 0; i < rows; i++) {
        UNROLL
        for (int j = 0; j < vecs; j += 2) {
            vf a = sum[i * vecs + j], b = sum[i * vecs + j + 1];
            vf_store(out + i * D + c + j * VL, dtype == MM_BF16 ? vf_zip_low(a, b) : a);
            vf_store(out + i * D + c + (j + 1) * VL, dtype == MM_BF16 ? vf_zip_high(a, b) : b);
        }
    }
}

static ALWAYS_INLINE void values_of_rows(float *out, const float *s, int64_t lds, const unsigned char *v,
                                         int64_t distance, int32_t dtype, const int rows, int64_t N, int64_t D,
                                         const unsigned char *ahead)
{
    int64_t c = 0;
#if MOST_VECS > VECS
    for (; rows > 1 && c + MOST_VECS * VL <= D; c += MOST_VECS * VL)
        values_of(out, s, lds, v, distance, dtype, rows, MOST_VECS, c, N, D, ahead);
#endif
    for (; c < D; c += VECS * VL)
        values_of(out, s, lds, v, distance, dtype, rows, VECS, c, N, D, ahead);
}

static ALWAYS_INLINE void values(float *out, const float *s, int64_t lds, const unsigned char *v, int64_t distance,
                                 int32_t dtype, int64_t M, int64_t N, int64_t D, const unsigned char *ahead)
{
    int64_t i = 0;
    for (; i + ROWS <= M; i += ROWS)
        values_of_rows(out + i * D, s + i * lds, lds, v, distance, dtype, ROWS, N, D, ahead);
#if ROWS > 2
    for (; i + ROWS / 2 <= M; i += ROWS / 2)
        values_of_rows(out + i * D, s + i * lds, lds, v, distance, dtype, ROWS / 2, N, D, ahead);
#endif
    for (; i < M; i++)
        values_of_rows(out + i * D, s + i * lds, lds, v, distance, dtype, 1, N, D, ahead);
}

void SIMD(few_values)(float *out, const float *s, int64_t lds, const void *v, int32_t dtype, int64_t ldv, int64_t M,
                      int64_t N, int64_t D, const void *ahead)
{
    if (!ahead)
        ahead = v; /* as above */
    if (dtype == MM_F32)
        values(out, s, lds, v, bytes_of(ldv, dtype), MM_F32, M, N, D, ahead);
    else if (dtype == MM_BF16)
        values(out, s, lds, v, bytes_of(ldv, dtype), MM_BF16, M, N, D, ahead);
    else
        values(out, s, lds, v, bytes_of(ldv, dtype), MM_Q8_0, M, N, D, ahead);
}
