/* A tokenizer from the inside: how it is built, and what encoding and decoding read. */
#ifndef MMI_TEXT_TOKENIZER_H
#define MMI_TEXT_TOKENIZER_H

#include <stdatomic.h>

#include <minimind/tokenizer.h>

#include "text/added.h"
#include "text/chat_template.h"
#include "text/merge.h"
#include "text/pieces.h"
#include "text/strings.h"

/* Ids are below this, so that one wild number in a file can't ask for gigabytes. */
#define MMI_TOKEN_LIMIT (1 << 22)
#define MMI_TEXT_LIMIT (UINT32_MAX / 4) /* bytes of text at once, which are symbols to merge */

enum {
    MMI_TOKEN_VOCAB = 1,     /* a string of the vocabulary */
    MMI_TOKEN_ADDED = 2,     /* an added token; many are in the vocabulary too */
    MMI_TOKEN_SPECIAL = 4,   /* an added token marked special */
    MMI_TOKEN_NORMALIZED = 8 /* an added token that is looked for behind a normalizer, of which there is none */
};

typedef struct mmi_token {
    size_t bytes_at;     /* into token_bytes */
    uint32_t bytes_size; /* what it decodes to */
    uint32_t string;     /* its number in `strings` */
    uint32_t kind;       /* MMI_TOKEN_…; 0: no token has this id */
} mmi_token;

struct mm_tokenizer {
    atomic_int holds;
    int32_t vocab_size;
    mmi_token *tokens;    /* [vocab_size] */
    mmi_strings strings;  /* every token as tokenizer.json writes it */
    int32_t *string_ids;  /* [strings.count] */
    size_t string_ids_room;
    char *token_bytes;
    size_t longest;       /* bytes of the longest token */
    int32_t byte_ids[256];
    mmi_merges merges;
    mmi_strings whole;    /* pieces that merge into one token … */
    int32_t *whole_ids;   /* … and which: [whole.count] */
    size_t whole_longest;
    mmi_added added;
    mmi_splitter *splitter;
    char *config;         /* tokenizer_config.json as it was read, or NULL */
    size_t config_length;
    mmi_chat_template chat;
};

/* Building, in this order: create, tokens, merges, finish. Each failure leaves what mm_tokenizer_free() can free. */

/* Room for ids below `vocab_size` and at most `merge_count` merges. */
mm_status mmi_tokenizer_create(mm_tokenizer **out, size_t vocab_size, size_t merge_count);

/* One string of the vocabulary, or one added token (MMI_TOKEN_ADDED, perhaps the two behind). MM_ERR_FORMAT: the id
 * is another token's, or the string has another id. */
mm_status mmi_tokenizer_add(mm_tokenizer *t, int32_t id, uint32_t kind, const char *text, size_t size);

/* The next merge. The ids are of vocabulary strings. MM_ERR_FORMAT: the pair has one already. */
mm_status mmi_tokenizer_add_merge(mm_tokenizer *t, int32_t left, int32_t right, int32_t result);

/* Everything that follows from the tokens and merges. */
mm_status mmi_tokenizer_finish(mm_tokenizer *t);

/* The id of a vocabulary string (added tokens that are not in the vocabulary don't count), or -1. */
int32_t mmi_tokenizer_find_vocab(const mm_tokenizer *t, const char *text, size_t size);

static inline const char *mmi_token_string(const mm_tokenizer *t, int32_t id, size_t *size)
{
    return mmi_strings_get(&t->strings, t->tokens[id].string, size);
}

/* *total: the tokens' bytes, of which three times as many can be addressed, else MM_ERR_MEMORY. MM_ERR_ARG: no such id.
 * `name`, a function, begins the message. */
mm_status mmi_tokens_size(size_t *total, const char *name, const mm_tokenizer *t, const int32_t *ids, size_t count,
                          int32_t skip_special);

/* MM_ERR_ARG unless `split` is one of MM_SPLIT_…; `what` begins the message: "mm_encode: split". */
mm_status mmi_check_split(int32_t split, const char *what);

/* Handles that build on a tokenizer hold it. mm_tokenizer_free() drops one hold. Thread-safe. */
mm_tokenizer *mmi_tokenizer_hold(mm_tokenizer *t);

#endif
