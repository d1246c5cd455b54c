#include "nn/attention.h"

#include <math.h>
#include <stdatomic.h>
#include <string.h>

#include "backend/gemm.h"
#include "base/dtype.h"
#include "base/memory.h"

/* A tile is QUERY_ROWS query rows (tokens x the heads that share a key head) by KEYS keys. Scores and one operand then
 * lie in the second-level cache, and turning a tile of keys costs little beside the products that read it. */
#define QUERY_ROWS 256
#define KEYS 64
/* Up to so many rows, as in decoding, read keys and values as a cache has them. */
#define FEW_ROWS 8
#define FEW_STEP 32 /* few_scores() and few_values() want whole vectors of a head */
/* Where not all rows of a tile see all its keys, so many at a time meet those that the last of them sees. */
#define PART_ROWS 64
/* What a masked key's score gets added: finite, so that a row that sees only such keys stays so. */
#define HIDDEN (-1e9f)

/* So many pieces have work for any number of threads: where there are fewer, work is cut finer. Only shapes decide. */
#define ENOUGH_PIECES 16
/* Backward: queries meet keys in spans of so many tokens, halved until there are enough pieces. */
#define SPAN 512
#define LEAST_SPAN 128
/* Forward: a tile of queries that meets many keys, as in decoding behind a long text, meets them in parts of so many at
 * least, whose sums are joined. */
#define PART_KEYS 512

/* Operands of rounded products, as gemm_multiply() reads them (backend/kernels.h). */
typedef struct panels {
    float *q, *dout;             /* [R, D], to be multiplied from the left */
    float *q_right, *dout_right; /* the same from the right */
    float *left, *right;         /* of a tile of keys: weights or their gradients, keys or values */
} panels;

/* One worker's scratch. R rows, at most QUERY_ROWS rounded up to whole tokens. */
typedef struct tile {
    int64_t rows, keys; /* filled part */
    int64_t first_query, first_key;
    float *q;         /* [R, D], times 1/sqrt(D) */
    float *out;       /* [R, D] forward's sum; backward's dq */
    float *dout;      /* [R, D] */
    float *s, *dp;    /* [R, KEYS] */
    float *kt, *vt;   /* [D, KEYS]; keys and values are widened in vt's place */
    float *m, *l;     /* [R] running maximum and sum; backward: lse and delta */
    const void *next; /* keys that this thread reads after the tile's, unless it is NULL */
    bool rounded;     /* products go by panels */
    bool few;         /* by kernels for a few rows of whole vectors */
    panels p;
} tile;

typedef struct job {
    const mmi_exec *x;
    const mmi_attention *a;
    float *out, *lse;    /* forward */
    float *dq, *dk, *dv; /* backward */
    const float *dout, *out_in, *lse_in;
    int64_t span, apart;   /* backward: queries that lie so many spans behind the keys they meet */
    int64_t heads;         /* query heads per key head */
    int64_t tokens;        /* per query tile */
    int64_t pieces, group; /* forward: of so many, each call does a group */
    int64_t run;   /* forward: so many neighbouring pieces are mostly one thread's; 0: they are not dealt out so */
    int64_t parts; /* forward: of the keys of a sequence and key head, at most; 1: they are not cut */
    int64_t part_floats; /* what a part gives */
    atomic_int *left;    /* [segments * G] parts that are not done yet */
    float scale;
} job;

static int64_t tile_tokens(int64_t heads)
{
    return heads < QUERY_ROWS ? QUERY_ROWS / heads : 1;
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
    return k->gemm_depth >= R && k->gemm_depth >= D && k->gemm_depth >= KEYS;
}

