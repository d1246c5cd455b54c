#!/bin/sh
# The library as a stranger gets it: installed into an empty tree, found through pkg-config, linked both ways.
#
#     test_install.sh SOURCE_ROOT BUILD_ROOT MESON pages|no-pages COMPILER…
set -u
root=$1
build=$2
meson=$3
pages=$4
shift 4
# shellcheck source=tests/tap.sh
. "$root/tests/tap.sh"

installs() {
    "$meson" install -C "$build" --no-rebuild --quiet --destdir "$work/tree" &&
        pc=$(find "$work/tree" -name minimind.pc) && [ -n "$pc" ] || return 1
    libdir=${pc%/pkgconfig/minimind.pc}
    prefix=$(sed -n 's/^prefix=//p' "$pc")
    # The tree stands elsewhere than it was made for.
    sed -i "s|^prefix=.*|prefix=$work/tree$prefix|" "$pc"
    PKG_CONFIG_PATH=$libdir/pkgconfig
    export PKG_CONFIG_PATH
}

holds_the_headers() {
    diff -r "$root/include" "$work/tree$prefix/include" | grep -v -e 'meson\.build$' -e 'minimind-mpi\.h$' -e 'minimind\.hpp$' | nothing &&
        cmp "$root/examples/cpp/minimind.hpp" "$work/tree$prefix/include/minimind.hpp"
}

holds_both_libraries() {
    version=$(pkg-config --modversion minimind)
    [ -f "$libdir/libminimind.a" ] && [ -f "$libdir/libminimind.so.$version" ] &&
        [ -L "$libdir/libminimind.so.0" ] && [ -L "$libdir/libminimind.so" ]
}

versions_agree() {
    header=$(sed -nE 's/^#define MM_VERSION_(MAJOR|MINOR|PATCH) +([0-9]+)$/\2/p' "$root/include/minimind/version.h" |
        tr '\n' '.')
    [ "$header" = "$(pkg-config --modversion minimind)." ]
}

# Only what a program itself calls is asked of it; the rest is the library's own affair.
shared_needs_nothing_else() {
    pkg-config --libs minimind | tr ' ' '\n' | grep -E '^-l' | grep -vx -e '-lminimind' | nothing
}

# shellcheck disable=SC2046
runs_shared() {
    "$@" "$root/examples/embed.c" -o "$work/embed" $(pkg-config --cflags --libs minimind) &&
        LD_LIBRARY_PATH=$libdir "$work/embed"
}

# libminimind.a, the rest shared. Debian's openblas asks for gfortran's library without bringing its development files, and
# its own shared object has that library already.
# shellcheck disable=SC2046
runs_static() {
    mkdir -p "$work/static" && cp "$libdir/libminimind.a" "$work/static/" &&
        "$@" "$root/examples/embed.c" -o "$work/embed-static" $(pkg-config --cflags minimind) -L"$work/static" \
            $(pkg-config --static --libs minimind | sed "s|-L$libdir||; s|-lgfortran||g") &&
        "$work/embed-static"
}

is_small() {
    strip -o "$work/stripped.so" "$libdir/libminimind.so" && size=$(wc -c <"$work/stripped.so") && echo "$size bytes" &&
        [ "$size" -lt 1048576 ]
}

# They find the library from where they stand, and call themselves what they are called.
programs_run() {
    programs=0
    for link in "$work/tree$prefix"/bin/minimind-*; do
        "$link" --help | grep -qE "^usage: ${link##*/}( |$)" || { echo "$link --help"; return 1; }
        "$link" --nonsense 2>&1 </dev/null | grep -qE "^(usage: )?${link##*/}(:| |$)" || { echo "$link --nonsense"; return 1; }
        programs=$((programs + 1))
    done
    [ "$programs" -gt 5 ]
}

have_pages() {
    for link in "$work/tree$prefix"/bin/minimind-*; do
        page=$(find "$work/tree" -name "${link##*/}.1") && grep -q '^\.SH SYNOPSIS' "$page" || { echo "${link##*/}.1"; return 1; }
    done
}

# Beside each other as in the source tree.
holds_the_documents() {
    documents=$work/tree$prefix/share/doc/minimind
    for file in README.md CHANGELOG.md LICENSE docs/images; do
        diff -r "$root/$file" "$documents/$file" || return 1
    done
    for file in "$root"/docs/*.md; do
        cmp "$file" "$documents/docs/${file##*/}" || return 1
    done
}

# Who packs a part of it asks for that part by a name of Meson's: each of our files has one.
comes_in_parts() {
    parts='runtime devel doc'
    [ "$pages" = no-pages ] || parts="$parts man"
    for part in $parts; do
        "$meson" install -C "$build" --no-rebuild --quiet --destdir "$work/parts" --tags "$part" || return 1
    done
    (cd "$work/tree" && find . ! -type d | grep minimind | sort) >"$work/whole"
    (cd "$work/parts" && find . ! -type d | grep minimind | sort) | diff "$work/whole" -
}

check "meson install fills an empty tree" installs
check "the tree holds the public headers and nothing else" holds_the_headers
check "the tree holds the shared and the static library" holds_both_libraries
check "the tree holds the documents" holds_the_documents
check "parts of it, by meson install --tags, come to the whole" comes_in_parts
check "version.h and the package say the same version" versions_agree
check "a program that links the shared library needs no other" shared_needs_nothing_else
check "embed.c compiles against the installed shared library and runs" runs_shared "$@"
check "embed.c compiles against the installed static library and runs" runs_static "$@"
check "every example is installed as minimind-NAME and runs" programs_run
if [ "$pages" = pages ]; then
    check "each has a manual page" have_pages
else
    skip "each has a manual page" "no help2man when this was configured"
fi
check "the stripped shared object is smaller than 1 MiB" is_small
finish
