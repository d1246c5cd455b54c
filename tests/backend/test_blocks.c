/* Numbers in blocks: what they round to, what comes back, and products with them, on every table. */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "backend/c/portable.h"
#include "backend/gemm.h"
#include "backend/strips.h"
#include "../nn/exec.h"
#include "tables.h"

static const int32_t dtypes[] = { MM_Q8_0, MM_Q4_0 };
#define EACH_DTYPE(dtype) for (int32_t at_ = 0, dtype; at_ < 2 && (dtype = dtypes[at_], 1); at_++)

static const char *label_of(const mmi_kernels *k, int32_t dtype)
{
    static char label[64];
    snprintf(label, sizeof label, "%s with %s", k->name, mm_dtype_name(dtype));
    return label;
}

/* The scale of a block, read by a table's own widening of a block whose first number is 1 (8 + 1 in q4_0). */
static double scale_of(const mmi_kernels *k, const unsigned char *block, int32_t dtype)
{
    unsigned char one[34] = { block[0], block[1], dtype == MM_Q8_0 ? 1 : 0x89 };
    float y[MMI_BLOCK];
    if (dtype == MM_Q4_0)
        memset(one + 3, 0x88, 15);
    k->widen(y, one, dtype, MMI_BLOCK);
    return y[0];
}

/* A matrix in blocks, as strips. */
static unsigned char *strips_of(int slot, const void *blocks, int32_t dtype, int64_t rows, int64_t cols)
{
    unsigned char *strips = edge_place(slot, (int64_t)mmi_strips_bytes(dtype, rows, cols));
    mmi_strips_pack(strips, blocks, dtype, rows, cols);
    return strips;
}

START_TEST(strips_lie_as_their_header_says)
{
    test_rng rng = { 50 };
    EACH_DTYPE (dtype)
        for (int round = 0; round < 60; round++) {
            const int64_t rows = rng_between(&rng, 0, 40), cols = MMI_BLOCK * rng_between(&rng, 0, 5);
            const int64_t bytes = (int64_t)mmi_block_bytes(dtype), blocks = cols / MMI_BLOCK;
            unsigned char *from = edge_place(0, rows * blocks * bytes), *back = edge_place(1, rows * blocks * bytes);
            for (int64_t i = 0; i < rows * blocks * bytes; i++)
                from[i] = (unsigned char)rng_between(&rng, 1, 255);
            const unsigned char *strips = strips_of(2, from, dtype, rows, cols);
            int wrong = 0, filled = 0;
            for (int64_t row = 0; row < (rows + MMI_STRIP - 1) / MMI_STRIP * MMI_STRIP; row++) {
                const unsigned char *strip = strips + row / MMI_STRIP * MMI_STRIP * blocks * bytes;
                for (int64_t b = 0; b < blocks; b++) {
                    const int64_t first = b - b % 2, together = first + 1 < blocks ? 2 : 1;
                    const unsigned char *scales = strip + MMI_STRIP * bytes * first + 32 * (b - first);
                    const unsigned char *numbers =
                        strip + MMI_STRIP * bytes * first + 32 * together + MMI_STRIP * (bytes - 2) * (b - first);
                    for (int64_t i = 0; i < bytes; i++) {
                        const int64_t n = i - 2, r = row % MMI_STRIP; /* i < 2: the scale */
                        const unsigned char *at = i < 2 ? scales + 2 * r + i : numbers + n / 4 * 64 + 4 * r + n % 4;
                        if (row < rows)
                            wrong += *at != from[(row * blocks + b) * bytes + i];
                        else
                            filled += *at != (i >= 2 && dtype == MM_Q4_0 ? 0x88 : 0);
                    }
                }
            }
            ck_assert_int_eq(wrong, 0);
            ck_assert_int_eq(filled, 0);
            mmi_strips_unpack(back, strips, dtype, rows, cols);
            ck_assert_int_eq(memcmp(back, from, (size_t)(rows * blocks * bytes)), 0);
            edge_check();
        }
}
END_TEST

START_TEST(blocks_lie_as_gguf_has_them)
{
    /* a half 0.5, then whole numbers */
    unsigned char q8[34] = { 0x00, 0x38, 0, 1, 0xFF, 127, 0x80 }, q4[18] = { 0x00, 0x38, 0x8F, 0x08 };
    EACH_TABLE (k) {
        float y[MMI_BLOCK];
        k->widen(y, q8, MM_Q8_0, MMI_BLOCK);
        ck_assert(y[0] == 0 && y[1] == 0.5f && y[2] == -0.5f && y[3] == 63.5f && y[4] == -64.0f && y[5] == 0);
        k->widen(y, q4, MM_Q4_0, MMI_BLOCK);
        ck_assert(y[0] == 3.5f && y[16] == 0 && y[1] == 0 && y[17] == -4.0f && y[2] == -4.0f && y[31] == -4.0f);
    }
}
END_TEST

