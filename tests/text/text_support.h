/* What the tests of the text folder share: a small tokenizer made on the spot, and random text. */
#ifndef MM_TESTS_TEXT_SUPPORT_H
#define MM_TESTS_TEXT_SUPPORT_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support.h"

#include "base/files.h"
#include "base/memory.h"
#include "text/tokenizer.h"

#define SMALL_TEXT                                                                                                      \
    "The cat sat on the mat, and the other cat sat there with the hat.\n"                                              \
    "That cat isn't the cat that they've seen; we'll see what the cat has.\n"                                          \
    "今天天气很好，我们一起去公园。今天的公园很大，我们很高兴。\n"                                                      \
    "12 cats, 120 hats, 1200 mats.   tabs\tand   spaces.\n"

/* Hands out one text once. */
typedef struct one_text {
    const char *text;
    size_t length;
    int given;
} one_text;

static inline int32_t give_once(void *user, const char **text, size_t *length)
{
    one_text *one = user;
    if (one->given++)
        return 0;
    *text = one->text;
    *length = one->length;
    return 1;
}

static inline mm_status train_on(mm_tokenizer **out, const char *text, size_t length, int32_t vocab_size)
{
    one_text one = { text, length, 0 };
    mm_tokenizer_train_options options = MM_TOKENIZER_TRAIN_OPTIONS_INIT;
    options.next_text = give_once;
    options.user = &one;
    options.vocab_size = vocab_size;
    return mm_tokenizer_train(&options, out);
}

/* MiniMind's three special tokens, the bytes, and 91 merges. */
static inline mm_tokenizer *small_tokenizer(void)
{
    mm_tokenizer *t = NULL;
    ck_ok(train_on(&t, SMALL_TEXT, strlen(SMALL_TEXT), 350));
    return t;
}

/* The small tokenizer's tokenizer.json; free() it. */
static inline char *small_json(void)
{
    mm_tokenizer *t = small_tokenizer();
    const char *directory = scratch_directory();
    char path[512];
    ck_ok(mm_tokenizer_save(t, directory));
    mm_tokenizer_free(t);
    snprintf(path, sizeof path, "%s/tokenizer.json", directory);
    char *data = NULL;
    size_t size = 0;
    ck_ok(mmi_read_file(path, &data, &size));
    char *text = malloc(size + 1);
    ck_assert_ptr_nonnull(text);
    memcpy(text, data, size + 1);
    mmi_free(data);
    return text;
}

/* `text` with the first `from` replaced; free() it. */
static inline char *replaced(const char *text, const char *from, const char *to)
{
    const char *at = strstr(text, from);
    ck_assert_msg(at != NULL, "the text does not hold \"%s\"", from);
    char *out = malloc(strlen(text) + strlen(to) + 1);
    ck_assert_ptr_nonnull(out);
    size_t head = (size_t)(at - text);
    memcpy(out, text, head);
    strcpy(out + head, to);
    strcat(out, at + strlen(from));
    return out;
}

static inline size_t put_utf8(char *out, unsigned code)
{
    if (code < 0x80) {
        out[0] = (char)code;
        return 1;
    }
    size_t n = code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    for (size_t i = n; i-- > 1; code >>= 6)
        out[i] = (char)(0x80 | (code & 0x3F));
    out[0] = (char)((0xF00 >> n & 0xF0) | code);
    return n;
}

/* Random characters of many kinds, spaces and quotes among them often; `out` has room for 4 · count bytes. */
static inline size_t random_text(char *out, size_t count, test_rng *rng)
{
    static const unsigned common[] = { ' ', ' ', '\n', '\t', '\r', '\'', 's', 't', 'a', 'e', '<', '|', '>', 0, '7',
                                       0x3000, 0xA0, 0x85, 0x180E, 0x2028, 0xFEFF, 0x301, 0x4E2D, 0x56FD, 0x1F600 };
    size_t n = 0;
    for (size_t i = 0; i < count; i++) {
        unsigned code;
        switch (rng_between(rng, 0, 3)) {
        case 0:
            code = (unsigned)rng_between(rng, 0, 0x10FFFF);
            break;
        case 1:
            code = (unsigned)rng_between(rng, 0x20, 0x7E);
            break;
        case 2:
            code = (unsigned)rng_between(rng, 0x4E00, 0x4E40);
            break;
        default:
            code = common[rng_between(rng, 0, (int)(sizeof common / sizeof *common) - 1)];
        }
        if (code >= 0xD800 && code <= 0xDFFF)
            code = '?';
        n += put_utf8(out + n, code);
    }
    return n;
}

/* mm_encode into memory of the caller's (free it). */
static inline int32_t *encode_alloc(const mm_tokenizer *t, const char *text, size_t length, int32_t split, size_t *count)
{
    int32_t *ids = malloc((length + 1) * sizeof *ids);
    ck_assert_ptr_nonnull(ids);
    ck_ok(mm_encode(t, text, length, split, ids, length + 1, count));
    return ids;
}

#endif
