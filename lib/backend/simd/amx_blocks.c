/* Rows against weights in blocks, on tiles: a tile product makes the exact sums of a block of up to 16 rows of x and a
 * strip of W, whose lines are as a tile wants those of its right operand. They go through memory into vectors over the
 * rows of W, which are converted, scaled and added up. */
#include <stdbool.h>
#include <string.h>

#include "backend/simd/amx.h"
#include "backend/simd/table.h"
#include "backend/strips.h"

#define GROUP TILE_LINES /* rows of x in a tile, at most */
#define MOST_GROUPS 4    /* that meet a strip before the next one */
#define MOST_SCALES 128  /* blocks of x whose scales are at hand, of all groups together */
#define MOST_WIDE 32     /* blocks of a strip of q4_0 that are bytes once for all groups */
#define UNIT 4           /* blocks on their way together, each with a tile for its sums, and with memory for them */
_Static_assert(MOST_WIDE % UNIT == 0 && MOST_WIDE * MOST_GROUPS <= MOST_SCALES, "their scales have room");

/* A block's scales of a group of rows of x. */
typedef struct scales {
    float of[GROUP];
} scales;

/* A block's sums. */
typedef struct sums {
    int32_t of[GROUP][MMI_STRIP]; /* [row of x][row of W] */
} sums;

/* A block of a strip of q4_0 as signed bytes. */
typedef struct wide_block {
    int8_t numbers[MMI_BLOCK / 4][MMI_STRIP_LINE];
} wide_block;

/* Groups of rows of x against strips, a pair after the other, groups of a strip first, in some blocks. */
typedef struct part {
    int64_t groups, strips, blocks;
    const unsigned char *x; /* first of those blocks of the first row */
    int64_t x_row;          /* bytes from row to row */
    int64_t rows;           /* of x; the last group ends with the last one, and may share rows with the one before */
    const scales *x_scales; /* [groups][blocks] */
    const unsigned char *w; /* first of those blocks of the first strip */
    int64_t strip;          /* bytes from one to the next */
    wide_block *wide;       /* of q4_0: what the first group makes, a strip's if others read it, or a unit's */
    float *y;               /* [rows, cols] */
    int64_t ldy, cols;
    bool begun;                 /* y has the sum of earlier blocks */
    int64_t ahead;              /* bytes of W from what is read to what is asked for */
    unsigned asks[MOST_GROUPS]; /* bit i: at block i of a unit the group asks for lines of W */
} part;

/* A unit of a pair. */
typedef struct cursor {
    int64_t group, strip, left; /* blocks, this unit's among them */
    const unsigned char *x, *w;
    const scales *x_scales;
    wide_block *wide;
} cursor;

/* The first row of x in a group. */
static ALWAYS_INLINE int64_t group_at(const part *p, int64_t group)
{
    return p->rows > GROUP ? least(group * GROUP, p->rows - GROUP) : 0;
}

static ALWAYS_INLINE cursor cursor_at(const part *p, int64_t group, int64_t strip)
{
    return (cursor){ group,
                     strip,
                     p->blocks,
                     p->x + group_at(p, group) * p->x_row,
                     p->w + strip * p->strip,
                     p->x_scales + group * p->blocks,
                     p->wide };
}

static ALWAYS_INLINE bool is_last_of_pair(const cursor *c)
{
    return c->left <= UNIT;
}

static ALWAYS_INLINE void go_on(cursor *c, const part *p, int32_t dtype)
{
    if (is_last_of_pair(c)) {
        const bool last = c->group + 1 == p->groups;
        *c = cursor_at(p, last ? 0 : c->group + 1, c->strip + last);
        return;
    }
    c->left -= UNIT;
    c->x += UNIT * MMI_BLOCK;
    c->w += mmi_strip_scales_at(dtype, UNIT);
    c->x_scales += UNIT;
    c->wide += p->groups > 1 ? UNIT : 0;
}

/* Lines of W that come later are asked for with each block: all those of a unit at once would keep a core from asking
 * for anything else. Groups of a strip share that out. */
#define AHEAD 8192 /* bytes; several groups ask for the next strip */

