#!/bin/sh
# The names that the shared object exports, those that lib/minimind.map lists and those that the headers declare with
# MM_API are the same, so a change of the ABI is a line in a diff.
#
#     test_symbols.sh SOURCE_ROOT SHARED_OBJECT
set -u
LC_ALL=C
export LC_ALL
root=$1
object=$2
# shellcheck source=tests/tap.sh
. "$root/tests/tap.sh"

cat "$root"/include/minimind.h "$root"/include/minimind/*.h |
    sed -nE 's/^MM_API[^(]*[ *](mm_[a-z0-9_]+)\(.*/\1/p' | sort >"$work/declared"
sed -nE 's/^ *(mm_[a-z0-9_]+);$/\1/p' "$root/lib/minimind.map" >"$work/listed"
nm -D --defined-only "$object" | awk '$2 != "A" { sub(/@.*/, "", $3); print $3 }' | sort >"$work/exported"

same() {
    diff -u "$work/$1" "$work/$2"
}

declarations_are_read() {
    [ "$(cat "$root"/include/minimind/*.h | grep -c '^MM_API')" -eq "$(sort -u "$work/declared" | grep -c .)" ]
}

only_mm_names() {
    grep -v '^mm_' "$work/exported" | nothing
}

map_is_explicit() {
    ! grep -F 'mm_*' "$root/lib/minimind.map" && sort -c "$work/listed" && uniq -d "$work/listed" | nothing
}

# What it asks the system for: only an assert of a debug build may end the process.
neither_prints_nor_ends() {
    nm -D --undefined-only "$object" | awk '{ sub(/@.*/, "", $2); print $2 }' |
        grep -xE -e 'v?f?printf|puts|putchar|putc|fputs|fputc|fwrite|perror|stdout|stderr|syslog' \
            -e 'abort|_?_?[eE]xit|quick_exit|raise|kill|signal|sigaction|setlocale|setenv|atexit' |
        nothing
}

check "each MM_API in the headers is one declaration that this test can read" declarations_are_read
check "the version script lists each name once and in order" map_is_explicit
check "the version script lists what the headers declare" same declared listed
check "the shared object exports what the version script lists" same listed exported
check "only mm_ names leave the shared object" only_mm_names
check "it has no way to print, to end the process or to change its signals, locale or environment" neither_prints_nor_ends
finish
