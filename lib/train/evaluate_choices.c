/* Multiple choice by likelihood. Rows are taken in groups that fill a batch of the context. */
#include <string.h>

#include <minimind/evaluate.h>

#include "base/memory.h"
#include "base/options.h"
#include "data/dataset.h"
#include "run/context.h"
#include "train/likelihood.h"

MMI_OPTIONS_INIT(mm_choice, MM_CHOICE_INIT)
MMI_OPTIONS_INIT(mm_choices_options, MM_CHOICES_OPTIONS_INIT)
MMI_OPTIONS_INIT(mm_choices_result, MM_CHOICES_RESULT_INIT)

typedef struct question {
    int64_t row;
    size_t first, count; /* its endings */
    int32_t answer;
} question;

/* Questions that are run together. All arrays are used again for the next group. */
typedef struct group {
    mm_context *context;
    const mm_tokenizer *tokenizer;
    const mm_dataset *dataset;
    mm_choices_options options;
    mmi_line line;
    mmi_ids ids;
    question *questions; /* [question_count] */
    size_t question_count, question_room;
    mmi_stretch *endings;    /* [ending_count] */
    size_t *bytes;           /* [ending_count] */
    double *sums, *per_byte; /* [ending_count] */
    size_t ending_count, ending_room, bytes_room, sums_room, per_byte_room;
} group;

static void free_group(group *g)
{
    mmi_line_free(&g->line);
    mmi_ids_free(&g->ids);
    mmi_free(g->questions);
    mmi_free(g->endings);
    mmi_free(g->bytes);
    mmi_free(g->sums);
    mmi_free(g->per_byte);
}

static mm_status make_room(group *g)
{
    size_t n = g->ending_count + 1;
    if (mmi_grow(&g->questions, &g->question_room, g->question_count + 1, sizeof *g->questions) &&
        mmi_grow(&g->endings, &g->ending_room, n, sizeof *g->endings) &&
        mmi_grow(&g->bytes, &g->bytes_room, n, sizeof *g->bytes) &&
        mmi_grow(&g->sums, &g->sums_room, n, sizeof *g->sums) &&
        mmi_grow(&g->per_byte, &g->per_byte_room, n, sizeof *g->per_byte))
        return MM_OK;
    return mmi_fail_memory(n * sizeof *g->endings, "questions");
}

/* --- Reading a question --- */

/* An ending behind the `before` ids of its prompt, which end the list; of a prompt that is too long the last ones are
 * kept. */
static mm_status add_ending(group *g, mm_choices_result *result, size_t before, const char *ending, size_t length)
{
    size_t start = g->ids.count - before, most = (size_t)g->context->limits.max_length + 1;
    mm_status status = make_room(g);
    if (status == MM_OK)
        status = mmi_ids_add_text(&g->ids, g->tokenizer, ending, length);
    if (status != MM_OK)
        return status;
    size_t after = g->ids.count - start - before;
    if (after >= most)
        return mmi_fail(MM_ERR_FORMAT, "an ending has %zu tokens, the context's max_length is %zu", after, most - 1);
    size_t dropped = before + after > most ? before + after - most : 0;
    result->cut += dropped > 0;
    g->bytes[g->ending_count] = length;
    g->endings[g->ending_count++] =
        (mmi_stretch){ start + dropped, (int32_t)(before + after - dropped), (int32_t)(before - dropped), 0 };
    return MM_OK;
}

static mm_status add_question(group *g, mm_choices_result *result, const mmi_json *row, int64_t number)
{
    const char *prompt;
    size_t length;
    mmi_json *choices = NULL;
    const mmi_json *answer = mmi_json_get(row, "answer");
    mm_status status = mmi_row_string(&prompt, &length, row, "prompt");
    if (status == MM_OK)
        status = mmi_row_strings(&choices, row, "choices");
    if (status != MM_OK)
        return status;
    size_t count = mmi_json_size(choices);
    int64_t right = mmi_json_int(answer, -1);
    if (mmi_json_what(answer) != MMI_JSON_INT || right < 0 || (uint64_t)right >= count || count > INT32_MAX)
        return mmi_json_what(answer) == MMI_JSON_INT ?
                   mmi_fail(MM_ERR_FORMAT, "\"answer\" is %lld, there are %zu choices, numbered from 0",
                            (long long)right, count) :
                   mmi_fail(MM_ERR_FORMAT, "\"answer\" is %s, it must be an integer",
                            mmi_json_kind_name(mmi_json_what(answer)));
    question q = { number, g->ending_count, count, (int32_t)right };
    const size_t start = g->ids.count;
    status = mmi_ids_add_prompt(&g->ids, g->tokenizer, g->options.bos_id, prompt, length);
    const size_t before = g->ids.count - start;
    for (size_t i = 0; i < count && status == MM_OK; i++) {
        const char *ending = mmi_json_string(mmi_json_at(choices, i), &length);
        for (size_t j = 0; j < before && i > 0 && status == MM_OK; j++)
            status = mmi_ids_add(&g->ids, g->ids.data[start + j]);
        if (status == MM_OK)
            status = add_ending(g, result, before, ending, length);
    }
    if (status == MM_OK)
        g->questions[g->question_count++] = q;
    return status == MM_ERR_ARG ? MM_ERR_FORMAT : status; /* text that is not UTF-8 is the file's fault */
}

