/* The library held wrong, and in places where it is not comfortable. */
#define _POSIX_C_SOURCE 200809L

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>
#if defined(__SSE__)
#include <xmmintrin.h>
#endif

#include "support.h"

static mm_config *config_of(int hidden, int heads, int layers, int vocab)
{
    mm_config *config = NULL;
    ck_ok(mm_config_create("minimind2-small", &config));
    ck_ok(mm_config_set_int(config, "hidden_size", hidden));
    ck_ok(mm_config_set_int(config, "num_attention_heads", heads));
    ck_ok(mm_config_set_int(config, "num_key_value_heads", heads));
    ck_ok(mm_config_set_int(config, "num_hidden_layers", layers));
    ck_ok(mm_config_set_int(config, "intermediate_size", hidden));
    ck_ok(mm_config_set_int(config, "vocab_size", vocab));
    ck_ok(mm_config_set_int(config, "bos_token_id", 0));
    ck_ok(mm_config_set_int(config, "eos_token_id", 0));
    ck_ok(mm_config_set_int(config, "max_position_embeddings", 64));
    return config;
}

static mm_model *model_of(int hidden, int heads, int layers, int vocab)
{
    mm_model *model = NULL;
    mm_config *config = config_of(hidden, heads, layers, vocab);
    ck_ok(mm_model_create(config, 1, &model));
    mm_config_free(config);
    return model;
}

static mm_context *context_of(mm_model *model, int32_t length, int32_t room)
{
    mm_context *context = NULL;
    mm_context_options options = MM_CONTEXT_OPTIONS_INIT;
    options.mode = MM_TRAIN, options.max_length = length, options.max_context = room, options.threads = 1;
    options.outputs = MM_OUT_LOSS | MM_OUT_LAST_LOGITS;
    ck_ok(mm_context_create(model, &options, &context));
    return context;
}

static mm_status forward(mm_context *context, const int32_t *ids, int32_t length)
{
    mm_batch batch = MM_BATCH_INIT;
    mm_output output = MM_OUTPUT_INIT;
    batch.ids = batch.targets = ids, batch.batch = 1, batch.length = length, batch.mode = MM_TRAIN;
    return mm_forward(context, &batch, &output);
}

static mm_status generate(mm_context *context, int32_t length, int32_t most, mm_token_fn on_token, void *user,
                          mm_generate_result *result)
{
    static const int32_t zeros[64];
    const int32_t *prompts = zeros;
    mm_sampling sampling = MM_SAMPLING_INIT;
    mm_generate_options options = MM_GENERATE_OPTIONS_INIT;
    sampling.temperature = 0;
    options.prompts = &prompts, options.prompt_lengths = &length, options.max_new_tokens = most;
    options.stop_ids = zeros, options.stop_count = 0, options.sampling = &sampling;
    options.on_token = on_token, options.user = user;
    return mm_generate(context, &options, result);
}

START_TEST(the_smallest_models_train_and_talk)
{
    static const int sizes[][4] = { { 2, 1, 1, 1 }, { 2, 1, 1, 2 }, { 4, 2, 1, 3 }, { 6, 3, 2, 1 } };
    const int32_t zero = 0;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        mm_model *model = model_of(sizes[i][0], sizes[i][1], sizes[i][2], sizes[i][3]);
        mm_context *context = context_of(model, 1, 8);
        mm_generate_result result = MM_GENERATE_RESULT_INIT;
        ck_ok(forward(context, &zero, 1));
        ck_ok(mm_backward(context, NULL));
        ck_ok(generate(context, 1, 4, NULL, NULL, &result));
        ck_assert_int_eq(result.lengths[0], 4);
        mm_context_free(context);
        mm_model_free(model);
    }
}
END_TEST

