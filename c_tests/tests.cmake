# SPDX-License-Identifier: MIT OR Apache-2.0
#
# The tests, one line each; see CMakeLists.txt for what can be said of one.

# The one-call functions and what may be given to which function.
amr_c_test(one_call PLACES sim softroce)
amr_c_test(in_callback PLACES sim softroce)
amr_c_test(bad_call)
amr_c_test(bad_post)
amr_c_test(null_handles)
amr_c_test(struct_sizes NOT_UNDER valgrind)
amr_c_test(access_bits)
amr_c_test(access_refused PLACES sim softroce)
amr_c_test(implicit_odp)
amr_c_test(version)
amr_c_test(layout)
amr_c_test(cplusplus PLACES sim softroce)
set_source_files_properties(cplusplus.cpp PROPERTIES COMPILE_OPTIONS -std=c++11)

# Requests and their queues.
amr_c_test(batch PLACES sim softroce)
amr_c_test(post_callback PLACES sim softroce)
amr_c_test(iova PLACES sim softroce)
amr_c_test(queue_full)
amr_c_test(cq_full)
amr_c_test(cancel RACE)
amr_c_test(drain)
amr_c_test(drain_visible TIMEOUT 180 RACE)
amr_c_test(pd_in_use PLACES sim softroce)
amr_c_test(churn PLACES sim softroce)

# Completions.
amr_c_test(fd_level PLACES sim softroce)
amr_c_test(fd_epollet PLACES sim softroce RACE)
amr_c_test(fd_threads RACE)
amr_c_test(wait_cq PLACES sim softroce)

# The end of queues and engines.
amr_c_test(destroy_cq)
amr_c_test(destroy_engine)

# Errors and what is said about them.
amr_c_test(errors)
amr_c_test(retry)
amr_c_test(dereg_failure)
amr_c_test(dereg_twice RACE)
amr_c_test(diagnosis)
amr_c_test(map_count NOT_UNDER valgrind)
amr_c_test(explain)
amr_c_test(unpinnable PLACES softroce)
amr_c_test(refused_commands PLACES softroce)
amr_c_test(device_removed PLACES softroce)
amr_c_test(max_mr PLACES softroce TIMEOUT 120)
amr_c_test(mapped_files)
amr_c_test(memlock PLACES sim softroce)
amr_c_test(hole PLACES sim softroce)
amr_c_test(limits PLACES sim softroce NOT_UNDER thread)
amr_c_test(stats)

# Large requests: faulting in, huge pages, nodes, and who comes first.
amr_c_test(prefault PLACES sim softroce)
amr_c_test(prefault_environment ENVIRONMENT AMR_PREFAULT=0)
amr_c_test(prefault_mappings PLACES sim softroce)
amr_c_test(huge_pages PLACES sim softroce)
amr_c_test(overtake)
amr_c_test(numa PLACES softroce GUEST --numa)

# What the kernel and libibverbs make of a buffer: the real ones only. Fork support
# is of no effect on today's kernels unless RDMAV_USE_MADVISE asks for it.
set(fork_support RDMAV_USE_MADVISE=1)
amr_c_test(diagnosis_kernel PLACES softroce ENVIRONMENT ${fork_support})
amr_c_test(fork_hole PLACES softroce ENVIRONMENT ${fork_support})
amr_c_test(fork_hugetlb PLACES softroce ENVIRONMENT ${fork_support})
amr_c_test(fork_half_page PLACES softroce ENVIRONMENT ${fork_support})
amr_c_test(unmapped_before_dereg PLACES softroce ENVIRONMENT ${fork_support})
amr_c_test(many_mappings PLACES softroce
    ENVIRONMENT ${fork_support} RDMAV_HUGEPAGES_SAFE=1)
amr_c_test(interrupted_dereg PLACES softroce)
set(rc_folder "${PROJECT_SOURCE_DIR}/examples/common")
amr_c_test(dma_after_dereg SOURCES dma_after_dereg.c "${rc_folder}/rc.c" PLACES sim softroce)
target_include_directories(test_dma_after_dereg PRIVATE "${rc_folder}")

# Many threads, and the workers' sleep.
amr_c_test(threads TIMEOUT 120 RACE)
amr_c_test(poll_threads TIMEOUT 120 RACE)
amr_c_test(random_use TIMEOUT 120 RACE)
amr_c_test(concurrency RACE)
amr_c_test(chain)
amr_c_test(deep_callback NOT_UNDER thread)
amr_c_test(slow_device)
amr_c_test(wake_gap TIMEOUT 300 RACE)
amr_c_test(faster PLACES softroce)
amr_c_test(rss_flat TIMEOUT 120 NOT_UNDER address thread valgrind)

