/* The one place memory comes from: aligned, counted, checked for overflow, failing on demand. */
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "support.h"
#if MMI_GUARD > 0
#include <sanitizer/asan_interface.h>
#endif

static mm_memory_usage usage(void)
{
    mm_memory_usage now = MM_MEMORY_USAGE_INIT;
    ck_ok(mm_memory_get_usage(&now));
    return now;
}

START_TEST(blocks_are_aligned_and_writable_to_their_end)
{
    void *blocks[64];
    for (size_t i = 0; i < 64; i++) {
        size_t size = i * i + (i % 3 == 2); /* 0, too */
        blocks[i] = i % 2 ? mmi_alloc(size, 1) : mmi_calloc(1, size);
        ck_assert_ptr_nonnull(blocks[i]);
        ck_assert_uint_eq((uintptr_t)blocks[i] % MMI_ALIGN, 0);
        memset(blocks[i], (int)i, size);
    }
    for (size_t i = 0; i < 64; i++)
        mmi_free(blocks[i]);
    mmi_free(NULL);
}
END_TEST

START_TEST(calloc_gives_zeros_also_where_memory_was_used_before)
{
    for (size_t i = 0; i < 32; i++) {
        unsigned char *block = mmi_alloc(100 + i, 10);
        memset(block, 0xAB, (100 + i) * 10);
        mmi_free(block);
        block = mmi_calloc(100 + i, 10);
        for (size_t j = 0; j < (100 + i) * 10; j++)
            if (block[j] != 0)
                ck_abort_msg("byte %zu is %d", j, block[j]);
        mmi_free(block);
    }
}
END_TEST

START_TEST(a_product_that_overflows_gives_null)
{
    const size_t big = SIZE_MAX;
    mm_memory_usage before = usage();
    ck_assert_ptr_null(mmi_alloc(big, 2));
    ck_assert_ptr_null(mmi_alloc(big / 2 + 1, 2));
    ck_assert_ptr_null(mmi_alloc(big, 1));
    ck_assert_ptr_null(mmi_alloc(1, big - MMI_ALIGN));
    ck_assert_ptr_null(mmi_calloc(big / 8 + 1, 8));
    ck_assert_ptr_null(mmi_strndup("x", big));
    void *block = mmi_alloc(10, 1);
    ck_assert_ptr_null(mmi_realloc(block, big, 8));
    mmi_free(block);
    ck_assert_uint_eq(usage().current, before.current);
}
END_TEST

START_TEST(realloc_keeps_what_fits)
{
    char *block = mmi_realloc(NULL, 10, 1);
    memcpy(block, "012345678", 10);
    block = mmi_realloc(block, 1000, 1);
    ck_assert_str_eq(block, "012345678");
    block = mmi_realloc(block, 4, 1);
    ck_assert(memcmp(block, "0123", 4) == 0);
    mmi_memory_fail_at(1, false);
    ck_assert_ptr_null(mmi_realloc(block, 2000, 1));
    mmi_memory_fail_at(0, false);
    ck_assert(memcmp(block, "0123", 4) == 0);
    mmi_free(block);
}
END_TEST

START_TEST(usage_counts_bytes_asked_for_their_peak_and_calls)
{
    mm_memory_usage before = usage();
    mm_memory_reset_peak();
    void *a = mmi_alloc(1000, 3), *b = mmi_calloc(1, 500);
    ck_assert_uint_eq(usage().current, before.current + 3500);
    mmi_free(a);
    ck_assert_uint_eq(usage().current, before.current + 500);
    ck_assert_uint_eq(usage().peak, before.current + 3500);
    ck_assert_uint_eq(usage().count, before.count + 2);
    mm_memory_reset_peak();
    ck_assert_uint_eq(usage().peak, before.current + 500);
    mmi_free(b);
    ck_assert_uint_eq(usage().current, before.current);
    ck_status(mm_memory_get_usage(NULL), MM_ERR_ARG);
}
END_TEST

START_TEST(copies_of_text_are_terminated)
{
    char *whole = mmi_strdup("语言"), *part = mmi_strndup("abcdef", 3), *none = mmi_strndup("", 0);
    ck_assert_str_eq(whole, "语言");
    ck_assert_str_eq(part, "abc");
    ck_assert_str_eq(none, "");
    mmi_free(whole);
    mmi_free(part);
    mmi_free(none);
}
END_TEST

