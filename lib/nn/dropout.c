#include "nn/dropout.h"

#include "base/random.h"

#define PIECE 4096 /* elements */

void mmi_dropout_row(float *y, int64_t n, uint64_t first, mmi_dropout d)
{
    if (d.p <= 0)
        return;
    uint32_t block[4], limit = (uint32_t)((double)d.p * 4294967296.0); /* dropped when the number is below */
    float scale = 1 / (1 - d.p);
    for (int64_t i = 0; i < n; i++) {
        uint64_t index = first + (uint64_t)i;
        if (i == 0 || index % 4 == 0)
            mmi_random_block(block, d.seed, d.stream, index / 4);
        y[i] = block[index % 4] < limit ? 0 : y[i] * scale;
    }
}

typedef struct job {
    float *y;
    int64_t n;
    mmi_dropout d;
} job;

static void apply(void *arg, int64_t piece, int worker)
{
    (void)worker;
    const job *j = arg;
    int64_t first, last;
    mmi_piece_rows(piece, PIECE, j->n, &first, &last);
    mmi_dropout_row(j->y + first, last - first, (uint64_t)first, j->d);
}

void mmi_dropout_apply(const mmi_exec *x, float *y, int64_t n, mmi_dropout d)
{
    if (d.p <= 0)
        return;
    job j = { y, n, d };
    mmi_pool_run(x->pool, mmi_pieces(n, PIECE), apply, &j);
}
