#include "nn/attention.h"

#include <math.h>
#include <stdatomic.h>
#include <string.h>

#include "backend/gemm.h"
#include "nn/attention_tile.h"

/* A tile of queries that meets many keys, as in decoding behind a long text, meets them in parts of so many at least,
 * whose sums are joined: as pieces of their own, where there are few, or one after the other. */
#define PART_KEYS 512

/* A tile is cut into so many parts at most. */
#define MOST_TILE_PARTS 4

typedef struct forward {
    mmi_tile_job j;
    float *out, *lse;
    int64_t pieces, group; /* of so many, each call does a group */
    int64_t run;           /* so many neighbouring pieces are mostly one thread's; 0: they are not dealt out so */
    int64_t step;          /* tokens of a piece: a tile's, or fewer for more threads */
    bool apart;            /* parts are pieces of their own, */
    int64_t part_floats;   /* which leave so much each, */
    atomic_int *left;      /* [segments * G] and so many are not done yet */
} forward;

/* What a tile's rows have come to with the keys met so far: Σ exp(s - m) v, m, and Σ exp(s - m). */
typedef struct sums {
    float *out, *m, *l; /* [R, D], [R], [R] */
} sums;

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
    for (int64_t r = 0; r < t->rows; r++) {
        bool blind = s->key_mask && t->l[r] == 0; /* it sees masked keys only; without a mask, overflow is to show */
        f->j.x->k.scale(t->out + r * D, blind ? 0 : 1 / t->l[r], D);
    }
    mmi_tile_store(f->out, f->j.a->H * D, t->out, &f->j, s, g, t->first_query, tokens);
    if (!f->lse)
        return;
    for (int64_t r = 0; r < t->rows; r++) {
        int64_t token = s->row + t->first_query + r / f->j.heads;
        f->lse[token * f->j.a->H + g * f->j.heads + r % f->j.heads] = t->m[r] + logf(t->l[r]);
    }
}

/* Parts that a segment's keys are cut into: a matter of the segment alone, and not of those beside it. */
static int64_t parts_of(const mmi_tile_job *j, const mmi_segment *s)
{
    const int64_t n = (s->past + s->count) / PART_KEYS, most = MMI_ENOUGH_PIECES / j->a->G;
    if (s->count == 0)
        return 0;
    if (s->count > j->tokens || n < 1 || most < 1)
        return 1;
    return n < most ? n : most;
}

/* What a piece does: queries [first, last) of one segment and key head against parts [part, part_end) of its keys, a
 * tile of so many tokens or a part of it. */
typedef struct place {
    const mmi_segment *s;
    int64_t g, first, last, tile, parts, part, part_end;
} place;

static place place_of(const forward *f, int64_t piece)
{
    const mmi_attention *a = f->j.a;
    int64_t index = mmi_tile_segment_of(a, piece), local = piece - a->piece_first[index];
    const mmi_segment *s = &a->segments[index];
    place p = { .s = s, .parts = parts_of(&f->j, s) };
    if (f->apart) {
        p.g = local / p.parts;
        p.last = p.tile = s->count;
        p.part = local % p.parts;
        p.part_end = p.part + 1;
        return p;
    }
    p.g = local % a->G;
    p.part_end = p.parts;
    /* the longest tiles first: the last pieces to be handed out are then the shortest */
    mmi_piece_rows(mmi_pieces(s->count, f->step) - 1 - local / a->G, f->step, s->count, &p.first, &p.last);
    if (p.parts > 1) /* where they begin depends on the tile's last token: it stays whole, and is the first piece's */
        p.last = p.first == 0 ? s->count : p.first;
    int64_t first, last;
    mmi_piece_rows(p.first / f->j.tokens, f->j.tokens, s->count, &first, &last);
    p.tile = last - first;
    return p;
}

/* Where the keys of a part begin, and those of the part before end: at whole tiles. */
static int64_t part_begin(const place *p, int64_t part)
{
    const int64_t seen = p->s->past + p->last;
    return part < p->parts ? part * mmi_pieces(seen, MMI_TILE_KEYS) / p->parts * MMI_TILE_KEYS : seen;
}

