/* A model's reply taken apart: reasoning, words, tool calls. What a small model writes is often not quite in form, so
 * nothing here is an error of the reply's. */
#include <stdio.h>

#include "base/memory.h"
#include "base/options.h"
#include "text/chat.h"
#include "text/utf8.h"

MMI_OPTIONS_INIT(mm_tool_call, MM_TOOL_CALL_INIT)

#define STORY_SIZE 1024 /* a message of mm_last_error() */

/* Levels of arguments, within those of their message: {"tool_calls": [{"function": {"arguments": …}}]}. */
#define DEPTH_MAX (MMI_CHAT_DEPTH - 4)

typedef struct call {
    mmi_chat_text name, arguments, raw, problem;
    bool arguments_quoted; /* the model wrote them as a string */
    mm_status status;
} call;

struct mm_chat_reply {
    mmi_chat_text content, reasoning, json;
    call *calls;
    size_t count, room;
    int32_t flags;
    bool has_reasoning;
};

void mm_chat_reply_free(mm_chat_reply *reply)
{
    if (!reply)
        return;
    for (size_t i = 0; i < reply->count; i++) {
        mmi_chat_text_free(&reply->calls[i].name);
        mmi_chat_text_free(&reply->calls[i].arguments);
        mmi_chat_text_free(&reply->calls[i].raw);
        mmi_chat_text_free(&reply->calls[i].problem);
    }
    mmi_free(reply->calls);
    mmi_chat_text_free(&reply->content);
    mmi_chat_text_free(&reply->reasoning);
    mmi_chat_text_free(&reply->json);
    mmi_free(reply);
}

static mmi_slice slice_of(const mmi_chat_text *text)
{
    return (mmi_slice){ text->bytes, text->length };
}

/* Put an end to all of them; `status` goes on, unless something of them was lost. */
static mm_status end_texts(mmi_chat_text *const *texts, size_t count, mm_status status)
{
    for (size_t i = 0; i < count; i++) {
        mmi_chat_text_end(texts[i]);
        if (status == MM_OK)
            status = mmi_chat_text_status(texts[i]);
    }
    return status;
}

/* `s` up to the first `word`; what follows it goes to `rest`. False: there is none, all is as it was. */
static bool cut_at(mmi_slice *before, mmi_slice *rest, mmi_slice s, mmi_slice word)
{
    size_t at;
    if (!mmi_slice_find(&at, s, word))
        return false;
    *before = mmi_slice_head(s, at);
    *rest = mmi_slice_from(s, at + word.length);
    return true;
}

static bool is_blank(mmi_slice s)
{
    while (s.length > 0 && strchr(" \t\r\n", s.at[0]) && s.at[0] != '\0')
        s = mmi_slice_from(s, 1);
    return s.length == 0;
}

static mmi_slice up_to_the_end_of_turn(mmi_slice text)
{
    mmi_slice rest;
    cut_at(&text, &rest, text, MMI_SLICE("<|im_end|>"));
    cut_at(&text, &rest, text, MMI_SLICE("<|endoftext|>"));
    return text;
}

/* Puts the reasoning and, into `said`, all that is none. Upstream's models begin with a block whose opening may be part
 * of the prompt, or missing; a lone <think> amid words is a word. */
static void split_reasoning(mm_chat_reply *reply, mmi_chat_text *said, mmi_slice text, bool in_thought)
{
    mmi_slice before = { NULL, 0 }, thought = text, inside = text, rest = { NULL, 0 };
    bool closed = cut_at(&thought, &rest, text, MMI_SLICE("</think>"));
    bool opened = cut_at(&before, &inside, thought, MMI_SLICE("<think>"));
    if (opened && (is_blank(before) || (closed && !in_thought))) {
        thought = inside;
    } else if (closed || in_thought) {
        before.length = 0; /* all up to the end of the block */
    } else {
        mmi_chat_text_put(said, text);
        return;
    }
    reply->has_reasoning = true;
    reply->flags |= closed ? 0 : MM_REPLY_OPEN_REASONING;
    mmi_chat_text_put(&reply->reasoning, mmi_slice_cut_right(mmi_slice_cut_left(thought)));
    if (!is_blank(before))
        mmi_chat_text_put(said, before);
    mmi_chat_text_put(said, mmi_slice_cut_left(rest));
}

/* ---- Tool calls ---- */

static void put_problem(call *c, const char *problem)
{
    c->status = MM_ERR_FORMAT;
    mmi_chat_text_put(&c->problem, (mmi_slice){ problem, strlen(problem) });
}

