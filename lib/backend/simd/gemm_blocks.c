/* Rows against weights in blocks, a strip of rows of W or two at a time: one vector holds the same four numbers of VL
 * rows, and a block of the result stays in registers while 32 numbers of each side meet as whole numbers. */
#include <stdbool.h>
#include <stddef.h>

#include "backend/c/portable.h"
#include "backend/simd/table.h"
#include "backend/simd/vi.h"
#include "backend/strips.h"

/* What stays in registers: up to X_ROWS rows of x by up to MOST_STRIPS strips. */
#if ISA_IS(vnni)
#define X_ROWS 8
#define MOST_STRIPS 2
#elif ISA_IS_AVX512
#define X_ROWS 4
#define MOST_STRIPS 2
#else
#define X_ROWS 4
#define MOST_STRIPS 1
#endif
#define STRIP_VECS (MMI_STRIP / VL)
#define MOST_VECS (MOST_STRIPS * STRIP_VECS)
#define PANEL (MOST_STRIPS * MMI_STRIP)

/* Fewer rows meet q4_0 by fours, and what is left of them together; q8_0, which gains less, by twos. */
#define FOURS(dtype) (X_ROWS > 4 && (dtype) == MM_Q4_0)

/* A few rows of x read so many strips at a time, far apart: see gemv.c about streams. */
#if ISA_IS(vnni)
#define STREAMS 4
#define STREAM_ROWS 4
#elif ISA_IS_AVX2
#define STREAMS 4
#define STREAM_ROWS 1
#else /* what counts in avx512 is its arithmetic */
#define STREAMS 1
#define STREAM_ROWS 1
#endif
#define RUNS(N) ((N) > STREAMS / 2 * MMI_STRIP) /* of fewer rows of W some would be multiplied several times */
#define MOST_SUMS (X_ROWS * MOST_VECS)          /* vectors */
_Static_assert(MOST_SUMS >= STREAM_ROWS * STREAMS * STRIP_VECS, "the sums of these rows have room");

/* So many blocks of a panel lie in the first-level cache while many rows of x meet them, as bytes and scales that are
 * made once for all of these rows where that takes instructions: of q4_0 from X_ROWS on, of q8_0 from LEAST_ROWS on,
 * since fewer lose more by reading memory without multiplying. Of each line of W two become, of q4_0 its low halves and
 * its high ones; of q8_0, if it is split, sizes and signs. */
#define MOST_BLOCKS 16
#define WIDENS(dtype) ((dtype) == MM_Q4_0 || UNSIGNED_BYTES || SPLITS_BYTES)
#define SPLITS(dtype) ((dtype) == MM_Q8_0 && SPLITS_BYTES)
#define LEAST_ROWS(dtype) ((dtype) == MM_Q4_0 ? X_ROWS : (SPLITS_BYTES ? 8 : 4) * X_ROWS)
#define WIDE_LINES ((SPLITS_BYTES ? 2 : 1) * MMI_BLOCK / 4)
typedef struct wide_block {
    unsigned char numbers[WIDE_LINES][MOST_VECS][4 * VL];
#if SPLITS_BYTES
    unsigned char begin[MOST_VECS][4 * VL]; /* of split sums */
#endif
    float scales[MOST_VECS][VL];
} wide_block;

/* What is read next of W: the hardware does not see that it goes on behind the end of a page, and a strip is a few of
 * them. Some is asked for with each block, because a core can wait for a few lines only. Of a panel, which many rows
 * meet, that is a share of the next one, a line with each of the block's own: all at once would hold up its products.
 */
typedef struct ahead {
    const unsigned char *at;
    int64_t step; /* bytes with each block */
} ahead;

/* Kernels that take several instructions for a vector of products lose by asking between them. */
#define ASKS_BETWEEN ISA_IS(vnni)

static ALWAYS_INLINE void fetch_with_line(const ahead *a, int line)
{
    if (ASKS_BETWEEN && line * MMI_STRIP_LINE < a->step)
        __builtin_prefetch(a->at + line * MMI_STRIP_LINE);
}

