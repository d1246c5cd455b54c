/* Large products on tiles: of numbers rounded to bf16, and of float32 and float16 as sums of such numbers.
 *
 * A tile product adds 32 products of bf16 numbers to each of 16 × 16 sums in the time of 16 vector instructions, which
 * is 16 times what those do in float32. So a number is split into bf16 parts, x = high + middle + low, each the nearest
 * to what is left. 24 bits fit into three parts, float16's 11 into two, and the products of parts are added up. Of
 * float32 those of low with middle and low with low are left out: they are below 2^-26 of the whole, a quarter of what
 * rounding one product to float32 costs.
 *
 * What does not add up that way are infinities and NaNs (what is left of infinity is NaN) and numbers whose products
 * could leave float32's range: a panel that holds one is kept as floats, and multiplied by vectors. */
#include <stdbool.h>

#include "backend/c/portable.h"
#include "backend/simd/amx.h"
#include "backend/simd/table.h"
#include "backend/strips.h"

#define DEPTH 512
#define SIDE 32  /* rows of A, or columns of B, in a panel: two tiles */
#define ALONG 32 /* numbers along K in a tile: 16 words of two */
#define PART_BYTES (2 * TILE_BYTES)
#define MOST_PARTS 3

/* Numbers from here on are multiplied as floats: products of smaller ones stay finite. What does so is rare, and had
 * better be small than fast. */
#define HUGE_NUMBER 0x1p62f
#define RARE __attribute__((cold, noinline))

/* How a panel is kept. */
enum { AS_FLOATS = 0 /* else: its parts */ };

/* What a panel ends with. */
typedef struct trailer {
    int32_t kind;
    int32_t unused[15]; /* panels begin at cache lines */
} trailer;

static int64_t steps_of(int64_t K)
{
    return (K + ALONG - 1) / ALONG;
}

static int parts_of(int32_t round)
{
    return round == MM_BF16 ? 1 : round == MM_F16 ? 2 : MOST_PARTS;
}

static int64_t panel_bytes(int64_t K, int32_t round)
{
    return steps_of(K) * parts_of(round) * PART_BYTES + (int64_t)sizeof(trailer);
}

int64_t SIMD(gemm_panel)(int64_t count, int64_t K, int32_t round)
{
    return count / SIDE * panel_bytes(K, round) / (int64_t)sizeof(float);
}

void SIMD(gemm_shape)(int64_t *depth, int64_t *a_rows, int64_t *b_cols)
{
    *depth = DEPTH;
    *a_rows = *b_cols = SIDE;
}

static trailer *trailer_of(void *panel, int64_t K, int32_t round)
{
    return (trailer *)(void *)((unsigned char *)panel + panel_bytes(K, round) - sizeof(trailer));
}

static int32_t kind_of(const void *panel, int64_t K, int32_t round)
{
    trailer t;
    memcpy(&t, (const unsigned char *)panel + panel_bytes(K, round) - sizeof t, sizeof t);
    return t.kind;
}

/* --- Packing --- */

/* The next 32 words, or the `left` that remain and zeros behind them. */
static ALWAYS_INLINE vf get_words(const uint16_t *p, int64_t left)
{
    uint16_t rest[ALONG] = { 0 };
    if (left < ALONG)
        p = memcpy(rest, p, (size_t)left * sizeof *p);
    return vf_load((const void *)p);
}

/* 32 numbers as bf16, and their lower and upper 16 as floats again. */
static ALWAYS_INLINE __m512i to_words(vf first, vf second)
{
    return (__m512i)_mm512_cvtne2ps_pbh(second, first);
}
static ALWAYS_INLINE vf first_of(__m512i words)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm512_castsi512_si256(words)), 16));
}
static ALWAYS_INLINE vf second_of(__m512i words)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm512_extracti64x4_epi64(words, 1)), 16));
}

