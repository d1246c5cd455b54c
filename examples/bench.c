/* How fast this library is on this machine, beside what the machine could do.
 *
 *     bench train   --preset minimind2-small --batch-size 8 --max-seq-len 512 --threads 2 --json
 *     bench prefill --preset minimind2-small
 *     bench decode  --preset minimind2-small --dtype q8_0
 *     bench train   --data-path rows.jsonl --tokenizer DIR        on text, packed, instead of random ids
 *
 * A step of training is measured against the same products done by OpenBLAS's cblas_sgemm, which is loaded while
 * running: the ratio of the two is what counts, for both feel the machine's noise. Medians of --repeat runs. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <getopt.h>
#include <minimind.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct options {
    const char *what, *preset, *kernels, *data, *tokenizer;
    int batch, length, threads, repeat, new_tokens;
    int32_t dtype;
    bool json;
} options;

static void die_if(mm_status status, const char *what)
{
    if (status == MM_OK)
        return;
    fprintf(stderr, "bench: %s: %s (%s)\n", what, mm_last_error(), mm_status_name(status));
    exit(1);
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *times, int n)
{
    qsort(times, (size_t)n, sizeof *times, by_value);
    return n % 2 ? times[n / 2] : (times[n / 2 - 1] + times[n / 2]) / 2;
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

/* --- The machine's ceiling: cblas_sgemm on the shapes of a training step --- */

typedef void (*sgemm_fn)(int order, int ta, int tb, int m, int n, int k, float alpha, const float *a, int lda,
                         const float *b, int ldb, float beta, float *c, int ldc);

enum { ROW_MAJOR = 101, AS_IS = 111, TRANSPOSED = 112 };

/* Seconds of one product, the best of three. */
static double time_product(sgemm_fn sgemm, int ta, int tb, int m, int n, int k, const float *a, const float *b,
                           float *c)
{
    double best = 1e30;
    for (int i = 0; i < 3; i++) {
        double start = now();
        sgemm(ROW_MAJOR, ta, tb, m, n, k, 1, a, ta == AS_IS ? k : m, b, tb == AS_IS ? n : k, 0, c, n);
        double seconds = now() - start;
        if (seconds < best)
            best = seconds;
    }
    return best;
}

/* Forward, dX and dW of one matrix over `rows` tokens. */
static double time_matrix(sgemm_fn sgemm, int rows, int out, int in)
{
    int widest = out > in ? out : in;
    float *x = calloc((size_t)rows * (size_t)widest, sizeof *x), *y = calloc((size_t)rows * (size_t)widest, sizeof *y);
    float *w = calloc((size_t)out * (size_t)in, sizeof *w);
    if (!x || !y || !w) {
        fprintf(stderr, "bench: out of memory\n");
        exit(1);
    }
    for (int i = 0; i < rows * widest; i++)
        x[i] = y[i] = (float)(i % 7 - 3);
    for (int i = 0; i < out * in; i++)
        w[i] = (float)(i % 5 - 2);
    double seconds = time_product(sgemm, AS_IS, TRANSPOSED, rows, out, in, x, w, y) +
                     time_product(sgemm, AS_IS, AS_IS, rows, in, out, x, w, y) +
                     time_product(sgemm, TRANSPOSED, AS_IS, out, in, rows, x, y, w);
    free(x);
    free(y);
    free(w);
    return seconds;
}

