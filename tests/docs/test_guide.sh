#!/bin/sh
# What the documents tell a reader to type works: the pieces of docs/guide.md and of the README are taken out, compiled
# and run, in their order.
#
#     test_guide.sh SOURCE_ROOT LIBRARY PYTHON COMPILER…        PYTHON may be empty
set -u
root=$1
library=$2
python=$3
shift 3
# shellcheck source=tests/tap.sh
. "$root/tests/tap.sh"
cd "$work" || exit 1
LD_LIBRARY_PATH=$(dirname "$library")
MINIMIND_LIBRARY=$library
PYTHONPATH=$root/examples/python
PYTHONDONTWRITEBYTECODE=1
export LD_LIBRARY_PATH MINIMIND_LIBRARY PYTHONPATH PYTHONDONTWRITEBYTECODE

# All blocks of a language, one after the other.
blocks() {
    awk -v fence="\`\`\`$1" '$0 == fence { inside = 1; next } /^```/ { inside = 0 } inside' "$2"
}

compiles() {
    program=$1
    shift
    "$@" -std=c11 -Wall -Wextra -Werror -I"$root/include" "$program.c" -o "$program" -L"$LD_LIBRARY_PATH" -lminimind
}

says() {
    words=$1
    shift
    "$@" >said 2>&1 || { cat said; return 1; }
    grep -qF -- "$words" said || { echo "no \"$words\" in:"; cat said; return 1; }
}

# goes_on TEXT COMMAND…   It says more than TEXT, which the command prints itself.
goes_on() {
    says "$@" || return 1
    [ "$(tr -d '[:space:]' <said)" != "$(printf %s "$1" | tr -d '[:space:]')" ] || { echo "no more than \"$1\""; return 1; }
}

blocks c "$root/docs/guide.md" >guide.c
blocks python "$root/docs/guide.md" >guide.py
check "the guide's C pieces are one program" compiles guide "$@"
check "it trains a model that answers its question" says "It likes mice." ./guide
check "it leaves a model that other programs load" [ -f out/guide/model.safetensors ]
if [ -n "$python" ] && "$python" -c 'import numpy' 2>/dev/null; then
    check "the guide's Python lines ask that model" says "It likes berries." "$python" guide.py
else
    skip "the guide's Python lines ask that model" "no Python with numpy"
fi

# An installed library is found only by a linker that is told of it.
installs_with_ldconfig() {
    grep -hn 'meson install -C build\b' "$root/README.md" "$root/docs/guide.md" >lines && ! grep -vE 'install -C build-home|&& ldconfig' lines
}
check "whoever installs tells the linker" installs_with_ldconfig

# The README speaks of the quickstart's model; the guide's is one of the same kind.
mkdir -p out/quickstart && cp -r out/guide out/quickstart/pretrained
blocks c "$root/README.md" >readme.c
blocks python "$root/README.md" >readme.py
check "the README's program compiles" compiles readme "$@"
check "the README's program goes on with a text" goes_on "Once upon a time" ./readme
if [ -n "$python" ] && "$python" -c 'import numpy' 2>/dev/null; then
    check "the README's Python lines go on with a text" goes_on "" "$python" readme.py
    blocks python "$root/examples/python/README.md" >bindings.py
    check "the bindings' README's lines go on with a text" goes_on "" "$python" bindings.py
else
    skip "the README's Python lines go on with a text" "no Python with numpy"
fi
finish
