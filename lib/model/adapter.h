/* Adapters from the inside: which matrices have one, and what it takes. */
#ifndef MMI_MODEL_ADAPTER_H
#define MMI_MODEL_ADAPTER_H

#include <stdatomic.h>

#include <minimind/adapter.h>

#include "base/status.h"
#include "model/layout.h"
#include "model/names.h"

/* Tensor 2i is A of the i-th adapted matrix, 2i + 1 its B. */
struct mm_adapter {
    atomic_size_t holds;
    mm_model *model;            /* held */
    const mmi_layout *layout;   /* the model's */
    mm_adapter_options options; /* `targets` in this block */
    float scale;                /* alpha / rank */
    int64_t pairs;
    int64_t *bases;  /* [pairs] the adapted matrices, by their index in the layout */
    size_t *offsets; /* [2 pairs] bytes into `arena` */
    float *arena;    /* [arena_size] bytes; every tensor at a multiple of 64 bytes */
    size_t arena_size;
};

#define MMI_MOST_RANK 65536
#define MMI_MOST_ADAPTERS 64 /* at once */

/* Files of a directory as PEFT has it, and how names of tensors begin there. */
#define MMI_ADAPTER_CONFIG "adapter_config.json"
#define MMI_ADAPTER_WEIGHTS "adapter_model.safetensors"
#define MMI_ADAPTER_PREFIX "base_model.model."

/* The first of the two files alone. */
mm_status mmi_adapter_write_config(const mm_adapter *adapter, const char *path);

/* Room for a tensor's name, the prefix of a file included. */
#define MMI_ADAPTER_NAME_SIZE (MMI_NAME_SIZE + 40)

/* What an adapter with these options takes for a layout, and the sizes that a context with it needs. */
typedef struct mmi_adapter_cost {
    int64_t pairs, rank;
    int64_t widest;      /* inputs of the widest matrix */
    const char *targets; /* the options' own, or the default */
    double dropout;
    size_t handle, arena;
} mmi_adapter_cost;

/* Checks the options; MM_ERR_ARG names what is wrong. Allocates nothing. */
mm_status mmi_adapter_measure(mmi_adapter_cost *out, const mmi_layout *layout, const mm_adapter_options *options);
mmi_adapter_cost mmi_adapter_cost_of(const mm_adapter *adapter);

/* An adapter that knows its tensors' shapes; and the arena for them, zeroed. */
mm_status mmi_adapter_new(mm_adapter **out, mm_model *model, const mm_adapter_options *options);
mm_status mmi_adapter_make_room(mm_adapter *adapter);

/* "minimind" or "all-linear", which alone are a rule and no pattern. */
bool mmi_adapter_is_rule(const char *targets);

/* Whether an adapter with these targets has a pair beside tensor `index`. */
bool mmi_adapter_targets(const mmi_layout *layout, int64_t index, const char *targets);

/* The name of the module that tensor `index` of a layout is the weight of: the tensor's own without ".weight". */
void mmi_adapter_module(const mmi_layout *layout, int64_t index, char name[MMI_NAME_SIZE]);

/* Tensor `index`: shape, elements; role, layer and expert are those of its matrix. */
void mmi_adapter_shape(const mm_adapter *adapter, int64_t index, mmi_tensor *out);
void mmi_adapter_tensor_name(const mm_adapter *adapter, int64_t index, char *name, size_t size);
float *mmi_adapter_room(const mm_adapter *adapter, int64_t index);

/* Which pair stands beside tensor `base` of the layout; -1: none. */
int64_t mmi_adapter_pair(const mm_adapter *adapter, int64_t base);

/* Whether `model` may run with these, as mm_context_set_adapters() takes them: MM_ERR_ARG. `function` is for the
 * message. */
mm_status mmi_adapters_check(const char *function, const mm_model *model, mm_adapter *const *adapters,
                             const float *weights, int32_t count);

mm_adapter *mmi_adapter_hold(mm_adapter *adapter);

#endif
