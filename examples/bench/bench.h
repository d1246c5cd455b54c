/* How fast the library is on this machine, beside what the machine could do: what the files here share. */
#ifndef BENCH_H
#define BENCH_H

#include <minimind.h>
#include <stdbool.h>
#include <stdint.h>

#define MOST_RUNS 64
#define AS_WEIGHTS (-1) /* for options.compute */

typedef struct options {
    const char *what, *preset, *kernels, *data, *tokenizer, *of;
    int batch, length, threads, repeat, new_tokens, sequences, past;
    int32_t dtype, cache_dtype, compute;
    bool json, processor_time;
} options;

/* What messages begin with: the name that this was started as. */
extern const char *program;

/* The programs: each prints its records. */
void bench_train(const options *o);
void bench_prefill(const options *o);
void bench_decode(const options *o);
void bench_batch(const options *o);
void bench_kernels(const options *o);
void bench_scaling(const options *o);
void bench_start(const options *o);
void bench_attention(const options *o);

/* --- measure.c: the clock, and what many runs come to --- */

void die_if(mm_status status, const char *what);
void *need(void *memory); /* exits when there is none */
double now(void); /* in seconds */

/* From now on count the seconds that processors spend on this program, on all threads together, which other programs on the
 * machine hardly move. */
void use_processor_time(void);

/* Something per second: the median of several runs, and the range. */
typedef struct rates {
    double median, slowest, fastest;
} rates;

/* Of runs that did `amount` each in so many seconds, which are sorted. */
rates rates_of(double amount, double *seconds, int runs);
double median(double *values, int n);
int32_t *random_ids(int n, int64_t vocab_size);

/* --- record.c: one measurement, as lines for people or as an object of JSON on one line --- */

void record_begin(const options *o, const char *what, int32_t dtype, int threads, const char *kernels);
void record_rates(const char *key, rates r);
void record_number(const char *key, double value);
void record_word(const char *key, const char *value); /* of letters and digits, as a core's name is */
void record_end(void);

/* --- sgemm.c: what OpenBLAS makes of the same products --- */

/* FLOP/s of cblas_sgemm on the products of a model's matrices with `rows` tokens: forward, or with `training` dX and dW
 * too. 0 without OpenBLAS. */
double sgemm_rate(const mm_config *config, int rows, int threads, bool training);

/* The processor that OpenBLAS takes this one for, as it calls it, whose kernels it runs: an old OpenBLAS, a host that
 * hides what it has or OPENBLAS_CORETYPE may make it a lesser one. NULL without OpenBLAS. */
const char *sgemm_core(void);

/* --- reading.c: how fast memory is read --- */

/* Bytes per second of reading `size` bytes again and again with so many threads: what decoding does with the weights. */
typedef struct reading {
    unsigned char *data;
    size_t size;
} reading;
void reading_open(reading *r, size_t size);
double reading_rate(const reading *r, int threads);
void reading_close(reading *r);

/* --- work.c: what is measured, to be run again and again --- */

/* What products with weights of `dtype` round to: what was asked for, or as the peers have it, bf16 where weights are. */
int32_t compute_of(const options *o, int32_t dtype);

typedef struct work {
    const options *o;
    mm_config *config;
    mm_model *model;
    mm_context *context;
    mm_cache *cache;
    mm_optimizer *optimizer;
    mm_dataset *dataset;
    mm_tokenizer *tokenizer;
    mm_loader *loader;
    int32_t *ids;
    int64_t vocab_size;
    int tokens; /* that one run goes through, or makes */
    int sequences;
    uint64_t held; /* bytes that the library held before the model was made */
    void (*run)(struct work *w);
    double seconds[MOST_RUNS];
} work;

typedef void (*open_fn)(work *w, const options *o, int threads, const char *kernels);
void open_train(work *w, const options *o, int threads, const char *kernels);   /* one step, data included */
void open_prefill(work *w, const options *o, int threads, const char *kernels); /* `length` ids at once, the last logits */
void open_decode(work *w, const options *o, int threads, const char *kernels);  /* single ids, logits each */
void open_batch(work *w, const options *o, int threads, const char *kernels);   /* mm_generate() of o->sequences */
open_fn open_named(const char *name); /* "train", "prefill", …; NULL: no such work */
void work_close(work *w);

/* Once to warm up, then o->repeat times in turn, so that all see the same weather. `between`, if any, is called after each
 * round. */
void run_in_turn(work *works, int n, int repeat, void (*between)(void *arg, int round), void *arg);

mm_model *make_model(const mm_config *config, int32_t dtype); /* of random weights */
double forward_flops(const mm_config *config, int length);    /* per token */
double weight_bytes(const mm_config *config, int32_t dtype);  /* that a token reads */
double cached_bytes(const mm_config *config, const options *o); /* keys and values of o->past tokens */

#endif
