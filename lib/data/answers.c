#include "data/answers.h"

/* Bytes of the white space that `s` begins with, 0 if none: what Python's str.strip() takes away. */
static size_t space_at(mmi_slice s)
{
    static const char *const wide[] = {
        "\xC2\x85",     "\xC2\xA0",     "\xE1\x9A\x80", "\xE2\x80\x80", "\xE2\x80\x81", "\xE2\x80\x82", "\xE2\x80\x83",
        "\xE2\x80\x84", "\xE2\x80\x85", "\xE2\x80\x86", "\xE2\x80\x87", "\xE2\x80\x88", "\xE2\x80\x89", "\xE2\x80\x8A",
        "\xE2\x80\xA8", "\xE2\x80\xA9", "\xE2\x80\xAF", "\xE2\x81\x9F", "\xE3\x80\x80",
    };
    unsigned char c = s.length > 0 ? (unsigned char)s.at[0] : 0;
    if (c == ' ' || (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x1F))
        return 1;
    for (size_t i = 0; c >= 0x80 && i < sizeof wide / sizeof *wide; i++) {
        size_t size = strlen(wide[i]);
        if (s.length >= size && memcmp(s.at, wide[i], size) == 0)
            return size;
    }
    return 0;
}

static mmi_slice trim(mmi_slice s)
{
    for (size_t size; (size = space_at(s)) > 0;)
        s = mmi_slice_from(s, size);
    for (;;) { /* a character has at most three bytes here; one that fits the end exactly is cut */
        size_t cut = 0;
        for (size_t size = 1; size <= 3 && size <= s.length && cut == 0; size++)
            if (space_at(mmi_slice_from(s, s.length - size)) == size)
                cut = size;
        if (cut == 0)
            return s;
        s.length -= cut;
    }
}

mmi_slice mmi_answer_of(mmi_slice answer)
{
    const mmi_slice mark = MMI_SLICE("####");
    size_t at;
    if (mmi_slice_find_last(&at, answer, mark))
        answer = mmi_slice_from(answer, at + mark.length);
    return trim(answer);
}

size_t mmi_answer_without_commas(char *answer, size_t length)
{
    size_t kept = 0;
    for (size_t i = 0; i < length; i++)
        if (answer[i] != ',')
            answer[kept++] = answer[i];
    answer[kept] = '\0';
    return kept;
}
