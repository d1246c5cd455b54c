/* Which template a tokenizer brought. Templates are programs; the library runs none, it recognises those it knows. */
#ifndef MMI_TEXT_CHAT_TEMPLATE_H
#define MMI_TEXT_CHAT_TEMPLATE_H

#include "base/json.h"
#include "base/status.h"
#include "text/slice.h"

typedef enum mmi_chat_form {
    MMI_CHAT_NONE, /* the tokenizer brought no template */
    MMI_CHAT_UNKNOWN,
    MMI_CHAT_MINIMIND2,
    MMI_CHAT_MINIMIND3,
    MMI_CHAT_MINILLM
} mmi_chat_form;

/* Zeroed, there is none. */
typedef struct mmi_chat_template {
    mmi_chat_form form;
    char *tools_head, *tools_tail; /* what stands round the list of tools, from the template's own text; NULL: unknown */
    char *file;                    /* chat_template.jinja as it was read, or NULL */
    size_t file_length;
} mmi_chat_template;

/* From the directory's chat_template.jinja, or else from tokenizer_config.json (NULL: there is none), as upstream. A
 * template of whatever kind is no failure, only MMI_CHAT_UNKNOWN. */
mm_status mmi_chat_template_read(mmi_chat_template *t, const char *directory, const mmi_json *config);
void mmi_chat_template_free(mmi_chat_template *t);

/* The known form of a template's text. */
mmi_chat_form mmi_chat_template_recognise(mmi_slice text);

/* "minimind2" … and back; NULL and MMI_CHAT_NONE if there is no such one. */
const char *mmi_chat_form_name(mmi_chat_form form);
mmi_chat_form mmi_chat_form_by_name(const char *name);

/* What a tokenizer trained here is saved with: MiniMind2's form in this library's own words. */
extern const char mmi_chat_own_template[];

#endif
