#include "deeds.h"

#include <stdio.h>
#include <string.h>

const char *deeds_directory;

static int32_t one_text(void *user, const char **text, size_t *length)
{
    int *given = user;
    *text = "the theme of the thing, the \xe4\xbd\xa0\xe5\xa5\xbd\xe4\xbd\xa0\xe5\xa5\xbd";
    *length = strlen(*text);
    return (*given)++ == 0;
}

static mm_status train_tokenizer(mm_tokenizer **out)
{
    int given = 0;
    mm_tokenizer_train_options options = MM_TOKENIZER_TRAIN_OPTIONS_INIT;
    options.next_text = one_text, options.user = &given, options.vocab_size = 270;
    return mm_tokenizer_train(&options, out);
}

static mm_status training_a_tokenizer(void)
{
    mm_tokenizer *tokenizer = NULL;
    mm_status status = train_tokenizer(&tokenizer);
    mm_tokenizer_free(tokenizer);
    return status;
}

mm_status deeds_load_tokenizer(mm_tokenizer **out)
{
    return mm_tokenizer_load(deeds_directory, out);
}

static mm_status loading_and_saving_a_tokenizer(void)
{
    mm_tokenizer *tokenizer = NULL;
    mm_status status = deeds_load_tokenizer(&tokenizer);
    if (status == MM_OK)
        status = mm_tokenizer_save(tokenizer, deeds_directory);
    mm_tokenizer_free(tokenizer);
    return status;
}

static mm_status encoding_and_decoding(void)
{
    static const char text[] = "the 12 things<|im_end|> \xe4\xbd\xa0\xe5\xa5\xbd";
    mm_tokenizer *tokenizer = NULL;
    mm_decoder *decoder = NULL;
    const char *piece = NULL;
    int32_t ids[64];
    char back[128];
    size_t n = 0;
    mm_status status = deeds_load_tokenizer(&tokenizer);
    if (status == MM_OK)
        status = mm_encode(tokenizer, text, strlen(text), MM_SPLIT_ALL, ids, 64, &n);
    if (status == MM_OK)
        status = mm_decode(tokenizer, ids, n, 1, back, sizeof back, NULL);
    if (status == MM_OK)
        status = mm_decoder_create(tokenizer, 0, &decoder);
    for (size_t i = 0; i < n && status == MM_OK; i++)
        status = mm_decoder_push(decoder, ids[i], &piece, NULL);
    mm_decoder_free(decoder);
    mm_tokenizer_free(tokenizer);
    return status;
}

static mm_status loading_and_saving_a_config(void)
{
    mm_config *config = NULL, *copy = NULL;
    mm_status status = mm_config_load(deeds_directory, &config);
    if (status == MM_OK)
        status = mm_config_copy(config, &copy);
    if (status == MM_OK)
        status = mm_config_set_string(copy, "hidden_act", "gelu");
    if (status == MM_OK)
        status = mm_config_save(copy, deeds_directory);
    mm_config_free(copy);
    mm_config_free(config);
    return status;
}

static mm_status loading_and_saving_a_model(void)
{
    mm_model *model = NULL, *cast = NULL;
    mm_status status = mm_model_load(deeds_directory, NULL, &model);
    if (status == MM_OK)
        status = mm_model_cast(model, MM_BF16, &cast);
    if (status == MM_OK)
        status = mm_model_save(cast, deeds_directory);
    mm_model_free(cast);
    mm_model_free(model);
    return status;
}

static mm_status step(mm_model *model, mm_context *context)
{
    const int32_t ids[4] = { 1, 2, 3, 4 };
    mm_batch batch = MM_BATCH_INIT;
    mm_output output = MM_OUTPUT_INIT;
    mm_step how = MM_STEP_INIT;
    mm_optimizer *optimizer = NULL;
    batch.ids = batch.targets = ids, batch.batch = 1, batch.length = 4, batch.mode = MM_TRAIN;
    mm_status status = mm_forward(context, &batch, &output);
    if (status == MM_OK)
        status = mm_backward(context, NULL);
    if (status == MM_OK)
        status = mm_adamw_create(model, NULL, &optimizer);
    if (status == MM_OK)
        status = mm_optimizer_step(optimizer, context, &how);
    mm_optimizer_free(optimizer);
    return status;
}

static mm_status training_and_generating(void)
{
    const int32_t prompt[3] = { 5, 6, 7 }, length = 3, *prompts = prompt;
    mm_model *model = NULL;
    mm_context *context = NULL;
    mm_context_options options = MM_CONTEXT_OPTIONS_INIT;
    mm_generate_options generate = MM_GENERATE_OPTIONS_INIT;
    mm_generate_result result = MM_GENERATE_RESULT_INIT;
    options.mode = MM_TRAIN, options.max_length = 4, options.max_context = 16, options.threads = 2;
    options.outputs = MM_OUT_LOSS | MM_OUT_LAST_LOGITS, options.kernels = DEEDS_KERNELS;
    generate.prompts = &prompts, generate.prompt_lengths = &length, generate.max_new_tokens = 4;
    mm_status status = mm_model_load(deeds_directory, NULL, &model);
    if (status == MM_OK)
        status = mm_context_create(model, &options, &context);
    if (status == MM_OK)
        status = step(model, context);
    if (status == MM_OK)
        status = mm_generate(context, &generate, &result);
    mm_context_free(context);
    mm_model_free(model);
    return status;
}

