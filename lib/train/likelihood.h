/* What evaluations share: ids that grow, the log-probability of stretches of them, and the bytes that tokens stand for.
 */
#ifndef MMI_TRAIN_LIKELIHOOD_H
#define MMI_TRAIN_LIKELIHOOD_H

#include <stdint.h>

#include <minimind/context.h>
#include <minimind/tokenizer.h>

#include "base/json.h"

/* Ids end to end; zeroed, it is empty. */
typedef struct mmi_ids {
    int32_t *data; /* [count] */
    size_t count, room;
} mmi_ids;

mm_status mmi_ids_add(mmi_ids *ids, int32_t id);
/* Text from outside: special tokens in it are text. MM_ERR_ARG: not UTF-8. */
mm_status mmi_ids_add_text(mmi_ids *ids, const mm_tokenizer *tokenizer, const char *text, size_t length);
void mmi_ids_free(mmi_ids *ids);

/* A stretch of ids whose part from `from` on is scored, given all before it; 1 <= from < count <= max_length + 1. */
typedef struct mmi_stretch {
    size_t start; /* into mmi_ids.data */
    int32_t count, from;
    double sum; /* set: log-probability of ids [from, count), in nats */
} mmi_stretch;

/* Score all items, max_batch at a time, in their order: which of them run together does not depend on threads.
 * MM_ERR_NUMERIC: a sum that is not finite. */
mm_status mmi_likelihood(mm_context *context, const mmi_ids *ids, mmi_stretch *items, size_t count);

/* The context's limits: tokens per sequence and pass. MM_ERR_ARG if it was not planned with `output` (MM_OUT_…), called
 * `name`. */
mm_status mmi_likelihood_check(const char *who, const mm_context *context, int32_t output, const char *name);

/* Bytes that each id stands for, 0 for special ones and those that are none: [vocab_size]. mmi_free it. */
mm_status mmi_token_sizes(int32_t **out, const mm_tokenizer *tokenizer);

/* MM_ERR_ARG unless every id of the tokenizer is one of the model's, and `bos_id` -1 or one of both. */
mm_status mmi_likelihood_check_ids(const char *who, const mm_context *context, const mm_tokenizer *tokenizer,
                                   int32_t bos_id);

/* Those of ids that the tokenizer has, into out [count]; how many. A model's vocabulary may be larger, and what it
 * draws there has no text. */
int64_t mmi_ids_with_text(int32_t *out, const mm_tokenizer *tokenizer, const int32_t *ids, int64_t count);

/* The text of those ids, without special tokens, in a buffer that grows; NUL-terminated behind its `length` bytes. */
mm_status mmi_decode_grow(char **text, size_t *room, size_t *length, const mm_tokenizer *tokenizer, const int32_t *ids,
                          size_t count);

/* A list of strings under `key`, at least one, none empty. MM_ERR_FORMAT without file and line. */
mm_status mmi_row_strings(mmi_json **list, const mmi_json *row, const char *key);

#endif
