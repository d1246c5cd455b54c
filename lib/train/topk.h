/* A teacher's k likeliest next tokens for every counted position of some rows, kept in a file. */
#ifndef MMI_TRAIN_TOPK_H
#define MMI_TRAIN_TOPK_H

#include <minimind/train.h>

#include "model/safetensors.h"

typedef struct mmi_topk {
    mmi_st_file file;
    const int64_t *keys;   /* [rows], ascending */
    const int64_t *starts; /* [rows + 1]: a row's positions in the next two */
    const int32_t *ids;    /* [positions, k] */
    const float *logits;   /* [positions, k], descending */
    int64_t rows, positions, k;
    int64_t vocab_size; /* ids are below it */
    uint64_t hash;      /* of all of it */
    char *path;
} mmi_topk;

/* Open and check it: MM_ERR_FORMAT names the file and what is wrong with it. On failure there is nothing to close. */
mm_status mmi_topk_open(mmi_topk *out, const char *path);
void mmi_topk_close(mmi_topk *topk);

/* Where the positions of a row of a batch begin: one for each of its counted targets. MM_ERR_FORMAT: it is not in the
 * file. */
mm_status mmi_topk_find(const mmi_topk *topk, int64_t *first, const mm_batch *batch, int64_t row);

/* A position's logits as a row of the teacher's: [V], -infinity where the file has none. */
void mmi_topk_spread(float *logits, const mmi_topk *topk, int64_t position, int64_t V);

#endif
