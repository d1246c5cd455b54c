/* Products of rounded operands: every table against double precision and, number by number, against portable rounding.
 */
#include <stdlib.h>
#include <string.h>

#include "backend/c/portable.h"
#include "backend/gemm.h"
#include "backend/product.h"
#include "backend/strips.h"
#include "../nn/exec.h"
#include "tables.h"

static const int32_t types[] = { MM_BF16, MM_F16 };
#define TYPES ((int)(sizeof types / sizeof types[0]))

/* --- Rounding, seen through a product with 1 --- */

/* Where rounding can go wrong: ties to even and their neighbours, the largest numbers of both types, what lies beyond
 * them, subnormals of both and what lies below them, infinities, NaNs whose payload is all in the lost bits. */
static const uint32_t hard[] = {
    0x00000000, 0x80000000, 0x3F800000, 0x3F808000, 0x3F807FFF, 0x3F808001, 0x3F818000, 0x3F801000, 0x3F800FFF,
    0x3F801001, 0x3F803000, 0x477FE000, 0x477FEFFF, 0x477FF000, 0x47800000, 0xC77FF000, 0x7F7F0000, 0x7F7F7FFF,
    0x7F7F8000, 0x7F7FFFFF, 0xFF7FFFFF, 0x38800000, 0x387FFFFF, 0x387FE000, 0x33800000, 0x33000000, 0x33000001,
    0x32FFFFFF, 0x33C00000, 0xB3C00000, 0x00800000, 0x7F800000, 0xFF800000, 0x7F800001, 0xFF800001, 0x7FC00000,
};
#define HARD ((int64_t)(sizeof hard / sizeof hard[0]))

static float number(int64_t i, test_rng *rng)
{
    return i < HARD ? float_of(hard[i]) : float_of(rng_next(rng));
}

static void expect_rounded(float got, float x, int32_t type, const mmi_kernels *k, const char *what)
{
    float want = mmi_c_round(x, type);
    bool same = bits_of(got) == bits_of(want) || (got == 0 && want == 0) || (got != got && want != want);
    expect(same, "%s %s rounds %a to %a, not to %a of %s", k->name, what, (double)x, (double)got, (double)want,
           mm_dtype_name(type));
}

/* Numbers that a multiplication by 1 could flush say nothing about rounding. */
static bool is_tame(float x)
{
    return x != x || x == 0 || fabsf(x) >= 0x1p-126f;
}

#define NUMBERS 500

START_TEST(every_table_rounds_as_portable_c_does)
{
    test_rng rng = { 1 };
    EACH_TABLE (k)
        for (int t = 0; t < TYPES; t++)
            for (int64_t first = 0; first < NUMBERS; first += 40) {
                float *x = edge_floats(0, 40), *one = edge_floats(1, 1), *y = edge_floats(2, 40);
                one[0] = 1;
                for (int64_t i = 0; i < 40; i++) {
                    x[i] = number(first + i, &rng);
                    if (!is_tame(x[i]))
                        x[i] = 1;
                }
                multiply_by_panels(k, y, 1, x, 1, 1, one, 1, 1, 40, 1, 1, NULL, types[t], 0);
                for (int64_t i = 0; i < 40; i++)
                    expect_rounded(y[i], x[i], types[t], k, "A in rows");
                multiply_by_panels(k, y, 1, x, 1, 40, one, 1, 1, 40, 1, 1, NULL, types[t], 0);
                for (int64_t i = 0; i < 40; i++)
                    expect_rounded(y[i], x[i], types[t], k, "A in columns");
                multiply_by_panels(k, y, 40, one, 1, 1, x, 40, 1, 1, 40, 1, NULL, types[t], 0);
                for (int64_t i = 0; i < 40; i++)
                    expect_rounded(y[i], x[i], types[t], k, "B in rows");
                multiply_by_panels(k, y, 40, one, 1, 1, x, 1, 1, 1, 40, 1, NULL, types[t], 0);
                for (int64_t i = 0; i < 40; i++)
                    expect_rounded(y[i], x[i], types[t], k, "B in columns");
                multiply_rows(k, y, 40, one, 1, x, MM_F32, 1, 1, 40, 1, types[t]);
                for (int64_t i = 0; i < 40; i++)
                    expect_rounded(y[i], x[i], types[t], k, "weights");
                multiply_rows(k, y, 1, x, 1, one, MM_F32, 1, 40, 1, 1, types[t]);
                for (int64_t i = 0; i < 40; i++)
                    expect_rounded(y[i], x[i], types[t], k, "few rows");
                if (k->gemv_row_rounded && types[t] == MM_BF16) {
                    for (int64_t i = 0; i < 40; i++)
                        y[i] = x[i] + 1;
                    k->gemv_row_rounded(y, one, x, MM_F32, 1, 40, 1, 0);
                    for (int64_t i = 0; i < 40; i++)
                        expect_rounded(y[i], x[i], types[t], k, "weights for one row");
                }
                edge_check();
            }
}
END_TEST

