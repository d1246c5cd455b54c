#include "nn/moe.h"

#include <string.h>

#include "base/random.h"
#include "nn/vector.h"

#define ROWS 32 /* tokens per piece */

typedef struct job {
    const mmi_exec *x;
    float *out, *d_probs;
    const float *in, *y;
    const mmi_routing *r;
    const mmi_router *router;
    int64_t N, C, groups;
    double balance_scale;
} job;

static void run_rows(job *j, mmi_piece_fn fn)
{
    mmi_pool_run(j->x->pool, mmi_pieces(j->N, ROWS), fn, j);
}

/* --- Routing --- */

/* The likeliest expert that is not yet among the first s chosen; ties to the lowest. */
static int32_t best_left(const float *p, int64_t E, const int32_t *chosen, int64_t s)
{
    int64_t best = -1;
    for (int64_t e = 0; e < E; e++) {
        bool taken = false;
        for (int64_t i = 0; i < s; i++)
            taken |= chosen[i] == e;
        if (!taken && (best < 0 || p[e] > p[best]))
            best = e;
    }
    return (int32_t)best;
}

static void add_noise(float *logits, const mmi_router *router, int64_t token)
{
    for (int64_t e = 0; e < router->E && router->noise > 0; e++) {
        float noise;
        mmi_random_normal(&noise, 1, router->noise, router->seed, router->stream, (uint64_t)(token * router->E + e));
        logits[e] += noise;
    }
}

static void choose(void *arg, int64_t piece, int worker)
{
    (void)worker;
    const job *j = arg;
    int64_t E = j->router->E, k = j->router->k, first, last;
    mmi_piece_rows(piece, ROWS, j->N, &first, &last);
    for (int64_t n = first; n < last; n++) {
        float *p = j->r->probs + n * E, *w = j->r->weights + n * k, sum = 0;
        int32_t *chosen = j->r->chosen + n * k;
        add_noise(p, j->router, n);
        const double all = j->x->k.softmax_weights(p, p, j->x->k.largest(p, E), 1, E);
        j->x->k.scale(p, (float)(1 / all), E);
        for (int64_t s = 0; s < k; s++) {
            chosen[s] = best_left(p, E, chosen, s);
            w[s] = p[chosen[s]];
            sum += w[s];
        }
        if (j->router->renormalize)
            for (int64_t s = 0; s < k; s++)
                w[s] = k == 1 ? 1 : w[s] / sum;
    }
}

/* Sort the N * k pairs by expert, in token order within each: a counting sort. */
static void group(mmi_routing *r, int64_t N, int64_t E, int64_t k)
{
    memset(r->first, 0, (size_t)(E + 1) * sizeof *r->first);
    for (int64_t i = 0; i < N * k; i++)
        r->first[r->chosen[i] + 1]++;
    for (int64_t e = 0; e < E; e++)
        r->first[e + 1] += r->first[e];
    for (int64_t i = 0; i < N * k; i++) {
        int64_t row = r->first[r->chosen[i]]++;
        r->row_of[i] = (int32_t)row;
        r->token_of[row] = (int32_t)(i / k);
    }
    for (int64_t e = E; e > 0; e--) /* each first has walked to its end, which is the next one's start */
        r->first[e] = r->first[e - 1];
    r->first[0] = 0;
}

void mmi_moe_route(const mmi_exec *x, mmi_routing *r, const float *h, const mmi_router *router, int64_t N, float *panel)
{
    int64_t C = router->weight.w.cols;
    mmi_exec exact = mmi_exec_exact(x); /* a choice that tips over costs more than rounding gains */
    mmi_linear_forward(&exact, r->probs, router->E, mmi_operand_of(h, C), router->weight, (mmi_param){ 0 }, N, panel);
    job j = { .x = x, .r = r, .router = router, .N = N, .C = C };
    run_rows(&j, choose);
    group(r, N, router->E, router->k);
}

/* --- Balance --- */

/* How many of a group's tokens chose expert e. */
static int64_t load_of(const mmi_routing *r, int64_t first, int64_t last, int64_t k, int64_t e)
{
    int64_t n = 0;
    for (int64_t i = first * k; i < last * k; i++)
        n += r->chosen[i] == e;
    return n;
}

double mmi_moe_balance(const mmi_routing *r, int64_t N, int64_t E, int64_t k, int64_t groups)
{
    double total = 0;
    int64_t T = N / groups;
    for (int64_t g = 0; g < groups; g++)
        for (int64_t e = 0; e < E; e++) {
            double p = 0;
            for (int64_t n = g * T; n < (g + 1) * T; n++)
                p += r->probs[n * E + e];
            total += (double)load_of(r, g * T, (g + 1) * T, k, e) / (double)T * (p / (double)T);
        }
    return total / (double)groups;
}

/* d_probs = the balance's gradient: the shares count as constants, so every token of a group gets the same. */
static void balance_backward(const job *j)
{
    int64_t E = j->router->E, k = j->router->k, T = j->N / j->groups;
    if (j->balance_scale == 0) {
        memset(j->d_probs, 0, (size_t)(j->N * E) * sizeof(float));
        return;
    }
    for (int64_t g = 0; g < j->groups; g++)
        for (int64_t e = 0; e < E; e++) {
            double share = (double)load_of(j->r, g * T, (g + 1) * T, k, e) / (double)T;
            float d = (float)(j->balance_scale * share / (double)T / (double)j->groups);
            for (int64_t n = g * T; n < (g + 1) * T; n++)
                j->d_probs[n * E + e] = d;
        }
}

/* --- Experts --- */

