/* Replies taken apart. */
#include "text_support.h"

#include "text/chat.h"
#include "text/utf8.h"

static mm_chat_reply *parse(const char *text, int32_t in_thought)
{
    mm_chat_reply *reply = NULL;
    ck_ok(mm_chat_parse(text, strlen(text), in_thought, &reply));
    return reply;
}

/* `reasoning` NULL: there is none. */
static void check_split(const char *text, int32_t in_thought, const char *reasoning, const char *content, int32_t flags)
{
    size_t length = 999;
    mm_chat_reply *reply = parse(text, in_thought);
    ck_assert_str_eq(mm_chat_reply_content(reply, &length), content);
    ck_assert_uint_eq(length, strlen(content));
    const char *thought = mm_chat_reply_reasoning(reply, &length);
    if (reasoning)
        ck_assert_msg(thought && strcmp(thought, reasoning) == 0, "%s: the reasoning is \"%s\"", text, thought);
    else
        ck_assert_msg(!thought && length == 0, "%s: there is reasoning", text);
    ck_assert_int_eq(mm_chat_reply_flags(reply), flags);
    mm_chat_reply_free(reply);
}

START_TEST(reasoning_is_told_from_what_is_said)
{
    check_split("", 0, NULL, "", 0);
    check_split("plain\n", 0, NULL, "plain\n", 0);
    check_split("<think>\nwhy\n</think>\n\nbecause\n", 0, "why", "because\n", 0);
    check_split("<think>\n\n</think>\n\nplain", 0, "", "plain", 0);
    check_split("<think></think>", 0, "", "", 0);
    check_split("\n <think>why</think>because", 0, "why", "because", 0);
    check_split("no opening</think>\nresult", 0, "no opening", "result", 0);
    check_split("why\n</think>\n\nbecause", 1, "why", "because", 0);
    check_split("<think>\nagain</think>x", 1, "again", "x", 0);
    check_split("so <think> is a word</think>x", 1, "so <think> is a word", "x", 0);
    check_split("First.<think>why</think>\n\nThen.", 0, "why", "First.Then.", 0);
    check_split("<think>a</think>b<think>c</think>d", 0, "a", "b<think>c</think>d", 0);
    check_split("<think>\n a \n</think>  b", 0, " a ", "  b", 0);
}
END_TEST

START_TEST(a_block_that_never_closed_reaches_to_the_end)
{
    check_split("<think>\nand then", 0, "and then", "", MM_REPLY_OPEN_REASONING);
    check_split("<think>", 0, "", "", MM_REPLY_OPEN_REASONING);
    check_split("and then", 1, "and then", "", MM_REPLY_OPEN_REASONING);
    check_split("", 1, "", "", MM_REPLY_OPEN_REASONING);
    check_split("<think>a<tool_call>{}", 0, "a<tool_call>{}", "", MM_REPLY_OPEN_REASONING);
    check_split("a <think> amid words is a word", 0, NULL, "a <think> amid words is a word", 0);
    check_split("<thin", 0, NULL, "<thin", 0);
    check_split("</thin", 0, NULL, "</thin", 0);
}
END_TEST

START_TEST(a_reply_ends_where_its_turn_ends)
{
    check_split("done<|im_end|>\n<|im_start|>user\nmore", 0, NULL, "done", 0);
    check_split("done<|endoftext|>more<|im_end|>", 0, NULL, "done", 0);
    check_split("<think>a<|im_end|></think>b", 0, "a", "", MM_REPLY_OPEN_REASONING);
}
END_TEST

static void check_call(const mm_chat_reply *reply, size_t index, const char *name, const char *arguments)
{
    mm_tool_call call = MM_TOOL_CALL_INIT;
    ck_ok(mm_chat_reply_call(reply, index, &call));
    ck_assert_int_eq(call.status, MM_OK);
    ck_assert_str_eq(call.name, name);
    ck_assert_uint_eq(call.name_length, strlen(name));
    ck_assert_str_eq(call.arguments, arguments);
    ck_assert_uint_eq(call.arguments_length, strlen(arguments));
    ck_assert_str_eq(call.problem, "");
}

