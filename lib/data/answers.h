/* The reference answer of a {"question", "answer"} row: what stands behind the last "####", trimmed, without commas. */
#ifndef MMI_DATA_ANSWERS_H
#define MMI_DATA_ANSWERS_H

#include "text/slice.h"

/* The part of `answer` that counts, trimmed of Unicode's white space; all of it if there is no "####". */
mmi_slice mmi_answer_of(mmi_slice answer);

/* Take the commas out, in place; the length that is left. A NUL follows it. */
size_t mmi_answer_without_commas(char *answer, size_t length);

#endif
