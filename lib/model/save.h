/* A directory with a small file of JSON and the large one of weights that goes with it. */
#ifndef MMI_MODEL_SAVE_H
#define MMI_MODEL_SAVE_H

#include "base/status.h"

typedef struct mmi_saved_pair {
    const char *config, *weights; /* the files' names */
    mm_status (*write_config)(const void *owner, const char *path);
    mm_status (*write_weights)(const void *owner, const char *path);
    const void *owner;
} mmi_saved_pair;

/* Write both into `directory`, which is made if it is missing. Each is replaced in one step; a directory that was
 * loadable is so at any moment, and on failure the old files stand. */
mm_status mmi_save_pair(const char *directory, const mmi_saved_pair *pair);

#endif