/* FLOP/s over all matrices of a dense model, one layer standing for all; 0 without OpenBLAS. */
static double sgemm_rate(const mm_config *config, int rows, int threads)
{
    void *library = dlopen("libopenblas.so.0", RTLD_NOW);
    sgemm_fn sgemm = NULL;
    void (*set_threads)(int) = NULL;
    if (library) {
        *(void **)&sgemm = dlsym(library, "cblas_sgemm");
        *(void **)&set_threads = dlsym(library, "openblas_set_num_threads");
    }
    if (!sgemm || !set_threads)
        return 0;
    set_threads(threads);
    int64_t tensors = 0, layers = 0;
    int32_t tied = 0;
    die_if(mm_layout_count(config, &tensors), "layout");
    die_if(mm_config_get_int(config, "num_hidden_layers", &layers), "config");
    die_if(mm_config_get_bool(config, "tie_word_embeddings", &tied), "config");
    double seconds = 0, flops = 0;
    for (int64_t i = 0; i < tensors; i++) {
        mm_tensor_info info = MM_TENSOR_INFO_INIT;
        die_if(mm_layout_get(config, i, &info), "layout");
        if (info.rank != 2 || info.layer > 0 || (info.module == MM_MODULE_EMBEDDING && !tied))
            continue;
        double times = info.layer == 0 ? (double)layers : 1;
        seconds += times * time_matrix(sgemm, rows, (int)info.shape[0], (int)info.shape[1]);
        flops += times * 6.0 * rows * (double)info.elements;
    }
    return flops / seconds;
}

/* --- The benchmarks --- */

static int32_t *random_ids(int n, int64_t vocab_size)
{
    int32_t *ids = malloc((size_t)n * sizeof *ids);
    uint32_t state = 1;
    for (int i = 0; ids && i < n; i++) {
        state = state * 1664525u + 1013904223u;
        ids[i] = (int32_t)((state >> 8) % (uint64_t)vocab_size);
    }
    return ids;
}

/* Where the batches come from: rows of a file, packed, or random ids again and again. */
typedef struct source {
    mm_dataset *dataset;
    mm_tokenizer *tokenizer;
    mm_loader *loader;
    int32_t *ids;
} source;

static void open_source(source *s, const options *o, int64_t vocab_size)
{
    *s = (source){ .ids = random_ids(o->batch * o->length, vocab_size) };
    if (!o->data)
        return;
    mm_loader_options how = MM_LOADER_OPTIONS_INIT;
    how.batch = o->batch;
    how.max_length = o->length;
    how.form = MM_ROWS_PACK;
    how.workers = 0; /* rows prepared meanwhile would be counted as the model's memory */
    die_if(mm_tokenizer_load(o->tokenizer, &s->tokenizer), "tokenizer");
    die_if(mm_dataset_open(o->data, &s->dataset), "data");
    die_if(mm_loader_create(s->dataset, s->tokenizer, &how, &s->loader), "loader");
}

static mm_batch next_batch(const source *s, const options *o)
{
    mm_batch batch = MM_BATCH_INIT;
    for (int tries = 0; s->loader && batch.batch == 0 && tries < 2; tries++) /* an epoch may end in between */
        die_if(mm_loader_next(s->loader, &batch), "data");
    if (s->loader)
        return batch;
    batch.ids = batch.targets = s->ids;
    batch.batch = o->batch;
    batch.length = o->length;
    batch.mode = MM_TRAIN;
    return batch;
}

static void close_source(source *s)
{
    mm_loader_free(s->loader);
    mm_dataset_free(s->dataset);
    mm_tokenizer_free(s->tokenizer);
    free(s->ids);
}

static void train_step(mm_context *context, mm_optimizer *optimizer, const mm_batch *batch)
{
    mm_output out = MM_OUTPUT_INIT;
    mm_step step = MM_STEP_INIT;
    step.learning_rate = 1e-4;
    step.max_grad_norm = 1;
    die_if(mm_zero_grad(context), "zero_grad");
    die_if(mm_forward(context, batch, &out), "forward");
    die_if(mm_backward(context, NULL), "backward");
    die_if(mm_optimizer_step(optimizer, context, &step), "step");
}

