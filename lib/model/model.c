#include "model/model.h"

#include <string.h>

#include "backend/strips.h"
#include "base/memory.h"
#include "base/random.h"
#include "model/convert.h"
#include "model/handle.h"
#include "model/names.h"

#define INIT_DEVIATION 0.02f

/* A fresh block is zeroed, so every tensor starts as float32 without a page being touched: the number of tensors comes
 * from a file that nobody has compared with any weights yet. */
_Static_assert(MM_F32 == 0, "a zeroed dtype is float32");

/* Cut the handle's block; with base NULL `carve` only measures. */
static mm_model *carve_handle(mmi_carve *carve, int64_t tensors, size_t maps)
{
    mm_model *model = mmi_carve_take(carve, 1, sizeof *model);
    const void **data = mmi_carve_take(carve, tensors, sizeof *data);
    _Atomic(void *) *shown = mmi_carve_take(carve, tensors, sizeof *shown);
    int32_t *dtypes = mmi_carve_take(carve, tensors, sizeof *dtypes);
    mmi_mapping *mappings = mmi_carve_take(carve, (int64_t)maps, sizeof *mappings);
    if (!carve->base)
        return NULL;
    model->data = data;
    model->shown = shown;
    model->dtypes = dtypes;
    model->maps = mappings;
    model->map_count = maps;
    return model;
}

/* Every row of a matrix that goes into blocks is to be whole blocks. */
static mm_status check_blocks(const mmi_layout *layout, int32_t dtype)
{
    for (int role = 0; role < MMI_ROLES; role++) {
        mmi_tensor tensor;
        mmi_layout_describe(layout, (mmi_role)role, &tensor);
        if (mmi_layout_times(layout, (mmi_role)role) == 0 || mmi_tensor_dtype(&tensor, dtype) != dtype ||
            tensor.shape[1] % MMI_BLOCK == 0)
            continue;
        char name[MMI_NAME_SIZE];
        mmi_layout_name(layout, mmi_layout_index(layout, (mmi_role)role, 0, 0), name, sizeof name);
        return mmi_fail(MM_ERR_UNSUPPORTED, "%s has rows of %lld numbers, which %s can't cut into blocks of %d", name,
                        (long long)tensor.shape[1], mm_dtype_name(dtype), MMI_BLOCK);
    }
    return MM_OK;
}

/* A vector is a matrix of one column. */
static size_t weight_bytes(const mmi_tensor *tensor, int32_t dtype)
{
    return mmi_matrix_bytes(dtype, tensor->shape[0], tensor->shape[1]);
}

/* Bytes of an arena for weights of `dtype`. */
static size_t weights_bytes(const mmi_layout *layout, int32_t dtype)
{
    size_t bytes = 0;
    for (int role = 0; role < MMI_ROLES; role++) {
        mmi_tensor tensor;
        mmi_layout_describe(layout, (mmi_role)role, &tensor);
        size_t one = mmi_align_up(weight_bytes(&tensor, mmi_tensor_dtype(&tensor, dtype)));
        bytes += (size_t)mmi_layout_times(layout, (mmi_role)role) * one;
    }
    return bytes;
}

/* The layout of a model that this machine can address. */
static mm_status lay_out(mmi_layout *layout, mmi_arch *arch, const mm_config *config)
{
    mm_status status = mmi_config_resolve(config, arch);
    if (status != MM_OK)
        return status;
    mmi_layout_create(layout, arch);
    if (mmi_layout_overflow(layout, MMI_MOST_HELD) != MMI_ROLES)
        return mmi_fail(MM_ERR_ARG, "a model with so many parameters is beyond this machine");
    return MM_OK;
}

mm_status mmi_model_estimate(const mm_config *config, int32_t dtype, bool weights_mapped, mmi_model_cost *out)
{
    mmi_arch arch;
    mmi_layout layout;
    mm_status status = lay_out(&layout, &arch, config);
    if (status != MM_OK)
        return status;
    if (mmi_block_bytes(dtype) > 0 && (status = check_blocks(&layout, dtype)) != MM_OK)
        return status;
    mmi_carve carve = { 0 };
    carve_handle(&carve, layout.count, weights_mapped ? 1 : 0);
    out->weights = weights_mapped ? 0 : weights_bytes(&layout, dtype);
    out->handle = carve.used + mmi_config_bytes(config);
    return MM_OK;
}