START_TEST(tool_calls_are_read_with_their_arguments_as_json)
{
    mm_chat_reply *reply = parse("Let me look.\n<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\":\"北京\",\"d\":1.0}}\n"
                                 "</tool_call>\n<tool_call>{\"function\": {\"name\": \"ping\"}, \"id\": 3}</tool_call>\n"
                                 "<tool_call>{\"name\": \"q\", \"arguments\": \"{\\\"a\\\":1}\"}</tool_call>\n",
                                 0);
    ck_assert_str_eq(mm_chat_reply_content(reply, NULL), "Let me look.");
    ck_assert_ptr_null(mm_chat_reply_reasoning(reply, NULL));
    ck_assert_uint_eq(mm_chat_reply_call_count(reply), 3);
    check_call(reply, 0, "weather", "{\"city\": \"北京\", \"d\": 1.0}");
    check_call(reply, 1, "ping", "{}");
    check_call(reply, 2, "q", "{\"a\":1}");
    ck_assert_int_eq(mm_chat_reply_flags(reply), 0);
    mm_tool_call call = MM_TOOL_CALL_INIT;
    ck_ok(mm_chat_reply_call(reply, 1, &call));
    ck_assert_str_eq(call.raw, "{\"function\": {\"name\": \"ping\"}, \"id\": 3}");
    ck_status(mm_chat_reply_call(reply, 3, &call), MM_ERR_ARG);
    ck_error_mentions("no call 3");
    mm_chat_reply_free(reply);
}
END_TEST

START_TEST(a_call_that_cannot_be_read_is_kept_as_the_model_wrote_it)
{
    static const struct {
        const char *raw, *problem;
    } cases[] = {
        { "", "line 1" },
        { "\n{\"name\": \"x\", \"arguments\": {}\n", "line" },
        { "ping()", "line 1" },
        { "[1]", "not an object" },
        { "{\"arguments\": {}}", "no \"name\"" },
        { "{\"name\": 3, \"arguments\": {}}", "no \"name\"" },
        { "{\"name\": \"x\", \"arguments\": [1]}", "\"arguments\" is not an object" },
        { "{\"name\": \"x\", \"arguments\": null}", "\"arguments\" is not an object" },
        { "{\"name\": \"x\"}}", "goes on behind its value" },
        { "{\"name\": \"\\北京\"}", "invalid escape" },
    };
    ck_status(mm_chat_create(NULL), MM_ERR_ARG);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[256], said[256];
        mm_tool_call call = MM_TOOL_CALL_INIT;
        snprintf(text, sizeof text, "<think>t</think>\n\nwords\n<tool_call>%s</tool_call>", cases[i].raw);
        snprintf(said, sizeof said, "words\n<tool_call>%s</tool_call>", cases[i].raw);
        mm_chat_reply *reply = parse(text, 0);
        ck_assert_int_eq(mm_chat_reply_flags(reply), MM_REPLY_BAD_CALL);
        ck_assert_uint_eq(mm_chat_reply_call_count(reply), 1);
        ck_ok(mm_chat_reply_call(reply, 0, &call));
        ck_assert_int_eq(call.status, MM_ERR_FORMAT);
        ck_assert_str_eq(call.raw, cases[i].raw);
        ck_assert_uint_eq(call.raw_length, strlen(cases[i].raw));
        ck_assert_str_eq(call.name, "");
        ck_assert_str_eq(call.arguments, "");
        ck_assert_msg(strstr(call.problem, cases[i].problem) != NULL, "%s: %s", cases[i].raw, call.problem);
        ck_assert_uint_eq(mmi_utf8_valid(call.problem, strlen(call.problem)), strlen(call.problem));
        ck_assert_str_eq(mm_chat_reply_content(reply, NULL), "words");
        /* A message keeps all the model said. */
        size_t length = 0;
        const char *json = mm_chat_reply_json(reply, &length);
        mmi_json *message = NULL;
        ck_ok(mmi_json_parse(json, length, "message", &message));
        ck_assert_str_eq(mmi_json_string(mmi_json_get(message, "content"), NULL), said);
        ck_assert_str_eq(mmi_json_string(mmi_json_get(message, "reasoning_content"), NULL), "t");
        ck_assert_ptr_null(mmi_json_get(message, "tool_calls"));
        mmi_json_free(message);
        mm_chat_reply_free(reply);
        ck_error_mentions("mm_chat_create"); /* a call that succeeds leaves the last error alone */
    }
}
END_TEST

