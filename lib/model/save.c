#define _POSIX_C_SOURCE 200809L

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/dtype.h"
#include "base/memory.h"
#include "model/fields.h"
#include "model/handle.h"
#include "model/names.h"
#include "model/safetensors.h"
#include "model/save.h"

/* A tensor's row and its name, in one block. */
typedef struct table {
    mmi_st_entry *entries;
    char (*names)[MMI_NAME_SIZE];
} table;

static void *carve_table(mmi_carve *carve, table *t, int64_t count)
{
    t->entries = mmi_carve_take(carve, count, sizeof *t->entries);
    t->names = mmi_carve_take(carve, count, sizeof *t->names);
    return carve->base;
}

/* Every tensor of the model as a row for the file. */
static mm_status describe(table *t, const mm_model *model)
{
    int64_t count = model->layout.count;
    mmi_carve carve = { 0 };
    carve_table(&carve, t, count);
    carve.base = carve.overflow ? NULL : mmi_calloc(carve.used, 1);
    if (!carve.base)
        return mmi_fail_memory(carve.used, "the list of tensors");
    carve.used = 0;
    carve_table(&carve, t, count);
    for (int64_t i = 0; i < count; i++) {
        mmi_tensor tensor;
        mmi_layout_tensor(&model->layout, i, &tensor);
        mmi_layout_name(&model->layout, i, t->names[i], sizeof t->names[i]);
        mmi_st_entry *e = &t->entries[i];
        e->name = t->names[i];
        e->dtype = model->dtypes[i];
        e->rank = tensor.rank;
        e->data = model->data[i];
        e->shape[0] = tensor.shape[0];
        e->shape[1] = tensor.shape[1];
        e->shape[2] = e->shape[3] = 1;
        if (mmi_block_bytes(e->dtype) == 0)
            continue;
        e->blocks = e->dtype; /* the format has no dtype for them */
        e->dtype = MMI_ST_BYTES;
        e->shape[1] = (int64_t)mmi_dtype_bytes(e->blocks, tensor.shape[1]);
    }
    return MM_OK;
}

static mm_status write_weights(const void *owner, const char *path)
{
    const mm_model *model = owner;
    /* Other readers ask for this mark before they take a file for PyTorch's, which one with blocks is not. */
    const bool in_blocks = mmi_block_bytes(model->dtypes[0]) > 0;
    const char *const metadata[] = { "format", in_blocks ? "minimind" : "pt", in_blocks ? "dtype" : NULL,
                                     mm_dtype_name(model->dtypes[0]), NULL };
    table t = { NULL, NULL };
    mm_status status = describe(&t, model);
    if (status == MM_OK)
        status = mmi_st_write(path, t.entries, (size_t)model->layout.count, metadata);
    mmi_free(t.entries);
    return status;
}

static mm_status write_config(const void *owner, const char *path)
{
    const mm_model *model = owner;
    return mmi_config_save(model->config, path, model->dtypes[0]);
}

/* The names a save needs. */
typedef struct paths {
    char *weights, *config;
    char *new_weights, *new_config; /* where each waits for the other */
} paths;

static void free_paths(paths *p)
{
    mmi_free(p->weights);
    mmi_free(p->config);
    mmi_free(p->new_weights);
    mmi_free(p->new_config);
}

static mm_status make_paths(paths *p, const char *directory, const mmi_saved_pair *pair)
{
    p->weights = mmi_path_join(directory, pair->weights);
    p->config = mmi_path_join(directory, pair->config);
    p->new_weights = mmi_path_waiting(directory, pair->weights);
    p->new_config = mmi_path_waiting(directory, pair->config);
    if (!p->weights || !p->config || !p->new_weights || !p->new_config)
        return mmi_fail_memory(strlen(directory) + strlen(pair->weights), "a path");
    return MM_OK;
}

/* Both are on disk, under other names, before either takes its place: what is left to do are two renames, which need no
 * room. The directory is synced behind both, so that a sync that fails does not come between them. */
static mm_status write_files(const mmi_saved_pair *pair, const paths *p)
{
    mm_status status = mmi_check_replaceable(p->weights);
    if (status == MM_OK)
        status = mmi_check_replaceable(p->config);
    if (status == MM_OK)
        status = pair->write_weights(pair->owner, p->new_weights);
    if (status == MM_OK)
        status = pair->write_config(pair->owner, p->new_config);
    if (status == MM_OK)
        status = mmi_rename(p->new_weights, p->weights);
    if (status == MM_OK)
        status = mmi_rename_synced(p->new_config, p->config);
    if (status != MM_OK) {
        unlink(p->new_weights);
        unlink(p->new_config);
    }
    return status;
}

mm_status mmi_save_pair(const char *directory, const mmi_saved_pair *pair)
{
    paths p = { NULL, NULL, NULL, NULL };
    bool there = mmi_is_directory(directory);
    mm_status status = make_paths(&p, directory, pair);
    if (status == MM_OK)
        status = mmi_make_directory(directory);
    if (status == MM_OK)
        status = write_files(pair, &p);
    if (status == MM_OK) { /* a killed save may have left as much as the model takes */
        mmi_writer_clear(directory, pair->weights, false);
        mmi_writer_clear(directory, pair->config, false);
    }
    if (status != MM_OK && !there)
        rmdir(directory); /* succeeds only on one that was made here and is empty */
    free_paths(&p);
    return status;
}

mm_status mm_model_save(const mm_model *model, const char *directory)
{
    if (!model || !directory)
        return mmi_fail(MM_ERR_ARG, "mm_model_save: %s is NULL", model ? "directory" : "model");
    if (directory[0] == '\0')
        return mmi_fail(MM_ERR_ARG, "mm_model_save: the directory's name is empty");
    const mmi_saved_pair pair = { "config.json", "model.safetensors", write_config, write_weights, model };
    return mmi_save_pair(directory, &pair);
}
