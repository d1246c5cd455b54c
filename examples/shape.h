/* Which texts have a shape, such as {"name": "…", "age": …}: an automaton that reads them byte by byte, and knows at
 * every byte how few tokens would end them.
 *
 * A shape is a list of parts in the order in which they are written. Only an array goes back in it, so that the stack
 * of this pushdown automaton holds one number for each array that is open: its items so far. A state is a small struct
 * without pointers; to try a token is to copy a state and hand it the token's bytes. */
#ifndef EXAMPLES_SHAPE_H
#define EXAMPLES_SHAPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct shape shape;

#define SHAPE_DEPTH 16         /* arrays within each other */
#define SHAPE_NEVER (1 << 30)  /* more tokens than there ever are */
#define SHAPE_NO_END INT32_MAX /* as many characters or items as one likes */
#define SHAPE_LARGEST 999999999999999 /* 15 digits: a double holds each of them */

typedef struct shape_state {
    int32_t part;               /* of the shape's; behind the last one all is said */
    int32_t at;                 /* bytes of a text, characters of a string, digits of a number, so far */
    int32_t low, high;          /* of a choice: the texts [low, high) begin with what has been read */
    int32_t depth;              /* arrays that are open, and ... */
    int32_t items[SHAPE_DEPTH]; /* ... how many items each has, with the one that is being written */
    int64_t value;              /* of a whole number between bounds: what its digits so far make */
    uint8_t step;               /* of a string or a number: where in its grammar */
    uint8_t lead, more;         /* of a character: its first byte, if it's the last one read, and the bytes to come */
} shape_state;

shape *shape_create(void);
void shape_free(shape *s);

/* Append a part. What cannot be appended ends the program with a message. */
void shape_text(shape *s, const char *text);
void shape_choice(shape *s, const char *const *texts, int32_t count); /* one of at least one */
void shape_string(shape *s, int32_t least, int32_t most);             /* characters, in quotes */
void shape_number(shape *s, bool whole);
void shape_range(shape *s, int64_t least, int64_t most);      /* a whole number, neither beyond SHAPE_LARGEST */
void shape_open_array(shape *s, int32_t least, int32_t most); /* most > 0; its item is what follows, until ... */
void shape_close_array(shape *s);

/* Fills tokens[i], for i of 0 … length, with the fewest tokens that spell text + i, or SHAPE_NEVER. */
typedef void (*shape_spell_fn)(void *user, const char *text, size_t length, int32_t *tokens);

/* Behind the last part, before any question: what all costs. Ends the program if there are no tokens for a text. */
void shape_price(shape *s, shape_spell_fn spell, void *user);

void shape_begin(const shape *s, shape_state *state);

/* Go on by a byte; false: no text of this shape goes on with it, and `state` is of no use any more. */
bool shape_take(const shape *s, shape_state *state, unsigned char byte);

/* Can anything follow? */
bool shape_goes_on(const shape *s, const shape_state *state);

/* Tokens that surely suffice to end the text; 0: it may end here. As long as it's above 0, there is a token behind
 * which it is less by at least one. */
int64_t shape_tokens_to_end(const shape *s, const shape_state *state);

/* Between two characters of a string any others may follow that need no escape: from `least` to `most` of them, so that
 * behind these `left` tokens suffice to end the text. False: it isn't there, or none may. */
bool shape_plain_room(const shape *s, const shape_state *state, int64_t left, int64_t *least, int64_t *most);

/* Such characters in `length` bytes, if they are nothing else; 0 for what is cut off within one. */
int32_t shape_plain_characters(const unsigned char *bytes, size_t length);

/* The shape that a JSON Schema describes, of the subset that structured's --help tells; the text is UTF-8. What is
 * wrong or beyond it ends the program with a message. */
shape *shape_from_schema(const char *text, size_t length);

#endif
