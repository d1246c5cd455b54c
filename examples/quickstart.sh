#!/bin/sh
# From nothing to a small language model that talks, in about three minutes: build the library, make a corpus, learn a
# tokenizer from it, train a model from scratch, and let it continue a sentence before and after.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
# shellcheck source=tests/packages.sh
. "$root/tests/packages.sh"

usage="usage: examples/quickstart.sh [OPTION...]

  --seconds N      how long to train (120)
  --threads N      0: one per processor (0)
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
esac

say() {
    printf '\n\033[1m%s\033[0m\n' "$*"
}
[ -t 1 ] || say() { printf '\n%s\n' "$*"; }

if [ "$make" = yes ]; then
    say "1. Build the library"
    require cc libc meson ninja pkg-config openblas jansson libpcre2-8
    configure "$build" -Dbuildtype=release -Dexamples=enabled
    ninja -C "$build" >"$build/ninja.log" || { cat "$build/ninja.log" >&2; exit 1; }
    echo "in $build"
fi
bin=$build/examples

say "2. Make a corpus: stories, questions and answers, in English and Chinese"
mkdir -p "$out"
rm -rf "$out/tokenizer" "$out/untrained" "$out/model" "$out/latest" "$out"/step-*
"$bin/make_corpus" --out "$out/corpus.jsonl"
head -n 1 "$out/corpus.jsonl"
echo "... $(wc -l <"$out/corpus.jsonl") texts in $out/corpus.jsonl"

say "3. Learn a tokenizer from it"
"$bin/train_tokenizer" --vocab-size 1600 --out "$out/tokenizer" --quiet "$out/corpus.jsonl"

# What both runs below have in common: the shape of the model, and how texts become batches.
pretrain() {
    "$bin/pretrain" --data-path "$out/corpus.jsonl" --tokenizer "$out/tokenizer" --hidden-size 192 --num-hidden-layers 4 \
        --max-seq-len 128 --form pack --batch-size 4 --accumulation-steps 1 --epochs 4 --schedule cosine \
        --threads "$threads" --save-interval 0 --save-weight model "$@"
}

# The first words are the prompt's, the rest is what the model makes of them.
continue_prompts() {
    for prompt in "Once upon a time, there was a" "从前，有一个" "Question: What do pandas eat?" "问：兔子吃什么？"; do
        printf '\n> %s' "$prompt"
        "$bin/generate" --model "$1" --bos --prompt "$prompt" --max-new-tokens 90 --temperature 0.7 --threads "$threads"
    done
}

say "4. Before training"
# A learning rate of 0 leaves the weights as they are; how many steps fit into this time tells how many to plan for.
probe=$((seconds / 30 + 1))
pretrain --save-dir "$out/untrained" --learning-rate 0 --max-seconds "$probe" --log-interval 1000000 >/dev/null
done_steps=$(sed 's/^step-//' "$out/untrained/latest")
steps=$((done_steps * seconds / probe + 1))
continue_prompts "$out/untrained/model"

say "5. Train for about $seconds seconds, which are $steps steps here"
pretrain --save-dir "$out" --learning-rate 2e-3 --warmup-steps $((steps / 8)) --max-steps "$steps" \
    --max-seconds $((2 * seconds)) --log-interval $((steps / 20 + 1))

say "6. After training"
continue_prompts "$out/model"

say "The model is in $out/model. Go on with it:"
echo "    $bin/generate --model $out/model --bos --prompt \"One day, Lily\""
