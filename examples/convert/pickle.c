/* The instructions are those of Python's Lib/pickletools.py that torch.save() writes, with protocol 2 or a later one:
 * each is a byte, what belongs to it follows, numbers little-endian. They work on a stack of values; a mark on it is where
 * a tuple, or the members of a list or a dict, begin. What is to be used again has a number in a memo. */
#include "pickle.h"

#include "options.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct machine {
    const char *what;
    const unsigned char *at, *end;
    pickle_value **stack; /* a mark is NULL */
    size_t count, room;
    pickle_value **memo; /* [memo_room] */
    size_t memo_room, memo_count;
    pickle_value *newest;
} machine;

static _Noreturn void refuse(const machine *m, const char *why)
{
    char message[400];
    snprintf(message, sizeof message, "%.300s: its pickle %s", m->what, why);
    fail(message, "");
}

/* --- What is read --- */

static const unsigned char *take(machine *m, size_t count)
{
    if ((size_t)(m->end - m->at) < count)
        refuse(m, "ends too early");
    m->at += count;
    return m->at - count;
}

static uint64_t take_number(machine *m, int bytes)
{
    const unsigned char *from = take(m, (size_t)bytes);
    uint64_t number = 0;
    for (int i = bytes; i-- > 0;)
        number = number << 8 | from[i];
    return number;
}

static size_t take_size(machine *m, int bytes)
{
    uint64_t size = take_number(m, bytes);
    return size <= SIZE_MAX ? (size_t)size : SIZE_MAX;
}

/* Up to the end of the line, which is passed. */
static const char *take_line(machine *m, size_t *length)
{
    const unsigned char *begin = m->at, *end = memchr(begin, '\n', (size_t)(m->end - begin));
    if (!end)
        refuse(m, "ends too early");
    m->at = end + 1;
    *length = (size_t)(end - begin);
    return (const char *)begin;
}

/* --- The stack --- */

static pickle_value *fresh(machine *m, pickle_kind kind)
{
    pickle_value *value = need(calloc(1, sizeof *value));
    value->kind = kind;
    value->older = m->newest;
    return m->newest = value;
}

static void push(machine *m, pickle_value *value)
{
    if (m->count == m->room)
        m->stack = need(realloc(m->stack, (m->room = 2 * m->room + 64) * sizeof *m->stack));
    m->stack[m->count++] = value;
}

static pickle_value *pop(machine *m)
{
    if (m->count == 0 || !m->stack[m->count - 1])
        refuse(m, "takes more from its stack than is there");
    return m->stack[--m->count];
}

static pickle_value *top(machine *m)
{
    pickle_value *value = pop(m);
    push(m, value);
    return value;
}

/* Where what lies above the last mark begins. */
static size_t above_mark(const machine *m)
{
    size_t begin = m->count;
    while (begin > 0 && m->stack[begin - 1])
        begin--;
    if (begin == 0)
        refuse(m, "lacks a mark");
    return begin;
}

static void push_text(machine *m, pickle_kind kind, const char *text, size_t length)
{
    pickle_value *value = fresh(m, kind);
    char *copy = need(malloc(length + 1));
    memcpy(copy, text, length);
    copy[length] = '\0';
    value->text = copy;
    value->length = length;
    push(m, value);
}

static void push_number(machine *m, int64_t number)
{
    pickle_value *value = fresh(m, PICKLE_NUMBER);
    value->number = number;
    push(m, value);
}

static void add_items(pickle_value *to, pickle_value **items, size_t count)
{
    if (to->room - to->count < count)
        to->items = need(realloc(to->items, (to->room = 2 * to->room + count) * sizeof *to->items));
    if (count > 0)
        memcpy(to->items + to->count, items, count * sizeof *items);
    to->count += count;
}

/* The last `count` values become one. */
static void gather(machine *m, pickle_kind kind, size_t count)
{
    pickle_value *value = fresh(m, kind);
    for (size_t i = 0; i < count; i++)
        if (i >= m->count || !m->stack[m->count - 1 - i])
            refuse(m, "takes more from its stack than is there");
    add_items(value, m->stack + m->count - count, count);
    m->count -= count;
    push(m, value);
}

static void gather_marked(machine *m, pickle_kind kind)
{
    size_t begin = above_mark(m), count = m->count - begin;
    if (kind == PICKLE_DICT && count % 2 != 0)
        refuse(m, "has a key without a value");
    gather(m, kind, count);
    pickle_value *value = pop(m);
    m->count--; /* the mark */
    push(m, value);
}

/* --- The instructions --- */

