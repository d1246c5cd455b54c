/* Reading tokenizer.json. Whatever in it would change ids and isn't done here is refused by name. */
#include <stdio.h>
#include <string.h>

#include "base/files.h"
#include "base/json.h"
#include "base/memory.h"
#include "text/tokenizer.h"

static mm_status wrong_kind(const char *where, const mmi_json *found, const char *allowed)
{
    return mmi_fail(MM_ERR_FORMAT, "%s is %s, it must be %s", where, mmi_json_kind_name(mmi_json_what(found)), allowed);
}

/* `object`[key] is `wanted`, or absent where that means the same. */
static mm_status check_flag(const mmi_json *object, const char *where, const char *key, bool wanted, bool fallback)
{
    const mmi_json *value = mmi_json_get(object, key);
    mmi_json_kind kind = mmi_json_what(value);
    if (kind != MMI_JSON_BOOL && kind != MMI_JSON_NONE) {
        char name[256];
        snprintf(name, sizeof name, "%s.%s", where, key);
        return wrong_kind(name, value, "true or false");
    }
    if (mmi_json_bool(value, fallback) == wanted)
        return MM_OK;
    return mmi_fail(MM_ERR_UNSUPPORTED, "%s.%s is %s, only %s is done here", where, key,
                    kind == MMI_JSON_NONE ? "absent" :
                    wanted                ? "false" :
                                            "true",
                    wanted ? "true" : "false");
}

/* `root`[key] is null or absent: anything else would change the ids. */
static mm_status check_none(const mmi_json *root, const char *key)
{
    const mmi_json *value = mmi_json_get(root, key);
    mmi_json_kind kind = mmi_json_what(value);
    if (kind == MMI_JSON_NULL || kind == MMI_JSON_NONE)
        return MM_OK;
    const char *type = mmi_json_string(mmi_json_get(value, "type"), NULL);
    return mmi_fail(MM_ERR_UNSUPPORTED, "%s is %s%s%s, only null is done here", key, mmi_json_kind_name(kind),
                    type ? " of type " : "", type ? type : "");
}

/* `root`[key] is an object of type ByteLevel. */
static mm_status check_byte_level(const mmi_json *root, const char *key)
{
    const mmi_json *value = mmi_json_get(root, key);
    mmi_json_kind kind = mmi_json_what(value);
    if (kind == MMI_JSON_NULL || kind == MMI_JSON_NONE)
        return mmi_fail(MM_ERR_UNSUPPORTED, "%s is %s, only ByteLevel is done here", key, mmi_json_kind_name(kind));
    if (kind != MMI_JSON_OBJECT)
        return wrong_kind(key, value, "an object");
    const char *type = mmi_json_string(mmi_json_get(value, "type"), NULL);
    if (!type)
        return mmi_fail(MM_ERR_FORMAT, "%s.type is missing or no string", key);
    if (strcmp(type, "ByteLevel") != 0)
        return mmi_fail(MM_ERR_UNSUPPORTED, "%s.type is \"%s\", only \"ByteLevel\" is done here", key, type);
    return MM_OK;
}

/* A template of the text alone: what transformers 5 writes where a tokenizer has no post-processor. */
static bool adds_nothing(const mmi_json *post)
{
    const char *type = mmi_json_string(mmi_json_get(post, "type"), NULL);
    const mmi_json *single = mmi_json_get(post, "single");
    return type && strcmp(type, "TemplateProcessing") == 0 && mmi_json_size(single) == 1 &&
           mmi_json_what(mmi_json_get(mmi_json_at(single, 0), "Sequence")) == MMI_JSON_OBJECT;
}

/* "truncation" and "padding" upstream puts off for a plain call, so they are nobody's business here. */
static mm_status check_pipeline(const mmi_json *root)
{
    mm_status status = check_none(root, "normalizer");
    if (status == MM_OK)
        status = check_byte_level(root, "pre_tokenizer");
    if (status == MM_OK) /* upstream's own fallback is true */
        status = check_flag(mmi_json_get(root, "pre_tokenizer"), "pre_tokenizer", "add_prefix_space", false, true);
    if (status == MM_OK)
        status = check_flag(mmi_json_get(root, "pre_tokenizer"), "pre_tokenizer", "use_regex", true, true);
    if (status == MM_OK)
        status = check_byte_level(root, "decoder"); /* its options change nothing */
    const mmi_json *post = mmi_json_get(root, "post_processor");
    mmi_json_kind kind = mmi_json_what(post);
    if (status == MM_OK && kind != MMI_JSON_NULL && kind != MMI_JSON_NONE && !adds_nothing(post))
        status = check_byte_level(root, "post_processor"); /* this one moves offsets, never ids */
    return status;
}

