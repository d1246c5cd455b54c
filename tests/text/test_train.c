#include "text_support.h"

#include "text/bpe.h"

/* The rule as it is written, counting everything anew for each merge: symbols of each word, then the best pair. */
#define LONGEST 600
typedef struct plain_word {
    int32_t symbols[LONGEST];
    int size;
    int64_t count;
} plain_word;

static int64_t count_pair(const plain_word *words, size_t n, int32_t left, int32_t right)
{
    int64_t count = 0;
    for (size_t w = 0; w < n; w++)
        for (int i = 0; i + 1 < words[w].size; i++)
            if (words[w].symbols[i] == left && words[w].symbols[i + 1] == right)
                count += words[w].count;
    return count;
}

static bool best_pair(mmi_merge *best, int64_t *most, const plain_word *words, size_t n)
{
    *most = 0;
    for (size_t w = 0; w < n; w++) {
        for (int i = 0; i + 1 < words[w].size; i++) {
            int32_t left = words[w].symbols[i], right = words[w].symbols[i + 1];
            int64_t count = count_pair(words, n, left, right);
            if (count > *most || (count == *most && (left < best->left || (left == best->left && right < best->right)))) {
                *most = count;
                *best = (mmi_merge){ left, right, -1 };
            }
        }
    }
    return *most > 0;
}

static void replace_pair(plain_word *word, mmi_merge m)
{
    int made = 0;
    for (int i = 0; i < word->size; i++) {
        bool here = i + 1 < word->size && word->symbols[i] == m.left && word->symbols[i + 1] == m.right;
        word->symbols[made++] = here ? m.result : word->symbols[i];
        i += here;
    }
    word->size = made;
}

/* Check a learnt list against the rule. The token a merge makes is taken from the list: its id is checked elsewhere. */
static void check_by_rule(const mmi_bpe *bpe, const mmi_words *counted, int64_t min_frequency, size_t vocab_size)
{
    size_t n = counted->strings.count;
    plain_word *words = calloc(n, sizeof *words);
    ck_assert_ptr_nonnull(words);
    for (size_t w = 0; w < n; w++) {
        size_t size;
        const char *text = mmi_strings_get(&counted->strings, w, &size);
        ck_assert_uint_le(size, LONGEST);
        words[w].size = (int)size;
        words[w].count = counted->counts[w];
        for (size_t i = 0; i < size; i++)
            words[w].symbols[i] = bpe->byte_ids[(unsigned char)text[i]];
    }
    mmi_merge best = { 0, 0, 0 };
    int64_t most;
    for (size_t i = 0; i < bpe->merge_count; i++) {
        ck_assert(best_pair(&best, &most, words, n));
        ck_assert_int_eq(bpe->merges[i].left, best.left);
        ck_assert_int_eq(bpe->merges[i].right, best.right);
        ck_assert_int_eq(bpe->merge_counts[i], most);
        for (size_t w = 0; w < n; w++)
            replace_pair(&words[w], bpe->merges[i]);
    }
    bool more = best_pair(&best, &most, words, n) && most >= min_frequency;
    ck_assert(!more || bpe->tokens.count == vocab_size);
    free(words);
}

START_TEST(learning_follows_the_rule_on_random_words)
{
    test_rng rng = { 8 };
    for (int round = 0; round < 60; round++) {
        /* Two or three letters in long runs: pairs that overlap themselves, and many ties. */
        mmi_words words = { 0 };
        mmi_bpe bpe = { 0 };
        int kinds = rng_between(&rng, 1, 3), word_count = rng_between(&rng, 1, 12);
        for (int w = 0; w < word_count; w++) {
            char text[40];
            size_t size = (size_t)rng_between(&rng, 1, 40);
            for (size_t i = 0; i < size; i++)
                text[i] = (char)('a' + rng_between(&rng, 1, kinds));
            for (int times = rng_between(&rng, 1, 3); times > 0; times--)
                ck_assert(mmi_words_add(&words, text, size));
        }
        int64_t min_frequency = rng_between(&rng, 1, 3);
        size_t vocab_size = 256 + (size_t)rng_between(&rng, 0, 60);
        ck_ok(mmi_bpe_begin(&bpe, NULL, 0));
        ck_ok(mmi_bpe_learn(&bpe, &words, vocab_size, min_frequency, NULL, NULL));
        ck_assert_uint_le(bpe.tokens.count, vocab_size);
        check_by_rule(&bpe, &words, min_frequency, vocab_size);
        mmi_bpe_free(&bpe);
        mmi_words_free(&words);
    }
}
END_TEST

