#include "texts.h"

#include <stdio.h>

const char *put_file(const char *directory, const char *name, const char *bytes, size_t size)
{
    static char path[512];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    FILE *file = fopen(path, "wb");
    ck_assert_ptr_nonnull(file);
    ck_assert_uint_eq(fwrite(bytes, 1, size, file), size);
    ck_assert_int_eq(fclose(file), 0);
    return path;
}

const char *put_rows(const char *directory, const char *name, int rows, int longest, unsigned seed)
{
    static char path[512];
    test_rng rng = { seed };
    snprintf(path, sizeof path, "%s/%s", directory, name);
    FILE *file = fopen(path, "wb");
    ck_assert_ptr_nonnull(file);
    for (int i = 0; i < rows; i++) {
        fprintf(file, "{\"text\": \"%d", i);
        for (int words = rng_between(&rng, 0, longest - 1); words > 0; words--)
            fprintf(file, " %c%c", 'a' + rng_between(&rng, 0, 25), 'a' + rng_between(&rng, 0, 25));
        fprintf(file, "\"}\n");
    }
    ck_assert_int_eq(fclose(file), 0);
    return path;
}

int32_t no_text(void *user, const char **text, size_t *length)
{
    (void)user;
    (void)text;
    (void)length;
    return 0;
}

mm_tokenizer *byte_tokenizer(void)
{
    mm_tokenizer_train_options options = MM_TOKENIZER_TRAIN_OPTIONS_INIT;
    mm_tokenizer *tokenizer = NULL;
    options.next_text = no_text;
    options.vocab_size = 259;
    ck_ok(mm_tokenizer_train(&options, &tokenizer));
    ck_assert_int_eq(mm_tokenizer_vocab_size(tokenizer), 259);
    return tokenizer;
}

int32_t id_of(char c)
{
    return c == ' ' ? 3 + 94 + 12 + 82 + 32 : 3 + (c - '!'); /* a space is written as the 33rd of the moved bytes */
}
