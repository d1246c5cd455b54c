/* The source of randomness: its published answers, and that what is built on it is what it claims to be. */
#define _POSIX_C_SOURCE 200809L
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/random.h"
#include "base/secret.h"
#include "support.h"

/* Known answers of Philox4x32-10: all zeros, all ones, the digits of pi. */
START_TEST(blocks_agree_with_the_published_vectors)
{
    static const struct {
        uint64_t seed, stream, index;
        uint32_t block[4];
    } known[] = {
        { 0, 0, 0, { 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8 } },
        { UINT64_MAX, UINT64_MAX, UINT64_MAX, { 0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd } },
        { 0x299f31d0a4093822,
          0x0370734413198a2e,
          0x85a308d3243f6a88,
          { 0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1 } },
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        uint32_t block[4];
        mmi_random_block(block, known[i].seed, known[i].stream, known[i].index);
        for (size_t j = 0; j < 4; j++)
            ck_assert_uint_eq(block[j], known[i].block[j]);
    }
}
END_TEST

START_TEST(seed_stream_and_index_each_matter_in_both_halves)
{
    const uint64_t ones[] = { 1, (uint64_t)1 << 32 };
    uint32_t base[4], other[4];
    mmi_random_block(base, 5, 6, 7);
    for (size_t i = 0; i < 6; i++) {
        uint64_t add = ones[i % 2];
        mmi_random_block(other, 5 + (i / 2 == 0) * add, 6 + (i / 2 == 1) * add, 7 + (i / 2 == 2) * add);
        ck_assert(memcmp(base, other, sizeof base) != 0);
    }
    ck_assert_uint_eq(MMI_STREAM(MMI_STREAM_SHUFFLE, 7), ((uint64_t)2 << 32) + 7);
    ck_assert_uint_eq(MMI_STREAM(MMI_STREAM_INIT, -1), 0x1ffffffff);
}
END_TEST

START_TEST(uniform_numbers_fill_the_unit_interval_evenly)
{
    enum { N = 200000, BINS = 20 };
    int bins[BINS] = { 0 };
    double sum = 0;
    for (uint64_t i = 0; i < N; i++) {
        double u = mmi_random_uniform(3, 4, i);
        if (!(u >= 0 && u < 1))
            ck_abort_msg("number %llu is %g", (unsigned long long)i, u);
        sum += u;
        bins[(int)(u * BINS)]++;
    }
    ck_assert_double_eq_tol(sum / N, 0.5, 5 * sqrt(1.0 / 12 / N)); /* five deviations of the mean */
    for (int b = 0; b < BINS; b++)
        ck_assert_double_eq_tol(bins[b], N / BINS, 5 * sqrt((double)N / BINS));
}
END_TEST

START_TEST(normal_numbers_have_the_normal_s_moments_and_tails)
{
    enum { N = 200000 };
    float *x = mmi_alloc(N, sizeof *x);
    ck_assert_ptr_nonnull(x);
    mmi_random_normal(x, N, 2.0f, 11, 12, 0);
    double m1 = 0, m2 = 0, m3 = 0, m4 = 0, beyond = 0;
    for (int i = 0; i < N; i++) {
        double z = x[i] / 2.0;
        ck_each(isfinite(z), "number %d is %g", i, z);
        m1 += z / N;
        m2 += z * z / N;
        m3 += z * z * z / N;
        m4 += z * z * z * z / N;
        beyond += fabs(z) > 2;
    }
    ck_assert_double_eq_tol(m1, 0, 5 * sqrt(1.0 / N));
    ck_assert_double_eq_tol(m2, 1, 5 * sqrt(2.0 / N));
    ck_assert_double_eq_tol(m3, 0, 5 * sqrt(15.0 / N));
    ck_assert_double_eq_tol(m4, 3, 5 * sqrt(96.0 / N));
    ck_assert_double_eq_tol(beyond / N, 0.0455, 0.0025);
    mmi_free(x);
}
END_TEST

START_TEST(a_normal_number_depends_on_its_place_alone)
{
    float whole[101], part[101];
    mmi_random_normal(whole, 101, 1, 9, 8, 0);
    for (uint64_t first = 0; first < 101; first++)
        for (int64_t n = 0; n <= 101 - (int64_t)first && n < 5; n++) {
            memset(part, 0, sizeof part);
            mmi_random_normal(part, n, 1, 9, 8, first);
            ck_assert(memcmp(part, whole + first, (size_t)n * sizeof *part) == 0);
            ck_assert(part[n] == 0);
        }
}
END_TEST

