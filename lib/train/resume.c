/* Going back to a checkpoint: first everything is read and checked, then nothing can fail any more. */
#include <string.h>

#include "base/files.h"
#include "base/log.h"
#include "base/memory.h"
#include "data/loader.h"
#include "model/model.h"
#include "model/show.h"
#include "train/checkpoint.h"
#include "train/optimizer.h"
#include "train/stage.h"
#include "train/state.h"

/* --- The config --- */

static mm_status compare_configs(const mm_config *saved, const mm_config *here, const char *directory)
{
    for (int32_t i = 0; i < mm_config_key_count(); i++) {
        char a[MMI_SHOWN], b[MMI_SHOWN];
        const char *key = mmi_config_show(a, saved, i);
        mmi_config_show(b, here, i);
        if (strcmp(a, b) != 0)
            return mmi_fail(MM_ERR_FORMAT, "%s: is a checkpoint of another model: its %s is %s, here it is %s",
                            directory, key, mmi_shorten(a), mmi_shorten(b));
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

/* A checkpoint, opened and checked: its files, and where their tensors belong. */
typedef struct saved {
    mmi_place now, boundary;
    mmi_reading last, boundary_last;
    mmi_health health, boundary_health;
    mmi_tensor_list lists[MMI_PARTS];
    mmi_st_file files[MMI_PARTS];
    int64_t updates; /* as the optimizer's file has it */
} saved;

static void close_saved(saved *s)
{
    for (int part = 0; part < MMI_PARTS; part++) {
        mmi_st_close(&s->files[part]);
        mmi_tensors_free(&s->lists[part]);
    }
}

static mm_status check_updates(saved *s, const char *path)
{
    mm_status status = mmi_optimizer_read_steps(&s->updates, &s->files[MMI_PART_OPTIMIZER], path);
    if (status == MM_OK && s->updates != s->now.updates)
        status = mmi_fail(MM_ERR_FORMAT, "%s: was saved after %lld updates, state.json after %lld", path,
                          (long long)s->updates, (long long)s->now.updates);
    return status;
}

static mm_status open_part(saved *s, mmi_part part, const mm_trainer *t, const char *directory)
{
    mm_status status = mmi_part_list(&s->lists[part], part, t);
    if (status != MM_OK || s->lists[part].count == 0)
        return status;
    char *path = mmi_path_join(directory, mmi_part_name(part, t));
    if (!path)
        return mmi_fail_memory(strlen(directory), "a path");
    status = mmi_tensors_open(&s->files[part], path, &s->lists[part]);
    if (status == MM_OK && part == MMI_PART_OPTIMIZER)
        status = check_updates(s, path);
    else if (status == MM_OK && part == MMI_PART_STAGE && t->stage->check)
        status = t->stage->check(t, &s->files[part], path);
    mmi_free(path);
    return status;
}

static mm_status open_tensors(saved *s, const mm_trainer *t, const char *directory)
{
    mm_status status = MM_OK;
    for (int part = 0; part < MMI_PARTS && status == MM_OK; part++)
        if (part != MMI_PART_GRADIENTS || s->now.step > s->boundary.step)
            status = open_part(s, (mmi_part)part, t, directory);
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
        status = mmi_state_places(&s->now, &s->boundary, state, directory);
    if (status == MM_OK)
        status = mmi_state_readings(&s->last, &s->health, state, false, directory);
    if (status == MM_OK)
        status = mmi_state_readings(&s->boundary_last, &s->boundary_health, state, true, directory);
    if (status == MM_OK && s->now.step - s->boundary.step >= t->options.accumulation_steps)
        status =
            mmi_fail(MM_ERR_FORMAT, "%s/state.json: %lld steps since the last update, accumulation_steps is %lld",
                     directory, (long long)(s->now.step - s->boundary.step), (long long)t->options.accumulation_steps);
    if (status == MM_OK && t->stage->open)
        status = t->stage->open(t, mmi_json_get(state, "stage"), s->now.step, directory);
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
    mmi_loader_return(t->loader, &before);
    return status == MM_ERR_ARG ? MM_ERR_FORMAT : status;
}

static void take_saved(mm_trainer *t, const saved *s)
{
    mm_zero_grad(t->context);
    for (int part = 0; part < MMI_PARTS; part++)
        if (s->files[part].count > 0)
            mmi_tensors_take(&s->files[part], &s->lists[part]);
    mmi_trainer_written(t);
    mmi_optimizer_set_steps(t->optimizer, s->updates);
    if (t->stage->take)
        t->stage->take(t);
    t->now = s->now;
    t->last = s->last;
    t->health = s->health;
    t->standings.loads_of = 0;
    t->boundary = s->boundary;
    mmi_trainer_begin_epoch(&t->now, t); /* where a run that was at its end has become longer */
    mmi_trainer_begin_epoch(&t->boundary, t);
    t->boundary_last = s->boundary_last;
    t->boundary_health = s->boundary_health;
    t->saved_step = -1;
}

static mm_status resume(mm_trainer *t, const char *path)
{
    char *directory = NULL;
    if (mmi_checkpoint_wait(t) != MM_OK)
        mmi_log(MM_LOG_WARNING, "a checkpoint was not written: %s", mm_last_error());
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

mm_status mm_trainer_resume(mm_trainer *t, const char *path)
{
    if (!t || !path)
        return mmi_fail(MM_ERR_ARG, "mm_trainer_resume: %s is NULL", t ? "path" : "trainer");
    mm_status status = mmi_trainer_enter(t, "mm_trainer_resume");
    if (status != MM_OK)
        return status;
    status = resume(t, path);
    mmi_trainer_leave(t);
    return status;
}
