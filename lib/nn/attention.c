#include "nn/attention.h"

#include <math.h>
#include <stdatomic.h>
#include <string.h>

#include "backend/gemm.h"
#include "nn/attention_tile.h"

/* A tile of queries that meets many keys, as in decoding behind a long text, meets them in parts of so many at
 * least, whose sums are joined. */
#define PART_KEYS 512

typedef struct forward {
    mmi_tile_job j;
    float *out, *lse;
    int64_t pieces, group; /* of so many, each call does a group */
    int64_t run;           /* so many neighbouring pieces are mostly one thread's; 0: they are not dealt out so */
    int64_t parts;         /* of the keys of a segment and key head, at most; 1: they are not cut */
    int64_t part_floats;   /* what a part gives */
    atomic_int *left;      /* [segments * G] parts that are not done yet */
} forward;

/* Fold one tile of keys into the running softmax: out = out * exp(m - m') + exp(s - m') · v. */
static void fold(mmi_tile *t, const mmi_tile_job *j, const mmi_segment *s, int64_t g)
{
    const mmi_kernels *k = &j->x->k;
    int64_t D = j->a->D;
    for (int64_t r = 0; r < t->rows; r++) {
        int64_t n = mmi_tile_visible(t, j, s, r);
        float before = t->m[r], *row = t->s + r * MMI_TILE_KEYS;
        float sum = k->softmax_tile(row, &t->m[r], n);
        memset(row + n, 0, (size_t)(t->keys - n) * sizeof(float));
        if (before != t->m[r]) {
            float shrink = expf(before - t->m[r]);
            t->l[r] *= shrink;
            k->scale(t->out + r * D, shrink, D);
        }
        t->l[r] += sum;
        mmi_tile_drop(row, n, r, t, j, s, g);
    }
    mmi_tile_operand values = mmi_tile_operand_of(t, j, s, g, j->a->v); /* in the place of the keys */
    if (t->rounded) {
        const float *left = mmi_tile_pack_left(j, t->p.left, t->s, MMI_TILE_KEYS, 1, t->rows, t->keys);
        const float *right = mmi_tile_pack_right(j, t->p.right, values.data, 1, values.ld, D, t->keys);
        mmi_tile_multiply(j, t->out, D, left, right, t->rows, D, t->keys, true);
        return;
    }
    if (t->few) {
        k->few_values(t->out, t->s, MMI_TILE_KEYS, values.data, values.dtype, values.ld, t->rows, t->keys, D, t->next);
        return;
    }
    EACH_BAND (p, t, j, s)
        k->gemm_tile(t->out + p.row * D, D, t->s + p.row * MMI_TILE_KEYS, MMI_TILE_KEYS, 1, values.data, values.ld,
                     p.rows, D, p.keys, 1);
}

static void finish(mmi_tile *t, const forward *f, const mmi_segment *s, int64_t g, int64_t tokens)
{
    int64_t D = f->j.a->D;
    for (int64_t r = 0; r < t->rows; r++)
        f->j.x->k.scale(t->out + r * D, 1 / t->l[r], D);
    mmi_tile_store(f->out, f->j.a->H * D, t->out, &f->j, s, g, t->first_query, tokens);
    if (!f->lse)
        return;
    for (int64_t r = 0; r < t->rows; r++) {
        int64_t token = s->row + t->first_query + r / f->j.heads;
        f->lse[token * f->j.a->H + g * f->j.heads + r % f->j.heads] = t->m[r] + logf(t->l[r]);
    }
}

/* Parts that a segment's keys are cut into. */
static int64_t parts_of(const forward *f, const mmi_segment *s)
{
    int64_t n = (s->past + s->count) / PART_KEYS;
    return n < 1 ? 1 : n < f->parts ? n : f->parts;
}

/* What a piece does: queries [first, last) of one segment and key head against the keys [key_first, key_last). */
typedef struct place {
    const mmi_segment *s;
    int64_t g, first, last, key_first, key_last;
} place;

