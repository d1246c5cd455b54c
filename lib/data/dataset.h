/* A JSON-lines file as rows: where its lines begin is known, the lines themselves stay in the file. */
#ifndef MMI_DATA_DATASET_H
#define MMI_DATA_DATASET_H

#include <minimind/data.h>

#include "base/json.h"

/* Room for a line, used again for the next one; a zeroed struct is ready. */
typedef struct mmi_line {
    char *data;
    size_t size, capacity;
} mmi_line;
void mmi_line_free(mmi_line *line);

/* A hold that keeps the data set alive; mm_dataset_free() drops one. Thread-safe. */
mm_dataset *mmi_dataset_hold(mm_dataset *dataset);

/* Row `row` as a JSON object, mmi_json_free it. MM_ERR_FORMAT, MM_ERR_IO and MM_ERR_MEMORY as mm_dataset_text(). */
mm_status mmi_dataset_row(mmi_json **out, const mm_dataset *dataset, int64_t row, mmi_line *line);

/* Its member "text"; lent by `object`. */
mm_status mmi_dataset_row_text(const char **text, size_t *length, const mm_dataset *dataset, int64_t row,
                               const mmi_json *object);

/* Put "file:line: " before the message at hand. Returns `status`. */
mm_status mmi_dataset_fail_within(mm_status status, const mm_dataset *dataset, int64_t row);

/* What tells this file from another one: its size and a hash of all its bytes. */
int64_t mmi_dataset_bytes(const mm_dataset *dataset);
uint64_t mmi_dataset_hash(const mm_dataset *dataset);
const char *mmi_dataset_path(const mm_dataset *dataset);

#endif
