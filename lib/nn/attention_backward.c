#include <math.h>
#include <string.h>

#include "nn/attention.h"
#include "nn/attention_tile.h"

/* Queries meet keys in spans of so many tokens at most, whole tiles of queries, halved until pieces are enough. */
#define SPAN 512
#define LEAST_SPAN 128

typedef struct backward {
    mmi_tile_job j;
    float *dq, *dk, *dv;
    const float *dout, *out, *lse;
    int64_t span;   /* tokens */
    int64_t behind; /* so many spans lie queries behind the keys they meet */
} backward;

/* s = p = exp(s - lse), then dp = the scores' gradient p * (dp - delta). Keys a row can't see get 0, and so do all keys
 * of a row that sees masked ones only, whose lse is -inf. */
static void softmax_backward(mmi_tile *t, const mmi_tile_job *j, const mmi_segment *s, int64_t g)
{
    for (int64_t r = 0; r < t->rows; r++) {
        int64_t n = t->m[r] == -INFINITY ? 0 : mmi_tile_visible(t, j, s, r);
        float *p = t->s + r * MMI_TILE_KEYS, *dp = t->dp + r * MMI_TILE_KEYS;
        j->x->k.softmax_scaled(p, t->m[r], 1, n);
        mmi_tile_drop(dp, n, r, t, j, s, g);
        for (int64_t i = 0; i < n; i++)
            dp[i] = p[i] * (dp[i] - t->l[r]);
        mmi_tile_drop(p, n, r, t, j, s, g);
        memset(p + n, 0, (size_t)(t->keys - n) * sizeof(float));
        memset(dp + n, 0, (size_t)(t->keys - n) * sizeof(float));
    }
}

/* The rest of backward_tile() once there are scores, by panels; the tile's keys begin at `at`. */
static void rounded_backward(mmi_tile *t, const backward *b, const mmi_segment *s, int64_t g, int64_t at)
{
    const mmi_tile_job *j = &b->j;
    const mmi_attention *a = j->a;
    const int64_t D = a->D, ld = a->ldk, rows = t->rows, keys = t->keys;
    const float *k = (const float *)a->k + at, *v = (const float *)a->v + at;
    mmi_tile_multiply(j, t->dp, MMI_TILE_KEYS, t->p.dout, mmi_tile_pack_right(j, t->p.right, v, ld, 1, keys, D), rows,
                      keys, D, false);
    softmax_backward(t, j, s, g);
    mmi_tile_multiply(j, b->dv + at, ld, mmi_tile_pack_left(j, t->p.left, t->s, 1, MMI_TILE_KEYS, keys, rows),
                      t->p.dout_right, keys, D, rows, true);
    mmi_tile_multiply(j, b->dk + at, ld, mmi_tile_pack_left(j, t->p.left, t->dp, 1, MMI_TILE_KEYS, keys, rows),
                      t->p.q_right, keys, D, rows, true);
    const float *left = mmi_tile_pack_left(j, t->p.left, t->dp, MMI_TILE_KEYS, 1, rows, keys);
    mmi_tile_multiply(j, t->out, D, left, mmi_tile_pack_right(j, t->p.right, k, 1, ld, D, keys), rows, D, keys, true);
}

/* One tile of queries against one tile of keys. With P the probabilities: dV += Pᵀ dO, dP = dO Vᵀ, dS = P (dP - delta),
 * dQ += dS K / sqrt(D), dK += dSᵀ Q / sqrt(D); the factor is in t->q for dK and comes last for dQ. */
static void backward_tile(mmi_tile *t, const backward *b, const mmi_segment *s, int64_t g)
{
    const mmi_attention *a = b->j.a;
    const mmi_kernels *k = &b->j.x->k;
    int64_t D = a->D, ld = a->ldk, at = (s->row + t->first_key) * ld + g * a->head_stride;
    const float *keys = a->k, *values = a->v;
    mmi_tile_scores(t, &b->j, s, g);
    if (t->rounded) {
        rounded_backward(t, b, s, g, at);
        return;
    }
    k->transpose(t->vt, MMI_TILE_KEYS, values + at, ld, t->keys, D);
    EACH_BAND (p, t, &b->j, s)
        k->gemm_tile(t->dp + p.row * MMI_TILE_KEYS, MMI_TILE_KEYS, t->dout + p.row * D, D, 1, t->vt, MMI_TILE_KEYS,
                     p.rows, p.keys, D, 0);
    softmax_backward(t, &b->j, s, g);
    EACH_BAND (p, t, &b->j, s) {
        const float *probabilities = t->s + p.row * MMI_TILE_KEYS, *gradients = t->dp + p.row * MMI_TILE_KEYS;
        k->gemm_tile(b->dv + at, ld, probabilities, 1, MMI_TILE_KEYS, t->dout + p.row * D, D, p.keys, D, p.rows, 1);
        k->gemm_tile(b->dk + at, ld, gradients, 1, MMI_TILE_KEYS, t->q + p.row * D, D, p.keys, D, p.rows, 1);
        k->gemm_tile(t->out + p.row * D, D, gradients, MMI_TILE_KEYS, 1, keys + at, ld, p.rows, D, p.keys, 1);
    }
}

