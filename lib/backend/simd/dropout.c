/* Dropout: random blocks as base/random.c makes them, one in each lane. */
#include <string.h>

#include "backend/c/portable.h"
#include "backend/simd/table.h"
#include "backend/simd/vw.h"
#include "base/random.h"

#define BLOCK_WORDS 4
#define WORDS (BLOCK_WORDS * WIDE) /* of WIDE blocks */

/* Blocks `index` and on. What stands in the upper halves of lanes is never read. */
static ALWAYS_INLINE void random_words(uint32_t words[WORDS], uint64_t seed, uint64_t stream, uint64_t index)
{
    const vw multiply[2] = { vw_set(MMI_PHILOX_MULTIPLY_0), vw_set(MMI_PHILOX_MULTIPLY_1) };
    uint32_t key[2] = { (uint32_t)seed, (uint32_t)(seed >> 32) };
    vw x0 = vw_count(index), x1 = vw_high(x0), x2 = vw_set(stream), x3 = vw_set(stream >> 32);
    UNROLL
    for (int round = 0; round < MMI_PHILOX_ROUNDS; round++) {
        const vw p0 = vw_mul(multiply[0], x0), p1 = vw_mul(multiply[1], x2);
        x0 = vw_xor(vw_xor(vw_high(p1), x1), vw_set(key[0]));
        x1 = p1;
        x2 = vw_xor(vw_xor(vw_high(p0), x3), vw_set(key[1]));
        x3 = p0;
        key[0] += MMI_PHILOX_KEY_0;
        key[1] += MMI_PHILOX_KEY_1;
    }
    vw_put(words, x0, x1, x2, x3);
}

/* By bits: a compiler makes vectors of this, and branches of a choice between floats. */
static ALWAYS_INLINE void drop(float y[WORDS], const uint32_t words[WORDS], uint32_t limit, float scale)
{
    float kept[WORDS];
    uint32_t bits[WORDS];
    for (int i = 0; i < WORDS; i++)
        kept[i] = y[i] * scale;
    memcpy(bits, kept, sizeof bits);
    for (int i = 0; i < WORDS; i++)
        bits[i] &= words[i] < limit ? 0 : UINT32_MAX;
    memcpy(y, bits, sizeof bits);
}

void SIMD(dropout)(float *y, int64_t n, float p, uint64_t seed, uint64_t stream, uint64_t first)
{
    const uint32_t limit = mmi_dropout_limit(p);
    const float scale = 1 / (1 - p);
    int64_t i = (int64_t)(-first % BLOCK_WORDS); /* to where a block begins */
    i = i < n ? i : n;
    mmi_c_dropout(y, i, p, seed, stream, first);
    for (; i + WORDS <= n; i += WORDS) {
        uint32_t words[WORDS];
        random_words(words, seed, stream, (first + (uint64_t)i) / BLOCK_WORDS);
        drop(y + i, words, limit, scale);
    }
    mmi_c_dropout(y + i, n - i, p, seed, stream, first + (uint64_t)i);
}
