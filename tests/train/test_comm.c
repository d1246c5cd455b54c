#define _XOPEN_SOURCE 700
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/files.h"
#include "base/memory.h"
#include "base/thread.h"
#include "train/comm_join.h"
#include "train/comm_socket.h"
#include "world.h"

/* --- Sums --- */

/* Numbers whose sums depend on the order they are taken in. */
static void fill(float *x, double *y, size_t n, int32_t rank)
{
    test_rng rng = { 1000u + (unsigned)rank };
    for (size_t i = 0; i < n; i++) {
        x[i] = (float)((rng_uniform(&rng) - 0.5) * (i % 7 == 0 ? 1e6 : 1));
        y[i] = (rng_uniform(&rng) - 0.5) * (i % 5 == 0 ? 1e12 : 1);
    }
}

typedef struct sums {
    size_t n;
    float *x; /* the expected sums */
    double *y;
} sums;

static sums expect(size_t n, int32_t size)
{
    sums e = { n, malloc((n + 1) * sizeof(float)), malloc((n + 1) * sizeof(double)) };
    float *x = malloc((n + 1) * sizeof *x);
    double *y = malloc((n + 1) * sizeof *y);
    fill(e.x, e.y, n, 0);
    for (int32_t r = 1; r < size; r++) {
        fill(x, y, n, r);
        for (size_t i = 0; i < n; i++) {
            e.x[i] += x[i];
            e.y[i] += y[i];
        }
    }
    free(x);
    free(y);
    return e;
}

static void sum_and_compare(const world_rank *self)
{
    const sums *e = self->shared;
    float *x = malloc((e->n + 1) * sizeof *x);
    double *y = malloc((e->n + 1) * sizeof *y);
    mm_comm *c = self->comm;
    ck_assert_int_eq(c->rank, self->rank);
    ck_assert_int_eq(c->size, self->size);
    for (int again = 0; again < 2; again++) {
        fill(x, y, e->n, self->rank);
        ck_ok(c->all_reduce(c->user, x, (int64_t)e->n));
        ck_ok(c->all_reduce_f64(c->user, y, (int64_t)e->n));
        ck_assert(e->n == 0 || memcmp(x, e->x, e->n * sizeof *x) == 0);
        ck_assert(e->n == 0 || memcmp(y, e->y, e->n * sizeof *y) == 0);
    }
    free(x);
    free(y);
}

START_TEST(sums_are_taken_in_the_order_of_the_ranks_and_all_get_the_same_bits)
{
    static const size_t counts[] = { 0, 1, 7, 1024, 1025, 5000, 1300001 };
    world_kind kind = (world_kind)_i;
    if (!world_has(kind))
        return;
    for (int32_t size = 1; size <= 5; size += size == 3 ? 2 : 1)
        for (size_t k = 0; k < sizeof counts / sizeof *counts; k++) {
            if (size == 5 && counts[k] > 5000 && kind != WORLD_LOCAL)
                continue; /* once is enough */
            sums e = expect(counts[k], size);
            world_run(kind, size, sum_and_compare, &e);
            free(e.x);
            free(e.y);
        }
}
END_TEST

static void broadcast_and_compare(const world_rank *self)
{
    static const size_t sizes[] = { 0, 1, 4096, 4097, 100003 };
    mm_comm *c = self->comm;
    unsigned char *bytes = malloc(100003), *expected = malloc(100003);
    for (int32_t root = 0; root < self->size; root++)
        for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
            for (size_t i = 0; i < sizes[k]; i++)
                expected[i] = (unsigned char)(i * 31 + (size_t)root);
            memset(bytes, 0xEE, 100003);
            if (self->rank == root)
                memcpy(bytes, expected, sizes[k]);
            ck_ok(c->broadcast(c->user, bytes, sizes[k], root));
            ck_assert(memcmp(bytes, expected, sizes[k]) == 0);
            ck_assert_uint_eq(bytes[sizes[k] < 100003 ? sizes[k] : 0], sizes[k] < 100003 ? 0xEE : expected[0]);
        }
    ck_ok(c->barrier(c->user));
    free(bytes);
    free(expected);
}

