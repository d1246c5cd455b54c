/* A tokenizer of GGUF as the files that the library, and transformers, read. */
#include "gguf_read.h"

#include "grown.h"
#include "options.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void put_quoted(grown *json, gguf_text text)
{
    put_words(json, "\"");
    for (size_t i = 0; i < text.length; i++) {
        const unsigned char c = (unsigned char)text.at[i];
        if (c == '"' || c == '\\' || c == '\n')
            put_format(json, "\\%c", c == '\n' ? 'n' : c);
        else if (c < ' ')
            put_format(json, "\\u%04x", c);
        else
            put(json, text.at + i, 1);
    }
    put_words(json, "\"");
}

/* --- tokenizer.json --- */


typedef struct words {
    const gguf_file *file;
    const gguf_key *texts, *types;
} words;

static int type_of(const words *w, uint64_t id)
{
    return (int)gguf_number(w->types->values + 4 * id, 4);
}

static bool is_added(const words *w, uint64_t id)
{
    return type_of(w, id) == GGUF_CONTROL || type_of(w, id) == GGUF_USER_DEFINED;
}

static words find_words(const gguf_file *file)
{
    const words w = { file, gguf_array(file, "tokenizer.ggml.tokens", GGUF_STRING),
                      gguf_array(file, "tokenizer.ggml.token_type", GGUF_I32) };
    if (w.types->count != w.texts->count)
        gguf_refuse(file, "it has %" PRIu64 " tokens, and the types of %" PRIu64, w.texts->count, w.types->count);
    for (uint64_t id = 0; id < w.types->count; id++)
        if (!is_added(&w, id) && type_of(&w, id) != GGUF_NORMAL && type_of(&w, id) != GGUF_UNUSED)
            gguf_refuse(file, "token %" PRIu64 " is of type %d, which is not known here", id, type_of(&w, id));
    return w;
}

/* The added ones as they are described, or all of them with their ids: to an added token that is not among these
 * transformers gives another id. */
static void put_tokens(grown *json, const words *w, bool added)
{
    const unsigned char *at = w->texts->values;
    const char *comma = "";
    for (uint64_t id = 0; id < w->texts->count; id++) {
        const gguf_text text = gguf_next_text(&at);
        if (added ? !is_added(w, id) : type_of(w, id) == GGUF_UNUSED)
            continue;
        put_words(json, comma);
        if (added)
            put_format(json,
                       "{\"id\":%" PRIu64 ",\"single_word\":false,\"lstrip\":false,\"rstrip\":false,"
                       "\"normalized\":false,\"special\":%s,\"content\":",
                       id, type_of(w, id) == GGUF_CONTROL ? "true" : "false");
        put_quoted(json, text);
        if (added)
            put_words(json, "}");
        else
            put_format(json, ":%" PRIu64, id);
        comma = ",";
    }
}

static void put_merges(grown *json, const gguf_key *merges)
{
    const unsigned char *at = merges->values;
    for (uint64_t i = 0; i < merges->count; i++) {
        put_words(json, i > 0 ? "," : "");
        put_quoted(json, gguf_next_text(&at));
    }
}

static void put_tokenizer(grown *json, const words *w)
{
    static const char bytes[] = "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":true}";
    put_words(json, "{\"version\":\"1.0\",\"added_tokens\":[");
    put_tokens(json, w, true);
    put_format(json, "],\"normalizer\":null,\"pre_tokenizer\":%s,\"decoder\":%s", bytes, bytes);
    put_words(json, ",\"model\":{\"type\":\"BPE\",\"vocab\":{");
    put_tokens(json, w, false);
    put_words(json, "},\"merges\":[");
    put_merges(json, gguf_array(w->file, "tokenizer.ggml.merges", GGUF_STRING));
    put_words(json, "]}}");
}

/* --- tokenizer_config.json --- */

static void put_config(grown *json, const words *w)
{
    static const char *const roles[][2] = { { "bos_token", "tokenizer.ggml.bos_token_id" },
                                            { "eos_token", "tokenizer.ggml.eos_token_id" },
                                            { "pad_token", "tokenizer.ggml.padding_token_id" },
                                            { "unk_token", "tokenizer.ggml.unknown_token_id" } };
    const gguf_text template = gguf_string(w->file, "tokenizer.chat_template");
    put_words(json, "{\"tokenizer_class\":\"PreTrainedTokenizerFast\",\"clean_up_tokenization_spaces\":false");
    put_format(json, ",\"add_bos_token\":%s", gguf_int(w->file, "tokenizer.ggml.add_bos_token", 0) ? "true" : "false");
    for (size_t i = 0; i < sizeof roles / sizeof *roles; i++) {
        const int64_t role = gguf_int(w->file, roles[i][1], -1);
        const unsigned char *at = w->texts->values;
        if (role < 0 || (uint64_t)role >= w->texts->count || !is_added(w, (uint64_t)role))
            continue;
        for (int64_t id = 0; id < role; id++)
            gguf_next_text(&at);
        put_format(json, ",\"%s\":", roles[i][0]);
        put_quoted(json, gguf_next_text(&at));
    }
    if (template.at) {
        put_words(json, ",\"chat_template\":");
        put_quoted(json, template);
    }
    put_words(json, "}");
}

/* --- The files --- */

static void write_json(grown *json, const char *directory, const char *name)
{
    char path[4200];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    FILE *file = fopen(path, "wb");
    if (!file || fwrite(json->at, 1, json->count, file) != json->count || fclose(file) != 0)
        fail_to_write(path);
    free(json->at);
}

static void expect(const gguf_file *file, const char *key, gguf_text is, const char *wanted)
{
    if (!is.at || !gguf_text_is(is, wanted))
        gguf_refuse(file, "its %s is \"%.*s\", only \"%s\" is read: --tokenizer takes the directory of its tokenizer.json",
                    key, GGUF_SHOWN(is), wanted);
}

void gguf_read_words(const gguf_file *file, const char *directory)
{
    const gguf_text model = gguf_string(file, "tokenizer.ggml.model");
    if (!model.at || gguf_text_is(model, "no_vocab"))
        return;
    expect(file, "tokenizer.ggml.model", model, "gpt2"); /* byte-level BPE of words, which `pre` tells how to cut */
    expect(file, "tokenizer.ggml.pre", gguf_string(file, "tokenizer.ggml.pre"), "gpt-2");
    const words w = find_words(file);
    grown json = { NULL, 0, 0 }, config = json;
    put_tokenizer(&json, &w);
    put_config(&config, &w);
    write_json(&json, directory, "tokenizer.json");
    write_json(&config, directory, "tokenizer_config.json");
    mm_tokenizer *tokenizer = NULL;
    if (mm_tokenizer_load(directory, &tokenizer) != MM_OK) {
        const char *why = mm_last_error();
        const size_t length = strlen(directory);
        bool begins = strncmp(why, directory, length) == 0 && why[length] == '/';
        gguf_refuse(file, "its tokenizer is none that is read: %s", begins ? why + length + 1 : why);
    }
    mm_tokenizer_free(tokenizer);
}