START_TEST(float16_overflows_to_infinity_and_keeps_its_subnormals)
{
    ck_assert_float_eq(mmi_c_round(65504.0f, MM_F16), 65504.0f);
    ck_assert_float_eq(mmi_c_round(65519.0f, MM_F16), 65504.0f);
    ck_assert(isinf(mmi_c_round(65520.0f, MM_F16)));
    ck_assert(mmi_c_round(-1e6f, MM_F16) < 0 && isinf(mmi_c_round(-1e6f, MM_F16)));
    ck_assert_float_eq(mmi_c_round(0x1.8p-24f, MM_F16), 0x1p-23f);
    ck_assert_float_eq(mmi_c_round(0x1p-24f, MM_F16), 0x1p-24f);
    ck_assert_float_eq(mmi_c_round(0x1p-25f, MM_F16), 0);
    ck_assert_float_eq(mmi_c_round(65520.0f, MM_BF16), 65536.0f);
    ck_assert_float_eq(mmi_c_round(0x1.01p0f, MM_BF16), 1);
    ck_assert_float_eq(mmi_c_round(0x1.03p0f, MM_BF16), 0x1.04p0f);
    ck_assert(isnan(mmi_c_round(float_of(0x7F800001), MM_BF16)) && isnan(mmi_c_round(float_of(0x7F800001), MM_F16)));
}
END_TEST

/* --- Sums, which are float32; their terms are exact --- */

enum { ROWS, COLUMNS, SCATTERED, LAYOUTS };

/* How a matrix lies; its floats. */
static int64_t lay_out(int64_t *rs, int64_t *cs, int64_t rows, int64_t cols, int layout)
{
    *rs = layout == ROWS ? cols + 1 : layout == COLUMNS ? 1 : 2 * cols + 1;
    *cs = layout == ROWS ? 1 : layout == COLUMNS ? rows + 1 : 2;
    return rows > 0 && cols > 0 ? (rows - 1) * *rs + (cols - 1) * *cs + 1 : 0;
}

static void try_panels(const mmi_kernels *k, int64_t M, int64_t N, int64_t K, int a_layout, int b_layout, int32_t type,
                       test_rng *rng)
{
    int64_t ars, acs, brs, bcs, ldc = N + 2, start = rng_between(rng, 0, 2);
    float *a = edge_random(0, lay_out(&ars, &acs, M, K, a_layout), rng, 1);
    float *b = edge_random(1, lay_out(&brs, &bcs, K, N, b_layout), rng, 1);
    int64_t floats = M > 0 && N > 0 ? (M - 1) * ldc + N : 0;
    float *c = edge_random(2, floats, rng, 1), *before = edge_floats(3, floats);
    memcpy(before, c, (size_t)floats * sizeof *c);
    if (K == 0) /* not asked of panels */
        return;
    const float *from = start == 0 ? NULL : start == 1 ? c : before;
    multiply_by_panels(k, c, ldc, a, ars, acs, b, brs, bcs, M, N, K, from, type, 0);
    for (int64_t i = 0; i < M; i++)
        for (int64_t j = 0; j < N; j++) {
            double want = from ? before[i * ldc + j] : 0;
            for (int64_t p = 0; p < K; p++)
                want += (double)mmi_c_round(a[i * ars + p * acs], type) * mmi_c_round(b[p * brs + j * bcs], type);
            ck_near(c[i * ldc + j], want, product_error(K), k, "gemm_multiply", i * 10000 + j);
        }
    for (int64_t i = 0; i + 1 < M && N > 0; i++)
        for (int64_t j = N; j < ldc; j++)
            expect(c[i * ldc + j] == before[i * ldc + j], "%s wrote between the rows", k->name);
    edge_check();
}

