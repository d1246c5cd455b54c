/* evaluate: how good is the model in a directory?
 *
 *     evaluate loss --model DIR --data rows.jsonl          its loss on rows {"text"} or {"conversations"}
 *     evaluate text --model DIR --data book.txt            ... on one long text
 *     evaluate choices --model DIR --data questions.jsonl  rows {"prompt", "choices": […], "answer": 0}
 *     evaluate prompts --model DIR --data prompts.jsonl    rows {"prompt", "expect": […]}: regression tests for models
 *
 * Rows of texts are laid out as pretrain has them, conversations as sft has them; a model that was trained on packed
 * rows is measured on such with --pack, and is asked with --bos. With --dtype the same is asked of the model in fewer
 * bits, with --adapter of the model and what was learnt beside it.
 * Begin reading at main(): a model and its tokenizer are loaded, a context is planned, and one of four functions of
 * evaluate.h does the work. */
#include "load_as.h"
#include "options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void fail_at(const char *option)
{
    fprintf(stderr, "%s: %s is no option here, or lacks its value; see --help\n", program, option);
    exit(EXIT_FAILURE);
}

static const char usage[] =
    "loss|text|choices|prompts --model DIR --data FILE [OPTION...]\n"
    "\n"
    "Ask how good the model in DIR is. What FILE holds, a row a line but for text:\n"
    "\n"
    "  loss     {\"text\": \"...\"}, or with --kind chat {\"conversations\": [...]}\n"
    "  text     one text of any length in UTF-8\n"
    "  choices  {\"prompt\": \"...\", \"choices\": [\"...\", \"...\"], \"answer\": 0}, the right one counted from 0\n"
    "  prompts  {\"prompt\": \"...\", \"expect\": [\"...\"]}: what the answer must contain; it is as long\n"
    "           as \"max_new_tokens\" says, if that is there too\n"
    "\n"
    "  --dtype NAME      f32, bf16, q8_0 or q4_0: what the weights are turned into (as stored)\n"
    "  --adapter DIR     an adapter to run with\n"
    "  --batch N         sequences that run together (8)\n"
    "  --max-length N    tokens per sequence; in training that is --max-seq-len (512, or all that a model of\n"
    "                    fewer positions has)\n"
    "  --max-rows N      of loss, choices and prompts: at most so many rows; of loss, batches (0: all)\n"
    "  --overlap N       of text: tokens that a window sees of the one before (0)\n"
    "  --kind NAME       of loss: text or chat rows (text)\n"
    "  --form NAME       of loss: pad, pad3 or pack: how rows are laid out, as the model was trained (as pretrain\n"
    "                    and sft have it when they are not told: pad, but pad3 for minimind-3 and chat)\n"
    "  --pack            the same as --form pack\n"
    "  --bos             of text, choices and prompts: begin each with the model's bos token, for a model that was\n"
    "                    trained on --form pack or pad3\n"
    "  --template NAME   of loss --kind chat and prompts: minimind2, minimind3 or minillm (the tokenizer's own)\n"
    "  --strip-empty-think\n"
    "                    of loss --kind chat: without MiniMind-3's empty think blocks, as sft of that option learns\n"
    "  --threads N       0: one per core (0)\n"
    "  --verbose         of choices and prompts: tell about every row";

static struct {
    const char *what, *model, *data, *dtype, *adapter, *kind, *form, *template_name;
    long batch, max_length, max_rows, overlap, threads;
    int verbose, bos, strip_empty_think;
} o = { .kind = "text", .batch = 8, .max_length = -1 };

static long number(const char *name, const char *text)
{
    char *end, message[120];
    long value = strtol(text, &end, 10);
    if (end == text || *end || value < 0 || value > 1 << 24) {
        snprintf(message, sizeof message, "%s takes a whole number, not \"%.60s\"", name, text);
        fail(message, "");
    }
    return value;
}

/* An option that is for some of loss, text, choices and prompts alone; NULL: for all. */
static void expect_one_of(const char *option, const char *those)
{
    char message[120];
    if (!o.what || !those || strstr(those, o.what))
        return;
    snprintf(message, sizeof message, "%s is for %s, not for %.20s", option, those, o.what);
    fail(message, "");
}

