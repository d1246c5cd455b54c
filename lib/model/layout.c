#include "model/layout.h"

#include <stdio.h>

#include "base/dtype.h"
#include "base/memory.h"

/* Where a role repeats. */
typedef enum scope { ONCE, LAYER, EXPERT, SHARED } scope;

/* A role's row: its place in a name, and what it is. */
typedef struct row {
    scope scope;
    int32_t module;
    mmi_init init;
    const char *name; /* behind "model.layers.N." for a layer's; behind "experts.E." for an expert's */
} row;

static const row rows[MMI_ROLES] = {
    [MMI_EMBED] = { ONCE, MM_MODULE_EMBEDDING, MMI_INIT_NORMAL, "model.embed_tokens.weight" },
    [MMI_INPUT_NORM] = { LAYER, MM_MODULE_LAYER_NORMS, MMI_INIT_ONE, "input_layernorm.weight" },
    [MMI_INPUT_NORM_BIAS] = { LAYER, MM_MODULE_LAYER_NORMS, MMI_INIT_ZERO, "input_layernorm.bias" },
    [MMI_Q] = { LAYER, MM_MODULE_ATTENTION, MMI_INIT_NORMAL, "self_attn.q_proj.weight" },
    [MMI_Q_BIAS] = { LAYER, MM_MODULE_ATTENTION, MMI_INIT_ZERO, "self_attn.q_proj.bias" },
    [MMI_K] = { LAYER, MM_MODULE_ATTENTION, MMI_INIT_NORMAL, "self_attn.k_proj.weight" },
    [MMI_K_BIAS] = { LAYER, MM_MODULE_ATTENTION, MMI_INIT_ZERO, "self_attn.k_proj.bias" },
    [MMI_V] = { LAYER, MM_MODULE_ATTENTION, MMI_INIT_NORMAL, "self_attn.v_proj.weight" },
    [MMI_V_BIAS] = { LAYER, MM_MODULE_ATTENTION, MMI_INIT_ZERO, "self_attn.v_proj.bias" },
    [MMI_O] = { LAYER, MM_MODULE_ATTENTION, MMI_INIT_NORMAL, "self_attn.o_proj.weight" },
    [MMI_O_BIAS] = { LAYER, MM_MODULE_ATTENTION, MMI_INIT_ZERO, "self_attn.o_proj.bias" },
    [MMI_Q_NORM] = { LAYER, MM_MODULE_ATTENTION, MMI_INIT_ONE, "self_attn.q_norm.weight" },
    [MMI_K_NORM] = { LAYER, MM_MODULE_ATTENTION, MMI_INIT_ONE, "self_attn.k_norm.weight" },
    [MMI_POST_NORM] = { LAYER, MM_MODULE_LAYER_NORMS, MMI_INIT_ONE, "post_attention_layernorm.weight" },
    [MMI_POST_NORM_BIAS] = { LAYER, MM_MODULE_LAYER_NORMS, MMI_INIT_ZERO, "post_attention_layernorm.bias" },
    [MMI_GATE] = { LAYER, MM_MODULE_MLP_DENSE, MMI_INIT_NORMAL, "mlp.gate_proj.weight" },
    [MMI_GATE_BIAS] = { LAYER, MM_MODULE_MLP_DENSE, MMI_INIT_ZERO, "mlp.gate_proj.bias" },
    [MMI_UP] = { LAYER, MM_MODULE_MLP_DENSE, MMI_INIT_NORMAL, "mlp.up_proj.weight" },
    [MMI_UP_BIAS] = { LAYER, MM_MODULE_MLP_DENSE, MMI_INIT_ZERO, "mlp.up_proj.bias" },
    [MMI_DOWN] = { LAYER, MM_MODULE_MLP_DENSE, MMI_INIT_NORMAL, "mlp.down_proj.weight" },
    [MMI_DOWN_BIAS] = { LAYER, MM_MODULE_MLP_DENSE, MMI_INIT_ZERO, "mlp.down_proj.bias" },
    [MMI_ROUTER] = { LAYER, MM_MODULE_MOE_ROUTER, MMI_INIT_NORMAL, "mlp.gate.weight" },
    [MMI_EXPERT_GATE] = { EXPERT, MM_MODULE_MOE_EXPERTS, MMI_INIT_NORMAL, "gate_proj.weight" },
    [MMI_EXPERT_UP] = { EXPERT, MM_MODULE_MOE_EXPERTS, MMI_INIT_NORMAL, "up_proj.weight" },
    [MMI_EXPERT_DOWN] = { EXPERT, MM_MODULE_MOE_EXPERTS, MMI_INIT_NORMAL, "down_proj.weight" },
    [MMI_SHARED_GATE] = { SHARED, MM_MODULE_MOE_SHARED_EXPERTS, MMI_INIT_NORMAL, "gate_proj.weight" },
    [MMI_SHARED_UP] = { SHARED, MM_MODULE_MOE_SHARED_EXPERTS, MMI_INIT_NORMAL, "up_proj.weight" },
    [MMI_SHARED_DOWN] = { SHARED, MM_MODULE_MOE_SHARED_EXPERTS, MMI_INIT_NORMAL, "down_proj.weight" },
    [MMI_SHARED_WEIGHT] = { LAYER, MM_MODULE_MOE_SCALARS, MMI_INIT_ONE, "mlp.shared_weight" },
    [MMI_ROUTED_WEIGHT] = { LAYER, MM_MODULE_MOE_SCALARS, MMI_INIT_ONE, "mlp.routed_weight" },
    [MMI_FINAL_NORM] = { ONCE, MM_MODULE_FINAL_NORM, MMI_INIT_ONE, "model.norm.weight" },
    [MMI_FINAL_NORM_BIAS] = { ONCE, MM_MODULE_FINAL_NORM, MMI_INIT_ZERO, "model.norm.bias" },
    [MMI_HEAD] = { ONCE, MM_MODULE_LM_HEAD, MMI_INIT_NORMAL, "lm_head.weight" },
};