START_TEST(panels_of_every_layout_and_size_are_right)
{
    static const int64_t sizes[] = { 0, 1, 2, 5, 7, 13, 16, 20, 31, 33 };
    test_rng rng = { 2 };
    EACH_TABLE (k)
        for (int m = 0; m < 10; m++)
            for (int n = 0; n < 10; n++)
                for (int layout = 0; layout < LAYOUTS * LAYOUTS; layout++)
                    try_panels(k, sizes[m], sizes[n], sizes[(m + n + layout) % 10], layout % LAYOUTS, layout / LAYOUTS,
                               types[(m + n + layout) % TYPES], &rng);
}
END_TEST

START_TEST(products_deeper_than_a_panel_are_right)
{
    static const int64_t shapes[][3] = { { 97, 33, 384 }, { 96, 513, 20 }, { 193, 17, 515 }, { 13, 41, 1101 } };
    test_rng rng = { 3 };
    EACH_TABLE (k)
        for (int layout = 0; layout < LAYOUTS * LAYOUTS; layout++) {
            const int64_t *s = shapes[layout % 4];
            try_panels(k, s[0], s[1], s[2], layout % LAYOUTS, layout / LAYOUTS, types[layout / 2 % TYPES], &rng);
        }
}
END_TEST

START_TEST(weights_in_bf16_are_multiplied_as_their_numbers_are)
{
    static const int32_t rounds[] = { MM_F32, MM_BF16 };
    test_rng rng = { 167 };
    EACH_TABLE (k)
        for (int round = 0; round < 120; round++) {
            int32_t how = rounds[round % 2];
            int64_t M = rng_between(&rng, 1, 40), N = rng_between(&rng, 1, 70),
                    K = rng_between(&rng, 1, (int)(k->gemm_depth < 90 ? k->gemm_depth : 90));
            int64_t distance = K + rng_between(&rng, 0, 3), n = (N - 1) * distance + K;
            float *x = edge_random(0, M * K, &rng, 2), *numbers = edge_random(1, n, &rng, 2);
            uint16_t *words = edge_place(2, 2 * n);
            if (round % 8 == 0) /* what is not taken apart */
                numbers[rng_between(&rng, 0, (int)n - 1)] = round % 16 ? INFINITY : 0x1p70f;
            k->narrow(words, numbers, MM_BF16, n);
            k->widen(numbers, words, MM_BF16, n);
            float *a = panels_of(k, 3, M, k->gemm_a_rows, K, how), *b = panels_of(k, 4, N, k->gemm_b_cols, K, how);
            float *want = edge_floats(5, M * N), *got = edge_floats(6, M * N);
            k->gemm_pack_a(a, x, K, 1, M, K, how);
            k->gemm_pack_b(b, numbers, distance, 1, N, K, how);
            k->gemm_multiply(want, N, a, 0, b, M, N, K, NULL, how);
            memset(b, 0xFF, sizeof *b * (size_t)k->gemm_panel(k->gemm_b_cols, K, how));
            k->gemm_pack_bf16(b, words, distance, N, K, how);
            k->gemm_multiply(got, N, a, 0, b, M, N, K, NULL, how);
            edge_check();
            for (int64_t at = 0; at < M * N; at++)
                expect(got[at] == want[at] || (isnan(got[at]) && isnan(want[at])),
                       "%s: %lld x %lld x %lld: [%lld] is %g, not %g", k->name, (long long)M, (long long)N,
                       (long long)K, (long long)at, (double)got[at], (double)want[at]);
        }
}
END_TEST