static mm_status read_question(group *g, mm_choices_result *result, int64_t row)
{
    mmi_json *value = NULL;
    mm_status status = mmi_dataset_row(&value, g->dataset, row, &g->line);
    if (status == MM_OK && (status = add_question(g, result, value, row)) != MM_OK)
        status = mmi_dataset_fail_within(status, g->dataset, row);
    mmi_json_free(value);
    return status;
}

/* --- Answering --- */

static int32_t likeliest(const double *scores, size_t count)
{
    size_t best = 0;
    for (size_t i = 1; i < count; i++)
        if (scores[i] > scores[best])
            best = i;
    return (int32_t)best;
}

static mm_status tell(const group *g, mm_choices_result *result, const question *q)
{
    mm_choice choice = MM_CHOICE_INIT;
    choice.row = q->row;
    choice.sums = g->sums + q->first;
    choice.per_byte = g->per_byte + q->first;
    choice.count = (int32_t)q->count;
    choice.answer = q->answer;
    choice.picked = likeliest(choice.sums, q->count);
    choice.picked_per_byte = likeliest(choice.per_byte, q->count);
    result->rows++;
    result->correct += choice.picked == choice.answer;
    result->correct_per_byte += choice.picked_per_byte == choice.answer;
    if (g->options.on_row && g->options.on_row(g->options.user, &choice) != 0)
        return mmi_fail(MM_ERR_CANCELLED, "mm_evaluate_choices: on_row gave up at row %lld", (long long)q->row);
    return MM_OK;
}

static mm_status answer_all(group *g, mm_choices_result *result)
{
    mm_status status = mmi_likelihood(g->context, &g->ids, g->endings, g->ending_count);
    for (size_t i = 0; i < g->ending_count && status == MM_OK; i++) {
        g->sums[i] = g->endings[i].sum;
        g->per_byte[i] = g->sums[i] / (double)g->bytes[i];
    }
    for (size_t i = 0; i < g->question_count && status == MM_OK; i++)
        status = tell(g, result, &g->questions[i]);
    g->question_count = g->ending_count = g->ids.count = 0;
    return status;
}

static mm_status ask_all(group *g, mm_choices_result *result, int64_t rows)
{
    mm_status status = MM_OK;
    for (int64_t row = 0; row < rows && status == MM_OK; row++) {
        status = read_question(g, result, row);
        if (status == MM_OK && (g->ending_count >= (size_t)g->context->limits.max_batch || row + 1 == rows))
            status = answer_all(g, result);
    }
    return status;
}

static mm_status check(const char *who, const group *g)
{
    const mm_choices_options *o = &g->options;
    if (o->max_rows < 0)
        return mmi_fail(MM_ERR_ARG, "%s: max_rows is %lld, it must be at least 0", who, (long long)o->max_rows);
    if (o->reserved != 0)
        return mmi_fail(MM_ERR_ARG, "%s: reserved is %d, it must be 0", who, o->reserved);
    mm_status status = mmi_likelihood_check(who, g->context, MM_OUT_LOGPROBS, "MM_OUT_LOGPROBS");
    return status == MM_OK ? mmi_likelihood_check_ids(who, g->context, g->tokenizer, o->bos_id) : status;
}

mm_status mm_evaluate_choices(mm_context *context, const mm_tokenizer *tokenizer, mm_dataset *dataset,
                              const mm_choices_options *options, mm_choices_result *out)
{
    static const char who[] = "mm_evaluate_choices";
    mm_status status = mmi_likelihood_check_given(who, context, tokenizer, dataset, "dataset", out);
    if (status != MM_OK)
        return status;
    group g = { .context = context, .tokenizer = tokenizer, .dataset = dataset, .options = MM_CHOICES_OPTIONS_INIT };
    mm_choices_result result = MM_CHOICES_RESULT_INIT;
    status = mmi_options_read(&g.options, sizeof g.options, options, "mm_choices_options");
    if (status == MM_OK)
        status = check(who, &g);
    int64_t rows = mm_dataset_rows(dataset);
    if (status == MM_OK)
        status = ask_all(&g, &result, g.options.max_rows > 0 && g.options.max_rows < rows ? g.options.max_rows : rows);
    free_group(&g);
    if (status != MM_OK)
        return status;
    result.accuracy = result.rows > 0 ? (double)result.correct / (double)result.rows : 0;
    result.accuracy_per_byte = result.rows > 0 ? (double)result.correct_per_byte / (double)result.rows : 0;
    return mmi_result_write(out, &result, sizeof result, "mm_choices_result");
}
