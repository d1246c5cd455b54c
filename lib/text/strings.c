#include "text/strings.h"

#include <string.h>

#include "base/memory.h"

static uint64_t mix(uint64_t h, uint64_t word)
{
    h = (h ^ word) * 0x9E3779B97F4A7C15u;
    return h ^ h >> 29;
}

static uint32_t hash(const char *text, size_t size)
{
    uint64_t h = size, word;
    size_t i = 0;
    for (; i + sizeof word <= size; i += sizeof word) {
        memcpy(&word, text + i, sizeof word);
        h = mix(h, word);
    }
    word = 0;
    for (size_t shift = 0; i < size; i++, shift += 8)
        word |= (uint64_t)(unsigned char)text[i] << shift;
    h = mix(h, word);
    return (uint32_t)(h >> 32 ^ h);
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
    return (int64_t)set->slots[slot_of(set, text, size, hash(text, size))] - 1;
}

static bool grow_slots(mmi_strings *set)
{
    size_t slot_count = set->slot_count == 0 ? 64 : set->slot_count * 2, mask = slot_count - 1;
    uint32_t *slots = mmi_calloc(slot_count, sizeof *slots);
    if (!slots)
        return false;
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
    uint32_t h = hash(text, size);
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
