# SPDX-License-Identifier: MIT OR Apache-2.0
#
# Chooses where the library's verbs declarations come from: sets AMR_FEATURES,
# the Cargo features to build with, and AMR_CARGO_ENVIRONMENT.
#
# rdma-sys makes its declarations with bindgen 0.59, which needs a libclang
# older than 16 and the headers of librdmacm. It is taken where that works.

# Sets ${folder} to one that holds a libclang that may do, and ${version} to
# its major version (0: LIBCLANG_PATH was set, and whoever did that knows).
function(amr_find_libclang folder version)
    if(DEFINED ENV{LIBCLANG_PATH})
        set(${folder} "$ENV{LIBCLANG_PATH}" PARENT_SCOPE)
        set(${version} 0 PARENT_SCOPE)
        return()
    endif()
    file(GLOB files
        /usr/lib/llvm-*/lib/libclang*.so*
        /usr/lib*/llvm*/lib*/libclang*.so*
        /usr/lib*/libclang*.so*
        /usr/lib/*/libclang*.so*
        /usr/local/lib*/libclang*.so*)
    set(best 0)
    foreach(file IN LISTS files)
        # libclang-14.so.1, libclang-14.0.6.so, libclang.so.13, libclang.so.14.0.6
        if(file MATCHES "/libclang(-([0-9]+)[.0-9]*)?\\.so(\\.([0-9]+))?[.0-9]*$")
            set(found "${CMAKE_MATCH_2}")
            if(found STREQUAL "")
                set(found "${CMAKE_MATCH_4}")
            endif()
            if(NOT found STREQUAL "" AND found GREATER best AND found LESS 16 AND found GREATER 3)
                set(best ${found})
                cmake_path(GET file PARENT_PATH best_folder)
            endif()
        endif()
    endforeach()
    if(best)
        set(${folder} "${best_folder}" PARENT_SCOPE)
        set(${version} ${best} PARENT_SCOPE)
    else()
        set(${folder} "" PARENT_SCOPE)
    endif()
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
    amr_find_libclang(libclang version)
    set(amr_libclang "${libclang}" PARENT_SCOPE)
    if(libclang STREQUAL "")
        set(amr_rdma_sys_problem "no libclang older than 16 was found" PARENT_SCOPE)
        return()
    endif()

    message(STATUS "Trying rdma-sys with the libclang in ${libclang}")
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
            set(amr_reason "with the libclang in ${amr_libclang}")
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