START_TEST(sizes_that_no_machine_has_are_refused)
{
    mm_model *model = model_of(4, 2, 1, 3);
    mm_config *config = config_of(4, 2, 1, 3);
    mm_context *context = NULL;
    mm_cache *cache = NULL;
    const int32_t huge[] = { INT32_MAX, INT32_MIN, -1, 0 };
    for (size_t i = 0; i < sizeof huge / sizeof *huge; i++) {
        mm_context_options options = MM_CONTEXT_OPTIONS_INIT;
        options.max_batch = huge[i];
        options.max_length = 64;
        mm_status status = mm_context_create(model, &options, &context);
        ck_assert(status == MM_ERR_ARG || status == MM_ERR_MEMORY);
        options.max_batch = 1, options.max_length = huge[i];
        ck_status(mm_context_create(model, &options, &context), MM_ERR_ARG);
        ck_assert(mm_cache_create(model, huge[i], 64, MM_F32, &cache) != MM_OK);
        ck_status(mm_cache_create(model, 1, huge[i], MM_F32, &cache), MM_ERR_ARG);
    }
    ck_assert(mm_config_set_int(config, "num_hidden_layers", INT64_C(1) << 31) == MM_ERR_ARG ||
              mm_config_validate(config) != MM_OK);
    ck_assert(mm_config_set_int(config, "hidden_size", INT64_MAX) == MM_ERR_ARG);
    ck_assert(mm_config_set_int(config, "hidden_size", INT64_MIN) == MM_ERR_ARG);
    ck_assert_ptr_null(context);
    ck_assert_ptr_null(cache);
    mm_config_free(config);
    mm_model_free(model);
}
END_TEST

START_TEST(a_prompt_may_fill_the_context_and_no_more)
{
    mm_model *model = model_of(4, 2, 1, 3);
    mm_context *context = context_of(model, 4, 16);
    mm_generate_result result = MM_GENERATE_RESULT_INIT;
    ck_ok(generate(context, 16, INT32_MAX, NULL, NULL, &result));
    ck_assert_int_eq(result.lengths[0], 1);
    ck_status(generate(context, 17, 1, NULL, NULL, &result), MM_ERR_ARG);
    ck_ok(generate(context, 1, INT32_MAX, NULL, NULL, &result));
    ck_assert_int_eq(result.lengths[0], 16);
    ck_status(generate(context, 1, -1, NULL, NULL, &result), MM_ERR_ARG);
    ck_status(generate(context, 0, 1, NULL, NULL, &result), MM_ERR_ARG);
    ck_status(generate(context, INT32_MAX, 1, NULL, NULL, &result), MM_ERR_ARG);
    mm_context_free(context);
    mm_model_free(model);
}
END_TEST

START_TEST(ids_beyond_the_vocabulary_are_refused)
{
    const int32_t bad[] = { INT32_MAX, INT32_MIN, -1, -100, 3 };
    mm_model *model = model_of(4, 2, 1, 3);
    mm_context *context = context_of(model, 4, 0);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        ck_status(forward(context, &bad[i], 1), MM_ERR_ARG);
    mm_context_free(context);
    mm_model_free(model);
}
END_TEST

START_TEST(handles_may_be_freed_in_any_order)
{
    for (int order = 0; order < 6; order++) {
        mm_model *model = model_of(4, 2, 1, 3), *half = NULL;
        mm_context *context = context_of(model, 4, 0);
        mm_cache *cache = NULL;
        mm_optimizer *optimizer = NULL;
        const int32_t zero = 0;
        ck_ok(mm_cache_create(model, 1, 8, MM_F32, &cache));
        ck_ok(mm_adamw_create(model, NULL, &optimizer));
        ck_ok(mm_model_cast(model, MM_BF16, &half));
        for (int i = 0; i < 3; i++)
            switch ((order / 2 + (order % 2 ? 3 - i : i)) % 3) {
            case 0:
                mm_model_free(model);
                break;
            case 1:
                mm_cache_free(cache);
                break;
            default:
                mm_optimizer_free(optimizer);
                break;
            }
        ck_ok(forward(context, &zero, 1));
        mm_context_free(context);
        mm_model_free(half);
    }
}
END_TEST

