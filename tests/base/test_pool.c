/* The pool: every piece exactly once, on a worker that exists, with whatever came before seen by all. */
#define _GNU_SOURCE /* nanosleep, pthread_setattr_default_np */
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/files.h"
#include "base/memory.h"
#include "base/pool.h"
#include "base/processor.h"
#include "base/thread.h"
#include "support.h"

#define MOST_PIECES 1000
#define MOST_THREADS 8

typedef struct job {
    atomic_int times[MOST_PIECES]; /* each piece was done */
    atomic_int wrong_worker;
    int threads;
    int64_t sum[MOST_THREADS][16]; /* plain, on a cache line each: only its worker may touch it */
} job;

static void count_piece(void *arg, int64_t piece, int worker)
{
    job *j = arg;
    atomic_fetch_add(&j->times[piece], 1);
    if (worker < 0 || worker >= j->threads)
        atomic_fetch_add(&j->wrong_worker, 1);
    else
        j->sum[worker][0] += piece;
}

typedef void (*run_fn)(mmi_pool *pool, int64_t pieces, mmi_piece_fn fn, void *arg);

static void run_by_and_check(run_fn run, mmi_pool *pool, job *j, int64_t pieces)
{
    memset(j, 0, sizeof *j);
    j->threads = mmi_pool_threads(pool);
    run(pool, pieces, count_piece, j);
    int64_t sum = 0;
    for (int i = 0; i < j->threads; i++)
        sum += j->sum[i][0];
    for (int64_t i = 0; i < MOST_PIECES; i++)
        if (atomic_load(&j->times[i]) != (i < pieces))
            ck_abort_msg("piece %d of %d was done %d times", (int)i, (int)pieces, atomic_load(&j->times[i]));
    if (atomic_load(&j->wrong_worker) != 0 || sum != pieces * (pieces - 1) / 2)
        ck_abort_msg("%d threads, %d pieces: the sum is %d", j->threads, (int)pieces, (int)sum);
}

/* Both ways of dealing pieces out, one behind the other: each finds what the other left. */
static void run_and_check(mmi_pool *pool, job *j, int64_t pieces)
{
    run_by_and_check(mmi_pool_run, pool, j, pieces);
    run_by_and_check(mmi_pool_run_neighbours, pool, j, pieces);
}

START_TEST(every_piece_is_done_exactly_once)
{
    static job j;
    for (int threads = 1; threads <= MOST_THREADS; threads++) {
        mmi_pool *pool;
        ck_ok(mmi_pool_create(threads, &pool));
        ck_assert_int_eq(mmi_pool_threads(pool), threads);
        for (int64_t pieces = 0; pieces <= 40; pieces++)
            run_and_check(pool, &j, pieces);
        run_and_check(pool, &j, MOST_PIECES);
        mmi_pool_free(pool);
    }
}
END_TEST

START_TEST(many_small_jobs_follow_each_other)
{
    static job j;
    for (int threads = 2; threads <= MOST_THREADS; threads += 3) {
        mmi_pool *pool;
        ck_ok(mmi_pool_create(threads, &pool));
        for (int round = 0; round < 1500; round++)
            run_and_check(pool, &j, round % 7);
        mmi_pool_free(pool);
    }
}
END_TEST

/* piece i of a round reads what any worker wrote in the round before */
typedef struct relay {
    int64_t now[64], before[64];
} relay;

static void pass_on(void *arg, int64_t piece, int worker)
{
    relay *r = arg;
    (void)worker;
    r->now[piece] = r->before[(piece + 1) % 64] + 1;
}

START_TEST(what_one_job_wrote_the_next_one_sees)
{
    mmi_pool *pool;
    relay r;
    memset(&r, 0, sizeof r);
    ck_ok(mmi_pool_create(4, &pool));
    for (int round = 0; round < 2000; round++) {
        mmi_pool_run(pool, 64, pass_on, &r);
        memcpy(r.before, r.now, sizeof r.now);
    }
    mmi_pool_free(pool);
    for (int i = 0; i < 64; i++)
        ck_assert_int_eq(r.now[i], 2000);
}
END_TEST

static void note_order(void *arg, int64_t piece, int worker)
{
    int64_t *next = arg;
    (void)worker;
    if (*next != piece)
        ck_abort_msg("piece %d came when %d was due", (int)piece, (int)*next);
    ++*next;
}