START_TEST(what_comes_back_is_within_half_a_step)
{
    test_rng rng = { 41 };
    EACH_TABLE (k)
        EACH_DTYPE (dtype)
            for (int round = 0; round < 40; round++) {
                int64_t n = MMI_BLOCK * rng_between(&rng, 0, 9);
                float *x = edge_random(0, n, &rng, ldexpf(1, rng_between(&rng, -6, 6))), *y = edge_floats(1, n);
                unsigned char *w = edge_place(2, (int64_t)mmi_dtype_bytes(dtype, n));
                k->narrow(w, x, dtype, n);
                k->widen(y, w, dtype, n);
                edge_check();
                for (int64_t i = 0; i < n; i++) {
                    double step = fabs(scale_of(k, w + (size_t)(i / MMI_BLOCK) * mmi_block_bytes(dtype), dtype));
                    /* q4_0 has no 8: what is as large as the largest number, and opposite, is cut to 7 */
                    const bool cut = dtype == MM_Q4_0 && fabs(x[i]) > 7 * step;
                    const double of_the_half = (dtype == MM_Q8_0 ? 128 : 9) * step / 2048; /* the scale was rounded */
                    const double most = (cut ? 1.0 : 0.5) * step + of_the_half;
                    ck_near(y[i], x[i], most, k, mm_dtype_name(dtype), i);
                }
            }
}
END_TEST

/* In a block whose scale is 1, as its largest number says, or -1 in q4_0. */
START_TEST(of_two_that_are_as_near_the_outer_one_is_taken_and_in_q4_0_the_upper_one)
{
    static const float q8_0[][2] = { { 127, 127 }, { 0.5f, 1 },  { -0.5f, -1 }, { 1.5f, 2 },      { -2.5f, -3 },
                                     { 2.49f, 2 }, { 2.51f, 3 }, { -7.4f, -7 }, { 126.5f, 127 }, { -126.5f, -127 } };
    static const float q4_0[][2] = { { -8, -8 },    { 0.5f, 1 },   { -0.5f, 0 },  { 1.5f, 2 },   { -2.5f, -2 },
                                     { 2.49f, 2 },  { 2.51f, 3 },  { -7.4f, -7 }, { -7.5f, -7 }, { -7.6f, -8 },
                                     { 7.49f, 7 },  { 7.5f, 7 },   { 8, 7 } };
    const float(*const cases[])[2] = { q8_0, q4_0, q4_0 };
    static const int counts[] = { sizeof q8_0 / sizeof *q8_0, sizeof q4_0 / sizeof *q4_0, sizeof q4_0 / sizeof *q4_0 };
    EACH_TABLE (k)
        for (int kind = 0; kind < 3; kind++) {
            const float sign = kind == 2 ? -1 : 1;
            const int32_t dtype = kind == 0 ? MM_Q8_0 : MM_Q4_0;
            float x[MMI_BLOCK] = { 0 }, y[MMI_BLOCK];
            unsigned char block[34];
            for (int i = 0; i < counts[kind]; i++)
                x[i] = sign * cases[kind][i][0];
            k->narrow(block, x, dtype, MMI_BLOCK);
            k->widen(y, block, dtype, MMI_BLOCK);
            for (int i = 0; i < MMI_BLOCK; i++) {
                const float want = i < counts[kind] ? sign * cases[kind][i][1] : 0;
                expect(y[i] == want, "%s: %g became %g, not %g", label_of(k, dtype), (double)x[i], (double)y[i],
                       (double)want);
            }
        }
}
END_TEST

START_TEST(whole_numbers_of_a_power_of_two_come_back_exactly)
{
    EACH_TABLE (k)
        EACH_DTYPE (dtype) {
            int most = dtype == MM_Q8_0 ? 127 : 8;
            float x[MMI_BLOCK], y[MMI_BLOCK];
            unsigned char block[34];
            for (int i = 0; i < MMI_BLOCK; i++)
                x[i] = (float)((i * 37) % (2 * most) - most + (dtype == MM_Q8_0)) / 4;
            x[7] = (float)-most / 4;
            k->narrow(block, x, dtype, MMI_BLOCK);
            k->widen(y, block, dtype, MMI_BLOCK);
            for (int i = 0; i < MMI_BLOCK; i++)
                expect(y[i] == x[i], "%s: %g became %g", label_of(k, dtype), (double)x[i], (double)y[i]);
        }
}
END_TEST

/* mmi_quantized_row(MMI_BLOCK) bytes. */
typedef struct one_row {
    int8_t q[MMI_BLOCK];
    float scale;
    int32_t times_8, times_128;
} one_row;

START_TEST(zeros_and_the_tiniest_numbers_become_finite)
{
    static const float values[] = { 0.0f, -0.0f, 1e-45f, 1e-38f, 1e-9f };
    EACH_TABLE (k)
        EACH_DTYPE (dtype)
            for (size_t v = 0; v < sizeof values / sizeof *values; v++) {
                float x[MMI_BLOCK], y[MMI_BLOCK];
                unsigned char block[34];
                one_row row;
                for (int i = 0; i < MMI_BLOCK; i++)
                    x[i] = i % 3 ? values[v] : 0;
                k->narrow(block, x, dtype, MMI_BLOCK);
                k->widen(y, block, dtype, MMI_BLOCK);
                k->quantize(&row, MMI_BLOCK, x, 0, MMI_BLOCK);
                float product = NAN;
                k->gemm_blocks(&product, 1, &row, strips_of(0, block, dtype, 1, MMI_BLOCK), dtype, 1, 1, MMI_BLOCK);
                for (int i = 0; i < MMI_BLOCK; i++)
                    expect(fabsf(y[i]) < 1e-6f, "%s: %g became %g", label_of(k, dtype), (double)x[i], (double)y[i]);
                expect(fabsf(product) < 1e-6f, "%s: a product is %g", label_of(k, dtype), (double)product);
            }
}
END_TEST

