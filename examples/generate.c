/* generate: continue a text with a model from a directory.
 *
 *     generate --model DIR --prompt "Once upon a time" --max-new-tokens 100
 *     generate --model DIR --prompt-ids 5,17,9 --greedy
 *     generate --model DIR --adapter out/lora/identity --prompt "Who are you?"
 *
 * It loads the model and its tokenizer, turns the prompt into ids, plans a context that is just large enough, and lets
 * mm_generate() call back for each new token. A decoder turns ids into text that never ends in half a character. */
#include "load_as.h"
#include "options.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static void fail_at(const char *option)
{
    fprintf(stderr, "%s: %s is no option here, or lacks its value; see --help\n", program, option);
    exit(EXIT_FAILURE);
}

static const char usage[] = "--model DIR (--prompt TEXT | --prompt-ids 5,17,9) [OPTION...]\n"
                            "\n"
                            "Continue a text, or token ids, with the model in DIR. Ids give ids.\n"
                            "\n"
                            "  --adapter DIR           an adapter to run with; may be given several times\n"
                            "  --max-new-tokens N      how many tokens at most (128, or what a model of few positions has\n"
                            "                          room for behind the prompt)\n"
                            "  --bos                   begin with the model's bos token, for a model that was trained on\n"
                            "                          pretrain's --form pack or pad3\n"
                            "  --greedy                always the likeliest token\n"
                            "  --temperature X         below 1, rare tokens become rarer still (0.85)\n"
                            "  --top-k K               choose among the K likeliest tokens (0: all)\n"
                            "  --top-p P               ... among the likeliest that make up P (0.85)\n"
                            "  --min-p P               ... among those at least P times as likely as the first (0)\n"
                            "  --repetition-penalty X  above 1, what was said becomes less likely (1)\n"
                            "  --seed N                the same seed gives the same text (0)\n"
                            "  --dtype NAME            weights in f32, bf16, q8_0 or q4_0 (as stored)\n"
                            "  --threads N             0: one per core (0)\n"
                            "  --kernels NAME          a kernel path, such as c or avx2 (the fastest)\n"
                            "  --stats                 tokens per second, on standard error";

enum { MAX_NEW_TOKENS, TEMPERATURE, TOP_K, TOP_P, MIN_P, REPETITION_PENALTY, SEED, THREADS, NUMBERS };

static struct {
    const char *name;
    double value, low, high;
    bool whole;
} numbers[NUMBERS] = {
    { "--max-new-tokens", NAN, 1, 1 << 24, true }, /* open: it depends on the model and the prompt */
    { "--temperature", 0.85, 0, 100, false },
    { "--top-k", 0, 0, 1 << 30, true },
    { "--top-p", 0.85, 1e-6, 1, false },
    { "--min-p", 0, 0, 1, false },
    { "--repetition-penalty", 1, 1e-3, 1000, false },
    { "--seed", 0, 0, 9e15, true },
    { "--threads", 0, 0, 1024, true },
};

enum { MODEL, PROMPT, PROMPT_IDS, KERNELS, DTYPE, TEXTS };
static const char *const text_names[TEXTS] = { "--model", "--prompt", "--prompt-ids", "--kernels", "--dtype" };
static const char *texts[TEXTS];
static bool bos, stats;
#define MOST_ADAPTERS 16
static const char *adapter_paths[MOST_ADAPTERS];
static int32_t adapter_count;

static bool read_option(const char *name, const char *value)
{
    if (strcmp(name, "--adapter") == 0) {
        if (adapter_count == MOST_ADAPTERS)
            fail("more adapters than it takes", "");
        adapter_paths[adapter_count++] = value;
        return true;
    }
    for (int i = 0; i < TEXTS; i++)
        if (strcmp(name, text_names[i]) == 0)
            return (texts[i] = value) != NULL;
    int i = 0;
    while (i < NUMBERS && strcmp(name, numbers[i].name) != 0)
        i++;
    if (i == NUMBERS)
        return false;
    char *end, message[160];
    double x = numbers[i].value = strtod(value, &end);
    if (end == value || *end || !(x >= numbers[i].low && x <= numbers[i].high) ||
        (numbers[i].whole && x != (double)(int64_t)x)) {
        snprintf(message, sizeof message, "%s takes a %snumber from %.16g to %.16g, not \"%.60s\"", name,
                 numbers[i].whole ? "whole " : "", numbers[i].low, numbers[i].high, value);
        fail(message, "");
    }
    return true;
}

static void read_arguments(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--help") == 0)
            show_usage(usage), exit(written(EXIT_SUCCESS));
        else if (strcmp(argv[i], "--greedy") == 0)
            numbers[TEMPERATURE].value = 0;
        else if (strcmp(argv[i], "--bos") == 0)
            bos = true;
        else if (strcmp(argv[i], "--stats") == 0)
            stats = true;
        else if (i + 1 == argc || !read_option(argv[i], argv[i + 1]))
            fail_at(argv[i]);
        else
            i++;
    }
    if (!texts[MODEL] || !texts[PROMPT] == !texts[PROMPT_IDS])
        fail("it takes --model and either --prompt or --prompt-ids; see --help", "");
}

