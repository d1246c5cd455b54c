/**
 * @file tokenizer.h
 * Text to token ids and back: byte-level BPE, as Hugging Face's tokenizer.json describes it.
 *
 * Threads: a tokenizer never changes, so any number may use it; a decoder belongs to one stream.
 */
#ifndef MINIMIND_TOKENIZER_H
#define MINIMIND_TOKENIZER_H

#include <minimind/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Text to ids and back. */
typedef struct mm_tokenizer mm_tokenizer;
/** Ids to text one at a time, for streaming. */
typedef struct mm_decoder mm_decoder;

/**
 * Read a tokenizer.json of the byte-level BPE kind.
 *
 * @param path  The file, or a directory that holds a tokenizer.json (and perhaps a tokenizer_config.json and a
 *              chat_template.jinja, which are then kept and written back by mm_tokenizer_save()).
 * @param out   Yours: pair it with mm_tokenizer_free().
 *
 * @return MM_OK; MM_ERR_ARG; MM_ERR_IO; MM_ERR_MEMORY;
 *         MM_ERR_FORMAT, not JSON, or parts missing or contradicting each other (merges absent, a merge whose result
 *         is no token, an id twice, an added token that has another id in tokenizer_config.json);
 *         MM_ERR_UNSUPPORTED, another kind of tokenizer, or a normalizer or option that would change the ids, as a
 *         tokenizer_config.json with an added token of its own would.
 *         Since: 0.1
 */
MM_API mm_status mm_tokenizer_load(const char *path, mm_tokenizer **out);

/** As mm_tokenizer_load(), from `length` bytes of a tokenizer.json. Since: 0.1 */
MM_API mm_status mm_tokenizer_load_memory(const char *json, size_t length, mm_tokenizer **out);

/**
 * Write tokenizer.json, tokenizer_config.json and, if the tokenizer came with one, chat_template.jinja (another's is removed)
 * into `directory`, which is made if it is missing. Each file is replaced in one step, when all are written: where that
 * fails the old ones stand. Should the process end, or a file not take its place, between the first of these steps and
 * the last, there are files of both. Where only the directory's sync fails, at the end, the new ones stand.
 *
 * @return MM_OK; MM_ERR_ARG; MM_ERR_IO; MM_ERR_MEMORY. Since: 0.1
 */
MM_API mm_status mm_tokenizer_save(const mm_tokenizer *tokenizer, const char *directory);

/** NULL is fine. Since: 0.1 */
MM_API void mm_tokenizer_free(mm_tokenizer *tokenizer);

/** How many ids there are: 1 + the largest. Since: 0.1 */
MM_API int32_t mm_tokenizer_vocab_size(const mm_tokenizer *tokenizer);

/** The id of an added token by its content, such as "<|im_end|>", else of a vocabulary string; -1 if there is none. Since: 0.1 */
MM_API int32_t mm_tokenizer_find(const mm_tokenizer *tokenizer, const char *content);

/** 1 if `id` is an added token marked special, else 0. Since: 0.1 */
MM_API int32_t mm_tokenizer_is_special(const mm_tokenizer *tokenizer, int32_t id);

/**
 * Which added tokens mm_encode() recognises in the text. One that it doesn't recognise is text like any other, and no merge
 * makes a special token of it; only where a file marks a single byte's own token special, that byte is this token.
 */
enum {
    MM_SPLIT_ALL = 0,        /**< all, as upstream does */
    MM_SPLIT_NO_SPECIAL = 1, /**< not those marked special: for text from outside */
    MM_SPLIT_NONE = 2        /**< none */
};

/**
 * Text to ids. Nothing is added: no bos, no eos.
 *
 * @param text      `length` bytes of UTF-8; NUL is an ordinary character.
 * @param split     MM_SPLIT_…
 * @param ids       Room for `capacity` ids; NULL with capacity 0 only counts.
 * @param needed    How many ids the text has, also when they did not fit; may be NULL.
 *
 * @return MM_OK; MM_ERR_MEMORY;
 *         MM_ERR_ARG, not UTF-8 (the message has the byte offset), 2³⁰ bytes and more at once, a `split` that is none of these,
 *         or `capacity` too small (and not 0): nothing was written. Since: 0.1
 */
MM_API mm_status mm_encode(const mm_tokenizer *tokenizer, const char *text, size_t length, int32_t split, int32_t *ids,
                           size_t capacity, size_t *needed);

/**
 * Many texts to ids, across threads; each as mm_encode() would do it alone.
 *
 * @param texts     [count], of lengths[i] bytes each.
 * @param threads   At most so many; 0: as many as a context has (mm_context_options.threads).
 * @param ids       Room for `capacity` ids, those of all texts one after another; NULL with capacity 0 only counts.
 * @param starts    [count + 1], set: the ids of text i are ids[starts[i]] … ids[starts[i + 1] - 1]. Also set when they did
 *                  not fit.
 *
 * @return MM_OK; MM_ERR_MEMORY;
 *         MM_ERR_ARG, as mm_encode(), the message says which text; `ids` is then as it was. Since: 0.1
 */
MM_API mm_status mm_encode_batch(const mm_tokenizer *tokenizer, const char *const *texts, const size_t *lengths,
                                 size_t count, int32_t split, int32_t threads, int32_t *ids, size_t capacity,
                                 size_t *starts);