START_TEST(a_nan_or_an_infinity_makes_its_block_nan_and_no_other)
{
    static const float bad[] = { NAN, INFINITY, -INFINITY };
    test_rng rng = { 42 };
    EACH_TABLE (k)
        EACH_DTYPE (dtype)
            for (int b = 0; b < 3; b++) {
                float *x = edge_random(0, 96, &rng, 1), y[96];
                unsigned char w[102];
                x[32 + 11 * b] = bad[b];
                k->narrow(w, x, dtype, 96);
                k->widen(y, w, dtype, 96);
                for (int i = 0; i < 96; i++)
                    expect(!isnan(y[i]) == (i / MMI_BLOCK != 1), "%s: number %d is %g", label_of(k, dtype), i,
                           (double)y[i]);
            }
}
END_TEST

/* x [M, K] as quantize() leaves it, checked against the portable table's. */
static unsigned char *quantized(const mmi_kernels *k, int slot, const float *x, int64_t M, int64_t K)
{
    mmi_kernels c;
    mmi_kernels_init_c(&c);
    int64_t size = mmi_quantized_row(K);
    unsigned char *q = edge_place(slot, M * size), *want = malloc((size_t)size + 1);
    for (int64_t i = 0; i < M; i++) {
        const int64_t middle = K / MMI_BLOCK / 3 * MMI_BLOCK; /* in two parts, as whoever makes the row may do it */
        k->quantize(q + i * size, K, x + i * K + middle, middle, K - middle);
        k->quantize(q + i * size, K, x + i * K, 0, middle);
        c.quantize(want, K, x + i * K, 0, K);
        expect(memcmp(q + i * size, want, (size_t)size) == 0, "%s quantizes row %lld of %lld numbers in another way",
               k->name, (long long)i, (long long)K);
    }
    free(want);
    return q;
}

START_TEST(blocks_of_one_row_are_quantized_each_by_itself)
{
    static const float values[] = { 0.0f, 1e-45f, 1e-38f, 1.6e-36f, FLT_MAX, NAN, INFINITY, -INFINITY };
    enum { VALUES = sizeof values / sizeof *values, MOST_BLOCKS = 9 };
    test_rng rng = { 47 };
    EACH_TABLE (k)
        for (int64_t blocks = 1; blocks <= MOST_BLOCKS; blocks++)
            for (int64_t at = 0; at < blocks; at++)
                for (int v = 0; v < VALUES; v++) {
                    float *x = edge_random(0, blocks * MMI_BLOCK, &rng, 1);
                    for (int i = 0; i < MMI_BLOCK; i++)
                        x[at * MMI_BLOCK + i] = i % 5 == v % 5 ? values[v] : 0;
                    quantized(k, 1, x, 1, blocks * MMI_BLOCK);
                    edge_check();
                }
}
END_TEST

/* Row i of what quantize() left, as numbers. */
static void read_back(double *x, const unsigned char *q, int64_t i, int64_t K)
{
    const signed char *numbers = (const signed char *)q + i * mmi_quantized_row(K);
    for (int64_t p = 0; p < K; p++) {
        float scale;
        memcpy(&scale, (const char *)numbers + K + p / MMI_BLOCK * (int64_t)sizeof scale, sizeof scale);
        x[p] = (double)scale * numbers[p];
    }
}

START_TEST(activations_are_quantized_alike_to_half_a_step)
{
    test_rng rng = { 43 };
    EACH_TABLE (k)
        for (int64_t K = 0; K <= 320; K += MMI_BLOCK) {
            float *x = edge_random(0, K, &rng, 3);
            double back[320];
            unsigned char *q = quantized(k, 1, x, 1, K);
            read_back(back, q, 0, K);
            for (int64_t p = 0; p < K; p++)
                ck_near(back[p], x[p], 3 / 127.0 / 2 + 1e-6, k, "quantize", p);
            edge_check();
        }
}
END_TEST

START_TEST(products_are_those_of_the_quantized_numbers)
{
    test_rng rng = { 44 };
    EACH_TABLE (k)
        EACH_DTYPE (dtype)
            for (int64_t M = 0; M <= 9; M++)
                for (int round = 0; round < 12; round++) {
                    int64_t N = rng_between(&rng, 0, 43), K = MMI_BLOCK * rng_between(&rng, 0, 9);
                    int64_t ldy = N + rng_between(&rng, 0, 3);
                    float *x = edge_random(0, M * K, &rng, 2), *exact = edge_random(1, N * K, &rng, 1);
                    unsigned char *w = edge_place(2, (int64_t)mmi_dtype_bytes(dtype, N * K));
                    k->narrow(w, exact, dtype, N * K);
                    k->widen(exact, w, dtype, N * K);
                    unsigned char *q = quantized(k, 3, x, M, K);
                    float *y = edge_random(4, M > 0 ? (M - 1) * ldy + N : 0, &rng, 1);
                    k->gemm_blocks(y, ldy, q, strips_of(7, w, dtype, N, K), dtype, M, N, K);
                    edge_check();
                    double row[9 * MMI_BLOCK];
                    for (int64_t i = 0; i < M; i++) {
                        read_back(row, q, i, K);
                        for (int64_t j = 0; j < N; j++) {
                            double want = 0;
                            for (int64_t p = 0; p < K; p++)
                                want += row[p] * (double)exact[j * K + p];
                            ck_near(y[i * ldy + j], want, 1e-4, k, mm_dtype_name(dtype), i * 100 + j);
                        }
                    }
                }
}
END_TEST