static place place_of(const forward *f, int64_t piece)
{
    const mmi_attention *a = f->j.a;
    int64_t index = mmi_tile_segment_of(a, piece), local = piece - a->piece_first[index];
    const mmi_segment *s = &a->segments[index];
    place p = { .s = s };
    if (f->parts > 1) {
        int64_t n = parts_of(f, s), tiles = mmi_pieces(s->past + s->count, MMI_TILE_KEYS), i = local % n;
        p.g = local / n;
        p.last = s->count;
        p.key_first = i * tiles / n * MMI_TILE_KEYS;
        p.key_last = i + 1 < n ? (i + 1) * tiles / n * MMI_TILE_KEYS : s->past + s->count;
        return p;
    }
    p.g = local % a->G;
    /* the longest tiles first: the last pieces to be handed out are then the shortest */
    mmi_piece_rows(mmi_pieces(s->count, f->j.tokens) - 1 - local / a->G, f->j.tokens, s->count, &p.first, &p.last);
    p.key_last = s->past + p.last;
    return p;
}

/* The keys that a thread reads after a tile's: the next of the piece, or the first of the next piece. NULL: that is
 * another thread's. */
static const void *keys_after(const mmi_tile *t, const forward *f, const place *p, int64_t piece)
{
    const int64_t key = t->first_key + t->keys, next = piece + 1;
    if (key < p->key_last)
        return mmi_tile_key(f->j.a, p->s, key, p->g, f->j.a->k);
    if (f->run == 0 || next % f->run == 0 || next >= f->pieces)
        return NULL;
    place then = place_of(f, next);
    return mmi_tile_key(f->j.a, then.s, then.key_first, then.g, f->j.a->k);
}

/* A part's sums: out [R, D], m [R], l [R]. While attention runs, the panels of large products are nobody's. */
static float *part_place(const forward *f, int64_t piece)
{
    return f->j.x->panels + piece * f->part_floats;
}

static void keep_part(const mmi_tile *t, const forward *f, int64_t piece)
{
    const int64_t R = t->rows, D = f->j.a->D;
    float *to = part_place(f, piece);
    memcpy(to, t->out, (size_t)(R * D) * sizeof(float));
    memcpy(to + R * D, t->m, (size_t)R * sizeof(float));
    memcpy(to + R * (D + 1), t->l, (size_t)R * sizeof(float));
}

/* Nothing met yet. */
static void begin_rows(mmi_tile *t, const mmi_tile_job *j, int64_t first, int64_t last)
{
    t->first_query = first;
    mmi_tile_begin(t, j, (last - first) * j->heads);
    memset(t->out, 0, (size_t)(t->rows * j->a->D) * sizeof(float));
    for (int64_t r = 0; r < t->rows; r++) {
        t->m[r] = -INFINITY;
        t->l[r] = 0;
    }
}

/* The tile's sums are those of `n` parts from `first` on. */
static void join_parts(mmi_tile *t, const forward *f, int64_t first, int64_t n)
{
    const int64_t R = t->rows, D = f->j.a->D;
    for (int64_t i = first; i < first + n; i++)
        for (int64_t r = 0; r < R; r++) {
            float m = part_place(f, i)[R * D + r];
            t->m[r] = m > t->m[r] ? m : t->m[r];
        }
    for (int64_t i = first; i < first + n; i++) {
        const float *out = part_place(f, i), *m = out + R * D, *l = m + R;
        for (int64_t r = 0; r < R; r++) {
            float share = m[r] == t->m[r] ? 1 : expf(m[r] - t->m[r]);
            t->l[r] += share * l[r];
            f->j.x->k.axpy(t->out + r * D, share, out + r * D, D);
        }
    }
}

/* Keep the sums of a part. Whoever does the last one of its segment and key head has them all joined in the tile. */
static bool part_is_last(mmi_tile *t, const forward *f, const place *p, int64_t piece)
{
    const int64_t index = p->s - f->j.a->segments, n = parts_of(f, p->s);
    keep_part(t, f, piece);
    if (atomic_fetch_sub(&f->left[index * f->j.a->G + p->g], 1) > 1)
        return false;
    begin_rows(t, &f->j, p->first, p->last);
    join_parts(t, f, f->j.a->piece_first[index] + p->g * n, n);
    return true;
}

