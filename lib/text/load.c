/* Reading tokenizer.json, and the files beside it. Whatever in it would change ids and isn't done here is refused by
 * name. What tokenizer_config.json may say is load_config.c's affair. */
#include "text/load.h"

#include <stdio.h>
#include <string.h>

#include "base/files.h"
#include "base/memory.h"

mm_status mmi_load_wrong_kind(const char *where, const mmi_json *found, const char *allowed)
{
    return mmi_fail(MM_ERR_FORMAT, "%s is %s, it must be %s", where, mmi_json_kind_name(mmi_json_what(found)), allowed);
}

mm_status mmi_load_check_flag(const mmi_json *object, const char *where, const char *key, bool wanted, bool fallback)
{
    const mmi_json *value = mmi_json_get(object, key);
    mmi_json_kind kind = mmi_json_what(value);
    if (kind != MMI_JSON_BOOL && kind != MMI_JSON_NONE) {
        char name[256];
        snprintf(name, sizeof name, "%s.%s", where, key);
        return mmi_load_wrong_kind(name, value, "true or false");
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
        return mmi_load_wrong_kind(key, value, "an object");
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
        status =
            mmi_load_check_flag(mmi_json_get(root, "pre_tokenizer"), "pre_tokenizer", "add_prefix_space", false, true);
    if (status == MM_OK)
        status = mmi_load_check_flag(mmi_json_get(root, "pre_tokenizer"), "pre_tokenizer", "use_regex", true, true);
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
        return mmi_load_wrong_kind("model", model, "an object");
    const mmi_json *type = mmi_json_get(model, "type"); /* old files have none */
    const char *name = mmi_json_string(type, NULL);
    if (type && !name)
        return mmi_load_wrong_kind("model.type", type, "a string");
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
        status = mmi_load_check_flag(model, "model", "byte_fallback", false, false);
    if (status == MM_OK)
        status = mmi_load_check_flag(model, "model", "ignore_merges", false, false);
    if (status == MM_OK && mmi_json_what(mmi_json_get(model, "vocab")) != MMI_JSON_OBJECT)
        status = mmi_load_wrong_kind("model.vocab", mmi_json_get(model, "vocab"), "an object");
    if (status == MM_OK && mmi_json_what(mmi_json_get(model, "merges")) != MMI_JSON_ARRAY)
        status = mmi_load_wrong_kind("model.merges", mmi_json_get(model, "merges"), "an array");
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

mm_status mmi_load_check_wishes(const mmi_json *token, const char *where)
{
    static const char flags[][12] = { "single_word", "lstrip", "rstrip" };
    mm_status status = MM_OK;
    for (size_t i = 0; i < sizeof flags / sizeof *flags && status == MM_OK; i++)
        status = mmi_load_check_flag(token, where, flags[i], false, false);
    return status;
}

const mmi_load_kind mmi_load_kinds[MMI_LOAD_KINDS] = { { "special", MMI_TOKEN_SPECIAL },
                                                       { "normalized", MMI_TOKEN_NORMALIZED } };

uint32_t mmi_load_kind_of(const mmi_json *token)
{
    uint32_t kind = MMI_TOKEN_ADDED;
    for (size_t i = 0; i < MMI_LOAD_KINDS; i++)
        kind |= mmi_json_bool(mmi_json_get(token, mmi_load_kinds[i].key), false) ? mmi_load_kinds[i].bit : 0;
    return kind;
}

mm_status mmi_load_check_added(const mmi_json *token, const char *where)
{
    if (mmi_json_what(token) != MMI_JSON_OBJECT)
        return mmi_load_wrong_kind(where, token, "an object");
    size_t length = 0;
    const char *content = mmi_json_string(mmi_json_get(token, "content"), &length);
    if (!content || length == 0)
        return mmi_fail(MM_ERR_FORMAT, "%s.content is missing, empty or no string", where);
    mm_status status = mmi_load_check_wishes(token, where);
    for (size_t i = 0; i < MMI_LOAD_KINDS && status == MM_OK; i++) {
        const char *key = mmi_load_kinds[i].key;
        const mmi_json *value = mmi_json_get(token, key);
        if (value && mmi_json_what(value) != MMI_JSON_BOOL)
            status = mmi_fail(MM_ERR_FORMAT, "%s.%s is %s, it must be true or false", where, key,
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
        return mmi_load_wrong_kind("added_tokens", added, "an array");
    for (size_t i = 0; i < mmi_json_size(added); i++) {
        const mmi_json *token = mmi_json_at(added, i);
        char where[64];
        snprintf(where, sizeof where, "added_tokens[%zu]", i);
        mm_status status = mmi_load_check_added(token, where);
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
        status = mmi_tokenizer_add(t, id, mmi_load_kind_of(token), text, size);
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
        return mmi_load_wrong_kind("the file", root, "an object");
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
        status = mmi_load_config(&config, t, config_file);
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