/* Prefixes and suffixes of subwords: null, absent and "" are none. */
static mm_status check_affix(const mmi_json *model, const char *key)
{
    const mmi_json *value = mmi_json_get(model, key);
    mmi_json_kind kind = mmi_json_what(value);
    size_t length = 0;
    const char *text = mmi_json_string(value, &length);
    if (kind == MMI_JSON_NULL || kind == MMI_JSON_NONE || (text && length == 0))
        return MM_OK;
    return mmi_fail(MM_ERR_UNSUPPORTED, "model.%s is %s, only null is done here", key,
                    text ? text : mmi_json_kind_name(kind));
}

static mm_status check_model(const mmi_json *model)
{
    if (mmi_json_what(model) != MMI_JSON_OBJECT)
        return wrong_kind("model", model, "an object");
    const mmi_json *type = mmi_json_get(model, "type"); /* old files have none */
    const char *name = mmi_json_string(type, NULL);
    if (type && !name)
        return wrong_kind("model.type", type, "a string");
    if (name && strcmp(name, "BPE") != 0)
        return mmi_fail(MM_ERR_UNSUPPORTED, "model.type is \"%s\", only \"BPE\" is done here", name);
    const mmi_json *dropout = mmi_json_get(model, "dropout");
    mmi_json_kind kind = mmi_json_what(dropout);
    if (kind != MMI_JSON_NULL && kind != MMI_JSON_NONE && mmi_json_number(dropout, 1) != 0)
        return mmi_fail(MM_ERR_UNSUPPORTED, "model.dropout is set, only null is done here");
    /* unk_token and fuse_unk say what becomes of what the vocabulary lacks: with all 256 bytes that is nothing. */
    mm_status status = check_affix(model, "continuing_subword_prefix");
    if (status == MM_OK)
        status = check_affix(model, "end_of_word_suffix");
    if (status == MM_OK)
        status = check_flag(model, "model", "byte_fallback", false, false);
    if (status == MM_OK)
        status = check_flag(model, "model", "ignore_merges", false, false);
    if (status == MM_OK && mmi_json_what(mmi_json_get(model, "vocab")) != MMI_JSON_OBJECT)
        status = wrong_kind("model.vocab", mmi_json_get(model, "vocab"), "an object");
    if (status == MM_OK && mmi_json_what(mmi_json_get(model, "merges")) != MMI_JSON_ARRAY)
        status = wrong_kind("model.merges", mmi_json_get(model, "merges"), "an array");
    return status;
}

/* An id from the file; `most` becomes the largest seen. */
static mm_status check_id(const mmi_json *value, const char *token, int64_t *most)
{
    if (mmi_json_what(value) != MMI_JSON_INT)
        return mmi_fail(MM_ERR_FORMAT, "the id of \"%s\" is %s, it must be an integer", token,
                        mmi_json_kind_name(mmi_json_what(value)));
    int64_t id = mmi_json_int(value, -1);
    if (id < 0 || id >= MMI_TOKEN_LIMIT)
        return mmi_fail(MM_ERR_FORMAT, "the id of \"%s\" is %lld, it must be in [0, %d)", token, (long long)id,
                        MMI_TOKEN_LIMIT);
    *most = id > *most ? id : *most;
    return MM_OK;
}

static mm_status check_vocab(mmi_json *vocab, int64_t *most)
{
    for (void *i = mmi_json_first(vocab); i; i = mmi_json_next(vocab, i)) {
        mm_status status = check_id(mmi_json_value(i), mmi_json_key(i), most);
        if (status != MM_OK)
            return mmi_fail_within(status, "model.vocab");
    }
    return MM_OK;
}

/* What an added token may ask for beside being found as it is. Nothing of it is done here. */
static mm_status check_wishes(const mmi_json *token, const char *where)
{
    static const char flags[][12] = { "single_word", "lstrip", "rstrip" };
    mm_status status = MM_OK;
    for (size_t i = 0; i < sizeof flags / sizeof *flags && status == MM_OK; i++)
        status = check_flag(token, where, flags[i], false, false);
    return status;
}

/* What is done, where a key is true. */
enum { KIND_COUNT = 2 };
static const struct {
    char key[12];
    uint32_t bit;
} kinds[KIND_COUNT] = { { "special", MMI_TOKEN_SPECIAL }, { "normalized", MMI_TOKEN_NORMALIZED } };

