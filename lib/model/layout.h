/* The one list of tensors that a config yields. Counting, allocation, loading, saving, gradients and optimizer state all
 * walk it. Order: embedding; for each layer the same run of slots; final norm; head unless tied. */
#ifndef MMI_MODEL_LAYOUT_H
#define MMI_MODEL_LAYOUT_H

#include <minimind/count.h>

#include "model/arch.h"

/* What a tensor is. Those of a layer are slots, at the same distance from the layer's start in every layer. */
typedef enum mmi_role {
    MMI_EMBED,
    MMI_INPUT_NORM,
    MMI_INPUT_NORM_BIAS,
    MMI_Q,
    MMI_Q_BIAS,
    MMI_K,
    MMI_K_BIAS,
    MMI_V,
    MMI_V_BIAS,
    MMI_O,
    MMI_O_BIAS,
    MMI_Q_NORM,
    MMI_K_NORM,
    MMI_POST_NORM,
    MMI_POST_NORM_BIAS,
    MMI_GATE, /* the dense network's */
    MMI_GATE_BIAS,
    MMI_UP,
    MMI_UP_BIAS,
    MMI_DOWN,
    MMI_DOWN_BIAS,
    MMI_ROUTER,
    MMI_EXPERT_GATE, /* first of E; experts lie expert_stride slots apart */
    MMI_EXPERT_UP,
    MMI_EXPERT_DOWN,
    MMI_SHARED_GATE, /* first of shared_experts */
    MMI_SHARED_UP,
    MMI_SHARED_DOWN,
    MMI_SHARED_WEIGHT,
    MMI_ROUTED_WEIGHT,
    MMI_FINAL_NORM,
    MMI_FINAL_NORM_BIAS,
    MMI_HEAD,
    MMI_ROLES
} mmi_role;

typedef struct mmi_layout {
    const mmi_arch *arch;      /* borrowed */
    int64_t count;             /* tensors */
    int64_t layer_first;       /* index of layer 0's first tensor */
    int64_t layer_stride;      /* tensors per layer */
    int64_t expert_stride;     /* tensors per expert: 3 gated, 2 plain */
    int64_t slot[MMI_ROLES];   /* of a layer's role: distance from the layer's start; of others: index. -1: none */
} mmi_layout;

typedef enum mmi_init { MMI_INIT_NORMAL, MMI_INIT_ONE, MMI_INIT_ZERO } mmi_init;

/* One tensor. */
typedef struct mmi_tensor {
    mmi_role role;
    int64_t layer, expert;   /* -1: none */
    int32_t rank, module;    /* MM_MODULE_… */
    int64_t shape[2];        /* 1 beyond the rank */
    int64_t elements;
    mmi_init init;
} mmi_tensor;

void mmi_layout_create(mmi_layout *layout, const mmi_arch *arch);

/* Index of a role: in `layer` (ignored for roles outside layers), of `expert` (0 where there are none). -1: none. */
int64_t mmi_layout_index(const mmi_layout *layout, mmi_role role, int64_t layer, int64_t expert);

/* Tensor `index`, 0 ≤ index < count. */
void mmi_layout_tensor(const mmi_layout *layout, int64_t index, mmi_tensor *out);

/* What a tensor is in a model of `dtype`: of a quantized one vectors and the router, which are small and coarse roundings
 * of which show, stay float32. */
int32_t mmi_tensor_dtype(const mmi_tensor *tensor, int32_t dtype);

/* A matrix of a layer, and not its router: what an adapter can stand beside, and what Muon updates. */
bool mmi_layout_is_projection(const mmi_tensor *tensor);

/* How many tensors have this role in the whole model, and what they have in common (layer and expert stay -1). */
int64_t mmi_layout_times(const mmi_layout *layout, mmi_role role);
void mmi_layout_describe(const mmi_layout *layout, mmi_role role, mmi_tensor *out);

/* The first role with which the sum of all elements is above `most`; MMI_ROLES when all fit. */
mmi_role mmi_layout_overflow(const mmi_layout *layout, int64_t most);
/* What every resolved config stays below: sums of a few arenas in bytes can be counted in int64_t. */
#define MMI_MOST_COUNTED (INT64_MAX / 64)
/* What every model stays below, and what is estimated: as float32 they are one block of memory, and two such are below
 * SIZE_MAX. With 64 bits it is no less than MMI_MOST_COUNTED. */
#define MMI_MOST_HELD ((int64_t)(SIZE_MAX / 2 / sizeof(float)))

/* The name of tensor `index` into `name`. */
void mmi_layout_name(const mmi_layout *layout, int64_t index, char *name, size_t size);

/* Elements of all tensors, and where each begins when they lie one after another in a 64-byte aligned arena of `size`
 * byte elements: every tensor starts at a multiple of 64 bytes. Returns the arena's bytes. `offsets` [count] in bytes, or
 * NULL. */
size_t mmi_layout_place(const mmi_layout *layout, size_t size, size_t *offsets);

#endif
