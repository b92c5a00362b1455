# SPDX-License-Identifier: MIT OR Apache-2.0
#
# cmake -DMANIFEST=install_manifest.txt -P uninstall.cmake
# Removes the files of the last installation, and the folders that are libamr's
# own once they are empty. DESTDIR counts as it did when they were installed.

if(NOT EXISTS "${MANIFEST}")
    message(FATAL_ERROR "Nothing was installed from here: there is no ${MANIFEST}")
endif()

function(remove_if_empty folder)
    file(GLOB rest "${folder}/*")
    if(NOT rest)
        file(REMOVE_RECURSE "${folder}")
    endif()
endfunction()

file(STRINGS "${MANIFEST}" files)
foreach(file IN LISTS files)
    set(file "$ENV{DESTDIR}${file}")
    if(EXISTS "${file}" OR IS_SYMLINK "${file}")
        message(STATUS "Removing: ${file}")
        file(REMOVE "${file}")
    endif()
    cmake_path(GET file PARENT_PATH folder)
    if(folder MATCHES "/amr/detail$")
        remove_if_empty("${folder}")
        cmake_path(GET folder PARENT_PATH folder)
    endif()
    if(folder MATCHES "/amr$")
        remove_if_empty("${folder}")
    endif()
endforeach()
file(REMOVE "${MANIFEST}")
