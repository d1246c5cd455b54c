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

/* The numbers of the block at w of as many rows. `rows` is a constant where it is GROUP. */
static ALWAYS_INLINE void lay_numbers(w_block *to, const unsigned char *w, int64_t distance, int64_t rows, int32_t dtype)
{
    UNROLL
    for (int j = 0; j < GROUP; j++) {
        __m256i numbers = block_numbers(w + least(j, rows - 1) * distance, dtype);
        if (dtype == MM_Q4_0)
            numbers = _mm256_sub_epi8(numbers, _mm256_set1_epi8(8));
        _mm256_storeu_si256((void *)to->numbers[j], numbers);
    }
}

/* --- Products --- */

/* Blocks that are on their way together, each with a tile for its sums, and with memory for them. */
#define UNIT 4

/* A group of rows of W, `blocks` blocks of it, and all rows of x. Blocks beyond them, up to a whole unit, are 0. */
typedef struct part {
    float *y; /* [rows, cols] */
    int64_t ldy, rows, cols, blocks;
    const unsigned char *x; /* the first of the blocks of the first group */
    int64_t group_step;
    const unsigned char *numbers; /* of W, there or where they lie */
    int64_t block_step, row_step;
    const w_block *w;
    bool begun; /* y has the sum of earlier blocks */
    const unsigned char *ahead, *ahead_end; /* what is read of W after this */
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
    const unsigned char *group; /* of rows of x */
    int64_t b;
} cursor;

static ALWAYS_INLINE const x_block *x_at(const part *p, cursor c, int64_t at)
{
    return c.b + at < p->blocks ? (const x_block *)(const void *)c.group + c.b + at : &nothing;
}

static ALWAYS_INLINE const unsigned char *w_at(const part *p, cursor c, int64_t at)
{
    return p->numbers + (c.b + at < p->blocks ? c.b + at : 0) * p->block_step;
}

/* True: the group is done. */
static ALWAYS_INLINE bool go_on(cursor *c, const part *p)
{
    c->b += UNIT;
    if (c->b < p->blocks)
        return false;
    c->b = 0;
    c->group += p->group_step;
    return true;
}

#define MULTIPLY(sum, left, right, at)                                                                                 \
    do {                                                                                                               \
        _tile_loadd(left, w_at(p, next, at), p->row_step);                                                             \
        _tile_loadd(right, x_at(p, next, at)->numbers, 64);                                                            \
        _tile_zero(sum);                                                                                               \
        _tile_dpbssd(sum, left, right);                                                                                \
    } while (0)

static ALWAYS_INLINE void add_block(vf total[GROUP], const sums *s, const part *p, cursor c, int64_t at)
{
    const vf scales = vf_load(x_at(p, c, at)->scales), back = vf_set(-BIAS);
    const __m512i bits = _mm512_castps_si512(vf_set(BIAS));
    const float *w_scales = p->w[c.b + at].scales;
    UNROLL
    for (int j = 0; j < GROUP; j++) {
        vf exact = vf_add(as_floats(_mm512_add_epi32(_mm512_load_si512(s->of[j]), bits)), back);
        total[j] = vf_fma(vf_mul(vf_set(w_scales[j]), scales), exact, total[j]);
    }
}

/* Unit `next` begins, if there is one, while `last`, if there is one, is added up. Sums leave their tile two blocks after
 * they have begun, and are read two more after that. */
static ALWAYS_INLINE void multiply_unit(vf total[GROUP], sums s[UNIT], const part *p, cursor next, const bool begins,
                                        cursor last, const bool ends)
{
    if (begins)
        MULTIPLY(0, 1, 2, 0);
    if (ends) {
        _tile_stored(6, &s[2], 64);
        tiles_stored();
        add_block(total, &s[0], p, last, 0);
    }
    if (begins)
        MULTIPLY(3, 4, 5, 1);
    if (ends) {
        _tile_stored(7, &s[3], 64);
        tiles_stored();
        add_block(total, &s[1], p, last, 1);
    }
    if (begins) {
        MULTIPLY(6, 1, 2, 2);
        _tile_stored(0, &s[0], 64);
    }
    if (ends) {
        tiles_stored();
        add_block(total, &s[2], p, last, 2);
    }
    if (begins) {
        MULTIPLY(7, 4, 5, 3);
        _tile_stored(3, &s[1], 64);
    }
    if (ends) {
        tiles_stored();
        add_block(total, &s[3], p, last, 3);
    }
}

