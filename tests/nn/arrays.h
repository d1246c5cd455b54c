/* Arrays for tests: taken as needed, given back together. */
#ifndef MM_TESTS_NN_ARRAYS_H
#define MM_TESTS_NN_ARRAYS_H

#include <stdbool.h>
#include <stdint.h>

#include "support.h"

/* Zeroed memory that lives until release_all(), which every test case has as its teardown. */
void *take(int64_t count, size_t size);
void release_all(void);

/* Gives back `memory` and all that was taken after it. */
void release_from(const void *memory);

/* A suite of one test case with release_all() behind every test. */
Suite *plain_suite(const char *name, TCase **tests);

float *take_floats(int64_t n, float value);
float *take_random(test_rng *rng, int64_t n, float scale);
float *take_copy(const float *x, int64_t n);
double *take_doubles(const float *x, int64_t n);

/* In [low, high], both included. */
int32_t *take_ints(test_rng *rng, int64_t n, int low, int high);

bool same_bits(const float *a, const float *b, int64_t n);
bool all_finite(const float *x, int64_t n);

/* ‖a - b‖ ≤ tolerance · ‖b‖, or the test fails; `what` says what it was. */
void ck_close(const float *a, const double *b, int64_t n, double tolerance, const char *what);

#endif
