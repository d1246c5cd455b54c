/* Many rows against weights in blocks, on tiles: the transpose of Y, which is W times the transpose of x, so that W is
 * read as it lies. A tile product makes the exact sums of a block of 16 rows of W and 16 of x; they go through memory
 * into vectors over the rows of x, which are converted, scaled and added up. */
#include <float.h>
#include <math.h>
#include <stdbool.h>

#include "backend/simd/amx.h"
#include "backend/simd/blocks.h"
#include "backend/simd/table.h"

#define GROUP TILE_LINES /* rows of x, or of W, that meet in a tile */
#define STEPS (MMI_BLOCK / 4)

/* One block of a group of rows of x: line k has numbers 4 k to 4 k + 3 of each. */
typedef struct x_block {
    int8_t numbers[STEPS][GROUP][4];
    float scales[GROUP];
} x_block;

/* One block of a group of rows of W, row by row. */
typedef struct w_block {
    int8_t numbers[GROUP][MMI_BLOCK];
    float scales[GROUP];
} w_block;

/* So many blocks of W are laid out at a time: they stay in the first-level cache while all rows of x meet them. */
#define MOST_BLOCKS 24 /* whole units */

int64_t SIMD(gemm_blocks_scratch)(void)
{
    return (int64_t)(sizeof(w_block) / sizeof(float)) * MOST_BLOCKS;
}

static ALWAYS_INLINE int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* --- Rows of x --- */

static ALWAYS_INLINE vf larger(vf a, vf b)
{
    return _mm512_castsi512_ps(_mm512_max_epu32(_mm512_castps_si512(a), _mm512_castps_si512(b)));
}

/* Lane i is the largest of r[i], as whole numbers. */
static ALWAYS_INLINE vf largest_of_each(const vf r[GROUP])
{
    vf pair[8], quad[4], half[2];
    UNROLL
    for (int i = 0; i < 8; i++)
        pair[i] = larger(_mm512_unpacklo_ps(r[2 * i], r[2 * i + 1]), _mm512_unpackhi_ps(r[2 * i], r[2 * i + 1]));
    UNROLL
    for (int i = 0; i < 4; i++)
        quad[i] = larger(_mm512_shuffle_ps(pair[2 * i], pair[2 * i + 1], 0x44),
                         _mm512_shuffle_ps(pair[2 * i], pair[2 * i + 1], 0xEE));
    UNROLL
    for (int i = 0; i < 2; i++)
        half[i] = larger(_mm512_shuffle_f32x4(quad[2 * i], quad[2 * i + 1], 0x88),
                         _mm512_shuffle_f32x4(quad[2 * i], quad[2 * i + 1], 0xDD));
    return larger(_mm512_shuffle_f32x4(half[0], half[1], 0x88), _mm512_shuffle_f32x4(half[0], half[1], 0xDD));
}

static ALWAYS_INLINE vf as_floats(__m512i v)
{
    return _mm512_castsi512_ps(v);
}

/* Numbers 4 l to 4 l + 3, and 16 more than that, of rows a and b are what lane l begins and ends with. */
static ALWAYS_INLINE vf bytes_of(const float *a, const float *b, float a_factor, float b_factor)
{
    __m512i a_low = _mm512_cvtps_epi32(vf_mul(vf_load(a), vf_set(a_factor)));
    __m512i a_high = _mm512_cvtps_epi32(vf_mul(vf_load(a + VL), vf_set(a_factor)));
    __m512i b_low = _mm512_cvtps_epi32(vf_mul(vf_load(b), vf_set(b_factor)));
    __m512i b_high = _mm512_cvtps_epi32(vf_mul(vf_load(b + VL), vf_set(b_factor)));
    return as_floats(_mm512_packs_epi16(_mm512_packs_epi32(a_low, a_high), _mm512_packs_epi32(b_low, b_high)));
}

/* Quarter l of line[i] to quarter i of line[l]. */
static ALWAYS_INLINE void transpose_quarters(vf line[4])
{
    vf a = _mm512_shuffle_f32x4(line[0], line[1], 0x88), b = _mm512_shuffle_f32x4(line[0], line[1], 0xDD);
    vf c = _mm512_shuffle_f32x4(line[2], line[3], 0x88), d = _mm512_shuffle_f32x4(line[2], line[3], 0xDD);
    line[0] = _mm512_shuffle_f32x4(a, c, 0x88);
    line[1] = _mm512_shuffle_f32x4(b, d, 0x88);
    line[2] = _mm512_shuffle_f32x4(a, c, 0xDD);
    line[3] = _mm512_shuffle_f32x4(b, d, 0xDD);
}

