#include "text_support.h"

#define TEXTS 40

/* Texts of many lengths, an empty one among them, with their ids one by one. */
typedef struct texts {
    mm_tokenizer *t;
    char *bytes[TEXTS];
    const char *text[TEXTS];
    size_t length[TEXTS], total;
    int32_t *ids[TEXTS];
    size_t count[TEXTS];
} texts;

static void make_texts(texts *x)
{
    test_rng rng = { 5 };
    memset(x, 0, sizeof *x);
    x->t = small_tokenizer();
    for (int i = 0; i < TEXTS; i++) {
        size_t n = i == 3 ? 0 : (size_t)rng_between(&rng, 1, 3000);
        x->bytes[i] = malloc(n + 1);
        for (size_t at = 0; at < n; at++)
            x->bytes[i][at] = SMALL_TEXT[(size_t)rng_between(&rng, 0, 120)]; /* its ASCII part */
        x->text[i] = x->bytes[i];
        x->length[i] = n;
        x->ids[i] = encode_alloc(x->t, x->text[i], n, MM_SPLIT_ALL, &x->count[i]);
        x->total += x->count[i];
    }
}

static void free_texts(texts *x)
{
    for (int i = 0; i < TEXTS; i++) {
        free(x->bytes[i]);
        free(x->ids[i]);
    }
    mm_tokenizer_free(x->t);
}

START_TEST(a_batch_gives_the_ids_of_each_text_alone)
{
    texts x;
    make_texts(&x);
    int32_t *ids = malloc(x.total * sizeof *ids);
    size_t starts[TEXTS + 1];
    ck_ok(mm_encode_batch(x.t, x.text, x.length, TEXTS, MM_SPLIT_ALL, _i, NULL, 0, starts));
    ck_assert_uint_eq(starts[TEXTS], x.total);
    ck_ok(mm_encode_batch(x.t, x.text, x.length, TEXTS, MM_SPLIT_ALL, _i, ids, x.total, starts));
    for (int i = 0; i < TEXTS; i++) {
        ck_assert_uint_eq(starts[i + 1] - starts[i], x.count[i]);
        ck_assert(x.count[i] == 0 || memcmp(ids + starts[i], x.ids[i], x.count[i] * sizeof *ids) == 0);
    }
    free(ids);
    free_texts(&x);
}
END_TEST

START_TEST(an_empty_batch_has_no_ids)
{
    mm_tokenizer *t = small_tokenizer();
    size_t starts[1] = { 7 };
    ck_ok(mm_encode_batch(t, NULL, NULL, 0, MM_SPLIT_ALL, 2, NULL, 0, starts));
    ck_assert_uint_eq(starts[0], 0);
    mm_tokenizer_free(t);
}
END_TEST

START_TEST(offsets_cut_a_text_into_its_tokens)
{
    texts x;
    make_texts(&x);
    for (int i = 0; i < TEXTS; i++) {
        size_t *offsets = malloc((x.count[i] + 1) * sizeof *offsets);
        ck_ok(mm_token_offsets(x.t, x.ids[i], x.count[i], offsets));
        ck_assert_uint_eq(offsets[0], 0);
        ck_assert_uint_eq(offsets[x.count[i]], x.length[i]);
        for (size_t k = 0; k < x.count[i]; k++) {
            char token[256];
            size_t size;
            ck_ok(mm_decode_bytes(x.t, &x.ids[i][k], 1, 0, token, sizeof token, &size));
            ck_assert_uint_eq(offsets[k + 1] - offsets[k], size);
            ck_assert_mem_eq(x.text[i] + offsets[k], token, size);
        }
        free(offsets);
    }
    free_texts(&x);
}
END_TEST

START_TEST(the_text_that_is_not_utf8_is_named)
{
    mm_tokenizer *t = small_tokenizer();
    const char *text[] = { "good", "b\377d", "\300" };
    size_t length[] = { 4, 3, 1 }, starts[4] = { 9, 9, 9, 9 };
    int32_t ids[8] = { 77 };
    ck_status(mm_encode_batch(t, text, length, 3, MM_SPLIT_ALL, 2, ids, 8, starts), MM_ERR_ARG);
    ck_error_mentions("text 1: the text is not UTF-8 at byte 1");
    ck_assert_int_eq(ids[0], 77);
    mm_tokenizer_free(t);
}
END_TEST

