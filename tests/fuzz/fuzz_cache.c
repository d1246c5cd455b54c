/* A file of keys and values. What is taken is gone on from, and written and read back. */
#include "fuzz.h"

static mm_model *model;
static mm_context *context;

static void give_back(void)
{
    mm_context_free(context);
    mm_model_free(model);
}

static void begin(void)
{
    mm_context_options options = MM_CONTEXT_OPTIONS_INIT;
    options.max_length = 4, options.max_context = 32, options.threads = 1, options.outputs = MM_OUT_LAST_LOGITS;
    model = fuzz_model();
    MUST(mm_context_create(model, &options, &context) == MM_OK);
    MUST(atexit(give_back) == 0);
}

static void save_again(const mm_cache *cache)
{
    char path[512];
    mm_cache *again = NULL;
    snprintf(path, sizeof path, "%s/again", fuzz_directory());
    MUST(mm_cache_save(cache, path) == MM_OK);
    MUST(mm_cache_load(model, path, &again) == MM_OK);
    MUST(mm_cache_sequences(again) == mm_cache_sequences(cache) &&
         mm_cache_capacity(again) == mm_cache_capacity(cache));
    MUST(mm_cache_dtype(again) == mm_cache_dtype(cache));
    for (int32_t i = 0; i < mm_cache_sequences(cache); i++)
        MUST(mm_cache_length(again, i) == mm_cache_length(cache, i));
    mm_cache_free(again);
}

/* One token more; there may be no room for it, and the numbers may be any. */
static void go_on(mm_cache *cache)
{
    const int32_t id = 1;
    mm_batch batch = MM_BATCH_INIT;
    mm_output out = MM_OUTPUT_INIT;
    batch.ids = &id, batch.batch = batch.length = 1, batch.cache = cache;
    mm_status status = mm_forward(context, &batch, &out);
    MUST(status == MM_OK || status == MM_ERR_NUMERIC || refused(status));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    mm_cache *cache = NULL;
    if (!model)
        begin();
    mm_status status = mm_cache_load(model, fuzz_file("cache", data, size), &cache);
    MUST(status == MM_OK ? cache != NULL : refused(status) && cache == NULL);
    if (status != MM_OK)
        return 0;
    MUST(mm_cache_sequences(cache) > 0 && mm_cache_capacity(cache) > 0 && mm_cache_capacity(cache) <= 32);
    for (int32_t i = 0; i < mm_cache_sequences(cache); i++)
        MUST(mm_cache_length(cache, i) >= 0 && mm_cache_length(cache, i) <= mm_cache_capacity(cache));
    save_again(cache);
    go_on(cache);
    mm_cache_free(cache);
    return 0;
}
