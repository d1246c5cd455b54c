/* Which tokens may follow: a shape is a matter of bytes, and a model draws tokens of several, which begin and end
 * anywhere. */
#ifndef EXAMPLES_MASK_H
#define EXAMPLES_MASK_H

#include "shape.h"

#include <minimind.h>

typedef struct mask mask;

/* For a model of `vocab_size` ids, whose texts `eos` ends; -1: nothing does. Both that it's made of are kept and must
 * outlive it. It prices the shape; what the tokens can't spell ends the program with a message. */
mask *mask_create(const mm_tokenizer *tokenizer, shape *s, int32_t vocab_size, int32_t eos);
void mask_free(mask *m);

/* Tokens that surely suffice to end the text, from where it is. */
int64_t mask_tokens_to_end(const mask *m);

/* Take away all tokens that can't follow, and those behind which `left` more might not suffice to end the text; says
 * how many are kept. As long as `left` was enough before, one is always kept until the text may end. */
int32_t mask_logits(mask *m, int64_t left, float *logits, int32_t vocab_size);

/* Go on by the token that was drawn. False: nothing can follow, or it didn't fit. */
bool mask_take(mask *m, int32_t id);

#endif