/* A reply with one call, whose arguments are `depth` levels deep. Free it. */
static char *nested_call(size_t depth)
{
    static const char head[] = "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": ";
    char *text = malloc(2 * depth + 256);
    ck_assert_ptr_nonnull(text);
    char *at = text + sprintf(text, "%s", head);
    memset(at, '[', depth - 1);
    memset(at + depth - 1, ']', depth - 1);
    sprintf(at + 2 * (depth - 1), "}}</tool_call>");
    return text;
}

/* Is the message that `reply` gives taken, written with its conversation, and taken again, also as a data set's row? */
static void check_read_back(const mm_chat_reply *reply)
{
    mm_chat *chat = NULL, *again = NULL;
    size_t length = 0, needed = 0;
    const char *json = mm_chat_reply_json(reply, &length);
    ck_ok(mm_chat_create(&chat));
    ck_ok(mm_chat_create(&again));
    ck_ok(mm_chat_add_json(chat, json, length));
    ck_ok(mm_chat_write_json(chat, NULL, 0, &needed));
    char *row = malloc(needed + 64);
    ck_assert_ptr_nonnull(row);
    size_t head = (size_t)sprintf(row, "{\"conversations\": ");
    ck_ok(mm_chat_write_json(chat, row + head, needed, &needed));
    ck_ok(mm_chat_add_json(again, row + head, needed));
    row[head + needed] = '}';
    mmi_json *value = NULL;
    ck_ok(mmi_json_parse(row, head + needed + 1, "a row", &value));
    mmi_json_free(value);
    free(row);
    mm_chat_free(again);
    mm_chat_free(chat);
}

START_TEST(calls_however_deep_are_messages_that_can_be_read_back)
{
    for (size_t depth = 240; depth <= 260; depth++) {
        char *text = nested_call(depth);
        mm_chat_reply *reply = parse(text, 0);
        mm_tool_call call = MM_TOOL_CALL_INIT;
        ck_ok(mm_chat_reply_call(reply, 0, &call));
        bool taken = depth <= 250;
        ck_assert_msg((call.status == MM_OK) == taken, "%zu levels: %s", depth, call.problem);
        ck_assert_int_eq(mm_chat_reply_flags(reply), taken ? 0 : MM_REPLY_BAD_CALL);
        ck_assert(taken || strstr(call.problem, "levels deep"));
        check_read_back(reply);
        mm_chat_reply_free(reply);
        free(text);
    }
}
END_TEST

START_TEST(a_call_that_never_closed_counts_if_it_is_whole)
{
    mm_chat_reply *reply = parse("<tool_call>\n{\"name\": \"x\", \"arguments\": {}}\n<|im_end|>", 0);
    ck_assert_int_eq(mm_chat_reply_flags(reply), MM_REPLY_OPEN_CALL);
    check_call(reply, 0, "x", "{}");
    mm_chat_reply_free(reply);
    reply = parse("ok\n<tool_call>\n{\"name\": \"x\", \"argu", 0);
    ck_assert_int_eq(mm_chat_reply_flags(reply), MM_REPLY_OPEN_CALL | MM_REPLY_BAD_CALL);
    ck_assert_str_eq(mm_chat_reply_content(reply, NULL), "ok");
    ck_assert_str_eq(mm_chat_reply_json(reply, NULL),
                     "{\"role\": \"assistant\", \"content\": \"ok\\n<tool_call>\\n{\\\"name\\\": \\\"x\\\", \\\"argu\"}");
    mm_chat_reply_free(reply);
}
END_TEST

