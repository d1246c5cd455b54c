/**
 * @file context.h
 * Running a model: forward, backward, gradients.
 *
 * A context holds all that a run needs: its threads, every buffer its largest batch will use, the gradients. All of
 * it is planned and allocated by mm_context_create(); forward and backward allocate nothing.
 *
 * Precision: weights, gradients and everything that is kept between layers are float32 (weights may have fewer bits in
 * evaluation). With `compute` MM_BF16 or MM_F16 both operands of a matrix product, activations, weights and on the way
 * back gradients, are rounded to that type as they are read, to nearest, ties to even; the sums are float32. That is so
 * for every linear layer, the experts, the head and adapters, in both directions; with MM_BF16, where the processor has
 * AMX or, not being Intel's, AVX512-BF16, also for attention's products: queries with keys, weights with values. Never
 * rounded are the router of experts, norms, rotations, activations, softmax and loss, the residual stream, and the
 * gradients' sums. As float16, what is beyond 65504 turns to infinity, and what is below 3e-8 to 0: gradients need
 * mm_backward_options.loss_scale then.
 * Weights in blocks (q8_0, q4_0) have products of their own, with or without it; a pass of many tokens with them rounds
 * as with MM_BF16 where the processor has AMX. Such products run on the library's own kernels, on an "openblas" path
 * too.
 *
 * Threads: one call at a time per context (mm_cancel() excepted). Contexts of one model may run side by side while
 * nothing trains it.
 */
#ifndef MINIMIND_CONTEXT_H
#define MINIMIND_CONTEXT_H

#include <minimind/adapter.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Everything needed to run a model. */
typedef struct mm_context mm_context;
/** The keys and values of sequences that are being continued; see generate.h. */
typedef struct mm_cache mm_cache;

enum {
    MM_EVAL = 0, /**< forward only */
    MM_TRAIN = 1 /**< dropout and auxiliary loss on; keeps what mm_backward() needs */
};

/** What a forward pass may be asked for; added together. */
enum {
    MM_OUT_LOSS = 1,        /**< mean cross-entropy over the counted targets */
    MM_OUT_LOGPROBS = 2,    /**< log-probability of each target, [B, T] */
    MM_OUT_LAST_LOGITS = 4, /**< logits behind the last token of each sequence, [B, V] */
    MM_OUT_LOGITS = 8,      /**< logits behind every token, [B, T, V] */
    MM_OUT_HIDDEN = 16      /**< what the head reads: the final norm's output, [B, T, C] */
};

/** A piece of a job that the library hands to the host's parallel_for: call it once for every `index`. */
typedef void (*mm_piece_fn)(void *job, int64_t index, int32_t worker);

/**
 * The host's own way of running work on several threads (a pool it has already, OpenMP, TBB, …): call
 * piece(job, index, worker) once for each index from 0 to pieces - 1, in any order and on any threads, and return when all
 * have returned; what they wrote must then be visible to the caller.
 *
 * `worker` is from 0 to the context's `threads` - 1 and names scratch memory: two pieces that run at the same time must
 * have different ones, pieces that follow each other may have any. The number of a thread in the host's pool serves where
 * `threads` is the pool's size, as does 0 for a loop on one thread. Pieces never call back into it, and none fails. It is
 * called on the thread that called the library, some hundred times per pass, for pieces of some microseconds to
 * milliseconds, and not at all in a small model's passes of few rows where these prove faster without; results are the same
 * bits however they are run.
 */
typedef void (*mm_parallel_for_fn)(void *user, int64_t pieces, mm_piece_fn piece, void *job);

