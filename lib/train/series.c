#include "train/series.h"

#include <math.h>

#include "base/memory.h"

bool mmi_series_reserve(mmi_series *s)
{
    return s->count == MMI_SERIES_BUCKETS || mmi_grow(&s->buckets, &s->room, s->count + 1, sizeof *s->buckets);
}

static mmi_bucket joined(const mmi_bucket *a, const mmi_bucket *b)
{
    return (mmi_bucket){ a->first,
                         b->last,
                         a->points + b->points,
                         a->finite + b->finite,
                         fmin(a->low, b->low), /* of a NaN and a number these take the number */
                         fmax(a->high, b->high),
                         a->sum + b->sum };
}

static void halve(mmi_series *s)
{
    for (size_t i = 0; i < s->count / 2; i++)
        s->buckets[i] = joined(&s->buckets[2 * i], &s->buckets[2 * i + 1]);
    s->count /= 2;
    s->per_bucket *= 2;
}

void mmi_series_add(mmi_series *s, int64_t step, double value)
{
    bool finite = isfinite(value);
    mmi_bucket point = { step, step, 1, finite, NAN, NAN, 0 };
    if (finite)
        point.low = point.high = point.sum = value;
    if (s->per_bucket == 0) {
        s->per_bucket = 1;
        s->lowest = NAN;
    }
    mmi_bucket *end = s->count > 0 ? &s->buckets[s->count - 1] : NULL;
    if (end && end->points < s->per_bucket) {
        *end = joined(end, &point);
    } else {
        if (s->count == MMI_SERIES_BUCKETS)
            halve(s);
        s->buckets[s->count++] = point;
    }
    s->last = value;
    if (finite && !(s->lowest <= value)) {
        s->lowest = value;
        s->lowest_step = step;
    }
}

void mmi_series_free(mmi_series *s)
{
    mmi_free(s->buckets);
    *s = (mmi_series){ 0 };
}

double mmi_bucket_step(const mmi_bucket *b)
{
    return (double)b->first + (double)(b->last - b->first) / 2;
}

double mmi_bucket_mean(const mmi_bucket *b)
{
    return b->finite > 0 ? b->sum / (double)b->finite : NAN;
}
