/* structured: answers that keep to a JSON shape, whatever the model is.
 *
 *     structured --model DIR --schema shape.json --ask "Who wrote the letter, and when?"
 *     structured --model DIR --prompt "The owl, as JSON: " --schema '{"type": "object", "properties": {
 *         "name": {"type": "string", "maxLength": 20}, "kind": {"enum": ["bird", "mouse"]}}}'
 *
 * A program that goes on with an answer wants it in fields, and a small model that is asked for JSON gives it often,
 * not always. Here nothing else can come: before each token is drawn, on_logits takes away all those behind which no
 * text of the shape could go on. What is left is drawn from as ever, so of what fits the model says what it likes best.
 *
 * schema.c makes a JSON Schema a shape, shape.c knows which bytes may follow, and mask.c which tokens. A token is taken
 * away as well if behind it too few are left to close what is open: answers are whole, however few tokens they have. */
#include "load_as.h"
#include "mask.h"
#include "options.h"
#include "shape.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const char usage[] =
    "--model DIR --schema SCHEMA (--ask TEXT | --prompt TEXT) [OPTION...]\n"
    "\n"
    "Let the model in DIR answer in JSON of a shape, on one line.\n"
    "\n"
    "  --schema SCHEMA     a file with a JSON Schema, or one itself, which begins with {\n"
    "  --ask TEXT          a question, put to the model by its template\n"
    "  --prompt TEXT       a text that the JSON is to follow, as it is\n"
    "  --template NAME     minimind2, minimind3 or minillm (the tokenizer's own)\n"
    "  --max-new-tokens N  how many tokens at most (256, or what a model of few positions has room for)\n"
    "  --temperature X     0: always the likeliest token that fits (0.85)\n"
    "  --top-p P           choose among the likeliest tokens that make up P (0.85)\n"
    "  --seed N            other numbers, other answers (0)\n"
    "  --dtype NAME        weights in f32, bf16, q8_0 or q4_0 (as stored)\n"
    "  --threads N         0: one per core (0)\n"
    "  --stats             tokens per second and what choosing them took, on standard error\n"
    "  --help              show this\n"
    "\n"
    "Of JSON Schema it keeps to type (object, array, string, integer, number, boolean or null), enum, const,\n"
    "properties, items, minLength, maxLength, minItems, maxItems, and of an integer minimum, maximum,\n"
    "exclusiveMinimum and exclusiveMaximum. An object has all its properties, in this order; required and\n"
    "additionalProperties say no more. What else would have to be kept to is refused.\n"
    "Numbers have at most 15 digits before and behind the point and 2 in the exponent.";

enum { MAX_NEW_TOKENS, TEMPERATURE, TOP_P, SEED, THREADS, NUMBERS };
static const char *const number_names[] = { "--max-new-tokens", "--temperature", "--top-p", "--seed", "--threads" };
static double numbers[] = { NAN, 0.85, 0.85, 0, 0 };
enum { MODEL, SCHEMA, ASK, PROMPT, TEMPLATE, DTYPE, TEXTS };
static const char *const text_names[] = { "--model", "--schema", "--ask", "--prompt", "--template", "--dtype" };
static const char *texts[TEXTS];
static bool stats;

static bool read_option(const char *name, const char *value)
{
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
    bool whole = i == MAX_NEW_TOKENS || i == SEED || i == THREADS;
    return end != value && !*end && numbers[i] >= (i == MAX_NEW_TOKENS ? 1 : 0) && numbers[i] <= INT32_MAX &&
           !(whole && numbers[i] != floor(numbers[i]));
}

static void read_arguments(int argc, char **argv)
{
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "--help") == 0)
            show_usage(usage), exit(written(EXIT_SUCCESS));
        else if (strcmp(argv[i], "--stats") == 0)
            stats = true;
        else if (read_option(argv[i], argv[i + 1]))
            i++;
        else
            fail("no option here, or one with a value that it does not take; see --help: ", argv[i]);
    if (!texts[MODEL] || !texts[SCHEMA] || !texts[ASK] == !texts[PROMPT])
        fail("it takes --model, --schema and either --ask or --prompt; see --help", "");
}

static double now(void)
{
    struct timespec t;
    return timespec_get(&t, TIME_UTC) ? (double)t.tv_sec + 1e-9 * (double)t.tv_nsec : 0;
}

/* What on_logits and on_token are handed. */
typedef struct answer {
    mask *mask;
    int32_t most;   /* tokens */
    double seconds; /* that masks have taken */
} answer;

/* Called with the logits of the next token, before it is drawn. Where all is said, and the model has no token to end
 * with, none is left. */
static int32_t keep_what_fits(void *user, int32_t sequence, const int32_t *ids, int32_t count, float *logits,
                              int32_t vocab_size)
{
    (void)sequence, (void)ids;
    answer *a = user;
    double begin = now();
    int32_t kept = mask_logits(a->mask, a->most - count - 1, logits, vocab_size);
    a->seconds += now() - begin;
    return kept == 0;
}

/* Called with the token that was drawn. Where nothing can follow, there is no need to ask for the eos token. */
static int32_t go_on(void *user, int32_t sequence, int32_t id, float logprob)
{
    (void)sequence, (void)logprob;
    answer *a = user;
    return !mask_take(a->mask, id);
}

