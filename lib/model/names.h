/* Names of tensors: from a name to its place in the layout, and from other programs' names to ours. */
#ifndef MMI_MODEL_NAMES_H
#define MMI_MODEL_NAMES_H

#include <stdbool.h>
#include <stddef.h>

#include "model/layout.h"

/* Room for any name of the layout. */
#define MMI_NAME_SIZE 128

/* A translated name has at most so many bytes more than the one it comes from. */
#define MMI_NAME_GROWTH 32

/* Index of the tensor with this name; -1 when there is none. */
int64_t mmi_name_find(const mmi_layout *layout, const char *name);

/* The same of a name in two parts, of which the first has `length` bytes. */
int64_t mmi_name_find_joined(const mmi_layout *layout, const char *text, size_t length, const char *ending);

/* A name as Mini-LLM writes it, turned into ours. False when it is none of that kind: `out` is then untouched. */
bool mmi_name_translate(char *out, size_t size, const char *name);

/* Tables that other programs save beside the weights, and that are computed here: accepted, not loaded. */
bool mmi_name_is_table(const char *name);

#endif
