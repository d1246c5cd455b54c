/* Several processes that train one model: how they meet, and how they part. */
#ifndef EXAMPLES_RANKS_H
#define EXAMPLES_RANKS_H

#include <minimind.h>

/* Options of its own; a program that trains with others has them in its table. */
typedef struct rank_options {
    char *comm; /* local:PATH, tcp:HOST:PORT or mpi; NULL: alone */
    double rank, world_size; /* NAN: not told */
} rank_options;

/* Wait for the other processes. NULL: there are none. */
mm_comm *meet(const rank_options *options);

/* NULL is fine. */
void part(mm_comm *comm, const rank_options *options);

#endif
