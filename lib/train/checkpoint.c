/* Checkpoints: written beside their place, synced, renamed, and only then named by `latest`.
 *
 * Whatever happens in between, `latest` names a whole checkpoint. One name may have to be used again (a run that went
 * back and came to the same step once more); the old directory then waits as step-N.old until the new one is in place,
 * and mmi_checkpoint_find() looks there too. */
#define _POSIX_C_SOURCE 200809L

#include "train/checkpoint.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/files.h"
#include "base/log.h"
#include "base/memory.h"
#include "model/model.h"
#include "run/context.h"
#include "train/stage.h"
#include "train/parallel.h"
#include "train/state.h"

/* Longest name here: "step-9223372036854775807.tmp". */
#define NAME_SIZE 40

static float *get_gradient(void *context, int64_t index)
{
    return mmi_context_grads(context, index);
}

mm_status mmi_checkpoint_gradients(mmi_tensor_list *list, const mm_trainer *t)
{
    mmi_trained trained = mmi_context_trained(t->context);
    return mmi_tensors_add_all(list, &trained, "grad.", get_gradient, t->context);
}

static char *join(const char *directory, const char *name)
{
    char *path = mmi_path_join(directory, name);
    if (!path)
        mmi_fail_memory(strlen(directory) + strlen(name) + 2, "a path");
    return path;
}

static mm_status write_file(const mm_trainer *t, const char *directory, const char *name,
                            mm_status (*write)(const mm_trainer *t, const char *path))
{
    char *path = join(directory, name);
    if (!path)
        return MM_ERR_MEMORY;
    mm_status status = write(t, path);
    mmi_free(path);
    return status;
}

static mm_status write_optimizer(const mm_trainer *t, const char *path)
{
    return mm_optimizer_save(t->optimizer, path);
}

static mm_status write_list(const mm_trainer *t, const char *path,
                            mm_status (*fill)(mmi_tensor_list *list, const mm_trainer *t))
{
    mmi_tensor_list list = { 0 };
    mm_status status = fill(&list, t);
    if (status == MM_OK)
        status = mmi_tensors_write(path, &list);
    mmi_tensors_free(&list);
    return status;
}

static mm_status write_gradients(const mm_trainer *t, const char *path)
{
    return write_list(t, path, mmi_checkpoint_gradients);
}

static mm_status write_stage(const mm_trainer *t, const char *path)
{
    return write_list(t, path, t->stage->tensors);
}

static mm_status write_contents(const mm_trainer *t, const char *directory)
{
    mm_status status = mm_model_save(t->model, directory);
    if (status == MM_OK)
        status = write_file(t, directory, "optimizer.safetensors", write_optimizer);
    if (status == MM_OK && mmi_trainer_accumulated(t) > 0)
        status = write_file(t, directory, "gradients.safetensors", write_gradients);
    if (status == MM_OK && t->stage->tensors)
        status = write_file(t, directory, "stage.safetensors", write_stage);
    if (status == MM_OK && t->tokenizer)
        status = mm_tokenizer_save(t->tokenizer, directory);
    if (status == MM_OK)
        status = mmi_state_write(t, directory);
    return status;
}

/* Paths of one checkpoint; all or none. */
typedef struct paths {
    char name[NAME_SIZE];
    char *final, *temporary, *old, *latest;
} paths;

static void free_paths(paths *p)
{
    mmi_free(p->final);
    mmi_free(p->temporary);
    mmi_free(p->old);
    mmi_free(p->latest);
}

static mm_status make_paths(paths *p, const char *output, int64_t step)
{
    char name[NAME_SIZE + 4];
    snprintf(p->name, sizeof p->name, "step-%lld", (long long)step);
    p->final = join(output, p->name);
    snprintf(name, sizeof name, "%s.tmp", p->name);
    p->temporary = join(output, name);
    snprintf(name, sizeof name, "%s.old", p->name);
    p->old = join(output, name);
    p->latest = join(output, "latest");
    if (p->final && p->temporary && p->old && p->latest)
        return MM_OK;
    free_paths(p);
    return MM_ERR_MEMORY;
}

