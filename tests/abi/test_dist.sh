#!/bin/sh
# The release tarball, as somebody gets it who has no git: it builds and passes its own tests.
#
#     test_dist.sh SOURCE_ROOT BUILD_ROOT MESON
set -u
root=$1
build=$2
meson=$3
# shellcheck source=tests/tap.sh
. "$root/tests/tap.sh"

if ! git -C "$root" rev-parse HEAD >/dev/null 2>&1; then
    skip "meson dist makes a tarball" "this is no git checkout"
    finish
fi

# What is not committed is not released.
packs() {
    "$meson" dist -C "$build" --no-tests --formats gztar --allow-dirty &&
        tarball=$(find "$build/meson-dist" -name 'libminimind-*.tar.gz') &&
        tar -xzf "$tarball" -C "$work" && source=$(find "$work" -maxdepth 1 -name 'libminimind-*') && [ -d "$source" ]
}

configures() {
    "$meson" setup "$work/build" "$source" -Dbuildtype=release -Dtests=enabled -Dexamples=enabled --werror
}

# Without the tests that read nothing of the tarball once they are compiled, which are most of what all take.
passes() {
    for suite in slow base backend nn run text data manners; do
        set -- "$@" --no-suite "$suite"
    done
    "$meson" test -C "$work/build" --no-rebuild "$@"
}

installs() {
    "$meson" install -C "$work/build" --no-rebuild --quiet --destdir "$work/tree" &&
        [ -f "$work/tree/usr/local/lib/pkgconfig/minimind.pc" ] # where pkg-config looks by itself
}

check "meson dist makes a tarball" packs
check "what it holds can be configured" configures
check "it builds without a warning" ninja -C "$work/build"
check "it passes its own tests" passes
check "it installs into an empty tree" installs
finish
