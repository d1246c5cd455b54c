#include "backend/c/portable.h"

#include <string.h>

#include "base/dtype.h"

static uint32_t bits_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static float float_of(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

float mmi_c_from_bf16(uint16_t bits)
{
    return float_of((uint32_t)bits << 16);
}

uint16_t mmi_c_to_bf16(float x)
{
    uint32_t bits = bits_of(x);
    if (x != x)
        return (uint16_t)(bits >> 16 | 0x40); /* quiet: cutting off the payload could leave an infinity */
    return (uint16_t)((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

/* A half is s eeeee mmmmmmmmmm with bias 15. Placed in a float's exponent and mantissa it is too small by 2^112, which
 * one multiplication puts right, denormals included; only infinities and NaNs need their exponent filled. */
float mmi_c_from_f16(uint16_t bits)
{
    uint32_t sign = (uint32_t)(bits & 0x8000) << 16;
    uint32_t magnitude = (uint32_t)(bits & 0x7FFF) << 13;
    if (magnitude >= 0x7C00u << 13) {
        uint32_t quiet = (bits & 0x3FF) ? 0x400000 : 0;
        return float_of(sign | 0x7F800000 | quiet | magnitude);
    }
    return float_of(sign | bits_of(float_of(magnitude) * 0x1p112f));
}

uint16_t mmi_c_to_f16(float x)
{
    uint32_t bits = bits_of(x), sign = bits >> 16 & 0x8000, magnitude = bits & 0x7FFFFFFF;
    if (magnitude > 0x7F800000)
        return (uint16_t)(sign | 0x7E00 | (magnitude >> 13 & 0x3FF));
    if (magnitude >= bits_of(65520.0f)) /* half way from the largest half to 2^16 */
        return (uint16_t)(sign | 0x7C00);
    if (magnitude < bits_of(0x1p-14f)) { /* denormal: adding 1/2 rounds at 2^-24, the smallest half */
        float shifted = float_of(magnitude) + 0.5f;
        return (uint16_t)(sign | (bits_of(shifted) - bits_of(0.5f)));
    }
    uint32_t rounded = magnitude + 0xFFF + (magnitude >> 13 & 1);
    return (uint16_t)(sign | ((rounded >> 13) - (112 << 10)));
}

float mmi_c_round(float x, int32_t dtype)
{
    if (dtype == MM_BF16)
        return mmi_c_from_bf16(mmi_c_to_bf16(x));
    return dtype == MM_F16 ? mmi_c_from_f16(mmi_c_to_f16(x)) : x;
}

void mmi_c_widen(float *y, const void *x, int32_t dtype, int64_t n)
{
    if (dtype == MM_F32) {
        if (n > 0)
            memcpy(y, x, (size_t)n * sizeof *y);
        return;
    }
    if (mmi_block_bytes(dtype) > 0) {
        mmi_c_widen_blocks(y, x, dtype, n);
        return;
    }
    const unsigned char *from = x;
    for (int64_t i = 0; i < n; i++) {
        uint16_t bits;
        memcpy(&bits, from + 2 * i, sizeof bits);
        y[i] = dtype == MM_BF16 ? mmi_c_from_bf16(bits) : mmi_c_from_f16(bits);
    }
}

void mmi_c_narrow(void *y, const float *x, int32_t dtype, int64_t n)
{
    if (dtype == MM_F32) {
        if (n > 0)
            memcpy(y, x, (size_t)n * sizeof *x);
        return;
    }
    if (mmi_block_bytes(dtype) > 0) {
        mmi_c_narrow_blocks(y, x, dtype, n);
        return;
    }
    unsigned char *to = y;
    for (int64_t i = 0; i < n; i++) {
        uint16_t bits = dtype == MM_BF16 ? mmi_c_to_bf16(x[i]) : mmi_c_to_f16(x[i]);
        memcpy(to + 2 * i, &bits, sizeof bits);
    }
}