/* Many rows may be multiplied in another way than few. */
START_TEST(the_largest_whole_numbers_do_not_overflow)
{
    enum { MOST = 36 };
    static const int bytes[2][2] = { { 0x80, 0x7F }, { 0x00, 0xFF } }, numbers[2][2] = { { -128, 127 }, { -8, 7 } };
    ck_assert_int_eq((int64_t)sizeof(one_row), mmi_quantized_row(MMI_BLOCK));
    EACH_TABLE (k)
        EACH_DTYPE (dtype)
            for (int64_t M = 1; M <= MOST; M++)
                for (int kind = 0; kind < 6; kind++) {
                    const int d = dtype == MM_Q4_0, end = kind % 2, signs = kind / 2; /* of x: -, + or both in turn */
                    unsigned char w[34] = { 0x00, 0x3C };                             /* a half 1 */
                    float x[MMI_BLOCK], y[MOST] = { 0 }, want = 0;
                    one_row q[MOST];
                    memset(w + 2, bytes[d][end], 32);
                    for (int i = 0; i < MMI_BLOCK; i++) {
                        x[i] = signs == 0 || (signs == 2 && i % 2) ? -127.0f : 127.0f;
                        want += x[i] * (float)numbers[d][end];
                    }
                    for (int64_t i = 0; i < M; i++)
                        k->quantize(&q[i], MMI_BLOCK, x, 0, MMI_BLOCK);
                    k->gemm_blocks(y, 1, q, strips_of(0, w, dtype, 1, MMI_BLOCK), dtype, M, 1, MMI_BLOCK);
                    for (int64_t i = 0; i < M; i++)
                        expect(y[i] == want, "%s: %g, not %g", label_of(k, dtype), (double)y[i], (double)want);
                }
}
END_TEST

/* Each table's product against the portable one's: the same bits, but for the payload of a NaN. */
static void compare_products(test_rng *rng, int32_t dtype, int64_t M, int64_t N, int64_t K)
{
    mmi_kernels c;
    mmi_kernels_init_c(&c);
    int64_t ldy = N + rng_between(rng, 0, 3), count = M > 0 ? (M - 1) * ldy + N : 0;
    int64_t ldx = K + rng_between(rng, 0, 3);
    float *x = edge_random(0, M > 0 ? (M - 1) * ldx + K : 0, rng, 2), *exact = edge_random(1, N * K, rng, 1);
    if (M * N * K > 0 && rng_between(rng, 0, 3) == 0)
        x[rng_between(rng, 0, (int)M - 1) * ldx + rng_between(rng, 0, (int)K - 1)] =
            rng_between(rng, 0, 1) ? NAN : -INFINITY;
    if (M * N * K > 0 && rng_between(rng, 0, 3) == 0) /* often in a first block */
        exact[rng_between(rng, 0, (int)N - 1) * K + rng_between(rng, 0, 1) * rng_between(rng, 0, (int)K - 1)] = NAN;
    if (M * N * K > 0 && rng_between(rng, 0, 3) == 0) { /* scales that are 0, or too small to divide by */
        float tiny = rng_between(rng, 0, 1) ? 1e-38f : 0;
        for (int64_t p = 0; p < MMI_BLOCK; p++)
            x[rng_between(rng, 0, (int)M - 1) * ldx + p] = x[p] = tiny;
    }
    unsigned char *w = edge_place(2, (int64_t)mmi_dtype_bytes(dtype, N * K)),
                  *q = edge_place(3, M * mmi_quantized_row(K));
    c.narrow(w, exact, dtype, N * K);
    if (N * K > 0 && rng_between(rng, 0, 3) == 0) { /* a file may say that a scale is infinite */
        static const uint16_t infinity = 0x7C00;
        memcpy(w + mmi_dtype_bytes(dtype, rng_between(rng, 0, (int)N - 1) * K), &infinity, sizeof infinity);
    }
    for (int64_t i = 0; i < M; i++)
        c.quantize(q + i * mmi_quantized_row(K), K, x + i * ldx, 0, K);
    const size_t bytes = (size_t)count * sizeof(float);
    float *before = edge_random(6, count, rng, 1), *want = edge_floats(4, count), *got = edge_floats(5, count);
    memcpy(want, before, bytes);
    const unsigned char *strips = strips_of(7, w, dtype, N, K);
    c.gemm_blocks(want, ldy, q, strips, dtype, M, N, K);
    EACH_TABLE (k) {
        memcpy(got, before, bytes);
        k->gemm_blocks(got, ldy, q, strips, dtype, M, N, K);
        edge_check();
        for (int64_t i = 0; i < count; i++)
            expect(isnan(want[i]) ? isnan(got[i]) : got[i] == want[i],
                   "%s, %lld x %lld x %lld: [%lld] is %.9g, not %.9g", label_of(k, dtype), (long long)M, (long long)N,
                   (long long)K, (long long)i, (double)got[i], (double)want[i]);
    }
}

START_TEST(every_table_has_the_bits_of_the_portable_one)
{
    static const int64_t most[][3] = { { 20, 40, 3 }, { 3, 300, 2 }, { 9, 70, 40 }, { 70, 9, 5 } };
    test_rng rng = { 45 };
    EACH_DTYPE (dtype)
        for (size_t kind = 0; kind < sizeof most / sizeof *most; kind++)
            for (int round = 0; round < (kind == 0 ? 300 : 50); round++) {
                int64_t M = rng_between(&rng, 0, (int)most[kind][0]), N = rng_between(&rng, 0, (int)most[kind][1]);
                compare_products(&rng, dtype, M, N, MMI_BLOCK * rng_between(&rng, 0, (int)most[kind][2]));
            }
}
END_TEST

