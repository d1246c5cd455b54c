/* Meetings that go wrong: ranks that are slow, gone, unreachable or not themselves. */
#define _DEFAULT_SOURCE /* syscall(), and what TCP can be asked */
#define _XOPEN_SOURCE 700
#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/files.h"
#include "base/thread.h"
#include "train/comm_socket.h"
#include "world.h"

/* Whoever connects from the port that it connects to, where nobody listens, reaches itself. The system chooses such a
 * port once in many thousand times; here, as often as this says. */
static atomic_int selves;
#ifdef SYS_connect
int connect(int fd, const struct sockaddr *address, socklen_t size)
{
    if (selves > 0 && address->sa_family == AF_INET && bind(fd, address, size) == 0)
        selves--;
    return (int)syscall(SYS_connect, fd, address, size);
}
#endif

static void start(world_guest *g)
{
    ck_ok(mmi_thread_start(&g->thread, world_come, g));
}

static void ck_came_to(world_guest *g, mm_status status, const char *words)
{
    mmi_thread_join(g->thread);
    ck_assert_msg(g->status == status && strstr(g->story, words) != NULL, "rank %d, not %s: %s: %s", g->rank, words,
                  mm_status_name(g->status), g->story);
}

static void wait_a_little(void)
{
    nanosleep(&(struct timespec){ 0, 100000000 }, NULL);
}

static mmi_endpoint endpoint_of(const char *place)
{
    mmi_endpoint e;
    int count;
    ck_ok(mmi_endpoint_tcp(&e, 1, &count, place));
    return e;
}

static int connect_to(const char *place)
{
    int fd = -1;
    mmi_endpoint e = endpoint_of(place);
    ck_ok(mmi_socket_connect(&fd, &e, 1, mmi_now() + 30, place, -1));
    return fd;
}

/* Greet rank 0 as rank `rank` with this version of the library, which listens at `port`, and do nothing more. */
static int greet_with(uint32_t version, const char *place, int32_t rank, int32_t size, uint32_t port)
{
    const struct {
        char magic[8];
        uint32_t protocol, version;
        int32_t rank, size;
        uint32_t port, reserved;
        uint64_t run;
    } greeting = { { 'm', 'i', 'n', 'i', 'm', 'i', 'n', 'd' }, 1, version, rank, size, port, 0, 0 };
    int fd = connect_to(place);
    ck_assert(mmi_socket_send_all(fd, &greeting, sizeof greeting, mmi_now() + 5));
    return fd;
}

static int greet(const char *place, int32_t rank, int32_t size, uint32_t port)
{
    return greet_with(mm_version(), place, rank, size, port);
}

/* Rank 0's answer to one of three: all are there. */
static void hear(int fd)
{
    char sink[24 + 3 * MMI_ENDPOINT_WIRE];
    ck_assert(mmi_socket_receive_all(fd, sink, sizeof sink, mmi_now() + 30));
}

START_TEST(the_system_does_not_give_up_a_rank_that_is_slow)
{
#ifdef TCP_USER_TIMEOUT
    int listener;
    unsigned lost = 1;
    socklen_t size = sizeof lost;
    const char *place = world_place(WORLD_TCP4);
    mmi_endpoint e = endpoint_of(place);
    ck_ok(mmi_socket_listen(&listener, &e, 1, 1, place));
    int fd = connect_to(place);
    mmi_socket_tune(fd);
    /* it would count while the other side answers that it has no room: timeout_seconds is for us to see to */
    ck_assert_int_eq(getsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &lost, &size), 0);
    ck_assert_uint_eq(lost, 0);
    mmi_socket_close(fd);
    mmi_socket_close(listener);
#endif
}
END_TEST

START_TEST(nobody_meets_himself)
{
    const char *place = world_place(WORLD_TCP4);
    world_guest g[2] = { { .place = place, .rank = 0, .size = 2, .patience = 20 },
                         { .place = place, .rank = 1, .size = 2, .patience = 20 } };
#ifdef SYS_connect
    selves = 1;
#endif
    start(&g[1]);
    do
        wait_a_little();
    while (selves > 0); /* until it has reached itself */
    start(&g[0]);
    for (int i = 0; i < 2; i++)
        ck_came_to(&g[i], MM_OK, "");
}
END_TEST

START_TEST(an_address_that_does_not_answer_leaves_time_for_the_next)
{
    char hole[400];
    int fd, deaf, waiting[4], open;
    mmi_endpoint there;
    double began = mmi_now();
    snprintf(hole, sizeof hole, "%s", world_place(WORLD_TCP4));
    mmi_endpoint e[2] = { endpoint_of(hole), endpoint_of(hole) };
    ck_ok(mmi_socket_listen(&deaf, e, 1, 0, hole));
    for (int i = 0; i < 4; i++) { /* more than are let in; of the others nobody hears */
        waiting[i] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
        connect(waiting[i], (const struct sockaddr *)e[0].at.bytes, e[0].size);
    }
    e[1] = endpoint_of(world_place(WORLD_TCP4));
    ck_ok(mmi_socket_listen(&open, e + 1, 1, 1, "the next"));
    ck_ok(mmi_socket_connect(&fd, e, 2, mmi_now() + 60, "one of two", -1));
    ck_assert(mmi_socket_there(&there, fd));
    ck_assert_int_eq(mmi_endpoint_port(&there), mmi_endpoint_port(&e[1]));
    ck_assert_double_lt(mmi_now() - began, 30);
    const int all[] = { fd, deaf, open, waiting[0], waiting[1], waiting[2], waiting[3] };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        mmi_socket_close(all[i]);
}
END_TEST

