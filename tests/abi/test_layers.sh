#!/bin/sh
# Which folder of lib/ may include which, and where foreign headers live. A folder may include itself and what its row
# names; every folder may include the public headers.
#
#     test_layers.sh SOURCE_ROOT
set -u
root=$1
# shellcheck source=tests/tap.sh
. "$root/tests/tap.sh"
cd "$root" || exit 1

knows() {
    case $1 in
        base) echo base ;;
        backend) echo base backend ;;
        model) echo base backend model ;;
        nn) echo base backend model nn ;;
        run) echo base backend model nn run ;;
        text) echo base text ;;
        data) echo base text data ;;
        train) echo base backend model nn run text data train ;;
        mpi) echo mpi ;;
        *) return 1 ;;
    esac
}

# Every line "FILE:LINE:#include …" below the folders and files given.
includes() {
    grep -rnE '^[[:space:]]*#[[:space:]]*include' --include='*.[ch]' "$@"
}

within_its_row() {
    allowed=$(knows "$1") || { echo "this test has no row for lib/$1"; return 1; }
    allowed=$(echo "$allowed" | tr ' ' '|')
    # A header that stands next to its file is named without a folder.
    includes "lib/$1" | grep -E 'include[[:space:]]*"[^"]*/' | grep -vE "include[[:space:]]*\"($allowed)/" | nothing
}

# lives HEADER PLACES: no file outside PLACES (an expression) includes the foreign header.
lives() {
    includes lib include examples | grep -E "include[[:space:]]*[<\"]$1[>\"]" | grep -vE "^($2)" | nothing
}

public_headers_stand_alone() {
    includes include | grep -E 'include[[:space:]]*(<|")' |
        grep -vE 'include[[:space:]]*<(minimind/[a-z_]+\.h|stddef\.h|stdint\.h)>' | nothing
}

# A program of several files has headers of its own, in its own folder.
examples_are_strangers() {
    includes examples | grep -E 'include[[:space:]]*("|<(minimind/|cblas|jansson|pcre2|pthread))' |
        grep -vE '^examples/([a-z]+)/[a-z]+\.c:[0-9]+:#include "\1\.h"|^examples/[a-z_]+\.[ch]:[0-9]+:#include "(common|json|load_as|mask|options|ranks|shape|watch)\.h"' |
        grep -vE '^examples/convert/[a-z_]+\.[ch]:[0-9]+:#include "(gguf|gguf_file|gguf_read|grown|image|json|load_as|options|pickle|pth|whole|zip)\.h"' | nothing
}

no_mutable_environment() {
    grep -rnE '\b(getenv|setenv|abort|exit|printf|puts|perror)[[:space:]]*\(' --include='*.[ch]' lib |
        grep -vE 'getenv\("MM_CPU"\)|:[[:space:]]*(/?\*|//)' | nothing
}

for folder in lib/*/; do
    folder=${folder#lib/}
    check "lib/$folder includes only what it may know" within_its_row "${folder%/}"
done
check "cblas.h lives in lib/backend/blas.c" lives 'cblas[a-z0-9_-]*\.h' 'lib/backend/blas\.c:'
check "jansson.h lives in lib/base/json.c" lives 'jansson\.h' 'lib/base/json\.c:'
check "pthread.h lives in lib/base" lives 'pthread\.h' 'lib/base/'
check "pcre2.h lives in lib/text" lives 'pcre2\.h' 'lib/text/'
check "sockets live in lib/train/comm_socket.c" lives '(sys/socket|netinet/[a-z]+|netdb|sys/un)\.h' 'lib/train/comm_socket\.c:'
check "mpi.h lives in lib/mpi" lives 'mpi\.h' 'lib/mpi/'
check "public headers include only each other, stddef.h and stdint.h" public_headers_stand_alone
# minimind::make<T>() of the C++ header knows every struct that has an initialiser.
cpp_makes_every_struct() {
    # shellcheck disable=SC2013
    for name in $(cat include/minimind/*.h | sed -nE 's/^#define (MM_[A-Z0-9_]+)_INIT .*/\1/p' | sort -u); do
        grep -q "^MINIMIND_INITIALISER($(echo "$name" | tr '[:upper:]' '[:lower:]'), ${name}_INIT)$" examples/cpp/minimind.hpp ||
            echo "${name}_INIT"
    done | nothing
}

check "minimind.hpp makes every struct that has an initialiser" cpp_makes_every_struct
check "examples include only <minimind.h> and the system's headers" examples_are_strangers
check "the library neither prints, nor exits, nor reads the environment beyond MM_CPU" no_mutable_environment
finish