mm_status mmi_model_new(mm_model **out, const mm_config *config, size_t maps)
{
    mmi_arch arch;
    mmi_layout layout;
    mm_status status = lay_out(&layout, &arch, config);
    if (status != MM_OK)
        return status;
    mmi_carve carve = { 0 };
    carve_handle(&carve, layout.count, maps);
    carve.base = carve.overflow ? NULL : mmi_calloc(carve.used, 1);
    if (!carve.base)
        return mmi_fail_memory(carve.used, "a model's tables");
    carve.used = 0;
    mm_model *model = carve_handle(&carve, layout.count, maps);
    atomic_init(&model->holds, 1);
    atomic_init(&model->version, 0);
    model->arch = arch;
    mmi_layout_create(&model->layout, &model->arch);
    status = mm_config_copy(config, &model->config);
    if (status != MM_OK) {
        mm_model_free(model);
        return status;
    }
    *out = model;
    return MM_OK;
}

static size_t tensor_bytes(const mm_model *model, int64_t index)
{
    mmi_tensor tensor;
    mmi_layout_tensor(&model->layout, index, &tensor);
    return weight_bytes(&tensor, model->dtypes[index]);
}

mm_status mmi_model_place(mm_model *model)
{
    size_t total = 0;
    model->trainable = true;
    for (int64_t i = 0; i < model->layout.count; i++) {
        total += mmi_align_up(tensor_bytes(model, i));
        model->trainable = model->trainable && model->dtypes[i] == MM_F32;
    }
    model->arena = mmi_alloc(total, 1);
    if (!model->arena)
        return mmi_fail_memory(total, "a model's weights");
    unsigned char *next = model->arena;
    for (int64_t i = 0; i < model->layout.count; i++) {
        size_t bytes = tensor_bytes(model, i), room = mmi_align_up(bytes);
        model->data[i] = next;
        memset(next + bytes, 0, room - bytes);
        next += room;
    }
    return MM_OK;
}

void *mmi_model_room(const mm_model *model, int64_t index)
{
    return model->arena + ((const unsigned char *)model->data[index] - model->arena);
}

static void initialise(mm_model *model, int64_t index, uint64_t seed)
{
    mmi_tensor tensor;
    mmi_layout_tensor(&model->layout, index, &tensor);
    float *w = mmi_model_room(model, index);
    if (tensor.init == MMI_INIT_NORMAL) {
        mmi_random_normal(w, tensor.elements, INIT_DEVIATION, seed, MMI_STREAM(MMI_STREAM_INIT, index), 0);
        return;
    }
    for (int64_t i = 0; i < tensor.elements; i++)
        w[i] = tensor.init == MMI_INIT_ONE ? 1.0f : 0.0f;
}

mm_status mm_model_create(const mm_config *config, uint64_t seed, mm_model **out)
{
    if (!config || !out)
        return mmi_fail(MM_ERR_ARG, "mm_model_create: %s is NULL", config ? "out" : "config");
    mm_model *model = NULL;
    mm_status status = mmi_model_new(&model, config, 0);
    if (status == MM_OK)
        status = mmi_model_place(model);
    if (status != MM_OK) {
        mm_model_free(model);
        return status;
    }
    for (int64_t i = 0; i < model->layout.count; i++)
        initialise(model, i, seed);
    *out = model;
    return MM_OK;
}

/* A second model, of the same dtypes, or all of `dtype` when that is not negative. */
static mm_status duplicate(const mm_model *model, int32_t dtype, mm_model **out)
{
    mm_model *fresh = NULL;
    mm_status status = mmi_model_new(&fresh, model->config, 0);
    for (int64_t i = 0; status == MM_OK && i < fresh->layout.count; i++) {
        mmi_tensor tensor;
        mmi_layout_tensor(&fresh->layout, i, &tensor);
        fresh->dtypes[i] = dtype < 0 ? model->dtypes[i] : mmi_tensor_dtype(&tensor, dtype);
    }
    if (status == MM_OK)
        status = mmi_model_place(fresh);
    if (status != MM_OK) {
        mm_model_free(fresh);
        return status;
    }
    for (int64_t i = 0; i < fresh->layout.count; i++) {
        mmi_tensor tensor;
        mmi_layout_tensor(&fresh->layout, i, &tensor);
        mmi_convert_matrix(mmi_model_room(fresh, i), fresh->dtypes[i], model->data[i], model->dtypes[i],
                           tensor.shape[0], tensor.shape[1]);
    }
    *out = fresh;
    return MM_OK;
}

