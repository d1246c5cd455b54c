/* Conversations, preferences and prompts through a loader. The exact forms of each generation are the fixtures' business
 * (golden_text); here is what they don't show. */
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/loader.h"
#include "texts.h"

#define IGNORED (-100)

static mm_tokenizer *tokenizer;
static mm_dataset *dataset;
static mm_loader *loader;

static void start(void)
{
    tokenizer = byte_tokenizer();
    dataset = NULL;
    loader = NULL;
}

static void end(void)
{
    mm_loader_free(loader);
    mm_dataset_free(dataset);
    mm_tokenizer_free(tokenizer);
}

static mm_loader_options options_of(int32_t kind, int32_t form, int32_t batch, int32_t max_length, const char *name)
{
    mm_loader_options o = MM_LOADER_OPTIONS_INIT;
    o.kind = kind;
    o.form = form;
    o.batch = batch;
    o.max_length = max_length;
    o.template_name = name;
    o.shuffle = 0;
    return o;
}

static void use(const char *rows, const mm_loader_options *o)
{
    mm_loader_free(loader);
    mm_dataset_free(dataset);
    loader = NULL;
    dataset = NULL;
    ck_ok(mm_dataset_open(put_file(scratch_directory(), "rows.jsonl", rows, strlen(rows)), &dataset));
    ck_ok(mm_loader_create(dataset, tokenizer, o, &loader));
}

/* The ids as text; static until the next call. */
static const char *text_of(const int32_t *ids, int32_t count)
{
    static char text[8192];
    size_t size = 0;
    ck_ok(mm_decode(tokenizer, ids, (size_t)count, 0, text, sizeof text - 1, &size));
    text[size] = '\0';
    return text;
}

/* The targets that count, as text, with a '|' where they leave off. */
static const char *learnt_of(const mm_batch *b, int row)
{
    static char text[8192];
    const int32_t *targets = b->targets + (size_t)row * (size_t)b->length;
    text[0] = '\0';
    for (int32_t t = 0; t < b->length; t++) {
        if (targets[t] != IGNORED)
            strcat(text, text_of(&targets[t], 1));
        else if (text[0] && text[strlen(text) - 1] != '|')
            strcat(text, "|");
    }
    return text;
}

static const char talk[] =
    "{\"conversations\": [{\"role\": \"user\", \"content\": \"hi\"}, {\"role\": \"assistant\", \"content\": \"yes\"}, "
    "{\"role\": \"user\", \"content\": \"more\"}, {\"role\": \"assistant\", \"content\": \"no\"}]}\n";

START_TEST(of_a_conversation_only_the_answers_are_learnt)
{
    mm_batch b = MM_BATCH_INIT;
    mm_loader_options o = options_of(MM_ROW_CHAT, MM_ROWS_PAD, 1, 200, NULL);
    use(talk, &o); /* the tokenizer's own template is MiniMind2's */
    ck_ok(mm_loader_next(loader, &b));
    ck_assert_int_eq(b.length, 199);
    ck_assert_str_eq(learnt_of(&b, 0), "yes<|im_end|>\n|no<|im_end|>\n|");
    o.form = MM_ROWS_PAD3;
    o.template_name = "minimind3";
    o.strip_empty_think = 1;
    use(talk, &o);
    ck_ok(mm_loader_next(loader, &b));
    ck_assert_int_eq(b.length, 200);
    ck_assert_str_eq(learnt_of(&b, 0), "yes<|im_end|>\n|no<|im_end|>\n|");
    ck_assert_ptr_null(strstr(text_of(b.ids, b.length), "think"));
    o.strip_empty_think = 0;
    use(talk, &o);
    ck_ok(mm_loader_next(loader, &b));
    ck_assert_str_eq(learnt_of(&b, 0), "<think>\n\n</think>\n\nyes<|im_end|>\n|<think>\n\n</think>\n\nno<|im_end|>\n|");
}
END_TEST

