/* One case of chat/<tokenizer>/chat_cases.jsonl, for golden_text. */
#ifndef MM_TESTS_GOLDEN_CHAT_H
#define MM_TESTS_GOLDEN_CHAT_H

#include <minimind.h>
#include <stdbool.h>

#include "base/json.h"

/* True if the library renders the case as it says. False: `story` tells what differed. */
bool golden_chat_case(char *story, size_t size, const mm_tokenizer *t, const mmi_json *item);

#endif
