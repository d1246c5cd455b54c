#!/bin/sh
# The example that writes JSON of a shape: whatever a model draws fits, and what can't be kept to is refused before anything is
# drawn.
#
#     test_structured.sh SOURCE_ROOT BUILD_ROOT
set -u
root=$1
bin=$2/examples
# shellcheck source=tests/tap.sh
. "$root/tests/tap.sh"
# shellcheck source=tests/examples/support.sh
. "$root/tests/examples/support.sh"

# make_model NAME VOCAB_SIZE   One that has learnt nothing, with a tokenizer of its own.
make_model() {
    "$bin/train_tokenizer" --quiet --vocab-size "$2" --out "$work/tokenizer-$1" "$work/a.jsonl" 2>/dev/null &&
        "$bin/pretrain" --tokenizer "$work/tokenizer-$1" --data-path "$work/a.jsonl" --hidden-size 32 --num-hidden-layers 1 \
            --max-steps 1 --learning-rate 0 --batch-size 2 --max-seq-len 32 --threads 1 --save-dir "$work" --save-weight "$1" >"$work/log"
}

# Words of several characters, and of parts of them; single bytes.
"$bin/make_corpus" --bytes 200000 --out "$work/a.jsonl" && make_model words 1200 && make_model bytes 259
model=$work/words
# A model may have more ids than its tokenizer, and fewer.
cp -r "$work/words" "$work/more" && cp "$work/bytes"/tokenizer*.json "$work/more"
cp -r "$work/bytes" "$work/fewer" && cp "$work/words"/tokenizer*.json "$work/fewer"

fits() {
    "$python" "$root/tests/examples/fits.py" "$bin/structured" 6 "$1"
}

asks() {
    printf '\n {"type": "array", "minItems": 3, "maxItems": 3, "items": {"const": "\\u4e16"}}\n' >"$work/schema.json"
    "$bin/structured" --model "$model" --schema "$work/schema.json" --ask hi --stats >"$work/stdout" 2>"$work/stderr" &&
        cat "$work/stdout" "$work/stderr" && [ "$(cat "$work/stdout")" = '["世", "世", "世"]' ] && grep -q "masks of 1200 tokens" "$work/stderr"
}

same_seed_same_answer() {
    set -- "$bin/structured" --model "$model" --schema '{"type": "string"}' --prompt x
    "$@" --seed 3 --threads 1 >"$work/one" && "$@" --seed 3 --threads 2 | cmp "$work/one" - && ! "$@" --seed 4 | cmp -s "$work/one" -
}

# refuses_schema WORDS SCHEMA
refuses_schema() {
    refuses "$1" structured --model "$model" --schema "$2" --prompt x
}

refuses_what_is_no_json() {
    refuses_schema "byte 1: a string" '{' && refuses_schema "byte 18: a comma" '{"type": "string" 1}' && refuses_schema "byte 16: a string" '{"type": "null",}' &&
        refuses_schema "byte 16: it has ended" '{"type": "null"}]' && refuses_schema "byte 9: a value" '{"enum":[tru]}' &&
        refuses_schema "byte 10: a comma" '{"enum":[01]}' && refuses_schema "byte 11: a digit" '{"enum":[1.]}' &&
        refuses_schema "half of a pair" '{"const":"\ud800\u0041"}' && refuses_schema "four hexadecimal" '{"const":"\u12g4"}' &&
        refuses_schema "no such escape" '{"const":"\q"}' && refuses_schema "breaks off" '{"const":"a' &&
        refuses_schema "not UTF-8 at byte 10" "$(printf '{"const":"\377"}')" && refuses_schema "too deeply" "{\"const\":$(printf '[%.0s' $(seq 500))" &&
        printf '' >"$work/empty" && refuses_schema "byte 0: a value" "$work/empty"
}

