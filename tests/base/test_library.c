/* The library as a whole: its version, its dtypes, its log. */
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "support.h"

START_TEST(the_running_version_is_the_one_compiled_against)
{
    char text[32];
    snprintf(text, sizeof text, "%d.%d.%d", MM_VERSION_MAJOR, MM_VERSION_MINOR, MM_VERSION_PATCH);
    ck_assert_str_eq(mm_version_string(), text);
    ck_assert_uint_eq(mm_version(), MM_VERSION);
    ck_assert_uint_eq(MM_VERSION >> 16, MM_VERSION_MAJOR);
    ck_assert_uint_eq(MM_VERSION >> 8 & 255, MM_VERSION_MINOR);
    ck_assert_uint_eq(MM_VERSION & 255, MM_VERSION_PATCH);
}
END_TEST

START_TEST(dtypes_have_pinned_numbers_sizes_and_names)
{
    static const struct {
        int32_t dtype, number;
        size_t size;
        const char *name;
    } known[] = { { MM_F32, 0, 4, "f32" },   { MM_BF16, 1, 2, "bf16" }, { MM_F16, 2, 2, "f16" },
                  { MM_I32, 3, 4, "i32" },   { MM_I64, 4, 8, "i64" },   { MM_Q8_0, 5, 0, "q8_0" },
                  { MM_Q4_0, 6, 0, "q4_0" } };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        ck_assert_int_eq(known[i].dtype, known[i].number);
        ck_assert_uint_eq(mm_dtype_size(known[i].dtype), known[i].size);
        ck_assert_str_eq(mm_dtype_name(known[i].dtype), known[i].name);
    }
    ck_assert_uint_eq(mm_dtype_size(-1), 0);
    ck_assert_uint_eq(mm_dtype_size(1000), 0);
    ck_assert_str_eq(mm_dtype_name(-1), "unknown");
}
END_TEST

typedef struct heard {
    int count;
    int32_t level;
    char message[8192]; /* more than any remark is let be */
} heard;

static void hear(void *user, int32_t level, const char *message)
{
    heard *h = user;
    h->count++;
    h->level = level;
    snprintf(h->message, sizeof h->message, "%s", message);
}

START_TEST(the_log_hears_what_its_level_allows)
{
    heard h = { 0, -1, "" };
    mmi_log(MM_LOG_ERROR, "nobody listens");
    mm_set_log(hear, &h, MM_LOG_WARNING);
    mmi_log(MM_LOG_INFO, "too talkative");
    ck_assert_int_eq(h.count, 0);
    mmi_log(MM_LOG_WARNING, "%d of %s", 3, "them");
    ck_assert_int_eq(h.count, 1);
    ck_assert_int_eq(h.level, MM_LOG_WARNING);
    ck_assert_str_eq(h.message, "3 of them");
    mmi_log(MM_LOG_ERROR, "worse");
    ck_assert_int_eq(h.count, 2);
    mm_set_log(NULL, NULL, MM_LOG_DEBUG);
    mmi_log(MM_LOG_ERROR, "nobody listens");
    ck_assert_int_eq(h.count, 2);
}
END_TEST

START_TEST(a_remark_too_long_is_cut_at_a_character)
{
    for (size_t shift = 0; shift < 3; shift++) {
        heard h = { 0, -1, "" };
        char text[4096] = "xx";
        text[shift] = '\0';
        while (strlen(text) + 3 < sizeof text)
            strcat(text, "语");
        mm_set_log(hear, &h, MM_LOG_DEBUG);
        mmi_log(MM_LOG_DEBUG, "%s", text);
        const size_t n = strlen(h.message);
        ck_assert_int_eq(h.count, 1);
        ck_assert_uint_gt(n, 500);
        ck_assert_uint_lt(n, strlen(text));
        ck_assert(memcmp(h.message, text, n) == 0);
        ck_assert_uint_eq(n % 3, shift);
    }
}
END_TEST

/* Names in it may hold anything. */
START_TEST(a_remark_is_one_line_of_whole_characters)
{
    heard h = { 0, -1, "" };
    mm_set_log(hear, &h, MM_LOG_DEBUG);
    mmi_log(MM_LOG_DEBUG, "%s: is damaged", "two\nlines/caf\xE9.json");
    ck_assert_str_eq(h.message, "two lines/caf?.json: is damaged");
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("base/library");
    TCase *c = tcase_create("library");
    tcase_add_test(c, the_running_version_is_the_one_compiled_against);
    tcase_add_test(c, dtypes_have_pinned_numbers_sizes_and_names);
    tcase_add_test(c, the_log_hears_what_its_level_allows);
    tcase_add_test(c, a_remark_too_long_is_cut_at_a_character);
    tcase_add_test(c, a_remark_is_one_line_of_whole_characters);
    suite_add_tcase(suite, c);
    return suite;
}

int main(void)
{
    return run_suite(make_suite());
}