START_TEST(learning_follows_the_rule_in_words_without_an_end)
{
    test_rng rng = { 9 };
    for (int round = 0; round < 6; round++) {
        mmi_words words = { 0 };
        mmi_bpe bpe = { 0 };
        char text[LONGEST];
        int kinds = rng_between(&rng, 1, 4);
        for (int w = 0; w < 2; w++) { /* runs of up to 30 of a letter in the first, none in the second */
            size_t size = (size_t)rng_between(&rng, LONGEST / 2, LONGEST);
            for (size_t i = 0; i < size;) {
                char letter = (char)('a' + rng_between(&rng, 0, kinds));
                for (int run = w == 0 ? rng_between(&rng, 1, 30) : 1; run > 0 && i < size; run--)
                    text[i++] = letter;
            }
            ck_assert(mmi_words_add(&words, text, size));
        }
        ck_ok(mmi_bpe_begin(&bpe, NULL, 0));
        ck_ok(mmi_bpe_learn(&bpe, &words, 256 + 60, 1, NULL, NULL));
        ck_assert_uint_ge(bpe.merge_count, 20);
        check_by_rule(&bpe, &words, 1, 256 + 60);
        mmi_bpe_free(&bpe);
        mmi_words_free(&words);
    }
}
END_TEST

START_TEST(a_run_counts_its_pair_at_every_place)
{
    mmi_words words = { 0 };
    mmi_bpe bpe = { 0 };
    ck_assert(mmi_words_add(&words, "aaaaa", 5)); /* aa four times, then aa aa a: each pair once */
    ck_assert(mmi_words_add(&words, "aaaaa", 5));
    ck_ok(mmi_bpe_begin(&bpe, NULL, 0));
    ck_ok(mmi_bpe_learn(&bpe, &words, 1000, 1, NULL, NULL));
    ck_assert_uint_eq(bpe.merge_count, 3);
    ck_assert_int_eq(bpe.merge_counts[0], 8);
    ck_assert_int_eq(bpe.merge_counts[1], 2);
    ck_assert_int_eq(bpe.merges[1].left, 256); /* (aa, a) before (aa, aa): the lower right id */
    ck_assert_int_eq(bpe.merges[1].right, bpe.byte_ids['a']);
    ck_assert_int_eq(bpe.merge_counts[2], 2);
    mmi_bpe_free(&bpe);
    mmi_words_free(&words);
}
END_TEST

static void save_text(const mm_tokenizer *t, char **text)
{
    const char *directory = scratch_directory();
    char path[512];
    size_t size;
    ck_ok(mm_tokenizer_save(t, directory));
    snprintf(path, sizeof path, "%s/tokenizer.json", directory);
    ck_ok(mmi_read_file(path, text, &size));
}

/* Hands out a text line by line, with the ends of lines or without. */
typedef struct line_reader {
    const char *text;
    size_t length, at;
    bool with_end;
} line_reader;

static int32_t give_line(void *user, const char **text, size_t *length)
{
    line_reader *r = user;
    if (r->at == r->length)
        return 0;
    const char *start = r->text + r->at, *end = memchr(start, '\n', r->length - r->at);
    size_t whole = end ? (size_t)(end - start) + 1 : r->length - r->at;
    *text = start;
    *length = whole - (end && !r->with_end);
    r->at += whole;
    return 1;
}

