#include "train/tracks.h"

#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "text/utf8.h"

mm_status mmi_track_check_name(const char *name)
{
    size_t length = strlen(name);
    if (length == 0 || length > MMI_TRACK_NAME_SIZE)
        return mmi_fail(MM_ERR_ARG, "a name of %zu bytes, it must be 1 to %d", length, MMI_TRACK_NAME_SIZE);
    if (strcmp(name, "step") == 0 || strcmp(name, "time") == 0)
        return mmi_fail(MM_ERR_ARG, "\"%s\" can't be a name: every line has one", name);
    size_t valid = mmi_utf8_valid(name, length);
    if (valid < length)
        return mmi_fail(MM_ERR_ARG, "a name is not UTF-8 from byte %zu on", valid);
    for (size_t i = 0; i < length; i++)
        if ((unsigned char)name[i] < ' ' || name[i] == 0x7F)
            return mmi_fail(MM_ERR_ARG, "a name has the control character 0x%02x at byte %zu", (unsigned char)name[i],
                            i);
    return MM_OK;
}

mmi_track *mmi_tracks_find(const mmi_tracks *t, const char *name)
{
    for (size_t i = 0; i < t->count; i++)
        if (strcmp(t->items[i].name, name) == 0)
            return &t->items[i];
    return NULL;
}

static bool is_number(const mmi_json *value)
{
    mmi_json_kind kind = mmi_json_what(value);
    return kind == MMI_JSON_INT || kind == MMI_JSON_REAL || kind == MMI_JSON_NULL;
}

static mm_status check_vector(const char *name, const mmi_json *value)
{
    size_t size = mmi_json_size(value);
    if (size == 0 || size > MMI_VECTOR_SIZE)
        return mmi_fail(MM_ERR_ARG, "\"%s\" has %zu values, it must be 1 to %d", name, size, MMI_VECTOR_SIZE);
    for (size_t i = 0; i < size; i++)
        if (!is_number(mmi_json_at(value, i)))
            return mmi_fail(MM_ERR_ARG, "\"%s\" has an element that is no number", name);
    return MM_OK;
}

/* What kind of track a member belongs to, and of how many curves. */
static mm_status read_kind(mmi_track_kind *kind, size_t *count, const char *name, const mmi_json *value)
{
    *count = 1;
    if (is_number(value)) {
        *kind = MMI_TRACK_SCALAR;
        return MM_OK;
    }
    switch (mmi_json_what(value)) {
    case MMI_JSON_ARRAY:
        *kind = MMI_TRACK_VECTOR;
        *count = mmi_json_size(value);
        return check_vector(name, value);
    case MMI_JSON_STRING:
        *kind = MMI_TRACK_TEXT;
        *count = 0;
        return MM_OK;
    default:
        return mmi_fail(MM_ERR_ARG, "\"%s\" is %s", name, mmi_json_kind_name(mmi_json_what(value)));
    }
}

static mm_status add_track(mmi_tracks *t, const char *name, mmi_track_kind kind, size_t count)
{
    if (t->count == MMI_TRACKS_MAX)
        return mmi_fail(MM_ERR_ARG, "\"%s\" would be name %d, at most %d are kept", name, MMI_TRACKS_MAX + 1,
                        MMI_TRACKS_MAX);
    mmi_track track = { 0 };
    track.kind = kind;
    track.count = count;
    track.text_stride = 1;
    track.name = mmi_strdup(name);
    track.curves = mmi_calloc(count, sizeof *track.curves);
    if (!track.name || !track.curves || !mmi_grow(&t->items, &t->room, t->count + 1, sizeof *t->items)) {
        mmi_free(track.name);
        mmi_free(track.curves);
        return mmi_fail_memory(sizeof track, "a curve of the report");
    }
    t->items[t->count++] = track;
    return MM_OK;
}

/* Where a text is cut so that at most MMI_TRACK_TEXT_SIZE bytes are left, between characters. */
static size_t cut_length(const char *text, size_t length)
{
    if (length <= MMI_TRACK_TEXT_SIZE)
        return length;
    size_t cut = MMI_TRACK_TEXT_SIZE;
    while (cut > 0 && ((unsigned char)text[cut] & 0xC0) == 0x80)
        cut--;
    return cut;
}

static mm_status reserve_member(mmi_tracks *t, const char *name, const mmi_json *value)
{
    static const char *const kinds[] = { "a number", "a vector", "a text" };
    mmi_track_kind kind;
    size_t count, length;
    mm_status status = mmi_track_check_name(name);
    if (status == MM_OK)
        status = read_kind(&kind, &count, name, value);
    if (status == MM_OK && !mmi_tracks_find(t, name))
        status = add_track(t, name, kind, count);
    if (status != MM_OK)
        return status;
    mmi_track *track = mmi_tracks_find(t, name);
    if (kind != track->kind)
        return mmi_fail(MM_ERR_ARG, "\"%s\" is %s here, it was %s before", name, kinds[kind], kinds[track->kind]);
    if (count != track->count)
        return mmi_fail(MM_ERR_ARG, "\"%s\" has %zu values here, it had %zu before", name, count, track->count);
    for (size_t i = 0; i < count; i++)
        if (!mmi_series_reserve(&track->curves[i]))
            return mmi_fail_memory(sizeof(mmi_bucket), "a curve of the report");
    if (kind != MMI_TRACK_TEXT)
        return MM_OK;
    const char *text = mmi_json_string(value, &length);
    mmi_free(track->coming);
    track->coming = mmi_strndup(text, cut_length(text, length));
    return track->coming ? MM_OK : mmi_fail_memory(length, "a text of the report");
}

