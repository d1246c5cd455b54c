/* Whoever connects first says a greeting of a fixed size, and has a few seconds for it. Bytes that are no greeting
 * close that connection and nothing else; a greeting that does not fit this run is an error for both sides. Rank 0
 * gives the run a number that only its ranks know; between themselves they show it. */
#define _POSIX_C_SOURCE 200809L

#include "train/comm_join.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <minimind/library.h>

#include "base/files.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/secret.h"
#include "train/comm_socket.h"

#define PROTOCOL 1
#define MANNERS 5.0 /* seconds in which a greeting must be complete */
#define ADDRESSES 8 /* of one host */
#define GUESTS 64   /* connections that have not greeted yet */
#define STORY 500   /* bytes of a message between ranks */

static const unsigned char magic[8] = { 'm', 'i', 'n', 'i', 'm', 'i', 'n', 'd' };

typedef struct greeting {
    unsigned char magic[8];
    uint32_t protocol, version; /* of the library */
    int32_t rank, size;
    uint32_t port; /* where this rank listens for the others, of TCP */
    uint32_t reserved;
    uint64_t run; /* to rank 0: 0 */
} greeting;

/* Rank 0's answer: MM_OK and where all ranks listen, or a status and a message. */
typedef struct answer {
    unsigned char magic[8];
    uint64_t run;
    int32_t status;
    uint32_t bytes; /* that follow: [size, MMI_ENDPOINT_WIRE], or text */
} answer;

_Static_assert(sizeof(greeting) == 40 && sizeof(answer) == 24, "they are sent as they lie in memory");

/* Who came and has not finished greeting. */
typedef struct guest {
    int fd;
    size_t done;
    double until;
    greeting said;
} guest;

/* A place where ranks are received. */
typedef struct hall {
    mmi_mesh *mesh;
    const mmi_meeting *meeting;
    int listener;
    uint64_t run; /* that a greeting must show */
    int32_t from; /* ranks from here on are received */
    guest guests[GUESTS];
    int guest_count;
    uint16_t *ports; /* [size], or NULL: not asked for */
} hall;

static greeting my_greeting(const mmi_mesh *mesh, uint16_t port, uint64_t run)
{
    greeting g;
    memset(&g, 0, sizeof g);
    memcpy(g.magic, magic, sizeof magic);
    g.protocol = PROTOCOL;
    g.version = mm_version();
    g.rank = mesh->rank;
    g.size = mesh->size;
    g.port = port;
    g.run = run;
    return g;
}

/* --- Receiving --- */

/* Why a greeting does not fit; an empty text: it does. */
static void find_fault(char *text, size_t room, const hall *h, const greeting *g)
{
    *text = '\0';
    if (g->protocol != PROTOCOL || g->version != mm_version())
        snprintf(text, room, "rank %d runs version %u.%u.%u of the library, rank %d version %s", g->rank,
                 g->version >> 16, g->version >> 8 & 255, g->version & 255, h->mesh->rank, mm_version_string());
    else if (g->size != h->mesh->size)
        snprintf(text, room, "rank %d was started as one of %d ranks, rank %d as one of %d", g->rank, g->size,
                 h->mesh->rank, h->mesh->size);
    else if (g->rank >= h->mesh->size)
        snprintf(text, room, "somebody says that it is rank %d, of %d ranks", g->rank, g->size);
    else if (g->rank < h->from || h->mesh->links[g->rank].fd >= 0)
        snprintf(text, room, "two processes say that they are rank %d", g->rank);
}

static void refuse(int fd, mm_status status, const char *text)
{
    answer a;
    memset(&a, 0, sizeof a);
    memcpy(a.magic, magic, sizeof magic);
    a.status = status;
    a.bytes = (uint32_t)(strlen(text) < STORY ? strlen(text) : STORY);
    mmi_socket_send(fd, &a, sizeof a, text, a.bytes);
    mmi_socket_finish(fd);
}