/** What a context is planned for. */
typedef struct mm_context_options {
    size_t struct_size;  /**< sizeof(mm_context_options) */
    int32_t mode;        /**< MM_TRAIN: may train as well as evaluate; MM_EVAL: no gradients are held */
    int32_t max_batch;   /**< sequences at once, at least 1 */
    int32_t max_length;  /**< tokens per sequence and pass, 1 to the config's max_position_embeddings. A model that has fewer
                              than the default's 512 needs it set */
    int32_t max_context; /**< tokens per sequence with the cached ones, max_length to max_position_embeddings; 0: max_length */
    int32_t outputs;     /**< MM_OUT_… that may be asked for; 0: MM_OUT_LOSS in training, MM_OUT_LAST_LOGITS else */
    int32_t threads;     /**< 0: one per core that the process may run on, whatever hardware threads a core has, or fewer
                              where its control groups (Linux's cgroups, as containers have them) give it the time of
                              fewer, rounded up; 1: the caller's alone. Contexts that run side by side share the
                              processors: give each its part, or both the same parallel_for */
    int32_t checkpointing; /**< 1: training keeps only what each layer read and runs the layer again on the way back: less
                                memory, about a third more time, the same bits */
    float router_noise;  /**< deviation of the noise on the router's logits in MM_TRAIN mode (Mini-LLM uses 0.01); 0: none */
    const char *kernels; /**< one of mm_kernels_name(); NULL: the fastest here */
    mm_parallel_for_fn parallel_for; /**< NULL: threads of the context's own. Else it starts none, and `threads`, never 0
                                          then, is how many workers the host's function has at most */
    void *parallel_for_user;         /**< handed to parallel_for */
    mm_adapter *adapter; /**< kept alive. In MM_TRAIN the adapter to train: gradients are held for its tensors alone, and
                              mm_grad() and the others speak of them; the model is frozen and may be mapped. Either way
                              the context begins with it set, as by mm_context_set_adapters(). NULL: none */
    const char *trainable; /**< in MM_TRAIN without an adapter: patterns, separated by commas, of the tensors to train,
                                over names such as "model.layers.0.mlp.up_proj.weight": a `*` stands for any characters,
                                and a pattern also means names that end in a dot and it, ".weight" or ".bias" left out or
                                not: "embed_tokens,layers.7.*". A tied head goes by the embedding's name. The others are
                                frozen: no gradient is held or computed for them. NULL: all are trained */
    int32_t compute;     /**< what the operands of matrix products are rounded to: MM_F32, which they are, MM_BF16 or MM_F16;
                              see "Precision" above */
    int32_t reserved;    /**< 0 */
} mm_context_options;
#define MM_CONTEXT_OPTIONS_INIT { sizeof(mm_context_options), MM_EVAL, 1, 512, 0, 0, 0, 0, 0, NULL, NULL, NULL, NULL, NULL, \
                                  MM_F32, 0 }

/** Set every field of `options` to its default, of the first `struct_size` bytes. For bindings. Since: 0.1 */
MM_API void mm_context_options_init(mm_context_options *options, size_t struct_size);

/** The kernel paths that this build and this processor have, slowest first; NULL beyond. "openblas" is the fastest of the others,
 *  with large products by OpenBLAS where its are faster: on x86 without AVX2, and on Arm. Static. Threads: any. Since: 0.1 */
MM_API int32_t mm_kernels_count(void);
MM_API const char *mm_kernels_name(int32_t index);

/**
 * Plan and allocate everything for running `model`.
 *
 * @param model    Kept alive by the context.
 * @param options  Copied, strings included; NULL for the defaults.
 * @param out      Yours: pair it with mm_context_free().
 *
 * @return MM_OK; MM_ERR_ARG, a size out of range, no such kernels, a dtype that is not computed in, an adapter for other
 *         shapes, or a pattern that means nothing; MM_ERR_MEMORY; MM_ERR_STATE, MM_TRAIN on weights that are not float32 or,
 *         without an adapter, mapped. Since: 0.1
 */
MM_API mm_status mm_context_create(mm_model *model, const mm_context_options *options, mm_context **out);

/** NULL is fine. Since: 0.1 */
MM_API void mm_context_free(mm_context *context);

/** The model it runs, lent. Since: 0.1 */
MM_API mm_model *mm_context_model(const mm_context *context);

/**
 * Run with these adapters from now on, instead of those set before: beside each adapted matrix the context computes
 * weights[i] · alpha/rank · B (A x) for every one. So a policy and its reference can share one model, in two contexts or
 * in one that changes between them. A pass that was not gone back over yet can't be any more.
 *
 * @param adapters  [count], each once, kept alive by the context; made for the model it runs, or for one of the same
 *                  shapes (such as the float32 model that a quantized one was made from).
 * @param weights   [count], what each counts; NULL: 1.
 * @param count     At most 64; 0: none. A context that trains an adapter refuses MM_TRAIN passes while that one is not set.
 *
 * @return MM_OK; MM_ERR_ARG; MM_ERR_MEMORY; MM_ERR_STATE, another call runs on the context. On failure the adapters are
 *         those of before. Setting as many of the same sizes again, also after none, allocates nothing. Since: 0.1
 */
MM_API mm_status mm_context_set_adapters(mm_context *context, mm_adapter *const *adapters, const float *weights,
                                         int32_t count);

/** The kernel path it runs on, one of mm_kernels_name(). Static. Since: 0.1 */
MM_API const char *mm_context_kernels(const mm_context *context);

/**
 * Make the call that runs on this context return MM_ERR_CANCELLED at its next block; without one, the next call.
 * Threads: any, and signal handlers. Since: 0.1
 */
