/* lora: teach a model something small, and keep what it learnt apart from it.
 *
 *     lora --model out/full_sft --data-path dataset/lora_identity.jsonl --lora-name identity
 *     generate --model out/full_sft --adapter out/lora/identity --prompt "…"
 *
 * The options are those of MiniMind's trainer/train_lora.py where it has them. The model is only read:
 * neither gradients nor moments are held for it. The training loop is written out: a loader's batches, forward,
 * backward, a step of the optimizer. */
#include <minimind.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void fail(const char *what, const char *which)
{
    fprintf(stderr, "lora: %s%s\n", what, which);
    exit(EXIT_FAILURE);
}

static void check(mm_status status)
{
    if (status != MM_OK)
        fail(mm_last_error(), "");
}

enum { MODEL, DATA_PATH, SAVE_DIR, LORA_NAME, TARGETS, FROM_LORA, KERNELS, TEXTS };
static const char *const text_names[TEXTS] = { "model",   "data-path", "save-dir", "lora-name",
                                               "targets", "from-lora", "kernels" };
static const char *texts[TEXTS] = { [SAVE_DIR] = "out/lora", [LORA_NAME] = "lora_identity", [TARGETS] = "minimind" };

enum {
    RANK,
    ALPHA,
    DROPOUT,
    EPOCHS,
    BATCH_SIZE,
    LEARNING_RATE,
    ACCUMULATION_STEPS,
    GRAD_CLIP,
    WEIGHT_DECAY,
    MAX_SEQ_LEN,
    LOG_INTERVAL,
    SEED,
    THREADS,
    NUMBERS
};
static struct {
    const char *name;
    double value, low, high;
} numbers[NUMBERS] = {
    { "rank", 8, 1, 65536 },
    { "alpha", 16, 1e-6, 1e6 },
    { "dropout", 0, 0, 0.99 },
    { "epochs", 10, 1, 1e6 },
    { "batch-size", 32, 1, 65536 },
    { "learning-rate", 1e-4, 0, 1 },
    { "accumulation-steps", 1, 1, 1e6 },
    { "grad-clip", 1, 0, 1e6 },
    { "weight-decay", 0.01, 0, 1 },
    { "max-seq-len", 340, 2, 1e6 },
    { "log-interval", 10, 1, 1e9 },
    { "seed", 42, 0, 9e15 },
    { "threads", 0, 0, 1024 },
};

static const char usage[] =
    "usage: lora --model DIR --data-path FILE [OPTION VALUE]...\n\n"
    "Learn a low-rank adapter for the model in DIR from conversations in JSON lines.\n\n"
    "  --save-dir DIR, --lora-name NAME  the adapter comes to DIR/NAME (out/lora, lora_identity)\n"
    "  --from-lora DIR          go on with an adapter that was saved\n"
    "  --targets NAMES          which projections, such as q_proj,v_proj or * for all; minimind: those\n"
    "                           with as many inputs as outputs, and no alpha (minimind)\n"
    "  --rank N  --alpha X  --dropout X              of the adapter (8, 16, 0)\n"
    "  --epochs N  --batch-size N  --max-seq-len N   (10, 32, 340)\n"
    "  --learning-rate X  --accumulation-steps N     (1e-4, falling by MiniMind's cosine; 1)\n"
    "  --grad-clip X  --weight-decay X               (1, 0.01)\n"
    "  --log-interval N  --seed N  --threads N  --kernels NAME";

static void read_option(const char *name, const char *value)
{
    for (int i = 0; i < TEXTS; i++)
        if (strcmp(name, text_names[i]) == 0) {
            texts[i] = value;
            return;
        }
    int i = 0;
    while (i < NUMBERS && strcmp(name, numbers[i].name) != 0)
        i++;
    if (i == NUMBERS)
        fail("no such option, --help lists them: --", name);
    char *end;
    numbers[i].value = strtod(value, &end);
    if (end == value || *end || !(numbers[i].value >= numbers[i].low && numbers[i].value <= numbers[i].high))
        fail("a number out of range for --", name);
}

static void read_arguments(int argc, char **argv)
{
    for (int i = 1; i < argc; i += 2) {
        if (strcmp(argv[i], "--help") == 0)
            exit(puts(usage) < 0);
        for (char *c = argv[i] + 1; *c; c++) /* MiniMind writes --data_path */
            *c = *c == '_' ? '-' : *c;
        if (strncmp(argv[i], "--", 2) != 0 || i + 1 == argc)
            fail("not an option with its value: ", argv[i]);
        read_option(argv[i] + 2, argv[i + 1]);
    }
    if (!texts[MODEL] || !texts[DATA_PATH])
        fail("it takes --model and --data-path; see --help", "");
}

static mm_adapter *make_adapter(mm_model *model)
{
    mm_adapter_options options = MM_ADAPTER_OPTIONS_INIT;
    mm_adapter *adapter = NULL;
    if (texts[FROM_LORA]) {
        check(mm_adapter_load(model, texts[FROM_LORA], &adapter));
        return adapter;
    }
    options.targets = texts[TARGETS];
    options.rank = (int32_t)numbers[RANK].value;
    options.alpha = numbers[ALPHA].value;
    options.dropout = numbers[DROPOUT].value;
    options.seed = (uint64_t)numbers[SEED].value;
    check(mm_adapter_create(model, &options, &adapter));
    return adapter;
}

