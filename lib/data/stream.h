/* Rows in the order of an epoch, prepared ahead by threads. Which row comes next depends on the place alone, so what
 * comes out is the same with any number of threads; a row that can't be read comes out as a failure at its turn. */
#ifndef MMI_DATA_STREAM_H
#define MMI_DATA_STREAM_H

#include "data/sample.h"

typedef struct mmi_stream mmi_stream;

/* Which places of each epoch: first, first + stride, … below the number of rows that an epoch has. */
typedef struct mmi_places {
    int64_t first, stride;
} mmi_places;

/* `recipe` and `dataset` outlive it. At most `depth` rows are ready or being made. Threads start with the first row
 * taken. */
mm_status mmi_stream_create(mmi_stream **out, const mmi_recipe *recipe, const mm_dataset *dataset, mmi_places places,
                            int workers, int64_t depth);

/* Ends the threads, which may take them the row at hand. NULL is fine. */
void mmi_stream_free(mmi_stream *stream);

/* In a forked child, of a stream whose threads had started: nobody makes its rows, so it may only be freed. */
bool mmi_stream_lost(const mmi_stream *stream);

/* Go on at `place` of `epoch`, which is one of the places or the first that would follow them; the epochs after it
 * begin at places.first. */
void mmi_stream_seek(mmi_stream *stream, int64_t epoch, int64_t place);

/* The next row, lent until the next call on the stream. Failures are those of mmi_sample_read(); the row has had its
 * turn. */
mm_status mmi_stream_take(const mmi_sample **sample, int64_t *row, mmi_stream *stream);

/* Seconds that mmi_stream_take() waited, or worked itself. */
double mmi_stream_waited(const mmi_stream *stream);

#endif