/* Tiles have 16 rows of each side, four blocks are on their way together, and 128 blocks of x, or 32 where several
 * groups of rows meet q4_0, are a part. */
START_TEST(products_around_the_size_of_tiles_have_the_bits_of_the_portable_one)
{
    static const int64_t rows[] = { 1, 5, 8, 9, 15, 16, 17, 32, 33, 49 }, cols[] = { 1, 15, 16, 17, 32, 33, 64 };
    static const int64_t blocks[] = { 1, 2, 3, 4, 5, 8, 23, 24, 25, 28, 33, 49, 65, 131 };
    test_rng rng = { 49 };
    EACH_DTYPE (dtype)
        for (int m = 0; m < 10; m++)
            for (int n = 0; n < 7; n++)
                for (int b = 0; b < 14; b++)
                    compare_products(&rng, dtype, rows[m], cols[n], blocks[b] * MMI_BLOCK);
}
END_TEST

START_TEST(a_row_is_the_same_in_any_company)
{
    test_rng rng = { 48 };
    enum { M = 19, N = 43, K = 96 };
    EACH_TABLE (k)
        EACH_DTYPE (dtype) {
            float *x = edge_random(0, M * K, &rng, 2), *exact = edge_random(1, N * K, &rng, 1), y[M * N];
            unsigned char *w = edge_place(2, (int64_t)mmi_dtype_bytes(dtype, N * K)), *q = quantized(k, 3, x, M, K);
            k->narrow(w, exact, dtype, N * K);
            k->gemm_blocks(y, N, q, strips_of(7, w, dtype, N, K), dtype, M, N, K);
            for (int i = 0; i < M; i++)
                for (int j = 0; j < N; j++) {
                    float alone = 0;
                    const unsigned char *one = strips_of(8, w + mmi_dtype_bytes(dtype, j * K), dtype, 1, K);
                    k->gemm_blocks(&alone, 1, q + i * mmi_quantized_row(K), one, dtype, 1, 1, K);
                    expect(alone == y[i * N + j], "%s: row %d, column %d", label_of(k, dtype), i, j);
                }
        }
}
END_TEST

START_TEST(a_nan_in_either_reaches_its_row_or_column_and_no_other)
{
    test_rng rng = { 46 };
    enum { MOST = 37, N = 7, K = 64 };
    EACH_TABLE (k)
        EACH_DTYPE (dtype)
            for (int at = 0; at < 4; at++) {
                const int in_w = at % 2, M = at < 2 ? 5 : MOST;
                float *x = edge_random(0, M * K, &rng, 2), *exact = edge_random(1, N * K, &rng, 1), y[MOST * N];
                (in_w ? exact : x)[3 * K + 40] = in_w ? NAN : INFINITY;
                unsigned char *w = edge_place(2, (int64_t)mmi_dtype_bytes(dtype, N * K));
                unsigned char *q = edge_place(3, M * mmi_quantized_row(K));
                k->narrow(w, exact, dtype, N * K);
                for (int i = 0; i < M; i++)
                    k->quantize(q + i * mmi_quantized_row(K), K, x + i * K, 0, K);
                k->gemm_blocks(y, N, q, strips_of(7, w, dtype, N, K), dtype, M, N, K);
                for (int i = 0; i < M; i++)
                    for (int j = 0; j < N; j++)
                        expect(!isnan(y[i * N + j]) == ((in_w ? j : i) != 3), "%s: row %d, column %d is %g",
                               label_of(k, dtype), i, j, (double)y[i * N + j]);
            }
}
END_TEST

/* y = x · wᵀ on a path with some threads, scratch as large as promised. */
static void weight_product(float *y, const mmi_path *path, int threads, int64_t M, int64_t N, int64_t K, const float *x,
                           const void *w, int32_t dtype, float *panel)
{
    mmi_exec e = exec_create(path, threads, mmi_gemm_blocks_scratch(K));
    mmi_gemm_weight(&e, M, N, K, mmi_operand_of(x, K), w, dtype, panel, y, N);
    exec_free(&e);
}

/* A product on all paths: x [M, K], w [N, K] in blocks, and y as the portable kernel has it and with both operands
 * rounded to bf16. */
typedef struct weighted {
    int64_t M, N, K;
    int32_t dtype;
    float *x, *panel, *y, *whole, *rounded;
    unsigned char *w;
} weighted;

static weighted weighted_of(int64_t M, int64_t N, int64_t K, int32_t dtype, test_rng *rng)
{
    weighted p = { M,    N,    K,   dtype, edge_random(0, M * K, rng, 1), edge_floats(2, N * K), edge_floats(3, M * N),
                   NULL, NULL, NULL };
    mmi_kernels c;
    mmi_kernels_init_c(&c);
    float *exact = edge_random(1, N * K, rng, 1), *held = malloc((size_t)(N * K) * sizeof *held);
    unsigned char *q = quantized(&c, 6, p.x, M, K);
    p.whole = malloc((size_t)(M * N) * sizeof *p.whole);
    p.rounded = malloc((size_t)(M * N) * sizeof *p.rounded);
    unsigned char *blocks = malloc(mmi_dtype_bytes(dtype, N * K));
    ck_assert(held && p.whole && p.rounded && blocks);
    c.narrow(blocks, exact, dtype, N * K);
    c.widen(held, blocks, dtype, N * K);
    p.w = strips_of(5, blocks, dtype, N, K);
    free(blocks);
    c.gemm_blocks(p.whole, N, q, p.w, dtype, M, N, K);
    for (int64_t i = 0; i < N * K; i++)
        held[i] = mmi_c_round(held[i], MM_BF16);
    float *row = exact; /* of x, rounded */
    for (int64_t i = 0; i < M; i++) {
        for (int64_t n = 0; n < K; n++)
            row[n] = mmi_c_round(p.x[i * K + n], MM_BF16);
        for (int64_t j = 0; j < N; j++) {
            double sum = 0;
            for (int64_t n = 0; n < K; n++)
                sum += (double)row[n] * held[j * K + n];
            p.rounded[i * N + j] = (float)sum;
        }
    }
    free(held);
    return p;
}