/* One block of GROUP rows, as quantize() has each of them. */
static ALWAYS_INLINE void quantize_block(x_block *to, const float *const rows[GROUP], int64_t at)
{
    const vf magnitude = as_floats(_mm512_set1_epi32(0x7FFFFFFF));
    vf r[GROUP];
    UNROLL
    for (int i = 0; i < GROUP; i++)
        r[i] = larger(_mm512_and_ps(vf_load(rows[i] + at), magnitude),
                      _mm512_and_ps(vf_load(rows[i] + at + VL), magnitude));
    vf most = largest_of_each(r), scales = vf_div(most, vf_set(127.0f));
    vmask finite = _mm512_cmp_ps_mask(most, vf_set(FLT_MAX), _CMP_LE_OQ);
    vmask useful = finite & _mm512_cmp_ps_mask(scales, vf_set(FLT_MIN), _CMP_GE_OQ);
    float factors[GROUP];
    vf_store(factors, vf_div(vf_set(1.0f), scales));
    vf_store(to->scales, vf_select(finite, scales, vf_set(NAN)));
    vf low[4], high[4]; /* lines 0 to 3 and 4 to 7 */
    UNROLL
    for (int i = 0; i < 4; i++) {
        const float *const *four = rows + 4 * i, *factor = factors + 4 * i;
        vf first = bytes_of(four[0] + at, four[1] + at, factor[0], factor[1]);
        vf second = bytes_of(four[2] + at, four[3] + at, factor[2], factor[3]);
        low[i] = _mm512_shuffle_ps(first, second, 0x88);
        high[i] = _mm512_shuffle_ps(first, second, 0xDD);
    }
    transpose_quarters(low);
    transpose_quarters(high);
    UNROLL
    for (int i = 0; i < 4; i++) {
        vf_store((float *)(void *)to->numbers[i], vf_select(useful, low[i], vf_zero()));
        vf_store((float *)(void *)to->numbers[i + 4], vf_select(useful, high[i], vf_zero()));
    }
}

void SIMD(quantize_rows)(void *q, const float *x, int64_t ldx, int64_t M, int64_t K)
{
    for (int64_t i = 0; i < M; i += GROUP) {
        x_block *to = (x_block *)(void *)((unsigned char *)q + i * mmi_quantized_row(K));
        const float *rows[GROUP]; /* what is missing of the last group is the last row again */
        for (int64_t j = 0; j < GROUP; j++)
            rows[j] = x + least(i + j, M - 1) * ldx;
        for (int64_t b = 0; b < K / MMI_BLOCK; b++)
            quantize_block(to + b, rows, b * MMI_BLOCK);
    }
}

/* --- Rows of W --- */

/* Where GROUP rows begin; the last one stands for those that are missing. */
typedef struct row_offsets {
    __m512i low, high;
} row_offsets;

static ALWAYS_INLINE row_offsets offsets_of(int64_t distance, int64_t rows)
{
    int64_t at[GROUP];
    for (int64_t j = 0; j < GROUP; j++)
        at[j] = least(j, rows - 1) * distance;
    return (row_offsets){ _mm512_loadu_si512(at), _mm512_loadu_si512(at + GROUP / 2) };
}

/* Of the block at w: a word of two halves each, of which the lower one is wanted. */
static ALWAYS_INLINE void gather_scales(float scales[GROUP], const unsigned char *w, const row_offsets *rows)
{
    __m256i low = _mm512_i64gather_epi32(rows->low, (const void *)w, 1);
    __m256i high = _mm512_i64gather_epi32(rows->high, (const void *)w, 1);
    __m512i words = _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
    vf_store(scales, _mm512_cvtph_ps(_mm512_cvtepi32_epi16(words)));
}

