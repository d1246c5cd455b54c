#include "data/rows.h"

#include <string.h>

#include "base/target.h"

static int32_t target_of(int32_t id, int32_t pad)
{
    return id == pad ? MMI_IGNORE : id;
}

/* targets[t] from ids[t + 1], and none for the last of `width`. */
static void shift_targets(int32_t *targets, const int32_t *ids, int32_t width, int32_t pad)
{
    for (int32_t t = 0; t + 1 < width; t++)
        targets[t] = target_of(ids[t + 1], pad);
    if (width > 0)
        targets[width - 1] = MMI_IGNORE;
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

void mmi_row_marked(int32_t *ids, int32_t *targets, int32_t width, const int32_t *from, const unsigned char *marks,
                    size_t count)
{
    memcpy(ids, from, (size_t)width * sizeof *ids);
    for (size_t t = 0; t < (size_t)width; t++)
        targets[t] = t + 1 < count && marks[t + 1] ? from[t + 1] : MMI_IGNORE;
}

int32_t mmi_row_reach(const int32_t *targets, int32_t width)
{
    while (width > 0 && targets[width - 1] == MMI_IGNORE)
        width--;
    return width;
}

int32_t mmi_rows_reach(const int32_t *targets, int64_t rows, int64_t stride, int32_t width)
{
    int32_t reach = 1;
    for (int64_t row = 0; row < rows; row++) {
        int32_t own = mmi_row_reach(targets + row * stride, width);
        reach = own > reach ? own : reach;
    }
    return reach;
}

void mmi_row_empty(int32_t *ids, int32_t *targets, int32_t *documents, int32_t width, int32_t pad)
{
    fill(ids, 0, width, pad);
    fill(targets, 0, width, MMI_IGNORE);
    if (documents)
        fill(documents, 0, width, 0);
}

/* As many of `count` ids as fit, as a document; its targets are still to be set. */
static int32_t lay(mmi_packed *row, const int32_t *from, size_t count)
{
    int32_t room = row->width - row->filled;
    int32_t taken = count < (size_t)room ? (int32_t)count : room;
    if (taken == 0)
        return 0;
    memcpy(row->ids + row->filled, from, (size_t)taken * sizeof *from);
    fill(row->documents, row->filled, row->filled + taken, row->document);
    row->filled += taken;
    row->document++;
    return taken;
}

size_t mmi_packed_add(mmi_packed *row, const int32_t *from, size_t count)
{
    int32_t taken = lay(row, from, count), start = row->filled - taken;
    shift_targets(row->targets + start, row->ids + start, taken, row->pad);
    return (size_t)taken;
}

size_t mmi_packed_add_marked(mmi_packed *row, const int32_t *from, const unsigned char *marks, size_t count)
{
    int32_t taken = lay(row, from, count), start = row->filled - taken;
    if (taken > 0)
        mmi_row_marked(row->ids + start, row->targets + start, taken, from, marks, (size_t)taken);
    return (size_t)taken;
}

void mmi_packed_close(mmi_packed *row)
{
    fill(row->ids, row->filled, row->width, row->pad);
    fill(row->targets, row->filled, row->width, MMI_IGNORE);
    fill(row->documents, row->filled, row->width, row->document);
    row->filled = row->width;
}
