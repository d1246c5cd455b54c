/* Failing with a story: a status for programs, a line for people. */
#ifndef MMI_BASE_STATUS_H
#define MMI_BASE_STATUS_H

#include <minimind/status.h>

/* Keep the message for mm_last_error() on this thread and return `status`, so that `return mmi_fail(…)` reads well.
 * A message longer than its buffer is cut at a character, and of a name that was cut within one, as by "%.200s", no
 * half of it is left. */
mm_status mmi_fail(mm_status status, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Put "prefix: " before the message at hand, for a caller that knows the file or the line. Returns `status`. */
mm_status mmi_fail_within(mm_status status, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Fail with `what` and, behind it, the names that could have been meant, "a, b or c": name_of(0) and so on, up to the
 * first NULL. */
mm_status mmi_fail_choice(mm_status status, const char *what, const char *(*name_of)(int32_t index));

/* Make `text` one line of whole characters, whatever the names in it hold and wherever they were cut: a control
 * character becomes a space, half a UTF-8 character a question mark, or nothing at the end. Messages are so. */
void mmi_make_line(char *text);

#endif
