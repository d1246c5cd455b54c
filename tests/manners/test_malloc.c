/* Every malloc of the process fails once, and then from some point on for good: the libraries' below us included. This
 * program's own malloc stands before the C library's; so it is not built with sanitizers, which do the same. */
#include <check.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support.h"

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *memory, size_t size);
void *__libc_memalign(size_t align, size_t size);
void __libc_free(void *memory);
void *aligned_alloc(size_t align, size_t size);
int posix_memalign(void **out, size_t align, size_t size);
int fsync(int fd);

static atomic_long live;  /* blocks that are held */
static atomic_long asked; /* requests while counting */
static long fails_at;     /* 0: none */
static bool counting, forever;

static bool refuse(void)
{
    if (!counting)
        return false;
    long n = atomic_fetch_add(&asked, 1) + 1;
    return fails_at > 0 && (forever ? n >= fails_at : n == fails_at);
}

static void *count(void *memory)
{
    if (memory)
        atomic_fetch_add(&live, 1);
    return memory;
}

void *malloc(size_t size)
{
    return refuse() ? NULL : count(__libc_malloc(size));
}

void *calloc(size_t n, size_t size)
{
    return refuse() ? NULL : count(__libc_calloc(n, size));
}

void *realloc(void *memory, size_t size)
{
    if (refuse())
        return NULL;
    void *grown = __libc_realloc(memory, size);
    return memory ? grown : count(grown);
}

void *aligned_alloc(size_t align, size_t size)
{
    return refuse() ? NULL : count(__libc_memalign(align, size));
}

int posix_memalign(void **out, size_t align, size_t size)
{
    *out = aligned_alloc(align, size);
    return *out ? 0 : 12; /* ENOMEM */
}

void free(void *memory)
{
    if (memory)
        atomic_fetch_sub(&live, 1);
    __libc_free(memory);
}

/* A thousand saves need not wait for the disk. */
int fsync(int fd)
{
    return fd < 0 ? -1 : 0;
}

/* --- What is tried. Each gives back all it made, whatever happens, and the first status that is not MM_OK --- */

static const char *directory;

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

static mm_status load_tokenizer(mm_tokenizer **out)
{
    return mm_tokenizer_load(directory, out);
}

static mm_status loading_and_saving_a_tokenizer(void)
{
    mm_tokenizer *tokenizer = NULL;
    mm_status status = load_tokenizer(&tokenizer);
    if (status == MM_OK)
        status = mm_tokenizer_save(tokenizer, directory);
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
    mm_status status = load_tokenizer(&tokenizer);
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
    mm_status status = mm_config_load(directory, &config);
    if (status == MM_OK)
        status = mm_config_copy(config, &copy);
    if (status == MM_OK)
        status = mm_config_set_string(copy, "hidden_act", "gelu");
    if (status == MM_OK)
        status = mm_config_save(copy, directory);
    mm_config_free(copy);
    mm_config_free(config);
    return status;
}

static mm_status loading_and_saving_a_model(void)
{
    mm_model *model = NULL, *cast = NULL;
    mm_status status = mm_model_load(directory, NULL, &model);
    if (status == MM_OK)
        status = mm_model_cast(model, MM_BF16, &cast);
    if (status == MM_OK)
        status = mm_model_save(cast, directory);
    mm_model_free(cast);
    mm_model_free(model);
    return status;
}

/* OpenBLAS ends the process when memory runs out; the library's own products don't touch it. */
#define KERNELS "c"

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
    options.outputs = MM_OUT_LOSS | MM_OUT_LAST_LOGITS, options.kernels = KERNELS;
    generate.prompts = &prompts, generate.prompt_lengths = &length, generate.max_new_tokens = 4;
    mm_status status = mm_model_load(directory, NULL, &model);
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

/* Steps on the rows of a file and their checkpoint, which another trainer goes on from. */
static mm_status train_and_resume(const char *name, mm_loader_options rows, mm_trainer_options options)
{
    char path[600], output[600];
    mm_model *model = NULL;
    mm_tokenizer *tokenizer = NULL;
    mm_dataset *dataset = NULL;
    mm_loader *loader = NULL;
    mm_trainer *trainer = NULL, *again = NULL;
    rows.workers = 1;
    options.output = output, options.max_steps = 1, options.threads = 2, options.kernels = KERNELS;
    snprintf(path, sizeof path, "%s/%s", directory, name);
    snprintf(output, sizeof output, "%s/run-%s", directory, name);
    mm_status status = mm_dataset_open(path, &dataset);
    if (status == MM_OK)
        status = load_tokenizer(&tokenizer);
    if (status == MM_OK)
        status = mm_model_load(directory, NULL, &model);
    if (status == MM_OK)
        status = mm_loader_create(dataset, tokenizer, &rows, &loader);
    if (status == MM_OK)
        status = mm_trainer_create(model, loader, tokenizer, &options, &trainer);
    if (status == MM_OK)
        status = mm_trainer_run(trainer);
    mm_trainer_free(trainer);
    mm_model_free(model);
    model = NULL;
    if (status == MM_OK)
        status = mm_model_load(directory, NULL, &model);
    if (status == MM_OK)
        status = mm_trainer_create(model, loader, tokenizer, &options, &again);
    if (status == MM_OK)
        status = mm_trainer_resume(again, output);
    mm_trainer_free(again);
    mm_loader_free(loader);
    mm_model_free(model);
    mm_tokenizer_free(tokenizer);
    mm_dataset_free(dataset);
    return status;
}

static mm_status training_with_checkpoints(void)
{
    mm_loader_options rows = MM_LOADER_OPTIONS_INIT;
    mm_trainer_options options = MM_TRAINER_OPTIONS_INIT;
    rows.batch = 1, rows.max_length = 8;
    return train_and_resume("rows.jsonl", rows, options);
}