static uint32_t kind_of(const mmi_json *token)
{
    uint32_t kind = MMI_TOKEN_ADDED;
    for (size_t i = 0; i < KIND_COUNT; i++)
        kind |= mmi_json_bool(mmi_json_get(token, kinds[i].key), false) ? kinds[i].bit : 0;
    return kind;
}

/* An added token as both files describe it, but for its id. */
static mm_status check_added_token(const mmi_json *token, const char *where)
{
    if (mmi_json_what(token) != MMI_JSON_OBJECT)
        return wrong_kind(where, token, "an object");
    size_t length = 0;
    const char *content = mmi_json_string(mmi_json_get(token, "content"), &length);
    if (!content || length == 0)
        return mmi_fail(MM_ERR_FORMAT, "%s.content is missing, empty or no string", where);
    mm_status status = check_wishes(token, where);
    for (size_t i = 0; i < KIND_COUNT && status == MM_OK; i++) {
        const mmi_json *value = mmi_json_get(token, kinds[i].key);
        if (value && mmi_json_what(value) != MMI_JSON_BOOL)
            status = mmi_fail(MM_ERR_FORMAT, "%s.%s is %s, it must be true or false", where, kinds[i].key,
                              mmi_json_kind_name(mmi_json_what(value)));
    }
    return status;
}

static mm_status check_added(const mmi_json *added, int64_t *most)
{
    mmi_json_kind kind = mmi_json_what(added);
    if (kind == MMI_JSON_NONE || kind == MMI_JSON_NULL)
        return MM_OK;
    if (kind != MMI_JSON_ARRAY)
        return wrong_kind("added_tokens", added, "an array");
    for (size_t i = 0; i < mmi_json_size(added); i++) {
        const mmi_json *token = mmi_json_at(added, i);
        char where[64];
        snprintf(where, sizeof where, "added_tokens[%zu]", i);
        mm_status status = check_added_token(token, where);
        if (status != MM_OK)
            return status;
        status = check_id(mmi_json_get(token, "id"), mmi_json_string(mmi_json_get(token, "content"), NULL), most);
        if (status != MM_OK)
            return mmi_fail_within(status, "%s", where);
    }
    return MM_OK;
}

static mm_status take_tokens(mm_tokenizer *t, mmi_json *vocab, const mmi_json *added)
{
    mm_status status = MM_OK;
    for (void *i = mmi_json_first(vocab); i && status == MM_OK; i = mmi_json_next(vocab, i)) {
        const char *text = mmi_json_key(i);
        int32_t id = (int32_t)mmi_json_int(mmi_json_value(i), 0);
        status = mmi_tokenizer_add(t, id, MMI_TOKEN_VOCAB, text, strlen(text));
    }
    for (size_t i = 0; mmi_json_what(added) == MMI_JSON_ARRAY && i < mmi_json_size(added) && status == MM_OK; i++) {
        const mmi_json *token = mmi_json_at(added, i);
        size_t size = 0;
        const char *text = mmi_json_string(mmi_json_get(token, "content"), &size);
        int32_t id = (int32_t)mmi_json_int(mmi_json_get(token, "id"), 0);
        status = mmi_tokenizer_add(t, id, kind_of(token), text, size);
    }
    return status;
}

/* A merge is ["a", "b"], or "a b" in older files. */
static bool read_merge(mmi_slice part[2], const mmi_json *merge)
{
    size_t size = 0;
    const char *text = mmi_json_string(merge, &size);
    if (text) {
        const char *space = memchr(text, ' ', size);
        if (!space)
            return false;
        part[0] = (mmi_slice){ text, (size_t)(space - text) };
        part[1] = (mmi_slice){ space + 1, size - part[0].length - 1 };
        return part[0].length > 0 && part[1].length > 0 && !memchr(part[1].at, ' ', part[1].length);
    }
    if (mmi_json_what(merge) != MMI_JSON_ARRAY || mmi_json_size(merge) != 2)
        return false;
    for (size_t i = 0; i < 2; i++) {
        part[i].at = mmi_json_string(mmi_json_at(merge, i), &part[i].length);
        if (!part[i].at || part[i].length == 0)
            return false;
    }
    return true;
}

typedef struct joined {
    char *text;
    size_t room;
} joined;

