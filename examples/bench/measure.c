#define _POSIX_C_SOURCE 200809L

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "bench.h"

void die_if(mm_status status, const char *what)
{
    if (status == MM_OK)
        return;
    fprintf(stderr, "%s: %s: %s (%s)\n", program, what, mm_last_error(), mm_status_name(status));
    exit(1);
}

void *need(void *memory)
{
    if (memory)
        return memory;
    fprintf(stderr, "%s: out of memory\n", program);
    exit(1);
}

static clockid_t clock_in_use = CLOCK_MONOTONIC;

void use_processor_time(void)
{
    clock_in_use = CLOCK_PROCESS_CPUTIME_ID;
}

double now(void)
{
    struct timespec t;
    clock_gettime(clock_in_use, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double median(double *values, int n)
{
    qsort(values, (size_t)n, sizeof *values, by_value);
    return n % 2 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

rates rates_of(double amount, double *seconds, int runs)
{
    double middle = median(seconds, runs);
    return (rates){ amount / middle, amount / seconds[runs - 1], amount / seconds[0] };
}

int32_t *random_ids(int n, int64_t vocab_size)
{
    int32_t *ids = need(malloc((size_t)n * sizeof *ids));
    uint32_t state = 1;
    for (int i = 0; i < n; i++) {
        state = state * 1664525u + 1013904223u;
        ids[i] = (int32_t)((state >> 8) % (uint64_t)vocab_size);
    }
    return ids;
}
