/* Evaluations: their numbers are computed here a second time, from the logits of one sequence at a time. */
#define _POSIX_C_SOURCE 200809L
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../data/texts.h"
#include "base/files.h"
#include "base/memory.h"
#include "tiny.h"
#include "train/report.h"

#define SUM_TOLERANCE 2e-6 /* relative; of float32 logits, whose batches have other shapes here and there */

enum { VOCAB = 260, LENGTH = 24 };

static mm_model *model;
static mm_tokenizer *tokenizer;

static void start(void)
{
    model = tiny_model(7);
    tokenizer = byte_tokenizer();
}

static void end(void)
{
    mm_model_free(model);
    mm_tokenizer_free(tokenizer);
}

static mm_context *context_for(int32_t outputs, int32_t batch, int32_t length, int32_t room, int32_t threads)
{
    mm_context *context = NULL;
    mm_context_options o = MM_CONTEXT_OPTIONS_INIT;
    o.max_batch = batch;
    o.max_length = length;
    o.max_context = room;
    o.outputs = outputs;
    o.threads = threads;
    ck_ok(mm_context_create(model, &o, &context));
    return context;
}

/* log p(ids[t + 1] | ids[0..t]) for every t, by softmax in double precision, of this one sequence alone. */
static void logprobs_of(double *out, const int32_t *ids, int32_t count)
{
    mm_context *context = context_for(MM_OUT_LOGITS, 1, count - 1, 0, 1);
    mm_batch batch = MM_BATCH_INIT;
    mm_output output = MM_OUTPUT_INIT;
    batch.ids = ids;
    batch.batch = 1;
    batch.length = count - 1;
    ck_ok(mm_forward(context, &batch, &output));
    for (int32_t t = 0; t + 1 < count; t++) {
        const float *logits = (const float *)output.logits.data + (int64_t)t * VOCAB;
        double sum = 0;
        for (int v = 0; v < VOCAB; v++)
            sum += exp((double)logits[v]);
        out[t] = (double)logits[ids[t + 1]] - log(sum);
    }
    mm_context_free(context);
}

/* Bytes of this tokenizer's ids are those of the text: every byte is one id. */
static int32_t encode(int32_t *ids, const char *text)
{
    size_t count;
    ck_ok(mm_encode(tokenizer, text, strlen(text), MM_SPLIT_NONE, ids, 1000, &count));
    ck_assert_uint_eq(count, strlen(text));
    return (int32_t)count;
}

/* A file of rows in a new directory; static until the next call. */
static const char *put_text(const char *text)
{
    static char path[512];
    snprintf(path, sizeof path, "%s/rows.jsonl", scratch_directory());
    ck_ok(mmi_write_file(path, text, strlen(text)));
    return path;
}

static mm_dataset *open_rows(const char *text)
{
    mm_dataset *dataset = NULL;
    ck_ok(mm_dataset_open(put_text(text), &dataset));
    return dataset;
}

/* --- Loss --- */

static mm_loader *rank_loader(mm_dataset *dataset, int32_t form, int32_t skip_bad_lines, int32_t rank, int32_t world)
{
    mm_loader *loader = NULL;
    mm_loader_options o = MM_LOADER_OPTIONS_INIT;
    o.batch = 3;
    o.max_length = LENGTH;
    o.form = form;
    o.shuffle = 0;
    o.bos_id = 1;
    o.eos_id = 2;
    o.skip_bad_lines = skip_bad_lines;
    o.rank = rank;
    o.world = world;
    ck_ok(mm_loader_create(dataset, tokenizer, &o, &loader));
    return loader;
}

static mm_loader *text_loader(mm_dataset *dataset, int32_t form, int32_t skip_bad_lines)
{
    return rank_loader(dataset, form, skip_bad_lines, 0, 1);
}

#define TEXTS                                                                                                          \
    "{\"text\": \"a cat sat on a mat\"}\n{\"text\": \"the dog\"}\n{\"text\": \"it was a very long day for "            \
    "everybody\"}\n"                                                                                                   \
    "{\"text\": \"no\"}\n{\"text\": \"and so they went home\"}\n"

START_TEST(the_loss_of_a_loader_is_that_of_its_rows_one_by_one)
{
    static const char *const texts[] = { "a cat sat on a mat", "the dog", "it was a very long day for everybody", "no",
                                         "and so they went home" };
    double sum = 0, logprobs[LENGTH];
    int64_t tokens = 0, bytes = 0;
    for (int i = 0; i < 5; i++) { /* MM_ROWS_PAD3: bos, the text, eos; cut to LENGTH */
        int32_t ids[1002] = { 1 };
        int32_t count = encode(ids + 1, texts[i]);
        count = count > LENGTH - 2 ? LENGTH - 2 : count;
        ids[1 + count] = 2;
        logprobs_of(logprobs, ids, count + 2);
        for (int32_t t = 0; t < count + 1; t++)
            sum -= logprobs[t];
        tokens += count + 1;
        bytes += count;
    }
    mm_dataset *dataset = open_rows(TEXTS);
    mm_loader *loader = text_loader(dataset, MM_ROWS_PAD3, 0);
    mm_batch batch = MM_BATCH_INIT;
    ck_ok(mm_loader_next(loader, &batch)); /* in the middle of an epoch */
    mm_loader_position before = MM_LOADER_POSITION_INIT, after = MM_LOADER_POSITION_INIT;
    ck_ok(mm_loader_tell(loader, &before));
    mm_evaluation first = MM_EVALUATION_INIT;
    for (int32_t threads = 1; threads <= 3; threads++) {
        mm_context *context = context_for(MM_OUT_LOSS, 3, LENGTH, 0, threads);
        mm_evaluation e = MM_EVALUATION_INIT;
        ck_ok(mm_evaluate_loss(context, loader, 0, &e));
        ck_assert_double_eq_tol(e.loss_sum, sum, SUM_TOLERANCE * sum);
        ck_assert_int_eq(e.tokens, tokens);
        ck_assert_int_eq(e.bytes, bytes);
        ck_assert_int_eq(e.batches, 2);
        ck_assert_double_eq_tol(e.perplexity, exp(sum / (double)tokens), 1e-4);
        ck_assert_double_eq_tol(e.bits_per_byte, sum / log(2) / (double)bytes, 1e-5);
        if (threads == 1)
            first = e;
        ck_assert_mem_eq(&e, &first, sizeof e);
        ck_ok(mm_loader_tell(loader, &after));
        ck_assert_mem_eq(&before, &after, sizeof before);
        mm_context_free(context);
    }
    mm_loader_free(loader);
    mm_dataset_free(dataset);
}
END_TEST

START_TEST(as_many_batches_are_evaluated_as_were_asked_for)
{
    mm_dataset *dataset = open_rows(TEXTS);
    mm_loader *loader = text_loader(dataset, MM_ROWS_PACK, 0);
    mm_context *context = context_for(MM_OUT_LOSS, 3, LENGTH, 0, 1);
    mm_evaluation one = MM_EVALUATION_INIT, all = MM_EVALUATION_INIT, again = MM_EVALUATION_INIT;
    ck_ok(mm_evaluate_loss(context, loader, 1, &one));
    ck_ok(mm_evaluate_loss(context, loader, 0, &all));
    ck_ok(mm_evaluate_loss(context, loader, 1, &again));
    ck_assert_int_eq(one.batches, 1);
    ck_assert_int_eq(all.batches, 2);
    ck_assert(all.tokens > one.tokens);
    ck_assert_mem_eq(&one, &again, sizeof one);
    mm_context_free(context);
    mm_loader_free(loader);
    mm_dataset_free(dataset);
}
END_TEST

