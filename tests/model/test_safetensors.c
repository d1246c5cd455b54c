/* The safetensors reader trusts nothing; the writer replaces files whole. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "model/safetensors.h"
#include "support.h"

/* An image of `header` and `size` bytes of data that count up, in a block of its exact size so that reading beyond it
 * shows. */
static unsigned char *make_image(const char *header, size_t size, size_t *total)
{
    size_t length = strlen(header);
    *total = 8 + length + size;
    unsigned char *image = malloc(*total);
    ck_assert_ptr_nonnull(image);
    for (int i = 0; i < 8; i++)
        image[i] = (unsigned char)((unsigned long long)length >> (8 * i));
    memcpy(image + 8, header, length);
    for (size_t i = 0; i < size; i++)
        image[8 + length + i] = (unsigned char)i;
    return image;
}

static mm_status parse(const char *header, size_t size, mmi_st_file *file)
{
    size_t total = 0;
    unsigned char *image = make_image(header, size, &total);
    mm_status status = mmi_st_parse(image, total, "x.safetensors", file);
    free(image);
    return status;
}

static void refuses(const char *header, size_t size, mm_status expected, const char *words)
{
    mmi_st_file file, untouched;
    memset(&file, 0x5A, sizeof file);
    untouched = file;
    ck_status(parse(header, size, &file), expected);
    ck_error_mentions(words);
    ck_error_mentions("x.safetensors");
    ck_assert_msg(memcmp(&file, &untouched, sizeof file) == 0, "a refused file changed the result");
}

START_TEST(a_file_is_read_entry_by_entry)
{
    const char *header = "{\"b\":{\"dtype\":\"I64\",\"shape\":[2],\"data_offsets\":[0,16]},"
                         "\"__metadata__\":{\"format\":\"pt\"},"
                         "\"a\":{\"dtype\":\"F16\",\"shape\":[1,3],\"data_offsets\":[16,22]},"
                         "\"s\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[22,26]},"
                         "\"none\":{\"dtype\":\"BF16\",\"shape\":[0,7],\"data_offsets\":[22,22]}}   ";
    size_t total = 0;
    unsigned char *image = make_image(header, 26, &total);
    mmi_st_file file;
    ck_ok(mmi_st_parse(image, total, "x", &file));
    ck_assert_uint_eq(file.count, 4);
    const mmi_st_entry *a = mmi_st_find(&file, "a"), *b = mmi_st_find(&file, "b");
    ck_assert_ptr_nonnull(a);
    ck_assert_ptr_nonnull(b);
    ck_assert_ptr_null(mmi_st_find(&file, "c"));
    ck_assert_ptr_null(mmi_st_find(&file, "__metadata__"));
    ck_assert_int_eq(a->dtype, MM_F16);
    ck_assert_int_eq(a->rank, 2);
    ck_assert_int_eq(a->shape[0], 1);
    ck_assert_int_eq(a->shape[1], 3);
    ck_assert_int_eq(a->shape[2], 1);
    ck_assert_int_eq(a->elements, 3);
    ck_assert_uint_eq(a->bytes, 6);
    ck_assert_int_eq(b->dtype, MM_I64);
    ck_assert_ptr_eq(a->data, image + total - 26 + 16);
    unsigned char three[3];
    ck_ok(mmi_st_read(three, &file, a, 1, 3));
    ck_assert_uint_eq(three[0], 17);
    ck_assert_uint_eq(three[2], 19);
    ck_assert_int_eq(mmi_st_find(&file, "s")->rank, 0);
    ck_assert_int_eq(mmi_st_find(&file, "s")->elements, 1);
    ck_assert_int_eq(mmi_st_find(&file, "none")->elements, 0);
    mmi_st_close(&file);
    mmi_st_close(&file);
    free(image);
    ck_assert_uint_eq(bytes_held(), 0);
}
END_TEST

START_TEST(an_empty_header_is_a_file_without_tensors)
{
    mmi_st_file file;
    ck_ok(parse("{}", 0, &file));
    ck_assert_uint_eq(file.count, 0);
    ck_assert_ptr_null(mmi_st_find(&file, "a"));
    mmi_st_close(&file);
    refuses("{}", 4, MM_ERR_FORMAT, "the last 4 bytes belong to no tensor");
}
END_TEST