static void weighted_free(weighted *p)
{
    free(p->whole);
    free(p->rounded);
}

/* The first M rows on a path: bit for bit as the portable kernel has them, or, where the path rounds so many, near to
 * what that gives, and with the same bits for any number of threads. */
static void weighted_check(weighted *p, const mmi_path *path, int64_t M, int threads, float *one)
{
    mmi_kernels k;
    mmi_kernels_init(&k, path->cpu);
    const size_t bytes = (size_t)(M * p->N) * sizeof *p->y;
    for (int64_t i = 0; i < M * p->N; i++)
        p->y[i] = NAN;
    weight_product(p->y, path, threads, M, p->N, p->K, p->x, p->w, p->dtype, p->panel);
    if (!mmi_rounds_blocks(&k, M)) {
        expect(memcmp(p->y, p->whole, bytes) == 0, "%s, %s: %lld rows on %d threads", path->name,
               mm_dtype_name(p->dtype), (long long)M, threads);
        return;
    }
    if (threads == 1)
        memcpy(one, p->y, bytes);
    expect(memcmp(p->y, one, bytes) == 0, "%s, %s: %lld rows on %d threads have other bits", path->name,
           mm_dtype_name(p->dtype), (long long)M, threads);
    for (int64_t i = 0; i < M * p->N; i++)
        expect(fabs((double)p->y[i] - p->rounded[i]) <= 1e-6 * (double)p->K, "%s, %s: %lld rows: [%lld] is %g, not %g",
               path->name, mm_dtype_name(p->dtype), (long long)M, (long long)i, (double)p->y[i], (double)p->rounded[i]);
}

START_TEST(products_of_any_number_of_rows_have_the_bits_of_the_portable_kernel_or_are_rounded)
{
    static const int64_t rows[] = { 1, 3, 4, 9, 33, 63, 64, 70, 513, 970 }; /* the panel has room for 960 */
    enum { N = 300, K = 160, MOST = 970 };
    test_rng rng = { 47 };
    float *one = malloc(sizeof(float) * N * MOST);
    ck_assert_ptr_nonnull(one);
    EACH_DTYPE (dtype) {
        weighted p = weighted_of(MOST, N, K, dtype, &rng);
        EACH_PATH (path)
            for (size_t r = 0; r < sizeof rows / sizeof *rows; r++)
                for (int threads = 1; threads <= 13; threads += threads < 3 ? 1 : 5)
                    weighted_check(&p, path, rows[r], threads, one);
        weighted_free(&p);
    }
    free(one);
}
END_TEST

static void weighted_on_all(int64_t M, int64_t N, int64_t K, int32_t dtype, test_rng *rng)
{
    weighted p = weighted_of(M, N, K, dtype, rng);
    float *one = malloc((size_t)(M * N) * sizeof *one);
    ck_assert_ptr_nonnull(one);
    EACH_PATH (path)
        for (int threads = 1; threads <= 3; threads += 2)
            weighted_check(&p, path, M, threads, one);
    free(one);
    weighted_free(&p);
}

START_TEST(large_products_whose_last_slices_are_cut_again_have_the_same_bits)
{
    test_rng rng = { 48 };
    weighted_on_all(520, 370, 1024, MM_Q8_0, &rng); /* into rows */
    weighted_on_all(200, 2100, 448, MM_Q8_0, &rng); /* into columns */
    weighted_on_all(64, 64, 33280, MM_Q8_0, &rng);  /* along K, where panels have no more room */
    weighted_on_all(64, 70, 33312, MM_Q4_0, &rng);
}
END_TEST

/* From 2^16 numbers of W on they are met in pieces: so a text is gone on with. */
START_TEST(few_rows_meet_large_weights_in_pieces_with_the_same_bits)
{
    test_rng rng = { 51 };
    EACH_DTYPE (dtype)
        for (int64_t M = 1; M <= 5; M++) {
            weighted_on_all(M, 421, 160, dtype, &rng);
            weighted_on_all(M, 1500, 64, dtype, &rng);
        }
}
END_TEST

START_TEST(rows_that_are_quantized_by_whoever_makes_them_meet_the_same_weights)
{
    enum { N = 300, K = 160, MOST = 70 };
    test_rng rng = { 49 };
    EACH_DTYPE (dtype) {
        weighted p = weighted_of(MOST, N, K, dtype, &rng);
        EACH_PATH (path)
            for (int64_t M = 1; M <= MOST; M += M < 4 ? 1 : 33) {
                mmi_exec e = exec_create(path, 2, mmi_gemm_blocks_scratch(K));
                mmi_quantizing q = mmi_quantizing_of(&e, M, N, K, dtype, p.panel, 64);
                expect((q.rows != NULL) == !mmi_rounds_blocks(&e.k, M), "%s: %lld rows", e.k.name, (long long)M);
                for (int64_t i = 0; i < M; i++) {
                    mmi_quantize(&q, i, p.x + i * K + 64, 64, K - 64);
                    mmi_quantize(&q, i, p.x + i * K, 0, 64);
                }
                memset(p.y, 0xFF, (size_t)(M * N) * sizeof *p.y);
                mmi_gemm_weight(&e, M, N, K, (mmi_operand){ p.x, K, q.rows }, p.w, dtype, p.panel, p.y, N);
                if (q.rows)
                    expect(memcmp(p.y, p.whole, (size_t)(M * N) * sizeof *p.y) == 0, "%s, %s: %lld rows", e.k.name,
                           mm_dtype_name(dtype), (long long)M);
                exec_free(&e);
            }
        weighted_free(&p);
    }
}
END_TEST

