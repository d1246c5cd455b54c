/* What an AdamW optimizer holds, and so what it costs: here, below both lib/train, which makes it, and lib/run, which
 * estimates it. */
#ifndef MMI_MODEL_ADAMW_LAYOUT_H
#define MMI_MODEL_ADAMW_LAYOUT_H

#include <minimind/optim.h>

#include "model/trained.h"

struct mm_optimizer {
    mm_model *model;     /* held */
    mm_adapter *adapter; /* held: what it updates; NULL: the model */
    mm_adamw_options options;
    int64_t steps;    /* made so far */
    float *moments;   /* two arenas of what is trained, one after the other: m, then v */
    size_t arena;     /* bytes of one of them */
    size_t offsets[]; /* [tensors] bytes into an arena, or MMI_FROZEN */
};

/* Its two allocations for so many tensors (frozen ones included) whose arena takes so many bytes: `state` for the
 * moments, `handle` for the struct above. */
void mmi_adamw_bytes(int64_t tensors, size_t arena, size_t *state, size_t *handle);

#endif