START_TEST(a_context_that_trains_keeps_its_gradients)
{
    mm_dataset *dataset = open_rows(TEXTS);
    mm_loader *loader = text_loader(dataset, MM_ROWS_PAD3, 0);
    mm_context_options o = MM_CONTEXT_OPTIONS_INIT;
    o.mode = MM_TRAIN;
    o.max_batch = 3;
    o.max_length = LENGTH;
    o.threads = 1;
    mm_context *context = NULL;
    ck_ok(mm_context_create(model, &o, &context));
    mm_batch batch = MM_BATCH_INIT;
    mm_output output = MM_OUTPUT_INIT;
    ck_ok(mm_loader_next(loader, &batch));
    ck_ok(mm_forward(context, &batch, &output));
    ck_ok(mm_backward(context, NULL));
    double before, after;
    mm_evaluation e = MM_EVALUATION_INIT;
    ck_ok(mm_grad_norm(context, &before));
    ck_ok(mm_evaluate_loss(context, loader, 0, &e));
    ck_ok(mm_grad_norm(context, &after));
    ck_assert(before == after && before > 0);
    mm_context_free(context);
    mm_loader_free(loader);
    mm_dataset_free(dataset);
}
END_TEST

/* --- A text --- */

/* Each target once: that of the first window from 1 on, of window w those behind its overlap. */
static double text_loss(const int32_t *ids, int32_t count, int32_t T, int32_t overlap)
{
    double sum = 0, logprobs[1000];
    for (int32_t next = 1; next < count;) { /* the first target that was not counted yet */
        int32_t begin = next == 1 ? 0 : next - overlap - 1;
        int32_t until = begin + T + 1 < count ? begin + T + 1 : count;
        logprobs_of(logprobs, ids + begin, until - begin);
        for (int32_t i = next; i < until; i++)
            sum -= logprobs[i - 1 - begin];
        next = until;
    }
    return sum;
}

START_TEST(every_token_of_a_text_is_foretold_once_whatever_the_windows)
{
    static const char text[] =
        "Once upon a time there was a model so small that it fitted into one file, and it was content.";
    static const struct {
        int32_t length, overlap, batch, bos;
    } cases[] = { { 10, 0, 1, -1 }, { 10, 0, 4, -1 },  { 10, 4, 3, -1 },  { 7, 6, 2, -1 }, { 92, 0, 2, -1 },
                  { 93, 5, 2, -1 }, { 100, 9, 2, -1 }, { 10, 3, 100, 1 }, { 1, 0, 8, -1 }, { 94, 93, 1, 1 } };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int32_t ids[1001] = { 1 };
        bool framed = cases[i].bos >= 0;
        int32_t count = encode(ids + framed, text) + framed;
        double sum = text_loss(ids, count, cases[i].length, cases[i].overlap);
        mm_evaluation first = MM_EVALUATION_INIT;
        for (int32_t threads = 1; threads <= 2; threads++) {
            mm_context *context = context_for(MM_OUT_LOGPROBS, cases[i].batch, cases[i].length, 0, threads);
            mm_evaluate_text_options o = MM_EVALUATE_TEXT_OPTIONS_INIT;
            mm_evaluation e = MM_EVALUATION_INIT;
            o.overlap = cases[i].overlap;
            o.bos_id = cases[i].bos;
            ck_ok(mm_evaluate_text(context, tokenizer, text, sizeof text - 1, &o, &e));
            ck_assert_double_eq_tol(e.loss_sum, sum, SUM_TOLERANCE * sum);
            ck_assert_int_eq(e.tokens, count - 1);
            ck_assert_int_eq(e.bytes, count - 1);
            first = threads == 1 ? e : first;
            ck_assert_mem_eq(&e, &first, sizeof e);
            mm_context_free(context);
        }
    }
}
END_TEST

/* --- Choices --- */

#define QUESTIONS                                                                                                      \
    "{\"prompt\": \"The sky is\", \"choices\": [\" blue\", \" a\", \" made of cheese\"], \"answer\": 0}\n"             \
    "{\"prompt\": \"One and one is\", \"choices\": [\" two\"], \"answer\": 0}\n"                                       \
    "{\"prompt\": \"x\", \"choices\": [\"1\", \"22\", \"333\", \"4444\", \"55555\", \"666666\"], \"answer\": 3}\n"     \
    "{\"prompt\": \"This prompt is too long for a context of so few tokens\", \"choices\": [\" yes\", \" no\"], "      \
    "\"answer\": 0}\n"

typedef struct told {
    int rows;
    double sums[4][6], per_byte[4][6];
    mm_choice last;
    int64_t stop_at;
} told;

static int32_t keep_choice(void *user, const mm_choice *choice)
{
    told *t = user;
    ck_assert_int_eq(choice->row, t->rows);
    for (int32_t i = 0; i < choice->count; i++) {
        t->sums[t->rows][i] = choice->sums[i];
        t->per_byte[t->rows][i] = choice->per_byte[i];
    }
    t->last = *choice;
    t->rows++;
    return choice->row == t->stop_at;
}

START_TEST(choices_are_the_likeliest_endings_computed_one_by_one)
{
    static const struct {
        const char *prompt, *choices[6];
        int count, answer;
    } rows[] = {
        { "The sky is", { " blue", " a", " made of cheese" }, 3, 0 },
        { "One and one is", { " two" }, 1, 0 },
        { "x", { "1", "22", "333", "4444", "55555", "666666" }, 6, 3 },
        { "This prompt is too long for a context of so few tokens", { " yes", " no" }, 2, 0 },
    };
    double sums[4][6], logprobs[100];
    int64_t correct = 0, correct_per_byte = 0;
    for (int r = 0; r < 4; r++) {
        int best = 0, best_per_byte = 0;
        for (int c = 0; c < rows[r].count; c++) {
            int32_t ids[2000];
            int32_t before = encode(ids, rows[r].prompt), after = encode(ids + before, rows[r].choices[c]);
            int32_t drop = before + after > LENGTH + 1 ? before + after - (LENGTH + 1) : 0;
            logprobs_of(logprobs, ids + drop, before + after - drop);
            sums[r][c] = 0;
            for (int32_t i = 0; i < after; i++)
                sums[r][c] += logprobs[before - drop - 1 + i];
            best = sums[r][c] > sums[r][best] ? c : best;
            best_per_byte =
                sums[r][c] / after > sums[r][best_per_byte] / (double)strlen(rows[r].choices[best_per_byte]) ?
                    c :
                    best_per_byte;
        }
        correct += best == rows[r].answer;
        correct_per_byte += best_per_byte == rows[r].answer;
    }
    ck_assert(correct != 2 && correct_per_byte != 2); /* of 4: as many right ones as wrong ones */
    mm_dataset *dataset = open_rows(QUESTIONS);
    for (int32_t batch = 1; batch <= 20; batch += batch < 5 ? 1 : 15) {
        mm_context *context = context_for(MM_OUT_LOGPROBS, batch, LENGTH, 0, 1 + batch % 3);
        told t = { .stop_at = -1 };
        mm_choices_options o = MM_CHOICES_OPTIONS_INIT;
        mm_choices_result result = MM_CHOICES_RESULT_INIT;
        o.on_row = keep_choice;
        o.user = &t;
        ck_ok(mm_evaluate_choices(context, tokenizer, dataset, &o, &result));
        ck_assert_int_eq(t.rows, 4);
        for (int r = 0; r < 4; r++)
            for (int c = 0; c < rows[r].count; c++) {
                double tolerance = -SUM_TOLERANCE * sums[r][c];
                ck_assert_double_eq_tol(t.sums[r][c], sums[r][c], tolerance);
                ck_assert_double_eq_tol(t.per_byte[r][c], sums[r][c] / (double)strlen(rows[r].choices[c]), tolerance);
            }
        ck_assert_int_eq(result.rows, 4);
        ck_assert_int_eq(result.correct, correct);
        ck_assert_int_eq(result.correct_per_byte, correct_per_byte);
        ck_assert(result.accuracy == (double)correct / 4);
        ck_assert(result.accuracy_per_byte == (double)correct_per_byte / 4);
        ck_assert_int_eq(result.cut, 2);
        mm_context_free(context);
    }
    mm_dataset_free(dataset);
}
END_TEST

