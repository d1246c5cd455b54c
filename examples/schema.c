/* From a JSON Schema to a shape. */
#include "json.h"
#include "options.h"
#include "shape.h"

#include <stdlib.h>
#include <string.h>

/* clang-format off */
enum { TYPE, ENUM, CONST, PROPERTIES, REQUIRED, ITEMS, MIN_LENGTH, MAX_LENGTH, MIN_ITEMS, MAX_ITEMS,
       MINIMUM, MAXIMUM, ABOVE, BELOW, ADDITIONAL, KEYWORDS };
static const char *const keywords[KEYWORDS] = {
    "\"type\"", "\"enum\"", "\"const\"", "\"properties\"", "\"required\"", "\"items\"",
    "\"minLength\"", "\"maxLength\"", "\"minItems\"", "\"maxItems\"",
    "\"minimum\"", "\"maximum\"", "\"exclusiveMinimum\"", "\"exclusiveMaximum\"", "\"additionalProperties\""
};
static const char *const remarks[] = { /* that say nothing of what fits */
    "\"$schema\"", "\"$id\"", "\"$comment\"", "\"title\"", "\"description\"", "\"default\"", "\"examples\"", NULL
};
/* clang-format on */

/* Where in the schema: the name of a property, or "items"; `above` NULL: at its root. */
typedef struct place {
    const struct place *above;
    const char *name;
} place;

static void write_place(const place *p, char *text, size_t size)
{
    if (!p->above) {
        snprintf(text, size, "the schema");
        return;
    }
    write_place(p->above, text, size);
    size_t length = strlen(text);
    snprintf(text + length, size - length, ", %.*s", (int)(json_behind(p->name) - p->name), p->name);
}

static _Noreturn void refuse(const place *p, const char *what, const char *value)
{
    char where[300], message[600];
    write_place(p, where, sizeof where);
    snprintf(message, sizeof message, "%s: %s%.*s", where, what, value ? (int)(json_behind(value) - value) : 0,
             value ? value : "");
    fail(message, "");
}

static void read_keywords(const place *p, const char *schema, const char *found[KEYWORDS])
{
    if (*schema != '{')
        refuse(p, "a schema is an object, not ", schema);
    for (const char *at = json_first(schema); at; at = json_next(json_value(at))) {
        int k = 0;
        while (k < KEYWORDS && !json_is(at, keywords[k]))
            k++;
        if (k < KEYWORDS && found[k])
            refuse(p, "it says twice what is its ", at);
        if (k < KEYWORDS)
            found[k] = json_value(at);
        int i = 0;
        while (k == KEYWORDS && remarks[i] && !json_is(at, remarks[i]))
            i++;
        if (k == KEYWORDS && !remarks[i])
            refuse(p, "answers can't be kept to its ", at);
    }
}

static int32_t read_count(const place *p, const char *value, int32_t otherwise)
{
    if (!value)
        return otherwise;
    char *end;
    double count = strtod(value, &end);
    if (*value < '0' || *value > '9' || end != json_behind(value) || count > SHAPE_NO_END ||
        count != (double)(int32_t)count)
        refuse(p, "a length is a whole number from 0 up, not ", value);
    return (int32_t)count;
}

static int64_t read_bound(const place *p, const char *value, int64_t otherwise)
{
    if (!value)
        return otherwise;
    size_t length = (size_t)(json_behind(value) - value), sign = *value == '-';
    if (strspn(value + sign, "0123456789") != length - sign || length - sign > 15)
        refuse(p, "a bound is a whole number of at most 15 digits, not ", value);
    return strtoll(value, NULL, 10);
}

/* Where there are bounds; of others than whole numbers it's not for a digit to say whether it leads between them. */
static void add_number(shape *s, const place *p, const char *const found[KEYWORDS], bool whole)
{
    int bound = MINIMUM;
    while (bound <= BELOW && !found[bound])
        bound++;
    if (bound > BELOW) {
        shape_number(s, whole);
        return;
    }
    if (!whole)
        refuse(p, "only of an integer answers can be kept to its ", keywords[bound]);
    int64_t low = read_bound(p, found[MINIMUM], -SHAPE_LARGEST), above = read_bound(p, found[ABOVE], low - 1);
    int64_t high = read_bound(p, found[MAXIMUM], SHAPE_LARGEST), below = read_bound(p, found[BELOW], high + 1);
    low = above >= low ? above + 1 : low;
    high = below <= high ? below - 1 : high;
    if (low > high)
        refuse(p, "no whole number of at most 15 digits lies between its bounds", NULL);
    shape_range(s, low, high);
}

static bool is_of_type(const char *value, const char *type)
{
    const char *end = json_behind(value);
    switch (*value) {
    case '"':
        return json_is(type, "\"string\"");
    case '{':
        return json_is(type, "\"object\"");
    case '[':
        return json_is(type, "\"array\"");
    case 't':
    case 'f':
        return json_is(type, "\"boolean\"");
    case 'n':
        return json_is(type, "\"null\"");
    default:
        return json_is(type, "\"number\"") ||
               (json_is(type, "\"integer\"") && strcspn(value, ".eE") >= (size_t)(end - value));
    }
}

