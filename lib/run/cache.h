/* The key/value cache from the inside. */
#ifndef MMI_RUN_CACHE_H
#define MMI_RUN_CACHE_H

#include <minimind/generate.h>

#include "model/model.h"

struct mm_cache {
    mm_model *model; /* held */
    int64_t sequences, capacity;
    int64_t width;        /* G * D: floats per token and side */
    int64_t layer_stride; /* floats between a layer's keys and the next layer's: 2 * sequences * capacity * width */
    float *data;          /* [L, 2, sequences, capacity, G, D]: one layer's past of one sequence is contiguous */
    int32_t lengths[];    /* [sequences] */
};

/* Keys (side 0) or values (side 1) of a layer: [sequences, capacity, G, D]. */
static inline float *mmi_cache_side(const mm_cache *cache, int64_t layer, int side)
{
    return cache->data + layer * cache->layer_stride + side * (cache->layer_stride / 2);
}

/* What mm_cache_create() takes. False: it overflows. */
bool mmi_cache_bytes(const mmi_arch *arch, int64_t sequences, int64_t capacity, size_t *data, size_t *handle);

#endif
