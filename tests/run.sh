#!/bin/sh
# Build a release, run every test, and say how many passed. On Debian what is missing is installed first.
set -u
root=$(cd "$(dirname "$0")/.." && pwd) || exit 1
# shellcheck source=tests/packages.sh
. "$root/tests/packages.sh"

usage="usage: tests/run.sh [OPTION...]

Build libminimind and run its tests. The last line is \"N passed, N failed\".

  --sanitize       with the address and undefined-behaviour sanitizers, in build-sanitize
  --no-blas        without OpenBLAS, in build-noblas
  --suite NAME     only the tests of this suite; slow ones run only when --suite slow asks for them
  --werror         a warning fails the build
  --build-dir DIR  another directory to build in (build)
  --help           show this"

build=$root/build
suite=
blas=openblas
sanitize=none
werror=false
named=
while [ $# -gt 0 ]; do
    case $1 in
        --sanitize) sanitize=address,undefined ;;
        --no-blas) blas=none ;;
        --werror) werror=true ;;
        --suite | --build-dir)
            [ $# -ge 2 ] || { echo "$1 needs a value" >&2; exit 2; }
            if [ "$1" = --suite ]; then suite=$2; else named=$2; fi
            shift
            ;;
        --help) echo "$usage"; exit 0 ;;
        *) echo "no such option: $1" >&2; echo "$usage" >&2; exit 2 ;;
    esac
    shift
done
[ "$blas" = none ] && build=$build-noblas
[ "$sanitize" = none ] || build=$build-sanitize
[ -z "$named" ] || build=$named

# A run that breaks off has failed too, and says so in the line that everybody reads.
stop() {
    echo "$1" >&2
    echo "0 passed, 1 failed"
    exit 1
}

# Counts from Meson's report, one <testcase> per case. A program that fails without a failed case of its own (a crash, a
# plan that was not kept) counts as a failed case; one that prints its own "N passed, N failed" is counted by that.
count_cases() {
    awk '
        BEGIN { RS = "<" }
        function close_case() {
            if (!open) return
            if (said) { passed += said_passed; failed += said_failed; if (bad && said_failed == 0) failed++ }
            else if (bad) failed++
            else if (skipped) skips++
            else passed++
            open = 0
        }
        /^testcase[ >]/ { close_case(); open = 1; bad = said = skipped = 0 }
        /^(failure|error)[ \/>]/ { bad = 1 }
        /^skipped[ \/>]/ { skipped = 1 }
        /^system-out>/ && open && match($0, /[0-9]+ passed, [0-9]+ failed[[:space:]]*$/) {
            split(substr($0, RSTART), words, /[ ,]+/)
            said = 1; said_passed = words[1]; said_failed = words[3]
        }
        /^\/testcase>/ { close_case() }
        END { close_case(); print passed + 0, failed + 0, skips + 0 }
    ' "$1"
}

# The output of the tests that failed, from Meson's log, without the cases that passed.
show_failures() {
    awk '
        /^=+ [0-9]+\/[0-9]+ =+$/ { show(); n = 0; failed = 0 }
        /^result:/ && !/exit status 0$/ { failed = 1 }
        !/^ok / { lines[n++] = $0 }
        function show(i) { if (failed) for (i = 0; i < n; i++) print lines[i] }
        END { show() }
    ' "$1"
}

need="cc libc c++ meson ninja nm pkg-config jansson libpcre2-8 check python numpy"
[ "$blas" = none ] || need="$need openblas"
# shellcheck disable=SC2086
require $need

configure "$build" -Dbuildtype=release -Dtests=enabled -Dexamples=enabled -Dblas="$blas" -Db_sanitize="$sanitize" \
    -Db_lundef="$([ "$sanitize" = none ] && echo true || echo false)" -Dwerror="$werror" ||
    stop "the build could not be configured"
ninja -C "$build" >"$build/ninja.log" 2>&1 || { cat "$build/ninja.log" >&2; stop "the build failed"; }
grep -E 'warning:' "$build/ninja.log"

[ -d "$root/../shared" ] || echo "There is no ../shared beside this checkout: the tests that need its fixtures are skipped."

if [ -n "$suite" ]; then set -- --suite "$suite"; else set -- --no-suite slow; fi
report=$build/meson-logs/testlog.junit.xml
rm -f "$report"
(cd "$build" && ASAN_OPTIONS=${ASAN_OPTIONS:-detect_leaks=1} meson test --no-rebuild "$@")
status=$?
[ -f "$report" ] || stop "no test ran"
show_failures "$build/meson-logs/testlog.txt"
sed -n 's/^# skipped: /skipped: /p' "$build/meson-logs/testlog.txt" | sort | uniq -c

counts=$(count_cases "$report")
# shellcheck disable=SC2086
set -- $counts
passed=$1
failed=$2
# Meson may have seen what its report does not show.
[ "$status" -eq 0 ] || [ "$failed" -gt 0 ] || failed=1
[ "$3" -eq 0 ] || echo "$3 skipped"
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
