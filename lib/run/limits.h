/* How large a context is to be, and what it is to do: its options, checked once, before anything is planned. */
#ifndef MMI_RUN_LIMITS_H
#define MMI_RUN_LIMITS_H

#include <stdbool.h>
#include <stdint.h>

#include <minimind/context.h>

#include "backend/kernels.h"
#include "model/arch.h"

/* What room the weights need beside themselves. */
typedef struct mmi_weight_kinds {
    bool wide;   /* some are bf16 or f16: to widen matrices and vectors */
    bool blocks; /* some matrices are in blocks: to widen them, and to quantize what they meet */
} mmi_weight_kinds;

/* A context's options, checked and with every 0 filled in. */
typedef struct mmi_limits {
    int32_t mode, max_batch, max_length, max_context, outputs, threads;
    int32_t compute; /* MM_F32, MM_BF16, MM_F16 */
    const mmi_path *path;
    bool checkpointing;
    bool head_learns; /* gradients are held for the head's matrix */
    float router_noise;
    mmi_weight_kinds weights;
    mm_parallel_for_fn parallel_for; /* NULL: threads of its own */
    void *parallel_for_user;
} mmi_limits;

/* Checks `options` against the architecture; head_learns is still to be found out. */
mm_status mmi_limits_read(mmi_limits *out, const mmi_arch *arch, const mm_context_options *options,
                          mmi_weight_kinds weights);

#endif
