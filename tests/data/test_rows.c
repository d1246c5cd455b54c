#include "base/target.h"
#include "data/rows.h"
#include "support.h"

#define IGNORED MMI_IGNORE

static const int32_t text[] = { 11, 12, 0, 14, 15 };

static void check_row(const int32_t *found, const int32_t *expected, int n)
{
    for (int i = 0; i < n; i++)
        ck_assert_msg(found[i] == expected[i], "place %d is %d, not %d", i, found[i], expected[i]);
}

START_TEST(a_shifted_row_drops_the_last_id_from_x_and_the_first_from_y)
{
    int32_t ids[6], targets[6];
    mmi_row_shifted(ids, targets, 6, text, 5, 0); /* shorter than N = 7 */
    check_row(ids, (int32_t[]){ 11, 12, 0, 14, 15, 0 }, 6);
    check_row(targets, (int32_t[]){ 12, IGNORED, 14, 15, IGNORED, IGNORED }, 6);
    mmi_row_shifted(ids, targets, 4, text, 5, 0); /* exactly N = 5 */
    check_row(ids, (int32_t[]){ 11, 12, 0, 14 }, 4);
    check_row(targets, (int32_t[]){ 12, IGNORED, 14, 15 }, 4);
    mmi_row_shifted(ids, targets, 3, text, 5, 0); /* cut to N = 4 */
    check_row(ids, (int32_t[]){ 11, 12, 0 }, 3);
    check_row(targets, (int32_t[]){ 12, IGNORED, 14 }, 3);
    mmi_row_shifted(ids, targets, 1, text, 5, 0);
    check_row(ids, (int32_t[]){ 11 }, 1);
    check_row(targets, (int32_t[]){ 12 }, 1);
    mmi_row_shifted(ids, targets, 3, NULL, 0, 0);
    check_row(ids, (int32_t[]){ 0, 0, 0 }, 3);
    check_row(targets, (int32_t[]){ IGNORED, IGNORED, IGNORED }, 3);
}
END_TEST

START_TEST(a_framed_row_has_bos_and_eos_however_short_it_is_cut)
{
    int32_t ids[9], targets[9];
    mmi_row_framed(ids, targets, 9, text, 5, 1, 2, 0);
    check_row(ids, (int32_t[]){ 1, 11, 12, 0, 14, 15, 2, 0, 0 }, 9);
    check_row(targets, (int32_t[]){ 11, 12, IGNORED, 14, 15, 2, IGNORED, IGNORED, IGNORED }, 9);
    mmi_row_framed(ids, targets, 7, text, 5, 1, 2, 0);
    check_row(ids, (int32_t[]){ 1, 11, 12, 0, 14, 15, 2 }, 7);
    check_row(targets, (int32_t[]){ 11, 12, IGNORED, 14, 15, 2, IGNORED }, 7);
    mmi_row_framed(ids, targets, 4, text, 5, 1, 2, 0);
    check_row(ids, (int32_t[]){ 1, 11, 12, 2 }, 4);
    check_row(targets, (int32_t[]){ 11, 12, 2, IGNORED }, 4);
    mmi_row_framed(ids, targets, 2, text, 5, 1, 2, 0);
    check_row(ids, (int32_t[]){ 1, 2 }, 2);
    check_row(targets, (int32_t[]){ 2, IGNORED }, 2);
    mmi_row_framed(ids, targets, 4, text, 5, -1, 2, 9);
    check_row(ids, (int32_t[]){ 11, 12, 0, 2 }, 4);
    check_row(targets, (int32_t[]){ 12, 0, 2, IGNORED }, 4);
    mmi_row_framed(ids, targets, 3, text, 1, -1, -1, 9);
    check_row(ids, (int32_t[]){ 11, 9, 9 }, 3);
    check_row(targets, (int32_t[]){ IGNORED, IGNORED, IGNORED }, 3);
}
END_TEST

START_TEST(a_packed_row_keeps_documents_apart)
{
    int32_t ids[8], targets[8], documents[8];
    mmi_packed row = { ids, targets, documents, 8, 0, 0, 0 };
    ck_assert_uint_eq(mmi_packed_add(&row, text, 5), 5);
    ck_assert_uint_eq(mmi_packed_add(&row, text, 0), 0);
    ck_assert_uint_eq(mmi_packed_add(&row, text, 1), 1);
    mmi_packed_close(&row);
    check_row(ids, (int32_t[]){ 11, 12, 0, 14, 15, 11, 0, 0 }, 8);
    check_row(targets, (int32_t[]){ 12, IGNORED, 14, 15, IGNORED, IGNORED, IGNORED, IGNORED }, 8);
    check_row(documents, (int32_t[]){ 0, 0, 0, 0, 0, 1, 2, 2 }, 8);
}
END_TEST

START_TEST(a_packed_row_takes_what_fits_and_no_more)
{
    int32_t ids[7], targets[7], documents[7];
    mmi_packed row = { ids, targets, documents, 7, 0, 0, 0 };
    ck_assert_uint_eq(mmi_packed_add(&row, text, 5), 5);
    ck_assert_uint_eq(mmi_packed_add(&row, text, 5), 2);
    ck_assert_uint_eq(mmi_packed_add(&row, text + 2, 3), 0);
    ck_assert_int_eq(row.filled, 7);
    mmi_packed_close(&row);
    check_row(ids, (int32_t[]){ 11, 12, 0, 14, 15, 11, 12 }, 7);
    check_row(targets, (int32_t[]){ 12, IGNORED, 14, 15, IGNORED, 12, IGNORED }, 7);
    check_row(documents, (int32_t[]){ 0, 0, 0, 0, 0, 1, 1 }, 7);
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("data/rows");
    TCase *tc = tcase_create("rows");
    tcase_add_test(tc, a_shifted_row_drops_the_last_id_from_x_and_the_first_from_y);
    tcase_add_test(tc, a_framed_row_has_bos_and_eos_however_short_it_is_cut);
    tcase_add_test(tc, a_packed_row_keeps_documents_apart);
    tcase_add_test(tc, a_packed_row_takes_what_fits_and_no_more);
    suite_add_tcase(suite, tc);
    return suite;
}

int main(void)
{
    return run_suite(make_suite());
}
