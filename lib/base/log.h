/* Remarks for whoever asked to hear them through mm_set_log(). */
#ifndef MMI_BASE_LOG_H
#define MMI_BASE_LOG_H

#include <minimind/library.h>

void mmi_log(int32_t level, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