START_TEST(the_corpus_gives_the_same_merges_whole_and_by_lines)
{
    REQUIRE_SHARED("text/bpe_training/corpus.txt");
    char *corpus, *whole, *lines;
    size_t length;
    ck_ok(mmi_read_file(shared_path("text/bpe_training/corpus.txt"), &corpus, &length));
    mm_tokenizer *t = NULL;
    ck_ok(train_on(&t, corpus, length, 1024));
    save_text(t, &whole);
    mm_tokenizer_free(t);
    for (int with_end = 0; with_end < 2; with_end++) {
        line_reader reader = { corpus, length, 0, with_end };
        mm_tokenizer_train_options options = MM_TOKENIZER_TRAIN_OPTIONS_INIT;
        options.next_text = give_line;
        options.user = &reader;
        options.vocab_size = 1024;
        ck_ok(mm_tokenizer_train(&options, &t));
        save_text(t, &lines);
        ck_assert_str_eq(lines, whole);
        mmi_free(lines);
        mm_tokenizer_free(t);
    }
    mmi_free(whole);
    mmi_free(corpus);
}
END_TEST

START_TEST(the_same_text_gives_the_same_tokenizer_whatever_the_order_of_its_lines)
{
    static const char forward[] = "one two\ntwo three\nthree one\n", backward[] = "three one\ntwo three\none two\n";
    mm_tokenizer *a = NULL, *b = NULL;
    char *x, *y;
    ck_ok(train_on(&a, forward, strlen(forward), 300));
    ck_ok(train_on(&b, backward, strlen(backward), 300));
    save_text(a, &x);
    save_text(b, &y);
    ck_assert_str_eq(x, y);
    mmi_free(x);
    mmi_free(y);
    mm_tokenizer_free(a);
    mm_tokenizer_free(b);
}
END_TEST

START_TEST(training_stops_when_no_pair_is_left)
{
    mm_tokenizer *t = NULL;
    ck_ok(train_on(&t, "abab ab", 7, 100000));
    ck_assert_int_gt(mm_tokenizer_vocab_size(t), 259);
    ck_assert_int_lt(mm_tokenizer_vocab_size(t), 265);
    ck_assert_int_ge(mm_tokenizer_find(t, "abab"), 259);
    ck_assert_int_ge(mm_tokenizer_find(t, "Ġab"), 259);
    mm_tokenizer_free(t);
    ck_ok(train_on(&t, "", 0, 1000)); /* no text at all: bytes only */
    ck_assert_int_eq(mm_tokenizer_vocab_size(t), 259);
    mm_tokenizer_free(t);
}
END_TEST

START_TEST(rare_pairs_are_left_alone)
{
    one_text one = { "aa aa aa bb", 11, 0 };
    mm_tokenizer_train_options options = MM_TOKENIZER_TRAIN_OPTIONS_INIT;
    options.next_text = give_once;
    options.user = &one;
    options.min_frequency = 3;
    mm_tokenizer *t = NULL;
    ck_ok(mm_tokenizer_train(&options, &t));
    ck_assert_int_eq(mm_tokenizer_vocab_size(t), 260); /* "aa" alone; "Ġaa" stands there twice */
    ck_assert_int_eq(mm_tokenizer_find(t, "aa"), 259);
    mm_tokenizer_free(t);
}
END_TEST

