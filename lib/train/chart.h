/* Which curves share a chart, and how a chart is drawn. */
#ifndef MMI_TRAIN_CHART_H
#define MMI_TRAIN_CHART_H

#include "train/axis.h"
#include "train/html.h"
#include "train/tracks.h"

typedef struct mmi_chart_line {
    char name[MMI_TRACK_NAME_SIZE + 1];
    const mmi_series *series;
} mmi_chart_line;

typedef struct mmi_chart {
    char group[MMI_TRACK_NAME_SIZE + 1]; /* the name its lines share; "" of a vector's, which no other joins */
    char title[MMI_TRACK_NAME_SIZE + 32];
    const char *unit;      /* "" if it has none */
    double scale;          /* what is shown is the value divided by this */
    bool from_zero;        /* the linear scale begins at 0 */
    bool wide;             /* the first thing one looks at */
    mmi_chart_line *lines; /* [count] */
    size_t count;
} mmi_chart;

/* The charts of all tracks that have a finite value; mmi_charts_free() them. */
mm_status mmi_charts_make(mmi_chart **out, size_t *count, const mmi_tracks *tracks);
void mmi_charts_free(mmi_chart *charts, size_t count);

/* A known name's title; else the name itself, made readable. */
void mmi_chart_title(char *out, size_t size, const char *name);

/* As a <figure>; `number` tells it from the others of the page. */
void mmi_chart_draw(mmi_writer *page, const mmi_chart *chart, size_t number, const mmi_axis *steps);

/* The same curves as an object of JSON, for the read-out under the pointer. */
void mmi_chart_data(mmi_writer *page, const mmi_chart *chart);

#endif
