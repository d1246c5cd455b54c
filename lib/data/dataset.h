/* Files of JSON lines as one list of rows, and the order in which an epoch takes them. */
#ifndef MMI_DATA_DATASET_H
#define MMI_DATA_DATASET_H

#include <stdbool.h>

#include <minimind/data.h>

#include "data/source.h"

/* A hold that keeps the data set alive; mm_dataset_free() drops one. Thread-safe. */
mm_dataset *mmi_dataset_hold(mm_dataset *dataset);

/* Row `row` as a JSON object, mmi_json_free it. MM_ERR_FORMAT, MM_ERR_IO and MM_ERR_MEMORY as mm_dataset_text(). */
mm_status mmi_dataset_row(mmi_json **out, const mm_dataset *dataset, int64_t row, mmi_line *line);

/* The string member `key` of an object; lent by it. MM_ERR_FORMAT without file and line. */
mm_status mmi_row_string(const char **text, size_t *length, const mmi_json *object, const char *key);

/* A list of strings under `key`, at least one, none empty. MM_ERR_FORMAT without file and line. */
mm_status mmi_row_strings(mmi_json **list, const mmi_json *row, const char *key);

/* Put "file:line: " before the message at hand. Returns `status`, or MM_ERR_IO with a story of its own where the row
 * can't be found any more. */
mm_status mmi_dataset_fail_within(mm_status status, const mm_dataset *dataset, int64_t row);

/* How many rows an epoch takes, by the files' weights; mm_dataset_rows() of them when all are 1. */
int64_t mmi_dataset_epoch_rows(const mm_dataset *dataset);

/* True where an epoch does not take the same rows as the one before: by a weight that takes part of a file. */
bool mmi_dataset_varies(const mm_dataset *dataset);

/* The row at `place` of an epoch: a function of its arguments alone, so that any place can be gone to. */
int64_t mmi_dataset_row_at(const mm_dataset *dataset, int64_t place, int64_t epoch, uint64_t seed, bool shuffle);

/* What tells this data from other data: its size, and a hash of all its bytes and of what is chosen from them. */
int64_t mmi_dataset_bytes(const mm_dataset *dataset);
uint64_t mmi_dataset_hash(const mm_dataset *dataset);
const char *mmi_dataset_path(const mm_dataset *dataset); /* of its first file */

#endif
