/* Templates without tools: MiniMind2's, and the caller's own role strings. */
#include "text/chat_forms.h"

#define SHOWN 32 /* bytes of a role in messages */

mm_status mmi_chat_need_content(mmi_slice *content, const mm_chat *chat, size_t index)
{
    const mmi_json *value = mmi_json_get(chat->messages[index], "content");
    mmi_slice role = mmi_chat_role(chat, index);
    content->at = mmi_json_string(value, &content->length);
    if (content->at)
        return MM_OK;
    return mmi_fail(MM_ERR_FORMAT, "messages[%zu] (%.*s): \"content\" is %s, not a string", index,
                    (int)(role.length < SHOWN ? role.length : SHOWN), role.at,
                    mmi_json_kind_name(mmi_json_what(value)));
}

mm_status mmi_chat_put_minimind2(mmi_chat_text *out, const mm_chat *chat)
{
    if (!mmi_chat_role_is(chat, 0, "system"))
        MMI_PUT_OWN(out, MMI_DEFAULT_SYSTEM);
    for (size_t i = 0; i < chat->count; i++) {
        bool system = i == 0 && mmi_chat_role_is(chat, i, "system");
        bool user = mmi_chat_role_is(chat, i, "user");
        if (!system && !user && !mmi_chat_role_is(chat, i, "assistant"))
            continue;
        mmi_slice content;
        mm_status status = mmi_chat_need_content(&content, chat, i);
        if (status != MM_OK)
            return status;
        if (system)
            MMI_PUT_OWN(out, "<|im_start|>system\n");
        else if (user)
            MMI_PUT_OWN(out, "<|im_start|>user\n");
        mmi_chat_text_put(out, content);
        MMI_PUT_OWN(out, "<|im_end|>\n");
        if (user)
            MMI_PUT_OWN(out, "<|im_start|>assistant\n");
    }
    return MM_OK;
}

static void put_string(mmi_chat_text *out, const char *string)
{
    if (string)
        mmi_chat_text_put_own(out, (mmi_slice){ string, strlen(string) });
}

mm_status mmi_chat_put_roles(mmi_chat_text *out, const mm_chat *chat, const mm_chat_roles *roles,
                             int32_t add_generation_prompt)
{
    const struct {
        const char *role, *prefix, *suffix;
    } turns[] = {
        { "system", roles->system_prefix, roles->system_suffix },
        { "user", roles->user_prefix, roles->user_suffix },
        { "assistant", roles->assistant_prefix, roles->assistant_suffix },
        { "tool", roles->tool_prefix, roles->tool_suffix },
    };
    put_string(out, roles->begin);
    if (roles->default_system && !mmi_chat_role_is(chat, 0, "system")) {
        put_string(out, roles->system_prefix);
        put_string(out, roles->default_system);
        put_string(out, roles->system_suffix);
    }
    for (size_t i = 0; i < chat->count; i++) {
        mmi_slice content, role = mmi_chat_role(chat, i);
        size_t turn = 0;
        while (turn < 4 && !mmi_chat_role_is(chat, i, turns[turn].role))
            turn++;
        if (turn == 4)
            return mmi_fail(MM_ERR_FORMAT, "messages[%zu]: there are no strings for the role \"%.*s\"", i,
                            (int)(role.length < SHOWN ? role.length : SHOWN), role.at);
        if (mmi_json_size(mmi_json_get(chat->messages[i], "tool_calls")) > 0)
            return mmi_fail(MM_ERR_UNSUPPORTED, "messages[%zu]: role strings have no place for tool calls", i);
        mm_status status = mmi_chat_need_content(&content, chat, i);
        if (status != MM_OK)
            return status;
        put_string(out, turns[turn].prefix);
        mmi_chat_text_put(out, content);
        put_string(out, turns[turn].suffix);
    }
    if (add_generation_prompt)
        put_string(out, roles->generation_prompt ? roles->generation_prompt : roles->assistant_prefix);
    return MM_OK;
}