/* What is wrong is kept with the call; mm_last_error() stays as it was, since the reply as such is read. */
static mm_status parse_json(call *c, mmi_json **out)
{
    char before[STORY_SIZE];
    snprintf(before, sizeof before, "%s", mm_last_error());
    mm_status status = mmi_json_parse(c->raw.bytes, c->raw.length, "tool call", out);
    if (status != MM_ERR_FORMAT)
        return status;
    put_problem(c, mm_last_error());
    return mmi_fail(MM_OK, "%s", before);
}

/* Arguments that can't be put into a message are no use to a program that goes on talking. */
static void check_depth(call *c)
{
    size_t depth = c->arguments_quoted ? 0 : mmi_json_depth(c->arguments.bytes, c->arguments.length);
    char problem[128];
    if (depth <= DEPTH_MAX)
        return;
    snprintf(problem, sizeof problem, "tool call: \"arguments\" is nested %zu levels deep, at most %d are taken", depth,
             DEPTH_MAX);
    put_problem(c, problem);
    c->name.length = c->arguments.length = 0;
}

static void read_call(call *c, mmi_json *value)
{
    mmi_json *function = mmi_json_get(value, "function");
    if (mmi_json_what(function) == MMI_JSON_OBJECT)
        value = function;
    mmi_slice name = { NULL, 0 }, text = { NULL, 0 };
    name.at = mmi_json_string(mmi_json_get(value, "name"), &name.length);
    mmi_json *arguments = mmi_json_get(value, "arguments");
    mmi_json_kind kind = mmi_json_what(arguments);
    if (mmi_json_what(value) != MMI_JSON_OBJECT)
        put_problem(c, "tool call: it is not an object");
    else if (!name.at || name.length == 0)
        put_problem(c, "tool call: it has no \"name\"");
    else if (kind != MMI_JSON_OBJECT && kind != MMI_JSON_STRING && kind != MMI_JSON_NONE)
        put_problem(c, "tool call: \"arguments\" is not an object");
    if (c->status != MM_OK)
        return;
    mmi_chat_text_put(&c->name, name);
    text.at = mmi_json_string(arguments, &text.length);
    c->arguments_quoted = text.at != NULL;
    if (text.at)
        mmi_chat_text_put(&c->arguments, text);
    else if (arguments)
        mmi_chat_text_put_json(&c->arguments, arguments);
    else
        mmi_chat_text_put(&c->arguments, MMI_SLICE("{}"));
    check_depth(c);
}

static mm_status add_call(mm_chat_reply *reply, mmi_slice raw)
{
    if (!mmi_grow(&reply->calls, &reply->room, reply->count + 1, sizeof *reply->calls))
        return mmi_fail_memory(sizeof *reply->calls, "a tool call");
    call *c = &reply->calls[reply->count++];
    *c = (call){ .status = MM_OK };
    mmi_chat_text_put(&c->raw, raw);
    mmi_chat_text_end(&c->raw);
    mm_status status = mmi_chat_text_status(&c->raw);
    mmi_json *value = NULL;
    if (status == MM_OK)
        status = parse_json(c, &value);
    if (value)
        read_call(c, value);
    mmi_json_free(value);
    mmi_chat_text *const texts[] = { &c->name, &c->arguments, &c->problem };
    status = end_texts(texts, sizeof texts / sizeof *texts, status);
    reply->flags |= c->status == MM_OK ? 0 : MM_REPLY_BAD_CALL;
    return status;
}

/* The blocks go to the calls, the rest to the content: without the newline that parts a block from what stands before.
 */
static mm_status split_calls(mm_chat_reply *reply, mmi_slice said)
{
    mmi_slice before, raw;
    mm_status status = MM_OK;
    while (status == MM_OK && cut_at(&before, &said, said, MMI_SLICE("<tool_call>"))) {
        if (before.length > 0 && before.at[before.length - 1] == '\n')
            before.length--;
        mmi_chat_text_put(&reply->content, before);
        if (!cut_at(&raw, &said, said, MMI_SLICE("</tool_call>"))) {
            reply->flags |= MM_REPLY_OPEN_CALL;
            raw = said;
            said.length = 0;
        }
        status = add_call(reply, raw);
        said = mmi_slice_cut_left(said);
    }
    mmi_chat_text_put(&reply->content, said);
    return status;
}

/* ---- The whole ---- */

static void put_calls_json(mmi_chat_text *json, const mm_chat_reply *reply)
{
    for (size_t i = 0; i < reply->count; i++) {
        const call *c = &reply->calls[i];
        mmi_chat_text_put(json, i == 0 ? MMI_SLICE(", \"tool_calls\": [") : MMI_SLICE(", "));
        mmi_chat_text_put(json, MMI_SLICE("{\"type\": \"function\", \"function\": {\"name\": "));
        mmi_chat_text_put_json_string(json, slice_of(&c->name));
        mmi_chat_text_put(json, MMI_SLICE(", \"arguments\": "));
        if (c->arguments_quoted)
            mmi_chat_text_put_json_string(json, slice_of(&c->arguments));
        else
            mmi_chat_text_put(json, slice_of(&c->arguments));
        mmi_chat_text_put(json, MMI_SLICE("}}"));
    }
    if (reply->count > 0)
        mmi_chat_text_put(json, MMI_SLICE("]"));
}