START_TEST(a_context_sees_what_training_made_of_its_model)
{
    mm_model *model = model_of(4, 2, 1, 3);
    mm_context *context = context_of(model, 4, 0), *other = context_of(model, 4, 0);
    mm_optimizer *optimizer = NULL;
    mm_step step = MM_STEP_INIT;
    mm_generate_result a = MM_GENERATE_RESULT_INIT, b = MM_GENERATE_RESULT_INIT;
    const int32_t ids[4] = { 0, 1, 2, 1 };
    step.learning_rate = 0.5;
    ck_ok(generate(other, 1, 3, NULL, NULL, &b));
    const float before = b.logprobs[0];
    ck_ok(forward(context, ids, 4));
    ck_ok(mm_backward(context, NULL));
    ck_ok(mm_adamw_create(model, NULL, &optimizer));
    ck_ok(mm_optimizer_step(optimizer, context, &step));
    ck_ok(generate(context, 1, 3, NULL, NULL, &a));
    ck_ok(generate(other, 1, 3, NULL, NULL, &b));
    ck_assert_mem_eq(a.ids, b.ids, 3 * sizeof *a.ids);
    ck_assert_mem_eq(a.logprobs, b.logprobs, 3 * sizeof *a.logprobs);
    ck_assert(b.logprobs[0] != before);
    mm_optimizer_free(optimizer);
    mm_context_free(other);
    mm_context_free(context);
    mm_model_free(model);
}
END_TEST

static const size_t odd_sizes[] = { 0, 1, sizeof(size_t) - 1, 65537, SIZE_MAX, (size_t)0xa5a5a5a5a5a5a5a5u };

START_TEST(a_struct_that_was_not_set_up_is_refused)
{
    mm_model *model = model_of(4, 2, 1, 3);
    mm_context *made = context_of(model, 4, 0), *context = NULL;
    for (size_t i = 0; i < sizeof odd_sizes / sizeof *odd_sizes; i++) {
        mm_context_options options = MM_CONTEXT_OPTIONS_INIT;
        mm_batch batch = MM_BATCH_INIT;
        mm_output output = MM_OUTPUT_INIT;
        mm_param_count count = MM_PARAM_COUNT_INIT;
        mm_generate_result result = MM_GENERATE_RESULT_INIT;
        mm_load_options load = MM_LOAD_OPTIONS_INIT;
        const int32_t zero = 0;
        options.struct_size = batch.struct_size = count.struct_size = result.struct_size = load.struct_size =
            odd_sizes[i];
        batch.ids = &zero, batch.batch = batch.length = 1;
        ck_status(mm_context_create(model, &options, &context), MM_ERR_ARG);
        ck_status(mm_forward(made, &batch, &output), MM_ERR_ARG);
        ck_status(mm_count_params(mm_model_config(model), &count), MM_ERR_ARG);
        ck_status(generate(made, 1, 1, NULL, NULL, &result), MM_ERR_ARG);
        output.struct_size = odd_sizes[i];
        batch.struct_size = sizeof batch;
        ck_status(mm_forward(made, &batch, &output), MM_ERR_ARG);
        mm_model *loaded = NULL;
        ck_status(mm_model_load("/", &load, &loaded), MM_ERR_ARG);
        ck_error_mentions("mm_load_options: struct_size");
        ck_assert_ptr_null(loaded);
    }
    mm_context_free(made);
    mm_model_free(model);
}
END_TEST

static mm_context *cancelled;

static void cancel(int number)
{
    (void)number;
    mm_cancel(cancelled);
}

