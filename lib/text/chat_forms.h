/* The templates as code, each exactly what its author's own text gives. All put behind what `out` holds; when they
 * fail, `out` holds a part. */
#ifndef MMI_TEXT_CHAT_FORMS_H
#define MMI_TEXT_CHAT_FORMS_H

#include "text/chat.h"
#include "text/chat_template.h"

#define MMI_DEFAULT_SYSTEM "<|im_start|>system\nYou are a helpful assistant<|im_end|>\n"

/* chat_plain.c */
mm_status mmi_chat_put_minimind2(mmi_chat_text *out, const mm_chat *chat);
mm_status mmi_chat_put_roles(mmi_chat_text *out, const mm_chat *chat, const mm_chat_roles *roles,
                             int32_t add_generation_prompt);

/* chat_tools.c: MMI_CHAT_MINIMIND3 or MMI_CHAT_MINILLM. `preface` has the text round the tools, or may lack it. */
mm_status mmi_chat_put_with_tools(mmi_chat_text *out, const mm_chat *chat, mmi_chat_form form,
                                  const mm_chat_options *options, const mmi_chat_template *preface);

/* A message's content, which must be a string. */
mm_status mmi_chat_need_content(mmi_slice *content, const mm_chat *chat, size_t index);

#endif
