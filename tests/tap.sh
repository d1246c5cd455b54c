# shellcheck shell=sh
# For test scripts: each check is one line of TAP. Source it, call check, end with finish. $work is an empty directory
# that goes when the script ends.

cases=0
failed=0
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT

# check "a sentence that is true" command…   What the command prints is shown only when it fails.
check() {
    sentence=$1
    shift
    cases=$((cases + 1))
    if "$@" >"$work/output" 2>&1; then
        echo "ok $cases - $sentence"
    else
        failed=$((failed + 1))
        echo "not ok $cases - $sentence"
        sed 's/^/# /' "$work/output"
    fi
}

# skip "a sentence" reason
skip() {
    cases=$((cases + 1))
    echo "ok $cases - $1 # SKIP $2"
}

finish() {
    echo "1..$cases"
    [ "$failed" -eq 0 ]
    exit
}

# Succeeds when standard input has no line, and shows what it has.
nothing() {
    ! grep .
}
