#include "text_support.h"

static mm_tokenizer *t;

static void setup(void)
{
    t = small_tokenizer();
}

static void teardown(void)
{
    mm_tokenizer_free(t);
}

/* The id of a single byte. */
static int32_t byte_id(unsigned char byte)
{
    return t->byte_ids[byte];
}

static void check_decoded(const int32_t *ids, size_t count, int32_t skip, const char *expected)
{
    char out[256];
    size_t size, counted;
    ck_ok(mm_decode(t, ids, count, skip, NULL, 0, &counted));
    ck_ok(mm_decode(t, ids, count, skip, out, sizeof out, &size));
    ck_assert_uint_eq(size, counted);
    ck_assert_uint_eq(size, strlen(expected));
    ck_assert_mem_eq(out, expected, size);
}

START_TEST(bytes_are_joined_before_they_become_text)
{
    const int32_t whole[] = { byte_id(0xE4), byte_id(0xB8), byte_id(0xAD) };
    check_decoded(whole, 3, 0, "中");
    check_decoded(whole, 2, 0, "\xEF\xBF\xBD");
    check_decoded(whole, 0, 0, "");
    const int32_t cut[] = { byte_id(0xE4), byte_id(0xB8), 2, byte_id(0xAD) };
    check_decoded(cut, 4, 0, "\xEF\xBF\xBD<|im_end|>\xEF\xBF\xBD");
    check_decoded(cut, 4, 1, "中");
}
END_TEST

START_TEST(any_ids_decode_to_their_exact_bytes)
{
    test_rng rng = { 3 };
    for (int round = 0; round < 200; round++) {
        int32_t ids[64];
        char expected[4096], got[4096];
        size_t count = (size_t)rng_between(&rng, 0, 64), n = 0, size;
        for (size_t i = 0; i < count; i++) {
            ids[i] = rng_between(&rng, 0, mm_tokenizer_vocab_size(t) - 1);
            size_t one;
            ck_ok(mm_decode_bytes(t, &ids[i], 1, 0, expected + n, sizeof expected - n, &one));
            n += one;
        }
        ck_ok(mm_decode_bytes(t, ids, count, 0, got, sizeof got, &size));
        ck_assert_uint_eq(size, n);
        ck_assert_mem_eq(got, expected, n);
    }
}
END_TEST

START_TEST(a_stream_gives_what_decoding_at_once_gives)
{
    test_rng rng = { 4 };
    for (int32_t skip = 0; skip < 2; skip++) {
        mm_decoder *decoder = NULL;
        ck_ok(mm_decoder_create(t, skip, &decoder));
        for (int round = 0; round < 200; round++) {
            int32_t ids[48];
            char joined[8192], whole[8192];
            const char *text;
            size_t count = (size_t)rng_between(&rng, 0, 48), n = 0, length, size;
            for (size_t i = 0; i < count; i++) { /* mostly lone bytes, so that characters break and meet */
                bool lone = rng_between(&rng, 0, 3) > 0;
                ids[i] = lone ? byte_id((unsigned char)rng_between(&rng, 0x80, 0xF5)) : rng_between(&rng, 0, 349);
                ck_ok(mm_decoder_push(decoder, ids[i], &text, &length));
                ck_assert_int_eq(text[length], '\0');
                memcpy(joined + n, text, length);
                n += length;
            }
            ck_ok(mm_decoder_flush(decoder, &text, &length));
            ck_assert_uint_le(length, 3);
            memcpy(joined + n, text, length);
            n += length;
            ck_ok(mm_decode(t, ids, count, skip, whole, sizeof whole, &size));
            ck_assert_uint_eq(size, n);
            ck_assert_mem_eq(joined, whole, n);
        }
        mm_decoder_free(decoder);
    }
}
END_TEST

static void check_push(mm_decoder *decoder, int32_t id, const char *expected)
{
    const char *text;
    ck_ok(mm_decoder_push(decoder, id, &text, NULL));
    ck_assert_str_eq(text, expected);
}