MM_API void mm_cancel(mm_context *context);

/** One batch. All pointers are borrowed for the call. */
typedef struct mm_batch {
    size_t struct_size;            /**< sizeof(mm_batch) */
    const int32_t *ids;            /**< [B, T], each in [0, vocab_size) */
    const int32_t *targets;        /**< [B, T] or NULL: what position t must predict (already shifted); -100 is not
                                        counted */
    const int32_t *attention_mask; /**< [B, T], with a cache [B, cached + T], or NULL: 0 hides a token as a key, 1 does
                                        not; at least one 1 in each row. With a cache, all B must hold as many tokens.
                                        A token that could see hidden ones only takes nothing from attention */
    const int32_t *position_ids;   /**< [B, T], each in [0, max_context), or NULL: 0, 1, … in each row, or on from the
                                        cache */
    const int32_t *document_ids;   /**< [B, T] or NULL: tokens of one row see each other only where these are equal;
                                        each run of equal ids is a document, and its positions start at 0. Neither with
                                        attention_mask nor with a cache */
    mm_cache *cache;               /**< NULL, or one whose first B sequences this batch continues */
    int32_t batch;                 /**< B */
    int32_t length;                /**< T */
    int32_t mode;                  /**< MM_EVAL or MM_TRAIN */
    int32_t outputs;               /**< MM_OUT_…; 0: the context's */
    uint64_t seed;                 /**< of dropout and router noise in MM_TRAIN mode: the same seed, the same masks. Give each
                                        step one of its own, such as its number */
} mm_batch;
#define MM_BATCH_INIT { sizeof(mm_batch), NULL, NULL, NULL, NULL, NULL, NULL, 0, 0, MM_EVAL, 0, 0 }

/** Set every field of `batch` to its default, of the first `struct_size` bytes. For bindings. Since: 0.1 */
MM_API void mm_batch_init(mm_batch *batch, size_t struct_size);

/** What a forward pass gave. Views are lent by the context until its next call; those not asked for are empty. */
typedef struct mm_output {
    size_t struct_size;  /**< sizeof(mm_output) */
    double loss;         /**< loss_sum / loss_count, in nats; 0 without a counted target */
    double loss_sum;     /**< over the counted targets */
    int64_t loss_count;  /**< targets that are not -100; 0 where the loss is not computed: in MM_EVAL without MM_OUT_LOSS
                              and MM_OUT_LOGPROBS */
    double aux_loss;     /**< router balance, already times its coefficient; 0 for dense models, in evaluation, and for
                              targets of which none is counted */
    mm_view logprobs;    /**< float32 [B, T]; 0 where the target is not counted */
    mm_view last_logits; /**< float32 [B, V] */
    mm_view logits;      /**< float32 [B, T, V] */
    mm_view hidden;      /**< float32 [B, T, C] */
} mm_output;
/* clang-format off */
#define MM_OUTPUT_INIT { sizeof(mm_output), 0, 0, 0, 0, \
    { NULL, 0, 0, { 0, 0, 0, 0 }, { 0, 0, 0, 0 }, { 0, 0 } }, { NULL, 0, 0, { 0, 0, 0, 0 }, { 0, 0, 0, 0 }, { 0, 0 } }, \
    { NULL, 0, 0, { 0, 0, 0, 0 }, { 0, 0, 0, 0 }, { 0, 0 } }, { NULL, 0, 0, { 0, 0, 0, 0 }, { 0, 0, 0, 0 }, { 0, 0 } } }
/* clang-format on */

/** Set every field of `output` to its default, of the first `struct_size` bytes. For bindings. Since: 0.1 */
MM_API void mm_output_init(mm_output *output, size_t struct_size);

/**
 * Run the network over a batch.
 *
 * Row (b, t) of the logits scores the token that would follow ids[b][0..t]. With a cache, sequence b continues where
 * it stood, and the cache then holds the new tokens too.
 *
 * @return MM_OK;
 *         MM_ERR_ARG        an id, a target or a shape is out of range, or beyond the plan: nothing was changed but
 *                           `out`, which is empty after any failure;
 *         MM_ERR_STATE      MM_TRAIN on a context planned for MM_EVAL, with a cache, or without the adapter that the
 *                           context trains; or another call runs on it, or on the cache, as from within
 *                           a callback;
 *         MM_ERR_CANCELLED  a cache stands where it stood before the call.
 *         It allocates nothing. Since: 0.1
 */
MM_API mm_status mm_forward(mm_context *context, const mm_batch *batch, mm_output *out);