START_TEST(one_thread_does_the_pieces_in_order)
{
    mmi_pool *pool;
    int64_t next = 0;
    ck_ok(mmi_pool_create(1, &pool));
    mmi_pool_run(pool, 100, note_order, &next);
    ck_assert_int_eq(next, 100);
    mmi_pool_free(pool);
}
END_TEST

/* Each thread waits in its first piece until all are in one. */
typedef struct meeting {
    atomic_int there;
    int64_t first[MOST_THREADS][16]; /* by worker, on a cache line each */
} meeting;

static void meet(void *arg, int64_t piece, int worker)
{
    meeting *m = arg;
    if (m->first[worker][0] < 0)
        m->first[worker][0] = piece;
    for (atomic_fetch_add(&m->there, 1); atomic_load(&m->there) < MOST_THREADS;) {}
}

static void expect_caller(void *arg, int64_t piece, int worker)
{
    int64_t *next = arg;
    ck_assert_int_eq(worker, 0);
    ck_assert_int_eq(piece, (*next)++);
}

START_TEST(a_caller_that_stays_alone_does_all_pieces)
{
    static job j;
    mmi_pool *pool;
    ck_ok(mmi_pool_create(3, &pool));
    for (int i = 0; i < 100; i++) {
        int64_t next = 0;
        mmi_pool_stay_alone(pool, true);
        ck_assert_int_eq(mmi_pool_own_threads(pool), 1);
        ck_assert_int_eq(mmi_pool_threads(pool), 3); /* what is cut by it stays so */
        mmi_pool_run(pool, 20, expect_caller, &next);
        ck_assert_int_eq(next, 20);
        next = 0;
        mmi_pool_run_neighbours(pool, 20, expect_caller, &next);
        ck_assert_int_eq(next, 20);
        mmi_pool_stay_alone(pool, false);
        ck_assert_int_eq(mmi_pool_own_threads(pool), 3);
        run_and_check(pool, &j, 40);
    }
    mmi_pool_free(pool);
}
END_TEST

START_TEST(each_thread_begins_with_a_run_of_its_own)
{
    static meeting m;
    for (int round = 0; round < 20; round++) {
        mmi_pool *pool;
        ck_ok(mmi_pool_create(MOST_THREADS, &pool));
        atomic_store(&m.there, 0);
        for (int i = 0; i < MOST_THREADS; i++)
            m.first[i][0] = -1;
        mmi_pool_run_neighbours(pool, 4 * MOST_THREADS - 3, meet, &m);
        for (int i = 0; i < MOST_THREADS; i++)
            ck_assert_int_eq(m.first[i][0], 4 * i);
        mmi_pool_free(pool);
    }
}
END_TEST

static void halt(void *arg, int64_t piece, int worker)
{
    atomic_int *done = arg;
    (void)worker;
    if (piece > 0) {
        atomic_fetch_add(done, 1);
        return;
    }
    while (atomic_load(done) < 30) {} /* the others have done everything else, of this run, too */
}

START_TEST(a_thread_that_is_held_up_is_helped)
{
    mmi_pool *pool;
    ck_ok(mmi_pool_create(3, &pool));
    for (int round = 0; round < 50; round++) {
        atomic_int done;
        atomic_init(&done, 0);
        mmi_pool_run_neighbours(pool, 31, halt, &done);
        ck_assert_int_eq(atomic_load(&done), 30);
    }
    mmi_pool_free(pool);
}
END_TEST

#ifdef CLOCK_THREAD_CPUTIME_ID
/* Two pieces, of which a worker has the second: the caller's does not end before it has come. */
typedef enum conduct { LEAVES, SLEEPS, WORKS } conduct; /* asleep in a piece is awake without a processor to its pool */
typedef struct visit {
    conduct what;
    atomic_bool came;
    double held_up; /* meanwhile */
} visit;

static void pass_time(void *arg, int64_t piece, int worker)
{
    visit *v = arg;
    (void)piece;
    if (worker == 0) {
        while (!atomic_load(&v->came))
            sched_yield();
        return;
    }
    atomic_store(&v->came, true);
    const double from = mmi_now(), spent = mmi_spent_on_thread();
    if (v->what == SLEEPS)
        nanosleep(&(struct timespec){ .tv_nsec = 10000000 }, NULL);
    while (v->what == WORKS && mmi_now() < from + 12e-3) {}
    v->held_up = mmi_now() - from - (mmi_spent_on_thread() - spent);
}

