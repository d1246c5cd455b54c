/* Meetings that go wrong: ranks that are slow, gone, unreachable or not themselves. */
#define _DEFAULT_SOURCE /* what TCP can be asked */
#define _XOPEN_SOURCE 700
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "base/files.h"
#include "train/comm_socket.h"
#include "world.h"

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
    ck_ok(mmi_socket_connect(&fd, &e, 1, mmi_now() + 30, place));
    return fd;
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

static Suite *make_suite(void)
{
    Suite *suite = suite_create("train/comm_join");
    TCase *tc = tcase_create("comm_join");
    tcase_add_test(tc, the_system_does_not_give_up_a_rank_that_is_slow);
    tcase_set_timeout(tc, 120);
    suite_add_tcase(suite, tc);
    return suite;
}

int main(void)
{
    return run_suite(make_suite());
}
