#include "nn/arrays.h"
#include "nn/exec.h"
#include "nn/vector.h"

/* Around one piece of 2^15 numbers, and several. */
static const int64_t lengths[] = { 0, 1, 37, 32767, 32768, 32769, 100001 };
enum { LENGTHS = sizeof lengths / sizeof *lengths, BEYOND = 8 };

typedef struct vector {
    int64_t n;
    float *in, *before, *want, *y; /* [n + BEYOND]; what lies beyond is nobody's */
} vector;

static vector vector_of(int64_t n, test_rng *rng)
{
    vector v = { .n = n, .in = take_random(rng, n + BEYOND, 1), .before = take_random(rng, n + BEYOND, 1) };
    v.want = take_copy(v.before, n + BEYOND);
    v.y = take_copy(v.before, n + BEYOND);
    return v;
}

static void check(const vector *v, const char *what, const mmi_exec *x)
{
    ck_assert_msg(same_bits(v->y, v->want, v->n + BEYOND), "%s, %d threads: %s %lld", x->k.name,
                  mmi_pool_threads(x->pool), what, (long long)v->n);
    memcpy(v->y, v->before, (size_t)(v->n + BEYOND) * sizeof *v->y);
    memcpy(v->want, v->before, (size_t)(v->n + BEYOND) * sizeof *v->want);
}

START_TEST(long_vectors_are_those_of_the_kernels_in_any_number_of_pieces)
{
    test_rng rng = { 600 };
    EACH_PATH_OF_FLOATS (path)
        for (int threads = 1; threads <= 3; threads++) {
            mmi_exec x = exec_create(path, threads, 1);
            for (int i = 0; i < LENGTHS; i++) {
                vector v = vector_of(lengths[i], &rng);
                const size_t bytes = (size_t)v.n * sizeof(float);
                memcpy(v.want, v.in, bytes);
                mmi_vector_copy(&x, v.y, v.in, v.n);
                check(&v, "copy", &x);
                mmi_vector_copy(&x, v.y, v.y, v.n);
                check(&v, "copy to itself", &x);
                memset(v.want, 0, bytes);
                mmi_vector_zero(&x, v.y, v.n);
                check(&v, "zero", &x);
                x.k.axpy(v.want, -0.7f, v.in, v.n);
                mmi_vector_axpy(&x, v.y, -0.7f, v.in, v.n);
                check(&v, "axpy", &x);
                x.k.scale(v.want, -0.7f, v.n);
                mmi_vector_scale(&x, v.y, -0.7f, v.n);
                check(&v, "scale", &x);
                mmi_vector_scale(&x, v.y, 1, v.n);
                check(&v, "scale by 1", &x);
                release_from(v.in);
            }
            exec_free(&x);
        }
}
END_TEST

/* Rows and columns, and how far apart rows lie in y and in what is read; 0: one row for all. */
static const struct {
    int64_t N, C, ldy, ldin;
} shapes[] = { { 0, 5, 5, 5 }, { 1, 1, 1, 1 }, { 33, 600, 600, 600 }, { 70, 7, 9, 11 }, { 2000, 37, 40, 0 } };

START_TEST(rows_that_lie_apart_are_copied_added_and_gathered_one_by_one)
{
    test_rng rng = { 601 };
    EACH_PATH_OF_FLOATS (path)
        for (int threads = 1; threads <= 3; threads++) {
            mmi_exec x = exec_create(path, threads, 1);
            for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
                const int64_t N = shapes[i].N, C = shapes[i].C, ldy = shapes[i].ldy, ldin = shapes[i].ldin;
                vector v = vector_of(N * (ldy > ldin ? ldy : ldin) + C, &rng);
                int32_t rows[2000];
                for (int64_t r = 0; r < N; r++) {
                    rows[r] = (int32_t)(N - 1 - r);
                    memcpy(v.want + r * ldy, v.in + r * ldin, (size_t)C * sizeof(float));
                }
                mmi_rows_copy(&x, v.y, ldy, v.in, ldin, N, C);
                check(&v, "rows copied", &x);
                for (int64_t r = 0; r < N; r++)
                    x.k.add(v.want + r * ldy, v.in + r * ldin, C);
                mmi_rows_add(&x, v.y, ldy, v.in, ldin, N, C);
                check(&v, "rows added", &x);
                for (int64_t r = 0; r < N; r++)
                    memcpy(v.want + r * C, v.in + rows[r] * C, (size_t)C * sizeof(float));
                mmi_rows_gather(&x, v.y, v.in, rows, N, C);
                check(&v, "rows gathered", &x);
                release_from(v.in);
            }
            exec_free(&x);
        }
}
END_TEST

int main(void)
{
    TCase *tests;
    Suite *suite = plain_suite("nn/vector", &tests);
    tcase_add_test(tests, long_vectors_are_those_of_the_kernels_in_any_number_of_pieces);
    tcase_add_test(tests, rows_that_lie_apart_are_copied_added_and_gathered_one_by_one);
    return run_suite(suite);
}
