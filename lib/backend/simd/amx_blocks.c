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
#define UNIT 4           /* blocks on their way together, each with a tile for its sums, and with memory for them */

/* A block's scales of a group of rows of x. */
typedef struct scales {
    float of[GROUP];
} scales;

/* A block's sums, as a tile leaves them: the bits of floats, see BIAS. */
typedef struct sums {
    int32_t of[GROUP][MMI_STRIP]; /* [row of x][row of W] */
} sums;

/* A block of a strip of q4_0 as signed bytes. */
typedef struct wide_block {
    int8_t numbers[MMI_BLOCK / 4][MMI_STRIP_LINE];
} wide_block;

/* Groups of rows of x against strips, a pair after the other, groups of a strip first, in some blocks. */
typedef struct part {
    int64_t groups, strips, first, blocks, of_strip; /* `blocks` from `first` on, of so many of a strip */
    const unsigned char *x;                          /* first of those blocks of the first row */
    int64_t x_row;                                   /* bytes from row to row */
    int64_t rows;           /* of x; the last group ends with the last one, and may share rows with the one before */
    const scales *x_scales; /* [groups][blocks] */
    const sums *biases;     /* what sums begin with */
    const unsigned char *w; /* first strip */
    int64_t strip;          /* bytes from one to the next */
    float *y;               /* [rows, cols] */
    int64_t ldy, cols;
    bool begun;          /* y has the sum of earlier blocks */
    int64_t ahead_bytes; /* of W, asked for with each block */
} part;

/* Blocks `b` and on of a pair. */
typedef struct cursor {
    int64_t group, strip, b;
    const unsigned char *x, *w;
    const scales *x_scales;
} cursor;

/* The first row of x in a group. */
static ALWAYS_INLINE int64_t group_at(const part *p, int64_t group)
{
    return p->rows > GROUP ? least(group * GROUP, p->rows - GROUP) : 0;
}

static ALWAYS_INLINE cursor cursor_at(const part *p, int64_t group, int64_t strip)
{
    return (cursor){
        group, strip, 0, p->x + group_at(p, group) * p->x_row, p->w + strip * p->strip, p->x_scales + group * p->blocks
    };
}

/* True: the pair is done. */
static ALWAYS_INLINE bool go_on(cursor *c, const part *p)
{
    c->b += UNIT;
    if (c->b < p->blocks)
        return false;
    bool last = c->group + 1 == p->groups;
    *c = cursor_at(p, last ? 0 : c->group + 1, c->strip + last);
    return true;
}

/* What is asked for of W: the next lines, up to `to`, which goes on with each block. All those of a unit at once would
 * keep a core from asking for anything else. */
#define AHEAD 8192 /* bytes */
typedef struct ahead {
    const unsigned char *at, *to;
    int64_t step;
} ahead;

static ALWAYS_INLINE void fetch_some(ahead *a)
{
    for (a->to += a->step; a->at < a->to; a->at += MMI_STRIP_LINE)
        __builtin_prefetch(a->at);
}

/* --- Products --- */

static ALWAYS_INLINE const void *w_block(const part *p, const cursor *c, int64_t at, wide_block *wide, int32_t dtype)
{
    const unsigned char *w = c->w + mmi_strip_numbers_at(dtype, p->of_strip, p->first + c->b + at);
    if (dtype == MM_Q8_0)
        return w;
    const __m512i four_bits = _mm512_set1_epi8(15), eight = _mm512_set1_epi8(8);
    UNROLL
    for (int s = 0; s < MMI_BLOCK / 8; s++) {
        __m512i both = _mm512_loadu_si512(w + s * MMI_STRIP_LINE);
        __m512i low = _mm512_and_si512(both, four_bits), high = _mm512_and_si512(_mm512_srli_epi16(both, 4), four_bits);
        _mm512_store_si512(wide->numbers[s], _mm512_sub_epi8(low, eight));
        _mm512_store_si512(wide->numbers[s + MMI_BLOCK / 8], _mm512_sub_epi8(high, eight));
    }
    tiles_written();
    return wide;
}

/* The bits of this float and a sum make those of a float, of which it is taken off again: both are exact. So sums begin
 * with its bits, and become floats by a subtraction, which another unit does than multiplications; conversions are done
 * by the same one, and while there are tile instructions on the way there is only one of it. */
