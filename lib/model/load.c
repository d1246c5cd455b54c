#include <string.h>

#include "base/dtype.h"
#include "base/memory.h"
#include "base/options.h"
#include "model/convert.h"
#include "model/fields.h"
#include "model/handle.h"
#include "model/match.h"
#include "model/shards.h"

MMI_OPTIONS_INIT(mm_load_options, MM_LOAD_OPTIONS_INIT)

/* Where a model comes from. */
typedef struct origin {
    mmi_st_file *files;
    size_t count;
    const char *weights, *config; /* for messages */
    bool map, keep_dtype;
} origin;

/* A config that doesn't say which MiniMind it is may leave that to the weights. What holds of one version may not hold of
 * another: then the files contradict each other. */
static mm_status settle_version(mm_config *config, const origin *from)
{
    char type[16] = "";
    if (mmi_config_is_set(config, "minimind_version") || !mmi_config_is_set(config, "model_type") ||
        !mmi_match_has_q_norm(from->files, from->count))
        return MM_OK;
    mm_status status = mm_config_get_string(config, "model_type", type, sizeof type, NULL);
    if (status != MM_OK || strcmp(type, "minimind") != 0)
        return status;
    status = mm_config_set_int(config, "minimind_version", 3);
    if (status == MM_OK)
        status = mm_config_validate(config);
    return status == MM_OK ? MM_OK : mmi_fail_within(status == MM_ERR_ARG ? MM_ERR_FORMAT : status, "%s", from->config);
}

/* Blocks stay blocks: as float32 they would take four or eight times the memory that they were made to save. */
static mm_status take_copies(mm_model *model, const mmi_source *sources, bool keep_dtype)
{
    int64_t count = model->layout.count;
    const bool in_blocks = mmi_block_bytes(sources[0].dtype) > 0;
    mmi_tensor tensor;
    for (int64_t i = 0; i < count; i++) {
        mmi_layout_tensor(&model->layout, i, &tensor);
        model->dtypes[i] = in_blocks    ? mmi_tensor_dtype(&tensor, sources[0].dtype)
                           : keep_dtype ? sources[i].dtype
                                        : MM_F32;
    }
    mm_status status = mmi_model_place(model);
    for (int64_t i = 0; status == MM_OK && i < count; i++) {
        const mmi_source *s = &sources[i];
        void *room = mmi_model_room(model, i);
        mmi_layout_tensor(&model->layout, i, &tensor);
        status = mmi_block_bytes(s->dtype) > 0
                     ? mmi_convert_blocks(room, s->dtype, tensor.shape[0], tensor.shape[1], s->file, s->entry)
                     : mmi_convert_entry(room, model->dtypes[i], s->file, s->entry);
    }
    return status;
}

/* Point into the files, and take their mappings over. */
static mm_status take_mappings(mm_model *model, const mmi_source *sources, const origin *from)
{
    for (int64_t i = 0; i < model->layout.count; i++) {
        const mmi_st_entry *e = sources[i].entry;
        size_t size = mm_dtype_size(e->dtype);
        if (e->offset % size != 0)
            return mmi_fail(MM_ERR_UNSUPPORTED, "%s: %s begins at byte %zu, not at a multiple of %zu: such a file can "
                                                "be loaded, but not mapped",
                            sources[i].file->what, e->name, e->offset, size);
        model->dtypes[i] = e->dtype;
        model->data[i] = e->data;
    }
    for (size_t i = 0; i < from->count; i++) {
        model->maps[i] = from->files[i].mapping;
        from->files[i].mapping = (mmi_mapping){ NULL, 0 };
    }
    return MM_OK;
}

static mm_status take_weights(mm_model *model, const origin *from)
{
    size_t count = (size_t)model->layout.count;
    mmi_source *sources = mmi_alloc(count, sizeof *sources);
    if (!sources)
        return mmi_fail_memory(count * sizeof *sources, from->weights);
    mmi_match_input in = { &model->layout, from->files, from->count, from->weights, from->config };
    mm_status status = mmi_match(sources, &in);
    if (status == MM_OK && from->map && mmi_block_bytes(sources[0].dtype) == 0)
        status = take_mappings(model, sources, from);
    else if (status == MM_OK)
        status = take_copies(model, sources, from->keep_dtype);
    mmi_free(sources);
    return status;
}

static mm_status build(mm_model **out, mm_config *config, const origin *from)
{
    mm_model *model = NULL;
    mm_status status = settle_version(config, from);
    if (status == MM_OK)
        status = mmi_model_new(&model, config, from->map ? from->count : 0);
    if (status == MM_OK)
        status = take_weights(model, from);
    if (status == MM_OK)
        *out = model;
    else
        mm_model_free(model);
    return status;
}

static mm_status read_options(mm_load_options *options, const mm_load_options *given)
{
    mm_status status = mmi_options_read(options, sizeof *options, given, "mm_load_options");
    if (status != MM_OK)
        return status;
    if (options->map != 0 && options->map != 1)
        return mmi_fail(MM_ERR_ARG, "mm_load_options: map is %d, allowed are 0 and 1", (int)options->map);
    if (options->keep_dtype != 0 && options->keep_dtype != 1)
        return mmi_fail(MM_ERR_ARG, "mm_load_options: keep_dtype is %d, allowed are 0 and 1", (int)options->keep_dtype);
    return MM_OK;
}

mm_status mm_model_load(const char *directory, const mm_load_options *options, mm_model **out)
{
    if (!directory || !out)
        return mmi_fail(MM_ERR_ARG, "mm_model_load: %s is NULL", directory ? "out" : "directory");
    mm_load_options o = MM_LOAD_OPTIONS_INIT;
    mm_status status = read_options(&o, options);
    if (status != MM_OK)
        return status;
    if (!mmi_is_directory(directory))
        return mmi_fail(MM_ERR_IO, "%s: %s", directory,
                        mmi_file_exists(directory) ? "is not a directory" : "there is no such directory");
    mm_config *config = NULL;
    mmi_shards shards = { NULL, 0, NULL };
    status = mm_config_load(directory, &config);
    if (status == MM_OK)
        status = mmi_shards_open(&shards, directory, o.map);
    if (status == MM_OK) {
        origin from = { shards.files, shards.count, shards.what, "config.json", o.map, o.keep_dtype };
        status = build(out, config, &from);
    }
    mmi_shards_close(&shards);
    mm_config_free(config);
    return status;
}

mm_status mm_model_load_memory(const mm_config *config, const void *data, size_t size, mm_model **out)
{
    if (!config || !data || !out)
        return mmi_fail(MM_ERR_ARG, "mm_model_load_memory: %s is NULL", !config ? "config" : data ? "out" : "data");
    mm_config *own = NULL;
    mmi_st_file file;
    memset(&file, 0, sizeof file);
    mm_status status = mm_config_copy(config, &own);
    if (status == MM_OK)
        status = mmi_st_parse(data, size, "safetensors image", &file);
    if (status == MM_OK) {
        origin from = { &file, 1, "safetensors image", "the config", false, false };
        status = build(out, own, &from);
    }
    mmi_st_close(&file);
    mm_config_free(own);
    return status;
}