START_TEST(a_stream_never_gives_half_a_character_nor_waits_for_one_that_cannot_come)
{
    mm_decoder *decoder = NULL;
    const char *text;
    size_t length;
    ck_ok(mm_decoder_create(t, 1, &decoder));
    check_push(decoder, byte_id(0xF0), "");
    check_push(decoder, byte_id(0x9F), "");
    check_push(decoder, 2, ""); /* skipped: what waits goes on waiting */
    check_push(decoder, byte_id(0x98), "");
    check_push(decoder, byte_id(0x80), "😀");
    check_push(decoder, byte_id(0xED), "");
    check_push(decoder, byte_id(0xA0), "\xEF\xBF\xBD\xEF\xBF\xBD");
    check_push(decoder, byte_id(0xE4), "");
    check_push(decoder, byte_id('A'), "\xEF\xBF\xBD" "A");
    check_push(decoder, byte_id(0xE4), "");
    ck_ok(mm_decoder_flush(decoder, &text, &length));
    ck_assert_str_eq(text, "\xEF\xBF\xBD");
    ck_ok(mm_decoder_flush(decoder, &text, &length));
    ck_assert_uint_eq(length, 0);
    check_push(decoder, byte_id(0xB8), "\xEF\xBF\xBD"); /* as new */
    mm_decoder_free(decoder);

    ck_ok(mm_decoder_create(t, 0, &decoder));
    check_push(decoder, byte_id(0xE4), "");
    check_push(decoder, 2, "\xEF\xBF\xBD<|im_end|>");
    mm_decoder_free(decoder);
}
END_TEST

START_TEST(a_decoder_keeps_its_tokenizer_alive)
{
    mm_tokenizer *own = small_tokenizer();
    mm_decoder *decoder = NULL;
    ck_ok(mm_decoder_create(own, 0, &decoder));
    mm_tokenizer_free(own);
    check_push(decoder, byte_id('x'), "x");
    mm_decoder_free(decoder);
    mm_decoder_free(NULL);
}
END_TEST

START_TEST(bad_ids_are_refused_and_change_nothing)
{
    const int32_t ids[] = { byte_id('a'), 350, byte_id('b') };
    const int32_t negative = -1;
    char out[16] = "untouched";
    size_t needed = 7;
    ck_status(mm_decode(t, ids, 3, 0, out, sizeof out, &needed), MM_ERR_ARG);
    ck_error_mentions("ids[1]");
    ck_error_mentions("350");
    ck_status(mm_decode_bytes(t, &negative, 1, 0, out, sizeof out, &needed), MM_ERR_ARG);
    ck_assert_str_eq(out, "untouched");
    ck_assert_uint_eq(needed, 7);

    mm_decoder *decoder = NULL;
    const char *text = "untouched";
    ck_ok(mm_decoder_create(t, 0, &decoder));
    check_push(decoder, byte_id(0xC3), "");
    ck_status(mm_decoder_push(decoder, 350, &text, NULL), MM_ERR_ARG);
    ck_assert_str_eq(text, "untouched");
    check_push(decoder, byte_id(0xA9), "é");
    mm_decoder_free(decoder);
}
END_TEST

START_TEST(too_little_room_writes_nothing)
{
    const int32_t ids[] = { byte_id('a'), byte_id(0xE4), byte_id('b') };
    char out[8];
    size_t needed = 0;
    for (size_t capacity = 1; capacity < 5; capacity++) {
        memset(out, '?', sizeof out);
        ck_status(mm_decode(t, ids, 3, 0, out, capacity, &needed), MM_ERR_ARG);
        ck_assert_uint_eq(needed, 5); /* a, U+FFFD, b */
        ck_assert_int_eq(out[0], '?');
        if (capacity < 3)
            ck_status(mm_decode_bytes(t, ids, 3, 0, out, capacity, &needed), MM_ERR_ARG);
        ck_assert_int_eq(out[0], '?');
    }
    ck_ok(mm_decode(t, ids, 3, 0, out, 5, NULL));
    ck_ok(mm_decode_bytes(t, ids, 3, 0, out, 3, NULL));
    ck_assert_mem_eq(out, "a\xE4" "b", 3);
}
END_TEST

START_TEST(arguments_are_checked)
{
    const int32_t id = 3;
    char out[4];
    size_t needed = 9;
    const char *text;
    mm_decoder *decoder = NULL;
    ck_status(mm_decode(NULL, &id, 1, 0, out, 4, NULL), MM_ERR_ARG);
    ck_status(mm_decode(t, NULL, 1, 0, out, 4, NULL), MM_ERR_ARG);
    ck_status(mm_decode(t, &id, 1, 0, NULL, 4, NULL), MM_ERR_ARG);
    ck_status(mm_decode_bytes(NULL, &id, 1, 0, out, 4, NULL), MM_ERR_ARG);
    ck_ok(mm_decode(t, NULL, 0, 0, NULL, 0, &needed));
    ck_assert_uint_eq(needed, 0);
    ck_status(mm_decoder_create(NULL, 0, &decoder), MM_ERR_ARG);
    ck_status(mm_decoder_create(t, 0, NULL), MM_ERR_ARG);
    ck_status(mm_decoder_push(NULL, 3, &text, NULL), MM_ERR_ARG);
    ck_status(mm_decoder_flush(NULL, &text, NULL), MM_ERR_ARG);
    ck_ok(mm_decoder_create(t, 0, &decoder));
    ck_status(mm_decoder_push(decoder, 3, NULL, NULL), MM_ERR_ARG);
    ck_status(mm_decoder_flush(decoder, NULL, NULL), MM_ERR_ARG);
    mm_decoder_free(decoder);
}
END_TEST

