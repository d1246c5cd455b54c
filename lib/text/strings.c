#include "text/strings.h"

#include <string.h>

#include "base/memory.h"
#include "base/secret.h"

/* Multilinear hashing: the upper half of key[0] + Σ key[i + 1] · word[i], of 64 bits. With random keys two strings
 * agree in it with a probability of 2^-32, whatever they are (Lemire and Kaser, "Strongly universal string hashing is
 * fast", 2014). So many words of 32 bits at a time; a longer string is hashed with the hash of what stands before. */
#define WORDS (MMI_STRING_KEYS - 3)

/* At most WORDS * 4 bytes behind those with the hash `before`. */
static uint32_t hash_part(const uint64_t *key, const char *text, size_t size, uint32_t before)
{
    uint64_t h = key[0] + key[1] * (uint32_t)size + key[2] * before;
    uint32_t word;
    for (key += 3; size >= sizeof word; size -= sizeof word, text += sizeof word) {
        memcpy(&word, text, sizeof word);
        h += *key++ * word;
    }
    word = 0;
    for (size_t i = 0; i < size; i++)
        word |= (uint32_t)(unsigned char)text[i] << 8 * i;
    return (uint32_t)((h + *key * word) >> 32);
}

static uint32_t hash(const mmi_strings *set, const char *text, size_t size)
{
    const size_t part = WORDS * sizeof(uint32_t) - 1; /* its last word isn't whole, so it has a key */
    uint32_t h = 0;
    for (; size > part; size -= part, text += part)
        h = hash_part(set->keys, text, part, h);
    return hash_part(set->keys, text, size, h);
}

/* The slot that holds the string, or the empty one where it would go. */
static size_t slot_of(const mmi_strings *set, const char *text, size_t size, uint32_t h)
{
    size_t mask = set->slot_count - 1, slot = h & mask;
    for (; set->slots[slot] != 0; slot = (slot + 1) & mask) {
        const mmi_string *item = &set->items[set->slots[slot] - 1];
        if (item->hash == h && item->size == size && memcmp(set->bytes + item->at, text, size) == 0)
            break;
    }
    return slot;
}

int64_t mmi_strings_find(const mmi_strings *set, const char *text, size_t size)
{
    if (set->count == 0)
        return -1;
    return (int64_t)set->slots[slot_of(set, text, size, hash(set, text, size))] - 1;
}

static bool grow_slots(mmi_strings *set)
{
    size_t slot_count = set->slot_count == 0 ? 64 : set->slot_count * 2, mask = slot_count - 1;
    uint32_t *slots = mmi_calloc(slot_count, sizeof *slots);
    if (!slots)
        return false;
    for (size_t i = 0; i < MMI_STRING_KEYS && set->slot_count == 0; i++)
        set->keys[i] = mmi_secret(i);
    for (size_t i = 0; i < set->count; i++) {
        size_t slot = set->items[i].hash & mask;
        while (slots[slot] != 0)
            slot = (slot + 1) & mask;
        slots[slot] = (uint32_t)i + 1;
    }
    mmi_free(set->slots);
    set->slots = slots;
    set->slot_count = slot_count;
    return true;
}

bool mmi_strings_add(mmi_strings *set, uint32_t *number, const char *text, size_t size)
{
    if (size > UINT32_MAX || set->count >= UINT32_MAX / 2)
        return false;
    if (set->count * 2 >= set->slot_count && !grow_slots(set))
        return false;
    uint32_t h = hash(set, text, size);
    size_t slot = slot_of(set, text, size, h);
    if (set->slots[slot] == 0) {
        if (!mmi_grow(&set->bytes, &set->bytes_room, set->used + size, 1) ||
            !mmi_grow(&set->items, &set->items_room, set->count + 1, sizeof *set->items))
            return false;
        if (size > 0)
            memcpy(set->bytes + set->used, text, size);
        set->items[set->count] = (mmi_string){ set->used, (uint32_t)size, h };
        set->used += size;
        set->slots[slot] = (uint32_t)++set->count;
    }
    *number = set->slots[slot] - 1;
    return true;
}

void mmi_strings_free(mmi_strings *set)
{
    mmi_free(set->bytes);
    mmi_free(set->items);
    mmi_free(set->slots);
    *set = (mmi_strings){ 0 };
}
