#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>

#include "base/status.h"

static struct {
    mm_log_fn log;
    void *user;
    int32_t level;
} sink;

void mm_set_log(mm_log_fn log, void *user, int32_t level)
{
    sink.log = log;
    sink.user = user;
    sink.level = level;
}

void mmi_log(int32_t level, const char *format, ...)
{
    if (!sink.log || level > sink.level)
        return;
    char line[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    mmi_make_line(line);
    sink.log(sink.user, level, line);
}