static void add_values(shape *s, const place *p, const char *list, const char *type)
{
    if (*list != '[' || !json_first(list))
        refuse(p, "an enum is an array of at least one value, not ", list);
    int32_t count = 0;
    char **texts = NULL;
    for (const char *at = json_first(list); at; at = json_next(at)) {
        if (type && !is_of_type(at, type))
            refuse(p, "in its enum there is what isn't of its type, ", at);
        texts = need(realloc(texts, ((size_t)count + 1) * sizeof *texts));
        texts[count++] = json_copy(at);
    }
    shape_choice(s, (const char *const *)texts, count);
    while (count > 0)
        free(texts[--count]);
    free(texts);
}

static void add_schema(shape *s, const place *p, const char *schema);

static void add_copy(shape *s, const char *at)
{
    char *text = json_copy(at);
    shape_text(s, text);
    free(text);
}

/* All properties, whether they are required or not: it's for the model to say what, and for the shape to say where. */
static void add_object(shape *s, const place *p, const char *properties, const char *required)
{
    if (!properties || *properties != '{')
        refuse(p, "an object needs \"properties\", an object", NULL);
    if (required && *required != '[')
        refuse(p, "\"required\" is an array, not ", required);
    for (const char *name = required ? json_first(required) : NULL; name; name = json_next(name)) {
        const char *at = json_first(properties);
        while (at && !json_same(at, name))
            at = json_next(json_value(at));
        if (!at)
            refuse(p, "what is required is no property of it, ", name);
    }
    shape_text(s, "{");
    for (const char *at = json_first(properties); at; at = json_next(json_value(at))) {
        for (const char *before = json_first(properties); before != at; before = json_next(json_value(before)))
            if (json_same(before, at))
                refuse(p, "it has twice the property ", at);
        if (at != json_first(properties))
            shape_text(s, ", ");
        add_copy(s, at);
        shape_text(s, ": ");
        add_schema(s, &(place){ p, at }, json_value(at));
    }
    shape_text(s, "}");
}

static void add_array(shape *s, const place *p, const char *items, int32_t least, int32_t most)
{
    if (!items)
        refuse(p, "an array needs \"items\", the schema of each", NULL);
    if (most == 0) {
        shape_text(s, "[]");
        return;
    }
    shape_open_array(s, least, most);
    add_schema(s, &(place){ p, "\"items\"" }, items);
    shape_close_array(s);
}

static void add_schema(shape *s, const place *p, const char *schema)
{
    const char *found[KEYWORDS] = { NULL };
    read_keywords(p, schema, found);
    const char *type = found[TYPE];
    bool lengths = type && json_is(type, "\"string\"");
    int32_t least = read_count(p, found[lengths ? MIN_LENGTH : MIN_ITEMS], 0);
    int32_t most = read_count(p, found[lengths ? MAX_LENGTH : MAX_ITEMS], SHAPE_NO_END);
    if (least > most)
        refuse(p, "nothing is as long as its least and as short as its most", NULL);
    for (int k = CONST; k < KEYWORDS && (found[ENUM] || found[CONST]); k++)
        if (found[k] && (k > CONST || found[ENUM]))
            refuse(p, "beside an enum or a const only a type can be kept to, not ", keywords[k]);
    if (found[CONST] && type && !is_of_type(found[CONST], type))
        refuse(p, "its const isn't of its type, ", found[CONST]);

    static const char *const yes_or_no[] = { "true", "false" };
    if (found[CONST])
        add_copy(s, found[CONST]);
    else if (found[ENUM])
        add_values(s, p, found[ENUM], type);
    else if (!type)
        refuse(p, "it has no \"type\", \"enum\" or \"const\"", NULL);
    else if (json_is(type, "\"object\""))
        add_object(s, p, found[PROPERTIES], found[REQUIRED]);
    else if (json_is(type, "\"array\""))
        add_array(s, p, found[ITEMS], least, most);
    else if (json_is(type, "\"string\""))
        shape_string(s, least, most);
    else if (json_is(type, "\"integer\"") || json_is(type, "\"number\""))
        add_number(s, p, found, json_is(type, "\"integer\""));
    else if (json_is(type, "\"boolean\""))
        shape_choice(s, yes_or_no, 2);
    else if (json_is(type, "\"null\""))
        shape_text(s, "null");
    else
        refuse(p, "a type is object, array, string, integer, number, boolean or null, not ", type);
}

shape *shape_from_schema(const char *text, size_t length)
{
    char *schema = json_read(text, length, "the schema");
    shape *s = shape_create();
    add_schema(s, &(place){ NULL, NULL }, schema);
    free(schema);
    return s;
}