static mm_status take_merge(mm_tokenizer *t, const mmi_json *merge, joined *both)
{
    mmi_slice part[3];
    if (!read_merge(part, merge))
        return mmi_fail(MM_ERR_FORMAT, "it must be two strings, or one with a space between its parts");
    part[2].length = part[0].length + part[1].length;
    if (!mmi_grow(&both->text, &both->room, part[2].length, 1))
        return mmi_fail_memory(part[2].length, "a merge");
    memcpy(both->text, part[0].at, part[0].length);
    memcpy(both->text + part[0].length, part[1].at, part[1].length);
    part[2].at = both->text;
    int32_t ids[3];
    for (size_t i = 0; i < 3; i++) {
        ids[i] = mmi_tokenizer_find_vocab(t, part[i].at, part[i].length);
        if (ids[i] < 0)
            return mmi_fail(MM_ERR_FORMAT, "%s, \"%.*s\", is not in the vocabulary",
                            i == 0 ? "its left part" :
                            i == 1 ? "its right part" :
                                     "its result",
                            (int)part[i].length, part[i].at);
    }
    return mmi_tokenizer_add_merge(t, ids[0], ids[1], ids[2]);
}

static mm_status take_merges(mm_tokenizer *t, const mmi_json *merges)
{
    joined both = { NULL, 0 };
    mm_status status = MM_OK;
    for (size_t i = 0; i < mmi_json_size(merges) && status == MM_OK; i++) {
        status = take_merge(t, mmi_json_at(merges, i), &both);
        if (status != MM_OK)
            status = mmi_fail_within(status, "model.merges[%zu]", i);
    }
    mmi_free(both.text);
    return status;
}

static mm_status build(mm_tokenizer **out, mmi_json *root)
{
    if (mmi_json_what(root) != MMI_JSON_OBJECT)
        return wrong_kind("the file", root, "an object");
    mmi_json *model = mmi_json_get(root, "model");
    mmi_json *added = mmi_json_get(root, "added_tokens");
    mm_status status = check_model(model);
    if (status == MM_OK)
        status = check_pipeline(root);
    int64_t most = -1;
    if (status == MM_OK)
        status = check_vocab(mmi_json_get(model, "vocab"), &most);
    if (status == MM_OK)
        status = check_added(added, &most);
    if (status != MM_OK)
        return status;

    mm_tokenizer *t = NULL;
    const mmi_json *merges = mmi_json_get(model, "merges");
    status = mmi_tokenizer_create(&t, (size_t)(most + 1), mmi_json_size(merges));
    if (status != MM_OK)
        return status;
    status = take_tokens(t, mmi_json_get(model, "vocab"), added);
    if (status == MM_OK)
        status = take_merges(t, merges);
    if (status == MM_OK)
        status = mmi_tokenizer_finish(t);
    if (status == MM_OK)
        *out = t;
    else
        mm_tokenizer_free(t);
    return status;
}

static mm_status load_text(mm_tokenizer **out, const char *text, size_t length, const char *name)
{
    mmi_json *root = NULL;
    mm_status status = mmi_json_parse(text, length, name, &root);
    if (status != MM_OK)
        return status;
    status = build(out, root);
    if (status != MM_OK)
        status = mmi_fail_within(status, "%s", name);
    mmi_json_free(root);
    return status;
}

mm_status mm_tokenizer_load_memory(const char *json, size_t length, mm_tokenizer **out)
{
    if (!json || !out)
        return mmi_fail(MM_ERR_ARG, "mm_tokenizer_load_memory: %s is NULL", !json ? "json" : "out");
    return load_text(out, json, length, "tokenizer.json");
}

static mm_status load_file(mm_tokenizer **out, const char *path)
{
    char *text = NULL;
    size_t length = 0;
    mm_status status = mmi_read_file(path, &text, &length);
    if (status != MM_OK)
        return status;
    status = load_text(out, text, length, path);
    mmi_free(text);
    return status;
}

/* The id of an added token of tokenizer.json. */
static mm_status find_added(int32_t *id, const mm_tokenizer *t, const char *where, const char *text, size_t size)
{
    int64_t string = mmi_strings_find(&t->strings, text, size);
    *id = string < 0 ? 0 : t->string_ids[string];
    if (string >= 0 && (t->tokens[*id].kind & MMI_TOKEN_ADDED))
        return MM_OK;
    return mmi_fail(MM_ERR_UNSUPPORTED, "%s: \"%.*s\" is no added token of tokenizer.json", where, (int)size, text);
}

