/* Dropout: what is kept, how often, and that nothing but seed, stream and index decides. */
#include "nn/arrays.h"
#include "nn/dropout.h"
#include "nn/exec.h"

#define MANY 200000

static float *row_of(int64_t n, uint64_t first, mmi_dropout d)
{
    float *y = take_floats(n, 1);
    mmi_kernels k;
    mmi_kernels_init(&k, mmi_cpu_flags());
    mmi_dropout_row(&k, y, n, first, d);
    return y;
}

START_TEST(the_kept_share_and_the_sum_are_right_within_chance)
{
    static const float rates[] = { 0.001f, 0.1f, 0.25f, 0.5f, 0.9f, 0.999f };
    for (size_t i = 0; i < sizeof rates / sizeof *rates; i++) {
        double p = rates[i], deviation = sqrt(p * (1 - p) * MANY), dropped = 0;
        const float *y = row_of(MANY, 0, (mmi_dropout){ rates[i], 3 + i, 9 });
        for (int64_t n = 0; n < MANY; n++) {
            ck_each(y[n] == 0 || y[n] == 1 / (1 - rates[i]), "number %lld is %g", (long long)n, (double)y[n]);
            dropped += y[n] == 0;
        }
        ck_assert_double_eq_tol(dropped, p * MANY, 5 * deviation);
    }
}
END_TEST

/* Pairs near each other are dropped together as often as chance has it. */
START_TEST(neighbours_are_dropped_independently)
{
    const double p = 0.3, deviation = sqrt(p * p * (1 - p * p) * MANY);
    const float *y = row_of(MANY + 64, 0, (mmi_dropout){ 0.3f, 1, 2 });
    for (int64_t lag = 1; lag <= 64; lag++) {
        double both = 0;
        for (int64_t n = 0; n < MANY; n++)
            both += y[n] == 0 && y[n + lag] == 0;
        ck_assert_double_eq_tol(both, p * p * MANY, 5 * deviation);
    }
}
END_TEST

START_TEST(seeds_and_streams_have_masks_of_their_own)
{
    const mmi_dropout all[] = { { 0.5f, 1, 2 }, { 0.5f, 2, 1 }, { 0.5f, 1, 3 }, { 0.5f, 1ull << 40, 2 }, { 0.5f, 1, 2ull << 32 } };
    for (size_t a = 0; a < sizeof all / sizeof *all; a++)
        for (size_t b = 0; b < a; b++) {
            const float *x = row_of(MANY, 0, all[a]), *y = row_of(MANY, 0, all[b]);
            double equal = 0;
            for (int64_t n = 0; n < MANY; n++)
                equal += x[n] == y[n];
            ck_assert_double_eq_tol(equal, 0.5 * MANY, 5 * sqrt(0.25 * MANY));
        }
}
END_TEST

START_TEST(an_element_does_not_know_where_its_row_begins)
{
    const mmi_dropout d = { 0.4f, 8, 1 };
    const uint64_t starts[] = { 0, 1, 2, 3, 4, 17, 4093, (1ull << 40) - 3, UINT64_MAX - 70 };
    for (size_t s = 0; s < sizeof starts / sizeof *starts; s++) {
        const float *whole = row_of(64, starts[s], d);
        for (uint64_t i = 0; i < 64; i++) {
            const float *rest = row_of(64 - (int64_t)i, starts[s] + i, d);
            ck_assert(same_bits(rest, whole + i, 64 - (int64_t)i));
        }
    }
}
END_TEST

START_TEST(threads_and_kernels_do_not_change_the_mask)
{
    test_rng rng = { 4 };
    const int64_t sizes[] = { 0, 1, 16383, 16384, 16385, 50001 };
    mmi_kernels portable;
    mmi_kernels_init_c(&portable);
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
        for (int threads = 1; threads <= 3; threads++) {
            const mmi_dropout d = { 0.2f, 11, 12 };
            float *x = take_random(&rng, sizes[s], 1), *y = take_copy(x, sizes[s]);
            mmi_exec exec = exec_create(mmi_path_get(mmi_path_count() - 1), threads, FOR_PRODUCTS);
            mmi_dropout_apply(&exec, y, sizes[s], d);
            mmi_dropout_row(&portable, x, sizes[s], 0, d);
            ck_assert(same_bits(x, y, sizes[s]));
            exec_free(&exec);
        }
}
END_TEST

START_TEST(a_rate_of_zero_changes_no_bit)
{
    test_rng rng = { 5 };
    float *x = take_random(&rng, 5000, 1), *y = take_copy(x, 5000);
    x[3] = y[3] = NAN;
    mmi_exec exec = exec_create(mmi_path_get(0), 2, FOR_PRODUCTS);
    mmi_dropout_apply(&exec, y, 5000, (mmi_dropout){ 0, 1, 2 });
    mmi_dropout_row(&exec.k, y, 5000, 0, (mmi_dropout){ 0, 1, 2 });
    ck_assert(same_bits(x, y, 5000));
    exec_free(&exec);
}
END_TEST

int main(void)
{
    TCase *tests;
    Suite *suite = plain_suite("nn/dropout", &tests);
    tcase_add_test(tests, the_kept_share_and_the_sum_are_right_within_chance);
    tcase_add_test(tests, neighbours_are_dropped_independently);
    tcase_add_test(tests, seeds_and_streams_have_masks_of_their_own);
    tcase_add_test(tests, an_element_does_not_know_where_its_row_begins);
    tcase_add_test(tests, threads_and_kernels_do_not_change_the_mask);
    tcase_add_test(tests, a_rate_of_zero_changes_no_bit);
    return run_suite(suite);
}
