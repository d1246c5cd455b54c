#include <stdlib.h>
#include <string.h>

#include "bench.h"

mm_model *make_model(const mm_config *config, int32_t dtype)
{
    mm_model *exact = NULL, *model = NULL;
    die_if(mm_model_create(config, 1, &exact), "model");
    if (dtype == MM_F32)
        return exact;
    if (dtype == MM_BF16)
        die_if(mm_model_cast(exact, dtype, &model), "model");
    else
        die_if(mm_model_quantize(exact, dtype, &model), "model");
    mm_model_free(exact);
    return model;
}

double forward_flops(const mm_config *config, int length)
{
    mm_workload workload = MM_WORKLOAD_INIT;
    mm_flops flops = MM_FLOPS_INIT;
    workload.max_length = length;
    die_if(mm_estimate_flops(config, &workload, &flops), "estimate");
    return flops.forward;
}

double weight_bytes(const mm_config *config, int32_t dtype)
{
    mm_workload workload = MM_WORKLOAD_INIT;
    mm_memory memory = MM_MEMORY_INIT;
    mm_param_count count = MM_PARAM_COUNT_INIT;
    workload.dtype = dtype;
    workload.max_length = 1;
    die_if(mm_estimate_memory(config, &workload, &memory), "estimate");
    die_if(mm_count_params(config, &count), "count");
    return (double)memory.weights * (double)count.active / (double)count.total;
}

double cached_bytes(const mm_config *config, const options *o)
{
    mm_workload workload = MM_WORKLOAD_INIT;
    mm_memory memory = MM_MEMORY_INIT;
    workload.max_length = 1;
    workload.cache_dtype = o->cache_dtype;
    workload.cache_sequences = workload.cache_capacity = 1;
    die_if(mm_estimate_memory(config, &workload, &memory), "estimate");
    return (double)memory.cache_per_token * o->past;
}

int32_t compute_of(const options *o, int32_t dtype)
{
    if (o->compute != AS_WEIGHTS)
        return o->compute;
    return dtype == MM_BF16 ? MM_BF16 : MM_F32;
}

static mm_context_options begin(work *w, const options *o, int32_t dtype, int threads, const char *kernels)
{
    *w = (work){ .o = o };
    die_if(mm_config_create(o->preset, &w->config), "preset");
    die_if(mm_config_get_int(w->config, "vocab_size", &w->vocab_size), "config");
    mm_context_options how = MM_CONTEXT_OPTIONS_INIT;
    how.threads = threads;
    how.kernels = kernels;
    how.compute = compute_of(o, dtype);
    return how;
}

/* --- Training --- */

/* Rows of a file, packed, or random ids again and again. */
static mm_batch next_batch(const work *w)
{
    mm_batch batch = MM_BATCH_INIT;
    for (int tries = 0; w->loader && batch.batch == 0 && tries < 2; tries++) /* an epoch may end in between */
        die_if(mm_loader_next(w->loader, &batch), "data");
    if (w->loader)
        return batch;
    batch.ids = batch.targets = w->ids;
    batch.batch = w->o->batch;
    batch.length = w->o->length;
    batch.mode = MM_TRAIN;
    return batch;
}

static void run_train(work *w)
{
    mm_batch batch = next_batch(w);
    mm_output out = MM_OUTPUT_INIT;
    mm_step step = MM_STEP_INIT;
    step.learning_rate = 1e-4;
    step.max_grad_norm = 1;
    die_if(mm_zero_grad(w->context), "zero_grad");
    die_if(mm_forward(w->context, &batch, &out), "forward");
    die_if(mm_backward(w->context, NULL), "backward");
    die_if(mm_optimizer_step(w->optimizer, w->context, &step), "step");
}

static void open_loader(work *w)
{
    mm_loader_options how = MM_LOADER_OPTIONS_INIT;
    how.batch = w->o->batch;
    how.max_length = w->o->length;
    how.form = MM_ROWS_PACK;
    how.workers = 0; /* rows prepared meanwhile would be counted as the model's memory */
    die_if(mm_tokenizer_load(w->o->tokenizer, &w->tokenizer), "tokenizer");
    die_if(mm_dataset_open(w->o->data, &w->dataset), "data");
    die_if(mm_loader_create(w->dataset, w->tokenizer, &how, &w->loader), "loader");
}

void open_train(work *w, const options *o, int threads, const char *kernels)
{
    mm_context_options how = begin(w, o, MM_F32, threads, kernels);
    how.mode = MM_TRAIN;
    how.max_batch = o->batch;
    how.max_length = o->length;
    if (o->data)
        open_loader(w);
    mm_memory_usage usage = MM_MEMORY_USAGE_INIT;
    die_if(mm_memory_get_usage(&usage), "memory");
    w->held = usage.current;
    die_if(mm_model_create(w->config, 1, &w->model), "model");
    die_if(mm_context_create(w->model, &how, &w->context), "context");
    die_if(mm_adamw_create(w->model, NULL, &w->optimizer), "optimizer");
    w->tokens = o->batch * o->length;
    w->ids = random_ids(w->tokens, w->vocab_size);
    w->run = run_train;
}

/* --- Inference --- */

