/* What the kernel tests share: every table that can run here, memory whose end is the end of the world, comparisons. */
#ifndef MM_TESTS_BACKEND_TABLES_H
#define MM_TESTS_BACKEND_TABLES_H

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "backend/kernels.h"
#include "support.h"

/* One table for each instruction set that this build and processor have, portable C first, and two of AVX-512's, for
 * either maker of processors; how many. */
#define MOST_TABLES 12
int all_tables(mmi_kernels tables[MOST_TABLES]);

/* for (each table k) … */
#define EACH_TABLE(k)                                                                                                  \
    mmi_kernels table_list[MOST_TABLES];                                                                               \
    const int table_count = all_tables(table_list);                                                                    \
    for (const mmi_kernels *k = table_list; k < table_list + table_count; k++)

/* `bytes` of memory right before a page that can't be touched, so that reading or writing beyond the end crashes. What
 * is before it is filled with a pattern that edge_check() looks at. A slot holds one array at a time. */
#define EDGE_SLOTS 10
void *edge_place(int slot, int64_t bytes);
void edge_check(void);

static inline float *edge_floats(int slot, int64_t n)
{
    return edge_place(slot, n * (int64_t)sizeof(float));
}

/* The same with random contents, uniform in ±scale. */
float *edge_random(int slot, int64_t n, test_rng *rng, float scale);

/* Panels of `width` for `count` rows or columns, as large as promised, and full of NaNs. */
float *panels_of(const mmi_kernels *k, int slot, int64_t count, int64_t width, int64_t K, int32_t round);

/* C[M, N] = from + op(A) · op(B) (from NULL: 0) as gemm.c does it, alone: packed and multiplied, gemm_depth of K at a
 * time, with panels in slots 8 and 9. Element (i, p) of op(A) at a + i * ars + p * acs; `in_place`: not packed, acs
 * being 1, where the table can do without. */
void multiply_by_panels(const mmi_kernels *k, float *c, int64_t ldc, const float *a, int64_t ars, int64_t acs,
                        const float *b, int64_t brs, int64_t bcs, int64_t M, int64_t N, int64_t K, const float *from,
                        int32_t round, int in_place);

/* y[M, N] = x[M, K] · W[N, K]ᵀ of rows that are made for gemm_rows() in slot 7, which is all they need there. */
void multiply_rows(const mmi_kernels *k, float *y, int64_t ldy, const float *x, int64_t ldx, const void *w,
                   int32_t dtype, int64_t ldw, int64_t M, int64_t N, int64_t K, int32_t round);

/* ck_assert_msg() for inner loops: libcheck notes every assertion it passes, at the price of a system call. */
#define expect(condition, ...)                                                                                         \
    do {                                                                                                               \
        if (!(condition))                                                                                              \
            ck_abort_msg(__VA_ARGS__);                                                                                 \
    } while (0)

/* got = want within `tolerance`; NaN only as NaN, infinity only as itself. */
#define ck_near(got, want, tolerance, k, what, i)                                                                      \
    do {                                                                                                               \
        double near_got = (got), near_want = (want);                                                                   \
        if (!is_near(near_got, near_want, tolerance))                                                                  \
            ck_abort_msg("%s %s [%lld] is %.9g, not %.9g (± %.3g)", (k)->name, what, (long long)(i), near_got,         \
                         near_want, (double)(tolerance));                                                              \
    } while (0)
int is_near(double got, double want, double tolerance);

/* Lengths at which vector code breaks: 0, 1, around each power of two up to 128, primes. */
extern const int64_t awkward[];
extern const int awkward_count;

/* Half the distance from 1 to the next float: what one rounding can cost. */
#define ROUNDING 5.97e-8

/* Of a product with |a|, |b| ≤ 1: K products and what was there before are at most K + 1 together, and each of K + 1
 * additions may round; a long sum rounds up and down alike. */
static inline double product_error(int64_t K)
{
    return ROUNDING * (double)(K + 1) * (K < 64 ? (double)(K + 1) : 64);
}

static inline uint32_t bits_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static inline float float_of(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

#endif