static void read_arguments(int argc, char **argv)
{
    static const struct {
        const char *name;
        const char **text;
        long *number;
        const char *those; /* NULL: all */
    } options[] = {
        { "--model", &o.model, NULL, NULL },
        { "--data", &o.data, NULL, NULL },
        { "--dtype", &o.dtype, NULL, NULL },
        { "--adapter", &o.adapter, NULL, NULL },
        { "--kind", &o.kind, NULL, "loss" },
        { "--batch", NULL, &o.batch, NULL },
        { "--max-length", NULL, &o.max_length, NULL },
        { "--max-rows", NULL, &o.max_rows, "loss, choices and prompts" },
        { "--overlap", NULL, &o.overlap, "text" },
        { "--threads", NULL, &o.threads, NULL },
        { "--form", &o.form, NULL, "loss" },
        { "--template", &o.template_name, NULL, "loss and prompts" },
    };
    enum { COUNT = sizeof options / sizeof *options };
    for (int i = 1; i < argc; i++) {
        int k = 0;
        while (k < COUNT && strcmp(argv[i], options[k].name) != 0)
            k++;
        if (strcmp(argv[i], "--help") == 0)
            show_usage(usage), exit(written(EXIT_SUCCESS));
        else if (strcmp(argv[i], "--verbose") == 0)
            expect_one_of(argv[i], "choices and prompts"), o.verbose = 1;
        else if (strcmp(argv[i], "--pack") == 0)
            expect_one_of(argv[i], "loss"), o.form = "pack";
        else if (strcmp(argv[i], "--strip-empty-think") == 0)
            expect_one_of(argv[i], "loss"), o.strip_empty_think = 1;
        else if (strcmp(argv[i], "--bos") == 0)
            o.bos = 1;
        else if (i == 1 && argv[i][0] != '-')
            o.what = argv[i];
        else if (k == COUNT || i + 1 == argc)
            fail_at(argv[i]);
        else if (expect_one_of(argv[i], options[k].those), options[k].text)
            *options[k].text = argv[++i];
        else
            *options[k].number = number(argv[i], argv[i + 1]), i++;
    }
    if (!o.what || !o.model || !o.data)
        fail("it takes loss, text, choices or prompts, then --model and --data; see --help", "");
    if (o.bos && strcmp(o.what, "loss") == 0)
        fail("rows of loss begin as --form says, they take no --", "bos");
    if ((o.template_name || o.strip_empty_think) && strcmp(o.what, "loss") == 0 && strcmp(o.kind, "text") == 0)
        fail("rows of --kind text are no conversations, they take no --", o.template_name ? "template" : "strip-empty-think");
}

/* The context keeps it alive. */
static void set_adapter(mm_context *context)
{
    mm_adapter *adapter = NULL;
    check(mm_adapter_load(mm_context_model(context), o.adapter, &adapter));
    check(mm_context_set_adapters(context, &adapter, NULL, 1));
    mm_adapter_free(adapter);
}

/* What texts and prompts begin with; -1: nothing. */
static int32_t first_id(const mm_context *context)
{
    return o.bos ? bos_of(mm_context_model(context)) : -1;
}

static void print_loss(const mm_evaluation *e)
{
    printf("loss %.4f nats per token, perplexity %.3f, %.4f bits per byte\n%lld tokens, %lld bytes\n", e->loss,
           e->perplexity, e->bits_per_byte, (long long)e->tokens, (long long)e->bytes);
}

/* The training programs' names; of text, pad is without what begins and ends a row. Left out, it is what these learn
 * from by default, so that a validation is measured again. */
static int32_t read_form(const mm_model *model, int32_t kind)
{
    static const char *const names[] = { "pad", "pad3", "pack" }; /* MM_ROWS_PAD, MM_ROWS_PAD3, MM_ROWS_PACK */
    int64_t version = 2;
    if (!o.form && kind == MM_ROW_TEXT &&
        mm_config_get_int(mm_model_config(model), "minimind_version", &version) != MM_OK)
        version = 2;
    if (!o.form)
        return kind == MM_ROW_TEXT && version != 3 ? MM_ROWS_PAD : MM_ROWS_PAD3;
    for (int32_t i = 0; i < 3; i++)
        if (strcmp(o.form, names[i]) == 0)
            return i;
    fail("--form is pad, pad3 or pack", "");
    return 0;
}

static void evaluate_loss(mm_context *context, mm_tokenizer *tokenizer, mm_dataset *dataset)
{
    mm_loader *loader = NULL;
    mm_loader_options l = MM_LOADER_OPTIONS_INIT;
    mm_evaluation e = MM_EVALUATION_INIT;
    l.batch = (int32_t)o.batch;
    l.max_length = (int32_t)o.max_length;
    l.template_name = o.template_name;
    l.strip_empty_think = o.strip_empty_think;
    l.trim = 1;
    l.shuffle = 0;
    if (strcmp(o.kind, "chat") != 0 && strcmp(o.kind, "text") != 0)
        fail("--kind is text or chat", "");
    l.kind = strcmp(o.kind, "chat") == 0 ? MM_ROW_CHAT : MM_ROW_TEXT;
    l.form = read_form(mm_context_model(context), l.kind);
    l.bos_id = mm_tokenizer_find(tokenizer, "<|im_start|>"); /* as the training programs have it */
    l.eos_id = mm_tokenizer_find(tokenizer, "<|im_end|>");
    check(mm_loader_create(dataset, tokenizer, &l, &loader));
    check(mm_evaluate_loss(context, loader, o.max_rows, &e));
    print_loss(&e);
    mm_loader_free(loader);
}

