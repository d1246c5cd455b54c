#include "data/marks.h"

#include <stdbool.h>
#include <string.h>

static bool stands_at(const int32_t *ids, size_t n, size_t at, const int32_t *words, size_t count)
{
    return at + count <= n && memcmp(ids + at, words, count * sizeof *ids) == 0;
}

void mmi_marks_find(unsigned char *marks, const int32_t *ids, size_t n, const mmi_frame *f)
{
    if (n > 0)
        memset(marks, 0, n);
    for (size_t i = 0; i < n;) {
        if (!stands_at(ids, n, i, f->head, f->head_count)) {
            i++;
            continue;
        }
        size_t start = i + f->head_count, tail = start;
        while (tail < n && !stands_at(ids, n, tail, f->tail, f->tail_count))
            tail++;
        i = tail < n ? tail + f->tail_count : n;
        for (size_t j = start + f->late; j < i + f->late && j < n; j++)
            marks[j] = 1;
    }
}