/* The keys that a thread reads after a tile's: the next of the piece, or the first of the next piece. NULL: that is
 * another thread's. */
static const void *keys_after(const mmi_tile *t, const forward *f, const place *p, int64_t piece)
{
    const int64_t key = t->first_key + t->keys, next = piece + 1;
    if (key < part_begin(p, p->part_end))
        return mmi_tile_key(f->j.a, p->s, key, p->g, f->j.a->k);
    if (f->run == 0 || next % f->run == 0 || next >= f->pieces)
        return NULL;
    place then = place_of(f, next);
    return mmi_tile_key(f->j.a, then.s, part_begin(&then, then.part), then.g, f->j.a->k);
}

static void clear(sums s, int64_t rows, int64_t D)
{
    memset(s.out, 0, (size_t)(rows * D) * sizeof(float));
    memset(s.l, 0, (size_t)rows * sizeof(float));
    for (int64_t r = 0; r < rows; r++)
        s.m[r] = -INFINITY;
}

static sums tile_sums(const mmi_tile *t)
{
    return (sums){ t->out, t->m, t->l };
}

/* The sums of a part that is a piece. While attention runs, the panels of large products are nobody's. */
static sums part_sums(const forward *f, int64_t piece, int64_t rows)
{
    float *at = f->j.x->panels + piece * f->part_floats;
    return (sums){ at, at + rows * f->j.a->D, at + rows * (f->j.a->D + 1) };
}

/* Add a part's sums to those of the parts before. */
static void join(const mmi_tile_job *j, sums all, sums part, int64_t rows)
{
    const mmi_kernels *k = &j->x->k;
    const int64_t D = j->a->D;
    for (int64_t r = 0; r < rows; r++) {
        if (part.m[r] > all.m[r] + MMI_SOFTMAX_SLACK) {
            float shrink = expf(all.m[r] - part.m[r]);
            all.m[r] = part.m[r];
            all.l[r] *= shrink;
            k->scale(all.out + r * D, shrink, D);
        }
        float share = part.m[r] == all.m[r] ? 1 : expf(part.m[r] - all.m[r]);
        all.l[r] += share * part.l[r];
        k->axpy(all.out + r * D, share, part.out + r * D, D);
    }
}

/* The tile's sums are those of a part then. */
static void meet_part(mmi_tile *t, const forward *f, const place *p, int64_t part, int64_t piece)
{
    const int64_t end = part_begin(p, part + 1);
    clear(tile_sums(t), t->rows, f->j.a->D);
    for (t->first_key = part_begin(p, part); t->first_key < end; t->first_key += MMI_TILE_KEYS) {
        t->keys = end - t->first_key < MMI_TILE_KEYS ? end - t->first_key : MMI_TILE_KEYS;
        if (t->few)
            t->next = keys_after(t, f, p, piece);
        mmi_tile_scores(t, &f->j, p->s, p->g);
        fold(t, &f->j, p->s, p->g);
    }
}

/* All parts, one after the other. What the way back needs of a tile has room for their sums. */
static void meet_parts(mmi_tile *t, const forward *f, const place *p, int64_t piece)
{
    const sums all = { t->dout, t->dp, t->dp + t->rows };
    clear(all, t->rows, f->j.a->D);
    for (int64_t part = 0; part < p->parts; part++) {
        meet_part(t, f, p, part, piece);
        join(&f->j, all, tile_sums(t), t->rows);
    }
    t->out = all.out;
    t->m = all.m;
    t->l = all.l;
}

