/* From a JSON Schema to a shape. The text is first read as JSON and written anew in one way: ", " and ": " between what
 * it holds, and each string with the same escapes. What is to be looked up in it then needs no tree and can't be
 * malformed: equal names are equal bytes, and the values of an enum stand there as the model shall write them. */
#include "options.h"
#include "shape.h"

#include <stdlib.h>
#include <string.h>

/* --- JSON --- */

#define MOST_NESTED 64 /* so that no file exhausts the stack */

typedef struct reader {
    const char *begin, *at, *end;
    char *to; /* there is room for two bytes of each that is read */
} reader;

static _Noreturn void fail_here(const reader *r, const char *what)
{
    char message[160];
    snprintf(message, sizeof message, "the schema is no JSON at byte %td: %s", r->at - r->begin, what);
    fail(message, "");
}

static int peek(const reader *r)
{
    return r->at < r->end ? (unsigned char)*r->at : -1;
}

static void skip_spaces(reader *r)
{
    while (peek(r) == ' ' || peek(r) == '\t' || peek(r) == '\n' || peek(r) == '\r')
        r->at++;
}

static void put(reader *r, const char *text)
{
    size_t length = strlen(text);
    memcpy(r->to, text, length);
    r->to += length;
}

static void expect(reader *r, const char *text)
{
    const char *what = *text == '"' ? "a string should stand here" :
                       *text == ',' ? "a comma should stand here" :
                       *text == ':' ? "a colon should stand here" :
                                      "a value should stand here";
    if ((size_t)(r->end - r->at) < strlen(text) || strncmp(r->at, text, strlen(text)) != 0)
        fail_here(r, what);
    r->at += strlen(text);
}

static unsigned read_hex(reader *r)
{
    unsigned value = 0;
    for (int i = 0; i < 4; i++, r->at++) {
        static const char digits[] = "0123456789abcdef0123456789ABCDEF";
        const char *digit = peek(r) > 0 ? strchr(digits, peek(r)) : NULL;
        if (!digit)
            fail_here(r, "\\u takes four hexadecimal digits");
        value = value * 16 + (unsigned)(digit - digits) % 16;
    }
    return value;
}

/* A character in UTF-8, or escaped if it must be. */
static void put_character(reader *r, unsigned c)
{
    static const char named[] = "\"\\\b\f\n\r\t", names[] = "\"\\bfnrt";
    const char *name = c > 0 && c < 0x80 ? strchr(named, (int)c) : NULL;
    char text[8];
    if (name)
        snprintf(text, sizeof text, "\\%c", names[name - named]);
    else if (c < 0x20)
        snprintf(text, sizeof text, "\\u%04x", c);
    else if (c < 0x80)
        snprintf(text, sizeof text, "%c", (int)c);
    else if (c < 0x800)
        snprintf(text, sizeof text, "%c%c", (int)(0xc0 | c >> 6), (int)(0x80 | (c & 63)));
    else if (c < 0x10000)
        snprintf(text, sizeof text, "%c%c%c", (int)(0xe0 | c >> 12), (int)(0x80 | (c >> 6 & 63)),
                 (int)(0x80 | (c & 63)));
    else
        snprintf(text, sizeof text, "%c%c%c%c", (int)(0xf0 | c >> 18), (int)(0x80 | (c >> 12 & 63)),
                 (int)(0x80 | (c >> 6 & 63)), (int)(0x80 | (c & 63)));
    put(r, text);
}

static void copy_escape(reader *r)
{
    static const char names[] = "\"\\/bfnrt", named[] = "\"\\/\b\f\n\r\t";
    const char *name = peek(r) > 0 ? strchr(names, peek(r)) : NULL;
    if (name) {
        r->at++;
        put_character(r, (unsigned char)named[name - names]);
        return;
    }
    if (peek(r) != 'u')
        fail_here(r, "there is no such escape");
    r->at++;
    unsigned c = read_hex(r);
    if (c >= 0xd800 && c < 0xdc00 && r->end - r->at > 1 && r->at[0] == '\\' && r->at[1] == 'u') {
        r->at += 2;
        unsigned low = read_hex(r);
        c = low >= 0xdc00 && low < 0xe000 ? 0x10000 + ((c - 0xd800) << 10) + (low - 0xdc00) : c;
    }
    if (c >= 0xd800 && c < 0xe000)
        fail_here(r, "\\u has half of a pair before it");
    put_character(r, c);
}