/* Word i of the first 16 beside word i of the second. */
static ALWAYS_INLINE __m512i in_pairs(__m512i words)
{
    static const uint16_t order[32] = { 0, 16, 1, 17, 2,  18, 3,  19, 4,  20, 5,  21, 6,  22, 7,  23,
                                        8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31 };
    return _mm512_permutexvar_epi16(_mm512_loadu_si512((const void *)order), words);
}

/* The larger magnitudes, as the bits of floats, which are in the same order. */
static ALWAYS_INLINE __m512i larger(__m512i most, vf v)
{
    return _mm512_max_epu32(most, _mm512_and_si512(_mm512_castps_si512(v), _mm512_set1_epi32(0x7FFFFFFF)));
}

/* 16 lines (rows of A, or columns of B) of 32 numbers each, as both operands' tiles are made of. */
typedef struct square {
    const float *from;
    int64_t across, along; /* of lines, of numbers; one of them is 1 */
    int64_t ahead;         /* so many floats further on lies what is asked for: the next panel, or else the next step */
    float copy[TILE_LINES * ALONG];
} square;

static ALWAYS_INLINE void fetch_line(const square *s, const float *numbers)
{
    __builtin_prefetch(numbers + s->ahead);
}

/* Numbers that lie scattered, or fewer of them than there is room for: gathered, and zeros. */
static void gather(square *s, int64_t lines, int64_t numbers)
{
    memset(s->copy, 0, sizeof s->copy);
    for (int64_t i = 0; i < least(TILE_LINES, lines); i++)
        for (int64_t p = 0; p < least(ALONG, numbers); p++)
            s->copy[i * ALONG + p] = s->from[i * s->across + p * s->along];
    s->from = s->copy;
    s->across = ALONG;
    s->along = 1;
    s->ahead = 0;
}

/* The parts of 32 numbers that lie at two places, in rows [part][TILE_LINES] of 16 words; `pairs`: word i has number i
 * of both places, else they follow each other. Returns the larger magnitudes. */
static ALWAYS_INLINE __m512i split(vf *to, vf first, vf second, const bool pairs, __m512i most, int32_t round)
{
    if (round == MM_F16) {
        first = vf_round_f16(first);
        second = vf_round_f16(second);
    }
    most = larger(larger(most, first), second);
    for (int left = parts_of(round);; to += TILE_LINES) {
        __m512i words = to_words(first, second);
        *to = _mm512_castsi512_ps(pairs ? in_pairs(words) : words);
        if (--left == 0)
            return most;
        first = vf_sub(first, first_of(words));
        second = vf_sub(second, second_of(words));
    }
}

/* A tile of each part, PART_BYTES apart: with `lines` (A's) a row has the 16 words of a line, else (B's) the same word
 * of 16 lines. Returns the larger magnitudes. */
static __m512i pack_tiles(unsigned char *to, const square *s, bool lines, __m512i most, int32_t round)
{
    vf r[MOST_PARTS * TILE_LINES];
    bool by_lines = s->along == 1;
    if (by_lines) {
        ROLLED
        for (int i = 0; i < TILE_LINES; i++) {
            const float *line = s->from + i * s->across;
            fetch_line(s, line);
            fetch_line(s, line + VL);
            most = split(&r[i], vf_load(line), vf_load(line + VL), false, most, round);
        }
    } else {
        ROLLED
        for (int i = 0; i < TILE_LINES; i++) {
            const float *both = s->from + 2 * i * s->along;
            fetch_line(s, both);
            fetch_line(s, both + s->along);
            most = split(&r[i], vf_load(both), vf_load(both + s->along), true, most, round);
        }
    }
    for (int q = 0; q < parts_of(round); q++) {
        vf *part = r + q * TILE_LINES;
        if (by_lines != lines)
            vf_transpose(part);
        UNROLL
        for (int i = 0; i < TILE_LINES; i++)
            _mm512_storeu_ps(to + q * PART_BYTES + i * 64, part[i]);
    }
    return most;
}

