/* A report from the inside. */
#ifndef MMI_TRAIN_REPORT_H
#define MMI_TRAIN_REPORT_H

#include <minimind/report.h>

#include "train/events.h"
#include "train/tracks.h"

typedef struct mmi_fact {
    char *name, *text;
} mmi_fact;

struct mm_report {
    char *directory, *title;
    mm_report_options options; /* without its strings */
    mmi_tracks tracks;
    mmi_fact *facts; /* [fact_count] */
    size_t fact_count, fact_room;
    int lock;             /* on the directory's .lock; below 0: none */
    mmi_appender metrics; /* open with MM_REPORT_METRICS */
    mmi_events events;    /* its file is open with MM_REPORT_TENSORBOARD */
};

/* Vectors of `width` numbers, one behind the other, each with its name. */
typedef struct mmi_report_vectors {
    const char *const *names; /* [count] */
    const double *values;     /* [count, width] */
    int32_t count, width;
} mmi_report_vectors;

/* Scalars as mm_report_scalars() takes them, and vectors, in one line. */
mm_status mmi_report_values(const char *who, mm_report *report, int64_t step, const char *const *names,
                            const double *values, int32_t count, const mmi_report_vectors *vectors);

/* What the model makes of a prompt, as a text named “prompt”: no value can have that name. */
mm_status mmi_report_sample(mm_report *report, int64_t step, const char *prompt, const char *text, size_t length);

#endif
