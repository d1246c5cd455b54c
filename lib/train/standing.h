/* Where a run stands, told on any thread: on the one that moves it as it is just then, on others as it was shown
 * last. */
#ifndef MMI_TRAIN_STANDING_H
#define MMI_TRAIN_STANDING_H

#include <minimind/train.h>

#include "base/thread.h"

#define MMI_METRICS_MAX 8

/* Progress with the arrays that it lends. */
typedef struct mmi_standing {
    mm_train_progress progress;
    mm_train_metric metrics[MMI_METRICS_MAX];
    mm_train_metric validation_metrics[MMI_METRICS_MAX];
    double *expert_load; /* [L, E]; NULL: no routed experts */
} mmi_standing;

typedef struct mmi_standings {
    mmi_standing now;   /* as whoever moves the run sees it */
    int64_t loads_of;   /* the step that its expert_load is of; 0: none */
    mmi_monitor *door;  /* of the two that follow */
    mmi_standing shown; /* for others */
    mmi_standing lent;  /* what the last of them was told */
} mmi_standings;

/* Once the stage and the model are known. mmi_standings_free() also after a failure. */
mm_status mmi_standings_create(mm_trainer *t);
void mmi_standings_free(mm_trainer *t);

/* On the thread that moves the run, between two of its steps: as it is, and from here on others see it, too. What it
 * lends is good until the next call, or that thread's mm_trainer_progress(). */
mm_train_progress mmi_standings_show(mm_trainer *t);

#endif
