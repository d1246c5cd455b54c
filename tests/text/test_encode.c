#include "text_support.h"

#include "base/pool.h"
#include "text/merge.h"

static void check_ids(const mm_tokenizer *t, const char *text, int32_t split, const char *const *tokens, size_t n)
{
    size_t count;
    int32_t *ids = encode_alloc(t, text, strlen(text), split, &count);
    ck_assert_uint_eq(count, n);
    for (size_t i = 0; i < n; i++) {
        char bytes[64];
        size_t size;
        ck_ok(mm_decode_bytes(t, &ids[i], 1, 0, bytes, sizeof bytes, &size));
        ck_assert_uint_eq(size, strlen(tokens[i]));
        ck_assert_mem_eq(bytes, tokens[i], size);
    }
    free(ids);
}
#define ENCODES_TO(t, text, split, ...)                                                                                 \
    do {                                                                                                                \
        static const char *const ck_tokens[] = { __VA_ARGS__ };                                                         \
        check_ids(t, text, split, ck_tokens, sizeof ck_tokens / sizeof *ck_tokens);                                     \
    } while (0)

/* A tokenizer with added tokens that overlap, of which one may be normalized: byte ids from 10, no merges. */
static mm_tokenizer *overlapping(const char *normalized)
{
    char json[16384];
    size_t n = (size_t)snprintf(json, sizeof json,
                                "{\"added_tokens\":["
                                "{\"id\":0,\"content\":\"<a>\",\"special\":true},"
                                "{\"id\":1,\"content\":\"<a><b>\",\"special\":false,\"normalized\":%s},"
                                "{\"id\":2,\"content\":\"<b>\",\"special\":true},"
                                "{\"id\":3,\"content\":\"a> <\",\"special\":false},"
                                "{\"id\":4,\"content\":\"中\",\"special\":false},"
                                "{\"id\":5,\"content\":\"<a>x\",\"special\":true}],"
                                "\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false},"
                                "\"decoder\":{\"type\":\"ByteLevel\"},"
                                "\"model\":{\"type\":\"BPE\",\"merges\":[],\"vocab\":{",
                                normalized);
    mm_tokenizer *small = small_tokenizer();
    for (int i = 0; i < 256; i++) {
        size_t size;
        const char *text = mmi_token_string(small, i + 3, &size);
        bool escape = *text == '"' || *text == '\\';
        n += (size_t)snprintf(json + n, sizeof json - n, "%s\"%s%.*s\":%d", i > 0 ? "," : "", escape ? "\\" : "",
                              (int)size, text, i + 10);
    }
    n += (size_t)snprintf(json + n, sizeof json - n, "}}}");
    mm_tokenizer_free(small);
    mm_tokenizer *t = NULL;
    ck_ok(mm_tokenizer_load_memory(json, n, &t));
    return t;
}

START_TEST(the_leftmost_longest_added_token_is_taken)
{
    mm_tokenizer *t = overlapping("false");
    ENCODES_TO(t, "<a><b>", MM_SPLIT_ALL, "<a><b>");
    ENCODES_TO(t, "<a>x<b>", MM_SPLIT_ALL, "<a>x", "<b>");
    ENCODES_TO(t, "<a>  <a>", MM_SPLIT_ALL, "<a>", " ", " ", "<a>");
    ENCODES_TO(t, "ba> <a>", MM_SPLIT_ALL, "b", "a> <", "a", ">");
    ENCODES_TO(t, "<<b>中", MM_SPLIT_ALL, "<", "<b>", "中");
    ENCODES_TO(t, "<a", MM_SPLIT_ALL, "<", "a");
    ENCODES_TO(t, "<A>", MM_SPLIT_ALL, "<", "A", ">");
    mm_tokenizer_free(t);
}
END_TEST

