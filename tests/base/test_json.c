/* The door to Jansson: what is refused, what survives a round trip, what asks and answers mean. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/files.h"
#include "base/json.h"
#include "base/memory.h"
#include "support.h"

static mmi_json *parse(const char *text)
{
    mmi_json *value = NULL;
    ck_ok(mmi_json_parse(text, strlen(text), "text", &value));
    ck_assert_ptr_nonnull(value);
    return value;
}

START_TEST(questions_answer_by_kind_and_fall_back)
{
    mmi_json *o = parse(
        "{\"n\": 7, \"x\": 1.5, \"t\": true, \"f\": false, \"s\": \"hi\", \"a\": [1, 2, 3], \"o\": {}, \"z\": null}");
    ck_assert_int_eq(mmi_json_what(mmi_json_get(o, "n")), MMI_JSON_INT);
    ck_assert_int_eq(mmi_json_what(mmi_json_get(o, "x")), MMI_JSON_REAL);
    ck_assert_int_eq(mmi_json_what(mmi_json_get(o, "t")), MMI_JSON_BOOL);
    ck_assert_int_eq(mmi_json_what(mmi_json_get(o, "s")), MMI_JSON_STRING);
    ck_assert_int_eq(mmi_json_what(mmi_json_get(o, "a")), MMI_JSON_ARRAY);
    ck_assert_int_eq(mmi_json_what(mmi_json_get(o, "o")), MMI_JSON_OBJECT);
    ck_assert_int_eq(mmi_json_what(mmi_json_get(o, "z")), MMI_JSON_NULL);
    ck_assert_int_eq(mmi_json_what(mmi_json_get(o, "?")), MMI_JSON_NONE);
    ck_assert_int_eq(mmi_json_int(mmi_json_get(o, "n"), -1), 7);
    ck_assert_int_eq(mmi_json_int(mmi_json_get(o, "x"), -1), -1);
    ck_assert_double_eq(mmi_json_number(mmi_json_get(o, "x"), -1), 1.5);
    ck_assert_double_eq(mmi_json_number(mmi_json_get(o, "n"), -1), 7);
    ck_assert_double_eq(mmi_json_number(mmi_json_get(o, "s"), -1), -1);
    ck_assert(mmi_json_bool(mmi_json_get(o, "t"), false));
    ck_assert(!mmi_json_bool(mmi_json_get(o, "f"), true));
    ck_assert(mmi_json_bool(mmi_json_get(o, "n"), true));
    ck_assert_ptr_null(mmi_json_string(mmi_json_get(o, "n"), NULL));
    ck_assert_str_eq(mmi_json_string(mmi_json_get(o, "s"), NULL), "hi");
    ck_assert_uint_eq(mmi_json_size(mmi_json_get(o, "a")), 3);
    ck_assert_uint_eq(mmi_json_size(o), 8);
    ck_assert_int_eq(mmi_json_int(mmi_json_at(mmi_json_get(o, "a"), 2), -1), 3);
    ck_assert_ptr_null(mmi_json_at(mmi_json_get(o, "a"), 3));
    mmi_json_free(o);
}
END_TEST

START_TEST(questions_about_nothing_answer_absent)
{
    ck_assert_int_eq(mmi_json_what(NULL), MMI_JSON_NONE);
    ck_assert_ptr_null(mmi_json_get(NULL, "a"));
    ck_assert_ptr_null(mmi_json_at(NULL, 0));
    ck_assert_uint_eq(mmi_json_size(NULL), 0);
    ck_assert_int_eq(mmi_json_int(NULL, 9), 9);
    ck_assert_ptr_null(mmi_json_string(NULL, NULL));
    ck_assert_ptr_null(mmi_json_first(NULL));
    mmi_json_free(NULL);
    ck_assert_str_eq(mmi_json_kind_name(MMI_JSON_STRING), "a string");
    ck_assert_str_eq(mmi_json_kind_name(MMI_JSON_NONE), "absent");
}
END_TEST

START_TEST(what_is_not_one_json_value_is_refused)
{
    static const char *const wrong[] = {
        "",
        " ",
        "{",
        "{\"a\": 1",
        "[1, 2,]",
        "nul",
        "{'a': 1}",
        "{} {}",
        "[1] 2",
        "\"\xff\"",
        "\"\xed\xa0\x80\"",
        "\"\\ud800\"",
        "01",
        "1e999",
        "{\"a\":1,\"a\":2}",
        "99999999999999999999",
        "\"line\nbreak\"",
        "[1 2]",
        "// c\n1",
        "NaN",
        "\xef\xbb\xbf{}",
        "123456789012345,2",
        "123456789012345],[2",
        "[0.12345678901234567]]",
        "{\"a\": 0.12345678901234567",
        "-",
        "-.eE+-.eE+-.eE+-.eE+",
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        mmi_json *value = NULL;
        mm_status status = mmi_json_parse(wrong[i], strlen(wrong[i]), "wrong.json", &value);
        ck_assert_msg(status == MM_ERR_FORMAT, "case %zu: \"%s\" is %s", i, wrong[i], mm_status_name(status));
        ck_assert_ptr_null(value);
        ck_error_mentions("wrong.json: line ");
    }
    mmi_json *value = NULL;
    static const char *const more[] = { "1}", "{\"a\": 1}}", "1,\"z\":2", "[1]}\n", "1},{\"a\":2" };
    for (size_t i = 0; i < sizeof more / sizeof *more; i++) {
        ck_status(mmi_json_parse(more[i], strlen(more[i]), "more.json", &value), MM_ERR_FORMAT);
        ck_assert_msg(strcmp(mm_last_error(), "more.json: it goes on behind its value") == 0, "%s: %s", more[i],
                      mm_last_error());
    }
    ck_status(mmi_json_parse("{\"a\": [\n1,\n2 3]}", 16, "wrong.json", &value), MM_ERR_FORMAT);
    ck_error_mentions("line 3");
}
END_TEST

START_TEST(a_fault_at_a_character_of_several_bytes_is_told_in_utf_8)
{
    static const struct {
        const char *text, *end;
    } cases[] = {
        { "\"\\é\"", ": invalid escape near '\"\\'" },
        { "\"中\\中\"", ": invalid escape near '\"中\\'" },
        { "\"\\u12😀\"", ": invalid escape near '\"\\u12'" },
        { "中", ": invalid token near '中'" },
        { "[1中", ": ']' expected near '中'" },
        { "nul中", ": invalid token near 'nul'" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        mmi_json *value = NULL;
        ck_status(mmi_json_parse(cases[i].text, strlen(cases[i].text), "text", &value), MM_ERR_FORMAT);
        const char *message = mm_last_error();
        ck_assert_uint_gt(strlen(message), strlen(cases[i].end));
        ck_assert_str_eq(message + strlen(message) - strlen(cases[i].end), cases[i].end);
    }
}
END_TEST

START_TEST(nesting_without_end_is_refused_not_followed)
{
    size_t depth = 200000;
    char *text = mmi_alloc(2 * depth, 1);
    memset(text, '[', depth);
    memset(text + depth, ']', depth);
    mmi_json *value = NULL;
    ck_status(mmi_json_parse(text, 2 * depth, "deep", &value), MM_ERR_FORMAT);
    ck_error_mentions("deep: nested 200000 levels deep");
    ck_assert_ptr_null(value);
    mmi_free(text);
}
END_TEST

START_TEST(as_many_levels_are_read_as_are_promised_and_brackets_in_strings_are_none)
{
    static const struct {
        const char *text;
        size_t depth;
    } cases[] = { { "\"[[{\"", 0 },
                  { "\"\\\"[[\"", 0 },
                  { "[\"\\\\\", [[1]]]", 3 },
                  { "{\"[[\": \"]]\"}", 1 },
                  { "[[], [[{}], []]]", 4 } };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        ck_assert_uint_eq(mmi_json_depth(cases[i].text, strlen(cases[i].text)), cases[i].depth);
    char text[4 * MMI_JSON_DEPTH];
    for (size_t depth = MMI_JSON_DEPTH; depth <= MMI_JSON_DEPTH + 1; depth++) {
        mmi_json *value = NULL;
        memset(text, '[', depth);
        memcpy(text + depth, "\"[\\\"[\"", 6);
        memset(text + depth + 6, ']', depth);
        const mm_status status = mmi_json_parse(text, 2 * depth + 6, "deep", &value);
        ck_status(status, depth > MMI_JSON_DEPTH ? MM_ERR_FORMAT : MM_OK);
        ck_assert(!value == (depth > MMI_JSON_DEPTH));
        mmi_json_free(value);
    }
    ck_error_mentions("deep: nested 257 levels deep, at most 256 are read");
}
END_TEST

START_TEST(values_are_equal_whatever_the_order_of_their_members)
{
    static const struct {
        const char *a, *b;
        bool equal;
    } cases[] = { { "{\"a\": 1, \"b\": [2]}", "{\"b\": [2], \"a\": 1}", true },
                  { "{\"a\": 1}", "{\"a\": 1, \"b\": null}", false },
                  { "[1, 2]", "[2, 1]", false },
                  { "1", "1.0", false },
                  { "null", "null", true } };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        mmi_json *a = parse(cases[i].a), *b = parse(cases[i].b);
        ck_assert_msg(mmi_json_equal(a, b) == cases[i].equal, "%s, %s", cases[i].a, cases[i].b);
        mmi_json_free(a);
        mmi_json_free(b);
    }
}
END_TEST

START_TEST(a_number_that_is_not_finite_is_null)
{
    static const double none[] = { NAN, INFINITY, -INFINITY };
    for (size_t i = 0; i < sizeof none / sizeof *none; i++) {
        mmi_json *value = mmi_json_new_number(none[i]);
        ck_assert_int_eq(mmi_json_what(value), MMI_JSON_NULL);
        mmi_json_free(value);
    }
    mmi_json *value = mmi_json_new_number(-0.5);
    ck_assert_double_eq(mmi_json_number(value, 1), -0.5);
    mmi_json_free(value);
}
END_TEST

START_TEST(strings_keep_their_nul_and_their_length)
{
    mmi_json *value = parse("\"a\\u0000b\"");
    size_t length = 0;
    const char *text = mmi_json_string(value, &length);
    ck_assert_uint_eq(length, 3);
    ck_assert(memcmp(text, "a\0b", 3) == 0);
    mmi_json_free(value);
}
END_TEST

START_TEST(an_object_is_walked_in_its_own_order)
{
    mmi_json *o = parse("{\"zebra\": 1, \"ape\": 2, \"mouse\": 3}");
    static const char *const keys[] = { "zebra", "ape", "mouse" };
    int64_t n = 0;
    for (void *i = mmi_json_first(o); i; i = mmi_json_next(o, i), n++) {
        ck_assert_str_eq(mmi_json_key(i), keys[n]);
        ck_assert_int_eq(mmi_json_int(mmi_json_value(i), 0), n + 1);
    }
    ck_assert_int_eq(n, 3);
    mmi_json_remove(o, "ape");
    mmi_json_remove(o, "ape");
    ck_assert_uint_eq(mmi_json_size(o), 2);
    mmi_json_free(o);
}
END_TEST

START_TEST(setters_take_values_over_and_report_their_makers_failure)
{
    mmi_json *o = mmi_json_new_object(), *a = mmi_json_new_array();
    ck_assert(mmi_json_append(a, mmi_json_new_int(1)));
    ck_assert(mmi_json_append(a, mmi_json_new_null()));
    ck_assert(mmi_json_append(a, mmi_json_new_bool(true)));
    ck_assert(mmi_json_set(o, "shared", mmi_json_share(a)));
    ck_assert(mmi_json_set(o, "a", a));
    ck_assert(mmi_json_set(o, "text", mmi_json_new_string("a\0b", 3)));
    ck_assert(!mmi_json_set(o, "none", NULL));
    ck_assert(!mmi_json_append(a, NULL));
    ck_assert(!mmi_json_set(o, "bytes", mmi_json_new_string("\xff", 1)));
    ck_assert(!mmi_json_set(NULL, "lost", mmi_json_new_int(1)));
    mmi_json *copy = mmi_json_copy(o);
    mmi_json_free(o);
    char *text;
    size_t length;
    ck_ok(mmi_json_write(copy, 0, &text, &length));
    ck_assert_str_eq(text, "{\"shared\":[1,null,true],\"a\":[1,null,true],\"text\":\"a\\u0000b\"}");
    ck_assert_uint_eq(length, strlen(text));
    mmi_free(text);
    mmi_json_free(copy);
}
END_TEST

START_TEST(numbers_come_back_to_the_bit)
{
    static const double numbers[] = { 0.1,  1e-5,         1.0 / 3, 1e6, 1000000.0, 5e-324, 1.7976931348623157e308,
                                      -0.0, 123456789.125 };
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        mmi_json *value = mmi_json_new_real(numbers[i]), *back = NULL;
        char *text;
        size_t length;
        ck_ok(mmi_json_write(value, 0, &text, &length));
        ck_ok(mmi_json_parse(text, length, text, &back));
        double got = mmi_json_number(back, -1);
        ck_assert_msg(memcmp(&got, &numbers[i], sizeof got) == 0, "%s", text);
        ck_assert_int_eq(mmi_json_what(back), MMI_JSON_REAL);
        mmi_free(text);
        mmi_json_free(value);
        mmi_json_free(back);
    }
    mmi_json *big = parse("[9223372036854775807, -9223372036854775808]");
    ck_assert_int_eq(mmi_json_int(mmi_json_at(big, 0), 0), INT64_MAX);
    ck_assert_int_eq(mmi_json_int(mmi_json_at(big, 1), 0), INT64_MIN);
    mmi_json_free(big);
}
END_TEST

START_TEST(a_file_is_written_with_an_end_of_line_and_read_back)
{
    char path[512];
    snprintf(path, sizeof path, "%s/a.json", scratch_directory());
    mmi_json *o = parse("{\"b\": {\"c\": \"语言\"}, \"a\": 1}"), *back = NULL;
    ck_ok(mmi_json_write_file(o, 2, path));
    char *text;
    size_t size;
    ck_ok(mmi_read_file(path, &text, &size));
    ck_assert_str_eq(text, "{\n  \"b\": {\n    \"c\": \"语言\"\n  },\n  \"a\": 1\n}\n");
    mmi_free(text);
    ck_ok(mmi_json_read_file(path, &back));
    ck_assert_int_eq(mmi_json_int(mmi_json_get(back, "a"), 0), 1);
    mmi_json_free(back);
    mmi_json_free(o);
}
END_TEST

START_TEST(a_damaged_file_is_named)
{
    char path[512];
    snprintf(path, sizeof path, "%s/bad.json", scratch_directory());
    mmi_json *value = NULL;
    ck_status(mmi_json_read_file(path, &value), MM_ERR_IO);
    ck_error_mentions("bad.json");
    ck_ok(mmi_write_file(path, "{\"a\": 1", 7));
    ck_status(mmi_json_read_file(path, &value), MM_ERR_FORMAT);
    ck_error_mentions("bad.json: line 1");
    ck_assert_ptr_null(value);
}
END_TEST

START_TEST(writing_without_memory_is_a_status)
{
    mmi_json *o = parse("{\"a\": 1}");
    char *text = NULL;
    size_t length = 77;
    mmi_memory_fail_at(1, false);
    ck_status(mmi_json_write(o, 0, &text, &length), MM_ERR_MEMORY);
    mmi_memory_fail_at(0, false);
    ck_assert_ptr_null(text);
    ck_assert_uint_eq(length, 77);
    mmi_json_free(o);
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("base/json");
    TCase *c = tcase_create("json");
    tcase_add_test(c, questions_answer_by_kind_and_fall_back);
    tcase_add_test(c, questions_about_nothing_answer_absent);
    tcase_add_test(c, what_is_not_one_json_value_is_refused);
    tcase_add_test(c, a_fault_at_a_character_of_several_bytes_is_told_in_utf_8);
    tcase_add_test(c, nesting_without_end_is_refused_not_followed);
    tcase_add_test(c, as_many_levels_are_read_as_are_promised_and_brackets_in_strings_are_none);
    tcase_add_test(c, values_are_equal_whatever_the_order_of_their_members);
    tcase_add_test(c, a_number_that_is_not_finite_is_null);
    tcase_add_test(c, strings_keep_their_nul_and_their_length);
    tcase_add_test(c, an_object_is_walked_in_its_own_order);
    tcase_add_test(c, setters_take_values_over_and_report_their_makers_failure);
    tcase_add_test(c, numbers_come_back_to_the_bit);
    tcase_add_test(c, a_file_is_written_with_an_end_of_line_and_read_back);
    tcase_add_test(c, a_damaged_file_is_named);
    tcase_add_test(c, writing_without_memory_is_a_status);
    suite_add_tcase(suite, c);
    return suite;
}

int main(void)
{
    return run_suite(make_suite());
}
