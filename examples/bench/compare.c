/* kernels, scaling: the same work on every kernel path, and on one to --threads threads, in turn. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"

#define MOST_WORKS 16

static void compare_kernels(const options *o, const char *name)
{
    work works[MOST_WORKS];
    int n = 0, paths = mm_kernels_count();
    for (int i = paths > MOST_WORKS ? paths - MOST_WORKS : 0; i < paths; i++)
        open_named(name)(&works[n++], o, o->threads, mm_kernels_name(i));
    run_in_turn(works, n, o->repeat, NULL, NULL);
    double fastest = 0;
    for (int i = n; i-- > 0;) {
        rates speed = rates_of(works[i].tokens, works[i].seconds, o->repeat);
        if (i == n - 1)
            fastest = speed.median;
        record_begin(o, name, strcmp(name, "train") ? o->dtype : MM_F32, o->threads, mm_context_kernels(works[i].context));
        record_rates("tokens_per_s", speed);
        record_number("ratio_to_default", speed.median / fastest);
        record_end();
    }
    for (int i = 0; i < n; i++)
        work_close(&works[i]);
}

static void compare_threads(const options *o, const char *name)
{
    work works[MOST_WORKS];
    int n = o->threads < MOST_WORKS ? o->threads : MOST_WORKS;
    for (int i = 0; i < n; i++)
        open_named(name)(&works[i], o, i + 1, o->kernels);
    run_in_turn(works, n, o->repeat, NULL, NULL);
    char what[32];
    double one = 0;
    snprintf(what, sizeof what, "scaling-%s", name);
    for (int i = 0; i < n; i++) {
        rates speed = rates_of(works[i].tokens, works[i].seconds, o->repeat);
        if (i == 0)
            one = speed.median;
        record_begin(o, what, strcmp(name, "train") ? o->dtype : MM_F32, i + 1, mm_context_kernels(works[i].context));
        record_rates("tokens_per_s", speed);
        record_number("ratio_to_one", speed.median / one);
        record_end();
        work_close(&works[i]);
    }
}

/* Of one kind of work, or of all three. */
static void each_kind(const options *o, void (*compare)(const options *o, const char *name))
{
    static const char *const kinds[] = { "train", "prefill", "decode" };
    for (int i = 0; i < 3; i++)
        if (!o->of || strcmp(o->of, kinds[i]) == 0)
            compare(o, kinds[i]);
}

void bench_kernels(const options *o)
{
    each_kind(o, compare_kernels);
}

void bench_scaling(const options *o)
{
    each_kind(o, compare_threads);
}