static void copy_string(reader *r)
{
    expect(r, "\"");
    put(r, "\"");
    while (peek(r) != '"') {
        if (peek(r) < 0x20)
            fail_here(r, "a string breaks off");
        if (peek(r) == '\\') {
            r->at++;
            copy_escape(r);
        } else {
            *r->to++ = *r->at++;
        }
    }
    r->at++;
    put(r, "\"");
}

static void copy_digits(reader *r)
{
    if (peek(r) < '0' || peek(r) > '9')
        fail_here(r, "a digit should stand here");
    while (peek(r) >= '0' && peek(r) <= '9')
        *r->to++ = *r->at++;
}

static void copy_number(reader *r)
{
    if (peek(r) == '-')
        *r->to++ = *r->at++;
    if (peek(r) == '0')
        *r->to++ = *r->at++;
    else
        copy_digits(r);
    if (peek(r) == '.') {
        *r->to++ = *r->at++;
        copy_digits(r);
    }
    if (peek(r) == 'e' || peek(r) == 'E') {
        *r->to++ = *r->at++;
        if (peek(r) == '+' || peek(r) == '-')
            *r->to++ = *r->at++;
        copy_digits(r);
    }
}

static void copy_value(reader *r, int depth);

/* An object or an array: what is between its brackets, in pairs or one by one. */
static void copy_members(reader *r, const char *open, const char *close, int depth)
{
    if (depth == MOST_NESTED)
        fail_here(r, "it is nested too deeply");
    expect(r, open);
    put(r, open);
    skip_spaces(r);
    for (bool first = true; peek(r) != *close; first = false) {
        if (!first) {
            expect(r, ",");
            put(r, ", ");
            skip_spaces(r);
        }
        if (*open == '{') {
            copy_string(r);
            skip_spaces(r);
            expect(r, ":");
            put(r, ": ");
        }
        copy_value(r, depth + 1);
        skip_spaces(r);
    }
    expect(r, close);
    put(r, close);
}

static void copy_value(reader *r, int depth)
{
    skip_spaces(r);
    int c = peek(r);
    const char *word = c == 't' ? "true" : c == 'f' ? "false" : "null";
    if (c == '{')
        copy_members(r, "{", "}", depth);
    else if (c == '[')
        copy_members(r, "[", "]", depth);
    else if (c == '"')
        copy_string(r);
    else if (c == '-' || (c >= '0' && c <= '9'))
        copy_number(r);
    else
        expect(r, word), put(r, word);
}

static char *copy_json(const char *text, size_t length)
{
    char *copy = need(malloc(2 * length + 1));
    reader r = { text, text, text + length, copy };
    copy_value(&r, 0);
    skip_spaces(&r);
    if (r.at < r.end)
        fail_here(&r, "it has ended before");
    *r.to = '\0';
    return copy;
}

/* --- Looking things up in the copy --- */

/* Behind the value, or the name, that begins here. */
static const char *behind(const char *at)
{
    int open = 0;
    do {
        if (*at == '"')
            for (at++; *at != '"'; at++)
                at += *at == '\\';
        open += *at == '{' || *at == '[';
        open -= *at == '}' || *at == ']';
        at++;
    } while (open > 0 || (*at && !strchr(":,]}", *at) && at[-1] != '"' && at[-1] != '}' && at[-1] != ']'));
    return at;
}

/* The first one in an object or an array, and the one behind the value that begins here; NULL: there is none. */
static const char *first_in(const char *value)
{
    return value[1] == '}' || value[1] == ']' ? NULL : value + 1;
}

static const char *next_to(const char *value)
{
    const char *end = behind(value);
    return *end == ',' ? end + 2 : NULL;
}

static const char *value_of(const char *name)
{
    return behind(name) + 2;
}

static bool is(const char *at, const char *text)
{
    size_t length = (size_t)(behind(at) - at);
    return length == strlen(text) && memcmp(at, text, length) == 0;
}

static bool are_same(const char *one, const char *other)
{
    size_t length = (size_t)(behind(one) - one);
    return length == (size_t)(behind(other) - other) && memcmp(one, other, length) == 0;
}

static char *copy_of(const char *at)
{
    size_t length = (size_t)(behind(at) - at);
    char *copy = need(malloc(length + 1));
    memcpy(copy, at, length);
    copy[length] = '\0';
    return copy;
}

/* --- Schemas --- */

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
    snprintf(text + length, size - length, ", %.*s", (int)(behind(p->name) - p->name), p->name);
}

