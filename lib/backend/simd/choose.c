/* Choosing among many numbers. */
#include <math.h>

#include "backend/c/portable.h"
#include "backend/simd/table.h"

float SIMD(largest)(const float *x, int64_t n)
{
    vf lowest = vf_set(-INFINITY), a = lowest, b = lowest;
    int64_t i = 0;
    for (; i + 2 * VL <= n; i += 2 * VL) {
        a = vf_max(a, vf_load(x + i));
        b = vf_max(b, vf_load(x + i + VL));
    }
    for (; i < n; i += VL)
        a = vf_max(a, vf_get_or(x + i, n - i, lowest));
    return vf_largest(vf_max(a, b));
}

/* 0 where x is below `least`. */
static ALWAYS_INLINE vf from(vf p, vf x, vf least)
{
    return vf_select(vf_below(x, least), vf_zero(), p);
}

/* As weigh_from(), of fewer than 2^24, which floats count exactly. */
static double weigh_some(const float *p, const float *x, float least, int64_t n, int64_t *count)
{
    const vf limit = vf_set(least), one = vf_set(1), nothing = vf_set(-INFINITY);
    vd even = vd_zero(), odd = vd_zero();
    vf counts = vf_zero();
    int64_t i = 0;
    for (; i + 2 * VL <= n; i += 2 * VL) {
        vf first = vf_load(x + i), second = vf_load(x + i + VL);
        even = vd_add(even, from(vf_load(p + i), first, limit));
        odd = vd_add(odd, from(vf_load(p + i + VL), second, limit));
        counts = vf_add(counts, vf_add(from(one, first, limit), from(one, second, limit)));
    }
    *count += (int64_t)vf_sum(counts);
    for (int64_t j = i; j < n; j++)
        *count += x[j] >= least;
    for (; i < n; i += VL)
        even = vd_add(even, from(vf_get(p + i, n - i), vf_get_or(x + i, n - i, nothing), limit));
    return vd_sum(even) + vd_sum(odd);
}

#define SOME (1 << 22)

double SIMD(weigh_from)(const float *p, const float *x, float least, int64_t n, int64_t *count)
{
    double sum = 0;
    *count = 0;
    for (int64_t i = 0; i < n; i += SOME)
        sum += weigh_some(p + i, x + i, least, n - i < SOME ? n - i : SOME, count);
    return sum;
}

double SIMD(keep_from)(float *p, const float *x, float least, float least_p, int64_t n)
{
    const vf limit = vf_set(least), limit_p = vf_set(least_p);
    vd sum = vd_zero();
    for (int64_t i = 0; i < n; i += VL) {
        vf all = vf_get(p + i, n - i), kept = from(from(all, all, limit_p), vf_get(x + i, n - i), limit);
        vf_put(p + i, n - i, kept);
        sum = vd_add(sum, kept);
    }
    return vd_sum(sum);
}

#if ISA_IS_X86

/* Bit i: x[i] is in [low, high]. */
static ALWAYS_INLINE uint32_t between(vf x, vf low, vf high)
{
#if ISA_IS_AVX512
    return (uint32_t)(_mm512_cmp_ps_mask(x, low, _CMP_GE_OQ) & _mm512_cmp_ps_mask(x, high, _CMP_LE_OQ));
#else
    __m256 both = _mm256_and_ps(_mm256_cmp_ps(x, low, _CMP_GE_OQ), _mm256_cmp_ps(x, high, _CMP_LE_OQ));
    return (uint32_t)_mm256_movemask_ps(both);
#endif
}

/* Those of i to i + VL - 1 whose bits are set; how many. May write VL numbers. */
static ALWAYS_INLINE int64_t put_indices(int32_t *at, int64_t i, uint32_t bits)
{
#if ISA_IS_AVX512
    const __m512i first = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m512i all = _mm512_add_epi32(first, _mm512_set1_epi32((int32_t)i));
    _mm512_storeu_si512(at, _mm512_maskz_compress_epi32((__mmask16)bits, all));
    return __builtin_popcount(bits);
#else
    int64_t count = 0;
    for (; bits; bits &= bits - 1)
        at[count++] = (int32_t)i + __builtin_ctz(bits);
    return count;
#endif
}

int64_t SIMD(find)(int32_t *at, const float *x, float low, float high, int64_t n, int64_t most)
{
    const vf from_here = vf_set(low), to_here = vf_set(high);
    int64_t count = 0, i = 0;
    for (; i + VL <= n && count <= most; i += VL)
        count += put_indices(at + count, i, between(vf_load(x + i), from_here, to_here));
    for (; i < n && count <= most; i++)
        if (x[i] >= low && x[i] <= high)
            at[count++] = (int32_t)i;
    return count;
}

#else

int64_t SIMD(find)(int32_t *at, const float *x, float low, float high, int64_t n, int64_t most)
{
    return mmi_c_find(at, x, low, high, n, most);
}

#endif
