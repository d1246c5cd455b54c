#include "train/state.h"

#include <math.h>
#include <string.h>

#include "base/files.h"
#include "base/memory.h"
#include "data/dataset.h"
#include "data/hash.h"
#include "data/loader.h"
#include "model/adapter.h"
#include "train/stage.h"

#define FORMAT "minimind-checkpoint"
#define VERSION 1

/* Every file that a checkpoint may hold beside state.json. */
static const char *const files[] = { "config.json",        "optimizer.safetensors", "model.safetensors",
                                     MMI_ADAPTER_WEIGHTS,  MMI_ADAPTER_CONFIG,      "gradients.safetensors",
                                     "stage.safetensors",  "tokenizer.json",        "tokenizer_config.json",
                                     "chat_template.jinja" };
#define FILE_COUNT (sizeof files / sizeof *files)

static bool set_number(mmi_json *object, const char *key, double value)
{
    return mmi_json_set(object, key, mmi_json_new_number(value));
}

static bool set_numbers(mmi_json *object, const char *key, const double *values, size_t count)
{
    return mmi_json_set(object, key, mmi_json_new_numbers(values, count));
}

/* What is missing is 0; a null was not finite. */
static void get_numbers(double *values, size_t count, const mmi_json *list)
{
    for (size_t i = 0; i < count; i++)
        values[i] = mmi_json_number(mmi_json_at(list, i), i < mmi_json_size(list) ? NAN : 0);
}

/* --- Places --- */

static const char *const place_keys[] = { "step",       "epoch",    "epoch_step",  "updates",      "tokens",
                                          "data_epoch", "data_row", "data_offset", "skipped_lines" };
#define PLACE_COUNT (sizeof place_keys / sizeof *place_keys)

static void place_fields(int64_t *fields[PLACE_COUNT], mmi_place *p)
{
    int64_t *const all[PLACE_COUNT] = { &p->step,       &p->epoch,    &p->epoch_step,  &p->updates,     &p->tokens,
                                        &p->data.epoch, &p->data.row, &p->data.offset, &p->data.skipped };
    memcpy(fields, all, sizeof all);
}

static mmi_json *write_place(mmi_place place)
{
    int64_t *fields[PLACE_COUNT];
    place_fields(fields, &place);
    mmi_json *object = mmi_json_new_object();
    bool ok = object != NULL;
    for (size_t i = 0; i < PLACE_COUNT && ok; i++)
        ok = mmi_json_set_int(object, place_keys[i], *fields[i]);
    if (ok)
        return object;
    mmi_json_free(object);
    return NULL;
}

/* Counts go on being counted: none may be where that would overflow. */
#define COUNT_MAX (INT64_MAX / 2)

static mm_status read_place(mmi_place *place, mmi_json *state, const char *key, const char *directory)
{
    int64_t *fields[PLACE_COUNT];
    place_fields(fields, place);
    mmi_json *object = mmi_json_get(state, key);
    for (size_t i = 0; i < PLACE_COUNT; i++) {
        *fields[i] = mmi_json_int(mmi_json_get(object, place_keys[i]), -1);
        if (*fields[i] < 0 || *fields[i] > COUNT_MAX)
            return mmi_fail(MM_ERR_FORMAT, "%s/state.json: %s.%s is not a count", directory, key, place_keys[i]);
    }
    mm_loader_position position = MM_LOADER_POSITION_INIT;
    place->data.struct_size = position.struct_size;
    return MM_OK;
}

/* Could a run ever stand there? */
static bool possible(const mmi_place *p)
{
    return p->epoch_step <= p->step && p->updates <= p->step && p->epoch <= p->data.epoch &&
           p->data.epoch <= UINT32_MAX;
}

/* --- Readings --- */

static bool add_reading(mmi_json *to, const mmi_reading *r)
{
    return set_number(to, "loss", r->loss) && mmi_json_set_real(to, "learning_rate", r->learning_rate) &&
           mmi_json_set_real(to, "grad_norm", r->grad_norm) &&
           set_numbers(to, "metrics", r->metrics, MMI_METRICS_MAX);
}

static void read_reading(mmi_reading *last, const mmi_json *from)
{
    *last = (mmi_reading){ .loss = mmi_json_number(mmi_json_get(from, "loss"), NAN),
                           .learning_rate = mmi_json_number(mmi_json_get(from, "learning_rate"), 0),
                           .grad_norm = mmi_json_number(mmi_json_get(from, "grad_norm"), 0) };
    get_numbers(last->metrics, MMI_METRICS_MAX, mmi_json_get(from, "metrics"));
}

