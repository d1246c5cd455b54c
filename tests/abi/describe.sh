#!/bin/sh
# What the public headers promise, as libabigail's XML: names, types and layouts of a library that has their functions and
# nothing in them. To renew the description that the tests compare with:
#
#     tests/abi/describe.sh . cc >tests/abi/minimind.abi
#
#     describe.sh SOURCE_ROOT COMPILER…
set -eu
root=$(cd "$1" && pwd)
shift
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Each declaration becomes a definition. Types that no function names, such as the enums, are kept as well.
{
    echo '#include <minimind.h>'
    cat "$root"/include/minimind/*.h | awk '
        /^MM_API/ { open = 1; text = "" }
        open { text = text " " $0 }
        open && /;/ { sub(/MM_API/, "", text); sub(/;.*/, " { __builtin_trap(); }", text); print text; open = 0 }'
} >"$work/minimind.c"
cd "$work" # whose name is not to be part of it
"$@" -std=gnu11 -g -gdwarf-4 -fno-eliminate-unused-debug-types -fPIC -shared -Wl,-soname,libminimind.so -I"$root/include" \
    minimind.c -o libminimind.so
abidw --load-all-types --type-id-style hash --no-corpus-path --no-comp-dir-path --no-show-locs --no-parameter-names libminimind.so