static void load_backward_rows(mmi_tile *t, const backward *b, const mmi_segment *s, int64_t g, int64_t tokens)
{
    const mmi_attention *a = b->j.a;
    int64_t D = a->D, width = a->H * D;
    mmi_tile_load_queries(t, &b->j, s, g, tokens);
    mmi_tile_load(t->dout, b->dout, width, &b->j, s, g, t->first_query, tokens);
    if (b->behind > 0) /* they have met later keys */
        mmi_tile_load(t->out, b->dq, a->ldq, &b->j, s, g, t->first_query, tokens);
    else
        memset(t->out, 0, (size_t)(t->rows * D) * sizeof(float));
    for (int64_t r = 0; r < t->rows; r++) {
        int64_t token = s->row + t->first_query + r / b->j.heads, head = g * b->j.heads + r % b->j.heads;
        t->m[r] = b->lse[token * a->H + head];
        t->l[r] = b->j.x->k.dot(t->dout + r * D, b->out + token * width + head * D, D); /* delta = Σ dP P */
    }
    if (t->rounded) {
        mmi_tile_pack_left(&b->j, t->p.dout, t->dout, D, 1, t->rows, D);
        mmi_tile_pack_right(&b->j, t->p.dout_right, t->dout, 1, D, D, t->rows);
        mmi_tile_pack_right(&b->j, t->p.q_right, t->q, 1, D, D, t->rows);
    }
}

/* The queries [first, last) of a segment against its keys [key_first, key_last), as far as they see them. */
static void backward_queries(mmi_tile *t, const backward *b, const mmi_segment *s, int64_t g, int64_t first,
                             int64_t last, int64_t key_first, int64_t key_last)
{
    t->first_query = first;
    mmi_tile_begin(t, &b->j, last - first, last - first);
    load_backward_rows(t, b, s, g, last - first);
    for (t->first_key = key_first; t->first_key < key_last && t->first_key < last; t->first_key += MMI_TILE_KEYS) {
        int64_t end = key_last < last ? key_last : last;
        t->keys = end - t->first_key < MMI_TILE_KEYS ? end - t->first_key : MMI_TILE_KEYS;
        backward_tile(t, b, s, g);
    }
    if (key_first == 0) /* there are no more keys */
        b->j.x->k.scale(t->out, b->j.scale, t->rows * b->j.a->D);
    mmi_tile_store(b->dq, b->j.a->ldq, t->out, &b->j, s, g, first, last - first);
}

/* A piece: one segment, one key head, one span of queries with the span of keys that lies `behind` spans before. */
static void backward_piece(void *arg, int64_t piece, int worker)
{
    const backward *b = arg;
    const mmi_attention *a = b->j.a;
    int64_t index = mmi_tile_segment_of(a, piece), local = piece - a->piece_first[index], g = local % a->G;
    const mmi_segment *s = &a->segments[index];
    int64_t first, last, key_first, key_last;
    mmi_piece_rows(b->behind + local / a->G, b->span, s->count, &first, &last);
    mmi_piece_rows(local / a->G, b->span, s->count, &key_first, &key_last);
    for (int64_t i = key_first; i < key_last && b->behind == 0; i++) {
        memset(b->dk + (s->row + i) * a->ldk + g * a->head_stride, 0, (size_t)a->D * sizeof(float));
        memset(b->dv + (s->row + i) * a->ldk + g * a->head_stride, 0, (size_t)a->D * sizeof(float));
    }
    mmi_tile t = mmi_tile_place(&b->j, worker);
    for (; first < last; first += b->j.tokens)
        backward_queries(&t, b, s, g, first, last - first < b->j.tokens ? last : first + b->j.tokens, key_first,
                         key_last);
}

void mmi_attention_backward(const mmi_exec *x, float *dq, float *dk, float *dv, const float *dout, const float *out,
                            const float *lse, const mmi_attention *a)
{
    backward b = { mmi_tile_job_for(x, a), dq, dk, dv, dout, out, lse, 0, 0 };
    int64_t tiles = SPAN / b.j.tokens;
    while (tiles > 1 && tiles * b.j.tokens > LEAST_SPAN &&
           mmi_tile_number_pieces(a, tiles * b.j.tokens, 0) < MMI_ENOUGH_PIECES)
        tiles /= 2;
    b.span = tiles * b.j.tokens;
    /* Each span of queries with its own keys, then each with those of the span before, and so on: in no job do two
     * pieces write the same dq, dk or dv, and scores are computed once. */
    for (int64_t pieces; (pieces = mmi_tile_number_pieces(a, b.span, b.behind)) > 0; b.behind++)
        mmi_pool_run(x->pool, pieces, backward_piece, &b);
}
