/* The processors of the machine, as a thread sees them. */
#ifndef MMI_BASE_PROCESSOR_H
#define MMI_BASE_PROCESSOR_H

/* Cores this process may run on, whose hardware threads count as one (cores.h), but no more than it is given time of
 * (quota.h). */
int mmi_processor_count(void);

/* The one that this thread is on at this moment, from 0; -1 where the system does not say. */
int mmi_processor(void);

/* Seconds that processors have spent on this thread; where the system does not say, all that have passed. Only
 * differences mean something. */
double mmi_spent_on_thread(void);

/* What follows does nothing for a thread that may run nowhere else, and lets it run wherever it may once it is done. */

/* If this thread is on that one, it is on another when this returns. */
void mmi_leave_processor(int processor);

/* Call sleep(arg), as a thread that is not woken on that one. */
void mmi_sleep_elsewhere(int processor, void (*sleep)(void *arg), void *arg);

#endif