/* A greeting is complete. The connection becomes a link, or is closed. */
static mm_status receive(hall *h, const guest *who)
{
    char fault[256];
    const greeting *g = &who->said;
    if (memcmp(g->magic, magic, sizeof magic) != 0 || g->run != h->run || g->rank < 0) {
        mmi_log(MM_LOG_WARNING, "%s: turned away somebody who is no rank of this run", h->meeting->name);
        mmi_socket_close(who->fd);
        return MM_OK;
    }
    find_fault(fault, sizeof fault, h, g);
    if (*fault != '\0') {
        refuse(who->fd, MM_ERR_STATE, fault);
        mmi_socket_close(who->fd);
        return mmi_fail(MM_ERR_STATE, "%s: %s", h->meeting->name, fault);
    }
    h->mesh->links[g->rank].fd = who->fd;
    if (h->ports)
        h->ports[g->rank] = (uint16_t)g->port;
    return MM_OK;
}

static void forget(hall *h, int i)
{
    h->guests[i] = h->guests[--h->guest_count];
}

static mm_status let_in(hall *h)
{
    guest *who = &h->guests[h->guest_count];
    *who = (guest){ .until = mmi_now() + MANNERS };
    mm_status status = mmi_socket_accept(&who->fd, h->listener, h->meeting->name);
    h->guest_count += who->fd >= 0;
    return status;
}

/* What a guest has to say; those who are gone or dawdle are forgotten. */
static mm_status listen_to(hall *h)
{
    mm_status status = MM_OK;
    for (int i = h->guest_count; i-- > 0 && status == MM_OK;) {
        guest *who = &h->guests[i];
        int64_t got =
            mmi_socket_receive(who->fd, (unsigned char *)&who->said + who->done, sizeof who->said - who->done);
        who->done += got > 0 ? (size_t)got : 0;
        bool greeted = who->done == sizeof who->said;
        bool impossible = who->done >= sizeof magic && memcmp(who->said.magic, magic, sizeof magic) != 0;
        if (greeted) {
            guest arrived = *who;
            forget(h, i);
            status = receive(h, &arrived);
        } else if (got < 0 || impossible || mmi_now() > who->until) {
            mmi_log(MM_LOG_WARNING, "%s: turned away somebody who is no rank", h->meeting->name);
            mmi_socket_close(who->fd);
            forget(h, i);
        }
    }
    return status;
}

static int32_t missing(const hall *h)
{
    int32_t count = 0;
    for (int32_t p = h->from; p < h->mesh->size; p++)
        count += p != h->mesh->rank && h->mesh->links[p].fd < 0;
    return count;
}

static mm_status nobody_comes(const hall *h)
{
    char ranks[128] = "";
    int32_t left = missing(h);
    for (int32_t p = h->from; p < h->mesh->size && strlen(ranks) < sizeof ranks - 16; p++)
        if (p != h->mesh->rank && h->mesh->links[p].fd < 0)
            snprintf(ranks + strlen(ranks), 16, "%s%d", *ranks ? ", " : "", p);
    return mmi_fail(MM_ERR_IO, "%s: %d of %d ranks did not come in time: %s", h->meeting->name, left, h->mesh->size,
                    ranks);
}

/* Ranks that were here and are gone: rank 0 goes on gathering, and one that was started again has its place. To the
 * others it comes to nothing any more. */
static mm_status see_who_left(const hall *h)
{
    for (int32_t p = 0; p < h->mesh->size; p++) {
        mmi_link *link = &h->mesh->links[p];
        if (!mmi_socket_ended(link->fd))
            continue;
        if (h->mesh->rank > 0)
            return mmi_fail_within(mmi_mesh_lost(h->mesh, p), "%s", h->meeting->name);
        mmi_log(MM_LOG_WARNING, "%s: rank %d left before all were there", h->meeting->name, p);
        mmi_socket_close(link->fd);
        link->fd = -1;
    }
    return MM_OK;
}

