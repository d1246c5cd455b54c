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

# learn_not WORDS OPTION…   Such a run is refused before it begins.
learn_not() {
    words=$1
    shift
    # shellcheck disable=SC2086
    refuses "$words" pretrain $rows --save-dir "$work/none" "$@" && [ ! -e "$work/none" ]
}

# --- Runs ---

# It was at step 2; step 3 knows of it, and has none of its own.
tells_validations_once() {
    set -- --validation-path "$work/held.jsonl" --eval-interval 2 --save-interval 1 --keep-last 0 --max-steps 5 --save-weight told
    learn "$@" && learn "$@" --from-resume "$work/out/told.run/step-2" && ! grep -q '^validation after step 3' "$work/log" &&
        grep -q '^validation after step 4: ' "$work/log"
}

# A run that begins anew where one has been says so, once; one that goes on does not.
tells_of_an_earlier_run() {
    told="$work/out/anew.run has an earlier run's checkpoints, which this run's will replace; --from-resume 1 goes on from them"
    learn --max-steps 2 --save-weight anew && ! grep -qF "earlier run" "$work/log" && learn --max-steps 2 --save-weight anew &&
        [ "$(grep -cxF "$told" "$work/log")" -eq 1 ] && learn --max-steps 2 --save-weight anew --from-resume 1 &&
        ! grep -qF "earlier run" "$work/log"
}

# Of two steps, then of five; not of three again.
becomes_longer() {
    learn --max-steps 2 --save-weight long && learn --max-steps 5 --save-weight long --from-resume 1 &&
        grep -qxF "going on from step 2 of 5" "$work/log" && [ -d "$work/out/long.run/step-5" ] &&
        ! learn --max-steps 3 --save-weight long --from-resume 1 && grep -qF "its max_steps is 5, here it is 3" "$work/stderr"
}

# At a rate of 0 no validation is better than the first.
ends_without_patience() {
    learn --validation-path "$work/held.jsonl" --eval-interval 2 --patience 2 --learning-rate 0 --max-steps 40 --save-weight patient &&
        grep -qxF "stopped before the end: no better validation in 2; the model is the last one, the best, after step 2, is in $work/out/patient.run/step-2" "$work/log"
}

ends_in_time() {
    learn --max-seconds 0.001 --max-steps 40 --save-weight short && grep -q '^stopped before the end: --max-seconds 0.001 ' "$work/log"
}

# What a Ctrl-C would have stopped is over and saved: it ends the program as it would any other.
ends_at_a_late_signal() {
    # shellcheck disable=SC2086
    "$build/tests/examples/interrupted" $rows --hidden-size 32 --num-hidden-layers 1 --save-dir "$work/out" --save-weight late --max-steps 1
    status=$?
    echo "status $status"
    [ "$status" -eq 130 ] && [ -s "$work/out/late/model.safetensors" ]
}

# The page goes on being drawn: once behind each step here, and at the end.
draws_when_the_clock_goes_back() {
    # shellcheck disable=SC2086
    "$build/tests/examples/interrupted" $rows --hidden-size 32 --num-hidden-layers 1 --save-dir "$work/out" --save-weight back \
        --max-steps 3 2>"$work/log"
    cat "$work/log"
    [ "$(grep -c '^a page is drawn$' "$work/log")" -eq 4 ]
}

# However the rows are laid out.
ends_with_the_data() {
    for form in pad pack; do
        learn --max-steps 100000 --log-interval 100000 --form $form --save-weight short &&
            grep -qE '^the data ended after [1-9][0-9]+ of 100000 steps$' "$work/log" || return 1
    done
    ! grep -q '^stopped' "$work/log"
}

ends_with_another_rank() {
    set -- --comm "local:$work/meet" --world-size 2 --max-steps 1000 --epochs 100 --save-weight ranks
    (learn "$@" --rank 1 --max-seconds 0.001) & # in a process of its own, that overwrites the same log
    learn "$@" --rank 0 --log-interval 1000 >"$work/first"
    cat "$work/first"
    wait $! && grep -q '^stopped before the end: another rank ' "$work/first"
}

names_the_report_first() {
    learn_not "absent.jsonl" --regression "$work/absent.jsonl" && learn_not "a.jsonl" --report "$work/a.jsonl" &&
        learn_not "a.jsonl" --report "$work/a.jsonl/below"
}

# What the model or the tokenizer can't come to is said before anything is learnt, not behind it.
names_its_place_first() {
    mkdir "$work/taken" && : >"$work/taken/pretrain" && ! learn --save-dir "$work/taken" --max-steps 2 && ! grep -q '^Epoch' "$work/log" &&
        grep -q "^pretrain: $work/taken/pretrain: can't write there: " "$work/stderr" && [ "$(ls "$work/taken")" = pretrain ] &&
        refuses "--out .*a.jsonl: can't write there: " train_tokenizer --out "$work/a.jsonl" "$work/held.jsonl"
}

