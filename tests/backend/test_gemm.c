/* Large products on the pool: right, the same bits for any number of threads, and OpenBLAS's setting left as it was. */
#define _POSIX_C_SOURCE 200809L
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "backend/gemm.h"
#include "../nn/exec.h"
#include "tables.h"

#if MM_HAVE_OPENBLAS
#include <cblas.h>
#endif

/* What a product is added to. */
enum { NOTHING, ITSELF, ANOTHER, STARTS };
#define VARIANTS (4 * STARTS)

typedef struct problem {
    bool ta, tb;
    int start;
    int64_t M, N, K, lda, ldb, ldc;
    float *a, *b, *c;
} problem;

static float *floats(int64_t n)
{
    float *x = malloc((size_t)(n > 0 ? n : 1) * sizeof(float));
    ck_assert_ptr_nonnull(x);
    return x;
}

static float *random_floats(int64_t n, test_rng *rng)
{
    float *x = floats(n);
    rng_fill(rng, x, (size_t)n, 1);
    return x;
}

/* Whole numbers, so that sums are exact in any order. */
static float *random_whole(int64_t n, test_rng *rng)
{
    float *x = floats(n);
    for (int64_t i = 0; i < n; i++)
        x[i] = (float)rng_between(rng, -3, 3);
    return x;
}

/* Floats of `rows` rows, ld apart, the last one only as long as it must be: ASan sees the rest. */
static int64_t extent(int64_t rows, int64_t ld, int64_t length)
{
    return rows > 0 ? (rows - 1) * ld + length : 0;
}

static problem make_problem(float *(*fill)(int64_t, test_rng *), int variant, int64_t M, int64_t N, int64_t K,
                            test_rng *rng)
{
    problem p = { (variant & 1) != 0, (variant & 2) != 0, variant / 4, M, N, K, 0, 0, 0, NULL, NULL, NULL };
    int64_t a_rows = p.ta ? K : M, a_cols = p.ta ? M : K, b_rows = p.tb ? N : K, b_cols = p.tb ? K : N;
    p.lda = a_cols + rng_between(rng, 0, 5);
    p.ldb = b_cols + rng_between(rng, 0, 5);
    p.ldc = N + rng_between(rng, 0, 5);
    p.a = fill(extent(a_rows, p.lda, a_cols), rng);
    p.b = fill(extent(b_rows, p.ldb, b_cols), rng);
    p.c = fill(extent(M, p.ldc, N), rng);
    return p;
}

static void free_problem(problem *p)
{
    free(p->a);
    free(p->b);
    free(p->c);
}

static float *solve(const problem *p, const mmi_exec *x)
{
    size_t bytes = (size_t)extent(p->M, p->ldc, p->N) * sizeof(float);
    float *c = malloc(bytes > 0 ? bytes : 1);
    ck_assert_ptr_nonnull(c);
    memcpy(c, p->c, bytes);
    const float *from = p->start == NOTHING ? NULL : p->start == ITSELF ? c : p->c;
    for (int64_t i = 0; i < p->M * p->N && p->start != ITSELF; i++)
        c[i / p->N * p->ldc + i % p->N] = NAN;
    mmi_gemm(x, p->ta, p->tb, p->M, p->N, p->K, p->a, p->lda, p->b, p->ldb, from, c, p->ldc);
    return c;
}

/* All paths of floats, each with a pool of its own, so that they can be given the same problems. */
enum { MOST_PATHS = 16 };
typedef struct solvers {
    int count;
    const mmi_path *path[MOST_PATHS];
    mmi_exec x[MOST_PATHS];
} solvers;

static solvers make_solvers(int threads)
{
    solvers all = { 0 };
    EACH_PATH_OF_FLOATS (path) {
        ck_assert_int_lt(all.count, MOST_PATHS);
        all.path[all.count] = path;
        all.x[all.count++] = exec_create(path, threads, FOR_PRODUCTS);
    }
    return all;
}

static void free_solvers(solvers *all)
{
    for (int n = 0; n < all->count; n++)
        exec_free(&all->x[n]);
}

static void check_between_rows(const problem *p, const float *c, const mmi_path *path)
{
    for (int64_t i = 0; i + 1 < p->M; i++)
        for (int64_t j = p->N; j < p->ldc; j++)
            expect(c[i * p->ldc + j] == p->c[i * p->ldc + j], "%s wrote between the rows", path->name);
}