START_TEST(threads_do_not_change_a_bit_of_the_choices)
{
    mm_dataset *dataset = open_rows(QUESTIONS);
    told first = { .stop_at = -1 };
    for (int32_t threads = 1; threads <= 4; threads++) {
        mm_context *context = context_for(MM_OUT_LOGPROBS, 4, LENGTH, 0, threads);
        told t = { .stop_at = -1 };
        mm_choices_options o = MM_CHOICES_OPTIONS_INIT;
        mm_choices_result result = MM_CHOICES_RESULT_INIT;
        o.on_row = keep_choice;
        o.user = threads == 1 ? &first : &t;
        ck_ok(mm_evaluate_choices(context, tokenizer, dataset, &o, &result));
        if (threads > 1)
            ck_assert_mem_eq(t.sums, first.sums, sizeof t.sums);
        mm_context_free(context);
    }
    mm_dataset_free(dataset);
}
END_TEST

/* Its context, which on_row runs itself, over all that the rows' pass left there. */
typedef struct busy_told {
    told all; /* first: keep_choice() takes it */
    mm_context *context;
} busy_told;

static int32_t forward_between(void *user, const mm_choice *choice)
{
    busy_told *busy = user;
    const int32_t ids[4 * LENGTH] = { 3, 1, 2 };
    mm_batch b = MM_BATCH_INIT;
    mm_output out = MM_OUTPUT_INIT;
    b.ids = b.targets = ids;
    b.batch = 4;
    b.length = LENGTH;
    ck_ok(mm_forward(busy->context, &b, &out));
    return keep_choice(&busy->all, choice);
}

START_TEST(choices_are_what_they_were_when_on_row_runs_the_context)
{
    mm_dataset *dataset = open_rows(QUESTIONS);
    mm_context *context = context_for(MM_OUT_LOGPROBS, 4, LENGTH, 0, 1);
    told quiet = { .stop_at = -1 };
    busy_told busy = { .all = { .stop_at = -1 }, .context = context };
    mm_choices_options o = MM_CHOICES_OPTIONS_INIT;
    mm_choices_result first = MM_CHOICES_RESULT_INIT, second = MM_CHOICES_RESULT_INIT;
    o.on_row = keep_choice;
    o.user = &quiet;
    ck_ok(mm_evaluate_choices(context, tokenizer, dataset, &o, &first));
    o.on_row = forward_between;
    o.user = &busy;
    ck_ok(mm_evaluate_choices(context, tokenizer, dataset, &o, &second));
    ck_assert_int_eq(busy.all.rows, 4);
    ck_assert_mem_eq(busy.all.sums, quiet.sums, sizeof quiet.sums);
    ck_assert_mem_eq(busy.all.per_byte, quiet.per_byte, sizeof quiet.per_byte);
    ck_assert_int_eq(second.correct, first.correct);
    mm_context_free(context);
    mm_dataset_free(dataset);
}
END_TEST

START_TEST(a_callback_or_a_limit_ends_the_questions)
{
    mm_dataset *dataset = open_rows(QUESTIONS);
    mm_context *context = context_for(MM_OUT_LOGPROBS, 2, LENGTH, 0, 1);
    told t = { .stop_at = 1 };
    mm_choices_options o = MM_CHOICES_OPTIONS_INIT;
    mm_choices_result result = MM_CHOICES_RESULT_INIT;
    o.on_row = keep_choice;
    o.user = &t;
    ck_status(mm_evaluate_choices(context, tokenizer, dataset, &o, &result), MM_ERR_CANCELLED);
    ck_assert_int_eq(t.rows, 2);
    ck_assert_int_eq(result.rows, 0); /* as it was */
    t = (told){ .stop_at = -1 };
    o.max_rows = 3;
    o.bos_id = 1;
    ck_ok(mm_evaluate_choices(context, tokenizer, dataset, &o, &result));
    ck_assert_int_eq(t.rows, 3);
    ck_assert_int_eq(result.rows, 3);
    mm_context_free(context);
    mm_dataset_free(dataset);
}
END_TEST

/* --- Prompts --- */

/* What the model answers to a prompt, a token at a time by the largest logit. */
static void answer_to(char *answer, const char *prompt, int tokens)
{
    int32_t ids[2000], made[100];
    int32_t count = encode(ids, prompt);
    size_t length;
    for (int i = 0; i < tokens; i++) {
        mm_context *context = context_for(MM_OUT_LAST_LOGITS, 1, count + i, 0, 1);
        mm_batch batch = MM_BATCH_INIT;
        mm_output output = MM_OUTPUT_INIT;
        batch.ids = ids;
        batch.batch = 1;
        batch.length = count + i;
        ck_ok(mm_forward(context, &batch, &output));
        const float *logits = output.last_logits.data;
        int best = 0;
        for (int v = 1; v < VOCAB; v++)
            best = logits[v] > logits[best] ? v : best;
        ids[count + i] = made[i] = best;
        mm_context_free(context);
    }
    ck_ok(mm_decode(tokenizer, made, (size_t)tokens, 1, answer, 400, &length));
    answer[length] = '\0';
}

typedef struct answers {
    int count;
    char text[8][500];
    int32_t passed[8];
    char missing[8][100];
    int64_t tokens[8];
} answers;

static int32_t keep_answer(void *user, const mm_prompt_answer *a)
{
    answers *all = user;
    ck_assert_int_eq(a->row, all->count);
    ck_assert_uint_eq(strlen(a->answer), a->answer_length);
    snprintf(all->text[all->count], sizeof all->text[0], "%s", a->answer);
    snprintf(all->missing[all->count], sizeof all->missing[0], "%s", a->missing ? a->missing : "");
    all->passed[all->count] = a->passed;
    all->tokens[all->count] = a->tokens;
    all->count++;
    return 0;
}

/* A row that expects the right answer and, if given, one string more. */
static void put_prompt(char *out, size_t size, const char *prompt, const char *answer, const char *more, int tokens)
{
    char escaped[900];
    size_t n = 0;
    for (const char *c = answer; *c; c++)
        if ((unsigned char)*c < ' ' || *c == '"' || *c == '\\' || *c == 0x7F)
            n += (size_t)snprintf(escaped + n, sizeof escaped - n, "\\u%04x", (unsigned char)*c);
        else
            escaped[n++] = *c;
    escaped[n] = '\0';
    snprintf(out, size, "{\"prompt\": \"%s\", \"expect\": [\"%s\"%s%s%s], \"max_new_tokens\": %d}\n", prompt, escaped,
             more ? ", \"" : "", more ? more : "", more ? "\"" : "", tokens);
}

START_TEST(prompts_pass_when_the_greedy_answer_holds_what_is_expected)
{
    static const char *const prompts[] = { "Hello", "What is your name?", "x", "Tell me something, please" };
    static const int tokens[] = { 8, 3, 12, 1 };
    char right[4][500], file[6000] = "";
    for (int i = 0; i < 4; i++) {
        char row[1500];
        answer_to(right[i], prompts[i], tokens[i]);
        put_prompt(row, sizeof row, prompts[i], right[i], i == 2 ? "never said" : NULL, tokens[i]);
        strcat(file, row);
    }
    mm_dataset *dataset = open_rows(file);
    for (int32_t batch = 1; batch <= 5; batch++) {
        mm_context *context = context_for(MM_OUT_LAST_LOGITS, batch, 10, 64, 1 + batch % 2);
        answers all = { 0 };
        mm_prompts_options o = MM_PROMPTS_OPTIONS_INIT;
        mm_prompts_result result = MM_PROMPTS_RESULT_INIT;
        o.on_row = keep_answer;
        o.user = &all;
        ck_ok(mm_evaluate_prompts(context, tokenizer, dataset, &o, &result));
        ck_assert_int_eq(all.count, 4);
        for (int i = 0; i < 4; i++) {
            ck_assert_str_eq(all.text[i], right[i]);
            ck_assert_int_eq(all.passed[i], i != 2);
            ck_assert_str_eq(all.missing[i], i == 2 ? "never said" : "");
            ck_assert_int_eq(all.tokens[i], tokens[i]);
        }
        ck_assert_int_eq(result.rows, 4);
        ck_assert_int_eq(result.passed, 3);
        ck_assert_int_eq(result.tokens, 8 + 3 + 12 + 1);
        ck_assert_int_eq(result.cut, 0);
        mm_context_free(context);
    }
    mm_dataset_free(dataset);
}
END_TEST

