#!/bin/sh
# libminimind-mpi under mpirun, on this machine alone.
#
#     test_mpi.sh SOURCE_ROOT MPIRUN RANKS_PROGRAM LIBRARY
set -u
root=$1
mpirun=$2
ranks=$3
library=$4
# shellcheck source=tests/tap.sh
. "$root/tests/tap.sh"

# As root, with more ranks than processors, without a network.
launch() {
    n=$1
    shift
    OMPI_MCA_rmaps_base_oversubscribe=1 timeout 120 "$mpirun" -n "$n" --allow-run-as-root --oversubscribe \
        --mca btl self,vader --mca plm isolated "$@"
}

core_is_free_of_mpi() {
    ldd "$library" | grep -i mpi | nothing
}

check "without MPI_Init there is no communicator" "$ranks" alone
check "MPI initialised for one thread is refused" launch 1 "$ranks" single
for n in 1 2 3; do
    check "$n ranks have the same sums and broadcasts" launch "$n" "$ranks"
done
check "libminimind itself does not know MPI" core_is_free_of_mpi
finish