/* Where number p of a line stands among the 32 of a step that are kept as floats: those of even p before those of odd
 * p, as parts of words come apart. */
static int64_t place_of(int64_t p)
{
    return p % 2 * (ALONG / 2) + p / 2;
}

/* The panel of `count` lines as floats: for each step [SIDE, ALONG] of A, or [ALONG, SIDE] of B. */
static RARE void keep_floats(unsigned char *panel, const void *from, int32_t dtype, int64_t across, int64_t along,
                             int64_t count, const bool lines, int64_t K, int32_t round)
{
    for (int64_t step = 0; step < steps_of(K); step++) {
        float plain[SIDE * ALONG] = { 0 };
        for (int64_t i = 0; i < least(SIDE, count); i++)
            for (int64_t p = 0; p < least(ALONG, K - step * ALONG); p++) {
                float x = mmi_c_number(from, dtype, i * across + (step * ALONG + p) * along);
                plain[lines ? i * ALONG + place_of(p) : place_of(p) * SIDE + i] = mmi_c_round(x, round);
            }
        memcpy(panel + step * parts_of(round) * PART_BYTES, plain, sizeof plain);
    }
    trailer_of(panel, K, round)->kind = AS_FLOATS;
}

static bool is_huge(__m512i most)
{
    uint32_t limit;
    memcpy(&limit, &(float){ HUGE_NUMBER }, sizeof limit);
    return _mm512_cmpge_epu32_mask(most, _mm512_set1_epi32((int)limit)) != 0;
}

/* Lines that are packed together: `count` of them, of K numbers. */
typedef struct source {
    const float *from;
    int64_t across, along, count, K;
    bool lines;
    int32_t round;
} source;

/* Step `step` of panel `n`. */
static __m512i pack_step(unsigned char *panel, const source *s, int64_t n, int64_t step, __m512i most)
{
    unsigned char *to = panel + step * parts_of(s->round) * PART_BYTES;
    for (int64_t i = n * SIDE; i < (n + 1) * SIDE; i += TILE_LINES, to += TILE_BYTES) {
        square s16;
        s16.from = s->from + i * s->across + step * ALONG * s->along;
        s16.across = s->across;
        s16.along = s->along;
        s16.ahead = s->along != 1 ? ALONG * s->along : (n + 1) * SIDE < s->count ? SIDE * s->across : 0;
        bool whole = s->count - i >= TILE_LINES && s->K - step * ALONG >= ALONG;
        if (!whole || (s->across != 1 && s->along != 1))
            gather(&s16, s->count - i, s->K - step * ALONG);
        most = pack_tiles(to, &s16, s->lines, most, s->round);
    }
    return most;
}

/* Panels that are filled together where numbers lie next to those of other lines: so pages are met once. */
#define PANELS_AT_ONCE 8

static void pack(float *to, const float *from, int64_t across, int64_t along, int64_t count, int64_t K, bool lines,
                 int32_t round)
{
    const source s = { from, across, along, count, K, lines, round };
    const int64_t panels = (count + SIDE - 1) / SIDE, steps = steps_of(K), at_once = across == 1 ? PANELS_AT_ONCE : 1;
    for (int64_t first = 0; first < panels; first += at_once) {
        const int64_t last = least(panels, first + at_once);
        unsigned char *panel = (unsigned char *)(to + SIMD(gemm_panel)(first * SIDE, K, round));
        __m512i most[PANELS_AT_ONCE];
        for (int64_t n = first; n < last; n++)
            most[n - first] = _mm512_setzero_si512();
        for (int64_t step = 0; step < steps; step++)
            for (int64_t n = first; n < last; n++)
                most[n - first] = pack_step(panel + (n - first) * panel_bytes(K, round), &s, n, step, most[n - first]);
        for (int64_t n = first; n < last; n++, panel += panel_bytes(K, round)) {
            trailer_of(panel, K, round)->kind = parts_of(round);
            if (round != MM_BF16 && is_huge(most[n - first]))
                keep_floats(panel, from + n * SIDE * across, MM_F32, across, along, count - n * SIDE, lines, K, round);
        }
    }
}

