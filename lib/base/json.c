#include "base/json.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/files.h"
#include "base/memory.h"

#define READ_FLAGS (JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL | JSON_DECODE_ANY)

static bool same_error(const json_error_t *a, const json_error_t *b)
{
    return a->line == b->line && a->column == b->column && strcmp(a->text, b->text) == 0;
}

size_t mmi_json_depth(const char *text, size_t length)
{
    size_t depth = 0, deepest = 0;
    bool quoted = false;
    for (size_t i = 0; i < length; i++) {
        char c = text[i];
        if (c == '"')
            quoted = !quoted;
        else if (quoted)
            i += c == '\\';
        else if (c == '[' || c == '{')
            deepest = ++depth > deepest ? depth : deepest;
        else if ((c == ']' || c == '}') && depth > 0)
            depth--;
    }
    return deepest;
}

/* Is there room for the longest token there could be? Jansson doubles its buffer as a token grows. */
static bool room_for(size_t length)
{
    void *room = length < SIZE_MAX / 4 ? malloc(2 * length + 64) : NULL;
    free(room);
    return room != NULL;
}

/* Bytes of the longest run of characters that could be one string, quotes included, or one number. */
static size_t longest_token(const char *text, size_t length)
{
    size_t run = 0, longest = 0;
    bool quoted = false;
    for (size_t i = 0; i < length; i++) {
        char c = text[i];
        bool goes_on = quoted || (c >= '0' && c <= '9') || (c && strchr("+-.eE", c));
        run = c == '"' && !quoted ? 1 : goes_on ? run + 1 : 0;
        if (c == '"') {
            quoted = !quoted;
        } else if (quoted && c == '\\') {
            i++;
            run++;
        }
        longest = run > longest ? run : longest;
    }
    return longest;
}

/* Jansson (2.14) collects a token in a buffer that grows with it: 16 bytes, 32, …. When that fails it goes on without
 * the byte that did not fit, and if that was a digit or a string's last quote, ends the process or reads on beyond its
 * end. So a text is read as the value behind a key that is longer than all its tokens: {"xxx":TEXT}. The buffer then
 * grows within the key, where a byte less does no more harm than being seen. */
typedef struct wrapped {
    struct piece {
        const char *text;
        size_t length;
    } pieces[3];
    size_t piece, at; /* where the reader stands */
} wrapped;

static size_t wrapped_read(void *to, size_t size, void *user)
{
    wrapped *w = user;
    size_t n = 0;
    while (n < size && w->piece < 3) {
        const struct piece *p = &w->pieces[w->piece];
        size_t part = p->length - w->at < size - n ? p->length - w->at : size - n;
        if (part > 0)
            memcpy((char *)to + n, p->text + w->at, part);
        n += part;
        w->at += part;
        if (w->at == p->length)
            w->piece++, w->at = 0;
    }
    return n;
}

/* The key's bytes without its quotes. Its own last quote is never the byte that the buffer grows for. */
static size_t key_length(size_t longest)
{
    size_t key = longest < 16 ? 16 : longest, whole = key + 2;
    return (whole & (whole - 1)) == 0 ? key + 1 : key;
}

static const char more_behind[] = "it goes on behind its value";

/* The value behind the key, which `head` is as {"xxx": with `key` bytes between its quotes. NULL with the reason in
 * `error`, whose text is empty when a byte of the key was lost. */
static json_t *load_behind(const char *head, size_t key, const char *text, size_t length, json_error_t *error)
{
    wrapped w = { { { head, key + 4 }, { text, length }, { "}", 1 } }, 0, 0 };
    memset(error, 0, sizeof *error); /* its last byte is a code, also where the text is ours */
    json_t *object = json_load_callback(wrapped_read, &w, READ_FLAGS, error), *value = NULL;
    if (!object)
        return NULL;
    void *first = json_object_iter(object);
    if (strlen(json_object_iter_key(first)) != key)
        error->text[0] = '\0';
    else if (json_object_size(object) != 1)
        snprintf(error->text, sizeof error->text, "%s", more_behind);
    else
        value = json_incref(json_object_iter_value(first));
    json_decref(object);
    return value;
}

/* Jansson quotes what it has read of a token. Behind a backslash, that may end in the first byte of a character. */
static void drop_half_character(char *message)
{
    size_t length = strlen(message);
    if (length >= 2 && (unsigned char)message[length - 2] >= 0xC0 && message[length - 1] == '\'') {
        message[length - 2] = '\'';
        message[length - 1] = '\0';
    }
}