/* Some elements, all of them where there are few, against double precision. */
static void check_solution(const problem *p, const float *c, const mmi_path *path, test_rng *rng)
{
    int64_t all = p->M * p->N, some = all < 400 ? all : 400;
    for (int64_t n = 0; n < some; n++) {
        int64_t at = some == all ? n : (int64_t)(rng_uniform(rng) * (double)all), i = at / p->N, j = at % p->N;
        double want = p->start != NOTHING ? p->c[i * p->ldc + j] : 0, size = fabs(want);
        for (int64_t k = 0; k < p->K; k++) {
            double term =
                (double)p->a[p->ta ? k * p->lda + i : i * p->lda + k] * p->b[p->tb ? j * p->ldb + k : k * p->ldb + j];
            want += term;
            size += fabs(term);
        }
        /* blocked sums round far fewer than K times, and up and down alike */
        ck_near(c[i * p->ldc + j], want, size * 100 * ROUNDING, path, "mmi_gemm", i * 10000 + j);
    }
    check_between_rows(p, c, path);
}

/* Few rows meet fewer than 2^17 numbers of B in one piece: shapes here have more, too. */
START_TEST(products_of_every_kind_agree_with_double_precision)
{
    static const int64_t shapes[][3] = {
        { 1, 1, 1 },     { 1, 300, 70 }, { 8, 33, 512 },  { 9, 33, 100 },   { 3, 700, 129 },
        { 700, 3, 129 }, { 300, 1, 40 }, { 130, 260, 0 }, { 257, 255, 65 }, { 512, 128, 96 },
        { 31, 640, 17 }, { 0, 5, 5 },    { 5, 0, 5 },     { 520, 70, 300 }, { 2090, 36, 40 },
        { 1, 700, 200 }, { 7, 1030, 133 }, { 13, 700, 200 },  { 31, 100, 520 }, { 11, 20, 1300 },
    };
    test_rng rng = { 1 };
    solvers all = make_solvers(2);
    for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++)
        for (int variant = 0; variant < VARIANTS; variant++) {
            problem p = make_problem(random_floats, variant, shapes[s][0], shapes[s][1], shapes[s][2], &rng);
            for (int n = 0; n < all.count; n++) {
                float *c = solve(&p, &all.x[n]);
                check_solution(&p, c, all.path[n], &rng);
                free(c);
            }
            free_problem(&p);
        }
    free_solvers(&all);
}
END_TEST

#define THREAD_COUNTS 5

/* The same problem on every pool; the first one's bits are what the others must have. */
static void compare_bits(const mmi_exec x[THREAD_COUNTS], const problem *p, const mmi_path *path)
{
    float *first = solve(p, &x[0]);
    for (int t = 1; t < THREAD_COUNTS; t++) {
        float *c = solve(p, &x[t]);
        expect(memcmp(first, c, (size_t)extent(p->M, p->ldc, p->N) * sizeof(float)) == 0,
               "%s: %d threads have other bits", path->name, mmi_pool_threads(x[t].pool));
        free(c);
    }
    free(first);
}

START_TEST(products_have_the_same_bits_for_any_number_of_threads)
{
    static const int64_t shapes[][3] = {
        { 300, 300, 40 }, { 128, 512, 150 }, { 5, 1000, 100 },  { 533, 131, 33 },
        { 8, 100, 33 },   { 40, 2090, 33 },  { 130, 150, 600 }, { 1, 1030, 133 },
        { 6, 700, 200 },  { 21, 700, 200 },  { 12, 90, 1100 },
    };
    static const int threads[THREAD_COUNTS] = { 1, 2, 3, 8, 13 };
    test_rng rng = { 4 };
    EACH_PATH_OF_FLOATS (path) {
        mmi_exec x[THREAD_COUNTS];
        for (int t = 0; t < THREAD_COUNTS; t++)
            x[t] = exec_create(path, threads[t], FOR_PRODUCTS);
        for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++)
            for (int variant = 0; variant < VARIANTS; variant++) {
                problem p = make_problem(random_floats, variant, shapes[s][0], shapes[s][1], shapes[s][2], &rng);
                compare_bits(x, &p, path);
                free_problem(&p);
            }
        for (int t = 0; t < THREAD_COUNTS; t++)
            exec_free(&x[t]);
    }
}
END_TEST