/* What minimind3 prints for an assistant's message, from its header to its end. */
static size_t render(char *out, size_t room, const char *json, size_t length)
{
    static const char header[] = "<|im_start|>assistant\n";
    mm_chat *chat = NULL;
    size_t size = 0;
    mm_chat_options options = MM_CHAT_OPTIONS_INIT;
    options.template_name = "minimind3";
    ck_ok(mm_chat_create(&chat));
    ck_ok(mm_chat_add_json(chat, json, length));
    ck_ok(mm_chat_format(chat, NULL, &options, out, room - 1, &size));
    mm_chat_free(chat);
    size -= sizeof header - 1;
    memmove(out, out + sizeof header - 1, size);
    out[size] = '\0';
    return size;
}

START_TEST(a_message_rendered_and_parsed_is_the_same_message)
{
    static const char *const messages[] = {
        "{\"role\": \"assistant\", \"content\": \"hi\", \"reasoning_content\": \"\"}",
        "{\"role\": \"assistant\", \"content\": \"\", \"reasoning_content\": \"two\\n\\nlines\"}",
        "{\"role\": \"assistant\", \"content\": \"a\\n\", \"reasoning_content\": \"r\", \"tool_calls\": [{\"type\": \"function\", "
        "\"function\": {\"name\": \"x\", \"arguments\": {\"n\": 1e-07, \"s\": \"\\u0000\\\"\", \"l\": [true, null, -0.0]}}}]}",
        "{\"role\": \"assistant\", \"content\": \"\", \"reasoning_content\": \"\", \"tool_calls\": [{\"type\": \"function\", "
        "\"function\": {\"name\": \"x\", \"arguments\": {}}}, {\"type\": \"function\", \"function\": {\"name\": \"y\", "
        "\"arguments\": {\"k\": {}}}}]}",
    };
    for (size_t i = 0; i < sizeof messages / sizeof *messages; i++) {
        char text[1024], again[1024];
        size_t length = 0, size = render(text, sizeof text, messages[i], strlen(messages[i]));
        mm_chat_reply *reply = NULL;
        ck_ok(mm_chat_parse(text, size, 0, &reply));
        const char *json = mm_chat_reply_json(reply, &length);
        ck_assert_str_eq(json, messages[i]);
        ck_assert_uint_eq(render(again, sizeof again, json, length), size);
        ck_assert_mem_eq(again, text, size);
        mm_chat_reply_free(reply);
    }
}
END_TEST

START_TEST(any_text_is_taken_apart_and_its_message_renders)
{
    static const char *const parts[] = { "<think>", "</think>", "<tool_call>", "</tool_call>", "\n", "{", "}", "\"",
                                         "{\"name\": \"x\", \"arguments\": {}}", "<|im_end|>", "中", " ", "a", "\\" };
    test_rng rng = { 5 };
    for (int round = 0; round < 3000; round++) {
        char text[1024] = "", out[8192];
        for (int n = rng_between(&rng, 0, 12); n > 0; n--)
            strcat(text, parts[rng_between(&rng, 0, (int)(sizeof parts / sizeof *parts) - 1)]);
        mm_chat_reply *reply = parse(text, rng_between(&rng, 0, 1));
        size_t length;
        const char *json = mm_chat_reply_json(reply, &length);
        ck_assert_uint_eq(length, strlen(json));
        render(out, sizeof out, json, length);
        bool bad = false;
        for (size_t i = 0; i < mm_chat_reply_call_count(reply); i++) {
            mm_tool_call call = MM_TOOL_CALL_INIT;
            ck_ok(mm_chat_reply_call(reply, i, &call));
            bad = bad || call.status != MM_OK;
        }
        ck_assert_int_eq(bad, (mm_chat_reply_flags(reply) & MM_REPLY_BAD_CALL) != 0);
        mm_chat_reply_free(reply);
    }
}
END_TEST