void SIMD(gemm_pack_a)(float *to, const float *a, int64_t across, int64_t along, int64_t count, int64_t K,
                       int32_t round)
{
    pack(to, a, across, along, count, K, true, round);
}

void SIMD(gemm_pack_b)(float *to, const float *b, int64_t across, int64_t along, int64_t count, int64_t K,
                       int32_t round)
{
    pack(to, b, across, along, count, K, false, round);
}

/* A tile whose rows have the same word of 16 lines. One copy of the code is enough. */
static NOINLINE void store_turned(unsigned char *to, vf lines[TILE_LINES])
{
    vf_transpose(lines);
    for (int i = 0; i < TILE_LINES; i++)
        _mm512_storeu_ps(to + i * 64, lines[i]);
}

/* Lines of K words as they lie, one part. */
static bool pack_words(unsigned char *panel, const uint16_t *w, int64_t across, int64_t lines, int64_t K)
{
    __m512i most = _mm512_setzero_si512();
    for (int64_t step = 0; step < steps_of(K); step++)
        for (int half = 0; half < 2; half++) {
            __m512 r[TILE_LINES];
            ROLLED
            for (int64_t i = 0; i < TILE_LINES; i++) {
                int64_t line = half * TILE_LINES + i, left = K - step * ALONG;
                __builtin_prefetch(w + (line + SIDE) * across + step * ALONG); /* the next panel's */
                r[i] = line < lines ? get_words(w + line * across + step * ALONG, left) : vf_zero();
                __m512i magnitudes = _mm512_and_si512(_mm512_castps_si512(r[i]), _mm512_set1_epi16(0x7FFF));
                most = _mm512_max_epu16(most, magnitudes);
            }
            store_turned(panel + step * PART_BYTES + half * TILE_BYTES, r);
        }
    /* The upper word of each pair, and the lower one, as a float's bits. */
    return is_huge(
        _mm512_max_epu32(_mm512_and_si512(most, _mm512_set1_epi32((int)0xFFFF0000)), _mm512_slli_epi32(most, 16)));
}

void SIMD(gemm_pack_bf16)(float *to, const void *w, int64_t across, int64_t count, int64_t K, int32_t round)
{
    for (int64_t j = 0; j < count; j += SIDE) {
        unsigned char *panel = (unsigned char *)(to + SIMD(gemm_panel)(j, K, round));
        const uint16_t *words = (const uint16_t *)w + j * across;
        bool is_wide = pack_words(panel, words, across, count - j, K);
        trailer_of(panel, K, round)->kind = 1;
        if (is_wide && round != MM_BF16)
            keep_floats(panel, words, MM_BF16, across, 1, count - j, false, K, round);
    }
}

/* Byte `at` of each lane, and `back` more than it, become a float: of the bits of 2^23 + byte, 2^23 + back is taken off
 * again. Shifts and conversions have one unit where these have two. */
static ALWAYS_INLINE vf byte_number(__m512i bytes, int at, float back)
{
    const __m128i zero = _mm_set1_epi32((int)0x80808000);
    const __m512i pick = _mm512_broadcast_i32x4(_mm_or_si128(zero, _mm_setr_epi32(at, at + 4, at + 8, at + 12)));
    __m512i bits = _mm512_or_si512(_mm512_shuffle_epi8(bytes, pick), _mm512_castps_si512(vf_set(0x1p23f)));
    return vf_add(_mm512_castsi512_ps(bits), vf_set(-0x1p23f - back));
}

static ALWAYS_INLINE void store_pairs(unsigned char *to, vf first, vf second)
{
    _mm512_storeu_si512(to, in_pairs(to_words(first, second)));
}

