/* Conversations: keeping the messages. */
#include "text/chat.h"

#include "base/memory.h"
#include "base/options.h"
#include "text/utf8.h"

mm_status mm_chat_create(mm_chat **out)
{
    if (!out)
        return mmi_fail(MM_ERR_ARG, "mm_chat_create: out is NULL");
    mm_chat *chat = mmi_calloc(1, sizeof *chat);
    if (!chat)
        return mmi_fail_memory(sizeof *chat, "a conversation");
    *out = chat;
    return MM_OK;
}

static void drop(mm_chat *chat, size_t first, size_t count)
{
    for (size_t i = first; i < first + count; i++)
        mmi_json_free(chat->messages[i]);
    if (count > 0)
        memmove(chat->messages + first, chat->messages + first + count,
                (chat->count - first - count) * sizeof *chat->messages);
    chat->count -= count;
}

void mm_chat_free(mm_chat *chat)
{
    if (!chat)
        return;
    drop(chat, 0, chat->count);
    mmi_free(chat->messages);
    mmi_json_free(chat->tools);
    mmi_free(chat);
}

static mm_status check_text(const char *what, mmi_slice text)
{
    size_t good = mmi_utf8_valid(text.at, text.length);
    if (good < text.length)
        return mmi_fail(MM_ERR_ARG, "mm_chat_add: the %s is not UTF-8 at byte %zu (0x%02X)", what, good,
                        (unsigned char)text.at[good]);
    return MM_OK;
}

mm_status mm_chat_add(mm_chat *chat, const char *role, const char *content, size_t length)
{
    if (!chat || !role || (!content && length > 0))
        return mmi_fail(MM_ERR_ARG, "mm_chat_add: %s is NULL", !chat ? "chat" : !role ? "role" : "content");
    if (role[0] == '\0')
        return mmi_fail(MM_ERR_ARG, "mm_chat_add: the role is empty");
    mm_status status = check_text("role", (mmi_slice){ role, strlen(role) });
    if (status == MM_OK)
        status = check_text("content", (mmi_slice){ content, length });
    if (status != MM_OK)
        return status;
    if (!mmi_grow(&chat->messages, &chat->room, chat->count + 1, sizeof *chat->messages))
        return mmi_fail_memory(sizeof *chat->messages, "a message");
    mmi_json *message = mmi_json_new_object();
    if (!message || !mmi_json_set_text(message, "role", role) ||
        !mmi_json_set(message, "content", mmi_json_new_string(content ? content : "", length))) {
        mmi_json_free(message);
        return mmi_fail_memory(length, "a message");
    }
    chat->messages[chat->count++] = message;
    return MM_OK;
}

static mm_status check_message(const mmi_json *message, size_t index)
{
    if (mmi_json_what(message) != MMI_JSON_OBJECT)
        return mmi_fail(MM_ERR_FORMAT, "messages[%zu] is %s, not an object", index,
                        mmi_json_kind_name(mmi_json_what(message)));
    const mmi_json *role = mmi_json_get(message, "role");
    if (mmi_json_what(role) != MMI_JSON_STRING)
        return mmi_fail(MM_ERR_FORMAT, "messages[%zu]: \"role\" is %s, not a string", index,
                        mmi_json_kind_name(mmi_json_what(role)));
    return MM_OK;
}

mm_status mmi_chat_add_value(mm_chat *chat, mmi_json *value)
{
    bool list = mmi_json_what(value) == MMI_JSON_ARRAY;
    size_t count = list ? mmi_json_size(value) : 1;
    mm_status status = MM_OK;
    for (size_t i = 0; i < count && status == MM_OK; i++)
        status = check_message(list ? mmi_json_at(value, i) : value, chat->count + i);
    if (status != MM_OK)
        return status;
    if (!mmi_grow(&chat->messages, &chat->room, chat->count + count, sizeof *chat->messages))
        return mmi_fail_memory(count * sizeof *chat->messages, "messages");
    for (size_t i = 0; i < count; i++)
        chat->messages[chat->count++] = mmi_json_share(list ? mmi_json_at(value, i) : value);
    return MM_OK;
}

