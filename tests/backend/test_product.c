/* The product kernels, every table against double precision: all tails, all strides, both ways to end. */
#include <stdlib.h>
#include <string.h>

#include "tables.h"

/* A matrix of which element (i, j) is at p + i * rs + j * cs. */
typedef struct matrix {
    float *p;
    int64_t rs, cs;
} matrix;

enum { ROW_MAJOR, COLUMN_MAJOR, SCATTERED, LAYOUTS };

static matrix random_matrix(int slot, int64_t rows, int64_t cols, int layout, test_rng *rng)
{
    matrix m = { NULL, 1, 1 };
    int64_t gap = rng_between(rng, 0, 3);
    if (layout == ROW_MAJOR)
        m.rs = cols + gap;
    else if (layout == COLUMN_MAJOR)
        m.cs = rows + gap;
    else
        m.cs = 2, m.rs = 2 * cols + gap + 1;
    int64_t floats = rows > 0 && cols > 0 ? (rows - 1) * m.rs + (cols - 1) * m.cs + 1 : 0;
    m.p = edge_random(slot, floats, rng, 1);
    return m;
}

static float at(matrix m, int64_t i, int64_t j)
{
    return m.p[i * m.rs + j * m.cs];
}

typedef struct problem {
    int64_t M, N, K;
    matrix a, b, c;
    float *before; /* all of c with what lies between its rows */
    int64_t c_floats;
    const float *from; /* what the product is added to */
} problem;

/* What a product is added to. */
enum { NOTHING, ITSELF, ANOTHER, STARTS };

static problem make_problem(int64_t M, int64_t N, int64_t K, int a_layout, int b_layout, int start, test_rng *rng)
{
    problem p = { .M = M, .N = N, .K = K };
    p.a = random_matrix(0, M, K, a_layout, rng);
    p.b = random_matrix(1, K, N, b_layout, rng);
    p.c = random_matrix(2, M, N, ROW_MAJOR, rng);
    p.c_floats = M > 0 && N > 0 ? (M - 1) * p.c.rs + N : 0;
    p.before = edge_floats(3, p.c_floats);
    if (p.c_floats > 0)
        memcpy(p.before, p.c.p, (size_t)p.c_floats * sizeof(float));
    p.from = start == NOTHING ? NULL : start == ITSELF ? p.c.p : p.before;
    for (int64_t i = 0; i < M * N && start != ITSELF; i++)
        p.c.p[i / N * p.c.rs + i % N] = NAN;
    return p;
}

static void check_problem(const problem *p, const mmi_kernels *k, const char *what)
{
    for (int64_t i = 0; i < p->M; i++)
        for (int64_t j = 0; j < p->N; j++) {
            double want = p->from ? p->before[i * p->c.rs + j] : 0;
            for (int64_t r = 0; r < p->K; r++)
                want += (double)at(p->a, i, r) * at(p->b, r, j);
            ck_near(at(p->c, i, j), want, product_error(p->K), k, what, i * 10000 + j);
        }
    for (int64_t i = 0; i + 1 < p->M; i++)
        for (int64_t j = p->N; j < p->c.rs && p->N > 0; j++)
            expect(p->c.p[i * p->c.rs + j] == p->before[i * p->c.rs + j], "%s %s wrote between the rows", k->name,
                   what);
    edge_check();
}

static void try_tile(const mmi_kernels *k, int64_t M, int64_t N, int64_t K, int layout, test_rng *rng)
{
    problem p = make_problem(M, N, K, layout, ROW_MAJOR, rng_between(rng, NOTHING, ITSELF), rng);
    k->gemm_tile(p.c.p, p.c.rs, p.a.p, p.a.rs, p.a.cs, p.b.p, p.b.rs, M, N, K, p.from != NULL);
    check_problem(&p, k, "gemm_tile");
}

static void try_panels(const mmi_kernels *k, int64_t M, int64_t N, int64_t K, int a_layout, int b_layout, test_rng *rng)
{
    problem p = make_problem(M, N, K, a_layout, b_layout, rng_between(rng, 0, STARTS - 1), rng);
    if (K == 0) /* not asked of panels */
        return;
    multiply_by_panels(k, p.c.p, p.c.rs, p.a.p, p.a.rs, p.a.cs, p.b.p, p.b.rs, p.b.cs, M, N, K, p.from, MM_F32,
                       p.a.cs == 1 && p.a.rs > 0 && rng_between(rng, 0, 1));
    check_problem(&p, k, "gemm_multiply");
}