/* Its context, which on_row runs itself: longer than what was made for the rows, so that all of that is overwritten. */
typedef struct busy_answers {
    answers all; /* first: keep_answer() takes it */
    mm_context *context;
} busy_answers;

static int32_t generate_between(void *user, const mm_prompt_answer *answer)
{
    busy_answers *busy = user;
    const int32_t ids[] = { 3, 1 }, length = 2, *prompt = ids, none = 0;
    mm_generate_options o = MM_GENERATE_OPTIONS_INIT;
    mm_generate_result made = MM_GENERATE_RESULT_INIT;
    o.prompts = &prompt;
    o.prompt_lengths = &length;
    o.stop_ids = &none;
    o.stop_count = 0;
    o.max_new_tokens = 60;
    ck_ok(mm_generate(busy->context, &o, &made));
    return keep_answer(&busy->all, answer);
}

START_TEST(answers_are_what_they_were_when_on_row_runs_the_context)
{
    static const char *const prompts[] = { "Hello", "What is your name?", "x" };
    char right[3][500], file[4000] = "";
    for (int i = 0; i < 3; i++) {
        char row[1200];
        answer_to(right[i], prompts[i], 8);
        put_prompt(row, sizeof row, prompts[i], right[i], NULL, 8);
        strcat(file, row);
    }
    mm_dataset *dataset = open_rows(file);
    busy_answers busy = { .context = context_for(MM_OUT_LAST_LOGITS, 3, 10, 64, 1) };
    mm_prompts_options o = MM_PROMPTS_OPTIONS_INIT;
    mm_prompts_result result = MM_PROMPTS_RESULT_INIT;
    o.on_row = generate_between;
    o.user = &busy;
    ck_ok(mm_evaluate_prompts(busy.context, tokenizer, dataset, &o, &result));
    ck_assert_int_eq(busy.all.count, 3);
    for (int i = 0; i < 3; i++)
        ck_assert_str_eq(busy.all.text[i], right[i]);
    ck_assert_int_eq(result.passed, 3);
    mm_context_free(busy.context);
    mm_dataset_free(dataset);
}
END_TEST

START_TEST(conversations_are_rendered_and_long_prompts_lose_their_beginning)
{
    mm_dataset *dataset = open_rows("{\"conversations\": [{\"role\": \"user\", \"content\": \"Who are you?\"}, "
                                    "{\"role\": \"assistant\", \"content\": "
                                    "\"a model\"}], \"expect\": [\"never said\"]}\n"
                                    "{\"prompt\": \"A prompt that is longer than all of the context\", \"expect\": "
                                    "[\"x\"], \"max_new_tokens\": 20}\n");
    mm_context *context = context_for(MM_OUT_LAST_LOGITS, 2, 16, 32, 1);
    answers all = { 0 };
    mm_prompts_options o = MM_PROMPTS_OPTIONS_INIT;
    mm_prompts_result result = MM_PROMPTS_RESULT_INIT;
    o.on_row = keep_answer;
    o.user = &all;
    o.max_new_tokens = 5;
    o.template_name = "minimind2";
    ck_ok(mm_evaluate_prompts(context, tokenizer, dataset, &o, &result));
    ck_assert_int_eq(result.rows, 2);
    ck_assert_int_eq(result.cut, 2);
    ck_assert(all.tokens[0] <= 5 && all.tokens[1] <= 20);
    char right[500];
    answer_to(right, "f the context", 20); /* the last 13 of 32 + 1 - 20 */
    ck_assert_str_eq(all.text[1], right);
    mm_context_free(context);
    mm_dataset_free(dataset);
}
END_TEST

/* Of a model with more ids than its tokenizer, in a context that has less room than an answer may take by default. */
START_TEST(ids_without_text_are_left_out_of_answers_and_samples)
{
    mm_config *config = NULL;
    mm_model *wide = NULL;
    mm_context *context = NULL;
    mm_report *report = NULL;
    ck_ok(mm_config_create("minillm-tiny", &config));
    ck_ok(mm_config_set_int(config, "vocab_size", 20 * VOCAB));
    ck_ok(mm_model_create(config, 1, &wide));
    mm_context_options c = MM_CONTEXT_OPTIONS_INIT;
    c.max_length = c.max_context = 24;
    ck_ok(mm_context_create(wide, &c, &context));
    ck_ok(mm_report_create(scratch_directory(), NULL, &report));
    mm_dataset *dataset = open_rows("{\"prompt\": \"Hello\", \"expect\": [\"never said\"]}\n");
    answers all = { 0 };
    mm_prompts_options o = MM_PROMPTS_OPTIONS_INIT;
    mm_prompts_result result = MM_PROMPTS_RESULT_INIT;
    o.on_row = keep_answer;
    o.user = &all;
    o.report = report;
    ck_ok(mm_evaluate_prompts(context, tokenizer, dataset, &o, &result));
    ck_assert_int_eq(all.count, 1);
    ck_assert(all.tokens[0] > 5 && all.tokens[0] <= 24);
    ck_assert_uint_le(strlen(all.text[0]), 3 * (size_t)all.tokens[0]); /* bytes alone, each U+FFFD at worst */
    static const char *const prompts[] = { "Hello" };
    mm_samples_options s = MM_SAMPLES_OPTIONS_INIT;
    s.prompts = prompts;
    s.count = 1;
    s.max_new_tokens = 10;
    ck_ok(mm_report_samples(report, 1, context, tokenizer, &s));
    mm_report_free(report);
    mm_dataset_free(dataset);
    mm_context_free(context);
    mm_model_free(wide);
    mm_config_free(config);
}
END_TEST

/* A model whose config names `eos`. `dull`: its logits are all 0, and the likeliest id is always 0. */
static mm_model *ending_with(int64_t eos, bool dull)
{
    mm_config *config = tiny_config();
    mm_model *made = NULL;
    mm_view view;
    ck_ok(mm_config_set_int(config, "eos_token_id", eos));
    ck_ok(mm_model_create(config, 7, &made));
    ck_ok(mm_model_write(made, mm_model_tensor_count(made) - 1, &view));
    if (dull)
        memset(view.data, 0, (size_t)view.shape[0] * sizeof(float));
    mm_model_written(made);
    mm_config_free(config);
    return made;
}

static int64_t tokens_of_a_dull_answer(const mm_tokenizer *ending, int64_t eos)
{
    mm_model *dull = ending_with(eos, true);
    mm_context *context = NULL;
    mm_context_options c = MM_CONTEXT_OPTIONS_INIT;
    mm_prompts_options o = MM_PROMPTS_OPTIONS_INIT;
    mm_prompts_result result = MM_PROMPTS_RESULT_INIT;
    mm_dataset *dataset = open_rows("{\"prompt\": \"Hello\", \"expect\": [\"never said\"]}\n");
    c.max_length = c.max_context = 24;
    ck_ok(mm_context_create(dull, &c, &context));
    ck_ok(mm_evaluate_prompts(context, ending, dataset, &o, &result));
    mm_dataset_free(dataset);
    mm_context_free(context);
    mm_model_free(dull);
    return result.tokens;
}