static void forward(work *w, int from, int length)
{
    mm_batch batch = MM_BATCH_INIT;
    mm_output out = MM_OUTPUT_INIT;
    batch.ids = w->ids + from;
    batch.batch = 1;
    batch.length = length;
    batch.cache = w->cache;
    die_if(mm_forward(w->context, &batch, &out), "forward");
}

static void run_prefill(work *w)
{
    die_if(mm_cache_truncate(w->cache, 0, 0), "cache");
    forward(w, 0, w->tokens);
}

static void run_decode(work *w)
{
    die_if(mm_cache_truncate(w->cache, 0, w->o->past), "cache");
    for (int i = 0; i < w->tokens; i++)
        forward(w, w->o->past + i, 1);
}

/* One run is of `tokens`, behind `past` others in the cache. */
static void open_inference(work *w, mm_context_options *how, int tokens, int past)
{
    const options *o = w->o;
    how->max_context = past + tokens;
    w->tokens = tokens;
    w->model = make_model(w->config, o->dtype);
    die_if(mm_context_create(w->model, how, &w->context), "context");
    die_if(mm_cache_create(w->model, 1, past + tokens, o->cache_dtype, &w->cache), "cache");
    w->ids = random_ids(past + tokens, w->vocab_size);
}

void open_prefill(work *w, const options *o, int threads, const char *kernels)
{
    mm_context_options how = begin(w, o, o->dtype, threads, kernels);
    how.max_length = o->length;
    open_inference(w, &how, o->length, 0);
    w->run = run_prefill;
}

void open_decode(work *w, const options *o, int threads, const char *kernels)
{
    mm_context_options how = begin(w, o, o->dtype, threads, kernels);
    how.max_length = o->past < 1 ? 1 : o->past < 512 ? o->past : 512;
    open_inference(w, &how, o->new_tokens, o->past);
    for (int i = 0; i < o->past; i += how.max_length)
        forward(w, i, o->past - i < how.max_length ? o->past - i : how.max_length);
    w->run = run_decode;
}

/* --- Many sequences together, sampling included --- */

#define PROMPT 4 /* ids of each prompt */

static void run_batch(work *w)
{
    static const int32_t nothing = 0; /* with stop_count 0: nothing stops */
    const int32_t *prompts[1024];
    int32_t lengths[1024];
    for (int i = 0; i < w->sequences; i++) {
        prompts[i] = w->ids + i * PROMPT;
        lengths[i] = PROMPT;
    }
    mm_generate_options how = MM_GENERATE_OPTIONS_INIT;
    mm_generate_result result = MM_GENERATE_RESULT_INIT;
    how.prompts = prompts;
    how.prompt_lengths = lengths;
    how.sequences = w->sequences;
    how.max_new_tokens = w->o->new_tokens;
    how.stop_ids = &nothing;
    how.cache_dtype = w->o->cache_dtype;
    die_if(mm_generate(w->context, &how, &result), "generate");
}

void open_batch(work *w, const options *o, int threads, const char *kernels)
{
    mm_context_options how = begin(w, o, o->dtype, threads, kernels);
    how.max_batch = w->sequences = o->sequences;
    how.max_length = PROMPT;
    how.max_context = PROMPT + o->new_tokens;
    w->model = make_model(w->config, o->dtype);
    die_if(mm_context_create(w->model, &how, &w->context), "context");
    w->ids = random_ids(o->sequences * PROMPT, w->vocab_size);
    w->tokens = o->sequences * o->new_tokens;
    w->run = run_batch;
}

open_fn open_named(const char *name)
{
    static const struct {
        const char *name;
        open_fn open;
    } known[] = { { "train", open_train }, { "prefill", open_prefill }, { "decode", open_decode }, { "batch", open_batch } };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(known[i].name, name) == 0)
            return known[i].open;
    return NULL;
}

void work_close(work *w)
{
    mm_cache_free(w->cache);
    mm_optimizer_free(w->optimizer);
    mm_context_free(w->context);
    mm_model_free(w->model);
    mm_loader_free(w->loader);
    mm_dataset_free(w->dataset);
    mm_tokenizer_free(w->tokenizer);
    mm_config_free(w->config);
    free(w->ids);
}

/* Seconds of a run. One that takes less than this follows another and is repeated so long: what lies in a cache, a
 * processor's clock and its threads are as they are in the middle of such work, not after a pause. */
#define ENOUGH_SECONDS 0.2
static double time_work(work *w)
{
    double start = now();
    w->run(w);
    double took = now() - start;
    if (took >= ENOUGH_SECONDS)
        return took;
    int runs = 0;
    start = now();
    do {
        w->run(w);
        runs++;
        took = now() - start;
    } while (took < ENOUGH_SECONDS);
    return took / runs;
}

void run_in_turn(work *works, int n, int repeat, void (*between)(void *arg, int round), void *arg)
{
    for (int i = 0; i < n; i++) /* touches all memory */
        works[i].run(&works[i]);
    for (int round = 0; round < repeat; round++) {
        for (int i = 0; i < n; i++)
            works[i].seconds[round] = time_work(&works[i]);
        if (between)
            between(arg, round);
    }
}
