#include "text_support.h"

#include "text/byte_chars.h"
#include "text/utf8.h"

static void check_repair(const char *bytes, size_t size, const char *expected)
{
    char out[64];
    size_t n = mmi_utf8_repair(out, NULL, bytes, size);
    ck_assert_uint_eq(n, mmi_utf8_repair(NULL, NULL, bytes, size));
    ck_assert_uint_eq(n, strlen(expected));
    ck_assert_mem_eq(out, expected, n);
}
#define REPAIRS_TO(bytes, expected) check_repair(bytes, sizeof bytes - 1, expected)
#define FFFD "\xEF\xBF\xBD"

START_TEST(each_maximal_subpart_becomes_one_replacement_character)
{
    REPAIRS_TO("plain", "plain");
    REPAIRS_TO("\xE4\xB8", FFFD);
    REPAIRS_TO("\xE4\xB8" "A", FFFD "A");
    REPAIRS_TO("\xC0\x80", FFFD FFFD);
    REPAIRS_TO("\xF5\x80", FFFD FFFD);
    REPAIRS_TO("\xED\xA0\x80", FFFD FFFD FFFD);
    REPAIRS_TO("\xF0\x9F\xE4\xB8\xAD", FFFD "\xE4\xB8\xAD");
    REPAIRS_TO("\xE0\x80\x80", FFFD FFFD FFFD);
    REPAIRS_TO("\xF0\x80\x80\x80", FFFD FFFD FFFD FFFD);
    REPAIRS_TO("\xF4\x90\x80\x80", FFFD FFFD FFFD FFFD);
    REPAIRS_TO("\xF4\x8F\xBF\xBF", "\xF4\x8F\xBF\xBF");
    REPAIRS_TO("\x80\xBF\xFF", FFFD FFFD FFFD);
    REPAIRS_TO("\xF0\x90\x80" "a\xC3", FFFD "a" FFFD);
}
END_TEST

START_TEST(every_code_point_but_surrogates_is_valid)
{
    for (unsigned code = 0; code <= 0x10FFFF; code++) {
        char text[4];
        size_t n = put_utf8(text, code), good = mmi_utf8_valid(text, n);
        size_t expected = code >= 0xD800 && code <= 0xDFFF ? 0 : n;
        if (good != expected) /* a checked assertion for each of a million would take seconds */
            ck_abort_msg("U+%04X: %zu of %zu bytes are valid", code, good, n);
    }
}
END_TEST

START_TEST(the_first_bad_byte_is_found_behind_text_of_any_length)
{
    char text[64];
    for (size_t at = 0; at < 40; at++) {
        memset(text, 'a', sizeof text);
        text[at] = (char)0xE4;
        ck_assert_uint_eq(mmi_utf8_valid(text, sizeof text), at);
        ck_assert_uint_eq(mmi_utf8_valid(text, at + 1), at);
        ck_assert_uint_eq(mmi_utf8_valid(text, at), at);
    }
}
END_TEST

START_TEST(a_cut_character_waits_when_asked_to)
{
    char out[32];
    size_t rest;
    ck_assert_uint_eq(mmi_utf8_repair(out, &rest, "a\xF0\x9F\x98", 4), 1);
    ck_assert_uint_eq(rest, 3);
    ck_assert_uint_eq(mmi_utf8_repair(out, &rest, "\xED\xA0", 2), 6); /* no continuation makes this one valid */
    ck_assert_uint_eq(rest, 0);
}
END_TEST

START_TEST(byte_characters_are_those_of_byte_level_bpe)
{
    static const struct {
        unsigned char byte;
        const char *text;
    } known[] = { { ' ', "Ġ" }, { '\n', "Ċ" }, { 0, "Ā" }, { '!', "!" }, { 0x7F, "ġ" }, { 0xA0, "ł" },
                  { 0xAD, "Ń" }, { 0xA1, "¡" }, { 0xFF, "ÿ" }, { '~', "~" } };
    char out[2];
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        ck_assert_uint_eq(mmi_byte_char(out, known[i].byte), strlen(known[i].text));
        ck_assert_mem_eq(out, known[i].text, strlen(known[i].text));
    }
}
END_TEST

START_TEST(byte_characters_lead_back_to_their_bytes)
{
    char text[2], back[2];
    for (unsigned byte = 0; byte < 256; byte++) {
        size_t n = mmi_byte_char(text, (unsigned char)byte), m = 0;
        ck_assert(mmi_byte_chars_decode(back, &m, text, n));
        ck_assert_uint_eq(m, 1);
        ck_assert_uint_eq((unsigned char)back[0], byte);
    }
    size_t m;
    char room[8];
    ck_assert(!mmi_byte_chars_decode(room, &m, " ", 1));
    ck_assert(!mmi_byte_chars_decode(room, &m, "ń", 2)); /* U+0144, the first beyond */
    ck_assert(!mmi_byte_chars_decode(room, &m, "中", 3));
    ck_assert(!mmi_byte_chars_decode(room, &m, "\xC2\xAD", 2)); /* byte 0xAD has another character */
}
END_TEST

START_TEST(the_order_of_byte_characters_is_that_of_their_code_points)
{
    unsigned char order[256];
    mmi_byte_chars_order(order);
    ck_assert_uint_eq(order[0], '!');
    ck_assert_uint_eq(order[93], '~');
    ck_assert_uint_eq(order[94], 0xA1);
    ck_assert_uint_eq(order[187], 0xFF);
    ck_assert_uint_eq(order[188], 0);
    ck_assert_uint_eq(order[255], 0xAD);
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("text/utf8");
    TCase *tests = tcase_create("utf8");
    tcase_add_test(tests, each_maximal_subpart_becomes_one_replacement_character);
    tcase_add_test(tests, every_code_point_but_surrogates_is_valid);
    tcase_add_test(tests, the_first_bad_byte_is_found_behind_text_of_any_length);
    tcase_add_test(tests, a_cut_character_waits_when_asked_to);
    tcase_add_test(tests, byte_characters_are_those_of_byte_level_bpe);
    tcase_add_test(tests, byte_characters_lead_back_to_their_bytes);
    tcase_add_test(tests, the_order_of_byte_characters_is_that_of_their_code_points);
    suite_add_tcase(suite, tests);
    return suite;
}

int main(void)
{
    return run_suite(make_suite());
}