START_TEST(packed_conversations_keep_their_marks)
{
    mm_batch b = MM_BATCH_INIT;
    mm_loader_options padded = options_of(MM_ROW_CHAT, MM_ROWS_PAD3, 1, 400, "minillm"), packed = padded;
    char rows[2000];
    snprintf(rows, sizeof rows, "%s%s%s", talk, talk, talk);
    use(rows, &padded);
    ck_ok(mm_loader_next(loader, &b));
    int32_t ids[400], targets[400], length = 400;
    memcpy(ids, b.ids, sizeof ids);
    memcpy(targets, b.targets, sizeof targets);
    while (ids[length - 1] == 0)
        length--;
    packed.form = MM_ROWS_PACK;
    packed.max_length = 2 * length + 7; /* the third is broken after 7 ids */
    packed.batch = 2;
    use(rows, &packed);
    ck_ok(mm_loader_next(loader, &b));
    ck_assert_int_eq(b.batch, 2);
    for (int32_t at = 0; at < 3 * length; at++) {
        int32_t last = at == 2 * length + 6; /* its next id is in another row */
        ck_assert_int_eq(b.ids[at], ids[at % length]);
        ck_assert_int_eq(b.targets[at], last ? IGNORED : targets[at % length]);
        ck_assert_int_eq(b.document_ids[at], at < b.length ? at / length : 0);
    }
    for (int32_t at = 3 * length; at < 2 * b.length; at++) {
        ck_assert_int_eq(b.ids[at], 0);
        ck_assert_int_eq(b.targets[at], IGNORED);
        ck_assert_int_eq(b.document_ids[at], 1);
    }
}
END_TEST

static const char pair[] = "{\"chosen\": [{\"role\": \"user\", \"content\": \"q%d\"}, {\"role\": \"assistant\", \"content\": "
                           "\"good%d\"}], \"rejected\": [{\"role\": \"user\", \"content\": \"q%d\"}, {\"role\": "
                           "\"assistant\", \"content\": \"bad%d\"}]}\n";

START_TEST(of_preferences_the_chosen_half_comes_first)
{
    char rows[4000] = "", expected[64];
    for (int i = 0; i < 5; i++)
        snprintf(rows + strlen(rows), sizeof rows - strlen(rows), pair, i, i, i, i);
    mm_batch b = MM_BATCH_INIT;
    mm_loader_options o = options_of(MM_ROW_PREFERENCE, MM_ROWS_PAD, 3, 120, "minimind2");
    use(rows, &o);
    ck_assert_int_eq(mmi_loader_batch_rows(loader), 6);
    for (int first = 0; first < 5; first += 3) {
        int n = first == 0 ? 3 : 2;
        ck_ok(mm_loader_next(loader, &b));
        ck_assert_int_eq(b.batch, 2 * n);
        ck_assert_int_eq(b.length, 119);
        for (int i = 0; i < 2 * n; i++) {
            snprintf(expected, sizeof expected, "%s%d<|im_end|>\n|", i < n ? "good" : "bad", first + i % n);
            ck_assert_str_eq(learnt_of(&b, i), expected);
            snprintf(expected, sizeof expected, "q%d<|im_end|>", first + i % n);
            ck_assert_ptr_nonnull(strstr(text_of(b.ids + i * b.length, b.length), expected));
        }
    }
    ck_ok(mm_loader_next(loader, &b));
    ck_assert_int_eq(b.batch, 0);
}
END_TEST

/* Batches of the loader and of one that trims, side by side; how many tokens were cut off. */
static int64_t check_trimmed(mm_loader *whole, mm_loader *trimmed, bool packed)
{
    mm_batch a = MM_BATCH_INIT, b = MM_BATCH_INIT;
    int64_t cut = 0;
    do {
        int32_t reach = packed ? mm_loader_length(whole) : 1;
        ck_ok(mm_loader_next(whole, &a));
        ck_ok(mm_loader_next(trimmed, &b));
        ck_assert_int_eq(b.batch, a.batch);
        for (int32_t row = 0; row < a.batch; row++)
            for (int32_t t = 0; t < a.length; t++) {
                size_t i = (size_t)row * (size_t)a.length + (size_t)t, j = (size_t)row * (size_t)b.length + (size_t)t;
                if (a.targets[i] != -100 && t >= reach)
                    reach = t + 1;
                ck_assert(t >= b.length || (a.ids[i] == b.ids[j] && a.targets[i] == b.targets[j]));
            }
        ck_assert(a.batch == 0 || b.length == reach);
        cut += (int64_t)a.batch * (a.length - b.length);
    } while (a.batch > 0);
    return cut;
}

