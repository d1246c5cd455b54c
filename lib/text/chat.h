/* A conversation from the inside, for those who render it: the templates here, and the readers of data sets. */
#ifndef MMI_TEXT_CHAT_H
#define MMI_TEXT_CHAT_H

#include <minimind/chat.h>

#include "base/json.h"
#include "text/chat_text.h"

/* Levels of a message. What a conversation is written as can be read: a list round it, and a row of data round that. */
#define MMI_CHAT_DEPTH (MMI_JSON_DEPTH - 2)

struct mm_chat {
    mmi_json **messages; /* [count] objects with a string "role", each held */
    size_t count, room;
    mmi_json *tools;     /* an array, held; NULL or empty: none */
};

/* As mm_chat_add_json() and mm_chat_set_tools_json(), from a value that is shared, not copied; `value` NULL: no tools. */
mm_status mmi_chat_add_value(mm_chat *chat, mmi_json *value);
mm_status mmi_chat_set_tools(mm_chat *chat, mmi_json *value);

mmi_slice mmi_chat_role(const mm_chat *chat, size_t index);
bool mmi_chat_role_is(const mm_chat *chat, size_t index, const char *role);

/* The conversation as text, put behind what `out` holds. `options` as mm_chat_format() has read them, or its caller. */
mm_status mmi_chat_render(mmi_chat_text *out, const mm_chat *chat, const mm_tokenizer *tokenizer,
                          const mm_chat_options *options);

#endif
