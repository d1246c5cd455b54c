/**
 * @file adapter.h
 * Low-rank adapters (LoRA; Hu et al., 2021): a small thing to learn beside a model that stays as it is.
 *
 * Beside a matrix W [out, in] of the model stand A [rank, in] and B [out, rank]; where the model computes W x, a context
 * with the adapter computes W x + alpha/rank · B (A x). A begins random and B as 0, so a new adapter changes nothing.
 *
 *     mm_adapter_create(model, &options, &adapter);             or mm_adapter_load()
 *     context_options.adapter = adapter;                        a context that trains it: see mm_context_options
 *     mm_context_set_adapters(ctx, &adapter, NULL, 1);          or one that runs with it, or with several
 *     mm_adapter_save(adapter, "directory");                    the adapter alone, as PEFT lays it out
 *     mm_adapter_merge(model, &adapter, NULL, 1, &merged);      or a model that needs no adapter any more
 *
 * Threads: any number may read an adapter; training and mm_adapter_write() need it to themselves. It keeps its model
 * alive, and handles made from it keep it alive: any order of `free` is safe.
 */
#ifndef MINIMIND_ADAPTER_H
#define MINIMIND_ADAPTER_H

#include <minimind/model.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Low-rank additions to some matrices of a model. */
typedef struct mm_adapter mm_adapter;

/** What a new adapter is like. */
typedef struct mm_adapter_options {
    size_t struct_size;  /**< sizeof(mm_adapter_options) */
    const char *targets; /**< which matrices of the layers are adapted: see below; NULL: the attention's, that is
                              "q_proj,k_proj,v_proj,o_proj" */
    uint64_t seed;       /**< of A */
    double alpha;        /**< > 0: what B A x is multiplied by, over the rank */
    double dropout;      /**< in [0, 1), of what A reads, in training */
    int32_t rank;        /**< at least 1 */
    int32_t reserved;    /**< 0 */
} mm_adapter_options;
#define MM_ADAPTER_OPTIONS_INIT { sizeof(mm_adapter_options), NULL, 0, 16, 0, 8, 0 }

/** Set every field of `options` to its default, of the first `struct_size` bytes. For bindings. Since: 0.1 */
MM_API void mm_adapter_options_init(mm_adapter_options *options, size_t struct_size);

/**
 * A new adapter for a model.
 *
 * `targets` are patterns, separated by commas, over the names of the layers' projections, experts' included
 * ("model.layers.0.self_attn.q_proj", "model.layers.0.mlp.experts.3.down_proj"): a `*` stands for any characters, and a
 * pattern also means names that end in a dot and it. So "q_proj,v_proj", "model.layers.0.*", "mlp.*", and "*" (or
 * "all-linear") for all of them. The embedding, the head, the norms and a router of experts have no adapters.
 *
 * The word "minimind" alone asks for MiniMind's own rule: every projection with as many inputs as outputs, no alpha
 * (the factor is 1), and A normal with deviation 0.02. Else A is uniform in ±1/√in, as PEFT's.
 *
 * @param model    Kept alive by the adapter. Of any dtype, mapped or not; it is never written.
 * @param options  Copied, strings included; NULL for the defaults.
 * @param out      Yours: pair it with mm_adapter_free().
 *
 * @return MM_OK; MM_ERR_ARG, a number out of range, or a pattern that means nothing in this model; MM_ERR_MEMORY.
 *         Since: 0.1
 */
MM_API mm_status mm_adapter_create(mm_model *model, const mm_adapter_options *options, mm_adapter **out);

/** Give it back; its memory goes with the last handle that uses it. NULL is fine. Since: 0.1 */
MM_API void mm_adapter_free(mm_adapter *adapter);

/** The model it was made for, lent. Since: 0.1 */
MM_API mm_model *mm_adapter_model(const mm_adapter *adapter);

/** What it was made with, or what its file says; `targets` is lent. @return MM_OK; MM_ERR_ARG. Since: 0.1 */
MM_API mm_status mm_adapter_describe(const mm_adapter *adapter, mm_adapter_options *out);

