#include "train/vocabulary.h"

#include <minimind/tokenizer.h>

#include "base/memory.h"
#include "data/hash.h"
#include "text/tokenizer.h"

mm_status mmi_vocabulary_hash(uint64_t *out, const mm_tokenizer *tokenizer)
{
    char *bytes = NULL;
    size_t room = 0;
    mm_status status = MM_OK;
    mmi_hash hash;
    mmi_hash_begin(&hash);
    for (int32_t id = 0; id < mm_tokenizer_vocab_size(tokenizer) && status == MM_OK; id++) {
        size_t size = 0;
        if (mm_decode_bytes(tokenizer, &id, 1, 0, NULL, 0, &size) != MM_OK)
            continue; /* an id that the vocabulary leaves out */
        if (!mmi_grow(&bytes, &room, size, 1))
            status = mmi_fail_memory(size, "a token");
        else if (size > 0)
            status = mm_decode_bytes(tokenizer, &id, 1, 0, bytes, size, &size);
        uint32_t head[2] = { (uint32_t)id, (uint32_t)size };
        mmi_hash_add(&hash, head, sizeof head);
        if (status == MM_OK)
            mmi_hash_add(&hash, bytes, size);
    }
    mmi_free(bytes);
    *out = mmi_hash_end(&hash);
    return status;
}

uint64_t mmi_cutting_hash(const mm_tokenizer *t)
{
    mmi_hash hash;
    mmi_hash_begin(&hash);
    for (size_t i = 0; i < t->merges.count; i++) {
        const int32_t pair[2] = { t->merges.items[i].left, t->merges.items[i].right };
        mmi_hash_add(&hash, pair, sizeof pair);
    }
    for (int32_t id = 0; id < t->vocab_size; id++) {
        const uint32_t added[2] = { (uint32_t)id, t->tokens[id].kind & ~(uint32_t)MMI_TOKEN_VOCAB };
        if (added[1] != 0)
            mmi_hash_add(&hash, added, sizeof added);
    }
    return mmi_hash_end(&hash);
}