/* --- Health --- */

static bool set_window(mmi_json *object, const char *key, const mmi_window *w)
{
    double values[MMI_WINDOW];
    int64_t n = w->count < MMI_WINDOW ? w->count : MMI_WINDOW;
    for (int64_t i = 0; i < n; i++)
        values[i] = w->values[(w->count - n + i) % MMI_WINDOW];
    return set_numbers(object, key, values, (size_t)n);
}

static void get_window(mmi_window *w, const mmi_json *list)
{
    size_t n = mmi_json_size(list);
    *w = (mmi_window){ .count = (int64_t)(n < MMI_WINDOW ? n : MMI_WINDOW) };
    get_numbers(w->values, (size_t)w->count, list);
}

static bool fill_health(mmi_json *to, const mmi_health *h)
{
    return mmi_json_set_int(to, "skipped", h->skipped) && mmi_json_set_int(to, "skipped_in_a_row", h->in_a_row) &&
           mmi_json_set_int(to, "bad_step", h->bad_step) &&
           mmi_json_set_int(to, "bad_norms_in_a_row", h->bad_norms) &&
           mmi_json_set_real(to, "loss_scale", h->loss_scale) &&
           mmi_json_set_int(to, "updates_since_overflow", h->since_overflow) && set_window(to, "losses", &h->losses) &&
           set_window(to, "grad_norms", &h->norms) && mmi_json_set_int(to, "evaluations", h->evaluations) &&
           mmi_json_set_int(to, "evaluated_step", h->evaluated_step) &&
           set_number(to, "validation_loss", h->validation_loss) &&
           set_numbers(to, "validation_metrics", h->validation_metrics, MMI_METRICS_MAX) &&
           mmi_json_set_real(to, "best_loss", h->best_loss) && mmi_json_set_int(to, "best_step", h->best_step) &&
           mmi_json_set_int(to, "evaluations_since_best", h->worse);
}

static bool add_health(mmi_json *to, const mmi_health *h)
{
    mmi_json *own = mmi_json_new_object();
    return mmi_json_set(to, "health", own) && fill_health(own, h);
}

static mm_status read_health(mmi_health *h, mmi_json *from, const char *directory)
{
    const struct {
        const char *key;
        int64_t *to;
        bool later; /* older ones lack it */
    } counts[] = { { "skipped", &h->skipped, false },
                   { "skipped_in_a_row", &h->in_a_row, false },
                   { "bad_step", &h->bad_step, true },
                   { "bad_norms_in_a_row", &h->bad_norms, true },
                   { "updates_since_overflow", &h->since_overflow, false },
                   { "evaluations", &h->evaluations, false },
                   { "evaluated_step", &h->evaluated_step, false },
                   { "best_step", &h->best_step, false },
                   { "evaluations_since_best", &h->worse, false } };
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        const mmi_json *count = mmi_json_get(from, counts[i].key);
        *counts[i].to = mmi_json_int(count, count || !counts[i].later ? -1 : 0);
        if (*counts[i].to < 0 || *counts[i].to > COUNT_MAX)
            return mmi_fail(MM_ERR_FORMAT, "%s/state.json: health.%s is not a count", directory, counts[i].key);
    }
    h->loss_scale = mmi_json_number(mmi_json_get(from, "loss_scale"), 0);
    if (!(h->loss_scale >= 1 && h->loss_scale <= MMI_LOSS_SCALE_MAX))
        return mmi_fail(MM_ERR_FORMAT, "%s/state.json: health.loss_scale is out of its range", directory);
    get_window(&h->losses, mmi_json_get(from, "losses"));
    get_window(&h->norms, mmi_json_get(from, "grad_norms"));
    h->validation_loss = mmi_json_number(mmi_json_get(from, "validation_loss"), INFINITY);
    get_numbers(h->validation_metrics, MMI_METRICS_MAX, mmi_json_get(from, "validation_metrics"));
    h->best_loss = mmi_json_number(mmi_json_get(from, "best_loss"), INFINITY);
    return MM_OK;
}

/* --- Both, and both places --- */

