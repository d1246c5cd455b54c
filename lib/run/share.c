#include "run/share.h"

#include "backend/strips.h"
#include "base/files.h"

#define MOST_ROWS 64          /* more are multiplied for longer than weights are read */
#define LEAST_BYTES (1 << 22) /* fewer stay in second levels, and would not be worth the meetings */
#define MOST_BYTES (1 << 27)  /* measured: more gain nothing */
#define FIRST_PASSES 8        /* for each thread, in which weights are read FIRST_TIMES: ... */
#define FIRST_TIMES 2         /* ... not all lines stay after once */
#define PASSES_AROUND 128     /* later ones for each thread, for what has lost its place since */
#define PASSES_ANEW 128       /* at least, before a pause makes passes the first again */
#define LONG_PAUSE 5e-3       /* seconds: other work has had the caches */
#define TOGETHER (1 << 18)    /* bytes between two meetings of the threads: all have them in their caches */
#define WAIT_SECONDS 3e-6     /* for the others, who come within one when they are awake */
#define LINE 64               /* bytes of a cache line; of a longer one some are read twice */

typedef struct job {
    const volatile unsigned char *from, *to;
    int threads;
    atomic_int here; /* so many of them have come */
} job;

/* All of it by whoever asks, as there are as many pieces as threads, and side by side: a thread that is half a
 * microsecond behind finds lines that have moved already. */
static void read_lines(void *arg, int64_t piece, int worker)
{
    (void)piece;
    (void)worker;
    job *j = arg;
    atomic_fetch_add(&j->here, 1);
    for (double end = mmi_now() + WAIT_SECONDS; atomic_load(&j->here) < j->threads && mmi_now() < end;)
        ;
    for (const volatile unsigned char *line = j->from; line < j->to; line += LINE)
        (void)*line;
}

static int64_t matrix_bytes(const mm_context *ctx, int64_t index)
{
    mmi_weight w = mmi_model_weight(ctx->model, index);
    return (int64_t)mmi_matrix_bytes(w.dtype, w.rows, w.cols);
}

/* What every pass reads of tensor `index`: neither what is looked up nor experts, of which a token has its own. */
static int64_t bytes_of(const mm_context *ctx, int64_t index)
{
    mmi_tensor t;
    mmi_layout_tensor(ctx->layout, index, &t);
    bool looked_up = t.module == MM_MODULE_EMBEDDING && !ctx->arch->tied;
    return t.rank != 2 || looked_up || t.module == MM_MODULE_MOE_EXPERTS ? 0 : matrix_bytes(ctx, index);
}

static void look_at_model(mm_context *ctx, mmi_sharing *s)
{
    *s = (mmi_sharing){ .begun = true, .version = mmi_model_version(ctx->model) };
    for (int64_t i = 0; i < ctx->layout->count; i++) {
        s->bytes += bytes_of(ctx, i);
        s->all += matrix_bytes(ctx, i);
    }
}

/* The next bytes, up to `most` or the end of a tensor; how many. */
static int64_t read_next(mm_context *ctx, mmi_sharing *s, int64_t most)
{
    int64_t bytes = bytes_of(ctx, s->tensor), from = s->at;
    int64_t to = bytes - from < most ? bytes : from + most;
    if (from < to) {
        const unsigned char *data = mmi_model_weight(ctx->model, s->tensor).data;
        job j = { .from = data + from, .to = data + to, .threads = mmi_pool_threads(ctx->exec.pool) };
        mmi_pool_run(ctx->exec.pool, j.threads, read_lines, &j);
        s->met += j.here == j.threads;
    }
    s->at = to < bytes ? to : 0;
    if (s->at == 0)
        s->tensor = (s->tensor + 1) % ctx->layout->count;
    return to - from;
}

void mmi_share_begin(mm_context *ctx)
{
    ctx->sharing.paused |= mmi_now() - ctx->sharing.pass_ended > LONG_PAUSE;
}

void mmi_share_end(mm_context *ctx)
{
    ctx->sharing.pass_ended = mmi_now();
}

void mmi_share_weights(mm_context *ctx, const mmi_pass *pass)
{
    mmi_sharing *s = &ctx->sharing;
    const int64_t threads = mmi_pool_own_threads(ctx->exec.pool);
    if (threads == 1 || pass->N >= MOST_ROWS || pass->mode != MM_EVAL)
        return;
    if (!s->begun || s->version != mmi_model_version(ctx->model))
        look_at_model(ctx, s);
    if (s->bytes < LEAST_BYTES || s->all > MOST_BYTES)
        return;
    if (s->paused && s->passes >= PASSES_ANEW)
        s->passes = 0;
    s->paused = false;
    bool first = s->passes < FIRST_PASSES * threads;
    int64_t left = first ? mmi_pieces(s->bytes * FIRST_TIMES, FIRST_PASSES * threads) :
                           mmi_pieces(s->bytes, PASSES_AROUND * threads);
    s->passes++;
    while (left > 0)
        left -= read_next(ctx, s, left < TOGETHER ? left : TOGETHER);
}
