#!/bin/sh
# Learning sums from rewards, for a minute or two: from one model that has read sums of which every other is wrong, each algorithm
# earns visibly more at its end than at its beginning. Sixty steps gain 0.27 +- 0.07 with one seed or another, too near the bound
# for a processor that rounds differently; twice as many gain 0.40 +- 0.05.
#
#     test_rl.sh SOURCE_ROOT BUILD_ROOT
set -u
root=$1
bin=$2/examples
# shellcheck source=tests/tap.sh
. "$root/tests/tap.sh"

reads_lessons() {
    "$bin/rl" --lessons 1200 --steps 1 --work-dir "$work/rl"
}

# "mean reward: 0.508 in the first tenth of the steps, 0.904 in the last"
earns_more() {
    "$bin/rl" --model "$work/rl/lessons" --template minimind2 --data-path "$work/rl/sums.jsonl" --steps 120 \
        --work-dir "$work/rl-$2" "$@" >"$work/log"
    status=$?
    cat "$work/log"
    [ "$status" -eq 0 ] && awk '/^mean reward:/ { found = $11 > $3 + 0.15 } END { exit !found }' "$work/log"
}

check "a small model reads sums" reads_lessons
check "GRPO earns more by the end" earns_more --algorithm grpo
check "CISPO earns more by the end" earns_more --algorithm cispo
check "PPO earns more by the end" earns_more --algorithm ppo
finish