START_TEST(tiles_of_every_small_size_are_right)
{
    test_rng rng = { 1 };
    EACH_TABLE (k)
        for (int64_t M = 0; M <= 26; M++)
            for (int64_t N = 0; N <= 50; N++)
                try_tile(k, M, N, rng_between(&rng, 0, 9), (int)(M + N) % LAYOUTS, &rng);
}
END_TEST

START_TEST(tiles_of_attention_size_are_right)
{
    test_rng rng = { 2 };
    EACH_TABLE (k)
        for (int round = 0; round < 20; round++)
            try_tile(k, rng_between(&rng, 1, 260), rng_between(&rng, 1, 130), rng_between(&rng, 1, 130),
                     round % LAYOUTS, &rng);
}
END_TEST

START_TEST(panels_of_every_layout_and_size_are_right)
{
    test_rng rng = { 3 };
    static const int64_t sizes[] = { 0, 1, 2, 5, 6, 7, 12, 13, 15, 16, 17, 31, 32, 33, 48, 50 };
    EACH_TABLE (k)
        for (size_t m = 0; m < 16; m++)
            for (size_t n = 0; n < 16; n++)
                for (int layout = 0; layout < LAYOUTS * LAYOUTS; layout++)
                    try_panels(k, sizes[m], sizes[n], sizes[(m + n + (size_t)layout) % 16], layout % LAYOUTS,
                               layout / LAYOUTS, &rng);
}
END_TEST

START_TEST(products_deeper_than_a_panel_are_right)
{
    test_rng rng = { 4 };
    static const int64_t shapes[][3] = { { 97, 33, 384 }, { 96, 513, 20 },  { 193, 17, 385 },
                                         { 24, 1037, 7 }, { 13, 40, 1100 }, { 200, 100, 400 } };
    EACH_TABLE (k)
        for (int layout = 0; layout < LAYOUTS * LAYOUTS; layout++)
            for (int s = 0; s < 6; s++)
                if ((s + layout) % 3 == 0)
                    try_panels(k, shapes[s][0], shapes[s][1], shapes[s][2], layout % LAYOUTS, layout / LAYOUTS, &rng);
}
END_TEST

START_TEST(a_tile_with_nothing_to_sum_is_zero_or_what_was_there)
{
    EACH_TABLE (k)
        for (int accumulate = 0; accumulate < 2; accumulate++) {
            float c[7 * 19];
            for (int i = 0; i < 7 * 19; i++)
                c[i] = 3;
            k->gemm_tile(c, 19, NULL, 0, 1, NULL, 19, 7, 19, 0, accumulate);
            for (int i = 0; i < 7 * 19; i++)
                expect(c[i] == (accumulate ? 3 : 0), "%s: c[%d] is %g", k->name, i, c[i]);
        }
}
END_TEST

/* A product of row-major matrices. */
enum { TILE, PANELS, PANELS_IN_PLACE };

static void try_way(const mmi_kernels *k, const problem *p, int way)
{
    if (way == TILE)
        k->gemm_tile(p->c.p, p->c.rs, p->a.p, p->a.rs, 1, p->b.p, p->b.rs, p->M, p->N, p->K, p->from != NULL);
    else
        multiply_by_panels(k, p->c.p, p->c.rs, p->a.p, p->a.rs, 1, p->b.p, p->b.rs, 1, p->M, p->N, p->K, p->from,
                           MM_F32, way == PANELS_IN_PLACE);
}

START_TEST(what_c_held_before_does_not_show_unless_asked_for)
{
    test_rng rng = { 5 };
    EACH_TABLE (k)
        for (int way = TILE; way <= PANELS_IN_PLACE; way++) {
            problem p = make_problem(19, 37, 11, ROW_MAJOR, ROW_MAJOR, NOTHING, &rng);
            try_way(k, &p, way);
            check_problem(&p, k, "over NaN");
        }
}
END_TEST

