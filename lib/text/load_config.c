/* tokenizer_config.json: what it says of tokens must be what tokenizer.json says, or it would change ids. */
#include "text/load.h"

#include <stdio.h>
#include <string.h>

#include "base/files.h"
#include "base/memory.h"

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
    mm_status status = mmi_load_check_added(token, where);
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
    const uint32_t kind = t->tokens[id].kind, others = mmi_load_kind_of(token) ^ kind;
    for (size_t i = 0; i < MMI_LOAD_KINDS && status == MM_OK; i++) {
        const char *const words[2] = { "false", "true" };
        const char *flag = mmi_load_kinds[i].key;
        const uint32_t bit = mmi_load_kinds[i].bit;
        const bool is = (kind & bit) != 0;
        /* upstream has a guess of its own where nothing is said of "normalized" */
        if ((others & bit) && (bit != MMI_TOKEN_NORMALIZED || mmi_json_get(token, flag)))
            status =
                mmi_fail(MM_ERR_FORMAT, "%s.%s is %s, it is %s in tokenizer.json", where, flag, words[!is], words[is]);
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
        return mmi_load_wrong_kind("added_tokens_decoder", added, "an object");
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
    return mmi_load_check_wishes(token, where);
}

/* Upstream adds what tokenizer.json has not added, the vocabulary's own strings too: a text that has it is cut there.
 * An empty token it passes over. */
static mm_status check_special(const mm_tokenizer *t, const char *where, const mmi_json *token, const char *allowed)
{
    mmi_json_kind kind = mmi_json_what(token);
    if (kind != MMI_JSON_STRING && kind != MMI_JSON_OBJECT)
        return mmi_load_wrong_kind(where, token, allowed);
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
        return mmi_load_wrong_kind(key, tokens, named ? "an array or an object" : "an array");
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
    return mmi_load_check_flag(config, "tokenizer_config", key, false, false);
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

mm_status mmi_load_config(mmi_json **config, mm_tokenizer *t, const char *path)
{
    if (!mmi_file_exists(path))
        return MM_OK;
    mm_status status = mmi_read_file(path, &t->config, &t->config_length);
    if (status == MM_OK)
        status = parse_config(config, t->config, t->config_length, path);
    if (status == MM_OK && mmi_json_what(*config) != MMI_JSON_OBJECT)
        return mmi_load_wrong_kind(path, *config, "an object");
    if (status == MM_OK && (status = check_config(t, *config)) != MM_OK)
        status = mmi_fail_within(status, "%s", path);
    return status;
}