START_TEST(rows_are_quantized_ahead_only_for_weights_in_blocks_and_where_there_is_room)
{
    enum { N = 64, K = 96 };
    static float panel[N * K];
    const int64_t most = (int64_t)sizeof panel / mmi_quantized_row(K);
    mmi_exec e = exec_create(mmi_path_get(0), 1, FOR_PRODUCTS);
    e.k.round_blocks = 0;
    ck_assert_ptr_eq(mmi_quantizing_of(&e, most, N, K, MM_Q8_0, panel, 0).rows, panel);
    ck_assert_ptr_eq(mmi_quantizing_of(&e, most - 1, N, K, MM_Q4_0, panel, 64).rows, panel + 16);
    ck_assert_ptr_null(mmi_quantizing_of(&e, most + 1, N, K, MM_Q8_0, panel, 0).rows);
    ck_assert_ptr_null(mmi_quantizing_of(&e, most, N, K, MM_Q8_0, panel, 128).rows);
    ck_assert_ptr_null(mmi_quantizing_of(&e, 1, N, K, MM_F32, panel, 0).rows);
    ck_assert_ptr_null(mmi_quantizing_of(&e, 1, N, K, MM_BF16, panel, 0).rows);
    ck_assert_ptr_null(mmi_quantizing_of(&e, 1, N, 0, MM_Q8_0, panel, 0).rows);
    e.k.round_blocks = 5;
    ck_assert_ptr_nonnull(mmi_quantizing_of(&e, 4, N, K, MM_Q8_0, panel, 0).rows);
    ck_assert_ptr_null(mmi_quantizing_of(&e, 5, N, K, MM_Q8_0, panel, 0).rows);
    exec_free(&e);
}
END_TEST

/* What a pair of products has shown of its columns. */
typedef struct shown {
    const float *y[2];
    const weighted *p;
    int64_t M, ld;
    atomic_int times[300]; /* of each column */
    atomic_bool wrong;
} shown;

static void show(void *arg, int64_t first, int64_t last)
{
    shown *s = arg;
    if (first % MMI_BLOCK != 0 || last <= first || last > s->p->N || (last % MMI_BLOCK != 0 && last != s->p->N))
        atomic_store(&s->wrong, true);
    for (int64_t j = first; j < last && !atomic_load(&s->wrong); j++) {
        atomic_fetch_add(&s->times[j], 1);
        for (int64_t i = 0; i < s->M; i++)
            for (int w = 0; w < 2; w++)
                if (memcmp(&s->y[w][i * s->ld + j], &s->p->whole[i * s->p->N + j], sizeof(float)) != 0)
                    atomic_store(&s->wrong, true);
    }
}

START_TEST(a_pair_of_products_shows_each_column_once_when_both_have_it)
{
    static const struct {
        int64_t N, K;
    } shapes[] = { { 256, 64 }, { 300, 96 }, { 288, 160 }, { 32, 32 }, { 17, 64 } };
    static const int64_t rows[] = { 4, 16, 17, 63 };
    enum { MOST = 63 };
    test_rng rng = { 50 };
    for (size_t n = 0; n < sizeof shapes / sizeof *shapes; n++)
        EACH_DTYPE (dtype) {
            const int64_t N = shapes[n].N, K = shapes[n].K, ld = 2 * N;
            weighted p = weighted_of(MOST, N, K, dtype, &rng);
            float *both = malloc((size_t)(MOST * ld) * sizeof *both);
            ck_assert_ptr_nonnull(both);
            EACH_PATH (path)
                for (int threads = 1; threads <= 13; threads += threads < 3 ? 1 : 5) {
                    mmi_exec e = exec_create(path, threads, FOR_PRODUCTS);
                    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++, exec_forget(&e)) {
                        const unsigned char *x = quantized(&e.k, 6, p.x, rows[r], K);
                        shown s = { .y = { both, both + N }, .p = &p, .M = rows[r], .ld = ld };
                        float *const y[2] = { both, both + N };
                        const void *const w[2] = { p.w, p.w };
                        memset(both, 0xFF, (size_t)(MOST * ld) * sizeof *both);
                        mmi_gemm_pair(&e, rows[r], N, K, x, w, dtype, y, ld, show, &s);
                        expect(!atomic_load(&s.wrong), "%s, %s: %lld rows on %d threads", e.k.name,
                               mm_dtype_name(dtype), (long long)rows[r], threads);
                        for (int64_t j = 0; j < N; j++)
                            expect(atomic_load(&s.times[j]) == 1, "%s: column %lld was shown %d times", e.k.name,
                                   (long long)j, atomic_load(&s.times[j]));
                    }
                    exec_free(&e);
                }
            free(both);
            weighted_free(&p);
        }
    mmi_exec e = exec_create(mmi_path_get(0), 2, FOR_PRODUCTS);
    shown none = { .M = 4 };
    mmi_gemm_pair(&e, 4, 0, 32, NULL, (const void *const[2]){ 0 }, MM_Q8_0, (float *const[2]){ 0 }, 0, show, &none);
    exec_free(&e);
}
END_TEST

