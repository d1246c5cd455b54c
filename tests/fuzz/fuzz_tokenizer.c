/* A tokenizer.json: loaded, used in every direction, written and read back. */
#include <string.h>

#include "fuzz.h"

static const char text[] = "It's 12 o'clock, <|im_start|>user\n\xe4\xbd\xa0\xe5\xa5\xbd  \xf0\x9f\x98\x80\t\r\n the the";

static void decode(mm_tokenizer *tokenizer, const int32_t *ids, size_t count, int32_t skip)
{
    char whole[4096], bytes[4096];
    size_t length = 0, raw = 0;
    mm_decoder *decoder = NULL;
    mm_status status = mm_decode(tokenizer, ids, count, skip, whole, sizeof whole, &length);
    MUST(status == MM_OK || (status == MM_ERR_ARG && length > sizeof whole));
    MUST(mm_decode_bytes(tokenizer, ids, count, skip, bytes, sizeof bytes, &raw) == MM_OK || raw > sizeof bytes);
    if (status != MM_OK)
        return;
    char joined[4096];
    size_t at = 0, n = 0;
    const char *piece = NULL;
    MUST(mm_decoder_create(tokenizer, skip, &decoder) == MM_OK);
    for (size_t i = 0; i <= count; i++) {
        MUST((i < count ? mm_decoder_push(decoder, ids[i], &piece, &n) : mm_decoder_flush(decoder, &piece, &n)) == MM_OK);
        MUST(n <= sizeof joined - at);
        memcpy(joined + at, piece, n);
        at += n;
    }
    MUST(at == length && memcmp(joined, whole, length) == 0);
    mm_decoder_free(decoder);
}

static void use(mm_tokenizer *tokenizer)
{
    int32_t ids[256], vocab = mm_tokenizer_vocab_size(tokenizer);
    size_t count = 0;
    MUST(vocab > 0);
    for (int32_t split = MM_SPLIT_ALL; split <= MM_SPLIT_NONE; split++) {
        mm_status status = mm_encode(tokenizer, text, sizeof text - 1, split, ids, 256, &count);
        MUST(status == MM_OK || refused(status));
        if (status != MM_OK)
            continue;
        for (size_t i = 0; i < count; i++)
            MUST(ids[i] >= 0 && ids[i] < vocab);
        decode(tokenizer, ids, count, 0);
        decode(tokenizer, ids, count, 1);
    }
    for (int32_t i = 0; i < 4; i++) {
        int32_t id = i * 7919 % vocab;
        mm_tokenizer_is_special(tokenizer, id);
        char some[4096];
        size_t needed = 0;
        mm_status status = mm_decode(tokenizer, &id, 1, 0, some, sizeof some, &needed);
        MUST(status == MM_OK || refused(status));
    }
}

static void save_again(mm_tokenizer *tokenizer)
{
    char path[512];
    mm_tokenizer *again = NULL;
    snprintf(path, sizeof path, "%s/tokenizer", fuzz_directory());
    MUST(mm_tokenizer_save(tokenizer, path) == MM_OK);
    MUST(mm_tokenizer_load(path, &again) == MM_OK);
    int32_t a[256], b[256];
    size_t n = 0, m = 0;
    mm_status one = mm_encode(tokenizer, text, sizeof text - 1, MM_SPLIT_ALL, a, 256, &n);
    mm_status two = mm_encode(again, text, sizeof text - 1, MM_SPLIT_ALL, b, 256, &m);
    MUST(one == two && n == m && (one != MM_OK || memcmp(a, b, n * sizeof *a) == 0));
    mm_tokenizer_free(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static unsigned runs;
    mm_tokenizer *tokenizer = NULL;
    mm_status status = mm_tokenizer_load_memory((const char *)data, size, &tokenizer);
    MUST(status == MM_OK ? tokenizer != NULL : refused(status) && tokenizer == NULL);
    if (status != MM_OK)
        return 0;
    use(tokenizer);
    if (runs++ % 16 == 0)
        save_again(tokenizer);
    mm_tokenizer_free(tokenizer);
    return 0;
}
