#include "model/adamw_layout.h"

void mmi_adamw_bytes(int64_t tensors, size_t arena, size_t *state, size_t *handle)
{
    *state = 2 * arena;
    *handle = sizeof(struct mm_optimizer) + (size_t)tensors * sizeof(size_t);
}
