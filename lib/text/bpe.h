/* Learning merges from counted words. */
#ifndef MMI_TEXT_BPE_H
#define MMI_TEXT_BPE_H

#include <minimind/tokenizer.h>

#include "text/merge.h"
#include "text/strings.h"

/* The words of a text and how often each occurs: all that learning needs of it. Zeroed: none. */
typedef struct mmi_words {
    mmi_strings strings; /* as bytes */
    int64_t *counts;     /* [strings.count] */
    size_t counts_room;
} mmi_words;
bool mmi_words_add(mmi_words *words, const char *text, size_t size);
void mmi_words_free(mmi_words *words);

/* A vocabulary in the making. */
typedef struct mmi_bpe {
    mmi_strings tokens;    /* a string's number is its id */
    size_t special_count;  /* the first of them */
    int32_t byte_ids[256];
    mmi_merge *merges;     /* [merge_count] */
    int64_t *merge_counts; /* [merge_count]: how often the pair stood in the text when it was merged */
    size_t merge_count, merges_room, counts_room;
} mmi_bpe;

/* The special tokens, then the 256 bytes. MM_ERR_ARG: a special token is empty, there twice, not UTF-8, or how a byte is
 * written that isn't this character. */
mm_status mmi_bpe_begin(mmi_bpe *bpe, const char *const *special_tokens, size_t special_count);

/* Merge the most frequent pair, of equal ones that with the lowest left id, then the lowest right id, until there are
 * `vocab_size` tokens or no pair occurs `min_frequency` times. A pair that spells a special token is passed over. */
mm_status mmi_bpe_learn(mmi_bpe *bpe, const mmi_words *words, size_t vocab_size, int64_t min_frequency,
                        mm_progress_fn on_progress, void *user);
void mmi_bpe_free(mmi_bpe *bpe);

#endif
