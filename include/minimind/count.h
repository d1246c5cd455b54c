/**
 * @file count.h
 * What a config costs before anything is built: parameters, bytes, arithmetic.
 *
 * All of it comes from the one parameter layout and the one plan that the library itself runs by. Nothing here needs
 * a model, and nothing allocates.
 *
 * Threads: any, as long as nobody changes the config meanwhile.
 */
#ifndef MINIMIND_COUNT_H
#define MINIMIND_COUNT_H

#include <minimind/adapter.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Parameters by module; a tied head counts once, as the embedding. */
typedef struct mm_param_count {
    size_t struct_size;         /**< sizeof(mm_param_count) */
    int64_t total;              /**< all of it */
    int64_t active;             /**< what one token uses: routed experts beyond the top k left out */
    int64_t embedding;          /**< the token embedding */
    int64_t attention;          /**< q, k, v, o with biases, and the q/k norms */
    int64_t mlp_dense;          /**< feed-forward networks of dense layers */
    int64_t moe_router;         /**< routers of experts */
    int64_t moe_experts;        /**< routed ones */
    int64_t moe_shared_experts; /**< experts that every token passes through */
    int64_t moe_scalars;        /**< learnt mixing weights */
    int64_t layer_norms;        /**< both of every layer */
    int64_t final_norm;         /**< behind the last layer */
    int64_t lm_head;            /**< 0 when tied */
} mm_param_count;
#define MM_PARAM_COUNT_INIT { sizeof(mm_param_count), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }

/** Set every field of `count` to its default, of the first `struct_size` bytes. For bindings. Since: 0.1 */
MM_API void mm_param_count_init(mm_param_count *count, size_t struct_size);

/** Count the parameters of a config. @return MM_OK; what mm_config_validate() refuses. Since: 0.1 */
MM_API mm_status mm_count_params(const mm_config *config, mm_param_count *out);

/** The module a tensor is counted under. */
enum {
    MM_MODULE_EMBEDDING = 0,
    MM_MODULE_ATTENTION = 1,
    MM_MODULE_MLP_DENSE = 2,
    MM_MODULE_MOE_ROUTER = 3,
    MM_MODULE_MOE_EXPERTS = 4,
    MM_MODULE_MOE_SHARED_EXPERTS = 5,
    MM_MODULE_MOE_SCALARS = 6,
    MM_MODULE_LAYER_NORMS = 7,
    MM_MODULE_FINAL_NORM = 8,
    MM_MODULE_LM_HEAD = 9
};

/** One tensor of a config's layout. */
typedef struct mm_tensor_info {
    size_t struct_size; /**< sizeof(mm_tensor_info) */
    char name[128];     /**< its Hugging Face name, "model.layers.0.self_attn.q_proj.weight" */
    int64_t shape[4];   /**< 1 beyond `rank` */
    int64_t elements;   /**< the product of its shape */
    int32_t rank;       /**< 1 or 2 */
    int32_t module;     /**< MM_MODULE_… */
    int32_t layer;      /**< -1 outside the layers */
    int32_t expert;     /**< routed or shared expert's number, else -1 */
} mm_tensor_info;
#define MM_TENSOR_INFO_INIT { sizeof(mm_tensor_info), { 0 }, { 0, 0, 0, 0 }, 0, 0, 0, -1, -1 }

/** Set every field of `info` to its default, of the first `struct_size` bytes. For bindings. Since: 0.1 */
MM_API void mm_tensor_info_init(mm_tensor_info *info, size_t struct_size);

/** How many tensors a config has, in an order that never changes. Since: 0.1 */
MM_API mm_status mm_layout_count(const mm_config *config, int64_t *out);

/**
 * Tensor `index` of a config; the same index names it in mm_model_tensor() and mm_grad().
 *
 * @return MM_OK; MM_ERR_ARG, no such index; what mm_config_validate() refuses. Since: 0.1
 */
MM_API mm_status mm_layout_get(const mm_config *config, int64_t index, mm_tensor_info *out);

