/* The arrays of a batch, and how samples are laid into them. */
#ifndef MMI_DATA_BATCH_H
#define MMI_DATA_BATCH_H

#include "data/rows.h"
#include "data/sample.h"

typedef struct mmi_batch_room {
    int32_t width;  /* T; of prompts, at most */
    int32_t rows;   /* samples at most */
    int32_t filled; /* samples so far */
    int32_t *ids;            /* [sides · rows, T], as are the next two; rejected ones begin at row `rows` while it is filled */
    int32_t *targets, *documents;
    int32_t *spare;          /* [3, T]: a row that is laid out and not given */
    const mmi_sample *open;  /* when packing: the document that is not given to its end yet, lent by the stream */
    const int32_t **starts;  /* of prompts, all [rows] */
    int32_t *lengths;
    const char **answers;
    size_t *answer_lengths;
    size_t *answer_places;   /* in `text`, from 1; 0: none */
    int64_t *numbers;
    char *text;              /* the answers, one after the other, with their NULs */
    size_t text_size, text_room;
} mmi_batch_room;

/* A zeroed room is fine to free. */
mm_status mmi_batch_room_make(mmi_batch_room *room, const mmi_recipe *recipe);
void mmi_batch_room_free(mmi_batch_room *room);
void mmi_batch_clear(mmi_batch_room *room);

/* The next row, or pair, or prompt. Fails when memory runs out, and for prompts alone. */
mm_status mmi_batch_add(mmi_batch_room *room, const mmi_recipe *recipe, const mmi_sample *sample, int64_t row);

/* The next row to be packed; `own` false: the spare one. */
mmi_packed mmi_batch_packed(mmi_batch_room *room, const mmi_recipe *recipe, bool own);

/* Lay in what fits of a document from its id `from` on; how many ids those were. */
size_t mmi_batch_lay(mmi_packed *packed, const mmi_recipe *recipe, const mmi_sequence *s, size_t from);

/* What was filled, lent by the room. A batch without a row gets one of padding. */
void mmi_batch_finish(mm_batch *batch, mmi_batch_room *room, const mmi_recipe *recipe);
void mmi_batch_prompts(mm_prompts *prompts, mmi_batch_room *room);

/* What mm_loader_check_row() tells. Uses the spare row. */
void mmi_batch_report(mm_row_report *report, mmi_batch_room *room, const mmi_recipe *recipe, const mmi_sample *sample);

#endif