/* The numbers of the block at w of `rows` rows. */
static ALWAYS_INLINE void lay_numbers(w_block *to, const unsigned char *w, int64_t distance, int64_t rows,
                                      int32_t dtype)
{
    for (int64_t j = 0; j < GROUP; j++) {
        _mm256_storeu_si256((void *)to->numbers[j], signed_numbers(w, dtype));
        w += j + 1 < rows ? distance : 0;
    }
}

/* --- Products --- */

/* Blocks that are on their way together, each with a tile for its sums, and with memory for them. */
#define UNIT 4

/* Groups of rows of W and groups of rows of x that meet, one pair after the other, in `blocks` blocks. Blocks beyond
 * them, up to a whole unit, are 0. */
typedef struct part {
    int64_t pairs, blocks;
    const unsigned char *x, *w;   /* first blocks of the first pair; W's numbers */
    int64_t x_step, w_step;       /* from pair to pair */
    int64_t block_step, row_step; /* within W */
    float *y;                     /* [rows, cols] of the first pair; the rows are those of all further ones, too */
    int64_t ldy, y_step, rows, cols;
    bool begun;                             /* y has the sum of earlier blocks */
    const w_block *laid;                    /* has the scales; NULL: they lie before the numbers */
    row_offsets offsets;                    /* where they do */
    const unsigned char *ahead, *ahead_end; /* what is read of W next, a share of it with each unit */
    int64_t ahead_lines;
} part;

/* A block's sums, as a tile leaves them. */
typedef struct sums {
    int32_t of[GROUP][GROUP]; /* [row of W][row of x] */
} sums;

/* The bits of this float and a sum make those of a float, of which it is taken off again: both are exact, and done by
 * another unit than multiplications. Conversions are done by the same, and while there are tile instructions on the way
 * there is only one of it. */
#define BIAS 0x1.8p23f

static const _Alignas(64) x_block nothing;

/* What comes next. */
typedef struct cursor {
    const unsigned char *x, *w; /* as in part, of one pair */
    int64_t b;
} cursor;

static ALWAYS_INLINE const x_block *x_at(const part *p, cursor c, int64_t at)
{
    return c.b + at < p->blocks ? (const x_block *)(const void *)c.x + c.b + at : &nothing;
}

static ALWAYS_INLINE const unsigned char *w_at(const part *p, cursor c, int64_t at)
{
    return c.w + (c.b + at < p->blocks ? c.b + at : 0) * p->block_step;
}

/* True: the pair is done. */
static ALWAYS_INLINE bool go_on(cursor *c, const part *p)
{
    c->b += UNIT;
    if (c->b < p->blocks)
        return false;
    *c = (cursor){ c->x + p->x_step, c->w + p->w_step, 0 };
    return true;
}

/* Scales of W in a unit. */
typedef struct unit_scales {
    float of[UNIT][GROUP];
} unit_scales;

#define MULTIPLY(sum, left, right, at)                                                                                 \
    do {                                                                                                               \
        _tile_loadd(left, w_at(p, next, at), p->row_step);                                                             \
        _tile_loadd(right, x_at(p, next, at)->numbers, 64);                                                            \
        _tile_zero(sum);                                                                                               \
        _tile_dpbssd(sum, left, right);                                                                                \
        if (lies)                                                                                                      \
            get_scales(to->of[at], p, next, at);                                                                       \
    } while (0)

static ALWAYS_INLINE void get_scales(float scales[GROUP], const part *p, cursor c, int64_t at)
{
    if (c.b + at < p->blocks)
        gather_scales(scales, w_at(p, c, at) - 2, &p->offsets);
    else
        vf_store(scales, vf_zero());
}

static ALWAYS_INLINE void add_block(vf total[GROUP], const sums *s, const unit_scales *from, const part *p, cursor c,
                                    int64_t at, const bool lies)
{
    const vf scales = vf_load(x_at(p, c, at)->scales), back = vf_set(-BIAS);
    const __m512i bits = _mm512_castps_si512(vf_set(BIAS));
    const float *w_scales = lies ? from->of[at] : p->laid[c.b + at].scales;
    UNROLL
    for (int j = 0; j < GROUP; j++) {
        vf exact = vf_add(as_floats(_mm512_add_epi32(_mm512_load_si512(s->of[j]), bits)), back);
        total[j] = vf_fma(vf_mul(vf_set(w_scales[j]), scales), exact, total[j]);
    }
}

