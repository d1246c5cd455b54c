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
#include "model/adapter.h"
#include "model/fields.h"
#include "model/model.h"
#include "train/state.h"

/* Longest name here: "step-9223372036854775807.tmp". */
#define NAME_SIZE 40

/* A process that was stopped in the midst holds its lock; whoever waits goes on in the end. */
#define LOCK_SECONDS 60

static char *join(const char *directory, const char *name)
{
    char *path = mmi_path_join(directory, name);
    if (!path)
        mmi_fail_memory(strlen(directory) + strlen(name) + 2, "a path");
    return path;
}

static mm_status write_config(const mm_trainer *t, const char *directory)
{
    char *path = join(directory, "config.json");
    mm_status status = path ? mmi_config_save(mm_model_config(t->model), path, MM_F32) : MM_ERR_MEMORY;
    mmi_free(path);
    return status;
}

static mm_status write_adapter_config(const mm_trainer *t, const char *directory)
{
    char *path = join(directory, MMI_ADAPTER_CONFIG);
    mm_status status = path ? mmi_adapter_write_config(t->options.adapter, path) : MM_ERR_MEMORY;
    mmi_free(path);
    return status;
}

static mm_status write_part(const mmi_checkpoint *c, mmi_part part, const mm_trainer *t, const char *directory)
{
    char *path = join(directory, mmi_part_name(part, t));
    mm_status status = path ? mmi_tensors_write(path, &c->parts[part]) : MM_ERR_MEMORY;
    mmi_free(path);
    return status;
}

static mm_status write_contents(mmi_checkpoint *c, const mm_trainer *t, const char *directory)
{
    mm_status status = mmi_make_directory(directory);
    if (status == MM_OK)
        status = write_config(t, directory);
    if (status == MM_OK && t->options.adapter)
        status = write_adapter_config(t, directory);
    for (int part = 0; part < MMI_PARTS && status == MM_OK; part++)
        if (c->parts[part].count > 0)
            status = write_part(c, (mmi_part)part, t, directory);
    if (status == MM_OK && t->tokenizer)
        status = mm_tokenizer_save(t->tokenizer, directory);
    return status == MM_OK ? mmi_state_write(c->state, directory) : status;
}

/* Paths of one checkpoint; all or none. */
typedef struct paths {
    char name[NAME_SIZE];
    char *final, *temporary, *old, *latest, *best, *lock;
} paths;

