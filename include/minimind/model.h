/**
 * @file model.h
 * The weights of one config, under their Hugging Face names.
 *
 * Threads: any number may read a model; training and mm_model_write() need it to themselves. Handles that were made
 * from a model keep it alive: any order of `free` is safe.
 */
#ifndef MINIMIND_MODEL_H
#define MINIMIND_MODEL_H

#include <minimind/config.h>
#include <minimind/view.h>

#ifdef __cplusplus
extern "C" {
#endif

/** The weights of one config. */
typedef struct mm_model mm_model;

/**
 * A new model with random weights: matrices normal with deviation 0.02, norms 1, biases 0, all float32.
 *
 * A weight depends on the seed, its tensor and its place alone, never on threads or other tensors.
 *
 * @param config  Copied.
 * @param out     Yours: pair it with mm_model_free().
 *
 * @return MM_OK; MM_ERR_ARG; MM_ERR_MEMORY; what mm_config_validate() refuses. Since: 0.1
 */
MM_API mm_status mm_model_create(const mm_config *config, uint64_t seed, mm_model **out);

/** How to load a model. */
typedef struct mm_load_options {
    size_t struct_size; /**< sizeof(mm_load_options) */
    int32_t map;        /**< 1: leave the weights in the file, mapped read-only. The file must not be shortened or
                             rewritten while the model lives. Such a model cannot be trained. A quantized model is read
                             into memory all the same, as products want its blocks in another order. */
    int32_t keep_dtype; /**< 1: keep bf16 and f16 as they are; 0: turn them into float32. Mapping implies 1. Blocks stay
                             blocks. */
} mm_load_options;
#define MM_LOAD_OPTIONS_INIT { sizeof(mm_load_options), 0, 0 }

/** Set every field of `options` to its default, of the first `struct_size` bytes. For bindings. Since: 0.1 */
MM_API void mm_load_options_init(mm_load_options *options, size_t struct_size);

/**
 * Load a Hugging Face model directory: config.json with model.safetensors, or with the shards that
 * model.safetensors.index.json names. Weights may be F32, BF16 or F16, or those of a quantized model, as mm_model_save()
 * writes them.
 *
 * @param directory  Where it is.
 * @param options    NULL for the defaults.
 * @param out        Yours: pair it with mm_model_free().
 *
 * @return MM_OK; MM_ERR_ARG; MM_ERR_IO; MM_ERR_MEMORY;
 *         MM_ERR_FORMAT, a damaged file, or a tensor that is missing, unknown, twice there, or of another shape;
 *         MM_ERR_UNSUPPORTED, a dtype or an architecture that the library does not run, blocks of more than one kind, or
 *         of some matrices only; or, with `map`, a file whose tensors do not lie at multiples of their elements' size:
 *         without `map` it loads. Since: 0.1
 */
MM_API mm_status mm_model_load(const char *directory, const mm_load_options *options, mm_model **out);

/**
 * Weights from a safetensors image in memory, for a config at hand. The bytes are copied.
 *
 * @return as mm_model_load(). Since: 0.1
 */
MM_API mm_status mm_model_load_memory(const mm_config *config, const void *data, size_t size, mm_model **out);

/**
 * Write config.json and model.safetensors into `directory`, which is made if it is missing. Each file is replaced in
 * one step, when both are written: a reader never sees half a file, and on failure the old ones stand. Where only the
 * directory's sync fails, at the end, the new ones do; a process that ends between the two steps leaves the new weights
 * beside the old config. What killed processes left of earlier saves goes. Where the config has a "torch_dtype" or a
 * "dtype", the file says there what the weights are.
 *
 * The matrices of a quantized model are U8 to safetensors, which has no dtype for blocks: [rows, bytes of a row's blocks],
 * in GGUF's order, as mm_model_tensor() shows them. mm_model_load() reads them; for other programs they are marked as not
 * being PyTorch's.
 *
 * @return MM_OK; MM_ERR_ARG; MM_ERR_IO (a full disk too); MM_ERR_MEMORY. Since: 0.1
 */
MM_API mm_status mm_model_save(const mm_model *model, const char *directory);

/** A second model with the same weights, in memory of its own; yours. Since: 0.1 */
MM_API mm_status mm_model_copy(const mm_model *model, mm_model **out);

/** A second model with the weights turned into `dtype`: MM_F32, MM_BF16 or MM_F16 (to nearest, ties to even); yours. Since: 0.1 */
MM_API mm_status mm_model_cast(const mm_model *model, int32_t dtype, mm_model **out);

/**
 * A second model whose matrices, embeddings and head included, are in blocks of 32 numbers with one scale: a quarter
 * (MM_Q8_0) or an eighth (MM_Q4_0) of the memory that float32 takes and, decoding, about as much less time. Vectors and
 * the router of experts stay float32. It is for evaluation and generation: products with it quantize what they multiply
 * to 8 bits as well, or, many rows on a processor with AMX, round both to bf16. mm_model_cast() gives its weights back
 * as float32.
 *
 * @param dtype  MM_Q8_0 or MM_Q4_0.
 * @param out    Yours: pair it with mm_model_free().
 *
 * A scale is a float16: numbers above 8 · 10⁶ (MM_Q8_0) or 5 · 10⁵ (MM_Q4_0) become infinite or NaN, as GGUF has it.
 *
 * @return MM_OK; MM_ERR_ARG; MM_ERR_MEMORY; MM_ERR_UNSUPPORTED, a matrix whose rows are not whole blocks. Since: 0.1
 */
MM_API mm_status mm_model_quantize(const mm_model *model, int32_t dtype, mm_model **out);

/** Give the model back; its memory goes with the last handle that uses it. NULL is fine. Since: 0.1 */
MM_API void mm_model_free(mm_model *model);

/** Its config, lent until the model is freed. Since: 0.1 */
MM_API const mm_config *mm_model_config(const mm_model *model);

/** How many tensors it has; mm_layout_get() describes each. Since: 0.1 */
MM_API int64_t mm_model_tensor_count(const mm_model *model);

/**
 * Look at a tensor, by index or by name. The view is lent until the model is freed; it is for reading. Products read
 * blocks in an order of their own, so looking at a quantized tensor for the first time makes a copy of it, which stays.
 *
 * @return MM_OK; MM_ERR_ARG, no such tensor; MM_ERR_MEMORY, no room for such a copy. Since: 0.1
 */
MM_API mm_status mm_model_tensor(const mm_model *model, int64_t index, mm_view *out);
MM_API mm_status mm_model_find(const mm_model *model, const char *name, mm_view *out);

/**
 * Open a tensor for writing. Say mm_model_written() when done, before anything runs, saves, copies or casts the model
 * again.
 *
 * @return MM_OK; MM_ERR_ARG, no such tensor; MM_ERR_STATE, the weights are mapped from a file; MM_ERR_MEMORY, as for
 *         mm_model_tensor(). Since: 0.1
 */
MM_API mm_status mm_model_write(mm_model *model, int64_t index, mm_view *out);
MM_API void mm_model_written(mm_model *model);

#ifdef __cplusplus
}
#endif

#endif