/* What a model with this eos draws behind each of eight prompts. */
static void drawn_with(char texts[8][400], int64_t eos)
{
    static const char *const prompts[] = { "a", "b", "c", "d", "e", "f", "g", "h" };
    mm_model *drawing = ending_with(eos, false);
    mm_context *context = NULL;
    mm_report *report = NULL;
    mm_context_options c = MM_CONTEXT_OPTIONS_INIT;
    mm_samples_options s = MM_SAMPLES_OPTIONS_INIT;
    mm_sampling sampling = MM_SAMPLING_INIT;
    c.max_batch = 8, c.max_length = c.max_context = 100, c.threads = 1;
    s.prompts = prompts, s.count = 8, s.max_new_tokens = 90, s.sampling = &sampling;
    ck_ok(mm_context_create(drawing, &c, &context));
    ck_ok(mm_report_create(scratch_directory(), NULL, &report));
    ck_ok(mm_report_samples(report, 1, context, tokenizer, &s));
    for (int i = 0; i < 8; i++) {
        char name[20];
        snprintf(name, sizeof name, "“%s”", prompts[i]);
        const mmi_track *track = mmi_tracks_find(&report->tracks, name);
        snprintf(texts[i], 400, "%.*s", (int)track->texts[0].length, track->texts[0].text);
    }
    mm_report_free(report);
    mm_context_free(context);
    mm_model_free(drawing);
}

/* As of the models that MiniMind-3's own script exports, whose tokenizer alone knows what ends a turn. */
START_TEST(answers_end_with_their_turn_where_the_config_names_no_eos)
{
    static const char *const special[] = { "<|im_end|>" };
    static char named[8][400], nameless[8][400];
    mm_tokenizer_train_options t = MM_TOKENIZER_TRAIN_OPTIONS_INIT;
    mm_tokenizer *ending = NULL; /* with id 0 */
    t.next_text = no_text;
    t.special_tokens = special;
    t.special_count = 1;
    ck_ok(mm_tokenizer_train(&t, &ending));
    ck_assert_int_eq(tokens_of_a_dull_answer(ending, -1), 0);
    ck_assert_int_gt(tokens_of_a_dull_answer(ending, 1), 0);
    mm_tokenizer_free(ending);
    drawn_with(named, 2);
    drawn_with(nameless, -1);
    for (int i = 0; i < 8; i++)
        ck_assert_str_eq(named[i], nameless[i]);
}
END_TEST

START_TEST(a_report_gets_the_share_that_passed_and_the_first_answers)
{
    char directory[400], path[480];
    snprintf(directory, sizeof directory, "%s/report", scratch_directory());
    mm_report *report = NULL;
    ck_ok(mm_report_create(directory, NULL, &report));
    static const char *const prompts[] = { "a\\nb", "step", "3", "4", "5", "6", "7", "eighth", "ninth" };
    char rows[1000] = "";
    for (size_t i = 0; i < sizeof prompts / sizeof *prompts; i++)
        snprintf(rows + strlen(rows), sizeof rows - strlen(rows),
                 "{\"prompt\": \"%s\", \"expect\": [\"never said\"], \"max_new_tokens\": 2}\n", prompts[i]);
    mm_dataset *dataset = open_rows(rows);
    mm_context *context = context_for(MM_OUT_LAST_LOGITS, 2, 16, 32, 1);
    mm_prompts_options o = MM_PROMPTS_OPTIONS_INIT;
    mm_prompts_result result = MM_PROMPTS_RESULT_INIT;
    o.report = report;
    o.step = 70;
    ck_ok(mm_evaluate_prompts(context, tokenizer, dataset, &o, &result));
    mm_report_free(report);
    snprintf(path, sizeof path, "%s/metrics.jsonl", directory);
    char *text = NULL;
    size_t size;
    ck_ok(mmi_read_file(path, &text, &size));
    ck_assert_ptr_nonnull(strstr(text, "\"prompts_passed\":0"));
    ck_assert_ptr_nonnull(strstr(text, "\"step\":70"));
    ck_assert_ptr_nonnull(strstr(text, "“a b”"));
    ck_assert_ptr_nonnull(strstr(text, "“step”"));
    ck_assert_ptr_nonnull(strstr(text, "“eighth”"));
    ck_assert_ptr_null(strstr(text, "“ninth”"));
    mmi_free(text);
    mm_context_free(context);
    mm_dataset_free(dataset);
}
END_TEST

START_TEST(samples_of_what_the_model_writes_come_into_a_report)
{
    static const char *const prompts[] = { "Hello", "What is your name?", "x" };
    char directory[400], right[3][500];
    snprintf(directory, sizeof directory, "%s/report", scratch_directory());
    for (int i = 0; i < 3; i++)
        answer_to(right[i], prompts[i], 6);
    mm_report *report = NULL;
    ck_ok(mm_report_create(directory, NULL, &report));
    mm_context *context = context_for(MM_OUT_LAST_LOGITS, 2, 10, 64, 1);
    mm_samples_options o = MM_SAMPLES_OPTIONS_INIT;
    o.prompts = prompts;
    o.count = 3;
    o.max_new_tokens = 6;
    ck_ok(mm_report_samples(report, 30, context, tokenizer, &o));
    for (int i = 0; i < 3; i++) {
        char name[100];
        snprintf(name, sizeof name, "“%s”", prompts[i]);
        const mmi_track *track = mmi_tracks_find(&report->tracks, name);
        ck_assert_ptr_nonnull(track);
        ck_assert_int_eq(track->texts[0].step, 30);
        ck_assert_uint_eq(track->texts[0].length, strlen(right[i]));
        ck_assert_mem_eq(track->texts[0].text, right[i], strlen(right[i]));
    }
    o.chat = 1;
    o.count = 1;
    o.template_name = "minimind2";
    ck_ok(mm_report_samples(report, 31, context, tokenizer, &o));
    ck_status(mm_report_samples(NULL, 31, context, tokenizer, &o), MM_ERR_ARG);
    ck_status(mm_report_samples(report, -1, context, tokenizer, &o), MM_ERR_ARG);
    ck_status(mm_report_samples(report, 31, NULL, tokenizer, &o), MM_ERR_ARG);
    ck_status(mm_report_samples(report, 31, context, NULL, &o), MM_ERR_ARG);
    ck_status(mm_report_samples(report, 31, context, tokenizer, NULL), MM_ERR_ARG);
    o.template_name = "no such";
    ck_status(mm_report_samples(report, 31, context, tokenizer, &o), MM_ERR_ARG);
    o.chat = 0;
    o.max_new_tokens = 65;
    ck_status(mm_report_samples(report, 31, context, tokenizer, &o), MM_ERR_ARG);
    ck_error_mentions("max_context");
    o.max_new_tokens = 2;
    o.prompts = (const char *const[]){ "" };
    ck_status(mm_report_samples(report, 31, context, tokenizer, &o), MM_ERR_ARG);
    o.prompts = (const char *const[]){ NULL };
    ck_status(mm_report_samples(report, 31, context, tokenizer, &o), MM_ERR_ARG);
    mm_context_free(context);
    mm_report_free(report);
}
END_TEST

/* --- What is wrong --- */

