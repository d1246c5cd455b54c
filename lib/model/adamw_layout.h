/* What an AdamW optimizer holds for a model, and so what it costs: here, below both lib/train, which makes it, and lib/run,
 * which estimates it. */
#ifndef MMI_MODEL_ADAMW_LAYOUT_H
#define MMI_MODEL_ADAMW_LAYOUT_H

#include <minimind/optim.h>

#include "model/layout.h"

struct mm_optimizer {
    mm_model *model; /* held */
    mm_adamw_options options;
    int64_t steps;   /* made so far */
    float *moments;  /* two arenas of the parameters' layout, one after the other: m, then v */
    size_t arena;    /* bytes of one of them */
    size_t offsets[]; /* [tensors] bytes into an arena */
};

/* The two allocations of mm_adamw_create(): `state` bytes for the moments, `handle` bytes for the struct above. */
void mmi_adamw_bytes(const mmi_layout *layout, size_t *state, size_t *handle);

#endif
