#include "text/byte_chars.h"

/* The runs of bytes that don't stand for themselves: 33 from 0x00, 34 from 0x7F, and 0xAD. */
#define FIRST_RUN 0x21
#define SECOND_START 0x7F
#define SECOND_RUN 0x22
#define LAST_BYTE 0xAD
#define SHIFTED 0x100
#define SHIFTED_COUNT (FIRST_RUN + SECOND_RUN + 1)

static unsigned code_of(unsigned char byte)
{
    if (byte < FIRST_RUN)
        return SHIFTED + byte;
    if (byte >= SECOND_START && byte < SECOND_START + SECOND_RUN)
        return SHIFTED + FIRST_RUN + (byte - SECOND_START);
    if (byte == LAST_BYTE)
        return SHIFTED + FIRST_RUN + SECOND_RUN;
    return byte;
}

/* -1 for a code point that stands for no byte. */
static int byte_of(unsigned code)
{
    if (code < SHIFTED)
        return code_of((unsigned char)code) == code ? (int)code : -1;
    code -= SHIFTED;
    if (code < FIRST_RUN)
        return (int)code;
    if (code < FIRST_RUN + SECOND_RUN)
        return (int)(SECOND_START + code - FIRST_RUN);
    return code == FIRST_RUN + SECOND_RUN ? LAST_BYTE : -1;
}

size_t mmi_byte_char(char out[2], unsigned char byte)
{
    unsigned code = code_of(byte);
    if (code < 0x80) {
        out[0] = (char)code;
        return 1;
    }
    out[0] = (char)(0xC0 | code >> 6);
    out[1] = (char)(0x80 | (code & 0x3F));
    return 2;
}

bool mmi_byte_chars_decode(char *out, size_t *size, const char *text, size_t length)
{
    size_t n = 0;
    for (size_t i = 0; i < length; n++) {
        unsigned code = (unsigned char)text[i++];
        if (code >= 0xE0) /* three bytes or more: beyond U+0143 */
            return false;
        if (code >= 0xC0) {
            if (i == length)
                return false;
            code = (code & 0x1F) << 6 | ((unsigned char)text[i++] & 0x3F);
        }
        int byte = byte_of(code);
        if (byte < 0)
            return false;
        out[n] = (char)byte;
    }
    *size = n;
    return true;
}

void mmi_byte_chars_order(unsigned char order[256])
{
    size_t n = 0;
    for (unsigned code = 0; code < SHIFTED + SHIFTED_COUNT; code++) {
        int byte = byte_of(code);
        if (byte >= 0)
            order[n++] = (unsigned char)byte;
    }
}
