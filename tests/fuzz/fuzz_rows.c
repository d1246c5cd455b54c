/* A JSON-lines file, read as every kind of row in every form; bad lines passed over, then not. */

#include "fuzz.h"

static const char *const templates[] = { "minimind2", "minimind3", "minillm" };

static void check_batch(const mm_batch *batch, int32_t longest)
{
    MUST(batch->length <= longest && batch->batch <= 4);
    for (int64_t i = 0; i < (int64_t)batch->batch * batch->length; i++) {
        MUST(batch->ids[i] >= 0 && batch->ids[i] < 259);
        MUST(batch->targets[i] == -100 || (batch->targets[i] >= 0 && batch->targets[i] < 259));
    }
}

/* An epoch ends, whatever the file holds. */
static void epoch(mm_loader *loader, int32_t kind, int64_t most)
{
    for (int64_t steps = 0;; steps++) {
        MUST(steps <= most);
        mm_batch batch = MM_BATCH_INIT;
        mm_prompts prompts = MM_PROMPTS_INIT;
        mm_status status = kind == MM_ROW_PROMPT ? mm_loader_next_prompts(loader, &prompts) : mm_loader_next(loader, &batch);
        MUST(status == MM_OK || refused(status));
        if (status != MM_OK)
            return;
        if (kind != MM_ROW_PROMPT)
            check_batch(&batch, 16);
        if (kind == MM_ROW_PROMPT ? prompts.at_end : batch.batch == 0)
            return;
    }
}

static void load(mm_dataset *dataset, int32_t kind, int32_t form, const char *name, size_t size)
{
    mm_loader_options options = MM_LOADER_OPTIONS_INIT;
    options.kind = kind, options.form = form, options.template_name = name;
    options.batch = 2, options.max_length = 16, options.workers = 0;
    for (options.skip_bad_lines = 0; options.skip_bad_lines < 2; options.skip_bad_lines++) {
        mm_loader *loader = NULL;
        mm_status status = mm_loader_create(dataset, fuzz_tokenizer(), &options, &loader);
        MUST(status == MM_OK || refused(status));
        if (status != MM_OK)
            return;
        mm_row_report report = MM_ROW_REPORT_INIT;
        status = mm_loader_check_row(loader, mm_dataset_rows(dataset) - 1, &report);
        MUST(status == MM_OK || refused(status));
        epoch(loader, kind, (int64_t)size * 1000 + 1000);
        mm_loader_free(loader);
    }
}

static void read_rows(mm_dataset *dataset)
{
    char text[256];
    size_t needed = 0;
    for (int64_t row = 0; row < 3 && row < mm_dataset_rows(dataset); row++) {
        mm_status status = mm_dataset_text(dataset, row, text, sizeof text, &needed);
        MUST(status == MM_OK || refused(status));
        status = mm_dataset_line(dataset, row, text, sizeof text, &needed);
        MUST(status == MM_OK || refused(status));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *path = fuzz_file("rows.jsonl", data, size);
    mm_dataset_options options = MM_DATASET_OPTIONS_INIT;
    mm_dataset *dataset = NULL;
    options.paths = &path, options.count = 1, options.cache_from = -1, options.max_line = 4096;
    mm_status status = mm_dataset_create(&options, &dataset);
    MUST(status == MM_OK || refused(status));
    if (status != MM_OK)
        return 0;
    MUST(mm_dataset_rows(dataset) > 0);
    read_rows(dataset);
    for (int32_t form = MM_ROWS_PAD; form <= MM_ROWS_PACK; form++)
        load(dataset, MM_ROW_TEXT, form, NULL, size);
    for (size_t i = 0; i < sizeof templates / sizeof *templates; i++) {
        load(dataset, MM_ROW_CHAT, i == 1 ? MM_ROWS_PAD3 : MM_ROWS_PAD, templates[i], size);
        load(dataset, MM_ROW_PREFERENCE, MM_ROWS_PAD, templates[i], size);
        load(dataset, MM_ROW_PROMPT, MM_ROWS_PAD, templates[i], size);
    }
    load(dataset, MM_ROW_CHAT, MM_ROWS_PACK, templates[0], size);
    mm_dataset_free(dataset);
    return 0;
}
