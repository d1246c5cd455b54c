/* Large products of operands that both have to be laid out anew, by kernels so fast that it counts how far away they
 * lie. The lines (rows of op(A), columns of op(B)) of one operand are dealt out: who takes some lays them out
 * for itself alone, in its scratch, and they stay in its core's own cache while they meet the other operand, which all
 * threads have laid out before, and share. */
#include "backend/gemm.h"
#include "backend/product.h"

/* A piece has at least so many lines, or what is shared would be read too often: kernels that could read A in place,
 * too, are slower and can wait for less. */
#define LEAST_LINES 128
#define LEAST_LINES_SLOWER 64
#define NUMBERS_PER_PIECE 32768

/* What it costs to read what is shared once, in the time of a line. */
#define READING_SHARED 8

int64_t mmi_gemm_own_scratch(const mmi_kernels *k, int threads)
{
    const int64_t a = product_own_floats(k, k->gemm_a_rows), b = product_own_floats(k, k->gemm_b_cols);
    if (threads > MMI_SHARING_THREADS)
        return a + b;
    return k->gemm_own_lines ? at_least(a, b) : 0;
}

/* What is multiplied between two layings out of what is shared. */
typedef struct stage {
    product p;      /* of this stage alone */
    bool own_rows;  /* of A; else columns of B */
    int64_t pieces; /* that the own lines are dealt out in */
    int64_t shared; /* lines of what is shared */
    int64_t packed_at_once;
} stage;

/* Lines that are dealt out. */
static int64_t own_lines(const stage *s)
{
    return s->own_rows ? s->p.M : s->p.N;
}

/* Lines of a panel. */
static int64_t own_width(const stage *s)
{
    return s->own_rows ? s->p.x->k.gemm_a_rows : s->p.x->k.gemm_b_cols;
}
static int64_t shared_width(const stage *s)
{
    return s->own_rows ? s->p.x->k.gemm_b_cols : s->p.x->k.gemm_a_rows;
}

/* Floats of `lines` shared lines of K numbers. */
static int64_t floats_of(const stage *s, int64_t lines, int64_t K)
{
    return s->p.x->k.gemm_panel(round_up(lines, shared_width(s)), K, s->p.x->compute);
}

/* What is shared, from number k of its first line on. */
static float *shared_at(const stage *s, int64_t k)
{
    const int64_t depth = s->p.x->k.gemm_depth;
    return s->p.x->panels + k / depth * floats_of(s, s->shared, depth);
}

static void pack_piece(void *arg, int64_t piece, int worker)
{
    const stage *s = arg;
    const int64_t depth = s->p.x->k.gemm_depth, each = mmi_pieces(s->shared, s->packed_at_once);
    int64_t first, last, k = piece / each * depth, K = least(depth, s->p.K - k);
    (void)worker;
    mmi_piece_rows(piece % each, s->packed_at_once, s->shared, &first, &last);
    product_pack(&s->p, shared_at(s, k) + floats_of(s, first, K), !s->own_rows, first, last - first, k, K);
}

static void multiply_piece(void *arg, int64_t piece, int worker)
{
    const stage *s = arg;
    const product *p = &s->p;
    const int64_t depth = p->x->k.gemm_depth;
    float *own = mmi_exec_scratch(p->x, worker);
    int64_t first, last;
    product_lines(own_lines(s), own_width(s), s->pieces, piece, &first, &last);
    const int64_t i = s->own_rows ? first : 0, j = s->own_rows ? 0 : first;
    float *c = p->c + i * p->ldc + j;
    for (int64_t k = 0; k < p->K; k += depth) {
        int64_t K = least(depth, p->K - k);
        product_pack(p, own, s->own_rows, first, last - first, k, K);
        p->x->k.gemm_multiply(c, p->ldc, s->own_rows ? own : shared_at(s, k), 0, s->own_rows ? shared_at(s, k) : own,
                              s->own_rows ? last - first : p->M, s->own_rows ? p->N : last - first, K,
                              k > 0 ? c : product_from(p, i, j), p->x->compute);
    }
}

static void run_stage(stage *s)
{
    const product *p = &s->p;
    const int64_t depth = p->x->k.gemm_depth;
    s->packed_at_once = round_up(mmi_pieces(NUMBERS_PER_PIECE, least(p->K, depth)), shared_width(s));
    mmi_pool_run(p->x->pool, mmi_pieces(s->shared, s->packed_at_once) * mmi_pieces(p->K, depth), pack_piece, s);
    mmi_pool_run(p->x->pool, s->pieces, multiply_piece, s);
}

/* As many as are wanted, fewer where lines are few, and an even number: two threads end together. */
static int64_t pieces_for_two(const mmi_kernels *k, int64_t lines)
{
    const int64_t fewest = k->gemm_in_place ? LEAST_LINES_SLOWER : LEAST_LINES;
    const int64_t most = least(WANTED_SLICES, lines / fewest), pieces = most > 1 ? most - most % 2 : 1;
    return lines > pieces * MMI_OWN_LINES ? round_up(mmi_pieces(lines, MMI_OWN_LINES), 4) : pieces;
}

/* How long so many threads are busy with so many pieces, in the time of a line: the longest that one of them has,
 * reading what is shared for each, and a quarter of a piece that some thread is behind. */
static int64_t time_of(const stage *s, int64_t pieces, int64_t threads)
{
    const int64_t longest = mmi_pieces(mmi_pieces(own_lines(s), own_width(s)), pieces) * own_width(s);
    int64_t time = longest / 4;
    for (int64_t nth = 0, first, last; nth < pieces; nth += threads) {
        product_lines(own_lines(s), own_width(s), pieces, nth, &first, &last);
        time += last - first + READING_SHARED;
    }
    return time;
}

/* No number depends on where they end. */
static int64_t pieces_of(const stage *s)
{
    const int64_t threads = mmi_pool_threads(s->p.x->pool), panels = mmi_pieces(own_lines(s), own_width(s));
    int64_t best = pieces_for_two(&s->p.x->k, own_lines(s)), shortest = time_of(s, best, threads);
    for (int64_t n = best + 1; threads > 2 && n <= least(panels, MMI_MOST_TURNS * threads); n++) {
        const int64_t time = time_of(s, n, threads);
        if (time < shortest) {
            shortest = time;
            best = n;
        }
    }
    return best;
}

void mmi_product_by_own_panels(const product *p)
{
    const mmi_kernels *k = &p->x->k;
    const int64_t depth = k->gemm_depth, room = mmi_gemm_panels();
    const bool own_rows = p->M >= p->N;
    stage s = { *p, .own_rows = own_rows };
    const int64_t shared = own_rows ? p->N : p->M, width = shared_width(&s);
    const int64_t lines = part(shared, mmi_pieces(shared, room / floats_of(&s, width, depth) * width), width);
    const int64_t depths = room / floats_of(&s, lines, depth);
    const int64_t along = part(p->K, mmi_pieces(p->K, depths * depth), depth);
    s.pieces = pieces_of(&s);
    for (int64_t first = 0; first < shared; first += lines)
        for (int64_t q = 0; q < p->K; q += along) {
            const int64_t K = least(along, p->K - q);
            s.shared = least(lines, shared - first);
            s.p = own_rows ? product_part(p, 0, p->M, first, s.shared, q, K) :
                             product_part(p, first, s.shared, 0, p->N, q, K);
            run_stage(&s);
        }
}