static tile carve_tile(mmi_carve *c, const mmi_kernels *k, int64_t R, int64_t D, bool rounded)
{
    tile t = { .rows = 0 };
    t.q = mmi_carve_take(c, R * D, sizeof(float));
    t.out = mmi_carve_take(c, R * D, sizeof(float));
    t.dout = mmi_carve_take(c, R * D, sizeof(float));
    t.s = mmi_carve_take(c, R * KEYS, sizeof(float));
    t.dp = mmi_carve_take(c, R * KEYS, sizeof(float));
    t.kt = mmi_carve_take(c, D * KEYS, sizeof(float));
    t.vt = mmi_carve_take(c, D * KEYS, sizeof(float));
    t.m = mmi_carve_take(c, R, sizeof(float));
    t.l = mmi_carve_take(c, R, sizeof(float));
    if (rounded && can_round(k, R, D)) {
        t.p.q = take_panels(c, k, R, D, k->gemm_a_rows);
        t.p.dout = take_panels(c, k, R, D, k->gemm_a_rows);
        t.p.left = take_panels(c, k, R, KEYS, k->gemm_a_rows);
        t.p.q_right = take_panels(c, k, R, D, k->gemm_b_cols);
        t.p.dout_right = take_panels(c, k, R, D, k->gemm_b_cols);
        t.p.right = take_panels(c, k, KEYS, D, k->gemm_b_cols);
    }
    return t;
}

int64_t mmi_attention_scratch(const mmi_kernels *k, int64_t H, int64_t G, int64_t D, bool rounded)
{
    mmi_carve c = { NULL, 0, false };
    carve_tile(&c, k, tile_tokens(H / G) * (H / G), D, rounded);
    return (int64_t)(c.used / sizeof(float));
}

static tile tile_place(const job *j, int worker)
{
    mmi_carve c = { (unsigned char *)mmi_exec_scratch(j->x, worker), 0, false };
    return carve_tile(&c, &j->x->k, j->tokens * j->heads, j->a->D, j->a->rounded);
}

/* Begin a tile of `rows` rows: few are never rounded. */
static void tile_rows(tile *t, const job *j, int64_t rows)
{
    t->rows = rows;
    t->few = rows <= FEW_ROWS && j->a->D % FEW_STEP == 0 && j->a->D <= MMI_FEW_WIDTH;
    t->rounded = j->a->rounded && rows > FEW_ROWS && can_round(&j->x->k, j->tokens * j->heads, j->a->D);
}

/* --- Rounded products --- */

/* Lines of K numbers each, number p of line i at from + i * across + p * along. */
static const float *pack_left(const job *j, float *to, const float *from, int64_t across, int64_t along, int64_t count,
                              int64_t K)
{
    j->x->k.gemm_pack_a(to, from, across, along, count, K, MM_BF16);
    return to;
}

static const float *pack_right(const job *j, float *to, const float *from, int64_t across, int64_t along, int64_t count,
                               int64_t K)
{
    j->x->k.gemm_pack_b(to, from, across, along, count, K, MM_BF16);
    return to;
}

/* c [M, N] = or += left [M, K] · right [K, N]. */
static void multiply(const job *j, float *c, int64_t ldc, const float *left, const float *right, int64_t M, int64_t N,
                     int64_t K, bool accumulate)
{
    if (M > 0 && N > 0 && K > 0)
        j->x->k.gemm_multiply(c, ldc, left, 0, right, M, N, K, accumulate ? c : NULL, MM_BF16);
}

/* A tile's keys (or values) of one head. */
typedef struct operand {
    const void *data; /* [keys, D] */
    int64_t ld;
    int32_t dtype; /* float32, but for few rows */
} operand;

/* The key of a segment for head g, in the keys or values that begin at `base`. */
static const void *key_at(const mmi_attention *a, const mmi_segment *s, int64_t key, int64_t g, const void *base)
{
    int64_t row = a->sequence_stride ? key : s->row + key;
    int64_t at = s->sequence * a->sequence_stride + row * a->ldk + g * a->head_stride;
    return (const unsigned char *)base + mmi_dtype_bytes(a->kv_dtype, at);
}

/* In place where they are float32, or where few rows read them as they are, else widened. */
static operand tile_of(const tile *t, const job *j, const mmi_segment *s, int64_t g, const void *base)
{
    const mmi_attention *a = j->a;
    const void *from = key_at(a, s, t->first_key, g, base);
    if (a->kv_dtype == MM_F32 || t->few)
        return (operand){ from, a->ldk, a->kv_dtype };
    j->x->k.widen(t->vt, from, a->kv_dtype, t->keys * a->D);
    return (operand){ t->vt, a->D, MM_F32 };
}