# What stands in the way of the model, behind all else, leaves what was learnt.
saves_the_model_later() {
    mkdir -p "$work/blocked/pretrain/model.safetensors" && ! learn --save-dir "$work/blocked" --max-steps 2 &&
        grep -q "^pretrain: .*model.safetensors: .*; what was learnt is in $work/blocked/pretrain.run, and --from-resume 1 saves the model$" \
            "$work/stderr" && rmdir "$work/blocked/pretrain/model.safetensors" && learn --save-dir "$work/blocked" --max-steps 2 --from-resume 1 &&
        [ -s "$work/blocked/pretrain/model.safetensors" ]
}

# A line on standard error, and no empty one before it; a terminal's moving line is gone by then.
ends_a_report_in_a_line() {
    printf '{"prompt": "a", "expect": []}' >"$work/unasked.jsonl"
    learn --regression "$work/unasked.jsonl" --max-steps 2 --save-weight unasked && [ "$(wc -l <"$work/stderr")" -eq 1 ] &&
        learn --sample "$(printf 'a\377')" --max-steps 2 --save-weight unsaid && [ "$(wc -l <"$work/stderr")" -eq 1 ] || return 1
    # shellcheck disable=SC2086
    at_terminal "export TERM=xterm" "$bin/pretrain" $rows --hidden-size 32 --num-hidden-layers 1 --max-steps 4 --save-dir "$work/out" \
        --save-weight unasked --regression "$work/unasked.jsonl" --regression-interval 3 && cat -v "$work/terminal" | grep -q '^pretrain: nothing of'
}

# Neither the directory of the run nor any above it, which were not there; one that was stays.
leaves_nothing_of_a_refused_run() {
    echo '{"text": ' >"$work/torn.jsonl"
    mkdir "$work/stood" && ! learn --data-path "$work/torn.jsonl" --save-dir "$work/none/deep" && [ ! -e "$work/none" ] &&
        ! learn --data-path "$work/torn.jsonl" --save-dir "$work/stood" --report "$work/none/report" && [ ! -e "$work/none" ] &&
        [ -d "$work/stood" ] && [ -z "$(ls "$work/stood")" ] && mkdir "$work/stood/pretrain.run" &&
        ! learn --data-path "$work/torn.jsonl" --save-dir "$work/stood" && [ -d "$work/stood/pretrain.run" ]
}

# --- A terminal ---

# at_terminal SETTINGS COMMAND…   What a terminal is sent by the command; SETTINGS are shell.
at_terminal() {
    printf '%s; shift; exec "$@"\n' "$1" >"$work/terminal.sh"
    command="sh '$work/terminal.sh'"
    for word; do
        command="$command '$word'"
    done
    SHELL=/bin/sh script -qec "$command" /dev/null </dev/null >"$work/terminal"
    status=$?
    cat -v "$work/terminal"
    return $status
}

fits_the_terminal() {
    # shellcheck disable=SC2086
    at_terminal "stty cols 40; export TERM=xterm" "$bin/pretrain" $rows --hidden-size 32 --num-hidden-layers 1 --max-steps 4 \
        --save-dir "$work/out" --save-weight shown --log-interval 100 --learning-rate 3e-7 || return 1
    tr '\r' '\n' <"$work/terminal" | sed 's/\x1b\[K//' | grep '^step ' >"$work/moving"
    [ "$(wc -l <"$work/moving")" -eq 4 ] && ! grep -qE '.{40}' "$work/moving" && grep -qE 'lr: [0-9.]+e-0[78],' "$work/terminal"
}

# A day of minutes, 1440:00, would be read as hours.
tells_long_runs_in_hours() {
    # shellcheck disable=SC2086
    at_terminal "stty cols 120; export TERM=xterm" timeout -s INT 5 "$bin/pretrain" $rows --hidden-size 32 --num-hidden-layers 1 \
        --epochs 100000000 --log-interval 100000000 --save-interval 0 --report "" --save-dir "$work/out" --save-weight long >"$work/log"
    tail -c 200 "$work/log"
    tr '\r' '\n' <"$work/terminal" | grep -qE ' [0-9]+:[0-5][0-9]:[0-5][0-9] left'
}

is_plain_where_it_is_dumb() {
    # shellcheck disable=SC2086
    at_terminal "export TERM=dumb" "$bin/pretrain" $rows --hidden-size 32 --num-hidden-layers 1 --max-steps 4 \
        --save-dir "$work/out" --save-weight shown && grep -q '^Epoch' "$work/terminal" && ! grep -q "$(printf '\033')" "$work/terminal"
}

