/* Attention of a few rows of queries, every table against double precision. */
#include <stdlib.h>
#include <string.h>

#include "base/dtype.h"
#include "tables.h"

static const int32_t dtypes[] = { MM_F32, MM_BF16, MM_Q8_0 };
static const int64_t widths[] = { 32, 64, 96, 128, 160, 224, MMI_FEW_WIDTH };
enum { MOST_ROWS = 9, MOST_KEYS = 40, WIDTHS = sizeof widths / sizeof *widths };

/* N keys (or values) of D numbers, `ld` apart, in slot 1 as `dtype` and in slot 2 as float32. */
typedef struct keys {
    int64_t N, D, ld;
    int32_t dtype;
    void *narrow;
    float *wide;
} keys;

static keys keys_of(const mmi_kernels *k, int round, test_rng *rng)
{
    keys a = { rng_between(rng, 0, MOST_KEYS), widths[rng_between(rng, 0, WIDTHS - 1)], 0, dtypes[round % 3], 0, 0 };
    a.ld = a.D + rng_between(rng, 0, 2) * (a.dtype == MM_Q8_0 ? MMI_BLOCK : 1);
    const int64_t n = a.N > 0 ? (a.N - 1) * a.ld + a.D : 0;
    a.wide = edge_random(2, n, rng, 1);
    a.narrow = edge_place(1, (int64_t)mmi_dtype_bytes(a.dtype, n));
    k->narrow(a.narrow, a.wide, a.dtype, n);
    k->widen(a.wide, a.narrow, a.dtype, n);
    return a;
}

START_TEST(scores_are_the_products_of_queries_and_keys)
{
    test_rng rng = { 820 };
    EACH_TABLE (k)
        for (int round = 0; round < 400; round++) {
            keys a = keys_of(k, round, &rng);
            const int64_t M = rng_between(&rng, 0, MOST_ROWS), lds = a.N + rng_between(&rng, 0, 3);
            const int64_t count = M > 0 ? (M - 1) * lds + a.N : 0;
            float *q = edge_random(0, M * a.D, &rng, 1), *s = edge_random(3, count, &rng, 1),
                  *same = edge_floats(4, count);
            memcpy(same, s, (size_t)count * sizeof *s);
            k->few_scores(s, lds, q, a.narrow, a.dtype, a.ld, M, a.N, a.D, a.narrow);
            k->few_scores(same, lds, q, a.wide, MM_F32, a.ld, M, a.N, a.D, NULL);
            edge_check();
            expect(a.dtype == MM_BF16 || memcmp(s, same, (size_t)count * sizeof *s) == 0,
                   "%s: %s has other bits than what it widens to", k->name, mm_dtype_name(a.dtype));
            for (int64_t i = 0; i < M; i++)
                for (int64_t j = 0; j < a.N; j++) {
                    double want = 0;
                    for (int64_t d = 0; d < a.D; d++)
                        want += (double)q[i * a.D + d] * a.wide[j * a.ld + d];
                    ck_near(s[i * lds + j], want, (double)(a.D + 8) * ROUNDING * (double)a.D, k, "score", i * 1000 + j);
                }
        }
}
END_TEST

START_TEST(values_are_added_up_by_their_weights)
{
    test_rng rng = { 821 };
    EACH_TABLE (k)
        for (int round = 0; round < 400; round++) {
            keys a = keys_of(k, round, &rng);
            const int64_t M = rng_between(&rng, 0, MOST_ROWS), lds = a.N + rng_between(&rng, 0, 3);
            float *s = edge_random(0, M > 0 ? (M - 1) * lds + a.N : 0, &rng, 1);
            float *before = edge_random(3, M * a.D, &rng, 1), *out = edge_floats(4, M * a.D),
                  *same = edge_floats(5, M * a.D);
            const size_t bytes = (size_t)(M * a.D) * sizeof *out;
            memcpy(out, before, bytes);
            memcpy(same, before, bytes);
            k->few_values(out, s, lds, a.narrow, a.dtype, a.ld, M, a.N, a.D, a.narrow);
            k->few_values(same, s, lds, a.wide, MM_F32, a.ld, M, a.N, a.D, NULL);
            edge_check();
            expect(memcmp(out, same, bytes) == 0, "%s: %s has other bits than what it widens to", k->name,
                   mm_dtype_name(a.dtype));
            for (int64_t i = 0; i < M; i++)
                for (int64_t d = 0; d < a.D; d++) {
                    double want = before[i * a.D + d];
                    for (int64_t j = 0; j < a.N; j++)
                        want += (double)s[i * lds + j] * a.wide[j * a.ld + d];
                    ck_near(out[i * a.D + d], want, (double)(a.N + 2) * ROUNDING * (double)(a.N + 1), k, "value",
                            i * 1000 + d);
                }
        }
}
END_TEST

START_TEST(a_nan_reaches_its_row_or_key_and_no_other)
{
    enum { M = 6, N = 21, D = 64 };
    test_rng rng = { 822 };
    EACH_TABLE (k)
        for (int at = 0; at < 3; at++) {
            float *q = edge_random(0, M * D, &rng, 1), *k_or_v = edge_random(1, N * D, &rng, 1), s[M * N],
                  out[M * D] = { 0 };
            if (at == 0)
                q[3 * D + 7] = NAN;
            else
                k_or_v[5 * D + 33] = at == 1 ? NAN : INFINITY;
            k->few_scores(s, N, q, k_or_v, MM_F32, D, M, N, D, NULL);
            for (int i = 0; i < M; i++)
                for (int j = 0; j < N; j++)
                    expect(isfinite(s[i * N + j]) == (at == 0 ? i != 3 : j != 5), "%s: score %d, %d is %g", k->name, i,
                           j, (double)s[i * N + j]);
            float *weights = edge_random(2, M * N, &rng, 1);
            if (at == 0)
                weights[3 * N + 7] = NAN;
            k->few_values(out, weights, N, k_or_v, MM_F32, D, M, N, D, NULL);
            for (int i = 0; i < M; i++)
                for (int d = 0; d < D; d++)
                    expect(isfinite(out[i * D + d]) == (at == 0 ? i != 3 : d != 33), "%s: value %d, %d is %g", k->name,
                           i, d, (double)out[i * D + d]);
        }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("backend/attention");
    TCase *tests = tcase_create("all");
    tcase_set_timeout(tests, 60);
    tcase_add_test(tests, scores_are_the_products_of_queries_and_keys);
    tcase_add_test(tests, values_are_added_up_by_their_weights);
    tcase_add_test(tests, a_nan_reaches_its_row_or_key_and_no_other);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