START_TEST(special_tokens_take_the_first_ids_and_are_not_looked_for_in_the_text)
{
    static const char *const special[] = { "<s>", "he", "!" };
    one_text one = { "the <s> the <s> the", 19, 0 };
    mm_tokenizer_train_options options = MM_TOKENIZER_TRAIN_OPTIONS_INIT;
    options.next_text = give_once;
    options.user = &one;
    options.special_tokens = special;
    options.special_count = 3;
    mm_tokenizer *t = NULL, *again = NULL;
    ck_ok(mm_tokenizer_train(&options, &t));
    ck_assert_int_eq(mm_tokenizer_find(t, "<s>"), 0);
    ck_assert_int_eq(mm_tokenizer_is_special(t, 2), 1);
    ck_assert_int_ge(mm_tokenizer_find(t, "Ġ<"), 0); /* learnt as text */
    ck_assert_int_eq(mm_tokenizer_find(t, "he"), 1); /* and never learnt, though each "the" has it; only "th" is */
    ck_assert_int_ge(mm_tokenizer_find(t, "th"), 0);
    /* A special token that is a byte is that byte's token too: a vocabulary has each string once. */
    ck_assert_int_eq(mm_tokenizer_find(t, "!"), 2);
    const char *directory = scratch_directory();
    ck_ok(mm_tokenizer_save(t, directory));
    ck_ok(mm_tokenizer_load(directory, &again));
    size_t a, b;
    int32_t *ids = encode_alloc(t, "the <s>!", 8, MM_SPLIT_NONE, &a);
    int32_t *others = encode_alloc(again, "the <s>!", 8, MM_SPLIT_NONE, &b);
    ck_assert_uint_eq(a, b);
    ck_assert_mem_eq(ids, others, a * sizeof *ids);
    for (size_t i = 0; i < a; i++)
        ck_assert_int_eq(mm_tokenizer_is_special(t, ids[i]), ids[i] == 2);
    free(ids);
    free(others);
    mm_tokenizer_free(again);
    mm_tokenizer_free(t);
    options.special_count = 0; /* a list without a token: none at all */
    one.given = 0;
    options.vocab_size = 256;
    ck_ok(mm_tokenizer_train(&options, &t));
    ck_assert_int_eq(mm_tokenizer_vocab_size(t), 256);
    mm_tokenizer_free(t);
}
END_TEST

START_TEST(a_trained_tokenizer_encodes_its_words_as_tokens)
{
    mm_tokenizer *t = small_tokenizer();
    size_t count;
    int32_t *ids = encode_alloc(t, "The cat 今天", strlen("The cat 今天"), MM_SPLIT_ALL, &count);
    ck_assert_uint_lt(count, 10);
    ck_assert_int_ge(mm_tokenizer_find(t, "Ġcat"), 259);
    free(ids);
    mm_tokenizer_free(t);
}
END_TEST

typedef struct watcher {
    one_text text; /* first, so that give_once can read it */
    int64_t calls, done, total, stop_at;
} watcher;

static int32_t watch(void *user, int64_t done, int64_t total)
{
    watcher *w = user;
    w->calls++;
    w->done = done;
    w->total = total;
    return done == w->stop_at;
}

START_TEST(progress_is_told_and_may_stop_the_training)
{
    watcher w = { { SMALL_TEXT, strlen(SMALL_TEXT), 0 }, 0, 0, 0, -1 };
    mm_tokenizer_train_options options = MM_TOKENIZER_TRAIN_OPTIONS_INIT;
    options.next_text = give_once;
    options.on_progress = watch;
    options.user = &w;
    options.vocab_size = 300;
    mm_tokenizer *t = NULL;
    ck_ok(mm_tokenizer_train(&options, &t));
    ck_assert_int_eq(w.done, 41);
    ck_assert_int_eq(w.total, 41);
    ck_assert_int_eq(w.calls, 42);
    mm_tokenizer_free(t);
    t = NULL;
    w.text.given = 0;
    w.stop_at = 5;
    ck_status(mm_tokenizer_train(&options, &t), MM_ERR_CANCELLED);
    ck_assert_ptr_null(t);
    ck_assert_int_eq(w.done, 5);
}
END_TEST

static int32_t give_up(void *user, const char **text, size_t *length)
{
    (void)text;
    (void)length;
    return *(int32_t *)user;
}

