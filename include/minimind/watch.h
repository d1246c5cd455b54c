/**
 * @file watch.h
 * Training in a report (report.h): what a trainer tells at each step, and what its model writes by then.
 *
 * Threads: as the report's and the context's: one call at a time on each.
 */
#ifndef MINIMIND_WATCH_H
#define MINIMIND_WATCH_H

#include <minimind/generate.h>
#include <minimind/report.h>
#include <minimind/tokenizer.h>
#include <minimind/train.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * Add what a step was like to a report: loss, learning_rate, grad_norm, tokens_per_s, memory (what the library holds, in bytes),
 * the stage's metrics, and of each layer with routed experts their load, up to 512 layers of 256 experts; of a validation behind
 * this step validation_loss, and the stage's metrics with "validation_" before their names. To be called from
 * mm_trainer_options.on_step.
 *
 * @return MM_OK; MM_ERR_ARG; MM_ERR_MEMORY; MM_ERR_IO: the report is as it was. Since: 0.1
 */
MM_API mm_status mm_report_progress(mm_report *report, const mm_train_progress *progress);

/** What a model is asked to go on with, to be looked at by people. */
typedef struct mm_samples_options {
    size_t struct_size;          /**< sizeof(mm_samples_options) */
    const char *const *prompts;  /**< [count] UTF-8, NUL-terminated */
    const mm_sampling *sampling; /**< NULL: always the likeliest token, so that steps can be compared */
    const char *template_name;   /**< with `chat`, as in mm_chat_options; NULL: the tokenizer's own */
    int32_t count;               /**< prompts, at least 1 */
    int32_t max_new_tokens;      /**< for each, at most the context's max_context */
    int32_t bos_id;              /**< put before plain prompts; -1: none */
    int32_t chat;                /**< 1: each prompt is a user's message, rendered by the template; 0: it is text to go on with */
    int32_t thinking;            /**< with `chat`, MM_THINK_… */
    int32_t reserved;            /**< 0 */
} mm_samples_options;
#define MM_SAMPLES_OPTIONS_INIT { sizeof(mm_samples_options), NULL, NULL, NULL, 0, 64, -1, 0, MM_THINK_DEFAULT, 0 }

/** Set every field of `options` to its default, of the first `struct_size` bytes. For bindings. Since: 0.1 */
MM_API void mm_samples_options_init(mm_samples_options *options, size_t struct_size);

/**
 * Let the model go on with some prompts and add what it writes to a report, each as a text named after its prompt: from step
 * to step one sees it learn. A text ends as an answer of mm_evaluate_prompts() does.
 *
 * @param context  Planned with MM_OUT_LAST_LOGITS; prompts are run max_batch at a time, and of one that is too long the last
 *                 part is kept.
 *
 * @return MM_OK; MM_ERR_ARG, also for a prompt that is not UTF-8 or is empty; MM_ERR_STATE and MM_ERR_UNSUPPORTED, `chat` and no
 *         template that is known; MM_ERR_IO, from the report; MM_ERR_NUMERIC, as of mm_generate(); MM_ERR_MEMORY; MM_ERR_CANCELLED.
 *         Since: 0.1
 */
MM_API mm_status mm_report_samples(mm_report *report, int64_t step, mm_context *context, const mm_tokenizer *tokenizer,
                                   const mm_samples_options *options);

#ifdef __cplusplus
}
#endif

#endif
