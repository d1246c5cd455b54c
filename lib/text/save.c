/* Writing a tokenizer the way Hugging Face's libraries do, so that they and this one read it alike. */
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/files.h"
#include "base/json.h"
#include "base/memory.h"
#include "text/tokenizer.h"

static mmi_json *token_json(const mm_tokenizer *t, int32_t id)
{
    size_t size;
    const char *text = mmi_token_string(t, id, &size);
    return mmi_json_new_string(text, size);
}

/* Takes the part over; both ways of failing are the same one: no memory. */
static mmi_json *whole(mmi_json *value, bool ok)
{
    if (ok)
        return value;
    mmi_json_free(value);
    return NULL;
}

/* An added token as both files describe it; `with_id` for tokenizer.json, where the id isn't the key. */
static mmi_json *added_json(const mm_tokenizer *t, int32_t id, bool with_id)
{
    mmi_json *o = mmi_json_new_object();
    bool ok = o != NULL;
    if (with_id)
        ok = ok && mmi_json_set_int(o, "id", id);
    ok = ok && mmi_json_set(o, "content", token_json(t, id));
    static const struct {
        const char *name;
        uint32_t kind;
    } flags[] = { { "single_word", 0 },
                  { "lstrip", 0 },
                  { "rstrip", 0 },
                  { "normalized", MMI_TOKEN_NORMALIZED },
                  { "special", MMI_TOKEN_SPECIAL } };
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
        ok = ok && mmi_json_set(o, flags[i].name, mmi_json_new_bool((t->tokens[id].kind & flags[i].kind) != 0));
    return whole(o, ok);
}

static mmi_json *added_array(const mm_tokenizer *t)
{
    mmi_json *array = mmi_json_new_array();
    bool ok = array != NULL;
    for (int32_t id = 0; id < t->vocab_size && ok; id++)
        if (t->tokens[id].kind & MMI_TOKEN_ADDED)
            ok = mmi_json_append(array, added_json(t, id, true));
    return whole(array, ok);
}

static mmi_json *byte_level(bool add_prefix_space)
{
    mmi_json *o = mmi_json_new_object();
    bool ok = o && mmi_json_set_text(o, "type", "ByteLevel") &&
              mmi_json_set(o, "add_prefix_space", mmi_json_new_bool(add_prefix_space)) &&
              mmi_json_set(o, "trim_offsets", mmi_json_new_bool(true)) &&
              mmi_json_set(o, "use_regex", mmi_json_new_bool(true));
    return whole(o, ok);
}

static mmi_json *vocab_json(const mm_tokenizer *t)
{
    mmi_json *vocab = mmi_json_new_object();
    char *key = mmi_alloc(t->strings.used + 1, 1); /* keys end in NUL; strings of a vocabulary hold none */
    bool ok = vocab && key;
    for (int32_t id = 0; id < t->vocab_size && ok; id++) {
        if (!(t->tokens[id].kind & MMI_TOKEN_VOCAB))
            continue;
        size_t size;
        const char *text = mmi_token_string(t, id, &size);
        memcpy(key, text, size);
        key[size] = '\0';
        ok = mmi_json_set_int(vocab, key, id);
    }
    mmi_free(key);
    return whole(vocab, ok);
}

static mmi_json *merges_json(const mm_tokenizer *t)
{
    mmi_json *merges = mmi_json_new_array();
    bool ok = merges != NULL;
    for (size_t i = 0; i < t->merges.count && ok; i++) {
        mmi_json *pair = mmi_json_new_array();
        ok = pair && mmi_json_append(pair, token_json(t, t->merges.items[i].left)) &&
             mmi_json_append(pair, token_json(t, t->merges.items[i].right));
        ok = mmi_json_append(merges, whole(pair, ok)) && ok;
    }
    return whole(merges, ok);
}

