#define _GNU_SOURCE /* keepalive's numbers, POLLRDHUP */

#include "train/comm_socket.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/files.h"

#ifndef MSG_NOSIGNAL
#define MSG_NOSIGNAL 0 /* there, SO_NOSIGPIPE does it */
#endif

#ifndef POLLRDHUP
#define POLLRDHUP 0
#endif

#define TRY 1.0 /* seconds for an address to answer, before the next one's turn */

_Static_assert(sizeof(struct sockaddr_storage) <= sizeof(((mmi_endpoint *)0)->at), "an endpoint must hold any address");

/* --- Endpoints --- */

static const struct sockaddr *address_of(const mmi_endpoint *e)
{
    return (const struct sockaddr *)e->at.bytes;
}

static void set_address(mmi_endpoint *e, const void *address, size_t size)
{
    memset(e, 0, sizeof *e);
    memcpy(e->at.bytes, address, size);
    e->size = (uint32_t)size;
}

mm_status mmi_endpoint_local(mmi_endpoint *out, const char *path)
{
    struct sockaddr_un address;
    memset(&address, 0, sizeof address);
    address.sun_family = AF_UNIX;
    if (path[0] == '\0')
        return mmi_fail(MM_ERR_ARG, "a socket without a name: the others could not find it");
    if (strlen(path) >= sizeof address.sun_path)
        return mmi_fail(MM_ERR_ARG, "%s: is %zu bytes long, a socket's name may have %zu", path, strlen(path),
                        sizeof address.sun_path - 1);
    memcpy(address.sun_path, path, strlen(path));
    set_address(out, &address, sizeof address);
    return MM_OK;
}

/* "host:port" or "[host]:port" into its parts. */
static bool split_address(char *host, size_t room, const char **port, const char *address)
{
    const char *colon = strrchr(address, ':'), *begin = address, *end = colon;
    if (!colon || colon[1] == '\0' || strspn(colon + 1, "0123456789") != strlen(colon + 1) ||
        (unsigned long)atol(colon + 1) - 1 >= 65535)
        return false;
    if (*begin == '[' && end > begin && end[-1] == ']') {
        begin++;
        end--;
    } else if (memchr(begin, ':', (size_t)(end - begin))) {
        return false; /* of IPv6, without its brackets */
    }
    if (begin == end || (size_t)(end - begin) >= room)
        return false;
    memcpy(host, begin, (size_t)(end - begin));
    host[end - begin] = '\0';
    *port = colon + 1;
    return true;
}

mm_status mmi_endpoint_tcp(mmi_endpoint *out, int room, int *count, const char *address)
{
    char host[256];
    const char *port;
    if (!split_address(host, sizeof host, &port, address))
        return mmi_fail(MM_ERR_ARG, "%s: is no address; it must be host:port or [IPv6]:port, with a port of 1 to 65535",
                        address);
    struct addrinfo hints, *found = NULL;
    memset(&hints, 0, sizeof hints);
    hints.ai_family = AF_UNSPEC;
    hints.ai_socktype = SOCK_STREAM;
    int error = getaddrinfo(host, port, &hints, &found);
    if (error != 0)
        return mmi_fail(MM_ERR_IO, "%s: %s", address, gai_strerror(error));
    *count = 0;
    for (const struct addrinfo *a = found; a && *count < room; a = a->ai_next)
        if (a->ai_family == AF_INET || a->ai_family == AF_INET6)
            set_address(&out[(*count)++], a->ai_addr, a->ai_addrlen);
    freeaddrinfo(found);
    return *count > 0 ? MM_OK : mmi_fail(MM_ERR_IO, "%s: has no address of IPv4 or IPv6", address);
}