static double held_up_in(mmi_pool *pool, visit v)
{
    mmi_pool_run_neighbours(pool, 2, pass_time, &v);
    return v.held_up;
}

/* Each loop ends as soon as it sees what must come; else the test's time does. */
START_TEST(it_is_crowded_for_a_while_once_a_worker_had_no_processor)
{
    mmi_pool *pool;
    ck_ok(mmi_pool_create(2, &pool));
    for (int round = 0; round < 2; round++) {
        while (!mmi_pool_is_crowded(pool))
            held_up_in(pool, (visit){ .what = SLEEPS });
        held_up_in(pool, (visit){ .what = LEAVES }); /* the worker comes all the same */
        while (mmi_pool_is_crowded(pool))
            nanosleep(&(struct timespec){ .tv_nsec = 20000000 }, NULL);
    }
    mmi_pool_free(pool);
}
END_TEST

/* A piece that takes long, and a worker that waits for long, are no crowd: the worker has looked at both when it comes
 * the third time. Rounds do not count in which the machine was one, and there may be no others. */
START_TEST(it_is_not_crowded_where_workers_work_or_sleep)
{
    int counted = 0, crowded = 0;
    for (int round = 0; round < 10; round++) {
        mmi_pool *pool;
        ck_ok(mmi_pool_create(2, &pool));
        const double held_up = held_up_in(pool, (visit){ .what = WORKS });
        for (int i = 0; i < 2; i++) {
            nanosleep(&(struct timespec){ .tv_nsec = 12000000 }, NULL);
            held_up_in(pool, (visit){ .what = LEAVES });
        }
        counted += held_up < 1e-3;
        crowded += held_up < 1e-3 && mmi_pool_is_crowded(pool);
        mmi_pool_free(pool);
    }
    ck_assert_msg(counted == 0 || crowded < counted, "%d of %d pools are crowded", crowded, counted);
}
END_TEST
#endif

/* The loop ends as soon as two calls follow each other at once. */
START_TEST(workers_stay_awake_in_a_pass_and_after_one_that_came_soon)
{
    mmi_pool *pool;
    ck_ok(mmi_pool_create(2, &pool));
    const double outside = mmi_pool_time_awake(pool);
    do {
        nanosleep(&(struct timespec){ .tv_nsec = 2000000 }, NULL);
        mmi_pool_enter_pass(pool);
        ck_assert(mmi_pool_time_awake(pool) > outside);
        mmi_pool_leave_pass(pool);
        ck_assert(mmi_pool_time_awake(pool) == outside); /* nobody knows */
        mmi_pool_enter_pass(pool);
        mmi_pool_leave_pass(pool);
    } while (mmi_pool_time_awake(pool) == outside);
    mmi_pool_free(pool);
}
END_TEST

/* Until when others than the caller are busy. */
static void be_busy(void *until, int64_t piece, int worker)
{
    (void)piece;
    while (worker != 0 && mmi_now() < *(const double *)until) {}
}

/* Callers look around for 20 us before they sleep: a worker whose piece ends just then must not miss it. The test hangs
 * where one does. */
START_TEST(a_caller_that_falls_asleep_as_the_last_piece_ends_is_woken)
{
    test_rng rng = { 5 };
    for (int threads = 2; threads <= 3; threads++) {
        mmi_pool *pool;
        ck_ok(mmi_pool_create(threads, &pool));
        for (int round = 0; round < 20000; round++) {
            double until = mmi_now() + 19e-6 + rng_uniform(&rng) * 8e-6;
            mmi_pool_run_neighbours(pool, threads, be_busy, &until);
        }
        mmi_pool_free(pool);
    }
}
END_TEST

/* Where both were when they began with a piece. The caller does not go on to the second before the other has begun. */
typedef struct places {
    atomic_int caller, other;
} places;

static void note_place(void *arg, int64_t piece, int worker)
{
    places *p = arg;
    (void)piece;
    if (worker != 0) {
        atomic_store(&p->other, mmi_processor());
        return;
    }
    atomic_store(&p->caller, mmi_processor());
    for (const double end = mmi_now() + 0.05; atomic_load(&p->other) < 0 && mmi_now() < end;)
        sched_yield();
}