/* to [M] += op(A) · v, of whole numbers; a [M, K], or [K, M] with `ta`. */
static void add_times(double *to, const float *a, int64_t lda, bool ta, int64_t M, int64_t K, const double *v)
{
    for (int64_t i = 0; i < M; i++)
        for (int64_t k = 0; k < K; k++)
            to[i] += (double)a[ta ? k * lda + i : i * lda + k] * v[k];
}

/* Of columns, never 0: a single wrong number is always seen, a row of them but once in so many times. Sums stay below
 * 2^53, and are exact. */
#define WEIGHTS (1 << 20)

/* All of C at the price of its factors: C · v = op(A) · (op(B) · v), with random weights v of its columns. */
typedef struct weighted {
    double *v, *want; /* [N], C · v [M] */
} weighted;

static weighted make_weighted(const problem *p, test_rng *rng)
{
    weighted w = { calloc((size_t)p->N, sizeof *w.v), calloc((size_t)p->M, sizeof *w.want) };
    double *bv = calloc((size_t)p->K, sizeof *bv);
    ck_assert(w.v && w.want && bv);
    for (int64_t j = 0; j < p->N; j++)
        w.v[j] = rng_between(rng, 1, WEIGHTS);
    add_times(bv, p->b, p->ldb, p->tb, p->K, p->N, w.v);
    add_times(w.want, p->a, p->lda, p->ta, p->M, p->K, bv);
    if (p->start != NOTHING)
        add_times(w.want, p->c, p->ldc, false, p->M, p->N, w.v);
    free(bv);
    return w;
}

static void check_all_whole(const problem *p, const weighted *w, const float *c, const mmi_path *path)
{
    double *got = calloc((size_t)p->M, sizeof *got);
    ck_assert_ptr_nonnull(got);
    add_times(got, c, p->ldc, false, p->M, p->N, w->v);
    for (int64_t i = 0; i < p->M; i++)
        ck_each(got[i] == w->want[i], "%s: start %d, row %d of [%d, %d, %d]", path->name, p->start, (int)i, (int)p->M,
                (int)p->N, (int)p->K);
    check_between_rows(p, c, path);
    free(got);
}

START_TEST(large_products_whose_last_slices_are_cut_again_are_right)
{
    static const int64_t shapes[][3] = { /* the last three are more than panels have room for, in both directions */
                                         { 1100, 520, 130 }, { 200, 1300, 200 }, { 1030, 300, 250 },
                                         { 700, 720, 600 },  { 672, 700, 1100 }, { 2070, 2060, 20 }
    };
    const int shape_count = (int)(sizeof shapes / sizeof shapes[0]);
    static const int variants[] = { 2 + 4 * NOTHING, 1 + 4 * ITSELF, 4 * ANOTHER };
    test_rng rng = { 8 };
    solvers all = make_solvers(3);
    for (int s = 0; s < shape_count; s++)
        for (int v = 0; v < 3; v++) {
            problem p = make_problem(random_whole, variants[v], shapes[s][0], shapes[s][1], shapes[s][2], &rng);
            weighted w = make_weighted(&p, &rng);
            for (int n = 0; n < all.count; n++) {
                float *c = solve(&p, &all.x[n]);
                check_all_whole(&p, &w, c, all.path[n]);
                free(c);
            }
            free(w.v);
            free(w.want);
            free_problem(&p);
        }
    free_solvers(&all);
}
END_TEST

/* Some elements against their exact sums of whole numbers. */
static void check_whole(const problem *p, const float *c, const mmi_exec *x, const mmi_path *path, test_rng *rng)
{
    for (int n = 0; n < 60; n++) {
        int64_t i = rng_between(rng, 0, p->M - 1), j = rng_between(rng, 0, p->N - 1);
        int64_t want = p->start != NOTHING ? (int64_t)p->c[i * p->ldc + j] : 0;
        for (int64_t k = 0; k < p->K; k++)
            want += (int64_t)p->a[p->ta ? k * p->lda + i : i * p->lda + k] *
                    (int64_t)p->b[p->tb ? j * p->ldb + k : k * p->ldb + j];
        expect(c[i * p->ldc + j] == (float)want, "%s, compute %d: C(%d, %d) is %g, not %d", path->name, x->compute,
               (int)i, (int)j, c[i * p->ldc + j], (int)want);
    }
}

