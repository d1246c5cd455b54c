/* What a frozen reference said once is found again, and nothing else is. */
#include "support.h"
#include "train/scores.h"

START_TEST(a_table_of_no_room_keeps_nothing)
{
    mmi_scores s = { 0 };
    double value = 7;
    mmi_scores_keep(&s, 1, 2);
    ck_assert(!mmi_scores_find(&s, &value, 1) && !mmi_scores_find(&s, &value, 0) && value == 7);
    mmi_scores_free(&s);
}
END_TEST

/* Keys that all begin at one slot, among them 0, and the last one, whose neighbour is the first. */
START_TEST(each_score_is_found_by_its_own_key)
{
    mmi_scores s = { 0 };
    double value = 7;
    ck_ok(mmi_scores_make(&s, 100));
    ck_assert_uint_ge(s.room, 200);
    ck_assert_uint_eq(s.room & (s.room - 1), 0);
    for (uint64_t first = 0; first <= s.room - 1; first += s.room - 1)
        for (uint64_t i = 0; i < 40; i++) {
            const uint64_t key = first + i * s.room;
            ck_assert(!mmi_scores_find(&s, &value, key) && value == 7);
            mmi_scores_keep(&s, key, (double)key + 0.5);
        }
    for (uint64_t first = 0; first <= s.room - 1; first += s.room - 1)
        for (uint64_t i = 0; i < 40; i++) {
            const uint64_t key = first + i * s.room;
            ck_assert(mmi_scores_find(&s, &value, key) && value == (double)key + 0.5);
        }
    ck_assert_uint_eq(s.used, 80);
    mmi_scores_keep(&s, s.room, -1); /* once more */
    ck_assert(mmi_scores_find(&s, &value, s.room) && value == -1);
    ck_assert_uint_eq(s.used, 80);
    mmi_scores_free(&s);
    ck_assert(!mmi_scores_find(&s, &value, 0) && value == -1);
}
END_TEST

START_TEST(a_full_table_keeps_what_it_has_and_still_ends_its_searches)
{
    mmi_scores s = { 0 };
    double value = 0;
    ck_ok(mmi_scores_make(&s, 16));
    const uint64_t most = s.room / 2, wanted = 2 * s.room;
    ck_assert_uint_ge(most, 16);
    for (uint64_t key = 0; key < wanted; key++)
        mmi_scores_keep(&s, key, (double)key);
    for (uint64_t key = 0; key < wanted; key++)
        ck_assert_int_eq(mmi_scores_find(&s, &value, key), key < most);
    ck_assert_uint_eq(s.used, most);
    mmi_scores_free(&s);
}
END_TEST

START_TEST(more_than_memory_holds_is_refused)
{
    mmi_scores s = { 0 };
    ck_assert_int_eq(mmi_scores_make(&s, INT64_MAX), MM_ERR_MEMORY);
    ck_assert(!s.slots && s.room == 0);
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("train/scores");
    TCase *c = tcase_create("scores");
    tcase_add_test(c, a_table_of_no_room_keeps_nothing);
    tcase_add_test(c, each_score_is_found_by_its_own_key);
    tcase_add_test(c, a_full_table_keeps_what_it_has_and_still_ends_its_searches);
    tcase_add_test(c, more_than_memory_holds_is_refused);
    suite_add_tcase(suite, c);
    return suite;
}

int main(void)
{
    return run_suite(make_suite());
}
