#include <stdio.h>

#include "bench.h"

static bool as_json;

void record_begin(const options *o, const char *what, int32_t dtype, int threads, const char *kernels)
{
    const char *compute = mm_dtype_name(compute_of(o, dtype));
    as_json = o->json;
    if (as_json)
        printf("{\"what\": \"%s\", \"preset\": \"%s\", \"dtype\": \"%s\", \"threads\": %d, \"kernels\": \"%s\", \"compute\": \"%s\"",
               what, o->preset, mm_dtype_name(dtype), threads, kernels, compute);
    else
        printf("%s %s, %s, computed in %s, %d threads, %s\n", what, o->preset, mm_dtype_name(dtype),
               compute, threads, kernels);
}

void record_rates(const char *key, rates r)
{
    if (as_json)
        printf(", \"%s\": %.6g, \"%s_min\": %.6g, \"%s_max\": %.6g", key, r.median, key, r.slowest, key, r.fastest);
    else
        printf("  %-22s %.4g (%.4g to %.4g)\n", key, r.median, r.slowest, r.fastest);
}

void record_number(const char *key, double value)
{
    printf(as_json ? ", \"%s\": %.10g" : "  %-22s %.10g\n", key, value);
}

void record_word(const char *key, const char *value)
{
    printf(as_json ? ", \"%s\": \"%s\"" : "  %-22s %s\n", key, value);
}

void record_end(void)
{
    printf(as_json ? "}\n" : "");
    fflush(stdout);
}
