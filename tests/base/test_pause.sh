#!/bin/sh
# Who spins says so to the processor, on every kind that has a word for it: compiled with the cross compilers that are
# here.
#
#     test_pause.sh SOURCE_ROOT
set -u
root=$1
# shellcheck source=tests/tap.sh
. "$root/tests/tap.sh"

printf '#include "base/pause.h"\nvoid spin(void);\nvoid spin(void)\n{\n    mmi_pause();\n}\n' >"$work/spin.c"

pauses() {
    word=$1
    shift
    "$@" -std=c11 -Wall -Wextra -Werror -O2 -I"$root/lib" -S "$work/spin.c" -o "$work/spin.s" &&
        "$@" -I"$root/lib" -c "$work/spin.c" -o "$work/spin.o" && cat "$work/spin.s" && grep -qE "$word" "$work/spin.s"
}

# A sentence's end, what the assembly must have, and the compiler.
try() {
    kind=$1
    word=$2
    shift 2
    if command -v "$1" >/dev/null; then
        check "who spins says so on $kind" pauses "$word" "$@"
    else
        skip "who spins says so on $kind" "no $1"
    fi
}

try "x86-64" 'pause|rep;? *nop' x86_64-linux-gnu-gcc
try "32-bit x86" 'pause|rep;? *nop' i686-linux-gnu-gcc
try "64-bit Arm" 'yield' aarch64-linux-gnu-gcc
try "32-bit Arm" 'yield' arm-linux-gnueabihf-gcc
try "an Arm too old for the word, by nothing" 'bx' arm-linux-gnueabihf-gcc -march=armv5te -mfloat-abi=soft -marm
try "RISC-V" '0x0100000f' riscv64-linux-gnu-gcc
try "a RISC-V without compressed instructions" '0x0100000f' riscv64-linux-gnu-gcc -march=rv64imafd -mabi=lp64d
finish