static mmi_json *model_json(const mm_tokenizer *t)
{
    static const char *const nulls[] = { "dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix" };
    static const char *const flags[] = { "fuse_unk", "byte_fallback", "ignore_merges" };
    mmi_json *model = mmi_json_new_object();
    bool ok = model && mmi_json_set_text(model, "type", "BPE");
    for (size_t i = 0; i < sizeof nulls / sizeof *nulls; i++)
        ok = ok && mmi_json_set(model, nulls[i], mmi_json_new_null());
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
        ok = ok && mmi_json_set(model, flags[i], mmi_json_new_bool(false));
    ok = ok && mmi_json_set(model, "vocab", vocab_json(t)) && mmi_json_set(model, "merges", merges_json(t));
    return whole(model, ok);
}

static mmi_json *tokenizer_json(const mm_tokenizer *t)
{
    mmi_json *root = mmi_json_new_object();
    bool ok =
        root && mmi_json_set_text(root, "version", "1.0") && mmi_json_set(root, "truncation", mmi_json_new_null()) &&
        mmi_json_set(root, "padding", mmi_json_new_null()) && mmi_json_set(root, "added_tokens", added_array(t)) &&
        mmi_json_set(root, "normalizer", mmi_json_new_null()) &&
        mmi_json_set(root, "pre_tokenizer", byte_level(false)) &&
        mmi_json_set(root, "post_processor", mmi_json_new_null()) && mmi_json_set(root, "decoder", byte_level(true)) &&
        mmi_json_set(root, "model", model_json(t));
    return whole(root, ok);
}

/* What tokenizer_config.json calls the tokens that MiniMind gives a meaning. */
static const struct role {
    const char *key, *content;
} roles[] = {
    { "bos_token", "<|im_start|>" },
    { "eos_token", "<|im_end|>" },
    { "pad_token", "<|endoftext|>" },
    { "unk_token", "<|endoftext|>" },
};
#define ROLES (sizeof roles / sizeof *roles)

static bool has_role(const mm_tokenizer *t, int32_t id)
{
    for (size_t i = 0; i < ROLES; i++)
        if (mm_tokenizer_find(t, roles[i].content) == id)
            return true;
    return false;
}

static bool set_roles(mmi_json *config, const mm_tokenizer *t)
{
    bool ok = true;
    for (size_t i = 0; i < ROLES && ok; i++)
        if (mm_tokenizer_is_special(t, mm_tokenizer_find(t, roles[i].content)))
            ok = mmi_json_set_text(config, roles[i].key, roles[i].content);
    return ok;
}

/* The other special tokens. */
static mmi_json *additional_json(const mm_tokenizer *t)
{
    mmi_json *array = mmi_json_new_array();
    bool ok = array != NULL;
    for (int32_t id = 0; id < t->vocab_size && ok; id++)
        if ((t->tokens[id].kind & MMI_TOKEN_SPECIAL) && !has_role(t, id))
            ok = mmi_json_append(array, token_json(t, id));
    return whole(array, ok);
}

static mmi_json *added_by_id(const mm_tokenizer *t)
{
    mmi_json *o = mmi_json_new_object();
    bool ok = o != NULL;
    for (int32_t id = 0; id < t->vocab_size && ok; id++) {
        char key[16];
        snprintf(key, sizeof key, "%d", (int)id);
        if (t->tokens[id].kind & MMI_TOKEN_ADDED)
            ok = mmi_json_set(o, key, added_json(t, id, false));
    }
    return whole(o, ok);
}

#define MODEL_MAX_LENGTH 32768 /* MiniMind2's */

/* For a tokenizer that was not loaded with a configuration of its own. */
static mmi_json *config_json(const mm_tokenizer *t)
{
    mmi_json *config = mmi_json_new_object();
    bool ok = config && mmi_json_set(config, "add_bos_token", mmi_json_new_bool(false)) &&
              mmi_json_set(config, "add_eos_token", mmi_json_new_bool(false)) &&
              mmi_json_set(config, "add_prefix_space", mmi_json_new_bool(false)) &&
              mmi_json_set(config, "added_tokens_decoder", added_by_id(t)) &&
              mmi_json_set(config, "additional_special_tokens", additional_json(t)) && set_roles(config, t) &&
              mmi_json_set(config, "clean_up_tokenization_spaces", mmi_json_new_bool(false)) &&
              mmi_json_set_int(config, "model_max_length", MODEL_MAX_LENGTH) &&
              mmi_json_set(config, "spaces_between_special_tokens", mmi_json_new_bool(false)) &&
              mmi_json_set_text(config, "tokenizer_class", "PreTrainedTokenizerFast");
    if (t->chat.form == MMI_CHAT_MINIMIND2 && !t->chat.file) /* trained here, with the tokens that the template writes */
        ok = ok && mmi_json_set_text(config, "chat_template", mmi_chat_own_template);
    return whole(config, ok);
}

