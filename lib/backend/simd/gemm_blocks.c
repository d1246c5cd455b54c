/* Many rows against weights in blocks. W is laid out anew, a panel of its rows at a time, so that one vector holds the
 * same four numbers of VL rows; a block of the result then stays in registers while 32 numbers of each side meet as
 * whole numbers. */
#include "backend/simd/blocks.h"
#include "backend/simd/table.h"
#include "backend/simd/vi.h"

/* A register block: X_ROWS rows of x by PANEL rows of W. */
#if ISA_IS(vnni)
#define X_ROWS 8
#define PANEL_VECS 2
#elif ISA_IS_X86
#define X_ROWS 4
#define PANEL_VECS 2
#else
#define X_ROWS 4
#define PANEL_VECS 4
#endif
#define PANEL (PANEL_VECS * VL)
#define STEPS (MMI_BLOCK / 4)
#define STEP_BYTES (4 * PANEL)

/* What is laid out at a time, so many blocks of a panel, lies in the first-level cache while all rows of x meet it. */
#define MOST_BLOCKS 16

/* One block of PANEL rows of W. */
typedef struct panel_block {
    float scales[PANEL];
    unsigned char numbers[STEPS * STEP_BYTES];
} panel_block;

int64_t SIMD(gemm_blocks_scratch)(void)
{
    return (int64_t)(sizeof(panel_block) / sizeof(float)) * MOST_BLOCKS;
}

static ALWAYS_INLINE int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* The block at w of `count` rows, `distance` bytes apart; rows beyond are 0. */
static ALWAYS_INLINE void pack_block(panel_block *to, const unsigned char *w, int64_t distance, int64_t count,
                                     int32_t dtype)
{
    uint16_t scales[PANEL] = { 0 };
    for (int64_t j = 0; j < least(count, PANEL); j++)
        memcpy(&scales[j], w + j * distance, sizeof scales[j]);
    for (int j = 0; j < PANEL; j += VL)
        vf_store(to->scales + j, vf_load_f16(scales + j));
    for (int64_t j = 0; j < PANEL; j += TURNED_ROWS)
        turn_blocks(to->numbers + 4 * j, STEP_BYTES, w + j * distance, distance, count - j, dtype);
}

#define LINE 64

/* What is laid out next: `rows` rows of `bytes` bytes at `row`, of which byte `at` is to be asked for. The hardware
 * does not see that they go on. So many lines at a time that all have been asked for when they are wanted, and no more:
 * a core can wait for a few only. */
typedef struct ahead {
    const unsigned char *row;
    int64_t rows, distance, bytes, at, lines;
} ahead;

/* `steps` blocks of rows of x are multiplied meanwhile, X_ROWS at a time. */
static ALWAYS_INLINE ahead ahead_of(const unsigned char *row, int64_t rows, int64_t distance, int64_t bytes,
                                    int64_t steps)
{
    int64_t lines = rows * (bytes / LINE + 1) * X_ROWS / steps;
    return (ahead){ row, rows, distance, bytes, 0, lines + 1 };
}

static ALWAYS_INLINE void fetch_some(ahead *a)
{
    for (int64_t n = a->lines; n > 0 && a->rows > 0; n--) {
        __builtin_prefetch(a->row + a->at);
        a->at += LINE;
        if (a->at >= a->bytes) {
            a->at = 0;
            a->row += a->distance;
            a->rows--;
        }
    }
}

/* `blocks` blocks of rows of x from block `first` on, against a panel. */
typedef struct part {
    float *y;
    int64_t ldy;
    const unsigned char *x;
    const panel_block *w;
    int64_t K, first, blocks;
    ahead ahead;
} part;

/* sum [rows, PANEL] += block b of `rows` rows of x · the panel's. */
static ALWAYS_INLINE void multiply_block(float *sum, const part *t, int64_t b, const int rows, int32_t dtype)
{
    const panel_block *w = t->w + b;
    const int64_t distance = mmi_quantized_row(t->K), at = t->first + b;
    const unsigned char *numbers = t->x + at * MMI_BLOCK;
    const unsigned char *scales = t->x + t->K + at * 4, *totals = scales + t->K / MMI_BLOCK * 4;
    vs s[X_ROWS][PANEL_VECS];
    UNROLL
    for (int i = 0; i < rows; i++) {
        UNROLL
        for (int j = 0; j < PANEL_VECS; j++)
            s[i][j] = vs_begin(four_bytes(totals + i * distance), dtype);
    }
    UNROLL
    for (int k = 0; k < STEPS; k++) {
        vb weights[PANEL_VECS];
        UNROLL
        for (int j = 0; j < PANEL_VECS; j++)
            weights[j] = vb_load(w->numbers + k * STEP_BYTES + 4 * VL * j);
        UNROLL
        for (int i = 0; i < rows; i++) {
            vb four = vb_set(numbers + i * distance + 4 * k);
            UNROLL
            for (int j = 0; j < PANEL_VECS; j++) {
                s[i][j] = vs_dot(s[i][j], weights[j], four, dtype);
                IN_ORDER(s[i][j]);
            }
        }
    }
    UNROLL
    for (int i = 0; i < rows; i++) {
        float scale;
        memcpy(&scale, scales + i * distance, sizeof scale);
        UNROLL
        for (int j = 0; j < PANEL_VECS; j++) {
            float *to = sum + i * PANEL + j * VL;
            vf factor = vf_mul(vf_load(w->scales + j * VL), vf_set(scale));
            vf_store(to, vf_fma(factor, vs_end(s[i][j], four_bytes(totals + i * distance), dtype), vf_load(to)));
        }
    }
}