START_TEST(bad_arguments_are_refused)
{
    mm_chat_reply *reply = NULL;
    mm_tool_call call = MM_TOOL_CALL_INIT;
    size_t length = 9;
    ck_status(mm_chat_parse(NULL, 1, 0, &reply), MM_ERR_ARG);
    ck_status(mm_chat_parse("x", 1, 0, NULL), MM_ERR_ARG);
    ck_status(mm_chat_parse("x", 1, 2, &reply), MM_ERR_ARG);
    ck_error_mentions("in_thought is 2");
    ck_status(mm_chat_parse("ab\xE4\xB8", 4, 0, &reply), MM_ERR_ARG);
    ck_error_mentions("not UTF-8 at byte 2");
    ck_assert_ptr_null(reply);
    ck_status(mm_chat_reply_call(NULL, 0, &call), MM_ERR_ARG);
    ck_assert_ptr_null(mm_chat_reply_content(NULL, &length));
    ck_assert_uint_eq(length, 0);
    ck_assert_ptr_null(mm_chat_reply_reasoning(NULL, NULL));
    ck_assert_ptr_null(mm_chat_reply_json(NULL, NULL));
    ck_assert_int_eq(mm_chat_reply_flags(NULL), 0);
    ck_assert_uint_eq(mm_chat_reply_call_count(NULL), 0);
    mm_chat_reply_free(NULL);
    ck_ok(mm_chat_parse(NULL, 0, 0, &reply));
    ck_status(mm_chat_reply_call(reply, 0, NULL), MM_ERR_ARG);
    mm_chat_reply_free(reply);
}
END_TEST

START_TEST(a_long_reply_takes_time_in_proportion)
{
    static const char part[] = "<tool_call>{</tool_call>\n<think";
    size_t length = (size_t)1 << 20;
    char *text = malloc(length);
    ck_assert_ptr_nonnull(text);
    for (size_t i = 0; i < length; i++)
        text[i] = part[i % (sizeof part - 1)];
    mm_chat_reply *reply = NULL;
    ck_ok(mm_chat_parse(text, length, 0, &reply));
    ck_assert_uint_gt(mm_chat_reply_call_count(reply), length / sizeof part - 2);
    mm_chat_reply_free(reply);
    free(text);
}
END_TEST

START_TEST(running_out_of_memory_anywhere_is_a_status_and_leaks_nothing)
{
    static const char text[] = "<think>a</think>b\n<tool_call>{\"name\": \"x\", \"arguments\": {\"a\": 1}}</tool_call>\n"
                               "<tool_call>bad</tool_call>c";
    mm_memory_usage before = MM_MEMORY_USAGE_INIT, after = MM_MEMORY_USAGE_INIT;
    ck_ok(mm_memory_get_usage(&before));
    uint64_t n = 1;
    for (mm_status status = MM_ERR_MEMORY; status != MM_OK; n++) {
        mm_chat_reply *reply = NULL;
        mmi_memory_fail_at(n, false);
        status = mm_chat_parse(text, sizeof text - 1, 0, &reply);
        mmi_memory_fail_at(0, false);
        ck_assert(status == MM_OK || (status == MM_ERR_MEMORY && !reply));
        mm_chat_reply_free(reply);
        ck_ok(mm_memory_get_usage(&after));
        ck_assert_uint_eq(after.current, before.current);
    }
    ck_assert_uint_gt(n, 10);
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("chat_parse");
    TCase *tc = tcase_create("replies");
    tcase_set_timeout(tc, 120);
    tcase_add_test(tc, reasoning_is_told_from_what_is_said);
    tcase_add_test(tc, a_block_that_never_closed_reaches_to_the_end);
    tcase_add_test(tc, a_reply_ends_where_its_turn_ends);
    tcase_add_test(tc, tool_calls_are_read_with_their_arguments_as_json);
    tcase_add_test(tc, a_call_that_cannot_be_read_is_kept_as_the_model_wrote_it);
    tcase_add_test(tc, calls_however_deep_are_messages_that_can_be_read_back);
    tcase_add_test(tc, a_call_that_never_closed_counts_if_it_is_whole);
    tcase_add_test(tc, a_message_rendered_and_parsed_is_the_same_message);
    tcase_add_test(tc, any_text_is_taken_apart_and_its_message_renders);
    tcase_add_test(tc, bad_arguments_are_refused);
    tcase_add_test(tc, a_long_reply_takes_time_in_proportion);
    tcase_add_test(tc, running_out_of_memory_anywhere_is_a_status_and_leaks_nothing);
    suite_add_tcase(suite, tc);
    return suite;
}

int main(void)
{
    return run_suite(make_suite());
}
