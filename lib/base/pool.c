#define _POSIX_C_SOURCE 200809L /* getpid */

#include "base/pool.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <unistd.h>

#include "base/files.h"
#include "base/memory.h"
#include "base/pause.h"
#include "base/processor.h"
#include "base/thread.h"

/* How long a thread that has nothing to do looks around before it sleeps: a few times what waking it costs, and as long
 * as the caller's own work between two jobs takes. No longer, or a third program on the machine would wait for a thread
 * that does nothing. In seconds, for a pause instruction takes from 10 to 140 cycles. */
#define SPIN_SECONDS 20e-6
#define SPIN_SECONDS_IN_PASS 200e-6 /* where more jobs are sure to come, after what the caller does alone */
#define PAUSES_PER_LOOK_AT_THE_CLOCK 32

/* Where other threads want the same processors, one that never sleeps spends what time it is given on looking around,
 * too, and must then wait for the end of the others' turn, milliseconds, where the caller has something for it to do.
 * One that has slept is woken into a turn of its own. So for CROWDED_SECONDS once a worker was awake but had no
 * processor for CROWD_SECONDS of CROWD_WINDOW, all of them sleep whenever they have nothing to do and have been awake
 * for longer than NAP_EVERY_SECONDS: not each time, for waking takes its time, too. What takes processors away now and
 * then, as the host of a virtual machine does, is no crowd. */
#define CROWD_SECONDS 5e-3
#define CROWD_WINDOW 50e-3
#define CROWDED_SECONDS 0.5
#define NAP_EVERY_SECONDS 200e-6
#define WATCH_SECONDS 500e-6 /* from one look at what was spent on a thread to the next: each is a system call */

/* The ticket is the job's number in the upper half and its next piece in the lower. One compare-and-swap both claims a
 * piece and proves that the job is still the one whose fields were read: what overwrites them is the next job but one,
 * after the next one's number has been in the ticket. */
#define PIECE_BITS 32
#define PIECE_MASK (((uint64_t)1 << PIECE_BITS) - 1)

typedef struct pool_job {
    _Atomic(mmi_piece_fn) fn;
    _Atomic(void *) arg;
    _Atomic(uint32_t) pieces;
    _Atomic(uint32_t) run; /* so many neighbours are a thread's own; 0: all come from the one ticket */
} pool_job;

/* A ticket of a run's own, mostly asked for by one thread, in whose cache it then stays. With an older job's number
 * nobody has begun with the run; when a job is done, each of its runs has its number and no piece left, so that whoever
 * comes late can't claim. */
typedef struct pool_run {
    _Alignas(64) atomic_uint_fast64_t ticket;
} pool_run;

/* Who falls asleep says so and then looks for what would have woken it; who wakes others does its part and then looks
 * for sleepers: one of them must see the other. Sequentially consistent stores and loads promise that, but an emulated
 * Arm breaks it (QEMU 7.2 on x86: the load overtakes the store), so what is said is exchanged or added.
 *
 * What a job needs lies in one cache line, and what comes back in another: each way from core to core takes as long as
 * some kilobytes from memory. */
struct mmi_pool {
    _Alignas(64) atomic_uint_fast64_t ticket;
    pool_job jobs[2];                       /* by the job's number */
    atomic_int caller_is_on;                /* the processor; of the last job */
    _Alignas(64) atomic_uint_fast64_t done; /* pieces by other threads than the caller's, of all jobs so far */
    _Alignas(64) atomic_int sleepers;
    _Atomic(double) crowded_until; /* seconds */
    atomic_int caller_sleeps;
    atomic_bool quit;
    atomic_int passes;              /* that the caller is in */
    atomic_bool passes_come_soon;   /* the last one did, as where a host draws tokens itself: likely to be so again */
    _Alignas(64) uint64_t expected; /* what `done` comes to with the last job; the caller's alone */
    double left_pass;               /* when it left the last pass; and these */
    bool alone;                     /* others are not asked */
    int threads;
    int started;
    mmi_parallel_for_fn host; /* NULL: threads of its own */
    void *user;
    atomic_int numbered; /* workers that have begun */
    pthread_mutex_t lock;
    pthread_cond_t wake;
    pthread_cond_t finished;
    pthread_t *handles; /* [threads - 1], behind the runs */
    pid_t process;      /* whose threads they are */
    pool_run runs[];    /* [threads] */
};