START_TEST(a_signal_handler_may_cancel)
{
    mm_model *model = model_of(32, 2, 4, 50);
    mm_generate_result result = MM_GENERATE_RESULT_INIT;
    struct sigaction action;
    struct itimerval timer = { { 0, 500 }, { 0, 500 } }, off = { { 0, 0 }, { 0, 0 } };
    memset(&action, 0, sizeof action);
    cancelled = context_of(model, 8, 64);
    action.sa_handler = cancel;
    ck_assert_int_eq(sigaction(SIGALRM, &action, NULL), 0);
    ck_assert_int_eq(setitimer(ITIMER_REAL, &timer, NULL), 0);
    int told = 0;
    for (int i = 0; i < 200000 && told < 5; i++) {
        mm_status status = generate(cancelled, 1, 60, NULL, NULL, &result);
        ck_assert(status == MM_OK || status == MM_ERR_CANCELLED);
        told += status == MM_ERR_CANCELLED;
    }
    setitimer(ITIMER_REAL, &off, NULL);
    ck_assert_int_eq(told, 5);
    mm_context_free(cancelled);
    mm_model_free(model);
}
END_TEST

typedef struct calls {
    mm_context *context, *other;
    int count;
    mm_status inside;
} calls;

/* Within a call, the rest of the library works; the context itself is busy. */
static int32_t call_back(void *user, int32_t sequence, int32_t id, float logprob)
{
    calls *c = user;
    mm_generate_result result = MM_GENERATE_RESULT_INIT;
    (void)sequence, (void)id, (void)logprob;
    c->count++;
    c->inside = generate(c->other, 1, 2, NULL, NULL, &result);
    return 0;
}

START_TEST(a_callback_may_use_another_context)
{
    mm_model *model = model_of(4, 2, 1, 3);
    calls c = { context_of(model, 4, 16), context_of(model, 4, 16), 0, MM_ERR_INTERNAL };
    mm_generate_result result = MM_GENERATE_RESULT_INIT;
    ck_ok(generate(c.context, 1, 5, call_back, &c, &result));
    ck_assert_int_eq(c.count, 5);
    ck_ok(c.inside);
    mm_context_free(c.context);
    mm_context_free(c.other);
    mm_model_free(model);
}
END_TEST

static int32_t one_text(void *user, const char **text, size_t *length)
{
    int *given = user;
    *text = "the theme of the thing";
    *length = strlen(*text);
    return (*given)++ == 0;
}

static mm_tokenizer *make_tokenizer(void)
{
    int given = 0;
    mm_tokenizer *tokenizer = NULL;
    mm_tokenizer_train_options options = MM_TOKENIZER_TRAIN_OPTIONS_INIT;
    options.next_text = one_text, options.user = &given, options.vocab_size = 262;
    ck_ok(mm_tokenizer_train(&options, &tokenizer));
    return tokenizer;
}

/* Two steps and their checkpoint, and a trainer that goes on from it. */
static void train(const char *directory, mm_model *model, mm_tokenizer *tokenizer)
{
    char rows[600], output[600];
    mm_dataset *dataset = NULL;
    mm_loader *loader = NULL;
    mm_trainer *trainer = NULL, *again = NULL;
    mm_loader_options l = MM_LOADER_OPTIONS_INIT;
    mm_trainer_options t = MM_TRAINER_OPTIONS_INIT;
    mm_train_progress progress = MM_TRAIN_PROGRESS_INIT;
    snprintf(rows, sizeof rows, "%s/rows.jsonl", directory);
    snprintf(output, sizeof output, "%s/run", directory);
    FILE *file = fopen(rows, "w");
    ck_assert_ptr_nonnull(file);
    fputs("{\"text\": \"the theme\"}\n{\"text\": \"of the thing\"}\n", file);
    ck_assert_int_eq(fclose(file), 0);
    l.batch = 1, l.max_length = 16;
    t.output = output, t.accumulation_steps = 1, t.threads = 2;
    ck_ok(mm_dataset_open(rows, &dataset));
    ck_ok(mm_loader_create(dataset, tokenizer, &l, &loader));
    ck_ok(mm_trainer_create(model, loader, tokenizer, &t, &trainer));
    ck_ok(mm_trainer_run(trainer));
    ck_ok(mm_trainer_create(model, loader, tokenizer, &t, &again));
    ck_ok(mm_trainer_resume(again, output));
    ck_ok(mm_trainer_progress(again, &progress));
    ck_assert_int_eq(progress.step, 2);
    ck_assert(progress.loss > 0 && progress.loss < 10);
    mm_trainer_free(again);
    mm_trainer_free(trainer);
    mm_loader_free(loader);
    mm_dataset_free(dataset);
}

