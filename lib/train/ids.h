/* Ids that grow, from text and back to it. */
#ifndef MMI_TRAIN_IDS_H
#define MMI_TRAIN_IDS_H

#include <stddef.h>
#include <stdint.h>

#include <minimind/tokenizer.h>

/* Ids end to end; zeroed, it is empty. */
typedef struct mmi_ids {
    int32_t *data; /* [count] */
    size_t count, room;
} mmi_ids;

mm_status mmi_ids_add(mmi_ids *ids, int32_t id);
/* Text from outside: special tokens in it are text. MM_ERR_ARG: not UTF-8. */
mm_status mmi_ids_add_text(mmi_ids *ids, const mm_tokenizer *tokenizer, const char *text, size_t length);
/* A text to go on from, behind `bos_id` where that is not -1. MM_ERR_ARG: that makes no ids, or is not UTF-8. */
mm_status mmi_ids_add_prompt(mmi_ids *ids, const mm_tokenizer *tokenizer, int32_t bos_id, const char *text,
                             size_t length);
void mmi_ids_free(mmi_ids *ids);

/* Bytes that each id stands for, 0 for special ones and those that are none: [vocab_size]. mmi_free it. */
mm_status mmi_token_sizes(int32_t **out, const mm_tokenizer *tokenizer);

/* Those of ids that the tokenizer has, into out [count]; how many. A model's vocabulary may be larger, and what it
 * draws there has no text. */
int64_t mmi_ids_with_text(int32_t *out, const mm_tokenizer *tokenizer, const int32_t *ids, int64_t count);

/* What ends an answer: the config's eos, or where it has none (-1) the tokenizer's <|im_end|>, with which turns end in
 * every template that is known. -1: nothing. */
int32_t mmi_stop_id(int64_t eos_id, const mm_tokenizer *tokenizer);

/* The text of those ids, with special tokens or without, from byte `at` of a buffer that grows; NUL-terminated behind
 * its `length` bytes. */
mm_status mmi_decode_grow(char **text, size_t *room, size_t at, size_t *length, const mm_tokenizer *tokenizer,
                          const int32_t *ids, int64_t count, int32_t skip_special);

#endif
