#include "run/cache.h"

#include <string.h>

#include "base/memory.h"

#define MOST_SEQUENCES (1 << 20)

mm_status mmi_cache_check_dtype(const mmi_arch *a, int32_t dtype, const char *name)
{
    if (dtype != MM_F32 && dtype != MM_BF16 && dtype != MM_Q8_0)
        return mmi_fail(MM_ERR_ARG, "%s is %d (%s), a cache may be f32, bf16 or q8_0", name, dtype,
                        mm_dtype_name(dtype));
    if (dtype == MM_Q8_0 && a->D % MMI_BLOCK != 0)
        return mmi_fail(MM_ERR_ARG, "%s is q8_0, which needs a head_dim that is a multiple of %d; it is %lld", name,
                        MMI_BLOCK, (long long)a->D);
    return MM_OK;
}

mm_status mmi_cache_measure(const mmi_arch *a, const char *prefix, int32_t sequences, int32_t capacity, int32_t dtype,
                            size_t *data, size_t *handle)
{
    if (sequences < 1 || sequences > MOST_SEQUENCES)
        return mmi_fail(MM_ERR_ARG, "%ssequences is %d, must be from 1 to %d", prefix, sequences, MOST_SEQUENCES);
    if (capacity < 1 || capacity > a->max_positions)
        return mmi_fail(MM_ERR_ARG, "%scapacity is %d, must be from 1 to max_position_embeddings, %lld", prefix,
                        capacity, (long long)a->max_positions);
    mmi_carve carve = { 0 };
    int64_t elements;
    carve.overflow = __builtin_mul_overflow(a->L * 2, a->G * a->D, &elements) ||
                     __builtin_mul_overflow(elements, (int64_t)sequences * capacity, &elements);
    size_t block = mmi_block_bytes(dtype);
    if (!carve.overflow)
        mmi_carve_take(&carve, block > 0 ? elements / MMI_BLOCK : elements, block > 0 ? block : mm_dtype_size(dtype));
    if (carve.overflow)
        return mmi_fail(MM_ERR_ARG, "a cache of %d sequences of %d tokens is beyond this machine", sequences, capacity);
    *data = carve.used;
    *handle = sizeof(mm_cache) + (size_t)sequences * ((size_t)capacity + 1) * sizeof(int32_t);
    return MM_OK;
}

mm_status mm_cache_create(mm_model *model, int32_t sequences, int32_t capacity, int32_t dtype, mm_cache **out)
{
    if (!model || !out)
        return mmi_fail(MM_ERR_ARG, "mm_cache_create: model or out is NULL");
    const mmi_arch *a = mmi_model_arch(model);
    size_t data, handle;
    mm_status status = mmi_cache_check_dtype(a, dtype, "dtype");
    if (status == MM_OK)
        status = mmi_cache_measure(a, "", sequences, capacity, dtype, &data, &handle);
    if (status != MM_OK)
        return status;
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
    cache->dtype = dtype;
    cache->G = a->G;
    cache->D = a->D;
    cache->ids = cache->lengths + sequences;
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

void mmi_cache_store(const mmi_kernels *k, mm_cache *cache, int64_t layer, int side, int64_t sequence, int64_t head,
                     int64_t past, int64_t count, const float *from, int64_t ld)
{
    unsigned char *to = mmi_cache_at(cache, layer, side, sequence, head, past);
    size_t row = mmi_dtype_bytes(cache->dtype, cache->D);
    for (int64_t i = 0; i < count; i++)
        if (cache->dtype == MM_F32)
            memcpy(to + (size_t)i * row, from + i * ld, row);
        else
            k->narrow(to + (size_t)i * row, from + i * ld, cache->dtype, cache->D);
}

int32_t mm_cache_length(const mm_cache *cache, int32_t sequence)
{
    if (!cache || sequence < 0 || sequence >= cache->sequences)
        return -1;
    return cache->lengths[sequence];
}

int32_t mm_cache_sequences(const mm_cache *cache)
{
    return cache ? (int32_t)cache->sequences : 0;
}

int32_t mm_cache_capacity(const mm_cache *cache)
{
    return cache ? (int32_t)cache->capacity : 0;
}

int32_t mm_cache_dtype(const mm_cache *cache)
{
    return cache ? cache->dtype : -1;
}

mm_status mmi_cache_check_free(const mm_cache *cache)
{
    return atomic_load(&cache->busy) ? mmi_fail(MM_ERR_STATE, "the cache is in use: mm_generate() continues it") : MM_OK;
}

mm_status mm_cache_truncate(mm_cache *cache, int32_t sequence, int32_t length)
{
    if (!cache)
        return mmi_fail(MM_ERR_ARG, "mm_cache_truncate: cache is NULL");
    if (mmi_cache_check_free(cache) != MM_OK)
        return MM_ERR_STATE;
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

void mmi_cache_copy(mm_cache *to, int64_t to_sequence, const mm_cache *from, int64_t from_sequence, int32_t length)
{
    size_t bytes = mmi_dtype_bytes(from->dtype, length * from->D);
    for (int64_t l = 0; l < mmi_model_arch(from->model)->L; l++)
        for (int64_t g = 0; g < 2 * from->G; g++)
            memcpy(mmi_cache_at(to, l, (int)(g / from->G), to_sequence, g % from->G, 0),
                   mmi_cache_at(from, l, (int)(g / from->G), from_sequence, g % from->G, 0), bytes);
    memcpy(mmi_cache_ids(to, to_sequence), mmi_cache_ids(from, from_sequence), (size_t)length * sizeof(int32_t));
    to->lengths[to_sequence] = length;
}

mm_status mm_cache_fork(mm_cache *to, int32_t to_sequence, const mm_cache *from, int32_t from_sequence, int32_t length)
{
    if (!to || !from)
        return mmi_fail(MM_ERR_ARG, "mm_cache_fork: to or from is NULL");
    if (mmi_cache_check_free(to) != MM_OK)
        return MM_ERR_STATE;
    if (to->model != from->model)
        return mmi_fail(MM_ERR_ARG, "mm_cache_fork: the two caches were made for different models");
    if (to->dtype != from->dtype)
        return mmi_fail(MM_ERR_ARG, "mm_cache_fork: one cache is %s, the other %s", mm_dtype_name(from->dtype),
                        mm_dtype_name(to->dtype));
    if (from_sequence < 0 || from_sequence >= from->sequences)
        return mmi_fail(MM_ERR_ARG, "from_sequence is %d, the cache has %lld", from_sequence,
                        (long long)from->sequences);
    if (to_sequence < -1 || to_sequence >= to->sequences)
        return mmi_fail(MM_ERR_ARG, "to_sequence is %d, the cache has %lld", to_sequence, (long long)to->sequences);
    int32_t held = from->lengths[from_sequence];
    if (length < -1 || length > held)
        return mmi_fail(MM_ERR_ARG, "length is %d, sequence %d holds %d tokens", length, from_sequence, held);
    if (length < 0)
        length = held;
    if (length > to->capacity)
        return mmi_fail(MM_ERR_ARG, "length is %d, the cache to copy to has room for %lld tokens", length,
                        (long long)to->capacity);
    int64_t first = to_sequence < 0 ? 0 : to_sequence, last = to_sequence < 0 ? to->sequences : to_sequence + 1;
    for (int64_t i = first; i < last; i++)
        if (to == from && i == from_sequence)
            continue; /* is already what it would become, and may hold more */
        else
            mmi_cache_copy(to, i, from, from_sequence, length);
    return MM_OK;
}