/* Four numbers of each of a strip's rows. */
static ALWAYS_INLINE void pack_line(unsigned char *to, __m512i bytes, vf scales, float back)
{
    store_pairs(to, vf_mul(byte_number(bytes, 0, back), scales), vf_mul(byte_number(bytes, 1, back), scales));
    store_pairs(to + 64, vf_mul(byte_number(bytes, 2, back), scales), vf_mul(byte_number(bytes, 3, back), scales));
}

/* A block of a strip: a tile. */
static ALWAYS_INLINE void pack_block(unsigned char *tile, const unsigned char *numbers, const unsigned char *scales,
                                     int32_t dtype)
{
    const vf scale = vf_load_f16(scales);
    const int64_t lines = mmi_strip_lines(dtype);
    UNROLL
    for (int64_t s = 0; s < lines; s++) {
        __m512i bytes = _mm512_loadu_si512(numbers + s * MMI_STRIP_LINE);
        if (dtype == MM_Q8_0) {
            pack_line(tile + s * 128, _mm512_xor_si512(bytes, _mm512_set1_epi8((char)0x80)), scale, 128);
            continue;
        }
        const __m512i four_bits = _mm512_set1_epi8(15);
        pack_line(tile + s * 128, _mm512_and_si512(bytes, four_bits), scale, 8);
        pack_line(tile + TILE_BYTES / 2 + s * 128, _mm512_and_si512(_mm512_srli_epi16(bytes, 4), four_bits), scale, 8);
    }
}

/* Two strips, or what there is of them, from block `first` on. */
static ALWAYS_INLINE void pack_strips(unsigned char *panel, const unsigned char *w, int64_t cols, int64_t first,
                                      int64_t rows, int64_t K, int32_t dtype)
{
    const int64_t block = mmi_strip_lines(dtype) * MMI_STRIP_LINE, strip = (int64_t)mmi_strips_bytes(dtype, 1, cols);
    for (int64_t step = 0; step < K / ALONG; step++)
        for (int half = 0; half < 2; half++) {
            unsigned char *tile = panel + step * PART_BYTES + half * TILE_BYTES;
            const unsigned char *from = w + half * strip;
            const unsigned char *numbers = from + mmi_strip_numbers_at(dtype, cols / MMI_BLOCK, first + step);
            if (half * MMI_STRIP >= rows) {
                memset(tile, 0, TILE_BYTES);
                continue;
            }
            for (int64_t line = 0; line < block; line += 64)
                __builtin_prefetch(numbers + 2 * strip + line); /* the next panel's */
            pack_block(tile, numbers, from + mmi_strip_scales_at(dtype, first + step), dtype);
        }
}

void SIMD(gemm_pack_blocks)(float *to, const void *w, int32_t dtype, int64_t cols, int64_t first, int64_t count,
                            int64_t K)
{
    const unsigned char *strips = w;
    for (int64_t j = 0; j < count; j += SIDE, strips += mmi_strips_bytes(dtype, SIDE, cols)) {
        unsigned char *panel = (unsigned char *)(to + SIMD(gemm_panel)(j, K, MM_BF16));
        if (dtype == MM_Q8_0)
            pack_strips(panel, strips, cols, first / MMI_BLOCK, count - j, K, MM_Q8_0);
        else
            pack_strips(panel, strips, cols, first / MMI_BLOCK, count - j, K, MM_Q4_0);
        trailer_of(panel, K, MM_BF16)->kind = 1;
    }
}

/* --- Multiplying --- */

/* What the next panel of the operand that is met but once will need: its own lines, and those of C, which come from
 * beyond the second level. Each block asks for a share, some with each step, for a core can wait for a few only. */
typedef struct coming {
    const unsigned char *lines;
    const float *c;
    int64_t lines_with_step, rows_with_step;
} coming;

