#include "run/models.h"

#include <string.h>

const tiny tiny_models[] = {
    { "minimind2, grouped queries",
      "{\"model_type\":\"minimind\",\"minimind_version\":2,\"hidden_size\":24,\"num_hidden_layers\":2,\"num_attention_heads\":4,"
      "\"num_key_value_heads\":2,\"vocab_size\":53,\"intermediate_size\":40,\"max_position_embeddings\":512}" },
    { "minimind3, head norms and free head size",
      "{\"model_type\":\"minimind\",\"minimind_version\":3,\"hidden_size\":18,\"num_hidden_layers\":2,\"num_attention_heads\":3,"
      "\"num_key_value_heads\":1,\"head_dim\":10,\"vocab_size\":37,\"intermediate_size\":26,\"max_position_embeddings\":512}" },
    { "classic: LayerNorm, biases, plain GELU, no positions, own head",
      "{\"model_type\":\"llama\",\"hidden_size\":20,\"num_hidden_layers\":2,\"num_attention_heads\":5,\"vocab_size\":41,"
      "\"intermediate_size\":33,\"norm_type\":\"layernorm\",\"attention_bias\":true,\"mlp_bias\":true,\"mlp_type\":\"plain\","
      "\"hidden_act\":\"gelu\",\"position_embedding_type\":\"none\",\"max_position_embeddings\":512}" },
    { "sinusoidal, biases, gated GELU by tanh, tied",
      "{\"model_type\":\"llama\",\"hidden_size\":14,\"num_hidden_layers\":1,\"num_attention_heads\":2,\"vocab_size\":29,"
      "\"intermediate_size\":19,\"attention_bias\":true,\"mlp_bias\":true,\"hidden_act\":\"gelu_tanh\",\"tie_word_embeddings\":true,"
      "\"position_embedding_type\":\"sinusoidal\",\"max_position_embeddings\":512}" },
    { "Mini-LLM without dropout",
      "{\"model_type\":\"minigpt\",\"hidden_size\":16,\"num_hidden_layers\":3,\"num_attention_heads\":4,\"vocab_size\":31,"
      "\"intermediate_size\":24,\"dropout\":0,\"attention_dropout\":0,\"max_position_embeddings\":512}" },
    { "qwen3 with a plain ReLU network and its own head",
      "{\"model_type\":\"qwen3\",\"hidden_size\":22,\"num_hidden_layers\":2,\"num_attention_heads\":6,\"num_key_value_heads\":3,"
      "\"head_dim\":12,\"vocab_size\":47,\"intermediate_size\":35,\"mlp_type\":\"plain\",\"hidden_act\":\"relu\","
      "\"max_position_embeddings\":512}" },
    { "minimind2 with YaRN",
      "{\"model_type\":\"minimind\",\"minimind_version\":2,\"hidden_size\":24,\"num_hidden_layers\":1,\"num_attention_heads\":2,"
      "\"num_key_value_heads\":1,\"vocab_size\":33,\"intermediate_size\":40,\"max_position_embeddings\":512,"
      "\"rope_theta\":10000,\"rope_scaling\":{\"type\":\"yarn\",\"variant\":\"minimind2\",\"factor\":4,"
      "\"original_max_position_embeddings\":64,\"beta_fast\":4,\"beta_slow\":1}}" },
    { "minimind3 with YaRN",
      "{\"model_type\":\"minimind\",\"minimind_version\":3,\"hidden_size\":16,\"num_hidden_layers\":1,\"num_attention_heads\":2,"
      "\"num_key_value_heads\":2,\"vocab_size\":33,\"intermediate_size\":24,\"max_position_embeddings\":512,"
      "\"rope_theta\":10000,\"rope_scaling\":{\"type\":\"yarn\",\"factor\":8,\"original_max_position_embeddings\":64,"
      "\"beta_fast\":32,\"beta_slow\":1,\"attention_factor\":1.25}}" },
    { "minimind2, four experts and a shared one",
      "{\"model_type\":\"minimind\",\"minimind_version\":2,\"hidden_size\":16,\"num_hidden_layers\":2,\"num_attention_heads\":2,"
      "\"num_key_value_heads\":1,\"vocab_size\":33,\"intermediate_size\":20,\"max_position_embeddings\":512,\"use_moe\":true,"
      "\"n_routed_experts\":4,\"n_shared_experts\":1,\"num_experts_per_tok\":2,\"aux_loss_alpha\":0.1,\"seq_aux\":true,"
      "\"dropout\":0.1}" },
    { "minimind3, five experts",
      "{\"model_type\":\"minimind\",\"minimind_version\":3,\"hidden_size\":16,\"num_hidden_layers\":2,\"num_attention_heads\":2,"
      "\"num_key_value_heads\":1,\"vocab_size\":33,\"intermediate_size\":20,\"max_position_embeddings\":512,\"use_moe\":true,"
      "\"num_experts\":5,\"num_experts_per_tok\":1,\"moe_intermediate_size\":13}" },
    { "Mini-LLM with shared and routed experts and dropout",
      "{\"model_type\":\"minigpt\",\"hidden_size\":16,\"num_hidden_layers\":2,\"num_attention_heads\":4,\"vocab_size\":31,"
      "\"intermediate_size\":24,\"max_position_embeddings\":512,\"use_moe\":true,\"n_routed_experts\":6,"
      "\"n_shared_experts\":2,\"num_experts_per_tok\":2,\"use_rope\":false}" },
    { "minimind2 with dropout",
      "{\"model_type\":\"minimind\",\"minimind_version\":2,\"hidden_size\":24,\"num_hidden_layers\":2,\"num_attention_heads\":4,"
      "\"num_key_value_heads\":2,\"vocab_size\":53,\"intermediate_size\":40,\"max_position_embeddings\":512,\"dropout\":0.2}" },
};
const int all_count = sizeof tiny_models / sizeof *tiny_models;
const int tiny_count = sizeof tiny_models / sizeof *tiny_models - 4;