START_TEST(products_along_more_numbers_than_panels_have_room_for_are_right)
{
    static const int32_t computes[] = { MM_F32, MM_BF16 };
    test_rng rng = { 9 };
    solvers all = make_solvers(3);
    for (int at = 0; at < 2 * 4; at++) {
        problem p = make_problem(random_whole, at % 4 + 4 * (at % STARTS), 34, 33, 33000, &rng);
        for (int n = 0; n < all.count; n++) {
            all.x[n].compute = computes[at / 4];
            float *c = solve(&p, &all.x[n]);
            check_whole(&p, c, &all.x[n], all.path[n], &rng);
            free(c);
        }
        free_problem(&p);
    }
    free_solvers(&all);
}
END_TEST

START_TEST(products_with_weights_of_every_dtype_agree)
{
    static const int64_t shapes[][3] = { { 1, 77, 64 },    { 8, 200, 33 }, { 9, 40, 50 },
                                         { 100, 130, 65 }, { 0, 4, 4 },    { 4, 0, 4 },
                                         { 1, 1030, 133 }, { 7, 700, 200 },
                                         { 13, 0, 200 } };
    test_rng rng = { 2 };
    EACH_PATH_OF_FLOATS (path) {
        mmi_exec x = exec_create(path, 2, FOR_PRODUCTS);
        for (int32_t dtype = MM_F32; dtype <= MM_F16; dtype++)
            for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++) {
                int64_t M = shapes[s][0], N = shapes[s][1], K = shapes[s][2];
                problem p = make_problem(random_floats, 2, M, N, K, &rng);
                float *w = random_floats(N * K, &rng), *panel = floats(N * K);
                void *narrow = malloc((size_t)(N * K) * mm_dtype_size(dtype) + 1);
                ck_assert_ptr_nonnull(narrow);
                x.k.narrow(narrow, w, dtype, N * K);
                x.k.widen(w, narrow, dtype, N * K);
                free(p.b);
                p.b = w;
                p.ldb = K;
                float *c = solve(&p, &x);
                mmi_gemm_weight(&x, M, N, K, mmi_operand_of(p.a, p.lda), narrow, dtype, dtype == MM_F32 ? NULL : panel,
                                c, p.ldc);
                check_solution(&p, c, path, &rng);
                free(narrow);
                free(panel);
                free(c);
                free_problem(&p);
            }
        exec_free(&x);
    }
}
END_TEST

/* Up to several panels of each. */
START_TEST(many_rows_meet_weights_of_two_bytes_as_they_do_the_same_numbers_in_four)
{
    static const int64_t shapes[][3] = { { 9, 40, 50 },      { 23, 300, 515 },  { 12, 1100, 1301 },
                                         { 30, 20, 0 },      { 70, 300, 515 },  { 65, 1100, 1301 },
                                         { 32, 40, 256 },    { 33, 40, 300 },   { 64, 30, 512 } };
    static const int32_t computes[] = { MM_F32, MM_BF16, MM_F16 };
    test_rng rng = { 3 };
    EACH_PATH_OF_FLOATS (path)
        for (int at = 0; at < 2 * 3 * 9; at++) {
            const int64_t *shape = shapes[at / 6], M = shape[0], N = shape[1], K = shape[2];
            int32_t dtype = at % 2 ? MM_BF16 : MM_F16;
            mmi_exec x = exec_create(path, 2, FOR_PRODUCTS);
            x.compute = computes[at / 2 % 3];
            float *a = random_floats(M * K, &rng), *w = random_floats(N * K, &rng), *panel = floats(N * K);
            float *got = floats(M * N), *want = floats(M * N);
            void *narrow = malloc((size_t)(N * K) * mm_dtype_size(dtype) + 1);
            ck_assert_ptr_nonnull(narrow);
            x.k.narrow(narrow, w, dtype, N * K);
            x.k.widen(w, narrow, dtype, N * K);
            mmi_gemm_weight(&x, M, N, K, mmi_operand_of(a, K), narrow, dtype, panel, got, N);
            mmi_gemm(&x, false, true, M, N, K, a, K, w, K, NULL, want, N);
            ck_assert_msg(memcmp(got, want, (size_t)(M * N) * sizeof *got) == 0, "%s: %d rows of %d numbers in %s",
                          path->name, (int)M, (int)K, mm_dtype_name(dtype));
            free(a);
            free(w);
            free(panel);
            free(got);
            free(want);
            free(narrow);
            exec_free(&x);
        }
}
END_TEST

