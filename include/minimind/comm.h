/**
 * @file comm.h
 * Several processes that train one model together: what they say to each other.
 *
 * A communicator is a small table of functions that a program may fill itself, over whatever its machines are wired with.
 * Two are built in, for processes of one machine and over TCP; libminimind-mpi (minimind-mpi.h) wraps an MPI_Comm.
 *
 * Every function of the table is collective: all ranks call the same ones, in the same order, with the same sizes, and each
 * waits for the others. The sums of the built-in communicators are taken in the order of the ranks, 0 to size - 1, so all
 * ranks get the same bits, in every run; a host's own may have an order of their own, but must give every rank the
 * same bits.
 *
 * When a rank dies or gives up, the calls of the others fail, with a message that names the rank, and so do all later ones.
 *
 * The built-in ones neither encrypt nor ask for a password: use them where you trust the network. They believe nothing
 * that comes over it: a stranger who connects is turned away, and a rank that says anything but what is due is an error.
 */
#ifndef MINIMIND_COMM_H
#define MINIMIND_COMM_H

#include <minimind/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/** data[i] becomes the sum of data[i] of all ranks, in float32 and in float64. @return MM_OK, or what went wrong. */
typedef mm_status (*mm_comm_reduce_fn)(void *user, float *data, int64_t count);
typedef mm_status (*mm_comm_reduce_f64_fn)(void *user, double *data, int64_t count);

/** `data` of rank `root` comes to all others. */
typedef mm_status (*mm_comm_broadcast_fn)(void *user, void *data, size_t size, int32_t root);

/** Returns when all ranks have called it. */
typedef mm_status (*mm_comm_barrier_fn)(void *user);

/** Not collective: this rank leaves, and the calls of the others fail as soon as they can with `reason` in their message. */
typedef mm_status (*mm_comm_abort_fn)(void *user, const char *reason);

/**
 * The table. Its functions are called one at a time, but not always from the same thread. One that fails says why through
 * mm_set_last_error(); the data it was given then holds anything.
 */
typedef struct mm_comm {
    size_t struct_size;                   /**< sizeof(mm_comm) */
    void *user;                           /**< handed to every function */
    int32_t rank;                         /**< of this process, from 0 */
    int32_t size;                         /**< of the world: how many ranks there are, at least 1 */
    mm_comm_reduce_fn all_reduce;         /**< sums of float32 */
    mm_comm_reduce_f64_fn all_reduce_f64; /**< sums of doubles */
    mm_comm_broadcast_fn broadcast;       /**< one rank's bytes for all */
    mm_comm_barrier_fn barrier;           /**< wait for all */
    mm_comm_abort_fn abort;               /**< leave, and tell the others */
} mm_comm;
#define MM_COMM_INIT { sizeof(mm_comm), NULL, 0, 1, NULL, NULL, NULL, NULL, NULL }

/** Set every field of `comm` to its default, of the first `struct_size` bytes. For bindings. Since: 0.1 */
MM_API void mm_comm_init(mm_comm *comm, size_t struct_size);

/** How patient the built-in communicators are. */
typedef struct mm_comm_options {
    size_t struct_size;     /**< sizeof(mm_comm_options) */
    double connect_seconds; /**< how long to wait for all ranks to be there, above 0 */
    double timeout_seconds; /**< how long the others may be silent in the midst of a call, above 0. A rank whose process ends is
                                 noticed at once; this is for one that hangs, or whose machine is gone. One that is slower than the
                                 others by less is waited for */
} mm_comm_options;
#define MM_COMM_OPTIONS_INIT { sizeof(mm_comm_options), 60, 600 }

/** Set every field of `options` to its default, of the first `struct_size` bytes. For bindings. Since: 0.1 */
MM_API void mm_comm_options_init(mm_comm_options *options, size_t struct_size);

/**
 * Meet the other ranks on this machine, through sockets in the file system. Returns when all are there.
 *
 * @param path     Where to meet: a file name that does not exist yet, the same for all ranks. Rank 0 makes it, the others
 *                 add ".1", ".2" …; all are removed again once everybody is connected. At most 90 bytes or so.
 * @param rank     Of this process, in [0, size).
 * @param size     Ranks in all, at most 1024. With 1 nothing is opened.
 * @param options  NULL for the defaults.
 * @param out      Yours: pair it with mm_comm_free().
 *
 * @return MM_OK; MM_ERR_ARG; MM_ERR_MEMORY; MM_ERR_IO, the path can't be used, as by the second of two ranks with one number,
 *         or not all ranks came in time; MM_ERR_STATE, ranks that don't fit together: another size, another version of the
 *         library. Since: 0.1
 */
MM_API mm_status mm_comm_local_create(const char *path, int32_t rank, int32_t size, const mm_comm_options *options,
                                      mm_comm **out);

/**
 * Meet the other ranks over TCP. Returns when all are there and every two of them are connected.
 *
 * @param address  Where rank 0 is to be found, the same for all ranks: "host:port", "10.0.0.1:29500", "[::1]:29500". Rank 0
 *                 listens there while the others come in; these need a way to each other too, at ports of the system's choice.
 *
 * @return as mm_comm_local_create(); two ranks with one number above 0 are MM_ERR_STATE here. Since: 0.1
 */
MM_API mm_status mm_comm_tcp_create(const char *address, int32_t rank, int32_t size, const mm_comm_options *options,
                                    mm_comm **out);

/** Give back a communicator that mm_comm_local_create() or mm_comm_tcp_create() made. NULL is fine. Since: 0.1 */
MM_API void mm_comm_free(mm_comm *comm);

#ifdef __cplusplus
}
#endif

#endif
