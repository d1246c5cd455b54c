#include "run/cache.h"

#include "base/memory.h"

#define MOST_SEQUENCES (1 << 20)

bool mmi_cache_bytes(const mmi_arch *a, int64_t sequences, int64_t capacity, size_t *data, size_t *handle)
{
    mmi_carve carve = { 0 };
    int64_t per_token;
    if (__builtin_mul_overflow(a->L * 2, a->G * a->D, &per_token) ||
        __builtin_mul_overflow(per_token, sequences * capacity, &per_token))
        return false;
    mmi_carve_take(&carve, per_token, sizeof(float));
    *data = carve.used;
    *handle = sizeof(mm_cache) + (size_t)sequences * sizeof(int32_t);
    return !carve.overflow;
}

mm_status mm_cache_create(mm_model *model, int32_t sequences, int32_t capacity, mm_cache **out)
{
    if (!model || !out)
        return mmi_fail(MM_ERR_ARG, "mm_cache_create: model or out is NULL");
    const mmi_arch *a = mmi_model_arch(model);
    if (sequences < 1 || sequences > MOST_SEQUENCES)
        return mmi_fail(MM_ERR_ARG, "sequences is %d, must be from 1 to %d", sequences, MOST_SEQUENCES);
    if (capacity < 1 || capacity > a->max_positions)
        return mmi_fail(MM_ERR_ARG, "capacity is %d, must be from 1 to max_position_embeddings, %lld", capacity,
                        (long long)a->max_positions);
    size_t data, handle;
    if (!mmi_cache_bytes(a, sequences, capacity, &data, &handle))
        return mmi_fail(MM_ERR_ARG, "a cache of %d sequences of %d tokens is beyond this machine", sequences, capacity);
    mm_cache *cache = mmi_calloc(1, handle);
    if (!cache)
        return mmi_fail_memory(handle, "a cache");
    cache->data = mmi_alloc(1, data);
    if (!cache->data) {
        mmi_free(cache);
        return mmi_fail_memory(data, "a cache");
    }
    cache->model = mmi_model_hold(model);
    cache->sequences = sequences;
    cache->capacity = capacity;
    cache->width = a->G * a->D;
    cache->layer_stride = 2 * cache->sequences * cache->capacity * cache->width;
    *out = cache;
    return MM_OK;
}

void mm_cache_free(mm_cache *cache)
{
    if (!cache)
        return;
    mm_model_free(cache->model);
    mmi_free(cache->data);
    mmi_free(cache);
}

int32_t mm_cache_length(const mm_cache *cache, int32_t sequence)
{
    if (!cache || sequence < 0 || sequence >= cache->sequences)
        return -1;
    return cache->lengths[sequence];
}

mm_status mm_cache_truncate(mm_cache *cache, int32_t sequence, int32_t length)
{
    if (!cache)
        return mmi_fail(MM_ERR_ARG, "mm_cache_truncate: cache is NULL");
    if (sequence < -1 || sequence >= cache->sequences)
        return mmi_fail(MM_ERR_ARG, "sequence is %d, the cache has %lld", sequence, (long long)cache->sequences);
    int64_t first = sequence < 0 ? 0 : sequence, last = sequence < 0 ? cache->sequences : sequence + 1;
    for (int64_t i = first; i < last; i++)
        if (length < 0 || length > cache->lengths[i])
            return mmi_fail(MM_ERR_ARG, "length is %d, sequence %lld holds %d tokens", length, (long long)i,
                            cache->lengths[i]);
    for (int64_t i = first; i < last; i++)
        cache->lengths[i] = length;
    return MM_OK;
}
