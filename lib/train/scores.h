/* Sequence scores that were computed once, kept by a hash of the sequence: what a frozen reference says never changes.
 */
#ifndef MMI_TRAIN_SCORES_H
#define MMI_TRAIN_SCORES_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

typedef struct mmi_score {
    uint64_t key;
    double value;
    bool used;
} mmi_score;

/* A table of a fixed size; one with room 0 keeps nothing. */
typedef struct mmi_scores {
    mmi_score *slots; /* [room], a power of two */
    size_t room, used;
} mmi_scores;

/* For at least `count` scores. */
mm_status mmi_scores_make(mmi_scores *scores, int64_t count);
void mmi_scores_free(mmi_scores *scores);

bool mmi_scores_find(const mmi_scores *scores, double *value, uint64_t key);

/* Once the table is as full as it may be, further ones are not kept. */
void mmi_scores_keep(mmi_scores *scores, uint64_t key, double value);

#endif
