#define _POSIX_C_SOURCE 200809L

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/dtype.h"
#include "base/memory.h"
#include "model/handle.h"
#include "model/names.h"
#include "model/safetensors.h"

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
    mmi_carve carve = { NULL, 0, false };
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
    }
    return MM_OK;
}

static mm_status write_weights(const mm_model *model, const char *path)
{
    /* Other readers ask for this mark before they take a file for PyTorch's. */
    static const char *const metadata[] = { "format", "pt", NULL };
    table t = { NULL, NULL };
    mm_status status = describe(&t, model);
    if (status == MM_OK)
        status = mmi_st_write(path, t.entries, (size_t)model->layout.count, metadata);
    mmi_free(t.entries);
    return status;
}

/* The names a save needs. */
typedef struct paths {
    char *weights, *config;
    char *waiting; /* where config.json waits until the weights are in place */
} paths;

static atomic_uint serial;

static void free_paths(paths *p)
{
    mmi_free(p->weights);
    mmi_free(p->config);
    mmi_free(p->waiting);
}

static mm_status make_paths(paths *p, const char *directory)
{
    char name[64];
    snprintf(name, sizeof name, "config.json.%ld-%u.tmp", (long)getpid(), atomic_fetch_add(&serial, 1));
    p->weights = mmi_path_join(directory, "model.safetensors");
    p->config = mmi_path_join(directory, "config.json");
    p->waiting = mmi_path_join(directory, name);
    if (!p->weights || !p->config || !p->waiting)
        return mmi_fail_memory(strlen(directory) + sizeof name, "a path");
    return MM_OK;
}

/* The config is on disk, under another name, before the weights are replaced: what is left to do behind them is one
 * rename, which needs no room. Saving a model over an older state of itself thus leaves a loadable directory at any
 * moment, and a full disk leaves the old one. */
static mm_status write_files(const mm_model *model, const paths *p)
{
    mm_status status = mm_config_save(model->config, p->waiting);
    if (status == MM_OK)
        status = write_weights(model, p->weights);
    if (status == MM_OK)
        status = mmi_rename_synced(p->waiting, p->config);
    if (status != MM_OK)
        unlink(p->waiting);
    return status;
}

mm_status mm_model_save(const mm_model *model, const char *directory)
{
    if (!model || !directory)
        return mmi_fail(MM_ERR_ARG, "mm_model_save: %s is NULL", model ? "directory" : "model");
    if (directory[0] == '\0')
        return mmi_fail(MM_ERR_ARG, "mm_model_save: the directory's name is empty");
    for (int64_t i = 0; i < model->layout.count; i++)
        if (mmi_block_bytes(model->dtypes[i]) > 0)
            return mmi_fail(MM_ERR_UNSUPPORTED,
                            "mm_model_save: the weights are %s, which safetensors has no dtype for; "
                            "mm_model_cast() to one of f32, bf16 and f16 gives some that can be saved",
                            mm_dtype_name(model->dtypes[i]));
    paths p = { NULL, NULL, NULL };
    bool there = mmi_is_directory(directory);
    mm_status status = make_paths(&p, directory);
    if (status == MM_OK)
        status = mmi_make_directory(directory);
    if (status == MM_OK)
        status = write_files(model, &p);
    if (status != MM_OK && !there)
        rmdir(directory); /* succeeds only on one that was made here and is empty */
    free_paths(&p);
    return status;
}