/* What the block's lines have not asked for. */
static ALWAYS_INLINE void fetch_rest(ahead *a, int lines)
{
    for (int64_t i = ASKS_BETWEEN ? lines * MMI_STRIP_LINE : 0; i < a->step; i += MMI_STRIP_LINE)
        __builtin_prefetch(a->at + i);
    a->at += a->step;
}

/* `blocks` blocks of rows of x from block `first` on, against a panel. */
typedef struct part {
    float *y;
    int64_t ldy;
    const unsigned char *x;
    const unsigned char *w[STREAMS + MOST_STRIPS - 1]; /* strips; one that is missing is the one before it again */
    int64_t K, first, blocks;
    const wide_block *wide; /* of `first` and on, where they have been made */
    ahead ahead;            /* of a panel */
} part;

/* A block of a strip, in bytes from its beginning. */
typedef struct offsets {
    int64_t numbers, scales;
} offsets;

static ALWAYS_INLINE offsets offsets_of(int64_t b, int64_t blocks, int32_t dtype)
{
    return (offsets){ mmi_strip_numbers_at(dtype, blocks, b), mmi_strip_scales_at(dtype, b) };
}

static ALWAYS_INLINE const unsigned char *line_of(const part *t, offsets at, int line, int vec)
{
    return t->w[vec / STRIP_VECS] + at.numbers + line * MMI_STRIP_LINE + vec % STRIP_VECS * 4 * VL;
}

static ALWAYS_INLINE const unsigned char *scales_of(const part *t, offsets at, int vec)
{
    return t->w[vec / STRIP_VECS] + at.scales + vec % STRIP_VECS * 2 * VL;
}

#if SPLITS_BYTES
static ALWAYS_INLINE void split_block(wide_block *to, const part *t, offsets at)
{
    enum { LINES = MMI_BLOCK / 4 };
    UNROLL
    for (int j = 0; j < MOST_VECS; j++) {
        vs less = vs_set(0);
        for (int line = 0; line < LINES; line++) {
            vb read = vb_load(line_of(t, at, line, j)), size = vb_size(read), negative = vb_negative(read);
            vb_store(to->numbers[line][j], size);
            vb_store(to->numbers[line + LINES][j], negative);
            less = vs_dot_split(less, size, negative, vs_set(0));
        }
        vb_store(to->begin[j], vs_sub(vs_set(0), less));
    }
}
#endif

static ALWAYS_INLINE void widen_blocks(wide_block *to, const part *t, int32_t dtype)
{
    const int lines = (int)mmi_strip_lines(dtype);
    for (int64_t b = t->first; b < t->first + t->blocks; b++, to++) {
        const offsets at = offsets_of(b, t->K / MMI_BLOCK, dtype);
        UNROLL
        for (int j = 0; j < MOST_VECS; j++)
            vf_store(to->scales[j], vf_load_f16((const void *)scales_of(t, at, j)));
#if SPLITS_BYTES
        if (dtype == MM_Q8_0) {
            split_block(to, t, at);
            continue;
        }
#endif
        for (int line = 0; line < lines; line++) {
            UNROLL
            for (int j = 0; j < MOST_VECS; j++) {
                vb read = vb_load(line_of(t, at, line, j));
                vb_store(to->numbers[line][j], dtype == MM_Q8_0 ? vb_bytes(read) : vb_low(read));
                if (dtype == MM_Q4_0)
                    vb_store(to->numbers[line + lines][j], vb_high(read));
            }
        }
    }
}

static ALWAYS_INLINE vs dot(vs s, vb w, vb negative, vb x, int32_t dtype, const bool split)
{
#if SPLITS_BYTES
    if (split)
        return vs_dot_split(s, w, negative, x);
#endif
    (void)negative, (void)split;
    return vs_dot(s, w, x, dtype);
}

/* s += the same four numbers of each row of x, the first of them at `numbers`, · w's, whose signs are apart where they
 * are split. */
static ALWAYS_INLINE void add_step(vs s[MOST_SUMS], const vb w[MOST_SUMS], const vb negative[MOST_SUMS],
                                   const unsigned char *numbers, int64_t distance, const int rows, const int vecs,
                                   int32_t dtype, const bool split)
{
    UNROLL
    for (int i = 0; i < rows; i++) {
        vb four = vb_set(numbers + i * distance);
        UNROLL
        for (int j = 0; j < vecs; j++) {
            s[i * vecs + j] = dot(s[i * vecs + j], w[j], negative[j], four, dtype, split);
            IN_ORDER(s[i * vecs + j]);
        }
    }
}

