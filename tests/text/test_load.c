#include "text_support.h"

static char *json; /* the small tokenizer's */

static void setup(void)
{
    json = small_json();
}

static void teardown(void)
{
    free(json);
}

static void check_refused(const char *text, size_t length, mm_status expected, const char *words)
{
    mm_tokenizer *t = NULL;
    mm_memory_usage before = MM_MEMORY_USAGE_INIT, after = MM_MEMORY_USAGE_INIT;
    ck_ok(mm_memory_get_usage(&before));
    ck_status(mm_tokenizer_load_memory(text, length, &t), expected);
    ck_error_mentions(words);
    ck_assert_ptr_null(t);
    ck_ok(mm_memory_get_usage(&after));
    ck_assert_uint_eq(before.current, after.current);
}

/* The file with one place changed is refused, and the message has the words. */
static void refuses(const char *from, const char *to, mm_status expected, const char *words)
{
    char *text = replaced(json, from, to);
    check_refused(text, strlen(text), expected, words);
    free(text);
}

/* The file with one place changed loads, and encodes as before. */
static void accepts(const char *from, const char *to)
{
    char *text = replaced(json, from, to);
    mm_tokenizer *plain = NULL, *t = NULL;
    ck_ok(mm_tokenizer_load_memory(json, strlen(json), &plain));
    ck_ok(mm_tokenizer_load_memory(text, strlen(text), &t));
    size_t a, b;
    int32_t *ids = encode_alloc(plain, SMALL_TEXT "<|im_end|>", strlen(SMALL_TEXT "<|im_end|>"), MM_SPLIT_ALL, &a);
    int32_t *others = encode_alloc(t, SMALL_TEXT "<|im_end|>", strlen(SMALL_TEXT "<|im_end|>"), MM_SPLIT_ALL, &b);
    ck_assert_uint_eq(a, b);
    ck_assert_mem_eq(ids, others, a * sizeof *ids);
    free(ids);
    free(others);
    mm_tokenizer_free(t);
    mm_tokenizer_free(plain);
    free(text);
}