START_TEST(trimmed_batches_end_with_their_last_target)
{
    static const struct { int32_t kind, form; } cases[] = {
        { MM_ROW_TEXT, MM_ROWS_PAD }, { MM_ROW_TEXT, MM_ROWS_PAD3 },       { MM_ROW_CHAT, MM_ROWS_PAD },
        { MM_ROW_CHAT, MM_ROWS_PAD3 }, { MM_ROW_PREFERENCE, MM_ROWS_PAD }, { MM_ROW_TEXT, MM_ROWS_PACK },
    };
    static const char letters[] = "a fox and a hare, a hen and a goose";
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        char rows[8000] = "";
        for (int i = 0; i < 11; i++) { /* the fourth has no text: alone in its batch it leaves nothing to learn */
            char text[64], *end = rows + strlen(rows);
            size_t room = sizeof rows - (size_t)(end - rows);
            snprintf(text, sizeof text, "%.*s", i == 3 ? 0 : 3 * i + 1, letters);
            if (cases[c].kind == MM_ROW_TEXT)
                snprintf(end, room, "{\"text\": \"%s\"}\n", text);
            else if (cases[c].kind == MM_ROW_PREFERENCE)
                snprintf(end, room, pair, i, i, i, i);
            else
                snprintf(end, room,
                         "{\"conversations\": [{\"role\": \"user\", \"content\": \"q\"}, {\"role\": \"assistant\", "
                         "\"content\": \"%s\"}]}\n",
                         text);
        }
        for (int32_t batch = 1; batch <= 4; batch += 3) {
            mm_loader_options o = options_of(cases[c].kind, cases[c].form, batch, 140, "minimind2");
            use(rows, &o);
            mm_loader *trimmed = NULL;
            o.trim = 1;
            ck_ok(mm_loader_create(dataset, tokenizer, &o, &trimmed));
            ck_assert_int_eq(mm_loader_length(trimmed), mm_loader_length(loader));
            int64_t cut = check_trimmed(loader, trimmed, cases[c].form == MM_ROWS_PACK);
            ck_assert(cases[c].form == MM_ROWS_PACK ? cut == 0 : cut > 0);
            mm_loader_free(trimmed);
        }
    }
}
END_TEST

static const char prompts[] =
    "{\"conversations\": [{\"role\": \"user\", \"content\": \"hi\"}, {\"role\": \"assistant\", \"content\": \"yes\\u0000!\"}]}\n"
    "{\"conversations\": [{\"role\": \"system\", \"content\": \"s\"}, {\"role\": \"user\", \"content\": \"why\"}]}\n"
    "{\"question\": \"6 * 700?\", \"answer\": \"so it is\\n#### 4,200 \"}\n"
    "{\"conversations\": [{\"role\": \"user\", \"content\": \"x\"}, {\"role\": \"assistant\", \"content\": \"\"}]}\n";

START_TEST(prompts_end_where_the_answer_begins)
{
    mm_prompts p = MM_PROMPTS_INIT;
    mm_loader_options o = options_of(MM_ROW_PROMPT, MM_ROWS_PAD, 3, 300, "minimind3");
    use(prompts, &o);
    ck_ok(mm_loader_next_prompts(loader, &p));
    ck_assert_int_eq(p.count, 3);
    ck_assert_int_eq(p.at_end, 0);
    ck_assert_str_eq(text_of(p.ids[0], p.lengths[0]),
                     "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n");
    ck_assert_uint_eq(p.answer_lengths[0], 5);
    ck_assert_mem_eq(p.answers[0], "yes\0!", 6);
    ck_assert_str_eq(text_of(p.ids[1], p.lengths[1]), "<|im_start|>system\ns<|im_end|>\n<|im_start|>user\nwhy<|im_end|>\n"
                                                      "<|im_start|>assistant\n<think>\n\n</think>\n\n");
    ck_assert_ptr_null(p.answers[1]);
    ck_assert_str_eq(text_of(p.ids[2], p.lengths[2]),
                     "<|im_start|>user\n6 * 700?<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n");
    ck_assert_str_eq(p.answers[2], "4200");
    ck_assert_uint_eq(p.answer_lengths[2], 4);
    ck_assert_int_eq(p.rows[2], 2);
    ck_ok(mm_loader_next_prompts(loader, &p));
    ck_assert_int_eq(p.count, 1);
    ck_assert_str_eq(p.answers[0], "");
    ck_ok(mm_loader_next_prompts(loader, &p));
    ck_assert_int_eq(p.count, 0);
    ck_assert_int_eq(p.at_end, 1);
    ck_ok(mm_loader_next_prompts(loader, &p));
    ck_assert_int_eq(p.count, 3);
}
END_TEST

