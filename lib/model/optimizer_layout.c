#include "model/optimizer_layout.h"

#include "base/memory.h"

mmi_moments mmi_adamw_place(const mmi_trained *t, size_t *offsets)
{
    size_t arena = mmi_trained_place(t, offsets);
    return (mmi_moments){ .first = arena, .second = arena };
}

mmi_moments mmi_muon_place(const mmi_trained *t, size_t *offsets)
{
    mmi_moments at = { 0 };
    for (int matrices = 0; matrices < 2; matrices++) {
        for (int64_t i = 0; i < mmi_trained_count(t); i++) {
            mmi_tensor tensor;
            mmi_trained_tensor(t, i, &tensor);
            bool learns = mmi_trained_learns(t, i), takes = mmi_layout_is_projection(&tensor);
            if (offsets && !learns)
                offsets[i] = MMI_FROZEN;
            if (!learns || takes != (matrices == 1))
                continue;
            if (offsets)
                offsets[i] = at.first;
            at.first += mmi_align_up((size_t)tensor.elements * sizeof(float));
            int64_t side = tensor.shape[0] < tensor.shape[1] ? tensor.shape[0] : tensor.shape[1];
            if (takes && tensor.elements > at.elements)
                at.elements = tensor.elements;
            if (takes && side > at.side)
                at.side = side;
        }
        if (matrices == 0)
            at.second = at.first;
    }
    return at;
}

/* Floats that Muon works with: two of its largest matrix, and two squares of the longest smaller side. */
static int64_t muon_work(const mmi_moments *at)
{
    return 2 * at->elements + 2 * at->side * at->side;
}

void mmi_optimizer_bytes(int64_t tensors, const mmi_moments *at, size_t *state, size_t *handle)
{
    mmi_carve carve = { 0 };
    mmi_carve_take(&carve, (int64_t)at->first, 1);
    mmi_carve_take(&carve, (int64_t)at->second, 1);
    if (at->elements > 0)
        mmi_carve_take(&carve, muon_work(at), sizeof(float));
    *state = carve.overflow ? SIZE_MAX : carve.used;
    *handle = sizeof(struct mm_optimizer) + (size_t)tensors * sizeof(size_t);
}