/* Until all ranks from h->from on are here. */
static mm_status receive_all(hall *h)
{
    mm_status status = MM_OK;
    while (status == MM_OK && missing(h) > 0) {
        struct pollfd polls[GUESTS + 1];
        double left = h->meeting->deadline - mmi_now();
        if (left <= 0) {
            status = nobody_comes(h);
            break;
        }
        polls[0] = (struct pollfd){ .fd = h->guest_count < GUESTS ? h->listener : -1, .events = POLLIN };
        for (int i = 0; i < h->guest_count; i++)
            polls[i + 1] = (struct pollfd){ .fd = h->guests[i].fd, .events = POLLIN };
        poll(polls, (nfds_t)h->guest_count + 1, left > 1 ? 1000 : (int)(1000 * left) + 1);
        status = see_who_left(h);
        if (status == MM_OK && polls[0].revents != 0)
            status = let_in(h);
        if (status == MM_OK)
            status = listen_to(h);
    }
    while (h->guest_count > 0)
        mmi_socket_close(h->guests[--h->guest_count].fd);
    return status;
}

/* --- Rank 0 --- */

/* Another one each time, in a process's children too. */
static uint64_t new_run(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    uint64_t number = mmi_secret((uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec) ^ (uint64_t)getpid();
    return number != 0 ? number : 1;
}

static mm_status where_to_meet(mmi_endpoint *list, int *count, const mmi_meeting *m)
{
    if (!m->local)
        return mmi_endpoint_tcp(list, ADDRESSES, count, m->name);
    *count = 1;
    return mmi_endpoint_local(list, m->name);
}

/* Where rank `p` listens: the address it came from, and the port that it said. */
static bool whereabouts(unsigned char wire[MMI_ENDPOINT_WIRE], const hall *h, int32_t p)
{
    mmi_endpoint e;
    memset(wire, 0, MMI_ENDPOINT_WIRE);
    if (p == 0 || h->meeting->local)
        return true;
    if (!mmi_socket_there(&e, h->mesh->links[p].fd))
        return false;
    mmi_endpoint_set_port(&e, h->ports[p]);
    mmi_endpoint_pack(wire, &e);
    return true;
}

static mm_status answer_all(const hall *h, uint64_t run)
{
    mm_status status = MM_OK;
    size_t bytes = (size_t)h->mesh->size * MMI_ENDPOINT_WIRE;
    unsigned char *list = mmi_alloc(bytes, 1);
    answer a;
    if (!list)
        return mmi_fail_memory(bytes, "a list of addresses");
    memset(&a, 0, sizeof a);
    memcpy(a.magic, magic, sizeof magic);
    a.run = run;
    a.bytes = (uint32_t)bytes;
    for (int32_t p = 0; p < h->mesh->size && status == MM_OK; p++)
        if (!whereabouts(list + (size_t)p * MMI_ENDPOINT_WIRE, h, p))
            status = mmi_fail(MM_ERR_IO, "%s: rank %d left before all were there", h->meeting->name, p);
    for (int32_t p = 1; p < h->mesh->size && status == MM_OK; p++) {
        int fd = h->mesh->links[p].fd;
        if (!mmi_socket_send_all(fd, &a, sizeof a, h->meeting->deadline) ||
            !mmi_socket_send_all(fd, list, bytes, h->meeting->deadline))
            status = mmi_fail(MM_ERR_IO, "%s: rank %d left before all were there", h->meeting->name, p);
    }
    mmi_free(list);
    return status;
}

/* The ranks that came are told why it came to nothing. */
static void send_home(const hall *h, mm_status status)
{
    for (int32_t p = 1; p < h->mesh->size; p++)
        if (h->mesh->links[p].fd >= 0)
            refuse(h->mesh->links[p].fd, status, mm_last_error());
}

static mm_status host(mmi_mesh *mesh, const mmi_meeting *m)
{
    mmi_endpoint here[ADDRESSES];
    int count = 0;
    hall h = { .mesh = mesh, .meeting = m, .listener = -1, .from = 1 };
    mm_status status = where_to_meet(here, &count, m);
    if (status == MM_OK && !(h.ports = mmi_calloc((size_t)mesh->size, sizeof *h.ports)))
        status = mmi_fail_memory((size_t)mesh->size * sizeof *h.ports, "a list of ports");
    if (status == MM_OK)
        status = mmi_socket_listen(&h.listener, here, count, mesh->size + 16, m->name);
    bool listens = status == MM_OK;
    if (status == MM_OK)
        status = receive_all(&h);
    if (status == MM_OK)
        status = answer_all(&h, new_run());
    if (status != MM_OK)
        send_home(&h, status);
    mmi_socket_close(h.listener);
    if (m->local && listens)
        unlink(m->name);
    mmi_free(h.ports);
    return status;
}

/* --- The others --- */

/* Where rank `rank` of this machine listens. What does not fit in `room` is too long for a socket, too. */
static mm_status own_place(mmi_endpoint *out, char *path, size_t room, const mmi_meeting *m, int32_t rank)
{
    snprintf(path, room, "%s.%d", m->name, rank);
    return mmi_endpoint_local(out, path);
}

/* Listen for the ranks after this one: at a path of its own, or at the address that rank 0 sees, at any port. */
static mm_status open_own(int *listener, uint16_t *port, char *path, size_t room, const mmi_mesh *mesh,
                          const mmi_meeting *m, int to_host)
{
    mmi_endpoint here;
    mm_status status = MM_OK;
    if (m->local)
        status = own_place(&here, path, room, m, mesh->rank);
    else if (!mmi_socket_here(&here, to_host))
        status = mmi_fail(MM_ERR_IO, "%s: the connection to rank 0 broke", m->name);
    if (status != MM_OK)
        return status;
    if (!m->local)
        mmi_endpoint_set_port(&here, 0);
    status = mmi_socket_listen(listener, &here, 1, mesh->size + 16, m->local ? path : m->name);
    *port = status == MM_OK && !m->local && mmi_socket_here(&here, *listener) ? mmi_endpoint_port(&here) : 0;
    return status;
}

/* Rank 0's answer; `list` [size, MMI_ENDPOINT_WIRE]. */
static mm_status hear_answer(uint64_t *run, unsigned char *list, const mmi_mesh *mesh, const mmi_meeting *m)
{
    answer a;
    char text[STORY + 1] = "";
    int fd = mesh->links[0].fd;
    size_t bytes = (size_t)mesh->size * MMI_ENDPOINT_WIRE;
    if (!mmi_socket_receive_all(fd, &a, sizeof a, m->deadline + MANNERS)) /* it waits for the others first */
        return mmi_fail(MM_ERR_IO, "%s: rank 0 left, or not all ranks came in time", m->name);
    if (memcmp(a.magic, magic, sizeof magic) != 0)
        return mmi_fail(MM_ERR_IO, "%s: whoever listens there is no rank 0", m->name);
    if (a.status != MM_OK) {
        if (a.bytes > STORY || !mmi_socket_receive_all(fd, text, a.bytes, mmi_now() + MANNERS) || *text == '\0')
            return mmi_fail(MM_ERR_STATE, "%s: rank 0 turned rank %d away", m->name, mesh->rank);
        return mmi_fail(a.status == MM_ERR_IO ? MM_ERR_IO : MM_ERR_STATE, "%s: rank 0 says: %s", m->name, text);
    }
    if (a.bytes != bytes || !mmi_socket_receive_all(fd, list, bytes, mmi_now() + MANNERS))
        return mmi_fail(MM_ERR_IO, "%s: rank 0's answer breaks off", m->name);
    *run = a.run;
    return MM_OK;
}

static mm_status greet(int fd, const mmi_mesh *mesh, const mmi_meeting *m, uint16_t port, uint64_t run)
{
    greeting g = my_greeting(mesh, port, run);
    if (!mmi_socket_send_all(fd, &g, sizeof g, m->deadline))
        return mmi_fail(MM_ERR_IO, "%s: a rank left before all were there", m->name);
    return MM_OK;
}

/* To the ranks between rank 0 and this one. They are listening since before they greeted rank 0. */
static mm_status visit(const hall *h, const unsigned char *list)
{
    mm_status status = MM_OK;
    mmi_mesh *mesh = h->mesh;
    const mmi_meeting *m = h->meeting;
    int host = mesh->links[0].fd;
    for (int32_t p = 1; p < mesh->rank && status == MM_OK; p++) {
        mmi_endpoint there;
        char path[256], who[300];
        if (m->local)
            status = own_place(&there, path, sizeof path, m, p);
        else if (mmi_endpoint_unpack(&there, list + (size_t)p * MMI_ENDPOINT_WIRE, host))
            mmi_endpoint_text(path, sizeof path, &there);
        else
            status = mmi_fail(MM_ERR_IO, "%s: rank 0 gave no address of rank %d", m->name, p);
        if (status != MM_OK)
            break;
        snprintf(who, sizeof who, "rank %d at %s", p, path);
        status = mmi_socket_connect(&mesh->links[p].fd, &there, 1, m->deadline, who, host);
        if (status == MM_OK)
            status = greet(mesh->links[p].fd, mesh, m, 0, h->run);
    }
    mm_status left = status != MM_OK ? see_who_left(h) : MM_OK; /* that would be why */
    return left != MM_OK ? left : status;
}

static mm_status come(mmi_mesh *mesh, const mmi_meeting *m)
{
    mmi_endpoint there[ADDRESSES];
    char path[256] = "";
    int count = 0;
    uint16_t port = 0;
    hall h = { .mesh = mesh, .meeting = m, .listener = -1, .from = mesh->rank + 1 };
    unsigned char *list = mmi_alloc((size_t)mesh->size, MMI_ENDPOINT_WIRE);
    if (!list)
        return mmi_fail_memory((size_t)mesh->size * MMI_ENDPOINT_WIRE, "a list of addresses");
    mm_status status = where_to_meet(there, &count, m);
    if (status == MM_OK)
        status = mmi_socket_connect(&mesh->links[0].fd, there, count, m->deadline, m->name, -1);
    if (status == MM_OK)
        status = open_own(&h.listener, &port, path, sizeof path, mesh, m, mesh->links[0].fd);
    bool listens = status == MM_OK;
    if (status == MM_OK)
        status = greet(mesh->links[0].fd, mesh, m, port, 0);
    if (status == MM_OK)
        status = hear_answer(&h.run, list, mesh, m);
    if (status == MM_OK)
        status = visit(&h, list);
    if (status == MM_OK)
        status = receive_all(&h);
    if (status != MM_OK && h.run != 0 && mesh->broken == MM_OK) /* the others have begun to count on this rank */
        mmi_mesh_break(mesh, status, mm_last_error());
    mmi_socket_close(h.listener);
    if (m->local && listens)
        unlink(path);
    mmi_free(list);
    return status;
}

mm_status mmi_join(mmi_mesh *mesh, const mmi_meeting *meeting)
{
    mm_status status = mesh->rank == 0 ? host(mesh, meeting) : come(mesh, meeting);
    if (status != MM_OK)
        return status;
    for (int32_t p = 0; p < mesh->size; p++)
        if (mesh->links[p].fd >= 0)
            mmi_socket_tune(mesh->links[p].fd);
    double patience = mesh->timeout, left = meeting->deadline - mmi_now();
    mesh->timeout = left > patience ? left : patience;     /* this is still a part of the meeting */
    status = mmi_mesh_exchange(mesh, MMI_TALK_BARRIER, 0); /* everybody has everybody */
    mesh->timeout = patience;
    return status == MM_OK ? MM_OK : mmi_fail_within(status, "%s", meeting->name);
}