static ALWAYS_INLINE void fetch_some(const part *p, const cursor *c, int at, int32_t dtype)
{
    if (!(p->asks[c->group] >> at & 1))
        return;
    /* the first of two blocks has a line more, their scales' */
    const int lines = (int)mmi_strip_lines(dtype) + 1, second = at % 2;
    const unsigned char *w =
        c->w + p->ahead + mmi_strip_scales_at(dtype, at - second) + second * lines * MMI_STRIP_LINE;
    UNROLL
    for (int i = 0; i < lines - second; i++)
        __builtin_prefetch(w + i * MMI_STRIP_LINE);
}

/* --- Products --- */

/* Tiles wait for bytes that have just been written, so all of a unit's are made before its first product. */
static ALWAYS_INLINE void widen_unit(const cursor *c)
{
    if (c->group > 0)
        return;
    const __m512i four_bits = _mm512_set1_epi8(15), eight = _mm512_set1_epi8(8);
    UNROLL
    for (int at = 0; at < UNIT; at++) {
        if (at >= c->left)
            break;
        const unsigned char *w = c->w + mmi_strip_numbers_at(MM_Q4_0, c->left, at);
        UNROLL
        for (int s = 0; s < MMI_BLOCK / 8; s++) {
            __m512i both = _mm512_loadu_si512(w + s * MMI_STRIP_LINE);
            __m512i low = _mm512_and_si512(both, four_bits);
            __m512i high = _mm512_and_si512(_mm512_srli_epi16(both, 4), four_bits);
            _mm512_store_si512(c->wide[at].numbers[s], _mm512_sub_epi8(low, eight));
            _mm512_store_si512(c->wide[at].numbers[s + MMI_BLOCK / 8], _mm512_sub_epi8(high, eight));
        }
    }
    tiles_written();
}

static ALWAYS_INLINE const void *w_block(const cursor *c, int at, int32_t dtype)
{
    return dtype == MM_Q8_0 ? (const void *)(c->w + mmi_strip_numbers_at(dtype, c->left, at)) : &c->wide[at];
}

/* The bits of this float and a sum make those of a float, of which it is taken off again: both are exact. */
#define BIAS 0x1.8p23f
#define BIAS_BITS 0x4b400000

/* Of row i of x. While tile instructions are on their way one unit is left for conversions, products and FMAs, and
 * additions have another. So a half of the sums become floats by two additions. */
static ALWAYS_INLINE vf exact_sums(const sums *s, int i)
{
    const __m512i whole = _mm512_load_si512(s->of[i]);
    if (i % 2 == 0)
        return _mm512_cvtepi32_ps(whole);
    return vf_sub(_mm512_castsi512_ps(_mm512_add_epi32(whole, _mm512_set1_epi32(BIAS_BITS))), vf_set(BIAS));
}

static ALWAYS_INLINE void add_block(vf total[GROUP], const sums *s, const cursor *c, int at, int32_t dtype,
                                    const int rows)
{
    if (at >= c->left)
        return;
    const vf w_scales = vf_load_f16(c->w + mmi_strip_scales_at(dtype, at));
    const float *x_scales = c->x_scales[at].of;
    UNROLL
    for (int i = 0; i < rows; i++)
        total[i] = vf_fma(vf_mul(vf_set(x_scales[i]), w_scales), exact_sums(s, i), total[i]);
}

#define MULTIPLY(sum, left_tile, right_tile, at)                                                                       \
    do {                                                                                                               \
        if ((at) >= next->left)                                                                                        \
            break;                                                                                                     \
        _tile_loadd(left_tile, next->x + (at)*MMI_BLOCK, p->x_row);                                                    \
        _tile_loadd(right_tile, w_block(next, at, dtype), MMI_STRIP_LINE);                                             \
        _tile_zero(sum);                                                                                               \
        _tile_dpbssd(sum, left_tile, right_tile);                                                                      \
    } while (0)

/* Unit `next` begins, if there is one, while `last`, if there is one, is added up. Sums leave their tile two blocks
 * after they have begun, and are read two more after that. */
