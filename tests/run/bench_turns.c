/* Several builds of the library in one process, in turn: which is faster? Processes one after the other differ by
 * where their memory lies and by what the host does meanwhile, up to a factor of two; in turn, medians agree to some
 * per cent.
 *
 *     bench_turns [options] WHAT LIBRARY...        WHAT: train, prefill, decode, batch or generate
 *
 * Each library is a libminimind.so, with a slash in its name, or the system's is taken; the same may be given twice,
 * and PATH@N has N threads. It is loaded apart from the others, with a model and a context of its own. Prints each
 * one's median time of a run and, of the rounds, the ratio of the first library's time to its own: median and
 * quartiles. Above 1 it is faster than the first. `batch` is passes of one token for each of several sequences,
 * `generate` the same with drawing.
 *
 *     -p PRESET -d f32|bf16|q8_0|q4_0 -c f32|bf16|f16 (compute) -k KERNELS -t THREADS -b BATCH -l LENGTH -n NEW_TOKENS
 *     -s SEQUENCES -r ROUNDS -x PROCESSES (so many others keep a core busy each, all the time)
 *     -a TOKENS (that decode and batch find in the cache of each sequence) -v f32|bf16|q8_0 (of the cache)
 *     -w MILLISECONDS (of rest before each run, of which none is a warm-up then)
 *     -g MICROSECONDS (of the host's own work after each pass of prefill, decode and batch, as for drawing) */
#define _GNU_SOURCE /* dlmopen, getopt */

#include <dlfcn.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include <minimind.h>

enum { MOST_LIBRARIES = 8, MOST_ROUNDS = 1000, MOST_SEQUENCES = 1024, READ_TOGETHER = 512 };

/* What is called of each library. */
#define CALLS(X)                                                                                                       \
    X(last_error)                                                                                                      \
    X(config_create)                                                                                                   \
    X(config_get_int)                                                                                                  \
    X(model_create)                                                                                                    \
    X(model_cast)                                                                                                      \
    X(model_quantize)                                                                                                  \
    X(context_create)                                                                                                  \
    X(context_kernels)                                                                                                 \
    X(cache_create)                                                                                                    \
    X(cache_truncate)                                                                                                  \
    X(adamw_create)                                                                                                    \
    X(zero_grad)                                                                                                       \
    X(forward)                                                                                                         \
    X(backward)                                                                                                        \
    X(optimizer_step)                                                                                                  \
    X(generate)

typedef struct options {
    const char *what, *preset, *kernels;
    int32_t dtype, compute, threads, batch, length, new_tokens, sequences, rounds, others, rest, gap, past, cache_dtype;
} options;

typedef struct library {
#define MEMBER(name) __typeof__(&mm_##name) name;
    CALLS(MEMBER)
    mm_model *model;
    mm_context *context;
    mm_cache *cache;
    mm_optimizer *optimizer;
    int32_t *ids, threads;
    double seconds[MOST_ROUNDS];
} library;

static void die(const char *what, const char *why)
{
    fprintf(stderr, "bench_turns: %s: %s\n", what, why);
    exit(1);
}

static void expect(const library *l, mm_status status, const char *what)
{
    if (status != MM_OK)
        die(what, l->last_error());
}

static int32_t number(const char *text, long most)
{
    char *end;
    long n = strtol(text, &end, 10);
    if (*end || n < 1 || n > most)
        die(text, "not a number in range");
    return (int32_t)n;
}