START_TEST(permute_visits_every_index_once)
{
    static const uint64_t sizes[] = {
        1, 2, 3, 4, 5, 7, 8, 15, 16, 17, 63, 64, 65, 100, 255, 256, 257, 1000, 4097, 30011
    };
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        uint64_t n = sizes[i];
        unsigned char *seen = mmi_calloc(n, 1);
        for (uint64_t index = 0; index < n; index++) {
            uint64_t to = mmi_random_permute(index, n, 42, 43);
            if (to >= n || seen[to]++)
                ck_abort_msg("of %llu, %llu goes to %llu", (unsigned long long)n, (unsigned long long)index,
                             (unsigned long long)to);
        }
        mmi_free(seen);
    }
}
END_TEST

START_TEST(permutations_of_large_ranges_stay_inside_and_have_no_repeats)
{
    static const uint64_t sizes[] = { UINT64_C(1) << 32, (UINT64_C(1) << 40) - 1, (UINT64_C(1) << 61) + 12345 };
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        uint64_t images[200];
        for (uint64_t index = 0; index < 200; index++) {
            images[index] = mmi_random_permute(index * 3, sizes[i], 1, 2);
            ck_assert_uint_lt(images[index], sizes[i]);
            for (uint64_t before = 0; before < index; before++)
                ck_assert_uint_ne(images[before], images[index]);
        }
    }
}
END_TEST

START_TEST(permutations_differ_by_seed_and_stream_and_mix_well)
{
    enum { N = 1000 };
    int same_seed = 0, same_stream = 0, fixed = 0, neighbours = 0;
    for (uint64_t i = 0; i < N; i++) {
        uint64_t to = mmi_random_permute(i, N, 1, 1);
        same_seed += to == mmi_random_permute(i, N, 1, 2);
        same_stream += to == mmi_random_permute(i, N, 2, 1);
        fixed += to == i;
        neighbours += i + 1 < N && mmi_random_permute(i + 1, N, 1, 1) == to + 1;
    }
    /* Each is a number with a mean of 1. */
    ck_assert_int_le(same_seed, 8);
    ck_assert_int_le(same_stream, 8);
    ck_assert_int_le(fixed, 8);
    ck_assert_int_le(neighbours, 8);
}
END_TEST

/* What a process that hasn't asked yet gets, and whether it gets it again. */
static void ask_another_process(uint64_t out[3])
{
    int ends[2];
    ck_assert_int_eq(pipe(ends), 0);
    pid_t child = fork();
    if (child == 0) {
        uint64_t own[3] = { mmi_secret(0), mmi_secret(1), mmi_secret(0) };
        _exit(write(ends[1], own, sizeof own) == (ssize_t)sizeof own ? 0 : 1);
    }
    int how;
    ck_assert_int_gt(child, 0);
    ck_assert_int_eq(read(ends[0], out, 3 * sizeof *out), 3 * (ssize_t)sizeof *out);
    ck_assert_int_eq(waitpid(child, &how, 0), child);
    ck_assert(WIFEXITED(how) && WEXITSTATUS(how) == 0);
    close(ends[0]);
    close(ends[1]);
}

START_TEST(each_process_has_secrets_of_its_own)
{
    uint64_t one[3], other[3];
    ask_another_process(one);
    ask_another_process(other);
    ck_assert_uint_eq(one[0], one[2]);
    ck_assert_uint_ne(one[0], one[1]);
    ck_assert_uint_ne(one[0], other[0]);
    ck_assert_uint_ne(one[1], other[1]);
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("base/random");
    TCase *c = tcase_create("random");
    tcase_add_test(c, blocks_agree_with_the_published_vectors);
    tcase_add_test(c, seed_stream_and_index_each_matter_in_both_halves);
    tcase_add_test(c, uniform_numbers_fill_the_unit_interval_evenly);
    tcase_add_test(c, normal_numbers_have_the_normal_s_moments_and_tails);
    tcase_add_test(c, a_normal_number_depends_on_its_place_alone);
    tcase_add_test(c, permute_visits_every_index_once);
    tcase_add_test(c, permutations_of_large_ranges_stay_inside_and_have_no_repeats);
    tcase_add_test(c, permutations_differ_by_seed_and_stream_and_mix_well);
    tcase_add_test(c, each_process_has_secrets_of_its_own);
    suite_add_tcase(suite, c);
    return suite;
}

int main(void)
{
    return run_suite(make_suite());
}