START_TEST(prompts_may_think_and_keep_their_end_when_cut)
{
    mm_prompts p = MM_PROMPTS_INIT;
    mm_loader_options o = options_of(MM_ROW_PROMPT, MM_ROWS_PAD, 1, 20, "minimind3");
    o.thinking = MM_THINK_ON;
    use(prompts, &o);
    ck_ok(mm_loader_next_prompts(loader, &p));
    ck_assert_int_eq(p.lengths[0], 20);
    ck_assert_str_eq(text_of(p.ids[0], 20), "\n<|im_start|>assistant\n<think>\n");
}
END_TEST

START_TEST(prompts_of_minimind2_take_roles_from_the_position)
{
    mm_prompts p = MM_PROMPTS_INIT;
    mm_loader_options o = options_of(MM_ROW_PROMPT, MM_ROWS_PAD, 1, 200, "minimind2");
    use("{\"conversations\": [{\"role\": \"x\", \"content\": \"a\"}, {\"content\": \"b\"}]}\n", &o);
    ck_ok(mm_loader_next_prompts(loader, &p));
    ck_assert_str_eq(p.answers[0], "b");
    ck_assert_ptr_nonnull(strstr(text_of(p.ids[0], p.lengths[0]), "user\na<|im_end|>\n<|im_start|>assistant\n"));
}
END_TEST

START_TEST(a_long_answer_is_not_kept_for_ever)
{
    enum { LONG = 5 << 20 };
    char *rows = malloc(LONG + 1024);
    size_t size = (size_t)sprintf(rows, "{\"question\": \"1?\", \"answer\": \"");
    memset(rows + size, 'x', LONG);
    strcpy(rows + size + LONG, "\"}\n{\"question\": \"2?\", \"answer\": \"y\"}\n");
    mm_memory_usage before = MM_MEMORY_USAGE_INIT, after = MM_MEMORY_USAGE_INIT;
    mm_row_report report = MM_ROW_REPORT_INIT;
    mm_loader_options o = options_of(MM_ROW_PROMPT, MM_ROWS_PAD, 1, 200, "minimind2");
    use(rows, &o);
    ck_ok(mm_loader_check_row(loader, 1, &report));
    ck_ok(mm_memory_get_usage(&before));
    ck_ok(mm_loader_check_row(loader, 0, &report));
    ck_ok(mm_loader_check_row(loader, 1, &report));
    ck_ok(mm_memory_get_usage(&after));
    ck_assert_uint_le(after.current, before.current + LONG / 8);
    free(rows);
}
END_TEST

static mm_row_report report_of(const char *row, const mm_loader_options *o)
{
    mm_row_report report = MM_ROW_REPORT_INIT;
    use(row, o);
    ck_ok(mm_loader_check_row(loader, 0, &report));
    return report;
}