/* One block of C: SIDE × SIDE of it, or less at its edges. */
typedef struct tiles {
    float *c;
    const float *from; /* as in gemm_multiply() */
    const unsigned char *a, *b;
    int64_t ldc, K;
    int64_t rows, cols;    /* of C that are wanted */
    bool begun;            /* tiles begin with what C does, else at 0 */
    bool next_of_b;        /* the next panel is one of B, else of A */
    int64_t block, blocks; /* which of those that meet this panel; 0 of 0: nothing is asked for */
} tiles;

/* Which parts meet in a step, beginning with A's first: each time one operand's next part is loaded, and meets what is
 * there of the other. A0 B0, A0 B2, A0 B1, A1 B1, A1 B0, A2 B0 needs the fewest loads. */
enum { A_PART = 8 /* + which; else B's */ };
typedef struct meeting {
    int32_t a_parts, b_parts, count;
    unsigned char order[6];
} meeting;
static const meeting one_part = { 1, 1, 1, { 0 } };
static const meeting two_parts = { 2, 2, 4, { 0, 1, A_PART + 1, 0 } };
static const meeting three_parts = { 3, 3, 6, { 0, 2, 1, A_PART + 1, 0, A_PART + 2 } };
static const meeting three_with_one = { 3, 1, 3, { 0, A_PART + 1, A_PART + 2 } };

/* What is read in the next step, asked for meanwhile. Panels of one part stay in the first-level cache, where that is
 * in the way: 1.55 for 1.85 · 10¹² operations a second. */
static ALWAYS_INLINE void fetch(const unsigned char *p, int64_t lines)
{
    ROLLED
    for (int64_t i = 0; i < lines; i++)
        __builtin_prefetch(p + i * 64);
}

/* More lines for each pair of parts that meet would be waited for by the tiles' own loads. */
#define LINES_WITH_PAIR 4

static coming coming_of(const tiles *t, const meeting *m, int32_t round)
{
    if (t->blocks == 0)
        return (coming){ 0 };
    const int64_t steps = steps_of(t->K), parts = t->next_of_b ? m->b_parts : m->a_parts;
    const int64_t each = least((parts * PART_BYTES / 64 + t->blocks - 1) / t->blocks, LINES_WITH_PAIR * m->count);
    return (coming){ .lines = (t->next_of_b ? t->b : t->a) + panel_bytes(t->K, round) + t->block * steps * each * 64,
                     .c = t->c + (t->next_of_b ? SIDE : SIDE * t->ldc),
                     .lines_with_step = each,
                     .rows_with_step = (SIDE + steps - 1) / steps };
}

/* Into the second level: the first one is full. */
static ALWAYS_INLINE void fetch_coming(coming *next, int64_t ldc)
{
    for (int64_t i = 0; i < next->lines_with_step; i++, next->lines += 64)
        __builtin_prefetch(next->lines, 0, 2);
    for (int64_t i = 0; i < next->rows_with_step; i++, next->c += ldc) {
        __builtin_prefetch(next->c, 0, 2);
        __builtin_prefetch(next->c + VL, 0, 2);
    }
}

/* Tiles 0 to 3 with nothing in them, or a whole block of what C begins with. */
static ALWAYS_INLINE void begin_tiles(const tiles *t)
{
    if (t->begun) {
        const size_t ld = (size_t)t->ldc * sizeof *t->from;
        _tile_loadd(0, t->from, ld);
        _tile_loadd(1, t->from + VL, ld);
        _tile_loadd(2, t->from + TILE_LINES * t->ldc, ld);
        _tile_loadd(3, t->from + TILE_LINES * t->ldc + VL, ld);
    } else {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
    }
}

