/* Text that grows piece by piece and remembers which of it is the template's own, as opposed to what messages say. */
#ifndef MMI_TEXT_CHAT_TEXT_H
#define MMI_TEXT_CHAT_TEXT_H

#include "base/json.h"
#include "base/status.h"
#include "text/slice.h"

typedef struct mmi_span {
    size_t start, end;
} mmi_span;

/* Zeroed, it is empty. Running out of memory sticks: only the end need be looked at. */
typedef struct mmi_chat_text {
    char *bytes;
    size_t length, room;
    mmi_span *own; /* [own_count] in order, none empty, none touching the next */
    size_t own_count, own_room;
    bool failed;
} mmi_chat_text;

void mmi_chat_text_free(mmi_chat_text *text);

/* From a message; from the template itself. */
void mmi_chat_text_put(mmi_chat_text *text, mmi_slice slice);
void mmi_chat_text_put_own(mmi_chat_text *text, mmi_slice slice);
#define MMI_PUT_OWN(text, literal) mmi_chat_text_put_own(text, MMI_SLICE(literal))

/* MM_OK, or MM_ERR_MEMORY with its story if anything was lost. */
mm_status mmi_chat_text_status(const mmi_chat_text *text);

/* A value the way Python's json.dumps(value, ensure_ascii=False) writes it, as a message's text: ", " and ": " between
 * parts, reals in the shortest form that reads back, with ".0" when they are whole. */
void mmi_chat_text_put_json(mmi_chat_text *text, mmi_json *value);
void mmi_chat_text_put_json_string(mmi_chat_text *text, mmi_slice string);

/* A NUL behind the text that doesn't count. */
void mmi_chat_text_end(mmi_chat_text *text);

#endif
