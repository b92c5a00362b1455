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
amr_c_test(implicit_odp)
amr_c_test(version)
amr_c_test(layout)
amr_c_test(cplusplus PLACES sim softroce)
set_source_files_properties(cplusplus.cpp PROPERTIES COMPILE_OPTIONS -std=c++11)

# Requests and their queues.
amr_c_test(batch PLACES sim softroce)
amr_c_test(iova PLACES sim softroce)
amr_c_test(queue_full)
amr_c_test(cq_full)
amr_c_test(cancel)
amr_c_test(drain)
amr_c_test(drain_visible TIMEOUT 180)
amr_c_test(churn PLACES sim softroce)

# Completions.
amr_c_test(fd_level PLACES sim softroce)
amr_c_test(fd_epollet PLACES sim softroce)
amr_c_test(fd_threads)
amr_c_test(wait_cq PLACES sim softroce)

# The end of queues and engines.
amr_c_test(destroy_cq)
amr_c_test(destroy_engine)

# Errors and what is said about them.
amr_c_test(errors)
amr_c_test(retry)
amr_c_test(dereg_failure)
amr_c_test(diagnosis)
amr_c_test(map_count NOT_UNDER valgrind)
amr_c_test(explain)
amr_c_test(memlock PLACES sim softroce)
amr_c_test(hole PLACES sim softroce)
amr_c_test(limits PLACES sim softroce NOT_UNDER thread)
amr_c_test(stats)

# Many threads, and the workers' sleep.
amr_c_test(threads TIMEOUT 120)
amr_c_test(poll_threads TIMEOUT 120)
amr_c_test(concurrency)
amr_c_test(chain NOT_UNDER thread)
amr_c_test(slow_device)
amr_c_test(wake_gap TIMEOUT 300)
amr_c_test(faster PLACES softroce)
amr_c_test(rss_flat TIMEOUT 120 NOT_UNDER address thread valgrind)

# The process: its environment, its children and its end.
amr_c_test(environment TIMEOUT 120 NOT_UNDER valgrind)
amr_c_test(cpus)
amr_c_test(quiet NOT_UNDER address valgrind)
amr_c_test(thread_failure)
amr_c_test(no_memory NOT_UNDER valgrind)
amr_c_test(thread_cancel)
amr_c_test(fork_in_callback NOT_UNDER thread)
amr_c_test(fork_child PLACES sim softroce NOT_UNDER address thread)
amr_c_test(fork_busy NOT_UNDER thread)
amr_c_test(process_exit TIMEOUT 180 NOT_UNDER valgrind)

# As above, but for a program that is not linked with libamr.
add_executable(test_dlopen dlopen.c)
set_target_properties(test_dlopen PROPERTIES OUTPUT_NAME dlopen)
target_include_directories(test_dlopen PRIVATE "${PROJECT_SOURCE_DIR}/include")
target_link_libraries(test_dlopen PRIVATE IBVerbs::verbs amr_test_options)
add_dependencies(test_dlopen amr)
amr_device_test(dlopen TARGET test_dlopen ARGS $<TARGET_SONAME_FILE_NAME:amr> NOT_UNDER thread)