static ALWAYS_INLINE vs begin_sum(const wide_block *wide, int vec, const void *offset, const bool split)
{
#if SPLITS_BYTES
    if (split)
        return vb_load(wide->begin[vec]);
#endif
    (void)wide, (void)vec, (void)split;
    return vs_begin(offset);
}

/* sum [rows, strips, MMI_STRIP] += block b of `rows` rows of x · the strips', which are a panel or not. */
static ALWAYS_INLINE void multiply_block(float *sum, const part *t, int64_t b, offsets at, const int rows,
                                         const int strips, int32_t dtype, const bool panel, const bool wide)
{
    const bool split = wide && SPLITS(dtype);
    const int vecs = strips * STRIP_VECS, lines = (int)mmi_strip_lines(dtype);
    const int64_t distance = mmi_quantized_row(t->K), blocks = t->K / MMI_BLOCK;
    const unsigned char *numbers = t->x + b * MMI_BLOCK;
    const unsigned char *scales = t->x + t->K + b * 4, *offset = scales + (dtype == MM_Q4_0 ? 1 : 2) * blocks * 4;
    const wide_block *made = wide ? t->wide + (b - t->first) : NULL;
    vs s[MOST_SUMS];
    if (!panel) { /* used last, but come first: see strips.h */
        UNROLL
        for (int j = 0; j < strips; j++)
            __builtin_prefetch(scales_of(t, at, j * STRIP_VECS));
    }
    UNROLL
    for (int i = 0; i < rows; i++) {
        UNROLL
        for (int j = 0; j < vecs; j++)
            s[i * vecs + j] = begin_sum(made, j, offset + i * distance, split);
    }
    UNROLL
    for (int line = 0; line < lines; line++) {
        vb low[MOST_SUMS], high[MOST_SUMS];
        UNROLL
        for (int j = 0; j < vecs; j++) {
            if (wide) {
                low[j] = vb_load(made->numbers[line][j]);
                high[j] = dtype == MM_Q4_0 || split ? vb_load(made->numbers[line + lines][j]) : low[j];
                continue;
            }
            vb read = vb_load(line_of(t, at, line, j));
            low[j] = dtype == MM_Q8_0 ? vb_bytes(read) : vb_low(read);
            high[j] = vb_high(read);
        }
        add_step(s, low, high, numbers + 4 * line, distance, rows, vecs, dtype, split);
        if (dtype == MM_Q4_0)
            add_step(s, high, high, numbers + MMI_BLOCK / 2 + 4 * line, distance, rows, vecs, dtype, split);
        if (panel)
            fetch_with_line(&t->ahead, line);
    }
    vf w_scales[MOST_SUMS];
    UNROLL
    for (int j = 0; j < vecs; j++)
        w_scales[j] = wide ? vf_load(made->scales[j]) : vf_load_f16((const void *)scales_of(t, at, j));
    UNROLL
    for (int i = 0; i < rows; i++) {
        float scale;
        memcpy(&scale, scales + i * distance, sizeof scale);
        UNROLL
        for (int j = 0; j < vecs; j++) {
            float *to = sum + (i * vecs + j) * VL;
            vf exact = vs_end(s[i * vecs + j], offset + i * distance, dtype);
            vf_store(to, vf_fma(vf_mul(w_scales[j], vf_set(scale)), exact, vf_load(to)));
        }
    }
}

/* A strip's columns take a few vectors, fewer a call. */
static ALWAYS_INLINE void copy_columns(float *to, const float *from, int64_t cols)
{
    if (cols >= MMI_STRIP)
        memcpy(to, from, MMI_STRIP * sizeof *to);
    else if (cols > 0)
        memcpy(to, from, (size_t)cols * sizeof *to);
}

