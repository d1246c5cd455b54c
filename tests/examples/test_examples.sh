#!/bin/sh
# The example programs from outside: their help, their errors, and the quickstart from end to end, in a few seconds.
#
#     test_examples.sh SOURCE_ROOT BUILD_ROOT
set -u
root=$1
build=$2
bin=$2/examples
# shellcheck source=tests/tap.sh
. "$root/tests/tap.sh"
# shellcheck source=tests/examples/support.sh
. "$root/tests/examples/support.sh"

helps() {
    "$bin/$1" --help >"$work/help" && grep -q '^usage: ' "$work/help"
}

# lists_once PROGRAM [NAME…]   Under headings, each option in one line; NAMEs that mean the same as another one have none of their own.
lists_once() {
    helps "$1" && cat "$work/help" || return 1
    for heading in "This program's own" "Model and data" "Training" "Checkpoints and reports" "Several processes"; do
        [ "$(grep -cx "$heading:" "$work/help")" -eq 1 ] || return 1
    done
    grep -oE '^  --[a-z-]+' "$work/help" | sort >"$work/listed"
    shift
    for name; do
        ! grep -qx "  --$name" "$work/listed" && grep -qE ".*[^ ].*also --$name( |$)" "$work/help" || return 1
    done
    [ "$(wc -l <"$work/listed")" -gt 40 ] && uniq -d "$work/listed" | nothing
}

# What a run of rewards refuses is not offered.
offers_no_validation() {
    helps rl && ! grep -E -- '--(validation-path|eval-interval|patience) ' "$work/help" &&
        refuses "the stage policy has no validation" rl --lessons 0 --steps 1 --work-dir "$work/valid" \
            --validation-path "$work/asked.jsonl"
}

same_corpus_twice() {
    "$bin/make_corpus" --bytes 100000 --out "$work/a.jsonl" && "$bin/make_corpus" --bytes 100000 --seed 1 >"$work/b.jsonl" &&
        cmp "$work/a.jsonl" "$work/b.jsonl" && "$bin/make_corpus" --bytes 100000 --seed 2 >"$work/c.jsonl" &&
        ! cmp -s "$work/a.jsonl" "$work/c.jsonl"
}

# Half of one would be taken for it. What was there before stays.
leaves_no_half_corpus() {
    mkdir "$work/halves" && echo '{"text": "an older one"}' >"$work/halves/old.jsonl" && cp "$work/halves/old.jsonl" "$work/old.jsonl" || return 1
    for out in old new; do
        (ulimit -f 8 && exec "$bin/make_corpus" --bytes 100000 --out "$work/halves/$out.jsonl") 2>"$work/stderr"
        status=$?
        cat "$work/stderr"
        [ "$status" -eq 1 ] && grep -qx "make_corpus: can't write $work/halves/$out.jsonl" "$work/stderr" || return 1
    done
    [ "$(ls "$work/halves")" = old.jsonl ] && cmp "$work/halves/old.jsonl" "$work/old.jsonl"
}

# Also where what is written to is no file, and stays what it is.
writes_to_a_pipe() {
    mkfifo "$work/pipe" || return 1
    "$bin/make_corpus" --bytes 100000 --out "$work/pipe" &
    cmp "$work/a.jsonl" - <"$work/pipe" && wait $! && [ -p "$work/pipe" ]
}

corpus_is_varied() {
    rows=$(wc -l <"$work/a.jsonl")
    [ "$(sort -u "$work/a.jsonl" | wc -l)" -ge $((rows * 95 / 100)) ] && ! grep -nE '[][{}|;].*[][{}|;].*[][{}|;]' "$work/a.jsonl"
}

# The tokenizer reads it with the library's own reader, which refuses a damaged line.
trains_a_tokenizer() {
    "$bin/train_tokenizer" --quiet --vocab-size 600 --out "$work/tokenizer" "$work/a.jsonl" &&
        "$bin/tokenize" --tokenizer "$work/tokenizer" "Once upon a time" >"$work/ids" && grep -q "[0-9]" "$work/ids"
}

trains_from_text() {
    printf 'to be or not to be\nthat is the question' >"$work/plain.txt"
    "$bin/train_tokenizer" --quiet --vocab-size 270 --special '<s>' --special '</s>' --out "$work/plain" "$work/plain.txt" &&
        grep -q '"</s>"' "$work/plain/tokenizer.json"
}

# Of several files, which; of its lines, not of all that were read.
refuses_what_is_no_text() {
    printf 'good\ngood\nb\377d\ngood\n' >"$work/latin.txt"
    refuses "latin.txt:3: .*not UTF-8 at byte 1 " train_tokenizer --out "$work/x" "$work/plain.txt" "$work/latin.txt" "$work/plain.txt"
}

# Ids give the text again, whether words or a file have them, with spaces or commas. Nothing gives nothing.
ids_become_text() {
    printf 'Grüße,\t世界\n<|im_end|> x' >"$work/words.txt"
    set -- "$bin/tokenize" --tokenizer "$work/tokenizer"
    "$@" <"$work/words.txt" >"$work/ids" && "$@" "$(cat "$work/words.txt")" | cmp "$work/ids" - && echo >>"$work/words.txt" &&
        "$@" --decode <"$work/ids" | cmp "$work/words.txt" - || return 1
    # shellcheck disable=SC2046
    "$@" --decode $(cat "$work/ids") | cmp "$work/words.txt" - &&
        "$@" --decode "$(tr ' ' , <"$work/ids")" | cmp "$work/words.txt" - || return 1
    echo >"$work/empty"
    "$@" </dev/null | cmp "$work/empty" - && "$@" --decode </dev/null | cmp "$work/empty" -
}

refuses_what_is_no_id() {
    set -- tokenize --tokenizer "$work/tokenizer"
    for bad in x 35x -1 4294967299 99999999999999999999; do
        refuses "\"[0-9x-]*\" is not a token id" "$@" --decode 35 "$bad" || return 1
    done
    printf '35\000 36\n' | refuses "\"\" is not a token id" "$@" --decode && refuses "99999 is out of range" "$@" --decode 99999 &&
        printf 'ab\377' | refuses "not UTF-8 at byte 2" "$@"
}

data_is_reported() {
    rows=$(wc -l <"$work/a.jsonl")
    "$bin/dataset" --tokenizer "$work/tokenizer" "$work/a.jsonl" >"$work/report" && grep -q "^$rows rows, 0 bad lines, " "$work/report" &&
        "$bin/dataset" --tokenizer "$work/tokenizer" "$work/bad.jsonl" >"$work/report" 2>"$work/bad" &&
        grep -q '^1 row, 1 bad line, ' "$work/report" && grep -q 'bad.jsonl:2: "text" is an integer' "$work/bad" || return 1
    sed -n 2p "$work/bad.jsonl" >"$work/worse.jsonl" # as a program that trains on it has it: some bad lines are passed over, not all
    ! "$bin/dataset" --tokenizer "$work/tokenizer" "$work/worse.jsonl" >"$work/report" 2>"$work/bad" &&
        grep -q '^0 rows, 1 bad line, ' "$work/report" && grep -q 'there is nothing to train on: .*worse.jsonl$' "$work/bad"
}

answers_are_marked() {
    printf '{"conversations": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "well"}]}' >"$work/chat.jsonl"
    "$bin/dataset" --tokenizer "$work/tokenizer" --kind chat --row 0 "$work/chat.jsonl" >"$work/row" && cat "$work/row" &&
        grep -q '^\[\[well<|im_end|>$' "$work/row" && grep -q '^hi<|im_end|>$' "$work/row"
}

quickstart_runs() {
    "$root/examples/quickstart.sh" --no-build --build-dir "$build" --out "$work/it's quick" --seconds 3 >"$work/said" ||
        { cat "$work/said"; return 1; }
    tail -n 1 "$work/said" | sed 's/$/ --max-new-tokens 4/' >"$work/typed" && echo hi | sh "$work/typed" && # what it says to type
        mv "$work/it's quick" "$work/quickstart" && grep -qx "the model is in $work/it's quick/pretrained" "$work/said" &&
        grep -q '<h3>Loss</h3>' "$work/quickstart/pretrained.run/report/report.html" &&
        grep -q '“Once upon a time, there was a”' "$work/quickstart/pretrained.run/report/metrics.jsonl"
}

distills() {
    "$bin/make_corpus" --kind chat --bytes 20000 --out "$work/talk.jsonl" &&
        "$bin/distill" --from-student-weight "$model" --from-teacher-weight "$model" --template minimind2 --max-seq-len 64 \
            --data-path "$work/talk.jsonl" --write-cache "$work/teacher.safetensors" --top-k 8 &&
        "$bin/distill" --from-student-weight "$model" --teacher-cache "$work/teacher.safetensors" --template minimind2 \
            --max-seq-len 64 --data-path "$work/talk.jsonl" --save-dir "$work/distilled" --max-steps 2 --log-interval 1 >"$work/log" &&
        grep -q 'kl: ' "$work/log" && [ -s "$work/distilled/full_dist/model.safetensors" ]
}

# It has 128 positions, fewer than what the programs take where they are told nothing. What they are told is refused by its name.
works_with_few_positions() {
    printf '{"conversations": [{"role": "user", "content": "1+1="}, {"role": "assistant", "content": "2"}]}\n' >"$work/sum.jsonl"
    set -- --model "$work/rl/lessons"
    "$bin/generate" "$@" --prompt "1+1=" >"$work/text" && "$bin/generate" "$@" --prompt-ids "$(seq -s, 3 129)" >"$work/text" &&
        [ "$(wc -l <"$work/text")" -eq 1 ] && echo "1+1=" | "$bin/chat" "$@" --template minimind2 >"$work/text" &&
        [ "$(wc -l <"$work/text")" -ge 1 ] && "$bin/evaluate" loss --kind chat "$@" --template minimind2 --data "$work/sum.jsonl" &&
        refuses "128 positions, too few .* --max-new-tokens 128" generate "$@" --prompt "1+1=" --max-new-tokens 128 &&
        refuses "128 positions, too few for a prompt of 128 tokens" generate "$@" --prompt-ids "$(seq -s, 3 130)" &&
        refuses "--context is 129, .* 128 positions" chat "$@" --template minimind2 --context 129 &&
        refuses "--context is 0, .* 128 positions" chat "$@" --template minimind2 --context 0
}

wait_for_epochs() {
    tries=0
    until grep -q '^Epoch' "$work/log" || [ $((tries += 1)) -gt 200 ]; do
        sleep 0.1
    done
}