/* Rows of the tile in the order (token, head): row r is token r / heads, head g * heads + r % heads. */
static void load_rows(float *tile_rows, const float *from, int64_t ld, const job *j, const mmi_segment *s, int64_t g,
                      int64_t first, int64_t tokens)
{
    int64_t width = j->heads * j->a->D;
    for (int64_t t = 0; t < tokens; t++)
        memcpy(tile_rows + t * width, from + (s->row + first + t) * ld + g * width, (size_t)width * sizeof(float));
}

static void store_rows(float *to, int64_t ld, const float *tile_rows, const job *j, const mmi_segment *s, int64_t g,
                       int64_t first, int64_t tokens)
{
    int64_t width = j->heads * j->a->D;
    for (int64_t t = 0; t < tokens; t++)
        memcpy(to + (s->row + first + t) * ld + g * width, tile_rows + t * width, (size_t)width * sizeof(float));
}

/* The tile's queries of one key head, scaled. */
static void load_queries(tile *t, const job *j, const mmi_segment *s, int64_t g, int64_t tokens)
{
    const mmi_attention *a = j->a;
    load_rows(t->q, a->q, a->ldq, j, s, g, t->first_query, tokens);
    j->x->k.scale(t->q, j->scale, t->rows * a->D);
    if (t->rounded)
        pack_left(j, t->p.q, t->q, a->D, 1, t->rows, a->D);
}

/* Keys that row r of the tile may see, of the tile's `keys`: none beyond the row's own position. */
static int64_t visible(const tile *t, const job *j, const mmi_segment *s, int64_t row)
{
    int64_t position = s->past + t->first_query + row / j->heads;
    int64_t n = position - t->first_key + 1;
    return n < 0 ? 0 : n < t->keys ? n : t->keys;
}

/* Rows of a tile that meet the first `keys` of its keys; the others are beyond them. */
typedef struct part {
    int64_t row, rows, keys;
} part;

/* From row `row` on; without rows after the last. */
static part part_at(const tile *t, const job *j, const mmi_segment *s, int64_t row)
{
    int64_t rows = t->rows - row, most = j->heads < PART_ROWS ? PART_ROWS / j->heads * j->heads : j->heads;
    if (rows > most && visible(t, j, s, row) < t->keys)
        rows = most;
    return (part){ row, rows, visible(t, j, s, row + rows - 1) };
}

#define EACH_PART(p, t, j, s) for (part p = part_at(t, j, s, 0); p.rows > 0; p = part_at(t, j, s, p.row + p.rows))

/* s [rows, KEYS] = q · kᵀ, masked keys pushed down. */
static void scores(tile *t, const job *j, const mmi_segment *s, int64_t g)
{
    const mmi_attention *a = j->a;
    const mmi_kernels *k = &j->x->k;
    operand keys = tile_of(t, j, s, g, a->k);
    if (t->rounded) {
        const float *right = pack_right(j, t->p.right, keys.data, keys.ld, 1, t->keys, a->D);
        multiply(j, t->s, KEYS, t->p.q, right, t->rows, t->keys, a->D, false);
    } else if (t->few) {
        k->few_scores(t->s, KEYS, t->q, keys.data, keys.dtype, keys.ld, t->rows, t->keys, a->D,
                      key_at(a, s, t->first_key, g, a->v));
    } else if (t->rows <= FEW_ROWS) {
        k->gemv_rows(t->s, KEYS, t->q, a->D, keys.data, MM_F32, keys.ld, t->rows, t->keys, a->D, 0);
    } else {
        k->transpose(t->kt, KEYS, keys.data, keys.ld, t->keys, a->D);
        EACH_PART (p, t, j, s)
            k->gemm_tile(t->s + p.row * KEYS, KEYS, t->q + p.row * a->D, a->D, 1, t->kt, KEYS, p.rows, p.keys, a->D, 0);
    }
    if (s->key_mask)
        for (int64_t i = 0; i < t->keys; i++)
            if (s->key_mask[t->first_key + i] == 0)
                for (int64_t r = 0; r < t->rows; r++)
                    t->s[r * KEYS + i] += HIDDEN;
}

