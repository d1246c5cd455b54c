/* What is being trained: the tensors of a model, all or some, or those of an adapter. Gradients, an optimizer's state
 * and the files of both walk this one list. */
#ifndef MMI_MODEL_TRAINED_H
#define MMI_MODEL_TRAINED_H

#include "model/adapter.h"
#include "model/layout.h"

typedef struct mmi_trained {
    const mmi_layout *layout;  /* the model's */
    const mm_adapter *adapter; /* NULL: the model's own tensors */
    const char *patterns;      /* over the names of the model's tensors; NULL: all. Those it doesn't mean are frozen */
} mmi_trained;

/* The place of a tensor that has none. */
#define MMI_FROZEN SIZE_MAX

/* Tensors, frozen ones included. */
int64_t mmi_trained_count(const mmi_trained *t);

/* Tensor `index`, as mmi_layout_tensor() and mmi_layout_name() tell it; of an adapter's see model/adapter.h. */
void mmi_trained_tensor(const mmi_trained *t, int64_t index, mmi_tensor *out);
#define MMI_TRAINED_NAME_SIZE MMI_ADAPTER_NAME_SIZE
void mmi_trained_name(const mmi_trained *t, int64_t index, char name[MMI_TRAINED_NAME_SIZE]);

/* Whether tensor `index` is trained, not frozen. */
bool mmi_trained_learns(const mmi_trained *t, int64_t index);

/* Whether the model's own head is, the embedding's matrix where they are tied. */
bool mmi_trained_head(const mmi_trained *t);

/* MM_ERR_ARG: one of the patterns means no tensor. */
mm_status mmi_trained_check(const mmi_trained *t);

/* Where the trained tensors begin as float32, one behind the other, each at a multiple of 64 bytes; frozen ones are
 * MMI_FROZEN. Returns the arena's bytes. `offsets` [count] in bytes, or NULL. */
size_t mmi_trained_place(const mmi_trained *t, size_t *offsets);

/* The same tensors in the same order and shapes, frozen ones included. */
bool mmi_trained_alike(const mmi_trained *a, const mmi_trained *b);

#endif