# The process: its environment, its children and its end.
amr_c_test(environment TIMEOUT 120 NOT_UNDER valgrind)
amr_c_test(cpus)
amr_c_test(quiet NOT_UNDER address valgrind)
amr_c_test(log_secrets NOT_UNDER address valgrind)
amr_c_test(close_on_exec)
amr_c_test(secure NOT_UNDER address thread valgrind)
amr_c_test(thread_failure)
amr_c_test(every_verbs_failure)
amr_c_test(no_memory NOT_UNDER valgrind)
# It has a malloc of its own. ThreadSanitizer would call it before it has begun, and
# valgrind, which would replace it, has to be told to replace the one below it.
string(JOIN " " options --soname-synonyms=somalloc=nouserintercepts --max-threads=1000
    --leak-check=full --show-leak-kinds=definite --errors-for-leak-kinds=definite)
amr_c_test(every_failure TIMEOUT 180 NOT_UNDER thread ENVIRONMENT "VALGRIND_OPTS=${options}")
set_target_properties(test_every_failure PROPERTIES ENABLE_EXPORTS ON)
amr_device_test(every_failure_at_load TARGET test_every_failure NOT_UNDER thread
    ENVIRONMENT AMR_TEST_FAILS_AT_LOAD=1 "VALGRIND_OPTS=${options}")
amr_c_test(thread_cancel RACE)
amr_c_test(fork_in_callback NOT_UNDER thread)
amr_c_test(fork_child PLACES sim softroce NOT_UNDER address thread)
amr_c_test(fork_busy NOT_UNDER thread RACE)
amr_c_test(fork_exec NOT_UNDER address thread valgrind)
amr_c_test(globals TIMEOUT 120 NOT_UNDER address valgrind)
# Other allocators (F37), and the libibverbs of an old rdma-core (F23).
foreach(allocator IN ITEMS jemalloc tcmalloc_minimal)
    amr_preload_test(${allocator} one_call)
    amr_preload_test(${allocator} threads)
    amr_preload_test(${allocator} fork_child)
endforeach()
amr_device_test(old_libibverbs TARGET test_one_call ENVIRONMENT
    "LD_LIBRARY_PATH=$<TARGET_FILE_DIR:amr_sim_old>:$<TARGET_FILE_DIR:amr>" LD_BIND_NOW=1)
amr_c_test(process_exit TIMEOUT 180 NOT_UNDER valgrind)

# The C++ layer.
amr_c_test(cpp_error)
amr_c_test(cpp_context)
amr_c_test(cpp_device_file PLACES softroce)
amr_c_test(cpp_region)
amr_c_test(cpp_manager)
amr_c_test(cpp_queue)
amr_c_test(cpp_hints)
amr_c_test(cpp_order TIMEOUT 120)
amr_c_test(cpp_no_memory NOT_UNDER valgrind)
amr_c_test(cpp_coroutine)
set_target_properties(test_cpp_coroutine PROPERTIES CXX_STANDARD 20)

# As above, but for a program that is not linked with libamr.
add_executable(test_dlopen dlopen.c)
set_target_properties(test_dlopen PROPERTIES OUTPUT_NAME dlopen)
target_include_directories(test_dlopen PRIVATE "${PROJECT_SOURCE_DIR}/include")
target_link_libraries(test_dlopen PRIVATE IBVerbs::verbs amr_test_options)
add_dependencies(test_dlopen amr)
amr_device_test(dlopen TARGET test_dlopen ARGS $<TARGET_SONAME_FILE_NAME:amr> NOT_UNDER thread)

# Nor is this one linked with libibverbs.
add_executable(test_dlopen_orders dlopen_orders.c)
set_target_properties(test_dlopen_orders PROPERTIES OUTPUT_NAME dlopen_orders)
target_include_directories(test_dlopen_orders PRIVATE "${PROJECT_SOURCE_DIR}/include"
    $<TARGET_PROPERTY:IBVerbs::verbs,INTERFACE_INCLUDE_DIRECTORIES>)
target_link_libraries(test_dlopen_orders PRIVATE amr_test_options)
add_dependencies(test_dlopen_orders amr amr_sim)
amr_device_test(dlopen_orders TARGET test_dlopen_orders
    ARGS $<TARGET_SONAME_FILE_NAME:amr> NOT_UNDER address thread valgrind)
