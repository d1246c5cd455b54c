#include "shape.h"

#include "options.h"

#include <stdlib.h>
#include <string.h>

/* A text is a choice of one. An array is an ITEMS, the parts of an item, and a MORE; it opens in the text before. */
enum { CHOICE, STRING, NUMBER, RANGE, ITEMS, MORE };

typedef struct part {
    int kind;
    int32_t outer;       /* the ITEMS of the array that it's in, its own of a MORE; -1: none */
    int32_t other;       /* of an ITEMS its MORE */
    int32_t least, most; /* characters or items */
    int64_t low, high;   /* of a RANGE */
    bool whole;          /* of a NUMBER */
    bool fixed;          /* of a CHOICE: a text that may grow */
    char **texts;        /* [count], sorted */
    int32_t **prices;    /* [count][length + 1] tokens that spell the rest of a text */
    int32_t count;
    int64_t tail; /* tokens from before it to the end of the item that it's in, or of all */
} part;

struct shape {
    part *parts; /* [count + 1], the last one is the end */
    int32_t count, outer, depth;
    int32_t separator[3];            /* prices of ", ", from each of its bytes on */
    int64_t bracket, quote;          /* ..., of what closes arrays and strings */
    int64_t plain, escaped;          /* ..., of a character that needs no escape, and of what follows a backslash */
    int64_t digit, any_digit, minus; /* ..., of the cheapest digit, of the dearest, and of a sign */
    int64_t follow[256]; /* ..., of the byte behind one that leads a character; [0]: behind any other of its bytes */
};

static int64_t at_most_never(int64_t tokens)
{
    return tokens < SHAPE_NEVER ? tokens : SHAPE_NEVER;
}

/* --- Building --- */

static part *append(shape *s, int kind)
{
    s->parts = need(realloc(s->parts, ((size_t)s->count + 2) * sizeof *s->parts));
    part *p = &s->parts[s->count++];
    memset(p, 0, 2 * sizeof *p);
    p->kind = kind;
    p->outer = s->outer;
    return p;
}

shape *shape_create(void)
{
    shape *s = need(calloc(1, sizeof *s));
    s->outer = -1;
    s->parts = need(calloc(1, sizeof *s->parts));
    return s;
}

void shape_free(shape *s)
{
    for (int32_t i = 0; s && i < s->count; i++) {
        for (int32_t k = 0; k < s->parts[i].count; k++) {
            free(s->parts[i].texts[k]);
            free(s->parts[i].prices[k]);
        }
        free(s->parts[i].texts);
        free(s->parts[i].prices);
    }
    if (s)
        free(s->parts);
    free(s);
}