/* Rows of y, up to GROUP of them from row i on, from or to what add_block() has. */
static void read_totals(float total[GROUP][GROUP], const part *p, int64_t i)
{
    vf rows[GROUP];
    for (int j = 0; j < GROUP; j++)
        rows[j] = i + j < p->rows ? vf_load_tail(p->y + (i + j) * p->ldy, vf_tail(p->cols)) : vf_zero();
    vf_transpose(rows);
    for (int j = 0; j < GROUP; j++)
        vf_store(total[j], rows[j]);
}

static void write_totals(const part *p, int64_t i, float total[GROUP][GROUP])
{
    vf rows[GROUP];
    for (int j = 0; j < GROUP; j++)
        rows[j] = vf_load(total[j]);
    vf_transpose(rows);
    for (int j = 0; j < GROUP && i + j < p->rows; j++)
        vf_store_tail(p->y + (i + j) * p->ldy, vf_tail(p->cols), rows[j]);
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

static void multiply_part(const part *p)
{
    _Alignas(64) sums s[UNIT];
    vf total[GROUP];
    cursor next = { p->x, 0 }, last = next;
    int64_t units = (p->rows + GROUP - 1) / GROUP * ((p->blocks + UNIT - 1) / UNIT), i = 0;
    const unsigned char *ahead = p->ahead;
    const int64_t lines = (p->ahead_end - ahead + LINE - 1) / LINE / units + 1;
    begin_totals(total, p, 0);
    multiply_unit(total, s, p, next, true, last, false);
    go_on(&next, p);
    while (--units > 0) {
        multiply_unit(total, s, p, next, true, last, true);
        go_on(&next, p);
        for (int64_t n = lines; n > 0 && ahead < p->ahead_end; n--, ahead += LINE)
            __builtin_prefetch(ahead);
        if (go_on(&last, p)) {
            end_totals(p, i, total);
            i += GROUP;
            begin_totals(total, p, i);
        }
    }
    multiply_unit(total, s, p, next, false, last, true);
    end_totals(p, i, total);
}

static ALWAYS_INLINE void multiply(float *y, int64_t ldy, const unsigned char *x, const unsigned char *w, int32_t dtype,
                                   int64_t M, int64_t N, int64_t K, w_block *laid)
{
    const int64_t blocks = K / MMI_BLOCK, distance = blocks * BLOCK_BYTES(dtype);
    for (int64_t j = 0; j < N; j += GROUP)
        for (int64_t b = 0; b < blocks; b += MOST_BLOCKS) {
            const unsigned char *from = w + j * distance + b * BLOCK_BYTES(dtype);
            part p = { .y = y + j,
                       .ldy = ldy,
                       .rows = M,
                       .cols = least(GROUP, N - j),
                       .blocks = least(MOST_BLOCKS, blocks - b),
                       .x = x + b * (int64_t)sizeof(x_block),
                       .group_step = GROUP * mmi_quantized_row(K),
                       .numbers = (const unsigned char *)laid->numbers,
                       .block_step = sizeof *laid,
                       .row_step = MMI_BLOCK,
                       .w = laid,
                       .begun = b > 0 };
            const bool as_it_lies = dtype == MM_Q8_0 && M <= GROUP && p.cols == GROUP;
            if (as_it_lies) {
                p.numbers = from + 2;
                p.block_step = BLOCK_BYTES(MM_Q8_0);
                p.row_step = distance;
            }
            /* The same share of the next rows, which lie behind these. */
            p.ahead = w + (j + GROUP) * distance + GROUP * b * BLOCK_BYTES(dtype);
            p.ahead_end = p.ahead + GROUP * p.blocks * BLOCK_BYTES(dtype);
            if (j + 2 * GROUP > N)
                p.ahead_end = p.ahead;
            const row_offsets offsets = offsets_of(distance, p.cols);
            int64_t i = 0;
            for (; i < p.blocks; i++) {
                const unsigned char *block = from + i * BLOCK_BYTES(dtype);
                gather_scales(laid[i].scales, block, &offsets);
                if (as_it_lies)
                    continue;
                if (p.cols == GROUP)
                    lay_numbers(&laid[i], block, distance, GROUP, dtype);
                else
                    lay_numbers(&laid[i], block, distance, p.cols, dtype);
            }
            for (; i % UNIT != 0; i++)
                memset(laid[i].scales, 0, sizeof laid[i].scales);
            tiles_written();
            multiply_part(&p);
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
