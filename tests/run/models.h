/* Small models of every dense kind, and batches for them. */
#ifndef MM_TESTS_RUN_MODELS_H
#define MM_TESTS_RUN_MODELS_H

#include "nn/arrays.h"
#include "support.h"

typedef struct tiny {
    const char *name, *json;
} tiny;

/* The first tiny_count are dense and compute the same in training and evaluation; those behind them, up to all_count, have
 * experts or dropout. */
extern const tiny tiny_models[];
extern const int tiny_count, all_count;

/* Yours. The model's weights are random, large enough to matter, norms and biases included. */
mm_config *nth_config(int index);
mm_model *nth_model(int index, unsigned seed);
mm_model *nth_model_without_dropout(int index, unsigned seed);
mm_model *model_of(const char *json, unsigned seed);
int32_t vocab_of(const mm_model *model);

/* A context with these limits; kernels NULL and threads 1 unless changed by hand. Yours. */
mm_context *context_of(mm_model *model, int32_t mode, int32_t batch, int32_t length, int32_t outputs);
mm_context *context_on(mm_model *model, int32_t mode, int32_t batch, int32_t length, int32_t outputs, int32_t threads,
                       const char *kernels);

/* Random ids and targets, every fifth target or so not counted. Of take()'s memory. */
mm_batch random_batch(const mm_model *model, int32_t batch, int32_t length, int32_t mode, test_rng *rng);

/* All gradients of a context one after another, in take()'s memory; their number in *n. */
float *all_gradients(mm_context *context, int64_t *n);

/* A view's floats, copied. */
float *copy_view(const mm_view *view);

/* Forward and backward; the loss. */
double forward_backward(mm_context *context, const mm_batch *batch, const mm_backward_options *options);

/* Allocations made so far. */
uint64_t allocations(void);

/* A context for the very workload that an estimate was asked about, with its adapter or NULL. */
mm_context *context_for_workload(mm_model *model, const mm_workload *w, mm_adapter *adapter);

#endif
