/* Prompts whose answers must hold given strings. As many prompts as the context has rows are answered together. */
#include <string.h>

#include <minimind/evaluate.h>
#include <minimind/generate.h>

#include "base/memory.h"
#include "base/options.h"
#include "data/sample.h"
#include "run/context.h"
#include "train/ids.h"
#include "train/likelihood.h"
#include "train/report.h"

#define REPORTED 8 /* answers that a report shows */

MMI_OPTIONS_INIT(mm_prompt_answer, MM_PROMPT_ANSWER_INIT)
MMI_OPTIONS_INIT(mm_prompts_options, MM_PROMPTS_OPTIONS_INIT)
MMI_OPTIONS_INIT(mm_prompts_result, MM_PROMPTS_RESULT_INIT)

typedef struct task {
    mmi_json *row; /* held */
    int64_t number;
    const char *prompt;  /* lent by the row */
    size_t start, count; /* its ids, then its answer's */
    int32_t max_tokens, made, finish;
} task;

/* Prompts that are answered together. */
typedef struct group {
    mm_context *context;
    const mm_tokenizer *tokenizer;
    const mm_dataset *dataset;
    mm_prompts_options options;
    mmi_recipe recipe; /* of conversations; its form is NONE until the first one comes */
    mmi_sample sample;
    mmi_desk desk;
    mmi_ids ids;
    task *tasks; /* [max_batch] */
    const int32_t **prompts;
    int32_t *lengths;
    int32_t count;
    char *answer; /* the one at hand */
    size_t answer_room;
} group;

static mm_status make_group(group *g)
{
    size_t n = (size_t)g->context->limits.max_batch;
    g->tasks = mmi_calloc(n, sizeof *g->tasks);
    g->prompts = mmi_alloc(n, sizeof *g->prompts);
    g->lengths = mmi_alloc(n, sizeof *g->lengths);
    return g->tasks && g->prompts && g->lengths ? MM_OK : mmi_fail_memory(n * sizeof *g->tasks, "prompts");
}

static void clear(group *g)
{
    for (int32_t i = 0; g->tasks && i < g->count; i++)
        mmi_json_free(g->tasks[i].row);
    g->count = 0;
    g->ids.count = 0;
}

static void free_group(group *g)
{
    clear(g);
    mmi_sample_free(&g->sample);
    mmi_desk_free(&g->desk);
    mmi_ids_free(&g->ids);
    mmi_free(g->tasks);
    mmi_free(g->prompts);
    mmi_free(g->lengths);
    mmi_free(g->answer);
}

/* --- Reading a row --- */

static mm_status add_plain(group *g, task *t)
{
    size_t length;
    mm_status status = mmi_row_string(&t->prompt, &length, t->row, "prompt");
    return status == MM_OK ? mmi_ids_add_prompt(&g->ids, g->tokenizer, g->options.bos_id, t->prompt, length) : status;
}

/* What the last message says that is not an answer. */
static const char *last_question(const mmi_json *row)
{
    const mmi_json *list = mmi_json_get(row, "conversations");
    for (size_t i = mmi_json_size(list); i-- > 0;) {
        const mmi_json *message = mmi_json_at(list, i);
        const char *role = mmi_json_string(mmi_json_get(message, "role"), NULL);
        const char *content = mmi_json_string(mmi_json_get(message, "content"), NULL);
        if (content && !(role && strcmp(role, "assistant") == 0))
            return content;
    }
    return "conversation";
}

static mm_status find_recipe(group *g)
{
    if (g->recipe.form != MMI_CHAT_NONE)
        return MM_OK;
    mm_loader_options o = MM_LOADER_OPTIONS_INIT;
    o.kind = MM_ROW_PROMPT;
    o.max_length = INT32_MAX; /* cut below, where it is known how long the answer may be */
    o.template_name = g->options.template_name;
    o.thinking = g->options.thinking;
    return mmi_recipe_make(&g->recipe, g->tokenizer, &o);
}

static mm_status add_conversation(group *g, task *t)
{
    mm_status status = mmi_sample_take(&g->sample, &g->desk, &g->recipe, t->row);
    t->prompt = last_question(t->row);
    for (size_t i = 0; status == MM_OK && i < g->sample.side[0].count; i++)
        status = mmi_ids_add(&g->ids, g->sample.side[0].ids[i]);
    return status;
}

static mm_status read_limit(group *g, task *t)
{
    const mmi_json *value = mmi_json_get(t->row, "max_new_tokens");
    const int64_t most = g->context->limits.max_context, usual = g->options.max_new_tokens;
    const int64_t limit = mmi_json_int(value, usual < most ? usual : most);
    if (value && mmi_json_what(value) != MMI_JSON_INT)
        return mmi_fail(MM_ERR_FORMAT, "\"max_new_tokens\" is %s, it must be an integer",
                        mmi_json_kind_name(mmi_json_what(value)));
    if (limit < 1 || limit > most)
        return mmi_fail(MM_ERR_FORMAT, "max_new_tokens is %lld, it must be 1 to the context's max_context, %lld",
                        (long long)limit, (long long)most);
    t->max_tokens = (int32_t)limit;
    return MM_OK;
}