# Colours are for terminals that have them, and for people who want them (https://no-color.org).
colours_where_they_are_wanted() {
    for settings in "TERM=xterm NO_COLOR=" "TERM=dumb NO_COLOR=" "TERM=xterm NO_COLOR=1"; do
        at_terminal "export $settings" "$bin/tokenize" --tokenizer "$work/tokenizer" well && cp "$work/terminal" "$work/tokens" &&
            grep -q '^4 bytes, ' "$work/tokens" && at_terminal "export $settings" "$bin/dataset" --tokenizer "$work/tokenizer" --kind chat \
            --template minimind2 --row 0 "$work/chat.jsonl" || return 1
        case $settings in
            "TERM=xterm NO_COLOR=") grep -q "$(printf '\033')" "$work/tokens" && grep -q "$(printf '\033\\[32mwell')" "$work/terminal" || return 1 ;;
            *) ! grep -q "$(printf '\033')" "$work/tokens" "$work/terminal" && grep -q '\[\[well' "$work/terminal" || return 1 ;;
        esac
    done
}

# Every line that goes over another one wipes it first; what is last has a line of its own.
wipes_its_line() {
    at_terminal "export TERM=xterm" "$bin/train_tokenizer" --vocab-size 480 --out "$work/t" "$work/a.jsonl" || return 1
    cat -v "$work/terminal" | grep -qF "^[[K$work/t: 480 tokens" && ! tr -d '\n' <"$work/terminal" | cat -v | grep -qE '\^M[^^]' || return 1
    at_terminal "export TERM=xterm" "$bin/train_tokenizer" --vocab-size 480 --out "$work/a.jsonl/t" "$work/a.jsonl" && return 1
    cat -v "$work/terminal" | grep -qF '^[[Ktrain_tokenizer: '
}

sends_pipes_no_moving_line() {
    "$bin/train_tokenizer" --vocab-size 480 --out "$work/t" "$work/a.jsonl" 2>"$work/stderr" && cat -v "$work/stderr" &&
        [ "$(cat "$work/stderr")" = "$work/t: 480 tokens" ]
}

# --- A full disk ---

# noticed PROGRAM ARGUMENT…   PROGRAM may be in a folder.
noticed() {
    program=$1
    shift
    "$bin/$program" "$@" >/dev/full 2>"$work/stderr" </dev/null
    status=$?
    echo "$program $*: status $status" && cat "$work/stderr"
    [ "$status" -eq 1 ] && grep -qx "${program##*/}: can't write standard output" "$work/stderr"
}

notices_a_full_disk() {
    for program in bench chat convert dataset distill dpo embed evaluate generate lora make_corpus params pretrain rl sft structured tokenize \
        train_tokenizer; do
        noticed $program --help || return 1
    done
    [ ! -x "$bin/cpp/sing" ] || { noticed cpp/sing --help && noticed cpp/sing; } || return 1
    # shellcheck disable=SC2086
    noticed pretrain $rows --hidden-size 32 --num-hidden-layers 1 --max-steps 3 --save-dir "$work/out" --save-weight full &&
        noticed rl --lessons 2 --steps 2 --batch 1 --group 2 --threads 1 --work-dir "$work/rl" &&
        noticed embed && noticed params && noticed params --list && noticed tokenize --tokenizer "$work/tokenizer" a &&
        noticed dataset --tokenizer "$work/tokenizer" "$work/a.jsonl" && noticed convert --model "$model" --out "$work/copy" &&
        noticed evaluate loss --model "$model" --data "$work/held.jsonl" --max-rows 1 --max-length 32 &&
        noticed generate --model "$model" --prompt a --max-new-tokens 4 &&
        noticed structured --model "$model" --prompt a --schema '{"type": "null"}'
}

# A file that may grow no longer, by a limit of the process, is as good as a full disk, and no signal's affair.
notices_a_limit_of_files() {
    # shellcheck disable=SC2086
    (ulimit -f 40 && exec "$bin/pretrain" $rows --hidden-size 32 --num-hidden-layers 1 --max-steps 3 --save-interval 1 --save-dir "$work/limit") \
        >"$work/log" 2>"$work/stderr"
    status=$?
    echo "status $status" && cat "$work/stderr" && ls "$work/limit/pretrain.run"
    [ "$status" -eq 1 ] && grep -q "^pretrain: .*can't write: " "$work/stderr" && [ -z "$(find "$work/limit" -name '*.tmp')" ] || return 1
    (ulimit -f 1 && exec "$bin/train_tokenizer" --quiet --vocab-size 400 --out "$work/limited" "$work/a.jsonl") 2>"$work/stderr"
    status=$?
    echo "status $status" && cat "$work/stderr"
    [ "$status" -eq 1 ] && grep -q "^train_tokenizer: $work/limited/tokenizer.json: can't write: " "$work/stderr" && [ ! -e "$work/limited/tokenizer.json" ]
}

