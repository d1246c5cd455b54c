/* Tiles of queries by keys, which attention is made of, forth and back. */
#ifndef MMI_NN_ATTENTION_TILE_H
#define MMI_NN_ATTENTION_TILE_H

#include "nn/attention.h"

/* A tile is MMI_TILE_ROWS query rows (tokens x the heads that share a key head) by MMI_TILE_KEYS keys. Scores and one
 * operand then lie in the second-level cache, and turning a tile of keys costs little beside the products that read it.
 */
#define MMI_TILE_ROWS 256
#define MMI_TILE_KEYS 64

/* So many pieces have work for any number of threads: where there are fewer, work is cut finer. Only shapes decide. */
#define MMI_ENOUGH_PIECES 16

/* Operands of rounded products, as gemm_multiply() reads them (backend/kernels.h). */
typedef struct mmi_tile_panels {
    float *q, *dout;             /* [R, D], to be multiplied from the left */
    float *q_right, *dout_right; /* the same from the right */
    float *left, *right;         /* of a tile of keys: weights or their gradients, keys or values */
} mmi_tile_panels;

/* One worker's scratch. R rows, at most MMI_TILE_ROWS rounded up to whole tokens. */
typedef struct mmi_tile {
    int64_t rows, keys; /* filled part */
    int64_t whole;      /* rows of the tile that they are a part of, or are: this decides how they are computed */
    int64_t first_query, first_key;
    float *q;         /* [R, D], times 1/sqrt(D) */
    float *out;       /* [R, D] forward's sum; backward's dq */
    float *dout;      /* [R, D] */
    float *s, *dp;    /* [R, MMI_TILE_KEYS] */
    float *kt, *vt;   /* [D, MMI_TILE_KEYS]; keys and values are widened in vt's place */
    float *m, *l;     /* [R] running maximum and sum; backward: lse and delta */
    const void *next; /* keys that this thread reads after the tile's, unless it is NULL */
    bool rounded;     /* products go by panels */
    bool few;         /* by kernels for a few rows of whole vectors */
    mmi_tile_panels p;
} mmi_tile;

/* What all pieces of a run need. */
typedef struct mmi_tile_job {
    const mmi_exec *x;
    const mmi_attention *a;
    int64_t heads;  /* query heads per key head */
    int64_t tokens; /* per query tile */
    float scale;    /* 1/sqrt(D) */
} mmi_tile_job;

mmi_tile_job mmi_tile_job_for(const mmi_exec *x, const mmi_attention *a);

/* Tokens of a query tile where so many query heads share a key head. */
int64_t mmi_tile_tokens(int64_t heads);

/* Cut every segment into runs of `step` tokens for each key head, and leave out the first `without` runs; how many
 * pieces that makes. */
int64_t mmi_tile_number_pieces(const mmi_attention *a, int64_t step, int64_t without);

/* Which segment a piece belongs to: the last whose pieces begin at or before it. */
int64_t mmi_tile_segment_of(const mmi_attention *a, int64_t piece);

/* A tile in a worker's scratch, and the beginning of one of some tokens, or of a part of one that has `whole`. Few rows
 * are never rounded. */
mmi_tile mmi_tile_place(const mmi_tile_job *j, int worker);
void mmi_tile_begin(mmi_tile *t, const mmi_tile_job *j, int64_t tokens, int64_t whole);

/* Rows of the tile in the order (token, head): row r is token r / heads, head g * heads + r % heads. */
void mmi_tile_load(float *rows, const float *from, int64_t ld, const mmi_tile_job *j, const mmi_segment *s, int64_t g,
                   int64_t first, int64_t tokens);
void mmi_tile_store(float *to, int64_t ld, const float *rows, const mmi_tile_job *j, const mmi_segment *s, int64_t g,
                    int64_t first, int64_t tokens);
/* The tile's queries of one key head, scaled. */
void mmi_tile_load_queries(mmi_tile *t, const mmi_tile_job *j, const mmi_segment *s, int64_t g, int64_t tokens);

/* A tile's keys (or values) of one head. */
typedef struct mmi_tile_operand {
    const void *data; /* [keys, D] */
    int64_t ld;
    int32_t dtype; /* float32, but for few rows */
} mmi_tile_operand;

/* The key of a segment for head g, in the keys or values that begin at `base`. */
const void *mmi_tile_key(const mmi_attention *a, const mmi_segment *s, int64_t key, int64_t g, const void *base);
/* In place where they are float32, or where few rows read them as they are, else widened. */
mmi_tile_operand mmi_tile_operand_of(const mmi_tile *t, const mmi_tile_job *j, const mmi_segment *s, int64_t g,
                                     const void *base);

/* Operands of rounded products: lines of K numbers each, number p of line i at from + i * across + p * along. */
const float *mmi_tile_pack_left(const mmi_tile_job *j, float *to, const float *from, int64_t across, int64_t along,
                                int64_t count, int64_t K);
const float *mmi_tile_pack_right(const mmi_tile_job *j, float *to, const float *from, int64_t across, int64_t along,
                                 int64_t count, int64_t K);
/* c [M, N] = or += left [M, K] · right [K, N]. */
void mmi_tile_multiply(const mmi_tile_job *j, float *c, int64_t ldc, const float *left, const float *right, int64_t M,
                       int64_t N, int64_t K, bool accumulate);

/* Keys that row r of the tile may see, of the tile's `keys`: none beyond the row's own position. */
static inline int64_t mmi_tile_visible(const mmi_tile *t, const mmi_tile_job *j, const mmi_segment *s, int64_t row)
{
    int64_t position = s->past + t->first_query + row / j->heads;
    int64_t n = position - t->first_key + 1;
    return n < 0 ? 0 : n < t->keys ? n : t->keys;
}

/* Rows of a tile that meet the first `keys` of its keys; the others are beyond them. */
typedef struct mmi_tile_band {
    int64_t row, rows, keys;
} mmi_tile_band;

/* From row `row` on; without rows after the last. */
mmi_tile_band mmi_tile_band_from(const mmi_tile *t, const mmi_tile_job *j, const mmi_segment *s, int64_t row);

#define EACH_BAND(p, t, j, s)                                                                                          \
    for (mmi_tile_band p = mmi_tile_band_from(t, j, s, 0); p.rows > 0; p = mmi_tile_band_from(t, j, s, p.row + p.rows))

/* s [rows, MMI_TILE_KEYS] = q · kᵀ, -inf for masked keys. */
void mmi_tile_scores(mmi_tile *t, const mmi_tile_job *j, const mmi_segment *s, int64_t g);

/* Drop weights (or their gradients) of row r of the tile: an element's number is its token, query head and key. */
void mmi_tile_drop(float *values, int64_t n, int64_t r, const mmi_tile *t, const mmi_tile_job *j, const mmi_segment *s,
                   int64_t g);

#endif
