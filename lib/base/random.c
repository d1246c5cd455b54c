#include "base/random.h"

#include <math.h>

#define PI 3.14159265358979323846

void mmi_random_block(uint32_t out[4], uint64_t seed, uint64_t stream, uint64_t index)
{
    uint32_t x0 = (uint32_t)index, x1 = (uint32_t)(index >> 32);
    uint32_t x2 = (uint32_t)stream, x3 = (uint32_t)(stream >> 32);
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
    for (int round = 0; round < MMI_PHILOX_ROUNDS; round++) {
        uint64_t p0 = (uint64_t)MMI_PHILOX_MULTIPLY_0 * x0;
        uint64_t p1 = (uint64_t)MMI_PHILOX_MULTIPLY_1 * x2;
        x0 = (uint32_t)(p1 >> 32) ^ x1 ^ k0;
        x1 = (uint32_t)p1;
        x2 = (uint32_t)(p0 >> 32) ^ x3 ^ k1;
        x3 = (uint32_t)p0;
        k0 += MMI_PHILOX_KEY_0;
        k1 += MMI_PHILOX_KEY_1;
    }
    out[0] = x0;
    out[1] = x1;
    out[2] = x2;
    out[3] = x3;
}

static double to_unit(uint32_t high, uint32_t low)
{
    uint64_t bits = ((uint64_t)high << 32 | low) >> 11;
    return (double)bits * 0x1p-53;
}

double mmi_random_uniform(uint64_t seed, uint64_t stream, uint64_t index)
{
    uint32_t block[4];
    mmi_random_block(block, seed, stream, index);
    return to_unit(block[0], block[1]);
}

/* Two normal numbers from two words, by Box and Muller (1958). 32 bits reach to 6.7 deviations. */
static void normal_pair(float out[2], uint32_t a, uint32_t b)
{
    float radius = sqrtf(-2.0f * logf(((float)a + 0.5f) * 0x1p-32f));
    float angle = (float)(2.0 * PI * 0x1p-32) * (float)b;
    out[0] = radius * cosf(angle);
    out[1] = radius * sinf(angle);
}

void mmi_random_normal(float *out, int64_t n, float deviation, uint64_t seed, uint64_t stream, uint64_t first)
{
    for (int64_t i = 0; i < n;) {
        uint64_t number = first + (uint64_t)i;
        uint32_t block[4];
        float four[4];
        mmi_random_block(block, seed, stream, number / 4);
        normal_pair(four, block[0], block[1]);
        normal_pair(four + 2, block[2], block[3]);
        for (uint64_t place = number % 4; place < 4 && i < n; place++, i++)
            out[i] = deviation * four[place];
    }
}

static uint64_t feistel(uint64_t x, int half_bits, uint64_t seed, uint64_t stream)
{
    uint64_t mask = (UINT64_C(1) << half_bits) - 1;
    uint64_t left = x >> half_bits, right = x & mask;
    for (uint64_t round = 0; round < 4; round++) {
        uint32_t block[4];
        mmi_random_block(block, seed, stream, right << 2 | round);
        uint64_t next = left ^ (block[0] & mask);
        left = right;
        right = next;
    }
    return left << half_bits | right;
}

uint64_t mmi_random_permute(uint64_t index, uint64_t n, uint64_t seed, uint64_t stream)
{
    int half_bits = 1;
    while (half_bits < 31 && (UINT64_C(1) << (2 * half_bits)) < n)
        half_bits++;
    uint64_t x = index;
    do /* the network permutes [0, 4^half_bits); following the cycle back into [0, n) permutes that */
        x = feistel(x, half_bits, seed, stream);
    while (x >= n);
    return x;
}