/* Drop weights (or their gradients) of row r of the tile: an element's number is its token, query head and key. */
static void drop(float *values, int64_t n, int64_t r, const tile *t, const job *j, const mmi_segment *s, int64_t g)
{
    if (j->a->dropout.p <= 0)
        return;
    int64_t token = s->row + t->first_query + r / j->heads, head = g * j->heads + r % j->heads;
    uint64_t first = (uint64_t)(token * j->a->H + head) << 32 | (uint64_t)t->first_key;
    mmi_dropout_row(&j->x->k, values, n, first, j->a->dropout);
}

/* Fold one tile of keys into the running softmax: out = out * exp(m - m') + exp(s - m') · v. */
static void fold(tile *t, const job *j, const mmi_segment *s, int64_t g)
{
    const mmi_kernels *k = &j->x->k;
    int64_t D = j->a->D;
    for (int64_t r = 0; r < t->rows; r++) {
        int64_t n = visible(t, j, s, r);
        float before = t->m[r], *row = t->s + r * KEYS;
        float sum = k->softmax_tile(row, &t->m[r], n);
        memset(row + n, 0, (size_t)(t->keys - n) * sizeof(float));
        if (before != t->m[r]) {
            float shrink = expf(before - t->m[r]);
            t->l[r] *= shrink;
            k->scale(t->out + r * D, shrink, D);
        }
        t->l[r] += sum;
        drop(row, n, r, t, j, s, g);
    }
    operand values = tile_of(t, j, s, g, j->a->v); /* in the place of the keys */
    if (t->rounded) {
        const float *left = pack_left(j, t->p.left, t->s, KEYS, 1, t->rows, t->keys);
        const float *right = pack_right(j, t->p.right, values.data, 1, values.ld, D, t->keys);
        multiply(j, t->out, D, left, right, t->rows, D, t->keys, true);
        return;
    }
    if (t->few) {
        k->few_values(t->out, t->s, KEYS, values.data, values.dtype, values.ld, t->rows, t->keys, D, t->next);
        return;
    }
    EACH_PART (p, t, j, s)
        k->gemm_tile(t->out + p.row * D, D, t->s + p.row * KEYS, KEYS, 1, values.data, values.ld, p.rows, D, p.keys, 1);
}

static void finish(tile *t, const job *j, const mmi_segment *s, int64_t g, int64_t tokens)
{
    int64_t D = j->a->D;
    for (int64_t r = 0; r < t->rows; r++)
        j->x->k.scale(t->out + r * D, 1 / t->l[r], D);
    store_rows(j->out, j->a->H * D, t->out, j, s, g, t->first_query, tokens);
    if (!j->lse)
        return;
    for (int64_t r = 0; r < t->rows; r++) {
        int64_t token = s->row + t->first_query + r / j->heads;
        j->lse[token * j->a->H + g * j->heads + r % j->heads] = t->m[r] + logf(t->l[r]);
    }
}

/* Cut every segment into runs of `step` tokens for each key head, and leave out the first `without` runs; how many
 * pieces that makes. */
static int64_t number_pieces(const mmi_attention *a, int64_t step, int64_t without)
{
    a->piece_first[0] = 0;
    for (int64_t i = 0; i < a->segment_count; i++) {
        int64_t runs = mmi_pieces(a->segments[i].count, step) - without;
        a->piece_first[i + 1] = a->piece_first[i] + (runs > 0 ? a->G * runs : 0);
    }
    return a->piece_first[a->segment_count];
}

/* Which segment a piece belongs to: the last whose pieces begin at or before it. */
static int64_t segment_of(const mmi_attention *a, int64_t piece)
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

/* Parts that a segment's keys are cut into. */
static int64_t parts_of(const job *j, const mmi_segment *s)
{
    int64_t n = (s->past + s->count) / PART_KEYS;
    return n < 1 ? 1 : n < j->parts ? n : j->parts;
}

/* What a piece does: queries [first, last) of one segment and key head against the keys [key_first, key_last). */
typedef struct place {
    const mmi_segment *s;
    int64_t g, first, last, key_first, key_last;
} place;

