/* Templates with tools: MiniMind-3's and Mini-LLM's, which differ in the default system text, the assistant's words and
 * the generation prompt. */
#include "text/chat_forms.h"

typedef struct render {
    mmi_chat_text *out;
    const mm_chat *chat;
    const mm_chat_options *options;
    const mmi_chat_template *preface;
    bool thinks; /* MiniMind-3: every assistant turn has a <think> block */
} render;

/* What isn't a string counts as empty. */
static mmi_slice content_of(const mmi_json *message)
{
    mmi_slice content = { NULL, 0 };
    content.at = mmi_json_string(mmi_json_get(message, "content"), &content.length);
    return content;
}

static mm_status put_tools(const render *r)
{
    const mmi_chat_template *preface = r->preface;
    if (!preface->tools_head || !preface->tools_tail)
        return mmi_fail(MM_ERR_UNSUPPORTED,
                        "tools need the preface in the text of a tokenizer's own template (minimind3's or "
                        "minillm's), and the tokenizer at hand brought none");
    mmi_chat_text_put_own(r->out, (mmi_slice){ preface->tools_head, strlen(preface->tools_head) });
    for (size_t i = 0; i < mmi_json_size(r->chat->tools); i++) {
        MMI_PUT_OWN(r->out, "\n");
        mmi_chat_text_put_json(r->out, mmi_json_at(r->chat->tools, i));
    }
    mmi_chat_text_put_own(r->out, (mmi_slice){ preface->tools_tail, strlen(preface->tools_tail) });
    return MM_OK;
}

/* The turn before all others: the first message if that is system, and the tools. */
static mm_status put_start(const render *r)
{
    bool system = mmi_chat_role_is(r->chat, 0, "system");
    bool tools = mmi_json_size(r->chat->tools) > 0;
    if (!system && !tools) {
        if (!r->thinks)
            MMI_PUT_OWN(r->out, MMI_DEFAULT_SYSTEM);
        return MM_OK;
    }
    mmi_slice content = { NULL, 0 };
    mm_status status = system ? mmi_chat_need_content(&content, r->chat, 0) : MM_OK;
    if (status != MM_OK)
        return status;
    MMI_PUT_OWN(r->out, "<|im_start|>system\n");
    mmi_chat_text_put(r->out, content);
    if (tools && system)
        MMI_PUT_OWN(r->out, "\n\n");
    if (tools)
        return put_tools(r);
    MMI_PUT_OWN(r->out, "<|im_end|>\n");
    return MM_OK;
}

/* Takes reasoning out of the content, or from its own key. Text between the first and the last </think> is lost. */
static mmi_slice split_reasoning(mmi_slice *content, const mmi_json *message)
{
    mmi_slice reasoning = { NULL, 0 };
    const mmi_slice open = MMI_SLICE("<think>"), close = MMI_SLICE("</think>");
    reasoning.at = mmi_json_string(mmi_json_get(message, "reasoning_content"), &reasoning.length);
    size_t at;
    if (!reasoning.at && mmi_slice_find(&at, *content, close)) {
        reasoning = mmi_slice_cut_right(mmi_slice_head(*content, at));
        if (mmi_slice_find_last(&at, reasoning, open))
            reasoning = mmi_slice_from(reasoning, at + open.length);
        mmi_slice_find_last(&at, *content, close);
        *content = mmi_slice_cut_left(mmi_slice_from(*content, at + close.length));
    }
    return mmi_slice_cut_right(mmi_slice_cut_left(reasoning));
}

/* As Jinja judges values. */
static bool is_true(const mmi_json *value)
{
    size_t length = 0;
    switch (mmi_json_what(value)) {
    case MMI_JSON_BOOL:
        return mmi_json_bool(value, false);
    case MMI_JSON_INT:
    case MMI_JSON_REAL:
        return mmi_json_number(value, 0) != 0;
    case MMI_JSON_STRING:
        return mmi_json_string(value, &length) && length > 0;
    case MMI_JSON_ARRAY:
    case MMI_JSON_OBJECT:
        return mmi_json_size(value) > 0;
    default:
        return false;
    }
}

static mm_status wrong_call(size_t message, size_t call, const char *what, const mmi_json *value)
{
    return mmi_fail(MM_ERR_FORMAT, "messages[%zu]: tool_calls[%zu]%s is %s", message, call, what,
                    mmi_json_kind_name(mmi_json_what(value)));
}