/* One that tokenizer_config.json has: the same as tokenizer.json's. */
static mm_status check_decoder_token(const mm_tokenizer *t, const char *key, const mmi_json *token)
{
    char where[64], number[16];
    snprintf(where, sizeof where, "added_tokens_decoder.%.32s", key);
    mm_status status = check_added_token(token, where);
    if (status != MM_OK)
        return status;
    size_t size = 0;
    const char *text = mmi_json_string(mmi_json_get(token, "content"), &size);
    int32_t id;
    status = find_added(&id, t, where, text, size);
    if (status != MM_OK)
        return status;
    snprintf(number, sizeof number, "%d", (int)id);
    if (strcmp(key, number) != 0)
        return mmi_fail(MM_ERR_FORMAT, "%s is \"%.*s\", which has the id %s in tokenizer.json", where, (int)size, text,
                        number);
    const uint32_t others = kind_of(token) ^ t->tokens[id].kind;
    for (size_t i = 0; i < KIND_COUNT && status == MM_OK; i++)
        if (others & kinds[i].bit) {
            const bool is = (t->tokens[id].kind & kinds[i].bit) != 0;
            status = mmi_fail(MM_ERR_FORMAT, "%s.%s is %s, it is %s in tokenizer.json", where, kinds[i].key,
                              is ? "false" : "true", is ? "true" : "false");
        }
    return status;
}

/* Upstream puts these in place of what tokenizer.json says. */
static mm_status check_decoder(const mm_tokenizer *t, mmi_json *added)
{
    mmi_json_kind kind = mmi_json_what(added);
    if (kind == MMI_JSON_NONE || kind == MMI_JSON_NULL)
        return MM_OK;
    if (kind != MMI_JSON_OBJECT)
        return wrong_kind("added_tokens_decoder", added, "an object");
    mm_status status = MM_OK;
    for (void *i = mmi_json_first(added); i && status == MM_OK; i = mmi_json_next(added, i))
        status = check_decoder_token(t, mmi_json_key(i), mmi_json_value(i));
    return status;
}

/* A token that is described, not just named. Where tokens do not overlap, "normalized" changes nothing. */
static mm_status check_described(const mmi_json *token, const char *where)
{
    if (!mmi_json_string(mmi_json_get(token, "content"), NULL))
        return mmi_fail(MM_ERR_FORMAT, "%s.content is missing or no string", where);
    return check_wishes(token, where);
}

/* Upstream adds what tokenizer.json has not added, the vocabulary's own strings too: a text that has it is cut there.
 * An empty token it passes over. */
static mm_status check_special(const mm_tokenizer *t, const char *where, const mmi_json *token, const char *allowed)
{
    mmi_json_kind kind = mmi_json_what(token);
    if (kind != MMI_JSON_STRING && kind != MMI_JSON_OBJECT)
        return wrong_kind(where, token, allowed);
    mm_status status = kind == MMI_JSON_OBJECT ? check_described(token, where) : MM_OK;
    if (status != MM_OK)
        return status;
    size_t size = 0;
    const char *text = mmi_json_string(kind == MMI_JSON_OBJECT ? mmi_json_get(token, "content") : token, &size);
    int32_t id;
    return size > 0 ? find_added(&id, t, where, text, size) : MM_OK;
}

/* Special tokens in a list or, where `named`, perhaps in an object of name and token. */
static mm_status check_specials(const mm_tokenizer *t, const char *key, mmi_json *tokens, bool named)
{
    mmi_json_kind kind = mmi_json_what(tokens);
    if (kind == MMI_JSON_NONE || kind == MMI_JSON_NULL)
        return MM_OK;
    if (kind != MMI_JSON_ARRAY && !(named && kind == MMI_JSON_OBJECT))
        return wrong_kind(key, tokens, named ? "an array or an object" : "an array");
    char where[128];
    mm_status status = MM_OK;
    for (size_t i = 0; kind == MMI_JSON_ARRAY && i < mmi_json_size(tokens) && status == MM_OK; i++) {
        snprintf(where, sizeof where, "%s[%zu]", key, i);
        status = check_special(t, where, mmi_json_at(tokens, i), "a string or an object");
    }
    for (void *i = mmi_json_first(tokens); i && status == MM_OK; i = mmi_json_next(tokens, i)) {
        snprintf(where, sizeof where, "%s.%.64s", key, mmi_json_key(i));
        status = check_special(t, where, mmi_json_value(i), "a string or an object");
    }
    return status;
}

