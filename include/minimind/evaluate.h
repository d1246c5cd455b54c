/**
 * @file evaluate.h
 * How good a model is: its loss on text, its choice among given endings, and whether its answers hold what they should.
 *
 * Each runs on a context of the caller's, so kernels, threads and adapters are those chosen there. The
 * same context, data and options give the same numbers, with any number of threads.
 *
 *     mm_evaluate_loss(context, loader, 0, &loss);                      loss.perplexity, loss.bits_per_byte
 *     mm_evaluate_choices(context, tokenizer, questions, NULL, &share); share.accuracy
 *     mm_evaluate_prompts(context, tokenizer, prompts, NULL, &passed);  passed.passed of passed.rows
 *
 * Rows come from data sets (data.h). Those that can't be read, or do not say what they must, are MM_ERR_FORMAT with
 * file and line.
 *
 * Threads: as the context's: one call at a time on it.
 */
#ifndef MINIMIND_EVALUATE_H
#define MINIMIND_EVALUATE_H

#include <minimind/data.h>
#include <minimind/report.h>

#ifdef __cplusplus
extern "C" {
#endif

/** How well text was foretold. */
typedef struct mm_evaluation {
    size_t struct_size;   /**< sizeof(mm_evaluation) */
    double loss;          /**< nats per token: loss_sum / tokens; 0 without tokens */
    double perplexity;    /**< exp(loss) */
    double bits_per_byte; /**< loss_sum / ln 2 / bytes, which does not depend on the tokenizer; 0 without bytes */
    double loss_sum;      /**< nats */
    int64_t tokens;       /**< targets that count */
    int64_t bytes;        /**< of text that these are; special tokens have none */
    int64_t batches;      /**< passes through the network */
} mm_evaluation;
#define MM_EVALUATION_INIT { sizeof(mm_evaluation), 0, 0, 0, 0, 0, 0, 0 }

/** Set every field of `evaluation` to its default, of the first `struct_size` bytes. For bindings. Since: 0.1 */
MM_API void mm_evaluation_init(mm_evaluation *evaluation, size_t struct_size);

/**
 * The mean loss over a loader's rows, from the beginning of its first epoch, without dropout and auxiliary loss. The
 * loader stands afterwards where it stood.
 *
 * @param context      Planned for the loader's batches, with MM_OUT_LOSS. One that trains may be used: gradients stay
 * as they are, but a forward pass that waits for its mm_backward() is lost.
 * @param loader       Of text or conversations. With a `world` above 1 it is this rank's share that is measured: the
 * ranks' loss_sum and tokens are added up for the loss of all, which is none where all have 0 tokens.
 * @param max_batches  At most so many; 0: the whole epoch.
 *
 * @return MM_OK; MM_ERR_ARG; MM_ERR_STATE, a loader of prompts; MM_ERR_IO and MM_ERR_FORMAT, a bad row or, where they are
 * passed over and no other ranks share them, not one that can be read; MM_ERR_NUMERIC, a loss that is not finite;
 * MM_ERR_MEMORY; MM_ERR_CANCELLED. On failure `out` is as it was. Since: 0.1
 */
MM_API mm_status mm_evaluate_loss(mm_context *context, mm_loader *loader, int64_t max_batches, mm_evaluation *out);

/** How a text is read that is longer than the context. */
typedef struct mm_evaluate_text_options {
    size_t struct_size; /**< sizeof(mm_evaluate_text_options) */
    int32_t overlap;    /**< tokens of one window that begin the next one, where they are read but not counted again */
    int32_t bos_id;     /**< put before the text, so that its first token is foretold too; -1: none */
} mm_evaluate_text_options;
#define MM_EVALUATE_TEXT_OPTIONS_INIT { sizeof(mm_evaluate_text_options), 0, -1 }

/** Set every field of `options` to its default, of the first `struct_size` bytes. For bindings. Since: 0.1 */
MM_API void mm_evaluate_text_options_init(mm_evaluate_text_options *options, size_t struct_size);

/**
 * The mean loss over one text, cut into windows of the context's max_length, max_batch of them at a time. Each token
 * but the first is foretold once.
 *
 * @param context  Planned with MM_OUT_LOGPROBS.
 * @param text     `length` bytes of UTF-8. Special tokens in it are read as text.
 * @param options  NULL for the defaults.
 *
 * @return MM_OK; MM_ERR_ARG, also for text that is not UTF-8 or has nothing to foretell; MM_ERR_NUMERIC; MM_ERR_MEMORY;
 *         MM_ERR_CANCELLED. On failure `out` is as it was. Since: 0.1
 */
MM_API mm_status mm_evaluate_text(mm_context *context, const mm_tokenizer *tokenizer, const char *text, size_t length,
                                  const mm_evaluate_text_options *options, mm_evaluation *out);

/** One question that was answered; all is lent for the call. */
typedef struct mm_choice {
    size_t struct_size;     /**< sizeof(mm_choice) */
    int64_t row;            /**< of the data set */
    const double *sums;     /**< [count] log-probability of each ending, in nats */
    const double *per_byte; /**< [count] the same, divided by the ending's bytes */
    int32_t count;           /**< endings */
    int32_t answer;          /**< the right one */
    int32_t picked;          /**< the likeliest by `sums`; of equal ones the first */
    int32_t picked_per_byte; /**< … by `per_byte` */
} mm_choice;
#define MM_CHOICE_INIT { sizeof(mm_choice), 0, NULL, NULL, 0, 0, 0, 0 }

/** Set every field of `choice` to its default, of the first `struct_size` bytes. For bindings. Since: 0.1 */
MM_API void mm_choice_init(mm_choice *choice, size_t struct_size);

/** Called for each row in order; it may run the context. Non-zero gives up with MM_ERR_CANCELLED. */
typedef int32_t (*mm_choice_fn)(void *user, const mm_choice *choice);

/** How rows of questions are scored. */
typedef struct mm_choices_options {
    size_t struct_size;  /**< sizeof(mm_choices_options) */
    mm_choice_fn on_row; /**< NULL for none */
    void *user;          /**< handed to on_row */
    int64_t max_rows;    /**< at most so many; 0: all */
    int32_t bos_id;      /**< put before every prompt; -1: none */
    int32_t reserved;    /**< 0 */
} mm_choices_options;
#define MM_CHOICES_OPTIONS_INIT { sizeof(mm_choices_options), NULL, NULL, 0, -1, 0 }

/** Set every field of `options` to its default, of the first `struct_size` bytes. For bindings. Since: 0.1 */
MM_API void mm_choices_options_init(mm_choices_options *options, size_t struct_size);

/** How many were right. */
typedef struct mm_choices_result {
    size_t struct_size;       /**< sizeof(mm_choices_result) */
    double accuracy;          /**< share of rows whose likeliest ending is the right one */
    double accuracy_per_byte; /**< the same by log-probability per byte, which does not favour short endings */
    int64_t rows;             /**< rows that were read */
    int64_t correct;          /**< by the sum of log-probabilities */
    int64_t correct_per_byte; /**< by the mean per byte */
    int64_t cut; /**< endings whose prompt was too long for the context: its last part was kept */
} mm_choices_result;
#define MM_CHOICES_RESULT_INIT { sizeof(mm_choices_result), 0, 0, 0, 0, 0, 0 }

/** Set every field of `result` to its default, of the first `struct_size` bytes. For bindings. Since: 0.1 */
MM_API void mm_choices_result_init(mm_choices_result *result, size_t struct_size);

/**
 * Multiple choice by likelihood: rows {"prompt": "…", "choices": ["…", …], "answer": 0}, of which the model picks the
 * ending it finds likeliest behind the prompt. Prompt and ending are encoded each by itself; a space between the two
 * belongs to the ending.
 *
 * @param context  Planned with MM_OUT_LOGPROBS; endings are run max_batch at a time.
 * @param options  NULL for the defaults.
 *
 * @return MM_OK; MM_ERR_ARG; MM_ERR_IO; MM_ERR_FORMAT, a bad row: no prompt, no choices or an empty one, an answer that
 * is none of them, an ending too long for the context; MM_ERR_NUMERIC, a log-probability that is not finite;
 *         MM_ERR_MEMORY; MM_ERR_CANCELLED. On failure `out` is as it was. Since: 0.1
 */
MM_API mm_status mm_evaluate_choices(mm_context *context, const mm_tokenizer *tokenizer, mm_dataset *dataset,
                                     const mm_choices_options *options, mm_choices_result *out);

/** One prompt that was answered; all is lent for the call. */
typedef struct mm_prompt_answer {
    size_t struct_size;   /**< sizeof(mm_prompt_answer) */
    int64_t row;          /**< of the data set */
    const char *prompt;   /**< what the model was asked: the prompt, or what the last message says; NUL-terminated, so it
                               ends at a NUL that is in it */
    const char *answer;   /**< NUL-terminated */
    size_t answer_length; /**< bytes without that NUL */
    const char *missing;  /**< the first expected string that the answer lacks, likewise; NULL: it has all */
    int64_t tokens;       /**< that the answer took */
    int32_t passed;       /**< 1 or 0 */
    int32_t finish;       /**< MM_FINISH_… */
} mm_prompt_answer;
#define MM_PROMPT_ANSWER_INIT { sizeof(mm_prompt_answer), 0, NULL, NULL, 0, NULL, 0, 0, 0 }

/** Set every field of `answer` to its default, of the first `struct_size` bytes. For bindings. Since: 0.1 */
MM_API void mm_prompt_answer_init(mm_prompt_answer *answer, size_t struct_size);

/** Called for each row in order; it may run the context. Non-zero gives up with MM_ERR_CANCELLED. */
typedef int32_t (*mm_prompt_answer_fn)(void *user, const mm_prompt_answer *answer);

/** How prompts are answered. */
typedef struct mm_prompts_options {
    size_t struct_size;         /**< sizeof(mm_prompts_options) */
    mm_prompt_answer_fn on_row; /**< NULL for none */
    void *user;                 /**< handed to on_row */
    const char *template_name;  /**< of conversations, as in mm_chat_options; NULL: the tokenizer's own */
    mm_report *report;          /**< NULL, or one to be told: "prompts_passed", a share, and the answers of the first eight
                                     rows as texts */
    int64_t step;               /**< … at this step */
    int64_t max_rows;           /**< at most so many; 0: all */
    int32_t max_new_tokens;     /**< for rows that do not say; the context's max_context where that is less, which leaves a
                                     prompt its last token */
    int32_t bos_id;             /**< put before plain prompts; -1: none */
    int32_t thinking;           /**< MM_THINK_… of conversations */
    int32_t reserved;           /**< 0 */
} mm_prompts_options;
#define MM_PROMPTS_OPTIONS_INIT { sizeof(mm_prompts_options), NULL, NULL, NULL, NULL, 0, 0, 64, -1, MM_THINK_DEFAULT, 0 }

/** Set every field of `options` to its default, of the first `struct_size` bytes. For bindings. Since: 0.1 */
MM_API void mm_prompts_options_init(mm_prompts_options *options, size_t struct_size);

/** How many passed. */
typedef struct mm_prompts_result {
    size_t struct_size; /**< sizeof(mm_prompts_result) */
    int64_t rows;             /**< rows that were read */
    int64_t passed;           /**< rows whose answers held all that was expected */
    int64_t tokens; /**< generated */
    int64_t cut;    /**< prompts that were too long for the context: their last part was kept */
} mm_prompts_result;
#define MM_PROMPTS_RESULT_INIT { sizeof(mm_prompts_result), 0, 0, 0, 0 }

/** Set every field of `result` to its default, of the first `struct_size` bytes. For bindings. Since: 0.1 */
MM_API void mm_prompts_result_init(mm_prompts_result *result, size_t struct_size);

/**
 * Prompts whose answers must hold given strings: rows {"prompt": "…", "expect": ["…", …], "max_new_tokens": 64}, or
 * with "conversations" in place of the prompt, rendered as rows of MM_ROW_PROMPT. The likeliest token is always taken,
 * so a model that is not changed answers the same. An answer ends with the config's eos_token_id, or with <|im_end|>
 * where the config has none. A row passes when every expected string stands in its answer, byte by byte.
 *
 * @param context  Planned with MM_OUT_LAST_LOGITS; prompts are run max_batch at a time. A row's max_new_tokens are kept free
 * for its answer; of a prompt that is longer than what max_context leaves the last part is asked, and counted in `cut`.
 * @param options  NULL for the defaults.
 *
 * @return MM_OK, also when rows did not pass; MM_ERR_ARG; MM_ERR_STATE and MM_ERR_UNSUPPORTED, conversations and no
 * template that is known; MM_ERR_IO; MM_ERR_FORMAT, a bad row: neither or both of the two prompts, nothing expected, a
 * number of tokens that is no number or too large for the context; MM_ERR_NUMERIC, as of mm_generate(); MM_ERR_MEMORY;
 * MM_ERR_CANCELLED. On failure `out` is as it was. Since: 0.1
 */
MM_API mm_status mm_evaluate_prompts(mm_context *context, const mm_tokenizer *tokenizer, mm_dataset *dataset,
                                     const mm_prompts_options *options, mm_prompts_result *out);

#ifdef __cplusplus
}
#endif

#endif
