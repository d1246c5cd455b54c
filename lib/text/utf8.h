/* UTF-8, checked and mended by the rules of Unicode chapter 3. */
#ifndef MMI_TEXT_UTF8_H
#define MMI_TEXT_UTF8_H

#include <stddef.h>

typedef enum mmi_utf8 {
    MMI_UTF8_WHOLE,  /* a character */
    MMI_UTF8_BROKEN, /* a maximal subpart: bytes that no continuation can turn into a character */
    MMI_UTF8_CUT     /* all that is left is the beginning of a character */
} mmi_utf8;

/* What stands at the start of `text` (length ≥ 1), and how many bytes it takes. */
mmi_utf8 mmi_utf8_next(size_t *size, const char *text, size_t length);

/* How many bytes stand before the first ill-formed sequence: `length` if all is well. */
size_t mmi_utf8_valid(const char *text, size_t length);

/* Copy `text` with U+FFFD for each maximal subpart, at most 3 · length bytes; `out` NULL only counts. Returns the
 * bytes that came out. `rest` NULL: a character cut at the end is one U+FFFD; else it is left out, *rest its size. */
size_t mmi_utf8_repair(char *out, size_t *rest, const char *text, size_t length);

#endif