static place place_of(const job *j, int64_t piece)
{
    const mmi_attention *a = j->a;
    int64_t index = segment_of(a, piece), local = piece - a->piece_first[index];
    const mmi_segment *s = &a->segments[index];
    place p = { .s = s };
    if (j->parts > 1) {
        int64_t n = parts_of(j, s), tiles = mmi_pieces(s->past + s->count, KEYS), i = local % n;
        p.g = local / n;
        p.last = s->count;
        p.key_first = i * tiles / n * KEYS;
        p.key_last = i + 1 < n ? (i + 1) * tiles / n * KEYS : s->past + s->count;
        return p;
    }
    p.g = local % a->G;
    /* the longest tiles first: the last pieces to be handed out are then the shortest */
    mmi_piece_rows(mmi_pieces(s->count, j->tokens) - 1 - local / a->G, j->tokens, s->count, &p.first, &p.last);
    p.key_last = s->past + p.last;
    return p;
}

/* The keys that a thread reads after a tile's: the next of the piece, or the first of the next piece. NULL: that is
 * another thread's. */
static const void *keys_after(const tile *t, const job *j, const place *p, int64_t piece)
{
    const int64_t key = t->first_key + t->keys, next = piece + 1;
    if (key < p->key_last)
        return key_at(j->a, p->s, key, p->g, j->a->k);
    if (j->run == 0 || next % j->run == 0 || next >= j->pieces)
        return NULL;
    place then = place_of(j, next);
    return key_at(j->a, then.s, then.key_first, then.g, j->a->k);
}

/* A part's sums: out [R, D], m [R], l [R]. While attention runs, the panels of large products are nobody's. */
static float *part_place(const job *j, int64_t piece)
{
    return j->x->panels + piece * j->part_floats;
}

static void keep_part(const tile *t, const job *j, int64_t piece)
{
    const int64_t R = t->rows, D = j->a->D;
    float *to = part_place(j, piece);
    memcpy(to, t->out, (size_t)(R * D) * sizeof(float));
    memcpy(to + R * D, t->m, (size_t)R * sizeof(float));
    memcpy(to + R * (D + 1), t->l, (size_t)R * sizeof(float));
}

/* Nothing met yet. */
static void begin_rows(tile *t, const job *j, int64_t first, int64_t last)
{
    t->first_query = first;
    tile_rows(t, j, (last - first) * j->heads);
    memset(t->out, 0, (size_t)(t->rows * j->a->D) * sizeof(float));
    for (int64_t r = 0; r < t->rows; r++) {
        t->m[r] = -INFINITY;
        t->l[r] = 0;
    }
}

/* The tile's sums are those of `n` parts from `first` on. */
static void join_parts(tile *t, const job *j, int64_t first, int64_t n)
{
    const int64_t R = t->rows, D = j->a->D;
    for (int64_t i = first; i < first + n; i++)
        for (int64_t r = 0; r < R; r++) {
            float m = part_place(j, i)[R * D + r];
            t->m[r] = m > t->m[r] ? m : t->m[r];
        }
    for (int64_t i = first; i < first + n; i++) {
        const float *out = part_place(j, i), *m = out + R * D, *l = m + R;
        for (int64_t r = 0; r < R; r++) {
            float share = m[r] == t->m[r] ? 1 : expf(m[r] - t->m[r]);
            t->l[r] += share * l[r];
            j->x->k.axpy(t->out + r * D, share, out + r * D, D);
        }
    }
}

/* Keep the sums of a part. Whoever does the last one of its segment and key head has them all joined in the tile. */
static bool part_is_last(tile *t, const job *j, const place *p, int64_t piece)
{
    const int64_t index = p->s - j->a->segments, n = parts_of(j, p->s);
    keep_part(t, j, piece);
    if (atomic_fetch_sub(&j->left[index * j->a->G + p->g], 1) > 1)
        return false;
    begin_rows(t, j, p->first, p->last);
    join_parts(t, j, j->a->piece_first[index] + p->g * n, n);
    return true;
}

static void forward_piece(const job *j, int64_t piece, int worker)
{
    const mmi_attention *a = j->a;
    const place p = place_of(j, piece);
    tile t = tile_place(j, worker);
    if (a->before && j->parts == 1)
        a->before(a->arg, p.s, p.g);
    begin_rows(&t, j, p.first, p.last);
    load_queries(&t, j, p.s, p.g, p.last - p.first);
    for (t.first_key = p.key_first; t.first_key < p.key_last; t.first_key += KEYS) {
        t.keys = p.key_last - t.first_key < KEYS ? p.key_last - t.first_key : KEYS;
        if (t.few)
            t.next = keys_after(&t, j, &p, piece);
        scores(&t, j, p.s, p.g);
        fold(&t, j, p.s, p.g);
    }
    if (j->parts > 1 && !part_is_last(&t, j, &p, piece))
        return;
    finish(&t, j, p.s, p.g, p.last - p.first);
    if (a->after)
        a->after(a->arg, p.s, p.g);
}

