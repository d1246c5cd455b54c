/* The safetensors files of a model directory: one, or those that an index names. */
#ifndef MMI_MODEL_SHARDS_H
#define MMI_MODEL_SHARDS_H

#include <stdbool.h>
#include <stddef.h>

#include "model/safetensors.h"

typedef struct mmi_shards {
    mmi_st_file *files; /* [count] */
    size_t count;
    char *what;         /* the one file, or the index: for messages about the whole */
} mmi_shards;

/* Open model.safetensors, else the files of model.safetensors.index.json: plain names in the same directory, and each
 * tensor in the one that the index says. `map`: mapped, else read. On failure *out is untouched. */
mm_status mmi_shards_open(mmi_shards *out, const char *directory, bool map);

/* Fine on zeroed ones. */
void mmi_shards_close(mmi_shards *shards);

#endif