/* The last token of an answer is not fed, so prompt and answer may be one token longer than the context. */
static void cut(group *g, task *t, mm_prompts_result *result)
{
    size_t most = (size_t)(g->context->limits.max_context + 1 - t->max_tokens);
    t->count = g->ids.count - t->start;
    if (t->count <= most)
        return;
    t->start += t->count - most;
    t->count = most;
    result->cut++;
}

static mm_status add_task(group *g, task *t, mm_prompts_result *result)
{
    mmi_json *expected = NULL;
    bool plain = mmi_json_get(t->row, "prompt") != NULL, talk = mmi_json_get(t->row, "conversations") != NULL;
    if (plain == talk)
        return mmi_fail(MM_ERR_FORMAT, "there %s \"prompt\" %s \"conversations\"; a row has one of the two",
                        plain ? "are" : "is neither", plain ? "and" : "nor");
    t->start = g->ids.count;
    mm_status status = mmi_row_strings(&expected, t->row, "expect");
    if (status == MM_OK)
        status = read_limit(g, t);
    if (status == MM_OK)
        status = plain ? add_plain(g, t) : add_conversation(g, t);
    if (status == MM_OK)
        cut(g, t, result);
    return status == MM_ERR_ARG ? MM_ERR_FORMAT : status; /* what is wrong with a row is the file's fault */
}

static mm_status read_task(group *g, int64_t row, mm_prompts_result *result)
{
    task *t = &g->tasks[g->count];
    *t = (task){ .number = row };
    mm_status status = mmi_dataset_row(&t->row, g->dataset, row, &g->desk.line);
    if (status != MM_OK)
        return status;
    g->count++;
    if (mmi_json_get(t->row, "conversations") && (status = find_recipe(g)) != MM_OK)
        return status;
    status = add_task(g, t, result);
    return status == MM_OK ? MM_OK : mmi_dataset_fail_within(status, g->dataset, row);
}

/* --- Answering --- */

static int32_t count_token(void *user, int32_t sequence, int32_t id, float logprob)
{
    task *tasks = user;
    (void)id;
    (void)logprob;
    return ++tasks[sequence].made == tasks[sequence].max_tokens;
}

static mm_status generate(group *g, mm_generate_result *result)
{
    mm_generate_options o = MM_GENERATE_OPTIONS_INIT;
    mm_sampling greedy = MM_SAMPLING_INIT;
    greedy.temperature = 0;
    o.max_new_tokens = 1;
    for (int32_t i = 0; i < g->count; i++) {
        const task *t = &g->tasks[i];
        g->prompts[i] = g->ids.data + t->start;
        g->lengths[i] = (int32_t)t->count;
        o.max_new_tokens = t->max_tokens > o.max_new_tokens ? t->max_tokens : o.max_new_tokens;
    }
    o.prompts = g->prompts;
    o.prompt_lengths = g->lengths;
    o.sequences = g->count;
    o.sampling = &greedy;
    o.on_token = count_token;
    o.user = g->tasks;
    int32_t stop = mmi_stop_id(g->context->arch->eos_id, g->tokenizer);
    o.stop_ids = &stop;
    o.stop_count = 1;
    return mm_generate(g->context, &o, result);
}

/* The first expected string that the answer lacks; NULL: none. */
static const char *first_missing(const mmi_json *row, mmi_slice answer)
{
    const mmi_json *expected = mmi_json_get(row, "expect");
    for (size_t i = 0; i < mmi_json_size(expected); i++) {
        mmi_slice wanted = { NULL, 0 };
        size_t at;
        wanted.at = mmi_json_string(mmi_json_at(expected, i), &wanted.length);
        if (!mmi_slice_find(&at, answer, wanted))
            return wanted.at;
    }
    return NULL;
}

static mm_status put_answer(const group *g, const mm_prompt_answer *a)
{
    if (!g->options.report || a->row >= REPORTED)
        return MM_OK;
    return mmi_report_sample(g->options.report, g->options.step, a->prompt, a->answer, a->answer_length);
}

/* What was made is the context's, and on_row may run that: it is kept in place of the prompts. */
static mm_status keep(group *g, const mm_generate_result *made)
{
    mm_status status = MM_OK;
    g->ids.count = 0;
    for (int32_t i = 0; i < g->count; i++) {
        task *t = &g->tasks[i];
        t->start = g->ids.count;
        t->count = (size_t)made->lengths[i];
        t->finish = made->finish[i];
        for (size_t j = 0; j < t->count && status == MM_OK; j++)
            status = mmi_ids_add(&g->ids, made->ids[i * made->stride + (int64_t)j]);
    }
    return status;
}