/* As upstream does it, which cuts a text before it normalizes what is between. */
START_TEST(normalized_added_tokens_are_looked_for_between_the_others)
{
    mm_tokenizer *t = overlapping("true");
    ENCODES_TO(t, "<a><b>", MM_SPLIT_ALL, "<a>", "<b>"); /* which leave nothing of it */
    ENCODES_TO(t, "<a><b>", MM_SPLIT_NO_SPECIAL, "<a><b>");
    mm_tokenizer_free(t);
}
END_TEST

START_TEST(the_split_mode_says_which_added_tokens_are_seen)
{
    mm_tokenizer *t = overlapping("false");
    ENCODES_TO(t, "<a><b>", MM_SPLIT_NO_SPECIAL, "<a><b>");
    ENCODES_TO(t, "<a>x", MM_SPLIT_NO_SPECIAL, "<", "a", ">", "x");
    ENCODES_TO(t, "<a> <", MM_SPLIT_NO_SPECIAL, "<", "a> <");
    ENCODES_TO(t, "中<b>", MM_SPLIT_NONE, "\xE4", "\xB8", "\xAD", "<", "b", ">");
    mm_tokenizer_free(t);
}
END_TEST

/* The first of tokens[first, count) in text[from, to), looked for at each byte; odd ones are normalized. */
static int32_t look_for(size_t *start, size_t *end, char tokens[][8], int first, int count, int normalized,
                        const char *text, size_t from, size_t to)
{
    int32_t id = -1;
    *start = *end = to;
    for (size_t i = from; i < to && id < 0; i++)
        for (int k = first; k < count; k++) {
            size_t size = strlen(tokens[k]);
            if (k % 2 != normalized || size > to - i || memcmp(text + i, tokens[k], size) != 0 ||
                (id >= 0 && i + size <= *end))
                continue;
            id = k;
            *start = i;
            *end = i + size;
        }
    return id;
}

START_TEST(added_tokens_are_found_as_by_looking_at_each_byte)
{
    test_rng rng = { 12 };
    int found[2] = { 0 };
    for (int round = 0; round < 4000; round++) {
        mmi_added tree = { 0 };
        char tokens[9][8], text[64];
        int count = 0, kinds = rng_between(&rng, 1, 2), specials = rng_between(&rng, 0, 3);
        for (int k = rng_between(&rng, 0, 9); k > 0; k--) {
            int size = rng_between(&rng, 1, 7), same = 0;
            for (int i = 0; i < size; i++)
                tokens[count][i] = (char)('a' + rng_between(&rng, 0, kinds));
            tokens[count][size] = '\0';
            for (int i = 0; i < count; i++)
                same += strcmp(tokens[i], tokens[count]) == 0;
            if (same == 0) {
                ck_assert(mmi_added_insert(&tree, tokens[count], (size_t)size, count, count < specials, count % 2));
                count++;
            }
        }
        ck_assert(mmi_added_finish(&tree));
        size_t length = (size_t)rng_between(&rng, 0, 63);
        for (size_t i = 0; i < length; i++)
            text[i] = (char)('a' + rng_between(&rng, 0, kinds));
        for (int with_special = 0; with_special < 2; with_special++) {
            mmi_added_matches matches = { 0 };
            ck_assert(mmi_added_find(&matches, &tree, text, length, with_special));
            size_t at = 0, start, end, before, before_end;
            while (at < length) { /* those of the first kind, and of the second what stands before them */
                int first = with_special ? 0 : specials;
                int32_t id = look_for(&start, &end, tokens, first, count, 0, text, at, length);
                int32_t other = look_for(&before, &before_end, tokens, first, count, 1, text, at, start);
                const mmi_added_match *match = id >= 0 || other >= 0 ? mmi_added_next(&matches) : NULL;
                if (!match)
                    break;
                ck_assert_int_eq(match->id, other >= 0 ? other : id);
                ck_assert_uint_eq(match->start, other >= 0 ? before : start);
                at = match->start + match->size;
                ck_assert_uint_eq(at, other >= 0 ? before_end : end);
                found[other >= 0]++;
            }
            ck_assert(look_for(&start, &end, tokens, with_special ? 0 : specials, count, 0, text, at, length) < 0);
            ck_assert(look_for(&start, &end, tokens, with_special ? 0 : specials, count, 1, text, at, length) < 0);
            ck_assert_ptr_null(mmi_added_next(&matches));
            mmi_added_matches_free(&matches);
        }
        mmi_added_free(&tree);
    }
    ck_assert(found[0] > 1000 && found[1] > 1000);
}
END_TEST

