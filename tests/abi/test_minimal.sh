#!/bin/sh
# A build with every feature off, optimized as distributions do, still works, warns of nothing, and its program runs.
#
#     test_minimal.sh SOURCE_ROOT MESON COMPILER…
set -u
root=$1
meson=$2
shift 2
# shellcheck source=tests/tap.sh
. "$root/tests/tap.sh"

configures() {
    "$meson" setup "$work/build" "$root" --prefix="$work/tree" --libdir=lib --werror --optimization=2 \
        -Dblas=none -Dexamples=disabled -Dtests=disabled
}

# shellcheck disable=SC2046
runs() {
    PKG_CONFIG_PATH=$work/tree/lib/pkgconfig
    export PKG_CONFIG_PATH
    "$@" "$root/examples/embed.c" -o "$work/embed" $(pkg-config --cflags --libs minimind) -Wl,-rpath,"$work/tree/lib" &&
        "$work/embed"
}

no_blas() {
    ! pkg-config --static --libs minimind | grep -i blas
}

# headers_in PLACE OPTION…   Where CMake's package looks for them, of a tree that is in pieces.
headers_in() {
    place=$1
    shift
    rm -rf "$work/apart" && "$meson" setup "$work/apart" "$root" --prefix=/one -Dblas=none -Dexamples=disabled -Dtests=disabled "$@" &&
        grep minimind_includedir "$work/apart/cmake/minimind-config.cmake" && grep -qF "\"$place\"" "$work/apart/cmake/minimind-config.cmake"
}

outside_the_prefix() {
    headers_in /three/include -Dlibdir=/two/lib -Dincludedir=/three/include && headers_in /three/include -Dincludedir=/three/include &&
        headers_in /one/include -Dlibdir=/two/lib
}

check "it configures without BLAS, examples and tests" configures
check "it builds without a warning" ninja -C "$work/build"
check "it installs" "$meson" install -C "$work/build" --quiet
check "embed.c runs against it" runs "$@"
check "it does not ask for BLAS" no_blas
check "CMake finds headers outside the prefix, and those of a library outside it" outside_the_prefix
finish
