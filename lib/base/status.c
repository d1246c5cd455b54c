#include "base/status.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define DETAIL_SIZE 1024

static _Thread_local char detail[DETAIL_SIZE];

const char *mm_status_name(mm_status status)
{
    static const char *const names[] = {
        "MM_OK",          "MM_ERR_ARG",   "MM_ERR_MEMORY",  "MM_ERR_IO",        "MM_ERR_FORMAT",
        "MM_ERR_UNSUPPORTED", "MM_ERR_STATE", "MM_ERR_NUMERIC", "MM_ERR_CANCELLED", "MM_ERR_INTERNAL",
    };
    if (status < 0 || status >= (mm_status)(sizeof names / sizeof *names))
        return "unknown status";
    return names[status];
}

const char *mm_last_error(void)
{
    return detail;
}

void mmi_make_line(char *text)
{
    char *to = text;
    for (const char *from = text; *from != '\0';) {
        unsigned char lead = (unsigned char)*from;
        int size = lead >= 0xF8 ? 0 : lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : lead >= 0xC0 ? 2 : lead < 0x80, n = 1;
        while (n < size && ((unsigned char)from[n] & 0xC0) == 0x80)
            n++;
        if (n == size)
            for (int i = 0; i < n; i++)
                *to++ = lead < ' ' || lead == 0x7F ? ' ' : from[i];
        else if (from[n] != '\0')
            *to++ = '?';
        from += n;
    }
    *to = '\0';
}

mm_status mmi_fail(mm_status status, const char *format, ...)
{
    char fresh[DETAIL_SIZE]; /* the arguments may point into `detail` */
    va_list args;
    va_start(args, format);
    vsnprintf(fresh, sizeof fresh, format, args);
    va_end(args);
    mmi_make_line(fresh);
    memcpy(detail, fresh, sizeof detail);
    return status;
}

mm_status mmi_fail_within(mm_status status, const char *format, ...)
{
    char prefix[DETAIL_SIZE];
    va_list args;
    va_start(args, format);
    vsnprintf(prefix, sizeof prefix, format, args);
    va_end(args);
    return mmi_fail(status, "%s: %s", prefix, detail);
}

mm_status mmi_fail_choice(mm_status status, const char *what, const char *(*name_of)(int32_t index))
{
    char names[DETAIL_SIZE] = "";
    size_t n = 0;
    for (int32_t i = 0; n < sizeof names && name_of(i); i++)
        n += (size_t)snprintf(names + n, sizeof names - n, "%s%s", i == 0 ? "" : name_of(i + 1) ? ", " : " or ",
                              name_of(i));
    return mmi_fail(status, "%s%s", what, names);
}

mm_status mm_set_last_error(mm_status status, const char *message)
{
    return mmi_fail(status, "%s", message ? message : "");
}
