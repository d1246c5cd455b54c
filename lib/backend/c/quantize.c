/* Numbers in blocks of 32 with one scale each, as GGUF lays them out. */
#include "backend/c/portable.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "backend/kernels.h"
#include "backend/strips.h"

static float scale_of(const unsigned char *block)
{
    uint16_t bits;
    memcpy(&bits, block, sizeof bits);
    return mmi_c_from_f16(bits);
}

static void put_scale(unsigned char *block, float scale)
{
    uint16_t bits = mmi_c_to_f16(scale);
    memcpy(block, &bits, sizeof bits);
}

/* A block's 32 whole numbers. */
static void unpack(int8_t *q, const unsigned char *block, int32_t dtype)
{
    const unsigned char *packed = block + 2;
    if (dtype == MM_Q8_0) {
        memcpy(q, packed, MMI_BLOCK);
        return;
    }
    for (int i = 0; i < MMI_BLOCK / 2; i++) {
        q[i] = (int8_t)((packed[i] & 15) - 8);
        q[i + MMI_BLOCK / 2] = (int8_t)((packed[i] >> 4) - 8);
    }
}

void mmi_c_widen_blocks(float *y, const void *x, int32_t dtype, int64_t n)
{
    const unsigned char *block = x;
    size_t size = mmi_block_bytes(dtype);
    for (int64_t b = 0; b < n / MMI_BLOCK; b++, block += size, y += MMI_BLOCK) {
        int8_t q[MMI_BLOCK];
        float scale = scale_of(block);
        unpack(q, block, dtype);
        for (int i = 0; i < MMI_BLOCK; i++)
            y[i] = (float)q[i] * scale;
    }
}

/* The loops over a block's numbers are written so that a compiler makes vectors of them: no branch leaves one early, but
 * where a number is looked for. */

/* The largest magnitude; NaN if a number is not finite. Of floats without their signs the bits are in order. */
static float magnitude(const float *x)
{
    int32_t bits[MMI_BLOCK], most = 0;
    float size;
    memcpy(bits, x, sizeof bits);
    for (int i = 0; i < MMI_BLOCK; i++) {
        int32_t one = bits[i] & INT32_MAX;
        most = one > most ? one : most;
    }
    memcpy(&size, &most, sizeof size);
    return size <= FLT_MAX ? size : NAN;
}

/* The first number of that magnitude; 0 and NaN as they are. */
static float extreme(const float *x)
{
    float most = magnitude(x);
    if (!(most > 0))
        return most;
    int first = 0;
    while (fabsf(x[first]) != most)
        first++;
    return x[first];
}

/* 1 / scale; 0, which makes all numbers 0, where that is not finite or the scale is NaN. */
static float inverse(float scale)
{
    return fabsf(scale) >= FLT_MIN ? 1.0f / scale : 0.0f;
}

/* As roundf(), halves away from 0, of a number that is far from what an int holds: what is cut off is exact. */
static inline int rounded(float x)
{
    int whole = (int)x;
    float rest = x - (float)whole;
    return whole + (rest >= 0.5f) - (rest <= -0.5f);
}

static void narrow_q8_0(unsigned char *block, const float *x)
{
    float scale = magnitude(x) / 127.0f, factor = inverse(scale);
    int8_t q[MMI_BLOCK] = { 0 };
    put_scale(block, scale);
    if (factor > 0)
        for (int i = 0; i < MMI_BLOCK; i++)
            q[i] = (int8_t)rounded(x[i] * factor);
    memcpy(block + 2, q, sizeof q);
}

static void narrow_q4_0(unsigned char *block, const float *x)
{
    float scale = extreme(x) / -8.0f, factor = inverse(scale);
    unsigned char q[MMI_BLOCK];
    put_scale(block, scale);
    memset(q, 8, sizeof q);
    if (factor != 0)
        for (int i = 0; i < MMI_BLOCK; i++) {
            int one = (int)(x[i] * factor + 8.5f); /* never negative: x * factor is -8 at least, but for rounding */
            q[i] = (unsigned char)(one < 15 ? one : 15);
        }
    for (int i = 0; i < MMI_BLOCK / 2; i++)
        block[2 + i] = (unsigned char)(q[i] | q[i + MMI_BLOCK / 2] << 4);
}

void mmi_c_narrow_blocks(void *y, const float *x, int32_t dtype, int64_t n)
{
    unsigned char *block = y;
    size_t size = mmi_block_bytes(dtype);
    for (int64_t b = 0; b < n / MMI_BLOCK; b++, block += size, x += MMI_BLOCK) {
        if (dtype == MM_Q8_0)
            narrow_q8_0(block, x);
        else
            narrow_q4_0(block, x);
    }
}

void mmi_c_quantize(void *row, int64_t K, const float *x, int64_t first, int64_t count)
{
    int8_t *numbers = row;
    float *scales = (float *)(void *)(numbers + K);
    int32_t *times_8 = (int32_t *)(void *)(scales + K / MMI_BLOCK), *times_128 = times_8 + K / MMI_BLOCK;
    numbers += first;
    for (int64_t b = first / MMI_BLOCK; b < (first + count) / MMI_BLOCK; b++, x += MMI_BLOCK, numbers += MMI_BLOCK) {
        scales[b] = magnitude(x) / 127.0f;
        float factor = inverse(scales[b]);
        int32_t total = 0;
        for (int i = 0; i < MMI_BLOCK; i++) {
            numbers[i] = factor > 0 ? (int8_t)rintf(x[i] * factor) : 0;
            total += numbers[i];
        }
        times_8[b] = -8 * total;
        times_128[b] = -128 * total;
    }
}

static int32_t dot_block(const int8_t *a, const int8_t *b)
{
    int32_t sum = 0;
    for (int i = 0; i < MMI_BLOCK; i++)
        sum += (int32_t)a[i] * b[i];
    return sum;
}

/* y [M] = row j of W against the rows of x, ldy apart. */
static void multiply_row(float *y, int64_t ldy, const int8_t *x, const void *w, int32_t dtype, int64_t M, int64_t j,
                         int64_t K)
{
    for (int64_t i = 0; i < M; i++)
        y[i * ldy] = 0;
    for (int64_t b = 0; b < K / MMI_BLOCK; b++) {
        unsigned char block[2 + MMI_BLOCK];
        int8_t q[MMI_BLOCK];
        mmi_strips_get(block, w, dtype, K, j, b, 1);
        float scale = scale_of(block);
        unpack(q, block, dtype);
        for (int64_t i = 0; i < M; i++) {
            const int8_t *numbers = x + i * mmi_quantized_row(K);
            const float *scales = (const float *)(const void *)(numbers + K);
            y[i * ldy] = fmaf(scale * scales[b], (float)dot_block(q, numbers + b * MMI_BLOCK), y[i * ldy]);
        }
    }
}

void mmi_c_gemm_blocks(float *y, int64_t ldy, const void *x, const void *w, int32_t dtype, int64_t M, int64_t N,
                       int64_t K)
{
    for (int64_t j = 0; j < N; j++)
        multiply_row(y + j, ldy, x, w, dtype, M, j, K);
}