static void memorise(machine *m, uint64_t number)
{
    if (number > m->memo_count + 1) /* one after the other, from 0 or, as Python 2 does, from 1 */
        refuse(m, "numbers what it keeps by leaps");
    if (number >= m->memo_room) {
        size_t room = 2 * (size_t)number + 64;
        m->memo = need(realloc(m->memo, room * sizeof *m->memo));
        memset(m->memo + m->memo_room, 0, (room - m->memo_room) * sizeof *m->memo);
        m->memo_room = room;
    }
    m->memo[number] = top(m);
    m->memo_count++;
}

static void recall(machine *m, uint64_t number)
{
    if (number >= m->memo_room || !m->memo[number])
        refuse(m, "asks for what it has not kept");
    push(m, m->memo[number]);
}

/* The members of the value on top become those of the one below it. Of an object of an unknown class nobody asks for
 * any. */
static void extend(machine *m)
{
    pickle_value *items = pop(m), *to = top(m);
    if (to->kind == items->kind)
        add_items(to, items->items, items->count);
    else if (to->kind != PICKLE_OBJECT)
        refuse(m, "adds to what has no members");
}

/* A call becomes what it would have made, where that is known. */
static void call(machine *m)
{
    pickle_value *arguments = pop(m), *function = pop(m);
    bool known = function->kind == PICKLE_NAME && arguments->kind == PICKLE_LIST;
    if (known && strcmp(function->text, "collections.OrderedDict") == 0)
        push(m, fresh(m, PICKLE_DICT));
    else if (known && strcmp(function->text, "torch._utils._rebuild_parameter") == 0 && arguments->count > 0)
        push(m, arguments->items[0]);
    else if (known && strcmp(function->text, "torch._utils._rebuild_tensor_v2") == 0 && arguments->count >= 4) {
        pickle_value *tensor = fresh(m, PICKLE_TENSOR);
        add_items(tensor, arguments->items, 4); /* storage, offset, shape, strides */
        push(m, tensor);
    } else
        push(m, fresh(m, PICKLE_OBJECT));
}

/* ('storage', class, key, device, numbers) */
static void load_persistent(machine *m)
{
    pickle_value *id = pop(m), *storage = fresh(m, PICKLE_STORAGE);
    bool good = id->kind == PICKLE_LIST && id->count == 5 && id->items[0]->kind == PICKLE_TEXT &&
                strcmp(id->items[0]->text, "storage") == 0 && id->items[1]->kind == PICKLE_NAME &&
                id->items[2]->kind == PICKLE_TEXT && id->items[4]->kind == PICKLE_NUMBER;
    if (!good)
        refuse(m, "has numbers that are not as torch.save() keeps them");
    add_items(storage, id->items, id->count);
    push(m, storage);
}

static void push_name(machine *m, const char *module, size_t module_length, const char *name, size_t name_length)
{
    char whole[200];
    if (module_length + name_length + 2 > sizeof whole)
        refuse(m, "has a name that is too long");
    int length = snprintf(whole, sizeof whole, "%.*s.%.*s", (int)module_length, module, (int)name_length, name);
    push_text(m, PICKLE_NAME, whole, (size_t)length);
}

static void push_global(machine *m)
{
    size_t module_length, name_length;
    const char *module = take_line(m, &module_length), *name = take_line(m, &name_length);
    push_name(m, module, module_length, name, name_length);
}

static void push_global_of_texts(machine *m)
{
    pickle_value *name = pop(m), *module = pop(m);
    if (name->kind != PICKLE_TEXT || module->kind != PICKLE_TEXT)
        refuse(m, "has a name that is no text");
    push_name(m, module->text, module->length, name->text, name->length);
}

static void push_sized_text(machine *m, int bytes)
{
    size_t length = take_size(m, bytes);
    push_text(m, PICKLE_TEXT, (const char *)take(m, length), length);
}

/* A number of so many bytes, two's complement; torch has none of more than eight. */
static void push_long(machine *m)
{
    int bytes = (int)take_number(m, 1);
    if (bytes > 8) {
        take(m, (size_t)bytes);
        push(m, fresh(m, PICKLE_OBJECT));
        return;
    }
    uint64_t number = take_number(m, bytes);
    if (bytes > 0 && bytes < 8 && number >> (8 * bytes - 1))
        number |= ~(uint64_t)0 << 8 * bytes;
    push_number(m, (int64_t)number);
}