START_TEST(what_any_root_has_comes_to_all)
{
    for (int kind = 0; kind < WORLD_KINDS; kind++)
        for (int32_t size = 1; size <= 4 && world_has((world_kind)kind); size++)
            world_run((world_kind)kind, size, broadcast_and_compare, NULL);
}
END_TEST

static void meet_in_order(const world_rank *self)
{
    int *arrived = self->shared;
    for (int round = 0; round < 20; round++) {
        if (self->rank == round % self->size)
            arrived[round] = 1;
        ck_ok(self->comm->barrier(self->comm->user));
        ck_assert_int_eq(arrived[round], 1);
    }
}

START_TEST(nobody_leaves_a_barrier_before_all_have_come)
{
    int arrived[20] = { 0 };
    world_run(WORLD_LOCAL, 3, meet_in_order, arrived);
}
END_TEST

/* --- When something goes wrong --- */

static void disagree(const world_rank *self)
{
    float x[100] = { 0 };
    mm_comm *c = self->comm;
    mm_status status = self->rank == 1 ? c->all_reduce(c->user, x, 99) : c->all_reduce(c->user, x, 100);
    ck_status(status, MM_ERR_STATE);
    ck_error_mentions("ranks do different things");
    ck_status(c->barrier(c->user), MM_ERR_STATE); /* and so it stays */
    ck_error_mentions("ranks do different things");
}

START_TEST(ranks_that_do_different_things_are_told_so)
{
    world_run(WORLD_LOCAL, 3, disagree, NULL);
    world_run(WORLD_TCP4, 2, disagree, NULL);
}
END_TEST

static void give_up(const world_rank *self)
{
    float x[3000] = { 0 };
    mm_comm *c = self->comm;
    ck_ok(c->barrier(c->user));
    if (self->rank == 1) {
        ck_ok(c->abort(c->user, "line 7 is no row"));
        ck_status(c->barrier(c->user), MM_ERR_CANCELLED);
        return;
    }
    ck_status(c->all_reduce(c->user, x, 3000), MM_ERR_CANCELLED);
    ck_error_mentions("rank 1 gave up: line 7 is no row");
}

START_TEST(a_rank_that_gives_up_tells_the_others_why)
{
    world_run(WORLD_LOCAL, 4, give_up, NULL);
    world_run(WORLD_TCP4, 3, give_up, NULL);
}
END_TEST

/* Rank 1 lives on and does not answer, until rank 0 has had enough. */
typedef struct quiet {
    const char *place;
    mmi_monitor *monitor;
    bool over;
} quiet;

static void be_silent(void *arg)
{
    quiet *q = arg;
    mm_comm *c = NULL;
    ck_ok(mm_comm_local_create(q->place, 1, 2, NULL, &c));
    mmi_monitor_enter(q->monitor);
    while (!q->over)
        mmi_monitor_wait(q->monitor);
    mmi_monitor_leave(q->monitor);
    mm_comm_free(c);
}

START_TEST(a_rank_that_does_not_answer_is_not_waited_for_for_ever)
{
    mmi_thread *thread;
    mm_comm *c = NULL;
    quiet q = { world_place(WORLD_LOCAL), NULL, false };
    mm_comm_options o = MM_COMM_OPTIONS_INIT;
    o.timeout_seconds = 0.3;
    ck_ok(mmi_monitor_create(&q.monitor));
    ck_ok(mmi_thread_start(&thread, be_silent, &q));
    ck_ok(mm_comm_local_create(q.place, 0, 2, &o, &c));
    ck_status(c->barrier(c->user), MM_ERR_IO);
    ck_error_mentions("rank 1 has not answered for 0.3 seconds");
    mmi_monitor_enter(q.monitor);
    q.over = true;
    mmi_monitor_wake(q.monitor);
    mmi_monitor_leave(q.monitor);
    mmi_thread_join(thread);
    mm_comm_free(c);
    mmi_monitor_free(q.monitor);
}
END_TEST

