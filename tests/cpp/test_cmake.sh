#!/bin/sh
# The CMake project of the examples against the library as it installs, wherever that tree stands.
#
#     test_cmake.sh SOURCE_ROOT BUILD_ROOT MESON CMAKE
set -u
root=$1
build=$2
meson=$3
cmake=$4
# shellcheck source=tests/tap.sh
. "$root/tests/tap.sh"

# Ninja is there; make need not be.
CMAKE_GENERATOR=Ninja
export CMAKE_GENERATOR

installs() {
    "$meson" install -C "$build" --no-rebuild --quiet --destdir "$work/tree" &&
        config=$(find "$work/tree" -name minimind-config.cmake) && [ -n "$config" ]
}

# configure WHERE CMAKE-OPTION…
configure() {
    where=$1
    shift
    "$cmake" -S "$root/examples/cpp/project" -B "$work/$where" -Dminimind_DIR="${config%/*}" "$@"
}

runs() {
    "$cmake" --build "$work/$1" && "$work/$1/sing" | grep -q '^5 17 9 goes on with 12 21 3 17'
}

runs_shared() {
    configure shared && runs shared
}

static_project() {
    mkdir "$work/own" && cat >"$work/own/CMakeLists.txt" <<END
cmake_minimum_required(VERSION 3.13)
project(sing CXX)
find_package(minimind 0.1 REQUIRED)
add_executable(sing $root/examples/cpp/sing.cpp)
target_compile_features(sing PRIVATE cxx_std_17)
target_link_libraries(sing PRIVATE minimind::static)
END
    "$cmake" -S "$work/own" -B "$work/static" -Dminimind_DIR="${config%/*}" && runs static
}

# As where /lib is a link to /usr/lib.
runs_through_a_link() {
    libdir=${config%/cmake/*}
    mkdir "$work/merged" && ln -s "$libdir" "$work/merged/lib" &&
        configure linked -Dminimind_DIR="$work/merged/lib/cmake/minimind" && runs linked
}

refuses_a_later_version() {
    mkdir "$work/later" && printf '%s\n' 'cmake_minimum_required(VERSION 3.13)' 'project(later NONE)' \
        'find_package(minimind 9.0 REQUIRED)' >"$work/later/CMakeLists.txt" &&
        ! "$cmake" -S "$work/later" -B "$work/later/build" -Dminimind_DIR="${config%/*}"
}

check "meson install brings a CMake package" installs
check "the example project finds the shared library and runs" runs_shared
check "a project finds the static library and runs" static_project
check "the package is found through a link to its libdir" runs_through_a_link
check "a version that is not there is refused" refuses_a_later_version
finish