static mm_config *config_of(const char *json)
{
    mm_config *config = NULL;
    ck_ok(mm_config_load_memory(json, strlen(json), &config));
    return config;
}

mm_config *nth_config(int index)
{
    return config_of(tiny_models[index].json);
}

static void fill(mm_model *model, unsigned seed)
{
    test_rng rng = { seed };
    mm_tensor_info info = MM_TENSOR_INFO_INIT;
    for (int64_t i = 0; i < mm_model_tensor_count(model); i++) {
        mm_view view;
        ck_ok(mm_model_write(model, i, &view));
        ck_ok(mm_layout_get(mm_model_config(model), i, &info));
        float *w = view.data;
        bool norm = strstr(info.name, "norm") && strstr(info.name, ".weight");
        rng_fill(&rng, w, (size_t)info.elements, info.rank == 2 ? 0.35f : 0.25f);
        for (int64_t j = 0; j < info.elements && norm; j++)
            w[j] += 1;
    }
    mm_model_written(model);
}

/* Takes the config. */
static mm_model *model_from(mm_config *config, unsigned seed)
{
    mm_model *model = NULL;
    ck_ok(mm_model_create(config, seed, &model));
    mm_config_free(config);
    fill(model, seed);
    return model;
}

mm_model *model_of(const char *json, unsigned seed)
{
    return model_from(config_of(json), seed);
}

mm_model *nth_model(int index, unsigned seed)
{
    return model_of(tiny_models[index].json, seed);
}

mm_model *nth_model_without_dropout(int index, unsigned seed)
{
    double dropout;
    mm_config *config = nth_config(index);
    if (mm_config_get_float(config, "dropout", &dropout) == MM_OK)
        ck_ok(mm_config_set_float(config, "dropout", 0));
    return model_from(config, seed);
}

int32_t vocab_of(const mm_model *model)
{
    int64_t vocab = 0;
    ck_ok(mm_config_get_int(mm_model_config(model), "vocab_size", &vocab));
    return (int32_t)vocab;
}

mm_context *context_on(mm_model *model, int32_t mode, int32_t batch, int32_t length, int32_t outputs, int32_t threads,
                       const char *kernels)
{
    mm_context_options options = MM_CONTEXT_OPTIONS_INIT;
    options.mode = mode;
    options.max_batch = batch;
    options.max_length = length;
    options.max_context = length > 64 ? length : 64;
    options.outputs = outputs;
    options.threads = threads;
    options.kernels = kernels;
    mm_context *context = NULL;
    ck_ok(mm_context_create(model, &options, &context));
    return context;
}

mm_context *context_of(mm_model *model, int32_t mode, int32_t batch, int32_t length, int32_t outputs)
{
    return context_on(model, mode, batch, length, outputs, 1, NULL);
}

mm_batch random_batch(const mm_model *model, int32_t batch, int32_t length, int32_t mode, test_rng *rng)
{
    mm_batch b = MM_BATCH_INIT;
    int64_t N = (int64_t)batch * length;
    int32_t *targets = take_ints(rng, N, 0, vocab_of(model) - 1);
    for (int64_t i = 0; i < N; i++)
        if (rng_between(rng, 0, 4) == 0)
            targets[i] = -100;
    b.ids = take_ints(rng, N, 0, vocab_of(model) - 1);
    b.targets = targets;
    b.batch = batch;
    b.length = length;
    b.mode = mode;
    return b;
}

float *all_gradients(mm_context *context, int64_t *n)
{
    mm_model *model = mm_context_model(context);
    mm_view view;
    *n = 0;
    for (int64_t i = 0; i < mm_model_tensor_count(model); i++) {
        ck_ok(mm_grad(context, i, &view));
        *n += view.shape[0] * view.shape[1];
    }
    float *all = take_floats(*n, 0), *next = all;
    for (int64_t i = 0; i < mm_model_tensor_count(model); i++) {
        ck_ok(mm_grad(context, i, &view));
        int64_t elements = view.shape[0] * view.shape[1];
        memcpy(next, view.data, (size_t)elements * sizeof *next);
        next += elements;
    }
    return all;
}

float *copy_view(const mm_view *view)
{
    ck_assert_ptr_nonnull(view->data);
    ck_assert_int_eq(view->dtype, MM_F32);
    return take_copy(view->data, view->shape[0] * view->shape[1] * view->shape[2] * view->shape[3]);
}

double forward_backward(mm_context *context, const mm_batch *batch, const mm_backward_options *options)
{
    mm_output out = MM_OUTPUT_INIT;
    ck_ok(mm_forward(context, batch, &out));
    ck_ok(mm_backward(context, options));
    return out.loss;
}

uint64_t allocations(void)
{
    mm_memory_usage usage = MM_MEMORY_USAGE_INIT;
    ck_ok(mm_memory_get_usage(&usage));
    return usage.count;
}

mm_context *context_for_workload(mm_model *model, const mm_workload *w, mm_adapter *adapter)
{
    mm_context_options o = MM_CONTEXT_OPTIONS_INIT;
    mm_context *context = NULL;
    o.mode = w->mode;
    o.max_batch = w->max_batch;
    o.max_length = w->max_length;
    o.max_context = w->max_context;
    o.outputs = w->outputs;
    o.threads = w->threads;
    o.checkpointing = w->checkpointing;
    o.kernels = w->kernels;
    o.adapter = adapter;
    o.trainable = w->trainable;
    ck_ok(mm_context_create(model, &o, &context));
    return context;
}