/* Ranks that are processes; each says a byte once it has its first sum. */
typedef struct summing {
    world_kind kind;
    int begun[2]; /* a pipe */
} summing;

/* Sums for ever; ends when one fails, with 0 if the message says that rank 2 is gone. */
static int sum_until_it_fails(const char *place, int32_t rank, int32_t size, void *shared)
{
    mm_comm *c = NULL;
    static float x[300000];
    const summing *s = shared;
    if (world_join(s->kind, place, rank, size, &c) != MM_OK)
        return 10;
    mm_status status = c->all_reduce(c->user, x, 300000);
    if (status != MM_OK || write(s->begun[1], "", 1) != 1)
        return 12;
    while (status == MM_OK)
        status = c->all_reduce(c->user, x, 300000);
    bool named = world_tells_of_death(mm_last_error(), 2) && status == MM_ERR_IO;
    if (!named)
        fprintf(stderr, "# rank %d: %s\n", rank, mm_last_error());
    mm_comm_free(c);
    return named ? 0 : 11;
}

START_TEST(a_rank_that_is_killed_ends_the_calls_of_the_others)
{
    summing s = { .kind = (world_kind)_i };
    char place[400], byte;
    int process[4];
    if (!world_has(s.kind))
        return;
    snprintf(place, sizeof place, "%s", world_place(s.kind));
    ck_assert_int_eq(pipe(s.begun), 0);
    for (int32_t r = 0; r < 4; r++)
        process[r] = world_process(sum_until_it_fails, place, r, 4, &s);
    close(s.begun[1]);
    for (int32_t r = 0; r < 4; r++)
        ck_assert_int_eq(read(s.begun[0], &byte, 1), 1); /* else a rank ended before */
    kill(process[2], SIGKILL);
    for (int32_t r = 0; r < 4; r++)
        ck_assert_int_eq(world_wait(process[r]), r == 2 ? -1 : 0);
    close(s.begun[0]);
}
END_TEST

/* --- Meeting --- */

static void try_all(world_guest *guests, int count)
{
    for (int i = 0; i < count; i++)
        ck_ok(mmi_thread_start(&guests[i].thread, world_come, &guests[i]));
    for (int i = 0; i < count; i++)
        mmi_thread_join(guests[i].thread);
}

START_TEST(ranks_of_another_size_are_refused_on_both_sides)
{
    for (int kind = 0; kind < 2; kind++) {
        char place[400];
        snprintf(place, sizeof place, "%s", world_place((world_kind)kind));
        world_guest g[2] = { { place, 0, 2, 60, 0, "", NULL }, { place, 1, 3, 60, 0, "", NULL } };
        try_all(g, 2);
        for (int i = 0; i < 2; i++) {
            ck_assert_msg(g[i].status == MM_ERR_STATE, "%s: %s", mm_status_name(g[i].status), g[i].story);
            ck_assert_ptr_nonnull(strstr(g[i].story, "rank 1 was started as one of 3 ranks, rank 0 as one of 2"));
        }
        ck_assert_ptr_nonnull(strstr(g[1].story, "rank 0 says: "));
    }
}
END_TEST

START_TEST(two_processes_of_one_rank_are_refused)
{
    char place[400];
    snprintf(place, sizeof place, "%s", world_place(WORLD_TCP4));
    world_guest g[3] = { { place, 0, 3, 60, 0, "", NULL },
                         { place, 1, 3, 60, 0, "", NULL },
                         { place, 1, 3, 60, 0, "", NULL } };
    try_all(g, 3);
    for (int i = 0; i < 3; i++) {
        ck_assert_msg(g[i].status == MM_ERR_STATE, "%s: %s", mm_status_name(g[i].status), g[i].story);
        ck_assert_ptr_nonnull(strstr(g[i].story, "two processes say that they are rank 1"));
    }
}
END_TEST

