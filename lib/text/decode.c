/* Ids to bytes and to text, at once or one by one. */
#include <string.h>

#include "base/memory.h"
#include "base/options.h"
#include "text/tokenizer.h"
#include "text/utf8.h"

/* Bytes that may wait for the rest of their character. */
#define WAITING 3

static mm_status check_id(const mm_tokenizer *t, int32_t id)
{
    if (id < 0 || id >= t->vocab_size)
        return mmi_fail(MM_ERR_ARG, "the id %d is out of range, the tokenizer has 0 to %d", (int)id,
                        (int)t->vocab_size - 1);
    if (t->tokens[id].kind == 0)
        return mmi_fail(MM_ERR_ARG, "no token has the id %d", (int)id);
    return MM_OK;
}

static bool skipped(const mm_tokenizer *t, int32_t id, int32_t skip_special)
{
    return skip_special && (t->tokens[id].kind & MMI_TOKEN_SPECIAL) != 0;
}

/* The tokens' bytes end to end. */
static void join(char *out, const mm_tokenizer *t, const int32_t *ids, size_t count, int32_t skip_special)
{
    for (size_t i = 0; i < count; i++) {
        const mmi_token *token = &t->tokens[ids[i]];
        if (skipped(t, ids[i], skip_special))
            continue;
        memcpy(out, t->token_bytes + token->bytes_at, token->bytes_size);
        out += token->bytes_size;
    }
}

mm_status mmi_tokens_size(size_t *total, const char *name, const mm_tokenizer *t, const int32_t *ids, size_t count,
                          int32_t skip_special)
{
    *total = 0;
    for (size_t i = 0; i < count; i++) {
        mm_status status = check_id(t, ids[i]);
        if (status != MM_OK)
            return mmi_fail_within(status, "%s: ids[%zu]", name, i);
        size_t size = skipped(t, ids[i], skip_special) ? 0 : t->tokens[ids[i]].bytes_size;
        if (size > SIZE_MAX / 3 - *total)
            return mmi_fail(MM_ERR_MEMORY, "%s: the ids have more than %zu bytes", name, SIZE_MAX / 3);
        *total += size;
    }
    return MM_OK;
}

static mm_status check(size_t *total, const char *name, const mm_tokenizer *t, const int32_t *ids, size_t count,
                       int32_t skip_special, const char *out, size_t capacity)
{
    if (!t || (!ids && count > 0) || (!out && capacity > 0))
        return mmi_fail(MM_ERR_ARG, "%s: %s is NULL", name,
                        !t                ? "tokenizer" :
                        !ids && count > 0 ? "ids" :
                                            "the buffer");
    return mmi_tokens_size(total, name, t, ids, count, skip_special);
}

mm_status mm_decode_bytes(const mm_tokenizer *t, const int32_t *ids, size_t count, int32_t skip_special, char *bytes,
                          size_t capacity, size_t *needed)
{
    size_t total;
    mm_status status = check(&total, "mm_decode_bytes", t, ids, count, skip_special, bytes, capacity);
    if (status == MM_OK)
        status = mmi_check_room(needed, total, capacity, "mm_decode_bytes", "bytes");
    if (status == MM_OK && capacity > 0)
        join(bytes, t, ids, count, skip_special);
    return status;
}

mm_status mm_decode(const mm_tokenizer *t, const int32_t *ids, size_t count, int32_t skip_special, char *text,
                    size_t capacity, size_t *needed)
{
    size_t length;
    mm_status status = check(&length, "mm_decode", t, ids, count, skip_special, text, capacity);
    if (status != MM_OK)
        return status;
    char *bytes = mmi_alloc(length, 1);
    if (!bytes)
        return mmi_fail_memory(length, "decoded bytes");
    join(bytes, t, ids, count, skip_special);
    status = mmi_check_room(needed, mmi_utf8_repair(NULL, NULL, bytes, length), capacity, "mm_decode", "bytes");
    if (status == MM_OK && capacity > 0)
        mmi_utf8_repair(text, NULL, bytes, length);
    mmi_free(bytes);
    return status;
}

struct mm_decoder {
    mm_tokenizer *t;
    int32_t skip_special;
    size_t waiting; /* bytes at the start of `bytes` that may yet become a character */
    char *bytes;    /* [WAITING + longest token] */
    char *text;     /* [3 · (that + 1)]: every byte may become U+FFFD */
};

mm_status mm_decoder_create(mm_tokenizer *t, int32_t skip_special, mm_decoder **out)
{
    if (!t || !out)
        return mmi_fail(MM_ERR_ARG, "mm_decoder_create: %s is NULL", !t ? "tokenizer" : "out");
    size_t most = WAITING + t->longest;
    mm_decoder *d = mmi_calloc(1, sizeof *d);
    if (!d)
        return mmi_fail_memory(sizeof *d, "a decoder");
    d->bytes = mmi_alloc(most, 1);
    d->text = mmi_alloc(most + 1, 3);
    if (!d->bytes || !d->text) {
        mm_decoder_free(d);
        return mmi_fail_memory(4 * most + 1, "a decoder");
    }
    d->t = mmi_tokenizer_hold(t);
    d->skip_special = skip_special;
    *out = d;
    return MM_OK;
}

void mm_decoder_free(mm_decoder *d)
{
    if (!d)
        return;
    mm_tokenizer_free(d->t);
    mmi_free(d->bytes);
    mmi_free(d->text);
    mmi_free(d);
}

static void give(mm_decoder *d, size_t size, const char **text, size_t *length)
{
    d->text[size] = '\0';
    *text = d->text;
    if (length)
        *length = size;
}

mm_status mm_decoder_push(mm_decoder *d, int32_t id, const char **text, size_t *length)
{
    if (!d || !text)
        return mmi_fail(MM_ERR_ARG, "mm_decoder_push: %s is NULL", !d ? "decoder" : "text");
    mm_status status = check_id(d->t, id);
    if (status != MM_OK)
        return status;
    size_t total = d->waiting, made;
    if (!skipped(d->t, id, d->skip_special)) {
        join(d->bytes + d->waiting, d->t, &id, 1, 0);
        total += d->t->tokens[id].bytes_size;
    }
    made = mmi_utf8_repair(d->text, &d->waiting, d->bytes, total);
    memmove(d->bytes, d->bytes + total - d->waiting, d->waiting);
    give(d, made, text, length);
    return MM_OK;
}

mm_status mm_decoder_flush(mm_decoder *d, const char **text, size_t *length)
{
    if (!d || !text)
        return mmi_fail(MM_ERR_ARG, "mm_decoder_flush: %s is NULL", !d ? "decoder" : "text");
    size_t made = mmi_utf8_repair(d->text, NULL, d->bytes, d->waiting);
    d->waiting = 0;
    give(d, made, text, length);
    return MM_OK;
}
