#include "train/report.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "base/options.h"
#include "text/utf8.h"
#include "train/metrics.h"
#include "train/page.h"

#define TEXT_MAX ((size_t)1 << 20)

MMI_OPTIONS_INIT(mm_report_options, MM_REPORT_OPTIONS_INIT)

/* --- Opening and closing --- */

static mm_status check_options(const mm_report_options *o)
{
    if (o->outputs < 0 || o->outputs > MM_REPORT_ALL)
        return mmi_fail(MM_ERR_ARG, "report: outputs is %d, it must be a sum of MM_REPORT_…, 0 to %d", o->outputs,
                        MM_REPORT_ALL);
    if (o->resume_step < -1)
        return mmi_fail(MM_ERR_ARG, "report: resume_step is %lld, it must be at least -1", (long long)o->resume_step);
    if (o->total_steps < 0)
        return mmi_fail(MM_ERR_ARG, "report: total_steps is %lld, it must be at least 0", (long long)o->total_steps);
    if (o->reserved != 0)
        return mmi_fail(MM_ERR_ARG, "report: reserved is %d, it must be 0", o->reserved);
    size_t length = o->title ? strlen(o->title) : 0;
    if (o->title && mmi_utf8_valid(o->title, length) < length)
        return mmi_fail(MM_ERR_ARG, "report: the title is not UTF-8");
    return MM_OK;
}

static mm_status open_metrics(mm_report *r)
{
    char *path = mmi_path_join(r->directory, "metrics.jsonl");
    if (!path)
        return mmi_fail_memory(0, "a path");
    mm_status status = mmi_metrics_take_back(&r->tracks, path, r->options.resume_step);
    if (status == MM_OK)
        status = mmi_appender_open(&r->metrics, path);
    mmi_free(path);
    return status;
}

/* Two at once would take back each other's lines. Where the file system has no locks nobody knows. */
static mm_status lock(mm_report *r)
{
    char *path = mmi_path_join(r->directory, ".report.lock");
    if (!path)
        return mmi_fail_memory(0, "a path");
    r->lock = mmi_lock_file(path, 0);
    mmi_free(path);
    if (r->lock >= 0) { /* what a killed process left of files that are written anew */
        mmi_writer_clear(r->directory, "metrics.jsonl", true);
        mmi_writer_clear(r->directory, "report.html", true);
    }
    return r->lock != MMI_LOCK_HELD ? MM_OK : mmi_fail(MM_ERR_STATE, "%s: another report has it open", r->directory);
}

static mm_status open_files(mm_report *r)
{
    int64_t resume = r->options.resume_step;
    mm_status status = mmi_make_directory(r->directory);
    if (status == MM_OK)
        status = lock(r);
    if (status == MM_OK && (r->options.outputs & MM_REPORT_METRICS))
        status = open_metrics(r);
    if (status == MM_OK && (r->options.outputs & MM_REPORT_TENSORBOARD))
        status = mmi_events_open(&r->events, r->directory, resume == INT64_MAX ? -1 : resume + 1);
    return status;
}

/* A copy of `text`, which need not be UTF-8, as what is, NUL-terminated behind its `*size` bytes; or NULL. */
static char *repair(size_t *size, const char *text, size_t length)
{
    *size = mmi_utf8_repair(NULL, NULL, text, length);
    char *whole = mmi_alloc(*size + 1, 1);
    if (!whole)
        return NULL;
    mmi_utf8_repair(whole, NULL, text, length);
    whole[*size] = '\0';
    return whole;
}

mm_status mm_report_create(const char *directory, const mm_report_options *options, mm_report **out)
{
    if (!directory || !out)
        return mmi_fail(MM_ERR_ARG, "mm_report_create: %s is NULL", !directory ? "directory" : "out");
    mm_report_options o = MM_REPORT_OPTIONS_INIT;
    mm_status status = mmi_options_read(&o, sizeof o, options, "mm_report_options");
    if (status == MM_OK)
        status = check_options(&o);
    if (status != MM_OK)
        return status;
    mm_report *r = mmi_calloc(1, sizeof *r);
    if (!r)
        return mmi_fail_memory(sizeof *r, "a report");
    r->lock = -1;
    r->options = o;
    r->options.title = NULL;
    r->directory = mmi_strdup(directory);
    size_t size;
    r->title = o.title ? mmi_strdup(o.title) : repair(&size, directory, strlen(directory)); /* a path may be anything */
    status = r->directory && r->title ? open_files(r) : mmi_fail_memory(0, "a report");
    if (status != MM_OK) {
        mm_report_free(r);
        return status;
    }
    *out = r;
    return MM_OK;
}

void mm_report_free(mm_report *r)
{
    if (!r)
        return;
    mmi_appender_close(&r->metrics);
    mmi_events_close(&r->events);
    mmi_unlock_file(r->lock);
    mmi_tracks_free(&r->tracks);
    for (size_t i = 0; i < r->fact_count; i++) {
        mmi_free(r->facts[i].name);
        mmi_free(r->facts[i].text);
    }
    mmi_free(r->facts);
    mmi_free(r->directory);
    mmi_free(r->title);
    mmi_free(r);
}