# Files that a program opens would take the numbers of the streams that it was started without, and what it says.
keeps_its_words_out_of_files() {
    # shellcheck disable=SC2086
    "$bin/pretrain" $rows --hidden-size 32 --num-hidden-layers 1 --max-steps 3 --save-interval 1 --save-dir "$work/mute" <&- >&- 2>&-
    status=$?
    echo "status $status"
    [ "$status" -eq 1 ] && [ -s "$work/mute/pretrain/model.safetensors" ] && find "$work/mute" -name '*.lock' -size +0 | nothing &&
        ! grep -r 'Epoch:' "$work/mute"
}

# --- Options ---

# The model that is converted is there afterwards, to the bit.
keeps_the_source() {
    cp -r "$model" "$work/kept" && ln -s "$work/kept" "$work/link" || return 1
    for out in "$work/kept" "$work/kept/" "$work/link" "$work/../$(basename "$work")/kept"; do
        refuses "stays as it is" convert --model "$work/kept" --dtype bf16 --out "$out" || return 1
    done
    refuses "stays as it is" convert --model "$work/link" --dtype bf16 --out "$work/kept" && diff -r "$model" "$work/kept"
}

# What only others listen to.
refuses_options_of_others() {
    learn_not "without --comm" --world-size 2 && learn_not "without --comm" --rank 1 &&
        learn_not "--comm .*--world-size" --comm tcp:1 && learn_not "--comm .*--world-size" --comm "local:$work/alone" --rank 1 &&
        learn_not "--comm can be .*not nobody" --comm nobody && learn_not "--comm mpi takes no --world-size" --comm mpi --world-size 1 &&
        learn_not "--comm mpi takes no --rank" --comm mpi --rank 1 &&
        learn_not "empty beginning is none: --sample" --form pad --sample Once --sample "" &&
        learn_not "lora-rank" --lora-targets q_proj && learn_not "warmup-steps" --warmup-steps 3 &&
        learn_not "warmup-steps" --warmup-steps 3 --schedule constant && learn_not "0 or 1.*--use-moe" --use-moe 2
}

# Of an adapter: what one that was saved says itself, and the alpha that MiniMind's own do not have.
shapes_adapters() {
    set -- lora --model "$model" --data-path "$work/chat.jsonl" --save-dir "$work/none"
    for option in "--rank 4" "--alpha 8" "--dropout 0" "--targets q_proj"; do
        # shellcheck disable=SC2086
        refuses "${option%% *}" "$@" --from-lora "$work/absent" $option || return 1
    done
    refuses "no alpha.*--alpha" "$@" --alpha 8 && refuses "no alpha.*--alpha" "$@" --alpha 8 --targets minimind &&
        refuses "at least 1: --rank" "$@" --rank 0 && [ ! -e "$work/none" ]
}

# No answer has such a length; without a --max-chars lengths are no matter, and --min-chars is none.
rewards_lengths_that_there_are() {
    set -- rl --lessons 1 --steps 1 --work-dir "$work/none" --min-chars 5
    refuses "--min-chars is above --max-chars" "$@" --max-chars 2 && refuses "without --max-chars" "$@" && [ ! -e "$work/none" ]
}

# Whatever of its path is missing, and whether lessons or sums are the first to lie there.
makes_its_work_directory() {
    for lessons in 0 1; do
        "$bin/rl" --lessons $lessons --steps 1 --batch 1 --group 2 --threads 1 --work-dir "$work/deep/er$lessons/" >"$work/log" &&
            [ -s "$work/deep/er$lessons/model/model.safetensors" ] && rm -r "$work/deep" || return 1
    done
}

# What is saved has a name of its own: it does not come beside --save-dir, or over what lies in it.
names_what_it_saves() {
    for name in .. . "$work/none/.." "$work/none/../" ./ /; do
        learn_not "--save-weight" --save-weight "$name" || return 1
    done
    refuses "--save-weight" lora --save-dir "$work/none" --lora-name .. && [ ! -e "$work/none" ]
}

# Each of its four questions has options of its own.
evaluate_not() {
    words=$1
    what=$2
    shift 2
    refuses "$words" evaluate "$what" --model "$model" --data "$work/held.jsonl" "$@"
}

evaluates_by_options_that_count() {
    evaluate_not "--max-rows is for loss, choices and prompts, not for text" text --max-rows 10 || return 1
    for what in loss choices prompts; do
        evaluate_not "--overlap is for text, not for $what" $what --overlap 3 || return 1
    done
    for what in text choices prompts; do
        evaluate_not "--kind is for loss, not for $what" $what --kind chat && evaluate_not "--form is for loss, not for $what" $what --form pad &&
            evaluate_not "--pack is for loss, not for $what" $what --pack || return 1
    done
    for what in text choices; do
        evaluate_not "--template is for loss and prompts, not for $what" $what --template minimind2 || return 1
    done
    for what in text loss; do
        evaluate_not "--verbose is for choices and prompts, not for $what" $what --verbose || return 1
    done
    evaluate_not "rows of --kind text are no conversations.* --template" loss --template minimind2 &&
        evaluate_not "they take no --bos" loss --bos
}