START_TEST(blas_is_held_at_one_thread_and_given_back)
{
#if MM_HAVE_OPENBLAS
    openblas_set_num_threads(2);
    int before = openblas_get_num_threads();
    mmi_blas_enter();
    ck_assert_int_eq(openblas_get_num_threads(), 1);
    mmi_blas_enter();
    ck_assert_int_eq(openblas_get_num_threads(), 1);
    mmi_blas_leave();
    ck_assert_int_eq(openblas_get_num_threads(), 1);
    mmi_blas_leave();
    ck_assert_int_eq(openblas_get_num_threads(), before);
    openblas_set_num_threads(1);
    mmi_blas_enter();
    mmi_blas_leave();
    ck_assert_int_eq(openblas_get_num_threads(), 1);
#else
    mmi_blas_enter();
    mmi_blas_leave();
#endif
}
END_TEST

/* What a call of another thread, or one around the fork, held at one thread. */
START_TEST(a_forked_child_has_the_hosts_blas_setting_behind_its_first_product)
{
#if MM_HAVE_OPENBLAS
    openblas_set_num_threads(2);
    int before = openblas_get_num_threads();
    for (int within = 0; within < 2; within++) {
        mmi_blas_enter();
        pid_t child = fork();
        if (child == 0) {
            if (!within)
                mmi_blas_enter();
            int held = openblas_get_num_threads();
            mmi_blas_leave();
            mmi_blas_enter();
            held += openblas_get_num_threads();
            mmi_blas_leave();
            _exit(held == 2 && openblas_get_num_threads() == before ? 0 : 1);
        }
        int status = 1;
        ck_assert_int_eq(waitpid(child, &status, 0), child);
        ck_assert_int_eq(status, 0);
        mmi_blas_leave();
        ck_assert_int_eq(openblas_get_num_threads(), before);
    }
#endif
}
END_TEST

START_TEST(a_product_leaves_the_hosts_blas_setting_alone)
{
#if MM_HAVE_OPENBLAS
    test_rng rng = { 3 };
    openblas_set_num_threads(2);
    int before = openblas_get_num_threads();
    EACH_PATH (path) {
        mmi_exec x = exec_create(path, 2, FOR_PRODUCTS);
        problem p = make_problem(random_floats, 0, 64, 64, 64, &rng);
        free(solve(&p, &x));
        ck_assert_int_eq(openblas_get_num_threads(), before);
        free_problem(&p);
        exec_free(&x);
    }
#endif
}
END_TEST

static void enter_and_leave(void *arg, int64_t piece, int worker)
{
    (void)arg, (void)piece, (void)worker;
    mmi_blas_enter();
    mmi_blas_enter();
    mmi_blas_leave();
    mmi_blas_leave();
}

START_TEST(blas_may_be_entered_by_many_threads_at_once)
{
#if MM_HAVE_OPENBLAS
    openblas_set_num_threads(2);
    int before = openblas_get_num_threads();
#endif
    mmi_pool *pool;
    ck_ok(mmi_pool_create(4, &pool));
    mmi_pool_run(pool, 2000, enter_and_leave, NULL);
    mmi_pool_free(pool);
#if MM_HAVE_OPENBLAS
    ck_assert_int_eq(openblas_get_num_threads(), before);
#endif
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("backend/gemm");
    TCase *tests = tcase_create("all");
    tcase_set_timeout(tests, 120);
    tcase_add_test(tests, products_of_every_kind_agree_with_double_precision);
    tcase_add_test(tests, products_have_the_same_bits_for_any_number_of_threads);
    tcase_add_test(tests, large_products_whose_last_slices_are_cut_again_are_right);
    tcase_add_test(tests, products_along_more_numbers_than_panels_have_room_for_are_right);
    tcase_add_test(tests, products_with_weights_of_every_dtype_agree);
    tcase_add_test(tests, many_rows_meet_weights_of_two_bytes_as_they_do_the_same_numbers_in_four);
    tcase_add_test(tests, blas_is_held_at_one_thread_and_given_back);
    tcase_add_test(tests, a_forked_child_has_the_hosts_blas_setting_behind_its_first_product);
    tcase_add_test(tests, a_product_leaves_the_hosts_blas_setting_alone);
    tcase_add_test(tests, blas_may_be_entered_by_many_threads_at_once);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