/* A whole panel's columns take a few vectors, others a call. */
static ALWAYS_INLINE void copy_columns(float *to, const float *from, int64_t cols)
{
    if (cols == PANEL)
        memcpy(to, from, PANEL * sizeof *to);
    else
        memcpy(to, from, (size_t)cols * sizeof *to);
}

/* Columns [0, cols) of `rows` rows of y, which are begun with the first block and gone on with after it. */
static ALWAYS_INLINE void multiply_part(part *t, const int rows, int64_t cols, int32_t dtype)
{
    _Alignas(64) float sum[X_ROWS * PANEL];
    UNROLL
    for (int i = 0; i < rows; i++) {
        UNROLL
        for (int j = 0; j < PANEL; j += VL)
            vf_store(sum + i * PANEL + j, vf_zero());
        if (t->first > 0)
            copy_columns(sum + i * PANEL, t->y + i * t->ldy, cols);
    }
    for (int64_t b = 0; b < t->blocks; b++) {
        multiply_block(sum, t, b, rows, dtype);
        fetch_some(&t->ahead);
    }
    for (int i = 0; i < rows; i++)
        copy_columns(t->y + i * t->ldy, sum + i * PANEL, cols);
}

static ALWAYS_INLINE void multiply_panel(part t, int64_t M, int64_t cols, int32_t dtype)
{
    int64_t step = mmi_quantized_row(t.K), i = 0;
    for (; i + X_ROWS <= M; i += X_ROWS, t.x += X_ROWS * step, t.y += X_ROWS * t.ldy)
        multiply_part(&t, X_ROWS, cols, dtype);
    for (; i + 2 <= M; i += 2, t.x += 2 * step, t.y += 2 * t.ldy)
        multiply_part(&t, 2, cols, dtype);
    if (i < M)
        multiply_part(&t, 1, cols, dtype);
}

static ALWAYS_INLINE void multiply(float *y, int64_t ldy, const unsigned char *x, const unsigned char *w, int32_t dtype,
                                   int64_t M, int64_t N, int64_t K, panel_block *panel)
{
    const int64_t blocks = K / MMI_BLOCK, distance = blocks * BLOCK_BYTES(dtype);
    for (int64_t j = 0; j < N; j += PANEL)
        for (int64_t b = 0; b < blocks; b += MOST_BLOCKS) {
            const unsigned char *from = w + j * distance + b * BLOCK_BYTES(dtype), *next = from;
            if (b + MOST_BLOCKS < blocks)
                next += MOST_BLOCKS * BLOCK_BYTES(dtype);
            else if (j + 2 * PANEL <= N)
                next += PANEL * distance - b * BLOCK_BYTES(dtype);
            part t = { y + j, ldy, x, panel, K, b, least(MOST_BLOCKS, blocks - b), { 0 } };
            t.ahead = ahead_of(next, least(PANEL, N - j), distance, t.blocks * BLOCK_BYTES(dtype), M * t.blocks);
            for (int64_t i = 0; i < t.blocks; i++)
                pack_block(&panel[i], from + i * BLOCK_BYTES(dtype), distance, least(PANEL, N - j), dtype);
            multiply_panel(t, M, least(PANEL, N - j), dtype);
        }
}

void SIMD(gemm_blocks)(float *y, int64_t ldy, const void *x, const void *w, int32_t dtype, int64_t M, int64_t N,
                       int64_t K, float *scratch)
{
    if (M == 0)
        return;
    if (K == 0) /* no block begins y */
        mmi_c_gemv_blocks(y, ldy, x, w, dtype, M, N, K);
    else if (dtype == MM_Q8_0)
        multiply(y, ldy, x, w, MM_Q8_0, M, N, K, (panel_block *)(void *)scratch);
    else
        multiply(y, ldy, x, w, MM_Q4_0, M, N, K, (panel_block *)(void *)scratch);
}
