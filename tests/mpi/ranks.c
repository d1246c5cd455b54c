/* One rank of an MPI world: sums and broadcasts through libminimind-mpi, as a program that uses it would. Ends with 0
 * if all is right. With the argument "alone" MPI is left out, "single" initialises it for one thread: both are refused.
 * With "gives-up" the last rank does, while the others wait for it. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <minimind-mpi.h>
#include <minimind.h>

static int failures;

static void expect(int truth, const char *what)
{
    if (!truth) {
        printf("not true: %s (%s)\n", what, mm_last_error());
        failures++;
    }
}

/* The same bytes on all ranks? */
static int alike(const void *data, size_t size)
{
    unsigned char *first = malloc(size + 1);
    memcpy(first, data, size);
    MPI_Bcast(first, (int)size, MPI_BYTE, 0, MPI_COMM_WORLD);
    int same = memcmp(first, data, size) == 0, all = 0;
    MPI_Allreduce(&same, &all, 1, MPI_INT, MPI_LAND, MPI_COMM_WORLD);
    free(first);
    return all;
}

static void check_sums(mm_comm *c)
{
    static const int64_t counts[] = { 0, 1, 1000, 5001, 4300001 };
    for (size_t k = 0; k < sizeof counts / sizeof *counts; k++) {
        int64_t n = counts[k];
        float *x = malloc(((size_t)n + 1) * sizeof *x);
        double *y = malloc(((size_t)n + 1) * sizeof *y);
        for (int64_t i = 0; i < n; i++) {
            x[i] = (float)(i % 1000) + 0.1f * (float)c->rank;
            y[i] = (double)i + 0.25 * c->rank;
        }
        expect(c->all_reduce(c->user, x, n) == MM_OK, "all_reduce works");
        expect(c->all_reduce_f64(c->user, y, n) == MM_OK, "all_reduce_f64 works");
        double ranks = 0.5 * c->size * (c->size - 1);
        int close = 1; /* a sum that is NaN is not */
        for (int64_t i = 0; i < n; i++) {
            double a = x[i] - (c->size * (double)(i % 1000) + 0.1 * ranks),
                   b = y[i] - (c->size * (double)i + 0.25 * ranks);
            close = close && fabs(a) < 1e-2 && fabs(b) < 1e-2;
        }
        expect(close, "sums are sums");
        expect(alike(x, (size_t)n * sizeof *x), "all ranks have the same bits");
        expect(alike(y, (size_t)n * sizeof *y), "all ranks have the same bits in double precision");
        free(x);
        free(y);
    }
}

static void check_broadcast(mm_comm *c)
{
    for (int root = 0; root < c->size; root++) {
        char text[100] = "";
        if (c->rank == root)
            snprintf(text, sizeof text, "from rank %d", root);
        expect(c->broadcast(c->user, text, sizeof text, root) == MM_OK, "broadcast works");
        expect(text[10] == (char)('0' + root), "what the root has comes to all");
    }
    expect(c->broadcast(c->user, NULL, 1, 0) == MM_ERR_ARG, "no data is refused");
    expect(c->broadcast(c->user, "", 1, c->size) == MM_ERR_ARG, "no such root is refused");
    expect(c->all_reduce(c->user, NULL, 1) == MM_ERR_ARG, "no numbers are refused");
    expect(c->barrier(c->user) == MM_OK, "barrier works");
}

int main(int argc, char **argv)
{
    int level = 0;
    mm_comm *comm = NULL;
    const char *how = argc > 1 ? argv[1] : "";
    expect(mm_comm_mpi_create(MPI_COMM_WORLD, &comm) == MM_ERR_STATE, "without MPI_Init there is no communicator");
    if (strcmp(how, "alone") == 0)
        return failures;
    MPI_Init_thread(&argc, &argv, strcmp(how, "single") == 0 ? MPI_THREAD_SINGLE : MPI_THREAD_SERIALIZED, &level);
    if (level < MPI_THREAD_SERIALIZED) {
        expect(mm_comm_mpi_create(MPI_COMM_WORLD, &comm) == MM_ERR_STATE, "MPI for one thread is refused");
    } else {
        expect(mm_comm_mpi_create(MPI_COMM_WORLD, NULL) == MM_ERR_ARG, "out may not be NULL");
        expect(mm_comm_mpi_create(MPI_COMM_WORLD, &comm) == MM_OK, "a communicator is made");
        check_sums(comm);
        check_broadcast(comm);
        if (strcmp(how, "gives-up") == 0) {
            if (comm->rank == comm->size - 1)
                comm->abort(comm->user, "it has enough");
            comm->barrier(comm->user);
            printf("all went on\n");
        }
        mm_comm_mpi_free(comm);
        mm_comm_mpi_free(NULL);
    }
    MPI_Finalize();
    return failures > 0;
}
