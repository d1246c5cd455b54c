/* A model as the layers see it. */
#ifndef MMI_MODEL_MODEL_H
#define MMI_MODEL_MODEL_H

#include <minimind/model.h>

#include "model/arch.h"
#include "model/layout.h"

/* One tensor's weights. */
typedef struct mmi_weight {
    const void *data; /* row-major, rows of `cols` elements without gaps; in blocks: strips (backend/strips.h) */
    int32_t dtype;
    int64_t rows, cols; /* a vector is one row */
} mmi_weight;

/* Resolved once, at creation. */
const mmi_arch *mmi_model_arch(const mm_model *model);
const mmi_layout *mmi_model_layout(const mm_model *model);

/* Tensor `index`. For index -1 (a role this config lacks) data is NULL. */
mmi_weight mmi_model_weight(const mm_model *model, int64_t index);

/* For the optimizer: float32 memory to write, or NULL when the model can't be trained (mapped, or not float32). */
float *mmi_model_trainable(mm_model *model, int64_t index);
bool mmi_model_can_train(const mm_model *model);

/* Goes up with every mm_model_written(): caches of derived weights compare it. */
uint64_t mmi_model_version(const mm_model *model);

/* Handles that build on a model hold it. mm_model_free() drops the owner's hold. Thread-safe. */
mm_model *mmi_model_hold(mm_model *model);

/* What a model of `dtype` takes: the weights, and the bookkeeping beside them (handle, config, offsets).
 * `weights_mapped`: the weights cost nothing (a mapping of one file; shards may add to the handle). */
typedef struct mmi_model_cost {
    size_t weights, handle;
} mmi_model_cost;
mm_status mmi_model_estimate(const mm_config *config, int32_t dtype, bool weights_mapped, mmi_model_cost *out);

#endif