static int by_bytes(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

void shape_choice(shape *s, const char *const *texts, int32_t count)
{
    part *p = append(s, CHOICE);
    p->count = count;
    p->texts = need(malloc((size_t)count * sizeof *p->texts));
    p->prices = need(malloc((size_t)count * sizeof *p->prices));
    for (int32_t k = 0; k < count; k++) {
        size_t size = strlen(texts[k]) + 1;
        p->texts[k] = memcpy(need(malloc(size)), texts[k], size);
    }
    qsort(p->texts, (size_t)count, sizeof *p->texts, by_bytes);
    for (int32_t k = 0; k < count; k++)
        p->prices[k] = need(malloc((strlen(p->texts[k]) + 1) * sizeof **p->prices));
}

/* Texts that follow each other are one: tokens then are seen to span them. */
void shape_text(shape *s, const char *text)
{
    part *p = s->count > 0 ? &s->parts[s->count - 1] : NULL;
    if (!p || p->kind != CHOICE || !p->fixed) {
        shape_choice(s, &text, 1);
        s->parts[s->count - 1].fixed = true;
        return;
    }
    size_t before = strlen(p->texts[0]), size = strlen(text) + 1;
    p->texts[0] = need(realloc(p->texts[0], before + size));
    memcpy(p->texts[0] + before, text, size);
    p->prices[0] = need(realloc(p->prices[0], (before + size) * sizeof **p->prices));
}

void shape_string(shape *s, int32_t least, int32_t most)
{
    shape_text(s, "\"");
    part *p = append(s, STRING); /* from the first character to the quote behind the last */
    p->least = least;
    p->most = most;
}

void shape_number(shape *s, bool whole)
{
    append(s, NUMBER)->whole = whole;
}

void shape_range(shape *s, int64_t least, int64_t most)
{
    part *p = append(s, RANGE);
    p->low = least;
    p->high = most;
}

void shape_open_array(shape *s, int32_t least, int32_t most)
{
    if (s->depth++ == SHAPE_DEPTH)
        fail("the shape has more arrays within each other than it can count in", "");
    shape_text(s, "[");
    part *p = append(s, ITEMS);
    p->least = least;
    p->most = most;
    s->outer = s->count - 1;
}

void shape_close_array(shape *s)
{
    int32_t items = s->outer;
    append(s, MORE);
    s->parts[items].other = s->count - 1;
    s->outer = s->parts[items].outer;
    s->depth--;
}

/* --- Reading --- */

/* Of strings: between characters, behind a backslash, within a character, behind the last quote. Of numbers: behind it.
 */
enum { BETWEEN, ESCAPE, WITHIN, CLOSED };
enum { NOTHING, MINUS, ZERO, WHOLE, POINT, FRACTION, E, SIGN, EXPONENT };
enum { MOST_DIGITS = 15, MOST_EXPONENT = 2 }; /* what a double holds: readers lose nothing, and none overflows */

static void enter(const shape *s, shape_state *state, int32_t number)
{
    state->part = number;
    state->at = state->low = 0;
    state->high = s->parts[number].count;
    state->value = 0;
    state->step = 0;
}

void shape_begin(const shape *s, shape_state *state)
{
    memset(state, 0, sizeof *state);
    enter(s, state, 0);
}

static bool take_of_choice(const part *p, shape_state *state, char byte)
{
    while (state->low < state->high && p->texts[state->low][state->at] != byte)
        state->low++;
    while (state->low < state->high && p->texts[state->high - 1][state->at] != byte)
        state->high--;
    state->at++;
    return state->low < state->high;
}

/* The bytes that follow the first one of a character; 0 for none, and -1 where no character begins with it. */
static int bytes_behind(unsigned char lead)
{
    return lead < 0x80 ? 0 : lead < 0xc2 ? -1 : lead < 0xe0 ? 1 : lead < 0xf0 ? 2 : lead < 0xf5 ? 3 : -1;
}

/* UTF-8 writes nothing in more bytes than it takes, no halves of pairs, nothing above U+10FFFF. `lead` 0: further on.
 */
static bool may_follow(unsigned char lead, unsigned char byte)
{
    unsigned char low = lead == 0xe0 ? 0xa0 : lead == 0xf0 ? 0x90 : 0x80;
    unsigned char high = lead == 0xed ? 0x9f : lead == 0xf4 ? 0x8f : 0xbf;
    return byte >= low && byte <= high;
}

static bool is_plain(unsigned char byte)
{
    return byte >= 0x20 && byte != '"' && byte != '\\';
}

static const char escapes[] =
    "\"\\/bfnrt"; /* no \u: each character would have a second spelling, and halves of pairs one */

static bool take_of_string(const part *p, shape_state *state, unsigned char byte)
{
    switch (state->step) {
    case BETWEEN:
        if (byte == '"' && state->at >= p->least) {
            state->step = CLOSED;
            return true;
        }
        if (state->at == p->most || (byte != '\\' && (!is_plain(byte) || bytes_behind(byte) < 0)))
            return false;
        state->at++;
        state->more = (uint8_t)bytes_behind(byte);
        state->lead = byte;
        state->step = byte == '\\' ? ESCAPE : state->more > 0 ? WITHIN : BETWEEN;
        return true;
    case ESCAPE:
        state->step = BETWEEN;
        return byte != '\0' && strchr(escapes, byte);
    case WITHIN:
        if (!may_follow(state->lead, byte))
            return false;
        state->lead = 0;
        state->step = --state->more > 0 ? WITHIN : BETWEEN;
        return true;
    default:
        return false;
    }
}

static bool take_of_number(const part *p, shape_state *state, unsigned char byte)
{
    int step = state->step, most = step == EXPONENT ? MOST_EXPONENT : MOST_DIGITS;
    bool digits = step == WHOLE || step == FRACTION || step == EXPONENT;
    if (byte >= '0' && byte <= '9') {
        if (step == ZERO || (digits && state->at == most))
            return false;
        state->at = digits ? state->at + 1 : 1;
        state->step = step == POINT             ? FRACTION :
                      step == E || step == SIGN ? EXPONENT :
                      digits                    ? (uint8_t)step :
                      byte == '0'               ? ZERO :
                                                  WHOLE;
        return true;
    }
    if (byte == '-' && step == NOTHING)
        state->step = MINUS;
    else if ((byte == '-' || byte == '+') && step == E)
        state->step = SIGN;
    else if (byte == '.' && !p->whole && (step == ZERO || step == WHOLE))
        state->step = POINT;
    else if ((byte == 'e' || byte == 'E') && !p->whole && (step == ZERO || step == WHOLE || step == FRACTION))
        state->step = E;
    else
        return false;
    return true;
}

static int digits_of(int64_t value)
{
    int digits = 1;
    for (; value > 9; value /= 10)
        digits++;
    return digits;
}

/* The fewest digits that must follow, a first one behind a sign included; -1: none lead to a number of the range. */
static int digits_to_range(const part *p, const shape_state *state)
{
    int64_t first = state->value, last = state->value; /* what so many more digits can make of it */
    if (state->step == MINUS)
        return p->low < 0 ? digits_of(p->high < 0 ? -p->high : 1) : -1;
    if (state->step == NOTHING)
        return p->high >= 0 ? digits_of(p->low > 0 ? p->low : 0) : -1;
    for (int digits = 0; digits < MOST_DIGITS; digits++) {
        if (first <= p->high && last >= p->low)
            return digits;
        if (state->step == ZERO || first < -SHAPE_LARGEST || last > SHAPE_LARGEST)
            return -1;
        first = first * 10 - (state->value < 0 ? 9 : 0);
        last = last * 10 + (state->value < 0 ? 0 : 9);
    }
    return -1;
}

/* There is no -0: it is no other number. */
static bool take_of_range(const part *p, shape_state *state, unsigned char byte)
{
    int digit = byte - '0';
    if (byte == '-' && state->step == NOTHING) {
        state->step = MINUS;
    } else if (digit < 0 || digit > 9 || state->step == ZERO || (state->step == MINUS && digit == 0)) {
        return false;
    } else {
        state->value = state->value * 10 + (state->step == MINUS || state->value < 0 ? -digit : digit);
        state->step = state->value == 0 ? ZERO : WHOLE;
    }
    return digits_to_range(p, state) >= 0;
}

static bool take_of_more(const shape *s, const part *more, shape_state *state, unsigned char byte)
{
    const part *array = &s->parts[more->outer];
    int32_t *items = &state->items[state->depth - 1];
    if (state->at == 1 && byte == ' ') {
        enter(s, state, more->outer + 1);
        return true;
    }
    if (state->at == 0 && byte == ',' && *items < array->most) {
        state->at = 1;
        ++*items;
        return true;
    }
    if (state->at == 1 || byte != ']' || *items < array->least)
        return false;
    state->depth--;
    enter(s, state, state->part + 1);
    return true;
}

static bool take_of_part(const shape *s, const part *p, shape_state *state, unsigned char byte)
{
    switch (p->kind) {
    case CHOICE:
        return byte != '\0' && take_of_choice(p, state, (char)byte); /* which ends texts here */
    case STRING:
        return take_of_string(p, state, byte);
    case NUMBER:
        return take_of_number(p, state, byte);
    case RANGE:
        return take_of_range(p, state, byte);
    case MORE:
        return take_of_more(s, p, state, byte);
    default: /* an ITEMS can be none */
        if (byte != ']' || p->least > 0)
            return false;
        enter(s, state, p->other + 1);
        return true;
    }
}

static bool may_end(const part *p, const shape_state *state)
{
    switch (p->kind) {
    case CHOICE:
        return p->texts[state->low][state->at] == '\0'; /* sorted, the shortest is the first */
    case STRING:
        return state->step == CLOSED;
    case NUMBER:
        return state->step == ZERO || state->step == WHOLE || state->step == FRACTION || state->step == EXPONENT;
    case RANGE:
        return state->step >= ZERO && state->value >= p->low && state->value <= p->high;
    default:
        return p->kind == ITEMS;
    }
}

/* While a part takes the byte it goes on: what follows a number, or an enum's 1 where there is a 12, begins with no
 * byte of theirs. */
bool shape_take(const shape *s, shape_state *state, unsigned char byte)
{
    while (state->part < s->count) {
        const part *p = &s->parts[state->part];
        shape_state before = *state;
        if (take_of_part(s, p, state, byte))
            return true;
        if (!may_end(p, &before))
            return false;
        *state = before;
        if (p->kind == ITEMS)
            state->items[state->depth++] = 1;
        enter(s, state, state->part + 1);
    }
    return false;
}

bool shape_goes_on(const shape *s, const shape_state *state)
{
    for (int byte = 0; byte < 256; byte++) {
        shape_state next = *state;
        if (shape_take(s, &next, (unsigned char)byte))
            return true;
    }
    return false;
}

/* --- Prices ---
 *
 * In tokens, of the shortest end: strings of as few letters as may be, a digit for a number, arrays of the fewest
 * items. Each is what a way to the end takes that goes from part to part, so some token always goes one step of it. A
 * token may also span parts: then the price was too high, and falls by more. */

/* Of the items that an array lacks when it has `items`, and of its end. */
static int64_t price_of_rest(const shape *s, const part *array, int32_t items)
{
    int64_t item = at_most_never(s->separator[0] + array[1].tail);
    return at_most_never((items < array->least ? (array->least - items) * item : 0) + s->bracket);
}

static int64_t price_of_characters(const shape *s, const part *p, int32_t characters)
{
    return at_most_never((characters < p->least ? (p->least - characters) * s->plain : 0) + s->quote);
}

static int64_t price_of_string(const shape *s, const part *p, const shape_state *state)
{
    if (state->step == CLOSED)
        return 0;
    int64_t begun = state->step == ESCAPE ? s->escaped :
                    state->step == WITHIN ? s->follow[state->lead] + (state->more - 1) * s->follow[0] :
                                            0;
    return begun + price_of_characters(s, p, state->at);
}

/* Which digits must come depends on those before: the dearest, and a sign only where there is no other way. */
static int64_t price_of_range(const shape *s, const part *p, const shape_state *state)
{
    shape_state behind = *state;
    int digits = digits_to_range(p, state);
    if (state->step == NOTHING && (digits < 0 || p->low < 0)) {
        behind.step = MINUS;
        int64_t negative = at_most_never(s->minus + digits_to_range(p, &behind) * s->any_digit);
        return digits < 0 || negative < digits * s->any_digit ? negative : digits * s->any_digit;
    }
    return at_most_never(digits * s->any_digit);
}

/* What is left of the part, at least. */
static int64_t price_of_part(const shape *s, const part *p, const shape_state *state)
{
    int64_t least = SHAPE_NEVER;
    switch (p->kind) {
    case CHOICE:
        for (int32_t k = state->low; k < state->high; k++)
            least = p->prices[k][state->at] < least ? p->prices[k][state->at] : least;
        return least;
    case STRING:
        return price_of_string(s, p, state);
    case NUMBER:
        return may_end(p, state) ? 0 : s->digit;
    case RANGE:
        return price_of_range(s, p, state);
    case MORE:
        return state->at == 1 ? s->separator[1] + s->parts[p->outer + 1].tail : 0;
    default:
        return (p->least > 0 ? p[1].tail : 0) + price_of_rest(s, p, p->least > 0 ? 1 : 0);
    }
}

static int64_t tail_behind(const shape *s, const part *p)
{
    return p->kind == MORE ? 0 : s->parts[p->kind == ITEMS ? p->other + 1 : p - s->parts + 1].tail;
}

int64_t shape_tokens_to_end(const shape *s, const shape_state *state)
{
    if (state->part == s->count)
        return 0;
    const part *p = &s->parts[state->part];
    int64_t sum = price_of_part(s, p, state) + tail_behind(s, p);
    int32_t level = state->depth;
    for (int32_t i = p->outer; i >= 0; i = s->parts[i].outer)
        sum += price_of_rest(s, &s->parts[i], state->items[--level]) + tail_behind(s, &s->parts[i]);
    return at_most_never(sum);
}

/* The cheapest byte that `is_one` of those; a byte's price is 1 where it is a token. */
static int64_t cheapest(const int64_t prices[256], bool (*is_one)(unsigned char lead, unsigned char byte), int lead)
{
    int64_t least = SHAPE_NEVER;
    for (int byte = 0; byte < 256; byte++)
        if (is_one((unsigned char)lead, (unsigned char)byte) && prices[byte] < least)
            least = prices[byte];
    return least;
}

static bool is_digit(unsigned char lead, unsigned char byte)
{
    return lead == 0 && byte >= '0' && byte <= '9';
}

static bool is_escaped(unsigned char lead, unsigned char byte)
{
    return lead == 0 && byte != '\0' && strchr(escapes, byte);
}

static bool is_letter(unsigned char lead, unsigned char byte)
{
    return lead == 0 && byte < 0x80 && is_plain(byte);
}

/* What a shape needs that no token spells is said here. That other characters lack tokens only makes them dear: they
 * never come. */
void shape_price(shape *s, shape_spell_fn spell, void *user)
{
    int64_t bytes[256];
    for (int byte = 0; byte < 256; byte++) {
        int32_t tokens[2];
        spell(user, &(const char){ (char)byte }, 1, tokens);
        bytes[byte] = tokens[0];
    }
    spell(user, ", ", 2, s->separator);
    s->bracket = bytes[']'];
    s->quote = bytes['"'];
    s->digit = cheapest(bytes, is_digit, 0);
    s->minus = bytes['-'];
    for (int digit = '0'; digit <= '9'; digit++)
        s->any_digit = bytes[digit] > s->any_digit ? bytes[digit] : s->any_digit;
    s->plain = cheapest(bytes, is_letter, 0);
    s->escaped = cheapest(bytes, is_escaped, 0);
    for (int lead = 0; lead < 256; lead++)
        s->follow[lead] = cheapest(bytes, may_follow, lead);

    for (int32_t i = s->count - 1; i >= 0; i--) { /* what stands behind is known before */
        part *p = &s->parts[i];
        for (int32_t k = 0; k < p->count; k++) {
            spell(user, p->texts[k], strlen(p->texts[k]), p->prices[k]);
            if (p->prices[k][0] >= SHAPE_NEVER)
                fail("the tokenizer has no tokens to write what the shape has in it: ", p->texts[k]);
        }
        shape_state first;
        memset(&first, 0, sizeof first);
        enter(s, &first, i);
        p->tail = p->kind == MORE ? 0 : at_most_never(price_of_part(s, p, &first) + tail_behind(s, p));
        if (p->tail >= SHAPE_NEVER)
            fail("the shape takes more tokens than there can be, or the tokenizer lacks some for ",
                 p->kind == STRING                     ? "its strings" :
                 p->kind == NUMBER || p->kind == RANGE ? "its numbers" :
                                                         "its arrays");
    }
}

/* --- Plain characters --- */

bool shape_plain_room(const shape *s, const shape_state *state, int64_t left, int64_t *least, int64_t *most)
{
    const part *p = &s->parts[state->part];
    if (state->part == s->count || p->kind != STRING || state->step != BETWEEN)
        return false;
    /* Without the characters that it lacks, all behind it costs so much. A token with n of them must leave no more to
     * be written than the rest of the tokens can write. */
    int64_t lacks = state->at < p->least ? p->least - state->at : 0;
    int64_t spare = left - (shape_tokens_to_end(s, state) - lacks * s->plain);
    *least = lacks > 0 && spare >= 0 ? lacks - spare / s->plain : 0;
    *most = spare < 0 ? -1 : p->most - state->at;
    return *most > 0 && *least <= *most;
}

int32_t shape_plain_characters(const unsigned char *bytes, size_t length)
{
    int32_t characters = 0;
    size_t more = 0;
    for (size_t i = 0; i < length; i++) {
        if (more > 0) {
            if (!may_follow(bytes[i - 1] >= 0xc0 ? bytes[i - 1] : 0, bytes[i]))
                return 0;
            more--;
            continue;
        }
        if (!is_plain(bytes[i]) || bytes_behind(bytes[i]) < 0)
            return 0;
        more = (size_t)bytes_behind(bytes[i]);
        characters++;
    }
    return more > 0 ? 0 : characters;
}