static mm_status write_json(mmi_json *value, const char *path)
{
    if (!value)
        return mmi_fail(MM_ERR_MEMORY, "%s: out of memory", path);
    mm_status status = mmi_json_write_file(value, 2, path);
    mmi_json_free(value);
    return status;
}

enum { TEMPLATE, TOKENIZER, CONFIG, FILES };
static const char *const names[FILES] = { "chat_template.jinja", "tokenizer.json", "tokenizer_config.json" };

typedef struct paths {
    char *file[FILES], *waiting[FILES]; /* and its name until all are on disk */
} paths;

static void free_paths(paths *p)
{
    for (int i = 0; i < FILES; i++) {
        mmi_free(p->file[i]);
        mmi_free(p->waiting[i]);
    }
}

static mm_status make_paths(paths *p, const char *directory)
{
    for (int i = 0; i < FILES; i++) {
        p->file[i] = mmi_path_join(directory, names[i]);
        p->waiting[i] = mmi_path_waiting(directory, names[i]);
        if (!p->file[i] || !p->waiting[i])
            return mmi_fail_memory(strlen(directory) + strlen(names[i]), "a path");
    }
    return MM_OK;
}

/* The template's own file, if the tokenizer came with one. Another tokenizer's would be taken for this one's. */
static mm_status place_template(const mm_tokenizer *t, const paths *p)
{
    if (t->chat.file)
        return mmi_rename(p->waiting[TEMPLATE], p->file[TEMPLATE]);
    if (mmi_file_exists(p->file[TEMPLATE]) && remove(p->file[TEMPLATE]) != 0)
        return mmi_fail_errno(p->file[TEMPLATE], "remove");
    return MM_OK;
}

/* All are on disk before one takes its place: half of another tokenizer's may be none, or one with other ids. */
static mm_status write_files(const mm_tokenizer *t, const paths *p)
{
    mm_status status = MM_OK;
    for (int i = 0; i < FILES && status == MM_OK; i++)
        status = mmi_check_replaceable(p->file[i]);
    if (status == MM_OK)
        status = write_json(tokenizer_json(t), p->waiting[TOKENIZER]);
    if (status == MM_OK)
        status = t->config ? mmi_write_file(p->waiting[CONFIG], t->config, t->config_length) :
                             write_json(config_json(t), p->waiting[CONFIG]);
    if (status == MM_OK && t->chat.file)
        status = mmi_write_file(p->waiting[TEMPLATE], t->chat.file, t->chat.file_length);
    if (status == MM_OK)
        status = place_template(t, p);
    if (status == MM_OK)
        status = mmi_rename(p->waiting[TOKENIZER], p->file[TOKENIZER]);
    if (status == MM_OK)
        status = mmi_rename_synced(p->waiting[CONFIG], p->file[CONFIG]);
    for (int i = 0; i < FILES && status != MM_OK; i++)
        unlink(p->waiting[i]);
    return status;
}

mm_status mm_tokenizer_save(const mm_tokenizer *t, const char *directory)
{
    if (!t || !directory)
        return mmi_fail(MM_ERR_ARG, "mm_tokenizer_save: %s is NULL", !t ? "tokenizer" : "directory");
    paths p = { { NULL }, { NULL } };
    bool there = mmi_is_directory(directory);
    mm_status status = make_paths(&p, directory);
    if (status == MM_OK)
        status = mmi_make_directory(directory);
    if (status == MM_OK)
        status = write_files(t, &p);
    for (int i = 0; i < FILES && status == MM_OK; i++)
        mmi_writer_clear(directory, names[i], false);
    if (status != MM_OK && !there)
        rmdir(directory); /* succeeds only on one that was made here and is empty */
    free_paths(&p);
    return status;
}
