#include "nn/attention_tile.h"

#include <math.h>
#include <string.h>

#include "base/dtype.h"
#include "base/memory.h"

/* Up to so many rows, as in decoding, read keys and values as a cache has them. */
#define FEW_ROWS 8
#define FEW_STEP 32 /* few_scores() and few_values() want whole vectors of a head */
/* Where not all rows of a tile see all its keys, so many at a time meet those that the last of them sees. */
#define BAND_ROWS 64

int64_t mmi_tile_tokens(int64_t heads)
{
    return heads < MMI_TILE_ROWS ? MMI_TILE_ROWS / heads : 1;
}

int64_t mmi_tile_number_pieces(const mmi_attention *a, int64_t step, int64_t without)
{
    a->piece_first[0] = 0;
    for (int64_t i = 0; i < a->segment_count; i++) {
        int64_t runs = mmi_pieces(a->segments[i].count, step) - without;
        a->piece_first[i + 1] = a->piece_first[i] + (runs > 0 ? a->G * runs : 0);
    }
    return a->piece_first[a->segment_count];
}

int64_t mmi_tile_segment_of(const mmi_attention *a, int64_t piece)
{
    int64_t low = 0, high = a->segment_count;
    while (high - low > 1) {
        int64_t middle = (low + high) / 2;
        if (a->piece_first[middle] <= piece)
            low = middle;
        else
            high = middle;
    }
    return low;
}

mmi_tile_job mmi_tile_job_for(const mmi_exec *x, const mmi_attention *a)
{
    int64_t heads = a->H / a->G;
    return (mmi_tile_job){
        .x = x, .a = a, .heads = heads, .tokens = mmi_tile_tokens(heads), .scale = 1 / sqrtf((float)a->D)
    };
}

/* Room for panels of A lines of B numbers, or of B lines of A. */
static float *take_panels(mmi_carve *c, const mmi_kernels *k, int64_t A, int64_t B, int64_t width)
{
    const int64_t one = k->gemm_panel(mmi_pieces(A, width) * width, B, MM_BF16);
    const int64_t other = k->gemm_panel(mmi_pieces(B, width) * width, A, MM_BF16);
    return mmi_carve_take(c, one > other ? one : other, sizeof(float));
}

/* What a tile is multiplied by goes into one panel's depth; where a table's are not so deep, nothing is rounded. */
static bool can_round(const mmi_kernels *k, int64_t R, int64_t D)
{
    return k->gemm_depth >= R && k->gemm_depth >= D && k->gemm_depth >= MMI_TILE_KEYS;
}

static mmi_tile carve_tile(mmi_carve *c, const mmi_kernels *k, int64_t R, int64_t D, bool rounded)
{
    mmi_tile t = { .rows = 0 };
    t.q = mmi_carve_take(c, R * D, sizeof(float));
    t.out = mmi_carve_take(c, R * D, sizeof(float));
    t.dout = mmi_carve_take(c, R * D, sizeof(float));
    t.s = mmi_carve_take(c, R * MMI_TILE_KEYS, sizeof(float));
    t.dp = mmi_carve_take(c, R * MMI_TILE_KEYS, sizeof(float));
    t.kt = mmi_carve_take(c, D * MMI_TILE_KEYS, sizeof(float));
    t.vt = mmi_carve_take(c, D * MMI_TILE_KEYS, sizeof(float));
    t.m = mmi_carve_take(c, R, sizeof(float));
    t.l = mmi_carve_take(c, R, sizeof(float));
    if (rounded && can_round(k, R, D)) {
        t.p.q = take_panels(c, k, R, D, k->gemm_a_rows);
        t.p.dout = take_panels(c, k, R, D, k->gemm_a_rows);
        t.p.left = take_panels(c, k, R, MMI_TILE_KEYS, k->gemm_a_rows);
        t.p.q_right = take_panels(c, k, R, D, k->gemm_b_cols);
        t.p.dout_right = take_panels(c, k, R, D, k->gemm_b_cols);
        t.p.right = take_panels(c, k, MMI_TILE_KEYS, D, k->gemm_b_cols);
    }
    return t;
}

int64_t mmi_attention_scratch(const mmi_kernels *k, int64_t H, int64_t G, int64_t D, bool rounded)
{
    mmi_carve c = { 0 };
    carve_tile(&c, k, mmi_tile_tokens(H / G) * (H / G), D, rounded);
    return c.overflow ? INT64_MAX / 2 : (int64_t)(c.used / sizeof(float));
}

mmi_tile mmi_tile_place(const mmi_tile_job *j, int worker)
{
    mmi_carve c = { .base = (unsigned char *)mmi_exec_scratch(j->x, worker) };
    return carve_tile(&c, &j->x->k, j->tokens * j->heads, j->a->D, j->a->rounded);
}

void mmi_tile_begin(mmi_tile *t, const mmi_tile_job *j, int64_t tokens, int64_t whole)
{
    t->rows = tokens * j->heads;
    t->whole = whole * j->heads;
    t->few = t->whole <= FEW_ROWS && j->a->D % FEW_STEP == 0 && j->a->D <= MMI_FEW_WIDTH;
    t->rounded = j->a->rounded && t->whole > FEW_ROWS && can_round(&j->x->k, j->tokens * j->heads, j->a->D);
}

const float *mmi_tile_pack_left(const mmi_tile_job *j, float *to, const float *from, int64_t across, int64_t along,
                                int64_t count, int64_t K)
{
    j->x->k.gemm_pack_a(to, from, across, along, count, K, MM_BF16);
    return to;
}

const float *mmi_tile_pack_right(const mmi_tile_job *j, float *to, const float *from, int64_t across, int64_t along,
                                 int64_t count, int64_t K)
{
    j->x->k.gemm_pack_b(to, from, across, along, count, K, MM_BF16);
    return to;
}