/* A little of everything, in a directory of its own. */
static void do_everything(const char *directory)
{
    mm_model *model = model_of(16, 2, 2, 300), *loaded = NULL;
    mm_context *context = context_of(model, 16, 64);
    mm_tokenizer *tokenizer = make_tokenizer(), *again = NULL;
    mm_generate_result result = MM_GENERATE_RESULT_INIT;
    mm_chat *chat = NULL;
    mm_chat_options options = MM_CHAT_OPTIONS_INIT;
    const int32_t ids[16] = { 1, 2, 3 };
    int32_t encoded[128];
    size_t needed = 0;
    double theta = 0;
    ck_ok(forward(context, ids, 16));
    ck_ok(mm_backward(context, NULL));
    ck_ok(generate(context, 20, 10, NULL, NULL, &result));
    ck_ok(mm_model_save(model, directory));
    ck_ok(mm_model_load(directory, NULL, &loaded));
    ck_ok(mm_config_get_float(mm_model_config(loaded), "rms_norm_eps", &theta));
    ck_assert(theta > 0.9e-5 && theta < 1.1e-5);
    ck_ok(mm_tokenizer_save(tokenizer, directory));
    ck_ok(mm_tokenizer_load(directory, &again));
    ck_ok(mm_encode(again, "the theme, 1.5", 14, MM_SPLIT_ALL, encoded, 128, &needed));
    ck_ok(mm_chat_create(&chat));
    ck_ok(mm_chat_add_json(chat, "[{\"role\":\"user\",\"content\":\"x\"}]", 31));
    options.template_name = "minimind3";
    ck_ok(mm_chat_encode(chat, again, &options, encoded, 128, &needed));
    mm_chat_free(chat);
    mm_context_free(context);
    train(directory, loaded, tokenizer);
    mm_tokenizer_free(again);
    mm_tokenizer_free(tokenizer);
    mm_model_free(loaded);
    mm_model_free(model);
}

/* `levels` lists within each other, in a key that nobody knows. */
static mm_status load_nested(int levels)
{
    char json[8192];
    mm_config *config = NULL;
    int at = snprintf(json, sizeof json,
                      "{\"model_type\": \"minimind\", \"hidden_size\": 8, \"num_hidden_layers\": 1, "
                      "\"num_attention_heads\": 2, \"vocab_size\": 9, \"quote\": \"[\\\"[\", \"x\": ");
    for (int i = 0; i < 2 * levels; i++)
        json[at++] = i < levels ? '[' : ']';
    json[at++] = '}';
    mm_status status = mm_config_load_memory(json, (size_t)at, &config);
    mm_config_free(config);
    return status;
}

static void *in_a_thread(void *directory)
{
    do_everything(directory);
    ck_ok(load_nested(255)); /* within the object */
    ck_status(load_nested(256), MM_ERR_FORMAT);
    ck_error_mentions("nested 257 levels deep, at most 256");
    ck_status(load_nested(2040), MM_ERR_FORMAT);
    return NULL;
}

