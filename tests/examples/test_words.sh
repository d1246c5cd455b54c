#!/bin/sh
# What the example programs say: about options that can't be meant, when a run ends early, to a terminal and to a full disk.
#
#     test_words.sh SOURCE_ROOT BUILD_ROOT
set -u
root=$1
build=$2
bin=$2/examples
# shellcheck source=tests/tap.sh
. "$root/tests/tap.sh"
# shellcheck source=tests/examples/support.sh
. "$root/tests/examples/support.sh"

"$bin/make_corpus" --bytes 30000 --out "$work/a.jsonl" && "$bin/make_corpus" --bytes 2000 --seed 2 --out "$work/held.jsonl" &&
    "$bin/train_tokenizer" --quiet --vocab-size 400 --out "$work/tokenizer" "$work/a.jsonl" 2>/dev/null
printf '{"conversations": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "well"}]}\n' >"$work/chat.jsonl"
set -- --tokenizer "$work/tokenizer" --data-path "$work/a.jsonl" --max-seq-len 32 --batch-size 2 --accumulation-steps 1 \
    --threads 1 --log-interval 1 --template minimind2
rows="$*" # no path here has a space in it
model=$work/out/pretrain

# learn OPTION…   A tiny model, by pretrain.
learn() {
    # shellcheck disable=SC2086
    "$bin/pretrain" $rows --hidden-size 32 --num-hidden-layers 1 --save-dir "$work/out" "$@" >"$work/log" 2>"$work/stderr"
    status=$?
    cat "$work/log" "$work/stderr"
    return $status
}

# --- The quickstart ---

looks_before_it_deletes() {
    mkdir -p "$work/quick/model" && : >"$work/quick/model/kept" || return 1
    ! "$root/examples/quickstart.sh" --no-build --build-dir "$work/nowhere" --out "$work/quick" >"$work/log" 2>&1 && cat "$work/log" &&
        grep -q "$work/nowhere" "$work/log" && [ -e "$work/quick/model/kept" ]
}

# Send SIGINT to the group of processes that quickstart.pid tells of when it trains; what does not end then is killed.
interrupt() {
    tries=0
    until [ -d "$work/quick/untrained.run" ] || [ $((tries += 1)) -gt 600 ]; do
        sleep 0.1
    done
    script=$(cat "$work/quickstart.pid")
    kill -INT "-${script:?}"
    tries=0
    while kill -0 "$script"; do
        sleep 0.1
        [ $((tries += 1)) -lt 200 ] || kill -KILL "-$script"
    done 2>/dev/null
}

# Ctrl-C goes to all of a terminal's processes. Training saves what it has and ends well, so the script has to know by itself.
quickstart_stops() {
    interrupt &
    # shellcheck disable=SC2016
    env --default-signal=INT bash -c 'set -m; bash "$@" & echo $! >"$0"; wait $!' "$work/quickstart.pid" "$root/examples/quickstart.sh" \
        --no-build --build-dir "$build" --out "$work/quick" --seconds 300 >"$work/log" 2>&1
    status=$?
    cat "$work/log"
    wait
    [ "$status" -eq 130 ] && grep -q '^4\. ' "$work/log" && ! grep -q '^5\. ' "$work/log" && ! grep -q '^> ' "$work/log"
}

check "a small model is there to speak of" learn --max-steps 2
check "the quickstart looks for its programs before it deletes" looks_before_it_deletes
if command -v bash >/dev/null && env --default-signal=INT true 2>/dev/null; then
    check "the quickstart ends at Ctrl-C" quickstart_stops
fi
finish
