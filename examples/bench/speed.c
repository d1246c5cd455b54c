/* train, prefill, decode, batch: each beside the ceiling that it runs against. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"

/* Measured between the runs, so that both feel the machine's noise. */
typedef struct ceiling {
    const options *o;
    const mm_config *config;
    reading memory;
    double bytes; /* that a token reads: the weights, and what decode found in the cache */
    int rows;
    bool training;
    double sgemm[MOST_RUNS], read[MOST_RUNS];
} ceiling;

static void measure_ceiling(void *arg, int round)
{
    ceiling *c = arg;
    c->sgemm[round] = sgemm_rate(c->config, c->rows, c->o->threads, c->training);
    c->read[round] = reading_rate(&c->memory, c->o->threads);
}

static void open_ceiling(ceiling *c, const options *o, const mm_config *config, int rows, bool training)
{
    *c = (ceiling){ .o = o, .config = config, .rows = rows, .training = training };
    c->bytes = weight_bytes(config, training ? MM_F32 : o->dtype) + cached_bytes(config, o);
    reading_open(&c->memory, (size_t)c->bytes);
}

/* Arithmetic and traffic of the work itself, then the machine's own; `rows` tokens share one reading of the weights. */
static void record_ceiling(ceiling *c, double tokens_per_s, double flops_per_token, double rows)
{
    double sgemm = median(c->sgemm, c->o->repeat), read = median(c->read, c->o->repeat);
    record_number("gflops", tokens_per_s * flops_per_token * 1e-9);
    record_number("flops_per_weight_byte", flops_per_token * rows / c->bytes);
    if (sgemm > 0) {
        record_number("sgemm_gflops", sgemm * 1e-9);
        record_word("sgemm_core", sgemm_core());
        record_number("ratio_to_sgemm", tokens_per_s * flops_per_token / sgemm);
    }
    record_number("read_gbytes_per_s", read * 1e-9);
    if (!c->training)
        record_number("ratio_to_memory", tokens_per_s / rows * c->bytes / read);
    reading_close(&c->memory);
}

/* Memory of this process, in bytes, from a line of /proc/self/status; 0 where there is none. */
static double process_memory(const char *key)
{
    FILE *f = fopen("/proc/self/status", "r");
    char line[256];
    double kilobytes = 0;
    while (f && fgets(line, sizeof line, f))
        if (strncmp(line, key, strlen(key)) == 0)
            kilobytes = atof(line + strlen(key) + 1);
    if (f)
        fclose(f);
    return kilobytes * 1024;
}

static mm_memory foreseen(const options *o, const mm_config *config, mm_flops *flops)
{
    mm_workload workload = MM_WORKLOAD_INIT;
    mm_memory memory = MM_MEMORY_INIT;
    workload.mode = MM_TRAIN;
    workload.max_batch = o->batch;
    workload.max_length = o->length;
    workload.threads = o->threads;
    workload.kernels = o->kernels;
    workload.optimizer = 1;
    die_if(mm_estimate_memory(config, &workload, &memory), "estimate");
    die_if(mm_estimate_flops(config, &workload, flops), "estimate");
    return memory;
}

void bench_train(const options *o)
{
    work w;
    ceiling c;
    mm_flops flops = MM_FLOPS_INIT;
    mm_memory_usage usage = MM_MEMORY_USAGE_INIT;
    double resident = process_memory("VmRSS:");
    open_train(&w, o, o->threads, o->kernels);
    w.run(&w);
    resident = process_memory("VmHWM:") - resident;
    mm_memory memory = foreseen(o, w.config, &flops);
    die_if(mm_memory_get_usage(&usage), "memory");
    open_ceiling(&c, o, w.config, w.tokens, true);
    run_in_turn(&w, 1, o->repeat, measure_ceiling, &c);
    rates speed = rates_of(w.tokens, w.seconds, o->repeat);
    record_begin(o, "train", MM_F32, o->threads, mm_context_kernels(w.context));
    record_number("batch", o->batch);
    record_number("length", o->length);
    record_rates("tokens_per_s", speed);
    record_ceiling(&c, speed.median, flops.total, w.tokens);
    record_number("memory_estimate", (double)memory.total);
    record_number("memory_taken", (double)(usage.current - w.held));
    record_number("process_growth", resident);
    record_end();
    work_close(&w);
}

void bench_prefill(const options *o)
{
    work w;
    ceiling c;
    open_prefill(&w, o, o->threads, o->kernels);
    open_ceiling(&c, o, w.config, w.tokens, false);
    run_in_turn(&w, 1, o->repeat, measure_ceiling, &c);
    rates speed = rates_of(w.tokens, w.seconds, o->repeat);
    record_begin(o, "prefill", o->dtype, o->threads, mm_context_kernels(w.context));
    record_number("tokens", w.tokens);
    record_rates("tokens_per_s", speed);
    record_ceiling(&c, speed.median, forward_flops(w.config, w.tokens), w.tokens);
    record_end();
    work_close(&w);
}

void bench_decode(const options *o)
{
    work w;
    ceiling c;
    open_decode(&w, o, o->threads, o->kernels);
    open_ceiling(&c, o, w.config, 1, false);
    run_in_turn(&w, 1, o->repeat, measure_ceiling, &c);
    rates speed = rates_of(w.tokens, w.seconds, o->repeat);
    record_begin(o, "decode", o->dtype, o->threads, mm_context_kernels(w.context));
    record_number("tokens", w.tokens);
    record_number("past", o->past);
    record_rates("tokens_per_s", speed);
    record_ceiling(&c, speed.median, forward_flops(w.config, 2 * o->past + w.tokens), 1); /* of the mean position */
    record_end();
    work_close(&w);
}

/* All together, and in turn with them one alone. */
void bench_batch(const options *o)
{
    work w[2];
    ceiling c;
    options alone = *o;
    alone.sequences = 1;
    open_batch(&w[0], o, o->threads, o->kernels);
    open_batch(&w[1], &alone, o->threads, o->kernels);
    open_ceiling(&c, o, w[0].config, o->sequences, false);
    run_in_turn(w, 2, o->repeat, measure_ceiling, &c);
    rates all = rates_of(w[0].tokens, w[0].seconds, o->repeat), one = rates_of(w[1].tokens, w[1].seconds, o->repeat);
    record_begin(o, "batch", o->dtype, o->threads, mm_context_kernels(w[0].context));
    record_number("sequences", o->sequences);
    record_rates("tokens_per_s", all);
    record_rates("one_tokens_per_s", one);
    record_number("ratio_to_one", all.median / one.median);
    record_ceiling(&c, all.median, forward_flops(w[0].config, o->new_tokens), o->sequences);
    record_end();
    work_close(&w[0]);
    work_close(&w[1]);
}
