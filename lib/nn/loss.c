#include "nn/loss.h"

#include <math.h>
#include <string.h>

#include "backend/gemm.h"
#include "nn/vector.h"

/* About 16 MB of logits: enough rows for the products to run at full speed. */
#define CHUNK_LOGITS (4 << 20)
#define LEAST_CHUNK 16
#define MOST_CHUNK 512
#define ROWS 8 /* of a chunk, per piece */

typedef struct job {
    const mmi_exec *x;
    float *logprobs, *logits, *to;
    const float *from, *weights;
    const int32_t *rows, *targets;
    int64_t n, C, V;
    float scale;
    bool turn;
} job;

int64_t mmi_head_chunk(int64_t V)
{
    int64_t rows = CHUNK_LOGITS / V;
    return rows < LEAST_CHUNK ? LEAST_CHUNK : rows > MOST_CHUNK ? MOST_CHUNK : rows;
}

/* The next rows, from *at on, that have a target; how many. */
static int64_t next_rows(const mmi_head_scratch *s, const int32_t *targets, int64_t N, int64_t *at)
{
    int64_t n = 0;
    for (; *at < N && n < s->chunk; ++*at)
        if (targets[*at] >= 0)
            s->rows[n++] = (int32_t)*at;
    return n;
}

static void scatter_add(void *arg, int64_t piece, int worker)
{
    (void)worker;
    const job *j = arg;
    int64_t first, last;
    mmi_piece_rows(piece, ROWS, j->n, &first, &last);
    for (int64_t i = first; i < last; i++)
        j->x->k.add(j->to + j->rows[i] * j->C, j->from + i * j->C, j->C);
}

/* Each row's logprob of its target, and with `turn` the row as weight * (softmax - onehot); without weights each is 1.
 * Logits stay apart from their sum until they are small: log Σ exp in one number would cost each of them as much as it
 * rounds. */
static void read_rows(void *arg, int64_t piece, int worker)
{
    (void)worker;
    const job *j = arg;
    const int64_t V = j->V;
    int64_t first, last;
    mmi_piece_rows(piece, ROWS, j->n, &first, &last);
    for (int64_t i = first; i < last; i++) {
        const int64_t row = j->rows[i];
        const float *logits = j->from ? j->from + row * V : j->logits + i * V;
        float *turned = j->turn ? j->logits + i * V : NULL;
        const float most = j->x->k.largest(logits, V), of_target = logits[j->targets[row]];
        const double sum = j->x->k.softmax_weights(turned, logits, most, 1, V);
        if (j->logprobs)
            j->logprobs[row] = (float)((double)of_target - most - log(sum));
        if (!turned)
            continue;
        const float weight = j->weights ? j->weights[row] : 1;
        const double p = turned[j->targets[row]] / sum;
        j->x->k.scale(turned, (float)(weight / sum), V);
        turned[j->targets[row]] = (float)(weight * (p - 1));
    }
}

void mmi_head_logprobs(const mmi_exec *x, float *logprobs, const float *hidden, const float *all_logits,
                       const int32_t *targets, mmi_param head, int64_t N, float *panel, const mmi_head_scratch *s)
{
    int64_t C = head.w.cols, V = head.w.rows, n, at = 0;
    memset(logprobs, 0, (size_t)N * sizeof(float));
    while ((n = next_rows(s, targets, N, &at)) > 0) {
        job j = {
            .x = x, .logprobs = logprobs, .from = all_logits, .rows = s->rows, .targets = targets, .n = n, .V = V
        };
        if (!all_logits) {
            mmi_rows_gather(x, s->hidden, hidden, s->rows, n, C);
            mmi_gemm_weight(x, n, V, C, mmi_operand_of(s->hidden, C), head.w.data, head.w.dtype, panel, s->logits, V);
            j.logits = s->logits;
        }
        mmi_pool_run(x->pool, mmi_pieces(n, ROWS), read_rows, &j);
    }
}

