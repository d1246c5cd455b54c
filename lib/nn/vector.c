#include "nn/vector.h"

#include <string.h>

#define PIECE (1 << 15) /* floats: two such vectors lie in a second-level cache */
#define ROWS 32         /* per piece at least */

typedef struct job {
    const mmi_exec *x;
    float *y;
    const float *in; /* NULL: zero */
    int64_t n;
    float a;
} job;

static void copy(void *arg, int64_t piece, int worker)
{
    (void)worker;
    const job *j = arg;
    int64_t first, last;
    mmi_piece_rows(piece, PIECE, j->n, &first, &last);
    size_t bytes = (size_t)(last - first) * sizeof(float);
    if (j->in)
        memcpy(j->y + first, j->in + first, bytes);
    else
        memset(j->y + first, 0, bytes);
}

static void add(void *arg, int64_t piece, int worker)
{
    (void)worker;
    const job *j = arg;
    int64_t first, last;
    mmi_piece_rows(piece, PIECE, j->n, &first, &last);
    j->x->k.axpy(j->y + first, j->a, j->in + first, last - first);
}

static void scale(void *arg, int64_t piece, int worker)
{
    (void)worker;
    const job *j = arg;
    int64_t first, last;
    mmi_piece_rows(piece, PIECE, j->n, &first, &last);
    j->x->k.scale(j->y + first, j->a, last - first);
}

static void run(const mmi_exec *x, mmi_piece_fn fn, float *y, float a, const float *in, int64_t n)
{
    job j = { x, y, in, n, a };
    mmi_pool_run(x->pool, mmi_pieces(n, PIECE), fn, &j);
}

void mmi_vector_copy(const mmi_exec *x, float *y, const float *in, int64_t n)
{
    if (y != in)
        run(x, copy, y, 0, in, n);
}

void mmi_vector_zero(const mmi_exec *x, float *y, int64_t n)
{
    run(x, copy, y, 0, NULL, n);
}

void mmi_vector_axpy(const mmi_exec *x, float *y, float a, const float *in, int64_t n)
{
    run(x, add, y, a, in, n);
}

void mmi_vector_scale(const mmi_exec *x, float *y, float a, int64_t n)
{
    if (a != 1)
        run(x, scale, y, a, NULL, n);
}

typedef struct rows_job {
    const mmi_exec *x;
    float *y;
    const float *in;
    const int32_t *rows; /* [N] of `in`, or NULL: as they are */
    int64_t ldy, ldin, N, C, step;
} rows_job;

static void copy_rows(void *arg, int64_t piece, int worker)
{
    (void)worker;
    const rows_job *j = arg;
    int64_t first, last;
    mmi_piece_rows(piece, j->step, j->N, &first, &last);
    for (int64_t i = first; i < last; i++)
        memcpy(j->y + i * j->ldy, j->in + (j->rows ? j->rows[i] : i) * j->ldin, (size_t)j->C * sizeof(float));
}

static void add_rows(void *arg, int64_t piece, int worker)
{
    (void)worker;
    const rows_job *j = arg;
    int64_t first, last;
    mmi_piece_rows(piece, j->step, j->N, &first, &last);
    for (int64_t i = first; i < last; i++)
        j->x->k.add(j->y + i * j->ldy, j->in + i * j->ldin, j->C);
}

void mmi_rows_copy(const mmi_exec *x, float *y, int64_t ldy, const float *in, int64_t ldin, int64_t N, int64_t C)
{
    rows_job j = { x, y, in, NULL, ldy, ldin, N, C, mmi_rows_worth(ROWS, C) };
    mmi_pool_run(x->pool, mmi_pieces(N, j.step), copy_rows, &j);
}

void mmi_rows_add(const mmi_exec *x, float *y, int64_t ldy, const float *in, int64_t ldin, int64_t N, int64_t C)
{
    rows_job j = { x, y, in, NULL, ldy, ldin, N, C, mmi_rows_worth(ROWS, C) };
    mmi_pool_run(x->pool, mmi_pieces(N, j.step), add_rows, &j);
}

void mmi_rows_gather(const mmi_exec *x, float *y, const float *in, const int32_t *rows, int64_t N, int64_t C)
{
    rows_job j = { x, y, in, rows, C, C, N, C, mmi_rows_worth(ROWS, C) };
    mmi_pool_run(x->pool, mmi_pieces(N, j.step), copy_rows, &j);
}
