#include "train/scores.h"

#include "base/memory.h"

mm_status mmi_scores_make(mmi_scores *s, int64_t count)
{
    size_t room = 16;
    while (room < (size_t)count && room < SIZE_MAX / 4)
        room *= 2;
    room *= 2; /* half of it stays empty, so that searches are short */
    s->slots = mmi_calloc(room, sizeof *s->slots);
    if (!s->slots)
        return mmi_fail_memory(room * sizeof *s->slots, "the scores of the reference");
    s->room = room;
    return MM_OK;
}

void mmi_scores_free(mmi_scores *s)
{
    mmi_free(s->slots);
    *s = (mmi_scores){ 0 };
}

/* Where `key` is, or the empty slot where it would be. */
static mmi_score *find(const mmi_scores *s, uint64_t key)
{
    size_t at = (size_t)(key ^ key >> 32) & (s->room - 1);
    while (s->slots[at].used && s->slots[at].key != key)
        at = (at + 1) & (s->room - 1);
    return &s->slots[at];
}

bool mmi_scores_find(const mmi_scores *s, double *value, uint64_t key)
{
    if (s->room == 0)
        return false;
    const mmi_score *slot = find(s, key);
    if (slot->used)
        *value = slot->value;
    return slot->used;
}

void mmi_scores_keep(mmi_scores *s, uint64_t key, double value)
{
    if (s->room == 0 || s->used >= s->room / 2)
        return;
    mmi_score *slot = find(s, key);
    s->used += !slot->used;
    *slot = (mmi_score){ key, value, true };
}
