/* A loader from the inside, and how its rows come into a batch. */
#ifndef MMI_DATA_FILL_H
#define MMI_DATA_FILL_H

#include <stdatomic.h>
#include <stdbool.h>

#include "data/batch.h"
#include "data/sample.h"
#include "data/stream.h"

/* Its place is that of what it has given, whatever its threads have prepared beyond; after a failure or a jump they
 * begin again from there. */
struct mm_loader {
    atomic_int holds;
    mm_dataset *dataset;     /* held */
    mm_tokenizer *tokenizer; /* held */
    mmi_recipe recipe;
    int64_t places; /* rows of an epoch */
    mm_loader_position at;
    mmi_stream *stream;
    bool astray; /* the stream is not at `at` */
    mmi_batch_room room;
    mmi_sample sample; /* for looking at rows out of turn */
    mmi_desk desk;
    mm_loader_stats stats;
    double started; /* 0: not yet */
};

/* Whether rows are laid end to end. */
bool mmi_fill_packs(const mm_loader *l);

/* The rows of an epoch that it reads. Padded rows are dealt out to the ranks one by one, and a rank reads its own
 * alone. How packed rows fall depends on all documents before them: there every rank reads all, and takes its rows. */
mmi_places mmi_fill_places(const mm_loader *l);

/* A batch's rows into l->room; *ended: there were none, the epoch is over. On failure the loader stands where it stood.
 */
mm_status mmi_fill(mm_loader *l, bool *ended);

/* To where the loader was, and to what it had counted, before a batch that could not be given. */
void mmi_fill_take_back(mm_loader *l, const mm_loader_position *at, const mm_loader_stats *stats);

#endif
