/* Going back to a checkpoint: first everything is read and checked, then nothing can fail any more. */
#include <string.h>

#include "base/files.h"
#include "base/memory.h"
#include "model/model.h"
#include "model/show.h"
#include "train/checkpoint.h"
#include "train/optimizer.h"
#include "train/stage.h"
#include "train/state.h"

static float *get_weight(void *model, int64_t index)
{
    return mmi_model_trainable(model, index);
}

/* --- The config --- */

static mm_status compare_configs(const mm_config *saved, const mm_config *here, const char *directory)
{
    for (int32_t i = 0; i < mm_config_key_count(); i++) {
        mm_config_key key = MM_CONFIG_KEY_INIT;
        char a[MMI_SHOWN], b[MMI_SHOWN];
        mm_status status = mm_config_key_get(i, &key);
        if (status != MM_OK)
            return status;
        mmi_config_show(a, saved, &key);
        mmi_config_show(b, here, &key);
        if (strcmp(a, b) != 0)
            return mmi_fail(MM_ERR_FORMAT, "%s: is a checkpoint of another model: its %s is %s, here it is %s",
                            directory, key.name, a, b);
    }
    return MM_OK;
}

static mm_status check_config(const mm_trainer *t, const char *directory)
{
    mm_config *saved = NULL;
    mm_status status = mm_config_load(directory, &saved);
    if (status != MM_OK)
        return status == MM_ERR_UNSUPPORTED || status == MM_ERR_ARG ? MM_ERR_FORMAT : status;
    status = compare_configs(saved, mm_model_config(t->model), directory);
    mm_config_free(saved);
    return status;
}

/* --- All of it --- */

/* A file of the checkpoint, opened and checked, and where its tensors belong. */
typedef struct part {
    mmi_tensor_list list;
    mmi_st_file file;
} part;

/* A checkpoint, opened and checked. */
typedef struct saved {
    mmi_place now, boundary;
    mmi_reading last;
    part weights, moments, gradients, own;
    int64_t updates; /* as the optimizer's file has it */
} saved;

static void close_part(part *p)
{
    mmi_st_close(&p->file);
    mmi_tensors_free(&p->list);
}

static void close_saved(saved *s)
{
    close_part(&s->weights);
    close_part(&s->moments);
    close_part(&s->gradients);
    close_part(&s->own);
}

static mm_status list_weights(mmi_tensor_list *list, const mm_trainer *t)
{
    const mmi_trained all = { .layout = mmi_model_layout(t->model) };
    return mmi_tensors_add_all(list, &all, "", get_weight, t->model);
}

static mm_status list_moments(mmi_tensor_list *list, const mm_trainer *t)
{
    return mmi_optimizer_tensors(list, t->optimizer);
}

mm_status mmi_checkpoint_tensors(mmi_tensor_list *list, const mm_trainer *t)
{
    mm_status status = list_weights(list, t);
    if (status == MM_OK)
        status = list_moments(list, t);
    return status == MM_OK && t->stage->tensors ? t->stage->tensors(list, t) : status;
}

static mm_status open_part(part *p, const mm_trainer *t, const char *path,
                           mm_status (*fill)(mmi_tensor_list *list, const mm_trainer *t))
{
    mm_status status = fill(&p->list, t);
    return status == MM_OK ? mmi_tensors_open(&p->file, path, &p->list) : status;
}

static mm_status open_moments(saved *s, const mm_trainer *t, const char *path)
{
    mm_status status = open_part(&s->moments, t, path, list_moments);
    if (status == MM_OK)
        status = mmi_optimizer_read_steps(&s->updates, &s->moments.file, path);
    if (status == MM_OK && s->updates != s->now.updates)
        status = mmi_fail(MM_ERR_FORMAT, "%s: was saved after %lld updates, state.json after %lld", path,
                          (long long)s->updates, (long long)s->now.updates);
    return status;
}

