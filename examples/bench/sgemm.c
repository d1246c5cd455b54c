/* cblas_sgemm, loaded while running: the library's own copy stays as it is. */
#include <dlfcn.h>
#include <stdlib.h>
#include <threads.h>
#include <time.h>

#include "bench.h"

typedef void (*sgemm_fn)(int order, int ta, int tb, int m, int n, int k, float alpha, const float *a, int lda,
                         const float *b, int ldb, float beta, float *c, int ldc);

enum { ROW_MAJOR = 101, AS_IS = 111, TRANSPOSED = 112 };

/* Seconds of one product, the best of three. */
static double time_product(sgemm_fn sgemm, int ta, int tb, int m, int n, int k, const float *a, const float *b,
                           float *c)
{
    double best = 1e30;
    for (int i = 0; i < 3; i++) {
        double start = now();
        sgemm(ROW_MAJOR, ta, tb, m, n, k, 1, a, ta == AS_IS ? k : m, b, tb == AS_IS ? n : k, 0, c, n);
        double seconds = now() - start;
        if (seconds < best)
            best = seconds;
    }
    return best;
}

/* One matrix over `rows` tokens: y = x Wᵀ, and in training dx = dy W and dW = dyᵀ x. */
static double time_matrix(sgemm_fn sgemm, int rows, int out, int in, bool training)
{
    size_t most = (size_t)rows * (size_t)(out > in ? out : in), n = (size_t)out * (size_t)in;
    float *x = need(malloc(most * sizeof *x)), *y = need(malloc(most * sizeof *y)), *w = need(malloc(n * sizeof *w));
    for (size_t i = 0; i < most; i++)
        x[i] = y[i] = (float)(int)(i % 7) - 3;
    for (size_t i = 0; i < n; i++)
        w[i] = (float)(int)(i % 5) - 2;
    double seconds = time_product(sgemm, AS_IS, TRANSPOSED, rows, out, in, x, w, y);
    if (training)
        seconds += time_product(sgemm, AS_IS, AS_IS, rows, in, out, x, w, y) +
                   time_product(sgemm, TRANSPOSED, AS_IS, out, in, rows, x, y, w);
    free(x);
    free(y);
    free(w);
    return seconds;
}

/* Of its routed experts a token uses this share. */
static double share_of_experts(const mm_config *config)
{
    mm_param_count count = MM_PARAM_COUNT_INIT;
    die_if(mm_count_params(config, &count), "count");
    if (count.moe_experts == 0)
        return 1;
    return 1 - (double)(count.total - count.active) / (double)count.moe_experts;
}

/* OpenBLAS's threads look around for 2^26 ticks of the processor's clock before they sleep, some 30 ms, which whatever
 * is measured next would have to share the processor with. */
static void wait_for_sleep(int threads)
{
    if (threads > 1)
        thrd_sleep(&(struct timespec){ .tv_nsec = 60 * 1000 * 1000 }, NULL);
}

/* A function of OpenBLAS; NULL where it isn't. */
static void *find(const char *name)
{
    void *library = dlopen("libopenblas.so.0", RTLD_NOW);
    return library ? dlsym(library, name) : NULL;
}

const char *sgemm_core(void)
{
    char *(*core)(void) = NULL;
    *(void **)&core = find("openblas_get_corename");
    return core ? core() : NULL;
}

double sgemm_rate(const mm_config *config, int rows, int threads, bool training)
{
    sgemm_fn sgemm = NULL;
    void (*set_threads)(int) = NULL;
    *(void **)&sgemm = find("cblas_sgemm");
    *(void **)&set_threads = find("openblas_set_num_threads");
    if (!sgemm || !set_threads || !sgemm_core())
        return 0;
    set_threads(threads);
    int64_t tensors = 0, layers = 0;
    int32_t tied = 0;
    die_if(mm_layout_count(config, &tensors), "layout");
    die_if(mm_config_get_int(config, "num_hidden_layers", &layers), "config");
    die_if(mm_config_get_bool(config, "tie_word_embeddings", &tied), "config");
    double seconds = 0, flops = 0, share = share_of_experts(config);
    for (int64_t i = 0; i < tensors; i++) { /* one layer and one expert stand for all */
        mm_tensor_info info = MM_TENSOR_INFO_INIT;
        die_if(mm_layout_get(config, i, &info), "layout");
        if (info.rank != 2 || info.layer > 0 || (info.module == MM_MODULE_EMBEDDING && !tied))
            continue;
        int n = info.module == MM_MODULE_MOE_EXPERTS ? (int)(rows * share) : rows;
        double times = info.layer == 0 ? (double)layers : 1;
        if (n < 1)
            continue;
        seconds += times * time_matrix(sgemm, n, (int)info.shape[0], (int)info.shape[1], training);
        flops += times * (training ? 6.0 : 2.0) * n * (double)info.elements;
    }
    wait_for_sleep(threads);
    return flops / seconds;
}