static mm_status tell(group *g, mm_prompts_result *result, const task *t)
{
    mm_prompt_answer a = MM_PROMPT_ANSWER_INIT;
    mm_status status = mmi_decode_grow(&g->answer, &g->answer_room, 0, &a.answer_length, g->tokenizer,
                                       g->ids.data + t->start, (int64_t)t->count, 1);
    if (status != MM_OK)
        return status;
    a.row = t->number;
    a.prompt = t->prompt;
    a.answer = g->answer;
    a.missing = first_missing(t->row, (mmi_slice){ g->answer, a.answer_length });
    a.tokens = (int64_t)t->count;
    a.passed = a.missing == NULL;
    a.finish = t->finish == MM_FINISH_CALLBACK ? MM_FINISH_LENGTH : t->finish; /* the callback counts tokens */
    result->rows++;
    result->passed += a.passed;
    result->tokens += a.tokens;
    status = put_answer(g, &a);
    if (status == MM_OK && g->options.on_row && g->options.on_row(g->options.user, &a) != 0)
        status = mmi_fail(MM_ERR_CANCELLED, "mm_evaluate_prompts: on_row gave up at row %lld", (long long)t->number);
    return status;
}

static mm_status answer_all(group *g, mm_prompts_result *result)
{
    mm_generate_result made = MM_GENERATE_RESULT_INIT;
    mm_status status = generate(g, &made);
    if (status == MM_OK)
        status = keep(g, &made);
    for (int32_t i = 0; i < g->count && status == MM_OK; i++)
        status = tell(g, result, &g->tasks[i]);
    clear(g);
    return status;
}

static mm_status ask_all(group *g, mm_prompts_result *result, int64_t rows)
{
    mm_status status = make_group(g);
    for (int64_t row = 0; row < rows && status == MM_OK; row++) {
        status = read_task(g, row, result);
        if (status == MM_OK && (g->count == g->context->limits.max_batch || row + 1 == rows))
            status = answer_all(g, result);
    }
    if (status == MM_OK && g->options.report)
        status = mm_report_scalar(g->options.report, g->options.step, "prompts_passed",
                                  result->rows > 0 ? (double)result->passed / (double)result->rows : 0);
    return status;
}

static mm_status check(const char *who, const group *g)
{
    const mm_prompts_options *o = &g->options;
    if (o->max_rows < 0)
        return mmi_fail(MM_ERR_ARG, "%s: max_rows is %lld, it must be at least 0", who, (long long)o->max_rows);
    if (o->max_new_tokens < 1)
        return mmi_fail(MM_ERR_ARG, "%s: max_new_tokens is %d, it must be at least 1", who, o->max_new_tokens);
    if (o->step < 0)
        return mmi_fail(MM_ERR_ARG, "%s: step is %lld, it must be at least 0", who, (long long)o->step);
    if (o->thinking < MM_THINK_DEFAULT || o->thinking > MM_THINK_OFF)
        return mmi_fail(MM_ERR_ARG, "%s: thinking is %d, it must be one of MM_THINK_…, 0 to 2", who, o->thinking);
    if (o->reserved != 0)
        return mmi_fail(MM_ERR_ARG, "%s: reserved is %d, it must be 0", who, o->reserved);
    mm_status status = mmi_likelihood_check(who, g->context, MM_OUT_LAST_LOGITS, "MM_OUT_LAST_LOGITS");
    return status == MM_OK ? mmi_likelihood_check_ids(who, g->context, g->tokenizer, o->bos_id) : status;
}

mm_status mm_evaluate_prompts(mm_context *context, const mm_tokenizer *tokenizer, mm_dataset *dataset,
                              const mm_prompts_options *options, mm_prompts_result *out)
{
    static const char who[] = "mm_evaluate_prompts";
    mm_status status = mmi_likelihood_check_given(who, context, tokenizer, dataset, "dataset", out);
    if (status != MM_OK)
        return status;
    group g = { .context = context, .tokenizer = tokenizer, .dataset = dataset, .options = MM_PROMPTS_OPTIONS_INIT };
    g.recipe.form = MMI_CHAT_NONE;
    mm_prompts_result result = MM_PROMPTS_RESULT_INIT;
    status = mmi_options_read(&g.options, sizeof g.options, options, "mm_prompts_options");
    if (status == MM_OK)
        status = check(who, &g);
    int64_t rows = mm_dataset_rows(dataset);
    if (status == MM_OK)
        status = ask_all(&g, &result, g.options.max_rows > 0 && g.options.max_rows < rows ? g.options.max_rows : rows);
    free_group(&g);
    return status == MM_OK ? mmi_result_write(out, &result, sizeof result, "mm_prompts_result") : status;
}
