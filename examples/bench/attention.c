/* Long context: what attention costs forward and backward, per token, as the length grows. One layer of the preset, for
 * the others do the same; a step whose row is packed with short documents does all but the attention, and what is left when
 * its time is taken off is attention's. Times are the processor's, of all threads together: how they grow is what counts. */
#include <stdio.h>
#include <stdlib.h>

#include "bench.h"

#define FIRST 512   /* length to begin with, unless less is asked for or the model has less */
#define DOCUMENT 64 /* tokens of the short documents; of a shorter row an eighth */

static double step(mm_context *context, const int32_t *ids, const int32_t *documents, int length)
{
    mm_batch batch = MM_BATCH_INIT;
    mm_output out = MM_OUTPUT_INIT;
    batch.ids = batch.targets = ids;
    batch.document_ids = documents;
    batch.batch = 1;
    batch.length = length;
    batch.mode = MM_TRAIN;
    double start = now();
    die_if(mm_forward(context, &batch, &out), "forward");
    die_if(mm_backward(context, NULL), "backward");
    return now() - start;
}

static void at_length(const options *o, mm_model *model, int length)
{
    double whole[MOST_RUNS], rest[MOST_RUNS], difference[MOST_RUNS];
    int64_t vocab_size = 0;
    mm_context *context = NULL;
    mm_context_options how = MM_CONTEXT_OPTIONS_INIT;
    how.mode = MM_TRAIN;
    how.max_length = length;
    how.threads = o->threads;
    how.kernels = o->kernels;
    how.compute = compute_of(o, MM_F32);
    die_if(mm_config_get_int(mm_model_config(model), "vocab_size", &vocab_size), "config");
    mm_workload workload = MM_WORKLOAD_INIT;
    mm_memory memory = MM_MEMORY_INIT;
    workload.mode = MM_TRAIN;
    workload.max_length = length;
    workload.threads = o->threads;
    workload.kernels = o->kernels;
    die_if(mm_estimate_memory(mm_model_config(model), &workload, &memory), "estimate");
    die_if(mm_context_create(model, &how, &context), "context");
    int32_t *ids = random_ids(length, vocab_size), *documents = need(malloc((size_t)length * sizeof *documents));
    for (int i = 0; i < length; i++)
        documents[i] = length < FIRST ? i * 8 / length : i / DOCUMENT;
    step(context, ids, NULL, length);
    for (int i = 0; i < o->repeat; i++) {
        whole[i] = step(context, ids, NULL, length);
        rest[i] = step(context, ids, documents, length);
        difference[i] = whole[i] - rest[i];
    }
    record_begin(o, "attention", MM_F32, o->threads, mm_context_kernels(context));
    record_number("length", length);
    record_rates("tokens_per_s", rates_of(length, whole, o->repeat)); /* of processor time */
    record_number("attention_us_per_token", 1e6 * median(difference, o->repeat) / length);
    record_number("rest_us_per_token", 1e6 * median(rest, o->repeat) / length);
    record_number("activation_bytes", (double)memory.activations);
    record_end();
    free(ids);
    free(documents);
    mm_context_free(context);
}

void bench_attention(const options *o)
{
    mm_config *config = NULL;
    mm_model *model = NULL;
    int64_t most = 0;
    use_processor_time();
    die_if(mm_config_create(o->preset, &config), "preset");
    die_if(mm_config_set_int(config, "num_hidden_layers", 1), "layers");
    die_if(mm_config_get_int(config, "max_position_embeddings", &most), "config");
    die_if(mm_model_create(config, 1, &model), "model");
    if (most > o->length)
        most = o->length;
    for (int64_t length = most < FIRST ? most : FIRST; length <= most; length *= 2)
        at_length(o, model, (int)length);
    mm_model_free(model);
    mm_config_free(config);
}