static void combine(void *arg, int64_t piece, int worker)
{
    (void)worker;
    const job *j = arg;
    int64_t k = j->router->k, first, last;
    mmi_piece_rows(piece, ROWS, j->N, &first, &last);
    memset(j->out + first * j->C, 0, (size_t)((last - first) * j->C) * sizeof(float));
    for (int64_t n = first; n < last; n++)
        for (int64_t s = 0; s < k; s++)
            j->x->k.axpy(j->out + n * j->C, j->r->weights[n * k + s], j->y + j->r->row_of[n * k + s] * j->C, j->C);
}

void mmi_moe_forward(const mmi_exec *x, float *out, float *inner, float *y, float *hg, float *mid, const float *h,
                     const mmi_ffn *experts, const mmi_router *router, const mmi_routing *r, mmi_dropout dropout,
                     int64_t N, float *panel)
{
    int64_t C = router->weight.w.cols, rows = N * router->k, ld = mmi_ffn_inner(&experts[0]);
    job j = { .x = x, .out = out, .y = y, .r = r, .router = router, .N = N, .C = C };
    mmi_rows_gather(x, hg, h, r->token_of, rows, C);
    for (int64_t e = 0; e < router->E; e++) {
        int64_t at = r->first[e], n = r->first[e + 1] - at;
        if (n > 0)
            mmi_ffn_forward(x, y + at * C, NULL, inner + at * ld, mid, mmi_operand_of(hg + at * C, C), &experts[e], n,
                            panel, NULL, false);
    }
    mmi_dropout_apply(x, y, rows * C, dropout);
    run_rows(&j, combine);
}

/* --- Backward --- */

/* For each token: dy of its grouped rows = weight · dout; d_probs += through the weights; then through the softmax, in
 * place. With w_i = p_i / Σ p: dp_i = (dw_i - Σ_j dw_j w_j) / Σ p; a single expert's weight is 1 whatever p, so dp = 0.
 */
static void weights_backward(void *arg, int64_t piece, int worker)
{
    (void)worker;
    const job *j = arg;
    const mmi_routing *r = j->r;
    int64_t E = j->router->E, k = j->router->k, C = j->C, first, last;
    mmi_piece_rows(piece, ROWS, j->N, &first, &last);
    for (int64_t n = first; n < last; n++) {
        const float *dout = j->in + n * C, *p = r->probs + n * E, *w = r->weights + n * k;
        float *dp = j->d_probs + n * E, through = 0, sum = 0, mean = 0;
        bool fixed = j->router->renormalize && k == 1;
        for (int64_t s = 0; s < k && !fixed; s++) {
            int64_t at = r->row_of[n * k + s] * C;
            float dw = j->out[at] = j->x->k.dot(dout, j->y + at, C); /* kept where dy is not yet written */
            through += dw * w[s];
            sum += p[r->chosen[n * k + s]];
        }
        for (int64_t s = 0; s < k && !fixed; s++) {
            float dw = j->out[r->row_of[n * k + s] * C];
            dp[r->chosen[n * k + s]] += j->router->renormalize ? (dw - through) / sum : dw;
        }
        for (int64_t e = 0; e < E; e++)
            mean += p[e] * dp[e];
        for (int64_t e = 0; e < E; e++)
            dp[e] = p[e] * (dp[e] - mean);
        for (int64_t s = 0; s < k; s++) {
            float *dy = j->out + r->row_of[n * k + s] * C;
            memcpy(dy, dout, (size_t)C * sizeof(float));
            j->x->k.scale(dy, w[s], C);
        }
    }
}

static void scatter_add(void *arg, int64_t piece, int worker)
{
    (void)worker;
    const job *j = arg;
    int64_t k = j->router->k, first, last;
    mmi_piece_rows(piece, ROWS, j->N, &first, &last);
    for (int64_t n = first; n < last; n++)
        for (int64_t s = 0; s < k; s++)
            j->x->k.add(j->out + n * j->C, j->in + j->r->row_of[n * k + s] * j->C, j->C);
}

void mmi_moe_backward(const mmi_exec *x, float *dh, float *hg, float *dy, float *d_inner, float *mid, float *d_probs,
                      const float *dout, const float *h, const float *inner, const float *y, const mmi_ffn *experts,
                      const mmi_router *router, const mmi_routing *r, mmi_dropout dropout, int64_t N,
                      double balance_scale, int64_t groups)
{
    int64_t E = router->E, C = router->weight.w.cols, rows = N * router->k, ld = mmi_ffn_inner(&experts[0]);
    job j = { .x = x,
              .out = dy,
              .d_probs = d_probs,
              .in = dout,
              .y = y,
              .r = r,
              .router = router,
              .N = N,
              .C = C,
              .groups = groups,
              .balance_scale = balance_scale };
    mmi_exec exact = mmi_exec_exact(x);
    balance_backward(&j);
    run_rows(&j, weights_backward);
    mmi_linear_backward(&exact, dh, C, d_probs, E, h, C, router->weight, (mmi_param){ 0 }, N, true);
    mmi_dropout_apply(x, dy, rows * C, dropout);

    mmi_rows_gather(x, hg, h, r->token_of, rows, C);
    for (int64_t e = 0; e < E; e++) {
        int64_t at = r->first[e], n = r->first[e + 1] - at;
        if (n > 0) /* the gradient by hg takes the place of dy, which is read first */
            mmi_ffn_backward(x, dy + at * C, d_inner + at * ld, mid, dy + at * C, hg + at * C, inner + at * ld,
                             &experts[e], n);
    }
    j.out = dh;
    j.in = dy;
    run_rows(&j, scatter_add);
}
