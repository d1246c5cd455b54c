/* How ranks find each other: all come to rank 0, which tells everybody where the others are; then every two of them
 * connect. */
#ifndef MMI_TRAIN_COMM_JOIN_H
#define MMI_TRAIN_COMM_JOIN_H

#include <stdbool.h>

#include "train/comm_mesh.h"

/* Where to meet: a path in the file system, or "host:port". */
typedef struct mmi_meeting {
    const char *name;
    bool local;
    double deadline; /* of mmi_now() */
} mmi_meeting;

/* Connect all links of `mesh`. On failure some may be connected; mmi_mesh_free() closes them. */
mm_status mmi_join(mmi_mesh *mesh, const mmi_meeting *meeting);

#endif
