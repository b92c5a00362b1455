# SPDX-License-Identifier: MIT OR Apache-2.0
#
# What libamr is built with and on: sets AMR_CARGO and AMR_RUST_TARGET, and
# finds libibverbs.

include(CheckCSourceCompiles)

check_c_source_compiles("
    #include <features.h>
    #ifndef __GLIBC__
    #error not glibc
    #endif
    int main(void) { return 0; }" AMR_HAVE_GLIBC)
if(NOT CMAKE_SYSTEM_NAME STREQUAL Linux OR NOT AMR_HAVE_GLIBC)
    message(FATAL_ERROR "libamr needs Linux with glibc; other C libraries are not supported")
endif()

find_package(IBVerbs QUIET)
if(NOT IBVerbs_FOUND)
    message(FATAL_ERROR
        "The headers of libibverbs were not found: "
        "install libibverbs-dev (Debian, Ubuntu) or rdma-core-devel (Fedora, RHEL, SUSE)")
endif()

if(DEFINED ENV{CARGO})
    set(AMR_CARGO "$ENV{CARGO}" CACHE FILEPATH "The cargo to build with")
else()
    find_program(AMR_CARGO cargo HINTS "$ENV{CARGO_HOME}/bin" "$ENV{HOME}/.cargo/bin"
        DOC "The cargo to build with")
endif()
if(NOT AMR_CARGO)
    message(FATAL_ERROR
        "cargo was not found: install Rust, or name it in the environment variable CARGO")
endif()

file(STRINGS Cargo.toml amr_rust_version REGEX "^rust-version = " LIMIT_COUNT 1)
string(REGEX MATCH "[0-9.]+" amr_rust_version "${amr_rust_version}")
execute_process(COMMAND "${AMR_CARGO}" -vV
    WORKING_DIRECTORY "${CMAKE_CURRENT_SOURCE_DIR}"
    OUTPUT_VARIABLE amr_cargo_version COMMAND_ERROR_IS_FATAL ANY)
string(REGEX MATCH "[0-9.]+" amr_cargo_number "${amr_cargo_version}")
if(amr_cargo_number VERSION_LESS amr_rust_version)
    message(FATAL_ERROR
        "${AMR_CARGO} is version ${amr_cargo_number}; libamr needs Rust ${amr_rust_version}")
endif()
if(DEFINED ENV{CARGO_BUILD_TARGET})
    set(AMR_RUST_TARGET "$ENV{CARGO_BUILD_TARGET}" CACHE STRING "Rust's name of the target")
elseif(amr_cargo_version MATCHES "\nhost: ([^\n]+)")
    set(AMR_RUST_TARGET "${CMAKE_MATCH_1}" CACHE STRING "Rust's name of the target")
endif()
