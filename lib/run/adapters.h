/* The adapters that a context runs with. */
#ifndef MMI_RUN_ADAPTERS_H
#define MMI_RUN_ADAPTERS_H

#include "model/adapter.h"
#include "nn/lora.h"
#include "run/plan.h"

/* All of it in one block, whose size follows from the adapters alone; count 0: none. */
typedef struct mmi_adapters {
    int64_t count;
    mm_adapter **held; /* [count] */
    mmi_loras *beside; /* [the layout's tensors] */
    mmi_lora *entries;
    mmi_lora_room room;
    void *block;
    size_t size;
} mmi_adapters;

/* Bytes of the block for adapters of these costs. SIZE_MAX: beyond this machine. */
size_t mmi_adapters_bytes(const mmi_arch *arch, const mmi_layout *layout, const mmi_limits *limits,
                          const mmi_adapter_cost *costs, int64_t count);

/* Drop them, and the block. */
void mmi_adapters_close(mmi_adapters *a);

/* The adapters beside tensor `index`, or NULL. */
const mmi_loras *mmi_adapters_beside(const mmi_adapters *a, int64_t index);

/* Whether `adapter` is among them. */
bool mmi_adapters_have(const mmi_adapters *a, const mm_adapter *adapter);

#endif
