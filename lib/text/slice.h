/* A stretch of somebody else's bytes, and the few cuts that templates and replies need. */
#ifndef MMI_TEXT_SLICE_H
#define MMI_TEXT_SLICE_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

typedef struct mmi_slice {
    const char *at;
    size_t length;
} mmi_slice;

/* Of a string literal. */
#define MMI_SLICE(text) ((mmi_slice){ (text), sizeof(text) - 1 })

static inline bool mmi_slice_is(mmi_slice s, mmi_slice other)
{
    return s.length == other.length && (s.length == 0 || memcmp(s.at, other.at, s.length) == 0);
}

static inline mmi_slice mmi_slice_head(mmi_slice s, size_t length)
{
    return (mmi_slice){ s.at, length };
}

static inline mmi_slice mmi_slice_from(mmi_slice s, size_t start)
{
    return (mmi_slice){ s.at ? s.at + start : NULL, s.length - start };
}

/* Where `word` (not empty) stands first, last, perhaps over another; false and *place untouched if nowhere. */
static inline bool mmi_slice_find(size_t *place, mmi_slice s, mmi_slice word)
{
    for (size_t i = 0; i + word.length <= s.length; i++) {
        const char *next = memchr(s.at + i, word.at[0], s.length - word.length - i + 1);
        if (!next)
            return false;
        i = (size_t)(next - s.at);
        if (memcmp(next, word.at, word.length) == 0) {
            *place = i;
            return true;
        }
    }
    return false;
}

static inline bool mmi_slice_find_last(size_t *place, mmi_slice s, mmi_slice word)
{
    bool found = false;
    for (size_t i = 0, at; mmi_slice_find(&at, mmi_slice_from(s, i), word); i += at + 1) {
        *place = i + at;
        found = true;
    }
    return found;
}

/* Only U+000A is cut, never spaces or tabs. */
static inline mmi_slice mmi_slice_cut_left(mmi_slice s)
{
    while (s.length > 0 && s.at[0] == '\n')
        s = mmi_slice_from(s, 1);
    return s;
}

static inline mmi_slice mmi_slice_cut_right(mmi_slice s)
{
    while (s.length > 0 && s.at[s.length - 1] == '\n')
        s.length--;
    return s;
}

#endif
