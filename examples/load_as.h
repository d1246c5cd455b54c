/* A model from a directory, its weights in the numbers that a program was asked for. */
#ifndef EXAMPLES_LOAD_AS_H
#define EXAMPLES_LOAD_AS_H

#include <minimind.h>

/* `dtype`: "f32", "bf16", "q8_0" or "q4_0"; NULL: as they are stored. */
mm_status load_as(const char *directory, const char *dtype, mm_model **out);

#endif
