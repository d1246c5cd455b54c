/* dataset: look at a data set the way a model will.
 *
 *     dataset --tokenizer DIR rows.jsonl             read every row: how many, how long, what is wrong
 *     dataset --tokenizer DIR --row 7 rows.jsonl     ids and tokens of one row, and which of them are learnt
 *
 * A data set is lines of JSON, a loader makes ids and targets of them. Targets are shifted: what stands at place t is what
 * the model must say after having seen ids 0 to t, or -100 where nobody minds. Only an assistant's words are learnt. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "options.h"

static mm_loader_options options = MM_LOADER_OPTIONS_INIT;
static const char *const kinds[] = { "text", "chat", "preference", "prompt", NULL };
static const char *const forms[] = { "pad", "pad3", "pack", NULL };
/* What the command line may say, and where it goes. */
static const char *tokenizer_path, *row_text, *kind = "text", *form = "pad", *max_length = "512";
static const struct {
    const char *name, **value;
} arguments[] = { { "--tokenizer", &tokenizer_path }, { "--row", &row_text }, { "--kind", &kind }, { "--form", &form },
                  { "--max-length", &max_length }, { "--template", &options.template_name } };

static void help(void)
{
    show_usage("--tokenizer DIR [options] FILE\n"
               "\n"
               "Read every row of a JSON-lines file as training would, and report on them; or show one.\n"
               "\n"
               "  --tokenizer DIR      a directory with a tokenizer.json\n"
               "  --row I              show row I, counted from 0: its ids, with a * those that are learnt, and its text,\n"
               "                       with that in green, or between [[ and ]]\n"
               "  --kind KIND          text, chat, preference or prompt (text)\n"
               "  --form FORM          pad, pad3 or pack (pad)\n"
               "  --max-length N       ids per row (512)\n"
               "  --template NAME      minimind2, minimind3 or minillm (the tokenizer's own)\n"
               "  --strip-empty-think  take empty think blocks out\n"
               "  --help               show this");
    exit(written(EXIT_SUCCESS));
}

static int32_t number(const char *option, const char *text)
{
    char *end, message[160];
    long n = strtol(text, &end, 10);
    snprintf(message, sizeof message, "%s takes a whole number from 0 up, not \"%.60s\"", option, text);
    if (end == text || *end != '\0' || n < 0 || n > INT32_MAX)
        fail(message, "");
    return (int32_t)n;
}

static const char *read_arguments(int argc, char **argv)
{
    const char *file = NULL;
    for (int i = 1; i < argc; i++) {
        size_t which = 0;
        while (which < sizeof arguments / sizeof *arguments && strcmp(argv[i], arguments[which].name) != 0)
            which++;
        if (which < sizeof arguments / sizeof *arguments && i + 1 < argc)
            *arguments[which].value = argv[++i];
        else if (strcmp(argv[i], "--strip-empty-think") == 0)
            options.strip_empty_think = 1;
        else if (strcmp(argv[i], "--help") == 0)
            help();
        else if (argv[i][0] != '-' && !file)
            file = argv[i];
        else if (which < sizeof arguments / sizeof *arguments)
            fail("no value for ", argv[i]);
        else
            fail("neither an option nor the only FILE, see --help: ", argv[i]);
    }
    if (!file || !tokenizer_path)
        fail("a FILE and --tokenizer are needed; see --help", "");
    return file;
}

static int32_t is_learnt(const int32_t *targets, int32_t t)
{
    return targets && t > 0 && targets[t - 1] != -100;
}

/* One row: ids with a star where they are learnt, then the text with what is learnt in green, or in brackets. */
static void show_ids(mm_tokenizer *tokenizer, const int32_t *ids, const int32_t *targets, int32_t count)
{
    mm_decoder *decoder = NULL;
    const char *text, *on = has_colours(stdout) ? "\033[32m" : "[[", *off = has_colours(stdout) ? "\033[0m" : "]]";
    size_t length;
    int32_t shown = count, inside = 0; /* padding at the end is not shown */
    while (shown > 1 && ids[shown - 1] == options.pad_id && !is_learnt(targets, shown - 1))
        shown--;
    for (int32_t t = 0; t < shown; t++)
        printf("%d%s ", ids[t], is_learnt(targets, t) ? "*" : "");
    printf("and %d of padding\n\n", count - shown);
    check(mm_decoder_create(tokenizer, 0, &decoder));
    for (int32_t t = 0; t < shown; t++) {
        if (is_learnt(targets, t) != inside)
            fputs((inside = !inside) ? on : off, stdout);
        check(mm_decoder_push(decoder, ids[t], &text, &length));
        fwrite(text, 1, length, stdout);
    }
    check(mm_decoder_flush(decoder, &text, &length));
    printf("%s%s\n", text, inside ? off : "");
    mm_decoder_free(decoder);
}

