#include "text_support.h"

#include "text/pieces.h"
#include "text/utf8.h"

/* The pieces with '|' between them; the texts used here hold none. */
static const char *cut(const char *text, size_t length)
{
    static char out[4096];
    mmi_splitter *splitter = NULL;
    mmi_pieces p;
    const char *piece;
    size_t size, n = 0;
    ck_ok(mmi_splitter_create(&splitter));
    ck_ok(mmi_pieces_open(&p, splitter));
    mmi_pieces_start(&p, text, length);
    for (;;) {
        ck_ok(mmi_pieces_next(&p, &piece, &size));
        if (size == 0)
            break;
        if (n > 0)
            out[n++] = '|';
        memcpy(out + n, piece, size);
        n += size;
    }
    out[n] = '\0';
    mmi_pieces_close(&p);
    mmi_splitter_free(splitter);
    return out;
}
#define CUTS_TO(text, expected) ck_assert_str_eq(cut(text, strlen(text)), expected)

START_TEST(contractions_are_lower_case_ascii_only)
{
    CUTS_TO("'sword", "'s|word");
    CUTS_TO("it's we've I'm they'll I'd can't you're", "it|'s| we|'ve| I|'m| they|'ll| I|'d| can|'t| you|'re");
    CUTS_TO("it'S", "it|'|S");
    CUTS_TO("it’s", "it|’|s");
    CUTS_TO(" 's", " '|s");
}
END_TEST

START_TEST(only_a_plain_space_joins_a_word)
{
    CUTS_TO("a b\tc", "a| b|\t|c");
    CUTS_TO("a\xC2\xA0" "b", "a|\xC2\xA0|b");
    CUTS_TO("a\xE3\x80\x80" "b", "a|\xE3\x80\x80|b");
}
END_TEST

START_TEST(a_run_of_white_space_gives_back_its_last_character)
{
    CUTS_TO("a   b", "a|  | b");
    CUTS_TO("\t\tif", "\t|\t|if");
    CUTS_TO("a   ", "a|   ");
    CUTS_TO(" \n x", " \n| x");
    CUTS_TO("a\r\nb", "a|\r|\n|b");
}
END_TEST

START_TEST(white_space_is_the_25_code_points_of_unicode)
{
    static const unsigned spaces[] = { 0x09, 0x0A, 0x0B, 0x0C, 0x0D, 0x20, 0x85, 0xA0, 0x1680, 0x2000, 0x2001, 0x2002,
                                       0x2003, 0x2004, 0x2005, 0x2006, 0x2007, 0x2008, 0x2009, 0x200A, 0x2028, 0x2029,
                                       0x202F, 0x205F, 0x3000 };
    mmi_splitter *splitter = NULL;
    mmi_pieces p;
    ck_ok(mmi_splitter_create(&splitter));
    ck_ok(mmi_pieces_open(&p, splitter));
    size_t found = 0;
    for (unsigned code = 0; code <= 0x10FFFF; code++) {
        if (code >= 0xD800 && code <= 0xDFFF)
            continue;
        /* A space alone makes a piece with the tab before it; whatever else stands there does not. */
        char text[8] = "\t";
        size_t length = 1 + put_utf8(text + 1, code), size;
        const char *piece;
        mmi_pieces_start(&p, text, length);
        if (mmi_pieces_next(&p, &piece, &size) != MM_OK)
            ck_abort_msg("U+%04X: %s", code, mm_last_error());
        if (size == length) {
            ck_assert_uint_lt(found, 25);
            ck_assert_uint_eq(code, spaces[found]);
            found++;
        }
    }
    ck_assert_uint_eq(found, 25);
    mmi_pieces_close(&p);
    mmi_splitter_free(splitter);
}
END_TEST

