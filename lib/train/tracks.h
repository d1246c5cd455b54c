/* All that a report knows by name: curves and texts, in memory that stays bounded however long the run is. They are fed
 * with lines of metrics.jsonl, new ones and those of an earlier session alike, so a run that goes on looks as if it
 * never stopped. */
#ifndef MMI_TRAIN_TRACKS_H
#define MMI_TRAIN_TRACKS_H

#include "base/json.h"
#include "train/series.h"

#define MMI_TRACK_TEXTS 12       /* kept of one name */
#define MMI_TRACK_TEXT_SIZE 2000 /* bytes kept of a text */
#define MMI_TRACK_NAME_SIZE 500
#define MMI_VECTOR_SIZE 256
#define MMI_TRACKS_MAX 1000

typedef enum mmi_track_kind { MMI_TRACK_SCALAR, MMI_TRACK_VECTOR, MMI_TRACK_TEXT } mmi_track_kind;

typedef struct mmi_track_text {
    int64_t step, number; /* of its name's texts, from 0 */
    char *text;
    size_t length;
    bool cut;
} mmi_track_text;

typedef struct mmi_track {
    char *name;
    mmi_track_kind kind;
    size_t count;       /* curves: 1, or the elements of a vector */
    mmi_series *curves; /* [count] */
    mmi_track_text texts[MMI_TRACK_TEXTS];
    size_t text_count;
    int64_t text_number, text_stride; /* the next text's number; those whose number it divides are kept, and the last */
    char *coming;                     /* a copy of the text that is about to be taken */
} mmi_track;

/* Zeroed, it is empty. */
typedef struct mmi_tracks {
    mmi_track *items; /* [count] */
    size_t count, room;
    int64_t step;            /* the largest seen */
    double started, updated; /* wall time of the first and the last line; 0: there is none */
} mmi_tracks;

/* Is this a name? MM_ERR_ARG says why not. */
mm_status mmi_track_check_name(const char *name);

/* Check a line and make room for it; then take it, which can't fail. MM_ERR_ARG: no such line can be. */
mm_status mmi_tracks_reserve(mmi_tracks *tracks, mmi_json *line);
void mmi_tracks_take(mmi_tracks *tracks, mmi_json *line);

/* What a line would have begun that was not taken does not stay: `count` there were before. */
void mmi_tracks_cut(mmi_tracks *tracks, size_t count);

/* NULL if there is none. */
mmi_track *mmi_tracks_find(const mmi_tracks *tracks, const char *name);

void mmi_tracks_free(mmi_tracks *tracks);

#endif
