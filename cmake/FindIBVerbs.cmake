# SPDX-License-Identifier: MIT OR Apache-2.0
#
# Finds libibverbs, which comes with pkg-config files but none for CMake.
#
#   IBVerbs::verbs       the library and its headers
#   IBVerbs_INCLUDE_DIR  the folder that holds infiniband/verbs.h
#   IBVerbs_LIBRARY      the library's file

find_package(PkgConfig QUIET)
if(PkgConfig_FOUND)
    pkg_check_modules(PC_IBVERBS QUIET libibverbs)
endif()

find_path(IBVerbs_INCLUDE_DIR infiniband/verbs.h HINTS ${PC_IBVERBS_INCLUDE_DIRS})
find_library(IBVerbs_LIBRARY ibverbs HINTS ${PC_IBVERBS_LIBRARY_DIRS})
mark_as_advanced(IBVerbs_INCLUDE_DIR IBVerbs_LIBRARY)

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(IBVerbs
    REQUIRED_VARS IBVerbs_LIBRARY IBVerbs_INCLUDE_DIR
    REASON_FAILURE_MESSAGE
        "Install libibverbs-dev (Debian, Ubuntu) or rdma-core-devel (Fedora, RHEL, SUSE)")

if(IBVerbs_FOUND AND NOT TARGET IBVerbs::verbs)
    add_library(IBVerbs::verbs UNKNOWN IMPORTED)
    set_target_properties(IBVerbs::verbs PROPERTIES
        IMPORTED_LOCATION "${IBVerbs_LIBRARY}"
        INTERFACE_INCLUDE_DIRECTORIES "${IBVerbs_INCLUDE_DIR}")
endif()
