/* What a layer runs with, made for a test: every kernel path, some numbers of threads. */
#ifndef MM_TESTS_NN_EXEC_H
#define MM_TESTS_NN_EXEC_H

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "backend/exec.h"
#include "backend/gemm.h"
#include "base/memory.h"
#include "support.h"

/* For each kernel path, slowest first. */
#define EACH_PATH(path) for (const mmi_path *path = mmi_path_get(0); path; path = path_behind(path, false))
/* For what has nothing to do with weights in blocks, which are all that avxvnni, vnni and dot bring: without those,
 * whose functions have all been met on the path before. */
#define EACH_PATH_OF_FLOATS(path) for (const mmi_path *path = mmi_path_get(0); path; path = path_behind(path, true))

static inline bool brings_blocks_only(const mmi_path *path, const mmi_path *before)
{
    mmi_kernels k, had;
    memset(&k, 0, sizeof k);
    memset(&had, 0, sizeof had);
    mmi_kernels_init(&k, path->cpu);
    mmi_kernels_init(&had, before->cpu);
    had.name = k.name;
    had.quantize = k.quantize;
    had.gemm_blocks = k.gemm_blocks;
    had.slice_blocks = k.slice_blocks;
    had.blocks_worth = k.blocks_worth;
    return path->blas == before->blas && memcmp(&k, &had, sizeof k) == 0;
}

static inline const mmi_path *path_behind(const mmi_path *path, bool of_floats)
{
    int32_t i = 0;
    while (mmi_path_get(i) != path)
        i++;
    for (path = mmi_path_get(++i); of_floats && path && brings_blocks_only(path, mmi_path_get(i - 1)); i++)
        path = mmi_path_get(i + 1);
    return path;
}

#define FOR_PRODUCTS 0 /* scratch: what mmi_gemm needs alone */

/* What products need is full of NaN, so that reading what was never written shows. */
static inline void exec_forget(mmi_exec *x)
{
    memset(x->panels, 0xFF, (size_t)mmi_gemm_panels() * sizeof(float));
    for (int64_t i = 0; i < mmi_pool_threads(x->pool) * x->scratch_stride; i++)
        x->scratch[i] = NAN;
}

/* `scratch` floats per worker, and what products need. Several threads share products with blocks however small these
 * are. */
static inline mmi_exec exec_create(const mmi_path *path, int threads, int64_t scratch)
{
    mmi_exec x = { .blas = path->blas };
    mmi_kernels_init(&x.k, path->cpu);
    if (threads > 1)
        x.k.blocks_worth = 0;
    ck_ok(mmi_pool_create(threads, &x.pool));
    x.panels = mmi_alloc((size_t)mmi_gemm_panels(), sizeof(float));
    ck_assert_ptr_nonnull(x.panels);
    int64_t own = mmi_gemm_own_scratch(&x.k, threads);
    x.scratch_stride = ((scratch > own ? scratch : own) + 15) / 16 * 16;
    x.scratch = mmi_alloc((size_t)(threads * x.scratch_stride), sizeof(float));
    ck_assert_ptr_nonnull(x.scratch);
    exec_forget(&x);
    return x;
}

static inline void exec_free(mmi_exec *x)
{
    mmi_pool_free(x->pool);
    mmi_free(x->panels);
    mmi_free(x->scratch);
}

/* Do `work(what, exec, label)` on every path of floats with 1, 2 and 3 threads. `check(what, label)` follows the run
 * with one thread, `same(what, label)` the others. */
typedef struct exec_plan {
    void *what;
    int64_t scratch;
    void (*work)(void *what, const mmi_exec *x);
    void (*check)(void *what, const char *label);
    void (*same)(void *what, const char *label);
} exec_plan;

static inline void exec_on_all(const exec_plan *plan)
{
    EACH_PATH_OF_FLOATS (path)
        for (int threads = 1; threads <= 3; threads++) {
            char label[64];
            snprintf(label, sizeof label, "%s, %d threads", path->name, threads);
            mmi_exec x = exec_create(path, threads, plan->scratch);
            plan->work(plan->what, &x);
            exec_free(&x);
            (threads == 1 ? plan->check : plan->same)(plan->what, label);
        }
}

#endif
