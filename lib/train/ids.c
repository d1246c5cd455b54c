#include "train/ids.h"

#include "base/memory.h"

mm_status mmi_ids_add(mmi_ids *ids, int32_t id)
{
    if (!mmi_grow(&ids->data, &ids->room, ids->count + 1, sizeof *ids->data))
        return mmi_fail_memory((ids->count + 1) * sizeof *ids->data, "ids");
    ids->data[ids->count++] = id;
    return MM_OK;
}

mm_status mmi_ids_add_text(mmi_ids *ids, const mm_tokenizer *tokenizer, const char *text, size_t length)
{
    size_t count = 0;
    if (length == 0)
        return MM_OK;
    mm_status status = mm_encode(tokenizer, text, length, MM_SPLIT_NO_SPECIAL, NULL, 0, &count);
    if (status != MM_OK)
        return status;
    if (!mmi_grow(&ids->data, &ids->room, ids->count + count, sizeof *ids->data))
        return mmi_fail_memory((ids->count + count) * sizeof *ids->data, "ids");
    status = mm_encode(tokenizer, text, length, MM_SPLIT_NO_SPECIAL, ids->data + ids->count, count, &count);
    if (status == MM_OK)
        ids->count += count;
    return status;
}

mm_status mmi_ids_add_prompt(mmi_ids *ids, const mm_tokenizer *tokenizer, int32_t bos_id, const char *text,
                             size_t length)
{
    const size_t before = ids->count;
    mm_status status = bos_id >= 0 ? mmi_ids_add(ids, bos_id) : MM_OK;
    if (status == MM_OK)
        status = mmi_ids_add_text(ids, tokenizer, text, length);
    if (status == MM_OK && ids->count == before)
        status = mmi_fail(MM_ERR_ARG, "the prompt is empty, and there is no bos_id to stand for it");
    return status;
}

int32_t mmi_stop_id(int64_t eos_id, const mm_tokenizer *tokenizer)
{
    return eos_id < 0 ? mm_tokenizer_find(tokenizer, "<|im_end|>") : (int32_t)eos_id;
}

void mmi_ids_free(mmi_ids *ids)
{
    mmi_free(ids->data);
    *ids = (mmi_ids){ 0 };
}

/* --- And back --- */

mm_status mmi_token_sizes(int32_t **out, const mm_tokenizer *tokenizer)
{
    int32_t count = mm_tokenizer_vocab_size(tokenizer);
    int32_t *sizes = mmi_calloc((size_t)count, sizeof *sizes);
    if (!sizes)
        return mmi_fail_memory((size_t)count * sizeof *sizes, "the sizes of tokens");
    for (int32_t id = 0; id < count; id++) {
        size_t size = 0;
        if (!mm_tokenizer_is_special(tokenizer, id) && mm_decode_bytes(tokenizer, &id, 1, 0, NULL, 0, &size) == MM_OK)
            sizes[id] = (int32_t)size;
    }
    *out = sizes;
    return MM_OK;
}

int64_t mmi_ids_with_text(int32_t *out, const mm_tokenizer *tokenizer, const int32_t *ids, int64_t count)
{
    int64_t n = 0;
    for (int64_t i = 0; i < count; i++)
        if (ids[i] < mm_tokenizer_vocab_size(tokenizer) &&
            mm_decode_bytes(tokenizer, &ids[i], 1, 0, NULL, 0, NULL) == MM_OK)
            out[n++] = ids[i];
    return n;
}

mm_status mmi_decode_grow(char **text, size_t *room, size_t at, size_t *length, const mm_tokenizer *tokenizer,
                          const int32_t *ids, int64_t count, int32_t skip_special)
{
    int32_t *spoken = mmi_alloc((size_t)count, sizeof *spoken);
    if (!spoken)
        return mmi_fail_memory((size_t)count * sizeof *spoken, "a text");
    const size_t n = (size_t)mmi_ids_with_text(spoken, tokenizer, ids, count);
    mm_status status = mm_decode(tokenizer, spoken, n, skip_special, NULL, 0, length);
    if (status == MM_OK && !mmi_grow(text, room, at + *length + 1, 1))
        status = mmi_fail_memory(at + *length + 1, "a text");
    if (status == MM_OK && *length > 0)
        status = mm_decode(tokenizer, spoken, n, skip_special, *text + at, *length, length);
    if (status == MM_OK)
        (*text)[at + *length] = '\0';
    mmi_free(spoken);
    return status;
}
