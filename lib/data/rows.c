#include "data/rows.h"

#include <string.h>

static int32_t target_of(int32_t id, int32_t pad)
{
    return id == pad ? MMI_IGNORED : id;
}

/* targets[t] from ids[t + 1], and none for the last of `width`. */
static void shift_targets(int32_t *targets, const int32_t *ids, int32_t width, int32_t pad)
{
    for (int32_t t = 0; t + 1 < width; t++)
        targets[t] = target_of(ids[t + 1], pad);
    if (width > 0)
        targets[width - 1] = MMI_IGNORED;
}

static void fill(int32_t *ids, int32_t from, int32_t width, int32_t value)
{
    for (int32_t t = from; t < width; t++)
        ids[t] = value;
}

void mmi_row_shifted(int32_t *ids, int32_t *targets, int32_t width, const int32_t *from, size_t count, int32_t pad)
{
    int32_t taken = count < (size_t)width ? (int32_t)count : width;
    if (taken > 0)
        memcpy(ids, from, (size_t)taken * sizeof *ids);
    fill(ids, taken, width, pad);
    shift_targets(targets, ids, width, pad);
    if (count > (size_t)width)
        targets[width - 1] = target_of(from[width], pad);
}

void mmi_row_framed(int32_t *ids, int32_t *targets, int32_t width, const int32_t *from, size_t count, int32_t bos,
                    int32_t eos, int32_t pad)
{
    int32_t at = 0;
    int32_t room = width - (bos >= 0) - (eos >= 0);
    int32_t taken = count < (size_t)room ? (int32_t)count : room;
    if (bos >= 0)
        ids[at++] = bos;
    if (taken > 0)
        memcpy(ids + at, from, (size_t)taken * sizeof *ids);
    at += taken;
    if (eos >= 0)
        ids[at++] = eos;
    fill(ids, at, width, pad);
    shift_targets(targets, ids, width, pad);
}

size_t mmi_packed_add(mmi_packed *row, const int32_t *from, size_t count)
{
    int32_t room = row->width - row->filled;
    int32_t taken = count < (size_t)room ? (int32_t)count : room;
    if (taken == 0)
        return 0;
    int32_t *ids = row->ids + row->filled;
    memcpy(ids, from, (size_t)taken * sizeof *ids);
    shift_targets(row->targets + row->filled, ids, taken, row->pad);
    fill(row->documents, row->filled, row->filled + taken, row->document);
    row->filled += taken;
    row->document++;
    return (size_t)taken;
}

void mmi_packed_close(mmi_packed *row)
{
    fill(row->ids, row->filled, row->width, row->pad);
    fill(row->targets, row->filled, row->width, MMI_IGNORED);
    fill(row->documents, row->filled, row->width, row->document);
    row->filled = row->width;
}
