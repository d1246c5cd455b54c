/* Training a tokenizer: count the words of the text, learn merges from them, build a tokenizer of the result. */
#include "base/options.h"
#include "text/bpe.h"
#include "text/tokenizer.h"
#include "text/utf8.h"

MMI_OPTIONS_INIT(mm_tokenizer_train_options, MM_TOKENIZER_TRAIN_OPTIONS_INIT)

static const char *const minimind_tokens[] = { "<|endoftext|>", "<|im_start|>", "<|im_end|>" };

static mm_status read_options(mm_tokenizer_train_options *o, const mm_tokenizer_train_options *given)
{
    if (!given)
        return mmi_fail(MM_ERR_ARG, "mm_tokenizer_train: options is NULL, next_text is needed");
    mm_status status = mmi_options_read(o, sizeof *o, given, "mm_tokenizer_train_options");
    if (status != MM_OK)
        return status;
    if (!o->next_text)
        return mmi_fail(MM_ERR_ARG, "mm_tokenizer_train: next_text is NULL");
    if (o->special_count < 0 || (!o->special_tokens && o->special_count > 0))
        return mmi_fail(MM_ERR_ARG, "mm_tokenizer_train: special_count is %d%s", (int)o->special_count,
                        o->special_count > 0 ? ", but special_tokens is NULL" : "");
    if (!o->special_tokens) {
        o->special_tokens = minimind_tokens;
        o->special_count = sizeof minimind_tokens / sizeof *minimind_tokens;
    }
    int64_t least = (int64_t)o->special_count + 256;
    if (o->vocab_size < least || o->vocab_size > MMI_TOKEN_LIMIT)
        return mmi_fail(MM_ERR_ARG, "mm_tokenizer_train: vocab_size is %d, it must be in [%lld, %d]",
                        (int)o->vocab_size, (long long)least, MMI_TOKEN_LIMIT);
    if (o->min_frequency < 1)
        return mmi_fail(MM_ERR_ARG, "mm_tokenizer_train: min_frequency is %lld, it must be at least 1",
                        (long long)o->min_frequency);
    return MM_OK;
}

static mm_status count_text(mmi_words *words, mmi_pieces *pieces, const char *text, size_t length)
{
    if (!text && length > 0)
        return mmi_fail(MM_ERR_ARG, "it is NULL");
    if (length > MMI_TEXT_LIMIT)
        return mmi_fail(MM_ERR_ARG, "it has %zu bytes, at most %u at once", length, (unsigned)MMI_TEXT_LIMIT);
    size_t good = mmi_utf8_valid(text, length);
    if (good < length)
        return mmi_fail(MM_ERR_ARG, "it is not UTF-8 at byte %zu (0x%02X)", good, (unsigned char)text[good]);
    mmi_pieces_start(pieces, text, length);
    for (;;) {
        const char *piece;
        size_t size;
        mm_status status = mmi_pieces_next(pieces, &piece, &size);
        if (status != MM_OK || size == 0)
            return status;
        if (!mmi_words_add(words, piece, size))
            return mmi_fail(MM_ERR_MEMORY, "out of memory after %zu different words", words->strings.count);
    }
}

static mm_status count_words(mmi_words *words, const mm_tokenizer_train_options *o, mmi_pieces *pieces)
{
    for (int64_t number = 0;; number++) {
        const char *text = NULL;
        size_t length = 0;
        int32_t more = o->next_text(o->user, &text, &length);
        if (more != 0 && more != 1)
            return mmi_fail(MM_ERR_CANCELLED, "training was given up after %lld texts", (long long)number);
        if (more == 0)
            return MM_OK;
        mm_status status = count_text(words, pieces, text, length);
        if (status != MM_OK)
            return mmi_fail_within(status, "text %lld", (long long)number);
    }
}

static mm_status read_words(mmi_words *words, const mm_tokenizer_train_options *o)
{
    mmi_splitter *splitter = NULL;
    mmi_pieces pieces = { 0 };
    mm_status status = mmi_splitter_create(&splitter);
    if (status == MM_OK)
        status = mmi_pieces_open(&pieces, splitter);
    if (status == MM_OK)
        status = count_words(words, o, &pieces);
    mmi_pieces_close(&pieces);
    mmi_splitter_free(splitter);
    return status;
}

static mm_status make_tokenizer(mm_tokenizer **out, const mmi_bpe *bpe, size_t special_count)
{
    mm_tokenizer *t = NULL;
    mm_status status = mmi_tokenizer_create(&t, bpe->tokens.count, bpe->merge_count);
    if (status != MM_OK)
        return status;
    for (size_t id = 0; id < bpe->tokens.count && status == MM_OK; id++) {
        size_t size;
        const char *text = mmi_strings_get(&bpe->tokens, id, &size);
        uint32_t kind = MMI_TOKEN_VOCAB | (id < special_count ? MMI_TOKEN_ADDED | MMI_TOKEN_SPECIAL : 0u);
        status = mmi_tokenizer_add(t, (int32_t)id, kind, text, size);
    }
    for (size_t i = 0; i < bpe->merge_count && status == MM_OK; i++)
        status = mmi_tokenizer_add_merge(t, bpe->merges[i].left, bpe->merges[i].right, bpe->merges[i].result);
    if (status == MM_OK)
        status = mmi_tokenizer_finish(t);
    if (status == MM_OK && mm_tokenizer_is_special(t, mm_tokenizer_find(t, "<|im_start|>")) &&
        mm_tokenizer_is_special(t, mm_tokenizer_find(t, "<|im_end|>")))
        t->chat.form = MMI_CHAT_MINIMIND2;
    if (status == MM_OK)
        *out = t;
    else
        mm_tokenizer_free(t);
    return status;
}

mm_status mm_tokenizer_train(const mm_tokenizer_train_options *options, mm_tokenizer **out)
{
    mm_tokenizer_train_options o = MM_TOKENIZER_TRAIN_OPTIONS_INIT;
    if (!out)
        return mmi_fail(MM_ERR_ARG, "mm_tokenizer_train: out is NULL");
    mm_status status = read_options(&o, options);
    if (status != MM_OK)
        return status;
    mmi_bpe bpe = { 0 };
    mmi_words words = { 0 };
    status = mmi_bpe_begin(&bpe, o.special_tokens, (size_t)o.special_count);
    if (status == MM_OK)
        status = read_words(&words, &o);
    if (status == MM_OK)
        status = mmi_bpe_learn(&bpe, &words, (size_t)o.vocab_size, o.min_frequency, o.on_progress, o.user);
    mmi_words_free(&words);
    if (status == MM_OK)
        status = make_tokenizer(out, &bpe, (size_t)o.special_count);
    mmi_bpe_free(&bpe);
    return status;
}
