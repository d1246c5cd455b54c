/* What control groups (Linux's cgroups, as a container is one) leave a process of its processors' time. */
#ifndef MMI_BASE_QUOTA_H
#define MMI_BASE_QUOTA_H

/* As many processors' time as the process may spend, rounded up; 0: as much as there is, or nothing says how much.
 * `root` stands before every path that is read: "" but in tests. Allocates nothing. */
int mmi_processor_quota(const char *root);

#endif
