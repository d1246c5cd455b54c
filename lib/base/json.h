/* JSON values; the only door to Jansson. */
#ifndef MMI_BASE_JSON_H
#define MMI_BASE_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

typedef struct json_t mmi_json;

typedef enum mmi_json_kind {
    MMI_JSON_NULL,
    MMI_JSON_BOOL,
    MMI_JSON_INT,
    MMI_JSON_REAL,
    MMI_JSON_STRING,
    MMI_JSON_ARRAY,
    MMI_JSON_OBJECT,
    MMI_JSON_NONE /* no value at all: a key that is absent */
} mmi_json_kind;

/* Levels that are read. Jansson recurses per level, in reading, writing and letting go; its own limit of 2048 needs
 * more stack than a host's thread may have. Who puts a value that was read into another leaves room, or can't read it
 * back. */
#define MMI_JSON_DEPTH 256

/* Brackets open at once, at most; counted as far as the text is JSON, which is as far as Jansson reads. */
size_t mmi_json_depth(const char *text, size_t length);

/* Parse one value that takes all of `text`. Strings may hold NUL. A name twice in an object is refused. Failing:
 * MM_ERR_FORMAT "what: line 3, column 7: …" or MM_ERR_MEMORY. Free with mmi_json_free. */
mm_status mmi_json_parse(const char *text, size_t length, const char *what, mmi_json **out);

/* Read a file and parse it. */
mm_status mmi_json_read_file(const char *path, mmi_json **out);

/* Drop one's hold on a value; NULL is fine. */
void mmi_json_free(mmi_json *value);

/* Questions take NULL as "absent". What is not of the asked kind gives the fallback value. Members are lent. */
mmi_json_kind mmi_json_what(const mmi_json *value);
const char *mmi_json_kind_name(mmi_json_kind kind); /* "a string", "an object", … for messages */
mmi_json *mmi_json_get(const mmi_json *object, const char *key);
size_t mmi_json_size(const mmi_json *array_or_object);
mmi_json *mmi_json_at(const mmi_json *array, size_t index);
bool mmi_json_bool(const mmi_json *value, bool fallback);
int64_t mmi_json_int(const mmi_json *value, int64_t fallback);
double mmi_json_number(const mmi_json *value, double fallback);     /* of an integer too */
const char *mmi_json_string(const mmi_json *value, size_t *length); /* NULL if it is none; length may be NULL */

/* The same value? Members of objects may stand in any order. */
bool mmi_json_equal(const mmi_json *a, const mmi_json *b);

/* Walk an object in its own order:
 *     for (void *i = mmi_json_first(o); i; i = mmi_json_next(o, i)) … mmi_json_key(i) … mmi_json_value(i) */
void *mmi_json_first(mmi_json *object);
void *mmi_json_next(mmi_json *object, void *place);
const char *mmi_json_key(void *place);
mmi_json *mmi_json_value(void *place);

/* Building. A maker gives NULL when memory ran out; a setter takes `value` over, also when it fails, and takes NULL as
 * a failure of its maker: so only the setter need be looked at. */
mmi_json *mmi_json_new_object(void);
mmi_json *mmi_json_new_array(void);
mmi_json *mmi_json_new_null(void);
mmi_json *mmi_json_new_bool(bool value);
mmi_json *mmi_json_new_int(int64_t value);
mmi_json *mmi_json_new_real(double value);
mmi_json *mmi_json_new_number(double value); /* null where it is not finite: JSON has no word for that */
mmi_json *mmi_json_new_string(const char *text, size_t length);     /* must be UTF-8 */
mmi_json *mmi_json_share(mmi_json *value);                          /* a second hold on the same value */
mmi_json *mmi_json_copy(const mmi_json *value);                     /* deep */
mmi_json *mmi_json_new_numbers(const double *values, size_t count); /* an array of them */
bool mmi_json_set(mmi_json *object, const char *key, mmi_json *value);
bool mmi_json_set_int(mmi_json *object, const char *key, int64_t value);
bool mmi_json_set_real(mmi_json *object, const char *key, double value);
bool mmi_json_set_text(mmi_json *object, const char *key, const char *text); /* NULL: null */
bool mmi_json_append(mmi_json *array, mmi_json *value);
void mmi_json_remove(mmi_json *object, const char *key);

/* As text, members in their order, reals with 17 digits. `indent` 0: one line. mmi_free it. */
mm_status mmi_json_write(const mmi_json *value, int indent, char **text, size_t *length);

/* The same into a file, replaced in one step, with an end of line. */
mm_status mmi_json_write_file(const mmi_json *value, int indent, const char *path);

#endif
