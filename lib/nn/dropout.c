#include "nn/dropout.h"

void mmi_dropout_row(const mmi_kernels *k, float *y, int64_t n, uint64_t first, mmi_dropout d)
{
    if (d.p > 0)
        k->dropout(y, n, d.p, d.seed, d.stream, first);
}

typedef struct job {
    const mmi_kernels *k;
    float *y;
    int64_t n;
    mmi_dropout d;
} job;

static void apply(void *arg, int64_t piece, int worker)
{
    (void)worker;
    const job *j = arg;
    int64_t first, last;
    mmi_piece_rows(piece, MMI_WORTHWHILE, j->n, &first, &last);
    mmi_dropout_row(j->k, j->y + first, last - first, (uint64_t)first, j->d);
}

void mmi_dropout_apply(const mmi_exec *x, float *y, int64_t n, mmi_dropout d)
{
    if (d.p <= 0)
        return;
    job j = { &x->k, y, n, d };
    mmi_pool_run(x->pool, mmi_pieces(n, MMI_WORTHWHILE), apply, &j);
}