/* Unit `next` begins, if there is one, while `last`, if there is one, is added up. Sums leave their tile two blocks
 * after they have begun, and are read two more after that. Where W lies, `to` and `from` have its scales. */
static ALWAYS_INLINE void multiply_unit(vf total[GROUP], sums s[UNIT], const part *p, cursor next, bool begins,
                                        unit_scales *to, cursor last, bool ends, const unit_scales *from,
                                        const bool lies)
{
    if (begins)
        MULTIPLY(0, 1, 2, 0);
    if (ends) {
        _tile_stored(6, &s[2], 64);
        tiles_stored();
        add_block(total, &s[0], from, p, last, 0, lies);
    }
    if (begins)
        MULTIPLY(3, 4, 5, 1);
    if (ends) {
        _tile_stored(7, &s[3], 64);
        tiles_stored();
        add_block(total, &s[1], from, p, last, 1, lies);
    }
    if (begins) {
        MULTIPLY(6, 1, 2, 2);
        _tile_stored(0, &s[0], 64);
    }
    if (ends) {
        tiles_stored();
        add_block(total, &s[2], from, p, last, 2, lies);
    }
    if (begins) {
        MULTIPLY(7, 4, 5, 3);
        _tile_stored(3, &s[1], 64);
    }
    if (ends) {
        tiles_stored();
        add_block(total, &s[3], from, p, last, 3, lies);
    }
}

/* Pair i's part of y, from or to what add_block() has. */
static void read_totals(float total[GROUP][GROUP], const part *p, int64_t i)
{
    vf rows[GROUP];
    for (int j = 0; j < GROUP; j++)
        rows[j] =
            i * GROUP + j < p->rows ? vf_load_tail(p->y + i * p->y_step + j * p->ldy, vf_tail(p->cols)) : vf_zero();
    vf_transpose(rows);
    for (int j = 0; j < GROUP; j++)
        vf_store(total[j], rows[j]);
}

static void write_totals(const part *p, int64_t i, float total[GROUP][GROUP])
{
    int64_t count = p->laid ? p->rows - i * GROUP : p->rows;
    vf rows[GROUP];
    for (int j = 0; j < GROUP; j++)
        rows[j] = vf_load(total[j]);
    vf_transpose(rows);
    for (int j = 0; j < GROUP && j < count; j++)
        vf_store_tail(p->y + i * p->y_step + j * p->ldy, vf_tail(p->cols), rows[j]);
}

static ALWAYS_INLINE void begin_totals(vf total[GROUP], const part *p, int64_t i)
{
    UNROLL
    for (int j = 0; j < GROUP; j++)
        total[j] = vf_zero();
    if (p->begun) {
        float begun[GROUP][GROUP];
        read_totals(begun, p, i);
        UNROLL
        for (int j = 0; j < GROUP; j++)
            total[j] = vf_load(begun[j]);
    }
}

static ALWAYS_INLINE void end_totals(const part *p, int64_t i, const vf total[GROUP])
{
    _Alignas(64) float all[GROUP][GROUP];
    UNROLL
    for (int j = 0; j < GROUP; j++)
        vf_store(all[j], total[j]);
    write_totals(p, i, all);
}

#define LINE 64

static ALWAYS_INLINE void multiply_part(const part *p, const bool lies)
{
    _Alignas(64) sums s[UNIT];
    unit_scales scales[2];
    vf total[GROUP];
    cursor next = { p->x, p->w, 0 }, last = next;
    const unsigned char *ahead = p->ahead;
    const int64_t units = p->pairs * ((p->blocks + UNIT - 1) / UNIT);
    int64_t i = 0;
    begin_totals(total, p, 0);
    for (int64_t u = 0; u <= units; u++) {
        multiply_unit(total, s, p, next, u<units, &scales[u % 2], last, u> 0, &scales[1 - u % 2], lies);
        go_on(&next, p);
        for (int64_t n = p->ahead_lines; n > 0 && ahead < p->ahead_end; n--, ahead += LINE)
            __builtin_prefetch(ahead);
        if (u > 0 && go_on(&last, p)) {
            end_totals(p, i++, total);
            if (i < p->pairs)
                begin_totals(total, p, i);
        }
    }
}

