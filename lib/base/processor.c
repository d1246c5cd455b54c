#define _GNU_SOURCE /* sched_getaffinity, sched_getcpu, CPU_COUNT */

#include "base/processor.h"

#include <sched.h>
#include <stdbool.h>
#include <time.h>
#include <unistd.h>

#include "base/cores.h"
#include "base/files.h"
#include "base/quota.h"

/* Hardware threads of a core share what the kernels keep busy: its multipliers and caches. */
static int allowed_cores(void)
{
#ifdef CPU_COUNT
    cpu_set_t set;
    int processors[CPU_SETSIZE], count = 0;
    if (sched_getaffinity(0, sizeof set, &set) == 0)
        for (int i = 0; i < CPU_SETSIZE; i++)
            if (CPU_ISSET(i, &set))
                processors[count++] = i;
    if (count > 0)
        return mmi_core_count("", processors, count);
#endif
    long n = sysconf(_SC_NPROCESSORS_ONLN);
    return n > 0 ? (int)n : 1;
}

int mmi_processor_count(void)
{
    const int allowed = allowed_cores(), quota = mmi_processor_quota("");
    return quota > 0 && quota < allowed ? quota : allowed;
}

double mmi_spent_on_thread(void)
{
#ifdef CLOCK_THREAD_CPUTIME_ID
    struct timespec t;
    if (clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t) == 0)
        return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
#endif
    return mmi_now();
}

#if defined(__linux__) && defined(CPU_COUNT)
int mmi_processor(void)
{
    return sched_getcpu();
}

/* Keep this thread off a processor; false if it was not, or can't be. `all` is what it may run on. */
static bool keep_off(int processor, cpu_set_t *all, cpu_set_t *others)
{
    if (processor < 0 || sched_getaffinity(0, sizeof *all, all) != 0)
        return false;
    *others = *all;
    CPU_CLR(processor, others);
    return !CPU_EQUAL(all, others) && CPU_COUNT(others) > 0 && sched_setaffinity(0, sizeof *others, others) == 0;
}

void mmi_leave_processor(int processor)
{
    cpu_set_t all, others;
    if (mmi_processor() == processor && keep_off(processor, &all, &others))
        sched_setaffinity(0, sizeof all, &all);
}

void mmi_sleep_elsewhere(int processor, void (*sleep)(void *arg), void *arg)
{
    cpu_set_t all, others, now;
    const bool kept = keep_off(processor, &all, &others);
    sleep(arg);
    /* Somebody else may have had a say meanwhile. */
    if (kept && sched_getaffinity(0, sizeof now, &now) == 0 && CPU_EQUAL(&now, &others))
        sched_setaffinity(0, sizeof all, &all);
}
#else
int mmi_processor(void)
{
    return -1;
}

void mmi_leave_processor(int processor)
{
    (void)processor;
}

void mmi_sleep_elsewhere(int processor, void (*sleep)(void *arg), void *arg)
{
    (void)processor;
    sleep(arg);
}
#endif