/** What a model is going to be asked to do; the fields mean what they mean in mm_context_options. */
typedef struct mm_workload {
    size_t struct_size;     /**< sizeof(mm_workload) */
    int32_t mode;           /**< MM_EVAL or MM_TRAIN */
    int32_t max_batch;      /**< sequences at once */
    int32_t max_length;     /**< tokens per sequence and pass */
    int32_t max_context;    /**< tokens per sequence with the cached ones; 0: max_length */
    int32_t outputs;        /**< MM_OUT_… */
    int32_t threads;        /**< 0: as a context has them */
    int32_t optimizer;      /**< 1: with AdamW's two moments; 2: with Muon */
    int32_t cache_sequences; /**< sequences in the cache, 0: none */
    int32_t cache_capacity; /**< tokens per cached sequence */
    int32_t weights_mapped; /**< 1: the weights stay in the mapped file, and are not trained; not where dtype is one in
                                 blocks, which are read into memory */
    int32_t checkpointing;  /**< as in mm_context_options */
    int32_t dtype;          /**< of the weights: MM_F32, …, as mm_model_cast() and mm_model_quantize() take it */
    const char *kernels;    /**< NULL: the fastest here */
    int32_t cache_dtype;    /**< of the cache's keys and values, as mm_cache_create() takes it */
    int32_t reserved;       /**< 0 */
    const mm_adapter_options *adapter; /**< an adapter that the context is made with, and that the optimizer is for;
                                            NULL: none */
    const char *trainable;  /**< of context and optimizer */
} mm_workload;
#define MM_WORKLOAD_INIT { sizeof(mm_workload), 0, 1, 512, 0, 0, 0, 0, 0, 0, 0, 0, 0, NULL, 0, 0, NULL, NULL }

/** Set every field of `workload` to its default, of the first `struct_size` bytes. For bindings. Since: 0.1 */
MM_API void mm_workload_init(mm_workload *workload, size_t struct_size);

/** Bytes, part by part. */
typedef struct mm_memory {
    size_t struct_size;      /**< sizeof(mm_memory) */
    int64_t weights;         /**< the model */
    int64_t gradients;       /**< of what is trained, float32 */
    int64_t optimizer;       /**< its moments */
    int64_t activations;     /**< what forward keeps for backward, scratch, tables and outputs */
    int64_t cache;           /**< keys and values */
    int64_t handles;         /**< the model's, context's, optimizer's and cache's own bookkeeping, the ids that it holds included */
    int64_t total;           /**< all of it */
    int64_t cache_per_token; /**< of one sequence */
    int64_t adapter;         /**< the adapter's tensors */
} mm_memory;
#define MM_MEMORY_INIT { sizeof(mm_memory), 0, 0, 0, 0, 0, 0, 0, 0, 0 }

/** Set every field of `memory` to its default, of the first `struct_size` bytes. For bindings. Since: 0.1 */
MM_API void mm_memory_init(mm_memory *memory, size_t struct_size);

/**
 * Bytes that a model, an adapter, a context, an optimizer and a cache for this workload take together: the plan's own total, and
 * so what mm_memory_get_usage() then shows, to the byte. mm_context_options.compute makes no difference to it.
 *
 * @return MM_OK; MM_ERR_ARG, the workload does not fit the config, or any machine; what mm_config_validate() refuses.
 *         Since: 0.1
 */
MM_API mm_status mm_estimate_memory(const mm_config *config, const mm_workload *workload, mm_memory *out);

/**
 * Floating-point operations per token, a multiplication and an addition being two.
 *
 * Forward: 2 x the matrix parameters that a token uses (a tied head once) + 2·L·H·D·(T + 1) for causal attention, whose
 * query at t sees t + 1 keys; an adapter's parameters count as the matrices' do. Backward is twice that, but once for
 * matrices that are frozen. Recomputation, norms and activations are not counted.
 */
typedef struct mm_flops {
    size_t struct_size; /**< sizeof(mm_flops) */
    double forward;     /**< of a forward pass */
    double backward;    /**< of a backward pass */
    double total;       /**< forward + backward */
    double attention;   /**< the share of `total` that is scores and weighted sums */
} mm_flops;
#define MM_FLOPS_INIT { sizeof(mm_flops), 0, 0, 0, 0 }

/** Set every field of `flops` to its default, of the first `struct_size` bytes. For bindings. Since: 0.1 */
MM_API void mm_flops_init(mm_flops *flops, size_t struct_size);

/** Arithmetic per token at `workload->max_length`. @return as mm_estimate_memory(). Since: 0.1 */
MM_API mm_status mm_estimate_flops(const mm_config *config, const mm_workload *workload, mm_flops *out);

#ifdef __cplusplus
}
#endif

#endif