/* A job's fields, as one finds them; what is claimed with its number proves them right. */
typedef struct found_job {
    mmi_piece_fn fn;
    void *arg;
    int64_t pieces, run;
} found_job;

static found_job find_job(mmi_pool *pool, uint64_t number)
{
    pool_job *j = &pool->jobs[number % 2];
    return (found_job){ .fn = atomic_load_explicit(&j->fn, memory_order_acquire),
                        .arg = atomic_load_explicit(&j->arg, memory_order_acquire),
                        .pieces = atomic_load_explicit(&j->pieces, memory_order_acquire),
                        .run = atomic_load_explicit(&j->run, memory_order_acquire) };
}

/* So many pieces were done by another thread than the caller's, who knows what it has done. */
static void report(mmi_pool *pool, int64_t count)
{
    atomic_fetch_add(&pool->done, (uint64_t)count);
    if (atomic_load(&pool->caller_sleeps)) {
        pthread_mutex_lock(&pool->lock);
        pthread_cond_signal(&pool->finished);
        pthread_mutex_unlock(&pool->lock);
    }
}

/* Claim pieces of job `number` and do them until it has none left; how many that were. Each is reported at once: to
 * see that none is left takes as long as that the caller hears of it. */
static int64_t work_in_order(mmi_pool *pool, uint64_t number, int worker)
{
    for (int64_t count = 0;;) {
        uint64_t ticket = atomic_load(&pool->ticket);
        found_job j = find_job(pool, number);
        int64_t piece = (int64_t)(ticket & PIECE_MASK);
        if (ticket >> PIECE_BITS != number || piece >= j.pieces)
            return count;
        if (!atomic_compare_exchange_weak(&pool->ticket, &ticket, ticket + 1))
            continue;
        j.fn(j.arg, piece, worker);
        count++;
        if (worker != 0)
            report(pool, 1);
    }
}

/* The same for those of run `index`, which are reported together. That the job is still this one is looked at last: the
 * fields are then its own, and what else was read of it is proved by the claim. */
static int64_t work_on_run(mmi_pool *pool, uint64_t number, int64_t index, int worker)
{
    atomic_uint_fast64_t *own = &pool->runs[index].ticket;
    int64_t count = 0;
    for (;;) {
        uint64_t ticket = atomic_load(own);
        found_job j = find_job(pool, number);
        if (atomic_load(&pool->ticket) >> PIECE_BITS != number)
            break;
        int64_t nth = ticket >> PIECE_BITS == number ? (int64_t)(ticket & PIECE_MASK) : 0, piece = index * j.run + nth;
        if (nth >= j.run || piece >= j.pieces)
            break;
        if (!atomic_compare_exchange_weak(own, &ticket, number << PIECE_BITS | (uint64_t)(nth + 1)))
            continue;
        j.fn(j.arg, piece, worker);
        count++;
    }
    if (worker != 0 && count > 0)
        report(pool, count);
    return count;
}

/* All pieces there are for a worker: its own run first, then what is left of the others'. */
static void work(mmi_pool *pool, uint64_t number, int worker)
{
    if (find_job(pool, number).run == 0)
        work_in_order(pool, number, worker);
    else
        for (int i = 0; i < pool->threads; i++)
            work_on_run(pool, number, (worker + i) % pool->threads, worker);
}

/* What a worker that is awake knows of its processor. */
typedef struct watch {
    double woken;               /* seconds, as all here */
    double since, spent;        /* this look's beginning; what had been spent on the thread by then */
    double held_from, held_for; /* since then it was awake without a processor for so long */
} watch;

static void start_watch(watch *w, double now)
{
    w->since = now;
    w->spent = mmi_spent_on_thread();
}

