/* Ids of a text to a row of ids and targets, the three forms. Targets are shifted: targets[t] is what position t must
 * predict, -100 is not counted. Of text, the pad id is never a target, wherever it comes from; of conversations, what
 * is marked is one, whatever it is. */
#ifndef MMI_DATA_ROWS_H
#define MMI_DATA_ROWS_H

#include <stddef.h>
#include <stdint.h>

/* The first `width` + 1 of `count` ids, filled up with pad: ids [width] are all but the last, targets [width] all but
 * the first. */
void mmi_row_shifted(int32_t *ids, int32_t *targets, int32_t width, const int32_t *from, size_t count, int32_t pad);

/* ids [width]: bos, as many of the `count` ids as fit, eos, pad; a bos or eos of -1 is left out. The last target is not
 * counted. */
void mmi_row_framed(int32_t *ids, int32_t *targets, int32_t width, const int32_t *from, size_t count, int32_t bos,
                    int32_t eos, int32_t pad);

/* The first `width` of `count` ids; targets are those that follow, where `marks` [count] has 1. width <= count. */
void mmi_row_marked(int32_t *ids, int32_t *targets, int32_t width, const int32_t *from, const unsigned char *marks,
                    size_t count);

/* How much of a row counts: as far as its last target, 0 without one. What follows is seen by no position that counts. */
int32_t mmi_row_reach(const int32_t *targets, int32_t width);

/* The reach of the longest of some rows, whose targets begin `stride` apart; at least 1, so that something is left. */
int32_t mmi_rows_reach(const int32_t *targets, int64_t rows, int64_t stride, int32_t width);

/* No text at all: padding, nothing to be learnt. */
void mmi_row_empty(int32_t *ids, int32_t *targets, int32_t *documents, int32_t width, int32_t pad);

/* A row that documents are laid into end to end. */
typedef struct mmi_packed {
    int32_t *ids, *targets, *documents; /* [width] */
    int32_t width, filled;
    int32_t document; /* number of the next one in this row, from 0 */
    int32_t pad;
} mmi_packed;

/* Lay in as many of the ids as fit, as one document; how many those were. With marks [count] the targets are where they
 * have 1. */
size_t mmi_packed_add(mmi_packed *row, const int32_t *from, size_t count);
size_t mmi_packed_add_marked(mmi_packed *row, const int32_t *from, const unsigned char *marks, size_t count);

/* Fill up with padding, which is a document of its own. */
void mmi_packed_close(mmi_packed *row);

#endif
