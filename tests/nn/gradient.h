/* Gradients by central differences in double precision. */
#ifndef MM_TESTS_NN_GRADIENT_H
#define MM_TESTS_NN_GRADIENT_H

#include <stdint.h>

#include "support.h"

#define PROBE_DIRECTIONS 2
#define PROBE_PLACES 4

/* The loss at the parameters as they stand. */
typedef double (*loss_fn)(void *arg);

/* How the loss changes along a few directions that reach every element, and at a few single elements. */
typedef struct probes {
    int64_t n;
    unsigned long long seed;
    int64_t places[PROBE_PLACES];
    double at[PROBE_PLACES];
    double along[PROBE_DIRECTIONS];
} probes;

/* theta [n] is moved and put back. */
probes probes_take(double *theta, int64_t n, loss_fn loss, void *arg, test_rng *rng);

/* gradient [n] (less `start`, unless that is NULL) agrees, or the test fails. A gradient whose elements are smaller than
 * `floor` is compared as if they were that large. */
void probes_check(const probes *p, const float *gradient, const float *start, double floor, const char *what);

#endif
