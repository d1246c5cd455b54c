#include "text/utf8.h"

#include <stdint.h>
#include <string.h>

#define REPLACEMENT "\xEF\xBF\xBD"
#define REPLACEMENT_SIZE (sizeof REPLACEMENT - 1)

mmi_utf8 mmi_utf8_next(size_t *size, const char *text, size_t length)
{
    const unsigned char *s = (const unsigned char *)text;
    unsigned lead = s[0], low = 0x80, high = 0xBF; /* what the second byte may be */
    size_t want;
    if (lead < 0x80) {
        *size = 1;
        return MMI_UTF8_WHOLE;
    } else if (lead >= 0xC2 && lead <= 0xDF) {
        want = 2;
    } else if (lead >= 0xE0 && lead <= 0xEF) {
        want = 3;
        if (lead == 0xE0)
            low = 0xA0; /* below: overlong */
        else if (lead == 0xED)
            high = 0x9F; /* above: surrogates */
    } else if (lead >= 0xF0 && lead <= 0xF4) {
        want = 4;
        if (lead == 0xF0)
            low = 0x90; /* below: overlong */
        else if (lead == 0xF4)
            high = 0x8F; /* above: beyond U+10FFFF */
    } else {
        *size = 1;
        return MMI_UTF8_BROKEN;
    }
    for (size_t i = 1; i < want; i++) {
        *size = i;
        if (i == length)
            return MMI_UTF8_CUT;
        if (s[i] < low || s[i] > high)
            return MMI_UTF8_BROKEN;
        low = 0x80;
        high = 0xBF;
    }
    *size = want;
    return MMI_UTF8_WHOLE;
}

/* How many bytes from the start are ASCII, eight at a time: a lower bound. */
static size_t ascii_run(const char *text, size_t length)
{
    size_t i = 0;
    for (uint64_t eight; i + sizeof eight <= length; i += sizeof eight) {
        memcpy(&eight, text + i, sizeof eight);
        if (eight & 0x8080808080808080u)
            break;
    }
    return i;
}

size_t mmi_utf8_valid(const char *text, size_t length)
{
    size_t i = 0;
    while (i < length) {
        if ((unsigned char)text[i] < 0x80) {
            size_t run = ascii_run(text + i, length - i);
            i += run > 0 ? run : 1;
            continue;
        }
        size_t size;
        if (mmi_utf8_next(&size, text + i, length - i) != MMI_UTF8_WHOLE)
            return i;
        i += size;
    }
    return length;
}

size_t mmi_utf8_repair(char *out, size_t *rest, const char *text, size_t length)
{
    size_t made = 0;
    if (rest)
        *rest = 0;
    for (size_t i = 0, size; i < length; i += size) {
        mmi_utf8 kind = mmi_utf8_next(&size, text + i, length - i);
        if (kind == MMI_UTF8_CUT && rest) {
            *rest = size;
            break;
        }
        const char *from = kind == MMI_UTF8_WHOLE ? text + i : REPLACEMENT;
        size_t bytes = kind == MMI_UTF8_WHOLE ? size : REPLACEMENT_SIZE;
        if (out)
            memcpy(out + made, from, bytes);
        made += bytes;
    }
    return made;
}