/* Sanitizers put more on the stack than the program does. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SMALL_STACK (1024 * 1024)
#else
#define SMALL_STACK (256 * 1024)
#endif

START_TEST(a_thread_with_a_small_stack_can_do_everything)
{
    pthread_attr_t attributes;
    pthread_t thread;
    char directory[512];
    snprintf(directory, sizeof directory, "%s", scratch_directory());
    ck_assert_int_eq(pthread_attr_init(&attributes), 0);
    ck_assert_int_eq(pthread_attr_setstacksize(&attributes, SMALL_STACK), 0);
    ck_assert_int_eq(pthread_create(&thread, &attributes, in_a_thread, directory), 0);
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
    pthread_attr_destroy(&attributes);
}
END_TEST

START_TEST(two_threads_with_a_context_each_do_not_meet)
{
    pthread_t threads[2];
    char directories[2][512];
    for (int i = 0; i < 2; i++) {
        snprintf(directories[i], sizeof directories[i], "%s", scratch_directory());
        ck_assert_int_eq(pthread_create(&threads[i], NULL, in_a_thread, directories[i]), 0);
    }
    for (int i = 0; i < 2; i++)
        ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
}
END_TEST

START_TEST(a_decimal_comma_changes_nothing)
{
    if (set_decimal_comma())
        do_everything(scratch_directory());
}
END_TEST

START_TEST(a_host_that_flushes_denormals_keeps_doing_so)
{
#if defined(__SSE__)
    unsigned before = _mm_getcsr(), flushing = before | 0x8040; /* FTZ and DAZ */
    _mm_setcsr(flushing);
    do_everything(scratch_directory());
    unsigned after = _mm_getcsr();
    _mm_setcsr(before);
    ck_assert_uint_eq(after & 0x8040, 0x8040);
#else
    do_everything(scratch_directory());
#endif
}
END_TEST

START_TEST(a_child_forked_before_first_use_can_do_everything)
{
    pid_t child = fork();
    ck_assert_int_ge(child, 0);
    if (child == 0) {
        do_everything(scratch_directory());
        _exit(0);
    }
    int status = 1;
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_int_eq(status, 0);
}
END_TEST

/* Threads stay with the parent, whatever they were doing. */
START_TEST(a_child_may_free_what_its_parent_made)
{
    char path[512];
    snprintf(path, sizeof path, "%s/rows.jsonl", scratch_directory());
    FILE *f = fopen(path, "w");
    ck_assert_ptr_nonnull(f);
    for (int i = 0; i < 2000; i++)
        fprintf(f, "{\"text\": \"the cat sat on mat number %d\"}\n", i);
    ck_assert_int_eq(fclose(f), 0);
    mm_tokenizer *tokenizer = make_tokenizer();
    mm_dataset *dataset;
    mm_loader *loader;
    const char *paths[] = { path };
    mm_dataset_options files = MM_DATASET_OPTIONS_INIT;
    mm_loader_options options = MM_LOADER_OPTIONS_INIT;
    files.paths = paths;
    files.count = 1;
    options.batch = 2;
    options.max_length = 32;
    options.workers = 3;
    ck_ok(mm_dataset_create(&files, &dataset));
    ck_ok(mm_loader_create(dataset, tokenizer, &options, &loader));
    mm_model *model = model_of(64, 4, 2, 300);
    mm_context *context = NULL;
    mm_context_options threads = MM_CONTEXT_OPTIONS_INIT;
    threads.mode = MM_TRAIN, threads.max_batch = 4, threads.max_length = 64, threads.threads = 3;
    ck_ok(mm_context_create(model, &threads, &context));
    int32_t ids[4 * 64] = { 0 };
    for (int i = 0; i < 40; i++) { /* workers wait, work, and are about to */
        mm_batch batch = MM_BATCH_INIT, own = MM_BATCH_INIT;
        mm_output output = MM_OUTPUT_INIT;
        own.ids = own.targets = ids, own.batch = 4, own.length = 64, own.mode = MM_TRAIN;
        ck_ok(mm_loader_next(loader, &batch));
        ck_ok(mm_forward(context, &own, &output));
        if (i % 4 == 0)
            nanosleep(&(struct timespec){ .tv_nsec = 20000000 }, NULL); /* they sleep */
        pid_t child = fork();
        ck_assert_int_ge(child, 0);
        if (child == 0) {
            alarm(20);
            const double loss = output.loss;
            ck_ok(mm_forward(context, &own, &output)); /* alone, and with the same bits */
            if (output.loss != loss)
                _exit(2);
            mm_context_free(context);
            mm_model_free(model);
            mm_loader_free(loader);
            mm_dataset_free(dataset);
            mm_tokenizer_free(tokenizer);
            _exit(0);
        }
        int status = 1;
        ck_assert_int_eq(waitpid(child, &status, 0), child);
        ck_assert_int_eq(status, 0);
    }
    mm_context_free(context);
    mm_model_free(model);
    mm_loader_free(loader);
    mm_dataset_free(dataset);
    mm_tokenizer_free(tokenizer);
}
END_TEST

