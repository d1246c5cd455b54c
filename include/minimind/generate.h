/**
 * @file generate.h
 * Continuing token sequences: the key/value cache and the sampling loop. Ids only; text is the tokenizer's.
 */
#ifndef MINIMIND_GENERATE_H
#define MINIMIND_GENERATE_H

#include <minimind/context.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * Room for the keys and values of `sequences` sequences of at most `capacity` tokens each.
 *
 * @param model  Kept alive by the cache.
 * @param dtype  What they are kept as: MM_F32; MM_BF16, half the memory; MM_Q8_0, about a quarter, where head_dim is a
 *               multiple of 32. Attention reads any of them as it lies; what is lost is the rounding, but for keys and
 *               values above 8 · 10⁶, which MM_Q8_0 has as little as in weights: they become infinite or NaN.
 * @param out    Yours: pair it with mm_cache_free().
 *
 * @return MM_OK; MM_ERR_ARG, a size out of range (capacity beyond max_position_embeddings too) or no such dtype here;
 *         MM_ERR_MEMORY.
 *
 * Threads: a cache is used by one call at a time. Since: 0.1
 */
MM_API mm_status mm_cache_create(mm_model *model, int32_t sequences, int32_t capacity, int32_t dtype, mm_cache **out);

/** NULL is fine. Since: 0.1 */
MM_API void mm_cache_free(mm_cache *cache);

/** Tokens that sequence `sequence` holds; -1 if there is no such sequence. Since: 0.1 */
MM_API int32_t mm_cache_length(const mm_cache *cache, int32_t sequence);

/** What the cache was made with; of NULL 0, 0 and -1. Since: 0.1 */
MM_API int32_t mm_cache_sequences(const mm_cache *cache);
MM_API int32_t mm_cache_capacity(const mm_cache *cache);
MM_API int32_t mm_cache_dtype(const mm_cache *cache);

/**
 * Forget all but the first `length` tokens of a sequence; of every sequence when `sequence` is -1.
 *
 * @return MM_OK; MM_ERR_ARG, no such sequence, or it is shorter than that; MM_ERR_STATE, mm_generate() continues the cache.
 *         Since: 0.1
 */
MM_API mm_status mm_cache_truncate(mm_cache *cache, int32_t sequence, int32_t length);

/**
 * Give one sequence the beginning of another, so that what both share is read once: a system prompt for many chats, a
 * prompt for many samples.
 *
 * @param to             The cache to copy to; may be `from` itself.
 * @param to_sequence    What it held is gone; the one that is copied from, in one cache, stays as it is. -1: every sequence of
 *                       `to`, except that one.
 * @param from           Of the same model and dtype; its capacity and number of sequences may differ.
 * @param from_sequence  Stays as it is.
 * @param length         Tokens from its start; -1: all it holds.
 *
 * @return MM_OK; MM_ERR_ARG, no such sequence, more tokens than it holds or than `to` has room for, other model or dtype;
 *         MM_ERR_STATE, mm_generate() continues `to`. It allocates nothing. Since: 0.1
 */
MM_API mm_status mm_cache_fork(mm_cache *to, int32_t to_sequence, const mm_cache *from, int32_t from_sequence,
                               int32_t length);

/**
 * Write a cache to a file, replaced in one step, that mm_cache_load() reads: a long prompt then need not be read again
 * when a program starts. It holds the tokens and their ids only, not the room behind them.
 *
 * @return MM_OK; MM_ERR_ARG; MM_ERR_IO; MM_ERR_MEMORY. Since: 0.1
 */
MM_API mm_status mm_cache_save(const mm_cache *cache, const char *path);

/**
 * A cache as mm_cache_save() left it: sequences, capacity, dtype and tokens. A file of before there were ids in it is taken,
 * and its tokens are none that a repetition_penalty counts.
 *
 * @param model  Must have the weights that made it, in the same dtype; the beginning of every tensor is compared, and what of
 *               the config keys and values depend on. Adapters are not compared: set those again that were set. Kept
 *               alive by the cache.
 * @param out    Yours: pair it with mm_cache_free().
 *
 * @return MM_OK; MM_ERR_ARG, another model; MM_ERR_FORMAT, not a cache, damaged, or of another shape than the model's;
 *         MM_ERR_IO; MM_ERR_MEMORY. Since: 0.1
 */
MM_API mm_status mm_cache_load(mm_model *model, const char *path, mm_cache **out);

/**
 * How the next token is drawn from logits, in this order: repetition penalty, temperature, top-k, top-p, min-p.
 * Ties go to the lower id. Each token's random number depends on the seed, the sequence's number and its position alone;
 * the company a sequence has in its batch can change its tokens only through the last digits of its logits, or, with
 * weights in blocks on a processor with AMX, through a pass of 64 tokens or more, which is rounded to bf16.
 */
typedef struct mm_sampling {
    size_t struct_size;       /**< sizeof(mm_sampling) */
    uint64_t seed;            /**< of the draws: same seed, options and build, same tokens */
    float temperature;        /**< 0 picks the likeliest token */
    float top_p;              /**< in (0, 1]: the smallest set of likeliest tokens with at least this much probability */
    float min_p;              /**< in [0, 1]: at least this share of the likeliest token's probability */
    float repetition_penalty; /**< > 0; 1: none. Logits of tokens seen are divided by it, or times it if negative: those that a
                                   caller's cache holds, those of the prompt, and those made since */
    int64_t top_k;            /**< the likeliest k tokens; 0: all */
} mm_sampling;
#define MM_SAMPLING_INIT { sizeof(mm_sampling), 0, 0.85f, 0.85f, 0, 1, 0 }

