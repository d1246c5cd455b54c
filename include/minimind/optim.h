/**
 * @file optim.h
 * From gradients to better weights: AdamW, Muon and the learning-rate schedules.
 */
#ifndef MINIMIND_OPTIM_H
#define MINIMIND_OPTIM_H

#include <minimind/context.h>

#ifdef __cplusplus
extern "C" {
#endif

/** What makes weights better from gradients, with its state. */
typedef struct mm_optimizer mm_optimizer;

/** What weight decay pulls at. */
enum {
    MM_DECAY_ALL = 0,     /**< every parameter, as MiniMind's */
    MM_DECAY_MATRICES = 1 /**< matrices but the embedding: norms, biases and scalars are exempt, and a tied head with the
                               embedding */
};

/** AdamW with decoupled decay (Loshchilov & Hutter, 2019). */
typedef struct mm_adamw_options {
    size_t struct_size;  /**< sizeof(mm_adamw_options) */
    double beta1;        /**< in [0, 1) */
    double beta2;        /**< in [0, 1) */
    double eps;          /**< > 0 */
    double weight_decay; /**< ≥ 0 */
    const char *trainable; /**< as in mm_context_options: moments are held for these tensors alone; NULL: all */
    int32_t decay;       /**< MM_DECAY_… */
    int32_t reserved;    /**< 0 */
} mm_adamw_options;
#define MM_ADAMW_OPTIONS_INIT { sizeof(mm_adamw_options), 0.9, 0.999, 1e-8, 0.01, NULL, MM_DECAY_ALL, 0 }

/** Set every field of `options` to its default, of the first `struct_size` bytes. For bindings. Since: 0.1 */
MM_API void mm_adamw_options_init(mm_adamw_options *options, size_t struct_size);

/**
 * AdamW for a model: two float32 moments per parameter, all zero.
 *
 * @param model    Kept alive by the optimizer. Its weights must be float32 and not mapped.
 * @param options  Copied; NULL for the defaults.
 * @param out      Yours: pair it with mm_optimizer_free().
 *
 * @return MM_OK; MM_ERR_ARG; MM_ERR_STATE, weights that cannot be trained; MM_ERR_MEMORY. Since: 0.1
 */
MM_API mm_status mm_adamw_create(mm_model *model, const mm_adamw_options *options, mm_optimizer **out);

/**
 * AdamW for an adapter, beside a model that stays as it is: two moments for each of the adapter's numbers. Its steps take
 * contexts whose options name this adapter.
 *
 * @param adapter  Kept alive by the optimizer.
 * @return as mm_adamw_create(). Since: 0.1
 */
MM_API mm_status mm_adamw_create_adapter(mm_adapter *adapter, const mm_adamw_options *options, mm_optimizer **out);

/** Muon (Jordan et al., 2024) for the matrices inside layers, but the router of experts; AdamW for all else. */
typedef struct mm_muon_options {
    size_t struct_size;    /**< sizeof(mm_muon_options) */
    double momentum;       /**< in [0, 1), by Nesterov's rule */
    double beta1;          /**< of AdamW, as are the next two; all as in mm_adamw_options */
    double beta2;          /**< of AdamW */
    double eps;            /**< of AdamW */
    double weight_decay;   /**< of both */
    const char *trainable; /**< as in mm_adamw_options */
    int32_t decay;         /**< MM_DECAY_… */
    int32_t reserved;      /**< 0 */
} mm_muon_options;
#define MM_MUON_OPTIONS_INIT { sizeof(mm_muon_options), 0.95, 0.9, 0.999, 1e-8, 0.01, NULL, MM_DECAY_ALL, 0 }

/** Set every field of `options` to its default, of the first `struct_size` bytes. For bindings. Since: 0.1 */
MM_API void mm_muon_options_init(mm_muon_options *options, size_t struct_size);

/**
 * An optimizer that makes the momentum of a matrix orthogonal before it steps, by five Newton-Schulz iterations. Steps are
 * as large as AdamW's (0.2 · √max(rows, columns) per unit), so learning rates for AdamW serve here too. A matrix needs one
 * moment instead of two; the iterations cost time of their own, the same whatever the batch. Rates two or three times those
 * for AdamW are worth a try.
 *
 * @return as mm_adamw_create(). Since: 0.1
 */
MM_API mm_status mm_muon_create(mm_model *model, const mm_muon_options *options, mm_optimizer **out);

/** NULL is fine. Since: 0.1 */
MM_API void mm_optimizer_free(mm_optimizer *optimizer);

/** One step. */
typedef struct mm_step {
    size_t struct_size;   /**< sizeof(mm_step) */
    double learning_rate; /**< ≥ 0 */
    double max_grad_norm; /**< gradients are scaled by min(1, this / (norm + 1e-6)); 0: not clipped */
    double grad_norm;     /**< out: the norm before clipping */
} mm_step;
#define MM_STEP_INIT { sizeof(mm_step), 0, 0, 0 }

/** Set every field of `step` to its default, of the first `struct_size` bytes. For bindings. Since: 0.1 */
MM_API void mm_step_init(mm_step *step, size_t struct_size);

/**
 * Update the model's or the adapter's weights from the context's gradients, which are left as they are. What the context
 * holds no gradient for stays as it is.
 *
 * @return MM_OK; MM_ERR_ARG, a context of another model or adapter, or one that trains tensors which the optimizer was told
 *         to leave out, or a number out of range; MM_ERR_STATE, a context for MM_EVAL;
 *         MM_ERR_NUMERIC, the gradients hold a NaN or an infinity: nothing was changed.
 *
 * Threads: needs optimizer, context and model to itself. Since: 0.1
 */
MM_API mm_status mm_optimizer_step(mm_optimizer *optimizer, mm_context *context, mm_step *step);

/** Steps made so far. Since: 0.1 */
MM_API int64_t mm_optimizer_steps(const mm_optimizer *optimizer);

/**
 * Write the moments as safetensors ("exp_avg.NAME", "exp_avg_sq.NAME"), and read them back. Loading checks every name
 * and shape first; on failure the optimizer is as before.
 *
 * @return MM_OK; MM_ERR_ARG; MM_ERR_IO; MM_ERR_FORMAT; MM_ERR_MEMORY. Since: 0.1
 */
MM_API mm_status mm_optimizer_save(const mm_optimizer *optimizer, const char *path);
MM_API mm_status mm_optimizer_load(mm_optimizer *optimizer, const char *path);

/** How the learning rate moves over `total` steps. */
enum {
    MM_SCHEDULE_CONSTANT = 0,
    MM_SCHEDULE_MINIMIND2 = 1, /**< lr/10 + lr/2 · (1 + cos(π step/total)); upstream counts steps from 0 */
    MM_SCHEDULE_MINIMIND3 = 2, /**< lr · (0.1 + 0.45 · (1 + cos(π step/total))); upstream counts from 1 */
    MM_SCHEDULE_COSINE = 3,    /**< Mini-LLM's: linear from 0 over `warmup` steps, then a cosine cut off at lr/10 */
    MM_SCHEDULE_LINEAR = 4,    /**< linear from 0 over `warmup` steps, then linear to 0 at `total` */
    MM_SCHEDULE_WSD = 5        /**< warm-up, stable, decay: linear from 0 over `warmup` steps, constant, and over the last fifth of
                                    `total` linear to 0; mm_schedule_wsd() has the fifth as an argument */
};

/**
 * The learning rate at a step, in double precision.
 *
 * @return MM_OK; MM_ERR_ARG, no such rule, or a negative or non-finite number. Threads: any. Since: 0.1
 */
MM_API mm_status mm_schedule_lr(int32_t rule, int64_t step, int64_t total, int64_t warmup, double lr, double *out);

/**
 * MM_SCHEDULE_WSD with the decay over the last `decay_part` of `total`, in (0, 1]. Where it overlaps with the warm-up, the
 * lower rate holds.
 *
 * @return as mm_schedule_lr(). Threads: any. Since: 0.1
 */
MM_API mm_status mm_schedule_wsd(int64_t step, int64_t total, int64_t warmup, double decay_part, double lr, double *out);

#ifdef __cplusplus
}
#endif

#endif