START_TEST(room_of_no_size_is_room_for_nothing)
{
    mm_tokenizer *tokenizer = make_tokenizer();
    int32_t ids[8] = { -7 };
    char text[8] = "x";
    size_t needed = 0;
    ck_ok(mm_encode(tokenizer, "the", 3, MM_SPLIT_ALL, NULL, 0, NULL));
    ck_ok(mm_encode(tokenizer, "the", 3, MM_SPLIT_ALL, ids, 0, &needed));
    ck_assert_int_eq(ids[0], -7);
    ck_assert_uint_gt(needed, 0);
    ck_status(mm_encode(tokenizer, "the", 3, MM_SPLIT_ALL, NULL, 5, &needed), MM_ERR_ARG);
    ck_ok(mm_encode(tokenizer, "the", 3, MM_SPLIT_ALL, ids, 8, NULL));
    ck_ok(mm_decode(tokenizer, ids, 1, 0, text, 0, NULL));
    ck_assert_str_eq(text, "x");
    ck_ok(mm_encode(tokenizer, NULL, 0, MM_SPLIT_ALL, NULL, 0, &needed));
    ck_assert_uint_eq(needed, 0);
    ck_status(mm_encode(tokenizer, NULL, 3, MM_SPLIT_ALL, NULL, 0, &needed), MM_ERR_ARG);
    const int32_t far = INT32_MAX;
    ck_status(mm_decode(tokenizer, &far, 1, 0, NULL, 0, &needed), MM_ERR_ARG);
    ck_assert_int_eq(mm_tokenizer_is_special(tokenizer, far), 0);
    ck_assert_int_eq(mm_tokenizer_is_special(tokenizer, INT32_MIN), 0);
    mm_tokenizer_free(tokenizer);
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("misuse");
    TCase *tc = tcase_create("misuse");
    tcase_set_timeout(tc, 120);
    tcase_add_test(tc, a_child_may_free_what_its_parent_made);
    tcase_add_test(tc, a_child_forked_before_first_use_can_do_everything);
    tcase_add_test(tc, the_smallest_models_train_and_talk);
    tcase_add_test(tc, sizes_that_no_machine_has_are_refused);
    tcase_add_test(tc, a_prompt_may_fill_the_context_and_no_more);
    tcase_add_test(tc, ids_beyond_the_vocabulary_are_refused);
    tcase_add_test(tc, handles_may_be_freed_in_any_order);
    tcase_add_test(tc, a_context_sees_what_training_made_of_its_model);
    tcase_add_test(tc, a_struct_that_was_not_set_up_is_refused);
    tcase_add_test(tc, a_signal_handler_may_cancel);
    tcase_add_test(tc, a_callback_may_use_another_context);
    tcase_add_test(tc, a_thread_with_a_small_stack_can_do_everything);
    tcase_add_test(tc, two_threads_with_a_context_each_do_not_meet);
    tcase_add_test(tc, a_decimal_comma_changes_nothing);
    tcase_add_test(tc, a_host_that_flushes_denormals_keeps_doing_so);
    tcase_add_test(tc, room_of_no_size_is_room_for_nothing);
    suite_add_tcase(suite, tc);
    return suite;
}

int main(void)
{
    return run_suite(make_suite());
}