static bool has_role(const mmi_arch *a, mmi_role role)
{
    switch (role) {
    case MMI_INPUT_NORM_BIAS:
    case MMI_POST_NORM_BIAS:
    case MMI_FINAL_NORM_BIAS:
        return a->norm == MMI_LAYERNORM;
    case MMI_Q_BIAS:
    case MMI_K_BIAS:
    case MMI_V_BIAS:
    case MMI_O_BIAS:
        return a->attention_bias;
    case MMI_Q_NORM:
    case MMI_K_NORM:
        return a->qk_norm;
    case MMI_GATE:
        return !a->moe && a->gated;
    case MMI_GATE_BIAS:
        return !a->moe && a->gated && a->mlp_bias;
    case MMI_UP:
    case MMI_DOWN:
        return !a->moe;
    case MMI_UP_BIAS:
    case MMI_DOWN_BIAS:
        return !a->moe && a->mlp_bias;
    case MMI_ROUTER:
    case MMI_EXPERT_UP:
    case MMI_EXPERT_DOWN:
        return a->moe;
    case MMI_EXPERT_GATE:
        return a->moe && a->expert_gated;
    case MMI_SHARED_UP:
    case MMI_SHARED_DOWN:
        return a->moe && a->shared_experts > 0;
    case MMI_SHARED_GATE:
        return a->moe && a->shared_experts > 0 && a->expert_gated;
    case MMI_SHARED_WEIGHT:
    case MMI_ROUTED_WEIGHT:
        return a->moe && a->family == MMI_MINIGPT && a->shared_experts > 0;
    case MMI_HEAD:
        return !a->tied;
    default:
        return true;
    }
}