static void bench_train(const options *o, const mm_config *config, int64_t vocab_size)
{
    source from;
    open_source(&from, o, vocab_size);
    mm_batch batch = next_batch(&from, o);
    double resident_before = process_memory("VmRSS:");
    mm_memory_usage usage = MM_MEMORY_USAGE_INIT;
    die_if(mm_memory_get_usage(&usage), "memory");
    uint64_t held_before = usage.current;
    mm_memory_reset_peak();

    mm_workload workload = MM_WORKLOAD_INIT;
    workload.mode = MM_TRAIN;
    workload.max_batch = o->batch;
    workload.max_length = o->length;
    workload.threads = o->threads;
    workload.kernels = o->kernels;
    workload.optimizer = 1;
    mm_memory memory = MM_MEMORY_INIT;
    mm_flops flops = MM_FLOPS_INIT;
    die_if(mm_estimate_memory(config, &workload, &memory), "estimate");
    die_if(mm_estimate_flops(config, &workload, &flops), "estimate");

    mm_model *model = NULL;
    mm_context *context = NULL;
    mm_optimizer *optimizer = NULL;
    mm_context_options how = MM_CONTEXT_OPTIONS_INIT;
    how.mode = MM_TRAIN;
    how.max_batch = o->batch;
    how.max_length = o->length;
    how.threads = o->threads;
    how.kernels = o->kernels;
    die_if(mm_model_create(config, 1, &model), "model");
    die_if(mm_context_create(model, &how, &context), "context");
    die_if(mm_adamw_create(model, NULL, &optimizer), "optimizer");

    int tokens = o->batch * o->length;
    train_step(context, optimizer, &batch); /* warm up: touches all memory */
    die_if(mm_memory_get_usage(&usage), "memory");
    double resident = process_memory("VmHWM:") - resident_before;

    /* Step and products in turn, so that both see the same weather. */
    double steps[64], rates[64];
    for (int i = 0; i < o->repeat; i++) {
        double start = now();
        batch = next_batch(&from, o);
        train_step(context, optimizer, &batch);
        steps[i] = now() - start;
        rates[i] = sgemm_rate(config, tokens, o->threads);
    }
    double per_second = tokens / median(steps, o->repeat), rate = median(rates, o->repeat);
    double slow = tokens / steps[o->repeat - 1], fast = tokens / steps[0];
    double ratio = rate > 0 ? per_second * flops.total / rate : 0;
    printf("train %s, batch %d x %d, %d threads, %s\n", o->preset, o->batch, o->length, o->threads,
           mm_context_kernels(context));
    printf("  %.0f tokens/s (%.0f to %.0f), %.1f GFLOP/s of model arithmetic\n", per_second, slow, fast,
           per_second * flops.total * 1e-9);
    if (rate > 0)
        printf("  cblas_sgemm on the same shapes: %.1f GFLOP/s (%.1f to %.1f); ratio %.3f\n", rate * 1e-9,
               rates[0] * 1e-9, rates[o->repeat - 1] * 1e-9, ratio);
    printf("  memory: %lld bytes foreseen, %llu taken; the process grew by %.1f %% of that\n", (long long)memory.total,
           (unsigned long long)(usage.peak - held_before), 100 * resident / (double)memory.total);
    if (o->json)
        printf("{\"what\": \"train\", \"preset\": \"%s\", \"dtype\": \"f32\", \"threads\": %d, \"kernels\": \"%s\", "
               "\"batch\": %d, \"length\": %d, \"tokens_per_s\": %.1f, \"tokens_per_s_min\": %.1f, "
               "\"tokens_per_s_max\": %.1f, \"model_gflops\": %.2f, \"sgemm_gflops\": %.2f, \"ratio_to_sgemm\": %.4f, "
               "\"memory_estimate\": %lld, \"memory_peak\": %llu, \"process_growth\": %.0f}\n",
               o->preset, o->threads, mm_context_kernels(context), o->batch, o->length, per_second, slow, fast,
               per_second * flops.total * 1e-9, rate * 1e-9, ratio, (long long)memory.total,
               (unsigned long long)(usage.peak - held_before), resident);
    close_source(&from);
    mm_optimizer_free(optimizer);
    mm_context_free(context);
    mm_model_free(model);
}