/* Only what the assistant says is learnt. */
static mm_loader *make_loader(mm_dataset *dataset, mm_tokenizer *tokenizer)
{
    mm_loader_options options = MM_LOADER_OPTIONS_INIT;
    mm_loader *loader = NULL;
    options.kind = MM_ROW_CHAT;
    options.seed = (uint64_t)numbers[SEED].value;
    options.batch = (int32_t)numbers[BATCH_SIZE].value;
    options.max_length = (int32_t)numbers[MAX_SEQ_LEN].value;
    check(mm_loader_create(dataset, tokenizer, &options, &loader));
    return loader;
}

/* A context whose gradients are the adapter's alone. */
static mm_context *make_context(mm_model *model, mm_adapter *adapter, const mm_loader *loader)
{
    mm_context_options plan = MM_CONTEXT_OPTIONS_INIT;
    mm_context *context = NULL;
    plan.mode = MM_TRAIN;
    plan.max_batch = (int32_t)numbers[BATCH_SIZE].value;
    plan.max_length = mm_loader_length(loader);
    plan.threads = (int32_t)numbers[THREADS].value;
    plan.kernels = texts[KERNELS];
    plan.adapter = adapter;
    check(mm_context_create(model, &plan, &context));
    return context;
}

static void train(mm_context *context, mm_optimizer *optimizer, mm_loader *loader, int64_t rows)
{
    int64_t batch_size = (int64_t)numbers[BATCH_SIZE].value, steps = (rows + batch_size - 1) / batch_size;
    int64_t accumulate = (int64_t)numbers[ACCUMULATION_STEPS].value, done = 0, epochs = (int64_t)numbers[EPOCHS].value;
    mm_batch batch = MM_BATCH_INIT;
    mm_backward_options backward = MM_BACKWARD_OPTIONS_INIT;
    backward.loss_scale = backward.aux_scale = 1.0 / (double)accumulate;
    for (int64_t epoch = 0; epoch < epochs; epoch++)
        for (int64_t step = 1;; step++) {
            check(mm_loader_next(loader, &batch));
            if (batch.batch == 0)
                break; /* the epoch is over */
            mm_output out = MM_OUTPUT_INIT;
            batch.seed = (uint64_t)done++; /* each step has dropout of its own */
            check(mm_forward(context, &batch, &out));
            check(mm_backward(context, &backward));
            mm_step update = MM_STEP_INIT;
            update.max_grad_norm = numbers[GRAD_CLIP].value;
            check(mm_schedule_lr(MM_SCHEDULE_MINIMIND2, done, epochs * steps, 0, numbers[LEARNING_RATE].value,
                                 &update.learning_rate));
            if (done % accumulate == 0 || step == steps) {
                check(mm_optimizer_step(optimizer, context, &update));
                check(mm_zero_grad(context));
            }
            if (step % (int64_t)numbers[LOG_INTERVAL].value == 0 || step == steps)
                printf("Epoch:[%lld/%lld](%lld/%lld), loss: %.4f, lr: %.8f\n", (long long)epoch + 1, (long long)epochs,
                       (long long)step, (long long)steps, out.loss, update.learning_rate);
            fflush(stdout);
        }
}

int main(int argc, char **argv)
{
    read_arguments(argc, argv);
    mm_model *model = NULL;
    mm_tokenizer *tokenizer = NULL;
    mm_dataset *dataset = NULL;
    mm_optimizer *optimizer = NULL;
    mm_param_count count = MM_PARAM_COUNT_INIT;
    mm_adamw_options adamw = MM_ADAMW_OPTIONS_INIT;
    check(mm_model_load(texts[MODEL], NULL, &model));
    check(mm_tokenizer_load(texts[MODEL], &tokenizer));
    check(mm_dataset_open(texts[DATA_PATH], &dataset));
    mm_adapter *adapter = make_adapter(model);
    mm_loader *loader = make_loader(dataset, tokenizer);
    mm_context *context = make_context(model, adapter, loader);
    adamw.weight_decay = numbers[WEIGHT_DECAY].value;
    check(mm_adamw_create_adapter(adapter, &adamw, &optimizer));
    check(mm_count_params(mm_model_config(model), &count));
    printf("%.3fM parameters, %.3fM in the adapter (%.2f%%), %lld rows\n", (double)count.total / 1e6,
           (double)mm_adapter_count_params(adapter) / 1e6,
           100 * (double)mm_adapter_count_params(adapter) / (double)count.total, (long long)mm_dataset_rows(dataset));
    train(context, optimizer, loader, mm_dataset_rows(dataset));

    char path[4096];
    snprintf(path, sizeof path, "%s/%s", texts[SAVE_DIR], texts[LORA_NAME]);
    check(mm_adapter_save(adapter, path));
    printf("the adapter is in %s\n", path);
    mm_optimizer_free(optimizer);
    mm_context_free(context);
    mm_loader_free(loader);
    mm_dataset_free(dataset);
    mm_adapter_free(adapter);
    mm_tokenizer_free(tokenizer);
    mm_model_free(model);
    return EXIT_SUCCESS;
}
