/* A model from a directory, its weights in the numbers that a program was asked for. */
#ifndef EXAMPLES_LOAD_AS_H
#define EXAMPLES_LOAD_AS_H

#include <minimind.h>

/* `dtype`: "f32", "bf16", "q8_0" or "q4_0"; NULL: as they are stored. */
mm_status load_as(const char *directory, const char *dtype, mm_model **out);

/* Another model with the weights of `model` in numbers of that name. */
mm_status turn_into(const char *name, const mm_model *model, mm_model **out);

/* For mm_context_options.compute: weights in bf16 meet rows rounded to bf16, as is usual, which processors that multiply
 * such numbers do about twice as fast; all others meet them in float32. */
int32_t compute_for(const mm_model *model);

/* What --bos puts before texts. */
int32_t bos_of(const mm_model *model);

/* What ends an answer: the config's eos or, where it has none, as in what MiniMind-3 exports for other programs, the
 * tokenizer's <|im_end|>, with which every turn ends. `tokenizer` may be NULL. -1: nothing. */
int32_t eos_of(const mm_model *model, const mm_tokenizer *tokenizer);

/* The most tokens that a model can look back on, its max_position_embeddings. */
int32_t positions_of(const mm_model *model);

/* The tokens to make behind a prompt, --max-new-tokens (NAN: not given) or else `usual`, or what there is room for where
 * that is less: prompt and answer have a position each. Fails where there is not so much room. */
int32_t new_tokens_of(const mm_model *model, int32_t prompt_length, double wanted, int32_t usual);

#endif
