/* Ranks as threads of the test, or as processes. */
#ifndef MM_TESTS_TRAIN_WORLD_H
#define MM_TESTS_TRAIN_WORLD_H

#include "base/thread.h"
#include "support.h"

#define WORLD_MOST 8

/* How the ranks meet. */
typedef enum world_kind { WORLD_LOCAL, WORLD_TCP4, WORLD_TCP6, WORLD_KINDS } world_kind;

/* A place to meet that nobody uses: a path, or an address with a free port. Static until the next call. */
const char *world_place(world_kind kind);

/* False where this machine lacks the kind. */
bool world_has(world_kind kind);

/* As mm_comm_local_create() or mm_comm_tcp_create(), with options that don't wait for ever. */
mm_status world_join(world_kind kind, const char *place, int32_t rank, int32_t size, mm_comm **out);

/* A rank that tries to join within `patience` seconds, and what came of it. */
typedef struct world_guest {
    const char *place; /* one with a slash is local */
    int32_t rank, size;
    double patience;
    mm_status status;
    char story[1024];
    mmi_thread *thread; /* for the test's use */
} world_guest;

/* For mmi_thread_start(), or to be called: join as the world_guest says, and leave. */
void world_come(void *guest);

/* What one rank of a thread works with. */
typedef struct world_rank {
    mm_comm *comm;
    int32_t rank, size;
    void *shared; /* the same for all */
} world_rank;

/* Run `fn` once for each of `size` ranks at the same time, each on a thread of its own with a communicator. A failed
 * check within is a failed test. */
void world_run(world_kind kind, int32_t size, void (*fn)(const world_rank *self), void *shared);

/* Does a message say that this rank, of fewer than ten, is gone: alone, or among several? */
bool world_tells_of_death(const char *message, int32_t rank);

/* Start a process that runs `fn` as that rank, without a communicator, and ends with what it returns. */
int world_process(int (*fn)(const char *place, int32_t rank, int32_t size, void *shared), const char *place,
                  int32_t rank, int32_t size, void *shared);

/* What a process ended with; -1 for a signal. */
int world_wait(int process);

#endif
