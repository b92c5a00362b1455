# SPDX-License-Identifier: MIT OR Apache-2.0
#
# Chooses where the library's verbs declarations come from: sets AMR_FEATURES,
# the Cargo features to build with, and AMR_CARGO_ENVIRONMENT.
#
# rdma-sys makes its declarations with bindgen 0.59, which needs a libclang
# older than 16 and the headers of librdmacm. It is taken where that works.

# Sets ${result} to the newest libclang that may do, or to what LIBCLANG_PATH
# says; empty if there is none.
function(amr_find_libclang result)
    if(DEFINED ENV{LIBCLANG_PATH})
        set(${result} "$ENV{LIBCLANG_PATH}" PARENT_SCOPE)
        return()
    endif()
    set(${result} "" PARENT_SCOPE)
    file(GLOB files
        /usr/lib/llvm-*/lib/libclang*.so*
        /usr/lib*/llvm*/lib*/libclang*.so*
        /usr/lib*/libclang*.so*
        /usr/lib/*/libclang*.so*
        /usr/local/lib*/libclang*.so*)
    set(best 0)
    foreach(file IN LISTS files)
        # libclang-14.so.14.0.6, libclang-14.0.6.so, libclang.so.14.0.6; a name like
        # libclang.so.13 does not tell the version, but is a link to one that does.
        file(REAL_PATH "${file}" real)
        if(real MATCHES "/libclang(-([0-9]+)[.0-9]*)?\\.so(\\.([0-9]+))?[.0-9]*$")
            set(found "${CMAKE_MATCH_2}")
            if(found STREQUAL "")
                set(found "${CMAKE_MATCH_4}")
            endif()
            # A small number is that of the interface: libclang.so.1.
            if(found GREATER 3 AND found LESS 16 AND found GREATER best)
                set(best ${found})
                set(${result} "${file}" PARENT_SCOPE)
            endif()
        endif()
    endforeach()
endfunction()

# Sets amr_rdma_sys_problem to why rdma-sys cannot be had, empty if it can, and
# amr_libclang.
function(amr_try_rdma_sys)
    set(amr_rdma_sys_problem "" PARENT_SCOPE)
    find_package(PkgConfig QUIET)
    if(PkgConfig_FOUND)
        pkg_check_modules(AMR_RDMA_SYS_NEEDS QUIET libibverbs>=1.8.28 librdmacm>=1.2.28)
    endif()
    if(NOT AMR_RDMA_SYS_NEEDS_FOUND)
        set(amr_rdma_sys_problem "pkg-config finds no librdmacm with headers" PARENT_SCOPE)
        return()
    endif()
    amr_find_libclang(libclang)
    set(amr_libclang "${libclang}" PARENT_SCOPE)
    if(libclang STREQUAL "")
        set(amr_rdma_sys_problem "no libclang older than 16 was found" PARENT_SCOPE)
        return()
    endif()

    message(STATUS "Trying to build rdma-sys with ${libclang}")
    set(log "${CMAKE_CURRENT_BINARY_DIR}/rdma-sys.log")
    execute_process(
        COMMAND "${CMAKE_COMMAND}" -E env "CARGO_TARGET_DIR=${AMR_CARGO_DIR}"
            "LIBCLANG_PATH=${libclang}" ${AMR_CARGO_ENVIRONMENT}
            "${AMR_CARGO}" check --release --locked --lib --target "${AMR_RUST_TARGET}"
            --features rdma-sys ${AMR_CARGO_OPTIONS}
        WORKING_DIRECTORY "${CMAKE_CURRENT_SOURCE_DIR}"
        OUTPUT_VARIABLE output ERROR_VARIABLE output RESULT_VARIABLE result)
    file(WRITE "${log}" "${output}")
    # Once its own turn came, libamr fails to compile with a better message when
    # it is built.
    if(result AND NOT output MATCHES "could not compile `amr`")
        set(amr_rdma_sys_problem "it does not build here, see ${log}" PARENT_SCOPE)
    endif()
endfunction()

if(NOT AMR_BINDINGS MATCHES "^(auto|rdma-sys|builtin)$")
    message(FATAL_ERROR "AMR_BINDINGS is auto, rdma-sys or builtin, not ${AMR_BINDINGS}")
endif()

# Tried once for each build folder and request.
if(NOT AMR_BINDINGS STREQUAL AMR_BINDINGS_ASKED)
    if(AMR_BINDINGS STREQUAL builtin)
        set(amr_taken builtin)
        set(amr_reason "as asked for")
    else()
        amr_try_rdma_sys()
        if(amr_rdma_sys_problem STREQUAL "")
            set(amr_taken rdma-sys)
            set(amr_reason "with ${amr_libclang}")
        elseif(AMR_BINDINGS STREQUAL rdma-sys)
            message(FATAL_ERROR "rdma-sys cannot be had: ${amr_rdma_sys_problem}")
        else()
            set(amr_taken builtin)
            set(amr_reason "not rdma-sys: ${amr_rdma_sys_problem}")
        endif()
    endif()
    set(AMR_BINDINGS_TAKEN ${amr_taken} CACHE INTERNAL "")
    set(AMR_BINDINGS_REASON "${amr_reason}" CACHE INTERNAL "")
    set(AMR_BINDINGS_LIBCLANG "${amr_libclang}" CACHE INTERNAL "")
    set(AMR_BINDINGS_ASKED ${AMR_BINDINGS} CACHE INTERNAL "")
endif()

message(STATUS "Verbs declarations: ${AMR_BINDINGS_TAKEN} (${AMR_BINDINGS_REASON})")
set(AMR_FEATURES "")
if(AMR_BINDINGS_TAKEN STREQUAL rdma-sys)
    set(AMR_FEATURES rdma-sys)
    list(APPEND AMR_CARGO_ENVIRONMENT "LIBCLANG_PATH=${AMR_BINDINGS_LIBCLANG}")
endif()
