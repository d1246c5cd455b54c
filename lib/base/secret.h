/* Numbers that differ from process to process and that nobody outside can tell: for the keys of hash tables, so that no
 * text can be chosen whose words all fall into one slot. What a caller gets to see never depends on them. */
#ifndef MMI_BASE_SECRET_H
#define MMI_BASE_SECRET_H

#include <stdint.h>

/* Number `index` of this process's sequence. Thread-safe. */
uint64_t mmi_secret(uint64_t index);

#endif
