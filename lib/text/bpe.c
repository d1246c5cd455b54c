/* Learning merges. Nothing is counted twice: each pair knows how often it occurs and where, and a merge touches nothing
 * but those places and their neighbours. The most frequent pair comes from a heap whose counts may be out of date on
 * the high side; they are put right when they reach the top. */
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
    bpe->special_count = special_count;
    unsigned char order[256];
    mmi_byte_chars_order(order);
    for (size_t i = 0; i < 256; i++) {
        char text[2];
        size_t size = mmi_byte_char(text, order[i]);
        if (!mmi_strings_add(&bpe->tokens, &id, text, size))
            return mmi_fail_memory(sizeof text, "a token");
        bpe->byte_ids[order[i]] = (int32_t)id; /* a special token's, if that is this byte as it stands */
        if (id < special_count && size > 1)
            return mmi_fail(MM_ERR_ARG, "special_tokens[%u] is \"%s\", which is how the byte 0x%02X is written",
                            (unsigned)id, special_tokens[id], order[i]);
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

/* A word's symbols lie in cells, as many as it has bytes. A symbol of n bytes has n cells: the first holds its id, and
 * if there are more, the second and the last hold -n, and those between are negative too. */
typedef struct word {
    size_t at; /* into cells */
    uint32_t size;
    int64_t count;
} word;

typedef struct pair {
    int32_t left, right;
    int64_t count;
    uint32_t places; /* its list: the number of a place, or NOWHERE */
    bool risen;      /* counted up by the merge at hand */
} pair;

/* Where a pair stands, or stood once: its left symbol's first cell in a word. */
typedef struct place {
    uint32_t word, at, next;
} place;
#define NOWHERE UINT32_MAX

typedef struct candidate {
    int64_t count;
    uint32_t pair;
} candidate;

typedef struct learner {
    int32_t *cells;
    word *words;
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
    mmi_free(l->cells);
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

static bool note_place(learner *l, pair *p, uint32_t w, uint32_t at)
{
    uint32_t number = l->free_places;
    if (number != NOWHERE) {
        l->free_places = l->places[number].next;
    } else {
        if (l->place_count >= NOWHERE - 1 ||
            !mmi_grow(&l->places, &l->places_room, l->place_count + 1, sizeof *l->places))
            return false;
        number = (uint32_t)l->place_count++;
    }
    l->places[number] = (place){ w, at, p->places };
    p->places = number;
    return true;
}

/* One more of a pair in word `w`. Its number, or NOWHERE. */
static uint32_t count_up(learner *l, int32_t left, int32_t right, uint32_t w)
{
    uint32_t number = mmi_pairs_add(&l->map, left, right, (uint32_t)l->pair_count);
    if (number == MMI_NO_PAIR)
        return NOWHERE;
    if (number == l->pair_count) {
        if (!mmi_grow(&l->pairs, &l->pairs_room, l->pair_count + 1, sizeof *l->pairs))
            return NOWHERE;
        l->pairs[l->pair_count++] = (pair){ left, right, 0, NOWHERE, false };
    }
    pair *p = &l->pairs[number];
    p->count += l->words[w].count;
    if (!p->risen) {
        if (!mmi_grow(&l->risen, &l->risen_room, l->risen_count + 1, sizeof *l->risen))
            return NOWHERE;
        l->risen[l->risen_count++] = number;
        p->risen = true;
    }
    return number;
}

/* One more of a pair, at cell `at` of word `w`. */
static bool gain(learner *l, int32_t left, int32_t right, uint32_t w, uint32_t at)
{
    uint32_t number = count_up(l, left, right, w);
    return number != NOWHERE && note_place(l, &l->pairs[number], w, at);
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
        if (p->count > 0 && !push(l, (candidate){ p->count, l->risen[i] })) /* 0: it came and went */
            return false;
    }
    l->risen_count = 0;
    return true;
}

/* numbers[i]: of the pair that begins at cell i, if it isn't a word's last. */
static bool count_pairs(learner *l, uint32_t *numbers, const mmi_words *words, size_t *total)
{
    for (size_t w = 0; w < words->strings.count; w++) {
        const mmi_string *s = &words->strings.items[w];
        l->words[w] = (word){ s->at, s->size, words->counts[w] };
        for (size_t i = s->at; i + 1 < s->at + s->size; i++, ++*total)
            if ((numbers[i] = count_up(l, l->cells[i], l->cells[i + 1], (uint32_t)w)) == NOWHERE)
                return false;
    }
    return true;
}

/* Each pair's places lie side by side, in the order of the text, since all of them are visited when it is merged. */
static bool note_all(learner *l, const uint32_t *numbers, const mmi_words *words, size_t total)
{
    uint32_t *ends = mmi_calloc(l->pair_count + 1, sizeof *ends);
    if (!ends || total >= NOWHERE || !mmi_grow(&l->places, &l->places_room, total, sizeof *l->places)) {
        mmi_free(ends);
        return false;
    }
    for (size_t w = 0; w < words->strings.count; w++)
        for (size_t i = l->words[w].at; i + 1 < l->words[w].at + l->words[w].size; i++)
            ends[numbers[i] + 1]++;
    for (size_t p = 0; p < l->pair_count; p++) {
        ends[p + 1] += ends[p];
        l->pairs[p].places = ends[p];
    }
    for (size_t w = 0; w < words->strings.count; w++)
        for (uint32_t i = 0; i + 1 < l->words[w].size; i++) {
            uint32_t at = ends[numbers[l->words[w].at + i]]++;
            l->places[at] = (place){ (uint32_t)w, i, at + 1 };
        }
    for (size_t p = 0; p < l->pair_count; p++)
        l->places[ends[p] - 1].next = NOWHERE;
    l->place_count = total;
    mmi_free(ends);
    return true;
}

static bool start(learner *l, const mmi_bpe *bpe, const mmi_words *words)
{
    size_t total = 0;
    uint32_t *numbers = mmi_alloc(words->strings.used, sizeof *numbers);
    l->cells = mmi_alloc(words->strings.used, sizeof *l->cells);
    l->words = mmi_alloc(words->strings.count, sizeof *l->words);
    bool ok = numbers && l->cells && l->words;
    for (size_t i = 0; ok && i < words->strings.used; i++)
        l->cells[i] = bpe->byte_ids[(unsigned char)words->strings.bytes[i]];
    ok = ok && count_pairs(l, numbers, words, &total) && note_all(l, numbers, words, total);
    mmi_free(numbers);
    return ok && queue_risen(l);
}

/* Where the symbol behind that at `at` begins, and the one before. */
static uint32_t behind(const int32_t *cells, uint32_t at, uint32_t size)
{
    return at + 1 < size && cells[at + 1] < 0 ? at + (uint32_t)-cells[at + 1] : at + 1;
}

static uint32_t before(const int32_t *cells, uint32_t at)
{
    return cells[at - 1] < 0 ? at - (uint32_t)-cells[at - 1] : at - 1;
}

static bool stands_at(const int32_t *cells, uint32_t at, uint32_t size, const mmi_merge *m)
{
    uint32_t right = behind(cells, at, size);
    return cells[at] == m->left && right < size && cells[right] == m->right;
}

/* The pair stands at `at`: pairs that lose a side are counted down, those with the new symbol up. */
static bool merge_at(learner *l, uint32_t w, uint32_t at, const mmi_merge *m)
{
    const uint32_t size = l->words[w].size;
    int32_t *cells = l->cells + l->words[w].at;
    uint32_t right = behind(cells, at, size), end = behind(cells, right, size);
    lose(l, m->left, m->right, w);
    cells[at] = m->result;
    cells[right] = -1;
    cells[at + 1] = cells[end - 1] = -(int32_t)(end - at);
    if (at > 0) {
        uint32_t left = before(cells, at);
        lose(l, cells[left], m->left, w);
        if (!gain(l, cells[left], m->result, w, left))
            return false;
    }
    if (end < size) {
        lose(l, m->right, cells[end], w);
        if (!gain(l, m->result, cells[end], w, at))
            return false;
    }
    return true;
}

/* A run of one symbol is merged from its left end on, wherever in it the place is. */
static bool merge_run(learner *l, place p, const mmi_merge *m)
{
    const uint32_t size = l->words[p.word].size;
    const int32_t *cells = l->cells + l->words[p.word].at;
    uint32_t at = p.at;
    if (!stands_at(cells, at, size, m))
        return true;
    while (m->left == m->right && at > 0 && cells[before(cells, at)] == m->left)
        at = before(cells, at);
    for (; at < size && stands_at(cells, at, size, m); at = behind(cells, at, size))
        if (!merge_at(l, p.word, at, m))
            return false;
    return true;
}

/* Places are all over memory: the next one's cells are asked for, and the word of that behind it. */
static void ask_ahead(const learner *l, uint32_t number)
{
    if (number == NOWHERE)
        return;
    const place *next = &l->places[number];
    __builtin_prefetch(&l->cells[l->words[next->word].at + next->at]);
    if (next->next != NOWHERE)
        __builtin_prefetch(&l->words[l->places[next->next].word]);
}

static bool merge_everywhere(learner *l, uint32_t number, const mmi_merge *m)
{
    uint32_t at = l->pairs[number].places;
    l->pairs[number].places = NOWHERE;
    while (at != NOWHERE) {
        place here = l->places[at];
        ask_ahead(l, here.next);
        l->places[at].next = l->free_places;
        l->free_places = at;
        if (!merge_run(l, here, m))
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
    if (m.result < (int32_t)bpe->special_count)
        return true;
    bpe->merges[bpe->merge_count] = m;
    bpe->merge_counts[bpe->merge_count++] = p.count;
    return merge_everywhere(l, number, &m);
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