/* Between two updates a failure goes back to the last one, and to what the run was like then. */
static bool add_last_update(mmi_json *state, const mm_trainer *t)
{
    mmi_json *own = write_place(t->boundary);
    return mmi_json_set(state, "last_update", own) &&
           (mmi_trainer_accumulated(t) == 0 ||
            (add_reading(own, &t->boundary_last) && add_health(own, &t->boundary_health)));
}

mm_status mmi_state_readings(mmi_reading *last, mmi_health *health, mmi_json *state, bool of_update,
                             const char *directory)
{
    mmi_json *update = mmi_json_get(state, "last_update");
    mmi_json *from = of_update && mmi_json_get(update, "health") ? update : state; /* older ones lack it */
    read_reading(last, from);
    return read_health(health, mmi_json_get(from, "health"), directory);
}

mm_status mmi_state_places(mmi_place *now, mmi_place *boundary, mmi_json *state, const char *directory)
{
    mm_status status = read_place(now, state, "now", directory);
    if (status == MM_OK)
        status = read_place(boundary, state, "last_update", directory);
    if (status != MM_OK)
        return status;
    if (!possible(now) || !possible(boundary) || boundary->step > now->step || boundary->updates != now->updates)
        return mmi_fail(MM_ERR_FORMAT, "%s/state.json: now and last_update contradict each other", directory);
    return MM_OK;
}

/* --- Files --- */

static mm_status add_file(mmi_json *list, const char *directory, const char *name)
{
    char *path = mmi_path_join(directory, name);
    if (!path)
        return mmi_fail_memory(strlen(directory) + strlen(name), "a path");
    uint64_t hash;
    int64_t bytes;
    mm_status status = mmi_file_exists(path) ? mmi_hash_file(&hash, &bytes, path) : MM_ERR_STATE;
    mmi_free(path);
    if (status != MM_OK)
        return status == MM_ERR_STATE ? MM_OK : status; /* not every checkpoint has every file */
    mmi_json *entry = mmi_json_new_object();
    bool ok = entry && mmi_json_set_int(entry, "bytes", bytes) && mmi_hash_set(entry, "hash", hash);
    if (!ok) {
        mmi_json_free(entry);
        entry = NULL;
    }
    if (!mmi_json_set(list, name, entry))
        return mmi_fail_memory(256, "state.json");
    return MM_OK;
}

static mm_status check_file(const char *directory, const char *name, const mmi_json *entry)
{
    char *path = mmi_path_join(directory, name);
    if (!path)
        return mmi_fail_memory(strlen(directory) + strlen(name), "a path");
    uint64_t hash = 0;
    int64_t bytes = 0;
    char found[MMI_HASH_TEXT];
    int64_t expected_bytes = mmi_json_int(mmi_json_get(entry, "bytes"), -1);
    const char *expected = mmi_json_string(mmi_json_get(entry, "hash"), NULL);
    mm_status status;
    if (!mmi_file_exists(path))
        status = mmi_fail(MM_ERR_FORMAT, "%s: is missing from the checkpoint", path);
    else
        status = mmi_hash_file(&hash, &bytes, path);
    mmi_hash_text(found, hash);
    if (status == MM_OK && bytes != expected_bytes)
        status = mmi_fail(MM_ERR_FORMAT, "%s: damaged: it has %lld bytes, it was written with %lld", path,
                          (long long)bytes, (long long)expected_bytes);
    else if (status == MM_OK && (!expected || strcmp(expected, found) != 0))
        status = mmi_fail(MM_ERR_FORMAT, "%s: damaged: its bytes are not those that were written", path);
    mmi_free(path);
    return status;
}

mm_status mmi_state_check_files(mmi_json *state, const char *directory)
{
    mmi_json *list = mmi_json_get(state, "files");
    const bool adapter = mmi_json_get(list, MMI_ADAPTER_WEIGHTS) != NULL;
    for (size_t i = 0; i < FILE_COUNT; i++) {
        mmi_json *entry = mmi_json_get(list, files[i]);
        bool needed = i < 2 || (adapter ? i < 5 && i != 2 : i == 2); /* config, optimizer, and model or adapter */
        if (!entry && needed)
            return mmi_fail(MM_ERR_FORMAT, "%s/state.json: names no %s", directory, files[i]);
        mm_status status = entry ? check_file(directory, files[i], entry) : MM_OK;
        if (status != MM_OK)
            return status;
    }
    return MM_OK;
}

/* --- The whole --- */