START_TEST(ranks_that_do_not_come_are_named)
{
    char place[400];
    snprintf(place, sizeof place, "%s", world_place(WORLD_LOCAL));
    world_guest g[2] = { { place, 0, 4, 3, 0, "", NULL }, { place, 2, 4, 60, 0, "", NULL } };
    try_all(g, 2);
    for (int i = 0; i < 2; i++) {
        ck_assert_msg(g[i].status == MM_ERR_IO, "%s: %s", mm_status_name(g[i].status), g[i].story);
        ck_assert_msg(strstr(g[i].story, "2 of 4 ranks did not come in time: 1, 3") != NULL, "%s", g[i].story);
    }
    world_guest alone = { place, 1, 2, 0.2, 0, "", NULL };
    world_come(&alone);
    ck_assert_int_eq(alone.status, MM_ERR_IO);
    ck_assert_ptr_nonnull(strstr(alone.story, "nobody answered there in time"));
    ck_assert(!mmi_file_exists(place));
}
END_TEST

/* Connects to the address and says `bytes`, until it is let in no more. */
static void say(const char *address, const void *bytes, size_t size)
{
    mmi_endpoint list[4];
    int count, fd;
    ck_ok(mmi_endpoint_tcp(list, 4, &count, address));
    ck_ok(mmi_socket_connect(&fd, list, count, mmi_now() + 30, address, -1));
    mmi_socket_send_all(fd, bytes, size, mmi_now() + 5);
    if (size > 0)
        mmi_socket_close(fd); /* who says nothing stays, in silence */
}

START_TEST(strangers_do_not_disturb_the_meeting)
{
    char place[400], noise[3000];
    test_rng rng = { 5 };
    for (size_t i = 0; i < sizeof noise; i++)
        noise[i] = (char)rng_next(&rng);
    snprintf(place, sizeof place, "%s", world_place(WORLD_TCP4));
    world_guest g[2] = { { place, 0, 2, 60, 0, "", NULL }, { place, 1, 2, 60, 0, "", NULL } };
    ck_ok(mmi_thread_start(&g[0].thread, world_come, &g[0]));
    say(place, "", 0);
    say(place, "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", 35);
    say(place, noise, sizeof noise);
    say(place, "minimind\1\0\0\0", 12); /* begins well, and breaks off */
    memcpy(noise, "minimind", 8);
    say(place, noise, sizeof noise); /* begins well, and goes on with anything */
    ck_ok(mmi_thread_start(&g[1].thread, world_come, &g[1]));
    mmi_thread_join(g[0].thread);
    mmi_thread_join(g[1].thread);
    ck_assert_msg(g[0].status == MM_OK, "%s", g[0].story);
    ck_assert_msg(g[1].status == MM_OK, "%s", g[1].story);
}
END_TEST

/* A rank 1 that has met rank 0 properly and then sends `bytes` into its first sum. */
typedef struct liar {
    const char *place;
    const void *bytes;
    size_t size;
} liar;

static void lie(void *arg)
{
    const liar *l = arg;
    mmi_mesh mesh;
    const mmi_meeting meeting = { l->place, true, mmi_now() + 30 };
    ck_ok(mmi_mesh_make(&mesh, 1, 2, 30));
    ck_ok(mmi_join(&mesh, &meeting));
    mmi_socket_send_all(mesh.links[0].fd, l->bytes, l->size, mmi_now() + 5);
    char sink;
    mmi_socket_receive_all(mesh.links[0].fd, &sink, 1, mmi_now() + 5);
    mmi_mesh_free(&mesh);
}

static mm_status check_liar(const void *bytes, size_t size, const char *words)
{
    char place[400];
    mmi_thread *thread;
    mm_comm *c = NULL;
    float x[10] = { 0 };
    snprintf(place, sizeof place, "%s", world_place(WORLD_LOCAL));
    liar l = { place, bytes, size };
    ck_ok(mmi_thread_start(&thread, lie, &l));
    ck_ok(world_join(WORLD_LOCAL, place, 0, 2, &c));
    mm_status status = c->all_reduce(c->user, x, 10);
    ck_assert_int_ne(status, MM_OK);
    ck_error_mentions("rank 1");
    ck_error_mentions(words);
    mm_comm_free(c);
    mmi_thread_join(thread);
    return status;
}

