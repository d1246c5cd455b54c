/* A safetensors file: its header, then as the weights of a small model, from memory and from a directory. */

#include "base/files.h"
#include "fuzz.h"
#include "model/safetensors.h"

static void check_entries(const uint8_t *data, size_t size, const mmi_st_file *file)
{
    for (size_t i = 0; i < file->count; i++) {
        const mmi_st_entry *entry = &file->entries[i];
        const uint8_t *at = entry->data;
        MUST(mmi_st_find(file, entry->name) == entry);
        MUST(entry->bytes == 0 || (at >= data && at <= data + size && entry->bytes <= (size_t)(data + size - at)));
        MUST(entry->elements >= 0 && entry->rank >= 0 && entry->rank <= 4);
    }
}

static void save_again(const mm_model *model)
{
    char path[512];
    snprintf(path, sizeof path, "%s/again", fuzz_directory());
    MUST(mm_model_save(model, path) == MM_OK);
    mm_model *again = NULL;
    MUST(mm_model_load(path, NULL, &again) == MM_OK);
    mm_model_free(again);
}

static void load_directory(const mm_config *config, const uint8_t *data, size_t size)
{
    char path[512];
    snprintf(path, sizeof path, "%s/model", fuzz_directory());
    MUST(mmi_make_directory(path) == MM_OK);
    MUST(mm_config_save(config, path) == MM_OK);
    fuzz_file("model/model.safetensors", data, size);
    for (int32_t map = 0; map < 2; map++) {
        mm_load_options options = MM_LOAD_OPTIONS_INIT;
        mm_model *model = NULL;
        options.map = map;
        mm_status status = mm_model_load(path, &options, &model);
        MUST(status == MM_OK || refused(status));
        mm_model_free(model);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static unsigned runs;
    mmi_st_file file = { 0 };
    mm_config *config = fuzz_config();
    mm_model *model = NULL;
    mm_status parsed = mmi_st_parse(data, size, "image", &file);
    MUST(parsed == MM_OK || refused(parsed));
    if (parsed == MM_OK)
        check_entries(data, size, &file);
    mmi_st_close(&file);
    mm_status loaded = mm_model_load_memory(config, data, size, &model);
    MUST(loaded == MM_OK || refused(loaded));
    MUST(loaded != MM_OK || parsed == MM_OK);
    if (loaded == MM_OK && runs % 16 == 0)
        save_again(model);
    if (runs++ % 16 == 0)
        load_directory(config, data, size);
    mm_model_free(model);
    mm_config_free(config);
    return 0;
}
