/* The struct_size rule, for every public struct that begins with one: its two initialisers agree, a smaller struct of
 * an older program keeps the defaults of what it lacks, and a larger one of a newer program may only hold zeros there.
 * (That they hold no padding is for the compiler to say: test_headers.sh.)
 *
 * structs.inc is made from the headers: a line X(mm_batch, MM_BATCH_INIT) for every struct that has an initialiser. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/options.h"
#include "support.h"

#define LARGEST 1024
#define BEYOND 64 /* bytes of fields that only a newer program knows */

/* A union puts any of them at an address that fits them all. */
typedef union room {
    size_t struct_size;
    max_align_t aligned;
    unsigned char bytes[LARGEST + BEYOND];
} room;

typedef struct row {
    const char *name;
    size_t size;
    void (*by_function)(void *value, size_t struct_size);
    void (*by_macro)(void *value);
} row;

#define X(type, MACRO)                                                                                                 \
    _Static_assert(sizeof(type) <= LARGEST, "LARGEST is too small for " #type);                                        \
    _Static_assert(offsetof(type, struct_size) == 0, #type " does not begin with struct_size");                        \
    static void type##_by_function(void *value, size_t struct_size)                                                    \
    {                                                                                                                  \
        type##_init(value, struct_size);                                                                               \
    }                                                                                                                  \
    static void type##_by_macro(void *value)                                                                           \
    {                                                                                                                  \
        type made = MACRO;                                                                                             \
        memcpy(value, &made, sizeof made);                                                                             \
    }
#include "structs.inc"
#undef X

static const row rows[] = {
#define X(type, MACRO) { #type, sizeof(type), type##_by_function, type##_by_macro },
#include "structs.inc"
#undef X
};
#define ROWS (sizeof rows / sizeof *rows)

_Static_assert(sizeof(mm_view) == sizeof(void *) + 88, "mm_view is frozen");

static void fill(room *r, unsigned char byte)
{
    memset(r->bytes, byte, sizeof r->bytes);
}

/* Bytes [from, to) are all `byte`. */
static bool all(const room *r, size_t from, size_t to, unsigned char byte)
{
    while (from < to && r->bytes[from] == byte)
        from++;
    return from >= to;
}

static bool equal(const room *a, const room *b, size_t from, size_t to)
{
    return from >= to || memcmp(a->bytes + from, b->bytes + from, to - from) == 0;
}

START_TEST(the_macro_and_the_function_initialise_alike)
{
    const row *r = &rows[_i];
    room a, b;
    fill(&a, 0xEE);
    fill(&b, 0xEE);
    r->by_macro(&a);
    r->by_function(&b, r->size);
    ck_assert_msg(memcmp(a.bytes, b.bytes, sizeof a.bytes) == 0, "%s", r->name);
    ck_assert_uint_eq(a.struct_size, r->size);
}
END_TEST

START_TEST(init_writes_no_more_than_it_was_told)
{
    const row *r = &rows[_i];
    room whole, part;
    r->by_macro(&whole);
    for (size_t size = sizeof(size_t); size <= r->size; size++) {
        fill(&part, 0xEE);
        r->by_function(&part, size);
        ck_assert_uint_eq(part.struct_size, size);
        ck_assert(equal(&part, &whole, sizeof size, size));
        ck_assert_msg(all(&part, size, sizeof part.bytes, 0xEE), "%s_init wrote beyond %zu bytes", r->name, size);
    }
    r->by_function(NULL, r->size);
    fill(&part, 0xEE);
    r->by_function(&part, sizeof(size_t) - 1);
    ck_assert_msg(part.bytes[0] == 0xEE, "%s_init wrote into a struct without room for its size", r->name);
}
END_TEST

START_TEST(init_of_a_larger_struct_leaves_zeros_behind_what_it_knows)
{
    const row *r = &rows[_i];
    room large;
    fill(&large, 0xEE);
    r->by_function(&large, r->size + BEYOND / 2);
    ck_assert_uint_eq(large.struct_size, r->size + BEYOND / 2);
    ck_assert(all(&large, r->size, r->size + BEYOND / 2, 0));
    ck_assert(all(&large, r->size + BEYOND / 2, sizeof large.bytes, 0xEE));
}
END_TEST

START_TEST(a_smaller_struct_keeps_the_defaults_of_what_it_lacks)
{
    const row *r = &rows[_i];
    room defaults, given, got;
    r->by_macro(&defaults);
    for (size_t size = sizeof(size_t); size <= r->size; size += sizeof(size_t)) {
        fill(&given, 0x5A);
        given.struct_size = size;
        got = defaults;
        ck_ok(mmi_options_read(&got, r->size, &given, r->name));
        ck_assert_uint_eq(got.struct_size, r->size);
        ck_assert(all(&got, sizeof size, size, 0x5A));
        ck_assert(equal(&got, &defaults, size, r->size));
    }
}
END_TEST

START_TEST(a_larger_struct_is_taken_only_when_the_rest_is_zero)
{
    const row *r = &rows[_i];
    room given, got, before;
    r->by_function(&given, r->size + BEYOND);
    r->by_macro(&got);
    ck_ok(mmi_options_read(&got, r->size, &given, r->name));
    before = got;
    for (size_t i = 0; i < BEYOND; i++) {
        given.bytes[r->size + i] = 1;
        ck_status(mmi_options_read(&got, r->size, &given, r->name), MM_ERR_UNSUPPORTED);
        ck_error_mentions(r->name);
        ck_assert(equal(&got, &before, 0, r->size));
        given.bytes[r->size + i] = 0;
    }
}
END_TEST

START_TEST(a_result_fills_what_the_caller_has_room_for)
{
    const row *r = &rows[_i];
    room result, got;
    fill(&result, 0x5A);
    for (size_t size = sizeof(size_t); size <= r->size + BEYOND / 2; size += sizeof(size_t)) {
        fill(&got, 0xEE);
        got.struct_size = size;
        ck_ok(mmi_result_write(&got, &result, r->size, r->name));
        ck_assert_uint_eq(got.struct_size, size);
        ck_assert(all(&got, sizeof size, size < r->size ? size : r->size, 0x5A));
        ck_assert(all(&got, r->size, size, 0));
        ck_assert(all(&got, size, sizeof got.bytes, 0xEE));
    }
}
END_TEST

START_TEST(a_struct_that_was_not_set_up_is_refused)
{
    const row *r = &rows[_i];
    const size_t wrong[] = { 0, sizeof(size_t) - 1, sizeof(size_t) + 1, r->size - 1, 65537, SIZE_MAX };
    room given, got;
    r->by_macro(&got);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        fill(&given, 0);
        given.struct_size = wrong[i];
        ck_status(mmi_options_read(&got, r->size, &given, r->name), MM_ERR_ARG);
        ck_error_mentions(r->name);
        ck_status(mmi_result_write(&given, &got, r->size, r->name), MM_ERR_ARG);
        ck_assert_uint_eq(given.struct_size, wrong[i]);
    }
    ck_ok(mmi_options_read(&got, r->size, NULL, r->name));
    ck_status(mmi_result_write(NULL, &got, r->size, r->name), MM_ERR_ARG);
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("abi/structs");
    TCase *rule = tcase_create("struct_size");
    tcase_add_loop_test(rule, the_macro_and_the_function_initialise_alike, 0, ROWS);
    tcase_add_loop_test(rule, init_writes_no_more_than_it_was_told, 0, ROWS);
    tcase_add_loop_test(rule, init_of_a_larger_struct_leaves_zeros_behind_what_it_knows, 0, ROWS);
    tcase_add_loop_test(rule, a_smaller_struct_keeps_the_defaults_of_what_it_lacks, 0, ROWS);
    tcase_add_loop_test(rule, a_larger_struct_is_taken_only_when_the_rest_is_zero, 0, ROWS);
    tcase_add_loop_test(rule, a_result_fills_what_the_caller_has_room_for, 0, ROWS);
    tcase_add_loop_test(rule, a_struct_that_was_not_set_up_is_refused, 0, ROWS);
    suite_add_tcase(suite, rule);
    return suite;
}

int main(void)
{
    return run_suite(make_suite());
}
