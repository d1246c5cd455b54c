/* Targets: ids that positions must predict. */
#ifndef MMI_BASE_TARGET_H
#define MMI_BASE_TARGET_H

#include <stdint.h>

#define MMI_IGNORE (-100) /* a target that is not counted */

/* How many of them count. */
static inline int64_t mmi_targets_counted(const int32_t *targets, int64_t count)
{
    int64_t counted = 0;
    for (int64_t i = 0; i < count; i++)
        counted += targets[i] != MMI_IGNORE;
    return counted;
}

#endif
