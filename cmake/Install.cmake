# SPDX-License-Identifier: MIT OR Apache-2.0
#
# What `cmake --install` puts where, and the target `uninstall`. Everything
# that is installed finds the rest of it from its own place, so that the whole
# can be moved.

include(CMakePackageConfigHelpers)

set(amr_cmake_dir "${CMAKE_INSTALL_LIBDIR}/cmake/amr")

install(TARGETS amr amr_static EXPORT amr-targets)
install(DIRECTORY include/amr DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}"
    FILES_MATCHING PATTERN "*.h" PATTERN "*.hpp")
install(FILES LICENSE-MIT LICENSE-APACHE DESTINATION "${CMAKE_INSTALL_DOCDIR}")
foreach(section IN ITEMS 3 7)
    install(DIRECTORY docs/man/ DESTINATION "${CMAKE_INSTALL_MANDIR}/man${section}"
        FILES_MATCHING PATTERN "*.${section}")
endforeach()

# --- For CMake ---------------------------------------------------------------

install(EXPORT amr-targets NAMESPACE amr:: DESTINATION "${amr_cmake_dir}")
configure_package_config_file(cmake/amr-config.cmake.in amr-config.cmake
    INSTALL_DESTINATION "${amr_cmake_dir}"
    NO_SET_AND_CHECK_MACRO)
# Before 1.0, a new minor version may change what there is.
write_basic_package_version_file(amr-config-version.cmake COMPATIBILITY SameMinorVersion)
install(
    FILES
        "${CMAKE_CURRENT_BINARY_DIR}/amr-config.cmake"
        "${CMAKE_CURRENT_BINARY_DIR}/amr-config-version.cmake"
        cmake/FindIBVerbs.cmake
    DESTINATION "${amr_cmake_dir}")

# --- For pkg-config ----------------------------------------------------------

# libibverbs is not named in Requires.private: with --static, pkg-config would
# then go on to all device providers that can be linked into a static
# libibverbs, while libamr links it dynamically in either form.
cmake_path(IS_ABSOLUTE CMAKE_INSTALL_LIBDIR amr_libdir_is_absolute)
if(amr_libdir_is_absolute)
    set(amr_pc_prefix "${CMAKE_INSTALL_PREFIX}")
else()
    # From the folder of amr.pc up to the prefix.
    set(amr_pc_prefix "\${pcfiledir}")
    cmake_path(RELATIVE_PATH CMAKE_INSTALL_PREFIX
        BASE_DIRECTORY "${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig" OUTPUT_VARIABLE amr_up)
    string(APPEND amr_pc_prefix "/${amr_up}")
endif()
cmake_path(ABSOLUTE_PATH CMAKE_INSTALL_LIBDIR BASE_DIRECTORY "\${prefix}"
    OUTPUT_VARIABLE amr_pc_libdir)
cmake_path(ABSOLUTE_PATH CMAKE_INSTALL_INCLUDEDIR BASE_DIRECTORY "\${prefix}"
    OUTPUT_VARIABLE amr_pc_includedir)
list(TRANSFORM AMR_SYSTEM_LIBRARIES PREPEND "-l" OUTPUT_VARIABLE amr_pc_private)
list(JOIN amr_pc_private " " amr_pc_private)
# A libibverbs in a folder of its own, like that of a vendor.
set(amr_pc_cflags "")
set(amr_pc_ibverbs "-libverbs")
cmake_path(GET IBVerbs_LIBRARY PARENT_PATH amr_ibverbs_libdir)
if(NOT IBVerbs_INCLUDE_DIR IN_LIST CMAKE_C_IMPLICIT_INCLUDE_DIRECTORIES)
    set(amr_pc_cflags " -I${IBVerbs_INCLUDE_DIR}")
endif()
if(NOT amr_ibverbs_libdir IN_LIST CMAKE_C_IMPLICIT_LINK_DIRECTORIES)
    set(amr_pc_ibverbs "-L${amr_ibverbs_libdir} -libverbs")
endif()
configure_file(cmake/amr.pc.in amr.pc @ONLY)
install(FILES "${CMAKE_CURRENT_BINARY_DIR}/amr.pc"
    DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig")

# --- Uninstall ---------------------------------------------------------------

if(PROJECT_IS_TOP_LEVEL)
    add_custom_target(uninstall
        COMMAND "${CMAKE_COMMAND}"
            "-DMANIFEST=${CMAKE_CURRENT_BINARY_DIR}/install_manifest.txt"
            -P "${CMAKE_CURRENT_SOURCE_DIR}/cmake/uninstall.cmake"
        COMMENT "Removing what was installed"
        VERBATIM)
endif()