/* Hash of the object as text on one line: what "checksum" must say of all the others. */
static mm_status hash_members(uint64_t *out, const mmi_json *state)
{
    char *text = NULL;
    size_t length = 0;
    mm_status status = mmi_json_write(state, 0, &text, &length);
    if (status != MM_OK)
        return status;
    mmi_hash hash;
    mmi_hash_begin(&hash);
    mmi_hash_add(&hash, text, length);
    *out = mmi_hash_end(&hash);
    mmi_free(text);
    return MM_OK;
}

/* The stage's own: an object, empty for one that has none. */
static bool add_stage_state(mmi_json *state, const mm_trainer *t)
{
    mmi_json *own = mmi_json_new_object();
    return mmi_json_set(state, "stage", own) && (!t->stage->save || t->stage->save(own, t));
}

static bool add_members(mmi_json *state, const mm_trainer *t)
{
    return mmi_json_set_text(state, "format", FORMAT) && mmi_json_set_int(state, "version", VERSION) &&
           mmi_json_set_int(state, "step", t->now.step) && mmi_json_set(state, "now", write_place(t->now)) &&
           add_last_update(state, t) && add_reading(state, &t->last) && add_health(state, &t->health) &&
           add_stage_state(state, t) && mmi_json_set(state, "options", mmi_state_options(t)) &&
           mmi_json_set(state, "files", mmi_json_new_object());
}

mm_status mmi_state_new(mmi_json **out, const mm_trainer *t)
{
    mmi_json *state = mmi_json_new_object();
    if (state && add_members(state, t)) {
        *out = state;
        return MM_OK;
    }
    mmi_json_free(state);
    return mmi_fail_memory(4096, "state.json");
}

/* What can only be said when all other files are there. */
static mm_status add_files(mmi_json *state, const char *directory)
{
    mm_status status = MM_OK;
    for (size_t i = 0; i < FILE_COUNT && status == MM_OK; i++)
        status = add_file(mmi_json_get(state, "files"), directory, files[i]);
    uint64_t hash;
    if (status == MM_OK)
        status = hash_members(&hash, state);
    if (status == MM_OK && !mmi_hash_set(state, "checksum", hash))
        status = mmi_fail_memory(MMI_HASH_TEXT, "state.json");
    return status;
}

mm_status mmi_state_write(mmi_json *state, const char *directory)
{
    char *path = mmi_path_join(directory, "state.json");
    if (!path)
        return mmi_fail_memory(strlen(directory), "a path");
    mm_status status = add_files(state, directory);
    if (status == MM_OK)
        status = mmi_json_write_file(state, 2, path);
    mmi_free(path);
    return status;
}

static mm_status check_state(mmi_json *state, const char *path)
{
    const char *format = mmi_json_string(mmi_json_get(state, "format"), NULL);
    if (!format || strcmp(format, FORMAT) != 0)
        return mmi_fail(MM_ERR_FORMAT, "%s: is no checkpoint's state: \"format\" is not \"%s\"", path, FORMAT);
    int64_t version = mmi_json_int(mmi_json_get(state, "version"), -1);
    if (version != VERSION)
        return mmi_fail(MM_ERR_FORMAT, "%s: has version %lld, this library reads version %d", path, (long long)version,
                        VERSION);
    char expected[MMI_HASH_TEXT] = "", found[MMI_HASH_TEXT];
    size_t length = 0;
    const char *text = mmi_json_string(mmi_json_get(state, "checksum"), &length);
    if (text && length < sizeof expected)
        memcpy(expected, text, length);
    mmi_json_remove(state, "checksum");
    uint64_t hash;
    mm_status status = hash_members(&hash, state);
    if (status != MM_OK)
        return status;
    mmi_hash_text(found, hash);
    if (strcmp(expected, found) != 0)
        return mmi_fail(MM_ERR_FORMAT, "%s: damaged: its checksum is not that of what it says", path);
    return MM_OK;
}

mm_status mmi_state_read(mmi_json **out, const char *directory)
{
    char *path = mmi_path_join(directory, "state.json");
    if (!path)
        return mmi_fail_memory(strlen(directory), "a path");
    mmi_json *state = NULL;
    mm_status status = mmi_json_read_file(path, &state);
    if (status == MM_OK)
        status = check_state(state, path);
    mmi_free(path);
    if (status == MM_OK)
        *out = state;
    else
        mmi_json_free(state);
    return status;
}