/* The port and the bytes of the address within the system's form; false for other families. */
static bool parts(unsigned char **ip, size_t *size, unsigned char **port, mmi_endpoint *e)
{
    sa_family_t family = address_of(e)->sa_family;
    if (family != AF_INET && family != AF_INET6)
        return false;
    bool six = family == AF_INET6;
    *ip = e->at.bytes + (six ? offsetof(struct sockaddr_in6, sin6_addr) : offsetof(struct sockaddr_in, sin_addr));
    *port = e->at.bytes + (six ? offsetof(struct sockaddr_in6, sin6_port) : offsetof(struct sockaddr_in, sin_port));
    *size = six ? 16 : 4;
    return true;
}

/* Family (4 or 6), a zero, the port and 16 bytes of address, in the order of the network. */
void mmi_endpoint_pack(unsigned char wire[MMI_ENDPOINT_WIRE], const mmi_endpoint *endpoint)
{
    mmi_endpoint e = *endpoint;
    unsigned char *ip, *port;
    size_t size;
    memset(wire, 0, MMI_ENDPOINT_WIRE);
    if (!parts(&ip, &size, &port, &e))
        return;
    wire[0] = size == 16 ? 6 : 4;
    memcpy(wire + 2, port, 2);
    memcpy(wire + 4, ip, size);
}

bool mmi_endpoint_unpack(mmi_endpoint *out, const unsigned char wire[MMI_ENDPOINT_WIRE], int beside)
{
    mmi_endpoint host;
    unsigned char *ip, *port;
    size_t size;
    struct sockaddr_in6 six = { .sin6_family = wire[0] == 6 ? AF_INET6 : AF_INET };
    if (mmi_socket_there(&host, beside)) /* each machine has numbers of its own for its wires; 0, of IPv4 */
        six.sin6_scope_id = ((const struct sockaddr_in6 *)address_of(&host))->sin6_scope_id;
    set_address(out, &six, wire[0] == 6 ? sizeof six : sizeof(struct sockaddr_in));
    if ((wire[0] != 4 && wire[0] != 6) || !parts(&ip, &size, &port, out))
        return false;
    memcpy(port, wire + 2, 2);
    memcpy(ip, wire + 4, size);
    return true;
}

void mmi_endpoint_set_port(mmi_endpoint *e, uint16_t number)
{
    unsigned char *ip, *port;
    size_t size;
    if (!parts(&ip, &size, &port, e))
        return;
    port[0] = (unsigned char)(number >> 8);
    port[1] = (unsigned char)number;
}

uint16_t mmi_endpoint_port(const mmi_endpoint *endpoint)
{
    mmi_endpoint e = *endpoint;
    unsigned char *ip, *port;
    size_t size;
    return parts(&ip, &size, &port, &e) ? (uint16_t)(port[0] << 8 | port[1]) : 0;
}

void mmi_endpoint_text(char *text, size_t room, const mmi_endpoint *endpoint)
{
    char host[64] = "?";
    getnameinfo(address_of(endpoint), endpoint->size, host, sizeof host, NULL, 0, NI_NUMERICHOST);
    snprintf(text, room, "%s, port %d", host, mmi_endpoint_port(endpoint));
}

bool mmi_socket_here(mmi_endpoint *out, int fd)
{
    socklen_t size = sizeof out->at;
    memset(out, 0, sizeof *out);
    bool ok = getsockname(fd, (struct sockaddr *)out->at.bytes, &size) == 0 && size <= sizeof out->at;
    out->size = size;
    return ok;
}

bool mmi_socket_there(mmi_endpoint *out, int fd)
{
    socklen_t size = sizeof out->at;
    memset(out, 0, sizeof *out);
    bool ok = getpeername(fd, (struct sockaddr *)out->at.bytes, &size) == 0 && size <= sizeof out->at;
    out->size = size;
    return ok;
}

/* --- Sockets --- */