static ALWAYS_INLINE void multiply_unit(vf total[GROUP], sums s[UNIT], const part *p, const cursor *next, bool begins,
                                        const cursor *last, bool ends, int32_t dtype, const int rows)
{
    if (begins && dtype == MM_Q4_0)
        widen_unit(next);
    if (begins)
        MULTIPLY(0, 1, 2, 0);
    if (ends) {
        _tile_stored(6, &s[2], 64);
        tiles_stored();
        fetch_some(p, last, 0, dtype);
        add_block(total, &s[0], last, 0, dtype, rows);
    }
    if (begins)
        MULTIPLY(3, 4, 5, 1);
    if (ends) {
        _tile_stored(7, &s[3], 64);
        tiles_stored();
        fetch_some(p, last, 1, dtype);
        add_block(total, &s[1], last, 1, dtype, rows);
    }
    if (begins) {
        MULTIPLY(6, 1, 2, 2);
        _tile_stored(0, &s[0], 64);
    }
    if (ends) {
        tiles_stored();
        fetch_some(p, last, 2, dtype);
        add_block(total, &s[2], last, 2, dtype, rows);
    }
    if (begins) {
        MULTIPLY(7, 4, 5, 3);
        _tile_stored(3, &s[1], 64);
    }
    if (ends) {
        tiles_stored();
        fetch_some(p, last, 3, dtype);
        add_block(total, &s[3], last, 3, dtype, rows);
    }
}

/* A pair's part of y; columns are what is left of the last strip. Rows before the first one are an earlier group's. */
typedef struct square {
    float *y;
    int64_t ldy, first, rows;
    vmask cols;
} square;

static ALWAYS_INLINE square square_of(const part *p, const cursor *c)
{
    const int64_t row = group_at(p, c->group), col = c->strip * MMI_STRIP;
    return (square){ p->y + row * p->ldy + col, p->ldy, c->group * GROUP - row, least(p->rows, GROUP),
                     vf_tail(p->cols - col) };
}

/* Row i, or the last one. */
static ALWAYS_INLINE float *row_of(const square *at, int64_t i)
{
    return at->y + least(i, at->rows - 1) * at->ldy;
}

/* Lines of y that another core has had take a while to come, and what a core writes waits for them in order: the sums
 * that tiles leave, too. So they are asked for before a pair's blocks. */
static ALWAYS_INLINE void begin_totals(vf total[GROUP], const part *p, const cursor *c, const int rows)
{
    const square at = square_of(p, c);
    UNROLL
    for (int i = 0; i < rows; i++) {
        fetch_to_write(row_of(&at, i));
        total[i] = vf_zero();
    }
    if (p->begun) {
        UNROLL
        for (int i = 0; i < rows; i++)
            total[i] = vf_load_tail(row_of(&at, i), at.cols);
    }
}

static ALWAYS_INLINE void end_totals(const vf total[GROUP], const part *p, const cursor *c, const int rows)
{
    const square at = square_of(p, c);
    UNROLL
    for (int i = 0; i < rows; i++)
        vf_store_tail(row_of(&at, i), i >= at.first && i < at.rows ? at.cols : 0, total[i]);
}

static ALWAYS_INLINE void multiply_part(const part *p, int32_t dtype, const int rows)
{
    _Alignas(64) sums s[UNIT];
    vf total[GROUP];
    cursor next = cursor_at(p, 0, 0), last = next;
    const int64_t units = p->groups * p->strips * ((p->blocks + UNIT - 1) / UNIT);
    memset(s, 0, sizeof s); /* a group of fewer rows leaves the others as they are */
    for (int64_t u = 0; u <= units; u++) {
        const bool begins = u<units, ends = u> 0;
        if (ends && last.left == p->blocks)
            begin_totals(total, p, &last, rows);
        multiply_unit(total, s, p, &next, begins, &last, ends, dtype, rows);
        go_on(&next, p, dtype);
        if (!ends)
            continue;
        if (is_last_of_pair(&last))
            end_totals(total, p, &last, rows);
        go_on(&last, p, dtype);
    }
}

/* --- Rows of x --- */