START_TEST(a_report_tells_what_is_remarkable_about_a_row)
{
    static const struct {
        const char *roles, *template_name;
        int uneven;
    } cases[] = {
        { "ua", "minillm", 0 },   { "uaua", "minillm", 0 },  { "sua", "minillm", 0 }, { "uatta", "minillm", 0 },
        { "uau", "minillm", 0 },  { "uua", "minillm", 1 },   { "uaa", "minillm", 1 }, { "usa", "minillm", 1 },
        { "ssua", "minillm", 1 }, { "aua", "minillm", 1 },   { "uta", "minillm", 1 }, { "sua", "minimind2", 1 },
        { "ua", "minimind2", 0 }, { "uata", "minimind2", 1 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char row[1000] = "{\"conversations\": [";
        for (const char *r = cases[i].roles; *r; r++)
            snprintf(row + strlen(row), sizeof row - strlen(row), "%s{\"role\": \"%s\", \"content\": \"c\"}",
                     r == cases[i].roles ? "" : ", ",
                     *r == 'u' ? "user" : *r == 'a' ? "assistant" : *r == 's' ? "system" : "tool");
        strcat(row, "]}");
        mm_loader_options o = options_of(MM_ROW_CHAT, MM_ROWS_PAD, 1, 300, cases[i].template_name);
        mm_row_report report = report_of(row, &o);
        ck_assert_msg(report.remarks == (cases[i].uneven ? MM_REMARK_ROLES : 0), "%s: %d", cases[i].roles,
                      (int)report.remarks);
    }
    mm_loader_options o = options_of(MM_ROW_CHAT, MM_ROWS_PAD, 1, 300, "minimind2");
    mm_row_report report = report_of(talk, &o);
    ck_assert_int_eq(report.learnt, 3 + 2 + 2 + 2);
    int64_t whole = report.tokens;
    o.max_length = 40;
    report = report_of(talk, &o);
    ck_assert_int_eq(report.tokens, whole);
    ck_assert_int_eq(report.remarks, MM_REMARK_CUT | MM_REMARK_UNLEARNT);
    o = options_of(MM_ROW_TEXT, MM_ROWS_PAD3, 1, 6, NULL);
    report = report_of("{\"text\": \"abcd\"}", &o);
    ck_assert_int_eq(report.tokens, 6);
    ck_assert_int_eq(report.learnt, 5);
    ck_assert_int_eq(report.remarks, 0);
    report = report_of("{\"text\": \"abcde\"}", &o);
    ck_assert_int_eq(report.remarks, MM_REMARK_CUT);
    o.form = MM_ROWS_PACK;
    report = report_of("{\"text\": \"abcdefgh<|endoftext|>\"}", &o);
    ck_assert_int_eq(report.tokens, 11);
    ck_assert_int_eq(report.learnt, 9);
    ck_assert_int_eq(report.remarks, 0);
    o = options_of(MM_ROW_PROMPT, MM_ROWS_PAD, 1, 300, "minimind3");
    ck_assert_int_eq(report_of(prompts, &o).remarks, 0);
    ck_assert_int_eq(report_of(strchr(prompts, '\n') + 1, &o).remarks, MM_REMARK_UNLEARNT);
}
END_TEST

START_TEST(rows_of_another_shape_are_refused_by_file_and_line)
{
    static const struct {
        int32_t kind;
        const char *template_name, *row, *words;
    } cases[] = {
        { MM_ROW_CHAT, "minillm", "{\"text\": \"a\"}", "\"conversations\" is absent" },
        { MM_ROW_CHAT, "minillm", "{\"conversations\": 5}", "\"conversations\" is an integer" },
        { MM_ROW_CHAT, "minillm", "{\"conversations\": []}", "\"conversations\" has no messages" },
        { MM_ROW_CHAT, "minimind2", "{\"conversations\": []}", "\"conversations\" has no messages" },
        { MM_ROW_CHAT, "minillm", "{\"conversations\": [5]}", "messages[0] is an integer" },
        { MM_ROW_CHAT, "minimind2", "{\"conversations\": [\"x\"]}", "messages[0] is a string" },
        { MM_ROW_CHAT, "minillm", "{\"conversations\": [{\"content\": \"a\"}]}", "\"role\" is absent" },
        { MM_ROW_CHAT, "minillm", "{\"conversations\": [{\"role\": 3, \"content\": \"a\"}]}", "\"role\" is an integer" },
        { MM_ROW_CHAT, "minimind2", "{\"conversations\": [{\"role\": \"user\"}]}",
          "messages[0] (user): \"content\" is absent" },
        { MM_ROW_CHAT, "minimind2", "{\"conversations\": [{\"role\": \"user\", \"content\": 5}]}",
          "\"content\" is an integer" },
        { MM_ROW_CHAT, "minimind3", "{\"conversations\": [{\"role\": \"user\", \"content\": \"a\", \"tool_calls\": \"[\"}]}",
          "messages[0]: tool_calls" },
        { MM_ROW_CHAT, "minimind3", "{\"conversations\": [{\"role\": \"system\", \"content\": \"a\", \"tools\": \"7\"}]}",
          "tools: it is an integer, not a list" },
        { MM_ROW_PREFERENCE, "minillm", "{\"chosen\": [{\"role\": \"user\", \"content\": \"a\"}]}", "\"rejected\" is absent" },
        { MM_ROW_PREFERENCE, "minillm",
          "{\"chosen\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"assistant\", \"content\": \"x\"}], "
          "\"rejected\": [{\"role\": \"user\", \"content\": \"b\"}, {\"role\": \"assistant\", \"content\": \"y\"}]}",
          "different prompts" },
        { MM_ROW_PREFERENCE, "minillm",
          "{\"chosen\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"assistant\", \"content\": \"x\"}], "
          "\"rejected\": [{\"role\": \"user\", \"content\": \"a\"}]}",
          "different prompts" },
        { MM_ROW_PREFERENCE, "minillm", "{\"prompt\": \"a\", \"preferred\": \"b\", \"other\": \"c\"}", "\"chosen\" is absent" },
        { MM_ROW_PROMPT, "minillm", "{\"question\": \"a\"}", "\"answer\" is absent" },
        { MM_ROW_PROMPT, "minillm", "{\"question\": 5, \"answer\": \"a\"}", "\"question\" is an integer" },
        { MM_ROW_PROMPT, "minillm", "{}", "\"conversations\" is absent" },
        { MM_ROW_PROMPT, "minimind2", "{\"conversations\": [{\"role\": \"user\", \"content\": null}]}",
          "\"content\" is null" },
        { MM_ROW_TEXT, NULL, "{\"text\": [\"a\"]}", "\"text\" is an array" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int32_t skip = 0; skip < 2; skip++) {
            mm_loader_options o = options_of(cases[i].kind, MM_ROWS_PAD, 2, 100, cases[i].template_name);
            mm_batch b = MM_BATCH_INIT;
            mm_prompts p = MM_PROMPTS_INIT;
            mm_row_report report = MM_ROW_REPORT_INIT;
            char rows[1000];
            bool prompt = cases[i].kind == MM_ROW_PROMPT;
            o.skip_bad_lines = skip;
            snprintf(rows, sizeof rows, "\n%s\n", cases[i].row);
            use(rows, &o);
            mm_status status = prompt ? mm_loader_next_prompts(loader, &p) : mm_loader_next(loader, &b);
            if (skip) {
                mm_loader_stats stats = MM_LOADER_STATS_INIT;
                ck_status(status, MM_OK);
                ck_assert_int_eq(b.batch + p.count, 0);
                ck_ok(mm_loader_get_stats(loader, &stats));
                ck_assert_int_eq(stats.bad_lines, 1);
                ck_assert_int_eq(stats.rows, 0);
            } else {
                ck_status(status, MM_ERR_FORMAT);
                ck_error_mentions("rows.jsonl:2: ");
                ck_error_mentions(cases[i].words);
            }
            ck_status(mm_loader_check_row(loader, 0, &report), MM_ERR_FORMAT);
            ck_error_mentions("rows.jsonl:2: ");
        }
}
END_TEST

START_TEST(options_that_contradict_each_other_are_refused)
{
    mm_loader_options wrong[] = {
        options_of(MM_ROW_PREFERENCE, MM_ROWS_PAD3, 1, 9, NULL), options_of(MM_ROW_PREFERENCE, MM_ROWS_PACK, 1, 9, NULL),
        options_of(MM_ROW_PROMPT, MM_ROWS_PACK, 1, 9, NULL),     options_of(4, MM_ROWS_PAD, 1, 9, NULL),
        options_of(-1, MM_ROWS_PAD, 1, 9, NULL),                 options_of(MM_ROW_CHAT, MM_ROWS_PAD, 1, 9, "chatml"),
        options_of(MM_ROW_CHAT, MM_ROWS_PAD, 1, 9, NULL),        options_of(MM_ROW_CHAT, MM_ROWS_PAD, 1, 9, NULL),
        options_of(MM_ROW_CHAT, MM_ROWS_PAD, 1, 9, NULL),        options_of(MM_ROW_CHAT, MM_ROWS_PAD, 1, 9, NULL),
        options_of(MM_ROW_CHAT, MM_ROWS_PAD, 1, 9, NULL),        options_of(MM_ROW_CHAT, MM_ROWS_PAD, 1, 9, NULL),
    };
    wrong[6].world = 0;
    wrong[7].rank = 1;
    wrong[8].rank = -1;
    wrong[9].workers = -1;
    wrong[10].thinking = 3;
    wrong[11].strip_empty_think = 2;
    mm_loader_options good = options_of(MM_ROW_CHAT, MM_ROWS_PAD, 1, 9, NULL);
    use(talk, &good);
    mm_loader *other = NULL;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        ck_status(mm_loader_create(dataset, tokenizer, &wrong[i], &other), MM_ERR_ARG);
    ck_assert_ptr_null(other);
    mm_prompts p = MM_PROMPTS_INIT;
    mm_batch b = MM_BATCH_INIT;
    mm_row_report report = MM_ROW_REPORT_INIT;
    ck_status(mm_loader_next_prompts(loader, &p), MM_ERR_STATE);
    ck_status(mm_loader_next_prompts(NULL, &p), MM_ERR_ARG);
    ck_status(mm_loader_check_row(loader, 1, &report), MM_ERR_ARG);
    ck_status(mm_loader_check_row(loader, -1, &report), MM_ERR_ARG);
    ck_status(mm_loader_check_row(loader, 0, NULL), MM_ERR_ARG);
    ck_status(mm_loader_check_row(NULL, 0, &report), MM_ERR_ARG);
    ck_status(mm_loader_get_stats(NULL, NULL), MM_ERR_ARG);
    ck_status(mm_loader_get_stats(loader, NULL), MM_ERR_ARG);
    good = options_of(MM_ROW_PROMPT, MM_ROWS_PAD, 1, 90, NULL);
    use(prompts, &good);
    ck_status(mm_loader_next(loader, &b), MM_ERR_STATE);
    ck_status(mm_loader_next_prompts(loader, NULL), MM_ERR_ARG);
}
END_TEST

/* A byte is a token there, and the template's words are many of them. */
START_TEST(a_tokenizer_without_a_template_takes_the_one_that_is_named)
{
    static const char *const names[] = { NULL, "minimind2", "minimind3", "minillm" };
    static const char *const special[] = { "<s>" };
    mm_tokenizer_train_options plain = MM_TOKENIZER_TRAIN_OPTIONS_INIT;
    mm_tokenizer *without = NULL;
    plain.next_text = no_text;
    plain.special_tokens = special;
    plain.special_count = 1;
    ck_ok(mm_tokenizer_train(&plain, &without));
    mm_tokenizer_free(tokenizer);
    tokenizer = without;
    mm_loader_options o = options_of(MM_ROW_TEXT, MM_ROWS_PAD3, 1, 200, NULL);
    use(talk, &o);
    for (int i = 0; i < 4; i++) {
        mm_loader *other = NULL;
        mm_batch b = MM_BATCH_INIT;
        o = options_of(MM_ROW_CHAT, MM_ROWS_PAD3, 1, 400, names[i]);
        o.strip_empty_think = 1;
        ck_status(mm_loader_create(dataset, tokenizer, &o, &other), i == 0 ? MM_ERR_STATE : MM_OK);
        if (i == 0) {
            ck_error_mentions("brought no chat template");
            ck_assert_ptr_null(other);
            continue;
        }
        ck_ok(mm_loader_next(other, &b));
        ck_assert_str_eq(learnt_of(&b, 0), "yes<|im_end|>\n|no<|im_end|>\n|");
        mm_loader_free(other);
    }
    mm_tokenizer *unknown = NULL;
    mm_loader *other = NULL;
    const char *directory = scratch_directory();
    ck_ok(mm_tokenizer_save(tokenizer, directory));
    put_file(directory, "chat_template.jinja", "{{ x }}", 7);
    ck_ok(mm_tokenizer_load(directory, &unknown));
    o.template_name = NULL;
    ck_status(mm_loader_create(dataset, unknown, &o, &other), MM_ERR_UNSUPPORTED);
    ck_error_mentions("not one that this library knows");
    o.kind = MM_ROW_TEXT; /* which needs none */
    ck_ok(mm_loader_create(dataset, unknown, &o, &other));
    mm_loader_free(other);
    mm_tokenizer_free(unknown);
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("data/kinds");
    TCase *tc = tcase_create("kinds");
    tcase_add_checked_fixture(tc, start, end);
    tcase_add_test(tc, of_a_conversation_only_the_answers_are_learnt);
    tcase_add_test(tc, packed_conversations_keep_their_marks);
    tcase_add_test(tc, of_preferences_the_chosen_half_comes_first);
    tcase_add_test(tc, trimmed_batches_end_with_their_last_target);
    tcase_add_test(tc, prompts_end_where_the_answer_begins);
    tcase_add_test(tc, prompts_may_think_and_keep_their_end_when_cut);
    tcase_add_test(tc, prompts_of_minimind2_take_roles_from_the_position);
    tcase_add_test(tc, a_long_answer_is_not_kept_for_ever);
    tcase_add_test(tc, a_report_tells_what_is_remarkable_about_a_row);
    tcase_add_test(tc, rows_of_another_shape_are_refused_by_file_and_line);
    tcase_add_test(tc, options_that_contradict_each_other_are_refused);
    tcase_add_test(tc, a_tokenizer_without_a_template_takes_the_one_that_is_named);
    suite_add_tcase(suite, tc);
    return suite;
}

int main(void)
{
    return run_suite(make_suite());
}
