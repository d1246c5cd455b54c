/* How fast the products are, at the shapes that training minimind2-small has (batch 8 × 512 tokens): OpenBLAS as it is
 * with all threads, mmi_gemm with our own kernels, and mmi_gemm on the path that has OpenBLAS too. One line for each
 * product, GFLOP/s, the best of a few rounds that take turns, so that a busy machine slows all of them alike.
 *
 *     bench_kernels [threads [seconds per line [kernels]]] */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/gemm.h"
#include "base/files.h"
#include "base/memory.h"
#include "base/processor.h"

#if MM_HAVE_OPENBLAS
#include <cblas.h>
#endif

typedef struct shape {
    const char *what;
    bool ta, tb, accumulate;
    int64_t M, N, K;
} shape;

typedef enum way { OPENBLAS, OWN, MIXED, WAYS } way;

typedef struct bench {
    mmi_exec own, mixed;
    float *a, *b, *c;
    int threads;
    double rounds;
} bench;

static int64_t larger(int64_t x, int64_t y)
{
    return x > y ? x : y;
}

static void multiply(const bench *t, const shape *s, way how)
{
    int64_t lda = s->ta ? s->M : s->K, ldb = s->tb ? s->K : s->N;
    if (how != OPENBLAS) {
        const mmi_exec *x = how == OWN ? &t->own : &t->mixed;
        mmi_gemm(x, s->ta, s->tb, s->M, s->N, s->K, t->a, lda, t->b, ldb, s->accumulate ? t->c : NULL, t->c, s->N);
        return;
    }
#if MM_HAVE_OPENBLAS
    cblas_sgemm(CblasRowMajor, s->ta ? CblasTrans : CblasNoTrans, s->tb ? CblasTrans : CblasNoTrans, (blasint)s->M,
                (blasint)s->N, (blasint)s->K, 1, t->a, (blasint)lda, t->b, (blasint)ldb, s->accumulate ? 1 : 0, t->c,
                (blasint)s->N);
#endif
}

static double flops(const shape *s)
{
    return 2.0 * (double)s->M * (double)s->N * (double)s->K;
}

/* Seconds of the fastest run of each way. */
static void measure(double best[WAYS], const bench *t, const shape *s)
{
    for (int how = 0; how < WAYS; how++)
        best[how] = 1e9;
    double start = mmi_now();
    for (int round = 0; round < 2 || mmi_now() - start < t->rounds; round++)
        for (int how = 0; how < WAYS; how++) {
            double before = mmi_now();
            multiply(t, s, (way)how);
            double took = mmi_now() - before;
            best[how] = took < best[how] ? took : best[how];
        }
}

/* y = x Wᵀ, dx = dy W, dW += dyᵀ x, for W [N, K] and T tokens. */
static void three_products(shape out[3], const char *name, int64_t T, int64_t N, int64_t K)
{
    out[0] = (shape){ name, false, true, false, T, N, K };
    out[1] = (shape){ "  dx", false, false, true, T, K, N };
    out[2] = (shape){ "  dw", true, false, true, N, K, T };
}

static void report(const bench *t, const shape *s, double total[WAYS])
{
    double best[WAYS];
    measure(best, t, s);
    printf("%-10s %5lld x %5lld x %5lld ", s->what, (long long)s->M, (long long)s->N, (long long)s->K);
    for (int how = 0; how < WAYS; how++) {
        printf(" %8.1f", flops(s) / best[how] * 1e-9);
        total[how] += best[how];
    }
    printf("    %.3f  %.3f\n", best[OPENBLAS] / best[OWN], best[OPENBLAS] / best[MIXED]);
    fflush(stdout);
}

static int prepare(bench *t, const char *kernels)
{
    const mmi_path *path = mmi_path_find(kernels);
    if (!path || mmi_pool_create(t->threads, &t->own.pool) != MM_OK)
        return 0;
    mmi_kernels_init(&t->own.k, path->cpu);
    int64_t floats = 4096 * 6400;
    t->own.panels = mmi_alloc((size_t)mmi_gemm_panels(), sizeof(float));
    t->own.scratch_stride = mmi_gemm_own_scratch(&t->own.k, t->threads);
    t->own.scratch = mmi_calloc((size_t)(t->threads * t->own.scratch_stride + 1), sizeof(float));
    t->a = mmi_calloc((size_t)floats, sizeof(float));
    t->b = mmi_calloc((size_t)floats, sizeof(float));
    t->c = mmi_calloc((size_t)floats, sizeof(float));
    if (!t->own.panels || !t->own.scratch || !t->a || !t->b || !t->c)
        return 0;
    for (int64_t i = 0; i < floats; i++)
        t->a[i] = t->b[i] = (float)(i % 17 - 8) * 0.01f;
    t->mixed = t->own;
    t->mixed.blas = true;
#if MM_HAVE_OPENBLAS
    openblas_set_num_threads(t->threads);
#endif
    return 1;
}

int main(int argc, char **argv)
{
    bench t = { .threads = argc > 1 ? atoi(argv[1]) : (int)larger(1, mmi_processor_count()),
                .rounds = argc > 2 ? atof(argv[2]) : 0.3 };
    if (t.threads < 1 || !prepare(&t, argc > 3 ? argv[3] : NULL)) {
        fprintf(stderr, "usage: bench_kernels [threads [seconds per line [kernels]]]\n");
        return 1;
    }
    static const struct {
        const char *name;
        int64_t T, N, K;
    } layers[] = {
        { "q, o", 4096, 512, 512 },  { "k, v", 4096, 128, 512 },  { "gate, up", 4096, 1408, 512 },
        { "down", 4096, 512, 1408 }, { "head", 4096, 6400, 512 }, { "head chunk", 512, 6400, 512 },
        { "square", 512, 512, 512 },
    };
    double total[WAYS] = { 0 };
    printf("%s, %d threads; GFLOP/s\n%-33s %8s %8s %8s    %s\n", t.own.k.name, t.threads, "", "OpenBLAS", "own",
           "mixed", "own and mixed, to OpenBLAS");
    for (size_t i = 0; i < sizeof layers / sizeof layers[0]; i++) {
        shape s[3];
        three_products(s, layers[i].name, layers[i].T, layers[i].N, layers[i].K);
        for (int j = 0; j < 3; j++)
            report(&t, &s[j], total);
    }
    printf("all: %.3f  %.3f\n", total[OPENBLAS] / total[OWN], total[OPENBLAS] / total[MIXED]);
    mmi_pool_free(t.own.pool);
    mmi_free(t.own.panels);
    mmi_free(t.a);
    mmi_free(t.b);
    mmi_free(t.c);
    return 0;
}
