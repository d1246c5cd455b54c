/* What Python's pickle wrote, as values. A pickle is a program that builds objects; of what it names nothing is run here:
 * known names become what they stand for, all others an OBJECT that is only passed over. */
#ifndef EXAMPLES_PICKLE_H
#define EXAMPLES_PICKLE_H

#include <stddef.h>
#include <stdint.h>

typedef enum pickle_kind {
    PICKLE_OBJECT, /* what nobody asks for: None, truth values, fractions, objects of unknown classes */
    PICKLE_NUMBER,
    PICKLE_TEXT,
    PICKLE_NAME,    /* of a class or a function, "module.name", in `text` */
    PICKLE_LIST,    /* `items` */
    PICKLE_DICT,    /* `items`: keys and values in turn */
    PICKLE_STORAGE, /* of torch: `items` are the parts of its persistent id */
    PICKLE_TENSOR   /* of torch: `items` are storage, offset, shape and strides, in numbers of the storage */
} pickle_kind;

typedef struct pickle_value {
    pickle_kind kind;
    int64_t number;
    const char *text; /* [length], and a NUL behind it */
    size_t length;
    struct pickle_value **items; /* [count]; of tuples, too, which are lists here */
    size_t count, room;
    struct pickle_value *older; /* all of them, to be freed */
} pickle_value;

/* The object that `bytes` build; `what` begins messages. Text is copied. What is damaged, or beyond what torch.save()
 * writes, ends the program with a message. */
pickle_value *pickle_read(const unsigned char *bytes, size_t length, const char *what);
void pickle_free(pickle_value *value); /* all that came of one pickle_read() */

/* The last value of a key, a text; NULL: there is none, or `dict` is no dict. */
const pickle_value *pickle_member(const pickle_value *dict, const char *key);

#endif
