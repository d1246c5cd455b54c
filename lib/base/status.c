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

/* Names from files end up in messages: a cut must not leave half a UTF-8 character behind. */
static void end_at_a_character(char *text, size_t size)
{
    size_t end = strlen(text);
    if (end + 1 < size)
        return;
    size_t start = end;
    while (start > 0 && ((unsigned char)text[start - 1] & 0xC0) == 0x80)
        start--;
    if (start > 0 && (unsigned char)text[start - 1] >= 0xC0)
        text[start - 1] = '\0';
}

/* The message is one line, whatever the names in it hold. */
static void keep_to_one_line(char *text)
{
    for (; *text != '\0'; text++)
        if ((unsigned char)*text < ' ' || *text == 0x7F)
            *text = ' ';
}

mm_status mmi_fail(mm_status status, const char *format, ...)
{
    char fresh[DETAIL_SIZE]; /* the arguments may point into `detail` */
    va_list args;
    va_start(args, format);
    vsnprintf(fresh, sizeof fresh, format, args);
    va_end(args);
    end_at_a_character(fresh, sizeof fresh);
    keep_to_one_line(fresh);
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
    end_at_a_character(prefix, sizeof prefix);
    return mmi_fail(status, "%s: %s", prefix, detail);
}

mm_status mm_set_last_error(mm_status status, const char *message)
{
    return mmi_fail(status, "%s", message ? message : "");
}
