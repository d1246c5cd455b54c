/* A row's messages as each generation's own reader takes them. */
#ifndef MMI_DATA_MESSAGES_H
#define MMI_DATA_MESSAGES_H

#include <stdbool.h>

#include "text/chat.h"
#include "text/chat_template.h"

/* Fill an empty conversation from `list`, whose messages may be changed on the way. `plain`: roles as given and no
 * tools, as preference rows are read; else MiniMind2 takes roles from the position, MiniMind-3 parses the strings
 * "tools" and "tool_calls", and Mini-LLM takes "functions" of a leading system message for tools. `what` names the list
 * in messages. */
mm_status mmi_messages_read(mm_chat *chat, mmi_json *list, mmi_chat_form form, bool plain, const char *what);

/* Do roles alternate: perhaps system, then user, assistant, user, … with tool answers between two assistants? By
 * position there is no place for anyone else than user and assistant. */
bool mmi_messages_alternate(const mmi_json *list, bool by_position);

#endif
