#include "text/tokenizer.h"

#include <string.h>

#include "base/memory.h"
#include "text/byte_chars.h"

mm_status mmi_tokenizer_create(mm_tokenizer **out, size_t vocab_size, size_t merge_count)
{
    mm_tokenizer *t = mmi_calloc(1, sizeof *t);
    if (!t)
        return mmi_fail_memory(sizeof *t, "a tokenizer");
    atomic_init(&t->holds, 1);
    t->vocab_size = (int32_t)vocab_size;
    t->tokens = mmi_calloc(vocab_size, sizeof *t->tokens);
    t->merges.items = mmi_alloc(merge_count, sizeof *t->merges.items);
    if (!t->tokens || !t->merges.items) {
        mm_tokenizer_free(t);
        return mmi_fail_memory(vocab_size * sizeof *t->tokens + merge_count * sizeof *t->merges.items, "a tokenizer");
    }
    *out = t;
    return MM_OK;
}

mm_tokenizer *mmi_tokenizer_hold(mm_tokenizer *t)
{
    atomic_fetch_add_explicit(&t->holds, 1, memory_order_relaxed);
    return t;
}

void mm_tokenizer_free(mm_tokenizer *t)
{
    if (!t || atomic_fetch_sub_explicit(&t->holds, 1, memory_order_acq_rel) > 1)
        return;
    mmi_free(t->tokens);
    mmi_strings_free(&t->strings);
    mmi_free(t->string_ids);
    mmi_free(t->token_bytes);
    mmi_free(t->merges.items);
    mmi_pairs_free(&t->merges.ranks);
    mmi_strings_free(&t->whole);
    mmi_free(t->whole_ids);
    mmi_added_free(&t->added);
    mmi_splitter_free(t->splitter);
    mmi_free(t->config);
    mmi_chat_template_free(&t->chat);
    mmi_free(t);
}

mm_status mmi_tokenizer_add(mm_tokenizer *t, int32_t id, uint32_t kind, const char *text, size_t size)
{
    uint32_t string = 0;
    size_t known = t->strings.count;
    if (!mmi_grow(&t->string_ids, &t->string_ids_room, known + 1, sizeof *t->string_ids) ||
        !mmi_strings_add(&t->strings, &string, text, size))
        return mmi_fail_memory(size, "a token");
    if (string == known)
        t->string_ids[string] = id;
    else if (t->string_ids[string] != id)
        return mmi_fail(MM_ERR_FORMAT, "the token \"%.*s\" has two ids, %d and %d", (int)size, text,
                        (int)t->string_ids[string], (int)id);
    mmi_token *token = &t->tokens[id];
    if (token->kind != 0 && token->string != string) {
        size_t other_size;
        const char *other = mmi_strings_get(&t->strings, token->string, &other_size);
        return mmi_fail(MM_ERR_FORMAT, "the id %d is given twice, to \"%.*s\" and to \"%.*s\"", (int)id,
                        (int)other_size, other, (int)size, text);
    }
    if ((kind & MMI_TOKEN_ADDED) && (token->kind & MMI_TOKEN_ADDED))
        return mmi_fail(MM_ERR_FORMAT, "the added token \"%.*s\" is there twice", (int)size, text);
    token->kind |= kind;
    token->string = string;
    return MM_OK;
}

mm_status mmi_tokenizer_add_merge(mm_tokenizer *t, int32_t left, int32_t right, int32_t result)
{
    mmi_merges *m = &t->merges;
    uint32_t rank = mmi_pairs_add(&m->ranks, left, right, (uint32_t)m->count);
    if (rank == MMI_NO_PAIR)
        return mmi_fail_memory(sizeof(mmi_pair), "a merge");
    if (rank != m->count)
        return mmi_fail(MM_ERR_FORMAT, "the same pair is merged by number %u already", (unsigned)rank);
    m->items[m->count++] = (mmi_merge){ left, right, result };
    return MM_OK;
}

int32_t mmi_tokenizer_find_vocab(const mm_tokenizer *t, const char *text, size_t size)
{
    int64_t string = mmi_strings_find(&t->strings, text, size);
    if (string < 0)
        return -1;
    int32_t id = t->string_ids[string];
    return t->tokens[id].kind & MMI_TOKEN_VOCAB ? id : -1;
}

/* What each token decodes to: an added one its content, another its characters turned back into bytes. A vocabulary
 * string with a character that is no byte's can't come out of any text; upstream decodes it as it stands. */
static mm_status make_bytes(mm_tokenizer *t)
{
    t->token_bytes = mmi_alloc(t->strings.used, 1);
    if (!t->token_bytes)
        return mmi_fail_memory(t->strings.used, "a vocabulary");
    size_t used = 0;
    for (int32_t id = 0; id < t->vocab_size; id++) {
        mmi_token *token = &t->tokens[id];
        if (token->kind == 0)
            continue;
        size_t size, bytes;
        const char *text = mmi_token_string(t, id, &size);
        char *out = t->token_bytes + used;
        if ((token->kind & MMI_TOKEN_ADDED) || !mmi_byte_chars_decode(out, &bytes, text, size)) {
            memcpy(out, text, size);
            bytes = size;
        }
        token->bytes_at = used;
        token->bytes_size = (uint32_t)bytes;
        used += bytes;
        t->longest = bytes > t->longest ? bytes : t->longest;
    }
    return MM_OK;
}