# Half of a context is for the prompt, where a row does not say how long its answer may be.
tells_of_cut_prompts() {
    printf '{"prompt": "%s", "expect": ["never said"]}\n' "a b c" "a b c d e f g h i j k l m n o p" >"$work/asked.jsonl"
    printf '{"prompt": "%s", "choices": ["a", "b"], "answer": 0}\n' "a b c" "a b c d e f g h i j k l m n o p q r s t u v w x y z" >"$work/chosen.jsonl"
    set -- --model "$model" --max-length 20 --threads 1
    ! "$bin/evaluate" prompts "$@" --data "$work/asked.jsonl" >"$work/log" && cat "$work/log" &&
        grep -qx "prompts that --max-length 20 has no room for beside their answers, asked without their beginning: 1" "$work/log" &&
        "$bin/evaluate" choices "$@" --data "$work/chosen.jsonl" >"$work/log" && cat "$work/log" &&
        grep -qx "prompts that --max-length 20 has no room for beside their endings, asked without their beginning: 2" "$work/log" &&
        ! "$bin/evaluate" prompts "$@" --max-length 128 --data "$work/asked.jsonl" >"$work/log" && ! grep "no room" "$work/log" &&
        learn --max-steps 1 --save-weight asked --max-seq-len 20 --regression "$work/asked.jsonl" &&
        grep -qx "prompts that a row has no room for beside their answers, asked without their beginning: 1" "$work/log"
}

# MiniMind's command lines name the shape of a model that is there.
expects_its_shape() {
    learn_not "hidden_size is 32" --from-weight "$model" --hidden-size 64 &&
        learn_not "num_hidden_layers is 1" --from-weight "$model" --num-hidden-layers 2 &&
        learn_not "preset" --from-weight "$model" --preset minimind2 || return 1
    # shellcheck disable=SC2086
    refuses "hidden_size is 32" sft $rows --data-path "$work/chat.jsonl" --from-weight "$model" --save-dir "$work/none" --hidden-size 64 &&
        learn --from-weight "$model" --hidden-size 32 --num-hidden-layers 1 --max-steps 1 --save-weight same
}

