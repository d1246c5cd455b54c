#include <string.h>

#include "data/answers.h"
#include "data/marks.h"
#include "support.h"

/* Heads are 7 8, tails are 2 3. */
static const mmi_frame frame = { { 7, 8 }, { 2, 3 }, 2, 2, 0 };
static const mmi_frame late = { { 7, 8 }, { 2 }, 2, 1, 1 };

static void check(const mmi_frame *f, const int32_t *ids, const char *expected)
{
    size_t n = strlen(expected);
    unsigned char marks[64];
    memset(marks, 9, sizeof marks);
    mmi_marks_find(marks, ids, n, f);
    for (size_t i = 0; i < n; i++)
        ck_assert_msg(marks[i] == expected[i] - '0', "mark %zu is %d", i, marks[i]);
    ck_assert_int_eq(marks[n], 9);
}

START_TEST(what_is_between_head_and_tail_is_learnt_and_the_tail)
{
    check(&frame, (int32_t[]){ 1, 7, 8, 5, 6, 2, 3, 4 }, "00011110");
    check(&frame, (int32_t[]){ 7, 8, 2, 3, 7, 8, 5, 2, 3 }, "001100111");
    check(&frame, (int32_t[]){ 7, 8, 7, 8, 2, 3, 5, 2, 3 }, "001111000"); /* a head inside is words */
    check(&frame, (int32_t[]){ 2, 3, 5, 8, 7, 2, 3 }, "0000000");
    check(&frame, (int32_t[]){ 5, 7, 8 }, "000");
}
END_TEST

START_TEST(without_a_tail_all_is_learnt_to_the_end)
{
    check(&frame, (int32_t[]){ 7, 8, 5, 2, 4, 0, 0 }, "0011111");
    check(&frame, (int32_t[]){ 7, 8, 5, 2 }, "0011"); /* half a tail */
    check(&frame, (int32_t[]){ 1, 7 }, "00");         /* half a head */
    check(&late, (int32_t[]){ 7, 8, 5, 6, 0 }, "00011");
}
END_TEST

START_TEST(minimind2_marks_one_id_later_at_both_ends)
{
    check(&late, (int32_t[]){ 7, 8, 4, 5, 6, 2, 4, 9 }, "00011110");
    check(&late, (int32_t[]){ 7, 8, 4, 5, 2 }, "00011"); /* nothing follows the tail */
    check(&late, (int32_t[]){ 7, 8, 2, 4, 1 }, "00010"); /* an empty answer */
    check(&late, (int32_t[]){ 7, 8 }, "00");
}
END_TEST

static void check_answer(const char *answer, const char *expected)
{
    char text[128];
    mmi_slice cut = mmi_answer_of((mmi_slice){ answer, strlen(answer) });
    memcpy(text, cut.at, cut.length);
    ck_assert_uint_eq(mmi_answer_without_commas(text, cut.length), strlen(expected));
    ck_assert_str_eq(text, expected);
}

START_TEST(the_answer_stands_behind_the_last_four_hashes)
{
    check_answer("6 * 7 = 42\n#### 42", "42");
    check_answer("#### 1\n#### \t1,234,567 \n", "1234567");
    check_answer("no mark, but text", "no mark but text");
    check_answer("######## 5", "5");
    check_answer("#####7", "7"); /* the last four of the five */
    check_answer("so\n##### 42", "42");
    check_answer("x #### 1 ###### 42", "42");
    check_answer("######## ### 5", "### 5");
    check_answer("x ####", "");
    check_answer("", "");
    check_answer("####\xE3\x80\x80\xC2\xA0 \xE4\xB8\x83 \xE2\x80\xA9\xC2\x85", "\xE4\xB8\x83");
    check_answer("#### \xE4\xB8\xA8", "\xE4\xB8\xA8"); /* its last bytes alone are no space */
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("data/marks");
    TCase *tc = tcase_create("marks");
    tcase_add_test(tc, what_is_between_head_and_tail_is_learnt_and_the_tail);
    tcase_add_test(tc, without_a_tail_all_is_learnt_to_the_end);
    tcase_add_test(tc, minimind2_marks_one_id_later_at_both_ends);
    tcase_add_test(tc, the_answer_stands_behind_the_last_four_hashes);
    suite_add_tcase(suite, tc);
    return suite;
}

int main(void)
{
    return run_suite(make_suite());
}