START_TEST(the_time_to_find_added_tokens_does_not_grow_with_them)
{
    enum { LONG = 100000, LENGTH = 4000000 };
    char *token = malloc(LONG + 1), *text = malloc(LENGTH);
    mmi_added tree = { 0 };
    mmi_added_matches matches = { 0 };
    const mmi_added_match *match;
    int count = 0;
    memset(token, '~', LONG);
    memset(text, '~', LENGTH);
    token[LONG] = 'b';
    text[LENGTH / 2] = 'c';
    ck_assert(mmi_added_insert(&tree, token, 2, 0, false, true));
    ck_assert(mmi_added_insert(&tree, token, LONG + 1, 1, false, true));
    ck_assert(mmi_added_insert(&tree, "c", 1, 2, false, false));
    ck_assert(mmi_added_finish(&tree));
    ck_assert(mmi_added_find(&matches, &tree, text, LENGTH, true));
    while ((match = mmi_added_next(&matches)) != NULL)
        count += match->id == 0;
    ck_assert_int_eq(count, LENGTH / 2 - 1);
    mmi_added_matches_free(&matches);
    mmi_added_free(&tree);
    free(token);
    free(text);
}
END_TEST

/* Fails if a special token is among the text's ids, or the ids don't give the text. */
static void check_none_special(const mm_tokenizer *t, const char *text, int32_t split)
{
    char back[256];
    size_t count, size;
    int32_t *ids = encode_alloc(t, text, strlen(text), split, &count);
    for (size_t i = 0; i < count; i++)
        ck_assert_int_eq(mm_tokenizer_is_special(t, ids[i]), 0);
    ck_ok(mm_decode(t, ids, count, 1, back, sizeof back, &size));
    ck_assert_uint_eq(size, strlen(text));
    ck_assert_mem_eq(back, text, size);
    free(ids);
}

START_TEST(no_merge_makes_a_special_token)
{
    char token[200], *json = small_json(), *marked;
    mm_tokenizer *t = small_tokenizer();
    snprintf(token, sizeof token, "\"added_tokens\": [ {\"id\": %d, \"content\": \"at\", \"special\": true},",
             (int)mm_tokenizer_find(t, "at"));
    ck_assert_int_ge(mm_tokenizer_find(t, "at"), 259);
    ck_assert_int_ge(mm_tokenizer_find(t, "Ġcat"), 259);
    mm_tokenizer_free(t);
    marked = replaced(json, "\"added_tokens\": [", token);
    ck_ok(mm_tokenizer_load_memory(marked, strlen(marked), &t));
    ck_assert_int_eq(mm_tokenizer_is_special(t, mm_tokenizer_find(t, "at")), 1);
    ENCODES_TO(t, "at", MM_SPLIT_ALL, "at");
    ENCODES_TO(t, "at", MM_SPLIT_NO_SPECIAL, "a", "t");
    check_none_special(t, "the cat sat at that mat", MM_SPLIT_NO_SPECIAL);
    check_none_special(t, "the cat sat at that mat", MM_SPLIT_NONE);
    mm_tokenizer_free(t);
    free(marked);
    free(json);
}
END_TEST