#define BIAS 0x1.8p23f
#define BIAS_BITS 0x4b400000

static ALWAYS_INLINE void add_block(vf total[GROUP], const sums *s, const part *p, const cursor *c, int64_t at,
                                    int32_t dtype)
{
    if (c->b + at >= p->blocks)
        return;
    const vf w_scales = vf_load_f16(c->w + mmi_strip_scales_at(dtype, p->first + c->b + at)), back = vf_set(-BIAS);
    const float *x_scales = c->x_scales[c->b + at].of;
    UNROLL
    for (int i = 0; i < GROUP; i++) {
        vf exact = vf_add(_mm512_castsi512_ps(_mm512_load_si512(s->of[i])), back);
        total[i] = vf_fma(vf_mul(vf_set(x_scales[i]), w_scales), exact, total[i]);
    }
}

#define MULTIPLY(sum, left, right, at)                                                                                 \
    do {                                                                                                               \
        if (next->b + (at) >= p->blocks)                                                                               \
            break;                                                                                                     \
        _tile_loadd(left, next->x + (next->b + (at)) * MMI_BLOCK, p->x_row);                                           \
        _tile_loadd(right, w_block(p, next, at, &wide[at], dtype), MMI_STRIP_LINE);                                    \
        _tile_loadd(sum, p->biases, sizeof p->biases->of[0]);                                                          \
        _tile_dpbssd(sum, left, right);                                                                                \
    } while (0)

/* Unit `next` begins, if there is one, while `last`, if there is one, is added up. Sums leave their tile two blocks
 * after they have begun, and are read two more after that. */
static ALWAYS_INLINE void multiply_unit(vf total[GROUP], sums s[UNIT], wide_block wide[UNIT], const part *p,
                                        const cursor *next, bool begins, const cursor *last, bool ends, ahead *next_w,
                                        int32_t dtype)
{
    if (begins)
        MULTIPLY(0, 1, 2, 0);
    if (ends) {
        _tile_stored(6, &s[2], 64);
        tiles_stored();
        fetch_some(next_w);
        add_block(total, &s[0], p, last, 0, dtype);
    }
    if (begins)
        MULTIPLY(3, 4, 5, 1);
    if (ends) {
        _tile_stored(7, &s[3], 64);
        tiles_stored();
        fetch_some(next_w);
        add_block(total, &s[1], p, last, 1, dtype);
    }
    if (begins) {
        MULTIPLY(6, 1, 2, 2);
        _tile_stored(0, &s[0], 64);
    }
    if (ends) {
        tiles_stored();
        fetch_some(next_w);
        add_block(total, &s[2], p, last, 2, dtype);
    }
    if (begins) {
        MULTIPLY(7, 4, 5, 3);
        _tile_stored(3, &s[1], 64);
    }
    if (ends) {
        tiles_stored();
        fetch_some(next_w);
        add_block(total, &s[3], p, last, 3, dtype);
    }
}

/* A pair's part of y; columns are what is left of the last strip. */
typedef struct square {
    float *y;
    int64_t ldy, rows;
    vmask cols;
} square;

static ALWAYS_INLINE square square_of(const part *p, const cursor *c)
{
    return (square){ p->y + group_at(p, c->group) * p->ldy + c->strip * MMI_STRIP, p->ldy, least(p->rows, GROUP),
                     vf_tail(p->cols - c->strip * MMI_STRIP) };
}

/* Row i, or the last one. */
static ALWAYS_INLINE float *row_of(const square *to, int64_t i)
{
    return to->y + least(i, to->rows - 1) * to->ldy;
}

/* Lines of y that another core has had take a while to come, and what a core writes waits for them in order: the sums
 * that tiles leave, too. So they are asked for before a pair's blocks. */
static ALWAYS_INLINE void begin_totals(vf total[GROUP], const part *p, const cursor *c)
{
    square to = square_of(p, c);
    UNROLL
    for (int i = 0; i < GROUP; i++)
        fetch_to_write(row_of(&to, i));
    UNROLL
    for (int i = 0; i < GROUP; i++)
        total[i] = vf_zero();
    if (p->begun) {
        UNROLL
        for (int i = 0; i < GROUP; i++)
            total[i] = vf_load_tail(row_of(&to, i), to.cols);
    }
}

