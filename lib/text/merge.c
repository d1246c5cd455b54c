#include "text/merge.h"

#include "base/memory.h"

/* Up to so many symbols, looking through all ranks for the lowest is quicker than keeping a heap. */
#define SHORT_PIECE 96

static void merge_short(int32_t *symbols, size_t *count, const mmi_merges *merges)
{
    uint32_t ranks[SHORT_PIECE]; /* ranks[i]: of the pair (i, i + 1) */
    size_t n = *count;
    for (size_t i = 0; i + 1 < n; i++)
        ranks[i] = mmi_pairs_find(&merges->ranks, symbols[i], symbols[i + 1]);
    while (n > 1) {
        uint32_t lowest = ranks[0];
        for (size_t i = 1; i + 1 < n; i++)
            lowest = ranks[i] < lowest ? ranks[i] : lowest;
        if (lowest == MMI_NO_PAIR)
            break;
        size_t at = 0;
        while (ranks[at] != lowest)
            at++;
        symbols[at] = merges->items[lowest].result;
        n--;
        for (size_t i = at + 1; i < n; i++) {
            symbols[i] = symbols[i + 1];
            ranks[i - 1] = ranks[i];
        }
        if (at > 0)
            ranks[at - 1] = mmi_pairs_find(&merges->ranks, symbols[at - 1], symbols[at]);
        if (at + 1 < n)
            ranks[at] = mmi_pairs_find(&merges->ranks, symbols[at], symbols[at + 1]);
    }
    *count = n;
}

/* The heap holds rank << 32 | position, so that the smallest is the next pair to merge. A pair that changed since it
 * was put there is passed over when its turn comes. */
static void sift_up(uint64_t *heap, size_t at)
{
    uint64_t key = heap[at];
    for (; at > 0 && heap[(at - 1) / 2] > key; at = (at - 1) / 2)
        heap[at] = heap[(at - 1) / 2];
    heap[at] = key;
}

static void sift_down(uint64_t *heap, size_t size, size_t at)
{
    uint64_t key = heap[at];
    for (size_t child; (child = 2 * at + 1) < size; at = child) {
        if (child + 1 < size && heap[child + 1] < heap[child])
            child++;
        if (heap[child] >= key)
            break;
        heap[at] = heap[child];
    }
    heap[at] = key;
}

static uint64_t pop(uint64_t *heap, size_t *size)
{
    uint64_t top = heap[0];
    heap[0] = heap[--*size];
    if (*size > 1)
        sift_down(heap, *size, 0);
    return top;
}

#define END UINT32_MAX /* also what stands before the first: 0 - 1 */

typedef struct list {
    int32_t *symbols;
    mmi_merge_node *nodes;
    uint64_t *heap;
    size_t size;
    const mmi_merges *merges;
} list;

/* Look up the pair that starts at `at` and queue it. */
static void queue_pair(list *l, uint32_t at)
{
    uint32_t next = l->nodes[at].next;
    uint32_t rank = next == END ? MMI_NO_PAIR : mmi_pairs_find(&l->merges->ranks, l->symbols[at], l->symbols[next]);
    l->nodes[at].rank = rank;
    if (rank == MMI_NO_PAIR)
        return;
    l->heap[l->size] = (uint64_t)rank << 32 | at;
    sift_up(l->heap, l->size++);
}

static void merge_at(list *l, uint32_t at)
{
    mmi_merge_node *node = &l->nodes[at];
    uint32_t gone = node->next, after = l->nodes[gone].next;
    l->symbols[at] = l->merges->items[node->rank].result;
    l->nodes[gone].rank = MMI_NO_PAIR;
    node->next = after;
    if (after != END)
        l->nodes[after].previous = at;
    queue_pair(l, at);
    if (node->previous != END)
        queue_pair(l, node->previous);
}

static mm_status merge_long(int32_t *symbols, size_t *count, const mmi_merges *merges, mmi_merge_scratch *scratch)
{
    size_t n = *count; /* each merge takes one pair off the heap and puts two on: never 2 n */
    if (!mmi_grow(&scratch->nodes, &scratch->nodes_room, n, sizeof *scratch->nodes) ||
        !mmi_grow(&scratch->heap, &scratch->heap_room, 2 * n, sizeof *scratch->heap))
        return mmi_fail_memory(n * (sizeof *scratch->nodes + 2 * sizeof *scratch->heap), "a long piece of text");
    list l = { symbols, scratch->nodes, scratch->heap, 0, merges };
    for (size_t i = 0; i < n; i++)
        l.nodes[i] = (mmi_merge_node){ (uint32_t)i - 1, i + 1 == n ? END : (uint32_t)i + 1, MMI_NO_PAIR };
    for (size_t i = 0; i < n; i++)
        queue_pair(&l, (uint32_t)i);
    while (l.size > 0) {
        uint64_t top = pop(l.heap, &l.size);
        uint32_t at = (uint32_t)top;
        if (l.nodes[at].rank == top >> 32)
            merge_at(&l, at);
    }
    size_t left = 0;
    for (uint32_t at = 0; at != END; at = l.nodes[at].next)
        symbols[left++] = symbols[at];
    *count = left;
    return MM_OK;
}

mm_status mmi_merge_symbols(int32_t *symbols, size_t *count, const mmi_merges *merges, mmi_merge_scratch *scratch)
{
    if (*count > SHORT_PIECE)
        return merge_long(symbols, count, merges, scratch);
    merge_short(symbols, count, merges);
    return MM_OK;
}

void mmi_merge_scratch_free(mmi_merge_scratch *scratch)
{
    mmi_free(scratch->nodes);
    mmi_free(scratch->heap);
    *scratch = (mmi_merge_scratch){ 0 };
}
