/* Large products by our own kernels. Each operand is packed once, by all threads, and read by all slices. */
#include "backend/gemm.h"
#include "backend/product.h"

/* Of each operand, as much at a time as fits into its half of x->panels, which should stay in the last level of cache.
 */
#define PANEL_FLOATS (1024 * 514)
#define FLOATS_PER_PIECE 32768

int64_t mmi_gemm_panels(void)
{
    return 2 * PANEL_FLOATS;
}

/* Rows of op(A), or columns of op(B), that are packed together: `count` of them, `depth` numbers at a time. */
typedef struct operand {
    float *panels;
    int64_t count;
    int64_t depth_floats;      /* of all panels of `depth` numbers */
    int64_t per_piece, pieces; /* rows or columns, and pieces that they make */
} operand;

/* What is multiplied between two packings: slices of C, K numbers along. */
typedef struct stage {
    product p; /* of this stage alone */
    operand a, b;
    bool in_place;    /* A is read where it lies */
    bool own_columns; /* each piece is the only one to read its columns of B, and packs them itself */
} stage;

/* Floats of the panels of `count` rows or columns, a multiple of a panel's, of K numbers. */
static int64_t panel_floats(const product *p, int64_t count, int64_t K)
{
    return p->x->k.gemm_panel(count, K, p->x->compute);
}

static void set_operand(operand *o, const product *p, float *panels, int64_t count, int64_t width)
{
    int64_t K = p->K, depth = p->x->k.gemm_depth;
    *o = (operand){ .panels = panels, .count = count };
    o->depth_floats = panel_floats(p, round_up(count, width), depth);
    o->per_piece = round_up(mmi_pieces(FLOATS_PER_PIECE, least(K, depth)), width);
    o->pieces = mmi_pieces(count, o->per_piece);
}

/* The panels from row `first` on, of K numbers from number k on. */
static float *panel_at(const product *p, const operand *o, int64_t first, int64_t k, int64_t K)
{
    return o->panels + k / p->x->k.gemm_depth * o->depth_floats + panel_floats(p, first, K);
}

/* Rows, or columns, [first, last) of an operand, from number k on. */
static void pack_part(const stage *s, const operand *o, int64_t first, int64_t last, int64_t k)
{
    const product *p = &s->p;
    int64_t K = least(p->x->k.gemm_depth, p->K - k);
    product_pack(p, panel_at(p, o, first, k, K), o == &s->a, first, last - first, k, K);
}

/* Pieces of packing, for each `depth` numbers. */
static int64_t packing_pieces(const stage *s)
{
    return s->own_columns ? s->a.pieces : s->a.pieces + s->b.pieces;
}

static void pack_piece(void *arg, int64_t piece, int worker)
{
    const stage *s = arg;
    int64_t each = packing_pieces(s), at = piece % each, first, last;
    const operand *o = at < s->a.pieces ? &s->a : &s->b;
    (void)worker;
    mmi_piece_rows(at < s->a.pieces ? at : at - s->a.pieces, o->per_piece, o->count, &first, &last);
    pack_part(s, o, first, last, piece / each * s->p.x->k.gemm_depth);
}

static void multiply_slice(void *arg, int64_t piece, int worker)
{
    const stage *s = arg;
    const product *p = &s->p;
    const int64_t depth = p->x->k.gemm_depth;
    int64_t i, i_end, j, j_end;
    (void)worker;
    if (!cut_piece(&p->cut, piece, &i, &i_end, &j, &j_end))
        return;
    for (int64_t k = 0; k < p->K; k += depth) {
        int64_t K = least(depth, p->K - k);
        float *c = p->c + i * p->ldc + j;
        const float *a = s->in_place ? p->a + i * p->ars + k : panel_at(p, &s->a, i, k, K);
        if (s->own_columns)
            pack_part(s, &s->b, j, j_end, k);
        p->x->k.gemm_multiply(c, p->ldc, a, s->in_place ? p->ars : 0, panel_at(p, &s->b, j, k, K), i_end - i, j_end - j,
                              K, k > 0 ? c : product_from(p, i, j), p->x->compute);
    }
}

static void run_stage(stage *s)
{
    product *p = &s->p;
    const mmi_kernels *k = &p->x->k;
    mmi_product_cut(p, k->gemm_a_rows, k->gemm_b_cols);
    set_operand(&s->b, p, p->x->panels, p->N, k->gemm_b_cols);
    set_operand(&s->a, p, p->x->panels + PANEL_FLOATS, s->in_place ? 0 : p->M, k->gemm_a_rows);
    s->own_columns = p->cut.rows >= p->M;
    if (packing_pieces(s) > 0)
        mmi_pool_run(p->x->pool, packing_pieces(s) * mmi_pieces(p->K, k->gemm_depth), pack_piece, s);
    mmi_pool_run(p->x->pool, cut_pieces(&p->cut), multiply_slice, s);
}

/* Rows or columns of a stage, so that `depth` numbers of each fit. */
static int64_t stage_part(const product *p, int64_t count, int64_t width)
{
    int64_t most = PANEL_FLOATS / panel_floats(p, width, p->x->k.gemm_depth) * width;
    return part(count, mmi_pieces(count, most), width);
}

void mmi_product_by_panels(const product *p, bool in_place)
{
    const mmi_kernels *k = &p->x->k;
    if (mmi_pool_threads(p->x->pool) > MMI_SHARING_THREADS) {
        mmi_product_apart(p, in_place);
        return;
    }
    if (k->gemm_own_lines && !in_place) {
        mmi_product_by_own_panels(p);
        return;
    }
    int64_t depth = k->gemm_depth, rows = in_place ? p->M : stage_part(p, p->M, k->gemm_a_rows);
    int64_t cols = stage_part(p, p->N, k->gemm_b_cols);
    int64_t most = PANEL_FLOATS / panel_floats(p, round_up(cols, k->gemm_b_cols), depth);
    if (!in_place)
        most = least(most, PANEL_FLOATS / panel_floats(p, round_up(rows, k->gemm_a_rows), depth));
    int64_t along = part(p->K, mmi_pieces(p->K, most * depth), depth);
    for (int64_t i = 0; i < p->M; i += rows)
        for (int64_t j = 0; j < p->N; j += cols)
            for (int64_t q = 0; q < p->K; q += along) {
                stage s = { product_part(p, i, least(rows, p->M - i), j, least(cols, p->N - j), q,
                                         least(along, p->K - q)),
                            .in_place = in_place };
                run_stage(&s);
            }
}
