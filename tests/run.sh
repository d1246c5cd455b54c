#!/bin/sh
# Build a release, run every test, and say how many passed. On Debian what is missing is installed first.
set -u
root=$(cd "$(dirname "$0")/.." && pwd) || exit 1
# shellcheck source=tests/packages.sh
. "$root/tests/packages.sh"

usage="usage: tests/run.sh [OPTION...]

Build libminimind and run its tests. The last line is \"N passed, N failed\".

  --sanitize       with the address and undefined-behaviour sanitizers, in build-sanitize
  --tsan           with the thread sanitizer, in build-tsan: the tests of what threads share
  --memcheck       under valgrind, in build-memcheck: some tests of each folder
  --aarch64        compiled for 64-bit Arm and run under qemu, in build-aarch64 (Debian only)
  --i386           compiled for 32-bit x86, in build-i386 (Debian on x86-64 only)
  --avx512         with AVX-VNNI, AVX-512, VNNI, bf16 products and AMX emulated, in build-avx512: x86 only
  --no-blas        without OpenBLAS, in build-noblas
  --suite NAME     only the tests of this suite; slow ones run only when --suite slow asks for them
  --werror         a warning fails the build
  --build-dir DIR  another directory to build in (build)
  --help           show this"

build=$root/build
kind=
suite=
blas=openblas
sanitize=none
type=release
examples=enabled
werror=false
named=
while [ $# -gt 0 ]; do
    case $1 in
        --sanitize) kind=sanitize sanitize=address,undefined ;;
        --tsan) kind=tsan sanitize=thread blas=none suite=threads ;;
        --memcheck) kind=memcheck type=debugoptimized blas=none suite=memcheck ;;
        --aarch64) kind=aarch64 blas=none suite=portable examples=disabled ;;
        --i386) kind=i386 blas=none suite=portable examples=disabled ;;
        --avx512) kind=avx512 blas=none suite=vectors examples=disabled ;;
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
[ "$blas" = none ] && [ -z "$kind" ] && kind=noblas
[ -z "$kind" ] || build=$build-$kind
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

need="cc libc c++ meson ninja nm pkg-config jansson libpcre2-8 check python numpy protobuf"
# A browser for the pages that are written; large, so only where it is used.
[ "$suite" != slow ] || need="$need chromium"
[ "$blas" = none ] || need="$need openblas"
[ "$kind" != memcheck ] || need="$need valgrind libc-symbols"
# Another processor: what Debian calls it, and its tools.
foreign=
case $kind in
    aarch64) foreign=arm64 tools=aarch64-linux-gnu need="meson ninja pkg-config aarch64-gcc qemu-aarch64" ;;
    i386) foreign=i386 tools=i686-linux-gnu need="meson ninja pkg-config i686-gcc" ;;
esac
[ "$kind" != i386 ] || [ "$(uname -m)" = x86_64 ] || stop "--i386 runs its programs on x86-64 only"
[ "$kind" != avx512 ] || need="$need simde"
[ -n "$foreign" ] || case $suite in slow | mpi) need="$need ompi-c mpirun" ;; esac # ranks over MPI
# shellcheck disable=SC2086
require $need

# For another processor: its packages in a directory of their own, and where Meson finds them.
set --
if [ -n "$foreign" ]; then
    mkdir -p "$build"
    "$root/tests/cross/sysroot.sh" "$foreign" "$build/root" libc6-dev libjansson-dev libpcre2-dev check >"$build/root.log" 2>&1 ||
        { cat "$build/root.log" >&2; stop "the packages of the other architecture could not be had"; }
    # Some x86-64 machines run 64-bit programs only.
    emulator=
    if [ "$kind" = i386 ] && ! "$build/root/lib/ld-linux.so.2" --version >"$build/root.log" 2>&1; then
        echo "This machine runs no 32-bit programs: qemu does, slowly."
        require qemu-i386
        emulator="'qemu-i386'"
        kind=emulated
    fi
    printf "[constants]\nroot = '%s'\nemulator = [%s]\n" "$build/root" "$emulator" >"$build/root.ini"
    set -- --cross-file "$build/root.ini" --cross-file "$root/tests/cross/$tools.ini"
fi

[ "$kind" != avx512 ] || set -- -Demulate=true

configure "$build" -Dbuildtype="$type" -Dtests=enabled -Dexamples="$examples" -Dblas="$blas" -Db_sanitize="$sanitize" \
    -Db_lundef="$([ "$sanitize" = none ] && echo true || echo false)" -Dwerror="$werror" "$@" ||
    stop "the build could not be configured"
# Where few tests are asked for, the programs of the others are not built.
case $suite in threads | memcheck | portable | vectors) target=tests-$suite ;; *) target=all ;; esac
ninja -C "$build" "$target" >"$build/ninja.log" 2>&1 || { cat "$build/ninja.log" >&2; stop "the build failed"; }
grep -E 'warning:' "$build/ninja.log"

[ -d "$root/../shared" ] || echo "There is no ../shared beside this checkout: the tests that need its fixtures are skipped."

if [ -n "$suite" ]; then set -- --suite "$suite"; else set -- --no-suite slow; fi
log=$build/meson-logs/testlog
case $kind in
    memcheck)
        set -- "$@" --setup memcheck
        log=$log-memcheck
        ;;
    tsan | aarch64 | avx512) set -- "$@" --timeout-multiplier 10 ;;
    sanitize) set -- "$@" --timeout-multiplier 4 ;; # examples may need all of their 300 s
    emulated)
        set -- "$@" --timeout-multiplier 10
        if [ "$suite" = portable ]; then # unless another is asked for
            echo "The suite vectors, which would take half an hour, is left out."
            set -- "$@" --no-suite vectors
        fi
        ;;
esac
# Where programs run slowly, libcheck has to have patience too.
case $kind in
    memcheck | tsan | aarch64 | emulated | avx512)
        CK_TIMEOUT_MULTIPLIER=20
        export CK_TIMEOUT_MULTIPLIER
        ;;
esac
report=$log.junit.xml
rm -f "$report"
(cd "$build" && ASAN_OPTIONS=${ASAN_OPTIONS:-detect_leaks=1} meson test --no-rebuild "$@")
status=$?
[ -f "$report" ] || stop "no test ran"
show_failures "$log.txt"
sed -n 's/^# skipped: /skipped: /p' "$log.txt" | sort | uniq -c

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
