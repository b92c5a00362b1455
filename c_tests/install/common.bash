# SPDX-License-Identifier: MIT OR Apache-2.0
# shellcheck shell=bash
#
# What the scripts of this folder share. CTest sets the AMR_* variables; see
# CMakeLists.txt.

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
readonly here

fail() {
    printf 'FAILED: %s\n' "$*" >&2
    exit 1
}

# expect_same WHAT FILE FILE: the difference is the message.
expect_same() {
    diff -u "$2" "$3" >&2 || fail "$1"
}

# expect_in TEXT PATTERN WHAT
expect_in() {
    grep -qE -- "$2" <<<"$1" || {
        printf '%s\n' "$1" >&2
        fail "$3 (nothing matches '$2')"
    }
}

# expect_not_in TEXT PATTERN WHAT
expect_not_in() {
    ! grep -E -- "$2" <<<"$1" >&2 || fail "$3"
}

# A new scratch folder, in which the test goes on.
enter_work() {
    rm -rf "$AMR_WORK"
    mkdir -p "$AMR_WORK"
    cd "$AMR_WORK"
}

# The names of abi/symbols.
listed_symbols() {
    grep -v '^#' "$AMR_SOURCE/abi/symbols"
}

# run PROGRAM: on the simulated device, with the installed library.
run() {
    LD_LIBRARY_PATH="$AMR_SIM_LIBDIR:$AMR_LIBDIR" "$@" || fail "$1 exits with $?"
}

# needed FILE: the libraries that it asks for, one a line.
needed() {
    readelf -dW "$1" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p'
}

# check_program FILE shared|static: it asks for libamr by its SONAME, or not.
check_program() {
    local libraries
    libraries=$(needed "$1")
    expect_not_in "$libraries" / "$1 asks for a library by its path"
    if [[ $2 == shared ]]; then
        expect_in "$libraries" "^libamr\.so\.${AMR_VERSION%%.*}\$" "$1 does not ask for libamr.so"
    else
        expect_not_in "$libraries" '^libamr' "$1 has libamr linked in, and asks for it"
    fi
}
