/* JSON as Python's json.dumps(value, ensure_ascii=False) writes it. */
#include "text_support.h"

#include "text/chat_text.h"

static void check_written(const char *json, const char *expected)
{
    mmi_json *value = NULL;
    mmi_chat_text text = { 0 };
    ck_ok(mmi_json_parse(json, strlen(json), "test", &value));
    mmi_chat_text_put_json(&text, value);
    mmi_chat_text_end(&text);
    ck_ok(mmi_chat_text_status(&text));
    ck_assert_str_eq(text.bytes, expected);
    mmi_chat_text_free(&text);
    mmi_json_free(value);
}

START_TEST(numbers_read_as_python_writes_them)
{
    static const char *const cases[][2] = {
        { "0", "0" },
        { "-7", "-7" },
        { "9223372036854775807", "9223372036854775807" },
        { "-9223372036854775808", "-9223372036854775808" },
        { "1.0", "1.0" },
        { "-0.0", "-0.0" },
        { "0e5", "0.0" },
        { "100.0", "100.0" },
        { "120e-1", "12.0" },
        { "0.1", "0.1" },
        { "123456.789", "123456.789" },
        { "0.001", "0.001" },
        { "0.0001", "0.0001" },
        { "0.00012", "0.00012" },
        { "0.00001", "1e-05" },
        { "1e-7", "1e-07" },
        { "2.5e-8", "2.5e-08" },
        { "-1e-100", "-1e-100" },
        { "1e15", "1000000000000000.0" },
        { "9999999999999998.0", "9999999999999998.0" },
        { "1e16", "1e+16" },
        { "12345678901234567890.0", "1.2345678901234567e+19" },
        { "1.7976931348623157e308", "1.7976931348623157e+308" },
        { "5e-324", "5e-324" },
        { "2.2250738585072014e-308", "2.2250738585072014e-308" },
        { "0.3333333333333333", "0.3333333333333333" },
        { "0.30000000000000004", "0.30000000000000004" },
        { "9007199254740993.0", "9007199254740992.0" },
        /* Powers of two, whose shortest decimal is not the nearest of that length. */
        { "5.684341886080801486968994140625e-14", "5.684341886080802e-14" },
        { "7.120236347223044e-307", "7.120236347223044e-307" },
        { "7.1202363472230444e-307", "7.120236347223045e-307" },
        { "9.5367431640625e-07", "9.5367431640625e-07" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        check_written(cases[i][0], cases[i][1]);
}
END_TEST

START_TEST(numbers_do_not_depend_on_the_locale)
{
    if (set_decimal_comma())
        check_written("[0.5, 12.25, 1e-7, 0.1]", "[0.5, 12.25, 1e-07, 0.1]");
}
END_TEST

/* Digits from the first to the last that is not 0. */
static int digits_of(const char *number)
{
    int digits = 0, zeros = 0;
    for (; *number && *number != 'e'; number++) {
        zeros += *number == '0' && digits > 0;
        if (*number >= '1' && *number <= '9') {
            digits += zeros + 1;
            zeros = 0;
        }
    }
    return digits;
}

START_TEST(reals_read_back_and_no_shorter_text_does)
{
    test_rng rng = { 21 };
    for (int round = 0; round < 20000; round++) {
        uint64_t bits = (uint64_t)rng_next(&rng) << 40 ^ (uint64_t)rng_next(&rng) << 20 ^ rng_next(&rng);
        if (round % 10 == 0)
            bits &= UINT64_C(0xFFF) << 52; /* powers of two */
        if (round % 3 == 0) /* 2^-13 to 2^53, most of which are written without an exponent */
            bits = (bits & ~(UINT64_C(0x7FF) << 52)) | (uint64_t)rng_between(&rng, 1010, 1076) << 52;
        double value;
        memcpy(&value, &bits, sizeof value);
        if (value != value || value - value != 0)
            continue;
        mmi_chat_text text = { 0 };
        mmi_json *json = mmi_json_new_real(value);
        mmi_chat_text_put_json(&text, json);
        mmi_chat_text_end(&text);
        ck_ok(mmi_chat_text_status(&text));
        double back = strtod(text.bytes, NULL);
        ck_assert_msg(memcmp(&back, &value, sizeof value) == 0, "%s is not %.17g", text.bytes, value);
        const int digits = digits_of(text.bytes);
        if (digits > 1) {
            char shorter[40];
            snprintf(shorter, sizeof shorter, "%.*e", digits - 2, value);
            ck_assert_msg(strtod(shorter, NULL) != value, "%s is longer than %s", text.bytes, shorter);
        }
        mmi_json_free(json);
        mmi_chat_text_free(&text);
    }
}
END_TEST

START_TEST(strings_and_structure_read_as_python_writes_them)
{
    check_written("null", "null");
    check_written("[ ]", "[]");
    check_written("{ }", "{}");
    check_written("[true,false,null,[1,[]]]", "[true, false, null, [1, []]]");
    check_written("{\"z\":1,\"a\":{\"键\":\"值\"},\"\":[ ]}", "{\"z\": 1, \"a\": {\"键\": \"值\"}, \"\": []}");
    check_written("\"\\u0000\\u0001\\b\\t\\n\\u000b\\f\\r\\u001f\\u007f/\\/<'&\\u2028😀\\\"\\\\\"",
                  "\"\\u0000\\u0001\\b\\t\\n\\u000b\\f\\r\\u001f\x7F//<'&\xE2\x80\xA8😀\\\"\\\\\"");
    check_written("{\"a\\n\\\"b\":1}", "{\"a\\n\\\"b\": 1}");
}
END_TEST

START_TEST(text_remembers_which_of_it_is_the_templates_own)
{
    mmi_chat_text text = { 0 };
    MMI_PUT_OWN(&text, "ab");
    MMI_PUT_OWN(&text, "");
    MMI_PUT_OWN(&text, "c");
    mmi_chat_text_put(&text, MMI_SLICE("def"));
    mmi_chat_text_put(&text, MMI_SLICE(""));
    MMI_PUT_OWN(&text, "g");
    ck_assert_uint_eq(text.own_count, 2);
    ck_assert_uint_eq(text.own[0].start, 0);
    ck_assert_uint_eq(text.own[0].end, 3);
    ck_assert_uint_eq(text.own[1].start, 6);
    ck_assert_uint_eq(text.own[1].end, 7);
    mmi_memory_fail_at(1, false);
    for (int i = 0; i < 1000; i++)
        mmi_chat_text_put(&text, MMI_SLICE("x"));
    mmi_memory_fail_at(0, false);
    ck_status(mmi_chat_text_status(&text), MM_ERR_MEMORY);
    mmi_chat_text_free(&text);
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("chat_json");
    TCase *tc = tcase_create("text");
    tcase_set_timeout(tc, 120);
    tcase_add_test(tc, numbers_read_as_python_writes_them);
    tcase_add_test(tc, numbers_do_not_depend_on_the_locale);
    tcase_add_test(tc, reals_read_back_and_no_shorter_text_does);
    tcase_add_test(tc, strings_and_structure_read_as_python_writes_them);
    tcase_add_test(tc, text_remembers_which_of_it_is_the_templates_own);
    suite_add_tcase(suite, tc);
    return suite;
}

int main(void)
{
    return run_suite(make_suite());
}
