/* A model as GGUF, the file of llama.cpp and of the programs built on it. */
#ifndef EXAMPLES_GGUF_H
#define EXAMPLES_GGUF_H

#include <minimind.h>

/* Write the model to a file, with the tokenizer and the chat template of `directory`, if it has any. Another GGUF of this
 * name is replaced once this one is whole. Returns the name of the architecture there. What those programs could not
 * run ends this one with a message, before anything is written. `eos_id` as of eos_of(). */
const char *gguf_write(const char *path, const mm_model *model, const char *directory, int32_t eos_id);

#endif
