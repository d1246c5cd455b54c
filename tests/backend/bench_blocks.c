/* How fast products with weights in blocks are, on one thread, at the shape of minimind2-small's gate: 1408 × 512. One
 * line for each number of rows, 10^9 products per second, the best of rounds that take turns with a product of floats.
 *
 *     bench_blocks [seconds per line [kernels]] */
#include <stdio.h>
#include <stdlib.h>

#include "backend/kernels.h"
#include "backend/strips.h"
#include "base/files.h"
#include "base/memory.h"
#include "model/convert.h"

enum { N = 1408, K = 512, MOST_ROWS = 512, WAYS = 3 };

typedef struct bench {
    mmi_kernels k;
    float *x, *y, *w;
    unsigned char *quantized, *strips[2];
} bench;

static const int32_t dtypes[2] = { MM_Q8_0, MM_Q4_0 };

static int prepare(bench *t, const char *kernels)
{
    const mmi_path *path = mmi_path_find(kernels);
    if (!path)
        return 0;
    mmi_kernels_init(&t->k, path->cpu);
    t->x = mmi_calloc((size_t)MOST_ROWS * K, sizeof(float));
    t->w = mmi_calloc((size_t)N * K, sizeof(float));
    t->y = mmi_calloc((size_t)MOST_ROWS * N, sizeof(float));
    t->quantized = mmi_calloc((size_t)MOST_ROWS, (size_t)mmi_quantized_row(K));
    if (!t->x || !t->w || !t->y || !t->quantized)
        return 0;
    for (int64_t i = 0; i < (int64_t)N * K; i++)
        t->w[i] = (float)(i * 7919 % 255 - 127) * 0.01f;
    for (int64_t i = 0; i < (int64_t)MOST_ROWS * K; i++)
        t->x[i] = (float)(i * 7919 % 251 - 125) * 0.01f;
    for (int64_t i = 0; i < MOST_ROWS; i++)
        t->k.quantize(t->quantized + i * mmi_quantized_row(K), K, t->x + i * K, 0, K);
    for (int d = 0; d < 2; d++) {
        t->strips[d] = mmi_alloc(mmi_strips_bytes(dtypes[d], N, K), 1);
        if (!t->strips[d])
            return 0;
        mmi_convert_matrix(t->strips[d], dtypes[d], t->w, MM_F32, N, K);
    }
    return 1;
}

/* 0: floats; then q8_0 and q4_0. */
static void multiply(const bench *t, int64_t rows, int way)
{
    const mmi_kernels *k = &t->k;
    if (way == 0)
        k->gemm_tile(t->y, N, t->x, K, 1, t->w, N, rows, N, K, false);
    else
        k->gemm_blocks(t->y, N, t->quantized, t->strips[way - 1], dtypes[way - 1], rows, N, K);
}

int main(int argc, char **argv)
{
    static const int64_t rows[] = { 1, 2, 3, 4, 8, 16, 64, 512 };
    bench t = { 0 };
    double seconds = argc > 1 ? atof(argv[1]) : 0.5;
    if (!prepare(&t, argc > 2 ? argv[2] : NULL)) {
        fprintf(stderr, "usage: bench_blocks [seconds per line [kernels]]\n");
        return 1;
    }
    printf("%s; 10^9 products/s\n%5s %8s %8s %8s\n", t.k.name, "rows", "f32", "q8_0", "q4_0");
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        double best[WAYS], start = mmi_now();
        for (int way = 0; way < WAYS; way++)
            best[way] = 1e9;
        for (int round = 0; round < 3 || mmi_now() - start < seconds; round++)
            for (int way = 0; way < WAYS; way++) {
                double before = mmi_now();
                multiply(&t, rows[r], way);
                double took = mmi_now() - before;
                best[way] = took < best[way] ? took : best[way];
            }
        printf("%5lld", (long long)rows[r]);
        for (int way = 0; way < WAYS; way++)
            printf(" %8.1f", (double)rows[r] * N * K / best[way] * 1e-9);
        printf("\n");
    }
    mmi_free(t.x);
    mmi_free(t.y);
    mmi_free(t.w);
    mmi_free(t.quantized);
    mmi_free(t.strips[0]);
    mmi_free(t.strips[1]);
    return 0;
}