/* The prompt's ids. Text has never more ids than bytes. Whether the model has the ids is for the library to check. */
static int32_t *make_prompt(const mm_tokenizer *tokenizer, const mm_model *model, int32_t *count)
{
    const char *text = texts[PROMPT] ? texts[PROMPT] : texts[PROMPT_IDS];
    size_t length = strlen(text), n = 0, encoded = 0;
    int32_t *ids = need(malloc((length + 2) * sizeof *ids));
    if (bos)
        ids[n++] = bos_of(model);
    if (tokenizer) {
        check(mm_encode(tokenizer, text, length, MM_SPLIT_ALL, ids + n, length + 1, &encoded));
        n += encoded;
    }
    char *end;
    for (const char *at = tokenizer ? "" : text; *at != '\0'; at = end + strspn(end, ", ")) {
        long id = strtol(at, &end, 10);
        if (end == at || id < 0 || id > INT32_MAX || (*end && !strchr(", ", *end)))
            fail("--prompt-ids takes ids such as 5,17,9", "");
        ids[n++] = (int32_t)id;
    }
    *count = (int32_t)n;
    return ids;
}

static int printed; /* tokens */

/* Called for each new token. With a decoder it prints the text that is certain by now, else the id. */
static int32_t print_token(void *decoder, int32_t sequence, int32_t id, float logprob)
{
    (void)sequence;
    (void)logprob;
    if (decoder) {
        const char *text;
        size_t length;
        if (mm_decoder_push(decoder, id, &text, &length) == MM_OK) /* a model may have ids that its tokenizer lacks */
            fwrite(text, 1, length, stdout);
    } else {
        printf(printed ? ",%d" : "%d", id);
    }
    printed++;
    return fflush(stdout) != 0; /* whoever reads may have gone */
}

static double now(void)
{
    struct timespec t;
    return timespec_get(&t, TIME_UTC) ? (double)t.tv_sec + 1e-9 * (double)t.tv_nsec : 0;
}

static mm_context *make_context(mm_model *model, int32_t prompt_length, int32_t made)
{
    mm_context_options plan = MM_CONTEXT_OPTIONS_INIT;
    plan.max_length = prompt_length < 256 ? prompt_length : 256; /* a longer prompt is read in parts */
    plan.max_context = prompt_length + made;
    plan.threads = (int32_t)numbers[THREADS].value;
    plan.kernels = texts[KERNELS];
    plan.compute = compute_for(model);
    mm_context *context = NULL;
    check(mm_context_create(model, &plan, &context));
    mm_adapter *adapters[MOST_ADAPTERS];
    for (int32_t i = 0; i < adapter_count; i++)
        check(mm_adapter_load(model, adapter_paths[i], &adapters[i]));
    check(mm_context_set_adapters(context, adapters, NULL, adapter_count));
    for (int32_t i = 0; i < adapter_count; i++)
        mm_adapter_free(adapters[i]); /* the context keeps them alive */
    return context;
}

int main(int argc, char **argv)
{
    start_as(argv);
    read_arguments(argc, argv);
    mm_model *model = NULL;
    mm_tokenizer *tokenizer = NULL;
    mm_decoder *decoder = NULL;
    check(load_as(texts[MODEL], texts[DTYPE], &model));
    if (texts[PROMPT]) {
        check(mm_tokenizer_load(texts[MODEL], &tokenizer));
        check(mm_decoder_create(tokenizer, 1, &decoder));
    }
    int32_t length = 0, *ids = make_prompt(tokenizer, model, &length);
    if (length == 0)
        fail("the prompt is empty", "");
    int32_t made = new_tokens_of(model, length, numbers[MAX_NEW_TOKENS].value, 128);
    mm_context *context = make_context(model, length, made);

    mm_sampling sampling = MM_SAMPLING_INIT;
    sampling.seed = (uint64_t)numbers[SEED].value;
    sampling.temperature = (float)numbers[TEMPERATURE].value;
    sampling.top_k = (int64_t)numbers[TOP_K].value;
    sampling.top_p = (float)numbers[TOP_P].value;
    sampling.min_p = (float)numbers[MIN_P].value;
    sampling.repetition_penalty = (float)numbers[REPETITION_PENALTY].value;
    mm_generate_options options = MM_GENERATE_OPTIONS_INIT;
    options.prompts = &(const int32_t *){ ids };
    options.prompt_lengths = &length;
    options.sampling = &sampling;
    options.max_new_tokens = made;
    options.stop_ids = &(int32_t){ eos_of(model, tokenizer) };
    options.stop_count = 1;
    options.on_token = print_token;
    options.user = decoder;
    mm_generate_result result = MM_GENERATE_RESULT_INIT;
    double begin = now();
    mm_status status = mm_generate(context, &options, &result);
    const char *rest = "";
    if (decoder)
        check(mm_decoder_flush(decoder, &rest, NULL));
    if (status == MM_OK || printed > 0)
        puts(rest);
    fflush(stdout); /* what it said before it broke off comes before the reason */
    check(status);
    if (stats)
        fprintf(stderr, "%d tokens read, %d made, %.1f tokens/s\n", length, result.lengths[0],
                result.lengths[0] / (now() - begin));

    free(ids);
    mm_decoder_free(decoder);
    mm_tokenizer_free(tokenizer);
    mm_context_free(context);
    mm_model_free(model);
    return written(EXIT_SUCCESS);
}