static void free_paths(paths *p)
{
    mmi_free(p->final);
    mmi_free(p->temporary);
    mmi_free(p->old);
    mmi_free(p->latest);
    mmi_free(p->best);
    mmi_free(p->lock);
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
    p->best = join(output, "best");
    p->lock = join(output, ".lock"); /* not the directory, which its owner may have locked */
    if (p->final && p->temporary && p->old && p->latest && p->best && p->lock)
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

/* Let `latest`, or `best`, name this checkpoint. */
static mm_status write_name(const char *path, const char *name)
{
    char line[NAME_SIZE + 1];
    int length = snprintf(line, sizeof line, "%s\n", name);
    return mmi_write_file(path, line, (size_t)length);
}

/* The directory, whole and in its place; or nothing of it. */
static mm_status write_directory(mmi_checkpoint *c, const mm_trainer *t, const paths *p)
{
    mm_status status = mend(p);
    if (status == MM_OK)
        status = mmi_remove_tree(p->temporary);
    if (status == MM_OK)
        status = write_contents(c, t, p->temporary);
    if (status == MM_OK)
        status = put_in_place(p);
    if (status != MM_OK) {
        char *story = mmi_strdup(mm_last_error()); /* clearing up may fail with another one */
        if (mmi_remove_tree(p->temporary) != MM_OK && story)
            mmi_fail(status, "%s", story);
        mmi_free(story);
    }
    return status;
}

static mm_status write_all(mmi_checkpoint *c, const mm_trainer *t, const paths *p)
{
    mm_status status = write_directory(c, t, p);
    if (status == MM_OK)
        status = write_name(p->latest, p->name);
    if (status == MM_OK && c->named)
        status = write_name(p->best, p->name);
    return status == MM_OK ? mmi_remove_tree(p->old) : status;
}

/* N of "step-N`ending`", as make_paths() writes it; -1 for any other name. */
static int64_t step_of(const char *name, const char *ending)
{
    if (strncmp(name, "step-", 5) != 0 || name[5] < '0' || name[5] > '9')
        return -1;
    char *end = NULL;
    errno = 0;
    long long step = strtoll(name + 5, &end, 10);
    bool leading_zero = name[5] == '0' && end > name + 6;
    return errno == 0 && !leading_zero && strcmp(end, ending) == 0 ? step : -1;
}

/* The smallest step of a "step-N`ending`" in `output` below `below`, and how many there are, `spared` left out; -1 if
 * none. */
static int64_t oldest(const char *output, const char *ending, int64_t below, int64_t spared, int64_t *count)
{
    int64_t first = -1;
    *count = 0;
    DIR *directory = opendir(output);
    if (!directory)
        return -1;
    for (struct dirent *entry; (entry = readdir(directory)) != NULL;) {
        int64_t step = step_of(entry->d_name, ending);
        if (step < 0 || step >= below || step == spared)
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
    if (status == MM_OK)
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

/* The name in the file `latest` or `best`, checked: it comes from outside. */
static mm_status read_name(char name[NAME_SIZE], const char *path)
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

/* The best one of an earlier run whose place this checkpoint took: there is no such any more. */
static void forget_best(const mmi_checkpoint *c, const paths *p)
{
    char best[NAME_SIZE];
    if (!c->best && mmi_file_exists(p->best) && read_name(best, p->best) == MM_OK && strcmp(best, p->name) == 0)
        mmi_remove_tree(p->best);
}

/* Leave `keep` checkpoints, that of `step` included, and the one that `best` names. Those of later steps are another
 * run's: they stay; what killed saves left goes, of later steps too when `locked`: then nobody is writing it. */
static void prune(const paths *p, const char *output, int64_t step, int64_t keep, bool locked)
{
    static const char *const remains[2] = { ".tmp", ".old" };
    char best[NAME_SIZE];
    int64_t count, first, spared = -1;
    mm_status status = mmi_file_exists(p->best) ? read_name(best, p->best) : MM_OK;
    if (status == MM_OK && mmi_file_exists(p->best))
        spared = step_of(best, "");
    for (int i = 0; i < 2; i++)
        while (status == MM_OK && (first = oldest(output, remains[i], locked ? INT64_MAX : step, -1, &count)) >= 0)
            status = tidy(output, first);
    if (locked) {
        mmi_writer_clear(output, "latest", true);
        mmi_writer_clear(output, "best", true);
    }
    while (status == MM_OK && keep > 0 && (first = oldest(output, "", step, spared, &count)) >= 0 && count >= keep)
        status = remove_checkpoint(output, first);
    if (status != MM_OK)
        mmi_log(MM_LOG_WARNING, "an older checkpoint stays: %s", mm_last_error());
}

mm_status mmi_checkpoint_write(mmi_checkpoint *c, const mm_trainer *t)
{
    paths p;
    mm_status status = make_paths(&p, t->output, c->step);
    if (status != MM_OK)
        return status;
    int lock = mmi_lock_file(p.lock, LOCK_SECONDS); /* another trainer's would be mixed with it */
    status = write_all(c, t, &p);
    if (status == MM_OK) {
        forget_best(c, &p);
        prune(&p, t->output, c->step, t->options.keep_last, lock >= 0);
    }
    mmi_unlock_file(lock);
    free_paths(&p);
    return status;
}

static mm_status follow_latest(char **out, const char *output, const char *latest)
{
    char name[NAME_SIZE];
    mm_status status = read_name(name, latest);
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