/* A flag of tokenizer_config.json, where Python's None is null. */
static mm_status check_off(const mmi_json *config, const char *key)
{
    if (mmi_json_what(mmi_json_get(config, key)) == MMI_JSON_NULL)
        return MM_OK;
    return check_flag(config, "tokenizer_config", key, false, false);
}

static mm_status check_config(const mm_tokenizer *t, mmi_json *config)
{
    static const char roles[][12] = { "bos_token", "eos_token", "unk_token", "pad_token",
                                      "sep_token", "cls_token", "mask_token" };
    mm_status status = check_off(config, "add_prefix_space");
    if (status == MM_OK) /* upstream then takes special tokens for text */
        status = check_off(config, "split_special_tokens");
    if (status == MM_OK)
        status = check_decoder(t, mmi_json_get(config, "added_tokens_decoder"));
    for (size_t i = 0; i < sizeof roles / sizeof *roles && status == MM_OK; i++) {
        const mmi_json *token = mmi_json_get(config, roles[i]);
        mmi_json_kind kind = mmi_json_what(token);
        if (kind != MMI_JSON_NONE && kind != MMI_JSON_NULL)
            status = check_special(t, roles[i], token, "a string, an object or null");
    }
    if (status == MM_OK)
        status =
            check_specials(t, "additional_special_tokens", mmi_json_get(config, "additional_special_tokens"), false);
    if (status == MM_OK)
        status = check_specials(t, "extra_special_tokens", mmi_json_get(config, "extra_special_tokens"), true);
    if (status == MM_OK) /* where newer files have the named ones */
        status = check_specials(t, "model_specific_special_tokens",
                                mmi_json_get(config, "model_specific_special_tokens"), true);
    return status;
}

/* Python's integers have no end: where a tokenizer has no longest text, upstream writes model_max_length as int(1e30).
 * Nothing here asks a config for such a number, so of any run of digits outside strings the first 18 are read. */
static mm_status parse_config(mmi_json **config, const char *text, size_t length, const char *path)
{
    char *shown = mmi_alloc(length, 1);
    size_t used = 0, digits = 0;
    bool quoted = false;
    if (!shown)
        return mmi_fail_memory(length, path);
    for (size_t i = 0; i < length; i++) {
        bool escaped = quoted && text[i] == '\\' && i + 1 < length;
        quoted ^= text[i] == '"';
        digits = !quoted && text[i] >= '0' && text[i] <= '9' ? digits + 1 : 0;
        if (digits <= 18)
            shown[used++] = text[i];
        if (escaped)
            shown[used++] = text[++i];
    }
    mm_status status = mmi_json_parse(shown, used, path, config);
    mmi_free(shown);
    return status;
}

/* tokenizer_config.json's text is kept as it is: saving writes it back. *config stays NULL where there is none. */
static mm_status load_config(mmi_json **config, mm_tokenizer *t, const char *path)
{
    if (!mmi_file_exists(path))
        return MM_OK;
    mm_status status = mmi_read_file(path, &t->config, &t->config_length);
    if (status == MM_OK)
        status = parse_config(config, t->config, t->config_length, path);
    if (status == MM_OK && mmi_json_what(*config) != MMI_JSON_OBJECT)
        return wrong_kind(path, *config, "an object");
    if (status == MM_OK && (status = check_config(t, *config)) != MM_OK)
        status = mmi_fail_within(status, "%s", path);
    return status;
}

static mm_status load_directory(mm_tokenizer **out, const char *directory)
{
    char *file = mmi_path_join(directory, "tokenizer.json");
    char *config_file = mmi_path_join(directory, "tokenizer_config.json");
    mmi_json *config = NULL;
    mm_tokenizer *t = NULL;
    mm_status status = file && config_file ? MM_OK : mmi_fail_memory(strlen(directory) + 32, "a path");
    if (status == MM_OK)
        status = load_file(&t, file);
    if (status == MM_OK)
        status = load_config(&config, t, config_file);
    if (status == MM_OK)
        status = mmi_chat_template_read(&t->chat, directory, config);
    if (status == MM_OK)
        *out = t;
    else
        mm_tokenizer_free(t);
    mmi_json_free(config);
    mmi_free(config_file);
    mmi_free(file);
    return status;
}

mm_status mm_tokenizer_load(const char *path, mm_tokenizer **out)
{
    if (!path || !out)
        return mmi_fail(MM_ERR_ARG, "mm_tokenizer_load: %s is NULL", !path ? "path" : "out");
    return mmi_is_directory(path) ? load_directory(out, path) : load_file(out, path);
}
