#include "data/messages.h"

#include <string.h>

#include "base/memory.h"

static bool role_is(const mmi_json *message, const char *role)
{
    size_t length = 0;
    const char *found = mmi_json_string(mmi_json_get(message, "role"), &length);
    return found && length == strlen(role) && memcmp(found, role, length) == 0;
}

static const char *role_by_position(size_t i)
{
    return i % 2 == 0 ? "user" : "assistant";
}

/* MiniMind2 knows a message's place and its content, nothing else. */
static mm_status add_by_position(mm_chat *chat, mmi_json *message, size_t i)
{
    const char *role = role_by_position(i);
    mmi_json *content = mmi_json_get(message, "content");
    mmi_json *fresh = mmi_json_new_object();
    mm_status status = MM_OK;
    if (!fresh || !mmi_json_set_text(fresh, "role", role) ||
        (content && !mmi_json_set(fresh, "content", mmi_json_share(content))))
        status = mmi_fail_memory(0, "a message");
    if (status == MM_OK)
        status = mmi_chat_add_value(chat, fresh);
    mmi_json_free(fresh);
    return status;
}

/* A member that holds JSON as a string becomes what that says; an empty string is none. */
static mm_status parse_member(mmi_json *message, const char *key, size_t i)
{
    size_t length = 0;
    const char *text = mmi_json_string(mmi_json_get(message, key), &length);
    if (!text)
        return MM_OK;
    mmi_json *value = NULL;
    mm_status status = MM_OK;
    if (length > 0) {
        status = mmi_json_parse(text, length, key, &value);
    } else {
        value = mmi_json_new_null();
    }
    if (status == MM_OK && !mmi_json_set(message, key, value))
        status = mmi_fail_memory(length, "a message");
    return status == MM_ERR_FORMAT ? mmi_fail_within(status, "messages[%zu]", i) : status;
}

static bool is_empty(const mmi_json *value)
{
    mmi_json_kind kind = mmi_json_what(value);
    return kind == MMI_JSON_NONE || kind == MMI_JSON_NULL ||
           ((kind == MMI_JSON_ARRAY || kind == MMI_JSON_OBJECT) && mmi_json_size(value) == 0);
}

/* The last system message that has tools decides. */
static mm_status add_minimind3(mm_chat *chat, mmi_json *message, size_t i)
{
    bool system = role_is(message, "system");
    mm_status status = parse_member(message, "tool_calls", i);
    if (status == MM_OK && system)
        status = parse_member(message, "tools", i);
    mmi_json *tools = system ? mmi_json_get(message, "tools") : NULL;
    if (status == MM_OK && !is_empty(tools))
        status = mmi_chat_set_tools(chat, tools);
    return status == MM_OK ? mmi_chat_add_value(chat, message) : status;
}

static mm_status add_minillm(mm_chat *chat, mmi_json *message, size_t i)
{
    mmi_json *tools = i == 0 && role_is(message, "system") ? mmi_json_get(message, "functions") : NULL;
    mm_status status = is_empty(tools) ? MM_OK : mmi_chat_set_tools(chat, tools);
    return status == MM_OK ? mmi_chat_add_value(chat, message) : status;
}

mm_status mmi_messages_read(mm_chat *chat, mmi_json *list, mmi_chat_form form, bool plain, const char *what)
{
    mm_status status = MM_OK;
    if (mmi_json_what(list) != MMI_JSON_ARRAY)
        return mmi_fail(MM_ERR_FORMAT, "\"%s\" is %s, not an array", what, mmi_json_kind_name(mmi_json_what(list)));
    if (mmi_json_size(list) == 0)
        return mmi_fail(MM_ERR_FORMAT, "\"%s\" has no messages", what);
    for (size_t i = 0; i < mmi_json_size(list) && status == MM_OK; i++) {
        mmi_json *message = mmi_json_at(list, i);
        if (mmi_json_what(message) != MMI_JSON_OBJECT)
            status = mmi_fail(MM_ERR_FORMAT, "messages[%zu] is %s, not an object", i,
                              mmi_json_kind_name(mmi_json_what(message)));
        else if (plain)
            status = mmi_chat_add_value(chat, message);
        else if (form == MMI_CHAT_MINIMIND2)
            status = add_by_position(chat, message, i);
        else if (form == MMI_CHAT_MINIMIND3)
            status = add_minimind3(chat, message, i);
        else
            status = add_minillm(chat, message, i);
        if (status == MM_ERR_FORMAT)
            mmi_fail_within(status, "\"%s\"", what);
    }
    return status;
}

static bool follows(const mmi_json *before, const mmi_json *message)
{
    if (role_is(message, "user"))
        return !before || role_is(before, "system") || role_is(before, "assistant");
    if (role_is(message, "assistant"))
        return before && (role_is(before, "user") || role_is(before, "tool"));
    if (role_is(message, "tool"))
        return before && (role_is(before, "assistant") || role_is(before, "tool"));
    return role_is(message, "system") && !before;
}

bool mmi_messages_alternate(const mmi_json *list, bool by_position)
{
    const mmi_json *before = NULL;
    for (size_t i = 0; i < mmi_json_size(list); i++) {
        const mmi_json *message = mmi_json_at(list, i);
        if (by_position ? !role_is(message, role_by_position(i)) : !follows(before, message))
            return false;
        before = message;
    }
    return true;
}
