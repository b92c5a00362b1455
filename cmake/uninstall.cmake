# SPDX-License-Identifier: MIT OR Apache-2.0
#
# cmake -DMANIFEST=install_manifest.txt -P uninstall.cmake
# Removes the files of the last installation, and the folders that are libamr's
# own once they are empty. DESTDIR counts as it did when they were installed.

if(NOT EXISTS "${MANIFEST}")
    message(FATAL_ERROR "Nothing was installed from here: there is no ${MANIFEST}")
endif()

file(STRINGS "${MANIFEST}" files)
foreach(file IN LISTS files)
    set(file "$ENV{DESTDIR}${file}")
    if(EXISTS "${file}" OR IS_SYMLINK "${file}")
        message(STATUS "Removing: ${file}")
        file(REMOVE "${file}")
    endif()
    cmake_path(GET file PARENT_PATH folder)
    cmake_path(GET folder FILENAME name)
    if(name STREQUAL amr)
        file(GLOB rest "${folder}/*")
        if(NOT rest)
            file(REMOVE_RECURSE "${folder}")
        endif()
    endif()
endforeach()
file(REMOVE "${MANIFEST}")