void mmi_tile_multiply(const mmi_tile_job *j, float *c, int64_t ldc, const float *left, const float *right, int64_t M,
                       int64_t N, int64_t K, bool accumulate)
{
    if (M > 0 && N > 0 && K > 0)
        j->x->k.gemm_multiply(c, ldc, left, 0, right, M, N, K, accumulate ? c : NULL, MM_BF16);
}

const void *mmi_tile_key(const mmi_attention *a, const mmi_segment *s, int64_t key, int64_t g, const void *base)
{
    int64_t row = a->sequence_stride ? key : s->row + key;
    int64_t at = s->sequence * a->sequence_stride + row * a->ldk + g * a->head_stride;
    return (const unsigned char *)base + mmi_dtype_bytes(a->kv_dtype, at);
}

mmi_tile_operand mmi_tile_operand_of(const mmi_tile *t, const mmi_tile_job *j, const mmi_segment *s, int64_t g,
                                     const void *base)
{
    const mmi_attention *a = j->a;
    const void *from = mmi_tile_key(a, s, t->first_key, g, base);
    if (a->kv_dtype == MM_F32 || t->few)
        return (mmi_tile_operand){ from, a->ldk, a->kv_dtype };
    j->x->k.widen(t->vt, from, a->kv_dtype, t->keys * a->D);
    return (mmi_tile_operand){ t->vt, a->D, MM_F32 };
}

void mmi_tile_load(float *rows, const float *from, int64_t ld, const mmi_tile_job *j, const mmi_segment *s, int64_t g,
                   int64_t first, int64_t tokens)
{
    int64_t width = j->heads * j->a->D;
    for (int64_t t = 0; t < tokens; t++)
        memcpy(rows + t * width, from + (s->row + first + t) * ld + g * width, (size_t)width * sizeof(float));
}

void mmi_tile_store(float *to, int64_t ld, const float *rows, const mmi_tile_job *j, const mmi_segment *s, int64_t g,
                    int64_t first, int64_t tokens)
{
    int64_t width = j->heads * j->a->D;
    for (int64_t t = 0; t < tokens; t++)
        memcpy(to + (s->row + first + t) * ld + g * width, rows + t * width, (size_t)width * sizeof(float));
}

void mmi_tile_load_queries(mmi_tile *t, const mmi_tile_job *j, const mmi_segment *s, int64_t g, int64_t tokens)
{
    const mmi_attention *a = j->a;
    mmi_tile_load(t->q, a->q, a->ldq, j, s, g, t->first_query, tokens);
    j->x->k.scale(t->q, j->scale, t->rows * a->D);
    if (t->rounded)
        mmi_tile_pack_left(j, t->p.q, t->q, a->D, 1, t->rows, a->D);
}

mmi_tile_band mmi_tile_band_from(const mmi_tile *t, const mmi_tile_job *j, const mmi_segment *s, int64_t row)
{
    int64_t rows = t->rows - row, most = j->heads < BAND_ROWS ? BAND_ROWS / j->heads * j->heads : j->heads;
    if (rows > most && mmi_tile_visible(t, j, s, row) < t->keys)
        rows = most;
    return (mmi_tile_band){ row, rows, mmi_tile_visible(t, j, s, row + rows - 1) };
}

void mmi_tile_scores(mmi_tile *t, const mmi_tile_job *j, const mmi_segment *s, int64_t g)
{
    const mmi_attention *a = j->a;
    const mmi_kernels *k = &j->x->k;
    mmi_tile_operand keys = mmi_tile_operand_of(t, j, s, g, a->k);
    if (t->rounded) {
        const float *right = mmi_tile_pack_right(j, t->p.right, keys.data, keys.ld, 1, t->keys, a->D);
        mmi_tile_multiply(j, t->s, MMI_TILE_KEYS, t->p.q, right, t->rows, t->keys, a->D, false);
    } else if (t->few) {
        k->few_scores(t->s, MMI_TILE_KEYS, t->q, keys.data, keys.dtype, keys.ld, t->rows, t->keys, a->D,
                      mmi_tile_key(a, s, t->first_key, g, a->v));
    } else if (t->whole <= FEW_ROWS) {
        k->gemv_rows(t->s, MMI_TILE_KEYS, t->q, a->D, keys.data, MM_F32, keys.ld, t->rows, t->keys, a->D, 0);
    } else {
        k->transpose(t->kt, MMI_TILE_KEYS, keys.data, keys.ld, t->keys, a->D);
        EACH_BAND (p, t, j, s)
            k->gemm_tile(t->s + p.row * MMI_TILE_KEYS, MMI_TILE_KEYS, t->q + p.row * a->D, a->D, 1, t->kt,
                         MMI_TILE_KEYS, p.rows, p.keys, a->D, 0);
    }
    if (s->key_mask)
        for (int64_t i = 0; i < t->keys; i++)
            if (s->key_mask[t->first_key + i] == 0)
                for (int64_t r = 0; r < t->rows; r++)
                    t->s[r * MMI_TILE_KEYS + i] += -INFINITY;
}

void mmi_tile_drop(float *values, int64_t n, int64_t r, const mmi_tile *t, const mmi_tile_job *j, const mmi_segment *s,
                   int64_t g)
{
    if (j->a->dropout.p <= 0)
        return;
    int64_t token = s->row + t->first_query + r / j->heads, head = g * j->heads + r % j->heads;
    uint64_t first = (uint64_t)(token * j->a->H + head) << 32 | (uint64_t)t->first_key;
    mmi_dropout_row(&j->x->k, values, n, first, j->a->dropout);
}