START_TEST(the_nth_allocation_fails_and_the_next_works)
{
    mmi_memory_fail_at(3, false);
    void *a = mmi_alloc(1, 1), *b = mmi_alloc(1, 1), *c = mmi_alloc(1, 1), *d = mmi_alloc(1, 1);
    ck_assert_ptr_nonnull(a);
    ck_assert_ptr_nonnull(b);
    ck_assert_ptr_null(c);
    ck_assert_ptr_nonnull(d);
    ck_assert_uint_eq(mmi_memory_fail_at(2, true), 4);
    void *e = mmi_alloc(1, 1);
    ck_assert_ptr_nonnull(e);
    for (int i = 0; i < 3; i++)
        ck_assert_ptr_null(mmi_alloc(1, 1));
    mmi_memory_fail_at(0, false);
    void *f = mmi_alloc(1, 1);
    ck_assert_ptr_nonnull(f);
    mmi_free(a);
    mmi_free(b);
    mmi_free(d);
    mmi_free(e);
    mmi_free(f);
    ck_status(mmi_fail_memory(123, "a thing"), MM_ERR_MEMORY);
    ck_error_mentions("123 bytes for a thing");
}
END_TEST

START_TEST(an_array_grows_by_doubling_and_stays_when_it_cannot)
{
    int *array = NULL;
    size_t capacity = 0, grown = 0;
    for (size_t n = 1; n <= 1000; n++) {
        size_t before = capacity;
        ck_assert(mmi_grow(&array, &capacity, n, sizeof *array));
        ck_assert_uint_ge(capacity, n);
        ck_assert(before == capacity || capacity >= 2 * before);
        grown += before != capacity;
        array[n - 1] = (int)n;
    }
    ck_assert_uint_le(grown, 10);
    int *old = array;
    size_t old_capacity = capacity;
    ck_assert(!mmi_grow(&array, &capacity, SIZE_MAX, sizeof *array));
    mmi_memory_fail_at(1, false);
    ck_assert(!mmi_grow(&array, &capacity, capacity + 1, sizeof *array));
    mmi_memory_fail_at(0, false);
    ck_assert_ptr_eq(array, old);
    ck_assert_uint_eq(capacity, old_capacity);
    ck_assert_int_eq(array[999], 1000);
    mmi_free(array);
}
END_TEST

/* The same cuts, once to measure and once to place. */
static size_t cut(mmi_carve *carve, unsigned char *parts[4])
{
    parts[0] = mmi_carve_take(carve, 1, 1);
    parts[1] = mmi_carve_take(carve, 100, sizeof(float));
    parts[2] = mmi_carve_take(carve, 0, 8);
    parts[3] = mmi_carve_take(carve, 3, 64);
    return carve->used;
}

START_TEST(carving_measures_what_it_places)
{
    unsigned char *parts[4];
    mmi_carve measure = { 0 };
    size_t size = cut(&measure, parts);
    ck_assert_uint_eq(size, 64 + 448 + 0 + 192);
    ck_assert_ptr_null(parts[1]);
    mmi_carve place = { .base = mmi_alloc(size, 1) };
    ck_assert_uint_eq(cut(&place, parts), size);
    ck_assert_ptr_eq(parts[0], place.base);
    ck_assert_ptr_eq(parts[1], place.base + 64);
    ck_assert_ptr_eq(parts[3], place.base + 512);
    ck_assert(!place.overflow);
    mmi_free(place.base);
}
END_TEST

#if MMI_GUARD > 0
START_TEST(nobody_may_touch_what_lies_behind_guarded_parts)
{
    unsigned char *parts[4];
    mmi_carve measure = { .guarded = true };
    const size_t size = cut(&measure, parts);
    ck_assert_uint_eq(size, 64 + 448 + 0 + 192 + 4 * MMI_GUARD);
    mmi_carve place = { .base = mmi_alloc(size, 1), .guarded = true };
    cut(&place, parts);
    ck_assert(!__asan_address_is_poisoned(parts[1] + 399) && __asan_address_is_poisoned(parts[1] + 400));
    ck_assert(__asan_address_is_poisoned(parts[2]) && __asan_address_is_poisoned(parts[3] - 1));
    mmi_free(place.base);
    mmi_carve bare = { .base = mmi_alloc(size, 1) };
    cut(&bare, parts);
    ck_assert_ptr_null(__asan_region_is_poisoned(bare.base, size));
    mmi_free(bare.base);
}
END_TEST
#endif

