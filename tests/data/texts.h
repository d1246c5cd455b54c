/* Files and a tokenizer for tests that read rows. */
#ifndef MM_TESTS_DATA_TEXTS_H
#define MM_TESTS_DATA_TEXTS_H

#include "support.h"

/* Write `size` bytes to `name` in a directory; the path is static until the next call. */
const char *put_file(const char *directory, const char *name, const char *bytes, size_t size);

/* A file of `rows` rows {"text": …} with words of their own, of lengths 1 to `longest` words. */
const char *put_rows(const char *directory, const char *name, int rows, int longest, unsigned seed);

/* A text function for mm_tokenizer_train() that has none. */
int32_t no_text(void *user, const char **text, size_t *length);

/* Bytes and MiniMind's three special tokens, no merges: 259 ids. */
mm_tokenizer *byte_tokenizer(void);

/* The id that byte_tokenizer() gives a printable ASCII character. */
int32_t id_of(char c);

#endif