START_TEST(no_merge_makes_an_added_token_of_other_bytes)
{
    char token[200], *json = small_json(), *marked, back[64];
    mm_tokenizer *t = small_tokenizer();
    const int32_t id = mm_tokenizer_find(t, "Ġcat"), space = mm_tokenizer_find(t, "Ġ");
    ck_assert_int_ge(id, 259);
    mm_tokenizer_free(t);
    snprintf(token, sizeof token, "\"added_tokens\": [ {\"id\": %d, \"content\": \"Ġcat\", \"special\": false},", (int)id);
    marked = replaced(json, "\"added_tokens\": [", token);
    ck_ok(mm_tokenizer_load_memory(marked, strlen(marked), &t));
    for (int32_t split = MM_SPLIT_ALL; split <= MM_SPLIT_NONE; split++) {
        static const char text[] = "the cat, Ġcat";
        size_t count, size, offsets[32];
        int32_t *ids = encode_alloc(t, text, strlen(text), split, &count);
        ck_ok(mm_decode(t, ids, count, 0, back, sizeof back, &size));
        ck_assert_uint_eq(size, strlen(text));
        ck_assert_mem_eq(back, text, size);
        ck_ok(mm_token_offsets(t, ids, count, offsets));
        ck_assert_uint_eq(offsets[count], strlen(text));
        free(ids);
    }
    mm_tokenizer_free(t);
    free(marked);
    snprintf(token, sizeof token, "\"added_tokens\": [ {\"id\": %d, \"content\": \"Ġ\", \"special\": false},", (int)space);
    marked = replaced(json, "\"added_tokens\": [", token);
    ck_status(mm_tokenizer_load_memory(marked, strlen(marked), &t), MM_ERR_UNSUPPORTED);
    ck_error_mentions("\"Ġ\" is an added token and how the byte 0x20 is written");
    free(marked);
    free(json);
}
END_TEST

START_TEST(decoding_what_was_encoded_gives_the_text)
{
    mm_tokenizer *t = small_tokenizer();
    test_rng rng = { 1 };
    for (int round = 0; round < 400; round++) {
        char text[800], back[800];
        size_t length = random_text(text, (size_t)rng_between(&rng, 0, 200), &rng), count, size;
        int32_t *ids = encode_alloc(t, text, length, round % 3, &count);
        ck_ok(mm_decode(t, ids, count, 0, back, sizeof back, &size));
        ck_assert_uint_eq(size, length);
        ck_assert_mem_eq(back, text, length);
        ck_ok(mm_decode_bytes(t, ids, count, 0, back, sizeof back, &size));
        ck_assert_uint_eq(size, length);
        ck_assert_mem_eq(back, text, length);
        free(ids);
    }
    mm_tokenizer_free(t);
}
END_TEST

/* The rule as it is written: look for the pair of lowest rank, merge its leftmost place, again. */
static size_t merge_plainly(int32_t *symbols, size_t n, const mmi_merges *merges)
{
    for (;;) {
        uint32_t lowest = MMI_NO_PAIR;
        size_t at = 0;
        for (size_t i = 0; i + 1 < n; i++) {
            uint32_t rank = MMI_NO_PAIR;
            for (size_t k = 0; k < merges->count && rank == MMI_NO_PAIR; k++)
                if (merges->items[k].left == symbols[i] && merges->items[k].right == symbols[i + 1])
                    rank = (uint32_t)k;
            if (rank < lowest) {
                lowest = rank;
                at = i;
            }
        }
        if (lowest == MMI_NO_PAIR)
            return n;
        symbols[at] = merges->items[lowest].result;
        n--;
        memmove(symbols + at + 1, symbols + at + 2, (n - at - 1) * sizeof *symbols);
    }
}

START_TEST(merging_follows_the_rule_for_random_merge_lists)
{
    test_rng rng = { 2 };
    for (int round = 0; round < 300; round++) {
        /* Few symbols and any order of ranks, so that merges open others of lower rank. */
        mmi_merge items[24];
        mmi_merges merges = { items, 0, { 0 } };
        int32_t symbols[150], plain[150];
        while (merges.count < 24) {
            mmi_merge m = { rng_between(&rng, 0, 11), rng_between(&rng, 0, 11), rng_between(&rng, 2, 11) };
            uint32_t rank = mmi_pairs_add(&merges.ranks, m.left, m.right, (uint32_t)merges.count);
            if (rank == merges.count)
                items[merges.count++] = m;
        }
        size_t n = (size_t)rng_between(&rng, 1, 150), count = n; /* both ways of merging */
        for (size_t i = 0; i < n; i++)
            symbols[i] = plain[i] = rng_between(&rng, 0, 2);
        mmi_merge_scratch scratch = { 0 };
        ck_ok(mmi_merge_symbols(symbols, &count, &merges, &scratch));
        n = merge_plainly(plain, n, &merges);
        ck_assert_uint_eq(count, n);
        ck_assert_mem_eq(symbols, plain, n * sizeof *plain);
        mmi_merge_scratch_free(&scratch);
        mmi_pairs_free(&merges.ranks);
    }
}
END_TEST

