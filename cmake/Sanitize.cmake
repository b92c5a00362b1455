# SPDX-License-Identifier: MIT OR Apache-2.0
#
# AMR_SANITIZE: compiles the C and C++ code with sanitizers, and the Rust code
# with them where that is possible: it takes a nightly toolchain of rustup that
# has the source of the standard library (rust-src), which is compiled anew.
# ThreadSanitizer is of no use without that: it would not see how the library
# synchronizes its threads.

if(NOT AMR_SANITIZE)
    return()
endif()

list(JOIN AMR_SANITIZE "," amr_sanitizers)
add_compile_options(-fsanitize=${amr_sanitizers} -fno-omit-frame-pointer)
add_link_options(-fsanitize=${amr_sanitizers})
if("undefined" IN_LIST AMR_SANITIZE)
    add_compile_options(-fno-sanitize-recover=undefined)
endif()

# How the tests are run.
set(AMR_SANITIZER_OPTIONS
    "LSAN_OPTIONS=suppressions='${CMAKE_CURRENT_SOURCE_DIR}/c_tests/leaks.supp':print_suppressions=0"
    # The threads of the default engine live as long as the process, and a forked
    # child may use the library.
    "TSAN_OPTIONS=report_thread_leaks=0:die_after_fork=0:suppressions='${CMAKE_CURRENT_SOURCE_DIR}/c_tests/races.supp':print_suppressions=0")

# Rust knows no sanitizer for what is undefined in C.
set(amr_rust_sanitizers ${AMR_SANITIZE})
list(FILTER amr_rust_sanitizers INCLUDE REGEX "^(address|thread)$")
if(NOT amr_rust_sanitizers)
    return()
endif()

execute_process(
    COMMAND "${CMAKE_COMMAND}" -E env RUSTUP_TOOLCHAIN=nightly
        "${AMR_CARGO}" -Z unstable-options rustc --print sysroot
    WORKING_DIRECTORY "${CMAKE_CURRENT_SOURCE_DIR}"
    OUTPUT_VARIABLE amr_nightly OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
if(EXISTS "${amr_nightly}/lib/rustlib/src/rust/library")
    message(STATUS "The Rust code is compiled with -Zsanitizer=${amr_rust_sanitizers}")
    list(APPEND AMR_CARGO_ENVIRONMENT RUSTUP_TOOLCHAIN=nightly
        "RUSTFLAGS=-Zsanitizer=${amr_rust_sanitizers} $ENV{RUSTFLAGS}")
    set(AMR_CARGO_OPTIONS -Zbuild-std=std,panic_abort)
    set(AMR_RUST_SANITIZED ON)
elseif("thread" IN_LIST AMR_SANITIZE)
    message(FATAL_ERROR
        "AMR_SANITIZE=thread needs Rust's nightly toolchain with rust-src: "
        "rustup component add rust-src --toolchain nightly")
else()
    message(STATUS "Only the C code is sanitized: there is no nightly Rust with rust-src")
endif()
