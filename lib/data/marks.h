/* Which ids of a rendered conversation are learnt: the assistant's words and the end of its turn, found as ids, after
 * merging, exactly as upstream finds them. */
#ifndef MMI_DATA_MARKS_H
#define MMI_DATA_MARKS_H

#include <stddef.h>
#include <stdint.h>

#define MMI_MARK_IDS 32 /* a tokenizer without merges needs 22 for the longest */

/* What stands before and behind an assistant's words. */
typedef struct mmi_frame {
    int32_t head[MMI_MARK_IDS], tail[MMI_MARK_IDS];
    size_t head_count, tail_count; /* at least 1 */
    size_t late;                   /* MiniMind2 marks one id later than MiniMind-3, at both ends */
} mmi_frame;

/* marks[i] is 1 where ids[i] is learnt, else 0; both [n]. A turn without a tail is learnt to the end, padding too. */
void mmi_marks_find(unsigned char *marks, const int32_t *ids, size_t n, const mmi_frame *frame);

#endif
