/* A single row of x against weights in blocks, one strip after the other as they lie in memory, asking for what comes
 * next. W is read once, so a block may take no more instructions than its bytes take to come: a strip's blocks are gone
 * through two by two, as they lie, and of what is asked for no address is computed. */
#include "backend/simd/table.h"
#include "backend/simd/vi.h"
#include "backend/strips.h"

#define DISTANCE 6144 /* bytes to what is asked for, whole lines; measured, see docs/performance-notes.md */

#define VECS (MMI_STRIP / VL) /* of a strip's rows */

/* From a block on, as kernels.h has a row. */
typedef struct row {
    const unsigned char *numbers, *scales, *offsets;
} row;

/* sum += a block of x · a strip's. */
static ALWAYS_INLINE void add_block(vf sum[VECS], row x, const unsigned char *w, const unsigned char *scales,
                                    int32_t dtype)
{
    vs s[VECS], t[VECS]; /* two of each, since a product waits for the sum before it */
    UNROLL
    for (int j = 0; j < VECS; j++) {
        s[j] = vs_begin(x.offsets);
        t[j] = vs_set(0);
    }
    UNROLL
    for (int line = 0; line < (int)mmi_strip_lines(dtype); line++) {
        const vb four = vb_set(x.numbers + 4 * line);
        const vb upper = dtype == MM_Q4_0 ? vb_set(x.numbers + MMI_BLOCK / 2 + 4 * line) : four;
        __builtin_prefetch(w + DISTANCE);
        UNROLL
        for (int j = 0; j < VECS; j++, w += 4 * VL) {
            const vb read = vb_load(w);
            if (dtype == MM_Q4_0) {
                s[j] = vs_dot(s[j], vb_low(read), four, dtype);
                t[j] = vs_dot(t[j], vb_upper(read), upper, dtype);
            } else if (line % 2 == 0) {
                s[j] = vs_dot(s[j], vb_bytes(read), four, dtype);
            } else {
                t[j] = vs_dot(t[j], vb_bytes(read), four, dtype);
            }
        }
    }
    float scale;
    memcpy(&scale, x.scales, sizeof scale);
    UNROLL
    for (int j = 0; j < VECS; j++, scales += 2 * VL)
        sum[j] = vf_fma(vf_mul(vf_load_f16((const void *)scales), vf_set(scale)),
                        vs_end(vs_join(s[j], t[j], dtype), x.offsets, dtype), sum[j]);
}

static ALWAYS_INLINE row next_block(row x)
{
    return (row){ x.numbers + MMI_BLOCK, x.scales + sizeof(float), x.offsets + sizeof(int32_t) };
}

static ALWAYS_INLINE void multiply(float *y, const unsigned char *numbers, const unsigned char *w, int32_t dtype,
                                   int64_t N, int64_t K)
{
    const int64_t blocks = K / MMI_BLOCK, bytes = mmi_strip_lines(dtype) * MMI_STRIP_LINE;
    const unsigned char *scales = numbers + K, *offsets = scales + (dtype == MM_Q4_0 ? 1 : 2) * blocks * 4;
    for (int64_t n = 0; n < N; n += MMI_STRIP) {
        row x = { numbers, scales, offsets };
        vf sum[VECS];
        UNROLL
        for (int j = 0; j < VECS; j++)
            sum[j] = vf_zero();
        for (int64_t left = blocks; left > 0; left -= 2) {
            const unsigned char *w_scales = w;
            __builtin_prefetch(w_scales); /* used last, but come first: see strips.h */
            __builtin_prefetch(w_scales + DISTANCE);
            w += (left > 1 ? 2 : 1) * MMI_STRIP_SCALES;
            add_block(sum, x, w, w_scales, dtype);
            x = next_block(x);
            w += bytes;
            if (left == 1)
                break;
            add_block(sum, x, w, w_scales + MMI_STRIP_SCALES, dtype);
            x = next_block(x);
            w += bytes;
        }
        UNROLL
        for (int j = 0; j < VECS; j++)
            vf_put(y + n + j * VL, N - n - j * VL, sum[j]);
    }
}

void SIMD(gemm_blocks_row)(float *y, const void *x, const void *w, int32_t dtype, int64_t N, int64_t K)
{
    if (dtype == MM_Q8_0)
        multiply(y, x, w, MM_Q8_0, N, K);
    else
        multiply(y, x, w, MM_Q4_0, N, K);
}