static mm_status chatting(void)
{
    static const char json[] =
        "[{\"role\":\"user\",\"content\":\"hi\"},{\"role\":\"assistant\",\"content\":\"\","
        "\"tool_calls\":[{\"name\":\"f\",\"arguments\":{\"x\":1.5}}]},{\"role\":\"tool\",\"content\":\"2\"}]";
    static const char answer[] = "<think>a</think>b<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>";
    mm_chat *chat = NULL;
    mm_chat_reply *reply = NULL;
    mm_tokenizer *tokenizer = NULL;
    mm_chat_options options = MM_CHAT_OPTIONS_INIT;
    size_t needed = 0;
    options.template_name = "minimind3", options.add_generation_prompt = 1;
    mm_status status = mm_chat_create(&chat);
    if (status == MM_OK)
        status = mm_chat_add_json(chat, json, strlen(json));
    if (status == MM_OK)
        status = mm_chat_write_json(chat, NULL, 0, &needed);
    if (status == MM_OK)
        status = deeds_load_tokenizer(&tokenizer);
    if (status == MM_OK)
        status = mm_chat_encode(chat, tokenizer, &options, NULL, 0, &needed);
    if (status == MM_OK)
        status = mm_chat_parse(answer, strlen(answer), 0, &reply);
    mm_chat_reply_free(reply);
    mm_tokenizer_free(tokenizer);
    mm_chat_free(chat);
    return status;
}

static mm_status reading_rows(void)
{
    char path[600];
    mm_tokenizer *tokenizer = NULL;
    mm_dataset *dataset = NULL;
    mm_loader *loader = NULL;
    mm_batch batch = MM_BATCH_INIT;
    mm_loader_options options = MM_LOADER_OPTIONS_INIT;
    options.batch = 2, options.max_length = 8, options.workers = 0;
    snprintf(path, sizeof path, "%s/rows.jsonl", deeds_directory);
    mm_status status = mm_dataset_open(path, &dataset);
    if (status == MM_OK)
        status = deeds_load_tokenizer(&tokenizer);
    if (status == MM_OK)
        status = mm_loader_create(dataset, tokenizer, &options, &loader);
    if (status == MM_OK)
        status = mm_loader_next(loader, &batch);
    mm_loader_free(loader);
    mm_dataset_free(dataset);
    mm_tokenizer_free(tokenizer);
    return status;
}

const deed deeds[DEEDS] = {
    { "loading and saving a config", loading_and_saving_a_config, false, false },
    { "loading and saving a model", loading_and_saving_a_model, false, false },
    { "training and generating", training_and_generating, false, false },
    { "training with checkpoints", training_with_checkpoints, true, false },
    { "learning from rewards", learning_from_rewards, true, true },
    { "learning from preferences", learning_from_preferences, true, true },
    { "learning from a teacher", learning_from_a_teacher, true, true },
    { "learning from a teacher's file", learning_from_a_file, true, true },
    { "training an adapter", training_an_adapter, false, false },
    { "evaluating", evaluating, false, false },
    { "writing a report", reporting, false, false },
    { "training a tokenizer", training_a_tokenizer, false, false },
    { "loading and saving a tokenizer", loading_and_saving_a_tokenizer, false, false },
    { "encoding and decoding", encoding_and_decoding, false, false },
    { "chatting", chatting, false, false },
    { "reading rows", reading_rows, false, false },
};

static mm_config *small_config(void)
{
    mm_config *config = NULL;
    ck_ok(mm_config_create("minimind-3", &config));
    ck_ok(mm_config_set_int(config, "hidden_size", 16));
    ck_ok(mm_config_set_int(config, "num_hidden_layers", 2));
    ck_ok(mm_config_set_int(config, "num_attention_heads", 2));
    ck_ok(mm_config_set_int(config, "num_key_value_heads", 1));
    ck_ok(mm_config_set_int(config, "intermediate_size", 8));
    ck_ok(mm_config_set_int(config, "vocab_size", 300));
    ck_ok(mm_config_set_int(config, "max_position_embeddings", 64));
    return config;
}

static void write_rows(const char *name, const char *rows)
{
    char path[600];
    snprintf(path, sizeof path, "%s/%s", deeds_directory, name);
    FILE *file = fopen(path, "w");
    ck_assert_ptr_nonnull(file);
    fputs(rows, file);
    ck_assert_int_eq(fclose(file), 0);
}

void deeds_prepare(void)
{
    mm_tokenizer *tokenizer = NULL;
    mm_model *model = NULL;
    mm_config *config = small_config();
    deeds_directory = scratch_directory();
    ck_ok(mm_model_create(config, 1, &model));
    ck_ok(mm_model_save(model, deeds_directory));
    ck_ok(train_tokenizer(&tokenizer));
    ck_ok(mm_tokenizer_save(tokenizer, deeds_directory));
    /* numbers as long as what a parser has room for, and longer */
    write_rows("rows.jsonl",
               "{\"text\": \"one\", \"n\": 123456789012345}\n{\"text\": \"two\", \"n\": [0.12345678901234567]}\n");
    write_rows("prompts.jsonl", "{\"question\": \"one?\", \"answer\": \"#### two\"}\n");
    write_rows("pairs.jsonl",
               "{\"chosen\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"assistant\", \"content\": "
               "\"b\"}], \"rejected\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"assistant\", "
               "\"content\": \"c\"}]}\n");
    write_rows("questions.jsonl", "{\"prompt\": \"a\", \"choices\": [\"b\", \"cd\"], \"answer\": 1}\n");
    write_rows("answers.jsonl",
               "{\"prompt\": \"a\", \"expect\": [\"b\"], \"max_new_tokens\": 3}\n"
               "{\"conversations\": [{\"role\": \"user\", \"content\": \"a\"}], \"expect\": [\"b\"]}\n");
    mm_tokenizer_free(tokenizer);
    mm_model_free(model);
    mm_config_free(config);
}