START_TEST(a_nan_reaches_its_row_or_column_and_no_other)
{
    test_rng rng = { 6 };
    EACH_TABLE (k)
        for (int way = TILE; way <= PANELS_IN_PLACE; way++)
            for (int in_b = 0; in_b < 2; in_b++) {
                problem p = make_problem(23, 45, 21, ROW_MAJOR, ROW_MAJOR, ITSELF, &rng);
                if (in_b)
                    p.b.p[20 * p.b.rs + 44] = NAN;
                else
                    p.a.p[22 * p.a.rs + 20] = NAN;
                try_way(k, &p, way);
                check_problem(&p, k, "with NaN");
            }
}
END_TEST

/* Tables that take float32 apart lose what is below 2^-126 of a number, and nothing else, whatever its size; what is
 * too large for that, and infinities, they multiply in another way. */
START_TEST(numbers_far_from_one_keep_their_digits)
{
    test_rng rng = { 8 };
    EACH_TABLE (k)
        for (int round = 0; round < 150; round++) {
            int64_t M = rng_between(&rng, 1, 40), N = rng_between(&rng, 1, 40), K = rng_between(&rng, 1, 70);
            problem p = make_problem(M, N, K, round % LAYOUTS, round / 3 % LAYOUTS, NOTHING, &rng);
            int ea = rng_between(&rng, -90, 120), eb = rng_between(&rng, -90, ea > 0 ? 115 - ea : 115);
            for (int64_t i = 0; i < M * K; i++)
                p.a.p[i / K * p.a.rs + i % K * p.a.cs] = ldexpf(rng_between(&rng, -9999, 9999) / 8192.0f, ea);
            for (int64_t i = 0; i < K * N; i++)
                p.b.p[i / N * p.b.rs + i % N * p.b.cs] = ldexpf(rng_between(&rng, -9999, 9999) / 8192.0f, eb);
            multiply_by_panels(k, p.c.p, p.c.rs, p.a.p, p.a.rs, p.a.cs, p.b.p, p.b.rs, p.b.cs, M, N, K, NULL, MM_F32,
                               0);
            for (int64_t i = 0; i < M * N; i++) {
                double want = 0, sizes = 0;
                for (int64_t q = 0; q < K; q++) {
                    double product = (double)at(p.a, i / N, q) * at(p.b, q, i % N);
                    want += product;
                    sizes += fabs(product);
                }
                ck_near(at(p.c, i / N, i % N), want, product_error(K) * sizes + (double)K * 0x1p-126, k, "far", i);
            }
        }
}
END_TEST

START_TEST(a_product_may_be_the_largest_float)
{
    EACH_TABLE (k) {
        float a = 0x1.fffffep63f, b = 0x1p64f, c = 0;
        multiply_by_panels(k, &c, 1, &a, 1, 1, &b, 1, 1, 1, 1, 1, NULL, MM_F32, 0);
        expect(c == 0x1.fffffep127f, "%s: %a", k->name, (double)c);
    }
}
END_TEST

START_TEST(an_infinity_reaches_its_row_or_column_with_its_sign)
{
    test_rng rng = { 9 };
    EACH_TABLE (k)
        for (int way = TILE; way <= PANELS_IN_PLACE; way++)
            for (int in_b = 0; in_b < 2; in_b++) {
                problem p = make_problem(41, 45, 21, ROW_MAJOR, ROW_MAJOR, ITSELF, &rng);
                if (in_b)
                    p.b.p[20 * p.b.rs + 44] = INFINITY;
                else
                    p.a.p[40 * p.a.rs + 20] = -INFINITY;
                try_way(k, &p, way);
                check_problem(&p, k, "with infinity");
            }
}
END_TEST

/* y again, by gemm_rows(), in slot 4. */
static void expect_same_in_tiles(const mmi_kernels *k, matrix y, matrix x, const void *w, int32_t dtype, int64_t ldw,
                                 int64_t M, int64_t N, int64_t K)
{
    float *tiled = edge_floats(4, M * N);
    multiply_rows(k, tiled, N, x.p, x.rs, w, dtype, ldw, M, N, K, MM_F32);
    for (int64_t i = 0; i < M; i++)
        expect(memcmp(tiled + i * N, y.p + i * y.rs, (size_t)N * sizeof *tiled) == 0,
               "%s, %s: row %lld of [%lld, %lld, %lld] has other bits in tiles", k->name, mm_dtype_name(dtype),
               (long long)i, (long long)M, (long long)N, (long long)K);
}