START_TEST(bad_rows_are_named_by_file_and_line)
{
    static const struct {
        int prompts; /* 1: for mm_evaluate_prompts() */
        const char *line, *words;
    } bad[] = {
        { 0, "not JSON", "not JSON: column 3" },
        { 0, "{\"choices\": [\"a\"], \"answer\": 0}", "\"prompt\" is absent" },
        { 0, "{\"prompt\": 5, \"choices\": [\"a\"], \"answer\": 0}", "\"prompt\" is an integer" },
        { 0, "{\"prompt\": \"p\", \"answer\": 0}", "\"choices\" is absent" },
        { 0, "{\"prompt\": \"p\", \"choices\": [], \"answer\": 0}", "\"choices\" is empty" },
        { 0, "{\"prompt\": \"p\", \"choices\": [\"\"], \"answer\": 0}", "\"choices\"[0] is empty" },
        { 0, "{\"prompt\": \"p\", \"choices\": [\"a\", 1], \"answer\": 0}", "\"choices\"[1] is an integer" },
        { 0, "{\"prompt\": \"p\", \"choices\": [\"a\"]}", "\"answer\" is absent" },
        { 0, "{\"prompt\": \"p\", \"choices\": [\"a\"], \"answer\": 1}", "\"answer\" is 1" },
        { 0, "{\"prompt\": \"p\", \"choices\": [\"a\"], \"answer\": -1}", "\"answer\" is -1" },
        { 0, "{\"prompt\": \"p\", \"choices\": [\"a\"], \"answer\": \"a\"}", "\"answer\" is a string" },
        { 0, "{\"prompt\": \"\", \"choices\": [\"a\"], \"answer\": 0}", "the prompt is empty" },
        { 0, "{\"prompt\": \"p\", \"choices\": [\"an ending that no context of so few has room for\"], \"answer\": 0}",
          "max_length is 24" },
        { 1, "[]", "array" },
        { 1, "{\"expect\": [\"a\"]}", "neither \"prompt\" nor" },
        { 1, "{\"prompt\": \"p\", \"conversations\": [], \"expect\": [\"a\"]}", "\"prompt\" and" },
        { 1, "{\"prompt\": [], \"expect\": [\"a\"]}", "\"prompt\" is an array" },
        { 1, "{\"prompt\": \"p\"}", "\"expect\" is absent" },
        { 1, "{\"prompt\": \"p\", \"expect\": []}", "\"expect\" is empty" },
        { 1, "{\"prompt\": \"p\", \"expect\": \"a\"}", "\"expect\" is a string" },
        { 1, "{\"prompt\": \"p\", \"expect\": [null]}", "\"expect\"[0] is null" },
        { 1, "{\"prompt\": \"p\", \"expect\": [\"a\"], \"max_new_tokens\": \"5\"}", "\"max_new_tokens\" is a string" },
        { 1, "{\"prompt\": \"p\", \"expect\": [\"a\"], \"max_new_tokens\": 0}", "max_new_tokens is 0" },
        { 1, "{\"prompt\": \"p\", \"expect\": [\"a\"], \"max_new_tokens\": 25}", "max_new_tokens is 25" },
        { 1, "{\"prompt\": \"\", \"expect\": [\"a\"]}", "the prompt is empty" },
        { 1, "{\"conversations\": \"hello\", \"expect\": [\"a\"]}", "conversations" },
        { 1, "{\"conversations\": [], \"expect\": [\"a\"]}", "conversations" },
    };
    mm_context *context = context_for(MM_OUT_LOGPROBS | MM_OUT_LAST_LOGITS, 4, LENGTH, 0, 1);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char file[800];
        mm_choices_result choices = MM_CHOICES_RESULT_INIT;
        mm_prompts_result prompts = MM_PROMPTS_RESULT_INIT;
        mm_prompts_options o = MM_PROMPTS_OPTIONS_INIT;
        o.max_new_tokens = 4;
        o.template_name = "minimind2";
        snprintf(file, sizeof file, "%s\n%s\n",
                 bad[i].prompts ? "{\"prompt\": \"p\", \"expect\": [\"a\"]}" :
                                  "{\"prompt\": \"p\", \"choices\": [\"a\"], \"answer\": 0}",
                 bad[i].line);
        mm_dataset *dataset = open_rows(file);
        mm_status status = bad[i].prompts ? mm_evaluate_prompts(context, tokenizer, dataset, &o, &prompts) :
                                            mm_evaluate_choices(context, tokenizer, dataset, NULL, &choices);
        ck_assert_msg(status == MM_ERR_FORMAT, "%s: %s (%s)", bad[i].line, mm_status_name(status), mm_last_error());
        ck_error_mentions("rows.jsonl:2");
        ck_error_mentions(bad[i].words);
        ck_assert_int_eq(choices.rows + prompts.rows, 0);
        mm_dataset_free(dataset);
    }
    mm_context_free(context);
}
END_TEST

/* Rows that are passed over leave the loss to the others, and none at all is no loss of 0. */
START_TEST(rows_that_are_passed_over_are_not_all_of_them)
{
    static const char *const file[] = { "[]\n{\"text\": \"the dog\"}\n", "[]\n{}\n" };
    mm_context *context = context_for(MM_OUT_LOSS, 3, LENGTH, 0, 1);
    for (int32_t form = MM_ROWS_PAD3; form <= MM_ROWS_PACK; form += MM_ROWS_PACK - MM_ROWS_PAD3)
        for (int none = 0; none <= 1; none++) {
            mm_dataset *dataset = open_rows(file[none]);
            mm_loader *loader = text_loader(dataset, form, 1);
            mm_evaluation e = MM_EVALUATION_INIT;
            const mm_evaluation as_it_was = e;
            mm_status status = mm_evaluate_loss(context, loader, 0, &e);
            if (none) {
                ck_status(status, MM_ERR_FORMAT);
                ck_error_mentions("rows.jsonl: not one row");
                ck_assert_mem_eq(&e, &as_it_was, sizeof e);
            } else {
                ck_ok(status);
                ck_assert(e.tokens > 0 && e.loss > 0);
            }
            mm_loader_free(loader);
            mm_dataset_free(dataset);
        }
    mm_context_free(context);
}
END_TEST

/* Each measures its own, of which there may be none; all of them together measure what one alone does. */
START_TEST(ranks_have_the_sums_of_one)
{
    mm_dataset *dataset = open_rows("[]\n{\"text\": \"the dog\"}\n[]\n{\"text\": \"a cat\"}\n");
    mm_context *context = context_for(MM_OUT_LOSS, 3, LENGTH, 0, 1);
    mm_evaluation e[3]; /* of two ranks, and of one process */
    for (int i = 0; i < 3; i++) {
        mm_loader *loader = rank_loader(dataset, MM_ROWS_PAD3, 1, i % 2, i < 2 ? 2 : 1);
        e[i] = (mm_evaluation)MM_EVALUATION_INIT;
        ck_ok(mm_evaluate_loss(context, loader, 0, &e[i]));
        mm_loader_free(loader);
    }
    ck_assert_int_eq(e[0].tokens, 0);
    ck_assert_double_eq(e[0].loss, 0);
    ck_assert_int_eq(e[1].tokens, e[2].tokens);
    ck_assert_double_eq_tol(e[1].loss_sum, e[2].loss_sum, SUM_TOLERANCE * e[2].loss_sum);
    mm_dataset_free(dataset);
    mm_context_free(context);
}
END_TEST

START_TEST(weights_that_are_not_finite_are_noticed)
{
    mm_view view;
    ck_ok(mm_model_write(model, mm_model_tensor_count(model) - 1, &view));
    ((float *)view.data)[0] = NAN;
    mm_model_written(model);
    static const char *const prompts[] = { "Hello" };
    mm_dataset *texts = open_rows(TEXTS), *questions = open_rows(QUESTIONS);
    mm_dataset *expecting = open_rows("{\"prompt\": \"p\", \"expect\": [\"a\"], \"max_new_tokens\": 2}\n");
    mm_loader *loader = text_loader(texts, MM_ROWS_PAD3, 0);
    mm_context *context = context_for(MM_OUT_LOSS | MM_OUT_LOGPROBS | MM_OUT_LAST_LOGITS, 3, LENGTH, 0, 1);
    mm_report *report = NULL;
    mm_evaluation e = MM_EVALUATION_INIT;
    mm_choices_result choices = MM_CHOICES_RESULT_INIT;
    mm_prompts_result answered = MM_PROMPTS_RESULT_INIT;
    mm_samples_options samples = MM_SAMPLES_OPTIONS_INIT;
    samples.prompts = prompts;
    samples.count = 1;
    samples.max_new_tokens = 2;
    ck_status(mm_evaluate_loss(context, loader, 0, &e), MM_ERR_NUMERIC);
    ck_status(mm_evaluate_text(context, tokenizer, "some text", 9, NULL, &e), MM_ERR_NUMERIC);
    ck_status(mm_evaluate_choices(context, tokenizer, questions, NULL, &choices), MM_ERR_NUMERIC);
    ck_status(mm_evaluate_prompts(context, tokenizer, expecting, NULL, &answered), MM_ERR_NUMERIC);
    ck_assert_int_eq(e.tokens + choices.rows + answered.rows, 0);
    ck_ok(mm_report_create(scratch_directory(), NULL, &report));
    ck_status(mm_report_samples(report, 1, context, tokenizer, &samples), MM_ERR_NUMERIC);
    ck_assert_uint_eq(report->tracks.count, 0);
    mm_report_free(report);
    mm_context_free(context);
    mm_loader_free(loader);
    mm_dataset_free(texts);
    mm_dataset_free(questions);
    mm_dataset_free(expecting);
}
END_TEST