/* `fd`, or -1. */
static int prepare(int fd)
{
    if (fd < 0)
        return -1;
    int flags = fcntl(fd, F_GETFL);
#ifdef SO_NOSIGPIPE
    setsockopt(fd, SOL_SOCKET, SO_NOSIGPIPE, &(int){ 1 }, sizeof(int));
#endif
    if (flags >= 0 && fcntl(fd, F_SETFL, flags | O_NONBLOCK) == 0 && fcntl(fd, F_SETFD, FD_CLOEXEC) == 0)
        return fd;
    close(fd);
    return -1;
}

/* Of TCP, an address may be had though a connection from there is not long over: rank 0's, too. */
static int open_socket(int family)
{
    static const int on = 1;
    int fd = prepare(socket(family, SOCK_STREAM, 0));
    if (fd >= 0 && family != AF_UNIX)
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    return fd;
}

void mmi_socket_close(int fd)
{
    if (fd >= 0)
        close(fd);
}

void mmi_socket_finish(int fd)
{
    shutdown(fd, SHUT_WR);
}

void mmi_socket_tune(int fd)
{
    static const int on = 1, quiet = 5, between = 2, tries = 3, buffer = 1 << 20;
    mmi_endpoint e;
    if (!mmi_socket_here(&e, fd))
        return;
    if (address_of(&e)->sa_family == AF_UNIX) { /* TCP finds its buffers' sizes itself */
        setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &buffer, sizeof buffer);
        return;
    }
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    /* no TCP_USER_TIMEOUT: it would give up a rank that answers all the time that it has no room yet */
#if defined TCP_KEEPIDLE && defined TCP_KEEPINTVL && defined TCP_KEEPCNT
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &quiet, sizeof quiet);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &between, sizeof between);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &tries, sizeof tries);
#endif
}

bool mmi_socket_ended(int fd)
{
    struct pollfd p = { .fd = fd, .events = POLLRDHUP };
    return poll(&p, 1, 0) > 0;
}

/* Wait for `events`; false when `deadline` has come. */
static bool wait_for(int fd, short events, double deadline)
{
    for (;;) {
        double left = deadline - mmi_now();
        if (left <= 0)
            return false;
        struct pollfd p = { .fd = fd, .events = events };
        int ready = poll(&p, 1, left > 3600 ? 3600000 : (int)(left * 1000) + 1);
        if (ready > 0)
            return true;
        if (ready < 0 && errno != EINTR)
            return false;
    }
}

/* --- Listening --- */

/* The file of a socket that nobody listens at, left by a process that was killed. */
static void remove_remains(const mmi_endpoint *e)
{
    const struct sockaddr_un *address = (const struct sockaddr_un *)e->at.bytes;
    struct stat info;
    if (address->sun_family != AF_UNIX || lstat(address->sun_path, &info) != 0 || !S_ISSOCK(info.st_mode))
        return;
    int fd = open_socket(AF_UNIX);
    if (fd >= 0 && connect(fd, address_of(e), e->size) != 0 && errno == ECONNREFUSED)
        unlink(address->sun_path);
    mmi_socket_close(fd);
}

static int try_listen(const mmi_endpoint *e, int backlog)
{
    int fd = open_socket(address_of(e)->sa_family);
    if (fd < 0)
        return -1;
    remove_remains(e);
    if (bind(fd, address_of(e), e->size) == 0 && listen(fd, backlog) == 0)
        return fd;
    int error = errno;
    close(fd);
    errno = error;
    return -1;
}

mm_status mmi_socket_listen(int *out, const mmi_endpoint *endpoints, int count, int backlog, const char *name)
{
    int error = 0;
    for (int i = 0; i < count; i++) {
        int fd = try_listen(&endpoints[i], backlog);
        if (fd >= 0) {
            *out = fd;
            return MM_OK;
        }
        error = errno;
    }
    return mmi_fail(MM_ERR_IO, "%s: can't listen there: %s", name, strerror(error));
}

