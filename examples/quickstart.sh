#!/bin/sh
# From nothing to a small language model that talks, in about five minutes, the whole road: build the library, make a corpus,
# learn a tokenizer from it, train a model from scratch, teach it to answer, teach it which answers people like, and talk to it.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
# shellcheck source=tests/packages.sh
. "$root/tests/packages.sh"

usage="usage: examples/quickstart.sh [OPTION...]

  --seconds N      how long to pretrain (120); what follows takes as long again
  --threads N      0: one per core (0)
  --out DIR        where corpus, tokenizer and model go (out/quickstart)
  --build-dir DIR  where to build (build)
  --no-build       use the build that is there
  --help           show this"

seconds=120
threads=0
out=$root/out/quickstart
build=$root/build
make=yes
while [ $# -gt 0 ]; do
    case $1 in
        --help) echo "$usage"; exit 0 ;;
        --no-build) make=no; shift; continue ;;
        --seconds | --threads | --out | --build-dir)
            [ $# -ge 2 ] || { echo "$1 needs a value" >&2; exit 2; } ;;
        *) echo "no such option: $1" >&2; echo "$usage" >&2; exit 2 ;;
    esac
    case $1 in
        --seconds) seconds=$2 ;;
        --threads) threads=$2 ;;
        --out) out=$2 ;;
        --build-dir) build=$2 ;;
    esac
    shift 2
done
case $seconds/$threads in
    /* | */ | *[!0-9]*[!0-9]* | *[!0-9/]*) echo "--seconds and --threads take whole numbers" >&2; exit 2 ;;
    0?*/* | */0?* | ????????*/* | */????????*) # an octal number to a shell, or more than it can multiply
        echo "--seconds and --threads take at most seven digits, and no zeros before them" >&2; exit 2 ;;
esac

# Ctrl-C reaches the training programs too, which save what they have and end well: the road ends here all the same.
trap 'echo "interrupted" >&2; exit 130' INT
trap 'echo "terminated" >&2; exit 143' TERM

say() {
    printf '\n\033[1m%s\033[0m\n' "$*"
}
[ -t 1 ] && [ "${TERM:-dumb}" != dumb ] && [ -z "${NO_COLOR:-}" ] || say() { printf '\n%s\n' "$*"; }

# A word as a shell takes it.
quoted() {
    case $1 in
        *[!A-Za-z0-9_./-]*) printf "'%s'" "$(printf %s "$1" | sed "s/'/'\\\\''/g")" ;;
        *) printf %s "$1" ;;
    esac
}

if [ "$make" = yes ]; then
    say "1. Build the library"
    require cc libc meson ninja pkg-config openblas jansson libpcre2-8
    configure "$build" -Dbuildtype=release -Dexamples=enabled
    ninja -C "$build" >"$build/ninja.log" || { cat "$build/ninja.log" >&2; exit 1; }
    echo "in $build"
fi
bin=$build/examples
for program in make_corpus train_tokenizer pretrain sft dpo generate chat; do
    # What an earlier run has learnt is deleted below, so not before this one can begin.
    [ -x "$bin/$program" ] || { echo "there is no $bin/$program; without --no-build this script builds it" >&2; exit 1; }
done

say "2. Make a corpus: stories, questions and answers, in English and Chinese"
mkdir -p "$out"
for name in tokenizer untrained pretrained sft model; do
    rm -rf "${out:?}/$name" "$out/$name.run"
done
"$bin/make_corpus" --out "$out/corpus.jsonl"
"$bin/make_corpus" --kind chat --out "$out/chat.jsonl"
"$bin/make_corpus" --kind preference --bytes 1000000 --out "$out/preferences.jsonl"
"$bin/make_corpus" --kind preference --bytes 20000 --seed 2 --out "$out/preferences_valid.jsonl"
for kind in corpus chat preferences; do
    head -n 1 "$out/$kind.jsonl"
    echo "... $(wc -l <"$out/$kind.jsonl") rows in $out/$kind.jsonl"
done

say "3. Learn a tokenizer from it"
"$bin/train_tokenizer" --vocab-size 1600 --out "$out/tokenizer" --quiet "$out/corpus.jsonl"

# What all runs below have in common. Each keeps its checkpoints and its report beside its model, in NAME.run.
learn() {
    program=$1 name=$2
    shift 2
    "$bin/$program" --tokenizer "$out/tokenizer" --max-seq-len 128 --batch-size 4 --accumulation-steps 1 \
        --epochs 8 --schedule cosine --threads "$threads" --save-interval 0 --save-dir "$out" \
        --save-weight "$name" "$@"
}

pretrain() {
    learn pretrain "$@" --data-path "$out/corpus.jsonl" --hidden-size 192 --num-hidden-layers 4 --form pack
}

# The first words are the prompt's, the rest is what the model makes of them.
continue_prompts() {
    for prompt in "Once upon a time, there was a" "从前，有一个" "Question: What do pandas eat?" "问：兔子吃什么？"; do
        printf '\n> %s' "$prompt"
        "$bin/generate" --model "$1" --bos --prompt "$prompt" --max-new-tokens 90 --temperature 0.7 --threads "$threads"
    done
}

# A conversation each: what was asked, and what the model answers.
ask() {
    for question in "What do pandas eat?" "How much is 3 plus 4?" "兔子吃什么？"; do
        printf '\n> %s\n' "$question"
        echo "$question" | "$bin/chat" --model "$1" --template minimind2 --max-new-tokens 40 --temperature 0.5 --threads "$threads"
    done
}

say "4. Before training"
# A learning rate of 0 leaves the weights as they are; how many steps fit into this time tells how many to plan for.
probe=$((seconds / 30 + 1))
pretrain untrained --learning-rate 0 --max-seconds "$probe" --log-interval 1000000 >/dev/null
done_steps=$(sed 's/^step-//' "$out/untrained.run/latest")
steps=$((done_steps * seconds / probe + 1))
continue_prompts "$out/untrained"

say "5. Pretrain: continue texts. About $seconds seconds, which are $steps steps here"
pretrain pretrained --learning-rate 2e-3 --warmup-steps $((steps / 8)) --max-steps "$steps" \
    --max-seconds $((2 * seconds)) --log-interval $((steps / 20 + 1)) \
    --sample "Once upon a time, there was a" --sample "从前，有一个" --sample "Question: What do pandas eat?"
continue_prompts "$out/pretrained"

say "6. Fine-tune: answer questions, from conversations"
learn sft sft --template minimind2 --data-path "$out/chat.jsonl" --from-weight "$out/pretrained" --pack --learning-rate 1e-3 \
    --max-steps $((steps / 2 + 1)) --max-seconds "$seconds" --log-interval $((steps / 20 + 1))
ask "$out/sft"

say "7. Prefer: of two answers the friendly one is liked better"
learn dpo model --template minimind2 --data-path "$out/preferences.jsonl" --validation-path "$out/preferences_valid.jsonl" --from-weight "$out/sft" \
    --learning-rate 1e-4 --max-steps $((steps / 16 + 1)) --max-seconds "$seconds" --log-interval $((steps / 80 + 1))
ask "$out/model"

say "How it learnt, in curves and samples: $out/pretrained.run/report/report.html"
say "The model is in $out/model. Talk with it:"
echo "    $(quoted "$bin/chat") --model $(quoted "$out/model") --template minimind2"
