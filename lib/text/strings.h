/* A set of strings numbered in the order they came: string to number by hash, number to string by index. The hashes are
 * this process's own (mmi_secret()): no text makes strings collide more than chance does. */
#ifndef MMI_TEXT_STRINGS_H
#define MMI_TEXT_STRINGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct mmi_string {
    size_t at; /* into bytes */
    uint32_t size, hash;
} mmi_string;

#define MMI_STRING_KEYS 19

/* Zeroed: an empty set. */
typedef struct mmi_strings {
    char *bytes; /* all strings, end to end */
    size_t used, bytes_room;
    mmi_string *items; /* [count] */
    size_t count, items_room;
    uint32_t *slots; /* [slot_count], a power of two: a string's number + 1, or 0 */
    size_t slot_count;
    uint64_t keys[MMI_STRING_KEYS]; /* of its hashes, once it has slots */
} mmi_strings;

/* The string's number, or -1. */
int64_t mmi_strings_find(const mmi_strings *set, const char *text, size_t size);

/* Its number, found or new. False when memory (or 32-bit numbering) ran out: the set is as before. */
bool mmi_strings_add(mmi_strings *set, uint32_t *number, const char *text, size_t size);

static inline const char *mmi_strings_get(const mmi_strings *set, size_t number, size_t *size)
{
    *size = set->items[number].size;
    return set->bytes + set->items[number].at;
}

/* Back to empty. */
void mmi_strings_free(mmi_strings *set);

#endif