/* to[b] = the scales of block b of `rows` rows, 0 of others. */
static void turn_scales(scales *to, const unsigned char *from, int64_t x_row, int64_t rows, int64_t blocks)
{
    for (int64_t b = 0; b < blocks; b += VL) {
        vf r[VL];
        for (int i = 0; i < VL; i++)
            r[i] = i < rows ? vf_load_tail((const float *)(const void *)(from + i * x_row) + b, vf_tail(blocks - b)) :
                              vf_zero();
        vf_transpose(r);
        for (int i = 0; i < VL && b + i < blocks; i++)
            vf_store(to[b + i].of, r[i]);
    }
}

/* A block's product: tiles 0, 3, 6 and 7 are sums, 1 and 4 have `rows` lines of 32 bytes, 2 and 5 are 8 lines. */
static void block_tiles_begin(int64_t rows)
{
    const uint8_t lines = (uint8_t)rows;
    const tile_config tiles = {
        .palette = 1,
        .row_bytes = { 64, 32, 64, 64, 32, 64, 64, 64 },
        .rows = { lines, lines, 8, lines, lines, 8, lines, lines },
    };
    tiles_begin(&tiles);
}

/* Half as many rows take half of the vectors' instructions. */
static void multiply_some(const part *p, int32_t dtype)
{
    const bool half = p->rows <= GROUP / 2;
    if (dtype == MM_Q8_0 && half)
        multiply_part(p, MM_Q8_0, GROUP / 2);
    else if (dtype == MM_Q8_0)
        multiply_part(p, MM_Q8_0, GROUP);
    else if (half)
        multiply_part(p, MM_Q4_0, GROUP / 2);
    else
        multiply_part(p, MM_Q4_0, GROUP);
}

/* Up to MOST_GROUPS groups. */
static void multiply(float *y, int64_t ldy, const unsigned char *x, const unsigned char *w, int32_t dtype, int64_t M,
                     int64_t N, int64_t K)
{
    _Alignas(64) scales x_scales[MOST_SCALES];
    _Alignas(64) wide_block wide[MOST_WIDE];
    const int64_t blocks = K / MMI_BLOCK, strip = (int64_t)mmi_strips_bytes(dtype, MMI_STRIP, K);
    part p = { .groups = (M + GROUP - 1) / GROUP,
               .strips = (N + MMI_STRIP - 1) / MMI_STRIP,
               .x_row = mmi_quantized_row(K),
               .rows = M,
               .x_scales = x_scales,
               .strip = strip,
               .wide = wide,
               .y = y,
               .ldy = ldy,
               .cols = N };
    /* whole units, so that of an odd number of blocks the last one stands alone in the last part */
    const int64_t most = p.groups > 1 && dtype == MM_Q4_0 ? MOST_WIDE : MOST_SCALES / p.groups / UNIT * UNIT;
    p.ahead = p.groups > 1 ? strip : AHEAD;
    for (int at = 0; at < UNIT; at++)
        p.asks[at % p.groups] |= 1U << at;
    block_tiles_begin(least(M, GROUP));
    for (int64_t b = 0; b < blocks; b += most) {
        p.blocks = least(most, blocks - b);
        p.x = x + b * MMI_BLOCK;
        p.w = w + mmi_strip_scales_at(dtype, b);
        p.begun = b > 0;
        for (int64_t g = 0; g < p.groups; g++)
            turn_scales(x_scales + g * p.blocks, x + group_at(&p, g) * p.x_row + K + b * 4, p.x_row, least(M, GROUP),
                        p.blocks);
        multiply_some(&p, dtype);
    }
    tiles_end();
}

/* Fewer meet W faster without tiles. */
#define LEAST_ROWS(dtype) ((dtype) == MM_Q8_0 ? 5 : 7)

void SIMD(gemm_blocks)(float *y, int64_t ldy, const void *x, const void *w, int32_t dtype, int64_t M, int64_t N,
                       int64_t K)
{
    if (M < LEAST_ROWS(dtype) || N == 0 || K == 0) {
        SIMD_NAME(gemm_blocks_asking, vnni)(y, ldy, x, w, dtype, M, N, K);
        return;
    }
    for (int64_t i = 0; i < M; i += MOST_GROUPS * GROUP)
        multiply(y + i * ldy, ldy, (const unsigned char *)x + i * mmi_quantized_row(K), w, dtype,
                 least(MOST_GROUPS * GROUP, M - i), N, K);
}