/* A model of random weights in the wanted dtype. */
static mm_model *make_model(const options *o, const mm_config *config)
{
    mm_model *exact = NULL, *model = NULL;
    die_if(mm_model_create(config, 1, &exact), "model");
    if (o->dtype == MM_F32)
        return exact;
    if (o->dtype == MM_BF16)
        die_if(mm_model_cast(exact, o->dtype, &model), "model");
    else
        die_if(mm_model_quantize(exact, o->dtype, &model), "model");
    mm_model_free(exact);
    return model;
}

static bool read_dtype(const char *name, int32_t *dtype)
{
    static const int32_t known[] = { MM_F32, MM_BF16, MM_Q8_0, MM_Q4_0 };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(name, mm_dtype_name(known[i])) == 0) {
            *dtype = known[i];
            return true;
        }
    fprintf(stderr, "bench: --dtype is \"%s\", allowed are f32, bf16, q8_0 and q4_0\n", name);
    return false;
}

/* Prefill: `length` ids in one call with the last logits. Decode: single tokens from an empty cache, logits each. */
static void bench_inference(const options *o, const mm_config *config, int64_t vocab_size)
{
    bool decode = strcmp(o->what, "decode") == 0;
    int tokens = decode ? o->new_tokens : o->length;
    mm_model *model = make_model(o, config);
    mm_context *context = NULL;
    mm_cache *cache = NULL;
    mm_context_options how = MM_CONTEXT_OPTIONS_INIT;
    how.max_length = decode ? 1 : o->length;
    how.max_context = tokens;
    how.threads = o->threads;
    how.kernels = o->kernels;
    die_if(mm_context_create(model, &how, &context), "context");
    die_if(mm_cache_create(model, 1, tokens, MM_F32, &cache), "cache");
    int32_t *ids = random_ids(tokens, vocab_size);
    double times[64];
    for (int run = -1; run < o->repeat; run++) { /* run -1 warms up */
        die_if(mm_cache_truncate(cache, 0, 0), "cache");
        double start = now();
        for (int i = 0; i < (decode ? tokens : 1); i++) {
            mm_batch batch = MM_BATCH_INIT;
            mm_output out = MM_OUTPUT_INIT;
            batch.ids = ids + i;
            batch.batch = 1;
            batch.length = decode ? 1 : tokens;
            batch.cache = cache;
            die_if(mm_forward(context, &batch, &out), "forward");
        }
        if (run >= 0)
            times[run] = now() - start;
    }
    double per_second = tokens / median(times, o->repeat);
    printf("%s %s, %s, %d tokens, %d threads, %s\n  %.0f tokens/s (%.0f to %.0f)\n", o->what, o->preset,
           mm_dtype_name(o->dtype), tokens, o->threads, mm_context_kernels(context), per_second,
           tokens / times[o->repeat - 1], tokens / times[0]);
    if (o->json)
        printf("{\"what\": \"%s\", \"preset\": \"%s\", \"dtype\": \"%s\", \"threads\": %d, \"kernels\": \"%s\", "
               "\"tokens\": %d, \"tokens_per_s\": %.1f, \"tokens_per_s_min\": %.1f, \"tokens_per_s_max\": %.1f}\n",
               o->what, o->preset, mm_dtype_name(o->dtype), o->threads, mm_context_kernels(context), tokens, per_second,
               tokens / times[o->repeat - 1], tokens / times[0]);
    free(ids);
    mm_cache_free(cache);
    mm_context_free(context);
    mm_model_free(model);
}

