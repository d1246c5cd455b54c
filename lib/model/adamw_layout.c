#include "model/adamw_layout.h"

void mmi_adamw_bytes(const mmi_layout *layout, size_t *state, size_t *handle)
{
    *state = 2 * mmi_layout_place(layout, sizeof(float), NULL);
    *handle = sizeof(struct mm_optimizer) + (size_t)layout->count * sizeof(size_t);
}
