/* Bytes as characters: how byte-level BPE writes any bytes as a readable string. 0x21–0x7E, 0xA1–0xAC and 0xAE–0xFF
 * stand for themselves, the other 68 bytes, in their order, are U+0100, U+0101, … U+0143: a space is "Ġ", a newline
 * "Ċ". */
#ifndef MMI_TEXT_BYTE_CHARS_H
#define MMI_TEXT_BYTE_CHARS_H

#include <stdbool.h>
#include <stddef.h>

/* The UTF-8 of the character for `byte`: writes and returns 1 or 2 bytes. */
size_t mmi_byte_char(char out[2], unsigned char byte);

/* Back to bytes: at most `length` of them. False if a character stands for no byte. */
bool mmi_byte_chars_decode(char *out, size_t *size, const char *text, size_t length);

/* The 256 bytes in the code point order of their characters, the order in which a vocabulary lists them. */
void mmi_byte_chars_order(unsigned char order[256]);

#endif