START_TEST(a_rank_that_can_not_be_reached_is_named_to_all)
{
    char place[400], words[100];
    snprintf(place, sizeof place, "%s", world_place(WORLD_TCP4));
    world_guest host = { .place = place, .rank = 0, .size = 3, .patience = 20 };
    world_guest last = { .place = place, .rank = 2, .size = 3, .patience = 3 };
    const uint16_t port = 1; /* where nobody listens */
    start(&host);
    int fd = greet(place, 1, 3, port);
    start(&last);
    snprintf(words, sizeof words, "rank 1 at 127.0.0.1, port %d: nobody answered there in time", port);
    ck_came_to(&last, MM_ERR_IO, words);
    ck_came_to(&host, MM_ERR_IO, "rank 2 gave up: ");
    ck_assert_ptr_nonnull(strstr(host.story, words));
    mmi_socket_close(fd);
}
END_TEST

START_TEST(who_waits_for_a_rank_that_died_hears_of_it)
{
    const char *place = world_place(WORLD_TCP4);
    world_guest host = { .place = place, .rank = 0, .size = 3, .patience = 40 };
    world_guest last = { .place = place, .rank = 2, .size = 3, .patience = 40 };
    double began = mmi_now();
    start(&host);
    int fd = greet(place, 1, 3, 1);
    start(&last);
    hear(fd);
    mmi_socket_close(fd);
    ck_came_to(&host, MM_ERR_IO, "rank 1 is gone");
    ck_came_to(&last, MM_ERR_IO, "rank 1 is gone");
    ck_assert_double_lt(mmi_now() - began, 30);
}
END_TEST

START_TEST(a_rank_that_died_may_come_again)
{
    const char *place = world_place(WORLD_TCP4);
    world_guest g[3];
    for (int32_t r = 0; r < 3; r++)
        g[r] = (world_guest){ .place = place, .rank = r, .size = 3, .patience = 20 };
    start(&g[0]);
    int fd = greet(place, 1, 3, 1);
    wait_a_little();
    mmi_socket_close(fd);
    start(&g[1]);
    start(&g[2]);
    for (int32_t r = 0; r < 3; r++)
        ck_came_to(&g[r], MM_OK, "");
}
END_TEST

/* Rank 0 that has the one file to listen with, and none for those who come; 0 if it says so. */
static int host_without_files(const char *place, int32_t rank, int32_t size, void *shared)
{
    (void)shared;
    mm_comm *c = NULL;
    struct rlimit limit;
    int next = dup(0);
    if (next < 0 || close(next) != 0 || getrlimit(RLIMIT_NOFILE, &limit) != 0)
        return 10;
    limit.rlim_cur = (rlim_t)next + 1;
    if (setrlimit(RLIMIT_NOFILE, &limit) != 0)
        return 11;
    mm_status status = world_join(WORLD_LOCAL, place, rank, size, &c);
    fprintf(stderr, "# %s\n", mm_last_error());
    return status == MM_ERR_IO && strstr(mm_last_error(), strerror(EMFILE)) ? 0 : 12;
}

START_TEST(who_has_no_file_left_says_so_at_once)
{
    char place[400];
    double began = mmi_now();
    snprintf(place, sizeof place, "%s", world_place(WORLD_LOCAL));
    int process = world_process(host_without_files, place, 0, 2, NULL);
    world_guest g = { .place = place, .rank = 1, .size = 2, .patience = 20 };
    start(&g);
    ck_assert_int_eq(world_wait(process), 0);
    ck_assert_double_lt(mmi_now() - began, 15);
    ck_came_to(&g, MM_ERR_IO, place);
}
END_TEST

/* An address that is good on one wire only, "fe80::1%eth0", as "[…]:port"; false: this machine has none. */
static bool find_link_local(char *place, size_t room)
{
    struct ifaddrs *all, *a;
    char text[INET6_ADDRSTRLEN];
    if (!world_has(WORLD_TCP6) || getifaddrs(&all) != 0)
        return false;
    for (a = all; a; a = a->ifa_next) {
        const struct sockaddr_in6 *six = (const struct sockaddr_in6 *)(const void *)a->ifa_addr;
        if (six && six->sin6_family == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&six->sin6_addr) && (a->ifa_flags & IFF_UP)) {
            snprintf(place, room, "[%s%%%s]%s", inet_ntop(AF_INET6, &six->sin6_addr, text, sizeof text), a->ifa_name,
                     strchr(world_place(WORLD_TCP6), ']') + 1);
            break;
        }
    }
    freeifaddrs(all);
    return a != NULL;
}