/* So far it has been awake. Where it waited for the disk, it had no processor, either. */
static void stop_watch(mmi_pool *pool, watch *w, double now)
{
    const double held_up = now - w->since - (mmi_spent_on_thread() - w->spent);
    if (now - w->held_from > CROWD_WINDOW) {
        w->held_from = w->since;
        w->held_for = 0;
    }
    w->held_for += held_up;
    const double windows = (now - w->held_from) / CROWD_WINDOW; /* more than one where jobs are long */
    if (w->held_for > CROWD_SECONDS * (windows > 1 ? windows : 1))
        atomic_store_explicit(&pool->crowded_until, now + CROWDED_SECONDS, memory_order_relaxed);
}

/* The time. A worker that has been awake, but had no processor for a while, says so. */
static double look_at_the_clock(mmi_pool *pool, watch *w)
{
    const double now = mmi_now();
    if (now - w->since > WATCH_SECONDS) {
        stop_watch(pool, w, now);
        start_watch(w, now);
    }
    return now;
}

static int caller_processor(const mmi_pool *pool)
{
    return atomic_load_explicit(&pool->caller_is_on, memory_order_relaxed);
}

static bool is_crowded(const mmi_pool *pool, double now)
{
    return now < atomic_load_explicit(&pool->crowded_until, memory_order_relaxed);
}

/* To look around on the caller's own processor would keep it from making what one looks for. */
static bool should_sleep(const mmi_pool *pool, const watch *w, double now)
{
    const int processor = mmi_processor();
    if (processor >= 0 && processor == caller_processor(pool))
        return true;
    return is_crowded(pool, now) && now - w->woken > NAP_EVERY_SECONDS;
}

bool mmi_pool_is_crowded(const mmi_pool *pool)
{
    return is_crowded(pool, mmi_now());
}

double mmi_pool_time_awake(const mmi_pool *pool)
{
    const bool more = atomic_load_explicit(&pool->passes, memory_order_relaxed) > 0 ||
                      atomic_load_explicit(&pool->passes_come_soon, memory_order_relaxed);
    return more ? SPIN_SECONDS_IN_PASS : SPIN_SECONDS;
}

static uint64_t job_of(mmi_pool *pool)
{
    return atomic_load(&pool->ticket) >> PIECE_BITS;
}

/* Asleep until there is another job than `job`, or the pool ends. */
typedef struct sleeper {
    mmi_pool *pool;
    uint64_t job;
} sleeper;

static void sleep_until_job(void *arg)
{
    sleeper *s = arg;
    mmi_pool *pool = s->pool;
    const uint64_t seen = s->job;
    pthread_mutex_lock(&pool->lock);
    atomic_fetch_add(&pool->sleepers, 1);
    while ((s->job = job_of(pool)) == seen && !atomic_load(&pool->quit))
        pthread_cond_wait(&pool->wake, &pool->lock);
    atomic_fetch_sub(&pool->sleepers, 1);
    pthread_mutex_unlock(&pool->lock);
}

/* Wait until there is a job after `seen`; its number, or `seen` when the pool ends.
 *
 * A virtual machine's processor that has nothing to do looks to Linux as if its host had lent it to others, so who
 * sleeps is woken where its waker is, and the two take turns there for many milliseconds. So a worker does not sleep
 * where its caller is, and leaves when it wakes beside it nevertheless. */
static uint64_t wait_for_job(mmi_pool *pool, uint64_t seen, watch *w)
{
    uint64_t job = job_of(pool);
    double now = look_at_the_clock(pool, w);
    for (const double from = now; job == seen && now < from + mmi_pool_time_awake(pool) && !should_sleep(pool, w, now);
         now = look_at_the_clock(pool, w))
        for (int i = 0; i < PAUSES_PER_LOOK_AT_THE_CLOCK && job == seen; i++) {
            if (atomic_load_explicit(&pool->quit, memory_order_relaxed))
                return seen;
            mmi_pause();
            job = job_of(pool);
        }
    if (job != seen)
        return job;
    stop_watch(pool, w, now);
    sleeper s = { pool, seen };
    mmi_sleep_elsewhere(caller_processor(pool), sleep_until_job, &s);
    mmi_leave_processor(caller_processor(pool));
    w->woken = mmi_now(); /* or found a job first: to try again at once would cost more than a nap gives */
    start_watch(w, w->woken);
    return s.job;
}