/* Tiles 0 to 3, [high][wide], += A · B; tiles 4 and 5 are A's, 6 and 7 B's. */
static ALWAYS_INLINE void multiply_parts(const tiles *t, const meeting *m, coming next, const bool high,
                                         const bool wide)
{
    const unsigned char *a = t->a, *b = t->b;
    const int64_t a_step = m->a_parts * PART_BYTES, b_step = m->b_parts * PART_BYTES;
    const int64_t a_lines = m->count > 1 ? a_step / 64 / m->count : 0,
                  b_lines = m->count > 1 ? b_step / 64 / m->count : 0;
    for (int64_t step = steps_of(t->K); step > 0; step--) {
        fetch_coming(&next, t->ldc);
        _tile_loadd(4, a, 64);
        if (high)
            _tile_loadd(5, a + TILE_BYTES, 64);
        for (int32_t n = 0; n < m->count; n++) {
            if (m->order[n] >= A_PART) {
                const unsigned char *part = a + (m->order[n] - A_PART) * PART_BYTES;
                _tile_loadd(4, part, 64);
                if (high)
                    _tile_loadd(5, part + TILE_BYTES, 64);
            } else {
                const unsigned char *part = b + m->order[n] * PART_BYTES;
                _tile_loadd(6, part, 64);
                if (wide)
                    _tile_loadd(7, part + TILE_BYTES, 64);
            }
            _tile_dpbf16ps(0, 4, 6);
            if (high)
                _tile_dpbf16ps(2, 5, 6);
            if (wide)
                _tile_dpbf16ps(1, 4, 7);
            if (high && wide)
                _tile_dpbf16ps(3, 5, 7);
            fetch(a + a_step + n * a_lines * 64, a_lines);
            fetch(b + b_step + n * b_lines * 64, b_lines);
        }
        a += a_step;
        b += b_step;
    }
}

static void multiply_tiles(const tiles *t, const meeting *m, int32_t round)
{
    const coming next = coming_of(t, m, round);
    begin_tiles(t);
    if (t->rows > TILE_LINES && t->cols > TILE_LINES)
        multiply_parts(t, m, next, true, true);
    else if (t->rows > TILE_LINES)
        multiply_parts(t, m, next, true, false);
    else if (t->cols > TILE_LINES)
        multiply_parts(t, m, next, false, true);
    else
        multiply_parts(t, m, next, false, false);
}

/* A step of a panel as floats, in the order of keep_floats(). */
static const float *floats_of(float *plain, const unsigned char *panel, int32_t kind, int64_t step, const bool lines,
                              int32_t round)
{
    if (kind == AS_FLOATS)
        return memcpy(plain, panel + step * parts_of(round) * PART_BYTES, SIDE * ALONG * sizeof *plain);
    memset(plain, 0, SIDE * ALONG * sizeof *plain);
    for (int q = 0; q < kind; q++)
        for (int row = 0; row < SIDE; row++) {
            /* Of A line `row`, of B word `row % 16` of 16 lines. */
            int half = row / TILE_LINES, at = row % TILE_LINES;
            __m512i words = _mm512_loadu_si512(panel + (step * kind + q) * PART_BYTES + row * 64);
            float *even = lines ? plain + row * ALONG : plain + at * SIDE + half * VL;
            float *odd = lines ? even + VL : even + VL * SIDE;
            vf upper = _mm512_castsi512_ps(_mm512_and_si512(words, _mm512_set1_epi32((int)0xFFFF0000)));
            vf lower = _mm512_castsi512_ps(_mm512_slli_epi32(words, 16));
            vf_store(even, vf_add(vf_load(even), lower));
            vf_store(odd, vf_add(vf_load(odd), upper));
        }
    return plain;
}

/* The product of panels of which one is kept as floats. */
static RARE void multiply_floats(float *whole, const tiles *t, int32_t a_kind, int32_t b_kind, int32_t round)
{
    memset(whole, 0, SIDE * SIDE * sizeof *whole);
    for (int64_t step = 0; step < steps_of(t->K); step++) {
        float a[SIDE * ALONG], b[ALONG * SIDE];
        floats_of(a, t->a, a_kind, step, true, round);
        floats_of(b, t->b, b_kind, step, false, round);
        for (int i = 0; i < SIDE; i++) {
            vf left = vf_load(whole + i * SIDE), right = vf_load(whole + i * SIDE + VL);
            for (int p = 0; p < ALONG; p++) {
                vf factor = vf_set(a[i * ALONG + p]);
                left = vf_fma(factor, vf_load(b + p * SIDE), left);
                right = vf_fma(factor, vf_load(b + p * SIDE + VL), right);
            }
            vf_store(whole + i * SIDE, left);
            vf_store(whole + i * SIDE + VL, right);
        }
    }
}