# 0 is said as clearly as 1: a preset loses its experts, a model that is there can't.
has_experts_as_told() {
    # shellcheck disable=SC2086
    set -- $rows --hidden-size 32 --num-hidden-layers 1 --max-steps 1 --save-dir "$work/moe"
    "$bin/pretrain" "$@" --preset minimind2-moe && "$bin/pretrain" "$@" --preset minimind2-moe --use_moe 0 --save-weight dense &&
        "$bin/pretrain" "$@" --preset classic-tied --use_moe 0 --save-weight classic && grep '"use_moe"' "$work"/moe/*/config.json &&
        grep -q '"use_moe": true' "$work/moe/pretrain/config.json" && grep -q '"use_moe": false' "$work/moe/dense/config.json" &&
        "$bin/pretrain" "$@" --from-weight pretrain --use_moe 1 --save-weight same &&
        refuses "--from-weight has experts.*--use-moe 0" pretrain "$@" --from-weight pretrain --use_moe 0 --save-weight none
}

# MiniMind's own weights are a file of PyTorch's, which begins like a zip's: it is no tokenizer.json gone wrong.
names_weights_of_pytorch() {
    mkdir -p "$work/pth" && printf 'PK\003\004' >"$work/pth/full_sft_512.pth" || return 1
    for name in full_sft_512.pth full_sft_512 none; do
        refuses "no directory of a model.*pth/$name$" sft --save-dir "$work/pth" --from-weight $name --data-path "$work/chat.jsonl" || return 1
    done
    refuses "no directory of a model.*pth/no$" dpo --save-dir "$work/pth" --from-weight "$model" --reference no --data-path "$work/chat.jsonl"
}

# Of another family, whose config has no word for experts: it is fine-tuned and pretrained further all the same.
takes_other_families() {
    # shellcheck disable=SC2086
    set -- $rows --save-dir "$work/llama" --max-steps 1
    "$bin/pretrain" "$@" --preset classic-tied --hidden-size 64 --num-hidden-layers 1 &&
        "$bin/pretrain" "$@" --from-weight pretrain --hidden-size 64 --save-weight again &&
        "$bin/sft" "$@" --data-path "$work/chat.jsonl" --max-seq-len 64 --from-weight pretrain && [ -s "$work/llama/full_sft/model.safetensors" ] &&
        refuses "--from-weight has no experts" sft "$@" --data-path "$work/chat.jsonl" --from-weight pretrain --use-moe 1
}

# MiniMind's command lines name shapes that the models' directories know; and what a cache can't be asked is refused.
distill_not() {
    words=$1
    shift
    refuses "$words" distill --from-student-weight "$model" --from-teacher-weight "$model" --data-path "$work/chat.jsonl" \
        --save-dir "$work/none" --template minimind2 --threads 1 --max-steps 1 "$@" && [ ! -e "$work/none" ]
}

distill_takes_what_is_so() {
    distill_not "of --from-student-weight.*can't become 64" --student-hidden-size 64 &&
        distill_not "of --from-student-weight.*can't become 3" --student-num-layers 3 &&
        distill_not "of --from-teacher-weight.*can't become 64" --teacher-hidden-size 64 &&
        distill_not "--from-student-weight has no experts" --use-moe 1 &&
        distill_not "takes no --student-hidden-size" --student-hidden-size 32 --write-cache "$work/words.cache" &&
        distill_not "takes no --teacher-num-layers" --teacher-num-layers 1 --teacher-cache "$work/words.cache" &&
        distill_not "not both: --write-cache and --teacher-cache" --write-cache "$work/a" --teacher-cache "$work/b" &&
        distill_not "takes no --comm" --write-cache "$work/words.cache" --comm "local:$work/alone" --world-size 2 &&
        distill_not "--from-student-weight has no experts" --student_use_moe 1 &&
        distill_not "--from-teacher-weight has no experts" --teacher_use_moe 1 &&
        distill_not "takes no --student-use-moe" --student-use-moe 1 --write-cache "$work/words.cache" &&
        distill_not "takes no --teacher-use-moe" --teacher-use-moe 1 --teacher-cache "$work/words.cache" &&
        distill_not "has a --top-k" --top-k 8 && "$bin/distill" --from-student-weight "$model" --from-teacher-weight "$model" \
        --student-hidden-size 32 --student-num-layers 1 --teacher-hidden-size 32 --teacher-num-layers 1 --use-moe 0 --threads 1 \
        --student_use_moe 0 --teacher_use_moe 0 --max-steps 1 --data-path "$work/chat.jsonl" --save-dir "$work/taught" --template minimind2
}

# No half of a token is made.
chat_counts_in_whole_numbers() {
    for option in --max-new-tokens --context --seed --threads; do
        refuses "$option" chat --model "$model" $option 2.5 </dev/null || return 1
    done
    "$bin/chat" --model "$model" --template minimind2 --temperature 0.5 --top-p 0.5 </dev/null
}

# A vocabulary may have no token that rows begin with.
says_that_there_is_no_bos() {
    cp -r "$model" "$work/beginless" && sed -i 's/"bos_token_id": [0-9]*/"bos_token_id": -1/' "$work/beginless/config.json" || return 1
    refuses "this model has no bos token for --bos" generate --model "$work/beginless" --prompt a --bos &&
        refuses "this model has no bos token for --bos" evaluate text --model "$work/beginless" --data "$work/a.jsonl" --bos
}

names_the_choices() {
    learn_not "constant, minimind2, minimind3, cosine, linear or wsd" --schedule x && learn_not "pad, pad3 or pack" --form x &&
        refuses "text, chat, preference or prompt" dataset --tokenizer "$work/tokenizer" --kind x "$work/a.jsonl" &&
        refuses "pad, pad3 or pack" dataset --tokenizer "$work/tokenizer" --form x "$work/a.jsonl" &&
        refuses "from 0 to 1073741824, not" generate --model "$model" --prompt a --top-k x &&
        refuses "from 0 to 9000000000000000, not" generate --model "$model" --prompt a --seed x &&
        refuses "from 1 to 9223372036854775807, not" train_tokenizer --min-frequency 9223372036854775808 --out "$work/x" "$work/a.jsonl" &&
        refuses "from 257 to 2147483647, not \"x\"" train_tokenizer --vocab-size x --out "$work/x" "$work/a.jsonl" || return 1
    kinds="\"x\", it can be minimind2-small, .* or classic-untied"
    learn_not "$kinds" --preset x && refuses "$kinds" params --preset x && refuses "$kinds" bench decode --preset x &&
        refuses "kernels is \"x\", must be c" generate --model "$model" --prompt a --kernels x
}

