/* Learning merges. Nothing is counted twice: each pair knows how often it occurs and in which words, and a merge
 * touches only the words that hold its pair. The most frequent pair comes from a heap whose counts may be out of date
 * on the high side; they are put right when they reach the top. */
#include "text/bpe.h"

#include <string.h>

#include "base/memory.h"
#include "text/byte_chars.h"
#include "text/utf8.h"

bool mmi_words_add(mmi_words *words, const char *text, size_t size)
{
    uint32_t number;
    size_t known = words->strings.count;
    if (!mmi_grow(&words->counts, &words->counts_room, known + 1, sizeof *words->counts) ||
        !mmi_strings_add(&words->strings, &number, text, size))
        return false;
    if (number == known)
        words->counts[number] = 0;
    words->counts[number]++;
    return true;
}

void mmi_words_free(mmi_words *words)
{
    mmi_strings_free(&words->strings);
    mmi_free(words->counts);
    *words = (mmi_words){ 0 };
}

mm_status mmi_bpe_begin(mmi_bpe *bpe, const char *const *special_tokens, size_t special_count)
{
    uint32_t id;
    for (size_t i = 0; i < special_count; i++) {
        const char *token = special_tokens[i];
        size_t size = token ? strlen(token) : 0;
        if (size == 0)
            return mmi_fail(MM_ERR_ARG, "special_tokens[%zu] is %s", i, token ? "empty" : "NULL");
        if (mmi_utf8_valid(token, size) < size)
            return mmi_fail(MM_ERR_ARG, "special_tokens[%zu] is not UTF-8", i);
        if (!mmi_strings_add(&bpe->tokens, &id, token, size))
            return mmi_fail_memory(size, "a special token");
        if (id != i)
            return mmi_fail(MM_ERR_ARG, "special_tokens[%zu] and [%u] are both \"%s\"", i, (unsigned)id, token);
    }
    unsigned char order[256];
    mmi_byte_chars_order(order);
    for (size_t i = 0; i < 256; i++) {
        char text[2];
        if (!mmi_strings_add(&bpe->tokens, &id, text, mmi_byte_char(text, order[i])))
            return mmi_fail_memory(sizeof text, "a token");
        bpe->byte_ids[order[i]] = (int32_t)id; /* a special token's, if that is one byte's character */
    }
    return MM_OK;
}

void mmi_bpe_free(mmi_bpe *bpe)
{
    mmi_strings_free(&bpe->tokens);
    mmi_free(bpe->merges);
    mmi_free(bpe->merge_counts);
    *bpe = (mmi_bpe){ 0 };
}

typedef struct word {
    size_t at; /* into symbols */
    uint32_t size;
    int64_t count;
} word;

typedef struct pair {
    int32_t left, right;
    int64_t count;
    uint32_t places; /* its list of words: the number of a place, or NOWHERE */
    bool risen;      /* counted up by the merge at hand */
} pair;

/* A word that holds a pair, or held it once. */
typedef struct place {
    uint32_t word, next;
} place;
#define NOWHERE UINT32_MAX

typedef struct candidate {
    int64_t count;
    uint32_t pair;
} candidate;

typedef struct learner {
    int32_t *symbols;
    word *words;
    size_t word_count;
    mmi_pairs map; /* to a pair's number */
    pair *pairs;
    size_t pair_count, pairs_room;
    place *places;
    size_t place_count, places_room;
    uint32_t free_places;
    candidate *heap;
    size_t heap_size, heap_room;
    uint32_t *risen; /* pairs that the merge at hand counted up */
    size_t risen_count, risen_room;
} learner;

static void learner_free(learner *l)
{
    mmi_free(l->symbols);
    mmi_free(l->words);
    mmi_pairs_free(&l->map);
    mmi_free(l->pairs);
    mmi_free(l->places);
    mmi_free(l->heap);
    mmi_free(l->risen);
}

static bool comes_first(const learner *l, candidate a, candidate b)
{
    const pair *p = &l->pairs[a.pair], *q = &l->pairs[b.pair];
    if (a.count != b.count)
        return a.count > b.count;
    return p->left != q->left ? p->left < q->left : p->right < q->right;
}

