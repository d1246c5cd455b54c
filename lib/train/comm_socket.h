/* Stream sockets, in the file system or over TCP. None blocks, none raises SIGPIPE, all are closed when another program
 * is started. The system's headers for them live in comm_socket.c alone. */
#ifndef MMI_TRAIN_COMM_SOCKET_H
#define MMI_TRAIN_COMM_SOCKET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* Where one may listen or connect: the system's own form. */
typedef struct mmi_endpoint {
    uint32_t size;
    union {
        unsigned char bytes[128];
        uint64_t aligned;
    } at;
} mmi_endpoint;

/* A name in the file system. MM_ERR_ARG: too long. */
mm_status mmi_endpoint_local(mmi_endpoint *out, const char *path);

/* All that "host:port" stands for, at most `room`. MM_ERR_ARG: not of that form; MM_ERR_IO: no such host. */
mm_status mmi_endpoint_tcp(mmi_endpoint *out, int room, int *count, const char *address);

/* An address of TCP as bytes to be sent, and back; false for bytes that are none. One that is good on one wire only is
 * taken for one of the wire that `beside`, a connection, goes over. */
#define MMI_ENDPOINT_WIRE 20
void mmi_endpoint_pack(unsigned char wire[MMI_ENDPOINT_WIRE], const mmi_endpoint *endpoint);
bool mmi_endpoint_unpack(mmi_endpoint *out, const unsigned char wire[MMI_ENDPOINT_WIRE], int beside);
void mmi_endpoint_set_port(mmi_endpoint *endpoint, uint16_t port);
uint16_t mmi_endpoint_port(const mmi_endpoint *endpoint);

/* "10.0.0.2, port 41234", for people. */
void mmi_endpoint_text(char *text, size_t room, const mmi_endpoint *endpoint);

/* Listen at the first of `count` endpoints that can be had; `name` is for the message. What is left of a local socket
 * that nobody listens at any more is removed. */
mm_status mmi_socket_listen(int *out, const mmi_endpoint *endpoints, int count, int backlog, const char *name);

/* The next one who wants to come in; -1: nobody just now. MM_ERR_IO: this process can open no more. */
mm_status mmi_socket_accept(int *out, int listener, const char *name);

/* Connect to the first of `count` endpoints that answers, again and again until `deadline` (of mmi_now()), or until
 * `host`, a connection or -1, has ended. */
mm_status mmi_socket_connect(int *out, const mmi_endpoint *endpoints, int count, double deadline, const char *name,
                             int host);

/* The other side will send nothing more; what it sent may still have to be read. False for -1. */
bool mmi_socket_ended(int fd);

/* One's own end of a connection, and the other's. */
bool mmi_socket_here(mmi_endpoint *out, int fd);
bool mmi_socket_there(mmi_endpoint *out, int fd);

/* Small messages leave at once, and a machine that is gone is noticed in about ten seconds, unless something is on its
 * way there. */
void mmi_socket_tune(int fd);

/* Bytes that went, 0: none just now, -1: the other side is gone. Sending takes the rest of two pieces. */
int64_t mmi_socket_send(int fd, const void *first, size_t first_size, const void *second, size_t second_size);
int64_t mmi_socket_receive(int fd, void *to, size_t size);

/* All of it before `deadline`; false: the other side is gone, or too slow. */
bool mmi_socket_send_all(int fd, const void *from, size_t size, double deadline);
bool mmi_socket_receive_all(int fd, void *to, size_t size, double deadline);

/* Nothing more will be sent: the other side reads to an end. */
void mmi_socket_finish(int fd);
void mmi_socket_close(int fd); /* -1 is fine */

#endif