names_the_culprit() {
    refuses "^dataset: --row .*\"x\"" dataset --tokenizer "$work/tokenizer" --row x "$work/a.jsonl" &&
        refuses "--max-length .*\"x\"" dataset --tokenizer "$work/tokenizer" --max-length x "$work/a.jsonl" &&
        refuses "--bogus" dataset --tokenizer "$work/tokenizer" --bogus "$work/a.jsonl" &&
        refuses "--nonsense" tokenize --nonsense && refuses "--tokenizer lacks" tokenize --tokenizer &&
        refuses "no such option.*--nonsense" train_tokenizer --nonsense && refuses "no value for --out" train_tokenizer --out &&
        refuses "--preset lacks" params --preset && refuses "--tokenizer" pretrain
}

# A name may be cut short where that leaves no doubt; the programs' own options stand in for shared ones of their name.
takes_beginnings_of_one_name() {
    learn_not "ambiguous" --max 1 && learn_not "ambiguous" --save-w=words --lora 1 &&
        refuses "not a whole number.*--rank" lora --ran x && learn --max-st 1 --save-we beginnings && [ -d "$work/out/beginnings" ]
}

tells_what_rows_are() {
    "$bin/evaluate" --help >"$work/help" && cat "$work/help" && grep -q '"choices"' "$work/help" && grep -q '"expect"' "$work/help" &&
        grep -q '{"text"' "$work/help"
}

# --- chat ---

# Standard input to the model: answers come to talk, what is told beside them to aside.
talk() {
    "$bin/chat" --model "$model" --template minimind2 --max-new-tokens 2 --context 128 --threads 1 >"$work/talk" 2>"$work/aside"
    status=$?
    cat "$work/talk" "$work/aside"
    return $status
}

knows_its_commands() {
    printf '/quite\n/help\n/home/of mine\n' | talk && [ "$(wc -l <"$work/talk")" -ge 1 ] && grep -q '^chat: .*: /quite$' "$work/aside" &&
        grep -q '/adapters' "$work/aside" && ! grep -q '/home' "$work/aside"
}

# A question that does not fit is told what would; that none does is told before the first.
tells_of_a_small_context() {
    set -- --model "$model" --template minimind2 --max-new-tokens 2 --threads 1
    refuses "--context is 16, but the shortest question takes [0-9]* tokens with the template; give a larger one" \
        chat "$@" --context 16 && [ "$(wc -l <"$work/stderr")" -eq 1 ] &&
        refuses "--context is 64, .* with the template and --system; " chat "$@" --context 64 --system "$(seq 99 | tr '\n' ' ')" || return 1
    { seq 99 | tr '\n' ' ' && printf '\nhi\n'; } | "$bin/chat" "$@" --context 64 >"$work/talk" 2>"$work/aside" && cat "$work/aside" &&
        [ "$(wc -l <"$work/talk")" -ge 1 ] && [ "$(wc -l <"$work/aside")" -eq 1 ] &&
        grep -q '^chat: this takes [0-9]* tokens with the template, --context is 64; say it shorter$' "$work/aside"
}

goes_on_after_bad_text() {
    printf 'a\377b\nhi\n' | talk && [ "$(wc -l <"$work/talk")" -ge 1 ] && [ "$(grep -cx 'chat: this is not UTF-8' "$work/aside")" -eq 1 ] &&
        refuses "--system: this is not UTF-8" chat --model "$model" --template minimind2 --system "$(printf 'a\377b')"
}

# The end of input is no error; a directory has none.
tells_what_it_cannot_read() {
    set -- --model "$model" --template minimind2
    "$bin/chat" "$@" </dev/null && refuses "can't read standard input" chat "$@" <"$work" &&
        refuses "can't read standard input" tokenize --tokenizer "$work/tokenizer" <"$work"
}

# --- The quickstart ---