START_TEST(bad_options_and_text_are_refused)
{
    static const char *const twice[] = { "<s>", "<s>" }, *const empty[] = { "" }, *const broken[] = { "\xC0" };
    static const char *const missing[] = { NULL }, *const stand_ins[] = { " ", "Ġ" };
    one_text one = { "abc", 3, 0 };
    mm_tokenizer *t = NULL;
    mm_tokenizer_train_options options;
    mm_tokenizer_train_options_init(&options, sizeof options);
    ck_status(mm_tokenizer_train(NULL, &t), MM_ERR_ARG);
    ck_status(mm_tokenizer_train(&options, &t), MM_ERR_ARG);
    ck_error_mentions("next_text");
    options.next_text = give_once;
    options.user = &one;
    ck_status(mm_tokenizer_train(&options, NULL), MM_ERR_ARG);
    options.vocab_size = 258;
    ck_status(mm_tokenizer_train(&options, &t), MM_ERR_ARG);
    ck_error_mentions("vocab_size is 258");
    options.vocab_size = 1 << 30;
    ck_status(mm_tokenizer_train(&options, &t), MM_ERR_ARG);
    options.vocab_size = 300;
    options.min_frequency = 0;
    ck_status(mm_tokenizer_train(&options, &t), MM_ERR_ARG);
    ck_error_mentions("min_frequency");
    options.min_frequency = 1;
    options.special_count = 1;
    ck_status(mm_tokenizer_train(&options, &t), MM_ERR_ARG);
    options.special_tokens = missing;
    ck_status(mm_tokenizer_train(&options, &t), MM_ERR_ARG);
    options.special_tokens = empty;
    ck_status(mm_tokenizer_train(&options, &t), MM_ERR_ARG);
    ck_error_mentions("empty");
    options.special_tokens = broken;
    ck_status(mm_tokenizer_train(&options, &t), MM_ERR_ARG);
    options.special_tokens = twice;
    options.special_count = -1;
    ck_status(mm_tokenizer_train(&options, &t), MM_ERR_ARG);
    options.special_count = 2;
    ck_status(mm_tokenizer_train(&options, &t), MM_ERR_ARG);
    ck_error_mentions("<s>");
    options.special_tokens = stand_ins;
    ck_status(mm_tokenizer_train(&options, &t), MM_ERR_ARG);
    ck_error_mentions("special_tokens[1] is \"Ġ\", which is how the byte 0x20 is written");
    options.special_tokens = NULL;
    options.special_count = 0;
    one = (one_text){ "ab\xFFz", 4, 0 };
    ck_status(mm_tokenizer_train(&options, &t), MM_ERR_ARG);
    ck_error_mentions("text 0: it is not UTF-8 at byte 2");
    one = (one_text){ NULL, 4, 0 };
    ck_status(mm_tokenizer_train(&options, &t), MM_ERR_ARG);
    ck_error_mentions("text 0: it is NULL");
    one = (one_text){ "abc", (size_t)1 << 30, 0 };
    ck_status(mm_tokenizer_train(&options, &t), MM_ERR_ARG);
    ck_error_mentions("text 0: it has 1073741824 bytes, at most 1073741823");
    int32_t answer = -1;
    options.next_text = give_up;
    options.user = &answer;
    ck_status(mm_tokenizer_train(&options, &t), MM_ERR_CANCELLED);
    answer = MM_ERR_IO; /* a status is none of a callback's answers; taken for a text, it would be one for ever */
    ck_status(mm_tokenizer_train(&options, &t), MM_ERR_CANCELLED);
    options.struct_size = 3;
    ck_status(mm_tokenizer_train(&options, &t), MM_ERR_ARG);
    ck_assert_ptr_null(t);
}
END_TEST

START_TEST(training_survives_every_failing_allocation)
{
    mm_status status = MM_ERR_MEMORY;
    for (uint64_t at = 1; status != MM_OK; at++) {
        mm_tokenizer *t = NULL;
        mm_memory_usage usage = MM_MEMORY_USAGE_INIT;
        ck_assert_uint_lt(at, 2000);
        mmi_memory_fail_at(at, at % 2 == 0);
        status = train_on(&t, SMALL_TEXT, strlen(SMALL_TEXT), 290);
        mmi_memory_fail_at(0, false);
        ck_assert_msg(status == MM_OK || status == MM_ERR_MEMORY, "%s", mm_last_error());
        mm_tokenizer_free(t);
        ck_ok(mm_memory_get_usage(&usage));
        ck_assert_uint_eq(usage.current, 0);
    }
}
END_TEST

