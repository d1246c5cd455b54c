#!/bin/sh
# Doxygen makes the reference without a warning.
#
#     test_reference.sh SOURCE_ROOT VERSION PYTHON DOXYGEN      the last two may be empty
set -u
root=$1
version=$2
python=$3
doxygen=$4
# shellcheck source=tests/tap.sh
. "$root/tests/tap.sh"

reference() {
    sed -e "s|@root@|$1|g; s|@version@|$version|; s|@output@|$work/reference|; s|@python@|$python|" \
        "$root/docs/reference/Doxyfile.in" >"$work/Doxyfile" && "$doxygen" "$work/Doxyfile"
}

fails_for_what_is_not_documented() {
    mkdir -p "$work/bad/include" "$work/bad/docs/reference"
    cp "$root"/docs/reference/*.py "$root"/docs/reference/mainpage.md "$work/bad/docs/reference/"
    printf '/** @file */\n\nint mm_undocumented(int value);\n' >"$work/bad/include/bad.h"
    ! reference "$work/bad"
}

has_every_function() {
    sed -nE 's/^    (mm_[a-z0-9_]+);$/\1/p' "$root/lib/minimind.map" | while read -r name; do
        grep -qr -- ">$name<" "$work"/reference/html/*_8h.html || echo "$name is not in the reference"
    done | nothing
}

if [ -n "$doxygen" ] && [ -n "$python" ]; then
    check "Doxygen makes the reference without a warning" reference "$root"
    check "every exported function is in it" has_every_function
    check "a function without documentation is found" fails_for_what_is_not_documented
else
    skip "Doxygen makes the reference without a warning" "no Doxygen or no Python"
fi
finish
