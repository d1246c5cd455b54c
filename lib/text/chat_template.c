#include "text/chat_template.h"

#include <stdint.h>

#include <minimind/chat.h>

#include "base/files.h"
#include "base/memory.h"
#include "text/tokenizer.h"

/* clang-format off */
const char mmi_chat_own_template[] =
    "{% if messages[0].role != 'system' %}"
    "{{ '<|im_start|>system\\nYou are a helpful assistant<|im_end|>\\n' }}"
    "{% endif %}"
    "{% for turn in messages %}"
    "{% if turn.role == 'user' %}"
    "{{ '<|im_start|>user\\n' + turn.content + '<|im_end|>\\n<|im_start|>assistant\\n' }}"
    "{% elif turn.role == 'assistant' %}"
    "{{ turn.content + '<|im_end|>\\n' }}"
    "{% elif turn.role == 'system' and loop.first %}"
    "{{ '<|im_start|>system\\n' + turn.content + '<|im_end|>\\n' }}"
    "{% endif %}"
    "{% endfor %}";
/* clang-format on */

static const char *const names[] = { NULL, NULL, "minimind2", "minimind3", "minillm" };
#define FORMS (sizeof names / sizeof *names)

/* Upstream's templates, by length and FNV-1a hash, without the newlines at their end. */
static const struct fingerprint {
    size_t length;
    uint64_t hash;
    mmi_chat_form form;
} fingerprints[] = {
    { 515, 0x366AE69BC146399A, MMI_CHAT_MINIMIND2 },
    { 3895, 0xA42856D092C2689B, MMI_CHAT_MINIMIND3 },
    { 3342, 0xD2C221AD78B4395D, MMI_CHAT_MINILLM },
};

static uint64_t hash_of(mmi_slice text)
{
    uint64_t hash = 0xCBF29CE484222325;
    for (size_t i = 0; i < text.length; i++)
        hash = (hash ^ (unsigned char)text.at[i]) * 0x100000001B3;
    return hash;
}

/* All of them end in a block. Jinja takes two newlines away behind that, the file's last one and the block's own, and
 * prints any more. */
static mmi_slice cut_newlines(mmi_slice text)
{
    for (int i = 0; i < 2 && text.length > 0 && text.at[text.length - 1] == '\n'; i++)
        text.length--;
    return text;
}

mmi_chat_form mmi_chat_template_recognise(mmi_slice text)
{
    text = cut_newlines(text);
    if (mmi_slice_is(text, (mmi_slice){ mmi_chat_own_template, strlen(mmi_chat_own_template) }))
        return MMI_CHAT_MINIMIND2;
    uint64_t hash = hash_of(text);
    for (size_t i = 0; i < sizeof fingerprints / sizeof *fingerprints; i++)
        if (fingerprints[i].length == text.length && fingerprints[i].hash == hash)
            return fingerprints[i].form;
    return MMI_CHAT_UNKNOWN;
}

const char *mmi_chat_form_name(mmi_chat_form form)
{
    return names[form];
}

mmi_chat_form mmi_chat_form_by_name(const char *name)
{
    for (size_t i = 0; i < FORMS; i++)
        if (names[i] && strcmp(names[i], name) == 0)
            return (mmi_chat_form)i;
    return MMI_CHAT_NONE;
}

/* The string literal that begins with `begin` (a quote and its first characters, as the template spells them) with its
 * escapes resolved. NULL with MM_OK if it isn't there. */
static mm_status read_literal(char **out, mmi_slice text, mmi_slice begin)
{
    size_t at, used = 0;
    *out = NULL;
    if (!mmi_slice_find(&at, text, begin))
        return MM_OK;
    char *bytes = mmi_alloc(text.length - at, 1);
    if (!bytes)
        return mmi_fail_memory(text.length - at, "a chat template");
    for (at++; at < text.length && text.at[at] != begin.at[0]; at++) {
        char c = text.at[at];
        if (c == '\\' && at + 1 < text.length) {
            c = text.at[++at];
            c = c == 'n' ? '\n' : c;
        }
        bytes[used++] = c;
    }
    bytes[used] = '\0'; /* there is room: the quote wasn't copied */
    *out = bytes;
    return MM_OK;
}

static mm_status keep(mmi_chat_template *t, mmi_slice text)
{
    t->form = mmi_chat_template_recognise(text);
    if (t->form != MMI_CHAT_MINIMIND3 && t->form != MMI_CHAT_MINILLM)
        return MM_OK;
    mm_status status = read_literal(&t->tools_head, text, MMI_SLICE("\"# Tools"));
    if (status == MM_OK)
        status = read_literal(&t->tools_tail, text, MMI_SLICE("\"\\n</tools>"));
    return status;
}

/* The value of "chat_template": a template, or a list of named ones, of which upstream takes "default". */
static const mmi_json *choose(const mmi_json *value)
{
    for (size_t i = 0; mmi_json_what(value) == MMI_JSON_ARRAY && i < mmi_json_size(value); i++) {
        const mmi_json *item = mmi_json_at(value, i);
        const char *name = mmi_json_string(mmi_json_get(item, "name"), NULL);
        if (name && strcmp(name, "default") == 0)
            return mmi_json_get(item, "template");
    }
    return value;
}

static mm_status read_config(mmi_chat_template *t, const mmi_json *config)
{
    const mmi_json *value = mmi_json_get(config, "chat_template");
    if (mmi_json_what(value) == MMI_JSON_NULL || mmi_json_what(value) == MMI_JSON_NONE)
        return MM_OK;
    mmi_slice text = { NULL, 0 };
    text.at = mmi_json_string(choose(value), &text.length);
    if (text.at)
        return keep(t, text);
    t->form = MMI_CHAT_UNKNOWN;
    return MM_OK;
}

mm_status mmi_chat_template_read(mmi_chat_template *t, const char *directory, const mmi_json *config)
{
    char *path = mmi_path_join(directory, "chat_template.jinja");
    if (!path)
        return mmi_fail_memory(strlen(directory) + 32, "a path");
    mm_status status = MM_OK;
    if (mmi_file_exists(path)) {
        status = mmi_read_file(path, &t->file, &t->file_length);
        if (status == MM_OK)
            status = keep(t, (mmi_slice){ t->file, t->file_length });
    } else if (config) {
        status = read_config(t, config);
    }
    mmi_free(path);
    return status;
}

void mmi_chat_template_free(mmi_chat_template *t)
{
    mmi_free(t->tools_head);
    mmi_free(t->tools_tail);
    mmi_free(t->file);
    *t = (mmi_chat_template){ 0 };
}

mm_status mm_chat_template_name(const mm_tokenizer *tokenizer, const char **name)
{
    if (!tokenizer || !name)
        return mmi_fail(MM_ERR_ARG, "mm_chat_template_name: %s is NULL", !tokenizer ? "tokenizer" : "name");
    switch (tokenizer->chat.form) {
    case MMI_CHAT_NONE:
        return mmi_fail(MM_ERR_STATE,
                        "the tokenizer brought no chat template: name one (minimind2, minimind3, minillm) "
                        "or give role strings");
    case MMI_CHAT_UNKNOWN:
        return mmi_fail(MM_ERR_UNSUPPORTED,
                        "the tokenizer's chat template is not one that this library knows: name one "
                        "(minimind2, minimind3, minillm) or give role strings");
    default:
        *name = mmi_chat_form_name(tokenizer->chat.form);
        return MM_OK;
    }
}
