/* A conversation in JSON, rendered by every template; the same bytes as tools, and as a model's reply. */
#include <string.h>

#include "base/memory.h"
#include "fuzz.h"
#include "text/chat.h"
#include "text/tokenizer.h"

/* fuzz_tokenizer() with what stands round tools, as a directory's minimind3 would bring it. */
static const mm_tokenizer *tool_tokenizer(void)
{
    mm_tokenizer *t = fuzz_tokenizer();
    if (!t->chat.tools_head) {
        t->chat.tools_head = mmi_strdup("# Tools\n<tools>");
        t->chat.tools_tail = mmi_strdup("\n</tools><|im_end|>\n");
        MUST(t->chat.tools_head && t->chat.tools_tail);
    }
    return t;
}

/* With `tools` there are some, which every template takes and role strings refuse. */
static void render(const mm_chat *chat, bool tools)
{
    static const char *const names[] = { "minimind2", "minimind3", "minillm" };
    mm_chat_roles roles = MM_CHAT_ROLES_INIT;
    char text[8192];
    int32_t ids[8192];
    size_t needed = 0, count = 0;
    for (int32_t i = 0; i < 12; i++) {
        mm_chat_options options = MM_CHAT_OPTIONS_INIT;
        options.template_name = i < 9 ? names[i % 3] : NULL;
        options.roles = i < 9 ? NULL : &roles;
        options.add_generation_prompt = i > 2;
        options.thinking = i < 9 ? i / 3 : 0;
        options.content_split = i % 2;
        mm_status status = mm_chat_format(chat, tool_tokenizer(), &options, text, sizeof text, &needed);
        MUST(status == MM_OK || refused(status));
        if (tools)
            MUST(i < 9 ? status == MM_OK || needed > sizeof text : status == MM_ERR_UNSUPPORTED);
        if (status == MM_OK)
            MUST(mm_chat_encode(chat, tool_tokenizer(), &options, ids, 8192, &count) == MM_OK || count > 8192);
    }
}

static mm_status add_messages(mm_chat *chat, const char *text, size_t size)
{
    size_t before = mm_chat_count(chat);
    mm_status status = mm_chat_add_json(chat, text, size);
    MUST(status == MM_OK || (refused(status) && mm_chat_count(chat) == before));
    return status;
}

/* As tools, with a message that is always there, and then behind that as messages too. */
static void render_tools(const char *text, size_t size)
{
    mm_chat *chat = NULL;
    MUST(mm_chat_create(&chat) == MM_OK);
    mm_status status = mm_chat_set_tools_json(chat, text, size);
    MUST(status == MM_OK || refused(status));
    MUST(mm_chat_add(chat, size & 1 ? "system" : "user", "x", 1) == MM_OK);
    render(chat, mmi_json_size(chat->tools) > 0);
    if (add_messages(chat, text, size) == MM_OK)
        render(chat, false);
    mm_chat_free(chat);
}

static void write_again(const mm_chat *chat)
{
    size_t needed = 0, twice = 0;
    MUST(mm_chat_write_json(chat, NULL, 0, &needed) == MM_OK);
    char *json = malloc(2 * needed + 1), *second = json ? json + needed : NULL;
    mm_chat *again = NULL;
    MUST(json && mm_chat_write_json(chat, json, needed, &needed) == MM_OK);
    MUST(mm_chat_create(&again) == MM_OK && mm_chat_add_json(again, json, needed) == MM_OK);
    MUST(mm_chat_count(again) == mm_chat_count(chat));
    MUST(mm_chat_write_json(again, second, needed, &twice) == MM_OK);
    MUST(twice == needed && memcmp(json, second, needed) == 0);
    mm_chat_free(again);
    free(json);
}

static void parse(const char *text, size_t size, int32_t in_thought)
{
    mm_chat_reply *reply = NULL;
    mm_status status = mm_chat_parse(text, size, in_thought, &reply);
    MUST(status == MM_OK || refused(status));
    if (status != MM_OK)
        return;
    size_t length = 0;
    MUST(mm_chat_reply_content(reply, &length) != NULL);
    mm_chat_reply_reasoning(reply, &length);
    for (size_t i = 0; i < mm_chat_reply_call_count(reply); i++) {
        mm_tool_call call = MM_TOOL_CALL_INIT;
        MUST(mm_chat_reply_call(reply, i, &call) == MM_OK);
        MUST(call.name && call.arguments && call.raw && call.problem && strlen(call.raw) <= call.raw_length);
    }
    mm_chat *chat = NULL;
    const char *json = mm_chat_reply_json(reply, &length);
    MUST(json && mm_chat_create(&chat) == MM_OK && mm_chat_add_json(chat, json, length) == MM_OK);
    mm_chat_free(chat);
    mm_chat_reply_free(reply);
}

static void render_messages(const char *text, size_t size)
{
    mm_chat *chat = NULL;
    MUST(mm_chat_create(&chat) == MM_OK);
    if (add_messages(chat, text, size) == MM_OK) {
        render(chat, false);
        write_again(chat);
    }
    mm_chat_free(chat);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *text = (const char *)data;
    render_tools(text, size);
    render_messages(text, size);
    parse(text, size, size & 1);
    return 0;
}