START_TEST(lengths_that_lie_are_refused)
{
    static const struct {
        unsigned char bytes[10];
        size_t size;
        const char *words;
    } cases[] = {
        { { 0 }, 0, "0 bytes are too few" },
        { { 2, 0, 0, 0, 0, 0, 0 }, 7, "7 bytes are too few" },
        { { 0 }, 8, "does not begin with {" },
        { { 3, 0, 0, 0, 0, 0, 0, 0, '{', '}' }, 10, "a header of 3 bytes does not fit" },
        { { 255, 255, 255, 255, 255, 255, 255, 255, '{', '}' }, 10, "a header of 18446744073709551615 bytes" },
        { { 248, 255, 255, 255, 255, 255, 255, 127, '{', '}' }, 10, "does not fit" },
        { { 1, 0, 0, 0, 0, 0, 0, 0, '{', '}' }, 10, "header: line 1" },
        { { 2, 0, 0, 0, 0, 0, 0, 0, ' ', '{' }, 10, "does not begin with {" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        unsigned char *exact = malloc(cases[i].size + (cases[i].size == 0));
        memcpy(exact, cases[i].bytes, cases[i].size);
        mmi_st_file file;
        ck_status(mmi_st_parse(exact, cases[i].size, "x.safetensors", &file), MM_ERR_FORMAT);
        ck_error_mentions(cases[i].words);
        free(exact);
    }
}
END_TEST

START_TEST(an_absurd_header_is_refused_before_it_is_read)
{
    size_t size = 8 + (size_t)MMI_ST_HEADER_MAX + 1;
    unsigned char *image = calloc(size, 1); /* pages nobody touches cost nothing */
    ck_assert_ptr_nonnull(image);
    for (int i = 0; i < 8; i++)
        image[i] = (unsigned char)((MMI_ST_HEADER_MAX + 1) >> (8 * i));
    mmi_st_file file;
    ck_status(mmi_st_parse(image, size, "x", &file), MM_ERR_FORMAT);
    ck_error_mentions("at most 100000000 are allowed");
    free(image);
}
END_TEST

#define ENTRY(dtype, shape, offsets) "{\"w\":{\"dtype\":" dtype ",\"shape\":" shape ",\"data_offsets\":" offsets "}}"

static const struct bad_header {
    const char *header;
    size_t size;
    mm_status status;
    const char *words;
} bad_headers[] = {
    /* not JSON, or not of this shape */
    { "{\"w\":", 0, MM_ERR_FORMAT, "header: line 1" },
    { "{} x", 0, MM_ERR_FORMAT, "header: line 1" },
    { "{\"w\":3}", 0, MM_ERR_FORMAT, "w is an integer, not an object" },
    { "{\"w\":{}}", 0, MM_ERR_FORMAT, "\"shape\" is absent" },
    { "{\"w\":{\"shape\":[1]}}", 0, MM_ERR_FORMAT, "\"dtype\" is absent" },
    { "{\"w\":{\"shape\":[1],\"dtype\":\"F32\"}}", 4, MM_ERR_FORMAT, "\"data_offsets\" is not a pair" },
    { "{\"__metadata__\":[]}", 0, MM_ERR_FORMAT, "__metadata__ is an array" },
    { "{\"__metadata__\":{\"a\":1}}", 0, MM_ERR_FORMAT, "not a string" },
    { "{\"a\\nb\":{}}", 0, MM_ERR_FORMAT, "control character (byte 10)" },
    { "{\"a\\u0000b\":{}}", 0, MM_ERR_FORMAT, "header" },
    { "{\"w\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0]},"
      "\"w\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0]}}", 0, MM_ERR_FORMAT, "duplicate" },
    /* dtypes */
    { ENTRY("1", "[1]", "[0,4]"), 4, MM_ERR_FORMAT, "\"dtype\" is an integer, not a string" },
    { ENTRY("\"F31\"", "[1]", "[0,4]"), 4, MM_ERR_FORMAT, "\"dtype\" is \"F31\", which safetensors does not have" },
    { ENTRY("\"f32\"", "[1]", "[0,4]"), 4, MM_ERR_FORMAT, "\"f32\"" },
    { ENTRY("\"\"", "[1]", "[0,4]"), 4, MM_ERR_FORMAT, "\"dtype\" is \"\"" },
    { ENTRY("\"F4\"", "[3]", "[0,1]"), 1, MM_ERR_FORMAT, "do not fill whole bytes" },
    /* shapes */
    { ENTRY("\"F32\"", "4", "[0,4]"), 4, MM_ERR_FORMAT, "\"shape\" is an integer, not an array" },
    { ENTRY("\"F32\"", "[-1]", "[0,4]"), 4, MM_ERR_FORMAT, "dimension 0 of \"shape\"" },
    { ENTRY("\"F32\"", "[1, 1.0]", "[0,4]"), 4, MM_ERR_FORMAT, "dimension 1 of \"shape\"" },
    { ENTRY("\"F32\"", "[\"1\"]", "[0,4]"), 4, MM_ERR_FORMAT, "dimension 0 of \"shape\"" },
    { ENTRY("\"F32\"", "[null]", "[0,4]"), 4, MM_ERR_FORMAT, "dimension 0 of \"shape\"" },
    { ENTRY("\"F32\"", "[1,1,1,1,1]", "[0,4]"), 4, MM_ERR_UNSUPPORTED, "5 dimensions, at most 4" },
    { ENTRY("\"F32\"", "[4294967296,4294967296]", "[0,0]"), 0, MM_ERR_FORMAT, "more elements than can be counted" },
    { ENTRY("\"F32\"", "[9223372036854775807,2]", "[0,0]"), 0, MM_ERR_FORMAT, "more elements than can be counted" },
    { ENTRY("\"F32\"", "[4611686018427387904]", "[0,0]"), 0, MM_ERR_FORMAT, "more bytes than can be counted" },
    { ENTRY("\"F32\"", "[9223372036854775808]", "[0,4]"), 4, MM_ERR_FORMAT, "header" },
    { ENTRY("\"F32\"", "[2]", "[0,4]"), 4, MM_ERR_FORMAT, "shape [2] of F32 takes 8 bytes, data_offsets [0, 4] have 4" },
    { ENTRY("\"F32\"", "[134217728]", "[0,4]"), 4, MM_ERR_FORMAT, "takes 536870912 bytes" }, /* with 32 bits, too */
    { ENTRY("\"BF16\"", "[2,1]", "[0,8]"), 8, MM_ERR_FORMAT, "shape [2, 1] of BF16 takes 4 bytes" },
    /* ranges */
    { ENTRY("\"F32\"", "[1]", "4"), 4, MM_ERR_FORMAT, "not a pair" },
    { ENTRY("\"F32\"", "[1]", "[0]"), 4, MM_ERR_FORMAT, "not a pair" },
    { ENTRY("\"F32\"", "[1]", "[0,4,8]"), 8, MM_ERR_FORMAT, "not a pair" },
    { ENTRY("\"F32\"", "[1]", "[-4,0]"), 4, MM_ERR_FORMAT, "not a pair" },
    { ENTRY("\"F32\"", "[1]", "[0,4.0]"), 4, MM_ERR_FORMAT, "not a pair" },
    { ENTRY("\"F32\"", "[1]", "[4,0]"), 4, MM_ERR_FORMAT, "do not lie within the 4 bytes" },
    { ENTRY("\"F32\"", "[1]", "[4,8]"), 4, MM_ERR_FORMAT, "do not lie within the 4 bytes" },
    { ENTRY("\"F32\"", "[1]", "[0,9223372036854775807]"), 4, MM_ERR_FORMAT, "do not lie within" },
    { ENTRY("\"F32\"", "[1]", "[4,8]"), 8, MM_ERR_FORMAT, "4 bytes before the data of w belong to no tensor" },
    { ENTRY("\"F32\"", "[1]", "[0,4]"), 9, MM_ERR_FORMAT, "the last 5 bytes belong to no tensor" },
    { "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},"
      "\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}", 8, MM_ERR_FORMAT,
      "the data of b overlap those of a" },
    { "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
      "\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4, MM_ERR_FORMAT, "overlap" },
    { "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
      "\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[8,12]}}", 12, MM_ERR_FORMAT,
      "4 bytes before the data of b" },
};

START_TEST(a_bad_header_is_refused_with_its_reason)
{
    const struct bad_header *bad = &bad_headers[_i];
    refuses(bad->header, bad->size, bad->status, bad->words);
    ck_assert_uint_eq(bytes_held(), 0);
}
END_TEST

START_TEST(dtypes_that_cannot_be_read_are_still_checked_and_named)
{
    mmi_st_file file;
    ck_ok(parse(ENTRY("\"F8_E4M3\"", "[3]", "[0,3]"), 3, &file));
    ck_assert_int_eq(file.entries[0].dtype, MMI_ST_OTHER);
    ck_assert_str_eq(file.entries[0].dtype_name, "F8_E4M3");
    mmi_st_close(&file);
    ck_ok(parse(ENTRY("\"F4\"", "[4]", "[0,2]"), 2, &file));
    mmi_st_close(&file);
    refuses(ENTRY("\"F64\"", "[3]", "[0,12]"), 12, MM_ERR_FORMAT, "takes 24 bytes");
}
END_TEST

START_TEST(a_name_without_end_is_refused)
{
    char header[1024];
    int used = snprintf(header, sizeof header, "{\"");
    memset(header + used, 'n', 600);
    snprintf(header + used + 600, sizeof header - 602, "\":{}}");
    refuses(header, 0, MM_ERR_FORMAT, "600 bytes, at most 512");
}
END_TEST

static const char *file_in(const char *directory, const char *name)
{
    static char path[600];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    return path;
}

static const float weights[6] = { 1, -2, 3, 0.5f, -0.25f, 1e-30f };
static const uint16_t halves[3] = { 0x3F80, 0x4000, 0xC000 };
static const int64_t number = -7;

static const mmi_st_entry table[] = {
    { .name = "w", .dtype = MM_F32, .rank = 2, .shape = { 2, 3, 1, 1 }, .data = weights },
    { .name = "\"q\"/\xC3\xA9", .dtype = MM_BF16, .rank = 1, .shape = { 3, 1, 1, 1 }, .data = halves },
    { .name = "n", .dtype = MM_I64, .rank = 0, .shape = { 1, 1, 1, 1 }, .data = &number },
    { .name = "empty", .dtype = MM_F16, .rank = 1, .shape = { 0, 1, 1, 1 }, .data = NULL },
};

START_TEST(what_is_written_is_read_back_mapped_or_not)
{
    static const char *const metadata[] = { "format", "pt", "made", "\xE4\xBD\xA0", NULL };
    const char *path = file_in(scratch_directory(), "a.safetensors");
    ck_ok(mmi_st_write(path, table, 4, metadata));
    for (int mapped = 0; mapped < 2; mapped++) {
        mmi_st_file file;
        ck_ok(mapped ? mmi_st_open(path, &file) : mmi_st_open_unmapped(path, &file));
        ck_assert_uint_eq(file.count, 4);
        ck_assert_str_eq(file.what, path);
        for (size_t i = 0; i < 4; i++) {
            const mmi_st_entry *e = mmi_st_find(&file, table[i].name);
            unsigned char bytes[64];
            ck_assert_ptr_nonnull(e);
            ck_assert_int_eq(e->dtype, table[i].dtype);
            ck_assert_int_eq(e->rank, table[i].rank);
            ck_assert_int_eq(memcmp(e->shape, table[i].shape, sizeof e->shape), 0);
            ck_assert_int_eq(e->data != NULL, mapped);
            ck_ok(mmi_st_read(bytes, &file, e, 0, e->bytes));
            ck_assert(e->bytes == 0 || memcmp(bytes, table[i].data, e->bytes) == 0);
        }
        ck_assert_uint_eq(mmi_st_find(&file, "w")->offset % 64, 0);
        mmi_st_close(&file);
    }
    ck_assert_uint_eq(bytes_held(), 0);
}
END_TEST

START_TEST(a_file_shortened_while_open_is_an_error_not_a_signal)
{
    const char *path = file_in(scratch_directory(), "a.safetensors");
    ck_ok(mmi_st_write(path, table, 4, NULL));
    mmi_st_file file;
    ck_ok(mmi_st_open_unmapped(path, &file));
    FILE *f = fopen(path, "wb");
    ck_assert_ptr_nonnull(f);
    fclose(f);
    float w[6];
    ck_status(mmi_st_read(w, &file, mmi_st_find(&file, "w"), 0, sizeof w), MM_ERR_IO);
    ck_error_mentions("became shorter");
    mmi_st_close(&file);
}
END_TEST

START_TEST(files_that_cannot_be_opened_are_io_errors)
{
    mmi_st_file file;
    const char *directory = scratch_directory();
    ck_status(mmi_st_open(file_in(directory, "none"), &file), MM_ERR_IO);
    ck_status(mmi_st_open_unmapped(file_in(directory, "none"), &file), MM_ERR_IO);
    ck_error_mentions("none");
    ck_status(mmi_st_open(directory, &file), MM_ERR_IO);
    const char *path = file_in(directory, "empty");
    fclose(fopen(path, "wb"));
    ck_status(mmi_st_open(path, &file), MM_ERR_FORMAT);
    ck_status(mmi_st_open_unmapped(path, &file), MM_ERR_FORMAT);
    ck_error_mentions("too few");
    ck_assert_uint_eq(bytes_held(), 0);
}
END_TEST

START_TEST(a_truncated_file_is_refused_at_every_length)
{
    const char *directory = scratch_directory();
    char path[600];
    snprintf(path, sizeof path, "%s", file_in(directory, "a.safetensors"));
    ck_ok(mmi_st_write(path, table, 4, NULL));
    char *data = NULL;
    size_t size = 0;
    ck_ok(mmi_read_file(path, &data, &size));
    for (size_t length = 0; length < size; length++) {
        unsigned char *exact = malloc(length + (length == 0));
        memcpy(exact, data, length);
        mmi_st_file file;
        ck_status(mmi_st_parse(exact, length, "x", &file), MM_ERR_FORMAT);
        free(exact);
    }
    mmi_free(data);
}
END_TEST

START_TEST(tables_that_make_no_file_are_refused_and_leave_none)
{
    mmi_st_entry bad[2] = { table[0], table[1] };
    char path[600];
    snprintf(path, sizeof path, "%s", file_in(scratch_directory(), "a.safetensors"));
    bad[1].name = bad[0].name;
    ck_status(mmi_st_write(path, bad, 2, NULL), MM_ERR_ARG);
    bad[1] = table[1];
    bad[1].dtype = 77;
    ck_status(mmi_st_write(path, bad, 2, NULL), MM_ERR_ARG);
    bad[1] = table[1];
    bad[1].rank = 5;
    ck_status(mmi_st_write(path, bad, 2, NULL), MM_ERR_ARG);
    bad[1] = table[1];
    bad[1].shape[0] = INT64_MAX;
    ck_status(mmi_st_write(path, bad, 2, NULL), MM_ERR_ARG);
    bad[1].shape[0] = -1;
    ck_status(mmi_st_write(path, bad, 2, NULL), MM_ERR_ARG);
    bad[1] = table[1];
    bad[1].data = NULL;
    ck_status(mmi_st_write(path, bad, 2, NULL), MM_ERR_ARG);
    ck_error_mentions("has no data");
    bad[1] = table[1];
    bad[1].name = (char *)"__metadata__";
    ck_status(mmi_st_write(path, bad, 2, NULL), MM_ERR_ARG);
    ck_assert(!mmi_file_exists(path));
    ck_status(mmi_st_write(file_in("/dev/null", "sub"), table, 4, NULL), MM_ERR_IO);
    ck_assert_uint_eq(bytes_held(), 0);
}
END_TEST

START_TEST(every_failing_allocation_is_survived)
{
    char path[600];
    snprintf(path, sizeof path, "%s", file_in(scratch_directory(), "a.safetensors"));
    uint64_t n = 1;
    for (;; n++) {
        mmi_memory_fail_at(n, false);
        mm_status status = mmi_st_write(path, table, 4, NULL);
        mmi_memory_fail_at(0, false);
        ck_assert_uint_eq(bytes_held(), 0);
        if (status == MM_OK)
            break;
        ck_assert_int_eq(status, MM_ERR_MEMORY);
        ck_assert(!mmi_file_exists(path));
    }
    ck_assert_uint_gt(n, 2);
    for (n = 1;; n++) {
        mmi_st_file file;
        mmi_memory_fail_at(n, false);
        mm_status status = mmi_st_open_unmapped(path, &file);
        mmi_memory_fail_at(0, false);
        if (status == MM_OK) {
            mmi_st_close(&file);
            break;
        }
        ck_assert_int_eq(status, MM_ERR_MEMORY);
        ck_assert_uint_eq(bytes_held(), 0);
    }
    ck_assert_uint_gt(n, 1);
}
END_TEST

/* Flips, cuts, insertions; the image is copied to a block of its exact size, so that any step outside is seen. */
START_TEST(no_mutation_of_a_file_does_harm)
{
    char path[600];
    snprintf(path, sizeof path, "%s", file_in(scratch_directory(), "a.safetensors"));
    ck_ok(mmi_st_write(path, table, 4, NULL));
    char *data = NULL;
    size_t size = 0;
    ck_ok(mmi_read_file(path, &data, &size));
    uint64_t before = bytes_held();
    test_rng rng = { 11 };
    size_t header = 8 + (size_t)(unsigned char)data[0] + 256 * (size_t)(unsigned char)data[1];
    for (int round = 0; round < 20000; round++) {
        size_t length = round % 4 == 0 ? (size_t)rng_between(&rng, 0, (int)size) : size;
        unsigned char *image = malloc(length + (length == 0));
        memcpy(image, data, length);
        for (int flips = rng_between(&rng, 1, 4); length > 0 && flips > 0; flips--) {
            int end = rng_between(&rng, 0, 7) > 0 && header < length ? (int)header : (int)length;
            unsigned char *byte = &image[rng_between(&rng, 0, end - 1)];
            *byte = rng_between(&rng, 0, 1) ? (unsigned char)(*byte ^ 1 << rng_between(&rng, 0, 7))
                                            : (unsigned char)rng_next(&rng);
        }
        mmi_st_file file;
        mm_status status = mmi_st_parse(image, length, "x", &file);
        ck_assert(status == MM_OK || status == MM_ERR_FORMAT || status == MM_ERR_UNSUPPORTED);
        if (status == MM_OK) {
            for (size_t i = 0; i < file.count; i++) {
                unsigned char all[256];
                ck_assert_uint_le(file.entries[i].bytes, sizeof all);
                ck_ok(mmi_st_read(all, &file, &file.entries[i], 0, file.entries[i].bytes));
            }
            mmi_st_close(&file);
        }
        ck_assert_uint_eq(bytes_held(), before);
        free(image);
    }
    mmi_free(data);
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("model/safetensors");
    TCase *reading = tcase_create("reading");
    tcase_add_test(reading, a_file_is_read_entry_by_entry);
    tcase_add_test(reading, an_empty_header_is_a_file_without_tensors);
    tcase_add_test(reading, lengths_that_lie_are_refused);
    tcase_add_test(reading, an_absurd_header_is_refused_before_it_is_read);
    tcase_add_loop_test(reading, a_bad_header_is_refused_with_its_reason, 0,
                        (int)(sizeof bad_headers / sizeof *bad_headers));
    tcase_add_test(reading, dtypes_that_cannot_be_read_are_still_checked_and_named);
    tcase_add_test(reading, a_name_without_end_is_refused);
    tcase_add_test(reading, files_that_cannot_be_opened_are_io_errors);
    tcase_add_test(reading, a_truncated_file_is_refused_at_every_length);
    tcase_add_test(reading, no_mutation_of_a_file_does_harm);
    tcase_set_timeout(reading, 60);
    suite_add_tcase(suite, reading);
    TCase *writing = tcase_create("writing");
    tcase_add_test(writing, what_is_written_is_read_back_mapped_or_not);
    tcase_add_test(writing, a_file_shortened_while_open_is_an_error_not_a_signal);
    tcase_add_test(writing, tables_that_make_no_file_are_refused_and_leave_none);
    tcase_add_test(writing, every_failing_allocation_is_survived);
    suite_add_tcase(suite, writing);
    return suite;
}

int main(void)
{
    return run_suite(make_suite());
}