/**
 * Where tokens stand in the text they were encoded from: token i covers its bytes offsets[i] to offsets[i + 1] - 1. Tokens of
 * this kind cover a text without gaps; one may begin or end inside a character.
 *
 * @param ids      [count], as mm_encode() gave them.
 * @param offsets  [count + 1], set.
 *
 * @return MM_OK; MM_ERR_ARG, no such id: nothing was written; MM_ERR_MEMORY. Since: 0.1
 */
MM_API mm_status mm_token_offsets(const mm_tokenizer *tokenizer, const int32_t *ids, size_t count, size_t *offsets);

/**
 * Ids to UTF-8 text, without a closing NUL. Bytes that are not UTF-8 become U+FFFD, one for each maximal subpart.
 *
 * @param skip_special  Not 0: ids of special tokens are dropped before bytes are joined.
 * @param text          Room for `capacity` bytes; NULL with capacity 0 only counts.
 * @param needed        How many bytes the text has, also when they did not fit; may be NULL.
 *
 * @return MM_OK; MM_ERR_ARG, an id out of range, or `capacity` too small (and not 0): nothing was written;
 *         MM_ERR_MEMORY. Since: 0.1
 */
MM_API mm_status mm_decode(const mm_tokenizer *tokenizer, const int32_t *ids, size_t count, int32_t skip_special,
                           char *text, size_t capacity, size_t *needed);

/** As mm_decode(), but the tokens' bytes as they are, UTF-8 or not. Since: 0.1 */
MM_API mm_status mm_decode_bytes(const mm_tokenizer *tokenizer, const int32_t *ids, size_t count,
                                 int32_t skip_special, char *bytes, size_t capacity, size_t *needed);

/**
 * A decoder for ids that arrive one by one; it never gives half a character.
 *
 * @param tokenizer     Kept alive by the decoder.
 * @param skip_special  As mm_decode() takes it.
 * @param out           Yours: pair it with mm_decoder_free().
 *
 * @return MM_OK; MM_ERR_ARG; MM_ERR_MEMORY. Since: 0.1
 */
MM_API mm_status mm_decoder_create(mm_tokenizer *tokenizer, int32_t skip_special, mm_decoder **out);

/** NULL is fine. Since: 0.1 */
MM_API void mm_decoder_free(mm_decoder *decoder);

/**
 * Take one id and give all text that is certain by now; often none.
 *
 * @param text    Set to the text, with a closing NUL behind it; lent until the decoder's next call.
 * @param length  Its bytes without that NUL; may be NULL.
 *
 * @return MM_OK; MM_ERR_ARG, no such id: nothing was changed; MM_ERR_MEMORY. Since: 0.1
 */
MM_API mm_status mm_decoder_push(mm_decoder *decoder, int32_t id, const char **text, size_t *length);

/** End the stream: what was waiting, as U+FFFD. The decoder is then as new. Since: 0.1 */
MM_API mm_status mm_decoder_flush(mm_decoder *decoder, const char **text, size_t *length);

/** Hands out the training text piece by piece: sets `text` and `length` (lent until the next call) and returns 1; 0 at
 *  the end; any other number, such as -1, to give up with MM_ERR_CANCELLED. Each piece is cut into words on its own. */
typedef int32_t (*mm_text_fn)(void *user, const char **text, size_t *length);

/** Told how far training is: merges made, of at most `total`. Non-zero gives up with MM_ERR_CANCELLED. */
typedef int32_t (*mm_progress_fn)(void *user, int64_t done, int64_t total);

/** How a vocabulary is learnt. */
typedef struct mm_tokenizer_train_options {
    size_t struct_size;                /**< sizeof(mm_tokenizer_train_options) */
    mm_text_fn next_text;              /**< where the text comes from */
    mm_progress_fn on_progress;        /**< NULL for none */
    void *user;                        /**< handed to both */
    const char *const *special_tokens; /**< [special_count]; they take the first ids, and no pair is merged that spells one.
                                            NULL: MiniMind's three, <|endoftext|> <|im_start|> <|im_end|> */
    int32_t special_count;             /**< of special_tokens */
    int32_t vocab_size;                /**< at most so many ids, special tokens and the 256 bytes included */
    int64_t min_frequency;             /**< pairs seen less often are not merged; at least 1 */
} mm_tokenizer_train_options;
#define MM_TOKENIZER_TRAIN_OPTIONS_INIT { sizeof(mm_tokenizer_train_options), NULL, NULL, NULL, NULL, 0, 6400, 1 }

/** Set every field of `options` to its default, of the first `struct_size` bytes. For bindings. Since: 0.1 */
MM_API void mm_tokenizer_train_options_init(mm_tokenizer_train_options *options, size_t struct_size);

/**
 * Learn a byte-level BPE from text: the most frequent pair is merged first, of equal ones that with the lowest left
 * id, then the lowest right id. The same text gives the same tokenizer.
 *
 * @param out  Yours: pair it with mm_tokenizer_free().
 *
 * @return MM_OK (also when the text ran out of pairs early); MM_ERR_ARG, a size out of range, a special token twice, empty,
 *         or what tokenizer.json writes for another byte ("Ġ" for a space), or a piece of text that is not UTF-8 or has 2³⁰
 *         bytes and more; MM_ERR_MEMORY; MM_ERR_CANCELLED. Since: 0.1
 */
MM_API mm_status mm_tokenizer_train(const mm_tokenizer_train_options *options, mm_tokenizer **out);

#ifdef __cplusplus
}
#endif

#endif
