/* What the trainer asks a loader beyond its batches. */
#ifndef MMI_DATA_LOADER_H
#define MMI_DATA_LOADER_H

#include <stdbool.h>

#include <minimind/data.h>

/* A hold that keeps the loader alive; mm_loader_free() drops one. Thread-safe. */
mm_loader *mmi_loader_hold(mm_loader *loader);

/* Lent. */
const mm_loader_options *mmi_loader_options(const mm_loader *loader);
const mm_dataset *mmi_loader_dataset(const mm_loader *loader);
const mm_tokenizer *mmi_loader_tokenizer(const mm_loader *loader);

/* Rows of its largest batch: two for each pair of a preference. */
int32_t mmi_loader_batch_rows(const mm_loader *loader);

/* True when nothing can be left of the epoch. It may be false though only bad lines are left. */
bool mmi_loader_at_end(const mm_loader *loader);

/* The last batch has no row of the data: one of nothing but padding stands there, as the other ranks have all that are
 * left. */
bool mmi_loader_gave_none(const mm_loader *loader);

/* As mm_loader_seek(), to where mm_loader_tell() said that it stood: nothing is read for it, so it can't fail. */
void mmi_loader_return(mm_loader *loader, const mm_loader_position *position);

/* For a data set all of whose rows were passed over. */
mm_status mmi_loader_fail_unreadable(const mm_loader *loader);

/* Batches of each of so many epochs, 0 where they differ, and of all of them. Padded: from the rows, so bad lines may
 * make it too many. Packed: exact, by tokenizing the data set once; where epochs take other rows, those that they take,
 * with 4 bytes for each row meanwhile. MM_ERR_FORMAT and the like as mm_loader_next(); MM_ERR_ARG, more than can be
 * counted. The loader stands where it stood. */
mm_status mmi_loader_count(int64_t *each, int64_t *all, mm_loader *loader, int64_t epochs);

#endif
