/* A curve whose memory is bounded: as points come in, neighbours are joined into buckets that keep mean and extremes.
 * The same points give the same buckets, however often a run was resumed. */
#ifndef MMI_TRAIN_SERIES_H
#define MMI_TRAIN_SERIES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MMI_SERIES_BUCKETS 500

typedef struct mmi_bucket {
    int64_t first, last;    /* steps */
    int64_t points, finite; /* how many; how many of them are finite */
    double low, high, sum;  /* of the finite ones */
} mmi_bucket;

/* Zeroed, it is empty. */
typedef struct mmi_series {
    mmi_bucket *buckets; /* [count] */
    size_t count, room;
    int64_t per_bucket;  /* points, a power of two; 0: none yet */
    double last, lowest; /* the last value, whatever it is; the lowest finite one, NaN if there is none */
    int64_t lowest_step;
} mmi_series;

/* Make room for one more point. False when memory ran out. */
bool mmi_series_reserve(mmi_series *series);

/* Add a point; can't fail after mmi_series_reserve(). */
void mmi_series_add(mmi_series *series, int64_t step, double value);

void mmi_series_free(mmi_series *series);

/* Where a bucket stands: the middle of its steps, the mean of its values (NaN: none is finite). */
double mmi_bucket_step(const mmi_bucket *bucket);
double mmi_bucket_mean(const mmi_bucket *bucket);

#endif
