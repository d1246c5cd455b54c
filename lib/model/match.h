/* Which entry of which file each tensor of a layout comes from. */
#ifndef MMI_MODEL_MATCH_H
#define MMI_MODEL_MATCH_H

#include "model/layout.h"
#include "model/safetensors.h"

typedef struct mmi_source {
    const mmi_st_file *file;
    const mmi_st_entry *entry;
    int32_t dtype; /* of the weights; those in blocks are bytes to the file */
} mmi_source;

/* What is matched, and how messages call the two sides. */
typedef struct mmi_match_input {
    const mmi_layout *layout;
    const mmi_st_file *files;
    size_t count;            /* files */
    const char *weights;     /* the file, or the index of several */
    const char *config;      /* "config.json" */
} mmi_match_input;

/* sources [layout->count]. Names are translated first; shapes and dtypes are those of the layout and of weights. What the
 * files hold beyond the layout is a table that is computed here, or a tied head that equals the embedding, for which it
 * stands where that is missing; else it is MM_ERR_FORMAT, as are tensors that are missing, twice there, or of another
 * shape. MM_ERR_UNSUPPORTED: a dtype. MM_ERR_IO, MM_ERR_MEMORY. */
mm_status mmi_match(mmi_source *sources, const mmi_match_input *in);

/* Whether the files hold norms of queries, which tells MiniMind-3 from MiniMind2. */
bool mmi_match_has_q_norm(const mmi_st_file *files, size_t count);

#endif
