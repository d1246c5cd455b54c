#include "data/hash.h"

#include <stdio.h>

#include "base/files.h"
#include "base/memory.h"

#define CHUNK ((size_t)1 << 16)

/* Both steps can be undone, so two different words never give the same state from the same state. */
static uint64_t mix(uint64_t state, uint64_t word)
{
    state = (state ^ word) * UINT64_C(0x9FB21C651E98DF25);
    return state ^ state >> 29;
}

void mmi_hash_begin(mmi_hash *hash)
{
    hash->state = UINT64_C(0x243F6A8885A308D3);
    hash->length = 0;
    hash->word = 0;
}

void mmi_hash_add(mmi_hash *hash, const void *data, size_t size)
{
    const unsigned char *bytes = data;
    while (size > 0) {
        unsigned have = hash->length % 8;
        if (have == 0 && size >= 8) {
            uint64_t word = 0;
            for (unsigned i = 0; i < 8; i++)
                word |= (uint64_t)bytes[i] << 8 * i;
            hash->state = mix(hash->state, word);
            hash->length += 8;
            bytes += 8;
            size -= 8;
            continue;
        }
        hash->word |= (uint64_t)*bytes << 8 * have;
        if (have == 7) {
            hash->state = mix(hash->state, hash->word);
            hash->word = 0;
        }
        hash->length++;
        bytes++;
        size--;
    }
}

uint64_t mmi_hash_end(const mmi_hash *hash)
{
    uint64_t state = mix(mix(hash->state, hash->word), hash->length);
    return mix(state, 0);
}

mm_status mmi_hash_file(uint64_t *out, int64_t *bytes, const char *path)
{
    mmi_reader reader;
    mm_status status = mmi_reader_open(&reader, path);
    if (status != MM_OK)
        return status;
    char *chunk = mmi_alloc(CHUNK, 1);
    if (!chunk)
        status = mmi_fail_memory(CHUNK, path);
    mmi_hash hash;
    mmi_hash_begin(&hash);
    size_t got = CHUNK;
    for (uint64_t at = 0; status == MM_OK && got == CHUNK; at += got) {
        status = mmi_read_some(reader.fd, chunk, CHUNK, at, &got, path);
        if (status == MM_OK)
            mmi_hash_add(&hash, chunk, got);
    }
    mmi_reader_close(&reader);
    mmi_free(chunk);
    if (status != MM_OK)
        return status;
    *out = mmi_hash_end(&hash);
    *bytes = (int64_t)hash.length;
    return MM_OK;
}

void mmi_hash_text(char text[MMI_HASH_TEXT], uint64_t hash)
{
    snprintf(text, MMI_HASH_TEXT, "%016llx", (unsigned long long)hash);
}

bool mmi_hash_set(mmi_json *object, const char *key, uint64_t hash)
{
    char text[MMI_HASH_TEXT];
    mmi_hash_text(text, hash);
    return mmi_json_set(object, key, mmi_json_new_string(text, MMI_HASH_TEXT - 1));
}
