/* Statuses and the story beside them. */
#include <pthread.h>
#include <string.h>

#include "base/status.h"
#include "support.h"

START_TEST(every_status_has_its_constant_s_name)
{
    ck_assert_str_eq(mm_status_name(MM_OK), "MM_OK");
    ck_assert_str_eq(mm_status_name(MM_ERR_ARG), "MM_ERR_ARG");
    ck_assert_str_eq(mm_status_name(MM_ERR_MEMORY), "MM_ERR_MEMORY");
    ck_assert_str_eq(mm_status_name(MM_ERR_IO), "MM_ERR_IO");
    ck_assert_str_eq(mm_status_name(MM_ERR_FORMAT), "MM_ERR_FORMAT");
    ck_assert_str_eq(mm_status_name(MM_ERR_UNSUPPORTED), "MM_ERR_UNSUPPORTED");
    ck_assert_str_eq(mm_status_name(MM_ERR_STATE), "MM_ERR_STATE");
    ck_assert_str_eq(mm_status_name(MM_ERR_NUMERIC), "MM_ERR_NUMERIC");
    ck_assert_str_eq(mm_status_name(MM_ERR_CANCELLED), "MM_ERR_CANCELLED");
    ck_assert_str_eq(mm_status_name(MM_ERR_INTERNAL), "MM_ERR_INTERNAL");
    const mm_status others[] = { -1, 10, INT32_MIN, INT32_MAX };
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        ck_assert_str_eq(mm_status_name(others[i]), "unknown status");
}
END_TEST

START_TEST(status_numbers_are_pinned)
{
    ck_assert_int_eq(MM_OK, 0);
    ck_assert_int_eq(MM_ERR_ARG, 1);
    ck_assert_int_eq(MM_ERR_MEMORY, 2);
    ck_assert_int_eq(MM_ERR_IO, 3);
    ck_assert_int_eq(MM_ERR_FORMAT, 4);
    ck_assert_int_eq(MM_ERR_UNSUPPORTED, 5);
    ck_assert_int_eq(MM_ERR_STATE, 6);
    ck_assert_int_eq(MM_ERR_NUMERIC, 7);
    ck_assert_int_eq(MM_ERR_CANCELLED, 8);
    ck_assert_int_eq(MM_ERR_INTERNAL, 9);
}
END_TEST

START_TEST(the_message_is_empty_before_anything_failed)
{
    ck_assert_ptr_nonnull(mm_last_error());
    ck_assert_str_eq(mm_last_error(), "");
}
END_TEST

START_TEST(failing_keeps_the_message_and_hands_the_status_through)
{
    ck_assert_int_eq(mmi_fail(MM_ERR_FORMAT, "%s: %d is not %d", "a.json", 3, 4), MM_ERR_FORMAT);
    ck_assert_str_eq(mm_last_error(), "a.json: 3 is not 4");
    ck_assert_int_eq(mmi_fail_within(MM_ERR_ARG, "line %d", 7), MM_ERR_ARG);
    ck_assert_str_eq(mm_last_error(), "line 7: a.json: 3 is not 4");
}
END_TEST

START_TEST(a_message_may_quote_the_one_before)
{
    mmi_fail(MM_ERR_IO, "first");
    mmi_fail(MM_ERR_IO, "second after %s", mm_last_error());
    ck_assert_str_eq(mm_last_error(), "second after first");
}
END_TEST

/* Valid UTF-8, as far as whole characters go. */
static bool ends_at_a_character(const char *text)
{
    size_t n = strlen(text), tail = 0;
    while (tail < n && ((unsigned char)text[n - 1 - tail] & 0xC0) == 0x80)
        tail++;
    if (tail == n)
        return n == 0;
    unsigned char lead = (unsigned char)text[n - 1 - tail];
    size_t wanted = lead >= 0xF0 ? 3 : lead >= 0xE0 ? 2 : lead >= 0xC0 ? 1 : 0;
    return tail == wanted;
}

static int32_t named; /* how many fruit() has */

static const char *fruit(int32_t index)
{
    static const char *const fruits[] = { "apple", "pear", "plum" };
    return index < named ? fruits[index] : NULL;
}

static const char *endless(int32_t index)
{
    return index < 1000 ? "and another one" : NULL;
}

START_TEST(a_message_may_end_with_the_names_that_there_are)
{
    static const char *const expected[] = { "it must be ", "it must be apple", "it must be apple or pear",
                                            "it must be apple, pear or plum" };
    for (named = 0; named < 4; named++) {
        ck_assert_int_eq(mmi_fail_choice(MM_ERR_ARG, "it must be ", fruit), MM_ERR_ARG);
        ck_assert_str_eq(mm_last_error(), expected[named]);
    }
    ck_assert_int_eq(mmi_fail_choice(MM_ERR_IO, mm_last_error(), endless), MM_ERR_IO);
    ck_assert_uint_eq(strlen(mm_last_error()), 1023);
    ck_error_mentions("plumand another one, and another one, and");
}
END_TEST