START_TEST(nothing_that_a_rank_sends_is_believed)
{
    unsigned char noise[200];
    memset(noise, 0xA5, sizeof noise);
    check_liar(noise, sizeof noise, "no frame");
    mmi_frame f = { 0x52464D4Du, MMI_TALK_REDUCE, 1, 40, UINT64_MAX, 1, 0 }; /* the length of a planet */
    check_liar(&f, sizeof f, "different things");
    f.bytes = 41;
    check_liar(&f, sizeof f, "different things");
    f.bytes = 40;
    f.talk = 77;
    check_liar(&f, sizeof f, "nothing known");
    f.talk = MMI_TALK_NOTICE;
    f.bytes = UINT64_MAX;
    f.total = 12345; /* no status */
    check_liar(&f, sizeof f, "rank 1 gave up and did not say why");
    f.origin = 0; /* a notice about another rank has a status of its own, if it is one */
    ck_assert_int_eq(check_liar(&f, sizeof f, "rank 1 gave up and did not say why"), MM_ERR_IO);
    f.total = 0;
    ck_assert_int_eq(check_liar(&f, sizeof f, "rank 1 gave up and did not say why"), MM_ERR_IO);
    f.bytes = 0;
    f.total = MM_ERR_FORMAT;
    ck_assert_int_eq(check_liar(&f, sizeof f, "rank 1 gave up and did not say why"), MM_ERR_FORMAT);
    check_liar(noise, 0, "rank 1 is gone"); /* silence, then the end */
}
END_TEST

START_TEST(a_socket_that_a_killed_run_left_is_no_obstacle)
{
    char place[400];
    snprintf(place, sizeof place, "%s", world_place(WORLD_LOCAL));
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    ck_assert_uint_lt(strlen(place), sizeof address.sun_path);
    memcpy(address.sun_path, place, strlen(place));
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    ck_assert_int_eq(bind(fd, (struct sockaddr *)&address, sizeof address), 0);
    close(fd); /* the name stays */
    world_guest g[2] = { { place, 0, 2, 60, 0, "", NULL }, { place, 1, 2, 60, 0, "", NULL } };
    try_all(g, 2);
    ck_assert_msg(g[0].status == MM_OK && g[1].status == MM_OK, "%s, %s", g[0].story, g[1].story);
    ck_assert(!mmi_file_exists(place));

    ck_ok(mmi_write_file(place, "mine", 4)); /* but a file of somebody's is left alone */
    world_come(&g[0]);
    ck_assert_int_eq(g[0].status, MM_ERR_IO);
    ck_assert(mmi_file_exists(place));
}
END_TEST