# The signal comes when the first line of the log says that training is under way.
stops_and_goes_on() {
    set -- --tokenizer "$work/tokenizer" --data-path "$work/a.jsonl" --hidden-size 64 --num-hidden-layers 1 --max-seq-len 32 \
        --batch-size 2 --save-dir "$work/stopped" --log-interval 1 --epochs 50
    : >"$work/log" # the one before has such lines too
    "$bin/pretrain" "$@" >"$work/log" &
    pid=$!
    wait_for_epochs
    kill -TERM $pid && wait $pid && grep -q '^stopped before the end' "$work/log" &&
        "$bin/pretrain" "$@" --from_resume=1 --max-seconds 0.01 >"$work/log" && grep '^going on from step [1-9]' "$work/log"
}

# The reader of a log that goes, and a terminal that goes: neither takes a step with it. The log is longer than any pipe holds.
keeps_what_a_closed_pipe_saw() {
    set -- --tokenizer "$work/tokenizer" --data-path "$work/a.jsonl" --hidden-size 64 --num-hidden-layers 1 --max-seq-len 32 \
        --batch-size 2 --save-dir "$work/piped" --log-interval 1 --epochs 50000 --max-seconds 100
    "$bin/pretrain" "$@" | grep -m 3 '^Epoch' >"$work/log"
    "$bin/pretrain" "$@" --from-resume 1 --max-seconds 0.01 >"$work/log" && grep '^going on from step [1-9]' "$work/log"
}

# From a suite that nohup began nobody hears a hangup, and no shell can change that.
hears_hangups() {
    ! sh -c 'kill -HUP $$' 2>/dev/null
}

# An interactive shell sends one, and the system another, which the process may get as one; and some come too late.
stops_when_its_terminal_goes() {
    set -- --tokenizer "$work/tokenizer" --data-path "$work/a.jsonl" --hidden-size 64 --num-hidden-layers 1 --max-seq-len 32 \
        --batch-size 2 --save-dir "$work/hung" --log-interval 1 --epochs 50000 --max-seconds 100
    : >"$work/log"
    "$bin/pretrain" "$@" >"$work/log" &
    pid=$!
    wait_for_epochs
    for _ in 1 2 3 4 5 6 7 8 9; do
        kill -HUP $pid 2>/dev/null
    done
    wait $pid
    [ -s "$work/hung/pretrain.run/latest" ] && [ -s "$work/hung/pretrain/model.safetensors" ]
}

# As nohup has it: who asked for a run that stays gets it.
stays_where_hangups_are_ignored() {
    set -- --tokenizer "$work/tokenizer" --data-path "$work/a.jsonl" --hidden-size 64 --num-hidden-layers 1 --max-seq-len 32 \
        --batch-size 2 --save-dir "$work/stays" --log-interval 1 --epochs 50000 --max-seconds 100
    : >"$work/log"
    (trap '' HUP && exec "$bin/pretrain" "$@" >>"$work/log") &
    pid=$!
    wait_for_epochs
    kill -HUP $pid
    : >"$work/log"
    wait_for_epochs
    kill -TERM $pid && wait $pid && grep -q '^stopped before the end' "$work/log"
}

# A run that fails before its first step, and one of another stage, leave what the last one wrote.
leaves_what_was() {
    set -- --tokenizer "$work/tokenizer" --max-seq-len 32 --batch-size 2 --save-dir "$work/kept" --max-steps 2 --accumulation-steps 1
    "$bin/pretrain" "$@" --data-path "$work/a.jsonl" --hidden-size 64 --num-hidden-layers 1 >"$work/log" &&
        cp -r "$work/kept/pretrain.run" "$work/before.run" || return 1
    "$bin/pretrain" "$@" --data-path "$work/plain.txt" --hidden-size 64 --num-hidden-layers 1 2>"$work/stderr" && return 1
    cat "$work/stderr"
    grep -q 'plain.txt:1: ' "$work/stderr" && ! grep -q 'saved in' "$work/stderr" &&
        "$bin/sft" "$@" --data-path "$work/chat.jsonl" --template minimind2 --max-seq-len 128 --report "$work/elsewhere" >"$work/log" &&
        diff -r "$work/before.run" "$work/kept/pretrain.run" && [ -s "$work/kept/full_sft.run/latest" ] &&
        [ -s "$work/elsewhere/report.html" ] && [ ! -e "$work/kept/full_sft.run/report" ]
}

# Names of files are bytes: what is no UTF-8 stands in the report as well as it can.
reports_on_any_path() {
    odd=$work/$(printf 'd\351j\340')
    mkdir "$odd" && cp "$work/a.jsonl" "$odd/rows.jsonl" &&
        "$bin/pretrain" --tokenizer "$work/tokenizer" --data-path "$odd/rows.jsonl" --hidden-size 64 --num-hidden-layers 1 \
            --max-seq-len 32 --batch-size 2 --save-dir "$odd/out" --max-steps 2 >"$work/log" 2>"$work/stderr"
    cat "$work/log" "$work/stderr"
    [ "$(wc -l <"$odd/out/pretrain.run/report/metrics.jsonl")" -eq 2 ] && nothing <"$work/stderr" &&
        grep -q '<h1>pretrain: .*/d?j?/out/pretrain</h1>' "$odd/out/pretrain.run/report/report.html" &&
        grep -q '/d?j?/rows.jsonl</dd>' "$odd/out/pretrain.run/report/report.html"
}

# A file that happens to have the name of a saved model is not taken for it.
finds_models_by_name() {
    (cd "$work" && : >pretrain && "$bin/sft" --tokenizer "$work/tokenizer" --max-seq-len 128 --save-dir "$work/kept" --max-steps 1 \
        --data-path "$work/chat.jsonl" --template minimind2 --save-weight "$work/kept/named/") >"$work/log" &&
        [ -s "$work/kept/named/model.safetensors" ] && [ -s "$work/kept/named.run/latest" ]
}

# By MiniMind's names, and what becomes of them.
computes_in() {
    "$bin/pretrain" --tokenizer "$work/tokenizer" --data-path "$work/a.jsonl" --hidden-size 64 --num-hidden-layers 1 \
        --max-seq-len 32 --batch-size 2 --save-dir "$work/$1" --max-steps 2 --accumulation-steps 1 --dtype "$1" &&
        grep -qE "\"compute\": \"$2\"" "$work/$1/pretrain.run/step-2/state.json"
}

refuses_prompts() {
    printf '{"chosen": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "x"}], "rejected": [{"role": "user", "content": "b"}, {"role": "assistant", "content": "y"}]}\n' >"$work/mixed.jsonl"
    ! "$bin/dpo" --data-path "$work/mixed.jsonl" --from-weight "$model" --template minimind2 --save-dir "$work/dpo" \
        --max-seq-len 64 2>"$work/stderr" && cat "$work/stderr" && grep -q 'mixed.jsonl:1: .*different prompts' "$work/stderr"
}

# A question that fills all of the row, and one that leaves room for its answer.
tells_what_is_cut() {
    long=$(printf 'why %.0s' $(seq 60))
    printf '{"conversations": [{"role": "user", "content": "%s"}, {"role": "assistant", "content": "yes"}]}\n' "$long" a >"$work/cut.jsonl"
    "$bin/sft" --data-path "$work/cut.jsonl" --from-weight "$model" --template minimind2 --save-dir "$work/full" --max-steps 1 \
        --max-seq-len 60 >"$work/log" && grep -qx "$work/cut.jsonl: nothing to learn within --max-seq-len 60 tokens in 1 of 2 rows looked at" "$work/log" &&
        "$bin/sft" --data-path "$work/cut.jsonl" --from-weight "$model" --template minimind2 --save-dir "$work/full" --max-steps 1 \
            --max-seq-len 512 >"$work/log" && ! grep -q 'nothing to learn' "$work/log"
}

model=$work/quickstart/pretrained

generates_in_blocks() {
    for dtype in f32 bf16 q8_0 q4_0; do
        "$bin/generate" --model "$model" --bos --prompt "Once upon a time" --max-new-tokens 8 --greedy --dtype $dtype >"$work/text" &&
            grep -q "[^[:space:]]" "$work/text" || return 1
    done
    ! "$bin/generate" --model "$model" --prompt a --dtype f64 2>"$work/stderr" && grep -q -e '--dtype is f32' "$work/stderr" &&
        ! "$bin/generate" --model "$model" --prompt a --deny 3 2>"$work/stderr" && grep -q -e '--deny is no option' "$work/stderr"
}

generates_text() {
    "$bin/generate" --model "$model" --bos --prompt "Once upon a time" --max-new-tokens 20 --seed 3 "$@" >"$work/text" &&
        grep -q "[^[:space:]]" "$work/text"
}

same_seed_same_text() {
    generates_text --temperature 1 --top-p 1 --threads 1 && cp "$work/text" "$work/text1" &&
        generates_text --temperature 1 --top-p 1 --threads 2 && cmp "$work/text" "$work/text1" &&
        generates_text --temperature 1 --top-p 1 --threads 1 --seed 4 && ! cmp -s "$work/text" "$work/text1"
}

ids_give_ids() {
    "$bin/generate" --model "$model" --prompt-ids "5, 17,9" --greedy --max-new-tokens 6 --stats >"$work/ids" 2>"$work/stats" &&
        grep -qxE '[0-9]+(,[0-9]+){0,5}' "$work/ids" && grep -q 'tokens/s' "$work/stats"
}

without_tokenizer() {
    mkdir "$work/bare" && cp "$model/config.json" "$model/model.safetensors" "$work/bare/" &&
        "$bin/generate" --model "$work/bare" --prompt-ids 5,17,9 --greedy --max-new-tokens 6 >"$work/ids2" &&
        cmp "$work/ids" "$work/ids2"
}

# The sizes that a program of bench has, small.
bench_sizes() {
    case "$*" in
    *"--of decode"* | decode*) echo --new-tokens 4 ;;
    kernels* | scaling*) echo --batch-size 1 --max-seq-len 32 --new-tokens 4 ;;
    train*) echo --batch-size 1 --max-seq-len 32 ;;
    prefill*) echo --max-seq-len 32 ;;
    batch*) echo --new-tokens 4 --sequences 3 ;;
    esac
}