/* False at the end. */
static bool step(machine *m)
{
    const int code = *take(m, 1);
    switch (code) {
    case 0x80: take(m, 1); break;                                   /* PROTO */
    case 0x95: take(m, 8); break;                                   /* FRAME */
    case '.': return false;                                         /* STOP */
    case '(': push(m, NULL); break;                                 /* MARK */
    case '0': pop(m); break;                                        /* POP */
    case 'N':                                                       /* NONE */
    case 0x88:                                                      /* NEWTRUE */
    case 0x89: push(m, fresh(m, PICKLE_OBJECT)); break;             /* NEWFALSE */
    case 'G': take(m, 8), push(m, fresh(m, PICKLE_OBJECT)); break;  /* BINFLOAT */
    case 'J': push_number(m, (int32_t)take_number(m, 4)); break;    /* BININT */
    case 'K': push_number(m, (int64_t)take_number(m, 1)); break;    /* BININT1 */
    case 'M': push_number(m, (int64_t)take_number(m, 2)); break;    /* BININT2 */
    case 0x8a: push_long(m); break;                                 /* LONG1 */
    case 'X':                                                       /* BINUNICODE */
    case 'T': push_sized_text(m, 4); break;                         /* BINSTRING */
    case 0x8c:                                                      /* SHORT_BINUNICODE */
    case 'U': push_sized_text(m, 1); break;                         /* SHORT_BINSTRING */
    case 'B': take(m, take_size(m, 4)), push(m, fresh(m, PICKLE_OBJECT)); break;  /* BINBYTES */
    case 'C': take(m, take_size(m, 1)), push(m, fresh(m, PICKLE_OBJECT)); break;  /* SHORT_BINBYTES */
    case 0x8e:                                                                    /* BINBYTES8 */
    case 0x96: take(m, take_size(m, 8)), push(m, fresh(m, PICKLE_OBJECT)); break; /* BYTEARRAY8 */
    case '}': push(m, fresh(m, PICKLE_DICT)); break;                /* EMPTY_DICT */
    case ']':                                                       /* EMPTY_LIST */
    case ')': push(m, fresh(m, PICKLE_LIST)); break;                /* EMPTY_TUPLE */
    case 't': gather_marked(m, PICKLE_LIST); break;                 /* TUPLE */
    case 0x85:                                                      /* TUPLE1 */
    case 0x86:                                                      /* TUPLE2 */
    case 0x87: gather(m, PICKLE_LIST, (size_t)code - 0x84); break;  /* TUPLE3 */
    case 'a': gather(m, PICKLE_LIST, 1), extend(m); break;          /* APPEND */
    case 'e': gather_marked(m, PICKLE_LIST), extend(m); break;      /* APPENDS */
    case 's': gather(m, PICKLE_DICT, 2), extend(m); break;          /* SETITEM */
    case 'u': gather_marked(m, PICKLE_DICT), extend(m); break;      /* SETITEMS */
    case 'q': memorise(m, take_number(m, 1)); break;                /* BINPUT */
    case 'r': memorise(m, take_number(m, 4)); break;                /* LONG_BINPUT */
    case 0x94: memorise(m, m->memo_count); break;                   /* MEMOIZE */
    case 'h': recall(m, take_number(m, 1)); break;                  /* BINGET */
    case 'j': recall(m, take_number(m, 4)); break;                  /* LONG_BINGET */
    case 'c': push_global(m); break;                                /* GLOBAL */
    case 0x93: push_global_of_texts(m); break;                      /* STACK_GLOBAL */
    case 'R':                                                       /* REDUCE */
    case 0x81: call(m); break;                                      /* NEWOBJ */
    case 'b': pop(m), top(m); break;                                /* BUILD: a state that nobody asks for */
    case 'Q': load_persistent(m); break;                            /* BINPERSID */
    default: {
        char why[80];
        snprintf(why, sizeof why, "has the instruction 0x%02x, which torch.save() does not write for weights", code);
        refuse(m, why);
    }
    }
    return true;
}

pickle_value *pickle_read(const unsigned char *bytes, size_t length, const char *what)
{
    machine m = { what, bytes, bytes + length, NULL, 0, 0, NULL, 0, 0, NULL };
    while (step(&m))
        ;
    pickle_value *root = pop(&m);
    free(m.stack);
    free(m.memo);
    for (pickle_value **at = &m.newest; *at; at = &(*at)->older) /* the root leads to all others */
        if (*at == root) {
            *at = root->older;
            break;
        }
    root->older = m.newest;
    return root;
}

void pickle_free(pickle_value *value)
{
    while (value) {
        pickle_value *older = value->older;
        free((char *)value->text);
        free(value->items);
        free(value);
        value = older;
    }
}

const pickle_value *pickle_member(const pickle_value *dict, const char *key)
{
    for (size_t i = dict->kind == PICKLE_DICT ? dict->count : 0; i >= 2; i -= 2) {
        const pickle_value *name = dict->items[i - 2];
        if (name->kind == PICKLE_TEXT && strcmp(name->text, key) == 0)
            return dict->items[i - 1];
    }
    return NULL;
}
