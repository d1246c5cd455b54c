/* A model from GGUF, the file of llama.cpp and of the programs built on it. */
#ifndef EXAMPLES_GGUF_READ_H
#define EXAMPLES_GGUF_READ_H

#include <stdbool.h>

#include "gguf_file.h"


/* The model of a `llama`, `qwen3` or `qwen3moe`, with weights as they are stored, if all matrices are in the same numbers;
 * else in float32. What is damaged, or another model, ends the program with a message. */
mm_model *gguf_read(const gguf_file *file);

/* tokenizer.json and tokenizer_config.json in `directory`, which is there, of the file's tokenizer, if it has one. What
 * could not be cut into the same tokens here ends the program with a message. */
void gguf_read_words(const gguf_file *file, const char *directory);

#endif