/* One copy of the code is enough. */
static NOINLINE void copy_sums(float *sum, const part *t, int rows, int strips, int64_t apart, int64_t cols, bool end)
{
    for (int i = 0; i < rows; i++)
        for (int s = 0; s < strips; s++, sum += MMI_STRIP) {
            float *y = t->y + i * t->ldy + s * apart;
            copy_columns(end ? y : sum, end ? sum : y, cols - s * MMI_STRIP);
        }
}

/* Columns [0, cols) of `rows` rows of y, those of one strip `apart` from those of the one before; they are begun with
 * the first block and gone on with after it. */
static ALWAYS_INLINE void multiply_part(part *t, const int rows, const int strips, int64_t apart, int64_t cols,
                                        int32_t dtype, const bool panel, const bool wide)
{
    _Alignas(64) float sum[MOST_SUMS * VL];
    UNROLL
    for (int i = 0; i < rows * strips * STRIP_VECS; i++)
        vf_store(sum + i * VL, vf_zero());
    if (t->first > 0)
        copy_sums(sum, t, rows, strips, apart, cols, false);
    const int64_t blocks = t->K / MMI_BLOCK;
    for (int64_t b = t->first, end = b + t->blocks; b < end; b++) {
        const offsets at = offsets_of(b, blocks, dtype);
        multiply_block(sum, t, b, at, rows, strips, dtype, panel, wide);
        if (panel) /* streams are followed by the hardware */
            fetch_rest(&t->ahead, (int)mmi_strip_lines(dtype));
    }
    copy_sums(sum, t, rows, strips, apart, cols, true);
}

#if STREAMS > 1
/* A few rows of x. As many strips are read at a time as there are streams, a run of strips apart; where the last runs
 * are shorter, the strip before is multiplied again and left out. */
static ALWAYS_INLINE void multiply_streams(float *y, int64_t ldy, const unsigned char *x, const unsigned char *w,
                                           int32_t dtype, const int M, int64_t N, int64_t K)
{
    const int64_t blocks = K / MMI_BLOCK, bytes = (int64_t)mmi_strips_bytes(dtype, MMI_STRIP, K);
    const int64_t strips = (N + MMI_STRIP - 1) / MMI_STRIP, run = (strips + STREAMS - 1) / STREAMS;
    part t = { y, ldy, x, { w }, K, 0, blocks, NULL, { 0 } };
    for (int64_t j = 0; j < run; j++, t.y += MMI_STRIP) {
        const int64_t last = (strips - 1 - j) / run, left = N - (j + last * run) * MMI_STRIP;
        for (int s = 0; s < STREAMS; s++)
            t.w[s] = w + (j + least(s, last) * run) * bytes;
        multiply_part(&t, M, STREAMS, run * MMI_STRIP, last * MMI_STRIP + least(MMI_STRIP, left), dtype, false, false);
    }
}
#endif

static ALWAYS_INLINE void multiply_panel(part t, int64_t M, int64_t cols, int32_t dtype)
{
    int64_t step = mmi_quantized_row(t.K), i = 0;
    for (; i + X_ROWS <= M; i += X_ROWS, t.x += X_ROWS * step, t.y += X_ROWS * t.ldy)
        if (WIDENS(dtype) && (LEAST_ROWS(dtype) == X_ROWS || M >= LEAST_ROWS(dtype)))
            multiply_part(&t, X_ROWS, MOST_STRIPS, MMI_STRIP, cols, dtype, true, true);
        else
            multiply_part(&t, X_ROWS, MOST_STRIPS, MMI_STRIP, cols, dtype, true, false);
    for (; FOURS(dtype) && i + 4 <= M; i += 4, t.x += 4 * step, t.y += 4 * t.ldy)
        multiply_part(&t, 4, MOST_STRIPS, MMI_STRIP, cols, dtype, true, false);
    if (FOURS(dtype) && i + 3 == M) {
        multiply_part(&t, 3, MOST_STRIPS, MMI_STRIP, cols, dtype, true, false);
        return;
    }
    for (; i + 2 <= M; i += 2, t.x += 2 * step, t.y += 2 * t.ldy)
        multiply_part(&t, 2, MOST_STRIPS, MMI_STRIP, cols, dtype, true, false);
    if (i < M)
        multiply_part(&t, 1, MOST_STRIPS, MMI_STRIP, cols, dtype, true, false);
}

