/* What the model makes of some prompts, for a report. As many as the context has rows are run together. */
#include <string.h>

#include <minimind/chat.h>
#include <minimind/watch.h>

#include "base/memory.h"
#include "base/options.h"
#include "run/context.h"
#include "train/ids.h"
#include "train/likelihood.h"
#include "train/report.h"

MMI_OPTIONS_INIT(mm_samples_options, MM_SAMPLES_OPTIONS_INIT)

/* Prompts that are run together. */
typedef struct group {
    mm_report *report;
    int64_t step;
    mm_context *context;
    const mm_tokenizer *tokenizer;
    mm_samples_options options;
    mmi_ids ids;
    size_t *starts; /* [rows + 1] */
    const int32_t **prompts;
    int32_t *lengths;
    char *text; /* the one at hand */
    size_t text_room;
} group;

static mm_status add_message(group *g, const char *prompt)
{
    mm_chat *chat = NULL;
    mm_chat_options o = MM_CHAT_OPTIONS_INIT;
    size_t count = 0;
    o.template_name = g->options.template_name;
    o.add_generation_prompt = 1;
    o.thinking = g->options.thinking;
    mm_status status = mm_chat_create(&chat);
    if (status == MM_OK)
        status = mm_chat_add(chat, "user", prompt, strlen(prompt));
    if (status == MM_OK)
        status = mm_chat_encode(chat, g->tokenizer, &o, NULL, 0, &count);
    if (status == MM_OK && !mmi_grow(&g->ids.data, &g->ids.room, g->ids.count + count, sizeof *g->ids.data))
        status = mmi_fail_memory(count * sizeof *g->ids.data, "ids");
    if (status == MM_OK)
        status = mm_chat_encode(chat, g->tokenizer, &o, g->ids.data + g->ids.count, count, &count);
    if (status == MM_OK)
        g->ids.count += count;
    mm_chat_free(chat);
    return status;
}

/* The ids of a prompt; of one that is too long the last ones are kept. The last token drawn is never fed. */
static mm_status add_prompt(group *g, int32_t index, const char *prompt)
{
    mm_status status = g->options.chat ?
                           add_message(g, prompt) :
                           mmi_ids_add_prompt(&g->ids, g->tokenizer, g->options.bos_id, prompt, strlen(prompt));
    size_t start = g->starts[index], most = (size_t)(g->context->limits.max_context + 1 - g->options.max_new_tokens);
    if (status != MM_OK)
        return status;
    size_t drop = g->ids.count - start > most ? g->ids.count - start - most : 0;
    g->lengths[index] = (int32_t)(g->ids.count - start - drop);
    g->starts[index] = start + drop;
    g->starts[index + 1] = g->ids.count;
    return MM_OK;
}

static mm_status run(group *g, const char *const *prompts, int32_t count)
{
    mm_generate_options o = MM_GENERATE_OPTIONS_INIT;
    mm_generate_result made = MM_GENERATE_RESULT_INIT;
    mm_sampling greedy = MM_SAMPLING_INIT;
    mm_status status = MM_OK;
    greedy.temperature = 0;
    g->ids.count = 0;
    g->starts[0] = 0;
    for (int32_t i = 0; i < count && status == MM_OK; i++)
        status = add_prompt(g, i, prompts[i]);
    for (int32_t i = 0; i < count && status == MM_OK; i++)
        g->prompts[i] = g->ids.data + g->starts[i];
    o.prompts = g->prompts;
    o.prompt_lengths = g->lengths;
    o.sequences = count;
    o.sampling = g->options.sampling ? g->options.sampling : &greedy;
    o.max_new_tokens = g->options.max_new_tokens;
    int32_t stop = mmi_stop_id(g->context->arch->eos_id, g->tokenizer);
    o.stop_ids = &stop;
    o.stop_count = 1;
    if (status == MM_OK)
        status = mm_generate(g->context, &o, &made);
    for (int32_t i = 0; i < count && status == MM_OK; i++) {
        size_t length = 0;
        status = mmi_decode_grow(&g->text, &g->text_room, 0, &length, g->tokenizer, made.ids + i * made.stride,
                                 made.lengths[i], 1);
        if (status == MM_OK)
            status = mmi_report_sample(g->report, g->step, prompts[i], g->text, length);
    }
    return status;
}

static mm_status run_all(group *g)
{
    int32_t rows = g->context->limits.max_batch, count = g->options.count;
    g->starts = mmi_alloc((size_t)rows + 1, sizeof *g->starts);
    g->prompts = mmi_alloc((size_t)rows, sizeof *g->prompts);
    g->lengths = mmi_alloc((size_t)rows, sizeof *g->lengths);
    if (!g->starts || !g->prompts || !g->lengths)
        return mmi_fail_memory((size_t)rows * sizeof *g->prompts, "prompts");
    mm_status status = MM_OK;
    for (int32_t i = 0; i < count && status == MM_OK; i += rows)
        status = run(g, g->options.prompts + i, count - i < rows ? count - i : rows);
    return status;
}

static mm_status check(const char *who, const group *g)
{
    const mm_samples_options *o = &g->options;
    if (o->count < 1 || !o->prompts)
        return mmi_fail(MM_ERR_ARG, "%s: %s", who, o->count < 1 ? "count is less than 1" : "prompts is NULL");
    for (int32_t i = 0; i < o->count; i++)
        if (!o->prompts[i])
            return mmi_fail(MM_ERR_ARG, "%s: prompt %d is NULL", who, i);
    if (o->max_new_tokens < 1 || o->max_new_tokens > g->context->limits.max_context)
        return mmi_fail(MM_ERR_ARG, "%s: max_new_tokens is %d, it must be 1 to the context's max_context, %d", who,
                        o->max_new_tokens, g->context->limits.max_context);
    if (o->chat < 0 || o->chat > 1)
        return mmi_fail(MM_ERR_ARG, "%s: chat is %d, it must be 0 or 1", who, o->chat);
    if (o->reserved != 0)
        return mmi_fail(MM_ERR_ARG, "%s: reserved is %d, it must be 0", who, o->reserved);
    mm_status status = mmi_likelihood_check(who, g->context, MM_OUT_LAST_LOGITS, "MM_OUT_LAST_LOGITS");
    return status == MM_OK ? mmi_likelihood_check_ids(who, g->context, g->tokenizer, o->bos_id) : status;
}

mm_status mm_report_samples(mm_report *report, int64_t step, mm_context *context, const mm_tokenizer *tokenizer,
                            const mm_samples_options *options)
{
    static const char who[] = "mm_report_samples";
    if (!report || !context || !tokenizer || !options)
        return mmi_fail(MM_ERR_ARG, "%s: %s is NULL", who,
                        !report    ? "report" :
                        !context   ? "context" :
                        !tokenizer ? "tokenizer" :
                                     "options");
    group g = { .report = report, .step = step, .context = context, .tokenizer = tokenizer };
    g.options = (mm_samples_options)MM_SAMPLES_OPTIONS_INIT;
    mm_status status = mmi_options_read(&g.options, sizeof g.options, options, "mm_samples_options");
    if (status == MM_OK)
        status = check(who, &g);
    if (status == MM_OK)
        status = run_all(&g);
    mmi_ids_free(&g.ids);
    mmi_free(g.starts);
    mmi_free(g.prompts);
    mmi_free(g.lengths);
    mmi_free(g.text);
    return status;
}
