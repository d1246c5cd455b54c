/* report.html: one page that needs nothing but itself. */
#ifndef MMI_TRAIN_PAGE_H
#define MMI_TRAIN_PAGE_H

#include "train/report.h"

/* Draw the page and put it at `path` in one step. */
mm_status mmi_page_write(const mm_report *report, const char *path);

#endif
