#include "train/reducer.h"

#include <stdbool.h>
#include <stdio.h>

#include "base/memory.h"
#include "base/status.h"
#include "base/thread.h"

typedef struct span {
    float *data;
    int64_t count;
} span;

struct mmi_reducer {
    const mm_comm *comm;
    mmi_monitor *monitor; /* what follows is looked at from inside */
    mmi_thread *thread;
    span *spans; /* [room], a ring */
    int64_t room, first, waiting;
    bool busy, leaving;
    mm_status status;
    char story[512];
};

mm_status mmi_comm_told(mm_status status, const char *function)
{
    if (status == MM_OK)
        return MM_OK;
    status = status == MM_ERR_NUMERIC ? MM_ERR_IO : status;
    return *mm_last_error() ? status : mmi_fail(status, "the communicator's %s failed", function);
}

/* Outside the monitor: one span. */
static void reduce(mmi_reducer *r, span s)
{
    char story[sizeof r->story] = "";
    mm_set_last_error(MM_OK, "");
    mm_status status = mmi_comm_told(r->comm->all_reduce(r->comm->user, s.data, s.count), "all_reduce");
    if (status != MM_OK)
        snprintf(story, sizeof story, "%s", mm_last_error());
    mmi_monitor_enter(r->monitor);
    if (status != MM_OK && r->status == MM_OK) {
        r->status = status;
        snprintf(r->story, sizeof r->story, "%s", story);
    }
    mmi_monitor_leave(r->monitor);
}

static void work(void *arg)
{
    mmi_reducer *r = arg;
    mmi_monitor_enter(r->monitor);
    for (;;) {
        while (r->waiting == 0 && !r->leaving)
            mmi_monitor_wait(r->monitor);
        if (r->leaving)
            break;
        span next = r->spans[r->first];
        bool sound = r->status == MM_OK;
        r->first = (r->first + 1) % r->room;
        r->waiting--;
        r->busy = true;
        mmi_monitor_leave(r->monitor);
        if (sound)
            reduce(r, next);
        mmi_monitor_enter(r->monitor);
        r->busy = false;
        mmi_monitor_wake(r->monitor);
    }
    mmi_monitor_leave(r->monitor);
}

mm_status mmi_reducer_create(mmi_reducer **out, const mm_comm *comm, int64_t room)
{
    mmi_reducer *r = mmi_calloc(1, sizeof *r);
    if (!r)
        return mmi_fail_memory(sizeof *r, "a reducer");
    r->comm = comm;
    r->room = room;
    r->spans = mmi_calloc((size_t)room, sizeof *r->spans);
    mm_status status = r->spans ? MM_OK : mmi_fail_memory((size_t)room * sizeof *r->spans, "a reducer");
    if (status == MM_OK)
        status = mmi_monitor_create(&r->monitor);
    if (status == MM_OK)
        status = mmi_thread_start(&r->thread, work, r);
    if (status != MM_OK) {
        mmi_reducer_free(r);
        return status;
    }
    *out = r;
    return MM_OK;
}

void mmi_reducer_free(mmi_reducer *r)
{
    if (!r)
        return;
    if (r->thread) {
        mmi_monitor_enter(r->monitor);
        r->leaving = true;
        mmi_monitor_wake(r->monitor);
        mmi_monitor_leave(r->monitor);
        mmi_thread_join(r->thread);
    }
    mmi_monitor_free(r->monitor);
    mmi_free(r->spans);
    mmi_free(r);
}

void mmi_reducer_post(mmi_reducer *r, float *data, int64_t count)
{
    mmi_monitor_enter(r->monitor);
    while (r->waiting == r->room)
        mmi_monitor_wait(r->monitor);
    r->spans[(r->first + r->waiting) % r->room] = (span){ data, count };
    r->waiting++;
    mmi_monitor_wake(r->monitor);
    mmi_monitor_leave(r->monitor);
}

mm_status mmi_reducer_wait(mmi_reducer *r)
{
    mmi_monitor_enter(r->monitor);
    while (r->waiting > 0 || r->busy)
        mmi_monitor_wait(r->monitor);
    mm_status status = r->status;
    if (status != MM_OK)
        mmi_fail(status, "%s", r->story);
    r->status = MM_OK;
    mmi_monitor_leave(r->monitor);
    return status;
}
