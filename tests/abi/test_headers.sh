#!/bin/sh
# Each public header compiles by itself, as C11, C17 and C++17, without a warning; the folders of lib/ and the examples
# include what they may; each foreign header has one home.
#
#     test_headers.sh SOURCE_ROOT C++ COMPILER…        C++ may be empty
set -u
root=$1
cxx=$2
shift 2
# shellcheck source=tests/tap.sh
. "$root/tests/tap.sh"

compiles() {
    language=$1
    header=$2
    shift 2
    # Twice: the guard holds.
    printf '#include <%s>\n#include <%s>\nint main(void) { return 0; }\n' "$header" "$header" >"$work/alone.$language"
    "$@" -Wall -Wextra -pedantic -Wshadow -Werror -I"$root/include" -c "$work/alone.$language" -o "$work/alone.o"
}

# The initialisers are for C++ too.
initialisers() {
    {
        echo '#include <minimind.h>'
        sed -nE 's/^#define (MM_[A-Z0-9_]+_INIT)\b.*/\1/p' "$root"/include/minimind/*.h | while read -r macro; do
            struct=$(echo "${macro%_INIT}" | tr '[:upper:]' '[:lower:]')
            echo "$struct use_$struct(void);"
            echo "$struct use_$struct(void) { $struct value = $macro; return value; }"
        done
    } >"$work/init.$1"
    shift
    "$@" -Wall -Wextra -pedantic -Werror -I"$root/include" -c "$work"/init.* -o "$work/init.o"
    status=$?
    rm -f "$work"/init.*
    return "$status"
}

for path in "$root"/include/minimind.h "$root"/include/minimind/*.h; do
    header=${path#"$root"/include/}
    check "<$header> compiles alone as C11" compiles c "$header" "$@" -std=c11 -Wstrict-prototypes
    check "<$header> compiles alone as C17" compiles c "$header" "$@" -std=c17 -Wstrict-prototypes
    if [ -n "$cxx" ]; then
        check "<$header> compiles alone as C++17" compiles cc "$header" "$cxx" -std=c++17
    else
        skip "<$header> compiles alone as C++17" "no C++ compiler"
    fi
done
check "every _INIT initialises its struct in C11" initialisers c "$@" -std=c11
if [ -n "$cxx" ]; then
    check "every _INIT initialises its struct in C++17" initialisers cc "$cxx" -std=c++17
else
    skip "every _INIT initialises its struct in C++17" "no C++ compiler"
fi

installed() {
    for path in "$root"/include/minimind.h "$root"/include/minimind/*.h; do
        grep -qF "'${path#"$root"/include/}'" "$root/include/meson.build" || echo "$path is not installed"
        case $path in */minimind.h) continue ;; esac
        grep -qF "#include <${path#"$root"/include/}>" "$root/include/minimind.h" || echo "$path: not in minimind.h"
    done | nothing
}
# A field appended into padding would leave the size as it was, and the size is how versions tell themselves apart.
no_padding() {
    echo '#include <minimind.h>' >"$work/all.c"
    "$@" -std=c11 -Wpadded -Werror -I"$root/include" -c "$work/all.c" -o "$work/all.o"
}
check "no public struct has padding" no_padding "$@"
# The list that test_structs.c goes by misses none.
structs_are_listed() {
    listed=$(sh "$root/tests/abi/list_structs.sh" "$root/include/minimind" | wc -l)
    [ "$listed" -eq "$(cat "$root"/include/minimind/*.h | grep -cE '^#define MM_[A-Z0-9_]+_INIT ')" ] && [ "$listed" -gt 20 ]
}
check "every initialiser begins with the size of its struct" structs_are_listed
# The comment before a declaration says since when it is there; declarations without a line between them share one.
undated() {
    awk '
        FNR == 1 { dated = 0 }
        /^\/\*\*/ { dated = 0 }
        /Since: [0-9]+\.[0-9]+/ { dated = 1 }
        /^MM_API/ && !dated { print FILENAME ": " $0 }
        /^MM_API/ { open = 1 }
        !open && !/^ \*|^\/\*\*/ { dated = 0 }
        open && /;/ { open = 0 }' "$@"
}

each_has_a_level() {
    undated "$root"/include/minimind/*.h | nothing
}

a_level_that_is_missing_is_found() {
    sed 's/ Since: [0-9.]*//' "$root/include/minimind/library.h" >"$work/undated.h"
    [ "$(undated "$work/undated.h" | wc -l)" -eq "$(grep -c '^MM_API' "$root/include/minimind/library.h")" ]
}
check "every function says since which version it is there" each_has_a_level
check "one that doesn't is found" a_level_that_is_missing_is_found
check "every public header is installed and part of <minimind.h>" installed
finish
