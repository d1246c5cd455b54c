/* A config.json: checked, counted, estimated, written and read back, and run if it is small. */
#include "fuzz.h"

#define SMALL 100000 /* parameters of a model that is worth building for an input */

static void count(const mm_config *config, int valid)
{
    mm_param_count counted = MM_PARAM_COUNT_INIT;
    mm_workload workload = MM_WORKLOAD_INIT;
    mm_memory memory = MM_MEMORY_INIT;
    mm_flops flops = MM_FLOPS_INIT;
    int64_t tensors = 0;
    workload.mode = MM_TRAIN, workload.max_length = 4, workload.threads = 1, workload.optimizer = 1;
    workload.cache_sequences = 1, workload.cache_capacity = 4;
    mm_status status = mm_count_params(config, &counted);
    MUST(valid ? status == MM_OK : refused(status));
    MUST(!valid || (counted.total > 0 && counted.active > 0 && counted.active <= counted.total));
    status = mm_layout_count(config, &tensors);
    MUST(valid ? status == MM_OK && tensors > 0 : refused(status));
    status = mm_estimate_memory(config, &workload, &memory);
    MUST(status == MM_OK || refused(status));
    MUST(status != MM_OK || memory.total > 0);
    status = mm_estimate_flops(config, &workload, &flops);
    MUST(status == MM_OK || refused(status));
}

static void walk(const mm_config *config)
{
    mm_tensor_info info = MM_TENSOR_INFO_INIT;
    int64_t tensors = 0;
    MUST(mm_layout_count(config, &tensors) == MM_OK);
    for (int64_t i = 0; i < 3 && i < tensors; i++) {
        MUST(mm_layout_get(config, i, &info) == MM_OK);
        MUST(mm_layout_get(config, tensors - 1 - i, &info) == MM_OK && info.elements > 0);
    }
    MUST(mm_layout_get(config, tensors, &info) == MM_ERR_ARG);
}

static void round_trip(const mm_config *config)
{
    mm_param_count a = MM_PARAM_COUNT_INIT, b = MM_PARAM_COUNT_INIT;
    mm_config *again = NULL;
    const char *path = fuzz_file("config.json", "", 0);
    MUST(mm_config_save(config, path) == MM_OK);
    MUST(mm_config_load(path, &again) == MM_OK);
    MUST(mm_config_validate(again) == MM_OK);
    MUST(mm_count_params(config, &a) == MM_OK && mm_count_params(again, &b) == MM_OK);
    MUST(a.total == b.total && a.active == b.active);
    mm_config_free(again);
}

static void run(const mm_config *config)
{
    mm_param_count counted = MM_PARAM_COUNT_INIT;
    MUST(mm_count_params(config, &counted) == MM_OK);
    if (counted.total > SMALL)
        return;
    mm_model *model = NULL;
    mm_context *context = NULL;
    mm_context_options options = MM_CONTEXT_OPTIONS_INIT;
    options.mode = MM_TRAIN, options.max_length = 2, options.threads = 1;
    MUST(mm_model_create(config, 1, &model) == MM_OK);
    mm_status status = mm_context_create(model, &options, &context);
    MUST(status == MM_OK || refused(status));
    if (status == MM_OK) {
        const int32_t ids[2] = { 0, 0 };
        mm_batch batch = MM_BATCH_INIT;
        mm_output output = MM_OUTPUT_INIT;
        batch.ids = batch.targets = ids, batch.batch = 1, batch.length = 2, batch.mode = MM_TRAIN;
        status = mm_forward(context, &batch, &output);
        MUST(status == MM_OK || refused(status));
        MUST(status != MM_OK || mm_backward(context, NULL) == MM_OK);
    }
    mm_context_free(context);
    mm_model_free(model);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    mm_config *config = NULL;
    mm_status status = mm_config_load_memory((const char *)data, size, &config);
    MUST(status == MM_OK ? config != NULL : refused(status) && config == NULL);
    if (status != MM_OK)
        return 0;
    status = mm_config_validate(config);
    MUST(status == MM_OK || refused(status));
    count(config, status == MM_OK);
    if (status == MM_OK) {
        walk(config);
        round_trip(config);
        run(config);
    }
    mm_config_free(config);
    return 0;
}