/* C = from + whole. */
static void finish(const tiles *t, const float *whole)
{
    for (int64_t i = 0; i < t->rows; i++)
        for (int64_t j = 0; j < t->cols; j += VL) {
            vf v = vf_load(whole + i * SIDE + j);
            if (t->from)
                v = vf_add(vf_get(t->from + i * t->ldc + j, t->cols - j), v);
            vf_put(t->c + i * t->ldc + j, t->cols - j, v);
        }
}

static void multiply_block(tiles *t, int32_t round)
{
    _Alignas(64) float whole[SIDE * SIDE];
    const int32_t a_kind = kind_of(t->a, t->K, round), b_kind = kind_of(t->b, t->K, round);
    if (a_kind == AS_FLOATS || b_kind == AS_FLOATS) {
        multiply_floats(whole, t, a_kind, b_kind, round);
        finish(t, whole);
        return;
    }
    /* Sums of float32 are made for themselves first: on the way they are rounded six times as often as C would be. */
    const bool full = t->rows == SIDE && t->cols == SIDE;
    t->begun = full && t->from && a_kind == 1 && b_kind == 1;
    multiply_tiles(t,
                   a_kind == 1 ? &one_part :
                   a_kind == 2 ? &two_parts :
                   b_kind == 1 ? &three_with_one :
                                 &three_parts,
                   round);
    bool direct = full && (t->begun || !t->from);
    float *to = direct ? t->c : whole;
    const int64_t ld = direct ? t->ldc : SIDE;
    _tile_stored(0, to, (size_t)ld * sizeof *to);
    _tile_stored(1, to + VL, (size_t)ld * sizeof *to);
    _tile_stored(2, to + TILE_LINES * ld, (size_t)ld * sizeof *to);
    _tile_stored(3, to + TILE_LINES * ld + VL, (size_t)ld * sizeof *to);
    if (!direct)
        finish(t, whole);
}

/* The operands of so few steps are attention's, mostly, and lie in a cache. */
#define FEW_STEPS 8

void SIMD(gemm_multiply)(float *c, int64_t ldc, const float *a, int64_t ars, const float *b, int64_t M, int64_t N,
                         int64_t K, const float *from, int32_t round)
{
    (void)ars;
    /* What has few lines stays in a cache while each panel of the other operand meets it. */
    const bool by_cols = M <= N;
    const int64_t outer = by_cols ? N : M, inner = by_cols ? M : N;
    tiles_begin(&whole_tiles);
    for (int64_t far = 0; far < outer; far += SIDE)
        for (int64_t near = 0; near < inner; near += SIDE) {
            int64_t i = by_cols ? near : far, j = by_cols ? far : near;
            tiles t = { .c = c + i * ldc + j,
                        .from = from ? from + i * ldc + j : NULL,
                        .a = (const unsigned char *)(a + SIMD(gemm_panel)(i, K, round)),
                        .b = (const unsigned char *)(b + SIMD(gemm_panel)(j, K, round)),
                        .ldc = ldc,
                        .K = K,
                        .rows = least(SIDE, M - i),
                        .cols = least(SIDE, N - j),
                        .next_of_b = by_cols };
            if (far + SIDE < outer && steps_of(K) > FEW_STEPS) {
                t.block = near / SIDE;
                t.blocks = (inner + SIDE - 1) / SIDE;
            }
            multiply_block(&t, round);
        }
    tiles_end();
}