static mm_status open_tensors(saved *s, const mm_trainer *t, const char *directory)
{
    char *model = mmi_path_join(directory, "model.safetensors");
    char *optimizer = mmi_path_join(directory, "optimizer.safetensors");
    char *gradient = mmi_path_join(directory, "gradients.safetensors");
    char *own = mmi_path_join(directory, "stage.safetensors");
    mm_status status = MM_OK;
    if (!model || !optimizer || !gradient || !own)
        status = mmi_fail_memory(strlen(directory), "a path");
    if (status == MM_OK)
        status = open_part(&s->weights, t, model, list_weights);
    if (status == MM_OK)
        status = open_moments(s, t, optimizer);
    if (status == MM_OK && s->now.step > s->boundary.step)
        status = open_part(&s->gradients, t, gradient, mmi_checkpoint_gradients);
    if (status == MM_OK && t->stage->tensors)
        status = open_part(&s->own, t, own, t->stage->tensors);
    mmi_free(model);
    mmi_free(optimizer);
    mmi_free(gradient);
    mmi_free(own);
    return status;
}

static mm_status check_state(saved *s, mm_trainer *t, mmi_json *state, const char *directory)
{
    mm_status status = mmi_state_check_files(state, directory);
    if (status == MM_OK)
        status = check_config(t, directory);
    if (status == MM_OK)
        status = mmi_state_check_options(state, t, directory);
    if (status == MM_OK)
        status = mmi_state_places(&s->now, &s->boundary, &s->last, state, directory);
    if (status == MM_OK && s->now.step - s->boundary.step >= t->options.accumulation_steps)
        status =
            mmi_fail(MM_ERR_FORMAT, "%s/state.json: %lld steps since the last update, accumulation_steps is %lld",
                     directory, (long long)(s->now.step - s->boundary.step), (long long)t->options.accumulation_steps);
    if (status == MM_OK && t->stage->open)
        status = t->stage->open(t, mmi_json_get(state, "stage"), directory);
    return status;
}

static mm_status open_saved(saved *s, mm_trainer *t, const char *directory)
{
    mmi_json *state = NULL;
    mm_status status = mmi_state_read(&state, directory);
    if (status == MM_OK)
        status = check_state(s, t, state, directory);
    mmi_json_free(state);
    return status == MM_OK ? open_tensors(s, t, directory) : status;
}

/* To both places, of which the loader stays at the later one; on failure it stands where it stood. */
static mm_status seek(const mm_trainer *t, const saved *s, const char *directory)
{
    mm_loader_position before = MM_LOADER_POSITION_INIT;
    mm_status status = mm_loader_tell(t->loader, &before);
    if (status != MM_OK)
        return status;
    status = mm_loader_seek(t->loader, &s->boundary.data);
    if (status == MM_OK)
        status = mm_loader_seek(t->loader, &s->now.data);
    if (status == MM_OK)
        return MM_OK;
    mmi_fail_within(status, "%s/state.json", directory);
    mm_loader_seek(t->loader, &before);
    return status == MM_ERR_ARG ? MM_ERR_FORMAT : status;
}

static void take_saved(mm_trainer *t, const saved *s)
{
    mm_zero_grad(t->context);
    mmi_tensors_take(&s->weights.file, &s->weights.list);
    mm_model_written(t->model);
    mmi_tensors_take(&s->moments.file, &s->moments.list);
    mmi_optimizer_set_steps(t->optimizer, s->updates);
    mmi_tensors_take(&s->gradients.file, &s->gradients.list);
    mmi_tensors_take(&s->own.file, &s->own.list);
    if (t->stage->take)
        t->stage->take(t);
    t->now = s->now;
    t->boundary = s->boundary;
    t->last = s->last;
    t->saved_step = -1;
}

mm_status mm_trainer_resume(mm_trainer *t, const char *path)
{
    if (!t || !path)
        return mmi_fail(MM_ERR_ARG, "mm_trainer_resume: %s is NULL", t ? "path" : "trainer");
    char *directory = NULL;
    mm_status status = mmi_checkpoint_find(&directory, path);
    if (status != MM_OK)
        return status;
    saved s;
    memset(&s, 0, sizeof s);
    status = open_saved(&s, t, directory);
    if (status == MM_OK)
        status = seek(t, &s, directory);
    if (status == MM_OK)
        take_saved(t, &s);
    close_saved(&s);
    mmi_free(directory);
    return status;
}