static void show_row(mm_loader *loader, mm_tokenizer *tokenizer, int64_t row)
{
    mm_loader_position place = MM_LOADER_POSITION_INIT;
    mm_batch batch = MM_BATCH_INIT;
    mm_prompts prompts = MM_PROMPTS_INIT;
    place.row = row; /* without shuffle a row's place is its number */
    check(mm_loader_seek(loader, &place));
    check(options.kind == MM_ROW_PROMPT ? mm_loader_next_prompts(loader, &prompts) : mm_loader_next(loader, &batch));
    if (batch.batch + prompts.count == 0)
        fail("there is no such row", "");
    for (int32_t i = 0; i < batch.batch; i++) { /* of preferences two: chosen, rejected */
        int32_t at = i * batch.length;
        show_ids(tokenizer, batch.ids + at, batch.targets + at, batch.length);
    }
    for (int32_t i = 0; i < prompts.count; i++) {
        show_ids(tokenizer, prompts.ids[i], NULL, prompts.lengths[i]);
        printf("answer: %s\n", prompts.answers[i] ? prompts.answers[i] : "(none)");
    }
}

static const char *plural(long long count)
{
    return count == 1 ? "" : "s";
}

/* The dry run. Lengths fall into classes that double: 0, 1, 2-3, 4-7, … */
static void read_rows(mm_loader *loader, mm_dataset *dataset, const char *file)
{
    long long lengths[65] = { 0 }, remarked[3] = { 0 }, good = 0, bad = 0, tokens = 0, learnt = 0, most = 1;
    for (int64_t row = 0, line = 0; row < mm_dataset_rows(dataset); row++) {
        mm_row_report report = MM_ROW_REPORT_INIT;
        mm_status status = mm_loader_check_row(loader, row, &report);
        if (status == MM_ERR_FORMAT) {
            if (bad++ < 20)
                fprintf(stderr, "bad line: %s\n", mm_last_error());
            continue;
        }
        check(status);
        check(mm_dataset_where(dataset, row, NULL, &line));
        if ((report.remarks & MM_REMARK_ROLES) && remarked[0] < 20)
            fprintf(stderr, "warning: line %lld: roles do not alternate\n", (long long)line);
        for (int i = 0; i < 3; i++)
            remarked[i] += report.remarks >> i & 1;
        int size = 0;
        while (report.tokens >> size)
            size++;
        most = ++lengths[size] > most ? lengths[size] : most;
        tokens += report.tokens, learnt += report.learnt, good++;
    }
    printf("%lld row%s, %lld bad line%s, %lld token%s (%lld a row), %lld learnt\n", good, plural(good), bad,
           plural(bad), tokens, plural(tokens), tokens / (good + (good == 0)), learnt);
    printf("%lld row%s whose roles do not alternate, %lld longer than --max-length, %lld with nothing to learn\n",
           remarked[0], plural(remarked[0]), remarked[1], remarked[2]);
    for (int i = 0; i < 60; i++)
        if (lengths[i] > 0)
            printf("%9lld - %-9lld %9lld %.*s\n", i > 0 ? 1LL << (i - 1) : 0, (1LL << i) - 1, lengths[i],
                   (int)(lengths[i] * 40 / most), "########################################");
    if (good == 0)
        fail("there is nothing to train on: ", file);
}

int main(int argc, char **argv)
{
    start_as(argv);
    mm_tokenizer *tokenizer = NULL;
    mm_dataset *dataset = NULL;
    mm_loader *loader = NULL;
    const char *file = read_arguments(argc, argv);
    options.batch = 1;
    options.shuffle = 0;
    options.workers = 0;
    options.max_length = number("--max-length", max_length);
    options.form = choose("form", form, forms);
    options.kind = choose("kind", kind, kinds);
    check(mm_tokenizer_load(tokenizer_path, &tokenizer));
    check(mm_dataset_open(file, &dataset));
    options.bos_id = mm_tokenizer_find(tokenizer, "<|im_start|>"); /* as the training programs have it */
    options.eos_id = mm_tokenizer_find(tokenizer, "<|im_end|>");
    check(mm_loader_create(dataset, tokenizer, &options, &loader));
    if (row_text)
        show_row(loader, tokenizer, number("--row", row_text));
    else
        read_rows(loader, dataset, file);
    mm_loader_free(loader);
    mm_dataset_free(dataset);
    mm_tokenizer_free(tokenizer);
    return written(EXIT_SUCCESS);
}