START_TEST(weights_in_blocks_are_laid_out_as_their_rounded_numbers_are)
{
    static const int32_t dtypes[] = { MM_Q8_0, MM_Q4_0 };
    test_rng rng = { 168 };
    EACH_TABLE (k)
        for (int round = 0; round < 120 && k->round_blocks > 0; round++) {
            int32_t dtype = dtypes[round % 2];
            int64_t N = rng_between(&rng, 1, 70), K = MMI_BLOCK * rng_between(&rng, 1, 16);
            int64_t first = MMI_BLOCK * rng_between(&rng, 0, 2), cols = first + K + MMI_BLOCK * rng_between(&rng, 0, 2);
            int64_t n = N * cols;
            float *numbers = edge_random(0, n, &rng, 2);
            unsigned char *blocks = edge_place(1, (int64_t)mmi_dtype_bytes(dtype, n));
            unsigned char *w = edge_place(6, (int64_t)mmi_strips_bytes(dtype, N, cols));
            if (round % 8 < 2)
                numbers[rng_between(&rng, 0, (int)n - 1)] = INFINITY;
            k->narrow(blocks, numbers, dtype, n);
            k->widen(numbers, blocks, dtype, n);
            mmi_strips_pack(w, blocks, dtype, N, cols);
            float *want = panels_of(k, 2, N, k->gemm_b_cols, K, MM_BF16);
            float *got = panels_of(k, 3, N, k->gemm_b_cols, K, MM_BF16);
            const size_t bytes = (size_t)k->gemm_panel(round_up(N, k->gemm_b_cols), K, MM_BF16) * sizeof *want;
            memset(want, 0, bytes);
            memset(got, 0, bytes);
            k->gemm_pack_b(want, numbers + first, cols, 1, N, K, MM_BF16);
            k->gemm_pack_blocks(got, w, dtype, cols, first, N, K);
            edge_check();
            if (round % 8 >= 2) { /* NaNs may differ in their bits */
                expect(memcmp(got, want, bytes) == 0, "%s, %s: %lld x %lld", k->name, mm_dtype_name(dtype),
                       (long long)N, (long long)K);
                continue;
            }
            float one[512], *a = panels_of(k, 4, 1, k->gemm_a_rows, K, MM_BF16), *y = edge_floats(5, N);
            for (int64_t p = 0; p < K; p++)
                one[p] = 1;
            k->gemm_pack_a(a, one, K, 1, 1, K, MM_BF16);
            k->gemm_multiply(y, N, a, 0, got, 1, N, K, NULL, MM_BF16);
            for (int64_t j = 0; j < N; j++) {
                bool is_nan = false;
                for (int64_t p = 0; p < K; p++)
                    is_nan |= isnan(numbers[j * cols + first + p]);
                expect(isnan(y[j]) == is_nan, "%s, %s: column %lld is %g", k->name, mm_dtype_name(dtype), (long long)j,
                       (double)y[j]);
            }
        }
}
END_TEST

/* W's rows as they lie against few rows, or more, of a dtype's weights. */
static void check_few_rows(const mmi_kernels *k, int32_t dtype, int32_t type, int64_t M, int64_t N, int64_t K,
                           test_rng *rng)
{
    int64_t ldx = K + 1, ldw = K + 2, elements = N > 0 ? (N - 1) * ldw + K : 0;
    float *x = edge_random(0, M > 0 ? (M - 1) * ldx + K : 0, rng, 1), *y = edge_floats(2, M * N);
    float *exact = edge_random(3, elements, rng, 1);
    unsigned char *w = edge_place(1, elements * (int64_t)mm_dtype_size(dtype));
    k->narrow(w, exact, dtype, elements);
    k->widen(exact, w, dtype, elements);
    const bool alone = M == 1 && type == MM_BF16 && dtype != MM_F16 && k->gemv_row_rounded;
    for (int way = 0; way < 1 + alone; way++) {
        if (way == 0)
            multiply_rows(k, y, N, x, ldx, w, dtype, ldw, M, N, K, type);
        else
            k->gemv_row_rounded(y, x, w, dtype, ldw, N, K, N % 2 * 2048);
        for (int64_t i = 0; i < M * N; i++) {
            double want = 0;
            for (int64_t p = 0; p < K; p++)
                want += (double)mmi_c_round(x[i / N * ldx + p], type) * mmi_c_round(exact[i % N * ldw + p], type);
            ck_near(y[i], want, product_error(K), k, way ? "gemv_row_rounded" : "gemm_rows", i);
            y[i] = NAN;
        }
        edge_check();
    }
}