static bool is_own(const char *key)
{
    return strcmp(key, "step") == 0 || strcmp(key, "time") == 0;
}

static void free_track(mmi_track *track)
{
    for (size_t k = 0; k < track->count; k++)
        mmi_series_free(&track->curves[k]);
    for (size_t k = 0; k < track->text_count; k++)
        mmi_free(track->texts[k].text);
    mmi_free(track->curves);
    mmi_free(track->coming);
    mmi_free(track->name);
}

mm_status mmi_tracks_reserve(mmi_tracks *t, mmi_json *line)
{
    if (mmi_json_what(line) != MMI_JSON_OBJECT)
        return mmi_fail(MM_ERR_ARG, "a line is %s, it must be an object", mmi_json_kind_name(mmi_json_what(line)));
    mmi_json *step = mmi_json_get(line, "step"), *time = mmi_json_get(line, "time");
    if (mmi_json_what(step) != MMI_JSON_INT || mmi_json_int(step, 0) < 0)
        return mmi_fail(MM_ERR_ARG, "\"step\" must be an integer from 0 up");
    if (mmi_json_what(time) != MMI_JSON_REAL && mmi_json_what(time) != MMI_JSON_INT)
        return mmi_fail(MM_ERR_ARG, "\"time\" is %s, it must be a number", mmi_json_kind_name(mmi_json_what(time)));
    size_t before = t->count;
    mm_status status = MM_OK;
    for (void *i = mmi_json_first(line); i && status == MM_OK; i = mmi_json_next(line, i))
        if (!is_own(mmi_json_key(i)))
            status = reserve_member(t, mmi_json_key(i), mmi_json_value(i));
    if (status != MM_OK)
        mmi_tracks_cut(t, before);
    return status;
}

void mmi_tracks_cut(mmi_tracks *t, size_t count)
{
    while (t->count > count)
        free_track(&t->items[--t->count]);
}

/* Every second one goes, and from now on every second one that comes. */
static void halve_texts(mmi_track *track)
{
    for (size_t i = 0; i < track->text_count; i++) {
        if (i % 2 == 1)
            mmi_free(track->texts[i].text);
        else
            track->texts[i / 2] = track->texts[i];
    }
    track->text_count = (track->text_count + 1) / 2;
    track->text_stride *= 2;
}

static void take_text(mmi_track *track, int64_t step, const char *text, size_t length)
{
    mmi_track_text *last = track->text_count > 0 ? &track->texts[track->text_count - 1] : NULL;
    if (last && last->number % track->text_stride != 0) {
        mmi_free(last->text);
        track->text_count--;
    } else if (track->text_count == MMI_TRACK_TEXTS) {
        halve_texts(track);
    }
    size_t kept = cut_length(text, length);
    track->texts[track->text_count++] =
        (mmi_track_text){ step, track->text_number++, track->coming, kept, kept < length };
    track->coming = NULL;
}

static void take_member(mmi_track *track, int64_t step, const mmi_json *value)
{
    size_t length;
    switch (track->kind) {
    case MMI_TRACK_SCALAR:
        mmi_series_add(&track->curves[0], step, mmi_json_number(value, NAN));
        break;
    case MMI_TRACK_VECTOR:
        for (size_t i = 0; i < track->count; i++)
            mmi_series_add(&track->curves[i], step, mmi_json_number(mmi_json_at(value, i), NAN));
        break;
    case MMI_TRACK_TEXT: {
        const char *text = mmi_json_string(value, &length);
        take_text(track, step, text, length);
        break;
    }
    }
}

void mmi_tracks_take(mmi_tracks *t, mmi_json *line)
{
    int64_t step = mmi_json_int(mmi_json_get(line, "step"), 0);
    double time = mmi_json_number(mmi_json_get(line, "time"), 0);
    if (t->started == 0)
        t->started = time;
    t->updated = time;
    t->step = step > t->step ? step : t->step;
    for (void *i = mmi_json_first(line); i; i = mmi_json_next(line, i))
        if (!is_own(mmi_json_key(i)))
            take_member(mmi_tracks_find(t, mmi_json_key(i)), step, mmi_json_value(i));
}

void mmi_tracks_free(mmi_tracks *t)
{
    for (size_t i = 0; i < t->count; i++)
        free_track(&t->items[i]);
    mmi_free(t->items);
    *t = (mmi_tracks){ 0 };
}