/**
 * Told while a backward pass goes on: the gradients of tensors [first, first + count) will not be touched by it any more, so
 * they may be sent to other ranks or looked at from now on, by mm_grad(). On the thread of mm_backward(); `user` is the
 * options'.
 *
 * In this order, each tensor once: the final norm and, untied, the head; the layers from the last to the first; at the end the
 * embedding, with the layers below which nothing is trained. Frozen tensors are told too. A context that trains an
 * adapter tells all of its tensors at once, at the end.
 */
typedef void (*mm_gradients_fn)(void *user, int64_t first, int64_t count);

/**
 * How evenly a layer's router spread the tokens of the last forward pass, padding included: the share of all choices that
 * went to each routed expert, 1/E where it is even, together 1.
 *
 * @param out     Room for `capacity` numbers; NULL with 0 only asks.
 * @param needed  The number of routed experts, 0 for a model without; NULL if nobody asks.
 *
 * @return MM_OK; MM_ERR_ARG, no such layer, or too little room (`needed` is told); MM_ERR_STATE, experts of which
 *         nothing has been run. Since: 0.1
 */
MM_API mm_status mm_expert_load(const mm_context *context, int64_t layer, double *out, size_t capacity, size_t *needed);

/** Where a backward pass starts. With none of the three pointers it starts from the loss. */
typedef struct mm_backward_options {
    size_t struct_size;      /**< sizeof(mm_backward_options) */
    double loss_scale;       /**< the gradients are those of loss_scale · loss; finite */
    double aux_scale;        /**< … plus aux_scale · aux_loss; finite */
    double normalizer;       /**< the loss is loss_sum / normalizer; 0: the batch's own count. For accumulation and
                                  ranks, give the count of all */
    const float *d_logits;   /**< [B, T, V] or NULL: gradient of the caller's own loss by the logits */
    const float *d_logprobs; /**< [B, T] or NULL: … by the targets' log-probabilities */
    const float *d_hidden;   /**< [B, T, C] or NULL: … by the hidden states, added to what else there is */
    mm_gradients_fn on_gradients; /**< NULL for none */
    void *user;              /**< handed to on_gradients */
} mm_backward_options;
#define MM_BACKWARD_OPTIONS_INIT { sizeof(mm_backward_options), 1, 1, 0, NULL, NULL, NULL, NULL, NULL }

/** Set every field of `options` to its default, of the first `struct_size` bytes. For bindings. Since: 0.1 */
MM_API void mm_backward_options_init(mm_backward_options *options, size_t struct_size);

/**
 * Add the gradient of the last MM_TRAIN forward pass to the gradients held by the context. Once per forward pass.
 *
 * A pointer of the options is scaled by loss_scale only; `normalizer` is for the loss. At most one of d_logits and
 * d_logprobs may be given; with either, or with d_hidden alone, the loss itself is left out.
 *
 * Where targets were given and none is counted, neither the loss nor the auxiliary loss has a gradient. Where the loss is left
 * out, or loss_scale is 0, the auxiliary loss has that of aux_scale all the same: so such a batch has its part in the balance
 * of a step whose targets are in other batches.
 *
 * @param options  NULL for the defaults.
 *
 * @return MM_OK; MM_ERR_ARG; MM_ERR_STATE, no forward pass in MM_TRAIN to go back over, or another call runs on the context;
 *         MM_ERR_CANCELLED, the gradients hold a part of this pass: zero them.
 *         It allocates nothing. Since: 0.1
 */
MM_API mm_status mm_backward(mm_context *context, const mm_backward_options *options);

/** Set all gradients to zero. @return MM_OK; MM_ERR_ARG; MM_ERR_STATE, a context without gradients, or another call runs on it.
 *  Since: 0.1 */
MM_API mm_status mm_zero_grad(mm_context *context);

/**
 * The gradient of tensor `index` of the model or, where the context trains one, of the adapter: float32 in the tensor's
 * shape, lent for writing too. @return MM_OK; MM_ERR_ARG, no such tensor; MM_ERR_STATE, a context without gradients, or a
 * tensor that is frozen. Since: 0.1
 */
MM_API mm_status mm_grad(mm_context *context, int64_t index, mm_view *out);

/** Add scale · src's gradients to dst's; both must train the same tensors of the same shapes. @return as mm_zero_grad() of dst.
 *  Since: 0.1 */
MM_API mm_status mm_grad_add(mm_context *dst, mm_context *src, double scale);

/** The L2 norm of all gradients together. The same bits for any number of threads. @return as mm_zero_grad(). Since: 0.1 */
MM_API mm_status mm_grad_norm(mm_context *context, double *out);

#ifdef __cplusplus
}
#endif

#endif