/* Put the finished directory in place, of an old one if need be. */
static mm_status put_in_place(const paths *p)
{
    mm_status status = MM_OK;
    bool replaces = mmi_file_exists(p->final);
    if (replaces)
        status = mmi_remove_tree(p->old);
    if (replaces && status == MM_OK)
        status = mmi_rename_synced(p->final, p->old);
    if (status != MM_OK)
        return status;
    status = mmi_rename_synced(p->temporary, p->final);
    if (status != MM_OK && replaces && !mmi_file_exists(p->final))
        rename(p->old, p->final);
    return status;
}

/* An interrupted save may have left the old directory in waiting, and nothing in its place. */
static mm_status mend(const paths *p)
{
    if (!mmi_file_exists(p->final) && mmi_file_exists(p->old))
        return mmi_rename_synced(p->old, p->final);
    return MM_OK;
}

static mm_status write_latest(const paths *p)
{
    char line[NAME_SIZE + 1];
    int length = snprintf(line, sizeof line, "%s\n", p->name);
    return mmi_write_file(p->latest, line, (size_t)length);
}

static mm_status write_checkpoint(const mm_trainer *t, const paths *p)
{
    mm_status status = mend(p);
    if (status == MM_OK)
        status = mmi_remove_tree(p->temporary);
    if (status == MM_OK)
        status = mmi_make_directory(p->temporary);
    if (status == MM_OK)
        status = write_contents(t, p->temporary);
    if (status == MM_OK)
        status = put_in_place(p);
    if (status != MM_OK) {
        char *story = mmi_strdup(mm_last_error()); /* clearing up may fail with another one */
        if (mmi_remove_tree(p->temporary) != MM_OK && story)
            mmi_fail(status, "%s", story);
        mmi_free(story);
        return status;
    }
    status = write_latest(p);
    return status == MM_OK ? mmi_remove_tree(p->old) : status;
}

/* N of "step-N", optionally followed by `ending`; -1 for any other name. */
static int64_t step_of(const char *name, const char *ending)
{
    if (strncmp(name, "step-", 5) != 0 || name[5] < '0' || name[5] > '9')
        return -1;
    char *end = NULL;
    errno = 0;
    long long step = strtoll(name + 5, &end, 10);
    return errno == 0 && strcmp(end, ending) == 0 ? step : -1;
}

/* The smallest step of a "step-N`ending`" in `output` below `below`, and how many there are; -1 if none. */
static int64_t oldest(const char *output, const char *ending, int64_t below, int64_t *count)
{
    int64_t first = -1;
    *count = 0;
    DIR *directory = opendir(output);
    if (!directory)
        return -1;
    for (struct dirent *entry; (entry = readdir(directory)) != NULL;) {
        int64_t step = step_of(entry->d_name, ending);
        if (step < 0 || step >= below)
            continue;
        ++*count;
        if (first < 0 || step < first)
            first = step;
    }
    closedir(directory);
    return first;
}

static mm_status remove_checkpoint(const char *output, int64_t step)
{
    paths p;
    mm_status status = make_paths(&p, output, step);
    if (status != MM_OK)
        return status;
    /* under its temporary name first: what is called step-N is whole at any time */
    status = mmi_remove_tree(p.temporary);
    if (status == MM_OK && mmi_file_exists(p.final))
        status = mmi_rename_synced(p.final, p.temporary);
    if (status == MM_OK)
        status = mmi_remove_tree(p.temporary);
    free_paths(&p);
    return status;
}

/* What interrupted saves left of an earlier step: half a checkpoint goes; an old one goes too, unless nothing took its
 * place. */
static mm_status tidy(const char *output, int64_t step)
{
    paths p;
    mm_status status = make_paths(&p, output, step);
    if (status != MM_OK)
        return status;
    status = mmi_remove_tree(p.temporary);
    if (status == MM_OK)
        status = mend(&p);
    if (status == MM_OK)
        status = mmi_remove_tree(p.old);
    free_paths(&p);
    return status;
}

