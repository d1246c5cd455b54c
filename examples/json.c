#include "json.h"

#include "options.h"

#include <stdlib.h>
#include <string.h>

#define MOST_NESTED 64 /* so that no file exhausts the stack */

typedef struct reader {
    const char *what, *begin, *at, *end;
    char *to; /* there is room for two bytes of each that is read */
} reader;

static _Noreturn void fail_here(const reader *r, const char *what)
{
    char message[4300];
    snprintf(message, sizeof message, "%s is no JSON at byte %td: %s", r->what, r->at - r->begin, what);
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

char *json_read(const char *text, size_t length, const char *what)
{
    char *copy = need(malloc(2 * length + 1));
    reader r = { what, text, text, text + length, copy };
    copy_value(&r, 0);
    skip_spaces(&r);
    if (r.at < r.end)
        fail_here(&r, "it has ended before");
    *r.to = '\0';
    return copy;
}

/* --- Looking things up in the copy --- */

const char *json_behind(const char *at)
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

const char *json_first(const char *value)
{
    return value[1] == '}' || value[1] == ']' ? NULL : value + 1;
}

const char *json_next(const char *value)
{
    const char *end = json_behind(value);
    return *end == ',' ? end + 2 : NULL;
}

const char *json_value(const char *name)
{
    return json_behind(name) + 2;
}

bool json_is(const char *at, const char *text)
{
    size_t length = (size_t)(json_behind(at) - at);
    return length == strlen(text) && memcmp(at, text, length) == 0;
}

bool json_same(const char *one, const char *other)
{
    size_t length = (size_t)(json_behind(one) - one);
    return length == (size_t)(json_behind(other) - other) && memcmp(one, other, length) == 0;
}

char *json_copy(const char *at)
{
    size_t length = (size_t)(json_behind(at) - at);
    char *copy = need(malloc(length + 1));
    memcpy(copy, at, length);
    copy[length] = '\0';
    return copy;
}

char *json_text(const char *at)
{
    size_t length = (size_t)(json_behind(at) - at);
    char *text = need(malloc(length)), *to = text;
    for (const char *from = at + 1; *from != '"'; from++) {
        static const char names[] = "\"\\bfnrt", named[] = "\"\\\b\f\n\r\t";
        if (*from != '\\') {
            *to++ = *from;
        } else if (*++from != 'u') {
            *to++ = named[strchr(names, *from) - names];
        } else { /* \u00XX, a byte that has no name */
            *to++ = (char)strtol((char[]){ from[3], from[4], '\0' }, NULL, 16);
            from += 4;
        }
    }
    *to = '\0';
    return text;
}

const char *json_member(const char *object, const char *name)
{
    for (const char *at = *object == '{' ? json_first(object) : NULL; at; at = json_next(json_value(at)))
        if (json_is(at, name))
            return json_value(at);
    return NULL;
}
