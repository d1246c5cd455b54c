/* Where a thread is: how many places there are, how it leaves one, and what it was given there. */
#define _GNU_SOURCE /* sched_getaffinity */
#include <limits.h>
#include <sched.h>
#include <time.h>

#include "base/files.h"
#include "base/processor.h"
#include "support.h"

START_TEST(there_is_a_processor)
{
    ck_assert_int_ge(mmi_processor_count(), 1);
    ck_assert_int_ge(mmi_processor(), -1);
}
END_TEST

#ifdef CLOCK_THREAD_CPUTIME_ID
/* A thread may get no more than a part of the time, but not less than it counted, and hardly any for sleeping. */
START_TEST(a_thread_knows_what_was_spent_on_it)
{
    const double from = mmi_now(), spent = mmi_spent_on_thread();
    while (mmi_spent_on_thread() < spent + 5e-3) {}
    ck_assert_double_ge(mmi_now() - from, 4e-3);
    const double before = mmi_spent_on_thread();
    nanosleep(&(struct timespec){ .tv_nsec = 100000000 }, NULL);
    ck_assert_double_lt(mmi_spent_on_thread() - before, 50e-3);
}
END_TEST
#endif

#ifdef CPU_COUNT
static cpu_set_t allowed(void)
{
    cpu_set_t set;
    ck_assert_int_eq(sched_getaffinity(0, sizeof set, &set), 0);
    return set;
}

/* The machine may move a thread at any time, so once in some tries is enough. */
START_TEST(a_thread_leaves_the_processor_it_is_on_and_may_come_back)
{
    const cpu_set_t before = allowed();
    int left = 0;
    for (int i = 0; i < 100 && left == 0; i++) {
        const int from = mmi_processor();
        mmi_leave_processor(from);
        left = mmi_processor() != from;
    }
    const cpu_set_t after = allowed();
    ck_assert(CPU_EQUAL(&before, &after));
    ck_assert_int_eq(left, CPU_COUNT(&before) > 1 && mmi_processor() >= 0);
}
END_TEST

/* How a thread finds itself in its sleep. */
typedef struct night {
    int slept, on;
    cpu_set_t may_run_on;
    const cpu_set_t *moved_to; /* by somebody else; NULL: it is left alone */
} night;

static void sleep_through(void *arg)
{
    night *n = arg;
    n->slept++;
    n->on = mmi_processor();
    n->may_run_on = allowed();
    if (n->moved_to)
        ck_assert_int_eq(sched_setaffinity(0, sizeof *n->moved_to, n->moved_to), 0);
}

START_TEST(a_thread_sleeps_elsewhere_and_may_come_back)
{
    const cpu_set_t before = allowed();
    const int here = mmi_processor();
    night n = { 0 };
    mmi_sleep_elsewhere(here, sleep_through, &n);
    const cpu_set_t after = allowed();
    ck_assert(CPU_EQUAL(&before, &after));
    ck_assert_int_eq(n.slept, 1);
    if (CPU_COUNT(&before) > 1 && here >= 0) {
        ck_assert_int_ne(n.on, here);
        ck_assert_int_eq(CPU_COUNT(&n.may_run_on), CPU_COUNT(&before) - 1);
        ck_assert(!CPU_ISSET(here, &n.may_run_on));
    }
}
END_TEST

static cpu_set_t only(int processor)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(processor, &set);
    return set;
}

START_TEST(what_somebody_else_says_meanwhile_counts)
{
    const int here = mmi_processor();
    if (here < 0)
        return; /* nobody knows */
    const cpu_set_t before = allowed(), one = only(here);
    night n = { .moved_to = &one };
    mmi_sleep_elsewhere(here, sleep_through, &n);
    const cpu_set_t after = allowed();
    ck_assert(CPU_EQUAL(&one, &after));
    ck_assert_int_eq(sched_setaffinity(0, sizeof before, &before), 0);
}
END_TEST

START_TEST(a_thread_with_nowhere_to_go_stays)
{
    const cpu_set_t before = allowed();
    const int here = mmi_processor();
    if (here < 0)
        return; /* nobody knows */
    const cpu_set_t one = only(here);
    const int places[] = { here, here + 1, CPU_SETSIZE, INT_MAX, -1 }; /* where it is not, and where nobody is */
    ck_assert_int_eq(sched_setaffinity(0, sizeof one, &one), 0);
    ck_assert_int_eq(mmi_processor_count(), 1);
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        night n = { 0 };
        mmi_leave_processor(places[i]);
        mmi_sleep_elsewhere(places[i], sleep_through, &n);
        const cpu_set_t after = allowed();
        ck_assert_int_eq(n.slept, 1);
        ck_assert(CPU_EQUAL(&one, &n.may_run_on));
        ck_assert(CPU_EQUAL(&one, &after));
        ck_assert_int_eq(mmi_processor(), here);
    }
    ck_assert_int_eq(sched_setaffinity(0, sizeof before, &before), 0);
}
END_TEST
#endif

int main(void)
{
    Suite *suite = suite_create("base/processor");
    TCase *tests = tcase_create("all");
    tcase_add_test(tests, there_is_a_processor);
#ifdef CLOCK_THREAD_CPUTIME_ID
    tcase_add_test(tests, a_thread_knows_what_was_spent_on_it);
#endif
#ifdef CPU_COUNT
    tcase_add_test(tests, a_thread_leaves_the_processor_it_is_on_and_may_come_back);
    tcase_add_test(tests, a_thread_sleeps_elsewhere_and_may_come_back);
    tcase_add_test(tests, what_somebody_else_says_meanwhile_counts);
    tcase_add_test(tests, a_thread_with_nowhere_to_go_stays);
#endif
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