/* A schema as it is, or of a file. The tokenizer knows what UTF-8 is. */
static shape *read_schema(const mm_tokenizer *tokenizer, const char *what)
{
    size_t length = strlen(what), ids;
    const char *given = what + strspn(what, " \t\r\n");
    char *text = NULL;
    if (*given != '{') {
        FILE *file = fopen(what, "rb");
        size_t room = 1 << 16;
        text = need(malloc(room));
        length = file ? fread(text, 1, room, file) : 0;
        if (!file || ferror(file))
            fail("can't read ", what);
        if (length == room)
            fail("too large for a schema: ", what);
        fclose(file);
    }
    check(mm_encode(tokenizer, text ? text : what, length, MM_SPLIT_NONE, NULL, 0, &ids));
    shape *s = shape_from_schema(text ? text : what, length);
    free(text);
    return s;
}

/* A chat's template opens the answer, and closes a thought where it has one: JSON comes at once. */
static int32_t *make_prompt(const mm_tokenizer *tokenizer, int32_t *count)
{
    size_t n = 0;
    int32_t *ids;
    if (texts[PROMPT]) {
        size_t length = strlen(texts[PROMPT]);
        ids = need(malloc((length + 1) * sizeof *ids)); /* text has never more ids than bytes */
        check(mm_encode(tokenizer, texts[PROMPT], length, MM_SPLIT_ALL, ids, length + 1, &n));
    } else {
        mm_chat *chat = NULL;
        mm_chat_options form = MM_CHAT_OPTIONS_INIT;
        form.template_name = texts[TEMPLATE];
        form.add_generation_prompt = 1;
        form.thinking = MM_THINK_OFF;
        form.content_split = MM_SPLIT_NO_SPECIAL;
        check(mm_chat_create(&chat));
        check(mm_chat_add(chat, "user", texts[ASK], strlen(texts[ASK])));
        check(mm_chat_encode(chat, tokenizer, &form, NULL, 0, &n));
        ids = need(malloc((n + 1) * sizeof *ids));
        check(mm_chat_encode(chat, tokenizer, &form, ids, n + 1, &n));
        mm_chat_free(chat);
    }
    if (n == 0)
        fail("the prompt is empty", "");
    *count = (int32_t)n;
    return ids;
}

/* What the shape takes at least must be among them. */
static int32_t new_tokens(const mm_model *model, int32_t prompt_length, int64_t needed)
{
    int32_t made = new_tokens_of(model, prompt_length, numbers[MAX_NEW_TOKENS], 256);
    char message[160];
    snprintf(message, sizeof message,
             "the shape may need %lld tokens, however short the answer is, and --max-new-tokens is %d",
             (long long)needed, made);
    if (needed > made)
        fail(message, "");
    return made;
}

static mm_context *make_context(mm_model *model, int32_t prompt_length, int32_t made)
{
    mm_context_options plan = MM_CONTEXT_OPTIONS_INIT;
    plan.max_length = prompt_length < 256 ? prompt_length : 256; /* a longer prompt is read in parts */
    plan.max_context = prompt_length + made;
    plan.threads = (int32_t)numbers[THREADS];
    plan.compute = compute_for(model);
    mm_context *context = NULL;
    check(mm_context_create(model, &plan, &context));
    return context;
}

static void print(const mm_tokenizer *tokenizer, const mm_generate_result *result)
{
    size_t length = 0, count = (size_t)result->lengths[0];
    check(mm_decode(tokenizer, result->ids, count, 1, NULL, 0, &length));
    char *text = need(malloc(length + 1));
    check(mm_decode(tokenizer, result->ids, count, 1, text, length + 1, &length));
    text[length] = '\0';
    puts(text);
    free(text);
}

int main(int argc, char **argv)
{
    start_as(argv);
    read_arguments(argc, argv);
    mm_model *model = NULL;
    mm_tokenizer *tokenizer = NULL;
    check(mm_tokenizer_load(texts[MODEL], &tokenizer));
    shape *wanted = read_schema(tokenizer, texts[SCHEMA]);
    check(load_as(texts[MODEL], texts[DTYPE], &model));
    int64_t vocab_size = 0;
    check(mm_config_get_int(mm_model_config(model), "vocab_size", &vocab_size));
    int32_t length = 0, *ids = make_prompt(tokenizer, &length);

    int32_t eos = eos_of(model, tokenizer);
    answer a = { .mask = mask_create(tokenizer, wanted, (int32_t)vocab_size, eos) };
    a.most = new_tokens(model, length, mask_tokens_to_end(a.mask));
    mm_context *context = make_context(model, length, a.most);

    mm_sampling sampling = MM_SAMPLING_INIT;
    sampling.seed = (uint64_t)numbers[SEED];
    sampling.temperature = (float)numbers[TEMPERATURE];
    sampling.top_p = (float)numbers[TOP_P];
    mm_generate_options options = MM_GENERATE_OPTIONS_INIT;
    options.prompts = &(const int32_t *){ ids };
    options.prompt_lengths = &length;
    options.sampling = &sampling;
    options.max_new_tokens = a.most;
    options.stop_ids = &eos;
    options.stop_count = 1;
    options.on_logits = keep_what_fits;
    options.on_token = go_on;
    options.user = &a;
    mm_generate_result result = MM_GENERATE_RESULT_INIT;
    double begin = now();
    check(mm_generate(context, &options, &result)); /* nothing is printed before the text is whole */
    if (stats)
        fprintf(stderr, "%d tokens read, %d made in %.1f ms, of which masks of %d tokens took %.1f\n", length,
                result.lengths[0], 1e3 * (now() - begin), (int)vocab_size, 1e3 * a.seconds);
    print(tokenizer, &result);

    mask_free(a.mask);
    shape_free(wanted);
    free(ids);
    mm_context_free(context);
    mm_model_free(model);
    mm_tokenizer_free(tokenizer);
    return written(EXIT_SUCCESS);
}