START_TEST(ranks_meet_at_an_address_that_is_good_on_one_wire_only)
{
    char place[400];
    world_guest g[3];
    if (!find_link_local(place, sizeof place))
        return;
    for (int32_t r = 0; r < 3; r++) {
        g[r] = (world_guest){ .place = place, .rank = r, .size = 3, .patience = 20 };
        start(&g[r]);
    }
    for (int32_t r = 0; r < 3; r++)
        ck_came_to(&g[r], MM_OK, "");
}
END_TEST

START_TEST(a_number_that_no_rank_has_is_called_so)
{
    const char *place = world_place(WORLD_TCP4);
    world_guest host = { .place = place, .rank = 0, .size = 3, .patience = 20 };
    start(&host);
    int fd = greet(place, 7, 3, 1);
    ck_came_to(&host, MM_ERR_STATE, "somebody says that it is rank 7, of 3 ranks");
    mmi_socket_close(fd);
}
END_TEST

START_TEST(a_rank_of_another_version_is_refused)
{
    const char *place = world_place(WORLD_TCP4);
    world_guest host = { .place = place, .rank = 0, .size = 2, .patience = 20 };
    char words[100];
    start(&host);
    int fd = greet_with(7u << 16 | 8 << 8 | 9, place, 1, 2, 1);
    snprintf(words, sizeof words, "rank 1 runs version 7.8.9 of the library, rank 0 version %s", mm_version_string());
    ck_came_to(&host, MM_ERR_STATE, words);
    mmi_socket_close(fd);
}
END_TEST

/* What somebody who listens in rank 0's place answers rank 1 of two: as it is sent, and an end behind it. */
static const struct {
    const char *magic;
    int32_t status;
    uint32_t bytes, sent; /* that follow, as is said, and in truth: zeros */
    mm_status comes_to;
    const char *words;
} answers[] = {
    { "minimind", 77, 40, 40, MM_ERR_STATE, "rank 0 turned rank 1 away" }, /* no status, and no reason */
    { "minimind", MM_ERR_STATE, UINT32_MAX, 600, MM_ERR_STATE, "rank 0 turned rank 1 away" },
    { "minimind", MM_ERR_STATE, 40, 10, MM_ERR_STATE, "rank 0 turned rank 1 away" },
    { "HTTP/1.1", 0, 40, 40, MM_ERR_IO, "whoever listens there is no rank 0" },
    { "minimind", 0, 39, 40, MM_ERR_IO, "rank 0's answer breaks off" },
    { "minimind", 0, UINT32_MAX, 600, MM_ERR_IO, "rank 0's answer breaks off" },
    { "minimind", 0, 40, 39, MM_ERR_IO, "rank 0's answer breaks off" },
    { NULL, 0, 0, 0, MM_ERR_IO, "rank 0 left" },
};

START_TEST(nothing_that_is_answered_is_believed)
{
    int listener, fd;
    const char *place = world_place(WORLD_TCP4);
    struct {
        char magic[8];
        uint64_t run;
        int32_t status;
        uint32_t bytes;
        char rest[600];
    } answer = { .status = answers[_i].status, .bytes = answers[_i].bytes };
    mmi_endpoint e = endpoint_of(place);
    world_guest g = { .place = place, .rank = 1, .size = 2, .patience = 20 };
    ck_ok(mmi_socket_listen(&listener, &e, 1, 1, place));
    start(&g);
    do {
        wait_a_little();
        ck_ok(mmi_socket_accept(&fd, listener, place));
    } while (fd < 0);
    if (answers[_i].magic) {
        memcpy(answer.magic, answers[_i].magic, 8);
        ck_assert(mmi_socket_send_all(fd, &answer, 24 + answers[_i].sent, mmi_now() + 5));
    }
    mmi_socket_finish(fd);
    ck_came_to(&g, answers[_i].comes_to, answers[_i].words);
    ck_assert_ptr_nonnull(strstr(g.story, place));
    mmi_socket_close(fd);
    mmi_socket_close(listener);
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("train/comm_join");
    TCase *tc = tcase_create("comm_join");
    tcase_add_test(tc, the_system_does_not_give_up_a_rank_that_is_slow);
    tcase_add_test(tc, nobody_meets_himself);
    tcase_add_test(tc, an_address_that_does_not_answer_leaves_time_for_the_next);
    tcase_add_test(tc, a_rank_that_can_not_be_reached_is_named_to_all);
    tcase_add_test(tc, who_waits_for_a_rank_that_died_hears_of_it);
    tcase_add_test(tc, a_rank_that_died_may_come_again);
    tcase_add_test(tc, who_has_no_file_left_says_so_at_once);
    tcase_add_test(tc, ranks_meet_at_an_address_that_is_good_on_one_wire_only);
    tcase_add_test(tc, a_number_that_no_rank_has_is_called_so);
    tcase_add_test(tc, a_rank_of_another_version_is_refused);
    tcase_add_loop_test(tc, nothing_that_is_answered_is_believed, 0, sizeof answers / sizeof *answers);
    tcase_set_timeout(tc, 120);
    suite_add_tcase(suite, tc);
    return suite;
}

int main(void)
{
    return run_suite(make_suite());
}