/* The tokenizer with this chat template, or with none. */
static mm_tokenizer *with_template(const char *template)
{
    char directory[400], path[480];
    mm_tokenizer *made = NULL;
    snprintf(directory, sizeof directory, "%s/tokenizer", scratch_directory());
    ck_ok(mm_tokenizer_save(tokenizer, directory));
    snprintf(path, sizeof path, "%s/tokenizer_config.json", directory);
    ck_assert_int_eq(remove(path), 0);
    snprintf(path, sizeof path, "%s/chat_template.jinja", directory);
    remove(path);
    if (template)
        ck_ok(mmi_write_file(path, template, strlen(template)));
    ck_ok(mm_tokenizer_load(directory, &made));
    return made;
}

START_TEST(conversations_need_a_template_that_is_known)
{
    static const char *const prompts[] = { "Hello" };
    mm_dataset *talks = open_rows("{\"conversations\": [{\"role\": \"user\", \"content\": \"Hello\"}], "
                                  "\"expect\": [\"a\"], \"max_new_tokens\": 2}\n");
    mm_tokenizer *none = with_template(NULL), *odd = with_template("{{ messages | tojson }}");
    mm_context *context = context_for(MM_OUT_LAST_LOGITS, 1, 128, 0, 1);
    mm_report *report = NULL;
    mm_prompts_options o = MM_PROMPTS_OPTIONS_INIT;
    mm_prompts_result result = MM_PROMPTS_RESULT_INIT;
    mm_samples_options s = MM_SAMPLES_OPTIONS_INIT;
    ck_ok(mm_report_create(scratch_directory(), NULL, &report));
    s.prompts = prompts;
    s.count = s.chat = 1;
    ck_status(mm_evaluate_prompts(context, none, talks, &o, &result), MM_ERR_STATE);
    ck_status(mm_report_samples(report, 1, context, none, &s), MM_ERR_STATE);
    ck_status(mm_evaluate_prompts(context, odd, talks, &o, &result), MM_ERR_UNSUPPORTED);
    ck_status(mm_report_samples(report, 1, context, odd, &s), MM_ERR_UNSUPPORTED);
    ck_assert_int_eq(result.rows, 0);
    o.template_name = s.template_name = "minimind2";
    ck_ok(mm_evaluate_prompts(context, none, talks, &o, &result)); /* one that is named will do */
    ck_ok(mm_report_samples(report, 1, context, odd, &s));
    mm_report_free(report);
    mm_context_free(context);
    mm_dataset_free(talks);
    mm_tokenizer_free(none);
    mm_tokenizer_free(odd);
}
END_TEST

START_TEST(the_loss_of_prompts_is_none)
{
    mm_dataset *dataset = open_rows("{\"question\": \"1\", \"answer\": \"1\"}\n");
    mm_context *context = context_for(MM_OUT_LOSS, 3, LENGTH, 0, 1);
    mm_loader *loader = NULL;
    mm_loader_options o = MM_LOADER_OPTIONS_INIT;
    mm_evaluation e = MM_EVALUATION_INIT;
    o.kind = MM_ROW_PROMPT;
    o.template_name = "minillm";
    o.batch = 1;
    o.max_length = LENGTH;
    ck_ok(mm_loader_create(dataset, tokenizer, &o, &loader));
    ck_status(mm_evaluate_loss(context, loader, 0, &e), MM_ERR_STATE);
    mm_loader_free(loader);
    mm_context_free(context);
    mm_dataset_free(dataset);
}
END_TEST

START_TEST(misuse_is_refused)
{
    mm_dataset *dataset = open_rows(QUESTIONS), *texts = open_rows(TEXTS);
    mm_loader *loader = text_loader(texts, MM_ROWS_PAD3, 0);
    mm_context *right = context_for(MM_OUT_LOSS | MM_OUT_LOGPROBS | MM_OUT_LAST_LOGITS, 3, LENGTH, 0, 1);
    mm_context *wrong = context_for(MM_OUT_HIDDEN, 3, LENGTH, 0, 1), *small = context_for(MM_OUT_LOSS, 3, 8, 0, 1);
    mm_evaluation e = MM_EVALUATION_INIT;
    mm_choices_result c = MM_CHOICES_RESULT_INIT;
    mm_prompts_result p = MM_PROMPTS_RESULT_INIT;
    ck_status(mm_evaluate_loss(NULL, loader, 0, &e), MM_ERR_ARG);
    ck_status(mm_evaluate_loss(right, NULL, 0, &e), MM_ERR_ARG);
    ck_status(mm_evaluate_loss(right, loader, 0, NULL), MM_ERR_ARG);
    ck_status(mm_evaluate_loss(right, loader, -1, &e), MM_ERR_ARG);
    ck_status(mm_evaluate_loss(wrong, loader, 0, &e), MM_ERR_ARG);
    ck_error_mentions("MM_OUT_LOSS");
    ck_status(mm_evaluate_loss(small, loader, 0, &e), MM_ERR_ARG);
    ck_status(mm_evaluate_text(NULL, tokenizer, "abc", 3, NULL, &e), MM_ERR_ARG);
    ck_status(mm_evaluate_text(right, NULL, "abc", 3, NULL, &e), MM_ERR_ARG);
    ck_status(mm_evaluate_text(right, tokenizer, NULL, 3, NULL, &e), MM_ERR_ARG);
    ck_status(mm_evaluate_text(right, tokenizer, "abc", 3, NULL, NULL), MM_ERR_ARG);
    ck_status(mm_evaluate_text(right, tokenizer, "a", 1, NULL, &e), MM_ERR_ARG);
    ck_status(mm_evaluate_text(right, tokenizer, "a\xFF", 2, NULL, &e), MM_ERR_ARG);
    ck_status(mm_evaluate_text(wrong, tokenizer, "abc", 3, NULL, &e), MM_ERR_ARG);
    mm_evaluate_text_options t = MM_EVALUATE_TEXT_OPTIONS_INIT;
    t.overlap = LENGTH;
    ck_status(mm_evaluate_text(right, tokenizer, "abc", 3, &t, &e), MM_ERR_ARG);
    t.overlap = 0;
    t.bos_id = VOCAB;
    ck_status(mm_evaluate_text(right, tokenizer, "abc", 3, &t, &e), MM_ERR_ARG);
    ck_status(mm_evaluate_choices(NULL, tokenizer, dataset, NULL, &c), MM_ERR_ARG);
    ck_status(mm_evaluate_choices(right, NULL, dataset, NULL, &c), MM_ERR_ARG);
    ck_status(mm_evaluate_choices(right, tokenizer, NULL, NULL, &c), MM_ERR_ARG);
    ck_status(mm_evaluate_choices(right, tokenizer, dataset, NULL, NULL), MM_ERR_ARG);
    ck_status(mm_evaluate_choices(wrong, tokenizer, dataset, NULL, &c), MM_ERR_ARG);
    ck_error_mentions("MM_OUT_LOGPROBS");
    mm_choices_options co = MM_CHOICES_OPTIONS_INIT;
    co.max_rows = -1;
    ck_status(mm_evaluate_choices(right, tokenizer, dataset, &co, &c), MM_ERR_ARG);
    co.max_rows = 0;
    co.bos_id = -2;
    ck_status(mm_evaluate_choices(right, tokenizer, dataset, &co, &c), MM_ERR_ARG);
    ck_status(mm_evaluate_prompts(NULL, tokenizer, dataset, NULL, &p), MM_ERR_ARG);
    ck_status(mm_evaluate_prompts(right, NULL, dataset, NULL, &p), MM_ERR_ARG);
    ck_status(mm_evaluate_prompts(right, tokenizer, NULL, NULL, &p), MM_ERR_ARG);
    ck_status(mm_evaluate_prompts(right, tokenizer, dataset, NULL, NULL), MM_ERR_ARG);
    ck_status(mm_evaluate_prompts(wrong, tokenizer, dataset, NULL, &p), MM_ERR_ARG);
    ck_error_mentions("MM_OUT_LAST_LOGITS");
    mm_prompts_options po = MM_PROMPTS_OPTIONS_INIT;
    po.max_new_tokens = 0;
    ck_status(mm_evaluate_prompts(right, tokenizer, dataset, &po, &p), MM_ERR_ARG);
    po.max_new_tokens = 4;
    po.thinking = 3;
    ck_status(mm_evaluate_prompts(right, tokenizer, dataset, &po, &p), MM_ERR_ARG);
    po.thinking = 0;
    po.step = -1;
    ck_status(mm_evaluate_prompts(right, tokenizer, dataset, &po, &p), MM_ERR_ARG);
    mm_context_free(right);
    mm_context_free(wrong);
    mm_context_free(small);
    mm_loader_free(loader);
    mm_dataset_free(dataset);
    mm_dataset_free(texts);
}
END_TEST