START_TEST(wrong_arguments_are_refused)
{
    char longest[300];
    mm_comm *c = NULL;
    float x = 0;
    mm_comm_options o = MM_COMM_OPTIONS_INIT;
    memset(longest, 'x', sizeof longest - 1);
    longest[sizeof longest - 1] = '\0';
    ck_status(mm_comm_local_create(NULL, 0, 1, NULL, &c), MM_ERR_ARG);
    ck_status(mm_comm_local_create("x", 0, 1, NULL, NULL), MM_ERR_ARG);
    ck_status(mm_comm_local_create("", 0, 2, NULL, &c), MM_ERR_ARG);
    ck_error_mentions("without a name");
    ck_status(mm_comm_local_create("x", 0, 0, NULL, &c), MM_ERR_ARG);
    ck_status(mm_comm_local_create("x", 2, 2, NULL, &c), MM_ERR_ARG);
    ck_status(mm_comm_local_create("x", -1, 2, NULL, &c), MM_ERR_ARG);
    ck_status(mm_comm_local_create("x", 0, 1025, NULL, &c), MM_ERR_ARG);
    ck_status(mm_comm_local_create(longest, 0, 2, NULL, &c), MM_ERR_ARG);
    ck_error_mentions("bytes long");
    ck_status(mm_comm_tcp_create("localhost", 0, 2, NULL, &c), MM_ERR_ARG);
    ck_error_mentions("host:port");
    ck_status(mm_comm_tcp_create("::1:500", 0, 2, NULL, &c), MM_ERR_ARG);
    ck_status(mm_comm_tcp_create("localhost:99999", 0, 2, NULL, &c), MM_ERR_ARG);
    ck_status(mm_comm_tcp_create("localhost:0", 0, 2, NULL, &c), MM_ERR_ARG);
    ck_error_mentions("a port of 1 to 65535");
    ck_status(mm_comm_tcp_create(":12", 0, 2, NULL, &c), MM_ERR_ARG);
    o.connect_seconds = 0;
    ck_status(mm_comm_tcp_create("localhost:1", 0, 2, &o, &c), MM_ERR_ARG);
    o.connect_seconds = 1;
    o.timeout_seconds = -1;
    ck_status(mm_comm_tcp_create("localhost:1", 0, 2, &o, &c), MM_ERR_ARG);
    ck_assert_ptr_null(c);

    ck_ok(mm_comm_local_create("x", 0, 1, NULL, &c));
    ck_status(c->all_reduce(c->user, NULL, 1), MM_ERR_ARG);
    ck_status(c->all_reduce(c->user, &x, -1), MM_ERR_ARG);
    ck_status(c->broadcast(c->user, &x, 4, 1), MM_ERR_ARG);
    ck_status(c->broadcast(c->user, NULL, 4, 0), MM_ERR_ARG);
    ck_ok(c->all_reduce(c->user, &x, 1));
    mm_comm_free(c);
    mm_comm_free(NULL);
}
END_TEST

START_TEST(memory_that_runs_out_is_a_status)
{
    mm_comm *c = NULL;
    for (uint64_t n = 1;; n++) {
        mmi_memory_fail_at(n, false);
        mm_status status = mm_comm_local_create("x", 0, 1, NULL, &c);
        mmi_memory_fail_at(0, false);
        if (status == MM_OK)
            break;
        ck_assert_int_eq(status, MM_ERR_MEMORY);
        ck_assert_ptr_null(c);
    }
    mm_comm_free(c);
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("train/comm");
    TCase *tc = tcase_create("comm");
    tcase_add_loop_test(tc, sums_are_taken_in_the_order_of_the_ranks_and_all_get_the_same_bits, 0, WORLD_KINDS);
    tcase_add_test(tc, what_any_root_has_comes_to_all);
    tcase_add_test(tc, nobody_leaves_a_barrier_before_all_have_come);
    tcase_add_test(tc, ranks_that_do_different_things_are_told_so);
    tcase_add_test(tc, a_rank_that_gives_up_tells_the_others_why);
    tcase_add_test(tc, a_rank_that_does_not_answer_is_not_waited_for_for_ever);
    tcase_add_loop_test(tc, a_rank_that_is_killed_ends_the_calls_of_the_others, 0, WORLD_KINDS);
    tcase_add_test(tc, ranks_of_another_size_are_refused_on_both_sides);
    tcase_add_test(tc, two_processes_of_one_rank_are_refused);
    tcase_add_test(tc, ranks_that_do_not_come_are_named);
    tcase_add_test(tc, strangers_do_not_disturb_the_meeting);
    tcase_add_test(tc, nothing_that_a_rank_sends_is_believed);
    tcase_add_test(tc, a_socket_that_a_killed_run_left_is_no_obstacle);
    tcase_add_test(tc, wrong_arguments_are_refused);
    tcase_add_test(tc, memory_that_runs_out_is_a_status);
    tcase_set_timeout(tc, 120);
    suite_add_tcase(suite, tc);
    return suite;
}

int main(void)
{
    return run_suite(make_suite());
}