static void count_shared(void *user, int64_t pieces, mmi_piece_fn piece, void *arg)
{
    *(int *)user += pieces > 1;
    for (int64_t i = 0; i < pieces; i++)
        piece(arg, i, 0);
}

static void pass_by(void *arg, int64_t first, int64_t last)
{
    (void)arg;
    (void)first;
    (void)last;
}

typedef enum { OF_NUMBERS, OF_QUANTIZED, PAIR } kind_of_product;

/* How many jobs a product with all zeros, or a pair of such, gives to more than one thread. */
static int shared_jobs(const mmi_path *path, int64_t M, int64_t N, int64_t K, int32_t dtype, kind_of_product kind)
{
    int jobs = 0;
    mmi_exec e = exec_create(path, 1, mmi_gemm_blocks_scratch(K));
    mmi_pool_free(e.pool);
    ck_ok(mmi_pool_create_on(count_shared, &jobs, 2, &e.pool));
    void *w = calloc(1, mmi_dtype_bytes(dtype, N * K)), *x = calloc(1, (size_t)(M * mmi_quantized_row(K)));
    float *y = malloc((size_t)(2 * M * N) * sizeof *y), *numbers = calloc((size_t)(M * K), sizeof *numbers);
    float *panel = malloc((size_t)(N * K) * sizeof *panel);
    ck_assert(w && x && y && numbers && panel);
    if (kind == PAIR)
        mmi_gemm_pair(&e, M, N, K, x, (const void *const[2]){ w, w }, dtype, (float *const[2]){ y, y + N }, 2 * N,
                      pass_by, NULL);
    else
        mmi_gemm_weight(&e, M, N, K, (mmi_operand){ numbers, K, kind == OF_QUANTIZED ? x : NULL }, w, dtype, panel, y, N);
    free(numbers);
    free(panel);
    free(w);
    free(x);
    free(y);
    exec_free(&e);
    return jobs;
}

/* Up to 131 072 numbers of weights, and as many products as a kernel does in about the time of handing them over. */
START_TEST(small_products_stay_with_one_thread)
{
    EACH_PATH (path) {
        mmi_kernels k;
        mmi_kernels_init(&k, path->cpu);
        EACH_DTYPE (dtype) {
            ck_assert_int_eq(shared_jobs(path, 1, 256, 512, dtype, OF_NUMBERS), 0);
            ck_assert_int_gt(shared_jobs(path, 1, 272, 512, dtype, OF_NUMBERS), 0);
            ck_assert_int_eq(shared_jobs(path, 4, 32, 512, dtype, PAIR), 0);
            for (int kind = OF_NUMBERS; kind <= PAIR; kind++) {
                const int64_t N = 128, K = kind == PAIR ? 256 : 512, rows = k.blocks_worth / (128 * 512);
                ck_assert(!mmi_rounds_blocks(&k, rows + 1));
                expect(shared_jobs(path, rows, N, K, dtype, kind) == 0, "%s: %lld rows are shared", path->name,
                       (long long)rows);
                expect(shared_jobs(path, rows + 1, N, K, dtype, kind) > 0, "%s: %lld rows are not shared", path->name,
                       (long long)rows + 1);
            }
        }
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("backend/blocks");
    TCase *tests = tcase_create("all");
    tcase_set_timeout(tests, 120);
    tcase_add_test(tests, large_products_whose_last_slices_are_cut_again_have_the_same_bits);
    tcase_add_test(tests, few_rows_meet_large_weights_in_pieces_with_the_same_bits);
    tcase_add_test(tests, rows_that_are_quantized_by_whoever_makes_them_meet_the_same_weights);
    tcase_add_test(tests, rows_are_quantized_ahead_only_for_weights_in_blocks_and_where_there_is_room);
    tcase_add_test(tests, a_pair_of_products_shows_each_column_once_when_both_have_it);
    tcase_add_test(tests, small_products_stay_with_one_thread);
    tcase_add_test(tests, strips_lie_as_their_header_says);
    tcase_add_test(tests, blocks_lie_as_gguf_has_them);
    tcase_add_test(tests, what_comes_back_is_within_half_a_step);
    tcase_add_test(tests, of_two_that_are_as_near_the_outer_one_is_taken_and_in_q4_0_the_upper_one);
    tcase_add_test(tests, whole_numbers_of_a_power_of_two_come_back_exactly);
    tcase_add_test(tests, zeros_and_the_tiniest_numbers_become_finite);
    tcase_add_test(tests, a_nan_or_an_infinity_makes_its_block_nan_and_no_other);
    tcase_add_test(tests, blocks_of_one_row_are_quantized_each_by_itself);
    tcase_add_test(tests, activations_are_quantized_alike_to_half_a_step);
    tcase_add_test(tests, products_are_those_of_the_quantized_numbers);
    tcase_add_test(tests, the_largest_whole_numbers_do_not_overflow);
    tcase_add_test(tests, every_table_has_the_bits_of_the_portable_one);
    tcase_add_test(tests, products_around_the_size_of_tiles_have_the_bits_of_the_portable_one);
    tcase_add_test(tests, a_row_is_the_same_in_any_company);
    tcase_add_test(tests, a_nan_in_either_reaches_its_row_or_column_and_no_other);
    tcase_add_test(tests, products_of_any_number_of_rows_have_the_bits_of_the_portable_kernel_or_are_rounded);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