/* What else the machine does may bring them together, so some rounds don't count. */
START_TEST(a_worker_that_slept_does_not_stay_where_its_caller_is)
{
    enum { ROUNDS = 20 };
    if (mmi_processor_count() < 2 || mmi_processor() < 0)
        return; /* nowhere to go, or nobody knows */
    mmi_pool *pool;
    ck_ok(mmi_pool_create(2, &pool));
    int apart = 0;
    for (int round = 0; round < ROUNDS; round++) {
        places p = { -1, -1 };
        nanosleep(&(struct timespec){ .tv_nsec = 20000000 }, NULL);
        mmi_pool_run(pool, 2, note_place, &p);
        apart += p.other >= 0 && p.other != p.caller;
    }
    mmi_pool_free(pool);
    ck_assert_int_ge(apart, ROUNDS / 2);
}
END_TEST

enum { ALL = 3 };

static void wait_for_all(void *there, int64_t piece, int worker)
{
    (void)piece, (void)worker;
    for (atomic_fetch_add((atomic_int *)there, 1); atomic_load((atomic_int *)there) < ALL;)
        sched_yield();
}

/* Workers look around for 20 us before they sleep, and for 200 in a pass: one that falls asleep as a job comes must not
 * miss it. The test hangs where one does. */
START_TEST(a_worker_that_falls_asleep_as_a_job_comes_is_woken)
{
    test_rng rng = { 6 };
    mmi_pool *pool;
    ck_ok(mmi_pool_create(ALL, &pool));
    for (int passes = 0; passes < 3; passes++) {
        const double about = passes > 0 ? 200e-6 : 20e-6;
        for (int round = 0; round < 2000; round++) {
            atomic_int there = 0;
            for (const double end = mmi_now() + about * (0.95 + 0.2 * rng_uniform(&rng)); mmi_now() < end;) {}
            mmi_pool_run(pool, ALL, wait_for_all, &there);
        }
        mmi_pool_enter_pass(pool);
    }
    for (int passes = 0; passes < 3; passes++)
        mmi_pool_leave_pass(pool);
    mmi_pool_free(pool);
}
END_TEST

START_TEST(a_pool_that_never_ran_can_be_freed)
{
    for (int round = 0; round < 50; round++) {
        mmi_pool *pool;
        ck_ok(mmi_pool_create(1 + round % 5, &pool));
        mmi_pool_free(pool);
    }
    mmi_pool_free(NULL);
}
END_TEST

static void *use_own_pool(void *arg)
{
    job *j = arg;
    mmi_pool *pool;
    if (mmi_pool_create(3, &pool) != MM_OK)
        return NULL;
    for (int round = 0; round < 200; round++)
        run_and_check(pool, j, 50);
    mmi_pool_free(pool);
    return j;
}

START_TEST(pools_of_several_threads_run_side_by_side)
{
    static job jobs[3];
    pthread_t threads[3];
    for (int i = 0; i < 3; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, use_own_pool, &jobs[i]), 0);
    for (int i = 0; i < 3; i++) {
        void *result = NULL;
        ck_assert_int_eq(pthread_join(threads[i], &result), 0);
        ck_assert_ptr_eq(result, &jobs[i]);
    }
}
END_TEST

START_TEST(a_pool_without_memory_is_an_error)
{
    mmi_pool *pool = NULL;
    mmi_memory_fail_at(1, false);
    ck_status(mmi_pool_create(4, &pool), MM_ERR_MEMORY);
    mmi_memory_fail_at(0, false);
    ck_assert_ptr_null(pool);
    ck_error_mentions("thread pool");
    ck_assert_uint_gt(mmi_pool_bytes(4), mmi_pool_bytes(1));
}
END_TEST

#ifdef __GLIBC__
/* Each thread is to have a stack that no memory holds; where addresses have 32 bits, some may have one. */
START_TEST(a_pool_whose_threads_cannot_be_started_is_an_error_and_holds_nothing)
{
    mm_memory_usage before = MM_MEMORY_USAGE_INIT, after = MM_MEMORY_USAGE_INIT;
    pthread_attr_t endless;
    mmi_pool *pool = NULL;
    ck_assert_int_eq(pthread_attr_init(&endless), 0);
    ck_assert_int_eq(pthread_attr_setstacksize(&endless, SIZE_MAX / 4), 0);
    ck_assert_int_eq(pthread_setattr_default_np(&endless), 0);
    ck_ok(mm_memory_get_usage(&before));
    ck_status(mmi_pool_create(MOST_THREADS, &pool), MM_ERR_MEMORY);
    ck_error_mentions("can't start 7 threads");
    ck_assert_ptr_null(pool);
    ck_ok(mm_memory_get_usage(&after));
    ck_assert_uint_eq(after.current, before.current);
    ck_ok(mmi_pool_create(1, &pool)); /* which needs none */
    mmi_pool_free(pool);
}
END_TEST
#endif

