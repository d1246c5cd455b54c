#include "mask.h"

#include "options.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LONGEST = 255 }; /* the few tokens of more bytes, long runs of spaces, are never drawn */

/* A token's text. */
typedef struct piece {
    const char *bytes;
    int32_t id;
    uint8_t length;
    uint8_t shared; /* so many bytes begin the piece before, too */
    uint8_t plain;  /* so many characters, if it is nothing but whole ones that strings hold without escapes */
} piece;

struct mask {
    const mm_tokenizer *tokenizer;
    const shape *shape;
    piece *pieces; /* [count], in the order of their bytes */
    int32_t count, vocab_size, eos;
    char *bytes;                     /* of all of them */
    bool *may;                       /* [vocab_size] */
    shape_state states[LONGEST + 1]; /* [0] is where the text stands, [n] behind n bytes of the piece that is tried */
};

/* --- The vocabulary --- */

static int compare(const char *a, size_t a_length, const char *b, size_t b_length)
{
    int order = memcmp(a, b, a_length < b_length ? a_length : b_length);
    return order != 0 ? order : (a_length > b_length) - (a_length < b_length);
}

static int by_bytes(const void *a, const void *b)
{
    const piece *one = a, *other = b;
    int order = compare(one->bytes, one->length, other->bytes, other->length);
    return order != 0 ? order : (one->id > other->id) - (one->id < other->id);
}

/* Special tokens are no text, nor is what ends one, and so these are no pieces. A model may have fewer ids than its
 * tokenizer, or more. */
static void read_pieces(mask *m)
{
    int32_t n = mm_tokenizer_vocab_size(m->tokenizer);
    n = n < m->vocab_size ? n : m->vocab_size;
    m->pieces = need(calloc((size_t)n + 1, sizeof *m->pieces));
    m->bytes = need(calloc((size_t)n + 1, LONGEST));
    char *to = m->bytes;
    for (int32_t id = 0; id < n; id++) {
        size_t length = 0;
        if (id == m->eos || mm_tokenizer_is_special(m->tokenizer, id) ||
            mm_decode_bytes(m->tokenizer, &id, 1, 0, to, LONGEST, &length) != MM_OK || length == 0)
            continue;
        int32_t plain = shape_plain_characters((const unsigned char *)to, length);
        m->pieces[m->count++] = (piece){ to, id, (uint8_t)length, 0, (uint8_t)plain };
        to += length;
    }
    qsort(m->pieces, (size_t)m->count, sizeof *m->pieces, by_bytes);
    for (int32_t i = 1; i < m->count; i++) {
        piece *one = &m->pieces[i], *before = one - 1;
        while (one->shared < one->length && one->shared < before->length &&
               one->bytes[one->shared] == before->bytes[one->shared])
            one->shared++;
    }
}

static bool has_piece(const mask *m, const char *bytes, size_t length)
{
    int32_t low = 0, high = m->count;
    while (low < high) {
        int32_t middle = low + (high - low) / 2;
        int order = compare(m->pieces[middle].bytes, m->pieces[middle].length, bytes, length);
        if (order == 0)
            return true;
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return false;
}

/* A shape_spell_fn: from the end on, the best of all pieces that a text can go on with. */
static void spell(void *user, const char *text, size_t length, int32_t *tokens)
{
    tokens[length] = 0;
    for (size_t i = length; i-- > 0;) {
        tokens[i] = SHAPE_NEVER;
        for (size_t n = 1; n <= LONGEST && i + n <= length; n++)
            if (tokens[i + n] + 1 < tokens[i] && has_piece(user, text + i, n))
                tokens[i] = tokens[i + n] + 1;
    }
}

mask *mask_create(const mm_tokenizer *tokenizer, shape *s, int32_t vocab_size, int32_t eos)
{
    mask *m = need(calloc(1, sizeof *m));
    m->tokenizer = tokenizer;
    m->shape = s;
    m->vocab_size = vocab_size;
    m->eos = eos;
    m->may = need(calloc((size_t)vocab_size, sizeof *m->may));
    read_pieces(m);
    shape_price(s, spell, m);
    shape_begin(s, m->states);
    return m;
}

void mask_free(mask *m)
{
    if (m) {
        free(m->pieces);
        free(m->bytes);
        free(m->may);
    }
    free(m);
}

/* --- The mask --- */

int64_t mask_tokens_to_end(const mask *m)
{
    return shape_tokens_to_end(m->shape, m->states);
}

/* Mark the tokens that fit. Pieces that stand together begin with the same bytes, whose states are there already; where
 * a piece breaks off, so do all that begin with what broke it. This walks through the tree of all pieces, which lies
 * flat in their order. Within a string nearly every piece fits, and what it takes is known without reading it: only
 * those with quotes, escapes or parts of characters are tried there. */
static int32_t mark(mask *m, int64_t left)
{
    int32_t marked = 0;
    int64_t least = 0, most = 0;
    bool within = shape_plain_room(m->shape, m->states, left, &least, &most);
    int known = 0, same = 0; /* states of the last piece that was tried; its bytes that the present one begins with */
    bool broken = false;     /* it has broken off behind its known bytes */
    for (int32_t i = 0; i < m->count; i++) {
        const piece *p = &m->pieces[i];
        bool fits = false;
        same = p->shared < same ? p->shared : same;
        if (within && p->plain > 0) {
            fits = p->plain >= least && p->plain <= most;
        } else if (!broken || same <= known) {
            int at = same < known ? same : known;
            for (broken = false; at < p->length && !broken; at += !broken) {
                m->states[at + 1] = m->states[at];
                broken = !shape_take(m->shape, &m->states[at + 1], (unsigned char)p->bytes[at]);
            }
            fits = !broken && shape_tokens_to_end(m->shape, &m->states[at]) <= left;
            known = at;
            same = LONGEST;
        }
        m->may[p->id] = fits;
        marked += fits;
    }
    return marked;
}

int32_t mask_logits(mask *m, int64_t left, float *logits, int32_t vocab_size)
{
    int32_t kept = mark(m, left);
    if (m->eos >= 0 && m->eos < vocab_size) {
        m->may[m->eos] = shape_tokens_to_end(m->shape, m->states) == 0;
        kept += m->may[m->eos];
    }
    for (int32_t id = 0; id < vocab_size; id++)
        if (!m->may[id])
            logits[id] = -INFINITY;
    return kept;
}

bool mask_take(mask *m, int32_t id)
{
    char bytes[LONGEST];
    size_t length = 0;
    bool fits = mm_decode_bytes(m->tokenizer, &id, 1, 0, bytes, LONGEST, &length) == MM_OK;
    for (size_t i = 0; i < length && fits; i++)
        fits = shape_take(m->shape, m->states, (unsigned char)bytes[i]);
    return fits && shape_goes_on(m->shape, m->states);
}
