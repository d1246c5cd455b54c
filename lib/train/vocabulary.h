/* What tells one tokenizer from another: a run that goes on must meet the same ids. */
#ifndef MMI_TRAIN_VOCABULARY_H
#define MMI_TRAIN_VOCABULARY_H

#include <minimind/tokenizer.h>

/* Of every token's bytes, in order. Fails only with MM_ERR_MEMORY. */
mm_status mmi_vocabulary_hash(uint64_t *out, const mm_tokenizer *tokenizer);

/* Of how it cuts a text into them: its merges, in order, and its added tokens. */
uint64_t mmi_cutting_hash(const mm_tokenizer *tokenizer);

#endif