/* --- A line: put together, then written everywhere or nowhere --- */

/* An empty line. NULL with the story of what is wrong in `status`. */
static mmi_json *begin_line(mm_status *status, const char *who, const mm_report *r, int64_t step)
{
    *status = MM_OK;
    if (!r)
        *status = mmi_fail(MM_ERR_ARG, "%s: report is NULL", who);
    else if (step < 0)
        *status = mmi_fail(MM_ERR_ARG, "%s: step is %lld, it must be at least 0", who, (long long)step);
    if (*status != MM_OK)
        return NULL;
    mmi_json *line = mmi_json_new_object();
    if (line && mmi_json_set_int(line, "step", step) && mmi_json_set_real(line, "time", mmi_wall_time()))
        return line;
    mmi_json_free(line);
    *status = mmi_fail_memory(0, "a line of the report");
    return NULL;
}

/* Takes `value` over. */
static mm_status add_member(const char *who, mmi_json *line, const char *name, mmi_json *value)
{
    mm_status status = MM_OK;
    if (!name)
        status = mmi_fail(MM_ERR_ARG, "%s: a name is NULL", who);
    else if ((status = mmi_track_check_name(name)) != MM_OK)
        mmi_fail_within(status, "%s", who);
    else if (mmi_json_get(line, name))
        status = mmi_fail(MM_ERR_ARG, "%s: the name \"%s\" is there twice", who, name);
    if (status != MM_OK) {
        mmi_json_free(value);
        return status;
    }
    return mmi_json_set(line, name, value) ? MM_OK : mmi_fail_memory(0, "a line of the report");
}

static void event_of(mmi_events *e, const char *name, mmi_json *value)
{
    size_t length;
    const char *text = mmi_json_string(value, &length);
    char element[MMI_TRACK_NAME_SIZE + 24];
    if (text) {
        mmi_events_text(e, name, text, length);
        return;
    }
    if (mmi_json_what(value) != MMI_JSON_ARRAY) {
        mmi_events_scalar(e, name, mmi_json_number(value, NAN));
        return;
    }
    for (size_t i = 0; i < mmi_json_size(value); i++) {
        snprintf(element, sizeof element, "%s/%zu", name, i);
        mmi_events_scalar(e, element, mmi_json_number(mmi_json_at(value, i), NAN));
    }
}

static mm_status write_events(mmi_events *e, mmi_json *line)
{
    mmi_events_begin(e);
    for (void *i = mmi_json_first(line); i; i = mmi_json_next(line, i)) {
        const char *name = mmi_json_key(i);
        if (strcmp(name, "step") != 0 && strcmp(name, "time") != 0)
            event_of(e, name, mmi_json_value(i));
    }
    return mmi_events_write(e, mmi_json_int(mmi_json_get(line, "step"), 0),
                            mmi_json_number(mmi_json_get(line, "time"), 0));
}

static mm_status write_metrics(mmi_appender *file, mmi_json *line)
{
    char *text = NULL;
    size_t length = 0;
    mm_status status = mmi_json_write(line, 0, &text, &length);
    if (status != MM_OK)
        return status;
    text[length] = '\n'; /* in place of the NUL */
    status = mmi_appender_put(file, text, length + 1);
    mmi_free(text);
    return status;
}

/* Takes `line` over. `status` is that of putting it together. */
static mm_status end_line(mm_report *r, mmi_json *line, mm_status status)
{
    uint64_t size = r && line ? r->metrics.size : 0;
    const size_t tracks = r ? r->tracks.count : 0;
    if (status == MM_OK)
        status = mmi_tracks_reserve(&r->tracks, line);
    if (status == MM_OK && r->metrics.open)
        status = write_metrics(&r->metrics, line);
    if (status == MM_OK && r->events.file.open) {
        status = write_events(&r->events, line);
        if (status != MM_OK && r->metrics.open)
            mmi_appender_cut(&r->metrics, size);
    }
    if (status == MM_OK)
        mmi_tracks_take(&r->tracks, line);
    else if (r)
        mmi_tracks_cut(&r->tracks, tracks);
    mmi_json_free(line);
    return status;
}

/* --- What can be told --- */

mm_status mmi_report_values(const char *who, mm_report *r, int64_t step, const char *const *names, const double *values,
                            int32_t count, const mmi_report_vectors *v)
{
    mm_status status;
    mmi_json *line = begin_line(&status, who, r, step);
    for (int32_t i = 0; i < count && status == MM_OK; i++)
        status = add_member(who, line, names[i], mmi_json_new_number(values[i]));
    for (int32_t i = 0; i < v->count && status == MM_OK; i++)
        status = add_member(who, line, v->names[i],
                            mmi_json_new_numbers(v->values + (int64_t)i * v->width, (size_t)v->width));
    return end_line(r, line, status);
}