# shellcheck disable=SC2016 # "$ref" is the name of a keyword
refuses_what_cannot_be_kept_to() {
    refuses_schema '"a", "items": .*"pattern"' '{"type": "object", "properties": {"a": {"type": "array", "items": {"type": "string", "pattern": "x"}}}}' &&
        refuses_schema '"\$ref"' '{"$ref": "#"}' && refuses_schema "type" '{}' && refuses_schema '"strin"' '{"type": "strin"}' &&
        refuses_schema 'not \["string"\]' '{"type": ["string"]}' && refuses_schema "is an object, not true" '{"type": "array", "items": true}' &&
        refuses_schema "at least one value" '{"enum": []}' && refuses_schema "isn.t of its type, 1" '{"type": "string", "enum": ["a", 1]}' &&
        refuses_schema "isn.t of its type, 1.5" '{"type": "integer", "const": 1.5}' && refuses_schema '"maxLength"' '{"enum": ["abc"], "maxLength": 1}' &&
        refuses_schema 'twice.*"type"' '{"type": "null", "type": "null"}' && refuses_schema '"properties"' '{"type": "object"}' &&
        refuses_schema 'twice the property "a"' '{"type": "object", "properties": {"a": {"type": "null"}, "\u0061": {"type": "null"}}}' &&
        refuses_schema 'required is no property of it, "z"' '{"type": "object", "properties": {}, "required": ["z"]}' &&
        refuses_schema '"items"' '{"type": "array"}' && refuses_schema "not 1.5" '{"type": "string", "maxLength": 1.5}' &&
        refuses_schema "not -1" '{"type": "string", "minLength": -1}' && refuses_schema "as long as" '{"type": "string", "minLength": 2, "maxLength": 1}' &&
        refuses_schema 'only of an integer .*"maximum"' '{"type": "number", "maximum": 2}' && refuses_schema "not 1.5" '{"type": "integer", "minimum": 1.5}' &&
        refuses_schema 'not "2"' '{"type": "integer", "maximum": "2"}' && refuses_schema "not -1234567890123456" '{"type": "integer", "minimum": -1234567890123456}' &&
        refuses_schema "between its bounds" '{"type": "integer", "minimum": 2, "exclusiveMaximum": 2}' &&
        refuses_schema "between its bounds" '{"type": "integer", "exclusiveMinimum": 999999999999999}' &&
        refuses_schema 'beside an enum .*"minimum"' '{"enum": [1], "minimum": 1}' && refuses_schema "more arrays" "$(printf '{"type": "array", "items": %.0s' $(seq 17)){\"type\": \"null\"}$(printf '}%.0s' $(seq 17))"
}

refuses_what_takes_too_many_tokens() {
    refuses_schema "may need 301 tokens" '{"type": "string", "minLength": 299}' &&
        refuses_schema "more tokens than there can be" '{"type": "array", "minItems": 2000000000, "items": {"type": "string", "minLength": 2000000000}}' &&
        refuses "too few for a prompt" structured --model "$model" --schema '{"type": "null"}' --prompt x --max-new-tokens 1000000
}

# Tokens that are special are no text: where these are the only ones of a byte, no text has it.
refuses_what_no_tokens_spell() {
    cp -r "$work/bytes" "$work/dumb" && "$python" - "$work/dumb/tokenizer.json" <<'END' || return 1
import json, sys

with open(sys.argv[1], encoding="utf-8") as file:
    tokenizer = json.load(file)
like = tokenizer["added_tokens"][0]
tokenizer["added_tokens"] += [dict(like, id=tokenizer["model"]["vocab"][c], content=c, special=True) for c in '{1234567890']
with open(sys.argv[1], "w", encoding="utf-8") as file:
    json.dump(tokenizer, file)
END
    rm -f "$work/dumb/tokenizer_config.json"
    set -- structured --model "$work/dumb" --prompt x --schema
    "$bin/$1" --model "$work/dumb" --prompt x --schema '{"type": "boolean"}' && refuses "has no tokens to write .*{}" "$@" '{"type": "object", "properties": {}}' &&
        refuses "lacks some for its numbers" "$@" '{"type": "array", "minItems": 1, "items": {"type": "integer"}}' &&
        refuses "lacks some for its numbers" "$@" '{"type": "integer", "minimum": 0}'
}

says_what_it_needs() {
    refuses "it takes --model" structured --model "$model" --prompt x && refuses "either --ask or --prompt" structured --model "$model" --schema "{" &&
        refuses "either --ask or --prompt" structured --model "$model" --schema "{" --ask a --prompt b && refuses "no-such" structured --no-such 1 &&
        refuses "--temperature" structured --temperature hot && refuses "--max-new-tokens" structured --max-new-tokens 0 &&
        refuses "--seed" structured --seed && refuses "/no/such/file" structured --model "$model" --schema /no/such/file --prompt x &&
        refuses "/no/such/model" structured --model /no/such/model --schema "{" --prompt x &&
        refuses "template" structured --model "$model" --schema '{"type": "null"}' --ask hi --template zz
}

if python=$(. "$root/tests/packages.sh" && python_for_tests); then
    for name in words bytes more fewer; do
        check "answers of a model of $name fit" fits "$work/$name"
    done
    check "what no tokens spell is refused" refuses_what_no_tokens_spell
else
    skip "answers fit" "there is no Python"
fi
check "a question and a schema from a file give an answer" asks
check "the same seed gives the same answer, with any number of threads" same_seed_same_answer
check "a schema that is no JSON is refused" refuses_what_is_no_json
check "a schema that can't be kept to is refused" refuses_what_cannot_be_kept_to
check "a shape that has no room is refused" refuses_what_takes_too_many_tokens
check "it says what it needs" says_what_it_needs
finish