static void forward_group(void *arg, int64_t index, int worker)
{
    const job *j = arg;
    int64_t first, last;
    mmi_piece_rows(index, j->group, j->pieces, &first, &last);
    for (int64_t piece = first; piece < last; piece++)
        forward_piece(j, piece, worker);
}

/* Pieces that are together worth a thread, by the table's measure: a token that sees few keys, as in decoding, is left
 * to the caller, and of many such tokens several make a piece. */
static int64_t group_of(const mmi_exec *x, const mmi_attention *a, int64_t pieces)
{
    double work = 0;
    for (int64_t i = 0; i < a->segment_count; i++) {
        const mmi_segment *s = &a->segments[i];
        work += (double)s->count * (double)(s->past + s->count) * (double)(a->H * a->D);
    }
    double group = work > 0 ? (double)x->k.attention_worth * (double)pieces / work : 1;
    return group < 1 ? 1 : group < (double)pieces ? (int64_t)group : pieces;
}

static job job_for(const mmi_exec *x, const mmi_attention *a)
{
    int64_t heads = a->H / a->G;
    return (job){ .x = x, .a = a, .heads = heads, .tokens = tile_tokens(heads), .scale = 1 / sqrtf((float)a->D) };
}

bool mmi_attention_is_short(const mmi_attention *a)
{
    const int64_t tokens = tile_tokens(a->H / a->G);
    for (int64_t i = 0; i < a->segment_count; i++)
        if (a->segments[i].count > tokens)
            return false;
    return true;
}

/* Choose how many parts keys are cut into at most: 1 where there are pieces enough, or none has many keys. */
static void plan_parts(job *j)
{
    const mmi_attention *a = j->a;
    int64_t seen = 0, rows = 0;
    for (int64_t i = 0; i < a->segment_count; i++) {
        const mmi_segment *s = &a->segments[i];
        seen = s->past + s->count > seen ? s->past + s->count : seen;
        rows = s->count * j->heads > rows ? s->count * j->heads : rows;
    }
    const int64_t pieces = a->segment_count * a->G, most = pieces > 0 ? ENOUGH_PIECES / pieces : 1;
    j->part_floats = rows * (a->D + 2);
    const bool fits = ENOUGH_PIECES * j->part_floats <= mmi_gemm_panels();
    j->parts = seen >= 2 * PART_KEYS && most > 1 && fits && mmi_attention_is_short(a) ? most : 1;
}

static void forward_in_parts(job *j)
{
    const mmi_attention *a = j->a;
    atomic_int left[ENOUGH_PIECES];
    a->piece_first[0] = 0;
    for (int64_t i = 0; i < a->segment_count; i++) {
        const int64_t n = parts_of(j, &a->segments[i]);
        a->piece_first[i + 1] = a->piece_first[i] + a->G * n;
        for (int64_t g = 0; g < a->G; g++) {
            atomic_init(&left[i * a->G + g], (int)n);
            if (a->before)
                a->before(a->arg, &a->segments[i], g);
        }
    }
    j->left = left;
    j->pieces = a->piece_first[a->segment_count];
    j->group = 1;
    j->run = mmi_pool_run_length(j->x->pool, j->pieces);
    mmi_pool_run_neighbours(j->x->pool, j->pieces, forward_group, j);
}

void mmi_attention_forward(const mmi_exec *x, float *out, float *lse, const mmi_attention *a)
{
    job j = job_for(x, a);
    j.out = out;
    j.lse = lse;
    plan_parts(&j);
    if (j.parts > 1) {
        forward_in_parts(&j);
        return;
    }
    j.pieces = number_pieces(a, j.tokens, 0);
    if (j.pieces == 0)
        return;
    j.group = group_of(x, a, j.pieces);
    const int64_t groups = mmi_pieces(j.pieces, j.group);
    if (mmi_attention_is_short(a)) { /* they read most, and then it pays to know what comes next */
        j.run = j.group * mmi_pool_run_length(x->pool, groups);
        mmi_pool_run_neighbours(x->pool, groups, forward_group, &j);
    } else {
        mmi_pool_run(x->pool, groups, forward_group, &j);
    }
}

