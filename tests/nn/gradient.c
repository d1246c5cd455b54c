#include "nn/gradient.h"

#include <math.h>
#include <stdlib.h>

#include "nn/arrays.h"

#define STEP 1e-6 /* small, for a step must not cross a ReLU's kink; double precision bears it */
#define TOLERANCE 3e-4

/* Element i of direction number `which`: a unit vector of ± 1/sqrt(n). */
static double direction(unsigned long long seed, int which, int64_t i, int64_t n)
{
    test_rng rng = { seed + 0x51ull * (unsigned long long)which + 0x9E37ull * (unsigned long long)i };
    return (rng_next(&rng) & 1 ? 1 : -1) / sqrt((double)n);
}

static double along(double *theta, const double *before, const probes *p, int which, loss_fn loss, void *arg)
{
    double difference = 0;
    for (int side = 1; side >= -1; side -= 2) {
        for (int64_t i = 0; i < p->n; i++)
            theta[i] = before[i] + side * STEP * direction(p->seed, which, i, p->n);
        difference += side * loss(arg);
    }
    for (int64_t i = 0; i < p->n; i++)
        theta[i] = before[i];
    return difference / (2 * STEP);
}

static double at_place(double *theta, int64_t place, loss_fn loss, void *arg)
{
    double before = theta[place];
    theta[place] = before + STEP;
    double difference = loss(arg);
    theta[place] = before - STEP;
    difference -= loss(arg);
    theta[place] = before;
    return difference / (2 * STEP);
}

probes probes_take(double *theta, int64_t n, loss_fn loss, void *arg, test_rng *rng)
{
    probes p = { .n = n, .seed = rng_next(rng) };
    double *before = malloc((size_t)n * sizeof *before);
    ck_assert_ptr_nonnull(before);
    for (int64_t i = 0; i < n; i++)
        before[i] = theta[i];
    for (int d = 0; d < PROBE_DIRECTIONS; d++)
        p.along[d] = along(theta, before, &p, d, loss, arg);
    free(before);
    for (int i = 0; i < PROBE_PLACES; i++) {
        p.places[i] = i == 0 ? 0 : i == 1 ? n - 1 : rng_between(rng, 0, (int)n - 1);
        p.at[i] = at_place(theta, p.places[i], loss, arg);
    }
    return p;
}

void probes_check(const probes *p, const float *gradient, const float *start, double floor, const char *what)
{
    double size = 0, dot[PROBE_DIRECTIONS] = { 0 };
    for (int64_t i = 0; i < p->n; i++) {
        double g = (double)gradient[i] - (start ? start[i] : 0);
        size += g * g;
        for (int d = 0; d < PROBE_DIRECTIONS; d++)
            dot[d] += g * direction(p->seed, d, i, p->n);
    }
    double typical = fmax(sqrt(size / (double)p->n), floor);
    for (int d = 0; d < PROBE_DIRECTIONS; d++)
        ck_assert_msg(fabs(dot[d] - p->along[d]) <= TOLERANCE * (typical + fabs(p->along[d])),
                      "%s: along direction %d the gradient is %.9g, central differences say %.9g", what, d, dot[d],
                      p->along[d]);
    for (int i = 0; i < PROBE_PLACES; i++) {
        int64_t place = p->places[i];
        double g = (double)gradient[place] - (start ? start[place] : 0);
        ck_assert_msg(fabs(g - p->at[i]) <= TOLERANCE * (typical + fabs(p->at[i])),
                      "%s: at %lld the gradient is %.9g, central differences say %.9g", what, (long long)place, g, p->at[i]);
    }
}