/** Set every field of `sampling` to its default, of the first `struct_size` bytes. For bindings. Since: 0.1 */
MM_API void mm_sampling_init(mm_sampling *sampling, size_t struct_size);

/** Why a sequence ended. */
enum {
    MM_FINISH_LENGTH = 0,  /**< max_new_tokens were made, or the context is full */
    MM_FINISH_STOP = 1,    /**< a stop id was drawn; it is not part of the result */
    MM_FINISH_CALLBACK = 2 /**< a callback returned non-zero; the token that on_token saw is part of the result */
};

/** Called with each new token, in order of sequences within a step. Non-zero ends that sequence. Of the context that
 *  generates it may call mm_cancel() and what only looks at it (mm_grad(), mm_expert_load()): other calls are MM_ERR_STATE, as
 *  are those that would change the cache that is continued. */
typedef int32_t (*mm_token_fn)(void *user, int32_t sequence, int32_t id, float logprob);

/** Called with the logits [vocab_size] of a sequence's next token before it is drawn, which it may change: add to them what
 *  shall come more or less often, or set them to -INFINITY for what must not come, as a grammar says. They are this sequence's
 *  own, before penalty and temperature; log-probabilities are of what it leaves. `ids` [count] are the tokens that this call
 *  has made for the sequence so far. In order of sequences within a step. Non-zero ends that sequence with nothing drawn.
 *  Of the context it may call what mm_token_fn may. */
typedef int32_t (*mm_logits_fn)(void *user, int32_t sequence, const int32_t *ids, int32_t count, float *logits,
                                int32_t vocab_size);

/** What to continue, and how. */
typedef struct mm_generate_options {
    size_t struct_size;            /**< sizeof(mm_generate_options) */
    const int32_t *const *prompts; /**< [sequences] pointers to ids; not those of the context's last result, which is overwritten */
    const int32_t *prompt_lengths; /**< [sequences], each at least 1 */
    const int32_t *stop_ids;       /**< [stop_count]; NULL: the config's eos_token_id */
    const mm_sampling *sampling;   /**< NULL for the defaults. Sequence i draws from stream i of the seed */
    mm_cache *cache;               /**< NULL, or one whose first sequences are continued: then prompts hold the new tokens only */
    mm_token_fn on_token;          /**< NULL for none */
    void *user;                    /**< handed to on_token and on_logits */
    int32_t sequences;             /**< at most the context's max_batch */
    int32_t stop_count;            /**< with stop_ids; 0 and stop_ids not NULL: nothing stops */
    int32_t max_new_tokens;        /**< per sequence, at least 1 */
    int32_t cache_dtype;           /**< of the context's own cache, where `cache` is NULL: as mm_cache_create() takes it */
    mm_logits_fn on_logits;        /**< NULL for none */
} mm_generate_options;
#define MM_GENERATE_OPTIONS_INIT { sizeof(mm_generate_options), NULL, NULL, NULL, NULL, NULL, NULL, NULL, 1, 0, 128, 0, NULL }

/** Set every field of `options` to its default, of the first `struct_size` bytes. For bindings. Since: 0.1 */
MM_API void mm_generate_options_init(mm_generate_options *options, size_t struct_size);

/** What was made; the arrays are lent by the context until its next call. */
typedef struct mm_generate_result {
    size_t struct_size;            /**< sizeof(mm_generate_result) */
    const int32_t *ids;            /**< those of sequence i begin at ids + i * stride; there are lengths[i] */
    const float *logprobs;         /**< likewise: of what on_logits leaves, at temperature 1, before penalty and filters */
    const int32_t *lengths;        /**< [sequences] */
    const int32_t *finish;         /**< [sequences] MM_FINISH_… */
    int64_t stride;                /**< max_new_tokens, or what the context can hold if that is less */
    const int32_t *stops;          /**< [sequences] the stop id that ended it, where it was one; else -1 */
    const float *stop_logprobs;    /**< [sequences] as `logprobs`, of that id; else 0. A policy learns when to stop, too */
} mm_generate_result;
#define MM_GENERATE_RESULT_INIT { sizeof(mm_generate_result), NULL, NULL, NULL, NULL, 0, NULL, NULL }

/** Set every field of `result` to its default, of the first `struct_size` bytes. For bindings. Since: 0.1 */
MM_API void mm_generate_result_init(mm_generate_result *result, size_t struct_size);

/**
 * Continue prompts, each as if it were alone.
 *
 * Prompts are read in chunks of at most the context's max_length; what is fed of prompt and new tokens together may reach the
 * context's max_context (the last token drawn is never fed, and so may be one more). A context planned with MM_OUT_LAST_LOGITS
 * is needed. A caller's cache then holds the prompts and all that was drawn but the last of each sequence, which has not been
 * fed yet: to go on, begin the next prompt with it. That is the last new token or, of MM_FINISH_STOP, the stop id: all new
 * tokens are in the cache then. So they are of a sequence that on_logits ended, for which nothing was drawn in the end.
 *
 * @return MM_OK; MM_ERR_ARG; MM_ERR_STATE, no last logits were planned, or another call runs on the context or the cache;
 *         MM_ERR_MEMORY; MM_ERR_NUMERIC, logits are not finite, or the penalty makes them so, or on_logits leaves no token, a
 *         NaN or +INFINITY; MM_ERR_CANCELLED. On failure a caller's cache is cut back to where it stood. Since: 0.1
 */
MM_API mm_status mm_generate(mm_context *context, const mm_generate_options *options, mm_generate_result *result);

#ifdef __cplusplus
}
#endif

#endif
