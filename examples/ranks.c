#include "ranks.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

#include "options.h"
#ifdef EXAMPLES_MPI
#include <minimind-mpi.h>
#endif

mm_comm *meet(const rank_options *options)
{
    mm_comm *comm = NULL;
    int told = !isnan(options->world_size);
    int32_t rank = small("rank", options->rank), size = told ? small("world-size", options->world_size) : 1;
    if (!options->comm && (rank > 0 || size != 1))
        fail("without --comm this process is alone, and has no rank or --", "world-size");
    if (!options->comm)
        return NULL;
    if (strcmp(options->comm, "mpi") == 0 && (told || rank > 0))
        fail("MPI knows its processes by itself: --comm mpi takes no --", told ? "world-size" : "rank");
    /* Without it each would train alone, all into the same directory; MPI knows it. */
    if (!told && strchr(options->comm, ':'))
        fail("--comm needs to know how many processes there are, by --", "world-size");
    if (strncmp(options->comm, "local:", 6) == 0) {
        check(mm_comm_local_create(options->comm + 6, rank, size, NULL, &comm));
    } else if (strncmp(options->comm, "tcp:", 4) == 0) {
        check(mm_comm_tcp_create(options->comm + 4, rank, size, NULL, &comm));
#ifdef EXAMPLES_MPI
    } else if (strcmp(options->comm, "mpi") == 0) {
        int level;
        MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &level);
        check(mm_comm_mpi_create(MPI_COMM_WORLD, &comm));
#endif
    } else {
        fail("--comm can be local:PATH, tcp:HOST:PORT or, where MPI was there to build with, mpi; not ", options->comm);
    }
    return comm;
}

void part(mm_comm *comm, const rank_options *options)
{
#ifdef EXAMPLES_MPI
    if (comm && strcmp(options->comm, "mpi") == 0) {
        mm_comm_mpi_free(comm);
        MPI_Finalize();
        return;
    }
#endif
    (void)options;
    mm_comm_free(comm);
}