START_TEST(what_would_change_ids_is_unsupported_by_name)
{
    static const struct {
        const char *from, *to, *words;
    } cases[] = {
        { "\"type\": \"BPE\"", "\"type\": \"Unigram\"", "model.type is \"Unigram\"" },
        { "\"normalizer\": null", "\"normalizer\": {\"type\": \"NFC\"}", "normalizer is an object of type NFC" },
        { "\"pre_tokenizer\": {", "\"pre_tokenizer\": null, \"other\": {", "pre_tokenizer is null" },
        { "\"pre_tokenizer\": {", "\"other\": {", "pre_tokenizer is absent" },
        { "\"type\": \"ByteLevel\"", "\"type\": \"Whitespace\"", "pre_tokenizer.type is \"Whitespace\"" },
        { "\"add_prefix_space\": false", "\"add_prefix_space\": true", "pre_tokenizer.add_prefix_space is true" },
        { "\"add_prefix_space\": false,", "", "pre_tokenizer.add_prefix_space is absent" },
        { "\"use_regex\": true", "\"use_regex\": false", "pre_tokenizer.use_regex is false" },
        { "\"post_processor\": null", "\"post_processor\": {\"type\": \"TemplateProcessing\"}", "post_processor.type" },
        { "\"post_processor\": null",
          "\"post_processor\": {\"type\": \"TemplateProcessing\", \"single\": [{\"SpecialToken\": "
          "{\"id\": \"<|im_start|>\", \"type_id\": 0}}, {\"Sequence\": {\"id\": \"A\", \"type_id\": 0}}]}",
          "post_processor.type" },
        { "\"post_processor\": null",
          "\"post_processor\": {\"type\": \"TemplateProcessing\", \"single\": [{\"SpecialToken\": "
          "{\"id\": \"<|im_start|>\", \"type_id\": 0}}]}",
          "post_processor.type" },
        { "\"post_processor\": null",
          "\"post_processor\": {\"type\": \"Other\", \"single\": [{\"Sequence\": {\"id\": \"A\", \"type_id\": 0}}]}",
          "post_processor.type" },
        { "\"decoder\": {", "\"decoder\": null, \"other\": {", "decoder is null" },
        { "\"dropout\": null", "\"dropout\": 0.1", "model.dropout" },
        { "\"continuing_subword_prefix\": null", "\"continuing_subword_prefix\": \"##\"", "is ##" },
        { "\"end_of_word_suffix\": null", "\"end_of_word_suffix\": \"</w>\"", "model.end_of_word_suffix" },
        { "\"byte_fallback\": false", "\"byte_fallback\": true", "model.byte_fallback is true" },
        { "\"ignore_merges\": false", "\"ignore_merges\": true", "model.ignore_merges is true" },
        { "\"single_word\": false", "\"single_word\": true", "added_tokens[0].single_word is true" },
        { "\"lstrip\": false", "\"lstrip\": true", "added_tokens[0].lstrip" },
        { "\"rstrip\": false", "\"rstrip\": true", "added_tokens[0].rstrip" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        refuses(cases[i].from, cases[i].to, MM_ERR_UNSUPPORTED, cases[i].words);
}
END_TEST

START_TEST(what_is_missing_or_contradicts_itself_is_named)
{
    static const struct {
        const char *from, *to, *words;
    } cases[] = {
        { "\"merges\":", "\"mergers\":", "model.merges is absent" },
        { "\"add_prefix_space\": false", "\"add_prefix_space\": null", "pre_tokenizer.add_prefix_space is null" },
        { "\"merges\": [", "\"merges\": 5, \"x\": [", "model.merges is an integer" },
        { "\"vocab\":", "\"vocabulary\":", "model.vocab is absent" },
        { "\"vocab\": {", "\"vocab\": [1], \"x\": {", "model.vocab is an array" },
        { "\"model\":", "\"modell\":", "model is absent" },
        { "\"type\": \"BPE\"", "\"type\": 7", "model.type is an integer" },
        { "\"merges\": [", "\"merges\": [ [\"zq\", \"a\"],", "merges[0]: its left part, \"zq\"" },
        { "\"merges\": [", "\"merges\": [ [\"a\", \"zq\"],", "merges[0]: its right part, \"zq\"" },
        { "\"merges\": [", "\"merges\": [ [\"z\", \"q\"],", "merges[0]: its result, \"zq\"" },
        { "\"merges\": [", "\"merges\": [ [\"a\"],", "merges[0]: it must be" },
        { "\"merges\": [", "\"merges\": [ [\"a\", 1],", "merges[0]: it must be" },
        { "\"merges\": [", "\"merges\": [ [\"a\", \"\"],", "merges[0]: it must be" },
        { "\"merges\": [", "\"merges\": [ \"a\",", "merges[0]: it must be" },
        { "\"merges\": [", "\"merges\": [ \"a b c\",", "merges[0]: it must be" },
        { "\"merges\": [", "\"merges\": [ \" a\",", "merges[0]: it must be" },
        { "\"merges\": [", "\"merges\": [ null,", "merges[0]: it must be" },
        { "\"merges\": [", "\"merges\": [ \"t h\", \"t h\",", "merges[1]: the same pair is merged by number 0" },
        { "\"!\": 3", "\"!\": 4", "the id 4 is given twice" },
        { "\"!\": 3", "\"!\": -1", "the id of \"!\" is -1" },
        { "\"!\": 3", "\"!\": 4194304", "the id of \"!\" is 4194304" },
        { "\"!\": 3", "\"!\": 9007199254740993", "the id of \"!\"" },
        { "\"!\": 3", "\"!\": 3.0", "the id of \"!\" is a number" },
        { "\"!\": 3", "\"!\": \"3\"", "the id of \"!\" is a string" },
        { "\"!\": 3", "\"!!\": 3", "no token \"!\" for the byte 0x21" },
        { "\"!\": 3", "\"!\": 3, \"!\": 3", "duplicate" },
        { "\"added_tokens\": [", "\"added_tokens\": 1, \"x\": [", "added_tokens is an integer" },
        { "\"added_tokens\": [", "\"added_tokens\": [ 5,", "added_tokens[0] is an integer" },
        { "\"content\": \"<|endoftext|>\"", "\"content\": \"\"", "added_tokens[0].content" },
        { "\"content\": \"<|endoftext|>\"", "\"content\": 4", "added_tokens[0].content" },
        { "\"content\": \"<|endoftext|>\",", "", "added_tokens[0].content" },
        { "\"content\": \"<|endoftext|>\"", "\"content\": \"<|im_end|>\"", "has two ids" },
        { "\"content\": \"<|endoftext|>\"", "\"content\": \"<|other|>\"", "the id 0 is given twice" },
        { "\"id\": 0", "\"id\": 1", "has two ids" },
        { "\"id\": 0", "\"id\": \"0\"", "is a string" },
        { "\"id\": 0,", "", "is absent" },
        { "\"special\": true", "\"special\": 1", "added_tokens[0].special is an integer" },
        { "\"normalized\": false", "\"normalized\": 0", "added_tokens[0].normalized is an integer" },
        { "\"lstrip\": false", "\"lstrip\": 0", "added_tokens[0].lstrip is an integer" },
        { "\"byte_fallback\": false", "\"byte_fallback\": \"no\"", "model.byte_fallback is a string" },
        { "\"pre_tokenizer\": {", "\"pre_tokenizer\": 5, \"x\": {", "pre_tokenizer is an integer" },
        { "\"type\": \"ByteLevel\"", "\"typ\": \"ByteLevel\"", "pre_tokenizer.type" },
        { "\"added_tokens\": [",
          "\"added_tokens\": [ {\"id\": 2, \"content\": \"<|im_end|>\", \"special\": true},", "is there twice" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        refuses(cases[i].from, cases[i].to, MM_ERR_FORMAT, cases[i].words);
}
END_TEST

START_TEST(what_changes_no_ids_is_accepted)
{
    accepts("\"type\": \"BPE\",", ""); /* as in old files */
    accepts("\"dropout\": null", "\"dropout\": 0.0");
    accepts("\"unk_token\": null", "\"unk_token\": \"<|endoftext|>\"");
    accepts("\"fuse_unk\": false", "\"fuse_unk\": true");
    accepts("\"continuing_subword_prefix\": null", "\"continuing_subword_prefix\": \"\"");
    accepts("\"end_of_word_suffix\": null,", "");
    accepts("\"byte_fallback\": false,", "");
    accepts("\"normalizer\": null,", "");
    accepts("\"use_regex\": true", "\"x\": 1");
    accepts("\"trim_offsets\": true", "\"trim_offsets\": false");
    accepts("\"post_processor\": null", "\"post_processor\": {\"type\": \"ByteLevel\", \"trim_offsets\": false}");
    accepts("\"post_processor\": null",
            "\"post_processor\": {\"type\": \"TemplateProcessing\", "
            "\"single\": [{\"Sequence\": {\"id\": \"A\", \"type_id\": 0}}], "
            "\"pair\": [{\"Sequence\": {\"id\": \"A\", \"type_id\": 0}}, "
            "{\"Sequence\": {\"id\": \"B\", \"type_id\": 1}}], \"special_tokens\": {}}");
    accepts("\"truncation\": null", "\"truncation\": {\"max_length\": 8}");
    accepts("\"padding\": null", "\"padding\": {\"pad_id\": 0}");
    accepts("\"normalized\": false", "\"normalized\": true"); /* without a normalizer */
    accepts("\"version\": \"1.0\",", "");
}
END_TEST

START_TEST(merges_may_be_strings_with_a_space)
{
    /* [ "a", "b" ] over four lines, as saved, to "a b" */
    char *text = malloc(strlen(json) + 1), *out = text;
    ck_assert_ptr_nonnull(text);
    const char *at = strstr(json, "\"merges\":");
    ck_assert_ptr_nonnull(at);
    out += at - json;
    memcpy(text, json, (size_t)(at - json));
    for (; *at; at++) {
        static const char opening[] = "\n      [", between[] = "\",\n        \"", closing[] = "\n      ]";
        if (strncmp(at, opening, strlen(opening)) == 0) {
            at += strlen(opening) - 1;
        } else if (strncmp(at, between, strlen(between)) == 0) {
            *out++ = ' ';
            at += strlen(between) - 1;
        } else if (strncmp(at, closing, strlen(closing)) == 0) {
            at += strlen(closing) - 1;
        } else {
            *out++ = *at;
        }
    }
    *out = '\0';
    ck_assert_ptr_nonnull(strstr(text, "\"Ġ cat\""));
    mm_tokenizer *a = NULL, *b = NULL;
    ck_ok(mm_tokenizer_load_memory(json, strlen(json), &a));
    ck_ok(mm_tokenizer_load_memory(text, strlen(text), &b));
    ck_assert_uint_eq(a->merges.count, b->merges.count);
    ck_assert_mem_eq(a->merges.items, b->merges.items, a->merges.count * sizeof *a->merges.items);
    mm_tokenizer_free(a);
    mm_tokenizer_free(b);
    free(text);
}
END_TEST

START_TEST(text_that_is_not_json_is_refused)
{
    check_refused("", 0, MM_ERR_FORMAT, "tokenizer.json");
    check_refused("{", 1, MM_ERR_FORMAT, "line 1");
    check_refused("[]", 2, MM_ERR_FORMAT, "the file is an array");
    check_refused("\xFF\xFE{}", 4, MM_ERR_FORMAT, "tokenizer.json");
    char deep[600];
    memset(deep, '[', sizeof deep);
    check_refused(deep, sizeof deep, MM_ERR_FORMAT, "tokenizer.json: nested 600 levels deep");
    mm_tokenizer *t = NULL;
    ck_status(mm_tokenizer_load_memory(NULL, 0, &t), MM_ERR_ARG);
    ck_status(mm_tokenizer_load_memory(json, strlen(json), NULL), MM_ERR_ARG);
    ck_status(mm_tokenizer_load(NULL, &t), MM_ERR_ARG);
    ck_status(mm_tokenizer_load("x", NULL), MM_ERR_ARG);
}
END_TEST

START_TEST(a_truncated_file_is_refused_wherever_it_ends)
{
    size_t length = strlen(json);
    for (size_t n = 0; n + 2 < length; n += 97)
        check_refused(json, n, MM_ERR_FORMAT, "tokenizer.json");
    check_refused(json, length - 2, MM_ERR_FORMAT, "tokenizer.json");
}
END_TEST

START_TEST(a_damaged_file_ends_in_a_status)
{
    test_rng rng = { 11 };
    size_t length = strlen(json);
    char *text = malloc(length);
    ck_assert_ptr_nonnull(text);
    for (int round = 0; round < 200; round++) {
        memcpy(text, json, length);
        for (int i = 0; i < 3; i++)
            text[rng_between(&rng, 0, (int)length - 1)] ^= (char)(1 << rng_between(&rng, 0, 7));
        mm_tokenizer *t = NULL;
        mm_status status = mm_tokenizer_load_memory(text, length, &t);
        ck_assert(status == MM_OK || status == MM_ERR_FORMAT || status == MM_ERR_UNSUPPORTED);
        mm_tokenizer_free(t);
    }
    free(text);
}
END_TEST

START_TEST(ids_may_have_holes_that_no_text_reaches)
{
    char *text = replaced(json, "\"vocab\": {", "\"vocab\": { \"zz\": 500,");
    mm_tokenizer *t = NULL;
    ck_ok(mm_tokenizer_load_memory(text, strlen(text), &t));
    ck_assert_int_eq(mm_tokenizer_vocab_size(t), 501);
    ck_assert_int_eq(mm_tokenizer_find(t, "zz"), 500);
    char out[8];
    size_t size;
    const int32_t hole = 450, last = 500, beyond = 501;
    ck_status(mm_decode(t, &hole, 1, 0, out, sizeof out, &size), MM_ERR_ARG);
    ck_error_mentions("450");
    ck_status(mm_decode(t, &beyond, 1, 0, out, sizeof out, &size), MM_ERR_ARG);
    ck_ok(mm_decode(t, &last, 1, 0, out, sizeof out, &size));
    ck_assert_int_eq(mm_tokenizer_is_special(t, hole), 0);
    mm_tokenizer_free(t);
    free(text);
}
END_TEST

START_TEST(an_added_token_need_not_be_in_the_vocabulary)
{
    char *text = replaced(json, "\"added_tokens\": [",
                          "\"added_tokens\": [ {\"id\": 600, \"content\": \"a b\", \"special\": false},");
    mm_tokenizer *t = NULL, *again = NULL;
    ck_ok(mm_tokenizer_load_memory(text, strlen(text), &t));
    const char *directory = scratch_directory();
    ck_ok(mm_tokenizer_save(t, directory));
    ck_ok(mm_tokenizer_load(directory, &again));
    ck_assert_int_eq(mm_tokenizer_find(again, "a b"), 600);
    size_t count;
    int32_t *ids = encode_alloc(again, "xa by", 5, MM_SPLIT_NO_SPECIAL, &count);
    ck_assert_uint_eq(count, 3);
    ck_assert_int_eq(ids[1], 600);
    free(ids);
    mm_tokenizer_free(again);
    mm_tokenizer_free(t);
    free(text);
}
END_TEST

START_TEST(tokens_may_hold_a_nul_or_nothing_at_all)
{
    char *nul = replaced(json, "\"added_tokens\": [",
                         "\"added_tokens\": [ {\"id\": 600, \"content\": \"a\\u0000\", \"special\": true},");
    char *text = replaced(nul, "\"vocab\": {", "\"vocab\": { \"\": 601,");
    mm_tokenizer *t = NULL, *again = NULL;
    const char *directory = scratch_directory();
    ck_ok(mm_tokenizer_load_memory(text, strlen(text), &t));
    ck_ok(mm_tokenizer_save(t, directory));
    ck_ok(mm_tokenizer_load(directory, &again));
    ck_assert_int_eq(mm_tokenizer_find(again, ""), 601);
    size_t count, size;
    char back[8];
    int32_t *ids = encode_alloc(again, "xa\0a", 4, MM_SPLIT_ALL, &count);
    ck_assert_uint_eq(count, 3);
    ck_assert_int_eq(ids[1], 600);
    ids[0] = 601;
    ck_ok(mm_decode(again, ids, count, 0, back, sizeof back, &size));
    ck_assert_uint_eq(size, 3);
    ck_assert_mem_eq(back, "a\0a", 3);
    free(ids);
    mm_tokenizer_free(again);
    mm_tokenizer_free(t);
    free(text);
    free(nul);
}
END_TEST

START_TEST(questions_are_answered_and_take_anything)
{
    mm_tokenizer *t = small_tokenizer();
    ck_assert_int_eq(mm_tokenizer_vocab_size(t), 350);
    ck_assert_int_eq(mm_tokenizer_find(t, "<|endoftext|>"), 0);
    ck_assert_int_eq(mm_tokenizer_find(t, "<|im_end|>"), 2);
    ck_assert_int_eq(mm_tokenizer_find(t, "!"), 3);
    ck_assert_int_eq(mm_tokenizer_find(t, "Ċ"), 201);
    ck_assert_int_eq(mm_tokenizer_find(t, "no such token"), -1);
    ck_assert_int_eq(mm_tokenizer_find(t, ""), -1);
    ck_assert_int_eq(mm_tokenizer_find(t, NULL), -1);
    ck_assert_int_eq(mm_tokenizer_find(NULL, "!"), -1);
    ck_assert_int_eq(mm_tokenizer_is_special(t, 2), 1);
    ck_assert_int_eq(mm_tokenizer_is_special(t, 3), 0);
    ck_assert_int_eq(mm_tokenizer_is_special(t, -1), 0);
    ck_assert_int_eq(mm_tokenizer_is_special(t, 350), 0);
    ck_assert_int_eq(mm_tokenizer_is_special(NULL, 0), 0);
    ck_assert_int_eq(mm_tokenizer_vocab_size(NULL), 0);
    mm_tokenizer_free(t);
    mm_tokenizer_free(NULL);
}
END_TEST

static char *read_text(const char *directory, const char *name)
{
    char path[512], *data = NULL;
    size_t size;
    snprintf(path, sizeof path, "%s/%s", directory, name);
    ck_ok(mmi_read_file(path, &data, &size));
    return data;
}

static void write_text(const char *directory, const char *name, const char *text)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    ck_ok(mmi_write_file(path, text, strlen(text)));
}

START_TEST(a_saved_tokenizer_loads_as_the_same_one)
{
    char first[512], second[600];
    mm_tokenizer *t = small_tokenizer(), *again = NULL;
    snprintf(first, sizeof first, "%s", scratch_directory());
    snprintf(second, sizeof second, "%s/made/for/it", first);
    ck_ok(mm_tokenizer_save(t, first));
    ck_ok(mm_tokenizer_load(first, &again));
    ck_ok(mm_tokenizer_save(again, second));
    const char *const names[] = { "tokenizer.json", "tokenizer_config.json" };
    for (size_t i = 0; i < 2; i++) {
        char *a = read_text(first, names[i]), *b = read_text(second, names[i]);
        ck_assert_str_eq(a, b);
        mmi_free(a);
        mmi_free(b);
    }
    ck_assert_int_eq(mm_tokenizer_vocab_size(again), mm_tokenizer_vocab_size(t));
    size_t a, b;
    int32_t *ids = encode_alloc(t, SMALL_TEXT, strlen(SMALL_TEXT), MM_SPLIT_ALL, &a);
    int32_t *others = encode_alloc(again, SMALL_TEXT, strlen(SMALL_TEXT), MM_SPLIT_ALL, &b);
    ck_assert_uint_eq(a, b);
    ck_assert_mem_eq(ids, others, a * sizeof *ids);
    free(ids);
    free(others);
    mm_tokenizer_free(again);
    mm_tokenizer_free(t);
}
END_TEST

START_TEST(what_is_looked_for_in_normalized_text_is_saved_as_that)
{
    char *text = replaced(json, "\"normalized\": false", "\"normalized\": true");
    const char *directory = scratch_directory();
    mm_tokenizer *t = NULL, *again = NULL;
    ck_ok(mm_tokenizer_load_memory(text, strlen(text), &t));
    ck_ok(mm_tokenizer_save(t, directory));
    ck_ok(mm_tokenizer_load(directory, &again)); /* both files say so */
    for (int32_t id = 0; id < 3; id++) {
        ck_assert_uint_eq(t->tokens[id].kind & MMI_TOKEN_NORMALIZED, id == 0 ? MMI_TOKEN_NORMALIZED : 0);
        ck_assert_uint_eq(again->tokens[id].kind, t->tokens[id].kind);
    }
    mm_tokenizer_free(again);
    again = NULL;
    write_text(directory, "tokenizer_config.json",
               "{\"added_tokens_decoder\": {\"0\": {\"content\": \"<|endoftext|>\", \"special\": true}}}");
    ck_ok(mm_tokenizer_load(directory, &again)); /* one says nothing of it */
    mm_tokenizer_free(again);
    mm_tokenizer_free(t);
    free(text);
}
END_TEST

START_TEST(a_trained_tokenizer_gets_a_config_with_the_roles_of_its_tokens)
{
    mm_tokenizer *t = small_tokenizer();
    const char *directory = scratch_directory();
    ck_ok(mm_tokenizer_save(t, directory));
    char *config = read_text(directory, "tokenizer_config.json");
    ck_assert_ptr_nonnull(strstr(config, "\"bos_token\": \"<|im_start|>\""));
    ck_assert_ptr_nonnull(strstr(config, "\"eos_token\": \"<|im_end|>\""));
    ck_assert_ptr_nonnull(strstr(config, "\"pad_token\": \"<|endoftext|>\""));
    ck_assert_ptr_nonnull(strstr(config, "\"unk_token\": \"<|endoftext|>\""));
    ck_assert_ptr_nonnull(strstr(config, "\"tokenizer_class\": \"PreTrainedTokenizerFast\""));
    ck_assert_ptr_nonnull(strstr(config, "\"additional_special_tokens\": []"));
    mmi_free(config);
    mm_tokenizer_free(t);
}
END_TEST

START_TEST(a_template_in_a_file_of_its_own_is_written_there_alone)
{
    char first[512], second[512];
    mm_tokenizer *t = NULL;
    const char *name = NULL;
    snprintf(first, sizeof first, "%s", scratch_directory());
    snprintf(second, sizeof second, "%s", scratch_directory());
    write_text(first, "tokenizer.json", json);
    write_text(first, "chat_template.jinja", mmi_chat_own_template);
    ck_ok(mm_tokenizer_load(first, &t));
    ck_ok(mm_chat_template_name(t, &name));
    ck_assert_str_eq(name, "minimind2");
    ck_ok(mm_tokenizer_save(t, second));
    char *config = read_text(second, "tokenizer_config.json"), *template = read_text(second, "chat_template.jinja");
    ck_assert_ptr_null(strstr(config, "chat_template"));
    ck_assert_str_eq(template, mmi_chat_own_template);
    mmi_free(config);
    mmi_free(template);
    mm_tokenizer_free(t);
}
END_TEST

/* Loaded with this tokenizer_config.json and saved, a tokenizer has the same one beside it. */
static void check_config_is_kept(const char *config)
{
    const char *directory = scratch_directory();
    mm_tokenizer *t = NULL;
    write_text(directory, "tokenizer.json", json);
    write_text(directory, "tokenizer_config.json", config);
    ck_ok(mm_tokenizer_load(directory, &t));
    directory = scratch_directory();
    ck_ok(mm_tokenizer_save(t, directory));
    char *copy = read_text(directory, "tokenizer_config.json");
    ck_assert_str_eq(copy, config);
    mmi_free(copy);
    mm_tokenizer_free(t);
}

START_TEST(the_config_beside_a_tokenizer_is_kept_byte_for_byte)
{
    check_config_is_kept("{ \"chat_template\": \"{{ x }}\",\n\t\"odd\":  [1.50, \"中\"] }");
}
END_TEST

/* transformers writes int(1e30) where a tokenizer was given no longest text. */
START_TEST(a_config_may_have_integers_of_any_size)
{
    static const char numbers[] =
        "{\"model_max_length\": 1000000000000000019884624838656, \"x\": [-99999999999999999999999, 1e2, "
        "0.12345678901234567890123e-2, 12345678901234567890.5, \"\\\\\"],\n\"12345678901234567890\": "
        "\"\\\"98765432109876543210\"";
    const char *directory = scratch_directory();
    char config[400];
    mm_tokenizer *t = NULL;
    snprintf(config, sizeof config, "%s}", numbers);
    check_config_is_kept(config);
    snprintf(config, sizeof config, "%s, \"bos_token\": \"[12345678901234567890]\"}", numbers); /* strings stay whole */
    write_text(directory, "tokenizer.json", json);
    write_text(directory, "tokenizer_config.json", config);
    ck_status(mm_tokenizer_load(directory, &t), MM_ERR_UNSUPPORTED);
    ck_error_mentions("\"[12345678901234567890]\" is no added token");
}
END_TEST

START_TEST(a_bad_directory_or_config_is_named)
{
    char path[600];
    const char *directory = scratch_directory();
    mm_tokenizer *t = NULL;
    ck_status(mm_tokenizer_load(directory, &t), MM_ERR_IO);
    ck_error_mentions("tokenizer.json");
    write_text(directory, "tokenizer.json", json);
    write_text(directory, "tokenizer_config.json", "{ \"broken\": ");
    ck_status(mm_tokenizer_load(directory, &t), MM_ERR_FORMAT);
    ck_error_mentions("tokenizer_config.json");
    write_text(directory, "tokenizer_config.json", "[]");
    ck_status(mm_tokenizer_load(directory, &t), MM_ERR_FORMAT);
    ck_error_mentions("tokenizer_config.json is an array");
    write_text(directory, "tokenizer_config.json", "{ \"add_prefix_space\": true }");
    ck_status(mm_tokenizer_load(directory, &t), MM_ERR_UNSUPPORTED);
    ck_error_mentions("add_prefix_space is true");
    write_text(directory, "tokenizer_config.json", "{ \"split_special_tokens\": true }");
    ck_status(mm_tokenizer_load(directory, &t), MM_ERR_UNSUPPORTED);
    ck_error_mentions("split_special_tokens is true");
    ck_assert_ptr_null(t);
    snprintf(path, sizeof path, "%s/tokenizer.json", directory); /* the file alone has no config to be wrong */
    ck_ok(mm_tokenizer_load(path, &t));
    ck_status(mm_tokenizer_save(t, path), MM_ERR_IO);
    ck_status(mm_tokenizer_save(t, NULL), MM_ERR_ARG);
    ck_status(mm_tokenizer_save(NULL, directory), MM_ERR_ARG);
    mm_tokenizer_free(t);
    snprintf(path, sizeof path, "%s/nothing-here", directory);
    t = NULL;
    ck_status(mm_tokenizer_load(path, &t), MM_ERR_IO);
    ck_error_mentions("nothing-here");
    ck_assert_ptr_null(t);
}
END_TEST

static void load_with_config(const char *directory, const char *config, mm_status expected, const char *const words[2])
{
    mm_tokenizer *t = NULL;
    write_text(directory, "tokenizer_config.json", config);
    ck_status(mm_tokenizer_load(directory, &t), expected);
    if (expected != MM_OK) {
        ck_error_mentions("tokenizer_config.json: ");
        ck_error_mentions(words[0]);
        ck_error_mentions(words[1]);
    }
    mm_tokenizer_free(t);
}

/* Upstream it is the config's word that counts. */
START_TEST(the_config_says_of_added_tokens_what_tokenizer_json_does)
{
    static const struct {
        const char *decoder;
        mm_status status;
        const char *words[2];
    } cases[] = {
        { "null", MM_OK, { "", "" } },
        { "{}", MM_OK, { "", "" } },
        { "{\"1\": {\"content\": \"<|im_start|>\", \"special\": true, \"lstrip\": false, \"more\": 1}}", MM_OK, { "", "" } },
        { "[]", MM_ERR_FORMAT, { "added_tokens_decoder is an array", "an object" } },
        { "{\"1\": \"<|im_start|>\"}", MM_ERR_FORMAT, { "added_tokens_decoder.1 is a string", "an object" } },
        { "{\"1\": {\"special\": true}}", MM_ERR_FORMAT, { "added_tokens_decoder.1.content", "missing" } },
        { "{\"1\": {\"content\": \"<|im_start|>\", \"special\": true, \"rstrip\": true}}", MM_ERR_UNSUPPORTED,
          { "added_tokens_decoder.1.rstrip is true", "" } },
        { "{\"1\": {\"content\": \"<|im_start|>\", \"special\": 1}}", MM_ERR_FORMAT,
          { "added_tokens_decoder.1.special is an integer", "" } },
        { "{\"1\": {\"content\": \"<|im_start|>\"}}", MM_ERR_FORMAT,
          { "added_tokens_decoder.1.special is false", "is true in tokenizer.json" } },
        { "{\"1\": {\"content\": \"<|im_start|>\", \"special\": true, \"normalized\": true}}", MM_ERR_FORMAT,
          { "added_tokens_decoder.1.normalized is true", "is false in tokenizer.json" } },
        { "{\"2\": {\"content\": \"<|im_start|>\", \"special\": true}}", MM_ERR_FORMAT,
          { "added_tokens_decoder.2 is \"<|im_start|>\"", "the id 1 in tokenizer.json" } },
        { "{\"350\": {\"content\": \"<think>\", \"special\": false}}", MM_ERR_UNSUPPORTED,
          { "added_tokens_decoder.350", "\"<think>\" is no added token of tokenizer.json" } },
        { "{\"7\": {\"content\": \"%\", \"special\": false}}", MM_ERR_UNSUPPORTED, { "\"%\" is no added token", "" } },
    };
    const char *directory = scratch_directory();
    write_text(directory, "tokenizer.json", json);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char config[256];
        snprintf(config, sizeof config, "{\"added_tokens_decoder\": %s}", cases[i].decoder);
        load_with_config(directory, config, cases[i].status, cases[i].words);
    }
}
END_TEST

/* Upstream would add what tokenizer.json lacks: a new id, and another cut wherever the text has the token. */
START_TEST(the_special_tokens_that_the_config_names_are_added_tokens_of_tokenizer_json)
{
    static const struct {
        const char *config;
        mm_status status;
        const char *words[2];
    } cases[] = {
        { "\"pad_token\": null, \"sep_token\": \"\", \"additional_special_tokens\": null", MM_OK, { "", "" } },
        { "\"bos_token\": \"<|im_start|>\", \"eos_token\": \"<|im_end|>\", \"unk_token\": \"<|endoftext|>\", "
          "\"mask_token\": {\"__type\": \"AddedToken\", \"content\": \"<|endoftext|>\", \"lstrip\": false, "
          "\"normalized\": true, \"special\": true}",
          MM_OK,
          { "", "" } },
        { "\"additional_special_tokens\": [\"<|im_start|>\", {\"content\": \"<|im_end|>\"}], "
          "\"extra_special_tokens\": []",
          MM_OK,
          { "", "" } },
        { "\"extra_special_tokens\": {\"image_token\": \"<|im_end|>\", \"none\": {\"content\": \"\"}}",
          MM_OK,
          { "", "" } },
        { "\"add_prefix_space\": null, \"split_special_tokens\": null", MM_OK, { "", "" } },
        { "\"add_bos_token\": true, \"pad_token_type_id\": 0", MM_OK, { "", "" } }, /* mm_encode() never adds one */
        { "\"bos_token\": \"[1]\"", MM_ERR_UNSUPPORTED, { "bos_token: \"[1]\" is no added token", "" } },
        { "\"eos_token\": \"[2]\"", MM_ERR_UNSUPPORTED, { "eos_token: \"[2]\"", "" } },
        { "\"unk_token\": \"[3]\"", MM_ERR_UNSUPPORTED, { "unk_token: \"[3]\"", "" } },
        { "\"pad_token\": \"[PAD]\"", MM_ERR_UNSUPPORTED, { "pad_token: \"[PAD]\"", "of tokenizer.json" } },
        { "\"sep_token\": \"[4]\"", MM_ERR_UNSUPPORTED, { "sep_token: \"[4]\"", "" } },
        { "\"cls_token\": \"[5]\"", MM_ERR_UNSUPPORTED, { "cls_token: \"[5]\"", "" } },
        { "\"mask_token\": {\"content\": \"[6]\"}", MM_ERR_UNSUPPORTED, { "mask_token: \"[6]\"", "" } },
        { "\"pad_token\": \"%\"", MM_ERR_UNSUPPORTED, { "pad_token: \"%\"", "" } }, /* the vocabulary's */
        { "\"pad_token\": {\"content\": \"<|im_end|>\", \"lstrip\": true}",
          MM_ERR_UNSUPPORTED,
          { "pad_token.lstrip is true", "" } },
        { "\"additional_special_tokens\": [\"<|im_end|>\", \"<extra>\"]",
          MM_ERR_UNSUPPORTED,
          { "additional_special_tokens[1]: \"<extra>\"", "" } },
        { "\"extra_special_tokens\": [{\"content\": \"<extra>\"}]",
          MM_ERR_UNSUPPORTED,
          { "extra_special_tokens[0]: \"<extra>\"", "" } },
        { "\"extra_special_tokens\": {\"image_token\": \"<image>\"}",
          MM_ERR_UNSUPPORTED,
          { "extra_special_tokens.image_token: \"<image>\"", "" } },
        { "\"model_specific_special_tokens\": {\"image_token\": \"<|im_end|>\"}", MM_OK, { "", "" } },
        { "\"model_specific_special_tokens\": {\"image_token\": \"<image>\"}",
          MM_ERR_UNSUPPORTED,
          { "model_specific_special_tokens.image_token: \"<image>\"", "" } },
        { "\"pad_token\": 5", MM_ERR_FORMAT, { "pad_token is an integer", "a string, an object or null" } },
        { "\"pad_token\": false", MM_ERR_FORMAT, { "pad_token is", "" } },
        { "\"pad_token\": {\"lstrip\": false}", MM_ERR_FORMAT, { "pad_token.content is missing", "" } },
        { "\"pad_token\": {\"content\": 1}", MM_ERR_FORMAT, { "pad_token.content is missing or no string", "" } },
        { "\"additional_special_tokens\": \"<|im_end|>\"",
          MM_ERR_FORMAT,
          { "additional_special_tokens is a string", "an array" } },
        { "\"additional_special_tokens\": {\"a\": \"<|im_end|>\"}",
          MM_ERR_FORMAT,
          { "additional_special_tokens is an object", "" } },
        { "\"additional_special_tokens\": [null]",
          MM_ERR_FORMAT,
          { "additional_special_tokens[0] is null", "a string or an object" } },
        { "\"extra_special_tokens\": 1.5", MM_ERR_FORMAT, { "extra_special_tokens is a", "an array or an object" } },
        { "\"extra_special_tokens\": {\"a\": 1}", MM_ERR_FORMAT, { "extra_special_tokens.a is an integer", "" } },
    };
    const char *directory = scratch_directory();
    write_text(directory, "tokenizer.json", json);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char config[320];
        snprintf(config, sizeof config, "{%s}", cases[i].config);
        load_with_config(directory, config, cases[i].status, cases[i].words);
    }
}
END_TEST

START_TEST(loading_and_saving_survive_every_failing_allocation)
{
    char first[512], second[600];
    snprintf(first, sizeof first, "%s", scratch_directory());
    snprintf(second, sizeof second, "%s/copy", first);
    write_text(first, "tokenizer.json", json);
    write_text(first, "tokenizer_config.json", "{}");
    mm_status status = MM_ERR_MEMORY;
    for (uint64_t at = 1; status != MM_OK; at++) {
        mm_tokenizer *t = NULL;
        mm_memory_usage usage = MM_MEMORY_USAGE_INIT;
        ck_assert_uint_lt(at, 1000);
        mmi_memory_fail_at(at, at % 2 == 0);
        status = mm_tokenizer_load(first, &t);
        if (status == MM_OK)
            status = mm_tokenizer_save(t, second);
        mmi_memory_fail_at(0, false);
        ck_assert_msg(status == MM_OK || status == MM_ERR_MEMORY, "%s", mm_last_error());
        mm_tokenizer_free(t);
        ck_ok(mm_memory_get_usage(&usage));
        ck_assert_uint_eq(usage.current, 0);
    }
}
END_TEST

/* The ids of one tokenizer beside the config of another are none that load. */
START_TEST(a_tokenizer_that_cannot_be_saved_leaves_the_one_that_was_there)
{
    char directory[512], missing[600];
    snprintf(directory, sizeof directory, "%s", scratch_directory());
    snprintf(missing, sizeof missing, "%s/missing", directory);
    char *text = replaced(json, "\"added_tokens\": [",
                          "\"added_tokens\": [ {\"id\": 600, \"content\": \"a b\", \"special\": false},");
    mm_tokenizer *old = NULL, *new = NULL, *found = NULL;
    ck_ok(mm_tokenizer_load_memory(json, strlen(json), &old));
    ck_ok(mm_tokenizer_load_memory(text, strlen(text), &new));
    mm_status status = MM_ERR_MEMORY;
    for (uint64_t at = 1; status != MM_OK; at++) {
        ck_assert_uint_lt(at, 1000);
        ck_ok(mm_tokenizer_save(old, directory));
        mmi_memory_fail_at(at, true);
        status = mm_tokenizer_save(new, missing);
        ck_assert(status == MM_OK || !mmi_is_directory(missing));
        mmi_memory_fail_at(at, false);
        status = mm_tokenizer_save(new, directory);
        mmi_memory_fail_at(0, false);
        ck_assert(status == MM_OK || status == MM_ERR_MEMORY);
        ck_ok(mm_tokenizer_load(directory, &found));
        ck_assert_int_eq(mm_tokenizer_find(found, "a b"), status == MM_OK ? 600 : -1);
        mm_tokenizer_free(found);
    }
    mm_tokenizer_free(old);
    mm_tokenizer_free(new);
    free(text);
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("text/load");
    TCase *tests = tcase_create("load");
    tcase_set_timeout(tests, 60);
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_add_test(tests, what_would_change_ids_is_unsupported_by_name);
    tcase_add_test(tests, what_is_missing_or_contradicts_itself_is_named);
    tcase_add_test(tests, what_changes_no_ids_is_accepted);
    tcase_add_test(tests, merges_may_be_strings_with_a_space);
    tcase_add_test(tests, text_that_is_not_json_is_refused);
    tcase_add_test(tests, a_truncated_file_is_refused_wherever_it_ends);
    tcase_add_test(tests, a_damaged_file_ends_in_a_status);
    tcase_add_test(tests, ids_may_have_holes_that_no_text_reaches);
    tcase_add_test(tests, an_added_token_need_not_be_in_the_vocabulary);
    tcase_add_test(tests, tokens_may_hold_a_nul_or_nothing_at_all);
    tcase_add_test(tests, questions_are_answered_and_take_anything);
    tcase_add_test(tests, a_saved_tokenizer_loads_as_the_same_one);
    tcase_add_test(tests, what_is_looked_for_in_normalized_text_is_saved_as_that);
    tcase_add_test(tests, a_trained_tokenizer_gets_a_config_with_the_roles_of_its_tokens);
    tcase_add_test(tests, a_template_in_a_file_of_its_own_is_written_there_alone);
    tcase_add_test(tests, the_config_beside_a_tokenizer_is_kept_byte_for_byte);
    tcase_add_test(tests, a_config_may_have_integers_of_any_size);
    tcase_add_test(tests, a_bad_directory_or_config_is_named);
    tcase_add_test(tests, the_config_says_of_added_tokens_what_tokenizer_json_does);
    tcase_add_test(tests, the_special_tokens_that_the_config_names_are_added_tokens_of_tokenizer_json);
    tcase_add_test(tests, loading_and_saving_survive_every_failing_allocation);
    tcase_add_test(tests, a_tokenizer_that_cannot_be_saved_leaves_the_one_that_was_there);
    suite_add_tcase(suite, tests);
    return suite;
}

int main(void)
{
    return run_suite(make_suite());
}
