/* An adapter: the first byte of an input says whether the rest is its config, its weights, or a file alone. What is
 * taken runs, and is written and read back. */
#include "base/files.h"
#include "base/memory.h"
#include "fuzz.h"

static const char config[] =
    "{\"peft_type\": \"LORA\", \"r\": 2, \"lora_alpha\": 4, \"target_modules\": [\"q_proj\", \"v_proj\"]}";

static mm_model *model;
static mm_context *context;
static char whole[512], again[512];
static char *weights; /* a file of them that goes with the config */
static size_t weights_size;

static void give_back(void)
{
    mmi_free(weights);
    mm_context_free(context);
    mm_model_free(model);
}

static void begin(void)
{
    mm_context_options co = MM_CONTEXT_OPTIONS_INIT;
    mm_adapter_options ao = MM_ADAPTER_OPTIONS_INIT;
    mm_adapter *adapter = NULL;
    co.max_length = 4, co.threads = 1, co.outputs = MM_OUT_LAST_LOGITS;
    ao.targets = "q_proj,v_proj", ao.rank = 2;
    model = fuzz_model();
    MUST(mm_context_create(model, &co, &context) == MM_OK);
    MUST(mm_adapter_create(model, &ao, &adapter) == MM_OK);
    snprintf(again, sizeof again, "%s/again", fuzz_directory());
    snprintf(whole, sizeof whole, "%s/whole", fuzz_directory());
    MUST(mm_adapter_save(adapter, whole) == MM_OK);
    mm_adapter_free(adapter);
    snprintf(whole, sizeof whole, "%s/whole/adapter_model.safetensors", fuzz_directory());
    MUST(mmi_read_file(whole, &weights, &weights_size) == MM_OK);
    snprintf(whole, sizeof whole, "%s/whole", fuzz_directory());
    MUST(atexit(give_back) == 0);
}

static void run(mm_adapter *adapter)
{
    static const int32_t ids[4] = { 1, 2, 3, 4 };
    mm_batch batch = MM_BATCH_INIT;
    mm_output out = MM_OUTPUT_INIT;
    batch.ids = ids, batch.batch = 1, batch.length = 4;
    MUST(mm_context_set_adapters(context, &adapter, NULL, 1) == MM_OK);
    mm_status status = mm_forward(context, &batch, &out);
    MUST(status == MM_OK || status == MM_ERR_NUMERIC); /* its numbers may be any */
    MUST(mm_context_set_adapters(context, NULL, NULL, 0) == MM_OK);
}

static void look(const mm_adapter *adapter)
{
    mm_adapter_options options = MM_ADAPTER_OPTIONS_INIT;
    MUST(mm_adapter_describe(adapter, &options) == MM_OK);
    MUST(options.rank >= 1 && options.alpha > 0 && options.dropout >= 0 && options.dropout < 1);
    for (int64_t i = 0; i < mm_adapter_tensor_count(adapter); i++) {
        char name[512];
        mm_view one, two;
        MUST(mm_adapter_name(adapter, i, name, sizeof name, NULL) == MM_OK);
        MUST(mm_adapter_tensor(adapter, i, &one) == MM_OK && mm_adapter_find(adapter, name, &two) == MM_OK);
        MUST(one.data == two.data && one.shape[i % 2] == options.rank);
    }
}

static void save_again(const mm_adapter *adapter)
{
    mm_adapter *second = NULL;
    MUST(mm_adapter_save(adapter, again) == MM_OK);
    MUST(mm_adapter_load(model, again, &second) == MM_OK);
    MUST(mm_adapter_count_params(second) == mm_adapter_count_params(adapter));
    mm_adapter_free(second);
}

static void load(const char *path)
{
    static unsigned runs;
    mm_adapter *adapter = NULL;
    mm_status status = mm_adapter_load(model, path, &adapter);
    MUST(status == MM_OK ? adapter != NULL : refused(status) && adapter == NULL);
    if (status != MM_OK)
        return;
    look(adapter);
    run(adapter);
    if (runs++ % 16 == 0)
        save_again(adapter);
    mm_adapter_free(adapter);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!model)
        begin();
    if (size < 1)
        return 0;
    if (data[0] % 3 == 2) {
        load(fuzz_file("alone.safetensors", data + 1, size - 1));
        return 0;
    }
    int is_config = data[0] % 3 == 0;
    fuzz_file("whole/adapter_config.json", is_config ? (const char *)data + 1 : config,
              is_config ? size - 1 : sizeof config - 1);
    fuzz_file("whole/adapter_model.safetensors", is_config ? weights : (const char *)data + 1,
              is_config ? weights_size : size - 1);
    load(whole);
    return 0;
}
