/* Muon (Jordan et al., 2024): momentum whose direction is made orthogonal. The gradient of a matrix, with Nesterov
 * momentum, is replaced by the nearest matrix whose singular values are all alike, about 1; five steps of a
 * Newton-Schulz iteration in products alone come near enough. Its size is brought to what AdamW's steps have (Liu et
 * al., 2025: 0.2 · √max(rows, cols)), so that one learning rate and one decay serve both. */
#include <math.h>

#include "backend/gemm.h"
#include "base/options.h"
#include "model/model.h"
#include "nn/vector.h"
#include "run/context.h"
#include "train/optimizer.h"

#define STEPS 5
#define A1 3.4445f /* the polynomial a·s + b·s³ + c·s⁵ on singular values s in [0, 1] */
#define A3 (-4.7750f)
#define A5 2.0315f
#define MATCH 0.2 /* the root mean square of AdamW's steps */
#define EPS 1e-7
#define PIECE ((int64_t)1 << 14)

MMI_OPTIONS_INIT(mm_muon_options, MM_MUON_OPTIONS_INIT)

static mm_status read_options(mm_adamw_options *adamw, double *momentum, const mm_muon_options *given)
{
    mm_muon_options o = MM_MUON_OPTIONS_INIT;
    mm_status status = mmi_options_read(&o, sizeof o, given, "mm_muon_options");
    if (status != MM_OK)
        return status;
    *adamw = (mm_adamw_options)MM_ADAMW_OPTIONS_INIT;
    adamw->beta1 = o.beta1;
    adamw->beta2 = o.beta2;
    adamw->eps = o.eps;
    adamw->weight_decay = o.weight_decay;
    adamw->trainable = o.trainable;
    adamw->decay = o.decay;
    adamw->reserved = o.reserved;
    *momentum = o.momentum;
    if (!(o.momentum >= 0 && o.momentum < 1))
        return mmi_fail(MM_ERR_ARG, "muon: momentum is %g, it must be in [0, 1)", o.momentum);
    return mmi_adamw_check(adamw);
}

mm_status mm_muon_create(mm_model *model, const mm_muon_options *options, mm_optimizer **out)
{
    if (!model || !out)
        return mmi_fail(MM_ERR_ARG, "mm_muon_create: %s is NULL", model ? "out" : "model");
    mm_adamw_options o;
    double momentum;
    mm_status status = read_options(&o, &momentum, options);
    if (status == MM_OK)
        status = mmi_optimizer_create(model, &o, true, "mm_muon_create", out);
    if (status == MM_OK)
        (*out)->momentum = momentum;
    return status;
}

/* A matrix [R, C] on its way through one step. */
typedef struct matrix {
    const mmi_exec *x;
    float *w, *m, *X, *Y; /* [R, C] */
    const float *g;
    float *gram, *poly; /* [n, n] */
    int64_t R, C, n;    /* n: the smaller of the two */
    float momentum, scale, shrink, step;
} matrix;

/* m = momentum · m + scale · g; X = momentum · m + scale · g. */
static void look_ahead(void *arg, int64_t piece, int worker)
{
    (void)worker;
    const matrix *t = arg;
    int64_t first, last;
    mmi_piece_rows(piece, PIECE, t->R * t->C, &first, &last);
    t->x->k.scale(t->m + first, t->momentum, last - first);
    t->x->k.axpy(t->m + first, t->scale, t->g + first, last - first);
    for (int64_t i = first; i < last; i++)
        t->X[i] = t->momentum * t->m[i] + t->scale * t->g[i];
}

/* X = A1 · X + (A3 · G + A5 · G²) X with G = X Xᵀ, or on the other side with G = Xᵀ X where that is the smaller. X and
 * Y change places. */
static void iterate(matrix *t)
{
    const mmi_exec *x = t->x;
    bool tall = t->R > t->C;
    int64_t R = t->R, C = t->C, n = t->n;
    mmi_gemm(x, tall, !tall, n, n, tall ? R : C, t->X, C, t->X, C, NULL, t->gram, n);
    mmi_gemm(x, false, false, n, n, n, t->gram, n, t->gram, n, NULL, t->poly, n);
    mmi_vector_scale(x, t->poly, A5, n * n);
    mmi_vector_axpy(x, t->poly, A3, t->gram, n * n);
    mmi_gemm(x, false, false, R, C, n, tall ? t->X : t->poly, tall ? C : n, tall ? t->poly : t->X, C, NULL, t->Y, C);
    mmi_vector_axpy(x, t->Y, A1, t->X, R * C);
    float *y = t->Y;
    t->Y = t->X;
    t->X = y;
}

static void move(void *arg, int64_t piece, int worker)
{
    (void)worker;
    const matrix *t = arg;
    int64_t first, last;
    mmi_piece_rows(piece, PIECE, t->R * t->C, &first, &last);
    t->x->k.scale(t->w + first, t->shrink, last - first);
    t->x->k.axpy(t->w + first, -t->step, t->X + first, last - first);
}

void mmi_muon_update(const mm_optimizer *o, const mmi_exec *x, float *w, float *m, const float *g,
                     const mmi_tensor *tensor, double grad_scale, double lr, double decay)
{
    int64_t R = tensor->shape[0], C = tensor->shape[1], side = R > C ? R : C;
    mmi_exec exact = mmi_exec_exact(x); /* an update is computed as the weights are kept */
    matrix t = { .x = &exact,
                 .w = w,
                 .m = m,
                 .g = g,
                 .X = o->work,
                 .Y = o->work + o->at.elements,
                 .gram = o->work + 2 * o->at.elements,
                 .poly = o->work + 2 * o->at.elements + o->at.side * o->at.side,
                 .R = R,
                 .C = C,
                 .n = R < C ? R : C,
                 .momentum = (float)o->momentum,
                 .scale = (float)grad_scale,
                 .shrink = (float)(1 - lr * decay),
                 .step = (float)(lr * MATCH * sqrt((double)side)) };
    mmi_pool_run(x->pool, mmi_pieces(R * C, PIECE), look_ahead, &t);
    double norm = sqrt(x->k.sum_squares(t.X, R * C));
    mmi_vector_scale(x, t.X, (float)(1 / (norm + EPS)), R * C);
    for (int i = 0; i < STEPS; i++)
        iterate(&t);
    mmi_pool_run(x->pool, mmi_pieces(R * C, PIECE), move, &t);
}