/* What is wrong with a text, in the text's own places. */
static mm_status fail_format(const char *what, json_error_t *error, size_t before, size_t length)
{
    static const char wants_brace[] = "'}' expected";       /* ours, or one of the text's own */
    static const char wants_end[] = "end of file expected"; /* behind ours, which the text has closed itself */
    if (strcmp(error->text, more_behind) == 0 || strncmp(error->text, wants_end, sizeof wants_end - 1) == 0)
        return mmi_fail(MM_ERR_FORMAT, "%s: %s", what, more_behind);
    drop_half_character(error->text);
    int line = error->line, column = line == 1 ? error->column - (int)before : error->column;
    if (error->position > (int64_t)(before + length))
        return mmi_fail(MM_ERR_FORMAT, "%s: line %d, column %d: it ends too soon", what, line,
                        column > 0 ? column - 1 : 0);
    if (strncmp(error->text, wants_brace, sizeof wants_brace - 1) == 0)
        return mmi_fail(MM_ERR_FORMAT, "%s: line %d, column %d: a comma or an end expected%s", what, line, column,
                        error->text + sizeof wants_brace - 1);
    return mmi_fail(MM_ERR_FORMAT, "%s: line %d, column %d: %s", what, line, column, error->text);
}

/* Out of memory, Jansson calls the token that it had no room for invalid, or goes on without the bytes that did not
 * fit: a key would be another key. So everything is parsed twice, and only what comes out twice is believed, a fault of
 * the text as well. */
static mm_status parse_behind(const char *head, size_t key, const char *text, size_t length, const char *what,
                              mmi_json **out)
{
    json_error_t error, again;
    json_t *value = load_behind(head, key, text, length, &error);
    json_t *second = load_behind(head, key, text, length, &again);
    bool sure = value ? json_equal(value, second) : !second && error.text[0] && same_error(&error, &again);
    json_decref(second);
    if (value && sure) {
        *out = value;
        return MM_OK;
    }
    json_decref(value);
    if (!sure || json_error_code(&error) == json_error_out_of_memory)
        return mmi_fail_memory(length, what);
    return fail_format(what, &error, key + 4, length);
}

mm_status mmi_json_parse(const char *text, size_t length, const char *what, mmi_json **out)
{
    size_t depth = mmi_json_depth(text, length), key = key_length(longest_token(text, length));
    if (depth > MMI_JSON_DEPTH)
        return mmi_fail(MM_ERR_FORMAT, "%s: nested %zu levels deep, at most %d are read", what, depth, MMI_JSON_DEPTH);
    char *head = room_for(length) ? malloc(key + 4) : NULL;
    if (!head)
        return mmi_fail_memory(length, what);
    memset(head, 'x', key + 4);
    memcpy(head, "{\"", 2);
    memcpy(head + 2 + key, "\":", 2);
    mm_status status = parse_behind(head, key, text, length, what, out);
    free(head);
    return status;
}

mm_status mmi_json_read_file(const char *path, mmi_json **out)
{
    char *text = NULL;
    size_t length = 0;
    mm_status status = mmi_read_file(path, &text, &length);
    if (status != MM_OK)
        return status;
    status = mmi_json_parse(text, length, path, out);
    mmi_free(text);
    return status;
}

void mmi_json_free(mmi_json *value)
{
    json_decref(value);
}

mmi_json_kind mmi_json_what(const mmi_json *value)
{
    if (!value)
        return MMI_JSON_NONE;
    switch (json_typeof(value)) {
    case JSON_OBJECT:
        return MMI_JSON_OBJECT;
    case JSON_ARRAY:
        return MMI_JSON_ARRAY;
    case JSON_STRING:
        return MMI_JSON_STRING;
    case JSON_INTEGER:
        return MMI_JSON_INT;
    case JSON_REAL:
        return MMI_JSON_REAL;
    case JSON_TRUE:
    case JSON_FALSE:
        return MMI_JSON_BOOL;
    default:
        return MMI_JSON_NULL;
    }
}

const char *mmi_json_kind_name(mmi_json_kind kind)
{
    static const char *const names[] = { "null",     "true or false", "an integer", "a number",
                                         "a string", "an array",      "an object",  "absent" };
    return names[kind];
}

mmi_json *mmi_json_get(const mmi_json *object, const char *key)
{
    return json_object_get(object, key);
}

size_t mmi_json_size(const mmi_json *value)
{
    return json_is_array(value) ? json_array_size(value) : json_object_size(value);
}

mmi_json *mmi_json_at(const mmi_json *array, size_t index)
{
    return json_array_get(array, index);
}