mm_status mm_model_copy(const mm_model *model, mm_model **out)
{
    if (!model || !out)
        return mmi_fail(MM_ERR_ARG, "mm_model_copy: %s is NULL", model ? "out" : "model");
    return duplicate(model, -1, out);
}

mm_status mm_model_cast(const mm_model *model, int32_t dtype, mm_model **out)
{
    if (!model || !out)
        return mmi_fail(MM_ERR_ARG, "mm_model_cast: %s is NULL", model ? "out" : "model");
    if (dtype != MM_F32 && dtype != MM_BF16 && dtype != MM_F16)
        return mmi_fail(MM_ERR_ARG, "mm_model_cast: dtype is %d (%s), weights may be f32, bf16 or f16", (int)dtype,
                        mm_dtype_name(dtype));
    return duplicate(model, dtype, out);
}

mm_status mm_model_quantize(const mm_model *model, int32_t dtype, mm_model **out)
{
    if (!model || !out)
        return mmi_fail(MM_ERR_ARG, "mm_model_quantize: %s is NULL", model ? "out" : "model");
    if (mmi_block_bytes(dtype) == 0)
        return mmi_fail(MM_ERR_ARG, "mm_model_quantize: dtype is %d (%s), must be q8_0 or q4_0", (int)dtype,
                        mm_dtype_name(dtype));
    mm_status status = check_blocks(&model->layout, dtype);
    return status == MM_OK ? duplicate(model, dtype, out) : status;
}

mm_model *mmi_model_hold(mm_model *model)
{
    atomic_fetch_add_explicit(&model->holds, 1, memory_order_relaxed);
    return model;
}

void mm_model_free(mm_model *model)
{
    if (!model || atomic_fetch_sub_explicit(&model->holds, 1, memory_order_acq_rel) != 1)
        return;
    for (size_t i = 0; i < model->map_count; i++)
        mmi_unmap_file(&model->maps[i]);
    for (int64_t i = 0; i < model->layout.count; i++)
        mmi_free(atomic_load_explicit(&model->shown[i], memory_order_relaxed));
    mmi_free(model->arena);
    mm_config_free(model->config);
    mmi_free(model);
}

const mm_config *mm_model_config(const mm_model *model)
{
    return model ? model->config : NULL;
}

const mmi_arch *mmi_model_arch(const mm_model *model)
{
    return &model->arch;
}

const mmi_layout *mmi_model_layout(const mm_model *model)
{
    return &model->layout;
}

int64_t mm_model_tensor_count(const mm_model *model)
{
    return model ? model->layout.count : 0;
}

static mm_status check_index(const mm_model *model, int64_t index, const mm_view *out, const char *function)
{
    if (!model || !out)
        return mmi_fail(MM_ERR_ARG, "%s: %s is NULL", function, model ? "out" : "model");
    if (index < 0 || index >= model->layout.count)
        return mmi_fail(MM_ERR_ARG, "%s: there is no tensor %lld, the model has %lld", function, (long long)index,
                        (long long)model->layout.count);
    return MM_OK;
}

/* A tensor in blocks as GGUF has it, made when it is first asked for: any number of threads may ask. */
static mm_status show_blocks(const mm_model *model, int64_t index, const mmi_tensor *tensor, void **out)
{
    _Atomic(void *) *shown = &model->shown[index];
    *out = atomic_load_explicit(shown, memory_order_acquire);
    if (*out)
        return MM_OK;
    const int32_t dtype = model->dtypes[index];
    size_t bytes = mmi_dtype_bytes(dtype, tensor->elements);
    void *fresh = mmi_alloc(bytes, 1);
    if (!fresh)
        return mmi_fail_memory(bytes, "a tensor's blocks");
    mmi_strips_unpack(fresh, model->data[index], dtype, tensor->shape[0], tensor->shape[1]);
    if (atomic_compare_exchange_strong_explicit(shown, out, fresh, memory_order_acq_rel, memory_order_acquire))
        *out = fresh;
    else
        mmi_free(fresh);
    return MM_OK;
}