START_TEST(a_message_too_long_is_cut_at_a_character)
{
    char text[4096];
    for (size_t shift = 0; shift < 4; shift++) {
        memset(text, 'x', shift);
        text[shift] = '\0';
        while (strlen(text) + 4 < sizeof text)
            strcat(text, "语");
        mmi_fail(MM_ERR_IO, "%s", text);
        size_t n = strlen(mm_last_error());
        ck_assert_uint_gt(n, 500);
        ck_assert_uint_lt(n, sizeof text - 8);
        ck_assert(memcmp(mm_last_error(), text, n) == 0);
        ck_assert(ends_at_a_character(mm_last_error()));
        mmi_fail_within(MM_ERR_IO, "%s", text);
        ck_assert(ends_at_a_character(mm_last_error()));
    }
}
END_TEST

/* Messages quote so many bytes of a name, whatever ends there. */
START_TEST(half_a_character_in_a_message_is_a_question_mark)
{
    static const struct {
        const char *name, *shown;
        int bytes;
    } cut[] = {
        { "语语", "<语?> is none", 4 },           { "语语", "<语?> is none", 5 },
        { "语语", "<语语> is none", 6 },          { "éé", "<é?> is none", 3 },
        { "\xF0\x9F\x98\x80", "<?> is none", 3 }, { "caf\xE9.json", "<caf?.json> is none", 99 }, /* Latin-1 */
        { "\xA9.json", "<?.json> is none", 99 }, /* no character begins so, nor as the next two */
        { "语\xAD\x80", "<语?\?> is none", 99 }, { "\xF8\x88\x80\x80", "<?\?\?\?> is none", 99 },
    };
    for (size_t i = 0; i < sizeof cut / sizeof *cut; i++) {
        mmi_fail(MM_ERR_IO, "<%.*s> is none", cut[i].bytes, cut[i].name);
        ck_assert_str_eq(mm_last_error(), cut[i].shown);
        mmi_fail_within(MM_ERR_IO, "%.*s", cut[i].bytes, cut[i].name);
        ck_assert_ptr_nonnull(strstr(mm_last_error(), cut[i].shown));
        ck_assert_int_eq(mm_last_error()[strlen(mm_last_error()) - strlen(cut[i].shown) - 2], ':');
    }
    mmi_fail(MM_ERR_IO, "two\nlines\tof\x7F%.*s", 4, "语语");
    ck_assert_str_eq(mm_last_error(), "two lines of 语");
}
END_TEST

static void *fail_elsewhere(void *out)
{
    strcpy(out, mm_last_error());
    mmi_fail(MM_ERR_IO, "elsewhere");
    return NULL;
}

START_TEST(each_thread_has_its_own_message)
{
    char before[64] = "?";
    pthread_t thread;
    mmi_fail(MM_ERR_ARG, "here");
    ck_assert_int_eq(pthread_create(&thread, NULL, fail_elsewhere, before), 0);
    pthread_join(thread, NULL);
    ck_assert_str_eq(before, "");
    ck_assert_str_eq(mm_last_error(), "here");
}
END_TEST

START_TEST(a_callback_of_the_program_may_tell_its_own_story)
{
    ck_status(mm_set_last_error(MM_ERR_IO, "the link is down: 100%s"), MM_ERR_IO);
    ck_assert_str_eq(mm_last_error(), "the link is down: 100%s");
    ck_status(mm_set_last_error(MM_ERR_STATE, NULL), MM_ERR_STATE);
    ck_assert_str_eq(mm_last_error(), "");
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("base/status");
    TCase *c = tcase_create("status");
    tcase_add_test(c, every_status_has_its_constant_s_name);
    tcase_add_test(c, status_numbers_are_pinned);
    tcase_add_test(c, the_message_is_empty_before_anything_failed);
    tcase_add_test(c, failing_keeps_the_message_and_hands_the_status_through);
    tcase_add_test(c, a_message_may_quote_the_one_before);
    tcase_add_test(c, a_message_may_end_with_the_names_that_there_are);
    tcase_add_test(c, a_message_too_long_is_cut_at_a_character);
    tcase_add_test(c, half_a_character_in_a_message_is_a_question_mark);
    tcase_add_test(c, each_thread_has_its_own_message);
    tcase_add_test(c, a_callback_of_the_program_may_tell_its_own_story);
    suite_add_tcase(suite, c);
    return suite;
}

int main(void)
{
    return run_suite(make_suite());
}