/* Leave `keep` checkpoints, that of `step` included. Those of later steps are another run's: they stay. */
static void prune(const char *output, int64_t step, int64_t keep)
{
    static const char *const remains[2] = { ".tmp", ".old" };
    int64_t count, first;
    mm_status status = MM_OK;
    for (int i = 0; i < 2; i++)
        while (status == MM_OK && (first = oldest(output, remains[i], step, &count)) >= 0)
            status = tidy(output, first);
    while (status == MM_OK && keep > 0 && (first = oldest(output, "", step, &count)) >= 0 && count >= keep)
        status = remove_checkpoint(output, first);
    if (status != MM_OK)
        mmi_log(MM_LOG_WARNING, "an older checkpoint stays: %s", mm_last_error());
}

mm_status mm_trainer_save(mm_trainer *t)
{
    if (!t)
        return mmi_fail(MM_ERR_ARG, "mm_trainer_save: trainer is NULL");
    if (!t->output)
        return mmi_fail(MM_ERR_STATE, "mm_trainer_save: the trainer has no output directory");
    if (!mmi_parallel_can_save(t))
        return mmi_fail(MM_ERR_STATE, "mm_trainer_save: between two updates no rank has all gradients");
    if (mmi_parallel_rank(t) > 0) {
        t->saved_step = t->now.step;
        return MM_OK;
    }
    paths p;
    mm_status status = mmi_make_directory(t->output);
    if (status == MM_OK)
        status = make_paths(&p, t->output, t->now.step);
    if (status != MM_OK)
        return status;
    status = write_checkpoint(t, &p);
    free_paths(&p);
    if (status != MM_OK)
        return status;
    t->saved_step = t->now.step;
    prune(t->output, t->now.step, t->options.keep_last);
    return MM_OK;
}

/* The name in the file `latest`, checked: it comes from outside. */
static mm_status read_latest(char name[NAME_SIZE], const char *path)
{
    char *text = NULL;
    size_t size = 0;
    mm_status status = mmi_read_file(path, &text, &size);
    if (status != MM_OK)
        return status;
    while (size > 0 && (text[size - 1] == '\n' || text[size - 1] == '\r'))
        text[--size] = '\0';
    if (size >= NAME_SIZE - 4 || strlen(text) != size || step_of(text, "") < 0)
        status = mmi_fail(MM_ERR_FORMAT, "%s: holds no checkpoint's name, \"step-N\"", path);
    else
        memcpy(name, text, size + 1);
    mmi_free(text);
    return status;
}

static mm_status follow_latest(char **out, const char *output, const char *latest)
{
    char name[NAME_SIZE];
    mm_status status = read_latest(name, latest);
    if (status != MM_OK)
        return status;
    char *path = join(output, name);
    if (path && !mmi_is_directory(path)) {
        mmi_free(path);
        memcpy(name + strlen(name), ".old", 5);
        path = join(output, name);
    }
    if (!path)
        return MM_ERR_MEMORY;
    if (!mmi_is_directory(path)) {
        status = mmi_fail(MM_ERR_IO, "%s: names %.*s, which is missing", latest, (int)(strlen(name) - 4), name);
        mmi_free(path);
        return status;
    }
    *out = path;
    return MM_OK;
}

mm_status mmi_checkpoint_find(char **out, const char *path)
{
    char *state = join(path, "state.json"), *latest = join(path, "latest");
    mm_status status = state && latest ? MM_OK : MM_ERR_MEMORY;
    if (status == MM_OK && !mmi_is_directory(path)) {
        status = mmi_fail(MM_ERR_IO, "%s: there is no such directory", path);
    } else if (status == MM_OK && mmi_file_exists(state)) {
        *out = mmi_strdup(path);
        status = *out ? MM_OK : mmi_fail_memory(strlen(path), "a path");
    } else if (status == MM_OK && mmi_file_exists(latest)) {
        status = follow_latest(out, path, latest);
    } else if (status == MM_OK) {
        status = mmi_fail(MM_ERR_IO, "%s: there is no checkpoint: neither state.json nor latest is in it", path);
    }
    mmi_free(state);
    mmi_free(latest);
    return status;
}
