/* What the loader costs a training step: rows of text are packed ahead by one thread while a model learns from them.
 *
 *     bench_loader [PRESET [STEPS]]          minimind2-small, 4
 *
 * Prints the loader's share of the time, with its rows prepared ahead and without. */
#define _POSIX_C_SOURCE 200809L

#include <minimind.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static void check(mm_status status)
{
    if (status != MM_OK) {
        fprintf(stderr, "bench_loader: %s\n", mm_last_error());
        exit(EXIT_FAILURE);
    }
}

static int32_t one_text(void *user, const char **text, size_t *length)
{
    static const char words[] = "Once upon a time there was a small model that learnt to read. ";
    int *left = user;
    *text = words;
    *length = sizeof words - 1;
    return (*left)-- > 0;
}

static void write_rows(const char *path)
{
    static const char *const words[] = { "once", "upon", "a", "time", "model", "reads", "books", "small", "river", "stone" };
    FILE *file = fopen(path, "wb");
    if (!file)
        exit(EXIT_FAILURE);
    unsigned state = 1;
    for (int row = 0; row < 20000; row++) {
        fprintf(file, "{\"text\": \"%d", row);
        for (int i = 0; i < 80; i++) {
            state = state * 1664525u + 1013904223u;
            fprintf(file, " %s", words[state >> 24 & 7]);
        }
        fputs("\"}\n", file);
    }
    fclose(file);
}

static void run(mm_model *model, mm_dataset *dataset, mm_tokenizer *tokenizer, int32_t workers, int steps)
{
    mm_loader_options o = MM_LOADER_OPTIONS_INIT;
    mm_context_options c = MM_CONTEXT_OPTIONS_INIT;
    mm_loader_stats stats = MM_LOADER_STATS_INIT;
    mm_loader *loader = NULL;
    mm_context *context = NULL;
    o.form = MM_ROWS_PACK;
    o.batch = 4;
    o.max_length = 256;
    o.workers = workers;
    c.mode = MM_TRAIN;
    c.max_batch = o.batch;
    c.max_length = o.max_length;
    c.outputs = MM_OUT_LOSS;
    check(mm_context_create(model, &c, &context));
    check(mm_loader_create(dataset, tokenizer, &o, &loader));
    for (int step = 0; step < steps; step++) {
        mm_batch batch = MM_BATCH_INIT;
        mm_output out = MM_OUTPUT_INIT;
        check(mm_loader_next(loader, &batch));
        check(mm_forward(context, &batch, &out));
        check(mm_backward(context, NULL));
    }
    check(mm_loader_get_stats(loader, &stats));
    printf("%d workers: %.3f s for %lld batches, %.2f ms in the loader, %.2f ms of them waiting: a share of %.3f%%\n", workers,
           stats.elapsed_seconds, (long long)stats.batches, 1e3 * stats.call_seconds, 1e3 * stats.wait_seconds,
           100 * stats.call_seconds / stats.elapsed_seconds);
    mm_loader_free(loader);
    mm_context_free(context);
}

int main(int argc, char **argv)
{
    const char *tmp = getenv("TMPDIR");
    char path[512];
    mm_config *config = NULL;
    mm_model *model = NULL;
    mm_dataset *dataset = NULL;
    mm_tokenizer *tokenizer = NULL;
    mm_tokenizer_train_options t = MM_TOKENIZER_TRAIN_OPTIONS_INIT;
    snprintf(path, sizeof path, "%s/bench-loader-XXXXXX", tmp ? tmp : "/tmp");
    int texts = 1, fd = mkstemp(path);
    if (fd < 0)
        return EXIT_FAILURE;
    close(fd);
    write_rows(path);
    t.next_text = one_text;
    t.user = &texts;
    check(mm_tokenizer_train(&t, &tokenizer));
    check(mm_config_create(argc > 1 ? argv[1] : "minimind2-small", &config));
    check(mm_model_create(config, 1, &model));
    check(mm_dataset_open(path, &dataset));
    for (int32_t workers = 1; workers >= 0; workers--)
        run(model, dataset, tokenizer, workers, argc > 2 ? atoi(argv[2]) : 4);
    mm_dataset_free(dataset);
    mm_model_free(model);
    mm_config_free(config);
    mm_tokenizer_free(tokenizer);
    unlink(path);
    return EXIT_SUCCESS;
}
