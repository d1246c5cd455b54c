/* Weights in memory as an image of safetensors, which the library checks against a config as it does a file. What other
 * formats hold becomes one. */
#ifndef EXAMPLES_IMAGE_H
#define EXAMPLES_IMAGE_H

#include <minimind.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "grown.h"

typedef struct image {
    grown header, numbers;
} image;

/* Describe a tensor whose `size` bytes are put to image->numbers next. `dtype` is safetensors' name of its numbers; of
 * blocks "U8", with a shape of bytes. False: no weight has such a name. */
bool image_describe(image *to, const char *name, const char *dtype, const int64_t *shape, size_t rank, uint64_t size);

/* The model of the image, which is freed, with weights in `dtype`: MM_F32, what they all have been before or, of blocks,
 * what they are. What does not go with the config ends the program with a message that begins with the name of `file`. */
mm_model *image_model(image *from, const char *file, const mm_config *config, int32_t dtype);

/* The adapter of the image, likewise. */
mm_adapter *image_adapter(image *from, const char *file, mm_model *model);

#endif