static mm_status show(const mm_model *model, int64_t index, mm_view *out)
{
    mmi_tensor tensor;
    mmi_layout_tensor(&model->layout, index, &tensor);
    const int32_t dtype = model->dtypes[index];
    void *data = (void *)model->data[index]; /* who may write is told by the function that shows it */
    if (mmi_block_bytes(dtype) > 0) {
        mm_status status = show_blocks(model, index, &tensor, &data);
        if (status != MM_OK)
            return status;
    }
    memset(out, 0, sizeof *out);
    out->data = data;
    out->dtype = dtype;
    out->rank = tensor.rank;
    out->shape[0] = tensor.shape[0];
    out->shape[1] = tensor.shape[1]; /* 1 of a vector */
    out->shape[2] = out->shape[3] = 1;
    out->strides[0] = tensor.shape[1];
    out->strides[1] = tensor.rank == 2 ? 1 : 0;
    if (mmi_block_bytes(dtype) > 0) {
        out->strides[0] = tensor.shape[1] / MMI_BLOCK;
        out->strides[1] = 0;
    }
    return MM_OK;
}

mm_status mm_model_tensor(const mm_model *model, int64_t index, mm_view *out)
{
    mm_status status = check_index(model, index, out, "mm_model_tensor");
    return status == MM_OK ? show(model, index, out) : status;
}

mm_status mm_model_find(const mm_model *model, const char *name, mm_view *out)
{
    if (!model || !name || !out)
        return mmi_fail(MM_ERR_ARG, "mm_model_find: %s is NULL", !model ? "model" : name ? "out" : "name");
    int64_t index = mmi_name_find(&model->layout, name);
    if (index < 0)
        return mmi_fail(MM_ERR_ARG, "mm_model_find: the model has no tensor \"%.200s\"", name);
    return show(model, index, out);
}

mm_status mm_model_write(mm_model *model, int64_t index, mm_view *out)
{
    mm_status status = check_index(model, index, out, "mm_model_write");
    if (status != MM_OK)
        return status;
    if (!model->arena)
        return mmi_fail(MM_ERR_STATE, "mm_model_write: the weights are mapped from a file; mm_model_copy() gives some "
                                      "that can be written");
    return show(model, index, out);
}

void mm_model_written(mm_model *model)
{
    if (!model)
        return;
    for (int64_t i = 0; i < model->layout.count; i++) {
        mmi_tensor tensor;
        const void *blocks = atomic_load_explicit(&model->shown[i], memory_order_acquire);
        if (!blocks)
            continue;
        mmi_layout_tensor(&model->layout, i, &tensor);
        mmi_strips_pack(mmi_model_room(model, i), blocks, model->dtypes[i], tensor.shape[0], tensor.shape[1]);
    }
    atomic_fetch_add_explicit(&model->version, 1, memory_order_release);
}

uint64_t mmi_model_version(const mm_model *model)
{
    return atomic_load_explicit(&((mm_model *)model)->version, memory_order_acquire);
}

mmi_weight mmi_model_weight(const mm_model *model, int64_t index)
{
    mmi_weight weight = { NULL, MM_F32, 0, 0 };
    if (index < 0 || index >= model->layout.count)
        return weight;
    mmi_tensor tensor;
    mmi_layout_tensor(&model->layout, index, &tensor);
    weight.data = model->data[index];
    weight.dtype = model->dtypes[index];
    weight.rows = tensor.rank == 2 ? tensor.shape[0] : 1;
    weight.cols = tensor.rank == 2 ? tensor.shape[1] : tensor.shape[0];
    return weight;
}

bool mmi_model_can_train(const mm_model *model)
{
    return model->trainable;
}

float *mmi_model_trainable(mm_model *model, int64_t index)
{
    if (!model->trainable || index < 0 || index >= model->layout.count)
        return NULL;
    return mmi_model_room(model, index);
}