/* On 32 bits, 4096 times a token of a megabyte are no bytes at all. */
START_TEST(more_bytes_than_can_be_addressed_are_no_memory)
{
    enum { LONG = 1 << 20, TIMES = 4096 };
    static char content[LONG + 1];
    static int32_t ids[TIMES];
    static size_t offsets[TIMES + 1];
    const char *special[1] = { content };
    one_text none = { "", 0, 1 };
    mm_tokenizer_train_options o = MM_TOKENIZER_TRAIN_OPTIONS_INIT;
    mm_tokenizer *wide = NULL;
    char out[16] = "untouched";
    size_t needed = 7;
    memset(content, 'x', LONG);
    o.next_text = give_once;
    o.user = &none;
    o.special_tokens = special;
    o.special_count = 1;
    ck_ok(mm_tokenizer_train(&o, &wide));
    for (size_t count = 4095; count <= TIMES; count++) {
        const bool fits = sizeof(size_t) > 4;
        mm_status status = mm_decode_bytes(wide, ids, count, 0, NULL, 0, &needed);
        ck_assert_int_eq(status, fits ? MM_OK : MM_ERR_MEMORY);
        ck_assert(needed == (fits ? (uint64_t)count * LONG : 7));
        offsets[count] = 7;
        ck_assert_int_eq(mm_token_offsets(wide, ids, count, offsets), status);
        ck_assert_uint_eq(offsets[count], needed);
        if (fits)
            continue;
        ck_status(mm_decode(wide, ids, count, 0, out, sizeof out, &needed), MM_ERR_MEMORY);
        ck_status(mm_decode_bytes(wide, ids, count, 0, out, sizeof out, &needed), MM_ERR_MEMORY);
        ck_assert_str_eq(out, "untouched");
        ck_ok(mm_decode(wide, ids, count, 1, out, sizeof out, &needed)); /* skipped ones take no room */
        ck_assert_uint_eq(needed, 0);
        needed = 7;
    }
    mm_tokenizer_free(wide);
}
END_TEST

START_TEST(decoding_survives_every_failing_allocation)
{
    const int32_t ids[] = { byte_id(0xE4), byte_id('b') };
    char out[8];
    mm_status status = MM_ERR_MEMORY;
    mm_memory_usage before = MM_MEMORY_USAGE_INIT, after = MM_MEMORY_USAGE_INIT;
    ck_ok(mm_memory_get_usage(&before));
    for (uint64_t at = 1; status != MM_OK; at++) {
        mm_decoder *decoder = NULL;
        const char *text;
        ck_assert_uint_lt(at, 20);
        mmi_memory_fail_at(at, false);
        status = mm_decode(t, ids, 2, 0, out, sizeof out, NULL);
        if (status == MM_OK)
            status = mm_decoder_create(t, 0, &decoder);
        if (status == MM_OK)
            status = mm_decoder_push(decoder, ids[0], &text, NULL);
        mmi_memory_fail_at(0, false);
        ck_assert(status == MM_OK || status == MM_ERR_MEMORY);
        mm_decoder_free(decoder);
        ck_ok(mm_memory_get_usage(&after));
        ck_assert_uint_eq(before.current, after.current);
    }
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("text/decode");
    TCase *tests = tcase_create("decode");
    tcase_set_timeout(tests, 60);
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_add_test(tests, bytes_are_joined_before_they_become_text);
    tcase_add_test(tests, any_ids_decode_to_their_exact_bytes);
    tcase_add_test(tests, a_stream_gives_what_decoding_at_once_gives);
    tcase_add_test(tests, a_stream_never_gives_half_a_character_nor_waits_for_one_that_cannot_come);
    tcase_add_test(tests, a_decoder_keeps_its_tokenizer_alive);
    tcase_add_test(tests, bad_ids_are_refused_and_change_nothing);
    tcase_add_test(tests, too_little_room_writes_nothing);
    tcase_add_test(tests, arguments_are_checked);
    tcase_add_test(tests, more_bytes_than_can_be_addressed_are_no_memory);
    tcase_add_test(tests, decoding_survives_every_failing_allocation);
    suite_add_tcase(suite, tests);
    return suite;
}

int main(void)
{
    return run_suite(make_suite());
}