START_TEST(whole_words_go_through_their_merges)
{
    /* "qxj" is a token, but (q, x) comes before (x, j), and then there is no merge for (qx, j). */
    char *json = small_json();
    char *vocab = replaced(json, "\"vocab\": {", "\"vocab\": { \"qx\": 1000, \"xj\": 1001, \"qxj\": 1002,");
    char *text = replaced(vocab, "\"merges\": [", "\"merges\": [ \"q x\", \"x j\", [\"q\", \"xj\"],");
    mm_tokenizer *t = NULL;
    ck_ok(mm_tokenizer_load_memory(text, strlen(text), &t));
    ENCODES_TO(t, "qxj", MM_SPLIT_ALL, "qx", "j");
    ENCODES_TO(t, "qqx", MM_SPLIT_ALL, "q", "qx");
    ENCODES_TO(t, "xj", MM_SPLIT_ALL, "xj");
    mm_tokenizer_free(t);
    free(text);
    free(vocab);
    free(json);
}
END_TEST

/* A vocabulary of nothing but a, aa, aaaa, … so that a long run merges all the way. */
static mm_tokenizer *run_tokenizer(void)
{
    char text[1024];
    memset(text, 'a', sizeof text);
    mm_tokenizer *t = NULL;
    ck_ok(train_on(&t, text, sizeof text, 259 + 10));
    return t;
}

START_TEST(a_megabyte_of_one_character_encodes)
{
    mm_tokenizer *t = run_tokenizer();
    size_t length = 1 << 20, count;
    char *text = malloc(length);
    ck_assert_ptr_nonnull(text);
    memset(text, 'a', length);
    int32_t *ids = encode_alloc(t, text, length, MM_SPLIT_ALL, &count);
    ck_assert_uint_eq(count, 1024);
    for (size_t i = 0; i < count; i++)
        ck_assert_int_eq(ids[i], 268);
    free(ids);
    free(text);
    mm_tokenizer_free(t);
}
END_TEST

START_TEST(work_grows_with_length_and_not_with_its_square)
{
    /* Megabytes that a linear way encodes in a second or two. A step that looked back at all there is would take
       16 * 10^12 of something, and this case has a minute: nothing here is timed. */
    mm_tokenizer *t = run_tokenizer();
    static const char *const units[] = { "a", "中", " ", "<", "a ", "中，" };
    for (size_t u = 0; u < sizeof units / sizeof *units; u++) {
        size_t unit = strlen(units[u]), length = (size_t)4000000 / unit * unit, count, size;
        char *text = malloc(length), *back = malloc(length);
        ck_assert_ptr_nonnull(text);
        ck_assert_ptr_nonnull(back);
        for (size_t i = 0; i < length; i++)
            text[i] = units[u][i % unit];
        int32_t *ids = encode_alloc(t, text, length, MM_SPLIT_ALL, &count);
        ck_ok(mm_decode_bytes(t, ids, count, 0, back, length, &size));
        ck_assert_uint_eq(size, length);
        ck_assert(memcmp(back, text, length) == 0);
        free(ids);
        free(back);
        free(text);
    }
    mm_tokenizer_free(t);
}
END_TEST

typedef struct shared_work {
    const mm_tokenizer *t;
    size_t counts[64];
} shared_work;