START_TEST(every_failing_allocation_is_survived)
{
    mm_memory_usage before = MM_MEMORY_USAGE_INIT, after = MM_MEMORY_USAGE_INIT;
    ck_ok(mm_memory_get_usage(&before));
    mm_dataset *questions = open_rows(QUESTIONS), *texts = open_rows(TEXTS);
    mm_dataset *prompts =
        open_rows("{\"prompt\": \"p\", \"expect\": [\"a\"]}\n{\"conversations\": [{\"role\": \"user\", "
                  "\"content\": \"hello\"}], \"expect\": [\"a\"]}\n");
    mm_loader *loader = text_loader(texts, MM_ROWS_PAD3, 0);
    mm_context *context = context_for(MM_OUT_LOSS | MM_OUT_LOGPROBS | MM_OUT_LAST_LOGITS, 3, LENGTH, 0, 1);
    mm_prompts_options o = MM_PROMPTS_OPTIONS_INIT;
    o.max_new_tokens = 4;
    o.template_name = "minimind2";
    mm_evaluation e = MM_EVALUATION_INIT;
    mm_choices_result c = MM_CHOICES_RESULT_INIT;
    mm_prompts_result p = MM_PROMPTS_RESULT_INIT;
    for (int which = 0; which < 4; which++) {
        mm_status status = MM_ERR_MEMORY;
        for (uint64_t n = 1; status != MM_OK && n < 1000; n++) {
            mmi_memory_fail_at(n, false);
            status = which == 0 ? mm_evaluate_loss(context, loader, 0, &e) :
                     which == 1 ? mm_evaluate_text(context, tokenizer, "some text", 9, NULL, &e) :
                     which == 2 ? mm_evaluate_choices(context, tokenizer, questions, NULL, &c) :
                                  mm_evaluate_prompts(context, tokenizer, prompts, &o, &p);
            mmi_memory_fail_at(0, false);
            ck_assert(status == MM_OK || status == MM_ERR_MEMORY);
        }
        ck_assert_int_eq(status, MM_OK);
    }
    mm_context_free(context);
    mm_loader_free(loader);
    mm_dataset_free(questions);
    mm_dataset_free(texts);
    mm_dataset_free(prompts);
    ck_ok(mm_memory_get_usage(&after)); /* what handles keep for their next call is theirs; the rest must be back */
    ck_assert_uint_eq(before.current, after.current);
}
END_TEST

/* A packed document of several batches: to go back into it by mm_loader_seek() would be to read it. */
START_TEST(a_loader_stands_within_its_document_again_whatever_failed)
{
    char row[1200], path[600];
    snprintf(row, sizeof row, "{\"text\": \"%01000d\"}\n", 0);
    snprintf(path, sizeof path, "%s/teacher.safetensors", scratch_directory());
    mm_dataset *dataset = open_rows(row);
    mm_loader *loader = text_loader(dataset, MM_ROWS_PACK, 0);
    mm_context *context = context_for(MM_OUT_LOSS, 3, LENGTH, 0, 1);
    mm_batch batch = MM_BATCH_INIT;
    mm_evaluation e = MM_EVALUATION_INIT;
    mm_loader_position before = MM_LOADER_POSITION_INIT, after = MM_LOADER_POSITION_INIT;
    ck_ok(mm_loader_next(loader, &batch));
    ck_ok(mm_loader_tell(loader, &before));
    ck_assert_int_gt(before.offset, 0);
    for (int which = 0; which < 2; which++) {
        mm_status status = MM_ERR_MEMORY;
        for (uint64_t n = 1; status != MM_OK && n < 1000; n++) {
            mmi_memory_fail_at(n, true);
            status = which == 0 ? mm_evaluate_loss(context, loader, 0, &e) :
                                  mm_distill_cache_write(model, loader, 3, 1, path);
            mmi_memory_fail_at(0, false);
            ck_assert(status == MM_OK || status == MM_ERR_MEMORY);
            ck_ok(mm_loader_tell(loader, &after));
            ck_assert_mem_eq(&before, &after, sizeof before);
        }
        ck_assert_int_eq(status, MM_OK);
    }
    mm_context_free(context);
    mm_loader_free(loader);
    mm_dataset_free(dataset);
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("train/evaluate");
    TCase *tc = tcase_create("evaluate");
    tcase_add_checked_fixture(tc, start, end);
    tcase_add_test(tc, the_loss_of_a_loader_is_that_of_its_rows_one_by_one);
    tcase_add_test(tc, as_many_batches_are_evaluated_as_were_asked_for);
    tcase_add_test(tc, a_context_that_trains_keeps_its_gradients);
    tcase_add_test(tc, every_token_of_a_text_is_foretold_once_whatever_the_windows);
    tcase_add_test(tc, choices_are_the_likeliest_endings_computed_one_by_one);
    tcase_add_test(tc, threads_do_not_change_a_bit_of_the_choices);
    tcase_add_test(tc, choices_are_what_they_were_when_on_row_runs_the_context);
    tcase_add_test(tc, a_callback_or_a_limit_ends_the_questions);
    tcase_add_test(tc, prompts_pass_when_the_greedy_answer_holds_what_is_expected);
    tcase_add_test(tc, answers_are_what_they_were_when_on_row_runs_the_context);
    tcase_add_test(tc, conversations_are_rendered_and_long_prompts_lose_their_beginning);
    tcase_add_test(tc, ids_without_text_are_left_out_of_answers_and_samples);
    tcase_add_test(tc, answers_end_with_their_turn_where_the_config_names_no_eos);
    tcase_add_test(tc, a_report_gets_the_share_that_passed_and_the_first_answers);
    tcase_add_test(tc, samples_of_what_the_model_writes_come_into_a_report);
    tcase_add_test(tc, bad_rows_are_named_by_file_and_line);
    tcase_add_test(tc, rows_that_are_passed_over_are_not_all_of_them);
    tcase_add_test(tc, ranks_have_the_sums_of_one);
    tcase_add_test(tc, weights_that_are_not_finite_are_noticed);
    tcase_add_test(tc, conversations_need_a_template_that_is_known);
    tcase_add_test(tc, the_loss_of_prompts_is_none);
    tcase_add_test(tc, misuse_is_refused);
    tcase_add_test(tc, every_failing_allocation_is_survived);
    tcase_add_test(tc, a_loader_stands_within_its_document_again_whatever_failed);
    tcase_set_timeout(tc, 120);
    suite_add_tcase(suite, tc);
    return suite;
}

int main(void)
{
    return run_suite(make_suite());
}