mm_status mm_chat_add_json(mm_chat *chat, const char *json, size_t length)
{
    if (!chat || !json)
        return mmi_fail(MM_ERR_ARG, "mm_chat_add_json: %s is NULL", !chat ? "chat" : "json");
    mmi_json *value = NULL;
    mm_status status = mmi_json_parse(json, length, "messages", &value);
    size_t list = mmi_json_what(value) == MMI_JSON_ARRAY, depth = mmi_json_depth(json, length);
    if (status == MM_OK && depth > MMI_CHAT_DEPTH + list)
        status = mmi_fail(MM_ERR_FORMAT,
                          "messages: one is nested %zu levels deep, at most %d can be read back with its conversation",
                          depth - list, MMI_CHAT_DEPTH);
    if (status == MM_OK)
        status = mmi_chat_add_value(chat, value);
    mmi_json_free(value);
    return status;
}

mm_status mmi_chat_set_tools(mm_chat *chat, mmi_json *value)
{
    mmi_json_kind kind = mmi_json_what(value);
    if (kind != MMI_JSON_ARRAY && kind != MMI_JSON_NULL && kind != MMI_JSON_NONE)
        return mmi_fail(MM_ERR_FORMAT, "tools: it is %s, not a list", mmi_json_kind_name(kind));
    mmi_json_free(chat->tools);
    chat->tools = kind == MMI_JSON_ARRAY ? mmi_json_share(value) : NULL;
    return MM_OK;
}

mm_status mm_chat_set_tools_json(mm_chat *chat, const char *json, size_t length)
{
    if (!chat || (!json && length > 0))
        return mmi_fail(MM_ERR_ARG, "mm_chat_set_tools_json: %s is NULL", !chat ? "chat" : "json");
    mmi_json *value = NULL;
    mm_status status = json ? mmi_json_parse(json, length, "tools", &value) : MM_OK;
    if (status == MM_OK)
        status = mmi_chat_set_tools(chat, value);
    mmi_json_free(value);
    return status;
}

size_t mm_chat_count(const mm_chat *chat)
{
    return chat ? chat->count : 0;
}

mm_status mm_chat_remove(mm_chat *chat, size_t first, size_t count)
{
    if (!chat)
        return mmi_fail(MM_ERR_ARG, "mm_chat_remove: chat is NULL");
    if (first > chat->count || count > chat->count - first)
        return mmi_fail(MM_ERR_ARG, "mm_chat_remove: %zu messages from number %zu on, there are %zu in all", count,
                        first, chat->count);
    drop(chat, first, count);
    return MM_OK;
}

mm_status mm_chat_truncate(mm_chat *chat, size_t count)
{
    if (!chat)
        return mmi_fail(MM_ERR_ARG, "mm_chat_truncate: chat is NULL");
    if (count > chat->count)
        return mmi_fail(MM_ERR_ARG, "mm_chat_truncate: to %zu messages, there are %zu", count, chat->count);
    drop(chat, count, chat->count - count);
    return MM_OK;
}

mm_status mm_chat_write_json(const mm_chat *chat, char *text, size_t capacity, size_t *needed)
{
    if (!chat || (!text && capacity > 0))
        return mmi_fail(MM_ERR_ARG, "mm_chat_write_json: %s is NULL", !chat ? "chat" : "text");
    mmi_chat_text out = { 0 };
    for (size_t i = 0; i < chat->count; i++) {
        mmi_chat_text_put(&out, i == 0 ? MMI_SLICE("[") : MMI_SLICE(", "));
        mmi_chat_text_put_json(&out, chat->messages[i]);
    }
    mmi_chat_text_put(&out, chat->count == 0 ? MMI_SLICE("[]") : MMI_SLICE("]"));
    mm_status status = mmi_chat_text_status(&out);
    if (status == MM_OK)
        status = mmi_give_bytes(text, capacity, needed, out.bytes, out.length, "mm_chat_write_json");
    mmi_chat_text_free(&out);
    return status;
}

mmi_slice mmi_chat_role(const mm_chat *chat, size_t index)
{
    mmi_slice role = { NULL, 0 };
    role.at = mmi_json_string(mmi_json_get(chat->messages[index], "role"), &role.length);
    return role;
}

bool mmi_chat_role_is(const mm_chat *chat, size_t index, const char *role)
{
    return mmi_slice_is(mmi_chat_role(chat, index), (mmi_slice){ role, strlen(role) });
}