static void encode_shared(void *arg, int64_t piece, int worker)
{
    shared_work *w = arg;
    (void)worker;
    for (int i = 0; i < 20; i++)
        if (mm_encode(w->t, SMALL_TEXT, strlen(SMALL_TEXT), MM_SPLIT_ALL, NULL, 0, &w->counts[piece]) != MM_OK)
            w->counts[piece] = SIZE_MAX;
}

START_TEST(threads_may_share_a_tokenizer)
{
    mm_tokenizer *t = small_tokenizer();
    shared_work w = { t, { 0 } };
    mmi_pool *pool = NULL;
    size_t count;
    ck_ok(mm_encode(t, SMALL_TEXT, strlen(SMALL_TEXT), MM_SPLIT_ALL, NULL, 0, &count));
    ck_ok(mmi_pool_create(4, &pool));
    mmi_pool_run(pool, 64, encode_shared, &w);
    mmi_pool_free(pool);
    for (size_t i = 0; i < 64; i++)
        ck_assert_uint_eq(w.counts[i], count);
    mm_tokenizer_free(t);
}
END_TEST

START_TEST(bad_text_is_refused_with_its_place)
{
    mm_tokenizer *t = small_tokenizer();
    int32_t ids[16] = { 77 };
    size_t needed = 5;
    ck_status(mm_encode(t, "ab\xE4\xB8", 4, MM_SPLIT_ALL, ids, 16, &needed), MM_ERR_ARG);
    ck_error_mentions("byte 2");
    ck_status(mm_encode(t, "a<|im_end|>\xC0\x80", 13, MM_SPLIT_ALL, ids, 16, &needed), MM_ERR_ARG);
    ck_error_mentions("byte 11");
    ck_status(mm_encode(t, "\xED\xA0\x80", 3, MM_SPLIT_ALL, NULL, 0, &needed), MM_ERR_ARG);
    ck_error_mentions("byte 0");
    ck_assert_int_eq(ids[0], 77);
    ck_assert_uint_eq(needed, 5);
    mm_tokenizer_free(t);
}
END_TEST

START_TEST(too_little_room_writes_nothing_and_tells_how_much_is_needed)
{
    mm_tokenizer *t = small_tokenizer();
    const char *text = "The cat sat on the zebra<|im_end|>";
    size_t count, needed = 0;
    int32_t *ids = encode_alloc(t, text, strlen(text), MM_SPLIT_ALL, &count);
    int32_t room[64];
    for (size_t capacity = 1; capacity < count; capacity++) {
        memset(room, 0x55, sizeof room);
        ck_status(mm_encode(t, text, strlen(text), MM_SPLIT_ALL, room, capacity, &needed), MM_ERR_ARG);
        ck_assert_uint_eq(needed, count);
        for (size_t i = 0; i < 64; i++)
            ck_assert_int_eq(room[i], 0x55555555);
    }
    ck_ok(mm_encode(t, text, strlen(text), MM_SPLIT_ALL, room, count, NULL));
    ck_assert_mem_eq(room, ids, count * sizeof *ids);
    free(ids);
    mm_tokenizer_free(t);
}
END_TEST

START_TEST(arguments_are_checked)
{
    mm_tokenizer *t = small_tokenizer();
    int32_t ids[4];
    size_t needed = 9;
    ck_ok(mm_encode(t, NULL, 0, MM_SPLIT_ALL, NULL, 0, &needed));
    ck_assert_uint_eq(needed, 0);
    ck_ok(mm_encode(t, "", 0, MM_SPLIT_ALL, ids, 4, NULL));
    ck_status(mm_encode(NULL, "a", 1, MM_SPLIT_ALL, ids, 4, NULL), MM_ERR_ARG);
    ck_status(mm_encode(t, NULL, 1, MM_SPLIT_ALL, ids, 4, NULL), MM_ERR_ARG);
    ck_status(mm_encode(t, "a", 1, MM_SPLIT_ALL, NULL, 4, NULL), MM_ERR_ARG);
    ck_status(mm_encode(t, "a", 1, 3, ids, 4, NULL), MM_ERR_ARG);
    ck_status(mm_encode(t, "a", 1, -1, ids, 4, NULL), MM_ERR_ARG);
    for (int bits = 30; bits < 32; bits++) {
        ck_status(mm_encode(t, "a", (size_t)1 << bits, MM_SPLIT_ALL, ids, 4, NULL), MM_ERR_ARG);
        ck_error_mentions("at most 1073741823");
    }
    ck_status(mm_encode(t, "a", SIZE_MAX, MM_SPLIT_ALL, ids, 4, NULL), MM_ERR_ARG);
    ck_error_mentions("at most 1073741823");
    mm_tokenizer_free(t);
}
END_TEST

