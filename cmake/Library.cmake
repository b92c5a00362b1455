# SPDX-License-Identifier: MIT OR Apache-2.0
#
# The targets amr (libamr.so) and amr_static (libamr.a).
#
# Cargo makes an archive of libamr and Rust's standard library. A partial link
# makes one object file of it, in which all symbols but the amr_* functions are
# local. Both libraries are made of that object: so libamr.so has a SONAME and
# symbol versions, which rustc cannot give it, and libamr.a can be linked into
# a program beside another Rust library without their symbols clashing.

# What Rust's standard library and libamr need at link time, as rustc tells it;
# install.native_libs compares.
set(AMR_SYSTEM_LIBRARIES gcc_s util rt pthread m dl c)

file(STRINGS abi/symbols amr_symbols REGEX "^amr_")
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS abi/symbols)

# --- Cargo -------------------------------------------------------------------

set(amr_cargo_out "${AMR_CARGO_DIR}/${AMR_RUST_TARGET}/release")
set(amr_features "")
if(AMR_FEATURES)
    set(amr_features --features ${AMR_FEATURES})
endif()

add_custom_command(
    OUTPUT "${amr_cargo_out}/libamr.a"
    BYPRODUCTS "${AMR_CARGO_DIR}/native-static-libs"
    COMMAND "${CMAKE_COMMAND}" -E env
        "CARGO_TARGET_DIR=${AMR_CARGO_DIR}" ${AMR_CARGO_ENVIRONMENT}
        "${AMR_CARGO}" rustc --release --locked --lib --crate-type staticlib
        --target "${AMR_RUST_TARGET}" ${amr_features} ${AMR_CARGO_OPTIONS}
        -- --print "native-static-libs=${AMR_CARGO_DIR}/native-static-libs"
    # Cargo leaves a file alone that it finds current, though it was touched.
    COMMAND "${CMAKE_COMMAND}" -E touch "${amr_cargo_out}/libamr.a"
    DEPENDS Cargo.toml Cargo.lock build.rs
    DEPFILE "${amr_cargo_out}/libamr.d"
    WORKING_DIRECTORY "${CMAKE_CURRENT_SOURCE_DIR}"
    COMMENT "Building libamr with cargo (verbs declarations: ${AMR_BINDINGS_TAKEN})"
    USES_TERMINAL VERBATIM)

# --- One object file ---------------------------------------------------------

# What the functions do not reach, of Rust's standard library and of rdma-sys,
# is left out.
list(TRANSFORM amr_symbols PREPEND "--undefined=" OUTPUT_VARIABLE amr_roots)
list(JOIN amr_roots "\n" amr_roots)
file(CONFIGURE OUTPUT roots CONTENT "@amr_roots@\n" @ONLY)

add_custom_command(
    OUTPUT amr.o
    COMMAND "${CMAKE_LINKER}" -r --gc-sections --force-group-allocation @roots
        -o amr-all.o --whole-archive "${amr_cargo_out}/libamr.a"
    # Rust's standard library brings bitcode, which makes nm and ar trip where
    # their LLVM plugin is older than it.
    COMMAND "${CMAKE_OBJCOPY}" "--keep-global-symbols=${CMAKE_CURRENT_SOURCE_DIR}/abi/symbols"
        --remove-section .llvmbc --remove-section .llvmcmd amr-all.o amr.o
    COMMAND "${CMAKE_COMMAND}" -E rm amr-all.o
    DEPENDS "${amr_cargo_out}/libamr.a" abi/symbols "${CMAKE_CURRENT_BINARY_DIR}/roots"
    COMMENT "Hiding all symbols but amr_*"
    VERBATIM)
# Both libraries wait for it, so that it is not made twice at the same time.
add_custom_target(amr_object DEPENDS amr.o)
set_source_files_properties(amr.o PROPERTIES EXTERNAL_OBJECT TRUE GENERATED TRUE)

# --- libamr.so ---------------------------------------------------------------

add_library(amr SHARED amr.o)
add_library(amr::amr ALIAS amr)
add_dependencies(amr amr_object)
set_target_properties(amr PROPERTIES
    LINKER_LANGUAGE C
    VERSION ${PROJECT_VERSION}
    SOVERSION ${PROJECT_VERSION_MAJOR}
    # It finds its libraries where every program does.
    SKIP_BUILD_RPATH ON
    INSTALL_RPATH ""
    LINK_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/abi/libamr.map")
target_link_options(amr PRIVATE
    "LINKER:--version-script=${CMAKE_CURRENT_SOURCE_DIR}/abi/libamr.map"
    LINKER:--gc-sections
    LINKER:--as-needed
    LINKER:-z,now
    LINKER:-z,relro
    # Its threads and thread-local destructors outlive a dlclose().
    LINKER:-z,nodelete)
if(NOT AMR_SANITIZE)
    # Compilers differ in whether they link the sanitizers' runtime here.
    target_link_options(amr PRIVATE LINKER:-z,defs)
endif()
if("thread" IN_LIST AMR_SANITIZE)
    target_sources(amr PRIVATE cmake/tsan_memory.c)
    set_source_files_properties(cmake/tsan_memory.c PROPERTIES
        COMPILE_OPTIONS "-fno-sanitize=thread;-fno-builtin")
endif()
target_link_libraries(amr PRIVATE ${AMR_SYSTEM_LIBRARIES})

# --- libamr.a ----------------------------------------------------------------

add_library(amr_static STATIC amr.o)
add_library(amr::amr_static ALIAS amr_static)
add_dependencies(amr_static amr_object)
set_target_properties(amr_static PROPERTIES LINKER_LANGUAGE C OUTPUT_NAME amr)
target_link_libraries(amr_static INTERFACE ${AMR_SYSTEM_LIBRARIES})

# --- Both --------------------------------------------------------------------

foreach(target IN ITEMS amr amr_static)
    target_include_directories(${target} INTERFACE
        "$<BUILD_INTERFACE:${CMAKE_CURRENT_SOURCE_DIR}/include>"
        "$<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>")
    # Whoever has a PD to register on calls libibverbs as well.
    target_link_libraries(${target} PUBLIC IBVerbs::verbs)
endforeach()