START_TEST(few_rows_agree_with_double_precision_for_every_dtype)
{
    test_rng rng = { 7 };
    EACH_TABLE (k)
        for (int32_t dtype = MM_F32; dtype <= MM_F16; dtype++)
            for (int64_t M = 0; M <= 9; M++)
                for (int round = 0; round < 12; round++) {
                    int64_t N = rng_between(&rng, 0, 11), K = awkward[rng_between(&rng, 0, awkward_count - 1)];
                    int64_t ldw = K + rng_between(&rng, 0, 2), size = (int64_t)mm_dtype_size(dtype);
                    int64_t elements = N > 0 ? (N - 1) * ldw + K : 0;
                    matrix x = random_matrix(0, M, K, ROW_MAJOR, &rng), y = random_matrix(2, M, N, ROW_MAJOR, &rng);
                    float *exact = edge_random(3, elements, &rng, 1);
                    unsigned char *w = edge_place(1, elements * size);
                    k->narrow(w, exact, dtype, elements);
                    k->widen(exact, w, dtype, elements);
                    k->gemv_rows(y.p, y.rs, x.p, x.rs, w, dtype, ldw, M, N, K, round % 2 * 2048);
                    for (int64_t i = 0; i < M; i++)
                        for (int64_t j = 0; j < N; j++) {
                            double want = 0;
                            for (int64_t p = 0; p < K; p++)
                                want += (double)at(x, i, p) * exact[j * ldw + p];
                            ck_near(at(y, i, j), want, product_error(K), k, "gemv_rows", i * 100 + j);
                        }
                    if (M > 0 && N > 0)
                        expect_same_in_tiles(k, y, x, w, dtype, ldw, M, N, K);
                    edge_check();
                }
}
END_TEST

/* Any number of them, and rows that are read in parts: what gemv_rows() has for few at a time. */
START_TEST(more_rows_than_few_have_the_bits_of_few)
{
    static const int64_t lengths[] = { 64, 255, 256, 260, 512, 1023, 1024, 1025, 2049, 3000, 1100, 2100 };
    test_rng rng = { 11 };
    EACH_TABLE (k)
        for (int32_t dtype = MM_F32; dtype <= MM_F16; dtype++)
            for (size_t l = 0; l < sizeof lengths / sizeof *lengths; l++) {
                const int64_t some[] = { MMI_MOST_ROWS, 5, rng_between(&rng, 4, 20), 61 }, M = some[l % 4];
                const int64_t N = 19, K = lengths[l];
                matrix x = random_matrix(0, M, K, ROW_MAJOR, &rng), y = random_matrix(2, M, N, ROW_MAJOR, &rng);
                float *exact = edge_random(3, N * K, &rng, 1);
                unsigned char *w = edge_place(1, N * K * (int64_t)mm_dtype_size(dtype));
                k->narrow(w, exact, dtype, N * K);
                for (int64_t i = 0; i < M; i++)
                    k->gemv_rows(y.p + i * y.rs, y.rs, x.p + i * x.rs, x.rs, w, dtype, K, 1, N, K, 0);
                expect_same_in_tiles(k, y, x, w, dtype, K, M, N, K);
                edge_check();
            }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("backend/product");
    TCase *tests = tcase_create("all");
    tcase_set_timeout(tests, 120);
    tcase_add_test(tests, tiles_of_every_small_size_are_right);
    tcase_add_test(tests, tiles_of_attention_size_are_right);
    tcase_add_test(tests, panels_of_every_layout_and_size_are_right);
    tcase_add_test(tests, products_deeper_than_a_panel_are_right);
    tcase_add_test(tests, a_tile_with_nothing_to_sum_is_zero_or_what_was_there);
    tcase_add_test(tests, what_c_held_before_does_not_show_unless_asked_for);
    tcase_add_test(tests, a_nan_reaches_its_row_or_column_and_no_other);
    tcase_add_test(tests, numbers_far_from_one_keep_their_digits);
    tcase_add_test(tests, a_product_may_be_the_largest_float);
    tcase_add_test(tests, an_infinity_reaches_its_row_or_column_with_its_sign);
    tcase_add_test(tests, few_rows_agree_with_double_precision_for_every_dtype);
    tcase_add_test(tests, more_rows_than_few_have_the_bits_of_few);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
