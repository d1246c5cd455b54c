#!/bin/sh
# The library as a part of somebody else's Meson project, built with it.
#
#     test_subproject.sh SOURCE_ROOT MESON
set -u
root=$1
meson=$2
# shellcheck source=tests/tap.sh
. "$root/tests/tap.sh"

# Their project: an embed.c of their own, a sing.cpp where there is C++, and this library in subprojects/.
project=$work/project
mkdir -p "$project/subprojects/libminimind"
cp "$root/examples/embed.c" "$root/examples/cpp/sing.cpp" "$project/"
(cd "$root" && cp -r include lib cmake docs examples meson.build meson_options.txt README.md CHANGELOG.md LICENSE \
    "$project/subprojects/libminimind/")
printf '%s\n' "project('theirs', 'c')" \
    "minimind = dependency('minimind', fallback: 'libminimind'," \
    "  default_options: ['blas=none', 'examples=disabled', 'tests=disabled', 'default_library=static'])" \
    "test('embed', executable('embed', 'embed.c', dependencies: minimind))" \
    "if add_languages('cpp', required: false, native: false)" \
    "  test('sing', executable('sing', 'sing.cpp', dependencies: minimind, override_options: ['cpp_std=c++17']))" \
    "endif" >"$project/meson.build"

# --force-fallback-for: one that is installed is not what is tried here.
configures() {
    "$meson" setup "$work/build" "$project" --force-fallback-for=minimind -Dwerror=true
}

check "a project that falls back on it can be configured" configures
check "it builds without a warning" ninja -C "$work/build"
check "its programs run" "$meson" test -C "$work/build" --no-rebuild
finish