static void make_json(mm_chat_reply *reply, mmi_slice said)
{
    mmi_chat_text *json = &reply->json;
    bool bad = reply->flags & MM_REPLY_BAD_CALL;
    mmi_chat_text_put(json, MMI_SLICE("{\"role\": \"assistant\", \"content\": "));
    mmi_chat_text_put_json_string(json, bad ? said : slice_of(&reply->content));
    if (reply->has_reasoning) {
        mmi_chat_text_put(json, MMI_SLICE(", \"reasoning_content\": "));
        mmi_chat_text_put_json_string(json, slice_of(&reply->reasoning));
    }
    if (!bad)
        put_calls_json(json, reply);
    mmi_chat_text_put(json, MMI_SLICE("}"));
}

static mm_status parse(mm_chat_reply *reply, mmi_slice text, bool in_thought)
{
    mmi_chat_text said = { 0 };
    split_reasoning(reply, &said, up_to_the_end_of_turn(text), in_thought);
    mm_status status = mmi_chat_text_status(&said);
    if (status == MM_OK)
        status = split_calls(reply, slice_of(&said));
    if (status == MM_OK)
        make_json(reply, slice_of(&said));
    mmi_chat_text *const texts[] = { &reply->content, &reply->reasoning, &reply->json };
    status = end_texts(texts, sizeof texts / sizeof *texts, status);
    mmi_chat_text_free(&said);
    return status;
}

mm_status mm_chat_parse(const char *text, size_t length, int32_t in_thought, mm_chat_reply **out)
{
    if (!out || (!text && length > 0))
        return mmi_fail(MM_ERR_ARG, "mm_chat_parse: %s is NULL", !out ? "out" : "text");
    if (in_thought != 0 && in_thought != 1)
        return mmi_fail(MM_ERR_ARG, "mm_chat_parse: in_thought is %d, not 0 or 1", (int)in_thought);
    size_t good = mmi_utf8_valid(text, length);
    if (good < length)
        return mmi_fail(MM_ERR_ARG, "mm_chat_parse: the text is not UTF-8 at byte %zu (0x%02X)", good,
                        (unsigned char)text[good]);
    mm_chat_reply *reply = mmi_calloc(1, sizeof *reply);
    if (!reply)
        return mmi_fail_memory(sizeof *reply, "a reply");
    mm_status status = parse(reply, (mmi_slice){ text, length }, in_thought == 1);
    if (status == MM_OK)
        *out = reply;
    else
        mm_chat_reply_free(reply);
    return status;
}

/* ---- Questions ---- */

static const char *lend(const mmi_chat_text *text, size_t *length)
{
    if (length)
        *length = text ? text->length : 0;
    return text ? text->bytes : NULL;
}

const char *mm_chat_reply_content(const mm_chat_reply *reply, size_t *length)
{
    return lend(reply ? &reply->content : NULL, length);
}

const char *mm_chat_reply_reasoning(const mm_chat_reply *reply, size_t *length)
{
    return lend(reply && reply->has_reasoning ? &reply->reasoning : NULL, length);
}

const char *mm_chat_reply_json(const mm_chat_reply *reply, size_t *length)
{
    return lend(reply ? &reply->json : NULL, length);
}

int32_t mm_chat_reply_flags(const mm_chat_reply *reply)
{
    return reply ? reply->flags : 0;
}

size_t mm_chat_reply_call_count(const mm_chat_reply *reply)
{
    return reply ? reply->count : 0;
}

mm_status mm_chat_reply_call(const mm_chat_reply *reply, size_t index, mm_tool_call *out)
{
    if (!reply || !out)
        return mmi_fail(MM_ERR_ARG, "mm_chat_reply_call: %s is NULL", !reply ? "reply" : "out");
    if (index >= reply->count)
        return mmi_fail(MM_ERR_ARG, "mm_chat_reply_call: there is no call %zu, there are %zu", index, reply->count);
    const call *c = &reply->calls[index];
    const mm_tool_call result = { sizeof result,       c->name.bytes,    c->arguments.bytes,
                                  c->raw.bytes,        c->problem.bytes, c->name.length,
                                  c->arguments.length, c->raw.length,    c->status };
    return mmi_result_write(out, &result, sizeof result, "mm_tool_call");
}