static mm_status find_bytes(mm_tokenizer *t)
{
    for (unsigned byte = 0; byte < 256; byte++) {
        char text[2];
        size_t size = mmi_byte_char(text, (unsigned char)byte);
        t->byte_ids[byte] = mmi_tokenizer_find_vocab(t, text, size);
        if (t->byte_ids[byte] < 0)
            return mmi_fail(MM_ERR_FORMAT, "the vocabulary has no token \"%.*s\" for the byte 0x%02X", (int)size, text,
                            byte);
        if (size > 1 && (t->tokens[t->byte_ids[byte]].kind & MMI_TOKEN_ADDED))
            return mmi_fail(MM_ERR_UNSUPPORTED,
                            "\"%.*s\" is an added token and how the byte 0x%02X is written, it can't be both",
                            (int)size, text, byte);
    }
    return MM_OK;
}

static mm_status add_whole(mm_tokenizer *t, int32_t id, const char *bytes, size_t size, size_t *room)
{
    uint32_t number = 0;
    if (!mmi_grow(&t->whole_ids, room, t->whole.count + 1, sizeof *t->whole_ids) ||
        !mmi_strings_add(&t->whole, &number, bytes, size))
        return mmi_fail_memory(size, "a vocabulary");
    t->whole_ids[number] = id;
    t->whole_longest = size > t->whole_longest ? size : t->whole_longest;
    return MM_OK;
}

/* Two kinds of tokens never come out of merges, whatever a file says. Special ones: text that is not to have any has
 * none. (Where they are looked for in the text, there is nothing left to merge into one.) And added ones that stand for
 * other bytes than their merges do, as "Ġa" would for " a". */
static bool is_barred(const mm_tokenizer *t, int32_t id)
{
    const mmi_token *token = &t->tokens[id];
    size_t size, plain = 0;
    const char *text = mmi_token_string(t, id, &size);
    if (!(token->kind & MMI_TOKEN_ADDED))
        return false;
    for (size_t i = 0; i < size; i++) /* what is written in ASCII alone is written as it stands */
        plain += (unsigned char)text[i] < 0x80;
    return (token->kind & MMI_TOKEN_SPECIAL) || plain < size;
}

static mm_status bar_merges(mm_tokenizer *t)
{
    mmi_merges *m = &t->merges;
    mmi_pairs kept = { 0 };
    for (size_t i = 0; i < m->count; i++) {
        const mmi_merge *merge = &m->items[i];
        if (!is_barred(t, merge->result) &&
            mmi_pairs_add(&kept, merge->left, merge->right, (uint32_t)i) == MMI_NO_PAIR) {
            mmi_pairs_free(&kept);
            return mmi_fail_memory(sizeof(mmi_pair), "a merge");
        }
    }
    mmi_pairs_free(&m->ranks);
    m->ranks = kept;
    return MM_OK;
}

/* Longer words are rare, and a vocabulary may be of nothing else. */
#define LONGEST_WHOLE 128

/* Most words of a text are tokens. Those that their merges lead to can be looked up at once; a token that its own bytes
 * don't merge into is left out. */
static mm_status find_whole(mm_tokenizer *t)
{
    int32_t symbols[LONGEST_WHOLE];
    mmi_merge_scratch scratch = { 0 };
    mm_status status = MM_OK;
    size_t room = 0;
    for (int32_t id = 0; id < t->vocab_size && status == MM_OK; id++) {
        const mmi_token *token = &t->tokens[id];
        if (!(token->kind & MMI_TOKEN_VOCAB) || token->bytes_size == 0 || token->bytes_size > LONGEST_WHOLE)
            continue;
        const char *bytes = t->token_bytes + token->bytes_at;
        size_t count = token->bytes_size;
        for (size_t i = 0; i < count; i++)
            symbols[i] = t->byte_ids[(unsigned char)bytes[i]];
        status = mmi_merge_symbols(symbols, &count, &t->merges, &scratch);
        if (status == MM_OK && count == 1 && symbols[0] == id)
            status = add_whole(t, id, bytes, token->bytes_size, &room);
    }
    mmi_merge_scratch_free(&scratch);
    return status;
}

static mm_status plant_added(mm_tokenizer *t)
{
    size_t most = 0;
    for (int32_t id = 0; id < t->vocab_size; id++) {
        if (!(t->tokens[id].kind & MMI_TOKEN_ADDED))
            continue;
        size_t size;
        const char *text = mmi_token_string(t, id, &size);
        const uint32_t kind = t->tokens[id].kind;
        if (!mmi_added_insert(&t->added, text, size, id, kind & MMI_TOKEN_SPECIAL, kind & MMI_TOKEN_NORMALIZED))
            return mmi_fail_memory(size, "an added token");
        most += size;
    }
    return mmi_added_finish(&t->added) ? MM_OK : mmi_fail_memory(most * sizeof(uint32_t), "added tokens");
}

mm_status mmi_tokenizer_finish(mm_tokenizer *t)
{
    mm_status status = make_bytes(t);
    if (status == MM_OK)
        status = find_bytes(t);
    if (status == MM_OK)
        status = bar_merges(t);
    if (status == MM_OK)
        status = find_whole(t);
    if (status == MM_OK)
        status = plant_added(t);
    if (status == MM_OK)
        status = mmi_splitter_create(&t->splitter);
    return status;
}

int32_t mm_tokenizer_vocab_size(const mm_tokenizer *t)
{
    return t ? t->vocab_size : 0;
}

int32_t mm_tokenizer_find(const mm_tokenizer *t, const char *content)
{
    if (!t || !content)
        return -1;
    int64_t string = mmi_strings_find(&t->strings, content, strlen(content));
    return string < 0 ? -1 : t->string_ids[string];
}

int32_t mm_tokenizer_is_special(const mm_tokenizer *t, int32_t id)
{
    return t && id >= 0 && id < t->vocab_size && (t->tokens[id].kind & MMI_TOKEN_SPECIAL) != 0;
}