START_TEST(the_mongolian_vowel_separator_and_its_like_are_no_white_space)
{
    CUTS_TO("a\xE1\xA0\x8E" "b", "a|\xE1\xA0\x8E|b");
    CUTS_TO("a \xE1\xA0\x8E" "b", "a| \xE1\xA0\x8E|b");
    CUTS_TO("  \xE1\xA0\x8E", " | \xE1\xA0\x8E");
    CUTS_TO("\xE2\x80\x8B!", "\xE2\x80\x8B!"); /* U+200B */
    CUTS_TO("\xEF\xBB\xBF!", "\xEF\xBB\xBF!"); /* U+FEFF */
    CUTS_TO("\x1C\x1F!", "\x1C\x1F!");
}
END_TEST

START_TEST(numbers_letters_and_marks_are_kept_apart)
{
    CUTS_TO("一〇Ⅷ①½²", "一|〇Ⅷ①½²");
    CUTS_TO("ªº1", "ªº|1");
    CUTS_TO("e\xCC\x81", "e|\xCC\x81");
    CUTS_TO("क्षत्रिय", "क|्|षत|्|र|ि|य");
    CUTS_TO("abc123 45!?", "abc|123| 45|!?");
}
END_TEST

START_TEST(nul_is_an_ordinary_character)
{
    const char *out = cut("a\0b", 3);
    ck_assert_mem_eq(out, "a|\0|b", 5);
}
END_TEST

START_TEST(pieces_of_random_text_join_to_the_text)
{
    test_rng rng = { 5 };
    mmi_splitter *splitter = NULL;
    mmi_pieces p;
    ck_ok(mmi_splitter_create(&splitter));
    ck_ok(mmi_pieces_open(&p, splitter));
    for (int round = 0; round < 300; round++) {
        char text[400];
        size_t length = random_text(text, 100, &rng), at = 0, size;
        const char *piece;
        mmi_pieces_start(&p, text, length);
        do {
            ck_ok(mmi_pieces_next(&p, &piece, &size));
            ck_assert_ptr_eq(piece, text + at);
            ck_assert_uint_eq(mmi_utf8_valid(piece, size), size);
            at += size;
        } while (size > 0);
        ck_assert_uint_eq(at, length);
    }
    mmi_pieces_close(&p);
    mmi_splitter_free(splitter);
}
END_TEST

START_TEST(a_piece_of_a_million_characters_is_one_piece)
{
    static const char *const units[] = { "a", "中", " ", "!", "7" };
    mmi_splitter *splitter = NULL;
    mmi_pieces p;
    ck_ok(mmi_splitter_create(&splitter));
    ck_ok(mmi_pieces_open(&p, splitter));
    for (size_t u = 0; u < sizeof units / sizeof *units; u++) {
        size_t n = 1000000, unit = strlen(units[u]), size;
        char *text = malloc(n * unit);
        const char *piece;
        ck_assert_ptr_nonnull(text);
        for (size_t i = 0; i < n; i++)
            memcpy(text + i * unit, units[u], unit);
        mmi_pieces_start(&p, text, n * unit);
        ck_ok(mmi_pieces_next(&p, &piece, &size));
        ck_assert_uint_eq(size, n * unit);
        free(text);
    }
    mmi_pieces_close(&p);
    mmi_splitter_free(splitter);
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("text/pieces");
    TCase *tests = tcase_create("pieces");
    tcase_set_timeout(tests, 60);
    tcase_add_test(tests, contractions_are_lower_case_ascii_only);
    tcase_add_test(tests, only_a_plain_space_joins_a_word);
    tcase_add_test(tests, a_run_of_white_space_gives_back_its_last_character);
    tcase_add_test(tests, white_space_is_the_25_code_points_of_unicode);
    tcase_add_test(tests, the_mongolian_vowel_separator_and_its_like_are_no_white_space);
    tcase_add_test(tests, numbers_letters_and_marks_are_kept_apart);
    tcase_add_test(tests, nul_is_an_ordinary_character);
    tcase_add_test(tests, pieces_of_random_text_join_to_the_text);
    tcase_add_test(tests, a_piece_of_a_million_characters_is_one_piece);
    suite_add_tcase(suite, tests);
    return suite;
}

int main(void)
{
    return run_suite(make_suite());
}
