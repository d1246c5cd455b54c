/* Merging the symbols of one piece: always the adjacent pair of lowest rank, of equal rank the leftmost. */
#ifndef MMI_TEXT_MERGE_H
#define MMI_TEXT_MERGE_H

#include "base/status.h"
#include "text/pairs.h"

typedef struct mmi_merge {
    int32_t left, right, result;
} mmi_merge;

/* A merge list: `ranks` gives a pair's place in it. */
typedef struct mmi_merges {
    mmi_merge *items; /* [count] */
    size_t count;
    mmi_pairs ranks;
} mmi_merges;

typedef struct mmi_merge_node {
    uint32_t previous, next, rank;
} mmi_merge_node;

/* Memory that is kept from one long piece to the next. Zeroed: none yet. */
typedef struct mmi_merge_scratch {
    mmi_merge_node *nodes;
    uint64_t *heap;
    size_t nodes_room, heap_room;
} mmi_merge_scratch;
void mmi_merge_scratch_free(mmi_merge_scratch *scratch);

/* Merge symbols[0, *count) in place; *count becomes what is left. At most MMI_TEXT_LIMIT symbols, in O(n log n).
 * Fails only with MM_ERR_MEMORY. */
mm_status mmi_merge_symbols(int32_t *symbols, size_t *count, const mmi_merges *merges, mmi_merge_scratch *scratch);

#endif
