# shellcheck shell=sh
# What a build needs, looked for and installed when it is missing. Source it, then: require NAME…
# A NAME is one of the rows below. What is there already is not asked for again, so a machine that has everything, of
# whatever system, needs neither apt nor a network.

# NAME → the Debian package that has it
package_of() {
    case $1 in
        cc) echo gcc ;;
        libc) echo libc6-dev ;;
        c++) echo g++ ;;
        meson) echo meson ;;
        ninja) echo ninja-build ;;
        nm) echo binutils ;;
        pkg-config) echo pkg-config ;;
        openblas) echo libopenblas-dev ;;
        jansson) echo libjansson-dev ;;
        libpcre2-8) echo libpcre2-dev ;;
        check) echo check ;;
        python) echo python3 ;;
        numpy) echo python3-numpy ;;
        valgrind) echo valgrind ;;
        libc-symbols) echo libc6-dbg ;;
        abidiff) echo abigail-tools ;;
        clang) echo clang ;;
        cmake) echo cmake ;;
        git) echo git ;;
        doxygen | help2man) echo "$1" ;;
        aarch64-gcc) echo gcc-aarch64-linux-gnu ;;
        qemu-aarch64 | qemu-i386) echo qemu-user ;;
        i686-gcc) echo gcc-i686-linux-gnu ;;
        ompi-c) echo libopenmpi-dev ;;
        mpirun) echo openmpi-bin ;;
        protobuf) echo python3-protobuf ;;
        simde) echo libsimde-dev ;;
        chromium) echo chromium ;;
    esac
}

# The system's Python first: apt's numpy is for that one.
python_for_tests() {
    if [ -x /usr/bin/python3 ]; then echo /usr/bin/python3; else command -v python3; fi
}

is_there() {
    case $1 in
        cc) command -v "${CC:-cc}" ;;
        c++) command -v c++ || command -v g++ || command -v clang++ ;;
        libc) echo 'int main(void) { return 0; }' | "${CC:-cc}" -x c - -o /dev/null ;;
        ninja) command -v ninja || command -v ninja-build || command -v samu ;;
        meson | nm | pkg-config | valgrind | abidiff | clang | cmake | git | chromium | qemu-aarch64 | qemu-i386 | mpirun | doxygen | help2man)
            command -v "$1" ;;
        aarch64-gcc) command -v aarch64-linux-gnu-gcc ;;
        i686-gcc) command -v i686-linux-gnu-gcc ;;
        simde) echo '#include <simde/x86/avx512.h>' | "${CC:-cc}" -x c -E - ;;
        libc-symbols) [ ! -f /etc/debian_version ] || [ -d /usr/lib/debug/.build-id ] ;;
        python) python_for_tests ;;
        numpy) "$(python_for_tests)" -c 'import numpy' ;;
        protobuf) "$(python_for_tests)" -c 'import google.protobuf' ;;
        *) pkg-config --exists "$1" ;;
    esac >/dev/null 2>&1
}

# The packages of those among "$@" that are not there.
missing_packages() {
    for need in "$@"; do
        is_there "$need" || package_of "$need"
    done
}

give_up() {
    {
        echo "$1"
        echo "What is needed: a C11 compiler, Meson 1.0 or newer, Ninja, pkg-config, and the libraries openblas, jansson,"
        echo "libpcre2-8 and, for the tests, check, a C++ compiler, binutils, Python 3 with numpy and protobuf. Missing"
        echo "here, by their names in Debian:"
        echo "    $2"
    } >&2
    exit 1
}

# $privileged apt-get, never asking anything.
apt() {
    $privileged env DEBIAN_FRONTEND=noninteractive apt-get -y -q "$@"
}

# True unless apt knows all packages already: a fresh machine has no lists.
lists_are_missing() {
    for package in "$@"; do
        apt-cache show "$package" >/dev/null 2>&1 || return 0
    done
    return 1
}

install_packages() {
    command -v apt-get >/dev/null 2>&1 || give_up "This system has no apt-get to install what is missing." "$*"
    privileged=
    if [ "$(id -u)" -ne 0 ]; then
        command -v sudo >/dev/null 2>&1 || give_up "Installing needs root, and there is no sudo." "$*"
        privileged=sudo
    fi
    echo "Installing: $*"
    updated=
    if lists_are_missing "$@"; then
        apt update || give_up "apt-get update failed." "$*"
        updated=yes
    fi
    # Lists that are old may name files that are gone.
    apt install --no-install-recommends "$@" ||
        { [ -z "$updated" ] && apt update && apt install --no-install-recommends "$@"; } ||
        give_up "apt-get could not install what is missing." "$*"
}

require() {
    packages=$(missing_packages "$@")
    if [ -n "$packages" ]; then
        # shellcheck disable=SC2086
        install_packages $packages
        packages=$(missing_packages "$@" | tr '\n' ' ')
        [ -z "$packages" ] || give_up "Still missing after the installation." "$packages"
    fi
    version=$(meson --version)
    case $version in
        0.*) give_up "Meson $version is too old." "meson" ;;
    esac
}

# configure DIRECTORY OPTION…: a release build of this project in DIRECTORY; what is there already is only brought up to
# date.
configure() {
    directory=$1
    source=$(cd "$(dirname "$0")/.." && pwd) || return 1
    shift
    log=$directory/configure.log
    mkdir -p "$directory"
    if [ -f "$directory/build.ninja" ]; then
        meson setup --reconfigure "$directory" "$source" "$@" >"$log" 2>&1
    else
        # What a configuration that was broken off leaves, Meson takes for a whole one.
        rm -rf "$directory/meson-private"
        meson setup "$directory" "$source" "$@" >"$log" 2>&1
    fi || { cat "$log" >&2; return 1; }
}