/* [rows, cols]; cols 0 makes a vector of `rows`. */
static void shape_of(const mmi_arch *a, mmi_role role, int64_t *rows_out, int64_t *cols)
{
    int64_t n = 0, m = 0;
    switch (role) {
    case MMI_EMBED:
    case MMI_HEAD:
        n = a->V, m = a->C;
        break;
    case MMI_Q:
        n = a->H * a->D, m = a->C;
        break;
    case MMI_Q_BIAS:
        n = a->H * a->D;
        break;
    case MMI_K:
    case MMI_V:
        n = a->G * a->D, m = a->C;
        break;
    case MMI_K_BIAS:
    case MMI_V_BIAS:
        n = a->G * a->D;
        break;
    case MMI_O:
        n = a->C, m = a->H * a->D;
        break;
    case MMI_Q_NORM:
    case MMI_K_NORM:
        n = a->D;
        break;
    case MMI_GATE:
    case MMI_UP:
        n = a->F, m = a->C;
        break;
    case MMI_GATE_BIAS:
    case MMI_UP_BIAS:
        n = a->F;
        break;
    case MMI_DOWN:
        n = a->C, m = a->F;
        break;
    case MMI_ROUTER:
        n = a->E, m = a->C;
        break;
    case MMI_EXPERT_GATE:
    case MMI_EXPERT_UP:
    case MMI_SHARED_GATE:
    case MMI_SHARED_UP:
        n = a->expert_F, m = a->C;
        break;
    case MMI_EXPERT_DOWN:
    case MMI_SHARED_DOWN:
        n = a->C, m = a->expert_F;
        break;
    case MMI_SHARED_WEIGHT:
    case MMI_ROUTED_WEIGHT:
        n = 1;
        break;
    default: /* norms and their biases, and the biases of o and down */
        n = a->C;
        break;
    }
    *rows_out = n;
    *cols = m;
}

void mmi_layout_create(mmi_layout *layout, const mmi_arch *arch)
{
    int64_t next = 0, in_layer = 0;
    layout->arch = arch;
    layout->expert_stride = arch->moe ? (arch->expert_gated ? 3 : 2) : 0;
    layout->layer_first = 1;
    for (int role = 0; role < MMI_ROLES; role++) {
        layout->slot[role] = -1;
        if (rows[role].scope == ONCE || !has_role(arch, (mmi_role)role))
            continue;
        layout->slot[role] = in_layer++;
        /* Behind the last role of the first expert come the other experts. */
        if (role == MMI_EXPERT_DOWN)
            in_layer += (arch->E - 1) * layout->expert_stride;
        if (role == MMI_SHARED_DOWN)
            in_layer += (arch->shared_experts - 1) * layout->expert_stride;
    }
    layout->layer_stride = in_layer;
    for (int role = 0; role < MMI_ROLES; role++) {
        if (rows[role].scope != ONCE || !has_role(arch, (mmi_role)role))
            continue;
        layout->slot[role] = next++;
        if (role == MMI_EMBED)
            next += arch->L * in_layer;
    }
    layout->count = next;
}

int64_t mmi_layout_index(const mmi_layout *layout, mmi_role role, int64_t layer, int64_t expert)
{
    int64_t slot = layout->slot[role];
    if (slot < 0 || rows[role].scope == ONCE)
        return slot;
    if (rows[role].scope != LAYER)
        slot += expert * layout->expert_stride;
    return layout->layer_first + layer * layout->layer_stride + slot;
}

bool mmi_layout_is_projection(const mmi_tensor *tensor)
{
    return tensor->rank == 2 && tensor->layer >= 0 && tensor->role != MMI_ROUTER;
}

/* How many tensors of a role one layer has, or the model for those outside layers. */
static int64_t repeats(const mmi_layout *layout, mmi_role role)
{
    if (layout->slot[role] < 0)
        return 0;
    if (rows[role].scope == EXPERT)
        return layout->arch->E;
    return rows[role].scope == SHARED ? layout->arch->shared_experts : 1;
}

int64_t mmi_layout_times(const mmi_layout *layout, mmi_role role)
{
    return repeats(layout, role) * (rows[role].scope == ONCE ? 1 : layout->arch->L);
}

