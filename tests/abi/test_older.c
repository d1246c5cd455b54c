/* A program that was compiled against the first headers, as they will not be for long: options and results as they were
 * at the very beginning, each cut behind the fields that this program knows. It is linked to the shared library of
 * today and must get the same from it as a program of today does. */
#include <minimind.h>
#include <stdio.h>
#include <string.h>

typedef struct older_context_options {
    size_t struct_size;
    int32_t mode, max_batch, max_length, max_context;
} older_context_options;

typedef struct older_sampling {
    size_t struct_size;
    uint64_t seed;
    float temperature, top_p;
} older_sampling;

typedef struct older_step {
    size_t struct_size;
    double learning_rate;
} older_step;

typedef struct older_flops {
    size_t struct_size;
    double forward;
} older_flops;

static int cases, failed;

static int say(int good, const char *sentence)
{
    printf("%sok %d - %s\n", good ? "" : "not ", ++cases, sentence);
    if (!good)
        printf("# %s\n", mm_last_error());
    failed += !good;
    return good;
}

static mm_model *make_model(void)
{
    mm_config *config = NULL;
    mm_model *model = NULL;
    if (mm_config_create("minimind2-small", &config) == MM_OK &&
        mm_config_set_int(config, "hidden_size", 32) == MM_OK &&
        mm_config_set_int(config, "num_hidden_layers", 2) == MM_OK &&
        mm_config_set_int(config, "num_attention_heads", 2) == MM_OK &&
        mm_config_set_int(config, "num_key_value_heads", 1) == MM_OK &&
        mm_config_set_int(config, "vocab_size", 64) == MM_OK)
        mm_model_create(config, 1, &model);
    mm_config_free(config);
    return model;
}

/* Twelve tokens of a context of the kind that `options` asks for. */
static mm_status generate(mm_model *model, const void *options, const void *sampling, int32_t ids[12])
{
    const int32_t prompt[3] = { 5, 6, 7 }, length = 3, *prompts = prompt;
    mm_context *context = NULL;
    mm_generate_options o = MM_GENERATE_OPTIONS_INIT;
    mm_generate_result result = MM_GENERATE_RESULT_INIT;
    o.prompts = &prompts, o.prompt_lengths = &length, o.max_new_tokens = 12, o.sampling = sampling;
    mm_status status = mm_context_create(model, options, &context);
    if (status == MM_OK)
        status = mm_generate(context, &o, &result);
    if (status == MM_OK)
        memcpy(ids, result.ids, (size_t)result.lengths[0] * sizeof *ids);
    mm_context_free(context);
    return status;
}

static void generating(mm_model *model)
{
    older_context_options older = { sizeof older, MM_EVAL, 1, 4, 32 };
    older_sampling older_sampling = { sizeof older_sampling, 7, 0.9f, 0.9f };
    mm_context_options now = MM_CONTEXT_OPTIONS_INIT;
    mm_sampling sampling = MM_SAMPLING_INIT;
    int32_t a[12] = { 0 }, b[12] = { 1 };
    now.mode = MM_EVAL, now.max_batch = 1, now.max_length = 4, now.max_context = 32;
    sampling.seed = 7, sampling.temperature = 0.9f, sampling.top_p = 0.9f;
    say(generate(model, &older, &older_sampling, a) == MM_OK, "an older program generates");
    say(generate(model, &now, &sampling, b) == MM_OK && memcmp(a, b, sizeof a) == 0,
        "it gets what a program of today gets");
}

static mm_status train(mm_model *model, const void *options, const void *step, float *loss)
{
    const int32_t ids[4] = { 1, 2, 3, 4 }, targets[4] = { 2, 3, 4, 5 };
    mm_context *context = NULL;
    mm_optimizer *optimizer = NULL;
    mm_batch batch = MM_BATCH_INIT;
    mm_output output = MM_OUTPUT_INIT;
    batch.ids = ids, batch.targets = targets, batch.batch = 1, batch.length = 4, batch.mode = MM_TRAIN;
    mm_status status = mm_context_create(model, options, &context);
    if (status == MM_OK)
        status = mm_adamw_create(model, NULL, &optimizer);
    for (int i = 0; status == MM_OK && i < 3; i++) {
        mm_zero_grad(context);
        status = mm_forward(context, &batch, &output);
        if (status == MM_OK)
            status = mm_backward(context, NULL);
        if (status == MM_OK)
            status = mm_optimizer_step(optimizer, context, (mm_step *)step);
    }
    *loss = (float)output.loss;
    mm_optimizer_free(optimizer);
    mm_context_free(context);
    return status;
}

static void training(void)
{
    struct {
        older_step step;
        unsigned char guard[64];
    } older = { { sizeof older.step, 1e-2 }, { 0xEE } };
    older_context_options options = { sizeof options, MM_TRAIN, 1, 4, 0 };
    mm_context_options now = MM_CONTEXT_OPTIONS_INIT;
    mm_step step = MM_STEP_INIT;
    mm_model *one = make_model(), *two = make_model();
    float a = 0, b = 1;
    now.mode = MM_TRAIN, now.max_batch = 1, now.max_length = 4, step.learning_rate = 1e-2;
    say(train(one, &options, &older.step, &a) == MM_OK, "an older program trains");
    say(train(two, &now, &step, &b) == MM_OK && a == b, "its losses are those of a program of today");
    say(older.guard[0] == 0xEE && older.guard[1] == 0, "nothing is written behind what it knows");
    mm_model_free(one);
    mm_model_free(two);
}

static void asking(const mm_config *config)
{
    struct {
        older_flops flops;
        unsigned char guard[8];
    } older = { { sizeof older.flops, 0 }, { 0xEE } };
    mm_flops flops = MM_FLOPS_INIT;
    mm_workload workload = MM_WORKLOAD_INIT;
    say(mm_estimate_flops(config, &workload, (void *)&older.flops) == MM_OK &&
            mm_estimate_flops(config, &workload, &flops) == MM_OK && older.flops.forward == flops.forward &&
            older.guard[0] == 0xEE,
        "a result of an older program is filled as far as it goes");
}

int main(void)
{
    mm_model *model = make_model();
    if (say(model != NULL, "a model is made")) {
        generating(model);
        training();
        asking(mm_model_config(model));
    }
    mm_model_free(model);
    printf("1..%d\n", cases);
    return failed != 0;
}