static void *run_worker(void *arg)
{
    mmi_pool *pool = arg;
    int worker = 1 + atomic_fetch_add(&pool->numbered, 1); /* 0 is the caller; nobody waits for a thread to begin */
    uint64_t seen = 0;
    watch w = { .woken = mmi_now() };
    start_watch(&w, w.woken);
    while (!atomic_load(&pool->quit)) {
        uint64_t job = wait_for_job(pool, seen, &w);
        if (job != seen)
            work(pool, job, worker);
        seen = job;
    }
    return NULL;
}

/* Wait until they have done all that is expected of them. */
static void wait_for_others(mmi_pool *pool)
{
    if (atomic_load(&pool->done) == pool->expected)
        return;
    for (const double end = mmi_now() + SPIN_SECONDS; mmi_now() < end;)
        for (int i = 0; i < PAUSES_PER_LOOK_AT_THE_CLOCK; i++) {
            if (atomic_load(&pool->done) == pool->expected)
                return;
            mmi_pause();
        }
    pthread_mutex_lock(&pool->lock);
    atomic_exchange(&pool->caller_sleeps, 1); /* no store, as above */
    while (atomic_load(&pool->done) != pool->expected)
        pthread_cond_wait(&pool->finished, &pool->lock);
    atomic_store(&pool->caller_sleeps, 0);
    pthread_mutex_unlock(&pool->lock);
}

size_t mmi_pool_bytes(int threads)
{
    return sizeof(mmi_pool) + (size_t)threads * sizeof(pool_run) + (size_t)(threads - 1) * sizeof(pthread_t);
}

mm_status mmi_pool_create_on(mmi_parallel_for_fn host, void *user, int threads, mmi_pool **out)
{
    mmi_pool *pool = mmi_calloc(1, mmi_pool_bytes(threads));
    if (!pool)
        return mmi_fail_memory(mmi_pool_bytes(threads), "the thread pool");
    pool->threads = threads;
    pool->handles = (pthread_t *)(void *)&pool->runs[threads];
    pool->process = getpid();
    pool->host = host;
    pool->user = user;
    atomic_store(&pool->caller_is_on, mmi_processor());
    pthread_mutex_init(&pool->lock, NULL);
    pthread_cond_init(&pool->wake, NULL);
    pthread_cond_init(&pool->finished, NULL);
    *out = pool;
    return MM_OK;
}

mm_status mmi_pool_create(int threads, mmi_pool **out)
{
    mmi_pool *pool = NULL;
    mm_status status = mmi_pool_create_on(NULL, NULL, threads, &pool);
    if (status != MM_OK)
        return status;
    int error = 0;
    for (int i = 1; i < threads && error == 0; i++) {
        error = mmi_thread_create(&pool->handles[i - 1], run_worker, pool);
        if (error == 0)
            pool->started++;
    }
    if (error != 0) {
        mmi_pool_free(pool);
        return mmi_fail(MM_ERR_MEMORY, "can't start %d threads", threads - 1);
    }
    *out = pool;
    return MM_OK;
}

void mmi_pool_free(mmi_pool *pool)
{
    if (!pool)
        return;
    if (pool->process == getpid()) { /* else see lose_threads() */
        pthread_mutex_lock(&pool->lock);
        atomic_store(&pool->quit, true);
        pthread_cond_broadcast(&pool->wake);
        pthread_mutex_unlock(&pool->lock);
        for (int i = 0; i < pool->started; i++)
            pthread_join(pool->handles[i], NULL);
        pthread_cond_destroy(&pool->finished);
        pthread_cond_destroy(&pool->wake);
        pthread_mutex_destroy(&pool->lock);
    }
    mmi_free(pool);
}

int mmi_pool_threads(const mmi_pool *pool)
{
    return pool->threads;
}

int mmi_pool_own_threads(const mmi_pool *pool)
{
    return pool->host || pool->alone ? 1 : pool->threads;
}

void mmi_pool_stay_alone(mmi_pool *pool, bool alone)
{
    pool->alone = alone;
}

