/* Text to ids: split at added tokens, cut the rest into pieces, merge inside each. */
#include <string.h>

#include "base/memory.h"
#include "base/options.h"
#include "text/tokenizer.h"
#include "text/utf8.h"

#define STACK_SYMBOLS 128

typedef struct work {
    const mm_tokenizer *t;
    int32_t *ids; /* [capacity]; what goes beyond is only counted */
    size_t capacity, count;
    mmi_pieces pieces;
    int32_t *symbols; /* [symbols_room], for long pieces */
    size_t symbols_room;
    mmi_merge_scratch scratch;
    mmi_added_matches added;
} work;

static void put(work *w, const int32_t *ids, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (w->count + i < w->capacity)
            w->ids[w->count + i] = ids[i];
    w->count += count;
}

static mm_status encode_piece(work *w, const char *piece, size_t size)
{
    const mm_tokenizer *t = w->t;
    if (size <= t->whole_longest) {
        int64_t whole = mmi_strings_find(&t->whole, piece, size);
        if (whole >= 0) {
            put(w, &t->whole_ids[whole], 1);
            return MM_OK;
        }
    }
    int32_t here[STACK_SYMBOLS], *symbols = here;
    if (size > STACK_SYMBOLS) {
        if (!mmi_grow(&w->symbols, &w->symbols_room, size, sizeof *w->symbols))
            return mmi_fail_memory(size * sizeof *w->symbols, "a long piece of text");
        symbols = w->symbols;
    }
    for (size_t i = 0; i < size; i++)
        symbols[i] = t->byte_ids[(unsigned char)piece[i]];
    size_t count = size;
    mm_status status = mmi_merge_symbols(symbols, &count, &t->merges, &w->scratch);
    if (status == MM_OK)
        put(w, symbols, count);
    return status;
}

static mm_status encode_stretch(work *w, const char *text, size_t length)
{
    const char *piece;
    size_t size;
    mmi_pieces_start(&w->pieces, text, length);
    for (;;) {
        mm_status status = mmi_pieces_next(&w->pieces, &piece, &size);
        if (status != MM_OK || size == 0)
            return status;
        status = encode_piece(w, piece, size);
        if (status != MM_OK)
            return status;
    }
}

static mm_status encode_all(work *w, const char *text, size_t length, int32_t split)
{
    if (split != MM_SPLIT_NONE && !mmi_added_find(&w->added, &w->t->added, text, length, split == MM_SPLIT_ALL))
        return mmi_fail_memory(length * sizeof(mmi_added_match), "the added tokens of a text");
    const mmi_added_match *match;
    size_t at = 0;
    while ((match = mmi_added_next(&w->added)) != NULL) {
        mm_status status = encode_stretch(w, text + at, match->start - at);
        if (status != MM_OK)
            return status;
        put(w, &match->id, 1);
        at = match->start + match->size;
    }
    return at < length ? encode_stretch(w, text + at, length - at) : MM_OK;
}

mm_status mmi_check_split(int32_t split, const char *what)
{
    if (split < MM_SPLIT_ALL || split > MM_SPLIT_NONE)
        return mmi_fail(MM_ERR_ARG, "%s is %d, not one of MM_SPLIT_…", what, (int)split);
    return MM_OK;
}

static mm_status check(const mm_tokenizer *t, const char *text, size_t length, int32_t split, const int32_t *ids,
                       size_t capacity)
{
    if (!t || (!text && length > 0) || (!ids && capacity > 0))
        return mmi_fail(MM_ERR_ARG, "mm_encode: %s is NULL", !t ? "tokenizer" : !text && length > 0 ? "text" : "ids");
    mm_status status = mmi_check_split(split, "mm_encode: split");
    if (status != MM_OK)
        return status;
    if (length > MMI_TEXT_LIMIT)
        return mmi_fail(MM_ERR_ARG, "mm_encode: %zu bytes of text at once, at most %u", length,
                        (unsigned)MMI_TEXT_LIMIT);
    size_t good = mmi_utf8_valid(text, length);
    if (good < length)
        return mmi_fail(MM_ERR_ARG, "the text is not UTF-8 at byte %zu (0x%02X)", good, (unsigned char)text[good]);
    return MM_OK;
}

mm_status mm_encode(const mm_tokenizer *t, const char *text, size_t length, int32_t split, int32_t *ids,
                    size_t capacity, size_t *needed)
{
    mm_status status = check(t, text, length, split, ids, capacity);
    if (status != MM_OK)
        return status;
    /* Ids are gathered aside, since nothing is written unless all goes well. Each takes at least one byte. */
    work w = { .t = t, .capacity = capacity < length ? capacity : length };
    w.ids = mmi_alloc(w.capacity, sizeof *w.ids);
    if (!w.ids)
        return mmi_fail_memory(w.capacity * sizeof *w.ids, "ids");
    status = mmi_pieces_open(&w.pieces, t->splitter);
    if (status == MM_OK)
        status = encode_all(&w, text, length, split);
    if (status == MM_OK)
        status = mmi_check_room(needed, w.count, capacity, "mm_encode", "ids");
    if (status == MM_OK && capacity > 0 && w.count > 0)
        memcpy(ids, w.ids, w.count * sizeof *ids);
    mmi_pieces_close(&w.pieces);
    mmi_free(w.symbols);
    mmi_merge_scratch_free(&w.scratch);
    mmi_added_matches_free(&w.added);
    mmi_free(w.ids);
    return status;
}