looks_before_it_deletes() {
    mkdir -p "$work/quick/model" && : >"$work/quick/model/kept" || return 1
    for wrong in "--seconds 08" "--threads 010" "--seconds 12345678901234567890" "--threads x" "--seconds"; do
        # shellcheck disable=SC2086
        "$root/examples/quickstart.sh" --no-build --build-dir "$build" --out "$work/quick" $wrong >"$work/log" 2>&1 && return 1
        cat "$work/log"
        [ "$(grep -c "^${wrong%% *} \|^--seconds and --threads" "$work/log")" -eq 1 ] || return 1
    done
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

# Rows without an answer, some, those far into a file, and then all of them.
tells_of_rows_without_answers() {
    printf '{"conversations": [{"role": "user", "content": "hi"}]}\n' >"$work/mute.jsonl"
    cat "$work/mute.jsonl" "$work/chat.jsonl" >"$work/some.jsonl"
    sft="$bin/sft --from-weight $model --template minimind3 --max-seq-len 64 --batch-size 2 --max-steps 1 --threads 1"
    $sft --data-path "$work/some.jsonl" --save-dir "$work/taught" >"$work/log" || return 1
    grep -qx "$work/some.jsonl: nothing to learn, such as an answer, in 1 of 2 rows looked at" "$work/log" || return 1
    { yes "$(cat "$work/chat.jsonl")" | head -n 1000 && yes "$(cat "$work/mute.jsonl")" | head -n 999; } >"$work/late.jsonl"
    $sft --data-path "$work/late.jsonl" --save-dir "$work/taught" >"$work/log" && cat "$work/log" || return 1
    grep -qx "$work/late.jsonl: nothing to learn, such as an answer, in 499 of 1000 rows looked at" "$work/log" || return 1
    ! $sft --data-path "$work/mute.jsonl" --save-dir "$work/untaught" >"$work/log" 2>"$work/stderr" && cat "$work/stderr" &&
        grep -qx "sft: there is nothing to learn in $work/mute.jsonl" "$work/stderr" && [ ! -e "$work/untaught/full_sft" ]
}

check "a small model is there to speak of" learn --max-steps 2
check "rows without an answer are told of, and a run with no others ends" tells_of_rows_without_answers
check "a validation is told of once, also by a run that goes on" tells_validations_once
check "a run that begins anew says what it will replace" tells_of_an_earlier_run
check "a run of two steps goes on to five, and is not shortened again" becomes_longer
check "a run out of patience says so, and where the best model is" ends_without_patience
check "a run out of time says so" ends_in_time
check "a run out of data says so" ends_with_the_data
if [ -x "$build/tests/examples/interrupted" ]; then
    check "a signal behind the end of a run ends the program" ends_at_a_late_signal
    check "a page is drawn though the clock is set back" draws_when_the_clock_goes_back
fi
check "a run that another rank ends says so" ends_with_another_rank
check "a run refused for its data leaves no directory" leaves_nothing_of_a_refused_run
check "what a report lacks ends the run at its beginning" names_the_report_first
check "a place that takes no model or tokenizer is named at the beginning" names_its_place_first
check "a model that can't be saved is saved by going on" saves_the_model_later
check "what ends a report is told in one line" ends_a_report_in_a_line
if command -v script >/dev/null && SHELL=/bin/sh script -qec true /dev/null </dev/null >/dev/null 2>&1; then
    check "the moving line fits the terminal" fits_the_terminal
    check "the time that is left has hours" tells_long_runs_in_hours
    check "a dumb terminal is sent lines" is_plain_where_it_is_dumb
    check "tokens are coloured on a terminal that has colours, unless NO_COLOR is set" colours_where_they_are_wanted
    check "train_tokenizer wipes its moving line" wipes_its_line
else
    skip "moving lines" "no script to make a terminal"
fi
check "train_tokenizer sends pipes no moving line" sends_pipes_no_moving_line
[ ! -c /dev/full ] || check "every program says that its output can't be written" notices_a_full_disk
check "a limit of files' size is told of as a full disk is" notices_a_limit_of_files
check "what a program says lands in no file of a run that has no output" keeps_its_words_out_of_files
check "convert leaves its model as it is" keeps_the_source
check "options that would have no effect are refused" refuses_options_of_others
check "lora refuses what would not shape its adapter" shapes_adapters
check "rl rewards lengths that an answer can have" rewards_lengths_that_there_are
check "rl makes its directory, and those above it" makes_its_work_directory
check "evaluate refuses options that would not count" evaluates_by_options_that_count
check "prompts of which only the end was asked are told of" tells_of_cut_prompts
check "what is saved has a name of its own" names_what_it_saves
check "a model that is there has the shape that it is said to have" expects_its_shape
check "weights of PyTorch's are no directory of a model" names_weights_of_pytorch
check "--use-moe 0 means a model without experts" has_experts_as_told
check "a model of a family that knows no experts is learnt further" takes_other_families
check "distill's models have the shapes that they are said to have, and a cache is asked what it knows" distill_takes_what_is_so
check "names and numbers that can't be taken are told what can" names_the_choices
check "messages name the option that is wrong" names_the_culprit
check "chat takes whole numbers where it counts" chat_counts_in_whole_numbers
check "a model without a bos token can't be asked with it" says_that_there_is_no_bos
check "what several options begin with is none of them" takes_beginnings_of_one_name
check "evaluate --help says what rows are" tells_what_rows_are
check "chat refuses a template before the first line" refuses "no-such" chat --model "$model" --template no-such
check "chat knows its commands from what is said" knows_its_commands
check "chat goes on after a line that is no text" goes_on_after_bad_text
check "chat tells once that its context is too small for any question" tells_of_a_small_context
check "chat and tokenize say that their input can't be read" tells_what_it_cannot_read
check "the quickstart looks for its programs before it deletes" looks_before_it_deletes
if command -v bash >/dev/null && env --default-signal=INT true 2>/dev/null; then
    check "the quickstart ends at Ctrl-C" quickstart_stops
fi
finish
