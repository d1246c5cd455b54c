#include "minimind-mpi.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

/* MPI counts in int, and the part of a sum that is this rank's waits in memory of our own: so many numbers at a time.
 */
#define ROUND ((int64_t)1 << 22)

/* Up to here, one rank adds and sends to all: fewer steps than dealing out parts. */
#define SMALL 1024

#define BROADCAST ((size_t)1 << 30)

typedef struct comm {
    mm_comm table; /* first: the handle */
    MPI_Comm world;
    int *counts, *places; /* [size]: a round's parts */
    double *part;         /* this rank's sums of a round */
} comm;

static mm_status check(int code, const char *what)
{
    char text[MPI_MAX_ERROR_STRING + 64], reason[MPI_MAX_ERROR_STRING] = "";
    int length = 0;
    if (code == MPI_SUCCESS)
        return MM_OK;
    if (MPI_Error_string(code, reason, &length) != MPI_SUCCESS)
        snprintf(reason, sizeof reason, "error %d", code);
    snprintf(text, sizeof text, "%s: %s", what, reason);
    return mm_set_last_error(MM_ERR_IO, text);
}

/* Part p of `n` numbers, p in [0, size): they differ by at most one in size. */
static void cut(comm *c, int n)
{
    int size = c->table.size;
    for (int p = 0, at = 0; p < size; p++) {
        c->places[p] = at;
        c->counts[p] = n / size + (p < n % size);
        at += c->counts[p];
    }
}

/* MPI_Allreduce() may give ranks sums that differ in their last bits; here each sum has one maker. */
static mm_status reduce_round(comm *c, void *data, int n, MPI_Datatype type)
{
    if (n <= SMALL) {
        int rank = c->table.rank;
        mm_status status =
            check(MPI_Reduce(rank == 0 ? MPI_IN_PLACE : data, data, n, type, MPI_SUM, 0, c->world), "MPI_Reduce");
        return status == MM_OK ? check(MPI_Bcast(data, n, type, 0, c->world), "MPI_Bcast") : status;
    }
    cut(c, n);
    mm_status status =
        check(MPI_Reduce_scatter(data, c->part, c->counts, type, MPI_SUM, c->world), "MPI_Reduce_scatter");
    if (status != MM_OK)
        return status;
    return check(MPI_Allgatherv(c->part, c->counts[c->table.rank], type, data, c->counts, c->places, type, c->world),
                 "MPI_Allgatherv");
}

static mm_status reduce(comm *c, void *data, int64_t count, MPI_Datatype type, size_t size)
{
    if (count < 0 || (!data && count > 0))
        return mm_set_last_error(MM_ERR_ARG, "all_reduce: data is NULL or count below 0");
    mm_status status = MM_OK;
    for (int64_t at = 0; at < count && status == MM_OK; at += ROUND)
        status =
            reduce_round(c, (char *)data + (size_t)at * size, (int)(count - at < ROUND ? count - at : ROUND), type);
    return status;
}

static mm_status all_reduce(void *user, float *data, int64_t count)
{
    return reduce(user, data, count, MPI_FLOAT, sizeof *data);
}

static mm_status all_reduce_f64(void *user, double *data, int64_t count)
{
    return reduce(user, data, count, MPI_DOUBLE, sizeof *data);
}

static mm_status broadcast(void *user, void *data, size_t size, int32_t root)
{
    comm *c = user;
    if (root < 0 || root >= c->table.size || (!data && size > 0))
        return mm_set_last_error(MM_ERR_ARG, "broadcast: data is NULL, or there is no such root");
    mm_status status = MM_OK;
    for (size_t at = 0; at < size && status == MM_OK; at += BROADCAST) {
        int n = (int)(size - at < BROADCAST ? size - at : BROADCAST);
        status = check(MPI_Bcast((char *)data + at, n, MPI_BYTE, root, c->world), "MPI_Bcast");
    }
    return status;
}

static mm_status barrier(void *user)
{
    comm *c = user;
    return check(MPI_Barrier(c->world), "MPI_Barrier");
}

static mm_status end_all(void *user, const char *reason)
{
    comm *c = user;
    /* it does not return, so nobody else could tell */
    fprintf(stderr, "libminimind: rank %d of %d gives up: %s\n", (int)c->table.rank, (int)c->table.size,
            reason ? reason : "");
    return check(MPI_Abort(c->world, 1), "MPI_Abort");
}

static mm_status check_mpi(void)
{
    int there = 0, level = 0;
    if (MPI_Initialized(&there) != MPI_SUCCESS || !there)
        return mm_set_last_error(MM_ERR_STATE, "mm_comm_mpi_create: MPI is not initialised");
    if (MPI_Query_thread(&level) != MPI_SUCCESS || level < MPI_THREAD_SERIALIZED)
        return mm_set_last_error(MM_ERR_STATE,
                                 "mm_comm_mpi_create: MPI was initialised without MPI_THREAD_SERIALIZED; call "
                                 "MPI_Init_thread()");
    return MM_OK;
}

static mm_status fill(comm *c, MPI_Comm world)
{
    int rank = 0, size = 1;
    mm_status status = check(MPI_Comm_dup(world, &c->world), "MPI_Comm_dup");
    if (status == MM_OK)
        status = check(MPI_Comm_set_errhandler(c->world, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
    if (status == MM_OK)
        status = check(MPI_Comm_rank(c->world, &rank), "MPI_Comm_rank");
    if (status == MM_OK)
        status = check(MPI_Comm_size(c->world, &size), "MPI_Comm_size");
    if (status != MM_OK)
        return status;
    c->counts = calloc((size_t)size, sizeof *c->counts);
    c->places = calloc((size_t)size, sizeof *c->places);
    c->part = calloc((size_t)(ROUND / size + 1), sizeof *c->part);
    if (!c->counts || !c->places || !c->part)
        return mm_set_last_error(MM_ERR_MEMORY, "mm_comm_mpi_create: out of memory");
    c->table = (mm_comm){ sizeof c->table, c, rank, size, all_reduce, all_reduce_f64, broadcast, barrier, end_all };
    return MM_OK;
}

mm_status mm_comm_mpi_create(MPI_Comm world, mm_comm **out)
{
    if (!out)
        return mm_set_last_error(MM_ERR_ARG, "mm_comm_mpi_create: out is NULL");
    mm_status status = check_mpi();
    if (status != MM_OK)
        return status;
    comm *c = calloc(1, sizeof *c);
    if (!c)
        return mm_set_last_error(MM_ERR_MEMORY, "mm_comm_mpi_create: out of memory");
    c->world = MPI_COMM_NULL;
    status = fill(c, world);
    if (status != MM_OK) {
        mm_comm_mpi_free(&c->table);
        return status;
    }
    *out = &c->table;
    return MM_OK;
}

void mm_comm_mpi_free(mm_comm *table)
{
    comm *c = (comm *)table;
    if (!c)
        return;
    if (c->world != MPI_COMM_NULL)
        MPI_Comm_free(&c->world);
    free(c->counts);
    free(c->places);
    free(c->part);
    free(c);
}
