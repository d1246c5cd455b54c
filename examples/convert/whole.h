/* A file that has its name once it is whole; one at a time. Whatever fails ends the program with a message, and leaves
 * what was there before. */
#ifndef EXAMPLES_WHOLE_H
#define EXAMPLES_WHOLE_H

#include <stdbool.h>
#include <stddef.h>

/* Whether a file can be read, and begins so. */
bool begins_with(const char *path, const char bytes[4]);

/* What is there may be replaced if it begins with the same four bytes, but neither a model's weights nor anything else.
 * `kind` is what a message calls such a file. */
void whole_begin(const char *path, const char bytes[4], const char *kind);
void whole_write(const void *bytes, size_t count);
void whole_end(void);

/* Give it up for another reason. */
_Noreturn void whole_fail(const char *message);

#endif