static bool push(learner *l, candidate c)
{
    if (!mmi_grow(&l->heap, &l->heap_room, l->heap_size + 1, sizeof *l->heap))
        return false;
    size_t at = l->heap_size++;
    for (; at > 0 && comes_first(l, c, l->heap[(at - 1) / 2]); at = (at - 1) / 2)
        l->heap[at] = l->heap[(at - 1) / 2];
    l->heap[at] = c;
    return true;
}

static candidate pop(learner *l)
{
    candidate top = l->heap[0], last = l->heap[--l->heap_size];
    size_t at = 0;
    for (size_t child; (child = 2 * at + 1) < l->heap_size; at = child) {
        if (child + 1 < l->heap_size && comes_first(l, l->heap[child + 1], l->heap[child]))
            child++;
        if (!comes_first(l, l->heap[child], last))
            break;
        l->heap[at] = l->heap[child];
    }
    l->heap[at] = last;
    return top;
}

/* Note that the pair stands in word `w`. A word being rewritten is noted once, however often it gains the pair. */
static bool note_place(learner *l, pair *p, uint32_t w)
{
    if (p->places != NOWHERE && l->places[p->places].word == w)
        return true;
    uint32_t at = l->free_places;
    if (at != NOWHERE) {
        l->free_places = l->places[at].next;
    } else {
        if (l->place_count >= NOWHERE - 1 ||
            !mmi_grow(&l->places, &l->places_room, l->place_count + 1, sizeof *l->places))
            return false;
        at = (uint32_t)l->place_count++;
    }
    l->places[at] = (place){ w, p->places };
    p->places = at;
    return true;
}

/* One more of a pair in word `w`. */
static bool gain(learner *l, int32_t left, int32_t right, uint32_t w)
{
    uint32_t number = mmi_pairs_add(&l->map, left, right, (uint32_t)l->pair_count);
    if (number == MMI_NO_PAIR)
        return false;
    if (number == l->pair_count) {
        if (!mmi_grow(&l->pairs, &l->pairs_room, l->pair_count + 1, sizeof *l->pairs))
            return false;
        l->pairs[l->pair_count++] = (pair){ left, right, 0, NOWHERE, false };
    }
    pair *p = &l->pairs[number];
    p->count += l->words[w].count;
    if (!p->risen) {
        if (!mmi_grow(&l->risen, &l->risen_room, l->risen_count + 1, sizeof *l->risen))
            return false;
        l->risen[l->risen_count++] = number;
        p->risen = true;
    }
    return note_place(l, p, w);
}

static void lose(learner *l, int32_t left, int32_t right, uint32_t w)
{
    l->pairs[mmi_pairs_find(&l->map, left, right)].count -= l->words[w].count;
}

/* The pairs that were counted up become candidates with their new count. */
static bool queue_risen(learner *l)
{
    for (size_t i = 0; i < l->risen_count; i++) {
        pair *p = &l->pairs[l->risen[i]];
        p->risen = false;
        if (!push(l, (candidate){ p->count, l->risen[i] }))
            return false;
    }
    l->risen_count = 0;
    return true;
}

static bool start(learner *l, const mmi_bpe *bpe, const mmi_words *words)
{
    l->word_count = words->strings.count;
    l->symbols = mmi_alloc(words->strings.used, sizeof *l->symbols);
    l->words = mmi_alloc(l->word_count, sizeof *l->words);
    if (!l->symbols || !l->words)
        return false;
    for (size_t i = 0; i < words->strings.used; i++)
        l->symbols[i] = bpe->byte_ids[(unsigned char)words->strings.bytes[i]];
    for (size_t w = 0; w < l->word_count; w++) {
        const mmi_string *s = &words->strings.items[w];
        l->words[w] = (word){ s->at, s->size, words->counts[w] };
        for (size_t i = 0; i + 1 < s->size; i++)
            if (!gain(l, l->symbols[s->at + i], l->symbols[s->at + i + 1], (uint32_t)w))
                return false;
    }
    return queue_risen(l);
}

/* Replace the pair in word `w` from left to right. Pairs that lose a side are counted down once each, pairs with the
 * new symbol are counted up. What stands left of s[made] is the new word, from s[i] on the old one; s[i - 1] is always
 * old. */