/* s = p = exp(s - lse), then dp = the scores' gradient p * (dp - delta). Keys a row can't see get 0. */
static void softmax_backward(tile *t, const job *j, const mmi_segment *s, int64_t g)
{
    for (int64_t r = 0; r < t->rows; r++) {
        int64_t n = visible(t, j, s, r);
        float *p = t->s + r * KEYS, *dp = t->dp + r * KEYS;
        j->x->k.softmax_scaled(p, t->m[r], 1, n);
        drop(dp, n, r, t, j, s, g);
        for (int64_t i = 0; i < n; i++)
            dp[i] = p[i] * (dp[i] - t->l[r]);
        drop(p, n, r, t, j, s, g);
        memset(p + n, 0, (size_t)(t->keys - n) * sizeof(float));
        memset(dp + n, 0, (size_t)(t->keys - n) * sizeof(float));
    }
}

/* The rest of backward_tile() once there are scores, by panels; the tile's keys begin at `at`. */
static void rounded_backward(tile *t, const job *j, const mmi_segment *s, int64_t g, int64_t at)
{
    const mmi_attention *a = j->a;
    const int64_t D = a->D, ld = a->ldk, rows = t->rows, keys = t->keys;
    const float *k = (const float *)a->k + at, *v = (const float *)a->v + at;
    multiply(j, t->dp, KEYS, t->p.dout, pack_right(j, t->p.right, v, ld, 1, keys, D), rows, keys, D, false);
    softmax_backward(t, j, s, g);
    multiply(j, j->dv + at, ld, pack_left(j, t->p.left, t->s, 1, KEYS, keys, rows), t->p.dout_right, keys, D, rows,
             true);
    multiply(j, j->dk + at, ld, pack_left(j, t->p.left, t->dp, 1, KEYS, keys, rows), t->p.q_right, keys, D, rows, true);
    const float *left = pack_left(j, t->p.left, t->dp, KEYS, 1, rows, keys);
    multiply(j, t->out, D, left, pack_right(j, t->p.right, k, 1, ld, D, keys), rows, D, keys, true);
}

/* One tile of queries against one tile of keys. With P the probabilities: dV += Pᵀ dO, dP = dO Vᵀ, dS = P (dP - delta),
 * dQ += dS K / sqrt(D), dK += dSᵀ Q / sqrt(D); the factor is in t->q for dK and comes last for dQ. */
static void backward_tile(tile *t, const job *j, const mmi_segment *s, int64_t g)
{
    const mmi_attention *a = j->a;
    const mmi_kernels *k = &j->x->k;
    int64_t D = a->D, ld = a->ldk, at = (s->row + t->first_key) * ld + g * a->head_stride;
    const float *keys = a->k, *values = a->v;
    scores(t, j, s, g);
    if (t->rounded) {
        rounded_backward(t, j, s, g, at);
        return;
    }
    k->transpose(t->vt, KEYS, values + at, ld, t->keys, D);
    EACH_PART (p, t, j, s)
        k->gemm_tile(t->dp + p.row * KEYS, KEYS, t->dout + p.row * D, D, 1, t->vt, KEYS, p.rows, p.keys, D, 0);
    softmax_backward(t, j, s, g);
    EACH_PART (p, t, j, s) {
        const float *probabilities = t->s + p.row * KEYS, *gradients = t->dp + p.row * KEYS;
        k->gemm_tile(j->dv + at, ld, probabilities, 1, KEYS, t->dout + p.row * D, D, p.keys, D, p.rows, 1);
        k->gemm_tile(j->dk + at, ld, gradients, 1, KEYS, t->q + p.row * D, D, p.keys, D, p.rows, 1);
        k->gemm_tile(t->out + p.row * D, D, gradients, KEYS, 1, keys + at, ld, p.rows, D, p.keys, 1);
    }
}

