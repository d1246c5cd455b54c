#!/bin/sh
# The headers against the description of them that is checked in: functions and fields may be added, nothing else may
# change.
#
#     test_description.sh SOURCE_ROOT COMPILER…
set -u
root=$1
shift
# shellcheck source=tests/tap.sh
. "$root/tests/tap.sh"

if ! command -v abidiff >/dev/null || ! command -v abidw >/dev/null; then
    skip "the headers keep what tests/abi/minimind.abi says" "abidiff and abidw (abigail-tools) are missing"
    finish
fi

# Lines of a report by abidiff --leaf-changes-only that tell of anything but structs that grew at their end: see
# docs/abi.md. mm_view is what it is for ever.
other_changes() {
    grep -vE -e '^$' -e '^(Leaf changes|Changed leaf types) summary: ' \
        -e '^Removed/Changed/Added (functions|variables) summary: 0 Removed, 0 Changed' \
        -e "^'struct mm_[a-z_]+ at .*' changed:\$" -e "^'struct mm_[a-z_]+' changed:\$" \
        -e '^  type size changed from [0-9]+ to [0-9]+ \(in bits\)$' -e '^  [0-9]+ data member insertions?:$' \
        -e "^    '.*', at offset [0-9]+ \(in bits\)\$" "$1"
    grep -E "^'struct mm_view( at .*)?' changed:" "$1"
}

values() {
    grep -oE "<enumerator name='[^']*' value='[^']*'" "$1" | sort -u
}

# keeps ROOT COMPILER…: the headers of that tree promise all that the description has
keeps() {
    sh "$root/tests/abi/describe.sh" "$@" >"$work/now.abi" || return 1
    abidiff --no-architecture --no-added-syms --leaf-changes-only --harmless "$root/tests/abi/minimind.abi" \
        "$work/now.abi" >"$work/report"
    [ $(($? & 3)) -eq 0 ] || return 1 # it could not compare them
    other_changes "$work/report" | nothing || return 1
    # constants of enums that have no name, which abidiff passes over
    values "$root/tests/abi/minimind.abi" >"$work/old"
    values "$work/now.abi" | comm -23 "$work/old" - | nothing
}

# A copy of the headers with one thing changed: changed FILE SED-SCRIPT
changed() {
    rm -rf "$work/tree"
    mkdir "$work/tree" && cp -r "$root/include" "$work/tree/include" || return 1
    sed "$2" "$root/include/minimind/$1" >"$work/tree/include/minimind/$1"
    ! cmp -s "$root/include/minimind/$1" "$work/tree/include/minimind/$1"
}

takes() {
    header=$1
    script=$2
    shift 2
    changed "$header" "$script" && keeps "$work/tree" "$@"
}

refuses() {
    header=$1
    script=$2
    shift 2
    changed "$header" "$script" && ! keeps "$work/tree" "$@"
}

check "the headers keep what tests/abi/minimind.abi says" keeps "$root" "$@"
check "a function may be added" \
    takes library.h 's/^MM_API uint32_t mm_version(void);/&\nMM_API uint32_t mm_another(void);/' "$@"
check "a field may be added at the end of an options struct" \
    takes generate.h 's/^} mm_sampling;/    int64_t another;\n&/' "$@"
check "a function that is gone is noticed" refuses library.h '/^MM_API uint32_t mm_version(void);/d' "$@"
check "another type of an argument is noticed" \
    refuses library.h 's/^\(MM_API void mm_set_log.*\)int32_t level/\1int64_t level/' "$@"
check "a field before others is noticed" refuses generate.h 's/^    uint64_t seed;/    int64_t another;\n&/' "$@"
check "a field of another type is noticed" refuses generate.h 's/^    uint64_t seed;/    double seed;/' "$@"
check "a field that is gone is noticed" refuses generate.h '/^    uint64_t seed;/d' "$@"
check "a view that grows is noticed" refuses view.h 's/^} mm_view;/    int64_t another;\n&/' "$@"
check "a status with another number is noticed" refuses status.h 's/MM_ERR_IO = 3/MM_ERR_IO = 13/' "$@"
finish
