/* How long it takes from nothing to the first token: the weights mapped from a file that is in the page cache, or those in
 * blocks read from it. */
#define _POSIX_C_SOURCE 200809L

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "bench.h"

static void remove_saved(const char *directory)
{
    static const char *const names[] = { "config.json", "model.safetensors" };
    char path[512];
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/%s", directory, names[i]);
        unlink(path);
    }
    rmdir(directory);
}

typedef struct parts {
    double create[MOST_RUNS], load[MOST_RUNS], context[MOST_RUNS], token[MOST_RUNS], all[MOST_RUNS];
} parts;

static void start_once(const options *o, const mm_config *config, const char *directory, parts *p, int run)
{
    mm_model *model = NULL;
    mm_context *context = NULL;
    double start = now();
    die_if(mm_model_create(config, 1, &model), "model");
    p->create[run] = now() - start;
    mm_model_free(model);

    static const int32_t ids[] = { 1, 2, 3, 4, 5, 6, 7, 8 }, length = 8;
    const int32_t *prompt = ids;
    mm_load_options mapped = MM_LOAD_OPTIONS_INIT;
    mm_context_options how = MM_CONTEXT_OPTIONS_INIT;
    mm_generate_options once = MM_GENERATE_OPTIONS_INIT;
    mm_generate_result result = MM_GENERATE_RESULT_INIT;
    mapped.map = 1;
    how.threads = o->threads;
    how.kernels = o->kernels;
    how.compute = compute_of(o, o->dtype);
    once.prompts = &prompt;
    once.prompt_lengths = &length;
    once.max_new_tokens = 1;
    double begun = now();
    die_if(mm_model_load(directory, &mapped, &model), "load");
    double loaded = now();
    die_if(mm_context_create(model, &how, &context), "context");
    double planned = now();
    die_if(mm_generate(context, &once, &result), "generate");
    double done = now();
    p->load[run] = loaded - begun;
    p->context[run] = planned - loaded;
    p->token[run] = done - planned;
    p->all[run] = done - begun;
    mm_context_free(context);
    mm_model_free(model);
}

void bench_start(const options *o)
{
    char directory[] = "bench-start-XXXXXX";
    mm_config *config = NULL;
    mm_model *model = NULL;
    static parts p;
    die_if(mm_config_create(o->preset, &config), "preset");
    model = make_model(config, o->dtype);
    if (!mkdtemp(directory)) {
        fprintf(stderr, "%s: can't make a directory here\n", program);
        exit(1);
    }
    die_if(mm_model_save(model, directory), "save");
    mm_model_free(model);
    for (int i = -1; i < o->repeat; i++) /* the first brings the file into the page cache */
        start_once(o, config, directory, &p, i < 0 ? 0 : i);
    remove_saved(directory);
    record_begin(o, "start", o->dtype, o->threads, o->kernels ? o->kernels : mm_kernels_name(mm_kernels_count() - 1));
    rates all = rates_of(1, p.all, o->repeat);
    record_rates("tokens_per_s", all); /* one token in the time from nothing to it */
    record_number("first_token_ms", 1e3 / all.median);
    record_number("first_token_ms_max", 1e3 / all.slowest);
    record_number("load_ms", 1e3 * median(p.load, o->repeat));
    record_number("context_ms", 1e3 * median(p.context, o->repeat));
    record_number("token_ms", 1e3 * median(p.token, o->repeat));
    record_number("create_ms", 1e3 * median(p.create, o->repeat));
    record_end();
    mm_config_free(config);
}