bool mmi_json_bool(const mmi_json *value, bool fallback)
{
    return json_is_boolean(value) ? json_is_true(value) : fallback;
}

int64_t mmi_json_int(const mmi_json *value, int64_t fallback)
{
    return json_is_integer(value) ? (int64_t)json_integer_value(value) : fallback;
}

double mmi_json_number(const mmi_json *value, double fallback)
{
    return json_is_number(value) ? json_number_value(value) : fallback;
}

const char *mmi_json_string(const mmi_json *value, size_t *length)
{
    if (!json_is_string(value))
        return NULL;
    if (length)
        *length = json_string_length(value);
    return json_string_value(value);
}

bool mmi_json_equal(const mmi_json *a, const mmi_json *b)
{
    return json_equal(a, b);
}

void *mmi_json_first(mmi_json *object)
{
    return json_object_iter(object);
}

void *mmi_json_next(mmi_json *object, void *place)
{
    return json_object_iter_next(object, place);
}

const char *mmi_json_key(void *place)
{
    return json_object_iter_key(place);
}

mmi_json *mmi_json_value(void *place)
{
    return json_object_iter_value(place);
}

mmi_json *mmi_json_new_object(void)
{
    return json_object();
}

mmi_json *mmi_json_new_array(void)
{
    return json_array();
}

mmi_json *mmi_json_new_null(void)
{
    return json_null();
}

mmi_json *mmi_json_new_bool(bool value)
{
    return json_boolean(value);
}

mmi_json *mmi_json_new_int(int64_t value)
{
    return json_integer(value);
}

mmi_json *mmi_json_new_real(double value)
{
    return json_real(value);
}

mmi_json *mmi_json_new_number(double value)
{
    return isfinite(value) ? mmi_json_new_real(value) : mmi_json_new_null();
}

mmi_json *mmi_json_new_numbers(const double *values, size_t count)
{
    mmi_json *array = mmi_json_new_array();
    for (size_t i = 0; i < count && array; i++)
        if (!mmi_json_append(array, mmi_json_new_number(values[i]))) {
            mmi_json_free(array);
            array = NULL;
        }
    return array;
}

mmi_json *mmi_json_new_string(const char *text, size_t length)
{
    return json_stringn(text, length);
}

mmi_json *mmi_json_share(mmi_json *value)
{
    return json_incref(value);
}

mmi_json *mmi_json_copy(const mmi_json *value)
{
    return json_deep_copy(value);
}

bool mmi_json_set(mmi_json *object, const char *key, mmi_json *value)
{
    return json_object_set_new(object, key, value) == 0;
}

bool mmi_json_set_int(mmi_json *object, const char *key, int64_t value)
{
    return mmi_json_set(object, key, mmi_json_new_int(value));
}

bool mmi_json_set_real(mmi_json *object, const char *key, double value)
{
    return mmi_json_set(object, key, mmi_json_new_real(value));
}

bool mmi_json_set_text(mmi_json *object, const char *key, const char *text)
{
    return mmi_json_set(object, key, text ? mmi_json_new_string(text, strlen(text)) : mmi_json_new_null());
}

bool mmi_json_append(mmi_json *array, mmi_json *value)
{
    return json_array_append_new(array, value) == 0;
}

void mmi_json_remove(mmi_json *object, const char *key)
{
    json_object_del(object, key);
}

mm_status mmi_json_write(const mmi_json *value, int indent, char **text, size_t *length)
{
    size_t flags = JSON_ENCODE_ANY | JSON_REAL_PRECISION(17) | JSON_INDENT((size_t)indent);
    if (indent == 0)
        flags |= JSON_COMPACT;
    size_t size = json_dumpb(value, NULL, 0, flags);
    if (size == 0) /* it takes memory to notice circles; values of ours can all be written */
        return mmi_fail_memory(0, "JSON text");
    char *buffer = mmi_alloc(size + 1, 1);
    if (!buffer)
        return mmi_fail_memory(size + 1, "JSON text");
    if (json_dumpb(value, buffer, size, flags) != size) {
        mmi_free(buffer);
        return mmi_fail_memory(size, "JSON text");
    }
    buffer[size] = '\0';
    *text = buffer;
    *length = size;
    return MM_OK;
}

mm_status mmi_json_write_file(const mmi_json *value, int indent, const char *path)
{
    char *text = NULL;
    size_t length = 0;
    mm_status status = mmi_json_write(value, indent, &text, &length);
    if (status != MM_OK)
        return status;
    text[length] = '\n'; /* in place of the NUL */
    status = mmi_write_file(path, text, length + 1);
    mmi_free(text);
    return status;
}