static void forward_piece(const forward *f, int64_t piece, int worker)
{
    const mmi_attention *a = f->j.a;
    const place p = place_of(f, piece);
    mmi_tile t = mmi_tile_place(&f->j, worker);
    if (a->before && f->parts == 1)
        a->before(a->arg, p.s, p.g);
    begin_rows(&t, &f->j, p.first, p.last);
    mmi_tile_load_queries(&t, &f->j, p.s, p.g, p.last - p.first);
    for (t.first_key = p.key_first; t.first_key < p.key_last; t.first_key += MMI_TILE_KEYS) {
        t.keys = p.key_last - t.first_key < MMI_TILE_KEYS ? p.key_last - t.first_key : MMI_TILE_KEYS;
        if (t.few)
            t.next = keys_after(&t, f, &p, piece);
        mmi_tile_scores(&t, &f->j, p.s, p.g);
        fold(&t, &f->j, p.s, p.g);
    }
    if (f->parts > 1 && !part_is_last(&t, f, &p, piece))
        return;
    finish(&t, f, p.s, p.g, p.last - p.first);
    if (a->after)
        a->after(a->arg, p.s, p.g);
}

static void forward_group(void *arg, int64_t index, int worker)
{
    const forward *f = arg;
    int64_t first, last;
    mmi_piece_rows(index, f->group, f->pieces, &first, &last);
    for (int64_t piece = first; piece < last; piece++)
        forward_piece(f, piece, worker);
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

bool mmi_attention_is_short(const mmi_attention *a)
{
    const int64_t tokens = mmi_tile_tokens(a->H / a->G);
    for (int64_t i = 0; i < a->segment_count; i++)
        if (a->segments[i].count > tokens)
            return false;
    return true;
}

/* Choose how many parts keys are cut into at most: 1 where there are pieces enough, or none has many keys. */
static void plan_parts(forward *f)
{
    const mmi_attention *a = f->j.a;
    int64_t seen = 0, rows = 0;
    for (int64_t i = 0; i < a->segment_count; i++) {
        const mmi_segment *s = &a->segments[i];
        seen = s->past + s->count > seen ? s->past + s->count : seen;
        rows = s->count * f->j.heads > rows ? s->count * f->j.heads : rows;
    }
    const int64_t pieces = a->segment_count * a->G, most = pieces > 0 ? MMI_ENOUGH_PIECES / pieces : 1;
    f->part_floats = rows * (a->D + 2);
    const bool fits = MMI_ENOUGH_PIECES * f->part_floats <= mmi_gemm_panels();
    f->parts = seen >= 2 * PART_KEYS && most > 1 && fits && mmi_attention_is_short(a) ? most : 1;
}

static void forward_in_parts(forward *f)
{
    const mmi_attention *a = f->j.a;
    atomic_int left[MMI_ENOUGH_PIECES];
    a->piece_first[0] = 0;
    for (int64_t i = 0; i < a->segment_count; i++) {
        const int64_t n = parts_of(f, &a->segments[i]);
        a->piece_first[i + 1] = a->piece_first[i] + a->G * n;
        for (int64_t g = 0; g < a->G; g++) {
            atomic_init(&left[i * a->G + g], (int)n);
            if (a->before)
                a->before(a->arg, &a->segments[i], g);
        }
    }
    f->left = left;
    f->pieces = a->piece_first[a->segment_count];
    f->group = 1;
    f->run = mmi_pool_run_length(f->j.x->pool, f->pieces);
    mmi_pool_run_neighbours(f->j.x->pool, f->pieces, forward_group, f);
}

void mmi_attention_forward(const mmi_exec *x, float *out, float *lse, const mmi_attention *a)
{
    forward f = { .j = mmi_tile_job_for(x, a), .out = out, .lse = lse };
    plan_parts(&f);
    if (f.parts > 1) {
        forward_in_parts(&f);
        return;
    }
    f.pieces = mmi_tile_number_pieces(a, f.j.tokens, 0);
    if (f.pieces == 0)
        return;
    f.group = group_of(x, a, f.pieces);
    const int64_t groups = mmi_pieces(f.pieces, f.group);
    if (mmi_attention_is_short(a)) { /* they read most, and then it pays to know what comes next */
        f.run = f.group * mmi_pool_run_length(x->pool, groups);
        mmi_pool_run_neighbours(x->pool, groups, forward_group, &f);
    } else {
        mmi_pool_run(x->pool, groups, forward_group, &f);
    }
}
