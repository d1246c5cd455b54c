/* The optimizer from the inside. */
#ifndef MMI_TRAIN_OPTIMIZER_H
#define MMI_TRAIN_OPTIMIZER_H

#include <minimind/optim.h>

#include "model/adamw_layout.h"
#include "model/safetensors.h"

/* MM_ERR_ARG for numbers that AdamW can't work with. */
mm_status mmi_adamw_check(const mm_adamw_options *options);

/* The two moments of tensor `index`. */
float *mmi_adamw_m(const mm_optimizer *optimizer, int64_t index);
float *mmi_adamw_v(const mm_optimizer *optimizer, int64_t index);

/* mm_optimizer_load() in its two halves: all checks, and then the copy, which can't fail. Close `file` after it. */
mm_status mmi_adamw_open(mmi_st_file *file, int64_t *steps, const mm_optimizer *optimizer, const char *path);
void mmi_adamw_take(mm_optimizer *optimizer, const mmi_st_file *file, int64_t steps);

#endif
