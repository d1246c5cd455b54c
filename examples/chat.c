/* chat: talk with a model in a terminal.
 *
 *     chat --model DIR --system "You are terse."
 *
 * A conversation holds the messages; each turn the template that the tokenizer brought makes ids of it, and
 * mm_generate() answers. The cache still holds what is as it was a turn ago, so only the rest is read. */
#define _POSIX_C_SOURCE 200809L /* getline, isatty */

#include "load_as.h"
#include "options.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

static void fail_at(const char *option)
{
    fprintf(stderr, "%s: %s is no option here, or has a value that it does not take; see --help\n", program, option);
    exit(EXIT_FAILURE);
}

#define COMMANDS                                                                                                       \
    "/clear forgets what was said, /adapters turns adapters off and on, /help lists these; /quit or the end of\n"      \
    "input ends.\n"

static const char usage[] =
    "--model DIR [OPTION...]\n\n"
    "Talk with the model in DIR, a line at a time.\n" COMMANDS "\n"
    "  --adapter DIR       an adapter to run with; may be given several times\n"
    "  --system TEXT       what the model is told before all else\n"
    "  --think on|off      think before answering, if the template has it (the template's default)\n"
    "  --template NAME     minimind2, minimind3 or minillm (the tokenizer's own)\n"
    "  --max-new-tokens N  of an answer, at most (512)\n"
    "  --context N         tokens that the model looks back on; older turns are dropped (2048, or all that\n"
    "                      a model of fewer positions has)\n"
    "  --temperature X     0: always the likeliest token (0.85)\n"
    "  --top-p P           choose among the likeliest tokens that make up P (0.85)\n"
    "  --seed N            other numbers, other answers (0)\n"
    "  --dtype NAME        weights in f32, bf16, q8_0 or q4_0 (as stored)\n"
    "  --threads N         0: one per core (0)\n"
    "  --help              show this";

enum { MAX_NEW_TOKENS, CONTEXT, TEMPERATURE, TOP_P, SEED, THREADS, NUMBERS };
static const char *const number_names[] = { "--max-new-tokens", "--context", "--temperature",
                                            "--top-p",          "--seed",    "--threads" };
static double numbers[] = { 512, NAN, 0.85, 0.85, 0, 0 };
enum { MODEL, SYSTEM, THINK, TEMPLATE, DTYPE, TEXTS };
static const char *const text_names[] = { "--model", "--system", "--think", "--template", "--dtype" };
static const char *texts[TEXTS];

#define MOST_ADAPTERS 16
static const char *adapter_paths[MOST_ADAPTERS];
static int32_t adapter_count;

static bool read_option(const char *name, const char *value)
{
    if (strcmp(name, "--adapter") == 0 && adapter_count < MOST_ADAPTERS)
        return (adapter_paths[adapter_count++] = value) != NULL;
    for (int i = 0; i < TEXTS; i++)
        if (strcmp(name, text_names[i]) == 0)
            return (texts[i] = value) != NULL;
    int i = 0;
    while (i < NUMBERS && strcmp(name, number_names[i]) != 0)
        i++;
    if (i == NUMBERS || !value)
        return false;
    char *end;
    numbers[i] = strtod(value, &end);
    if (i != TEMPERATURE && i != TOP_P && numbers[i] != floor(numbers[i])) /* there is no half of a token */
        return false;
    return end != value && !*end && numbers[i] >= 0 && numbers[i] <= INT32_MAX;
}

/* For a model that was never taught to chat, and so brings no template: plain lines. */
static const mm_chat_roles plain = { .struct_size = sizeof plain, .system_suffix = "\n\n", .user_prefix = "Q: ",
                                     .user_suffix = "\n", .assistant_prefix = "A: ", .assistant_suffix = "\n",
                                     .generation_prompt = "A:" };

static mm_context *context;
static mm_tokenizer *tokenizer;
static mm_cache *cache;
static mm_decoder *decoder;
static mm_chat *chat;
static mm_adapter *adapters[MOST_ADAPTERS];
static int32_t eos;
static int32_t *held, *ids; /* what the cache holds, and perhaps more; the conversation */
static char *said;          /* of an answer, so far */
static size_t said_length;

/* The tokens to look back on, by --context or else as many as is usual. */
static void complete_context(const mm_model *model)
{
    int32_t positions = positions_of(model);
    char message[120];
    if (isnan(numbers[CONTEXT]))
        numbers[CONTEXT] = positions < 2048 ? positions : 2048;
    snprintf(message, sizeof message, "--context is %.0f, must be from 1 to the %d positions that the model has",
             numbers[CONTEXT], positions);
    if (numbers[CONTEXT] < 1 || numbers[CONTEXT] > positions)
        fail(message, "");
}

