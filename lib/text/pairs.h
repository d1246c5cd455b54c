/* Pairs of ids, each with a number: a merge's rank when encoding, a pair's place when training. */
#ifndef MMI_TEXT_PAIRS_H
#define MMI_TEXT_PAIRS_H

#include <stddef.h>
#include <stdint.h>

#define MMI_NO_PAIR UINT32_MAX

typedef struct mmi_pair {
    int32_t left, right;
    uint32_t value; /* MMI_NO_PAIR: an empty slot */
} mmi_pair;

/* Zeroed: an empty map. */
typedef struct mmi_pairs {
    mmi_pair *slots; /* [1 << bits], at most half of them in use */
    size_t count;
    unsigned bits;
    uint64_t keys[2]; /* of its hash, from mmi_secret() */
} mmi_pairs;

static inline size_t mmi_pairs_slot(const mmi_pairs *map, int32_t left, int32_t right)
{
    uint64_t hash = map->keys[0] * (uint32_t)left + map->keys[1] * (uint32_t)right; /* multilinear, as in strings.c */
    size_t mask = ((size_t)1 << map->bits) - 1, slot = (size_t)(hash >> (64 - map->bits));
    while (map->slots[slot].value != MMI_NO_PAIR && (map->slots[slot].left != left || map->slots[slot].right != right))
        slot = (slot + 1) & mask;
    return slot;
}

/* The pair's number, or MMI_NO_PAIR. */
static inline uint32_t mmi_pairs_find(const mmi_pairs *map, int32_t left, int32_t right)
{
    return map->count == 0 ? MMI_NO_PAIR : map->slots[mmi_pairs_slot(map, left, right)].value;
}

/* The number of a pair that is there, else `value`, under which it is then kept. MMI_NO_PAIR when memory ran out. */
uint32_t mmi_pairs_add(mmi_pairs *map, int32_t left, int32_t right, uint32_t value);

/* Back to empty. */
void mmi_pairs_free(mmi_pairs *map);

#endif