mm_status mm_report_scalars(mm_report *r, int64_t step, const char *const *names, const double *values, int32_t count)
{
    static const char who[] = "mm_report_scalars";
    const mmi_report_vectors none = { 0 };
    if (count < 1 || !names || !values)
        return mmi_fail(MM_ERR_ARG, "%s: %s", who, count < 1 ? "count is less than 1" : "names or values is NULL");
    return mmi_report_values(who, r, step, names, values, count, &none);
}

mm_status mm_report_scalar(mm_report *r, int64_t step, const char *name, double value)
{
    const mmi_report_vectors none = { 0 };
    return mmi_report_values("mm_report_scalar", r, step, &name, &value, 1, &none);
}

mm_status mm_report_vector(mm_report *r, int64_t step, const char *name, const double *values, int32_t count)
{
    static const char who[] = "mm_report_vector";
    if (count < 1 || count > MMI_VECTOR_SIZE || !values)
        return mmi_fail(MM_ERR_ARG, "%s: count is %d, must be from 1 to %d%s", who, count, MMI_VECTOR_SIZE,
                        values ? "" : "; values is NULL");
    return mmi_report_values(who, r, step, NULL, NULL, 0, &(mmi_report_vectors){ &name, values, 1, count });
}

mm_status mm_report_text(mm_report *r, int64_t step, const char *name, const char *text, size_t length)
{
    static const char who[] = "mm_report_text";
    if (!text && length > 0)
        return mmi_fail(MM_ERR_ARG, "%s: text is NULL", who);
    if (length > TEXT_MAX)
        return mmi_fail(MM_ERR_ARG, "%s: the text has %zu bytes, at most %zu are taken", who, length, TEXT_MAX);
    mm_status status;
    mmi_json *line = begin_line(&status, who, r, step);
    size_t size = 0;
    char *whole = status == MM_OK ? repair(&size, text ? text : "", length) : NULL;
    mmi_json *value = whole ? mmi_json_new_string(whole, size) : NULL;
    mmi_free(whole);
    if (status == MM_OK)
        status = value ? add_member(who, line, name, value) : mmi_fail_memory(size, "a text of the report");
    return end_line(r, line, status);
}

mm_status mmi_report_sample(mm_report *r, int64_t step, const char *prompt, const char *text, size_t length)
{
    char name[MMI_TRACK_NAME_SIZE + 1];
    size_t size = strlen(prompt), room = sizeof name - sizeof "“…”", kept = size < room ? size : room;
    while (kept < size && kept > 0 && ((unsigned char)prompt[kept] & 0xC0) == 0x80)
        kept--; /* not within a character */
    snprintf(name, sizeof name, "“%.*s%s”", (int)kept, prompt, kept < size ? "…" : "");
    for (char *c = name; *c; c++)
        if ((unsigned char)*c < ' ' || *c == 0x7F)
            *c = ' ';
    return mm_report_text(r, step, name, text, length);
}

mm_status mm_report_fact(mm_report *r, const char *name, const char *text)
{
    if (!r || !name || !text)
        return mmi_fail(MM_ERR_ARG, "mm_report_fact: %s is NULL", !r ? "report" : !name ? "name" : "text");
    mm_status status = mmi_track_check_name(name);
    if (status != MM_OK)
        return mmi_fail_within(status, "mm_report_fact");
    size_t length = strlen(text), at = 0;
    if (mmi_utf8_valid(text, length) < length)
        return mmi_fail(MM_ERR_ARG, "mm_report_fact: the text of \"%s\" is not UTF-8", name);
    while (at < r->fact_count && strcmp(r->facts[at].name, name) != 0)
        at++;
    mmi_fact fact = { at < r->fact_count ? NULL : mmi_strdup(name), mmi_strdup(text) };
    if (!fact.text ||
        (at == r->fact_count && (!fact.name || !mmi_grow(&r->facts, &r->fact_room, at + 1, sizeof *r->facts)))) {
        mmi_free(fact.name);
        mmi_free(fact.text);
        return mmi_fail_memory(length, "a fact of the report");
    }
    if (at < r->fact_count) {
        mmi_free(r->facts[at].text);
        r->facts[at].text = fact.text;
    } else {
        r->facts[r->fact_count++] = fact;
    }
    return MM_OK;
}

mm_status mm_report_flush(mm_report *r)
{
    if (!r)
        return mmi_fail(MM_ERR_ARG, "mm_report_flush: report is NULL");
    if (!(r->options.outputs & MM_REPORT_PAGE))
        return MM_OK;
    char *path = mmi_path_join(r->directory, "report.html");
    if (!path)
        return mmi_fail_memory(0, "a path");
    mm_status status = mmi_page_write(r, path);
    mmi_free(path);
    return status;
}