static bool rewrite(learner *l, uint32_t w, mmi_merge m)
{
    int32_t *s = l->symbols + l->words[w].at;
    size_t n = l->words[w].size, made = 0;
    bool after_merge = false;
    for (size_t i = 0; i < n;) {
        bool here = i + 1 < n && s[i] == m.left && s[i + 1] == m.right;
        if (here && i > 0 && !after_merge) /* behind a merge it was counted down already */
            lose(l, s[i - 1], s[i], w);
        if (here)
            lose(l, s[i], s[i + 1], w);
        if (here && i + 2 < n)
            lose(l, s[i + 1], s[i + 2], w);
        int32_t symbol = here ? m.result : s[i];
        if (made > 0 && (here || after_merge) && !gain(l, s[made - 1], symbol, w))
            return false;
        s[made++] = symbol;
        i += here ? 2 : 1;
        after_merge = here;
    }
    l->words[w].size = (uint32_t)made;
    return true;
}

static bool rewrite_all(learner *l, uint32_t number, mmi_merge m)
{
    uint32_t at = l->pairs[number].places;
    l->pairs[number].places = NOWHERE;
    while (at != NOWHERE) {
        place here = l->places[at];
        l->places[at].next = l->free_places;
        l->free_places = at;
        if (!rewrite(l, here.word, m))
            return false;
        at = here.next;
    }
    return queue_risen(l);
}

/* The most frequent pair's number, or NOWHERE when none is frequent enough. False when memory ran out. */
static bool next_pair(learner *l, uint32_t *number, int64_t min_frequency)
{
    *number = NOWHERE;
    while (l->heap_size > 0) {
        candidate c = pop(l);
        int64_t count = l->pairs[c.pair].count;
        if (count == c.count) {
            *number = count >= min_frequency ? c.pair : NOWHERE;
            return true;
        }
        /* A pair that has risen since then is there with its new count too. */
        if (count < c.count && count >= min_frequency && !push(l, (candidate){ count, c.pair }))
            return false;
    }
    return true;
}

/* The string of both parts: a new token, or the one that is spelled like that already. */
static bool add_token(mmi_bpe *bpe, int32_t left, int32_t right, int32_t *result)
{
    size_t a = bpe->tokens.items[left].size, b = bpe->tokens.items[right].size;
    char *text = mmi_alloc(a + b, 1);
    uint32_t id = 0;
    if (!text)
        return false;
    memcpy(text, bpe->tokens.bytes + bpe->tokens.items[left].at, a);
    memcpy(text + a, bpe->tokens.bytes + bpe->tokens.items[right].at, b);
    bool ok = mmi_strings_add(&bpe->tokens, &id, text, a + b);
    *result = (int32_t)id;
    mmi_free(text);
    return ok;
}

static bool merge_pair(mmi_bpe *bpe, learner *l, uint32_t number)
{
    pair p = l->pairs[number];
    mmi_merge m = { p.left, p.right, -1 };
    if (!mmi_grow(&bpe->merges, &bpe->merges_room, bpe->merge_count + 1, sizeof *bpe->merges) ||
        !mmi_grow(&bpe->merge_counts, &bpe->counts_room, bpe->merge_count + 1, sizeof *bpe->merge_counts) ||
        !add_token(bpe, m.left, m.right, &m.result))
        return false;
    bpe->merges[bpe->merge_count] = m;
    bpe->merge_counts[bpe->merge_count++] = p.count;
    return rewrite_all(l, number, m);
}

mm_status mmi_bpe_learn(mmi_bpe *bpe, const mmi_words *words, size_t vocab_size, int64_t min_frequency,
                        mm_progress_fn on_progress, void *user)
{
    learner l = { .free_places = NOWHERE };
    int64_t total = (int64_t)vocab_size - (int64_t)bpe->tokens.count;
    mm_status status = MM_OK;
    bool ok = start(&l, bpe, words);
    while (ok) {
        uint32_t number = NOWHERE;
        if (on_progress && on_progress(user, (int64_t)bpe->merge_count, total) != 0) {
            status = mmi_fail(MM_ERR_CANCELLED, "training was given up after %zu merges", bpe->merge_count);
            break;
        }
        if (bpe->tokens.count < vocab_size)
            ok = next_pair(&l, &number, min_frequency);
        if (!ok || number == NOWHERE)
            break;
        ok = merge_pair(bpe, &l, number);
    }
    learner_free(&l);
    return ok ? status : mmi_fail(MM_ERR_MEMORY, "out of memory after %zu merges", bpe->merge_count);
}