# Every program of bench on the smallest preset, a JSON object a line with what all have in common.
bench_measures() {
    # shellcheck disable=SC2046
    (cd "$work" && "$bin/bench" "$@" --preset minillm-tiny $(bench_sizes "$@") --repeat 1 --json >"$work/bench" && [ -s "$work/bench" ]) &&
        ! grep -vqE '^\{"what": "[a-z-]+", "preset": "minillm-tiny", "dtype": "[a-z0-9_]+", "threads": [0-9]+, .*"tokens_per_s": [0-9].*\}$' \
            "$work/bench" && ! grep -qE 'nan|inf' "$work/bench" &&
        ! { grep '"sgemm_gflops"' "$work/bench" | grep -vqE '"sgemm_core": "[A-Za-z0-9_]+"'; } && [ -z "$(find "$work" -name 'bench-start-*')" ]
}

# What --dtype and --compute ask for; the first word is what comes of them.
bench_computes_in() {
    wanted=$1
    shift
    bench_measures "$@" && grep -q "\"compute\": \"$wanted\"" "$work/bench" && ! grep -v "\"compute\": \"$wanted\"" "$work/bench"
}

# Beside what is read in other dtypes.
bench_trains_in_float32() {
    bench_measures scaling --dtype bf16 --threads 1 && cat "$work/bench" &&
        [ "$(sed -n 's/.*"scaling-\([a-z]*\)".*"dtype": "\([a-z0-9]*\)".*"compute": "\([a-z0-9]*\)".*/\1 \2 \3/p' "$work/bench")" = \
            "train f32 f32
prefill bf16 bf16
decode bf16 bf16" ]
}

# bench_not OPTION VALUE WHAT…   It is for none of these.
bench_not() {
    option=$1
    value=$2
    shift 2
    for what; do
        # shellcheck disable=SC2086
        refuses "$option is for .*, not for ${what##* }$" bench $what $option $value || return 1
    done
}

bench_refuses_options_of_others() {
    bench_not --of train train decode start attention && bench_not --dtype q8_0 train attention "kernels --of train" &&
        bench_not --cache-dtype bf16 train start attention "scaling --of train" && bench_not --past 4 prefill kernels &&
        bench_not --batch-size 1 prefill decode batch start attention "scaling --of decode" &&
        bench_not --max-seq-len 32 decode batch start "kernels --of decode" && bench_not --new-tokens 4 train prefill start attention &&
        bench_not --sequences 2 decode scaling && bench_not --kernels c kernels &&
        bench_not --data-path "$work/a.jsonl --tokenizer $work/tokenizer" prefill decode batch start attention "scaling --of prefill"
}

bench_long_context() {
    (cd "$work" && "$bin/bench" attention --preset minimind2-small --max-seq-len 1500 --repeat 1 --threads 1 --json) >"$work/bench" || return 1
    cat "$work/bench"
    [ "$(sed -n 's/.*"length": \([0-9]*\), .*"activation_bytes": [0-9].*/\1/p' "$work/bench" | tr '\n' ' ')" = "512 1024 " ]
}

# Less than it usually begins with is measured all the same.
bench_short_context() {
    for length in 1 100 256; do
        (cd "$work" && "$bin/bench" attention --preset minillm-tiny --max-seq-len $length --repeat 1 --threads 1 --json) >"$work/bench" || return 1
        cat "$work/bench"
        [ "$(sed -n 's/.*"length": \([0-9]*\), .*"attention_us_per_token": -\{0,1\}[0-9].*/\1/p' "$work/bench")" = $length ] || return 1
    done
}

# A few steps on sums, and from the model they begin with on questions of one's own.
rewards_are_learnt_from() {
    "$bin/rl" --lessons 3 --steps 2 --batch 2 --group 2 --work-dir "$work/rl" >"$work/learnt" &&
        grep -qE '^mean reward: [0-9.]+ in the first tenth of the steps, [0-9.]+ in the last$' "$work/learnt" &&
        printf '{"question": "How many?", "answer": "Two and two are four. #### 4"}\n' >"$work/questions.jsonl" &&
        "$bin/rl" --model "$work/rl/lessons" --template minimind2 --data-path "$work/questions.jsonl" --algorithm ppo \
            --updates 2 --steps 4 --batch 1 --group 3 --min-chars 1 --max-chars 9 --repetition 1 --work-dir "$work/rl2" &&
        [ -s "$work/rl2/model/model.safetensors" ]
}

# It learns from rewards alone.
reads_no_lessons() {
    "$bin/rl" --lessons 0 --steps 1 --batch 2 --group 2 --work-dir "$work/unread" >"$work/learnt" && ! grep lessons "$work/learnt" &&
        [ ! -e "$work/unread/lessons.jsonl" ] && [ -s "$work/unread/lessons/model.safetensors" ]
}

# What the run says of its rewards is of the steps that it has seen itself, be they few.
tells_of_steps_that_were_seen() {
    set -- --model "$work/rl/lessons" --template minimind2 --data-path "$work/rl/sums.jsonl" --steps 10 --batch 2 --group 2 \
        --min-chars 1 --max-chars 3 --log-interval 1 --work-dir "$work/rl4"
    "$bin/rl" "$@" --max-seconds 0.001 >"$work/begun" && "$bin/rl" "$@" --from-resume 1 >"$work/ended" &&
        "$bin/rl" "$@" --from-resume 1 >"$work/nothing" || return 1
    for part in begun:first ended:last; do
        tail -n 3 "$work/${part%:*}"
        awk -v tenth="${part#*:}" '/^Epoch/ { sub(/.* reward: /, ""); told = $1 + 0 }
            /^mean reward:/ { d = $3 - told; n += $0 ~ "[0-9] in the " tenth " tenth of the steps$" && d * d < 1e-6 }
            END { exit n != 1 }' "$work/${part%:*}" || return 1
    done
    ! grep 'mean reward' "$work/nothing"
}

# Ranks write the same files into one directory: who reads one already must not see it cut. In the end each has its own name.
learns_from_rewards_among_ranks() {
    mkdir "$work/ranks" || return 1
    for name in lessons sums; do
        echo whole >"$work/ranks/$name.jsonl" && ln "$work/ranks/$name.jsonl" "$work/read-$name" || return 1
    done
    set -- "$bin/rl" --lessons 3 --steps 2 --batch 2 --group 2 --work-dir "$work/ranks" --comm "local:$work/ranks-meet" --world-size 2
    "$@" --rank 1 >"$work/second" &
    "$@" --rank 0 && wait $! && ! grep 'mean reward' "$work/second" && [ "$(cat "$work/read-lessons" "$work/read-sums")" = "whole
whole" ] && [ "$(wc -l <"$work/ranks/lessons.jsonl")" -eq 200 ] && [ "$(wc -l <"$work/ranks/sums.jsonl")" -eq 100 ] &&
        [ "$(ls "$work/ranks" | tr '\n' ' ')" = "lessons lessons.jsonl model model.run sums.jsonl " ]
}

# One conversation, seen often: with the adapter the model says what it learnt, without it what it said before.
learns_an_adapter() {
    "$bin/generate" --model "$model" --prompt "hi" --greedy --max-new-tokens 8 >"$work/before" &&
        "$bin/lora" --model "$model" --data-path "$work/chat.jsonl" --save_dir "$work/lora" --lora-name well --epochs 60 \
            --batch-size 1 --max-seq-len 48 --learning-rate 0.003 --log-interval 1 --targets '*' >"$work/losses" && cat "$work/losses" &&
        [ -s "$work/lora/well/adapter_model.safetensors" ] && grep -q '"peft_type": "LORA"' "$work/lora/well/adapter_config.json" &&
        "$bin/lora" --model "$model" --data-path "$work/chat.jsonl" --save-dir "$work/lora" --lora-name more --epochs 1 \
            --from-lora "$work/lora/well" --batch-size 1 --max-seq-len 48 >"$work/more" && cat "$work/more" &&
        awk -F'[:,] ' '/loss/ { if (!first++) begin = $3; end = $3 } END { exit !(end < 0.75 * begin) }' "$work/losses" "$work/more"
}

generates_with_an_adapter() {
    "$bin/generate" --model "$model" --adapter "$work/lora/well" --prompt "hi" --greedy --max-new-tokens 8 >"$work/with" &&
        "$bin/generate" --model "$model" --prompt "hi" --greedy --max-new-tokens 8 >"$work/after" &&
        cmp "$work/before" "$work/after" && ! cmp -s "$work/before" "$work/with"
}

# In half the room, with its tokenizer, and the same words as from weights that are turned into fewer bits when they are loaded.
converts() {
    "$bin/convert" --model "$model" --dtype bf16 --out "$work/half" &&
        [ $(($(wc -c <"$work/half/model.safetensors") * 10)) -lt $(($(wc -c <"$model/model.safetensors") * 6)) ] &&
        "$bin/generate" --model "$model" --dtype bf16 --prompt "hi" --greedy --max-new-tokens 8 >"$work/loaded" &&
        "$bin/generate" --model "$work/half" --prompt "hi" --greedy --max-new-tokens 8 | cmp "$work/loaded" - &&
        printf 'hi\n' | "$bin/chat" --model "$work/half" --temperature 0 --max-new-tokens 4 &&
        "$bin/convert" --model "$work/half" --dtype f32 --out "$work/whole" &&
        "$bin/generate" --model "$work/whole" --prompt "hi" --greedy --max-new-tokens 8
}

# A quantized directory runs as one that is quantized when it is loaded; what is made of it is what is made of the model.
converts_into_blocks() {
    rows=$(wc -c <"$model/model.safetensors")
    for numbers in q8_0 q4_0; do
        "$bin/convert" --model "$model" --dtype $numbers --out "$work/$numbers" &&
            [ $(($(wc -c <"$work/$numbers/model.safetensors") * 10)) -lt $((rows * 3)) ] &&
            "$bin/generate" --model "$model" --dtype $numbers --prompt "hi" --greedy --max-new-tokens 8 >"$work/loaded" &&
            "$bin/generate" --model "$work/$numbers" --prompt "hi" --greedy --max-new-tokens 8 | cmp "$work/loaded" - || return 1
    done
    printf 'hi\n' | "$bin/chat" --model "$work/q8_0" --temperature 0 --max-new-tokens 4 &&
        "$bin/convert" --model "$work/q8_0" --out "$work/again" && cmp "$work/q8_0/model.safetensors" "$work/again/model.safetensors" &&
        "$bin/convert" --model "$work/q8_0" --gguf "$work/again.gguf" && "$bin/convert" --model "$model" --dtype q8_0 --gguf "$work/once.gguf" &&
        cmp "$work/once.gguf" "$work/again.gguf" && "$bin/convert" --model "$work/q4_0" --dtype f32 --out "$work/whole" &&
        "$bin/evaluate" loss --kind chat --model "$work/q4_0" --data "$work/chat.jsonl" --batch 1 --max-length 48 &&
        refuses "float32" sft --from-weight "$work/q8_0" --data-path "$work/chat.jsonl" --template minimind2 --save-dir "$work/none" &&
        refuses "the weights are q8_0" convert --model "$work/q8_0" --adapter "$work/lora/well" --out "$work/none" && [ ! -e "$work/none" ]
}

merges_an_adapter() {
    "$bin/convert" --model "$model" --adapter "$work/lora/well" --out "$work/merged" &&
        "$bin/generate" --model "$work/merged" --prompt "hi" --greedy --max-new-tokens 8 | cmp "$work/with" - &&
        "$bin/convert" --model "$work/bare" --dtype bf16 --out "$work/bare-half" && [ ! -e "$work/bare-half/tokenizer.json" ] &&
        "$bin/generate" --model "$work/bare-half" --prompt-ids 5,17,9 --greedy --max-new-tokens 2
}

torch_file() {
    "$python" "$root/tests/examples/torch_file.py" "$@"
}

# Its weights, by their names, as torch.save() keeps them; and back, to the same bytes.
writes_for_torch() {
    "$bin/convert" --model "$model" --pth "$work/model.pth" && torch_file same "$model/model.safetensors" "$work/model.pth" &&
        cp "$work/model.pth" "$work/once.pth" && "$bin/convert" --model "$model" --pth "$work/model.pth" &&
        cmp "$work/once.pth" "$work/model.pth" && [ -z "$(find "$work" -name "model.pth.*")" ] &&
        "$bin/convert" --model "$work/model.pth" --config "$model/config.json" --tokenizer "$model" --out "$work/back" &&
        cmp "$model/model.safetensors" "$work/back/model.safetensors" && cmp "$model/tokenizer.json" "$work/back/tokenizer.json" &&
        "$bin/convert" --model "$work/model.pth" --config "$model/config.json" --out "$work/bare" | grep -q "a tokenizer, which --tokenizer DIR" &&
        "$bin/convert" --model "$work/half" --pth "$work/model.pth" && torch_file same "$work/half/model.safetensors" "$work/model.pth" &&
        refuses "what is there is no zip, and stays" convert --model "$model" --pth "$model/config.json" &&
        refuses "of a .pth --dtype is f32 or bf16, not q4_0" convert --model "$model" --dtype q4_0 --pth "$work/no.pth" &&
        refuses "of a .pth --dtype is f32 or bf16, not q8_0" convert --model "$work/q8_0" --pth "$work/no.pth" &&
        refuses "can't write /no/such/model.pth" convert --model "$model" --pth /no/such/model.pth &&
        refuses "one of --out, --gguf and --pth" convert --model "$model" --pth "$work/no.pth" --out "$work/none" && [ ! -e "$work/no.pth" ]
}

# In whichever way they lie there, with the config and the tokenizer beside the file.
reads_from_torch() {
    mkdir -p "$work/torch" && cp "$model/config.json" "$model/tokenizer.json" "$model/tokenizer_config.json" "$work/torch" || return 1
    file=$work/torch/full_sft.pth
    for form in plain ordered nested parameters strided apart newer; do
        torch_file make $form "$model/model.safetensors" "$file" && "$bin/convert" --model "$file" --out "$work/taken" &&
            cmp "$model/model.safetensors" "$work/taken/model.safetensors" && cmp "$model/tokenizer.json" "$work/taken/tokenizer.json" ||
            { echo "$form" && return 1; }
    done
    refuses "full_sft.pth is a file: a model is a directory, and convert makes one of a .pth or a GGUF" generate --model "$file" --prompt hi || return 1
    # MiniMind saves half precision: the directory has it, too, and what is made of both is the same
    torch_file make half "$model/model.safetensors" "$file" && "$bin/convert" --model "$file" --out "$work/taken" &&
        [ $(($(wc -c <"$work/taken/model.safetensors") * 10)) -lt $(($(wc -c <"$model/model.safetensors") * 6)) ] &&
        "$bin/generate" --model "$work/taken" --prompt "hi" --greedy --max-new-tokens 4 &&
        "$bin/convert" --model "$work/taken" --gguf "$work/a.gguf" --dtype q8_0 && "$bin/convert" --model "$file" --gguf "$work/b.gguf" --dtype q8_0 &&
        cmp "$work/a.gguf" "$work/b.gguf" && (cd "$work/torch" && "$bin/convert" --model full_sft.pth --dtype f32 --pth "$work/c.pth")
}

# MiniMind's LoRA is a file of its own, whose factor is 1.
takes_lora_from_torch() {
    file=$work/torch/lora.pth
    torch_file make lora "$work/lora/well/adapter_model.safetensors" "$file" &&
        TMPDIR=$work "$bin/convert" --model "$model" --adapter "$file" --out "$work/lora-merged" && [ -z "$(find "$work" -type f -name 'minimind-??????')" ] &&
        cmp "$work/merged/model.safetensors" "$work/lora-merged/model.safetensors" &&
        refuses "lora.A.weight is of a LoRA, which --adapter is for" convert --model "$file" --out "$work/none" &&
        torch_file make plain "$model/model.safetensors" "$work/torch/no.pth" &&
        refuses "no.pth: model.embed_tokens.weight is no part of a LoRA" convert --model "$model" --adapter "$work/torch/no.pth" --out "$work/none" &&
        refuses "lora.pth: " convert --model "$work/other/pretrain" --adapter "$file" --out "$work/none" &&
        TMPDIR=/no/such refuses "can't write /no/such/minimind-.*: No such" convert --model "$model" --adapter "$file" --out "$work/none" &&
        [ ! -e "$work/none" ]
}

# torch_not FORM MESSAGE
torch_not() {
    torch_file make "$1" "$model/model.safetensors" "$work/torch/no.pth" && refuses "$2" convert --model "$work/torch/no.pth" --out "$work/none"
}

refuses_what_torch_did_not_save() {
    torch_not double "no.pth: model.embed_tokens.weight is F64, weights may be" && torch_not whole "is I64, weights may be" &&
        torch_not beyond "model.norm.weight has numbers beyond those that are stored" && torch_not far "model.norm.weight has numbers beyond" &&
        torch_not negative "model.norm.weight is not as torch.save() describes" && torch_not endless "model.norm.weight is one of many .* more than twice" &&
        torch_not hollow "none.* is no tensor of the model" && torch_not often "one of many that share" && torch_not crowded "more weights than" &&
        torch_not long-name "a name that is no weight's" && torch_not odd-name "a name that is no weight's" &&
        torch_not shouted-name "a?.2J?b is no tensor" &&
        torch_not no-tensor "model.norm.weight is no tensor" && torch_not nothing "holds no dict of weights" &&
        torch_not list "holds no dict of weights" && torch_not runs "run is no tensor" && torch_not big-endian "another byte order" &&
        torch_not compressed "compressed" && torch_not overlapping "damaged zip" && torch_not no-numbers "model.embed_tokens.weight has no numbers" &&
        torch_not no-pickle "without a data.pkl" && torch_not old "has the instruction 0x" && printf 'no zip' >"$work/torch/no.pth" &&
        refuses "no.pth: is not what torch.save() writes" convert --model "$work/torch/no.pth" --out "$work/none" &&
        torch_file make plain "$model/model.safetensors" "$work/torch/no.pth" &&
        refuses "the config implies" convert --model "$work/torch/no.pth" --preset minimind2 --out "$work/none" &&
        refuses "no preset" convert --model "$work/torch/no.pth" --preset minimind9 --out "$work/none" &&
        refuses "one config" convert --model "$work/torch/no.pth" --preset minimind2 --config "$model" --out "$work/none" &&
        refuses "for a file of torch.save()" convert --model "$model" --preset minimind2 --out "$work/none" &&
        refuses "there is no model: .*/gone.pth" convert --model "$work/gone.pth" --preset minimind2 --out "$work/none" &&
        cp "$work/torch/no.pth" "$work/lone.pth" &&
        refuses "stays as it is" convert --model "$work/torch/no.pth" --dtype bf16 --pth "$work/torch/../torch/no.pth" &&
        cmp "$work/lone.pth" "$work/torch/no.pth" && refuses "there is no config.json beside it" convert --model "$work/lone.pth" --out "$work/none" &&
        [ ! -e "$work/none" ]
}

survives_damaged_files_of_torch() {
    torch_file make plain "$model/model.safetensors" "$work/torch/cut.pth" && torch_file attack "$work/torch/cut.pth" "$bin/convert" \
        --model "$work/torch/cut.pth" --out "$work/damaged"
}

# gguf MODEL ARCHITECTURE DTYPE [OPTION…]   What convert writes, read by its format's description.
gguf() {
    from=$1 kind=$2 numbers=$3
    shift 3
    "$bin/convert" --model "$from" --gguf "$work/model.gguf" --dtype "$numbers" "$@" && [ -z "$(find "$work" -name "model.gguf.*")" ] &&
        "$python" "$root/tests/examples/read_gguf.py" "$work/model.gguf" "${read:-$from}" "$kind" "$numbers"
}

# name_templates DIR   Of a tokenizer there the template becomes one of two that have names.
name_templates() {
    "$python" - "$1/tokenizer_config.json" <<'END'
import json, sys

with open(sys.argv[1], encoding="utf-8") as file:
    config = json.load(file)
config["chat_template"] = [{"name": "tool_use", "template": "other"}, {"name": "default", "template": config["chat_template"]}]
with open(sys.argv[1], "w", encoding="utf-8") as file:
    json.dump(config, file)
END
}

writes_gguf() {
    for preset in minimind-3 minimind-3-moe minimind2-moe classic-tied minillm-tiny; do
        "$bin/pretrain" --tokenizer "$work/tokenizer" --data-path "$work/a.jsonl" --preset $preset --hidden-size 64 --num-hidden-layers 2 \
            --max-seq-len 32 --batch-size 2 --accumulation-steps 1 --learning-rate 0.01 --max-steps 2 --save-dir "$work/$preset" >"$work/log" || return 1
    done
    for numbers in f32 bf16 q8_0 q4_0; do
        gguf "$model" llama $numbers || return 1
    done
    cp -r "$model" "$work/named" && name_templates "$work/named" && gguf "$work/named" llama f32 || return 1
    gguf "$work/minimind-3/pretrain" qwen3 f32 && gguf "$work/minimind-3-moe/pretrain" qwen3moe f32 &&
        gguf "$work/minimind-3-moe/pretrain" qwen3moe q8_0 && gguf "$work/bare" llama bf16 &&
        read=$work/merged gguf "$model" llama f32 --adapter "$work/lora/well" || return 1
    cp "$work/model.gguf" "$work/before.gguf"
    refuses "it has experts, and no norms" convert --model "$work/minimind2-moe/pretrain" --gguf "$work/model.gguf" &&
        refuses "mlp_type is" convert --model "$work/classic-tied/pretrain" --gguf "$work/model.gguf" &&
        refuses "model_type is \"minigpt\"" convert --model "$work/minillm-tiny/pretrain" --gguf "$work/model.gguf" &&
        refuses "no GGUF, and stays: $work/named/model.safetensors" convert --model "$work/named" --gguf "$work/named/model.safetensors" &&
        cmp "$model/model.safetensors" "$work/named/model.safetensors" && refuses "can't write $work/none/model.gguf: No such" convert --model "$model" --gguf "$work/none/model.gguf" &&
        refuses "--dtype can't be \"q5\"" convert --model "$model" --gguf "$work/model.gguf" --dtype q5 &&
        refuses "one of --out, --gguf and --pth" convert --model "$model" --gguf "$work/model.gguf" --out "$work/none" &&
        cmp "$work/before.gguf" "$work/model.gguf"
}

gguf_file() {
    "$python" "$root/tests/examples/gguf_file.py" "$@"
}

# there_and_back MODEL DTYPE   As GGUF and back it is the same model with the same tokenizer, and what is made of that the same GGUF.
there_and_back() {
    text="Hello, wörld! 12345 你好，世界 <|im_start|>user  it's	<think>"
    "$bin/convert" --model "$1" --dtype "$2" --out "$work/one" && "$bin/convert" --model "$work/one" --gguf "$work/trip.gguf" &&
        "$bin/convert" --model "$work/trip.gguf" --out "$work/trip" && cmp "$work/one/model.safetensors" "$work/trip/model.safetensors" &&
        "$bin/tokenize" --tokenizer "$work/one" "$text" >"$work/ids" && "$bin/tokenize" --tokenizer "$work/trip" "$text" | cmp "$work/ids" - &&
        "$bin/dataset" --tokenizer "$work/one" --kind chat --row 0 "$work/chat.jsonl" >"$work/row" &&
        "$bin/dataset" --tokenizer "$work/trip" --kind chat --row 0 "$work/chat.jsonl" | cmp "$work/row" - &&
        grep -o '"[be]os_token_id": -*[0-9]*' "$work/one/config.json" >"$work/ends" &&
        grep -o '"[be]os_token_id": -*[0-9]*' "$work/trip/config.json" | cmp "$work/ends" - &&
        "$bin/convert" --model "$work/trip.gguf" --gguf "$work/again.gguf" && cmp "$work/trip.gguf" "$work/again.gguf"
}

# reads_form FORM GGUF MODEL [OPTION…]   A GGUF that another program may have written becomes a model with the weights of MODEL.
reads_form() {
    form=$1 of=$2 same=$3
    shift 3
    gguf_file make "$form" "$of" "$work/form.gguf" && "$bin/convert" --model "$work/form.gguf" --out "$work/form" "$@" &&
        cmp "$same/model.safetensors" "$work/form/model.safetensors" || { echo "$form" && return 1; }
}

# Blocks that are not all of one kind become float32, as --dtype f32 makes it of them; so do norms that fewer bits don't hold.
reads_gguf() (
    mkdir -p "$work/unpacked" && export TMPDIR="$work/unpacked" || return 1
    for numbers in f32 bf16 q8_0 q4_0; do
        there_and_back "$model" $numbers && there_and_back "$work/minimind-3/pretrain" $numbers &&
            there_and_back "$work/minimind-3-moe/pretrain" $numbers || { echo $numbers && return 1; }
    done
    "$bin/convert" --model "$model" --gguf "$work/f32.gguf" || return 1
    for form in older aligned sparse backwards head yarn short-yarn; do
        reads_form $form "$work/f32.gguf" "$model" || return 1
        ! grep -q '"rope_scaling"' "$work/form/config.json" && scaled=none ||
            scaled=$(grep -A9 '"rope_scaling"' "$work/form/config.json" | grep -oE '"(factor|attention_factor|original[a-z_]*)": [0-9.]+' | tr -d '\n')
        case $form:$scaled in
            yarn:*'"factor": 4'*'"original_max_position_embeddings": 2048'* | short-yarn:*'"factor": 4'*'"original_max_position_embeddings": 32768'*)
                [ "${scaled#*\"attention_factor\": 1.1386294}" != "$scaled" ] || return 1 ;;
            *yarn:* | *:\"*) echo "$form: $scaled" && return 1 ;;
        esac
    done
    for numbers in q8_0 q4_0; do
        "$bin/convert" --model "$model" --dtype $numbers --gguf "$work/blocks.gguf" && "$bin/convert" --model "$work/$numbers" --dtype f32 --out "$work/whole" &&
            reads_form mixed "$work/blocks.gguf" "$work/whole" || return 1
    done
    "$bin/convert" --model "$work/f32.gguf" --dtype bf16 --out "$work/trip" && cmp "$work/half/model.safetensors" "$work/trip/model.safetensors" &&
        "$bin/convert" --model "$work/half" --gguf "$work/bf16.gguf" && gguf_file make unlike "$work/bf16.gguf" "$work/form.gguf" &&
        "$bin/convert" --model "$work/form.gguf" --out "$work/form" && ! grep -q '"BF16"' "$work/form/model.safetensors" || return 1
    "$bin/convert" --model "$work/taken" --gguf "$work/f16.gguf" && "$bin/convert" --model "$work/f16.gguf" --out "$work/trip" &&
        cmp "$work/taken/model.safetensors" "$work/trip/model.safetensors" && "$bin/convert" --model "$work/bare" --gguf "$work/bare.gguf" &&
        "$bin/convert" --model "$work/bare.gguf" --pth "$work/trip.pth" && torch_file same "$model/model.safetensors" "$work/trip.pth" &&
        reads_form smollm "$work/f32.gguf" "$model" --tokenizer "$model" && cmp "$model/tokenizer.json" "$work/form/tokenizer.json" &&
        [ -z "$(ls "$work/unpacked")" ]
)

# gguf_not FORM MESSAGE
gguf_not() {
    gguf_file make "$1" "$work/f32.gguf" "$work/no.gguf" && refuses "no.gguf: .*$2" convert --model "$work/no.gguf" --out "$work/none"
}

refuses_other_gguf() (
    export TMPDIR="$work/unpacked" && gguf_not first "another version than 2 and 3" && gguf_not big-endian "another version" && gguf_not misaligned "is no power of two" &&
        gguf_not gemma "its architecture is \"gemma\": llama, qwen3 and qwen3moe are read" && gguf_not split "one of several files" &&
        gguf_not linear "rope.scaling.type is linear" && gguf_not untold "rope.scaling.type is linear, of 4" && gguf_not window "has the key llama.attention.sliding_window" &&
        gguf_not experts "its expert_count is 4" && gguf_not heads "attention.head_count is no whole number" &&
        gguf_not seven "its keys make no model: .*num_attention_heads is 7" && gguf_not wide "its heads have keys of" &&
        gguf_not deep "blk.[0-9]*.attn_norm.weight is missing" && gguf_not no-depth "its block_count is missing" &&
        gguf_not k-quant "ffn_down.weight is Q4_K .*another quantization" && gguf_not unknown "something else (type 99)" &&
        gguf_not odd "output_norm.weight has rows that are not of whole blocks" && gguf_not other "output_norm.weight has 32 where its keys imply" &&
        gguf_not freqs "rope_freqs.weight is no tensor of the model" && gguf_not missing "blk.1.attn_k.weight is missing" &&
        gguf_not twice "output_norm.weight is there twice" && gguf_not beyond "output_norm.weight has numbers beyond the end" &&
        gguf_not shared "and those before it have more numbers than the file" && gguf_not between "does not begin at a multiple" &&
        gguf_not smollm "its tokenizer.ggml.pre is \"smollm\", only \"gpt-2\" .*--tokenizer" && gguf_not spm "its tokenizer.ggml.model is \"llama\"" &&
        gguf_not no-pre "tokenizer.ggml.pre is \"\"" && gguf_not byte-token "is of type 6" && gguf_not types "tokens, and the types of" &&
        gguf_not same-token "its tokenizer is none that is read: tokenizer.json" && [ ! -e "$work/none" ] && [ -z "$(ls "$work/unpacked")" ] &&
        refuses "for a file of torch.save()" convert --model "$work/f32.gguf" --preset minimind2 --out "$work/none" &&
        refuses "another file, not" convert --model "$work/f32.gguf" --gguf "$work/./f32.gguf"
)

survives_damaged_gguf() (
    export TMPDIR="$work/unpacked" && cp "$work/blocks.gguf" "$work/cut.gguf" && gguf_file attack "$work/cut.gguf" "$bin/convert" --model "$work/cut.gguf" --out "$work/damaged" &&
        [ -z "$(ls "$work/unpacked")" ]
)

# Without --dtype weights are what they are in the file, also when an adapter is added to them.
keeps_what_is_stored() {
    "$bin/convert" --model "$work/half" --adapter "$work/lora/well" --out "$work/merged-half" && ls -l "$work/half" "$work/merged-half" &&
        [ "$(wc -c <"$work/merged-half/model.safetensors")" -eq "$(wc -c <"$work/half/model.safetensors")" ] &&
        "$bin/generate" --model "$work/half" --adapter "$work/lora/well" --prompt "hi" --greedy --max-new-tokens 2 &&
        "$bin/evaluate" loss --kind chat --model "$work/merged-half" --data "$work/chat.jsonl" --batch 1 --max-length 48
}

# What can't be converted leaves nothing behind.
refuses_to_convert() {
    "$bin/pretrain" --tokenizer "$work/tokenizer" --data-path "$work/a.jsonl" --hidden-size 32 --num-hidden-layers 1 \
        --max-seq-len 32 --batch-size 2 --save-dir "$work/other" --max-steps 1 >"$work/log" || return 1
    refuses "adapter_model.safetensors" convert --model "$work/other/pretrain" --adapter "$work/lora/well" --out "$work/none" &&
        refuses "there is no model: /no/such/model" convert --model /no/such/model --out "$work/none" &&
        refuses "/no/such/adapter" convert --model "$model" --adapter /no/such/adapter --out "$work/none" &&
        refuses "a.jsonl" convert --model "$model" --out "$work/a.jsonl" &&
        refuses "model.safetensors" convert --model "$work/cut" --out "$work/none" &&
        refuses "--dtype can't be \"f8\"" convert --model "$model" --dtype f8 --out "$work/none" &&
        refuses "it takes --model, and" convert --model "$model" && refuses "it takes --model, and" convert --out "$work/none" &&
        refuses "--no-such" convert --no-such 1 && refuses "--out lacks" convert --model "$model" --out &&
        [ ! -e "$work/none" ]
}

chats_with_an_adapter() {
    printf 'hi\n/adapters\nhi\n' | "$bin/chat" --model "$model" --adapter "$work/lora/well" --temperature 0 --max-new-tokens 8 \
        >"$work/talk" 2>"$work/prompts" && cat "$work/talk" && [ "$(cat "$work/prompts")" = "adapters off" ] || return 1
    printf '/adapters\n' | "$bin/chat" --model "$model" >"$work/talk" 2>"$work/prompts"
    cat "$work/prompts" && [ "$(cat "$work/prompts")" = "there are none, --adapter DIR brings one" ]
}

# As of the models that MiniMind-3's own script exports, whose tokenizer alone knows what ends a turn.
answers_end_where_no_eos_is_named() {
    cp -r "$model" "$work/endless" && sed -i 's/"eos_token_id": [0-9]*/"eos_token_id": -1/' "$work/endless/config.json" || return 1
    for name in "$model" "$work/endless"; do
        printf 'hi\n' | "$bin/chat" --model "$name" --adapter "$work/lora/well" --temperature 0 --max-new-tokens 40
        "$bin/generate" --model "$name" --adapter "$work/lora/well" --greedy --max-new-tokens 40 --stats --prompt "<|im_start|>system
You are a helpful assistant<|im_end|>
<|im_start|>user
hi<|im_end|>
<|im_start|>assistant
"
    done 2>&1 | sed 's/, [0-9.]* tokens.s$//' >"$work/ends"
    cat "$work/ends"
    grep -q 'tokens read, [0-9] made$' "$work/ends" && [ "$(sed -n 1,3p "$work/ends")" = "$(sed -n 4,6p "$work/ends")" ]
}

# model_that_breaks_off MODEL OUT ID ID   It answers with one of two tokens, by the sign of the one number that its last norm lets
# through, and behind either its logits are not numbers.
model_that_breaks_off() {
    mkdir "$2" && cp "$1"/tokenizer*.json "$2" && "$python" - "$@" <<'END'
import json, struct, sys

source, out, *answers = sys.argv[1:]
with open(source + "/model.safetensors", "rb") as file:
    header, data = json.loads(file.read(struct.unpack("<Q", file.read(8))[0])), bytearray(file.read())

def put(name, first, values):
    begin = header[name]["data_offsets"][0] + 4 * first
    data[begin : begin + 4 * len(values)] = struct.pack(f"<{len(values)}f", *values)

vocab_size, hidden_size = header["model.embed_tokens.weight"]["shape"]
size = 4 * vocab_size * hidden_size
header["lm_head.weight"] = {"dtype": "F32", "shape": [vocab_size, hidden_size], "data_offsets": [len(data), len(data) + size]}
data += bytes(size)
put("model.norm.weight", 0, [1] + [0] * (hidden_size - 1))
for answer, sign in zip(map(int, answers), (1, -1)):
    put("lm_head.weight", answer * hidden_size, [sign])
    put("model.embed_tokens.weight", answer * hidden_size, [float("nan")] * hidden_size)
text = json.dumps(header).encode()
with open(out + "/model.safetensors", "wb") as file:
    file.write(struct.pack("<Q", len(text)) + text + data)
with open(source + "/config.json") as file:
    config = json.load(file)
with open(out + "/config.json", "w") as file:
    json.dump(config | {"tie_word_embeddings": False}, file)
END
}

# What was said stands on a line of its own, and the reason on the next.
breaks_off() {
    z=$("$bin/tokenize" --tokenizer "$model" Z) && q=$("$bin/tokenize" --tokenizer "$model" Q) &&
        model_that_breaks_off "$model" "$work/broken" "$z" "$q" || return 1
    "$bin/generate" --model "$work/broken" --prompt hi --greedy >"$work/said" 2>&1 && return 1
    printf 'hi\nhi\n' | "$bin/chat" --model "$work/broken" --temperature 0 >"$work/chatted" 2>&1 || return 1
    cat "$work/said" "$work/chatted"
    [ "$(sed 's/[ZQ]/_/; s/:.*not finite/: not finite/' "$work/said" "$work/chatted" | tr '\n' ' ')" = \
        "_ generate: not finite _ chat: not finite _ chat: not finite " ]
}

# A question longer than any buffer is one question, too long for the context; the next one is answered.
chats_with_long_lines() {
    { head -c 200000 /dev/zero | tr '\0' a; printf '\nhi\n'; } | "$bin/chat" --model "$model" --context 64 --max-new-tokens 4 \
        --dtype q8_0 --seed 3 >"$work/talk" 2>"$work/prompts" || return 1
    cat "$work/prompts"
    [ "$(wc -l <"$work/prompts")" -eq 1 ] && grep -q '^chat: .*64' "$work/prompts" && [ "$(wc -l <"$work/talk")" -ge 1 ]
}

# Any of the training programs learns an adapter instead of the model.
prefers_with_an_adapter() {
    "$bin/make_corpus" --kind preference --bytes 3000 --out "$work/pairs.jsonl" &&
        "$bin/dpo" --data-path "$work/pairs.jsonl" --from-weight "$model" --template minimind2 --max-seq-len 64 --max-steps 2 \
            --lora-rank 2 --save-dir "$work/preferred" --save-weight "$work/preferred/polite" &&
        [ -s "$work/preferred/polite/adapter_model.safetensors" ] && [ -s "$work/preferred/polite.run/step-2/adapter_config.json" ] &&
        [ -z "$(find "$work/preferred" -name model.safetensors)" ] &&
        "$bin/generate" --model "$model" --adapter "$work/preferred/polite" --prompt hi --greedy --max-new-tokens 2
}

# What must go on being answered is asked again while the model learns; by Muon, for once.
asks_again() {
    printf '{"prompt": "Once upon", "expect": ["never said"], "max_new_tokens": 4}' >"$work/again.jsonl"
    "$bin/pretrain" --tokenizer "$work/tokenizer" --data-path "$work/a.jsonl" --hidden-size 64 --num-hidden-layers 1 \
        --max-seq-len 32 --batch-size 2 --save-dir "$work/asked" --max-steps 5 --optimizer muon \
        --regression "$work/again.jsonl" --regression-interval 2 --sample "Once upon a time" >"$work/log"
    cat "$work/log"
    # a step whose number ends the run is a tenth of it too: its sample is written once
    [ "$(grep -c '“Once upon a time”' "$work/asked/pretrain.run/report/metrics.jsonl")" -eq 5 ] &&
        [ "$(grep -c '^regression after step [245]: 0 of 1 prompts passed$' "$work/log")" -eq 3 ] &&
        grep -q '"prompts_passed"' "$work/asked/pretrain.run/report/metrics.jsonl" && grep -q '"optimizer": "muon"' "$work/asked/pretrain.run/step-5/state.json"
}

# A prompt that can't be put is seen when its turn comes: the report loses that curve, and nothing else.
goes_on_without_questions() {
    printf '{"prompt": "Once upon", "expect": []}' >"$work/unasked.jsonl"
    "$bin/pretrain" --tokenizer "$work/tokenizer" --data-path "$work/a.jsonl" --hidden-size 64 --num-hidden-layers 1 \
        --max-seq-len 32 --batch-size 2 --save-dir "$work/unasked" --max-steps 5 --regression "$work/unasked.jsonl" >"$work/log" 2>"$work/stderr" ||
        return 1
    cat "$work/log" "$work/stderr"
    [ "$(grep -c 'unasked.jsonl:1: ' "$work/stderr")" -eq 1 ] && grep -q '"step":5' "$work/unasked/pretrain.run/report/metrics.jsonl" &&
        grep -q '^the report is in ' "$work/log" &&
        refuses "regression" pretrain --tokenizer "$work/tokenizer" --data-path "$work/a.jsonl" --report "" --regression "$work/again.jsonl"
}

# One text is written with bos before it, and goes on in another way. Rows that are padded have no other bos, packed ones
# each have one: what a run asks of its model begins as its rows do, and evaluate and generate are told by --bos.
begins_as_rows_do() {
    printf '{"text": "hello yes<|im_end|>"}\n{"text": "<|im_start|>hello no<|im_end|>"}\n' >"$work/hello.jsonl"
    printf '{"prompt": "hello", "expect": ["yes"], "max_new_tokens": 6}' >"$work/yes.jsonl"
    printf '{"prompt": "hello", "choices": [" yes", " no"], "answer": 0}' >"$work/which.jsonl"
    for form in pad pack; do
        "$bin/pretrain" --tokenizer "$work/tokenizer" --data-path "$work/hello.jsonl" --hidden-size 64 --num-hidden-layers 1 --form $form \
            --max-seq-len 16 --batch-size 2 --accumulation-steps 1 --learning-rate 0.01 --epochs 100 --save-dir "$work/hello" \
            --save-weight $form --regression "$work/yes.jsonl" --sample hello >"$work/log" && tail -n 20 "$work/log" &&
            grep -q '^regression after step 100: 1 of 1 prompts passed$' "$work/log" || return 1
        tail -n 3 "$work/hello/$form.run/report/metrics.jsonl" >"$work/last" && cat "$work/last" # the sample, the answer, the share
        [ "$(grep -c '“hello”":" yes"' "$work/last")" -eq 2 ] || return 1
    done
    set -- --model "$work/hello/pad" --data
    "$bin/evaluate" prompts "$@" "$work/yes.jsonl" && ! "$bin/evaluate" prompts "$@" "$work/yes.jsonl" --bos &&
        "$bin/evaluate" prompts --bos --model "$work/hello/pack" --data "$work/yes.jsonl" &&
        "$bin/evaluate" choices "$@" "$work/which.jsonl" | grep -q '^accuracy 100.00' &&
        "$bin/evaluate" choices "$@" "$work/which.jsonl" --bos | grep -q '^accuracy 0.00' || return 1
    printf hello >"$work/hello.txt"
    without=$("$bin/evaluate" text "$@" "$work/hello.txt" | sed -n 's/ tokens, .*//p') &&
        with=$("$bin/evaluate" text "$@" "$work/hello.txt" --bos | sed -n 's/ tokens, .*//p') && [ "$with" -eq $((without + 1)) ] &&
        refuses "they take no --bos" evaluate loss "$@" "$work/hello.jsonl" --bos
}

truncated_model() {
    mkdir "$work/cut" && cp "$model/config.json" "$work/cut/" &&
        head -c 1000 "$model/model.safetensors" >"$work/cut/model.safetensors"
}

evaluates_text() {
    printf 'Once upon a time there was a cat, and it sat on the mat.' >"$work/story.txt"
    ! "$bin/evaluate" text --model "$model" --data "$work" 2>"$work/stderr" && grep -q "can't read" "$work/stderr" || return 1
    ! "$bin/evaluate" loss --kind zz --model "$model" --data "$work/a.jsonl" 2>"$work/stderr" &&
        grep -q -e '--kind is text or chat' "$work/stderr" || return 1
    for dtype in f32 bf16 q8_0; do
        "$bin/evaluate" text --model "$model" --data "$work/story.txt" --dtype $dtype --batch 1 --max-length 16 >"$work/loss" &&
            grep -qE '^loss [0-9.]+ nats per token, perplexity [0-9.]+, [0-9.]+ bits per byte$' "$work/loss" || return 1
    done
    "$bin/evaluate" loss --model "$model" --data "$work/a.jsonl" --batch 2 --max-length 32 --max-rows 2 >"$work/loss" &&
        grep -q '^loss ' "$work/loss"
}

# What was learnt beside the model is likelier with it than without.
evaluates_an_adapter() {
    for adapter in '' "--adapter $work/lora/well"; do
        # shellcheck disable=SC2086
        "$bin/evaluate" loss --kind chat --model "$model" --data "$work/chat.jsonl" --batch 1 --max-length 48 $adapter || return 1
    done >"$work/loss"
    cat "$work/loss"
    awk '/^loss/ { loss[n++] = $2 } END { exit !(n == 2 && loss[1] < 0.75 * loss[0]) }' "$work/loss"
}

# The loss that a training run tells of its validation is the one of the same rows in the same form; packed ones lose nothing at --max-seq-len.
evaluates_as_training_did() {
    head -n 40 "$work/a.jsonl" >"$work/held.jsonl"
    for form in pad pad3 pack; do
        "$bin/pretrain" --tokenizer "$work/tokenizer" --data-path "$work/a.jsonl" --validation-path "$work/held.jsonl" \
            --hidden-size 64 --num-hidden-layers 1 --max-seq-len 32 --batch-size 4 --accumulation-steps 1 --learning-rate 0.003 \
            --max-steps 20 --form $form --save-dir "$work/$form" >"$work/log" || return 1
        told=$(sed -n 's/^validation after step 20: loss: \([0-9.]*\),.*/\1/p' "$work/log")
        "$bin/evaluate" loss --form $form --model "$work/$form/pretrain" --data "$work/held.jsonl" --batch 4 --max-length 32 >"$work/loss" || return 1
        echo "$form $told $(tr '\n' ' ' <"$work/loss")"
    done | tee "$work/forms"
    # packed rows follow each other in another order when they are shuffled, and are cut in other places
    awk '{ d = $2 - $4; tokens[$1] = $14; if (NF < 17 || d * d > ($1 == "pack" ? 4e-4 : 2e-8)) bad = 1 }
         END { exit bad || !(tokens["pad"] <= tokens["pad3"] && tokens["pad3"] < tokens["pack"]) }' "$work/forms" || return 1
    for form in "--pack" ""; do
        # shellcheck disable=SC2086
        "$bin/evaluate" loss $form --model "$work/pack/pretrain" --data "$work/held.jsonl" --batch 4 --max-length 32 || return 1
    done >"$work/loss"
    cat "$work/loss"
    awk -v pack="$(awk '/^pack/ { print $14 }' "$work/forms")" -v pad="$(awk '/^pad / { print $14 }' "$work/forms")" \
        '/tokens,/ { n[k++] = $1 } END { exit !(n[0] == pack && n[1] == pad) }' "$work/loss"
}

# Neither program is told a form: each generation of models has its own.
evaluates_as_training_did_by_default() {
    for preset in minimind2-small minimind-3; do
        "$bin/pretrain" --tokenizer "$work/tokenizer" --data-path "$work/a.jsonl" --validation-path "$work/held.jsonl" --preset $preset \
            --hidden-size 64 --num-hidden-layers 1 --max-seq-len 32 --batch-size 4 --accumulation-steps 1 --learning-rate 0.003 \
            --epochs 1 --max-steps 20 --save-dir "$work/$preset" >"$work/log" || return 1
        told=$(sed -n 's/^validation after step 20: loss: \([0-9.]*\),.*/\1/p' "$work/log")
        "$bin/evaluate" loss --model "$work/$preset/pretrain" --data "$work/held.jsonl" --batch 4 --max-length 32 >"$work/loss" || return 1
        echo "$preset $told $(tr '\n' ' ' <"$work/loss")"
    done | tee "$work/defaults"
    awk '{ d = $2 - $4; n += NF >= 17 && d * d < 2e-8 } END { exit n != 2 }' "$work/defaults"
}

# MiniMind-3's template puts an empty think block before an answer that says nothing of the kind; here it is left out of
# what is learnt, and of what is measured where evaluate is told so.
leaves_out_empty_think_blocks() {
    set -- --template minimind3 --max-length 64 --model "$work/thoughtless/full_sft" --data "$work/chat.jsonl" --kind chat
    for option in "" --strip-empty-think; do
        # shellcheck disable=SC2086
        "$bin/sft" --from-weight "$model" --data-path "$work/chat.jsonl" --validation-path "$work/chat.jsonl" --template minimind3 \
            --max-seq-len 64 --max-steps 1 --save-dir "$work/thoughtless" --threads 1 $option >"$work/log" || return 1
        sed -n 's/^validation after step 1: loss: \([0-9.]*\),.*/\1/p' "$work/log"
        # shellcheck disable=SC2086
        "$bin/evaluate" loss "$@" --form pad $option | tr '\n' ' ' && echo || return 1
    done | tee "$work/loss"
    awk '{ told[NR] = $1; getline; measured[NR / 2] = $2; tokens[NR / 2] = $12 }
         END { exit !(NR == 4 && told[1] == measured[1] && told[3] == measured[2] && tokens[1] > tokens[2]) }' "$work/loss" || return 1
    refuses "these rows take no --strip-empty-think" pretrain --data-path "$work/a.jsonl" --tokenizer "$work/tokenizer" \
        --save-dir "$work/none" --strip-empty-think &&
        refuses "take no --strip-empty-think" evaluate loss --model "$model" --data "$work/a.jsonl" --strip-empty-think &&
        refuses "strip-empty-think is for loss, not for text" evaluate text --model "$model" --data "$work/a.jsonl" --strip-empty-think
}

# A conversation under another template than the tokenizer's is another text.
evaluates_under_a_template() {
    for named in "" "--template minimind3" "--template minimind2"; do
        # shellcheck disable=SC2086
        "$bin/evaluate" loss --kind chat --model "$model" --data "$work/chat.jsonl" --batch 1 --max-length 48 $named || return 1
    done >"$work/losses"
    cat "$work/losses"
    [ "$(grep -c '^loss' "$work/losses")" -eq 3 ] && [ "$(grep '^loss' "$work/losses" | sort -u | wc -l)" -eq 2 ] &&
        [ "$(sed -n 1p "$work/losses")" = "$(sed -n 5p "$work/losses")" ]
}

evaluates_choices() {
    printf '{"prompt": "Once upon", "choices": [" a time", "}#{}#{"], "answer": 0}' >"$work/questions.jsonl"
    "$bin/evaluate" choices --model "$model" --data "$work/questions.jsonl" --verbose >"$work/choices" && cat "$work/choices" &&
        grep -q '^row 0: picked 0 ' "$work/choices" && grep -q '^accuracy 100.00 % .* of 1 questions$' "$work/choices"
}

# Prompts that do not pass are told by the exit status.
evaluates_prompts() {
    printf '{"prompt": "Once upon", "expect": ["never said"], "max_new_tokens": 4}' >"$work/prompts.jsonl"
    "$bin/evaluate" prompts --model "$model" --data "$work/prompts.jsonl" >"$work/prompts" && return 1
    grep -q '^FAILED: Once upon$' "$work/prompts" && grep -q '^0 of 1 prompts passed$' "$work/prompts"
}

for program in bench convert dataset distill dpo embed evaluate generate lora make_corpus params pretrain rl sft structured tokenize train_tokenizer; do
    check "$program --help says how it is used" helps $program
done
for program in pretrain sft dpo; do
    check "$program --help lists its options once, under headings" lists_once $program
done
check "distill --help lists its options once, under headings" lists_once distill from-weight
check "lora --help lists its options once, under headings" lists_once lora from-weight save-weight lora-rank lora-targets
check "rl --help lists its options once, under headings" lists_once rl from-weight save-dir max-steps batch-size max-seq-len
printf '{"question": "1+1", "answer": "2"}\n' >"$work/asked.jsonl"
check "rl --help offers no validation, which rl refuses" offers_no_validation
for program in train prefill decode batch scaling kernels start; do
    check "bench $program gives its figures as JSON" bench_measures $program
done
check "bench decode takes other dtypes" bench_measures decode --dtype bf16 --cache-dtype bf16
check "bench start takes them" bench_measures start --dtype q4_0
check "bench decode goes on behind other tokens" bench_measures decode --past 200 --dtype q8_0
check "bench train computes in other dtypes" bench_computes_in bf16 train --compute bf16
check "bench lets weights in bf16 meet rows in bf16" bench_computes_in bf16 decode --dtype bf16
check "bench lets weights in bf16 meet rows in float32 where asked to" bench_computes_in f32 prefill --dtype bf16 --compute f32
check "bench computes in float32 otherwise" bench_computes_in f32 batch --dtype q8_0
check "bench trains in float32 whatever else is stored" bench_trains_in_float32
check "bench refuses options that would not count" bench_refuses_options_of_others
check "bench starts in float32, which it saves" bench_computes_in f32 start
check "bench compares what it measures alone" bench_computes_in bf16 scaling --of decode --dtype bf16
check "bench refuses to compute in what is for storage only" refuses "--compute" bench train --compute q8_0
check "bench attention goes up to the length it is told" bench_long_context
check "bench attention measures a length that is shorter" bench_short_context
check "bench refuses a dtype that there is not" refuses "--dtype" bench decode --dtype q3
check "bench refuses a cache in what there is for weights alone" refuses "allowed are f32 bf16 q8_0$" bench decode --cache-dtype q4_0
check "bench refuses a number that is none" refuses "--threads" bench decode --threads two
check "bench refuses a preset that there is not" refuses "no-such" bench decode --preset no-such
check "embed runs from start to end" "$bin/embed"
check "make_corpus gives the same bytes for the same seed" same_corpus_twice
check "make_corpus repeats few texts and leaves no template unexpanded" corpus_is_varied
check "make_corpus refuses an unknown option" refuses "no-such" make_corpus --no-such 1
check "make_corpus refuses a word that is no option" refuses "no such option.*corpus.jsonl" make_corpus corpus.jsonl
check "make_corpus refuses bytes that are no number" refuses "--bytes" make_corpus --bytes 10x
check "make_corpus refuses a seed that is no number" refuses "--seed" make_corpus --bytes 10 --seed one
check "make_corpus refuses a place it cannot write to" refuses "/no/such/place" make_corpus --bytes 10 --out /no/such/place
check "make_corpus leaves no half corpus" leaves_no_half_corpus
check "make_corpus writes to what is no file as it is" writes_to_a_pipe
check "make_corpus notices a full disk" refuses "/dev/full" make_corpus --bytes 100000 --out /dev/full
check "train_tokenizer learns from JSON lines" trains_a_tokenizer
check "train_tokenizer learns from plain text, with special tokens" trains_from_text
check "tokenize gives the text of ids" ids_become_text
check "tokenize names what is no id and no text" refuses_what_is_no_id
check "train_tokenizer names a file that is missing" refuses "absent.jsonl" train_tokenizer --out "$work/x" absent.jsonl
check "train_tokenizer names a text file that is missing" refuses "absent.txt" train_tokenizer --out "$work/x" absent.txt
mkdir "$work/folder.txt"
check "train_tokenizer names a text file that can't be read" refuses "can't read .*folder.txt" \
    train_tokenizer --out "$work/x" "$work/plain.txt" "$work/folder.txt"
check "train_tokenizer names the line that is no text" refuses_what_is_no_text
check "train_tokenizer refuses a size that is no number" refuses "--vocab-size" \
    train_tokenizer --vocab-size many --out "$work/x" "$work/a.jsonl"
printf '{"text": "good"}\n{"text": 3}\n' >"$work/bad.jsonl"
check "train_tokenizer names the line that is no row" refuses "bad.jsonl:2" train_tokenizer --out "$work/x" "$work/bad.jsonl"
check "dataset counts rows and names bad lines" data_is_reported
check "dataset shows which tokens are learnt" answers_are_marked
for row in 2 7; do
    check "dataset refuses row $row of two" refuses "no such" dataset --tokenizer "$work/tokenizer" --row $row "$work/bad.jsonl"
done
check "the quickstart goes from nothing to a model" quickstart_runs
check "a teacher's words are kept in a file, and learnt from" distills
check "sft says which rows are cut before their answers" tells_what_is_cut
check "pretrain, stopped by a signal, saves and goes on" stops_and_goes_on
check "pretrain, whose log's reader goes, saves" keeps_what_a_closed_pipe_saw
if hears_hangups; then
    check "pretrain, whose terminal goes, saves" stops_when_its_terminal_goes
else
    skip "pretrain, whose terminal goes, saves" "hangups are ignored here"
fi
check "pretrain, started to outlive its terminal, goes on" stays_where_hangups_are_ignored
check "a run that fails at once, and another stage, leave the last one's checkpoints and report" leaves_what_was
check "a run's report takes paths that are no UTF-8" reports_on_any_path
check "a NAME is a model of --save-dir, whatever files have it" finds_models_by_name
check "pretrain computes in bfloat16" computes_in bfloat16 bf16
check "pretrain computes in float16" computes_in float16 f16
check "pretrain refuses to compute in what there is not" refuses "float8" pretrain --tokenizer "$work/tokenizer" \
    --data-path "$work/a.jsonl" --hidden-size 64 --num-hidden-layers 1 --save-dir "$work/float8" --dtype float8
check "dpo names the line whose prompts differ" refuses_prompts
check "sft names a model that is missing" refuses "/no/such/model" sft --from-weight /no/such/model --tokenizer "$model"
check "pretrain refuses an option that there is not" refuses "no-such" pretrain --no-such 1
check "pretrain refuses a directory without a name" refuses "--save-dir" pretrain --save-dir ""
check "pretrain refuses a number that is none" refuses "--batch-size" pretrain --batch_size many
check "make_corpus refuses a kind that there is not" refuses "poem" make_corpus --kind poem
check "generate continues a text" generates_text
check "generate turns weights into other numbers" generates_in_blocks
check "generate gives the same text for the same seed, with any number of threads" same_seed_same_text
check "generate gives ids for ids" ids_give_ids
check "generate needs no tokenizer for ids" without_tokenizer
check "generate says what it needs" refuses "--prompt" generate --model "$model"
check "generate names a model that is missing" refuses "/no/such/model" generate --model /no/such/model --prompt-ids 1
check "generate names the tokenizer that is missing" refuses "tokenizer.json" generate --model "$work/bare" --prompt hi
check "generate refuses an id that the model does not have" refuses "99999" generate --model "$model" --prompt-ids 5,99999
check "generate refuses a temperature that is no number" refuses "--temperature" \
    generate --model "$model" --prompt hi --temperature hot
check "generate refuses ids that are none" refuses "--prompt-ids" generate --model "$model" --prompt-ids 5,x
check "generate refuses kernels that there are not" refuses "abacus" generate --model "$model" --prompt hi --kernels abacus
check "rl learns from rewards, for sums and for questions of one's own" rewards_are_learnt_from
check "programs run a model of few positions without being told how many" works_with_few_positions
check "rl reads no lessons where none are asked for" reads_no_lessons
check "rl tells of the steps that it has seen" tells_of_steps_that_were_seen
check "rl learns among ranks that share a directory" learns_from_rewards_among_ranks
check "rl refuses an algorithm that there is not" refuses "reinforce" rl --algorithm reinforce --work-dir "$work/rl3"
check "rl refuses an option that there is not" refuses "no-such" rl --no-such 1
check "rl refuses a number that is none" refuses "--steps" rl --steps many
check "rl refuses to take no step" refuses "by --steps" rl --steps 0 --work-dir "$work/rl3"
check "rl names the model that is missing" refuses "/no/such/model" rl --model /no/such/model --work-dir "$work/rl3"
check "lora learns an adapter and goes on with it" learns_an_adapter
check "dpo learns an adapter, and saves that alone" prefers_with_an_adapter
check "pretrain asks what must go on being answered" asks_again
check "pretrain goes on, and so does its report, without prompts that can't be put" goes_on_without_questions
check "sft refuses an optimizer that there is not" refuses "--optimizer can't be \"sgd\"" \
    sft --from-weight "$model" --template minimind2 --data-path "$work/chat.jsonl" --optimizer sgd
check "generate runs with an adapter, and the model is as before" generates_with_an_adapter
if python=$(. "$root/tests/packages.sh" && python_for_tests); then
    check "an answer that breaks off stands on a line of its own" breaks_off
else
    skip "an answer that breaks off stands on a line of its own" "there is no Python"
fi
check "chat turns adapters off" chats_with_an_adapter
check "answers end with their turn where the config names no eos" answers_end_where_no_eos_is_named
check "chat takes a line of any length as one question" chats_with_long_lines
check "lora names projections that there are not" refuses "c_attn" \
    lora --model "$model" --data-path "$work/chat.jsonl" --targets c_attn
check "generate names an adapter that is missing" refuses "/no/such" \
    generate --model "$model" --prompt hi --adapter /no/such
check "evaluate gives the loss of a text and of rows" evaluates_text
check "evaluate asks a model with its adapter" evaluates_an_adapter
check "evaluate lays rows out as training did" evaluates_as_training_did
check "evaluate lays rows out as training does by default" evaluates_as_training_did_by_default
check "sft and evaluate leave out empty think blocks when told to" leaves_out_empty_think_blocks
check "evaluate measures conversations under a template that is named" evaluates_under_a_template
check "evaluate refuses a template that there is not" refuses "template" \
    evaluate loss --kind chat --model "$model" --data "$work/chat.jsonl" --template zz
check "evaluate refuses a form that there is not" refuses "--form is pad, pad3 or pack" \
    evaluate loss --model "$model" --data "$work/a.jsonl" --form dense
check "evaluate picks the likelier ending" evaluates_choices
check "evaluate tells which prompts did not pass" evaluates_prompts
check "a model is asked with bos before a text where its rows had it" begins_as_rows_do
check "evaluate names the row that is no question" refuses "prompts.jsonl:1" \
    evaluate choices --model "$model" --data "$work/prompts.jsonl"
check "evaluate refuses a dtype that there is not" refuses "dtype" \
    evaluate text --model "$model" --data "$work/story.txt" --dtype f8
check "a truncated model can be made" truncated_model
check "convert turns weights into fewer bits and back" converts
check "convert turns weights into blocks, in files" converts_into_blocks
check "convert takes an adapter into its model" merges_an_adapter
check "convert keeps what is stored as it is" keeps_what_is_stored
check "convert names what can't be converted, and leaves nothing" refuses_to_convert
torch_checks() {
    "$1" "convert writes what torch.load() reads" "${2:-writes_for_torch}"
    "$1" "convert reads what torch.save() wrote" "${2:-reads_from_torch}"
    "$1" "convert takes a LoRA of MiniMind's into its model" "${2:-takes_lora_from_torch}"
    "$1" "convert names what is wrong with such a file" "${2:-refuses_what_torch_did_not_save}"
    "$1" "convert survives damaged ones" "${2:-survives_damaged_files_of_torch}"
}
gguf_checks() {
    "$1" "convert writes GGUF" "${2:-writes_gguf}"
    "$1" "convert reads GGUF" "${2:-reads_gguf}"
    "$1" "convert names what is wrong with GGUF" "${2:-refuses_other_gguf}"
    "$1" "convert survives damaged GGUF" "${2:-survives_damaged_gguf}"
}
if [ -n "$python" ]; then torch_checks check; else torch_checks skip "there is no Python"; fi
if [ -n "$python" ] && "$python" -c 'import numpy'; then gguf_checks check; else gguf_checks skip "there is no Python with numpy"; fi
check "generate names a weight file that is cut short" refuses "model.safetensors" \
    generate --model "$work/cut" --prompt-ids 5
finish