/* Of each kind one copy of the code is enough. */
static __attribute__((noinline)) void multiply_laid(const part *p)
{
    multiply_part(p, false);
}

/* q8_0: all whole groups of rows of W against one group of rows of x. */
static __attribute__((noinline)) void multiply_lying(const part *p)
{
    multiply_part(p, true);
}

static ALWAYS_INLINE void lay(w_block *laid, const unsigned char *w, int64_t distance, int64_t rows, int64_t blocks,
                              int32_t dtype)
{
    const row_offsets offsets = offsets_of(distance, rows);
    int64_t i = 0;
    for (; i < blocks; i++, w += BLOCK_BYTES(dtype)) {
        gather_scales(laid[i].scales, w, &offsets);
        lay_numbers(&laid[i], w, distance, rows, dtype);
    }
    for (; i % UNIT != 0; i++)
        vf_store(laid[i].scales, vf_zero());
}

static ALWAYS_INLINE void multiply(float *y, int64_t ldy, const unsigned char *x, const unsigned char *w, int32_t dtype,
                                   int64_t M, int64_t N, int64_t K, w_block *laid)
{
    const int64_t blocks = K / MMI_BLOCK, distance = blocks * BLOCK_BYTES(dtype);
    part p = { .x_step = GROUP * mmi_quantized_row(K), .ldy = ldy, .rows = M };
    int64_t j = 0;
    if (dtype == MM_Q8_0 && M <= GROUP && N >= GROUP) {
        j = N - N % GROUP;
        p.pairs = N / GROUP;
        p.blocks = blocks;
        p.x = x;
        p.x_step = 0;
        p.w = w + 2;
        p.w_step = GROUP * distance;
        p.block_step = BLOCK_BYTES(dtype);
        p.row_step = distance;
        p.y = y;
        p.y_step = p.cols = GROUP;
        p.offsets = offsets_of(distance, GROUP);
        p.ahead = w + GROUP * distance;
        p.ahead_end = w + j * distance;
        p.ahead_lines = GROUP * UNIT * BLOCK_BYTES(dtype) / LINE + 1;
        multiply_lying(&p);
    }
    p.x_step = GROUP * mmi_quantized_row(K);
    p.pairs = (M + GROUP - 1) / GROUP;
    p.w = (const unsigned char *)laid->numbers;
    p.w_step = 0;
    p.block_step = sizeof *laid;
    p.row_step = MMI_BLOCK;
    p.y_step = GROUP * ldy;
    p.laid = laid;
    for (; j < N; j += GROUP)
        for (int64_t b = 0; b < blocks; b += MOST_BLOCKS) {
            p.cols = least(GROUP, N - j);
            p.blocks = least(MOST_BLOCKS, blocks - b);
            p.x = x + b * (int64_t)sizeof(x_block);
            p.y = y + j;
            p.begun = b > 0;
            /* The same share of the next rows, which lie behind these. */
            p.ahead = w + (j + GROUP) * distance + GROUP * b * BLOCK_BYTES(dtype);
            p.ahead_end = p.ahead + (j + 2 * GROUP <= N ? GROUP * p.blocks * BLOCK_BYTES(dtype) : 0);
            p.ahead_lines = GROUP * UNIT * BLOCK_BYTES(dtype) / LINE / p.pairs + 1;
            lay(laid, w + j * distance + b * BLOCK_BYTES(dtype), distance, p.cols, p.blocks, dtype);
            tiles_written();
            multiply_laid(&p);
        }
}

void SIMD(gemm_blocks)(float *y, int64_t ldy, const void *x, const void *w, int32_t dtype, int64_t M, int64_t N,
                       int64_t K, float *scratch)
{
    if (M == 0 || N == 0)
        return;
    if (K == 0) { /* no block begins y */
        mmi_c_gemv_blocks(y, ldy, x, w, dtype, M, N, K);
        return;
    }
    block_tiles_begin();
    if (dtype == MM_Q8_0)
        multiply(y, ldy, x, w, MM_Q8_0, M, N, K, (w_block *)(void *)scratch);
    else
        multiply(y, ldy, x, w, MM_Q4_0, M, N, K, (w_block *)(void *)scratch);
    tiles_end();
}
