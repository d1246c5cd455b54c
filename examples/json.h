/* JSON, read as text: it is written anew in one way, with ", " and ": " between what it holds and each string with the
 * same escapes. What is to be looked up then needs no tree and can't be malformed: equal names are equal bytes, and a
 * value is a pointer to where it begins. */
#ifndef EXAMPLES_JSON_H
#define EXAMPLES_JSON_H

#include <stdbool.h>
#include <stddef.h>

/* The text written anew, to be freed. What is no JSON ends the program with a message that begins with `what`. */
char *json_read(const char *text, size_t length, const char *what);

/* Behind the value, or the name, that begins here. */
const char *json_behind(const char *at);

/* The first one in an object or an array, of an object its name, and the one behind the value that begins here; NULL:
 * there is none. */
const char *json_first(const char *value);
const char *json_next(const char *value);
const char *json_value(const char *name);

/* The value of a name, which is given as it is written: "\"type\""; NULL: there is none, or it is no object. */
const char *json_member(const char *object, const char *name);

bool json_is(const char *at, const char *text); /* written so */
bool json_same(const char *one, const char *other);

char *json_copy(const char *at); /* as it is written, to be freed */
char *json_text(const char *at); /* the characters of a string, to be freed */

#endif