/* The role at a place in a layer, and the expert. */
static mmi_role role_in_layer(const mmi_layout *layout, int64_t place, int64_t *expert)
{
    for (int role = 0; role < MMI_ROLES; role++) {
        int64_t first = layout->slot[role];
        if (first < 0 || rows[role].scope == ONCE || place < first)
            continue;
        if (rows[role].scope == LAYER) {
            if (place != first)
                continue;
            *expert = -1;
            return (mmi_role)role;
        }
        int64_t away = place - first;
        if (away % layout->expert_stride == 0 && away / layout->expert_stride < repeats(layout, (mmi_role)role)) {
            *expert = away / layout->expert_stride;
            return (mmi_role)role;
        }
    }
    return MMI_ROLES;
}

void mmi_layout_describe(const mmi_layout *layout, mmi_role role, mmi_tensor *out)
{
    out->role = role;
    out->layer = out->expert = -1;
    out->module = rows[role].module;
    out->init = rows[role].init;
    shape_of(layout->arch, role, &out->shape[0], &out->shape[1]);
    out->rank = out->shape[1] > 0 ? 2 : 1;
    if (out->rank == 1)
        out->shape[1] = 1;
    out->elements = out->shape[0] * out->shape[1];
}

void mmi_layout_tensor(const mmi_layout *layout, int64_t index, mmi_tensor *out)
{
    int64_t end = layout->layer_first + layout->arch->L * layout->layer_stride;
    int64_t layer = -1, expert = -1;
    mmi_role role = MMI_EMBED;
    if (index >= end) {
        for (role = MMI_FINAL_NORM; layout->slot[role] != index; role++) { }
    } else if (index >= layout->layer_first) {
        layer = (index - layout->layer_first) / layout->layer_stride;
        role = role_in_layer(layout, (index - layout->layer_first) % layout->layer_stride, &expert);
    }
    mmi_layout_describe(layout, role, out);
    out->layer = layer;
    out->expert = expert;
}

int32_t mmi_tensor_dtype(const mmi_tensor *tensor, int32_t dtype)
{
    bool stays = tensor->rank == 1 || tensor->role == MMI_ROUTER;
    return mmi_block_bytes(dtype) > 0 && stays ? MM_F32 : dtype;
}

void mmi_layout_name(const mmi_layout *layout, int64_t index, char *name, size_t size)
{
    mmi_tensor tensor;
    mmi_layout_tensor(layout, index, &tensor);
    const row *r = &rows[tensor.role];
    long long layer = tensor.layer, expert = tensor.expert;
    if (r->scope == ONCE)
        snprintf(name, size, "%s", r->name);
    else if (r->scope == LAYER)
        snprintf(name, size, "model.layers.%lld.%s", layer, r->name);
    else
        snprintf(name, size, "model.layers.%lld.mlp.%s.%lld.%s", layer,
                 r->scope == SHARED ? "shared_experts" : "experts", expert, r->name);
}

mmi_role mmi_layout_overflow(const mmi_layout *layout, int64_t most)
{
    int64_t total = 0;
    for (int role = 0; role < MMI_ROLES; role++) {
        int64_t times = mmi_layout_times(layout, (mmi_role)role);
        if (times == 0)
            continue;
        mmi_tensor tensor;
        mmi_layout_describe(layout, (mmi_role)role, &tensor);
        if (tensor.elements > most - MMI_ALIGN || times > (most - total) / (tensor.elements + MMI_ALIGN))
            return (mmi_role)role;
        total += times * (tensor.elements + MMI_ALIGN);
    }
    return MMI_ROLES;
}

size_t mmi_layout_place(const mmi_layout *layout, size_t size, size_t *offsets)
{
    size_t bytes = 0;
    mmi_tensor tensor;
    for (int64_t i = 0; offsets && i < layout->count; i++) {
        mmi_layout_tensor(layout, i, &tensor);
        offsets[i] = bytes;
        bytes += mmi_align_up((size_t)tensor.elements * size);
    }
    for (int role = 0; !offsets && role < MMI_ROLES; role++) {
        mmi_layout_describe(layout, (mmi_role)role, &tensor);
        bytes += (size_t)mmi_layout_times(layout, (mmi_role)role) * mmi_align_up((size_t)tensor.elements * size);
    }
    return bytes;
}
