/* Choosing among many numbers, every table against the obvious way. */
#include <float.h>
#include <stdlib.h>
#include <string.h>

#include "tables.h"

/* n logits, some of them equal, infinite or 0, and what they weigh. */
typedef struct numbers {
    float *x, *p;
} numbers;

static numbers numbers_of(int64_t n, test_rng *rng)
{
    numbers a = { edge_random(0, n, rng, 3), edge_random(1, n, rng, 1) };
    for (int64_t i = 0; i < n; i++) {
        int kind = rng_between(rng, 0, 9);
        a.p[i] = kind == 0 ? 0 : fabsf(a.p[i]);
        a.x[i] = kind == 1 ? -INFINITY : kind == 2 ? 0 : kind == 3 ? -1 : -fabsf(a.x[i]);
    }
    return a;
}

/* One of them, or a number that none of them may be. */
static float limit_of(const float *x, int64_t n, test_rng *rng)
{
    static const float others[] = { -INFINITY, INFINITY, 0, -1, -1.5f, -FLT_MAX };
    return n > 0 && rng_between(rng, 0, 1) ? x[rng_between(rng, 0, (int)n - 1)] : others[rng_between(rng, 0, 5)];
}

START_TEST(the_largest_of_any_number_is_found)
{
    test_rng rng = { 800 };
    EACH_TABLE (k)
        for (int at = 0; at < awkward_count; at++)
            for (int round = 0; round < 20; round++) {
                const int64_t n = awkward[at];
                numbers a = numbers_of(n, &rng);
                float want = -INFINITY;
                for (int64_t i = 0; i < n; i++)
                    want = a.x[i] > want ? a.x[i] : want;
                expect(k->largest(a.x, n) == want, "%s: of %lld", k->name, (long long)n);
                edge_check();
            }
}
END_TEST

START_TEST(what_is_not_below_a_limit_is_weighed_and_counted)
{
    test_rng rng = { 801 };
    EACH_TABLE (k)
        for (int at = 0; at < awkward_count + 1; at++)
            for (int round = 0; round < 20; round++) {
                const int64_t n = at < awkward_count ? awkward[at] : 6401;
                numbers a = numbers_of(n, &rng);
                const float least = limit_of(a.x, n, &rng);
                int64_t count = -1, wanted = 0;
                double want = 0;
                for (int64_t i = 0; i < n; i++) {
                    wanted += a.x[i] >= least;
                    want += a.x[i] >= least ? (double)a.p[i] : 0;
                }
                double got = k->weigh_from(a.p, a.x, least, n, &count);
                expect(count == wanted, "%s: %lld of %lld from %g, not %lld", k->name, (long long)count, (long long)n,
                       (double)least, (long long)wanted);
                ck_near(got, want, 1e-13 * (double)n, k, "weigh_from", n);
                edge_check();
            }
}
END_TEST

START_TEST(what_is_below_either_limit_loses_its_weight)
{
    test_rng rng = { 802 };
    EACH_TABLE (k)
        for (int at = 0; at < awkward_count; at++)
            for (int round = 0; round < 20; round++) {
                const int64_t n = awkward[at];
                numbers a = numbers_of(n, &rng);
                const float least = limit_of(a.x, n, &rng), least_p = rng_between(&rng, 0, 1) ? 0 : 0.3f;
                float *want = edge_floats(2, n);
                double sum = 0;
                for (int64_t i = 0; i < n; i++)
                    sum += (double)(want[i] = a.x[i] >= least && a.p[i] >= least_p ? a.p[i] : 0);
                ck_near(k->keep_from(a.p, a.x, least, least_p, n), sum, 1e-13 * (double)n, k, "keep_from", n);
                expect(memcmp(a.p, want, (size_t)n * sizeof *want) == 0, "%s: of %lld from %g, %g", k->name,
                       (long long)n, (double)least, (double)least_p);
                edge_check();
            }
}
END_TEST

START_TEST(numbers_in_a_range_are_found_in_order_up_to_as_many_as_are_wanted)
{
    test_rng rng = { 803 };
    EACH_TABLE (k)
        for (int at = 0; at < awkward_count; at++)
            for (int round = 0; round < 40; round++) {
                const int64_t n = awkward[at], most = round % 2 ? n : rng_between(&rng, 0, 5);
                numbers a = numbers_of(n, &rng);
                const float low = limit_of(a.x, n, &rng), high = round % 3 ? limit_of(a.x, n, &rng) : INFINITY;
                int32_t *got = edge_place(2, n * (int64_t)sizeof *got);
                const int64_t count = k->find(got, a.x, low, high, n, most);
                int64_t i = 0, wanted = 0;
                for (; i < n; i++)
                    wanted += a.x[i] >= low && a.x[i] <= high;
                expect(count == wanted || (count > most && count < wanted), "%s: %lld of %lld, not %lld", k->name,
                       (long long)count, (long long)n, (long long)wanted);
                i = 0;
                for (int64_t j = 0; j < count; j++, i++) {
                    while (i < n && !(a.x[i] >= low && a.x[i] <= high))
                        i++;
                    expect(got[j] == i, "%s: number %lld found is %d, not %lld", k->name, (long long)j, (int)got[j],
                           (long long)i);
                }
                edge_check();
            }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("backend/choose");
    TCase *tests = tcase_create("all");
    tcase_set_timeout(tests, 60);
    tcase_add_test(tests, the_largest_of_any_number_is_found);
    tcase_add_test(tests, what_is_not_below_a_limit_is_weighed_and_counted);
    tcase_add_test(tests, what_is_below_either_limit_loses_its_weight);
    tcase_add_test(tests, numbers_in_a_range_are_found_in_order_up_to_as_many_as_are_wanted);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