/* From d(logits) in s->logits of the n rows in s->rows. */
static void backward_chunk(const mmi_exec *x, float *d_hidden, mmi_param head, int64_t n, const mmi_head_scratch *s)
{
    int64_t C = head.w.cols, V = head.w.rows;
    mmi_param none = { 0 };
    mmi_linear_backward(x, s->d_hidden, C, s->logits, V, s->hidden, C, head, none, n, false);
    job j = { .x = x, .to = d_hidden, .from = s->d_hidden, .rows = s->rows, .n = n, .C = C };
    mmi_pool_run(x->pool, mmi_pieces(n, ROWS), scatter_add, &j);
}

/* The logits of the n rows in s->rows become their d(logits), as read_rows() turns them, and go back. Learning needs
 * float32 weights, and so no panel. */
static void learn_chunk(const mmi_exec *x, float *d_hidden, float *logprobs, const float *weights, const float *hidden,
                        const int32_t *targets, mmi_param head, int64_t n, const mmi_head_scratch *s)
{
    int64_t C = head.w.cols, V = head.w.rows;
    mmi_rows_gather(x, s->hidden, hidden, s->rows, n, C);
    mmi_gemm_weight(x, n, V, C, mmi_operand_of(s->hidden, C), head.w.data, head.w.dtype, NULL, s->logits, V);
    job j = { .x = x,
              .logprobs = logprobs,
              .logits = s->logits,
              .weights = weights,
              .rows = s->rows,
              .targets = targets,
              .n = n,
              .V = V,
              .turn = true };
    mmi_pool_run(x->pool, mmi_pieces(n, ROWS), read_rows, &j);
    backward_chunk(x, d_hidden, head, n, s);
}

void mmi_head_learn(const mmi_exec *x, float *d_hidden, float *logprobs, const float *hidden, const int32_t *targets,
                    mmi_param head, int64_t N, const mmi_head_scratch *s)
{
    int64_t n, at = 0;
    memset(logprobs, 0, (size_t)N * sizeof(float));
    mmi_vector_zero(x, d_hidden, N * head.w.cols);
    while ((n = next_rows(s, targets, N, &at)) > 0)
        learn_chunk(x, d_hidden, logprobs, NULL, hidden, targets, head, n, s);
}

void mmi_head_backward(const mmi_exec *x, float *d_hidden, const float *weights, const float *hidden,
                       const int32_t *targets, mmi_param head, int64_t N, const mmi_head_scratch *s)
{
    int64_t n, at = 0;
    while ((n = next_rows(s, targets, N, &at)) > 0)
        learn_chunk(x, d_hidden, NULL, weights, hidden, targets, head, n, s);
}

static void copy_scaled(void *arg, int64_t piece, int worker)
{
    (void)worker;
    const job *j = arg;
    int64_t first, last;
    mmi_piece_rows(piece, ROWS, j->n, &first, &last);
    for (int64_t i = first; i < last; i++) {
        memcpy(j->logits + i * j->V, j->from + j->rows[i] * j->V, (size_t)j->V * sizeof(float));
        j->x->k.scale(j->logits + i * j->V, j->scale, j->V);
    }
}

void mmi_head_backward_logits(const mmi_exec *x, float *d_hidden, const float *d_logits, float scale,
                              const float *hidden, mmi_param head, int64_t N, const mmi_head_scratch *s)
{
    int64_t C = head.w.cols, V = head.w.rows;
    for (int64_t first = 0; first < N; first += s->chunk) {
        int64_t n = N - first < s->chunk ? N - first : s->chunk;
        for (int64_t i = 0; i < n; i++)
            s->rows[i] = (int32_t)(first + i);
        mmi_rows_gather(x, s->hidden, hidden, s->rows, n, C);
        job j = { .x = x, .logits = s->logits, .from = d_logits, .rows = s->rows, .n = n, .V = V, .scale = scale };
        mmi_pool_run(x->pool, mmi_pieces(n, ROWS), copy_scaled, &j);
        backward_chunk(x, d_hidden, head, n, s);
    }
}