START_TEST(memory_follows_the_different_words_and_not_the_length_of_the_text)
{
    uint64_t peak[2];
    for (int i = 0; i < 2; i++) {
        size_t length = strlen(SMALL_TEXT), times = i == 0 ? 2 : 400;
        char *text = malloc(length * times);
        ck_assert_ptr_nonnull(text);
        for (size_t k = 0; k < times; k++)
            memcpy(text + k * length, SMALL_TEXT, length);
        mm_tokenizer *t = NULL;
        mm_memory_usage usage = MM_MEMORY_USAGE_INIT;
        mm_memory_reset_peak();
        ck_ok(train_on(&t, text, length * times, 320));
        ck_ok(mm_memory_get_usage(&usage));
        peak[i] = usage.peak;
        mm_tokenizer_free(t);
        free(text);
    }
    ck_assert_uint_eq(peak[0], peak[1]);
}
END_TEST

/* As work_grows_with_length_and_not_with_its_square in test_encode.c: nothing here is timed, but a case has a minute. */
START_TEST(words_without_an_end_take_no_time_without_an_end)
{
    size_t size = 1500000;
    char *text = malloc(size);
    test_rng rng = { 10 };
    mm_tokenizer *t = NULL;
    ck_assert_ptr_nonnull(text);
    for (size_t i = 0; i < size; i++)
        text[i] = (char)('a' + rng_between(&rng, 0, 19));
    ck_ok(train_on(&t, text, size, 20000)); /* rewriting the word at each merge: some 10^10 symbols */
    ck_assert_int_eq(mm_tokenizer_vocab_size(t), 20000);
    mm_tokenizer_free(t);
    free(text);
}
END_TEST

/* 600 frequent words of two letters, and a word in which each of their merges can go before a token that is long. */
START_TEST(tokens_that_grow_by_a_little_are_not_merged_again_each)
{
    size_t run = 320000, n = 0;
    char *text = malloc(200000 + run);
    mm_tokenizer *t = NULL;
    ck_assert_ptr_nonnull(text);
    for (int i = 0; i < 600; i++)
        for (int k = 0; k < 3 + (600 - i) / 8; k++)
            n += (size_t)sprintf(text + n, "%c%c\n", 'A' + i / 25, 'a' + i % 25);
    for (int i = 599; i >= 0; i--)
        n += (size_t)sprintf(text + n, "%c%c", 'A' + i / 25, 'a' + i % 25);
    memset(text + n, 'z', run);
    ck_ok(train_on(&t, text, n + run, 6400));
    ck_assert_int_gt(mm_tokenizer_vocab_size(t), 1000);
    mm_tokenizer_free(t);
    free(text);
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("text/train");
    TCase *tests = tcase_create("train");
    tcase_set_timeout(tests, 60);
    tcase_add_test(tests, learning_follows_the_rule_on_random_words);
    tcase_add_test(tests, learning_follows_the_rule_in_words_without_an_end);
    tcase_add_test(tests, a_run_counts_its_pair_at_every_place);
    tcase_add_test(tests, the_corpus_gives_the_same_merges_whole_and_by_lines);
    tcase_add_test(tests, the_same_text_gives_the_same_tokenizer_whatever_the_order_of_its_lines);
    tcase_add_test(tests, training_stops_when_no_pair_is_left);
    tcase_add_test(tests, rare_pairs_are_left_alone);
    tcase_add_test(tests, special_tokens_take_the_first_ids_and_are_not_looked_for_in_the_text);
    tcase_add_test(tests, a_trained_tokenizer_encodes_its_words_as_tokens);
    tcase_add_test(tests, progress_is_told_and_may_stop_the_training);
    tcase_add_test(tests, bad_options_and_text_are_refused);
    tcase_add_test(tests, training_survives_every_failing_allocation);
    tcase_add_test(tests, memory_follows_the_different_words_and_not_the_length_of_the_text);
    tcase_add_test(tests, words_without_an_end_take_no_time_without_an_end);
    tcase_add_test(tests, tokens_that_grow_by_a_little_are_not_merged_again_each);
    suite_add_tcase(suite, tests);
    return suite;
}

int main(void)
{
    return run_suite(make_suite());
}
