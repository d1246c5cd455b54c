/* Threads that live on beside their maker, and a lock to meet under. Cutting one job into pieces is pool.h's work. A
 * forked child has none of the threads: there both may be freed. */
#ifndef MMI_BASE_THREAD_H
#define MMI_BASE_THREAD_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

typedef struct mmi_thread mmi_thread;

/* pthread_create(), with signals blocked: the host's handlers run on the host's threads. But for those that a thread
 * causes itself, a fault or a call that a sandbox traps: blocked, they end the process whatever handler the host has.
 */
int mmi_thread_create(pthread_t *handle, void *(*fn)(void *arg), void *arg);

/* Run fn(arg) on such a thread. */
mm_status mmi_thread_start(mmi_thread **out, void (*fn)(void *arg), void *arg);

/* A number that no other thread has, and not 0. */
uintptr_t mmi_this_thread(void);

/* Has this process lost it? So it is in a forked child, where nothing that a thread was to do will be done. */
bool mmi_thread_lost(const mmi_thread *thread);

/* Wait until it has returned, unless it is lost, and free it. NULL is fine. */
void mmi_thread_join(mmi_thread *thread);

/* A lock with one condition: whoever waits sleeps until somebody inside calls wake, then looks again. */
typedef struct mmi_monitor mmi_monitor;
mm_status mmi_monitor_create(mmi_monitor **out);
void mmi_monitor_free(mmi_monitor *monitor); /* NULL is fine */
void mmi_monitor_enter(mmi_monitor *monitor);
void mmi_monitor_leave(mmi_monitor *monitor);
void mmi_monitor_wait(mmi_monitor *monitor); /* from inside; inside again when it returns */
void mmi_monitor_wake(mmi_monitor *monitor); /* all who wait */

#endif