/* What a handler of the host's would be called for on this thread. */
typedef struct heard {
    atomic_int seen;   /* masks that were looked at */
    atomic_int asked;  /* of these, where what comes from outside would be heard */
    atomic_int missed; /* where what the thread itself did would not be */
} heard;

static void look_at_mask(void *arg)
{
    static const int from_outside[] = { SIGINT, SIGTERM, SIGALRM, SIGUSR1, SIGCHLD, SIGPROF };
    static const int own[] = { SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS };
    heard *h = arg;
    sigset_t mask;
    pthread_sigmask(SIG_BLOCK, NULL, &mask);
    for (size_t i = 0; i < sizeof from_outside / sizeof *from_outside; i++)
        h->asked += !sigismember(&mask, from_outside[i]);
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        h->missed += sigismember(&mask, own[i]);
    h->seen++;
}

static void look_at_workers_mask(void *arg, int64_t piece, int worker)
{
    (void)piece;
    if (worker != 0)
        look_at_mask(arg);
    else
        nanosleep(&(struct timespec){ .tv_nsec = 1000 * 1000 }, NULL);
}

/* No other thread can be asked for those: the system ends a process whose thread has them blocked. */
START_TEST(of_signals_a_thread_hears_those_that_it_causes_itself)
{
    heard h = { 0 };
    mmi_pool *pool = NULL;
    mmi_thread *thread = NULL;
    ck_ok(mmi_pool_create(2, &pool));
    for (int i = 0; i < 10000 && h.seen == 0; i++)
        mmi_pool_run(pool, 4, look_at_workers_mask, &h);
    mmi_pool_free(pool);
    ck_assert_int_gt(h.seen, 0);
    ck_assert_int_eq(h.asked, 0);
    ck_assert_int_eq(h.missed, 0);
    ck_ok(mmi_thread_start(&thread, look_at_mask, &h));
    mmi_thread_join(thread);
    ck_assert_int_eq(h.asked, 0);
    ck_assert_int_eq(h.missed, 0);
    sigset_t mask;
    ck_assert_int_eq(pthread_sigmask(SIG_BLOCK, NULL, &mask), 0);
    ck_assert(!sigismember(&mask, SIGUSR1)); /* whoever made them hears what it did before */
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("base/pool");
    TCase *tests = tcase_create("all");
    tcase_set_timeout(tests, 120);
    tcase_add_test(tests, every_piece_is_done_exactly_once);
    tcase_add_test(tests, many_small_jobs_follow_each_other);
    tcase_add_test(tests, what_one_job_wrote_the_next_one_sees);
    tcase_add_test(tests, one_thread_does_the_pieces_in_order);
    tcase_add_test(tests, a_caller_that_stays_alone_does_all_pieces);
    tcase_add_test(tests, each_thread_begins_with_a_run_of_its_own);
    tcase_add_test(tests, a_thread_that_is_held_up_is_helped);
#ifdef CLOCK_THREAD_CPUTIME_ID
    tcase_add_test(tests, it_is_crowded_for_a_while_once_a_worker_had_no_processor);
    tcase_add_test(tests, it_is_not_crowded_where_workers_work_or_sleep);
#endif
    tcase_add_test(tests, workers_stay_awake_in_a_pass_and_after_one_that_came_soon);
    tcase_add_test(tests, a_caller_that_falls_asleep_as_the_last_piece_ends_is_woken);
    tcase_add_test(tests, a_worker_that_slept_does_not_stay_where_its_caller_is);
    tcase_add_test(tests, a_worker_that_falls_asleep_as_a_job_comes_is_woken);
    tcase_add_test(tests, a_pool_that_never_ran_can_be_freed);
    tcase_add_test(tests, pools_of_several_threads_run_side_by_side);
    tcase_add_test(tests, of_signals_a_thread_hears_those_that_it_causes_itself);
    tcase_add_test(tests, a_pool_without_memory_is_an_error);
#ifdef __GLIBC__
    tcase_add_test(tests, a_pool_whose_threads_cannot_be_started_is_an_error_and_holds_nothing);
#endif
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
