/* embed: the smallest useful program that links libminimind.
 *
 *     embed
 *
 * It makes a tiny model inside this process, teaches it to go on with a melody, and lets it sing: a config becomes a
 * model, a context runs it forward and backward, an optimizer improves it, mm_generate() continues a prompt. There is
 * no file, no tokenizer and no thread that this program did not ask for. */
#include <minimind.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *program = "embed"; /* what messages begin with */

/* Every call that can fail returns a status; mm_last_error() has the story behind it. */
static void check(mm_status status)
{
    if (status == MM_OK)
        return;
    fprintf(stderr, "%s: %s: %s\n", program, mm_status_name(status), mm_last_error());
    exit(EXIT_FAILURE);
}

/* A preset is a starting point; any key of a config.json can be changed by its name. */
static mm_model *make_model(void)
{
    mm_config *config = NULL;
    check(mm_config_create("minimind2-small", &config));
    check(mm_config_set_int(config, "vocab_size", 32));
    check(mm_config_set_int(config, "hidden_size", 64));
    check(mm_config_set_int(config, "num_hidden_layers", 2));
    check(mm_config_set_int(config, "num_attention_heads", 4));
    check(mm_config_set_int(config, "num_key_value_heads", 2));
    check(mm_config_set_int(config, "max_position_embeddings", 64));

    mm_param_count count = MM_PARAM_COUNT_INIT;
    check(mm_count_params(config, &count));
    printf("A model of %lld parameters.\n", (long long)count.total);

    mm_model *model = NULL;
    check(mm_model_create(config, 42, &model)); /* the same seed gives the same weights */
    mm_config_free(config);                     /* the model has a copy */
    return model;
}

enum { LENGTH = 32, STEPS = 60 };

/* What to learn: a tune of eight notes, over and over. Each position's target is the token after it. */
static void write_melody(int32_t ids[LENGTH], int32_t targets[LENGTH])
{
    static const int32_t melody[] = { 5, 17, 9, 12, 21, 3, 17, 8 };
    for (int i = 0; i < LENGTH; i++) {
        ids[i] = melody[i % 8];
        targets[i] = melody[(i + 1) % 8];
    }
}

/* One step of training: how wrong was it, which way is better, go there. */
static double train_step(mm_context *context, mm_optimizer *optimizer, const mm_batch *batch)
{
    mm_output output = MM_OUTPUT_INIT;
    mm_step step = MM_STEP_INIT;
    step.learning_rate = 3e-3;
    step.max_grad_norm = 1.0;
    check(mm_zero_grad(context));
    check(mm_forward(context, batch, &output));
    check(mm_backward(context, NULL));
    check(mm_optimizer_step(optimizer, context, &step));
    return output.loss;
}

static void train(mm_context *context, mm_model *model)
{
    int32_t ids[LENGTH], targets[LENGTH];
    write_melody(ids, targets);
    mm_batch batch = MM_BATCH_INIT;
    batch.ids = ids;
    batch.targets = targets;
    batch.batch = 1;
    batch.length = LENGTH;
    batch.mode = MM_TRAIN;
    batch.outputs = MM_OUT_LOSS;

    mm_optimizer *optimizer = NULL;
    check(mm_adamw_create(model, NULL, &optimizer));
    for (int i = 1; i <= STEPS; i++) {
        double loss = train_step(context, optimizer, &batch);
        if (i == 1 || i % 20 == 0)
            printf("step %2d  loss %.4f\n", i, loss);
    }
    mm_optimizer_free(optimizer);
}

/* Continue the first three notes. */
static void sing(mm_context *context)
{
    const int32_t prompt[] = { 5, 17, 9 };
    const int32_t *prompts[] = { prompt };
    const int32_t lengths[] = { 3 };
    mm_sampling sampling = MM_SAMPLING_INIT;
    sampling.temperature = 0; /* always the likeliest token */
    mm_generate_options options = MM_GENERATE_OPTIONS_INIT;
    options.prompts = prompts;
    options.prompt_lengths = lengths;
    options.stop_ids = prompt; /* with a count of 0: nothing stops it */
    options.sampling = &sampling;
    options.max_new_tokens = 12;

    mm_generate_result result = MM_GENERATE_RESULT_INIT;
    check(mm_generate(context, &options, &result));
    printf("5 17 9 goes on with");
    for (int i = 0; i < result.lengths[0]; i++)
        printf(" %d", result.ids[i]);
    printf("\n");
}

/* A full disk, or a reader that has gone, is not to be taken for success. */
static int finish(void)
{
    if (fflush(stdout) == 0 && !ferror(stdout))
        return EXIT_SUCCESS;
    fprintf(stderr, "%s: can't write standard output\n", program);
    return EXIT_FAILURE;
}

int main(int argc, char **argv)
{
    if (argc > 0)
        program = strrchr(argv[0], '/') ? strrchr(argv[0], '/') + 1 : argv[0];
    if (argc > 1) {
        bool asked = strcmp(argv[1], "--help") == 0;
        fprintf(asked ? stdout : stderr, "usage: %s\n\nTeach a tiny model a sequence of ids and let it go on.\n",
                program);
        return asked ? finish() : EXIT_FAILURE;
    }
    mm_model *model = make_model();

    /* A context is planned for what it will be asked: every buffer is allocated here, none later. */
    mm_context_options options = MM_CONTEXT_OPTIONS_INIT;
    options.mode = MM_TRAIN;
    options.max_length = LENGTH;
    options.outputs = MM_OUT_LOSS | MM_OUT_LAST_LOGITS;
    options.threads = 1;
    mm_context *context = NULL;
    check(mm_context_create(model, &options, &context));

    train(context, model);
    sing(context);

    /* Handles keep alive what they stand on, so the order does not matter. */
    mm_model_free(model);
    mm_context_free(context);
    return finish();
}