/* A part that is a piece. Whoever does the last one of its segment and key head joins them all: true. */
static bool meet_part_and_join(mmi_tile *t, const forward *f, const place *p, int64_t piece)
{
    const int64_t index = p->s - f->j.a->segments, rows = t->rows, D = f->j.a->D;
    meet_part(t, f, p, p->part, piece);
    const sums kept = part_sums(f, piece, rows);
    memcpy(kept.out, t->out, (size_t)(rows * D) * sizeof(float));
    memcpy(kept.m, t->m, (size_t)rows * sizeof(float));
    memcpy(kept.l, t->l, (size_t)rows * sizeof(float));
    if (atomic_fetch_sub(&f->left[index * f->j.a->G + p->g], 1) > 1)
        return false;
    clear(tile_sums(t), rows, D);
    for (int64_t part = 0; part < p->parts; part++)
        join(&f->j, tile_sums(t), part_sums(f, piece - p->part + part, rows), rows);
    return true;
}

static void forward_piece(const forward *f, int64_t piece, int worker)
{
    const mmi_attention *a = f->j.a;
    const place p = place_of(f, piece);
    mmi_tile t = mmi_tile_place(&f->j, worker);
    if (p.first == p.last)
        return;
    if (a->before && !f->apart)
        a->before(a->arg, p.s, p.g);
    t.first_query = p.first;
    mmi_tile_begin(&t, &f->j, p.last - p.first, p.tile);
    mmi_tile_load_queries(&t, &f->j, p.s, p.g, p.last - p.first);
    if (f->apart) {
        if (!meet_part_and_join(&t, f, &p, piece))
            return;
    } else if (p.parts > 1) {
        meet_parts(&t, f, &p, piece);
    } else {
        meet_part(&t, f, &p, 0, piece);
    }
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

/* Whether parts are to be pieces of their own: where there are any, too few pieces without, and room for their sums. */
static bool are_apart(forward *f)
{
    const mmi_attention *a = f->j.a;
    int64_t parts = 0, rows = 0;
    for (int64_t i = 0; i < a->segment_count; i++) {
        const mmi_segment *s = &a->segments[i];
        parts += a->G * parts_of(&f->j, s);
        rows = s->count * f->j.heads > rows ? s->count * f->j.heads : rows;
    }
    const int64_t pieces = a->segment_count * a->G;
    f->part_floats = rows * (a->D + 2);
    return pieces < MMI_ENOUGH_PIECES && parts > pieces && mmi_attention_is_short(a) &&
           parts * f->part_floats <= mmi_gemm_panels();
}

/* Number the pieces, all parts of a segment and key head one after the other. What is to be done before is done here:
 * each of them needs it. */
static void begin_parts(forward *f)
{
    const mmi_attention *a = f->j.a;
    a->piece_first[0] = 0;
    for (int64_t i = 0; i < a->segment_count; i++) {
        const int64_t n = parts_of(&f->j, &a->segments[i]);
        a->piece_first[i + 1] = a->piece_first[i] + a->G * n;
        for (int64_t g = 0; g < a->G; g++) {
            atomic_init(&f->left[i * a->G + g], (int)n);
            if (a->before && n > 0)
                a->before(a->arg, &a->segments[i], g);
        }
    }
    f->pieces = a->piece_first[a->segment_count];
}

/* Pieces of whole tiles, or of halves or quarters where more than two threads would have less than two each: those of a
 * long text differ in length. A row has the same bits in a part of its tile. */
static void number_tiles(forward *f)
{
    const int64_t threads = mmi_pool_threads(f->j.x->pool);
    const bool cut = threads > 2 && !mmi_attention_is_short(f->j.a);
    int64_t parts = 1;
    while (f->pieces = mmi_tile_number_pieces(f->j.a, f->j.tokens / parts, 0),
           cut && parts < MOST_TILE_PARTS && f->j.tokens % (2 * parts) == 0 && f->pieces < 2 * threads)
        parts *= 2;
    f->step = f->j.tokens / parts;
}

void mmi_attention_forward(const mmi_exec *x, float *out, float *lse, const mmi_attention *a)
{
    atomic_int left[MMI_ENOUGH_PIECES];
    forward f = { .j = mmi_tile_job_for(x, a), .out = out, .lse = lse, .left = left };
    f.apart = are_apart(&f);
    if (f.apart)
        begin_parts(&f);
    else
        number_tiles(&f);
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
