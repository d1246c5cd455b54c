/**
 * @file minimind-mpi.h
 * A communicator over MPI, for mm_trainer_options.comm. It is a library of its own, libminimind-mpi, so that
 * libminimind itself never asks for MPI.
 *
 *     MPI_Init_thread(&argc, &argv, MPI_THREAD_SERIALIZED, &level);
 *     mm_comm *comm = NULL;
 *     mm_status status = mm_comm_mpi_create(MPI_COMM_WORLD, &comm);
 *     …
 *     mm_comm_mpi_free(comm);
 *     MPI_Finalize();
 *
 * Every sum is computed once and then dealt out, so all ranks have the same bits; in which order it is taken is MPI's
 * affair.
 */
#ifndef MINIMIND_MPI_H
#define MINIMIND_MPI_H

#include <mpi.h>

#include <minimind/comm.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * A communicator over a duplicate of `world`. Collective over all of it.
 *
 * @param out  Yours: pair it with mm_comm_mpi_free(), before MPI_Finalize(). Its abort() writes the reason to the standard
 *             error and is MPI_Abort() then: it ends the processes of all ranks, the caller's too. mm_trainer_run() calls it
 *             where it fails; a program that fails before that calls it by itself, or the others wait for it for ever.
 *
 * @return MM_OK; MM_ERR_ARG; MM_ERR_MEMORY; MM_ERR_STATE, MPI is not initialised, or with less than
 * MPI_THREAD_SERIALIZED (the trainer sends gradients from a thread of its own); MM_ERR_IO, MPI failed. Since: 0.1
 */
MM_API mm_status mm_comm_mpi_create(MPI_Comm world, mm_comm **out);

/** NULL is fine. Since: 0.1 */
MM_API void mm_comm_mpi_free(mm_comm *comm);

#ifdef __cplusplus
}
#endif

#endif