START_TEST(carving_notices_sizes_that_overflow)
{
    const struct {
        int64_t items;
        size_t size;
    } wrong[] = { { -1, 4 }, { INT64_MAX, 4 }, { INT64_MAX, SIZE_MAX }, { INT64_MAX / 16 + 1, 1 } };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        mmi_carve carve = { .used = 64 };
        ck_assert_ptr_null(mmi_carve_take(&carve, wrong[i].items, wrong[i].size));
        ck_assert(carve.overflow);
        ck_assert_uint_eq(carve.used, 64);
    }
    mmi_carve carve = { 0 };
    mmi_carve_take(&carve, INT64_MAX, 1);
    mmi_carve_take(&carve, INT64_MAX, 1);
    mmi_carve_take(&carve, INT64_MAX, 1);
    ck_assert(carve.overflow);
    carve = (mmi_carve){ 0 };
    ck_assert_ptr_null(mmi_carve_floats(&carve, (int64_t)1 << 33, (int64_t)1 << 33)); /* 0, if it wrapped */
    ck_assert(carve.overflow);
    ck_assert_uint_eq(carve.used, 0);
    ck_assert_uint_eq(mmi_align_up(0), 0);
    ck_assert_uint_eq(mmi_align_up(1), 64);
    ck_assert_uint_eq(mmi_align_up(64), 64);
    ck_assert_uint_eq(mmi_align_up(65), 128);
}
END_TEST

typedef struct counter {
    long allocated, released;
} counter;

static void *counting_allocate(void *user, size_t size)
{
    ((counter *)user)->allocated++;
    return malloc(size);
}

static void counting_release(void *user, void *memory)
{
    ((counter *)user)->released++;
    ck_assert_ptr_nonnull(memory);
    free(memory);
}

START_TEST(the_host_s_allocator_is_used_for_everything)
{
    counter c = { 0, 0 };
    mm_allocator host = { sizeof host, &c, counting_allocate, counting_release };
    ck_ok(mm_set_allocator(&host));
    unsigned char *a = mmi_calloc(100, 3);
    for (size_t i = 0; i < 300; i++)
        ck_assert_uint_eq(a[i], 0);
    ck_status(mm_set_allocator(NULL), MM_ERR_STATE); /* not while its memory is in use */
    ck_error_mentions("300 bytes");
    mmi_free(a);
    mmi_free(NULL);
    mm_config *config = NULL;
    ck_ok(mm_config_create(NULL, &config));
    mm_config_free(config);
    ck_ok(mm_set_allocator(NULL));
    ck_assert_int_gt(c.allocated, 1);
    ck_assert_int_eq(c.allocated, c.released);
    mmi_free(mmi_alloc(1, 1));
    ck_assert_int_eq(c.allocated, c.released);
}
END_TEST

START_TEST(half_an_allocator_is_refused)
{
    counter c = { 0, 0 };
    mm_allocator half = { sizeof half, &c, counting_allocate, NULL };
    ck_status(mm_set_allocator(&half), MM_ERR_ARG);
    half = (mm_allocator){ sizeof half, &c, NULL, counting_release };
    ck_status(mm_set_allocator(&half), MM_ERR_ARG);
    half = (mm_allocator){ 0, &c, counting_allocate, counting_release };
    ck_status(mm_set_allocator(&half), MM_ERR_ARG);
    ck_error_mentions("struct_size is 0, not sizeof(mm_allocator)"); /* which has neither INIT macro nor _init() */
    mmi_free(mmi_alloc(1, 1));
    ck_assert_int_eq(c.allocated, 0);
}
END_TEST

static void *no_memory(void *user, size_t size)
{
    (void)user;
    (void)size;
    return NULL;
}

START_TEST(an_allocator_without_memory_is_a_status)
{
    mm_allocator empty = { sizeof empty, NULL, no_memory, counting_release };
    ck_ok(mm_set_allocator(&empty));
    mm_config *config = NULL;
    ck_status(mm_config_create(NULL, &config), MM_ERR_MEMORY);
    ck_assert_ptr_null(config);
    ck_ok(mm_set_allocator(NULL));
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("base/memory");
    TCase *c = tcase_create("memory");
    tcase_add_test(c, blocks_are_aligned_and_writable_to_their_end);
    tcase_add_test(c, calloc_gives_zeros_also_where_memory_was_used_before);
    tcase_add_test(c, a_product_that_overflows_gives_null);
    tcase_add_test(c, realloc_keeps_what_fits);
    tcase_add_test(c, usage_counts_bytes_asked_for_their_peak_and_calls);
    tcase_add_test(c, copies_of_text_are_terminated);
    tcase_add_test(c, the_nth_allocation_fails_and_the_next_works);
    tcase_add_test(c, an_array_grows_by_doubling_and_stays_when_it_cannot);
    tcase_add_test(c, carving_measures_what_it_places);
#if MMI_GUARD > 0
    tcase_add_test(c, nobody_may_touch_what_lies_behind_guarded_parts);
#endif
    tcase_add_test(c, carving_notices_sizes_that_overflow);
    tcase_add_test(c, the_host_s_allocator_is_used_for_everything);
    tcase_add_test(c, half_an_allocator_is_refused);
    tcase_add_test(c, an_allocator_without_memory_is_a_status);
    suite_add_tcase(suite, c);
    return suite;
}

int main(void)
{
    return run_suite(make_suite());
}