START_TEST(encoding_survives_every_failing_allocation)
{
    mm_tokenizer *t = small_tokenizer();
    char text[3000];
    size_t n = 0;
    while (n + 60 < sizeof text) /* long pieces too */
        n += (size_t)snprintf(text + n, sizeof text - n, n < 1000 ? "thecatsatonthemat" : " The cat 今天<|im_end|>");
    size_t count, needed;
    int32_t *expected = encode_alloc(t, text, n, MM_SPLIT_ALL, &count), *ids = malloc(n * sizeof *ids);
    ck_assert_ptr_nonnull(ids);
    mm_status status = MM_ERR_MEMORY;
    for (uint64_t at = 1; status != MM_OK; at++) {
        ck_assert_uint_lt(at, 100);
        mm_memory_usage before = MM_MEMORY_USAGE_INIT, after = MM_MEMORY_USAGE_INIT;
        ck_ok(mm_memory_get_usage(&before));
        mmi_memory_fail_at(at, false);
        status = mm_encode(t, text, n, MM_SPLIT_ALL, ids, n, &needed);
        mmi_memory_fail_at(0, false);
        ck_assert(status == MM_OK || status == MM_ERR_MEMORY);
        ck_ok(mm_memory_get_usage(&after));
        ck_assert_uint_eq(before.current, after.current);
    }
    ck_assert_uint_eq(needed, count);
    ck_assert_mem_eq(ids, expected, count * sizeof *ids);
    free(ids);
    free(expected);
    mm_tokenizer_free(t);
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("text/encode");
    TCase *tests = tcase_create("encode");
    tcase_set_timeout(tests, 60);
    tcase_add_test(tests, the_leftmost_longest_added_token_is_taken);
    tcase_add_test(tests, normalized_added_tokens_are_looked_for_between_the_others);
    tcase_add_test(tests, added_tokens_are_found_as_by_looking_at_each_byte);
    tcase_add_test(tests, the_time_to_find_added_tokens_does_not_grow_with_them);
    tcase_add_test(tests, no_merge_makes_a_special_token);
    tcase_add_test(tests, no_merge_makes_an_added_token_of_other_bytes);
    tcase_add_test(tests, the_split_mode_says_which_added_tokens_are_seen);
    tcase_add_test(tests, decoding_what_was_encoded_gives_the_text);
    tcase_add_test(tests, merging_follows_the_rule_for_random_merge_lists);
    tcase_add_test(tests, whole_words_go_through_their_merges);
    tcase_add_test(tests, a_megabyte_of_one_character_encodes);
    tcase_add_test(tests, threads_may_share_a_tokenizer);
    tcase_add_test(tests, bad_text_is_refused_with_its_place);
    tcase_add_test(tests, too_little_room_writes_nothing_and_tells_how_much_is_needed);
    tcase_add_test(tests, arguments_are_checked);
    tcase_add_test(tests, encoding_survives_every_failing_allocation);
    suite_add_tcase(suite, tests);
    TCase *megabytes = tcase_create("megabytes");
    tcase_set_timeout(megabytes, 60);
    tcase_add_test(megabytes, work_grows_with_length_and_not_with_its_square);
    suite_add_tcase(suite, megabytes);
    return suite;
}

int main(void)
{
    return run_suite(make_suite());
}