static void load(void)
{
    mm_model *model = NULL;
    mm_context_options plan = MM_CONTEXT_OPTIONS_INIT;
    check(load_as(texts[MODEL], texts[DTYPE], &model));
    complete_context(model);
    plan.max_context = (int32_t)numbers[CONTEXT];
    plan.max_length = plan.max_context < 256 ? plan.max_context : 256; /* a longer prompt is read in parts */
    plan.threads = (int32_t)numbers[THREADS];
    plan.compute = compute_for(model);
    check(mm_context_create(model, &plan, &context));
    check(mm_cache_create(model, 1, plan.max_context, MM_F32, &cache));
    for (int32_t i = 0; i < adapter_count; i++)
        check(mm_adapter_load(model, adapter_paths[i], &adapters[i]));
    check(mm_context_set_adapters(context, adapters, NULL, adapter_count));
    check(mm_tokenizer_load(texts[MODEL], &tokenizer));
    eos = eos_of(model, tokenizer);
    mm_model_free(model); /* the others keep it alive */
    check(mm_decoder_create(tokenizer, 1, &decoder));
    check(mm_chat_create(&chat));
}

/* NULL, or why not. The one thing that can be wrong with what is said is told to who says it, not to a programmer. */
static const char *add(const char *role, const char *words, size_t length)
{
    mm_status status = mm_chat_add(chat, role, words, length);
    return status == MM_OK ? NULL : status == MM_ERR_ARG ? "this is not UTF-8" : mm_last_error();
}

static size_t say(const char *text, size_t length)
{
    said = need(realloc(said, said_length + length + 1));
    memcpy(said + said_length, text, length);
    said_length += length;
    return length - fwrite(text, 1, length, stdout);
}

static int32_t print_token(void *user, int32_t sequence, int32_t id, float logprob)
{
    const char *text;
    size_t length;
    (void)user, (void)sequence, (void)logprob;
    if (mm_decoder_push(decoder, id, &text, &length) != MM_OK) /* a model may have ids that its tokenizer lacks */
        return 0;
    return say(text, length) > 0 || fflush(stdout) != 0; /* whoever reads may have gone */
}

/* The conversation's ids. The oldest questions and their answers go if they would leave no room for an answer. */
static size_t make_ids(const mm_chat_options *form)
{
    size_t n, first = texts[SYSTEM] ? 1 : 0; /* what the model was told stays */
    double half = numbers[CONTEXT] / 2, most = numbers[MAX_NEW_TOKENS];
    check(mm_chat_encode(chat, tokenizer, form, NULL, 0, &n));
    while ((double)n + (most < half ? most : half) > 2 * half && mm_chat_count(chat) > first + 2) {
        check(mm_chat_remove(chat, first, 2));
        check(mm_chat_encode(chat, tokenizer, form, NULL, 0, &n));
    }
    ids = need(realloc(ids, (n + 1) * sizeof *ids));
    check(mm_chat_encode(chat, tokenizer, form, ids, n, &n));
    return n;
}

/* Behind an answer, also one that broke off: what the decoder still held is no part of the next. */
static void end_answer(mm_status status)
{
    const char *rest;
    size_t length;
    check(mm_decoder_flush(decoder, &rest, &length));
    say(rest, length);
    if (status == MM_OK || said_length > 0)
        puts("");
    fflush(stdout);
}

/* Read what the cache doesn't hold yet, let the model go on, and keep what it said. */
static mm_status answer(mm_generate_options *options, size_t n)
{
    int32_t same = 0;
    while (same < mm_cache_length(cache, 0) && (size_t)same + 1 < n && held[same] == ids[same])
        same++;
    check(mm_cache_truncate(cache, 0, same));
    options->prompts = &(const int32_t *){ ids + same };
    options->prompt_lengths = &(int32_t){ (int32_t)n - same };
    mm_generate_result result = MM_GENERATE_RESULT_INIT;
    said_length = 0;
    mm_status status = mm_generate(context, options, &result);
    end_answer(status);
    if (status != MM_OK)
        return status;
    size_t made = (size_t)result.lengths[0];
    held = need(realloc(held, (n + made) * sizeof *held));
    memcpy(held, ids, n * sizeof *held);
    memcpy(held + n, result.ids, made * sizeof *held);
    check(mm_chat_add(chat, "assistant", said, said_length));
    return MM_OK;
}

/* Answer a question, or say why not. */
static bool reply(mm_generate_options *options, size_t n)
{
    if ((double)n > numbers[CONTEXT])
        fprintf(stderr, "%s: this takes %zu tokens with the template, --context is %.0f; say it shorter\n", program, n,
                numbers[CONTEXT]);
    else if (answer(options, n) == MM_OK)
        return true;
    else
        fprintf(stderr, "%s: %s\n", program, mm_last_error());
    return false;
}

/* Run with the adapters or without. What the cache holds was computed the other way. */
static void switch_adapters(void)
{
    static bool off;
    if (adapter_count == 0) {
        fputs("there are none, --adapter DIR brings one\n", stderr);
        return;
    }
    off = !off;
    check(mm_context_set_adapters(context, adapters, NULL, off ? 0 : adapter_count));
    check(mm_cache_truncate(cache, 0, 0));
    fprintf(stderr, "adapters %s\n", off ? "off" : "on");
}

