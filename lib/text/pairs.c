#include "text/pairs.h"

#include <string.h>

#include "base/memory.h"
#include "base/secret.h"

static bool grow(mmi_pairs *map)
{
    mmi_pairs larger = { NULL, map->count, map->bits == 0 ? 6 : map->bits + 1, { mmi_secret(0), mmi_secret(1) } };
    size_t slot_count = (size_t)1 << larger.bits;
    larger.slots = mmi_alloc(slot_count, sizeof *larger.slots);
    if (!larger.slots)
        return false;
    memset(larger.slots, 0xFF, slot_count * sizeof *larger.slots); /* every value MMI_NO_PAIR */
    for (size_t i = 0; map->slots && i < (size_t)1 << map->bits; i++)
        if (map->slots[i].value != MMI_NO_PAIR)
            larger.slots[mmi_pairs_slot(&larger, map->slots[i].left, map->slots[i].right)] = map->slots[i];
    mmi_free(map->slots);
    *map = larger;
    return true;
}

uint32_t mmi_pairs_add(mmi_pairs *map, int32_t left, int32_t right, uint32_t value)
{
    if ((!map->slots || map->count * 2 >= (size_t)1 << map->bits) && !grow(map))
        return MMI_NO_PAIR;
    mmi_pair *slot = &map->slots[mmi_pairs_slot(map, left, right)];
    if (slot->value == MMI_NO_PAIR) {
        *slot = (mmi_pair){ left, right, value };
        map->count++;
    }
    return slot->value;
}

void mmi_pairs_free(mmi_pairs *map)
{
    mmi_free(map->slots);
    *map = (mmi_pairs){ 0 };
}
