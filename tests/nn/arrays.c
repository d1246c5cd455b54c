#include "nn/arrays.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct taken {
    struct taken *next;
    void *memory;
} taken;

static taken *all;

void *take(int64_t count, size_t size)
{
    taken *t = malloc(sizeof *t);
    void *memory = calloc(count > 0 ? (size_t)count : 1, size);
    ck_assert_msg(t && memory, "the test is out of memory");
    *t = (taken){ all, memory };
    all = t;
    return memory;
}

static void release_last(void)
{
    taken *t = all;
    all = t->next;
    free(t->memory);
    free(t);
}

void release_from(const void *memory)
{
    for (bool last = false; all && !last;) {
        last = all->memory == memory;
        release_last();
    }
}

void release_all(void)
{
    while (all)
        release_last();
}

Suite *plain_suite(const char *name, TCase **tests)
{
    Suite *suite = suite_create(name);
    *tests = tcase_create(name);
    tcase_set_timeout(*tests, 120);
    tcase_add_checked_fixture(*tests, NULL, release_all);
    suite_add_tcase(suite, *tests);
    return suite;
}

float *take_floats(int64_t n, float value)
{
    float *x = take(n, sizeof *x);
    for (int64_t i = 0; i < n; i++)
        x[i] = value;
    return x;
}

float *take_random(test_rng *rng, int64_t n, float scale)
{
    float *x = take(n, sizeof *x);
    rng_fill(rng, x, (size_t)n, scale);
    return x;
}

float *take_copy(const float *x, int64_t n)
{
    float *copy = take(n, sizeof *copy);
    memcpy(copy, x, (size_t)n * sizeof *copy);
    return copy;
}

double *take_doubles(const float *x, int64_t n)
{
    double *y = take(n, sizeof *y);
    for (int64_t i = 0; i < n; i++)
        y[i] = x[i];
    return y;
}

int32_t *take_ints(test_rng *rng, int64_t n, int low, int high)
{
    int32_t *x = take(n, sizeof *x);
    for (int64_t i = 0; i < n; i++)
        x[i] = rng_between(rng, low, high);
    return x;
}

bool same_bits(const float *a, const float *b, int64_t n)
{
    return memcmp(a, b, (size_t)n * sizeof *a) == 0;
}

bool all_finite(const float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (!isfinite(x[i]))
            return false;
    return true;
}

void ck_close(const float *a, const double *b, int64_t n, double tolerance, const char *what)
{
    double difference = 0, size = 0;
    for (int64_t i = 0; i < n; i++) {
        difference += (a[i] - b[i]) * (a[i] - b[i]);
        size += b[i] * b[i];
    }
    ck_assert_msg(sqrt(difference) <= tolerance * sqrt(size), "%s: relative error %g, allowed %g", what,
                  sqrt(difference / size), tolerance);
}
