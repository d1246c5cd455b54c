#include "backend/c/portable.h"
#include "base/random.h"

void mmi_c_dropout(float *y, int64_t n, float p, uint64_t seed, uint64_t stream, uint64_t first)
{
    const uint32_t limit = mmi_dropout_limit(p);
    const float scale = 1 / (1 - p);
    uint32_t block[4];
    for (int64_t i = 0; i < n; i++) {
        uint64_t index = first + (uint64_t)i;
        if (i == 0 || index % 4 == 0)
            mmi_random_block(block, seed, stream, index / 4);
        y[i] = block[index % 4] < limit ? 0 : y[i] * scale;
    }
}