START_TEST(a_batch_held_wrong_is_refused)
{
    mm_tokenizer *t = small_tokenizer();
    const char *text[] = { "cats and hats", NULL };
    size_t length[] = { 13, 2 }, starts[3], offsets[4] = { 5, 5, 5, 5 }, needed = 0;
    int32_t ids[64] = { 77 }, strange[] = { 3, 1 << 21, -1 };
    ck_status(mm_encode_batch(NULL, text, length, 1, MM_SPLIT_ALL, 1, ids, 64, starts), MM_ERR_ARG);
    ck_status(mm_encode_batch(t, NULL, length, 1, MM_SPLIT_ALL, 1, ids, 64, starts), MM_ERR_ARG);
    ck_status(mm_encode_batch(t, text, length, 1, MM_SPLIT_ALL, 1, ids, 64, NULL), MM_ERR_ARG);
    ck_status(mm_encode_batch(t, text, length, 1, MM_SPLIT_ALL, 1, NULL, 64, starts), MM_ERR_ARG);
    ck_status(mm_encode_batch(t, text, length, 1, MM_SPLIT_ALL, -1, ids, 64, starts), MM_ERR_ARG);
    ck_error_mentions("threads is -1");
    for (size_t count = 0; count < 2; count++) {
        ck_status(mm_encode_batch(t, text, length, count, 9, 1, ids, 64, starts), MM_ERR_ARG);
        ck_error_mentions("mm_encode_batch: split is 9");
    }
    ck_status(mm_encode_batch(t, text, length, 2, MM_SPLIT_ALL, 1, ids, 64, starts), MM_ERR_ARG);
    ck_error_mentions("text 1 is NULL");
    ck_status(mm_encode_batch(t, text, length, 1, MM_SPLIT_ALL, 1, ids, 1, starts), MM_ERR_ARG);
    ck_error_mentions("there is room for 1");
    ck_assert_int_eq(ids[0], 77);
    ck_ok(mm_encode(t, text[0], 13, MM_SPLIT_ALL, NULL, 0, &needed));
    ck_assert_uint_eq(starts[0], 0); /* what they take is told all the same */
    ck_assert_uint_eq(starts[1], needed);
    ck_status(mm_encode_batch(t, text, length, 1, MM_SPLIT_ALL, 1025, ids, 64, starts), MM_ERR_ARG);
    mm_memory_usage usage = MM_MEMORY_USAGE_INIT;
    mm_memory_reset_peak();
    length[0] = (size_t)1 << 30;
    ck_status(mm_encode_batch(t, text, length, 1, MM_SPLIT_ALL, 1, ids, 64, starts), MM_ERR_ARG);
    ck_error_mentions("text 0: mm_encode: 1073741824 bytes of text at once");
    ck_ok(mm_memory_get_usage(&usage));
    ck_assert_uint_lt(usage.peak, 1 << 24); /* it is refused before it has room for ids */
    ck_status(mm_token_offsets(t, strange, 2, offsets), MM_ERR_ARG);
    ck_assert_ptr_eq(strstr(mm_last_error(), "mm_token_offsets: ids["), mm_last_error());
    ck_status(mm_token_offsets(t, strange + 2, 1, offsets), MM_ERR_ARG);
    ck_assert_ptr_eq(strstr(mm_last_error(), "mm_token_offsets: ids[0]"), mm_last_error());
    ck_assert_uint_eq(offsets[0], 5);
    ck_status(mm_token_offsets(NULL, ids, 1, offsets), MM_ERR_ARG);
    ck_status(mm_token_offsets(t, NULL, 1, offsets), MM_ERR_ARG);
    ck_status(mm_token_offsets(t, ids, 1, NULL), MM_ERR_ARG);
    mm_tokenizer_free(t);
}
END_TEST

START_TEST(every_failing_allocation_of_a_batch_is_survived)
{
    texts x;
    make_texts(&x);
    int32_t *ids = malloc(x.total * sizeof *ids);
    size_t starts[TEXTS + 1];
    mm_memory_usage before = MM_MEMORY_USAGE_INIT, after = MM_MEMORY_USAGE_INIT;
    ck_ok(mm_memory_get_usage(&before));
    for (uint64_t n = 1;; n++) {
        mmi_memory_fail_at(n, true);
        mm_status status = mm_encode_batch(x.t, x.text, x.length, 6, MM_SPLIT_ALL, 1, ids, x.total, starts);
        mmi_memory_fail_at(0, false);
        ck_ok(mm_memory_get_usage(&after));
        ck_assert_uint_eq(after.current, before.current);
        if (status == MM_OK)
            break;
        ck_assert_int_eq(status, MM_ERR_MEMORY);
        ck_assert_uint_lt(n, 10000);
    }
    free(ids);
    free_texts(&x);
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("encode_batch");
    TCase *test = tcase_create("encode_batch");
    tcase_add_loop_test(test, a_batch_gives_the_ids_of_each_text_alone, 0, 4);
    tcase_add_test(test, an_empty_batch_has_no_ids);
    tcase_add_test(test, offsets_cut_a_text_into_its_tokens);
    tcase_add_test(test, the_text_that_is_not_utf8_is_named);
    tcase_add_test(test, a_batch_held_wrong_is_refused);
    tcase_add_test(test, every_failing_allocation_of_a_batch_is_survived);
    suite_add_tcase(suite, test);
    return suite;
}

int main(void)
{
    return run_suite(make_suite());
}