static void load_backward_rows(tile *t, const job *j, const mmi_segment *s, int64_t g, int64_t tokens)
{
    const mmi_attention *a = j->a;
    int64_t D = a->D, width = a->H * D;
    load_queries(t, j, s, g, tokens);
    load_rows(t->dout, j->dout, width, j, s, g, t->first_query, tokens);
    if (j->apart > 0) /* they have met later keys */
        load_rows(t->out, j->dq, a->ldq, j, s, g, t->first_query, tokens);
    else
        memset(t->out, 0, (size_t)(t->rows * D) * sizeof(float));
    for (int64_t r = 0; r < t->rows; r++) {
        int64_t token = s->row + t->first_query + r / j->heads, head = g * j->heads + r % j->heads;
        t->m[r] = j->lse_in[token * a->H + head];
        t->l[r] = j->x->k.dot(t->dout + r * D, j->out_in + token * width + head * D, D); /* delta = Σ dP P */
    }
    if (t->rounded) {
        pack_left(j, t->p.dout, t->dout, D, 1, t->rows, D);
        pack_right(j, t->p.dout_right, t->dout, 1, D, D, t->rows);
        pack_right(j, t->p.q_right, t->q, 1, D, D, t->rows);
    }
}

/* The queries [first, last) of a segment against its keys [key_first, key_last), as far as they see them. */
static void backward_queries(tile *t, const job *j, const mmi_segment *s, int64_t g, int64_t first, int64_t last,
                             int64_t key_first, int64_t key_last)
{
    t->first_query = first;
    tile_rows(t, j, (last - first) * j->heads);
    load_backward_rows(t, j, s, g, last - first);
    for (t->first_key = key_first; t->first_key < key_last && t->first_key < last; t->first_key += KEYS) {
        int64_t end = key_last < last ? key_last : last;
        t->keys = end - t->first_key < KEYS ? end - t->first_key : KEYS;
        backward_tile(t, j, s, g);
    }
    if (key_first == 0) /* there are no more keys */
        j->x->k.scale(t->out, j->scale, t->rows * j->a->D);
    store_rows(j->dq, j->a->ldq, t->out, j, s, g, first, last - first);
}

/* A piece: one segment, one key head, one span of queries with the span of keys that lies `apart` spans before. */
static void backward_piece(void *arg, int64_t piece, int worker)
{
    const job *j = arg;
    const mmi_attention *a = j->a;
    int64_t index = segment_of(a, piece), local = piece - a->piece_first[index], g = local % a->G;
    const mmi_segment *s = &a->segments[index];
    int64_t first, last, key_first, key_last;
    mmi_piece_rows(j->apart + local / a->G, j->span, s->count, &first, &last);
    mmi_piece_rows(local / a->G, j->span, s->count, &key_first, &key_last);
    for (int64_t i = key_first; i < key_last && j->apart == 0; i++) {
        memset(j->dk + (s->row + i) * a->ldk + g * a->head_stride, 0, (size_t)a->D * sizeof(float));
        memset(j->dv + (s->row + i) * a->ldk + g * a->head_stride, 0, (size_t)a->D * sizeof(float));
    }
    tile t = tile_place(j, worker);
    for (; first < last; first += j->tokens)
        backward_queries(&t, j, s, g, first, last - first < j->tokens ? last : first + j->tokens, key_first, key_last);
}

void mmi_attention_backward(const mmi_exec *x, float *dq, float *dk, float *dv, const float *dout, const float *out,
                            const float *lse, const mmi_attention *a)
{
    job j = job_for(x, a);
    j.dq = dq;
    j.dk = dk;
    j.dv = dv;
    j.dout = dout;
    j.out_in = out;
    j.lse_in = lse;
    for (j.span = SPAN; j.span > LEAST_SPAN && number_pieces(a, j.span, 0) < ENOUGH_PIECES;)
        j.span /= 2;
    /* Each span of queries with its own keys, then each with those of the span before, and so on: in no run do two
     * pieces write the same dq, dk or dv, and scores are computed once. */
    for (int64_t pieces; (pieces = number_pieces(a, j.span, j.apart)) > 0; j.apart++)
        mmi_pool_run(x->pool, pieces, backward_piece, &j);
}
