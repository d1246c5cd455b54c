#define _XOPEN_SOURCE 700
#include "world.h"

#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

/* A port of the loopback address that was free a moment ago; 0 where the family is missing. */
static int free_port(bool six)
{
    struct sockaddr_in a4 = { .sin_family = AF_INET, .sin_addr = { htonl(INADDR_LOOPBACK) } };
    struct sockaddr_in6 a6 = { .sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT };
    struct sockaddr *address = six ? (struct sockaddr *)&a6 : (struct sockaddr *)&a4;
    socklen_t size = six ? sizeof a6 : sizeof a4;
    int fd = socket(six ? AF_INET6 : AF_INET, SOCK_STREAM, 0), port = 0;
    if (fd >= 0 && bind(fd, address, size) == 0 && getsockname(fd, address, &size) == 0)
        port = ntohs(six ? a6.sin6_port : a4.sin_port);
    if (fd >= 0)
        close(fd);
    return port;
}

bool world_has(world_kind kind)
{
    return kind == WORLD_LOCAL || free_port(kind == WORLD_TCP6) > 0;
}

const char *world_place(world_kind kind)
{
    static char place[400];
    if (kind == WORLD_LOCAL)
        snprintf(place, sizeof place, "%s/meet", scratch_directory());
    else
        snprintf(place, sizeof place, "%s:%d", kind == WORLD_TCP4 ? "127.0.0.1" : "[::1]",
                 free_port(kind == WORLD_TCP6));
    return place;
}

mm_status world_join(world_kind kind, const char *place, int32_t rank, int32_t size, mm_comm **out)
{
    mm_comm_options o = MM_COMM_OPTIONS_INIT;
    o.connect_seconds = 60;
    o.timeout_seconds = 60;
    return kind == WORLD_LOCAL ? mm_comm_local_create(place, rank, size, &o, out) :
                                 mm_comm_tcp_create(place, rank, size, &o, out);
}

typedef struct seat {
    world_rank self;
    world_kind kind;
    const char *place;
    void (*fn)(const world_rank *self);
    mmi_thread *thread;
} seat;

static void sit(void *arg)
{
    seat *s = arg;
    ck_ok(world_join(s->kind, s->place, s->self.rank, s->self.size, &s->self.comm));
    s->fn(&s->self);
    mm_comm_free(s->self.comm);
}

void world_run(world_kind kind, int32_t size, void (*fn)(const world_rank *self), void *shared)
{
    seat seats[WORLD_MOST];
    char place[400];
    snprintf(place, sizeof place, "%s", world_place(kind));
    for (int32_t r = 0; r < size; r++) {
        seats[r] = (seat){ { NULL, r, size, shared }, kind, place, fn, NULL };
        ck_ok(mmi_thread_start(&seats[r].thread, sit, &seats[r]));
    }
    for (int32_t r = 0; r < size; r++)
        mmi_thread_join(seats[r].thread);
}

void world_come(void *guest)
{
    world_guest *g = guest;
    mm_comm *c = NULL;
    mm_comm_options o = MM_COMM_OPTIONS_INIT;
    o.connect_seconds = g->patience;
    g->status = strchr(g->place, '/') ? mm_comm_local_create(g->place, g->rank, g->size, &o, &c) :
                                        mm_comm_tcp_create(g->place, g->rank, g->size, &o, &c);
    snprintf(g->story, sizeof g->story, "%s", g->status == MM_OK ? "" : mm_last_error());
    mm_comm_free(c);
}

bool world_tells_of_death(const char *message, int32_t rank)
{
    const char *end = strstr(message, " gone: "), *at = end; /* "rank 2 is gone: …" or "ranks 1, 2 are gone: …" */
    while (at && at > message && strncmp(at, "rank", 4) != 0)
        at--;
    while (at && at < end && *at != '0' + rank)
        at++;
    return at != end;
}

int world_process(int (*fn)(const char *place, int32_t rank, int32_t size, void *shared), const char *place,
                  int32_t rank, int32_t size, void *shared)
{
    pid_t child = fork();
    ck_assert_int_ge(child, 0);
    if (child == 0)
        _exit(fn(place, rank, size, shared));
    return child;
}

int world_wait(int process)
{
    int status = 0;
    ck_assert_int_eq(waitpid(process, &status, 0), process);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}
