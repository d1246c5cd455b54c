/* What an optimizer holds, and so what it costs: here, below both lib/train, which makes it, and lib/run, which
 * estimates it. */
#ifndef MMI_MODEL_OPTIMIZER_LAYOUT_H
#define MMI_MODEL_OPTIMIZER_LAYOUT_H

#include <minimind/optim.h>

#include "model/trained.h"

/* Where it holds what. First moments (Muon: momentum) of all that is trained lie in one arena; behind it, in the same
 * order, the second moments of those tensors that have one: of Muon only what AdamW updates, which lies in front. */
typedef struct mmi_moments {
    size_t first, second; /* bytes of the two arenas */
    int64_t elements;     /* of Muon's largest matrix; 0: AdamW alone */
    int64_t side;         /* the longest of its matrices' smaller sides */
} mmi_moments;

struct mm_optimizer {
    mm_model *model;     /* held */
    mm_adapter *adapter; /* held: what it updates; NULL: the model */
    mm_adamw_options options;
    double momentum; /* Muon's */
    int64_t steps;   /* made so far */
    mmi_moments at;
    float *moments;   /* both arenas */
    float *work;      /* Muon's; NULL: AdamW alone */
    size_t offsets[]; /* [tensors] bytes into the first arena, or MMI_FROZEN */
};

/* `offsets` [count] or NULL. */
mmi_moments mmi_adamw_place(const mmi_trained *t, size_t *offsets);
mmi_moments mmi_muon_place(const mmi_trained *t, size_t *offsets);

/* The allocations of an optimizer for so many tensors, frozen ones included: all but the struct above (SIZE_MAX: more
 * than can be addressed), and that. */
void mmi_optimizer_bytes(int64_t tensors, const mmi_moments *at, size_t *state, size_t *handle);

#endif
