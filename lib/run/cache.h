/* The key/value cache from the inside. */
#ifndef MMI_RUN_CACHE_H
#define MMI_RUN_CACHE_H

#include <stdatomic.h>

#include <minimind/generate.h>

#include "backend/kernels.h"
#include "base/dtype.h"
#include "model/model.h"

struct mm_cache {
    mm_model *model; /* held */
    int64_t sequences, capacity;
    int64_t G, D;
    int32_t dtype;       /* MM_F32, MM_BF16 or MM_Q8_0 */
    atomic_int busy;     /* mm_generate() continues it */
    unsigned char *data; /* [L, 2, sequences, G, capacity, D]: one head's past of one sequence is contiguous */
    int32_t *ids;        /* [sequences, capacity] what was read; -1: not known, of a file from before there were any */
    int32_t lengths[];   /* [sequences]; the ids lie behind them */
};

static inline int32_t *mmi_cache_ids(const mm_cache *cache, int64_t sequence)
{
    return cache->ids + sequence * cache->capacity;
}

/* Where a token's key (side 0) or value (side 1) of a head lies: D numbers, those of the next tokens behind them. */
static inline unsigned char *mmi_cache_at(const mm_cache *cache, int64_t layer, int side, int64_t sequence,
                                          int64_t head, int64_t token)
{
    int64_t row = ((layer * 2 + side) * cache->sequences + sequence) * cache->G + head;
    return cache->data + mmi_dtype_bytes(cache->dtype, (row * cache->capacity + token) * cache->D);
}

/* Put `count` tokens of one head, rows `ld` floats apart, behind the `past` that are there. */
void mmi_cache_store(const mmi_kernels *k, mm_cache *cache, int64_t layer, int side, int64_t sequence, int64_t head,
                     int64_t past, int64_t count, const float *from, int64_t ld);

/* One sequence's first tokens over another's, for which there is room. */
void mmi_cache_copy(mm_cache *to, int64_t to_sequence, const mm_cache *from, int64_t from_sequence, int32_t length);

/* MM_ERR_STATE where mm_generate() continues it: for those that would change it, as from a callback. */
mm_status mmi_cache_check_free(const mm_cache *cache);

/* Whether keys and values can be kept as `dtype`; `name` is the option's, for the message. */
mm_status mmi_cache_check_dtype(const mmi_arch *arch, int32_t dtype, const char *name);

/* The two blocks that mm_cache_create() takes for a dtype that was checked; MM_ERR_ARG for sizes out of range. `prefix`
 * is what the options' names begin with, for the message. */
mm_status mmi_cache_measure(const mmi_arch *arch, const char *prefix, int32_t sequences, int32_t capacity,
                            int32_t dtype, size_t *data, size_t *handle);

#endif