void mmi_pool_enter_pass(mmi_pool *pool)
{
    if (atomic_fetch_add_explicit(&pool->passes, 1, memory_order_relaxed) == 0)
        atomic_store_explicit(&pool->passes_come_soon, mmi_now() - pool->left_pass < SPIN_SECONDS_IN_PASS,
                              memory_order_relaxed);
}

void mmi_pool_leave_pass(mmi_pool *pool)
{
    pool->left_pass = mmi_now();
    atomic_fetch_sub_explicit(&pool->passes, 1, memory_order_relaxed);
}

/* A forked child has none of its parent's threads. Those asleep may have been holding on to what they slept on. */
static void lose_threads(mmi_pool *pool)
{
    pool->process = getpid();
    pool->started = 0;
    atomic_store(&pool->sleepers, 0);
    pthread_mutex_init(&pool->lock, NULL);
    pthread_cond_init(&pool->wake, NULL);
    pthread_cond_init(&pool->finished, NULL);
}

static void wake_sleepers(mmi_pool *pool)
{
    if (pool->process != getpid()) {
        lose_threads(pool);
        return;
    }
    pthread_mutex_lock(&pool->lock);
    pthread_cond_broadcast(&pool->wake);
    pthread_mutex_unlock(&pool->lock);
}

/* Let the others know of a job, in runs of `run` pieces; its number. */
static uint64_t post(mmi_pool *pool, int64_t pieces, int64_t run, mmi_piece_fn fn, void *arg)
{
    uint64_t number = ((atomic_load_explicit(&pool->ticket, memory_order_relaxed) >> PIECE_BITS) + 1) & PIECE_MASK;
    for (int i = 0; i < pool->threads && number == 0; i++) /* what numbers mean begins anew */
        atomic_store(&pool->runs[i].ticket, 0);
    pool_job *j = &pool->jobs[number % 2];
    atomic_store_explicit(&j->fn, fn, memory_order_release);
    atomic_store_explicit(&j->arg, arg, memory_order_release);
    atomic_store_explicit(&j->pieces, (uint32_t)pieces, memory_order_release);
    atomic_store_explicit(&j->run, (uint32_t)run, memory_order_release);
    atomic_store_explicit(&pool->caller_is_on, mmi_processor(), memory_order_relaxed);
    atomic_exchange(&pool->ticket, number << PIECE_BITS | 1); /* the caller has the first piece; no store, as above */
    if (atomic_load(&pool->sleepers) > 0)
        wake_sleepers(pool);
    return number;
}

/* What needs no other threads, or has those of a host. */
static bool run_elsewhere(mmi_pool *pool, int64_t pieces, mmi_piece_fn fn, void *arg)
{
    if (pool->threads == 1 || pieces <= 1 || pool->alone)
        for (int64_t i = 0; i < pieces; i++)
            fn(arg, i, 0);
    else if (pool->host)
        pool->host(pool->user, pieces, fn, arg);
    else
        return false;
    return true;
}

void mmi_pool_run(mmi_pool *pool, int64_t pieces, mmi_piece_fn fn, void *arg)
{
    if (run_elsewhere(pool, pieces, fn, arg))
        return;
    uint64_t number = post(pool, pieces, 0, fn, arg);
    fn(arg, 0, 0);
    int64_t own = 1 + work_in_order(pool, number, 0);
    pool->expected += (uint64_t)(pieces - own);
    wait_for_others(pool);
}

int64_t mmi_pool_run_length(const mmi_pool *pool, int64_t pieces)
{
    return (pieces + pool->threads - 1) / pool->threads;
}

void mmi_pool_run_neighbours(mmi_pool *pool, int64_t pieces, mmi_piece_fn fn, void *arg)
{
    if (run_elsewhere(pool, pieces, fn, arg))
        return;
    int64_t run = mmi_pool_run_length(pool, pieces);
    uint64_t number = post(pool, pieces, run, fn, arg);
    int64_t own = work_on_run(pool, number, 0, 0);
    for (int i = 1; i < pool->threads && atomic_load(&pool->done) != pool->expected + (uint64_t)(pieces - own); i++)
        own += work_on_run(pool, number, i, 0);
    pool->expected += (uint64_t)(pieces - own);
    wait_for_others(pool);
}
