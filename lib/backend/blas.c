#define _POSIX_C_SOURCE 200809L /* getpid */

#include "backend/blas.h"

#include <limits.h>

#include "backend/exec.h"

#if MM_HAVE_OPENBLAS
#include <cblas.h>
#include <sched.h>
#include <stdatomic.h>
#include <unistd.h>

/* Who holds OpenBLAS at one thread, and what the host had set. The guard is held for a few instructions only, by a
 * process, 0 being none: a forked child takes it over from a thread that it has not. */
static atomic_int guard;
static int process; /* whose holders they are */
static int holders;
static int host_threads;

static void lock(void)
{
    const int own = (int)getpid();
    for (int held = 0;
         !atomic_compare_exchange_weak_explicit(&guard, &held, own, memory_order_acquire, memory_order_relaxed);)
        if (held == own) {
            sched_yield();
            held = 0;
        }
}

static void unlock(void)
{
    atomic_store_explicit(&guard, 0, memory_order_release);
}

/* The threads that held it stayed with the parent. Wherever one stood when it was left behind: as long as somebody
 * holds OpenBLAS, the host's number is known. */
static void forget_parents_holders(void)
{
    const int own = (int)getpid();
    if (process != own && holders > 0) {
        holders = 0;
        openblas_set_num_threads(host_threads);
    }
    process = own;
}

void mmi_blas_enter(void)
{
    lock();
    forget_parents_holders();
    if (holders == 0)
        host_threads = openblas_get_num_threads();
    if (holders++ == 0 && host_threads != 1)
        openblas_set_num_threads(1);
    unlock();
}

/* A child that was forked within a call comes out of it, too, but may have forgotten that it was in one. */
void mmi_blas_leave(void)
{
    lock();
    if (holders == 1 && host_threads != 1)
        openblas_set_num_threads(host_threads);
    holders -= holders > 0;
    unlock();
}

static bool fits(int64_t size)
{
    return size <= INT_MAX;
}

/* OpenBLAS refuses, and prints, a row distance below the row's length, even where there is but one row. */
static blasint distance(int64_t ld, int64_t length)
{
    return (blasint)(ld > length ? ld : length);
}

bool mmi_blas_takes(int64_t M, int64_t N, int64_t K, int64_t lda, int64_t ldb, int64_t ldc)
{
    return fits(M) && fits(N) && fits(K) && fits(lda) && fits(ldb) && fits(ldc);
}

void mmi_blas_product(float *c, int64_t ldc, bool ta, bool tb, const float *a, int64_t lda, const float *b, int64_t ldb,
                      int64_t M, int64_t N, int64_t K, bool accumulate)
{
    cblas_sgemm(CblasRowMajor, ta ? CblasTrans : CblasNoTrans, tb ? CblasTrans : CblasNoTrans, (blasint)M, (blasint)N,
                (blasint)K, 1.0f, a, distance(lda, ta ? M : K), b, distance(ldb, tb ? K : N), accumulate ? 1.0f : 0.0f,
                c, distance(ldc, N));
}

const char *mmi_blas_core(void)
{
    return openblas_get_corename();
}
#else
void mmi_blas_enter(void)
{
}

void mmi_blas_leave(void)
{
}

bool mmi_blas_takes(int64_t M, int64_t N, int64_t K, int64_t lda, int64_t ldb, int64_t ldc)
{
    (void)M, (void)N, (void)K, (void)lda, (void)ldb, (void)ldc;
    return false;
}

void mmi_blas_product(float *c, int64_t ldc, bool ta, bool tb, const float *a, int64_t lda, const float *b, int64_t ldb,
                      int64_t M, int64_t N, int64_t K, bool accumulate)
{
    (void)c, (void)ldc, (void)ta, (void)tb, (void)a, (void)lda, (void)b, (void)ldb;
    (void)M, (void)N, (void)K, (void)accumulate;
}

const char *mmi_blas_core(void)
{
    return NULL;
}
#endif
