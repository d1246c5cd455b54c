# shellcheck shell=sh disable=SC2154
# For the tests of the example programs, after tap.sh; $bin is where these are.

# refuses WORDS PROGRAM ARGUMENT…   It fails with status 1, says WORDS in one line on standard error that begins with the program's
# name, and prints nothing.
refuses() {
    said=$1
    program=$2
    shift 2
    "$bin/$program" "$@" >"$work/stdout" 2>"$work/stderr"
    status=$?
    cat "$work/stdout" "$work/stderr"
    [ "$status" -eq 1 ] && [ ! -s "$work/stdout" ] && grep "^$program: " "$work/stderr" | grep -q -e "$said"
}
