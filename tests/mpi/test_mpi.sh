#!/bin/sh
# libminimind-mpi under mpirun, on this machine alone.
#
#     test_mpi.sh SOURCE_ROOT MPIRUN RANKS_PROGRAM LIBRARY [DIRECTORY_OF_EXAMPLES]
set -u
root=$1
mpirun=$2
ranks=$3
library=$4
examples=${5-}
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

# pretrain's run in $work/$out, with six rows a step for any number of ranks.
pretrain() {
    out=$1
    shift
    "$@" --data-path "$work/corpus.jsonl" --tokenizer "$work/tokenizer" --save-dir "$work/$out" --batch-size 6 \
        --max-seq-len 32 --hidden-size 32 --num-hidden-layers 2 --threads 1 --log-interval 1 --max-steps 12 \
        --accumulation-steps 3 --save-interval 3 >"$work/$out.log" || { cat "$work/$out.log"; return 1; }
}

# The losses that it prints.
losses() {
    pretrain "$@" || return 1
    sed -n 's/.*loss: \([0-9.]*\),.*/\1/p' "$work/$out.log" >"$work/$out.losses"
    cat "$work/$out.log"
    [ "$(wc -l <"$work/$out.losses")" -eq 12 ] && [ -f "$work/$out/pretrain.run/step-12/state.json" ]
}

gives_up() {
    launch 3 "$ranks" gives-up >"$work/gives-up.log" 2>&1
    [ $? -ne 0 ] && grep -q "libminimind: rank 2 of 3 gives up: it has enough" "$work/gives-up.log" &&
        ! grep -q "all went on" "$work/gives-up.log"
}

prepares() {
    "$examples/make_corpus" --bytes 100000 --out "$work/corpus.jsonl" &&
        "$examples/train_tokenizer" --quiet --vocab-size 600 --out "$work/tokenizer" "$work/corpus.jsonl"
}

# Printed with four digits: they may differ in the last.
agree() {
    paste "$work/$1.losses" "$work/$2.losses" | awk '{ d = $1 - $2; if (d < -0.00011 || d > 0.00011) { print; bad = 1 } } END { exit bad }'
}

two_processes() {
    pretrain other "$examples/pretrain" --comm "$1" --world-size 2 --rank 1 &
    losses "$2" "$examples/pretrain" --comm "$1" --world-size 2 --rank 0
    status=$?
    wait $! && [ "$status" -eq 0 ] # both are over before the next test begins
}

check "without MPI_Init there is no communicator" "$ranks" alone
check "MPI initialised for one thread is refused" launch 1 "$ranks" single
for n in 1 2 3; do
    check "$n ranks have the same sums and broadcasts" launch "$n" "$ranks"
done
check "a rank that gives up ends all and says why" gives_up
if [ -n "$examples" ]; then
    check "a corpus and a tokenizer are there" prepares
    check "pretrain runs alone" losses alone "$examples/pretrain"
    check "mpirun -n 2 pretrain runs, and rank 0 alone prints and saves" losses mpi launch 2 "$examples/pretrain" --comm mpi
    check "its losses are those of one process" agree alone mpi
    check "two processes of one machine do the same" two_processes "local:$work/meet" local
    check "their losses are those of one process" agree alone local
fi
check "libminimind itself does not know MPI" core_is_free_of_mpi
finish