static void load(library *l, char *path)
{
    char *at = strrchr(path, '@');
    if (at && !strchr(at, '/')) {
        l->threads = number(at + 1, 64);
        *at = '\0';
    }
    void *handle = dlmopen(LM_ID_NEWLM, path, RTLD_NOW);
    if (!handle)
        die(path, dlerror());
#define LOOK_UP(name)                                                                                                  \
    *(void **)&l->name = dlsym(handle, "mm_" #name);                                                                   \
    if (!l->name)                                                                                                      \
        die(path, "has no mm_" #name);
    CALLS(LOOK_UP)
}

static bool is(const options *o, const char *what)
{
    return strcmp(o->what, what) == 0;
}

/* --- Runs --- */

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void train(library *l, const options *o)
{
    mm_batch batch = MM_BATCH_INIT;
    mm_output out = MM_OUTPUT_INIT;
    mm_step step = MM_STEP_INIT;
    batch.ids = batch.targets = l->ids;
    batch.batch = o->batch;
    batch.length = o->length;
    batch.mode = MM_TRAIN;
    step.learning_rate = 1e-4;
    step.max_grad_norm = 1;
    expect(l, l->zero_grad(l->context), "zero_grad");
    expect(l, l->forward(l->context, &batch, &out), "forward");
    expect(l, l->backward(l->context, NULL), "backward");
    expect(l, l->optimizer_step(l->optimizer, l->context, &step), "step");
}

/* The host thinks, and its processor is no other's meanwhile. */
static void think(double seconds)
{
    for (const double end = now() + seconds; seconds > 0 && now() < end;) {}
}

/* Passes of `length` ids for each sequence of the cache, behind those that were read before. */
static void passes(library *l, const options *o, int32_t sequences, int32_t count, int32_t length)
{
    for (int32_t s = 0; s < sequences; s++)
        expect(l, l->cache_truncate(l->cache, s, o->past), "cache");
    for (int32_t i = 0; i < count; i++) {
        mm_batch batch = MM_BATCH_INIT;
        mm_output out = MM_OUTPUT_INIT;
        batch.ids = l->ids + (size_t)i * (size_t)(sequences * length);
        batch.batch = sequences;
        batch.length = length;
        batch.cache = l->cache;
        expect(l, l->forward(l->context, &batch, &out), "forward");
        think(1e-6 * o->gap);
    }
}

static void generate(library *l, const options *o)
{
    static const int32_t nothing = 0; /* with stop_count 0: nothing stops */
    const int32_t *prompts[MOST_SEQUENCES];
    int32_t lengths[MOST_SEQUENCES];
    mm_generate_options how = MM_GENERATE_OPTIONS_INIT;
    mm_generate_result result = MM_GENERATE_RESULT_INIT;
    for (int32_t i = 0; i < o->sequences; i++) {
        prompts[i] = l->ids + i;
        lengths[i] = 1;
    }
    how.prompts = prompts;
    how.prompt_lengths = lengths;
    how.sequences = o->sequences;
    how.max_new_tokens = o->new_tokens;
    how.stop_ids = &nothing;
    expect(l, l->generate(l->context, &how, &result), "generate");
}

static void run(library *l, const options *o)
{
    if (is(o, "train"))
        train(l, o);
    else if (is(o, "prefill"))
        passes(l, o, 1, 1, o->length);
    else if (is(o, "decode"))
        passes(l, o, 1, o->new_tokens, 1);
    else if (is(o, "batch"))
        passes(l, o, o->sequences, o->new_tokens, 1);
    else
        generate(l, o);
}

/* --- What runs need --- */

static void make_model(library *l, const options *o, const mm_config *config)
{
    expect(l, l->model_create(config, 1, &l->model), "model");
    mm_model *exact = l->model; /* lives as long as the process, as all else here */
    if (o->dtype == MM_BF16)
        expect(l, l->model_cast(exact, MM_BF16, &l->model), "model");
    else if (o->dtype != MM_F32)
        expect(l, l->model_quantize(exact, o->dtype, &l->model), "model");
}

/* The first id, over and over: only how many there are counts. */
static void read_past(library *l, const options *o, int32_t sequences)
{
    int32_t *ids = malloc((size_t)sequences * READ_TOGETHER * sizeof *ids);
    if (!ids)
        die("ids", "out of memory");
    for (int32_t i = 0; i < sequences * READ_TOGETHER; i++)
        ids[i] = l->ids[0];
    for (int32_t left = o->past; left > 0; left -= READ_TOGETHER) {
        mm_batch batch = MM_BATCH_INIT;
        mm_output out = MM_OUTPUT_INIT;
        batch.ids = ids;
        batch.batch = sequences;
        batch.length = left < READ_TOGETHER ? left : READ_TOGETHER;
        batch.cache = l->cache;
        expect(l, l->forward(l->context, &batch, &out), "forward");
    }
    free(ids);
}

static void prepare(library *l, const options *o)
{
    bool training = is(o, "train"), together = is(o, "batch") || is(o, "generate");
    int32_t sequences = together ? o->sequences : 1, length = is(o, "prefill") ? o->length : o->new_tokens;
    mm_config *config = NULL;
    int64_t vocab_size = 0;
    expect(l, l->config_create(o->preset, &config), "preset");
    expect(l, l->config_get_int(config, "vocab_size", &vocab_size), "vocab_size");
    make_model(l, o, config);
    mm_context_options how = MM_CONTEXT_OPTIONS_INIT;
    how.mode = training ? MM_TRAIN : MM_EVAL;
    how.max_batch = training ? o->batch : sequences;
    how.max_length = training || is(o, "prefill") ? o->length : o->past > 0 ? READ_TOGETHER : 1;
    how.max_context = training ? 0 : o->past + length + 1;
    if (how.max_context > 0 && how.max_context < how.max_length)
        how.max_context = how.max_length;
    how.threads = l->threads;
    how.kernels = o->kernels;
    how.compute = o->compute;
    expect(l, l->context_create(l->model, &how, &l->context), "context");
    if (training)
        expect(l, l->adamw_create(l->model, NULL, &l->optimizer), "optimizer");
    else if (!is(o, "generate"))
        expect(l, l->cache_create(l->model, sequences, o->past + length, o->cache_dtype, &l->cache), "cache");
    size_t count = training ? (size_t)o->batch * (size_t)o->length : (size_t)sequences * (size_t)length;
    if (!(l->ids = malloc(count * sizeof *l->ids)))
        die("ids", "out of memory");
    uint32_t state = 1;
    for (size_t i = 0; i < count; i++) {
        state = state * 1664525u + 1013904223u;
        l->ids[i] = (int32_t)((state >> 8) % (uint64_t)vocab_size);
    }
    if (l->cache)
        read_past(l, o, sequences);
}

/* --- Taking turns --- */

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* A turn takes a tenth of a second at least, after a run that is not counted, for the library before has left other
 * things in the caches; which a step of training, as long as it is, hardly feels. After a rest it is one run: what a
 * caller feels who comes back. */
static void take_turn(library *l, const options *o, int round)
{
    int runs = 0;
    if (o->rest > 0)
        nanosleep(&(struct timespec){ o->rest / 1000, o->rest % 1000 * 1000000L }, NULL);
    else if (!is(o, "train"))
        run(l, o);
    double start = now(), took;
    do {
        run(l, o);
        runs++;
        took = now() - start;
    } while (took < 0.1 && o->rest == 0);
    l->seconds[round] = took / runs;
}

static void report(library *all, int count, const options *o, char **paths)
{
    for (int i = 0; i < count; i++) {
        double ratios[MOST_ROUNDS], seconds[MOST_ROUNDS];
        for (int r = 0; r < o->rounds; r++) {
            ratios[r] = all[0].seconds[r] / all[i].seconds[r];
            seconds[r] = all[i].seconds[r];
        }
        qsort(ratios, (size_t)o->rounds, sizeof *ratios, by_value);
        qsort(seconds, (size_t)o->rounds, sizeof *seconds, by_value);
        printf("%9.3f ms   %.3f [%.3f to %.3f]   %s (%s, %d threads)\n", 1e3 * seconds[o->rounds / 2],
               ratios[o->rounds / 2], ratios[o->rounds / 4], ratios[o->rounds * 3 / 4], paths[i],
               all[i].context_kernels(all[i].context), (int)all[i].threads);
    }
}

static int32_t dtype_named(const char *name)
{
    static const struct {
        const char *name;
        int32_t dtype;
    } known[] = { { "f32", MM_F32 }, { "bf16", MM_BF16 }, { "f16", MM_F16 }, { "q8_0", MM_Q8_0 }, { "q4_0", MM_Q4_0 } };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(known[i].name, name) == 0)
            return known[i].dtype;
    die(name, "no such type");
    return 0;
}

/* Where the libraries' names begin. */
static int read_options(options *o, int argc, char **argv)
{
    for (int c; (c = getopt(argc, argv, "+p:d:c:k:t:b:l:n:s:r:x:w:g:a:v:")) != -1;)
        switch (c) {
        /* clang-format off */
        case 'p': o->preset = optarg; break;
        case 'd': o->dtype = dtype_named(optarg); break;
        case 'c': o->compute = dtype_named(optarg); break;
        case 'k': o->kernels = optarg; break;
        case 't': o->threads = number(optarg, 64); break;
        case 'b': o->batch = number(optarg, 1024); break;
        case 'l': o->length = number(optarg, 1 << 20); break;
        case 'n': o->new_tokens = number(optarg, 1 << 20); break;
        case 's': o->sequences = number(optarg, MOST_SEQUENCES); break;
        case 'r': o->rounds = number(optarg, MOST_ROUNDS); break;
        case 'x': o->others = number(optarg, 64); break;
        case 'w': o->rest = number(optarg, 60000); break;
        case 'a': o->past = number(optarg, 1 << 20); break;
        case 'v': o->cache_dtype = dtype_named(optarg); break;
        case 'g': o->gap = number(optarg, 1000000); break;
        /* clang-format on */
        default: /* getopt has said why */
            exit(1);
        }
    if (argc - optind < 2 || argc - optind - 1 > MOST_LIBRARIES)
        die("usage", "bench_turns [options] train|prefill|decode|batch|generate LIBRARY... (up to 8)");
    o->what = argv[optind];
    if (!is(o, "train") && !is(o, "prefill") && !is(o, "decode") && !is(o, "batch") && !is(o, "generate"))
        die(o->what, "no such work");
    if (o->past > 0 && !is(o, "decode") && !is(o, "batch"))
        die("-a", "is for decode and batch");
    return optind + 1;
}

/* Other programs: they end with this one, however it does. */
static void keep_busy(int32_t processes)
{
    for (int32_t i = 0; i < processes; i++) {
        pid_t pid = fork();
        if (pid < 0)
            die("fork", "no more processes");
        if (pid > 0)
            continue;
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (volatile uint32_t work = 0;; work++) {}
    }
}

int main(int argc, char **argv)
{
    static library all[MOST_LIBRARIES];
    options o = { NULL, "minimind2-small", NULL, MM_F32, MM_F32, 2, 4, 512, 128, 16, 21, 0, 0, 0, 0, MM_F32 };
    const int first = read_options(&o, argc, argv), count = argc - first;
    keep_busy(o.others);
    for (int i = 0; i < count; i++) {
        all[i].threads = o.threads;
        load(&all[i], argv[first + i]);
        prepare(&all[i], &o);
        run(&all[i], &o); /* touches all memory */
    }
    for (int r = 0; r < o.rounds; r++)
        for (int i = 0; i < count; i++)
            take_turn(&all[(i + r) % count], &o, r);
    report(all, count, &o, argv + first);
    return 0;
}