/** How many tensors it has: an A and a B for every matrix, in the model's order. Since: 0.1 */
MM_API int64_t mm_adapter_tensor_count(const mm_adapter *adapter);

/** How many numbers are in them. Since: 0.1 */
MM_API int64_t mm_adapter_count_params(const mm_adapter *adapter);

/**
 * The name of a tensor, "model.layers.0.self_attn.q_proj.lora_A.weight", ended by a NUL.
 *
 * @param out       Room for `capacity` bytes; NULL with 0 only asks.
 * @param needed    Bytes that the name takes, the NUL included; NULL if nobody asks.
 *
 * @return MM_OK; MM_ERR_ARG, no such tensor, or too little room (`needed` is told). Since: 0.1
 */
MM_API mm_status mm_adapter_name(const mm_adapter *adapter, int64_t index, char *out, size_t capacity, size_t *needed);

/**
 * Look at a tensor, float32 [rank, in] or [out, rank], by index or by name. The view is lent until the adapter is freed;
 * it is for reading.
 *
 * @return MM_OK; MM_ERR_ARG, no such tensor. Since: 0.1
 */
MM_API mm_status mm_adapter_tensor(const mm_adapter *adapter, int64_t index, mm_view *out);
MM_API mm_status mm_adapter_find(const mm_adapter *adapter, const char *name, mm_view *out);

/**
 * Open a tensor for writing. Say mm_adapter_written() when done, before anything runs with the adapter again.
 *
 * @return MM_OK; MM_ERR_ARG, no such tensor. Since: 0.1
 */
MM_API mm_status mm_adapter_write(mm_adapter *adapter, int64_t index, mm_view *out);
MM_API void mm_adapter_written(mm_adapter *adapter);

/**
 * An adapter from a file, for the model at hand.
 *
 * @param path  A directory as PEFT writes it (adapter_config.json, adapter_model.safetensors; F32, BF16 or F16); or a
 *              safetensors file alone, whose tensors may have PEFT's names ("base_model.model.….lora_A.weight") or
 *              MiniMind's ("….lora.A.weight"): its names say what it adapts, and the factor is 1 unless its metadata
 *              has a lora_alpha, as mm_adapter_save() writes it.
 * @param out   Yours: pair it with mm_adapter_free().
 *
 * @return MM_OK; MM_ERR_ARG; MM_ERR_IO; MM_ERR_MEMORY; MM_ERR_FORMAT, a damaged file, one for a model of other shapes or
 *         names, or a config with another lora_alpha than these weights were saved with, where they say so;
 *         MM_ERR_UNSUPPORTED, a kind of adapter that is not run here (the message names the key): DoRA, rank-stabilised
 *         factors, biases, ranks by pattern, targets by regular expression, PiSSA and other beginnings that change the model's
 *         weights. Since: 0.1
 */
MM_API mm_status mm_adapter_load(mm_model *model, const char *path, mm_adapter **out);

/**
 * Write adapter_config.json and adapter_model.safetensors into `directory`, which is made if it is missing, as PEFT reads
 * them. The files are replaced as by mm_model_save().
 *
 * @return MM_OK; MM_ERR_ARG; MM_ERR_IO (a full disk too); MM_ERR_MEMORY. Since: 0.1
 */
MM_API mm_status mm_adapter_save(const mm_adapter *adapter, const char *directory);

/**
 * A second model with adapters taken into its weights: W + Σ weights[i] · alpha/rank · B A, summed in double precision and
 * rounded once to the dtype of W. It computes what a context with the adapters does, but for roundings. `model` and adapters
 * stay as they are, so there is nothing to undo.
 *
 * @param adapters  As mm_context_set_adapters() takes them, `weights` and `count` too.
 * @param out       Yours: pair it with mm_model_free().
 *
 * @return MM_OK; MM_ERR_ARG; MM_ERR_MEMORY; MM_ERR_UNSUPPORTED, quantized weights. Since: 0.1
 */
MM_API mm_status mm_adapter_merge(const mm_model *model, mm_adapter *const *adapters, const float *weights, int32_t count,
                                  mm_model **out);

#ifdef __cplusplus
}
#endif

#endif
