/* Which processors are one: those of a core with several hardware threads. */
#ifndef MMI_BASE_CORES_H
#define MMI_BASE_CORES_H

/* Cores that `processors` [count], ascending, lie on. Each counts as one where nothing says whose siblings it has.
 * `root` stands before every path that is read: "" but in tests. Allocates nothing. */
int mmi_core_count(const char *root, const int *processors, int count);

#endif
