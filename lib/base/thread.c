#define _POSIX_C_SOURCE 200809L

#include "base/thread.h"

#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <unistd.h>

#include "base/memory.h"

struct mmi_thread {
    pthread_t handle;
    pid_t process; /* a forked child has none of its parent's threads */
    void (*fn)(void *arg);
    void *arg;
};

int mmi_thread_create(pthread_t *handle, void *(*fn)(void *arg), void *arg)
{
    static const int own[] = { SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS };
    sigset_t others, before;
    sigfillset(&others);
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        sigdelset(&others, own[i]);
    pthread_sigmask(SIG_BLOCK, &others, &before);
    int error = pthread_create(handle, NULL, fn, arg);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}

static void *run(void *arg)
{
    mmi_thread *thread = arg;
    thread->fn(thread->arg);
    return NULL;
}

mm_status mmi_thread_start(mmi_thread **out, void (*fn)(void *arg), void *arg)
{
    mmi_thread *thread = mmi_alloc(1, sizeof *thread);
    if (!thread)
        return mmi_fail_memory(sizeof *thread, "a thread");
    thread->process = getpid();
    thread->fn = fn;
    thread->arg = arg;
    if (mmi_thread_create(&thread->handle, run, thread) != 0) {
        mmi_free(thread);
        return mmi_fail(MM_ERR_MEMORY, "can't start a thread");
    }
    *out = thread;
    return MM_OK;
}

uintptr_t mmi_this_thread(void)
{
    static _Thread_local char own;
    return (uintptr_t)&own;
}

bool mmi_thread_lost(const mmi_thread *thread)
{
    return thread->process != getpid();
}

void mmi_thread_join(mmi_thread *thread)
{
    if (!thread)
        return;
    if (!mmi_thread_lost(thread))
        pthread_join(thread->handle, NULL);
    mmi_free(thread);
}

struct mmi_monitor {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    pid_t process;
};

static bool begin(mmi_monitor *monitor)
{
    monitor->process = getpid();
    if (pthread_mutex_init(&monitor->lock, NULL) != 0)
        return false;
    if (pthread_cond_init(&monitor->changed, NULL) == 0)
        return true;
    pthread_mutex_destroy(&monitor->lock);
    return false;
}

/* In a forked child whoever was inside or waited is gone for good: it begins anew, as nobody else is there. */
static void begin_anew(mmi_monitor *monitor)
{
    if (monitor->process != getpid())
        begin(monitor);
}

mm_status mmi_monitor_create(mmi_monitor **out)
{
    mmi_monitor *monitor = mmi_alloc(1, sizeof *monitor);
    if (!monitor)
        return mmi_fail_memory(sizeof *monitor, "a lock");
    if (!begin(monitor)) {
        mmi_free(monitor);
        return mmi_fail(MM_ERR_MEMORY, "can't make a lock");
    }
    *out = monitor;
    return MM_OK;
}

void mmi_monitor_free(mmi_monitor *monitor)
{
    if (!monitor)
        return;
    begin_anew(monitor);
    pthread_cond_destroy(&monitor->changed);
    pthread_mutex_destroy(&monitor->lock);
    mmi_free(monitor);
}

void mmi_monitor_enter(mmi_monitor *monitor)
{
    begin_anew(monitor);
    pthread_mutex_lock(&monitor->lock);
}

void mmi_monitor_leave(mmi_monitor *monitor)
{
    pthread_mutex_unlock(&monitor->lock);
}

void mmi_monitor_wait(mmi_monitor *monitor)
{
    pthread_cond_wait(&monitor->changed, &monitor->lock);
}

void mmi_monitor_wake(mmi_monitor *monitor)
{
    pthread_cond_broadcast(&monitor->changed);
}