static mm_status put_call(const render *r, mmi_json *call, size_t message, size_t index)
{
    mmi_json *function = mmi_json_get(call, "function");
    if (is_true(function))
        call = function;
    if (mmi_json_what(call) != MMI_JSON_OBJECT)
        return wrong_call(message, index, call == function ? ".function" : "", call);
    const mmi_json *name = mmi_json_get(call, "name");
    mmi_json *arguments = mmi_json_get(call, "arguments");
    if (mmi_json_what(name) != MMI_JSON_NONE && mmi_json_what(name) != MMI_JSON_STRING)
        return wrong_call(message, index, ".name", name);
    if (!arguments)
        return wrong_call(message, index, ".arguments", arguments);
    mmi_slice text = { NULL, 0 };
    text.at = mmi_json_string(name, &text.length);
    MMI_PUT_OWN(r->out, "<tool_call>\n{\"name\": \"");
    mmi_chat_text_put(r->out, text);
    MMI_PUT_OWN(r->out, "\", \"arguments\": ");
    text.at = mmi_json_string(arguments, &text.length);
    if (text.at)
        mmi_chat_text_put(r->out, text);
    else
        mmi_chat_text_put_json(r->out, arguments);
    MMI_PUT_OWN(r->out, "}\n</tool_call>");
    return MM_OK;
}

static mm_status put_calls(const render *r, const mmi_json *calls, bool after_content, size_t message)
{
    if (!is_true(calls))
        return MM_OK;
    if (mmi_json_what(calls) != MMI_JSON_ARRAY)
        return mmi_fail(MM_ERR_FORMAT, "messages[%zu]: \"tool_calls\" is %s, not a list", message,
                        mmi_json_kind_name(mmi_json_what(calls)));
    mm_status status = MM_OK;
    for (size_t i = 0; i < mmi_json_size(calls) && status == MM_OK; i++) {
        if (i > 0 || after_content)
            MMI_PUT_OWN(r->out, "\n");
        status = put_call(r, mmi_json_at(calls, i), message, i);
    }
    return status;
}

static mm_status put_assistant(const render *r, size_t index)
{
    const mmi_json *message = r->chat->messages[index];
    mmi_slice content = content_of(message);
    MMI_PUT_OWN(r->out, "<|im_start|>assistant\n");
    if (r->thinks) {
        mmi_slice reasoning = split_reasoning(&content, message);
        MMI_PUT_OWN(r->out, "<think>\n");
        mmi_chat_text_put(r->out, reasoning);
        MMI_PUT_OWN(r->out, "\n</think>\n\n");
    }
    mmi_chat_text_put(r->out, r->thinks ? mmi_slice_cut_left(content) : content);
    /* Whether a newline parts content and calls is judged before the content's own are cut. */
    mm_status status = put_calls(r, mmi_json_get(message, "tool_calls"), content.length > 0, index);
    MMI_PUT_OWN(r->out, "<|im_end|>\n");
    return status;
}

/* A run of tool messages is one user turn. */
static void put_tool(const render *r, size_t index)
{
    const mm_chat *chat = r->chat;
    if (index == 0 || !mmi_chat_role_is(chat, index - 1, "tool"))
        MMI_PUT_OWN(r->out, "<|im_start|>user");
    MMI_PUT_OWN(r->out, "\n<tool_response>\n");
    mmi_chat_text_put(r->out, content_of(chat->messages[index]));
    MMI_PUT_OWN(r->out, "\n</tool_response>");
    if (index + 1 == chat->count || !mmi_chat_role_is(chat, index + 1, "tool"))
        MMI_PUT_OWN(r->out, "<|im_end|>\n");
}

static mm_status put_message(const render *r, size_t index)
{
    bool system = index > 0 && mmi_chat_role_is(r->chat, index, "system");
    if (system || mmi_chat_role_is(r->chat, index, "user")) {
        mmi_chat_text_put_own(r->out, system ? MMI_SLICE("<|im_start|>system\n") : MMI_SLICE("<|im_start|>user\n"));
        mmi_chat_text_put(r->out, content_of(r->chat->messages[index]));
        MMI_PUT_OWN(r->out, "<|im_end|>\n");
    } else if (mmi_chat_role_is(r->chat, index, "assistant")) {
        return put_assistant(r, index);
    } else if (mmi_chat_role_is(r->chat, index, "tool")) {
        put_tool(r, index);
    }
    return MM_OK;
}

static void put_generation_prompt(const render *r)
{
    int32_t thinking = r->options->thinking;
    MMI_PUT_OWN(r->out, "<|im_start|>assistant\n");
    if (r->thinks && thinking == MM_THINK_ON)
        MMI_PUT_OWN(r->out, "<think>\n");
    else if (r->thinks || thinking == MM_THINK_OFF)
        MMI_PUT_OWN(r->out, "<think>\n\n</think>\n\n");
}

mm_status mmi_chat_put_with_tools(mmi_chat_text *out, const mm_chat *chat, mmi_chat_form form,
                                  const mm_chat_options *options, const mmi_chat_template *preface)
{
    const render r = { out, chat, options, preface, form == MMI_CHAT_MINIMIND3 };
    mm_status status = put_start(&r);
    for (size_t i = 0; i < chat->count && status == MM_OK; i++)
        status = put_message(&r, i);
    if (status == MM_OK && options->add_generation_prompt)
        put_generation_prompt(&r);
    return status;
}
