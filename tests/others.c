#define _XOPEN_SOURCE 700
#include "others.h"

#include <stdlib.h>
#include <string.h>

#include "backend/kernels.h"

/* What the processor is without MM_CPU, for the first who asks, before there are threads. */
typedef struct others {
    bool asked, are_run;
    unsigned cpu;
} others;

static const others *ask(void)
{
    static others o;
    const char *name = getenv("MM_CPU");
    if (!o.asked && name && getenv("MM_TEST_OTHER")) {
        char *held = strdup(name);
        unsetenv("MM_CPU");
        o.cpu = mmi_cpu_flags();
        o.are_run = held && setenv("MM_CPU", held, 1) == 0;
        free(held);
    }
    o.asked = true;
    return &o;
}

bool others_show_as_much(void)
{
    const others *o = ask();
    return o->are_run && o->cpu == mmi_cpu_flags();
}

static bool is_met_by_others(const mmi_path *path)
{
    const others *o = ask();
    const mmi_path *met;
    for (int32_t i = 0; o->are_run && (met = mmi_path_of(o->cpu, i)) != NULL; i++)
        if (met == path)
            return true;
    return false;
}

int32_t kernels_from(int32_t index)
{
    const mmi_path *path;
    while ((path = mmi_path_get(index)) != NULL && is_met_by_others(path))
        index++;
    return index;
}
