/* Large products for many threads. What a core has laid out comes to others hardly faster than from memory, and before
 * it is written again all who have read it must let go of it: with sixteen threads, laying out together what they share
 * takes as long as one alone does. So they share nothing: C is cut into a grid, and who computes a block lays out its
 * part of both operands for itself, though others lay out the same. */
#include "backend/gemm.h"
#include "backend/product.h"

/* In the time of multiplying one line by another: laying it out. Of the kernels that was 26 to 82 where it was
 * measured, and it matters little. */
#define LAYING_OUT 48

/* Products that are worth a thread; about so many numbers of blocks one above the other are weighed. */
#define WORTH_A_PIECE (1 << 19)
#define WAYS 32

typedef struct grid {
    product p;
    bool in_place;        /* A is read where it lies */
    int64_t down, across; /* blocks */
} grid;

static void multiply_block(void *arg, int64_t piece, int worker)
{
    const grid *g = arg;
    const product *p = &g->p;
    const mmi_kernels *k = &p->x->k;
    float *rows = mmi_exec_scratch(p->x, worker);
    float *columns = rows + product_own_floats(k, k->gemm_a_rows);
    int64_t i, i_end, j_begin, j_end;
    product_lines(p->M, k->gemm_a_rows, g->down, piece / g->across, &i, &i_end);
    product_lines(p->N, k->gemm_b_cols, g->across, piece % g->across, &j_begin, &j_end);
    for (int64_t at = 0; at < p->K; at += k->gemm_depth) {
        const int64_t K = least(k->gemm_depth, p->K - at);
        const float *a = g->in_place ? p->a + i * p->ars + at : rows;
        if (!g->in_place)
            product_pack(p, rows, true, i, i_end - i, at, K);
        for (int64_t j = j_begin; j < j_end; j += MMI_OWN_LINES) {
            const int64_t N = least(MMI_OWN_LINES, j_end - j);
            float *c = p->c + i * p->ldc + j;
            product_pack(p, columns, false, j, N, at, K);
            k->gemm_multiply(c, p->ldc, a, g->in_place ? p->ars : 0, columns, i_end - i, N, K,
                             at > 0 ? c : product_from(p, i, j), p->x->compute);
        }
    }
}

/* How long so many threads are busy with the grid: a turn's largest blocks, all turns, and a quarter of one that some
 * thread is behind. */
static int64_t time_of(const grid *g, int64_t threads)
{
    const mmi_kernels *k = &g->p.x->k;
    const int64_t rows = mmi_pieces(mmi_pieces(g->p.M, k->gemm_a_rows), g->down) * k->gemm_a_rows;
    const int64_t columns = mmi_pieces(mmi_pieces(g->p.N, k->gemm_b_cols), g->across) * k->gemm_b_cols;
    const int64_t block = LAYING_OUT * (g->in_place ? columns : rows + columns) + rows * columns;
    return (4 * mmi_pieces(g->down * g->across, threads) + 1) * block;
}

/* No number depends on where blocks end. */
static void choose_blocks(grid *g)
{
    const mmi_kernels *k = &g->p.x->k;
    const int64_t worth = g->p.M * g->p.N * g->p.K / WORTH_A_PIECE;
    const int64_t threads = at_least(1, least(worth, mmi_pool_threads(g->p.x->pool)));
    const int64_t row_panels = mmi_pieces(g->p.M, k->gemm_a_rows), column_panels = mmi_pieces(g->p.N, k->gemm_b_cols);
    const int64_t fewest = g->in_place ? 1 : mmi_pieces(row_panels, MMI_OWN_LINES / k->gemm_a_rows);
    const int64_t most = least(row_panels, fewest + MMI_MOST_TURNS * threads),
                  step = at_least(1, (most - fewest) / WAYS);
    int64_t best = INT64_MAX;
    grid tried = *g;
    for (tried.down = fewest; tried.down <= most; tried.down += step)
        for (int64_t turns = 1; turns <= MMI_MOST_TURNS; turns++) {
            tried.across = least(column_panels, at_least(1, turns * threads / tried.down));
            const int64_t time = time_of(&tried, threads);
            if (time < best) {
                best = time;
                *g = tried;
            }
        }
}

void mmi_product_apart(const product *p, bool in_place)
{
    grid g = { .p = *p, .in_place = in_place };
    choose_blocks(&g);
    mmi_pool_run(p->x->pool, g.down * g.across, multiply_block, &g);
}