/* How often a panel is passed through. */
static ALWAYS_INLINE int64_t passes_of(int64_t M, int32_t dtype)
{
    const int64_t left = M % X_ROWS;
    return M / X_ROWS + (FOURS(dtype) ? (left + 3) / 4 : (left + 1) / 2);
}

/* Several rows, panel by panel; the next panel is asked for meanwhile. */
static ALWAYS_INLINE void multiply_rows(float *y, int64_t ldy, const unsigned char *x, const unsigned char *w,
                                        int32_t dtype, int64_t M, int64_t N, int64_t K)
{
    const int64_t blocks = K / MMI_BLOCK, bytes = (int64_t)mmi_strips_bytes(dtype, MMI_STRIP, K);
    const int64_t most = M < X_ROWS ? blocks : MOST_BLOCKS;
    _Alignas(64) wide_block wide[MOST_BLOCKS];
    const int64_t step = MOST_STRIPS * bytes / blocks / passes_of(M, dtype);
    for (int64_t j = 0; j < N; j += PANEL, w += MOST_STRIPS * bytes)
        for (int64_t b = 0; b < blocks; b += most) {
            part t = { y + j, ldy, x, { w }, K, b, least(most, blocks - b), wide, { 0 } };
            t.ahead = (ahead){ w + MOST_STRIPS * (bytes + b * (bytes / blocks)), step };
            for (int s = 1; s < MOST_STRIPS; s++)
                t.w[s] = j + s * MMI_STRIP < N ? w + s * bytes : t.w[s - 1];
            if (WIDENS(dtype) && M >= LEAST_ROWS(dtype))
                widen_blocks(wide, &t, dtype);
            multiply_panel(t, M, least(PANEL, N - j), dtype);
        }
}

/* One copy of the code is enough. */
static NOINLINE void multiply_several(float *y, int64_t ldy, const unsigned char *x, const unsigned char *w,
                                      int32_t dtype, int64_t M, int64_t N, int64_t K)
{
    if (dtype == MM_Q8_0)
        multiply_rows(y, ldy, x, w, MM_Q8_0, M, N, K);
    else
        multiply_rows(y, ldy, x, w, MM_Q4_0, M, N, K);
}

void SIMD(gemm_blocks)(float *y, int64_t ldy, const void *x, const void *w, int32_t dtype, int64_t M, int64_t N,
                       int64_t K)
{
    if (M == 0 || K == 0) /* no block begins y */
        mmi_c_gemm_blocks(y, ldy, x, w, dtype, M, N, K);
#if STREAMS == 1
    else if (M == 1)
        SIMD(gemm_blocks_row)(y, x, w, dtype, N, K);
#else
    else if (RUNS(N) && M == 1 && dtype == MM_Q8_0)
        multiply_streams(y, ldy, x, w, MM_Q8_0, 1, N, K);
    else if (RUNS(N) && M == 1)
        multiply_streams(y, ldy, x, w, MM_Q4_0, 1, N, K);
#endif
#if STREAM_ROWS > 1 /* q4_0, whose arithmetic takes longer, gains too little for the code */
    else if (RUNS(N) && M == 2 && dtype == MM_Q8_0)
        multiply_streams(y, ldy, x, w, MM_Q8_0, 2, N, K);
    else if (RUNS(N) && M == 3 && dtype == MM_Q8_0)
        multiply_streams(y, ldy, x, w, MM_Q8_0, 3, N, K);
    else if (RUNS(N) && M == 4 && dtype == MM_Q8_0)
        multiply_streams(y, ldy, x, w, MM_Q8_0, 4, N, K);
#endif
    else
        multiply_several(y, ldy, x, w, dtype, M, N, K);
}

#if ISA_IS(vnni)
void SIMD(gemm_blocks_asking)(float *y, int64_t ldy, const void *x, const void *w, int32_t dtype, int64_t M, int64_t N,
                              int64_t K)
{
    if (M != 1 || K == 0)
        SIMD(gemm_blocks)(y, ldy, x, w, dtype, M, N, K);
    else
        SIMD(gemm_blocks_row)(y, x, w, dtype, N, K);
}
#endif