START_TEST(few_rows_are_right_for_weights_of_every_dtype)
{
    static const int64_t some[] = { 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 13, MMI_MOST_ROWS };
    test_rng rng = { 4 };
    EACH_TABLE (k)
        for (int32_t dtype = MM_F32; dtype <= MM_F16; dtype++)
            for (size_t m = 0; m < sizeof some / sizeof *some; m++)
                for (int round = 0; round < 8; round++)
                    check_few_rows(k, dtype, types[round % TYPES], some[m], rng_between(&rng, 0, 11),
                                   awkward[rng_between(&rng, 0, awkward_count - 1)], &rng);
}
END_TEST

/* Around what a kernel has of W at a time: several rows, four, and parts of those. */
START_TEST(few_rows_are_right_however_long)
{
    static const int64_t lengths[] = { 255, 256, 257, 513, 1023, 1024, 1025, 1366, 2047, 2048, 2049, 4097 };
    static const int64_t some[] = { 1, 1, 2, 2, 4, 4, 5, 5, 8, 8 };
    test_rng rng = { 7 };
    EACH_TABLE (k)
        for (int t = 0; t < TYPES; t++)
            for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++)
                for (size_t m = 0; m < sizeof some / sizeof *some; m++)
                    check_few_rows(k, m % 2 ? MM_F32 : types[t], types[t], some[m], 21, lengths[i], &rng);
}
END_TEST

START_TEST(an_operand_beyond_float16_reaches_its_row_and_no_other)
{
    test_rng rng = { 5 };
    EACH_TABLE (k) {
        float *a = edge_random(0, 19 * 11, &rng, 1), *b = edge_random(1, 11 * 37, &rng, 1),
              *c = edge_floats(2, 19 * 37);
        for (int i = 0; i < 11 * 37; i++)
            b[i] = fabsf(b[i]) + 1;
        a[7 * 11 + 10] = 65520;
        a[9 * 11 + 10] = NAN;
        multiply_by_panels(k, c, 37, a, 11, 1, b, 37, 1, 19, 37, 11, NULL, MM_F16, 0);
        for (int i = 0; i < 19 * 37; i++)
            expect(i / 37 == 7 ? isinf(c[i]) :
                   i / 37 == 9 ? isnan(c[i]) :
                                 isfinite(c[i]),
                   "%s: row %d has %g", k->name, i / 37, (double)c[i]);
    }
}
END_TEST

/* --- Whole products --- */

typedef struct runner {
    mmi_exec x;
    const mmi_path *path;
} runner;

static runner runner_of(const mmi_path *path, int threads, int32_t compute)
{
    runner r = { exec_create(path, threads, FOR_PRODUCTS), path };
    r.x.compute = compute;
    return r;
}

/* C of a product of operands that are always the same, on a path or, without a runner, by hand. Yours. */
static float *multiply(const runner *r, int32_t type, int variant, int64_t M, int64_t N, int64_t K)
{
    test_rng rng = { 6 };
    bool ta = variant & 1, tb = variant & 2, accumulate = variant & 4;
    float *a = malloc((size_t)(M * K) * sizeof *a), *b = malloc((size_t)(K * N) * sizeof *b);
    float *c = malloc((size_t)(M * N) * sizeof *c);
    ck_assert(a && b && c);
    rng_fill(&rng, a, (size_t)(M * K), 1);
    rng_fill(&rng, b, (size_t)(K * N), 1);
    rng_fill(&rng, c, (size_t)(M * N), 1);
    if (r)
        mmi_gemm(&r->x, ta, tb, M, N, K, a, ta ? M : K, b, tb ? K : N, accumulate ? c : NULL, c, N);
    for (int64_t i = 0; i < M * N && !r; i++) {
        double sum = accumulate ? c[i] : 0;
        for (int64_t p = 0; p < K; p++)
            sum += (double)mmi_c_round(a[ta ? p * M + i / N : i / N * K + p], type) *
                   mmi_c_round(b[tb ? i % N * K + p : p * N + i % N], type);
        c[i] = (float)sum;
    }
    free(a);
    free(b);
    return c;
}

static const int64_t shapes[][3] = { { 1, 300, 70 },    { 8, 33, 129 },  { 3, 257, 65 },   { 131, 67, 90 },
                                     { 257, 255, 33 }, { 1, 700, 200 }, { 6, 1030, 133 },
                                     { 13, 700, 200 } };
#define SHAPES ((int)(sizeof shapes / sizeof shapes[0]))