static _Noreturn void refuse(const place *p, const char *what, const char *value)
{
    char where[300], message[600];
    write_place(p, where, sizeof where);
    snprintf(message, sizeof message, "%s: %s%.*s", where, what, value ? (int)(behind(value) - value) : 0,
             value ? value : "");
    fail(message, "");
}

static void read_keywords(const place *p, const char *schema, const char *found[KEYWORDS])
{
    if (*schema != '{')
        refuse(p, "a schema is an object, not ", schema);
    for (const char *at = first_in(schema); at; at = next_to(value_of(at))) {
        int k = 0;
        while (k < KEYWORDS && !is(at, keywords[k]))
            k++;
        if (k < KEYWORDS && found[k])
            refuse(p, "it says twice what is its ", at);
        if (k < KEYWORDS)
            found[k] = value_of(at);
        int i = 0;
        while (k == KEYWORDS && remarks[i] && !is(at, remarks[i]))
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
    if (*value < '0' || *value > '9' || end != behind(value) || count > SHAPE_NO_END || count != (double)(int32_t)count)
        refuse(p, "a length is a whole number from 0 up, not ", value);
    return (int32_t)count;
}

static int64_t read_bound(const place *p, const char *value, int64_t otherwise)
{
    if (!value)
        return otherwise;
    size_t length = (size_t)(behind(value) - value), sign = *value == '-';
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
    const char *end = behind(value);
    switch (*value) {
    case '"':
        return is(type, "\"string\"");
    case '{':
        return is(type, "\"object\"");
    case '[':
        return is(type, "\"array\"");
    case 't':
    case 'f':
        return is(type, "\"boolean\"");
    case 'n':
        return is(type, "\"null\"");
    default:
        return is(type, "\"number\"") || (is(type, "\"integer\"") && strcspn(value, ".eE") >= (size_t)(end - value));
    }
}

static void add_values(shape *s, const place *p, const char *list, const char *type)
{
    if (*list != '[' || !first_in(list))
        refuse(p, "an enum is an array of at least one value, not ", list);
    int32_t count = 0;
    char **texts = NULL;
    for (const char *at = first_in(list); at; at = next_to(at)) {
        if (type && !is_of_type(at, type))
            refuse(p, "in its enum there is what isn't of its type, ", at);
        texts = need(realloc(texts, ((size_t)count + 1) * sizeof *texts));
        texts[count++] = copy_of(at);
    }
    shape_choice(s, (const char *const *)texts, count);
    while (count > 0)
        free(texts[--count]);
    free(texts);
}

static void add_schema(shape *s, const place *p, const char *schema);

static void add_copy(shape *s, const char *at)
{
    char *text = copy_of(at);
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
    for (const char *name = required ? first_in(required) : NULL; name; name = next_to(name)) {
        const char *at = first_in(properties);
        while (at && !are_same(at, name))
            at = next_to(value_of(at));
        if (!at)
            refuse(p, "what is required is no property of it, ", name);
    }
    shape_text(s, "{");
    for (const char *at = first_in(properties); at; at = next_to(value_of(at))) {
        for (const char *before = first_in(properties); before != at; before = next_to(value_of(before)))
            if (are_same(before, at))
                refuse(p, "it has twice the property ", at);
        if (at != first_in(properties))
            shape_text(s, ", ");
        add_copy(s, at);
        shape_text(s, ": ");
        add_schema(s, &(place){ p, at }, value_of(at));
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
    bool lengths = type && is(type, "\"string\"");
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
    else if (is(type, "\"object\""))
        add_object(s, p, found[PROPERTIES], found[REQUIRED]);
    else if (is(type, "\"array\""))
        add_array(s, p, found[ITEMS], least, most);
    else if (is(type, "\"string\""))
        shape_string(s, least, most);
    else if (is(type, "\"integer\"") || is(type, "\"number\""))
        add_number(s, p, found, is(type, "\"integer\""));
    else if (is(type, "\"boolean\""))
        shape_choice(s, yes_or_no, 2);
    else if (is(type, "\"null\""))
        shape_text(s, "null");
    else
        refuse(p, "a type is object, array, string, integer, number, boolean or null, not ", type);
}

shape *shape_from_schema(const char *text, size_t length)
{
    char *schema = copy_json(text, length);
    shape *s = shape_create();
    add_schema(s, &(place){ NULL, NULL }, schema);
    free(schema);
    return s;
}