/* Whether template and context take a question at all: better told before the first line than behind each. */
static void try_shortest(const mm_chat_options *form)
{
    size_t n, first = mm_chat_count(chat);
    char message[160];
    check(mm_chat_add(chat, "user", "a", 1));
    check(mm_chat_encode(chat, tokenizer, form, NULL, 0, &n));
    snprintf(message, sizeof message,
             "--context is %.0f, but the shortest question takes %zu tokens with the template%s; give a larger one",
             numbers[CONTEXT], n, texts[SYSTEM] ? " and --system" : "");
    if ((double)n > numbers[CONTEXT])
        fail(message, "");
    check(mm_chat_truncate(chat, first));
}

/* A line that is a slash and a word, "/clear", is for this program. A path, "/etc/hosts is what?", is something to talk
 * of. */
static bool obey(const char *line)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz";
    if (line[0] != '/' || line[1 + strspn(line + 1, letters)] != '\0')
        return false;
    if (strcmp(line, "/clear") == 0)
        check(mm_chat_truncate(chat, texts[SYSTEM] ? 1 : 0));
    else if (strcmp(line, "/adapters") == 0)
        switch_adapters();
    else if (strcmp(line, "/help") == 0)
        fputs(COMMANDS, stderr);
    else
        fprintf(stderr, "%s: no such command, /help lists them: %s\n", program, line);
    return true;
}

static void talk(const mm_chat_options *form, mm_generate_options *options)
{
    char *line = NULL;
    size_t room = 0;
    ssize_t length = 0;
    const char *prompt = isatty(STDIN_FILENO) ? "> " : ""; /* a file or a program needs no asking */
    while (fputs(prompt, stderr) >= 0 && (length = getline(&line, &room, stdin)) > 0) {
        while (length > 0 && strchr("\r\n", line[length - 1]))
            line[--length] = '\0';
        if (strcmp(line, "/quit") == 0)
            break;
        if (obey(line))
            continue;
        const char *wrong = add("user", line, (size_t)length);
        if (wrong)
            fprintf(stderr, "%s: %s\n", program, wrong);
        else if (!reply(options, make_ids(form)))
            check(mm_chat_truncate(chat, mm_chat_count(chat) - 1));
    }
    if (length < 0 && !feof(stdin))
        fail("can't read standard input", "");
    free(line);
}

int main(int argc, char **argv)
{
    start_as(argv);
    for (int i = 1; i < argc; i += 2)
        if (strcmp(argv[i], "--help") == 0)
            return show_usage(usage), written(EXIT_SUCCESS);
        else if (!read_option(argv[i], argv[i + 1]))
            fail_at(argv[i]);
    bool on = texts[THINK] && strcmp(texts[THINK], "on") == 0;
    if (!texts[MODEL] || (texts[THINK] && !on && strcmp(texts[THINK], "off") != 0))
        fail("it takes --model DIR and perhaps --think on or off; see --help", "");
    load();
    const char *name;
    mm_chat_options form = MM_CHAT_OPTIONS_INIT;
    form.template_name = texts[TEMPLATE];
    if (!form.template_name && mm_chat_template_name(tokenizer, &name) == MM_ERR_STATE)
        form.roles = &plain;
    form.add_generation_prompt = 1;
    form.content_split = MM_SPLIT_NO_SPECIAL; /* nobody ends a turn by writing its last token */
    form.thinking = on ? MM_THINK_ON : texts[THINK] ? MM_THINK_OFF : MM_THINK_DEFAULT;
    mm_sampling sampling = MM_SAMPLING_INIT;
    sampling.temperature = (float)numbers[TEMPERATURE];
    sampling.top_p = (float)numbers[TOP_P];
    sampling.seed = (uint64_t)numbers[SEED];
    mm_generate_options options = MM_GENERATE_OPTIONS_INIT;
    options.sampling = &sampling;
    options.cache = cache;
    options.max_new_tokens = (int32_t)numbers[MAX_NEW_TOKENS];
    options.stop_ids = &eos;
    options.stop_count = 1;
    options.on_token = print_token;
    const char *wrong = texts[SYSTEM] ? add("system", texts[SYSTEM], strlen(texts[SYSTEM])) : NULL;
    if (wrong)
        fail("--system: ", wrong);
    try_shortest(&form);
    talk(&form, &options);
    mm_chat_free(chat);
    mm_decoder_free(decoder);
    mm_tokenizer_free(tokenizer);
    mm_cache_free(cache);
    mm_context_free(context);
    for (int32_t i = 0; i < adapter_count; i++)
        mm_adapter_free(adapters[i]);
    free(said);
    free(held);
    free(ids);
    return written(EXIT_SUCCESS);
}