START_TEST(products_of_every_kind_are_right_and_have_the_same_bits_on_any_number_of_threads)
{
    for (int t = 0; t < TYPES; t++) {
        float *want[SHAPES * 8];
        for (int i = 0; i < SHAPES * 8; i++)
            want[i] = multiply(NULL, types[t], i % 8, shapes[i / 8][0], shapes[i / 8][1], shapes[i / 8][2]);
        EACH_PATH_OF_FLOATS (path) {
            runner one = runner_of(path, 1, types[t]);
            runner others[] = { runner_of(path, 3, types[t]), runner_of(path, 14, types[t]) };
            for (int i = 0; i < SHAPES * 8; i++) {
                const int64_t *s = shapes[i / 8];
                float *c = multiply(&one, types[t], i % 8, s[0], s[1], s[2]);
                for (int64_t at = 0; at < s[0] * s[1]; at++)
                    ck_near(c[at], want[i][at], product_error(s[2]), path, "mmi_gemm", at);
                for (int o = 0; o < 2; o++) {
                    float *again = multiply(&others[o], types[t], i % 8, s[0], s[1], s[2]);
                    expect(memcmp(c, again, (size_t)(s[0] * s[1]) * sizeof *c) == 0, "%s: %d threads have other bits",
                           path->name, mmi_pool_threads(others[o].x.pool));
                    free(again);
                }
                free(c);
            }
            exec_free(&one.x);
            for (int o = 0; o < 2; o++)
                exec_free(&others[o].x);
        }
        for (int i = 0; i < SHAPES * 8; i++)
            free(want[i]);
    }
}
END_TEST

/* Few rows are rounded where large products have their panels; of numbers beyond that it is such a product. */
START_TEST(a_row_that_panels_have_no_room_for_is_right)
{
    const int64_t K = mmi_gemm_panels() + 5;
    for (int t = 0; t < TYPES; t++) {
        float *want = multiply(NULL, types[t], 2, 2, 1, K);
        EACH_PATH_OF_FLOATS (path) {
            runner r = runner_of(path, 2, types[t]);
            float *c = multiply(&r, types[t], 2, 2, 1, K);
            for (int64_t i = 0; i < 2; i++)
                ck_near(c[i], want[i], product_error(K), path, "mmi_gemm", i);
            free(c);
            exec_free(&r.x);
        }
        free(want);
    }
}
END_TEST

START_TEST(openblas_has_no_part_in_rounded_products)
{
    const mmi_path *blas = mmi_path_find("openblas"), *own = mmi_path_get(0);
    for (int32_t i = 0; blas && i < mmi_path_count(); i++)
        if (!mmi_path_get(i)->blas)
            own = mmi_path_get(i);
    for (int t = 0; t < TYPES && blas; t++) {
        runner with = runner_of(blas, 1, types[t]), without = runner_of(own, 1, types[t]);
        float *a = multiply(&with, types[t], 1, 131, 67, 90), *b = multiply(&without, types[t], 1, 131, 67, 90);
        ck_assert_int_eq(memcmp(a, b, 131 * 67 * sizeof *a), 0);
        free(a);
        free(b);
        exec_free(&with.x);
        exec_free(&without.x);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("backend/rounded");
    TCase *tests = tcase_create("all");
    tcase_set_timeout(tests, 120);
    tcase_add_test(tests, every_table_rounds_as_portable_c_does);
    tcase_add_test(tests, float16_overflows_to_infinity_and_keeps_its_subnormals);
    tcase_add_test(tests, panels_of_every_layout_and_size_are_right);
    tcase_add_test(tests, products_deeper_than_a_panel_are_right);
    tcase_add_test(tests, weights_in_bf16_are_multiplied_as_their_numbers_are);
    tcase_add_test(tests, weights_in_blocks_are_laid_out_as_their_rounded_numbers_are);
    tcase_add_test(tests, few_rows_are_right_for_weights_of_every_dtype);
    tcase_add_test(tests, few_rows_are_right_however_long);
    tcase_add_test(tests, an_operand_beyond_float16_reaches_its_row_and_no_other);
    tcase_add_test(tests, products_of_every_kind_are_right_and_have_the_same_bits_on_any_number_of_threads);
    tcase_add_test(tests, a_row_that_panels_have_no_room_for_is_right);
    tcase_add_test(tests, openblas_has_no_part_in_rounded_products);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