static void evaluate_text(mm_context *context, mm_tokenizer *tokenizer)
{
    size_t length;
    char *text = read_all(fopen(o.data, "rb"), o.data, &length);
    mm_evaluate_text_options t = MM_EVALUATE_TEXT_OPTIONS_INIT;
    mm_evaluation e = MM_EVALUATION_INIT;
    t.overlap = (int32_t)o.overlap;
    t.bos_id = first_id(context);
    check(mm_evaluate_text(context, tokenizer, text, length, &t, &e));
    print_loss(&e);
    free(text);
}

static int32_t show_choice(void *user, const mm_choice *choice)
{
    (void)user;
    printf("row %lld: picked %d (%.3f nats), right is %d (%.3f)\n", (long long)choice->row, choice->picked,
           choice->sums[choice->picked], choice->answer, choice->sums[choice->answer]);
    return 0;
}

/* What the numbers then say less about. */
static void tell_of_cut(int64_t count, const char *what)
{
    if (count > 0)
        printf("prompts that --max-length %ld has no room for beside their %s, asked without their beginning: %lld\n",
               o.max_length, what, (long long)count);
}

static void evaluate_choices(mm_context *context, mm_tokenizer *tokenizer, mm_dataset *dataset)
{
    mm_choices_options c = MM_CHOICES_OPTIONS_INIT;
    mm_choices_result result = MM_CHOICES_RESULT_INIT;
    c.on_row = o.verbose ? show_choice : NULL;
    c.bos_id = first_id(context);
    c.max_rows = o.max_rows;
    check(mm_evaluate_choices(context, tokenizer, dataset, &c, &result));
    printf("accuracy %.2f %% by likelihood, %.2f %% by likelihood per byte, of %lld questions\n", 100 * result.accuracy,
           100 * result.accuracy_per_byte, (long long)result.rows);
    tell_of_cut(result.cut, "endings");
}

static int32_t show_answer(void *user, const mm_prompt_answer *answer)
{
    (void)user;
    if (o.verbose || !answer->passed)
        printf("%s: %s\n  → %s\n", answer->passed ? "passed" : "FAILED", answer->prompt, answer->answer);
    if (!answer->passed)
        printf("  it lacks \"%s\"\n", answer->missing);
    return 0;
}

/* The exit status tells a script whether all passed. */
static int evaluate_prompts(mm_context *context, mm_tokenizer *tokenizer, mm_dataset *dataset)
{
    mm_prompts_options p = MM_PROMPTS_OPTIONS_INIT;
    mm_prompts_result result = MM_PROMPTS_RESULT_INIT;
    p.on_row = show_answer;
    p.bos_id = first_id(context);
    p.template_name = o.template_name;
    p.max_rows = o.max_rows;
    if (p.max_new_tokens > o.max_length / 2) /* half of a short context is for the prompt, of which the end is kept */
        p.max_new_tokens = o.max_length > 1 ? (int32_t)(o.max_length / 2) : 1;
    check(mm_evaluate_prompts(context, tokenizer, dataset, &p, &result));
    printf("%lld of %lld prompts passed\n", (long long)result.passed, (long long)result.rows);
    tell_of_cut(result.cut, "answers");
    return result.passed == result.rows ? EXIT_SUCCESS : EXIT_FAILURE;
}

int main(int argc, char **argv)
{
    start_as(argv);
    read_arguments(argc, argv);
    int status = EXIT_SUCCESS;
    mm_model *model = NULL;
    mm_tokenizer *tokenizer = NULL;
    mm_dataset *dataset = NULL;
    mm_context *context = NULL;
    check(load_as(o.model, o.dtype, &model));
    check(mm_tokenizer_load(o.model, &tokenizer));
    if (o.max_length < 0)
        o.max_length = positions_of(model) < 512 ? positions_of(model) : 512;
    mm_context_options c = MM_CONTEXT_OPTIONS_INIT;
    c.max_batch = (int32_t)o.batch;
    c.max_length = (int32_t)o.max_length;
    c.outputs = MM_OUT_LOSS | MM_OUT_LOGPROBS | MM_OUT_LAST_LOGITS;
    c.threads = (int32_t)o.threads;
    c.compute = compute_for(model);
    check(mm_context_create(model, &c, &context));
    if (o.adapter)
        set_adapter(context);
    if (strcmp(o.what, "text") != 0)
        check(mm_dataset_open(o.data, &dataset));
    if (strcmp(o.what, "loss") == 0)
        evaluate_loss(context, tokenizer, dataset);
    else if (strcmp(o.what, "text") == 0)
        evaluate_text(context, tokenizer);
    else if (strcmp(o.what, "choices") == 0)
        evaluate_choices(context, tokenizer, dataset);
    else if (strcmp(o.what, "prompts") == 0)
        status = evaluate_prompts(context, tokenizer, dataset);
    else
        fail("the first word is loss, text, choices or prompts", "");
    mm_context_free(context);
    mm_dataset_free(dataset);
    mm_tokenizer_free(tokenizer);
    mm_model_free(model);
    return written(status);
}
