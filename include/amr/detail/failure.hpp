// SPDX-License-Identifier: MIT OR Apache-2.0
// What a destructor could not do: it cannot throw, so it is counted, and somebody is told.
#ifndef AMR_DETAIL_FAILURE_HPP
#define AMR_DETAIL_FAILURE_HPP

#include "../amr.h"
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace amr {

// Called in a destructor, on whatever thread that runs, a worker's included. `what` is a call that
// failed, like "ibv_dereg_mr", and `status` its errno value. Must not throw.
using failure_handler = void (*)(const char *what, int status);

namespace detail {

// The default: a line on standard error where AMR_LOG asks for warnings.
inline void log_failure(const char *what, int status) {
    const char *level = std::getenv("AMR_LOG");
    if (level != nullptr && (std::strcmp(level, "warn") == 0 || std::strcmp(level, "info") == 0 ||
                             std::strcmp(level, "debug") == 0))
        std::fprintf(stderr, "amr: a destructor's %s failed: %s\n", what, amr_status_str(status));
}

struct failures {
    std::atomic<std::uint64_t> count;
    std::atomic<failure_handler> handler;
};

// Never destroyed: destructors of other static objects may need it.
inline failures &all_failures() noexcept {
    static failures all = {{0}, {log_failure}};
    return all;
}

inline void report_failure(const char *what, int status) noexcept {
    failures &all = all_failures();
    all.count.fetch_add(1, std::memory_order_relaxed);
    all.handler.load(std::memory_order_acquire)(what, status);
}

} // namespace detail

// How many calls of destructors have failed in this process. The usual one is a deregistration of
// memory that is still in use; what failed stays allocated until the process ends.
inline std::uint64_t destructor_failures() noexcept {
    return detail::all_failures().count.load(std::memory_order_relaxed);
}

// Has `handler` told of them from now on, instead of the default one, which writes a line to
// standard error if AMR_LOG is warn, info or debug. nullptr: the default. Returns the one before.
inline failure_handler set_failure_handler(failure_handler handler) noexcept {
    if (handler == nullptr)
        handler = detail::log_failure;
    return detail::all_failures().handler.exchange(handler, std::memory_order_acq_rel);
}

} // namespace amr

#endif // AMR_DETAIL_FAILURE_HPP