mm_status mmi_socket_accept(int *out, int listener, const char *name)
{
    *out = accept(listener, NULL, NULL);
    if (*out < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS))
        return mmi_fail(MM_ERR_IO, "%s: can't let anybody in: %s", name, strerror(errno));
    *out = prepare(*out);
    return MM_OK;
}

/* --- Connecting --- */

/* Without a listener the system may choose the port that is asked for, and one talks to oneself. */
static bool is_oneself(int fd)
{
    mmi_endpoint here, there;
    return mmi_socket_here(&here, fd) && mmi_socket_there(&there, fd) && memcmp(&here, &there, sizeof here) == 0;
}

/* One try. -1: nobody answers there; errno says why. */
static int try_connect(const mmi_endpoint *e, double deadline)
{
    int fd = open_socket(address_of(e)->sa_family), error = 0;
    if (fd < 0)
        return -1;
    if (connect(fd, address_of(e), e->size) != 0)
        error = errno;
    if (error == EINPROGRESS || error == EINTR) {
        socklen_t size = sizeof error;
        if (!wait_for(fd, POLLOUT, deadline))
            error = ETIMEDOUT;
        else if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) != 0)
            error = errno;
    }
    if (error == 0 && is_oneself(fd))
        error = ECONNREFUSED;
    if (error == 0)
        return fd;
    close(fd);
    errno = error;
    return -1;
}

mm_status mmi_socket_connect(int *out, const mmi_endpoint *endpoints, int count, double deadline, const char *name,
                             int host)
{
    int error = 0;
    do {
        for (int i = 0; i < count; i++) {
            double end = mmi_now() + TRY;
            int fd = try_connect(&endpoints[i], end < deadline ? end : deadline);
            if (fd >= 0) {
                *out = fd;
                return MM_OK;
            }
            error = errno;
        }
        poll(NULL, 0, 20); /* rank 0 may not be there yet */
    } while (mmi_now() < deadline && !mmi_socket_ended(host));
    return mmi_fail(MM_ERR_IO, "%s: nobody answered there in time: %s", name, strerror(error));
}

/* --- Bytes --- */

static bool just_now(int error)
{
    return error == EAGAIN || error == EWOULDBLOCK || error == EINTR || error == ENOBUFS;
}

int64_t mmi_socket_send(int fd, const void *first, size_t first_size, const void *second, size_t second_size)
{
    struct iovec pieces[2] = { { .iov_base = (void *)first, .iov_len = first_size },
                               { .iov_base = (void *)second, .iov_len = second_size } };
    struct msghdr message;
    memset(&message, 0, sizeof message);
    message.msg_iov = first_size > 0 ? pieces : pieces + 1;
    message.msg_iovlen = first_size > 0 && second_size > 0 ? 2 : 1;
    ssize_t sent = sendmsg(fd, &message, MSG_NOSIGNAL);
    return sent >= 0 ? sent : (just_now(errno) ? 0 : -1);
}

int64_t mmi_socket_receive(int fd, void *to, size_t size)
{
    if (size == 0)
        return 0;
    ssize_t got = recv(fd, to, size, 0);
    return got > 0 ? got : (got < 0 && just_now(errno) ? 0 : -1);
}

bool mmi_socket_send_all(int fd, const void *from, size_t size, double deadline)
{
    const unsigned char *bytes = from;
    while (size > 0) {
        int64_t sent = mmi_socket_send(fd, bytes, size, NULL, 0);
        if (sent < 0 || (sent == 0 && !wait_for(fd, POLLOUT, deadline)))
            return false;
        bytes += sent;
        size -= (size_t)sent;
    }
    return true;
}

bool mmi_socket_receive_all(int fd, void *to, size_t size, double deadline)
{
    unsigned char *bytes = to;
    while (size > 0) {
        int64_t got = mmi_socket_receive(fd, bytes, size);
        if (got < 0 || (got == 0 && !wait_for(fd, POLLIN, deadline)))
            return false;
        bytes += got;
        size -= (size_t)got;
    }
    return true;
}
