/* What the test programs share. */
#ifndef MM_TESTS_SUPPORT_H
#define MM_TESTS_SUPPORT_H

#include <check.h>
#include <minimind.h>
#include <stdbool.h>
#include <stddef.h>

/* Run the suite with TAP on standard output; main()'s result. */
int run_suite(Suite *suite);

/* Fail the test with the library's own story unless `status` is what was expected. */
#define ck_ok(call) ck_status(call, MM_OK)
#define ck_status(call, expected)                                                                                       \
    do {                                                                                                                \
        mm_status ck_got = (call);                                                                                      \
        ck_assert_msg(ck_got == (expected), "%s is %s (%s), not %s", #call, mm_status_name(ck_got), mm_last_error(),   \
                      mm_status_name(expected));                                                                        \
    } while (0)

/* ck_assert_msg for one of many numbers: libcheck writes down each assertion that holds, with a call of the system. */
#define ck_each(holds, ...)                                                                                             \
    do {                                                                                                                \
        if (!(holds))                                                                                                   \
            ck_abort_msg(__VA_ARGS__);                                                                                  \
    } while (0)

/* Fail unless mm_last_error() mentions `words`. */
#define ck_error_mentions(words)                                                                                        \
    ck_assert_msg(strstr(mm_last_error(), words) != NULL, "the message \"%s\" does not mention \"%s\"", mm_last_error(), words)

/* MM_SHARED "/name" if it is there; NULL when this checkout has no shared fixtures beside it. */
const char *shared_path(const char *name);

/* In a test that needs shared fixtures: say so and pass over it when they are absent. */
#define REQUIRE_SHARED(name)                                                                                            \
    do {                                                                                                                \
        if (!shared_path(name)) {                                                                                       \
            fprintf(stderr, "# skipped: no shared fixtures (%s)\n", name);                                              \
            return;                                                                                                     \
        }                                                                                                               \
    } while (0)

/* A fresh empty directory, removed again when the test program ends. Static until the next call. */
const char *scratch_directory(void);

/* From here on the C library's numbers have a decimal comma, by a locale that is made here. False, which is told, where
 * localedef is missing or lacks its tables. */
bool set_decimal_comma(void);

/* Bytes the library holds now. */
uint64_t bytes_held(void);

/* ‖a - b‖ / ‖b‖ over n floats, in double precision; ‖a - b‖ when b is 0. */
double relative_error(const float *a, const float *b, size_t n);

/* A small deterministic generator for test inputs, independent of the library's own. */
typedef struct test_rng {
    unsigned long long state;
} test_rng;

/* Inline: tests of large products spend more time here than in products. */
static inline unsigned int rng_next(test_rng *rng)
{
    rng->state += 0x9E3779B97F4A7C15ull;
    unsigned long long z = rng->state;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    return (unsigned int)((z ^ (z >> 31)) >> 32);
}

/* [0, 1) */
static inline double rng_uniform(test_rng *rng)
{
    return rng_next(rng) / 4294967296.0;
}

/* Both ends included. */
static inline int rng_between(test_rng *rng, int low, int high)
{
    return low + (int)(rng_uniform(rng) * (high - low + 1));
}

void rng_fill(test_rng *rng, float *x, size_t n, float scale); /* uniform in ±scale */

#endif