static int usage_text(FILE *to)
{
    fprintf(to, "usage: bench train|prefill|decode [options]\n"
                "  --preset NAME       what to run (minimind2-small)\n"
                "  --batch-size N      rows of a training batch (8)\n"
                "  --max-seq-len N     tokens per row, and of a prefill (512)\n"
                "  --new-tokens N      tokens to decode (128)\n"
                "  --dtype NAME        prefill, decode: f32, bf16, q8_0 or q4_0 (f32)\n"
                "  --threads N         (2)\n"
                "  --repeat N          counted runs, 1 to 64 (5)\n"
                "  --data-path FILE    train: JSON lines {\"text\"}, with\n"
                "  --tokenizer DIR     the tokenizer that reads them\n"
                "  --kernels NAME      one of:");
    for (int32_t i = 0; i < mm_kernels_count(); i++)
        fprintf(to, " %s", mm_kernels_name(i));
    fprintf(to, "\n  --json              a last line as a JSON object\n");
    return to == stdout ? 0 : 1;
}

int main(int argc, char **argv)
{
    static const struct option names[] = { { "preset", required_argument, NULL, 'p' },
                                           { "batch-size", required_argument, NULL, 'b' },
                                           { "max-seq-len", required_argument, NULL, 'l' },
                                           { "new-tokens", required_argument, NULL, 'n' },
                                           { "threads", required_argument, NULL, 't' },
                                           { "repeat", required_argument, NULL, 'r' },
                                           { "kernels", required_argument, NULL, 'k' },
                                           { "data-path", required_argument, NULL, 'd' },
                                           { "tokenizer", required_argument, NULL, 'z' },
                                           { "dtype", required_argument, NULL, 'w' },
                                           { "json", no_argument, NULL, 'j' },
                                           { "help", no_argument, NULL, 'h' },
                                           { NULL, 0, NULL, 0 } };
    options o = {
        .preset = "minimind2-small", .batch = 8, .length = 512, .threads = 2, .repeat = 5, .new_tokens = 128
    };
    for (int c; (c = getopt_long(argc, argv, "h", names, NULL)) != -1;) {
        switch (c) {
        case 'p':
            o.preset = optarg;
            break;
        case 'b':
            o.batch = atoi(optarg);
            break;
        case 'l':
            o.length = atoi(optarg);
            break;
        case 'n':
            o.new_tokens = atoi(optarg);
            break;
        case 't':
            o.threads = atoi(optarg);
            break;
        case 'r':
            o.repeat = atoi(optarg);
            break;
        case 'k':
            o.kernels = optarg;
            break;
        case 'd':
            o.data = optarg;
            break;
        case 'z':
            o.tokenizer = optarg;
            break;
        case 'w':
            if (!read_dtype(optarg, &o.dtype))
                return 1;
            break;
        case 'j':
            o.json = true;
            break;
        case 'h':
            return usage_text(stdout);
        default:
            return usage_text(stderr);
        }
    }
    o.what = optind + 1 == argc ? argv[optind] : "";
    bool train = strcmp(o.what, "train") == 0;
    if (!train && strcmp(o.what, "prefill") != 0 && strcmp(o.what, "decode") != 0)
        return usage_text(stderr);
    if (train && o.dtype != MM_F32) {
        fprintf(stderr, "bench: train runs in f32\n");
        return 1;
    }
    if (!o.data != !o.tokenizer) {
        fprintf(stderr, "bench: --data-path and --tokenizer go together\n");
        return 1;
    }
    if (o.repeat < 1 || o.repeat > 64 || o.batch < 1 || o.length < 1 || o.threads < 1 || o.new_tokens < 1) {
        fprintf(stderr, "bench: sizes must be positive, and --repeat at most 64\n");
        return 1;
    }
    mm_config *config = NULL;
    int64_t vocab_size = 0;
    die_if(mm_config_create(o.preset, &config), "preset");
    die_if(mm_config_get_int(config, "vocab_size", &vocab_size), "config");
    if (train)
        bench_train(&o, config, vocab_size);
    else
        bench_inference(&o, config, vocab_size);
    mm_config_free(config);
    return 0;
}