static int32_t reward_length(void *user, const mm_answer *answer, double *reward)
{
    (void)user;
    *reward = (double)answer->text_length;
    return 0;
}

/* The checkpoint stands between two steps on the same answers. */
static mm_status learning_from_rewards(void)
{
    mm_loader_options rows = MM_LOADER_OPTIONS_INIT;
    mm_trainer_options options = MM_TRAINER_OPTIONS_INIT;
    mm_policy_training policy = MM_POLICY_TRAINING_INIT;
    rows.batch = 1, rows.max_length = 8, rows.kind = MM_ROW_PROMPT, rows.template_name = "minillm";
    policy.reward = reward_length, policy.variant = MM_POLICY_PPO, policy.group = 2, policy.max_new_tokens = 3;
    policy.updates = 2;
    options.stage = MM_STAGE_POLICY, options.policy = &policy, options.accumulation_steps = 1;
    return train_and_resume("prompts.jsonl", rows, options);
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
        status = load_tokenizer(&tokenizer);
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
    snprintf(path, sizeof path, "%s/rows.jsonl", directory);
    mm_status status = mm_dataset_open(path, &dataset);
    if (status == MM_OK)
        status = load_tokenizer(&tokenizer);
    if (status == MM_OK)
        status = mm_loader_create(dataset, tokenizer, &options, &loader);
    if (status == MM_OK)
        status = mm_loader_next(loader, &batch);
    mm_loader_free(loader);
    mm_dataset_free(dataset);
    mm_tokenizer_free(tokenizer);
    return status;
}

static const struct {
    const char *name;
    mm_status (*run)(void);
} deeds[] = {
    { "loading and saving a config", loading_and_saving_a_config },
    { "loading and saving a model", loading_and_saving_a_model },
    { "training and generating", training_and_generating },
    { "training with checkpoints", training_with_checkpoints },
    { "learning from rewards", learning_from_rewards },
    { "training a tokenizer", training_a_tokenizer },
    { "loading and saving a tokenizer", loading_and_saving_a_tokenizer },
    { "encoding and decoding", encoding_and_decoding },
    { "chatting", chatting },
    { "reading rows", reading_rows },
};
#define DEEDS ((int)(sizeof deeds / sizeof *deeds))

static void write_rows(const char *name, const char *rows)
{
    char path[600];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    FILE *file = fopen(path, "w");
    ck_assert_ptr_nonnull(file);
    fputs(rows, file);
    ck_assert_int_eq(fclose(file), 0);
}

static void prepare(void)
{
    mm_tokenizer *tokenizer = NULL;
    mm_model *model = NULL;
    mm_config *config = small_config();
    directory = scratch_directory();
    ck_ok(mm_model_create(config, 1, &model));
    ck_ok(mm_model_save(model, directory));
    ck_ok(train_tokenizer(&tokenizer));
    ck_ok(mm_tokenizer_save(tokenizer, directory));
    write_rows("rows.jsonl", "{\"text\": \"one\"}\n{\"text\": \"two\"}\n");
    write_rows("prompts.jsonl", "{\"question\": \"one?\", \"answer\": \"#### two\"}\n");
    mm_tokenizer_free(tokenizer);
    mm_model_free(model);
    mm_config_free(config);
}

/* Run with the n-th request failing; 1 if it came so far. */
static int attempt(int deed, long n)
{
    long before = atomic_load(&live);
    atomic_store(&asked, 0);
    fails_at = n;
    counting = true;
    mm_status status = deeds[deed].run();
    counting = false;
    long made = atomic_load(&asked), after = atomic_load(&live);
    ck_assert_msg(after <= before, "%s, %ld%s: %ld blocks leak", deeds[deed].name, n, forever ? " on" : "",
                  after - before);
    /* What is only to make things faster, such as PCRE2's compiler, may go without. Where the C library walks through a
     * directory to remove it, errno is not always what it was. */
    bool may_be_io =
        forever || deeds[deed].run == training_with_checkpoints || deeds[deed].run == learning_from_rewards;
    ck_assert_msg(status == MM_OK || status == MM_ERR_MEMORY || (status == MM_ERR_IO && may_be_io),
                  "%s, %ld%s: %s (%s)", deeds[deed].name, n, forever ? " on" : "", mm_status_name(status),
                  mm_last_error());
    return made >= n;
}

/* Every n up to here; beyond it, some hundred more: requests repeat, key by key, token by token. Called with an
 * argument the program tries every one. */
#define EACH 400
static bool all;

static void every_request(int deed)
{
    ck_ok(deeds[deed].run()); /* what is made once, such as a directory stream's buffer in the C library */
    attempt(deed, 0);         /* which counts them */
    long spacing = all ? 1 : 1 + atomic_load(&asked) / EACH;
    for (long n = 1; attempt(deed, n); n += n < EACH ? 1 : spacing)
        ;
    ck_ok(deeds[deed].run());
}

START_TEST(a_malloc_that_fails_once_is_survived)
{
    prepare();
    forever = false;
    every_request(_i);
}
END_TEST

START_TEST(memory_that_is_gone_for_good_is_survived)
{
    prepare();
    forever = true;
    every_request(_i);
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("malloc");
    TCase *tc = tcase_create("malloc");
    tcase_set_timeout(tc, 600);
    tcase_add_loop_test(tc, a_malloc_that_fails_once_is_survived, 0, DEEDS);
    tcase_add_loop_test(tc, memory_that_is_gone_for_good_is_survived, 0, DEEDS);
    suite_add_tcase(suite, tc);
    return suite;
}

int main(int argc, char **argv)
{
    (void)argv;
    all = argc > 1;
    return run_suite(make_suite());
}
