#include "golden_chat.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

typedef struct story {
    char *text;
    size_t size;
} story;

static bool differs(const story *s, const char *format, ...) __attribute__((format(printf, 2, 3)));
static bool differs(const story *s, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(s->text, s->size, format, args);
    va_end(args);
    return false;
}

/* Upstream's names for thinking differ by template, and only JSON's own true and false count. */
static int32_t thinking_of(const mm_tokenizer *t, const mmi_json *flags)
{
    const char *name = NULL;
    if (mm_chat_template_name(t, &name) != MM_OK)
        return MM_THINK_DEFAULT;
    const mmi_json *flag = NULL;
    if (strcmp(name, "minimind3") == 0)
        flag = mmi_json_get(flags, "open_thinking");
    else if (strcmp(name, "minillm") == 0)
        flag = mmi_json_get(flags, "enable_thinking");
    if (mmi_json_what(flag) != MMI_JSON_BOOL)
        return MM_THINK_DEFAULT;
    return mmi_json_bool(flag, false) ? MM_THINK_ON : MM_THINK_OFF;
}

/* Through the public door, so that what the library reads is JSON text. */
static mm_status fill(mm_chat *chat, const mmi_json *item)
{
    char *messages = NULL, *tools = NULL;
    size_t messages_length = 0, tools_length = 0;
    const mmi_json *given = mmi_json_get(item, "tools");
    mm_status status = mmi_json_write(mmi_json_get(item, "messages"), 0, &messages, &messages_length);
    if (status == MM_OK && given)
        status = mmi_json_write(given, 0, &tools, &tools_length);
    if (status == MM_OK)
        status = mm_chat_add_json(chat, messages, messages_length);
    if (status == MM_OK)
        status = mm_chat_set_tools_json(chat, tools, tools_length);
    mmi_free(messages);
    mmi_free(tools);
    return status;
}

static bool check_text(const story *s, const mm_chat *chat, const mm_tokenizer *t, const mm_chat_options *options,
                       const mmi_json *item)
{
    size_t wanted_size = 0, counted = 0, size = 0, at = 0;
    const char *wanted = mmi_json_string(mmi_json_get(item, "rendered"), &wanted_size);
    if (!wanted)
        return differs(s, "the case has no string \"rendered\"");
    if (mm_chat_format(chat, t, options, NULL, 0, &counted) != MM_OK)
        return differs(s, "%s", mm_last_error());
    char *text = malloc(counted + 1);
    if (!text || mm_chat_format(chat, t, options, text, counted + 1, &size) != MM_OK || size != counted) {
        free(text);
        return differs(s, "rendered: counting gives %zu bytes, rendering %zu: %s", counted, size, mm_last_error());
    }
    while (at < size && at < wanted_size && text[at] == wanted[at])
        at++;
    free(text);
    if (at < size || at < wanted_size)
        return differs(s, "rendered: it differs from byte %zu on (%zu bytes, %zu expected)", at, size, wanted_size);
    return true;
}

static bool check_ids(const story *s, const mm_chat *chat, const mm_tokenizer *t, const mm_chat_options *options,
                      const mmi_json *item)
{
    const mmi_json *wanted = mmi_json_get(item, "ids");
    size_t wanted_count = mmi_json_size(wanted), counted = 0, n = 0, at = 0;
    if (mmi_json_what(wanted) != MMI_JSON_ARRAY)
        return differs(s, "the case has no array \"ids\"");
    if (mm_chat_encode(chat, t, options, NULL, 0, &counted) != MM_OK)
        return differs(s, "ids: %s", mm_last_error());
    int32_t *ids = malloc((counted + 1) * sizeof *ids);
    if (!ids || mm_chat_encode(chat, t, options, ids, counted + 1, &n) != MM_OK || n != counted) {
        free(ids);
        return differs(s, "ids: counting gives %zu, encoding %zu: %s", counted, n, mm_last_error());
    }
    while (at < n && at < wanted_count && ids[at] == mmi_json_int(mmi_json_at(wanted, at), -1))
        at++;
    free(ids);
    if (at < n || at < wanted_count)
        return differs(s, "ids: they differ from [%zu] on (%zu ids, %zu expected)", at, n, wanted_count);
    return true;
}

static bool check_error(const story *s, const mm_chat *chat, const mm_tokenizer *t, const mm_chat_options *options)
{
    size_t needed = 0;
    if (mm_chat_format(chat, t, options, NULL, 0, &needed) == MM_OK ||
        mm_chat_encode(chat, t, options, NULL, 0, &needed) == MM_OK)
        return differs(s, "an error is expected, it renders");
    return true;
}

bool golden_chat_case(char *text, size_t size, const mm_tokenizer *t, const mmi_json *item)
{
    const story s = { text, size };
    bool error = mmi_json_bool(mmi_json_get(item, "error"), false);
    const mmi_json *flags = mmi_json_get(item, "kwargs");
    mm_chat_options options = MM_CHAT_OPTIONS_INIT;
    options.add_generation_prompt = mmi_json_bool(mmi_json_get(flags, "add_generation_prompt"), false);
    options.thinking = thinking_of(t, flags);
    mm_chat *chat = NULL;
    if (mm_chat_create(&chat) != MM_OK)
        return differs(&s, "%s", mm_last_error());
    bool good = true;
    if (fill(chat, item) != MM_OK)
        good = error || differs(&s, "%s", mm_last_error());
    else if (error)
        good = check_error(&s, chat, t, &options);
    else
        good = check_text(&s, chat, t, &options, item) && check_ids(&s, chat, t, &options, item);
    mm_chat_free(chat);
    return good;
}
