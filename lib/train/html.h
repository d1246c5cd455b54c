/* Writing a page: markup as it is, everything else escaped. A writer's errors stick, so nothing here returns a status.
 */
#ifndef MMI_TRAIN_HTML_H
#define MMI_TRAIN_HTML_H

#include "base/files.h"

/* Short markup; of numbers it takes integers and finished strings, for the locale's sake. */
void mmi_html_put(mmi_writer *page, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Text between tags or within a quoted attribute. Control characters but end of line and tab become U+FFFD. */
void mmi_html_text(mmi_writer *page, const char *text, size_t length);
void mmi_html_string(mmi_writer *page, const char *text);

/* A JSON string that can't end the <script> it stands in. */
void mmi_html_json_string(mmi_writer *page, const char *text);

/* A number with `digits` significant ones; null if it is not finite. */
void mmi_html_number(mmi_writer *page, double value, int digits);
/* … as it is read best: from a thousand on whole, below with four digits. */
void mmi_html_reading(mmi_writer *page, double value);

#endif