/* Rows that the last group shares with the one before are written by that one alone: they have gone on already. */
static ALWAYS_INLINE void end_totals(const vf total[GROUP], const part *p, const cursor *c)
{
    square to = square_of(p, c);
    const int64_t first = c->group * GROUP - group_at(p, c->group);
    UNROLL
    for (int i = 0; i < GROUP; i++)
        vf_store_tail(row_of(&to, i), i >= first && i < to.rows ? to.cols : 0, total[i]);
}

static ALWAYS_INLINE void multiply_part(const part *p, int32_t dtype)
{
    _Alignas(64) sums s[UNIT];
    _Alignas(64) wide_block wide[UNIT];
    vf total[GROUP];
    cursor next = cursor_at(p, 0, 0), last = next;
    const unsigned char *w = p->w + mmi_strip_scales_at(dtype, p->first) + AHEAD;
    ahead next_w = { w, w, p->ahead_bytes };
    const int64_t units = p->groups * p->strips * ((p->blocks + UNIT - 1) / UNIT);
    memset(s, 0, sizeof s); /* a group of fewer rows leaves the others as they are */
    begin_totals(total, p, &last);
    for (int64_t u = 0; u <= units; u++) {
        const bool begins = u<units, ends = u> 0;
        multiply_unit(total, s, wide, p, &next, begins, &last, ends, &next_w, dtype);
        go_on(&next, p);
        if (!ends)
            continue;
        const cursor done = last;
        if (go_on(&last, p)) {
            end_totals(total, p, &done);
            if (last.strip < p->strips)
                begin_totals(total, p, &last);
        }
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

/* Up to MOST_GROUPS groups. */
static ALWAYS_INLINE void multiply(float *y, int64_t ldy, const unsigned char *x, const unsigned char *w, int32_t dtype,
                                   int64_t M, int64_t N, int64_t K)
{
    _Alignas(64) sums biases;
    _Alignas(64) scales x_scales[MOST_SCALES];
    const int64_t blocks = K / MMI_BLOCK, strip = (int64_t)mmi_strips_bytes(dtype, MMI_STRIP, K);
    part p = { .groups = (M + GROUP - 1) / GROUP,
               .strips = (N + MMI_STRIP - 1) / MMI_STRIP,
               .x_row = mmi_quantized_row(K),
               .rows = M,
               .x_scales = x_scales,
               .biases = &biases,
               .of_strip = blocks,
               .w = w,
               .strip = strip,
               .y = y,
               .ldy = ldy,
               .cols = N };
    const int64_t most = MOST_SCALES / p.groups;
    p.ahead_bytes = strip / blocks / p.groups;
    for (int i = 0; i < GROUP; i++)
        _mm512_store_si512(biases.of[i], _mm512_set1_epi32(BIAS_BITS));
    tiles_written();
    block_tiles_begin(least(M, GROUP));
    for (int64_t b = 0; b < blocks; b += most) {
        p.first = b;
        p.blocks = least(most, blocks - b);
        p.x = x + b * MMI_BLOCK;
        p.begun = b > 0;
        for (int64_t g = 0; g < p.groups; g++)
            turn_scales(x_scales + g * p.blocks, x + group_at(&p, g) * p.x_row + K + b * 4, p.x_row, least(M, GROUP),
                        p.blocks);
        multiply_part(&p, dtype);
    }
    tiles_end();
}

/* Few rows meet W faster without tiles. */
#define FEW 8

void SIMD(gemm_blocks)(float *y, int64_t ldy, const void *x, const void *w, int32_t dtype, int64_t M, int64_t N,
                       int64_t K)
{
    if (M <= FEW || N == 0 || K == 0) {
        SIMD_NAME(gemm_blocks_asking, vnni)(y, ldy, x, w, dtype, M, N, K);
        return;
    }
    for (int64_t i = 0; i < M; i += MOST_GROUPS * GROUP) {
        const unsigned char *rows = (const unsigned char *)x + i * mmi_quantized_row(K);
        if (dtype == MM_Q8_0)
            multiply(y + i * ldy, ldy, rows, w, MM_Q8_0, least(MOST_GROUPS * GROUP, M - i), N, K);
        else
            multiply(y + i * ldy, ldy, rows, w, MM_Q4_0, least(MOST_GROUPS * GROUP, M - i), N, K);
    }
}
